"""The command line: printed results, files, error messages and exit statuses."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.command import Run
from tests.oracles.models import random_grid, random_model

import locpmap as lp
from locpmap.cli.progress import ProgressBar
from locpmap.formats import read_uai, write_uai

SOURCE = Path(lp.__file__).parents[1]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Write a UAI model with variables of 2, 3 and 2 labels."""
    path = tmp_path / "model.uai"
    path.write_text("MARKOV\n3\n2 3 2\n2\n2 0 1\n2 1 2\n\n6\n1 2 3 4 5 6\n6\n1 2 3 4 5 0\n")
    return path


def process(*arguments: object, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "locpmap", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment, **more)


# results


def test_infer_prints_its_result(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "infer", model, "--method", "exact")
    assert run.status == 0
    assert run.err == ""
    expected = lp.infer(read_uai(model), "exact")
    rows = dict(line.split(maxsplit=1) for line in run.out.replace("log partition", "log_partition").splitlines())
    assert rows["method"] == rows["status"] == "exact"
    assert float(rows["score"]) == pytest.approx(expected.score)
    assert rows["log_partition"] == f"{expected.log_partition:.10g} (exact)"
    assert float(rows["seconds"]) >= 0


def test_json_output_is_valid_json(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "infer", model, "--method", "locpmap", "--seed", "7", "--option", "n_samples=8", "--json")
    report = json.loads(run.out)
    assert run.err == ""
    assert run.out.count("\n") == 1
    expected = lp.infer(read_uai(model), "locpmap", n_samples=8, seed=7)
    assert report["labels"] == expected.labels.tolist()
    assert report["score"] == pytest.approx(expected.score)
    assert (report["method"], report["n_samples"], report["seed"]) == ("locpmap", 8, 7)
    assert report["log_partition"] is None
    assert report["status"] == str(lp.result.Status.COMPLETE)


