"""Sampling on the CPU.

A climb uses the fastest implementation for its model; all implementations of a noise scheme use the same noise:

- two labels on a grid: 64 samples packed into a machine word, one bit each (``climb_bits``);
- Potts weights on a grid: only the labels that can be best are compared (``climb_potts``);
- Potts weights on a grid with error fields: samples one by one (``climb_fields``);
- Potts weights on a volume, or two labels on a large grid: the same with eight samples at once (``climb_volume``);
- any other graph or table: single sites or blocks (``climb_sites``, ``climb_blocks``);
- lines with noise on their joint labellings (``climb_clocks``).
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from locpmap.arrays import frozen, of_images
from locpmap.kernels.cpu.dispatch import Dispatch, kernel_of
from locpmap.kernels.fields import Fields, Moves, draw_moves
from locpmap.kernels.fields import of_images as fields_of_images
from locpmap.kernels.model import QUANTUM, Array, label_dtype
from locpmap.kernels.perturbation import GIVEN, NONE, PERTURBED, GridClimb, Perturbation, VolumeClimb, VolumeLinks
from locpmap.kernels.spec import Climb, ModelView, Span, Work
from locpmap.kernels.threads import ranges
from locpmap.kernels.trees import outward

LANES = 4  # samples of a volume, or of a grid with error fields, that share calls of Philox
MAX_LABELS = 255  # of the climbs whose labels are bytes
MAX_BIT_SITES = 1 << 19  # bounds the scratch of `climb_bits`, up to 22 words per site and thread


@dataclass(frozen=True, eq=False)
class HostDrawn:
    """Samples of a span, in parts: labels (n, S, R), or words (n, S) with one bit per sample."""

    span: Span
    parts: list[Span]
    arrays: list[Array]
    sweeps: list[Array]

    def labels(self) -> Array:
        found = [_unpacked(array, part.n_samples) for part, array in zip(self.parts, self.arrays, strict=True)]
        if len(found) == 1:
            return found[0]
        lo, hi, first, count = self.span
        labels = np.empty((hi - lo, found[0].shape[1], count), found[0].dtype)
        for part, array in zip(self.parts, found, strict=True):
            at = part.first - first
            labels[part.lo - lo : part.hi - lo, :, at : at + part.n_samples] = array
        return labels


def _unpacked(array: Array, count: int) -> Array:
    if array.ndim == 3:
        return array
    return (array[:, :, None] >> np.arange(count, dtype=np.uint64) & np.uint64(1)).astype(np.uint8)


class Sampling(Dispatch):
    """The sampling operations of the contract."""

    def climb(self, model: ModelView, climb: Climb, span: Span) -> HostDrawn:
        """Climb with the fastest implementation for the model."""
        n_labels = model.unary.shape[2]
        if climb.fields is not None:
            return self._with_fields(model, climb, span)
        if climb.blocks is not None:
            plan, flat = climb.blocks.plan, model.flat  # built here, before threads share them
            operation = "climb_clocks" if climb.clocks else "climb_blocks"
            return self._general(operation, model, span, (flat, plan, *_how(climb)), climb.first_image)
        if climb.lazy and takes_bits(model):
            return self.draw_by(lambda part: self._bits(model, climb, part), span)
        two_labels = n_labels == 2 and model.grid is not None and model.least_weight >= 0
        if climb.lazy and (takes_volume(model) or two_labels):
            quantum = LANES if span.n_samples >= LANES * self.threads.n_threads else 1
            return self._divided_by(lambda part: self._volume(model, climb, part), span, quantum)
        if climb.lazy and n_labels > 2:
            return self.draw_by(lambda part: self._potts(model, climb, part), span)
        if climb.perturbation.scheme == NONE and climb.start == PERTURBED and not model.coupled:
            return self.draw_by(lambda part: _still(model, part), span)
        return self._general("climb_sites", model, span, (model.flat, *_how(climb)), climb.first_image)

    def add_fields(self, model: ModelView, climb: Climb, span: Span) -> Array:
        """Add the error fields of one sample to the unaries of a span."""
        assert climb.fields is not None
        lo, hi, sample, _ = span
        n_axes = 2 if model.volume is None else 3
        fields, moves = drawn_fields(climb, Span(lo, hi, sample, 1), model.unary.dtype.type, n_axes)
        unary = np.empty(model.unary.shape, model.unary.dtype)
        window: tuple[Any, ...] = (0, 0, 0, 0)
        if model.volume is not None:
            # Without steps, one compiled kernel serves all volumes.
            add, window = self.kernel_of("add_volume_fields"), model.volume._replace(steps=())
        elif model.window is not None:
            add, window = self.kernel_of("add_fields"), model.window[:4]
        else:
            add = kernel_of("reference", "add_fields")
        key, image = climb.perturbation[2:], climb.first_image + lo
        add(model.unary[lo:hi], window, fields, moves, key, image, sample, unary[lo:hi])
        return unary

    def perturb_and_max_product(
        self, model: ModelView, plan: Any, perturbation: Perturbation, max_sweeps: int, first_image: int, span: Span
    ) -> HostDrawn:
        limits = (plan.damping, plan.undamped, plan.tolerance, max_sweeps)
        given = (model.flat, perturbation, (plan.order, outward(model.structure, None)), limits)
        return self._general("perturb_and_max_product", model, span, given, first_image)

    def draw_by(self, work: Work, span: Span) -> HostDrawn:
        """Draw with a function of parts of a span."""
        return self._divided_by(work, span, QUANTUM)

    def _divided_by(self, work: Work, span: Span, quantum: int) -> HostDrawn:
        """Draw in threads, which divide the images or, if these are too few, multiples of ``quantum`` samples."""
        lo, hi, first, count = span
        n_threads = self.threads.n_threads
        if hi - lo >= n_threads or count <= quantum:
            parts = [Span(lo + a, lo + b, first, count) for a, b in ranges(hi - lo, n_threads)]
        else:
            bounds = [(quantum * a, min(quantum * b, count)) for a, b in ranges(-(-count // quantum), n_threads)]
            parts = [Span(lo, hi, first + a, b - a) for a, b in bounds]
        arrays, sweeps = zip(*self.threads.map(work, [(part,) for part in parts]), strict=True)
        return HostDrawn(span, parts, list(arrays), list(sweeps))

    def _general(
        self, operation: str, model: ModelView, span: Span, given: tuple[Any, ...], first_image: int
    ) -> HostDrawn:
        """Draw with an operation ``(*given, first_image, lo, hi, first, labels)`` that returns sweeps."""
        kernel, (_, n_sites, n_labels) = self.kernel_of(operation), model.unary.shape

        def work(part: Span) -> tuple[Array, Array]:
            labels = np.empty((part.hi - part.lo, n_sites, part.n_samples), label_dtype(n_labels))
            return labels, kernel(*given, first_image, part.lo, part.hi, part.first, labels)

        return self.draw_by(work, span)

    def _with_fields(self, model: ModelView, climb: Climb, span: Span) -> HostDrawn:
        """Climb with error fields: samples have different unaries and are drawn one by one."""
        if takes_fields(model, climb):
            by_row(model)  # computed here, before threads share it
            return self._divided_by(lambda part: self._fields(model, climb, part), span, LANES)
        lo, hi, first, count = span
        # Lazy climbs on grids share noise between samples, so they begin at multiples of QUANTUM only.
        plain = replace(climb, fields=None, lazy=climb.lazy and takes_volume(model))
        drawn = [
            self.climb(model.with_unary(self.add_fields(model, climb, Span(lo, hi, m, 1))), plain, Span(lo, hi, m, 1))
            for m in range(first, first + count)
        ]
        labels = np.concatenate([one.labels() for one in drawn], axis=2)
        return HostDrawn(span, [span], [labels], [array for one in drawn for array in one.sweeps])

    def _fields(self, model: ModelView, climb: Climb, part: Span) -> tuple[Array, Array]:
        """Climb by single sites with error fields, on a 4-connected grid with Potts weights >= 0."""
        labels = np.empty((part.hi - part.lo, model.unary.shape[1], part.n_samples), np.uint8)
        drawn = drawn_fields(climb, part, model.unary.dtype.type)
        given = (of_images(by_row(model), part.lo, part.hi), *drawn)
        return labels, self.kernel_of("climb_fields")(_on_grid(model, climb, part, model.unary.dtype), *given, labels)

    def _potts(self, model: ModelView, climb: Climb, part: Span) -> tuple[Array, Array]:
        """Climb by single sites on a 4-connected grid with Potts weights >= 0, with lazy noise."""
        labels = np.empty((part.hi - part.lo, model.unary.shape[1], part.n_samples), np.uint8)
        return labels, self.kernel_of("climb_potts")(_on_grid(model, climb, part, model.unary.dtype), labels)

    def _volume(self, model: ModelView, climb: Climb, part: Span) -> tuple[Array, Array]:
        """Climb by single sites on a volume or a grid with Potts weights >= 0, with lazy noise."""
        labels = np.empty((part.hi - part.lo, model.unary.shape[1], part.n_samples), np.uint8)
        noise = (*climb.perturbation[1:], climb.first_image + part.lo, part.first)
        where: tuple[Any, ...]
        if model.volume is not None:
            where = (model.volume.corner, model.volume.plane_shape)
        else:
            assert model.grid is not None
            where = ((model.grid.row, 0, model.grid.column), (1, model.grid.whole_width))
        own, links = of_images(model.unary, part.lo, part.hi), links_of(model, part.lo, part.hi)
        job = VolumeClimb(own, links, *noise, climb.start, _given(climb, part), *where, climb.max_sweeps)
        return labels, self.kernel_of("climb_volume")(job, labels)

    def _bits(self, model: ModelView, climb: Climb, part: Span) -> tuple[Array, Array]:
        """Climb by single sites on a 4-connected grid with two labels and Potts weights, 64 samples per word.

        Sums are rounded differently from other climbs, so a window always uses the implementation of the whole grid.
        """
        words = np.empty((part.hi - part.lo, model.unary.shape[1]), np.uint64)
        on_grid = _on_grid(model, climb, part, np.dtype(np.float64))
        return words, self.kernel_of("climb_bits")(on_grid, part.n_samples, words)


def takes_fields(model: ModelView, climb: Climb) -> bool:
    """Return whether `climb_fields` applies: single sites, and Potts weights >= 0 on a 4-connected grid."""
    attractive = model.grid is not None and model.least_weight >= 0
    return attractive and climb.blocks is None and model.unary.shape[2] <= MAX_LABELS


def takes_volume(model: ModelView) -> bool:
    """Return whether `climb_volume` applies to a volume: Potts weights >= 0."""
    return model.volume is not None and model.least_weight >= 0 and model.unary.shape[2] <= MAX_LABELS


def links_of(model: ModelView, lo: int = 0, hi: int | None = None) -> VolumeLinks:
    """Return the edges of a volume and their Potts weights in images lo..hi; a 4-connected grid has a row per plane."""
    weights = model.step_weights(model.unary.dtype)
    mine = tuple(w if len(w) == 1 or hi is None else of_images(w, lo, hi) for w in weights)
    if model.volume is not None:
        return VolumeLinks(model.volume.shape, model.volume.steps, mine)
    assert model.grid is not None
    return VolumeLinks((model.grid.height, 1, model.grid.width), ((0, 0, 1), (1, 0, 0)), mine)


def by_row(model: ModelView) -> Array:
    """Return the unaries of a grid by row and label, (N, H, L, W), cached."""
    if "by_row" not in model.cache:
        assert model.grid is not None
        unary = model.unary.reshape(len(model.unary), model.grid.height, model.grid.width, -1)
        model.cache["by_row"] = frozen(np.ascontiguousarray(unary.swapaxes(2, 3)))
    return model.cache["by_row"]


def drawn_fields(climb: Climb, part: Span, dtype: type, n_axes: int = 2) -> tuple[Fields, Moves]:
    """Return the fields of the images of a part, with offsets and phases of its samples."""
    assert climb.fields is not None
    mine = fields_of_images(climb.fields, part.lo, part.hi)
    images = range(climb.first_image + part.lo, climb.first_image + part.hi)
    samples = range(part.first, part.first + part.n_samples)
    return mine, draw_moves(mine, climb.perturbation[2:], images, samples, dtype, n_axes)


def takes_bits(model: ModelView) -> bool:
    """Return whether `climb_bits` applies: two labels, Potts weights and a 4-connected grid of limited size."""
    two_labels = model.potts and model.unary.shape[2] == 2
    return two_labels and model.grid is not None and model.grid.whole_sites <= MAX_BIT_SITES


def _how(climb: Climb) -> tuple[Any, ...]:
    given = np.empty((0, 0), np.int64) if climb.given is None else climb.given
    return climb.perturbation, climb.start, given, climb.max_sweeps


def _still(model: ModelView, part: Span) -> tuple[Array, Array]:
    """Return the argmax of the unaries: without noise and coupling, it is the maximum and no sweep is needed."""
    _, n_sites, n_labels = model.unary.shape
    labels = np.empty((part.hi - part.lo, n_sites, part.n_samples), label_dtype(n_labels))
    labels[...] = of_images(model.unary, part.lo, part.hi).argmax(axis=2)[:, :, None]
    return labels, np.zeros((part.hi - part.lo, part.n_samples), np.int32)


def _on_grid(model: ModelView, climb: Climb, part: Span, dtype: Any) -> GridClimb:
    """Return the kernel's arguments for a range of images and samples, with weights of the given dtype."""
    assert model.grid is not None
    unary = of_images(model.unary, part.lo, part.hi)
    right, down = (w if len(w) == 1 else of_images(w, part.lo, part.hi) for w in model.direction_weights(dtype))
    noise = (*climb.perturbation[1:], climb.first_image + part.lo, part.first)
    window = (model.grid.row, model.grid.column, model.grid.whole_width)
    return GridClimb(unary, right, down, *noise, climb.start, _given(climb, part), *window, climb.max_sweeps)


def _given(climb: Climb, part: Span) -> Array:
    """Return the labels from which the images of a part start, if they are given, as bytes."""
    if climb.start != GIVEN:
        return np.empty((0, 0), np.uint8)
    assert climb.given is not None
    return climb.given[part.lo : part.hi].astype(np.uint8)
