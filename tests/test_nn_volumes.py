"""The torch losses and the CRF head on volumes (N, K, D, H, W)."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap.errors import LocpmapError

torch = pytest.importorskip("torch", reason="torch is not installed")
F = torch.nn.functional
nn = pytest.importorskip("locpmap.nn", reason="torch is not installed")
draw_fields = pytest.importorskip("locpmap.nn.field_loss").draw_fields
next_seed = pytest.importorskip("locpmap.nn.losses").next_seed

N, K, SHAPE = 2, 3, (2, 2, 3)
EDGES = ((2, 2, 2), (2, 1, 3), (1, 2, 3))  # of the steps (0, 0, 1), (0, 1, 0) and (1, 0, 0)
FORMS = ("weight", "table", "weights", "tables", "edge weights", "edge tables", "mixed")


def normal(*size: int, seed: int = 0) -> Any:
    return torch.tensor(np.random.default_rng((seed, *size)).normal(size=size), dtype=torch.float64)


def pairwise_of(form: str) -> Any:
    if form in ("weight", "table"):
        return normal(*((K, K) if form == "table" else ()))
    tails = {"weights": (), "tables": (K, K), "edge weights": (), "edge tables": (K, K), "mixed": (K, K)}
    terms = [
        normal(*((N, *edges) if form.startswith("edge") else ()), *tails[form], seed=n) for n, edges in enumerate(EDGES)
    ]
    return (normal(1, *EDGES[0]), *terms[1:]) if form == "mixed" else tuple(terms)


def tables_of(pairwise: Any) -> tuple[Any, ...]:
    """Return the terms as tables of every edge, (N, edges, K, K), for `Potentials.volume`."""
    terms = pairwise if isinstance(pairwise, tuple) else (pairwise,) * 3
    found = []
    for term, edges in zip(terms, EDGES, strict=True):
        table = term if term.dim() in (2, 6) else term[..., None, None] * torch.eye(K, dtype=torch.float64)
        found.append(table.expand(N, *edges, K, K).numpy())
    return tuple(found)


@pytest.mark.parametrize("form", FORMS)
def test_losses_follow_from_scores_of_labellings(form: str) -> None:
    logits, pairwise = normal(N, K, *SHAPE), pairwise_of(form)
    labels = np.random.default_rng(0).integers(K, size=(N, *SHAPE))
    pot = lp.Potentials.volume(logits.movedim(1, -1).numpy(), tables_of(pairwise))
    true = torch.tensor(labels)
    found = nn.PseudolikelihoodLoss(reduction="none")(logits, pairwise, true)
    total = 0.0
    for site in np.ndindex(*SHAPE):
        changed = [labels.copy() for _ in range(K)]
        for k, other in enumerate(changed):
            other[:, *site] = k
        scores = np.stack([pot.score(other) for other in changed], axis=1)  # (N, K)
        expected = np.logaddexp.reduce(scores, axis=1) - pot.score(labels)
        np.testing.assert_allclose(found[:, *site].numpy(), expected, atol=1e-12)
        total += expected.sum()
    for blocks in ((1, 1, 1), (2, 1, 2)):
        tiles = float(nn.CompositeLikelihoodLoss(blocks, reduction="sum")(logits, pairwise, true))
        assert (tiles == pytest.approx(total, rel=1e-12)) == (blocks == (1, 1, 1))
    samples = torch.stack([true, true])
    same = nn.consistent_loss(logits, pairwise, true, samples, reduction="none")
    torch.testing.assert_close(same, found)


@pytest.mark.parametrize("loss", ["pseudolikelihood", "rows", "columns", (2, 2, 1), "consistent"])
@pytest.mark.parametrize("form", ["weights", "table", "edge weights", "edge tables"])
def test_gradients_match_finite_differences(loss: Any, form: str) -> None:
    logits, pairwise = normal(N, K, *SHAPE), pairwise_of(form)
    rng = np.random.default_rng(1)
    labels = torch.tensor(np.where(rng.random((N, *SHAPE)) < 0.2, -100, rng.integers(K, size=(N, *SHAPE))))
    samples = torch.tensor(rng.integers(K, size=(2, N, *SHAPE)))
    objective = nn.PseudolikelihoodLoss() if isinstance(loss, str) else nn.CompositeLikelihoodLoss(loss)
    if loss in ("rows", "columns"):
        objective = nn.CompositeLikelihoodLoss(loss)

    def value(scores: Any, *terms: Any) -> Any:
        given = terms if isinstance(pairwise, tuple) else terms[0]
        if loss == "consistent":
            return nn.consistent_loss(scores, given, labels, samples)
        return objective(scores, given, labels)

    leaves = [logits, *(pairwise if isinstance(pairwise, tuple) else (pairwise,))]
    assert torch.autograd.gradcheck(value, [leaf.clone().requires_grad_() for leaf in leaves])


def test_a_volume_of_depth_1_is_an_image() -> None:
    logits, labels = normal(N, K, 4, 5), torch.tensor(np.random.default_rng(0).integers(K, size=(N, 4, 5)))
    table = normal(3, K, K)
    head = nn.CRFHead(K, "table", weights=table[:2, None], method="mean_field", objective="pseudolikelihood")
    volumes = nn.CRFHead(K, "table", steps=6, weights=table[:, None], method="mean_field", objective="pseudolikelihood")
    loss, other = head(logits, labels), volumes(logits[:, :, None], labels[:, None])
    torch.testing.assert_close(loss, other)
    loss.backward()
    other.backward()
    torch.testing.assert_close(head.weights.grad, volumes.weights.grad[:2])
    assert (volumes.weights.grad[2] == 0).all()
    found, expected = volumes.train(False)(logits[:, :, None]), head.train(False)(logits)
    assert found.labels.shape == (N, 1, 4, 5)
    torch.testing.assert_close(found.probability[:, 0], expected.probability)


@pytest.mark.parametrize("steps", [6, 26])
def test_heads_decode_what_their_terms_describe(steps: int) -> None:
    logits, features = normal(N, K, *SHAPE).float(), normal(N, 4, *SHAPE).float()
    head = nn.CRFHead(K, steps=steps, feature_channels=4, method="exact")
    torch.nn.init.normal_(head.predict.weight, generator=torch.Generator().manual_seed(0))
    terms = head.terms(logits, features)
    assert len(terms) == steps // 2
    assert head.predict.weight.shape[0] == steps // 2
    expected = lp.infer(
        lp.Potentials.volume(
            logits.movedim(1, -1).numpy(), tuple(term.detach().numpy() for term in terms), connectivity=steps
        ),
        "exact",
    )
    found = head.train(False)(logits, feature_map=features)
    np.testing.assert_allclose(found.probability.numpy(), expected.probability, atol=1e-6)
    assert (found.labels.numpy() == expected.labels).all()


def test_edge_features_have_one_weight_per_direction() -> None:
    head = nn.CRFHead(K, steps=6, features=2, weights=normal(3, 2), objective="composite")
    features = [normal(N, *edges, 2) for edges in EDGES]
    terms = head.terms(normal(N, K, *SHAPE), edge_features=features)
    for term, given, weights in zip(terms, features, head.weights, strict=True):
        torch.testing.assert_close(term.double(), (given * weights).sum(-1), atol=1e-6, rtol=1e-6)


def test_the_consistent_loss_draws_samples_of_the_volume() -> None:
    logits, labels = normal(N, K, *SHAPE), torch.tensor(np.random.default_rng(0).integers(K, size=(N, *SHAPE)))
    labels[0, 0, 0, 0] = -100
    loss = nn.ConsistentLoss(n_samples=3, steps=6)
    pot = lp.Potentials.volume(logits.movedim(1, -1), (0.5, 1.0, 1.5), mask=labels == -100)
    decoder = lp.LocPMAP(3, max_sweeps=loss.max_sweeps)
    drawn = torch.stack(list(lp.samples(pot, decoder, seed=next_seed(copy.deepcopy(loss)))))
    expected = nn.consistent_loss(logits, (0.5, 1.0, 1.5), labels, drawn)
    torch.testing.assert_close(loss(logits, (0.5, 1.0, 1.5), labels), expected)


def test_fields_of_volumes_have_the_variance_of_their_sizes() -> None:
    """The mean square of ``(1 - t, t)`` over the positions t = 0, 1/c, .. of a cell of c voxels is 2/3 + 1/(3c²)."""
    n = 4000
    sizes = torch.tensor([[[1.0, 0.5], [0.5, 2.0]]], dtype=torch.float64)
    values = draw_fields(sizes, (3, 4, 5), n, torch.Generator().manual_seed(0)).square().mean((2, 3, 4))
    error = values.std(0) / n**0.5
    factors = (1.5 * (2 / 3 + 1 / (3 * torch.tensor([[4.0], [8.0]]) ** 2))) ** 3
    assert ((values.mean(0) - (factors * sizes[0].square()).sum(0)).abs() < 4 * error).all()


def test_the_loss_of_fields_of_size_0_is_the_objective() -> None:
    logits, labels = normal(1, K, 5, 4, 3), torch.tensor(np.random.default_rng(0).integers(K, size=(1, 5, 4, 3)))
    objective = nn.PseudolikelihoodLoss()
    found = nn.FieldLoss(objective, n_samples=2)(logits, 0.7, labels, torch.zeros(1))
    torch.testing.assert_close(found, objective(logits, 0.7, labels))
    head = nn.CRFHead(K, steps=6, n_scales=1, options={"n_samples": 4, "keep_samples": True})
    head(logits, labels).backward()
    assert (head.spread.grad != 0).any()
    assert head.train(False)(logits).samples.shape == (4, 1, 5, 4, 3)


LOGITS, LABELS = torch.zeros(1, 2, 2, 3, 4), torch.zeros(1, 2, 3, 4, dtype=torch.int64)
BAD: dict[str, tuple[Any, str]] = {
    "no steps": (lambda: nn.CRFHead(2)(LOGITS, LABELS), r"\(N, 2, H, W\) .* volumes need steps=6 or 26"),
    "an image": (lambda: nn.CRFHead(2, steps=6)(LOGITS[0], LABELS[0]), r"\(N, 2, D, H, W\)"),
    "six axes": (lambda: nn.PseudolikelihoodLoss()(LOGITS[None], 1.0, LABELS), r"or \(N, K, D, H, W\)"),
    "labels": (lambda: nn.PseudolikelihoodLoss()(LOGITS, 1.0, LABELS[0]), "labels has shape"),
    "two weights": (lambda: nn.PseudolikelihoodLoss()(LOGITS, (1.0, 1.0), LABELS), "2 entries, expected 3"),
    "a flat tile": (lambda: nn.CompositeLikelihoodLoss((2, 2))(LOGITS, 1.0, LABELS), "tile of 2 sides, expected 3"),
    "steps": (lambda: nn.CRFHead(2, steps=18), "steps is 18, expected"),
    "composite": (lambda: nn.CRFHead(2, steps=26, objective="composite"), "nearest neighbours"),
    "objective": (lambda: nn.CRFHead(2, steps=26, objective=nn.PseudolikelihoodLoss()), "like the head"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name: str) -> None:
    call, message = BAD[name]
    with pytest.raises(LocpmapError, match=message):
        call()
