"""Optional files of a folder: names of the labels and true labels."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from locpmap.errors import InputError
from locpmap.formats import label_colours
from locpmap_viewer.colours import coloured
from locpmap_viewer.decoding import Settings, decode
from locpmap_viewer.scenes import pairs, read_scene
from locpmap_viewer.server import _checked
from locpmap_viewer.session import Session
from locpmap_viewer.summary import pixel, scene_facts, summary

RNG = np.random.default_rng(0)
TRUTH = RNG.integers(0, 3, (12, 16)).astype(np.uint8)
TRUTH[0] = 255  # unknown


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Image.fromarray(RNG.integers(0, 256, TRUTH.shape, np.uint8)).save(tmp_path / "cat.png")
    np.save(tmp_path / "cat.npy", RNG.normal(size=(*TRUTH.shape, 3)).astype(np.float32))
    Image.fromarray(TRUTH).save(tmp_path / "cat.truth.png")
    (tmp_path / "names.txt").write_text("sky\nGrünfläche\n water \n\n", "utf-8")
    return tmp_path


def refusal(folder: Path) -> str:
    with pytest.raises(InputError) as found:
        read_scene("cat", pairs(folder)["cat"])
    assert "\n" not in str(found.value)
    return str(found.value)


def test_names_and_true_labels_are_read(folder: Path) -> None:
    assert list(pairs(folder)) == ["cat"]
    scene = read_scene("cat", pairs(folder)["cat"])
    facts = scene_facts(scene)
    assert [each["name"] for each in facts["labels"]] == ["sky", "Grünfläche", "water"]
    assert facts["truth"]
    result = decode(scene, Settings("network"))
    quality = summary(result)["quality"]
    assert quality["accuracy"] == pytest.approx((result.labels == TRUTH)[1:].mean())
    assert pixel(result, 3, 5)["truth"] == TRUTH[5, 3]
    assert pixel(result, 3, 0)["truth"] is None
    shown = np.asarray(Image.open(io.BytesIO(coloured(TRUTH, label_colours(3)))))
    np.testing.assert_array_equal(shown[..., 3], np.where(TRUTH == 255, 0, 255))


def test_both_files_are_optional_and_read_again_after_a_change(folder: Path) -> None:
    session = Session(folder)
    assert session.scene("folder:cat").names[1] == "Grünfläche"
    (folder / "names.txt").write_text("a\r\nb\r\nc\r\n")
    assert session.scene("folder:cat").names == ("a", "b", "c")
    for name in ("names.txt", "cat.truth.png"):
        (folder / name).unlink()
    scene = session.scene("folder:cat")
    assert scene.names == ("label 0", "label 1", "label 2")
    assert scene.truth is None
    image, scores, *_ = pairs(folder)["cat"]
    alone = Session(_checked(image, scores))
    assert alone.listed()[0] == ("folder:cat", "cat", "folder")
    np.testing.assert_array_equal(alone.scene("folder:cat").scores, scene.scores)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"sky\nwater\n", "names.txt holds 2 names, expected 3: the name of one label per line"),
        (b"sky\n\nwater\n", "names.txt, line 2, is '', expected the name of label 1"),
        (b"\xff\xfe\x00sky", "names.txt is not a text file in UTF-8"),
    ],
)
def test_bad_names_are_refused(folder: Path, content: bytes, sentence: str) -> None:
    (folder / "names.txt").write_bytes(content)
    assert re.search(sentence, refusal(folder))


def test_bad_true_labels_are_refused(folder: Path) -> None:
    def saved(truth: np.ndarray) -> str:
        Image.fromarray(truth).save(folder / "cat.truth.png")
        return refusal(folder)

    assert "cat.truth.png has shape (16, 12), expected (12, 16) like its image" in saved(TRUTH.T.copy())
    assert "contains the label 7, expected labels from 0 to 2, or 255 if unknown" in saved(np.full_like(TRUTH, 7))
    assert "contains the label 3, expected labels from 0 to 2" in saved(np.where(TRUTH == 2, 3, TRUTH).astype(np.uint8))
    assert "holds only 255 (an unknown label), expected labels from 0 to 2" in saved(np.full_like(TRUTH, 255))
    assert "colour mode RGB, expected labels as grey or palette values" in saved(label_colours(3)[TRUTH % 3])
    (folder / "cat.truth.png").write_bytes(b"no picture")
    assert "cat.truth.png is damaged or of another format, expected an image in PNG format" in refusal(folder)


def test_links_that_lead_out_of_the_folder_are_not_followed(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    for name in ("names.txt", "cat.truth.png"):
        (folder / name).rename(outside / name)
        (folder / name).symlink_to(outside / name)
    assert pairs(folder)["cat"].truth is None
    assert pairs(folder)["cat"].names is None
