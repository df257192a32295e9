"""Which rows a person should label next, and the files of labelling tools."""

from labelfield.active.query import STRATEGIES, query
from labelfield.active.tools import Task, read_annotations, write_tasks

__all__ = ["STRATEGIES", "Task", "query", "read_annotations", "write_tasks"]
