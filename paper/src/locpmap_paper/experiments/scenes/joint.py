"""A network trained jointly with the couplings that it predicts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import softmax
from torch import Tensor

from locpmap import Potentials
from locpmap.errors import InputError
from locpmap.formats import read_model, write_model
from locpmap.graphs import Steps, ends_of
from locpmap.nn import ConsistentLoss, Recipe, choose_device, train
from locpmap_paper.data.scenes import VOID
from locpmap_paper.experiments.experiment import Array, Case
from locpmap_paper.experiments.model import Fits, Fitted, Model, Progress
from locpmap_paper.experiments.scenes.augmentation import SceneBatches
from locpmap_paper.experiments.scenes.canvas import crf_on_canvas
from locpmap_paper.experiments.scenes.experiment import SceneCase
from locpmap_paper.experiments.scenes.networks import Network, as_batch, build_network, load_network, predict_logits
from locpmap_paper.experiments.scenes.split import named
from locpmap_paper.experiments.scenes.training import FAST, FAST_CROP, RECIPES, benchmarked_convolutions
from locpmap_paper.experiments.scenes.unaries import unaries_of
from locpmap_paper.experiments.scenes.unseen import SCALES
from locpmap_paper.networks.weights import load_weights, to_arrays

FILE_KIND = "scene network with couplings"


class CoupledNetwork(torch.nn.Module):  # type: ignore[misc]
    """A network with predicted couplings: Potts weights of all edges by a 1×1 convolution on its last features.

    The couplings are 0 initially.  ``network(images, labels)`` returns the consistent loss.

    Args:
        network: Network of either kind.
        steps: Steps to the neighbours, horizontal or vertical.
        objective: Loss, needed for training.
    """

    def __init__(self, network: Network, steps: Steps, objective: ConsistentLoss | None = None) -> None:
        super().__init__()
        if any(down and right for down, right in steps):
            raise InputError(f"steps are {steps}, expected no diagonal ones, which mirroring would change")
        self.network, self.steps, self.objective = network, steps, objective
        self.couplings = torch.nn.Conv2d(network.width, len(steps), 1)
        torch.nn.init.zeros_(self.couplings.weight)
        torch.nn.init.zeros_(self.couplings.bias)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of images (N, 3, H, W) from 0 to 255 with labels (N, H, W), -1 for void."""
        assert self.objective is not None
        features = self.network.features(images)
        logits = self.network.to_pixels(self.network.classifier(features), images)
        loss: Tensor = self.objective(logits.float(), self._terms(features, images), labels)
        return loss

    def _terms(self, features: Tensor, images: Tensor) -> tuple[Tensor, ...]:
        """Return the weights of the edges of every step, indexed by their first end."""
        at_sites = self.network.to_pixels(self.couplings(features), images).float()
        places = (ends_of(step, *images.shape[2:])[0] for step in self.steps)
        return tuple(at_sites[:, k, rows, columns] for k, (rows, columns) in enumerate(places))

    @torch.no_grad()
    def weights_of(self, image: npt.NDArray[np.uint8]) -> list[npt.NDArray[np.float32]]:
        """Return the weights of one image (H, W, 3), averaged over the image and its mirror image."""
        pixels = as_batch(image, self)
        both = (self._terms(self.network.features(seen), seen) for seen in (pixels, pixels.flip(-1)))
        # Mirroring swaps the ends of horizontal edges, so flipping the array aligns the edges.
        return [((own + mirrored.flip(-1)) / 2)[0].cpu().numpy() for own, mirrored in zip(*both, strict=True)]


