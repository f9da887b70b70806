"""The style of figures: a palette for colour-blind readers and small PNG files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

from locpmap.errors import BackendError

try:
    import matplotlib
    from matplotlib.figure import Figure
except ImportError:
    raise BackendError("the report's figures need matplotlib: pip install '.[all]' ./paper in a clone") from None

__all__ = ["FULL", "HALF", "SCALED_COLOUR", "Figure", "colour_of", "png", "styled"]

# From Okabe and Ito's palette: one colour per family of decoders in all figures.
COLOURS = {"locpmap": "#0072B2", "network": "#1f2933"}
OTHER_COLOUR = "#E69F00"
SCALED_COLOUR = "#8a949e"
FULL, HALF = 9.8, 4.7  # inches: widths of figures that take the whole page or half of it

STYLE = {
    "font.family": "DejaVu Sans",
    "text.parse_math": False,  # names in a record may contain dollar signs
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.labelsize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.edgecolor": "#52606d",
    "axes.labelcolor": "#1f2933",
    "text.color": "#1f2933",
    "xtick.color": "#3e4c59",
    "ytick.color": "#3e4c59",
    "grid.color": "#e4e7eb",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "image.interpolation": "nearest",
}
DPI = 115


@contextmanager
def styled() -> Iterator[None]:
    """Apply the figure style inside the `with` block, then restore the caller's settings."""
    with matplotlib.rc_context(STYLE):
        yield


def png(figure: Figure) -> bytes:
    """Return the figure as a PNG without metadata that changes between runs."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()


def colour_of(family: str) -> str:
    """Return the colour of a family of decoders."""
    return COLOURS.get(family, OTHER_COLOUR)
