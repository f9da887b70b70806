"""Features of scenes for a classifier: colours, filters, words, regions and context; and the store of scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("skimage")
pytest.importorskip("sklearn")

from locpmap.errors import InputError
from locpmap_paper.experiments.scenes.context import Boxes, appearance, auto_context
from locpmap_paper.experiments.scenes.patch_words import PatchWords, learn_words
from locpmap_paper.experiments.scenes.pixel_features import pixel_features
from locpmap_paper.experiments.scenes.regions import Pieces, segment
from locpmap_paper.experiments.scenes.split import Split, split_scenes
from locpmap_paper.experiments.scenes.store import UnaryStore


def picture(height: int = 41, width: int = 54, seed: int = 0) -> np.ndarray:
    """Return an image with a coloured upper half, a noisy lower half, and a disc."""
    generator = np.random.default_rng(seed)
    rows, columns = np.indices((height, width))
    image = np.where((rows < height / 2)[..., None], (90, 140, 230), (60, 130, 50)) + generator.normal(
        0, 1 + 20 * (rows >= height / 2)[..., None], (height, width, 3)
    )
    image[np.hypot(rows - height / 2, columns - width / 3) < height / 5] = (180, 40, 40)
    return image.clip(0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def words() -> PatchWords:
    return learn_words([picture(seed=k) for k in range(3)], 4, n_patches=100)


# pixels


def test_pixel_features_are_finite_for_any_image() -> None:
    for image in (np.zeros((9, 12, 3), np.uint8), np.full((1, 1, 3), 255, np.uint8), picture()):
        features = pixel_features(image)
        assert features.shape == (*image.shape[:2], 32)
        assert features.dtype == np.float32
        assert np.isfinite(features).all()


def test_grey_image_has_zero_colour_features() -> None:
    grey = np.repeat(picture()[..., :1], 3, axis=-1)
    features = pixel_features(grey)
    np.testing.assert_allclose(features[..., 4:9], 0, atol=1e-3)  # a and b of Lab, hue in the plane, saturation
    np.testing.assert_allclose(features[..., -4:], 0, atol=1e-3)


def test_colour_features_are_continuous_at_red() -> None:
    reds = np.array([[[255, 0, 2], [255, 2, 0]]], np.uint8)
    plane = pixel_features(reds)[0, :, 6:8]
    assert np.abs(plane[0] - plane[1]).max() < 0.03


def test_filters_respond_to_orientation() -> None:
    image = np.zeros((20, 20, 3), np.uint8)
    image[:, 10:] = 255
    upright, lying = pixel_features(image), pixel_features(image.transpose(1, 0, 2))
    across, down = 9, 10
    assert upright[10, 10, across] > 0.1
    assert upright[10, 10, down] < 1e-6
    np.testing.assert_allclose(upright[..., across], lying[..., down].T, atol=1e-6)
    directions = slice(14, 18)
    np.testing.assert_allclose(upright[10, 10, directions] > 0.1, [True, False, False, False])
    np.testing.assert_allclose(lying[10, 10, directions] > 0.1, [False, False, True, False])


def test_orientation_bins_sum_to_the_gradient_strength() -> None:
    features = pixel_features(picture())
    np.testing.assert_allclose(features[..., 14:18].sum(axis=-1), features[..., 11], rtol=1e-4, atol=1e-6)


# words


@pytest.mark.parametrize(("height", "width"), [(40, 54), (41, 55), (5, 3)])
def test_words_respond_at_every_second_pixel(words: PatchWords, height: int, width: int) -> None:
    answers = words(picture(height, width))
    assert answers.shape == (-(-height // 2), -(-width // 2), 12)
    assert (answers >= 0).all()
    assert np.isfinite(answers).all()


def test_words_ignore_brightness_and_nearly_ignore_contrast(words: PatchWords) -> None:
    image = picture() // 2
    np.testing.assert_allclose(words(image + np.uint8(60)), words(image), atol=1e-3)


def test_words_depend_on_the_seed_only(words: PatchWords) -> None:
    again = learn_words([picture(seed=k) for k in range(3)], 4, n_patches=100)
    np.testing.assert_array_equal(words(picture()), again(picture()))
    other = learn_words([picture(seed=k) for k in range(3)], 4, n_patches=100, seed=1)
    assert np.abs(words(picture()) - other(picture())).max() > 1e-3


# regions


def test_atoms_are_contained_in_the_finest_segments() -> None:
    regions = segment(picture())
    assert regions.shape == (4, 41, 54)
    for pieces in regions:
        assert set(np.unique(pieces)) == set(range(pieces.max() + 1))
    first = Pieces(regions[0]).first_pixels()
    np.testing.assert_array_equal(Pieces(regions[1]).at(first)[regions[0]], regions[1])


def test_means_over_regions() -> None:
    generator = np.random.default_rng(0)
    numbers = generator.permutation(np.arange(12).repeat(5) // 7).reshape(6, 10).astype(np.uint16)
    values = generator.normal(size=(6, 10, 3)).astype(np.float32)
    expected = [values[numbers == k].mean(axis=0) for k in range(numbers.max() + 1)]
    np.testing.assert_allclose(Pieces(numbers).means(values), expected, rtol=1e-5, atol=1e-6)


def test_shapes_of_regions() -> None:
    pieces = Pieces(np.array([[0, 0, 0, 1], [0, 0, 0, 1], [2, 2, 2, 2], [2, 2, 2, 2]], np.uint16))
    np.testing.assert_allclose(
        pieces.shapes(),
        [[0, 0.5, 0.75, 1, 6 / 16, 0.125], [0, 0.5, 0.25, 1, 2 / 16, 0.125], [0.5, 1, 1, 2, 8 / 16, 0.625]],
    )


# context


def test_boxes_equal_direct_means() -> None:
    values = np.random.default_rng(0).normal(size=(80, 120, 2)).astype(np.float32)
    points = np.array([[39.5, 59.5], [0, 0]], np.float32)
    boxes = Boxes(values, points)
    inner, corner = boxes.near()[0]
    np.testing.assert_allclose(inner, values[30:50, 50:70].mean(axis=(0, 1)), atol=1e-5)
    np.testing.assert_allclose(corner, values[:10, :10].mean(axis=(0, 1)), atol=1e-5)
    above, below, beside, difference = (part[0] for part in boxes.far()[:4])
    np.testing.assert_allclose(above, values[0:24, 44:76].mean(axis=(0, 1)), atol=0.1)
    np.testing.assert_allclose(below, values[56:80, 44:76].mean(axis=(0, 1)), atol=0.1)
    assert (beside.shape, difference.shape) == ((2,), (2,))
    row, top, bottom = (part[0] for part in boxes.bands())
    np.testing.assert_allclose(row, values[34:44].mean(axis=(0, 1)), atol=0.05)
    assert (top.shape, bottom.shape) == ((2,), (2,))


def test_boxes_above_and_below_differ() -> None:
    values = np.zeros((200, 40, 1), np.float32)
    values[:100] = 1
    boxes = Boxes(values, np.array([[99.5, 20]], np.float32))
    above, below, beside, difference = (float(part[0, 0]) for part in boxes.far()[4:])
    assert (above, below, beside, difference) == (1, 0, 0.5, 0)
    row, top, bottom = (float(part[0, 0]) for part in boxes.bands())
    assert row == pytest.approx(0.5, abs=0.3)
    assert top > 0.9
    assert bottom == 0


def test_context_is_invariant_to_mirroring() -> None:
    generator = np.random.default_rng(0)
    regions = segment(picture(40, 56))
    probability = generator.dirichlet(np.ones(8), regions[0].max() + 1).astype(np.float32)
    here, there = auto_context(probability, regions), auto_context(probability, regions[:, :, ::-1])
    assert here.shape == (len(probability), 18 * 8)
    # Segments are looked up at an atom's first pixel, and rounding may move a box by a cell: nearly all are equal.
    assert np.mean(np.abs(here - there) < 1e-5) > 0.9


def test_appearance_is_finite_in_half_precision(words: PatchWords) -> None:
    for image in (picture(), np.zeros((30, 30, 3), np.uint8)):
        regions = segment(image)
        features = appearance(image, regions, words).astype(np.float16)
        assert features.shape == (regions[0].max() + 1, 564 + 5 * 12)
        assert np.isfinite(features).all()


def test_auto_context_uses_surrounding_predictions() -> None:
    regions = np.zeros((4, 100, 60), np.uint16)
    regions[0] = (np.indices((100, 60))[0] >= 50).astype(np.uint16)
    sky_over_grass = np.eye(8, dtype=np.float32)[[0, 3]]
    context = auto_context(sky_over_grass, regions).reshape(2, 18, 8)
    own, image, coarse = context[:, 0], context[:, -1], context[:, -2]
    np.testing.assert_array_equal(own, sky_over_grass)
    np.testing.assert_allclose(image, np.full((2, 8), [0.5, 0, 0, 0.5, 0, 0, 0, 0]))
    np.testing.assert_allclose(coarse, image, atol=1e-4)  # a sum of 6,000 in single precision
    assert context[1, 3, 0] > 0.2  # above the lower atom: sky


# split and store


def test_split_depends_on_the_seed_only() -> None:
    names = [f"{k:03}" for k in range(715)]
    split = split_scenes(names)
    order = np.random.default_rng(0).permutation(715)
    assert split.train == tuple(names[k] for k in order[:600])
    assert split.test == tuple(names[k] for k in order[600:])
    assert split_scenes(names, seed=1) != split
    with pytest.raises(InputError, match="more than once"):
        Split(("a", "b"), ("a",))


def test_store_returns_stored_scores(tmp_path: Path) -> None:
    store = UnaryStore(tmp_path / "scores")
    assert len(store) == 0
    assert "a" not in store
    scores = np.random.default_rng(0).normal(size=(3, 4, 8))
    store.put("a", scores)
    store.put("0001-b", -scores)
    assert list(store) == ["0001-b", "a"]
    found = UnaryStore(tmp_path / "scores")["a"]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, scores, rtol=1e-3)
    with pytest.raises(KeyError):
        store["c"]


@pytest.mark.parametrize("name", ["", "../a", "a/b", ".a", "a\n"])
def test_store_writes_only_inside_its_folder(tmp_path: Path, name: str) -> None:
    store = UnaryStore(tmp_path)
    with pytest.raises(InputError, match="name is"):
        store.put(name, np.zeros((1, 1, 8)))
    assert name not in store


@pytest.mark.parametrize(
    ("scores", "says"),
    [
        (np.zeros((2, 8)), "shape"),
        (np.zeros((0, 2, 8)), "shape"),
        (np.full((1, 1, 8), np.nan), "finite"),
        (np.full((1, 1, 8), -np.inf), "finite"),
        (np.full((1, 1, 8), 1e6), "within"),
    ],
)
def test_store_refuses_invalid_scores(tmp_path: Path, scores: np.ndarray, says: str) -> None:
    with pytest.raises(InputError, match=says):
        UnaryStore(tmp_path).put("a", scores)
    assert not list(tmp_path.iterdir())


def test_damaged_file_is_reported_by_name(tmp_path: Path) -> None:
    store = UnaryStore(tmp_path)
    store.put("a", np.zeros((2, 2, 8)))
    path = tmp_path / "a.npy"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"a\.npy is damaged"):
        store["a"]
