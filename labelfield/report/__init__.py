"""A page about a model: what it is, how good it is, how far to trust it, and what it has learned."""

from labelfield.report.page import make_page, save_page, write_report
from labelfield.report.scores import Counts

__all__ = ["Counts", "make_page", "save_page", "write_report"]
