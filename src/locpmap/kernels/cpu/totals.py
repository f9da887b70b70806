"""Totals of samples on the CPU: votes or conditional probabilities.

A *round* is a set of samples that are drawn in one call, before they are added to the totals.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from locpmap.arrays import best_labels, of_images
from locpmap.kernels.cpu.dispatch import Dispatch
from locpmap.kernels.cpu.sampling import HostDrawn, links_of, takes_bits
from locpmap.kernels.model import NARROW, QUANTUM, Array, label_dtype, unit_of
from locpmap.kernels.spec import ModelView, Span
from locpmap.kernels.threads import ranges

# Limits of a round.
ROUND_BYTES = 48 << 20  # in addition to twice the unaries: memory does not grow with the number of samples
SITE_BYTES = 64  # the same per site, if the labels are few
MARKED_THREADS = 2  # threads whose marks count; the marks of others take more memory
ROUND_WORK = 1 << 27  # images, sites and samples per thread: progress and time limits are checked between rounds
FIELD_WORK = 1 << 25  # the same with error fields, whose rounds cost less
ROUND_SAMPLES = 64  # bits of a machine word
CHUNK = 1 << 20  # totals that are divided at a time
BAND = 1 << 15  # totals of rows that a thread finishes at a time


@dataclass
class HostTotals:
    """Totals (N, S, L): votes in the smallest sufficient integer type, or probabilities, in units of 1 / `unit_of`.

    If all samples fit into memory, they wait until the end, and the results are computed without storing totals.
    """

    conditional: bool
    dtype: np.dtype[Any]
    max_samples: int
    round_work: int
    counts: Array | None = None  # allocated when first needed
    waiting: list[tuple[ModelView, Span, Array]] | None = None  # samples with their models, images and numbers


class Totals(Dispatch):
    """The operations of the contract on totals."""

    def start_totals(self, model: ModelView, kind: str, max_samples: int, *, fields: bool = False) -> HostTotals:
        """Return empty totals; the counts are allocated by the first call of `tally`."""
        work = FIELD_WORK if fields else ROUND_WORK
        if kind != "conditional":
            return HostTotals(False, np.min_scalar_type(max_samples), max_samples, work)
        # Volumes are large: half the memory is enough for results in single precision.
        narrow = model.potts and model.volume is not None and model.unary.dtype == np.float32
        dtype = np.dtype(np.uint32 if narrow and max_samples * NARROW < 2**32 else np.int64)
        return HostTotals(True, dtype, max_samples, work)

    def round_size(self, model: ModelView, totals: HostTotals, most: int) -> tuple[int, int]:
        n_images, n_sites, n_labels = model.unary.shape
        # Per site, a climb stores a label per sample and a word of marks per thread; in a volume, a byte.
        n_threads, limit = self.threads.n_threads, 2 * model.unary.nbytes
        marks = n_threads if model.volume is not None else 8 * min(n_threads, MARKED_THREADS)
        if model.volume is None:
            limit = max(limit, SITE_BYTES * n_images * n_sites)
        affordable = min(totals.round_work * n_threads // (n_images * n_sites), ROUND_SAMPLES)
        whole = QUANTUM * n_threads  # every thread draws a multiple of the samples that share noise

        if totals.counts is None and most == totals.max_samples and may_wait(model, totals):
            width = np.dtype(label_dtype(n_labels)).itemsize
            held = model.unary.nbytes if n_images > 1 else 0  # a single image releases labels for its results
            if n_images * n_sites * (width * most + marks) <= ROUND_BYTES + limit - held:
                totals.waiting = []
        if totals.waiting is not None:
            count = affordable if affordable >= most else affordable // whole * whole
            return min(most, max(count, min(whole, ROUND_SAMPLES))), n_images

        room = (ROUND_BYTES + max(limit - model.unary.size * totals.dtype.itemsize, 0)) // n_sites
        affordable = min(affordable, room - marks)
        in_vectors = model.volume is not None and affordable >= whole
        return round_of(most, affordable, room, marks, whole if in_vectors else QUANTUM)

    def tally(self, model: ModelView, drawn: HostDrawn, totals: HostTotals, begin: int, stop: int) -> None:
        """Add votes or conditional probabilities, or let the samples wait; the threads divide the sites."""
        if totals.waiting is not None:
            assert stop - begin == model.unary.shape[1]  # only a GPU's memory is so short that sites are divided
            totals.waiting += [(model, part, array) for part, array in zip(drawn.parts, drawn.arrays, strict=True)]
            return
        if totals.counts is None:
            totals.counts = np.zeros(model.unary.shape, totals.dtype)
        counts, by_rows, packed = totals.counts, in_rows(model, totals), drawn.arrays[0].ndim == 2
        form = "bit_" if packed else "volume_" if by_rows else ""
        kernel = self.kernel_of(form + ("conditionals" if totals.conditional else "votes"))
        terms: tuple[Any, ...] = ()
        if totals.conditional:
            terms = (model.unary, links_of(model)) if by_rows else (model.flat,)

        def add(begin: int, stop: int) -> None:
            for part, array in zip(drawn.parts, drawn.arrays, strict=True):
                given: tuple[Any, ...] = (array, part.n_samples) if packed else (array,)
                mine = of_images(counts, part.lo, part.hi)
                if by_rows:
                    kernel(*terms, *given, mine, 0, part.lo, begin, stop)
                elif totals.conditional:
                    kernel(*terms, *given, mine, part.lo, begin, stop)
                elif packed:
                    kernel(*given, mine, begin, stop)
                else:
                    kernel(*given, mine, 0, begin, stop)

        parts = ranges(stop - begin, self.threads.n_threads)
        self.threads.map(add, [(begin + a, begin + b) for a, b in parts])

    def read_totals(self, model: ModelView, totals: HostTotals, n_samples: int) -> tuple[Array, Array]:
        if totals.waiting:
            return self._results(model, totals, n_samples)
        assert totals.counts is not None
        dtype = model.unary.dtype
        if totals.conditional:
            probability = _divided(totals.counts, unit_of(totals.dtype) * n_samples, dtype)
            totals.counts = None  # its memory holds the probabilities
        else:
            probability = totals.counts.astype(dtype)
            probability /= n_samples
        return probability, best_labels(probability)

    def _results(self, model: ModelView, totals: HostTotals, n_samples: int) -> tuple[Array, Array]:
        """Compute the results of the waiting samples, which a single image releases meanwhile.

        The threads divide bands of sites or of whole rows, from the last one to the first.
        """
        n_images, n_sites, n_labels = model.unary.shape
        probability, labels = np.empty(model.unary.shape, model.unary.dtype), np.empty((n_images, n_sites), np.int64)
        waiting, totals.waiting = totals.waiting or [], None
        width, reach = 1, 0  # of a row; to the last neighbour of a site
        kernel, divisor = self.kernel_of("votes"), float(n_samples)
        if totals.conditional:
            _, height, width = links_of(model).shape
            reach = (height + 1) * width + 1
            kernel, divisor = self.kernel_of("volume_conditionals"), unit_of(totals.dtype) * n_samples

        def compute(begin: int, stop: int) -> None:
            sums = np.zeros((n_images, stop - begin, n_labels), totals.dtype)
            for view, part, array in waiting:
                mine = of_images(sums, part.lo, part.hi)
                if totals.conditional:
                    kernel(view.unary, links_of(view), array, mine, begin, part.lo, begin, stop)
                else:
                    kernel(array, mine, begin, begin, stop)
            np.divide(sums, divisor, out=probability[:, begin:stop], casting="unsafe")
            labels[:, begin:stop] = best_labels(probability[:, begin:stop])

        band = max(1, BAND // (n_images * width * n_labels)) * width
        bounds = [(begin, min(begin + band, n_sites)) for begin in range(0, n_sites, band)]
        at_once = 4 * self.threads.n_threads
        for last in range(len(bounds), 0, -at_once):
            jobs = bounds[max(0, last - at_once) : last]
            self.threads.map(compute, jobs)
            for *_, array in waiting if n_images == 1 else []:
                if array.flags.owndata:
                    array.resize((1, min(jobs[0][0] + reach, array.shape[1]), array.shape[2]), refcheck=False)
        return probability, labels


def may_wait(model: ModelView, totals: HostTotals) -> bool:
    """Return whether samples may wait for the others: if they are not packed, and can be added in bands."""
    return in_rows(model, totals) or not (totals.conditional or takes_bits(model))


def in_rows(model: ModelView, totals: HostTotals) -> bool:
    """Return whether conditional probabilities are computed row by row, as those of packed samples are not."""
    on_grid = model.grid is not None and not takes_bits(model)
    return totals.conditional and model.potts and (on_grid or model.volume is not None)


def round_of(most: int, affordable: int, room: int, marks: int, quantum: int = QUANTUM) -> tuple[int, int]:
    """Return the samples of a round (at most ``most``) and the images; ``room`` is the capacity in samples."""
    rounds = 1 if affordable >= most else -(-most // max(quantum, affordable // quantum * quantum))
    # Rounds of similar size: a last round of few samples would cost nearly as much as a full one.
    count = most if rounds == 1 else max(quantum, most // (quantum * rounds) * quantum)
    return count, max(1, room // (count + marks))


def _divided(counts: Array, divisor: float, dtype: Any) -> Array:
    """Return ``counts / divisor`` in the memory of the counts; single precision uses half of that of int64."""
    shape, size = counts.shape, counts.size
    flat = counts.reshape(-1)
    for begin in range(0, size, CHUNK):  # the quotients are computed before they overwrite counts, from the front
        flat.view(dtype)[begin : min(begin + CHUNK, size)] = flat[begin : begin + CHUNK] / divisor
    del flat
    counts.resize(-(-size * dtype.itemsize // counts.itemsize), refcheck=False)
    return counts.view(dtype)[:size].reshape(shape)
