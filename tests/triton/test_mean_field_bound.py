"""The bound of mean field in Triton matches the reference, term by term."""

from __future__ import annotations

import numpy as np
import pytest
from tests.triton.odd_grids import FORMS, GRAPHS, Array, odd_graph, odd_grid, random_beliefs
from tests.triton.placing import place, place_model

from locpmap.kernels.reference.mean_field_bound import mean_field_bound as reference
from locpmap.kernels.triton.climb.mean_field import mean_field_bound
from locpmap.potentials import Potentials


def compare(potentials: Potentials, beliefs: Array, within: float = 1e-9) -> Array:
    """Compare the terms (N, S) with the reference, and return them."""
    terms = np.empty(beliefs.shape[:2])
    mine = mean_field_bound(place_model(potentials), place(beliefs))
    reference(potentials.model, beliefs, terms, 0, len(beliefs), 0, beliefs.shape[1])
    np.testing.assert_allclose(mine.cpu().numpy(), terms, rtol=0, atol=within)
    return terms


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_labels", [1, 2, 3, 5])
def test_terms_match_the_reference(n_labels: int, form: str) -> None:
    potentials = odd_grid((5, 7), n_labels, form)
    terms = compare(potentials, random_beliefs(potentials))
    assert (terms == -np.inf).any() == (form == "hard tables")


@pytest.mark.parametrize("form", ["weights", "table"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1)], ids=str)
def test_images_of_one_row_or_column(shape: tuple[int, int], form: str) -> None:
    potentials = odd_grid(shape, 2, form)
    compare(potentials, random_beliefs(potentials))


@pytest.mark.parametrize(("structure", "form"), GRAPHS)
def test_graphs_of_uneven_degree(structure: str, form: str) -> None:
    potentials = odd_graph(structure, 3, form)
    compare(potentials, random_beliefs(potentials))


def test_more_sites_than_one_program() -> None:
    potentials = odd_grid((13, 11), 9, "weights")
    compare(potentials, random_beliefs(potentials))


def test_certain_beliefs_score_only_their_labels() -> None:
    """With one label per site, terms are -inf where a pair of labels is forbidden, and finite elsewhere."""
    potentials = odd_grid((5, 7), 3, "hard tables")
    beliefs = np.eye(3)[potentials.model.unary.argmax(axis=2)]
    terms = compare(potentials, beliefs)
    assert 0 < (terms == -np.inf).mean() < 1


def test_belief_in_a_forbidden_label_gives_minus_infinity() -> None:
    potentials = odd_grid((5, 7), 3, "weights")
    terms = compare(potentials, np.full((2, 35, 3), 1 / 3))
    np.testing.assert_array_equal(terms == -np.inf, (potentials.model.unary == -np.inf).any(axis=2))


@pytest.mark.parametrize("form", FORMS)
def test_single_precision_model_matches_the_reference(form: str) -> None:
    potentials = odd_grid((5, 7), 3, form, np.float32)
    compare(potentials, random_beliefs(potentials), 5e-6)
