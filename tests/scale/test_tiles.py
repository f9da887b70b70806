"""Tiled inference with halos derived from the decoder: byte for byte equal to inference on the whole raster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap.errors import InputError
from locpmap.kernels.cpu import sampling
from locpmap.kernels.cpu.backend import CpuKernels
from locpmap.scale import TiledResult
from locpmap.scale.tiling import Box, Reach, Tiling, Visit, reach_of

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

SEED = 11
PARTS = "rows:3+columns:2"
FAR = ((0, 1), (1, 0), (0, 3), (3, 0))

VOTES: dict[str, Any] = {"probability": "votes"}  # the reach is one step shorter

# name: (labels, pairwise, connectivity, method, options)
CASES: dict[str, tuple[int, str, Any, str, dict[str, Any]]] = {
    "two labels": (2, "weight", 4, "locpmap", {"max_sweeps": 1, **VOTES, "n_samples": 19}),
    "two labels, weights of either sign": (2, "signed", 4, "locpmap", {"max_sweeps": 1, **VOTES, "n_samples": 19}),
    "three labels": (3, "weight", 4, "locpmap", {"max_sweeps": 1, **VOTES, "n_samples": 19}),
    "weights per edge": (3, "edges", 4, "locpmap", {"max_sweeps": 1, **VOTES, "n_samples": 19, "start": "perturbed"}),
    "negative weights": (3, "signed", 4, "locpmap", {"max_sweeps": 1, **VOTES, "n_samples": 19}),
    "conditional": (3, "weight", 4, "locpmap", {"max_sweeps": 1, "n_samples": 3, "probability": "conditional"}),
    "conditional, two labels": (2, "edges", 4, "locpmap", {"max_sweeps": 1, "probability": "conditional"}),
    "a table": (9, "table", 4, "locpmap", {"max_sweeps": 1, **VOTES, "n_samples": 5}),
    "tables per edge": (3, "tables", 4, "locpmap", {"max_sweeps": 1, **VOTES, "n_samples": 5}),
    "features": (3, "factored", 4, "locpmap", {"max_sweeps": 1, "n_samples": 5, "probability": "conditional"}),
    "eight neighbours": (3, "weight", 8, "locpmap", {"max_sweeps": 1, **VOTES, "n_samples": 9}),
    "far neighbours": (2, "weight", FAR, "locpmap", {"max_sweeps": 1, **VOTES, "n_samples": 9}),
    "blocks": (3, "edges", 4, "locpmap", {"max_sweeps": 1, **VOTES, "n_samples": 5, "blocks": (2, 3)}),
    "short rows": (2, "weight", 4, "locpmap", {"max_sweeps": 1, **VOTES, "n_samples": 5, "blocks": (1, 4)}),
    "large blocks": (2, "weight", 4, "locpmap", {"max_sweeps": 1, "blocks": (2, 2), "probability": "conditional"}),
    "parts of rows": (3, "edges", 4, "locpmap", {"max_sweeps": 1, **VOTES, "n_samples": 9, "blocks": "rows:4"}),
    "parts of rows and columns": (
        2,
        "weight",
        4,
        "locpmap",
        {"max_sweeps": 1, **VOTES, "n_samples": 99, "blocks": PARTS},
    ),
    "parts, eight neighbours": (
        2,
        "weight",
        8,
        "locpmap",
        {"max_sweeps": 1, **VOTES, "n_samples": 99, "blocks": "columns:3"},
    ),
    "blocks, eight neighbours": (
        2,
        "weight",
        8,
        "locpmap",
        {"max_sweeps": 1, **VOTES, "n_samples": 99, "blocks": (2, 2)},
    ),
    "icm_iter": (3, "edges", 4, "icm_iter", {"max_sweeps": 1, "n_samples": 19}),
    "icm_iter of a table": (3, "table", 8, "icm_iter", {"max_sweeps": 1, "n_samples": 9, "drop": 0.4}),
    "icm": (4, "edges", 4, "icm", {"max_sweeps": 1}),
    "mean field": (4, "edges", 4, "mean_field", {"max_sweeps": 1}),
    "mean field of seven labels": (7, "edges", 4, "mean_field", {"max_sweeps": 1, "start": "unary"}),
    "mean field of a table": (3, "table", 4, "mean_field", {"max_sweeps": 1, "start": "unary"}),
}


def raster(n_labels: int, form: str, height: int = 26, width: int = 31) -> tuple[Any, Any]:
    """Return weak unaries and strong pairwise terms, so that labels depend on distant sites."""
    rng = np.random.default_rng(n_labels)
    unary = 0.5 * rng.normal(size=(height, width, n_labels)).astype(np.float32)
    sizes = [(height, width - 1), (height - 1, width)]
    if form == "weight":
        return unary, 1.5
    if form == "table":
        return unary, 2 * np.eye(n_labels) + rng.normal(size=(n_labels, n_labels))
    if form == "edges":
        return unary, tuple(2 * rng.random(size) for size in sizes)
    if form == "signed":
        return unary, tuple(2 * rng.normal(size=size) for size in sizes)
    if form == "tables":
        return unary, tuple(2 * rng.normal(size=(*size, n_labels, n_labels)) for size in sizes)
    tables = 2 * rng.normal(size=(2, n_labels, n_labels))
    return unary, lp.Factored(tuple(rng.random((*size, 2)) for size in sizes), tables)


def computed(tiled: TiledResult) -> list[Any]:
    return list(dask.compute(tiled.labels, tiled.probability, tiled.variance, tiled.entropy, scheduler="synchronous"))


def differences(tiled: TiledResult, whole: lp.Result) -> int:
    """Return the largest number of differing entries in any array of the result."""
    found = 0
    for name, one in zip(("labels", "probability", "variance", "entropy"), computed(tiled), strict=True):
        other = getattr(whole, name)
        assert (one is None) == (other is None)
        if one is not None:
            assert one.shape == other.shape
            assert one.dtype == (np.int16 if name == "labels" else other.dtype)
            found = max(found, int(np.count_nonzero(one != other)))
    return found


def differs(tiled: TiledResult, whole: lp.Result) -> bool:
    """Return whether an array of the result differs; compute rows of tiles until one does."""
    names = [name for name in ("labels", "probability", "variance", "entropy") if getattr(whole, name) is not None]
    for rows in da.core.slices_from_chunks(tiled.labels.chunks[:1]):
        parts = dask.compute(*(getattr(tiled, name)[rows] for name in names), scheduler="synchronous")
        if any((part != getattr(whole, name)[rows]).any() for name, part in zip(names, parts, strict=True)):
            return True
    return False


def with_reach(tiled: TiledResult, reach: Reach) -> TiledResult:
    return replace(tiled, tiling=replace(tiled.tiling, reach=reach))


@pytest.mark.parametrize("case", CASES)
def test_tiles_equal_the_whole_and_smaller_halos_do_not(case: str) -> None:
    n_labels, form, connectivity, method, options = CASES[case]
    unary, pairwise = raster(n_labels, form)
    whole = lp.infer(lp.Potentials.grid(unary, pairwise, connectivity=connectivity), method, seed=SEED, **options)
    # Tile corners lie on and between block boundaries, and on both colours.
    tiled = lp.infer_tiled(unary, pairwise, method, tile=(5, 7), seed=SEED, connectivity=connectivity, **options)
    assert differences(tiled, whole) == 0
    for smaller in mutants(tiled.tiling.reach):
        assert differs(with_reach(tiled, smaller), whole), smaller


def mutants(reach: Reach) -> Iterator[Reach]:
    """Yield reaches that are too small: by a row, a column, the conditional probabilities' neighbours, or blocks."""
    first, *others = reach.visits
    for change in ({"rows": first.rows - 1}, {"columns": first.columns - 1}):
        yield reach._replace(visits=(first._replace(**change), *others))
    if any(reach.near):
        yield reach._replace(near=(0, reach.near[1]))
        yield reach._replace(near=(reach.near[0], 0))
    if any(visit.block_height * visit.block_width > 1 for visit in reach.visits):
        yield reach._replace(visits=tuple(visit._replace(block_height=1, block_width=1) for visit in reach.visits))


