"""``locpmap fit`` and ``locpmap predict``: a model from folders, and its results for new inputs."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.command import Run

import locpmap as lp
from locpmap.cli.folders import labelled, match
from locpmap.features import Features, GivenUnary
from locpmap.formats.images import read_label_map

N, SHAPE = 11, (5, 6)


def examples() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return maps (N, H, W) of three labels, logits (N, H, W, 3) and colour images (N, H, W, 3)."""
    rng = np.random.default_rng(3)
    labels = np.stack([np.roll([[0, 0, 1, 1, 2, 2]] * SHAPE[0], k, axis=1) for k in range(N)])
    logits = (np.eye(3)[labels] + rng.normal(size=(*labels.shape, 3))).astype(np.float32)
    images = (labels[..., None] * 70 + rng.integers(0, 90, (*labels.shape, 3))).astype(np.uint8)
    return labels, logits, images


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write the examples to folders named unary, images and labels."""
    for name in ("unary", "images", "labels"):
        (tmp_path / name).mkdir()
    for k, (y, x, image) in enumerate(zip(*examples(), strict=True)):
        Image.fromarray(y.astype(np.uint8)).save(tmp_path / "labels" / f"{k:02}.png")
        np.save(tmp_path / "unary" / f"{k:02}.npy", x)
        Image.fromarray(image).save(tmp_path / "images" / f"{k:02}.png")
    return tmp_path


def fit(data: Path, *more: object, unary: bool = True, images: bool = True) -> list[object]:
    """Return the arguments of ``locpmap fit``."""
    words: list[object] = ["fit", "--labels", data / "labels", "-o", data / "m.safetensors", *more]
    words += ["--unary", data / "unary"] if unary else []
    return words + (["--images", data / "images"] if images else [])


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Fit a model for each kind of input in Python, and return the files."""
    labels, logits, images = examples()
    folder = tmp_path_factory.mktemp("models")
    kinds: dict[str, Any] = {
        "images": (lp.ImageFeatures(channels=3), images),
        "unary": (GivenUnary(3), [(x, None) for x in logits]),
        "both": (GivenUnary(3, ("constant", "contrast"), channels=3), list(zip(logits, images, strict=True))),
    }
    paths = {}
    for name, (extract, inputs) in kinds.items():
        crf = lp.CRF(3, features=extract, potts=True)
        crf.fit(list(zip(inputs, labels, strict=True)), options=lp.learning.FitOptions(standard_errors=False))
        paths[name] = folder / f"{name}.safetensors"
        crf.save(paths[name])
    return paths


# fit


def test_fit_of_folders_equals_fit_of_arrays(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, *fit(data, "--potts", "--tied", "--scale", "--l2", "2", "--json"))
    assert run.status == 0, run.err
    assert run.err == ""
    report = json.loads(run.out)
    labels, logits, images = examples()
    horizontal, vertical = (np.abs(np.diff(images / 255, axis=axis)) for axis in (2, 1))
    pairwise = [np.concatenate([np.ones((*d.shape[:3], 1)), d], axis=3) for d in (horizontal, vertical)]
    crf = lp.CRF(3, features=None, potts=True, tied=True, unary="scale")
    names = ("constant", "red", "green", "blue")
    expected = crf.fit(Features.grid(logits, pairwise, pairwise_names=names), labels, l2=2.0)
    assert expected.standard_errors is not None
    # Both fits stop at a gradient of 1e-5 of a weight's scale; in single precision, features differ by 1e-7.
    np.testing.assert_allclose([row["value"] for row in report["weights"]], expected.w, rtol=1e-4)
    errors = [row["standard_error"] for row in report["weights"]]
    np.testing.assert_allclose(errors, expected.standard_errors, rtol=1e-3)
    assert (report["n_labels"], report["n_images"], report["converged"]) == (3, N, True)
    loaded = lp.CRF.load(data / "m.safetensors")
    assert loaded.features == GivenUnary(3, ("constant", "difference"), channels=3)
    np.testing.assert_allclose(loaded.tables, crf.tables, rtol=1e-4)


def test_fit_of_images_without_unaries(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, *fit(data, "--pairwise", "constant,contrast", "--connectivity", "8", unary=False))
    assert run.status == 0, run.err
    assert "intensity 2, label 1" in run.out
    assert "± s.e." in run.out
    expected = lp.ImageFeatures(pairwise=("constant", "contrast"), connectivity=8, channels=3)
    assert lp.CRF.load(data / "m.safetensors").features == expected


def test_only_the_first_weights_are_printed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, *fit(data, "--max-iterations", "1"))
    assert ".. and 24 more: see --json" in run.out  # 12 of labels, 2 directions · 4 features · 9 pairs


