"""The narrow waist: everything that explanations, reports and commands may ask of a fitted classifier.

They never look at the class of a classifier, or at a name that begins with an underscore. If a model cannot answer a
question, it returns None (loadings, relevance, topics, processes, baseline) or, where an array is expected, raises a
CannotAnswerError that says why.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.cluster import ALONE, Cluster
from labelfield.data import Dataset, Names
from labelfield.data.transform import RowTransform
from labelfield.decide import Decision, Evidence, Policy
from labelfield.estimators.classifier import TrainingCost
from labelfield.estimators.searching import Search
from labelfield.inference.run import Settings
from labelfield.metrics.propensity import RankBy
from labelfield.models.predictor import Latent, Predictor
from labelfield.models.search import Searched
from labelfield.text.parts import TextParts


class FittedClassifier(Protocol):
    """A classifier of any method, single or an ensemble, after fit or load."""

    # What it is
    @property
    def method(self) -> str: ...
    def summary(self) -> str: ...
    def facts(self) -> dict[str, str]: ...
    def members(self) -> list[FittedClassifier]: ...
    def n_parameters(self) -> int: ...
    def get_params(self, deep: bool = True) -> dict[str, Any]: ...

    # What it was trained on, and how: `label_kind_` is "classes" for one class per row, else "indicator" or "lists"
    label_kind_: str
    classes_: NDArray[Any]
    n_features_in_: int
    n_rows_: int
    label_counts_: NDArray[np.int64]
    spec_: Any
    settings_: Settings
    history_: list[dict[str, Any]]
    held_out_scores_: dict[str, list[float]]
    trials_: list[dict[str, Any]]
    # The predictions for held-out rows, for decisions; None if there are none
    evidence_: Evidence | None
    row_transform_: RowTransform
    n_negatives_: int | None
    feature_names_digest_: str | None
    # What searches need that score few labels exactly, with their audit; None if there is none
    index_: Any
    # The parts that turn documents into rows; None for a model of rows
    text_: TextParts | None

    def label_names(self) -> list[str]: ...
    def feature_names(self) -> list[str] | None: ...
    def name_features(self, names: Names | None, text: TextParts | None = None) -> None: ...
    def rows(self, X: Any) -> sparse.csr_array: ...
    def encode(self, Y: Any, n_rows: int) -> sparse.csr_array: ...

    # What it answers
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float: ...
    def predict(self, X: Any, k: int | None = None) -> Any: ...
    def predict_proba(self, X: Any, *, calibrated: bool = True) -> NDArray[np.float32]: ...
    def predict_topk(
        self,
        X: Any,
        k: int = 5,
        *,
        calibrated: bool = True,
        rank_by: RankBy = "probability",
        search: Search = "auto",
    ) -> sparse.csr_array: ...
    def search_topk(self, X: Any, k: int = 5, *, calibrated: bool = True) -> Searched: ...
    def uses_index(self, k: int, rank_by: Any, search: str) -> bool: ...
    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[NDArray[np.float32], NDArray[np.float32]]: ...
    def predict_uncertainty(self, X: Any, best: sparse.csr_array | None = None) -> NDArray[np.float32]: ...
    def decide(
        self,
        X: Any,
        *,
        precision: float | None = None,
        recall: float | None = None,
        review_rate: float | None = None,
        max_tags: int | None = None,
        f1: bool = False,
        confidence: float | None = 0.95,
    ) -> Decision: ...
    def policy(self, **asked: Any) -> Policy: ...
    def held_out_evidence(self) -> Evidence: ...
    def predict_latent(self, X: Any) -> Latent: ...
    def decision_function(self, X: Any) -> NDArray[np.float32]: ...
    def bound(self, X: Any, Y: Any) -> dict[str, float]: ...
    def feature_relevance(self) -> NDArray[np.float32] | None: ...
    def topics(self, n: int = 10, label_names: Any = None) -> list[Any] | None: ...

    # The predictor for rows as the model sees them: log-odds, loadings of labels, processes, topics, baseline
    predictor_: Predictor

    # Used by commands
    @property
    def device(self) -> str: ...
    @property
    def takes_missing(self) -> bool: ...
    def prepare(
        self, X: Any, Y: Any, classes: Any = None, *, observed: Any = None, cluster: Cluster = ALONE
    ) -> Dataset: ...
    def training_cost(self, data: Dataset) -> TrainingCost: ...
    def train_prepared(
        self,
        data: Dataset,
        *,
        validation: tuple[Any, Any] | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
        on_step: Any = None,
        cluster: Cluster = ALONE,
    ) -> Any: ...
    def save(self, folder: str | Path, label_names: Any = None) -> None: ...
