"""All experiments by name."""

from __future__ import annotations

from locpmap.errors import InputError, unknown
from locpmap_paper.experiments.denoising import CALTECH, DIGITS, FULL_DIGITS, MNIST
from locpmap_paper.experiments.experiment import Experiment
from locpmap_paper.experiments.scenes.experiment import STANFORD

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in (DIGITS, MNIST, CALTECH, STANFORD)}


def known_experiment(name: str, full: bool = False) -> Experiment:
    """Return the experiment with this name, with all models and decoders if `full`.

    Raise an error that suggests the nearest name if there is none.

    >>> known_experiment("mnist").n_fit
    4500
    """
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    if full and name != "digits":
        raise InputError(f"--full is given with {name}, expected digits: other experiments are always complete")
    return FULL_DIGITS if full else EXPERIMENTS[name]
