"""UAI files: reading, writing, round trips, and errors for malformed files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.models import STRUCTURES, random_grid, random_model

import locpmap as lp
from locpmap.errors import TooLargeError
from locpmap.formats import atomic, read_uai, write_uai
from locpmap.formats.atomic import write_text
from locpmap.formats.uai import format_mar, format_mpe, read_model
from locpmap.inference.exact import Exact

# Variables of 2, 3 and 2 labels; one pair occurs twice, once reversed; also a constant and a potential of 0.
SMALL = """MARKOV
3
2 3 2
5
1 1
2 0 1
2 1 0
0
2 1 2

3
 .5 1 2
6
 1 2 3
 4 5 6
6
 1 10
 1 1
 0 1
1
 8
6
 1 1 1 1 1 7
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.uai"
    path.write_text(SMALL)
    return path


def product_of_potentials(a: int, b: int, c: int) -> float:
    """Compute the product of the potentials of SMALL."""
    pair = [[1, 2, 3], [4, 5, 6]][a][b] * [[1, 10], [1, 1], [0, 1]][b][a]
    return [0.5, 1, 2][b] * pair * 8 * (7 if (b, c) == (2, 1) else 1)


# reading


def test_scores_are_the_logarithm_of_the_product(small: Path) -> None:
    pot, cardinalities = read_model(small)
    assert cardinalities == [2, 3, 2]
    assert (pot.n_sites, pot.n_labels) == (3, 3)
    total = 0.0
    for y in np.ndindex(2, 3, 2):
        total += product_of_potentials(*y)
        with np.errstate(divide="ignore"):
            assert pot.score(np.array(y)) == pytest.approx(np.log(product_of_potentials(*y)))
    assert lp.infer(pot, Exact()).log_partition == pytest.approx(np.log(total))
    np.testing.assert_array_equal(np.isneginf(pot.unary[0]), [[False, False, True], [False] * 3, [False, False, True]])


def test_padded_labels_get_no_probability(small: Path) -> None:
    probability = lp.infer(read_uai(small), Exact()).probability
    assert (probability[[0, 2], 2] == 0).all()
    np.testing.assert_allclose(probability.sum(axis=1), 1)


@pytest.mark.parametrize("text", ["1 1 2", "1\n1 1 2\n", "1\n\n1\n1\n2"])
def test_both_forms_of_evidence_are_read(small: Path, text: str) -> None:
    evidence = small.with_suffix(".evid")
    evidence.write_text(text)
    pot = read_uai(small, evidence)
    total = sum(product_of_potentials(a, 2, c) for a in range(2) for c in range(2))
    result = lp.infer(pot, Exact())
    assert result.log_partition == pytest.approx(np.log(total))
    np.testing.assert_array_equal(result.probability[1], [0, 0, 1])


@pytest.mark.parametrize("text", ["0", "1 0", "1\n0\n"])
def test_empty_evidence_changes_nothing(small: Path, text: str) -> None:
    evidence = small.with_suffix(".evid")
    evidence.write_text(text)
    np.testing.assert_array_equal(read_uai(small, evidence).unary, read_uai(small).unary)


def test_two_observations_are_not_read_as_two_evidence_sets(small: Path) -> None:
    """Write two observations in one line and in three: variables 1 and 0 are observed."""
    evidence = small.with_suffix(".evid")
    for text in ("2 1 1 0 0", "2\n1 1\n0 0"):
        evidence.write_text(text)
        unary = read_uai(small, evidence).unary[0]
        np.testing.assert_array_equal(unary > -np.inf, [[1, 0, 0], [0, 1, 0], [1, 1, 0]])


def test_variable_may_have_more_labels_than_the_file_has_tokens(tmp_path: Path) -> None:
    path = tmp_path / "short.uai"
    path.write_text("MARKOV 1 40 1 0 1 1")
    assert read_uai(path).unary.shape == (1, 1, 40)


