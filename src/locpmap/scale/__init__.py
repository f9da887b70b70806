"""Tiled inference for rasters that do not fit into memory, identical to inference on the whole raster."""

from locpmap.scale.api import Summary, TiledResult, infer_tiled
from locpmap.scale.deciding import decide_tiled
from locpmap.scale.refining import refine_tiled
from locpmap.scale.sources import open_raster

__all__ = ["Summary", "TiledResult", "decide_tiled", "infer_tiled", "open_raster", "refine_tiled"]
