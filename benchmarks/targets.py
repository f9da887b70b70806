"""Targets for speed and memory on the CPU, and their comparison with a run."""

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.tasks import SHAPES

MB = 1_000_000


@dataclass(frozen=True)
class Measurement:
    """Measurement of one system on one task."""

    seconds: float  # median over the rounds
    runs: list[float]
    cpu_seconds: float  # median, summed over threads
    peak_bytes: int
    accuracy: float


Table = Mapping[str, Mapping[str, Measurement]]  # task -> row -> measurement


@dataclass(frozen=True)
class Verdict:
    """A target and its measured value, which is None if the run lacks a system or task."""

    target: str
    limit: float
    measured: float | None

    @property
    def met(self) -> bool | None:
        """Whether the measured value is within the limit; None if it was not measured."""
        return None if self.measured is None else self.measured <= self.limit


# (task, our row, the peer's row, largest ratio of our seconds to the peer's)
RATIOS = [
    ("T1", "locpmap", "PyMaxflow", 1.2),
    ("T2", "locpmap", "pydensecrf2", 0.6),
    ("T2", "locpmap, perturbed start", "pydensecrf2", 0.3),
    ("T3", "locpmap", "pydensecrf2", 0.4),
    ("T3", "locpmap, perturbed start", "pydensecrf2", 0.25),
    ("T4", "locpmap", "pydensecrf2", 0.6),
    ("T2", "lbp", "PGMax", 0.1),
    ("T1", "graph_cut", "PyMaxflow", 2.0),
    ("T2", "graph_cut", "gco", 2.0),
    *((task, "mean_field", "torch mean field", 0.5) for task in SHAPES),
]
GROWTH = 1.5  # maximum growth of the seconds per pixel from T2 to T4
FIRST_CALL = 3.0  # seconds


def judge(table: Table, first_call: float | None) -> list[Verdict]:
    """Compare every target with the measurements."""
    verdicts = [
        Verdict(f"{task}: {ours} ÷ {peer}", limit, _ratio(table, task, ours, peer))
        for task, ours, peer, limit in RATIOS
    ]
    verdicts.append(Verdict("locpmap: seconds per pixel, T4 ÷ T2", GROWTH, _growth(table)))
    for task, (batch, height, width, n_labels) in SHAPES.items():
        allowed = 2 * 4 * (batch or 1) * height * width * n_labels + 64 * MB
        row = table.get(task, {}).get("locpmap")
        measured = None if row is None else row.peak_bytes / MB
        verdicts.append(Verdict(f"{task}: locpmap's peak memory above the inputs, MB", allowed / MB, measured))
    verdicts.append(Verdict("first answer of a second process, s", FIRST_CALL, first_call))
    return verdicts


def _ratio(table: Table, task: str, ours: str, peer: str) -> float | None:
    rows = table.get(task, {})
    return rows[ours].seconds / rows[peer].seconds if ours in rows and peer in rows else None


def _growth(table: Table) -> float | None:
    per_pixel = []
    for task in ("T4", "T2"):
        if "locpmap" not in table.get(task, {}):
            return None
        _, height, width, _ = SHAPES[task]
        per_pixel.append(table[task]["locpmap"].seconds / (height * width))
    return per_pixel[0] / per_pixel[1]
