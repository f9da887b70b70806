"""Boosted unaries on synthetic scenes: learning, calibration, out-of-fold prediction, and resuming."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skimage")
pytest.importorskip("sklearn")

from PIL import Image

from locpmap.errors import InputError
from locpmap_paper import data
from locpmap_paper.data.scenes import VOID, Scenes
from locpmap_paper.experiments.scenes import boosted_unaries as module
from locpmap_paper.experiments.scenes.boosted_unaries import FAST, boosted_unaries
from locpmap_paper.experiments.scenes.boosting import LEAST, Boosting, count_labels, draw_pixels, learn
from locpmap_paper.experiments.scenes.split import Split, split_scenes
from locpmap_paper.experiments.scenes.store import UnaryStore

threadpoolctl = pytest.importorskip("threadpoolctl")  # a dependency of scikit-learn

LOCAL_DATA = Path(__file__).parents[3] / "shared" / "data"
COLOURS = {0: (120, 170, 240), 3: (60, 150, 50), 7: (190, 40, 40)}
SPLIT = Split(tuple("abcdefgh"), tuple("xy"))
AS_DRAWN = replace(FAST, boosting=replace(FAST.boosting, balance=0.0))


def synthetic_scenes(spoiled: str = "") -> Scenes:
    """Return scenes with sky, grass, an object and void; the labels of the spoiled scenes are wrong."""
    photographs, labels = {}, {}
    for k, name in enumerate((*SPLIT.train, *SPLIT.test)):
        generator = np.random.default_rng(k)
        truth = np.zeros((36, 48), np.int8)
        truth[generator.integers(14, 22) :] = 3
        left = generator.integers(5, 30)
        truth[12:26, left : left + 12] = 7
        image = np.array([COLOURS.get(label, (0, 0, 0)) for label in range(8)])[truth] + generator.normal(
            0, 8, (36, 48, 3)
        )
        stream = io.BytesIO()
        Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(stream, "JPEG", quality=95)
        truth[:2, :2] = VOID
        photographs[name] = stream.getvalue()
        labels[name] = np.where(truth == VOID, VOID, 7 - truth) if name in spoiled else truth
    return Scenes(photographs, labels)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread, which is faster for such small trees."""
    with threadpoolctl.threadpool_limits(1):
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, UnaryStore]:
    folder = tmp_path_factory.mktemp("boosted")
    return folder, boosted_unaries(synthetic_scenes(), SPLIT, folder=folder, fast=True)


class Note:
    """Records progress and interrupts at a given point."""

    def __init__(self, stop: str = "") -> None:
        self.stop, self.titles, self.steps = stop, [""], [(0, 0)]
        self.stages = [(0.0, 0.0)]

    def stage(self, done: float, total: float, title: str, cost: float = 1.0) -> None:
        self.titles.append(title)
        self.stages.append((done, total))

    def step(self, done: int, total: int) -> None:
        self.steps.append((done, total))
        if self.stop == self.titles[-1] and done == 2:
            raise KeyboardInterrupt


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.npy"))}


def with_features_of(finished: Path, folder: Path) -> None:
    """Copy the features, which do not depend on labels."""
    shutil.copytree(finished / "features", folder / "features")


# the sample and the classifier


def test_pixels_are_drawn_by_weight_without_void() -> None:
    labels = np.array([VOID] * 50 + [0] * 90 + [1] * 10)
    weights = np.array([1.0, 9.0])
    drawn = draw_pixels(labels, weights, 4000, np.random.default_rng(0))
    assert (labels[drawn] != VOID).all()
    share = np.mean(labels[drawn] == 1)
    assert abs(share - 0.5) < 5 * np.sqrt(0.25 / 4000)
    assert len(draw_pixels(np.full(5, VOID), weights, 10, np.random.default_rng(0))) == 0


def test_labels_are_counted_without_void() -> None:
    assert count_labels(np.array([[VOID, 2], [2, 7]], np.int8)).tolist() == [0, 0, 2, 0, 0, 0, 0, 1]


def test_probabilities_are_calibrated_to_natural_frequencies() -> None:
    """Sample two classes 1 to 1 that occur 9 to 1: predictions follow the natural frequencies."""
    generator = np.random.default_rng(0)
    labels = np.repeat([0, 5], 3000)
    coins = generator.integers(0, 2, (6000, 2))
    features = (coins[:, 0] + 2 * coins[:, 1] * (labels == 5))[:, None].astype(float)
    natural = np.zeros(8)
    natural[[0, 5]] = 900, 100
    classifier = learn(features, labels, natural, Boosting(n_rounds=60, least_in_leaf=20, penalty=0.0))
    seen = classifier(np.array([[0.0], [3.0]]))
    zeros = [0.9 * np.mean(features[labels == 0] == 0), 0.1 * np.mean(features[labels == 5] == 0)]  # 0.45 and 0.025
    assert seen[0, 5] == pytest.approx(zeros[1] / sum(zeros), rel=0.05)
    assert seen[1, 5] > 0.99
    np.testing.assert_allclose(seen.sum(axis=1), 1, rtol=1e-6)
    assert seen.min() >= 0.99 * LEAST
    assert (seen[:, [1, 2, 3, 4, 6, 7]] < 1.01 * LEAST).all()  # classes absent from the sample


def test_single_class_is_refused() -> None:
    with pytest.raises(InputError, match=r"labels \[3\], expected at least two"):
        learn(np.zeros((4, 1)), np.full(4, 3), np.ones(8), Boosting())


