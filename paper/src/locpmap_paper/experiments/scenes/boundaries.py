"""Boundary maps by HED, cached per scene, and edge features from boundaries and colours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from locpmap.errors import InputError
from locpmap.formats import read_array, write_array
from locpmap.graphs import Steps, ends_of
from locpmap.nn import choose_device
from locpmap_paper.data.cache import PathLike
from locpmap_paper.data.scenes import Scenes
from locpmap_paper.experiments.scenes.feature_cache import hash_of
from locpmap_paper.experiments.scenes.split import named
from locpmap_paper.networks.hed import HED

Map = npt.NDArray[np.float32]
Progress = Callable[[int, int], None]

LEVELS = 255  # quantisation of maps on disk
BATCH = 16  # images per batch on a GPU


def boundary_maps(
    scenes: Scenes,
    names: Sequence[str],
    folder: PathLike,
    *,
    published: bool = True,
    weights_folder: PathLike | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> list[Map]:
    """Return boundary probabilities (H, W) of scenes, quantised to 255 steps.

    Each scene takes two seconds on two cores and milliseconds on a GPU.  Maps are cached by the hash of the photograph.

    Args:
        scenes: All scenes.
        names: Names of the scenes to process.
        folder: Cache folder of the maps, created if needed.
        published: Whether HED uses its published weights or, for a smoke run, random ones.
        weights_folder: Cache folder of the published weights; by default :func:`locpmap_paper.data.folder`.
        device: "auto", "cpu" or "cuda".
        progress: Function called with (scenes done, number of scenes) over the uncached scenes.
    """
    images = [image for _, image, _ in named(scenes, names)]
    place = Path(folder) / ("published" if published else "random")
    paths = [place / f"{hash_of(image)[:24]}.npy" for image in images]
    maps = [_read(path) for path in paths]
    missing = [number for number, edges in enumerate(maps) if edges is None]
    if missing:
        place.mkdir(parents=True, exist_ok=True)
        where = choose_device(device)
        network = (HED.published(folder=weights_folder) if published else _random()).to(where)
        for lo in range(0, len(missing), BATCH):
            numbers = missing[lo : lo + BATCH]
            n_together = BATCH if where.type == "cuda" else 1
            for number, edges in zip(
                numbers, network.edge_maps([images[k] for k in numbers], batch_size=n_together), strict=True
            ):
                write_array(paths[number], np.round(LEVELS * edges).astype(np.uint8))
                maps[number] = _read(paths[number])
            if progress is not None:
                progress(lo + len(numbers), len(missing))
    return [edges for edges in maps if edges is not None]


def _read(path: Path) -> Map | None:
    """Return a cached map, or None if the file is missing or unreadable."""
    try:
        return read_array(path).astype(np.float32) / np.float32(LEVELS) if path.exists() else None
    except InputError:
        return None


def _random() -> HED:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return HED().train(False)


def continuity(edges: Map, step: tuple[int, int]) -> Map:
    """Return 1 minus the strongest boundary (H, W) on the line from each site to its neighbour, both included.

    >>> continuity(np.array([[0.0, 0.0, 0.75, 0.0]], np.float32), (0, 1))
    array([[1.  , 0.25, 0.25]], dtype=float32)
    """
    height, width = edges.shape
    rows, columns = (np.arange(n)[part] for n, part in zip(edges.shape, ends_of(step, height, width)[0], strict=True))
    length = max(map(abs, step))
    strongest = np.zeros((len(rows), len(columns)), np.float32)
    for k in range(length + 1):
        down, right = (round(n * k / length) for n in step)
        strongest = np.maximum(strongest, edges[np.ix_(rows + down, columns + right)])
    return 1 - strongest


def colour_similarity(images: Tensor, step: tuple[int, int]) -> Tensor:
    """Return ``exp(-d² / 2⟨d²⟩)`` for the colour distance d of each site and its neighbour, (N, h, w).

    Args:
        images: Images (N, 3, H, W) from 0 to 255.
        step: Rows down and columns right to the neighbour.
    """
    (rows, columns), (down, right) = ends_of(step, *images.shape[2:])
    squares = (images[:, :, down, right] - images[:, :, rows, columns]).square().sum(1)
    typical = squares.mean((1, 2), keepdim=True).clamp(min=1)
    return torch.exp(-squares / (2 * typical))


def edge_features(
    image: npt.NDArray[np.uint8], edges: Map | None, steps: Steps, kinds: Sequence[str]
) -> tuple[Map, ...]:
    """Return edge features (.., F) for each step: 1, then "boundary" and "colour" if requested."""
    found, pixels = [], torch.tensor(image, dtype=torch.float32).movedim(-1, 0)[None]
    for step in steps:
        one = np.ones(image[ends_of(step, *image.shape[:2])[0]].shape[:2], np.float32)
        layers = [one]
        if "boundary" in kinds:
            assert edges is not None
            layers.append(continuity(edges, step))
        if "colour" in kinds:
            layers.append(colour_similarity(pixels, step)[0].numpy())
        found.append(np.stack(layers, axis=-1))
    return tuple(found)
