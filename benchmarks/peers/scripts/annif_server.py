"""Annif's server with an omikuji project: `train` makes the project, and gunicorn serves `create()`.

The sentence splitter that it downloads is not on PyPI: sentences end at . ! or ? here.
"""

import re
import sys

import annif
import nltk.data
import nltk.tokenize

nltk.data.find = lambda *_: None
nltk.tokenize.sent_tokenize = lambda text, *_: re.split(r"(?<=[.!?])\s+", text)


def create():
    """Return the application."""
    return annif.create_app()


def train(vocabulary: str, documents: str) -> None:
    """Train the project p on documents."""
    import annif.registry
    from annif.corpus import DocumentFileTSV
    from annif.vocab import VocabFileTSV

    with annif.create_flask_app().app_context():
        project = annif.registry.get_project("p")
        project.vocab.load_vocabulary(VocabFileTSV(vocabulary, "en"))
        project.train(DocumentFileTSV(documents, project.subjects, require_subjects=False), jobs=2)


if __name__ == "__main__":
    train(*sys.argv[1:])
