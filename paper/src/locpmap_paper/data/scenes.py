"""Stanford Background: photographs and labels, read from the archive without extracting it."""

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
# Photographs that occur twice with different labels: the first three pairs are identical, the others nearly so.
TWINS = (
    *(("6000068", "6000318"), ("6000117", "6000324"), ("6000257", "6000348")),
    *(("1000288", "9000288"), ("1000875", "9000875"), ("1001184", "9001184")),
)

Scene = tuple[str, npt.NDArray[np.uint8], npt.NDArray[np.int8]]


class Scenes(Sequence[Scene]):
    """A sequence of scenes: (name, image (H, W, 3) uint8, labels (H, W) int8), sorted by name.

    Images are decoded on access.

    Args:
        photographs (dict): JPEG bytes by name.
        labels (dict): Label maps by name.
        files (tuple): (name, sha256, bytes) of the files that were read.
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
        """The label maps in the order of names."""
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
    """Return the scenes downsampled by the factor `shrink`."""
    from PIL import Image

    photographs, maps = {}, {}
    for name, image, labels in scenes:
        small = np.ascontiguousarray(labels[::shrink, ::shrink])
        stream = io.BytesIO()
        Image.fromarray(image).resize(small.shape[::-1]).save(stream, "JPEG")
        photographs[name], maps[name] = stream.getvalue(), small
    return Scenes(photographs, maps, files)


def scenes(folder: PathLike | None = None) -> Scenes:
    """Load the 715 scenes of Stanford Background with 8 classes (``CLASSES``) and -1 for void pixels.

    Loading takes 70 MB and a few seconds, because the whole archive is read.  Nothing is downloaded; see
    :func:`locpmap_paper.data.fetch`.

    Args:
        folder (str or Path, optional): Cache folder; by default :func:`locpmap_paper.data.folder`.

    Returns:
        Scenes: The scenes, sorted by name.

    Raises:
        InputError: If the archive is missing or altered.
    """
    name = "iccv09Data.tar.gz"
    content, record = read(known_dataset("scenes"), name, folder)
    return parse_scenes(content, name, (record,))


def parse_scenes(content: bytes, name: str, files: tuple[tuple[str, str, int], ...] = ()) -> Scenes:
    """Parse the scenes from the bytes of an archive with the published layout."""
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
    """Parse lines of numbers from -1 to 7, separated by blanks, into a label map (H, W)."""
    coded = text.replace(b"8", b"?").replace(b"-1", b"8")  # one character per number
    symbols = np.frombuffer(coded, np.uint8)
    number = symbols >= ord("0")
    widths = np.bincount(np.cumsum(symbols == ord("\n"))[number])
    widths = widths[widths > 0]  # of non-blank lines
    strange = coded.translate(None, b"012345678 \t\r\n")
    if strange or (number[1:] & number[:-1]).any() or len(set(widths.tolist())) != 1:
        raise InputError(f"{name} is not a label map, expected lines with the same number of values from -1 to 7")
    values = (symbols[number] - ord("0")).astype(np.int8).reshape(len(widths), -1)
    return np.where(values == len(CLASSES), np.int8(VOID), values)


def _decode(photograph: bytes, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(photograph), formats=("JPEG",)) as image:
            if (image.height, image.width) != shape:  # checked before the pixels are decoded
                came = f"{image.height} × {image.width}"
                raise InputError(f"scene {name} has {came} pixels, expected {shape[0]} × {shape[1]} as its labels")
            return np.asarray(image.convert("RGB"))
    except InputError:
        raise
    except Exception as error:  # Pillow raises many types of errors for damaged files
        raise InputError(f"the image of scene {name} cannot be read ({error}), expected a JPEG file") from None
