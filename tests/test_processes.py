"""Fits by several processes under torchrun: the results of one process, and an end of all if one fails."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import learning_together
from tests.learning_together import examples
from tests.support.processes import environment, free_port, start

import locpmap as lp
from locpmap.cli import main
from locpmap.errors import InputError
from locpmap.features import Features
from locpmap.learning import Processes, checkpoint, fit, godambe, joined_processes
from locpmap.learning.batches import Batch, images_of_process
from locpmap.learning.processes import ALONE, LostProcessError

pytest.importorskip("torch")

# Sums in another order differ by a relative error of about 1e-16, which grows with every step of an optimiser.  Other
# images or other noise would change the third digit.
ROUNDING = 1e-9


def torchrun(size: int, *fit_arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", size, "-m", "locpmap"]
    given = [str(word) for word in (*command, *fit_arguments)]
    return subprocess.run(given, env=environment(), capture_output=True, text=True, timeout=300, check=False)


# equal results


def run_script(folder: Path, size: int) -> None:
    for status, _, errors in start(size, learning_together.__file__, folder):
        assert status == 0, errors


@pytest.fixture(scope="module")
def save_every_iteration() -> Iterator[None]:
    """Save states after every iteration and warm-start fits on a subset, as the script does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "SECONDS_BETWEEN_SAVES", 0.0)
        patch.setattr(fit, "WARM_UP_SITES", 100)
        patch.setattr(godambe, "CURVATURE_SITES", 100)
        yield


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, save_every_iteration: None) -> dict[str, np.ndarray]:
    """Return the results of one process."""
    folder = tmp_path_factory.mktemp("alone")
    return learning_together.learn(ALONE, folder) | learning_together.train(ALONE, folder)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory, alone: dict[str, np.ndarray]) -> Path:
    """Return the folder with the results and states of two processes; those of one have compiled the kernels."""
    folder = tmp_path_factory.mktemp("together")
    run_script(folder, 2)
    return folder


def check_equal(numbers: Any, expected: dict[str, np.ndarray]) -> None:
    for name, values in expected.items():
        # Standard errors use difference quotients with steps of 1e-4, which amplify rounding by 1e4.  Steps of
        # mini-batches have the same length in directions where the gradient is only rounding.
        tolerance = 1e4 * ROUNDING if name.startswith("errors") or "mini-batches" in name else ROUNDING
        np.testing.assert_allclose(numbers[name], values, rtol=tolerance, atol=tolerance, err_msg=name)


def check_resumed(resumed: Any, alone: dict[str, np.ndarray]) -> None:
    for objective in ("pseudolikelihood", "consistent"):
        # L-BFGS restarts without its history of steps, so it stops at another point within its tolerance.
        tolerance = ROUNDING if objective == "consistent" else 1e-5
        np.testing.assert_allclose(resumed[f"{objective}, resumed"], alone[objective], atol=tolerance)
        assert resumed[f"{objective}, iterations"] > 5


def test_two_processes_give_the_results_of_one(together: Path, alone: dict[str, np.ndarray]) -> None:
    first, other = (dict(np.load(together / f"2.{rank}.npz")) for rank in range(2))
    assert {"errors, pseudolikelihood", "errors, composite"} <= alone.keys()
    check_equal(first, alone)
    for name, values in first.items():
        np.testing.assert_array_equal(other[name], values, err_msg=name)
    assert not list(together.glob("*.state"))  # removed after the fit
    assert len(list(together.glob("*.kept"))) == 2


@pytest.mark.usefixtures("save_every_iteration")
def test_one_process_resumes_from_states_of_two(together: Path, alone: dict[str, np.ndarray]) -> None:
    check_resumed(learning_together.resume(ALONE, together, 2), alone)
    check_equal(alone, learning_together.train(ALONE, together))


@pytest.mark.slow
def test_three_processes_give_the_same_results_and_resume(together: Path, alone: dict[str, np.ndarray]) -> None:
    run_script(together, 3)
    numbers = dict(np.load(together / "3.0.npz"))
    check_equal(numbers, alone)  # networks resume, fits restart
    check_resumed(numbers, alone)


