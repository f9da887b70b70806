"""Training of networks for scenes: recipes, losses, and running means of the weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from locpmap.errors import unknown
from locpmap.nn import CRFHead, PseudolikelihoodLoss, Recipe, choose_device, train
from locpmap_paper.data.cache import PathLike
from locpmap_paper.data.scenes import CLASSES, VOID, Scenes
from locpmap_paper.experiments.scenes.augmentation import SceneBatches, Variation
from locpmap_paper.experiments.scenes.boundaries import colour_similarity
from locpmap_paper.experiments.scenes.networks import Network, build_network
from locpmap_paper.experiments.scenes.split import named

Progress = Callable[[int, int], None]

LOSSES = ("cross-entropy", "pseudolikelihood")
NEAREST = ((0, 1), (1, 0))  # steps to the neighbours
EDGE_FEATURES = 2  # constant and colour similarity


@dataclass(frozen=True)
class SceneRecipe:
    """The architecture options and training settings of a network for scenes.

    Args:
        training: Number of steps, learning rate, batch size.
        crop: Height and width of the training images.
        variation: Ranges of the augmentation.
        average: Decay of the running mean of the weights, which is the result; 0 returns the last weights.
        smoothing: Label smoothing: fraction of every target that is spread over all labels.
        jaccard: Weight of an added loss, 1 minus the classes' mean soft intersection over union.
        options: Options of the network, such as ``width`` and ``zoom`` of the pyramid.
    """

    training: Recipe
    crop: tuple[int, int] = (256, 320)
    variation: Variation = field(default_factory=Variation)
    average: float = 0.999
    smoothing: float = 0.0
    jaccard: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)


# A lower learning rate for the encoder, which was pretrained on a million images.
SLOWER = {"network.encoder": 0.2}

# Chosen among a few on 100 left-out training scenes of seed 0, except for SLOWER and the steps of deeplab.
RECIPES = {
    "pretrained": SceneRecipe(
        Recipe(n_steps=3000, learning_rate=1e-3, batch_size=16, weight_decay=0.02, slower=SLOWER),
        variation=Variation(scale=(0.5, 2.0)),
        smoothing=0.05,
        options={"zoom": 1.5, "context": True, "drop": 0.2},
    ),
    "deeplab": SceneRecipe(
        Recipe(n_steps=2000, learning_rate=1e-3, batch_size=16, weight_decay=0.02),
        variation=Variation(scale=(0.5, 2.0)),
        smoothing=0.05,
    ),
}
FAST = Recipe(n_steps=2, learning_rate=1e-3, batch_size=2)
FAST_CROP = (32, 32)
FAST_OPTIONS = {"pretrained": {"width": 8}, "deeplab": {"shrink": 16}}


def train_scene_network(
    kind: str,
    scenes: Scenes,
    names: Sequence[str],
    *,
    loss: str = "cross-entropy",
    couplings: npt.ArrayLike | None = None,
    seed: int = 0,
    device: str = "auto",
    checkpoint: PathLike | None = None,
    progress: Progress | None = None,
    fast: bool = False,
    recipe: SceneRecipe | None = None,
    folder: PathLike | None = None,
) -> Network:
    """Train a network on scenes.

    Args:
        kind: "pretrained" (ImageNet encoder, feature pyramid) or "deeplab" (19 convolutions, from scratch).
        scenes: All scenes.
        names: Names of the training scenes.
        loss: "cross-entropy", or "pseudolikelihood" with couplings that depend on colour contrast.
        couplings: Fixed weights (2, 2) of (1, colour similarity) on horizontal and vertical edges; None learns them.
        seed: Seed of the random generators.
        device: "auto", "cpu" or "cuda".
        checkpoint: File of the training state, from which an interrupted training resumes.
        progress: Function called with (steps done, number of steps).
        fast: Whether to do a smoke run: two steps of a small network without published weights.
        recipe: Recipe of the training; by default ``RECIPES[kind]``.
        folder: Cache folder of the published weights; by default :func:`locpmap_paper.data.folder`.

    Returns:
        The trained network in evaluation mode.
    """
    if kind not in RECIPES:
        raise unknown("kind", kind, RECIPES)
    if loss not in LOSSES:
        raise unknown("loss", loss, LOSSES)
    recipe = recipe or RECIPES[kind]
    if fast:
        recipe = replace(recipe, training=FAST, crop=FAST_CROP, options=FAST_OPTIONS[kind])
    place = choose_device(device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = build_network(kind, recipe.options, published=not fast, folder=folder)
    head = coupling_head(couplings) if loss == "pseudolikelihood" else None
    learner = Learner(network, head, recipe, seed).to(place)
    chosen = named(scenes, names)
    batches = SceneBatches(chosen, recipe.training.batch_size, recipe.crop, place, recipe.variation)
    with benchmarked_convolutions():
        train(learner, batches, recipe.training, seed=seed, checkpoint=checkpoint, progress=progress)
    return learner.result()


def benchmarked_convolutions() -> AbstractContextManager[None]:
    """Return a context in which cuDNN benchmarks its algorithms; all batches have one size."""
    context: AbstractContextManager[None] = torch.backends.cudnn.flags(enabled=True, benchmark=True)
    return context


class Learner(torch.nn.Module):  # type: ignore[misc]
    """A network with its loss and the running mean of its weights; ``learner(images, labels)`` returns the loss.

    Random layers are seeded by the seed and the buffer ``step``, so that a resumed training gives the same result as an
    uninterrupted one.
    """

    step: Tensor

    def __init__(self, network: Network, head: CRFHead | None, recipe: SceneRecipe, seed: int) -> None:
        super().__init__()
        self.network, self.head, self.recipe, self.seed = network, head, recipe, seed
        self.average = copy.deepcopy(network).requires_grad_(False) if recipe.average > 0 else None
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))
        self._steps_here: int | None = None

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of images (N, 3, H, W) from 0 to 255 with labels (N, H, W), -1 for void."""
        step = self._next_step()
        if self.average is not None:
            self._follow(step)
        mixed = np.random.SeedSequence((self.seed, step, 1)).generate_state(1, np.uint64)[0]
        devices = [images.device] if images.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(int(mixed >> np.uint64(1)))
            logits = self.network(images).float()
        if self.head is not None:
            loss: Tensor = self.head(logits, labels, edge_features=colour_features(images))
        else:
            smoothing = self.recipe.smoothing
            total = F.cross_entropy(logits, labels, ignore_index=VOID, label_smoothing=smoothing, reduction="sum")
            loss = total / (labels != VOID).sum().clamp(min=1)  # a batch may have no labels
        if self.recipe.jaccard > 0:
            loss = loss + self.recipe.jaccard * jaccard_loss(logits, labels)
        return loss

    def result(self) -> Network:
        """Return the trained network in evaluation mode."""
        if self.average is None:
            return self.network.train(False)
        self._follow(self._next_step())
        return self.average.train(False)

    def _next_step(self) -> int:
        """Return the index of the current step, read from the device only once to avoid synchronisation."""
        if self._steps_here is None:
            self._steps_here = int(self.step)
        number = self._steps_here
        self._steps_here += 1
        self.step += 1
        return number

    @torch.no_grad()
    def _follow(self, step: int) -> None:
        assert self.average is not None
        decay = min(self.recipe.average, step / (step + 10))  # a short memory in the first steps
        means, news = (
            [value for value in (*part.parameters(), *part.buffers()) if value.is_floating_point()]
            for part in (self.average, self.network)
        )
        if means:
            get_ema_multi_avg_fn(decay)(means, news, None)  # one launch for all tensors


