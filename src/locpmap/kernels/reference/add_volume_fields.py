"""Unary scores with error fields (`kernels.fields`) on a volume."""

from locpmap.arrays import Array
from locpmap.kernels.fields import Fields, Moves
from locpmap.kernels.model import VolumeWindow
from locpmap.kernels.reference import noise
from locpmap.kernels.reference.add_fields import interpolated


def add_volume_fields(
    unary: Array,
    window: VolumeWindow,
    fields: Fields,
    moves: Moves,
    key: noise.Key,
    first_image: int,
    first_sample: int,
    out: Array,
) -> None:
    """Fill ``out`` (n, S, L) with the unaries plus the fields of one sample, the only one in ``moves``."""
    for n in range(len(unary)):
        factors = fields.factors[n if len(fields.factors) > 1 else 0]
        if not factors.any():
            out[n] = unary[n] + moves.offsets[n, 0]
            continue
        row, column, plane = (int(phase) for phase in moves.phases[n, 0])
        corner = (start + phase for start, phase in zip(window.corner, (plane, row, column), strict=True))
        where = tuple((first, first + size - 1) for first, size in zip(corner, window.shape, strict=True))
        values = moves.offsets[n, 0] + interpolated(factors, fields, where, key, first_image + n, first_sample)
        out[n] = unary[n] + values.reshape(-1, unary.shape[2]).astype(unary.dtype)
