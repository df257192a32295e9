"""Tensor functions without state: factorisations that explain failures, Gaussian divergences, quadrature, CSR rows."""
