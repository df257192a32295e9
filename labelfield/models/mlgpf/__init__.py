"""The multi-label Gaussian-process factor model."""
