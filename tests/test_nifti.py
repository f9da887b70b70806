"""NIfTI files: what is read, what is written, and sentences for bad input; `locpmap refine` on scans."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import ndimage

from locpmap.errors import InputError
from locpmap.formats.nifti import read_labels, read_logits, read_scan, write_nifti

nibabel = pytest.importorskip("nibabel", reason="nibabel is not installed")

AFFINE = np.array([[-0.9, 0.1, 0.0, 30.0], [0.1, 0.9, 0.0, -20.0], [0.0, 0.0, 2.5, 5.0], [0.0, 0.0, 0.0, 1.0]])
SHAPE = (7, 6, 5)


def save(path: Path, values: Any, affine: Any = AFFINE, kind: Any = None, **header: Any) -> Path:
    image = (kind or nibabel.Nifti1Image)(values, affine)
    for name, value in header.items():
        image.header[name] = value
    nibabel.save(image, path)
    return path


def scan_of(folder: Path, **options: Any) -> Path:
    values = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    return save(folder / "scan.nii.gz", values, **options)


def logits_of(folder: Path, **options: Any) -> Path:
    values = np.random.default_rng(1).normal(size=(*SHAPE, 3)).astype(np.float32)
    return save(folder / "logits.nii.gz", values, **options)


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
def test_a_scan_is_what_nibabel_reads(tmp_path: Path, name: str, kind: Any) -> None:
    image = kind(np.arange(210, dtype=np.int16).reshape(SHAPE), AFFINE)
    image.header.set_slope_inter(0.5, -7.0)
    nibabel.save(image, tmp_path / name)
    found = read_scan(tmp_path / name)
    known = nibabel.load(tmp_path / name)
    np.testing.assert_array_equal(found.values, known.get_fdata(dtype=np.float32))
    assert found.values[0, 0, 1] == 0.5 - 7  # the last axis is the fastest one in the array above
    np.testing.assert_allclose(found.affine, AFFINE, rtol=1e-6)
    np.testing.assert_allclose(found.spacing, nibabel.affines.voxel_sizes(AFFINE), rtol=1e-6)


def test_a_map_keeps_affine_and_header_of_the_scan(tmp_path: Path) -> None:
    path = scan_of(tmp_path, descrip=b"scanner 5", cal_max=900.0)
    scan, before = read_scan(path), nibabel.load(path)
    labels = np.random.default_rng(2).integers(0, 3, SHAPE).astype(np.uint8)
    write_nifti(tmp_path / "labels.nii.gz", labels, scan)
    found = nibabel.load(tmp_path / "labels.nii.gz")
    np.testing.assert_array_equal(np.asarray(found.dataobj), labels)
    np.testing.assert_array_equal(found.affine, before.affine)
    assert found.get_data_dtype() == np.uint8
    assert found.header["descrip"] == before.header["descrip"]
    assert found.header["cal_max"] == 0  # 900 would show all labels as black
    for name in ("qform_code", "sform_code", "xyzt_units"):
        assert found.header[name] == before.header[name]
    np.testing.assert_array_equal(read_labels(tmp_path / "labels.nii.gz", scan, path), labels)


def test_spacing_is_in_mm(tmp_path: Path) -> None:
    affine = np.diag([4.0, 4.0, 50.0, 1.0])
    affine[:3, 3] = 1000.0
    image = nibabel.Nifti1Image(np.zeros(SHAPE, np.float32), affine)
    image.header.set_xyzt_units("micron")
    nibabel.save(image, tmp_path / "em.nii")
    found = read_scan(tmp_path / "em.nii")
    np.testing.assert_allclose(found.spacing, (0.004, 0.004, 0.05))
    np.testing.assert_allclose(found.affine[:3, 3], 1.0)


@pytest.mark.parametrize("offset", [0.0, 100.0, -5.0, np.nan])
def test_data_inside_the_header_are_refused(tmp_path: Path, offset: float) -> None:
    content = bytearray(save(tmp_path / "a.nii", np.zeros(SHAPE, np.float32)).read_bytes())
    content[108:112] = np.float32(offset).tobytes()  # vox_offset
    (tmp_path / "a.nii").write_bytes(content)
    with pytest.raises(InputError, match="is damaged: its data begin at byte"):
        read_scan(tmp_path / "a.nii")


@pytest.mark.parametrize("value", [np.inf, 1e300, 0.5, np.nan])
def test_labels_that_are_not_whole_are_refused(tmp_path: Path, value: float) -> None:
    scan = read_scan(scan_of(tmp_path))
    with pytest.raises(InputError, match="expected labels"):
        read_labels(save(tmp_path / "labels.nii", np.full(SHAPE, value)), scan, "scan.nii.gz")


def test_rounding_of_the_affine_is_allowed(tmp_path: Path) -> None:
    scan = read_scan(scan_of(tmp_path))
    near = AFFINE.astype(np.float32) * (1 + 1e-6)
    assert read_logits(logits_of(tmp_path, affine=near), scan, "scan").shape == (*SHAPE, 3)
    vectors = save(tmp_path / "vectors.nii", np.zeros((*SHAPE, 1, 3), np.float32))  # as ITK writes them
    assert read_logits(vectors, scan, "scan").shape == (*SHAPE, 3)


def bad_affine(folder: Path) -> tuple[Path, Path]:
    moved = AFFINE.copy()
    moved[0, 3] += 0.1  # mm
    return scan_of(folder), logits_of(folder, affine=moved)


def bad_shape(folder: Path) -> tuple[Path, Path]:
    return scan_of(folder), save(folder / "logits.nii.gz", np.zeros((7, 6, 4, 3), np.float32))


def four_axes(folder: Path) -> tuple[Path, Path]:
    return save(folder / "scan.nii.gz", np.zeros((*SHAPE, 2), np.float32)), logits_of(folder)


def two_axes(folder: Path) -> tuple[Path, Path]:
    return save(folder / "scan.nii.gz", np.zeros((7, 6), np.float32)), logits_of(folder)


def one_score(folder: Path) -> tuple[Path, Path]:
    return scan_of(folder), save(folder / "logits.nii.gz", np.zeros(SHAPE, np.float32))


def zero_spacing(folder: Path) -> tuple[Path, Path]:
    path = scan_of(folder)
    content = bytearray(gzip.decompress(path.read_bytes()))
    content[76 + 8 : 76 + 12] = bytes(4)  # pixdim[2]
    content[252:256] = bytes(4)  # without qform and sform, the spacing is that of pixdim
    path.write_bytes(gzip.compress(content))
    return path, logits_of(folder)


def zero_column(folder: Path) -> tuple[Path, Path]:
    path = scan_of(folder)
    content = bytearray(gzip.decompress(path.read_bytes()))
    content[280:328] = np.array([[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]], np.float32).tobytes()  # sform
    path.write_bytes(gzip.compress(content))
    return path, logits_of(folder)


def truncated(folder: Path) -> tuple[Path, Path]:
    path = scan_of(folder)
    path.write_bytes(path.read_bytes()[:-200])
    return path, logits_of(folder)


def shortened(folder: Path) -> tuple[Path, Path]:
    path = scan_of(folder)
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-8]))
    return path, logits_of(folder)


def promised(folder: Path) -> tuple[Path, Path]:
    path = scan_of(folder)
    content = bytearray(gzip.decompress(path.read_bytes()))
    content[42:48] = np.array([8000, 8000, 8000], np.int16).tobytes()  # 2 TB
    path.write_bytes(gzip.compress(content))
    return path, logits_of(folder)


def bomb(folder: Path) -> tuple[Path, Path]:
    path = scan_of(folder)
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + bytes(2**28)))
    return path, logits_of(folder)


def no_nifti(folder: Path) -> tuple[Path, Path]:
    (folder / "scan.nii").write_bytes(b"PK\x03\x04" + bytes(1000))
    return folder / "scan.nii", logits_of(folder)


def no_gzip(folder: Path) -> tuple[Path, Path]:
    (folder / "scan.nii.gz").write_bytes(bytes(1000))
    return folder / "scan.nii.gz", logits_of(folder)


def complex_numbers(folder: Path) -> tuple[Path, Path]:
    return save(folder / "scan.nii.gz", np.zeros(SHAPE, np.complex64)), logits_of(folder)


def colours(folder: Path) -> tuple[Path, Path]:
    rgb = np.zeros(SHAPE, [("R", "u1"), ("G", "u1"), ("B", "u1")])
    return save(folder / "scan.nii.gz", rgb), logits_of(folder)


def bad_number(folder: Path) -> tuple[Path, Path]:
    values = np.zeros(SHAPE, np.float32)
    values[0, 0, 0] = np.nan
    return save(folder / "scan.nii.gz", values), logits_of(folder)


def other_format(folder: Path) -> tuple[Path, Path]:
    np.save(folder / "logits.npy", np.zeros((*SHAPE, 3), np.float32))
    return scan_of(folder), folder / "logits.npy"


BAD = {
    bad_affine: "expected the same affine",
    bad_shape: "expected the same shape",
    four_axes: "expected a scan (X, Y, Z)",
    two_axes: "expected a volume",
    one_score: "expected logits (X, Y, Z, labels)",
    zero_spacing: "expected voxels with a volume",
    zero_column: "expected voxels with a volume",
    truncated: "is damaged",
    shortened: "is damaged",
    promised: "is damaged or too large: its header claims (8000, 8000, 8000)",
    bomb: "holds more than",
    no_nifti: "is not a NIfTI file",
    no_gzip: "is damaged or not a compressed file",
    complex_numbers: "expected real numbers",
    colours: "expected real numbers",
    bad_number: "not finite",
    other_format: "expected both or none",
}


@pytest.mark.parametrize("make", BAD, ids=lambda make: make.__name__)
def test_bad_input_is_one_sentence(
    tmp_path: Path, make: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, error = run(capsys, monkeypatch, "refine", *make(tmp_path), "-o", tmp_path / "out")
    assert code == 2
    assert BAD[make] in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_results_of_a_scan_are_no_zarr_group(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.zarr"
    code, error = run(capsys, monkeypatch, "refine", scan_of(tmp_path), logits_of(tmp_path), "-o", output)
    assert (code, error.count("\n"), output.exists()) == (2, 1, False)
    assert f"--output is {output}, expected a folder for the NIfTI files of" in error


def test_a_bomb_is_not_decompressed(tmp_path: Path) -> None:
    path = scan_of(tmp_path)
    stream = gzip.compress(gzip.decompress(path.read_bytes()))
    path.write_bytes(stream + gzip.compress(bytes(2**24)) * 64)  # 1 GiB in another 1 MB
    script = f"""
