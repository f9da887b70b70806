"""Messages before and after passes of a CPU backend."""

from __future__ import annotations

import numpy as np

from locpmap.kernels.cpu.backend import CpuKernels
from locpmap.kernels.cpu.messages import HostMessages
from locpmap.kernels.message_plan import MessagePlan
from locpmap.kernels.model import UNVISITED
from locpmap.potentials import Potentials


def states_after(
    pot: Potentials, backend: str, maximise: bool, rho: np.ndarray, damping: float, tolerance: float = 1e-9
) -> HostMessages:
    """Return the messages after three passes."""
    state = initial_messages(pot, maximise, rho)
    for _ in range(3):
        CpuKernels(backend)._pass("pass_messages", pot.model, state, rho, maximise, damping, tolerance)
    return state


def initial_messages(pot: Potentials, maximise: bool, rho: np.ndarray) -> HostMessages:
    """Return initial messages, to be passed by colour classes."""
    plan = MessagePlan(pot.model.order, True, 0.0, 0.0, exact=False)
    messages = np.zeros((pot.n_images, 2 * len(pot.model.edges), pot.n_labels))
    dirty = np.full((pot.n_images, pot.n_sites), UNVISITED, np.uint8)
    return HostMessages(messages, dirty, plan, maximise, rho, np.zeros(pot.n_images, bool))
