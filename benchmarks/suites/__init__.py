"""Suites: methods and peers on data sets, each run in a fresh process."""
