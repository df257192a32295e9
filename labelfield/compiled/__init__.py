"""Loops that numba compiles for a CPU; everything here also exists in plain torch or NumPy."""
