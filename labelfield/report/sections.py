"""The sections that measure: numbers in tables, and figures with captions that say what to look for."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from labelfield.metrics.probabilities import Reliability
from labelfield.report import plots, scores
from labelfield.report.facts import Facts
from labelfield.report.identity import drops
from labelfield.report.markup import element, figure, number, paragraph, percent, section, table, text
from labelfield.report.scores import Band

_N_TENTHS = 10
_MEANINGS = {
    "P": "P@k: the share of the first k labels that are right.",
    "R": "R@k: the share of rows whose class is among the first k.",
    "PSP": "PSP@k: the same, but rare labels count more, relative to the best possible score.",
    "ECE": "ECE@k: the mean gap between the probabilities of the first k and how often they are right.",
    "error rate": "Error rate: the share of rows whose first class is wrong.",
    "nlpd": "nlpd: the mean of −log p(true class), in nats.",
}


def headline(facts: Facts) -> str:
    """Show the main scores, each with that of the popularity baseline."""
    tiles = []
    for name, value, popularity, _ in facts.scores:
        if not name.startswith(("PSP@", "R@", "ECE@3", "ECE@5")):
            below = "mean gap to frequency" if popularity is None else f"popularity: {_shown(name, popularity)}"
            tiles.append((name, _shown(name, value), below))
    tiles.append(("AUROC", number(facts.errors.auroc, 2), "how well its uncertainty finds its mistakes; chance: 0.50"))
    items = (
        f'<li><span class="name">{text(name)}</span><span class="value">{text(value)}</span>'
        f'<span class="below">{text(below)}</span></li>'
        for name, value, below in tiles
    )
    return element("ul", "".join(items), class_="tiles")


def _shown(name: str, value: float | None) -> str:
    return number(value, 3) if name == "nlpd" or value is None else percent(value / 100)


def what_it_is(facts: Facts) -> str:
    """Show a sentence about the model and the sizes that matter."""
    pairs = (f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in facts.identity.facts.items())
    return section("model", "What it is", paragraph(facts.identity.sentence), f"<dl>{''.join(pairs)}</dl>")


def scoreboard(facts: Facts) -> str:
    """Show all scores, beside those of simpler models."""
    n_columns = 4 if any(score.baseline is not None for score in facts.scores) else 3
    head = ["score", "this model", "popularity", facts.predictions.baseline_title][:n_columns]
    rows = []
    for name, *values in facts.scores:
        own, *others = (_shown(name, value) for value in values)
        rows.append([text(name), f"<strong>{own}</strong>", *others][:n_columns])
    n_true = facts.predictions.judged.n_true
    said = [f"Over {n_true.size:,} test row{'' if n_true.size == 1 else 's'}."]
    if n_unlabelled := np.count_nonzero(n_true == 0):
        verbs = ("has", "counts") if n_unlabelled == 1 else ("have", "count")
        said.append(f"{n_unlabelled:,} of them {verbs[0]} no labels and {verbs[1]} as missed.")
    if facts.n_unseen and facts.identity.has_classes:
        said.append(
            f"{facts.n_unseen:,} of them belong to classes that the model has not seen: these count as errors and are "
            "left out of nlpd."
        )
    elif facts.n_unseen:
        said.append(f"{facts.n_unseen:,} of their labels were not in training, so no model could find them.")
    if facts.rank_power:
        power = "" if facts.rank_power == 1 else f" to the power {facts.rank_power:g}"
        said.append(f"Labels are ranked by probability times inverse propensity{power}: rare labels come earlier.")
    said += [_MEANINGS[kind] for kind in dict.fromkeys(score.name.partition("@")[0] for score in facts.scores)]
    said.append("Popularity gives every row the most frequent labels of the training rows.")
    said.append(facts.predictions.baseline_meaning)
    return section("scores", "How good it is", table(head, rows, class_="scores"), paragraph(*said, class_="note"))


def trust(facts: Facts) -> str:
    """Show whether probabilities can be trusted, and whether the model knows when it is unsure."""
    curves = scores.reliabilities(facts.predictions, facts.identity.has_classes)
    figures = [figure(plots.reliability_plot(curves), *_about_reliability(curves))]
    if facts.predictions.judged.n_rows >= _N_TENTHS:
        figures.append(figure(plots.errors_plot(facts.errors), *_about_errors(facts)))
    return section("trust", "Can it be trusted?", _side_by_side(figures))


def _about_reliability(curves: dict[int, Reliability]) -> list[str]:
    curve = next(iter(curves.values()))
    gaps = [f"{percent(own.ece)} for the first {'label' if k == 1 else k}" for k, own in curves.items()]
    is_enough, widest = curve.count >= max(plots.FEW, 0.01 * curve.count.sum()), ""
    if is_enough.any():
        worst = int(np.where(is_enough, np.abs(curve.confidence - curve.frequency), -1).argmax())
        widest = (
            f"Where there are many first labels, the gap is widest at {percent(curve.confidence[worst], 0)}: "
            f"{percent(curve.frequency[worst], 0)} of those {curve.count[worst]:,} labels are right."
        )
    has_few = any(((own.count > 0) & (own.count < plots.FEW)).any() for own in curves.values())
    return [
        "Look at the distance from the dashed line. On the line, labels predicted with 80 % are right 80 times in 100; "
        "below it the model is overconfident, above it underconfident.",
        f"The mean gap (ECE) is {' and '.join(gaps)}.",
        widest,
        f"Hollow marks stand for fewer than {plots.FEW} predictions." if has_few else "",
    ]


def _about_errors(facts: Facts) -> list[str]:
    errors = facts.errors
    has_auroc = errors.auroc == errors.auroc  # a number: some first labels are wrong, and some right
    found = f"All first labels are {'wrong' if errors.error else 'right'}, so there is nothing to tell apart."
    if has_auroc:
        found = (
            f"A row with a wrong first label has a higher uncertainty than one with a right first label in "
            f"{percent(errors.auroc, 0)} of all pairs (AUROC; chance is 50 %)."
        )
    return [
        "Look for bars that grow to the right: they show that the model knows when it is likely to be wrong.",
        f"In the tenth of the rows that it is surest of, {percent(errors.tenths[0].error)} of the first labels are "
        f"wrong; in the tenth that it is least sure of, {percent(errors.tenths[-1].error)}.",
        found,
        "Uncertainty is 1 − p, where p is the probability of the first label.",
    ]


def by_frequency(facts: Facts) -> str:
    """Show P@k and PSP@k by how frequent labels are in training, or how often classes are confused."""
    has_classes, names = facts.identity.has_classes, facts.label_names
    bands = scores.bands(facts.predictions, facts.counts, names, has_classes)
    if len(bands) < 2:
        return ""
    is_each, k = all(band.n_labels == 1 for band in bands), max(bands[0].precision)
    some = [band for band in bands if band.n_true]
    if is_each and has_classes:
        title = "By class"
        figures = [figure(plots.missed_plot(bands), *_about_missed(some))]
        if (counted := scores.confusion(facts.predictions)) is not None:
            figures.append(figure(plots.confusion_plot(counted, names), *_about_confusion(counted, names)))
    else:
        title = "Frequent and rare labels"
        figures = [
            figure(plots.found_plot(bands, is_each), *_about_found(some, k, is_each)),
            figure(plots.contribution_plot(bands, k, is_each), *_about_contribution(bands, k, is_each)),
        ]
    return section("frequency", title, _side_by_side(figures), _band_table(bands, is_each))


def _rows_of(band: Band) -> str:
    """Return how many training rows the labels of a band have."""
    return "no training rows" if band.most == 0 else f"{band.name} training row{'' if band.most == 1 else 's'}"


def _about_found(bands: list[Band], k: int, is_each: bool) -> list[str]:
    if is_each:
        best, worst = (choose(bands, key=lambda band: band.found[1]) for choose in (max, min))
        named = f"{best.name} is ranked first most often ({percent(best.found[1])}), {worst.name} least often"
        return [
            "Look for labels with low marks: they are found in few of the rows that have them.",
            "The rarest label in training is on the left.",
            f"{named} ({percent(worst.found[1])})." if worst.found[1] < best.found[1] else "",
        ]
    rare, frequent = bands[0], bands[-1]
    place = f"among the first {k} of their rows" if k > 1 else "ranked first"
    return [
        "Look at how far the left end falls below the right end: that is how much worse rare labels are found.",
        f"Of the true labels with {_rows_of(rare)}, {percent(rare.found[k])} are {place}; of those with "
        f"{_rows_of(frequent)}, {percent(frequent.found[k])}.",
        "Each band has about the same number of true labels in the test rows.",
    ]


def _about_missed(bands: list[Band]) -> list[str]:
    best, worst = (choose(bands, key=lambda band: band.found[1]) for choose in (max, min))
    return [
        "Look for bars that stand out: they show the share of the rows of each class that are taken for another.",
        f"It is largest for {worst.name} ({percent(1 - worst.found[1])}) and smallest for {best.name} "
        f"({percent(1 - best.found[1])}).",
    ]


def _about_confusion(confusion: NDArray[np.int64], names: Sequence[str]) -> list[str]:
    wrong = confusion * ~np.eye(len(confusion), dtype=np.bool_)
    true, named = divmod(int(wrong.argmax()), len(wrong))
    times = f"{wrong.max():,} row{'' if wrong.max() == 1 else 's'}"
    return [
        "Look for cells that stand out: they count the rows of one class that are taken for another.",
        f"The most frequent mistake is to take {names[true]} for {names[named]} ({times})." if wrong.any() else "",
    ]


def _about_contribution(bands: list[Band], k: int, is_each: bool) -> list[str]:
    precise = sum(band.precision[k] for band in bands)
    most = max(bands, key=lambda band: band.precision[k])
    also = f" and PSP@{k} = {percent(sum(band.psp[k] for band in bands))}" if bands[0].psp else ""
    where = f"label {most.name}" if is_each else f"labels with {_rows_of(most)}"
    return [
        f"Look at where the score comes from: bars of one kind sum to P@{k} = {percent(precise)}{also}.",
        "A model that only knows frequent labels has all its bars on the right.",
        f"Here {percent(most.precision[k] / precise, 0)} of P@{k} comes from {where}." if precise else "",
    ]


def _band_table(bands: list[Band], is_each: bool) -> str:
    has_psp = bool(bands[0].psp)
    head = ["label", "training rows"] if is_each else ["training rows", "labels"]
    kinds = ["found @", "P@", "PSP@"] if has_psp else ["found @"]
    head += ["true in test rows", *(f"{kind}{k}" for kind in kinds for k in bands[0].found)]
    rows = []
    for band in bands:
        row = [text(band.name), f"{band.least if is_each else band.n_labels:,}", f"{band.n_true:,}"]
        row += [percent(share) if band.n_true else "–" for share in band.found.values()]
        if has_psp:
            row += [percent(share) for part in (band.precision, band.psp) for share in part.values()]
        rows.append(row)
    said = "“found” is the share of true labels that are among the first k of their row."
    added = "P@k and PSP@k show what each band adds to the score; each column sums to the score." if has_psp else ""
    inner = f"{table(head, rows, class_='numbers')}{paragraph(said, added, class_='note')}"
    return f"<details><summary>The numbers</summary>{inner}</details>"


def how_it_learned(facts: Facts) -> str:
    """Show the bound and validation scores over time."""
    if not facts.curves or len(facts.curves[0]) < 2:
        return ""
    what = "log-likelihood" if facts.identity.is_sampled else "bound"
    figures = [figure(plots.bound_plot(facts.curves, what), *_about_bound(facts))]
    scored: dict[str, list[tuple[float, float]]] = {}
    for epoch in facts.curves[0]:
        for name, value in epoch.scores.items():
            # With one class per row, P@3 and P@5 say little: at most one of the labels can be right.
            if name == "P@1" or not facts.identity.has_classes:
                scored.setdefault(name, []).append((epoch.seconds, value))
    if scored and all(len(points) > 1 for points in scored.values()):
        name, points = next(iter(scored.items()))
        last, best = points[-1][1], max(value for _, value in points[:-1])
        if last > best:
            trend = "The last epoch is the best: more epochs might still help."
        elif best - last >= 0.1:
            trend = f"Its highest value was {best:.1f} %, {best - last:.1f} above the last."
        else:
            trend = "It has stopped rising: more epochs would not help."
        said = "Check whether the curves have flattened out, or fall again, which would be overfitting."
        figures.append(figure(plots.validation_plot(scored), said, f"{name} ends at {last:.1f} %.", trend))
    return section("training", "How it learned", _side_by_side(figures))


def _about_bound(facts: Facts) -> list[str]:
    first = facts.curves[0]
    if facts.identity.is_sampled:
        return [
            "Look for a curve that rises and then fluctuates around one level: then the sampler has reached its "
            "target, and its draws can be averaged.",
            f"The last sweep is at {_signed(first[-1].bound)} nats per row.",
        ]
    gain, last = _signed(first[-1].bound - first[-2].bound, "+"), _signed(first[-1].bound)
    stages = list(dict.fromkeys(epoch.stage for epoch in first))
    across = f"Stages ({', '.join(stages)}) bound different quantities: compare within a stage, not across stages."
    joins = drops(first) and facts.identity.has_held_out
    return [
        "Look at the end of the curve: if it still rises, more training would help; if it is flat, it has converged.",
        f"The last epoch changed the bound by {gain} to {last} nats per row.",
        "It drops where the rows that were held out for calibration join the training." if joins else "",
        across if len(stages) > 1 else "",
        "Thin lines are the other members of the ensemble." if len(facts.curves) > 1 else "",
        "" if any(epoch.scores for epoch in first) else "To see scores on validation rows here, train with --valid.",
    ]


def _signed(value: float, sign: str = "") -> str:
    return f"{value:{sign}{'.3g' if abs(value) < 100 else ',.1f'}}".replace("-", "−")


def _side_by_side(figures: list[str]) -> str:
    return element("div", "\n".join(figures), class_="figures")
