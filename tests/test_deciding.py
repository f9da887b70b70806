"""Decisions for a measure, compared with enumeration, brute force and Monte Carlo."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import locpmap as lp
from locpmap.arrays import is_tensor
from locpmap.deciding import decide, inputs
from locpmap.deciding.decider import MAX_SITES
from locpmap.deciding.measures import OVERLAPS, expected_dice, expected_iou, mean_overlap
from locpmap.deciding.solving import LEAST_GAIN, Rule, Search, argmax_of, solve
from locpmap.deciding.statistics import affine_argmax, label_masses
from locpmap.errors import InputError, InputTypeError
from locpmap.kernels.cpu.dispatch import kernel_of
from locpmap.result import Ending, Status


def drawn_probability(rng: np.random.Generator, *shape: int, spread: float = 1.5) -> np.ndarray:
    """Return random probabilities (.., L)."""
    scores = spread * rng.normal(size=shape)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def result_of(probability: np.ndarray, mask: np.ndarray | None = None) -> lp.Result:
    """Return a result with the given probabilities (.., H, W, L) of independent pixels."""
    potentials = lp.Potentials.grid(np.log(np.maximum(probability, 1e-300)), 0.0, mask=mask)
    masked = np.zeros(probability.shape[:-1], bool) if mask is None else mask
    labels = np.where(masked, -1, probability.argmax(-1))
    known = np.where(masked[..., None], 0, probability)
    return lp.Result(
        labels, known, "lbp", "reference", "cpu", ending=Ending(Status.EXACT, 0.0, 0), potentials=potentials
    )


def overlaps(one: np.ndarray, other: np.ndarray, n_labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return IoU and Dice of every label, NaN for labels in neither map."""
    iou, dice = np.full(n_labels, np.nan), np.full(n_labels, np.nan)
    for k in range(n_labels):
        a, b = one == k, other == k
        if (a | b).any():
            iou[k] = (a & b).sum() / (a | b).sum()
            dice[k] = 2 * (a & b).sum() / (a.sum() + b.sum())
    return iou, dice


