"""`lp.refine` and its parts: layouts, resizing, colour similarity, guided means, the model, bad input."""

from __future__ import annotations

import re
from dataclasses import replace
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import locpmap as lp
from locpmap.errors import InputError, InputTypeError
from locpmap.formats.model_file import write_model
from locpmap.kernels.cpu.dispatch import kernel_of
from locpmap.kernels.threads import ranges
from locpmap.refining import scoring
from locpmap.refining.guiding import STEPS, guided_log_mean
from locpmap.refining.model import resize, similarity
from locpmap.refining.reading import READING, adapt, read
from locpmap.refining.weights import Weights

torch = pytest.importorskip("torch")
Array = npt.NDArray[Any]
H, W, K = 20, 28, 4


def scene(seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (H, W, 3)).astype(np.uint8), rng.normal(size=(H, W, K)).astype(np.float32)


def coupled(strides: Any = (1.0,), scale: float = 0.8) -> lp.Refiner:
    """Return a refiner in which all weights are positive."""
    n = len(strides)
    pairwise = np.broadcast_to([[0.1, 0.6], [0.2, 0.5]], (n, 2, 2))
    own, guided = np.full(n, 0.7), np.full(n, 0.4)
    return lp.Refiner(Weights(np.array(strides), np.full(n, scale), own, guided, pairwise, np.array([0.7, 0.8])))


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# parts


@pytest.mark.parametrize(("h", "w"), [(5, 7), (1, 1), (10, 14), (20, 28), (7, 28), (3, 4)])
def test_resize_matches_torch(h: int, w: int) -> None:
    small = np.random.default_rng(0).normal(size=(2, h, w, K)).astype(np.float32)
    tensor = torch.from_numpy(small).movedim(-1, 1)
    expected = torch.nn.functional.interpolate(tensor, size=(H, W), mode="bilinear", align_corners=False)
    np.testing.assert_allclose(resize(small, H, W), expected.movedim(1, -1).numpy(), atol=1e-5)


def test_resize_matches_skimage() -> None:
    transform = pytest.importorskip("skimage.transform")
    small = np.random.default_rng(0).normal(size=(5, 7, 2))
    expected = transform.resize(small, (20, 28), order=1, mode="edge", anti_aliasing=False)
    np.testing.assert_allclose(resize(small[None], 20, 28)[0], expected, atol=1e-6)


@pytest.mark.parametrize("step", [(0, 1), (1, 0), (2, -3)])
def test_similarity_matches_its_definition(step: tuple[int, int]) -> None:
    image = np.random.default_rng(0).random((2, 3, 6, 7)).astype(np.float32)
    found, (dr, dc) = similarity(image, step), step
    for n in range(2):
        pairs = {
            (r, c): ((image[n, :, r, c] - image[n, :, r + dr, c + dc]) ** 2).sum()
            for r in range(6 - dr)
            for c in range(max(0, -dc), 7 - max(0, dc))
        }
        mean = np.mean(list(pairs.values()))
        for (r, c), square in pairs.items():
            assert found[n, r, c - max(0, -dc)] == pytest.approx(np.exp(-square / (2 * mean)), rel=1e-5)


@pytest.mark.parametrize("hidden", [False, True])
def test_guided_mean_matches_its_definition(hidden: bool) -> None:
    rng = np.random.default_rng(0)
    image, scores = rng.random((2, 3, 70, 15)), rng.normal(size=(2, 70, 15, K))
    scores[:, :, :, 1][rng.random((2, 70, 15)) < 0.2] = -np.inf
    masked = rng.random((2, 70, 15)) < 0.3 if hidden else None
    found = guided_log_mean(scores, image, masked)
    assert len({tuple(step) for step in STEPS}) == 32
    assert (np.hypot(*STEPS.T).round() // 8).tolist() == np.repeat([1, 2, 4, 8], 8).tolist()
    for n in range(2):
        seen = np.ones((70, 15), bool) if masked is None else ~masked[n]
        variance = image[n][:, seen].var(axis=1).sum()
        for r, c in ((0, 0), (35, 7), (69, 14), (66, 12)):
            total, weights = softmax(scores[n, r, c]), 1.0
            for dr, dc in STEPS:
                if 0 <= r + dr < 70 and 0 <= c + dc < 15 and (masked is None or not masked[n, r + dr, c + dc]):
                    square = ((image[n, :, r, c] - image[n, :, r + dr, c + dc]) ** 2).sum()
                    weight = np.exp(-square / (0.1 * variance))
                    total, weights = total + weight * softmax(scores[n, r + dr, c + dc]), weights + weight
            np.testing.assert_allclose(np.exp(found[n, r, c]), (total / weights).clip(1e-6), rtol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (67, 3), (20, 33)])
