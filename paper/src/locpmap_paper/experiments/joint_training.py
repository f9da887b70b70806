"""The work of the other processes when ``torchrun`` starts several: training networks together with the first.

The first process runs the experiment.  For each network that is trained together, it broadcasts the model's name, and
every process computes its part of each step.  Everything else, including all writing, is done by the first process.
"""

from __future__ import annotations

import json
from typing import Any

from locpmap.errors import InputError
from locpmap.learning import Processes
from locpmap_paper.experiments.catalogue import catalogue
from locpmap_paper.experiments.experiment import Experiment
from locpmap_paper.experiments.fits import StoredFits
from locpmap_paper.experiments.progress import Silent
from locpmap_paper.experiments.stages import Stages


def help_train(
    experiment: Experiment, data: Any, stages: Stages, guard: str, device: str, processes: Processes
) -> None:
    """Train the models that the first process requests (:meth:`StoredFits.request_training`) until it requests none."""
    known = catalogue(experiment)
    while order := processes.tell(""):
        request = json.loads(order)
        case = experiment.case(data, request["level"], request["seed"])
        silent = Silent().step
        fits = StoredFits(stages, case, known, device, silent, guard, processes)
        try:
            known[request["model"]].fit(case, fits, device, silent)
        except InputError:  # unusable checkpoint: the first process removes it, and all restart
            known[request["model"]].fit(case, fits, device, silent)
