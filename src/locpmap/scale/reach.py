"""How far a decoder's answer reaches: the sites that a site's label can depend on after a number of sweeps.

A sweep visits one colour class after another, and within a class nothing depends on anything that the same visit
changes.  So a visit carries influence from what lies beside a site, or beside its block, and no further; going back
from the last visit to the first finds all that counts.  On the 4-grid, whose classes are red and black, T sweeps reach
2T sites.  With 8 neighbours there are four classes, of even rows and then of odd ones: 2T rows, but 4T columns.
Conditional probabilities look one step further, at the neighbours' final labels.
"""

from __future__ import annotations

from typing import NamedTuple

from locpmap.errors import InputError
from locpmap.graphs import Grid, Steps
from locpmap.inference import DECODERS
from locpmap.inference.decoder import Decoder
from locpmap.scale.box import Box


class Visit(NamedTuple):
    """What new labels of one colour class depend on: complete blocks of that size, and what lies beside them."""

    block_height: int
    block_width: int
    rows: int
    columns: int


class Reach(NamedTuple):
    """What a window needs around the sites that it answers for."""

    visits: tuple[Visit, ...]  # of one sweep, the last one first
    n_sweeps: int
    near: tuple[int, int] = (0, 0)  # rows and columns of which the final labels are needed as well
    margin: tuple[int, int] = (0, 0)  # that the potentials themselves depend on

    def window(self, core: Box) -> Box:
        """Return all that the labels in a box depend on, as if the raster had no end.

        >>> from locpmap.inference import LocPMAP
        >>> reach_of(LocPMAP(max_sweeps=4, probability="votes")).window(Box(100, 200, 100, 300))
        Box(top=92, bottom=208, left=92, right=308)
        """
        first = self._sweep(core.grown(*self.near))
        # Blocks have one height and one width beside 1, so that after a sweep all sides lie on them, or as far beyond
        # them as after any other: each further sweep adds as much as the second.
        second = self._sweep(first)
        last = Box(*(one + (self.n_sweeps - 1) * (two - one) for one, two in zip(first, second, strict=True)))
        return last.grown(*self.margin)

    def _sweep(self, box: Box) -> Box:
        """What a box depends on in one sweep."""
        for visit in self.visits:
            box = box.in_blocks(visit.block_height, visit.block_width).grown(visit.rows, visit.columns)
        return box

    @property
    def halo(self) -> tuple[int, int]:
        """The most rows and columns that a window has on a side of its box."""
        rows = self.n_sweeps * sum(visit.rows + visit.block_height - 1 for visit in self.visits)
        columns = self.n_sweeps * sum(visit.columns + visit.block_width - 1 for visit in self.visits)
        return rows + self.near[0] + self.margin[0], columns + self.near[1] + self.margin[1]


def reach_of(decoder: Decoder, connectivity: int | Steps = 4) -> Reach:
    """Return the reach of a decoder; refuse one whose reach has no bound, with the reason.

    >>> from locpmap.inference import LocPMAP
    >>> reach_of(LocPMAP(max_sweeps=16)).halo
    (33, 33)
    >>> reach_of(LocPMAP(max_sweeps=16, probability="votes")).halo
    (32, 32)
    >>> reach_of(LocPMAP(max_sweeps=5, blocks=(2, 3), probability="votes")).halo
    (20, 30)
    """
    locality = decoder.locality()
    if locality is None:
        local = [name for name, kind in DECODERS.items() if kind().locality() is not None]
        known = f"{', '.join(local[:-1])} or {local[-1]}"
        raise InputError(f"method is {decoder.name}, expected {known} for tiles: {decoder.unbounded}")
    steps = Grid(1, 1, connectivity).steps
    down, across = max(dr for dr, _ in steps), max(abs(dc) for _, dc in steps)
    # Of four classes two share their rows, so that the second of them sees no row that the first did not see.
    of_classes = [(down, across), (0, across)] * 2 if connectivity == 8 else [(down, across)] * 2
    visits = [Visit(*size, *beside) for size in reversed(locality.block_sizes) for beside in of_classes]
    return Reach(tuple(visits), locality.n_sweeps, (down, across) if locality.reads_neighbours else (0, 0))
