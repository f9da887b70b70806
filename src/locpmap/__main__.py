"""Run the command line interface with ``python -m locpmap``."""

from locpmap.cli import main

main()
