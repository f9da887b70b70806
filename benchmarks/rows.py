"""Rows of the CPU tables: the systems, their tasks, and the systems they are compared with."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

from benchmarks import ours, peers
from benchmarks.tasks import Task

EASY = ("T1", "T2", "T3", "T4")
HARD = tuple(f"{name}-hard" for name in EASY)


@dataclass(frozen=True)
class Row:
    """A system; `prepare(task)` returns the function to time."""

    name: str
    what: str
    prepare: Callable[[Task], peers.Run]
    tasks: tuple[str, ...]
    module: str = "locpmap"  # package that the row needs
    versus: tuple[str, ...] = ()  # rows to which ratios of time are printed

    @property
    def available(self) -> bool:
        """Whether the row's package is installed."""
        return find_spec(self.module) is not None


DECODED = ("pydensecrf2", "PyMaxflow", "global P&M", "gco", "torch LocPMAP")

ROWS = [
    Row(
        "locpmap",
        "M = 50, random start",
        partial(ours.decode, method="locpmap", n_samples=50),
        EASY + HARD,
        versus=DECODED,
    ),
    Row(
        "locpmap, perturbed start",
        "M = 50",
        partial(ours.decode, method="locpmap", n_samples=50, start="perturbed"),
        EASY + HARD,
        versus=DECODED,
    ),
    Row("pydensecrf2", "dense CRF, 5 iterations", peers.densecrf, EASY + HARD, "pydensecrf"),
    Row("PyMaxflow", "one exact cut, labels only", peers.maxflow, ("T1", "T1-hard"), "maxflow"),
    Row("global P&M", "50 exact cuts by PyMaxflow", peers.perturb_and_map, ("T1",), "maxflow"),
    Row("gco", "α-expansion, labels only", peers.alpha_expansion, ("T2", "T3", "T4", "T2-hard", "T3-hard"), "gco"),
    Row("torch LocPMAP", "M = 50, vectorised", peers.torch_locpmap, ("T1", "T2"), "torch"),
    Row(
        "mean_field",
        "50 sweeps, settled sites skipped",
        partial(ours.decode, method="mean_field", max_sweeps=50),
        EASY,
        versus=("torch mean field",),
    ),
    Row("torch mean field", "50 sweeps, vectorised", peers.torch_mean_field, EASY, "torch"),
    Row(
        "lbp",
        "50 iterations",
        partial(ours.decode, method="lbp", max_sweeps=50, tolerance=0.0),
        ("T1", "T2"),
        versus=("PGMax",),
    ),
    Row("PGMax", "BP, 50 iterations, compiled", peers.pgmax_bp, ("T2",), "pgmax"),
    Row(
        "gibbs", "100 sweeps, 50 samples", partial(ours.decode, method="gibbs", n_samples=50, burn_in=50), ("T1", "T2")
    ),
    Row("icm", "one start", partial(ours.decode, method="icm"), EASY),
    Row(
        "graph_cut",
        "exact or α-expansion",
        partial(ours.decode, method="graph_cut"),
        ("T1", "T2"),
        versus=("PyMaxflow", "gco"),
    ),
]
BY_NAME = {row.name: row for row in ROWS}
