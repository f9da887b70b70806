"""A local data server whose responses a test chooses, and data sets that point to it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from locpmap_paper.data import Dataset, File

Answer = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Sends the response registered for a path, else 404, and records the requests."""

    server: Source

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        answer = self.server.answers.get(self.path)
        if answer is None:
            self.send_error(404)
        else:
            answer(self)

    def head(self, n_bytes: int | None, **headers: str) -> None:
        self.send_response(200)
        if n_bytes is not None:
            self.send_header("Content-Length", str(n_bytes))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


class Source(ThreadingHTTPServer):
    """A server on a free port; responses that would never end wait for ``ended``."""

    daemon_threads = False  # leaving the block waits for all responses

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.ended = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect, which is part of the tests."""

    def address(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


@contextmanager
def running_source() -> Iterator[Source]:
    with Source() as source:
        thread = threading.Thread(target=source.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield source
        finally:
            source.ended.set()
            source.shutdown()
            thread.join()


def whole(content: bytes) -> Answer:
    def answer(handler: Handler) -> None:
        handler.head(len(content))
        handler.wfile.write(content)

    return answer


def cut(content: bytes, after: int) -> Answer:
    """Return a response that announces the whole content and disconnects early."""

    def answer(handler: Handler) -> None:
        handler.head(len(content))
        handler.wfile.write(content[:after])
        handler.close_connection = True

    return answer


def described(name: str, content: bytes, *addresses: str) -> File:
    return File(name, addresses, hashlib.sha256(content).hexdigest(), len(content))


def dataset_of(name: str, *files: File) -> Dataset:
    return Dataset(name, "test data", "none", "none", "bytes", files)
