"""Train the segmentation networks of the benchmarks: `python -m benchmarks.networks train DATASET`.

Five networks that differ in their seed (an ensemble) and one stochastic segmentation network are trained on the
training images of a data set. By default, photographs get EfficientNet-Lite0 with published ImageNet weights and a
feature pyramid, and silhouettes and digits get a small U-Net. Networks that are already in the output folder are not
trained again.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.networks_data import DATASETS, Split, load
from benchmarks.networks_models import KINDS, PHOTOGRAPHS, Network, StochasticNetwork, build, open_network, save
from benchmarks.networks_training import batches_of, evaluate, train_network
from locpmap.formats import read_model
from locpmap.nn import choose_device
from locpmap_paper.networks.efficientnet import EfficientNetLite0

STOCHASTIC, STOCHASTIC_SEED = "ssn", 1000
DROP = 0.2  # stochastic depth of the encoder in training
BATCH_SIZES = {"silhouettes": 128, "digits": 128}  # else 16


def main() -> None:
    """Parse the command line and run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks")
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("train", help="train the networks of a data set")
    command.add_argument("dataset", choices=DATASETS)
    command.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    command.add_argument("--out", type=Path, required=True, help="folder of the networks")
    command.add_argument("--kind", choices=KINDS, help="architecture; only the default one may be stochastic, too")
    command.add_argument("--members", type=int, default=5, help="number of networks of the ensemble")
    command.add_argument("--steps", type=int, default=1500)
    command.add_argument("--device", choices=("cpu", "cuda", "auto"), default="auto")
    command.add_argument("--weights-folder", type=Path, help="cache of the published weights")
    command.add_argument("--batch", type=int, help="images per step: 16, or 128 silhouettes")
    command.add_argument("--crop", type=int, default=288, help="height and width of the training images")
    command.add_argument("--limit", type=int, help="maximum number of images of a part, for a smoke run")
    train(parser.parse_args())


def train(options: argparse.Namespace) -> None:
    """Train and save the missing networks, and evaluate all; print one line of JSON for each."""
    split = load(options.dataset, options.data)
    device = choose_device(options.device)
    options.out.mkdir(parents=True, exist_ok=True)
    batch_size = options.batch or BATCH_SIZES.get(options.dataset, 16)
    batches = batches_of(split.train.some(options.limit), batch_size, options.crop, device)
    seeds = {f"member-{number}": number for number in range(options.members)}
    if options.kind is None:
        seeds[STOCHASTIC] = STOCHASTIC_SEED
    for name, seed in seeds.items():
        path = options.out / f"{name}.safetensors"
        if not path.exists():
            torch.manual_seed(seed)
            network = new_network(split, options.kind, name == STOCHASTIC, options.weights_folder).to(device)
            seconds = train_network(network, batches, options.steps, seed)
            details: dict[str, Any] = {"dataset": options.dataset, "name": name, "seed": seed, "steps": options.steps}
            save(path, network, details | {"seconds": round(seconds, 1)})
        measures = evaluate(open_network(path, device.type), split.held_out.some(options.limit))
        line = read_model(path)[1]["details"] | {key: round(value, 5) for key, value in asdict(measures).items()}
        if device.type == "cuda":
            line["gpu_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 1)
        print(json.dumps(line), flush=True)
        with (options.out / "log.jsonl").open("a") as log:
            log.write(json.dumps(line) + "\n")


def new_network(
    split: Split, kind: str | None, stochastic: bool, weights_folder: Path | None
) -> Network | StochasticNetwork:
    """Return a network to train on a data set; by default a U-Net, or for photographs a pyramid."""
    small = split.train.images[0].ndim == 2
    kind = kind or ("unet" if small else "pyramid")
    if kind in ("unet", "fcn"):
        return build(kind, split.n_labels, stochastic=stochastic, options=None if small else PHOTOGRAPHS)
    encoder = EfficientNetLite0.published(drop=DROP, folder=weights_folder)
    return build(kind, split.n_labels, stochastic=stochastic, encoder=encoder)


if __name__ == "__main__":
    main()
