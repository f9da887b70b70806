"""The torch losses and the CRF head: values, gradients, precision, compilation, samples, learning and errors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tests.oracles.enumeration import Enumeration
from tests.oracles.models import GridModel
from tests.oracles.statistics import check_z, z_bound

import locpmap as lp
from locpmap.errors import InputError, LocpmapError

torch = pytest.importorskip("torch", reason="torch is not installed")
F = torch.nn.functional
nn = pytest.importorskip("locpmap.nn", reason="torch is not installed")
potentials = pytest.importorskip("locpmap.nn.potentials")

FORMS = ("weight", "table", "weights", "tables", "edge weights", "edge tables", "shared edge tables", "mixed")
BLOCKS: tuple[Any, ...] = ("rows", "columns", "rows+columns", (2, 2), (1, 3), (2, 1), (1, 1))
SHAPES = ((2, 3, 3), (3, 3, 2), (2, 1, 5), (3, 4, 1))  # K, H, W


class Case:
    """Logits, pairwise terms in one of FORMS, and labels with or without void sites; also as grid models."""

    def __init__(self, form: str, shape: tuple[int, int, int] = (2, 3, 4), void: bool = False, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        n_images, (n_labels, height, width) = 2, shape
        self.n_labels = n_labels
        table, sizes = (n_labels, n_labels), ((height, width - 1), (height - 1, width))

        def normal(*size: int) -> Any:
            return torch.tensor(rng.normal(size=size), dtype=torch.float64)

        weight, shared = normal(), normal(*table)
        per_direction = {
            "weight": lambda size: weight,
            "table": lambda size: shared,
            "weights": lambda size: normal(),
            "tables": lambda size: normal(*table),
            "edge weights": lambda size: normal(n_images, *size),
            "edge tables": lambda size: normal(n_images, *size, *table),
            "shared edge tables": lambda size: normal(1, *size, *table),
            "mixed": lambda size: normal(n_images, *size) if size == sizes[0] else normal(*table),
        }
        pair = tuple(per_direction[form](size) for size in sizes)
        self.pairwise: Any = pair[0] if form in ("weight", "table") else pair
        self.logits = normal(n_images, n_labels, height, width)
        labels = rng.integers(n_labels, size=(n_images, height, width))
        if void:
            labels[rng.random(labels.shape) < 0.3] = -100
        self.labels = torch.tensor(labels)
        expanded = [self._expand(value, size) for value, size in zip(pair, sizes, strict=True)]
        scores = self.logits.movedim(1, -1).numpy()
        self.models = [GridModel(scores[n], expanded[0][n], expanded[1][n]) for n in range(n_images)]

    def _expand(self, value: Any, size: tuple[int, int]) -> Any:
        table = (self.n_labels, self.n_labels)
        if value.dim() in (0, 3):
            value = value[..., None, None] * torch.eye(self.n_labels, dtype=torch.float64)
        if value.dim() == 2:
            value = value.expand(1, *size, *table)
        return value.expand(2, *size, *table).numpy()

    @property
    def leaves(self) -> list[Any]:
        pairwise = self.pairwise if isinstance(self.pairwise, tuple) else (self.pairwise,)
        return [v.clone().requires_grad_() for v in (self.logits, *pairwise)]

    def from_leaves(self, leaves: Sequence[Any]) -> tuple[Any, Any]:
        """Return logits and pairwise terms from a flat list, as gradcheck passes them."""
        return leaves[0], tuple(leaves[1:]) if isinstance(self.pairwise, tuple) else leaves[1]


def enumerate_labelled(model: GridModel, labelled: Any) -> tuple[Enumeration, Any]:
    """Return the model without its void sites, and the index of every site in that model (-1 for void)."""
    flat = model.flatten()
    number = np.where(labelled, np.cumsum(labelled) - 1, -1)
    kept = labelled[flat.edges].all(axis=1)
    return Enumeration(flat.unary[labelled], number[flat.edges[kept]], flat.tables[kept]), number


def log_conditionals(model: GridModel, labels: Any, blocks: Sequence[Any]) -> Any:
    """Compute ``log p(y_β | y_¬β)`` of blocks by listing all labellings of the labelled sites; 0 for void blocks."""
    labels = np.ravel(labels)
    labelled = labels >= 0
    listing, number = enumerate_labelled(model, labelled)
    truth = np.flatnonzero((listing.labellings == labels[labelled]).all(axis=1))[0]
    living = [number[np.asarray(block)][number[np.asarray(block)] >= 0] for block in blocks]
    return np.array([np.log(listing.block_conditional(list(b))[truth]) if len(b) else 0.0 for b in living])


def blocks_of(name: Any, height: int, width: int) -> list[Any]:
    site = np.arange(height * width).reshape(height, width)
    if name == "rows+columns":
        return blocks_of("rows", height, width) + blocks_of("columns", height, width)
    h, w = {"rows": (1, width), "columns": (height, 1)}.get(name, name)
    return [site[r : r + h, c : c + w].ravel() for r in range(0, height, h) for c in range(0, width, w)]


def expected_loss(case: Case, name: Any) -> float:
    height, width = case.labels.shape[1:]
    blocks = blocks_of(name, height, width)
    return -sum(
        float(log_conditionals(m, y, blocks).sum()) for m, y in zip(case.models, case.labels.numpy(), strict=True)
    )


# values


@pytest.mark.parametrize("void", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_pseudolikelihood_is_the_sum_of_enumerated_conditionals(form: str, void: bool) -> None:
    for shape in SHAPES:
        case = Case(form, shape, void)
        loss = nn.PseudolikelihoodLoss(reduction="sum")(case.logits, case.pairwise, case.labels)
        np.testing.assert_allclose(float(loss), expected_loss(case, (1, 1)), rtol=1e-12)


@pytest.mark.parametrize("void", [False, True])
@pytest.mark.parametrize("blocks", BLOCKS, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_composite_likelihood_is_the_sum_of_enumerated_conditionals(form: str, blocks: Any, void: bool) -> None:
    for shape in SHAPES:
        case = Case(form, shape, void)
        loss = nn.CompositeLikelihoodLoss(blocks, reduction="sum")(case.logits, case.pairwise, case.labels)
        np.testing.assert_allclose(float(loss), expected_loss(case, blocks), rtol=1e-12)


@pytest.mark.parametrize("void", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_consistent_loss_averages_enumerated_conditionals(form: str, void: bool) -> None:
    case = Case(form, (2, 2, 3), void)
    samples = torch.tensor(np.random.default_rng(1).integers(2, size=(3, *case.labels.shape)))
    loss = nn.consistent_loss(case.logits, case.pairwise, case.labels, samples, reduction="none")
    for n, (model, labels) in enumerate(zip(case.models, case.labels.numpy(), strict=True)):
        for i, label in enumerate(labels.ravel()):
            if label < 0:
                assert loss[n].flatten()[i] == 0
                continue
            p = []
            for sample in samples[:, n].numpy():
                mixed = np.where(labels.ravel() < 0, -1, sample.ravel())
                mixed[i] = label
                p.append(np.exp(log_conditionals(model, mixed, [[i]])[0]))
            np.testing.assert_allclose(float(loss[n].flatten()[i]), -np.log(np.mean(p)), rtol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_with_true_labels_as_samples_the_consistent_loss_is_the_pseudolikelihood(form: str) -> None:
    case = Case(form, void=True)
    truth = case.labels.expand(3, -1, -1, -1)
    for reduction in ("mean", "sum", "none"):
        consistent = nn.consistent_loss(case.logits, case.pairwise, case.labels, truth, reduction=reduction)
        plain = nn.PseudolikelihoodLoss(reduction=reduction)(case.logits, case.pairwise, case.labels)
        torch.testing.assert_close(consistent, plain, rtol=1e-13, atol=1e-14)


def test_the_consistent_loss_of_improbable_labels_is_finite() -> None:
    """Conditionals underflow in single precision; their logarithms do not."""
    logits = torch.tensor([0.0, 300.0]).reshape(1, 2, 1, 1).requires_grad_()
    labels = torch.zeros(1, 1, 1, dtype=torch.int64)
    loss = nn.ConsistentLoss()(logits, 1.0, labels)
    loss.backward()
    torch.testing.assert_close(loss, torch.tensor(300.0), rtol=2e-7, atol=0)
    torch.testing.assert_close(logits.grad.flatten(), torch.tensor([-1.0, 1.0]), rtol=1e-4, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_without_edges_losses_equal_the_cross_entropy(dtype: Any) -> None:
    case = Case("weight", (3, 4, 1), void=True)
    logits = case.logits.to(dtype)
    rounding = 4 * torch.finfo(dtype).eps
    for reduction in ("mean", "sum", "none"):
        expected = F.cross_entropy(logits, case.labels, reduction=reduction)
        for loss in (nn.PseudolikelihoodLoss, nn.ConsistentLoss):
            came = loss(reduction=reduction)(logits, 0.0, case.labels)
            torch.testing.assert_close(came, expected, rtol=rounding, atol=rounding)
    single = logits[:, :, :1], case.labels[:, :1].clamp(min=0)
    torch.testing.assert_close(
        nn.PseudolikelihoodLoss()(single[0], 9.0, single[1]), F.cross_entropy(*single), rtol=rounding, atol=0
    )


@pytest.mark.parametrize(
    "loss",
    [nn.PseudolikelihoodLoss(), nn.ConsistentLoss(), *map(nn.CompositeLikelihoodLoss, ("rows", (1, 1)))],
    ids=repr,
)
def test_a_forbidden_true_label_has_the_loss_and_gradient_of_a_cross_entropy(loss: Any) -> None:
    case = Case("weight", (3, 4, 1))
    logits = case.logits.clone()
    logits[0, case.labels[0, 0, 0], 0, 0] = -torch.inf
    leaves = [logits.clone().requires_grad_() for _ in range(2)]
    losses = loss(leaves[0], 0.0, case.labels), F.cross_entropy(leaves[1], case.labels)
    for came in losses:
        assert came == torch.inf
        came.backward()
    torch.testing.assert_close(leaves[0].grad, leaves[1].grad, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    "loss", [nn.PseudolikelihoodLoss, nn.CompositeLikelihoodLoss, nn.ConsistentLoss], ids=lambda c: c.__name__
)
def test_mean_reduction_divides_by_the_labelled_pixels(loss: Any) -> None:
    case = Case("edge tables", void=True)
    total, mean = (loss(reduction=r)(case.logits, case.pairwise, case.labels) for r in ("sum", "mean"))
    n_labelled = int((case.labels != -100).sum())
    torch.testing.assert_close(mean * n_labelled, total, rtol=1e-13, atol=0)
    marked = case.labels.masked_fill(case.labels == -100, 255)
    torch.testing.assert_close(loss(ignore_index=255)(case.logits, case.pairwise, marked), mean, rtol=0, atol=0)
    nothing = loss()(case.logits.requires_grad_(), case.pairwise, torch.full_like(case.labels, -100))
    nothing.backward()
    assert float(nothing.detach()) == 0
    assert (case.logits.grad == 0).all()


def test_single_precision_is_enough_for_large_images() -> None:
    """Log partition functions of chains grow with the image, but their difference from the true score does not."""
    generator = torch.Generator().manual_seed(0)
    logits = 30 * torch.randn(1, 3, 128, 128, generator=generator)
    labels = logits.argmax(1)
    for loss in (nn.PseudolikelihoodLoss(), nn.CompositeLikelihoodLoss(), nn.CompositeLikelihoodLoss((2, 2))):
        single, double = (float(loss(values, 1.0, labels)) for values in (logits, logits.double()))
        assert abs(single - double) < 1e-6


# gradients


def losses() -> dict[str, Callable[..., Any]]:
    found = {"pseudolikelihood": nn.PseudolikelihoodLoss(), "none": nn.PseudolikelihoodLoss(reduction="none")}
    return found | {f"composite {blocks}": nn.CompositeLikelihoodLoss(blocks) for blocks in ("rows+columns", (2, 2))}


@pytest.mark.parametrize("name", losses())
@pytest.mark.parametrize("form", FORMS)
def test_gradients_match_numerical_derivatives(form: str, name: str) -> None:
    case = Case(form, (2, 2, 3), void=True)
    loss = losses()[name]
    assert torch.autograd.gradcheck(
        lambda *leaves: loss(*case.from_leaves(leaves), case.labels), case.leaves, fast_mode=True
    )


@pytest.mark.parametrize("form", ["weight", "edge tables"])
def test_gradients_of_the_consistent_loss_match_numerical_derivatives(form: str) -> None:
    case = Case(form, (3, 2, 3), void=True)
    samples = torch.tensor(np.random.default_rng(1).integers(3, size=(3, *case.labels.shape)))
    assert torch.autograd.gradcheck(
        lambda *leaves: nn.consistent_loss(*case.from_leaves(leaves), case.labels, samples), case.leaves, fast_mode=True
    )


@pytest.mark.parametrize("form", FORMS)
def test_the_gradient_of_the_logits_is_probability_minus_one_hot_label(form: str) -> None:
    case = Case(form, (3, 3, 4))
    logits = case.logits.requires_grad_()
    nn.PseudolikelihoodLoss(reduction="sum")(logits, case.pairwise, case.labels).backward()
    for n, model in enumerate(case.models):
        pot = lp.Potentials.grid(model.unary, (model.horizontal, model.vertical))
        p = torch.tensor(pot.local_scores(case.labels[n].numpy())).softmax(-1)
        expected = (p - F.one_hot(case.labels[n], 3)).movedim(-1, 0)
        torch.testing.assert_close(logits.grad[n], expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("loss", [nn.PseudolikelihoodLoss(), nn.CompositeLikelihoodLoss("rows")], ids=repr)
def test_second_derivatives_are_refused(loss: Any) -> None:
    logits = torch.zeros(1, 2, 3, 3, requires_grad=True)
    value = loss(2 * logits, 1.0, torch.zeros(1, 3, 3, dtype=torch.int64))
    with pytest.raises(InputError, match="create_graph is True, expected False"):
        torch.autograd.grad(value, logits, create_graph=True)


@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")  # of torch's own imports
@pytest.mark.parametrize("loss", [nn.PseudolikelihoodLoss(), nn.CompositeLikelihoodLoss("rows")], ids=repr)
def test_forward_derivatives_are_refused(loss: Any) -> None:
    logits, labels = torch.zeros(1, 2, 3, 3), torch.zeros(1, 3, 3, dtype=torch.int64)
    weight = torch.tensor(1.0)
    for of_one, at in ((lambda x: loss(x, 1.0, labels), logits), (lambda w: loss(logits, w, labels), weight)):
        with pytest.raises(InputError, match="has a tangent"):
            torch.func.jvp(of_one, (at,), (torch.ones_like(at),))


def test_forbidden_labels_have_no_gradient() -> None:
    case = Case("table", (3, 3, 4))
    logits = case.logits.clone()
    logits[:, 2] = -torch.inf
    labels = case.labels.clamp(max=1)
    for loss in (nn.PseudolikelihoodLoss(), nn.CompositeLikelihoodLoss(), nn.CompositeLikelihoodLoss((2, 2))):
        leaf = logits.clone().requires_grad_()
        loss(leaf, case.pairwise, labels).backward()
        assert (leaf.grad[:, 2] == 0).all()
        assert torch.isfinite(leaf.grad).all()
        fewer = loss(logits[:, :2], case.pairwise[:2, :2], labels)
        torch.testing.assert_close(loss(logits, case.pairwise, labels), fewer, rtol=1e-12, atol=0)


# precision and compilation


@pytest.mark.parametrize(
    "loss", [nn.PseudolikelihoodLoss, nn.CompositeLikelihoodLoss, nn.ConsistentLoss], ids=lambda c: c.__name__
)
def test_losses_use_single_precision_under_autocast(loss: Any) -> None:
    case = Case("table", (3, 5, 6), void=True)
    logits, table = case.logits.float().requires_grad_(), case.pairwise.float()
    plain = loss()(logits, table, case.labels)
    with torch.autocast("cpu", torch.bfloat16):
        cast = loss()(logits, table, case.labels)
        cast.backward()
        half = loss()(logits.bfloat16(), table, case.labels)
    assert cast.dtype == half.dtype == logits.grad.dtype == torch.float32
    assert cast == plain
    assert half == loss()(logits.bfloat16().float(), table, case.labels)
    assert loss()(logits.bfloat16(), 0.1, case.labels) == loss()(logits.bfloat16().float(), 0.1, case.labels)


@pytest.mark.parametrize("form", ["weight", "edge tables"])
def test_pseudolikelihood_compiles_into_one_graph(form: str) -> None:
    torch.compiler.reset()
    case = Case(form, void=True)
    compiled = torch.compile(nn.PseudolikelihoodLoss(), backend="aot_eager", fullgraph=True)
    runs = []
    for loss in (compiled, nn.PseudolikelihoodLoss()):
        leaves = case.leaves
        value = loss(*case.from_leaves(leaves), case.labels)
        value.backward()
        runs.append([value, *(leaf.grad for leaf in leaves)])
    torch.testing.assert_close(runs[0], runs[1], rtol=1e-13, atol=1e-14)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # the compiler reads .grad after a graph break
@pytest.mark.parametrize("objective", ["pseudolikelihood", "composite", "consistent"])
def test_a_network_with_a_head_compiles(objective: str) -> None:
    torch.compiler.reset()
    torch.manual_seed(0)
    case = Case("weight", (2, 4, 5), void=True)
    image = case.logits[:, :1].float()
    net = torch.nn.Conv2d(1, 2, 3, padding=1)
    head = nn.CRFHead(2, weights=0.5, objective=objective)

    def step(x: Any, labels: Any) -> Any:
        return head(net(x), labels)

    expected = copy.deepcopy(head)(net(image), case.labels)
    loss = torch.compile(step, backend="eager", fullgraph=objective == "pseudolikelihood")(image, case.labels)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert (head.weights.grad != 0).all()


# samples


def draw(case: Case, n_samples: int, max_sweeps: int = 100, seed: int = 0) -> Any:
    field = potentials.make_field(case.logits, case.pairwise, case.labels, -100)
    return nn.ConsistentLoss(n_samples, max_sweeps, seed)._draw(field)


def test_without_coupling_samples_follow_the_softmax() -> None:
    case = Case("weight", (3, 2, 3))
    case.pairwise = 0.0
    n_draws = 20_000
    p = case.logits.softmax(1).movedim(1, -1).flatten(0, -2)[:, :2].numpy()
    votes = F.one_hot(draw(case, n_draws).long(), 3).sum(0).flatten(0, -2)[:, :2].numpy()
    check_z(((votes - n_draws * p) / np.sqrt(n_draws * p * (1 - p)))[:, 0])


@pytest.mark.parametrize("void", [False, True])
def test_samples_have_the_distribution_of_the_decoder(void: bool) -> None:
    case = Case("edge tables", (2, 3, 4), void)
    n_draws = 5_000
    ours = draw(case, n_draws)
    pot = lp.Potentials.grid(case.logits.movedim(1, -1), case.pairwise, mask=case.labels == -100)
    theirs = lp.infer(pot, "locpmap", n_samples=n_draws, probability="votes").probability[..., 1]
    labelled = case.labels >= 0
    assert (ours[:, ~labelled] == -1).all()
    a, b = (ours == 1).double().mean(0)[labelled].numpy(), theirs[labelled].numpy()
    error = np.sqrt((a * (1 - a) + b * (1 - b)) / n_draws)
    assert (np.abs(a - b) / error).max() < z_bound(len(a))


def test_autocast_does_not_change_the_samples() -> None:
    case = Case("table", (3, 5, 6))
    case.logits, case.pairwise = case.logits.float(), 10 * case.pairwise.float()
    plain = draw(case, 64)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(draw(case, 64), plain)


def test_a_climb_stops_at_max_sweeps() -> None:
    case = Case("edge tables", (2, 8, 8))
    assert not torch.equal(draw(case, 8, max_sweeps=1), draw(case, 8))


def test_samples_depend_only_on_seed_and_step() -> None:
    case = Case("edge tables")

    def run(seed: int) -> list[float]:
        loss = nn.ConsistentLoss(n_samples=2, seed=seed)
        return [float(loss(case.logits, case.pairwise, case.labels)) for _ in range(3)]

    before = torch.get_rng_state()
    first = run(0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(5)
    assert run(0) == first
    assert len({*first, *run(1)}) == 6
    still = nn.ConsistentLoss(n_samples=2).train(False)
    assert {float(still(case.logits, case.pairwise, case.labels)) for _ in range(2)} == {first[0]}


# the head


def potts_samples(weights: tuple[float, float], n_images: int) -> Any:
    """Draw exact samples (N, 3, 3) from a two-label Potts model without unaries."""
    horizontal, vertical = (
        np.broadcast_to(w * np.eye(2), (*s, 2, 2)) for w, s in zip(weights, ((3, 2), (2, 3)), strict=True)
    )
    listing = Enumeration(*GridModel(np.zeros((3, 3, 2)), horizontal, vertical).flatten())
    drawn = np.random.default_rng(0).choice(len(listing.probability), size=n_images, p=listing.probability)
    return torch.tensor(listing.labellings[drawn].reshape(n_images, 3, 3))


@pytest.mark.parametrize("objective", ["pseudolikelihood", "composite"])
def test_the_head_finds_the_true_coupling(objective: str) -> None:
    """The error is within the bound of the sandwich covariance H⁻¹ J H⁻¹ of the objective."""
    truth = torch.tensor([0.8, 0.3], dtype=torch.float64)
    labels = potts_samples((0.8, 0.3), 3000)
    logits = torch.zeros(len(labels), 2, 3, 3, dtype=torch.float64)
    head = nn.CRFHead(2, objective=objective).double()
    optimizer = torch.optim.LBFGS(head.parameters(), max_iter=20, line_search_fn="strong_wolfe")

    def closure() -> Any:
        optimizer.zero_grad()
        loss = head(logits, labels)
        loss.backward()
        return loss

    optimizer.step(closure)
    head.objective.reduction = "sum"

    def loss_of(weights: Any) -> Any:  # weights (2,), or (N, 2) for gradients per image
        horizontal, vertical = weights.expand(len(labels), 2)[..., None, None].unbind(1)
        return head.objective(logits, (horizontal.expand(-1, 3, 2), vertical.expand(-1, 2, 3)), labels)

    learned = head.weights[:, 0].detach()

    def gradient(weights: Any) -> Any:
        leaf = weights.clone().requires_grad_()
        return torch.autograd.grad(loss_of(leaf), leaf)[0]

    steps = 1e-4 * torch.eye(2, dtype=torch.float64)
    hessian = torch.stack([(gradient(learned + step) - gradient(learned - step)) / 2e-4 for step in steps])
    gradients = torch.autograd.functional.jacobian(loss_of, learned.expand(len(labels), 2))
    covariance = torch.linalg.solve(hessian, torch.linalg.solve(hessian, gradients.T @ gradients).T)
    z = (learned - truth) / covariance.diagonal().sqrt()
    assert float(z.abs().max()) < z_bound(2)
    assert float(covariance.diagonal().sqrt().max()) < 0.05  # distinguishes the weights from 0 and from each other


def train(head: Any, optimizer: Any, logits: Any, labels: Any, steps: int) -> list[float]:
    values = []
    for _ in range(steps):
        loss = head(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(float(loss.detach()))
    return values


def test_a_resumed_training_equals_an_uninterrupted_one() -> None:
    labels = potts_samples((0.8, 0.3), 50)
    logits = torch.zeros(50, 2, 3, 3)

    def make() -> tuple[Any, Any]:
        head = nn.CRFHead(2, weights=0.2, objective=nn.ConsistentLoss(n_samples=2, seed=3))
        return head, torch.optim.Adam(head.parameters(), 0.1)

    head, optimizer = make()
    first = train(head, optimizer, logits, labels, 3)
    kept = copy.deepcopy((head.state_dict(), optimizer.state_dict()))
    expected = train(head, optimizer, logits, labels, 3)
    resumed, its_optimizer = make()
    resumed.load_state_dict(kept[0])
    its_optimizer.load_state_dict(kept[1])
    assert train(resumed, its_optimizer, logits, labels, 3) == expected != first
    assert set(kept[0]) == {"weights", "objective.step"}
    assert int(kept[0]["objective.step"]) == 3


def test_consistent_training_finds_a_positive_coupling() -> None:
    labels = potts_samples((1.0, 1.0), 400)
    generator = torch.Generator().manual_seed(0)
    seen = F.one_hot(labels, 2).movedim(-1, 1) + 0.8 * torch.randn(400, 2, 3, 3, generator=generator)
    head = nn.CRFHead(2)
    losses = train(head, torch.optim.Adam(head.parameters(), 0.05), seen, labels, 40)
    assert np.mean(losses[-5:]) < losses[0] - 0.03
    assert (head.weights > 0.3).all()


@pytest.mark.parametrize("pairwise", ["potts", "table"])
def test_pairwise_terms_are_linear_in_edge_features(pairwise: str) -> None:
    case = Case("weight", (3, 3, 4))
    rng = np.random.default_rng(2)
    features = tuple(torch.tensor(rng.normal(size=(2, *size, 2))) for size in ((3, 3), (2, 4)))
    shape = (2, 2) if pairwise == "potts" else (2, 2, 3, 3)
    weights = torch.tensor(rng.normal(size=shape))
    head = nn.CRFHead(3, pairwise, features=2, weights=weights, objective="pseudolikelihood").double()
    assert head.weights.shape == shape
    weights = head.weights.detach()
    expected = tuple(
        sum(given[..., f, *(None,) * (len(shape) - 2)] * w[f] for f in range(2))
        for given, w in zip(features, weights, strict=True)
    )
    loss = head(case.logits, case.labels, edge_features=features)
    torch.testing.assert_close(loss, nn.PseudolikelihoodLoss()(case.logits, expected, case.labels))
    loss.backward()
    assert (head.weights.grad != 0).all()
    result = head.train(False)(case.logits, edge_features=features)
    potentials = lp.Potentials.grid(case.logits.movedim(1, -1), expected)
    direct = lp.infer(potentials, "locpmap", probability="conditional")
    assert torch.equal(result.labels, direct.labels)
    shared = tuple(given[:1] for given in features)
    per_image = tuple(given[:1].expand(2, -1, -1, -1) for given in features)
    one, each = (head(case.logits, edge_features=f).probability for f in (shared, per_image))
    assert torch.equal(one, each)


@pytest.mark.parametrize("pairwise", ["potts", "table"])
def test_predicted_terms_start_at_zero_and_use_features_of_the_first_end(pairwise: str) -> None:
    case = Case("weight", (2, 3, 4))
    logits, feature_map = case.logits.float(), torch.randn(2, 5, 3, 4, generator=torch.Generator().manual_seed(0))
    head = nn.CRFHead(2, pairwise, feature_channels=5, objective="pseudolikelihood")
    loss = head(logits, case.labels, feature_map)
    torch.testing.assert_close(loss, F.cross_entropy(logits, case.labels))
    loss.backward()
    assert (head.predict.weight.grad != 0).all()
    torch.nn.init.normal_(head.predict.weight)
    horizontal, vertical = head.terms(logits, feature_map)
    tail = () if pairwise == "potts" else (2, 2)
    assert horizontal.shape == (2, 3, 3, *tail)
    assert vertical.shape == (2, 2, 4, *tail)
    kernel = head.predict.weight.detach().reshape(2, -1, 5)
    torch.testing.assert_close(horizontal[1, 2, 1].flatten(), kernel[0] @ feature_map[1, :, 2, 1])
    torch.testing.assert_close(vertical[1, 1, 3].flatten(), kernel[1] @ feature_map[1, :, 1, 3])
    with torch.autocast("cpu", torch.bfloat16):
        assert head(logits, case.labels, feature_map).dtype == torch.float32
        assert head.train(False)(logits.bfloat16(), feature_map=feature_map).labels.shape == (2, 3, 4)


def test_fixed_weights_are_not_parameters_and_decode_as_infer_does() -> None:
    case = Case("weight", (3, 4, 5))
    head = nn.CRFHead(3, weights=0.7, learn=False, method="lbp", options={"max_sweeps": 30}).train(False)
    assert not list(head.parameters())
    result = head(case.logits.requires_grad_())
    expected = lp.infer(lp.Potentials.grid(case.logits.movedim(1, -1), head.weights[0, 0]), lp.LBP(max_sweeps=30))
    assert isinstance(result, lp.Result)
    torch.testing.assert_close(result.probability, expected.probability)
    assert not result.probability.requires_grad
    table = nn.CRFHead(3, "table", weights=0.7, method=lp.LBP(max_sweeps=30)).train(False)
    torch.testing.assert_close(table(case.logits).probability, expected.probability)


def test_state_dicts_restore_the_weights() -> None:
    head = nn.CRFHead(3, "table", features=2, weights=torch.arange(36.0).reshape(2, 2, 3, 3))
    other = nn.CRFHead(3, "table", features=2)
    other.load_state_dict(head.state_dict())
    assert torch.equal(other.weights, head.weights)
    fixed = nn.CRFHead(3, "table", features=2, learn=False)
    fixed.load_state_dict(head.state_dict())
    assert torch.equal(fixed.weights, head.weights)


# bad input


LOGITS, LABELS = torch.zeros(1, 2, 3, 4), torch.zeros(1, 3, 4, dtype=torch.int64)
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "logits": (lambda: nn.PseudolikelihoodLoss()(LOGITS[0], 1.0, LABELS), r"logits has shape \(2, 3, 4\), expected"),
    "numpy": (lambda: nn.PseudolikelihoodLoss()(LOGITS.numpy(), 1.0, LABELS), "logits is a ndarray, expected a tensor"),
    "whole": (lambda: nn.PseudolikelihoodLoss()(LOGITS.long(), 1.0, LABELS), "logits has dtype torch.int64"),
    "shape": (lambda: nn.PseudolikelihoodLoss()(LOGITS, 1.0, LABELS[:, 1:]), r"labels has shape \(1, 2, 4\)"),
    "dtype": (lambda: nn.PseudolikelihoodLoss()(LOGITS, 1.0, LABELS.float()), "labels has dtype torch.float32"),
    "large": (lambda: nn.CompositeLikelihoodLoss()(LOGITS, 1.0, LABELS + 2), "labels contains 2, expected 0 to 1 or"),
    "negative": (lambda: nn.ConsistentLoss()(LOGITS, 1.0, LABELS - 1), "labels contains -1, expected 0 to 1 or"),
    "table": (lambda: nn.PseudolikelihoodLoss()(LOGITS, torch.eye(3), LABELS), r"horizontal\) has shape \(3, 3\)"),
    "edges": (
        lambda: nn.PseudolikelihoodLoss()(LOGITS, (torch.ones(1, 3, 3), torch.ones(1, 3, 4)), LABELS),
        r"vertical\) has shape \(1, 3, 4\), expected \(\), \(2, 2\), \(1, 2, 4\) or \(1, 2, 4, 2, 2\)",
    ),
    "single": (lambda: nn.PseudolikelihoodLoss()(LOGITS, torch.ones(1, 3, 3), LABELS), "one entry per step"),
    "triple": (
        lambda: nn.PseudolikelihoodLoss()(LOGITS, (1.0, 1.0, 1.0), LABELS),
        "pairwise has 3 entries, expected 2",
    ),
    "nan": (lambda: nn.PseudolikelihoodLoss()(LOGITS, np.nan, LABELS), "pairwise contains nan, expected finite"),
    "infinite": (
        lambda: nn.ConsistentLoss()(LOGITS, (1.0, torch.full((1, 2, 4), -torch.inf)), LABELS),
        "pairwise contains -inf, expected finite",
    ),
    "nan in a table": (
        lambda: nn.CompositeLikelihoodLoss()(LOGITS, torch.full((2, 2), torch.nan), LABELS),
        "pairwise contains nan, expected finite",
    ),
    "word": (lambda: nn.PseudolikelihoodLoss()(LOGITS, "potts", LABELS), "pairwise is a str, expected numbers"),
    "reduction": (lambda: nn.PseudolikelihoodLoss(reduction="means"), "did you mean 'mean'"),
    "none": (lambda: nn.CompositeLikelihoodLoss(reduction="none"), "unknown reduction 'none'"),
    "blocks": (lambda: nn.CompositeLikelihoodLoss("row"), "did you mean 'rows'"),
    "tile": (lambda: nn.CompositeLikelihoodLoss((0, 2)), r"blocks is \(0, 2\), expected a name or a tile"),
    "number": (lambda: nn.CompositeLikelihoodLoss(2), "blocks is 2, expected"),
    "joint": (lambda: nn.CompositeLikelihoodLoss((4, 4))(LOGITS, 1.0, LABELS), r"2\^16 joint labellings, expected at"),
    "samples": (lambda: nn.ConsistentLoss(n_samples=0), "n_samples is 0, expected a whole number of at least 1"),
    "samples of truth": (lambda: nn.ConsistentLoss(n_samples=True), "n_samples is True, expected a whole number"),
    "seed": (lambda: nn.ConsistentLoss(seed=2**64), f"seed is {2**64}, expected a whole number of at most {2**64 - 1}"),
    "ignored": (lambda: nn.PseudolikelihoodLoss("a"), "ignore_index is 'a', expected a whole number"),
    "ignored blocks": (lambda: nn.CompositeLikelihoodLoss(ignore_index=None), "ignore_index is None, expected a whole"),
    "ignored samples": (lambda: nn.ConsistentLoss(ignore_index=1.5), "ignore_index is 1.5, expected a whole number"),
    "ignored drawn": (
        lambda: nn.consistent_loss(LOGITS, 1.0, LABELS, LABELS[None], ignore_index="a"),
        "ignore_index is 'a', expected a whole number",
    ),
    "no samples": (lambda: nn.consistent_loss(LOGITS, 1.0, LABELS, None), "samples is a NoneType, expected a tensor"),
    "large samples": (
        lambda: nn.consistent_loss(LOGITS, 1.0, LABELS, LABELS[None] + 2),
        "samples contains 2, expected 0 to 1, -1 or ignore_index -100",
    ),
    "small samples": (
        lambda: nn.consistent_loss(LOGITS, 1.0, LABELS, LABELS[None] - 2),
        "samples contains -2, expected 0 to 1, -1 or ignore_index -100",
    ),
    "drawn": (
        lambda: nn.consistent_loss(LOGITS, 1.0, LABELS, LABELS),
        r"samples has shape .*, expected \(M, 1, 3, 4\)",
    ),
    "soft": (lambda: nn.consistent_loss(LOGITS, 1.0, LABELS, LABELS[None].float()), "samples has dtype torch.float32"),
    "head pairwise": (lambda: nn.CRFHead(2, "pots"), "did you mean 'potts'"),
    "head labels": (lambda: nn.CRFHead(0), "n_labels is 0, expected"),
    "head weights": (lambda: nn.CRFHead(2, weights=torch.ones(3)), r"weights is \(3,\), expected .* \(2, 1\)"),
    "head objective": (lambda: nn.CRFHead(2, objective="pseudo-likelihood"), "did you mean 'pseudolikelihood'"),
    "head type": (lambda: nn.CRFHead(2, objective=3), "objective is a int, expected a name or a loss"),
    "head method": (lambda: nn.CRFHead(2, method="locpmpa"), "did you mean 'locpmap'"),
    "head both": (lambda: nn.CRFHead(2, features=1, feature_channels=3), "feature_channels is given with"),
    "head logits": (lambda: nn.CRFHead(3)(LOGITS, LABELS), r"logits has shape .*, expected \(N, 3, H, W\)"),
    "head truth": (lambda: nn.CRFHead(2)(LOGITS), "labels is None, expected labels in training mode"),
    "head map": (lambda: nn.CRFHead(2, feature_channels=3)(LOGITS, LABELS), "feature_map is None, expected"),
    "head extra": (lambda: nn.CRFHead(2)(LOGITS, LABELS, LOGITS), "feature_map is given, expected"),
    "head size": (
        lambda: nn.CRFHead(2, feature_channels=2)(LOGITS, LABELS, LOGITS[:, :, 1:]),
        r"feature_map has shape \(1, 2, 2, 4\), expected \(1, 2, 3, 4\)",
    ),
    "head edges": (
        lambda: nn.CRFHead(2, features=1)(LOGITS, LABELS, edge_features=(torch.ones(1, 3, 3), torch.ones(1, 2, 4))),
        r"edge_features \(horizontal\) has shape \(1, 3, 3\), expected \(1, 3, 3, 1\)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_are_one_sentence(name: str) -> None:
    call, message = BAD[name]
    with pytest.raises(LocpmapError, match=message) as caught:
        call()
    assert isinstance(caught.value, InputError | TypeError)
    assert "\n" not in str(caught.value)
