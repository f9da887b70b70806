"""Local Perturb-and-MAP: perturb the score with Gumbel noise, climb to a local maximum, repeat, count.

For blocks B, ``θ~(y) = θ(y) + Σ_β ε(y_β)`` with standard Gumbel ε:  a fixed labelling y is a local maximum of θ~ with
probability ``Π_β p(y_β | y_¬β)``, its pseudolikelihood (single sites) or composite likelihood (larger blocks).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from locpmap.errors import InputError, whole_number, within
from locpmap.graphs.blocks import LENGTH, plan_blocks
from locpmap.inference.decoder import Locality, Problem
from locpmap.inference.sampling import Tally, TallySampler, check_start_of_tiles, parse_start
from locpmap.kernels.perturbation import LOGISTIC, NONE, PERTURBED, PLAIN, RANDOM, Perturbation
from locpmap.kernels.spec import Blocks, Climb
from locpmap.potentials import Potentials

BLOCKS = re.compile(rf"sites|rows{LENGTH}|columns{LENGTH}|rows{LENGTH}\+columns{LENGTH}")


@dataclass(frozen=True, eq=False)
class LocPMAP(TallySampler):
    """Local Perturb-and-MAP: labels with an uncertainty, at any size.

    ``probability`` is the distribution of the perturbed local maxima, not the marginals of p: under strong coupling it
    drifts away from them (for those take ``lbp``, ``gibbs`` or ``exact``).  Pseudolikelihood is the
    probability of the true labelling to be such a maximum; consistent learning (:class:`locpmap.CRF`) fits this very
    ``probability``.

    A sample costs 5 to 9 sweeps on image-like models, each O((S + E)·L), and memory does not grow with the samples.

    Args:
        n_samples: Number of samples.
        blocks: What is improved at a time: "sites"; a tile ``(h, w)`` with noise on its joint labellings; "rows",
            "columns" or "rows+columns", solved as chains with noise on the sites, whole or in parts of bounded length
            ("rows:16+columns:16"); or a list of disjoint site lists (enumerated up to 4,096 joint labellings, forests
            by dynamic programming, the rest refused).
        start: "random" (uniform over allowed labels), "perturbed" (the argmax of the perturbed unaries: faster, but it
            trusts the unaries by themselves) or an array of labels.
        probability: "conditional" (the mean of ``p(y_i | the sample's other labels)``: less variance, and never 0 for
            an allowed label, except by underflow) or "votes" (the share of the samples, as in the paper).
        max_sweeps: Sweeps after which a climb stops.
        temperature: Scale of the noise; 1 is the theorem's, 0 is ICM from many starts.
        keep_samples: Return the samples themselves, (M, ..).

    The noise is drawn lazily where the model allows it, which is much faster and has the same distribution:
    ``result.noise`` says "lazy" or "plain".

    >>> import numpy as np
    >>> import locpmap as lp
    >>> pot = lp.Potentials.grid(np.array([[[0.0, 2.0], [0.5, 0.0], [0.0, 2.0]]]), 1.0)
    >>> result = lp.infer(pot, lp.LocPMAP(n_samples=100), seed=0)
    >>> result.labels
    array([[1, 1, 1]])
    >>> bool(result.variance[0, 1, 1] > result.variance[0, 0, 1])
    True
    """

    name: ClassVar[str] = "locpmap"
    on_gpu: ClassVar[bool] = True
    n_samples: int = 50
    blocks: Any = "sites"
    start: Any = "random"
    probability: str = "conditional"
    max_sweeps: int = 100
    temperature: float = 1.0
    keep_samples: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("max_sweeps", self.max_sweeps, 1)
        within("temperature", self.temperature, 0)
        if self.probability not in ("votes", "conditional"):
            raise InputError(f"probability is {self.probability!r}, expected 'votes' or 'conditional'")
        if isinstance(self.blocks, str) and not BLOCKS.fullmatch(self.blocks):
            raise InputError(
                f"blocks is {self.blocks!r}, expected 'sites', 'rows', 'columns', 'rows+columns', parts of them such as"
                " 'rows:16', a tile (h, w) or a list of site lists"
            )

    def init(self, problem: Problem) -> Tally:
        start, given = parse_start(self.start, problem, {"random": RANDOM, "perturbed": PERTURBED})
        lazy, potentials = self._noise(problem.potentials) == "lazy", problem.potentials
        scheme = NONE if self.temperature == 0 else LOGISTIC if lazy and potentials.n_labels == 2 else PLAIN
        blocks = None
        if not self._single_sites():
            blocks = Blocks(self.blocks, partial(plan_blocks, self.blocks, potentials.structure, potentials.n_labels))
        perturbation = Perturbation(scheme, float(self.temperature), *problem.key)
        climb = Climb(perturbation, start, given, self.max_sweeps, problem.first_image, lazy, blocks)
        draw = partial(problem.kernels.climb, problem.view, climb)
        return Tally.start(problem, draw, self.max_sweeps, self.n_samples, self.probability)

    def locality(self) -> Locality:
        check_start_of_tiles(self.start)
        if self.keep_samples:
            raise InputError("keep_samples is True, expected False for tiles, which give labels and probabilities")
        return Locality(int(self.max_sweeps), block_sizes(self.blocks), self.probability == "conditional")

    def _single_sites(self) -> bool:
        return isinstance(self.blocks, str) and self.blocks == "sites"

    def _noise(self, potentials: Potentials) -> str:
        if self.temperature == 0:
            return "none"
        attractive = potentials.pairwise.least_weight >= 0  # false unless the model is Potts
        few_candidates = potentials.view.grid is not None and attractive and 2 < potentials.n_labels <= 255
        return "lazy" if self._single_sites() and (potentials.n_labels == 2 or few_candidates) else "plain"


def block_sizes(blocks: object) -> tuple[tuple[int, int], ...]:
    """Return the rows and columns of the blocks of each family, or raise where they are not bounded."""
    if isinstance(blocks, str) and blocks == "sites":
        return ((1, 1),)
    if isinstance(blocks, tuple) and len(blocks) == 2 and all(isinstance(side, int | np.integer) for side in blocks):
        return ((int(blocks[0]), int(blocks[1])),)
    if not isinstance(blocks, str):
        raise InputError("blocks is a list of sites, expected 'sites' or a tile (h, w) for tiles")
    sizes = []
    for name in blocks.split("+"):
        line, _, length = name.partition(":")
        if not re.fullmatch("[0-9]+", length):
            raise InputError(
                f"blocks is {blocks!r}, which reach across the whole raster in a single step, expected 'sites', a tile"
                f" (h, w), or parts of bounded length such as '{line}:16'"
            )
        sizes.append((1, int(length)) if line == "rows" else (int(length), 1))
    return tuple(sizes)
