"""Saving a fitted factor model, with all members of an ensemble, to a folder, and making it anew from one."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from labelfield.errors import DataError
from labelfield.estimators.ensemble import MOST_MEMBERS
from labelfield.estimators.inputs import LABEL_KINDS
from labelfield.estimators.options import Rule, check_options, given
from labelfield.estimators.prediction import FactorPredictions
from labelfield.estimators.restoring import (
    COUNTS,
    WAITING,
    WEIGHTS,
    check_calibration,
    integer,
    one_of,
    restore_classes,
    restore_history,
    restore_model,
    restore_scores,
    restore_transform,
)
from labelfield.inference.trainer import Settings, Training
from labelfield.models.artifact import save_artifact
from labelfield.models.build import Spec
from labelfield.models.calibration import Calibration

__all__ = ["SavedFactors"]


class SavedFactors(FactorPredictions):
    """The part of a classifier that goes to a folder and comes back."""

    _rules: ClassVar[dict[str, Rule]]
    settings_: Settings
    n_features_in_: int
    n_negatives_: int | None
    n_rows_: int
    n_iter_: int
    label_counts_: NDArray[np.int64]
    label_names_: list[str]
    history_: list[dict[str, Any]]
    held_out_scores_: dict[str, list[float]]
    _training: Training | None
    _raw: tuple[Any, Any] | None

    @abstractmethod
    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All options, as scikit-learn's estimators give them."""

    def save(self, folder: str | Path, label_names: Any = None) -> None:
        """Write the fitted model to a folder that `labelfield.load` reads anywhere."""
        self._check_fitted()
        classes = self.classes_.tolist() if self.label_kind_ != "indicator" else None
        names = [str(name) for name in (self.classes_ if label_names is None else label_names)]
        if len(names) != self.spec_.n_labels:
            raise DataError(f"{len(names)} label names", expected=f"{self.spec_.n_labels}")
        if bad := [name for name in names if "\n" in name or not _is_text(name)]:
            raise DataError(f"the label name {bad[0]!r}", expected="a line of text", fix="Rename the label.")
        config, arrays = self._description()
        config["members"] = []
        for number, other in enumerate(self.others_, 1):
            described, own = other._description()
            config["members"].append(described)
            arrays |= {f"member.{number}.{name}": value for name, value in own.items()}
        if self.others_:
            arrays |= {f"ensemble.{name}": value for name, value in self.ensemble_calibration_.state_dict().items()}
        config["classes"] = classes
        save_artifact(Path(folder), {"method": "mlgpf", **config}, arrays, names)

    def _description(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """What a member is, in words and in arrays."""
        options = {name: given(value, None) for name, value in self.get_params().items()}
        config = {
            "options": options | {"random_state": self.settings_.seed, "device": "auto"},
            "spec": asdict(self.spec_),
            "settings": asdict(self.settings_),
            "row_transform": self.row_transform_.name,
            "n_features": self.n_features_in_,
            "n_negatives": self.n_negatives_,
            "label_kind": self.label_kind_,
            "n_rows": self.n_rows_,
            "history": self.history_,
            "held_out_scores": self.held_out_scores_,
        }
        arrays = {**self.model_.state_dict(), COUNTS: torch.from_numpy(self.label_counts_)}
        arrays.pop(WAITING, None)  # of use in training alone
        if self.row_transform_.weights is not None:
            arrays[WEIGHTS] = torch.from_numpy(self.row_transform_.weights)
        return config, arrays

    @classmethod
    def _restore(cls, config: dict[str, Any], arrays: dict[str, torch.Tensor], names: list[str] | None) -> Self:
        """From what `save` wrote; whatever does not fit raises."""
        own = {name: value for name, value in arrays.items() if not name.startswith(("member.", "ensemble."))}
        self = cls._restore_member(config, own, config["classes"], names)
        if not isinstance(config["members"], list) or len(config["members"]) >= MOST_MEMBERS:
            raise ValueError("the members are not a short list")
        for number, described in enumerate(config["members"], 1):
            start = f"member.{number}."
            theirs = {name.removeprefix(start): value for name, value in arrays.items() if name.startswith(start)}
            other = cls._restore_member(described, theirs, config["classes"], names)
            if (other.spec_.n_labels, other.n_features_in_) != (self.spec_.n_labels, self.n_features_in_):
                raise ValueError("the members are of different shapes")
            self.others_.append(other)
        self.ensemble_calibration_ = Calibration()
        if self.others_:
            start = "ensemble."
            self.ensemble_calibration_.load_state_dict(
                {name.removeprefix(start): value for name, value in arrays.items() if name.startswith(start)}
            )
            check_calibration(self.ensemble_calibration_)
        known = ("ensemble.", *(f"member.{number}." for number in range(1, len(config["members"]) + 1)))
        if any(name.startswith("member.") and not name.startswith(known) for name in arrays):
            raise ValueError("arrays of a member that is not described")
        return self

    @classmethod
    def _restore_member(
        cls, config: dict[str, Any], arrays: dict[str, torch.Tensor], classes: Any, names: list[str] | None
    ) -> Self:
        self = cls(**config["options"])
        check_options(self, self._rules)
        self.spec_, self.settings_ = Spec(**config["spec"]), Settings(**config["settings"])
        n_labels = self.spec_.n_labels
        self.n_features_in_ = integer(config, "n_features")
        arrays = dict(arrays)
        self.row_transform_ = restore_transform(config["row_transform"], arrays.pop(WEIGHTS, None), self.n_features_in_)
        if self.n_features_in_ * len(self.row_transform_.views) != self.spec_.n_features:
            raise ValueError(f"{self.n_features_in_} features do not make {self.spec_.n_features} columns")
        self.n_negatives_ = integer(config, "n_negatives") if config["n_negatives"] is not None else None
        self.label_kind_ = one_of(config, "label_kind", LABEL_KINDS)
        self.classes_ = restore_classes(classes, n_labels, self.label_kind_)
        if names is None or len(names) != n_labels:
            raise ValueError(f"{len(names or [])} label names for {n_labels} labels")
        self.label_names_ = names
        self.history_ = restore_history(config["history"])
        self.held_out_scores_ = restore_scores(config["held_out_scores"])
        self.n_iter_ = len(self.history_)
        self.n_rows_ = integer(config, "n_rows")
        self.model_, self.label_counts_ = restore_model(self.spec_, arrays)
        self._training, self._raw, self.others_ = None, None, []
        return self


def _is_text(name: str) -> bool:
    """Whether a string can be written: half a surrogate pair cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
