"""``locpmap refine``: one folder of images and logits, the files that are kept, and the names of labels."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.command import Run

import locpmap as lp
from locpmap.cli.commands import OWN, PAPER, SUMMARIES, VIEWER
from locpmap.cli.refine_summary import summary
from locpmap.crf.fitting import OBJECTIVES
from locpmap.deciding.inputs import MEASURES
from locpmap.formats import find_pairs
from locpmap.kernels.placement import BACKENDS, DEVICES, ON_GPU
from locpmap.refining.reading import LAYOUTS, SCORES

SHAPE, K = (12, 18), 6
NAMES = ("sky", "tree", "road", "water", "rock", "Gebäude")
PRESENT = (5, 1, 2)  # labels of the columns of the image, in 9, 6 and 3 columns


def example() -> tuple[np.ndarray, np.ndarray]:
    """Return an image of three stripes and logits (H, W, 6), in which three of the labels occur."""
    labels = np.broadcast_to(np.repeat(PRESENT, (9, 6, 3)), SHAPE)
    image = np.repeat((labels * 40).astype(np.uint8)[..., None], 3, axis=2)
    return image, (12 * np.eye(K)[labels]).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write two images with logits of the same name, and files that have no partner, to one folder."""
    image, logits = example()
    path = tmp_path / "both"
    path.mkdir()
    for name in ("a.png", "b.jpg", "lonely.png"):
        Image.fromarray(image).save(path / name)
    np.save(path / "a.npy", logits)
    np.savez(path / "b.npz", logits=logits)
    np.save(path / "alone.npy", logits)
    (path / "notes.txt").write_text("of the photographs")
    np.save(path / ".hidden.npy", logits)
    return path


@pytest.fixture
def names(tmp_path: Path) -> Path:
    path = tmp_path / "names.txt"
    path.write_text("\n".join(NAMES) + "\n\n", "utf-8")
    return path


