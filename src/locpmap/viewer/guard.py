"""What every request has to pass: only this computer's own page may speak to the viewer.

A server on a loopback address can still be reached by any page that the user's browser has open.  So the name under
which it was reached has to be its own (against rebound names), a page that asks has to come from it, and every call
carries the token that only the address printed by the command holds.
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
SMALL_BODY = 64 << 10  # bytes of a request that is no upload
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
    """Check Host, Origin, token and the length of bodies before the application hears of a request."""

    app: App  # behind it
    port: int  # where the viewer listens
    token: str  # that calls have to carry
    max_upload: int  # bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it with one sentence."""
        if scope["type"] != "http":  # start and end of the server; there are no web sockets
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
        """Status and reason, or None for a request that may pass."""
        own = {f"{name}:{self.port}".encode() for name in ("127.0.0.1", "localhost", "[::1]")}
        if headers.get(b"host", b"").lower() not in own:
            return 403, "The viewer answers only under the address that the command printed."
        origin = headers.get(b"origin")
        if origin is not None and origin.lower() not in {b"http://" + name for name in own}:
            return 403, "The viewer answers only to its own page."
        if headers.get(b"sec-fetch-site", b"none") not in (b"same-origin", b"none"):
            return 403, "The viewer answers only to its own page."
        if path.startswith("/api/") and not secrets.compare_digest(headers.get(TOKEN_HEADER, b""), self.token.encode()):
            return 401, "The token is missing or wrong: open the address that the command printed."
        return self._unfit_body(path, headers) if method not in ("GET", "HEAD") else None

    def _unfit_body(self, path: str, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        """Bodies say how long they are; the server under this one holds them to it."""
        length = headers.get(b"content-length", b"")
        if b"transfer-encoding" in headers or not length.isdigit():
            return 411, "The request does not say how long it is."
        limit = self.max_upload if path == UPLOADS else SMALL_BODY
        if int(length) > limit:
            size = f"{limit >> 20} MB" if limit >= 1 << 20 else f"{limit >> 10} kB"
            return 413, f"That is too large for the viewer, which takes at most {size} at a time."
        return None