@pytest.mark.parametrize("method", sorted(lp.inference.DECODERS))
def test_every_decoder_is_accepted_by_name(tmp_path: Path, method: str, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "model.uai", tmp_path / "out"
    write_uai(path, lp.Potentials.graph(*random_model("grid", "attractive", 6, 2, seed=1)))
    run = Run(capsys, "infer", path, "-m", method, "-o", out, "--json", "--backend", "reference")
    assert run.status == 0, run.err
    report = json.loads(run.out)
    assert report["backend"] == "reference"
    assert report["output_format"] == out.read_text().split()[0]
    assert np.isfinite(report["score"])


def test_marginals_are_written(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen, out = tmp_path / "seen.evid", tmp_path / "out.MAR"
    seen.write_text("1\n1 1 0")
    run = Run(capsys, "infer", model, "--method", "exact", "--evidence", seen, "-o", out)
    assert f"{out} (MAR)" in run.out
    kind, line = out.read_text().splitlines()
    numbers = line.split()
    assert kind == "MAR"
    assert [numbers[0], numbers[1], numbers[4], numbers[8]] == ["3", "2", "3", "2"]
    np.testing.assert_allclose(np.array(numbers[2:4], float), [1 / 5, 4 / 5])  # 1 and 4 in the first column
    np.testing.assert_allclose(np.array(numbers[5:8], float), [1, 0, 0])
    np.testing.assert_allclose(np.array(numbers[9:], float), [1 / 3, 2 / 3])


def test_labels_are_written_for_decoders_without_probabilities(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(capsys, "infer", model, "--method", "icm", "-o", tmp_path / "out.MPE", "--json")
    assert json.loads(run.out)["output_format"] == "MPE"
    labels = lp.infer(read_uai(model), "icm").labels.tolist()
    assert (tmp_path / "out.MPE").read_text() == f"MPE\n3 {' '.join(map(str, labels))}\n"


@pytest.mark.parametrize("given", ["start=unary", "start='unary'", "start=[1,2,0]", "max_sweeps=3"])
def test_option_values_are_literals_or_strings(model: Path, given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert Run(capsys, "infer", model, "--method", "icm", "--option", given).status == 0


@pytest.mark.parametrize(
    ("given", "samples"),
    [("n_samples=1e1", 10), ("keep_samples=yes", 50), ("keep_samples=FALSE", 50), ("keep_samples=no", 50)],
)
def test_option_values_in_shell_spelling(model: Path, given: str, samples: int, capsys: Any) -> None:
    run = Run(capsys, "infer", model, "--option", given, "--json", "--backend", "reference")
    assert json.loads(run.out)["n_samples"] == samples


@pytest.mark.parametrize(("kind", "first"), [("mar", "MAR"), ("mpe", "MPE"), ("MPE", "MPE"), (None, "MAR")])
def test_output_to_stdout_contains_only_the_file(model: Path, kind: str | None, first: str, capsys: Any) -> None:
    more = [] if kind is None else ["--write", kind]
    run = Run(capsys, "infer", model, "--method", "exact", "-o", "-", *more)
    assert run.status == 0
    assert run.out.startswith(f"{first}\n3 ")
    assert run.out.count("\n") == 2
    assert "score" in run.err
    assert not Path("-").exists()
    if first == "MPE":
        assert run.out.split()[2:] == [str(label) for label in lp.infer(read_uai(model), "exact").labels]


def test_numbers_have_the_shortest_exact_form(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--option", "n_samples=10", "--option", "probability=votes")
    words = Run(capsys, "infer", model, *options, "-o", "-").out.split()
    numbers = [word for word in words if "." in word]
    assert len(numbers) == 7
    assert max(map(len, numbers)) == 3


def test_methods_command_lists_all_decoders(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Run(capsys, "methods").out.splitlines()
    assert [line.split()[0] for line in lines] == list(lp.inference.DECODERS)
    text = Run(capsys, "methods", "locpmap").out
    assert "n_samples (int, default 50): Number of samples" in text
    assert "n_samples=50" in text
    assert ">>>" not in text
    Run(capsys, "methods", "LBP").check_refusal("did you mean 'lbp'?")
    help = Run(capsys, "infer", "--help").out
    assert "locpmap methods NAME" in help
    for name in lp.inference.DECODERS:
        assert re.search(rf"\b{name}\b", help)


def test_score_of_a_forbidden_labelling_is_null(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Start ICM at a forbidden labelling that no single change of a label leaves."""
    path = tmp_path / "model.uai"
    path.write_text("MARKOV\n2\n2 2\n3\n2 0 1\n1 0\n1 1\n4\n0 0 0 1\n2\n9 1\n2\n9 1")
    run = Run(capsys, "infer", path, "--method", "icm", "--option", "start=[0,0]", "--json")
    assert json.loads(run.out)["score"] is None
    assert json.loads(run.out)["converged"] is False
    assert "forbidden" in Run(capsys, "infer", path, "--method", "icm", "--option", "start=[0,0]").out


def test_doctor_prints_the_environment(capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(Run(capsys, "doctor", "--json").out)
    assert report["locpmap"] == lp.__version__
    assert report["packages"]["numpy"] == np.__version__
    assert report["auto"]["backend"] == lp.infer(lp.Potentials.grid(np.zeros((2, 2, 2)), 1.0), "icm").backend
    assert report["decoders"] == sorted(lp.inference.DECODERS)
    assert set(report["backends"]) == {"reference", "numba", "triton"}
    assert ("cuda" in report["devices"]) == (report["gpu"] is not None)
    text = Run(capsys, "doctor").out
    for word in ("python", "numba cache", "threads", "devices", report["auto"]["backend"]):
        assert word in text
    assert (report["gpu"] or report["why_no_gpu"]) in text
    large = " and large ones with triton on cuda" if report["gpu"] else ""
    jobs = "small jobs" if report["gpu"] else "every job"
    assert f'device="auto" runs {jobs} with numba on cpu{large}\n' in text
    assert ("triton (needs an NVIDIA GPU)" in text) == (report["backends"]["triton"] and not report["gpu"])


def test_doctor_prints_the_kernel_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "one.nbi").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    cache = json.loads(Run(capsys, "doctor", "--json").out)["numba_cache"]
    assert cache == {"folder": str(tmp_path), "writable": True, "kernels": 1}
    assert "read-only" not in Run(capsys, "doctor").out


def test_doctor_tells_why_kernels_are_not_kept_or_cannot_run(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    monkeypatch.setattr("os.access", lambda *_: False)
    text = Run(capsys, "doctor").out
    assert "every process compiles: set NUMBA_CACHE_DIR to another folder" in text
    assert "numba (cannot run: NUMBA_DISABLE_JIT is set)" in text


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert Run(capsys, "--version").out == f"locpmap {lp.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_is_printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, *arguments)
    assert run.status == 0
    assert "infer" in run.out
    assert "doctor" in run.out


# the progress bar


def test_progress_bar_appears_after_a_delay(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Check that the bar appears without an update, so that a long first step shows one."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with ProgressBar("exact") as bar:
        bar.update(1, 10)
    assert capsys.readouterr().err == ""  # done before the delay
    monkeypatch.setattr("locpmap.cli.progress.PATIENCE", 0.0)
    with ProgressBar("exact") as bar:
        assert bar._timer is not None
        bar._timer.join()
        shown = capsys.readouterr().err
        bar.update(5, 10)
    assert "exact" in shown + capsys.readouterr().err
    with ProgressBar("exact", hidden=True) as bar:
        bar.update(5, 10)
    assert capsys.readouterr().err == ""


def test_files_and_pipes_get_a_line_from_time_to_time(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("locpmap.cli.progress.PATIENCE", 0.0)
    monkeypatch.setattr("locpmap.cli.progress.LINE_EVERY", 0.01)
    lines = list[str]()
    with ProgressBar("exact") as bar:
        bar.update(1, 4)
        while len(lines) < 2:
            lines += capsys.readouterr().err.splitlines()
    assert all(re.fullmatch(r"exact: \d+ s, about \d+ s left", line) for line in lines)


def test_remaining_time_is_that_of_the_present_part(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    clock = iter([0.0, 90.0, 90.0, 100.0])  # start, two totals, the line
    monkeypatch.setattr("locpmap.cli.progress.time", SimpleNamespace(monotonic=lambda: next(clock)))
    bar = ProgressBar("fit")
    bar.update(41, 41)
    bar.update(5, 10)
    monkeypatch.setattr(bar, "_after", lambda *_: None)
    bar._write_line()
    assert capsys.readouterr().err == "fit: 100 s, about 10 s left\n"


# bad input


def test_unknown_names_get_a_suggestion(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Run(capsys, "infer", model, "--method", "exat").check_refusal("unknown method 'exat'", "did you mean 'exact'?")
    run = Run(capsys, "infer", model, "--method", "exact", "--option", "max_tabel=3")
    run.check_refusal("unknown option of exact 'max_tabel'", "did you mean 'max_table'?")
    Run(capsys, "infer", model, "--backend", "nunba").check_refusal("did you mean 'numba'?")
    Run(capsys, "infer", model, "--device", "cuda").check_refusal("cuda")
    Run(capsys, "infer", model, "--metod", "exact").check_refusal("--method")
    Run(capsys, "infr", model).check_refusal("infer")


def test_bad_values_are_refused(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Run(capsys, "infer", model, "--option", "n_samples").check_refusal("'n_samples', expected KEY=VALUE")
    Run(capsys, "infer", model, "--option", "n_samples=0").check_refusal("n_samples is 0")
    Run(capsys, "infer", model, "--option", "n_samples=many").check_refusal("n_samples is 'many'")
    Run(capsys, "infer", model, "--seed", "-1").check_refusal("seed is -1")
    Run(capsys, "infer", model, "--seed", "1.5").check_refusal("--seed")
    Run(capsys, "infer", model, "--threads", "0").check_refusal("n_threads is 0")
    Run(capsys, "infer", model, "--max-seconds", "nan").check_refusal("max_seconds")
    Run(capsys, "infer", model, "--max-seconds", "abc").check_refusal("--max-seconds is 'abc', expected a number")
    Run(capsys, "infer", model, "--option", "n_samples=1.5").check_refusal("n_samples is 1.5")
    Run(capsys, "infer", model, "--option", "keep_samples=perhaps").check_refusal("'perhaps', expected True or False")
    Run(capsys, "infer", model, "--option", "keep_samples=1").check_refusal("keep_samples is 1")
    Run(capsys, "infer").check_refusal("MODEL.uai")


def test_bad_kinds_of_output_are_refused(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Run(capsys, "infer", model, "--write", "mpe").check_refusal("--write mpe needs a file", "-o")
    Run(capsys, "infer", model, "-o", "-", "--write", "map").check_refusal("'map'", "did you mean 'mpe'?")
    model.unlink()  # refused before it is read
    Run(capsys, "infer", model, "-m", "icm", "-o", "-", "--write", "mar").check_refusal("icm does not return", "mpe")


def test_error_without_a_number_is_reported(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("the library failed")

    monkeypatch.setattr("locpmap.formats.uai.read_model", fail)
    Run(capsys, "infer", model).check_refusal("a file cannot be read or written: the library failed")


def test_arguments_of_the_command_are_refused_as_options(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for given, own in (("seed=3", "--seed"), ("n_threads=1", "--threads"), ("max_seconds=1", "--max-seconds")):
        Run(capsys, "infer", model, "--option", given).check_refusal("not an option of the decoder", own)
    run = Run(capsys, "infer", model, "-m", "exact", "--option", "zzz=3")
    run.check_refusal("known are max_table\n")


def test_unreadable_files_are_refused(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Run(capsys, "infer", tmp_path / "none.uai").check_refusal("none.uai does not exist, expected a file in UAI format")
    Run(capsys, "infer", tmp_path).check_refusal(f"{tmp_path} is a directory, expected a file in UAI format")
    Run(capsys, "infer", model, "--evidence", tmp_path / "none").check_refusal("none does not exist")
    model.write_bytes(b"\x00\xff")
    Run(capsys, "infer", model).check_refusal("not a text file")
    model.write_text("MARKOV\n1\n2\n1\n1 0\n2\n1")
    Run(capsys, "infer", model).check_refusal("ends within the table of factor 0")


def test_model_that_is_too_large_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_uai(tmp_path / "model.uai", lp.Potentials.graph(*random_grid(12, 12).flatten()))
    run = Run(capsys, "infer", tmp_path / "model.uai", "--method", "exact", "--option", "max_table=100")
    run.check_refusal("max_table = 100")


def test_bad_outputs_are_refused_before_any_work(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = model.read_bytes()
    seen = tmp_path / "seen.evid"
    seen.write_text("0")
    (tmp_path / "link").symlink_to(model)
    os.link(model, tmp_path / "hard-link")
    for name in ("model.uai", "link", "hard-link", "seen.evid"):
        Run(capsys, "infer", model, "--evidence", seen, "-o", tmp_path / name).check_refusal("is also an input")
    Run(capsys, "infer", model, "-o", tmp_path).check_refusal("is a directory")
    # The model does not exist either, so the output is checked first.
    Run(capsys, "infer", tmp_path / "none", "-o", tmp_path / "no" / "out").check_refusal("there is no folder")
    assert model.read_bytes() == before


def test_failed_run_does_not_change_the_output(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    out.write_text("old")
    Run(capsys, "infer", model, "--method", "exact", "--option", "max_table=2", "-o", out).check_refusal("max_table")
    assert out.read_text() == "old"


def test_entry_points_add_commands(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def shout(word: str) -> None:
        """Print a word in capitals."""
        print(word.upper())

    point = SimpleNamespace(name="shout", load=lambda: shout)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point] if group == "locpmap.commands" else [])
    assert re.search(r"shout +Print a word in capitals", Run(capsys, "--help").out)
    assert Run(capsys, "shout", "hello").out == "HELLO\n"
    Run(capsys, "shot").check_refusal("unknown command 'shot': did you mean 'shout'?")


# subprocesses


def test_python_m_locpmap_runs_the_command(model: Path) -> None:
    done = process("infer", model, "--method", "exact", "--json")
    assert done.returncode == 0
    assert done.stderr == ""
    assert json.loads(done.stdout)["status"] == "exact"


def test_bad_input_prints_one_line_without_traceback(tmp_path: Path) -> None:
    done = process("infer", tmp_path / "none.uai")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1


def test_help_imports_no_heavy_modules() -> None:
    """Check the imports, since the help should take less than half a second."""
    code = """
import sys
from locpmap.cli import main
try:
    main(["--help"])
except SystemExit as end:
    assert not end.code
print("LOADED", *sorted(name for name in sys.modules if name.partition(".")[0] in ("locpmap", "numpy", "rich")))
"""
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.splitlines()[-1] == "LOADED locpmap locpmap.cli locpmap.cli.commands locpmap.errors"


def test_interrupt_ends_with_status_130_and_no_output(tmp_path: Path) -> None:
    """Send the model through a pipe, so that the command is decoding once the pipe is read."""
    pipe, out = tmp_path / "model.uai", tmp_path / "out"
    write_uai(tmp_path / "plain.uai", lp.Potentials.graph(*random_grid(30, 30).flatten()))
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "locpmap", "infer", str(pipe), "-o", str(out), "--backend", "reference"]
    command += ["--option", "n_samples=1000000"]
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}

    def restore_interrupt() -> None:  # background processes may inherit an ignored SIGINT
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, preexec_fn=restore_interrupt, **pipes) as run:
        try:
            pipe.write_text((tmp_path / "plain.uai").read_text())
            time.sleep(0.5)
            run.send_signal(signal.SIGINT)
            printed, complaint = run.communicate(timeout=60)
        finally:
            run.kill()
    assert run.returncode == 130, complaint
    assert (printed, complaint) == ("", "locpmap: interrupted\n")
    assert not out.exists()
