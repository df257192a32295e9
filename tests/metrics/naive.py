"""Every score once more, by loops over rows and labels that follow the definition word for word.

Scores come as a list of {label: score} dictionaries: the listed labels of each row.
"""

from math import inf, log, log2, nan


def order(listed):
    return sorted(listed, key=lambda label: (-listed[label], label))


def rows_that_count(truth, unlabelled):
    return [i for i, row in enumerate(truth) if row or unlabelled == "miss"]


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else nan


def precision(truth, scores, k, unlabelled="miss"):
    rows = rows_that_count(truth, unlabelled)
    return mean(sum(label in truth[i] for label in order(scores[i])[:k]) / k for i in rows)


def recall(truth, scores, k, unlabelled="miss"):
    rows = rows_that_count(truth, unlabelled)
    return mean(
        sum(label in truth[i] for label in order(scores[i])[:k]) / len(truth[i]) if truth[i] else 0.0 for i in rows
    )


def dcg(gains):
    return sum(gain / log2(rank + 1) for rank, gain in enumerate(gains, 1))


def ndcg(truth, scores, k, unlabelled="miss"):
    total = []
    for i in rows_that_count(truth, unlabelled):
        gains = [float(label in truth[i]) for label in order(scores[i])[:k]]
        total.append(dcg(gains) / dcg([1.0] * min(k, len(truth[i]))) if truth[i] else 0.0)
    return mean(total)


def inverse_propensity(truth, n_labels, a, b):
    n = len(truth)
    c = (log(n) - 1) * (b + 1) ** a
    return [1 + c * (sum(label in row for row in truth) + b) ** -a for label in range(n_labels)]


def psp(truth, scores, k, weight):
    got = best = 0.0
    for row, listed in zip(truth, scores, strict=True):
        got += sum(weight[label] for label in order(listed)[:k] if label in row)
        best += sum(sorted((weight[label] for label in row), reverse=True)[:k])
    return got / best if best > 0 else nan  # with one or two rows propensities are not positive


def psndcg(truth, scores, k, weight):
    got = best = 0.0
    for row, listed in zip(truth, scores, strict=True):
        if row:
            ideal = dcg([1.0] * min(k, len(row)))
            got += dcg([weight[label] * (label in row) for label in order(listed)[:k]]) / ideal
            best += dcg(sorted((weight[label] for label in row), reverse=True)[:k]) / ideal
    return got / best if best > 0 else nan  # with one or two rows propensities are not positive


def entries(truth, scores, n_labels):
    """(row, label, is true, score) of every label; one that is not listed scores -inf."""
    for i, (row, listed) in enumerate(zip(truth, scores, strict=True)):
        for label in range(n_labels):
            yield i, label, label in row, listed.get(label, -inf)


def auc(truth, scores, n_labels, average):
    groups = {}
    for i, label, is_true, score in entries(truth, scores, n_labels):
        group = {"micro": 0, "label": label, "row": i}[average]
        groups.setdefault(group, ([], []))[not is_true].append(score)
    areas = []
    for true, false in groups.values():
        if true and false:
            won = sum((t > f) + 0.5 * (t == f) for t in true for f in false)
            areas.append(won / (len(true) * len(false)))
    return mean(areas)


def ranking_loss(truth, scores, n_labels):
    losses = []
    for row, listed in zip(truth, scores, strict=True):
        true = [listed.get(label, -inf) for label in row]
        false = [listed.get(label, -inf) for label in range(n_labels) if label not in row]
        wrong = sum(f >= t for t in true for f in false)
        losses.append(wrong / (len(true) * len(false)) if true and false else 0.0)
    return mean(losses)


def coverage_error(truth, scores, n_labels):
    depths = []
    for row, listed in zip(truth, scores, strict=True):
        lowest = min((listed.get(label, -inf) for label in row), default=inf)
        depths.append(sum(listed.get(label, -inf) >= lowest for label in range(n_labels)))
    return mean(depths)


def log_loss(truth, scores, n_labels, clip=2.0**-52):
    losses = []
    for _, _, is_true, p in entries(truth, scores, n_labels):
        clipped = min(max(p, clip), 1 - clip)
        losses.append(-log(clipped) if is_true else -log(1 - clipped))
    return mean(losses)


def brier(truth, scores, n_labels):
    return mean((max(p, 0.0) - is_true) ** 2 for _, _, is_true, p in entries(truth, scores, n_labels))


def f1(truth, scores, n_labels, threshold, average):
    counts = [[0, 0, 0] for _ in range(n_labels)]  # hits, predicted, true
    for _, label, is_true, p in entries(truth, scores, n_labels):
        predicted = p >= threshold and p > -inf
        counts[label][0] += is_true and predicted
        counts[label][1] += predicted
        counts[label][2] += is_true
    if average == "micro":
        counts = [[sum(column) for column in zip(*counts, strict=True)]]
    return mean(2 * hits / (predicted + true) if predicted + true else 0.0 for hits, predicted, true in counts)


def ece(truth, scores, k, n_bins, unlabelled="miss"):
    bins = [[] for _ in range(n_bins)]
    for i in rows_that_count(truth, unlabelled):
        for label in order(scores[i])[:k]:
            p = scores[i][label]
            which = next(b for b in range(n_bins) if p <= (b + 1) / n_bins or b == n_bins - 1)
            bins[which].append((p, label in truth[i]))
    total = sum(map(len, bins))
    if not total:
        return nan
    return sum(len(b) / total * abs(mean(p for p, _ in b) - mean(hit for _, hit in b)) for b in bins if b)


def error_rate(y, scores):
    return mean((order(listed)[0] if listed else -1) != true for true, listed in zip(y, scores, strict=True))


def nlpd(y, scores):
    return mean(-log(p) if p else inf for p in (listed.get(true, 0.0) for true, listed in zip(y, scores, strict=True)))
