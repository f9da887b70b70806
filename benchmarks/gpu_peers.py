"""Other systems on the same GPU: `prepare(task, folder)` returns a function that computes labels on the device.

Only that function is timed. `prepare` copies tensors to the GPU, compiles kernels, and allocates buffers that depend on
the image size only. The models differ (dense or grid), so a row compares time and accuracy, not identical results. The
code of other systems is not part of this repository: `--peers FOLDER` is a folder with clones of
github.com/MarvinTeichmann/ConvCRF and github.com/heiwang1997/DenseCRF, in folders of these names.
"""

import ctypes
import importlib
import logging
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.tasks import Task

Run = Callable[[], tuple[Any, ...]]  # labels in the shape of task.truth, and further outputs
N_SAMPLES = 50


class Absent(Exception):
    """Raised with the reason why a system cannot run on this machine."""


def torch_lines(task: Task, compiled: bool = False) -> Run:
    """Prepare a direct LocPMAP implementation in torch: all samples simultaneously, with torch's random numbers."""
    unary = torch.tensor(task.unary).cuda().movedim(-1, 0)[:, None].contiguous()  # (L, 1, H, W)
    horizontal, vertical = (torch.tensor(part).cuda() for part in task.edge_weights())
    n_labels, _, height, width = unary.shape
    label = torch.arange(n_labels, device="cuda").reshape(-1, 1, 1, 1)
    red = (torch.arange(height, device="cuda")[:, None] + torch.arange(width, device="cuda")) % 2 == 0
    pad = torch.nn.functional.pad

    def sweep(noisy: Any, labels: Any) -> Any:
        for colour in (red, ~red):
            held = (labels == label).float()
            beside = pad(horizontal * held[..., :-1], (1, 0)) + pad(horizontal * held[..., 1:], (0, 1))
            above = pad(vertical * held[..., :-1, :], (0, 0, 1, 0)) + pad(vertical * held[..., 1:, :], (0, 0, 0, 1))
            labels = torch.where(colour, (noisy + beside + above).argmax(0), labels)
        return labels

    climb = torch.compile(sweep, dynamic=False) if compiled else sweep

    def run() -> tuple[Any, ...]:
        noise = torch.empty((n_labels, N_SAMPLES, height, width), device="cuda").exponential_()
        noisy = unary - noise.log_()
        labels, before = torch.randint(n_labels, (N_SAMPLES, height, width), device="cuda"), None
        while before is None or not torch.equal(before, labels):
            before, labels = labels, climb(noisy, labels)
        probability = (labels == label).float().mean(1)
        return probability.argmax(0), probability, probability * (1 - probability)

    return run


def conv_crf(task: Task, folder: Path | None, shrink: int) -> Run:
    """Prepare ConvCRF: 5 mean-field iterations, truncated 7×7 Gaussian kernels, 1 / `shrink` of the resolution."""
    module = _module(_clone(folder, "ConvCRF"), "convcrf.convcrf")
    conf = module.get_default_conf() | {"filter_size": 7, "blur": shrink}
    crf = module.GaussCRF(conf=conf, shape=task.truth.shape, nclasses=task.n_labels, use_gpu=True).cuda()
    unary = torch.tensor(task.unary).cuda().movedim(-1, 0)[None].contiguous()
    image = torch.tensor(task.image).cuda().movedim(-1, 0)[None].float().contiguous()

    def run() -> tuple[Any, ...]:
        with torch.no_grad():
            scores = crf(unary=unary, img=image, num_iter=5)[0]
            return scores.argmax(0), scores.softmax(0)

    return run


def dense_crf(task: Task, folder: Path | None, lattice: bool) -> Run:
    """Prepare the dense CRF in CUDA, 5 mean-field iterations; `lattice` includes building the lattices in the time."""
    library = _dense_library(_clone(folder, "DenseCRF") / "include", task.n_labels)
    energy = -torch.tensor(task.unary).cuda()
    image = torch.tensor(task.image).cuda().float()
    labels = torch.empty(task.truth.shape, dtype=torch.int16, device="cuda")
    height, width = task.truth.shape

    def new() -> Any:
        return library.densecrf_new(width, height, energy.data_ptr(), image.data_ptr())

    def decode(crf: Any) -> tuple[Any, ...]:
        library.densecrf_decode(crf, 5, labels.data_ptr(), height * width)
        return (labels,)

    def whole() -> tuple[Any, ...]:
        crf = new()
        found = decode(crf)
        library.densecrf_free(crf)
        return found

    if lattice:
        return whole
    crf = new()  # not freed before the process ends
    return lambda: decode(crf)


def _dense_library(include: Path, n_labels: int) -> Any:
    """Compile the CUDA code for this GPU and number of labels, and load it."""
    target = Path(tempfile.mkdtemp()) / "densecrf.so"
    major, minor = torch.cuda.get_device_capability()
    options = ["-O3", "-shared", "-Xcompiler", "-fPIC", f"-arch=sm_{major}{minor}", f"-DLABELS={n_labels}"]
    source = Path(__file__).with_name("gpu_densecrf.cu")
    try:
        command = ["nvcc", *options, f"-I{include}", "-o", str(target), str(source)]
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise Absent("nvcc is not installed") from error
    except subprocess.CalledProcessError as error:
        raise Absent(f"nvcc failed: {error.stderr[:300]}") from error
    library = ctypes.CDLL(str(target))
    pointer, number = ctypes.c_void_p, ctypes.c_int
    library.densecrf_new.argtypes, library.densecrf_new.restype = [number, number, pointer, pointer], pointer
    library.densecrf_decode.argtypes, library.densecrf_decode.restype = [pointer, number, pointer, number], None
    library.densecrf_free.argtypes, library.densecrf_free.restype = [pointer], None
    return library


def _clone(folder: Path | None, name: str) -> Path:
    if folder is None or not (folder / name).is_dir():
        raise Absent(f"no clone of {name} in the folder of --peers")
    return folder / name


def _module(folder: Path, name: str) -> Any:
    sys.path.insert(0, str(folder))
    logging.disable(logging.INFO)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))


# (row, prepare(task, folder of --peers), tasks)
PEERS: list[tuple[str, Callable[[Task, Path | None], Run], tuple[str, ...]]] = [
    ("torch, a few lines", lambda task, _: torch_lines(task), ("T2", "T3")),
    ("the same, torch.compile", lambda task, _: torch_lines(task, compiled=True), ("T2", "T3")),
    ("ConvCRF 7×7", lambda task, folder: conv_crf(task, folder, 1), ("T2", "T3")),
    ("ConvCRF 7×7, quarter resolution", lambda task, folder: conv_crf(task, folder, 4), ("T2", "T3")),
    ("dense CRF, CUDA", lambda task, folder: dense_crf(task, folder, lattice=True), ("T2", "T3", "T4")),
    (
        "dense CRF, CUDA, lattices ready",
        lambda task, folder: dense_crf(task, folder, lattice=False),
        ("T2", "T3", "T4"),
    ),
]
