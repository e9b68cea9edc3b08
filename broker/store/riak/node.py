"""One node of the cluster: its connections, and whether it is set aside.

Owns: the connections, their number, the order in which requests get them, and when to try a failed node again. Must
never: know the content of a request.

Separate tasks make the connections. A task continues after the request that needed its connection has timed out, for
two reasons. If Riak's security is on, authentication can take longer than a request may wait. A node refuses a wrong
password only after five seconds. A request uses the first available connection, either a new one or one that another
request has released.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from typing import Final

from ..base import StoreMisconfigured
from .connecting import Connecting, Stream
from .wire import HEADER, WireError, frame_length

log = logging.getLogger("ingeborg.riak")

BACKOFF_FIRST_S: Final = 0.05
BACKOFF_MAX_S: Final = 2.0
"""The longest time until a recovered node is used again. Attempts to connect at this interval cost almost nothing."""

LATE_S: Final = 10.0
"""How long to wait for an answer that is too late for its request. The wait saves an expensive connection. A dead
connection is detected anyway."""

MISCONFIGURED_RETRY_S: Final = 10.0
"""Pause after a connection failed because of the configuration. Operators need time to correct it, and each wrong
password costs the node about a second of work."""


def grouped(reasons: Iterable[tuple[object, str]]) -> str:
    """Format pairs of node and reason in one line, with each reason once."""
    nodes: dict[str, list[str]] = {}
    for node, why in reasons:
        nodes.setdefault(why, []).append(str(node))
    return "; ".join(f"{', '.join(names)}: {why}" for why, names in nodes.items())


class Node:
    """A node. ``counters`` are those of the driver. ``connections_max`` limits the connections, each of which handles
    one request at a time."""

    def __init__(
        self, host: str, port: int, connecting: Connecting, counters: dict[str, int], connections_max: int
    ) -> None:
        self.host = host
        self.port = port
        self.in_use = 0  # requests that have reserved a connection, including those that still wait for it
        self.failures = 0  # failures in a row; 0 if the node is not set aside
        self.retry_at = 0.0  # loop time; meaningful only if failures > 0
        self.probing = False  # whether one request is trying this node although it is set aside
        self.misconfigured = ""  # why the configuration made the last connection fail; empty if it did not
        self._connecting = connecting
        self._counters = counters
        self._connections_max = connections_max
        self._idle: list[Stream] = []  # last in, first out, so unneeded connections stay at the bottom
        self._busy: set[asyncio.StreamWriter] = set()
        self._openings: set[asyncio.Task[None]] = set()
        self._settling: set[asyncio.Task[None]] = set()
        self._wanting: deque[asyncio.Future[Stream]] = deque()
        self._refused_until = 0.0  # loop time until which to open no more connections if others work
        self._closed = False

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def usable(self, now: float) -> bool:
        """Return whether the node is not set aside, or is due for another try."""
        return self.failures == 0 or (now >= self.retry_at and not self.probing)

    def failed(self, now: float) -> bool:
        """Set the node aside. If it is set aside already and no retry is due, change nothing and return False, so that
        requests that fail together count as one failure."""
        if self.failures and now < self.retry_at:
            return False
        self.failures += 1
        wait_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** (self.failures - 1))
        self.retry_at = now + (MISCONFIGURED_RETRY_S if self.misconfigured else wait_s)
        return True

    async def connection(self) -> Stream:
        """Return a connection for one request. The caller has to release it when the request has ended. Raises the
        errors of connecting."""
        while self._idle:
            reader, writer = self._idle.pop()
            if not (reader.at_eof() or writer.is_closing()):
                self._busy.add(writer)
                return reader, writer
            writer.transport.abort()
        waiter: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
        self._wanting.append(waiter)
        self._open()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.release(waiter.result(), whole=True)
            raise
        finally:
            if waiter in self._wanting:
                self._wanting.remove(waiter)

    def release(self, stream: Stream, *, whole: bool) -> None:
        """Release a connection. It is used again only if its last answer was received completely (``whole``)."""
        self._busy.discard(stream[1])
        if not whole or self._closed:
            stream[1].transport.abort()
            self._open()
        else:
            self._give(stream)

    def release_owing(self, stream: Stream, length: int | None) -> None:
        """Release a connection whose request was cancelled before its answer arrived completely. If ``length`` is
        given, only a body of that many bytes is missing. If connections are expensive, this waits for the rest of the
        answer and then uses the connection again. New connections would burden an overloaded node even more."""
        if self._connecting.at_once is None or self._closed:
            self.release(stream, whole=False)
            return
        settling = asyncio.get_running_loop().create_task(self._settle(stream, length))
        self._settling.add(settling)
        settling.add_done_callback(self._settling.discard)

    async def _settle(self, stream: Stream, length: int | None) -> None:
        whole = False
        try:
            async with asyncio.timeout(LATE_S):
                if length is None:
                    _, length = frame_length(await stream[0].readexactly(HEADER.size))
                await stream[0].readexactly(length)
            whole = True
        except (OSError, EOFError, WireError):
            pass  # the request has been counted as timed out; drop the connection
        finally:
            self.release(stream, whole=whole)

    @property
    def connected(self) -> bool:
        """Return whether there is a connection that can serve requests."""
        return bool(self._idle) or len(self._busy) > len(self._settling)

    def drop_idle(self, *, silent: bool = False) -> None:
        """Close the idle connections of a failed node, because they are probably dead. But if the node is only
        ``silent``, keep expensive connections: the node may be overloaded, and new connections would burden it even
        more."""
        if silent and self._connecting.at_once is not None:
            return
        for _, writer in self._idle:
            writer.transport.abort()
        self._idle.clear()

    def close(self) -> None:
        """Close all connections, including those that are being made."""
        self._closed = True
        self.drop_idle()
        for writer in self._busy:
            writer.transport.abort()
        for task in (*self._openings, *self._settling):
            task.cancel()
        self._refuse(ConnectionAbortedError("the store is closed"))

    def _open(self) -> None:
        """Start a task that makes a connection, if a request needs one and the limit permits it."""
        loop = asyncio.get_running_loop()
        if self._closed or all(waiter.done() for waiter in self._wanting):
            return
        if self._busy and loop.time() < self._refused_until:
            return
        at_once = self._connecting.at_once
        # A request that probes the node always starts its own attempt, because earlier attempts may be waiting for a
        # dead peer.
        if at_once is not None and not self.probing and len(self._openings) >= at_once:
            return
        if len(self._busy) + len(self._openings) < self._connections_max:
            opening = loop.create_task(self._make())
            self._openings.add(opening)
            opening.add_done_callback(self._made)

    def _made(self, opening: asyncio.Task[None]) -> None:
        self._openings.discard(opening)
        self._open()  # make another connection if more are needed

    async def _make(self) -> None:
        try:
            stream = await self._connecting.open(self.host, self.port)
        except StoreMisconfigured as error:
            if self.misconfigured != str(error) and (self._busy or all(waiter.done() for waiter in self._wanting)):
                log.error("riak: %s: %s", self, error)  # no request would report it
            self.misconfigured = str(error)
            self._counters["connections_refused"] += 1
            self._refused_until = asyncio.get_running_loop().time() + MISCONFIGURED_RETRY_S
            if not self._busy:  # otherwise the waiting requests use open connections, even after a password change
                self._refuse(error)
        except (OSError, EOFError, WireError) as error:  # TimeoutError is an OSError
            self.misconfigured = ""  # the configuration may still be wrong, but did not cause this failure
            self._refuse(error)
        except ValueError as error:  # an invalid host name
            self._refuse(OSError(str(error)))
        else:
            self._counters["connections_opened"] += 1
            self.misconfigured = ""
            if self._closed:
                stream[1].transport.abort()
            else:
                self._give(stream)

    def _give(self, stream: Stream) -> None:
        while self._wanting:
            waiter = self._wanting.popleft()
            if not waiter.done():
                self._busy.add(stream[1])
                waiter.set_result(stream)
                return
        self._idle.append(stream)

    def _refuse(self, error: Exception) -> None:
        """Fail the requests that wait for a connection, so that they try another node."""
        while self._wanting:
            waiter = self._wanting.popleft()
            if not waiter.done():
                waiter.set_exception(error)