@pytest.mark.parametrize("shape", [(1, 1), (1, 37), (37, 1), (2, 2), (13, 17), (31, 64)])
@pytest.mark.parametrize("n_labels", [2, 3])
def test_narrow_and_odd_shapes(shape: tuple[int, int], n_labels: int) -> None:
    unary, pairwise = raster(n_labels, "edges", *shape)
    whole = lp.infer(lp.Potentials.grid(unary, pairwise), seed=SEED, max_sweeps=3, n_samples=9)
    for tile in (1, (1, 64), 16, 1000) if max(shape) < 20 else ((3, 50), 16, 1000):
        assert differences(lp.infer_tiled(unary, pairwise, tile=tile, seed=SEED, max_sweeps=3, n_samples=9), whole) == 0


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize("n_labels", [2, 3])
def test_tiles_equal_the_whole_on_every_backend(backend: str, n_labels: int) -> None:
    unary, pairwise = raster(n_labels, "edges", 11, 12)
    options: dict[str, Any] = {"max_sweeps": 1, "n_samples": 4, "seed": SEED, "backend": backend}
    whole = lp.infer(lp.Potentials.grid(unary, pairwise), device="cpu", **options)
    assert differences(lp.infer_tiled(unary, pairwise, tile=5, **options), whole) == 0


