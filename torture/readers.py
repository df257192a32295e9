"""Every reader of the package, with a small file that it reads, ways to change that file, and what must hold then."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from scipy import sparse

import labelfield
from labelfield import estimators
from labelfield.csr import verify as verify_csr
from labelfield.data import Dataset, Names
from labelfield.data.files import verify
from labelfield.light.model import load_light
from labelfield.models.artifact import ModelError
from labelfield.text.vocabulary import LabelVocabulary
from torture.mutate import mutate_json, mutate_npy, mutate_safetensors, mutate_zip, mutated

Change = Callable[[bytes, Random], bytes]
# Without a preset, packing with LZMA alone takes a third of the memory that a trial may use.
_PACKED: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": partial(lzma.compress, preset=0),
}


class Reader(NamedTuple):
    """A reader: what makes the files, what changes them, and what reads and checks them.

    `change` returns whether checksums would show the change, so that what is read must be as it was. `check` is given
    the folder and what the original file gave (None for that file itself); it returns what it read, and raises or
    returns a text for what is wrong.
    """

    make: Callable[[Path], None]
    change: Callable[[Path, Random], bool]
    check: Callable[[Path, Any], Any]


class Wrong(NamedTuple):
    """Something that was read and should not have been, or not like this."""

    what: str


def _one_file(name: str, content: bytes, check: Callable[[Path, Any], Any]) -> Reader:
    """Return a reader of one text file, which is sometimes compressed, before or after it is changed."""

    def make(folder: Path) -> None:
        (folder / name).write_bytes(content)

    def change(folder: Path, rng: Random) -> bool:
        packed, how = rng.choice(list(_PACKED)), rng.randrange(10)
        if how == 0:
            (folder / name).write_bytes(mutated(_PACKED[packed](content), rng))
        elif how == 1:
            (folder / name).write_bytes(_PACKED[packed](mutated(content, rng)))
        else:
            (folder / name).write_bytes(mutated(content, rng))
        return False

    return Reader(make, change, lambda folder, before: check(folder / name, before))


# Rows


def _same(a: Any, b: Any) -> bool:
    return a.shape == b.shape and all(
        np.array_equal(getattr(a, part), getattr(b, part)) for part in ("data", "indices", "indptr")
    )


def _sound(dataset: Dataset) -> Dataset | Wrong:
    for split in dataset.splits.values():
        verify_csr(split.X)
        verify_csr(split.Y)
        for names in (split.label_names, split.feature_names):
            if names is not None:
                list(names)
    return dataset


def _twins(read: Callable[[], Dataset], quick: str, without: Any) -> Any:
    """Read with and without the quick reader: both give the same rows, or the same error."""
    found: list[Any] = []
    for is_patched in (False, True):
        try:
            with patch(quick, without) if is_patched else warnings.catch_warnings():
                found.append(_sound(read()))
        except labelfield.DataError as error:
            found.append(error)
    quickly, slowly = found
    if isinstance(quickly, labelfield.DataError) or isinstance(slowly, labelfield.DataError):
        if str(quickly) != str(slowly):
            return Wrong(f"the quick reader says {str(quickly)[:90]!r}, the exact one {str(slowly)[:90]!r}")
        raise quickly
    if not (_same(quickly.X, slowly.X) and _same(quickly.Y, slowly.Y)):
        return Wrong("the quick and the exact reader give different rows")
    return quickly


def _check_text(path: Path, _: Any, **options: Any) -> Any:
    return _twins(lambda: labelfield.read(path, **options), "labelfield.data.text.scan", lambda block, grammar: None)


def _check_table(path: Path, _: Any) -> Any:
    slow = lambda self, block: None  # noqa: E731  # in the place of a method
    return _twins(lambda: labelfield.read(path), "labelfield.data.csv_table._Table.quick", slow)


def _check_arff(path: Path, before: Any) -> Any:
    dataset = _sound(labelfield.read(path))
    return dataset if before is None else _count_of(dataset, path)


def _count_of(dataset: Any, path: Path) -> Any:
    """Check the number of rows against that of the lines after @data, where the file is not compressed."""
    content = path.read_bytes()
    if content.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ")):
        return dataset
    lines = [line.strip() for line in content.decode("utf-8", "replace").split("\n")]
    first = next(i for i, line in enumerate(lines) if line.split(None, 1)[:1] and line.split()[0].lower() == "@data")
    n_rows = sum(bool(line) and not line.startswith("%") for line in lines[first + 1 :])
    return dataset if dataset.n_rows == n_rows else Wrong(f"{dataset.n_rows} rows of {n_rows} lines")


_ROWS = np.array([[0, 1.5, 0, 0.25], [2, 0, 0, 1e-3], [0, 0, 0, 0], [0.5, 3, 7, 0], [1, 0, 0, 1], [0, 2, 0, 0]])
_LABELS = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 1], [0, 0, 0], [0, 0, 1], [1, 0, 0]])


def _dataset() -> Dataset:
    return Dataset(_ROWS, _LABELS, Names(["ant", "bée", "cat"]), Names(["f0", "f1", "f2", "f3"]))


_XML = b"6 4 3\n0,2 1:1.5 3:0.25\n1 0:2 3:0.001\n0,1,2\n 0:0.5 1:3 2:7\n2 0:1 3:1\n0 1:2\n"
_SVM = b"0,2 1:1.5 3:0.25\n1 1:2 3:0.001 # a comment\n0,1,2 2:4\n2 1:1 3:1e-2\n0 2:-2.5\n"
_OURS = b"# labelfield rows=3 features=4 labels=3\n0,2 1:1.5 3:0.25\n\n2 1:1 4:1\n"
_CLASSES = b"ant 1:1.5 3:0.25\nbee 1:2\n+1 2:4\n1.0 1:3\nant 2:-2.5\n"
_TABLE = b'length,"width, in",class\n1.5,2,ant\n"3",4e-1,"bee"\n0,0,"a ""b"""\n-1,+2.,1.0\n'
_ARFF = (
    b"% a comment\n@relation 'animals: -C 2'\n@attribute label1 {0,1}\n@attribute 'label 2' {0,1}\n"
    b"@attribute length numeric\n@attribute colour {red, 'dark blue', green}\n@attribute odd {a,b}\n@data\n"
    b"1,0,1.5,red,a\n0,1,2,'dark blue',b\n{0 1, 2 3.5, 3 green}\n{}\n1,1,-1e-2,green,b\n"
)


