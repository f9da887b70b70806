"""What the other processes of a run do, where ``torchrun`` has started several: they help to train networks.

The first process runs the experiment.  Whenever it comes to a network that is trained together it tells the others
which, and these do their share of every step; all else, and everything that is written, is the first one's.
"""

from __future__ import annotations

import json
from typing import Any

from locpmap.errors import InputError
from locpmap.learning import Processes
from locpmap_paper.experiments.catalogue import catalogue
from locpmap_paper.experiments.experiment import Experiment
from locpmap_paper.experiments.fits import KeptFits
from locpmap_paper.experiments.progress import Silent
from locpmap_paper.experiments.stages import Stages


def help_train(
    experiment: Experiment, data: Any, stages: Stages, guard: str, device: str, processes: Processes
) -> None:
    """Train whatever the first process asks for (see :meth:`KeptFits.ask_partners`) until it asks for nothing."""
    known = catalogue(experiment)
    while order := processes.tell(""):
        asked = json.loads(order)
        case = experiment.case(data, asked["level"], asked["seed"])
        silent = Silent().step
        fits = KeptFits(stages, case, known, device, silent, guard, processes)
        try:
            known[asked["model"]].fit(case, fits, device, silent)
        except InputError:  # a state that nobody can go on from: the first removes it and begins anew, and so do all
            known[asked["model"]].fit(case, fits, device, silent)
