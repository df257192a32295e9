"""Pure tensor functions: factorisations that explain their failures, Gaussian divergences, quadrature, sparse rows."""