def test_bayesian_network_is_the_product_of_its_tables(tmp_path: Path) -> None:
    path = tmp_path / "net.uai"
    path.write_text("BAYES\n2\n2 2\n2\n1 0\n2 0 1\n\n2\n .3 .7\n4\n .9 .1\n .2 .8\n")
    result = lp.infer(read_uai(path), Exact())
    assert result.log_partition == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(result.probability[1], [0.3 * 0.9 + 0.7 * 0.2, 0.3 * 0.1 + 0.7 * 0.8])


def test_model_without_factors_is_uniform(tmp_path: Path) -> None:
    path = tmp_path / "free.uai"
    path.write_text("MARKOV 2 2 3 0")
    result = lp.infer(read_uai(path), Exact())
    assert result.log_partition == pytest.approx(np.log(6))


# writing


def check_same_model(pot: lp.Potentials, again: lp.Potentials) -> None:
    """Check that scores of random labellings are equal, up to the rounding of the largest term."""
    labels = np.random.default_rng(0).integers(0, pot.n_labels, size=(200, pot.n_sites))
    scores = [[p.score(y.reshape(p.structure.shape)) for y in labels] for p in (pot, again)]
    tables = pot.model.tables
    largest = max(np.abs(part[np.isfinite(part)]).max(initial=1.0) for part in (pot.unary, tables))
    np.testing.assert_allclose(scores[1], scores[0], rtol=0, atol=1e-13 * largest)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("coupling", [0.5, 300.0, 5000.0])
def test_round_trip_of_a_graph_preserves_scores(tmp_path: Path, structure: str, coupling: float) -> None:
    """Use scores up to 5,000, beyond the range of exp(score) and of one shifted factor."""
    model = random_model(structure, n_sites=6, n_labels=3, coupling=coupling, forbidden=0.2, seed=1)
    model.tables[0, 1, 2] = -np.inf
    model.unary[2] += 3 * coupling
    pot = lp.Potentials.graph(*model)
    write_uai(tmp_path / "model.uai", pot)
    check_same_model(pot, read_uai(tmp_path / "model.uai"))


def test_round_trip_of_a_grid_preserves_marginals(tmp_path: Path) -> None:
    grid = random_grid(3, 4, seed=2)
    mask = np.zeros((3, 4), bool)
    mask[1, 1] = True
    for pot in (
        lp.Potentials.grid(grid.unary, 0.7),
        lp.Potentials.grid(grid.unary.astype(np.float32), (grid.horizontal, grid.vertical), mask=mask),
        lp.Potentials.grid(grid.unary[None], 0.7, connectivity=8),
    ):
        write_uai(tmp_path / "model.uai", pot)
        again = lp.infer(read_uai(tmp_path / "model.uai"), Exact())
        expected = lp.infer(pot, Exact())
        assert again.log_partition == pytest.approx(np.ravel(expected.log_partition)[0], abs=1e-5)
        alive = ~(mask if pot.masked is not None else np.zeros_like(mask)).ravel()
        marginals = np.reshape(expected.probability, (12, 2))
        np.testing.assert_allclose(again.probability[alive], marginals[alive], atol=1e-6)


@settings(max_examples=50)
@given(st.lists(st.floats(-1e4, 1e4) | st.just(-np.inf), min_size=12, max_size=12))
def test_any_scores_round_trip(numbers: list[float]) -> None:
    scores = np.array(numbers).reshape(3, 4)
    scores[:, 0] = np.maximum(scores[:, 0], -1e4)
    pot = lp.Potentials.graph(scores[:2, :2], [[1, 0]], scores[1:, 2:][None])
    with tempfile.TemporaryDirectory() as folder:
        write_uai(Path(folder) / "model.uai", pot)
        check_same_model(pot, read_uai(Path(folder) / "model.uai"))


