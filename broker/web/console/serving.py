"""The console's files over plain HTTP, at ``/console`` and below. SPEC section 1.2.

Owns: which files there are, and the headers that isolate the page. Must never: serve a file that it did not read at the
start (so that no path can lead out of the folder), or put data of the broker into a file. The files contain no data, so
they need no token. The page gets its data over a WebSocket, like any client.
"""

from __future__ import annotations

import email.utils
import hashlib
import http
import re
from dataclasses import dataclass
from pathlib import Path

from websockets.datastructures import Headers
from websockets.http11 import Request, Response

PATH = "/console"

#: Content types by file extension. Files with other extensions, such as this module, are not served.
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

#: The page can only load its own files and connect to its own origin ('self' covers ws: and wss: of that host). Inline
#: scripts and styles are forbidden. A topic can look like a script, so Trusted Types make the browser refuse to turn
#: text into markup.
POLICY = "; ".join(
    (
        "default-src 'none'",
        *(f"{kind} 'self'" for kind in ("script-src", "style-src", "img-src", "connect-src")),
        *(f"{kind} 'none'" for kind in ("base-uri", "form-action", "frame-ancestors")),
        *("require-trusted-types-for 'script'", "trusted-types 'none'"),
    )
)


@dataclass(frozen=True)
class Page:
    """A file, ready to be sent."""

    body: bytes
    content_type: str
    etag: str


def read_pages(folder: Path) -> dict[str, Page]:
    """Return the folder's files, by the URL path at which they are served."""
    pages = {}
    for file in sorted(folder.iterdir()):
        if file.suffix in TYPES:
            body = file.read_bytes()
            path = PATH if file.name == "index.html" else f"{PATH}/{file.name}"
            pages[path] = Page(body, TYPES[file.suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"')
    return pages


#: The files, which are read once. Together they are smaller than the largest message.
PAGES = read_pages(Path(__file__).parent)


def answer(request: Request, path: str) -> Response | None:
    """Return the response to a GET at ``/console`` or below, or ``None`` for any other path."""
    if path == f"{PATH}/":
        return _response(http.HTTPStatus.PERMANENT_REDIRECT, Location="../console")
    if path != PATH and not path.startswith(f"{PATH}/"):
        return None
    page = PAGES.get(path)
    if page is None:
        text = b"The console has no such file; it is at /console\n"
        return _response(http.HTTPStatus.NOT_FOUND, text, **{"Content-Type": "text/plain; charset=utf-8"})
    if page.etag in re.findall(r'"[^"]*"', ",".join(request.headers.get_all("If-None-Match"))):
        return _response(http.HTTPStatus.NOT_MODIFIED, ETag=page.etag)
    return _response(http.HTTPStatus.OK, page.body, **{"Content-Type": page.content_type, "ETag": page.etag})


def _response(status: http.HTTPStatus, body: bytes = b"", **headers: str) -> Response:
    sent = Headers({"Date": email.utils.formatdate(usegmt=True), "Connection": "close"})
    if status is not http.HTTPStatus.NOT_MODIFIED:
        sent["Content-Length"] = str(len(body))
    sent.update(
        {
            **headers,
            "Cache-Control": "no-cache",  # browsers check each time, and get 304 if nothing changed
            "Content-Security-Policy": POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
    )
    return Response(status.value, status.phrase, sent, body)
