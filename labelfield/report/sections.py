"""The sections of the page: facts in words, figures with captions that say what to look for."""

from __future__ import annotations

import numpy as np

from labelfield.report import plots
from labelfield.report.facts import Facts
from labelfield.report.markup import NO_BREAK, element, figure, number, percent, section, table, text
from labelfield.report.scores import Band, Score

__all__ = ["by_frequency", "headline", "how_it_learned", "scoreboard", "trust", "what_it_is"]

_N_TENTHS = 10
_MEANINGS = {
    "P": "P@k: the share of the first k labels that is right.",
    "R": "R@k: the share of rows whose class is among the first k.",
    "PSP": "PSP@k: the same with rare labels counting more, over the best possible.",
    "ECE": "ECE@k: the mean gap between the probabilities of the first k and how often they held.",
    "error rate": "Error rate: rows whose first class is wrong.",
    "nlpd": "nlpd: the mean of −log p(true class), in nats.",
}


def headline(facts: Facts) -> str:
    """The numbers to remember, each with what the most frequent labels alone would get."""
    wanted = [score for score in facts.scores if not score.name.startswith("PSP")]
    wanted = [score for score in wanted if not score.name.startswith("ECE") or score.name == "ECE@1"]
    if facts.identity.has_classes:
        wanted = [score for score in wanted if not score.name.startswith("R@")]
    tiles = [_tile(score) for score in wanted]
    tiles.append(_tile_of("AUROC", number(facts.doubt.auroc, 2), "its uncertainty against its mistakes; chance: 0.50"))
    return element("ul", "".join(tiles), class_="tiles")


def _tile(score: Score) -> str:
    if score.popularity is None:
        below = "mean gap of its probabilities" if score.name.startswith("ECE") else ""
    else:
        below = f"popularity: {_shown(score.name, score.popularity)}"
    return _tile_of(score.name, _shown(score.name, score.model), below)


def _tile_of(name: str, value: str, below: str) -> str:
    return (
        f'<li><span class="name">{text(name)}</span><span class="value">{text(value)}</span>'
        f'<span class="below">{text(below)}</span></li>'
    )


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    return number(value, 3) if name == "nlpd" else percent(value / 100)


def what_it_is(facts: Facts) -> str:
    """A sentence and the sizes that matter."""
    identity = facts.identity
    pairs = "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in identity.facts.items())
    return section("model", "What it is", f"<p>{text(identity.sentence)}</p>", f"<dl>{pairs}</dl>")


def scoreboard(facts: Facts) -> str:
    """All scores, beside those of simpler answers."""
    has_network = any(score.network is not None for score in facts.scores)
    head = ["score", "this model", "popularity", *(["network alone"] if has_network else [])]
    rows = []
    for score in facts.scores:
        others = [score.popularity, *([score.network] if has_network else [])]
        rows.append(
            [
                text(score.name),
                f"<strong>{_shown(score.name, score.model)}</strong>",
                *(_shown(score.name, other) for other in others),
            ]
        )
    kinds = list(dict.fromkeys(score.name.partition("@")[0] for score in facts.scores))
    said = [f"Over {facts.n_rows:,} test row{'' if facts.n_rows == 1 else 's'}."]
    if facts.n_unlabelled:
        verbs = ("has", "counts") if facts.n_unlabelled == 1 else ("have", "count")
        said.append(f"{facts.n_unlabelled:,} of them {verbs[0]} no labels and {verbs[1]} as missed.")
    if facts.n_unseen and facts.identity.has_classes:
        said.append(
            f"{facts.n_unseen:,} of them are of classes that the model has not seen: they count as errors, and not in "
            "nlpd."
        )
    elif facts.n_unseen:
        said.append(f"{facts.n_unseen:,} of their labels were not in training: nobody can find them.")
    said += [_MEANINGS[kind] for kind in kinds]
    said.append("Popularity gives every row the labels that were most frequent in training.")
    if has_network:
        said.append("The network alone is what the processes were put on top of.")
    return section(
        "scores", "How good it is", table(head, rows, class_="scores"), f'<p class="note">{text(" ".join(said))}</p>'
    )


def how_it_learned(facts: Facts) -> str:
    """The bound and validation scores over time."""
    if not facts.curves or len(facts.curves[0].seconds) < 2:
        return ""
    first = facts.curves[0]
    what = "log-likelihood" if _is_sampled(facts) else "bound"
    figures = [figure(plots.bound_plot(facts.curves, what), _about_bound(facts))]
    # Of one class a row no more than a third of three can be right.
    scored = {name: own for name, own in first.scores.items() if name == "P@1" or not facts.identity.has_classes}
    if scored and all(len(points) > 1 for points in scored.values()):
        name, points = next(iter(scored.items()))
        last, best = points[-1][1], max(value for _, value in points[:-1])
        trend = (
            "The last epoch is the best: more of them might still help."
            if last > best
            else f"It was highest at {best:.1f} %, {best - last:.1f} above the end."
            if best - last >= 0.1
            else "It has stopped rising: more epochs would not help."
        )
        said = f"Look at whether the curves have flattened, or turn down again, which is overfitting. {name} ends at "
        figures.append(figure(plots.validation_plot(scored), text(f"{said}{last:.1f} %. {trend}")))
    return section("training", "How it learned", _pair(figures))


