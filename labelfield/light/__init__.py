"""Answers of the usual models of documents in NumPy alone: a process that tags one document starts in a second."""
