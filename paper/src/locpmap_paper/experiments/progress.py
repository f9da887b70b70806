"""The progress interface of the runner."""

from __future__ import annotations

from typing import Protocol


class RunProgress(Protocol):
    """Receives the start of every stage, computed or loaded, and steps within long stages."""

    def stage(self, done: float, total: float, title: str, cost: float = 1.0) -> None:
        """Report that the stage `title` of a given cost begins, after stages of cost `done` out of `total`."""

    def step(self, done: int, total: int) -> None:
        """Report the progress of the current stage."""


class Silent:
    """Ignores all progress."""

    def stage(self, done: float, total: float, title: str, cost: float = 1.0) -> None:
        """Do nothing."""

    def step(self, done: int, total: int) -> None:
        """Do nothing."""
