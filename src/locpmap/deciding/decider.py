"""`Decider`: statistics of many images, for decisions over a data set."""

from collections.abc import Iterable
from functools import cached_property
from typing import Any, Self

import numpy as np

from locpmap.arrays import Array, is_tensor, place_like
from locpmap.deciding.inputs import LEAST, Sites, images_of, overlap_of
from locpmap.deciding.solving import Rule, solve
from locpmap.deciding.statistics import label_masses
from locpmap.errors import InputError, InputTypeError

MAX_SITES = 2**18


class Decider:
    """Statistics of many images, for decisions with the best expected mean IoU or Dice over a data set.

    Add the images to be decided, or similar ones.  True labels are not needed.  The images themselves are not stored.

    Args:
        measure (str, default "iou"): "iou" or "dice".

    Notes:
        A decider stores the probabilities of a random subset of at most 262,144 sites.  A site is stored if its random
        number, seeded by the index of its image, is below a threshold.  The threshold is halved when the limit is
        reached.  The rule is computed on first use.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(size=(5, 24, 32, 4)) + [2.0, 1.0, 0.0, 0.0]  # label 0 is frequent
        >>> results = lp.infer(lp.Potentials.grid(logits, 0.0), "mean_field")
        >>> decider = lp.Decider("iou").add(results)
        >>> decider.n_images, decider.decide(results).labels.shape
        (5, (5, 24, 32))

    See Also:
        :meth:`Result.decide`, whose argument ``over`` takes a decider.
    """

    def __init__(self, measure: str = "iou") -> None:
        self._overlap = overlap_of(measure)
        self.measure = measure
        self.n_images = 0
        self._rows: Array = np.zeros((0, 0), np.float32)
        self._drawn = np.zeros(0)
        self._absent = np.ones(0)  # probability that a label occurs in no image
        self._threshold = 1.0

    def __repr__(self) -> str:
        return f"<Decider for {self.measure}: {self.n_images} images, {len(self._rows)} of their sites>"

    def add(self, result: Any) -> Self:
        """Add an image, or all images of a batch.

        Args:
            result (Result or array): A result with probabilities, or the probabilities (.., L) of one image or graph.
                Sites of probability 0 for every label are ignored.

        Returns:
            Decider: The decider itself.
        """
        return self.add_sites(images_of(result))

    def add_sites(self, images: Iterable[Sites]) -> Self:
        """Add the sites of images that were checked before."""
        for sites in images:
            rows, first = sites.rows, self.n_images == 0
            if not first and rows.shape[1] != len(self._absent):
                came = f"result has {rows.shape[1]} labels"
                raise InputError(f"{came}, expected {len(self._absent)} like the images added before")
            presence = sites.masses().presence if len(rows) else np.zeros(rows.shape[1])
            drawn = np.random.default_rng(self.n_images).random(len(rows))
            kept = np.flatnonzero(drawn < self._threshold)
            found = rows[place_like(rows, kept)].cpu().numpy() if is_tensor(rows) else rows[kept]
            self._rows = found.astype(np.float32) if first else np.concatenate([self._rows, found.astype(np.float32)])
            self._drawn = np.concatenate([self._drawn, drawn[kept]])
            self._absent = (1 - presence) * (1.0 if first else self._absent)
            self.n_images += 1
            while len(self._rows) > MAX_SITES:
                self._threshold /= 2
                below = self._drawn < self._threshold
                self._rows, self._drawn = self._rows[below], self._drawn[below]
        self.__dict__.pop("rule", None)
        return self

    @cached_property
    def rule(self) -> Rule:
        """Slope and offset (L,) of the decision argmax_k slope[k] · p[k] + offset[k], and its expected value."""
        if not len(self._rows):
            raise InputError("the decider has no sites, expected at least one image: call its add()")
        masses = label_masses(self._rows)
        return solve(self._overlap, self._rows, masses._replace(presence=np.maximum(1 - self._absent, LEAST)))

    def decide(self, result: Any, *, abstain: float | None = None) -> Any:
        """Decide the labels of an image or a batch with the statistics of this decider.

        Args:
            result (Result): A result with probabilities.
            abstain (float, default None): As in :meth:`Result.decide`.

        Returns:
            Decision: The same as ``result.decide(measure, over=decider, abstain=abstain)``.
        """
        if not hasattr(result, "decide"):
            raise InputTypeError(
                f"result is a {type(result).__name__}, expected a Result; for probabilities p of your own, pass"
                " lp.infer(lp.Potentials.grid(np.log(p), 0.0), 'exact')"
            )
        return result.decide(self.measure, over=self, abstain=abstain)
