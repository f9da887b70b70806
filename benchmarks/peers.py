"""Other systems on the CPU: one function `prepare(task)` per system, which returns a function without arguments.

Only that function is timed: it contains all work from the arrays to the labels. Work that is needed once per image size
(PGMax's graph, compilation) is done in `prepare`, to the advantage of the other systems. The models differ (dense or
grid, labels only or probabilities), so a row compares time and accuracy, not identical results.
"""

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.tasks import Task

Run = Callable[[], np.ndarray]  # labels, in the shape of task.truth


def densecrf(task: Task) -> Run:
    """Prepare pydensecrf2: a fully connected CRF, 5 mean-field iterations, with the kernels of its README."""
    import pydensecrf.densecrf as dcrf

    def decode(unary: np.ndarray, image: np.ndarray | None = None) -> np.ndarray:
        height, width, n_labels = unary.shape
        crf = dcrf.DenseCRF2D(width, height, n_labels)
        crf.setUnaryEnergy(np.ascontiguousarray(-unary.reshape(-1, n_labels).T))
        crf.addPairwiseGaussian(sxy=3, compat=3)
        if image is not None:
            crf.addPairwiseBilateral(sxy=80, srgb=13, rgbim=image, compat=10)
        probability = np.asarray(crf.inference(5))
        return probability.argmax(0).reshape(height, width)

    if task.truth.ndim == 3:  # no colour kernel: the grey values of noisy digits are independent noise
        return lambda: np.stack([decode(unary) for unary in task.unary])
    image = np.ascontiguousarray(task.image)
    return lambda: decode(task.unary, image)


def maxflow(task: Task) -> Run:
    """Prepare PyMaxflow: the exact optimum of a batch with two labels in one cut."""
    return lambda: _binary_cut(task.unary[..., 1] - task.unary[..., 0], float(task.pairwise))  # type: ignore[arg-type]


def perturb_and_map(task: Task) -> Run:
    """Prepare global Perturb-and-MAP of a batch with two labels: 50 exact cuts under Gumbel noise, by PyMaxflow."""

    def run() -> np.ndarray:
        rng = np.random.default_rng(0)
        difference = task.unary[..., 1] - task.unary[..., 0]
        votes = np.zeros(task.truth.shape)
        for _ in range(50):
            votes += _binary_cut(difference + rng.logistic(size=difference.shape), float(task.pairwise))  # type: ignore[arg-type]
        return votes > 25

    return run


def _binary_cut(difference: np.ndarray, weight: float) -> np.ndarray:
    """Return the labels of largest score, (N, H, W) bool, with all images of the batch in one graph."""
    import maxflow

    graph = maxflow.Graph[float](difference.size, 2 * difference.size)
    nodes = graph.add_grid_nodes(difference.shape)
    for axis in (1, 2):  # PyMaxflow's structures mark the neighbours of the central node
        structure = np.zeros((3, 3, 3))
        structure[(1, 2, 1) if axis == 1 else (1, 1, 2)] = 1
        graph.add_grid_edges(nodes, weights=weight, structure=structure, symmetric=True)
    graph.add_grid_tedges(nodes, np.maximum(-difference, 0), np.maximum(difference, 0))
    graph.maxflow()
    return np.asarray(graph.get_grid_segments(nodes))


def alpha_expansion(task: Task) -> Run:
    """Prepare gco: α-expansion to convergence."""
    for name, kind in (("int", int), ("float", float)):
        np.__dict__.setdefault(name, kind)  # gco uses aliases that NumPy removed
    import gco

    height, width = task.truth.shape
    site = np.arange(height * width).reshape(height, width)
    horizontal, vertical = task.edge_weights()
    edges = np.concatenate(
        [np.stack([a.ravel(), b.ravel()], 1) for a, b in ((site[:, :-1], site[:, 1:]), (site[:-1], site[1:]))]
    )
    potts = 1.0 - np.eye(task.n_labels)

    def run() -> np.ndarray:
        weights = np.concatenate([horizontal.ravel(), vertical.ravel()])
        costs = (task.unary.max(-1, keepdims=True) - task.unary).reshape(-1, task.n_labels)
        labels = gco.cut_general_graph(edges, weights, costs, potts, algorithm="expansion")
        return np.asarray(labels).reshape(height, width)

    return run


