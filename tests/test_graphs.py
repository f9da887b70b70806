"""Grids and graphs: edges, colours, windows and neighbour lists compared with plain loops."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from tests.oracles.models import STRUCTURES, structure_edges
from tests.support.graph_checks import check_independent, check_window
from tests.support.strategies import graphs

from locpmap.errors import InputError, InputTypeError, LocpmapError
from locpmap.graphs import Graph, Grid, Volume
from locpmap.graphs.adjacency import colour_classes, greedy_colours

SHAPES = [(1, 1), (1, 2), (1, 5), (5, 1), (2, 2), (3, 4), (5, 3)]
STEPS = {4: [(0, 1), (1, 0)], 8: [(0, 1), (1, 0), (1, 1), (1, -1)]}


# grids


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("connectivity", [4, 8])
def test_grid_edges_are_ordered_by_direction_then_raster(shape: tuple[int, int], connectivity: int) -> None:
    height, width = shape
    expected = [
        [r * width + c, (r + dr) * width + c + dc]
        for dr, dc in STEPS[connectivity]
        for r in range(height)
        for c in range(width)
        if r + dr < height and 0 <= c + dc < width
    ]
    grid = Grid(height, width, connectivity)
    assert grid.edges().tolist() == expected
    assert grid.edges().dtype == np.int32
    assert sum(h * w for h, w in grid.direction_shapes) == len(expected)


def test_edge_values_are_indexed_by_position() -> None:
    """horizontal[r, c] joins (r, c) and (r, c + 1); vertical[r, c] joins (r, c) and (r + 1, c)."""
    grid = Grid(3, 4, 8)
    number = np.arange(12).reshape(3, 4)
    ends = [(number[:, :-1], number[:, 1:]), (number[:-1], number[1:])]
    ends += [(number[:-1, :-1], number[1:, 1:]), (number[:-1, 1:], number[1:, :-1])]
    parts = np.split(grid.edges(), np.cumsum([h * w for h, w in grid.direction_shapes])[:-1])
    for part, shape, (first, second) in zip(parts, grid.direction_shapes, ends, strict=True):
        np.testing.assert_array_equal(part[:, 0].reshape(shape), first)
        np.testing.assert_array_equal(part[:, 1].reshape(shape), second)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("connectivity", [4, 8])
def test_grid_colours_are_independent_and_few(shape: tuple[int, int], connectivity: int) -> None:
    grid = Grid(*shape, connectivity)
    colours = grid.colours()
    check_independent(grid.edges(), colours)
    assert np.unique(colours).tolist() == list(range(colours.max() + 1))
    assert colours.max() < (2 if connectivity == 4 else 4)


def test_colours_of_four_neighbours_are_red_black() -> None:
    assert Grid(3, 3).colours().reshape(3, 3).tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize("connectivity", [4, 8])
@pytest.mark.parametrize(("row", "column", "height", "width"), [(0, 0, 3, 3), (1, 2, 4, 3), (2, 1, 1, 5), (3, 3, 3, 3)])
def test_window_matches_the_whole_grid(connectivity: int, row: int, column: int, height: int, width: int) -> None:
    check_window(Grid(height, width, connectivity, row, column, 9), Grid(7, 9, connectivity))


def test_default_full_width_ends_at_the_window() -> None:
    np.testing.assert_array_equal(Grid(2, 2, row=1, column=3).site_ids(), [8, 9, 13, 14])


def test_colours_of_a_window_have_no_gaps() -> None:
    assert Grid(1, 1, row=0, column=1, full_width=4).colours().tolist() == [0]
    assert Grid(2, 1, 8, row=0, column=1, full_width=4).colours().tolist() == [0, 1]


def test_site_numbers_of_huge_grids_do_not_overflow() -> None:
    window = Grid(1, 2, row=100_000, column=0, full_width=100_000)
    assert window.site_ids().tolist() == [10**10, 10**10 + 1]


# neighbour lists and colouring


@given(graphs())
def test_neighbour_lists_agree_with_the_edges(graph: Graph) -> None:
    near, edges = graph.adjacency(), graph.edges()
    for site in range(graph.n_sites):
        slots = slice(near.indptr[site], near.indptr[site + 1])
        expected = [(e, end) for e, pair in enumerate(edges.tolist()) for end in (0, 1) if pair[end] == site]
        assert sorted(zip(near.edge[slots].tolist(), near.end[slots].tolist(), strict=True)) == expected
        for edge, end, other in zip(near.edge[slots], near.end[slots], near.neighbour[slots], strict=True):
            assert edges[edge, end] == site
            assert edges[edge, 1 - end] == other


@given(graphs())
def test_reverse_finds_the_same_edge_in_the_other_list(graph: Graph) -> None:
    near = graph.adjacency()
    owner = np.repeat(np.arange(graph.n_sites), np.diff(near.indptr))
    np.testing.assert_array_equal(near.neighbour[near.reverse], owner)
    np.testing.assert_array_equal(near.edge[near.reverse], near.edge)
    np.testing.assert_array_equal(near.end[near.reverse], 1 - near.end)
    np.testing.assert_array_equal(near.reverse[near.reverse], np.arange(2 * len(graph.edges())))


@given(graphs())
def test_greedy_colouring_is_proper_and_limited_by_the_degree(graph: Graph) -> None:
    colours = graph.colours()
    check_independent(graph.edges(), colours)
    assert colours.max() <= np.diff(graph.adjacency().indptr).max()
    assert np.unique(colours).tolist() == list(range(colours.max() + 1))


@pytest.mark.parametrize("structure", STRUCTURES)
def test_colours_of_known_structures(structure: str) -> None:
    edges = structure_edges(structure, 9, np.random.default_rng(0))
    n_colours = {"grid": 2, "full": 9, "star": 2, "tree": 2, "chain": 2, "cycle": 3}[structure]
    assert Graph(9, edges).colours().max() + 1 == n_colours


@given(graphs())
def test_colour_classes_partition_the_sites_and_contain_no_edge(graph: Graph) -> None:
    colours = graph.colours()
    order, class_ptr = colour_classes(colours)
    np.testing.assert_array_equal(np.sort(order), np.arange(graph.n_sites))
    assert (class_ptr[0], class_ptr[-1]) == (0, graph.n_sites)
    for colour, (begin, stop) in enumerate(itertools.pairwise(class_ptr)):
        np.testing.assert_array_equal(order[begin:stop], np.flatnonzero(colours == colour))
        assert not np.isin(graph.edges(), order[begin:stop]).all(axis=1).any()


def test_graph_without_edges() -> None:
    for edges in (np.zeros((0, 2), np.int64), np.zeros(0)):
        graph = Graph(3, edges)
        assert graph.edges().shape == (0, 2)
        assert graph.colours().tolist() == [0, 0, 0]
        assert graph.adjacency().indptr.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "box",
    [
        *(Grid(height, width, near) for height, width in ((1, 1), (1, 5), (5, 1), (2, 2), (3, 4)) for near in (4, 8)),
        *(Volume(*shape, near) for shape in ((1, 1, 1), (1, 2, 1), (1, 3, 4), (3, 2, 5)) for near in (6, 26)),
    ],
    ids=str,
)
def test_neighbours_in_boxes_by_coordinates(box: Grid | Volume) -> None:
    near, places = box.adjacency(), np.array(list(np.ndindex(box.shape)))
    for site, place in enumerate(places):
        distance = np.abs(places - place)
        expected = distance.sum(axis=1) == 1 if box.connectivity in (4, 6) else distance.max(axis=1) == 1
        slots = slice(near.indptr[site], near.indptr[site + 1])
        assert sorted(near.neighbour[slots]) == np.flatnonzero(expected).tolist()
    check_independent(box.edges(), greedy_colours(*near[:2]))
    check_independent(box.edges(), box.colours())


def test_graph_edges_are_copied_and_read_only() -> None:
    given_edges = np.array([[3, 0], [1, 2]], np.uint8)
    graph = Graph(4, given_edges)
    given_edges[:] = 0
    assert graph.edges().tolist() == [[3, 0], [1, 2]]
    assert graph.edges().dtype == np.int32
    with pytest.raises(ValueError, match="read-only"):
        graph.edges()[0, 0] = 1


# errors


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([[0, 1], [2, 2]], "edges[1] joins site 2 to itself, expected two different sites"),
        ([[0, 1], [1, 2], [0, 1]], "edges holds the pair (0, 1) more than once, expected each edge once"),
        ([[0, 1], [1, 2], [2, 1]], "edges holds the pair (1, 2) more than once, expected each edge once"),
        ([[0, 1], [1, 3]], "edges[1] is (1, 3), expected sites from 0 to 2"),
        ([[-1, 1]], "edges[0] is (-1, 1), expected sites from 0 to 2"),
        ([[0, 1, 2]], "edges has shape (1, 3), expected (E, 2)"),
        ([0, 1], "edges has shape (2,), expected (E, 2)"),
        (np.zeros((0, 5, 7), int), "edges has shape (0, 5, 7), expected (E, 2)"),
        (np.zeros((2, 0), int), "edges has shape (2, 0), expected (E, 2)"),
    ],
)
def test_bad_edges_raise_errors(edges: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        Graph(3, edges)
    assert str(error.value) == message


@pytest.mark.parametrize("edges", [[[0.0, 1.0]], [["0", "1"]], [[None, 1]], [[True, False]]])
def test_non_integer_edges_raise_errors(edges: Any) -> None:
    with pytest.raises(InputTypeError, match="edges has dtype"):
        Graph(3, edges)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"connectivity": 6}, "connectivity is 6, expected 4 or 8"),
        ({"row": -1}, "the window's row is -1, expected a whole number of at least 0"),
        ({"column": 2, "full_width": 4}, "full_width is 4, expected at least column + width = 5"),
        ({"height": 0}, "the grid's height is 0, expected a whole number of at least 1"),
        ({"height": 2**16, "width": 2**15}, "the grid has 2147483648 sites, expected fewer than 2^31"),
        ({"height": 2.5}, "the grid's height is 2.5, expected a whole number of at least 1"),
        ({"width": "3"}, "the grid's width is '3', expected a whole number of at least 1"),
        ({"row": True}, "the window's row is True, expected a whole number of at least 0"),
        ({"row": None}, "the window's row is None, expected a whole number of at least 0"),
        ({"column": 10**400}, "the window's column is 1000"),
        ({"connectivity": np.array([4, 8])}, "connectivity is array([4, 8]), expected 4 or 8"),
        ({"row": 2**40 - 1, "full_width": 2**8}, "the window ends in row 1099511627777 of a grid 256 wide, expected"),
    ],
)
def test_bad_grids_raise_errors(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(LocpmapError) as error:
        Grid(**({"height": 2, "width": 3} | arguments))
    assert str(error.value).startswith(message)


def test_graph_needs_at_least_one_site() -> None:
    with pytest.raises(InputError, match="n_sites is 0, expected a whole number of at least 1"):
        Graph(0, [])
    for wrong in ("a", 3.0, True, None):
        with pytest.raises(InputTypeError, match="n_sites is"):
            Graph(wrong, [])  # type: ignore[arg-type]


def test_numpy_integers_do_not_overflow() -> None:
    """(200 + 100) · 200 exceeds a byte; the last allowed window ends at site 2^48."""
    grid = Grid(np.uint8(100), np.uint8(2), np.uint8(8), np.uint8(200), np.uint8(198), np.uint8(200))  # type: ignore[arg-type]
    assert grid.site_ids()[-1] == 300 * 200 - 1
    assert Graph(np.int8(100), [[0, 99]]).n_sites * 2 == 200  # type: ignore[arg-type]
    assert Grid(2, 3, row=2**40 - 2, full_width=2**8).site_ids()[-1] < 2**48
