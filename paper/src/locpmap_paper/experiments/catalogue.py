"""All models by name."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

from locpmap.errors import BackendError, InputError, unknown
from locpmap_paper.experiments import deep
from locpmap_paper.experiments.experiment import Experiment
from locpmap_paper.experiments.model import Model
from locpmap_paper.experiments.raw import RAW_MODELS
from locpmap_paper.experiments.scenes.experiment import SceneLabeling

SCENE_PACKAGES = ("torch", "sklearn", "skimage", "h5py", "PIL")


def catalogue(experiment: Experiment) -> dict[str, Model]:
    """Return the models that this installation can fit or load for an experiment, in display order."""
    models = _scene_models() if isinstance(experiment, SceneLabeling) else (*RAW_MODELS, *deep.deep_models())
    return {model.name: model for model in models}


def _scene_models() -> tuple[Model, ...]:
    if missing := [name for name in SCENE_PACKAGES if importlib.util.find_spec(name) is None]:
        raise BackendError(
            f"the experiment stanford needs {', '.join(missing)}: pip install '.[all]' ./paper in a clone"
        )
    from locpmap_paper.experiments.scenes.catalogue import SCENE_MODELS

    return SCENE_MODELS


def choose(experiment: Experiment, names: Iterable[str] | None) -> list[Model]:
    """Return the models with these names in display order; by default all of the experiment that are available."""
    known = catalogue(experiment)
    if names is None:
        return [model for name, model in known.items() if name in experiment.models]
    wanted = set(names)
    if not wanted:
        raise InputError(f"models is empty, expected some of {', '.join(known)}")
    for name in sorted(wanted):
        if name not in known:
            raise unknown("model", name, known)
    return [model for name, model in known.items() if name in wanted]
