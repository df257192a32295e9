"""Families of q(u): each gives the moments of h at rows and its divergence from the prior."""

from labelfield.variational.families import (
    Family,
    Full,
    Moments,
    Parsimonious,
    Prior,
    WhitenedDiagonal,
    WhitenedFull,
    WhitenedShared,
)

__all__ = ["Family", "Full", "Moments", "Parsimonious", "Prior", "WhitenedDiagonal", "WhitenedFull", "WhitenedShared"]
