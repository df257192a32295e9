"""A Gaussian process per class: one-vs-each, robustmax and softmax."""
