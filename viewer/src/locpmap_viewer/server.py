"""Server of the viewer, on the loopback address."""

from __future__ import annotations

import errno
import secrets
import socket
import threading
import time
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from locpmap.errors import InputError

if TYPE_CHECKING:
    import uvicorn

    from locpmap_viewer.scenes import Files
    from locpmap_viewer.session import Session

HOST = "127.0.0.1"


def view(
    folder: Path | None = None,
    logits: Path | None = None,
    *,
    model: Path | None = None,
    port: int = 0,
    browser: bool = True,
    announce: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve the viewer until Ctrl-C.

    Args:
        folder (Path, default None): Folder of images with logits of the same name, shown in addition to the examples.
            ``NAME.truth.png`` holds the true labels of NAME (255: unknown), ``names.txt`` one label name per line.
            With ``logits``, one image.
        logits (Path, default None): Logits of the image.
        model (Path, default None): File of ``Refiner.save``, for the folder and for uploads; the default is the bundled
            refiner.  If it has a guarantee, intervals of areas are guaranteed.
        port (int, default 0): Port on the loopback address; 0 selects a free port.
        browser (bool, default True): Whether to open the page in a browser.
        announce (callable): Called with the page's address, which contains the token, when the server is listening.

    Raises:
        InputError: If the folder has no scene, the model cannot be read, or the port cannot be used.
    """
    import uvicorn

    from locpmap.refining import Refiner
    from locpmap_viewer.app import make_app
    from locpmap_viewer.session import Session

    refiner = None if model is None else Refiner.load(model)
    session, token = Session(_checked(folder, logits), refiner), secrets.token_urlsafe(24)
    with _listening(port) as listener:
        port = listener.getsockname()[1]
        address = f"http://{HOST}:{port}/#token={token}"  # browsers do not send the part after #
        config = uvicorn.Config(
            make_app(session, token, port),
            log_level="critical",  # the application prints its own errors
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=5,
        )
        server = uvicorn.Server(config)
        announce(address)
        if browser:
            threading.Timer(0.3, webbrowser.open, [address]).start()
        with suppress(KeyboardInterrupt):  # some versions of uvicorn raise it again
            _until_interrupted(server, listener, session)


def _until_interrupted(server: uvicorn.Server, listener: socket.socket, session: Session) -> None:
    """Serve until Ctrl-C, which also stops a running decoder; the server would wait for it."""

    def watch() -> None:
        while not server.should_exit:
            time.sleep(0.1)
        session.close()

    threading.Thread(target=watch, daemon=True).start()
    server.run(sockets=[listener])


def _checked(folder: Path | None, logits: Path | None) -> Path | Files | None:
    """Return the folder, or an image with its logits; raise if a folder holds no image with logits."""
    from locpmap.formats import IMAGE_ENDINGS, SCORE_ENDINGS
    from locpmap_viewer.scenes import Files, pairs

    if folder is None or (logits is None and folder.is_dir() and pairs(folder)):
        return folder
    for path in (folder, logits) if logits is not None else folder.iterdir() if folder.is_dir() else (folder,):
        if path.name.lower().endswith((".nii", ".nii.gz")):
            raise InputError(
                f"{path} is a volume, expected images: refine it with `locpmap refine SCAN LOGITS -o OUT`, which also"
                " writes a picture of three slices"
            )
    if logits is not None:
        for path, endings in ((folder, IMAGE_ENDINGS), (logits, SCORE_ENDINGS)):
            if not path.is_file() or path.suffix.lower() not in endings:
                what = "is of another kind" if path.exists() else "does not exist"
                raise InputError(f"{path} {what}, expected a file that ends in {', '.join(endings)}")
        return Files(folder, logits)
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise InputError(f"FOLDER {folder} {what}, expected a folder, or an image and its logits")
    raise InputError(
        f"FOLDER {folder} holds no image ({', '.join(IMAGE_ENDINGS)}) with logits of the same name"
        f" ({', '.join(SCORE_ENDINGS)})"
    )


def _listening(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen()  # connections queue until the server accepts them
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise InputError(f"port {port} is in use: choose another with --port, or leave it out") from None
        raise InputError(f"port {port} cannot be used: {error.strerror}") from None
    return listener
