"""Benchmarks: each writes a record, and tables are made from records."""
