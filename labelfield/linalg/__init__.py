"""Tensor functions without state: factorisations that explain their failures, Gaussian divergences, quadrature, sparse
rows."""
