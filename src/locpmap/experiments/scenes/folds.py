"""What networks say of scenes they never saw: every fold of the scenes by a network trained on the others.

Weights that stand beside a network's logits must be learned on such logits: on its own training scenes a network is
surer than it is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from locpmap.data.cache import PathLike
from locpmap.data.scenes import Scenes
from locpmap.errors import unknown, whole_number
from locpmap.experiments.scenes.feature_cache import hash_of
from locpmap.experiments.scenes.networks import predict_logits
from locpmap.experiments.scenes.split import named
from locpmap.experiments.scenes.store import UnaryStore
from locpmap.experiments.scenes.training import FAST, RECIPES, Progress, SceneRecipe, train_scene_network
from locpmap.experiments.stages import digest


def out_of_fold_logits(
    kind: str,
    scenes: Scenes,
    names: Sequence[str],
    folder: PathLike,
    *,
    n_folds: int = 4,
    seed: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
    fast: bool = False,
    recipe: SceneRecipe | None = None,
    weights_folder: PathLike | None = None,
    **training: Any,
) -> UnaryStore:
    """Logits (H, W, 8) of every named scene, by a network that was trained on the scenes of the other folds.

    What is finished is kept, and the state of a training under way: a call with the same arguments goes on from there.

    Args:
        kind: As for :func:`train_scene_network`.
        scenes: All scenes.
        names: Of those to learn from.
        folder: Where files are kept, in a folder of their own for other arguments; made if need be.
        n_folds: How many networks are trained, each on ``1 - 1 / n_folds`` of the scenes.
        seed: Of the folds and of everything that is drawn.
        device: As for :func:`train_scene_network`.
        progress: Called with (steps done, steps in all) over all folds.
        fast: A smoke run, as for :func:`train_scene_network`.
        recipe: In place of ``RECIPES[kind]``.
        weights_folder: The cache with the published weights.
        training: ``loss`` and ``couplings``, as for :func:`train_scene_network`.
    """
    if kind not in RECIPES:
        raise unknown("kind", kind, RECIPES)
    n_folds = whole_number("n_folds", n_folds, 2, len(names))
    recipe = recipe or RECIPES[kind]
    n_steps = FAST.n_steps if fast else recipe.training.n_steps
    settings = {"kind": kind, "names": list(names), "n_folds": n_folds, "seed": seed, "fast": fast}
    given = {key: value if isinstance(value, str) else np.asarray(value).tolist() for key, value in training.items()}
    seen = [[hash_of(image), hash_of(labels)] for _, image, labels in named(scenes, names)]
    place = Path(folder) / digest(settings | {"recipe": asdict(recipe), "training": given, "scenes": seen})[:16]
    place.mkdir(parents=True, exist_ok=True)
    store = UnaryStore(place)
    order = np.random.default_rng(seed).permutation(len(names))
    for fold in range(n_folds):
        held_out = [names[number] for number in order[fold::n_folds]]
        if any(name not in store for name in held_out):
            state = place / f"training-{fold}.safetensors"
            network = train_scene_network(
                kind,
                scenes,
                [name for name in names if name not in held_out],
                seed=seed + fold,
                device=device,
                checkpoint=state,
                progress=None if progress is None else _part_of(progress, fold, n_folds),
                fast=fast,
                recipe=recipe,
                folder=weights_folder,
                **training,
            )
            for name, image, _ in named(scenes, held_out):
                store.put(name, predict_logits(network, image))
            state.unlink(missing_ok=True)
        if progress is not None:
            progress((fold + 1) * n_steps, n_folds * n_steps)
    return store


def _part_of(progress: Progress, fold: int, n_folds: int) -> Progress:
    return lambda done, total: progress(fold * total + done, n_folds * total)
