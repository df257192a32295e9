"""The tables of studies, one function each, from their records by name."""

from __future__ import annotations

from typing import Any

from benchmarks.record import Record, command_of
from benchmarks.tables.decisions import distrust, promises
from benchmarks.tables.documents import encoding, pretrained, tags
from benchmarks.tables.scale import beyond, simulated
from benchmarks.tables.serving import labelling, serving
from benchmarks.tables.text import machine_shown, markdown_table, triple

__all__ = ["SECTIONS"]


def summary(records: dict[str, Record]) -> str:
    """Show reading, scoring, drawing, and a step beside GPyTorch's and GPflow's."""
    reading, scores, large = (records[name]["results"] for name in ("reading", "scores", "large"))
    rows = [
        ["read EUR-Lex-4K text (gzip), time relative to scikit-learn's reader", f"{reading['time_ratio']:.2f}×"],
        ["… peak memory relative to the resulting arrays", f"{reading['memory_ratio']:.1f}×"],
        [f"open a folder of {large['large']['rows']:,} rows", f"{1000 * large['large']['open_seconds']:.0f} ms"],
        ["15 ranking scores of 3,809 top-5 lists, time relative to napkinXC", f"{scores['time_ratio']:.2f}×"],
        ["15 ranking scores of 1,000,000 top-5 lists", f"{scores['million_seconds']:.1f} s"],
        ["… peak memory", f"{scores['million_peak_mb']:.0f} MB"],
        ["draw and write 1,000,000 × 200,000 × 13,000", f"{large['draw_seconds'] / 60:.1f} min"],
        ["… peak memory", f"{large['draw_peak_gb']:.1f} GB"],
    ]
    for shape, step in records["steps"]["results"].items():
        rows += _steps(shape, step)
    where = machine_shown(records["reading"]["machine"])
    names = "reading`, and the same for `scores`, `large` and `steps"
    return markdown_table(["what", "measured"], rows) + f"\nOn {where}; `python -m benchmarks bench {names}`.\n"


# The peers in the record of steps, and what each is.
PEERS = {
    "gpytorch": "GPyTorch, Z shared by all processes, a kernel for each",
    "gpytorch_documented": "GPyTorch as in its documentation, with a Z and a kernel for each process",
    "gpytorch_one_kernel": "GPyTorch made to share Z and one kernel by broadcasting",
    "gpflow": "GPflow, compiled",
}


def _steps(shape: str, step: dict[str, Any]) -> list[list[str]]:
    """Show times and memory of each peer over ours, for one step of one shape."""
    rows = []
    for peer, name in PEERS.items():
        if f"{peer}_seconds" not in step:
            if why := step.get(f"{peer}_skipped"):
                rows.append([f"a step of the papers' model, {shape}: {name}, over ours", f"skipped: {why}"])
            continue
        seconds, memory = step[f"{peer}_seconds"], step[f"{peer}_peak_mb"]
        rows += [
            [f"a step of the papers' model, {shape}: {name}, over ours", f"{seconds / step['full_q_seconds']:.0f}×"],
            ["… its memory over ours", f"{memory / step['full_q_peak_mb']:.1f}×"],
            ["… its time over ours with our default posterior", f"{seconds / step['default_q_seconds']:.0f}×"],
        ]
    return rows


