"""The data of the experiments: where it comes from, that it is what was published, and the noise put on it.

Loaders read and never download: :func:`fetch` does that.

>>> from locpmap import data
>>> maps = data.digits()
>>> corruption = data.Corruption("gumbel", snr=0.25)
>>> noisy = corruption.apply(maps.test, corruption.sigma(maps.train), seed=0)
>>> noisy.shape, noisy.dtype
((1000, 28, 28), dtype('float32'))
"""

from locpmap.data.cache import folder
from locpmap.data.corruption import Corruption
from locpmap.data.digits import digits
from locpmap.data.fetch import fetch
from locpmap.data.idx import mnist
from locpmap.data.label_maps import LabelMaps
from locpmap.data.registry import DATASETS, Dataset, File
from locpmap.data.scenes import Scenes, scenes
from locpmap.data.silhouettes import silhouettes
from locpmap.data.verify import Check, verify

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
