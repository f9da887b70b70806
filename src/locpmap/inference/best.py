"""The score of labellings, and the best one met so far, image by image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.arrays import namespace
from locpmap.inference.decoder import Problem

Array = npt.NDArray[Any]


@dataclass
class Best:
    """Labels (N, S) and their scores (N,)."""

    labels: Array
    score: Array

    @classmethod
    def start(cls, problem: Problem) -> Best:
        """The argmax of the unaries, which anything that is allowed will replace."""
        unary = problem.potentials.unary
        return cls(unary.argmax(axis=2), problem.zeros((len(unary),), "float64") - np.inf)

    def offer(self, problem: Problem, labels: Array) -> None:
        """Keep what scores higher than all before; the labels may change afterwards.  O(S + E)."""
        score = scores_of(problem, labels)
        better = score > self.score
        where = namespace(score).where
        self.score = where(better, score, self.score)
        self.labels = where(better[:, None], labels, self.labels)


def scores_of(problem: Problem, labels: Array) -> Array:
    """θ(y) of labels (N, S), (N,), where the potentials are.  O(S + E)."""
    terms = problem.zeros(tuple(labels.shape), "float64")
    problem.sweep(problem.kernels.score_terms, labels, terms)
    return terms.sum(axis=1)
