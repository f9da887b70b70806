"""All models by name."""

from __future__ import annotations

from collections.abc import Iterable

from locpmap.errors import BackendError, InputError, unknown
from locpmap.experiments import deep
from locpmap.experiments.experiment import Experiment
from locpmap.experiments.model import Model
from locpmap.experiments.network_model import torch_is_there
from locpmap.experiments.raw import RAW_MODELS
from locpmap.experiments.scenes.experiment import SceneLabeling


def catalogue(experiment: Experiment) -> dict[str, Model]:
    """Every model that this installation can fit or load for an experiment, in the order to show."""
    models = _scene_models() if isinstance(experiment, SceneLabeling) else (*RAW_MODELS, *deep.deep_models())
    return {model.name: model for model in models}


def _scene_models() -> tuple[Model, ...]:
    if not torch_is_there():
        raise BackendError("the experiment stanford needs torch: pip install 'locpmap[scenes]'")
    from locpmap.experiments.scenes.catalogue import SCENE_MODELS

    return SCENE_MODELS


def choose(experiment: Experiment, names: Iterable[str] | None) -> list[Model]:
    """The named models in the order to show; by default those of the experiment that this installation has."""
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
