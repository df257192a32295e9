"""query, collect: which documents a person should label next, and what people said about them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer

from labelfield.atomic import replacing_file
from labelfield.cli.options import AsJson, Device, Overwrite, Reading, load_model, reads_files, require_file_name
from labelfield.cli.output import Bar, counted, report_written, say

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy import sparse

    from labelfield.active.tools import Task
    from labelfield.estimators.protocol import FittedClassifier
    from labelfield.text.documents import Documents
    from labelfield.text.parts import TextParts

_MOST_PROPOSED = 10


@reads_files(documents=True)
def query(
    reading: Reading,
    model: Annotated[Path, typer.Argument(help="The folder of a model.")],
    pool: Annotated[Path, typer.Argument(help="Documents or rows without labels to choose from.")],
    out: Annotated[Path, typer.Option("--out", help="The file for a person or a labelling tool.")],
    n: Annotated[int, typer.Option("-n", min=1, help="How many to choose.")] = 50,
    strategy: Annotated[
        Literal["uncertainty", "information", "diverse", "random"],
        typer.Option("--strategy", help="How documents are chosen."),
    ] = "diverse",
    labelled: Annotated[
        Path | None,
        typer.Option("--labelled", help="What the model was trained on, for diverse; default: what its folder keeps."),
    ] = None,
    tool: Annotated[
        Literal["jsonl", "label-studio", "doccano", "argilla", "prodigy"],
        typer.Option("--tool", help="The tool that will import the file; jsonl is read by train and learn."),
    ] = "jsonl",
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same choice.")] = 0,
    device: Device = "auto",
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Choose the documents in a pool that would teach a model the most, for a person to label.

    They are written with the tags that the model proposes. For a model of rows, each line has the number of a row.

    Example: labelfield query model pool.csv -n 50 --out next.jsonl
    """
    from labelfield.active import query as choose
    from labelfield.active import write_tasks

    require_file_name(out, overwrite)
    started = time.perf_counter()
    estimator = load_model(model, device, reading.trust)
    if estimator.text_ is None:
        if tool != "jsonl":
            raise typer.BadParameter(f"--tool {tool} is for documents; {model} was trained on rows")
        X = reading.for_model(estimator, pool, labelled=False).X
        known = None if labelled is None else reading.for_model(estimator, labelled, labelled=False).X
        chosen = choose(estimator, X, n, strategy, X_labelled=known, random_state=seed)
        with replacing_file(out) as new:
            new.write_text("".join(json.dumps({"row": int(row)}) + "\n" for row in chosen))
    else:
        from labelfield.cli.documents import read_for

        documents = read_for(estimator.text_, reading, pool, "train", False)
        known = _known(estimator.text_, reading, model, labelled) if strategy == "diverse" else None
        with Bar("choosing"):
            X = estimator.text_.rows(documents.texts)
            chosen = choose(estimator, X, n, strategy, X_labelled=known, random_state=seed)
            tasks = _tasks(estimator, documents, X, chosen)
        write_tasks(out, tasks, tool)
    facts = {"path": str(out), "chosen": int(chosen.size), "of": int(X.shape[0]), "strategy": strategy}
    report_written(facts, started, as_json, f": {chosen.size:,} of {X.shape[0]:,}")


def _known(text: TextParts, reading: Reading, model: Path, labelled: Path | None) -> sparse.csr_array | None:
    """Return the rows of the documents that a model was trained on: those of a file, or those that its folder keeps."""
    from labelfield.cli.documents import read_for
    from labelfield.models.artifact import DOCUMENTS
    from labelfield.text.kept import read_kept

    if labelled is not None:
        return text.rows(read_for(text, reading, labelled, "train", False).texts)
    if not (model / DOCUMENTS).exists():
        return None
    return text.rows(document.texts for document in read_kept(model / DOCUMENTS, len(text.fields)))


def _tasks(estimator: FittedClassifier, documents: Documents, X: Any, chosen: NDArray[np.int64]) -> list[Task]:
    """Return the chosen documents with the tags that the model proposes, and how uncertain it is."""
    from labelfield.active.query import row_scores
    from labelfield.active.tools import Task
    from labelfield.text.parts import tags_of

    assert estimator.text_ is not None  # the model was trained on documents
    rows = X[chosen]
    best = estimator.predict_topk(rows, _MOST_PROPOSED)
    tags = tags_of(estimator.label_names(), estimator.text_.vocabulary, best)
    scores = row_scores(estimator, rows, "uncertainty").tolist()
    return [
        Task(documents.ids[row], dict(zip(documents.fields, documents.texts[row], strict=True)), own, score)
        for row, own, score in zip(chosen.tolist(), tags, scores, strict=True)
    ]


def collect(
    results: Annotated[Path, typer.Argument(help="An export of Label Studio, doccano, Argilla or Prodigy (JSON).")],
    out: Annotated[Path, typer.Option("--out", help="A file of JSON lines that train and learn read.")],
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Convert the results of a labelling tool to documents with labels.

    Example: labelfield collect export.json --out corrected.jsonl; labelfield learn model corrected.jsonl
    """
    from labelfield.active import read_annotations

    require_file_name(out, overwrite)
    started = time.perf_counter()
    documents, tool = read_annotations(results)
    say(f"{results}: {counted(len(documents), 'document')} of {tool}")
    assert documents.labels is not None  # that is what was read
    lines = []
    has_id = documents.has_id or [True] * len(documents)
    for texts, labels, identifier, own in zip(documents.texts, documents.labels, documents.ids, has_id, strict=True):
        record = dict(zip(documents.fields, texts, strict=True)) | {"labels": labels}
        lines.append(json.dumps({"id": identifier, **record} if own else record, ensure_ascii=False) + "\n")
    with replacing_file(out) as new:
        new.write_text("".join(lines), encoding="utf-8")
    facts = {"path": str(out), "documents": len(documents), "tool": tool}
    report_written(facts, started, as_json, f": {counted(len(documents), 'document')}")
