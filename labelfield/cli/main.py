"""The `labelfield` command. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 bad data, 130 interrupted."""

import signal
import sys
import time
import warnings
from collections.abc import Callable
from functools import cache, wraps
from threading import current_thread, main_thread
from typing import Annotated, Any

import typer

from labelfield import __version__
from labelfield.cli.active import collect, query
from labelfield.cli.checking import check
from labelfield.cli.data import convert, info, split, synth
from labelfield.cli.documents import tag
from labelfield.cli.explain import explain, topics
from labelfield.cli.output import say
from labelfield.cli.prediction import evaluate, predict, report
from labelfield.cli.serve import serve
from labelfield.cli.share import export
from labelfield.cli.training import config, learn, show, train
from labelfield.cluster import rank_of_launcher
from labelfield.errors import LabelfieldError
from labelfield.memory import OutOfMemoryError, is_about_memory

# Seconds that the first of several processes has to say what is wrong: launchers end all when one has ended.
_TIME_TO_SPEAK = 1.0


def interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that reports SIGINT and SIGTERM and then exits with 130 or 143.

    Left alone, SIGTERM would end the process before it has removed its temporary folders.
    """

    @wraps(command)
    def wrapped(*arguments: Any, **options: Any) -> None:
        received = [signal.SIGINT]

        def terminate(*_: Any) -> None:
            received.append(signal.SIGTERM)
            raise KeyboardInterrupt

        can_handle = current_thread() is main_thread()  # other threads cannot
        before = signal.signal(signal.SIGTERM, terminate) if can_handle else None
        try:
            command(*arguments, **options)
        except KeyboardInterrupt:
            say("interrupted")
            raise typer.Exit(128 + received[-1]) from None
        finally:
            if can_handle:
                signal.signal(signal.SIGTERM, before)

    return wrapped


app = typer.Typer(name="labelfield", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

for command in (
    info,
    convert,
    split,
    synth,
    train,
    tag,
    check,
    learn,
    query,
    collect,
    serve,
    export,
    predict,
    evaluate,
    explain,
    report,
    show,
    topics,
    config,
):
    app.command()(interruptible(command))


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"labelfield {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train, use and explain models with very many labels; look at data, and score predictions."""


@cache
def _commands() -> Callable[[], object]:
    """Return all commands with their options; made once, because that takes longer than most commands run."""
    return typer.main.get_command(app)


def _whose() -> str:
    """Return what tells the errors of several processes apart: nothing for the first."""
    rank = rank_of_launcher()
    return f"rank {rank}: " if rank else ""


def main() -> None:
    """Run a command of `labelfield`."""

    def run() -> object:
        return _commands()()  # within: too little memory to make the commands is told as well

    run_command(run)


def run_command(command: Callable[[], object]) -> None:
    """Run a command; every expected failure is one line on stderr."""
    warnings.showwarning = lambda message, *_: say(f"warning: {message}")
    try:
        command()
    except LabelfieldError as error:
        if getattr(error, "is_known_to_all", False) and rank_of_launcher():
            time.sleep(_TIME_TO_SPEAK)
        else:
            say(f"{_whose()}error: {error}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:  # before the command itself has begun
        say("interrupted")
        sys.exit(128 + signal.SIGINT)
    except (MemoryError, RuntimeError, SystemError, ImportError) as error:
        if not is_about_memory(error):
            raise
        lines = str(error).splitlines()
        say(f"{_whose()}error: {lines[0] if isinstance(error, OutOfMemoryError) else 'out of memory'}")
        sys.exit(1)
    except FileExistsError as error:
        say(f"error: {error}")
        sys.exit(2)
    except OSError as error:
        say(f"{_whose()}error: {error.filename or 'file'}: {error.strerror or error}")
        sys.exit(3)