@pytest.mark.parametrize("method", ["locpmap", "icm", "mean_field"])
def test_masked_sites_and_tiles_without_data(method: str) -> None:
    unary, pairwise = raster(3, "edges")
    mask = np.random.default_rng(0).random(unary.shape[:2]) < 0.3
    mask[10:, :25] = True
    whole = lp.infer(lp.Potentials.grid(unary, pairwise, mask=mask), method, seed=SEED, max_sweeps=2)
    tiled = lp.infer_tiled(unary, pairwise, method, tile=8, seed=SEED, mask=da.from_array(mask, 9), max_sweeps=2)
    assert differences(tiled, whole) == 0


def test_dask_arrays_are_read_lazily() -> None:
    unary, (right, down) = raster(3, "edges", 47, 41)
    whole = lp.infer(lp.Potentials.grid(unary, (right, down)), seed=SEED, max_sweeps=2)
    seen: list[int] = []

    def spy(block: Any) -> Any:
        seen.append(block.size)
        return block

    lazy = da.from_array(unary, chunks=(13, 19, 2)).map_blocks(spy, meta=unary[:0, :0, :0])
    weights = (da.from_array(right, chunks=(40, 3)), da.from_array(down, chunks=(7, 7)))
    tiled = lp.infer_tiled(lazy, weights, tile=16, seed=SEED, max_sweeps=2)
    labels = tiled.labels
    assert not seen
    assert labels.chunks == ((16, 16, 15), (16, 16, 9))
    np.testing.assert_array_equal(labels[40:, 35:].compute(scheduler="synchronous"), whole.labels[40:, 35:])
    assert 0 < sum(seen) < unary.size  # only the window of one tile was read


def test_kind_of_noise_depends_on_the_whole_raster() -> None:
    """Use one negative weight: tiles without negative weights would choose another kind of noise."""
    unary, (right, down) = raster(3, "edges")
    right[3, 3] = -0.5
    whole = lp.infer(lp.Potentials.grid(unary, (right, down)), seed=SEED, max_sweeps=2)
    tiled = lp.infer_tiled(unary, (right, down), tile=9, seed=SEED, max_sweeps=2)
    assert whole.noise == "plain"
    assert differences(tiled, whole) == 0
    lazy = tuple(da.from_array(weight, 9) for weight in (right, down))  # not in memory, so their sign is read
    assert differences(lp.infer_tiled(unary, lazy, tile=9, seed=SEED, max_sweeps=2), whole) == 0


def test_converged_is_false_where_a_site_still_changes() -> None:
    unary = np.zeros((1, 60, 2))
    unary[..., 0], unary[0, 30] = 0.05, (0, 100)
    weights = np.zeros((1, 59))
    weights[0, 30:] = 10 - 0.1 * np.arange(29)  # dominoes: from site 30 on, each site follows its left neighbour
    both = (weights, np.zeros((0, 60)))
    options: dict[str, Any] = {"max_sweeps": 2, "temperature": 0.0, "n_samples": 1, "start": "perturbed"}
    assert lp.infer(lp.Potentials.grid(unary, both), **options).status is lp.result.Status.CLIMBS_CUT
    tiled = lp.infer_tiled(unary, both, tile=(1, 20), **options)
    assert tiled.converged.compute(scheduler="synchronous").tolist() == [[True, False, True]]
    longer = lp.infer_tiled(unary, both, tile=(1, 20), **{**options, "max_sweeps": 40})
    assert longer.converged.compute(scheduler="synchronous").all()


