"""The torch losses against the objectives of `CRF.fit`."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from locpmap.features import Features  # noqa: E402 (torch may be missing)
from locpmap.kernels.cpu.backend import CpuKernels  # noqa: E402
from locpmap.learning.batches import VOID, Batch  # noqa: E402
from locpmap.learning.objectives import Objective  # noqa: E402
from locpmap.learning.parameters import Parameters  # noqa: E402
from locpmap.nn import CompositeLikelihoodLoss, PseudolikelihoodLoss, consistent_loss  # noqa: E402

N, H, W, K = 3, 5, 4, 3


@pytest.mark.parametrize("objective", ["pseudolikelihood", "rows", "columns", "rows+columns", (2, 2), "consistent"])
@pytest.mark.parametrize("voids", [False, True])
def test_losses_and_gradients_match_the_objectives(objective: str | tuple[int, int], voids: bool) -> None:
    rng = np.random.default_rng(1)
    logits, table = rng.normal(size=(N, H, W, K)), rng.normal(size=(K, K))
    labels = rng.integers(0, K, (N, H, W)).astype(np.int16)
    if voids:
        labels[rng.random(labels.shape) < 0.2] = VOID
    samples = rng.integers(0, K, (N, H * W, 4)).astype(np.int16)
    samples[labels.reshape(N, -1) == VOID] = VOID
    # The scores are features with scale 1.  The gauge of the table of a non-constant feature fixes only its sum.
    parameters = Parameters(K, tuple("abc"), ("other",), unary="scale")
    w = np.concatenate([[1.0], np.zeros(K), table.ravel()])
    edges = (np.ones((H, W - 1, 1)), np.ones((H - 1, W, 1)))
    features = Features.grid(logits, edges, unary_names=tuple("abc"), pairwise_names=("other",))
    batch = Batch(features, labels.reshape(N, -1), np.ones((1, 1)))
    blocks = None if objective in ("pseudolikelihood", "consistent") else objective
    whole = Objective(parameters, CpuKernels("numba"), l2=0.0, blocks=blocks)
    value, gradient = whole(batch, w, samples if objective == "consistent" else None)

    scores = torch.tensor(np.moveaxis(logits, 3, 1), requires_grad=True)
    weights = torch.tensor(table, requires_grad=True)
    truth = torch.tensor(np.where(labels == VOID, -100, labels).astype(np.int64))
    if objective == "consistent":
        drawn = torch.tensor(np.moveaxis(samples, 2, 0).reshape(4, N, H, W).astype(np.int64))
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
