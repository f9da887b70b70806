"""The UAI format of the inference competitions, for pairwise models.

A model file holds, in this order:

- the word MARKOV (or BAYES),
- the number of variables, and the cardinality of each,
- the number of factors,
- for each factor, the number of its variables and their indices,
- for each factor, the number of entries of its table and the entries; the last variable changes fastest.

Table entries are potentials.  A score is the logarithm of a potential, so a potential of 0 forbids its labels.

Variables with fewer labels than others are padded with forbidden labels.  The scores of factors on the same variables
are added.  Factors without variables are constants; they are added to the unary of variable 0, so that scores and the
log partition include them.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.arrays import Array
from locpmap.errors import InputError, InputTypeError, TooLargeError
from locpmap.formats.atomic import PathLike, checked_path, write_text
from locpmap.formats.readable import reading
from locpmap.kernels.reference.scores import edge_tables
from locpmap.potentials import Potentials

MAX_LABELS = 2**15 - 1  # labels of one variable
MAX_ENTRIES = 2**28  # entries of all tables after padding (2 GB)
LOWEST = 700.0  # exp(-700) is still a normal number
MAX_COPIES = 2**22  # factors written in addition to one per term (about 100 MB)


class Tokens:
    """Reader of the whitespace-separated tokens of an ASCII file; checks counts before memory is allocated."""

    def __init__(self, path: PathLike) -> None:
        self.path = path
        with reading(path, "a file in UAI format"):
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
        if self._next < len(self._tokens):
            self._next += 1
            raise self.error(f"{self._tokens[self._next - 1][:30]!r} follows after the end, expected nothing more")


def _number(word: str) -> float:
    """Return the word as a number, or NaN if it is not one."""
    try:
        return float(word)
    except ValueError:
        return float("nan")


def read_uai(path: PathLike, evidence: PathLike | None = None) -> Potentials:
    """Read a pairwise model from a UAI file.

    Scores are the logarithms of the potentials in the file.  Labels that contradict the evidence are forbidden: their
    score is ``-inf``.

    Args:
        path (str or os.PathLike): Model file, text in UAI format (``MARKOV`` or ``BAYES``).
        evidence (str or os.PathLike, default None): Evidence file with the labels of observed variables.

    Returns:
        Potentials: Model on a graph with one site per variable, in float64.

    Raises:
        InputError: If a file is malformed, or a factor has more than two variables.
        TooLargeError: If the tables, padded to the largest number of labels, have more than 2^28 entries.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "model.uai"
        ...     _ = path.write_text("MARKOV  2  2 2  2  1 0  2 0 1    2  1 3    4  2 1 1 2")
        ...     potentials = lp.read_uai(path)
        >>> potentials
        <Potentials: graph of 2 sites, 1 edges, 2 labels, tables, float64>
        >>> round(potentials.score([1, 1]), 6)  # log 3 + log 2
        1.791759

    See Also:
        :func:`write_uai`
    """
    return read_model(path, evidence)[0]


def read_model(path: PathLike, evidence: PathLike | None = None) -> tuple[Potentials, list[int]]:
    """Return the model of :func:`read_uai`, and the number of labels of each variable before padding."""
    tokens = Tokens(path)
    cardinalities = _read_header(tokens)
    scopes = _read_scopes(tokens, len(cardinalities))
    n_labels = max(cardinalities)
    edges = sorted({(min(scope), max(scope)) for scope in scopes if len(scope) == 2})
    entries = len(cardinalities) * n_labels + len(edges) * n_labels**2
    if entries > MAX_ENTRIES:
        raise TooLargeError(
            f"{path} takes {entries} table entries with all variables padded to {n_labels} labels,"
            f" expected at most {MAX_ENTRIES}"
        )
    unary = np.where(np.arange(n_labels) < np.array(cardinalities)[:, None], 0.0, -np.inf)
    tables = np.zeros((len(edges), n_labels, n_labels))
    number = {edge: e for e, edge in enumerate(edges)}
    for factor, scope in enumerate(scopes):
        shape = tuple(cardinalities[v] for v in scope)
        scores = _read_scores(tokens, factor, shape)
        if not scope:
            unary[0] += scores
        elif len(scope) == 1:
            unary[scope[0], : shape[0]] += scores
        else:
            (i, m), (j, n) = sorted(zip(scope, shape, strict=True))
            tables[number[i, j], :m, :n] += scores if scope[0] == i else scores.T
    tokens.end()
    for variable, label in _read_evidence(evidence, cardinalities):
        unary[variable, np.arange(n_labels) != label] = -np.inf
    empty = np.flatnonzero(np.isneginf(unary).all(axis=1))
    if len(empty):
        cause = "" if evidence is None else " that the evidence leaves"
        raise InputError(f"{path} has potential 0 for every label{cause} of variable {empty[0]}, expected one above 0")
    pairs = np.array(edges, np.int64).reshape(-1, 2)
    return Potentials.graph(unary, pairs, tables if edges else 0.0), cardinalities


def _read_header(tokens: Tokens) -> list[int]:
    kind = tokens.word("the kind of network")
    if kind not in ("MARKOV", "BAYES"):
        raise tokens.error(f"the file begins with {kind!r}, expected MARKOV or BAYES")
    n_variables = tokens.count("the number of variables", 1)
    return [tokens.whole(f"the cardinality of variable {v}", 1, MAX_LABELS) for v in range(n_variables)]


def _read_scopes(tokens: Tokens, n_variables: int) -> list[tuple[int, ...]]:
    scopes = []
    for factor in range(tokens.count("the number of factors", 0)):
        arity = tokens.whole(f"the number of variables of factor {factor}", 0, n_variables)
        if arity > 2:
            raise tokens.error(f"factor {factor} has {arity} variables, expected at most 2 (a pairwise model)")
        scope = tuple(tokens.whole(f"a variable of factor {factor}", 0, n_variables - 1) for _ in range(arity))
        if len(set(scope)) < arity:
            raise tokens.error(f"factor {factor} names variable {scope[0]} twice, expected two different ones")
        scopes.append(scope)
    return scopes


def _read_scores(tokens: Tokens, factor: int, shape: tuple[int, ...]) -> Array:
    size = math.prod(shape)
    came = tokens.whole(f"the table size of factor {factor}", 0, tokens.size)
    if came != size:
        raise tokens.error(f"factor {factor} has a table of {came} entries, expected {size}")
    potentials = tokens.numbers(f"the table of factor {factor}", size)
    if not shape and potentials[0] == 0:
        raise tokens.error(f"factor {factor} is the constant 0, expected a number above 0")
    with np.errstate(divide="ignore"):
        return np.log(potentials).reshape(shape)


def _read_evidence(path: PathLike | None, cardinalities: list[int]) -> Iterator[tuple[int, int]]:
    """Yield pairs (variable, label).

    A file is ``n v1 l1 v2 l2 ...``, or the same preceded by the number of evidence sets, which must be 1.  The first
    layout has an odd number of tokens, the second an even one.  Two sets have an odd number, too; `_is_sets` detects
    them by their lines.
    """
    if path is None:
        return
    tokens = Tokens(path)
    if tokens.size % 2 == 0 or _is_sets(tokens.lines):
        sets = tokens.whole("the number of evidence sets", 0, tokens.size)
        if sets != 1:
            raise tokens.error(f"the file holds {sets} evidence sets, expected 1")
    n_observed = tokens.count("the number of observed variables", 0)
    for _ in range(n_observed):
        variable = tokens.whole("an observed variable", 0, len(cardinalities) - 1)
        yield variable, tokens.whole(f"the label of variable {variable}", 0, cardinalities[variable] - 1)
    tokens.end()


def _is_sets(lines: list[list[str]]) -> bool:
    """Return whether the first line is a number of evidence sets and each other line is one set."""
    (first, *more), *sets = lines
    whole = all(words[0] == str(len(words) // 2) and len(words) % 2 for words in sets)
    return not more and len(sets) > 1 and first == str(len(sets)) and whole


def write_uai(path: PathLike, potentials: Potentials) -> None:
    """Write a model to a UAI file.

    Numbers are written with all digits, so reading the file back gives the same scores up to rounding.

    Args:
        path (str or os.PathLike): The file to write; an existing file is replaced.
        potentials (Potentials): Model of one image.

    Raises:
        InputError: If the model holds several images, or the file cannot be written.
        TooLargeError: If the scores differ so much that more than 2^22 additional factors are needed.

    Notes:
        Each factor is scaled to a largest potential of 1; constant factors restore the total score.  A factor whose
        potentials would underflow is written as several equal factors with the same product.

    Example:
        >>> import pathlib, tempfile
        >>> potentials = lp.Potentials.grid(np.zeros((2, 2, 3)), 1.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "model.uai"
        ...     lp.write_uai(path, potentials)
        ...     lp.read_uai(path)
        <Potentials: graph of 4 sites, 4 edges, 3 labels, tables, float64>

    See Also:
        :func:`read_uai`
    """
    if not isinstance(potentials, Potentials):
        raise InputTypeError(f"potentials is a {type(potentials).__name__}, expected Potentials")
    if potentials.n_images != 1:
        raise InputError(f"potentials hold {potentials.n_images} images, expected one: a UAI file has no batch")
    write_text(path, _model_pieces(potentials))


def _model_pieces(potentials: Potentials) -> Iterator[str]:
    model = potentials.to(None).model
    n_sites, n_labels = potentials.n_sites, potentials.n_labels
    constant = 0.0
    scopes: list[str] = []
    tables: list[str] = []

    def copies_for(difference: float) -> int:
        copies = max(difference / LOWEST, 1.0)
        if not copies + len(scopes) <= n_sites + len(model.edges) + MAX_COPIES:
            raise TooLargeError(
                f"potentials hold scores that differ by {difference:g}: the file would take more than"
                f" {MAX_COPIES} copies of factors, expected smaller scores"
            )
        return math.ceil(copies)

    def add(scope: tuple[int, ...], scores: Array) -> None:
        nonlocal constant
        finite = scores[scores > -np.inf]
        top = float(finite.max()) if len(finite) else 0.0
        constant += top
        copies = copies_for(top - float(finite.min())) if len(finite) else 1
        values = np.exp((scores - top) / copies)
        scopes.extend([" ".join(map(str, (len(scope), *scope)))] * copies)
        tables.extend([f"{values.size}\n{_numbers(values)}"] * copies)

    for site in range(n_sites):
        add((site,), model.unary[0, site].astype(np.float64))
    for e, (i, j) in enumerate(model.edges.tolist()):
        add((i, j), edge_tables(model, 0, np.array([e]))[0])
    parts = copies_for(abs(constant))
    scopes += ["0"] * parts
    tables += [f"1\n{_numbers(np.exp([constant / parts]))}"] * parts

    cardinalities = " ".join([str(n_labels)] * n_sites)
    yield f"MARKOV\n{n_sites}\n{cardinalities}\n{len(scopes)}\n"
    yield from (f"{scope}\n" for scope in scopes)
    yield from (f"\n{table}\n" for table in tables)


def _numbers(values: Array) -> str:
    """Format numbers in the shortest form that reads back identically."""
    return " ".join(str(value) for value in values.ravel())


def format_mar(probability: Array, cardinalities: Sequence[int]) -> str:
    """Format marginals (S, L) as MAR, each variable with its own number of labels."""
    rows = (f"{n} {_numbers(p[:n])}" for n, p in zip(cardinalities, probability, strict=True))
    return f"MAR\n{len(probability)} {' '.join(rows)}\n"


def format_mpe(labels: Array) -> str:
    """Format labels (S,) as MPE."""
    return f"MPE\n{len(labels)} {' '.join(map(str, labels.tolist()))}\n"
