"""The experiment on scenes: canvases, boundaries, unaries, couplings and complete runs, on synthetic scenes."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paper.tests.synthetic_scenes import synthetic_scenes
from scipy.special import log_softmax, softmax
from tests.command import Run

import locpmap as lp
from locpmap.refining.weights import Weights
from locpmap_paper import experiments
from locpmap_paper.data.scenes import Scenes, thumbnails
from locpmap_paper.experiments import protocol, runner
from locpmap_paper.experiments.decoders import DECODERS
from locpmap_paper.experiments.scenes import experiment as scene_experiment
from locpmap_paper.experiments.scenes.canvas import crf_on_canvas, on_canvas
from locpmap_paper.experiments.scenes.experiment import STANFORD, SceneData, SceneLabeling
from locpmap_paper.experiments.scenes.store import UnaryStore

torch = pytest.importorskip("torch", reason="torch is not installed")
boundaries = pytest.importorskip("locpmap_paper.experiments.scenes.boundaries")
catalogue = pytest.importorskip("locpmap_paper.experiments.scenes.catalogue")
fits = pytest.importorskip("locpmap_paper.experiments.fits")
joint = pytest.importorskip("locpmap_paper.experiments.scenes.joint")
networks = pytest.importorskip("locpmap_paper.experiments.scenes.networks")
pairwise = pytest.importorskip("locpmap_paper.experiments.scenes.pairwise")
rows = pytest.importorskip("locpmap_paper.experiments.rows")
stages = pytest.importorskip("locpmap_paper.experiments.stages")

STEPS = ((0, 1), (1, 0), (2, -1), (0, 3), (3, 0))
TINY = replace(STANFORD, n_train=10, n_test=3, n_at_once=2, n_seeds=1, fast=True)


def with_void(scenes: Scenes, relabelled: tuple[str, ...] = ()) -> Scenes:
    """Return scenes with a stripe of void pixels; those in `relabelled` get other labels elsewhere."""
    maps = {}
    for name, labels in zip(scenes.names, scenes.labels, strict=True):
        maps[name] = (labels + 1) % 8 if name in relabelled else labels.copy()
        maps[name][5:8] = -1
    return Scenes(scenes._photographs, maps)


DATA = SceneData(with_void(synthetic_scenes(14)), None)
SMALL = SceneData(with_void(synthetic_scenes(14, square=4)), None)
TIMES = {"seconds", "started", "finished", "command"}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the data by a few synthetic scenes."""
    monkeypatch.setitem(protocol.EXPERIMENTS, "stanford", TINY)
    monkeypatch.setattr(SceneLabeling, "smoke", lambda self: self)
    monkeypatch.setattr(SceneLabeling, "load", lambda self, folder=None: SMALL)
    torch.set_num_threads(1)


# cases and canvases


def test_seed_determines_the_split_and_scenes_are_in_the_corner_of_a_canvas() -> None:
    case, other = (TINY.case(DATA, "boosted", seed) for seed in (0, 1))
    numbers = [set(part.inputs) for part in (case.fit, case.held_out, case.test)]
    assert [len(part) for part in numbers] == [8, 2, 3]
    assert len(set.union(*numbers)) == 13  # no scene is in two parts
    assert set(other.test.inputs) != numbers[2]
    for number, truth in zip(case.test.inputs, case.test.truth, strict=True):
        labels = DATA.scenes.labels[number]
        height, width = labels.shape
        np.testing.assert_array_equal(truth[:height, :width], labels)
        assert (truth != -1).sum() == (labels != -1).sum() == labels.size - 3 * width
    np.testing.assert_array_equal(case.images(case.test)[0, :50, :60], DATA.scenes[case.test.inputs[0]][1][:50, :60])
    with pytest.raises(lp.InputError, match="have 14 scenes, expected at least 16"):
        replace(TINY, n_test=6).case(DATA, "boosted", 0)