def jaccard_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return 1 minus the mean soft intersection over union of the classes present in the batch (N, K, H, W)."""
    known = (labels != VOID)[:, None]
    truth = F.one_hot(labels.clamp(min=0), logits.shape[1]).movedim(-1, 1) * known
    probability = logits.softmax(1) * known
    both = (probability * truth).sum((0, 2, 3))
    either = (probability + truth).sum((0, 2, 3)) - both
    present = truth.sum((0, 2, 3)) > 0
    return 1 - (both / either.clamp(min=1) * present).sum() / present.sum().clamp(min=1)


def colour_features(images: Tensor) -> list[Tensor]:
    """Return edge features (N, H, W-1, 2) and (N, H-1, W, 2): 1 and colour similarity."""
    similar = (colour_similarity(images, step) for step in NEAREST)
    return [torch.stack([torch.ones_like(each), each], -1) for each in similar]


def coupling_head(couplings: npt.ArrayLike | None) -> CRFHead:
    """Return a CRF head with couplings on colour similarity; given weights (2, 2) stay fixed."""
    weights = 0.0 if couplings is None else np.asarray(couplings, np.float32)
    objective = PseudolikelihoodLoss(ignore_index=VOID)
    return CRFHead(len(CLASSES), features=EDGE_FEATURES, learn=couplings is None, weights=weights, objective=objective)
