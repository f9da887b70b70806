"""Structured prediction with an honest uncertainty."""

from locpmap.errors import BackendError, InputError, InputTypeError, LocpmapError, TooLargeError
from locpmap.graphs import Graph, Grid
from locpmap.inference import ICM, ICMIter, LocPMAP, infer
from locpmap.pairwise import Factored
from locpmap.potentials import Potentials
from locpmap.result import Band, BoundKind, Result, Status

__version__ = "0.1.0"
