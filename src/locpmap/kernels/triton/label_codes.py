"""The labels at and around a site in one number: two labels, and few neighbours, need two bits each.

Pair p of the bits says whether there is a label (the first), and whether that is 1 (the second): pair 0 of the site
itself, pair r + 1 of its neighbour in row r.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from locpmap.kernels.triton.keeping import kept_with

MAX_ROWS = 15  # the bits of an int32


def label_codes(labels: torch.Tensor, near: torch.Tensor, neighbour: torch.Tensor) -> torch.Tensor:
    """Codes (N, S) of labels (N, S) and of the labels ``near``, as many, of neighbours in rows (R, S), -1 for none.

    They are of int16 where that is enough.  O(N · S · R); where both are the same array, they are kept with it until
    somebody writes to it; nobody may do so behind torch's back, through ``.data`` or a NumPy array that shares memory.
    """
    if labels.is_inference() or not _is_same(labels, near):  # tensors of inference mode do not tell of writes
        return _label_codes(labels, near, neighbour)
    kept: dict[int, torch.Tensor] = kept_with((labels, neighbour), "codes", dict)
    version = labels._version  # which grows where somebody writes to the array
    codes = kept.get(version)
    if codes is None:
        codes = _label_codes(labels, labels, neighbour)
        kept.clear()  # those of another version are to no use
        kept[version] = codes
    return codes


def _is_same(labels: torch.Tensor, near: torch.Tensor) -> bool:
    """Whether two tensors (N, S) or (N, S, 1) are the same memory, site by site."""
    begins = near.data_ptr() == labels.data_ptr()
    return begins and near.shape[:2] == labels.shape and near.stride()[:2] == labels.stride()


def _label_codes(labels: torch.Tensor, near: torch.Tensor, neighbour: torch.Tensor) -> torch.Tensor:
    dtype = torch.int16 if len(neighbour) <= 6 else torch.int32
    around = _bits(near.reshape(labels.shape), dtype)
    codes = _bits(labels, dtype).contiguous()  # kernels read it as it lies
    for r, to in enumerate(neighbour):
        seen = around.index_select(1, to.clamp(min=0)) * (to >= 0)
        codes |= seen << 2 * (r + 1)
    return codes


def _bits(labels: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return (labels >= 0).to(dtype) + 2 * (labels == 1).to(dtype)


@triton.jit
def has_label(codes, p: tl.constexpr):
    """Whether there is a label at the site (p = 0) or in row p - 1."""
    return (codes & (1 << (2 * p))) != 0


@triton.jit
def has_one(codes, p: tl.constexpr):
    """Whether there is label 1."""
    return ((codes >> (2 * p + 1)) & 1) != 0  # the sign is a bit as well, but no int32 is its mask