def statistics(rows: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return counts, inside and totals of a decision."""
    n_labels = rows.shape[1]
    own = rows[np.arange(len(rows)), labels]
    return np.bincount(labels, minlength=n_labels), np.bincount(labels, own, n_labels), rows.sum(0)


# expected values


@pytest.mark.parametrize(("measure", "place"), [(expected_iou, 0), (expected_dice, 1)])
def test_first_order_value_against_enumeration_of_tiny_images(measure, place) -> None:
    """A ratio of expectations is not the expectation of a ratio: on six pixels they differ by a few percent."""
    rng = np.random.default_rng(0)
    gaps = []
    for _ in range(20):
        rows = drawn_probability(rng, 6, 2, spread=2.0)
        decided = rows.argmax(1)
        exact = np.zeros(2)
        for truth in product(range(2), repeat=6):
            chance = rows[np.arange(6), truth].prod()
            exact += chance * np.nan_to_num(overlaps(decided, np.array(truth), 2)[place])
        value = measure(*statistics(rows, decided), np.ones(2)).value
        gaps.append(np.abs(value - exact)[np.bincount(decided, minlength=2) > 0].max())
    assert np.mean(gaps) < 0.05
    assert np.max(gaps) < 0.15


@pytest.mark.parametrize(("measure", "place"), [(expected_iou, 0), (expected_dice, 1)])
def test_first_order_value_against_monte_carlo_on_a_larger_image(measure, place) -> None:
    """The gap is O(1 / S): far below the standard error of 400 samples of 4000 independent pixels."""
    rng = np.random.default_rng(1)
    rows = drawn_probability(rng, 4000, 3)
    decided = rows.argmax(1)
    drawn = (rows.cumsum(1)[None] > rng.random((400, 4000, 1))).argmax(2)
    values = np.array([overlaps(decided, truth, 3)[place] for truth in drawn])
    error = values.std(0, ddof=1) / np.sqrt(len(values))
    expected = measure(*statistics(rows, decided), np.ones(3)).value
    assert (np.abs(expected - values.mean(0)) < 4 * error).all()


@pytest.mark.parametrize(("measure", "place"), [(expected_iou, 0), (expected_dice, 1)])
def test_presence_scales_the_expected_overlap(measure, place) -> None:
    """A label that occurs with probability π, and then in independent pixels of probability p / π."""
    rng = np.random.default_rng(2)
    presence, inside = 0.6, rng.beta(3, 1, size=3000)
    rows = np.stack([1 - presence * inside, presence * inside], 1)
    decided = (inside > 0.6).astype(int)
    values = []
    for _ in range(2000):
        truth = (rng.random(3000) < inside).astype(int) * (rng.random() < presence)
        values.append(overlaps(decided, truth, 2)[place][1])
    found = measure(*statistics(rows, decided), np.array([1.0, presence])).value[1]
    assert abs(found - np.mean(values)) < 4 * np.std(values) / np.sqrt(len(values))


@pytest.mark.parametrize("measure", [expected_iou, expected_dice])
def test_gains_are_derivatives(measure) -> None:
    counts, inside, totals = np.array([30.0, 12]), np.array([25.0, 9]), np.array([29.0, 13])
    presence, p, step = np.array([1.0, 0.7]), 0.4, 1e-6
    value, slope, offset = measure(counts, inside, totals, presence)
    more = measure(counts + step, inside + step * p, totals, presence).value
    np.testing.assert_allclose((more - value) / step, slope * p + offset, rtol=1e-4)


def test_mean_counts_labels_of_the_truth_or_the_decision() -> None:
    """Expected value of the mean with independent presence, by enumeration; the labels decided count always."""
    value, counts, presence = np.array([0.8, 0.5, 0.0]), np.array([9, 4, 0]), np.array([1.0, 0.9, 0.3])
    assert mean_overlap(value, counts, presence) == pytest.approx(1.3 / 2.3)


# decisions


def expected_mean(name: str, rows: np.ndarray, labels: np.ndarray) -> float:
    """Return the first-order expected mean of a decision, with the presence that `solve` uses."""
    counts, inside, totals = statistics(rows, labels)
    presence = label_masses(rows).presence
    return mean_overlap(OVERLAPS[name](counts, inside, totals, presence).value, counts, presence)


@pytest.mark.parametrize("name", ["iou", "dice"])
@pytest.mark.parametrize("n_labels", [2, 3])
def test_decision_against_all_decisions_of_tiny_images(name: str, n_labels: int) -> None:
    """The rule is a local search: never below the argmax, and seldom below the best of all decisions."""
    rng = np.random.default_rng(n_labels)
    gaps = []
    for _ in range(30):
        rows = drawn_probability(rng, 6, n_labels)
        rule = solve(OVERLAPS[name], rows, label_masses(rows))
        labels = affine_argmax(rows, rule.slope, rule.offset).labels
        found = expected_mean(name, rows, labels)
        assert rule.expected == pytest.approx(found, rel=1e-6)
        assert found >= expected_mean(name, rows, rows.argmax(1)) - 1e-9
        best = max(expected_mean(name, rows, np.array(d)) for d in product(range(n_labels), repeat=6))
        gaps.append(best - found)
    assert np.mean(gaps) < 0.02
    assert np.max(gaps) < 0.12


@pytest.mark.parametrize("name", ["iou", "dice"])
def test_decision_is_a_fixed_point_on_a_large_image(name: str) -> None:
    """No single pixel of a label that stays can be moved for a gain of first order."""
    rng = np.random.default_rng(4)
    rows = drawn_probability(rng, 5000, 4) * [1.0, 0.3, 0.1, 0.03]
    rows /= rows.sum(1, keepdims=True)
    rule = solve(OVERLAPS[name], rows, label_masses(rows))
    labels = affine_argmax(rows, rule.slope, rule.offset).labels
    assert rule.expected > expected_mean(name, rows, rows.argmax(1)) + LEAST_GAIN
    masses = label_masses(rows)
    for i in rng.choice(5000, 40, replace=False):
        for k in np.unique(labels):
            moved = labels.copy()
            moved[i] = k
            assert expected_mean(name, rows, moved) < rule.expected + 2e-6
    search = Search(OVERLAPS[name], rows, masses.totals, masses.presence, 0.0)
    assert search.at(argmax_of(4)).rule.expected == pytest.approx(expected_mean(name, rows, rows.argmax(1)))


def test_unlikely_label_is_left_out_and_an_uncertain_part_of_a_likely_one_is_found() -> None:
    p = np.zeros((40, 40, 3))
    p[..., 0] = 1
    p[20:32, 20:32] = [0.05, 0.95, 0.0]
    p[32:36, 20:32] = [0.52, 0.48, 0.0]
    p[:3, :3] = [0.3, 0.3, 0.4]  # a label that is probably absent, and then has IoU 0
    assert set(np.unique(result_of(p).labels)) == {0, 1, 2}
    decided = result_of(p).decide("iou").labels
    assert set(np.unique(decided)) == {0, 1}
    assert (decided[20:36, 20:32] == 1).all()


def test_argmax_is_kept_where_little_is_expected_to_be_gained() -> None:
    rng = np.random.default_rng(5)
    p = rng.beta(0.5, 0.55, size=(60, 60))
    p = np.stack([p, 1 - p], -1)
    rows = p.reshape(-1, 2)
    masses = label_masses(rows)
    search = Search(OVERLAPS["iou"], rows, masses.totals, masses.presence, 0.0)
    first = search.at(argmax_of(2))
    best = search.rounds(first)
    assert (best.counts != first.counts).any()
    assert 0 < best.rule.expected - first.rule.expected < LEAST_GAIN
    assert np.array_equal(result_of(p).decide("iou").labels, p.argmax(-1))


def test_best_round_counts_where_rounds_get_worse() -> None:
    rng = np.random.default_rng(15)
    worse = 0
    for _ in range(50):
        rows = drawn_probability(rng, 6, 3)
        masses = label_masses(rows)
        search = Search(OVERLAPS["iou"], rows, masses.totals, masses.presence, 0.0)
        first = search.at(argmax_of(3))
        assert search.rounds(first).rule.expected >= first.rule.expected
        gains = Rule(first.overlap.slope, first.overlap.offset, np.nan)
        worse += search.at(gains).rule.expected < first.rule.expected
    assert worse > 0


def test_costs_and_accuracy_against_brute_force() -> None:
    rng = np.random.default_rng(6)
    p, cost = drawn_probability(rng, 5, 6, 4), rng.random((4, 4))
    result = result_of(p)
    p = result.probability
    costs = np.array(
        [[[sum(p[y, x, t] * cost[t, d] for t in range(4)) for d in range(4)] for x in range(6)] for y in range(5)]
    )
    decision = result.decide(cost)
    assert decision.measure == "cost"
    assert np.array_equal(decision.labels, costs.argmin(-1))
    assert decision.expected == pytest.approx(costs.min(-1).mean())
    accuracy = result.decide("accuracy")
    assert np.array_equal(accuracy.labels, p.argmax(-1))
    assert accuracy.expected == pytest.approx(p.max(-1).mean())
    assert accuracy.risk == pytest.approx(1 - p.max(-1).mean())
    assert np.array_equal(result.decide(1 - np.eye(4)).labels, accuracy.labels)


def test_large_costs_are_decided_by_their_ratio() -> None:
    result = result_of(drawn_probability(np.random.default_rng(16), 5, 6, 4))
    cost = 1 - np.eye(4)
    large = result.decide(1e30 * cost)
    assert np.array_equal(large.labels, result.decide(cost).labels)
    assert large.expected == pytest.approx(1e30 * result.decide(cost).expected)


def test_decision_is_shown_in_one_line() -> None:
    p = np.tile([0.75, 0.25], (2, 3, 4, 1))
    p[1] = [0.5, 0.5]
    single, batch = result_of(p[0]).decide("accuracy"), result_of(p).decide("accuracy")
    assert repr(single) == "<Decision for accuracy: labels (3, 4), expected 0.75, risk 0.25, kept 1>"
    assert "labels (2, 3, 4), expected 0.5 to 0.75, risk 0.25 to 0.5, kept 1 to 1>" in repr(batch)
    assert repr(replace(single, guaranteed=0.1)).endswith("kept 1, at most 0.1 wrong guaranteed>")


def test_abstention_against_brute_force() -> None:
    rng = np.random.default_rng(7)
    for limit in (0.0, 0.1, 0.2, 0.35, 1.0):
        p = drawn_probability(rng, 2, 3, 3)
        result = result_of(p)
        decision = result.decide("accuracy", abstain=limit)
        wrong = 1 - result.probability.max(-1).ravel()
        subsets = [list(s) for s in product([False, True], repeat=6)]
        fits = [sum(s) for s in subsets if not any(s) or wrong[s].mean() <= limit + 1e-12]
        kept = decision.labels.ravel() >= 0
        assert kept.sum() == max(fits)
        assert decision.kept == kept.mean()
        assert decision.risk == pytest.approx(wrong[kept].mean() if kept.any() else 0)
        assert decision.risk <= limit + 1e-9
        assert np.array_equal(decision.labels.ravel()[kept], p.argmax(-1).ravel()[kept])


def test_permuted_labels_give_permuted_decisions() -> None:
    rng = np.random.default_rng(8)
    p = drawn_probability(rng, 25, 30, 5) * [1.0, 0.5, 0.2, 0.1, 0.05]
    p /= p.sum(-1, keepdims=True)
    order = np.array([3, 0, 4, 1, 2])
    for measure in ("iou", "dice"):
        decided = result_of(p).decide(measure).labels
        assert np.array_equal(order[result_of(p[..., order]).decide(measure).labels], decided)


def test_batches_equal_single_images() -> None:
    rng = np.random.default_rng(9)
    p = drawn_probability(rng, 3, 20, 21, 4) * [1.0, 0.5, 0.2, 0.1]
    p /= p.sum(-1, keepdims=True)
    for measure in ("iou", "dice", "accuracy", 1 - np.eye(4)):
        batch = result_of(p).decide(measure, abstain=0.2)
        singles = [result_of(image).decide(measure, abstain=0.2) for image in p]
        assert np.array_equal(batch.labels, [one.labels for one in singles])
        for name in ("expected", "risk", "kept"):
            np.testing.assert_allclose(getattr(batch, name), [getattr(one, name) for one in singles], rtol=1e-5)


def test_masked_pixels_do_not_count() -> None:
    rng = np.random.default_rng(10)
    p = drawn_probability(rng, 20, 24, 4) * [1.0, 0.5, 0.2, 0.1]
    p /= p.sum(-1, keepdims=True)
    mask = np.zeros((20, 24), bool)
    mask[:, 16:] = True
    for measure in ("iou", "dice", "accuracy", 1 - np.eye(4)):
        masked, part = result_of(p, mask).decide(measure), result_of(p[:, :16]).decide(measure)
        assert np.array_equal(masked.labels[:, :16], part.labels)
        assert (masked.labels[:, 16:] == -1).all()
        assert masked.kept == 1
        assert masked.expected == pytest.approx(part.expected, rel=1e-5)
    rules = [lp.Decider("iou").add(result).rule for result in (result_of(p, mask), result_of(p[:, :16]))]
    for one, other in zip(*rules, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_labels_have_the_kind_of_the_result() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(11)
    logits = rng.normal(size=(12, 14, 3)).astype(np.float32)
    plain = lp.infer(lp.Potentials.grid(logits, 0.5), "mean_field")
    tensor = lp.infer(lp.Potentials.grid(torch.from_numpy(logits), 0.5), "mean_field")
    decided = tensor.decide("iou", abstain=0.3).labels
    assert isinstance(decided, torch.Tensor)
    assert decided.dtype == torch.int64
    assert np.array_equal(decided.numpy(), plain.decide("iou", abstain=0.3).labels)


def test_other_decoders_and_models_have_the_verb() -> None:
    rng = np.random.default_rng(12)
    logits = rng.normal(size=(8, 9, 3))
    crf = lp.CRF(n_labels=2)
    images = rng.normal(size=(4, 8, 8))
    crf.fit(images, (images > 0).astype(int))
    assert crf.infer(images[0], "locpmap", n_samples=5).decide("dice").labels.shape == (8, 8)
    assert lp.refine(None, logits, layout="hwk").decide("iou").labels.shape == (8, 9)
    graph = lp.Potentials.graph(rng.normal(size=(10, 3)), [[0, 1], [4, 5]], 1.0)
    assert lp.infer(graph, "exact").decide("iou").labels.shape == (10,)


def test_labels_of_a_graph_occur_if_one_site_has_them() -> None:
    """Sites of a graph are independent: a label of probability 0.3 at 100 sites certainly occurs."""
    p = np.tile([0.7, 0.3], (100, 1))
    p[:30] = [0.55, 0.45]
    graph = decide(p.argmax(-1), p, "iou")
    assert (graph.labels == 1).sum() >= 30
    assert graph.expected > 0.4
    image = decide(p.argmax(-1)[None], p[None], "iou")
    assert set(np.unique(image.labels)) == {0}


# data sets


def rare_images(seed: int, n_images: int = 6) -> np.ndarray:
    """Return probabilities of images in which the last label is rare, and uncertain where it is likely."""
    rng = np.random.default_rng(seed)
    p = drawn_probability(rng, n_images, 40, 50, 4, spread=1.0) * [1.0, 0.6, 0.3, 0.1]
    return p / p.sum(-1, keepdims=True)


def test_data_set_decision_is_the_rule_of_all_pixels_together() -> None:
    p = rare_images(0)
    result = result_of(p)
    decision = result.decide("iou", over="dataset")
    assert isinstance(decision.expected, float)
    assert decision.expected > mean_of_argmax(p) + LEAST_GAIN
    rows = p.reshape(-1, 4).astype(np.float32)
    absent = np.prod([1 - label_masses(image.reshape(-1, 4)).presence for image in p], axis=0)
    rule = solve(OVERLAPS["iou"], rows, label_masses(rows)._replace(presence=1 - absent))
    assert np.array_equal(decision.labels.ravel(), affine_argmax(rows, rule.slope, rule.offset).labels)
    decider = lp.Decider("iou")
    for image in result.probability:
        decider.add(image)
    assert np.array_equal(decider.decide(result).labels, decision.labels)
    slope, offset, _ = decider.rule
    assert np.array_equal((slope * result.probability + offset).argmax(-1), decision.labels)
    assert decider.decide(result, abstain=0.2).kept.shape == (6,)
    limited = result.decide("iou", over="dataset", abstain=0.3)
    assert limited.risk <= 0.3 + 1e-9
    assert limited.kept == pytest.approx((limited.labels >= 0).mean())


def mean_of_argmax(p: np.ndarray) -> float:
    rows = p.reshape(-1, p.shape[-1])
    counts, inside, totals = statistics(rows, rows.argmax(1))
    return mean_overlap(expected_iou(counts, inside, totals, np.ones(4)).value, counts, np.ones(4))


def test_decider_with_thinned_pixels_finds_nearly_the_rule_of_all() -> None:
    p = rare_images(1, 3).astype(np.float32)
    large = np.tile(p, (1, 8, 8, 1))
    decider = lp.Decider("iou").add(result_of(large))
    assert MAX_SITES / 2.2 < len(decider._rows) <= MAX_SITES
    everything = lp.Decider("iou")
    for image in p:
        everything.add(image)
    assert decider.n_images == everything.n_images == 3
    scale = decider.rule.slope[0] / everything.rule.slope[0]
    np.testing.assert_allclose(decider.rule.slope, scale * everything.rule.slope, rtol=0.1)
    assert decider.rule.expected == pytest.approx(everything.rule.expected, abs=0.003)
    assert "Decider for iou: 3 images" in repr(decider)


def test_thinning_keeps_the_same_fraction_of_every_image() -> None:
    decider = lp.Decider("iou")
    for value in (0.5, 0.6, 0.7, 0.8, 0.9):
        decider.add(np.full((400, 500, 2), [value, 1 - value], np.float32))
    values, counts = np.unique(decider._rows[:, 0], return_counts=True)
    assert len(values) == 5
    share = counts / 200_000  # about 1 / 4
    assert decider._threshold == 0.25
    assert (np.abs(share - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 200_000)).all()


def test_rule_is_solved_again_after_more_images() -> None:
    decider = lp.Decider("dice").add(rare_images(2, 1)[0])
    before = decider.rule
    assert decider.rule is before
    decider.add(rare_images(3, 1)[0])
    assert decider.rule is not before


# errors


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"measure": "iuo"}, "unknown measure 'iuo': did you mean 'iou'"),
        ({"measure": np.ones((2, 3))}, r"measure has shape \(2, 3\), expected a name or costs \(3, 3\)"),
        ({"measure": np.full((3, 3), np.nan)}, "measure contains NaN"),
        ({"measure": -1e300 * np.eye(3)}, r"measure has a cost of size 1e\+300, expected at most 1e\+30"),
        ({"measure": "jaccard"}, "unknown measure 'jaccard': did you mean 'iou'"),
        ({"measure": "F1"}, "unknown measure 'F1': did you mean 'dice'"),
        ({"over": "images"}, "unknown over 'images': did you mean 'image'"),
        ({"over": 3}, "over is a int, expected"),
        ({"abstain": 2}, "abstain is 2, expected a number at least 0 and at most 1"),
        ({"abstain": "much"}, "abstain is 'much', expected a number"),
        ({"measure": "boundary_iou"}, "no samples, expected one with them: pass keep_samples=True"),
        ({"measure": "dice", "over": lp.Decider("iou").add(np.full((4, 3), 1 / 3))}, "expected 'iou' like the decider"),
        ({"over": lp.Decider("iou").add(np.full((4, 2), 0.5))}, "over has 2 labels, expected 3"),
        ({"over": lp.Decider("iou")}, "no sites, expected at least one image"),
        ({"measure": "accuracy", "over": lp.Decider("iou")}, "expected 'iou' or 'dice' for a decider"),
    ],
)
def test_wrong_arguments(arguments, sentence: str) -> None:
    with pytest.raises((InputError, InputTypeError), match=sentence):
        result_of(np.full((4, 5, 3), 1 / 3)).decide(**arguments)


def test_wrong_inputs_of_a_decider() -> None:
    with pytest.raises(InputError, match="unknown measure 'iuo'"):
        lp.Decider("iuo")
    with pytest.raises(InputError, match="expected 'iou' or 'dice' for a decider"):
        lp.Decider("accuracy")
    with pytest.raises(InputTypeError, match="expected 'iou' or 'dice' for a decider"):
        lp.Decider(np.eye(2))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown measure 'jaccard': did you mean 'iou'"):
        lp.Decider("jaccard")
    decider = lp.Decider().add(np.full((4, 2), 0.5))
    with pytest.raises(InputTypeError, match="result is a ndarray, expected a Result"):
        decider.decide(np.full((4, 2), 0.5))
    with pytest.raises(InputError, match="no probabilities"):
        lp.Decider().add(np.ones((3, 4, 2)))
    with pytest.raises(InputError, match="expected probabilities"):
        lp.Decider().add(np.ones(3))
    with pytest.raises(InputError, match="has 3 labels, expected 2"):
        lp.Decider().add(np.full((4, 2), 0.5)).add(np.full((4, 3), 1 / 3))


def test_result_without_probabilities() -> None:
    result = lp.infer(lp.Potentials.grid(np.zeros((3, 4, 2)), 1.0), "icm")
    for call in (result.decide, lambda: lp.Decider().add(result)):
        with pytest.raises(InputError, match="result of icm has labels only"):
            call()


# kernels


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_sites", [0, 1, 97])
def test_kernels_match_the_reference(dtype, n_sites: int) -> None:
    rng = np.random.default_rng(13)
    rows = drawn_probability(rng, n_sites, 5).astype(dtype) if n_sites else np.zeros((0, 5), dtype)
    rows[:3] = np.eye(5)[:3][: len(rows)]  # probability 1 belongs to the last bin
    slope, offset = rng.random(5).astype(dtype), np.array([0, -np.inf, 0.1, -0.2, 0], dtype)
    found, masses = [], []
    for backend in ("numba", "reference"):
        found.append((np.zeros(n_sites, np.int64), np.zeros(5), np.zeros(5)))
        kernel_of(backend, "affine_argmax")(rows, slope, offset, *found[-1])
        masses.append(np.zeros((5, 64)))
        kernel_of(backend, "label_masses")(rows, masses[-1])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    np.testing.assert_allclose(masses[0], masses[1], rtol=1e-5)


def test_histograms_of_values_that_are_no_probabilities_stay_within_bounds() -> None:
    whole = np.zeros((9, 64))
    rows = np.array([[np.nan, -1.0, 40.0], [np.inf, -np.inf, -1e300]])
    kernel_of("numba", "label_masses")(rows, whole[3:6])
    assert not whole[:3].any()
    assert not whole[6:].any()


def test_presence_is_the_weighted_median() -> None:
    rng = np.random.default_rng(14)
    rows = drawn_probability(rng, 3000, 4)
    masses = label_masses(rows)
    for k in range(4):
        ordered = np.sort(rows[:, k])
        median = ordered[np.searchsorted(ordered.cumsum(), ordered.sum() / 2)]
        assert median <= masses.presence[k] <= median + 1 / 64 + 1e-9
        assert ordered[-1] <= masses.largest[k] <= ordered[-1] + 1 / 64
    np.testing.assert_allclose(masses.totals, rows.sum(0))


def test_arrays_of_a_result_can_be_decided_without_it() -> None:
    p = rare_images(5)
    result = result_of(p)
    direct = decide(result.labels, result.probability, "iou", over="dataset", batched=True)
    assert np.array_equal(direct.labels, result.decide("iou", over="dataset").labels)


# tensors on a GPU


@pytest.mark.parametrize("over", ["image", "dataset"])
@pytest.mark.parametrize("abstain", [None, 0.3])
def test_tensors_that_stay_on_their_device_are_decided_equally(
    over: str, abstain: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors of the CPU take the path of those on a GPU."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(inputs, "on_gpu", is_tensor)
    p = rare_images(6, 3).astype(np.float32)
    labels = p.argmax(-1)
    labels[1, :5] = -1
    maps = np.stack([labels, np.roll(labels, 1, axis=2)])
    for measure in ("iou", "dice", "accuracy", "boundary_iou", 1 - np.eye(4)):
        found = [
            decide(kind(labels), kind(p), measure, over=over, abstain=abstain, samples=kind(maps), batched=True)
            for kind in (np.asarray, torch.from_numpy)
        ]
        assert isinstance(found[1].labels, torch.Tensor)
        assert found[1].labels.dtype == torch.int64
        assert (found[1].labels.numpy() == found[0].labels).mean() > 0.9995  # sums are rounded differently
        for name in ("expected", "risk", "kept"):
            np.testing.assert_allclose(getattr(found[1], name), getattr(found[0], name), rtol=1e-3)
