"""The progress interface of the runner."""

from __future__ import annotations

from typing import Protocol


class RunProgress(Protocol):
    """Receives the start of every stage, computed or loaded, and steps within long stages."""

    def stage(self, done: int, total: int, title: str) -> None:
        """Report that `done` of `total` stages are complete and that the stage `title` begins."""

    def step(self, done: int, total: int) -> None:
        """Report the progress of the current stage."""


class Silent:
    """Ignores all progress."""

    def stage(self, done: int, total: int, title: str) -> None:
        """Do nothing."""

    def step(self, done: int, total: int) -> None:
        """Do nothing."""
