"""The paper's experiments, from loading the data to one file with all numbers.

>>> from locpmap_paper import experiments
>>> sorted(experiments.EXPERIMENTS)
['caltech', 'digits', 'mnist', 'stanford']

``experiments.run("digits", folder)`` runs an experiment; `locpmap reproduce digits` also writes a report.
"""

from locpmap_paper.experiments.experiment import Experiment
from locpmap_paper.experiments.protocol import EXPERIMENTS
from locpmap_paper.experiments.runner import run

__all__ = ["EXPERIMENTS", "Experiment", "run"]
