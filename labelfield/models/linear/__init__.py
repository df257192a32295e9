"""Linear one-vs-rest machines with squared hinge, solved to their optimum."""
