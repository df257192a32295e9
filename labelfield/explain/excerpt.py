"""The part of a document around the words behind a tag, in pieces: marked words and the text between them."""

from typing import NamedTuple

from labelfield.estimators.text import TagExplanation


class Piece(NamedTuple):
    """A piece of text, and the effect of this word on the tag; 0 for the text between marked words."""

    text: str
    effect: float = 0.0


def excerpt(found: TagExplanation, width: int = 300) -> list[Piece]:
    """Return about `width` letters of the text, from a little before the strongest words on, with words marked."""
    marked = sorted((place, word.effect) for word in found.words for place in word.places)
    first = _best_start([place[0] for place, _ in marked], width)
    last = min(first + width, len(found.text))
    pieces, at = [Piece("… ")] if first else [], first
    for (start, end), effect in marked:
        if start >= at and end <= last:
            pieces += [Piece(found.text[at:start]), Piece(found.text[start:end], effect)]
            at = end
    pieces.append(Piece(found.text[at:last] + (" …" if last < len(found.text) else "")))
    return [piece for piece in pieces if piece.text]


def _best_start(starts: list[int], width: int) -> int:
    """Return the start of the first window that shows as many of these places as possible."""
    if not starts or starts[-1] < width:
        return 0
    counts = [sum(start <= other < start + width for other in starts) for start in starts]
    return max(0, starts[counts.index(max(counts))] - width // 8)