def test_canvas_does_not_change_the_scores_of_a_scene() -> None:
    rng = np.random.default_rng(0)
    sizes, scenes = [(5, 6), (7, 4), (7, 6)], []
    for height, width in sizes:
        unary = rng.normal(size=(height, width, 3)).astype(np.float32)
        shapes = lp.graphs.Grid(height, width, STEPS).direction_shapes
        weights = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
        scenes.append((unary, weights))
    together = crf_on_canvas([u for u, _ in scenes], [w for _, w in scenes], STEPS, (7, 6))
    for _ in range(5):
        labels = [rng.integers(0, 3, size) for size in sizes]
        score = together.score(on_canvas(labels, (7, 6), 0))
        for number, (unary, weights) in enumerate(scenes):
            alone = lp.Potentials.grid(unary, tuple(weights), connectivity=STEPS)
            assert score[number] == pytest.approx(float(alone.score(labels[number])), rel=1e-5)
    labels = lp.infer(together, "icm", start="unary").labels
    assert [(part != -1).sum() for part in labels] == [30, 28, 42]


# boundaries


@pytest.mark.parametrize("step", [(0, 1), (1, 0), (3, 0), (0, 5), (2, 1), (4, -3), (9, 0)])
def test_continuity_is_one_minus_the_strongest_boundary_in_between(step: tuple[int, int]) -> None:
    edges = np.random.default_rng(1).random((8, 9)).astype(np.float32)
    found, (down, right) = boundaries.continuity(edges, step), step
    height, width = max(0, 8 - down), max(0, 9 - abs(right))
    assert found.shape == (height, width)
    length = max(abs(down), abs(right))
    for row in range(height):
        for column in range(width):
            begin = column + max(0, -right)
            way = [(row + round(down * k / length), begin + round(right * k / length)) for k in range(length + 1)]
            assert found[row, column] == pytest.approx(1 - max(edges[place] for place in way))


def test_colour_similarity_decreases_with_distance() -> None:
    image = np.zeros((1, 4, 3), np.uint8)
    image[0, 2:] = (0, 30, 40)  # a jump of 50
    squares = np.array([0.0, 2500.0, 0.0])
    expected = np.exp(-squares / (2 * squares.mean()))
    found = boundaries.colour_similarity(torch.tensor(image).movedim(-1, 0)[None].float(), (0, 1))
    np.testing.assert_allclose(found[0, 0], expected, rtol=1e-6)
    features = boundaries.edge_features(image, np.zeros((1, 4), np.float32), ((0, 1), (1, 0)), ["boundary", "colour"])
    assert [part.shape for part in features] == [(1, 3, 3), (0, 4, 3)]
    np.testing.assert_array_equal(features[0][..., :2], 1)


def test_boundary_maps_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenes, asked = synthetic_scenes(3), []
    edge_maps = boundaries.HED.edge_maps

    def watched(self: Any, images: list[Any], **more: Any) -> Any:
        asked.append(len(images))
        return edge_maps(self, images, **more)

    monkeypatch.setattr(boundaries.HED, "edge_maps", watched)
    some = boundaries.boundary_maps(scenes, scenes.names[:2], tmp_path, published=False, device="cpu")
    every = boundaries.boundary_maps(scenes, scenes.names, tmp_path, published=False, device="cpu")
    assert asked == [2, 1]
    for before, after, (_, image, _) in zip(some, every, scenes, strict=False):
        np.testing.assert_array_equal(before, after)
        assert before.shape == image.shape[:2]
    assert len({edges.tobytes() for edges in every}) == 3


# couplings that a network predicts


def test_couplings_of_a_mirror_image_are_mirrored() -> None:
    network = networks.build_network("pretrained", {"width": 8}).train(False)
    coupled = joint.CoupledNetwork(network, STEPS[:2] + STEPS[3:])
    with torch.no_grad():
        coupled.couplings.weight.normal_(generator=torch.Generator().manual_seed(0))
    image = DATA.scenes[0][1]
    own, mirrored = coupled.weights_of(image), coupled.weights_of(image[:, ::-1])
    for weights, other, shape in zip(own, mirrored, [(56, 71), (55, 72), (56, 69), (53, 72)], strict=True):
        assert weights.shape == shape
        assert np.ptp(weights) > 0
        np.testing.assert_allclose(weights, other[:, ::-1], atol=1e-4)


