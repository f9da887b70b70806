"""``locpmap refine --decide``: labels for a measure, of one input and of folders."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.command import Run

import locpmap as lp
from locpmap.cli.refine_deciding import MAX_IMAGES, Deciding
from locpmap.cli.refine_inputs import Pair
from locpmap.formats.images import read_label_map

K = 4


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, lp.Result]:
    """Write two folders of three inputs with a rare label; return the refined images by name."""
    found = {}
    for kind in ("images", "logits"):
        (tmp_path / kind).mkdir()
    for seed, name in enumerate("abc"):
        rng = np.random.default_rng(seed)
        image = rng.integers(0, 255, (24, 30, 3)).astype(np.uint8)
        logits = (rng.normal(size=(24, 30, K)) + np.array([2.0, 1.0, 0.0, -1.0])).astype(np.float32)
        Image.fromarray(image).save(tmp_path / f"images/{name}.png")
        np.save(tmp_path / f"logits/{name}.npy", logits)
        found[name] = lp.refine(image, logits, decoder=lp.LocPMAP(4, start="perturbed", keep_samples=True))
    return found


def words(folder: Path, *more: object, name: str | None = None) -> list[object]:
    image, logits = ("images", "logits") if name is None else (f"images/{name}.png", f"logits/{name}.npy")
    return ["refine", folder / image, folder / logits, "-o", folder / "out", "--n-samples", 4, *more]


def record_of(folder: Path, name: str) -> dict:
    return dict(json.loads((folder / f"out/{name}.json").read_text()))


@pytest.mark.parametrize("measure", ["iou", "dice", "boundary_iou"])
def test_one_input_is_decided_by_itself(
    measure: str, inputs: dict[str, lp.Result], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(capsys, *words(tmp_path, "--decide", measure, "--abstain", 0.2, name="a"))
    assert run.status == 0, run.err
    decision = inputs["a"].decide(measure, abstain=0.2)
    title = {"iou": "mean IoU", "dice": "mean Dice", "boundary_iou": "mean boundary IoU"}[measure]
    line = f"decided for {measure} in the image: expected {title} {decision.expected:.4f} before abstention; "
    risk = f"{decision.kept:.1%} of the pixels labelled, of which {decision.risk:.1%} expected to be wrong"
    assert line + risk in run.out
    others = [replace(inputs["a"], samples=None).decide("iou"), inputs["a"].decide("accuracy")]
    assert decision.expected not in [other.expected for other in others]
    labels = read_label_map(tmp_path / "out/a.labels.png")
    np.testing.assert_array_equal(labels, np.where(decision.labels < 0, 255, decision.labels))
    record = record_of(tmp_path, "a")
    numbers = {name: getattr(decision, name) for name in ("expected", "risk", "kept")}
    assert record["decision"] == {"measure": measure, "over": "image", **numbers}
    assert record["pixels"] == 24 * 30
    assert sum(row["pixels"] for row in record["labels"]) == round(decision.kept * 24 * 30)
    assert record["settings"]["decide"] == measure


def test_folder_is_decided_with_the_statistics_of_its_images(
    inputs: dict[str, lp.Result], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(capsys, *words(tmp_path, "--decide", "iou", "--json"))
    assert run.status == 0, run.err
    decider = lp.Decider("iou")
    for result in inputs.values():
        decider.add(result)
    for name, result in inputs.items():
        np.testing.assert_array_equal(
            read_label_map(tmp_path / f"out/{name}.labels.png"), decider.decide(result).labels
        )
        decision = record_of(tmp_path, name)["decision"]
        assert (decision["over"], decision["expected"]) == ("3 images", decider.rule.expected)
        assert len(decision["rule"]) == K
    again = Run(capsys, *words(tmp_path, "--decide", "iou", "--json"))
    assert [one["state"] for one in json.loads(again.out)["inputs"]] == ["skipped"] * 3
    other = Run(capsys, *words(tmp_path, "--decide", "dice", "--json"))
    assert [one["state"] for one in json.loads(other.out)["inputs"]] == ["done"] * 3
    fewer = Run(capsys, *words(tmp_path, "--decide", "dice", "--abstain", 0.2, "--json"))
    assert [one["state"] for one in json.loads(fewer.out)["inputs"]] == ["done"] * 3
    np.save(tmp_path / "logits/b.npy", np.load(tmp_path / "logits/b.npy")[::-1])  # the others depend on it
    changed = Run(capsys, *words(tmp_path, "--decide", "dice", "--abstain", 0.2, "--json"))
    assert [one["state"] for one in json.loads(changed.out)["inputs"]] == ["done"] * 3


def test_printed_line_is_about_all_inputs(
    inputs: dict[str, lp.Result], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for measure, where, title in (
        ("iou", "over 3 images", "mean IoU"),
        ("boundary_iou", "in each image", "mean boundary IoU"),
    ):
        run = Run(capsys, *words(tmp_path, "--decide", measure, "--abstain", 0.3))
        assert run.status == 0, run.err
        decisions = [record_of(tmp_path, name)["decision"] for name in inputs]
        expected, kept = (np.mean([one[key] for one in decisions]) for key in ("expected", "kept"))
        line = f"decided for {measure} {where}: expected {title} {expected:.4f} before abstention; {kept:.1%} of"
        wrong = np.mean([one["kept"] * one["risk"] for one in decisions]) / kept  # the images have equal sizes
        assert f"{line} the pixels labelled, of which {wrong:.1%} expected to be wrong" in run.out
    for name, result in inputs.items():
        assert record_of(tmp_path, name)["decision"]["expected"] == result.decide("boundary_iou").expected


def test_images_of_a_folder_are_decided_by_themselves_on_request(
    inputs: dict[str, lp.Result], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(capsys, *words(tmp_path, "--decide", "dice", "--over", "image"))
    assert run.status == 0, run.err
    assert "decided for dice in each image: expected mean Dice 0." in run.out
    Run(capsys, *words(tmp_path, "--over", "image")).check_refusal("--over is given without --decide")
    assert "labelled" not in run.out
    for name, result in inputs.items():
        decision = record_of(tmp_path, name)["decision"]
        assert (decision["over"], decision["expected"]) == ("image", result.decide("dice").expected)


def test_bad_inputs_do_not_count_as_statistics(
    inputs: dict[str, lp.Result], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "logits/b.npy", np.full((24, 30, K), np.nan, np.float32))
    run = Run(capsys, *words(tmp_path, "--decide", "iou"))
    assert run.status == 2
    assert "b.npy" in run.err
    assert record_of(tmp_path, "a")["decision"]["over"] == "2 images"


def test_other_inputs_are_decided_if_one_is_missing_or_has_other_labels(
    inputs: dict[str, lp.Result], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "logits/b.npy", np.zeros((24, 30, K - 1), np.float32))
    (tmp_path / "logits/c.npy").unlink()
    (tmp_path / "logits/c.npy").symlink_to("nowhere.npy")
    run = Run(capsys, *words(tmp_path, "--decide", "iou"))
    assert run.status == 2
    assert "b.npy: over has 4 labels, expected 3" in run.err
    assert "c.npy does not exist" in run.err
    assert record_of(tmp_path, "a")["decision"]["over"] == "1 images"


def test_statistics_come_from_inputs_at_equal_distances() -> None:
    pairs = [Pair(f"{n:03d}", Path("image"), Path("scores")) for n in range(500)]
    deciding = Deciding.of("iou", None, pairs)
    assert deciding is not None
    places = [int(pair.name) for pair in deciding.statistics]
    assert len(places) == MAX_IMAGES
    assert (places[0], places[-1]) == (0, 499)
    assert set(np.diff(places)) <= {16, 17}
    assert Deciding.of(None, None, pairs) is None
    alone = Deciding.of("iou", None, pairs, over="image")
    assert alone is not None
    assert alone.statistics == ()


def test_decisions_of_large_images_read_fewer_samples() -> None:
    pairs = [Pair("a", Path("image"), Path("scores"))]
    found = {name: Deciding.of(name, None, pairs) for name in ("iou", "boundary_iou", "accuracy")}
    sizes = {name: [one.n_maps(50, n) for n in (100, 2**24, 2**40)] for name, one in found.items() if one is not None}
    assert sizes == {"iou": [50, 16, 1], "boundary_iou": [50, 16, 1], "accuracy": [0, 0, 0]}
    many = Deciding.of("iou", None, pairs * 2)
    assert many is not None
    assert many.n_maps(50, 100) == 0


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        (("--decide", "iuo"), ("unknown --decide 'iuo'", "did you mean 'iou'")),
        (("--decide", "jaccard"), ("unknown --decide 'jaccard'", "did you mean 'iou'")),
        (("--abstain", "0.1"), ("--abstain is given without --decide",)),
        (("--decide", "iou", "--abstain", "2"), ("--abstain is 2",)),
        (("--decide", "iou", "--over", "folder"), ("unknown --over 'folder'", "known are dataset, image")),
        (
            ("--decide", "accuracy", "--output", "a.zarr"),
            ("--decide is accuracy, expected iou or dice for a.zarr of tiles",),
        ),
        (("--force", "--output", "a.zarr"), ("--force is given, expected none for a.zarr of tiles",)),
    ],
)
def test_wrong_combinations_are_refused(
    more: tuple[str, ...],
    parts: tuple[str, ...],
    inputs: dict[str, lp.Result],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Run(capsys, *words(tmp_path, *more, name="a")).check_refusal(*parts)
    assert not (tmp_path / "out").exists()
