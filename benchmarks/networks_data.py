"""Eight data sets for segmentation with fixed splits into training, held-out and test images.

| name        | labels | train | held-out | test | split                                              |
|-------------|--------|-------|----------|------|----------------------------------------------------|
| stanford    | 8      | 471   | 118      | 114  | `locpmap reproduce stanford`, seed 0               |
| msrc        | 21     | 275   | 81       | 235  | 45 / 15 / 40 % of every kind of scene              |
| nuclei      | 2      | 75    | 33       | 58   | 45 / 20 / 35 % of the grey and the colour images   |
| silhouettes | 2      | 4,100 | 300      | 500  | the author's; held-out images are from its "val"   |
| digits      | 2      | 5,000 | 300      | 500  | MNIST's; held-out images are from its test set     |
| vessels     | 2      | 12    | 6        | 10   | CHASE_DB1, by child: both eyes are in one part     |
| membranes   | 2      | 14    | 6        | 8    | ISBI 2012, blocks of sections, one left out between |
| boundaries  | 2      | 232   | 107      | 192  | BSDS500, an image per annotator; 45 / 20 / 35 images |

Networks are trained on the first part, parameters of a model are chosen on the second, and the third is for results.
"""

import csv
import io
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError, unknown

VOID = -1
SEED = 0  # of every permutation
LARGEST = 512  # pixels in a side of an image of nuclei or vessels
NOISE = 0.70  # standard deviation, added to silhouettes and digits
WIDEST = 5  # pixels whose regions decide whether a pixel is near a boundary
N_HELD_OUT, N_TEST = 300, 500  # digits and silhouettes

# MSRC v2: numbers in the files, without 0 (void), 5 (horse) and 8 (mountain).
MSRC_LABELS = (1, 2, 3, 4, 6, 7, *range(9, 24))
MSRC_TWICE = ("1_26_s", "9_10_s", "1_27_s", "9_15_s")  # two photographs that occur twice