def test_diagonal_steps_are_refused() -> None:
    with pytest.raises(lp.InputError, match="expected no diagonal ones"):
        joint.CoupledNetwork(networks.build_network("deeplab", {"shrink": 16}), STEPS)


def test_part_of_a_batch_retains_the_mask() -> None:
    unary = np.random.default_rng(0).normal(size=(2, 3, 4, 3)).astype(np.float32)
    weights = [(np.ones((3, 3)), np.ones((2, 4))), (np.ones((2, 2)), np.ones((1, 3)))]
    scenes = crf_on_canvas([unary[0], unary[1][:2, :3]], weights, STEPS[:2], (3, 4))
    assert scenes.part(slice(2)).masked.sum() == 6
    assert scenes.part(slice(1)).masked.sum() == 0


def test_untrained_couplings_are_zero() -> None:
    coupled = joint.CoupledNetwork(networks.build_network("deeplab", {"shrink": 16}).train(False), STEPS[:2])
    assert not any(weights.any() for weights in coupled.weights_of(DATA.scenes[0][1]))


# the run


def test_smoke_run_has_small_scenes() -> None:
    scenes = synthetic_scenes(3)
    small = thumbnails(scenes[:2], 4)
    assert small.names == scenes.names[:2]
    for (_, image, labels), (_, _, before) in zip(small, scenes, strict=False):
        np.testing.assert_array_equal(labels, before[::4, ::4])
        assert image.shape[:2] == labels.shape
        inner = (
            np.abs(image[..., 0].astype(int) - (30 * labels.astype(int) + 15)) < 40
        )  # the grey value encodes the label
        assert inner.mean() > 0.8


def fits_of(folder: Path, level: str, data: SceneData = DATA) -> Any:
    case = TINY.case(data, level, 0)
    models = {model.name: model for model in catalogue.SCENE_MODELS}
    return fits.StoredFits(stages.Stages(folder), case, models, "cpu", lambda *_: None, "guard")


def test_temperature_minimises_the_loss_on_held_out_scenes(tmp_path: Path) -> None:
    kept = fits_of(tmp_path, "deeplab")
    base, scale = kept.fitted("unaries"), kept.fitted("scaled").scale
    case = kept.case
    truth = np.concatenate([DATA.scenes.labels[n][:, ::7].ravel() for n in case.held_out.inputs])
    scores = np.concatenate([base.scores(n)[:, ::7].reshape(-1, 8) for n in case.names(case.held_out.inputs)])
    truth, scores = truth[truth != -1], scores[truth != -1]

    def loss(factor: float) -> float:
        return -float(log_softmax(factor * scores, axis=1)[np.arange(len(truth)), truth].mean())

    tried = np.linspace(0.2, 5, 200)
    assert loss(scale) <= min(map(loss, tried)) + 1e-4
    logits = kept.fitted("unaries").logits(case.test.inputs)
    scaled = kept.fitted("scaled").probability(case.test.inputs)
    np.testing.assert_allclose(np.log(scaled), log_softmax(scale * logits, axis=-1), atol=1e-5)


def test_similar_pixels_influence_the_unaries(tmp_path: Path) -> None:
    kept = fits_of(tmp_path, "deeplab")
    case, base, rng = kept.case, kept.fitted("unaries"), np.random.default_rng(0)
    for part, folder in base.stores.items():  # informative noisy scores, which averaging improves
        for scene in getattr(case, part).inputs:
            labels = case.data.scenes.labels[scene]
            said = (labels[:, :, None] == np.arange(8)) + rng.normal(size=(*labels.shape, 8))
            UnaryStore(folder).put(case.data.scenes.names[scene], said)
    found = kept.fitted("alike")
    weights = found.details
    assert weights["scale"] > 0
    assert weights["guided"] > 0
    (number, *_), (name, *_) = case.test.inputs, case.names(case.test.inputs)
    scale, own, guided = (np.array([weights[key]]) for key in ("scale", "own", "guided"))
    refiner = lp.Refiner(Weights(np.ones(1), scale, own, guided, np.zeros((1, 2, 2)), np.zeros(2)))
    potentials = refiner.prepare(
        case.data.scenes[number][1], kept.fitted("unaries").scores(name), layout="hwk"
    ).potentials
    np.testing.assert_allclose(found.scores(name), potentials.unflatten(potentials.unary), atol=1e-5)
    again = kept.models["alike"].load(kept.stages.path(f"{case.name}/alike/fit", ".safetensors"), case, kept, "cpu")
    np.testing.assert_array_equal(again.probability(case.test.inputs), found.probability(case.test.inputs))


