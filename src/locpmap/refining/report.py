"""Cross-validation report of a refiner: a table of metrics and a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from locpmap.refining.scoring import METRICS, Score, difference, total

NETWORK, SCALED, REFINED = "network", "network, scaled", "refined"
N_STANDARD_ERRORS = 2.0  # smallest significant difference


@dataclass(frozen=True, eq=False)
class Report:
    """Cross-validated scores of the network, of the network with temperature scaling, and of refinement.

    Each image is scored with weights that were learned without it. ``str(report)`` is a table with a verdict.

    Attributes:
        scores (dict): One score per image for each of the rows "network", "network, scaled" and "refined".
    """

    scores: dict[str, list[Score]]

    def value(self, row: str, metric: str) -> float:
        """Return the "IoU", "ECE" or "NLL" of a row ("network", "network, scaled" or "refined") over all images."""
        return METRICS[metric](total(self.scores[row]))

    def gain(self, metric: str) -> tuple[float, float]:
        """Return the metric of "refined" minus that of "network, scaled", and the standard error over images.

        For ECE and NLL, lower is better.
        """
        return difference(self.scores[REFINED], self.scores[SCALED], METRICS[metric])

    @property
    def better(self) -> list[str]:
        """Metrics that refinement improves by more than two standard errors."""
        return [name for name in METRICS if self._sign(name) > 0]

    @property
    def worse(self) -> list[str]:
        """Metrics that refinement makes worse by more than two standard errors."""
        return [name for name in METRICS if self._sign(name) < 0]

    @property
    def helps(self) -> bool:
        """Whether refinement improves IoU or NLL, and makes neither of them worse."""
        return bool({"IoU", "NLL"} & set(self.better)) and not {"IoU", "NLL"} & set(self.worse)

    @property
    def verdict(self) -> str:
        """One sentence on whether refinement helps, with the gain in each metric."""
        changes = ", ".join(f"{name} {value:+.4f} ± {error:.4f}" for name, (value, error) in self._gains().items())
        if self.helps:
            return f"Refinement helps these data ({changes})."
        if self.worse:
            return f"Refinement makes these data worse by {' and '.join(self.worse)} ({changes})."
        return f"Refinement does not help these data: temperature scaling is as good ({changes})."

    def __str__(self) -> str:
        lines = [f"{'':18}" + "".join(f"{name:>10}" for name in METRICS)]
        lines += [f"{row:18}" + "".join(f"{self.value(row, name):10.4f}" for name in METRICS) for row in self.scores]
        n = len(self.scores[REFINED])
        return "\n".join([*lines, f"{self.verdict}  {n} images; ± is one standard error over them."])

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a dictionary of numbers and strings, for a file."""
        rows = {row: {name: self.value(row, name) for name in METRICS} for row in self.scores}
        return {"rows": rows, "gains": {name: list(pair) for name, pair in self._gains().items()}, "says": self.verdict}

    def _gains(self) -> dict[str, tuple[float, float]]:
        return {name: self.gain(name) for name in METRICS}

    def _sign(self, metric: str) -> int:
        value, error = self.gain(metric)
        if not abs(value) > N_STANDARD_ERRORS * error:
            return 0
        return 1 if (value > 0) == (metric == "IoU") else -1
