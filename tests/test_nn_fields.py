"""Error fields of the torch head: their distribution, the loss that learns their sizes, decoding, files and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap.errors import LocpmapError

torch = pytest.importorskip("torch", reason="torch is not installed")
F = torch.nn.functional
nn = pytest.importorskip("locpmap.nn", reason="torch is not installed")
draw_fields = pytest.importorskip("locpmap.nn.field_loss").draw_fields

SIDE = 16
TRUE = torch.tensor([[0.5, 1.0], [1.5, 0.5]])  # sizes of two scales and two labels


def spread(sizes: Any) -> Any:
    """Return the standard deviation of the difference of two labels at each scale: only differences matter."""
    return sizes.square().sum(-1).sqrt()


def logits_and_maps(n: int, seed: int, n_maps: int = 1) -> tuple[Any, Any]:
    """Draw smooth logits (N, 2, 16, 16), and label maps (M, N, 16, 16) by LocPMAP with the true sizes."""
    generator = torch.Generator().manual_seed(seed)
    logits = F.interpolate(2 * torch.randn(n, 2, 3, 3, generator=generator), (SIDE, SIDE), mode="bilinear")
    decoder = lp.LocPMAP(n_maps, fields=lp.ErrorFields(TRUE), keep_samples=True)
    result = lp.infer(lp.Potentials.grid(logits.movedim(1, -1), 0.0), decoder, seed=seed)
    return logits, torch.as_tensor(result.samples).long()


@pytest.fixture(scope="module")
def trained() -> Any:
    """Train a head without coupling on 200 images."""
    logits, (labels,) = logits_and_maps(200, seed=1)
    objective = nn.FieldLoss(nn.PseudolikelihoodLoss(), n_samples=32)
    options = {"n_samples": 100, "keep_samples": True}
    head = nn.CRFHead(2, n_scales=2, learn=False, objective=objective, options=options)
    optimizer = torch.optim.Adam(head.parameters(), 0.1)
    generator = torch.Generator().manual_seed(0)
    for step in range(100):
        optimizer.param_groups[0]["lr"] = 0.1 * (1 - step / 100)
        batch = torch.randperm(200, generator=generator)[:20]
        loss = head(logits[batch], labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return head.train(False)


def test_fields_have_the_covariance_of_the_decoders_fields() -> None:
    """It is ``Σ_j sizes[j]² · 1.5² · k_j(dy) · k_j(dx)``, with k the mean overlap of two interpolations."""
    n, generator = 4000, torch.Generator().manual_seed(0)
    sizes = torch.tensor([[[1.0, 0.0, 0.5], [0.5, 2.0, 0.0]]], dtype=torch.float64)
    values = draw_fields(sizes, (12, 14), n, generator).numpy()
    assert values.shape == (n, 3, 12, 14)
    for k in range(3):
        for dy, dx in ((0, 0), (0, 1), (3, 0), (2, 5), (0, 9), (8, 8)):
            expected = sum(
                float(sizes[0, j, k]) ** 2 * 2.25 * overlap(dy, 4 << j) * overlap(dx, 4 << j) for j in range(2)
            )
            products = values[:, k, 2, 1] * values[:, k, 2 + dy, 1 + dx]
            assert abs(products.mean() - expected) < 4 * products.std() / np.sqrt(n), (k, dy, dx)
    between = values[:, 0, 5, 5] * values[:, 1, 5, 5]
    assert abs(between.mean()) < 4 * between.std() / np.sqrt(n)


def overlap(distance: int, cell: int) -> float:
    """Return the mean over phases of the sum over nodes of the two pixels' interpolation weights."""
    hat = lambda x: np.maximum(0, 1 - np.abs(x) / cell)  # noqa: E731
    nodes = np.arange(-3, 8) * cell
    return float(np.mean([(hat(p - nodes) * hat(p + distance - nodes)).sum() for p in range(cell)]))


