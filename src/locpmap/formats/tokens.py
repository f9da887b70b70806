"""Tokenizer of text files, with errors that name the line."""

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError
from locpmap.formats.atomic import PathLike, checked_path
from locpmap.formats.readable import reading


class Tokens:
    """Reader of the whitespace-separated tokens of an ASCII file; checks counts before memory is allocated."""

    def __init__(self, path: PathLike) -> None:
        self.path = path
        with reading(path):
            content = checked_path(path).read_bytes()
        try:
            self._text = content.decode("ascii")
        except UnicodeDecodeError:
            raise InputError(f"{path} is not a text file, expected numbers and words in ASCII") from None
        self._tokens = self._text.split()
        self._next = 0
        if not self._tokens:
            raise InputError(f"{path} is empty")

    @property
    def size(self) -> int:
        """Number of tokens in the file."""
        return len(self._tokens)

    @property
    def lines(self) -> list[list[str]]:
        """Tokens of each non-empty line."""
        return [words for line in self._text.splitlines() if (words := line.split())]

    def error(self, reason: str, back: int = 1) -> InputError:
        """Return an error that names the line of the last token read, or of an earlier one if ``back`` > 1."""
        place = max(self._next - back, 0)
        for count, match in enumerate(re.finditer(r"\S+", self._text)):
            if count == place:
                line = self._text.count("\n", 0, match.start()) + 1
                return InputError(f"{self.path}, line {line}: {reason}")
        return InputError(f"{self.path}: {reason}")

    def word(self, what: str) -> str:
        """Return the next token; ``what`` describes it in the error at the end of the file."""
        if self._next == len(self._tokens):
            raise InputError(f"{self.path} ends before {what}")
        self._next += 1
        return self._tokens[self._next - 1]

    def whole(self, what: str, low: int, high: int) -> int:
        """Return the next token as an integer from low to high."""
        word = self.word(what)
        if not re.fullmatch(r"[+-]?\d{1,18}", word) or not low <= int(word) <= high:
            raise self.error(f"{what} is {word[:30]!r}, expected a whole number from {low} to {high}")
        return int(word)

    def count(self, what: str, low: int) -> int:
        """Return the next token as a number of items, and check that at least as many tokens follow."""
        count = self.whole(what, low, 2**62)
        if count > len(self._tokens) - self._next:
            raise self.error(f"{what} is {count}, but only {len(self._tokens) - self._next} tokens follow")
        return count

    def numbers(self, what: str, size: int) -> npt.NDArray[Any]:
        """Return the next ``size`` tokens as finite numbers of at least 0."""
        words = self._tokens[self._next : self._next + size]
        if len(words) < size:
            raise InputError(f"{self.path} ends within {what}: it has {len(words)} of {size} entries")
        self._next += size
        try:
            values = np.array(words, np.float64)
        except ValueError:
            values = np.array([_number(word) for word in words])
        if "_" in self._text:  # Python reads 1_000 as a number; the format does not
            values[["_" in word for word in words]] = np.nan
        bad = ~(np.isfinite(values) & (values >= 0))
        if bad.any():
            place = int(bad.argmax())
            came = f"entry {place} of {what} is {words[place][:30]!r}"
            raise self.error(f"{came}, expected a finite number of at least 0", back=size - place)
        return values

    def end(self) -> None:
        """Raise if a token is left."""
        if self._next < len(self._tokens):
            self._next += 1
            raise self.error(f"{self._tokens[self._next - 1][:30]!r} follows after the end, expected nothing more")


def _number(word: str) -> float:
    """Return the word as a number, or NaN if it is not one."""
    try:
        return float(word)
    except ValueError:
        return float("nan")
