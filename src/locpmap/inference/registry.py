"""Every decoder by name."""

from __future__ import annotations

from locpmap.inference.decoder import Decoder
from locpmap.inference.icm import ICM
from locpmap.inference.icm_iter import ICMIter
from locpmap.inference.locpmap import LocPMAP

DECODERS: dict[str, type[Decoder]] = {decoder.name: decoder for decoder in (LocPMAP, ICM, ICMIter)}
