"""Features: accepted input and storage, and image features compared with loops over pixels."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from locpmap import arrays
from locpmap.errors import InputError, InputTypeError, LocpmapError
from locpmap.features import DIRECTIONS, Features, ImageFeatures
from locpmap.features.features import wiring_of
from locpmap.graphs import Graph

EVERYTHING = ImageFeatures(("intensity", "position"), ("constant", "ends", "difference", "contrast"))
SHAPES = [(1, 1), (1, 5), (4, 1), (2, 2), (3, 4), (5, 3)]


def neighbours(height: int, width: int, connectivity: int) -> Iterator[tuple[int, tuple[int, int], tuple[int, int]]]:
    """Yield the direction, first end and second end of every edge, pixel by pixel."""
    steps = [(0, 1), (1, 0), (1, 1), (1, -1)][: connectivity // 2]
    for direction, (down, right) in enumerate(steps):
        for r in range(height):
            for c in range(width):
                if r + down < height and 0 <= c + right < width:
                    yield direction, (r, c), (r + down, c + right)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape)


# --- Features on grids and graphs ---


def test_grid_features_follow_the_order_of_sites_and_edges() -> None:
    height, width = 2, 3
    unary = numbers(height, width, 4)
    right, down = numbers(height, width - 1, 2), 10 + numbers(height - 1, width, 2)
    features = Features.grid(unary, (right, down), unary_names=list("abcd"), pairwise_names=("u", "v"))
    assert features.unary.shape == (1, 6, 4)
    assert features.pairwise.shape == (1, 7, 2)
    np.testing.assert_array_equal(features.unary[0, 1 * width + 2], unary[1, 2])
    edges = features.structure.edges()
    for e, (direction, (r, c), (s, d)) in enumerate(neighbours(height, width, 4)):
        assert edges[e].tolist() == [r * width + c, s * width + d]
        np.testing.assert_array_equal(features.pairwise[0, e], (right, down)[direction][r, c])
    assert features.unary_names == ("a", "b", "c", "d")
    assert features.pairwise_names == ("u", "v")
    assert not features.batched
    assert len(features) == 1


def test_pairwise_features_may_be_shared_by_a_batch() -> None:
    unary = numbers(5, 2, 3, 4)
    right, down = numbers(2, 2, 1), numbers(5, 1, 3, 1)
    shared = Features.grid(unary, (right, down[0]))
    assert shared.pairwise.shape == (1, 7, 1)
    mixed = Features.grid(unary, (right, down))
    assert mixed.pairwise.shape == (5, 7, 1)
    for n in range(5):
        np.testing.assert_array_equal(mixed.pairwise[n, :4], right.reshape(4, 1))
        np.testing.assert_array_equal(mixed.pairwise[n, 4:], down[n].reshape(3, 1))
    graph = Features.graph(numbers(5, 3, 2), [[0, 1], [2, 1]], numbers(5, 2, 6))
    assert graph.batched
    assert graph.pairwise.shape == (5, 2, 6)


@pytest.mark.parametrize("features", [Features.grid(numbers(3, 4, 2)), Features.graph(numbers(3, 2), [[0, 2]])])
def test_default_pairwise_feature_is_one_shared_constant(features: Features) -> None:
    assert features.pairwise.tolist() == [[[1.0]]]
    assert features.pairwise_names == ("constant",)
    assert features.unary_names == ("feature 0", "feature 1")


def test_eight_neighbours_have_four_directions() -> None:
    parts = numbers(3, 3, 1), numbers(2, 4, 1), numbers(2, 3, 1), 5 + numbers(2, 3, 1)
    features = Features.grid(numbers(3, 4, 1), parts, connectivity=8)
    np.testing.assert_array_equal(features.pairwise[0], np.concatenate([part.reshape(-1, 1) for part in parts]))
    directions = [direction for direction, _, _ in neighbours(3, 4, 8)]
    assert features.wiring(tied=False).group.tolist() == directions
    assert features.directions == DIRECTIONS


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("connectivity", [4, 8])
def test_wiring_of_a_grid(shape: tuple[int, int], connectivity: int) -> None:
    features = Features.grid(numbers(*shape, 2), connectivity=connectivity)
    found = features.wiring(tied=False)
    expected = list(neighbours(*shape, connectivity))
    flat = [(first[0] * shape[1] + first[1], second[0] * shape[1] + second[1]) for _, first, second in expected]
    assert found.edges.tolist() == [list(pair) for pair in flat]
    assert found.group.tolist() == [direction for direction, _, _ in expected]
    assert not features.wiring(tied=True).group.any()
    assert len(features.wiring(tied=True).group) == len(flat)
    for site in range(features.n_sites):
        slots = range(found.indptr[site], found.indptr[site + 1])
        near = {(int(found.neighbour[s]), int(found.edge[s]), int(found.end[s])) for s in slots}
        mine = {(j, e, 0) for e, (i, j) in enumerate(flat) if i == site}
        assert near == mine | {(i, e, 1) for e, (i, j) in enumerate(flat) if j == site}
    dtypes = [found.group, found.edges, found.indptr, found.neighbour, found.edge, found.end]
    assert [array.dtype.name for array in dtypes] == ["int32", "int32", "int64", "int32", "int32", "uint8"]
    assert all(array.flags.c_contiguous and not array.flags.writeable for array in found)


def test_wiring_is_cached_and_a_graph_has_one_direction() -> None:
    wiring_of.cache_clear()
    features = Features.graph(numbers(3, 2), [[0, 1], [2, 1]])
    assert len(features.directions) == 1
    assert features.wiring(tied=False).group.tolist() == [0, 0]
    assert features.wiring(tied=False) is features.wiring(tied=False)
    assert wiring_of.cache_info().misses == 1  # the lists for tied tables are not built


def test_slice_is_a_view() -> None:
    features = Features.grid(numbers(5, 2, 3, 4), (numbers(5, 2, 2, 1), numbers(5, 1, 3, 1)))
    part = features.take(slice(1, 3))
    assert len(part) == 2
    np.testing.assert_array_equal(part.unary, features.unary[1:3])
    np.testing.assert_array_equal(part.pairwise, features.pairwise[1:3])
    for tied in (False, True):
        found, whole = part.wiring(tied), features.wiring(tied)
        assert all(mine is theirs for mine, theirs in zip(found, whole, strict=True))
    assert np.shares_memory(part.unary, features.unary)
    shared = Features.grid(numbers(5, 2, 3, 4)).take(slice(4, 5))
    assert shared.pairwise.shape == (1, 1, 1)


def test_arrays_share_the_higher_precision() -> None:
    single, double = numbers(2, 3, 1).astype(np.float32), numbers(2, 3, 1)
    edges = numbers(2, 2, 1), numbers(1, 3, 1)
    assert Features.grid(single).pairwise.dtype == np.float32
    assert Features.grid(double, [e.astype(np.float32) for e in edges]).pairwise.dtype == np.float64
    promoted = Features.grid(single, edges)
    assert promoted.unary.dtype == promoted.pairwise.dtype == np.float64
    np.testing.assert_array_equal(promoted.pairwise[0, :4, 0], edges[0].ravel())
    assert Features.grid(double.astype(np.float16)).unary.dtype == np.float32
    assert Features.grid(np.ones((2, 3, 1), np.uint8)).unary.dtype == np.float64


def test_small_inputs_are_copied_and_large_ones_shared() -> None:
    small, large = numbers(2, 3, 1), np.zeros((1024, 1024, 5), np.float32)
    features = Features.grid(small)
    small[:] = 7
    assert not (features.unary == 7).any()
    assert np.shares_memory(Features.grid(large).unary, large)
    with pytest.raises(ValueError, match="read-only"):
        features.unary[0, 0, 0] = 1


def test_unary_features_may_be_empty() -> None:
    features = Features.grid(np.zeros((2, 3, 0)))
    assert features.unary.shape == (1, 6, 0)
    assert features.unary_names == ()


def test_tensors_are_accepted() -> None:
    torch = pytest.importorskip("torch")
    unary = numbers(2, 3, 4)
    features = Features.grid(torch.from_numpy(unary), (torch.zeros(2, 2, 1), torch.zeros(1, 3, 1)))
    np.testing.assert_array_equal(features.unary[0], unary.reshape(6, 4))
    image = np.arange(6, dtype=np.uint8).reshape(2, 3)
    np.testing.assert_array_equal(ImageFeatures()(torch.from_numpy(image)).unary, ImageFeatures()(image).unary)


GRID, EDGES = numbers(3, 4, 2), (numbers(3, 3, 1), numbers(2, 4, 1))
SITES, PAIRS = numbers(3, 2), [[0, 1], [1, 2]]
NAN, INF = float("nan"), float("inf")

ERRORS: list[tuple[Callable[[], object], type[LocpmapError], str]] = [
    (lambda: Features.grid(numbers(3, 4)), InputError, "unary has shape (3, 4), expected (H, W, D) or (N, H, W, D)"),
    (lambda: Features.grid(np.zeros((0, 4, 2))), InputError, "unary is empty: it has shape (0, 4, 2)"),
    (lambda: Features.grid(np.full((3, 4, 2), NAN)), InputError, "unary contains nan, expected finite numbers"),
    (lambda: Features.grid(np.full((3, 4, 2), -INF)), InputError, "unary contains -inf, expected finite numbers"),
    (lambda: Features.grid([["a"]]), InputTypeError, "unary has dtype <U1, expected real numbers"),
    (lambda: Features.grid(GRID, connectivity=6), InputError, "connectivity is 6, expected 4 or 8"),
    (lambda: Features.grid(GRID, EDGES[0]), InputError, "pairwise has the type ndarray, expected a tuple with one"),
    (lambda: Features.grid(GRID, EDGES, connectivity=8), InputError, "pairwise has 2 entries, expected a tuple"),
    (
        lambda: Features.grid(GRID, EDGES[::-1]),
        InputError,
        "pairwise (horizontal) has shape (2, 4, 1), expected (3, 3, F)",
    ),
    (
        lambda: Features.grid(np.stack([GRID] * 2), (np.stack([EDGES[0]] * 3), EDGES[1])),
        InputError,
        "pairwise (horizontal) has shape (3, 3, 3, 1), expected (3, 3, F) or (2, 3, 3, F)",
    ),
    (
        lambda: Features.grid(GRID, (EDGES[0][None], EDGES[1])),  # a batch axis where the unary has none
        InputError,
        "pairwise (horizontal) has shape (1, 3, 3, 1), expected (3, 3, F)",
    ),
    (
        lambda: Features.grid(GRID, (EDGES[0], numbers(2, 4, 2))),
        InputError,
        "pairwise has different numbers of features (horizontal 1, vertical 2)",
    ),
    (
        lambda: Features.grid(GRID, (EDGES[0][..., :0], EDGES[1][..., :0])),
        InputError,
        "expected at least one feature per edge",
    ),
    (lambda: Features.grid(GRID, (EDGES[0], EDGES[1] + INF)), InputError, "pairwise contains inf, expected finite"),
    (lambda: Features.grid(GRID, unary_names=["a"]), InputError, "unary_names holds 1 names, expected one for each"),
    (lambda: Features.grid(GRID, unary_names=["a", "a"]), InputError, "unary_names holds 'a' more than once"),
    (lambda: Features.grid(GRID, unary_names="ab"), InputTypeError, "unary_names is 'ab', expected a list of strings"),
    (
        lambda: Features.grid(GRID, EDGES, pairwise_names=["constant"]),
        InputError,
        "expected 1 on every edge",
    ),
    (lambda: Features.graph(numbers(3), PAIRS), InputError, "unary has shape (3,), expected (S, D) or (N, S, D)"),
    (lambda: Features.graph(np.zeros((0, 3, 2)), PAIRS), InputError, "unary is empty"),
    (lambda: Features.graph(SITES, [[0, 3]]), InputError, "edges[0] is (0, 3), expected sites from 0 to 2"),
    (lambda: Features.graph(SITES, Graph(4, PAIRS)), InputError, "unary has 3 sites, expected the graph's 4"),
    (lambda: Features.graph(SITES, PAIRS, numbers(3, 1)), InputError, "pairwise has shape (3, 1), expected (2, F)"),
    (lambda: Features.grid(GRID).take(slice(1, 1)), InputError, "expected at least one of the 1 inputs"),
    (lambda: ImageFeatures(unary=("colour",)), InputError, "unknown unary feature 'colour'"),
    (lambda: ImageFeatures(pairwise=("contrasts",)), InputError, "did you mean 'contrast'?"),
    (lambda: ImageFeatures(pairwise=()), InputError, "pairwise is empty, expected at least one of constant, ends"),
    (lambda: ImageFeatures(unary="intensity"), InputTypeError, "unary is 'intensity', expected a tuple"),  # type: ignore[arg-type]
    (lambda: ImageFeatures(unary=("position",) * 2), InputError, "expected each feature once"),
    (lambda: ImageFeatures(connectivity=5), InputError, "connectivity is 5, expected 4 or 8"),
    (lambda: ImageFeatures(channels=0), InputError, "channels is 0, expected None or a whole number of at least 1"),
    (lambda: ImageFeatures()(numbers(3)), InputError, "image has shape (3,), expected (H, W) or (N, H, W)"),
    (lambda: ImageFeatures()(numbers(2, 3, 4, 3)), InputError, "with channels=None"),
    (lambda: ImageFeatures(channels=3)(numbers(4, 5)), InputError, "expected (H, W, 3) or (N, H, W, 3)"),
    (lambda: ImageFeatures(channels=3)(numbers(4, 5, 4)), InputError, "image has shape (4, 5, 4), expected (H, W, 3)"),
    (lambda: ImageFeatures()(np.zeros((0, 3))), InputError, "image is empty"),
    (lambda: ImageFeatures()(np.full((2, 2), NAN)), InputError, "image contains nan, expected finite numbers"),
    (lambda: ImageFeatures()(np.zeros((2, 2), int)), InputTypeError, "image has dtype int64, whose maximum is unknown"),
    (lambda: ImageFeatures()(np.array([[-1e308, 1e308]])), InputError, "contains inf, expected finite numbers"),
    (lambda: ImageFeatures.from_dict([1]), InputError, "described by list, expected"),
    (lambda: ImageFeatures.from_dict({"unary": []}), InputError, "described by ['unary'], expected"),
    (lambda: ImageFeatures.from_dict(ImageFeatures().to_dict() | {"channels": "3"}), InputError, "channels is '3'"),
]


@pytest.mark.parametrize(("call", "kind", "words"), ERRORS, ids=[words for _, _, words in ERRORS])
def test_errors(call: Callable[[], object], kind: type[LocpmapError], words: str) -> None:
    with pytest.raises(LocpmapError) as error:
        call()
    assert type(error.value) is kind
    assert words in str(error.value)
    assert "\n" not in str(error.value)


# --- features of images ---


def features_by_loop(image: np.ndarray, connectivity: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute all features of one image (H, W, C) in double precision, pixel by pixel."""
    height, width, _ = image.shape
    unary = []
    for r in range(height):
        for c in range(width):
            position = [2 * r / (height - 1) - 1 if height > 1 else 0, 2 * c / (width - 1) - 1 if width > 1 else 0]
            unary.append([*image[r, c], *position])
    pairs = [(image[first], image[second]) for _, first, second in neighbours(height, width, connectivity)]
    squares = [sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) for a, b in pairs]
    mean = sum(squares) / len(squares) if squares else 0
    pairwise = [
        [1, *a, *b, *(abs(x - y) for x, y in zip(a, b, strict=True)), math.exp(-q / (2 * mean)) if mean else 1]
        for (a, b), q in zip(pairs, squares, strict=True)
    ]
    n_channels = image.shape[2]
    return np.array(unary), np.array(pairwise, float).reshape(-1, 2 + 3 * n_channels)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("connectivity", [4, 8])
