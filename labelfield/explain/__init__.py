"""Why a model says what it says: of one row, and of what it has learned as a whole."""

from labelfield.explain.features import relevant_features
from labelfield.explain.inducing import InducingInput, inducing_inputs
from labelfield.explain.intervals import intervals
from labelfield.explain.neighbours import LabelNeighbours, label_neighbours
from labelfield.explain.row import LabelExplanation, RowExplanation, explain_row
from labelfield.explain.topics import TopicShare

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