def gpu(records: dict[str, Record]) -> str:
    """Show scores and seconds on a GPU, and a step beside what the machine could do."""
    rows, results = [], dict(records["gpu"]["results"])
    step = results.pop("a step of EUR-Lex-4K, no options")
    for name, found in results.items():
        seconds = [f"{found['fit_seconds']:.1f} s", f"{found['first_fit_seconds']:.1f} s"]
        rows.append(
            [f"MLGPF, {name}", triple(found, "P"), triple(found, "PSP"), triple(found, "ECE", (1, 5)), *seconds]
        )
    mixes = records["gpu-mixes"]["results"]
    for quality, found in mixes.items():
        seconds = [f"{found['fit_seconds']:.1f} s", f"{found['first_fit_seconds']:.1f} s"]
        name = f"AutoClassifier, EUR-Lex-4K, {quality} (± {found['P@1 deviation']:.1f} P@1)"
        rows.append([name, triple(found, "P"), triple(found, "PSP"), triple(found, "ECE", (1, 5)), *seconds])
        ranked = {key.removesuffix(" by propensity"): value for key, value in found.items() if "by prop" in key}
        rows.append(["… ranked by propensity", triple(ranked, "P"), triple(ranked, "PSP"), "", "", ""])
    header = ["data", "P@1 / 3 / 5", "PSP@1 / 3 / 5", "ECE@1 / 5", "train", "first in a process"]
    floor = max(step["arithmetic_floor_ms"], step["memory_floor_ms"])
    note = (
        f"On one {records['gpu']['machine']['accelerator']}, from rows in memory, start-up included. A step on "
        f"EUR-Lex-4K takes {step['captured_ms']:.1f} ms ({step['eager_ms']:.0f} ms if its operations are launched one "
        f"by one); its arithmetic alone would take {floor:.1f} ms. The best single model was chosen among about twenty "
        "by these same test scores, which flatters it; the others were not chosen that way. AutoClassifier is the mean "
        f"of {mixes['good']['seeds']} seeds (`{command_of(records['gpu-mixes'])}`); `fast` is linear machines alone, "
        f"and {sum('mlgpf' in model for model in mixes['good']['models'])} of the models of `good` have a factor model."
    )
    return markdown_table(header, rows) + f"\n{note}\n"


def classes(records: dict[str, Record]) -> str:
    """Show one class per row: MNIST beside the thesis, Covertype beside scikit-learn, and the cost of many classes."""
    rows = []
    for name, found in records["gpu-mnist"]["results"]["mnist"].items():
        error, nlpd = found["published"] or (None, None)
        published = ["" if value is None else f"{value:g}" for value in (error, nlpd)]
        ours = [f"{found['error']:.2f}", f"{found['nlpd']:.3f}", f"{found['ECE@1']:.1f}", f"{found['seconds']:.0f} s"]
        rows.append([name, published[0], ours[0], published[1], *ours[1:]])
    header = ["MNIST, upright", "thesis % error", "ours", "thesis nlpd", "ours", "ECE@1", "train"]
    results = records["multiclass"]["results"]
    steps, peer = results["step_seconds_uniform"], results["gpytorch"]
    covertype = records["covertype"]["results"]
    rest = []
    for name, one in covertype.items():
        measured = f"{one['accuracy']:.1f}, {one['nlpd']:.3f}, {one['seconds']:.0f} s"
        rest.append([f"Covertype, {name}: % accuracy, nlpd, train", measured])
    rest += [[f"five rings, {name}: % error", f"{one['error']:.1f}"] for name, one in results["rings"].items()]
    fewest, *others = sorted(steps, key=int)
    for n_classes in others:
        what = f"a step with {int(n_classes):,} classes over one with {int(fewest):,}"
        rest.append([what, f"{steps[n_classes] / steps[fewest]:.2f}×"])
    against = f"a step with {peer['classes']:,} classes, GPyTorch's softmax over ours"
    rest.append([against, f"{peer['time_ratio']:.0f}×"])
    where = records["gpu-mnist"]["machine"]["accelerator"]
    note = (
        f"On one {where}, from pixels in memory; M = 100 unless the row says otherwise; the options of the best model "
        "were chosen on training rows. Below, on 2 cores:"
    )
    return markdown_table(header, rows) + f"\n{note}\n\n" + markdown_table(["what", "measured"], rest)


# The data sets in the record of tables, and what each is.
TABLES = {
    "adult": "Adult",
    "connect4": "Connect-4",
    "covertype": "Covertype",
    "diabetes130": "Diabetes 130, three classes",
    "diabetes130-30days": "Diabetes 130, readmitted within 30 days",
    "mnist, range": "MNIST",
    "mnist, deskew": "MNIST, upright",
}


