"""Tables have names on the left and numbers on the right."""

from labelfield.cli.output import are_numbers


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
