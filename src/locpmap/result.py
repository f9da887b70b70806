"""Results of decoders."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np

from locpmap.arrays import Array, Restore, namespace, on_gpu, to_numpy
from locpmap.deciding import Decider, Decision, decide
from locpmap.deciding.inputs import no_probability
from locpmap.errors import InputError, fraction
from locpmap.graphs import Volume
from locpmap.guarantees.guarantee import guarantee_of
from locpmap.guarantees.source import Source
from locpmap.guarantees.thresholds import label_sets
from locpmap.potentials import Potentials


class Status(StrEnum):
    """Reason why a run ended.  The values are readable messages.

    COMPLETE means that a sampler drew all samples, or that annealing performed all sweeps.
    """

    EXACT = "exact"
    CONVERGED = "converged"
    COMPLETE = "complete"
    MAX_SWEEPS = "stopped at max_sweeps before converging"
    CLIMBS_CUT = "complete, but some climbs stopped at max_sweeps before a local maximum"
    MAX_SECONDS = "stopped at max_seconds"
    BURN_IN = "stopped at max_seconds in the burn-in, before the first sample"
    NOT_MIXED = "not converged: the chains disagree (R-hat above 1.1)"
    FORBIDDEN = "ended with labels that a pairwise table forbids (score -inf)"


class BoundKind(StrEnum):
    """Meaning of ``Result.log_partition``."""

    EXACT = "exact"
    LOWER = "lower bound"
    UPPER = "upper bound"
    BETHE = "Bethe approximation"
    ESTIMATE = "estimate"
    UPPER_ESTIMATE = "estimate of an upper bound"


@dataclass(frozen=True)
class Ending:
    """Status, time and number of sweeps of a finished run."""

    status: Status
    seconds: float
    n_sweeps: float


@dataclass(frozen=True, eq=False)
class Origin:
    """The network's labels, from which a refiner started.

    Attributes:
        labels (array): The network's most probable labels, int16 of the shape of the result's labels.
        strength (float or array): How far the refiner may change an image, (N,) or one number: 0 keeps the labels.
    """

    labels: Any
    strength: Any


@dataclass(frozen=True, eq=False)
class Result:
    """Labels, their probabilities, and information about the run.

    Attributes:
        labels (array): Labels (H, W) on a grid or (S,) on a graph, with a leading axis N for a batch.  Masked sites
            have label -1.
        probability (array or None): Probabilities of the shape of ``labels`` with a label axis appended.  Masked sites
            have probability 0.  None for icm, annealing, graph_cut and max_product, which return one labelling.
        method (str): Name of the decoder.
        backend (str): Backend that ran: "reference", "numba" or "triton".
        device (str): Device of the run, "cpu", "cuda", or a GPU by number such as "cuda:1".
        n_samples (int): Number of samples drawn; 0 for decoders that do not sample.
        noise (str or None): Noise scheme of decoders that perturb the scores, such as "lazy", "plain" or "none".
        log_partition (float, array or None): log Z, or an approximation of it; (N,) for a batch.
        log_partition_kind (BoundKind or None): Whether ``log_partition`` is exact, a bound, or an approximation.
        log_partition_error (float, array or None): Standard error of a ``log_partition`` estimated from samples.
        bound (float, array or None): Upper bound on the score of every labelling, from trw, and from max_product with
            ``n_forests``.  If it equals ``score``, ``labels`` are optimal.
        samples (array or None): With ``keep_samples=True``, samples (M, ...) as int16, each of the shape of ``labels``.
        r_hat (float, array or None): Of gibbs with several chains: the largest split R-hat over sites and labels, (N,)
            for a batch.  Near 1 if the chains agree; above 1.1, ``status`` is :attr:`Status.NOT_MIXED`.  None without
            samples.
        n_effective (float, array or None): Of gibbs with several chains: the number of independent samples that would
            estimate the probabilities equally well, (N,) for a batch.  The root-mean-square error of ``probability``
            is about the root of the mean ``variance`` over ``n_effective``.
        source (Source or None): The refiner that drew the samples with its default decoder, for its guarantee.
        origin (Origin or None): Of :func:`locpmap.refine`: the network's labels, for ``n_changed`` and ``changes``.
        meter (callable or None): Of :func:`locpmap.refine`: draws the samples of :meth:`measure`.
        ending (Ending or callable): Source of ``status``, ``seconds`` and ``n_sweeps``.
        potentials (Potentials): The decoded model.

    Notes:
        The meaning of ``probability`` depends on the decoder:

        - exact, gibbs: marginals of the model (gibbs estimates them).
        - lbp, trw, mean_field: approximate marginals.
        - locpmap, icm_iter, perturb_and_map, perturb_and_max_product: the distribution of the decoder's samples, which
          may differ from the marginals.

        Tables may forbid pairs of labels with -inf.  If ``labels`` contain such a pair, ``status`` is
        :attr:`Status.FORBIDDEN`, and the affected images have ``score`` -inf.

        On a GPU, the arrays of samplers are computed asynchronously, like the result of any torch operation.  Reading
        ``status``, ``seconds`` or ``n_sweeps`` waits for the device.

    Example:
        >>> result = lp.infer(lp.Potentials.grid(np.zeros((2, 3, 4)), 1.0), "mean_field")
        >>> result.labels.shape, result.probability.shape
        ((2, 3), (2, 3, 4))
        >>> result.status, str(result.log_partition_kind)
        (<Status.CONVERGED: 'converged'>, 'lower bound')

    See Also:
        :func:`infer`, :class:`locpmap.result.Status`, :class:`locpmap.result.BoundKind`
    """

    labels: Any
    probability: Any
    method: str
    backend: str
    device: str
    n_samples: int = 0
    noise: str | None = None
    log_partition: Any = None  # float or (N,)
    log_partition_kind: BoundKind | None = None
    log_partition_error: Any = None  # float or (N,)
    bound: Any = None  # float or (N,)
    samples: Any = None  # (M, .., sites) int16
    r_hat: Any = None  # float or (N,)
    n_effective: Any = None  # float or (N,)
    source: Source | None = field(default=None, repr=False)
    origin: Origin | None = field(default=None, repr=False)
    meter: Callable[..., Any] | None = field(default=None, repr=False)
    ending: Ending | Callable[[], Ending] = field(repr=False, kw_only=True)
    potentials: Potentials = field(repr=False, kw_only=True)

    def __repr__(self) -> str:
        gives = "labels" if self.probability is None else "labels, probability"
        shape = tuple(int(n) for n in self.labels.shape)
        where = f"{self.backend} on {self.device}"
        changes = f"; {self.changes}" if self.changes else ""
        return f"<Result of {self.method}: {gives} {shape}, {self.status}, {self.seconds:.3g} s, {where}{changes}>"

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields with the ending evaluated, so that another process needs no GPU."""
        return {**self.__dict__, "ending": self._ended}

    @cached_property
    def _ended(self) -> Ending:
        return self.ending if isinstance(self.ending, Ending) else self.ending()

    @property
    def status(self) -> Status:
        """Reason why the run ended."""
        return self._ended.status

    @property
    def seconds(self) -> float:
        """Wall time in seconds.  The first run of a decoder includes compilation, a few seconds per precision."""
        return self._ended.seconds

    @property
    def n_sweeps(self) -> float:
        """Number of sweeps: the mean per independent sample; for gibbs and annealing the length of the chain."""
        return self._ended.n_sweeps

    @property
    def converged(self) -> bool:
        """Whether the run ended without reaching a limit, with labels that the model allows."""
        return self.status in (Status.EXACT, Status.CONVERGED, Status.COMPLETE)

    @cached_property
    def score(self) -> Any:
        """Score θ of ``labels`` under the unperturbed model: a float, or an array (N,) for a batch."""
        return self.potentials.score(self.labels)

    @cached_property
    def variance(self) -> Any:
        """Variance p(1 - p) of every label, of the shape of ``probability``; None without probabilities."""
        return None if self.probability is None else variance_of(self.probability)

    @cached_property
    def entropy(self) -> Any:
        """Entropy -Σ p log p of every site in nats; None without probabilities."""
        return None if self.probability is None else self.potentials.restore(entropy_of(self.probability))

    @cached_property
    def n_changed(self) -> Any:
        """Number of sites with another label than the network's: an int, or (N,) for a batch; None without network."""
        if self.origin is None:
            return None
        changed = to_numpy((self.labels != self.origin.labels) & (self.labels >= 0), "labels")
        counts = changed.reshape(self.potentials.n_images, -1).sum(1)
        return counts if self.potentials.batched else int(counts[0])

    @property
    def changes(self) -> str:
        """One sentence on how many labels differ from the network's and, if none does, why; empty without network."""
        if self.origin is None:
            return ""
        volume = isinstance(self.potentials.structure, Volume)
        site, image, similar = ("voxel", "volume", "intensity") if volume else ("pixel", "image", "colour")
        n, total = int(np.sum(self.n_changed)), int((self.labels >= 0).sum())
        count = self.potentials.n_images
        where = f" in {count} {image}{'s' * (count > 1)}" if self.potentials.batched else ""
        if n:
            has = "has" if n == 1 else "have"
            return f"{n:,} of {total:,} {site}s{where} {has} another label than the network's"
        none = f"none of {total:,} {site}s{where} has another label than the network's"
        masked = self.potentials.masked
        n_masked = 0 if masked is None else int(masked.sum()) * count // len(masked)
        if int((self.labels < 0).sum()) > n_masked:  # a decision left out the others, which may have changed
            return none
        kept = np.atleast_1d(Restore()(self.origin.strength)) == 0
        reason = f"similar and neighbouring {site}s agree with the network's labels"
        if kept.any():
            some = "" if kept.all() else f"in {kept.sum()} of them "
            poor = f"{site}s of similar {similar} do not predict each other's labels well"
            reason = f"{some}{poor}, so the network's labels are kept"
        if isinstance(self.origin.strength, float) and kept[0]:
            reason = f"the refiner does not use similar {site}s"
        return f"{none}: {reason}"

    def decide(
        self,
        measure: Any = "iou",
        *,
        over: str | Decider = "image",
        abstain: float | None = None,
        guarantee: Any = None,
    ) -> Decision:
        """Decide the labels with the best expected value of a measure, given the probabilities.

        The most probable label of each site is the best decision for accuracy only.

        Args:
            measure (str or array, default "iou"): "iou" or "dice" for the mean over labels, "accuracy", or costs
                (L, L) of the true label (row) and the decided label (column).  "boundary_iou", the mean IoU of pixels
                near boundaries, needs an image and ``keep_samples=True``.
            over (str or Decider, default "image"): Set of images over which "iou" and "dice" are computed.  "image":
                each image, with the mean over the labels that occur there.  "dataset": all images of the batch
                together.  A :class:`Decider`: the data set whose statistics it holds.
            abstain (float, default None): Largest expected fraction of wrong labels.  The fewest sites are left out,
                with label -1, such that the rest has at most this risk: in every image, or in the whole batch with
                ``over="dataset"``.  It may leave out all sites.
            guarantee (Refiner or Guarantee, default None): With ``measure="accuracy"`` and ``abstain``, a calibrated
                refiner, as in :meth:`locpmap.Measurement.interval`.  On average over new images, at most the fraction
                ``abstain`` of all sites of an image get a wrong label, whether or not the model is right.

        Returns:
            Decision: ``labels``, the ``expected`` value, the ``risk`` and the fraction ``kept``.

        Raises:
            InputError: If the result has no probabilities, or no samples for "boundary_iou", or an argument is not
                valid.

        Notes:
            Let J_k be the expected IoU and U_k the expected union of label k.  Deciding one more site as k gains
            ``(p_ik (1 + J_k) - J_k) / U_k`` to first order.  The decision is the argmax of the gains, repeated until
            it is stable.  The most probable labels are kept unless the expected gain is at least 0.001.

            A decided label that does not occur has IoU 0, so a label is decided only if that raises the expected mean.
            The probability that a label occurs in an image is estimated as if its uncertain sites were one region: as
            the median of its probability, weighted by that probability.  On a graph, sites are independent.  A label
            occurs in a data set if it occurs in one of its images.

            With many independent uncertain regions, a decision can be worse than the most probable labels.  Samples
            (``keep_samples=True``) avoid this: the most probable labels are then kept unless the decision has a better
            mean over the samples of the image.  ``expected`` is that mean.

            "boundary_iou" depends on neighbouring sites.  The decision is the sample, or one of three other maps, with
            the best mean over the samples.

        Example:
            >>> logits = np.array([[0.2, 0.0], [2.0, 0.0], [4.0, 0.0], [4.0, 0.0]])  # label 1 never wins
            >>> result = lp.infer(lp.Potentials.graph(logits, [[0, 1]], 0.0), "exact")
            >>> result.labels.tolist(), result.decide([[0, 1], [5, 0]]).labels.tolist()
            ([0, 0, 0, 0], [1, 0, 0, 0])

        See Also:
            :class:`Decider`, :func:`locpmap.measure`.
        """
        if self.probability is None:
            raise InputError(no_probability(self.method))
        options: dict[str, Any] = {"samples": self.samples, "batched": self.potentials.batched}
        if guarantee is not None:
            if abstain is None or not isinstance(measure, str) or measure != "accuracy":
                raise InputError('guarantee is given, expected measure="accuracy" and a number as abstain with it')
            options["least"] = guarantee_of(guarantee, self.source).abstention_threshold(fraction("abstain", abstain))
        return decide(self.labels, self.probability, measure, over=over, abstain=abstain, **options)

    def measure(self, quantity: str | Callable[[Any], Any], **options: Any) -> Any:
        """Measure a quantity of the label map, with its uncertainty.

        New samples are drawn from the refiner's model, with its learned error fields. The result must be one of
        :func:`locpmap.refine`; for others see :func:`locpmap.measure`.

        Args:
            quantity (str or callable): A name such as "area" or "components", or a function of a label map, as in
                :func:`locpmap.measure`.
            **options: ``decoder`` (default: LocPMAP with 200 samples) and other options of :func:`locpmap.measure`,
                such as ``seed`` and ``names``.

        Returns:
            Measurement: As from :meth:`locpmap.Refiner.measure`.

        Raises:
            InputError: If the result is not one of a refiner, or an option is not valid.

        Example:
            >>> area = lp.refine(None, 3 * np.eye(2)[np.tri(32, dtype=int)]).measure("area", seed=0)
            >>> low, high = area.interval(0.9)
            >>> area.values.shape, low.shape
            ((200, 2), (2,))
        """
        if self.meter is None:
            raise InputError(
                f"the result of {self.method} has no refiner to draw samples with: use lp.measure(result.potentials,"
                " ..), or lp.measure(result, ..) with keep_samples=True"
            )
        return self.meter(quantity, **options)

    def label_sets(self, level: float = 0.9, *, guarantee: Any = None) -> Array:
        """Return sets of labels that contain the true label with a probability of ``level``.

        Args:
            level (float, default 0.9): Between 0 and 1. Without a guarantee, a set holds the fewest labels whose
                probabilities have at least this sum.
            guarantee (Refiner or Guarantee, default None): A calibrated refiner, as in
                :meth:`locpmap.Measurement.interval`. A set then holds the most probable label and all labels above a
                threshold. On average over new images, at least ``level`` of the pixels of an image have their true
                label in their set.

        Returns:
            array: Booleans of the shape of ``probability``, as a NumPy array. Sets of masked sites are empty.

        Raises:
            InputError: If there are no probabilities, or the guarantee has too few images for the level.

        Example:
            >>> unary = np.log([[[0.6, 0.3, 0.1], [0.95, 0.03, 0.02]]])
            >>> lp.infer(lp.Potentials.grid(unary, 0.0), "exact").label_sets(0.9).tolist()
            [[[True, True, False], [True, False, False]]]
        """
        if self.probability is None:
            raise InputError(no_probability(self.method))
        level = fraction("level", level)
        p = to_numpy(self.probability, "probability")
        if guarantee is None:
            found = label_sets(p, level)
        else:
            found = p >= guarantee_of(guarantee, self.source).set_threshold(level)
            np.put_along_axis(found, p.argmax(axis=-1, keepdims=True), True, axis=-1)
        return found & (to_numpy(self.labels, "labels") >= 0)[..., None]


def kept_samples(result: Result) -> Any:
    """Return the samples of a result; a result without samples raises an `InputError`."""
    if result.samples is None:
        raise InputError(
            f"the result of {result.method} has no samples, expected one with them: pass keep_samples=True"
        )
    return result.samples


def variance_of(probability: Any) -> Any:
    """Return p(1 - p), of the same shape."""
    return probability * (1 - probability)


def entropy_of(probability: Any) -> Any:
    """Return -Σ p log p over the last axis, in nats.  For a tensor on the CPU, return a NumPy array."""
    p = probability if on_gpu(probability) else np.asarray(probability)
    xp = namespace(p)
    terms = p * xp.log(xp.where(p > 0, p, 1))
    return (0 - terms.sum(axis=-1)).clip(0)  # 0 - x instead of -x avoids -0.0
