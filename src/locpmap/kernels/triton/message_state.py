"""Message passing on a GPU: many sweeps per launch; the host waits for the device only when it reads a result."""

from typing import Any

import torch

from locpmap.arrays import place_like
from locpmap.kernels.message_plan import Domain, find_domain, linear_weights, to_logarithms
from locpmap.kernels.model import UNVISITED, Array
from locpmap.kernels.spec import ModelView
from locpmap.kernels.trees import is_forest, lists_of, outward, shared_out, there_and_back
from locpmap.kernels.triton.messages.beliefs import bethe_edges, forest_log_partitions, log_beliefs
from locpmap.kernels.triton.messages.decode_messages import decode_messages
from locpmap.kernels.triton.messages.sweep_messages import DeviceMessages, DevicePlan, pass_messages


class Passing:
    """The message-passing operations of the contract."""

    def plan_messages(self, model: ModelView, schedule: str, damping: float, tolerance: float) -> DevicePlan:
        structure, grid = model.structure, model.grid
        forest = len(model.flat.edges) < model.unary.shape[1] and is_forest(lists_of(structure))
        damping = 0.0 if forest else float(damping)
        if schedule == "coloured" or (schedule == "auto" and not forest):
            whole = grid is not None and model.unary.shape[1] > 1
            shape = (grid.height, grid.width, (grid.row + grid.column) % 2) if grid and whole else None
            return DevicePlan(model.flat.order, damping, float(tolerance), grid=shape)
        order, ends = there_and_back(structure)
        tolerance = 0.0 if forest else float(tolerance)
        return DevicePlan(place_like(model.unary, order), damping, tolerance, exact=forest, ends=ends)

    def start_messages(
        self, model: ModelView, plan: DevicePlan, *, maximise: bool = False, n_forests: int = 0
    ) -> DeviceMessages:
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
            state.parents, rho = shared_out(model.structure, n_forests, str(unary.device))
            state.rho = rho.to(messages.dtype)
        if domain is not None and domain.n_linear:
            state.weights = linear_weights(unary)
            if not domain.all_linear:
                messages += domain.linear[:, None, None]
        return state

    def send(self, model: ModelView, messages: DeviceMessages, n_sweeps: int) -> None:
        """Perform up to ``n_sweeps`` sweeps in one launch, until no site is dirty."""
        exact, domain = messages.plan.exact, messages.domain
        n_sweeps = 1 if exact else n_sweeps
        answers = []
        if domain is not None and domain.n_linear:
            answers.append(pass_messages(model.flat, messages, n_sweeps, linear=True))
        if domain is None or not domain.all_linear:
            answers.append(pass_messages(model.flat, messages, n_sweeps))
        messages.launched = messages.made + n_sweeps
        if exact:
            messages.made = 1  # exact after one sweep, so no convergence check
        else:
            messages.unread = answers

    def log_beliefs(self, model: ModelView, messages: DeviceMessages) -> tuple[Array, Array]:
        """Return log beliefs and normalisers; linear-domain messages are converted to logarithms in place."""
        return log_beliefs(model.flat, to_logarithms(messages.messages, messages.domain), messages.rho)

    def bethe_edges(self, model: ModelView, messages: DeviceMessages, beliefs: Array) -> Array:
        return bethe_edges(model.flat, messages.messages, beliefs)

    def decode_messages(self, model: ModelView, messages: DeviceMessages) -> Array:
        labels = torch.empty(model.unary.shape[:2], dtype=torch.int64, device=model.unary.device)
        decode_messages(model.flat, decode_order(model), messages.messages, labels)
        return labels

    def forest_log_partitions(self, model: ModelView, messages: DeviceMessages, *, maximise: bool = False) -> Array:
        return forest_log_partitions(model.flat, messages.messages, messages.rho, messages.parents, maximise)


def decode_order(model: ModelView) -> Array:
    """Return the sites in breadth-first order, (S,)."""
    return outward(model.structure, str(model.unary.device))


def _domain(model: ModelView) -> Domain:
    """Return the domain (log or linear) of each image's messages; cached for Potts models, as it waits for the GPU."""
    if "domain" not in model.cache:
        domain = find_domain(model.flat)
        if not model.potts:
            return domain
        model.cache["domain"] = domain
    return model.cache["domain"]