def _is_sampled(facts: Facts) -> bool:
    """A sampler has no bound: what is recorded is how probable its draws make the labels."""
    return facts.identity.facts.get("found by") == "Gibbs sampling"


def _about_bound(facts: Facts) -> str:
    first = facts.curves[0]
    if _is_sampled(facts):
        return text(
            "Look for a curve that rises and then goes up and down around one level: the sampler has arrived, and its "
            f"draws can be averaged. The last sweep is at {_signed(first.bound[-1])} nats a row."
        )
    said = ["Look at the end of the curve: still rising, and more training would help; flat, and it has converged."]
    gain = first.bound[-1] - first.bound[-2]
    said.append(f"The last epoch changed it by {_signed(gain, '+')} to {_signed(first.bound[-1])} nats a row.")
    if first.falls and facts.identity.is_calibrated:
        said.append("Where it falls at once, the rows that were held out for the calibration join the training.")
    stages = list(dict.fromkeys(first.stage))
    if len(stages) > 1:
        said.append(
            f"Stages ({', '.join(stages)}) have bounds of different things: compare within one, not across them."
        )
    if len(facts.curves) > 1:
        said.append("Thin lines are the other members of the ensemble.")
    if not first.scores:
        said.append("Scores of rows that training does not see would stand beside it: train with --valid.")
    return text(" ".join(said))


def _signed(value: float, sign: str = "") -> str:
    return f"{value:{sign}.3g}".replace("-", "−") if abs(value) < 100 else f"{value:{sign},.1f}".replace("-", "−")


def by_frequency(facts: Facts) -> str:
    """P@k and PSP@k by how frequent labels are in training."""
    bands = facts.bands
    if len(bands) < 2:
        return ""
    is_each = all(band.n_labels == 1 for band in bands)
    k = max(bands[0].precision)
    if is_each and facts.identity.has_classes:
        figures = [figure(plots.missed_plot(bands), _about_missed(bands))]
        if facts.confusion is not None:
            names = facts.label_names
            figures.append(figure(plots.confusion_plot(facts.confusion, names), _about_confusion(facts)))
    else:
        figures = [figure(plots.found_plot(bands, is_each), _about_found(bands, is_each))]
        figures.append(figure(plots.contribution_plot(bands, k, is_each), _about_contribution(bands, k, is_each)))
    title = "By class" if facts.identity.has_classes and is_each else "Frequent and rare labels"
    return section("frequency", title, _pair(figures), _band_table(bands, is_each))


def _about_found(bands: list[Band], is_each: bool) -> str:
    k = max(bands[0].found)
    place = f"among the first {k}" if k > 1 else "named first"
    some = [band for band in bands if band.n_true]
    if is_each:
        worst, best = (choose(some, key=lambda band: band.found[1]) for choose in (min, max))
        said = (
            "Look for what lies low: of the rows with each label, the share where it is named; the rarest label in "
            "training is on the left."
        )
        if worst.found[1] < best.found[1]:
            said += (
                f" {best.name} is named first most often ({percent(best.found[1])}), {worst.name} least "
                f"({percent(worst.found[1])})."
            )
        return text(said)
    rare, frequent = some[0], some[-1]
    return text(
        f"Look at how far the left end falls below the right: that is what rare labels lose. Of the true labels with "
        f"{rare.name} training rows {percent(rare.found[k])} are {place}, of those with {frequent.name} "
        f"{percent(frequent.found[k])}. Bands hold about equally many true labels of the test rows."
    )


def _about_missed(bands: list[Band]) -> str:
    some = [band for band in bands if band.n_true]
    best, worst = (choose(some, key=lambda band: band.found[1]) for choose in (max, min))
    return text(
        f"Look for what stands out: of the rows of each class, the share that is taken for another. It is largest for "
        f"{worst.name} ({percent(1 - worst.found[1])}), smallest for {best.name} ({percent(1 - best.found[1])})."
    )


def _about_confusion(facts: Facts) -> str:
    assert facts.confusion is not None
    wrong = facts.confusion * ~np.eye(len(facts.confusion), dtype=np.bool_)
    said = "Look for fields that stand out: which class is taken for which, in rows. What is right is left out."
    if wrong.any():
        true, named = divmod(int(wrong.argmax()), len(wrong))
        names = facts.label_names
        said += f" Most often {names[true]} is taken for {names[named]} ({wrong.max():,} times)."
    return text(said)


