"""``python -m locpmap`` is the command ``locpmap``."""

from locpmap.cli import main

main()
