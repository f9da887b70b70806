"""Refinement inside other libraries: :func:`refine_xarray` for xarray, :class:`Refined` for MONAI.

Neither library is imported before it is used.
"""

from locpmap.integrations.dictionaries import Refined
from locpmap.integrations.labelled import refine_xarray

__all__ = ["Refined", "refine_xarray"]
