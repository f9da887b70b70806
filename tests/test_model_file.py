"""Model files: round trips, and errors for damaged or other files."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save
from tests.model_files import FOLDER, KINDS

import locpmap as lp
from locpmap.errors import InputError, InputTypeError
from locpmap.formats.model_file import MAX_BYTES, SCHEMA, read_model, write_model

ARRAYS: dict[str, np.ndarray] = {
    "weights": np.random.default_rng(0).normal(size=(3, 2)),
    "tables": np.random.default_rng(1).normal(size=(2, 1, 2, 2)).astype(np.float32),
    "temperature": np.array(1.5),
    "nothing": np.zeros((0, 4)),
}
HEADER: dict[str, Any] = {
    "n_labels": 2,
    "labels": ["sky", "Bäume"],
    "fit": {"l2": 0.1, "curve": [1.0, 1e-300], "done": True, "no": None},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def identical(found: tuple[dict[str, Any], dict[str, Any]], arrays: dict[str, Any], header: dict[str, Any]) -> bool:
    """Return whether arrays, dtypes, shapes and header are equal to the last bit."""
    return (
        found[0].keys() == arrays.keys()
        and all(found[0][name].dtype == arrays[name].dtype for name in arrays)
        and all(found[0][name].shape == arrays[name].shape for name in arrays)
        and all(found[0][name].tobytes() == arrays[name].tobytes() for name in arrays)
        and json.dumps(found[1], sort_keys=True) == json.dumps(header, sort_keys=True)
    )


def error_message(path: Path) -> str:
    """Return the sentence, without the path, of the error that reading the file raises."""
    with pytest.raises(InputError) as error:
        read_model(path)
    message = str(error.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    assert error.value.__context__ is None or error.value.__suppress_context__
    return message.removeprefix(str(path)).lstrip(": ")


def write_with_header(path: Path, text: str | None, arrays: dict[str, np.ndarray] | None = None) -> Path:
    """Write a valid safetensors file with the given text as locpmap's header."""
    path.write_bytes(save(arrays or {"w": np.ones(2)}, metadata=None if text is None else {"locpmap": text}))
    return path


