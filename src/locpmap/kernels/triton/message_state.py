"""Message passing on a GPU: many sweeps in one launch, and nobody waits before an answer is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from locpmap.arrays import place_beside
from locpmap.kernels.message_plan import UNDAMPED_SWEEPS, Domain, find_domain, linear_weights
from locpmap.kernels.model import UNVISITED, Array
from locpmap.kernels.spec import ModelView
from locpmap.kernels.trees import is_forest, lists_of, outward, shared_out, there_and_back
from locpmap.kernels.triton.messages.decode_messages import decode_messages
from locpmap.kernels.triton.messages.forest_log_partitions import forest_log_partitions
from locpmap.kernels.triton.messages.log_beliefs import bethe_edges, log_beliefs
from locpmap.kernels.triton.messages.sweep_messages import pass_linear, pass_messages


class DevicePlan(NamedTuple):
    """How messages are passed on one graph."""

    order: Array  # sites in the order in which a sweep lets them send
    layout: dict[str, Any]  # levels of sites to visit at once, or which grid the order is of
    damping: float
    tolerance: float
    exact: bool  # whether one sweep says all there is to say
    undamped: int = UNDAMPED_SWEEPS


@dataclass
class DeviceMessages:
    """Messages on the way.  An image without a dirty site has converged and is left alone."""

    messages: Array  # (N, 2E, L) as the unaries
    dirty: Array  # (N, S) marks of the sites that have something new to say
    plan: DevicePlan
    maximise: bool
    linear: Array  # (N,) images kept without logarithms
    rho: Array | None = None  # (E,) share of the forests that hold an edge; None without forests
    domain: Domain | None = None  # of sum-product
    weights: Array | None = None  # (N, S, L) `linear_weights`, where an image is linear
    forests: tuple[Array, Array] | None = None  # orders and parents, (K, S)
    launched: int = 0
    made: int = 0  # sweeps that are known of
    settled: bool = False  # whether no site is dirty
    unread: list[Any] = field(default_factory=list)  # which sweeps of the last launch visited a site

    @property
    def sweeps(self) -> int:
        """The sweeps made; waits for the device."""
        if self.unread:
            visited = [answer.tolist() for answer in self.unread]
            self.made += max(sum(sweeps[:-1]) for sweeps in visited)
            self.settled = not any(sweeps[-1] for sweeps in visited)
            self.unread = []
        return self.made

    @property
    def converged(self) -> bool:
        """Whether no site has anything new to say; waits for the device."""
        return (self.sweeps > 0 and self.plan.exact) or self.settled


class Passing:
    """The message-passing operations of the contract."""

    def plan_messages(self, model: ModelView, schedule: str, damping: float, tolerance: float) -> DevicePlan:
        """Plan by colour classes, or by a breadth-first forest from the leaves to the roots and back."""
        structure, grid = model.structure, model.grid
        forest = len(model.flat.edges) < model.unary.shape[1] and is_forest(lists_of(structure))
        damping = 0.0 if forest else float(damping)
        if schedule == "coloured" or (schedule == "auto" and not forest):
            whole = grid is not None and model.unary.shape[1] > 1
            layout = {"grid": (grid.height, grid.width, (grid.row + grid.column) % 2)} if grid and whole else {}
            return DevicePlan(model.flat.order, layout, damping, float(tolerance), exact=False)
        order, ends = there_and_back(structure)
        limits = (damping, 0.0 if forest else float(tolerance))
        return DevicePlan(place_beside(model.unary, order), {"ends": ends}, *limits, exact=forest)

    def start_messages(
        self, model: ModelView, plan: DevicePlan, *, maximise: bool = False, n_forests: int = 0
    ) -> DeviceMessages:
        """Start with messages that say nothing."""
        unary, flat = model.unary, model.flat
        n_images, n_sites, n_labels = unary.shape
        make: dict[str, Any] = {"device": unary.device}
        domain = None if maximise or n_forests else _domain(model)
        first = 1.0 if domain is not None and domain.all_linear else 0.0
        messages = torch.full((n_images, 2 * len(flat.edges), n_labels), first, dtype=unary.dtype, **make)
        dirty = torch.full((n_images, n_sites), UNVISITED, dtype=torch.uint8, **make)
        linear = torch.zeros(n_images, dtype=torch.bool, **make) if domain is None else domain.linear
        state = DeviceMessages(messages, dirty, plan, maximise, linear, domain=domain)
        if n_forests:
            orders, parents, rho = shared_out(model.structure, n_forests, str(unary.device))
            state.forests, state.rho = (orders, parents), rho.to(messages.dtype)
        if domain is not None and domain.n_linear:
            state.weights = linear_weights(unary)
            if not domain.all_linear:
                messages += domain.linear[:, None, None]
        return state

    def send(self, model: ModelView, messages: DeviceMessages, n_sweeps: int) -> None:
        """Sweep in one launch until no site is dirty, at most so many times."""
        plan, domain = messages.plan, messages.domain
        n_sweeps = 1 if plan.exact else n_sweeps
        state: tuple[Any, ...] = (model.flat, plan.order, messages.messages, messages.dirty, messages.linear)
        how: tuple[Any, ...] = (plan.damping, plan.tolerance, 0, len(messages.dirty), 0, len(plan.order))
        limits = {"n_sweeps": n_sweeps, "undamped": plan.undamped, "made": messages.sweeps, **plan.layout}
        answers = []
        if domain is not None and domain.n_linear:
            given = (*state, messages.weights, domain.couplings, *how)
            answers.append(pass_linear(*given, **limits))
        if domain is None or not domain.all_linear:
            given = (*state, messages.rho, messages.maximise, *how)
            answers.append(pass_messages(*given, **limits))
        messages.launched = messages.made + n_sweeps
        if plan.exact:
            messages.made = 1  # there is nothing to ask
        else:
            messages.unread = answers

    def log_beliefs(self, model: ModelView, messages: DeviceMessages) -> tuple[Array, Array]:
        """Return log beliefs and normalisers; messages that were kept without logarithms become logarithms."""
        domain, values, unary = messages.domain, messages.messages, model.unary
        if domain is not None and domain.all_linear:
            torch.log(values, out=values)
        elif domain is not None and domain.n_linear:
            for n in torch.argwhere(domain.linear)[:, 0].tolist():
                torch.log(values[n], out=values[n])
        make: dict[str, Any] = {"dtype": values.dtype, "device": unary.device}
        beliefs, normalisers = torch.empty(tuple(unary.shape), **make), torch.empty(tuple(unary.shape[:2]), **make)
        log_beliefs(model.flat, values, messages.rho, beliefs, normalisers, 0, len(unary), 0, unary.shape[1])
        return beliefs, normalisers

    def bethe_edges(self, model: ModelView, messages: DeviceMessages, beliefs: Array) -> Array:
        """Return what the edges add to the Bethe log partition, by the site where they begin."""
        n_images, n_sites, _ = model.unary.shape
        terms = torch.empty((n_images, n_sites), dtype=messages.messages.dtype, device=model.unary.device)
        bethe_edges(model.flat, messages.messages, beliefs, terms, 0, n_images, 0, n_sites)
        return terms

    def decode_messages(self, model: ModelView, messages: DeviceMessages) -> Array:
        """Return labels (N, S)."""
        n_images, n_sites, _ = model.unary.shape
        labels = torch.empty((n_images, n_sites), dtype=torch.int64, device=model.unary.device)
        decode_messages(model.flat, decode_order(model), messages.messages, labels, 0, n_images)
        return labels

    def forest_log_partitions(self, model: ModelView, messages: DeviceMessages) -> Array:
        """Return log partitions (N, K)."""
        assert messages.forests is not None
        orders, parents = messages.forests
        n_images, n_forests = len(model.unary), len(orders)
        values = torch.empty((n_images, n_forests), dtype=torch.float64, device=model.unary.device)
        common = (model.flat, messages.messages, messages.rho, orders, parents, values)
        forest_log_partitions(*common, 0, n_images, 0, n_forests)
        return values


def decode_order(model: ModelView) -> Array:
    """Return the sites in breadth-first order, (S,)."""
    return outward(model.structure, str(model.unary.device))


def _domain(model: ModelView) -> Domain:
    """Return the domain of each image's messages.

    Finding it waits for the GPU, so that what Potts weights come to, 2 numbers per edge, is kept with the model.
    """
    if "domain" not in model.cache:
        domain = find_domain(model.flat)
        if not model.potts:
            return domain
        model.cache["domain"] = domain
    return model.cache["domain"]
