"""The decoders of the tables, each with its settings.

All decoders get the model in its normal form (`locpmap_paper.experiments.normal`) and the same seed.  Slow ones run on
the first test images only; their rows record the number of images.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from locpmap.errors import unknown

# Number of test images by the cost of the decoder.  Rows with equal numbers use the same images.
MANY, SOME, FEW, VERY_FEW = 2000, 500, 300, 25

SAMPLES = 50  # as in the paper
FAST = {"n_samples": 5, "burn_in": 5, "n_sweeps": 10, "max_sweeps": 20}  # limits in a smoke run


@dataclass(frozen=True)
class Listed:
    """A decoder with its title, options and description in the tables."""

    name: str
    title: str
    method: str  # a decoder's name in locpmap.infer, or "argmax" for the network alone
    family: str  # "paper", "locpmap", "beyond" or "network"
    says: str
    options: dict[str, Any] = field(default_factory=dict)
    paper: str | None = None  # its name in the paper's tables
    n_images: int | None = None  # number of first test images; all by default
    choices: tuple[dict[str, Any], ...] = ()  # further options, of which the best on held-out images are used
    compile_seconds: float = 1.0  # rough durations in the demonstration on two cores, for the remaining time
    run_seconds: float = 0.5

    def settings(self, fast: bool) -> dict[str, Any]:
        """Return the options, with fewer samples and sweeps in a smoke run."""
        if not fast:
            return self.options
        return {name: min(value, FAST[name]) if name in FAST else value for name, value in self.options.items()}

    def n_given(self, n_test: int) -> int:
        """Return the number of test images for this decoder."""
        return n_test if self.n_images is None else min(self.n_images, n_test)


LISTED = (
    Listed(
        "argmax",
        "Network's argmax",
        "argmax",
        "network",
        "The network alone: the most likely label of each pixel. Its seconds are those of the network's forward pass,"
        " which other rows do not include.",
        n_images=MANY,
        compile_seconds=0.0,
        run_seconds=9.0,
    ),
    Listed(
        "icm",
        "ICM",
        "icm",
        "paper",
        "Greedy coordinate ascent from one random labelling, until convergence.",
        {"start": "random", "max_sweeps": 100},
        "ICM",
        n_images=MANY,
        compile_seconds=5.0,
    ),
    Listed(
        "icm-unary",
        "ICM from the unaries",
        "icm",
        "beyond",
        "Greedy coordinate ascent from the argmax of the unaries.",
        {"start": "unary", "max_sweeps": 100},
        n_images=MANY,
    ),
    Listed(
        "icm-iter",
        "ICM-iter",
        "icm_iter",
        "paper",
        "Votes over 50 greedy ascents, each without the unaries of a random tenth of the pixels.",
        {"n_samples": SAMPLES, "drop": 0.1},
        "ICM-iter",
        n_images=MANY,
        compile_seconds=0.3,
        run_seconds=1.0,
    ),
    Listed(
        "lbp",
        "Loopy BP",
        "lbp",
        "paper",
        "Sum-product belief propagation, damped from the tenth sweep on, at most 100 sweeps.",
        {"damping": 0.3, "max_sweeps": 100, "tolerance": 1e-4},
        "LBP",
        n_images=MANY,
        compile_seconds=5.0,
    ),
    Listed(
        "mean-field",
        "Mean field",
        "mean_field",
        "paper",
        "Mean-field inference, initialised with the unaries and updated one site at a time.",
        {"start": "unary", "max_sweeps": 100, "tolerance": 1e-4},
        "MF",
        n_images=MANY,
        compile_seconds=3.0,
    ),
    Listed(
        "annealing",
        "Simulated annealing",
        "annealing",
        "paper",
        "A Markov chain cooled from temperature 3 to 0.02 in 200 sweeps; its best labelling, improved greedily.",
        {"n_sweeps": 200, "start_temperature": 3.0, "end_temperature": 0.02},
        "SA",
        n_images=SOME,
        compile_seconds=2.0,
        run_seconds=2.0,
    ),
    Listed(
        "gibbs",
        "Gibbs sampling",
        "gibbs",
        "paper",
        "Votes over 200 sweeps of a Gibbs chain, after a burn-in of 200 sweeps.",
        {"n_samples": 200, "burn_in": 200},
        "Gibbs",
        n_images=SOME,
        compile_seconds=1.0,
        run_seconds=2.0,
    ),
    Listed(
        "locpmap",
        "LocPMAP",
        "locpmap",
        "locpmap",
        "The paper's algorithm: votes over 50 perturbed greedy ascents from random labellings.",
        {"n_samples": SAMPLES, "probability": "votes"},
        "LocPMAP",
        n_images=MANY,
        compile_seconds=9.0,
    ),
    Listed(
        "locpmap-conditional",
        "LocPMAP, conditional",
        "locpmap",
        "locpmap",
        "As LocPMAP; probabilities are the mean over samples of p(label | the sample's neighbours).",
        {"n_samples": SAMPLES, "probability": "conditional"},
        n_images=MANY,
        run_seconds=2.0,
    ),
    Listed(
        "locpmap-blocks",
        "LocPMAP, rows and columns",
        "locpmap",
        "locpmap",
        "As LocPMAP, optimising whole rows and columns instead of single sites.",
        {"n_samples": SAMPLES, "blocks": "rows+columns", "probability": "votes"},
        n_images=SOME,
        run_seconds=8.0,
    ),
    Listed(
        "locpmap-blocks-conditional",
        "LocPMAP, rows and columns, conditional",
        "locpmap",
        "locpmap",
        "As LocPMAP, optimising whole rows and columns, with conditional probabilities.",
        {"n_samples": SAMPLES, "blocks": "rows+columns", "probability": "conditional"},
        n_images=SOME,
        run_seconds=4.0,
    ),
    Listed(
        "locpmap-perturbed-conditional",
        "LocPMAP, perturbed start, conditional",
        "locpmap",
        "locpmap",
        "As LocPMAP, conditional, but each ascent starts from the argmax of the perturbed unaries.",
        {"n_samples": SAMPLES, "start": "perturbed", "probability": "conditional"},
        n_images=MANY,
    ),
    Listed(
        "locpmap-blocks-perturbed-conditional",
        "LocPMAP, rows and columns, perturbed start, conditional",
        "locpmap",
        "locpmap",
        "As LocPMAP, optimising rows and columns, from the perturbed start, with conditional probabilities.",
        {"n_samples": SAMPLES, "blocks": "rows+columns", "start": "perturbed", "probability": "conditional"},
        n_images=SOME,
        run_seconds=3.0,
    ),
    Listed(
        "locpmap-tuned",
        "LocPMAP, tuned",
        "locpmap",
        "locpmap",
        "Conditional probabilities of 200 samples. Start (perturbed or random), blocks (sites, 2×2 tiles or rows and"
        " columns) and temperature of the noise (0.5, 0.7 or 1) have the highest mean IoU on held-out images, with 50"
        " samples.",
        {"n_samples": 4 * SAMPLES, "probability": "conditional"},
        n_images=MANY,
        choices=tuple(
            {"start": start, "blocks": blocks, "temperature": temperature}
            for start in ("perturbed", "random")
            for blocks in ("sites", (2, 2), "rows+columns")
            for temperature in (1.0, 0.7, 0.5)
        ),
        run_seconds=27.0,
    ),
    Listed(
        "locpmap-tuned-sites",
        "LocPMAP, tuned",
        "locpmap",
        "locpmap",
        "Conditional probabilities of 200 samples with single sites. Start (perturbed or random) and temperature of the"
        " noise (0.5, 0.7 or 1) have the highest mean IoU on held-out images, with 50 samples.",
        {"n_samples": 4 * SAMPLES, "probability": "conditional"},
        choices=tuple(
            {"start": start, "temperature": temperature}
            for start in ("perturbed", "random")
            for temperature in (1.0, 0.7, 0.5)
        ),
        run_seconds=3.0,
    ),
    Listed(
        "trw",
        "Tree-reweighted BP",
        "trw",
        "beyond",
        "Convexified sum-product belief propagation, at most 50 sweeps; also gives an upper bound on log Z.",
        {"damping": 0.3, "max_sweeps": 50, "tolerance": 1e-4},
        n_images=FEW,
        compile_seconds=7.0,
        run_seconds=2.0,
    ),
    Listed(
        "max-product",
        "Max-product BP",
        "max_product",
        "beyond",
        "Damped max-product belief propagation; the best labelling found.",
        {"damping": 0.3, "max_sweeps": 100, "tolerance": 1e-4},
        n_images=MANY,
        compile_seconds=3.0,
    ),
    Listed(
        "graph-cut",
        "Graph cut",
        "graph_cut",
        "beyond",
        "The labelling with the highest score, for two labels and attractive edges; expansion moves for more labels.",
        n_images=MANY,
    ),
    Listed(
        "perturb-and-max-product",
        "Perturb-and-max-product",
        "perturb_and_max_product",
        "beyond",
        "Votes over max-product solutions of 50 perturbed models.",
        {"n_samples": SAMPLES, "max_sweeps": 50},
        n_images=FEW,
        compile_seconds=6.0,
        run_seconds=4.0,
    ),
    Listed(
        "perturb-and-map",
        "Perturb-and-MAP",
        "perturb_and_map",
        "beyond",
        "Votes over the global maxima of 20 perturbed models, found by graph cut; needs attractive edges.",
        {"n_samples": 20, "perturbation": "sites"},
        n_images=VERY_FEW,
    ),
)
DECODERS = {listed.name: listed for listed in LISTED}

NETWORK_DECODERS = ("argmax",)
CRF_DECODERS = tuple(name for name in DECODERS if name not in ("argmax", "locpmap-tuned-sites"))
# A subset for variants of other models.
MAIN_DECODERS = (
    *("icm", "icm-iter", "lbp", "mean-field", "gibbs", "graph-cut", "locpmap", "locpmap-conditional"),
    *("locpmap-perturbed-conditional", "locpmap-blocks-conditional", "locpmap-blocks-perturbed-conditional"),
)
# One form per method: blocks take long to compile and to tune.
DEMO_DECODERS = tuple(name for name in DECODERS if "blocks" not in name and name not in ("argmax", "locpmap-tuned"))
FEW_DECODERS = ("icm", "lbp", "mean-field", "locpmap-conditional", "locpmap-perturbed-conditional")
# For models with distant neighbours, which row and column blocks do not cover.
FAR_DECODERS = ("icm-unary", "graph-cut", "locpmap", *FEW_DECODERS)
# For scenes: a 2×2 tile has 4,096 labellings of eight labels, and exact global maxima are out of reach.
_ON_SCENES = (name for name in CRF_DECODERS if name not in ("locpmap-tuned", "perturb-and-map"))
SCENE_DECODERS = (*_ON_SCENES, "locpmap-tuned-sites")
FAR_SCENE_DECODERS = (*FAR_DECODERS, "gibbs", "locpmap-tuned-sites")


def listed(names: tuple[str, ...]) -> list[Listed]:
    """Return decoders by name, in display order.

    >>> [decoder.title for decoder in listed(("lbp", "icm"))]
    ['ICM', 'Loopy BP']
    """
    for name in names:
        if name not in DECODERS:
            raise unknown("decoder", name, DECODERS)
    return [decoder for decoder in LISTED if decoder.name in names]
