"""Annif with one of its backends, on documents as TSV of text and `<uri> …`, and a vocabulary as TSV.

The sentence splitter that it downloads is not on PyPI: sentences end at . ! or ? here.
"""

import os
import re
from pathlib import Path

from protocol import Clock, finish, folder_bytes, task

asked, clock = task(), Clock()
folder = Path(asked["model"])
folder.mkdir(parents=True)
options = dict(asked["options"])
lines = [
    "[p]",
    "name=p",
    f"language={asked['language']}",
    f"backend={options.pop('backend')}",
    f"analyzer={asked['analyzer']}",
    "vocab=v",
    f"limit={asked['k']}",
    *(f"{name}={value}" for name, value in options.items()),
]
(folder / "projects.cfg").write_text("\n".join(lines) + "\n", encoding="utf-8")
os.environ["ANNIF_PROJECTS"], os.environ["ANNIF_DATADIR"] = str(folder / "projects.cfg"), str(folder / "data")

import annif  # noqa: E402  # reads the environment
import annif.registry  # noqa: E402
import nltk.data  # noqa: E402
import nltk.tokenize  # noqa: E402
from annif.corpus import Document, DocumentFileTSV  # noqa: E402
from annif.vocab import VocabFileTSV  # noqa: E402

nltk.data.find = lambda *_: None
nltk.tokenize.sent_tokenize = lambda text, *_: re.split(r"(?<=[.!?])\s+", text)

with annif.create_flask_app().app_context():
    project = annif.registry.get_project("p")
    project.vocab.load_vocabulary(VocabFileTSV(asked["vocabulary"], asked["language"]))
    with clock("train"):
        corpus = DocumentFileTSV(asked["train"], project.subjects, require_subjects=False)
        project.train(corpus, jobs=asked["threads"])
    uris = {number: subject.uri for number, subject in enumerate(project.subjects)}
    texts = [line.rpartition("\t")[0] for line in Path(asked["test"]).read_text(encoding="utf-8").split("\n")[:-1]]
    ranked = []
    with clock("predict"):
        for first in range(0, len(texts), 32):  # as many as its server takes at a time
            for found in project.suggest([Document(text=text) for text in texts[first : first + 32]]):
                own = sorted(found, key=lambda one: -one.score)[: asked["k"]]
                ranked.append([(int(uris[one.subject_id].rpartition("/")[2]), float(one.score)) for one in own])
finish(asked, clock, ranked, folder_bytes(folder / "data"))