def pgmax_bp(task: Task) -> Run:
    """Prepare PGMax on JAX: 50 iterations of loopy belief propagation, compiled before the timing."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # the compiler reports every slow pass as an error
    import jax
    import jax.extend.backend

    jax.lib.xla_bridge = jax.extend.backend  # PGMax uses the location of this module in older versions of JAX
    from pgmax import fgraph, fgroup, infer, vgroup

    variables = vgroup.NDVarArray(num_states=task.n_labels, shape=task.truth.shape)
    graph = fgraph.FactorGraph(variable_groups=variables)
    for axis, weight in zip((-1, -2), task.edge_weights(), strict=True):
        sites = np.moveaxis(np.indices(task.truth.shape), 0, -1)
        length = task.truth.shape[axis]
        first, second = (np.take(sites, r, axis - 1) for r in (np.arange(length - 1), np.arange(1, length)))
        pairs = [
            [variables[tuple(a)], variables[tuple(b)]]
            for a, b in zip(first.reshape(-1, sites.shape[-1]), second.reshape(-1, sites.shape[-1]), strict=True)
        ]
        tables = weight.reshape(-1, 1, 1) * np.eye(task.n_labels)
        graph.add_factors(fgroup.PairwiseFactorGroup(variables_for_factors=pairs, log_potential_matrix=tables))
    bp = infer.BP(graph.bp_state, temperature=1.0)

    @jax.jit
    def marginals(arrays: Any) -> Any:
        arrays = bp.run(arrays, num_iters=50, damping=0.5, temperature=1.0)
        return infer.get_marginals(bp.get_beliefs(arrays))[variables]

    def run() -> np.ndarray:
        return np.asarray(marginals(bp.init(evidence_updates={variables: task.unary}))).argmax(-1)

    run()  # compiles
    return run


def torch_mean_field(task: Task) -> Run:
    """Prepare mean field on the grid in torch: 50 sweeps of shifted and weighted additions."""
    import torch

    def run() -> np.ndarray:
        unary, horizontal, vertical = _labels_first(task)
        q = unary.softmax(0)
        for _ in range(50):
            q = _neighbour_score(unary, horizontal, vertical, q).softmax(0)
        return np.asarray(q.max(0).indices)

    torch.set_grad_enabled(False)
    return run


def torch_locpmap(task: Task) -> Run:
    """Prepare a direct LocPMAP implementation in torch: M = 50, random start, to convergence."""
    import torch

    def run() -> np.ndarray:
        generator = torch.Generator().manual_seed(0)
        unary, horizontal, vertical = _labels_first(task)
        label = torch.arange(task.n_labels).reshape(-1, *[1] * task.truth.ndim)
        height, width = task.truth.shape[-2:]
        red = (torch.arange(height)[:, None] + torch.arange(width)) % 2 == 0
        votes = torch.zeros_like(unary)
        for _ in range(50):
            noisy = unary - torch.empty_like(unary).exponential_(generator=generator).log()
            labels = torch.randint(task.n_labels, task.truth.shape, generator=generator)
            changed = True
            while changed:
                before = labels
                for colour in (red, ~red):
                    held = (labels == label).float()
                    best = _neighbour_score(noisy, horizontal, vertical, held).max(0).indices  # 10 × faster than argmax
                    labels = torch.where(colour, best, labels)
                changed = not torch.equal(before, labels)
            votes += labels == label
        return np.asarray(votes.max(0).indices)

    torch.set_grad_enabled(False)
    return run


def _labels_first(task: Task) -> tuple[Any, Any, Any]:
    """Return unaries (L, .., H, W) and both weight arrays as tensors; the label axis is first for long rows."""
    import torch

    horizontal, vertical = (torch.from_numpy(np.ascontiguousarray(weights)) for weights in task.edge_weights())
    return torch.from_numpy(task.unary).movedim(-1, 0).contiguous(), horizontal, vertical


def _neighbour_score(unary: Any, horizontal: Any, vertical: Any, held: Any) -> Any:
    """Return `unary` plus the Potts scores of the four neighbours for each label, (L, .., H, W)."""
    score = unary.clone()
    score[..., 1:] += horizontal * held[..., :-1]
    score[..., :-1] += horizontal * held[..., 1:]
    score[..., 1:, :] += vertical * held[..., :-1, :]
    score[..., :-1, :] += vertical * held[..., 1:, :]
    return score