def test_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(lp.InputError, match="hold 2 images"):
        write_uai(tmp_path / "model.uai", lp.Potentials.grid(np.zeros((2, 3, 3, 2)), 1.0))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("scale", [1e12, 1e30, 1e308])
def test_extreme_scores_are_refused(tmp_path: Path, scale: float) -> None:
    apart = lp.Potentials.graph([[0.0, scale]], [], 0.0)
    far = lp.Potentials.graph([[scale, scale]] * 2, [], 0.0)  # equal labels, so only a constant
    both = lp.Potentials.graph([[-scale, scale]], [], 0.0)
    for pot in (apart, far, both):
        with pytest.raises(TooLargeError, match="more than 4194304 copies of factors, expected smaller scores"):
            write_uai(tmp_path / "model.uai", pot)
    assert not list(tmp_path.iterdir())


def test_number_of_factor_copies_is_limited_in_total(tmp_path: Path) -> None:
    pot = lp.Potentials.graph([[0.0, 700.0 * 2**20]] * 5, [], 0.0)
    with pytest.raises(TooLargeError, match="copies of factors"):
        write_uai(tmp_path / "model.uai", pot)


@pytest.mark.parametrize("path", [None, 3, b"model.uai", "a\0b"])
def test_invalid_paths_are_refused(path: Any) -> None:
    pot = lp.Potentials.grid(np.zeros((2, 2, 2)), 1.0)
    for call in (lambda: read_uai(path), lambda: write_uai(path, pot)):
        with pytest.raises(lp.errors.LocpmapError, match=r"path is .*, expected the name of a file"):
            call()


def test_only_potentials_are_written(tmp_path: Path) -> None:
    with pytest.raises(lp.errors.InputTypeError, match="potentials is a int, expected"):
        write_uai(tmp_path / "model.uai", 3)  # type: ignore[arg-type]


def test_longest_file_name_can_be_written(tmp_path: Path) -> None:
    pot = lp.Potentials.grid(np.zeros((2, 2, 2)), 1.0)
    path = tmp_path / ("n" * 251 + ".uai")
    write_uai(path, pot)
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(lp.InputError, match="cannot be written: File name too long"):
        write_uai(tmp_path / ("n" * 300), pot)


def test_full_device_raises_an_error() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    with pytest.raises(lp.InputError, match="/dev/full cannot be written: No space left on device"):
        write_text("/dev/full", [format_mpe(np.zeros(3, int))])


def test_undeletable_temporary_file_raises_an_error(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(lp.InputError, match=r"small\.uai cannot be written: Operation not permitted"):
        write_text(small, [format_mpe(np.zeros(3, int))])


WRITING_PROGRAM = """
import sys
from locpmap.formats.atomic import write_text
print("before", flush=True)
write_text(sys.argv[1], ["MPE\\n", "1 0\\n"])
print("after")
"""


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="needs /dev/stdout")
@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1"])
def test_standard_output_is_written_and_not_replaced(tmp_path: Path, name: str) -> None:
    command, expected = [sys.executable, "-c", WRITING_PROGRAM, name], "before\nMPE\n1 0\nafter\n"
    environment = os.environ | {"PYTHONPATH": str(Path(lp.__file__).parents[1])}
    piped = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert (piped.stdout, piped.stderr) == (expected, "")
    path = tmp_path / "out.txt"
    with path.open("w") as file:
        subprocess.run(command, stdout=file, check=True, timeout=60, env=environment)
        assert os.fstat(file.fileno()).st_ino == path.stat().st_ino
    assert path.read_text() == expected
    assert list(tmp_path.iterdir()) == [path]


