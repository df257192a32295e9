"""The tables about documents: tags beside those of peers, and text to rows."""

from __future__ import annotations

from typing import Any

from benchmarks.record import Record
from benchmarks.studies.documents import PEERS, REFERENCE
from benchmarks.tables.text import machine_shown, markdown_table, triple

__all__ = ["encoding", "pretrained", "tags"]

_CORPORA = {"documents-eurovoc": "eurovoc-text, English", "documents-makupalat": "makupalat, Finnish"}


def tags(records: dict[str, Record]) -> str:
    """Show our commands beside Annif and scikit-learn, from the same documents."""
    parts = []
    for name, title in _CORPORA.items():
        if name not in records:
            parts.append(f"{title}: {_missing(name)}")
            continue
        results = records[name]["results"]
        reference = results[REFERENCE]
        rows = [_row(peer, results[peer], reference) for peer in ("labelfield", *PEERS)]
        header = [title, "P@1 / 3 / 5", "F1@5", "ECE@1 / 5", "train, × Bonsai", "tag, × Bonsai", "model"]
        sizes = f"{results['documents']:,} training documents, {results['test documents']:,} to tag"
        parts.append(f"{markdown_table(header, rows)}\n{sizes}, {results['labels']:,} labels.\n")
    where = machine_shown(records["documents-eurovoc"]["machine"])
    note = (
        "Ours are the two commands `labelfield train DATA --out M` and `labelfield tag M DATA`, including start-up; "
        "peers are timed from texts in a file to lists of labels, without start-up. Annif uses Snowball stems and the "
        "settings that its documentation gives for each backend; sentences are split at . ! ?, since the data for its "
        "splitter are not on PyPI. The ECE of LinearSVC uses the sigmoid of its margins, which are not probabilities. "
        f"On {where}; `python -m benchmarks bench documents-eurovoc`, and the same for `documents-makupalat`."
    )
    return "\n".join([*parts, f"{note}\n"])


def _missing(name: str) -> str:
    return f"nothing has been measured yet (`python -m benchmarks bench {name}`).\n"


def _row(peer: str, found: dict[str, Any], reference: dict[str, Any]) -> list[str]:
    if "skipped" in found:
        return [peer, f"skipped: {found['skipped']}", "", "", "", "", ""]
    ratios = [f"{found[name] / reference[name]:.2f}×" for name in ("train_seconds", "predict_seconds")]
    scores = [triple(found, "P"), f"{found['F1@5']:.3f}", triple(found, "ECE", (1, 5))]
    return [peer, *scores, *ratios, f"{found['model_mb']:.0f} MB"]


def encoding(records: dict[str, Record]) -> str:
    """Show how fast texts become rows, and what a million of them takes."""
    if missing := [name for name in ("encoding", "encoding-memory") if name not in records]:
        return _missing(missing[0])
    rows = [
        [name, f"{found['times_as_fast']:.1f}×", _by_cpu(found), f"{found['columns']:,}"]
        for name, found in records["encoding"]["results"].items()
        if "times_as_fast" in found
    ]
    header = ["texts and cores", "speed relative to TfidfVectorizer", "by processor time", "columns"]
    where = machine_shown(records["encoding"]["machine"])
    note = f"Plain words and pairs, in at least two documents. On {where}; `python -m benchmarks bench encoding`."
    large = []
    for name, found in records["encoding-memory"]["results"].items():
        n, of = name.split(" ", 1)
        large.append([f"{int(n):,} {of}", f"{found['seconds']:.0f} s", f"{found['peak_mb']:.0f} MB"])
    streams = markdown_table(["a stream: fit the encoder, then make rows", "time", "peak memory"], large)
    return f"{markdown_table(header, rows)}\n{note}\n\n{streams}\n`python -m benchmarks bench encoding-memory`.\n"


def _by_cpu(found: dict[str, Any]) -> str:
    """Show the ratio of processor times; nothing for records that are older than this measure."""
    theirs = found.get("scikit_learn_cpu_seconds")
    return "" if theirs is None else f"{theirs / found['cpu_seconds']:.1f}×"


def pretrained(records: dict[str, Record]) -> str:
    """Show words beside a static pretrained encoder, and say whether it helps on short texts."""
    if "pretrained" not in records:
        return _missing("pretrained")
    results = records["pretrained"]["results"]
    sizes = {name: found for name, found in results.items() if isinstance(found, dict)}
    encoders = list(next(iter(sizes.values())))
    rows = [
        [size, *(f"{triple(found[one], 'P')} ({found[one]['seconds']:.0f} s)" for one in encoders)]
        for size, found in sizes.items()
    ]
    note = (
        f"P@1 / 3 / 5, and the time for training and tagging, of linear machines on titles alone "
        f"({results['letters per title']:.0f} letters on average; {results['test documents']:,} to tag). "
        f"{' '.join(_compared(size, found) for size, found in sizes.items())} "
        f"On {machine_shown(records['pretrained']['machine'])}; `python -m benchmarks bench pretrained`."
    )
    return f"{markdown_table(['training documents', *encoders], rows)}\n{note}\n"


def _compared(size: str, found: dict[str, Any]) -> str:
    """Say what embeddings beside words gain in P@1, and the standard error of a difference of two samples."""
    words, both = found["words"], found["both side by side"]
    gain, error = both["P@1"] - words["P@1"], (words["standard_error"] ** 2 + both["standard_error"] ** 2) ** 0.5
    verdict = "helps" if gain > 2 * error else "harms" if gain < -2 * error else "makes no clear difference"
    return f"With {size}, wordllama beside words {verdict} ({gain:+.1f} P@1, standard error at most {error:.1f})."
