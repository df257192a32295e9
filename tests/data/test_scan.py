"""The quick reader and the exact one agree, and the quick one never accepts what the exact one refuses."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from labelfield import DataError
from labelfield.data.grammar import Grammar, parse_lines
from labelfield.data.scan import scan

number = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda v: f"{v:.9g}"),
    st.floats(-1e6, 1e6).map(repr),
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(["1.", ".5", "+3", "-0", "0.0", "1e5", "2E-3", "1e+2", "00012.500", "-.25e-1", "1e39", "1e-60"]),
)
entry = st.tuples(st.integers(0, 40), number).map(lambda pair: f"{pair[0]}:{pair[1]}")
blank = st.sampled_from([" ", "  ", "\t", " \t "])
end = st.sampled_from(["\n", "\r\n", " \n"])


@st.composite
def line(draw):
    labels = ",".join(map(str, draw(st.lists(st.integers(0, 12), max_size=4))))
    entries = draw(st.lists(entry, max_size=5))
    return labels + "".join(draw(blank) + e for e in entries) + draw(end)


noise = st.text(st.sampled_from("0123456789:,.-+eE \tx#"), min_size=1, max_size=3)


@st.composite
def damaged(draw):
    text = "".join(draw(st.lists(line(), min_size=1, max_size=4)))
    at = draw(st.integers(0, len(text) - 1))
    text = text[:at] + draw(noise) + text[at + draw(st.integers(0, 2)) :]
    return text if text.endswith("\n") else text + "\n"


def exact(text, grammar):
    try:
        return parse_lines(text.encode(), grammar, 1)
    except DataError:
        return None


GRAMMARS = [
    Grammar(41, 13),
    Grammar(),
    Grammar(40, 12, first_column=1, first_label=1),
    Grammar(41, has_labels=False, keep_zeros=True, column="label"),
]


@pytest.mark.parametrize("grammar", GRAMMARS)
@given(text=st.one_of(st.lists(line(), max_size=5).map("".join), damaged()))
@example(text="1,2 3:4,5\n")
@example(text="1,3:1,2\n")
@example(text="5 3:1 7\n")
@example(text="3:1 4\n")
@example(text="1,,2 3:1\n")
@example(text=",1 3:1\n")
@example(text="1, 3:1\n")
@example(text="1 3:\n4:1\n")
@example(text="1 3:1e\n")
@example(text="1 :5\n")
@example(text="1 3:1:2\n")
@example(text="1 3:.\n")
@example(text="1 3:--1\n")
@example(text="1 3:12345678901234567890123\n")
@example(text="1 99999999999999999999:1\n")
@example(text="\n\n")
@example(text="1 3:1e999\n")
def test_quick_equals_exact(grammar, text):
    quick, slow = scan(text.encode(), grammar), exact(text, grammar)
    if quick is None:
        return
    assert slow is not None, "the quick reader accepted what the exact one refuses"
    for name, a, b in zip(quick._fields, quick, slow, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)
        assert a.dtype == b.dtype, name


def test_the_quick_reader_takes_ordinary_text():
    text = b"1,5 0:0.084556 3:12 7:-2.5e-3 9:1e5\n 2:3\n4\n\n7,3 8:1 2:0.12345678901234567890\r\n"
    rows = scan(text, Grammar(10, 8))
    assert rows is not None
    np.testing.assert_array_equal(rows.counts, [4, 1, 0, 0, 2])
    np.testing.assert_array_equal(rows.labels, [1, 5, 4, 3, 7])
    np.testing.assert_array_equal(rows.indices, [0, 3, 7, 9, 2, 2, 8])
    expected = np.array([0.084556, 12, -2.5e-3, 1e5, 3, 0.12345678901234567890, 1], np.float32)
    np.testing.assert_array_equal(rows.values, expected)


@given(st.lists(st.floats(-1e9, 1e9, allow_nan=False), min_size=1, max_size=20), st.integers(1, 17))
def test_numbers_are_correctly_rounded(values, digits):
    tokens = [f"{value:.{digits}g}" for value in values]
    text = " " + " ".join(f"{i}:{token}" for i, token in enumerate(tokens)) + "\n"
    rows = scan(text.encode(), Grammar(keep_zeros=True))
    assert rows is not None
    np.testing.assert_array_equal(rows.values, np.array([float(token) for token in tokens]).astype(np.float32))