@pytest.mark.parametrize("n_channels", [1, 3])
def test_guided_mean_matches_the_reference_kernel(shape: tuple[int, int], n_channels: int) -> None:
    rng = np.random.default_rng(1)
    height, width = shape
    values, image = rng.random((height, 5, width), np.float32), rng.random((n_channels, *shape), np.float32)
    counted = rng.random(shape) < 0.7
    found: dict[str, Array] = {}
    for name in ("reference", "numba"):
        found[name] = np.zeros((*shape, 5), np.float32)
        for begin, stop in ranges(height, 3):
            given = (values, image, counted, STEPS, np.float32(2.5), found[name], begin, stop)
            kernel_of(name, "guided_mean")(*given)
    np.testing.assert_allclose(found["numba"], found["reference"], rtol=2e-6)


@pytest.mark.parametrize("shape", [(1, 1), (7, 2), (65, 21), (128, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_matches_the_reference_kernel(shape: tuple[int, int], dtype: Any) -> None:
    rng = np.random.default_rng(2)
    scores = (20 * rng.normal(size=shape)).astype(dtype)
    scores[rng.random(shape) < 0.2] = -np.inf
    scores[-1] = -2e38  # as all scores of a row may be
    scores[0] = -np.inf
    exact = np.empty_like(scores)
    kernel_of("reference", "softmax_rows")(scores, exact)
    assert not exact[0].any()
    for found in (scoring.softmax(scores), np.asarray(scoring.softmax(torch.from_numpy(scores)))):
        np.testing.assert_allclose(found, exact, rtol=1e-6, atol=1e-37)


def test_guided_mean_refuses_an_image_of_another_size() -> None:
    with pytest.raises(lp.errors.InputError, match=r"image has shape \(1, 3, 4, 9\)"):
        guided_log_mean(np.zeros((1, 5, 9, 2)), np.zeros((1, 3, 4, 9)))


def test_tensors_give_the_same_values_as_arrays() -> None:
    """Check the tensor code that a GPU runs."""
    rng = np.random.default_rng(0)
    image, scores = rng.random((2, 3, 12, 15)).astype(np.float32), rng.normal(size=(2, 12, 15, K)).astype(np.float32)
    tensors = torch.from_numpy(image), torch.from_numpy(scores)
    masked = rng.random((2, 12, 15)) < 0.3
    for hidden in (None, masked):
        tensor = guided_log_mean(tensors[1], tensors[0], None if hidden is None else torch.from_numpy(hidden))
        np.testing.assert_allclose(tensor.numpy(), guided_log_mean(scores, image, hidden), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(similarity(tensors[0], (0, 1)).numpy(), similarity(image, (0, 1)), rtol=1e-5)
    np.testing.assert_allclose(resize(tensors[1], 20, 28).numpy(), resize(scores, 20, 28), rtol=1e-5)


def test_uniform_image_gives_unweighted_means_and_similarity_one() -> None:
    image, scores = np.ones((1, 1, 31, 31)), np.random.default_rng(0).normal(size=(1, 31, 31, 2))
    ends = [(15 + r, 15 + c) for r, c in [(0, 0), *STEPS] if max(abs(r), abs(c)) <= 15]
    expected = np.log(np.mean([softmax(scores[0, r, c]) for r, c in ends], axis=0))
    np.testing.assert_allclose(guided_log_mean(scores, image)[0, 15, 15], expected)
    assert (similarity(image, (0, 1)) == 1).all()


def test_weights_are_interpolated_in_the_logarithm_of_the_stride() -> None:
    pairwise = np.arange(8.0).reshape(2, 2, 2)
    own, guided = np.array([1.0, 0.5]), np.array([0.0, 0.5])
    weights = Weights(np.array([1.0, 16.0]), np.array([1.0, 3.0]), own, guided, pairwise, np.zeros(2))
    for stride, part in ((1, 0.0), (4, 0.5), (16, 1.0), (64, 1.0)):
        *numbers, found = weights.at(stride)
        assert numbers == pytest.approx([1 + 2 * part, 1 - 0.5 * part, 0.5 * part])
        np.testing.assert_allclose(found, (1 - part) * pairwise[0] + part * pairwise[1])


# the model


def test_strength_zero_gives_the_scaled_softmax() -> None:
    image, logits = scene()
    result = coupled().adjusted(strength=0, temperature=2.0).refine(image, logits)
    np.testing.assert_allclose(result.probability, softmax(0.8 / 2.0 * logits), atol=1e-6)


def test_potentials_match_the_formula() -> None:
    image, logits = scene()
    potentials = (
        coupled().adjusted(strength=1.5, smoothing=0.3, temperature=2.0).prepare(image, logits, stride=8).potentials
    )
    planes = np.moveaxis(image, -1, 0)[None] / 255.0
    g = guided_log_mean(0.8 * logits[None].astype(float), planes)[0]
    expected = ((1 + 1.5 * (0.7 - 1)) * 0.8 * logits + 1.5 * 0.4 * g) / 2.0
    np.testing.assert_allclose(potentials.unflatten(potentials.unary), expected, rtol=1e-4, atol=1e-5)
    strong = coupled().adjusted(strength=10.0).prepare(image, logits, stride=8).potentials
    np.testing.assert_allclose(strong.unflatten(strong.unary), 10 * 0.4 * g, rtol=1e-4, atol=1e-5)  # own clipped at 0
    weights = potentials.pairwise.weights
    assert weights is not None
    for found, step, (a, b) in zip(weights, ((0, 1), (1, 0)), ((0.1, 0.6), (0.2, 0.5)), strict=True):
        like = similarity(planes, step).ravel()
        np.testing.assert_allclose(found[0], 0.75 * (a + b * like) + 0.15 * like, rtol=1e-4)


def test_permuted_labels_permute_the_potentials_and_the_labels() -> None:
    image, logits = scene()
    order = [2, 0, 3, 1]
    plain, permuted = (coupled().prepare(image, x, stride=8).potentials for x in (logits, logits[..., order]))
    np.testing.assert_allclose(permuted.unary, plain.unary[..., order], atol=1e-6)  # the order of summation differs
    first, second = (lp.infer(p, "mean_field", tolerance=1e-7).probability for p in (plain, permuted))
    np.testing.assert_allclose(second, first[..., order], atol=1e-5)


def test_batch_equals_its_single_images() -> None:
    scenes = [scene(seed) for seed in range(3)]
    images, logits = (np.stack(parts) for parts in zip(*scenes, strict=True))
    refiner = coupled()
    whole = refiner.prepare(images, logits, stride=8).potentials
    for n, (image, single) in enumerate(scenes):
        alone = refiner.prepare(image, single, stride=8).potentials
        np.testing.assert_array_equal(whole.unary[n], alone.unary[0])
        assert whole.pairwise.weights is not None
        assert alone.pairwise.weights is not None
        for a, b in zip(whole.pairwise.weights, alone.pairwise.weights, strict=True):
            np.testing.assert_array_equal(a[n], b[0])
        result = lp.infer(alone, "locpmap", probability="conditional", start="perturbed", first_image=n)
        np.testing.assert_array_equal(result.labels, refiner(images, logits, stride=8).labels[n])


def test_tensors_and_arrays_give_equal_results() -> None:
    image, logits = scene()
    tensors = torch.from_numpy(image).movedim(-1, 0), torch.from_numpy(logits).movedim(-1, 0)
    expected, found = coupled()(image, logits, stride=8), coupled()(*tensors, stride=8)
    assert torch.is_tensor(found.labels)
    assert torch.is_tensor(found.probability)
    np.testing.assert_array_equal(found.labels.numpy(), expected.labels)
    np.testing.assert_array_equal(found.probability.numpy(), expected.probability)


def test_without_image_the_typical_similarity_is_used() -> None:
    _, logits = scene()
    potentials = coupled().prepare(None, logits, layout="hwk").potentials
    assert potentials.pairwise.weights is not None
    assert [float(w[0, 0]) for w in potentials.pairwise.weights] == pytest.approx([0.1 + 0.6 * 0.7, 0.2 + 0.5 * 0.8])
    np.testing.assert_allclose(potentials.unflatten(potentials.unary), 0.8 * logits, rtol=1e-6)


def test_result_does_not_depend_on_the_value_range_of_the_image() -> None:
    image, logits = scene()
    potentials = coupled().prepare(image, logits, stride=8).potentials
    for other in (image / 255.0, image.astype(np.uint16) * 257, image * 1e30, (image / 255).astype(np.float16)):
        same = coupled().prepare(other, logits, stride=8).potentials
        np.testing.assert_allclose(same.unary, potentials.unary, atol=2e-3)


def test_result_does_not_depend_on_an_offset_of_the_image() -> None:
    """Use offsets beyond the precision of float32, per image and per channel."""
    image, logits = scene()
    potentials = coupled().prepare(image, logits, stride=8).potentials
    many = image + np.array([10**9, -(10**12), 0])
    for other in (image + 1e7, image - 1e12, many):
        same = coupled().prepare(other, logits, stride=8).potentials
        np.testing.assert_allclose(same.unary, potentials.unary, atol=1e-5)
        assert same.pairwise.weights is not None
        assert potentials.pairwise.weights is not None
        np.testing.assert_allclose(same.pairwise.weights[0], potentials.pairwise.weights[0], atol=1e-5)
    both = coupled().prepare(np.stack([image, many]), np.stack([logits] * 2), layout="hwk", stride=8).potentials
    np.testing.assert_allclose(both.unary, potentials.unary[[0, 0]], atol=1e-5)


def test_masked_pixels_are_ignored() -> None:
    image, logits = scene()
    mask = np.zeros((H, W), bool)
    mask[:5] = True
    result = coupled()(image, logits, mask=mask)
    assert (result.labels[:5] == -1).all()
    assert (result.labels[5:] >= 0).all()


def test_forbidden_labels_stay_forbidden() -> None:
    image, logits = scene()
    logits[..., 2] = -np.inf
    result = coupled()(image, logits, stride=8)
    assert (result.probability[..., 2] == 0).all()


def test_coarse_logits_are_sharpened_along_image_edges() -> None:
    truth = np.zeros((64, 64), int)
    truth[:, 29:] = 1
    image = np.where(truth, 200, 20).astype(np.uint8)
    coarse = 4 * np.eye(2)[truth].reshape(8, 8, 8, 8, 2).mean(axis=(1, 3))
    plain = resize(coarse[None].astype(np.float32), 64, 64)[0].argmax(-1)
    assert (plain != truth).any()
    assert (lp.refine(image, coarse).labels == truth).all()
    assert (lp.refine(None, coarse, layout="hwk").labels.shape) == (8, 8)


def test_without_coupling_one_sample_is_enough() -> None:
    image, logits = scene()
    zero = Weights(np.ones(1), np.ones(1), np.ones(1), np.full(1, 0.4), np.zeros((1, 2, 2)), np.zeros(2))
    found = lp.Refiner(zero)(image, logits, stride=8)
    potentials = lp.Refiner(zero).prepare(image, logits, stride=8).potentials
    many = lp.infer(potentials, "locpmap", n_samples=50, probability="conditional", start="perturbed")
    assert found.n_samples == 1
    assert coupled()(image, logits).n_samples == 50
    np.testing.assert_allclose(found.probability, many.probability, atol=1e-6)
    np.testing.assert_array_equal(found.labels, many.labels)


# the bundled model, files


def test_bundled_model_documents_its_training(tmp_path: Path) -> None:
    refiner = lp.Refiner.load()
    assert refiner.details["data"].startswith("Stanford Background, MSRC")
    assert "benchmarks.arena learn" in refiner.details["command"]
    assert refiner.weights.strides.tolist() == [1, 8, 16]
    refiner.save(tmp_path / "copy.safetensors")
    again = lp.Refiner.load(tmp_path / "copy.safetensors")
    assert again.details == refiner.details
    assert repr(again) == repr(refiner)
    image, logits = scene()
    by_path = lp.refine(image, logits, tmp_path / "copy.safetensors")
    np.testing.assert_array_equal(by_path.probability, lp.refine(image, logits).probability)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    write_model(path, {}, {"kind": "crf"})
    with pytest.raises(InputError, match="holds a 'crf', expected a 'refiner'"):
        lp.Refiner.load(path)
    arrays = {"strides": np.ones(1), "scales": np.ones(2), "own": np.ones(1), "guided": np.zeros(1)}
    arrays |= {"pairwise": np.zeros((1, 2, 2)), "typical": np.zeros(2)}
    write_model(path, arrays, {"kind": "refiner", "details": {}})
    with pytest.raises(InputError, match="malformed"):
        lp.Refiner.load(path)
    write_model(path, {"strides": np.ones(1), "scales": np.ones(1)}, {"kind": "refiner", "details": {}})
    with pytest.raises(InputError, match=r"malformed \(it has no own\)"):
        lp.Refiner.load(path)
    with pytest.raises(InputError, match="missing"):
        lp.refine(*scene(), "missing.safetensors")


# layouts and kinds of scores


@pytest.mark.parametrize(
    ("image", "logits", "layout"),
    [
        ((20, 28, 3), (20, 28, 4), "hwk"),
        ((20, 28, 3), (4, 20, 28), "khw"),
        ((20, 28), (20, 28, 4), "hwk"),
        ((80, 112, 3), (20, 28, 4), "hwk"),
        ((80, 112, 3), (4, 20, 28), "khw"),
        ((3, 80, 112), (4, 20, 28), "khw"),  # channels first, in NumPy
        ((33, 33, 3), (5, 5, 21), "hwk"),  # a feature map padded by one
        ((1, 28, 3), (1, 28, 4), "hwk"),
        ((20, 28, 9), (20, 28, 4), "hwk"),  # many channels
    ],
)
def test_layouts_are_detected(image: Any, logits: Any, layout: str) -> None:
    rng = np.random.default_rng(0)
    given = read(rng.random(image), rng.normal(size=logits))
    expected = logits if layout == "hwk" else (*logits[1:], logits[0])
    assert given.scores.shape == (1, *expected)
    size = image[1:] if image[0] == 3 else image[:2]
    assert given.shape == size


@pytest.mark.parametrize("shape", [(64, 64, 8), (8, 64, 64)])
def test_layouts_are_detected_without_an_image(shape: tuple[int, ...]) -> None:
    assert read(None, np.zeros(shape) - np.arange(shape[-1])).scores.shape == (1, 64, 64, 8)


def test_ambiguous_layouts_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match=r"may be \(H, W, K\) or \(K, H, W\): specify layout="):
        read(rng.random((8, 8)), rng.normal(size=(8, 8, 8)))
    with pytest.raises(InputError, match="specify layout="):
        read(None, rng.normal(size=(20, 16, 16)))
    assert read(rng.random((8, 8)), rng.normal(size=(8, 8, 8)), "khw").scores.shape == (1, 8, 8, 8)


def test_scores_that_look_like_something_else_are_named() -> None:
    rng = np.random.default_rng(0)
    image, p = np.zeros((9, 12)), rng.dirichlet(np.ones(3), (9, 12))
    with pytest.warns(UserWarning, match='sums to 1 over the labels like probabilities: pass scores="probabilities"'):
        lp.refine(image, p, scores="logits")
    with pytest.warns(UserWarning, match=r"lies in \[0, 1\] and does not sum to 1"):
        lp.refine(image, rng.random((9, 12, 3)))
    lp.refine(image, rng.random((9, 12, 3)), scores="logits")  # no warning: the caller states it
    with pytest.raises(InputError, match="whole numbers like a label map"):
        lp.refine(image, rng.integers(0, 3, (9, 12)))


def test_probabilities_are_detected() -> None:
    image, logits = scene()
    p = softmax(logits)
    plain = coupled()(image, logits)
    for given, scores in ((p, "auto"), (p, "probabilities"), (p.astype(np.float16), "auto")):
        np.testing.assert_allclose(coupled()(image, given, scores=scores).probability, plain.probability, atol=5e-3)
    with pytest.warns(UserWarning, match="like probabilities"):
        as_logits = read(image, p, scores="logits").scores[0]
    np.testing.assert_array_equal(as_logits, p.astype(np.float32))
    hard = np.eye(K)[logits.argmax(-1)]
    assert read(image, hard).scores.min() == pytest.approx(np.log(1e-6))


def test_outputs_of_network_libraries_are_accepted() -> None:
    image, logits = scene()
    first = np.moveaxis(logits, -1, 0)[None]
    expected = coupled()(image, logits).labels
    for output in (
        SimpleNamespace(logits=first),
        {"logits": first},
        {"out": first, "aux": None},
        torch.from_numpy(first),
    ):
        np.testing.assert_array_equal(np.asarray(coupled()(image, output).labels), expected)
    assert adapt({"out": first})[1] == "khw"


# bad input

IMAGE, LOGITS = scene()
WITH_NAN = LOGITS.copy()
WITH_NAN[3, 4, 1] = np.nan
NO_LABEL = LOGITS.copy()
NO_LABEL[2, 2] = -np.inf
BAD_IMAGE = np.full((H, W), np.nan)


@pytest.mark.parametrize(
    ("image", "logits", "options", "words"),
    [
        (IMAGE, WITH_NAN, {}, "logits contains nan"),
        (IMAGE, LOGITS + np.inf, {}, "logits contains nan, inf or a number above 1e37"),
        (IMAGE, LOGITS + 2e37, {}, "a number above 1e37"),  # times a scale, it could be infinite
        (IMAGE, NO_LABEL, {}, "-inf for every label"),
        (IMAGE, LOGITS[..., :1], {}, "one label, expected at least two"),
        (IMAGE, LOGITS[..., :0], {}, "logits is empty"),
        (IMAGE[:0], LOGITS, {}, "image is empty"),
        (IMAGE, LOGITS[0], {}, "expected .H, W, K. or"),
        (IMAGE, LOGITS[:, :9], {}, "like the image"),
        (IMAGE[:10], LOGITS, {}, "like the image"),
        (IMAGE[0], LOGITS, {}, "like the image"),
        (IMAGE[None, None], LOGITS, {}, "image has shape"),
        (np.stack([IMAGE] * 3), np.stack([LOGITS] * 2), {}, "image holds 3 images, expected 2"),
        (BAD_IMAGE, LOGITS, {}, "image contains a number that is not finite"),
        (IMAGE, np.where(np.arange(K), LOGITS, -np.inf)[::4, ::4], {}, "to resize"),
        (IMAGE, LOGITS, {"scores": "probabilities"}, "does not hold probabilities"),
        (IMAGE, LOGITS, {"layout": "hkw"}, "unknown layout 'hkw': did you mean '"),
        (IMAGE, LOGITS, {"scores": "logit"}, "did you mean 'logits'"),
        (IMAGE, LOGITS, {"stride": 0.5}, "stride"),
        (IMAGE, LOGITS, {"decoder": "locpamp"}, "did you mean 'locpmap'"),
        (np.ma.masked_equal(np.round(IMAGE), 0), LOGITS, {}, "image is a masked array.* pass a mask as mask="),
        (IMAGE, np.ma.masked_less(LOGITS, 0), {}, "logits is a masked array.* pass a mask as mask="),
        (IMAGE, LOGITS, {"seed": -1}, "seed"),
        (IMAGE, LOGITS, {"mask": np.zeros((H, W))}, "mask has dtype"),
        (IMAGE, LOGITS, {"mask": np.zeros((W, H), bool)}, "mask has shape"),
        (IMAGE, LOGITS, {"mask": np.ones((H, W), bool)}, "mask ignores every site"),
        (IMAGE, {"scores": LOGITS}, {}, "expected 'logits' or 'out'"),
    ],
)
def test_bad_input_raises_a_one_line_error(image: Any, logits: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        lp.refine(image, logits, **options)
    assert "\n" not in str(caught.value)


TENSOR = torch.zeros(8, 8, 3)
ODD_TENSORS = {
    "layout torch.sparse_coo": lambda: TENSOR.to_sparse(),
    "quantized": lambda: torch.quantize_per_tensor(TENSOR, 0.1, 0, torch.qint8),
    "device meta": lambda: TENSOR.to("meta"),
    "nested": lambda: torch.nested.nested_tensor([TENSOR[0], TENSOR[1, :5]]),
}


@pytest.mark.filterwarnings("ignore")  # torch warns about these tensors
@pytest.mark.parametrize("words", ODD_TENSORS)
def test_tensors_without_real_numbers_are_refused(words: str) -> None:
    odd = ODD_TENSORS[words]()
    with pytest.raises(InputTypeError, match=f"logits is a tensor .*{words}"):
        lp.refine(None, odd, layout="hwk")
    with pytest.raises(InputTypeError, match=f"image is a tensor .*{words}"):
        lp.refine(odd, TENSOR, layout="hwk")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((IMAGE, "logits.npy"), "logits"), (("photo.png", LOGITS), "image"), ((IMAGE, LOGITS, 3), "model is a int")],
)
def test_wrong_types_are_refused(arguments: Any, words: str) -> None:
    with pytest.raises(InputTypeError, match=words):
        lp.refine(*arguments)


@pytest.mark.parametrize(
    "logits", [np.asfortranarray(LOGITS), LOGITS[::-1][::-1], LOGITS.astype(np.float64), LOGITS.astype(">f4")]
)
def test_any_memory_layout_and_dtype_is_accepted(logits: Array) -> None:
    frozen = logits.copy() if logits.flags.owndata else logits
    frozen.flags.writeable = False
    np.testing.assert_array_equal(coupled()(IMAGE, frozen).labels, coupled()(IMAGE, LOGITS).labels)


def test_hundreds_of_labels_are_accepted() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(8, 9, 300))
    assert coupled()(rng.random((8, 9)), logits).probability.shape == (8, 9, 300)


def test_integer_scores_and_grey_and_rgba_images_are_accepted() -> None:
    whole = np.round(LOGITS * 3).astype(int)
    rgba = np.concatenate([IMAGE, np.full((H, W, 1), 255, np.uint8)], axis=2)
    for image in (IMAGE[..., 0], rgba, IMAGE[..., 0] > 128, IMAGE[..., 0].astype(np.uint16) * 257):
        assert lp.refine(image, whole).labels.shape == (H, W)


PERTURBED = lp.LocPMAP(n_samples=12, start="perturbed")


def test_measure_uses_the_learned_shared_error() -> None:
    rng = np.random.default_rng(0)
    image, logits = rng.random((64, 96, 3)), rng.normal(size=(8, 12, 5))
    plain = coupled((1.0, 16.0))
    shared = lp.Refiner(replace(plain.weights, shared=np.array([0.0, 2.0])))
    found = shared.adjusted(temperature=2.0).measure(image, logits, "area", PERTURBED, seed=3)
    potentials = plain.adjusted(temperature=2.0).prepare(image, logits).potentials
    at_stride_8 = 2.0 * np.log(8) / np.log(16)
    decoder = replace(PERTURBED, fields=lp.ErrorFields(shared=at_stride_8 / 2))
    expected = lp.measure(potentials, "area", decoder, seed=3)
    np.testing.assert_array_equal(found.values, expected.values)
    np.testing.assert_array_equal(
        plain.measure(image, logits, "area", PERTURBED, seed=3).values,
        lp.measure(plain.prepare(image, logits).potentials, "area", PERTURBED, seed=3).values,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("strength", -1),
        ("strength", 1e39),
        ("strength", "much"),
        ("smoothing", -1),
        ("smoothing", 1e39),
        ("temperature", 0),
        ("temperature", 1e-38),
        ("temperature", 1e39),
    ],
)
def test_invalid_adjustments_are_refused(name: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(f"{name} is {value!r}, expected a number")):
        lp.Refiner.load().adjusted(**{name: value})


