"""`locpmap.compat`: pydensecrf's interface, compared with closed forms and with an explicit dense model."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import locpmap as lp
import locpmap.compat.densecrf as dcrf
from locpmap.compat import kernels
from locpmap.compat.utils import (
    create_pairwise_bilateral,
    create_pairwise_gaussian,
    unary_from_labels,
    unary_from_softmax,
)
from locpmap.graphs.grid import ends_of

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
    assert found.flags.c_contiguous
    np.testing.assert_allclose(found, softmax(-energies()), atol=1e-6)


def test_two_pixels_follow_the_mean_field_updates() -> None:
    """Update the first pixel from the softmax of the second, then the second from the new value of the first."""
    unary = energies(1, (1, 2))
    crf = dcrf.DenseCRF2D(2, 1, K)
    crf.setUnaryEnergy(unary)
    crf.addPairwiseGaussian(sxy=2.0, compat=3.0)
    k = math.exp(-0.5 / 4)
    weight = 3 * k / (1 + k)  # normalised by the pixel itself and its one neighbour
    q = softmax(-unary)
    q[:, 0] = softmax(-unary[:, 0] + weight * q[:, 1])
    q[:, 1] = softmax(-unary[:, 1] + weight * q[:, 0])
    np.testing.assert_allclose(crf.inference(1), q, atol=1e-5)


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
    for compat in (2.0, np.full(K, -2.0), -2 * np.eye(K), 2 * (1 - np.eye(K))):
        crf = crf_with_unary()
        crf.addPairwiseGaussian(sxy=2, compat=compat)
        crf.addPairwiseBilateral(sxy=4, srgb=10, rgbim=image(), compat=1.0)
        results.append(crf.inference(4))
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], atol=1e-4)


def test_kernels_of_utils_equal_those_of_the_methods() -> None:
    direct, by_utils = crf_with_unary(), crf_with_unary()
    direct.addPairwiseGaussian(sxy=(3, 2), compat=2)
    direct.addPairwiseBilateral(sxy=(6, 5), srgb=(9, 10, 11), rgbim=image(), compat=4)
    by_utils.addPairwiseEnergy(create_pairwise_gaussian((2, 3), (H, W)), compat=2)
    by_utils.addPairwiseEnergy(create_pairwise_bilateral((5, 6), (9, 10, 11), image(), chdim=2), compat=4)
    np.testing.assert_array_equal(direct.inference(3), by_utils.inference(3))


# the dense kernel


def test_masses_sum_to_the_gaussian() -> None:
    """Compare with the sum over a half-plane: half of 2πσ² without the pixel itself."""
    for spread in ((3.0, 3.0), (2.0, 6.0)):
        steps = kernels.spiral(spread, (80, 80), 10)
        masses = kernels.masses_of(steps, spread, (80, 80))
        assert masses.min() > 0
        assert masses.sum() == pytest.approx((2 * math.pi * spread[0] * spread[1] - 1) / 2, rel=0.02)


def test_mass_is_assigned_to_the_nearest_step_or_its_opposite() -> None:
    spread, steps = (2.0, 3.0), [(0, 3), (1, -4), (3, 2)]
    expected = np.zeros(3)
    for down, right in itertools.product(range(-7, 8), range(-10, 11)):
        if (down, right) != (0, 0):
            apart = [
                min((down - sign * r) ** 2 / 4 + (right - sign * c) ** 2 / 9 for sign in (1, -1)) for r, c in steps
            ]
            expected[np.argmin(apart)] += (
                math.exp(-(down**2) / 8 - right**2 / 18) / 2
            )  # half, since both half-planes are summed
    np.testing.assert_allclose(kernels.masses_of(steps, spread, (99, 99)), expected, rtol=1e-6)


def test_bilateral_weights_are_normalised_at_both_ends() -> None:
    """Compare with ``w_ij = m_ij / sqrt(n_i n_j)``, ``n_i = 1 + Σ_j m_ij``, for random colours."""
    guide = np.random.default_rng(0).normal(size=(2, 7, 8)).astype(np.float32)
    spread = (3.0, 3.0)
    found = kernels.Kernel(spread, (7, 8), guide).weights()
    masses = dict(zip(found, kernels.masses_of(list(found), spread, (7, 8)), strict=True))
    m = np.zeros((7, 8, 7, 8))
    for (down, right), mass in masses.items():
        for r, c in itertools.product(range(7 - down), range(max(0, -right), min(8, 8 - right))):
            apart = ((guide[:, r, c] - guide[:, r + down, c + right]) ** 2).sum()
            m[r, c, r + down, c + right] = m[r + down, c + right, r, c] = mass * math.exp(-apart / 2)
    n = 1 + m.sum((2, 3))
    expected = m / np.sqrt(n[:, :, None, None] * n)
    for (down, right), weights in found.items():
        left = max(0, -right)
        for r, c in np.ndindex(weights.shape):
            assert weights[r, c] == pytest.approx(expected[r, c + left, r + down, c + left + right], rel=1e-5)


def test_steps_are_valid_for_the_grid_and_the_image() -> None:
    for shape, n in itertools.product([(1, 1), (1, 9), (9, 1), (3, 4), (60, 80)], [1, 4, 24]):
        steps = kernels.spiral((30.0, 30.0), shape, n)
        assert all(down < shape[0] and abs(right) < shape[1] for down, right in steps)
        assert bool(steps) == (shape != (1, 1))
        if steps:
            lp.graphs.Grid(*shape, tuple(steps))  # raises for invalid steps


def test_weights_of_a_pixel_sum_to_one_with_its_own() -> None:
    """Check pixels far from the border of a uniform image, whose own weight is left out."""
    shape = (60, 70)
    for guide in (None, np.zeros((3, *shape), np.float32)):
        total = np.zeros(shape)
        for step, weights in kernels.Kernel((4.0, 4.0), shape, guide).weights().items():
            for end in ends_of(step, *shape):
                total[end] += weights
        own = 1 / (2 * math.pi * 16)
        np.testing.assert_allclose(total[20:-20, 20:-20], 1 - own, atol=2e-3)


def dense_mean_field(unary: Array, rgb: Array, n: int) -> Array:
    """Run mean field on the fully connected model, with an explicit matrix of pairs and red-black updates."""
    shape = rgb.shape[:2]
    rows, columns = (index.ravel() for index in np.indices(shape))
    apart = (rows[:, None] - rows) ** 2 + (columns[:, None] - columns) ** 2
    colour = ((rgb.reshape(-1, 1, 3).astype(float) - rgb.reshape(1, -1, 3)) ** 2).sum(-1)
    total = np.zeros((len(rows), len(rows)))
    for kernel, compat in ((np.exp(-apart / 18), 3), (np.exp(-apart / 200 - colour / 338), 5)):
        norm = 1 / np.sqrt(kernel.sum(1))
        total += compat * kernel * norm[:, None] * norm
    np.fill_diagonal(total, 0)
    q, red = softmax(-unary), (rows + columns) % 2 == 0
    for _, colour_class in itertools.product(range(n), (red, ~red)):
        q[:, colour_class] = softmax(-unary + q @ total)[:, colour_class]
    return q


def test_result_is_close_to_the_dense_model() -> None:
    """Compare labels and probabilities with the fully connected model, and with the unaries alone."""
    shape = (24, 32)
    truth = np.where(np.arange(shape[1]) < shape[1] // 2, 0, 1) + np.zeros(shape, int)
    unary = -2 * np.eye(K)[truth].reshape(-1, K).T + 1.2 * energies(3, shape)
    rgb = image(1, shape)
    expected = dense_mean_field(unary, rgb, 5)
    crf = dcrf.DenseCRF2D(shape[1], shape[0], K)
    crf.setUnaryEnergy(unary)
    crf.addPairwiseGaussian(sxy=3, compat=3)
    crf.addPairwiseBilateral(sxy=10, srgb=13, rgbim=rgb, compat=5)
    found = crf.inference(5)
    assert (found.argmax(0) == expected.argmax(0)).mean() > 0.99
    ours, alone = (np.abs(q - expected).sum(0).mean() for q in (found, softmax(-unary)))
    assert ours < alone / 5


def test_potentials_can_be_passed_to_any_decoder() -> None:
    crf = crf_with_unary()
    crf.addPairwiseBilateral(sxy=4, srgb=13, rgbim=image(), compat=3)
    result = lp.infer(crf.potentials(), "locpmap", n_samples=20, seed=0)
    assert result.labels.shape == (H, W)
    swept = lp.infer(crf.potentials(), "mean_field", max_sweeps=5, start="unary")
    np.testing.assert_array_equal(swept.probability.reshape(-1, K).T, crf.inference(5))


# bad input


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda crf: crf.setUnaryEnergy(energies().T), (f"u has shape ({H * W}, {K})", f"({K}, {H * W})")),
        (lambda crf: crf.addPairwiseGaussian(sxy=0, compat=1), ("sxy is 0",)),
        (lambda crf: crf.addPairwiseGaussian(sxy=(1, 2, 3), compat=1), ("sxy is (1, 2, 3)", "two numbers")),
        (lambda crf: crf.addPairwiseGaussian(sxy=1, compat=[1.0, 2.0]), ("compat is", f"({K},)")),
        (lambda crf: crf.addPairwiseGaussian(sxy=1, compat=math.nan), ("compat is nan",)),
        (lambda crf: crf.addPairwiseGaussian(1, np.triu(np.ones((K, K)))), ("compat is not symmetric",)),
        (lambda crf: crf.addPairwiseGaussian(1, 1, normalization=dcrf.NO_NORMALIZATION), ("NORMALIZE_SYMMETRIC",)),
        (lambda crf: crf.addPairwiseBilateral(1, 1, image()[:-1], 1), ("rgbim has shape", f"({H}, {W}, channels)")),
        (lambda crf: crf.addPairwiseBilateral(1, (1, 2), image(), 1), ("schan is (1, 2)", "3 of them")),
        (lambda crf: crf.addPairwiseEnergy(np.zeros((2, H * W)), 1), ("features is a ndarray", "create_pairwise")),
        (lambda crf: crf.addPairwiseEnergy(create_pairwise_gaussian((1, 1), (W, H)), 1), (f"({W}, {H})",)),
        (lambda crf: crf.inference(-1), ("niter is -1",)),
        (lambda crf: dcrf.DenseCRF2D(W, H, K).inference(1), ("setUnaryEnergy",)),
        (lambda crf: unary_from_softmax(np.array([[0.5], [-0.1]])), ("sm holds a negative number",)),
        (lambda crf: unary_from_softmax(np.ones((2, 3)), scale=2), ("scale is 2",)),
        (lambda crf: unary_from_softmax(np.eye(2), clip=None), ("sm holds 0",)),
        (lambda crf: unary_from_labels(np.array([0, 4]), 3, 0.5), ("labels run from 0 to 4", "0 to 3")),
        (lambda crf: unary_from_labels(np.array([0]), 3, 1.0), ("gt_prob is 1.0",)),
        (lambda crf: create_pairwise_gaussian((1, 1, 1), (3, 4, 5)), ("sdims", "two dimensions")),
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
        (lambda crf: create_pairwise_gaussian((1, 1), [ODD["number"], 4]), "shape is .* expected .* whole numbers"),
        (lambda crf: create_pairwise_bilateral((1, 1), 1, image(), chdim=9), "chdim is 9"),
        (lambda crf: create_pairwise_bilateral((1, 1), 1, image(), chdim=ODD["word"]), "chdim is 'word'"),
    ],
)
def test_wrong_types_are_refused(call: Any, message: str) -> None:
    with pytest.raises((lp.InputError, lp.errors.InputTypeError), match=message):
        call(crf_with_unary())
