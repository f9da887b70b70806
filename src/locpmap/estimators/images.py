"""`ImageCRF`: a conditional random field on images as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from locpmap.arrays import Array
from locpmap.crf import CRF
from locpmap.errors import InputError, InputTypeError
from locpmap.estimators.base import CRFEstimator, probability_of
from locpmap.features import Features, ImageFeatures
from locpmap.inference.decoder import Decoder
from locpmap.learning.batches import VOID
from locpmap.result import Result, variance_of


class ImageCRF(CRFEstimator):
    """Labels every pixel of images, with probabilities and variances.

    Images are an array (N, H, W), or (N, H, W, C) with channels, or a list of images whose sizes may differ; results
    come in the same form.  So it can be cloned, put in a pipeline's end and searched over by `GridSearchCV`, which
    splits by image.  It cannot pass scikit-learn's `check_estimator`, whose samples are rows of a matrix; its tags say
    so (``two_d_array`` is false, ``three_d_array`` true).

    Args:
        features: What turns images into features; None if inputs are `locpmap.Features` already.
        unary: "tables": a weight per feature and label; "scale", "temperature", "given": the unary features are scores
            of the labels in sorted order (a network's logits, as channels); see :class:`locpmap.CRF`.
        tied, symmetric, potts, non_negative: As for :class:`locpmap.CRF`.
        ignore_label: The label of void pixels, of the labels' own kind.
        objective: "pseudolikelihood", "composite", "consistent" or "likelihood"; see :meth:`locpmap.CRF.fit`.
        blocks: Of "composite" and "consistent" learning; blocks of decoding are one of the ``options``.
        l2: Strength of the penalty ``l2/2 · |w|²`` on the sum over pixels, biases excepted.
        method: The decoder: any by name, as in :func:`locpmap.infer`, or a configured one.
        n_samples: Samples of a decoder by name that draws some.
        probability: "conditional" or "votes", for a decoder by name that knows both.
        options: Further options of :func:`locpmap.infer`: a decoder's by name (``{"blocks": "rows"}``),
            ``max_seconds``, ``backend``.
        max_iter: Most iterations of L-BFGS, or held-out checks of "consistent".
        tol: Converged when no entry of the gradient (per pixel, in units of the features) exceeds this.
        random_state: Of decoding and of "consistent".  A whole number from 0 to 2^64 - 1 is the seed; otherwise a
            seed is drawn in `fit` and kept, so that predictions of a fitted estimator repeat.
        n_jobs: Threads; None is 1 and -1 all cores.  Results do not depend on it.

    Attributes:
        classes_: The labels, (L,), without ``ignore_label``.
        crf_: The :class:`locpmap.CRF`, with its weights and tables; ``crf_.save(path)`` writes a model file.
        fit_result_: How the fit went.
        n_iter_: Iterations of the fit.
        seed_: The seed of decoding.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> label_maps = np.where(rng.random((20, 3, 3)) < 0.5, "sky", "sea").repeat(4, axis=1).repeat(4, axis=2)
    >>> images = (label_maps == "sky") + 0.5 * rng.normal(size=label_maps.shape)
    >>> model = ImageCRF(random_state=0).fit(images, label_maps)
    >>> bool(model.score(images, label_maps) > 0.9)  # a threshold is right for 83 %
    True
    >>> model.predict(images).shape, model.predict_proba(images).shape
    ((20, 12, 12), (20, 12, 12, 2))
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

    def fit(self, images: Any, label_maps: Any, sample_weight: Any = None) -> ImageCRF:
        """Learn the weights.

        Args:
            images: (N, H, W), (N, H, W, C) or a list; see the class.
            label_maps: A label of any kind for every pixel, (N, H, W) or a list.
            sample_weight: How much each image counts, (N,).
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
        """Label maps (N, H, W), or a list of them."""
        return self._each(images, lambda result: self.classes_[result.labels])

    def predict_proba(self, images: Any) -> Any:
        """Probability of every label, (N, H, W, L) or a list, in the order of ``classes_``."""
        return self._each(images, probability_of)

    def predict_variance(self, images: Any) -> Any:
        """Variance p(1 - p) of every label, (N, H, W, L) or a list."""
        return self._each(images, lambda result: variance_of(probability_of(result)))

    def score(self, images: Any, label_maps: Any, sample_weight: Any = None) -> float:
        """The share of labelled pixels with the right label; ``sample_weight`` (N,) weighs the pixels of each image."""
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
        """What is read off the results, in the form of the images."""
        check_is_fitted(self)
        images = _several(images)
        if isinstance(images, list):
            return [read(result) for result in self._infer(images)]
        extract = self.crf_.features
        if isinstance(extract, ImageFeatures) and images.ndim != (3 if extract.channels is None else 4):
            expected = "(N, H, W)" if extract.channels is None else f"(N, H, W, {extract.channels})"
            raise InputError(f"images has shape {images.shape}, expected {expected} or a list of images")
        return read(self._infer(images))


def _several(images: Any) -> Any:
    """An array (or `Features`) of many images as it is, anything else as a list."""
    if isinstance(images, Features):
        if not images.batched:
            raise InputError("images is the Features of one input, expected a batch or a list")
        return images
    return images if hasattr(images, "ndim") and images.dtype != object else list(images)


def _paired(label_maps: Any, images: Any) -> list[Array]:
    """A label map for every image."""
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
    """Whether each label is one that counts."""
    return np.ones(labels.shape, bool) if ignore_label is None else np.asarray(labels != ignore_label)


def _classes(label_maps: Sequence[Array], ignore_label: Any) -> Array:
    """The labels that occur, sorted, without the one to ignore."""
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
    """Places in ``classes`` as int16, VOID for the label to ignore; every other label is one of the classes."""
    places = np.searchsorted(classes, label_map).astype(np.int16)
    return np.where(_labelled(label_map, ignore_label), places, np.int16(VOID))
