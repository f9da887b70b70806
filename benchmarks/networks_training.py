"""Training and evaluation of the segmentation networks of the benchmarks."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.networks_data import NOISE, VOID, Labels, Part
from benchmarks.networks_models import Network, StochasticNetwork, as_batch, draw_logits
from locpmap.nn import Recipe, train
from locpmap_paper.experiments.scenes.augmentation import SceneBatches, Variation
from locpmap_paper.experiments.scenes.training import benchmarked_convolutions

Draw = Callable[[torch.Generator], tuple[Tensor, Tensor]]

N_SAMPLES = 20  # of the Monte-Carlo likelihood
N_EVALUATED = 100  # samples of the held-out probabilities of a stochastic network
LEARNING_RATE, WEIGHT_DECAY = 1e-3, 0.02


class NoisyBatches:
    """Random batches of silhouettes: mirrored at random, with new noise in every step."""

    def __init__(self, labels: Sequence[Labels], batch_size: int, device: torch.device) -> None:
        self.labels, self.batch_size = torch.from_numpy(np.stack(labels)).to(device), batch_size

    def __call__(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        options = {"generator": generator, "device": self.labels.device}
        labels = self.labels[torch.randint(len(self.labels), (self.batch_size,), **options)]
        mirror = torch.rand(self.batch_size, 1, 1, **options) < 0.5
        labels = torch.where(mirror, labels.flip(-1), labels)
        return (labels + NOISE * torch.randn(labels.shape, **options))[:, None], labels


def batches_of(part: Part, batch_size: int, crop: int, device: torch.device) -> Draw:
    """Return a function that draws augmented batches; all images of the part are stored on the device."""
    if part.images[0].ndim == 2:
        return NoisyBatches(part.labels, batch_size, device)
    scenes = [
        (name, image, labels.astype(np.int8))
        for name, image, labels in zip(part.names, part.images, part.labels, strict=True)
    ]
    return SceneBatches(scenes, batch_size, (crop, crop), device, Variation(scale=(0.6, 1.6)))


class Learner(torch.nn.Module):  # type: ignore[misc]
    """A network whose output is its loss: cross-entropy, or the likelihood of a stochastic network.

    The mean of a stochastic network is trained by cross-entropy in the first third of the steps.
    """

    def __init__(self, network: Network | StochasticNetwork, n_steps: int) -> None:
        super().__init__()
        self.network, self.n_steps, self.step = network, n_steps, 0

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the loss per pixel of images (N, C, H, W) with labels (N, H, W), -1 at void pixels."""
        self.step += 1
        if isinstance(self.network, StochasticNetwork) and self.step > self.n_steps // 3:
            return likelihood_loss(draw_logits(self.network.distribution(images), N_SAMPLES), labels)
        return likelihood_loss(self.network(images).float()[:, None], labels)


def likelihood_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the negative Monte-Carlo log-likelihood of labels (N, H, W), divided by the number of pixels.

    The likelihood of an image is the mean over samples of the product over pixels; void pixels are left out.

    Args:
        logits: Samples of the logits (N, S, K, H, W); one sample gives the cross-entropy.
        labels: Labels, -1 at void pixels.
    """
    targets = labels.repeat_interleave(logits.shape[1], 0)
    losses = F.cross_entropy(logits.flatten(0, 1), targets, ignore_index=VOID, reduction="none")
    of_samples = losses.unflatten(0, logits.shape[:2]).sum((2, 3))
    of_images = torch.logsumexp(-of_samples, 1) - math.log(logits.shape[1])
    return -of_images.sum() / (labels != VOID).sum().clamp(min=1)


def train_network(network: Network | StochasticNetwork, batches: Draw, n_steps: int, seed: int) -> float:
    """Train a network in place, on the device of its weights; return the seconds."""
    torch.manual_seed(seed)  # of stochastic depth and of samples; the batches have their own generator
    recipe = Recipe(n_steps=n_steps, learning_rate=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    with benchmarked_convolutions():
        return train(Learner(network, n_steps), batches, recipe, seed=seed).seconds


@dataclass(frozen=True)
class Measures:
    """Mean intersection over union over a data set, pixel accuracy, and mean negative log-likelihood of a pixel."""

    mean_iou: float
    accuracy: float
    nll: float


@torch.no_grad()
def evaluate(network: Network | StochasticNetwork, part: Part) -> Measures:
    """Evaluate the probabilities of a network; those of a stochastic network are means over 100 samples."""
    device, size = next(network.parameters()).device, network.n_labels
    confusion, nll = (torch.zeros(n, dtype=torch.float64, device=device) for n in (size * size, 1))
    torch.manual_seed(0)
    for image, truth in zip(part.images, part.labels, strict=True):
        log_probability = _log_probability(network, as_batch(network, image))
        labels = torch.from_numpy(truth).to(device)
        known = labels != VOID
        nll += F.nll_loss(log_probability.movedim(0, -1)[known], labels[known], reduction="sum")
        pairs = labels[known] * size + log_probability.argmax(0)[known]
        confusion += torch.bincount(pairs, minlength=size * size)
    counts = confusion.reshape(size, size).cpu().numpy()
    hits, total = np.diag(counts), counts.sum()
    union = counts.sum(0) + counts.sum(1) - hits
    occurs = union > 0
    iou = hits[occurs] / union[occurs]
    return Measures(float(iou.mean()), float(hits.sum() / total), float(nll.item() / total))


def _log_probability(network: Network | StochasticNetwork, batch: Tensor) -> Tensor:
    """Return the log-probabilities (K, H, W) of one image."""
    if not isinstance(network, StochasticNetwork):
        return network(batch)[0].float().log_softmax(0)
    distribution, mean = network.distribution(batch), torch.zeros((), device=batch.device)
    for _ in range(N_EVALUATED):
        mean = mean + draw_logits(distribution, 1)[0, 0].softmax(0) / N_EVALUATED
    return mean.clamp(min=torch.finfo(mean.dtype).tiny).log()