def deep(records: dict[str, Record]) -> str:
    """Show deep kernels beside their network: before the processes were added, and trained as long."""
    rows = []
    found = records["gpu-deep-tables"]["results"]
    for key, name in TABLES.items():
        one = found[key]
        parts = [one["svdkl"].get("network before") or one["network before"], one["network as long"], one["svdkl"]]
        published = one.get("published") or ["", ""]
        rows.append([name, *(f"{value}" for value in published), *(_accuracy(part) for part in parts)])
    header = ["accuracy, nlpd", "paper: network", "paper: SV-DKL", "network before", "network as long", "SV-DKL"]
    results = records["gpu-deep"]["results"]
    labels = []
    for name, key in (("network before",) * 2, ("network as long",) * 2, ("SV-DKL", "svdkl")):
        one = results["eurlex-4k"][key]
        seconds = f"{one['seconds']:.0f} s" if "seconds" in one else ""
        errors = [_spread(one, "ECE@1"), _spread(one, "ECE@5")]
        labels.append([name, _spread(one, "P@1"), triple(one, "P"), triple(one, "PSP"), *errors, seconds])
    what = [
        [f"a joint step over one of the network, m = 70, batch 50,000, {name}", f"{one['ratio']:.2f}×"]
        for name, one in results["overhead, m = 70, batch 50,000"].items()
    ]
    steps = records["deep-steps"]["results"]
    what += [
        [f"2 cores, {steps['shape']}: steps per second over GPyTorch's", f"{steps['ours over gpytorch']:.1f}×"],
        [
            "… with a kernel for each process, where GPyTorch has one for all",
            f"{steps['ours, a kernel for each process, over gpytorch']:.1f}×",
        ],
        ["… the network alone over ours, one kernel for all", f"{steps['network alone over ours']:.1f}×"],
    ]
    for d in (1, 2, 3):
        power = records["deep-scaling"]["results"][f"power of m, d = {d}"]
        what.append([f"a step grows as m to the power, d = {d} (above m = 500, up to 10,000)", f"{power:.2f}"])
    note = (
        f"On one {records['gpu-deep']['machine']['accelerator']}; tables: mean of five folds ± sd, nothing calibrated, "
        "the network of the paper; MNIST: one run. SV-DKL trains its network alone (before), then everything jointly "
        "for as many epochs; `network as long` trains the network alone for both. Over that network the gain is small, "
        "and on Covertype there is none. The paper's target for Diabetes is not in the file; the joint learning rate "
        "there, and the epochs of MNIST, were changed after a first run on test rows (docs/DECISIONS.md). Below, "
        f"EUR-Lex-4K with several labels per row, mean of {results['eurlex-4k']['seeds']} seeds ± sd:"
    )
    return "\n".join(
        [
            markdown_table(header, rows),
            f"{note}\n",
            markdown_table(
                ["eurlex-4k, bag network", "P@1", "P@1 / 3 / 5", "PSP@1 / 3 / 5", "ECE@1", "ECE@5", "train"], labels
            ),
            markdown_table(["what", "measured"], what),
        ]
    )


def _spread(one: dict[str, Any], score: str) -> str:
    return f"{one[score]:.2f} ± {one['sd'][score]:.2f}"


def _accuracy(one: dict[str, Any]) -> str:
    if "accuracy sd" not in one:
        return f"{one['accuracy']:.4f}, {one['nlpd']:.4f}"
    spread = (f"{one[name]:.4f} ± {one[f'{name} sd']:.4f}" for name in ("accuracy", "nlpd"))
    return ", ".join(spread)


