"""Measure time and memory in processes of their own."""
