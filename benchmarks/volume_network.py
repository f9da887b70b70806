"""Train small 3-D networks on the hippocampus volumes: `python -m benchmarks.volume_network convert`, then `train`.

``convert`` reads the archive of NIfTI files, with nibabel, and writes one .npz file. ``train`` needs no nibabel. It
divides the volumes into four folds, and trains one network per fold on the volumes of two others: the fold itself is
the test part, and the next fold is held out. For every fold it writes the network and the logits of these two parts,
with scans and labels, to a folder, which `benchmarks.volume_intervals` reads. A network that is already there is not
trained again.
"""

import gzip
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
import typer
from torch import Tensor

from benchmarks.networks_data import SEED, VOID, members
from benchmarks.networks_models import FILE_KIND
from benchmarks.volume_models import KINDS, CoarseFCN
from locpmap.errors import unknown
from locpmap.formats import read_model, write_model
from locpmap.learning.proper_scores import jaccard_distance
from locpmap.nn import choose_device
from locpmap.refining import resize
from locpmap_paper.networks.weights import load_weights, to_arrays

Array = npt.NDArray[Any]
PARTS = ("train", "held_out", "test")
N_FOLDS = 4
N_LABELS = 3  # background, anterior and posterior hippocampus
CONTRAST = 5.0  # standard deviations at which intensities are clipped
LEARNING_RATE, WEIGHT_DECAY = 2e-3, 0.02
TURN, SCALE, SHIFT = 0.2, 0.15, 0.1  # of the augmentation: radians, fraction, fraction of the volume

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Volume:
    """One scan (D, H, W) with mean 0 and standard deviation 1, its labels, its voxels in mm, and its logits."""

    name: str
    scan: Array  # float16
    labels: Array  # uint8
    spacing: tuple[float, float, float]
    logits: Array | None = None  # (D, H, W, K) in half precision; of a coarse network (d, h, w, K)


def read_volumes(path: Path) -> list[Volume]:
    """Read the volumes of a file that :func:`write_volumes` wrote, sorted by name."""
    with np.load(path) as file:
        volumes = []
        for name in sorted(key.removeprefix("scan ") for key in file.files if key.startswith("scan ")):
            x, y, z = file[f"spacing {name}"].tolist()
            logits = file[f"logits {name}"] if f"logits {name}" in file.files else None
            volumes.append(Volume(name, file[f"scan {name}"], file[f"labels {name}"], (x, y, z), logits))
        return volumes


def write_volumes(path: Path, volumes: list[Volume]) -> None:
    """Write volumes to one compressed file."""
    arrays: dict[str, Any] = {}
    for one in volumes:
        arrays |= {f"scan {one.name}": one.scan, f"labels {one.name}": one.labels}
        arrays |= {f"spacing {one.name}": np.array(one.spacing)}
        arrays |= {} if one.logits is None else {f"logits {one.name}": one.logits}
    np.savez_compressed(path, **arrays)


def split(volumes: Sequence[Volume], fold: int) -> dict[str, list[Volume]]:
    """Return the parts of a fold: every volume is in the test part of one fold, and held out in another."""
    order = np.random.default_rng(SEED).permutation(len(volumes))
    folds = np.array_split(order, N_FOLDS)
    test, held_out, *train = folds[fold:] + folds[:fold]
    return {
        name: [volumes[k] for k in chosen]
        for name, chosen in zip(PARTS, (np.concatenate(train), held_out, test), strict=True)
    }


