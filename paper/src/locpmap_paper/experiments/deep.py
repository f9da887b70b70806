"""The models with a network, and how each is trained."""

from __future__ import annotations

from typing import Any

from locpmap_paper.experiments.decoders import CRF_DECODERS, FAR_DECODERS, FEW_DECODERS, NETWORK_DECODERS
from locpmap_paper.experiments.model import Model
from locpmap_paper.experiments.network_model import RAW, START, NetworkModel, RefittedModel, torch_is_installed

NEAR = [[0, 1], [1, 0]]
FAR = [*NEAR, [0, 3], [3, 0], [0, 7], [7, 0]]  # beyond the network's receptive field of nine pixels

FROM_SCRATCH = {"n_steps": 1500, "learning_rate": 2e-3}
FINE_TUNING = {"n_steps": 300, "learning_rate": 1e-3}
SAMPLES = 32  # LocPMAP samples per step; with few, their variance biases the couplings towards 0
PAPER = {"n_steps": 3000, "learning_rate": 0.05, "optimiser": "sgd", "weight_decay": 5e-4}


def _settings(objective: str, recipe: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"objective": objective, "recipe": recipe, "normalise": True, "noise": "fresh"} | more


NETWORKS: tuple[Model, ...] = (
    NetworkModel(
        name="deep-pl",
        learning="pseudolikelihood",
        title="Deep, pseudolikelihood",
        says="The paper's model: its network, trained by pseudolikelihood with new noise in every step. The pairwise"
        " weights are those of raw-pl and stay fixed.",
        settings=_settings("pseudolikelihood", PAPER, normalise=False),
        needs=(RAW,),
        decoders=("argmax", *CRF_DECODERS),
    ),
    NetworkModel(
        name="deep-pl-joint",
        learning="pseudolikelihood",
        title="Deep, pseudolikelihood, joint",
        says="A network pretrained with cross-entropy (ce-start) is trained further by pseudolikelihood, jointly with"
        " couplings that it predicts for every edge.",
        settings=_settings("pseudolikelihood", FINE_TUNING, steps=NEAR),
        needs=(START,),
        decoders=("argmax", *FEW_DECODERS),
    ),
    NetworkModel(
        name="deep-cl-joint",
        learning="composite",
        title="Deep, composite likelihood, joint",
        says="As deep-pl-joint, but trained by the composite likelihood of whole rows and columns.",
        settings=_settings("composite", FINE_TUNING, steps=NEAR),
        needs=(START,),
        decoders=("argmax", *FEW_DECODERS),
    ),
    NetworkModel(
        name="deep-consistent",
        learning="consistent",
        title="Deep, consistent",
        says="As deep-pl-joint, but trained consistently: given the neighbours' labels sampled by LocPMAP, not the true"
        " ones.",
        settings=_settings("consistent", FINE_TUNING | {"n_steps": 400}, steps=NEAR, n_samples=SAMPLES),
        needs=(START,),
        decoders=("argmax", *FEW_DECODERS),
    ),
    NetworkModel(
        name="deep-consistent-far",
        learning="consistent",
        title="Deep, consistent, far neighbours",
        says="A network pretrained with cross-entropy is trained further, consistently and jointly with couplings that"
        " it predicts for every edge. Neighbours are 1, 3 and 7 pixels apart, horizontally and vertically, beyond the"
        " network's receptive field of nine pixels.",
        settings=_settings("consistent", FINE_TUNING | {"n_steps": 1000}, steps=FAR, n_samples=SAMPLES),
        needs=(START,),
        decoders=("argmax", *FAR_DECODERS),
    ),
    NetworkModel(
        name="ce-fixed",
        learning="cross-entropy",
        title="Network on fixed noise",
        says="The network alone, trained with cross-entropy on images with fixed noise.",
        settings=_settings("cross-entropy", FROM_SCRATCH | {"n_steps": 800}, noise="fixed"),
        decoders=NETWORK_DECODERS,
    ),
    NetworkModel(
        name=START,
        learning="cross-entropy",
        title="Network, initial training",
        says="The network alone, trained with cross-entropy and new noise in every step. It initialises other models.",
        settings=_settings("cross-entropy", FROM_SCRATCH),
        decoders=NETWORK_DECODERS,
    ),
    NetworkModel(
        name="ce-fresh",
        learning="cross-entropy",
        title="Network alone",
        says="The network without a CRF, trained with cross-entropy and new noise in every step. Its training takes"
        " about as long as that of deep-consistent-far on a GPU.",
        settings=_settings("cross-entropy", FINE_TUNING | {"n_steps": 6000}),
        needs=(START,),
        decoders=NETWORK_DECODERS,
    ),
    RefittedModel(
        name="ce-pl",
        learning="pseudolikelihood",
        title="Network, then a CRF by pseudolikelihood",
        says="The trained network (ce-fresh) and one coupling for all edges, learned by pseudolikelihood on its logits"
        " for held-out images.",
        settings={"objective": "pseudolikelihood"},
        needs=("ce-fresh",),
        decoders=FEW_DECODERS,
    ),
    RefittedModel(
        name="ce-consistent",
        learning="consistent",
        title="Network, then a CRF by consistent learning",
        says="The trained network (ce-fresh) and one coupling for all edges, learned consistently on its logits for"
        " held-out images.",
        settings={"objective": "consistent"},
        needs=("ce-fresh",),
        decoders=FEW_DECODERS,
    ),
)


def deep_models() -> tuple[Model, ...]:
    """Return all models in display order; none if torch is not installed."""
    return NETWORKS if torch_is_installed() else ()
