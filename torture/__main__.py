"""`python -m torture KIND`: trials of one kind or of all, from where the last run ended."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from math import inf
from typing import NamedTuple

from torture.record import add_record, next_seed, totals
from torture.running import Trial, run_trials

# Limits of memory hold for what is used, not for what an allocator sets aside.
_SETTINGS = {"MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"}


def main() -> None:
    """Run trials, print what failed, and add the counts to the record."""
    parser = argparse.ArgumentParser(prog="python -m torture", description=__doc__)
    parser.add_argument("kind", choices=[*KINDS, "all", "totals"])
    parser.add_argument("--only", help="cases whose names contain this")
    parser.add_argument("--count", type=int, default=None, help="trials of each case")
    parser.add_argument("--seconds", type=float, default=None, help="time for all cases together")
    parser.add_argument("--seed", type=int, default=None, help="run this one trial again, and record nothing")
    parser.add_argument("--no-record", action="store_true", help="leave the record as it is")
    given = parser.parse_args()
    if given.kind == "totals":
        print_totals()
        return
    n_failed = 0
    kinds = list(KINDS) if given.kind == "all" else [given.kind]
    cases = [(kind, case) for kind in kinds for case in KINDS[kind].names() if (given.only or "") in case]
    ends = None if given.seconds is None else time.monotonic() + given.seconds
    for place, (kind, case) in enumerate(cases):
        share = None if ends is None else (ends - time.monotonic()) / (len(cases) - place)
        n_failed += run_case(kind, case, given.count, share, given.seed, not given.no_record)
    sys.exit(n_failed > 0)


def run_case(
    kind: str, case: str, count: int | None, seconds: float | None, seed: int | None, is_recorded: bool
) -> int:
    """Run trials of one case; return how many failed."""
    of = KINDS[kind]
    first = next_seed(kind, case) if seed is None else seed
    started = time.monotonic()
    goal = 1 if seed is not None else count or (10**9 if seconds is not None else of.n_trials)
    until = inf if seconds is None else started + seconds
    failures, tried = run_trials(of.make(case), first, goal, of.extra_bytes, of.seconds, until)
    took = time.monotonic() - started
    if seed is None and is_recorded and tried:
        add_record(kind, case, first, tried, failures, took)
    print(
        f"{kind}: {case}: {tried} tried, {len(failures)} failed, {tried / max(took, 1e-9):.0f} per second", flush=True
    )
    seen: dict[str, int] = {}
    for failure in failures:
        alike = failure.what[:60]
        seen[alike] = seen.get(alike, 0) + 1
        if seen[alike] == 1:
            print(f"  seed {failure.seed}: {failure.what}", flush=True)
    return len(failures)


def print_totals() -> None:
    """Print how many trials there were of each case."""
    for kind, case, tried, failed in totals():
        print(f"{kind:<10} {case:<28} {tried:>10,} tried {failed:>6,} failed")


class Kind(NamedTuple):
    """Trials of one kind: the module with their `make_trial`, where its cases are, and what one trial may take."""

    module: str
    cases: str
    extra_bytes: int | None = None
    # How many to run if neither a number nor a time is asked for.
    n_trials: int = 10
    seconds: float = 300

    def names(self) -> list[str]:
        """Return the names of the cases."""
        module, _, name = self.cases.partition(":")
        return list(getattr(import_module(module), name))

    def make(self, case: str) -> Callable[[], Trial]:
        """Return what makes the trials of a case."""
        return partial(import_module(self.module).make_trial, case)


KINDS = {
    "files": Kind("torture.files", "torture.readers:READERS", 256 << 20, 2000, 10),
    "numbers": Kind("torture.numbers", "torture.numbers:CLASSIFIERS", None, 50, 60),
    "kills": Kind("torture.kills", "torture.jobs:JOBS"),
    "disks": Kind("torture.disks", "torture.jobs:JOBS"),
    "memory": Kind("torture.memory", "torture.memory:CASES"),
    "signals": Kind("torture.signals", "torture.signals:CASES"),
    "crowds": Kind("torture.crowds", "torture.crowds:CROWDS"),
}


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in _SETTINGS.items()):
        os.execve(sys.executable, [sys.executable, "-m", "torture", *sys.argv[1:]], os.environ | _SETTINGS)
    main()
