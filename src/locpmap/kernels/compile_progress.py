"""Progress while Numba compiles kernels, which takes seconds the first time on a machine."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

PATIENCE = 1.0  # seconds before anything is shown
FINISHING = 0.5  # machine code is generated when all functions are compiled, in about this part of their time
TYPICAL = 0.5e-3  # seconds per unit of weight; Xeon, 2.5 GHz
TRUST = 0.15  # part of the weight that counts as compiled in typical time: the first functions predict the rest badly
WIDTH = 70  # of the line


_told = False  # whether a plain line was written for this kernel


def on_stderr(text: str) -> None:
    """Replace the line on standard error in a terminal or a notebook; an empty text clears it.

    Elsewhere, for example in a log file, write the first text of each kernel as a plain line.  A progress bar of rich
    replaces the stream while it is shown: lines of ours would fill the screen then.
    """
    global _told
    with suppress(Exception):  # a closed or unusual stream must not end the run
        notebook = type(sys.stderr).__module__.startswith("ipykernel")
        ours = sys.stderr is sys.__stderr__ and sys.stderr is not None
        if notebook or (ours and sys.stderr.isatty()):
            sys.stderr.write(f"\r{text:{WIDTH}}" if text else f"\r{'':{WIDTH}}\r")
            sys.stderr.flush()
        elif ours:
            if text and not _told:
                sys.stderr.write(f"{text}\n")
                sys.stderr.flush()
            _told = bool(text)


@dataclass
class CompileProgress:
    """The functions compiled so far of those that a kernel calls, weighted by the size of their bytecode."""

    show: Callable[[str], None] = on_stderr  # the command line shows the text in its progress bar
    waiting: dict[Any, float] = field(default_factory=dict)  # weights of functions that are not compiled yet
    total: float = 0.0
    depth: int = 0
    how_often: str = ""
    started: float = 0.0
    shown: bool = False

    def begin(self, function: Any) -> None:
        """Note that a function is being compiled; the outermost one is a kernel."""
        if self.depth == 0:
            self.waiting = {one: len(one.py_func.__code__.co_code) for one in called_by(function)}
            self.waiting[function] += FINISHING * sum(self.waiting.values())
            self.total, self.started = sum(self.waiting.values()), time.monotonic()
            self.how_often = "once per machine" if function.stats.cache_path else "no folder to keep them in"
        self.depth += 1

    def end(self, function: Any) -> None:
        """Note that a function is compiled."""
        self.depth -= 1
        self.waiting.pop(function, None)
        seconds, left = time.monotonic() - self.started, sum(self.waiting.values())
        if self.depth == 0:
            if self.shown:
                self.show("")
            self.shown = False
        elif seconds > PATIENCE:
            before = TRUST * self.total
            rate = (before * TYPICAL + seconds) / (before + self.total - left)
            self.show(f"compiling kernels ({self.how_often}), about {rate * left:.0f} s left")
            self.shown = True


def called_by(function: Any, found: set[Any] | None = None) -> set[Any]:
    """Return a compiled function and those that it calls, directly or not."""
    found = set() if found is None else found
    if hasattr(function, "py_func") and function not in found:
        found.add(function)
        for name in function.py_func.__code__.co_names:
            called_by(function.py_func.__globals__.get(name), found)
    return found


progress = CompileProgress()
