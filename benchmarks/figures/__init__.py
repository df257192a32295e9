"""Pictures: figures of recipes, and those of docs/BENCHMARKS.md."""
