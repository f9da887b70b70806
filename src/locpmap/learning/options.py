"""Options of a fit: limits, checkpoints, threads and processes."""

import os
from dataclasses import dataclass

from locpmap.errors import InputError, InputTypeError, true_or_false, whole_number, within
from locpmap.learning.processes import ALONE, Processes


@dataclass(frozen=True)
class FitOptions:
    """Options of :meth:`locpmap.CRF.fit` that rarely need a change.

    Args:
        max_iterations (int, default 200): Maximum number of L-BFGS iterations. For mini-batches and "consistent",
            the maximum number of held-out checks, with 15 steps between two checks. "contrastive" performs this number
            of steps, but at most 60.
        tolerance (float, default 1e-5): L-BFGS has converged when no entry of the projected gradient exceeds this
            value. The gradient is per site, with every feature scaled to root mean square 1.
        batch_size (int or None, default None): Number of inputs per step of mini-batch descent. None selects L-BFGS
            over all inputs or, for "consistent" and "contrastive", mini-batches of about 50,000 sites.
        checkpoint (str, os.PathLike or None, default None): File in which the state is saved every few seconds. A fit
            of the same data and options resumes from it. The file is removed when the fit ends.
        standard_errors (bool, default True): Whether to compute Godambe standard errors. They need at least 10 inputs,
            at most 256 weights, and L-BFGS.
        n_threads (int or None, default None): Number of threads. None means all available cores, divided among the
            processes of this machine. The result does not depend on it.
        processes (Processes, default one process): Process group from :func:`joined_processes`. Every process passes
            the same data and works on a part of the inputs. All obtain the same weights, equal to those of a single
            process except for rounding.

    Example:
        >>> from locpmap.learning import FitOptions
        >>> FitOptions(max_iterations=50).tolerance
        1e-05

    See Also:
        :meth:`locpmap.CRF.fit`, :class:`FitResult`.
    """

    max_iterations: int = 200
    tolerance: float = 1e-5
    batch_size: int | None = None
    checkpoint: str | os.PathLike[str] | None = None
    standard_errors: bool = True
    n_threads: int | None = None
    processes: Processes = ALONE

    def __post_init__(self) -> None:
        for name in ("max_iterations", "batch_size", "n_threads"):
            value = getattr(self, name)
            if value is not None or name == "max_iterations":
                whole_number(name, value, 1)
        true_or_false("standard_errors", self.standard_errors)
        if self.checkpoint is not None and not isinstance(self.checkpoint, str | os.PathLike):
            raise InputTypeError(f"checkpoint is a {type(self.checkpoint).__name__}, expected a path")
        if self.checkpoint == "":
            raise InputError("checkpoint is '', expected the path of a file, or None for no checkpoints")
        if not isinstance(self.processes, Processes):
            raise InputTypeError(f"processes is {self.processes!r}, expected Processes from joined_processes()")
        within("tolerance", self.tolerance, 0)
