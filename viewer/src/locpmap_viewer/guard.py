"""Checks of every request: only the viewer's own page may use the server.

Any page in the user's browser can send requests to a loopback address.  The guard therefore checks that

- the Host header is the server's own name (against DNS rebinding),
- the Origin header, if there is one, is the server's own page,
- a call carries the token of the address that the command printed.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import JSONResponse

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

TOKEN_HEADER = b"x-locpmap-token"
SMALL_BODY = 64 << 10  # largest body in bytes, except for uploads
UPLOADS = "/api/scenes"
ALWAYS = (
    (b"content-security-policy", b"default-src 'self'; img-src 'self' blob:; frame-ancestors 'none'; base-uri 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


@dataclass(frozen=True)
class Guard:
    """ASGI middleware that checks Host, Origin, token and body length."""

    app: App  # guarded application
    port: int  # port of the server
    token: str  # secret of the page's address
    max_upload: int  # largest upload in bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request, or reject it with one sentence."""
        if scope["type"] != "http":  # lifespan events; web sockets are ignored
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *ALWAYS]}
            await send(message)

        refusal = self.refusal(scope["method"], scope["path"], headers)
        if refusal is None:
            await self.app(scope, receive, send_guarded)
        else:
            status, sentence = refusal
            await JSONResponse({"error": sentence}, status)(scope, receive, send_guarded)

    def refusal(self, method: str, path: str, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        """Return the status and the reason of a refusal, or None."""
        own = {f"{name}:{self.port}".encode() for name in ("127.0.0.1", "localhost", "[::1]")}
        if headers.get(b"host", b"").lower() not in own:
            return 403, "The viewer answers only at the address that the command printed."
        origin = headers.get(b"origin")
        if origin is not None and origin.lower() not in {b"http://" + name for name in own}:
            return 403, "The viewer answers only to its own page."
        if headers.get(b"sec-fetch-site", b"none") not in (b"same-origin", b"none"):
            return 403, "The viewer answers only to its own page."
        if path.startswith("/api/") and not secrets.compare_digest(headers.get(TOKEN_HEADER, b""), self.token.encode()):
            return 401, "The token is missing or wrong: open the address that the command printed."
        return self._unfit_body(path, headers) if method not in ("GET", "HEAD") else None

    def _unfit_body(self, path: str, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        """Return the refusal of a body without a length or above the limit; the server enforces the length."""
        length = headers.get(b"content-length", b"")
        if b"transfer-encoding" in headers or not length.isdigit():
            return 411, "The request has no Content-Length header."
        limit = self.max_upload if path == UPLOADS else SMALL_BODY
        if int(length) > limit:
            size = f"{limit >> 20} MB" if limit >= 1 << 20 else f"{limit >> 10} kB"
            return 413, f"The request is too large: the viewer accepts at most {size}."
        return None
