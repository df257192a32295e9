"""Rows beyond memory, what the simulator says beside what was measured, and a plan that is written from it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import Record
from benchmarks.simulator.fitting import Point, fitted, recorded_points
from benchmarks.simulator.step import Machine, Network, Prediction, Sizes
from benchmarks.tables.text import machine_shown, markdown_table

# The plan: text of 50 words per row, five labels per row; P and M as for the largest sets of the papers.
PLAN = Sizes(100_000_000, 2_000_000, 10_000_000, 50, 5, 200, 400, 8_192, n_negatives=8_000, n_private=64)
N_GPUS, GPU_MEMORY = 64, 141e9
NETWORKS = (
    Network("400 Gb/s per GPU", 50e9, 5e-6),
    Network("100 Gb/s per GPU", 12.5e9, 10e-6),
    Network("10 Gb/s per GPU", 1.25e9, 30e-6),
)


def beyond(records: dict[str, Record]) -> str:
    """Show what ten million rows on disk took."""
    if "beyond" not in records:
        return ""
    record = records["beyond"]
    found, convert, train = (record["results"], *(record["results"][name] for name in ("convert", "train")))
    rows = [
        ["text, svmlight", f"{found['text_mb']:,.0f} MB", "", ""],
        ["converted to a folder", f"{found['folder_mb']:,.0f} MB", *_memory(convert)],
        ["trained from the folder", "", *_memory(train)],
    ]
    note = (
        f"{found['rows']:,} rows of {found['non_zeros_per_row']} values, {found['labels']:,} labels; a factor model "
        f"with a time budget of {found['train_budget_seconds']} s ({train['seconds']:.0f} s with reading, checking, "
        f"calibration and saving), P@1 {found['scores']['P@1']:.1f}. Both commands ran under a limit of "
        f"{found['limit_mb']:,} MB on what they may allocate; pages of files, which the system may drop at any time, "
        f"are not counted in it. On {machine_shown(record['machine'])}; `python -m benchmarks bench beyond`."
    )
    header = ["ten million rows", "on disk", "largest memory, allocated", "… with pages of files"]
    return markdown_table(header, rows) + f"\n{note}\n"


def _memory(cost: dict[str, float]) -> list[str]:
    return [f"{cost['peak_anonymous_mb']:,.0f} MB", f"{cost['peak_rss_mb']:,.0f} MB"]


def simulated(records: dict[str, Record]) -> str:
    """Show predicted steps beside measured ones."""
    if "simulate" not in records:
        return ""
    found = records["simulate"]["results"]
    rows = [
        [
            "one core, other sizes than it was taught",
            f"{len(found['checked'])}",
            f"{100 * found['median_error']:.0f} %",
            f"{100 * found['largest_error']:.0f} %",
        ]
    ]
    for name, what in (("scale", "two cores"), ("gpu-scale", "H200")):
        errors = _left_out(list(recorded_points(records[name]).values()))
        rows.append(
            [
                f"{what}, each step predicted from the others ({name})",
                f"{len(errors)}",
                f"{100 * np.median(errors):.0f} %",
                f"{100 * errors.max():.0f} %",
            ]
        )
    traffic = found["traffic"]
    note = (
        f"A process of two adds up {traffic['counted_bytes'] / 1e6:.1f} MB with the other in a step of the study "
        f"scale; the simulator says {traffic['predicted_bytes'] / 1e6:.1f} MB. On "
        f"{machine_shown(records['simulate']['machine'])}; `python -m benchmarks bench simulate`."
    )
    header = ["seconds of a step", "steps", "median error", "largest error"]
    return markdown_table(header, rows) + f"\n{note}\n"


def _left_out(points: list[Point]) -> NDArray[np.float64]:
    """Return the relative errors of steps that are predicted from all others."""
    errors = []
    for number, point in enumerate(points):
        machine = fitted("", points[:number] + points[number + 1 :])
        errors.append(abs(Prediction.of(point.sizes, machine).step_seconds / point.seconds - 1))
    return np.array(errors)


def _gpu(records: dict[str, Record]) -> Machine:
    return fitted("H200", list(recorded_points(records["gpu-scale"]).values()), GPU_MEMORY)


def plan(records: dict[str, Record]) -> str:
    """Write the plan for 100 million rows and 10 million labels on 64 GPUs."""
    gpu, rows = _gpu(records), []
    for network in NETWORKS:
        for n_ranks in (8, N_GPUS):
            found = Prediction.of(PLAN, gpu, n_ranks, network)
            rows.append(
                [
                    f"{n_ranks} GPUs, {network.name}",
                    f"{1e3 * found.step_seconds:.0f} ms",
                    f"{1e3 * found.network_seconds:.0f} ms",
                    f"{found.epoch_seconds / 60:.0f} min",
                    f"{found.bytes_per_rank / 1e9:.1f} GB",
                    f"{found.bytes_sent / 1e6:.0f} MB",
                ]
            )
    alone, best = Prediction.of(PLAN, gpu), Prediction.of(PLAN, gpu, N_GPUS, NETWORKS[0])
    n_bytes = PLAN.n_rows * (8 * PLAN.n_nonzeros + 4 * PLAN.n_positives + 16)
    read = n_bytes / best.epoch_seconds / 1e6
    notes = [
        f"{PLAN.n_rows:,} rows of {PLAN.n_nonzeros} values and {PLAN.n_positives} labels, {PLAN.n_features:,} "
        f"features, {PLAN.n_labels:,} labels; P = {PLAN.n_latent}, M = {PLAN.n_inducing}, batches of "
        f"{PLAN.batch_size:,} rows, "
        f"{PLAN.n_negatives:,} negatives ({PLAN.labels_per_step:,.0f} labels per step), {PLAN.n_private} weights of "
        "its own per label.",
        f"Memory is not what asks for {N_GPUS} GPUs: parameters and what Adam keeps of them are "
        f"{alone.bytes_per_rank / 1e9:,.0f} GB on one, of {GPU_MEMORY / 1e9:.0f}. Time is: an epoch takes "
        f"{alone.epoch_seconds / 60:.0f} min there, {alone.epoch_seconds / best.epoch_seconds:.0f} times as long as on "
        f"{N_GPUS} with the fastest network. The slower the network, the less do more GPUs help: what is sent does "
        "not become less.",
        f"The rows are {n_bytes / 1e9:,.0f} GB on disk. Every process reads all of them, {read:,.0f} MB per second "
        f"with {N_GPUS} GPUs and the fastest network: each machine needs its own copy, on a disk that reads so fast "
        "for each of its processes, or memory that holds it once for all.",
        f"The rates are those of an H200 by the study gpu-scale ({1e3 * gpu.overhead:.0f} ms to start a step), which "
        "are of steps a tenth as large; the networks are assumed. Nothing of this was run on several GPUs.",
    ]
    header = ["", "a step", "of it network", "an epoch", "memory of a GPU", "sent per step"]
    return markdown_table(header, rows) + "\n" + "\n\n".join(notes) + "\n"
