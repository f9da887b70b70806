"""`locpmap.compat`: pydensecrf's interface, compared with closed forms, with explicit matrices and with pydensecrf."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import locpmap as lp
import locpmap.compat.densecrf as dcrf
from locpmap.compat.lattice import Lattice
from locpmap.compat.utils import (
    create_pairwise_bilateral,
    create_pairwise_gaussian,
    unary_from_labels,
    unary_from_softmax,
)
from locpmap.kernels.cpu.dispatch import kernel_of
from locpmap.kernels.threads import Threads

Array = np.ndarray[Any, np.dtype[Any]]
H, W, K = 9, 14, 3


def softmax(scores: Array) -> Array:
    """Compute the softmax over the first axis."""
    parts = np.exp(scores - scores.max(0))
    return parts / parts.sum(0)


def energies(seed: int = 0, shape: tuple[int, int] = (H, W)) -> Array:
    return np.random.default_rng(seed).normal(size=(K, shape[0] * shape[1])).astype(np.float32)


def image(seed: int = 0, shape: tuple[int, int] = (H, W)) -> Array:
    """Return an image of two halves with different colours and noise."""
    pixels = np.where(np.arange(shape[1])[:, None] < shape[1] // 2, 60, 190) + np.zeros((*shape, 3))
    return (pixels + np.random.default_rng(seed).normal(0, 6, pixels.shape)).astype(np.uint8)


def crf_with_unary(unary: Array | None = None) -> dcrf.DenseCRF2D:
    crf = dcrf.DenseCRF2D(W, H, K)
    crf.setUnaryEnergy(energies() if unary is None else unary)
    return crf


# unaries


def test_unary_from_softmax_is_minus_log_p() -> None:
    p = softmax(np.random.default_rng(0).normal(size=(K, H, W)))
    found = unary_from_softmax(p)
    assert found.shape == (K, H * W)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, -np.log(p).reshape(K, -1), rtol=1e-5)
    scaled = unary_from_softmax(p, scale=0.6)
    np.testing.assert_allclose(np.exp(-scaled), 0.6 * p.reshape(K, -1) + 0.4 / K, rtol=1e-5)
    certain = unary_from_softmax(np.eye(2)[:, :, None])
    np.testing.assert_allclose(certain, -np.log([[1, 1e-5], [1e-5, 1]]), rtol=1e-5)


def test_unary_from_labels_has_the_given_confidence() -> None:
    labels = np.array([[0, 1], [3, 2]])
    p = np.exp(-unary_from_labels(labels, 3, 0.7))
    np.testing.assert_allclose(p.T, [[1 / 3] * 3, [0.7, 0.15, 0.15], [0.15, 0.15, 0.7], [0.15, 0.7, 0.15]], rtol=1e-5)
    counted = np.exp(-unary_from_labels(labels, 4, 0.7, zero_unsure=False))
    np.testing.assert_allclose(counted[labels.ravel(), range(4)], 0.7, rtol=1e-5)
    np.testing.assert_allclose(counted.sum(0), 1, rtol=1e-5)


# closed forms


@pytest.mark.parametrize("n", [0, 1, 5])
def test_inference_without_pairwise_terms_is_the_softmax(n: int) -> None:
    found = crf_with_unary().inference(n)
    assert found.shape == (K, H * W)
    np.testing.assert_allclose(found, softmax(-energies()), atol=1e-6)


def test_two_equal_pixels_follow_the_mean_field_updates() -> None:
    """Update both pixels at once; with equal features, each weighs 1/2 after normalisation."""
    unary = energies(1, (1, 2))
    crf = dcrf.DenseCRF(2, K)
    crf.setUnaryEnergy(unary)
    crf.addPairwiseEnergy(np.full((4, 2), 0.3), compat=3.0)
    q = softmax(-unary)
    for _ in range(2):
        q = softmax(-unary + 3 * q.mean(1, keepdims=True))
    np.testing.assert_allclose(crf.inference(2), q, atol=1e-5)


def test_pixels_are_in_row_order() -> None:
    """Check that width comes first in the constructor and in ``sxy``, and that pixel (r, c) has index r · w + c."""
    unary = np.zeros((2, H * W), np.float32)
    unary[0].reshape(H, W)[2, 7] = 9  # one pixel has label 1
    crf = dcrf.DenseCRF2D(W, H, 2)
    crf.setUnaryEnergy(unary)
    crf.addPairwiseGaussian(sxy=(2.0, 0.2), compat=4.0)  # along rows
    p = crf.inference(1)[1].reshape(H, W)
    assert p[2, 7] > 0.99
    assert min(p[2, 6], p[2, 8]) > 0.6
    np.testing.assert_allclose(np.delete(p, 2, axis=0), 0.5, atol=0.01)  # almost no effect on the other rows


def test_bilateral_kernel_separates_colours() -> None:
    """Label two edges of the image: labels spread over pixels of similar colour only."""
    unary = np.zeros((2, H * W), np.float32)
    unary[1].reshape(H, W)[:, 0] = 4  # the left edge has label 0, the right one label 1
    unary[0].reshape(H, W)[:, -1] = 4
    crf = dcrf.DenseCRF2D(W, H, 2)
    crf.setUnaryEnergy(unary)
    crf.addPairwiseBilateral(sxy=5, srgb=20, rgbim=image(), compat=6)
    labels = crf.inference(20).argmax(0).reshape(H, W)
    assert (labels[:, : W // 2] == 0).all()
    assert (labels[:, W // 2 :] == 1).all()


def test_all_forms_of_compat_give_the_same_potts_model() -> None:
    """Pass a number (the score of agreement), and vectors and matrices (costs, as in pydensecrf)."""
    results = []
    skew = np.triu(np.ones((K, K)), 1)
    for compat in (2.0, np.full(K, -2.0), -2 * np.eye(K), skew - skew.T - 2 * np.eye(K)):
        crf = crf_with_unary()
        crf.addPairwiseGaussian(sxy=2, compat=compat)
        crf.addPairwiseBilateral(sxy=4, srgb=10, rgbim=image(), compat=1.0)
        results.append(crf.inference(4))
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], atol=1e-4)


def test_features_of_utils_equal_those_of_the_methods() -> None:
    """The methods take (horizontal, vertical) and put the horizontal position first, as in pydensecrf."""
    direct, by_utils = crf_with_unary(), dcrf.DenseCRF(H * W, K)
    by_utils.setUnaryEnergy(energies())
    direct.addPairwiseGaussian(sxy=(3, 2), compat=2)
    direct.addPairwiseBilateral(sxy=(6, 5), srgb=(9, 10, 11), rgbim=image(), compat=4)
    by_utils.addPairwiseEnergy(create_pairwise_gaussian((2, 3), (H, W))[::-1], compat=2)
    features = create_pairwise_bilateral((5, 6), (9, 10, 11), image(), chdim=2)
    by_utils.addPairwiseEnergy(features[[1, 0, 2, 3, 4]], compat=4)
    np.testing.assert_array_equal(direct.inference(3), by_utils.inference(3))
    np.testing.assert_array_equal(
        create_pairwise_bilateral((2, 4, 1), 2, np.arange(12).reshape(3, 2, 2))[:, [0, 5, 11]],
        [[0, 0.5, 1], [0, 0, 0.25], [0, 1, 1], [0, 2.5, 5.5]],
    )


# the lattice


def explicit_filter(features: Array) -> Array:
    """Return the matrix (N, N) of the filter on a lattice whose points are tuples of coordinates."""
    d, n_pixels = features.shape
    n = d + 1
    basis = np.zeros((n, d))
    for j in range(1, n):
        basis[:j, j - 1], basis[j, j - 1] = 1, -j
    basis /= np.linalg.norm(basis, axis=0)
    numbers: dict[tuple[int, ...], int] = {}
    entries = []
    for p, x in enumerate((basis @ features).T * n * math.sqrt(2 / 3)):
        corner = (np.round(x / n) * n).astype(int)
        while corner.sum():  # the coordinate farthest from x moves
            corner[np.argmax(np.sign(corner.sum()) * (corner - x))] -= n * np.sign(corner.sum())
        apart = x - corner
        for k in range(n):  # vertex k: k added to all coordinates, n taken from the k smallest
            vertex = corner + k
            vertex[np.argsort(apart)[:k]] -= n
            ordered = np.sort(apart)
            weight = (ordered[k] - (ordered[k - 1] if k else ordered[-1] - n)) / n
            assert vertex.sum() == 0
            assert weight >= 0
            entries.append((numbers.setdefault(tuple(vertex.tolist()), len(numbers)), p, weight))
    splat = np.zeros((len(numbers), n_pixels))
    for number, p, weight in entries:
        splat[number, p] += weight
    found = splat
    for j in range(n):
        blur = np.eye(len(numbers))
        for (point, number), sign in itertools.product(numbers.items(), (1, -1)):
            near = numbers.get(tuple(c + sign * (1 - n * (i == j)) for i, c in enumerate(point)))
            if near is not None:
                blur[number, near] = 0.5
        found = blur @ found
    return np.asarray(splat.T @ found / (1 + 0.5**d))


@pytest.mark.parametrize(
    ("n_axes", "n_pixels", "spread"), [(1, 1, 1), (1, 30, 3), (2, 41, 1), (3, 50, 1), (5, 40, 0.5)]
)
def test_filter_matches_explicit_matrices(n_axes: int, n_pixels: int, spread: float) -> None:
    rng = np.random.default_rng(n_axes)
    features = (spread * rng.normal(size=(n_axes, n_pixels))).astype(np.float32)
    values, found = rng.normal(size=(n_pixels, 2)).astype(np.float32), np.zeros((n_pixels, 2), np.float32)
    lattice = Lattice(features, Threads(1))
    lattice.add(lattice.sums(values), found)
    np.testing.assert_allclose(found, explicit_filter(features) @ values, atol=1e-4)


def test_filter_is_close_to_a_gaussian() -> None:
    features = create_pairwise_gaussian((4, 3), (40, 36))
    lattice, one = Lattice(features, Threads(1)), np.zeros((40 * 36, 1), np.float32)
    one[20 * 36 + 18], found = 1, np.zeros_like(one)
    lattice.add(lattice.sums(one), found)
    apart = ((features - features[:, [20 * 36 + 18]]) ** 2).sum(0)
    exact = np.exp(-apart / 2)
    assert np.corrcoef(found[:, 0], exact)[0, 1] > 0.98
    assert (found[:, 0] @ apart) / found.sum() == pytest.approx((exact @ apart) / exact.sum(), rel=0.05)  # variance


def test_result_does_not_depend_on_the_number_of_threads() -> None:
    features, found = np.random.default_rng(0).normal(size=(2, 5000)).astype(np.float32), []
    values = np.random.default_rng(1).normal(size=(5000, 3)).astype(np.float32)
    for n_threads in (1, 3):
        lattice, out = Lattice(features, Threads(n_threads)), np.zeros_like(values)
        lattice.add(lattice.sums(values), out)
        found.append(out)
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize(
    ("n_pixels", "n_axes", "spread"), [(1, 1, 1), (2, 1, 9), (1, 5, 1), (13, 3, 0.01), (31, 2, 1), (997, 5, 30)]
)
def test_lattice_kernels_match_the_reference(n_pixels: int, n_axes: int, spread: float) -> None:
    """997 pixels with 5 features need more points than the first table of the hash has."""
    rng = np.random.default_rng(n_pixels)
    features = (spread * rng.normal(size=(n_pixels, n_axes))).astype(np.float32)
    directions = rng.integers(-(2**62), 2**62, n_axes + 1)
    directions[-1:] -= directions.sum(keepdims=True)
    values, found = rng.normal(size=(n_pixels, 5)).astype(np.float32), {}
    for backend in ("reference", "numba"):
        points, weights = np.empty((n_pixels, n_axes + 1), np.int32), np.empty((n_pixels, n_axes + 1), np.float32)
        near = kernel_of(backend, "lattice")(features, directions, points, weights)
        sums, out = np.zeros((near.shape[1], 5), np.float32), np.zeros((n_pixels, 5), np.float32)
        begin, stop = n_pixels // 3, n_pixels
        kernel_of(backend, "splat")(points, weights, values, sums, begin, stop)
        kernel_of(backend, "gather")(points, weights, sums, out, begin, stop)
        found[backend] = (near, points, weights, sums, out)
    for expected, actual in zip(found["reference"], found["numba"], strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-5)


# pydensecrf


# Probabilities of the first label at four pixels, and the divergence, after two updates by pydensecrf 1.0 (commit
# 2723c7f), compiled with -ffp-contract=off: with fused operations it assigns some pixels to wrong simplices.
RECORDED: dict[tuple[str, str], tuple[list[float], float]] = {
    ("number", "NO_NORMALIZATION"): ([0.0, 0.0, 0.0, 0.0], -11215.2185),
    ("number", "NORMALIZE_BEFORE"): ([0.072061, 0.043949, 0.078953, 0.538995], -458.9437),
    ("number", "NORMALIZE_AFTER"): ([0.064726, 0.036947, 0.065657, 0.454943], -463.5926),
    ("number", "NORMALIZE_SYMMETRIC"): ([0.070062, 0.040777, 0.072409, 0.505965], -457.2365),
    ("vector", "NORMALIZE_SYMMETRIC"): ([0.703448, 0.629929, 0.792441, 0.965492], -605.2772),
    ("matrix", "NORMALIZE_SYMMETRIC"): ([0.124489, 0.038888, 0.039757, 0.351313], -198.1262),
}
COMPAT: dict[str, Any] = {"number": 3.0, "vector": np.array([-3, -1, 0.5], np.float32)}
COMPAT["matrix"] = np.array([[0, 2, 1], [3, 0, 1], [0, 1, -1]], np.float32)
PIXELS = [0, 20, 67, 125]


@pytest.mark.parametrize(("form", "normalization"), list(RECORDED))
def test_result_equals_that_of_pydensecrf(form: str, normalization: str) -> None:
    crf = crf_with_unary()
    how: Any = {"compat": COMPAT[form], "normalization": dcrf.NormalizationType[normalization]}
    crf.addPairwiseGaussian(sxy=(3, 2), **how)
    crf.addPairwiseBilateral(sxy=(8, 6), srgb=(13, 10, 11), rgbim=image(), **how)
    q, *rest = crf.startInference()
    crf.stepInference(q, *rest)
    crf.stepInference(q, *rest)
    np.testing.assert_array_equal(q, crf.inference(2))
    probability, divergence = RECORDED[form, normalization]
    np.testing.assert_allclose(q[0, PIXELS], probability, atol=2e-5)
    assert crf.klDivergence(q) == pytest.approx(divergence, rel=1e-5)


# bad input


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda crf: crf.setUnaryEnergy(energies().T), (f"u has shape ({H * W}, {K})", f"({K}, {H * W})")),
        (lambda crf: crf.addPairwiseGaussian(sxy=0, compat=1), ("sxy is 0",)),
        (lambda crf: crf.addPairwiseGaussian(sxy=(1, 2, 3), compat=1), ("sxy is (1, 2, 3)", "2 of them")),
        (lambda crf: crf.addPairwiseGaussian(sxy=1, compat=[1.0, 2.0]), ("compat is", f"({K},)")),
        (lambda crf: crf.addPairwiseGaussian(sxy=1, compat=math.nan), ("compat is nan",)),
        (lambda crf: crf.setUnaryEnergy(np.full((K, H * W), np.nan)), ("u holds NaN",)),
        (lambda crf: crf.stepInference(np.zeros((K, 2))), (f"Q has shape ({K}, 2)", f"({K}, {H * W})")),
        (lambda crf: crf.addPairwiseBilateral(1, 1, image()[:-1], 1), ("rgbim has shape", f"({H}, {W}, channels)")),
        (lambda crf: crf.addPairwiseBilateral(1, (1, 2), image(), 1), ("schan is (1, 2)", "3 of them")),
        (lambda crf: crf.addPairwiseEnergy(np.zeros((H * W, 2)), 1), ("features has shape", f"(d, {H * W})")),
        (lambda crf: crf.addPairwiseEnergy(np.full((2, H * W), np.inf), 1), ("features holds", "expected smaller")),
        (lambda crf: crf.inference(-1), ("niter is -1",)),
        (lambda crf: dcrf.DenseCRF2D(W, H, K).inference(1), ("setUnaryEnergy",)),
        (lambda crf: unary_from_softmax(np.array([[0.5], [-0.1]])), ("sm holds a negative number",)),
        (lambda crf: unary_from_softmax(np.ones((2, 3)), scale=2), ("scale is 2",)),
        (lambda crf: unary_from_softmax(np.eye(2), clip=None), ("sm holds 0",)),
        (lambda crf: unary_from_labels(np.array([0, 4]), 3, 0.5), ("labels run from 0 to 4", "0 to 3")),
        (lambda crf: unary_from_labels(np.array([0]), 3, 1.0), ("gt_prob is 1.0",)),
        (lambda crf: create_pairwise_gaussian((1, 1, 1), (3, 4)), ("sdims is (1, 1, 1)", "2 of them")),
        (lambda crf: create_pairwise_bilateral((1, 1), 1, image()), ("img has shape", "chdim=-1")),
    ],
)
def test_bad_input_is_refused(call: Any, parts: tuple[str, ...]) -> None:
    with pytest.raises((lp.InputError, lp.errors.InputTypeError)) as refusal:
        call(crf_with_unary())
    for part in parts:
        assert part in str(refusal.value)


ODD: Any = {"word": "word", "number": 9.5}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda crf: dcrf.DenseCRF2D(W, ODD["number"], K), "h is 9.5, expected a whole number"),
        (lambda crf: crf.setUnaryEnergy("energies"), "u is a str"),
        (lambda crf: crf.setUnaryEnergy(energies() * 1j), "u has dtype complex64"),
        (lambda crf: crf.addPairwiseGaussian(sxy="3", compat=1), "sxy is a str"),
        (lambda crf: crf.addPairwiseGaussian(sxy=None, compat=1), "sxy is None"),
        (lambda crf: crf.addPairwiseGaussian(sxy=1, compat="potts"), "compat is a str"),
        (lambda crf: crf.addPairwiseGaussian(sxy=1, compat={}), "compat is a dict"),
        (lambda crf: crf.addPairwiseGaussian(1, 1, kernel=7), "kernel is 7, expected .* DIAG_KERNEL"),
        (lambda crf: crf.addPairwiseGaussian(1, 1, kernel="diagonal"), "kernel is 'diagonal'"),
        (lambda crf: crf.addPairwiseGaussian(1, 1, normalization="no"), "normalization is 'no'"),
        (lambda crf: crf.addPairwiseBilateral(1, "13", image(), 1), "schan is a str"),
        (lambda crf: crf.addPairwiseBilateral(1, 13, None, 1), "rgbim is None"),
        (lambda crf: crf.inference("5"), "niter is '5'"),
        (lambda crf: unary_from_softmax("p"), "sm is a str"),
        (lambda crf: unary_from_softmax(np.ones((2, 3)), scale=ODD["word"]), "scale is 'word'"),
        (lambda crf: unary_from_softmax(np.ones((2, 3)), clip=ODD["word"]), "clip is 'word'"),
        (lambda crf: unary_from_labels(np.array([0.5]), 3, 0.5), "labels are float64"),
        (lambda crf: unary_from_labels(np.array([0]), ODD["number"], 0.5), "n_labels is 9.5"),
        (lambda crf: unary_from_labels(np.array([0]), 3, ODD["word"]), "gt_prob is 'word'"),
        (lambda crf: create_pairwise_gaussian((1, 1), ODD["number"]), "shape is 9.5"),
        (lambda crf: create_pairwise_gaussian((1, 1), ODD["word"]), "shape is a str"),
        (lambda crf: create_pairwise_gaussian((1, 1), [ODD["number"], 4]), "shape is .* expected whole numbers"),
        (lambda crf: create_pairwise_bilateral((1, 1), 1, image(), chdim=9), "chdim is 9"),
        (lambda crf: create_pairwise_bilateral((1, 1), 1, image(), chdim=ODD["word"]), "chdim is 'word'"),
    ],
)
def test_wrong_types_are_refused(call: Any, message: str) -> None:
    with pytest.raises((lp.InputError, lp.errors.InputTypeError), match=message):
        call(crf_with_unary())


@pytest.mark.parametrize("features", [np.full((2, 4), 1e300), np.full((2, 4), 2e5), np.full((2, 4), np.nan)])
def test_features_that_single_precision_does_not_resolve_are_refused(features: Any) -> None:
    with pytest.raises(lp.InputError, match="features holds values outside"):
        dcrf.DenseCRF(4, 3).addPairwiseEnergy(features, 1)


def test_tiny_deviations_are_refused() -> None:
    image = np.random.default_rng(0).integers(0, 255, (64, 64, 3)).astype(np.uint8)
    with pytest.raises(lp.InputError, match="larger standard deviations"):
        dcrf.DenseCRF2D(64, 64, 3).addPairwiseBilateral(sxy=1, srgb=1e-6, rgbim=image, compat=3)


def test_infinite_energies() -> None:
    crf, energies = dcrf.DenseCRF2D(2, 2, 3), np.zeros((3, 4))
    energies[1, 2] = np.inf  # a forbidden label
    crf.setUnaryEnergy(energies)
    crf.addPairwiseGaussian(sxy=1, compat=1)
    Q = crf.inference(3)
    assert Q[1, 2] == 0
    assert np.isfinite(crf.klDivergence(Q))
    for bad in (np.inf, -np.inf):
        with pytest.raises(lp.InputError, match="expected one that is finite"):
            crf.setUnaryEnergy(np.full((3, 4), bad))
