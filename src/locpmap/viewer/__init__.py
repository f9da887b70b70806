"""The viewer: a page on this computer that refines an image's logits and shows where not to trust the labels."""

from locpmap.viewer.server import view

__all__ = ["view"]