@pytest.mark.parametrize("objective", ["pseudolikelihood", "consistent"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_with_sizes_0_the_loss_is_the_objective(objective: str, reduction: str) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 9, 10, generator=generator, dtype=torch.float64)
    labels = torch.randint(-1, 3, (2, 9, 10), generator=generator)  # a quarter is void
    weights = tuple(torch.rand(2, *shape, generator=generator, dtype=torch.float64) for shape in ((9, 9), (8, 10)))
    kind = nn.PseudolikelihoodLoss if objective == "pseudolikelihood" else nn.ConsistentLoss
    inner = kind(ignore_index=-1, reduction=reduction)
    if objective == "consistent":
        weights = (0.0, 0.0)  # samples differ between calls with coupling
    found = nn.FieldLoss(inner, n_samples=3)(logits, weights, labels, torch.zeros(2, 3))
    torch.testing.assert_close(found, inner(logits, weights, labels))


def test_the_loss_is_the_likelihood_of_sets_of_pixels() -> None:
    """Without coupling, many samples give the integral over the fields, here for one set of 1 × 2 pixels."""
    logits, labels = torch.zeros(1, 2, 1, 4), torch.tensor([[[0, -1, 0, -1]]])
    sizes = torch.tensor([[2.0, 0.0]])
    loss = nn.FieldLoss(nn.PseudolikelihoodLoss(ignore_index=-1, reduction="sum"), n_samples=40_000)
    found = float(loss(logits, 0.0, labels, sizes))
    rng = np.random.default_rng(0)
    phase = rng.integers(4, size=400_000)
    nodes = 3 * rng.normal(size=(2, 3, phase.size))  # 1.5 · size, upper and lower
    down = rng.integers(4, size=phase.size) / 4

    def probability(column: int) -> Any:
        cell, part = (phase + column) // 4, (phase + column) % 4 / 4
        at = nodes[:, cell, np.arange(phase.size)] * (1 - part) + nodes[:, cell + 1, np.arange(phase.size)] * part
        return 1 / (1 + np.exp(-(at[0] * (1 - down) + at[1] * down)))

    first, second = probability(0), probability(2)
    alone, together = -np.log(first.mean()) - np.log(second.mean()), -np.log((first * second).mean())
    # The two pixels are in one set at distance 2, and in different sets at distances 1 and 4 (of 1, 2, 4).
    assert abs(alone - together) > 0.2
    assert abs(found - (2 * alone + together) / 3) < 0.02


def test_gradients_match_numerical_derivatives() -> None:
    generator = torch.Generator().manual_seed(0)
    leaves = [torch.rand(*shape, generator=generator, dtype=torch.float64).requires_grad_()
              for shape in ((2, 3, 5, 6), (2, 5, 5), (3, 3), (2, 1, 3))]  # fmt: skip
    labels = torch.randint(-1, 3, (2, 5, 6), generator=generator)
    loss = nn.FieldLoss(nn.PseudolikelihoodLoss(ignore_index=-1), n_samples=3).train(
        False
    )  # the same fields every time
    assert torch.autograd.gradcheck(lambda unary, right, down, sizes: loss(unary, (right, down), labels, sizes), leaves)
    assert int(loss.step) == 0
    first, second = (float(loss.train()(leaves[0], 0.0, labels, leaves[3]).detach()) for _ in range(2))
    assert first != second
    assert int(loss.step) == 2


def test_training_recovers_the_sizes(trained: Any) -> None:
    """Over five seeds the relative errors were at most 0.10 with a standard deviation of 0.05, and 0.06 in total."""
    found = spread(trained.sizes(torch.zeros(1, 2, SIDE, SIDE))[0].detach())
    assert (found / spread(TRUE) - 1).abs().max() < 0.2
    assert abs(float(spread(found) / spread(spread(TRUE))) - 1) < 0.12  # both scales together


def test_samples_have_the_spread_of_areas(trained: Any) -> None:
    """CRPS of the area, compared with pixels that are drawn independently with the same probabilities."""
    logits, (labels,) = logits_and_maps(100, seed=2)
    result = trained(logits)
    assert result.samples.shape == (100, *labels.shape)
    torch.testing.assert_close(result.probability.sum(-1), torch.ones(labels.shape))
    uniforms = torch.rand(100, *labels.shape, generator=torch.Generator().manual_seed(3))
    pixels = uniforms < result.probability[..., 1]
    scores = [crps((maps == 1).double().mean((2, 3)), (labels == 1).double().mean((1, 2)))
              for maps in (result.samples, pixels)]  # fmt: skip
    gain = scores[1] - scores[0]
    assert gain.mean() > 4 * gain.std() / 10
    assert scores[0].mean() < 0.85 * scores[1].mean()


def crps(samples: Any, value: Any) -> Any:
    """Return the continuous ranked probability score of samples (M, N) for values (N,)."""
    between = (samples[:, None] - samples[None]).abs().mean((0, 1))
    return (samples - value).abs().mean(0) - between / 2


def test_sizes_are_predicted_from_features_and_saved(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = nn.CRFNetwork(nn.FCN(3, widths=(4, 5)), nn.CRFHead(3, feature_channels=5, n_scales=2))
    images, labels = torch.randn(3, 1, 10, 9), torch.randint(0, 3, (3, 10, 9))
    network(images, labels).backward()
    for weights in (network.backbone.features[0].weight, network.head.predict.weight, network.head.spread):
        assert (weights.grad != 0).any()
    torch.nn.init.normal_(network.head.spread)
    network.save(tmp_path / "network.safetensors")
    loaded = nn.CRFNetwork.load(tmp_path / "network.safetensors")
    fields = loaded.fields(images.numpy())
    assert fields.sizes.shape == (3, 2, 3)
    assert (fields.sizes[0] != fields.sizes[1]).all()
    features = loaded.backbone.features(images).mean((2, 3))
    spread = loaded.head.spread
    expected = torch.log1p(torch.exp(features @ spread[:, 1:].T + spread[:, 0])).reshape(3, 2, 3)
    np.testing.assert_allclose(fields.sizes, expected.detach().numpy(), rtol=1e-5)
    direct = lp.infer(loaded.potentials(images.numpy()), lp.LocPMAP(fields=fields), seed=0)
    np.testing.assert_allclose(loaded(images).probability.numpy(), direct.probability, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(network.train(False)(images).labels, loaded(images).labels)


def test_the_head_passes_its_steps_on() -> None:
    head = nn.CRFHead(2, n_scales=1, steps=((0, 1), (1, 0), (0, 3)))
    head(torch.zeros(1, 2, 5, 6), torch.tensor([[0, 0, 1, 1, 0, 0]] * 5)[None]).backward()
    assert head.objective.objective.n_samples == 1
    assert (head.weights.grad != 0).all()
    with pytest.raises(LocpmapError, match="objective has steps="):
        nn.CRFHead(2, n_scales=1, steps=((0, 1),), objective=nn.FieldLoss())


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # the compiler reads .grad after a graph break
def test_a_head_with_scales_compiles() -> None:
    torch.compiler.reset()
    head = nn.CRFHead(2, n_scales=1, objective="pseudolikelihood")
    logits, labels = torch.randn(2, 2, 5, 6, generator=torch.Generator().manual_seed(0)), torch.ones(2, 5, 6).long()
    expected = head.train(True)(logits, labels)
    head.objective.step.zero_()
    torch.testing.assert_close(torch.compile(lambda *given: head(*given), backend="eager")(logits, labels), expected)


LOGITS, LABELS = torch.zeros(1, 2, 3, 6), torch.zeros(1, 3, 6, dtype=torch.int64)
BAD: dict[str, tuple[Any, str]] = {
    "negative scales": (lambda: nn.CRFHead(2, n_scales=-1), "n_scales is -1, expected a whole number of at least 0"),
    "many scales": (lambda: nn.CRFHead(2, n_scales=13), "n_scales is 13, expected a whole number of at most 12"),
    "large cells": (
        lambda: nn.CRFHead(2, n_scales=2)(LOGITS, LABELS),
        "2 scales with cells of up to 8 pixels, expected at most the larger side of the grid, 6",
    ),
    "large decoded cells": (lambda: nn.CRFHead(2, n_scales=2).train(False)(LOGITS), "2 scales with cells of up to 8"),
    "nan": (
        lambda: nn.CRFHead(2, n_scales=1, feature_channels=1)(LOGITS, LABELS, LOGITS[:, :1] * torch.nan),
        "contains nan|NaN",
    ),
    "nan sizes": (
        lambda: nn.FieldLoss()(LOGITS, 0.0, LABELS, torch.tensor([torch.nan])),
        "sizes holds a negative number, NaN or infinity, expected finite ones of at least 0",
    ),
    "negative sizes": (lambda: nn.FieldLoss()(LOGITS, 0.0, LABELS, torch.tensor([-1.0])), "sizes holds a negative"),
    "shape": (
        lambda: nn.FieldLoss()(LOGITS, 0.0, LABELS, torch.ones(2, 1, 2)),
        r"sizes has shape \(2, 1, 2\), expected \(J,\), \(J, 2\) or \(1, J, 2\)",
    ),
    "list": (lambda: nn.FieldLoss()(LOGITS, 0.0, LABELS, [1.0]), "sizes is a list, expected a tensor"),
    "integers": (lambda: nn.FieldLoss()(LOGITS, 0.0, LABELS, torch.ones(1).long()), "sizes has dtype torch.int64"),
    "labels": (lambda: nn.FieldLoss()(LOGITS, 0.0, LABELS[:, 1:], torch.ones(1)), r"labels has shape \(1, 2, 6\)"),
    "samples": (lambda: nn.FieldLoss(n_samples=1), "n_samples is 1, expected a whole number of at least 2"),
    "reduction": (lambda: nn.FieldLoss(nn.PseudolikelihoodLoss(reduction="none")), "objective has reduction='none'"),
    "composite": (
        lambda: nn.CRFHead(2, n_scales=1, objective="composite"),
        "objective is a CompositeLikelihoodLoss, expected a PseudolikelihoodLoss or a ConsistentLoss",
    ),
    "method": (lambda: nn.CRFHead(2, n_scales=1, method="lbp"), "n_scales is 1, expected method='locpmap' without"),
    "no scales": (lambda: nn.CRFHead(2, objective=nn.FieldLoss()), "objective is a FieldLoss and n_scales is 0"),
    "no fields": (lambda: nn.CRFNetwork(nn.FCN(), nn.CRFHead(2)).fields(np.zeros((1, 3, 3))), "no head with n_scales"),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_are_one_sentence(name: str) -> None:
    call, message = BAD[name]
    with pytest.raises(LocpmapError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