@pytest.mark.parametrize("channels", [None, 1, 3])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "uint16", ">u2", "float16", "float32", "float64"])
def test_every_feature_against_a_loop(
    shape: tuple[int, int], connectivity: int, channels: int | None, dtype: str
) -> None:
    full = (*shape, channels) if channels else shape
    noise = np.random.default_rng(1).random(full)
    white = {"bool": 1, "uint8": 255, "uint16": 65535, ">u2": 65535}.get(dtype, 1)
    image = (np.round(noise * white) if white > 1 or dtype == "bool" else noise - 0.5).astype(dtype)
    features = replace(EVERYTHING, connectivity=connectivity, channels=channels)(image)
    exact = image.astype(np.float64).reshape(*shape, channels or 1) / white
    unary, pairwise = features_by_loop(exact, connectivity)
    double = dtype == "float64"
    assert features.unary.dtype == features.pairwise.dtype == (np.float64 if double else np.float32)
    # Each intensity and each difference is rounded once, so a distance is off by about 1.5 eps.  The contrast exp(-t)
    # with t = d² / 2m changes by at most 0.61 / √m times that, and √m > 0.4 here.  Other features are rounded once.
    tolerance = 4 * np.finfo(features.unary.dtype).eps
    np.testing.assert_allclose(features.unary[0], unary, rtol=0, atol=tolerance)
    np.testing.assert_allclose(features.pairwise[0], pairwise, rtol=0, atol=tolerance)
    assert features.unary_names == replace(EVERYTHING, channels=channels).unary_names
    assert len(features.unary_names) == features.n_unary
    assert len(features.pairwise_names) == features.n_pairwise
    assert not features.batched


