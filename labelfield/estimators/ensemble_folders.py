"""Saving a factor model with all members of an ensemble, and making them anew."""

from __future__ import annotations

from typing import Any, Self

import torch

from labelfield.estimators.ensemble import MOST_MEMBERS
from labelfield.estimators.prediction import FactorPredictions
from labelfield.estimators.restoring import check_calibration, restore_scores
from labelfield.inference.checkpoint import under
from labelfield.models.build import Spec, build
from labelfield.models.calibration import Calibration

__all__ = ["SavedFactors"]

_ENSEMBLE = "ensemble."


class SavedFactors(FactorPredictions):
    """The part of a classifier that knows of the other members in its folder."""

    _spec_type = Spec
    _build = staticmethod(build)
    held_out_scores_: dict[str, list[float]]
    _raw: tuple[Any, Any] | None

    def _method(self) -> str:
        return "mlgpf"

    def _whole(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        config, arrays = self._description()
        config["members"] = []
        for number, other in enumerate(self.others_, 1):
            described, own = other._description()
            config["members"].append(described)
            arrays |= {f"member.{number}.{name}": value for name, value in own.items()}
        if self.others_:
            arrays |= {f"{_ENSEMBLE}{name}": value for name, value in self.ensemble_calibration_.state_dict().items()}
        return config, arrays

    def _description(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        config, arrays = super()._description()
        return config | {"held_out_scores": self.held_out_scores_}, arrays

    @classmethod
    def _restore(cls, config: dict[str, Any], arrays: dict[str, torch.Tensor], names: list[str] | None) -> Self:
        own = {name: value for name, value in arrays.items() if not name.startswith(("member.", _ENSEMBLE))}
        self = cls._restore_described(config, own, config["classes"], names)
        if not isinstance(config["members"], list) or len(config["members"]) >= MOST_MEMBERS:
            raise ValueError("the members are not a short list")
        for number, described in enumerate(config["members"], 1):
            theirs = under(f"member.{number}.", arrays)
            other = cls._restore_described(described, theirs, config["classes"], names)
            if (other.spec_.n_labels, other.n_features_in_) != (self.spec_.n_labels, self.n_features_in_):
                raise ValueError("the members are of different shapes")
            self.others_.append(other)
        self.ensemble_calibration_ = Calibration()
        if self.others_:
            self.ensemble_calibration_.load_state_dict(under(_ENSEMBLE, arrays))
            check_calibration(self.ensemble_calibration_)
        known = (_ENSEMBLE, *(f"member.{number}." for number in range(1, len(config["members"]) + 1)))
        if any(name.startswith("member.") and not name.startswith(known) for name in arrays):
            raise ValueError("arrays of a member that is not described")
        return self

    @classmethod
    def _restore_described(
        cls, config: dict[str, Any], arrays: dict[str, torch.Tensor], classes: Any, names: list[str] | None
    ) -> Self:
        self = super()._restore_described(config, arrays, classes, names)
        self.held_out_scores_ = restore_scores(config["held_out_scores"])
        self._raw, self.others_ = None, []
        return self
