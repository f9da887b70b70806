"""The decoders of the tables, each with the settings that it is given and why.

All get the model in its normal form (`locpmap_paper.experiments.normal`) and the same seed.  Slow ones run on the first
test images only; their rows say on how many.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from locpmap.errors import unknown

# Test images that a decoder is given, by what it costs; rows with the same number can be compared image by image.
MANY, SOME, FEW, VERY_FEW = 2000, 500, 300, 25

SAMPLES = 50  # as in the paper
FAST = {"n_samples": 5, "burn_in": 5, "n_sweeps": 10, "max_sweeps": 20}  # at most this much in a smoke run


@dataclass(frozen=True)
class Listed:
    """A decoder as the tables show it."""

    name: str
    title: str
    method: str  # of locpmap.infer; "argmax" is the network's own
    family: str  # "paper", "locpmap", "beyond" or "network"
    says: str
    options: dict[str, Any] = field(default_factory=dict)
    paper: str | None = None  # its name in the paper's tables
    n_images: int | None = None  # the first test images only
    choices: tuple[dict[str, Any], ...] = ()  # further options, of which held-out images choose the best

    def settings(self, fast: bool) -> dict[str, Any]:
        """The options; fewer samples and sweeps in a smoke run."""
        if not fast:
            return self.options
        return {name: min(value, FAST[name]) if name in FAST else value for name, value in self.options.items()}

    def n_given(self, n_test: int) -> int:
        """How many of the test images it is given."""
        return n_test if self.n_images is None else min(self.n_images, n_test)


LISTED = (
    Listed(
        "argmax",
        "Network's argmax",
        "argmax",
        "network",
        "The network by itself: the likelier label of each pixel.  Its seconds are those of the network's pass, which"
        " other rows leave out.",
        n_images=MANY,
    ),
    Listed(
        "icm",
        "ICM",
        "icm",
        "paper",
        "Greedy ascent from one random labelling until nothing changes.",
        {"start": "random", "max_sweeps": 100},
        "ICM",
        n_images=MANY,
    ),
    Listed(
        "icm-unary",
        "ICM from the unaries",
        "icm",
        "beyond",
        "Greedy ascent from the best label of each pixel by itself.",
        {"start": "unary", "max_sweeps": 100},
        n_images=MANY,
    ),
    Listed(
        "icm-iter",
        "ICM-iter",
        "icm_iter",
        "paper",
        "Votes over 50 greedy ascents, each of which ignores the unaries of a random tenth of the pixels.",
        {"n_samples": SAMPLES, "drop": 0.1},
        "ICM-iter",
        n_images=MANY,
    ),
    Listed(
        "lbp",
        "Loopy BP",
        "lbp",
        "paper",
        "Sum-product messages, damped from the tenth sweep on, 100 sweeps at most.",
        {"damping": 0.3, "max_sweeps": 100, "tolerance": 1e-4},
        "LBP",
        n_images=MANY,
    ),
    Listed(
        "mean-field",
        "Mean field",
        "mean_field",
        "paper",
        "Independent beliefs that begin at the unaries, improved one site at a time.",
        {"start": "unary", "max_sweeps": 100, "tolerance": 1e-4},
        "MF",
        n_images=MANY,
    ),
    Listed(
        "annealing",
        "Simulated annealing",
        "annealing",
        "paper",
        "A chain that cools from temperature 3 to 0.02 in 200 sweeps; the best labelling it met, then climbed.",
        {"n_sweeps": 200, "start_temperature": 3.0, "end_temperature": 0.02},
        "SA",
        n_images=SOME,
    ),
    Listed(
        "gibbs",
        "Gibbs sampling",
        "gibbs",
        "paper",
        "Votes over 200 sweeps of a chain after 200 that do not count.",
        {"n_samples": 200, "burn_in": 200},
        "Gibbs",
        n_images=SOME,
    ),
    Listed(
        "locpmap",
        "LocPMAP",
        "locpmap",
        "locpmap",
        "The paper's: votes over 50 perturbed greedy ascents from random labellings.",
        {"n_samples": SAMPLES, "probability": "votes"},
        "LocPMAP",
        n_images=MANY,
    ),
    Listed(
        "locpmap-conditional",
        "LocPMAP, conditional",
        "locpmap",
        "locpmap",
        "The same samples; probabilities are averaged over p(label | the sample's neighbours).",
        {"n_samples": SAMPLES, "probability": "conditional"},
        n_images=MANY,
    ),
    Listed(
        "locpmap-blocks",
        "LocPMAP, rows and columns",
        "locpmap",
        "locpmap",
        "As LocPMAP, improving whole rows and columns at a time.",
        {"n_samples": SAMPLES, "blocks": "rows+columns", "probability": "votes"},
        n_images=SOME,
    ),
    Listed(
        "locpmap-blocks-conditional",
        "LocPMAP, rows and columns, conditional",
        "locpmap",
        "locpmap",
        "Rows and columns at a time, with averaged conditional probabilities.",
        {"n_samples": SAMPLES, "blocks": "rows+columns", "probability": "conditional"},
        n_images=SOME,
    ),
    Listed(
        "locpmap-perturbed-conditional",
        "LocPMAP, perturbed start, conditional",
        "locpmap",
        "locpmap",
        "As LocPMAP, conditional, but each ascent begins at the best label of each pixel under its own noise.",
        {"n_samples": SAMPLES, "start": "perturbed", "probability": "conditional"},
        n_images=MANY,
    ),
    Listed(
        "locpmap-blocks-perturbed-conditional",
        "LocPMAP, rows and columns, perturbed start, conditional",
        "locpmap",
        "locpmap",
        "Rows and columns at a time, from the perturbed start, with averaged conditional probabilities.",
        {"n_samples": SAMPLES, "blocks": "rows+columns", "start": "perturbed", "probability": "conditional"},
        n_images=SOME,
    ),
    Listed(
        "locpmap-tuned",
        "LocPMAP, tuned",
        "locpmap",
        "locpmap",
        "Conditional probabilities of 200 samples; a perturbed or a random start, sites, tiles of 2×2 or rows and"
        " columns, and noise at temperature 0.5, 0.7 or 1: whichever has, with 50 samples, the highest mean IoU on"
        " held-out images.",
        {"n_samples": 4 * SAMPLES, "probability": "conditional"},
        n_images=MANY,
        choices=tuple(
            {"start": start, "blocks": blocks, "temperature": temperature}
            for start in ("perturbed", "random")
            for blocks in ("sites", (2, 2), "rows+columns")
            for temperature in (1.0, 0.7, 0.5)
        ),
    ),
    Listed(
        "locpmap-tuned-sites",
        "LocPMAP, tuned",
        "locpmap",
        "locpmap",
        "Conditional probabilities of 200 samples of single sites; a perturbed or a random start, and noise at"
        " temperature 0.5, 0.7 or 1: whichever has, with 50 samples, the highest mean IoU on held-out images.",
        {"n_samples": 4 * SAMPLES, "probability": "conditional"},
        choices=tuple(
            {"start": start, "temperature": temperature}
            for start in ("perturbed", "random")
            for temperature in (1.0, 0.7, 0.5)
        ),
    ),
    Listed(
        "trw",
        "Tree-reweighted BP",
        "trw",
        "beyond",
        "Convexified sum-product messages, 50 sweeps at most; an upper bound of log Z as well.",
        {"damping": 0.3, "max_sweeps": 50, "tolerance": 1e-4},
        n_images=FEW,
    ),
    Listed(
        "max-product",
        "Max-product BP",
        "max_product",
        "beyond",
        "Max-product messages, damped; the best of the labellings met.",
        {"damping": 0.3, "max_sweeps": 100, "tolerance": 1e-4},
        n_images=MANY,
    ),
    Listed(
        "graph-cut",
        "Graph cut",
        "graph_cut",
        "beyond",
        "The labelling with the highest score of all, where every edge attracts.",
        n_images=MANY,
    ),
    Listed(
        "perturb-and-max-product",
        "Perturb-and-max-product",
        "perturb_and_max_product",
        "beyond",
        "Votes over max-product on 50 perturbed models.",
        {"n_samples": SAMPLES, "max_sweeps": 50},
        n_images=FEW,
    ),
    Listed(
        "perturb-and-map",
        "Perturb-and-MAP",
        "perturb_and_map",
        "beyond",
        "Votes over the global maxima of 20 perturbed models, by graph cut; needs edges that attract.",
        {"n_samples": 20, "perturbation": "sites"},
        n_images=VERY_FEW,
    ),
)
DECODERS = {listed.name: listed for listed in LISTED}

NETWORK_DECODERS = ("argmax",)
CRF_DECODERS = tuple(name for name in DECODERS if name not in ("argmax", "locpmap-tuned-sites"))
# For models that vary another: the same story with fewer rows.
MAIN_DECODERS = (
    *("icm", "icm-iter", "lbp", "mean-field", "gibbs", "graph-cut", "locpmap", "locpmap-conditional"),
    *("locpmap-perturbed-conditional", "locpmap-blocks-conditional", "locpmap-blocks-perturbed-conditional"),
)
FEW_DECODERS = ("icm", "lbp", "mean-field", "locpmap-conditional", "locpmap-perturbed-conditional")
# On neighbours further away, which rows and columns know nothing of.
FAR_DECODERS = ("icm-unary", "graph-cut", "locpmap", *FEW_DECODERS)
# On scenes: eight labels make 4,096 labellings of a tile of 2×2, and global maxima of them cannot be had.
_ON_SCENES = (name for name in CRF_DECODERS if name not in ("locpmap-tuned", "perturb-and-map"))
SCENE_DECODERS = (*_ON_SCENES, "locpmap-tuned-sites")
FAR_SCENE_DECODERS = (*FAR_DECODERS, "gibbs", "locpmap-tuned-sites")


def listed(names: tuple[str, ...]) -> list[Listed]:
    """Decoders by name, in the order to show.

    >>> [decoder.title for decoder in listed(("lbp", "icm"))]
    ['ICM', 'Loopy BP']
    """
    for name in names:
        if name not in DECODERS:
            raise unknown("decoder", name, DECODERS)
    return [decoder for decoder in LISTED if decoder.name in names]
