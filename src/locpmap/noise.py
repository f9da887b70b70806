"""Keys of the random generator."""

import operator

from locpmap.errors import InputError, InputTypeError

Key = tuple[int, int]


def key_of(seed: int) -> Key:
    """Return the Philox key of a seed: its low and high 32 bits."""
    try:
        number = operator.index(seed)
    except TypeError:
        number = None
    if number is None or isinstance(seed, bool):
        raise InputTypeError(f"seed is {seed!r}, expected a whole number from 0 to 2^64 - 1")
    if not 0 <= number < 2**64:
        raise InputError(f"seed is {number}, expected a whole number from 0 to 2^64 - 1")
    return number & 0xFFFFFFFF, number >> 32
