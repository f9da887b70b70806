"""The theorem Pr(y ∈ Loc[θ~; B]) = Π_β p(y_β | y_¬β) for every y, by Monte Carlo with the library's noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy.special import expit, softmax
from tests.oracles import statistics
from tests.oracles.enumeration import Enumeration
from tests.oracles.local_maxima import local_maxima
from tests.oracles.models import Floats, PairwiseModel, random_grid

from locpmap.kernels.reference import noise

KEY = (20170420, 7)
N_DRAWS = 20_000
PERTURB: dict[str, Callable[..., Floats]] = {"plain": noise.perturbed_plain, "lazy": noise.perturbed_lazy}
Blocks = Sequence[Sequence[int]]

# blocks of a 3×3 grid
DOMINOES = [[0, 1], [2, 5], [3, 4], [6, 7], [8]]
ROWS = [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
TILES = [[0, 1, 3, 4], [2, 5], [6, 7], [8]]
SCATTERED = [[0, 8], [2, 4, 6]]  # neither connected nor covering: the theorem requires neither


def single_sites(model: Enumeration) -> Blocks:
    return [[i] for i in range(model.n_sites)]


def site_noise(scheme: str, unary: Floats, n_draws: int = N_DRAWS, axis: str = "site") -> list[Floats]:
    """Return the noise of every site, each (n_draws, L); draws differ in one coordinate of the noise."""
    n_sites, n_labels = unary.shape
    perturb = PERTURB[scheme]
    if axis == "site":
        tiled = np.tile(unary, (n_draws, 1))
        perturbed = perturb(tiled, 1.0, KEY, 0, 0, np.arange(len(tiled))).reshape(n_draws, n_sites, n_labels)
    else:
        coordinates = [(0, d) if axis == "sample" else (d, 0) for d in range(n_draws)]
        sites = np.arange(n_sites)
        perturbed = np.stack([perturb(unary, 1.0, KEY, image, sample, sites) for image, sample in coordinates])
    return list(np.moveaxis(perturbed - unary, 1, 0))


def joint_noise(model: Enumeration, blocks: Blocks) -> list[Floats]:
    """Return noise on the joint labellings of each block, (N_DRAWS, L**|block|), keyed by its first site."""
    first = model.n_sites * np.arange(N_DRAWS)
    return [noise.gumbel(KEY, 0, 0, first + min(block), model.n_labels ** len(block)) for block in blocks]


def check_theorem(model: Enumeration, blocks: Blocks, perturbation: Sequence[Floats]) -> None:
    """Check the frequency of every local maximum, their mean number Z_B, and that there is always one."""
    maxima = local_maxima(model, blocks, perturbation)
    n_maxima = maxima.sum(axis=0)
    assert n_maxima.min() >= 1
    statistics.check_mean(n_maxima, model.expected_maxima(blocks))
    statistics.check_events(maxima, model.block_product(blocks))


@pytest.fixture(scope="module")
def grid() -> Enumeration:
    return Enumeration(*random_grid(3, 3, 2, coupling=0.8, seed=2).flatten())


@pytest.fixture(scope="module")
def three_labels() -> Enumeration:
    return Enumeration(*random_grid(2, 3, 3, coupling=0.8, seed=5).flatten())


@pytest.mark.parametrize("scheme", PERTURB)
@pytest.mark.parametrize("name", ["grid", "three_labels"])
def test_theorem_for_single_sites(scheme: str, name: str, request: pytest.FixtureRequest) -> None:
    model: Enumeration = request.getfixturevalue(name)
    check_theorem(model, single_sites(model), site_noise(scheme, model.unary))


@pytest.mark.parametrize("scheme", PERTURB)
@pytest.mark.parametrize("axis", ["sample", "image"])
@pytest.mark.parametrize("name", ["grid", "three_labels"])
def test_theorem_over_samples_and_images(scheme: str, axis: str, name: str, request: pytest.FixtureRequest) -> None:
    model: Enumeration = request.getfixturevalue(name)
    check_theorem(model, single_sites(model), site_noise(scheme, model.unary, 1000, axis))


@pytest.mark.parametrize("blocks", [DOMINOES, ROWS, TILES, SCATTERED], ids=["dominoes", "rows", "tiles", "scattered"])
def test_theorem_for_larger_blocks(grid: Enumeration, blocks: Blocks) -> None:
    check_theorem(grid, blocks, joint_noise(grid, blocks))


def test_one_block_of_all_sites_samples_the_model(grid: Enumeration) -> None:
    """Global Perturb-and-MAP with noise on every labelling has exactly one maximum, distributed as p."""
    blocks = [range(9)]
    maxima = local_maxima(grid, blocks, joint_noise(grid, blocks))
    np.testing.assert_array_equal(maxima.sum(axis=0), 1)
    assert statistics.chi_square_p_value(maxima.sum(axis=1), grid.probability) > statistics.ERROR


@pytest.mark.parametrize("scheme", PERTURB)
@pytest.mark.parametrize(("h1", "h2", "coupling"), [(0.3, -0.8, 1.0), (1.5, 1.0, 0.4), (-2.0, 2.0, 3.0)])
def test_two_nodes_in_closed_form(scheme: str, h1: float, h2: float, coupling: float) -> None:
    unary = np.array([[0.0, h1], [0.0, h2]])
    model = Enumeration(unary, np.array([[0, 1]]), coupling * np.eye(2)[None])
    zeros, _, _, ones = local_maxima(model, [[0], [1]], site_noise(scheme, unary, 100_000))
    field = np.array([h1, h2])
    statistics.check_events(
        np.stack([ones, zeros, ones & zeros]),
        np.array(
            [
                expit(field + coupling).prod(),
                expit(coupling - field).prod(),
                (expit(field + coupling) - expit(field - coupling)).prod(),
            ]
        ),
    )


@pytest.mark.parametrize("scheme", PERTURB)
def test_without_edges_every_draw_is_the_argmax_of_the_perturbed_unary(scheme: str) -> None:
    unary = np.array([[0.0, 1.0, -2.0], [0.5, 0.5, 0.5], [3.0, -1.0, 0.0], [-0.3, 0.2, 0.1]])
    model = Enumeration(*PairwiseModel(unary, np.empty((0, 2), np.int64), np.empty((0, 3, 3))))
    perturbation = site_noise(scheme, unary)
    maxima = local_maxima(model, single_sites(model), perturbation)
    np.testing.assert_array_equal(maxima.sum(axis=0), 1)
    labels = model.labellings[maxima.argmax(axis=0)].T  # (S, draws)
    np.testing.assert_array_equal(labels, (unary[:, None] + perturbation).argmax(axis=2))
    for site in range(len(unary)):
        counts = np.bincount(labels[site], minlength=3)
        assert statistics.chi_square_p_value(counts, softmax(unary[site])) > statistics.ERROR


# deliberate bugs: wrong noise that the checks must reject


def gaussian(perturbation: list[Floats]) -> list[Floats]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=values.shape) for values in perturbation]


def gaussian_of_the_same_variance(perturbation: list[Floats]) -> list[Floats]:
    return [np.pi / np.sqrt(6) * values for values in gaussian(perturbation)]


def gumbel_of_unit_variance(perturbation: list[Floats]) -> list[Floats]:
    return [np.sqrt(6) / np.pi * values for values in perturbation]


def shared_between_two_sites(perturbation: list[Floats]) -> list[Floats]:
    return [perturbation[1], *perturbation[1:]]


def shared_between_all_sites(perturbation: list[Floats]) -> list[Floats]:
    return [perturbation[0]] * len(perturbation)


def with_the_wrong_sign(perturbation: list[Floats]) -> list[Floats]:
    return [-values for values in perturbation]


def one_draw_for_all(perturbation: list[Floats]) -> list[Floats]:
    return [np.broadcast_to(values[:1], values.shape) for values in perturbation]


@pytest.mark.parametrize(
    ("mutate", "name"),
    [
        (gaussian, "grid"),
        (gaussian_of_the_same_variance, "grid"),
        (gaussian_of_the_same_variance, "three_labels"),
        (gumbel_of_unit_variance, "grid"),
        (shared_between_two_sites, "grid"),
        (shared_between_all_sites, "grid"),
        (with_the_wrong_sign, "three_labels"),  # with two labels, noise differences are symmetric
        (one_draw_for_all, "grid"),
    ],
)
def test_wrong_noise_is_rejected(
    mutate: Callable[[list[Floats]], list[Floats]], name: str, request: pytest.FixtureRequest
) -> None:
    model: Enumeration = request.getfixturevalue(name)
    with pytest.raises(AssertionError, match="z"):
        check_theorem(model, single_sites(model), mutate(site_noise("plain", model.unary)))


def test_pairwise_term_counted_twice_is_rejected(grid: Enumeration) -> None:
    twice = Enumeration(grid.unary, grid.edges, 2 * grid.tables)
    maxima = local_maxima(twice, single_sites(twice), site_noise("plain", grid.unary))
    with pytest.raises(AssertionError, match="z"):
        statistics.check_events(maxima, grid.block_product(single_sites(grid)))


def test_noise_on_sites_is_not_noise_on_joint_labellings(grid: Enumeration) -> None:
    """The theorem does not hold for blocks perturbed by the sum of their sites' noise (low-order perturbation)."""
    values = site_noise("plain", grid.unary)
    low_order = [
        (values[a][:, :, None, None] + values[b][:, None, :, None] + values[c][:, None, None, :]).reshape(N_DRAWS, 8)
        for a, b, c in ROWS
    ]
    with pytest.raises(AssertionError, match="z"):
        check_theorem(grid, ROWS, low_order)
