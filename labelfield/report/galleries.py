"""The sections that show rather than measure: ten rows, similar labels, features, inducing inputs, topics."""

from labelfield.explain import InducingInput
from labelfield.explain.excerpt import Piece
from labelfield.report import plots
from labelfield.report.examples import LEVEL, Example
from labelfield.report.facts import Facts
from labelfield.report.markup import (
    bar,
    element,
    figure,
    muted,
    paragraph,
    percent,
    picture,
    section,
    table,
    text,
    verdict,
)

# The most missed labels of a row that are named.
_MOST_MISSED = 6
# Classes of a row that are less probable are left out.
_HARDLY = 0.005
_HOW_TO_NAME = (
    " These features have no names and are counted from 0. To name them, put a file features.txt beside the rows, with "
    "one name per line."
)

# What a policy of each kind is asked for, in words.
_ASKED_FOR = {
    "precision": "at least {} of all tags right",
    "recall": "at least {} of a row's labels found",
    "review_rate": "at most {} of the rows for a person",
}


def what_it_would_decide(facts: Facts) -> str:
    """Show how much can be tagged automatically at which precision, the promises, and the effect on labels."""
    found = facts.decisions
    if isinstance(found, str):
        why = "This model would send every row to a person, because it can promise nothing about its tags:"
        return section("decide", "What it would decide", paragraph(f"{why} {found}.")) if found else ""
    first, reached = found.policies[0]
    caption = [
        "Each point on the line is a threshold: labels that reach it are tagged, and rows without tags go to a person. "
        "Further right, more rows are tagged automatically; further up, more of the tags are right.",
        f"The mark shows the rule that comes with a promise: {first.guarantee}",
        f"On these rows {percent(reached['precision'])} of the tags are right, and {percent(reached['automatic'])} of "
        "the rows are tagged.",
    ]
    rows = [
        [
            text(_ASKED_FOR[policy.kind].format(percent(policy.target or 0, 0))),
            *(percent(own[name]) for name in ("automatic", "precision", "recall")),
            f"{own['tags_per_row']:.2f}",
        ]
        for policy, own in found.policies
    ]
    names = facts.label_names
    costs = [
        [text(names[cost.label]), f"{cost.n_tags:,}", f"{cost.n_right:,}", f"{cost.n_left:,}"] for cost in found.costs
    ]
    said = (
        "The table shows what you can ask for, and what it does to these rows. Promises hold with 95 % confidence for "
        "rows like the training rows; rows without tags go to a person."
    )
    return section(
        "decide",
        "What it would decide",
        element(
            "div", figure(plots.decision_plot(found.automatic, found.precision, reached), *caption), class_="figures"
        ),
        paragraph(said, *(f"Not promised: {one}." for one in found.refused)),
        table(["asked for", "rows tagged", "tags right", "labels found", "tags per row"], rows),
        paragraph(
            "What the marked rule costs the most frequent labels of these rows: how often each was tagged, how often "
            "correctly, and how often it is true but was not tagged. A person would add it in rows without tags, and "
            "would not see it in the others."
        ),
        table(["label", "tagged", "correctly tagged", "true but not tagged"], costs),
    )


def ten_rows(facts: Facts) -> str:
    """Show rows with the model's predictions."""
    said = (
        "These rows are worth a look: the model is very sure and right, very sure and wrong (start here: is the model "
        "wrong, or the label?), or very unsure, right and wrong, with different first labels if possible. "
    )
    said += "Documents are called by their id, or else by their line." if facts.has_ids else "Rows are counted from 0."
    if any(guess.interval for example in facts.examples for guess in example.guesses):
        said += (
            f" The thin line is a {100 * LEVEL:.0f} % interval for how often labels with this probability are right, "
        )
        said += "judging by the rows held out in training. It is wide where few of those rows have such a label."
    if any(example.pieces for example in facts.examples):
        said += " Highlighted words speak for the first label; struck-out words speak against it."
    if any(example.carried for example in facts.examples):
        said += " + and − mark features that speak for and against the first label."
    groups: dict[str, str] = {}
    for example in facts.examples:
        groups[example.kind] = groups.get(example.kind, "") + _card(facts, example)
    n = len(facts.examples)
    title = "Ten rows" if n == 10 else f"{n} {'row' if n == 1 else 'rows'}"
    shown = [f"<h3>{text(kind.capitalize())}</h3>{element('div', own, class_='cards')}" for kind, own in groups.items()]
    return section("rows", title, paragraph(said), *shown)


def _card(facts: Facts, example: Example) -> str:
    guesses, names = example.guesses, facts.label_names
    if facts.identity.has_classes:
        guesses = [own for i, own in enumerate(guesses) if i == 0 or own.p >= _HARDLY or own.is_right]
    lines = []
    for guess in guesses:
        ends = "" if guess.interval is None else " " + muted("–".join(f"{100 * end:.0f}" for end in guess.interval))
        lines.append(
            f'<li>{verdict(guess.is_right)}<span class="label">{text(names[guess.label])}</span>'
            f'<span class="p">{percent(guess.p)}{ends}</span>{bar(guess.p, guess.interval)}</li>'
        )
    below = ""
    if example.missed:
        named = ", ".join(str(names[label]) for label in example.missed[:_MOST_MISSED])
        more = len(example.missed) - _MOST_MISSED
        what = "true" if facts.identity.has_classes else "also true"
        below += f"<p><em>{what}:</em> {text(named)}{f' and {more} more' if more > 0 else ''}</p>"
    elif not any(guess.is_right for guess in example.guesses):
        below += "<p><em>no labels are recorded for this row</em></p>"
    if example.carried:
        signed = (
            f"{'+' if effect >= 0 else '−'}&nbsp;{text(_with_value(facts, name, value))}"
            for name, value, effect in example.carried
        )
        below += f'<p class="words">{", ".join(signed)}</p>'
    if example.pieces:
        below = f'<p class="document">{"".join(map(_piece, example.pieces))}</p>{below}'
    image = "" if example.image is None else picture(example.image, f"{example.name} as an image")
    name = text(example.name[0].upper() + example.name[1:])
    unsure = f'<span class="kind">uncertainty {example.uncertainty:.2f}</span>'
    head = f"<header><h4>{name}</h4>{unsure}{image}</header>"
    return element("article", f"{head}<ol>{''.join(lines)}</ol>{below}")


