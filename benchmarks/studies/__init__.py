"""Studies: measurements that are not a grid of methods, such as the cost of a step or of reading."""