def test_adjusted_returns_a_new_refiner_that_can_be_saved(tmp_path: Path) -> None:
    image, logits = scene()
    plain = coupled()
    smooth = plain.adjusted(smoothing=0.5, temperature=2)
    assert plain.adjustment == plain.adjusted().adjustment != smooth.adjustment
    assert "smoothing=0.5" in repr(smooth)
    smooth.save(tmp_path / "smooth.safetensors")
    again = lp.Refiner.load(tmp_path / "smooth.safetensors")
    assert (again.adjustment, again.details) == (smooth.adjustment, smooth.details)
    np.testing.assert_array_equal(again(image, logits).probability, smooth(image, logits).probability)
    assert (smooth(image, logits).probability != plain(image, logits).probability).any()


def test_refine_accepts_any_decoder() -> None:
    """Pass a decoder by name or configured; the default is LocPMAP from a perturbed start."""
    image, logits = scene()
    prepared = coupled().prepare(image, logits)
    expected = lp.infer(prepared.potentials, lp.LocPMAP(start="perturbed")).probability
    np.testing.assert_array_equal(lp.refine(image, logits, coupled()).probability, expected)
    fields = lp.infer(prepared.potentials, "mean_field").probability
    np.testing.assert_array_equal(lp.refine(image, logits, coupled(), decoder="mean_field").probability, fields)
    votes = lp.LocPMAP(n_samples=7, probability="votes")
    uncoupled = lp.refine(image, logits, decoder=votes)
    assert uncoupled.n_samples == 7
    assert (np.mod(7 * uncoupled.probability + 0.01, 1) < 0.02).all()


