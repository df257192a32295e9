"""The command line: thin commands over importable functions."""
