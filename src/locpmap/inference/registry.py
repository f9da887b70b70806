"""Table of all decoders by name."""

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any

from locpmap.inference.annealing import Annealing
from locpmap.inference.decoder import Decoder
from locpmap.inference.exact import Exact
from locpmap.inference.gibbs import Gibbs
from locpmap.inference.graph_cut import GraphCut
from locpmap.inference.icm import ICM
from locpmap.inference.icm_iter import ICMIter
from locpmap.inference.lbp import LBP
from locpmap.inference.locpmap import LocPMAP
from locpmap.inference.max_product import MaxProduct
from locpmap.inference.mean_field import MeanField
from locpmap.inference.perturb_and_map import PerturbAndMAP
from locpmap.inference.perturb_and_max_product import PerturbAndMaxProduct
from locpmap.inference.trw import TRW

_ALL: tuple[type[Decoder], ...] = (
    LocPMAP,
    PerturbAndMAP,
    PerturbAndMaxProduct,
    ICM,
    ICMIter,
    LBP,
    MaxProduct,
    MeanField,
    Gibbs,
    Annealing,
    TRW,
    GraphCut,
    Exact,
)

DECODERS = {decoder.name: decoder for decoder in _ALL}


@cache
def options_of(method: str) -> Mapping[str, Any]:
    """Return the options of a decoder with their defaults.

    >>> options_of("exact")
    {'max_table': 16777216}
    """
    return {field.name: field.default for field in dataclasses.fields(DECODERS[method])}  # type: ignore[arg-type]
