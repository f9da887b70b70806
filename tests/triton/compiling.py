"""Compile the kernels of every operation for an H200 without a GPU: `python -m tests.triton.compiling`.

Triton's interpreter accepts code that its compiler rejects.  Launches do nothing, so this needs a process of its own:
kernels compiled here must not be launched later.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from tests.support import likelihoods
from tests.triton.placing import place, place_model
from triton._C.libtriton import llvm, passes
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler.compiler import CompiledKernel
from triton.runtime import JITFunction, driver

from locpmap.graphs import Grid
from locpmap.graphs.blocks import plan_blocks
from locpmap.kernels.fields import draw_moves, quantised
from locpmap.kernels.likelihood import Losses, Part, Scores
from locpmap.kernels.message_plan import Domain
from locpmap.kernels.model import UNVISITED, VOTES, GridWindow, VolumeWindow
from locpmap.kernels.perturbation import LAZY, PLAIN, RANDOM, Perturbation
from locpmap.kernels.spec import Blocks, Chain, Climb, Span
from locpmap.kernels.trees import spanning_forests
from locpmap.kernels.triton.adaptation import adaptation
from locpmap.kernels.triton.climb.add_fields import add_fields, terms_of
from locpmap.kernels.triton.climb.climb_blocks import climb_blocks
from locpmap.kernels.triton.climb.climb_fields import climb_fields
from locpmap.kernels.triton.climb.climb_lines import climb_lines
from locpmap.kernels.triton.climb.climb_potts import climb_potts
from locpmap.kernels.triton.climb.climb_sites import climb_sites
from locpmap.kernels.triton.climb.gibbs import gibbs
from locpmap.kernels.triton.climb.mean_field import mean_field, mean_field_bound, score_terms
from locpmap.kernels.triton.climb.potts_grid import grid_field, volume_field
from locpmap.kernels.triton.count import conditionals, grid_conditionals, votes
from locpmap.kernels.triton.guided_mean import guided_mean
from locpmap.kernels.triton.likelihood.block_likelihood import block_likelihood
from locpmap.kernels.triton.likelihood.site_likelihood import site_likelihood
from locpmap.kernels.triton.messages.beliefs import bethe_edges, forest_log_partitions, log_beliefs
from locpmap.kernels.triton.messages.decode_messages import decode_messages
from locpmap.kernels.triton.messages.perturb_and_max_product import perturb_and_max_product
from locpmap.kernels.triton.messages.sweep_messages import DeviceMessages, DevicePlan, pass_messages
from locpmap.kernels.triton.philox import Draw
from locpmap.potentials import Potentials

# Seeds and first numbers that Triton would distinguish: 1, multiples of 16, and what exceeds 32 bits with a sign.
DRAWS = (Draw(0, 5, 0, 1), Draw(1, 2**31 + 5, 1, 16), Draw(5, 0, 16, 0), Draw(2**31 + 5, 1, 5, 8))


class NoGPU:
    """The driver functions that Triton calls before a launch."""

    get_current_device = staticmethod(lambda: 0)
    get_current_stream = staticmethod(lambda device: 0)
    get_current_target = staticmethod(lambda: GPUTarget("cuda", 90, 32))


def main() -> int:
    """Compile all kernels; print errors and return their number."""
    driver.set_active(NoGPU())
    passes.ttgpuir.add_coalesce = lambda manager: None  # this and the next two reject no kernel, and take long
    llvm.optimize_module = lambda *given: None
    CUDABackend.make_cubin = lambda *given: b""
    CompiledKernel._init_handles = lambda kernel: None
    CompiledKernel.launch_metadata = lambda kernel, *given: None
    CompiledKernel.run = property(lambda kernel: lambda *given: None)
    failed = 0
    for draw in DRAWS:
        for kernel, given in (*decoding(draw), *common(draw), *fields(draw), *volumes(draw), *learning()):
            try:
                kernel(*given)
            except Exception as error:
                failed += 1
                sys.stderr.write(f"{kernel.__name__}: {''.join(traceback.format_exception(error))[-2000:]}\n")
        JITFunction._do_compile = compiles_again
    return failed


def compiles_again(kernel: Any, *given: Any) -> None:
    """Raise: the seed, the first image and the first sample may not change what is compiled."""
    raise AssertionError(f"{kernel.__name__} compiles again for another seed, first image or first sample")


def decoding(draw: Draw) -> Iterator[tuple[Any, Any]]:
    """Call each operation once, for a small model in double precision."""
    rng = np.random.default_rng(0)
    grid = Potentials.grid(rng.normal(size=(1, 2, 2, 3)), rng.normal(size=(3, 3)))
    model = place_model(grid)
    right, down = (place(rng.random(shape)) for shape in ((1, 2, 1), (1, 1, 2)))
    labels, given = torch.zeros(1, 4, 2, dtype=torch.uint8), torch.zeros(1, 4, dtype=torch.uint8)
    zeros = torch.zeros(1, 4, 3, dtype=torch.float64)
    marks = torch.full((1, 4), UNVISITED, dtype=torch.uint8)
    beliefs, messages = zeros + 1 / 3, torch.full((1, 8, 3), 0.5, dtype=torch.float64)
    couplings = torch.ones(1, 1, 1, 2, dtype=torch.float64)  # for different and for equal labels
    nowhere, everywhere = torch.tensor([False]), torch.tensor([True])
    forests, rho = spanning_forests(grid.model, 1)
    parents, noise = place(np.stack([forest.parent for forest in forests])), Perturbation(PLAIN, 1.0, *draw[:2])
    potts = place_model(Potentials.grid(grid.unary.reshape(1, 2, 2, 3), 1.0))
    blocks = [Blocks(by, partial(plan_blocks, by, grid.structure, 3)) for by in ((1, 2), "rows")]
    climbs = [Climb(noise, RANDOM, None, 2, draw.first_image, blocks=by) for by in (None, *blocks)]
    lazy = Climb(noise._replace(scheme=LAZY), RANDOM, None, 2, draw.first_image)
    part, window = (Span(0, 1, draw.first_sample, 2), labels), GridWindow(2, 2, 0, 0, 2, 4)
    plan = DevicePlan(model.order, 0.0, 0.0, grid=(2, 2, 0))
    logs = DeviceMessages(messages, marks, plan, True, nowhere)
    linear = DeviceMessages(messages, marks, plan._replace(order=potts.order), False, everywhere, weights=zeros + 1)
    linear.domain = Domain(couplings, everywhere, 1)
    chain = Chain(given.short(), draw[:2], draw.first_image, zeros.int(), VOTES)
    yield bethe_edges, (model, messages, beliefs.log())
    yield climb_blocks, (model, climbs[1], *part)
    yield climb_blocks, (model, climbs[2], *part)
    yield climb_lines, (model.unary, right, down, window, climbs[2], part[0])
    yield climb_potts, (model.unary, right, down, window, climbs[0], part[0])
    yield climb_sites, (model, climbs[0], *part)
    yield climb_sites, (potts, lazy, *part)
    yield conditionals, (model, labels, zeros, 0, 0, 4)
    yield decode_messages, (model, model.order, messages, given.short())
    yield forest_log_partitions, (model, messages, place(rho), parents)
    yield gibbs, (model, chain, 2, True)
    yield grid_conditionals, (model.unary, grid_field(right, down, window), labels, zeros.long(), 0, 4)
    yield log_beliefs, (model, messages, None)
    yield mean_field, (model, beliefs, marks, 1e-3)
    yield mean_field_bound, (model, beliefs)
    yield pass_messages, (potts, linear, 2, True)
    yield pass_messages, (model, logs, 2, False, 1, torch.zeros(1, dtype=torch.int32))
    yield perturb_and_max_product, (model, plan, noise, model.order, 3, draw.first_image, part[0])
    yield score_terms, (model, given.long())
    yield votes, (labels, zeros.int(), 0, 4)


def common(draw: Draw) -> Iterator[tuple[Any, Any]]:
    """Call the most common operations in single precision: sites with two labels, rows and columns with more."""
    right, down = torch.ones(1, 5, 2), torch.ones(1, 4, 3)
    noise, blocks = (
        Perturbation(PLAIN, 1.0, *draw[:2]),
        Blocks("rows+columns", partial(plan_blocks, "rows+columns", Grid(5, 3), 8)),
    )
    by_sites, by_lines = (Climb(noise, RANDOM, None, 9, draw.first_image, blocks=which) for which in (None, blocks))
    part, window = Span(0, 1, draw.first_sample, 8), GridWindow(5, 3, 0, 0, 3, 15)
    two, more = (torch.zeros(1, 15, n_labels) for n_labels in (2, 5))
    yield climb_potts, (two, right, down, window, by_sites, part)
    yield climb_lines, (more, right, down, window, by_lines, part)


def fields(draw: Draw) -> Iterator[tuple[Any, Any]]:
    """Call the climb with error fields, with and without noise, their addition, and the kernels of refining."""
    right, down, window = torch.ones(1, 5, 2), torch.ones(1, 4, 3), GridWindow(5, 3, 0, 0, 3, 15)
    labels = torch.zeros(1, 2, 15, dtype=torch.uint8)
    for n_labels, n_scales, dtype in ((2, 0, torch.float32), (3, 1, torch.float64), (21, 2, torch.float32)):
        sizes, ones = np.ones((1, n_scales, n_labels)), np.ones((1, n_labels))
        errors = quantised(sizes, 2, ones, ones)
        moves = draw_moves(errors, (1, 2), range(1), range(2), np.float64)
        scores = torch.zeros(1, n_labels, 15, dtype=dtype)
        placed = (errors, moves, window, draw, scores)
        yield terms_of, placed
        terms, weights = terms_of(*placed), (right.to(dtype), down.to(dtype))
        for temperature in (0.0, 1.0):
            climb = Climb(Perturbation(PLAIN, temperature, 1, 2), RANDOM, None, 2)
            yield climb_fields, (scores, grid_field(*weights, window), terms, draw, climb, None, labels)
        pixels, image = scores.reshape(5, 3, n_labels), torch.zeros(2, 5, 3, dtype=dtype)
        yield guided_mean, (pixels, image, pixels[..., 0] > 0, np.ones((3, 2), np.int64), 1.0, pixels)
        yield adaptation, (pixels[None], pixels[None], pixels[None, ..., 0] > 0, np.arange(4), (0.5,) * 8, 2)
        yield add_fields, (scores.reshape(1, 15, n_labels), terms, scores.reshape(1, 15, n_labels))


def volumes(draw: Draw) -> Iterator[tuple[Any, Any]]:
    """Call the climb on volumes, with weights per edge and without, its conditionals and its error fields."""
    window = VolumeWindow((2, 3, 5), (0, 1, 2), (9, 9), ((0, 0, 1), (0, 1, 0), (1, 0, 0)))
    labels, ones = torch.zeros(1, 2, 30, dtype=torch.uint8), np.ones((1, 4))
    for n_labels, n_scales, n_edges in ((2, 1, (24, 20, 15)), (4, 2, (1, 1, 1)), (4, 0, (1, 1, 1))):
        errors = quantised(np.ones((1, n_scales, n_labels)), 2, ones[:, :n_labels], ones[:, :n_labels], n_axes=3)
        moves = draw_moves(errors, (1, 2), range(1), range(2), np.float64, n_axes=3)
        unary = torch.zeros(1, 30, n_labels)
        field = volume_field(tuple(torch.ones(1, n) for n in n_edges), window)
        yield terms_of, (errors, moves, window, draw, unary)
        terms, climb = (
            terms_of(errors, moves, window, draw, unary),
            Climb(Perturbation(PLAIN, 1.0, 1, 2), RANDOM, None, 2),
        )
        yield climb_fields, (unary.transpose(1, 2), field, terms, draw, climb, None, labels)
        yield add_fields, (unary, terms, unary)
        yield grid_conditionals, (unary, field, labels.transpose(1, 2), unary, 0, 30)


def learning() -> Iterator[tuple[Any, Any]]:
    """Call the likelihoods, with tables and with Potts weights."""
    for kernel, case in ((block_likelihood, "tiles"), (block_likelihood, "rows"), (site_likelihood, "samples")):
        problem = likelihoods.draw((likelihoods.SITES | likelihoods.BLOCKS)[case])
        tables = problem.scores(problem.weights, problem.tables)
        weights = np.ones((1, len(problem.edges), 1))
        potts = tables._replace(potts=True, features=weights, tables=np.empty((0, 0, 0, 1, 1)))
        for scores in (tables, potts):
            placed = Scores(*(part if isinstance(part, bool) else place(part) for part in scores))
            labels, samples, importance = map(place, (problem.labels, problem.samples, problem.importance))
            value = torch.zeros(2, problem.n_windows, dtype=torch.float64)
            residual = torch.zeros(*samples.shape, problem.case.n_labels, dtype=torch.float64)
            end = (Losses(value, residual, placed.new_gradient()), Part(0, 2, 0, problem.n_windows))
            if kernel is site_likelihood:
                yield kernel, (placed, labels, samples, importance, *end)
            else:
                yield kernel, (placed, problem.plan, labels, importance, *end)


if __name__ == "__main__":
    raise SystemExit(main())
