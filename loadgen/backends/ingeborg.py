"""This broker as a system under load, through its own client library.

Owns: the mapping of a run's clients to client ids and endpoints. Must never: know anything about the broker except its
protocol.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from ingeborg.protocol.client import Client, ClientError, CommandTimeout, ConnectFailed, ConnectionLost
from ingeborg.protocol.credentials import read_token
from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.pages import PageError, fetch, samples

from .base import About, BackendError, Bounded, BoundingConnection, Counters, OnError, OnMessage

#: Time limit for each command of a large subscribe (about ten thousand topics) over a slow store.
_SUBSCRIBE_TIMEOUT_S = 120.0
#: Counters are read once a second. If an endpoint is too busy to answer within this time, the log has a gap.
_SCRAPE_TIMEOUT_S = 2.0
#: Time limit for an endpoint to be ready. An endpoint that has just started needs a moment to find its peers.
_READY_TIMEOUT_S = 10.0
_READY_POLL_S = 0.1


def client_id(name: str, number: int) -> str:
    """Return the client id of the run's client with this number."""
    return f"{name}-{number}"


class Ingeborg:
    """Spreads the clients over ``urls`` round-robin. ``run`` makes their ids unique to the run.

    ``lines``: whether several messages share a frame (SPEC section 1.6). If so, ``connect`` fails at an endpoint that
    does not support this. ``metrics_urls``: the URLs with `/metrics` and `/readyz` of each endpoint, if these pages are
    not at ``urls``. The environment variable ``INGEBORG_TOKEN`` holds the token for endpoints that need one; its `sub`
    has to be `*`, or the prefix of the run's client ids.
    """

    deduplicates = True

    def __init__(self, urls: Sequence[str], run: str, *, lines: bool = False, metrics_urls: Sequence[str] = ()) -> None:
        self._urls = list(urls)
        self._inside = list(metrics_urls) or self._urls
        self._run = run
        self._lines = lines
        self._ready: asyncio.Task[None] | None = None

    async def connect(
        self, number: int, on_message: OnMessage, on_error: OnError, bounded: Bounded | None = None
    ) -> BoundingConnection:
        """See ``BoundingBackend``. The returned client listens. It moves to the next endpoint if its endpoint goes
        away."""
        if self._ready is None:
            self._ready = asyncio.create_task(self._until_ready())
        await asyncio.shield(self._ready)
        first = number % len(self._urls)

        def on_notification(key: str | None, payload: Any) -> None:
            on_message(key or "", payload if type(payload) is str else "")

        try:
            client = Client(
                self._urls[first:] + self._urls[:first],
                client_id(self._run, number),
                listen=True,
                token=read_token(None),
                lines=self._lines,
                bounds=None if bounded is None else bounded.rules,
                window=None if bounded is None else bounded.window,
                # Only the iterator says how many other messages a notification replaces.
                on_notification=on_notification if bounded is None else None,
                on_error=lambda error: on_error(error.code),
                on_lost=lambda _: on_error("connection_lost"),
            )
            await client.connect()
        except ValueError as error:
            raise BackendError("connect", str(error)) from None
        except (ClientError, ProtocolError) as error:
            raise _failed(error) from error
        if self._lines and not client.in_lines:
            await client.close()
            raise BackendError("connect", f"{self._urls[first]} does not support --lines: leave it out")
        return _Connection(client, None if bounded is None else asyncio.create_task(_take(client, bounded, on_error)))

    async def counters(self) -> list[Counters]:
        """See ``Backend``. The counters are the `/metrics` of every endpoint."""
        scraped = await asyncio.gather(*map(self._scrape, self._inside))
        return [counters for counters in scraped if counters is not None]

    async def close(self) -> None:
        """See ``Backend``. Clients share nothing, and leave nothing behind except subscriptions that they did not
        undo."""

    async def _until_ready(self) -> None:
        """Wait until every endpoint is ready. A wrong URL fails here with one clear message, instead of one for each
        client."""
        for url in self._inside:
            why = "no answer"
            try:
                async with asyncio.timeout(_READY_TIMEOUT_S):
                    while (page := await fetch(url, "/readyz")).status != 200:
                        why = f"HTTP status {page.status}: {' '.join(page.text.split())[:200]}"
                        await asyncio.sleep(_READY_POLL_S)
            except PageError as error:
                raise BackendError("connect", str(error)) from None
            except TimeoutError:
                raise BackendError("connect", f"{url} is not ready after {_READY_TIMEOUT_S:g} s: {why}") from None

    async def _scrape(self, url: str) -> Counters | None:
        try:
            page = await fetch(url, "/metrics", timeout_s=_SCRAPE_TIMEOUT_S)
            at_ns = time.monotonic_ns()
            if page.status != 200:
                return None
            found = list(samples(page.text))
        except (PageError, ValueError):
            return None  # the log has a gap here, but its events show what the outage does to messages
        info = next((sample.labels for sample in found if sample.name == "ingeborg_info"), {})
        values = {sample.series: sample.value for sample in found if sample.name != "ingeborg_info"}
        return Counters(at_ns, info.get("name", url), values, info.get("form", "unknown"))


class _Connection:
    """``taking``: the task that passes the notifications on, if the client has bounds."""

    def __init__(self, client: Client, taking: asyncio.Task[None] | None) -> None:
        self._client = client
        self._taking = taking

    async def subscribe(self, topics: Sequence[str]) -> None:
        try:
            await self._client.subscribe(topics, timeout_s=_SUBSCRIBE_TIMEOUT_S)
        except (ClientError, ProtocolError) as error:
            raise _failed(error) from error

    async def unsubscribe(self, topics: Sequence[str]) -> None:
        try:
            await self._client.unsubscribe(topics, timeout_s=_SUBSCRIBE_TIMEOUT_S)
        except (ClientError, ProtocolError) as error:
            raise _failed(error) from error

    async def publish(self, messages: Sequence[tuple[str, str]]) -> None:
        try:
            await self._client.publish_many(messages)
        except (ClientError, ProtocolError) as error:
            raise _failed(error) from error

    async def publish_about(self, messages: Sequence[About]) -> None:
        try:
            for (item, weight), alike in groupby(messages, key=lambda message: (message.item, message.weight)):
                pairs = [(message.topic, message.payload) for message in alike]
                await self._client.publish_many(pairs, item=item, weight=weight)
        except (ClientError, ProtocolError) as error:
            raise _failed(error) from error

    async def close(self) -> None:
        await self._client.close()
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.wait({self._taking})
            if not self._taking.cancelled() and (error := self._taking.exception()) is not None:
                raise error  # a bug in the receiver


async def _take(client: Client, bounded: Bounded, on_error: OnError) -> None:
    """Pass on the notifications of a client with bounds, until the client has ended."""
    try:
        async for notification in client:
            key, payload = notification
            bounded.on_message(key or "", payload if type(payload) is str else "", notification.skipped)
    except (ClientError, ProtocolError) as error:
        on_error(_failed(error).code)


def _failed(error: ClientError | ProtocolError) -> BackendError:
    if isinstance(error, ProtocolError):
        return BackendError(error.code, str(error))
    for kind, code in ((CommandTimeout, "timeout"), (ConnectionLost, "connection_lost"), (ConnectFailed, "connect")):
        if isinstance(error, kind):
            return BackendError(code, str(error))
    return BackendError("closed", str(error))
