"""Local web page that shows refined labels and their uncertainty."""

from locpmap.viewer.server import view

__all__ = ["view"]
