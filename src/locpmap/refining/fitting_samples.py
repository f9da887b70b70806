"""Learning of the weights that samples depend on: error fields, coupling and noise, by proper scores.

The scores are the CRPS of areas in windows of four sizes and of perimeters, the energy score, and the negative
log-likelihood of a mean of samples and softmax. They are compared with those of independent pixels. All candidates use
the same random numbers.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import repeat
from typing import Any, NamedTuple, Self

import numpy as np

from locpmap.arrays import Array, Restore, frozen
from locpmap.crf.error_fields import SHARED, SIZES
from locpmap.deciding.sampled import overlap_of_maps
from locpmap.inference import ErrorFields, LocPMAP
from locpmap.inference.samples import samples
from locpmap.kernels.threads import available_threads
from locpmap.learning.descent import N_SAMPLES, chosen, descend, losses, means_without_each
from locpmap.learning.proper_scores import Truth
from locpmap.metrics import LEAST as LEAST_PROBABILITY
from locpmap.potentials import Potentials
from locpmap.refining.examples import VOID, Example
from locpmap.refining.groups import means_of_groups, totals_of_groups
from locpmap.refining.prepared import Prepared
from locpmap.refining.scoring import confusion, difference, near_boundary, softmax
from locpmap.refining.weights import CELL, FEATURES, N_SCALES, STEPS, Weights

LEAST = np.array([1e-3] * (N_SCALES + 1) + [0.0, 1e-3])  # lower bounds of weights, whose logarithms are learned
VOTES = np.linspace(0, 1, 9)  # candidates of the weight of samples in the probability
N_PIXELS = 20_000  # per image, for the likelihood
ASCENT = LocPMAP(1, start="perturbed", temperature=0.0)  # without noise: the labels of a refiner


class SampleWeights(NamedTuple):
    """Weights that samples depend on, in units of the scaled scores."""

    sizes: tuple[float, ...]  # standard deviations of the fields, by scale
    shared: float
    coupling: float  # Potts weight between neighbours of equal colour
    noise: float

    @classmethod
    def at(cls, weights: Weights, stride: float) -> Self:
        """Return the weights of samples of a refiner at a stride."""
        errors, pairwise = weights.errors_at(stride), weights.at(stride)[3]
        return cls(errors.sizes, errors.shared, float(pairwise.sum(axis=1).mean()), errors.noise)

    def moved(self, logarithms: Array) -> Self:
        """Return the weights times ``exp(logarithms)``, (8,). A coupling of 0 stays 0."""
        found = np.maximum([*self.sizes, self.shared, self.coupling, self.noise], LEAST) * np.exp(logarithms)
        return type(self)(tuple(found[:N_SCALES].tolist()), *found[N_SCALES:].tolist())


START = SampleWeights(SIZES, SHARED, 4.0, 0.094)  # found like the sizes
# Directions in which the logarithms of weights move. The first one moves error between scales: in small images, the
# errors are small regions, which no change of a single size can express.
DIRECTIONS = np.array(
    [
        [1.5, 1.0, 0.5, -0.5, -1.0, -1.0, 0.0, 0.0],  # from coarse to fine scales
        [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0],  # all scales
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0],  # noise
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0],  # coupling
    ]
)
LENGTHS = (1.0, 0.5)  # of steps of the logarithms; the long ones pass over small local minima
N_STEPS = 1 + len(LENGTHS) * len(DIRECTIONS)  # calls of ``progress`` in a fit


def fit_samples(
    plain: Weights,
    examples: Sequence[Example],
    prior: SampleWeights,
    seed: int,
    progress: Callable[[float], None] | None = None,
) -> Weights:
    """Return weights with error fields, coupling and noise, learned from at most `MOST` examples.

    ``plain`` holds the other weights. Coupling is left out if samples of the prior are better without it, or if it
    makes labels near boundaries worse, as where objects are thin. ``progress`` is called as by `descend`. Cost: about
    18 candidates, with eight samples for each of 10 images of 360 × 480 pixels.
    """
    some = [examples[n] for n in chosen([example.labels.size for example in examples], seed)]
    with ThreadPoolExecutor(available_threads()) as pool:
        trials = list(pool.map(lambda pair: Trial.of(pair[1], plain, pair[0], seed), enumerate(some)))
        groups = [example.group for example in some]
        alone = means_without_each(means_of_groups(np.stack([trial.alone for trial in trials]), groups))
        votes = {}  # the best weight of samples, for each candidate

        @cache
        def scored(candidate: SampleWeights) -> list[Array]:
            found = list(pool.map(lambda trial: trial.scores(candidate, seed), trials))
            return [means_of_groups(np.stack(part), groups) for part in zip(*found, strict=True)]

        def loss(start: SampleWeights, steps: Array) -> Array:
            candidate = start.moved(steps @ DIRECTIONS)
            scores, beyond, likelihood = scored(candidate)
            weight = largest_of_the_best(likelihood)
            votes[candidate] = float(VOTES[weight])
            return losses(np.column_stack([scores, likelihood[:, weight]]), beyond, alone, steps)

        starts, none = [prior._replace(coupling=0.0)], np.zeros(len(DIRECTIONS))
        if keeps_boundaries(list(pool.map(Trial.near_boundaries, trials, repeat(prior.coupling))), groups):
            starts.append(prior)
        start = min(starts, key=lambda start: float(loss(start, none)[0]))
        moves, _ = descend(partial(loss, start), len(DIRECTIONS), progress, lengths=LENGTHS)
        best = start.moved(moves @ DIRECTIONS)
    pairwise = _pairwise(best.coupling, examples[0])
    changed = {"sizes": [best.sizes], "shared": best.shared, "noise": best.noise, "votes": votes[best]}
    return replace(plain, pairwise=pairwise, **changed)


def keeps_boundaries(tables: Sequence[tuple[Array, Array]], groups: Sequence[int]) -> bool:
    """Return whether the mean IoU of labels falls by at most a standard error over groups.

    ``tables`` holds, for each image, the confusion (K, K) of the changed labels and of the unchanged ones.
    """
    new, old = (totals_of_groups(part, groups) for part in zip(*tables, strict=True))
    change, error = difference(new, old, partial(overlap_of_maps, "iou"))
    return not change < -error


def largest_of_the_best(losses: Array) -> int:
    """Return the last column of losses (n, V) whose mean is at most a standard error above the lowest mean.

    >>> largest_of_the_best(np.array([[1.0, 0.9, 1.0], [1.0, 1.0, 1.8]]))
    1
    """
    gaps = losses - losses[:, losses.mean(axis=0).argmin()][:, None]
    errors = gaps.std(axis=0, ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else np.zeros(gaps.shape[1])
    return int(np.flatnonzero(gaps.mean(axis=0) <= errors)[-1])


@dataclass(frozen=True, eq=False)
class Trial:
    """An image on which candidates are tried."""

    number: int  # of the image in the random generator
    potentials: Potentials  # with Potts weights for coupling 1
    presence: Any
    truth: Truth
    some: Array  # (n,) labelled pixels for the likelihood
    softmax: Array  # (n,) probability of their true labels
    alone: Array  # (T,) scores of independent pixels

    @classmethod
    def of(cls, example: Example, plain: Weights, number: int, seed: int) -> Self:
        """Build the model of an example and score independent pixels."""
        coupled = replace(plain, pairwise=_pairwise(1.0, example))
        prepared = Prepared.of(example.given, coupled, stride=example.stride)
        truth = Truth.of(example.labels, example.scores.shape[-1])
        some = np.arange(0, len(truth.labels), -(-len(truth.labels) // N_PIXELS))
        p = softmax(Restore()(prepared.potentials.unary)[0, truth.places[some]])
        true = p[np.arange(len(some)), truth.labels[some]]
        found = drawn(_coupled(prepared.potentials, 0.0), LocPMAP(N_SAMPLES, start="perturbed"), number, seed)
        likelihood = -np.log(np.maximum(true, LEAST_PROBABILITY)).mean()
        alone = np.array([*truth.scores(found)[0].values(), likelihood])
        return cls(number, prepared.potentials, prepared.fields.presence, truth, some, true, alone)

    def near_boundaries(self, coupling: float) -> tuple[Array, Array]:
        """Return the confusion (K, K) of labels near true boundaries, with a coupling and without it."""
        truth = np.where(near_boundary(self.truth.map, self.truth.n_labels), self.truth.map, VOID)
        found = (drawn(_coupled(self.potentials, each), ASCENT, self.number, 0)[0] for each in (coupling, 0.0))
        with_coupling, without = (confusion(labels, truth, self.truth.n_labels) for labels in found)
        return with_coupling, without

    def scores(self, candidate: SampleWeights, seed: int) -> tuple[Array, Array, Array]:
        """Score a candidate: return the results of `Truth.scores`, and the NLL for each weight in `VOTES`."""
        fields = ErrorFields(candidate.sizes, CELL, candidate.shared, self.presence)
        fields = fields.within(max(self.potentials.structure.shape))
        decoder = LocPMAP(N_SAMPLES, start="perturbed", temperature=candidate.noise, fields=fields)
        found = drawn(_coupled(self.potentials, candidate.coupling), decoder, self.number, seed)
        votes = (self.truth.inside(found)[:, self.some] == self.truth.labels[self.some]).mean(axis=0)
        p = VOTES[:, None] * votes + (1 - VOTES[:, None]) * self.softmax
        likelihood = -np.log(np.maximum(p, LEAST_PROBABILITY)).mean(axis=1)
        scores, beyond = (np.array([*values.values()]) for values in self.truth.scores(found))
        return scores, beyond, likelihood


def drawn(potentials: Potentials, decoder: LocPMAP, number: int, seed: int) -> Array:
    """Draw label maps (M, H, W) in this thread."""
    found = samples(potentials, decoder, seed=seed, first_image=number, n_threads=1)
    return np.stack([Restore()(sample) for sample in found])


def _coupled(potentials: Potentials, coupling: float) -> Potentials:
    """Return the potentials with their Potts weights times a factor."""
    weights = potentials.pairwise.weights
    assert weights is not None  # the model of a refiner is Potts
    changed = tuple(frozen(weight * np.float32(coupling)) for weight in weights)
    return replace(potentials, pairwise=replace(potentials.pairwise, weights=changed))


def _pairwise(coupling: float, example: Example) -> Array:
    """Return Potts weights (1, 2, 2): by colour similarity, or constant where there are no images."""
    pairwise = np.zeros((1, len(STEPS), len(FEATURES)))
    pairwise[..., FEATURES.index("constant" if example.given.image is None else "similarity")] = coupling
    return pairwise
