"""Site updates per nanosecond of Gibbs sampling compared with THRML: `python -m benchmarks.samplers.updates`.

THRML (a JAX library) runs many chains with ``jax.vmap``, ours runs them as a batch. Ours also counts the labels, from
which probabilities follow; THRML only returns its last states, which is less work.
"""

import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import locpmap as lp
from benchmarks import machine
from benchmarks.report import join_record

RECORD = Path(__file__).parents[1] / "results" / "updates.json"
SPREAD, REPEATS = 0.5, 5  # standard deviation of biases and couplings; timed calls


def grid(side: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return biases (H, W) and couplings (H - 1, W) and (H, W - 1) of an Ising model with spins of -1 and 1."""
    rng = np.random.default_rng(seed)
    shapes = ((side, side), (side - 1, side), (side, side - 1))
    return tuple(SPREAD * rng.standard_normal(shape).astype(np.float32) for shape in shapes)  # type: ignore[return-value]


def ours(model: Any, n_chains: int, n_sweeps: int, device: str) -> Callable[[], Any]:
    """Return a call of `lp.Gibbs`, whose arrays are on the device."""
    import torch

    biases, down, right = (torch.tensor(part, device=device) for part in model)
    unary = torch.stack([-biases, biases], dim=-1).expand(n_chains, -1, -1, -1).contiguous()
    potentials = lp.Potentials.grid(unary, (2 * right, 2 * down))  # equal spins differ from unequal ones by 2 J
    decoder = lp.Gibbs(n_sweeps, burn_in=0)
    return lambda: lp.infer(potentials, decoder, seed=0, device=device).probability


def thrml(model: Any, n_chains: int, n_sweeps: int, device: str) -> Callable[[], Any]:
    """Return a compiled call of THRML's block Gibbs sampler, with the two colours of a chessboard as blocks."""
    import jax
    import jax.numpy as jnp
    from thrml import Block, SamplingSchedule, SpinNode, sample_states
    from thrml.models import IsingEBM, IsingSamplingProgram

    biases, down, right = model
    side = len(biases)
    nodes = [[SpinNode() for _ in range(side)] for _ in range(side)]
    vertical = [(nodes[i][j], nodes[i + 1][j]) for i in range(side - 1) for j in range(side)]
    horizontal = [(nodes[i][j], nodes[i][j + 1]) for i in range(side) for j in range(side - 1)]
    flat = [node for row in nodes for node in row]
    couplings = jnp.array(np.concatenate([down.ravel(), right.ravel()]))
    ising = IsingEBM(flat, vertical + horizontal, jnp.array(biases.ravel()), couplings, jnp.array(1.0))
    colours = [Block([nodes[i][j] for i in range(side) for j in range(side) if (i + j) % 2 == k]) for k in (0, 1)]
    program = IsingSamplingProgram(ising, colours, clamped_blocks=[])
    schedule = SamplingSchedule(n_warmup=n_sweeps, n_samples=1, steps_per_sample=1)

    def chain(key: Any) -> Any:
        start, run = jax.random.split(key)
        first = [jax.random.bernoulli(start, shape=(len(block.nodes),)) for block in colours]
        return sample_states(run, program, schedule, first, [], colours)

    compiled = jax.jit(jax.vmap(chain))
    keys = jax.random.split(jax.random.key(0), n_chains)
    return lambda: jax.block_until_ready(compiled(keys))


def seconds_of(call: Callable[[], Any], device: str) -> tuple[float, float]:
    """Return the median seconds of a call, after one that compiles: wall time, and CPU time of all threads."""
    import torch

    def once() -> tuple[float, float]:
        began = time.perf_counter(), time.process_time()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began[0], time.process_time() - began[1]

    once()
    walls, cpus = zip(*(once() for _ in range(REPEATS)), strict=True)
    return statistics.median(walls), statistics.median(cpus)


def main(
    side: Annotated[int, typer.Option(help="Rows and columns of the grid.")] = 256,
    n_chains: Annotated[int, typer.Option(help="Number of chains.")] = 64,
    n_sweeps: Annotated[int, typer.Option(help="Number of sweeps.")] = 200,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    seed: Annotated[int, typer.Option(help="Seed of the model.")] = 0,
    record: Annotated[bool, typer.Option(help="Write the result into results/updates.json.")] = False,
) -> None:
    """Time both samplers on one model."""
    here: dict[str, Any] = dict(machine.machine())
    if device == "cuda":
        from benchmarks.gpu_clock import card

        here |= card()
    model = grid(side, seed)
    updates = side * side * n_chains * n_sweeps
    seconds = {name: seconds_of(make(model, n_chains, n_sweeps, device), device) for name, make in SAMPLERS.items()}
    rates = {name: updates / wall / 1e9 for name, (wall, _) in seconds.items()}
    per_cpu = {name: updates / cpu / 1e9 for name, (_, cpu) in seconds.items()}
    for name, rate in rates.items():
        typer.echo(f"{name}: {rate:.3g} site updates per nanosecond, {per_cpu[name]:.3g} per nanosecond of CPU time")
    if record:
        more = {"updates per CPU nanosecond": per_cpu} if device == "cpu" else {}
        entry = {**machine.provenance("benchmarks.samplers.updates", seed, here), "thrml": version("thrml")}
        join_record(RECORD, f"{side}², {n_chains} chains, {device}", {**entry, "updates per nanosecond": rates, **more})


SAMPLERS = {"lp.Gibbs": ours, "THRML": thrml}

if __name__ == "__main__":
    typer.run(main)
