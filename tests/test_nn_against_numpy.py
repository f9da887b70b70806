"""The torch losses against the objectives of `CRF.fit`."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from locpmap.features import Features  # noqa: E402 (torch may be missing)
from locpmap.graphs import box_of  # noqa: E402
from locpmap.kernels.cpu.backend import CpuKernels  # noqa: E402
from locpmap.learning.batches import VOID, Batch  # noqa: E402
from locpmap.learning.objectives import Objective  # noqa: E402
from locpmap.learning.parameters import Parameters  # noqa: E402
from locpmap.nn import CompositeLikelihoodLoss, PseudolikelihoodLoss, consistent_loss  # noqa: E402

N, K = 3, 3


@pytest.mark.parametrize("shape", [(5, 4), (3, 2, 4)], ids=["images", "volumes"])
@pytest.mark.parametrize("objective", ["pseudolikelihood", "rows", "columns", "rows+columns", (2, 2), "consistent"])
@pytest.mark.parametrize("voids", [False, True])
def test_losses_and_gradients_match_the_objectives(
    objective: str | tuple[int, ...], voids: bool, shape: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(1)
    if isinstance(objective, tuple):
        objective = (*(1,) * (len(shape) - 2), *objective)
    logits, table = rng.normal(size=(N, *shape, K)), rng.normal(size=(K, K))
    labels = rng.integers(0, K, (N, *shape)).astype(np.int16)
    if voids:
        labels[rng.random(labels.shape) < 0.2] = VOID
    samples = rng.integers(0, K, (N, math.prod(shape), 4)).astype(np.int16)
    samples[labels.reshape(N, -1) == VOID] = VOID
    # The scores are features with scale 1.  The gauge of the table of a non-constant feature fixes only its sum.
    parameters = Parameters(K, tuple("abc"), ("other",), unary="scale")
    w = np.concatenate([[1.0], np.zeros(K), table.ravel()])
    create, connectivity = (Features.grid, 4) if len(shape) == 2 else (Features.volume, 6)
    edges = [np.ones((*size, 1)) for size in box_of(shape, connectivity).direction_shapes]
    features = create(logits, edges, unary_names=tuple("abc"), pairwise_names=("other",))
    batch = Batch(features, labels.reshape(N, -1), np.ones((1, 1)))
    blocks = None if objective in ("pseudolikelihood", "consistent") else objective
    whole = Objective(parameters, CpuKernels("numba"), l2=0.0, blocks=blocks)
    value, gradient = whole(batch, w, samples if objective == "consistent" else None)

    scores = torch.tensor(np.moveaxis(logits, -1, 1), requires_grad=True)
    weights = torch.tensor(table, requires_grad=True)
    truth = torch.tensor(np.where(labels == VOID, -100, labels).astype(np.int64))
    if objective == "consistent":
        drawn = torch.tensor(np.moveaxis(samples, 2, 0).reshape(4, N, *shape).astype(np.int64))
        loss = consistent_loss(scores, weights, truth, drawn, reduction="sum")
    elif objective == "pseudolikelihood":
        loss = PseudolikelihoodLoss(reduction="sum")(scores, weights, truth)
    else:
        loss = CompositeLikelihoodLoss(objective, reduction="sum")(scores, weights, truth)
    loss.backward()
    assert loss.item() == pytest.approx(value, rel=1e-12)
    ours = weights.grad.numpy()
    np.testing.assert_allclose(gradient[1 + K :].reshape(K, K), ours - ours.mean(), atol=1e-11)
    np.testing.assert_allclose(gradient[0], float((scores.grad * scores.detach()).sum()), atol=1e-10)