def test_two_networks_are_averaged(tmp_path: Path) -> None:
    """Average the logits of both networks on test scenes, with and without couplings."""
    kept = fits_of(tmp_path, "pretrained")
    case, base, joint = kept.case, kept.fitted("unaries"), kept.fitted("joint")
    both, beside = kept.fitted("two-networks"), kept.fitted("joint-beside")
    test, held_out = (case.names(part.inputs)[0] for part in (case.test, case.held_out))
    number, earlier = case.test.inputs[0], UnaryStore(base.stores["held_out"])
    network = networks.load_network(base.network("held_out"))
    said = networks.predict_logits(network, case.data.scenes[number][1])
    np.testing.assert_allclose(earlier[test], said, atol=2e-3)  # stored in half precision
    earlier.put(test, base.scores(test) + 1)
    np.testing.assert_allclose(both.scores(test), base.scores(test) + 0.5, atol=2e-3)
    np.testing.assert_array_equal(both.scores(held_out), base.scores(held_out))
    scale = kept.fitted("scaled").scale
    expected = softmax(scale * both.logits(case.test.inputs), axis=-1)
    np.testing.assert_allclose(both.probability(case.test.inputs), expected, atol=1e-6)

    _, own_weights = joint.terms(number)
    joint._cached[number] = base.scores(test) + 1, own_weights
    logits, weights = beside.terms(number)
    np.testing.assert_allclose(logits, base.scores(test) + 0.5, atol=1e-5)
    for one, other in zip(weights, own_weights, strict=True):
        np.testing.assert_array_equal(one, other)
    again = kept.models["joint-beside"].load(tmp_path, case, kept, "cpu")
    np.testing.assert_array_equal(again.probability(case.test.inputs), beside.probability(case.test.inputs))


@pytest.mark.parametrize("level", [pytest.param("boosted", marks=pytest.mark.slow), "deeplab"])
def test_labels_of_test_scenes_do_not_change_weights(level: str, tmp_path: Path) -> None:
    """Check also that labels of held-out scenes do not change the network that scores them."""
    case = fits_of(tmp_path, level).case
    test, held_out = (tuple(case.names(part.inputs)) for part in (case.test, case.held_out))
    models = ["unaries", "scaled", "alike", "pl-colour", "consistent-colour"] + ["joint"] * (level == "deeplab")

    def weights(folder: str, relabelled: tuple[str, ...]) -> Any:
        kept = fits_of(tmp_path / folder, level, SceneData(with_void(synthetic_scenes(14), relabelled), None))
        found = {name: kept.record(name)["details"] for name in models} | {"scores": kept.fitted("unaries").content()}
        folder_of_scores = kept.fitted("unaries").stores["held_out"]
        scores = {path.name: path.read_bytes() for path in sorted(folder_of_scores.glob("*.npy"))}
        return found, scores

    plain, scores = weights("plain", ())
    assert weights("test", test)[0] == plain
    other, other_scores = weights("held-out", held_out)
    assert other_scores == scores or level == "boosted"  # boosting also stores scores of training scenes
    assert other["pl-colour"] != plain["pl-colour"]


def test_tuning_scenes_are_not_used_for_learning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    batches = joint.SceneBatches

    def watched(scenes: Any, *given: Any) -> Any:
        shown.extend(name for name, _, _ in scenes)
        return batches(scenes, *given)

    monkeypatch.setattr(joint, "SceneBatches", watched)
    monkeypatch.setattr(scene_experiment, "N_TUNING", 1)
    kept = fits_of(tmp_path, "deeplab")
    kept.record("joint")
    case = kept.case
    assert len(case.tuning) == 1
    assert len(shown) == len(case.fit) + len(case.held_out) - 1
    assert not set(shown) & set(case.names(np.concatenate([case.tuning.inputs, case.test.inputs])))