# the whole


def test_boosting_learns_and_returns_log_probabilities(finished: tuple[Path, UnaryStore]) -> None:
    _, store = finished
    assert sorted(store) == sorted((*SPLIT.train, *SPLIT.test))
    right = []
    for name, image, labels in synthetic_scenes():
        unary = store[name]
        assert unary.shape == (*image.shape[:2], 8)
        np.testing.assert_allclose(np.exp(unary).sum(axis=-1), 1, atol=0.01)  # half precision
        right.append((unary.argmax(axis=-1) == labels)[labels != VOID].mean())
    assert min(right) > 0.85
    assert np.mean(right) > 0.93


def test_second_stage_uses_predictions_of_the_first(finished: tuple[Path, UnaryStore]) -> None:
    folder, _ = finished
    stages = {path.parent.parent.name for path in folder.rglob("fold-*/a.npy")}
    assert stages == {"stage-1", "stage-2"}
    assert len(list(folder.rglob("stage-2/*/a.npy"))) == 1  # out of fold
    assert len(list(folder.rglob("stage-2/*/x.npy"))) == FAST.n_folds  # all chains


def test_training_scenes_are_predicted_out_of_fold(finished: tuple[Path, UnaryStore], tmp_path: Path) -> None:
    """Spoil the labels of a fold: first-stage predictions change for other folds, not for this one."""
    split = Split(SPLIT.train, ())
    for kind in ("right", "wrong"):
        with_features_of(finished[0], tmp_path / kind)
    boosted_unaries(synthetic_scenes(), split, folder=tmp_path / "right", settings=AS_DRAWN)
    fold = {path.stem for path in (tmp_path / "right").rglob("stage-1/fold-0/*.npy")}
    assert len(fold) == 4
    boosted_unaries(synthetic_scenes("".join(fold)), split, folder=tmp_path / "wrong", settings=AS_DRAWN)
    for name in split.train:
        (right,), (wrong,) = (list((tmp_path / kind).rglob(f"stage-1/*/{name}.npy")) for kind in ("right", "wrong"))
        assert (right.read_bytes() == wrong.read_bytes()) == (name in fold)


def test_test_labels_are_never_used(finished: tuple[Path, UnaryStore], tmp_path: Path) -> None:
    with_features_of(finished[0], tmp_path)
    spoiled = boosted_unaries(synthetic_scenes("xy"), SPLIT, folder=tmp_path, fast=True)
    np.testing.assert_array_equal(spoiled["x"], finished[1]["x"])


@pytest.mark.parametrize("stop", ["features", "stage 1, fold 2", "stage 2, fold 1"])
def test_interrupted_run_resumes_with_the_same_result(
    finished: tuple[Path, UnaryStore], tmp_path: Path, stop: str
) -> None:
    if stop != "features":
        with_features_of(finished[0], tmp_path)
    with pytest.raises(KeyboardInterrupt):
        boosted_unaries(synthetic_scenes(), SPLIT, folder=tmp_path, fast=True, progress=Note(stop))
    before = {path: os.stat(path).st_mtime_ns for path in tmp_path.rglob("*.npy")}
    assert before
    boosted_unaries(synthetic_scenes(), SPLIT, folder=tmp_path, fast=True)
    assert files(tmp_path) == files(finished[0])
    assert all(os.stat(path).st_mtime_ns == time for path, time in before.items())  # nothing was computed again


def test_finished_run_is_not_repeated(finished: tuple[Path, UnaryStore], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("learned again")

    monkeypatch.setattr(module, "learn", refuse)
    monkeypatch.setattr("locpmap_paper.experiments.scenes.feature_cache.learn_words", refuse)
    monkeypatch.setattr("locpmap_paper.experiments.scenes.feature_cache.segment", refuse)
    note = Note()
    boosted_unaries(synthetic_scenes(), SPLIT, folder=finished[0], fast=True, progress=note)
    assert note.titles[1:] == ["features", *(f"stage {s}, fold {f}" for s in (1, 2) for f in (1, 2)), "maps"]
    assert note.stages[1:] == [(k, 6) for k in range(6)]
    assert note.steps[-1] == (10, 10)
    with pytest.raises(AssertionError, match="learned again"):  # another seed is another run
        boosted_unaries(synthetic_scenes(), SPLIT, folder=finished[0], fast=True, seed=1)


def test_invalid_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="n_folds is 2"):
        boosted_unaries(synthetic_scenes(), Split(("a",), ()), folder=tmp_path, fast=True)
    with pytest.raises(InputError, match="names contains 'nowhere'"):
        boosted_unaries(synthetic_scenes(), Split(("a", "b", "nowhere"), ()), folder=tmp_path, fast=True)


def test_real_scenes(tmp_path: Path) -> None:
    for folder in (os.environ.get("LOCPMAP_DATA"), LOCAL_DATA):
        if folder and all(found.state == "ok" for found in data.verify("scenes", folder)):
            break
    else:
        pytest.skip("the files of scenes are neither in $LOCPMAP_DATA nor beside the repository")
    scenes = data.scenes(folder)
    names = split_scenes(scenes.names)
    split = Split(names.train[:3], names.test[:1])
    store = boosted_unaries(scenes, split, folder=tmp_path, fast=True)
    _, _, labels = scenes[scenes.names.index(split.test[0])]
    assert store[split.test[0]].shape == (*labels.shape, 8)
    assert np.isfinite(store[split.test[0]]).all()
