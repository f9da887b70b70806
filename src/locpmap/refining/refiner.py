"""`Refiner` and `refine`: refined labels with calibrated uncertainty, from an image and a network's logits."""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict
from functools import cache
from importlib.resources import as_file, files
from typing import Any

from locpmap.arrays import refuse_masked
from locpmap.crf.progress import progress_callback
from locpmap.errors import InputError, InputTypeError
from locpmap.formats.atomic import PathLike
from locpmap.inference import LocPMAP
from locpmap.inference.decoder import Decoder
from locpmap.measuring import Measurement
from locpmap.potentials import Potentials
from locpmap.refining.crossvalidation import cross_validated
from locpmap.refining.examples import gather
from locpmap.refining.model import AS_LEARNED
from locpmap.refining.prepared import Prepared
from locpmap.refining.reading import read
from locpmap.refining.report import Report
from locpmap.refining.weights import Adjustment, Weights
from locpmap.result import Result

SHIPPED = "scenes.safetensors"
ADJUSTED = "adjusted"  # the key of an adjustment in a file's details


class Refiner:
    """Refine segmentations by a Potts model of scores, of scores at similar pixels, and of neighbours.

    With the network's scores z, resized to the image and scaled as learned, and g, the logarithm of the mean softmax of
    nearby pixels of similar colour (:func:`locpmap.refining.guiding.guided_log_mean`)::

        u = max(0, 1 + strength · (own - 1)) · z + strength · guided · g   (without an image: u = z)
        θ(y) = Σ_i u[i, y_i] + Σ_(i,j) (strength · (a + b · likeness(i, j)) + smoothing · likeness(i, j)) · [y_i = y_j]

    over pixels i and their four neighbours, and all of it divided by ``temperature``.  The weights were learned, for
    sharp logits and for coarse ones; see :attr:`weights` and :attr:`details`.  ``strength``, ``smoothing`` and
    ``temperature`` are set by :meth:`adjusted`.  A refiner is a callable, ``refiner(image, logits)``, for use at the
    end of a pipeline.  :meth:`load` and :meth:`fit` return refiners.

    >>> Refiner.load().details["data"]
    'Stanford Background'
    """

    def __init__(
        self,
        weights: Weights,
        details: dict[str, Any] | None = None,
        report: Report | None = None,
        adjustment: Adjustment = AS_LEARNED,
    ) -> None:
        self.weights = weights
        self.details = dict(details or {})
        self.report = report
        self.adjustment = adjustment

    def __repr__(self) -> str:
        strides = ", ".join(f"{stride:g}" for stride in self.weights.strides)
        changed = "" if self.adjustment == AS_LEARNED else f", {self.adjustment}"
        return f"<Refiner: strides {strides}, learned from {self.details.get('data', 'data unknown')}{changed}>"

    @classmethod
    def load(cls, path: PathLike | None = None) -> Refiner:
        """Load a refiner from a file, or, without one, the bundled refiner."""
        weights, details = _shipped() if path is None else Weights.read(path)
        details = deepcopy(details)  # the caller may change them
        try:
            adjustment = Adjustment(**details.pop(ADJUSTED, {}))
        except (TypeError, InputError) as error:
            raise InputError(f"{path} is not a refiner of this version: it is malformed ({error})") from None
        return cls(weights, details, adjustment=adjustment)

    def save(self, path: PathLike) -> None:
        """Write the weights, their adjustment and :attr:`details` into one file, completely or not at all."""
        adjusted = {} if self.adjustment == AS_LEARNED else {ADJUSTED: asdict(self.adjustment)}
        self.weights.write(path, {**self.details, **adjusted})

    def adjusted(self, *, strength: float = 1.0, smoothing: float = 0.0, temperature: float = 1.0) -> Refiner:
        """Return a refiner with the same weights whose model is changed by hand; defaults are as learned.

        Args:
            strength: Factor of the learned weights of similar pixels and of neighbours.  0 leaves the softmax of the
                scores, scaled as learned.  It has no effect without an image and without coupled neighbours.
            smoothing: Added to the weight of neighbours of similar colour: 1 is much smoother.  It was not learned,
                so no data say that it helps.
            temperature: Divides all scores: above 1 less certain, below 1 more certain.  From 1e-6 to 1e6.

        >>> Refiner.load().adjusted(smoothing=0.5).adjustment
        Adjustment(strength=1.0, smoothing=0.5, temperature=1.0)
        """
        return Refiner(self.weights, self.details, self.report, Adjustment(strength, smoothing, temperature))

    @classmethod
    def fit(
        cls,
        images: Any,
        logits: Any,
        labels: Any,
        *,
        objective: str = "likelihood",
        n_folds: int = 5,
        ignore_label: int = -1,
        layout: str = "auto",
        scores: str = "auto",
        stride: float | None = None,
        seed: int = 0,
        progress: bool | Callable[[int, int, float], None] = False,
    ) -> Refiner:
        """Learn on held-out data of your own: images that the network was not trained on.

        The result's ``report`` says, by cross-validation, whether refinement helps them: ``print(refiner.report)``.

        Args:
            images: A batch or a list of images, each as in :func:`refine`; None if there are none.
            logits: As many scores, each as in :func:`refine`; all of one stride.
            labels: As many maps (H, W) of true labels.
            objective: "likelihood": scale and surroundings by maximum likelihood, then neighbours by consistent
                learning (:class:`locpmap.CRF`), which leaves a network alone that needs no help.  "area": then also,
                for :meth:`measure`, how likely a label is to be in an image by what the scores see of it, and, by the
                CRPS of the labels' areas, what all pixels of an image err by together.
            n_folds: Parts of the cross-validation, at least two and no more than images.
            ignore_label: The label of pixels whose truth is unknown: nothing is learned from it.
            layout: As in :func:`refine`.
            scores: As in :func:`refine`.
            stride: As in :func:`refine`.
            seed: Of everything that is drawn.
            progress: True for a bar, or a function of (images judged, images, negative log-likelihood so far).

        Cost: ``n_folds + 1`` fits, each on at most 100 images and, for neighbours, a window of at most 30; and a pass
        over all images.

        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> labels = np.stack([np.roll(np.repeat([[0, 1]] * 32, 16, axis=1), k, axis=1) for k in range(10)])
        >>> images = labels * 200.0
        >>> logits = np.eye(2)[labels] + 0.5 * rng.normal(size=(10, 32, 32, 2))
        >>> refiner = Refiner.fit(images, logits, labels, n_folds=2)
        >>> refiner.report.helps
        True
        """
        examples = gather(images, logits, labels, ignore_label, layout, scores, stride)
        with progress_callback(progress, "cross-validation") as callback:
            weights, report = cross_validated(examples, objective, n_folds, seed, callback)
        details = {"data": f"{len(examples)} images", "objective": objective, "seed": seed, "n_folds": n_folds}
        return cls(weights, {**details, "report": report.to_dict()}, report)

    def prepare(
        self,
        image: Any,
        logits: Any,
        *,
        layout: str = "auto",
        scores: str = "auto",
        stride: float | None = None,
        mask: Any = None,
    ) -> Prepared:
        """Build the model of an image once, to refine it and to measure in it as often as needed.

        Arguments are those of :func:`refine` that say how to read the image and the logits.

        >>> import numpy as np
        >>> prepared = Refiner.load().prepare(None, 3 * np.eye(2)[np.tri(32, dtype=int)])
        >>> prepared.refine().labels.shape, prepared.measure("area").mean.shape
        ((32, 32), (2,))
        """
        refuse_masked(image, "image")
        refuse_masked(logits, "logits")
        given = read(image, logits, layout, scores)
        return Prepared.of(given, self.weights, self.adjustment, mask=mask, stride=stride)

    def potentials(self, image: Any, logits: Any, **reading: Any) -> Potentials:
        """Return the model, which any decoder of :func:`locpmap.infer` takes; arguments as in :meth:`prepare`."""
        return self.prepare(image, logits, **reading).potentials

    def measure(
        self,
        image: Any,
        logits: Any,
        quantity: str | Callable[[Any], Any],
        decoder: LocPMAP | None = None,
        *,
        seed: int = 0,
        **reading: Any,
    ) -> Measurement:
        """Measure a quantity of label maps, with error bars that include errors shared by all pixels.

        For the other options of :func:`locpmap.measure`, call ``prepare(image, logits).measure(quantity, ..)``.

        Args:
            image: As in :func:`refine`.
            logits: As in :func:`refine`.
            quantity: "area", "presence", "components", "perimeter" or a function, as in :func:`locpmap.measure`.
            decoder: LocPMAP with 200 samples from a perturbed start by default.
            seed: Seed of the noise.
            **reading: Options of :meth:`prepare`.

        >>> import numpy as np
        >>> logits = 3 * np.eye(2)[np.tri(32, dtype=int)]
        >>> area = Refiner.load().measure(None, logits, "area")
        >>> area.values.shape
        (200, 2)
        """
        return self.prepare(image, logits, **reading).measure(quantity, decoder, seed=seed)

    def refine(
        self,
        image: Any,
        logits: Any,
        *,
        decoder: str | Decoder | None = None,
        seed: int = 0,
        device: str = "auto",
        progress: Callable[[int, int], None] | None = None,
        **reading: Any,
    ) -> Result:
        """Refine a segmentation with this refiner; arguments as in :func:`refine`."""
        return self.prepare(image, logits, **reading).refine(decoder, seed=seed, device=device, progress=progress)

    __call__ = refine


