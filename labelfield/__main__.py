"""`python -m labelfield`."""

from labelfield.cli.main import main

main()
