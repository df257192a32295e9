"""A small corpus of documents, drawn from our own word lists, for demonstrations and tests."""

from collections.abc import Sequence

import numpy as np

_TOPICS = {
    "astronomy": "telescope star planet orbit comet galaxy eclipse moon observatory asteroid nebula constellation",
    "baking": "bread oven dough flour yeast crust sourdough cake butter sugar recipe pastry",
    "beekeeping": "bee hive honey swarm queen nectar pollen wax apiary comb drone blossom",
    "climbing": "rope cliff harness summit boulder grip ledge belay route crag anchor ascent",
    "cycling": "bicycle pedal wheel saddle gear chain helmet tyre commute brake spoke lane",
    "gardening": "garden soil seed compost prune tomato spade mulch hedge perennial greenhouse weed",
    "history": "century archive empire treaty king revolt medieval chronicle castle dynasty ruin monument",
    "medicine": "patient doctor nurse clinic symptom vaccine dose diagnosis therapy hospital surgery fever",
    "music": "melody violin rhythm choir concert piano chord orchestra song harmony drum composer",
    "sailing": "boat sail mast harbour anchor wind tide crew regatta keel rudder buoy",
    "schools": "pupil teacher lesson classroom exam homework curriculum grade playground headmaster timetable reading",
    "software": "program bug compiler server code release database test update library keyboard network",
}
_COMMON = ("people", "year", "place", "day", "work", "small", "large", "often", "new", "old", "many", "first", "last")
_OPENINGS = ("A note on", "Notes about", "An introduction to", "Questions about", "News from", "A guide to")
_LINKS = ("and the", "with a", "near the", "without any", "for every", "before the", "after a", "about the")


def make_texts(n_documents: int = 600, *, seed: int = 0) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """Draw documents, a title and a text each, and their labels: one to three of twelve topics.

    The words of a document come from its topics, mixed with filler words; titles use words of the first topic.
    """
    if n_documents < 1:
        raise ValueError(f"n_documents={n_documents}; expected at least 1")
    rng, names = np.random.default_rng(seed), list(_TOPICS)
    words = {name: listed.split() for name, listed in _TOPICS.items()}
    texts, labels = [], []
    for _ in range(n_documents):
        own = [names[i] for i in rng.choice(len(names), rng.choice(3, p=(0.5, 0.35, 0.15)) + 1, replace=False)]
        sentences = [_sentence([words[topic] for topic in own], rng) for _ in range(rng.integers(3, 8))]
        title = f"{_pick(_OPENINGS, rng)} the {_pick(words[own[0]], rng)}"
        texts.append((title, " ".join(sentences)))
        labels.append(sorted(own))
    return texts, labels


def _pick(choices: Sequence[str], rng: np.random.Generator) -> str:
    return choices[int(rng.integers(len(choices)))]


def _sentence(topics: list[list[str]], rng: np.random.Generator) -> str:
    parts = [f"the {_pick(_COMMON, rng)}"]
    for _ in range(rng.integers(2, 6)):
        parts += [_pick(topics[int(rng.integers(len(topics)))] if rng.random() < 0.7 else _COMMON, rng)]
        parts += [_pick(_LINKS, rng)]
    parts.append(_pick(_COMMON, rng))
    text = " ".join(parts)
    return f"{text[0].upper()}{text[1:]}."
