"""Training a network: batches drawn by number, a rate that rises and falls, checkpoints from which it goes on.

Everything random in a step is a function of the seed and the step's number, so that a training that was interrupted
ends as one that was not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from locpmap.errors import BackendError, InputError, LocpmapError, unknown, whole_number
from locpmap.formats.atomic import PathLike
from locpmap.formats.model_file import read_model, write_model
from locpmap.learning.processes import ALONE, JoinedProcesses, Processes

Draw = Callable[[torch.Generator], tuple[Tensor, Tensor]]  # images (N, C, H, W) and labels (N, H, W) of one step

OPTIMISERS = ("adamw", "sgd")
MOMENTUM = 0.9  # of sgd, the paper's
LOGGED = 50  # losses that a result holds
SECONDS_BETWEEN_CHECKPOINTS = 10.0
STEPS_BETWEEN_CHECKS = 50  # whether the loss is still a number


@dataclass(frozen=True)
class Recipe:
    """How long, on how many images at a time, and how fast.

    The rate rises linearly over the first ``warm_up`` of the steps and falls to 0 along half a cosine over the rest.
    ``slower`` holds factors of the rate of parts of the network, by how the names of their weights begin: what was
    learned from a million images need not be learned again from a few hundred.
    """

    n_steps: int
    learning_rate: float
    batch_size: int = 100
    optimiser: str = "adamw"
    weight_decay: float = 1e-3
    warm_up: float = 0.1
    slower: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.optimiser not in OPTIMISERS:
            raise unknown("optimiser", self.optimiser, OPTIMISERS)
        for name in ("n_steps", "batch_size"):
            whole_number(name, getattr(self, name), 1, 2**31 - 1)
        for name, most in (("learning_rate", math.inf), ("weight_decay", math.inf), ("warm_up", 1)):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < most:
                raise InputError(f"{name} is {value!r}, expected a number from 0 to below {most}")

    def rate(self, step: int) -> float:
        """The learning rate of a step, 0 to n_steps - 1."""
        done, rise = (step + 0.5) / self.n_steps, self.warm_up
        if done < rise:
            return self.learning_rate * done / rise
        return self.learning_rate * (1 + math.cos(math.pi * (done - rise) / (1 - rise))) / 2


@dataclass(frozen=True)
class Training:
    """How a training went."""

    losses: tuple[float, ...]  # means over equal parts of the steps
    seconds: float  # with those of an interrupted run that it went on from, up to its last checkpoint


class DivergedError(LocpmapError, ArithmeticError):
    """A training whose loss is no longer a number."""


def choose_device(device: str) -> torch.device:
    """The device of that name; "auto" is a GPU where there is one."""
    if device not in ("auto", "cpu", "cuda"):
        raise unknown("device", device, ("auto", "cpu", "cuda"))
    if device == "cuda" and not torch.cuda.is_available():
        raise BackendError("device='cuda' was asked for, but torch finds no GPU: use 'cpu' or 'auto'")
    return torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")


def train(
    network: torch.nn.Module,
    draw: Draw,
    recipe: Recipe,
    *,
    seed: int = 0,
    checkpoint: PathLike | None = None,
    progress: Callable[[int, int], None] | None = None,
    processes: Processes = ALONE,
) -> Training:
    """Minimise ``network(*draw(generator))``, the loss in training mode, where the network's weights are.

    Args:
        network: Left in evaluation mode.
        draw: The batch of a step, from a generator that is seeded for the step.
        recipe: Steps, rate, optimiser.
        seed: The seed of all that is drawn.
        checkpoint: A file that keeps the state every few seconds; a training of the same recipe and seed goes on there.
        progress: Called with (steps done, steps in all).
        processes: Those that train together, of `locpmap.learning.joined_processes`: all draw the same batches, put a
            share of the images each through the network, and hold the same weights.  The first one keeps the state,
            from which any number of processes goes on.

    On a GPU convolutions run in bfloat16, losses in single precision.
    """
    device = next(network.parameters()).device
    if device.type == "cuda":
        network.to(memory_format=torch.channels_last)  # what its matrix units read
    optimiser = _optimiser(network, recipe)
    losses = torch.zeros(min(LOGGED, recipe.n_steps), device=device)
    seed = whole_number("seed", seed, 0, 2**63 - 1)
    state = None if checkpoint is None else Path(checkpoint)
    first, before = (0, 0.0) if state is None else _resume(state, network, optimiser, losses, recipe, seed)
    processes.agree(first, "the processes find different checkpoints, expected one file that all can read")
    loss_of = loss_together(network, processes)
    generator = torch.Generator(device)
    network.train()
    began = saved = time.perf_counter()
    for step in range(first, recipe.n_steps):
        generator.manual_seed(int(np.random.SeedSequence((seed, step)).generate_state(1, np.uint64)[0]))
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate(step) * group["factor"]
        images, labels = draw(generator)
        images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = loss_of(images, labels)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        losses[step * len(losses) // recipe.n_steps] += loss.detach()
        if progress is not None and processes.first:
            progress(step + 1, recipe.n_steps)
        now = time.perf_counter()
        due = state is not None and processes.first and now - saved > SECONDS_BETWEEN_CHECKPOINTS
        if due or step % STEPS_BETWEEN_CHECKS == 0 or step + 1 == recipe.n_steps:
            _check(losses, step)
        if state is not None and due:
            header = {"step": step + 1, "seconds": before + now - began}
            _save_state(state, network, optimiser, losses, header | _identity(recipe, seed))
            saved = now
    network.train(False)
    counts = np.bincount(np.arange(recipe.n_steps) * len(losses) // recipe.n_steps)
    means = tuple(float(mean) for mean in losses.cpu().numpy() / counts)
    return Training(means, before + time.perf_counter() - began)


def loss_together(network: torch.nn.Module, processes: Processes) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the loss of a batch that all processes hold, each putting its part of the images through the network.

    Value and gradient are the means over the parts, weighted by their images.  Batch normalisation sees one part alone.
    """
    if not isinstance(processes, JoinedProcesses):
        return network
    parallel = DistributedDataParallel(network)

    def loss(images: Tensor, labels: Tensor) -> Tensor:
        if len(images) < processes.size:
            raise InputError(
                f"there are {processes.size} processes for the {len(images)} images of a batch, expected no more"
            )
        part = processes.part(len(images))
        share = (part.stop - part.start) / len(images)
        own = parallel(images[part], labels[part]) * (share * processes.size)  # gradients become their mean
        value = own.detach() / processes.size
        torch.distributed.all_reduce(value)
        return own + (value - own).detach()

    return loss


