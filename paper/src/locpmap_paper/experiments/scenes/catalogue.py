"""The models on scenes, and how each is learned."""

from __future__ import annotations

from typing import Any

from locpmap_paper.experiments.decoders import FAR_SCENE_DECODERS, FEW_DECODERS, NETWORK_DECODERS, SCENE_DECODERS
from locpmap_paper.experiments.model import Model
from locpmap_paper.experiments.scenes.ensemble import AveragedJointModel, TwoNetworksModel
from locpmap_paper.experiments.scenes.joint import JointModel
from locpmap_paper.experiments.scenes.pairwise import SceneCRFModel
from locpmap_paper.experiments.scenes.pooled_unaries import PooledModel
from locpmap_paper.experiments.scenes.unaries import ScaledModel, UnariesModel

BASE, SCALED, JOINT = "unaries", "scaled", "joint"
ALIKE = "alike"
PL_NETWORK = "pl-network"
NETWORKS = ("deeplab", "pretrained")
PAPERS = ("deeplab",)
BEST = ("pretrained",)
NEAR = [[0, 1], [1, 0]]
FAR = [*NEAR, [0, 9], [9, 0], [0, 25], [25, 0]]

FINE_TUNING = {
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
        says="The classifier or the network alone.",
        decoders=NETWORK_DECODERS,
    ),
    ScaledModel(
        name=SCALED,
        learning="cross-entropy",
        title="Unaries alone, temperature scaled",
        says="The same scores times one factor that maximises the likelihood of held-out scenes; labels do not change.",
        needs=(BASE,),
        decoders=NETWORK_DECODERS,
    ),
    SceneCRFModel(
        name="pl-edges",
        learning="pseudolikelihood",
        title="Boundaries, pseudolikelihood",
        says="The paper's method: four neighbours, with couplings that depend on detected boundaries (HED) and weights"
        " learned by pseudolikelihood on held-out scenes.",
        settings=_settings(["boundary"], NEAR),
        needs=(BASE,),
        decoders=SCENE_DECODERS,
    ),
    SceneCRFModel(
        name="pl-colour",
        learning="pseudolikelihood",
        title="Colours, pseudolikelihood",
        says="As pl-edges, with colour similarity instead of boundaries.",
        settings=_settings(["colour"], NEAR),
        needs=(BASE,),
        decoders=FEW_DECODERS,
    ),
    SceneCRFModel(
        name="consistent-edges",
        learning="consistent",
        title="Boundaries, consistent",
        says="As pl-edges, but learned consistently: given the neighbours' labels sampled by LocPMAP, not the true"
        " ones.",
        settings=_settings(["boundary"], NEAR),
        needs=(BASE,),
        decoders=SCENE_DECODERS,
    ),
    SceneCRFModel(
        name="consistent-colour",
        learning="consistent",
        title="Colours, consistent",
        says="As consistent-edges, with colour similarity instead of boundaries.",
        settings=_settings(["colour"], NEAR),
        needs=(BASE,),
        decoders=FEW_DECODERS,
    ),
    SceneCRFModel(
        name="consistent-far",
        learning="consistent",
        title="Boundaries, far neighbours, consistent",
        says="Neighbours at distances of 1, 9 and 25 pixels, horizontally and vertically. Couplings depend on the"
        " strongest boundary in between and on colour similarity, and are learned consistently.",
        settings=_settings(["boundary", "colour"], FAR),
        needs=(BASE,),
        decoders=FAR_SCENE_DECODERS,
    ),
    PooledModel(
        name=ALIKE,
        learning="cross-entropy",
        title="Unaries and similar pixels",
        says="Each pixel's score is combined with the mean prediction at pixels of similar colour, 8 to 64 pixels away,"
        " as in lp.refine. The weights maximise the likelihood of held-out scenes.",
        needs=(BASE,),
        decoders=NETWORK_DECODERS,
    ),
    SceneCRFModel(
        name="alike-edges",
        learning="consistent",
        title="Similar pixels, boundaries, consistent",
        says="The unaries combined with similar pixels, plus couplings as in consistent-edges.",
        settings=_settings(["boundary"], NEAR),
        needs=(ALIKE,),
        decoders=SCENE_DECODERS,
    ),
    UnariesModel(
        name=PL_NETWORK,
        learning="pseudolikelihood",
        title="Network by pseudolikelihood, alone",
        says="The paper's network, trained by pseudolikelihood with couplings that depend on colours, as in the paper;"
        " here decoded without the couplings.",
        settings={"loss": "pseudolikelihood"},
        levels=PAPERS,
        decoders=NETWORK_DECODERS,
    ),
    SceneCRFModel(
        name="pl-network-edges",
        learning="pseudolikelihood",
        title="Network by pseudolikelihood, boundaries",
        says="The paper's deep model: the network trained by pseudolikelihood, with pairwise weights learned again on"
        " its logits for held-out scenes.",
        settings=_settings(["boundary"], NEAR),
        levels=PAPERS,
        needs=(PL_NETWORK,),
        decoders=FEW_DECODERS,
    ),
    JointModel(
        name=JOINT,
        learning="consistent",
        title="Network and couplings, jointly",
        says="A network is trained further, consistently, jointly with couplings that it predicts for neighbours at"
        " distances of 1, 9 and 25 pixels.",
        settings={"steps": FAR, "recipe": FINE_TUNING, "n_samples": 8, "max_sweeps": 10},
        levels=NETWORKS,
        needs=(BASE,),
        decoders=("argmax", *FAR_SCENE_DECODERS),
    ),
    TwoNetworksModel(
        name="two-networks",
        learning="cross-entropy",
        title="Two networks alone, temperature scaled",
        says="The mean logits of two networks, trained on 480 and on all 600 scenes. It shows the gain from a second"
        " network without couplings.",
        levels=BEST,
        needs=(BASE, SCALED),
        decoders=NETWORK_DECODERS,
    ),
    AveragedJointModel(
        name="joint-beside",
        learning="consistent",
        title="Network and couplings, jointly, averaged with the network",
        says="The jointly learned couplings, on the mean of the joint network's logits and the unaries.",
        levels=BEST,
        needs=(BASE, JOINT),
        decoders=("argmax", *FAR_SCENE_DECODERS),
    ),
)
