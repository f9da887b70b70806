"""The best labelling met so far, image by image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from locpmap.arrays import Array, namespace
from locpmap.inference.decoder import Problem


@dataclass
class Incumbent:
    """Labels (N, S) and their scores (N,)."""

    labels: Array
    score: Array

    @classmethod
    def start(cls, problem: Problem) -> Incumbent:
        """The argmax of the unaries, which anything that is allowed will replace."""
        unary = problem.potentials.unary
        return cls(unary.argmax(axis=2), problem.zeros((len(unary),), "float64") - np.inf)

    def update(self, problem: Problem, labels: Array) -> None:
        """Keep what scores higher than all before; the labels may change afterwards.  O(S + E)."""
        score = problem.kernels.score(problem.view, labels)
        better = score > self.score
        where = namespace(score).where
        self.score = where(better, score, self.score)
        self.labels = where(better[:, None], labels, self.labels)
