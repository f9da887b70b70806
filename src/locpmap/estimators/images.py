"""`ImageCRF`: a conditional random field on images as a scikit-learn estimator."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from locpmap.arrays import Array
from locpmap.crf import CRF
from locpmap.deciding import Decider
from locpmap.errors import InputError, InputTypeError
from locpmap.estimators.base import CRFEstimator, probability_of
from locpmap.features import Features, ImageFeatures
from locpmap.inference.decoder import Decoder
from locpmap.learning.batches import VOID
from locpmap.result import Result, variance_of


class ImageCRF(CRFEstimator):
    """Conditional random field that classifies the pixels of images, as a scikit-learn estimator.

    Images are an array (N, H, W) or (N, H, W, C), or a list of images whose sizes may differ. Predictions have the same
    form. The estimator can be cloned, be the last step of a pipeline, and be searched over by `GridSearchCV`, which
    splits by image.

    Args:
        features (callable or None, default ImageFeatures()): Function from images to :class:`locpmap.Features`. None if
            the inputs are `Features` already.
        unary (str, default "tables"): "tables" learns a weight per feature and label. For "scale", "temperature" and
            "given" the unary features are scores of the labels in sorted order, such as a network's logits as channels;
            see :class:`locpmap.CRF`.
        tied (bool, default False): Whether edges of all steps (horizontal, vertical, ..) share their tables.
        symmetric (bool, default False): Whether tables are symmetric.
        potts (bool, default False): Whether each pairwise feature has a single Potts weight instead of a table.
        non_negative (bool, default False): Whether Potts weights are constrained to be at least 0.
        ignore_label (default None): Label of void pixels, of the type of the labels.
        objective (str, default "pseudolikelihood"): "pseudolikelihood", "composite", "consistent", "contrastive" or
            "likelihood"; see :meth:`locpmap.CRF.fit`.
        blocks (default None): Blocks of "composite", "consistent" and "contrastive" learning; see
            :meth:`locpmap.CRF.fit`. Blocks of decoding are set in ``options``.
        l2 (float, default 1.0): Strength of the penalty ``l2/2 · |w|²`` on the sum over pixels. Biases are not
            penalised.
        method (str or Decoder, default "locpmap"): Name of a decoder, or a configured decoder, as in
            :func:`locpmap.infer`.
        n_samples (int, default 50): Number of samples of a decoder that is given by name and has this option.
        probability (str, default "conditional"): "conditional" or "votes", for a decoder that is given by name and has
            this option.
        options (dict or None, default None): Further arguments of :func:`locpmap.infer`: options of the decoder, such
            as ``{"blocks": "rows"}``, ``max_seconds`` or ``backend``.
        max_iter (int, default 200): Maximum number of L-BFGS iterations, or of held-out checks of "consistent".
        tol (float, default 1e-5): L-BFGS has converged when no entry of the gradient exceeds this value. The gradient
            is per pixel, with every feature scaled to root mean square 1.
        random_state (int, RandomState or None, default None): Randomness of decoding and of "consistent". An integer
            from 0 to 2^64 - 1 is the seed. Otherwise `fit` draws a seed and stores it, so predictions of a fitted
            estimator are reproducible.
        n_jobs (int or None, default None): Number of threads: None means 1, and -1 all cores. Results do not depend on
            it.

    Attributes:
        classes_ (array): Sorted labels (L,), without ``ignore_label``.
        crf_ (CRF): The fitted :class:`locpmap.CRF`; ``crf_.save(path)`` writes a model file.
        fit_result_ (FitResult): Result of the fit.
        n_iter_ (int): Number of iterations of the fit.
        seed_ (int): Seed of decoding.

    Notes:
        `check_estimator` of scikit-learn does not apply, because its samples are rows of a matrix. The estimator's tags
        declare this: ``two_d_array`` is False and ``three_d_array`` is True.

    Example:
        >>> from locpmap.estimators import ImageCRF
        >>> rng = np.random.default_rng(0)
        >>> label_maps = np.where(rng.random((20, 3, 3)) < 0.5, "sky", "sea").repeat(4, axis=1).repeat(4, axis=2)
        >>> images = (label_maps == "sky") + 0.5 * rng.normal(size=label_maps.shape)
        >>> model = ImageCRF(random_state=0).fit(images, label_maps)
        >>> bool(model.score(images, label_maps) > 0.9)  # a threshold is right for 83 %
        True
        >>> model.predict(images).shape, model.predict_proba(images).shape
        ((20, 12, 12), (20, 12, 12, 2))

    See Also:
        :class:`locpmap.CRF`, :class:`CRFClassifier`.
    """

    def __init__(
        self,
        features: Callable[[Any], Features] | None = ImageFeatures(),  # noqa: B008 (frozen)
        *,
        unary: str = "tables",
        tied: bool = False,
        symmetric: bool = False,
        potts: bool = False,
        non_negative: bool = False,
        ignore_label: Any = None,
        objective: str = "pseudolikelihood",
        blocks: Any = None,
        l2: float = 1.0,
        method: str | Decoder = "locpmap",
        n_samples: int = 50,
        probability: str = "conditional",
        options: dict[str, Any] | None = None,
        max_iter: int = 200,
        tol: float = 1e-5,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.features, self.unary, self.tied, self.symmetric = features, unary, tied, symmetric
        self.potts, self.non_negative, self.ignore_label = potts, non_negative, ignore_label
        self.objective, self.blocks, self.l2 = objective, blocks, l2
        self.method, self.n_samples, self.probability, self.options = method, n_samples, probability, options
        self.max_iter, self.tol = max_iter, tol
        self.random_state, self.n_jobs = random_state, n_jobs

    def fit(self, images: Any, label_maps: Any, sample_weight: Any = None) -> Self:
        """Learn the weights from labelled images.

        Args:
            images (array, Features or list): Images (N, H, W) or (N, H, W, C), or a list of images.
            label_maps (array or list): Label of every pixel, (N, H, W) or a list of (H, W); integers or strings.
            sample_weight (array or None, default None): Weight of each image, (N,).

        Returns:
            The fitted estimator.

        Warns:
            ConvergenceWarning: If ``max_iter`` was reached before convergence.
        """
        images = _several(images)
        label_maps = _paired(label_maps, images)
        if isinstance(self.features, ImageFeatures) and not isinstance(images, Features) and label_maps[0].ndim != 2:
            raise InputError(
                f"label_maps holds the shape {label_maps[0].shape}, expected (H, W) for each of many images"
            )
        classes = _classes(label_maps, self.ignore_label)
        labels = [_encoded(label_map, classes, self.ignore_label) for label_map in label_maps]
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, label_maps, dtype=np.float64, ensure_non_negative=True)
        crf = CRF(
            len(classes),
            features=self.features,
            unary=self.unary,
            tied=self.tied,
            symmetric=self.symmetric,
            potts=self.potts,
            non_negative=self.non_negative,
            label_names=[str(name) for name in classes],
            ignore_label=VOID,
        )
        together = labels if isinstance(images, list) else np.stack(labels)
        self._learn(crf, images, together, weights)
        self.classes_ = classes
        return self

    def predict(self, images: Any) -> Any:
        """Predict the label of every pixel.

        Args:
            images (array, Features or list): As for :meth:`fit`.

        Returns:
            Label maps (N, H, W), or a list of (H, W).
        """
        return self._each(images, lambda result: self.classes_[result.labels])

    def predict_proba(self, images: Any) -> Any:
        """Predict the probability of every label at every pixel.

        Args:
            images (array, Features or list): As for :meth:`fit`.

        Returns:
            Probabilities (N, H, W, L), or a list of (H, W, L), in the order of ``classes_``.
        """
        return self._each(images, probability_of)

    def predict_variance(self, images: Any) -> Any:
        """Predict the variance p(1 - p) of every label at every pixel.

        Args:
            images (array, Features or list): As for :meth:`fit`.

        Returns:
            Variances (N, H, W, L), or a list of (H, W, L), in the order of ``classes_``.
        """
        return self._each(images, lambda result: variance_of(probability_of(result)))

    def decide(
        self, images: Any, measure: Any = "iou", *, over: str | Decider = "image", abstain: float | None = None
    ) -> Any:
        """Decide the labels with the best expected value of a measure, as :meth:`locpmap.Result.decide` does.

        Args:
            images (array, Features or list): As for :meth:`fit`.
            measure (str or array, default "iou"): As in :meth:`locpmap.Result.decide`; costs in the order of
                ``classes_``.
            over (str or Decider, default "image"): As in :meth:`locpmap.Result.decide`. "dataset" means all of the
                given images.
            abstain (float or None, default None): As in :meth:`locpmap.Result.decide`; in every image of a list.

        Returns:
            A :class:`locpmap.Decision` of all images, or a list of them for a list. Its labels are positions in
            ``classes_``, and -1 where it abstains.
        """
        check_is_fitted(self)
        images = _several(images)
        results = self._infer(images)
        if not isinstance(images, list):
            return results.decide(measure, over=over, abstain=abstain)
        if over == "dataset" and isinstance(measure, str) and measure in ("iou", "dice"):
            over = Decider(measure)
            for result in results:
                over.add(result)
        return [result.decide(measure, over=over, abstain=abstain) for result in results]

    def score(self, images: Any, label_maps: Any, sample_weight: Any = None) -> float:
        """Return the accuracy: the fraction of labelled pixels whose predicted label is correct.

        Args:
            images (array, Features or list): As for :meth:`fit`.
            label_maps (array or list): True labels, as for :meth:`fit`. Pixels of ``ignore_label`` do not count.
            sample_weight (array or None, default None): Weight of the pixels of each image, (N,).

        Returns:
            float: Accuracy, from 0 to 1.
        """
        check_is_fitted(self)
        images = _several(images)
        label_maps = _paired(label_maps, images)
        weights = _check_sample_weight(sample_weight, label_maps, dtype=np.float64, ensure_non_negative=True)
        right = total = 0.0
        for weight, truth, found in zip(weights, label_maps, self.predict(images), strict=True):
            if truth.shape != found.shape:
                raise InputError(f"label_maps holds the shape {truth.shape}, expected {found.shape} like its image")
            counts = _labelled(truth, self.ignore_label)
            right += weight * np.count_nonzero((truth == found) & counts)
            total += weight * np.count_nonzero(counts)
        if total == 0:
            raise InputError("no pixel has a label that counts, expected labelled data")
        return float(right / total)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.single_output, tags.target_tags.multi_output = False, True
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        return tags

    def _each(self, images: Any, read: Callable[[Result], Array]) -> Any:
        """Decode the images and return ``read(result)`` as an array, or as a list for a list of images."""
        check_is_fitted(self)
        images = _several(images)
        if isinstance(images, list):
            return [read(result) for result in self._infer(images)]
        extract = None if isinstance(images, Features) else self.crf_.features
        if isinstance(extract, ImageFeatures) and images.ndim != (3 if extract.channels is None else 4):
            expected = "(N, H, W)" if extract.channels is None else f"(N, H, W, {extract.channels})"
            raise InputError(f"images has shape {images.shape}, expected {expected} or a list of images")
        return read(self._infer(images))


def _several(images: Any) -> Any:
    """Return an array or `Features` of several images unchanged, and anything else as a list."""
    if isinstance(images, Features):
        if not images.batched:
            raise InputError("images is the Features of one input, expected a batch or a list")
        return images
    if not hasattr(images, "__len__"):
        raise InputTypeError(f"images is a {type(images).__name__}, expected an array or a list of images")
    return images if hasattr(images, "ndim") and images.dtype != object else list(images)


def _paired(label_maps: Any, images: Any) -> list[Array]:
    if label_maps is None:
        raise InputError("label_maps is None, expected a label map for every image")
    maps = [np.asarray(label_map) for label_map in label_maps]
    if len(maps) != len(images) or not maps:
        raise InputError(f"label_maps holds {len(maps)} label maps, expected one for each of the {len(images)} images")
    shapes = {label_map.shape for label_map in maps}
    if not isinstance(images, list) and len(shapes) > 1:
        raise InputError(f"label_maps holds the shapes {sorted(shapes)}, expected one shape, as images are an array")
    return maps


def _labelled(labels: Array, ignore_label: Any) -> Array:
    if np.ndim(ignore_label):
        raise InputTypeError(f"ignore_label is {ignore_label!r}, expected one label or None")
    return np.ones(labels.shape, bool) if ignore_label is None else np.asarray(labels != ignore_label)


def _classes(label_maps: Sequence[Array], ignore_label: Any) -> Array:
    """Return the sorted labels that occur, without ``ignore_label``."""
    try:
        classes = np.unique(np.concatenate([np.unique(label_map) for label_map in label_maps]))
    except TypeError:
        raise InputTypeError("label_maps holds labels of different kinds, expected labels that can be sorted") from None
    if classes.dtype.kind == "f" and not (np.isfinite(classes) & (classes == np.round(classes))).all():
        raise InputError("label_maps contains fractions or NaN, expected whole numbers or names")
    classes = classes[_labelled(classes, ignore_label)]
    if len(classes) < 2:
        raise InputError(f"label_maps holds the labels {classes.tolist()}, expected at least two classes")
    return classes


def _encoded(label_map: Array, classes: Array, ignore_label: Any) -> Array:
    """Return positions in ``classes`` as int16, with VOID for ``ignore_label``."""
    places = np.searchsorted(classes, label_map).astype(np.int16)
    return np.where(_labelled(label_map, ignore_label), places, np.int16(VOID))
