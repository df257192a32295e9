"""p(y | f) and its expectations."""

from labelfield.likelihoods.bernoulli import Bernoulli

__all__ = ["Bernoulli"]