def test_windows_cover_blocks_and_stay_inside_the_raster() -> None:
    tiling = Tiling(50, 40, 16, 16, Reach((Visit(2, 3, 1, 1),), 3, near=(1, 1)))
    assert tiling.shape == (4, 3)
    windows = [tile.window for tile in tiling]
    assert windows[0] == (0, 23, 0, 25)  # rows 17 → 18 + 1 → 20 + 1 → 22 + 1, columns 17 → 18 + 1 → 21 + 1 → 24 + 1
    assert windows[4] == (9, 39, 8, 40)
    assert windows[-1] == (41, 50, 23, 40)
    assert tiling.reach.halo == (7, 10)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("lbp", {}, "method is lbp, expected locpmap, icm, icm_iter or mean_field for tiles: its messages run until"),
    ("gibbs", {}, "method is gibbs, .* every sweep continues from the last one"),
    ("exact", {}, "method is exact, .* solves the whole raster in one step"),
    ("graph_cut", {}, "method is graph_cut"),
    ("icm_iter", {"start": np.zeros((4, 4), int)}, "start is an array"),
    ("locpmap", {"blocks": "rows"}, "blocks is 'rows', which reach across the whole raster .* such as 'rows:16'"),
    ("locpmap", {"blocks": "rows:4+columns"}, "which reach across the whole raster .* such as 'columns:16'"),
    ("locpmap", {"blocks": "rows:0"}, "blocks is 'rows:0', expected"),
    ("locpmap", {"blocks": "rows+columns"}, "blocks is 'rows.columns', which reach across"),
    ("locpmap", {"blocks": [[0, 1]]}, "blocks is a list of sites"),
    ("locpmap", {"blocks": (9, 9)}, r"blocks=\(9, 9\) has 3\^81 joint labellings"),
    ("locpmap", {"start": np.zeros((4, 4), int)}, "start is an array"),
    ("locpmap", {"titel": 5}, "unknown option of locpmap 'titel': did you mean 'tile'"),
    ("locpmap", {"tile": 0}, "a side of tile is 0"),
    ("locpmap", {"tile": (1, 2, 3)}, "tile is .*, expected one number or two .height, width"),
    ("locpmap", {"seed": -1}, "seed is -1"),
    ("locpmap", {"device": "auto"}, "unknown device 'auto': known are cpu, cuda"),
    ("locpmap", {"device": "gpu"}, "unknown device 'gpu': did you mean 'cuda'"),
    ("locpmap", {"device": "cuda:x"}, "unknown device 'cuda:x'"),
    ("locpmap", {"backend": "nunba"}, "unknown backend 'nunba': did you mean 'numba'"),
    ("locpmap", {"mask": np.zeros((3, 3), bool)}, r"mask has shape \(3, 3\), expected \(4, 4\) like unary"),
    ("locpmap", {"mask": np.zeros((4, 4))}, "mask has dtype float64, expected booleans"),
]


