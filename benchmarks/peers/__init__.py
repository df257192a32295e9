"""Other packages that do the same work, each in an environment of its own.

Only a docstring: those environments import from here, and have neither torch nor labelfield.
"""
