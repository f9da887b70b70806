"""The parameter vector of a CRF, and the linear maps between it and label weights and label tables.

Label weights ``U`` (D + 1, L) have one row per unary feature and a last row for the bias. Tables ``T`` (G, F, L, L)
contain one table per group of edges and pairwise feature. Both are affine in the parameter vector w (P,). The gradient
in w is therefore a linear map of the gradients in U and T: the transpose of the map from w.

**Gauge.** Some changes of the weights leave all probabilities unchanged. To make weights unique, the library fits and
stores them in the *zero-sum gauge*: every row of U sums to 0 over the labels, and every table sums to 0. The map from w
projects into the gauge, so the weights of two fits can be compared entry by entry.

If the model has a bias, tables of the feature named "constant" also have zero row and column sums. These tables then
describe pairs only, and the bias describes single labels. If all sites have the same number of neighbours, this
constraint leaves the model unchanged too. At image borders and on irregular graphs it restricts the model; a constant
feature of another name is not restricted.

Potts tables ``v · identity`` have a single weight each and need no gauge.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError, true_or_false
from locpmap.features import CONSTANT, DIRECTIONS, Features

BIASED = ("tables", "scale")  # kinds of unary terms with a bias per label
UNARIES = (*BIASED, "temperature", "given")


@dataclass(frozen=True)
class Parameters:
    """Sizes, names and constraints of the weights; :class:`locpmap.CRF` describes the kinds of unary terms."""

    n_labels: int  # L
    unary_names: tuple[str, ...]  # names of the D unary features
    pairwise_names: tuple[str, ...]  # names of the F pairwise features; see the module about "constant"
    n_groups: int = 1  # G, number of groups of edges with separate tables: one, or one per step
    unary: str = "tables"
    symmetric: bool = False  # whether tables equal their transpose
    potts: bool = False  # whether tables are multiples of the identity
    non_negative: bool = False  # whether those multiples are at least 0
    directions: tuple[str, ...] = DIRECTIONS  # names of the groups if there are several

    def __post_init__(self) -> None:
        check_kind(self.unary, symmetric=self.symmetric, potts=self.potts, non_negative=self.non_negative)
        if self.unary != "tables" and len(self.unary_names) != self.n_labels:
            raise InputError(
                f"unary={self.unary!r} needs one score per label: expected {self.n_labels} unary features,"
                f" got {len(self.unary_names)}"
            )
        if len(self.directions) < self.n_groups:
            raise InputError(f"directions are {', '.join(self.directions)}, expected {self.n_groups} names")

    @property
    def weights_shape(self) -> tuple[int, int]:
        """Shape (D + 1, L) of U."""
        return len(self.unary_names) + 1, self.n_labels

    @property
    def tables_shape(self) -> tuple[int, int, int, int]:
        """Shape (G, F, L, L) of T."""
        return self.n_groups, len(self.pairwise_names), self.n_labels, self.n_labels

    @property
    def n_unary(self) -> int:
        """Number of entries of w that determine U; they come first."""
        few = {"scale": 1 + self.n_labels, "temperature": 1, "given": 0}
        return few[self.unary] if self.unary in few else int(np.prod(self.weights_shape))

    @property
    def size(self) -> int:
        """Length P of w."""
        return self.n_unary + int(np.prod(self.tables_shape[:2] if self.potts else self.tables_shape))

    def expand(self, w: Array) -> tuple[Array, Array]:
        """Return the unary weights U and the pairwise tables T of a parameter vector."""
        head, tail = w[: self.n_unary], w[self.n_unary :]
        if self.unary == "tables":
            weights = _centred(head.reshape(self.weights_shape))
        else:
            scale = head[0] if self.n_unary else 1.0
            bias = _centred(head[None, 1:]) if self.n_unary > 1 else np.zeros((1, self.n_labels))
            weights = np.concatenate([scale * np.eye(self.n_labels), bias])
        if self.potts:
            tables = tail.reshape(*self.tables_shape[:2], 1, 1) * np.eye(self.n_labels)
        else:
            tables = self._in_gauge(tail.reshape(self.tables_shape))
        return np.ascontiguousarray(weights), np.ascontiguousarray(tables)

    def gradient(self, by_weights: Array, by_tables: Array) -> Array:
        """Return the gradient in w (P,) from the gradients in U and T: the transposed map of :meth:`expand`."""
        if self.unary == "tables":
            head = _centred(by_weights).ravel()
        else:
            head = np.concatenate([[np.trace(by_weights[:-1])], _centred(by_weights[-1:])[0]])[: self.n_unary]
        if self.potts:
            tail = np.trace(by_tables, axis1=2, axis2=3).ravel()
        else:
            tail = self._in_gauge(by_tables).ravel()  # an orthogonal projection is its own transpose
        return np.concatenate([head, tail])

    def fold(self, weights: Array, tables: Array) -> Array:
        """Return the parameter vector of U and T, which must be in the gauge."""
        head = weights.ravel() if self.unary == "tables" else np.append(weights[0, 0], weights[-1])[: self.n_unary]
        return np.concatenate([head, tables[..., 0, 0].ravel() if self.potts else tables.ravel()])

    def check(self, features: Features) -> None:
        """Raise InputError if the names or steps of features differ from those of the weights."""
        for kind, names, expected in (
            ("unary", features.unary_names, self.unary_names),
            ("pairwise", features.pairwise_names, self.pairwise_names),
        ):
            if names != expected:
                came, first = ", ".join(names), ", ".join(expected)
                raise InputError(f"an input has the {kind} features {came}, expected {first} as in the first")
        if self.n_groups > 1 and features.directions != self.directions[: self.n_groups]:
            came, first = ", ".join(features.directions), ", ".join(self.directions[: self.n_groups])
            raise InputError(f"an input has the edges {came}, expected {first}")

    @cached_property
    def lowest(self) -> Array:
        """Lower bounds (P,) of the entries of w: -inf, or 0 for weights that must not be negative."""
        return np.where(self.non_negative & (np.arange(self.size) >= self.n_unary), 0.0, -np.inf)

    @cached_property
    def penalised(self) -> Array:
        """Mask (P,) of the penalised entries of w: all except biases."""
        mask = np.ones(self.size, bool)
        if self.unary in BIASED:
            mask[self.n_unary - self.n_labels : self.n_unary] = False
        return mask

    @cached_property
    def names(self) -> list[str]:
        labels = range(self.n_labels)
        names = ["scale"]
        if self.unary == "tables":
            names = [f"{feature}, label {k}" for feature in self.unary_names for k in labels]
        names = [*names, *(f"bias, label {k}" for k in labels)][: self.n_unary]
        for g in range(self.n_groups):
            where = f" ({self.directions[g]})" if self.n_groups > 1 else ""
            for feature in self.pairwise_names:
                pairs = ["agree"] if self.potts else [f"labels {a}-{b}" for a in labels for b in labels]
                names += [f"{feature}{where}, {pair}" for pair in pairs]
        return names

    def _in_gauge(self, tables: Array) -> Array:
        """Return the orthogonal projection of tables onto those with the required sums and symmetry."""
        biased = self.unary in BIASED  # without a bias, the tables have to describe single labels too
        constant = np.array([biased and name == CONSTANT for name in self.pairwise_names], bool)
        both = tables - tables.mean(axis=2, keepdims=True)
        both = both - both.mean(axis=3, keepdims=True)
        tables = np.where(constant[:, None, None], both, tables - tables.mean(axis=(2, 3), keepdims=True))
        return (tables + np.swapaxes(tables, 2, 3)) / 2 if self.symmetric else tables


def check_kind(unary: str, *, symmetric: bool, potts: bool, non_negative: bool) -> None:
    """Raise an error for an unknown kind of unary terms, or options that are malformed or incompatible."""
    for name, value in (("symmetric", symmetric), ("potts", potts), ("non_negative", non_negative)):
        true_or_false(name, value)
    if unary not in UNARIES:
        raise InputError(f"unary is {unary!r}, expected {', '.join(map(repr, UNARIES))}")
    if non_negative and not potts:
        raise InputError("non_negative=True needs potts=True: the sign of a general table depends on its gauge")


def _centred(weights: Array) -> Array:
    return weights - weights.mean(axis=-1, keepdims=True)
