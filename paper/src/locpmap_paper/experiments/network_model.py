"""Models with a network that learns features of the images."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy.typing as npt

from locpmap import CRF, Potentials
from locpmap.errors import InputError
from locpmap.features import Features
from locpmap.learning import FitOptions
from locpmap_paper.experiments.denoising import LABELS
from locpmap_paper.experiments.experiment import Case
from locpmap_paper.experiments.model import Fits, Fitted, Model, Progress
from locpmap_paper.experiments.raw import FittedCRF, max_iterations, named_weights

if TYPE_CHECKING:
    from locpmap.nn import CRFHead, CRFNetwork, Recipe

Array = npt.NDArray[Any]

START = "ce-start"  # the network that initialises others
RAW = "raw-pl"  # provides the fixed pairwise weights of the paper's deep model
WIDTHS = (64, 126, 256, 512)  # of the paper's network, as printed there (including 126)
FAST_WIDTHS = (8, 8, 16, 16)  # of the network in a smoke run
SHIPPED = Path(__file__).parent / "weights"


class FittedNetwork(Fitted):
    """A network, alone or with a CRF head."""

    def __init__(self, network: CRFNetwork, details: dict[str, Any], seconds: float) -> None:
        self.network, self.details, self.seconds = network, details, seconds
        self._cached: list[tuple[Array, Potentials | None, Array]] = []

    def potentials(self, inputs: Array) -> Potentials | None:
        return self._run(inputs)[0]

    def probability(self, inputs: Array) -> Array:
        from scipy.special import softmax

        return softmax(self.logits(inputs), axis=-1)

    def logits(self, inputs: Array) -> Array:
        """Return the network's logits (N, H, W, 2)."""
        return self._run(inputs)[1]

    def _run(self, inputs: Array) -> tuple[Potentials | None, Array]:
        """Return potentials (None without a head) and logits, cached for the last two batches."""
        for images, potentials, logits in self._cached:
            if images.shape == inputs.shape and images.ctypes.data == inputs.ctypes.data:  # the same view
                return potentials, logits
        if self.network.head is None:
            potentials, logits = None, self.network.logits(inputs)
        else:
            potentials = self.network.potentials(inputs)
            logits = potentials.unflatten(potentials.unary)
        self._cached = [*self._cached[-1:], (inputs, potentials, logits)]  # test and held-out images
        return potentials, logits

    def save(self, path: Path) -> None:
        self.network.save(path)


