"""`python -m muster`: the command line."""

from muster.cli.main import main

main()
