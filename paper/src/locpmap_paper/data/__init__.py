"""Data sets of the experiments: download, verification, loading, and noise.

Loaders never download; :func:`fetch` does.

>>> from locpmap_paper import data
>>> maps = data.digits()
>>> corruption = data.Corruption("gumbel", snr=0.25)
>>> noisy = corruption.apply(maps.test, corruption.sigma(maps.train), seed=0)
>>> noisy.shape, noisy.dtype
((1000, 28, 28), dtype('float32'))
"""

from locpmap_paper.data.cache import folder
from locpmap_paper.data.corruption import Corruption
from locpmap_paper.data.digits import digits
from locpmap_paper.data.fetch import fetch
from locpmap_paper.data.idx import mnist
from locpmap_paper.data.label_maps import LabelMaps
from locpmap_paper.data.registry import DATASETS, Dataset, File
from locpmap_paper.data.scenes import Scenes, scenes
from locpmap_paper.data.silhouettes import silhouettes
from locpmap_paper.data.verify import Check, verify

__all__ = [
    "DATASETS",
    "Check",
    "Corruption",
    "Dataset",
    "File",
    "LabelMaps",
    "Scenes",
    "digits",
    "fetch",
    "folder",
    "mnist",
    "scenes",
    "silhouettes",
    "verify",
]