# the command


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder with the subfolders ``unary`` and ``labels`` of the examples."""
    for name, values in zip(("unary", "labels"), examples(), strict=True):
        (tmp_path / name).mkdir()
        for k, value in enumerate(values):
            np.save(tmp_path / name / f"{k:02}.npy", value)
    return tmp_path


def fit_arguments(data: Path, *more: object) -> list[object]:
    folders = ["--unary", data / "unary", "--labels", data / "labels", "--ignore-label", 9]
    return ["fit", *folders, "-o", data / "m.safetensors", "--json", *more]


@pytest.mark.slow
def test_the_fit_command_gives_the_same_model_under_torchrun(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--objective", "consistent", "--max-iterations", 4]
    run = torchrun(2, *fit_arguments(data, *more))
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)  # printed by one process only
    learned = lp.CRF.load(data / "m.safetensors")
    with pytest.raises(SystemExit, match="0"):
        main([str(word) for word in fit_arguments(data, *more)])
    expected = json.loads(capsys.readouterr().out)
    for row, other in zip(report["weights"], expected["weights"], strict=True):
        assert row["value"] == pytest.approx(other["value"], rel=ROUNDING, abs=ROUNDING)
    np.testing.assert_allclose(learned.tables, lp.CRF.load(data / "m.safetensors").tables, atol=ROUNDING)


def test_an_error_in_one_process_ends_all_with_one_message(data: Path) -> None:
    (data / "unary" / "05.npy").write_bytes(b"\x93NUMPY")
    run = torchrun(2, *fit_arguments(data))
    assert run.returncode != 0
    sentences = [line for line in run.stderr.splitlines() if line.startswith("locpmap: ")]
    assert len(sentences) == 1, run.stderr
    assert "05.npy is damaged" in sentences[0]
    assert run.stdout == ""
    assert sorted(path.name for path in data.iterdir()) == ["labels", "unary"]


@pytest.mark.slow
def test_an_error_in_all_processes_is_reported_once(data: Path) -> None:
    ends = start(2, "-m", "locpmap", *fit_arguments(data, "--blocks", "diagonals"))
    assert [status for status, _, _ in ends] == [2, 2]
    (sentence,) = [line for _, said, why in ends for line in (said + why).splitlines()]
    assert sentence.startswith("locpmap: unknown value of --blocks 'diagonals'")


DYING_PROCESS = """
import os, sys
from locpmap.cli import main
from locpmap.learning import fit
if os.environ["RANK"] == "1":
    fit.minimise = lambda *given: os._exit(9)
main(sys.argv[1:])
"""


def test_the_death_of_one_process_ends_the_other(data: Path) -> None:
    (status, said, why), (died, _, _) = start(2, "-c", DYING_PROCESS, *fit_arguments(data))
    assert (status, died) == (2, 9), why
    assert said == ""
    (sentence,) = [line for line in why.splitlines() if line.startswith("locpmap: ")]
    assert "another process has ended, expected all 2 to continue" in sentence
    assert not (data / "m.safetensors").exists()


def test_without_torchrun_torch_is_not_imported(data: Path) -> None:
    code = "import atexit, sys\nfrom locpmap.cli import main\natexit.register(lambda: print('torch' in sys.modules))"
    code += "\nmain(sys.argv[1:])"
    given = [sys.executable, "-c", code, *map(str, fit_arguments(data, "--max-iterations", 1))]
    done = subprocess.run(given, env=environment(), capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines()[-1] == "False"


# joining


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"RANK": "x", "WORLD_SIZE": "2"}, "the environment's RANK is 'x', expected a whole number"),
        ({"RANK": "0", "WORLD_SIZE": "-2"}, "WORLD_SIZE is '-2', expected a whole number"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK is 2, expected less than WORLD_SIZE, which is 2"),
    ],
)
def test_invalid_environment_variables_are_refused(
    given: dict[str, str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=sentence), joined_processes():
        pass


@pytest.mark.parametrize("address", [None, "127.0.0.1"])
def test_joining_times_out(address: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": str(free_port())}
    for name, value in (given | ({} if address is None else {"MASTER_ADDR": address})).items():
        monkeypatch.setenv(name, value)
    sentence = "2 processes of WORLD_SIZE did not meet: "
    with pytest.raises(LostProcessError, match=sentence), joined_processes(timedelta(seconds=1)):
        pass


# division of inputs among processes


class Rank(Processes):
    """A process with a given rank; the other processes do not exist."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


