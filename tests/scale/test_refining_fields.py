"""Tiled refinement with error fields: the same labels and probabilities as `lp.refine` of the whole raster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap.refining.presence import predicted_fractions
from locpmap.refining.weights import Weights
from locpmap.scale import refine_tiled

da = pytest.importorskip("dask.array")
pytest.importorskip("zarr")

HEIGHT, WIDTH, K = 75, 68, 4
DECODER = lp.LocPMAP(12, start="perturbed", max_sweeps=16)


def example() -> tuple[np.ndarray, np.ndarray]:
    """Return an image (H, W, 3) of three regions, and logits (H, W, 4) in which one label is rare."""
    rng = np.random.default_rng(1)
    labels = (np.arange(HEIGHT)[:, None] + np.arange(WIDTH)) // 24 % 3
    image = (labels[..., None] * 60 + rng.integers(0, 40, (HEIGHT, WIDTH, 3))).astype(np.uint8)
    logits = 2 * np.eye(K)[labels] + rng.normal(size=(HEIGHT, WIDTH, K)) - [0, 0, 0, 4]
    return image, logits.astype(np.float32)


def refiner(coupling: float = 1.0, guided: float = 0.0, half: float = 0.05) -> lp.Refiner:
    """Return a refiner with error fields, shared error, noise and, if half is not 0, presence."""
    pairwise = np.array([[[0.3, 1.5], [0.2, 1.2]]]) * coupling
    errors: dict[str, Any] = {"shared": 0.24, "noise": 0.4, "sizes": [[0.3, 0.39, 0.99, 0.99, 0.62]]}
    errors["presence"] = [[half, 1.0]]
    return lp.Refiner(Weights([1.0], [1.1], [1 - guided], [guided], pairwise, typical=0.8, **errors))


def check_equal(image: Any, logits: Any, model: lp.Refiner, tile: Any = 30, **options: Any) -> None:
    """Assert that tiles have the labels and probabilities of the whole raster."""
    how: dict[str, Any] = {"decoder": DECODER, "seed": 3, "stride": 1.0, **options}
    expected = lp.refine(image, logits, model, layout="hwk", **how)
    found = refine_tiled(image, logits, model, tile=tile, **how)
    labels, probability = da.compute(found.labels, found.probability)
    np.testing.assert_array_equal(labels, expected.labels)
    np.testing.assert_array_equal(probability, expected.probability)
    assert probability.dtype == found.probability.dtype


@pytest.mark.parametrize("tile", [30, (17, 68)])
def test_tiles_equal_the_whole(tile: Any) -> None:
    _, logits = example()
    check_equal(None, logits, refiner(), tile)


@pytest.mark.parametrize("changed", [{"max_sweeps": 1}, {"blocks": "rows:8"}])
def test_labels_of_other_climbs_are_as_in_refine(changed: dict[str, Any]) -> None:
    _, logits = example()
    check_equal(None, logits, refiner(0.3), decoder=replace(DECODER, **changed))
    usual, other = (lp.refine(None, logits, refiner(0.3), decoder=d) for d in (DECODER, replace(DECODER, **changed)))
    assert (usual.labels != other.labels).any()


def test_temperature_mask_and_other_strides_are_as_in_refine() -> None:
    _, logits = example()
    mask = np.zeros((HEIGHT, WIDTH), bool)
    mask[:34, 31:] = True
    check_equal(None, logits, refiner().adjusted(temperature=1.6), mask=mask, stride=4.0)


def test_scales_larger_than_the_raster_are_shared() -> None:
    _, logits = example()
    found = refine_tiled(None, logits[:28, :30], refiner(), decoder=DECODER, tile=16)
    assert found.decoding.decoder.fields.n_scales == 3  # type: ignore[attr-defined]
    check_equal(None, logits[:28, :30], refiner(), tile=16)


def test_forbidden_labels_have_no_presence() -> None:
    _, logits = example()
    logits[50:, 50:, 1] = -np.inf
    check_equal(None, logits, refiner(), scores="logits")


def test_fields_of_the_decoder_replace_those_of_the_refiner() -> None:
    _, logits = example()
    own = replace(DECODER, fields=lp.ErrorFields([2.0, 1.0], shared=0.5))
    check_equal(None, logits, refiner(), decoder=own)
    check_equal(None, logits, lp.Refiner(Weights([1.0], [1.0])), decoder=own)


@pytest.mark.parametrize("start", ["random", "perturbed"])
def test_samples_without_coupling_need_two_sweeps(start: str) -> None:
    _, logits = example()
    decoder = replace(DECODER, start=start)
    check_equal(None, logits, refiner(coupling=0.0), decoder=decoder)
    found = refine_tiled(None, logits, refiner(coupling=0.0), decoder=decoder, tile=30)
    assert found.tiling.reach.halo == (4, 4)
    assert bool(found.converged.all())


def test_votes_without_coupling_use_all_samples() -> None:
    _, logits = example()
    check_equal(None, logits, lp.Refiner(Weights([1.0], [1.0])), decoder=replace(DECODER, probability="votes"))


def test_images_agree_up_to_rounding_of_colours() -> None:
    """Rounding may change the label of a pixel in a sample, hence a probability by 1 / 24."""
    image, logits = example()
    model = refiner(guided=0.5)
    expected = lp.refine(image, logits, model, stride=1.0, decoder=DECODER, seed=3)
    found = refine_tiled(da.from_array(image, 40), logits, model, decoder=DECODER, seed=3, tile=40)
    labels, probability = da.compute(found.labels, found.probability)
    np.testing.assert_array_equal(labels, expected.labels)
    assert (np.abs(probability - expected.probability) < 1e-5).mean() > 0.999


def test_results_do_not_depend_on_the_tile_size() -> None:
    image, logits = example()
    whole, tiled = (
        refine_tiled(image, logits, refiner(guided=0.5), decoder=DECODER, tile=tile).probability.compute()
        for tile in (1000, 21)
    )
    np.testing.assert_array_equal(tiled, whole)


@pytest.mark.parametrize("block", [1024, 20])
def test_presence_is_that_of_the_whole_raster(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locpmap.scale.whole_raster.BLOCK", block)
    image, logits = example()
    mask = np.zeros((HEIGHT, WIDTH), bool)
    mask[:, 40:] = True
    model = refiner(guided=0.5)
    prepared = model.prepare(image, logits, stride=1.0, mask=mask)
    fields = refine_tiled(image, logits, model, mask=da.from_array(mask)).decoding.decoder.fields  # type: ignore[attr-defined]
    np.testing.assert_allclose(fields.presence, prepared.fields.presence[0], rtol=1e-4)
    fractions = predicted_fractions(prepared.potentials, prepared.marginals)
    assert fractions is not None
    assert fractions[0, 3] < 0.05  # half: the rare label is absent from most samples
    assert fields.presence.min() < 0.5


def test_runs_resume(tmp_path: Path) -> None:
    _, logits = example()
    for kept in (0, 9):
        found = refine_tiled(None, logits, refiner(), decoder=DECODER, tile=30)
        summary = found.write(tmp_path / "out.zarr", arrays=["labels"], n_threads=1)
        assert (summary.tiles, summary.kept) == (9, kept)