CHASE = "chase_db1/chase_db1.tar"

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """One part of a split.

    Attributes:
        names: Names of the images.
        images: Images (H, W, 3) in uint8, or silhouettes with noise (H, W) in float32.
        labels: Labels (H, W) in int64, -1 at void pixels.
    """

    names: tuple[str, ...]
    images: tuple[npt.NDArray[Any], ...]
    labels: tuple[Labels, ...]

    def some(self, limit: int | None) -> "Part":
        """Return the part with at most ``limit`` images, at equal distances: images of one kind follow each other."""
        n = len(self.names)
        kept = range(n) if limit is None or limit >= n else [k * n // limit for k in range(limit)]
        names, labels = tuple(self.names[k] for k in kept), tuple(self.labels[k] for k in kept)
        return Part(names, tuple(self.images[k] for k in kept), labels)


@dataclass(frozen=True)
class Split:
    """A data set: its number of labels, and its three parts."""

    n_labels: int
    train: Part
    held_out: Part
    test: Part


def load(name: str, data: Path) -> Split:
    """Return a data set by its name; ``data`` is the folder of all data sets."""
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    return DATASETS[name](data)


def stratified(names: Sequence[str], kinds: Sequence[str], shares: Sequence[float]) -> list[list[str]]:
    """Split a seeded permutation of the names of every kind by the shares; the last part gets the rest.

    >>> stratified(["a", "b", "c", "d"], ["x", "x", "y", "y"], (0.5, 0.5))
    [['a', 'c'], ['b', 'd']]
    """
    rng = np.random.default_rng(SEED)
    parts: list[list[str]] = [[] for _ in shares]
    for kind in sorted(set(kinds)):
        members = [name for name, own in zip(names, kinds, strict=True) if own == kind]
        order = [members[number] for number in rng.permutation(len(members))]
        ends = np.rint(np.cumsum(shares[:-1]) * len(order)).astype(int).tolist()
        for part, begin, end in zip(parts, [0, *ends], [*ends, len(order)], strict=True):
            part += order[begin:end]
    return parts


def _stanford(data: Path) -> Split:
    from locpmap_paper.data.scenes import CLASSES, TWINS
    from locpmap_paper.experiments.scenes.experiment import STANFORD

    loaded = STANFORD.load(data)
    case = STANFORD.case(loaded, "pretrained", SEED)
    twice = {name for pair in TWINS for name in pair}

    def part(numbers: npt.NDArray[Any]) -> Part:
        scenes = [scene for scene in (loaded.scenes[int(number)] for number in numbers) if scene[0] not in twice]
        names, images, labels = zip(*scenes, strict=True)
        return Part(names, images, tuple(each.astype(np.int64) for each in labels))

    return Split(len(CLASSES), *(part(each.inputs) for each in (case.fit, case.held_out, case.test)))


def _msrc(data: Path) -> Split:
    files = dict(members(data / "msrc_v2/msrc_v2.tar", (".jpg", ".png")))
    code = np.full(256, VOID, np.int64)
    code[list(MSRC_LABELS)] = np.arange(len(MSRC_LABELS))
    names = sorted(Path(file).stem for file in files if file.endswith(".jpg"))
    once = [name for name in names if name not in MSRC_TWICE]
    parts = stratified(once, [name.partition("_")[0] for name in once], (0.45, 0.15, 0.40))
    parts[0] += MSRC_TWICE

    def part(chosen: Sequence[str]) -> Part:
        images = tuple(_rgb(files[f"MSRC_v2/images/{name}.jpg"]) for name in chosen)
        return Part(tuple(chosen), images, tuple(code[_decode(files[f"MSRC_v2/labels/{name}.png"])] for name in chosen))

    return Split(len(MSRC_LABELS), *map(part, parts))


def _nuclei(data: Path) -> Split:
    files = dict(members(data / "dsb2018_nuclei/dsb2018.tar", (".png", ".csv")))
    index = list(csv.DictReader(io.StringIO(files["dsb2018/index.csv"].decode())))
    parts = stratified([row["name"] for row in index], [row["kind"] for row in index], (0.45, 0.20, 0.35))

    def part(names: Sequence[str]) -> Part:
        images = tuple(_centre(_rgb(files[f"dsb2018/images/{name}.png"])) for name in names)
        instances = (_centre(_decode(files[f"dsb2018/labels/{name}.png"])) for name in names)
        return Part(tuple(names), images, tuple((each > 0).astype(np.int64) for each in instances))

    return Split(2, *map(part, parts))


def _silhouettes(data: Path) -> Split:
    from scipy.io import loadmat

    from locpmap_paper.data.registry import known_dataset
    from locpmap_paper.data.silhouettes import SIDE
    from locpmap_paper.data.verify import read

    content, _ = read(known_dataset("silhouettes"), "caltech101_silhouettes_28_split1.mat", data)
    rows = loadmat(io.BytesIO(content))
    seen: set[bytes] = set()  # some silhouettes occur in several parts: keep the first

    def part(number: int, name: str, limit: int | None) -> Part:
        rng = np.random.default_rng((SEED, number))
        objects = 1 - rows[f"{name}_data"].astype(np.int64).reshape(-1, SIDE, SIDE).transpose(0, 2, 1)
        order = [k for k in rng.permutation(len(objects)).tolist() if objects[k].tobytes() not in seen][:limit]
        seen.update(objects[k].tobytes() for k in order)
        images = (objects[order] + NOISE * rng.normal(size=(len(order), SIDE, SIDE))).astype(np.float32)
        return Part(tuple(f"{name}-{k}" for k in order), tuple(images), tuple(objects[order]))

    return Split(2, part(0, "train", None), part(1, "val", N_HELD_OUT), part(2, "test", N_TEST))


def _digits(data: Path) -> Split:
    from locpmap_paper.data.idx import mnist

    loaded = mnist(data)
    order = np.random.default_rng(SEED).permutation(len(loaded.test))  # the published test images: held-out and test

    def part(number: int, name: str, labels: npt.NDArray[Any], chosen: npt.NDArray[Any]) -> Part:
        rng = np.random.default_rng((SEED, number))
        digits = labels[chosen].astype(np.int64)
        noisy = (digits + NOISE * rng.normal(size=digits.shape)).astype(np.float32)
        return Part(tuple(f"{name}-{k}" for k in chosen.tolist()), tuple(noisy), tuple(digits))

    train = part(0, "train", loaded.train, np.arange(len(loaded.train)))
    held_out, test = order[:N_HELD_OUT], order[N_HELD_OUT : N_HELD_OUT + N_TEST]
    return Split(2, train, part(1, "test", loaded.test, held_out), part(2, "test", loaded.test, test))


def _vessels(data: Path) -> Split:
    files = dict(members(data / CHASE, (".jpg", ".png")))
    children = np.random.default_rng(SEED).permutation(np.arange(1, 15)).tolist()

    def part(chosen: Sequence[int]) -> Part:
        names = tuple(f"Image_{child:02d}{side}" for child in chosen for side in "LR")
        images = tuple(_centre(_rgb(files[f"CHASE_DB1/images/{name}.jpg"])) for name in names)
        truth = (_centre(_decode(files[f"CHASE_DB1/1stHO/{name}_1stHO.png"])) for name in names)
        return Part(names, images, tuple(each.astype(np.int64) for each in truth))

    return Split(2, part(children[:6]), part(children[6:9]), part(children[9:]))


def second_observer(data: Path, name: str) -> Labels:
    """Return the vessels that the second observer saw in an image of the data set "vessels"."""
    (content,) = (content for file, content in members(data / CHASE, (f"{name}_2ndHO.png",)))
    return _centre(_decode(content)).astype(np.int64)


def _membranes(data: Path) -> Split:
    files = dict(members(data / "isbi2012_em/isbi2012.tar", (".png",)))

    def part(sections: range) -> Part:
        images = tuple(_rgb(files[f"isbi2012/image/{section}.png"]) for section in sections)
        truth = (_decode(files[f"isbi2012/label/{section}.png"]) for section in sections)
        return Part(tuple(map(str, sections)), images, tuple((each == 0).astype(np.int64) for each in truth))

    return Split(2, part(range(14)), part(range(15, 21)), part(range(22, 30)))


def _boundaries(data: Path) -> Split:
    files = dict(members(data / "bsds500/bsds500.tar", (".jpg", ".png")))
    names = sorted(Path(file).stem for file in files if file.endswith(".jpg"))
    pairs = sorted(Path(file).stem for file in files if file.endswith(".png"))  # "image_annotator"

    def part(chosen: Sequence[str]) -> Part:
        own = [pair for pair in pairs if pair.rpartition("_")[0] in chosen]
        images = {name: _rgb(files[f"BSDS500/images/test/{name}.jpg"]) for name in chosen}
        regions = (_decode(files[f"BSDS500/groundTruth/test/{pair}.png"]) for pair in own)
        labels = tuple(near_changes(each).astype(np.int64) for each in regions)
        return Part(tuple(own), tuple(images[pair.rpartition("_")[0]] for pair in own), labels)

    return Split(2, *map(part, stratified(names, [""] * len(names), (0.45, 0.20, 0.35))))


def near_changes(regions: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return pixels at most two pixels from one of another region: boundaries four pixels wide.

    >>> near_changes(np.array([[1, 1, 1, 1, 2, 2, 2]])).astype(int)
    array([[0, 0, 1, 1, 1, 1, 0]])
    """
    from scipy.ndimage import maximum_filter, minimum_filter

    found: npt.NDArray[np.bool_] = maximum_filter(regions, WIDEST) != minimum_filter(regions, WIDEST)
    return found


def members(path: Path, suffixes: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of the files of an archive with one of the suffixes."""
    if not path.is_file():
        raise InputError(f"{path} does not exist, expected the archive of the data set")
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isreg() and member.name.endswith(suffixes):
                file = archive.extractfile(member)
                assert file is not None
                yield member.name, file.read()


def _decode(content: bytes) -> npt.NDArray[Any]:
    from PIL import Image

    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image)


def _rgb(content: bytes) -> npt.NDArray[np.uint8]:
    """Return an image (H, W, 3); a grey one is repeated."""
    pixels = _decode(content)
    return np.ascontiguousarray(np.broadcast_to(pixels[..., None], (*pixels.shape, 3)) if pixels.ndim == 2 else pixels)


def _centre(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the central part of at most 512 × 512 pixels."""
    top, left = (max(0, n - LARGEST) // 2 for n in array.shape[:2])
    return array[top : top + LARGEST, left : left + LARGEST]


DATASETS: dict[str, Callable[[Path], Split]] = {
    "stanford": _stanford,
    "msrc": _msrc,
    "nuclei": _nuclei,
    "silhouettes": _silhouettes,
    "digits": _digits,
    "vessels": _vessels,
    "membranes": _membranes,
    "boundaries": _boundaries,
}
