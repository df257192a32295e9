"""Mean ranks by hand, a peer's better result, and texts that become rows."""

import numpy as np
import pytest

from benchmarks.suites import making
from benchmarks.suites.making import MissingTextsError, Texts, encode
from benchmarks.suites.suite import FULL, read_suite
from benchmarks.tables.ranks import ranks


def measured(scores):
    """Records of the suite: {(data set, row): P@1, and P@3 and P@5 are the same}."""
    return {
        (dataset, row, FULL, 0): {"scores": {f"P@{k}": value for k in (1, 3, 5)}}
        for (dataset, row), value in scores.items()
    }


def last_line(scores):
    table = ranks(read_suite("ranks"), measured(scores)).splitlines()
    return [cell.strip() for cell in table[-1].strip("|").split("|")]


METHODS = [row.name for row in read_suite("ranks").rows if "our rows" not in row.name]


def test_eight_methods_and_twelve_data_sets():
    suite = read_suite("ranks")
    assert (len(METHODS), len(suite.datasets)) == (8, 12)
    assert {f"{row.name}, our rows" for row in suite.rows if row.peer and "our rows" not in row.name} == {
        row.name for row in suite.rows if "our rows" in row.name
    }


def test_ranks_by_hand():
    """Best to worst on one set and the reverse on another is the same mean for all; equal scores share a rank."""
    there = {("bibtex", name): 90.0 - place for place, name in enumerate(METHODS)}
    back = {("enron", name): 50.0 + place for place, name in enumerate(METHODS)}
    assert last_line(there)[1:] == [f"{place}.0" for place in range(1, 9)]
    assert last_line(there | back) == ["mean rank on 2 sets", *["4.5"] * 8]
    assert last_line(dict.fromkeys(there, 7.0))[1:] == ["4.5"] * 8


def test_a_peer_counts_with_the_better_of_its_rows_and_sets_with_gaps_do_not_count():
    there = {("bibtex", name): 90.0 - place for place, name in enumerate(METHODS)}
    there["bibtex", "omikuji Bonsai, our rows"] = 95.0
    gap = {("enron", "labelfield"): 1.0}
    line = last_line(there | gap)
    assert (line[0], line[1 + METHODS.index("omikuji Bonsai")], line[1]) == ("mean rank on 1 sets", "1.0", "2.0")
    there["bibtex", "omikuji Bonsai, our rows"] = 1.0
    assert last_line(there)[1 + METHODS.index("omikuji Bonsai")] == "4.0"


def test_texts_become_rows_by_words_of_the_training_texts_alone():
    texts = ["red cat", "red dog", "blue dog", "blue cat", "green cat green"]
    data = encode(Texts(texts, [["a"], ["a", "b"], ["b"], ["b"], ["a", "new"]], 4))
    assert (data.n_rows, data.test.n_rows, data.n_features, data.n_labels) == (4, 1, 4, 2)
    np.testing.assert_allclose(np.sqrt(data.X.multiply(data.X).sum(1)), 1, rtol=1e-6)
    assert data.test.X.nnz == 1  # green is no word of the training texts
    assert data.test.Y.toarray().tolist() == [[1, 0]]


def test_labels_of_few_rows_are_left_out_where_nothing_says_which_rows_are_for_testing():
    data = encode(
        Texts(["some words"] * 100, [["often"] if i % 2 else ["often", "rare"] * (i < 12) for i in range(100)])
    )
    assert (data.n_rows, data.test.n_rows, data.n_labels) == (80, 20, 1)


def test_what_a_package_depends_on_and_its_tags():
    fields = {"Depends": "libc6 (>= 2.34), perl | python3, libc6:any", "Tag": "role::program,\n use::gameplaying"}
    assert making._dependencies(fields) == ["libc6", "perl"]
    assert making._tags(fields) == ["role::program", "use::gameplaying"]


def test_everything_above_a_noun_is_named_once():
    assert making._above(
        "pup", {"pup": ["dog"], "dog": ["pet", "canine"], "pet": ["animal"], "canine": ["animal"]}
    ) == [
        *("dog", "pet", "canine", "animal"),
    ]


def test_missing_texts_are_told(monkeypatch, capsys, tmp_path):
    def missing():
        raise MissingTextsError("no texts here")

    monkeypatch.setattr(making, "MADE", tmp_path)
    monkeypatch.setitem(making.MAKERS, "debian-tags", missing)
    making.main(["debian-tags", "other"])
    said = capsys.readouterr().out
    assert "debian-tags: left out, no texts here" in said
    assert "other: not one of" in said
    monkeypatch.setattr(making, "DATA", tmp_path)
    with pytest.raises(MissingTextsError, match="set LABELFIELD_DATA"):
        making._of_folder("eurovoc-text")