class Batches:
    """Random batches of padded volumes: turned, scaled, shifted, and with another contrast in every step."""

    def __init__(self, volumes: Sequence[Volume], batch_size: int, device: torch.device) -> None:
        shape = np.max([one.labels.shape for one in volumes], axis=0)
        scans: Array = np.zeros((len(volumes), 1, *shape), np.float32)
        labels: Array = np.full(scans.shape, VOID, np.float32)
        for n, one in enumerate(volumes):
            depth, height, width = one.labels.shape
            scans[n, 0, :depth, :height, :width] = one.scan
            labels[n, 0, :depth, :height, :width] = one.labels
        self.scans, self.labels = (torch.from_numpy(each).to(device) for each in (scans, labels))
        self.batch_size = batch_size

    def __call__(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        n, options = self.batch_size, {"generator": generator, "device": self.scans.device}
        chosen = torch.randint(len(self.scans), (n,), **options)
        skew = TURN * (2 * torch.rand(n, 3, 3, **options) - 1)
        matrix = torch.linalg.matrix_exp(skew - skew.mT)  # a rotation in coordinates from -1 to 1
        matrix = matrix * (1 + SCALE * (2 * torch.rand(n, 1, 3, **options) - 1))
        shift = SHIFT * (2 * torch.rand(n, 3, 1, **options) - 1)
        grid = F.affine_grid(torch.cat([matrix, shift], 2), self.scans[chosen].shape, align_corners=False)
        scans = F.grid_sample(self.scans[chosen], grid, align_corners=False)
        labels = F.grid_sample(self.labels[chosen] - VOID, grid, mode="nearest", align_corners=False) + VOID
        contrast, offset = (1 + 0.3 * torch.randn(2, n, 1, 1, 1, 1, **options)).clamp(0.3, 2)
        noise = 0.1 * torch.randn(scans.shape, **options)
        return contrast * scans + (offset - 1) + noise, labels[:, 0].round().long()


def train_network(network: torch.nn.Module, batches: Batches, n_steps: int, seed: int) -> float:
    """Minimise the cross-entropy in place, on the device of the weights; return the seconds."""
    place, begin = next(network.parameters()).device, time.perf_counter()
    generator = torch.Generator(place).manual_seed(seed)
    optimiser = torch.optim.AdamW(network.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, n_steps, pct_start=0.1)
    for _ in range(n_steps):
        scans, labels = batches(generator)
        with torch.autocast(place.type, torch.bfloat16, enabled=place.type == "cuda"):
            logits = network(scans)
        loss = F.cross_entropy(logits.float(), labels, ignore_index=VOID)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        rates.step()
    network.train(False)
    return time.perf_counter() - begin


@torch.no_grad()
def predict(network: torch.nn.Module, volume: Volume) -> Volume:
    """Return the volume with its logits."""
    scan = torch.tensor(volume.scan, dtype=torch.float32, device=next(network.parameters()).device)
    scores = network.coarse if isinstance(network, CoarseFCN) else network
    logits = scores(scan[None, None])[0].float().movedim(0, -1)
    return replace(volume, logits=logits.cpu().numpy().astype(np.float16))


def measures(volumes: Sequence[Volume]) -> dict[str, float]:
    """Return the mean Jaccard index over labels and volumes, and the negative log-likelihood of a voxel."""
    overlap, loss = [], []
    for one in volumes:
        full = resize(np.asarray(one.logits, np.float32)[None], *one.labels.shape)
        logits = torch.from_numpy(full).flatten(0, 3)
        truth = torch.from_numpy(one.labels.ravel().astype(np.int64))
        overlap.append(1 - jaccard_distance(logits.argmax(-1).numpy(), truth.numpy(), N_LABELS))
        loss.append(float(F.cross_entropy(logits, truth)))
    return {"mean_iou": round(float(np.mean(overlap)), 4), "nll": round(float(np.mean(loss)), 5)}


@app.command()
def convert(
    archive: Annotated[Path, typer.Option(help="hippocampus.tar with folders imagesTr and labelsTr.")],
    out: Annotated[Path, typer.Option(help="The .npz file to write.")],
) -> None:
    """Write the scans and labels of an archive of NIfTI files as one .npz file."""
    import nibabel

    found: dict[tuple[str, str], Any] = {}
    for path, content in members(archive, (".nii.gz",)):
        image = nibabel.Nifti1Image.from_bytes(gzip.decompress(content))
        found[Path(path).parent.name, Path(path).name.removesuffix(".nii.gz")] = image
    volumes = []
    for name in sorted(name for folder, name in found if folder == "imagesTr"):
        scan, labels = found["imagesTr", name], np.asarray(found["labelsTr", name].dataobj)
        values = scan.get_fdata()
        values = np.clip((values - values.mean()) / values.std(), -CONTRAST, CONTRAST)
        x, y, z = map(float, scan.header.get_zooms()[:3])
        volumes.append(Volume(name, values.astype(np.float16), labels.astype(np.uint8), (x, y, z)))
    write_volumes(out, volumes)
    typer.echo(f"{len(volumes)} volumes, {out.stat().st_size / 2**20:.1f} MiB in {out}")


@app.command()
def train(
    data: Annotated[Path, typer.Option(help="The .npz file of convert.")],
    out: Annotated[Path, typer.Option(help="Folder of fold-0 to fold-3.")],
    fold: Annotated[list[int] | None, typer.Option(help="Only these folds.")] = None,
    kind: Annotated[str, typer.Option(help="Architecture: unet or fcn.")] = "unet",
    steps: int = 3000,
    batch: int = 8,
    seed: int = 0,
    device: str = "auto",
) -> None:
    """Train a network per fold, and write logits of its held-out and test volumes."""
    if kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    volumes, place = read_volumes(data), choose_device(device)
    for number in range(N_FOLDS) if fold is None else fold:
        parts, folder = split(volumes, number), out / f"fold-{number}"
        path = folder / "network.safetensors"
        folder.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(seed)
        network = KINDS[kind](N_LABELS).to(place)
        if not path.exists():
            seconds = train_network(network, Batches(parts["train"], batch, place), steps, seed)
            details = {
                "network": kind,
                "fold": number,
                "steps": steps,
                "batch": batch,
                "seed": seed,
                "seconds": round(seconds, 1),
            }
            write_model(path, to_arrays(network, half=True), {"kind": FILE_KIND, "details": details})
        arrays, header = read_model(path)
        load_weights(network, {name: torch.from_numpy(array.astype(np.float32)) for name, array in arrays.items()})
        network.to(place).train(False)
        log: dict[str, Any] = dict(header["details"])
        for name in PARTS:
            predicted = [predict(network, one) for one in parts[name]]
            log[name] = measures(predicted)
            if name != "train":
                write_volumes(folder / f"{name}.npz", predicted)
        (folder / "log.json").write_text(json.dumps(log) + "\n")
        typer.echo(json.dumps(log))


if __name__ == "__main__":
    app()