def test_pipe_behind_a_link_is_written(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    atomic.write_text(link, ["1\n"])
    assert os.read(reader, 10) == b"1\n"
    os.close(reader)


def test_failed_write_leaves_the_old_file(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(lp.InputError, match="No space left"):
        write_uai(small, lp.Potentials.grid(np.zeros((2, 2, 2)), 1.0))
    assert small.read_text() == SMALL
    assert list(small.parent.iterdir()) == [small]


@pytest.mark.parametrize("name", ["", "missing/model.uai"])
def test_unwritable_paths_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(lp.InputError, match=r"is a directory|no folder"):
        write_uai(tmp_path / name, lp.Potentials.grid(np.zeros((2, 2, 2)), 1.0))


def test_symbolic_link_is_preserved(small: Path) -> None:
    link = small.with_name("link.uai")
    link.symlink_to(small)
    write_uai(link, lp.Potentials.grid(np.zeros((2, 2, 2)), 1.0))
    assert link.is_symlink()
    assert read_uai(small).n_sites == 4


# results


def test_marginals_are_written_without_padding(small: Path, tmp_path: Path) -> None:
    pot, cardinalities = read_model(small)
    result = lp.infer(pot, Exact())
    write_text(tmp_path / "out.MAR", [format_mar(result.probability, cardinalities)])
    kind, line = (tmp_path / "out.MAR").read_text().splitlines()
    assert kind == "MAR"
    numbers = line.split()
    assert [numbers[0], numbers[1], numbers[4], numbers[8]] == ["3", "2", "3", "2"]
    assert len(numbers) == 1 + 3 + 7

    for start, n, expected in zip((2, 5, 9), cardinalities, result.probability, strict=True):
        np.testing.assert_array_equal(np.array(numbers[start : start + n], float), expected[:n])


def test_labels_are_written(tmp_path: Path) -> None:
    write_text(tmp_path / "out.MPE", [format_mpe(np.array([1, 0, 2]))])
    assert (tmp_path / "out.MPE").read_text() == "MPE\n3 1 0 2\n"


# bad files


BAD = {
    "empty": ("", "is empty"),
    "blank": (" \n \n", "is empty"),
    "no network": ("FACTORS 1", "line 1: the file begins with 'FACTORS', expected MARKOV or BAYES"),
    "kind only": ("MARKOV", "ends before the number of variables"),
    "no variables": ("MARKOV\n0", "line 2: the number of variables is '0'"),
    "fraction": ("MARKOV\n2.5", "line 2: the number of variables is '2.5'"),
    "too many variables": ("MARKOV\n1000000000\n2 2", "is 1000000000, but only 2 tokens follow"),
    "absurd number": ("MARKOV\n" + "9" * 400 + "\n2", "the number of variables is '999"),
    "zero labels": ("MARKOV\n2\n2 0\n0", "line 3: the cardinality of variable 1 is '0'"),
    "negative labels": ("MARKOV\n2\n2 -2\n0", "line 3: the cardinality of variable 1 is '-2'"),
    "absurd labels": ("MARKOV\n2\n2 1000000000\n0", "the cardinality of variable 1 is '1000000000'"),
    "too many factors": (
        "MARKOV\n1\n2\n99\n1 0\n2 1 1",
        "line 4: the number of factors is 99, but only 5",
    ),
    "three variables": (
        "MARKOV\n3\n2 2 2\n2\n1 0\n3 0 1 2\n2 1 1 8 1 1 1 1 1 1 1 1",
        "line 6: factor 1 has 3 variables, expected at most 2",
    ),
    "unknown variable": (
        "MARKOV\n1\n2\n1\n1 1\n2 1 1",
        "line 5: a variable of factor 0 is '1', expected",
    ),
    "the same twice": ("MARKOV\n2\n2 2\n1\n2 1 1\n4 1 1 1 1", "line 5: factor 0 names variable 1 twice"),
    "wrong size": ("MARKOV\n1\n2\n1\n1 0\n3\n1 1 1", "line 6: factor 0 has a table of 3 entries, expected 2"),
    "cut short": ("MARKOV\n1\n2\n1\n1 0\n2\n1", "ends within the table of factor 0: it has 1 of 2 entries"),
    "no table": ("MARKOV\n1\n2\n1\n1 0", "ends before the table size of factor 0"),
    "negative": ("MARKOV\n1\n2\n1\n1 0\n2\n1\n-1", "line 8: entry 1 of the table of factor 0 is '-1'"),
    "NaN": ("MARKOV\n1\n2\n1\n1 0\n2\nnan 1", "line 7: entry 0 of the table of factor 0 is 'nan'"),
    "infinite": ("MARKOV\n1\n2\n1\n1 0\n2\n1 1e999", "line 7: entry 1 of the table of factor 0 is '1e999'"),
    "number of Python": ("MARKOV\n1\n2\n1\n1 0\n2\n1 1_0", "line 7: entry 1 of the table of factor 0 is '1_0'"),
    "no number": ("MARKOV\n1\n2\n1\n1 0\n2\n1 one", "line 7: entry 1 of the table of factor 0 is 'one'"),
    "constant 0": ("MARKOV\n1\n2\n1\n0\n1\n0", "line 7: factor 0 is the constant 0"),
    "nothing allowed": ("MARKOV\n2\n2 2\n1\n1 1\n2\n0 0", "has potential 0 for every label of variable 1"),
    "too much": ("MARKOV\n1\n2\n1\n1 0\n2\n1 1\n3", "line 8: '3' follows after the end"),
}


@pytest.mark.parametrize("name", BAD)
def test_malformed_models_are_refused(tmp_path: Path, name: str) -> None:
    text, reason = BAD[name]
    path = tmp_path / "bad.uai"
    path.write_text(text)
    with pytest.raises(lp.InputError) as caught:
        read_uai(path)
    assert str(caught.value).startswith(str(path))
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert caught.value.__cause__ is None


def test_padding_beyond_memory_is_refused(tmp_path: Path) -> None:
    """Combine a variable of 20,000 labels with a pair of two labels: a padded table would take 3 GB."""
    path = tmp_path / "bad.uai"
    ones = "1 " * 20_000
    path.write_text(f"MARKOV\n3\n2 2 20000\n2\n2 0 1\n1 2\n4 1 1 1 1\n20000 {ones}")
    with pytest.raises(TooLargeError, match="padded to 20000 labels"):
        read_uai(path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("2 1 2", "is 2, but only 2 tokens follow|ends before"),
        ("3 0 1", "3, but only 2 tokens follow"),
        ("1 1 2\n0 0", "line 2: '0' follows after the end"),
        ("2\n1 1 2\n1 1 2 0", "2 evidence sets"),
        ("2\n1 1 1\n0", "2 evidence sets"),
        ("2\n0\n1 1 1\n", "2 evidence sets"),
        ("1 3 0", "line 1: an observed variable is '3', expected a whole number from 0 to 2"),
        ("1 0 2", "the label of variable 0 is '2', expected a whole number from 0 to 1"),
        ("1 0 x", "the label of variable 0 is 'x'"),
        ("1 0 -1", "the label of variable 0 is '-1'"),
        ("2 1 0 1 2", "potential 0 for every label that the evidence leaves of variable 1"),
    ],
)
def test_malformed_evidence_is_refused(small: Path, text: str, reason: str) -> None:
    evidence = small.with_suffix(".evid")
    evidence.write_text(text)
    with pytest.raises(lp.InputError, match=reason):
        read_uai(small, evidence)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    junk = tmp_path / "junk.uai"
    junk.write_bytes(bytes(range(256)) * 10)
    for path, reason in (
        (junk, "not a text file"),
        (tmp_path, "is a directory"),
        (tmp_path / "none", "does not exist"),
    ):
        with pytest.raises(lp.InputError, match=reason):
            read_uai(path)


def test_truncated_files_are_refused(small: Path) -> None:
    """Truncate the file after every token."""
    words = SMALL.split()
    for count in range(len(words)):
        small.write_text(" ".join(words[:count]))
        with pytest.raises(lp.InputError):
            read_uai(small)
