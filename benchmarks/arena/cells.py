"""The cells of the arena: a data set, a network that was trained on it, and a stride of its logits."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.networks_data import Part, Split, load
from benchmarks.networks_models import open_network, predict
from benchmarks.volume_network import Volume, read_volumes

Array = npt.NDArray[Any]
PHOTOGRAPHS, MICROSCOPES, SMALL = ("stanford", "msrc", "nuclei"), ("vessels", "membranes"), ("silhouettes", "digits")
HIPPOCAMPUS, FOLD = "hippocampus", "fold-0"  # scans, and the division of benchmarks.volume_network that is used
LIMITS = {"held_out": 100, "test": 60}  # images of a cell
MANY = 200  # test images of data sets with small images
SHIFTED = "shifted"  # a part: fitted to held-out images of one kind, scored on test images of all other kinds
N_SHIFTED = 120  # test images, of all kinds
KINDS: dict[str, Callable[[str, Array], bool]] = {  # whether an image, given with its name, is of the first kind
    "stanford": lambda name, _: name.startswith("6"),  # images of one source have numbers with the same first digit
    "msrc": lambda name, _: int(name.split("_")[0]) <= 10,  # the first 10 of 20 kinds of scenes
    "nuclei": lambda _, image: image.shape[:2] == (256, 256),  # images of one size are of the same experiments
}


class Cell(NamedTuple):
    """One data set, network and stride."""

    dataset: str
    network: str
    stride: int

    def __str__(self) -> str:
        return f"{self.dataset}-{self.network}-{self.stride}"


class Seen(NamedTuple):
    """What methods read of an image or volume, and its true labels."""

    image: Array  # (H, W, C), (H, W) or (D, H, W)
    logits: Array  # (h, w, K) or (d, h, w, K)
    labels: Array  # (H, W) or (D, H, W)

    @property
    def layout(self) -> str:
        """Return the order of the axes of the logits."""
        return "hwk" if self.labels.ndim == 2 else "dhwk"


OF_IMAGES = (
    *(Cell(name, *rest) for name in PHOTOGRAPHS for rest in (("pyramid", 1), ("pyramid", 8), ("unet", 1))),
    *(Cell(name, "linear", 16) for name in PHOTOGRAPHS),
    *(Cell(name, network, 1) for name in MICROSCOPES for network in ("pyramid", "unet")),
    *(Cell(name, network, 1) for name in SMALL for network in ("unet", "fcn")),
)
OF_VOLUMES = (Cell(HIPPOCAMPUS, "unet", 1), Cell(HIPPOCAMPUS, "fcn", 2))
CELLS = (*OF_IMAGES, *OF_VOLUMES)


@cache
def split_of(dataset: str, data: Path) -> Split:
    """Load a data set once per process."""
    return load(dataset, data)


def images_of(
    cell: Cell,
    part: str,
    data: Path,
    networks: Path,
    work: Path,
    limit: int | None = None,
    wanted: Callable[[str, Array], bool] = lambda name, image: True,
) -> Iterator[Seen]:
    """Yield the wanted images of a part of the split with the network's logits at the cell's stride.

    Coarse logits are those of the linear head, or means of sharp logits over cells of pixels. The network is read from
    ``networks / "dataset-network" / "member-0.safetensors"``. Its logits are kept in ``work`` in half precision.
    Volumes and their logits are read from ``networks / "dataset-network" / "fold-0"``.
    """
    if cell in OF_VOLUMES:
        for one in _volumes(networks / f"{cell.dataset}-{cell.network}" / FOLD / f"{part}.npz")[:limit]:
            scan, logits = (np.asarray(each, np.float32) for each in (one.scan, one.logits))
            yield Seen(scan, logits, one.labels.astype(np.int64))
        return
    many = part == "test" and cell.dataset in SMALL
    chosen: Part = getattr(split_of(cell.dataset, data), part).some(limit or (MANY if many else LIMITS[part]))
    name = f"{cell.dataset}-{cell.network}"
    folder = work / "logits" / name / part
    folder.mkdir(parents=True, exist_ok=True)
    for image_name, image, labels in zip(*vars(chosen).values(), strict=True):
        if not wanted(image_name, image):
            continue
        path = folder / f"{image_name}.npy"
        if not path.exists():
            found = predict(_network(networks / name / "member-0.safetensors"), image).astype(np.float16)
            with NamedTemporaryFile(dir=folder, delete=False) as file:  # other processes may write the same logits
                np.save(file, found)
            Path(file.name).rename(path)
        logits = np.load(path).astype(np.float32)
        if cell.stride > 1 and cell.network != "linear":
            logits = coarse(logits, cell.stride)
        yield Seen(image, logits, labels)


def coarse(logits: Array, stride: int) -> Array:
    """Return logits (h, w, K) as of a network without an upsampling head: means over cells of pixels."""
    size = logits.shape[:2]
    n_rows, n_columns = (max(1, round(n / stride)) for n in size)
    rows, columns = (np.arange(k) * n // k for k, n in zip((n_rows, n_columns), size, strict=True))
    sums = np.add.reduceat(np.add.reduceat(logits, rows, axis=0, dtype=np.float64), columns, axis=1)
    heights, widths = (np.diff([*starts, n]) for starts, n in zip((rows, columns), size, strict=True))
    found: Array = (sums / (heights[:, None] * widths)[..., None]).astype(np.float32)
    return found


@cache
def _network(path: Path) -> Any:
    return open_network(path)


@cache
def _volumes(path: Path) -> list[Volume]:
    return read_volumes(path)
