__version__ = "0.1.0"
from locpmap.potentials import Potentials
from locpmap.pairwise import Factored
from locpmap.inference import infer
