"""Files of other systems."""

from locpmap.formats.uai import read_uai, write_mar, write_mpe, write_uai

__all__ = ["read_uai", "write_mar", "write_mpe", "write_uai"]
