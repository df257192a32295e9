"""The Bernoulli-Poisson topic model: topics over labels, which shares no parts with Gaussian processes."""
