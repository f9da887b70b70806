"""Timing of calls on a GPU: by CUDA events, by the host's clock, and of the kernels only."""

import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

REPEATS = 15
SECONDS = 1.5  # total time after which a slow call is not repeated
WARM_UP = 0.3  # seconds of calls before the measurement: the host needs as long to reach full speed
HOLD = 2_000_000  # cycles, about a millisecond: longer than Python needs to queue a few launches


@dataclass(frozen=True)
class Timing:
    """Timing of several calls in milliseconds, after a warm-up."""

    milliseconds: float  # median between CUDA events before and after the call
    spread: list[float]  # minimum and maximum
    wall: float  # median by the host's clock, until the device has finished
    megabytes: float  # peak of the memory that torch allocated during a call, above the memory before


def card() -> dict[str, Any]:
    """Return the GPU and CUDA version for a record."""
    return {"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda}


def card_name() -> str:
    """Return the name of the GPU as part of a file name."""
    return re.sub(r"[^a-z0-9]+", "-", torch.cuda.get_device_name().lower()).strip("-")


def warm_up(call: Callable[[], Any]) -> None:
    """Call once, and then repeatedly for ``WARM_UP`` seconds."""
    call()
    torch.cuda.synchronize()
    began = time.perf_counter()
    while time.perf_counter() - began < WARM_UP:
        call()
        torch.cuda.synchronize()


def measure(call: Callable[[], Any]) -> Timing:
    """Time a call until the device has finished; its result is released immediately."""
    warm_up(call)
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    events: list[float] = []
    walls: list[float] = []
    while len(events) < REPEATS and sum(walls) < 1000 * SECONDS:
        began = time.perf_counter()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        walls.append(1000 * (time.perf_counter() - began))
        events.append(begin.elapsed_time(end))
    megabytes = (torch.cuda.max_memory_allocated() - held) / 1e6
    return Timing(statistics.median(events), [min(events), max(events)], statistics.median(walls), megabytes)


def in_a_row(call: Callable[[], Any]) -> float:
    """Return the median milliseconds between the ends of consecutive calls without synchronisation.

    If a call waits for the device, this is the sum of Python's time and the device's; otherwise it is the larger one.
    """
    warm_up(call)
    ends: list[torch.cuda.Event] = []
    began = time.perf_counter()
    while len(ends) < 4 * REPEATS and time.perf_counter() - began < SECONDS:
        call()
        ends.append(torch.cuda.Event(enable_timing=True))
        ends[-1].record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in pairwise(ends[1:] if len(ends) > 2 else ends))


def queued(call: Callable[[], Any], cold: bool = False) -> float:
    """Return the median milliseconds of the device for a call that never waits for it, without Python's overhead.

    The device sleeps until the whole call is queued. ``cold`` evicts its cache before the call, by reading other data:
    after writes, the call would also pay for writing them back to memory.
    """
    sweeper = torch.zeros(2**26 if cold else 0, device="cuda")  # 256 MB, several times the size of the cache
    times = []
    for _ in range(REPEATS + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        sweeper.sum()
        torch.cuda._sleep(HOLD)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[2:])


def kernels(call: Callable[[], Any]) -> dict[str, float]:
    """Return milliseconds by kernel for one call, the longest first. Profile last: it slows later launches down."""
    call()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as trace:
        call()
        torch.cuda.synchronize()
    times: dict[str, float] = {}
    for event in trace.key_averages():
        name = event.key.removeprefix("void ").removeprefix("at::native::")[:60]  # names of templates are very long
        times[name] = times.get(name, 0.0) + event.self_device_time_total / 1000
    return dict(sorted(((name, ms) for name, ms in times.items() if ms > 0), key=lambda item: -item[1]))
