"""Explain why a model predicts what it does, for one row, and what it has learned as a whole."""

from labelfield.explain.features import relevant_features
from labelfield.explain.inducing import InducingInput, inducing_inputs
from labelfield.explain.neighbours import LabelNeighbours, label_neighbours
from labelfield.explain.row import LabelExplanation, RowExplanation, TopicShare, explain_row, intervals

__all__ = [
    "InducingInput",
    "LabelExplanation",
    "LabelNeighbours",
    "RowExplanation",
    "TopicShare",
    "explain_row",
    "inducing_inputs",
    "intervals",
    "label_neighbours",
    "relevant_features",
]