class FittedJoint(Fitted):
    """A network with its couplings."""

    def __init__(self, case: SceneCase, coupled: CoupledNetwork, details: dict[str, Any], seconds: float) -> None:
        self.case, self.coupled, self.details, self.seconds = case, coupled, details, seconds
        self._cached: dict[int, tuple[Array, list[Array]]] = {}  # cached logits and weights by scene

    def potentials(self, inputs: Array) -> Potentials:
        every = [self.terms(number) for number in inputs]
        return crf_on_canvas(
            [logits for logits, _ in every],
            [weights for _, weights in every],
            self.coupled.steps,
            self.case.experiment.size(self.case.data),
        )

    def probability(self, inputs: Array) -> Array:
        """Return the probabilities of the network without couplings."""
        return softmax(self.case.canvas([self.terms(number)[0] for number in inputs], 0.0), axis=-1)

    def terms(self, number: int) -> tuple[Array, list[Array]]:
        """Return logits and Potts weights of a scene."""
        if number not in self._cached:
            image = self.case.data.scenes[number][1]
            scales = (1.0,) if self.case.experiment.fast else SCALES
            logits = predict_logits(self.coupled.network, image, scales=scales)
            self._cached[number] = logits, list(self.coupled.weights_of(image))
        return self._cached[number]

    def save(self, path: Path) -> None:
        header = {
            "kind": FILE_KIND,
            "network": self.case.level,
            "options": self.coupled.network.options,
            "steps": [list(step) for step in self.coupled.steps],
        }
        write_model(path, to_arrays(self.coupled, half=True), header)


@dataclass(frozen=True, kw_only=True)
class JointModel(Model):
    """A network trained further, jointly with couplings, on all training scenes except those for tuning.

    It starts from the network that was trained without the held-out scenes, and does not drop layers.  ``settings``
    contain the ``steps``, the ``recipe``, and ``n_samples`` and ``max_sweeps`` of the loss.
    """

    together: ClassVar[bool] = True
    features: str = "scene"

    def constants(self, case: Case) -> dict[str, Any]:
        """Return the recipe of the batches and the scales of prediction."""
        return {"shown": asdict(RECIPES[case.level]), "scales": list(SCALES)}

    def fit(self, case: Case, store: Fits, device: str, progress: Progress) -> Fitted:
        assert isinstance(case, SceneCase)
        began, seed = time.perf_counter(), case.seed_of(f"training of {self.name}")
        base, place = unaries_of(self, store), choose_device(device)
        samples, sweeps = (self.settings[name] for name in ("n_samples", "max_sweeps"))
        steps = _steps(self.settings["steps"])
        objective = ConsistentLoss(samples, sweeps, seed=seed, ignore_index=VOID, steps=steps)
        network = load_network(base.network("held_out"))
        coupled = CoupledNetwork(network, steps, objective).to(place)
        training = np.concatenate([case.fit.inputs, case.held_out.inputs])
        names = case.names(training[~np.isin(training, case.tuning.inputs)])  # the rest is for tuning decoders
        shown = RECIPES[case.level]
        recipe = FAST if case.experiment.fast else Recipe(**self.settings["recipe"])
        crop = FAST_CROP if case.experiment.fast else shown.crop
        batches = SceneBatches(named(case.data.scenes, names), recipe.batch_size, crop, place, shown.variation)
        state = store.checkpoint(self.name)
        how: dict[str, Any] = {"seed": seed, "checkpoint": state, "progress": progress, "processes": store.processes}
        with benchmarked_convolutions():
            result = train(coupled, batches, recipe, **how)
        details = {"losses": [round(loss, 5) for loss in result.losses]}
        return FittedJoint(case, coupled, details, time.perf_counter() - began)

    def load(self, path: Path, case: Case, store: Fits, device: str) -> Fitted:
        assert isinstance(case, SceneCase)
        arrays, header = read_model(path)
        try:
            network = build_network(header["network"], header["options"])
            coupled = CoupledNetwork(network, _steps(header["steps"]))
            load_weights(coupled, {name: torch.from_numpy(array.astype(np.float32)) for name, array in arrays.items()})
        except (KeyError, TypeError, RuntimeError, InputError) as error:
            raise InputError(f"{path} does not contain the network that it describes: {error}") from None
        return FittedJoint(case, coupled.train(False).to(choose_device(device)), {}, 0.0)


def _steps(listed: Sequence[Sequence[int]]) -> Steps:
    return tuple((down, right) for down, right in listed)
