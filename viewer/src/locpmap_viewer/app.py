"""HTTP interface of the viewer: JSON and PNG responses."""

from __future__ import annotations

import asyncio
import io
import tempfile
import threading
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, Form, Query, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from locpmap.errors import InputError, LocpmapError
from locpmap.formats import IMAGE_ENDINGS, SCORE_ENDINGS
from locpmap.refining import Refiner
from locpmap_viewer import colours, decoding
from locpmap_viewer.colours import VOID
from locpmap_viewer.decoding import METHODS, USED, Decoding, Settings
from locpmap_viewer.guard import Guard
from locpmap_viewer.scenes import MAX_FILE, Files, Scene, prepared, printable, read_scene
from locpmap_viewer.session import NotFoundError, Session, Superseded
from locpmap_viewer.summary import differing, pixel, scene_facts, summary

PATIENCE = 0.5  # seconds between checks whether the page is still connected
PAGE = Path(__file__).parent / "page"
LIMITS = {"smoothing": decoding.SMOOTHINGS, "temperature": decoding.TEMPERATURES, "n_samples": decoding.SAMPLES}


class DecodeRequest(BaseModel):
    """Request to decode a scene."""

    model_config = ConfigDict(extra="forbid")
    scene: str
    page: str = ""
    method: str = "locpmap"
    smoothing: float = 0.0
    temperature: float = 1.0
    n_samples: int = 50
    blocks: str = "sites"
    seed: int = 0

    def settings(self) -> Settings:
        """Return the checked settings of the decoder."""
        return Settings(**self.model_dump(exclude={"scene", "page"}))


