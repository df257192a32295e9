"""Small models, and a client for the application around them."""

import gc
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from application import MARKUP, serving

import labelfield
from labelfield.synth.texts import make_texts


@pytest.fixture(scope="session", autouse=True)
def _collects_quickly():
    """After a reload search only what these tests made for garbage: all that was imported takes a second each time."""
    gc.collect()
    gc.freeze()
    kept = SimpleNamespace(unfreeze=lambda: None, collect=gc.collect, freeze=lambda: None)
    with patch("labelfield.serve.store.gc", kept):
        yield


@pytest.fixture(scope="session")
def documents():
    texts, labels = make_texts(500, seed=1)
    return texts, [[MARKUP if one == "software" else one for one in own] for own in labels]


@pytest.fixture(scope="session")
def folder(documents, tmp_path_factory):
    """A model of documents with the fields title and text, and URIs for its labels."""
    from labelfield.text.documents import Documents
    from labelfield.text.vocabulary import Label, LabelVocabulary

    texts, labels = documents
    names = sorted({one for own in labels for one in own})
    vocabulary = LabelVocabulary(
        Label(name, f"http://x/{place}", notation=f"N{place}") for place, name in enumerate(names)
    )
    own = Documents(texts, labels, [str(i) for i in range(len(texts))], ("title", "text"))
    model = labelfield.LinearClassifier(row_transform="unit", cost=1.0, device="cpu", random_state=0)
    path = tmp_path_factory.mktemp("served") / "topics"
    labelfield.TextClassifier(model=model).fit(own, labels, vocabulary=vocabulary).save(path)
    return path


@pytest.fixture(scope="session")
def rows_folder(tmp_path_factory):
    """A model of rows."""
    data = labelfield.synth.make_multilabel(80, 20, 6, seed=0)
    path = tmp_path_factory.mktemp("served") / "rows"
    labelfield.LinearClassifier(row_transform="unit", cost=1.0, device="cpu").fit(data.X, data.Y).save(path)
    return path


@pytest.fixture(scope="module")
def client(folder, rows_folder, tmp_path_factory):
    """A client of two models, `topics` and `rows`."""
    corrections = tmp_path_factory.mktemp("corrections") / "corrections.sqlite"
    with serving({"topics": folder, "rows": rows_folder}, corrections=corrections) as found:
        yield found
