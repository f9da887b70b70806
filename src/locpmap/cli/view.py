"""``locpmap view``: a page on this computer to look at refined segmentations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def view(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="FOLDER",
            help="Images (.png, .jpg) with logits of the same name (.npy, .npz); examples are there without.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Where to listen on this computer; 0: any that is free.")
    ] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Show images with their logits in the browser: labels, probability and doubt, with sliders.

    The page is served to this computer alone, under an address with a secret in it.  Ctrl-C ends it.
    """
    from locpmap.viewer import view as serve

    def announce(address: str) -> None:
        typer.echo(f"locpmap viewer: {address}\nCtrl-C ends it.")

    serve(folder, port=port, browser=browser, announce=announce)
