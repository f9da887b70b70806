"""Conversion of users' inputs (arrays, lists, pairs, iterables) to batches of features and labels."""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from locpmap.arrays import Array, frozen, refuse_masked, to_labels, to_numpy
from locpmap.errors import InputError, InputTypeError
from locpmap.features import Features
from locpmap.learning.batches import VOID, Batch

Extract = Callable[[Any, Any], Features]  # arguments: an input and its labels
BATCH_SITES = 1 << 20  # maximum number of sites of a batch that is read from an iterable


@dataclass(frozen=True)
class LabelReader:
    """Validation and encoding of labels."""

    n_labels: int
    ignore_label: int | None

    def __call__(self, labels: Any, features: Features, name: str) -> Array:
        """Return labels as (N, S) int16, with VOID in place of ``ignore_label``."""
        refuse_masked(labels, name, "mark void sites by ignore_label")
        given = to_labels(labels, name)
        expected = ((len(features),) if features.batched else ()) + features.structure.shape
        if given.shape != expected:
            raise InputError(f"{name} has shape {given.shape}, expected {expected} like its input")
        flat = given.reshape(len(features), -1)
        void = np.zeros(flat.shape, bool) if self.ignore_label is None else flat == self.ignore_label
        wrong = (flat < 0) | (flat >= self.n_labels)
        if (wrong & ~void).any():
            also = "" if self.ignore_label is None else f" or ignore_label={self.ignore_label}"
            value = flat[wrong & ~void][0]
            raise InputError(f"{name} contains {value}, expected labels from 0 to {self.n_labels - 1}{also}")
        # In C order: some kernels assume contiguous memory.
        return np.where(void, VOID, flat).astype(np.int16, order="C")


def read_batches(inputs: Any, labels: Any, site_weights: Any, extract: Extract, read: LabelReader) -> list[Batch]:
    """Read all data once: arrays and lists into memory, pairs (input, labels) into memory-mapped files."""
    if labels is None:
        if site_weights is not None:
            raise InputError("site_weights is given with pairs (input, labels), expected lists of inputs and labels")
        return _on_disk(_grouped_pairs(_pairs(inputs), extract, read))
    if not isinstance(inputs, list):
        return _labelled(_batch(extract(inputs, labels), labels, site_weights, read, "labels"))
    if not inputs:
        raise InputError("inputs is empty, expected at least one input")
    for name, values in (("labels", labels), ("site_weights", site_weights)):
        if values is not None and not hasattr(values, "__len__"):
            raise InputTypeError(f"{name} is a {type(values).__name__}, expected a list like inputs")
        if values is not None and len(values) != len(inputs):
            raise InputError(f"{name} holds {len(values)} entries, expected one for each of the {len(inputs)} inputs")
    weights = [None] * len(inputs) if site_weights is None else site_weights
    singles = [
        _batch(extract(x, y), y, w, read, f"labels[{n}]")
        for n, (x, y, w) in enumerate(zip(inputs, labels, weights, strict=True))
    ]
    return _grouped([part for single in singles for part in _labelled(single)])


def _pairs(inputs: Any) -> Iterable[Any]:
    """Return an iterable of pairs from an iterable, a data set that is indexed by number, or a function."""
    if isinstance(inputs, Features) or hasattr(inputs, "shape"):
        raise InputError("labels is missing, expected inputs and labels, or pairs (input, labels)")
    if isinstance(inputs, Iterable):
        return inputs
    if hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__"):  # torch's map-style data sets
        return (inputs[n] for n in range(len(inputs)))
    if callable(inputs):
        return inputs()
    raise InputTypeError(f"inputs is a {type(inputs).__name__}, expected arrays, Features or pairs (input, labels)")