def topics(records: dict[str, Record]) -> str:
    """Show topics of labels: AUC, few labels observed, and the cost of a step."""
    results = records["topics"]["results"]
    rows = []
    for name in ("bibtex", "delicious", "eurlex-4k", "bibtex, 20% of labels observed"):
        one = results[name]
        aucs = " / ".join(f"{one[f'AUC {kind}']:.3f}" for kind in ("micro", "label", "row"))
        spent = f"{one['steps']} steps, {one['seconds of training']:.0f} s, {one['peak_mb of training']:.0f} MB"
        others = [triple(one, "P"), triple(one, "ECE", (1, 5)), spent]
        rows.append([f"topics, {name}", f"{one['published AUC']:.3f}", aucs, *others])
    gpu = records["gpu-topics"]["results"]["eurlex-4k"]
    cost = records["topics-cost"]["results"]
    padded = next(key for key in cost if key.startswith("a step with"))
    note = (
        f"{results['topics']} topics by EM with conjugate gradients until it converged, 2 cores, memory of the whole "
        f"process; EUR-Lex on one {records['gpu-topics']['machine']['accelerator']}: "
        f"{gpu['seconds of training']:.1f} s. "
        "On Delicious, seconds per step against positive labels, from 20 to 100 % of them, fit a line with r² "
        f"{cost['r squared of a line']:.3f}; {padded}: {cost[padded]:.2f}×. The numbers that a step reads and writes "
        f"fit one with r² {cost['numbers, r squared of a line']:.4f}; {padded}: {cost[f'numbers, {padded}']:.2f}×. "
        "Probabilities are calibrated on a tenth of the rows, which then join the training."
    )
    header = ["", "paper: AUC", "AUC micro / label / row", "P@1 / 3 / 5", "ECE@1 / 5", "train"]
    return "\n".join([markdown_table(header, rows), f"{note}\n"])


def large(records: dict[str, Record]) -> str:
    """Show the cost of a step as labels grow, and of an epoch on the largest data sets."""
    measured = records.get("step-scaling", records["scale"])["results"]
    rows = []
    for by, what in (("labels", "labels"), ("nonzeros", "entries per row"), ("rows", "rows")):
        if not (steps := measured.get(f"step_seconds_by_{by}")):
            continue
        fewest, *_, most = steps
        rows.append(
            [
                f"a step with {int(most):,} {what} over one with {int(fewest):,}",
                f"{steps[most] / steps[fewest]:.2f}×",
                "",
            ]
        )
    both = [records[study]["results"] for study in ("scale", "gpu-scale")]
    for name in sorted({name for results in both for name in results if name.endswith("twin")}):
        measured = [results.get(name) for results in both]
        n, d, k = next(found["shape"][:3] for found in measured if found is not None)
        rows.append([f"an epoch, {name}: {n:,} × {d:,} × {k:,}", *(_epoch(found) for found in measured)])
    return markdown_table(["what", "2 cores", records["gpu-scale"]["machine"]["accelerator"]], rows)


