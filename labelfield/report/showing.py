"""The sections that show rather than measure: ten rows, labels that go together, features, inducing inputs, topics."""

from __future__ import annotations

from collections.abc import Sequence

from labelfield.explain import InducingInput, LabelNeighbours
from labelfield.report.examples import LEVEL, Example
from labelfield.report.facts import Facts
from labelfield.report.markup import NO_BREAK, bar, element, number, percent, picture, section, table, text, verdict

__all__ = ["features", "inputs", "neighbours", "ten_rows", "topics"]

# Missed labels of a row that are named.
_MOST_MISSED = 6
# Labels of a row that has one class: those that are hardly probable are left out.
_HARDLY = 0.005


def ten_rows(facts: Facts) -> str:
    """Rows with what the model says of them."""
    cards = []
    for place, example in enumerate(facts.examples):
        image = picture(facts.pictures[place], f"row {example.row} as an image") if facts.pictures else ""
        words = facts.words[place] if facts.words else []
        cards.append(_card(facts, example, image, words))
    has_intervals = any(guess.interval for example in facts.examples for guess in example.guesses)
    said = [
        "Chosen to teach something: the surest that are right, the surest that are wrong (look there first: is it the "
        "model or the label that errs?), and the least sure of both kinds; within a kind, with unlike first labels "
        "where possible. Rows are counted from 0."
    ]
    if has_intervals:
        said.append(
            f"The thin line is the {100 * LEVEL:.0f} % credible interval of the probability: wide where the model has "
            "seen little that is alike."
        )
        if "ensemble" in facts.identity.facts:
            said.append("Of an ensemble it is that of the first member.")
    if facts.words:
        said.append("+ and − mark features that spoke for and against the first label.")
    n = len(facts.examples)
    title = "Ten rows" if n == 10 else f"{n} {'row' if n == 1 else 'rows'}"
    kinds = dict.fromkeys(example.kind for example in facts.examples)
    groups = []
    for kind in kinds:
        own = "\n".join(card for card, example in zip(cards, facts.examples, strict=True) if example.kind == kind)
        groups.append(f"<h3>{text(kind.capitalize())}</h3>" + element("div", own, class_="cards"))
    return section("rows", title, f"<p>{text(' '.join(said))}</p>", *groups)


def _card(facts: Facts, example: Example, image: str, words: Sequence[tuple[str, float, float]]) -> str:
    guesses = example.guesses
    if facts.identity.has_classes:
        guesses = [own for i, own in enumerate(guesses) if i == 0 or own.p >= _HARDLY or own.is_right]
    lines = []
    for guess in guesses:
        interval = ""
        if guess.interval is not None:
            interval = f' <span class="muted">{_ends(guess.interval)}</span>'
        lines.append(
            f'<li>{verdict(guess.is_right)}<span class="label">{text(facts.label_names[guess.label])}</span>'
            f'<span class="p">{percent(guess.p)}{interval}</span>{bar(guess.p, guess.interval)}</li>'
        )
    below = ""
    if example.missed:
        named = ", ".join(str(facts.label_names[label]) for label in example.missed[:_MOST_MISSED])
        more = len(example.missed) - _MOST_MISSED
        what = "true" if facts.identity.has_classes else "also true"
        below += f"<p><em>{what}:</em> {text(named)}{f' and {more} more' if more > 0 else ''}</p>"
    elif not any(guess.is_right for guess in example.guesses):
        below += "<p><em>no labels are recorded for this row</em></p>"
    if words:
        signed = ", ".join(
            f"{'+' if effect >= 0 else '−'}&nbsp;{text(_with_value(facts, name, value))}"
            for name, value, effect in words
        )
        below += f'<p class="words">{signed}</p>'
    head = (
        f'<header><h4>Row {example.row:,}</h4><span class="kind">uncertainty {number(example.uncertainty, 2)}</span>'
        f"{image}</header>"
    )
    return element("article", f"{head}<ol>{''.join(lines)}</ol>{below}")


def _with_value(facts: Facts, name: str, value: float) -> str:
    """A feature, with its value where that means something."""
    if not facts.inside.has_values:
        return name
    shown = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{name} ={NO_BREAK}{shown.replace('-', '−')}"


def _ends(interval: tuple[float, float]) -> str:
    low, high = (f"{100 * end:.0f}" for end in interval)
    return f"{low}–{high}"


