"""Gibbs sampling: Markov chains of exact draws of sites or blocks, which converge to the model's distribution."""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from locpmap.arrays import Array, best_labels, cast, namespace, place_like
from locpmap.errors import InputError, whole_number, within
from locpmap.graphs.block_draws import plan_draws
from locpmap.inference.decoder import Outcome, Problem, Step
from locpmap.inference.icm import climb_once
from locpmap.inference.mixing import MAX_R_HAT, Halves, exchange
from locpmap.inference.sampling import Sampler, parse_start
from locpmap.kernels.model import CONDITIONAL, NOTHING, VOTES
from locpmap.kernels.perturbation import RANDOM
from locpmap.kernels.spec import Chain
from locpmap.result import Status

LADDER = 1.25  # ratio of neighbouring temperatures


@dataclass
class _State:
    ladders: list[list[Chain]]  # one per chain, by temperature; the first has temperature 1
    halves: Halves = field(default_factory=Halves)
    samples: list[Array] = field(default_factory=list)  # (samples, N, S) per step
    pending: list[Array] = field(default_factory=list)  # (N, S): drawn, but not returned yet

    @property
    def totals(self) -> list[Any]:
        return [ladder[0].totals for ladder in self.ladders]

    @property
    def sweeps(self) -> int:
        return self.ladders[0][0].sweeps


