"""Families of q(u): each gives the moments of h at rows and its divergence from the prior."""