@dataclass(frozen=True, kw_only=True)
class NetworkModel(Model):
    """A network, trained alone or jointly with a CRF head.

    ``settings`` contain the ``recipe``, ``normalise``, the ``noise`` ("fixed": the corrupted images of the case;
    "fresh": drawn in every step), the ``objective`` and, if couplings are predicted, the ``steps`` to the
    neighbours.
    """

    together: ClassVar[bool] = True
    features: str = "deep"

    def needs_for(self, case: Case) -> tuple[str, ...]:
        return () if shipped_weights(case, self.name) else self.needs

    def fit(self, case: Case, store: Fits, device: str, progress: Progress) -> Fitted:
        from locpmap.nn import choose_device, train
        from locpmap_paper.experiments.batches import Batches

        shipped = shipped_weights(case, self.name)
        if shipped is not None:
            details = {"weights": shipped.name, "made_by": f"locpmap reproduce {case.experiment.name} --train"}
            return FittedNetwork(_load(shipped, device), details, 0.0)
        place, recipe, seed = choose_device(device), self._recipe(case), case.seed_of(f"training of {self.name}")
        network = self._build(case, store, seed).to(place)
        batches = Batches(case, self.settings["noise"], recipe.batch_size, place)
        state = store.checkpoint(self.name)
        how: dict[str, Any] = {"seed": seed, "checkpoint": state, "progress": progress, "processes": store.processes}
        result = train(network, batches, recipe, **how)
        return FittedNetwork(network, {"losses": [round(loss, 5) for loss in result.losses]}, result.seconds)

    def load(self, path: Path, case: Case, store: Fits, device: str) -> Fitted:
        return FittedNetwork(_load(path, device), {}, 0.0)

    def _recipe(self, case: Case) -> Recipe:
        from locpmap.nn import Recipe

        recipe = Recipe(**self.settings["recipe"])
        return replace(recipe, n_steps=2, batch_size=4) if case.experiment.fast else recipe

    def _build(self, case: Case, store: Fits, seed: int) -> CRFNetwork:
        import torch

        from locpmap.nn import FCN, CRFNetwork

        widths = FAST_WIDTHS if case.experiment.fast else WIDTHS
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            backbone = FCN(len(LABELS), widths=widths, normalise=self.settings["normalise"])
            head = self._head(store, backbone.widths[-1], seed)
        if START in self.needs:
            start = store.fitted(START)
            assert isinstance(start, FittedNetwork)
            backbone.load_state_dict(start.network.backbone.state_dict())
        return CRFNetwork(backbone, head)

    def _head(self, store: Fits, n_channels: int, seed: int) -> CRFHead | None:
        from locpmap.nn import ConsistentLoss, CRFHead

        objective, n_labels = self.settings["objective"], len(LABELS)
        if objective == "cross-entropy":
            return None
        if RAW in self.needs:
            raw = store.fitted(RAW)
            assert isinstance(raw, FittedCRF)
            tables = raw.crf.tables
            return CRFHead(
                n_labels, "table", features=tables.shape[1], learn=False, weights=tables, objective=objective
            )
        steps = tuple(map(tuple, self.settings["steps"]))
        if objective == "consistent":
            objective = ConsistentLoss(self.settings["n_samples"], max_sweeps=10, seed=seed, steps=steps)
        return CRFHead(n_labels, "potts", feature_channels=n_channels, steps=steps, objective=objective)


@dataclass(frozen=True, kw_only=True)
class RefittedModel(Model):
    """A trained network with a CRF fitted to its logits on held-out images, as for a third-party network."""

    features: str = "deep"

    def fit(self, case: Case, store: Fits, device: str, progress: Progress) -> Fitted:
        base = self._base(store)
        crf = CRF(len(LABELS), features=None, unary="scale", label_names=LABELS)
        result = crf.fit(
            Features.grid(base.logits(case.held_out.inputs)),
            case.held_out.truth,
            self.settings["objective"],
            seed=case.seed_of(f"training of {self.name}"),
            progress=lambda done, most, value: progress(done, most),
            options=FitOptions(max_iterations=max_iterations(case), standard_errors=False),
        )
        return RefittedCRF(base, crf, {"weights": named_weights(result)}, result.seconds)

    def load(self, path: Path, case: Case, store: Fits, device: str) -> Fitted:
        return RefittedCRF(self._base(store), CRF.load(path), {}, 0.0)

    def _base(self, store: Fits) -> FittedNetwork:
        base = store.fitted(self.needs[0])
        assert isinstance(base, FittedNetwork)
        return base


class RefittedCRF(FittedCRF):
    """A CRF whose unary features are a network's logits."""

    def __init__(self, base: FittedNetwork, crf: CRF, details: dict[str, Any], seconds: float) -> None:
        super().__init__(crf, details, seconds)
        self.base = base

    def potentials(self, inputs: Array) -> Potentials:
        return self.crf.potentials(Features.grid(self.base.logits(inputs)))


def shipped_weights(case: Case, model: str) -> Path | None:
    """Return the file of a network's bundled weights, or None if it is trained here."""
    experiment = case.experiment
    path = SHIPPED / f"{experiment.name}-{model}.safetensors"
    wanted = model in experiment.shipped and case.seed == 0 and not experiment.fast and not experiment.train
    if wanted and not path.exists():
        raise InputError(f"{path} does not exist, expected the bundled weights; use --train to train the network")
    return path if wanted else None


def _load(path: Path, device: str) -> CRFNetwork:
    from locpmap.nn import CRFNetwork, choose_device

    return CRFNetwork.load(path).to(choose_device(device))


def torch_is_installed() -> bool:
    """Return whether torch is installed."""
    return importlib.util.find_spec("torch") is not None
