"""The best labelling found so far, separately for each image."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from locpmap.arrays import Array, namespace
from locpmap.inference.decoder import Problem


@dataclass
class Incumbent:
    """Best labels (N, S) found so far and their scores (N,)."""

    labels: Array
    score: Array

    @classmethod
    def start(cls, problem: Problem) -> Self:
        """Return the argmax of the unaries with score -inf, so that any allowed labelling replaces it."""
        unary = problem.potentials.unary
        return cls(unary.argmax(axis=2), problem.zeros((len(unary),), "float64") - np.inf)

    def update(self, problem: Problem, labels: Array) -> None:
        """Replace the labels of images whose score improves, O(S + E).  ``labels`` may be changed afterwards."""
        score = problem.kernels.score(problem.view, labels)
        better = score > self.score
        where = namespace(score).where
        self.score = where(better, score, self.score)
        self.labels = where(better[:, None], labels, self.labels)