def _epoch(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    return f"{found['epoch_seconds']:.0f} s, {found['peak_mb_beyond_data'] / 1024:.1f} GB beyond the data"


def trust(records: dict[str, Record]) -> str:
    """Show what uncertainty finds on EUR-Lex, and how often intervals contain the truth."""
    results = records["trust"]["results"]
    ways = ("1 - max probability", "posterior variance of h")
    measures = {
        "% wrong first labels, most certain tenth of rows": "error, most certain tenth",
        "% wrong first labels, least certain tenth": "error, least certain tenth",
        "AUROC of a wrong first label": "AUROC of a wrong first label",
        "% flagged of rows with permuted features, at 5 % of test rows": "flagged, permuted features",
        "% flagged of rows with independent features": "flagged, independent features",
    }
    rows = [
        [shown, *(f"{results['eurlex-4k'][way][key]:.{2 if 'AUROC' in key else 1}f}" for way in ways)]
        for shown, key in measures.items()
    ]
    coverage = results["coverage on synthetic rows"]
    known, learned = (coverage[name]["f in its 95 % interval"] for name in ("kernel, Φ and b known", "all learned"))
    note = (
        "On data drawn from the model, 95 % intervals of utilities contain the truth in "
        f"{known:.0f} % of cases if the kernel, Φ and b are known, and in {learned:.0f} % if they are learned: "
        "intervals take the learned values as exact."
    )
    return markdown_table(["eurlex-4k, no options, by", *ways], rows) + f"\n{note}\n"


def cluster(records: dict[str, Record]) -> str:
    """Show two processes beside one; times by the clock only if the machine had nothing else to do."""
    found = records["cluster"]["results"]
    what = "linear machines on EUR-Lex, two processes of one thread against one of two:"
    rows = [[f"{what} time on all cores together", f"{found['cpu_ratio']:.2f}×"]]
    if found.get("load", 9) < 1:
        rows.append(["… time by the clock", f"{found['time_ratio']:.2f}×"])
    share = f"{100 * found['largest_share_of_one_rank']:.0f} %"
    rows += [
        ["… the largest share of what was solved that one of the two has", share],
        ["… models that differ in any bit, of all runs", f"{found['models_that_differ']}"],
    ]
    if factor := found.get("factor_model"):
        what = "a factor model of EUR-Lex, three epochs, two processes of one thread against one of two:"
        rows.append([f"{what} time on all cores together", f"{factor['cpu_ratio']:.2f}×"])
        if factor["load"] < 3:  # after the runs before it, which leave two
            rows.append(["… time by the clock", f"{factor['time_ratio']:.2f}×"])
        rows.append(["… largest difference of Φ", f"{factor['largest_difference_of_phi']:.1e}"])
    where = machine_shown(records["cluster"]["machine"])
    note = f"On {where}, from the start of the command to its end; `python -m benchmarks bench cluster`."
    return markdown_table(["what", "measured"], rows) + f"\n{note}\n"


def search(records: dict[str, Record]) -> str:
    """Show a search with an index beside one of all labels, for a drawn model with a million labels."""
    if "search" not in records:
        return ""
    record = records["search"]
    found = record["results"]
    rows = [
        ["ms of a core per row, all labels", f"{found['ms of a core per row, all labels']:.1f}"],
        ["ms of a core per row, with an index", f"{found['ms of a core per row, index']:.2f}"],
        ["% found of the five best labels, on rows without part in the audit", f"{100 * found['recall@5']:.2f}"],
        ["% found of the first label", f"{100 * found['recall@1']:.2f}"],
        ["% of lists that are certified", f"{100 * found['lists certified']:.1f}"],
        ["certified lists that differ", f"{found['certified lists that differ']}"],
        ["largest difference of a probability", f"{found['largest difference of a probability']:.0e}"],
        ["directions, one byte each", f"{found['directions']}"],
        ["labels that the audit keeps", f"{found['labels that the audit keeps']}"],
        ["% of labels that are scored exactly", f"{100 * found['share of labels scored exactly']:.4f}"],
        ["MB of the index", f"{found['mb of the index']:,.0f}"],
        ["seconds to build and audit", f"{found['seconds to build and audit']:.0f}"],
    ]
    note = (
        f"A drawn factor model with {found['labels']:,} labels, 200 processes and 60 weights for each label; one "
        f"thread of {machine_shown(record['machine'])}; `python -m benchmarks bench search`."
    )
    return markdown_table(["what", "measured"], rows) + f"\n{note}\n"


# The sections of docs/BENCHMARKS.md, in this order.
SECTIONS = {
    "The best of a million labels": search,
    "Several processes": cluster,
    "Rows beyond memory": beyond,
    "What the simulator says": simulated,
    "Documents in, tags out": tags,
    "Words and a pretrained encoder": pretrained,
    "Text to rows": encoding,
    "Serving": serving,
    "What to label next": labelling,
    "On a GPU": gpu,
    "One class per row": classes,
    "On top of a network": deep,
    "Topics of labels": topics,
    "Size": large,
    "Decisions with a promise": promises,
    "Which rows to distrust": distrust,
    "Is the uncertainty useful?": trust,
    "Reading, scoring, steps": summary,
}
