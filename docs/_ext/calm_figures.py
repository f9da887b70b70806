"""One Matplotlib style for all scripts of the gallery."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.style

STYLE = Path(__file__).parents[1] / "gallery/calm.mplstyle"


def reset(_gallery: dict[str, Any], _script: str) -> None:
    """Set the style; sphinx-gallery calls this before every script."""
    matplotlib.rcdefaults()
    matplotlib.style.use(STYLE)
