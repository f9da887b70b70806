"""The arena's scores, verdicts, files and the loss by which the bundled refiner is learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("locpmap_paper", reason="the paper's package is not installed")
cells = pytest.importorskip("benchmarks.arena.cells")
learning = pytest.importorskip("benchmarks.arena.learning")
measuring = pytest.importorskip("benchmarks.arena.measuring")
methods = pytest.importorskip("benchmarks.arena.methods")
page = pytest.importorskip("benchmarks.arena.page")
NEEDS = pytest.importorskip("benchmarks.arena.__main__").NEEDS

CELL = cells.Cell("digits", "unet", 1)


def seen(number: int) -> Any:
    """Return an image with two regions, logits and labels; the seed is the number of the image."""
    rng = np.random.default_rng(number)
    truth = (np.arange(20) >= 8 + number % 5).astype(int) * np.ones((16, 1), int)
    return cells.Seen(100.0 * truth, 2 * np.eye(2)[truth] + rng.normal(size=(16, 20, 2)), truth)


def test_every_data_set_has_two_networks() -> None:
    networks = {name: {cell.network for cell in cells.CELLS if cell.dataset == name} for name in cells.PHOTOGRAPHS}
    assert len(cells.CELLS) == len(set(cells.CELLS)) == 22
    assert all(len(found) == 3 for found in networks.values())
    assert {cell.stride for cell in cells.OF_IMAGES} == set(learning.STRIDES)
    assert len({cell.network for cell in cells.OF_VOLUMES}) == 2


def test_coarse_logits_are_means_over_cells() -> None:
    logits = np.random.default_rng(0).normal(size=(16, 24, 3)).astype(np.float32)
    expected = logits.reshape(2, 8, 3, 8, 3).mean(axis=(1, 3))
    np.testing.assert_allclose(cells.coarse(logits, 8), expected, atol=1e-6)
    assert cells.coarse(logits[:13, :21], 8).shape == (2, 3, 3)


@pytest.mark.parametrize(("gain", "measure", "expected"), [(0.3, "IoU", 1), (0.3, "NLL", -1), (0.1, "ECE", 0)])
def test_verdict_needs_two_standard_errors(gain: float, measure: str, expected: int) -> None:
    assert measuring.verdict(gain, 0.1, measure) == expected
    assert measuring.verdict(-gain, 0.1, measure) == -expected


def test_boundaries_are_between_true_labels_only() -> None:
    labels = np.array([[0, 0, 0, 0, 1, 1, 1, -1]])
    assert measuring.near_boundaries(labels, 2).tolist() == [[-1, -1, 0, 0, 1, 1, -1, -1]]
    assert (measuring.near_boundaries(np.zeros((3, 4), int), 3) == -1).all()


def test_boundaries_of_volumes_are_those_of_brute_force() -> None:
    labels = np.random.default_rng(0).integers(-1, 3, (4, 5, 6))
    sites = np.argwhere(labels >= 0)
    apart = [
        (a, b)
        for a in sites.tolist()
        for b in sites.tolist()
        if np.abs(np.subtract(a, b)).sum() == 1 and labels[tuple(a)] != labels[tuple(b)]
    ]
    changes = np.array([a for a, _ in apart])
    near = [((changes - site) ** 2).sum(1).min() < 2**2 for site in np.argwhere(labels > -2)]
    expected = np.where(np.reshape(near, labels.shape), labels, -1)
    np.testing.assert_array_equal(measuring.near_boundaries(labels, 2), expected)


def seen_volume(number: int) -> Any:
    """Return a volume of four slices with two regions and coarse logits."""
    rng, plane = np.random.default_rng(number), seen(number)
    truth = np.stack([np.roll(plane.labels, k, axis=1) for k in (0, 0, 2, 2)])
    logits = 2 * np.eye(2)[truth[::2, ::2, ::2]] + 0.5 * rng.normal(size=(2, 8, 10, 2))
    return cells.Seen((100.0 * truth).astype(np.float32), logits.astype(np.float32), truth)


@pytest.mark.parametrize(
    "name",
    [methods.SCALED, methods.VECTOR, methods.OVER_DATASET.format(methods.DEFAULT), *NEEDS],
)
def test_methods_read_volumes(name: str) -> None:
    module = NEEDS.get(name)
    if module:
        pytest.importorskip(module, reason=f"{module} is not installed")
    volumes = [seen_volume(number) for number in range(3)]
    given = methods.Given(cells.OF_VOLUMES[1], volumes, volumes, Path())
    probability, labels = methods.METHODS[name](given)(volumes[0])
    assert probability.shape == (4, 16, 20, 2)
    np.testing.assert_allclose(probability.sum(-1), 1, atol=1e-5)
    assert (labels == volumes[0].labels).mean() > 0.9


def test_the_guided_filter_reads_slices_as_images() -> None:
    pytest.importorskip("cv2", reason="cv2 is not installed")
    images = [one._replace(logits=one.logits.astype(np.float32)) for one in map(seen, range(3))]
    volumes = [cells.Seen(*(each[None] for each in one)) for one in images]
    given = (methods.Given(CELL, all_of, all_of, Path()) for all_of in (images, volumes))
    flat, deep = (methods.guided(one)(one.judged[0]) for one in given)
    np.testing.assert_allclose(deep.probability[0], flat.probability, atol=1e-5)


def test_scores_survive_their_file_and_are_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "images_of", lambda cell, part, *rest: map(seen, range(8)))
    arguments = ("test", Path(), Path(), tmp_path, None)
    measuring.measure(CELL, [methods.NETWORK, methods.SCALED], *arguments)
    rows = {
        name: measuring.Row(measuring.path_of(tmp_path, "test", CELL, name))
        for name in (methods.NETWORK, methods.SCALED)
    }
    wrong = [(one.logits.argmax(-1) != one.labels).mean() for one in map(seen, range(8))]
    confusion = sum(score.confusion for score in rows[methods.NETWORK].scores["whole"])
    assert 1 - np.trace(confusion) / confusion.sum() == pytest.approx(np.mean(wrong))
    gain, error = rows[methods.SCALED].gain(rows[methods.NETWORK], "NLL")
    assert gain < 0 < error
    assert rows[methods.SCALED].gain(rows[methods.NETWORK], "IoU") == (0, 0)
    monkeypatch.setattr(measuring, "images_of", lambda *_: pytest.fail("measured again"))
    measuring.measure(CELL, [methods.NETWORK], *arguments)


def test_loss_of_a_setting_penalises_harm() -> None:
    points = [learning.Points.of(example, example.scores) for example in examples()]
    setting = learning.candidates([0.1])[-1]
    network, better = ([one.scored(which) for one in points] for which in (None, setting))
    gain = learning.loss_of({None: network, setting: better}, setting)
    harm = learning.loss_of({None: better, setting: network}, setting)
    assert gain < 0 < harm
    assert harm > -gain  # relative changes have about the same size, and only one has a penalty


def examples() -> Any:
    """Return ten examples of a fit."""
    images, logits, labels = zip(*map(seen, range(10)), strict=True)
    return learning.gather(list(images), list(logits), list(labels), -1, "hwk", "logits", 1.0)


def test_only_methods_measured_everywhere_are_compared() -> None:
    def row(iou: float, gain: float) -> dict[str, Any]:
        return {"values": dict.fromkeys(page.MEASURES, iou), "gains": dict.fromkeys(page.MEASURES, (gain, 0.01))}

    both = {methods.NETWORK: row(0.5, 0.0), methods.DEFAULT: row(0.6, 0.1)}
    table = {"a": {"methods": both}, "b": {"methods": {**both, methods.TUNED: row(0.9, 0.4)}}}
    assert page.counts(table, methods.DEFAULT, "IoU") == (2, 0, 0)
    assert page.counts(table, methods.DEFAULT, "NLL") == (0, 0, 2)
    assert page.first_in(table, "IoU") == {"ours": 2}
