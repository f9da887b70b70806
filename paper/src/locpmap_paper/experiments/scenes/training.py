"""How networks for scenes are trained: what a step shows them, what it costs them to be wrong, and what is kept."""

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
from locpmap_paper.experiments.scenes.boundaries import colour_likeness
from locpmap_paper.experiments.scenes.networks import Network, build_network
from locpmap_paper.experiments.scenes.split import named

Progress = Callable[[int, int], None]

LOSSES = ("cross-entropy", "pseudolikelihood")
NEAREST = ((0, 1), (1, 0))  # steps to the neighbours
EDGE_FEATURES = 2  # 1 and likeness


@dataclass(frozen=True)
class SceneRecipe:
    """How a network for scenes is built and trained.

    Args:
        training: Steps, rate, batch.
        crop: Height and width of the images of a batch.
        variation: How much these vary.
        average: Decay of the running mean of the weights, which is what is kept; 0 keeps the last weights.
        smoothing: Share of every target that is spread over all labels.
        jaccard: Weight of one minus the classes' mean soft intersection over union, beside the loss.
        options: Of the network, such as ``width`` and ``zoom`` of the pyramid.
    """

    training: Recipe
    crop: tuple[int, int] = (256, 320)
    variation: Variation = field(default_factory=Variation)
    average: float = 0.999
    smoothing: float = 0.0
    jaccard: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)


# The encoder's weights know a million images: several hundred more should not undo that.
SLOWER = {"network.encoder": 0.2}

# Chosen among a few by what 100 training scenes of seed 0 said that were left out, but for SLOWER and deeplab's steps.
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
    """A network that was trained on the named scenes.

    Args:
        kind: "pretrained" (encoder from ImageNet, feature pyramid) or "deeplab" (19 convolutions, from scratch).
        scenes: All scenes.
        names: Of those to learn from.
        loss: "cross-entropy", or "pseudolikelihood" with couplings that depend on the contrast of colours.
        couplings: Weights of (1, likeness) on edges across and down, (2, 2), kept as they are; None learns them too.
        seed: Of everything that is drawn.
        device: "auto", "cpu" or "cuda".
        checkpoint: A file that keeps the state; an interrupted training goes on from it.
        progress: Called with (steps done, steps in all).
        fast: A smoke run: two steps of a small network, without published weights.
        recipe: In place of ``RECIPES[kind]``.
        folder: The cache with the published weights, :func:`locpmap_paper.data.folder` by default.
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
    with tried_convolutions():
        train(learner, batches, recipe.training, seed=seed, checkpoint=checkpoint, progress=progress)
    return learner.result()


def tried_convolutions() -> AbstractContextManager[None]:
    """On a GPU, the fastest algorithm for every layer, found by trying: all batches of a training have one size."""
    context: AbstractContextManager[None] = torch.backends.cudnn.flags(enabled=True, benchmark=True)
    return context


class Learner(torch.nn.Module):  # type: ignore[misc]
    """A network, what it is trained by, and the running mean of its weights; ``learner(images, labels)`` is the loss.

    What layers draw is a function of the seed and of the buffer ``step``, so that a resumed training ends as one that
    was not interrupted.
    """

    step: Tensor

    def __init__(self, network: Network, head: CRFHead | None, recipe: SceneRecipe, seed: int) -> None:
        super().__init__()
        self.network, self.head, self.recipe, self.seed = network, head, recipe, seed
        self.average = copy.deepcopy(network).requires_grad_(False) if recipe.average > 0 else None
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))
        self._steps_here: int | None = None

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """The loss of images (N, 3, H, W) from 0 to 255 with labels (N, H, W), -1 where there is none."""
        step = self._next_step()
        if self.average is not None:
            self._follow(step)
        mixed = np.random.SeedSequence((self.seed, step, 1)).generate_state(1, np.uint64)[0]
        devices = [images.device] if images.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(int(mixed >> np.uint64(1)))
            logits = self.network(images).float()
        if self.head is not None:
            loss: Tensor = self.head(logits, labels, edge_features=likeness(images))
        else:
            smoothing = self.recipe.smoothing
            total = F.cross_entropy(logits, labels, ignore_index=VOID, label_smoothing=smoothing, reduction="sum")
            loss = total / (labels != VOID).sum().clamp(min=1)  # a batch may be void
        if self.recipe.jaccard > 0:
            loss = loss + self.recipe.jaccard * jaccard_loss(logits, labels)
        return loss

    def result(self) -> Network:
        """The trained network in evaluation mode."""
        if self.average is None:
            return self.network.train(False)
        self._follow(self._next_step())
        return self.average.train(False)

    def _next_step(self) -> int:
        """The number of the step that begins; read from the device once only, which would make it wait."""
        if self._steps_here is None:
            self._steps_here = int(self.step)
        number = self._steps_here
        self._steps_here += 1
        self.step += 1
        return number

    @torch.no_grad()
    def _follow(self, step: int) -> None:
        assert self.average is not None
        decay = min(self.recipe.average, step / (step + 10))  # the first weights are soon forgotten
        means, news = (
            [value for value in (*part.parameters(), *part.buffers()) if value.is_floating_point()]
            for part in (self.average, self.network)
        )
        if means:
            get_ema_multi_avg_fn(decay)(means, news, None)  # all in one launch


def jaccard_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """One minus the soft intersection over union of the classes that the batch (N, K, H, W) has, their mean."""
    known = (labels != VOID)[:, None]
    truth = F.one_hot(labels.clamp(min=0), logits.shape[1]).movedim(-1, 1) * known
    probability = logits.softmax(1) * known
    both = (probability * truth).sum((0, 2, 3))
    either = (probability + truth).sum((0, 2, 3)) - both
    present = truth.sum((0, 2, 3)) > 0
    return 1 - (both / either.clamp(min=1) * present).sum() / present.sum().clamp(min=1)


def likeness(images: Tensor) -> list[Tensor]:
    """Features (N, H, W-1, 2) and (N, H-1, W, 2) of edges: 1, and the likeness of the two colours."""
    alike = (colour_likeness(images, step) for step in NEAREST)
    return [torch.stack([torch.ones_like(each), each], -1) for each in alike]


def coupling_head(couplings: npt.ArrayLike | None) -> CRFHead:
    """Couplings on the likeness of colours, learned by the pseudolikelihood; given ones (2, 2) stay as they are."""
    weights = 0.0 if couplings is None else np.asarray(couplings, np.float32)
    objective = PseudolikelihoodLoss(ignore_index=VOID)
    return CRFHead(len(CLASSES), features=EDGE_FEATURES, learn=couplings is None, weights=weights, objective=objective)
