"""Tables of regions agree with scikit-image for the label map, and with known samples for the intervals."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import ndimage

import locpmap as lp
from locpmap.errors import InputError, InputTypeError
from locpmap.measuring import regions

skimage = pytest.importorskip("skimage.measure", reason="scikit-image is not installed")


def result_of(labels: np.ndarray, samples: Any, n_labels: int = 3) -> lp.Result:
    """Return a result with the given labels and samples."""
    plain = lp.infer(lp.Potentials.grid(np.zeros((*labels.shape, n_labels)), 0.0), "icm", backend="reference")
    return replace(plain, labels=labels, samples=None if samples is None else np.asarray(samples, np.int16))


def box(*places: tuple[slice, slice], label: int = 1) -> np.ndarray:
    """Return a map (20, 30) of label 0 with boxes of another label."""
    labels = np.zeros((20, 30), int)
    for place in places:
        labels[place] = label
    return labels


LEFT, RIGHT = np.s_[2:8, 3:9], np.s_[12:16, 20:28]


def test_intervals_are_quantiles_of_the_matches() -> None:
    """The left box grows by a column per sample; the right one exists in four of ten samples, with one area."""
    samples = [box(np.s_[2:8, 3 : 5 + m], *([RIGHT] if m % 3 == 0 else [])) for m in range(10)]
    table = regions(result_of(box(LEFT, RIGHT), samples), ["area", "centroid", "label"], 0.8)
    assert table["region"].tolist() == [1, 2]
    assert table["label"].tolist() == [1, 1]
    assert table["presence"].tolist() == [1.0, 0.4]
    assert table["area"].tolist() == [36.0, 32.0]
    areas = 6.0 * np.arange(2, 12)
    assert table["area_low"].tolist() == pytest.approx([np.quantile(areas, 0.1), 32.0])
    assert table["area_high"].tolist() == pytest.approx([np.quantile(areas, 0.9), 32.0])
    assert table["centroid-0_low"].tolist() == table["centroid-0_high"].tolist() == [4.5, 13.5]
    assert table["centroid-1_high"][0] == pytest.approx(np.quantile(3 + (np.arange(2, 12) - 1) / 2, 0.9))


def test_the_largest_overlap_with_the_same_label_is_matched() -> None:
    labels = box(np.s_[2:8, 3:13])
    split = box(np.s_[2:8, 3:6], np.s_[2:8, 7:14])  # the right part shares more
    other = box(np.s_[2:8, 3:13], label=2)  # no match
    touching = box(np.s_[8:9, 3:13])  # shares no pixel
    table = regions(result_of(labels, [split, other, touching]), ["area"])
    assert table["presence"][0] == pytest.approx(1 / 3)
    assert table["area_low"][0] == table["area_high"][0] == 6 * 7
    merged = box(np.s_[2:16, 3:28])
    table = regions(result_of(box(LEFT, RIGHT), [merged]), ["area"])
    assert table["area_low"].tolist() == [14 * 25, 14 * 25]


def test_regions_without_a_match_have_no_interval() -> None:
    table = regions(result_of(box(LEFT), [box()] * 3), ["area", "eccentricity"])
    assert table["presence"].tolist() == [0.0]
    assert np.isnan([table[f"{name}_{end}"] for name in ("area", "eccentricity") for end in ("low", "high")]).all()
    empty = regions(result_of(box(), [box(LEFT)]), ["area"])
    assert all(len(column) == 0 for column in empty.values())
    assert list(empty) == ["region", "label", "presence", "area", "area_low", "area_high"]


MAPS = arrays(np.int64, (6, 7), elements=st.integers(-1, 2))


def parts_of(labels: np.ndarray, background: int | None) -> list[tuple[int, np.ndarray]]:
    """Return the label and the pixels of every component, label by label, with SciPy."""
    found = []
    for label in set(range(3)) - {background}:
        numbers, n = ndimage.label(labels == label)
        found += [(label, numbers == k + 1) for k in range(n)]
    return found


@given(labels=MAPS, samples=st.lists(MAPS, min_size=1, max_size=4), background=st.sampled_from([0, None]))
@settings(max_examples=60, deadline=None)
def test_tables_agree_with_a_search_over_all_components(
    labels: np.ndarray, samples: list[np.ndarray], background: int | None
) -> None:
    table = regions(result_of(labels, samples), ["area"], background=background)
    ours = parts_of(labels, background)
    assert len(ours) == len(table["region"])
    for label, pixels in ours:
        (row,) = [n for n in range(len(ours)) if (skimage_numbers(labels, background)[pixels] == n + 1).all()]
        assert table["label"][row] == label
        assert table["area"][row] == pixels.sum()
        areas: list[set[int]] = []  # of the components with the largest overlap, in each sample that has one
        for sample in samples:
            others = [other for k, other in parts_of(sample, background) if k == label]
            shared = [(int((other & pixels).sum()), int(other.sum())) for other in others]
            most = max((overlap for overlap, _ in shared), default=0)
            if most:
                areas.append({area for overlap, area in shared if overlap == most})
        assert table["presence"][row] == len(areas) / len(samples)
        if areas and all(len(choice) == 1 for choice in areas):
            expected = np.quantile([next(iter(choice)) for choice in areas], [0.05, 0.95])
            assert [table["area_low"][row], table["area_high"][row]] == pytest.approx(expected)


def skimage_numbers(labels: np.ndarray, background: int | None) -> np.ndarray:
    """Return the numbers of regions as the documentation defines them; masked pixels are in no region."""
    outside = (labels < 0) | (labels == (-1 if background is None else background))
    return np.asarray(skimage.label(np.where(outside, -1, labels), connectivity=1, background=-1))


def test_values_are_those_of_regionprops_table() -> None:
    rng = np.random.default_rng(0)
    labels = (ndimage.gaussian_filter(rng.normal(size=(40, 50)), 3) > 0).astype(int)
    samples = (ndimage.gaussian_filter(rng.normal(size=(5, 40, 50)), (0, 3, 3)) > 0).astype(int)
    image = rng.normal(size=(40, 50))
    names = ("area", "perimeter", "eccentricity", "bbox", "intensity_mean", "inertia_tensor")
    table = regions(result_of(labels, samples), names, intensity_image=image, spacing=2.0)
    numbers = skimage.label(labels, connectivity=1)
    expected = skimage.regionprops_table(numbers, image, properties=names, spacing=2.0)
    for name, column in expected.items():
        np.testing.assert_array_equal(table[name], column)
        assert {f"{name}_low", f"{name}_high"} <= set(table)
    assert table["area"].sum() == 4 * labels.sum()
    own = regions(result_of(labels, [labels] * 3), names, intensity_image=image, spacing=2.0)
    for name, column in expected.items():  # a sample that is the map itself
        np.testing.assert_allclose(own[f"{name}_low"], column)
        np.testing.assert_allclose(own[f"{name}_high"], column)


def test_refined_image() -> None:
    rows, columns = np.mgrid[:40, :50]
    logits = np.stack([np.zeros((40, 50)), 3 - np.hypot(rows - 20, columns - 25) / 4], -1)
    result = lp.refine(None, logits, decoder=lp.LocPMAP(100, start="perturbed", keep_samples=True))
    table = regions(result)
    largest = table["area"].argmax()
    assert table["presence"][largest] > 0.8  # label 1 is absent from some samples
    assert table["area_low"][largest] < table["area"][largest] < table["area_high"][largest]
    torch = pytest.importorskip("torch")
    tensors = lp.refine(None, torch.from_numpy(logits), decoder=lp.LocPMAP(100, start="perturbed", keep_samples=True))
    assert regions(tensors)["area_low"].tolist() == table["area_low"].tolist()


def test_regions_of_volumes_use_their_spacing() -> None:
    unary = np.zeros((6, 7, 8, 2))
    unary[1:4, 2:5, 3:7, 1] = 8.0
    unary[..., 0] += 4.0
    result = lp.infer(lp.Potentials.volume(unary, 0.0, spacing=(2.0, 1.0, 0.5)), n_samples=20, keep_samples=True)
    table = regions(result, ["area", "centroid"])
    assert table["area"].tolist() == [36.0]  # 3 · 3 · 4 voxels of 1
    assert (table["centroid-0"][0], table["centroid-2"][0]) == (4.0, 2.25)
    assert table["area_low"][0] < 36 < table["area_high"][0] + 1


ONE = result_of(box(LEFT), [box(LEFT)])
BATCH = lp.infer(lp.Potentials.grid(np.zeros((2, 4, 5, 2)), 0.0), n_samples=2, keep_samples=True)
GRAPH = lp.infer(lp.Potentials.graph(np.zeros((3, 2)), [[0, 1]], 0.0), n_samples=2, keep_samples=True)


@pytest.mark.parametrize(
    ("result", "options", "words"),
    [
        (
            result_of(box(LEFT), None),
            {},
            "the result of icm has no samples, expected one with them: pass keep_samples=True",
        ),
        (BATCH, {}, "result is that of a batch, expected one image"),
        (GRAPH, {}, "result is that of a graph"),
        (ONE, {"properties": ["aera"]}, r"properties \['aera'\] cannot be measured by scikit-image"),
        (ONE, {"properties": ["coords"]}, "properties holds 'coords', expected properties that are numbers"),
        (ONE, {"properties": ["intensity_mean"]}, "cannot be measured by scikit-image: .*`intensity_image`"),
        (ONE, {"spacing": (1, 2, 3)}, "spacing is .*, or 2 of them: .dy, dx"),
        (ONE, {"spacing": 0}, "spacing is 0, expected a number from 1e-12"),
        (ONE, {"spacing": (1.0, -2.0)}, "spacing is .1.0, -2.0., expected a number from 1e-12"),
        (ONE, {"intensity_image": np.zeros((3, 3))}, r"intensity_image has shape \(3, 3\), expected \(20, 30\)"),
        (ONE, {"level": 90}, "level is 90"),
        (ONE, {"background": -1}, "background is -1, expected a whole number"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(result: lp.Result, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        regions(result, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("properties", ["area", 3, ["area", 4]])
def test_wrong_types_are_refused(properties: Any) -> None:
    with pytest.raises(InputTypeError, match="properties"):
        regions(ONE, properties)
    with pytest.raises(InputTypeError, match="result is a int, expected a Result"):
        regions(3)  # type: ignore[arg-type]


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skimage.measure", None)
    with pytest.raises(InputError, match=r"regions needs scikit-image, .* pip install '\.\[regions\]'"):
        regions(ONE)
