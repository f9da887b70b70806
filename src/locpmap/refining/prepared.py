"""Model that a refiner builds of one image, to refine and measure it repeatedly, and its samples."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Self

from locpmap.arrays import Array, cast
from locpmap.errors import InputError, one_of, true_or_false
from locpmap.graphs import Box
from locpmap.guarantees import Source
from locpmap.inference import ErrorFields, LocPMAP, infer, samples
from locpmap.inference.api import configure
from locpmap.inference.decoder import Decoder
from locpmap.measuring import Measurement, measure
from locpmap.potentials import Potentials
from locpmap.refining.adapting import per_image
from locpmap.refining.model import AS_LEARNED, compose
from locpmap.refining.presence import predicted_fractions, presence_of
from locpmap.refining.reading import Given
from locpmap.refining.scoring import softmax
from locpmap.refining.weights import CELL, Adjustment, Errors, Weights
from locpmap.result import Origin, Result

REFINING = LocPMAP(start="perturbed")
MEASURING = LocPMAP(n_samples=200, start="perturbed")


def errors_of(weights: Weights, adjustment: Adjustment, stride: float) -> Errors:
    """Return the parameters of samples at a stride; the temperature divides errors like all scores."""
    errors = weights.errors_at(stride)
    sizes = tuple(size / adjustment.temperature for size in errors.sizes)
    votes = min(1.0, adjustment.strength * errors.votes)
    return errors._replace(sizes=sizes, shared=errors.shared / adjustment.temperature, votes=votes)


def fields_of(errors: Errors, side: int, fractions: Callable[[], Array | None]) -> ErrorFields:
    """Return the learned error fields of an image whose larger side is ``side``.

    ``fractions`` returns the predicted area fractions (.., L), which determine the presence of labels. Where they are
    None or NaN, because a score is -inf, all labels are present. ``fractions`` is called only if presence
    was learned.
    """
    found = fractions() if errors.half > 0 else None
    presence = None if found is None else presence_of(found, errors.half, errors.steepness)
    return ErrorFields(errors.sizes, CELL, errors.shared, presence).within(side)


def with_errors(decoder: LocPMAP, errors: Errors, fields: Callable[[], ErrorFields]) -> LocPMAP:
    """Return the decoder with the learned error fields and noise, unless it has fields of its own."""
    if decoder.fields is not None:
        return decoder
    return replace(decoder, fields=fields(), temperature=decoder.temperature * errors.noise)


def averaged(potentials: Potentials, result: Result, decoder: LocPMAP, votes: Any, marginals: Any = None) -> Result:
    """Return the result with the labels and probabilities of a refiner, given the fractions of its samples.

    The samples are label maps without calibrated marginals; the softmax of the unaries is calibrated. The probability
    is their weighted mean, with weight ``votes`` for the fractions. Its argmax would have specks wherever two labels
    are about equally probable. The labels are therefore those of a climb of the decoder without noise and errors,
    which starts at the best unary scores. ``votes`` may be one number per image, (N,). ``marginals`` is the softmax of
    the unaries, if it is known.
    """
    marginals = softmax(potentials.unary) if marginals is None else marginals
    probability = result.probability
    probability *= per_image(votes if isinstance(votes, float) else potentials.restore(votes), probability.ndim)
    probability += potentials.restore(potentials.unflatten(marginals * per_image(1 - votes, marginals.ndim)))
    ascent = replace(decoder, n_samples=1, start="perturbed", temperature=0.0, fields=None)
    labels = cast(next(samples(potentials, ascent, device=result.device)), "int64")
    if potentials.masked is not None:
        probability[labels < 0] = 0
    return replace(result, probability=probability, labels=labels)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A refiner's model of an image or a batch, returned by :meth:`locpmap.Refiner.prepare`.

    Attributes:
        potentials (Potentials): The Potts model, for any decoder of :func:`locpmap.infer`.
        errors (Errors): The learned parameters of samples at the stride of the logits.
        source (Source or None): The refiner and the kind of its input, by which its guarantee recognises results.
        origin (Origin): The network's labels, and whether they are kept, for :attr:`locpmap.Result.n_changed`.

    Notes:
        Let z be the network's scores, resized to the image and multiplied by the learned scale. If a fit found that it
        helps (:meth:`Refiner.fit`), the best score of the pixel is then subtracted, and each label has its own factor
        and offset. Let g be the logarithm of the mean softmax at nearby pixels of similar colour
        (:func:`locpmap.refining.guided_log_mean`). The model of a label map y is ``p(y) ∝ exp(θ(y) / temperature)``
        with ::

            u = f · ((1 + k · (o - 1)) · z + k · strength · guided · g)   (without an image: u = z, k = 1)
            o = max(0, 1 + strength · (own - 1))
            θ(y) = Σ_i u[i, y_i] + Σ_(i,j) w_ij · [y_i = y_j]
            w_ij = k · strength · (a + b · s_ij) + smoothing · s_ij

        The sums are over pixels i and pairs of 4-neighbours (i, j), and s_ij is the similarity of their colours, from
        0 to 1. Without an image, s_ij is the mean similarity in the training images. The scale and the weights own,
        guided, a and b are learned and depend on the stride: they are interpolated between the strides of the
        training data, linearly in log(stride), and constant outside. ``strength``, ``smoothing`` and ``temperature``
        are set by :meth:`locpmap.Refiner.adjusted`.

        The factor k, from 0 to 1, is computed for every image without labels, at 64 × 64 pixels or fewer. It grows with
        the agreement of softmax(z) and exp(g). Below a learned threshold of the agreement it is 0, and the network's
        prediction is unchanged. The factor f keeps the mean confidence of softmax(u) close to that of softmax(z),
        raised by a learned part of ``k · (1 - confidence)``. Files of earlier versions have k = f = 1.

        LocPMAP draws whole label maps (samples) of this model, with Gumbel noise and error fields
        (:class:`locpmap.ErrorFields`) of learned sizes. :meth:`measure` computes quantities of the samples;
        :meth:`refine` returns

        - probabilities: a weighted mean of the fraction of samples with the label (with a learned weight, times k) and
          of the softmax of u. The fractions alone are less calibrated; ``probability="votes"`` returns them and their
          argmax.
        - labels: the local maximum of θ that a climb reaches from the best unary labels, without noise and error
          fields. They have fewer specks than the argmax of the probabilities.

    Example:
        >>> prepared = lp.Refiner.load().prepare(None, 3 * np.eye(2)[np.tri(32, dtype=int)])
        >>> prepared.potentials.structure.shape, prepared.errors.shared > 0
        ((32, 32), True)

    See Also:
        :func:`locpmap.refine`, :class:`locpmap.Refiner`
    """

    potentials: Potentials
    errors: Errors
    origin: Origin
    source: Source | None = None

    @classmethod
    def of(
        cls,
        given: Given,
        weights: Weights,
        adjustment: Adjustment = AS_LEARNED,
        *,
        mask: Any = None,
        stride: float | None = None,
    ) -> Self:
        """Build the model with :func:`locpmap.refining.model.compose`."""
        potentials, adaptation, network = compose(given, weights, adjustment, mask=mask, stride=stride)
        stride = given.stride if stride is None else stride
        errors = errors_of(weights, adjustment, stride)
        errors = errors._replace(votes=errors.votes * adaptation.strength)
        origin = Origin(potentials.restore(network if given.batched else network[0]), adaptation.strength)
        sides, kind = given.spacing or (), (given.scores.shape[-1], stride, given.image is not None)
        source = Source(weights.identity(adjustment), *kind, sides, sides)
        return cls(potentials, errors, origin, source)

    def refine(
        self,
        decoder: str | Decoder | None = None,
        *,
        keep_samples: bool = False,
        seed: int = 0,
        device: str = "auto",
        progress: bool | Callable[[int, int], None] | None = None,
    ) -> Result:
        """Decode the model.

        Args:
            decoder (str or Decoder, default None): As in :func:`locpmap.refine`.
            keep_samples (bool, default False): As in :func:`locpmap.refine`.
            seed (int, default 0): As in :func:`locpmap.refine`.
            device (str, default "auto"): As in :func:`locpmap.refine`.
            progress (bool or callable, default None): As in :func:`locpmap.refine`.

        Returns:
            Result: Labels, probabilities, variance and entropy, as from :func:`locpmap.refine`.
        """
        chosen = REFINING if decoder is None else configure(decoder, {})
        if true_or_false("keep_samples", keep_samples):
            if "keep_samples" not in vars(chosen):
                raise InputError(
                    f"decoder is {chosen.name}, which keeps no samples: expected one that does, like locpmap"
                )
            chosen = replace(chosen, keep_samples=True)  # type: ignore[type-var]
        return self.named(self._decoded(chosen, seed=seed, device=device, progress=progress), chosen)

    def named(self, result: Result, decoder: Decoder) -> Result:
        """Return a result with what :attr:`changes` and :meth:`measure` need, and its source if a guarantee applies."""
        source, meter = self.source if as_calibrated(decoder) else None, partial(measured, replace(self))
        return replace(result, origin=self.origin, source=source, meter=meter)

    def _decoded(self, decoder: Decoder, **how: Any) -> Result:
        if not isinstance(decoder, LocPMAP):
            return infer(self.potentials, decoder, **how)
        if any(self.errors.sizes):
            result = infer(self.potentials, replace(self.sampler(decoder), probability="votes"), **how)
            if decoder.probability == "votes":
                return result
            return averaged(self.potentials, result, decoder, self.errors.votes, self.marginals)
        conditional = decoder.probability == "conditional" and not decoder.keep_samples and decoder.fields is None
        if conditional and not self.potentials.pairwise.coupled:  # one sample gives the same result as many
            decoder = replace(decoder, n_samples=1, temperature=0.0)
        return infer(self.potentials, decoder, **how)

    def sampler(self, decoder: LocPMAP) -> LocPMAP:
        """Return the decoder with the learned error fields and noise, unless it has fields of its own."""
        return with_errors(decoder, self.errors, lambda: self.fields)

    @cached_property
    def fields(self) -> ErrorFields:
        """The learned error fields, as `fields_of` returns them."""
        structure = self.potentials.structure
        assert isinstance(structure, Box)
        fractions = partial(predicted_fractions, self.potentials, self.marginals)
        return fields_of(self.errors, max(structure.shape), fractions)

    @cached_property
    def marginals(self) -> Any:
        """The softmax of the unaries, (N, S, L)."""
        return softmax(self.potentials.unary)

    def measure(
        self, quantity: str | Callable[[Any], Any], decoder: LocPMAP | None = None, *, seed: int = 0, **options: Any
    ) -> Measurement:
        """Measure a quantity in samples with the learned error fields.

        Args:
            quantity (str or callable): As in :func:`locpmap.measure`.
            decoder (LocPMAP, default None): The sampler. The default draws 200 samples from a perturbed start.
            seed (int, default 0): Seed of the random generator.
            **options: Other options of :func:`locpmap.measure`.

        Returns:
            Measurement: Mean, standard deviation and quantiles of the quantity.
        """
        for option in options:
            one_of("option of measure", option, ("decoder", *(measure.__kwdefaults__ or ())))
        chosen = decoder or MEASURING
        sampler = self.sampler(chosen) if isinstance(chosen, LocPMAP) else chosen
        found = measure(self.potentials, quantity, sampler, seed=seed, **options)
        return replace(found, source=self.source_of_samples(chosen))

    def source_of_samples(self, decoder: LocPMAP) -> Source | None:
        """Return the source if a decoder draws samples as in the calibration; their number may differ."""
        return self.source if as_calibrated(replace(decoder, n_samples=REFINING.n_samples)) else None


def measured(prepared: Prepared, quantity: str | Callable[[Any], Any], **options: Any) -> Measurement:
    """Measure by a copy of the model: the model itself, which a result keeps, caches no arrays."""
    return replace(prepared).measure(quantity, **options)


def as_calibrated(decoder: Decoder) -> bool:
    """Return whether a decoder draws the samples with which guarantees are calibrated: the default one."""
    if not isinstance(decoder, LocPMAP) or not isinstance(decoder.start, str):
        return False
    return {**vars(decoder), "keep_samples": False} == vars(REFINING)
