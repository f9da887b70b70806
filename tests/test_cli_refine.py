"""``locpmap refine``: labels and their uncertainty for files and folders."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.command import Run

import locpmap as lp
from locpmap.cli.refine import Run as Command
from locpmap.cli.refine_inputs import Pair, Settings
from locpmap.cli.refine_outputs import Outputs
from locpmap.formats.images import read_image, read_label_map
from locpmap.formats.pictures import label_colours
from locpmap.refining.weights import Weights

SHAPE, K = (12, 17), 3
FILES = ("labels.png", "probability.npy", "variance.npy", "entropy.npy", "overlay.png", "json")
ALL = "labels,overlay,probability,variance,entropy"
TIFF = ("labels.tif", "probability.tif", "variance.tif", "entropy.tif")


def example(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return a colour image (H, W, 3) of three stripes, and logits (H, W, 3)."""
    rng = np.random.default_rng(seed)
    labels = np.broadcast_to(np.arange(SHAPE[1]) * K // SHAPE[1], SHAPE)
    image = (labels[..., None] * 80 + rng.integers(0, 40, (*SHAPE, 3))).astype(np.uint8)
    return image, (2 * np.eye(K)[labels] + rng.normal(size=(*SHAPE, K))).astype(np.float32)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Write an image and its logits; return their paths and a new output folder."""
    image, logits = example()
    Image.fromarray(image).save(tmp_path / "a.png")
    np.save(tmp_path / "a.npy", logits)
    return tmp_path / "a.png", tmp_path / "a.npy", tmp_path / "out"


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Write three images and their logits; return the folders and a new output folder."""
    images, logits = tmp_path / "images", tmp_path / "logits"
    images.mkdir()
    logits.mkdir()
    for seed, name in enumerate("abc"):
        image, scores = example(seed)
        Image.fromarray(image).save(images / f"{name}.png")
        np.save(logits / f"{name}.npy", scores)
    return images, logits, tmp_path / "out"


def words(inputs: tuple[Path, Path, Path], *more: object) -> list[object]:
    image, logits, out = inputs
    return ["refine", image, logits, "-o", out, "--keep", ALL, *more]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# outputs


def test_outputs_equal_those_of_refine(pair: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, *words(pair, "--n-samples", 20, "--seed", 3, "--strength", 1.5, "--temperature", 1.2))
    assert run.status == 0, run.err
    out = pair[2]
    assert names(out) == {f"a.{ending}" for ending in FILES}
    refiner = lp.Refiner.load().adjusted(strength=1.5, temperature=1.2)
    expected = lp.refine(*example(), refiner, decoder=lp.LocPMAP(20, start="perturbed"), seed=3)
    np.testing.assert_array_equal(read_label_map(out / "a.labels.png"), expected.labels)
    np.testing.assert_array_equal(np.load(out / "a.probability.npy"), expected.probability)
    np.testing.assert_allclose(np.load(out / "a.variance.npy"), expected.variance, atol=1e-7)
    np.testing.assert_allclose(np.load(out / "a.entropy.npy"), expected.entropy, atol=1e-6)
    with Image.open(out / "a.labels.png") as labels, Image.open(out / "a.overlay.png") as overlay:
        assert (labels.mode, overlay.mode) == ("P", "RGB")
        assert labels.size == overlay.size == SHAPE[::-1]
    assert "mean entropy" in run.out


def test_areas_equal_those_of_measure(pair: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, *words(pair, "--n-samples", 40, "--json"))
    (found,) = json.loads(run.out)["inputs"]
    area = lp.Refiner.load().measure(*example(), "area", lp.LocPMAP(40, start="perturbed"), seed=0)
    low, high = area.interval(0.9)
    for row in found["labels"]:
        k = row["label"]
        assert row["area"] == pytest.approx(area.mean[k])
        assert row["std"] == pytest.approx(area.std[k])
        assert row["interval"] == pytest.approx([low[k], high[k]])
        assert row["pixels"] == (read_label_map(pair[2] / "a.labels.png") == k).sum()
    assert sum(row["pixels"] for row in found["labels"]) == math.prod(SHAPE)
    assert found["mean_entropy"] == pytest.approx(np.load(pair[2] / "a.entropy.npy").mean())
    assert found == {**json.loads((pair[2] / "a.json").read_text()), "state": "done", "seconds": found["seconds"]}


def test_tiff_maps_have_16_bits(pair: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert Run(capsys, *words(pair, "--tiff")).status == 0
    out = pair[2]
    assert names(out) == {f"a.{ending}" for ending in (*FILES, *TIFF)}
    probability, entropy = np.load(out / "a.probability.npy"), np.load(out / "a.entropy.npy")
    labels = read_label_map(out / "a.labels.png").astype(np.int64)
    chosen = np.take_along_axis(probability, labels[..., None], axis=-1)[..., 0]
    assert (chosen < probability.max(-1)).any()
    expected = {"probability": chosen, "variance": 4 * chosen * (1 - chosen), "entropy": entropy / math.log(K)}
    for name, values in expected.items():
        with Image.open(out / f"a.{name}.tif") as file:
            assert file.mode.startswith("I;16")
            assert name in str(file.tag_v2[270])  # type: ignore[attr-defined]
            np.testing.assert_allclose(np.asarray(file) / 65534, values, atol=0.51 / 65534)
    with Image.open(out / "a.labels.tif") as file:
        np.testing.assert_array_equal(np.asarray(file), read_label_map(out / "a.labels.png"))


@pytest.fixture
def fields(tmp_path: Path) -> Path:
    """Write a refiner with error fields and return its path."""
    learned: dict[str, Any] = {"pairwise": 0.7, "sizes": [[0.3, 0.39, 0.99, 0.99, 0.62]], "shared": 0.24, "noise": 0.19}
    lp.Refiner(Weights([1.0], [1.1], **learned)).save(tmp_path / "fields.safetensors")
    return tmp_path / "fields.safetensors"


def test_samples_are_those_with_the_learned_errors(
    pair: tuple[Path, Path, Path], fields: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(capsys, *words(pair, "--model", fields, "--samples", 3, "--n-samples", 2, "--seed", 5, "--tiff"))
    assert run.status == 0, run.err
    out, maps = pair[2], [f"sample-{number:03d}" for number in range(3)]
    assert names(out) == {f"a.{ending}" for ending in (*FILES, *TIFF)} | {
        f"a.{name}.{ending}" for name in maps for ending in ("png", "tif")
    }
    decoder = lp.LocPMAP(3, start="perturbed", keep_samples=True)
    expected = lp.refine(*example(), fields, decoder=decoder, seed=5).samples
    assert (expected[0] != expected[1]).any()
    for name, labels in zip(maps, expected, strict=True):
        np.testing.assert_array_equal(read_label_map(out / f"a.{name}.png"), labels)
        with Image.open(out / f"a.{name}.tif") as file:
            np.testing.assert_array_equal(np.asarray(file), labels)
    first = lp.refine(*example(), fields, decoder=lp.LocPMAP(2, start="perturbed"), seed=5)
    np.testing.assert_array_equal(np.load(out / "a.probability.npy"), first.probability)


def test_samples_of_folders_are_written_once(
    folders: tuple[Path, Path, Path], fields: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def states(n_maps: int) -> list[str]:
        run = Run(capsys, *words(folders, "--model", fields, "--n-samples", 2, "--samples", n_maps, "--json"))
        assert run.status == 0, run.err
        return [each["state"] for each in json.loads(run.out)["inputs"]]

    assert states(2) == ["done"] * 3
    maps = ("sample-000.png", "sample-001.png")
    assert names(folders[2]) == {f"{name}.{ending}" for name in "abc" for ending in (*FILES, *maps)}
    assert states(2) == ["skipped"] * 3
    (folders[2] / "b.sample-001.png").unlink()
    assert states(2) == ["skipped", "done", "skipped"]
    assert states(3) == ["done"] * 3
    assert states(1) == ["done"] * 3
    assert names(folders[2]) == {f"{name}.{ending}" for name in "abc" for ending in (*FILES, "sample-000.png")}
    (folders[2] / "a.sample-007.png").touch()  # not written by a run, so that none removes it
    assert states(0) == ["done"] * 3
    expected = {f"{name}.{ending}" for name in "abc" for ending in FILES}
    assert names(folders[2]) == expected | {"a.sample-007.png"}


def test_overlay_shows_labels_by_certainty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check label colours over the grey image, which fade with the entropy."""
    logits = np.zeros((*SHAPE, 2), np.float32)
    logits[:, :8, 1] = 60
    np.save(tmp_path / "x.npy", logits)
    Image.fromarray(np.full(SHAPE, 100, np.uint8)).save(tmp_path / "x.png")
    inputs = (tmp_path / "x.png", tmp_path / "x.npy", tmp_path / "out")
    assert Run(capsys, *words(inputs, "--strength", 0)).status == 0
    shown = read_image(tmp_path / "out/x.overlay.png").astype(float)
    np.testing.assert_allclose(shown[5, 3], 100 + 0.55 * (label_colours(2)[1] - 100.0), atol=1)
    np.testing.assert_allclose(shown[5, -1], 100, atol=1)  # maximal entropy: only the image
    Image.fromarray(np.indices(SHAPE)[0] < 6).save(tmp_path / "x.png")  # black and white, of one bit
    assert Run(capsys, *words(inputs, "--strength", 0)).status == 0
    shown = read_image(tmp_path / "out/x.overlay.png").astype(float)
    np.testing.assert_allclose(shown[3, 3], 255 + 0.55 * (label_colours(2)[1] - 255.0), atol=1)
    np.testing.assert_allclose(shown[[3, 9], -1], [[255] * 3, [0] * 3], atol=1)


@pytest.mark.parametrize("ending", ["npz", "safetensors", "khw", "probabilities", "batch", "coarse"])
def test_scores_of_other_layouts_and_kinds(
    ending: str, pair: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from safetensors.numpy import save_file

    image, logits = example()
    path, more, expected = tmp_path / "a.npy", [], lp.refine(image, logits)
    if ending == "npz":
        np.savez_compressed(path := tmp_path / "a.npz", logits=logits)
    elif ending == "safetensors":
        save_file({"logits": logits}, path := tmp_path / "a.safetensors")
    elif ending == "khw":
        np.save(path, np.moveaxis(logits, -1, 0))
        more = ["--layout", "khw"]
    elif ending == "batch":
        np.save(path, np.moveaxis(logits, -1, 0)[None])
    elif ending == "probabilities":
        p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        np.save(path, p)
        expected = lp.refine(image, p, scores="probabilities")
    else:
        np.save(path, logits[::4, ::4])
        expected = lp.refine(image, logits[::4, ::4])
    run = Run(capsys, *words((pair[0], path, pair[2]), *more))
    assert run.status == 0, run.err
    np.testing.assert_allclose(np.load(pair[2] / "a.probability.npy"), expected.probability, atol=1e-6)


def test_model_and_blocks_are_used(pair: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Use strong weights, so that the start and the blocks change the result."""
    weights = lp.Refiner.load().weights
    path = pair[0].parent / "model.safetensors"
    lp.Refiner(replace(weights, pairwise=np.full_like(weights.pairwise, 1.2))).save(path)
    assert Run(capsys, *words(pair, "--model", path, "--blocks", "rows")).status == 0
    expected = {
        (blocks, start): lp.refine(*example(), path, decoder=lp.LocPMAP(blocks=blocks, start=start)).probability
        for blocks in ("rows", "sites")
        for start in ("perturbed", "random")
    }
    found = np.load(pair[2] / "a.probability.npy")
    same = [how for how, probability in expected.items() if np.array_equal(probability, found)]
    assert same == [("rows", "perturbed")]


def test_options_change_only_their_own_adjustments(
    pair: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = pair[0].parent / "model.safetensors"
    saved = lp.Refiner.load().adjusted(smoothing=0.5, temperature=2.0)
    saved.save(path)
    for more, adjusted in (
        ((), saved),
        (("--strength", 0.5), saved.adjusted(strength=0.5, smoothing=0.5, temperature=2.0)),
        (("--temperature", 1), saved.adjusted(smoothing=0.5)),
        (("--strength", 1, "--smoothing", 0, "--temperature", 1), saved.adjusted()),
    ):
        assert Run(capsys, *words(pair, "--model", path, *more)).status == 0
        expected = lp.refine(*example(), adjusted, decoder=lp.LocPMAP(start="perturbed"))
        np.testing.assert_array_equal(np.load(pair[2] / "a.probability.npy"), expected.probability)
        recorded = json.loads((pair[2] / "a.json").read_text())["settings"]
        assert recorded.items() >= vars(adjusted.adjustment).items()


def test_progress_increases_to_the_total(pair: tuple[Path, Path, Path]) -> None:
    settings = Settings("auto", "auto", None, 200, "sites", 0, "auto")
    fractions: list[float] = []
    outputs = Outputs(pair[2], Pair("a", *pair[:2]), tiff=False)
    run = Command(lp.Refiner.load().adjusted(smoothing=0.5), settings, {}, force=False)
    run.one(outputs, lambda done, total: fractions.append(done / total))
    assert len(fractions) >= 3
    assert fractions == sorted(fractions)
    assert fractions[0] <= 0.5
    assert fractions[-1] == 1


# folders


def test_folders_are_matched_by_name(folders: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, *words(folders, "--jobs", 3, "--n-samples", 10, "--json"))
    assert run.status == 0, run.err
    report = json.loads(run.out)
    assert [each["name"] for each in report["inputs"]] == ["a", "b", "c"]
    assert report["errors"] == []
    assert names(folders[2]) == {f"{name}.{ending}" for name in "abc" for ending in FILES}
    for seed, name in enumerate("abc"):  # each input gives the same result as alone
        expected = lp.refine(*example(seed), decoder=lp.LocPMAP(10, start="perturbed"))
        np.testing.assert_array_equal(np.load(folders[2] / f"{name}.probability.npy"), expected.probability)


def test_finished_inputs_are_skipped(folders: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    def states(*more: object) -> dict[str, str]:
        run = Run(capsys, *words(folders, "--n-samples", 5, "--json", *more))
        assert run.status == 0, run.err
        return {each["name"]: each["state"] for each in json.loads(run.out)["inputs"]}

    images, logits, out = folders
    assert set(states().values()) == {"done"}
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    assert set(states().values()) == {"skipped"}
    assert before == {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    for path in (*images.iterdir(), *logits.iterdir()):
        os.utime(path, ns=(0, 0))
    assert set(states().values()) == {"skipped"}  # same content, new modification time
    old = (logits / "b.npy").stat()
    np.save(logits / "b.npy", example(9)[1])  # new content, same size and modification time
    os.utime(logits / "b.npy", ns=(old.st_atime_ns, old.st_mtime_ns))
    assert (logits / "b.npy").stat().st_size == old.st_size
    (out / "c.entropy.npy").unlink()  # a missing output
    assert states() == {"a": "skipped", "b": "done", "c": "done"}
    expected = lp.refine(example(1)[0], example(9)[1], decoder=lp.LocPMAP(5, start="perturbed"))
    np.testing.assert_array_equal(np.load(out / "b.probability.npy"), expected.probability)
    (out / "a.json").write_text("{")  # a damaged record
    assert states() == {"a": "done", "b": "skipped", "c": "skipped"}
    assert set(states("--seed", 1).values()) == {"done"}
    assert set(states("--seed", 1, "--force").values()) == {"done"}
    assert set(states("--seed", 1, "--tiff").values()) == {"done"}
    model = images.parent / "model.safetensors"
    refiner = lp.Refiner.load()
    refiner.details["data"] = "others"
    refiner.save(model)
    assert set(states("--seed", 1, "--tiff", "--model", model).values()) == {"done"}


@pytest.mark.parametrize("content", ['{"shapes": []}', "[1]"])
def test_file_of_another_program_is_not_replaced(
    content: str, pair: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Many programs save the annotations of a.png in a.json."""
    path = pair[0].with_suffix(".json")
    path.write_text(content)
    Run(capsys, *words((*pair[:2], path.parent), "--force")).check_refusal(f"{path} is not a record of")
    assert path.read_text() == content
    assert names(path.parent) == {"a.png", "a.npy", "a.json"}


def test_files_of_an_earlier_record_are_removed_except_inputs(
    pair: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = pair[0].parent
    here = "refine", *pair[:2], "-o", folder, "--keep", "labels", "--n-samples", 3
    assert Run(capsys, *here, "--samples", 2).status == 0
    record = json.loads((folder / "a.json").read_text())
    (folder / "a.json").write_text(json.dumps({**record, "files": [*record["files"], "a.png", "a.npy"]}))
    assert Run(capsys, *here).status == 0
    assert names(folder) == {"a.png", "a.npy", "a.json", "a.labels.png"}
    wrong: list[Any] = [[{}], 3, ["a.\0"]]
    for files in wrong:
        (folder / "a.json").write_text(json.dumps({**record, "files": files}))
        assert Run(capsys, *here).status == 0
        assert json.loads((folder / "a.json").read_text())["files"] == ["a.labels.png", "a.json"]


def test_interrupted_run_resumes(
    folders: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, lock = Command.one, threading.Lock()
    done: list[object] = []

    def stop_at_the_second(self: Command, outputs: Any, progress: Any = None) -> Any:
        with lock:
            if done:
                raise KeyboardInterrupt
            done.append(outputs)
        return one(self, outputs, progress)

    monkeypatch.setattr(Command, "one", stop_at_the_second)
    assert Run(capsys, *words(folders, "--n-samples", 5, "--jobs", 1)).status == 130
    monkeypatch.undo()
    assert names(folders[2]) == {f"a.{ending}" for ending in FILES}
    run = Run(capsys, *words(folders, "--n-samples", 5, "--json"))
    assert [each["state"] for each in json.loads(run.out)["inputs"]] == ["skipped", "done", "done"]


def test_bad_input_does_not_stop_the_others(
    folders: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    bad = example(1)[1]
    bad[2, 3, 0] = np.nan
    np.save(folders[1] / "b.npy", bad)
    run = Run(capsys, *words(folders, "--n-samples", 5, "--json"))
    assert run.status == 2
    assert run.err.startswith("locpmap: ")
    assert run.err.count("\n") == 1
    assert "b.npy" in run.err
    report = json.loads(run.out)
    assert [each["name"] for each in report["inputs"]] == ["a", "c"]
    assert [each["name"] for each in report["errors"]] == ["b"]
    assert names(folders[2]) == {f"{name}.{ending}" for name in "ac" for ending in FILES}


# bad input


def nan_logits(folder: Path) -> None:
    logits = example()[1]
    logits[0, 0, 0] = np.nan
    np.save(folder / "a.npy", logits)


def objects(folder: Path) -> None:
    np.save(folder / "a.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)


def cut(name: str) -> Any:
    def change(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])

    return change


BAD_FILES = {
    "no image": (lambda folder: (folder / "a.png").unlink(), ("a.png does not exist",)),
    "no logits": (lambda folder: (folder / "a.npy").unlink(), ("a.npy does not exist",)),
    "a rank too few": (lambda folder: np.save(folder / "a.npy", np.zeros(SHAPE)), ("a.npy has shape (12, 17)",)),
    "other sizes": (lambda folder: np.save(folder / "a.npy", np.zeros((5, 40, K))), ("a.npy", "(5, 40, 3)", "(12, 17")),
    "larger than the image": (
        lambda folder: np.save(folder / "a.npy", np.zeros((99, 98, K))),
        ("a.npy", "(99, 98, 3)"),
    ),
    "NaN": (nan_logits, ("a.npy", "nan")),
    "Python objects": (objects, ("a.npy holds Python objects", "array of real numbers")),
    "cut logits": (cut("a.npy"), ("a.npy is damaged",)),
    "cut image": (cut("a.png"), ("a.png",)),
    "empty logits": (lambda folder: (folder / "a.npy").write_bytes(b""), ("a.npy is empty",)),
    "an image that is text": (lambda folder: (folder / "a.png").write_text("hello"), ("a.png", "PNG or JPEG")),
    "one label": (lambda folder: np.save(folder / "a.npy", np.zeros((*SHAPE, 1))), ("a.npy", "label")),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files_are_refused_by_name(
    case: str, pair: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    change, parts = BAD_FILES[case]
    change(pair[0].parent)
    Run(capsys, *words(pair)).check_refusal(*parts)
    assert not pair[2].exists()


@pytest.mark.parametrize(
    ("name", "write", "parts"),
    [
        ("a.pt", lambda path: path.write_bytes(b"PK"), ("a.pt may hold Python objects", "numpy.save")),
        ("a.txt", lambda path: path.write_text("1 2"), ("ends in .txt", ".npy")),
        ("a.npz", lambda path: np.savez(path, x=np.zeros(3), y=np.zeros(3)), ("holds 2 arrays (x, y), expected one",)),
        ("a.npz", lambda path: path.write_bytes(b"PK\x03\x04 and no more"), ("a.npz is damaged or not a .npz file",)),
        ("a.safetensors", lambda path: path.write_bytes(b"hello, world"), ("a.safetensors is damaged",)),
    ],
)
def test_unreadable_scores_are_refused(
    name: str, write: Any, parts: tuple[str, ...], pair: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = pair[0].parent / name
    write(path)
    Run(capsys, *words((pair[0], path, pair[2]))).check_refusal(*parts)
    assert not pair[2].exists()


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        (("--layout", "hkw"), ("unknown layout 'hkw'", "did you mean")),
        (("--scores", "logit"), ("unknown scores 'logit'", "'logits'")),
        (("--strength", "-1"), ("strength is -1",)),
        (("--temperature", "0"), ("temperature is 0",)),
        (("--n-samples", "0"), ("n_samples is 0",)),
        (("--samples", "-1"), ("--samples", "greater than or equal to 0")),
        (("--samples", "1001"), ("--samples", "less than or equal to 1000")),
        (("--samples", "two"), ("--samples", "integer")),
        (("--seed", "-1"), ("seed is -1",)),
        (("--seed", "1.5"), ("--seed", "integer")),
        (("--blocks", "row"), ("blocks", "row")),
        (("--device", "tpu"), ("device", "tpu")),
        (("--jobs", "0"), ("--jobs",)),
        (("--output", ""), ("--output", "it is empty")),
        (("--model", ""), ("--model", "it is empty")),
        (("--smoothing", "-1"), ("smoothing is -1",)),
        (("--model", "nowhere.safetensors"), ("nowhere.safetensors does not exist, expected a model file",)),
    ],
)
def test_bad_options_are_refused_before_writing(
    more: tuple[str, ...], parts: tuple[str, ...], pair: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    Run(capsys, *words(pair, *more)).check_refusal(*parts)
    assert not pair[2].exists()


def test_bad_folders_are_refused_by_name(folders: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    images, logits, out = folders
    Run(capsys, *words((images, logits / "a.npy", out))).check_refusal("is a folder", "is a file", "two folders")
    Run(capsys, *words((images, logits, images))).check_refusal("is also an input")
    Run(capsys, *words((images, logits, images / "a.png"))).check_refusal("a.png is a file, expected a folder")
    (images / "d.png").write_bytes((images / "a.png").read_bytes())
    Run(capsys, *words(folders)).check_refusal(f"d.png has no partner in {logits}, expected d with .npy")
    (logits / "e.npy").write_bytes((logits / "a.npy").read_bytes())
    (logits / "f.npy").write_bytes((logits / "a.npy").read_bytes())
    both = f"d.png has no partner in {logits}, and", f"e.npy and 1 more have no partner in {images}", "same names"
    Run(capsys, *words(folders)).check_refusal(*both)
    (logits / "e.npy").unlink()
    (logits / "f.npy").unlink()
    (images / "d.png").unlink()
    shutil.copy(images / "a.png", images / "a.jpg")
    Run(capsys, *words(folders)).check_refusal("a.jpg and a.png have the same name")
    shutil.rmtree(images)
    images.mkdir()
    (images / "notes.txt").write_text("")
    Run(capsys, *words(folders)).check_refusal("holds no file that ends in .png")
    assert not out.exists()


@pytest.mark.parametrize("truth", ["a.png", "a.npy"])
@pytest.mark.parametrize("both", [True, False])
def test_label_maps_instead_of_logits_are_refused(
    folders: tuple[Path, Path, Path], truth: str, both: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    images, logits, out = folders
    truths, labels = out.parent / "truths", np.zeros(SHAPE, np.uint8)
    truths.mkdir()
    Image.fromarray(labels).save(truths / "a.png")
    if truth == "a.npy":
        np.save(truths / truth, labels)
    if both:
        shutil.copytree(logits, images, dirs_exist_ok=True)
    expected = f"{truths} holds images or label maps such as {truth}, expected scores (logits) of a network"
    Run(capsys, *words((images, truths, out))).check_refusal(expected)


def test_output_that_is_a_link_to_another_input_is_refused(
    folders: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    images, _, out = folders
    out.mkdir()
    (out / "a.labels.png").symlink_to(images / "b.png")
    before = (images / "b.png").read_bytes()
    Run(capsys, *words(folders)).check_refusal("a.labels.png is also an input, expected another file to write to")
    assert (images / "b.png").read_bytes() == before


def test_unwritable_outputs_are_refused(pair: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    (pair[0].parent / "file").write_text("")
    Run(capsys, *words((*pair[:2], pair[0].parent / "file" / "out"))).check_refusal("cannot be created")
    (pair[2] / "a.probability.npy").mkdir(parents=True)
    Run(capsys, *words(pair)).check_refusal("a.probability.npy is a directory")
    assert names(pair[2]) == {"a.probability.npy"}


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_output_without_permission_is_refused(
    pair: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    pair[2].mkdir(mode=0o500)
    Run(capsys, *words(pair)).check_refusal("permission denied")


# rasters


def test_tiff_without_rasterio(
    pair: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.fromarray(example()[0]).save(path := pair[0].with_suffix(".tif"))
    monkeypatch.setitem(sys.modules, "rasterio", None)
    Run(capsys, *words((path, *pair[1:]))).check_refusal("a.tif is a TIFF file, which needs rasterio")


def test_outputs_have_the_georeference_of_the_input(
    pair: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    rasterio = pytest.importorskip("rasterio")
    pixels, logits = example()
    image = pixels.astype(np.float32)
    place = {"crs": "EPSG:32633", "transform": rasterio.Affine(10, 0, 500_000, 0, -10, 5_000_000)}
    profile = {"driver": "GTiff", "height": SHAPE[0], "width": SHAPE[1], **place}
    path, void = pair[0].with_suffix(".tif"), np.zeros(SHAPE, bool)
    void[:2, :3] = True
    image[void] = np.nan
    with rasterio.open(path, "w", count=3, dtype="float32", nodata=np.nan, **profile) as file:
        file.write(np.moveaxis(image, -1, 0))
    scores = pair[1].with_name("scores.tif")
    with rasterio.open(scores, "w", count=K, dtype="float32", **profile) as file:
        file.write(np.moveaxis(logits, -1, 0))
    run = Run(capsys, *words((path, scores, pair[2]), "--samples", 2))
    assert run.status == 0, run.err
    expected = lp.refine(np.where(void[..., None], 0, image), logits, mask=void)
    for name in (*TIFF, "sample-000.tif", "sample-001.tif"):
        with rasterio.open(pair[2] / f"a.{name}") as file:
            assert file.crs == place["crs"]
            assert file.transform == place["transform"]
            if name == "labels.tif":
                found = file.read(1)
            if name.startswith("sample"):
                np.testing.assert_array_equal(file.read(1) == 255, void)
    np.testing.assert_array_equal(found, np.where(void, 255, expected.labels))
    np.testing.assert_array_equal(read_label_map(pair[2] / "a.labels.png"), found)
    assert json.loads((pair[2] / "a.json").read_text())["pixels"] == math.prod(SHAPE) - 6


def test_pixels_without_data_do_not_change_the_colour_scale(pair: tuple[Path, Path, Path]) -> None:
    """Use nodata values far from the colours: they must not compress all other differences."""
    rasterio = pytest.importorskip("rasterio")
    image = example()[0].astype(np.int32) + 10**7
    image[:2, :3] = -1
    path = pair[0].with_suffix(".tif")
    size = {"height": SHAPE[0], "width": SHAPE[1], "transform": rasterio.Affine(10, 0, 0, 0, -10, 0)}
    with rasterio.open(path, "w", driver="GTiff", count=3, dtype="int32", nodata=-1, **size) as file:
        file.write(np.moveaxis(image, -1, 0))
    content = Pair("a", path, pair[1]).read()
    assert content.masked is not None
    np.testing.assert_array_equal(content.masked, (image == -1).all(-1))
    np.testing.assert_array_equal(content.image[~content.masked], image[~content.masked])
    np.testing.assert_allclose(content.image[0, 0], image[~content.masked].mean(0), atol=1)


def test_tiff_without_georeference(pair: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rasterio")
    Image.fromarray(example()[0]).save(path := pair[0].with_suffix(".tif"))
    run = Run(capsys, *words((path, *pair[1:])))
    assert (run.status, run.err) == (0, "")
    assert names(pair[2]) == {f"a.{ending}" for ending in FILES}
    np.testing.assert_array_equal(np.load(pair[2] / "a.probability.npy"), lp.refine(*example()).probability)
    path.write_bytes(path.read_bytes()[:60])
    Run(capsys, *words((path, *pair[1:]))).check_refusal("a.tif cannot be read as a TIFF file")


def test_channels_first_and_names_with_brackets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image, logits = example()
    for folder, array in (("images", np.moveaxis(image, -1, 0)), ("logits", logits)):
        (tmp_path / folder).mkdir()
        for name in ("[red]q[", "w"):
            np.save(tmp_path / folder / f"{name}.npy", array)
    run = Run(capsys, "refine", tmp_path / "images", tmp_path / "logits", "-o", tmp_path / "o[/b]")
    assert run.status == 0
    assert "[red]q[" in run.out
    assert (tmp_path / "o[/b]" / "w.overlay.png").exists()


@pytest.mark.parametrize("encoding", ["ascii", "cp437:strict", "utf-8"])
def test_stdout_of_any_encoding(pair: tuple[Path, Path, Path], tmp_path: Path, encoding: str) -> None:
    """Print the character ł in the table to a terminal that lacks it, without failing."""
    (tmp_path / "names.txt").write_text("sky\nziemiał\nsea", "utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    command = [sys.executable, "-m", "locpmap", *map(str, words(pair)), "--names", str(tmp_path / "names.txt")]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, b"")
    assert ("ziemiał".encode() if encoding == "utf-8" else b"ziemia") in done.stdout
    assert {f"a.{ending}" for ending in FILES} == names(pair[2])


@pytest.mark.parametrize("before", [False, True])
def test_full_disk_leaves_the_old_files(
    pair: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """Fail at each file in turn: all files of an input are written, or none."""
    if before:
        assert Run(capsys, *words(pair)).status == 0
    existing = {name: (pair[2] / name).read_bytes() for name in names(pair[2])} if before else {}
    write, capacity = Path.open, 0

    class Full:
        """A file on a disk that is full after a number of files."""

        def __init__(self, file: Any) -> None:
            self.file = file

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: Any) -> None:
            self.file.close()

        def writelines(self, pieces: Any) -> None:
            nonlocal capacity
            capacity -= 1
            self.file.write(b"half")
            if capacity < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.file.writelines(pieces)

    def opened(path: Path, mode: str = "r", *more: Any, **others: Any) -> Any:
        file = write(path, mode, *more, **others)
        return Full(file) if mode == "wb" else file

    monkeypatch.setattr(Path, "open", opened)
    for n_files in range(len(FILES)):
        capacity = n_files
        run = Run(capsys, *words(pair, "--seed", 1))
        run.check_refusal("cannot be written: No space left on device", str(pair[2] / "a."))
        assert {name: (pair[2] / name).read_bytes() for name in names(pair[2])} == existing


@pytest.mark.filterwarnings("default")
def test_warnings_are_sentences(pair: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    image, logits, out = pair
    np.save(logits, np.random.default_rng(0).random((*SHAPE, K)))
    run = Run(capsys, "refine", image, logits, "-o", out)
    assert run.status == 0
    assert run.err.startswith("locpmap: logits lies in [0, 1] and does not sum to 1")
    assert run.err.count("\n") == 1
