"""Progress while kernels compile."""

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

from locpmap.kernels import compile_progress
from locpmap.kernels.compile_progress import CompileProgress, called_by, on_stderr
from locpmap.kernels.numba import climb_fields, climb_potts, noise, potts_contest


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def function(size: int, **calls: Any) -> Any:
    """Return an object like Numba's functions, with bytecode of ``size`` and functions that it calls."""
    code = SimpleNamespace(co_code=b"x" * size, co_names=tuple(calls))
    return Function(SimpleNamespace(__code__=code, __globals__=calls))


class Function:
    """Stand-in for a function that Numba compiles."""

    def __init__(self, py_func: Any) -> None:
        self.py_func = py_func
        self.stats = SimpleNamespace(cache_path="folder")


def test_remaining_time_follows_the_share_of_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, shown = Clock(), list[str]()
    monkeypatch.setattr(compile_progress, "time", clock)
    leaf, other = function(12_000), function(8_000)
    kernel = function(20_000, leaf=leaf, other=other)  # and 20,000 to finish
    progress = CompileProgress(shown.append)
    progress.begin(kernel)
    progress.begin(leaf)
    clock.now = 6.0
    progress.end(leaf)
    progress.begin(other)
    clock.now = 10.0
    progress.end(other)
    progress.begin(other)  # compiled again, for other types: no new progress
    progress.end(other)
    progress.end(kernel)
    progress.begin(leaf)  # a later, quick one
    progress.end(leaf)
    assert shown == [*(f"compiling kernels (once per machine), about {seconds} s left" for seconds in (24, 20, 20)), ""]


def test_a_slow_start_changes_the_remaining_time_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first function loads modules, too: here a hundredth of the bytecode takes ten times the typical time."""
    clock, shown = Clock(), list[str]()
    monkeypatch.setattr(compile_progress, "time", clock)
    leaf = function(400)
    kernel = function(26_267, leaf=leaf)  # 40,000 with finishing: 20 seconds
    progress = CompileProgress(shown.append)
    progress.begin(kernel)
    progress.begin(leaf)
    clock.now = 2.0
    progress.end(leaf)
    assert shown == ["compiling kernels (once per machine), about 31 s left"]  # the first function alone predicts 198


def test_quick_compilations_show_nothing() -> None:
    shown = list[str]()
    progress = CompileProgress(shown.append)
    kernel = function(10, leaf=function(10))
    progress.begin(kernel)
    progress.begin(kernel.py_func.__globals__["leaf"])
    progress.end(kernel.py_func.__globals__["leaf"])
    progress.end(kernel)
    assert shown == []


def test_functions_that_a_kernel_calls_are_found() -> None:
    found = called_by(climb_potts.climb_images)
    assert {potts_contest.visit_row, potts_contest.settle, noise.philox} <= found
    assert climb_fields.ascend not in found


@pytest.mark.parametrize("terminal", [True, False])
def test_terminals_replace_the_line_and_others_get_one_each(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(compile_progress, "_told", False)
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr("sys.__stderr__", stream)
    for text in ("compiling", "still compiling", "", "another kernel", ""):
        on_stderr(text)
    if terminal:
        assert [line.strip() for line in stream.getvalue().split("\r")] == [
            *("", "compiling", "still compiling", "", ""),
            *("another kernel", "", ""),
        ]
    else:
        assert stream.getvalue() == "compiling\nanother kernel\n"


def test_a_progress_bar_is_not_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    for name in ("sys.stderr", "sys.__stderr__"):
        monkeypatch.setattr(name, terminal)
    with Progress(console=Console(file=terminal, force_terminal=True), transient=True):
        on_stderr("compiling")
    assert "compiling" not in terminal.getvalue()
    on_stderr("compiling")
    assert "compiling" in terminal.getvalue()
