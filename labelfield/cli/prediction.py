"""predict, evaluate and report: the labels of new rows, scores against the truth, and a page about a model."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer
from numpy.typing import NDArray
from scipy import sparse

from labelfield import __version__
from labelfield.cli.documents import encoded, read_for
from labelfield.cli.options import (
    AsJson,
    Device,
    Reading,
    Search,
    load_model,
    read_entries,
    reads_files,
    require_features,
    require_file_name,
    require_rows,
)
from labelfield.cli.output import Bar, joined_quietly, print_facts, print_json, print_table, report_written, say, shown
from labelfield.cluster import Cluster
from labelfield.csr import MAX_COLUMNS, assemble, column_counts, digest_of
from labelfield.data import Dataset, read_predictions, write_predictions
from labelfield.errors import DataError, LabelfieldError
from labelfield.metrics import ece_at_k, error_rate, f1, f1_at_k, nlpd, popularity, precision_at_k
from labelfield.metrics import evaluate as evaluate_scores
from labelfield.metrics.propensity import (
    PROPENSITY_A,
    PROPENSITY_B,
    inverse_propensity,
    inverse_propensity_of,
    rank_power,
    rank_weight,
)

if TYPE_CHECKING:
    from labelfield.estimators.protocol import FittedClassifier
    from labelfield.models.predictor import Predictor


_RANK_BY = (
    "probability; propensity, which times p is best for PSP@k; a power of the inverse propensity such as 0.5; or "
    "utility, the mean utility under a factor model."
)
RankBy = Annotated[str, typer.Option("--rank-by", help=_RANK_BY)]


@reads_files(documents=True)
def predict(
    reading: Reading,
    model: Annotated[Path, typer.Argument(help="The folder of a model.")],
    rows: Annotated[Path, typer.Argument(help="Rows to label; for two splits, the test rows.")],
    out: Annotated[Path, typer.Option("--out", help="Lines `label:probability …` (.txt, .txt.gz), or .npz.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Labels per row.")] = 5,
    rank_by: RankBy = "probability",
    search: Search = "auto",
    known: Annotated[
        Path | None,
        typer.Option("--known", help="Known labels: lines `label:1 label:-1 …` (holds, does not hold), or .npz."),
    ] = None,
    device: Device = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an older file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the k best labels of each row with their probabilities, in the order of --rank-by.

    With --known, a factor model takes known labels into account and lists the others, by --rank-by probability or
    utility. The file has one line per row, empty where nothing is known.

    Example: labelfield predict model data/bibtex -k 5 --out predictions.txt
    """
    require_file_name(out, overwrite)
    power = _parse_rank_by(rank_by)
    how = rank_by if rank_by == "utility" else power
    if known is not None and power:
        raise typer.BadParameter(f"--known lists labels by probability or utility; drop --rank-by {rank_by}")
    if known is not None and search == "index":
        raise typer.BadParameter("--known ranks all labels; drop --search index")
    with joined_quietly() as cluster:
        started = time.perf_counter()
        estimator = load_model(model, device, reading.trust)
        dataset = reading.for_model(estimator, rows, labelled=False)
        _answer_together(estimator, model, dataset, cluster, search)
        with Bar("predicting"):
            if known is None:
                predictions = _best(estimator, dataset, k, how, search)
            else:
                predictions = _given_known(estimator, dataset, known, k, rank_by)
        if not cluster.is_first:
            return
        has_classes = estimator.label_kind_ == "classes"
        numbers = class_numbers(estimator.label_names()) if has_classes else None
        weight = rank_weight(power, lambda: inverse_propensity_of(estimator.label_counts_, estimator.n_rows_))
        if numbers is not None:
            predictions, own = by_number(predictions, numbers), weight
            if own is not None:
                weight = np.ones(predictions.shape[1])
                weight[numbers] = own
        write_predictions(predictions, out, weight=weight)
        facts = {"path": str(out), "rows": dataset.n_rows, "k": k, "rank_by": rank_by}
        report_written(facts, started, as_json, f": {dataset.n_rows} rows")
        if has_classes and not as_json:
            say("labels are " + (f"lines of {model / 'labels.txt'}, from 0" if numbers is None else "class numbers"))


