"""The style of figures: a palette for colour-blind readers and small PNG files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from locpmap.errors import BackendError
from locpmap_paper.report.record import Decoder

try:
    import matplotlib
    from matplotlib.figure import Figure
except ImportError:
    raise BackendError("the report's figures need matplotlib: pip install locpmap-paper") from None

__all__ = ["OTHER_COLOUR", "Figure", "line_styles", "png", "styled"]

# Mostly Okabe and Ito's palette: one hue per family of decoders; dashes and markers tell its members apart.
FAMILY_COLOURS = {
    "locpmap": ("#0072B2", "#56B4E9", "#003A5C"),
    "paper": ("#D55E00", "#E69F00"),
    "beyond": ("#009E73", "#7BC8A4"),
    "network": ("#000000",),
}
OTHER_COLOUR = "#CC79A7"
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.2, 1.2, 1.2)), (0, (8, 2)), (0, (2.5, 1)), (0, (1, 3)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")

STYLE = {
    "font.family": "DejaVu Sans",
    "text.parse_math": False,  # names in a record may contain dollar signs
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.labelsize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
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


def line_styles(decoders: tuple[Decoder, ...]) -> dict[str, dict[str, Any]]:
    """Return the line style of each decoder, the same in every figure: colour of its family, dashes, marker."""
    styles = {}
    within: dict[str, int] = {}
    for decoder in decoders:
        n = within.setdefault(decoder.family, 0)
        within[decoder.family] += 1
        ours = decoder.family == "locpmap"
        shades = FAMILY_COLOURS.get(decoder.family, (OTHER_COLOUR,))
        styles[decoder.name] = {
            "color": shades[n % len(shades)],
            "linestyle": DASHES[n % len(DASHES)],
            "marker": MARKERS[n % len(MARKERS)],
            "linewidth": 1.9 if ours else 1.2,
            "markersize": 4.0 if ours else 3.4,
            "alpha": 1.0 if ours or decoder.family == "network" else 0.8,
            "zorder": 3 if ours else 2,
        }
    return styles
