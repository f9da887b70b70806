"""Learning of error fields and noise for a CRF on grids, by proper scores of its samples of held-out images.

The scores are the CRPS of areas in windows of four sizes, the energy score, and the negative log-likelihood of
LocPMAP's probabilities. They are compared with those of samples without fields, with the weights as they were fitted.
All candidates use the same random numbers.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Self

import numpy as np

from locpmap.arrays import Array
from locpmap.crf.calibration import Calibration
from locpmap.errors import InputError
from locpmap.graphs import Grid
from locpmap.inference import ErrorFields, LocPMAP, infer
from locpmap.kernels.threads import available_threads
from locpmap.learning.batches import Batch
from locpmap.learning.descent import FEWEST, N_SAMPLES, chosen, descend, is_better, losses, means_without_each
from locpmap.learning.fit import Progress
from locpmap.learning.proper_scores import PERIMETER, Truth
from locpmap.metrics import LEAST
from locpmap.potentials import Potentials

# Found for networks, on held-out scenes of Stanford Background: sizes by scale, and the shared offset.
SIZES, SHARED = (0.074, 0.136, 0.492, 0.698, 0.62), 1.0
START = (*SIZES, SHARED, 1.0)  # with the temperature
# Directions in which the logarithms of sizes move: all together, and coarse against fine sizes.
ALL, COARSE = (1.0, 1.0, 1.0, 1.0, 1.0), (-1.0, -0.5, 0.0, 0.5, 1.0)
DIRECTIONS = np.array([[*ALL, 0, 0], [*COARSE, 0, 0], [0] * 5 + [1, 0], [0] * 6 + [1]])
MAX_MOVES = 6  # of each direction: a factor of up to 20, since the fields of a CRF may be far from the start


@dataclass(frozen=True, eq=False)
class Trial:
    """A held-out image on which candidates are tried."""

    number: int  # of the image in the random generator
    potentials: Potentials  # of this image
    truth: Truth

    @classmethod
    def of(cls, number: int, image: Batch, potentials: Potentials) -> Self:
        """Return the trial of a batch of one image."""
        truth = image.labels.reshape(image.features.structure.shape)
        return cls(number, potentials, Truth.of(truth, potentials.n_labels))

    def scores(self, calibration: Calibration, seed: int) -> tuple[Array, Array]:
        """Return scores (T,) of samples, and how often true values lie outside their range."""
        decoder = LocPMAP(N_SAMPLES, keep_samples=True, **calibration.options(self.potentials))
        result = infer(self.potentials, decoder, seed=seed, first_image=self.number, n_threads=1)
        scores, beyond = self.truth.scores(result.samples.reshape(N_SAMPLES, *self.truth.map.shape))
        del scores[PERIMETER], beyond[PERIMETER]  # determined by the coupling; fitting it would worsen the areas
        p = result.probability.reshape(-1, self.truth.n_labels)[self.truth.places, self.truth.labels]
        return np.array([*scores.values(), -np.log(np.maximum(p, LEAST)).mean()]), np.array([*beyond.values()])


def check_images(batches: Sequence[Batch]) -> None:
    """Raise InputError if no fields can be learned from the labelled images."""
    n_images = sum(batch.n_images for batch in batches)
    if n_images < FEWEST:
        raise InputError(f"fields is True with {n_images} labelled images, expected at least {FEWEST}")
    for structure in (batch.features.structure for batch in batches):
        if not isinstance(structure, Grid):
            raise InputError(
                "fields is True for volumes or graphs, expected images: specify fields=.. in infer instead"
            )
        if max(structure.shape) < ErrorFields.cell:
            size = "{} × {}".format(*structure.shape)
            raise InputError(f"inputs holds an image of {size} pixels, expected a side of at least {ErrorFields.cell}")


def fit_fields(
    batches: Sequence[Batch], model: Callable[[Batch, float], Potentials], seed: int, progress: Progress | None
) -> Calibration | None:
    """Return error fields and their temperature, or None if they are not better by a standard error.

    ``model`` is that of `calibrate`. Cost: about 15 candidates, with eight samples of up to `MOST` images.
    """
    check_images(batches)
    places = [(batch, n) for batch in batches for n in range(batch.n_images)]
    some = [places[k] for k in chosen([batch.labels.shape[1] for batch, _ in places], seed)]
    images = [batch.part(slice(n, n + 1)) for batch, n in some]
    trials = [Trial.of(k, image, model(image, 1.0)) for k, image in enumerate(images)]
    side = max(max(trial.truth.map.shape) for trial in trials)
    done = count(1)

    def moved(steps: Array) -> Calibration:
        *sizes, shared, temperature = (np.array(START) * np.exp(steps @ DIRECTIONS)).tolist()
        return Calibration(temperature, fields=ErrorFields(sizes, shared=shared).within(side))

    def report(value: float) -> None:
        if progress is not None:
            progress(next(done), 1 + len(DIRECTIONS), value)

    with ThreadPoolExecutor(available_threads()) as pool:

        def scores(candidate: Calibration) -> tuple[Array, Array]:
            found, beyond = zip(*pool.map(lambda trial: trial.scores(candidate, seed), trials), strict=True)
            return np.stack(found), np.stack(beyond)

        def loss(steps: Array) -> Array:
            return losses(*scores(moved(steps)), reference, steps)

        without, beyond = scores(Calibration())
        reference = means_without_each(without)
        best, lowest = descend(loss, len(DIRECTIONS), report, MAX_MOVES)
        better = is_better(lowest, losses(without, beyond, reference, np.zeros(1)))
    return moved(best) if better else None