def test_features_of_a_small_image() -> None:
    image = np.array([[0.0, 3.0], [0.0, 1.0]])
    features = EVERYTHING(image)
    assert features.unary_names == ("intensity", "row", "column")
    assert features.unary[0].tolist() == [[0, -1, -1], [3, -1, 1], [0, 1, -1], [1, 1, 1]]
    assert features.pairwise_names == ("constant", "first end", "second end", "difference", "contrast")
    # Squares 9 and 1 (horizontal), 0 and 4 (vertical): their mean is 3.5.
    contrast = [math.exp(-q / 7) for q in (9, 1, 0, 4)]
    expected = [[1, 0, 3, 3], [1, 0, 1, 1], [1, 0, 0, 0], [1, 3, 1, 2]]
    assert features.pairwise[0, :, :4].tolist() == expected
    np.testing.assert_allclose(features.pairwise[0, :, 4], contrast, rtol=1e-15)


def test_names_number_the_channels() -> None:
    names = replace(EVERYTHING, channels=2)
    assert names.unary_names == ("intensity 0", "intensity 1", "row", "column")
    assert names.pairwise_names[1:5] == ("first end 0", "first end 1", "second end 0", "second end 1")
    assert names.pairwise_names[5:] == ("difference 0", "difference 1", "contrast")


