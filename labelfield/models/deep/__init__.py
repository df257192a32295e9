"""Stochastic variational deep kernel learning."""
