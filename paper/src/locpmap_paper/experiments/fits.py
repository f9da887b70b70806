"""The fitted models of one case, stored on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from locpmap.errors import InputError
from locpmap.learning import Processes
from locpmap_paper.experiments.experiment import Case
from locpmap_paper.experiments.model import Fitted, Model, Progress
from locpmap_paper.experiments.stages import Stages, digest, resumed

ALONE = Processes()  # a single process


class StoredFits:
    """Fits each model on first use, and loads it from disk afterwards, also in later runs.

    A record is stored next to the weights: seconds, details, and the checksum of the weights file.  Results that use
    the model depend on that checksum, so that they are recomputed if the weights change.
    """

    def __init__(
        self,
        stages: Stages,
        case: Case,
        models: Mapping[str, Model],
        device: str,
        progress: Progress,
        guard: str,
        processes: Processes = ALONE,
    ) -> None:
        self.stages, self.case, self.models = stages, case, models
        self.device, self.progress = device, progress
        self.guard = guard  # digest of what all stages of the run depend on
        self.processes = processes
        self._ready: dict[str, tuple[dict[str, Any], Fitted | None]] = {}

    def fitted(self, name: str) -> Fitted:
        """Return the model with its weights."""
        record = self.record(name)
        fitted = self._ready[name][1]
        if fitted is None:
            fitted = self._load(name)
            record = self.record(name)
            fitted.details, fitted.seconds = record["details"], record["seconds"]
            self._ready[name] = record, fitted
        return fitted

    def _load(self, name: str) -> Fitted:
        """Load the stored model; fit it again if a file that it depends on is missing or has changed."""
        model = self.models[name]
        try:
            return model.load(self._weights(name), self.case, self, self.device)
        except InputError:
            self._fit(name, self._settings(model))
            return model.load(self._weights(name), self.case, self, self.device)

    def record(self, name: str) -> dict[str, Any]:
        """Return ``seconds``, ``details`` and ``sha256`` of a model; fit it if it is not stored."""
        if name not in self._ready:
            settings = self._settings(self.models[name])
            record = self.stages.find(self._stage(name), settings)
            if record is not None and record["sha256"] == _checksum(self._weights(name)):
                self._ready[name] = record, None
            else:
                self._fit(name, settings)
        return self._ready[name][0]

    def checkpoint(self, name: str) -> Path:
        """Return the path of a fit's checkpoint."""
        settings = digest(self._settings(self.models[name]))[:12]  # a checkpoint of other settings is not used
        return self.stages.path(f"{self._stage(name)}.{settings}.checkpoint", ".safetensors")

    @property
    def cache(self) -> Path:
        """The cache folder, common to all cases of a run."""
        return self.stages.folder / "cache"

    def _fit(self, name: str, settings: dict[str, Any]) -> None:
        model = self.models[name]
        if model.together:
            self.request_training(name)
        fitted = resumed(self.checkpoint(name), lambda: model.fit(self.case, self, self.device, self.progress))
        path = self._weights(name)
        fitted.save(path)
        record = {"seconds": fitted.seconds, "details": fitted.details, "sha256": _checksum(path)}
        # Weights are read back on use, so that this run and a resumed one use identical (rounded) weights.
        self._ready[name] = self.stages.store(self._stage(name), settings, record), None
        self.checkpoint(name).unlink(missing_ok=True)

    def request_training(self, name: str) -> None:
        """Request the other processes of the run to fit the model as well."""
        self.processes.tell(json.dumps({"level": self.case.level, "seed": self.case.seed, "model": name}))

    def _settings(self, model: Model) -> dict[str, Any]:
        return {
            "guard": self.guard,
            "case": self.case.name,
            "model": [model.name, model.learning, model.settings, model.constants(self.case)],
            "needs": {other: self.record(other)["sha256"] for other in model.needs_for(self.case)},
        }

    def _stage(self, name: str) -> str:
        return f"{self.case.name}/{name}/fit"

    def _weights(self, name: str) -> Path:
        return self.stages.path(self._stage(name), ".safetensors")


def _checksum(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
