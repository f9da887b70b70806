"""Groups of related images are held out together, and count as one in standard errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap.errors import InputError
from locpmap.refining import crossvalidation, fitting
from locpmap.refining.examples import gather
from locpmap.refining.fitting import Points, fit_share, learn
from locpmap.refining.groups import means_of_groups
from locpmap.refining.per_label import fit_per_label
from locpmap.refining.scoring import score, softmax, total


def case(seed: int, informative: bool) -> tuple[Any, Any, Any]:
    """Return an image whose colours are its labels or are noise, noisy logits and labels."""
    rng = np.random.default_rng(seed)
    truth = np.repeat([[0, 1]] * 16, 12, axis=1)
    image = 100.0 * truth if informative else rng.normal(size=truth.shape)
    return image, 2 * np.eye(2)[truth] + rng.normal(size=(*truth.shape, 2)), truth


def test_copies_of_an_image_are_no_further_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    gains = {0: 3.0, 1: 3.0, 2: -2.0}  # of similar pixels in three images, with any setting
    number = [int(n) for n in gains]

    def losses(points: list[Points], setting: object) -> Any:
        return np.array([0.0 if setting is None else -gains[int(one.scores[0, 0])] for one in points])

    monkeypatch.setattr(fitting, "_losses", losses)
    images = [Points(np.full((4, 2), n), np.zeros((4, 2)), np.zeros(4, int), n) for n in number * 9]
    assert fit_share(images[:3]).share == 0  # the standard error is larger than the mean
    assert fit_share(images).share == 0
    assert fit_share([one._replace(group=n) for n, one in enumerate(images)]).share > 0


def test_corrections_need_evidence_from_several_groups() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, (8, 20, 20))
    logits = 2 * np.eye(2)[labels] + rng.normal(size=(8, 20, 20, 2)) + [0.0, 2.0]
    for groups, expected in (None, True), ([0] * 8, False), ([0, 0, 1, 1, 2, 2, 3, 3], True):
        examples = gather(None, logits, labels, -1, "hwk", "logits", 1.0, None, groups)
        assert (fit_per_label(examples, 1.0, 0) is not None) == expected


def test_folds_consist_of_whole_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = []

    def recorded(examples: Any, *args: Any, **options: Any) -> Any:
        fits.append({example.group for example in examples})
        return learn(examples, *args, **options)

    monkeypatch.setattr(crossvalidation, "learn", recorded)
    names = ["b", "a", "b", "c", "a", "d"]
    images, logits, labels = zip(*(case(seed, informative=True) for seed in range(6)), strict=True)
    refiner = lp.Refiner.fit(images, logits, labels, layout="hwk", scores="logits", groups=names)
    whole, first, second = fits
    assert whole == {0, 1, 2, 3}
    assert len(first) == len(second) == 2
    assert not first & second
    assert "4 groups" in str(refiner.report)


def test_equal_names_are_one_group() -> None:
    _, logits, labels = zip(*(case(seed, informative=False) for seed in range(6)), strict=True)
    for groups in [1, 1.0, ("a", 2), ("a", 2), "b", "b"], np.array([4, 4, 2, 2, 3, 3]), ["b", "b", "a", "a", "c", "c"]:
        examples = gather(None, logits, labels, -1, "hwk", "logits", 1.0, None, groups)
        assert [example.group for example in examples] == [0, 0, 1, 1, 2, 2]


def test_means_of_groups_ignore_unknown_values() -> None:
    values = np.array([[1.0, np.nan], [np.nan, np.nan], [5.0, 2.0]])
    np.testing.assert_array_equal(means_of_groups(values, [0, 0, 1]), [[1, np.nan], [5, 2]])


def test_standard_errors_of_the_report_are_over_groups() -> None:
    images, logits, labels = zip(*(case(seed % 3, informative=True) for seed in range(6)), strict=True)
    options: dict[str, Any] = {"layout": "hwk", "scores": "logits", "n_folds": 3}
    report = lp.Refiner.fit(images, logits, labels, groups=[0, 1, 2, 0, 1, 2], objective="iou", **options).report
    assert report is not None
    assert report.decided is not None
    assert sorted(report.decided.groups) == [0, 0, 1, 1, 2, 2]
    assert list(report.decided.groups[::2]) == list(report.decided.groups[1::2])  # as the folds, which are whole groups
    copies = [total([score(softmax(logits[n]), labels[n])] * 2) for n in range(3)]
    found = sorted(one.loss for one in report.scores["network"])
    np.testing.assert_allclose(found, sorted(one.loss for one in copies), rtol=1e-5)


@pytest.mark.parametrize(
    ("groups", "options", "words"),
    [
        ([0, 1], {}, "groups holds 2 entries, expected 12 like logits"),
        ([0] * 12, {}, "the number of groups with labels is 1, expected at least n_folds=2"),
        ([0, 0, *range(10)], {"guarantee": 0.8}, "guarantee is 0.8 and groups are given, expected 0"),
        (3, {}, "groups is a int, expected a list"),
        (b"abcdefghijkl", {}, "groups is a bytes, expected a list"),
        (np.zeros((12, 2)), {}, r"groups\[0\] is \[0.0, 0.0\], expected a name or a number"),
        ([*range(11), None], {}, r"groups\[11\] is None, expected a name or a number"),
        ([*range(11), np.nan], {}, r"groups\[11\] is nan, expected a name or a number"),
    ],
)
def test_bad_groups_are_refused(groups: Any, options: dict[str, Any], words: str) -> None:
    images, logits, labels = zip(*(case(seed, informative=True) for seed in range(12)), strict=True)
    with pytest.raises((InputError, TypeError), match=words):
        lp.Refiner.fit(images, logits, labels, layout="hwk", scores="logits", groups=groups, **options)
