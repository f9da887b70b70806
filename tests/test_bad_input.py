"""Bad input: a one-line error of the library with the argument, its value and what was expected."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap.errors import BackendError, InputError, InputTypeError, LocpmapError, TooLargeError
from locpmap.inference import DECODERS, infer
from locpmap.inference.locpmap import LocPMAP
from locpmap.inference.registry import options_of
from locpmap.noise import key_of
from locpmap.potentials import Potentials

H, W, L = 3, 4, 2
UNARY = np.zeros((H, W, L))
BATCH = np.zeros((2, H, W, L))
SITES = np.zeros((4, L))
EDGES = [[0, 1], [1, 2], [2, 3]]
TABLE = np.zeros((L, L))
MASKED = np.ma.masked_array(UNARY, np.broadcast_to(np.arange(L) == 1, UNARY.shape))


def changed(array: np.ndarray, where: Any, value: Any) -> np.ndarray:
    copy = array.copy()
    copy[where] = value
    return copy


def grid(unary: Any = UNARY, pairwise: Any = 1.0, **more: Any) -> Potentials:
    return Potentials.grid(unary, pairwise, **more)


def graph(unary: Any = SITES, edges: Any = EDGES, pairwise: Any = 1.0, **more: Any) -> Potentials:
    return Potentials.graph(unary, edges, pairwise, **more)


def check_error(call: Callable[[], object], kind: type[LocpmapError], *parts: str) -> None:
    """Check that the call raises an error of the library: one line, all parts, no chained exception."""
    with pytest.raises(LocpmapError) as caught:
        call()
    error = caught.value
    assert type(error) is kind
    assert isinstance(error, ValueError | TypeError | RuntimeError)
    message = str(error)
    for part in parts:
        assert part in message
    assert "\n" not in message
    assert message.strip(" .") == message  # no space or full stop at either end
    assert any(word in message for word in ("expected", "did you mean", "known are", "use ", "need", "cannot"))
    assert error.__context__ is None or error.__suppress_context__


Case = tuple[str, Callable[[], object], type[LocpmapError], tuple[str, ...]]


def parametrize(cases: list[Case]) -> Any:
    return pytest.mark.parametrize(("call", "kind", "parts"), [pytest.param(*case[1:], id=case[0]) for case in cases])


# arrays


UNARIES: list[Case] = [
    ("NaN in one logit", lambda: grid(changed(UNARY, (1, 2, 0), np.nan)), InputError, ("unary[1, 2]", "nan")),
    ("NaN in a batch", lambda: grid(changed(BATCH, (1, 0, 3, 1), np.nan)), InputError, ("unary[1, 0, 3]", "nan")),
    ("NaN beside -inf", lambda: grid(changed(changed(UNARY, (0, 1, 0), np.nan), (0, 1, 1), -np.inf)), InputError,
     ("unary[0, 1]", "nan")),
    ("infinite", lambda: grid(changed(UNARY, (0, 0, 0), np.inf)), InputError, ("unary[0, 0]", "inf")),
    ("all forbidden", lambda: grid(changed(UNARY, (2, 3), -np.inf)), InputError, ("unary[2, 3]", "-inf for every")),
    ("NaN on a graph", lambda: graph(changed(SITES, (3, 1), np.nan)), InputError, ("unary[3]", "nan")),
    ("zero labels", lambda: grid(np.zeros((H, W, 0))), InputError, ("unary", "(3, 4, 0)")),
    ("too many labels", lambda: grid(np.zeros((1, 1, 2**15))), InputError, ("unary", "32768 labels", "2^15")),
    ("empty image", lambda: grid(np.zeros((0, W, L))), InputError, ("unary", "(0, 4, 2)")),
    ("empty batch", lambda: grid(np.zeros((0, H, W, L))), InputError, ("unary", "(0, 3, 4, 2)")),
    ("no sites", lambda: graph(np.zeros((0, L)), []), InputError, ("unary", "(0, 2)")),
    ("rank 2 on a grid", lambda: grid(np.zeros((H, W))), InputError, ("unary", "(3, 4)", "(H, W, L)")),
    ("rank 5 on a grid", lambda: grid(BATCH[None]), InputError, ("unary", "(1, 2, 3, 4, 2)", "(N, H, W, L)")),
    ("scalar", lambda: grid(1.0), InputError, ("unary", "()", "(H, W, L)")),
    ("rank 1 on a graph", lambda: graph(np.zeros(4)), InputError, ("unary", "(4,)", "(S, L)")),
    ("rank 4 on a graph", lambda: graph(BATCH), InputError, ("unary", "(2, 3, 4, 2)", "(N, S, L)")),
    ("text", lambda: grid("digits"), InputTypeError, ("unary", "is a str", "real numbers")),
    ("nothing", lambda: grid(None), InputTypeError, ("unary is None", "real numbers")),
    ("something else", lambda: grid({"scores": 1}), InputTypeError, ("unary is a dict", "real numbers")),
    ("complex", lambda: grid(UNARY * 1j), InputTypeError, ("unary", "complex128", "real numbers")),
    ("dates", lambda: grid(UNARY.astype("datetime64[s]")), InputTypeError, ("unary", "datetime64", "real numbers")),
    ("ragged", lambda: grid([[[0, 1], [0]]]), InputError, ("unary", "ragged", "one shape")),
]  # fmt: skip

PAIRWISE: list[Case] = [
    ("NaN weight", lambda: grid(pairwise=np.nan), InputError, ("pairwise", "nan", "finite")),
    ("infinite weight", lambda: grid(pairwise=np.inf), InputError, ("pairwise", "inf", "finite")),
    ("forbidding weight", lambda: grid(pairwise=-np.inf), InputError, ("pairwise", "-inf", "finite")),
    ("NaN in weights", lambda: grid(pairwise=(np.full((H, W - 1), np.nan), 1.0)), InputError, ("pairwise", "nan")),
    ("NaN in a table", lambda: grid(pairwise=changed(TABLE, (0, 1), np.nan)), InputError, ("pairwise", "nan", "-inf")),
    ("+inf in a table", lambda: grid(pairwise=changed(TABLE, (0, 1), np.inf)), InputError, ("pairwise", "inf")),
    ("table of other labels", lambda: grid(pairwise=np.zeros((3, 3))), InputError, ("pairwise", "(3, 3)", "(2, 2)")),
    ("one step", lambda: grid(pairwise=(1.0,)), InputError, ("pairwise", "1 entries", "horizontal, vertical")),
    ("four steps", lambda: grid(pairwise=(1.0,) * 4), InputError, ("pairwise", "4 entries", "per step")),
    ("two of four steps", lambda: grid(pairwise=(1.0, 1.0), connectivity=8), InputError,
     ("pairwise", "2 entries", "antidiagonal")),
    ("swapped steps", lambda: grid(pairwise=(np.zeros((H - 1, W)), np.zeros((H, W - 1)))), InputError,
     ("pairwise", "horizontal (2, 4), vertical (3, 3)", "(.., 3, 3) and (.., 2, 4)")),
    ("table beside a weight", lambda: grid(pairwise=(TABLE, 1.0)), InputError, ("pairwise", "horizontal (2, 2)", "()")),
    ("weights of a batch for one image", lambda: grid(pairwise=(np.zeros((2, H, W - 1)), np.zeros((2, H - 1, W)))),
     InputError, ("pairwise", "(2, 3, 3)", "(.., 3, 3)")),
    ("an array of steps", lambda: grid(pairwise=np.array([1.0, 2.0])), InputError, ("pairwise", "(2,)", "scalar")),
    ("text", lambda: grid(pairwise="potts"), InputTypeError, ("pairwise", "is a str", "real numbers")),
    ("nothing", lambda: grid(pairwise=None), InputTypeError, ("pairwise is None", "real numbers")),
    ("empty", lambda: grid(pairwise=()), InputError, ("pairwise", "0 entries", "per step")),
    ("too few weights on a graph", lambda: graph(pairwise=[1.0, 2.0]), InputError, ("pairwise", "(2,)", "(.., 3)")),
    ("tables with labels first", lambda: graph(pairwise=np.zeros((L, L, 3))), InputError,
     ("pairwise", "(2, 2, 3)", "(.., 3, 2, 2)")),
    ("factored: tables", lambda: grid(pairwise=lp.Factored((np.zeros((H, W - 1, 1)),) * 2, np.zeros((L, L)))),
     InputError, ("tables of Factored", "(2, 2)", "(F, 2, 2)")),
    ("factored: features", lambda: graph(pairwise=lp.Factored(np.zeros((3, 2)), np.zeros((1, L, L)))), InputError,
     ("features of Factored", "(3, 2)", "(.., 3, 1)")),
    ("factored: one array on a grid", lambda: grid(pairwise=lp.Factored(np.zeros((H, W - 1, 1)), np.zeros((1, L, L)))),
     InputError, ("features of Factored", "horizontal, vertical")),
    ("factored: no tables", lambda: graph(pairwise=lp.Factored(np.zeros((3, 0)), np.zeros((0, L, L)))), InputError,
     ("tables of Factored", "(0, 2, 2)", "at least one table")),
    ("factored: -inf", lambda: graph(pairwise=lp.Factored(np.zeros((3, 1)), np.full((1, L, L), -np.inf))), InputError,
     ("tables of Factored", "-inf", "finite")),
    ("factored: NaN", lambda: graph(pairwise=lp.Factored(np.full((3, 1), np.nan), np.zeros((1, L, L)))), InputError,
     ("features of Factored", "nan", "finite")),
]  # fmt: skip

STRUCTURE: list[Case] = [
    ("connectivity", lambda: grid(connectivity=6), InputError, ("connectivity", "6", "4 or 8")),
    ("connectivity as text", lambda: grid(connectivity="4"), InputError, ("connectivity", "'4'", "4 or 8")),
    ("connectivity as list", lambda: grid(connectivity=[4]), InputError, ("connectivity", "[4]", "4 or 8")),
    ("window too short", lambda: grid(window=(1, 2)), InputError, ("window", "(1, 2)", "(row, column, full_width)")),
    ("window as text", lambda: grid(window="left"), InputError, ("window", "'left'", "(row, column, full_width)")),
    ("window of fractions", lambda: grid(window=(0.5, 0, 9)), InputError, ("window", "0.5")),
    ("window outside", lambda: grid(window=(-1, 0, 9)), InputError, ("window", "-1")),
    ("window too narrow", lambda: grid(window=(0, 2, 5)), InputError, ("full_width", "5", "6")),
    ("self loop", lambda: graph(edges=[[0, 1], [2, 2]]), InputError, ("edges[1]", "site 2", "two different sites")),
    ("duplicate", lambda: graph(edges=[[0, 1], [0, 1]]), InputError, ("edges", "(0, 1)", "once")),
    ("duplicate, reversed", lambda: graph(edges=[[0, 1], [1, 0]]), InputError, ("edges", "(0, 1)", "once")),
    ("out of range", lambda: graph(edges=[[0, 4]]), InputError, ("edges[0]", "(0, 4)", "0 to 3")),
    ("negative", lambda: graph(edges=[[-1, 2]]), InputError, ("edges[0]", "(-1, 2)", "0 to 3")),
    ("fractions", lambda: graph(edges=[[0.0, 1.5]]), InputTypeError, ("edges", "float64", "integers")),
    ("transposed", lambda: graph(edges=np.array(EDGES).T), InputError, ("edges", "(2, 3)", "(E, 2)")),
    ("nothing", lambda: graph(edges=None), InputTypeError, ("edges is None",)),
    ("another graph", lambda: graph(edges=lp.graphs.Graph(9, EDGES)), InputError, ("unary", "4 sites", "9")),
    ("mask shape", lambda: grid(mask=np.zeros((W, H), bool)), InputError, ("mask", "(4, 3)", "(3, 4)")),
    ("mask dtype", lambda: grid(mask=np.zeros((H, W))), InputError, ("mask", "float64", "booleans")),
    ("mask of everything", lambda: grid(mask=np.ones((H, W), bool)), InputError, ("mask", "every site", "at least")),
    ("mask of one whole image", lambda: grid(BATCH, mask=np.stack([np.zeros((H, W), bool), np.ones((H, W), bool)])),
     InputError, ("mask", "every site of an image")),
    ("mask of a batch for one image", lambda: grid(mask=np.zeros((2, H, W), bool)), InputError, ("mask", "(2, 3, 4)")),
]  # fmt: skip

LABELS: list[Case] = [
    ("shape", lambda: grid().score(np.zeros((W, H), int)), InputError, ("labels", "(4, 3)", "(3, 4)")),
    ("out of range", lambda: grid().score(np.full((H, W), 2)), InputError, ("labels", "2", "0 to 1")),
    ("negative", lambda: grid().score(np.full((H, W), -1)), InputError, ("labels", "-1", "0 to 1")),
    ("fractions", lambda: grid().score(np.zeros((H, W))), InputTypeError, ("labels", "float64", "integers")),
    ("no batch axis", lambda: grid(BATCH).score(np.zeros((H, W), int)), InputError, ("labels", "(3, 4)", "(2, 3, 4)")),
    ("huge", lambda: grid().local_scores(np.full((H, W), 2**63, np.uint64)), InputError, ("labels", "2^63")),
]


@parametrize(UNARIES)
def test_bad_unary(call: Any, kind: Any, parts: Any) -> None:
    check_error(call, kind, *parts)


@parametrize(PAIRWISE)
def test_bad_pairwise(call: Any, kind: Any, parts: Any) -> None:
    check_error(call, kind, *parts)


@parametrize(STRUCTURE)
def test_bad_structure(call: Any, kind: Any, parts: Any) -> None:
    check_error(call, kind, *parts)


@parametrize(LABELS)
def test_bad_labels(call: Any, kind: Any, parts: Any) -> None:
    check_error(call, kind, *parts)


# infer and its options


def decode(method: Any = "locpmap", **options: Any) -> object:
    return infer(options.pop("pot", None) or grid(), method, backend=options.pop("backend", "reference"), **options)


INFER: list[Case] = [
    ("not potentials", lambda: infer(UNARY), InputTypeError, ("potentials", "ndarray", "Potentials.grid")),  # type: ignore[arg-type]
    ("unknown method", lambda: decode("locpmat"), InputError, ("method 'locpmat'", "did you mean 'locpmap'?")),
    ("unknown method, nothing near", lambda: decode("zzz"), InputError, ("method 'zzz'", "known are", "locpmap")),
    ("method in capitals", lambda: decode("ICM"), InputError, ("method 'ICM'", "did you mean 'icm'?")),
    ("method in words", lambda: decode("Perturb-and-MAP"), InputError, ("did you mean 'perturb_and_map'?",)),
    ("method is a class", lambda: decode(LocPMAP), InputTypeError, ("the class LocPMAP", "expected", "LocPMAP()")),
    ("method is nothing", lambda: decode(None), InputTypeError, ("method", "NoneType", "expected a decoder")),
    ("unknown option", lambda: decode(n_sample=5), InputError, ("'n_sample'", "did you mean 'n_samples'?")),
    ("unknown option of infer", lambda: decode("icm", max_second=5), InputError, ("did you mean 'max_seconds'?",)),
    ("misspelt seed", lambda: decode("icm", sed=5), InputError, ("did you mean 'seed'?",)),
    ("option beside an object", lambda: decode(LocPMAP(), n_samples=5), InputError, ("configured", "n_samples")),
    ("seed is not true", lambda: decode(seed=True), InputTypeError, ("seed", "True", "whole number")),
    ("negative seed", lambda: decode(seed=-1), InputError, ("seed", "-1", "0 to 2^64 - 1")),
    ("fractional seed", lambda: decode(seed=1.5), InputTypeError, ("seed", "1.5", "whole number")),
    ("seed of float", lambda: decode(seed=np.float64(2)), InputTypeError, ("seed", "2.0", "whole number")),
    ("seed as text", lambda: decode(seed="7"), InputTypeError, ("seed", "'7'", "whole number")),
    ("no seed", lambda: decode(seed=None), InputTypeError, ("seed", "None", "whole number")),
    ("huge seed", lambda: decode(seed=2**64), InputError, ("seed", str(2**64), "2^64 - 1")),
    ("backend", lambda: decode(backend="nunba"), InputError, ("backend", "'nunba'", "did you mean 'numba'?")),
    ("a GPU's backend", lambda: decode(backend="triton"), BackendError, ("triton", "backend='numba'")),
    ("a GPU's backend, here", lambda: decode(backend="triton", device="cpu"), BackendError, ("triton", "'cpu'")),
    ("backend is nothing", lambda: decode(backend=7), InputError, ("backend", "7", "auto, numba, reference, triton")),
    ("device", lambda: decode(device="gpu"), InputError, ("device", "'gpu'", "did you mean 'cuda'?")),
    ("device without a driver", lambda: decode(device="cuda"), BackendError, ("device='cuda'", "CPU")),
    ("first_image", lambda: decode(first_image=-1), InputError, ("first_image", "-1", "at least 0")),
    ("huge first_image", lambda: decode(first_image=2**28), InputError, ("first_image", str(2**28), "2^28")),
    ("max_seconds", lambda: decode(max_seconds=-1), InputError, ("max_seconds", "-1", "at least 0")),
    ("max_seconds NaN", lambda: decode(max_seconds=np.nan), InputError, ("max_seconds", "nan", "at least 0")),
    ("max_seconds beyond all", lambda: decode(max_seconds=10**400), InputError, ("max_seconds", "at least 0")),
    ("max_seconds as text", lambda: decode(max_seconds="1"), InputTypeError, ("max_seconds", "'1'", "a number")),
    ("n_threads", lambda: decode(n_threads=0), InputError, ("n_threads", "0", "at least 1")),
    ("fraction of a thread", lambda: decode(n_threads=1.5), InputTypeError, ("n_threads", "1.5", "whole number")),
    ("progress", lambda: decode(progress="yes"), InputTypeError, ("progress", "'yes'", "True", "function")),
]  # fmt: skip

OPTIONS: list[Case] = [
    ("no samples", lambda: decode(n_samples=0), InputError, ("n_samples", "0", "at least 1")),
    ("half a sample", lambda: decode(n_samples=0.5), InputTypeError, ("n_samples", "0.5", "whole number")),
    ("samples are not true", lambda: decode(n_samples=True), InputTypeError, ("n_samples", "True", "whole number")),
    ("masked unary", lambda: Potentials.grid(MASKED, 1.0), InputError, ("unary", "masked array", "mask=")),
    ("masked unaries", lambda: Potentials.grid([MASKED, MASKED], 1.0), InputError, ("unary", "masked array", "mask=")),
    ("masked sites", lambda: Potentials.graph(np.ma.masked_equal(SITES, 0), EDGES, 1.0), InputError,
     ("unary", "masked array", "mask=")),
    ("masked weights", lambda: Potentials.grid(UNARY, np.ma.masked_equal(TABLE, 0)), InputError,
     ("pairwise", "masked array", "filled()")),
    ("max_sweeps", lambda: decode(max_sweeps=0), InputError, ("max_sweeps", "0", "at least 1")),
    ("max_sweeps beyond all", lambda: decode(max_sweeps=2**63), InputError, ("max_sweeps", str(2**63), "2147483647")),
    ("max_sweeps of lbp", lambda: decode("lbp", max_sweeps=2**31), InputError, ("max_sweeps", str(2**31))),
    ("max_table", lambda: decode("exact", max_table=10**23), InputError, ("max_table", str(10**23), str(2**62))),
    ("cold", lambda: decode(temperature=-1.0), InputError, ("temperature", "-1.0", "at least 0")),
    ("hot beyond all", lambda: decode(temperature=10**400), InputError, ("temperature", "at least 0")),
    ("cold beyond all", lambda: decode(temperature=-(10**400)), InputError, ("temperature", "at least 0")),
    ("complex temperature", lambda: decode(temperature=np.complex128(1)), InputTypeError, ("temperature", "a number")),
    ("NaN temperature", lambda: decode(temperature=np.nan), InputError, ("temperature", "nan", "at least 0")),
    ("fractional temperature", lambda: decode(temperature=Fraction(1, 2)), InputTypeError, ("temperature", "a number")),
    ("infinite temperature", lambda: decode(temperature=np.inf), InputError, ("temperature", "inf", "at least 0")),
    ("probability", lambda: decode(probability="vote"), InputError, ("probability", "'vote'", "'votes'")),
    ("blocks", lambda: decode(blocks="row"), InputError, ("blocks", "'row'", "'rows'")),
    ("blocks of nothing", lambda: decode(blocks=None), InputTypeError, ("blocks", "None", "a list of site lists")),
    ("tiles too large", lambda: decode(blocks=(4, 4)), TooLargeError, ("blocks=(4, 4)", "2^16", "4096")),
    ("tiles beyond all", lambda: decode(blocks=(1, 10**400)), InputError, ("blocks", "at most 2147483647")),
    ("tiles of truth", lambda: decode(blocks=(True, True)), InputTypeError, ("blocks", "True", "whole number")),
    ("blocks that overlap", lambda: decode(blocks=[[0, 1], [1, 2]]), InputError, ("blocks[1]", "disjoint")),
    ("rows of a graph", lambda: decode(pot=graph(), blocks="rows"), InputError, ("blocks='rows'", "grid")),
    ("start", lambda: decode(start="randon"), InputError, ("start", "'randon'", "'random'", "array of labels")),
    ("start is nothing", lambda: decode(start=None), InputTypeError, ("start is None",)),
    ("start of another shape", lambda: decode(start=np.zeros((W, H), int)), InputError, ("start", "(4, 3)", "(3, 4)")),
    ("start out of range", lambda: decode(start=np.full((H, W), 5)), InputError, ("start", "5", "0 to 1")),
    ("start of fractions", lambda: decode(start=np.zeros((H, W))), InputTypeError, ("start", "float64", "integers")),
    ("forbidden start", lambda: decode(pot=grid(changed(UNARY, (0, 0, 1), -np.inf)), start=np.ones((H, W), int)),
     InputError, ("start", "forbids")),
    ("icm: start", lambda: decode("icm", start="perturbed"), InputError, ("start", "'perturbed'", "'unary'")),
    ("icm: max_sweeps", lambda: decode("icm", max_sweeps=0), InputError, ("max_sweeps", "0", "at least 1")),
    ("icm_iter: drop", lambda: decode("icm_iter", drop=1.5), InputError, ("drop", "1.5", "at most 1")),
    ("icm_iter: no samples", lambda: decode("icm_iter", n_samples=0), InputError, ("n_samples", "0", "at least 1")),
]  # fmt: skip


@parametrize(INFER)
def test_bad_arguments_of_infer(call: Any, kind: Any, parts: Any) -> None:
    check_error(call, kind, *parts)


@parametrize(OPTIONS)
def test_bad_decoder_options(call: Any, kind: Any, parts: Any) -> None:
    check_error(call, kind, *parts)


FLAGS = [
    (name, option) for name in DECODERS for option, default in options_of(name).items() if isinstance(default, bool)
]


@pytest.mark.parametrize(("name", "option"), FLAGS)
def test_flags_must_be_booleans(name: str, option: str) -> None:
    for value in ("no", 1, None):
        expected = (f"{option} is {value!r}", "True or False")
        check_error(lambda value=value: decode(name, **{option: value}), InputTypeError, *expected)  # type: ignore[misc]
        check_error(lambda value=value: DECODERS[name](**{option: value}), InputTypeError, *expected)  # type: ignore[misc]


def test_flags_are_found_and_accept_numpy_booleans() -> None:
    assert ("gibbs", "keep_samples") in FLAGS
    assert ("locpmap", "keep_samples") in FLAGS
    assert infer(grid(), "gibbs", backend="reference", keep_samples=np.True_).samples is not None


@pytest.mark.parametrize("seed", ["x", -1, 1.0, 2**64, True])
def test_bad_seed_of_a_noise_key(seed: Any) -> None:
    with pytest.raises(LocpmapError, match="seed is"):
        key_of(seed)


# unusual but valid input


def test_odd_sizes_are_accepted() -> None:
    for shape in ((1, 1, 1), (1, 7, 1), (7, 1, 2), (2, 2, 300), (1, 1, 1, 3)):
        pot = grid(np.zeros(shape))
        result = infer(pot, "locpmap", n_samples=2, backend="reference")
        assert result.labels.shape == shape[:-1]
        assert result.probability.shape == shape


def test_numpy_numbers_are_accepted() -> None:
    numbers: dict[str, Any] = {"n_samples": np.int32(3), "seed": np.uint64(2**63), "max_seconds": np.float32(100)}
    result = infer(grid(), "locpmap", backend="reference", temperature=1, **numbers)
    assert result.n_samples == 3
    assert result.converged


def test_small_numpy_integers_do_not_overflow() -> None:
    result = infer(grid(), "locpmap", n_samples=np.int8(5), max_sweeps=np.uint8(200))
    assert (result.n_samples, type(result.n_samples)) == (5, int)
    result = infer(grid(), "gibbs", n_samples=np.int8(100), burn_in=np.int8(100), thin=np.int8(2))
    assert (result.n_samples, result.n_sweeps) == (100, 300)


def test_one_label_fits_in_any_tile() -> None:
    assert infer(grid(np.zeros((H, W, 1))), "locpmap", blocks=(1, 2**31 - 1), n_samples=1).labels.shape == (H, W)


def test_decoders_are_registered_under_their_names() -> None:
    assert all(name == decoder.name for name, decoder in DECODERS.items())
