"""The models on scenes, each with how it is learned and why it stands in the tables."""

from __future__ import annotations

from typing import Any

from locpmap_paper.experiments.decoders import FAR_SCENE_DECODERS, FEW_DECODERS, NETWORK_DECODERS, SCENE_DECODERS
from locpmap_paper.experiments.model import Model
from locpmap_paper.experiments.scenes.alike import PooledModel
from locpmap_paper.experiments.scenes.ensemble import JointBesideModel, TwoNetworksModel
from locpmap_paper.experiments.scenes.joint import JointModel
from locpmap_paper.experiments.scenes.pairwise import SceneCRFModel
from locpmap_paper.experiments.scenes.unaries import ScaledModel, UnariesModel

BASE, SCALED, JOINT = "unaries", "scaled", "joint"
ALIKE = "alike"
PL_NETWORK = "pl-network"
NETWORKS = ("deeplab", "pretrained")
PAPERS = ("deeplab",)
BEST = ("pretrained",)
NEAR = [[0, 1], [1, 0]]
FAR = [*NEAR, [0, 9], [9, 0], [0, 25], [25, 0]]

GO_ON = {
    "n_steps": 600,
    "learning_rate": 2e-4,
    "batch_size": 16,
    "weight_decay": 0.02,
    "slower": {"network.encoder": 0.2},
}


def _settings(kinds: list[str], steps: list[list[int]]) -> dict[str, Any]:
    return {"kinds": kinds, "steps": steps}


SCENE_MODELS: tuple[Model, ...] = (
    UnariesModel(
        name=BASE,
        learning="cross-entropy",
        title="Unaries alone",
        says="The classifier or the network by itself.",
        decoders=NETWORK_DECODERS,
    ),
    ScaledModel(
        name=SCALED,
        learning="cross-entropy",
        title="Unaries alone, temperature scaled",
        says="The same scores times the number that makes held-out scenes likeliest: no label changes.",
        needs=(BASE,),
        decoders=NETWORK_DECODERS,
    ),
    SceneCRFModel(
        name="pl-edges",
        learning="pseudolikelihood",
        title="Boundaries, pseudolikelihood",
        says="The paper's way: four neighbours, coupled by what a boundary detector (HED) sees between them, with"
        " weights by the pseudolikelihood on held-out scenes.",
        settings=_settings(["boundary"], NEAR),
        needs=(BASE,),
        decoders=SCENE_DECODERS,
    ),
    SceneCRFModel(
        name="pl-colour",
        learning="pseudolikelihood",
        title="Colours, pseudolikelihood",
        says="The same with the likeness of colours in place of boundaries.",
        settings=_settings(["colour"], NEAR),
        needs=(BASE,),
        decoders=FEW_DECODERS,
    ),
    SceneCRFModel(
        name="consistent-edges",
        learning="consistent",
        title="Boundaries, consistent",
        says="Four neighbours and boundaries, learned with the neighbours that LocPMAP finds in place of the true"
        " ones.",
        settings=_settings(["boundary"], NEAR),
        needs=(BASE,),
        decoders=SCENE_DECODERS,
    ),
    SceneCRFModel(
        name="consistent-colour",
        learning="consistent",
        title="Colours, consistent",
        says="Four neighbours and the likeness of their colours, consistently.",
        settings=_settings(["colour"], NEAR),
        needs=(BASE,),
        decoders=FEW_DECODERS,
    ),
    SceneCRFModel(
        name="consistent-far",
        learning="consistent",
        title="Boundaries, far neighbours, consistent",
        says="Neighbours 1, 9 and 25 pixels away, across and down, coupled by the strongest boundary on the way and by"
        " colours, consistently.",
        settings=_settings(["boundary", "colour"], FAR),
        needs=(BASE,),
        decoders=FAR_SCENE_DECODERS,
    ),
    PooledModel(
        name=ALIKE,
        learning="cross-entropy",
        title="Unaries and places that look alike",
        says="Every pixel also hears what the unaries say of places 8 to 64 pixels away that look like its own, as in"
        " lp.refine: a mean of probabilities, with weights by the likelihood of held-out scenes.",
        needs=(BASE,),
        decoders=NETWORK_DECODERS,
    ),
    SceneCRFModel(
        name="alike-edges",
        learning="consistent",
        title="Places that look alike, boundaries, consistent",
        says="The same, and on top of it four neighbours and boundaries, learned consistently.",
        settings=_settings(["boundary"], NEAR),
        needs=(ALIKE,),
        decoders=SCENE_DECODERS,
    ),
    UnariesModel(
        name=PL_NETWORK,
        learning="pseudolikelihood",
        title="Network by pseudolikelihood, alone",
        says="The paper's network, trained through the pseudolikelihood with couplings by colours, as the paper trains"
        " it; here without the couplings.",
        settings={"loss": "pseudolikelihood"},
        levels=PAPERS,
        decoders=NETWORK_DECODERS,
    ),
    SceneCRFModel(
        name="pl-network-edges",
        learning="pseudolikelihood",
        title="Network by pseudolikelihood, boundaries",
        says="The paper's deep model: the network trained through the pseudolikelihood, and pairwise weights learned"
        " again on what it says of held-out scenes.",
        settings=_settings(["boundary"], NEAR),
        levels=PAPERS,
        needs=(PL_NETWORK,),
        decoders=FEW_DECODERS,
    ),
    JointModel(
        name=JOINT,
        learning="consistent",
        title="Network and couplings, jointly",
        says="A network goes on together with couplings that it predicts for neighbours 1, 9 and 25 pixels away, with"
        " the neighbours that LocPMAP finds.",
        settings={"steps": FAR, "recipe": GO_ON, "n_samples": 8, "max_sweeps": 10},
        levels=NETWORKS,
        needs=(BASE,),
        decoders=("argmax", *FAR_SCENE_DECODERS),
    ),
    TwoNetworksModel(
        name="two-networks",
        learning="cross-entropy",
        title="Two networks alone, temperature scaled",
        says="The mean of what the networks say that learned from 480 and from all 600 scenes: what a second network"
        " brings without any couplings.",
        levels=BEST,
        needs=(BASE, SCALED),
        decoders=NETWORK_DECODERS,
    ),
    JointBesideModel(
        name="joint-beside",
        learning="consistent",
        title="Network and couplings, jointly, beside the network",
        says="The jointly learned couplings, on the mean of their network's logits and those of the unaries.",
        levels=BEST,
        needs=(BASE, JOINT),
        decoders=("argmax", *FAR_SCENE_DECODERS),
    ),
)
