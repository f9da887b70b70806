"""Local web page that shows refined labels and their uncertainty: the command ``locpmap view``.

The package uses only public names of `locpmap`.
"""

from locpmap_viewer.server import view

__all__ = ["view"]
__version__ = "0.1.0"
