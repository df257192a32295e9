"""export: a model for MLflow or the Hugging Face hub."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from labelfield.cli.options import AsJson, Overwrite, refuse_existing
from labelfield.cli.output import report_written, say
from labelfield.errors import DataError


def export(
    model: Annotated[Path, typer.Argument(help="The folder of a model.")],
    out: Annotated[Path | None, typer.Option("--out", help="The folder to write.")] = None,
    format: Annotated[Literal["mlflow", "hub"], typer.Option("--format", help="The tool to write for.")] = "hub",
    push: Annotated[
        str | None, typer.Option("--push", help="Push to this repository of the Hugging Face hub, such as me/tags.")
    ] = None,
    scores: Annotated[
        Path | None, typer.Option("--scores", help="What labelfield evaluate --json printed, for the card.")
    ] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", help="What these scores were measured on.")] = None,
    license: Annotated[str | None, typer.Option("--license", help="The licence of the model, for the card.")] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Export a model for MLflow, or with a model card for the Hugging Face hub; with --push, also push it.

    Training documents that the model keeps are not exported. A pushed repository is private.

    Example: labelfield export model --format mlflow --out model-mlflow
    """
    from labelfield.share import hub_folder, push_to_hub, save_mlflow

    if (out is None) == (push is None):
        raise typer.BadParameter("pass either --out FOLDER or --push OWNER/NAME")
    started = time.perf_counter()
    card: dict[str, Any] = {"license": license, "dataset": dataset, "scores": _scores(scores)}
    if out is None:
        assert push is not None  # one of the two is given
        say(f"pushed to {push_to_hub(model, push, **card)}")
        return
    refuse_existing(out, overwrite)
    path = save_mlflow(model, out) if format == "mlflow" else hub_folder(model, out, **card)
    report_written({"path": str(path), "format": format}, started, as_json, f" for {format}")


def _scores(path: Path | None) -> dict[str, float] | None:
    if path is None:
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}
    except (ValueError, AttributeError):
        raise DataError("not what labelfield evaluate --json prints", path=path) from None
