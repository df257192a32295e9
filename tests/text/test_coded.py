"""Coded labels and ids are those of the documents, in memory as in files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelfield.mapped import map_of
from labelfield.text import coded
from labelfield.text.coded import IdCounter, LabelCoder

LISTS = [["b", "a"], [], ["c"], ["a", "c", "b"], [], ["d"]]


def coded_lists(lists):
    coder = LabelCoder()
    for own in lists:
        coder.add(own)
    return coder.finish()


@pytest.fixture(params=[0, 3, 100], ids="{} in memory".format)
def n_in_memory(request, monkeypatch):
    monkeypatch.setattr(coded, "_IN_MEMORY", max(request.param, 1))
    monkeypatch.setattr(coded, "_DOCUMENTS", 2)
    return request.param


def test_lists_come_back_in_their_order(n_in_memory):
    found = coded_lists(LISTS)
    assert (list(found), len(found), found.names) == (LISTS, 6, ["b", "a", "c", "d"])
    assert (map_of(found.codes) is not None) == (n_in_memory < 7)


def test_labels_that_become_one_occur_once_per_document(n_in_memory):
    found = coded_lists(LISTS).renamed({"a": "x", "b": "x", "c": "c", "d": "y"}.get)
    assert list(found) == [["x"], [], ["c"], ["x", "c"], [], ["y"]]


def test_positives_are_in_the_columns_of_their_names(n_in_memory):
    Y = coded_lists(LISTS).positives(["a", "b", "c", "d"])
    assert Y.toarray().tolist() == [[1, 1, 0, 0], [0] * 4, [0, 0, 1, 0], [1, 1, 1, 0], [0] * 4, [0, 0, 0, 1]]
    assert (Y.indices.dtype, Y.indptr.dtype) == ("int32", "int32")


@given(st.lists(st.sampled_from(["a", "ä", "b\0", "c d", "🎻"])))
def test_ids_that_occur_again_are_counted_and_the_first_is_named(ids):
    repeated = {one for one in ids if ids.count(one) > 1}
    counter = IdCounter()
    for one in ids:
        counter.add([one])
    assert counter.repeated() == (len(repeated), next((one for one in ids if one in repeated), ""))


def test_ids_in_files_are_counted_too(n_in_memory):
    counter = IdCounter()
    counter.add(["one", "twö", "three"])
    counter.add(["four", "twö", "three", "twö"])
    assert counter.repeated() == (2, "twö")