def _make_npz(folder: Path) -> None:
    labelfield.write(_dataset(), folder / "rows.npz")


def _change_npz(folder: Path, rng: Random) -> bool:
    path = folder / "rows.npz"
    is_of_bytes = rng.randrange(3) == 0
    path.write_bytes((mutated if is_of_bytes else mutate_zip)(path.read_bytes(), rng))
    return is_of_bytes


def _check_npz(folder: Path, before: Any) -> Any:
    return _sound(labelfield.read(folder / "rows.npz"))


def _make_dense(folder: Path) -> None:
    np.savez_compressed(folder / "rows.npz", X=_ROWS, y=np.array(["a", "b", "a", "c", "a", "b"]))


def _make_pair(folder: Path) -> None:
    sparse.save_npz(folder / "X_rows.npz", sparse.csr_array(_ROWS))
    sparse.save_npz(folder / "Y_rows.npz", sparse.coo_array(_LABELS))


def _change_pair(folder: Path, rng: Random) -> bool:
    path = folder / rng.choice(("X_rows.npz", "Y_rows.npz"))
    is_of_bytes = rng.randrange(3) == 0
    path.write_bytes((mutated if is_of_bytes else mutate_zip)(path.read_bytes(), rng))
    return is_of_bytes


def _check_pair(folder: Path, before: Any) -> Any:
    return _sound(labelfield.read(folder / "X_rows.npz"))


def _make_store(folder: Path) -> None:
    dataset = _dataset()
    labelfield.write(dataset.with_parts(test=dataset), folder / "data")


