"""Noise: Philox test vectors, Gumbel distribution and independence along every coordinate."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from scipy.special import log_softmax, softmax
from tests.oracles.models import Floats
from tests.oracles.statistics import ERROR, check_events, check_z, chi_square_p_value

from locpmap.kernels.reference import noise

KEY = (314159, 26535)
N_DRAWS = 100_000
N_BINS = 8
UNARY = np.array([0.3, -1.2, 1.5, -0.4, 2.0, 0.0])
STREAMS = (
    noise.PLAIN,
    noise.LAZY_SITE,
    noise.LAZY_CLOCK,
    noise.LOGISTIC,
    noise.START,
    noise.START_BITS,
    noise.CHAIN,
    noise.DROP,
)
PERTURB: dict[str, Callable[..., Floats]] = {"plain": noise.perturbed_plain, "lazy": noise.perturbed_lazy}


# Philox


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
    ids=["zeros", "ones", "pi"],
)
def test_philox_matches_the_random123_test_vectors(counter: str, key: str, answer: str) -> None:
    c0, c1, c2, c3 = (np.array([int(word, 16)], np.uint64) for word in counter.split())
    k0, k1 = (int(word, 16) for word in key.split())
    assert [f"{word.item():08x}" for word in noise.philox((c0, c1, c2, c3), (k0, k1))] == answer.split()


def test_coordinates_are_packed_into_the_counter_as_documented() -> None:
    site, group, sample, image, stream = (9 << 32) + 11, 13, 17, 19, 3
    c0, c1, c2, c3 = (np.array([c], np.uint64) for c in (11, 9 + (13 << 16), 17, 19 + (3 << 28)))
    packed = noise.words(KEY, stream, image, sample, np.array([site]), group)
    np.testing.assert_array_equal(packed, np.stack(noise.philox((c0, c1, c2, c3), KEY)))


def test_no_two_coordinates_share_a_counter() -> None:
    """Philox is a bijection, so equal words would mean equal counters; the limits of every range are tested."""
    sites = np.array([0, 1, 2**16, 2**32 - 1, 2**32, 2**48 - 1])
    seen = [
        noise.words(KEY, stream, image, sample, sites, group).T
        for stream in (0, 1, 15)
        for image in (0, 1, 2**28 - 1)
        for sample in (0, 1, 2**28, 2**32 - 1)
        for group in (0, 1, 2**16 - 1)
    ]
    words = np.concatenate(seen)
    assert len(np.unique(words, axis=0)) == len(words)


# uniforms and their logarithms at the limits

EXTREME_WORDS = np.array([0, 0xFF, 0x100, 0x7FFFFFFF, 0x80000000, 0xFFFFFEFF, 0xFFFFFF00, 0xFFFFFFFF], np.uint64)


def test_extreme_words_give_finite_noise() -> None:
    u = noise.uniform(EXTREME_WORDS)
    assert (u > 0).all()
    assert (u < 1).all()
    for values in (-np.log(-np.log(u)), -np.log(u), np.log(u / (1 - u))):
        assert np.isfinite(values).all()
    np.testing.assert_array_equal(u + u[::-1], 1)  # symmetric about 1 / 2


def test_uniforms_stay_inside_the_interval_in_single_precision() -> None:
    u = noise.uniform(EXTREME_WORDS).astype(np.float32)
    assert (u > 0).all()
    assert (u < 1).all()


# distribution


def check_gumbel(values: Floats) -> None:
    """Check the distribution (Kolmogorov-Smirnov), mean γ and variance π²/6 (its error follows from kurtosis 5.4)."""
    n, variance = len(values), np.pi**2 / 6
    assert np.isfinite(values).all()
    p_value = stats.kstest(values, "gumbel_r").pvalue
    assert p_value > ERROR, f"Kolmogorov-Smirnov p value is {p_value:.1e}"
    check_z((values.mean() - np.euler_gamma) / np.sqrt(variance / n))
    check_z((np.square(values - np.euler_gamma).mean() - variance) / (variance * np.sqrt(4.4 / n)))


def to_uniform(gumbel: Floats) -> Floats:
    return np.exp(-np.exp(-gumbel))


def check_independent(u: Floats, v: Floats) -> None:
    """Check that uniforms u and v are independent, by χ² on N_BINS × N_BINS cells and by their correlation."""
    cell = (N_BINS * u).astype(np.int64) * N_BINS + (N_BINS * v).astype(np.int64)
    counts = np.bincount(cell, minlength=N_BINS**2)
    p_value = chi_square_p_value(counts, np.full(N_BINS**2, N_BINS**-2.0))
    assert p_value > ERROR, f"χ² p value is {p_value:.1e}"
    check_z(12 * ((u - 0.5) * (v - 0.5)).mean() * np.sqrt(len(u)))


def plain(image: int = 0, sample: int = 0, site: int = 0, label: int = 0, key: tuple[int, int] = KEY) -> Floats:
    """Return plain noise of one label at every second site from `site` on, (N_DRAWS,)."""
    return noise.gumbel(key, image, sample, site + 2 * np.arange(N_DRAWS), label + 1)[:, label]


@pytest.mark.parametrize("label", range(6))
def test_plain_noise_is_gumbel(label: int) -> None:
    check_gumbel(plain(label=label))


def test_plain_noise_is_gumbel_over_samples_and_images() -> None:
    site = np.array([12])
    for coordinates in ([(0, s) for s in range(2000)], [(i, 0) for i in range(2000)]):
        values = [noise.gumbel(KEY, image, sample, site, 1).item() for image, sample in coordinates]
        check_gumbel(np.array(values))
        check_independent(to_uniform(np.array(values[::2])), to_uniform(np.array(values[1::2])))


@pytest.mark.parametrize(
    "other",
    [
        {"site": 1},
        {"site": 2 * N_DRAWS},
        {"site": 2**32},
        {"label": 1},
        {"label": 4},
        {"sample": 1},
        {"sample": 2**20},
        {"image": 1},
        {"image": 2**27},
        {"key": (KEY[0] + 1, KEY[1])},
        {"key": (KEY[0], KEY[1] + 1)},
        {"key": (KEY[1], KEY[0])},
    ],
    ids=str,
)
def test_plain_noise_is_independent_along_every_coordinate(other: dict[str, int]) -> None:
    check_independent(to_uniform(plain()), to_uniform(plain(**other)))  # type: ignore[arg-type]


def test_labels_of_a_site_are_independent() -> None:
    u = to_uniform(noise.gumbel(KEY, 0, 0, np.arange(N_DRAWS), 6)).T
    for a, b in itertools.combinations(u, 2):
        check_independent(a, b)


def test_streams_are_independent() -> None:
    assert len(set(STREAMS)) == len(STREAMS)
    sites = np.arange(N_DRAWS)
    u = [noise.uniform(noise.words(KEY, stream, 0, 0, sites)[0]) for stream in STREAMS]
    for a, b in itertools.combinations(u, 2):
        check_independent(a, b)


def test_exchanged_coordinates_are_independent() -> None:
    """Coordinates are not added up: image 1 of sample 2 and image 2 of sample 1 have independent noise."""
    check_independent(to_uniform(plain(image=1, sample=2)), to_uniform(plain(image=2, sample=1)))
    check_independent(to_uniform(plain(sample=4)), to_uniform(plain(label=4)))
    check_independent(to_uniform(plain(image=4)), to_uniform(plain(label=4)))


# both schemes: the perturbed unary of one site


def perturbed(scheme: str, unary: npt.ArrayLike, temperature: float = 1.0, sample: int = 0) -> Floats:
    """Return the perturbed unaries of N_DRAWS sites with equal unaries, (N_DRAWS, L)."""
    tiled = np.tile(np.asarray(unary, np.float64), (N_DRAWS, 1))
    return PERTURB[scheme](tiled, temperature, KEY, 0, sample, np.arange(N_DRAWS))


def recovered_noise(temperature: float, sample: int = 0) -> Floats:
    """Return the Gumbel noise implied by the perturbed scores of the lazy scheme, (N_DRAWS, L)."""
    return perturbed("lazy", UNARY, temperature, sample) / temperature - log_softmax(UNARY / temperature)


def check_ranking(scores: Floats, unary: Floats) -> None:
    """Check the order of all labels, best first: P(a, b, c, ...) = p_a · p_b / (1 − p_a) · ... (Plackett and Luce).

    This holds only for Gumbel noise of scale 1 that is independent between labels.
    """
    p = softmax(unary)
    n_labels = len(p)
    orders = list(itertools.permutations(range(n_labels)))
    probability = [np.prod([p[a] / p[list(order[i:])].sum() for i, a in enumerate(order)]) for order in orders]
    digits = n_labels ** np.arange(n_labels)
    counts = np.bincount(np.argsort(-scores, axis=1) @ digits, minlength=n_labels**n_labels)
    p_value = chi_square_p_value(counts[np.array(orders) @ digits], probability)
    assert p_value > ERROR, f"χ² p value is {p_value:.1e}"


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_lazy_noise_of_every_label_is_gumbel(temperature: float) -> None:
    for values in recovered_noise(temperature).T:
        check_gumbel(values)


def test_lazy_noise_is_independent_between_labels() -> None:
    for a, b in itertools.combinations(to_uniform(recovered_noise(1.0)).T, 2):
        check_independent(a, b)


def test_lazy_noise_is_independent_between_sites_and_samples() -> None:
    here, next_sample = to_uniform(recovered_noise(1.0)), to_uniform(recovered_noise(1.0, sample=1))
    for label in range(len(UNARY)):
        check_independent(here[::2, label], here[1::2, label])
        check_independent(here[:, label], next_sample[:, label])


@pytest.mark.parametrize("scheme", PERTURB)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("n_labels", [2, 3, 6])
def test_winner_frequencies_are_the_softmax(scheme: str, temperature: float, n_labels: int) -> None:
    unary = UNARY[:n_labels]
    winner = perturbed(scheme, unary, temperature).argmax(axis=1)
    check_events(winner == np.arange(n_labels)[:, None], softmax(unary / temperature))


@pytest.mark.parametrize("scheme", PERTURB)
@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_ranking_of_all_labels(scheme: str, temperature: float) -> None:
    check_ranking(perturbed(scheme, UNARY[:4], temperature), UNARY[:4] / temperature)


@pytest.mark.parametrize("scheme", PERTURB)
def test_winner_is_independent_of_its_score(scheme: str) -> None:
    """The largest perturbed score minus log Σ exp unary is Gumbel, whichever label wins."""
    scores = perturbed(scheme, UNARY)
    log_partition = np.logaddexp.reduce(UNARY) if scheme == "plain" else 0.0  # lazy scores are normalised
    largest = scores.max(axis=1) - log_partition
    check_gumbel(largest)
    for label in range(len(UNARY)):
        check_gumbel(largest[scores.argmax(axis=1) == label])


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_lazy_noise_of_two_labels_is_logistic(temperature: float) -> None:
    for sample in (0, 1, 5):
        scores = perturbed("lazy", [0.4, -0.3], temperature, sample)
        difference = (scores[:, 1] - scores[:, 0] + 0.7) / temperature
        assert stats.kstest(difference, "logistic").pvalue > ERROR


def test_samples_of_one_philox_call_are_independent() -> None:
    """With two labels, a Philox call gives four samples; the test compares all pairs of samples 0..7."""
    u = [noise.logistic_uniform(KEY, 0, sample, np.arange(N_DRAWS)) for sample in range(8)]
    for a, b in itertools.combinations(u, 2):
        check_independent(a, b)


@pytest.mark.parametrize("scheme", PERTURB)
@pytest.mark.parametrize("unary", [[0.0, -np.inf], [-np.inf, 0.0], [0.5, -np.inf, 0.0, 1.0], [-np.inf, -np.inf, 2.0]])
def test_forbidden_labels_stay_forbidden(scheme: str, unary: list[float]) -> None:
    scores = perturbed(scheme, unary)
    np.testing.assert_array_equal(np.isneginf(scores), np.tile(np.isneginf(unary), (N_DRAWS, 1)))
    assert not np.isnan(scores).any()
    counts = np.bincount(scores.argmax(axis=1), minlength=len(unary))
    assert chi_square_p_value(counts, softmax(unary)) > ERROR


@pytest.mark.parametrize("scheme", PERTURB)
def test_unlikely_labels_are_not_forbidden(scheme: str) -> None:
    """A label 1000 temperatures below the best stays allowed, because neighbours can still favour it."""
    unary = np.array([0.0, -10.0, -5.0])
    scores = perturbed(scheme, unary, temperature=0.01)
    for label in range(3):
        check_gumbel((scores[:, label] - unary[label]) / 0.01)


def test_first_label_divides_the_unit_interval_proportionally() -> None:
    n_points = 10_000
    u = (np.arange(n_points) + 0.5) / n_points
    for p in ([0.2, 0.5, 0.3], [0.0, 0.1, 0.0, 0.9, 0.0], [1.0, 0.0], [0.25, 0.25, 0.25, 0.25]):
        label = noise.first_label(np.tile(p, (n_points, 1)), u)
        fraction = np.bincount(label, minlength=len(p)) / n_points
        np.testing.assert_allclose(fraction, p, rtol=0, atol=1.0 / n_points)
        assert not fraction[np.array(p) == 0].any()


# starts


def test_start_is_uniform_over_allowed_labels() -> None:
    unary = np.tile([0.0, -np.inf, 5.0, -3.0], (N_DRAWS, 1))
    labels = noise.start_labels(unary, noise.words(KEY, noise.START, 0, 0, np.arange(N_DRAWS))[0])
    assert chi_square_p_value(np.bincount(labels, minlength=4), [1 / 3, 0, 1 / 3, 1 / 3]) > ERROR


def test_start_bits_are_fair_and_independent_between_samples() -> None:
    """Samples 0..127 share one Philox call; the test counts bit patterns of five of them and of sample 128."""
    samples, sites = (0, 1, 31, 32, 127, 128), np.arange(N_DRAWS)
    bits = np.stack([noise.start_bits(np.zeros((N_DRAWS, 2)), KEY, 0, sample, sites) for sample in samples])
    counts = np.bincount(2 ** np.arange(len(samples)) @ bits, minlength=64)
    assert chi_square_p_value(counts, np.full(64, 1 / 64)) > ERROR
    for forbidden in (0, 1):
        unary = np.zeros((N_DRAWS, 2))
        unary[:, forbidden] = -np.inf
        assert (noise.start_bits(unary, KEY, 0, 0, sites) == 1 - forbidden).all()


# deliberate bugs: each must be detected by its check


def gaussian_of_the_same_mean_and_variance() -> Floats:
    return np.random.default_rng(0).normal(np.euler_gamma, np.pi / np.sqrt(6), N_DRAWS)


@pytest.mark.parametrize(
    "mutant",
    [
        lambda: np.random.default_rng(0).normal(size=N_DRAWS),
        gaussian_of_the_same_mean_and_variance,
        lambda: np.sqrt(6) / np.pi * plain(),
        lambda: 0.96 * (plain() - np.euler_gamma) + np.euler_gamma,
        lambda: plain() - np.euler_gamma,
        lambda: -plain(),
        lambda: np.repeat(plain()[: N_DRAWS // 50], 50),
        lambda: np.append(plain(), np.inf),
    ],
    ids=["Gaussian", "Gaussian moments", "unit variance", "4 % narrow", "centred", "sign", "repeated", "infinite"],
)
def test_wrong_distribution_is_rejected(mutant: Callable[[], Floats]) -> None:
    with pytest.raises(AssertionError):
        check_gumbel(mutant())


@pytest.mark.parametrize(
    "mutant",
    [
        lambda u, v: (u, u),
        lambda u, v: (u, 1 - u),
        lambda u, v: (u, np.where(np.arange(len(u)) % 20 == 0, u, v)),
        lambda u, v: (u, np.abs(2 * u - 1)),
        lambda u, v: (u, np.mod(u + 0.5, 1)),
    ],
    ids=["shared between sites", "antithetic", "every 20th shared", "uncorrelated", "rotated"],
)
def test_dependence_is_rejected(mutant: Callable[[Floats, Floats], tuple[Floats, Floats]]) -> None:
    u, v = to_uniform(plain()), to_uniform(plain(site=1))
    check_independent(u, v)
    with pytest.raises(AssertionError):
        check_independent(*mutant(u, v))


@pytest.mark.parametrize(
    "mutant",
    [
        lambda values: np.random.default_rng(0).normal(size=values.shape),
        lambda values: np.random.default_rng(0).normal(0, np.pi / np.sqrt(6), values.shape),
        lambda values: np.sqrt(6) / np.pi * values,
        lambda values: np.repeat(values[:, :1], values.shape[1], axis=1),
        lambda values: np.concatenate([values[:, 1:2], values[:, 1:]], axis=1),
    ],
    ids=["Gaussian", "Gaussian moments", "unit variance", "shared by all labels", "shared by two labels"],
)
def test_wrong_ranking_is_rejected(mutant: Callable[[Floats], Floats]) -> None:
    unary = UNARY[:4]
    values = noise.gumbel(KEY, 0, 0, np.arange(N_DRAWS), 4)
    check_ranking(unary + values, unary)
    with pytest.raises(AssertionError):
        check_ranking(unary + mutant(values), unary)


def test_lazy_waits_with_the_wrong_rate_are_rejected() -> None:
    """Waits of Exp(1) · p instead of Exp(1) / p give the correct winner but the wrong noise."""
    p = softmax(UNARY)
    first = noise.words(KEY, noise.LAZY_SITE, 0, 0, np.arange(N_DRAWS))
    winner = noise.first_label(np.tile(p, (N_DRAWS, 1)), noise.uniform(first[0]))
    clock = -np.log(noise.uniform(first[1]))[:, None]
    waits = -np.log(noise.label_uniforms(KEY, noise.LAZY_CLOCK, 0, 0, np.arange(N_DRAWS), len(p)))
    clocks = clock + np.where(np.arange(len(p)) == winner[:, None], 0.0, waits * p)
    values = -np.log(clocks) - np.log(p)
    check_events(winner == np.arange(len(p))[:, None], p)
    for label in range(len(p)):
        with pytest.raises(AssertionError):
            check_gumbel(values[:, label])
