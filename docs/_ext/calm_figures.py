"""The look of the gallery: one style for every script, and none inside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.style

STYLE = Path(__file__).parents[1] / "gallery/calm.mplstyle"


def reset(_gallery: dict[str, Any], _script: str) -> None:
    """Called by sphinx-gallery before every script."""
    matplotlib.rcdefaults()
    matplotlib.style.use(STYLE)
