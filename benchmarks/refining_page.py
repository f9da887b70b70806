"""The record of `benchmarks.refining measure` as a page."""

from collections.abc import Mapping
from typing import Any

from locpmap.refining.weights import Weights

TITLES = {"1": "Sharp logits (stride 1)", "8": "Coarse logits, stride 8", "16": "Coarse logits, stride 16"}
BASE = "network, temperature scaled"
STRIDE = 8  # of the logits in the table of absent labels
LESS_IS_BETTER = ("ECE", "NLL")

INTRODUCTION = """\
# Refining segmentations

```python
import locpmap as lp

result = lp.refine(image, logits)  # (H, W, C), and (H, W, K) or (K, H, W), also smaller than the image
result.labels, result.probability, result.variance, result.entropy
```

`lp.refine` resizes a network's scores and scales them, asks what the network says of places nearby that look alike
(the mean softmax of the pixel and of others 8 to 64 away, weighted by their colours), adds the logarithm of that, and
decodes a Potts model of the pixels by LocPMAP. All weights of the shipped model were learned, on what a network says of
scenes that it never saw; `lp.Refiner.load().details` says how. For your own network:

```python
refiner = lp.Refiner.fit(images, their_logits, their_labels, progress=True)  # lists; not what the network learned from
print(refiner.report)  # cross-validated: whether refinement helps these data at all
refiner.save("mine.safetensors")
lp.refine(image, logits, "mine.safetensors")
```

If you have resized coarse logits already, say `stride=8`. `strength` multiplies all that was learned of surroundings
and neighbours (0 leaves the softmax of the scaled scores); `smoothing` lets neighbours of like colours agree on top of
that, as the slider of `locpmap view` does, and was not learned; `temperature` above 1 makes all less sure. For labels
and error bars at the price of one model, and for other decoders:

```python
prepared = lp.Refiner.load().prepare(image, logits, smoothing=0.5)
prepared.refine(), prepared.measure("area"), lp.infer(prepared.potentials, "mean_field")
```"""


