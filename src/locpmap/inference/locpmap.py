"""Local Perturb-and-MAP: perturb the scores with Gumbel noise, climb to a local maximum, repeat.

Let β run over blocks of sites, and let ``θ~(y) = θ(y) + Σ_β ε(y_β)`` with standard Gumbel noise ε.  A fixed labelling y
is a local maximum of θ~ with probability ``Π_β p(y_β | y_¬β)``.  This is its pseudolikelihood (blocks of one site) or
composite likelihood (larger blocks).
"""

import re
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from locpmap.errors import InputError, InputTypeError, whole_number, within
from locpmap.graphs.blocks import LENGTH, LINES, plan_blocks
from locpmap.inference.decoder import Locality, Problem
from locpmap.inference.fields import ErrorFields
from locpmap.inference.sampling import Tally, TallySampler, parse_start
from locpmap.kernels.fields import no_fields
from locpmap.kernels.perturbation import LAZY, LOGISTIC, NONE, PERTURBED, PLAIN, RANDOM, Perturbation
from locpmap.kernels.spec import Blocks, Climb
from locpmap.potentials import Potentials

BLOCKS = re.compile(rf"sites|rows{LENGTH}|columns{LENGTH}|rows{LENGTH}\+columns{LENGTH}")


@dataclass(frozen=True, eq=False)
class LocPMAP(TallySampler):
    """Local Perturb-and-MAP: samples of local maxima of randomly perturbed scores.

    Each sample adds Gumbel noise to the scores and climbs to a local maximum by greedy coordinate ascent.
    ``probability`` is estimated from the samples, and ``labels`` are its argmax.

    Args:
        n_samples (int, default 50): Number of samples to draw per image.
        blocks (str, tuple or list, default "sites"): Sites that a climb updates together.

            - "sites": single sites.
            - ``(h, w)``, or ``(d, h, w)`` on a volume: tiles, with noise on their at most 4,096 joint labellings.
            - "rows", "columns" or "rows+columns": lines, solved as chains, with noise on the sites.  A length divides
              lines into parts, as in "rows:16+columns:16".
            - A list of disjoint, non-empty lists of sites.  Blocks of up to 4,096 joint labellings are enumerated;
              larger ones must be forests, which are solved by dynamic programming.  Sites in no list are updated alone.

            Tiles and lines need a volume, or a grid with 4 or 8 neighbours.
        start (str or array, default "random"): Labels at which climbs start.  "random" is uniform over allowed labels.
            "perturbed" is the argmax of the perturbed unaries, which is faster but biases samples towards the unaries.
            An array gives the labels.
        probability (str, default "conditional"): Estimator of probabilities.  "conditional" averages the conditional
            probability of the label given the sample's other labels.  It has less variance, and allowed labels never
            get 0 except by underflow.  "votes" is the fraction of samples with the label, as in the paper.
        max_sweeps (int, default 100): Number of sweeps after which a climb stops.
        temperature (float, default 1.0): Scale of the noise.  The theorem requires 1; 0 gives ICM from many starts.
        keep_samples (bool, default False): Return the samples in ``result.samples``, (M, ...). Tiles count the areas of
            their labels instead (``TiledResult.areas``).
        fields (ErrorFields, default None): Errors that neighbouring sites share, drawn anew for every sample.
        line_noise (str, default "sites"): Noise of rows or columns.  "sites" adds it to the scores of their sites.
            "joint" adds independent noise to every joint labelling of a line, as the theorem requires for blocks; it
            needs "rows" or "columns", whole or in parts, and runs on the CPU.

    Notes:
        ``probability`` describes the perturbed local maxima, not the marginals of the model.  Under strong coupling the
        two differ; use ``lbp``, ``gibbs`` or ``exact`` to compute marginals.  The pseudolikelihood of a labelling is
        the probability that it is such a local maximum.  Consistent learning (:class:`CRF`) fits this ``probability``.

        A sample costs 5 to 9 sweeps on typical image models, each O((S + E)·L).  Memory does not grow with
        ``n_samples`` unless ``keep_samples`` is True.

        Noise is drawn lazily for single sites with two labels, or with up to 255 labels and attractive Potts weights
        on a volume or a grid of 4 neighbours.  This is much faster and has the same distribution.  ``result.noise`` is
        "lazy", "plain", "joint" with ``line_noise="joint"``, or "none" for temperature 0.

    Example:
        >>> pot = lp.Potentials.grid(np.array([[[0.0, 2.0], [0.5, 0.0], [0.0, 2.0]]]), 1.0)
        >>> result = lp.infer(pot, lp.LocPMAP(n_samples=100), seed=0)
        >>> result.labels
        array([[1, 1, 1]])
        >>> bool(result.variance[0, 1, 1] > result.variance[0, 0, 1])
        True

    See Also:
        :func:`infer`, :func:`samples`, :class:`PerturbAndMAP`, :class:`ICM`
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
    fields: ErrorFields | None = None
    line_noise: str = "sites"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("max_sweeps", self.max_sweeps, 1)
        within("temperature", self.temperature, 0)
        if self.fields is not None and not isinstance(self.fields, ErrorFields):
            raise InputTypeError(f"fields is {self.fields!r}, expected an ErrorFields or None")
        if self.probability not in ("votes", "conditional"):
            raise InputError(f"probability is {self.probability!r}, expected 'votes' or 'conditional'")
        if isinstance(self.blocks, str) and not BLOCKS.fullmatch(self.blocks):
            raise InputError(
                f"blocks is {self.blocks!r}, expected 'sites', 'rows', 'columns', 'rows+columns', parts of them such as"
                " 'rows:16', a tile (h, w) or a list of site lists"
            )
        if self.line_noise not in ("sites", "joint"):
            raise InputError(f"line_noise is {self.line_noise!r}, expected 'sites' or 'joint'")
        if self.line_noise == "joint":
            if not isinstance(self.blocks, str) or not LINES.fullmatch(self.blocks):
                raise InputError(f"line_noise is 'joint' and blocks is {self.blocks!r}, expected 'rows' or 'columns'")
            object.__setattr__(self, "on_gpu", False)

    def init(self, problem: Problem) -> Tally:
        start, given = parse_start(self.start, problem, {"random": RANDOM, "perturbed": PERTURBED})
        potentials, noise = problem.potentials, self._noise(problem.potentials)
        scheme = {"none": NONE, "lazy": LOGISTIC if potentials.n_labels == 2 else LAZY}.get(noise, PLAIN)
        blocks = None
        if not self._single_sites():
            blocks = Blocks(self.blocks, partial(plan_blocks, self.blocks, potentials.structure, potentials.n_labels))
        perturbation = Perturbation(scheme, float(self.temperature), *problem.key)
        fields = None if self.fields is None else self.fields.on(potentials)
        if fields is None and scheme == NONE and start == PERTURBED and blocks is None and potentials.pairwise.coupled:
            # The kernel with fields is the fastest one without noise: it needs no lists of neighbours.
            on_grid = potentials.view.grid is not None and _few_candidates(potentials)
            fields = no_fields(potentials.n_labels) if on_grid else None
        how = (start, given, self.max_sweeps, problem.first_image, noise == "lazy", blocks, fields)
        climb = Climb(perturbation, *how, clocks=noise == "joint")
        draw = partial(problem.kernels.climb, problem.view, climb)
        totals = problem.kernels.start_totals(problem.view, self.probability, self.n_samples, fields=fields is not None)
        tally = Tally(draw, self.max_sweeps, totals)
        if fields is not None and self.fields is not None and self.probability == "conditional":
            add = partial(problem.kernels.add_fields, problem.view, climb)
            tally.view_of = lambda span: problem.view.with_unary(add(span))
        return tally

    def locality(self) -> Locality:
        return Locality(int(self.max_sweeps), block_sizes(self.blocks), self.probability == "conditional")

    def _single_sites(self) -> bool:
        return isinstance(self.blocks, str) and self.blocks == "sites"

    def _noise(self, potentials: Potentials) -> str:
        if self.temperature == 0:
            return "none"
        if self.line_noise == "joint":
            return "joint"
        few = potentials.n_labels == 2 or _few_candidates(potentials)
        return "lazy" if self._single_sites() and few else "plain"


def _few_candidates(potentials: Potentials) -> bool:
    """Return whether only the best label of a site and those of its neighbours can win, and kernels rely on this."""
    attractive = potentials.pairwise.least_weight >= 0  # NaN, hence False, unless the model is Potts
    view = potentials.view
    return (view.grid is not None or view.volume is not None) and attractive and potentials.n_labels <= 255


def block_sizes(blocks: object) -> tuple[tuple[int, ...], ...]:
    """Return ([planes,] rows, columns) of the blocks of each family, or raise if they are unbounded."""
    if isinstance(blocks, str) and blocks == "sites":
        return ((1, 1),)
    if isinstance(blocks, tuple) and len(blocks) in (2, 3) and all(isinstance(n, int | np.integer) for n in blocks):
        return (tuple(int(side) for side in blocks),)
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