import resource, sys
from locpmap.formats.nifti import read_scan
import nibabel
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read_scan({str(path)!r})
except Exception as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    sentence, more = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert "holds more than" in sentence
    assert int(more) < 50  # MiB


def test_labels_are_whole_numbers(tmp_path: Path) -> None:
    scan = read_scan(scan_of(tmp_path))
    with pytest.raises(InputError, match="expected labels"):
        read_labels(save(tmp_path / "labels.nii", np.full(SHAPE, 0.5, np.float32)), scan, "scan")


def test_refine_writes_what_lp_refine_returns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import locpmap as lp

    scan, logits = scan_of(tmp_path), logits_of(tmp_path)
    keep = ["--keep", "labels,overlay,probability,entropy", "--samples", "1", "--json"]
    code, text = run(capsys, monkeypatch, "refine", scan, logits, "-o", tmp_path / "out", *keep)
    assert code == 0, text
    record = json.loads(text)["inputs"][0]
    assert record["name"] == "scan"
    files = ["labels.nii.gz", "overlay.png", "probability.nii.gz", "entropy.nii.gz", "sample-000.nii.gz", "json"]
    assert record["files"] == [f"scan.{ending}" for ending in files]
    before = nibabel.load(scan)
    read = {name: nibabel.load(tmp_path / f"out/scan.{name}.nii.gz") for name in ("labels", "probability", "entropy")}
    spacing = nibabel.affines.voxel_sizes(before.affine)
    result = lp.refine(before.get_fdata(), nibabel.load(logits).get_fdata(), spacing=tuple(spacing))
    np.testing.assert_array_equal(np.asarray(read["labels"].dataobj), result.labels)
    np.testing.assert_allclose(read["probability"].get_fdata(), result.probability, atol=1e-6)
    np.testing.assert_allclose(read["entropy"].get_fdata(), result.entropy, atol=1e-5)
    for image in read.values():
        np.testing.assert_array_equal(image.affine, before.affine)
    for row in record["labels"]:
        assert row["voxels"] == (result.labels == row["label"]).sum()
        assert row["volume"] == pytest.approx(row["voxels"] * np.prod(spacing))
    assert sum(row["mean_volume"] for row in record["labels"]) == pytest.approx(np.prod(SHAPE) * np.prod(spacing))
    low, high = record["labels"][0]["interval"]
    assert low < record["labels"][0]["mean_volume"] < high


