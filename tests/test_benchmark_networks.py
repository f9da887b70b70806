"""The data splits, the stochastic segmentation network and the files of `benchmarks.networks`."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("locpmap_paper", reason="the paper's package is not installed")
data = pytest.importorskip("benchmarks.networks_data")
models = pytest.importorskip("benchmarks.networks_models")
training = pytest.importorskip("benchmarks.networks_training")

LOCAL_DATA = Path(__file__).parents[2] / "shared" / "data"
SPLITS = {
    "stanford": (8, "stanford_background", (471, 118, 114)),
    "msrc": (21, "msrc_v2", (275, 81, 235)),
    "nuclei": (2, "dsb2018_nuclei", (75, 33, 58)),
    "silhouettes": (2, "caltech101_silhouettes", (4100, 300, 500)),
    "digits": (2, "mnist", (5000, 300, 500)),
    "vessels": (2, "chase_db1", (12, 6, 10)),
    "membranes": (2, "isbi2012_em", (14, 6, 8)),
    "boundaries": (2, "bsds500", (232, 107, 192)),
}


class PixelCodes(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A trunk for one row of pixels that ignores the image: its features are one-hot codes of the pixels."""

    def __init__(self, n_labels: int, n_pixels: int) -> None:
        super().__init__()
        self.n_labels, self.width = n_labels, n_pixels
        self.classifier = torch.nn.Conv2d(n_pixels, n_labels, 1)

    def features(self, images: Any) -> Any:
        return torch.eye(self.width).reshape(1, self.width, 1, self.width).expand(len(images), -1, -1, -1)

    def to_pixels(self, coarse: Any, images: Any) -> Any:
        return coarse

    def forward(self, images: Any) -> Any:
        return self.classifier(self.features(images))


@cache
def load(name: str) -> Any:
    for folder in (os.environ.get("LOCPMAP_DATA"), LOCAL_DATA):
        if folder and (Path(folder) / SPLITS[name][1]).is_dir():
            return data.load(name, Path(folder))
    pytest.skip(f"the files of {name} are neither in $LOCPMAP_DATA nor beside the repository")


@pytest.mark.parametrize("name", SPLITS)
def test_splits_are_disjoint_and_have_the_documented_sizes(name: str) -> None:
    split = load(name)
    n_labels, _, sizes = SPLITS[name]
    parts = (split.train, split.held_out, split.test)
    assert (split.n_labels, tuple(len(part.names) for part in parts)) == (n_labels, sizes)
    assert all(f"{size:,}" in data.__doc__ for size in sizes)
    assert len({name for part in parts for name in part.names}) == sum(sizes)
    noisy = name == "silhouettes"  # noise hides repeated silhouettes; two digits may be equal
    contents = [{array.tobytes() for array in (part.labels if noisy else part.images)} for part in parts]
    assert len(set().union(*contents)) == sum(map(len, contents))
    for part in parts:
        counts = [np.bincount(labels.ravel() + 1, minlength=n_labels + 1) for labels in part.labels]  # void first
        assert {len(count) for count in counts} == {n_labels + 1}
        assert any(count[0] > 0 for count in counts) == (name in ("stanford", "msrc"))
        for image, labels in zip(part.images, part.labels, strict=True):
            assert image.shape[:2] == labels.shape
            assert labels.dtype == np.int64
            assert max(labels.shape) <= 512


def test_msrc_keeps_repeated_photographs_in_the_training_part() -> None:
    assert set(data.MSRC_TWICE) <= set(load("msrc").train.names)


def test_void_pixels_do_not_change_the_loss() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(2, 5, 3, 4, 4), torch.randint(0, 3, (2, 4, 4))
    labels[:, 2:] = data.VOID
    loss = training.likelihood_loss(logits, labels)
    changed = logits.clone()
    changed[..., 2:, :] += torch.randn(2, 5, 3, 2, 4)
    assert training.likelihood_loss(changed, labels) == loss
    assert training.likelihood_loss(changed, labels.clamp(min=0)) != loss


def test_the_loss_is_the_mean_likelihood_over_samples() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(2, 5, 3, 2, 2, dtype=torch.float64), torch.randint(0, 3, (2, 2, 2))
    p = logits.softmax(2).gather(2, labels[:, None, None].expand(-1, 5, -1, -1, -1)).prod(-1).prod(-1)[:, :, 0]
    assert training.likelihood_loss(logits, labels).item() == pytest.approx(-p.mean(1).log().sum().item() / 8)


def test_sampled_logits_have_the_covariance_of_the_distribution() -> None:
    torch.manual_seed(0)
    network = models.StochasticNetwork(PixelCodes(2, 3), rank=2)
    torch.nn.init.normal_(network.log_deviation.weight, std=0.5)
    mean, deviation, factor = (each.detach() for each in network.distribution(torch.zeros(1, 1, 1, 3)))
    n = 40_000
    samples = models.draw_logits((mean, deviation, factor), n, torch.Generator().manual_seed(1))[0].flatten(1)
    rows = factor[0].flatten(1)
    expected = rows.T @ rows + deviation.flatten().square().diag()
    assert (expected - torch.diag(expected.diag())).abs().max() > 0.05
    error = torch.sqrt((expected.square() + torch.outer(expected.diag(), expected.diag())) / n)
    assert ((samples.T.cov() - expected).abs() < 5 * error).all()
    assert ((samples.mean(0) - mean.flatten()).abs() < 5 * (expected.diag() / n).sqrt()).all()


