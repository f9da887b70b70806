"""The Potts model of a refiner, built from an image, scores and weights: resized scores, and coupled similar pixels."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from locpmap.arrays import cast, is_tensor, namespace, place_like
from locpmap.errors import InputError, within
from locpmap.graphs.grid import ends_of
from locpmap.potentials import Potentials
from locpmap.refining.adapting import KEPT, UNCHANGED, Adaptation, Rule, adapted_to, per_image
from locpmap.refining.guiding import guided_log_mean
from locpmap.refining.reading import Given, read_mask
from locpmap.refining.weights import STEPS, VOLUME_STEPS, Adjustment, Weights

AS_LEARNED = Adjustment()
LEAST_MEAN = 1e-30  # of squared colour distances, so that those of an image of one colour can be divided by it


class Whole(NamedTuple):
    """Statistics of a whole image, used when a model is built for a window of it."""

    squares: tuple[float, ...]  # the mean squared colour distance of neighbours, per step
    variance: float  # of the colours
    adaptation: Adaptation = UNCHANGED


class Composed(NamedTuple):
    """The model of an image or a batch, and how it was adapted."""

    potentials: Potentials
    adaptation: Adaptation
    network: Any  # (N, H, W) int16 labels of the network, at the size of the image; None for a window


def full_size(given: Given) -> Any:
    """Resize the scores to the size of the image, (N, H, W, K) or (N, D, H, W, K)."""
    small = given.scores.shape[1:-1] != given.shape
    if small and float(given.scores.min()) == -np.inf:
        raise InputError("logits holds -inf and is smaller than the image, expected finite numbers to resize")
    return resize(given.scores, *given.shape)


def compose(
    given: Given,
    weights: Weights,
    adjustment: Adjustment = AS_LEARNED,
    *,
    mask: Any = None,
    stride: float | None = None,
    whole: Whole | None = None,
) -> Composed:
    """Build the Potts model documented in :class:`locpmap.refining.Prepared`."""
    strength, smoothing, temperature = adjustment.strength, adjustment.smoothing, adjustment.temperature
    if stride is not None:
        within("stride", stride, 1)
    stride = given.stride if stride is None else stride
    pairwise = weights.at(stride)[3]
    own, guided = factors(weights, adjustment, stride)
    rule = weights.rule_at(stride) if given.image is not None else Rule(0.0, 0.0)
    ignored = read_mask(mask, given)
    scores = full_size(given)
    network = None if whole is not None else cast(scores.argmax(-1), "int16")
    with np.errstate(over="ignore"):  # the smallest number of a type, used as a mask, becomes -inf
        unary = weights.scaled(scores, stride)
    hidden = None if ignored is None else place_like(unary, np.broadcast_to(ignored, unary.shape[:-1]))
    steps: Sequence[tuple[int, ...]] = STEPS
    similar = weights.typical
    if given.spacing is not None:  # learned weights of the steps differ little, and those of volumes do not
        steps, similar = VOLUME_STEPS, np.repeat(weights.typical.mean(), 3)
        pairwise = np.repeat(pairwise.mean(axis=0, keepdims=True), 3, axis=0)
    adaptation = whole.adaptation if whole is not None else KEPT if rule.threshold else UNCHANGED
    if given.image is not None and guided > 0:
        variance = None if whole is None else whole.variance
        surroundings = guided_log_mean(unary, given.image, hidden, variance, given.spacing)
        if rule.threshold and whole is None:
            adaptation = adapted_to(unary, surroundings, hidden, own, guided, rule)
        unary = _joined(unary, surroundings, own, guided, adaptation)
    squares = (None,) * len(steps) if whole is None else whole.squares
    adds, edges = smoothing / temperature, []  # edges after the unaries, which take longer on a GPU
    for step, row, typical, mean in zip(steps, strength * pairwise / temperature, similar, squares, strict=True):
        coloured = given.image is not None and (adds or row[1] or rule.threshold)
        alike = similarity(given.image, step, mean, hidden) if coloured else float(typical)
        edges.append(_edges(alike, row, adds, adaptation.strength))
    if temperature != 1:
        unary = unary * np.float32(1 / temperature)
    if not given.batched:
        unary, edges = unary[0], [edge if isinstance(edge, float) else edge[0] for edge in edges]
    if given.spacing is None:
        potentials = Potentials.grid(unary, tuple(edges), mask=ignored)
    else:
        spacing = given.spacing if given.has_unit else None
        potentials = Potentials.volume(unary, tuple(edges), spacing=spacing, mask=ignored)
    # A copy would compute again what the checks of the scores and weights found.
    same = potentials.restore == given.restore
    return Composed(potentials if same else replace(potentials, restore=given.restore), adaptation, network)


def factors(weights: Weights, adjustment: Adjustment, stride: float) -> tuple[float, float]:
    """Return the factors of the scaled scores and of the guided log mean, after the adjustment."""
    _, own, guided, _ = weights.at(stride)
    return max(0.0, 1 + adjustment.strength * (own - 1)), adjustment.strength * guided


def _joined(scores: Any, surroundings: Any, own: float, guided: float, adaptation: Adaptation) -> Any:
    """Return ``own · scores + guided · surroundings``, adapted; scores of -inf stay -inf."""
    if adaptation.changes:
        part, factor = (per_image(one, scores.ndim) for one in adaptation)
        surroundings *= factor * part * np.float32(guided)
        surroundings += scores * (factor * (1 + part * np.float32(max(own, 1e-6) - 1)))
        return surroundings
    surroundings *= guided
    if own == 0:
        return namespace(scores).where(scores == -np.inf, scores, surroundings)
    surroundings += scores * np.float32(own)
    return surroundings


def _edges(alike: Any, learned: Any, smoothing: float, strength: Any) -> Any:
    """Return the Potts weights of one step: (N, h, w), or one number for all edges."""
    constant, coloured = (float(weight) for weight in learned)
    if isinstance(strength, float) and strength == 1:
        coloured += smoothing
        if isinstance(alike, float):
            return constant + coloured * alike
        return alike * np.float32(coloured) + np.float32(constant)
    edges = (alike * np.float32(coloured) + np.float32(constant)) * per_image(strength, np.ndim(alike))
    return edges + alike * np.float32(smoothing) if smoothing else edges


def resize(scores: Any, *shape: int) -> Any:
    """Resize scores (N, h, w, K) to (N, H, W, K), where H >= h and W >= w; O(N · H · W · K). Volumes have another axis.

    Values are interpolated between pixel centres and constant beyond the outermost centres, as in torch's
    ``interpolate(.., mode="bilinear", align_corners=False)``.

    >>> from locpmap.refining import resize
    >>> resize(np.array([0.0, 1.0]).reshape(1, 1, 2, 1), 1, 4).ravel().tolist()
    [0.0, 0.25, 0.75, 1.0]
    """
    for axis, length in enumerate(shape, start=1):
        scores = _resize_axis(scores, axis, length)
    return scores


def _resize_axis(scores: Any, axis: int, length: int) -> Any:
    """Resize one axis to a new length."""
    n_given = scores.shape[axis]
    if n_given == length:
        return scores
    place = np.clip((np.arange(length) + 0.5) * n_given / length - 0.5, 0, n_given - 1)
    low = np.minimum(place.astype(np.int64), max(n_given - 2, 0))
    part = (place - low).astype(np.float32).reshape((-1, *[1] * (scores.ndim - 1 - axis)))
    below, above, share = (place_like(scores, x) for x in (low, np.minimum(low + 1, n_given - 1), part))
    first = _take(scores, below, axis)
    found = _take(scores, above, axis)
    found -= first
    found *= share
    found += first
    return found


def _take(scores: Any, index: Any, axis: int) -> Any:
    """Return a copy of the indexed rows or columns in C order, which plain indexing does not ensure."""
    return scores.index_select(axis, index) if is_tensor(scores) else np.take(scores, index, axis)


def similarity(image: Any, step: tuple[int, ...], mean: float | None = None, masked: Any = None) -> Any:
    """Compute ``exp(-d² / 2⟨d²⟩)``, where d is the colour distance between each pixel and the pixel a step away.

    The mean ⟨d²⟩ is over the edges of one image and one step, so the units of the image do not matter. In an image of
    one colour the similarity is 1. Cost: O(N · C · H · W).

    Args:
        image: Colours, (N, C, H, W) or (N, C, D, H, W).
        step: Rows down and columns right, after the planes of a volume.
        mean: ⟨d²⟩ of the whole image, where ``image`` is a window of it.
        masked: Booleans (N, H, W), True at pixels whose edges are excluded from the mean, or None.

    Returns:
        One value per edge, (N, h, w).

    >>> similarity(np.array([[[[0.0, 0.0, 5.0]]]]), (0, 1)).round(4).tolist()
    [[[1.0, 0.3679]]]
    """
    xp = namespace(image)
    first, second = ((..., *end) for end in ends_of(step, *image.shape[2:]))
    squares = xp.square(image[first] - image[second]).sum(1)
    if 0 in squares.shape:
        return squares
    counted = None if masked is None else ~(masked[first] | masked[second])
    for n, one in enumerate(squares):  # image by image, so that rounding does not depend on the batch
        typical: Any = _mean(one if counted is None else one[counted[n]]) if mean is None else mean
        if is_tensor(typical):  # not read, so that the host does not wait for the device
            one /= -2 * typical.clip(LEAST_MEAN)
        elif typical > 0:
            one *= np.float32(-0.5 / typical)
    return xp.exp(squares, out=squares)


def _mean(squares: Any) -> Any:
    """Return the mean, 0 for an empty array; that of a tensor stays on its device."""
    if 0 in squares.shape:
        return 0.0
    return squares.mean() if is_tensor(squares) else float(squares.mean())
