"""Message passing on the CPU.  A site is *dirty*, and sends, if an incoming message changed since it last sent."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from locpmap.arrays import frozen
from locpmap.kernels.cpu.dispatch import Dispatch
from locpmap.kernels.message_plan import Domain, MessagePlan, find_domain, linear_weights, to_logarithms
from locpmap.kernels.model import UNVISITED, Array, Model
from locpmap.kernels.spec import ModelView
from locpmap.kernels.threads import ranges
from locpmap.kernels.trees import is_forest, outward, spanning_forests


@dataclass
class HostMessages:
    """The messages of all images; an image without a dirty site has converged."""

    messages: Array  # (N, 2E, L) float64
    dirty: Array  # (N, S) marks of dirty sites, see `model`
    plan: MessagePlan
    maximise: bool
    rho: Array  # (E,) fraction of the forests that contain an edge; 1 without forests
    linear: Array  # (N,) whether an image's messages are in the linear domain
    domain: Domain | None = None  # for sum-product only
    weights: Array | None = None  # (N, S, L) `linear_weights`, if any image is linear
    forests: tuple[Array, Array] | None = None  # orders and parents, each (K, S)
    sweeps: int = 0
    settled: bool = False

    @property
    def launched(self) -> int:
        """Number of sweeps performed."""
        return self.sweeps

    @property
    def converged(self) -> bool:
        """Whether no site is dirty, or one sweep was exact."""
        return (self.sweeps > 0 and self.plan.exact) or self.settled

    @property
    def damping(self) -> float:
        """The damping of the next sweep."""
        return self.plan.damping if self.sweeps >= self.plan.undamped else 0.0


class Passing(Dispatch):
    """The message-passing operations of the contract."""

    def plan_messages(self, model: ModelView, schedule: str, damping: float, tolerance: float) -> MessagePlan:
        """Return a plan by colour classes, or along a breadth-first forest from the leaves to the roots and back.

        On a graph without cycles, one sweep along the forest is exact, and "auto" selects it.
        """
        flat = model.flat
        forest = is_forest(flat)
        damping = 0.0 if forest else float(damping)
        if schedule == "coloured" or (schedule == "auto" and not forest):
            return MessagePlan(flat.order, True, damping, float(tolerance), exact=False)
        onward = outward(model.structure, None)
        order = frozen(np.concatenate([onward[::-1], onward]))
        return MessagePlan(order, False, damping, 0.0 if forest else float(tolerance), exact=forest)

    def start_messages(
        self, model: ModelView, plan: MessagePlan, *, maximise: bool = False, n_forests: int = 0
    ) -> HostMessages:
        """Return uniform messages; every site is dirty."""
        flat = model.flat
        n_images, n_sites, n_labels = flat.unary.shape
        shape, rho = (n_images, 2 * len(flat.edges), n_labels), np.ones(len(flat.edges))
        dirty, nowhere = np.full((n_images, n_sites), UNVISITED, np.uint8), np.zeros(n_images, bool)
        if maximise or n_forests:
            state = HostMessages(np.zeros(shape), dirty, plan, maximise, rho, nowhere)
            if n_forests:
                forests, state.rho = spanning_forests(flat, n_forests)
                orders, parents = (np.stack(arrays) for arrays in zip(*forests, strict=True))
                state.forests = orders, parents
            return state
        domain = find_domain(flat)
        messages = np.full(shape, domain.linear[:, None, None], np.float64)  # 1 in the linear domain, otherwise 0
        weights = linear_weights(flat.unary) if domain.n_linear else None
        return HostMessages(messages, dirty, plan, maximise, rho, domain.linear, domain, weights)

    def send(self, model: ModelView, messages: HostMessages, n_sweeps: int) -> None:
        domain = messages.domain
        for _ in range(n_sweeps):
            limits = (messages.damping, messages.plan.tolerance)
            if domain is not None and domain.n_linear:
                self._pass("pass_linear", model.flat, messages, messages.weights, domain.couplings, *limits)
            if domain is None or not domain.all_linear:
                self._pass("pass_messages", model.flat, messages, messages.rho, messages.maximise, *limits)
            messages.sweeps += 1
            messages.settled = not messages.dirty.any()
            if messages.converged:
                return

    def _pass(self, operation: str, model: Model, messages: HostMessages, *options: Any) -> None:
        """Run one sweep in the order of the plan."""
        plan = messages.plan
        state = (plan.order, messages.messages, messages.dirty, messages.linear, *options)
        if plan.coloured:
            self.sweep(operation, model, *state, n_active=int(np.count_nonzero(messages.dirty)))
        else:
            self.by_images(operation, model, *state, more=(0, len(plan.order)))

    def log_beliefs(self, model: ModelView, messages: HostMessages) -> tuple[Array, Array]:
        """Return log beliefs and normalisers; messages in the linear domain are converted to logarithms in place."""
        values = to_logarithms(messages.messages, messages.domain)
        beliefs, normalisers = np.empty(model.unary.shape), np.empty(model.unary.shape[:2])
        self.sweep("log_beliefs", model.flat, values, messages.rho, beliefs, normalisers)
        return beliefs, normalisers

    def bethe_edges(self, model: ModelView, messages: HostMessages, beliefs: Array) -> Array:
        terms = np.empty(model.unary.shape[:2])
        self.sweep("bethe_edges", model.flat, messages.messages, beliefs, terms)
        return terms

    def decode_messages(self, model: ModelView, messages: HostMessages) -> Array:
        labels = np.empty(model.unary.shape[:2], np.int64)
        self.by_images("decode_messages", model.flat, outward(model.structure, None), messages.messages, labels)
        return labels

    def forest_log_partitions(self, model: ModelView, messages: HostMessages, *, maximise: bool = False) -> Array:
        assert messages.forests is not None
        orders, parents = messages.forests
        values = np.empty((len(model.unary), len(orders)))
        common = (model.flat, messages.messages, messages.rho, orders, parents, values, maximise)
        parts = ranges(len(values), self.threads.n_threads)
        jobs = [(*common, lo, hi, t, t + 1) for lo, hi in parts for t in range(len(orders))]
        self.threads.map(self.kernel_of("forest_log_partitions"), jobs)
        return values