def test_void_pixels_and_n_labels(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = examples()[0][0].astype(np.uint8)
    labels[0, :4] = 255
    Image.fromarray(labels).save(data / "labels" / "00.png")
    Run(capsys, *fit(data)).check_refusal("00.png contains the label 255", "--ignore-label 255", "--n-labels")
    few = ("--potts", "--max-iterations", "2", "--json")
    report = json.loads(Run(capsys, *fit(data, "--ignore-label", "255", *few)).out)
    assert (report["n_labels"], report["n_sites"]) == (3, N * 30 - 4)
    report = json.loads(Run(capsys, *fit(data, "--ignore-label", "255", "--n-labels", "5", *few)).out)
    assert report["n_labels"] == 5


@pytest.mark.parametrize(("objective", "blocks"), [("composite", "rows"), ("composite", "2x2"), ("consistent", None)])
def test_objectives_and_blocks_are_accepted(data: Path, objective: str, blocks: str | None, capsys: Any) -> None:
    more = [] if blocks is None else ["--blocks", blocks]
    words = fit(data, "--objective", objective, "--potts", "--max-iterations", "2", "--json", *more, images=False)
    run = Run(capsys, *words)
    assert run.status == 0, run.err
    report = json.loads(run.out)
    assert report["objective"] == objective
    assert ("gain" in report) == (objective == "consistent")


def test_mini_batches_remove_their_checkpoint(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = fit(data, "--batch-size", "4", "--checkpoint", data / "state", "--potts", "--max-iterations", "2", "--json")
    first, again = (json.loads(Run(capsys, *words).out) for _ in range(2))
    assert "gain" in first
    assert first["weights"] == again["weights"]
    assert not (data / "state").exists()


def test_inputs_are_read_one_at_a_time(data: Path) -> None:
    examples = match(data / "unary", None, data / "labels")
    assert len(list(labelled(examples, GivenUnary(3)))) == N
    first = labelled(examples, GivenUnary(3))
    next(first)
    os.remove(data / "unary" / "01.npy")
    with pytest.raises(lp.InputError, match=r"01\.npy does not exist"):
        next(first)


# predict


@pytest.mark.parametrize("kind", ["images", "unary", "both"])
def test_predictions_equal_those_of_the_model(kind: str, data: Path, models: dict[str, Path], capsys: Any) -> None:
    folders = {"images": ["images"], "unary": ["unary"], "both": ["unary", "images"]}[kind]
    given = [word for name in folders for word in (f"--{name}", data / name)]
    out = data / "new" / "out"
    words = ["--option", "n_samples=8", "--option", "probability=conditional", "--seed", "5", "--json"]
    words += ["--keep", "labels,probability,variance"]
    run = Run(capsys, "predict", models[kind], *given, "-o", out, *words)
    assert run.status == 0, run.err
    assert run.err == ""
    crf = lp.CRF.load(models[kind])
    assert crf.features is not None
    _, logits, images = examples()
    inputs: dict[str, Any] = {
        "images": images,
        "unary": [(x, None) for x in logits],
        "both": list(zip(logits, images, strict=True)),
    }
    features = [crf.features(value) for value in inputs[kind]]
    expected = crf.infer(features, n_samples=8, probability="conditional", seed=5)
    for k, result in enumerate(expected):
        np.testing.assert_array_equal(read_label_map(out / f"{k:02}.labels.png"), result.labels)
        probability, variance = np.load(out / f"{k:02}.probability.npy"), np.load(out / f"{k:02}.variance.npy")
        assert probability.dtype == variance.dtype == np.float32
        np.testing.assert_array_equal(probability, result.probability.astype(np.float32))
        np.testing.assert_array_equal(variance, result.variance.astype(np.float32))
    files = sorted(Path(file) for each in json.loads(run.out)["inputs"] for file in each["files"])
    assert files == sorted(out.iterdir())
    assert len(files) == 3 * N


def test_decoder_without_probabilities_writes_only_labels(data: Path, models: dict[str, Path], capsys: Any) -> None:
    run = Run(capsys, "predict", models["unary"], "--unary", data / "unary", "-o", data / "out", "-m", "icm")
    assert run.status == 0, run.err
    assert sorted(path.name for path in (data / "out").iterdir())[:2] == ["00.labels.png", "00.png"]
    assert f"{2 * N} files" in run.out
    words = ["predict", models["unary"], "--unary", data / "unary", "-o", data / "out", "-m", "icm"]
    run = Run(capsys, *words, "--keep", "labels,probability")
    run.check_refusal("--keep is labels,probability, but icm returns no probabilities, expected labels or picture")


# bad input


def test_missing_devices_are_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Run(capsys, *fit(data, "--device", "gpu")).check_refusal("unknown device 'gpu'")
    if importlib.util.find_spec("torch") is None or not importlib.import_module("torch").cuda.is_available():
        Run(capsys, *fit(data, "--device", "cuda")).check_refusal("use device='cpu'")
    assert not (data / "m.safetensors").exists()


def test_folders_that_do_not_match_are_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Run(capsys, *fit(data, unary=False, images=False)).check_refusal("--unary or --images")
    (data / "labels" / "03.png").rename(data / "labels" / "3.png")
    Run(capsys, *fit(data)).check_refusal("03.npy has no partner in --labels", "expected 03.npy or 03.png")
    (data / "labels" / "3.png").rename(data / "labels" / "03.png")
    np.save(data / "labels" / "03.npy", examples()[0][3])
    Run(capsys, *fit(data)).check_refusal("03.npy and 03.png have the same name")
    shutil.rmtree(data / "labels")
    Run(capsys, *fit(data)).check_refusal("labels does not exist, expected a folder")
    (data / "labels").mkdir()
    Run(capsys, *fit(data)).check_refusal("holds no file that ends in .npy, .png")
    assert not (data / "m.safetensors").exists()


LOGITS = examples()[1][4]
LABELS = examples()[0][4]


@pytest.mark.parametrize(
    ("name", "array", "parts"),
    [
        ("unary", np.where(np.arange(3) == 1, np.nan, LOGITS), ["contains nan, expected finite"]),
        ("unary", np.moveaxis(LOGITS, 2, 0), ["shape (3, 5, 6), expected (H, W, 3)"]),
        ("unary", LOGITS[:, :, :2], ["shape (5, 6, 2), expected (H, W, 3)"]),
        ("unary", LOGITS[:4], ["unary has shape (4, 6, 3) and its image (5, 6, 3)"]),
        ("unary", LOGITS[:0], ["is empty"]),
        ("unary", LOGITS[None], ["has shape (1, 5, 6, 3)"]),
        ("unary", np.array([{}]), ["holds Python objects"]),
        ("labels", LABELS.astype(float), ["holds float64, expected labels as whole numbers"]),
        ("labels", LABELS[None], ["has shape (1, 5, 6), expected labels (H, W)"]),
        ("labels", LABELS.T, ["has shape (6, 5), expected (5, 6) like"]),
        ("labels", LABELS - 1, ["contains the label -1, expected labels from 0"]),
        ("images", np.zeros((*SHAPE, 3), np.int32), ["whose maximum is unknown"]),
        ("images", np.zeros(SHAPE), ["image has shape (5, 6), expected (H, W, 3)"]),
    ],
)
def test_bad_arrays_are_refused_by_name(
    name: str, array: np.ndarray, parts: list[str], data: Path, capsys: Any
) -> None:
    for path in (data / name).glob("04.*"):
        path.unlink()
    np.save(data / name / "04.npy", array)
    Run(capsys, *fit(data)).check_refusal("04.npy", *parts)
    assert not (data / "m.safetensors").exists()


def test_integers_fortran_order_and_big_endian_are_accepted(data: Path, capsys: Any) -> None:
    np.save(data / "unary" / "00.npy", np.asfortranarray((4 * LOGITS).astype(np.int16)))
    np.save(data / "unary" / "01.npy", LOGITS.astype(">f4"))
    assert Run(capsys, *fit(data, "--potts", "--max-iterations", "1")).status == 0


def test_bad_options_of_fit_are_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Run(capsys, *fit(data, "--objective", "likelyhood")).check_refusal("did you mean 'likelihood'?")
    Run(capsys, *fit(data, "--pairwise", "constant,contrst")).check_refusal("did you mean 'contrast'?")
    Run(capsys, *fit(data, "--pairwise", "contrast", images=False)).check_refusal("needs images")
    Run(capsys, *fit(data, "--pairwise", "constant")).check_refusal("does not use images")
    Run(capsys, *fit(data, "--connectivity", "5")).check_refusal("connectivity is 5")
    Run(capsys, *fit(data, "--non-negative")).check_refusal("potts=True")
    Run(capsys, *fit(data, "--l2", "nan")).check_refusal("l2 is nan")
    Run(capsys, *fit(data, "--l2", "-1")).check_refusal("l2 is -1")
    Run(capsys, *fit(data, "--seed", "-1")).check_refusal("seed is -1")
    Run(capsys, *fit(data, "--n-labels", "1")).check_refusal("--n-labels")
    Run(capsys, *fit(data, "--n-labels", "2")).check_refusal("contains the label 2, expected labels from 0 to 1")
    Run(capsys, *fit(data, "--n-labels", "4", "--scale")).check_refusal("one score per label: expected 4")
    Run(capsys, *fit(data, "--blocks", "rows")).check_refusal("blocks")
    Run(capsys, *fit(data, "--objective", "composite", "--blocks", "row")).check_refusal("did you mean 'rows'?")
    assert not (data / "m.safetensors").exists()


def test_labels_without_valid_pixels_are_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (data / "labels").iterdir():
        Image.fromarray(np.full(SHAPE, 9, np.uint8)).save(path)
    Run(capsys, *fit(data, "--ignore-label", "9")).check_refusal("all pixels", "--ignore-label")


def test_inputs_are_not_overwritten(data: Path, models: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in data.rglob("*.*")}
    words = fit(data)
    words[words.index(data / "m.safetensors")] = data / "labels" / "02.png"
    Run(capsys, *words).check_refusal("02.png is also an input")
    Run(capsys, *fit(data, "--checkpoint", data / "unary" / "02.npy")).check_refusal("02.npy is also an input")
    Run(capsys, *fit(data, "--checkpoint", data / "m.safetensors")).check_refusal("the file of the model")
    predict = ["predict", models["images"], "--images", data / "images"]
    Run(capsys, *predict, "-o", data / "images").check_refusal("images is also an input")
    Run(capsys, *predict, "-o", data / "labels" / "02.png").check_refusal("is a file, expected a folder")
    (data / "out").mkdir()
    (data / "nowhere").symlink_to(data / "gone")
    for folder in (data / "nowhere", data / "nowhere" / "deeper"):
        Run(capsys, *predict, "-o", folder).check_refusal("nowhere is a link to", "gone, which does not exist")
    (data / "out" / "03.png").symlink_to(data / "images" / "03.png")
    Run(capsys, *predict, "-o", data / "out").check_refusal("03.png is also an input")
    (data / "out" / "03.png").unlink()
    assert {path: path.read_bytes() for path in data.rglob("*.*")} == before


def test_only_models_are_overwritten(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notes, model = data / "notes.txt", data / "model.safetensors"
    notes.write_text("dear diary")
    Run(capsys, *fit(data, "-o", notes)).check_refusal("notes.txt is not a model file of locpmap, expected a new file")
    assert notes.read_text() == "dear diary"
    for _ in range(2):  # a model may be replaced
        assert Run(capsys, *fit(data, "-o", model)).status == 0


def test_inputs_with_the_same_output_are_refused(data: Path, models: dict[str, Path], capsys: Any) -> None:
    shutil.copy(data / "images" / "03.png", data / "images" / "03.labels.png")
    run = Run(capsys, "predict", models["images"], "--images", data / "images", "-o", data / "out")
    run.check_refusal("03.labels.png would be written for two inputs")
    assert not (data / "out").exists()


def test_model_requires_the_inputs_of_its_fit(data: Path, models: dict[str, Path], capsys: Any) -> None:
    unary, images, out = ("--unary", data / "unary"), ("--images", data / "images"), ("-o", data / "out")
    Run(capsys, "predict", models["both"], *unary, *out).check_refusal("--images is missing, expected --unary and")
    Run(capsys, "predict", models["unary"], *unary, *images, *out).check_refusal("--images is given, expected --unary")
    Run(capsys, "predict", models["images"], *unary, *out).check_refusal("--unary is given, expected --images for")
    np.save(data / "unary" / "00.npy", LOGITS[:, :, :2])
    run = Run(capsys, "predict", models["unary"], *unary, *out)
    run.check_refusal("00.npy: unary has shape (5, 6, 2), expected (H, W, 3)")


def test_bad_arguments_of_predict_are_refused(data: Path, models: dict[str, Path], capsys: Any) -> None:
    words = ["predict", models["unary"], "--unary", data / "unary", "-o", data / "out"]
    Run(capsys, *words, "-m", "lpb").check_refusal("did you mean 'lbp'?")
    Run(capsys, *words, "--option", "n_samples=0").check_refusal("n_samples is 0")
    Run(capsys, *words, "--option", "seed=3").check_refusal("use --seed")
    Run(capsys, *words, "--seed", "-1").check_refusal("seed is -1")
    words[1] = data / "labels" / "00.png"
    Run(capsys, *words).check_refusal("00.png")
    words[1] = data / "none"
    Run(capsys, *words).check_refusal("none does not exist, expected a model file")


def test_model_with_custom_features_is_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels, logits, _ = examples()
    crf = lp.CRF(3, features=None, potts=True)
    crf.fit(Features.grid(logits), labels, options=lp.learning.FitOptions(max_iterations=1, standard_errors=False))
    crf.save(data / "m.safetensors")
    run = Run(capsys, "predict", data / "m.safetensors", "--unary", data / "unary", "-o", data / "out")
    run.check_refusal("features of your own")


def test_failed_prediction_leaves_only_complete_files(data: Path, models: dict[str, Path], capsys: Any) -> None:
    (data / "unary" / "01.npy").write_bytes(b"\x93NUMPY")
    run = Run(capsys, "predict", models["unary"], "--unary", data / "unary", "-o", data / "out")
    run.check_refusal("01.npy is damaged")
    assert sorted(path.name for path in (data / "out").iterdir()) == ["00.labels.png", "00.png"]
