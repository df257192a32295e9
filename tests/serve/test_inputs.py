"""What requests bring, and what becomes of it."""

from urllib.parse import unquote_to_bytes

from hypothesis import given
from hypothesis import strategies as st

from labelfield.serve.inputs import parse_form

PIECES = st.sampled_from(
    [b"%", b"%C3%A4", b"%41", b"%4", b"\\", b"\\x41", b"\\u0041", b"\\N{DIGIT ONE}", b"+", b"a", b"\xc3"]
)


@given(st.lists(PIECES))
def test_forms_are_read_as_by_the_standard_library(pieces):
    value = b"".join(pieces)
    expected = unquote_to_bytes(value.replace(b"+", b" ")).decode(errors="replace")
    assert parse_form(b"text=" + value) == {"text": expected}
