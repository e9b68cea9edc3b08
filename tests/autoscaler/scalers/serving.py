"""An HTTP server in the test's own process, for a scaler's requests.

Owns: its start on a free port, and its end. Must never: know the answers.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve all paths and methods with ``handler``; yield the URL without a trailing slash."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    # Do not wait for requests that a test has left open.
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.01)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        [address] = runner.addresses
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{address[1]}"
    finally:
        await runner.cleanup()
