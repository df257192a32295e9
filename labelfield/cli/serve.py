"""serve: answer requests over HTTP."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from labelfield.cli.options import Device

# Scheme, name and port, as browsers send them.
_ORIGIN = re.compile(r"https?://[^/\s?#@]+")
_TOKEN = "LABELFIELD_TOKEN"  # noqa: S105  # the name of a variable


def serve(
    models: Annotated[list[str], typer.Argument(help="Folders of models; NAME=FOLDER gives one another name.")],
    host: Annotated[str, typer.Option("--host", help="0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.")] = 8000,
    workers: Annotated[int, typer.Option("--workers", min=1, max=64, help="Processes; each holds all models.")] = 1,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="The most documents computed at once.")] = 64,
    batch_wait_ms: Annotated[
        float, typer.Option("--batch-wait-ms", min=0, max=1000, help="How long a document waits for others.")
    ] = 1.0,
    queue: Annotated[int, typer.Option("--queue", min=1, help="Documents that may wait; more get a 503.")] = 1024,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.01, help="Seconds until an unanswered request gets a 504.")
    ] = 30.0,
    max_body: Annotated[
        str, typer.Option("--max-body", help="Largest request, such as 20MB; larger get a 413.")
    ] = "20MB",
    connections: Annotated[int, typer.Option("--connections", min=1, help="Connections per worker.")] = 2000,
    token: Annotated[
        str | None, typer.Option("--token", help="A token; others can see it in lists of processes.")
    ] = None,
    token_env: Annotated[
        str | None, typer.Option("--token-env", help=f"The variable that has the token. Default: {_TOKEN}, if set.")
    ] = None,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option("--cors-origin", help="An origin whose pages may send requests; can be repeated."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Load a model again when its folder changes.")] = False,
    corrections: Annotated[
        Path | None,
        typer.Option("--corrections", help="The SQLite file of corrections. Default: beside the first model."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="The training documents, to learn from corrections with them.")
    ] = None,
    log_text: Annotated[bool, typer.Option("--log-text", help="Write documents to the log.")] = False,
    device: Device = "auto",
) -> None:
    """Serve models over HTTP: a page at /, POST /tag, and the protocols of Annif, KServe, Hugging Face, Label Studio.

    SIGHUP reloads the models; SIGTERM answers requests in progress and exits. /openapi.json lists all routes.

    Example: labelfield serve model --port 8000
    """
    from labelfield.serve.settings import Settings, parse_size
    from labelfield.serve.store import parse_names

    try:
        from labelfield.serve.server import serve as run
    except ModuleNotFoundError as error:
        raise typer.BadParameter(f"serving needs {error.name}: pip install 'labelfield[serve]'") from None
    folders = parse_names(models)
    if data is not None and not data.exists():
        raise typer.BadParameter(f"--data {data}: there is no such file or folder")
    for origin in cors_origin or ():
        if not _ORIGIN.fullmatch(origin):
            raise typer.BadParameter(f"--cors-origin {origin}: expected an origin, such as https://name.example")
    if corrections is None:
        first = next(iter(folders.values())).resolve()
        corrections = first.parent / f"{first.name}.corrections.sqlite"
    settings = Settings(
        models=folders,
        host=host,
        port=port,
        workers=workers,
        device=device,
        batch_size=batch_size,
        batch_wait_ms=batch_wait_ms,
        queue=queue,
        timeout=timeout,
        max_body=parse_size(max_body),
        connections=connections,
        token=_token(token, token_env),
        cors_origins=tuple(cors_origin or ()),
        watch=watch,
        log_text=log_text,
        corrections=corrections,
        data=data,
    )
    run(settings)


def _token(given: str | None, variable: str | None) -> str | None:
    """Return the token: as it was given, or from a variable, which must be set if it was named."""
    found = given if given is not None else os.environ.get(variable or _TOKEN)
    if found is None and variable is not None:
        raise typer.BadParameter(f"--token-env {variable}: there is no such variable")
    if found is not None and not found.strip():
        raise typer.BadParameter("the token is empty")
    return found