def test_loaded_refiners_do_not_share_details() -> None:
    mine = lp.Refiner.load()
    mine.details["data"] = "mine"
    assert lp.Refiner.load().details["data"] != "mine"


def test_image_of_one_row_is_not_a_batch() -> None:
    image, logits = scene()
    row = lp.refine(image[:1], logits[:1], layout="hwk")
    batch_of_one = lp.refine(image[:1], np.moveaxis(logits[:1], -1, 0)[None], layout="khw")
    np.testing.assert_array_equal(batch_of_one.labels, row.labels)


def test_forbidden_label_in_one_image_does_not_change_another() -> None:
    image, logits = scene()
    both = np.stack([logits, logits])
    both[1, 0, 0, 0] = -np.inf
    refiner = coupled((1.0, 16.0))
    alone = refiner(image, logits, stride=8, layout="hwk")
    together = refiner(np.stack([image, image]), both, stride=8, layout="hwk")
    np.testing.assert_array_equal(together.probability[0], alone.probability)
    assert together.probability[1, 0, 0, 0] == 0


def test_weights_are_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        lp.Refiner.load().weights.scales[:] = 0


# excluded pixels


@pytest.mark.parametrize("strength", [1.0, 10.0])
def test_masked_pixels_do_not_influence_others(strength: float) -> None:
    """Change scores and colours of masked pixels, and check that forbidden labels have probability 0."""
    image, logits = scene()
    image, mask = image.astype(np.float32), np.zeros((H, W), bool)
    mask[:7, 3:] = True
    logits[..., 2][::3] = -np.inf
    other_image, other = image.copy(), logits.copy()
    other[mask] = np.where(np.arange(K) == 1, 1e30, -np.inf)
    other[0, 5] = -np.inf
    other_image[mask] = np.random.default_rng(5).integers(0, 256, (int(mask.sum()), 3))
    how: dict[str, Any] = {"mask": mask, "seed": 1}
    for learned in (coupled(), lp.Refiner.load()):
        refiner = learned.adjusted(strength=strength, smoothing=0.3)
        first, second = (refiner.refine(*given, **how).probability for given in ((image, logits), (other_image, other)))
        np.testing.assert_allclose(second[~mask], first[~mask], atol=1e-4)
        assert not first[::3, :, 2][~mask[::3]].any()


