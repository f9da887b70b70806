"""`samples`: a stream of the label maps that `infer` stores, for any chunk size."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap.arrays import BLOCK, copy_by_sample
from locpmap.inference.samples import stream_samples
from locpmap.potentials import Potentials

RNG = np.random.default_rng(0)
MASK = RNG.random((5, 6)) < 0.2
MODELS = {
    "two labels": Potentials.grid(RNG.normal(size=(5, 6, 2)), 0.8),
    "masked": Potentials.grid(RNG.normal(size=(5, 6, 2)), 0.8, mask=MASK),
    "batch": Potentials.grid(RNG.normal(size=(3, 4, 5, 3)), 0.5),
    "graph": Potentials.graph(RNG.normal(size=(6, 2)), [[0, 1], [1, 2], [2, 3], [4, 5]], 0.7),
}
DECODERS: dict[str, Any] = {
    "locpmap": lp.LocPMAP(70),
    "votes": lp.LocPMAP(10, probability="votes"),
    "rows": lp.LocPMAP(10, blocks="rows+columns"),
    "gibbs": lp.Gibbs(10, burn_in=7, thin=3),
    "perturb_and_map": lp.PerturbAndMAP(10),
    "perturb_and_max_product": lp.PerturbAndMaxProduct(10),
}


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
@pytest.mark.parametrize(
    ("model", "decoder"),
    [
        *((model, decoder) for model in ("two labels", "batch") for decoder in ("locpmap", "votes", "rows", "gibbs")),
        *((model, decoder) for model in ("masked", "graph") for decoder in DECODERS if decoder != "rows"),
    ],
)
def test_stream_equals_the_samples_of_infer(model: str, decoder: str, chunk: int) -> None:
    how: dict[str, Any] = {"seed": 5, "first_image": 2, "n_threads": 2}
    result = lp.infer(MODELS[model], replace(DECODERS[decoder], keep_samples=True), **how)
    maps = list(lp.samples(MODELS[model], DECODERS[decoder], chunk=chunk, **how))
    assert all(labels.shape == result.labels.shape for labels in maps)
    np.testing.assert_array_equal(np.stack(maps), result.samples)


def test_decoder_given_by_name_uses_its_defaults() -> None:
    maps = np.stack(list(lp.samples(MODELS["two labels"], "locpmap")))
    np.testing.assert_array_equal(maps, lp.infer(MODELS["two labels"], keep_samples=True).samples)
    np.testing.assert_array_equal(maps, np.stack(list(lp.samples(MODELS["two labels"]))))
    assert len(list(lp.samples(MODELS["two labels"], "icm_iter"))) == 50


@pytest.mark.parametrize("decoder", ["locpmap", "gibbs"])
def test_drawing_in_chunks_gives_the_result_of_infer(decoder: str) -> None:
    pot, stream = MODELS["masked"], stream_samples(MODELS["masked"], DECODERS[decoder], 8, 5)
    while True:
        try:
            assert len(next(stream)) <= 8
        except StopIteration as end:
            found = end.value
            break
    result = lp.infer(pot, DECODERS[decoder], seed=5)
    np.testing.assert_array_equal(found.labels, result.labels)
    np.testing.assert_array_equal(found.probability, result.probability)
    assert (found.status, found.n_samples, found.n_sweeps) == (result.status, result.n_samples, result.n_sweeps)


def test_tensor_input_gives_tensor_samples() -> None:
    torch = pytest.importorskip("torch")
    (labels,) = lp.samples(Potentials.grid(torch.zeros(3, 4, 2), 1.0), lp.LocPMAP(1))
    assert torch.is_tensor(labels)
    assert labels.shape == (3, 4)


def test_closing_the_stream_ends_its_threads() -> None:
    before = threading.active_count()
    stream = lp.samples(MODELS["two labels"], lp.LocPMAP(1000), chunk=16, n_threads=3)
    assert threading.active_count() == before
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"decoder": "icm"}, "decoder is icm, which draws no samples: expected one that does, like locpmap"),
        ({"decoder": lp.LBP()}, "decoder is lbp, which draws no samples"),
        ({"decoder": "locmap"}, "unknown method 'locmap'"),
        ({"chunk": 0}, "chunk is 0, expected a whole number of at least 1"),
        ({"seed": -1}, "seed is -1"),
        ({"backend": "nunba"}, "unknown backend 'nunba'"),
    ],
)
def test_bad_arguments_raise_errors_before_the_first_sample(how: dict[str, Any], message: str) -> None:
    with pytest.raises(lp.InputError, match=message):
        lp.samples(MODELS["two labels"], **how)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 2 * BLOCK + 1, 5), (BLOCK // 7 + 2, 7, 2), (2, BLOCK, 3)])
def test_samples_are_copied_in_blocks_without_loss(shape: tuple[int, int, int]) -> None:
    labels = np.arange(np.prod(shape)).reshape(shape)
    out = np.full((shape[2], *shape[:2]), -1)
    copy_by_sample(labels, out)
    np.testing.assert_array_equal(out, np.moveaxis(labels, 2, 0))