def neighbours(facts: Facts) -> str:
    """Labels that go together."""
    found = facts.inside.neighbours
    if not found:
        return ""
    said = (
        "Look at whether these make sense together: what is learned of one label helps its neighbours. From the "
        "loadings, by how alike two labels are, from −1 to 1; of the most frequent labels."
    )
    rows = [
        [f'{text(own.name)} <span class="muted">{facts.counts.of_labels[own.number]:,}</span>', _named(own)]
        for own in found
    ]
    head = ["label, training rows", "goes with"]
    return section("neighbours", "Labels that go together", f"<p>{text(said)}</p>", table(head, rows, class_="wide"))


def _named(own: LabelNeighbours) -> str:
    return ", ".join(f'{text(name)}&nbsp;<span class="muted">{value:.2f}</span>' for name, value in own.neighbours)


def features(facts: Facts) -> str:
    """The features that matter most."""
    found, image = facts.inside.features, facts.inside.relevance_picture
    if image is not None:
        said = "Look for the pixels that the model looks at: the more ink, the more a difference there counts."
        shown = element("div", picture(image, "relevance of pixels"), class_="relevance")
        return section("features", "What it looks at", f"<p>{text(said)}</p>", shown)
    if not found:
        return ""
    most = max(value for _, value in found) or 1.0
    items = "".join(
        f'<li><span class="label">{text(name)}</span>{bar(value / most)}</li>' for name, value in found if value > 0
    )
    missing = "" if facts.inside.topics else _about_names(facts)  # said there already
    said = (
        "Look for names that should not matter, such as numbers of rows or dates: then the model has found a short "
        f"cut. Relevance relative to {found[0][0]}, the strongest.{missing}"
    )
    return section("features", "What it looks at", f"<p>{text(said)}</p>", element("ol", items, class_="features"))


def _about_names(facts: Facts) -> str:
    """How features that are only numbers here could be told apart."""
    if facts.inside.has_names:
        return ""
    return (
        " Features have no names here and are counted from 0; a file features.txt beside the rows, a name a line, "
        "names them."
    )


def inputs(facts: Facts) -> str:
    """Inducing inputs, as pictures or by their strongest features."""
    inside = facts.inside
    if inside.pictures:
        cells = "".join(
            f"<figure>{picture(image, f'an inducing input that speaks for {name}')}"
            f"<figcaption>{text(name)}</figcaption></figure>"
            for name, image in inside.pictures
        )
        said = (
            f"The model remembers the training rows by {inside.n_inputs:,} made-up ones; here are some that speak most "
            "strongly for each class. Look for pictures that are typical of their class, or lie between two."
        )
        return section("inducing", "Inducing inputs", f"<p>{text(said)}</p>", element("div", cells, class_="pictures"))
    if not inside.inputs:
        return ""
    missing = "" if inside.features else _about_names(facts)  # said there already
    said = (
        f"The model remembers the training rows by {inside.n_inputs:,} made-up ones. Here are those that move labels "
        f"most, by their strongest features. Look for features that belong together: each line is a theme.{missing}"
    )
    rows = [
        [_speaks(own), text(", ".join(_with_value(facts, name, value) for name, value in own.features))]
        for own in inside.inputs
    ]
    return section(
        "inducing",
        "Inducing inputs",
        f"<p>{text(said)}</p>",
        table(["speaks for", "strongest features"], rows, class_="wide"),
    )


def _speaks(own: InducingInput) -> str:
    if own.of_class is not None:
        return text(own.of_class)
    raised = [name for name, value in own.labels if value > 0]
    return text(", ".join(raised)) if raised else '<span class="muted">no label</span>'


def topics(facts: Facts) -> str:
    """Topics with their labels and features."""
    found = facts.inside.topics
    if not found:
        return ""
    has_features = any(topic.features for topic in found)
    head = ["topic, share", "labels", *(["features that raise it"] if has_features else [])]
    rows = []
    for topic in found:
        labels = ", ".join(
            f'{text(name)}&nbsp;<span class="muted">{100 * weight:.0f}</span>'
            for name, weight in topic.labels
            if weight >= 0.005
        )
        own = [f'{topic.number} <span class="muted">{percent(topic.share)}</span>', labels]
        rows.append([*own, text(", ".join(topic.features))] if has_features else own)
    shown = sum(topic.share for topic in found)
    said = (
        "Look for topics whose labels belong together; one with labels of everything is left over. Numbers beside "
        f"labels are their weights in the topic, in percent. Here are {len(found)} of {facts.inside.n_topics} topics, "
        f"which {percent(shown, 0)} of the labels come from.{_about_names(facts)}"
    )
    return section("topics", "Topics", f"<p>{text(said)}</p>", table(head, rows, class_="wide topics"))
