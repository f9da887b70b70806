"""`CRFClassifier`: logistic regression whose rows (sites) can be joined by edges."""

from typing import Any, Self

import numpy as np
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from locpmap.arrays import Array
from locpmap.crf import CRF
from locpmap.deciding import Decider, Decision, decide
from locpmap.errors import InputError
from locpmap.estimators.base import CRFEstimator, probability_of
from locpmap.features import Features
from locpmap.inference.decoder import Decoder
from locpmap.result import variance_of


class CRFClassifier(ClassifierMixin, CRFEstimator):  # type: ignore[misc]
    """Logistic regression whose rows (sites) can be joined by the edges of a conditional random field.

    Without edges it is multinomial logistic regression: sites are independent and probabilities are exact. With edges,
    which are pairs of rows of X, every edge adds a score for the pair of labels at its ends. The scores are learned by
    ``objective`` and decoded by ``method``. To use several graphs, pass them as one graph of several components.

    Args:
        l2 (float, default 1.0): Strength of the penalty ``l2/2 · |w|²`` on the sum over sites: 1 / C of scikit-learn's
            `LogisticRegression`. Biases are not penalised. With two classes w is the difference between their weights,
            as in scikit-learn.
        objective (str, default "pseudolikelihood"): Objective of learning with edges: "pseudolikelihood", "composite",
            "consistent", "contrastive" or "likelihood"; see :meth:`locpmap.CRF.fit`.
        blocks (str, tuple, list or None, default None): For "composite", a list of lists of sites. For "consistent",
            the blocks that LocPMAP climbs over; for "contrastive", those that Gibbs sampling draws jointly.
        symmetric (bool, default False): Whether tables of edges are symmetric.
        potts (bool, default False): Whether each edge feature has a single Potts weight instead of a table.
        non_negative (bool, default False): Whether Potts weights are constrained to be at least 0.
        method (str or Decoder, default "locpmap"): Decoder for sites with edges: a name, or a configured decoder, as in
            :func:`locpmap.infer`.
        n_samples (int, default 50): Number of label maps that the decoder draws. It applies to a decoder that is given
            by name and has this option.
        probability (str, default "conditional"): "conditional" or "votes"; see :class:`ImageCRF`.
        options (dict or None, default None): Further arguments of :func:`locpmap.infer`.
        max_iter (int, default 1000): Maximum number of L-BFGS iterations, or of held-out checks of "consistent".
        tol (float, default 1e-8): L-BFGS has converged when no entry of the gradient exceeds this value. The gradient
            is per site, with every feature scaled to root mean square 1. The default is smaller than the 1e-5 of
            :class:`ImageCRF`.
        random_state (int, RandomState or None, default None): Randomness of decoding and of "consistent"; see
            :class:`ImageCRF`.
        n_jobs (int or None, default None): Number of threads: None means 1, and -1 all cores.

    Attributes:
        classes_ (array): Sorted labels (L,).
        coef_ (array): Weights (L, D); each column sums to 0 over the labels.
        intercept_ (array): Biases (L,), which sum to 0.
        joined_ (bool): Whether the classifier was fitted with edges.
        tables_ (array): Scores of pairs of labels, (F, L, L), one table per edge feature; zeros without edges.
        crf_ (CRF): The fitted :class:`locpmap.CRF`; ``crf_.save(path)`` writes a model file.
        fit_result_ (FitResult): Result of the fit.
        n_iter_ (int): Number of iterations of the fit.
        seed_ (int): Seed of decoding.
        n_features_in_ (int): Number D of features.
        feature_names_in_ (array): Names of the features, if X has column names.

    Example:
        >>> from locpmap.estimators import CRFClassifier
        >>> rng = np.random.default_rng(0)
        >>> y = np.repeat(["calm", "rain", "calm", "rain"], 50)  # the weather persists
        >>> X = (y == "rain")[:, None] + rng.normal(size=(200, 1))
        >>> edges = np.column_stack([np.arange(199), np.arange(1, 200)])
        >>> independent = CRFClassifier().fit(X, y)
        >>> chain = CRFClassifier(objective="likelihood", method="exact").fit(X, y, edges)
        >>> bool(chain.score(X, y, edges=edges) > independent.score(X, y) + 0.2)
        True
        >>> chain.predict(X[:3], [[0, 1], [1, 2]])
        array(['calm', 'calm', 'calm'], dtype='<U4')

    See Also:
        :class:`locpmap.CRF`, :class:`ImageCRF`.
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

    def fit(self, X: Any, y: Any, edges: Any = None, edge_features: Any = None, sample_weight: Any = None) -> Self:
        """Learn the weights from labelled sites.

        Args:
            X (array): Features of the sites, (S, D).
            y (array): Labels (S,), integers or strings.
            edges (array or None, default None): Pairs of rows of X, (E, 2), each pair once. None means independent
                sites.
            edge_features (array or None, default None): Features of the edges, (E, F). No constant is added: include a
                column of ones for a term that all edges share. None means this constant only.
            sample_weight (array or None, default None): Weight of each site, (S,).

        Returns:
            The fitted classifier.

        Warns:
            ConvergenceWarning: If ``max_iter`` was reached before convergence.
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
        # In the zero-sum gauge two classes have weights ±d/2, whose penalty is half of that of their difference d.
        factor = 2 if len(classes) == 2 else 1
        changes = {"objective": "pseudolikelihood", "blocks": None} if edges is None else {}
        self._learn(crf, _features(X, edges, edge_features), labels, weights, factor, **changes)
        self.classes_, self.joined_ = classes, edges is not None
        self.coef_, self.intercept_ = crf.weights[:-1].T.copy(), crf.weights[-1].copy()
        self.tables_ = crf.tables[0]
        return self

    def decision_function(self, X: Any) -> Array:
        """Return the scores of the sites without the influence of neighbours.

        Args:
            X (array): Features of the sites, (S, D).

        Returns:
            Scores (S, L) or, with two classes, the difference (S,) between the second class and the first.
        """
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: Any, edges: Any = None, edge_features: Any = None) -> Array:
        """Predict the labels of sites.

        Args:
            X (array): Features of the sites, (S, D).
            edges (array or None, default None): As for :meth:`fit`. None treats the sites as independent.
            edge_features (array or None, default None): As for :meth:`fit`.

        Returns:
            Labels (S,).
        """
        if edges is None and edge_features is None:
            return self._named(self._scores(X).argmax(axis=1))
        return self._named(self._decode(X, edges, edge_features).labels)

    def predict_proba(self, X: Any, edges: Any = None, edge_features: Any = None) -> Array:
        """Predict the probability of every label.

        Args:
            X (array): Features of the sites, (S, D).
            edges (array or None, default None): As for :meth:`predict`.
            edge_features (array or None, default None): As for :meth:`fit`.

        Returns:
            Probabilities (S, L), in the order of ``classes_``.
        """
        if edges is None and edge_features is None:
            return np.asarray(softmax(self._scores(X), axis=1))
        return probability_of(self._decode(X, edges, edge_features))

    def predict_variance(self, X: Any, edges: Any = None, edge_features: Any = None) -> Array:
        """Predict the variance p(1 - p) of every label.

        Args:
            X (array): Features of the sites, (S, D).
            edges (array or None, default None): As for :meth:`predict`.
            edge_features (array or None, default None): As for :meth:`fit`.

        Returns:
            Variances (S, L), in the order of ``classes_``.
        """
        return np.asarray(variance_of(self.predict_proba(X, edges, edge_features)))

    def decide(
        self,
        X: Any,
        measure: Any = "iou",
        edges: Any = None,
        edge_features: Any = None,
        *,
        over: str | Decider = "image",
        abstain: float | None = None,
    ) -> Decision:
        """Decide the labels with the best expected value of a measure, as :meth:`locpmap.Result.decide` does.

        Args:
            X (array): Features of the sites, (S, D).
            measure (str or array, default "iou"): As in :meth:`locpmap.Result.decide`; costs in the order of
                ``classes_``.
            edges (array or None, default None): As for :meth:`predict`.
            edge_features (array or None, default None): As for :meth:`fit`.
            over (str or Decider, default "image"): As in :meth:`locpmap.Result.decide`. All sites are one image.
            abstain (float or None, default None): As in :meth:`locpmap.Result.decide`.

        Returns:
            Decision: Its labels (S,) are positions in ``classes_``, and -1 where it abstains.
        """
        probability = self.predict_proba(X, edges, edge_features)
        return decide(probability.argmax(axis=1), probability, measure, over=over, abstain=abstain)

    def score(self, X: Any, y: Any, sample_weight: Any = None, edges: Any = None, edge_features: Any = None) -> float:
        """Return the accuracy: the fraction of sites whose predicted label is correct.

        Args:
            X (array): Features of the sites, (S, D).
            y (array): True labels (S,).
            sample_weight (array or None, default None): Weight of each site, (S,).
            edges (array or None, default None): As for :meth:`predict`.
            edge_features (array or None, default None): As for :meth:`fit`.

        Returns:
            float: Accuracy, from 0 to 1.
        """
        return float(accuracy_score(y, self.predict(X, edges, edge_features), sample_weight=sample_weight))

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return X @ self.coef_.T + self.intercept_

    def _decode(self, X: Any, edges: Any, edge_features: Any) -> Any:
        check_is_fitted(self)
        if not self.joined_:
            name = "edge_features" if edges is None else "edges"
            raise InputError(f"{name} is given, expected none since this classifier was fitted without edges")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return self._infer(_features(X, edges, edge_features))

    def _named(self, labels: Array) -> Array:
        return np.asarray(self.classes_[labels])


def _features(X: Array, edges: Any, edge_features: Any) -> Features:
    """Return the features of one graph, which has an empty list of edges if ``edges`` is None."""
    if edges is None and edge_features is not None:
        raise InputError("edge_features is given without edges, expected both")
    return Features.graph(X, np.zeros((0, 2), np.int64) if edges is None else edges, edge_features)
