"""`Refiner` and `refine`: a network's logits and the image, to clean labels with an honest uncertainty."""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from importlib.resources import as_file, files
from typing import Any

from locpmap.crf.progress import listener
from locpmap.errors import InputTypeError
from locpmap.formats.atomic import PathLike
from locpmap.measuring import Measurement
from locpmap.potentials import Potentials
from locpmap.refining.crossvalidation import cross_validated
from locpmap.refining.examples import gather
from locpmap.refining.prepared import Prepared
from locpmap.refining.reading import read
from locpmap.refining.report import Report
from locpmap.refining.weights import Weights
from locpmap.result import Result

SHIPPED = "scenes.safetensors"


class Refiner:
    """Refines segmentations: scores, what is said of places that look alike, and a Potts model of the pixels.

    With the network's scores z, resized to the image and scaled as learned, and g, the logarithm of the mean softmax of
    pixels around that have a like colour (:func:`locpmap.refining.guiding.guided_log_mean`)::

        u = max(0, 1 + strength · (own - 1)) · z + strength · guided · g   (without an image: u = z)
        θ(y) = Σ_i u[i, y_i] + Σ_(i,j) (strength · (a + b · likeness(i, j)) + smoothing · likeness(i, j)) · [y_i = y_j]

    over pixels i and their four neighbours, and all of it divided by ``temperature``.  The numbers were learned, for
    sharp logits and for coarse ones; see :attr:`weights` and :attr:`details`.  A refiner is a callable,
    ``refiner(image, logits)``, for use at the end of a pipeline.  Made by :meth:`load` and :meth:`fit`.

    >>> Refiner.load().details["data"]
    'Stanford Background'
    """

    def __init__(self, weights: Weights, details: dict[str, Any] | None = None, report: Report | None = None) -> None:
        self.weights = weights
        self.details = dict(details or {})
        self.report = report

    def __repr__(self) -> str:
        strides = ", ".join(f"{stride:g}" for stride in self.weights.strides)
        return f"<Refiner: strides {strides}, learned from {self.details.get('data', 'data unknown')}>"

    @classmethod
    def load(cls, path: PathLike | None = None) -> Refiner:
        """From a file, or, without one, the refiner that comes with the library."""
        weights, details = _shipped() if path is None else Weights.read(path)
        return cls(weights, deepcopy(details))  # a caller may change his own

    def save(self, path: PathLike) -> None:
        """Write the weights and :attr:`details` into one file, completely or not at all."""
        self.weights.write(path, self.details)

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
        with listener(progress, "cross-validation") as heard:
            weights, report = cross_validated(examples, objective, n_folds, seed, heard)
        details = {"data": f"{len(examples)} images", "objective": objective, "seed": seed, "n_folds": n_folds}
        return cls(weights, {**details, "report": report.to_dict()}, report)

    def prepare(
        self,
        image: Any,
        logits: Any,
        *,
        layout: str = "auto",
        scores: str = "auto",
        strength: float = 1.0,
        smoothing: float = 0.0,
        temperature: float = 1.0,
        mask: Any = None,
        stride: float | None = None,
    ) -> Prepared:
        """The model of an image, made once to be refined, and measured in as often as you like.

        Arguments are those of :func:`refine` that the model depends on; the others go to the two methods.

        >>> import numpy as np
        >>> prepared = Refiner.load().prepare(None, 3 * np.eye(2)[np.tri(32, dtype=int)])
        >>> prepared.refine().labels.shape, prepared.measure("area", n_samples=50).mean.shape
        ((32, 32), (2,))
        """
        how: dict[str, Any] = {"strength": strength, "smoothing": smoothing, "temperature": temperature}
        return Prepared.of(read(image, logits, layout, scores), self.weights, **how, mask=mask, stride=stride)

    def potentials(self, image: Any, logits: Any, **options: Any) -> Potentials:
        """The model itself, which any decoder of :func:`locpmap.infer` takes; arguments as in :meth:`prepare`."""
        return self.prepare(image, logits, **options).potentials

    def measure(
        self,
        image: Any,
        logits: Any,
        quantity: str | Callable[[Any], Any],
        *,
        layout: str = "auto",
        scores: str = "auto",
        strength: float = 1.0,
        smoothing: float = 0.0,
        temperature: float = 1.0,
        mask: Any = None,
        stride: float | None = None,
        n_samples: int = 200,
        seed: int = 0,
        **options: Any,
    ) -> Measurement:
        """What is computed from label maps, with error bars that know of errors which pixels share.

        Args:
            image: As in :func:`refine`, like all arguments but these:
            logits: The scores.
            quantity: "area", "presence", "components", "perimeter" or a function, as in :func:`locpmap.measure`.
            layout: See there.
            scores: See there.
            strength: See there.
            smoothing: See there.
            temperature: See there.
            mask: See there.
            stride: See there.
            n_samples: Label maps to measure in.
            seed: Of all noise.
            **options: Others of :func:`locpmap.measure`.

        >>> import numpy as np
        >>> logits = 3 * np.eye(2)[np.tri(32, dtype=int)]
        >>> area = Refiner.load().measure(None, logits, "area", n_samples=50)
        >>> area.values.shape
        (50, 2)
        """
        prepared = self.prepare(
            image,
            logits,
            layout=layout,
            scores=scores,
            strength=strength,
            smoothing=smoothing,
            temperature=temperature,
            mask=mask,
            stride=stride,
        )
        return prepared.measure(quantity, n_samples=n_samples, seed=seed, **options)

    def refine(self, image: Any, logits: Any, **options: Any) -> Result:
        """:func:`refine` with this refiner."""
        return refine(image, logits, self, **options)

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
    strength: float = 1.0,
    smoothing: float = 0.0,
    temperature: float = 1.0,
    n_samples: int = 50,
    blocks: Any = "sites",
    start: Any = "perturbed",
    seed: int = 0,
    device: str = "auto",
    mask: Any = None,
    stride: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Clean labels, and how sure they are, from an image and a network's scores of it.

    Args:
        image: (H, W), (H, W, C) or a tensor (C, H, W), with any number of channels, of any type and range; None if
            there is none.  With a batch axis first where the logits have one.
        logits: A network's scores (H, W, K) or (K, H, W), logits or probabilities, or a batch of them; also what
            networks of Hugging Face (``.logits``) and torchvision (``["out"]``) return.  Smaller than the image, they
            are resized.  ``-inf`` forbids a label.
        model: A :class:`Refiner` or its file; the one that comes with the library by default.
        layout: "hwk", "khw", or "auto": found by the sizes of image and logits; what is ambiguous is refused.
        scores: "logits", "probabilities", or "auto": probabilities, if they look like that.
        strength: A factor of what was learned of surroundings and neighbours.  0 leaves the softmax of the scores,
            scaled as learned; without an image and without coupled neighbours it is idle.
        smoothing: What neighbours of like colours gain by agreeing, on top of what was learned: 0 is as learned, 1 much
            smoother.  It was not learned, so no data say that it helps.
        temperature: Divides all scores: above 1 less sure, below 1 surer.
        n_samples: Of :class:`locpmap.LocPMAP`, like the next two; where no neighbours are coupled, one is enough.
        blocks: What is improved at a time.
        start: Where climbs start.
        seed: Of all noise.
        device: As in :func:`locpmap.infer`.
        mask: Booleans (H, W), True where a pixel is ignored: it gets label -1.
        stride: How many pixels of the image one score of the network stands for, along an axis; by default what the
            sizes say.  Say it if you have resized coarse logits yourself.
        progress: Called with (samples done, samples in all).

    Returns:
        A result with ``labels`` (H, W), ``probability`` and ``variance`` (H, W, K) and ``entropy`` (H, W): in NumPy, or
        tensors where the logits are tensors.  For decoders other than LocPMAP see :meth:`Refiner.potentials`.

    Cost: that of :func:`locpmap.infer` on the same grid, and O(33 · H · W · K) for what looks alike.

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
    prepared = as_refiner(model).prepare(
        image,
        logits,
        layout=layout,
        scores=scores,
        strength=strength,
        smoothing=smoothing,
        temperature=temperature,
        mask=mask,
        stride=stride,
    )
    return prepared.refine(n_samples=n_samples, blocks=blocks, start=start, seed=seed, device=device, progress=progress)


def as_refiner(model: Refiner | PathLike | None) -> Refiner:
    """The refiner itself, of that file, or the shipped one."""
    if isinstance(model, Refiner):
        return model
    if model is not None and not isinstance(model, str | os.PathLike):
        raise InputTypeError(f"model is a {type(model).__name__}, expected a Refiner or its file")
    return Refiner.load(model)