def test_a_stochastic_network_learns_that_two_pixels_agree() -> None:
    torch.manual_seed(0)
    network = models.StochasticNetwork(PixelCodes(2, 2), rank=1)
    images = torch.zeros(32, 1, 1, 2)
    labels = torch.tensor([[[0, 0]], [[1, 1]]]).repeat(16, 1, 1)
    optimiser = torch.optim.Adam(network.parameters(), 0.05)
    for _ in range(150):
        loss = training.likelihood_loss(models.draw_logits(network.distribution(images), 20), labels)
        optimiser.zero_grad()
        loss.backward()
        assert all(torch.isfinite(parameter.grad).all() for parameter in network.parameters())
        optimiser.step()
    assert loss < 0.45  # log 2 per pixel if pixels were independent, half of it at best
    maps = models.draw(network, np.zeros((1, 2), np.float32), 400, seed=0)[:, 0]
    assert (maps[:, 0] == maps[:, 1]).mean() > 0.95
    assert 0.3 < maps.mean() < 0.7


@pytest.mark.parametrize("stochastic", [False, True])
def test_a_trained_network_survives_its_file(tmp_path: Path, stochastic: bool) -> None:
    labels = (np.indices((12, 10)).sum(0) > 10).astype(np.int64)
    part = data.Part(("a",), (labels.astype(np.float32),), (labels,))
    torch.manual_seed(0)
    network = models.build("unet", 2, stochastic=stochastic)
    before = training.evaluate(network.train(False), part)
    training.train_network(network, training.batches_of(part, 4, 0, torch.device("cpu")), 30, seed=0)
    models.save(tmp_path / "network.safetensors", network, {"seed": 0})
    loaded = models.open_network(tmp_path / "network.safetensors")
    assert training.evaluate(loaded, part).nll < before.nll
    logits = models.predict(loaded, part.images[0])
    assert (logits.shape, logits.dtype) == ((12, 10, 2), np.float32)
    np.testing.assert_allclose(logits, models.predict(network, part.images[0]), atol=0.05)
    if stochastic:
        maps = models.draw(loaded, part.images[0], 3, seed=0)
        assert (maps.shape, maps.dtype) == ((3, 12, 10), np.uint8)
        np.testing.assert_array_equal(models.draw(loaded, part.images[0], 2, seed=0), maps[:2])


def test_a_pyramid_trains_on_photographs_of_different_sizes() -> None:
    rng = np.random.default_rng(0)
    images = tuple(rng.integers(0, 256, (*size, 3), dtype=np.uint8) for size in ((40, 50), (60, 30)))
    part = data.Part(("a", "b"), images, tuple(rng.integers(-1, 3, image.shape[:2]) for image in images))
    network = models.build("pyramid", 3, stochastic=True)
    training.train_network(network, training.batches_of(part, 2, 32, torch.device("cpu")), 3, seed=0)
    assert models.draw(network, images[0], 2, seed=0).shape == (2, 40, 50)
    assert np.isfinite(training.evaluate(network, part).nll)


def test_some_images_are_at_equal_distances() -> None:
    maps = tuple(np.full((1, 1), k) for k in range(7))
    part = data.Part(tuple("abcdefg"), maps, maps)
    assert part.some(3).names == ("a", "c", "e")
    assert [int(labels[0, 0]) for labels in part.some(3).labels] == [0, 2, 4]
    assert part.some(None).names == part.some(9).names == tuple("abcdefg")
    assert part.some(0).names == ()


def test_both_eyes_of_a_child_are_in_one_part() -> None:
    split = load("vessels")
    children = [{name[:-1] for name in part.names} for part in (split.train, split.held_out, split.test)]
    assert sum(map(len, children)) == len(set().union(*children)) == 14


@pytest.mark.parametrize(("kind", "shape"), [("unet", (50, 70, 3)), ("linear", (4, 5, 3)), ("fcn", (50, 70, 3))])
def test_networks_of_every_kind_survive_their_file(kind: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = models.build(kind, 3, options=models.PHOTOGRAPHS if kind == "unet" else None).train(False)
    image = np.random.default_rng(0).integers(0, 255, (50, 70, 3), dtype=np.uint8)
    given = image[..., 0].astype(np.float32) / 255 if kind == "fcn" else image
    models.save(tmp_path / "network.safetensors", network, {})
    found = models.predict(models.open_network(tmp_path / "network.safetensors"), given)
    assert found.shape == shape
    np.testing.assert_allclose(found, models.predict(network, given), atol=0.05)  # half precision


def test_all_annotators_of_a_photograph_are_in_one_part() -> None:
    split = load("boundaries")
    photographs = [
        {name.rpartition("_")[0] for name in part.names} for part in (split.train, split.held_out, split.test)
    ]
    assert list(map(len, photographs)) == [45, 20, 35]
    assert len(set().union(*photographs)) == 100
