"""What a network says of scenes that it never saw.

Weights that stand beside a network's logits must be learned on such logits: on its own training scenes a network is
surer than it is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from locpmap.errors import InputError, unknown
from locpmap.nn import choose_device
from locpmap_paper.data.cache import PathLike
from locpmap_paper.data.scenes import Scenes
from locpmap_paper.experiments.scenes.feature_cache import hash_of
from locpmap_paper.experiments.scenes.networks import load_network, predict_logits, save_network
from locpmap_paper.experiments.scenes.split import named
from locpmap_paper.experiments.scenes.store import UnaryStore
from locpmap_paper.experiments.scenes.training import RECIPES, Progress, SceneRecipe, train_scene_network
from locpmap_paper.experiments.stages import digest, resumed

SCALES = (0.75, 1.0, 1.25, 1.5)  # at which a scene is looked at, and at its mirror image; by held-out scenes


def unseen_logits(
    kind: str,
    scenes: Scenes,
    learn: Sequence[str],
    predict: Sequence[str],
    folder: PathLike,
    *,
    seed: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
    fast: bool = False,
    recipe: SceneRecipe | None = None,
    weights_folder: PathLike | None = None,
    **training: Any,
) -> UnaryStore:
    """Logits (H, W, 8) of scenes to ``predict``, by a network that was trained on those to ``learn`` from.

    What is finished is kept, and the state of a training under way: a call with the same arguments goes on from there.
    The network, in half precision, lies beside the logits as ``network.safetensors``.

    Args:
        kind: As for :func:`train_scene_network`.
        scenes: All scenes.
        learn: Names of those to learn from.
        predict: Names of others.
        folder: Where files are kept, in a folder of their own for other arguments; made if need be.
        seed: Of everything that is drawn.
        device: As for :func:`train_scene_network`.
        progress: Called with (steps done, steps in all), then with (scenes done, scenes in all).
        fast: A smoke run, as for :func:`train_scene_network`.
        recipe: In place of ``RECIPES[kind]``.
        weights_folder: The cache with the published weights.
        training: ``loss`` and ``couplings``, as for :func:`train_scene_network`.
    """
    if kind not in RECIPES:
        raise unknown("kind", kind, RECIPES)
    if both := sorted(set(learn) & set(predict)):
        raise InputError(f"predict names {both[0]}, which learn names, too, expected scenes that the network never saw")
    recipe = recipe or RECIPES[kind]
    settings = {"kind": kind, "learn": list(learn), "seed": seed, "fast": fast, "recipe": asdict(recipe)}
    scales = (1.0,) if fast else SCALES
    given = {key: value if isinstance(value, str) else np.asarray(value).tolist() for key, value in training.items()}
    seen = [[hash_of(image), hash_of(labels)] for _, image, labels in named(scenes, learn)]
    place = Path(folder) / f"{kind}-{digest(settings | {'training': given, 'scenes': seen})[:24]}"
    place.mkdir(parents=True, exist_ok=True)
    store = UnaryStore(place / f"logits-{'-'.join(map(str, scales))}")
    kept, state = place / "network.safetensors", place / "training.safetensors"
    if not kept.exists():
        how: dict[str, Any] = {"seed": seed, "device": device, "checkpoint": state, "progress": progress, "fast": fast}
        how |= {"recipe": recipe, "folder": weights_folder, **training}
        network = resumed(state, lambda: train_scene_network(kind, scenes, learn, **how))
        save_network(kept, network, half=True)
        state.unlink(missing_ok=True)
    missing = [name for name in predict if name not in store]
    if missing:
        network = load_network(kept).to(choose_device(device))  # as the next run will find it
        for done, (name, image, _) in enumerate(named(scenes, missing), 1):
            store.put(name, predict_logits(network, image, scales=scales))
            if progress is not None:
                progress(done, len(missing))
    return store
