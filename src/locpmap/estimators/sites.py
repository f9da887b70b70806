"""`CRFClassifier`: logistic regression whose samples may be joined by edges."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from locpmap.arrays import Array
from locpmap.crf import CRF
from locpmap.errors import InputError
from locpmap.estimators.base import CRFEstimator, probability_of
from locpmap.features import Features
from locpmap.inference.decoder import Decoder
from locpmap.result import variance_of


class CRFClassifier(ClassifierMixin, CRFEstimator):  # type: ignore[misc]
    """A classifier of sites, which edges may join into a conditional random field.

    Without edges it is multinomial logistic regression: the sites are independent, their probabilities are exact and
    no decoder is needed.  With edges (pairs of rows of X) neighbouring sites also have a score for every pair of
    labels, learned by ``objective`` and decoded by ``method``.  Several graphs are one graph in several parts.

    Args:
        l2: Strength of the penalty ``l2/2 · |w|²`` on the sum over sites, biases excepted: 1 / C of scikit-learn's
            `LogisticRegression`.  With two classes, as there, w is the difference between their weights.
        objective: How to learn with edges: "pseudolikelihood", "composite", "consistent" or "likelihood"; see
            :meth:`locpmap.CRF.fit`.
        blocks: For "composite": a list of site lists.  For "consistent": how LocPMAP climbs.
        symmetric, potts, non_negative: Of the tables of the edges, as for :class:`locpmap.CRF`.
        method: The decoder with edges: any by name, as in :func:`locpmap.infer`, or a configured one.
        n_samples, probability, options, max_iter, tol, random_state, n_jobs: As for :class:`ImageCRF`.

    Attributes:
        classes_: The labels, (L,).
        coef_: Weights (L, D); columns sum to 0 over the labels.
        intercept_: Biases (L,), which sum to 0.
        joined_: Whether it was fitted with edges.
        tables_: Scores of pairs of labels, (F, L, L), one table per feature of edges; zeros without edges.
        crf_: The :class:`locpmap.CRF`; ``crf_.save(path)`` writes a model file.
        fit_result_, n_iter_, seed_: As for :class:`ImageCRF`.
        n_features_in_, feature_names_in_: As everywhere in scikit-learn.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(["calm", "rain", "calm", "rain"], 50)  # weather lasts
    >>> X = (y == "rain")[:, None] + rng.normal(size=(200, 1))
    >>> edges = np.column_stack([np.arange(199), np.arange(1, 200)])
    >>> alone = CRFClassifier().fit(X, y)
    >>> chain = CRFClassifier(objective="likelihood", method="exact").fit(X, y, edges)
    >>> bool(chain.score(X, y, edges=edges) > alone.score(X, y) + 0.2)
    True
    >>> chain.predict(X[:3], [[0, 1], [1, 2]])
    array(['calm', 'calm', 'calm'], dtype='<U4')
    """

    def __init__(
        self,
        l2: float = 1.0,
        *,
        objective: str = "pseudolikelihood",
        blocks: Any = None,
        symmetric: bool = False,
        potts: bool = False,
        non_negative: bool = False,
        method: str | Decoder = "locpmap",
        n_samples: int = 50,
        probability: str = "conditional",
        options: dict[str, Any] | None = None,
        max_iter: int = 1000,
        tol: float = 1e-8,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.l2 = l2
        self.objective, self.blocks = objective, blocks
        self.symmetric, self.potts, self.non_negative = symmetric, potts, non_negative
        self.method, self.n_samples, self.probability, self.options = method, n_samples, probability, options
        self.max_iter, self.tol = max_iter, tol
        self.random_state, self.n_jobs = random_state, n_jobs

    def fit(
        self, X: Any, y: Any, edges: Any = None, edge_features: Any = None, sample_weight: Any = None
    ) -> CRFClassifier:
        """Learn the weights.

        Args:
            X: Features of the sites, (S, D).
            y: Labels of any kind, (S,).
            edges: Pairs of rows of X, (E, 2), each once; None for independent sites.
            edge_features: Features of the edges, (E, F), used as they are: add a column of ones for a part that is
                the same on all edges.  None is that part alone.
            sample_weight: How much each site counts, (S,).
        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise InputError(f"y holds one class only, {classes[0]!r}, expected at least two classes")
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)[None]
        crf = CRF(
            len(classes),
            features=None,
            symmetric=self.symmetric,
            potts=self.potts,
            non_negative=self.non_negative,
            label_names=[str(name) for name in classes],
        )
        # In the zero-sum gauge two opposite weights, each half the difference, share the penalty of that difference.
        factor = 2 if len(classes) == 2 else 1
        changes = {"objective": "pseudolikelihood", "blocks": None} if edges is None else {}
        self._learn(crf, _features(X, edges, edge_features), labels, weights, factor, **changes)
        self.classes_, self.joined_ = classes, edges is not None
        self.coef_, self.intercept_ = crf.weights[:-1].T.copy(), crf.weights[-1].copy()
        self.tables_ = crf.tables[0]
        return self

    def decision_function(self, X: Any) -> Array:
        """Scores of the sites by themselves, without neighbours: (S, L), or (S,) for the second of two classes."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: Any, edges: Any = None, edge_features: Any = None) -> Array:
        """Labels (S,) of sites (S, D), with edges as in :meth:`fit` or as independent sites."""
        if edges is None and edge_features is None:
            return self._named(self._scores(X).argmax(axis=1))
        return self._named(self._decode(X, edges, edge_features).labels)

    def predict_proba(self, X: Any, edges: Any = None, edge_features: Any = None) -> Array:
        """Probability of every label, (S, L), in the order of ``classes_``."""
        if edges is None and edge_features is None:
            return np.asarray(softmax(self._scores(X), axis=1))
        return probability_of(self._decode(X, edges, edge_features))

    def predict_variance(self, X: Any, edges: Any = None, edge_features: Any = None) -> Array:
        """Variance p(1 - p) of every label, (S, L)."""
        return np.asarray(variance_of(self.predict_proba(X, edges, edge_features)))

    def score(self, X: Any, y: Any, sample_weight: Any = None, edges: Any = None, edge_features: Any = None) -> float:
        """The share of sites with the right label."""
        return float(accuracy_score(y, self.predict(X, edges, edge_features), sample_weight=sample_weight))

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return X @ self.coef_.T + self.intercept_

    def _decode(self, X: Any, edges: Any, edge_features: Any) -> Any:
        check_is_fitted(self)
        if not self.joined_:
            raise InputError("edges is given, expected none since this classifier was fitted without edges")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return self._infer(_features(X, edges, edge_features))

    def _named(self, labels: Array) -> Array:
        return np.asarray(self.classes_[labels])


def _features(X: Array, edges: Any, edge_features: Any) -> Features:
    """One graph; without edges, its coupling is the constant feature on no edge, so nothing is learned of it."""
    if edges is None and edge_features is not None:
        raise InputError("edge_features is given without edges, expected both")
    return Features.graph(X, np.zeros((0, 2), np.int64) if edges is None else edges, edge_features)
