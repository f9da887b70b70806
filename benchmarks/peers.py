"""What a user would otherwise run: one function per system, `prepare(task)` giving a function without arguments.

That function is what the clock sees: everything between the arrays and the labels. Work that a user pays once per
image size (PGMax's graph, a compiler) is done in `prepare`, to each peer's advantage. The models differ (dense or grid,
labels only or probabilities), so a row says what one waits for and what one gets, not that the answers are the same.
"""

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.tasks import Task

Run = Callable[[], np.ndarray]  # labels, in the shape of task.truth


def densecrf(task: Task) -> Run:
    """Fully connected CRF, 5 mean-field iterations: pydensecrf2 with the kernels of its README."""
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

    if task.truth.ndim == 3:  # colour says nothing about grey digits whose every pixel is noise
        return lambda: np.stack([decode(unary) for unary in task.unary])
    image = np.ascontiguousarray(task.image)
    return lambda: decode(task.unary, image)


def maxflow(task: Task) -> Run:
    """The exact optimum of a two-label batch in one cut: PyMaxflow."""
    return lambda: _binary_cut(task.unary[..., 1] - task.unary[..., 0], float(task.pairwise))  # type: ignore[arg-type]


def perturb_and_map(task: Task) -> Run:
    """Global Perturb-and-MAP of a two-label batch: 50 exact cuts under Gumbel noise, by PyMaxflow."""

    def run() -> np.ndarray:
        rng = np.random.default_rng(0)
        difference = task.unary[..., 1] - task.unary[..., 0]
        votes = np.zeros(task.truth.shape)
        for _ in range(50):
            votes += _binary_cut(difference + rng.logistic(size=difference.shape), float(task.pairwise))  # type: ignore[arg-type]
        return votes > 25

    return run


def _binary_cut(difference: np.ndarray, weight: float) -> np.ndarray:
    """The labels of largest score, all images of the batch in one graph: (N, H, W) bool."""
    import maxflow

    graph = maxflow.Graph[float](difference.size, 2 * difference.size)
    nodes = graph.add_grid_nodes(difference.shape)
    for axis in (1, 2):  # PyMaxflow's structures name the neighbours of the central node
        structure = np.zeros((3, 3, 3))
        structure[(1, 2, 1) if axis == 1 else (1, 1, 2)] = 1
        graph.add_grid_edges(nodes, weights=weight, structure=structure, symmetric=True)
    graph.add_grid_tedges(nodes, np.maximum(-difference, 0), np.maximum(difference, 0))
    graph.maxflow()
    return np.asarray(graph.get_grid_segments(nodes))


def alpha_expansion(task: Task) -> Run:
    """α-expansion to convergence: gco."""
    for name, kind in (("int", int), ("float", float)):
        np.__dict__.setdefault(name, kind)  # gco still uses the aliases that NumPy removed
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
    """Loopy belief propagation, 50 iterations: PGMax on JAX, compiled before the clock starts."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # the compiler reports every slow pass as an error
    import jax
    import jax.extend.backend

    jax.lib.xla_bridge = jax.extend.backend  # PGMax asks for the device where older versions of JAX kept it
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
    """Mean field on the grid, 50 sweeps, as shifted and weighted additions in torch."""
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
    """LocPMAP, M = 50, random start, to convergence: the few lines of torch that one would write first."""
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
    """Unary (L, .., H, W) and the two weight arrays as tensors; with the label axis first the rows are long."""
    import torch

    horizontal, vertical = (torch.from_numpy(np.ascontiguousarray(weights)) for weights in task.edge_weights())
    return torch.from_numpy(task.unary).movedim(-1, 0).contiguous(), horizontal, vertical


def _neighbour_score(unary: Any, horizontal: Any, vertical: Any, held: Any) -> Any:
    """`unary` plus the Potts support of the four neighbours for each label: (L, .., H, W)."""
    score = unary.clone()
    score[..., 1:] += horizontal * held[..., :-1]
    score[..., :-1] += horizontal * held[..., 1:]
    score[..., 1:, :] += vertical * held[..., :-1, :]
    score[..., :-1, :] += vertical * held[..., 1:, :]
    return score
