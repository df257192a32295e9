"""Benchmarks and the reproduction of papers: `python -m benchmarks --help`, from the root of the repository.

Only a docstring: the environments of other packages import from here too, and have neither torch nor labelfield.
"""
