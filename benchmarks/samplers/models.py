"""Binary grids of random unaries and Potts weights, from weakly attractive to strongly frustrated."""

from dataclasses import dataclass

import numpy as np

import locpmap as lp


@dataclass(frozen=True)
class Case:
    """A grid of ``side × side`` sites with unaries uniform in ±1 and Potts weights uniform from ``low`` to ``high``."""

    name: str
    side: int
    low: float
    high: float
    budgets: tuple[float, ...]  # seconds
    n_models: int = 1

    def potentials(self, number: int) -> lp.Potentials:
        """Return one of the models."""
        rng, n = np.random.default_rng(number), self.side
        unary = rng.uniform(-1, 1, (n, n, 2))
        return lp.Potentials.grid(
            unary, (rng.uniform(self.low, self.high, (n, n - 1)), rng.uniform(self.low, self.high, (n - 1, n)))
        )


SHORT, LONG = (0.3, 1.0, 3.0), (1.0, 3.0, 10.0)
CASES = (
    Case("attractive, weak: 0 to 0.8", 14, 0, 0.8, SHORT),
    Case("attractive, medium: 0 to 2", 14, 0, 2, SHORT),
    Case("attractive, strong: 0 to 5", 14, 0, 5, SHORT),
    Case("frustrated, ±2", 14, -2, 2, SHORT),
    Case("frustrated, ±5", 20, -5, 5, LONG, 3),
    Case("frustrated, ±10", 20, -10, 10, LONG),
)