def write_raw(path: Path, header: dict[str, Any], data: bytes) -> Path:
    """Write a file with any safetensors header, valid or not."""
    text = json.dumps({"__metadata__": {"locpmap": header_text()}} | header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def header_text(**changes: Any) -> str:
    return json.dumps({"schema": SCHEMA, "sha256": "", "model": {}} | changes)


# --- writing ---


def test_round_trip_is_exact(path: Path) -> None:
    write_model(path, ARRAYS, HEADER)
    assert identical(read_model(path), ARRAYS, HEADER)
    assert not identical(read_model(path), ARRAYS, HEADER | {"n_labels": 3})
    assert os.listdir(path.parent) == [path.name]


def test_arrays_are_writable_and_independent_of_the_file(path: Path) -> None:
    write_model(path, ARRAYS, HEADER)
    arrays, _ = read_model(path)
    path.unlink()
    arrays["weights"] += 1
    np.testing.assert_array_equal(arrays["weights"], ARRAYS["weights"] + 1)


def test_file_is_valid_safetensors(path: Path) -> None:
    write_model(path, ARRAYS, HEADER)
    with safe_open(path, framework="numpy") as file:
        assert list(file.metadata()) == ["locpmap"]
        text = json.loads(file.metadata()["locpmap"])
        np.testing.assert_array_equal(file.get_tensor("weights"), ARRAYS["weights"])
    assert text["schema"] == 1
    assert text["model"] == HEADER


@pytest.mark.parametrize("view", [np.arange(12.0).reshape(3, 4).T, np.arange(12.0)[::-2], np.asfortranarray(np.eye(3))])
def test_arrays_of_any_strides_are_written(path: Path, view: np.ndarray) -> None:
    write_model(path, {"w": view}, {})
    np.testing.assert_array_equal(read_model(path)[0]["w"], view)


@pytest.mark.parametrize(
    ("arrays", "header", "words"),
    [
        ({"w": np.array([1.0, np.nan])}, {}, "the array 'w' contains nan, expected finite numbers"),
        ({"w": np.array(-np.inf)}, {}, "the array 'w' contains -inf, expected finite numbers"),
        ({"w": np.ones(2, int)}, {}, "the array 'w' has dtype int64, expected float16, float32 or float64"),
        ({"w": np.broadcast_to(1.0, (2**27, 1))}, {}, "expected at most 536870912"),
        ({}, {"l2": float("nan")}, "the header cannot be written as JSON"),
        ({}, {"f": print}, "the header cannot be written as JSON"),
    ],
)
def test_invalid_models_are_not_written(path: Path, arrays: dict[str, Any], header: dict[str, Any], words: str) -> None:
    path.write_bytes(b"before")
    with pytest.raises(InputError, match=words):
        write_model(path, arrays, header)
    assert path.read_bytes() == b"before"
    assert os.listdir(path.parent) == [path.name]


def test_unwritable_paths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory, expected a file to write to"):
        write_model(tmp_path, ARRAYS, HEADER)
    with pytest.raises(InputError, match="there is no folder"):
        write_model(tmp_path / "no" / "model", ARRAYS, HEADER)


def test_failed_write_leaves_the_old_model(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(path, ARRAYS, HEADER)

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        write_model(path, {}, {})
    assert identical(read_model(path), ARRAYS, HEADER)
    assert os.listdir(path.parent) == [path.name]


# --- reading ---


def test_missing_file_is_refused(path: Path) -> None:
    assert error_message(path) == "does not exist, expected a model file"


def test_invalid_path_is_refused() -> None:
    with pytest.raises(InputTypeError, match="path is None, expected the name of a file"):
        read_model(None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="without a null character"):
        read_model("a\0b")


def test_directory_is_refused(tmp_path: Path) -> None:
    assert error_message(tmp_path) == "is a directory, expected a model file"


def test_pipe_is_refused_without_blocking(path: Path) -> None:
    os.mkfifo(path)
    assert error_message(path) == "is not a regular file, expected a model file"


def test_empty_file_is_refused(path: Path) -> None:
    path.touch()
    assert error_message(path) == "is empty, expected a model file"


def test_file_above_the_size_limit_is_refused(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)  # sparse file
    assert error_message(path) == f"has {MAX_BYTES + 1} bytes, expected a model file of at most {MAX_BYTES}"


@pytest.mark.parametrize("content", [b"x", b"PK\x03\x04" + b"\0" * 60, b"MARKOV\n3\n2 2 2\n" * 9, b"\x80\x04\x95" * 30])
def test_other_formats_are_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert error_message(path).startswith("is damaged or not a safetensors file (")


def test_truncated_files_are_refused(path: Path) -> None:
    write_model(path, ARRAYS, HEADER)
    whole = path.read_bytes()
    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        assert error_message(path).startswith("is damaged or not a safetensors file (")


def test_trailing_bytes_are_refused(path: Path) -> None:
    write_model(path, ARRAYS, HEADER)
    path.write_bytes(path.read_bytes() + b"\0")
    assert "file not fully covered" in error_message(path)


def test_flipped_bits_are_detected(path: Path) -> None:
    write_model(path, ARRAYS, HEADER)
    whole = path.read_bytes()
    bits = np.random.default_rng(0).integers(8, size=len(whole)).tolist()
    refused = 0
    for place, bit in enumerate(bits):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
        refused += is_refused(path)
    assert len(whole) - 5 < refused  # harmless changes such as \u00E4 for \u00e4


def test_random_damage_is_detected(path: Path) -> None:
    write_model(path, ARRAYS, HEADER)
    whole = np.frombuffer(path.read_bytes(), np.uint8)
    random = np.random.default_rng(0)
    for _ in range(500):
        damaged = whole.copy()
        start, size = random.integers(len(whole)), random.integers(1, 40)
        damaged[start : start + size] = random.integers(0, 256, len(damaged[start : start + size]))
        path.write_bytes(damaged[: random.integers(1, len(whole) + 1) if random.random() < 0.3 else None].tobytes())
        is_refused(path)


def is_refused(path: Path) -> bool:
    """Return whether reading a file raises an error, and check that it is otherwise read as it was written."""
    try:
        found = read_model(path)
    except InputError:
        return True
    assert identical(found, ARRAYS, HEADER)
    return False


def test_checksum_detects_a_changed_number(path: Path) -> None:
    write_model(path, {"w": np.array([1.0, 2.0])}, {})
    path.write_bytes(path.read_bytes().replace(struct.pack("<d", 2.0), struct.pack("<d", 2.5)))
    assert error_message(path) == "is damaged: its content does not have the checksum that it was saved with"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "is a safetensors file without a 'locpmap' header, expected a model saved by locpmap"),
        ("", "header that is not JSON"),
        ("{'schema': 1}", "header that is not JSON"),
        ('{"schema": 1', "header that is not JSON"),
        ('{"schema": 1, "model": {"l2": NaN}}', "header that is not JSON (NaN is not a JSON number)"),
        ("[" * 100_000, "header that is not JSON"),
        ('{"schema": ' + "9" * 5000 + "}", "header that is not JSON"),
        ("[1]", "has a header without a schema version"),
        ("{}", "has a header without a schema version"),
        ('{"schema": "1"}', "has a header without a schema version"),
        ('{"schema": true}', "has a header without a schema version"),
        ('{"schema": 0}', "has a header without a schema version"),
        (f'{{"schema": {SCHEMA + 1}}}', f"newer version (schema {SCHEMA + 1}, this version reads up to {SCHEMA})"),
        (f'{{"schema": {SCHEMA + 1}}}', "upgrade locpmap to read it"),
        ('{"schema": 1, "sha256": ""}', "has an incomplete header, expected 'model' and 'sha256' in it"),
        (header_text(model=[]), "has an incomplete header"),
        (header_text(sha256=None), "has an incomplete header"),
        (header_text(), "is damaged: its content does not have the checksum"),
    ],
)
def test_bad_headers_are_refused(path: Path, text: str | None, words: str) -> None:
    assert words in error_message(write_with_header(path, text))


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.ones(2, np.int8), "the array 'w' has type I8, expected one of F16, F32, F64"),
        (np.ones(2, np.int64), "the array 'w' has type I64, expected one of F16, F32, F64"),
        (np.array([1.0, np.nan]), "the array 'w' contains nan, expected finite numbers"),
        (np.array([np.inf, 1.0], np.float32), "the array 'w' contains inf, expected finite numbers"),
    ],
)
def test_bad_arrays_are_refused(path: Path, array: np.ndarray, words: str) -> None:
    assert error_message(write_with_header(path, header_text(), {"w": array})) == words


