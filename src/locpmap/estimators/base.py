"""The common base of the estimators: fitting a CRF and decoding with it, by scikit-learn's parameters."""

import warnings
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from locpmap.arrays import Array
from locpmap.crf import CRF
from locpmap.crf.fitting import OBJECTIVES
from locpmap.errors import InputError, InputTypeError, one_of, whole_number, within
from locpmap.inference.api import ARGUMENTS, configure, known_method
from locpmap.inference.decoder import Decoder
from locpmap.inference.registry import options_of
from locpmap.kernels.threads import available_threads
from locpmap.learning import FitOptions
from locpmap.result import Result


class CRFEstimator(BaseEstimator):  # type: ignore[misc]
    """Base class that fits and decodes by the parameters that its subclasses' constructors store."""

    objective: str
    blocks: Any
    l2: float
    max_iter: int
    tol: float
    method: str | Decoder
    n_samples: int
    probability: str
    options: dict[str, Any] | None
    random_state: Any
    n_jobs: int | None

    def _learn(self, crf: CRF, inputs: Any, labels: Any, weights: Any, factor: int = 1, **changes: Any) -> None:
        """Fit the CRF and store it, with the penalty multiplied by ``factor``; check the decoder's options before."""
        within("l2", self.l2, 0)
        whole_number("max_iter", self.max_iter, 1)
        within("tol", self.tol, 0)
        if self.options is not None and not isinstance(self.options, dict):
            raise InputTypeError(f"options is {self.options!r}, expected a dictionary or None")
        one_of("objective", self.objective, OBJECTIVES)
        method, options = self._decoder()
        configure(method, {name: value for name, value in options.items() if name not in ARGUMENTS})
        n_threads = _n_threads(self.n_jobs)
        seed = _seed(self.random_state)
        how = {"objective": self.objective, "blocks": self.blocks} | changes
        result = crf.fit(
            inputs,
            labels,
            **how,
            l2=factor * self.l2,
            site_weights=weights,
            options=FitOptions(
                max_iterations=self.max_iter, tolerance=self.tol, n_threads=n_threads, standard_errors=False
            ),
            seed=seed,
        )
        if not result.converged:
            warnings.warn(
                f"the fit {result.status} ({self.max_iter}) before it converged: increase max_iter or scale the data",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.crf_, self.fit_result_, self.n_iter_, self.seed_ = crf, result, result.n_iterations, seed

    def _infer(self, inputs: Any) -> Any:
        """Decode an input, a batch or a list with the fitted seed, so that repeated calls agree."""
        method, options = self._decoder()
        return self.crf_.infer(inputs, method, **{"seed": self.seed_, "n_threads": _n_threads(self.n_jobs)} | options)

    def _decoder(self) -> tuple[str | Decoder, dict[str, Any]]:
        """Return the method and those of its options that the decoder has."""
        if isinstance(self.method, Decoder):
            return self.method, self.options or {}
        shared = {"n_samples": self.n_samples, "probability": self.probability}
        known = options_of(known_method(self.method))
        return self.method, {name: value for name, value in shared.items() if name in known} | (self.options or {})


def probability_of(result: Result) -> Array:
    """Return the probabilities of a result, or raise InputError if the decoder has none."""
    if result.probability is None:
        raise InputError(
            f"method={result.method!r} gives labels without probabilities, expected one with both, such as 'locpmap'"
        )
    return np.asarray(result.probability)


def _seed(random_state: Any) -> int:
    """Return the seed: an integer ``random_state`` itself, or a number drawn from any other."""
    if isinstance(random_state, Integral):
        return whole_number("random_state", random_state, 0, 2**64 - 1)
    try:
        generator = check_random_state(random_state)
    except ValueError:
        expected = "a whole number from 0 to 2^64 - 1, None or a numpy.random.RandomState"
        raise InputError(f"random_state is {random_state!r}, expected {expected}") from None
    return int(generator.randint(2**31 - 1))


def _n_threads(n_jobs: Any) -> int:
    """Return the number of threads by scikit-learn's convention: None is 1, -1 all cores, -2 all but one."""
    if n_jobs is None:
        return 1
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral):
        raise InputTypeError(f"n_jobs is {n_jobs!r}, expected a whole number or None")
    jobs = int(n_jobs)
    if jobs == 0:
        raise InputError("n_jobs is 0, expected at least 1, None, or a negative number to count down from all cores")
    return jobs if jobs > 0 else max(1, available_threads() + 1 + jobs)
