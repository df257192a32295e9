"""`python -m torture KIND`: trials of one kind or of all, from where the last run ended."""

from __future__ import annotations

import argparse
import os
import sys
import time
from functools import partial

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
    given = parser.parse_args()
    if given.kind == "totals":
        print_totals()
        return
    n_failed = 0
    kinds = list(KINDS) if given.kind == "all" else [given.kind]
    cases = [(kind, case) for kind in kinds for case in cases_of(kind) if (given.only or "") in case]
    ends = None if given.seconds is None else time.monotonic() + given.seconds
    for place, (kind, case) in enumerate(cases):
        share = None if ends is None else (ends - time.monotonic()) / (len(cases) - place)
        n_failed += run_case(kind, case, given.count, share, given.seed)
    sys.exit(n_failed > 0)


def run_case(kind: str, case: str, count: int | None, seconds: float | None, seed: int | None) -> int:
    """Run trials of one case; return how many failed."""
    from torture.record import add_record, next_seed
    from torture.running import run_trials

    make, extra_bytes, step = trials_of(kind, case)
    first = next_seed(kind, case) if seed is None else seed
    started, failures, tried = time.monotonic(), [], 0
    goal = 1 if seed is not None else count or (10**9 if seconds is not None else step)
    while tried < goal and (seconds is None or time.monotonic() - started < seconds):
        some = min(step, goal - tried)
        failures += run_trials(make, first + tried, some, extra_bytes)
        tried += some
    took = time.monotonic() - started
    if seed is None:
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
    from torture.record import totals

    for kind, case, tried, failed in totals():
        print(f"{kind:<10} {case:<28} {tried:>10,} tried {failed:>6,} failed")


def cases_of(kind: str) -> list[str]:
    """Return the names of the cases of a kind."""
    return list(KINDS[kind]()[0])


def trials_of(kind: str, case: str) -> tuple[partial[object], int | None, int]:
    """Return what makes the trials of a case, the memory they may take, and how many to run between two looks."""
    _, make, extra_bytes, step = KINDS[kind]()
    return partial(make, case), extra_bytes, step


def _files() -> tuple[object, object, int | None, int]:
    from torture.files import CONSTANT, make_trial
    from torture.readers import READERS

    return READERS, make_trial, CONSTANT, 2000


def _numbers() -> tuple[object, object, int | None, int]:
    from torture.numbers import CLASSIFIERS, make_trial

    return CLASSIFIERS, make_trial, None, 200


KINDS = {"files": _files, "numbers": _numbers}


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in _SETTINGS.items()):
        os.execve(sys.executable, [sys.executable, "-m", "torture", *sys.argv[1:]], os.environ | _SETTINGS)
    main()