@pytest.mark.parametrize(
    ("shape", "offsets", "words"),
    [
        ([2**40], [0, 2**43], "is damaged or not a safetensors file"),  # claims 8 TB
        ([2**40], [0, 16], "is damaged or not a safetensors file"),
        ([2**62, 4], [0, 16], "is damaged or not a safetensors file"),
        ([3], [0, 24], "is damaged or not a safetensors file"),
        ([1], [0, 8], "is damaged or not a safetensors file"),
        ([-2], [0, 16], "is damaged or not a safetensors file"),
        ([2] + [1] * 99, [0, 16], "the array 'w' cannot be loaded"),
    ],
)
def test_wrong_sizes_are_refused(path: Path, shape: list[int], offsets: list[int], words: str) -> None:
    claim = {"w": {"dtype": "F64", "shape": shape, "data_offsets": offsets}}
    assert error_message(write_raw(path, claim, b"\0" * 16)).startswith(words)


def test_axis_beyond_the_numpy_limit_is_refused(path: Path) -> None:
    claim = {"w": {"dtype": "F64", "shape": [0, 2**64 - 1], "data_offsets": [0, 0]}}
    assert "cannot be loaded" in error_message(write_raw(path, claim, b""))


# files of earlier versions


@pytest.mark.parametrize(
    "path", sorted(FOLDER.glob("*/*.safetensors")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_files_of_earlier_versions_give_the_same_results(path: Path) -> None:
    if path.stem.startswith("network"):
        pytest.importorskip("torch")
    _, answer = KINDS[path.stem]
    expected = np.array(json.loads(path.with_suffix(".json").read_text()))
    np.testing.assert_allclose(answer(path), expected, rtol=1e-5, atol=2e-6)


def test_every_kind_of_file_of_this_version_is_stored() -> None:
    assert {path.stem for path in (FOLDER / lp.__version__).glob("*.safetensors")} == set(KINDS)
