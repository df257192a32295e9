"""A model of documents loaded for tagging alone: an encoder and a predictor of labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.compiled import has_numba, usable_threads
from labelfield.csr import from_counts, gather_rows
from labelfield.data.transform import RowTransform
from labelfield.errors import no_numbers
from labelfield.light.answers import Arrays, LightFactors, LightLinear, LightStack, calibrated, expit, small, unsure
from labelfield.light.checks import check_factors, check_folder, check_linear, check_transform
from labelfield.memory import row_blocks
from labelfield.models.artifact import FEATURES, VOCABULARY, load_artifact, load_lines
from labelfield.text.parts import TextParts

F4 = NDArray[np.float32]
# Layouts and kinds of models that are answered for here; all others need the estimators.
_VERSIONS = (6, 7)
_FACTORS = {
    "kernel": "se_linear_ard",
    "posterior": "whitened_diagonal",
    "inducing": "free",
    "label_linear": "off",
    "likelihood": "bernoulli",
}
_BLOCK_ENTRIES, _MOST_ROWS = 1 << 22, 2000
# Slopes of members above which sums are rounded by more than bounds allow.
_MOST_SLOPE = 100


class LightModel:
    """Linear machines, or a mix of them with a factor model, and the encoder that makes rows of documents."""

    def __init__(self, config: dict[str, Any], arrays: Arrays, names: list[str], text: TextParts) -> None:
        self.text_, self._names, self._arrays = text, names, small(arrays)
        n_threads = usable_threads()
        self._best_labels = _plain_best  # compiled loops take longer to load than a few documents take
        self._bounded: int | None = None  # the factor model among the members that is not asked about all labels
        check_folder(config, arrays, len(names))
        n_features = text.rows([""]).shape[1]
        self._stack = LightStack(arrays) if "members" in config else None
        self._members = (
            [
                _member(own, _under(f"member.{place}.", arrays), n_features, n_threads)
                for place, own in enumerate(config["members"])
            ]
            if self._stack is not None
            else [_member(config, arrays, n_features, n_threads)]
        )

    def prepare(self) -> None:
        """Get ready for many questions about a few rows each, as a server has them; takes more memory."""
        self._best_labels = _compiled_best if has_numba() else _plain_best
        self._bounded = self._bounded_member() if has_numba() else None
        for transform, member in self._members:
            if isinstance(member, LightLinear):
                member.prepare(transform(self.text_.rows([""])).shape[1])

    def _bounded_member(self) -> int | None:
        """Return the place of the factor model in a mix with only one, if its numbers are small enough for bounds."""
        factors = [
            (place, member) for place, (_, member) in enumerate(self._members) if isinstance(member, LightFactors)
        ]
        if self._stack is None or len(factors) != 1 or len(self._members) == 1:
            return None
        place, own = factors[0]
        is_usual = np.isfinite(own.norms_of_labels).all() and np.max(self._stack.slopes) <= _MOST_SLOPE
        return place if is_usual else None

    def label_names(self) -> list[str]:
        """Return the names of all labels."""
        return self._names

    def predict_topk(self, rows: sparse.csr_array, k: int = 5, *, search: str = "auto") -> sparse.csr_array:
        """Return the k most probable labels of each row and their probabilities, as CSR (N, K), whatever the search:
        models with an index, where it matters, are not loaded here."""
        n_labels = len(self._names)
        k = min(k, n_labels)
        empty = np.zeros((0, k), np.float32)
        found: list[tuple[NDArray[Any], ...]] = [(empty.astype(np.int64), empty)]
        for block in row_blocks(rows.shape[0], n_labels, entries=_BLOCK_ENTRIES, most=_MOST_ROWS):
            is_all = block == slice(0, rows.shape[0])
            some = rows if is_all else gather_rows(rows, np.arange(block.start, block.stop))
            found.append(self._block(some, k))
        labels, P = (np.concatenate(part) for part in zip(*found, strict=True))
        order = np.argsort(labels, axis=1)
        columns, data = (np.take_along_axis(part, order, 1).ravel() for part in (labels, P))
        return from_counts(np.full(len(labels), k, np.int64), columns.astype(np.int32), data, n_labels)

    def predict_uncertainty(self, rows: sparse.csr_array, best: sparse.csr_array | None = None) -> F4:
        """Return how far to distrust the first label of each row (N,): 1 - p."""
        best = self.predict_topk(rows, 1) if best is None else best
        n = best.shape[0]  # each row has as many labels
        return np.asarray(1 - best.data.reshape(n, best.nnz // max(n, 1)).max(axis=1, initial=0), np.float32)

    def _block(self, rows: sparse.csr_array, k: int) -> tuple[NDArray[Any], ...]:
        if self._bounded is not None:
            return self._bounded_block(rows, k, self._bounded)
        said = [predict(transform(rows)) for transform, predict in self._members]
        odds = said[0] if self._stack is None else self._stack([unsure(own) for own in said])
        if np.isnan(odds.max(initial=0)):  # compiled loops would find no best label
            raise no_numbers()
        # Probabilities and calibration preserve the ranking, so that only the best need them.
        labels = self._best_labels(odds, k)
        return labels, calibrated(self._arrays, expit(np.take_along_axis(odds, labels, 1)))

    def _bounded_block(self, rows: sparse.csr_array, k: int, place: int) -> tuple[NDArray[Any], ...]:
        """Answer without what the factor model among the members says of labels that cannot be among the best."""
        assert self._stack is not None
        others = [number for number in range(len(self._members)) if number != place]
        said = [unsure(predict(transform(rows))) for transform, predict in (self._members[one] for one in others)]
        sums = self._stack.sums(said, [self._stack.slopes[one] for one in others])
        (transform, factors), slopes = self._members[place], self._stack.slopes[place]
        assert isinstance(factors, LightFactors)
        labels, odds = factors.best_with(transform(rows), sums, slopes, self._stack.least, k)
        if np.isnan(sums.max(initial=0)) or np.isnan(odds).any():
            raise no_numbers()
        return labels, calibrated(self._arrays, expit(odds))


def _plain_best(odds: F4, k: int) -> NDArray[np.int64]:
    """Return the labels of the k largest entries of each row (N, k), best first; of equals the smaller one first."""
    labels = np.argpartition(-odds, k - 1, axis=1)[:, :k]
    least = np.take_along_axis(odds, labels, 1).min(axis=1, keepdims=True)
    tied = np.flatnonzero((odds >= least).sum(axis=1) > k)  # partitions take any of equals
    labels[tied] = np.argsort(-odds[tied], axis=1, kind="stable")[:, :k]
    labels.sort(axis=1)
    order = np.argsort(-np.take_along_axis(odds, labels, 1), axis=1, kind="stable")
    return np.take_along_axis(labels, order, 1)


def _compiled_best(odds: F4, k: int) -> NDArray[np.int64]:
    """Return the same in one pass; many equals, such as labels that were never seen, do not slow it down."""
    from labelfield.compiled.scores import best_labels

    labels = np.empty((len(odds), k), np.int64)
    best_labels(odds, labels)
    return labels


def load_light(folder: Path) -> LightModel | None:
    """Return the model of a folder, or None for one that needs the estimators, or that these would refuse.

    What is wrong with a folder is then said where all kinds of models are loaded.
    """
    try:
        config, arrays, names = load_artifact(folder, "np")
        if config["version"] not in _VERSIONS or "text" not in config or not names or not _is_known(config):
            return None
        if "index" in config:  # searched by the estimators
            return None
        own = _under("text.", arrays)
        lines = load_lines(folder, config, VOCABULARY)
        text = TextParts.restore(config["text"], own, load_lines(folder, config, FEATURES), lines)
        return LightModel(config, arrays, names, text)
    except Exception:  # a damaged folder, or one from a stranger, may fail in any way
        return None


def _is_known(config: dict[str, Any]) -> bool:
    """Return whether a model is made of linear machines and factor models of the usual kind."""
    members = config.get("members", [config])
    is_mix = config["method"] == "auto" and "members" in config
    if not is_mix and config["method"] != "linear":
        return False
    return all(
        member["label_kind"] != "classes"
        and (
            member["method"] == "linear"
            or (member["method"] == "mlgpf" and all(member["spec"][name] == value for name, value in _FACTORS.items()))
        )
        for member in members
    )


def _member(
    config: dict[str, Any], arrays: Arrays, n_features: int, n_threads: int
) -> tuple[RowTransform, Callable[[sparse.csr_array], F4]]:
    """Return the row transform of a member, and its predictor; raise a ValueError for what does not fit."""
    spec = config["spec"]
    transform = RowTransform(config["row_transform"], arrays.get("rows.weights"), arrays.get("rows.shifts"))
    check_transform(transform, n_features, spec)
    if config["method"] == "linear":
        check_linear(arrays, spec)
        return transform, LightLinear(arrays, spec, n_threads)
    check_factors(arrays, spec)
    return transform, LightFactors(arrays, spec)


def _under(prefix: str, arrays: Arrays) -> Arrays:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
