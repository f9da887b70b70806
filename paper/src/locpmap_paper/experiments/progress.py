"""How far a run is, as the runner tells it."""

from __future__ import annotations

from typing import Protocol


class RunProgress(Protocol):
    """Told of every stage, done now or found, and of steps within a long one."""

    def stage(self, done: int, total: int, title: str) -> None:
        """So many stages of the whole are done, and the named one begins."""

    def step(self, done: int, total: int) -> None:
        """How far the stage is that began last."""


class Silent:
    """Tells nobody."""

    def stage(self, done: int, total: int, title: str) -> None:
        """Nothing."""

    def step(self, done: int, total: int) -> None:
        """Nothing."""