def _batch(features: Features, labels: Any, weights: Any, read: LabelReader, name: str) -> Batch:
    given = read(labels, features, name)
    if weights is None:
        return Batch(features, given, np.ones((1, 1)))
    site_weights = to_numpy(weights, "site_weights").astype(np.float64)
    if not np.isfinite(site_weights).all() or (site_weights < 0).any():
        raise InputError("site_weights contains a negative or infinite number, expected finite numbers of at least 0")
    if site_weights.size == len(given):  # one weight per input
        return Batch(features, given, site_weights.reshape(-1, 1))
    if site_weights.size != given.size:
        raise InputError(f"site_weights has shape {site_weights.shape}, expected one number per input or one per site")
    return Batch(features, given, site_weights.reshape(given.shape))


def _grouped(singles: list[Batch]) -> list[Batch]:
    """Return one batch per group of inputs with the same structure."""
    groups: dict[Any, list[Batch]] = {}
    for batch in singles:
        groups.setdefault(_form(batch), []).append(batch)
    return [_joined(group) for group in groups.values()]


def _form(batch: Batch) -> tuple[Any, ...]:
    """Return the properties that inputs of one batch must have in common."""
    f, per_site = batch.features, batch.site_weights.shape[1] > 1
    return f.structure, f.unary.dtype, f.unary_names, f.pairwise_names, f.pairwise.shape[1:], per_site


def _labelled(batch: Batch) -> list[Batch]:
    """Return the batch without inputs whose sites are all void: a list of one batch, or of none."""
    some = (batch.labels != VOID).any(axis=1)
    return [batch] if some.all() else [batch.part(np.flatnonzero(some))] if some.any() else []


def _joined(group: list[Batch]) -> Batch:
    if len(group) == 1:
        return group[0]
    first = group[0].features
    pairwise = [batch.features.pairwise for batch in group]
    if all(p.shape[:2] == (1, 1) and (p == pairwise[0]).all() for p in pairwise):  # the same on all edges of all images
        joint = pairwise[0]
    else:
        joint = np.concatenate(
            [np.broadcast_to(p, (batch.n_images, *p.shape[1:])) for p, batch in zip(pairwise, group, strict=True)]
        )
    unary = np.concatenate([batch.features.unary for batch in group])
    features = replace(first, unary=frozen(unary), pairwise=frozen(joint), batched=True)
    weights = [np.broadcast_to(b.site_weights, (b.n_images, b.site_weights.shape[1])) for b in group]
    return Batch(features, np.concatenate([batch.labels for batch in group]), np.concatenate(weights))


def _grouped_pairs(pairs: Iterable[Any], extract: Extract, read: LabelReader) -> Iterator[Batch]:
    """Yield batches of consecutive inputs with the same structure, of at most about ``BATCH_SITES`` sites."""
    waiting: list[Batch] = []
    n = None
    for n, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InputError(f"item {n} of the inputs is a {type(pair).__name__}, expected a pair (input, labels)")
        batch = _batch(extract(*pair), pair[1], None, read, f"the labels of item {n}")
        if not _labelled(batch):
            continue
        full = sum(b.labels.size for b in waiting) + batch.labels.size > BATCH_SITES
        if waiting and (full or _form(batch) != _form(waiting[0])):
            yield _joined(waiting)
            waiting = []
        waiting.append(batch)
    if n is None:
        raise InputError("inputs is empty, expected at least one pair (input, labels)")
    if waiting:
        yield _joined(waiting)


def _on_disk(batches: Iterable[Batch]) -> list[Batch]:
    """Return the batches with arrays in memory-mapped files, which are unlinked and vanish with the arrays."""
    mapped_batches: list[Batch] = []
    with tempfile.TemporaryDirectory(prefix="locpmap-") as folder:

        def on_disk(array: Array) -> Array:
            path = Path(folder) / "array.npy"
            np.save(path, array)
            mapped: Array = np.load(path, mmap_mode="r")
            path.unlink()
            return mapped

        for batch in batches:
            unary, pairwise = on_disk(batch.features.unary), on_disk(batch.features.pairwise)
            features = replace(batch.features, unary=unary, pairwise=pairwise)
            mapped_batches.append(Batch(features, on_disk(batch.labels), batch.site_weights))
    return mapped_batches