def test_a_table_of_volumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = scan_of(tmp_path), logits_of(tmp_path)
    words = ("refine", *files, "-o", tmp_path / "out", "--n-samples", 20)
    code, table = run(capsys, monkeypatch, *words)
    assert code == 0, table
    header, first, *_ = table.splitlines()
    assert re.split(" {2,}", header) == ["label", "volume in mm³", "median of samples", "90% interval", "fraction"]
    record = json.loads((tmp_path / "out/scan.json").read_text())
    row = max(record["labels"], key=lambda row: row["voxels"])
    low, high = row["interval"]
    sizes = f"{row['volume']:.1f}", f"{row['median']:.1f}", f"{low:.0f}", "to", f"{high:.0f}"
    assert first.split()[1:-1] == list(sizes)
    assert low <= row["median"] <= high
    assert "pixel" not in table + json.dumps(record)
    assert record["changes"] in table
    assert "often too wide for volumes" in table
    (tmp_path / "names.txt").write_text("\n".join(f"part {k}" for k in range(record["n_labels"])))
    before = (tmp_path / "out/scan.overlay.png").read_bytes()
    assert run(capsys, monkeypatch, *words, "--names", tmp_path / "names.txt")[0] == 0
    assert (tmp_path / "out/scan.overlay.png").read_bytes() != before  # a legend with the names


