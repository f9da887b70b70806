"""Volumes: their edges and colours, every decoder on the flat model, the theorem, windows and bad input."""

from __future__ import annotations

import pickle
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from tests.oracles import slices, statistics
from tests.oracles.enumeration import Enumeration

import locpmap as lp
from locpmap.graphs import Volume
from locpmap.graphs.blocks import plan_blocks

SHAPES = [(1, 1, 1), (1, 1, 7), (1, 5, 3), (4, 1, 2), (2, 3, 4), (3, 4, 5)]
SPACING = (2.5, 1.0, 0.5)


def unaries(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def enumerated(pot: lp.Potentials, image: int = 0) -> Enumeration:
    """Enumerate one image of Potts potentials, from its flat arrays."""
    weights = np.broadcast_to(
        pot.model.features[image if len(pot.model.features) > 1 else 0, :, 0], len(pot.model.edges)
    )
    return Enumeration(pot.unary[image], pot.model.edges, weights[:, None, None] * np.eye(pot.n_labels))


@pytest.mark.parametrize("connectivity", [6, 26])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_edges_join_every_pair_of_neighbours_once(shape: tuple[int, int, int], connectivity: int) -> None:
    volume = Volume(*shape, connectivity)
    sites: list[Any] = list(np.ndindex(shape))
    expected = {
        pair
        for pair in combinations(range(len(sites)), 2)
        if slices.neighbours(sites[pair[0]], sites[pair[1]], connectivity)
    }
    edges = volume.edges()
    assert len(edges) == len(expected) == sum(volume.direction_sizes)
    assert {tuple(sorted(pair)) for pair in edges.tolist()} == expected
    steps = np.repeat(volume.steps, volume.direction_sizes, axis=0)
    np.testing.assert_array_equal(np.array(sites)[edges[:, 1]] - np.array(sites)[edges[:, 0]], steps)


@pytest.mark.parametrize("connectivity", [6, 26])
@pytest.mark.parametrize("corner", [(0, 0, 0), (3, 4, 5), (1, 0, 1)])
def test_neighbours_have_different_colours(connectivity: int, corner: tuple[int, int, int]) -> None:
    volume = Volume(3, 4, 5, connectivity, *corner)
    colours, edges = volume.colours(), volume.edges()
    assert (colours[edges[:, 0]] != colours[edges[:, 1]]).all()
    assert set(colours.tolist()) == set(range(2 if connectivity == 6 else 8))


def test_sites_of_a_window_have_the_numbers_and_colours_of_the_whole() -> None:
    whole, part = Volume(5, 6, 7, 26), Volume(2, 3, 4, 26, 2, 1, 3, full_height=6, full_width=7, full_depth=5)
    inside = np.s_[2:4, 1:4, 3:7]
    np.testing.assert_array_equal(part.site_ids(), whole.site_ids().reshape(whole.shape)[inside].ravel())
    np.testing.assert_array_equal(part.colours(), whole.colours().reshape(whole.shape)[inside].ravel())
    assert part.whole_sites == whole.n_sites


@pytest.mark.parametrize("connectivity", [6, 26])
@pytest.mark.parametrize("spacing", [None, SPACING])
def test_log_partition_equals_that_of_a_transfer_matrix(connectivity: int, spacing: Any) -> None:
    unary = unaries(2, 2, 9, 2)
    pot = lp.Potentials.volume(unary, 0.7, connectivity=connectivity, spacing=spacing)
    expected = slices.log_partition(unary, 0.7, connectivity, spacing)
    assert lp.infer(pot, "exact").log_partition == pytest.approx(expected, rel=1e-12)


def test_spacing_divides_by_the_length_of_the_step() -> None:
    shape = (3, 2, 2)
    pot = lp.Potentials.volume(np.zeros((*shape, 3)), 2.0, connectivity=26, spacing=SPACING)
    sites = list(np.ndindex(shape))
    expected = [slices.pair_weight(sites[i], sites[j], 2.0, SPACING) for i, j in pot.structure.edges()]
    np.testing.assert_allclose(pot.model.features[0, :, 0], expected, rtol=1e-12)


def pairwise_forms(rng: np.random.Generator, volume: Volume, n_labels: int) -> dict[str, Any]:
    tables = rng.normal(size=(2, n_labels, n_labels))
    shapes = volume.direction_shapes
    return {
        "weight": 0.6,
        "table": tables[0],
        "weights of steps": [0.3 + 0.1 * d for d in range(len(shapes))],
        "weights of edges": [rng.normal(size=shape) for shape in shapes],
        "tables of steps": [rng.normal(size=(n_labels, n_labels)) for _ in shapes],
        "tables of edges": [rng.normal(size=(*shape, n_labels, n_labels)) for shape in shapes],
        "factored": lp.Factored([rng.normal(size=(*shape, 2)) for shape in shapes], tables),
    }


@pytest.mark.parametrize("connectivity", [6, 26])
@pytest.mark.parametrize("form", pairwise_forms(np.random.default_rng(0), Volume(1, 1, 1), 2))
def test_every_form_of_pairwise_scores_with_spacing(form: str, connectivity: int) -> None:
    rng, volume = np.random.default_rng(1), Volume(2, 2, 3, connectivity)
    unary, pairwise = unaries(*volume.shape, 2), pairwise_forms(rng, volume, 2)[form]
    plain = lp.Potentials.volume(unary, pairwise, connectivity=connectivity)
    spaced = lp.Potentials.volume(unary, pairwise, connectivity=connectivity, spacing=SPACING)
    sites = list(np.ndindex(volume.shape))
    factors = [slices.pair_weight(sites[i], sites[j], 1.0, SPACING) for i, j in volume.edges()]
    labels = rng.integers(0, 2, volume.shape)
    y, ends = labels.ravel(), volume.edges()
    tables = (plain.model.features[..., None, None] * plain.model.tables).sum(axis=2)[0]
    tables = np.broadcast_to(tables, (len(ends), 2, 2))
    of_edges = tables[np.arange(len(ends)), y[ends[:, 0]], y[ends[:, 1]]]
    own = np.take_along_axis(unary, labels[..., None], axis=-1).sum()
    assert plain.score(labels) == pytest.approx(own + of_edges.sum())
    assert spaced.score(labels) == pytest.approx(own + (of_edges * factors).sum())


@pytest.mark.parametrize("connectivity", [6, 26])
def test_decoders_agree_with_enumeration(connectivity: int) -> None:
    pot = lp.Potentials.volume(unaries(2, 2, 3, 2, seed=3), 0.15, connectivity=connectivity, spacing=SPACING)
    truth = enumerated(pot)
    exact = lp.infer(pot, "exact")
    np.testing.assert_allclose(exact.probability.reshape(12, 2), truth.marginals, atol=1e-12)
    assert exact.log_partition == pytest.approx(truth.log_partition)
    for method in ("graph_cut", "annealing", "max_product"):
        labels = lp.infer(pot, method, seed=0).labels
        np.testing.assert_array_equal(labels.ravel(), truth.map_labels, err_msg=method)
    for method, error in (("lbp", 0.01), ("mean_field", 0.05), ("trw", 0.05)):
        found = lp.infer(pot, method).probability.reshape(12, 2)
        np.testing.assert_allclose(found, truth.marginals, atol=error, err_msg=method)
    gibbs = lp.infer(pot, "gibbs", n_samples=4000, seed=0).probability.reshape(12, 2)
    np.testing.assert_allclose(gibbs, truth.marginals, atol=0.03)
    sampled = lp.infer(pot, "perturb_and_map", n_samples=4000, seed=0).probability.reshape(12, 2)
    np.testing.assert_allclose(sampled, truth.marginals, atol=0.06)


DECODERS = (
    *("locpmap", "icm", "icm_iter", "lbp", "max_product", "mean_field", "gibbs", "annealing", "trw", "graph_cut"),
    *("perturb_and_map", "perturb_and_max_product", "exact"),
)


@pytest.mark.parametrize("method", DECODERS)
@pytest.mark.parametrize("n_labels", [2, 3])
def test_decoders_treat_a_volume_as_the_graph_of_its_edges(method: str, n_labels: int) -> None:
    volume = Volume(2, 2, 2, 26)
    unary, mask = unaries(2, *volume.shape, n_labels), np.zeros(volume.shape, bool)
    mask[1, 0, 1] = True
    on_volume = lp.Potentials.volume(unary, 0.4, connectivity=26, mask=mask)
    weights = np.full(len(volume.edges()), 0.4)
    flat = unary.reshape(2, -1, n_labels)
    on_graph = lp.Potentials.graph(flat, volume.edges(), weights, mask=mask.ravel())
    assert on_volume.score(np.where(mask, -1, 0)[None].repeat(2, 0)).tolist() == pytest.approx(
        on_graph.score(np.where(mask, -1, 0).ravel()[None].repeat(2, 0)).tolist()
    )
    if method in ("exact", "graph_cut", "max_product", "perturb_and_map"):  # independent of the order of updates
        result, other = lp.infer(on_volume, method, seed=1), lp.infer(on_graph, method, seed=1)
        np.testing.assert_array_equal(result.labels.reshape(2, -1), other.labels)
    result = lp.infer(on_volume, method, seed=1)
    assert result.labels.shape == (2, *volume.shape)
    assert (result.labels[:, mask] == -1).all()
    if result.probability is not None:
        assert result.probability.shape == (2, *volume.shape, n_labels)


@pytest.mark.parametrize(
    "blocks", ["rows", "columns", "rows+columns", "rows:2", (1, 2, 2), [[0, 1, 5], [7, 8]]], ids=str
)
@pytest.mark.parametrize("connectivity", [6, 26])
def test_blocks(blocks: Any, connectivity: int) -> None:
    """Blocks partition the sites, and without noise a climb ends where no block can improve."""
    pot = lp.Potentials.volume(unaries(3, 3, 4, 2), 0.5, connectivity=connectivity)
    plan = plan_blocks(blocks, pot.structure, 2)
    np.testing.assert_array_equal(
        np.sort(plan.site.reshape(-1, 36)), np.arange(36)[None].repeat(len(plan.site) // 36, 0)
    )
    result = lp.infer(pot, lp.LocPMAP(n_samples=5, blocks=blocks, temperature=0, keep_samples=True), seed=0)
    labels = result.samples[0].ravel()
    best = pot.score(labels.reshape(pot.structure.shape))
    for begin, stop in zip(plan.ptr[:-1], plan.ptr[1:], strict=True):
        sites = plan.site[begin:stop]
        for change in np.ndindex((2,) * len(sites)):
            other = labels.copy()
            other[sites] = change
            assert pot.score(other.reshape(pot.structure.shape)) <= best + 1e-9


def test_blocks_of_one_colour_share_no_edge() -> None:
    """A window updates lines in the order of the whole volume."""
    whole = plan_blocks("columns", Volume(3, 4, 3, 26), 2)
    z, _, x = np.unravel_index(whole.site[whole.ptr[:-1]], (3, 4, 3))
    np.testing.assert_array_equal(2 * (z % 2) + x % 2, np.sort(2 * (z % 2) + x % 2))


@pytest.mark.parametrize(("n_labels", "connectivity"), [(2, 6), (2, 26), (3, 6)])
def test_theorem(n_labels: int, connectivity: int) -> None:
    """A climb that starts at y stays there iff y is a local maximum: with probability Π_i p(y_i | other labels)."""
    model = lp.Potentials.volume(unaries(2, 2, 2, n_labels, seed=4), 0.5, connectivity=connectivity, spacing=SPACING)
    truth, n_samples = enumerated(model), 400 * 2 ** (4 - n_labels)
    stays = truth.block_product([[i] for i in range(8)])
    some = n_samples * stays > statistics.MIN_EXPECTED  # others are not tested
    start = truth.labellings[some].reshape(-1, 2, 2, 2)
    unary = np.broadcast_to(model.unary[0].reshape(2, 2, 2, -1), (len(start), 2, 2, 2, n_labels))
    pot = lp.Potentials.volume(unary, 0.5, connectivity=connectivity, spacing=SPACING)
    drawn = lp.infer(pot, lp.LocPMAP(n_samples, start=start, keep_samples=True), seed=5).samples
    statistics.check_events((drawn == start[None]).all(axis=(2, 3, 4)).T, stays[some])


@pytest.mark.parametrize("connectivity", [6, 26])
@pytest.mark.parametrize("n_labels", [2, 3])
def test_windows_give_the_samples_of_the_whole(n_labels: int, connectivity: int) -> None:
    """The first sweep of a window's sites whose neighbours are inside equals that of the whole volume."""
    shape, halo = (10, 11, 12), 2 if connectivity == 6 else 8
    unary = unaries(*shape, n_labels).astype(np.float32)
    decoder = lp.LocPMAP(n_samples=3, max_sweeps=1, keep_samples=True)
    whole = lp.infer(lp.Potentials.volume(unary, 0.5, connectivity=connectivity), decoder, seed=2).samples
    window = lp.Potentials.volume(unary[1:, 2:, 1:], 0.5, connectivity=connectivity, window=(1, 2, 1, 11, 12))
    part = lp.infer(window, decoder, seed=2).samples
    np.testing.assert_array_equal(part[:, halo:, halo:, halo:], whole[:, 1 + halo :, 2 + halo :, 1 + halo :])


def test_quantities_of_volumes() -> None:
    labels = np.zeros((3, 4, 5), int)
    labels[0, 0, :2] = 1
    labels[2, 3, 4] = 1
    unary = np.zeros((3, 4, 5, 2))
    np.put_along_axis(unary, labels[..., None], 50.0, axis=-1)
    pot = lp.Potentials.volume(unary, 0.1, connectivity=26)
    small = lp.LocPMAP(n_samples=3)
    assert lp.measure(pot, "area", small).mean.tolist() == [57, 3]
    assert lp.measure(pot, "components", small).mean.tolist() == [1, 2]
    assert lp.measure(pot, "perimeter", small).mean.tolist() == [8, 8]
    assert lp.measure(pot, lambda y: float((y[0] == 1).sum()), small).mean.tolist() == [2]


def test_streams_and_pickles() -> None:
    pot = lp.Potentials.volume(unaries(2, 3, 4, 3), 0.5, window=(1, 1, 1, 9, 9))
    decoder = lp.LocPMAP(n_samples=20, keep_samples=True)
    parts = np.stack(list(lp.samples(pot, decoder, seed=3, chunk=8)))
    np.testing.assert_array_equal(parts, lp.infer(pot, decoder, seed=3).samples)
    again = pickle.loads(pickle.dumps(pot))
    np.testing.assert_array_equal(lp.infer(again, decoder, seed=3).samples, parts)
    assert repr(pot) == "<Potentials: volume 2×3×4, 3 labels, Potts weights, float64>"


BAD: dict[str, dict[str, Any]] = {
    "spacing is (0, 1, 1)": {"spacing": (0, 1, 1)},
    "spacing is (1, -1, 1)": {"spacing": (1, -1, 1)},
    "spacing is (1, nan, 1)": {"spacing": (1, np.nan, 1)},
    "spacing is (1, 1)": {"spacing": (1, 1)},
    "spacing is '1 mm'": {"spacing": "1 mm"},
    "spacing is 1e-300": {"spacing": 1e-300},
    "spacing is (1, 1, 1e+300)": {"spacing": (1, 1, 1e300)},
    "connectivity is 4": {"connectivity": 4},
    "connectivity is (": {"connectivity": ((0, 0, 1),)},
    "unary has shape (3, 4, 2), expected (D, H, W, L)": {"unary": np.zeros((3, 4, 2))},
    "unary is empty": {"unary": np.zeros((3, 4, 0, 2))},
    "mask has shape (2, 3)": {"mask": np.zeros((2, 3), bool)},
    "window is (0, 0, 3)": {"window": (0, 0, 3)},
    "full_width is 2": {"window": (0, 0, 0, 9, 2)},
    "the window ends in plane": {"window": (2**24, 0, 0, 2**14, 2**14)},
    "pairwise has 2 entries, expected one per step: step (0, 0, 1)": {"pairwise": (1.0, 2.0)},
    "pairwise has shapes": {"pairwise": (np.zeros((2, 3, 4)), 1.0, 1.0)},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_raises_one_sentence(message: str) -> None:
    options: dict[str, Any] = {"unary": np.zeros((2, 3, 4, 2)), "pairwise": 1.0, **BAD[message]}
    with pytest.raises(lp.LocpmapError) as raised:
        lp.Potentials.volume(options.pop("unary"), options.pop("pairwise"), **options)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("blocks", "message"), [((2, 2), "is a tile of 2 sides, expected 3"), ((9, 9, 9), "joint labellings")]
)
def test_bad_tiles(blocks: Any, message: str) -> None:
    pot = lp.Potentials.volume(np.zeros((2, 3, 4, 2)), 1.0)
    with pytest.raises(lp.LocpmapError, match=message):
        lp.infer(pot, lp.LocPMAP(blocks=blocks))
