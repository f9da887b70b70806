"""The models with a network, each with how it is trained and why it stands in the tables."""

from __future__ import annotations

from typing import Any

from locpmap_paper.experiments.decoders import CRF_DECODERS, FAR_DECODERS, FEW_DECODERS, NETWORK_DECODERS
from locpmap_paper.experiments.model import Model
from locpmap_paper.experiments.network_model import RAW, START, NetworkModel, RefittedModel, torch_is_there

NEAR = [[0, 1], [1, 0]]
FAR = [*NEAR, [0, 3], [3, 0], [0, 7], [7, 0]]  # beyond the nine pixels that the network sees

FROM_SCRATCH = {"n_steps": 1500, "learning_rate": 2e-3}
GO_ON = {"n_steps": 300, "learning_rate": 1e-3}
SAMPLES = 32  # of LocPMAP in a step: with few, the loss pays for their scatter and keeps the couplings weak
PAPER = {"n_steps": 3000, "learning_rate": 0.05, "optimiser": "sgd", "weight_decay": 5e-4}


def _settings(objective: str, recipe: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"objective": objective, "recipe": recipe, "normalise": True, "noise": "fresh"} | more


NETWORKS: tuple[Model, ...] = (
    NetworkModel(
        name="deep-pl",
        learning="pseudolikelihood",
        title="Deep, pseudolikelihood",
        says="The paper's: its network, trained by the pseudolikelihood under noise drawn anew in every step, with the"
        " pairwise weights of raw-pl kept as they are.",
        settings=_settings("pseudolikelihood", PAPER, normalise=False),
        needs=(RAW,),
        decoders=("argmax", *CRF_DECODERS),
    ),
    NetworkModel(
        name="deep-pl-joint",
        learning="pseudolikelihood",
        title="Deep, pseudolikelihood, joint",
        says="A network trained by the cross-entropy (ce-start) goes on together with couplings that it predicts for"
        " every edge, by the pseudolikelihood.",
        settings=_settings("pseudolikelihood", GO_ON, steps=NEAR),
        needs=(START,),
        decoders=("argmax", *FEW_DECODERS),
    ),
    NetworkModel(
        name="deep-cl-joint",
        learning="composite",
        title="Deep, composite likelihood, joint",
        says="Network and predicted couplings together, from ce-start on, by the likelihood of whole rows and columns.",
        settings=_settings("composite", GO_ON, steps=NEAR),
        needs=(START,),
        decoders=("argmax", *FEW_DECODERS),
    ),
    NetworkModel(
        name="deep-consistent",
        learning="consistent",
        title="Deep, consistent",
        says="Network and predicted couplings together, from ce-start on, with the neighbours that LocPMAP finds in"
        " place of the true ones.",
        settings=_settings("consistent", GO_ON | {"n_steps": 400}, steps=NEAR, n_samples=SAMPLES),
        needs=(START,),
        decoders=("argmax", *FEW_DECODERS),
    ),
    NetworkModel(
        name="deep-consistent-far",
        learning="consistent",
        title="Deep, consistent, far neighbours",
        says="Network and predicted couplings together, consistently, with neighbours 1, 3 and 7 pixels away, across"
        " and down: they know what lies outside the nine pixels that the network sees.",
        settings=_settings("consistent", GO_ON | {"n_steps": 1000}, steps=FAR, n_samples=SAMPLES),
        needs=(START,),
        decoders=("argmax", *FAR_DECODERS),
    ),
    NetworkModel(
        name="ce-fixed",
        learning="cross-entropy",
        title="Network on fixed noise",
        says="The network alone, by the cross-entropy, on images corrupted once.",
        settings=_settings("cross-entropy", FROM_SCRATCH | {"n_steps": 800}, noise="fixed"),
        decoders=NETWORK_DECODERS,
    ),
    NetworkModel(
        name=START,
        learning="cross-entropy",
        title="Network, the start",
        says="The network alone, by the cross-entropy, under noise drawn anew in every step; others go on from here.",
        settings=_settings("cross-entropy", FROM_SCRATCH),
        decoders=NETWORK_DECODERS,
    ),
    NetworkModel(
        name="ce-fresh",
        learning="cross-entropy",
        title="Network, trained on",
        says="The network alone, trained on by the cross-entropy: the rival of deep-consistent-far.  Six of its steps"
        " take about as long as one of the joint model's, each by itself on a GPU.",
        settings=_settings("cross-entropy", GO_ON | {"n_steps": 6000}),
        needs=(START,),
        decoders=NETWORK_DECODERS,
    ),
    RefittedModel(
        name="ce-pl",
        learning="pseudolikelihood",
        title="Network, then a CRF by pseudolikelihood",
        says="The finished network (ce-fresh), and on its logits of held-out images one coupling for all edges, by the"
        " pseudolikelihood.",
        settings={"objective": "pseudolikelihood"},
        needs=("ce-fresh",),
        decoders=FEW_DECODERS,
    ),
    RefittedModel(
        name="ce-consistent",
        learning="consistent",
        title="Network, then a CRF consistently",
        says="The finished network (ce-fresh), and on its logits of held-out images one coupling for all edges, learned"
        " consistently.",
        settings={"objective": "consistent"},
        needs=("ce-fresh",),
        decoders=FEW_DECODERS,
    ),
)


def deep_models() -> tuple[Model, ...]:
    """All of them, in the order to show; none where torch is not installed."""
    return NETWORKS if torch_is_there() else ()
