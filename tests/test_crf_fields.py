"""Error fields of a CRF: learning them from simulated data, decoding with them, and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.model_files import FOLDER

import locpmap as lp
from locpmap.crf import Calibration
from locpmap.features import Features
from locpmap.formats.model_file import read_model, write_model
from locpmap.learning.proper_scores import crps

Array = npt.NDArray[Any]
N, SIDE, L = 24, 32, 3
FIELDS = lp.ErrorFields([0.0, 0.0, 1.0, 1.0], shared=1.0)


def simulated(seed: int, fields: lp.ErrorFields | None, n: int = N) -> tuple[Array, Array]:
    """Return scores with smooth regions, and one sample of label maps with the fields, for n images."""
    rng = np.random.default_rng(seed)
    coarse = rng.normal(size=(n, SIDE // 8, SIDE // 8, L)).repeat(8, axis=1).repeat(8, axis=2)
    scores = coarse + 0.5 * rng.normal(size=(n, SIDE, SIDE, L))
    decoder = lp.LocPMAP(1, keep_samples=True, fields=fields)
    return scores, lp.infer(lp.Potentials.grid(scores, 0.5), decoder, seed=seed).samples[0]


def fitted(scores: Array, labels: Array) -> lp.CRF:
    crf = lp.CRF(L, features=None, unary="scale", potts=True, tied=True)
    crf.fit(Features.grid(scores), labels)
    return crf


@pytest.fixture(scope="module")
def crf() -> lp.CRF:
    """Return a CRF calibrated with fields on images that have them."""
    model = fitted(*simulated(0, FIELDS))
    scores, labels = simulated(1, FIELDS)
    model.calibrate(Features.grid(scores), labels, fields=True)
    return model


def areas(crf: lp.CRF, scores: Array, **options: Any) -> Array:
    """Return the area fractions of labels in 99 samples, (99, N, L)."""
    drawn = crf.infer(Features.grid(scores), n_samples=99, keep_samples=True, seed=5, **options).samples
    return np.stack([(drawn == k).mean(axis=(2, 3)) for k in range(L)], axis=-1)


def test_fields_improve_areas_of_new_images(crf: lp.CRF) -> None:
    """Compare CRPS and coverage of 90 % intervals with those of samples without fields, on 48 new images."""
    scores, labels = simulated(2, FIELDS, 48)
    truth = np.stack([(labels == k).mean(axis=(1, 2)) for k in range(L)], axis=-1)
    with_fields, without = areas(crf, scores), areas(crf, scores, fields=None, temperature=1.0)
    gain = (crps(without, truth) - crps(with_fields, truth)).mean(axis=1)
    assert gain.mean() > 3 * gain.std() / np.sqrt(len(gain))
    assert crps(with_fields, truth).mean() < 0.8 * crps(without, truth).mean()
    covered = [
        float(((low <= truth) & (truth <= high)).mean())
        for low, high in (np.quantile(values, [0.05, 0.95], axis=0) for values in (with_fields, without))
    ]
    error = np.sqrt(0.9 * 0.1 / len(scores))  # labels of an image are dependent
    assert abs(covered[0] - 0.9) < 2.5 * error
    assert abs(covered[1] - 0.9) > 2.5 * error


def test_learned_fields_have_the_scales_of_the_images(crf: lp.CRF) -> None:
    found = crf.calibration
    assert found.fields is not None
    assert found.fields.n_scales == 4  # cells of 4, 8, 16 and 32 pixels fit into 32 × 32
    assert (found.scale, found.before, found.after) == (1.0, None, None)
    assert repr(crf).endswith("weights, with error fields>")


def test_fields_are_left_out_where_the_data_have_none() -> None:
    crf = fitted(*simulated(3, None))
    scores, labels = simulated(4, None)
    calls: list[tuple[int, int]] = []

    def report(done: int, most: int, value: float) -> None:
        calls.append((done, most))

    found = crf.calibrate(Features.grid(scores), labels, fields=True, progress=report)
    assert found == crf.calibration == Calibration()
    assert calls == [(step, 5) for step in range(1, 6)]


def test_fields_are_left_out_where_they_widen_areas() -> None:
    """Small images of independent errors: only perimeters would gain from fields."""
    labels = np.stack([np.roll(np.repeat([[0, 1]] * 16, 8, axis=1), shift, axis=1) for shift in range(32)])
    images = labels + np.random.default_rng(0).normal(size=labels.shape)
    crf = lp.CRF(n_labels=2)
    crf.fit(images[:16], labels[:16])
    earlier = crf.calibration = Calibration(temperature=2.0, scale=3.0)
    assert crf.calibrate(images[16:], labels[16:], fields=True) is earlier


def test_images_of_several_sizes_with_void_pixels(crf: lp.CRF) -> None:
    model = lp.CRF(L, features=None, unary="scale", potts=True, tied=True, ignore_label=255)
    model.parameters, model._learned = crf.parameters, crf._learned
    scores, labels = simulated(1, FIELDS, 8)
    inputs = [Features.grid(x[: SIDE - 8 * (n % 2)]) for n, x in enumerate(scores)]
    known = [y[: SIDE - 8 * (n % 2)].astype(int) for n, y in enumerate(labels)]
    for y in known:
        y[:, :4] = 255
    found = model.calibrate(inputs, known, fields=True).fields
    assert found is not None
    assert found.n_scales == 4


def test_a_file_restores_the_fields(crf: lp.CRF, tmp_path: Path) -> None:
    crf.save(tmp_path / "model.safetensors")
    again = lp.CRF.load(tmp_path / "model.safetensors")
    one, other = (model.infer(Features.grid(simulated(2, None, 2)[0]), seed=1) for model in (crf, again))
    np.testing.assert_array_equal(one.probability, other.probability)
    assert crf.calibration.fields is not None
    assert again.calibration.fields is not None
    assert repr(again.calibration) == repr(crf.calibration)
    np.testing.assert_array_equal(again.calibration.fields.sizes, crf.calibration.fields.sizes)


def test_files_without_fields_are_those_of_earlier_versions(tmp_path: Path) -> None:
    path = FOLDER / "0.1.0" / "crf.safetensors"
    old = lp.CRF.load(path)
    assert old.calibration.fields is None
    old.save(tmp_path / "again.safetensors")
    assert read_model(tmp_path / "again.safetensors")[1] == read_model(path)[1]
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


WRONG_FIELDS = {
    "nothing": None,
    "a list": [1.0],
    "keys are missing": {"sizes": [1.0]},
    **{
        f"{name} is {value}": {
            "sizes": [1.0],
            "cell": 4,
            "shared": 0.5,
            "presence": None,
            "clusters": None,
            name: value,
        }
        for name, value in [("sizes", [-1.0]), ("sizes", ["a"]), ("sizes", [[1.0]]), ("shared", [0.5]), ("cell", 3)]
    },
}


@pytest.mark.parametrize("wrong", WRONG_FIELDS)
def test_a_file_with_wrong_fields_is_refused(crf: lp.CRF, wrong: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    crf.save(path)
    arrays, header = read_model(path)
    write_model(path, arrays, header | {"fields": WRONG_FIELDS[wrong]})
    with pytest.raises(lp.InputError, match="malformed") as caught:
        lp.CRF.load(path)
    assert "\n" not in str(caught.value)


def test_decoding_uses_the_fields_unless_told_otherwise(crf: lp.CRF) -> None:
    features = Features.grid(simulated(2, None, 2)[0])
    potentials, c = crf.potentials(features), crf.calibration
    expected = lp.infer(potentials, lp.LocPMAP(8, temperature=c.temperature, fields=c.fields), seed=1).probability
    np.testing.assert_array_equal(crf.infer(features, n_samples=8, seed=1).probability, expected)
    plain = lp.infer(potentials, lp.LocPMAP(8), seed=1).probability
    np.testing.assert_array_equal(
        crf.infer(features, n_samples=8, seed=1, fields=None, temperature=1.0).probability, plain
    )
    np.testing.assert_array_equal(crf.infer(features, lp.LocPMAP(8), seed=1).probability, plain)
    assert (plain != expected).any()
    assert crf.infer(features, "icm").labels.shape == (2, SIDE, SIDE)


def test_scales_larger_than_the_image_become_shared(crf: lp.CRF) -> None:
    model = fitted(*simulated(0, None, 4))
    model.calibration = Calibration(fields=lp.ErrorFields([0.5, 1.0, 2.0], shared=2.0))
    small = Features.grid(simulated(2, None, 1)[0][0, :5, :7])
    expected = lp.LocPMAP(50, fields=lp.ErrorFields([0.5], shared=3.0))
    result = lp.infer(model.potentials(small), expected, seed=1)
    np.testing.assert_array_equal(model.infer(small, seed=1).probability, result.probability)


def test_fields_need_enough_images_on_grids(crf: lp.CRF) -> None:
    scores, labels = simulated(1, None, 4)
    for inputs, truth, words in (
        (Features.grid(scores[:3]), labels[:3], "fields is True with 3 labelled images, expected at least 4"),
        (
            Features.grid(scores[:, :3, :2]),
            labels[:, :3, :2],
            "an image of 3 × 2 pixels, expected a side",
        ),
    ):
        with pytest.raises(lp.InputError, match=words) as caught:
            crf.calibrate(inputs, truth, fields=True)
        assert "\n" not in str(caught.value)
    for name, value in {"fields": "no", "seed": 1.5}.items():
        options: dict[str, Any] = {"fields": True, name: value}
        with pytest.raises(lp.errors.LocpmapError, match=f"{name} is"):
            crf.calibrate(Features.grid(scores), labels, **options)
    graph = lp.CRF(L, features=None, unary="scale", potts=True)
    flat, sites = Features.graph(scores[:, 0], [[0, 1], [1, 2]]), labels[:, 0]
    graph.fit(flat, sites)
    with pytest.raises(lp.InputError, match="fields is True for volumes or graphs, expected images"):
        graph.calibrate(flat, sites, fields=True)