def make_app(session: Session, token: str, port: int, max_upload: int = MAX_FILE) -> Guard:
    """Return the viewer as an ASGI application behind a :class:`Guard`."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)  # those pages load scripts from other hosts
    _serve_page(app)
    _serve_scenes(app, session)
    _serve_decodings(app, session)
    _answer_errors(app)
    return Guard(app, port, token, max_upload)


def _serve_page(app: FastAPI) -> None:
    def serve(name: str) -> Callable[[], FileResponse]:
        return lambda: FileResponse(PAGE / name)

    app.get("/")(serve("index.html"))
    for file in PAGE.iterdir():  # fixed routes: no path from a request is opened
        app.get(f"/{file.name}")(serve(file.name))


def _serve_scenes(app: FastAPI, session: Session) -> None:
    @app.get("/api/scenes")
    def scenes() -> dict[str, Any]:
        return {
            "scenes": [each._asdict() for each in session.listed()],
            "methods": METHODS,
            "used": USED,
            "limits": LIMITS,
            "ramps": colours.RAMPS,
        }

    @app.post("/api/scenes")
    async def upload(image: UploadFile, logits: UploadFile, layout: Annotated[str, Form()] = "auto") -> dict[str, Any]:
        scene = await run_in_threadpool(_uploaded, image, logits, layout, session.refiner)
        return {"id": session.add(scene)}

    @app.get("/api/scenes/{id}")
    def scene(id: str) -> dict[str, Any]:
        return scene_facts(session.scene(id))

    @app.get("/api/scenes/{id}/image")
    def image(id: str) -> Response:
        return _png(colours.photograph(session.scene(id).image))


def _serve_decodings(app: FastAPI, session: Session) -> None:
    @app.post("/api/decode")
    async def decode(wanted: DecodeRequest, request: Request) -> dict[str, Any]:
        gone = threading.Event()
        run = asyncio.ensure_future(run_in_threadpool(_decoded, session, wanted, gone))
        while not (await asyncio.wait({run}, timeout=PATIENCE))[0]:
            if await request.is_disconnected():
                gone.set()
        return run.result()

    @app.get("/api/progress")
    def progress(page: str) -> dict[str, Any] | None:
        found = session.progress(page)
        return None if found is None else found._asdict()

    @app.get("/api/decodings/{key}/layer")
    def layer(key: str, kind: str, label: int | None = None, sample: int = 0, outline: bool = False) -> Response:
        return _png(_layer(session.decoding(key), kind, label, sample, outline))

    @app.get("/api/decodings/{key}/difference")
    def difference(key: str, other: Annotated[list[str], Query()] = [], truth: bool = False) -> Response:  # noqa: B006
        result = session.decoding(key)
        differs = differing(result, [session.decoding(each) for each in other], truth)
        picture = colours.coloured(np.where(differs, result.labels, VOID), result.scene.colours)
        return Response(picture, media_type="image/png", headers={"X-Locpmap-Fraction": f"{differs.mean():.6f}"})

    @app.get("/api/decodings/{key}/pixel")
    def at(key: str, x: int, y: int) -> dict[str, Any]:
        return pixel(session.decoding(key), x, y)

    @app.get("/api/decodings/{key}/probability")
    def probability(key: str) -> Response:
        content = io.BytesIO()
        np.lib.format.write_array(content, _probability(session.decoding(key)), version=(1, 0))
        return Response(content.getvalue(), media_type="application/octet-stream")


def _decoded(session: Session, wanted: DecodeRequest, gone: threading.Event) -> dict[str, Any]:
    try:
        key, result = session.decode(wanted.scene, wanted.settings(), wanted.page, gone)
    except Superseded:  # the page sent a newer request or was closed
        return {"superseded": True}
    return {"key": key, **summary(result)}


def _layer(result: Decoding, kind: str, label: int | None, sample: int, outline: bool) -> bytes:
    scene = result.scene
    if label is not None and not 0 <= label < len(scene.names):
        raise InputError(f"label is {label}, expected 0 to {len(scene.names) - 1}")
    if kind == "sample" and (result.samples is None or not 0 <= sample < len(result.samples)):
        raise InputError(f"There is no sample {sample} of this result.")
    if kind == "truth" and scene.truth is not None:
        return colours.coloured(scene.truth, scene.colours, outlined=outline)
    if kind in ("labels", "sample"):
        labels = result.labels if result.samples is None or kind == "labels" else result.samples[sample]
        draw = partial(colours.coloured, outlined=True) if outline else colours.map_picture
        return draw(labels, scene.colours)
    if kind not in ("probability", "variance", "entropy"):
        raise InputError(f"There is no layer {kind[:40]!r} of this result.")
    _probability(result)
    if kind == "entropy":
        return colours.number_picture(result.entropy() / np.log(len(scene.names)), "doubt")
    probability = result.label_probability(label)
    if kind == "variance":
        return colours.number_picture(4 * probability * (1 - probability), "doubt")
    return colours.number_picture(probability, "probability")


def _probability(result: Decoding) -> Any:
    if result.probability is None:
        raise InputError(f"{METHODS[result.settings.method]} returns labels only, no probability.")
    return result.probability


def _uploaded(image: UploadFile, logits: UploadFile, layout: str, refiner: Refiner | None) -> Scene:
    with tempfile.TemporaryDirectory() as folder:
        paths: list[tuple[Path, str]] = []
        for upload, endings, what in ((image, IMAGE_ENDINGS, "an image"), (logits, SCORE_ENDINGS, "logits")):
            name = Path(upload.filename or "file").name[-80:]
            if Path(name).suffix.lower() not in endings:
                raise InputError(f"{name} is not {what}: expected a file that ends in {', '.join(endings)}")
            path = Path(folder, f"{len(paths)}{Path(name).suffix.lower()}")
            with path.open("wb") as target:
                while piece := upload.file.read(1 << 20):
                    target.write(piece)
            paths.append((path, name))
        (image_path, image_name), (logits_path, logits_name) = paths
        try:
            scene = read_scene(Path(image_name).stem, Files(image_path, logits_path), layout, refiner)
            prepared(scene, 0.0, 1.0)  # raise what `locpmap.refine` would raise
            return scene
        except LocpmapError as error:
            sentence = str(error).replace(str(image_path), image_name).replace(str(logits_path), logits_name)
            raise InputError(sentence) from None


def _png(content: bytes) -> Response:
    return Response(content, media_type="image/png")


def _answer_errors(app: FastAPI) -> None:
    """Answer every error with one sentence as JSON."""

    def answer(status: int, sentence: str) -> JSONResponse:
        return JSONResponse({"error": printable(sentence)}, status)

    @app.exception_handler(LocpmapError)
    def refused(_: Request, error: LocpmapError) -> JSONResponse:
        return answer(404 if isinstance(error, NotFoundError) else 400, str(error))

    @app.exception_handler(RequestValidationError)
    def unreadable(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
        return answer(422, f"{where}: {first['msg'][:1].lower()}{first['msg'][1:]}.")

    @app.exception_handler(HTTPException)
    def unknown(_: Request, error: HTTPException) -> JSONResponse:
        return answer(error.status_code, f"{str(error.detail).rstrip('.')}.")

    @app.exception_handler(OSError)
    def vanished(_: Request, error: OSError) -> JSONResponse:
        return answer(404, f"{error.filename or 'A file'} cannot be read: {error.strerror or error}.")

    @app.exception_handler(MemoryError)
    def too_large(_: Request, error: MemoryError) -> JSONResponse:
        return answer(507, "Out of memory: try a smaller image or fewer samples.")

    @app.exception_handler(Exception)
    def broken(_: Request, error: Exception) -> JSONResponse:
        traceback.print_exception(error)
        return answer(500, "Internal error of the viewer: see the traceback in its terminal.")