def _check(losses: Tensor, step: int) -> None:
    """Asked for now and then only, since the answer makes a GPU wait."""
    if not bool(torch.isfinite(losses).all()):
        raise DivergedError(f"the loss was no finite number by step {step + 1}: take a smaller learning_rate")


def _identity(recipe: Recipe, seed: int) -> dict[str, Any]:
    return {"kind": "training", "recipe": asdict(recipe), "seed": seed}


def _optimiser(network: torch.nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    parts: dict[float, list[torch.nn.Parameter]] = {}
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            factors = (factor for part, factor in recipe.slower.items() if name.startswith(part))
            parts.setdefault(next(factors, 1.0), []).append(parameter)
    groups = [{"params": part, "factor": factor} for factor, part in parts.items()]
    if recipe.optimiser == "sgd":
        return torch.optim.SGD(groups, recipe.learning_rate, momentum=MOMENTUM, weight_decay=recipe.weight_decay)
    return torch.optim.AdamW(groups, recipe.learning_rate, weight_decay=recipe.weight_decay)


def _save_state(
    path: Path, network: torch.nn.Module, optimiser: torch.optim.Optimizer, losses: Tensor, header: dict[str, Any]
) -> None:
    arrays = {f"network/{name}": value for name, value in network.state_dict().items()}
    for number, state in optimiser.state_dict()["state"].items():
        arrays |= {f"optimiser/{number}/{name}": torch.as_tensor(value) for name, value in state.items()}
    # Counters go as doubles, which hold whole numbers exactly.
    numbers = {
        name: value.detach().cpu().numpy().astype(np.float32 if value.dtype == torch.float32 else np.float64)
        for name, value in (arrays | {"losses": losses}).items()
        if value is not None
    }
    write_model(path, numbers, header)


def _resume(
    path: Path, network: torch.nn.Module, optimiser: torch.optim.Optimizer, losses: Tensor, recipe: Recipe, seed: int
) -> tuple[int, float]:
    """The step to go on with and the seconds spent so far: 0 where there is no file."""
    if not path.exists():
        return 0, 0.0
    arrays, header = read_model(path)
    expected = _identity(recipe, seed)
    if {key: header.get(key) for key in expected} != expected:
        raise InputError(f"{path} is the state of another training, expected one with recipe={recipe} and seed={seed}")
    state = network.state_dict()
    saved = {name.removeprefix("network/"): array for name, array in arrays.items() if name.startswith("network/")}
    if {name: tuple(value.shape) for name, value in state.items()} != {name: a.shape for name, a in saved.items()}:
        raise InputError(f"{path} is the state of another network, expected one with the weights {sorted(state)}")
    step, seconds = header.get("step"), header.get("seconds")
    if type(step) is not int or not 0 < step <= recipe.n_steps or not isinstance(seconds, float):
        raise InputError(f"{path} was kept at step {step!r}, expected a whole number from 1 to {recipe.n_steps}")
    network.load_state_dict({name: torch.as_tensor(array).to(state[name].dtype) for name, array in saved.items()})
    found: dict[int, dict[str, Tensor]] = {}
    for name, array in arrays.items():
        part, *rest = name.split("/")
        if part == "optimiser":
            found.setdefault(int(rest[0]), {})[rest[1]] = torch.as_tensor(array)
    shapes = [tuple(parameter.shape) for group in optimiser.param_groups for parameter in group["params"]]
    saved_shapes = [
        {tuple(value.shape) for name, value in found.get(k, {}).items() if name != "step"} for k in range(len(shapes))
    ]
    if saved_shapes != [{shape} for shape in shapes] or arrays.get("losses", np.empty(0)).shape != tuple(losses.shape):
        raise InputError(f"{path} holds another optimiser's state, expected that of {len(shapes)} parameters")
    optimiser.load_state_dict({"state": found, "param_groups": optimiser.state_dict()["param_groups"]})
    losses.copy_(torch.as_tensor(arrays["losses"]))
    return step, seconds