@dataclass(frozen=True, eq=False)
class Gibbs(Sampler):
    """Gibbs sampling: estimates of the marginals from one or several Markov chains per image.

    Args:
        n_samples (int, default 100): Number of samples per image, a multiple of ``n_chains``.
        burn_in (int, default 100): Number of sweeps of each chain to discard before its first sample.
        thin (int, default 1): Number of sweeps per sample.
        start (str or array, default "random"): "random" (uniform over allowed labels) or an array of labels.
        probability (str, default "votes"): Estimator of probabilities.  "votes" is the fraction of samples with the
            label.  "conditional" is the mean of the probabilities from which labels were drawn.  It has less variance,
            and allowed labels never get 0 except by underflow.
        keep_samples (bool, default False): Return the samples in ``result.samples``, (M, ...).
        blocks (str, tuple or list, default "sites"): Sites that are drawn jointly, given all others.

            - "sites": single sites.
            - "rows", "columns" or "rows+columns": lines, or parts of lines as in "rows:16".
            - "strips:8": strips of 8 rows and strips of 8 columns, in turn.
            - ``(h, w)``: tiles of h × w sites.
            - "trees": two trees in turn that cover the grid, or forests that cover a graph.
            - A list of disjoint, non-empty lists of sites.  Sites in no list are drawn alone.
            - "clusters": Swendsen-Wang, for Potts weights of at least 0.  Neighbours with equal labels are joined at
              random, and each cluster draws one label.

            Lines, strips and tiles need a grid with 4 or 8 neighbours.
        n_chains (int, default 1): Number of independent chains.  With two or more, ``result.r_hat`` and
            ``result.n_effective`` are computed, and the status is :attr:`Status.NOT_MIXED` if the chains disagree.
        tempering (int or list, default 1): Temperatures of replica exchange.  A number n stands for 1, 1.25, ..,
            1.25^(n - 1).  Each chain then consists of n chains that exchange their labels; the one at temperature 1
            is counted.

    Notes:
        A block of a grid costs L^(k + 1) per site, where k is the narrow side of the block; L³ per site for trees.
        Tables are limited to 65,536 entries, which is 15 for the narrow side with two labels.  Each sweep updates every
        site once; sweeps take the families of blocks in turn (rows, then columns).

        Convergence is unknown with one chain: a chain that never leaves one mode looks converged.  Several chains from
        random starts detect most such failures.  ``r_hat`` is the largest split R-hat over sites and labels.

        Chains and images run in parallel.  If ``max_seconds`` ends the run during the burn-in, the result is the
        current state of the chains, with the status :attr:`Status.BURN_IN` and without ``r_hat``.

    Example:
        >>> pot = lp.Potentials.grid(np.array([[[0.0, 2.0], [0.5, 0.0], [0.0, 2.0]]]), 1.0)
        >>> result = lp.infer(pot, lp.Gibbs(n_samples=500), seed=0)
        >>> exact = lp.infer(pot, "exact")
        >>> bool(np.abs(result.probability - exact.probability).max() < 0.1)
        True
        >>> lp.infer(pot, lp.Gibbs(n_samples=400, blocks="rows", n_chains=4), seed=0).r_hat < 1.1
        True

    See Also:
        :class:`LBP`, :class:`Exact`, :class:`Annealing`
    """

    name: ClassVar[str] = "gibbs"
    unbounded: ClassVar[str] = "every sweep continues from the last one, so that dependence spreads without bound"
    on_gpu: ClassVar[bool] = True
    n_samples: int = 100
    burn_in: int = 100
    thin: int = 1
    start: Any = "random"
    probability: str = "votes"
    keep_samples: bool = False
    blocks: Any = "sites"
    n_chains: int = 1
    tempering: Any = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("burn_in", self.burn_in, 0)
        whole_number("thin", self.thin, 1)
        if self.probability not in ("votes", "conditional"):
            raise InputError(f"probability is {self.probability!r}, expected 'votes' or 'conditional'")
        if self.n_samples % whole_number("n_chains", self.n_chains, 1):
            raise InputError(f"n_samples is {self.n_samples}, expected a multiple of n_chains = {self.n_chains}")
        temperatures_of(self.tempering)
        object.__setattr__(self, "on_gpu", self._by_sites())  # blocks have no GPU kernels

    def work(self, n_scores: int) -> int:
        sweeps = self.burn_in * self.n_chains + self.n_samples * self.thin
        return n_scores * sweeps * len(temperatures_of(self.tempering))

    def init(self, problem: Problem) -> _State:
        potentials = problem.potentials
        clusters = isinstance(self.blocks, str) and self.blocks == "clusters"
        if clusters and not potentials.pairwise.least_weight >= 0:  # NaN unless the model is Potts
            raise InputError("blocks is 'clusters', expected a model of Potts weights that are all at least 0 with it")
        plan = None
        if not clusters and not self._by_sites():
            plan = plan_draws(self.blocks, potentials.structure, potentials.n_labels)
        chain = partial(Chain, first_counted=self.burn_in + self.thin, thin=self.thin, draws=plan, clusters=clusters)
        temperatures = temperatures_of(self.tempering)
        ladders: list[list[Chain]] = []
        for c in range(self.n_chains):
            ladder = []
            for t, temperature in enumerate(temperatures):
                number = c * len(temperatures) + t  # chains differ in the upper half of the key
                mine = replace(problem, key=(problem.key[0], (problem.key[1] + number) % 2**32))
                totals = None if t else problem.zeros(potentials.unary.shape, "float64")
                where = (start_labels(self.start, mine), mine.key, problem.first_image, totals)
                ladder.append(chain(*where, start_temperature=temperature))
            ladders.append(ladder)
        return _State(ladders)

    def step(self, problem: Problem, state: _State) -> Step:
        total = self.burn_in + self.n_samples // self.n_chains * self.thin
        samples = self._advance(problem, state, total, counted=True, keep=self.keep_samples)
        if self.keep_samples:
            state.samples.append(samples)
        return Step(state.sweeps, total)

    def draw(self, problem: Problem, state: _State, most: int, *, counted: bool, keep: bool) -> Any:
        while not state.pending:
            drawn = self._samples_at(state.sweeps)
            upto = self.burn_in + (drawn + max(1, most // self.n_chains)) * self.thin
            state.pending = list(self._advance(problem, state, upto, counted=counted, keep=True))
        given, state.pending = state.pending[:most], state.pending[most:]
        return namespace(given[0]).stack(given) if keep else None

    def _advance(self, problem: Problem, state: _State, upto: int, *, counted: bool, keep: bool) -> Any:
        """Perform sweeps, up to sweep ``upto`` at most; return their samples (R, N, S) if ``keep``."""
        tempered = len(state.ladders[0]) > 1
        if counted and self.n_chains > 1:  # steps end where the number of samples has doubled, as `Halves` needs
            upto = min(upto, self.burn_in + max(1, 2 * self._samples_at(state.sweeps)) * self.thin)
        n_sweeps = 1 if tempered else min(problem.sweeps_per_step, upto - state.sweeps)
        for ladder in state.ladders:
            ladder[0].adds = (VOTES if self.probability == "votes" else CONDITIONAL) if counted else NOTHING
        if tempered:
            exchange(problem, state.ladders)
        every = [chain for ladder in state.ladders for chain in ladder]
        kept = problem.kernels.gibbs_chains(problem.view, every, n_sweeps, keep=keep)
        if counted and self.n_chains > 1:
            state.halves.note(self._samples_at(state.sweeps), state.totals)
        if not keep:
            return None
        labels = namespace(kept[0]).stack(kept[:: len(state.ladders[0])], 1)  # (K, chains, N, S)
        return labels.reshape(-1, *labels.shape[2:])

    def finish(self, problem: Problem, state: _State) -> Outcome:
        n_samples, totals = self._samples_at(state.sweeps), state.totals
        r_hat = n_effective = status = None
        if n_samples == 0:  # return the current state
            status = Status.BURN_IN
            each = place_like(totals[0], np.eye(totals[0].shape[2]))
            totals = [each[ladder[0].labels] for ladder in state.ladders]
        elif self.n_chains > 1:
            r_hat, n_effective = state.halves.read(n_samples, totals)
            status = Status.NOT_MIXED if bool((r_hat > MAX_R_HAT).any()) else None
        probability = cast(sum(totals) / (max(n_samples, 1) * self.n_chains), problem.potentials.unary.dtype)
        return Outcome(
            labels=best_labels(probability),
            probability=probability,
            n_sweeps=state.sweeps,
            n_samples=n_samples * self.n_chains,
            samples=namespace(probability).concatenate(state.samples) if n_samples and self.keep_samples else None,
            r_hat=r_hat,
            n_effective=n_effective,
            status=status,
        )

    def _samples_at(self, sweeps: int) -> int:
        """Return the number of samples of a chain among the given number of sweeps."""
        return max(0, sweeps - self.burn_in) // self.thin

    def _by_sites(self) -> bool:
        return isinstance(self.blocks, str) and self.blocks == "sites"


def temperatures_of(tempering: Any) -> list[float]:
    """Return the temperatures of replica exchange, or raise if they are not valid."""
    if np.ndim(tempering) == 0:
        return [LADDER**t for t in range(whole_number("tempering", tempering, 1, 100))]
    for temperature in tempering:
        within("a temperature of tempering", temperature, 1)
    listed = [float(temperature) for temperature in tempering]
    if not listed or listed[0] != 1 or listed != sorted(set(listed)):
        raise InputError(f"tempering is {tempering!r}, expected increasing temperatures of which the first is 1")
    return listed


def start_labels(start: Any, problem: Problem) -> Array:
    """Return the first labelling of the chain, (N, S)."""
    code, given = parse_start(start, problem, {"random": RANDOM})
    drawn = climb_once(problem, code, given, 0)  # a climb of 0 sweeps returns its start
    return cast(drawn.labels()[:, :, 0], "int64")
