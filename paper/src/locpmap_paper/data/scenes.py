"""Stanford Background: photographs with labels, read from the archive without unpacking it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError
from locpmap_paper.data.archive import members
from locpmap_paper.data.cache import PathLike
from locpmap_paper.data.registry import SCENES as PATTERNS
from locpmap_paper.data.registry import known_dataset
from locpmap_paper.data.verify import read

CLASSES = ("sky", "tree", "road", "grass", "water", "building", "mountain", "object")
VOID = -1
# Photographs that are there twice, under labels of their own: the first three pairs to the byte, the others nearly so.
TWINS = (
    *(("6000068", "6000318"), ("6000117", "6000324"), ("6000257", "6000348")),
    *(("1000288", "9000288"), ("1000875", "9000875"), ("1001184", "9001184")),
)

Scene = tuple[str, npt.NDArray[np.uint8], npt.NDArray[np.int8]]


class Scenes(Sequence[Scene]):
    """(name, image (H, W, 3) uint8, labels (H, W) int8) in the order of names; images are decoded when asked for.

    Args:
        photographs: name to the bytes of a JPEG file.
        labels: the same names to label maps.
        files: (name, sha256, bytes) of the files read.
    """

    def __init__(
        self,
        photographs: dict[str, bytes],
        labels: dict[str, npt.NDArray[np.int8]],
        files: tuple[tuple[str, str, int], ...] = (),
    ) -> None:
        self.names = sorted(photographs)
        self.files = files
        self._photographs, self._labels = photographs, labels

    @property
    def labels(self) -> list[npt.NDArray[np.int8]]:
        """The label maps, in the order of names."""
        return [self._labels[name] for name in self.names]

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> Scene: ...
    @overload
    def __getitem__(self, index: slice) -> list[Scene]: ...
    def __getitem__(self, index: int | slice) -> Scene | list[Scene]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        name = self.names[index]
        labels = self._labels[name]
        return name, _decode(self._photographs[name], name, labels.shape), labels


def thumbnails(scenes: Sequence[Scene], shrink: int, files: tuple[tuple[str, str, int], ...] = ()) -> Scenes:
    """The same scenes, so many times smaller."""
    from PIL import Image

    photographs, maps = {}, {}
    for name, image, labels in scenes:
        small = np.ascontiguousarray(labels[::shrink, ::shrink])
        stream = io.BytesIO()
        Image.fromarray(image).resize(small.shape[::-1]).save(stream, "JPEG")
        photographs[name], maps[name] = stream.getvalue(), small
    return Scenes(photographs, maps, files)


def scenes(folder: PathLike | None = None) -> Scenes:
    """The 715 scenes: 8 classes (``CLASSES``), void pixels are -1.

    Holds 70 MB and takes a few seconds, for the whole archive is read once.  Nothing is downloaded; see
    :func:`locpmap_paper.data.fetch`.

    Args:
        folder: the cache, :func:`locpmap_paper.data.folder` by default.
    """
    name = "iccv09Data.tar.gz"
    content, record = read(known_dataset("scenes"), name, folder)
    return parse_scenes(content, name, (record,))


def parse_scenes(content: bytes, name: str, files: tuple[tuple[str, str, int], ...] = ()) -> Scenes:
    """The scenes in the bytes of an archive of the published layout."""
    photographs: dict[str, bytes] = {}
    labels: dict[str, npt.NDArray[np.int8]] = {}
    for member, data in members(content, name, PATTERNS):
        stem = member.rpartition("/")[2].partition(".")[0]
        if member.endswith(".jpg"):
            photographs[stem] = data
        else:
            labels[stem] = parse_regions(data, f"{name}: {member}")
    if not photographs or photographs.keys() != labels.keys():
        odd = sorted(photographs.keys() ^ labels.keys())
        came = f"only an image or only labels of {odd[0]!r}" if odd else "no scenes"
        raise InputError(f"{name} holds {came}, expected pairs of {' and '.join(PATTERNS)}")
    return Scenes(photographs, labels, files)


def parse_regions(text: bytes, name: str) -> npt.NDArray[np.int8]:
    """(H, W) from lines of numbers from -1 to 7 with blanks between them."""
    coded = text.replace(b"8", b"?").replace(b"-1", b"8")  # one symbol per number
    symbols = np.frombuffer(coded, np.uint8)
    number = symbols >= ord("0")
    widths = np.bincount(np.cumsum(symbols == ord("\n"))[number])
    widths = widths[widths > 0]  # of lines that are not blank
    strange = coded.translate(None, b"012345678 \t\r\n")
    if strange or (number[1:] & number[:-1]).any() or len(set(widths.tolist())) != 1:
        raise InputError(f"{name} is no map of labels, expected lines of equally many numbers from -1 to 7")
    values = (symbols[number] - ord("0")).astype(np.int8).reshape(len(widths), -1)
    return np.where(values == len(CLASSES), np.int8(VOID), values)


def _decode(photograph: bytes, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(photograph), formats=("JPEG",)) as image:
            if (image.height, image.width) != shape:  # before any room is made for it
                came = f"{image.height} × {image.width}"
                raise InputError(f"scene {name} has {came} pixels, expected {shape[0]} × {shape[1]}, as it has labels")
            return np.asarray(image.convert("RGB"))
    except InputError:
        raise
    except Exception as error:  # a damaged file makes Pillow raise nearly anything
        raise InputError(f"the image of scene {name} cannot be read ({error}), expected a JPEG file") from None
