"""The autoscaler's pages over HTTP: `/`, `/picture.json`, `/metrics`, `/healthz`.

Owns: paths and headers. Must never: change anything, because the pages only display the group.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
from aiohttp import web

from ..effects import Picture
from . import words
from .metrics import CONTENT_TYPE, Metrics

_PAGE = Path(__file__).parent / "page.html"
#: The page's content security policy, which keeps the browser from loading anything from other servers.
_POLICY = "; ".join(
    (
        *("default-src 'none'", "connect-src 'self'", "style-src 'unsafe-inline'", "script-src 'unsafe-inline'"),
        *(f"{kind} 'none'" for kind in ("base-uri", "form-action", "frame-ancestors")),
        *("require-trusted-types-for 'script'", "trusted-types 'none'"),
    )
)
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
#: Number of cells of a full bar on the page, which shows a member at its capacity.
_CELLS = 200
#: ``FRESH_S``: the minimum number of seconds between two renderings of the picture, however many viewers there are.
#: ``FRESH_TIMES``: the same minimum, as a multiple of the duration of a rendering. So rendering takes at most a tenth
#: of the event loop's time, although a picture of 100,000 queues takes half a second.
FRESH_S, FRESH_TIMES = 0.5, 10.0


@asynccontextmanager
async def serving(
    host: str, port: int, group: str, metrics: Metrics, picture: Callable[[], Picture]
) -> AsyncIterator[str]:
    """Serve the pages until the end of the block, and yield their URL. Raises ``OSError`` if the address is taken, or
    does not belong to this machine."""
    page = _PAGE.read_bytes()

    async def show_page(request: web.Request) -> web.Response:
        return web.Response(body=page, content_type="text/html", charset="utf-8", headers=_HEADERS)

    stale_at_s, drawn = -math.inf, b""

    async def show_picture(request: web.Request) -> web.Response:
        nonlocal stale_at_s, drawn
        now_s = time.monotonic()
        if now_s >= stale_at_s:
            drawn = document(group, picture())
            stale_at_s = now_s + max(FRESH_S, FRESH_TIMES * (time.monotonic() - now_s))
        return web.Response(body=drawn, content_type="application/json", headers=_HEADERS)

    async def show_metrics(request: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), headers={**_HEADERS, "Content-Type": CONTENT_TYPE})

    async def show_health(request: web.Request) -> web.Response:
        # Any answer means that the event loop works. The health check does not test Kafka and the monitor, because a
        # restart would not repair them. The page and a metric show if they are missing.
        return web.Response(text="alive\n", headers=_HEADERS)

    application = web.Application()
    application.add_routes(
        [
            *(web.get("/", show_page), web.get("/picture.json", show_picture)),
            *(web.get("/metrics", show_metrics), web.get("/healthz", show_health)),
        ]
    )
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            raise OSError(f"[web] {host}, port {port}: {why}; set another address, or port -1 for no pages") from error
        at = runner.addresses[0][1]
        yield f"http://{f'[{host}]' if ':' in host else host}:{at}/"
    finally:
        await runner.cleanup()


def document(group: str, picture: Picture) -> bytes:
    """Return the page's data as JSON."""
    return orjson.dumps(
        {
            "group": group,
            "state": picture.state,
            "heading": words.heading(picture),
            "troubles": words.troubles(picture),
            "wanted": picture.wanted,
            "running": picture.running,
            "members": [
                {
                    "number": bar.number,
                    "name": bar.name,
                    "state": "leaving" if bar.is_leaving else "ready" if bar.is_ready else "joining",
                    "share": bar.load / bar.capacity,
                    "load": words.bytes_per_s(bar.load),
                    "capacity": words.bytes_per_s(bar.capacity),
                    "queues": len(bar.shares),
                    "pieces": [
                        [piece.cells / _CELLS, piece.queues, piece.is_moving] for piece in words.pieces(bar, _CELLS)
                    ],
                }
                for bar in picture.bars
            ],
        }
    )
