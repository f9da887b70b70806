"""A network's logits for scenes that it was not trained on.

Weights that are combined with a network's logits must be learned on such logits: a network is overconfident on its
own training scenes.
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

SCALES = (0.75, 1.0, 1.25, 1.5)  # test-time magnifications, each also mirrored; chosen on held-out scenes


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
    """Return logits (H, W, 8) of the scenes `predict` by a network trained on the scenes `learn`.

    Finished results and the training checkpoint are stored, so that a call with the same arguments resumes.  The
    network is stored in half precision as ``network.safetensors`` next to the logits.

    Args:
        kind: Kind of network, see :func:`train_scene_network`.
        scenes: All scenes.
        learn: Names of the training scenes.
        predict: Names of the scenes to predict, none of which may be in `learn`.
        folder: Folder of the files, created if needed; each set of arguments has its own subfolder.
        seed: Seed of the random generators.
        device: "auto", "cpu" or "cuda".
        progress: Function called with (steps done, number of steps), then with (scenes done, number of scenes).
        fast: Whether to do a smoke run, see :func:`train_scene_network`.
        recipe: Recipe of the training; by default ``RECIPES[kind]``.
        weights_folder: Cache folder of the published weights.
        training: ``loss`` and ``couplings``, see :func:`train_scene_network`.
    """
    if kind not in RECIPES:
        raise unknown("kind", kind, RECIPES)
    if both := sorted(set(learn) & set(predict)):
        raise InputError(f"predict contains {both[0]}, which is in learn too, expected scenes that are not in learn")
    recipe = recipe or RECIPES[kind]
    settings = {"kind": kind, "learn": list(learn), "seed": seed, "fast": fast, "recipe": asdict(recipe)}
    scales = (1.0,) if fast else SCALES
    given = {key: value if isinstance(value, str) else np.asarray(value).tolist() for key, value in training.items()}
    seen = [[hash_of(image), hash_of(labels)] for _, image, labels in named(scenes, learn)]
    place = Path(folder) / f"{kind}-{digest(settings | {'training': given, 'scenes': seen})[:24]}"
    place.mkdir(parents=True, exist_ok=True)
    store = UnaryStore(place / f"logits-{'-'.join(map(str, scales))}")
    path, state = place / "network.safetensors", place / "training.safetensors"
    if not path.exists():
        how: dict[str, Any] = {"seed": seed, "device": device, "checkpoint": state, "progress": progress, "fast": fast}
        how |= {"recipe": recipe, "folder": weights_folder, **training}
        network = resumed(state, lambda: train_scene_network(kind, scenes, learn, **how))
        save_network(path, network, half=True)
        state.unlink(missing_ok=True)
    missing = [name for name in predict if name not in store]
    if missing:
        network = load_network(path).to(choose_device(device))  # as a resumed run would load it
        for done, (name, image, _) in enumerate(named(scenes, missing), 1):
            store.put(name, predict_logits(network, image, scales=scales))
            if progress is not None:
                progress(done, len(missing))
    return store