def page_of(record: Mapping[str, Any], weights: Weights) -> str:
    """Markdown, from the record and the shipped weights."""
    n = record["scenes"]
    parts = [
        INTRODUCTION,
        *_weights(weights),
        "## What it is worth",
        f"Stanford Background, {n['test']} test scenes, by a network that saw neither these nor the {n['held_out']}"
        " held-out scenes that weights, temperatures and the settings of pydensecrf2 were chosen on. Coarse logits are"
        " means of the network's over cells of 8 × 8 and 16 × 16 pixels, resized bilinearly for all but `lp.refine`,"
        " which is given them as they are. In brackets: the difference from the scaled network ± its standard error"
        " (jackknife over scenes), bold where it is better by more than two of them, † where it is worse by as much.",
    ]
    for stride, table in record["strides"].items():
        parts += [f"### {TITLES[stride]}", _table(table["rows"])]
    parts += [
        _rivals(record),
        _left_out(record),
        *_speed(record),
        *_areas(record),
        *_absent(record),
        *_silhouettes(record),
        _origin(record),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _weights(weights: Weights) -> list[str]:
    heads = ("stride", "scale of the scores", "own", "like places", "largest coupling", "shared error", "presence")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    couplings = weights.pairwise.sum(axis=-1).max(axis=1)
    columns = (weights.strides, weights.scales, weights.own, weights.guided, couplings, weights.shared)
    for (stride, *numbers), (half, steepness) in zip(zip(*columns, strict=True), weights.presence, strict=True):
        presence = f"(share / {half:.3g})^{steepness:.2f}" if half > 0 else "always"
        lines.append(f"| {stride:g} | {' | '.join(f'{value:.3f}' for value in numbers)} | {presence} |")
    uncoupled = (
        "Consistent learning left neighbours uncoupled: side by side, pixels of a network's logits err together, and"
        " what helps is to look further away, along like colours. So with these weights one sample tells all, and"
        " pixels are independent in samples but for what they share when something is measured (below). How far away,"
        " and that probabilities are averaged and not scores, was chosen by the likelihood of held-out scenes."
    )
    says = (
        "The shipped weights. Scaled scores count for `own`, and the logarithm of the mean probability at like places"
        " for as much as stands there; the last two columns are for measuring (below)."
    )
    return [says, "\n".join(lines), *([] if weights.pairwise.any() else [uncoupled])]


def _table(rows: Mapping[str, Any]) -> str:
    measures = list(next(iter(rows.values())))
    lines = [f"| | {' | '.join(measures)} |", "|---" * (len(measures) + 1) + "|"]
    lines += [f"| {name} | {' | '.join(_cell(name, m, row[m]) for m in measures)} |" for name, row in rows.items()]
    return "\n".join(lines)


def _cell(name: str, measure: str, found: Mapping[str, float]) -> str:
    value = f"{found['value']:.4f}"
    if name == BASE:
        return value
    gain, error = found["gain"], found["standard_error"]
    sure = abs(gain) > 2 * error and f"{abs(gain):.4f}" != "0.0000"  # not by rounding
    good = (gain > 0) != (measure in LESS_IS_BETTER)
    text = f"{value} ({gain:+.4f} ± {error:.4f})"
    return f"**{text}**" if sure and good else f"{text} †" if sure else text


def _rivals(record: Mapping[str, Any]) -> str:
    """Where another method is ahead of ours, in a sentence."""
    ahead = [
        f"{name} at stride {stride} ({row['IoU']['value']:.4f} and {table['rows']['lp.refine']['IoU']['value']:.4f})"
        for stride, table in record["strides"].items()
        for name, row in table["rows"].items()
        if row["IoU"]["value"] > table["rows"]["lp.refine"]["IoU"]["value"]
    ]
    if not ahead:
        return ""
    return f"Where labels alone count, others have a higher IoU than `lp.refine`: {', '.join(ahead)}."


def _left_out(record: Mapping[str, Any]) -> str:
    return " ".join(f"Left out: {name}, since {why}." for name, why in record["left_out"].items())


def _speed(record: Mapping[str, Any]) -> list[str]:
    if "speed" not in record:
        return []
    speed = record["speed"]
    ours, dense = (speed["medians"][name] for name in ("lp.refine", "pydensecrf2"))
    return [
        "## Seconds",
        f"On T3 (375 × 500, 21 labels, sharp logits), in turns in one process: `lp.refine` {ours['seconds']:.2f} s"
        f" ({ours['cpu_seconds']:.2f} s of processor time), pydensecrf2 with {speed['iterations']} iterations"
        f" {dense['seconds']:.2f} s ({dense['cpu_seconds']:.2f}): a ratio of {speed['ratio']:.2f}.",
    ]


def _areas(record: Mapping[str, Any]) -> list[str]:
    if "areas" not in record:
        return []
    heads = ("stride", "coverage", "coverage, absent labels", "width", "CRPS")
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for stride, rows in record["areas"].items():
        for name, row in rows.items():
            numbers = (f"{row[key]:.3f}" for key in ("coverage", "absent", "width", "crps"))
            lines.append(f"| {name} | {stride} | {' | '.join(numbers)} |")
    return [
        "## Areas",
        f"90 % intervals of the areas of labels in {record['scenes']['areas']} test scenes, from 60 samples: how often"
        " they hold the truth for labels with more than 1 % of a scene, and for those that have less and are given"
        " more; how wide the former are; and the CRPS of both, in shares of the scene (less is better).",
        "\n".join(lines),
        "Pixels drawn one by one from the softmax average out, so that their areas look far surer than they are. What"
        " is missing is what all pixels of a scene err by together: a network that takes a meadow for a field does so"
        " everywhere. `Refiner.measure` adds an offset to each label, the same at all pixels, new in every sample; its"
        " standard deviation (the shared error among the weights above) was chosen by the CRPS of held-out"
        ' areas, as `Refiner.fit(.., objective="area")` chooses it. And since labels that are not there would get some'
        " pixels in nearly every sample, so that 0 were outside most of their intervals, it learns one thing more: how"
        " likely a label is to be in an image at all, by the share of it that the scores see (its odds are"
        " among the weights). A label is left out of a sample as often as it is absent, and has as much more weight in"
        " the others.",
    ]


def _absent(record: Mapping[str, Any]) -> list[str]:
    if "absent" not in record:
        return []
    found = record["absent"]
    heads = ("coverage", "coverage, absent labels", "width", "CRPS")
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name, row in found["rows"].items():
        lines.append(f"| {name} | {' | '.join(f'{row[key]:.3f}' for key in ('coverage', 'absent', 'width', 'crps'))} |")
    n, (half, steepness) = found["scenes"], found["presence"]
    return [
        "### Labels that are not there",
        "What presence does, on a weaker network that was made in minutes for this table, a logistic regression on the"
        f" features of an encoder trained on ImageNet ({found['accuracy']:.1%} of the pixels right), from {n['fit']}"
        f" scenes; a refiner was fitted to its logits of {n['held_out']} others at stride {STRIDE}, and judged on"
        f" {n['test']} more. It found odds of (share / {half:.3f})^{steepness:.2f} and a shared error of"
        f" {found['shared']:g}.",
        "\n".join(lines),
        "The middle row has the shared error of the last, not one chosen for itself. Both numbers were fitted to the"
        " held-out scenes, but that presence is used at all was settled after a look at test scenes."
        f" Recorded by `{found['origin']['command']}` on {found['origin']['date']}.",
    ]


def _silhouettes(record: Mapping[str, Any]) -> list[str]:
    if "silhouettes" not in record:
        return []
    found = record["silhouettes"]
    heads = ("noise", "coverage", "width", "CRPS")
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for noise, level in found["noise"].items():
        for name, row in level["rows"].items():
            numbers = (f"{row[key]:.3f}" for key in ("coverage", "width", "crps"))
            lines.append(f"| {name} | σ = {noise} | {' | '.join(numbers)} |")
    n = found["images"]
    learned = " and ".join(f"{level['shared']:g} (σ = {noise})" for noise, level in found["noise"].items())
    return [
        "### Silhouettes",
        f"The same on {n['test']} Caltech silhouettes of 28 × 28 pixels under Gaussian noise, with the logits of a"
        " small model: a logistic regression of pixels on the noisy image and four smoothed copies of it, learned from"
        f" {n['model']} other silhouettes. The refiner was fitted, and the temperature of pixels by themselves chosen,"
        f" on {n['held_out']} more.",
        "\n".join(lines),
        f"The errors that pixels share came out as {learned}: far smaller than on scenes. They were"
        " chosen on held-out images, among sizes that were made finer after a look at the test images."
        f" Recorded by `{found['origin']['command']}` on {found['origin']['date']}.",
    ]


def _origin(record: Mapping[str, Any]) -> str:
    where = record["machine"]
    return (
        f"Recorded by `{record['command']}` on {record['date']} at {record['git']}, seed {record['seed']}, on"
        f" {where['cpu']} with {where['cores']} cores under load {where['load']}."
    )
