"""The paper's experiments, from the data to one file with every number.

>>> from locpmap_paper import experiments
>>> sorted(experiments.EXPERIMENTS)
['caltech', 'digits', 'mnist', 'stanford']

``experiments.run("digits", folder)`` runs one; `locpmap reproduce digits` does so from a shell and writes a report.
"""

from locpmap_paper.experiments.experiment import Experiment
from locpmap_paper.experiments.protocol import EXPERIMENTS
from locpmap_paper.experiments.runner import run

__all__ = ["EXPERIMENTS", "Experiment", "run"]
