"""Benchmarks that anyone can run again: data set × method × budget in fresh processes, one record each."""

from labelfield.bench.places import checkout, data_folder, records_folder
from labelfield.bench.records import append_record, latest_of, load_records
from labelfield.bench.run import Choices, is_failure, run_cells
from labelfield.bench.suite import Cell, Row, Suite, find_suite, parse_suite, read_suite, suite_names

__all__ = [
    "Cell",
    "Choices",
    "Row",
    "Suite",
    "append_record",
    "checkout",
    "data_folder",
    "find_suite",
    "is_failure",
    "latest_of",
    "load_records",
    "parse_suite",
    "read_suite",
    "records_folder",
    "run_cells",
    "suite_names",
]