def blob(folder: Path, n: int) -> None:
    """Write a scan of a bright cube, blurred logits and labels to folders."""
    rng = np.random.default_rng(n)
    labels = np.zeros((8, 9, 10), np.uint8)
    z, y, x = rng.integers(1, 4, 3)
    labels[z : z + 4, y : y + 5, x : x + 5] = 1
    blurred = ndimage.gaussian_filter(np.eye(2)[labels], (1, 1, 1, 0))
    files = {"scans": 90.0 * labels + rng.normal(size=labels.shape), "logits": 8 * blurred, "masks": labels}
    for name, values in files.items():
        (folder / name).mkdir(exist_ok=True)
        save(folder / name / f"case{n}.nii.gz", values)


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: object) -> tuple[int, str]:
    from locpmap.cli import main

    monkeypatch.setattr(sys, "argv", ["locpmap", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        main()
    printed = capsys.readouterr()
    return int(end.value.code or 0), printed.out + printed.err


def test_folders_of_scans(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(6):
        blob(tmp_path, n)
    folders = tmp_path / "scans", tmp_path / "logits"
    model, out = tmp_path / "mine.safetensors", tmp_path / "out"
    code, text = run(capsys, monkeypatch, "fit-refiner", *folders, "--labels", tmp_path / "masks", "-o", model)
    assert code == 0, text
    assert "6 volumes; ± is one standard error" in text
    assert "independent voxels" in text
    assert not re.search("pixel|image|area|perimeter", text)
    words = ("refine", *folders, "-o", out, "--model", model, "--decide", "accuracy", "--abstain", "1e-5")
    code, text = run(capsys, monkeypatch, *words)
    assert code == 0, text
    assert "largest labels in mm³ (90% interval)" in text
    assert re.search(r"case3 .* done +0: \d+ \(\d+ to \d+\), 1: \d+ \(\d+ to \d+\)\n", text)
    assert "of the voxels labelled" in text
    assert not re.search("pixel|image", text)
    labels = np.asarray(nibabel.load(out / "case3.labels.nii.gz").dataobj)
    known = labels != 255  # the others are left out
    assert 0.2 < known.mean() < 1
    truth = np.asarray(nibabel.load(tmp_path / "masks/case3.nii.gz").dataobj)
    np.testing.assert_array_equal(labels[known], truth[known])
    code, text = run(capsys, monkeypatch, "refine", *folders, "-o", tmp_path / "other", "--tiff")
    assert (code, "expected none for NIfTI files" in text) == (2, True)
    code, text = run(capsys, monkeypatch, "refine", *folders, "-o", tmp_path / "other", "--layout", "khw")
    assert (code, "expected auto for NIfTI files" in text) == (2, True)
    (tmp_path / "masks/case5.nii.gz").write_bytes(b"damaged")
    fit = ("fit-refiner", *folders, "--labels", tmp_path / "masks", "-o", model, "--layout", "khw")
    code, text = run(capsys, monkeypatch, *fit)
    assert (code, "expected auto for NIfTI files" in text) == (2, True)  # before any file is read
    (tmp_path / "masks/case5.nii.gz").unlink()
    code, text = run(capsys, monkeypatch, "fit-refiner", *folders, "--labels", tmp_path / "masks", "-o", model)
    assert (code, "expected case5.nii or case5.nii.gz there" in text) == (2, True)