@reads_files(classes=True, documents=True)
def evaluate(
    reading: Reading,
    predictions: Annotated[
        Path, typer.Argument(help="A model; a file of lines `label:score label:score …` or .npz; or popularity.")
    ],
    truth: Annotated[Path, typer.Argument(help="Rows with true labels; for two splits, the test rows.")],
    train: Annotated[
        Path | None,
        typer.Option("--train", help="Training data, for propensities. Default: the training rows beside the truth."),
    ] = None,
    k: Annotated[str, typer.Option("-k", help="The list lengths k to score.")] = "1,3,5",
    rank_by: RankBy = "probability",
    search: Search = "auto",
    unlabelled: Annotated[
        Literal["miss", "drop"], typer.Option("--unlabelled", help="Count rows without labels as misses, or drop them.")
    ] = "miss",
    a: Annotated[float, typer.Option("--propensity-a", help="Propensity exponent.")] = PROPENSITY_A,
    b: Annotated[float, typer.Option("--propensity-b", help="Propensity offset.")] = PROPENSITY_B,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Score a model or predictions, in percent: P@k, nDCG@k, recall@k, ECE@k; with training data also PSP@k, PSnDCG@k.

    With --rank-by, labels are ranked by probability times a power of the inverse propensity; ECE@k then uses the
    probabilities of the listed labels.

    For a model of documents, also F1@k, and micro and macro F1 of the labels whose probability reaches the threshold.

    For a model of one class per row, also its error rate and the mean of -log p(class) (nlpd, in nats).

    Example: labelfield evaluate predictions.txt data/bibtex/test.txt.gz --train data/bibtex/train.txt.gz
    """
    ks, power = _parse_ks(k), _parse_rank_by(rank_by)
    if not (0 <= a < inf and 0 < b < inf):
        raise typer.BadParameter(f"--propensity-a {a:g} --propensity-b {b:g}; expected a >= 0 and b > 0")
    with joined_quietly() as cluster:
        started = time.perf_counter()
        if str(predictions) != "popularity" and not predictions.exists():
            raise DataError("there is no such model or file of predictions", path=predictions, fix="Check the path.")
        estimator = load_model(predictions, device, reading.trust) if predictions.is_dir() else None
        if rank_by == "utility" and estimator is None:
            raise typer.BadParameter("--rank-by utility is for a model")
        if search == "index" and (estimator is None or estimator.label_kind_ == "classes"):
            raise typer.BadParameter("--search index is for a model of several labels per row")
        if power and (str(predictions) == "popularity" or (estimator and estimator.label_kind_ == "classes")):
            raise typer.BadParameter(f"--rank-by {rank_by} is for several labels per row, predicted by a model")
        if estimator is not None and estimator.label_kind_ == "classes":
            rows = reading.for_model(estimator, truth, labelled=True)
            _answer_together(estimator, predictions, rows, cluster, search)
            result = _score_classes(estimator, rows, ks)
        else:
            rows, training = _read_truth(truth, train, estimator, reading)
            if estimator is not None:
                _answer_together(estimator, predictions, rows, cluster, search)
            inverse = None if training is None else inverse_propensity(training.Y, a, b)
            if estimator is not None and inverse is None:
                counts = np.pad(estimator.label_counts_, (0, rows.n_labels - estimator.spec_.n_labels))
                inverse = inverse_propensity_of(counts, estimator.n_rows_, a, b)
            if power and inverse is None:
                raise typer.BadParameter(f"--rank-by {rank_by} needs training data: pass --train")
            weight = None if inverse is None else rank_weight(power, lambda: inverse)

            def ranked(predictor: Predictor) -> sparse.csr_array:
                """Return the best labels under a predictor of the estimator's labels."""
                assert estimator is not None
                own, X = None if weight is None else weight[: predictor.n_labels], estimator.rows(rows.X)
                if rank_by == "utility":
                    return _widen(predictor.top_k_by_utility(X, max(ks)), rows.n_labels)
                return _widen(predictor.top_k(X, max(ks), weight=own), rows.n_labels)

            if str(predictions) == "popularity":
                if training is None:
                    raise typer.BadParameter("popularity needs training data: pass --train")
                scores = popularity(training.Y, rows.n_rows, max(ks))
            elif estimator is not None:
                with Bar("predicting"):
                    if estimator.uses_index(max(ks), rank_by if rank_by == "utility" else power, search):
                        scores = _widen(_best(estimator, rows, max(ks), 0.0, "index"), rows.n_labels)
                    else:
                        scores = ranked(estimator.predictor_)
            else:
                with Bar(f"reading {predictions.name}") as bar:
                    scores = read_predictions(predictions, rows.n_rows, rows.n_labels, progress=bar)
            with Bar("scoring"):
                alike: dict[str, Any] = {"k": ks, "unlabelled": unlabelled, "inverse": inverse, "rank_by": power}
                result = evaluate_scores(rows.Y, scores, **alike)
                baseline = None if estimator is None else estimator.predictor_.baseline()
                if baseline is not None:
                    alone = evaluate_scores(rows.Y, ranked(baseline), **alike)
                    result |= {
                        f"{baseline.title}: {name}": alone[name] for name in alone if name.startswith(("P@", "ECE@"))
                    }
                if estimator is not None and estimator.text_ is not None:
                    result |= _f1_scores(estimator, rows, scores, ks)
        if not cluster.is_first:
            return
    if as_json:
        print_json({**result, "unlabelled": unlabelled, "rank_by": rank_by, "seconds": time.perf_counter() - started})
    else:
        ordered = f", ranked by {rank_by}" if power or rank_by == "utility" else ""
        _print_scores(f"{predictions} on {truth}{ordered}", result, [k for k in ks if f"P@{k}" in result], unlabelled)


def _best(estimator: FittedClassifier, rows: Dataset, k: int, how: Any, search: Any) -> sparse.csr_array:
    """Return the best labels of rows; say what is known of them if they were searched with an index."""
    if not estimator.uses_index(k, how or "probability", search):
        return estimator.predict_topk(rows.X, k, rank_by=how, search="exact")
    found, audit = estimator.search_topk(rows.X, k), estimator.index_.audit
    n_rows = max(rows.n_rows, 1)
    share, proven = found.n_scored.sum() / n_rows / estimator.spec_.n_labels, found.is_certified.sum() / n_rows
    say(
        f"searched {100 * share:.2g} % of the labels of a row; {100 * proven:.0f} % of the lists are proven complete. "
        f"In the audit {100 * audit.recall:.1f} % of the {audit.k} best labels were found"
    )
    return found.best


def _answer_together(estimator: FittedClassifier, folder: Path, rows: Dataset, cluster: Cluster, search: str) -> None:
    """Let all processes of a launcher answer for a model, once it is certain that they have the same model and rows."""
    if cluster.size > 1:
        if search == "index":
            raise typer.BadParameter("--search index is for one process: start it without torchrun")
        from labelfield.estimators.classifier import spread

        model = sha256((folder / "config.json").read_bytes()).hexdigest()  # which has the checksums of everything
        cluster.agree({"version of labelfield": __version__, "model": model, "rows": digest_of(rows.X)})
        spread(estimator, cluster)


def _read_truth(
    truth: Path, train: Path | None, estimator: FittedClassifier | None, reading: Reading
) -> tuple[Dataset, Dataset | None]:
    """Read the rows to score and, where there are any, training rows with as many labels."""

    def read(path: Path, n_labels: int = 0, **options: Any) -> Dataset:
        dataset = reading(path, n_labels=n_labels, **options)
        return _number_classes(dataset, path, n_labels) if reading.classes else dataset

    if estimator is not None and estimator.text_ is not None:
        return reading.for_model(estimator, truth, labelled=True), None
    training = None if train is None else read(train).train
    n_labels = 0 if training is None else training.n_labels
    if estimator is None:
        dataset = read(truth, n_labels)
    else:
        n_labels = max(n_labels, estimator.spec_.n_labels)
        dataset = read(truth, n_labels, n_features=estimator.n_features_in_, narrow=True)
    rows = dataset if dataset.test is None else dataset.test
    if training is None and dataset.test is not None:
        training = dataset.train
    if training is not None and training.n_labels > rows.n_labels:
        wanted = f"{rows.n_labels}, as in {truth}"
        raise DataError(f"{training.n_labels} labels", path=train, expected=wanted, fix="Use one label set.")
    if training is not None and training.n_labels < rows.n_labels:
        training = replace(training, Y=_widen(training.Y, rows.n_labels), label_names=None)
    if estimator is not None:
        require_features(rows, truth, estimator, estimator.spec_.n_labels)
    return rows, training


def _f1_scores(estimator: FittedClassifier, rows: Dataset, scores: sparse.csr_array, ks: list[int]) -> dict[str, float]:
    """Return F1 of lists of k labels, a mean over documents, and F1 of all labels that reach the threshold."""
    chosen = _widen(estimator.predict(rows.X), rows.n_labels)
    found = {f"F1@{k}": 100 * f1_at_k(rows.Y, scores, k) for k in ks}
    return found | {f"{kind}F1": 100 * f1(rows.Y, chosen, 0.5, kind) for kind in ("micro", "macro")}


def _widen(matrix: sparse.csr_array, n_labels: int) -> sparse.csr_array:
    """Return the same entries with columns for all of `n_labels` labels."""
    return assemble(matrix.data, matrix.indices, matrix.indptr, (matrix.shape[0], n_labels))


def _number_classes(dataset: Dataset, path: Path, n_labels: int = 0) -> Dataset:
    """Return the rows with their classes in the columns that `predict` writes them in."""
    numbers = class_numbers(dataset.label_names or ())
    if numbers is None:
        wanted = "numbers, as in the predictions"
        raise DataError("classes that are not numbers", path=path, expected=wanted, fix="Evaluate the model itself.")
    test = None if dataset.test is None else _number_classes(dataset.test, path, n_labels)
    return replace(dataset, Y=by_number(dataset.Y, numbers, n_labels), label_names=None, test=test)


def _score_classes(estimator: FittedClassifier, rows: Dataset, ks: list[int]) -> dict[str, Any]:
    """Return the scores of a model of one class per row; a class that it has not seen is an error, left out of nlpd."""
    n_classes, y, baseline = estimator.spec_.n_labels, rows.Y.indices, estimator.predictor_.baseline()
    with Bar("predicting"):
        found = {"": estimator.predict_proba(rows.X)}
        if baseline is not None:
            found[f"{baseline.title}: "] = baseline.proba(estimator.rows(rows.X))
    is_known = y < n_classes
    scores: dict[str, Any] = {"rows": rows.n_rows, "unlabelled_rows": 0}
    with Bar("scoring"):
        for prefix, P in found.items():
            everything = np.pad(P, ((0, 0), (0, rows.n_labels - n_classes)))
            for k in [] if prefix else [k for k in ks if k <= n_classes] or [1]:
                scores[f"P@{k}"] = 100 * precision_at_k(rows.Y, everything, k)
                scores[f"ECE@{k}"] = 100 * ece_at_k(rows.Y, everything, k)
            scores[f"{prefix}error rate %"] = 100 * error_rate(y, everything)
            scores[f"{prefix}nlpd"] = nlpd(y[is_known], P[is_known])
    if n_unseen := int(np.count_nonzero(~is_known)):
        unseen = sorted({rows.label_names[column] for column in y[~is_known]}) if rows.label_names else []
        say(f"{n_unseen} rows belong to classes that the model has not seen ({', '.join(unseen[:5])})")
        scores["rows of unseen classes"] = n_unseen
    return scores


def _given_known(estimator: Any, dataset: Dataset, path: Path, k: int, rank_by: str) -> sparse.csr_array:
    """Return the k best labels of each row, by probability or utility, given those that a file says are known."""
    what = "1 for a label that holds, -1 for one that does not"
    known = read_entries(path, dataset.n_rows, estimator.spec_.n_labels, (-1, 1), what)
    if not hasattr(estimator, "condition") or estimator.label_kind_ == "classes":
        raise LabelfieldError(
            f"a model of the method {estimator.method!r} cannot use known labels; train a model with --method mlgpf"
        )
    found: sparse.csr_array = estimator.condition(
        dataset.X, known, k, rank_by="utility" if rank_by == "utility" else "probability"
    )
    return found


def _parse_rank_by(text: str) -> float:
    """Return the power of the inverse propensity that labels are ranked by."""
    try:
        return rank_power(text if text.isalpha() else float(text))
    except ValueError:
        expected = "probability, utility, propensity, or a power such as 0.5"
        raise typer.BadParameter(f"--rank-by {text}; expected {expected}") from None


def _parse_ks(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() and 0 < int(part) < 2**31 for part in parts):
        raise typer.BadParameter(f"-k {text}; expected positive integers such as 1,3,5")
    return sorted({int(part) for part in parts})


def _print_scores(title: str, result: dict[str, Any], ks: list[int], unlabelled: str) -> None:
    """Print scores at k as a table, the others below it, and the number of rows that they are over."""
    names = list(dict.fromkeys(name.partition("@")[0] for name in result if "@" in name))
    table = [[name, *(shown(result[f"{name}@{k}"]) for k in ks)] for name in names]
    print_table(title, ["%", *(f"@{k}" for k in ks)], table)
    others = {name: value for name, value in result.items() if "@" not in name and not name.endswith("rows")}
    if others:
        print_facts("", others, "score")
    n_empty = shown(result["unlabelled_rows"])
    treated = "counted as misses" if unlabelled == "miss" else "left out"
    print(f"over {shown(result['rows'])} rows; {n_empty} rows without labels {treated}")


def class_numbers(names: Iterable[str]) -> NDArray[np.int32] | None:
    """Return classes as the numbers that they are; None where some are not numbers, or are too large for columns."""
    names = list(names)
    if not all(name.isdecimal() and name == str(int(name)) and int(name) < MAX_COLUMNS for name in names):
        return None
    return np.array([int(name) for name in names], np.int32)


def by_number(matrix: sparse.csr_array, number: NDArray[np.int32], n_columns: int = 0) -> sparse.csr_array:
    """Return the same entries with the columns moved to these numbers, and at least `n_columns` columns."""
    renumbered = sparse.csr_array(
        (matrix.data, number[matrix.indices], matrix.indptr),
        shape=(matrix.shape[0], max(n_columns, int(number.max(initial=-1)) + 1)),
    )
    renumbered.sort_indices()
    return renumbered


@reads_files(documents=True)
def report(
    reading: Reading,
    model: Annotated[Path, typer.Argument(help="The folder of a model.")],
    test: Annotated[Path, typer.Argument(help="Rows with true labels; for two splits, the test rows.")],
    out: Annotated[Path, typer.Option("--out", help="The page, such as report.html.")],
    train: Annotated[
        Path | None, typer.Option("--train", help="Training data to count labels in. Default: the model's counts.")
    ] = None,
    title: Annotated[str, typer.Option("--title", help="The heading of the page.")] = "",
    rank_by: RankBy = "probability",
    device: Device = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an older page.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a self-contained page about a model: what it is, its scores, its calibration, and what it has learned.

    Example: labelfield report model data/bibtex --out report.html
    """
    power = _parse_rank_by(rank_by)
    require_file_name(out, overwrite)
    started = time.perf_counter()
    estimator = load_model(model, device, reading.trust)
    if power and estimator.label_kind_ == "classes":
        raise typer.BadParameter(f"--rank-by {rank_by} is for several labels per row")
    texts, ids = None, None
    if estimator.text_ is None:
        rows = reading.for_model(estimator, test, labelled=True)
    else:
        documents = read_for(estimator.text_, reading, test)
        rows = encoded(estimator.label_names(), estimator.text_, documents, test)
        texts, ids = documents.texts, documents.ids
    require_rows(rows, test)
    from labelfield.report import Counts, make_page, save_page

    counts = None
    if train is not None:
        training = reading.for_model(estimator, train, labelled=True, part="train")
        require_rows(training, train)
        counts = Counts(column_counts(training.Y), training.n_rows)
    try:
        with Bar("predicting") as bar:
            page = make_page(
                estimator,
                rows.X,
                rows.Y,
                title=title or f"{model.resolve().name} on {_name(test)}",
                counts=counts,
                label_names=rows.label_names if rows.n_labels > estimator.spec_.n_labels else None,
                feature_names=rows.feature_names,
                rank_by=power,
                texts=texts,
                ids=ids,
                progress=bar,
            )
    except DataError as error:
        raise error.at(test) from None
    save_page(page, out)
    facts = {"path": str(out), "rows": rows.n_rows, "bytes": (size := out.stat().st_size)}
    report_written(facts, started, as_json, f": {size / 1000:,.0f} kB", "; open it in a browser")


def _name(path: Path) -> str:
    """Return a short name for rows: a file called test says less than the folder that it is in."""
    path = path.resolve()
    stem = path.name.split(".")[0] or path.name
    return f"{path.parent.name}/{stem}" if stem in ("test", "valid", "train", "data") else stem