def _about_contribution(bands: list[Band], k: int, is_each: bool) -> str:
    precise = sum(band.precision[k] for band in bands)
    most = max(bands, key=lambda band: band.precision[k])
    also = f" and PSP@{k} = {percent(sum(band.psp[k] for band in bands))}" if bands[0].psp else ""
    said = (
        f"Look at where the score comes from: bars of one kind sum to P@{k} = {percent(precise)}{also}. A model that "
        "only knows frequent labels has all of its bars on the right."
    )
    if precise:
        where = f"label {most.name}" if is_each else f"labels with {most.name} training rows"
        said += f" Here {percent(most.precision[k] / precise, 0)} of P@{k} come from {where}."
    return text(said)


def _band_table(bands: list[Band], is_each: bool) -> str:
    ks = list(bands[0].precision)
    head = ["label" if is_each else "training rows", "training rows" if is_each else "labels", "true in test"]
    head += [f"found @{k}" for k in ks]
    has_psp = bool(bands[0].psp)
    if has_psp:
        head += [f"P@{k}" for k in ks] + [f"PSP@{k}" for k in ks]
    rows = []
    for band in bands:
        row = [text(band.name), f"{band.least if is_each else band.n_labels:,}", f"{band.n_true:,}"]
        row += [percent(band.found[k]) if band.n_true else "–" for k in ks]
        if has_psp:
            row += [percent(part[k]) for part in (band.precision, band.psp) for k in ks]
        rows.append(row)
    said = "“found” is the share of true labels among the first k of their row."
    if has_psp:
        said += " P@k and PSP@k are what a band adds to the score: columns sum to it."
    inner = f'{table(head, rows, class_="numbers")}<p class="note">{text(said)}</p>'
    return f"<details><summary>The numbers</summary>{inner}</details>"


def trust(facts: Facts) -> str:
    """Whether probabilities mean what they say, and whether the model knows when it does not know."""
    figures = [figure(plots.reliability_plot(facts.reliabilities), _about_reliability(facts))]
    if facts.n_rows >= _N_TENTHS:  # fewer have no tenths
        figures.append(figure(plots.doubt_plot(facts.doubt), _about_doubt(facts)))
    return section("trust", "Can it be believed?", _pair(figures))


def _about_reliability(facts: Facts) -> str:
    said = [
        "Look at the distance from the dashed line: on it, what is said with 80 % holds 80 times in 100; below it the "
        "model is too sure, above it too modest."
    ]
    curve = next(iter(facts.reliabilities.values()))
    gap = curve.confidence - curve.frequency
    is_enough = curve.count >= max(10, 0.01 * curve.count.sum())
    eces = ", ".join(
        f"{percent(own.ece)} for the first {'label' if k == 1 else k}" for k, own in facts.reliabilities.items()
    )
    said.append(f"The mean gap (ECE) is {eces}.")
    if is_enough.any():
        worst = max((i for i in range(gap.size) if is_enough[i]), key=lambda i: abs(gap[i]))
        said.append(
            f"Where there are many first labels, the widest is where it says {percent(curve.confidence[worst], 0)} and "
            f"{percent(curve.frequency[worst], 0)} hold ({curve.count[worst]:,} times)."
        )
    if any(((own.count > 0) & (own.count < 10)).any() for own in facts.reliabilities.values()):
        said.append("Hollow marks stand for fewer than 10 predictions.")
    return text(" ".join(said))


def _about_doubt(facts: Facts) -> str:
    found = facts.doubt
    surest, least = found.tenths[0], found.tenths[-1]
    said = [
        "Look for bars that grow to the right: then it knows when it does not know. Among the surest tenth of the rows "
        f"{percent(surest.error)} of the first labels are wrong, among the least sure {percent(least.error)}."
    ]
    if found.auroc == found.auroc:  # a number: some first labels are wrong, and some right
        said.append(
            f"Of a wrong and a right row, the wrong one is the less sure in {percent(found.auroc, 0)} of all pairs "
            "(AUROC; 50 % would be chance)."
        )
    else:
        said.append(f"All first labels are {'wrong' if found.error else 'right'}: there is nothing to tell apart.")
    if facts.has_novelty:
        said.append(
            f"Uncertainty is {'1 − p (1 − ν)'.replace(' ', NO_BREAK)}, with p the probability of the first label and ν "
            "how unlike the training rows a row is"
        )
        said[-1] += f"; 1 − p alone gives {percent(found.auroc_of_p, 0)}." if found.auroc == found.auroc else "."
    else:
        said.append("Uncertainty is 1 − p, with p the probability of the first label.")
    return text(" ".join(said))


def _pair(figures: list[str]) -> str:
    return element("div", "\n".join(figures), class_="figures")
