"""Sampling on a GPU: climbs, the size of their rounds, and totals of the samples."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from locpmap.arrays import frozen, of_images
from locpmap.errors import BackendError
from locpmap.kernels.block_plan import MAX_LINE_LABELS
from locpmap.kernels.cpu.sampling import drawn_fields, links_of, takes_fields, takes_volume
from locpmap.kernels.cpu.totals import ROUND_BYTES, round_of
from locpmap.kernels.fields import no_fields
from locpmap.kernels.model import UNIT, Array
from locpmap.kernels.perturbation import NONE, PERTURBED, RANDOM, Perturbation
from locpmap.kernels.reference.add_fields import clustered
from locpmap.kernels.spec import Climb, ModelView, Span, Work
from locpmap.kernels.triton.climb.add_fields import add_fields, terms_of
from locpmap.kernels.triton.climb.climb_blocks import climb_blocks
from locpmap.kernels.triton.climb.climb_fields import climb_fields
from locpmap.kernels.triton.climb.climb_lines import climb_lines
from locpmap.kernels.triton.climb.climb_potts import climb_potts
from locpmap.kernels.triton.climb.climb_sites import climb_sites
from locpmap.kernels.triton.climb.potts_grid import Field, grid_field, volume_field
from locpmap.kernels.triton.count import conditionals, grid_conditionals, votes
from locpmap.kernels.triton.message_state import decode_order
from locpmap.kernels.triton.messages.perturb_and_max_product import perturb_and_max_product
from locpmap.kernels.triton.philox import Draw

MAX_ITEMS = 2**31 - 2**16  # limit of sites times samples of an image for 32-bit indices; 64-bit ones are slower
MAX_GRID_LABELS = 32  # limit of `grid_conditionals`, where a lane holds all labels of a site
SAMPLE_BYTES = 6  # per site of a sample of `climb_fields`, in addition to one score


@dataclass(frozen=True, eq=False)
class DeviceDrawn:
    """Samples of a span: labels (n, S, count) with any strides."""

    span: Span
    array: Array
    sweeps: list[Array]

    def labels(self) -> Array:
        return self.array


@dataclass
class DeviceTotals:
    """Totals (N, S, L): votes, or probabilities, which integers hold in units of 1 / UNIT."""

    conditional: bool
    counts: Array


class Sampling:
    """The sampling operations of the contract."""

    def climb(self, model: ModelView, climb: Climb, span: Span) -> DeviceDrawn:
        """Climb with the fastest kernel that supports the model."""
        if climb.fields is not None:
            return self._with_fields(model, climb, span)
        if _on_volume(model, climb):
            return self._fields(model, replace(climb, fields=no_fields(model.unary.shape[2])), span)
        lo, hi, _, count = span
        unary, grid = model.unary, model.grid if model.potts else None
        lines = grid is not None and climb.blocks is not None and _is_lines(climb.blocks.named, model)
        if grid is not None and (lines or (climb.blocks is None and climb.lazy)):
            on_grid = climb_lines if lines else climb_potts
            labels, sweeps = on_grid(*_of_grid(model, lo, hi), grid, climb, span)
            return DeviceDrawn(span, labels, [sweeps])
        labels = torch.empty((hi - lo, unary.shape[1], count), dtype=torch.int16, device=unary.device)
        greedy = climb.blocks is None and climb.perturbation.scheme == NONE and climb.start == PERTURBED
        if greedy and not model.coupled:
            # Without noise and couplings, the start at the best labels is already the maximum.
            labels[...] = of_images(unary, lo, hi).argmax(dim=2)[:, :, None]
            return DeviceDrawn(span, labels, [torch.zeros((hi - lo, count), dtype=torch.int32, device=labels.device)])
        by = climb_sites if climb.blocks is None else climb_blocks
        return DeviceDrawn(span, labels, [by(model.flat, climb, span, labels)])

    def perturb_and_max_product(
        self, model: ModelView, plan: Any, perturbation: Perturbation, max_sweeps: int, first_image: int, span: Span
    ) -> DeviceDrawn:
        given = (plan, perturbation, decode_order(model), max_sweeps, first_image, span)
        labels, sweeps = perturb_and_max_product(model.flat, *given)
        return DeviceDrawn(span, labels, [sweeps])

    def add_fields(self, model: ModelView, climb: Climb, span: Span) -> Array:
        """Add the error fields of one sample to the unaries of a span; those of graphs are computed on the host."""
        lo, hi, sample, _ = span
        window = model.volume or model.window
        mine, moves = drawn_fields(climb, Span(lo, hi, sample, 1), np.float64, 2 if model.volume is None else 3)
        unary, out = of_images(model.unary, lo, hi), torch.empty_like(model.unary)
        key, image = climb.perturbation[2:], climb.first_image + lo
        if window is None:
            values = torch.from_numpy(moves.offsets).to(unary)
            if mine.clusters.size:
                factors = np.broadcast_to(mine.factors, (hi - lo, *mine.factors.shape[1:]))
                each = [clustered(factors[n], mine, key, image + n, sample) for n in range(hi - lo)]
                values = values + torch.from_numpy(np.stack(each)).to(unary.device)
            out[lo:hi] = unary + values
        else:
            terms = terms_of(mine, moves, window, Draw(*key, image, sample), unary)
            add_fields(unary, terms, out[lo:hi])
        return out

    def _with_fields(self, model: ModelView, climb: Climb, span: Span) -> DeviceDrawn:
        """Climb with error fields: all samples together on attractive grids and volumes, else one by one."""
        if takes_fields(model, climb) or _on_volume(model, climb):
            return self._fields(model, climb, span)
        lo, hi, first, count = span
        # Lazy climbs on grids share noise between samples, so they begin at multiples of QUANTUM only.
        plain = replace(climb, fields=None, lazy=climb.lazy and takes_volume(model))
        parts = [Span(lo, hi, m, 1) for m in range(first, first + count)]
        drawn = [self.climb(model.with_unary(self.add_fields(model, climb, part)), plain, part) for part in parts]
        labels = torch.cat([one.array for one in drawn], dim=2)
        return DeviceDrawn(span, labels, [array for one in drawn for array in one.sweeps])

    def _fields(self, model: ModelView, climb: Climb, span: Span) -> DeviceDrawn:
        """Climb by single sites with error fields, with Potts weights >= 0 on a grid or volume."""
        lo, hi, first, count = span
        unary, window = of_images(model.unary, lo, hi), model.volume or model.grid
        assert window is not None
        labels = torch.empty((hi - lo, count, unary.shape[1]), dtype=torch.uint8, device=unary.device)
        draw = Draw(*climb.perturbation[2:], climb.first_image + lo, first)
        mine, moves = drawn_fields(climb, span, np.float64, 2 if model.volume is None else 3)
        terms = terms_of(mine, moves, window, draw, unary)
        given = climb.given if climb.given is None else of_images(climb.given, lo, hi).to(torch.uint8)
        # A copy by label is faster to read, but takes the memory of several samples of a volume.
        scores = unary.transpose(1, 2) if model.volume is not None else of_images(_by_label(model), lo, hi)
        sweeps = climb_fields(scores, _field_of(model, lo, hi), terms, draw, climb, given, labels)
        return DeviceDrawn(span, labels.transpose(1, 2), [sweeps])

    def draw_by(self, work: Work, span: Span) -> DeviceDrawn:
        """Raise `BackendError`: this backend cannot draw on the host."""
        raise BackendError("backend 'triton' draws by kernels only: use backend='numba' for draws by the host")

    def start_totals(self, model: ModelView, kind: str, max_samples: int, *, fields: bool = False) -> DeviceTotals:
        """Return zeroed totals."""
        conditional, unary = kind == "conditional", model.unary
        # Sums of a volume are in the precision of the unaries: integers would take twice the memory of the unaries.
        real = model.volume is not None and _without_lists(model)
        dtype = torch.int32 if not conditional else unary.dtype if real else torch.int64
        return DeviceTotals(conditional, torch.zeros(tuple(unary.shape), dtype=dtype, device=unary.device))

    def round_size(self, model: ModelView, totals: DeviceTotals, most: int) -> tuple[int, int]:
        """Return the samples and images of a round, limited by the memory for perturbed scores and their inputs."""
        _, n_sites, n_labels = model.unary.shape
        if takes_volume(model) and _has_faces(model):
            held, scores = totals.counts.nbytes, model.unary.nbytes
            each = n_sites * (SAMPLE_BYTES + model.unary.itemsize)
            room = min(ROUND_BYTES + max(0, 2 * scores - held), gpu_room(model.unary.device)) // each
            count = max(1, min(most, room, MAX_ITEMS // n_sites))
            return count, max(1, room // count)
        room = gpu_room(model.unary.device) // (n_sites * (n_labels + 2) * model.unary.itemsize)
        return round_of(most, min(room, MAX_ITEMS // n_sites), room, 0)

    def tally(self, model: ModelView, drawn: DeviceDrawn, totals: DeviceTotals, begin: int, stop: int) -> None:
        """Add votes or conditional probabilities to the totals."""
        lo, hi, _, _ = drawn.span
        mine = of_images(totals.counts, lo, hi)
        if not totals.conditional:
            votes(drawn.array, mine, begin, stop)
        elif _without_lists(model):
            grid_conditionals(of_images(model.unary, lo, hi), _field_of(model, lo, hi), drawn.array, mine, begin, stop)
        else:
            conditionals(model.flat, drawn.array, mine, lo, begin, stop)

    def read_totals(self, model: ModelView, totals: DeviceTotals, n_samples: int) -> tuple[Array, Array]:
        unary = model.unary
        if totals.counts.dtype == unary.dtype:
            probability = totals.counts.div_(n_samples)
        elif totals.conditional:
            probability = (totals.counts.to(torch.float64) / (UNIT * n_samples)).to(unary.dtype)
        else:  # torch converts and divides integers in one pass in single precision
            counts = totals.counts if unary.dtype == torch.float32 else totals.counts.to(unary.dtype)
            probability = counts / n_samples
        return probability, probability.argmax(dim=2)


def _by_label(model: ModelView) -> Array:
    """Return the unaries by label, (N, L, S), cached."""
    if "by_label" not in model.cache:
        model.cache["by_label"] = frozen(model.unary.transpose(1, 2).contiguous())
    return model.cache["by_label"]


def _is_lines(blocks: Any, model: ModelView) -> bool:
    """Return whether blocks are whole rows or columns that `climb_lines` supports."""
    whole = isinstance(blocks, str) and ":" not in blocks
    return whole and model.least_weight >= 0 and model.unary.shape[2] <= MAX_LINE_LABELS


def _on_volume(model: ModelView, climb: Climb) -> bool:
    """Return whether `climb_fields` applies to a volume: Potts weights >= 0, 6 neighbours, lazy noise or none."""
    if climb.blocks is not None or not takes_volume(model) or not _has_faces(model):
        return False
    return climb.lazy or (climb.perturbation.scheme == NONE and climb.start != RANDOM)


def _has_faces(model: ModelView) -> bool:
    """Return whether the model is a volume with 6 neighbours."""
    return model.volume is not None and len(model.volume.steps) == 3


def _without_lists(model: ModelView) -> bool:
    """Return whether `grid_conditionals` applies."""
    return model.potts and model.unary.shape[2] <= MAX_GRID_LABELS and (model.grid is not None or _has_faces(model))


def _field_of(model: ModelView, lo: int, hi: int) -> Field:
    """Return the grid or volume with the weights of images lo..hi."""
    if model.volume is not None:
        return volume_field(links_of(model, lo, hi).weights, model.volume)
    assert model.grid is not None
    return grid_field(*_of_grid(model, lo, hi)[1:], model.grid)


def _of_grid(model: ModelView, lo: int, hi: int) -> tuple[Array, Array, Array]:
    """Return unaries and weights of images lo..hi; weights shared by all images are returned as they are."""
    right, down = (w if w.shape[0] == 1 else of_images(w, lo, hi) for w in model.direction_weights(model.unary.dtype))
    return of_images(model.unary, lo, hi), right, down


def gpu_room(device: Any) -> int:
    """Return the memory budget of a round in bytes: a quarter of the GPU's memory."""
    return ROUND_BYTES if device.type != "cuda" else torch.cuda.get_device_properties(device).total_memory // 4