def _change_store(folder: Path, rng: Random) -> bool:
    files = sorted(path for path in (folder / "data").rglob("*") if path.is_file())
    path = rng.choice(files)
    if _change_links(path, rng):
        return False
    content = path.read_bytes()
    if path.suffix == ".json":
        path.write_bytes(_changed_json(content, rng))
    else:
        path.write_bytes((mutate_npy if path.suffix == ".npy" and rng.randrange(2) else mutated)(content, rng))
    return False


def _changed_json(content: bytes, rng: Random) -> bytes:
    if rng.randrange(2):
        return mutated(content, rng)
    return json.dumps(mutate_json(json.loads(content), rng)).encode(errors="surrogatepass")


def _change_links(path: Path, rng: Random) -> bool:
    """Sometimes put something else in the place of a file: nothing, a folder, a link to itself or to a device."""
    how = rng.randrange(60)
    if how > 5:
        return False
    path.unlink()
    if how == 0:
        path.mkdir()
    elif how == 1:
        path.symlink_to(path)
    elif how == 2:
        path.symlink_to("/dev/zero")
    elif how == 3:
        os.mkfifo(path)
    elif how == 4:
        other = path.with_name("elsewhere")  # in this folder: nothing outside it may ever be written to
        other.write_bytes(b"a:b\n")
        path.symlink_to(other)
    return True


def _check_store(folder: Path, before: Any) -> Any:
    dataset = labelfield.read(folder / "data")
    for split in dataset.splits.values():
        split.take(np.arange(split.n_rows)) if split.n_rows < 100 else None
    verify(dataset)
    return _sound(dataset)


def _check_predictions(path: Path, _: Any) -> Any:
    found: list[Any] = []
    for is_patched in (False, True):
        try:
            with (
                patch("labelfield.data.text.scan", lambda block, grammar: None)
                if is_patched
                else warnings.catch_warnings()
            ):
                found.append(labelfield.read_predictions(path, 4, 5))
        except labelfield.DataError as error:
            found.append(error)
    quickly, slowly = found
    if isinstance(quickly, labelfield.DataError) or isinstance(slowly, labelfield.DataError):
        if str(quickly) != str(slowly):
            return Wrong(f"the quick reader says {str(quickly)[:90]!r}, the exact one {str(slowly)[:90]!r}")
        raise quickly
    if not np.isfinite(quickly.data).all():
        return Wrong("a score is not finite")
    return quickly if _same(quickly, slowly) else Wrong("the quick and the exact reader give different scores")


def _make_scores(folder: Path) -> None:
    labelfield.write_predictions(sparse.csr_array(_ROWS), folder / "rows.npz")


def _check_scores(folder: Path, _: Any) -> Any:
    scores = labelfield.read_predictions(folder / "rows.npz", *_ROWS.shape)
    data = scores.data if sparse.issparse(scores) else scores
    labelfield.metrics.precision_at_k(sparse.csr_array(np.eye(*_ROWS.shape)), scores, 1)
    return scores if np.isfinite(data).all() else Wrong("a score is not finite")


# Documents


def _check_documents(path: Path, before: Any = None) -> Any:
    found = labelfield.read_documents(path)
    for text in (*(part for texts in found.texts for part in texts), *found.ids):
        text.encode()
    for own in found.labels or ():
        for name in own:
            name.encode()
            if not name or "\n" in name:
                return Wrong(f"a label {name!r}")
    return found


_JSONL = (
    b'{"id": "a", "title": "Cats", "text": "cats sleep", "labels": ["animals", "sleep"]}\n'
    b'{"id": "b", "title": "Tea", "text": "how to brew tea", "labels": ["food"]}\n'
    b'{"id": 3, "title": null, "text": "dogs, cats", "labels": ["animals", {"uri": "http://x/1", "label": "dogs"}]}\n'
)
_JSON = b"[" + _JSONL.strip().replace(b"\n", b",\n") + b"]"
_CSV = (
    b'id,title,text,labels\n1,Cats,"cats sleep, all day",animals|sleep\n2,Tea,"how to ""brew"" tea\nslowly",food\n'
    b"3,Dogs,dogs run,animals\n"
)
_FASTTEXT = (
    b"__label__animals __label__sleep cats sleep all day\n__label__food how to brew tea\n__label__animals dogs\n"
)
_ANNIF = b"cats sleep all day\t<http://x/1> <http://x/2>\nhow to brew tea\t<http://x/3>\ndogs and cats\t\n"
_PECOS = b"0,3\tcats sleep all day\n1\thow to brew tea\n2\tdogs and cats\n"


