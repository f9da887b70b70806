"""The best labelling met so far, image by image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

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
        return cls(unary.argmax(axis=2), np.full(len(unary), -np.inf))

    def offer(self, problem: Problem, labels: Array) -> None:
        """Keep what scores higher than all before; the labels may change afterwards.  O(S + E)."""
        terms = np.zeros(labels.shape)
        problem.sweep(problem.kernels.score_terms, labels, terms)
        score = terms.sum(axis=1)
        better = score > self.score
        self.score[better] = score[better]
        self.labels[better] = labels[better]
