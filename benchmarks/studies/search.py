"""The best labels out of a million on one core: a search with an index beside one of all labels.

The model is drawn, since none of this size can be trained here. What is drawn: topics, each with words of its own, in
fields of 50 topics; 200 labels per topic, each with rare words of its own beside those of its topic; rows with one to
three labels, most of them of one topic, whose words are those of their labels, of their topic and frequent ones. Then
h(x) is linear in x, and the loadings of a label are h at the mean of its rows, in which its rare words count a third,
with noise of half their size; each label has 60 weights, on its own words, on those of its topic and, at random, on
frequent ones. So labels are clustered, and rows resemble their labels. Sizes are those of a factor model that was
trained on EUR-Lex: norms of loadings (4.3) and of h (4.2), variances of h (0.065), biases (-8.4), and what linear
processes add for the best labels (2).
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.measuring.isolated import isolated
from benchmarks.studies.scale import anonymous_mb

N_LABELS, N_LATENT, N_INDUCING, N_FEATURES = 1_000_000, 200, 200, 200_000
N_AUDITED, N_JUDGED, N_TIMED = 1_000, 1_000, 4_000
_PER_TOPIC, _PER_FIELD, _N_FREQUENT = 200, 50, 2_000
# Weights of a label on its own words, on those of its topic and on frequent ones.
_N_OWN, _N_SHARED, _N_ANY = 15, 25, 20


class World(NamedTuple):
    """The words of labels (K, 15) and of topics (T, 60)."""

    own: NDArray[np.int64]
    shared: NDArray[np.int64]


def draw_world(n_labels: int, rng: np.random.Generator) -> World:
    """Draw which words labels and topics have; those of a topic are half from its field."""
    n_topics = -(-n_labels // _PER_TOPIC)
    fields = _N_FREQUENT + rng.integers(N_FEATURES - _N_FREQUENT, size=(-(-n_topics // _PER_FIELD), 200))
    shared = _N_FREQUENT + rng.integers(N_FEATURES - _N_FREQUENT, size=(n_topics, 60))
    place = rng.integers(200, size=(n_topics, 30))
    shared[:, :30] = fields[np.arange(n_topics)[:, None] // _PER_FIELD, place]
    own = _N_FREQUENT + rng.integers(N_FEATURES - _N_FREQUENT, size=(n_labels, _N_OWN))
    return World(own, shared)


def draw_rows(world: World, n_rows: int, rng: np.random.Generator) -> sparse.csr_array:
    """Draw rows of about 50 words, of unit norm; frequent words weigh less."""
    n_labels = len(world.own)
    first = (n_labels * rng.random(n_rows) ** 2).astype(np.int64)  # some labels are more frequent than others
    beside = np.minimum(first // _PER_TOPIC * _PER_TOPIC + rng.integers(_PER_TOPIC, size=(2, n_rows)), n_labels - 1)
    elsewhere = rng.integers(n_labels, size=(2, n_rows))
    others = np.where(rng.random((2, n_rows)) < 0.7, beside, elsewhere)
    labels = np.stack([first, *np.where(rng.random((2, n_rows)) < 0.5, others, first)], 1)
    at = np.arange(n_rows)[:, None]
    mine = world.own[labels[at, rng.integers(3, size=(n_rows, 15))], rng.integers(_N_OWN, size=(n_rows, 15))]
    ours = world.shared[
        labels[at, rng.integers(3, size=(n_rows, 20))] // _PER_TOPIC, rng.integers(60, size=(n_rows, 20))
    ]
    frequent = (_N_FREQUENT * rng.random((n_rows, 15)) ** 2).astype(np.int64)
    words = np.concatenate([mine, ours, frequent], 1)
    values = np.repeat(np.array([1.0, 0.7, 0.35], np.float32), (15, 20, 15)) * (
        0.5 + rng.random(words.shape, np.float32)
    )
    rows = sparse.csr_array(
        (values.ravel(), words.ravel().astype(np.int32), np.arange(n_rows + 1) * 50), shape=(n_rows, N_FEATURES)
    )
    return _unit(rows)


def _unit(rows: sparse.csr_array) -> sparse.csr_array:
    rows.sum_duplicates()
    norms = np.sqrt(np.add.reduceat(np.square(rows.data), rows.indptr[:-1]))
    rows.data /= np.repeat(norms, np.diff(rows.indptr))
    return rows


def _mean_rows(world: World, labels: NDArray[np.int64]) -> sparse.csr_array:
    """Return the mean of the rows of each label, without frequent words; its own count less, as rare words do."""
    words = np.concatenate([world.own[labels], world.shared[labels // _PER_TOPIC]], 1)
    values = np.tile(np.repeat(np.array([0.3, 0.2], np.float32), (_N_OWN, 60)), len(labels))
    pointers = np.arange(len(labels) + 1) * words.shape[1]
    return _unit(sparse.csr_array((values, words.ravel().astype(np.int32), pointers), shape=(len(labels), N_FEATURES)))


def draw_model(world: World, rng: np.random.Generator) -> Any:
    """Draw a factor model of these labels with a linear process each, as a fitted classifier."""
    import torch
    from torch.nn.functional import normalize

    import labelfield
    from labelfield.data.transform import RowTransform
    from labelfield.estimators.blueprint import Fitted
    from labelfield.estimators.classifier import hold
    from labelfield.estimators.inputs import Labels
    from labelfield.inference.run import Settings
    from labelfield.linalg.rows import to_tensor
    from labelfield.models.mlgpf.spec import Spec, build

    n_labels, noise = len(world.own), torch.Generator().manual_seed(0)
    n_weights = n_labels * (_N_OWN + _N_SHARED + _N_ANY)
    sizes = N_FEATURES, n_labels, N_LATENT, N_INDUCING
    spec = Spec(*sizes, kernel="se_linear_ard", label_linear="point", n_label_linear=n_weights)
    model = build(spec)
    with torch.no_grad():
        model.inducing.fill(torch.randn(N_INDUCING, N_FEATURES, generator=noise))  # type: ignore[operator]
        model.kernel.log_variance.fill_(np.log(1e-9))  # type: ignore[operator]
        model.kernel.log_slope.fill_(np.log(0.065))  # type: ignore[operator]
        model.family.mean.copy_(torch.linalg.qr(torch.randn(N_LATENT, N_INDUCING, generator=noise)).Q)
        state = model.inducing_state()
        rows = draw_rows(world, 1000, rng)
        norm = model.latent(to_tensor(rows, "cpu"), state)[0].mean.norm(dim=1).median()
        model.family.mean.mul_(4.2 / norm)
        for begin in range(0, n_labels, 20_000):
            some = np.arange(begin, min(begin + 20_000, n_labels))
            h = normalize(model.latent(to_tensor(_mean_rows(world, some), "cpu"), state)[0].mean)
            h += 0.5 * torch.randn(h.shape, generator=noise) / N_LATENT**0.5
            model.Phi[begin : begin + len(some)] = 4.3 * normalize(h)
        model.b.copy_(torch.from_numpy(rng.normal(-8.4, 0.7, n_labels)))
        _draw_weights(model.label_linear, world, rng)
    estimator = labelfield.MLGPFClassifier(device="cpu")
    labels = Labels("indicator", np.arange(n_labels))
    counts = np.ones(n_labels, np.int64)
    fitted = Fitted(spec, Settings(1, 1), model, RowTransform("none"), labels, counts, n_labels, options=None)
    estimator.n_features_in_ = N_FEATURES
    hold(estimator, fitted)
    return estimator


def _draw_weights(linear: Any, world: World, rng: np.random.Generator) -> None:
    """Draw the weights of labels: on their own words, on those of their topic and on frequent ones."""
    import torch

    n_labels = len(world.own)
    shared = world.shared[np.arange(n_labels) // _PER_TOPIC, :_N_SHARED]
    frequent = (_N_FREQUENT * rng.random((n_labels, _N_ANY)) ** 2).astype(np.int64)
    words = np.concatenate([world.own, shared, frequent], 1).astype(np.int32)
    sizes = _N_OWN, _N_SHARED, _N_ANY
    mean, deviation = (np.repeat(np.array(part, np.float32), sizes) for part in ([1.5, 0.3, 0], [0.7, 0.3, 1]))
    values = mean + deviation * rng.standard_normal(words.shape, np.float32)
    order = np.argsort(words, axis=1)
    linear.get_buffer("pointers").copy_(torch.arange(n_labels + 1) * words.shape[1])
    linear.get_buffer("features").copy_(torch.from_numpy(np.take_along_axis(words, order, 1).ravel()))
    linear.weights.copy_(torch.from_numpy(np.take_along_axis(values, order, 1).ravel()))


def _prepare() -> Any:
    import labelfield.estimators  # noqa: F401  # imported before the measurement

    return None


def _measure(n_labels: int, _: Any) -> dict[str, Any]:
    """Draw a model, index its labels, and search on one thread for rows that had no part in that."""
    from labelfield.inference.parallel import at_most_threads

    with at_most_threads(1):
        return _measured(n_labels, np.random.default_rng(0))


def _measured(n_labels: int, rng: np.random.Generator) -> dict[str, Any]:
    world = draw_world(n_labels, rng)
    model = draw_model(world, rng)
    before, started = anonymous_mb(), time.perf_counter()
    model.index_labels(draw_rows(world, N_AUDITED, rng))
    built = time.perf_counter() - started
    memory = anonymous_mb() - before
    judged, timed = draw_rows(world, N_JUDGED, rng), draw_rows(world, N_TIMED, rng)
    model.search_topk(judged[:10], 5)  # makes the bytes and lays weights out by feature
    seconds, cpu, lists = {}, {}, {}
    for search, rows in (("exact", judged), ("index", timed)):
        started, began = time.perf_counter(), time.process_time()
        lists[search] = model.predict_topk(rows, 5, search=search)
        seconds[search] = (time.perf_counter() - started) / rows.shape[0]
        cpu[search] = (time.process_time() - began) / rows.shape[0]
    exact, found = lists["exact"], model.search_topk(judged, 5)
    theirs, ours = (best.indices.reshape(-1, 5) for best in (exact, found.best))
    is_found = (theirs[:, :, None] == ours[:, None, :]).any(2)
    both = exact.multiply(found.best > 0).tocsr() - found.best.multiply(exact > 0).tocsr()
    is_same = is_found.all(1)
    return {
        "labels": n_labels,
        "directions": model.index_.directions.of_rows.shape[1],
        "labels that the audit keeps": model.index_.audit.n_kept,
        "audited recall": model.index_.audit.recall,
        "audited rows": N_AUDITED,
        "judged rows": N_JUDGED,
        "recall@5": float(is_found.mean()),
        "recall@1": float(_first_found(exact, found.best).mean()),
        "lists the same": float(is_same.mean()),
        "lists certified": float(found.is_certified.mean()),
        "certified lists that differ": int((found.is_certified & ~is_same).sum()),
        "largest difference of a probability": float(np.abs(both.data).max(initial=0)),
        "share of labels scored exactly": float(found.n_scored.mean() / n_labels),
        "ms per row, index": 1000 * seconds["index"],
        "ms per row, all labels": 1000 * seconds["exact"],
        "ms of a core per row, index": 1000 * cpu["index"],
        "ms of a core per row, all labels": 1000 * cpu["exact"],
        "seconds to build and audit": built,
        "mb of the index": memory,
        "median probability of the first, third and fifth label": [
            float(np.median(np.sort(exact.data.reshape(-1, 5), 1)[:, -place])) for place in (1, 3, 5)
        ],
    }


def _first_found(exact: sparse.csr_array, found: sparse.csr_array) -> NDArray[np.bool_]:
    """Return in which rows the first label of two lists is the same."""
    first = []
    for best in (exact, found):
        labels, p = best.indices.reshape(-1, 5), best.data.reshape(-1, 5)
        first.append(labels[np.arange(len(p)), p.argmax(1)])
    return np.asarray(first[0] == first[1])


def run() -> dict[str, Any]:
    measured = isolated(_prepare, partial(_measure, N_LABELS))
    return {**measured.value, "peak_mb": measured.peak_mb}
