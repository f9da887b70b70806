"""Training of a network: mini-batches, a learning-rate schedule, and checkpoints.

The random numbers of a step depend on the seed and the step number only, so interrupted training resumes with the
same result.
"""

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

from locpmap.errors import BackendError, InputError, LocpmapError, one_of, whole_number
from locpmap.formats.atomic import PathLike
from locpmap.formats.model_file import read_model, write_model
from locpmap.learning.processes import ALONE, JoinedProcesses, Processes

Draw = Callable[[torch.Generator], tuple[Tensor, Tensor]]  # images (N, C, H, W) and labels (N, H, W) of one step

OPTIMISERS = ("adamw", "sgd")
MOMENTUM = 0.9  # of SGD, as in the paper
LOGGED = 50  # maximum number of losses in a result
SECONDS_BETWEEN_CHECKPOINTS = 10.0
STEPS_BETWEEN_CHECKS = 50  # steps between two checks for a finite loss


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of a training.

    The learning rate rises linearly during the warm-up and then falls to 0 along half a cosine.

    Args:
        n_steps (int): Number of steps, from 1 to 2^31 - 1.
        learning_rate (float): Maximum learning rate, at least 0.
        batch_size (int, default 100): Number of images per step, at least 1. :func:`train` does not use it, because
            ``draw`` returns the batches.
        optimiser (str, default "adamw"): "adamw", or "sgd" with momentum 0.9.
        weight_decay (float, default 1e-3): Weight decay, at least 0.
        warm_up (float, default 0.1): Fraction of the steps during which the rate rises, from 0 to below 1.
        slower (dict of str to float, default {}): Factors of the learning rate for parts of the network, by prefix of
            the parameter names: ``{"backbone.": 0.1}`` for a pretrained backbone. The first matching prefix counts.

    Example:
        >>> from locpmap.nn import Recipe
        >>> recipe = Recipe(n_steps=100, learning_rate=0.1)
        >>> [round(recipe.rate(step), 3) for step in (0, 10, 99)]
        [0.005, 0.1, 0.0]

    See Also:
        :func:`train`.
    """

    n_steps: int
    learning_rate: float
    batch_size: int = 100
    optimiser: str = "adamw"
    weight_decay: float = 1e-3
    warm_up: float = 0.1
    slower: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        one_of("optimiser", self.optimiser, OPTIMISERS)
        for name in ("n_steps", "batch_size"):
            whole_number(name, getattr(self, name), 1, 2**31 - 1)
        for name, most in (("learning_rate", math.inf), ("weight_decay", math.inf), ("warm_up", 1)):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < most:
                raise InputError(f"{name} is {value!r}, expected a number from 0 to below {most}")

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, from 0 to ``n_steps - 1``."""
        done, rise = (step + 0.5) / self.n_steps, self.warm_up
        if done < rise:
            return self.learning_rate * done / rise
        return self.learning_rate * (1 + math.cos(math.pi * (done - rise) / (1 - rise))) / 2


@dataclass(frozen=True)
class Training:
    """Result of :func:`train`.

    Attributes:
        losses (tuple of float): Mean losses over equal parts of the steps, at most 50.
        seconds (float): Duration, including that of an interrupted run up to its last checkpoint.
    """

    losses: tuple[float, ...]
    seconds: float


class DivergedError(LocpmapError, ArithmeticError):
    """Raised when the loss of a training is no longer finite."""


def choose_device(device: str) -> torch.device:
    """Return the torch device for a name.

    Args:
        device (str): "cpu", "cuda", or "auto" for a GPU if one is available.

    Returns:
        The ``torch.device``.

    Raises:
        BackendError: If "cuda" is requested and torch finds no GPU.

    Example:
        >>> from locpmap.nn import choose_device
        >>> choose_device("cpu")
        device(type='cpu')
    """
    if one_of("device", device, ("auto", "cpu", "cuda")) == "cuda" and not torch.cuda.is_available():
        raise BackendError("device='cuda' was requested, but torch finds no GPU: use 'cpu' or 'auto'")
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
    """Train a network whose output in training mode is the loss.

    Minimises ``network(*draw(generator))`` on the device of the network's parameters. The network is trained in place
    and left in evaluation mode.

    Args:
        network (Module): Network with at least one parameter that returns the loss of (images, labels), a scalar, in
            training mode, such as :class:`CRFNetwork`.
        draw (callable): Function from a ``torch.Generator``, which is seeded for the step, to images (N, C, H, W) and
            labels (N, H, W) on the network's device.
        recipe (Recipe): Steps, learning rate and optimiser.
        seed (int, default 0): Seed of the random generator, from 0 to 2^63 - 1.
        checkpoint (str, os.PathLike or None, default None): File in which the state is saved about every ten seconds.
            A training with the same recipe and seed resumes from it, with any number of processes.
        progress (callable or None, default None): Called as ``progress(steps_done, n_steps)``.
        processes (Processes, default one process): Process group from :func:`locpmap.learning.joined_processes`. All
            processes draw the same batches, and each computes the loss of a part of the images. A batch needs at least
            one image per process.

    Returns:
        A :class:`Training` with the mean losses and the duration.

    Raises:
        DivergedError: If the loss is no longer finite.
        InputError: If the checkpoint belongs to another training, or a batch has fewer images than processes.

    Notes:
        On a GPU, convolutions are computed in bfloat16 and losses in single precision.

    Example:
        >>> import torch
        >>> from locpmap.nn import FCN, CRFNetwork, Recipe, train
        >>> labels = torch.eye(8, dtype=torch.int64)[None]
        >>> network = CRFNetwork(FCN(widths=(4,)))
        >>> recipe = Recipe(n_steps=20, learning_rate=0.1, optimiser="sgd")
        >>> training = train(network, lambda generator: (labels[:, None].float(), labels), recipe)
        >>> training.losses[-1] < training.losses[0]
        True

    See Also:
        :class:`Recipe`, :class:`CRFNetwork`.
    """
    device = next(network.parameters()).device
    if device.type == "cuda":
        network.to(memory_format=torch.channels_last)  # the memory format of tensor cores
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
    """Return a function that computes the loss of a batch, with a part of its images in each process.

    Value and gradient are means over the parts, weighted by their number of images. Batch normalisation uses the
    statistics of one part.
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
        fraction = (part.stop - part.start) / len(images)
        own = parallel(images[part], labels[part]) * (fraction * processes.size)  # DDP averages gradients
        value = own.detach() / processes.size
        torch.distributed.all_reduce(value)
        return own + (value - own).detach()

    return loss


def _check(losses: Tensor, step: int) -> None:
    """Raise DivergedError if a loss is not finite; called rarely because it synchronises with the GPU."""
    if not bool(torch.isfinite(losses).all()):
        raise DivergedError(f"the loss is not finite by step {step + 1}: use a smaller learning_rate")


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
    # Counters are stored as doubles, which represent them exactly.
    numbers = {
        name: value.detach().cpu().numpy().astype(np.float32 if value.dtype == torch.float32 else np.float64)
        for name, value in (arrays | {"losses": losses}).items()
    }
    write_model(path, numbers, header)


def _resume(
    path: Path, network: torch.nn.Module, optimiser: torch.optim.Optimizer, losses: Tensor, recipe: Recipe, seed: int
) -> tuple[int, float]:
    """Load a checkpoint; return the next step and the seconds spent so far, both 0 if there is no file."""
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
        raise InputError(f"{path} was saved at step {step!r}, expected a whole number from 1 to {recipe.n_steps}")
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
