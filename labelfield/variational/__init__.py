"""Families of q(u): each gives the moments of h at rows and its divergence from the prior."""

from labelfield.variational.base import Family, Moments, Prior
from labelfield.variational.full import Full
from labelfield.variational.grid import GridFamily, GridPrior, Kronecker, WhitenedKronecker
from labelfield.variational.parsimonious import Parsimonious
from labelfield.variational.whitened import WhitenedDiagonal, WhitenedFull, WhitenedShared

__all__ = [
    "Family",
    "Full",
    "GridFamily",
    "GridPrior",
    "Kronecker",
    "Moments",
    "Parsimonious",
    "Prior",
    "WhitenedDiagonal",
    "WhitenedFull",
    "WhitenedKronecker",
    "WhitenedShared",
]
