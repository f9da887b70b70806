"""Local Perturb-and-MAP: perturb the score with Gumbel noise, climb to a local maximum, repeat, count.

For blocks B, ``θ~(y) = θ(y) + Σ_β ε(y_β)`` with standard Gumbel ε:  a fixed labelling y is a local maximum of θ~ with
probability ``Π_β p(y_β | y_¬β)``, its pseudolikelihood (single sites) or composite likelihood (larger blocks).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from locpmap.errors import InputError
from locpmap.graphs.blocks import LENGTH, plan_blocks
from locpmap.inference.climbers import (
    BandCounter,
    Climb,
    bits_climber,
    block_climber,
    line_climber,
    potts_climber,
    site_climber,
    still_climber,
    takes_bits,
    takes_lines,
)
from locpmap.inference.decoder import Decoder, Outcome, Problem, Step, at_least, within
from locpmap.inference.directions import takes_directions
from locpmap.inference.sampling import Draw, Tally, parse_start
from locpmap.kernels.perturbation import LOGISTIC, NONE, PERTURBED, PLAIN, RANDOM, Perturbation
from locpmap.potentials import Potentials
from locpmap.result import Band, Status

BLOCKS = re.compile(rf"sites|rows{LENGTH}|columns{LENGTH}|rows{LENGTH}\+columns{LENGTH}")
SAMPLES_PER_CHECK = 32  # with a tolerance: fixed, so that where a run stops does not depend on memory or threads


@dataclass(frozen=True, eq=False)
class LocPMAP(Decoder):
    """Local Perturb-and-MAP: labels with an uncertainty, at any size.

    ``probability`` is the distribution of the perturbed local maxima, not the marginals of p: under strong coupling it
    drifts away from them (for those take ``lbp``, ``gibbs`` or ``exact``).  Pseudolikelihood is the
    probability of the true labelling to be such a maximum; consistent learning (:class:`locpmap.CRF`) fits this very
    ``probability``.
    ``probability="conditional"`` is recommended; "votes" is the paper's.

    A sample costs 5 to 9 sweeps on image-like models, each O((S + E)·L), and memory does not grow with the samples.

    Args:
        n_samples: Number of samples; with ``tolerance``, the least number.
        blocks: What is improved at a time: "sites"; a tile ``(h, w)`` with noise on its joint labellings; "rows",
            "columns" or "rows+columns", solved as chains with noise on the sites, whole or in parts of bounded length
            ("rows:16+columns:16"); or a list of disjoint site lists (enumerated up to 4,096 joint labellings, forests
            by dynamic programming, the rest refused).
        start: "random" (uniform over allowed labels), "perturbed" (the argmax of the perturbed unaries: faster, but it
            trusts the unaries by themselves) or an array of labels.
        probability: "votes" (the share of the samples) or "conditional" (the mean of ``p(y_i | the sample's other
            labels)``: never 0 for a label that is allowed, but by underflow; less variance).
        tolerance: Draw until the largest Monte-Carlo standard error of a probability is below this.
        max_samples: Samples after which a run with ``tolerance`` stops.
        max_sweeps: Sweeps after which a climb stops.
        temperature: Scale of the noise; 1 is the theorem's, 0 is ICM from many starts.
        noise: "plain", "lazy" (same distribution, other numbers, much faster) or "auto": lazy where it applies.
        keep_samples: Return the samples themselves, (M, ..).
        band: For attractive two-label models, also find where the local maximum is unique (``result.band``).

    >>> import numpy as np
    >>> import locpmap as lp
    >>> pot = lp.Potentials.grid(np.array([[[0.0, 2.0], [0.5, 0.0], [0.0, 2.0]]]), 1.0)
    >>> result = lp.infer(pot, lp.LocPMAP(n_samples=100, probability="conditional"), seed=0)
    >>> result.labels
    array([[1, 1, 1]])
    >>> bool(result.variance[0, 1, 1] > result.variance[0, 0, 1])
    True
    """

    name: ClassVar[str] = "locpmap"
    on_gpu: ClassVar[bool] = True
    at_end: ClassVar[Status] = Status.COMPLETE
    n_samples: int = 50
    blocks: Any = "sites"
    start: Any = "random"
    probability: str = "votes"
    tolerance: float | None = None
    max_samples: int = 10_000
    max_sweeps: int = 100
    temperature: float = 1.0
    noise: str = "auto"
    keep_samples: bool = False
    band: bool = False

    def __post_init__(self) -> None:
        at_least("n_samples", self.n_samples, 1)
        at_least("max_sweeps", self.max_sweeps, 1)
        at_least("max_samples", self.max_samples, 1)
        within("temperature", self.temperature, 0)
        if self.tolerance is not None:
            within("tolerance", self.tolerance, 0, open_low=True)
        if self.probability not in ("votes", "conditional"):
            raise InputError(f"probability is {self.probability!r}, expected 'votes' or 'conditional'")
        if self.noise not in ("auto", "plain", "lazy"):
            raise InputError(f"noise is {self.noise!r}, expected 'auto', 'plain' or 'lazy'")
        if isinstance(self.blocks, str) and not BLOCKS.fullmatch(self.blocks):
            raise InputError(
                f"blocks is {self.blocks!r}, expected 'sites', 'rows', 'columns', 'rows+columns', parts of them such as"
                " 'rows:16', a tile (h, w) or a list of site lists"
            )

    def init(self, problem: Problem) -> Tally:
        start, given = parse_start(self.start, problem, {"random": RANDOM, "perturbed": PERTURBED})
        lazy = self._scheme(problem.potentials) == "lazy"
        scheme = NONE if self.temperature == 0 else LOGISTIC if lazy and problem.potentials.n_labels == 2 else PLAIN
        climb = Climb(Perturbation(scheme, float(self.temperature), *problem.key), start, given, self.max_sweeps)
        draw: Draw
        on_gpu = problem.kernels.device is not None
        if not self._single_sites() and takes_lines(problem, self.blocks):
            draw = line_climber(problem, climb, self.blocks)
        elif not self._single_sites():
            plan = plan_blocks(self.blocks, problem.potentials.structure, problem.potentials.n_labels)
            draw = block_climber(problem, climb, plan)
        elif lazy and (problem.potentials.n_labels > 2 or (on_gpu and takes_directions(problem.potentials))):
            draw = potts_climber(problem, climb)
        elif lazy and not on_gpu and takes_bits(problem.potentials):
            draw = bits_climber(problem, climb, packed=not self.keep_samples)
        elif scheme == NONE and start == PERTURBED and not problem.potentials.pairwise.coupled:
            draw = still_climber(problem)
        else:
            draw = site_climber(problem, climb)
        if self.band:
            if not self._single_sites() or not is_attractive_binary(problem.potentials):
                raise InputError("band=True needs blocks='sites' and an attractive model of two labels")
            draw = BandCounter(problem, climb, draw)
        conditional = self.probability == "conditional"
        most = self.n_samples if self.tolerance is None else max(self.max_samples, self.n_samples)
        how = {"conditional": conditional, "keep": self.keep_samples, "watched": self.tolerance is not None}
        return Tally.start(problem, draw, self.max_sweeps, most, **how)

    def step(self, problem: Problem, state: Tally) -> Step:
        if self.tolerance is None:
            state.advance(problem, self.n_samples - state.n_samples)
            return Step(state.n_samples, self.n_samples)
        upto = min(state.n_samples + SAMPLES_PER_CHECK, max(self.max_samples, self.n_samples))
        while state.n_samples < upto:
            state.advance(problem, upto - state.n_samples)
        enough = state.n_samples >= self.n_samples and state.standard_error() < self.tolerance
        return Step(state.n_samples, max(self.max_samples, self.n_samples), converged=enough)

    def finish(self, problem: Problem, state: Tally) -> Outcome:
        band = None
        if isinstance(state.draw, BandCounter):
            unflatten, restore = problem.potentials.unflatten, problem.potentials.restore
            unique = state.draw.unique / state.n_samples
            band = Band(
                width=restore(unflatten(state.draw.differ / state.n_samples)),
                unique=restore(unique) if problem.potentials.batched else float(unique[0]),
            )
        missed = self.tolerance is not None and not state.standard_error() < self.tolerance
        outcome = state.outcome(problem)
        outcome.noise, outcome.band = self._scheme(problem.potentials), band
        if missed:
            outcome.status = Status.MAX_SAMPLES
        return outcome

    def _single_sites(self) -> bool:
        return isinstance(self.blocks, str) and self.blocks == "sites"

    def _scheme(self, potentials: Potentials) -> str:
        """The noise's name: a property of the model, never of the backend."""
        two = potentials.n_labels == 2
        few_candidates = (
            takes_directions(potentials) and potentials.pairwise.least_weight >= 0 and 2 < potentials.n_labels <= 255
        )
        applies = self._single_sites() and self.temperature > 0 and (two or few_candidates)
        if self.noise == "lazy" and not applies:
            raise InputError(
                "noise='lazy' needs blocks='sites', a temperature above 0, and two labels or a 4-connected grid with"
                " Potts weights that are not negative (3 to 255 labels)"
            )
        if self.temperature == 0:
            return "none"
        return "lazy" if applies and self.noise != "plain" else "plain"


def is_attractive_binary(potentials: Potentials) -> bool:
    """Whether there are two labels and every edge prefers that its ends agree."""
    if potentials.n_labels != 2:
        return False
    if potentials.pairwise.potts:
        return potentials.pairwise.least_weight >= 0
    features, tables = potentials.model.features, potentials.model.tables
    gain = tables[..., 0, 0] + tables[..., 1, 1] - tables[..., 0, 1] - tables[..., 1, 0]
    return bool(((features * gain).sum(axis=2) >= 0).all())