def test_masked_colours_are_excluded_from_the_statistics() -> None:
    """Compare an image with extreme masked values to the unmasked part alone."""
    image, logits = scene()
    mask = np.zeros((H, W), bool)
    mask[:, 20:] = True
    image = np.where(mask[..., None], -9999.0, image)
    whole = coupled().adjusted(smoothing=0.3).prepare(image, logits, mask=mask).potentials
    part = coupled().adjusted(smoothing=0.3).prepare(image[:, :20], logits[:, :20]).potentials
    unary = whole.unflatten(whole.unary)[:, :20]
    np.testing.assert_allclose(unary, part.unflatten(part.unary), rtol=1e-3, atol=1e-4)
    assert whole.pairwise.weights is not None
    assert part.pairwise.weights is not None
    down = whole.pairwise.weights[1].reshape(H - 1, W)[:, :20]
    np.testing.assert_allclose(down, part.pairwise.weights[1].reshape(H - 1, 20), rtol=2e-3)


def test_own_factor_is_ignored_without_a_guided_mean() -> None:
    image, logits = scene()
    half = lp.Refiner(Weights([1.0], [2.0], own=[0.5]))
    np.testing.assert_allclose(half.refine(image, logits).probability, softmax(2 * logits), atol=1e-6)
    np.testing.assert_allclose(
        coupled().adjusted(strength=0).refine(None, logits).probability, softmax(0.8 * logits), atol=1e-6
    )
    alone = replace(coupled().weights, pairwise=np.zeros((1, 2, 2)))
    np.testing.assert_allclose(lp.Refiner(alone).refine(None, logits).probability, softmax(0.8 * logits), atol=1e-6)


@pytest.mark.parametrize("method", ["measure", "refine"])
def test_unknown_option_is_reported_by_the_method_that_was_called(method: str) -> None:
    quantity = ("area",) if method == "measure" else ()
    expected = f"Refiner.{method} got the option 'names', expected layout, scores, stride, spacing or mask"
    with pytest.raises(InputTypeError, match=expected) as caught:
        getattr(coupled(), method)(*scene(), *quantity, names=("a", "b", "c"))
    assert ("prepare(image, logits).measure" in str(caught.value)) == (method == "measure")


def test_options_of_reading_are_those_of_prepare() -> None:
    keywords = [p.name for p in signature(lp.Refiner.prepare).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert tuple(keywords) == READING
