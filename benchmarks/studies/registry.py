"""All studies, and how to run one and append its record."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.paths import DATA, RECORDS
from benchmarks.provenance import accelerator
from benchmarks.record import append_study
from labelfield.errors import LabelfieldError

__all__ = ["STUDIES", "Study", "run_study"]


@dataclass(frozen=True)
class Study:
    """What a study measures, the module and function that do so, and the data set and device they need."""

    about: str
    module: str
    function: str = "run"
    data: str | None = None
    needs_gpu: bool = False

    def load(self) -> Callable[[], dict[str, Any]]:
        """Import the function that makes the results."""
        found: Callable[[], dict[str, Any]] = getattr(
            importlib.import_module(f"benchmarks.studies.{self.module}"), self.function
        )
        return found


def _on_gpu(about: str, module: str, function: str = "run_on_gpu", data: str | None = None) -> Study:
    return Study(f"{about}, on a GPU", module, function, data, needs_gpu=True)


STUDIES = {
    "reading": Study("reading EUR-Lex text: time against scikit-learn, and memory", "reading", data="eurlex-4k"),
    "documents-eurovoc": Study("tags for English texts beside Annif", "documents", "run_eurovoc", "eurovoc-text"),
    "documents-makupalat": Study("tags for Finnish texts beside Annif", "documents", "run_makupalat", "makupalat"),
    "pretrained": Study("a static pretrained encoder beside words, on titles", "pretrained", data="eurovoc-text"),
    "encoding": Study("text to rows: time against TfidfVectorizer", "encoding"),
    "encoding-memory": Study("text to rows: the memory of a million documents", "encoding", "run_memory"),
    "scores": Study("ranking scores: time against napkinXC, and for a million rows", "scores"),
    "large": Study("a million synthetic rows drawn, written, opened and read in batches", "large", data="eurlex-4k"),
    "revealed": Study("MLGPF with one label of each row known, and the time per row", "revealed", data="bibtex"),
    "ensemble": Study("what each member of an ensemble adds on EUR-Lex", "ensemble", data="eurlex-4k"),
    "steps": Study("one step of the papers' model: ours, GPyTorch's and GPflow's", "steps"),
    "subspace": Study("inducing inputs in a subspace and free ones, by features", "subspace", data="rcv1sub1"),
    "trust": Study("whether uncertainty finds mistakes, and intervals contain the truth", "trust", data="eurlex-4k"),
    "decide": Study("whether promises about tags are kept, beside omikuji's Bonsai", "decide", data="bibtex"),
    "cluster": Study("one process of two threads, and two processes of one", "cluster", data="eurlex-4k"),
    "beyond": Study("ten million rows on disk, converted and trained on with little memory", "beyond"),
    "simulate": Study("steps at many sizes, and what the simulator says of them", "simulate"),
    "decide-large": Study("the same on the larger data sets", "decide", "run_large", "eurlex-4k"),
    "decide-retrained": Study(
        "promises of models that are trained anew on random splits", "decide", "run_retrained", "bibtex"
    ),
    "decide-cost": Study("what evidence for decisions costs in training", "decide_cost", data="bibtex"),
    "uncertainty": Study(
        "which uncertainty finds mistakes, other rows and unknown labels", "uncertainty", data="yeast"
    ),
    "search": Study("the best of a million labels on one core, with an index and among all", "search"),
    "scale": Study("the cost of a step as labels, features and rows grow, and of an epoch", "scale"),
    "step-scaling": Study("the cost of a step alone", "scale", "run_steps"),
    "multiclass": Study("rings, and steps with many classes", "multiclass"),
    "covertype": Study("one-vs-each on Covertype, beside scikit-learn", "multiclass", "run_covertype", "covertype"),
    "deep-steps": Study("a step of deep kernels, beside GPyTorch's", "deep_cost", "run_steps"),
    "deep-scaling": Study("a step of deep kernels against the number of inducing points", "deep_cost", "run_scaling"),
    "serve": Study("a server on loopback: start, latency, throughput", "serve", data="eurovoc-text"),
    "serve-annif": Study("64 connections to Annif's server and to ours", "serve", "run_annif", "eurovoc-text"),
    "serve-soak": Study("a server under load, reloads and broken requests", "serve", "run_soak", "eurovoc-text"),
    "active": Study("rows to be labelled until 95 % of the full score, by strategy", "active", data="bibtex"),
    "active-text": Study("the same with documents", "active", "run_text", "eurovoc-text"),
    "topics": Study("topics: AUC, and with few labels observed", "topics", data="eurlex-4k"),
    "topics-cost": Study("topics: a step by positive labels", "topics", "run_cost", "delicious"),
    "topics-few-written": Study("topics as written, few labels observed", "topics", "run_few_written", "bibtex"),
    "gpu": _on_gpu("EUR-Lex, Delicious and Bibtex", "gpu", "run", "eurlex-4k"),
    "gpu-mixes": _on_gpu("the default mix of EUR-Lex, five seeds", "gpu", "run_mixes", "eurlex-4k"),
    "gpu-scale": _on_gpu("an epoch of the largest data sets", "scale"),
    "gpu-mnist": _on_gpu("the thesis' six methods on MNIST", "multiclass", data="mnist"),
    "gpu-deep": _on_gpu("deep kernels on EUR-Lex, and their overhead", "deep", data="eurlex-4k"),
    "gpu-deep-tables": _on_gpu("deep kernels on the paper's tables", "deep", "run_tables", "adult"),
    "gpu-deep-written": _on_gpu("deep kernels as their paper has them", "deep", "run_written", "adult"),
    "gpu-mnist-written": _on_gpu("the same on MNIST", "deep", "run_mnist_written", "mnist"),
    "gpu-mnist-binary": _on_gpu("deep kernels on odd and even digits", "deep", "run_mnist_binary", "mnist"),
    "gpu-revealed": _on_gpu("the thesis' LINEAR-PP with one label of each row known", "revealed", data="eurlex-4k"),
    "gpu-tests": _on_gpu("the tests that need one", "gpu_tests"),
    "gpu-topics": _on_gpu("topics of EUR-Lex", "topics", data="eurlex-4k"),
}


def run_study(name: str) -> Path:
    """Run a study and append its record; return the file of the record."""
    study = STUDIES.get(name)
    if study is None:
        raise LabelfieldError(f"no study {name!r}; there are {', '.join(STUDIES)}")
    if study.data and not (DATA / study.data).is_dir():
        raise LabelfieldError(f"{name}: not measured, {study.data} is not at {DATA}; set LABELFIELD_DATA")
    if study.needs_gpu and accelerator() is None:
        raise LabelfieldError(f"{name}: not measured, there is no GPU here")
    return append_study(RECORDS, name, study.load()(), f"python -m benchmarks bench {name}")
