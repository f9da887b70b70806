"""All experiments by name."""

from __future__ import annotations

from locpmap.errors import unknown
from locpmap_paper.experiments.denoising import CALTECH, DIGITS, MNIST
from locpmap_paper.experiments.experiment import Experiment
from locpmap_paper.experiments.scenes.experiment import STANFORD

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in (DIGITS, MNIST, CALTECH, STANFORD)}


def known_experiment(name: str) -> Experiment:
    """Return the experiment with this name; raise an error that suggests the nearest name.

    >>> known_experiment("mnist").n_fit
    4500
    """
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]