def _make_parquet(folder: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    rows = [json.loads(line) for line in _JSONL.splitlines()]
    texts = {name: [str(row[name]) for row in rows] for name in ("id", "title", "text")}
    lists = [[one if isinstance(one, str) else one["uri"] for one in row["labels"]] for row in rows]
    parquet.write_table(pa.table({**texts, "labels": lists, "year": [1, 2, None]}), folder / "rows.parquet")


def _change_bytes(name: str) -> Callable[[Path, Random], bool]:
    def change(folder: Path, rng: Random) -> bool:
        path = folder / name
        path.write_bytes(mutated(path.read_bytes(), rng))
        return False

    return change


def _make_annif_folder(folder: Path) -> None:
    own = folder / "documents"
    own.mkdir()
    (own / "a.txt").write_text("cats sleep all day\n")
    (own / "a.tsv").write_text("<http://x/1>\tanimals\n<http://x/2>\tsleep\n")
    (own / "b.txt").write_text("how to brew tea\n")
    (own / "b.key").write_text("food\n\ntea\n")


def _change_any(folder: Path, rng: Random) -> bool:
    path = rng.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    if not _change_links(path, rng):
        path.write_bytes(mutated(path.read_bytes(), rng))
    return False


# Vocabularies

_TSV_LABELS = b"<http://x/1>\tanimals\tA1\n<http://x/2>\tsleep\nfood\n<http://x/3>\tanimals\n"
_CSV_LABELS = "uri,label_en,label_fi,notation\n<http://x/1>,animals,eläimet,A1\nhttp://x/2,sleep,uni,\n".encode()
_JSON_LABELS = b'{"name": "animals", "uri": "http://x/1", "names": {"fi": "elukat"}}\n{"name": "food"}\n'
_SKOS = (
    b"@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
    b'<http://x/1> a skos:Concept ; skos:prefLabel "animals"@en, "el\xc3\xa4imet"@fi ; skos:notation "A1" .\n'
    b'<http://x/2> a skos:Concept ; skos:prefLabel "sleep"@en .\n'
)


def _check_vocabulary(path: Path, _: Any) -> Any:
    found = labelfield.read_vocabulary(path, "fi")
    again = LabelVocabulary.from_lines(found.to_lines())
    return found if again.labels == found.labels else Wrong("the vocabulary is another one after it was saved")


# Models

_MODELS = ("mlgpf", "one_vs_each", "topics", "linear", "auto", "text", "svdkl")


def _make_model(kind: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        rng = np.random.default_rng(0)
        X = np.abs(rng.normal(size=(40, 4))) * (rng.random((40, 4)) < 0.7)
        Y, y = (rng.random((40, 3)) < 0.4).astype(int), np.arange(40) % 3
        small: dict[str, Any] = {"n_inducing": 4, "max_epochs": 1, "device": "cpu"}
        if kind == "text":
            texts = [f"{'cat' if i % 2 else 'dog'} {i % 7} runs" for i in range(40)]
            lists = [["animals"] if i % 3 else ["sport", "animals"] for i in range(40)]
            model: Any = estimators.TextClassifier(model=estimators.LinearClassifier()).fit(texts, lists)
        elif kind == "one_vs_each":
            model = estimators.GPClassifier(**small).fit(X, y)
        elif kind == "svdkl":
            sizes: dict[str, Any] = {
                "hidden": (3,),
                "grid_size": 5,
                "network_epochs": 1,
                "process_epochs": 1,
                "max_epochs": 1,
            }
            model = estimators.DeepKernelClassifier(**sizes, device="cpu").fit(X, y)
        elif kind == "topics":
            model = estimators.TopicClassifier(n_topics=2, max_epochs=2).fit(X, Y)
        elif kind == "linear":
            model = estimators.LinearClassifier().fit(X, Y)
        elif kind == "auto":
            model = estimators.AutoClassifier(quality="fast", time_budget=2.0).fit(X, Y)
        else:
            model = estimators.MLGPFClassifier(n_latent=2, **small).fit(X, Y)
        model.save(folder / "model")

    return make


def _change_model(folder: Path, rng: Random) -> bool:
    from labelfield.models import artifact

    own = folder / "model"
    path = rng.choice(sorted(own.iterdir()))
    if _change_links(path, rng):
        return True
    content, how = path.read_bytes(), rng.randrange(4)
    if how == 0:
        path.write_bytes(mutated(content, rng))
        return True
    if path.suffix == ".json":
        config = mutate_json(json.loads(content), rng)
    else:
        path.write_bytes((mutate_safetensors if path.suffix == ".safetensors" else mutated)(content, rng))
        config = json.loads((own / "config.json").read_bytes())
    sums = config.get("sha256")
    if isinstance(sums, dict):  # as one who wants it to load would make it
        sums |= {name: artifact._digest_of_file(own / name) for name in artifact._CHECKED if (own / name).is_file()}
        sums["config.json"] = artifact._digest_of_config(config)
    (own / "config.json").write_bytes(json.dumps(config).encode())
    return False


def _check_model(folder: Path, before: Any) -> Any:
    model = labelfield.load(folder / "model", device="cpu")
    texts, is_of_texts = ["cat runs", "dog 3", ""], hasattr(model, "classifier_")
    X: Any = texts if is_of_texts else _ROWS[:, :4]
    if before is not None and len(before) == len(texts) and not is_of_texts:
        X = np.zeros((1, model.n_features_in_))  # without what it says of texts, a model of them is one of rows
    if isinstance(X, np.ndarray) and model.n_features_in_ != X.shape[1]:
        return Wrong(f"a model of {model.n_features_in_} features") if before is not None else model
    P = model.predict_proba(X)
    if not (np.isfinite(P).all() and (P >= 0).all() and (P <= 1).all()):
        return Wrong("probabilities that are not between 0 and 1")
    model.predict_topk(X, 2)
    return P


def _make_mix(folder: Path) -> None:
    texts, labels = labelfield.synth.make_texts(60, seed=0)
    mix = estimators.AutoClassifier(time_budget=1.0, random_state=0, device="cpu")
    estimators.TextClassifier(model=mix).fit(texts, labels).save(folder / "model")


def _check_light(folder: Path, before: Any) -> Any:
    """Load a model in NumPy alone; what is not sound is left to the estimators."""
    model = load_light(folder / "model")
    if model is None:
        raise ModelError("left to the estimators")
    best = model.predict_topk(model.text_.rows(["cat runs", "dog 3", "the violin and the harbour"]), 2)
    unsure = model.predict_uncertainty(model.text_.rows(["cat"]))
    P = np.append(best.data, unsure)
    is_sound = np.isfinite(P).all() and (P >= 0).all() and (P <= 1).all()
    return best.toarray() if is_sound else Wrong("probabilities that are not between 0 and 1")


def _make_checkpoint(folder: Path) -> None:
    _train_to(folder, 2, resume=False)


def _train_to(folder: Path, epochs: int, resume: bool) -> Any:
    rng = np.random.default_rng(0)
    X = np.abs(rng.normal(size=(40, 4)))
    Y = (rng.random((40, 3)) < 0.4).astype(int)
    model = estimators.MLGPFClassifier(
        n_latent=2, n_inducing=4, max_epochs=epochs, batch_size=10, random_state=0, device="cpu"
    )
    return model.fit(X, Y, checkpoint=folder / "checkpoint.safetensors", resume=resume)


def _change_checkpoint(folder: Path, rng: Random) -> bool:
    path = folder / "checkpoint.safetensors"
    if _change_links(path, rng):
        return False
    is_of_bytes = bool(rng.randrange(2))
    path.write_bytes((mutated if is_of_bytes else mutate_safetensors)(path.read_bytes(), rng))
    return False


def _check_checkpoint(folder: Path, before: Any) -> Any:
    P = _train_to(folder, 3, resume=True).predict_proba(_ROWS[:, :4])
    return P if np.isfinite(P).all() else Wrong("probabilities that are not finite")


def equal(a: Any, b: Any) -> bool:
    """Return whether two things that were read are the same."""
    if isinstance(a, Dataset):
        return _same(a.X, b.X) and _same(a.Y, b.Y)
    if sparse.issparse(a):
        return bool(sparse.issparse(b)) and _same(a, b)
    return np.array_equal(a, b)


READERS = {
    "xml-repository": _one_file("rows.txt", _XML, _check_text),
    "svmlight": _one_file("rows.svm", _SVM, _check_text),
    "svmlight with our header": _one_file("rows.svm", _OURS, _check_text),
    "svmlight of classes": _one_file(
        "rows.svm", _CLASSES, lambda path, before: _check_text(path, before, classes=True)
    ),
    "csv of rows": _one_file("rows.csv", _TABLE, _check_table),
    "arff": _one_file("rows.arff", _ARFF, _check_arff),
    "npz": Reader(_make_npz, _change_npz, _check_npz),
    "npz of X and y": Reader(_make_dense, _change_npz, _check_npz),
    "npz of SciPy": Reader(_make_pair, _change_pair, _check_pair),
    "folder": Reader(_make_store, _change_store, _check_store),
    "predictions": _one_file("rows.txt", b"0:1.5 3:0.25\n\n1:2e-1 4:0 0:-1\n2:1\n", _check_predictions),
    "predictions in npz": Reader(_make_scores, _change_npz, _check_scores),
    "json lines": _one_file("rows.jsonl", _JSONL, _check_documents),
    "json": _one_file("rows.json", _JSON, _check_documents),
    "csv of documents": _one_file("rows.csv", _CSV, _check_documents),
    "fasttext": _one_file("rows.ft", _FASTTEXT, _check_documents),
    "annif": _one_file("rows.tsv", _ANNIF, _check_documents),
    "annif folder": Reader(_make_annif_folder, _change_any, lambda f, b: _check_documents(f / "documents")),
    "pecos": _one_file("rows.txt", _PECOS, _check_documents),
    "document per line": _one_file(
        "rows.txt", b"cats sleep all day\nhow to brew tea\ndogs and cats\n", _check_documents
    ),
    "parquet": Reader(_make_parquet, _change_bytes("rows.parquet"), lambda f, b: _check_documents(f / "rows.parquet")),
    "vocabulary, tsv": _one_file("labels.tsv", _TSV_LABELS, _check_vocabulary),
    "vocabulary, csv": _one_file("labels.csv", _CSV_LABELS, _check_vocabulary),
    "vocabulary, json lines": _one_file("labels.jsonl", _JSON_LABELS, _check_vocabulary),
    "vocabulary, skos": _one_file("labels.ttl", _SKOS, _check_vocabulary),
    **{f"model, {kind}": Reader(_make_model(kind), _change_model, _check_model) for kind in _MODELS},
    "model, light machines": Reader(_make_model("text"), _change_model, _check_light),
    "model, light mix": Reader(_make_mix, _change_model, _check_light),
    "checkpoint": Reader(_make_checkpoint, _change_checkpoint, _check_checkpoint),
}


class Originals:
    """The files of a reader, kept in memory: after a trial only what it changed is written again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.contents = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
        self.marks = {path: _mark(path) for path in self.contents}
        self.n_entries = sum(1 for _ in _entries(folder))

    def restore(self) -> Path:
        """Return the folder as it was."""
        for path, mark in self.marks.items():
            if _mark(path) == mark:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            path.write_bytes(self.contents[path])
            self.marks[path] = _mark(path)
        if sum(1 for _ in _entries(self.folder)) != self.n_entries:  # something new is there
            for path in list(_entries(self.folder)):
                if path not in self.contents and not (path.is_dir() and not path.is_symlink()):
                    path.unlink()
        return self.folder


def _mark(path: Path) -> tuple[int, ...] | None:
    """Return what differs once a file was written to or replaced."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _entries(folder: Path) -> Iterator[Path]:
    for entry in os.scandir(folder):
        yield Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _entries(Path(entry.path))
