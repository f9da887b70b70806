"""How long a call takes on a GPU: by CUDA's own clock, by the host's, and the kernels alone."""

import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

REPEATS = 15
SECONDS = 1.5  # after which a slow call is not repeated
WARM_UP = 0.3  # seconds of calls before one counts: the host takes as long to come up to speed
HOLD = 2_000_000  # cycles, about a millisecond: longer than Python takes to queue a few launches


@dataclass(frozen=True)
class Timing:
    """Several calls, after some that warm up; milliseconds."""

    milliseconds: float  # median, from a CUDA event before the call to one after it
    spread: list[float]  # least and most
    wall: float  # median by the host's clock, until the device is done
    megabytes: float  # the most memory that torch held during a call, above what it held before


def card() -> dict[str, Any]:
    """What is added to a record of the machine."""
    return {"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda}


def card_name() -> str:
    """The card as part of a file name."""
    return re.sub(r"[^a-z0-9]+", "-", torch.cuda.get_device_name().lower()).strip("-")


def warm_up(call: Callable[[], Any]) -> None:
    """Call once, and then for a while."""
    call()
    torch.cuda.synchronize()
    began = time.perf_counter()
    while time.perf_counter() - began < WARM_UP:
        call()
        torch.cuda.synchronize()


def measure(call: Callable[[], Any]) -> Timing:
    """Time a call whose work is done once the device has nothing left to do; its result is dropped at once."""
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
    """Median milliseconds from the end of a call to the end of the next, when they follow one another.

    Where a call waits for the device, Python's part and the device's add up; else the longer of the two counts.
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
    """Median milliseconds of a call that never waits for the device, without Python's part in it.

    The device is held until everything is queued.  ``cold`` empties its cache before, by reading something else: what
    is written would have to go to memory first, in the time of the call.
    """
    sweeper = torch.zeros(2**26 if cold else 0, device="cuda")  # 256 MB, several times the cache
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
    """Milliseconds of every kernel in one call, the longest first.  Profile last: it slows later launches down."""
    call()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as trace:
        call()
        torch.cuda.synchronize()
    times: dict[str, float] = {}
    for event in trace.key_averages():
        name = event.key.removeprefix("void ").removeprefix("at::native::")[:60]  # templates' names fill pages
        times[name] = times.get(name, 0.0) + event.self_device_time_total / 1000
    return dict(sorted(((name, ms) for name, ms in times.items() if ms > 0), key=lambda item: -item[1]))
