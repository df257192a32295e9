"""Tables and pages that are made from the records."""