def written(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# one folder


def test_one_folder_of_images_and_logits(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "refine", folder, "-o", tmp_path / "out", "--n-samples", 4, "--keep", "probability", "--json")
    assert run.status == 0, run.err
    assert [each["name"] for each in json.loads(run.out)["inputs"]] == list(find_pairs(folder).found) == ["a", "b"]
    assert run.err == "locpmap: not used, without a partner or with a name in use: alone.npy, lonely.png\n"
    expected = lp.refine(*example(), decoder=lp.LocPMAP(4, start="perturbed")).probability
    np.testing.assert_array_equal(np.load(tmp_path / "out/a.probability.npy"), expected)


def test_one_folder_is_matched_as_by_the_viewer(folder: Path, tmp_path: Path) -> None:
    """Links to files elsewhere are not served, and of two files of one name the first counts, in both programs."""
    scenes = pytest.importorskip("locpmap_viewer.scenes")
    for name in ("outside.png", "outside.npy"):
        (tmp_path / name).write_bytes((folder / f"a.{name[-3:]}").read_bytes())
        os.symlink(tmp_path / name, folder / name)
    (folder / "a.npz").write_bytes((folder / "b.npz").read_bytes())
    found, unused = find_pairs(folder)
    assert {name: (files.image, files.scores) for name, files in scenes.pairs(folder).items()} == found
    assert found["a"] == (folder / "a.png", folder / "a.npy")
    left_out = ["a.npz", "alone.npy", "lonely.png", "outside.npy", "outside.png"]
    assert [path.name for path in unused] == left_out


def test_folder_without_pairs_is_refused(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    for name in ("a.npy", "b.npz"):
        (folder / name).unlink()
    Run(capsys, "refine", folder, "-o", out).check_refusal(f"{folder} holds no image (.png, .jpg", "of the same name")
    Run(capsys, "refine", folder / "a.png", "-o", out).check_refusal("LOGITS is missing, expected the scores of")
    Run(capsys, "refine", tmp_path / "none", "-o", out).check_refusal("none does not exist")
    assert not out.exists()


def test_results_beside_the_inputs_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = written(folder)
    run = Run(capsys, "refine", folder, "-o", folder)
    assert run.status == 2
    assert "is also an input" in run.err
    assert written(folder) == before


# kept files


def test_default_files_are_few_and_small(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["refine", folder / "a.png", folder / "a.npy", "-o", tmp_path / "out", "--n-samples", 4]
    run = Run(capsys, *words)
    assert run.status == 0, run.err
    assert written(tmp_path / "out") == {"a.labels.png", "a.overlay.png", "a.json"}
    for keep, files in (
        ("entropy,labels", {"a.labels.png", "a.entropy.npy"}),
        ("variance", {"a.variance.npy"}),
        ("overlay, probability", {"a.overlay.png", "a.probability.npy"}),
    ):
        assert Run(capsys, *words, "--keep", keep).status == 0
        assert written(tmp_path / "out") == files | {"a.json"}
    assert Run(capsys, *words, "--keep", "overlay", "--tiff", "--samples", 1).status == 0
    assert written(tmp_path / "out") == {"a.overlay.png", "a.json", "a.sample-000.png", "a.sample-000.tif"}
    assert Run(capsys, *words, "--keep", "labels,entropy", "--tiff").status == 0
    assert written(tmp_path / "out") == {f"a.{end}" for end in ("labels.png", "entropy.npy", "labels.tif")} | {
        "a.json",
        "a.entropy.tif",
    }
    Run(capsys, *words, "--keep", "varience").check_refusal("unknown value of --keep 'varience'", "'variance'?")
    Run(capsys, *words, "--keep", "").check_refusal("unknown value of --keep ''")


# names


def test_names_and_absent_labels_in_the_table(
    folder: Path, names: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["refine", folder / "a.png", folder / "a.npy", "-o", tmp_path / "out", "--names", names]
    run = Run(capsys, *words)
    assert run.status == 0, run.err
    header, *rows, absent, changes, _ = run.out.splitlines()
    assert header.split()[:5] == ["label", "pixels", "median", "of", "samples"]
    assert re.fullmatch(r"(\d+|none) of 216 pixels ha.* another label than the network's.*", changes)
    assert [line.split()[:2] for line in rows] == [[str(k), NAMES[k]] for k in PRESENT]
    assert [int(line.split()[2]) for line in rows] == [SHAPE[0] * n for n in (9, 6, 3)]
    assert len({len(line) for line in (header, *rows)}) == 1, "columns are aligned"
    assert absent == "3 labels absent"
    record = json.loads((tmp_path / "out/a.json").read_text("utf-8"))
    areas = [row["area"] for row in record["labels"]]
    assert areas == sorted(areas, reverse=True)
    assert all(row["name"] == NAMES[row["label"]] for row in record["labels"])
    assert record["settings"]["names"] == list(NAMES)
    assert record["n_labels"] == K
    assert "finished before: 1" in Run(capsys, *words).out
    plain = Run(capsys, *words[:-2]).out.splitlines()
    assert [line.split()[0] for line in plain[1:4]] == [str(k) for k in PRESENT]


def test_labels_that_would_print_as_nothing_are_absent() -> None:
    """Fold labels without a pixel whose mean area is printed as 0.0 %; keep rare and uncertain ones."""
    rows = {0: (9_000, 9_000.0), 1: (0, 900.0), 2: (0, 6.0), 3: (0, 4.0), 4: (1, 0.0)}
    labels = [
        {"label": k, "name": None, "pixels": n, "area": area, "std": None, "median": 0.5, "interval": [0, 1]}
        for k, (n, area) in rows.items()
    ]
    record: dict[str, Any] = {
        "n_labels": 6,
        "pixels": 10_000,
        "labels": labels,
        "files": ["a.json", "a.overlay.png"],
        "name": "a",
    }
    record |= {
        "settings": {"n_samples": 50},
        "changed": 3,
        "changes": "3 pixels",
        "spacing": None,
        "guaranteed": False,
        "mean_entropy": 0.0,
        "seconds": 1.0,
        "state": "done",
    }
    lines = summary([record], Path("out")).splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["0", "4", "1", "2"]  # by number of pixels
    outside = "the median and the interval are of the samples, not of the label map"
    assert lines[5:] == [outside, "2 labels absent", "3 pixels", "mean entropy 0.000, 1.00 s; 2 files in out"]
    assert summary([record, record], Path("out")).splitlines()[1].split()[:3] == ["a", "4", "3"]
    few = {**record, "settings": {"n_samples": 19}}
    assert summary([few], Path("out")).splitlines()[5] == "intervals of fewer than 20 samples are unreliable"
    skewed = {**record, "labels": [{**labels[1], "median": 0.0, "interval": [0, 0]}]}  # in few samples only
    assert summary([skewed], Path("out")).splitlines()[1].split() == ["1", "0", "0", "0", "to", "0", "0.0%"]


def test_names_in_the_table_of_a_folder(
    folder: Path, names: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(capsys, "refine", folder, "-o", tmp_path / "out", "--names", names, "--n-samples", 4)
    assert run.status == 0, run.err
    first, second = run.out.splitlines()[1:3]
    assert first.split()[:2] == ["a", "3"]
    for line in (first, second):
        assert re.search(r"5 Gebäude \d\d%, 1 tree \d\d%, 2 road 1\d%$", line)
    (folder / "names.txt").write_bytes(names.read_bytes())  # read without the option
    Image.fromarray(np.zeros(SHAPE, np.uint8)).save(folder / "a.truth.png")
    again = Run(capsys, "refine", folder, "-o", tmp_path / "out", "--n-samples", 4)
    assert again.out.count("5 Gebäude") == again.out.count("skipped") == 2
    assert "truth" not in again.err
    (folder / "names.txt").unlink()
    names.write_text("sky\nland\n")
    wrong = Run(capsys, "refine", folder, "-o", tmp_path / "other", "--names", names)
    assert (wrong.status, wrong.out) == (2, "")
    sentence = "there are 2 names of labels, expected 6, one per label: see --names and names.txt"
    assert wrong.err.splitlines()[1:] == [f"locpmap: {sentence}"]
    names.write_text("\n".join(NAMES), "utf-8")
    np.save(folder / "a.npy", np.zeros(3))  # a damaged input does not stop the others
    rest = Run(capsys, "refine", folder, "-o", tmp_path / "other", "--names", names, "--n-samples", 4)
    assert rest.status == 2
    assert "b.labels.png" in written(tmp_path / "other")
    assert "a.npy has shape (3,)" in rest.err


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"a\nb\n", ("a.npy", "there are 2 names of labels, expected 6, one per label: see --names and names.txt")),
        (b"a\n\nc\n", ("names.txt, line 2, is '', expected the name of label 1",)),
        (b"a\nb\x1b[31m\n", ("names.txt, line 2, is 'b\\x1b[31m'",)),
        (b"\xff\xfe", ("names.txt is not a text file in UTF-8", "one label name per line")),
        (b"", ("names.txt is empty, expected a text file with one label name per line",)),
        (b" \n", ("names.txt is empty, expected a text file with one label name per line",)),
        (None, ("names.txt does not exist, expected a text file with one label name per line",)),
    ],
)
def test_bad_names_are_refused(
    content: bytes | None, parts: tuple[str, ...], folder: Path, names: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names.unlink() if content is None else names.write_bytes(content)
    out = folder.parent / "out"
    run = Run(capsys, "refine", folder / "a.png", folder / "a.npy", "-o", out, "--names", names)
    run.check_refusal(*parts)
    assert not out.exists()


# help


def test_help_lists_refine_first_and_whole_summaries(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence = "Do something that takes more than forty-five characters to say, and then a little more."

    def added() -> None:
        """Do."""

    added.__doc__ = f"{sentence}\n\nMore about it."
    point = type("Point", (), {"name": "added", "load": staticmethod(lambda: added)})
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: (point,))
    help = Run(capsys, "--help").out
    lines = help.split("Commands:\n")[1].splitlines()
    assert lines[0].split()[0] == "refine"
    text = " ".join(help.split())
    for line in (*SUMMARIES.values(), sentence):
        assert line in text
    assert ".." not in text.replace("[ARGS]...", "")


def test_choices_are_shown_in_help(capsys: pytest.CaptureFixture[str]) -> None:
    choices: dict[str, dict[str, tuple[str, ...]]] = {
        "refine": {"layout": LAYOUTS[2], "scores": SCORES, "device": DEVICES, "decide": MEASURES},
        "fit-refiner": {"layout": LAYOUTS[2], "scores": SCORES},
        "infer": {"backend": ("auto", *BACKENDS, ON_GPU), "device": DEVICES, "write": ("mar", "mpe")},
        "fit": {"device": DEVICES, "objective": OBJECTIVES, "connectivity": ("4", "8")},
    }
    for command, options in choices.items():
        help = Run(capsys, command, "--help").out
        for option, expected in options.items():
            (shown,) = re.findall(rf"^  --{option} (\S+)", help, flags=re.MULTILINE)
            assert tuple(shown.split("|")) == expected, (command, option)
    for command in OWN:  # other options and arguments are not plain strings
        assert "<str>" not in re.sub(r"--blocks <str>|NAME <str>", "", Run(capsys, command, "--help").out), command


def test_hints_to_install_are_those_of_the_pages() -> None:
    """Compare the commands of the hints with README and docs, and the extras with the README's table."""
    root = Path(lp.__file__).parents[2]
    if not (root / "docs").is_dir():
        pytest.skip("not a clone of the repository")
    pages = " ".join(page.read_text("utf-8") for page in (root / "README.md", *(root / "docs").glob("*.md")))
    sources = [path for part in ("src", "viewer/src", "paper/src") for path in (root / part).rglob("*.py")]
    hints = {hint for path in sources for hint in re.findall(r"(pip install [^{\n]+?) in a clone", path.read_text())}
    assert len(hints) >= 5
    for hint in hints | {VIEWER[1], PAPER[1]}:
        extra = re.fullmatch(r"pip install '\.\[(\w+)\]'", hint)
        assert hint in pages or (extra and f"| `{extra[1]}` |" in pages), hint
