"""Learning of the bundled weights on held-out images of several data sets and networks.

Three numbers per stride decide labels and probabilities: the share of similar pixels, the threshold of their agreement
with the network, and the part of 1 - confidence that they remove. They are chosen from a grid by the likelihood,
relative to the network's own, with a penalty where a network's NLL or ECE becomes worse by more than a standard error.
Every data set has the same weight. Error fields and noise are then learned by `fit_samples`, from all data sets
together.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.arena.cells import OF_IMAGES, Cell, Seen, images_of
from locpmap.refining.examples import Example, gather
from locpmap.refining.fitting import Points, Setting, candidates, typical_similarity
from locpmap.refining.fitting_samples import START, fit_samples
from locpmap.refining.presence import ALWAYS, fit_presence
from locpmap.refining.scoring import METRICS, Score, difference, softmax
from locpmap.refining.weights import Weights

Array = npt.NDArray[Any]
STRIDES = (1, 8, 16)
THRESHOLDS = (0.7, 0.75, 0.8)
SCENES = "stanford"  # presence is learned on these; where labels are absent more often, other data sets suffer
VOTES = 0.125  # larger weights of samples raised the NLL of some networks on held-out images
PENALTY = 0.02  # for every standard error beyond the first by which a network's NLL or ECE becomes worse
N_IMAGES = 40  # per cell
N_SAMPLED = 12  # images per cell from which error fields are learned


def tables_of(cell: Cell, data: Path, networks: Path, work: Path) -> dict[Setting | None, list[Score]]:
    """Score all candidates on held-out images of a cell."""
    points = [Points.of(example, example.scores) for example in examples_of(cell, data, networks, work, N_IMAGES)]
    return {setting: [one.scored(setting) for one in points] for setting in [None, *candidates(THRESHOLDS)]}


def examples_of(cell: Cell, data: Path, networks: Path, work: Path, limit: int) -> list[Example]:
    """Return held-out images of a cell as examples of a fit."""
    seen: list[Seen] = list(images_of(cell, "held_out", data, networks, work, limit))
    images, logits, labels = map(list, zip(*seen, strict=True))
    return gather(images, logits, labels, -1, "hwk", "logits", float(cell.stride))


def loss_of(tables: dict[Setting | None, list[Score]], setting: Setting) -> float:
    """Return the relative change of the NLL on a cell, with the penalty of harm."""
    harm, network = 0.0, tables[None]
    changes = {name: difference(tables[setting], network, METRICS[name]) for name in ("NLL", "ECE")}
    for change, error in changes.values():
        harm += max(0.0, change / max(error, 1e-9) - 1)
    return changes["NLL"][0] / METRICS["NLL"](sum(network[1:], start=network[0])) + PENALTY * harm


def best_setting(tables: dict[Cell, Any], stride: int, without: str | None) -> Setting:
    """Return the candidate with the lowest loss at a stride, as a mean over the other data sets."""
    cells = [cell for cell in tables if cell.stride == stride and cell.dataset != without]

    def loss(setting: Setting) -> float:
        by_dataset: dict[str, list[float]] = {}
        for cell in cells:
            by_dataset.setdefault(cell.dataset, []).append(loss_of(tables[cell], setting))
        return float(np.mean([np.mean(values) for values in by_dataset.values()]))

    return min(candidates(THRESHOLDS), key=loss)


def learned(
    chosen: Sequence[Setting], data: Path, networks: Path, work: Path, without: str | None, seed: int
) -> Weights:
    """Learn error fields, noise and presence for chosen settings, and return the weights of all strides."""
    found = []
    for stride, setting in zip(STRIDES, chosen, strict=True):
        cells = [cell for cell in OF_IMAGES if cell.stride == stride and cell.dataset != without]
        examples = list(itertools.chain(*(examples_of(cell, data, networks, work, N_SAMPLED) for cell in cells)))
        share, rule = setting
        plain = Weights([stride], [1.0], [1 - share], [share], typical=typical_similarity(examples), adaptation=[rule])
        one = fit_samples(replace(plain, presence=[presence(examples)]), examples, START, seed)
        scenes = Cell(SCENES, "linear" if stride == STRIDES[-1] else "pyramid", stride)
        known = ALWAYS if without == SCENES else presence(examples_of(scenes, data, networks, work, N_IMAGES))
        found.append(replace(one, votes=[VOTES], presence=[known]))
    names = [name for name in plain.__dataclass_fields__ if name != "typical"]
    joint = {name: np.concatenate([getattr(one, name) for one in found]) for name in names}
    return Weights(**joint, typical=np.mean([one.typical for one in found], axis=0))


def presence(examples: Sequence[Example]) -> tuple[float, float]:
    """Fit the presence of labels, given the mean softmax of the network's scores, from data with any labels."""
    shares, present = [], []
    for example in examples:
        n_labels = example.scores.shape[-1]
        shares.append(softmax(example.scores).reshape(-1, n_labels).mean(axis=0))
        present.append(np.isin(np.arange(n_labels), example.labels))
    return fit_presence(np.concatenate(shares), np.concatenate(present))
