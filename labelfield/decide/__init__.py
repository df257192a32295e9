"""Decisions with a promise: what to tag automatically and what a person should see, learned from held-out rows.

Pure functions of arrays; NumPy and SciPy only.
"""

from labelfield.decide.drift import distance
from labelfield.decide.evidence import Evidence
from labelfield.decide.policies import Decision, Policy, fit_policy

__all__ = ["Decision", "Evidence", "Policy", "distance", "fit_policy"]