def test_duplicate_photographs_are_in_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    case = TINY.case(DATA, "boosted", 0)
    first, later, last = (case.names(part.inputs)[0] for part in (case.fit, case.held_out, case.test))
    monkeypatch.setattr(scene_experiment, "TWINS", ((last, first), (later, case.names(case.fit.inputs)[1])))
    other = TINY.case(DATA, "boosted", 0)
    assert other.names(other.test.inputs) == case.names(case.test.inputs)
    assert other.names(other.held_out.inputs) == case.names(case.held_out.inputs)
    assert other.names(other.fit.inputs) == case.names(case.fit.inputs)[2:]


def test_missing_or_changed_scores_are_recomputed(tmp_path: Path) -> None:
    kept = fits_of(tmp_path / "a", "deeplab")
    base = kept.fitted("unaries")
    before, paths = base.content(), sorted(base.stores["test"].glob("*.npy"))
    paths[0].unlink()
    assert fits_of(tmp_path / "a", "deeplab").fitted("unaries").content() == before
    np.save(paths[1], -3 * np.load(paths[1]))
    again = fits_of(tmp_path / "a", "deeplab").fitted("unaries").content()
    assert again != before  # changed scores are detected
    (tmp_path / "a").rename(tmp_path / "b")
    assert fits_of(tmp_path / "b", "deeplab").fitted("unaries").content() == again  # the folder may be moved


def test_changed_recipe_causes_a_new_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = fits_of(tmp_path, "deeplab")
    before = {name: kept.record(name)["sha256"] for name in ("unaries", "pl-colour")}
    monkeypatch.setattr(pairwise, "WINDOW", (20, 31))
    other = fits_of(tmp_path, "deeplab")
    assert other.record("unaries")["sha256"] == before["unaries"]
    assert other.record("pl-colour")["sha256"] != before["pl-colour"]


def test_test_scenes_are_scored_by_a_network_trained_on_all_training_scenes(tmp_path: Path) -> None:
    kept = fits_of(tmp_path, "deeplab")
    base, case = kept.fitted("unaries"), kept.case
    assert base.stores["held_out"] != base.stores["test"]
    with pytest.raises(KeyError):
        base.scores(case.names(case.fit.inputs)[0])  # not available: its network was trained on it
    for path in base.stores["test"].glob("*.npy"):
        path.unlink()
    with pytest.raises(lp.InputError, match="has no scores of scene"):
        base.logits(case.test.inputs)


def test_window_has_the_scores_and_edges_of_its_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairwise, "WINDOW", (20, 31))
    kept = fits_of(tmp_path, "deeplab")
    couplings = pairwise.Couplings(("colour",), ((0, 1), (1, 0), (0, 9)), kept.fitted("unaries"), tmp_path, "cpu")
    inputs = kept.case.held_out.inputs
    seen = couplings.windows(inputs, 0, lambda *_: None)
    assert len({labels.tobytes() for _, labels in seen}) == len(inputs)
    for number, (window, labels), whole in zip(inputs, seen, couplings.of(inputs), strict=True):
        assert labels.shape == window.structure.shape == (20, 31)
        truth, shape = DATA.scenes.labels[number], whole.structure.shape
        places = [
            (top, left)
            for top in range(shape[0] - 19)
            for left in range(shape[1] - 30)
            if np.array_equal(truth[top : top + 20, left : left + 31], labels)
        ]
        sites = np.arange(truth.size).reshape(shape)
        there = [sites[top : top + 20, left : left + 31].ravel() for top, left in places]
        right = [np.array_equal(whole.unary[0, place], window.unary[0]) for place in there]
        assert sum(right) == 1  # labels may repeat, scores do not
        place = there[right.index(True)]
        of_edge = {tuple(edge): values for edge, values in zip(whole.structure.edges(), whole.pairwise[0], strict=True)}
        for edge, values in zip(window.structure.edges(), window.pairwise[0], strict=True):
            np.testing.assert_array_equal(of_edge[tuple(place[edge])], values)


