"""`Refiner`: a learned model for refined labels with calibrated uncertainty."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, Self

from locpmap.arrays import refuse_masked
from locpmap.errors import InputError, whole_number, within
from locpmap.formats.atomic import PathLike
from locpmap.guarantees import Guarantee
from locpmap.inference import LocPMAP
from locpmap.inference.decoder import Decoder
from locpmap.measuring import Measurement
from locpmap.progress import reporting
from locpmap.refining.crossvalidation import cross_validated
from locpmap.refining.examples import Example, gather
from locpmap.refining.guaranteeing import Quantity, calibrated, digest, refuse_known, set_aside, warn_of_tiles
from locpmap.refining.model import AS_LEARNED
from locpmap.refining.model_file import VOLUMES, bundled, bundled_prior, read_refiner, write_refiner
from locpmap.refining.prepared import Prepared
from locpmap.refining.reading import options_of_prepare, read
from locpmap.refining.report import Report
from locpmap.refining.weights import Adjustment, Weights
from locpmap.result import Result


class Refiner:
    """A learned Potts model that refines segmentations.

    :meth:`load` returns the bundled refiner or one from a file, and :meth:`fit` learns one from your data. A refiner is
    also a callable, ``refiner(image, logits)``, for use at the end of a pipeline.

    Args:
        weights (Weights): The learned weights, for one or several strides.
        details (dict, default None): How the weights were learned, such as the data and the seed.
        report (Report, default None): The cross-validation report of :meth:`fit`.
        adjustment (Adjustment): Manual changes of the model, set by :meth:`adjusted`; none by default.
        guarantee (Guarantee, default None): The calibration of :meth:`guaranteed`.

    Notes:
        :class:`locpmap.refining.Prepared` documents the model. Files of earlier versions have no error fields.

    Example:
        >>> lp.Refiner.load().weights.strides.tolist()
        [1.0, 8.0, 16.0]

    See Also:
        :func:`locpmap.refine`, the same in one call.
    """

    def __init__(
        self,
        weights: Weights,
        details: dict[str, Any] | None = None,
        report: Report | None = None,
        adjustment: Adjustment = AS_LEARNED,
        guarantee: Guarantee | None = None,
    ) -> None:
        self.weights = weights
        self.details = dict(details or {})
        self.report = report
        self.adjustment = adjustment
        self.guarantee = guarantee

    def __repr__(self) -> str:
        strides = ", ".join(f"{stride:g}" for stride in self.weights.strides)
        fields = "with" if self.weights.sizes.any() else "without"
        changed = "" if self.adjustment == AS_LEARNED else f", {self.adjustment}"
        learned = self.details.get("data", "data unknown")
        promised = "" if self.guarantee is None else f", guarantee from {self.guarantee.n_images} images"
        return f"<Refiner: strides {strides}, {fields} error fields, learned from {learned}{changed}{promised}>"

    @classmethod
    def load(cls, path: PathLike | None = None) -> Self:
        """Load the bundled refiner, or a refiner from a file.

        Args:
            path (str or os.PathLike, default None): A file of :meth:`save`; None loads the bundled refiner.

        Returns:
            Refiner: Without a report object; ``details["report"]`` holds the numbers if it was fitted.

        Raises:
            InputError: If the file cannot be read or does not hold a refiner.

        Example:
            >>> lp.Refiner.load()  # doctest: +ELLIPSIS
            <Refiner: strides 1, 8, 16, with error fields, learned from Stanford Background, MSRC, ..., digits>
        """
        weights, details, adjustment, guarantee = bundled() if path is None else read_refiner(path)
        return cls(weights, deepcopy(details), adjustment=adjustment, guarantee=guarantee)  # callers may modify details

    def save(self, path: PathLike) -> None:
        """Write the weights, the adjustment, the details and the guarantee to one file, atomically.

        Args:
            path (str or os.PathLike): The file to write.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     lp.Refiner.load().adjusted(smoothing=0.5).save(f"{folder}/smooth.safetensors")
            ...     lp.Refiner.load(f"{folder}/smooth.safetensors").adjustment.smoothing
            0.5
        """
        write_refiner(path, self.weights, self.details, self.adjustment, self.guarantee)

    def adjusted(self, *, strength: float = 1.0, smoothing: float = 0.0, temperature: float = 1.0) -> Self:
        """Return a refiner with the same weights and a manually adjusted model.

        The result has this adjustment only: an argument that is not given has its default, also if an earlier
        adjustment changed it. The defaults restore the learned model. A changed model has no guarantee: call
        :meth:`guaranteed` after adjusting.

        Args:
            strength (float, default 1.0): Factor of the learned effect of similar pixels and neighbours, and of the
                weight of samples in the probability, from 0 to 1e6. 0 leaves the softmax of the scaled scores.
            smoothing (float, default 0.0): Potts weight added between neighbours of similar colour, from 0 to 1e6, so
                that labels and samples have fewer specks. It is not learned: check it on your data.
            temperature (float, default 1.0): Divisor of all scores and weights, from 1e-6 to 1e6. Values above 1 make
                the probabilities less certain, values below 1 more certain.

        Returns:
            Refiner: A new refiner; this one is unchanged.

        Example:
            >>> lp.Refiner.load().adjusted(smoothing=0.5).adjustment
            Adjustment(strength=1.0, smoothing=0.5, temperature=1.0)
        """
        changed = Adjustment(strength, smoothing, temperature)
        guarantee = self.guarantee if changed == self.adjustment else None
        return type(self)(self.weights, self.details, self.report, changed, guarantee)

    @classmethod
    def fit(
        cls,
        images: Any,
        logits: Any,
        labels: Any,
        *,
        n_folds: int = 2,
        ignore_label: int = -1,
        layout: str = "auto",
        scores: str = "auto",
        stride: float | None = None,
        spacing: Any = None,
        groups: Any = None,
        seed: int = 0,
        guarantee: float = 0.0,
        objective: str | None = None,
        progress: bool | Callable[[int, int, float], None] = False,
    ) -> Self:
        """Learn a refiner from labelled images that the network was not trained on.

        ``print(refiner.report)`` shows cross-validated metrics and a verdict on whether refinement helps.

        Args:
            images (sequence or array): Images, each as in :func:`locpmap.refine`; None if there are none.
            logits (sequence or array): One entry per image, as in :func:`locpmap.refine`, all with one stride.
            labels (sequence or array): One map (H, W) or (D, H, W) of true labels per image.
            n_folds (int, default 2): Number of cross-validation folds, at most one per labelled image.
            ignore_label (int, default -1): Label of pixels whose true label is unknown. These pixels are ignored.
            layout (str, default "auto"): As in :func:`locpmap.refine`.
            scores (str, default "auto"): As in :func:`locpmap.refine`.
            stride (float, default None): As in :func:`locpmap.refine`.
            spacing (float, tuple or sequence of tuples, default None): As in :func:`locpmap.refine`; one, or one each.
            groups (sequence, default None): One name or number per image, equal for related images, such as slices of
                a scan or frames of a video. Folds and standard errors are then over groups: the fit holds for new ones.
            seed (int, default 0): Seed of the folds, of the choice of pixels and images, and of the sampling.
            guarantee (float, default 0.0): Fraction of the images, chosen at random, that are not used in the fit but
                for a guarantee, as by :meth:`guaranteed`. At least 9 images are needed for guarantees of 0.9.
            objective (str, default None): With "iou" or "dice", the report also states the gain from deciding for
                this measure (:meth:`Result.decide`), per image and per fold. The weights do not depend on it.
            progress (bool or callable, default False): True shows a progress bar with the remaining time. A callable is
                called as ``progress(steps done, steps, loss)``, with the loss of samples, then that of probabilities.

        Returns:
            Refiner: For the stride of the logits, with ``report`` and ``details`` set.

        Raises:
            InputError: If an entry is malformed, or there are fewer labelled images or groups than ``n_folds``.

        Notes:
            The scale and the share of similar pixels maximise the likelihood of the labels. A share that gains less
            than a standard error over images or groups is 0. Labels of at least five groups get factors and offsets if
            these gain a standard error on held-out groups, without losing IoU, also near boundaries. The presence of
            labels is a logistic regression on predicted areas. Error fields, coupling and noise start at the bundled
            values and minimise proper scores of sampled label maps: CRPS of areas and perimeters, energy score,
            likelihood, and a penalty if true values lie outside the range of samples too often or too rarely. A change
            must improve the loss by half a standard error. Coupling is left out if samples, or labels near boundaries,
            are better without it. Cost: ``n_folds + 1`` fits of about 18 candidates, and 19 samples of every image.

        Example:
            >>> rng = np.random.default_rng(0)
            >>> labels = np.stack([np.roll(np.repeat([[0, 1]] * 32, 16, axis=1), k, axis=1) for k in range(10)])
            >>> images = labels * 200.0
            >>> logits = np.eye(2)[labels] + 0.5 * rng.normal(size=(10, 32, 32, 2))
            >>> refiner = lp.Refiner.fit(images, logits, labels, n_folds=2)
            >>> refiner.report.helps
            True
        """
        seed = whole_number("seed", seed, 0, 2**63)
        within("guarantee", guarantee, 0, 1)
        examples = gather(images, logits, labels, ignore_label, layout, scores, stride, spacing, groups)
        examples, reserved = set_aside(examples, guarantee, seed)
        with reporting(progress, "cross-validation", "done, total, value") as callback:
            weights, report = cross_validated(examples, n_folds, seed, bundled_prior(examples), callback, objective)
        volumes = {} if examples[0].given.spacing is None else {VOLUMES: True}
        details = {"data": f"{len(examples)} {'volumes' if volumes else 'images'}", "seed": seed, "n_folds": n_folds}
        details |= {"fitted_on": [digest(example) for example in examples], "report": report.to_dict(), **volumes}
        fitted = cls(weights, details, report)
        return fitted._calibrated(images, reserved, None, seed, progress) if reserved else fitted

    def guaranteed(
        self,
        images: Any,
        logits: Any,
        labels: Any,
        quantities: Sequence[Quantity] | None = None,
        *,
        ignore_label: int = -1,
        layout: str = "auto",
        scores: str = "auto",
        stride: float | None = None,
        spacing: Any = None,
        seed: int = 0,
        progress: bool | Callable[[int, int, float], None] = False,
    ) -> Self:
        """Calibrate on labelled images, so that intervals, label sets and abstention have a guarantee.

        Use images that neither the network nor this refiner was fitted on, and that are exchangeable with later images:
        independent images from the same source, not neighbouring tiles of one raster.

        Args:
            images (sequence or array): As in :meth:`fit`.
            logits (sequence or array): As in :meth:`fit`.
            labels (sequence or array): As in :meth:`fit`. Pixels without a label are masked.
            quantities (sequence, default None): Names and functions of quantities, as in :func:`locpmap.measure`, whose
                intervals will have a guarantee: by default "area", "components" and "perimeter", or those of volumes,
                "volume", "components" and "surface". A function is recognised by its name only.
            ignore_label (int, default -1): As in :meth:`fit`.
            layout (str, default "auto"): As in :func:`locpmap.refine`.
            scores (str, default "auto"): As in :func:`locpmap.refine`.
            stride (float, default None): As in :func:`locpmap.refine`.
            spacing (float, tuple or sequence of tuples, default None): As in :meth:`fit`.
            seed (int, default 0): Seed of the samples.
            progress (bool or callable, default False): As in :meth:`fit`; the loss is the fraction of wrong pixels.

        Returns:
            Refiner: A refiner with the same model, whose ``guarantee`` is set. ``print(refiner.guarantee)`` states what
            is guaranteed, and under which assumption. Pass the refiner as ``guarantee=`` to
            :meth:`Measurement.interval`, :meth:`Result.label_sets` and :meth:`Result.decide`.

        Raises:
            InputError: If there are fewer than 9 labelled images, an image occurs twice or was used in the fit, or an
                entry is malformed.

        Notes:
            n images are enough for levels up to n / (n + 1). Cost: 50 samples of every image.

        Example:
            >>> rng = np.random.default_rng(0)
            >>> labels = np.stack([np.roll(np.repeat([[0, 1]] * 16, 8, axis=1), k, axis=1) for k in range(12)])
            >>> logits = np.eye(2)[labels] + 0.5 * rng.normal(size=(12, 16, 16, 2))
            >>> refiner = lp.Refiner.load().guaranteed(None, logits, labels, ["area"])
            >>> low, high = refiner.measure(None, logits[0], "area").interval(0.9, guarantee=refiner)
            >>> low.shape, refiner.guarantee.n_images
            ((2,), 12)
        """
        examples = gather(images, logits, labels, ignore_label, layout, scores, stride, spacing)
        seed = whole_number("seed", seed, 0, 2**63)
        return self.suited(examples[0].given.spacing)._calibrated(images, examples, quantities, seed, progress)

    def suited(self, spacing: tuple[float, ...] | None) -> Self:
        """Return the refiner for images or volumes, without presence if that was learned from areas in images."""
        if spacing is None and VOLUMES in self.details:
            raise InputError("spacing is None and the refiner was fitted on volumes, expected the sides of a voxel")
        if spacing is None or VOLUMES in self.details:
            return self
        if "fitted_on" in self.details:
            raise InputError("spacing is given and the refiner was fitted on images, expected a refiner of volumes")
        details = {**self.details, VOLUMES: True}
        return type(self)(replace(self.weights, presence=0.0), details, self.report, self.adjustment)

    def _calibrated(self, images: Any, examples: list[Example], quantities: Any, seed: int, progress: Any) -> Self:
        refuse_known(examples, self.details.get("fitted_on", ()))
        warn_of_tiles(images)
        with reporting(progress, "guarantee", "done, total, value") as callback:
            found = calibrated(examples, self.weights, self.adjustment, quantities, seed, callback)
        return type(self)(self.weights, self.details, self.report, self.adjustment, found)

    def prepare(
        self,
        image: Any,
        logits: Any,
        *,
        layout: str = "auto",
        scores: str = "auto",
        stride: float | None = None,
        spacing: Any = None,
        mask: Any = None,
    ) -> Prepared:
        """Build the model of an image once, for several calls of ``refine`` and ``measure``.

        Args:
            image (array or tensor): As in :func:`locpmap.refine`.
            logits (array or tensor): As in :func:`locpmap.refine`.
            layout (str, default "auto"): As in :func:`locpmap.refine`.
            scores (str, default "auto"): As in :func:`locpmap.refine`.
            stride (float, default None): As in :func:`locpmap.refine`.
            spacing (float or tuple of float, default None): As in :func:`locpmap.refine`.
            mask (array, default None): As in :func:`locpmap.refine`.

        Returns:
            Prepared: The model, with the methods ``refine`` and ``measure`` and the attribute ``potentials``.

        Example:
            >>> prepared = lp.Refiner.load().prepare(None, 3 * np.eye(2)[np.tri(32, dtype=int)])
            >>> prepared.refine().labels.shape, prepared.measure("area").mean.shape
            ((32, 32), (2,))
        """
        refuse_masked(image, "image")
        refuse_masked(logits, "logits")
        given = read(image, logits, layout, scores, spacing, mask)
        return Prepared.of(given, self.suited(given.spacing).weights, self.adjustment, mask=mask, stride=stride)

    def measure(
        self,
        image: Any,
        logits: Any,
        quantity: str | Callable[[Any], Any],
        decoder: LocPMAP | None = None,
        *,
        seed: int = 0,
        progress: bool | Callable[[int, int], None] | None = None,
        **reading: Any,
    ) -> Measurement:
        """Measure a quantity of the label map, with its uncertainty.

        The samples include the learned presence of labels and the learned error that all pixels of an image share. For
        other options of :func:`locpmap.measure`, call ``prepare(image, logits).measure(quantity, ..)``.

        Args:
            image (array or tensor): As in :func:`locpmap.refine`.
            logits (array or tensor): As in :func:`locpmap.refine`.
            quantity (str or callable): A name such as "area" or "volume", or a function, as in :func:`locpmap.measure`.
            decoder (LocPMAP, default None): The sampler. The default draws 200 samples from a perturbed start.
            seed (int, default 0): Seed of the random generator.
            progress (bool or callable, default None): As in :func:`locpmap.measure`.
            **reading: Options of :meth:`prepare`.

        Returns:
            Measurement: Mean, standard deviation and quantiles of the quantity.

        Example:
            >>> logits = 3 * np.eye(2)[np.tri(32, dtype=int)]
            >>> area = lp.Refiner.load().measure(None, logits, "area")
            >>> area.values.shape
            (200, 2)
        """
        other = "; pass options of locpmap.measure to prepare(image, logits).measure"
        reading = options_of_prepare("measure", reading, other)
        return self.prepare(image, logits, **reading).measure(quantity, decoder, seed=seed, progress=progress)

    def refine(
        self,
        image: Any,
        logits: Any,
        *,
        decoder: str | Decoder | None = None,
        keep_samples: bool = False,
        seed: int = 0,
        device: str = "auto",
        progress: bool | Callable[[int, int], None] | None = None,
        **reading: Any,
    ) -> Result:
        """Refine a segmentation with this refiner; ``refiner(image, logits)`` is the same.

        Args:
            image (array or tensor): As in :func:`locpmap.refine`.
            logits (array or tensor): As in :func:`locpmap.refine`.
            decoder (str or Decoder, default None): As in :func:`locpmap.refine`.
            keep_samples (bool, default False): As in :func:`locpmap.refine`.
            seed (int, default 0): As in :func:`locpmap.refine`.
            device (str, default "auto"): As in :func:`locpmap.refine`.
            progress (bool or callable, default None): As in :func:`locpmap.refine`.
            **reading: Options of :meth:`prepare`.

        Returns:
            Result: Labels, probabilities, variance and entropy, as from :func:`locpmap.refine`.

        Example:
            >>> lp.Refiner.load().refine(None, 3 * np.eye(2)[np.tri(32, dtype=int)]).labels.shape
            (32, 32)
        """
        prepared = self.prepare(image, logits, **options_of_prepare("refine", reading))
        return prepared.refine(decoder, keep_samples=keep_samples, seed=seed, device=device, progress=progress)

    __call__ = refine
