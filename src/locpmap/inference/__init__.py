"""Decoders: methods that compute labels and probabilities from potentials alone."""

from locpmap.inference.annealing import Annealing
from locpmap.inference.api import infer
from locpmap.inference.exact import Exact
from locpmap.inference.fields import ErrorFields
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
from locpmap.inference.registry import DECODERS
from locpmap.inference.samples import samples
from locpmap.inference.trw import TRW

__all__ = [
    "DECODERS",
    "ICM",
    "LBP",
    "TRW",
    "Annealing",
    "ErrorFields",
    "Exact",
    "Gibbs",
    "GraphCut",
    "ICMIter",
    "LocPMAP",
    "MaxProduct",
    "MeanField",
    "PerturbAndMAP",
    "PerturbAndMaxProduct",
    "infer",
    "samples",
]