@pytest.mark.slow
def test_decoding_does_not_depend_on_the_batch_size(tmp_path: Path) -> None:
    kept = fits_of(tmp_path, "boosted")
    decoded = []
    for n_at_once in (1, 2, 3):
        case = replace(kept.case, experiment=replace(TINY, n_at_once=n_at_once))
        subject = rows.Subject(case, lambda: kept.fitted("pl-edges"), 3, True, "cpu")
        decoded.append(subject.decode(DECODERS["locpmap-conditional"], 3))
    for labels, probability, score, *_ in decoded[1:]:
        np.testing.assert_array_equal(labels, decoded[0][0])
        np.testing.assert_allclose(probability, decoded[0][1], atol=1e-6)
        assert score == pytest.approx(decoded[0][2])


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in TIMES}
    return [without_times(item) for item in value] if isinstance(value, list) else value


@pytest.mark.usefixtures("tiny")
def test_run_is_complete_and_resumes_after_an_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = ["unaries", "scaled", "pl-colour", "consistent-far", "alike", "alike-edges", "joint"]
    levels = ["boosted", "deeplab"]

    def run(folder: Path) -> Any:
        path = experiments.run("stanford", folder, fast=True, device="cpu", levels=levels, models=models)
        return json.loads(path.read_text("utf-8"))

    result = run(tmp_path / "whole")
    by_level = {level: {row["model"] for row in result["rows"] if row["level"] == level} for level in levels}
    assert by_level == {"boosted": set(models) - {"joint"}, "deeplab": set(models)}
    refused = {row["decoder"] for row in result["rows"] if row["refused"] is not None}
    assert refused <= {"graph-cut"}  # of repulsive edges
    assert all(len(row["iou"]) == 8 for row in result["rows"] if row["refused"] is None)
    assert result["protocol"]["paper"]["raw"]["LocPMAP"][-1] == 0.722
    pictures = np.load(tmp_path / "whole" / "pictures.npz")
    assert pictures["boosted/input"].shape == (3, 28, 36, 3)
    assert pictures["deeplab/joint/locpmap/probability"].shape == (3, 28, 36, 2)
    outside = pictures["deeplab/joint/locpmap/labels"] == -1
    assert outside.any()
    np.testing.assert_array_equal(pictures["deeplab/unaries/argmax/labels"] == -1, outside)

    calls, make_row = 0, rows.make_row

    def stop(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 12:
            raise KeyboardInterrupt
        return make_row(*given)

    # Boosting is not repeated: test_boosting.py interrupts and repeats it.
    boosted = Path("stages", "cache", "boosted")
    shutil.copytree(tmp_path / "whole" / boosted, tmp_path / "parts" / boosted)
    with monkeypatch.context() as patch:
        patch.setattr(runner, "make_row", stop)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "parts")
    assert without_times(run(tmp_path / "parts")) == without_times(result)


@pytest.mark.usefixtures("tiny")
def test_unknown_kind_of_unaries_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(lp.InputError, match="did you mean 'pretrained'"):
        experiments.run("stanford", tmp_path, levels=["pretraind"])
    with pytest.raises(lp.InputError, match="has no model joint at level boosted"):
        experiments.run("stanford", tmp_path, levels=["boosted"], models=["joint"])
    out = tmp_path / "out"
    Run(capsys, "reproduce", "stanford", "--unary", "boost", "--output", out).check_refusal("did you mean 'boosted'")
    Run(capsys, "reproduce", "digits", "--unary", "boosted", "--output", out).check_refusal(
        "--unary is given, expected"
    )


def test_every_model_and_its_needs_are_in_the_catalogue() -> None:
    for model in catalogue.SCENE_MODELS:
        assert set(model.needs) <= {other.name for other in catalogue.SCENE_MODELS}
        assert model.name in STANFORD.models