def _piece(piece: Piece) -> str:
    """Return a piece of a document, marked if it is a word that speaks for or against the first label."""
    if piece.effect == 0:
        return text(piece.text)
    return element("mark", text(piece.text), class_="for" if piece.effect > 0 else "against")


def _with_value(facts: Facts, name: str, value: float) -> str:
    """Return a feature, with its value if that is meaningful."""
    if not facts.learned.has_values:
        return name
    shown = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{name} =\N{NO-BREAK SPACE}{shown.replace('-', '−')}"


def neighbours(facts: Facts) -> str:
    """Show labels that go together."""
    rows = []
    for number, name, others in facts.learned.neighbours:
        alike = ", ".join(f"{text(other)}&nbsp;{muted(f'{value:.2f}')}" for other, value in others)
        rows.append([f"{text(name)} {muted(f'{facts.counts.of_labels[number]:,}')}", alike])
    if not rows:
        return ""
    said = (
        "Check whether these labels make sense together: what the model learns about one label helps similar labels. "
        "These are the most frequent labels; similarities are those of their loadings, from −1 to 1."
    )
    shown = table(["label, training rows", "similar labels"], rows, class_="wide")
    return section("neighbours", "Labels that go together", paragraph(said), shown)


def features(facts: Facts) -> str:
    """Show the features that matter most."""
    found, image = facts.learned.features, facts.learned.relevance_picture
    if image is not None:
        said = "Look for the pixels that matter: the more ink a pixel has, the more a difference there counts."
        shown = element("div", picture(image, "relevance of pixels"), class_="relevance")
    elif found:
        most = max(value for _, value in found) or 1.0
        said = (
            "Look for names that should not matter, such as row numbers or dates: they would mean that the model has "
            f"found a shortcut. Bars show relevance relative to the strongest feature, {found[0][0]}."
        )
        if not (facts.learned.has_names or facts.learned.topics):  # with topics, that section says it
            said += _HOW_TO_NAME
        items = (
            f'<li><span class="label">{text(name)}</span>{bar(value / most)}</li>' for name, value in found if value > 0
        )
        shown = element("ol", "".join(items), class_="features")
    else:
        return ""
    return section("features", "Features that matter", paragraph(said), shown)


def inputs(facts: Facts) -> str:
    """Show inducing inputs, as pictures or by their strongest features."""
    learned = facts.learned
    said = f"The model summarises the training rows by {learned.n_inputs:,} artificial ones."
    if learned.pictures:
        said += (
            " The ones shown here speak most strongly for each class. Look for pictures that are typical of their "
            "class, or that lie between two."
        )
        cells = (
            f"<figure>{picture(image, f'an inducing input that speaks for {name}')}"
            f"<figcaption>{text(name)}</figcaption></figure>"
            for name, image in learned.pictures
        )
        shown = element("div", "".join(cells), class_="pictures")
    elif learned.inputs:
        said += (
            " The ones listed here affect labels most; each is described by its strongest features. Look for features "
            "that belong together: each line should be a theme."
        )
        if not (learned.has_names or learned.features):  # with features, that section says it
            said += _HOW_TO_NAME
        rows = [
            [_speaks_for(own), text(", ".join(_with_value(facts, name, value) for name, value in own.features))]
            for own in learned.inputs
        ]
        shown = table(["speaks for", "strongest features"], rows, class_="wide")
    else:
        return ""
    return section("inducing", "Inducing inputs", paragraph(said), shown)


def _speaks_for(own: InducingInput) -> str:
    if own.of_class is not None:
        return text(own.of_class)
    raised = [name for name, value in own.labels if value > 0]
    return text(", ".join(raised)) if raised else muted("no label")


def topics(facts: Facts) -> str:
    """Show topics with their labels and features."""
    found = facts.learned.topics
    if not found:
        return ""
    rows = []
    for topic, features in found:
        labels = (f"{text(name)}&nbsp;{muted(f'{100 * w:.0f}')}" for name, w in topic.labels if w >= 0.005)
        rows.append([f"{topic.number} {muted(percent(topic.share))}", ", ".join(labels), text(", ".join(features))])
    share, learned = percent(sum(topic.share for topic, _ in found), 0), facts.learned
    said = (
        "Look for topics whose labels belong together; a topic with labels of every kind collects the leftovers. "
        f"Numbers beside labels are their weights in the topic, in percent. These are {len(found)} of "
        f"{learned.n_topics} topics, from which {share} of the labels come.{'' if learned.has_names else _HOW_TO_NAME}"
    )
    shown = table(["topic, share", "labels", "features that raise it"], rows, class_="wide topics")
    return section("topics", "Topics", paragraph(said), shown)
