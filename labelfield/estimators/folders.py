"""Saving a fitted classifier to a folder, and making it anew from one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import nn

from labelfield.data import Names
from labelfield.data.classes import class_name
from labelfield.errors import DataError
from labelfield.estimators.inputs import LABEL_KINDS
from labelfield.estimators.options import check_options, given
from labelfield.estimators.restoring import (
    COUNTS,
    SHIFTS,
    WAITING,
    WEIGHTS,
    integer,
    one_of,
    restore_classes,
    restore_history,
    restore_model,
    restore_transform,
)
from labelfield.estimators.training import TrainedClassifier
from labelfield.inference.run import Settings
from labelfield.models.artifact import save_artifact

__all__ = ["SavedClassifier"]


class SavedClassifier(TrainedClassifier):
    """The part of a classifier that goes to a folder and comes back."""

    # What a model is made of.
    _spec_type: ClassVar[type[Any]]
    n_features_in_: int
    label_names_: list[str]
    # What features were called in training, where that is known, and a fingerprint of it.
    feature_names_: list[str] | None
    feature_names_digest_: str | None

    def _method(self) -> str:
        """What this kind of model is called on the command line and in its folder."""
        raise NotImplementedError

    @staticmethod
    def _build(spec: Any) -> nn.Module:
        """A model of this make with nothing in it yet."""
        raise NotImplementedError

    def save(self, folder: str | Path, label_names: Any = None) -> None:
        """Write the fitted model to a folder that `labelfield.load` reads anywhere, with the names of features if the
        training rows had them."""
        self._check_fitted()
        classes = self.classes_.tolist() if self.label_kind_ != "indicator" else None
        names = self._names() if label_names is None else [str(name) for name in label_names]
        if len(names) != self.spec_.n_labels:
            raise DataError(f"{len(names)} label names", expected=f"{self.spec_.n_labels}")
        _require_lines(names, "label")
        features = self.feature_names()
        config, arrays = self._whole()
        if features is not None:
            _require_lines(features, "feature")
            config["feature_names_sha256"] = Names(features).digest()
        config = {"method": self._method(), "classes": classes, **config}
        save_artifact(Path(folder), config, arrays, names, features)

    def _plain_params(self) -> dict[str, Any]:
        """The options, as JSON can hold them."""
        params: dict[str, Any] = self.get_params()
        return params

    def _names(self) -> list[str]:
        """What labels are called: as before they were saved, or as their classes are written in files."""
        if hasattr(self, "label_names_"):
            return self.label_names_
        return [class_name(str(int(label) if isinstance(label, bool) else label)) for label in self.classes_.tolist()]

    def feature_names(self) -> list[str] | None:
        """What features were called in training: as a file said, or the table that was fitted."""
        names = getattr(self, "feature_names_", None)
        if names is None and hasattr(self, "feature_names_in_"):
            names = [str(name) for name in self.feature_names_in_]
        return names

    def _take_feature_names(self, names: list[str] | None) -> None:
        """Keep the names that a folder has, which must be those that its config.json was made with."""
        if names is not None and len(names) != self.n_features_in_:
            raise ValueError(f"{len(names)} feature names for {self.n_features_in_} features")
        if names is not None and Names(names).digest() != self.feature_names_digest_:
            raise ValueError("the feature names are not those of the training rows")
        self.feature_names_ = names

    def _whole(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """All there is to save, in words and in arrays."""
        return self._description()

    def _description(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """What the model is, in words and in arrays."""
        options = {name: given(value, None) for name, value in self._plain_params().items()}
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
            "feature_names_sha256": getattr(self, "feature_names_digest_", None),
        }
        arrays = {**self.model_.state_dict(), COUNTS: torch.from_numpy(self.label_counts_)}
        arrays.pop(WAITING, None)  # of use in training alone
        for name, values in ((WEIGHTS, self.row_transform_.weights), (SHIFTS, self.row_transform_.shifts)):
            if values is not None:
                arrays[name] = torch.from_numpy(values)
        return config, arrays

    @classmethod
    def _restore(cls, config: dict[str, Any], arrays: dict[str, torch.Tensor], names: list[str] | None) -> Self:
        """From what `save` wrote; whatever does not fit raises."""
        return cls._restore_described(config, arrays, config["classes"], names)

    @classmethod
    def _restore_described(
        cls, config: dict[str, Any], arrays: dict[str, torch.Tensor], classes: Any, names: list[str] | None
    ) -> Self:
        self = cls(**config["options"])
        check_options(self, self._rules)
        self.spec_, self.settings_ = cls._spec_type(**config["spec"]), Settings(**config["settings"])
        n_labels = self.spec_.n_labels
        # Before anything is made of that length.
        if names is None or len(names) != n_labels:
            raise ValueError(f"{len(names or [])} label names for {n_labels} labels")
        self.n_features_in_ = integer(config, "n_features")
        arrays = dict(arrays)
        weights, shifts = arrays.pop(WEIGHTS, None), arrays.pop(SHIFTS, None)
        self.row_transform_ = restore_transform(config["row_transform"], weights, shifts, self.n_features_in_)
        if self.n_features_in_ * len(self.row_transform_.views) != self.spec_.n_features:
            raise ValueError(f"{self.n_features_in_} features do not make {self.spec_.n_features} columns")
        self.n_negatives_ = integer(config, "n_negatives") if config["n_negatives"] is not None else None
        self.label_kind_ = one_of(config, "label_kind", LABEL_KINDS)
        self.classes_ = restore_classes(classes, n_labels, self.label_kind_)
        self.label_names_ = names
        self.history_ = restore_history(config["history"])
        self.n_iter_ = len(self.history_)
        digest = config["feature_names_sha256"]
        if digest is not None and not isinstance(digest, str):
            raise ValueError("feature_names_sha256 is no text")
        self.feature_names_digest_ = digest
        self.n_rows_ = integer(config, "n_rows")
        self.model_, self.label_counts_ = self._restore_model(arrays)
        self._training = None
        return self

    def _restore_model(self, arrays: dict[str, torch.Tensor]) -> tuple[Any, Any]:
        """The model that the arrays are of, and how often each label held in training."""
        return restore_model(self.spec_, self._build, arrays)


def _require_lines(names: list[str], what: str) -> None:
    """Each name is to be a line of its file."""
    if bad := [name for name in names if "\n" in name or not _is_text(name)]:
        raise DataError(f"the {what} name {bad[0]!r}", expected="a line of text", fix=f"Rename the {what}.")


def _is_text(name: str) -> bool:
    """Whether a string can be written: half a surrogate pair cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