def test_features_follow_the_requested_order() -> None:
    image = numbers(3, 4)
    reordered = ImageFeatures(("position", "intensity"), ("contrast", "difference", "constant"))(image)
    default = EVERYTHING(image)
    np.testing.assert_array_equal(reordered.unary, default.unary[..., [1, 2, 0]])
    np.testing.assert_array_equal(reordered.pairwise, default.pairwise[..., [4, 3, 0]])


@pytest.mark.parametrize("channels", [None, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_batch_equals_single_images(channels: int | None, dtype: Any) -> None:
    batch = numbers(4, 37, 53, *((channels,) if channels else ())).astype(dtype)
    batch *= np.array([1, 100, 0, 1e-3], dtype).reshape(4, *[1] * (batch.ndim - 1))
    make = replace(EVERYTHING, channels=channels)
    together = make(batch)
    assert together.batched
    for n, image in enumerate(batch):
        np.testing.assert_array_equal(together.unary[n], make(image).unary[0])
        np.testing.assert_array_equal(together.pairwise[n], make(image).pairwise[0])


@pytest.mark.parametrize("factor", [2.0**-90, 2.0**90, 0.0])
def test_contrast_does_not_depend_on_the_scale(factor: float) -> None:
    # Scaling by powers of two is exact, but the squares would overflow or underflow.
    image = numbers(4, 5, 3).astype(np.float32)
    make = ImageFeatures(pairwise=("contrast",), channels=3)
    contrast = make(image * np.float32(factor)).pairwise
    expected = make(image).pairwise if factor else np.ones_like(contrast)
    np.testing.assert_allclose(contrast, expected, rtol=4 * float(np.finfo(np.float32).eps))


def test_black_is_0_and_white_is_1() -> None:
    for dtype, white in (("bool", 1), ("uint8", 255), ("uint16", 65535)):
        assert ImageFeatures()(np.array([[0, white]], dtype)).unary.ravel().tolist() == [0, 1]


def test_strided_images_are_read_correctly() -> None:
    image = numbers(6, 8)
    for view in (image.T, image[::2, ::-1]):
        np.testing.assert_array_equal(EVERYTHING(view).pairwise, EVERYTHING(view.copy()).pairwise)
        np.testing.assert_array_equal(ImageFeatures()(view).unary.ravel(), view.ravel())


def test_image_is_neither_changed_nor_shared() -> None:
    image = numbers(5, 6)
    before = image.copy()
    features = ImageFeatures()(image)
    np.testing.assert_array_equal(image, before)
    image[:] = 0
    np.testing.assert_array_equal(features.unary.ravel(), before.ravel())


def test_peak_memory() -> None:
    image = np.random.default_rng(0).random((2200, 2000), np.float32)  # above 16 MB: shared
    everything = replace(EVERYTHING, unary=("intensity",))

    def peak(make: ImageFeatures) -> float:
        tracemalloc.start()
        make(image)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most / image.nbytes

    assert peak(ImageFeatures(pairwise=("constant",))) < 0.1
    assert peak(ImageFeatures(pairwise=("difference",))) < 2.1  # two edges per pixel
    assert peak(ImageFeatures()) < 4.1
    assert peak(everything) < 2 * 5 + 1.1


def test_dict_round_trip() -> None:
    for make in (ImageFeatures(), replace(EVERYTHING, connectivity=8, channels=3)):
        assert ImageFeatures.from_dict(make.to_dict()) == make
        assert isinstance(make.to_dict()["unary"], list)


def test_gpu_tensors_become_numpy_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(arrays, "on_gpu", arrays.is_tensor)  # treat CPU tensors as GPU tensors
    unary, right, down = torch.zeros((2, 3, 4), dtype=torch.bfloat16), torch.ones((2, 2, 1)), torch.ones((1, 3, 1))
    on_grid = Features.grid(unary, (right, down), pairwise_names=("constant",))
    on_graph = Features.graph(unary.reshape(6, 4), [[0, 1]])
    assert isinstance(on_grid.unary, np.ndarray)
    assert on_grid.unary.dtype == np.float32
    assert on_graph.unary.shape == (1, 6, 4)