@cache
def _shipped() -> tuple[Weights, dict[str, Any]]:
    with as_file(files("locpmap.refining") / SHIPPED) as path:
        return Weights.read(path)


def refine(
    image: Any,
    logits: Any,
    model: Refiner | PathLike | None = None,
    *,
    layout: str = "auto",
    scores: str = "auto",
    stride: float | None = None,
    mask: Any = None,
    decoder: str | Decoder | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Return refined labels with calibrated uncertainty, from an image and a network's scores.

    Args:
        image: (H, W) or (H, W, C) in NumPy, (C, H, W) as a tensor, with any number of channels, of any type and range;
            None if there is none.  With a batch axis first where the logits have one.
        logits: A network's scores (H, W, K) or (K, H, W), logits or probabilities, or a batch of them; also what
            networks of Hugging Face (``.logits``) and torchvision (``["out"]``) return.  They have the image's size,
            or that size divided by a stride, and are resized.  ``-inf`` forbids a label.
        model: A :class:`Refiner` or its file; the bundled one by default.  :meth:`Refiner.adjusted` changes one.
        layout: "hwk", "khw", or "auto": the one that fits the image; what is ambiguous is refused.
        scores: "logits", "probabilities", or "auto": probabilities if the values look like probabilities.
        stride: Pixels of the image per score of the network, along an axis; by default the ratio of the sizes.  Give
            it if you have resized coarse logits yourself.
        mask: Booleans (H, W), True where a pixel is ignored: it gets label -1.
        decoder: A decoder of :func:`locpmap.infer`, or its name; by default ``LocPMAP(start="perturbed")``, which draws
            one sample where no neighbours are coupled, since more would not change the probabilities.
        seed: Seed of the noise.
        device: As in :func:`locpmap.infer`.
        progress: Called with (samples done, samples in all).

    Returns:
        A result with ``labels`` (H, W), ``probability`` and ``variance`` (H, W, K) and ``entropy`` (H, W): in NumPy, or
        tensors where the logits are tensors.

    Cost: that of :func:`locpmap.infer` on the same grid, and O(33 · H · W · K) for similar pixels.

    >>> import numpy as np
    >>> import locpmap as lp
    >>> image = np.zeros((64, 64, 3), np.uint8)
    >>> image[:, 30:] = 200
    >>> truth = (np.arange(64) >= 30).astype(int) * np.ones((64, 1), int)
    >>> coarse = 4.0 * np.eye(3)[truth].reshape(8, 8, 8, 8, 3).mean(axis=(1, 3))  # one score for 8 × 8 pixels
    >>> result = lp.refine(image, coarse)
    >>> result.labels.shape, bool((result.labels == truth).all())
    ((64, 64), True)
    """
    prepared = as_refiner(model).prepare(image, logits, layout=layout, scores=scores, stride=stride, mask=mask)
    return prepared.refine(decoder, seed=seed, device=device, progress=progress)


def as_refiner(model: Refiner | PathLike | None) -> Refiner:
    """Return the refiner itself, that of a file, or the bundled one."""
    if isinstance(model, Refiner):
        return model
    if model is not None and not isinstance(model, str | os.PathLike):
        raise InputTypeError(f"model is a {type(model).__name__}, expected a Refiner or its file")
    return Refiner.load(model)
