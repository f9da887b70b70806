"""``locpmap view``: explore refined segmentations in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def view(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="FOLDER",
            help="Images (.png, .jpg) with logits of the same name (.npy, .npz, .safetensors), and optionally true"
            " labels (NAME.truth.png) and label names (names.txt, one per line); or one image.  Default: examples.",
            show_default=False,
        ),
    ] = None,
    logits: Annotated[
        Path | None, typer.Argument(metavar="LOGITS", help="Logits of one image.", show_default=False)
    ] = None,
    *,
    model: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File of Refiner.save.  Default: the bundled refiner.", show_default=False),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the local server; 0 selects a free port.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Explore refined segmentations in the browser.

    The page shows labels, probability, variance and entropy, with sliders for the model.  Only this computer can open
    it, at an address that contains a secret token.  Press Ctrl-C to stop the server.

    Volumes are not shown: `locpmap refine` refines NIfTI files and writes pictures of three slices.
    """
    from locpmap_viewer import view as serve

    def announce(address: str) -> None:
        typer.echo(f"locpmap viewer: {address}\nPress Ctrl-C to stop.")

    serve(folder, logits, model=model, port=port, browser=browser, announce=announce)
