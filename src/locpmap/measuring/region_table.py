"""`regions`: properties of connected regions, as in ``skimage.measure.regionprops_table``, with intervals."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from locpmap.arrays import Array, to_numpy
from locpmap.errors import InputError, InputTypeError, fraction, imported, whole_number
from locpmap.graphs import Graph
from locpmap.result import Result, kept_samples
from locpmap.unaries import read_spacing


def regions(
    result: Result,
    properties: Sequence[str] = ("area", "centroid"),
    level: float = 0.9,
    *,
    background: int | None = 0,
    intensity_image: Any = None,
    spacing: Any = None,
) -> dict[str, Array]:
    """Measure properties of connected regions of a label map, with intervals over samples.

    A region is a connected component of ``result.labels``, with 4 neighbours, or 6 in volumes. Its match in a sample is
    the component with the same label that shares the most pixels with it. The region is present in the samples that
    have a match.

    Args:
        result (Result): Labels of one image, with samples (``keep_samples=True``).
        properties (sequence of str, default ("area", "centroid")): Numeric properties of
            ``skimage.measure.regionprops``, such as "area", "centroid", "perimeter" or "eccentricity".
        level (float, default 0.9): Fraction of the matches inside the intervals.
        background (int, default 0): Label whose pixels belong to no region. With None, all labels have regions.
        intensity_image (array, default None): Intensities (H, W) or (H, W, C), for properties such as "intensity_mean".
        spacing (float or tuple, default None): Size of a pixel along each axis. The default is that of a volume, or 1.

    Returns:
        dict: Columns with one entry per region, for example for ``pandas.DataFrame``.

        - ``region``: number of the region, from 1, as in ``skimage.measure.label(labels, connectivity=1)``.
        - ``label``: its label.
        - ``presence``: fraction of the samples in which the region is present.
        - For each property the value in the label map, as in ``regionprops_table``, and ``.._low`` and ``.._high``, the
          interval over the matches. Intervals of regions without a match are NaN.

    Raises:
        InputError: If the result has no samples, is a batch or a graph, scikit-image is not installed, or an argument
            is not valid.
        InputTypeError: If an argument has a wrong type.

    Notes:
        The intervals are conditional on presence. Two regions that are one component in a sample both match it; a
        region that is split matches the part with the larger overlap.

        Cost: O(S) per sample, and that of ``regionprops`` for all regions and samples.

    Example:
        >>> unary = np.zeros((20, 30, 2))
        >>> unary[..., 1] = -2.0
        >>> unary[4:12, 5:15, 1] = 2.0
        >>> result = lp.infer(lp.Potentials.grid(unary, 0.8), "locpmap", keep_samples=True, n_samples=100)
        >>> table = lp.measuring.regions(result, ["area"])
        >>> table["label"].tolist(), table["presence"].tolist(), table["area"].tolist()
        ([1], [1.0], [80.0])
        >>> bool(table["area_low"][0] < 80 < table["area_high"][0])
        True

    See Also:
        :func:`locpmap.measure`
    """
    inside = fraction("level", level)
    if background is not None:
        whole_number("background", background, 0)
    names = _checked(result, properties)
    labels, samples = to_numpy(result.labels, "labels"), to_numpy(result.samples, "samples")
    sides = getattr(result.potentials.structure, "spacing", None)
    if spacing is not None:
        sides = read_spacing(spacing, ("dz", "dy", "dx")[-labels.ndim :])
    options: dict[str, Any] = {"spacing": sides}
    if intensity_image is not None:
        pixels = options["intensity_image"] = to_numpy(intensity_image, "intensity_image")
        if pixels.shape[: labels.ndim] != labels.shape:
            raise InputError(f"intensity_image has shape {pixels.shape}, expected {labels.shape} like labels")
    numbers = _components(labels, background)
    table = _measured(numbers, names, options)
    n_regions = len(table["label"])
    values = {name: np.full((len(samples), n_regions), np.nan) for name in table if name != "label"}
    present = np.zeros((len(samples), n_regions), bool)
    for m, sample in enumerate(samples):
        parts = _components(sample, background)
        match = _matches(numbers, np.where(sample == labels, parts, 0), n_regions)
        present[m] = match > 0
        used, row = np.unique(match[present[m]], return_inverse=True)  # parts that are measured, and their rows
        number = np.zeros(parts.max(initial=0) + 1, np.int64)
        number[used] = np.arange(1, len(used) + 1)
        measured = _measured(number[parts], names, options)
        for name, column in values.items():
            column[m, present[m]] = measured[name][row]
    own = np.zeros(n_regions + 1, np.int64)
    own[numbers] = labels
    found = {"region": table["label"], "label": own[1:], "presence": present.mean(axis=0)}
    for name, column in values.items():
        low, high = np.full((2, n_regions), np.nan)
        for n in np.flatnonzero(present.any(axis=0)):
            low[n], high[n] = np.quantile(column[present[:, n], n], [(1 - inside) / 2, (1 + inside) / 2])
        found |= {name: table[name], f"{name}_low": low, f"{name}_high": high}
    return found


def _checked(result: object, properties: object) -> list[str]:
    """Return the names of the properties without "label", which every table has; check the types of both arguments."""
    if not isinstance(result, Result):
        raise InputTypeError(f"result is a {type(result).__name__}, expected a Result that holds samples")
    kept_samples(result)
    if result.potentials.batched or isinstance(result.potentials.structure, Graph):
        came = "a batch" if result.potentials.batched else "a graph"
        raise InputError(f"result is that of {came}, expected one image")
    if isinstance(properties, str) or not isinstance(properties, Sequence):
        raise InputTypeError(f"properties is {properties!r}, expected a sequence of names, such as ['area']")
    if wrong := [name for name in properties if not isinstance(name, str)]:
        raise InputTypeError(f"properties holds {wrong[0]!r}, expected names")
    return [name for name in properties if name != "label"]


def _components(labels: Array, background: int | None) -> Array:
    """Return the number of the component at every pixel, and 0 at masked pixels and in the background."""
    outside = labels < 0 if background is None else (labels < 0) | (labels == background)
    return np.asarray(_skimage().label(np.where(outside, 0, labels.astype(np.int64) + 1), connectivity=1))


def _matches(numbers: Array, parts: Array, n_regions: int) -> Array:
    """Return for each region the part that shares the most pixels with it, or 0."""
    shared = (numbers > 0) & (parts > 0)
    base = int(parts.max(initial=0)) + 1
    pairs, counts = np.unique(numbers[shared] * base + parts[shared], return_counts=True)
    pairs = pairs[np.argsort(counts, kind="stable")]
    match = np.zeros(n_regions + 1, np.int64)
    match[pairs // base] = pairs % base  # of equal regions, the last assignment is kept: the largest overlap
    return match[1:]


def _measured(numbers: Array, properties: list[str], options: dict[str, Any]) -> dict[str, Array]:
    """Return the table of scikit-image."""
    try:
        table = _skimage().regionprops_table(numbers, properties=("label", *properties), **options)
    except (AttributeError, NotImplementedError, TypeError, ValueError) as error:
        raise InputError(f"properties {properties} cannot be measured by scikit-image: {error}") from None
    if wrong := [name for name, column in table.items() if column.dtype.kind not in "fiub"]:
        raise InputError(f"properties holds {wrong[0]!r}, expected properties that are numbers")
    return table


def _skimage() -> Any:
    needs = "regions needs scikit-image, which is not installed: pip install '.[regions]' in a clone"
    return imported("skimage.measure", needs)