@pytest.mark.parametrize("counts", [[7], [1] * 7, [2, 1, 4], [1]], ids=str)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_image_is_assigned_to_one_process(counts: list[int], size: int) -> None:
    batches, first = [], 0
    for count in counts:
        labels = np.repeat(np.arange(first, first + count, dtype=np.int16)[:, None], 4, axis=1)
        batches.append(Batch(Features.grid(np.zeros((count, 2, 2, 1))), labels, np.ones((1, 1))))
        first += count
    own = [images_of_process(batches, Rank(rank, size)) for rank in range(size)]
    parts = [[n for batch in images for n in batch.labels[:, 0]] for images in own]
    assert sorted(n for part in parts for n in part) == list(range(first))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("turn", [0, 1, 4])
def test_every_index_of_a_batch_is_assigned_to_one_process(turn: int) -> None:
    for size in (1, 2, 3):
        for count in range(8):
            places = [n for rank in range(size) for n in range(count)[Rank(rank, size).part(count, turn)]]
            assert sorted(places) == list(range(count))


@pytest.mark.parametrize("once", [True, False])
def test_errors_state_the_index_among_all_inputs(once: bool) -> None:
    images, labels = examples()
    labels[7] = labels[7] + 5
    pairs = list(zip(images, labels, strict=True))
    given: Any = (lambda: iter(pairs)) if once else pairs
    with pytest.raises(InputError, match="the labels of item 7 contain"):
        lp.CRF(3, ignore_label=9).fit(given, options=lp.learning.FitOptions(processes=Rank(1, 3), max_iterations=1))


def test_more_processes_than_labelled_inputs_are_refused() -> None:
    images, labels = examples()
    sentence = "there are 2 processes for 1 labelled inputs, expected no more processes than inputs"
    with pytest.raises(InputError, match=sentence):
        lp.CRF(3, ignore_label=9).fit(images[3:5], labels[3:5], options=lp.learning.FitOptions(processes=Rank(0, 2)))


# networks of experiments


RECORDING_COMMAND = """
import os, sys
from pathlib import Path
from locpmap.cli import main
from locpmap.nn import training
share_out = training.loss_together
def watched(network, processes):
    with Path(sys.argv[1], f"trained.{processes.rank}").open("a") as file:
        file.write(f"{type(network.head).__name__} {processes.size}\\n")
    return share_out(network, processes)
training.loss_together = watched
main(sys.argv[2:])
"""


@pytest.mark.slow
def test_all_processes_train_the_networks_of_an_experiment(tmp_path: Path) -> None:
    pytest.importorskip("locpmap_paper", reason="the experiments are a package of their own")
    run = ["reproduce", "digits", "--fast", "--train", "--models", "deep-consistent", "--no-report", "--device", "cpu"]
    ends = start(2, "-c", RECORDING_COMMAND, tmp_path, *run, "--json", "-o", tmp_path / "run")
    (status, said, why), (helped, silent, also) = ends
    assert (status, helped) == (0, 0), why + also
    assert json.loads(said)["experiment"] == "digits"
    assert silent == ""
    for rank in range(2):  # first the network without a head, then with its head
        assert (tmp_path / f"trained.{rank}").read_text() == "NoneType 2\nCRFHead 2\n"
    assert (tmp_path / "run" / "result.json").exists()