@pytest.mark.parametrize(("method", "options", "message"), REFUSED)
def test_unsupported_decoders_are_refused_with_the_reason(method: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        lp.infer_tiled(np.zeros((4, 4, 3)), 1.0, method, **options)


@pytest.mark.parametrize(
    ("unary", "pairwise", "message"),
    [
        (np.zeros((4, 4)), 1.0, r"unary has shape \(4, 4\), expected \(H, W, L\)"),
        (np.zeros((0, 4, 2)), 1.0, "unary is empty"),
        (np.ma.masked_equal(np.zeros((4, 4, 2)), 0), 1.0, "unary is a masked array.*: pass a mask as mask="),
        (np.zeros((4, 4, 2)), np.zeros((3, 3)), r"pairwise has shape \(3, 3\), expected a number, a table \(2, 2\)"),
        (
            np.zeros((4, 4, 2)),
            (np.zeros((4, 4)), 1.0),
            r"pairwise \(horizontal\) has shape \(4, 4\), expected \(4, 3\)",
        ),
        (np.zeros((4, 4, 2)), (1.0,), "pairwise has 1 entries, expected one per step: horizontal, vertical"),
        (np.zeros((4, 4, 2)), lp.Factored(np.zeros(3), np.zeros((1, 2, 2))), "the features of Factored has one array"),
        ("left", 1.0, "unary is a str, expected an array of NumPy, dask or zarr"),
        (np.zeros((4, 4, 2)), 1j, "pairwise is a complex, expected real numbers"),
        (np.array([["a"]]), 1.0, "unary has dtype"),
    ],
)
def test_wrong_shapes_are_refused_before_reading(unary: Any, pairwise: Any, message: str) -> None:
    with pytest.raises((InputError, lp.errors.InputTypeError), match=message):
        lp.infer_tiled(unary, pairwise)


def test_error_for_a_bad_number_names_the_window() -> None:
    unary = np.zeros((40, 40, 2))
    unary[33, 35] = np.nan
    tiled = lp.infer_tiled(unary, 1.0, tile=20, max_sweeps=2, **VOTES)
    with pytest.raises(InputError, match=r"rows 16 to 39 and columns 16 to 39: unary\[17, 19\] contains nan"):
        tiled.labels.compute(scheduler="synchronous")
    assert (tiled.labels[:15, :15].compute(scheduler="synchronous") >= 0).all()


@pytest.mark.parametrize("whole_fits", [True, False])
def test_kernel_is_chosen_by_the_size_of_the_whole_raster(whole_fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that tiles use the whole raster's kernel, since kernels for few and many sites round differently."""
    unary, pairwise = raster(2, "weight")
    used: list[str] = []

    kernel_of = CpuKernels.kernel_of

    def recorded(kernels: CpuKernels, operation: str) -> Any:
        used.extend([operation] if operation.startswith("climb") else [])
        return kernel_of(kernels, operation)

    monkeypatch.setattr(CpuKernels, "kernel_of", recorded)
    monkeypatch.setattr(sampling, "MAX_BIT_SITES", 26 * 31 if whole_fits else 26 * 31 - 1)
    whole = lp.infer(lp.Potentials.grid(unary, pairwise), seed=SEED, max_sweeps=1)
    tiled = lp.infer_tiled(unary, pairwise, tile=8, seed=SEED, max_sweeps=1)
    del used[:]  # drop the calls for the whole raster and for the example model
    assert differences(tiled, whole) == 0
    assert set(used) == {"climb_bits" if whole_fits else "climb_volume"}


def test_missing_gpu_is_not_checked_before_writing() -> None:
    assert lp.infer_tiled(np.zeros((4, 4, 3)), 1.0, device="cuda").decoding.least_weight == 1.0


def test_halo_depends_on_sweeps_connectivity_and_blocks() -> None:
    assert reach_of(lp.ICM(max_sweeps=3)).halo == (6, 6)
    assert reach_of(lp.MeanField(max_sweeps=3), 8).halo == (6, 12)
    assert reach_of(lp.LocPMAP(max_sweeps=3, **VOTES), ((0, 1), (1, 0), (0, 5), (3, -2))).halo == (18, 30)
    assert reach_of(lp.LocPMAP(max_sweeps=3, blocks=(1, 8), probability="conditional")).halo == (7, 49)
    assert reach_of(lp.LocPMAP(max_sweeps=1, blocks="rows:8+columns:5", **VOTES)).halo == (12, 18)


@pytest.mark.parametrize("blocks", ["sites", (2, 3), (5, 1), "rows:7", "columns:4", "rows:3+columns:5"])
@pytest.mark.parametrize("connectivity", [4, 8])
def test_windows_of_many_sweeps_match_a_loop_over_visits(blocks: Any, connectivity: int) -> None:
    """Compare with a loop over all visits, as described in the module docstring."""
    for n_sweeps in (1, 2, 3, 8):
        reach = reach_of(lp.LocPMAP(max_sweeps=n_sweeps, blocks=blocks, probability="conditional"), connectivity)
        for corner in np.ndindex(6, 7):
            core = Box(50 + corner[0], 60 + corner[0], 40 + corner[1], 52 + 2 * corner[1])
            box = core.grown(*reach.near)
            for visit in reach.visits * n_sweeps:
                box = box.in_blocks(visit.block_height, visit.block_width).grown(visit.rows, visit.columns)
            assert reach.window(core) == box
    unary, pairwise = raster(2, "weight", 9, 8)
    whole = lp.infer(lp.Potentials.grid(unary, pairwise), seed=SEED, max_sweeps=2**31 - 1, n_samples=3)
    tiled = lp.infer_tiled(unary, pairwise, tile=3, seed=SEED, max_sweeps=2**31 - 1, n_samples=3)
    assert differences(tiled, whole) == 0


def test_areas_of_samples_are_those_of_the_whole_raster() -> None:
    unary = np.random.default_rng(0).normal(size=(23, 31, 3))
    mask = np.zeros((23, 31), bool)
    mask[:10, :12] = True  # with one tile that is masked completely
    options: dict[str, Any] = {"n_samples": 7, "max_sweeps": 2, "keep_samples": True}
    tiled = lp.infer_tiled(unary, 0.7, tile=8, mask=mask, seed=SEED, **options)
    whole = lp.infer(lp.Potentials.grid(unary, 0.7, mask=mask), seed=SEED, **options)
    np.testing.assert_array_equal(tiled.areas.compute(), lp.measure(whole, "area").values)
    assert lp.infer_tiled(unary, 0.7, tile=8, max_sweeps=2).areas is None
