"""Tables have names on the left and numbers on the right; nothing that is printed can steer a terminal."""

import json

from labelfield.cli.output import are_numbers, print_json, print_table


def test_columns_of_numbers_and_of_names():
    rows = [
        ["MLGPF", "bibtex", "65.8 / 40.7", "**-0.78**", "+1.1", "12×", "389 MB"],
        ["Bonsai", "eurlex-4k", "–", "", "−3", "0.9×", "53 MB"],
    ]
    assert are_numbers(rows) == [False, False, True, True, True, True, True]


def test_the_first_column_is_never_numbers():
    assert are_numbers([["1", "2"], ["3", "4"]]) == [False, True]


def test_empty_columns_and_no_rows_are_not_numbers():
    assert are_numbers([["a", ""], ["b", ""]]) == [False, False]
    assert are_numbers([]) == []


def test_json_cannot_steer_a_terminal(capsys):
    given = {"label": "a\x1b]0;b\x07 \x9b31m \x7f é", "list": ["\x00"]}
    print_json(given)
    shown = capsys.readouterr().out
    assert not [letter for letter in shown if letter != "\n" and (ord(letter) < 32 or 0x7F <= ord(letter) <= 0x9F)]
    assert json.loads(shown) == given
    assert "é" in shown


def test_titles_and_names_of_columns_cannot_steer_a_terminal(capsys):
    print_table("a\x1b[31m", ["\x9bb", "c"], [["d\x07", "1"]])
    shown = capsys.readouterr().out
    assert not set("\x1b\x9b\x07") & set(shown)
