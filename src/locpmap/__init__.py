"""Structured prediction with uncertainty: pairwise models decoded by Local Perturb-and-MAP.

Scores are log-potentials: larger is better.  The label axis comes last, the batch axis first.

>>> import numpy as np
>>> import locpmap as lp
>>> unary = np.zeros((3, 4, 2))
>>> unary[..., 1] = [[2, 2, 2, -2], [2, -1, 2, -2], [2, 2, 2, -2]]
>>> result = lp.infer(lp.Potentials.grid(unary, 1.0), "locpmap", n_samples=200, seed=0)
>>> result.labels
array([[1, 1, 1, 0],
       [1, 1, 1, 0],
       [1, 1, 1, 0]])
>>> bool(result.variance[1, 1, 1] > result.variance[0, 0, 1])
True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from locpmap import metrics
    from locpmap.crf import CRF
    from locpmap.deciding import Decider, Decision
    from locpmap.errors import BackendError, InputError, LocpmapError
    from locpmap.features import Features, ImageFeatures
    from locpmap.formats import read_uai, write_uai
    from locpmap.inference import (
        ICM,
        LBP,
        TRW,
        Annealing,
        ErrorFields,
        Exact,
        Gibbs,
        GraphCut,
        ICMIter,
        LocPMAP,
        MaxProduct,
        MeanField,
        PerturbAndMAP,
        PerturbAndMaxProduct,
        infer,
        samples,
    )
    from locpmap.measuring import Measurement, measure
    from locpmap.pairwise import Factored
    from locpmap.potentials import Potentials
    from locpmap.refining import Refiner, refine
    from locpmap.result import Result
    from locpmap.scale import infer_tiled

__version__ = "0.1.0"

__all__ = [
    "CRF",
    "ICM",
    "LBP",
    "TRW",
    "Annealing",
    "BackendError",
    "Decider",
    "Decision",
    "ErrorFields",
    "Exact",
    "Factored",
    "Features",
    "Gibbs",
    "GraphCut",
    "ICMIter",
    "ImageFeatures",
    "InputError",
    "LocPMAP",
    "LocpmapError",
    "MaxProduct",
    "MeanField",
    "Measurement",
    "PerturbAndMAP",
    "PerturbAndMaxProduct",
    "Potentials",
    "Refiner",
    "Result",
    "infer",
    "infer_tiled",
    "measure",
    "metrics",
    "read_uai",
    "refine",
    "samples",
    "write_uai",
]

# Names are imported on first use, so that `locpmap --help` does not load NumPy.
_MODULES = {
    "crf": ("CRF",),
    "deciding": ("Decider", "Decision"),
    "errors": ("BackendError", "InputError", "LocpmapError"),
    "features": ("Features", "ImageFeatures"),
    "formats": ("read_uai", "write_uai"),
    "measuring": ("Measurement", "measure"),
    "pairwise": ("Factored",),
    "potentials": ("Potentials",),
    "refining": ("Refiner", "refine"),
    "result": ("Result",),
    "scale": ("infer_tiled",),
}
_OTHERS = ("arrays", "estimators", "graphs", "guarantees", "inference", "integrations", "learning", "metrics", "nn")
_PACKAGES = (*_MODULES, *_OTHERS)
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name on first use.  Names missing in ``_MODULES`` come from `locpmap.inference`."""
    if name in __all__ and name != "metrics":
        value = getattr(import_module(f"locpmap.{_MODULE_OF.get(name, 'inference')}"), name)
    elif name in _PACKAGES:
        value = import_module(f"locpmap.{name}")
    else:
        raise AttributeError(f"module 'locpmap' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__, *_PACKAGES})
