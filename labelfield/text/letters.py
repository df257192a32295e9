"""What a word is: which characters are letters, in which case, and which are words of their own."""

import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# Longer runs of letters are no words; shorter ones only in scripts without spaces.
LONGEST, SHORTEST = 64, 2  # as in `labelfield.compiled.tokens`, which a test compares
# No letter, and the flag of a letter that is a word of its own: as in labelfield/compiled/tokens.py.
_SEPARATOR, _ALONE = 1, 1 << 31
_PAGE = 256
# Letters before the first combining mark are normal as they are, and dashes, quotes and currencies are no letters.
_FIRST_MARK, _FIRST_SIGN, _LAST_SIGN = 0x300, 0x2000, 0x20CF
# Scripts that are written without spaces: each letter is a word, and words are found as pairs of them.
_WITHOUT_SPACES = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x9FFF),  # Chinese, Japanese
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9D),
    (0x1B000, 0x1B16F),
    (0x20000, 0x3FFFF),
)


def _folded(code: int) -> int:
    """Return a letter in lower case, with a flag if it is a word of its own; or that it is none."""
    character = chr(code)
    # Marks are vowels in Indic scripts, and accents that no precomposed letter has.
    if not (character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M"):
        return _SEPARATOR
    is_alone = any(first <= code <= last for first, last in _WITHOUT_SPACES)
    return ord(character.lower()[0]) | (_ALONE if is_alone else 0)


def spans_of(text: str) -> tuple[str, list[tuple[int, int, str]]]:
    """Return a text, normalised, and its words: where each begins and ends, and what it is in lower case."""
    text, found, start, word = unicodedata.normalize("NFC", text), [], 0, ""
    for at, character in enumerate(f"{text} "):
        folded = _folding[ord(character)]
        if len(folded) != 1 or folded == " ":
            if SHORTEST <= len(word) <= LONGEST:
                found.append((start, at, word))
            word = ""
            if folded != " ":
                found.append((at, at + 1, folded.strip(" \1")))
            continue
        start = start if word else at
        word += folded
    return text, found


# A number for each code point; 0 where it was not needed yet. Untouched parts take no memory.
table = np.zeros(0x110000, np.uint32)


def add_pages(codes: NDArray[np.uint32]) -> None:
    """Fill the parts of the table that these code points are in."""
    for page in np.unique(codes[table[codes] == 0] // _PAGE).tolist():
        first = page * _PAGE
        table[first : first + _PAGE] = [_folded(one) for one in range(first, first + _PAGE)]


def codes_of(texts: Sequence[str]) -> NDArray[np.uint32]:
    """Return the code points of texts, each followed by 0, with accents and their letters as one character."""
    together = "\0".join([*texts, ""])
    if together.count("\0") > len(texts):
        together = "\0".join([*(text.replace("\0", " ") for text in texts), ""])
    codes = _codes(together)
    if together.isascii() or not _may_compose(codes):
        return codes
    return _codes(unicodedata.normalize("NFC", together))


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _may_compose(codes: NDArray[np.uint32]) -> bool:
    """Say whether there are letters beyond those that are always normal: Latin ones, and all signs of punctuation."""
    high = codes[codes >= _FIRST_MARK]
    return bool(((high < _FIRST_SIGN) | (high > _LAST_SIGN)).any())


class _Folding(dict[int, str]):
    """A map for `str.translate`: letters in lower case, and spaces for all else and around letters that are words."""

    def __missing__(self, code: int) -> str:
        folded = _folded(code)
        letter = " " if folded == _SEPARATOR else chr(folded % _ALONE)
        self[code] = f" \1{letter} " if folded >= _ALONE else letter
        return self[code]


_folding = _Folding()


def words_of(text: str) -> list[str]:
    """Return the words of a text: the plain twin of the compiled loop."""
    found = unicodedata.normalize("NFC", text.replace("\0", " ")).translate(_folding).split(" ")
    return [word.lstrip("\1") for word in found if SHORTEST <= len(word) <= LONGEST]
