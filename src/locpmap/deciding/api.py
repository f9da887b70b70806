"""`decide`: labels with the best expected value of a measure."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from locpmap.arrays import Array, Restore, is_tensor, namespace, place_like
from locpmap.deciding.decider import Decider
from locpmap.deciding.decision import Decision, abstain_from, own_probability
from locpmap.deciding.inputs import MEASURES, Sites, as_float, as_labels, cost_of, overlap_of, sites_of, unknown_measure
from locpmap.deciding.measures import OVERLAPS
from locpmap.deciding.sampled import best_decision, best_map
from locpmap.deciding.solving import Rule, argmax_of, solve
from locpmap.deciding.statistics import affine_argmax
from locpmap.errors import InputError, InputTypeError, unknown, within

OVER = ("image", "dataset")
COST = "cost"


def decide(
    labels: Any,
    probability: Any,
    measure: Any = "iou",
    *,
    over: Any = "image",
    abstain: float | None = None,
    least: float | None = None,
    samples: Any = None,
    batched: bool = False,
) -> Decision:
    """Decide labels from the arrays of a result, as :meth:`locpmap.Result.decide` does.

    Args:
        labels (array): Labels (..), -1 at masked sites.  They are a candidate of "boundary_iou".
        probability (array): Probabilities (.., L).
        measure (str or array, default "iou"): As in :meth:`locpmap.Result.decide`.
        over (str or Decider, default "image"): As in :meth:`locpmap.Result.decide`.
        abstain (float, default None): As in :meth:`locpmap.Result.decide`.
        least (float, default None): Abstain where the label is less probable, so that ``abstain`` is guaranteed.
        samples (array, default None): Sampled label maps (M, ..), for "boundary_iou", and for "iou" and "dice" over an
            image.
        batched (bool, default False): Whether the first axis of ``labels`` is a batch axis.

    Returns:
        Decision: The decided labels.
    """
    p, given = as_float(probability), as_labels(labels)
    name = _checked(measure, over, abstain, int(p.shape[-1]))
    p, maps = (p, given) if batched else (p[None], given[None])
    sites = [sites_of(image, there) for image, there in zip(p, maps >= 0, strict=True)]
    if name in OVERLAPS:
        decided, expected = _by_overlap(name, sites, over, _of_images(samples, batched))
    elif name == "boundary_iou":
        decided, expected = _by_samples(sites, maps, _of_images(samples, batched))
    elif name == "accuracy":
        decided, expected = _by_accuracy(sites)
    else:
        decided, expected = _by_cost(sites, cost_of(measure, p.shape[-1]))
    parts = _pooled if isinstance(over, str) and over == "dataset" else _each
    decided, risk, kept = parts(sites, decided, abstain, least)
    shape = tuple(given.shape[1:] if batched else given.shape)
    whole = [one.spread(found, shape) for one, found in zip(sites, decided, strict=True)]
    stacked = namespace(whole[0]).stack(whole) if batched else whole[0]

    def number(value: Any) -> Any:
        return value if batched or not np.ndim(value) else float(value[0])

    promised = None if least is None else abstain
    return Decision(Restore.like(labels)(stacked), number(expected), number(risk), number(kept), name, promised)


def _checked(measure: Any, over: Any, abstain: Any, n_labels: int) -> str:
    """Return the name of the measure, or raise if an argument is not valid."""
    if abstain is not None:
        within("abstain", abstain, 0, 1)
    if isinstance(over, Decider):
        overlap_of(measure)
        if measure != over.measure:
            raise InputError(f"measure is {measure!r}, expected {over.measure!r} like the decider in over")
        if len(over.rule.slope) != n_labels:
            raise InputError(f"over has {len(over.rule.slope)} labels, expected {n_labels} like the probabilities")
    elif not isinstance(over, str):
        raise InputTypeError(f"over is a {type(over).__name__}, expected 'image', 'dataset' or a Decider")
    elif over not in OVER:
        raise unknown("over", over, OVER)
    if not isinstance(measure, str):
        cost_of(measure, n_labels)
        return COST
    if measure not in MEASURES:
        raise unknown_measure("measure", measure)
    return measure


def _of_images(samples: Any, batched: bool) -> Any:
    """Return samples (M, N, ..) of N images, or None."""
    return samples if batched or samples is None else samples[:, None]


def _by_overlap(name: str, sites: Sequence[Sites], over: Any, samples: Any) -> tuple[list[Any], Any]:
    """Return labels (S,) of each image, and the expected overlap: (N,) over images, or one over a data set."""
    if isinstance(over, str) and over == "image":
        found = [_by_image(name, one, None if samples is None else samples[:, n]) for n, one in enumerate(sites)]
        labels, expected = zip(*found, strict=True)
        return list(labels), np.array(expected)
    rule = (over if isinstance(over, Decider) else Decider(name).add_sites(sites)).rule
    return [_labels(rule, one.rows) for one in sites], rule.expected


def _by_image(name: str, one: Sites, samples: Any) -> tuple[Any, float]:
    """Return the labels (S,) of an image, and their expected overlap.

    With samples, the most probable labels are the decision unless that of the rule has a better mean over samples.
    """
    rule = solve(OVERLAPS[name], one.rows, one.masses())
    labels = _labels(rule, one.rows)
    if samples is None:
        return labels, rule.expected
    return best_decision(name, [_labels(argmax_of(one.rows.shape[1]), one.rows), labels], one, samples)


def _labels(rule: Rule, rows: Any) -> Any:
    return affine_argmax(rows, rule.slope, rule.offset).labels


def _by_accuracy(sites: Sequence[Sites]) -> tuple[list[Any], Array]:
    """Return the most probable labels (S,) of each image, and their mean probability (N,)."""
    rule = argmax_of(sites[0].rows.shape[1])
    found = [affine_argmax(one.rows, rule.slope, rule.offset) for one in sites]
    return [one.labels for one in found], np.array([one.inside.sum() / max(1, len(one.labels)) for one in found])


def _by_cost(sites: Sequence[Sites], cost: Array) -> tuple[list[Any], Array]:
    """Return labels (S,) of the lowest expected cost in each image, and the mean cost (N,)."""
    decided, expected = [], []
    for rows, *_ in sites:
        costs = rows @ (place_like(rows, cost).to(rows.dtype) if is_tensor(rows) else cost.astype(rows.dtype))
        found = costs.argmin(1)
        decided.append(found)
        expected.append(float(own_probability(costs, found).mean()) if len(rows) else 0.0)
    return decided, np.array(expected)


def _by_samples(sites: Sequence[Sites], maps: Any, samples: Any) -> tuple[list[Any], Array]:
    """Return the labels (S,) of the map with the best mean boundary IoU over the samples of each image."""
    if samples is None:
        raise InputError(
            "the result has no samples, expected one with them: pass keep_samples=True to lp.refine or lp.infer"
        )
    if maps.ndim != 3:
        raise InputError(f"labels has shape {tuple(maps.shape[1:])}, expected images (H, W) for 'boundary_iou'")
    drawn = as_labels(samples)
    decided, expected = [], []
    for n, one in enumerate(sites):
        n_labels, shape = one.rows.shape[1], tuple(maps.shape[1:])
        rules = argmax_of(n_labels), solve(OVERLAPS["iou"], one.rows, one.masses())
        candidates = [maps[n], *(one.spread(_labels(rule, one.rows), shape) for rule in rules)]
        best, value = best_map(candidates, drawn[:, n], n_labels)
        decided.append(best.reshape(-1) if one.there is None else best[one.there])
        expected.append(value)
    return decided, np.array(expected)


def _each(
    sites: Sequence[Sites], decided: Sequence[Any], abstain: float | None, least: float | None
) -> tuple[list[Any], Array, Array]:
    """Abstain in every image; return labels, risks and kept fractions."""
    found = [
        abstain_from(labels, own_probability(one.rows, labels), abstain, least)
        for one, labels in zip(sites, decided, strict=True)
    ]
    labels, risks, kept = zip(*found, strict=True)
    return list(labels), np.array(risks), np.array(kept)


def _pooled(
    sites: Sequence[Sites], decided: Sequence[Any], abstain: float | None, least: float | None
) -> tuple[list[Any], float, float]:
    """Abstain in all images together."""
    xp = namespace(decided[0])
    own = [own_probability(one.rows, labels) for one, labels in zip(sites, decided, strict=True)]
    labels, risk, kept = abstain_from(xp.concatenate(list(decided)), xp.concatenate(own), abstain, least)
    ends = np.cumsum([len(part) for part in decided]).tolist()
    return [labels[end - len(part) : end] for end, part in zip(ends, decided, strict=True)], risk, kept
