"""Names to the left, numbers to the right."""

from labelfield.tables import are_numbers, markdown_table


def test_a_column_of_numbers_is_told_from_one_of_names():
    rows = [
        ["MLGPF", "bibtex", "65.8 / 40.7", "**-0.78**", "+1.1", "12×", "389 MB"],
        ["Bonsai", "eurlex-4k", "–", "", "−3", "0.9×", "53 MB"],
    ]
    assert are_numbers(rows) == [False, False, True, True, True, True, True]


def test_names_in_front_stay_on_the_left_though_they_look_like_numbers():
    assert are_numbers([["1", "2"], ["3", "4"]]) == [False, True]


def test_a_column_of_nothing_and_no_rows_are_no_numbers():
    assert are_numbers([["a", ""], ["b", ""]]) == [False, False]
    assert are_numbers([]) == []


def test_markdown():
    assert markdown_table(["row", "data", "P@1"], [["ours", "bibtex", "65.8"]]) == (
        "| row | data | P@1 |\n| --- | --- | --: |\n| ours | bibtex | 65.8 |\n"
    )
    assert markdown_table(["a|b"], [["c|d"]]) == "| a\\|b |\n| --- |\n| c\\|d |\n"
    assert markdown_table(["what", "why"], []) == "| what | why |\n| --- | --- |\n"
