"""One node of the cluster: its connections, and whether it is set aside.

Owns: the connections, their number, who gets the next one, and when a node that failed is tried again. Must never: know
a request.

Connections are made by tasks of their own, which outlive the request that wanted one: where Riak's security is on a
connection may take longer to be let in than a request may wait, and a password that is wrong is refused only after
five seconds. A request takes the first connection that there is, a new one or one that another request has given back.
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
"""A node that is back serves again this much later at the latest; one connection attempt in that time costs nothing."""

LATE_S: Final = 10.0
"""For an answer that came too late for its request. A dear connection is worth the wait; a dead one is found by it."""

MISCONFIGURED_RETRY_S: Final = 10.0
"""A set-up is put right by people; and a node works a second on each password that it refuses."""


def grouped(reasons: Iterable[tuple[object, str]]) -> str:
    """``(node, why)`` of several nodes in one line; what is the same for some of them is said once."""
    nodes: dict[str, list[str]] = {}
    for node, why in reasons:
        nodes.setdefault(why, []).append(str(node))
    return "; ".join(f"{', '.join(names)}: {why}" for why, names in nodes.items())


class Node:
    """``counters``: the driver's. ``connections_max``: a node does the requests of one connection one by one."""

    def __init__(
        self, host: str, port: int, connecting: Connecting, counters: dict[str, int], connections_max: int
    ) -> None:
        self.host = host
        self.port = port
        self.in_use = 0  # turns given out, those that wait for a connection included
        self.failures = 0  # in a row; 0: in good standing
        self.retry_at = 0.0  # loop time, while failures > 0
        self.probing = False  # a node set aside is tried by one request at a time
        self.misconfigured = ""  # why the last connection could not be made, where the set-up is why
        self._connecting = connecting
        self._counters = counters
        self._connections_max = connections_max
        self._idle: list[Stream] = []  # last in, first out: what is not needed stays at the bottom
        self._busy: set[asyncio.StreamWriter] = set()
        self._openings: set[asyncio.Task[None]] = set()
        self._settling: set[asyncio.Task[None]] = set()
        self._wanting: deque[asyncio.Future[Stream]] = deque()
        self._refused_until = 0.0  # loop time: before it no second connection is tried beside those that work
        self._closed = False

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def usable(self, now: float) -> bool:
        """In good standing, or due for one more try."""
        return self.failures == 0 or (now >= self.retry_at and not self.probing)

    def failed(self, now: float) -> bool:
        """Set it aside; whether it was not already. Requests that fail together count as one failure."""
        if self.failures and now < self.retry_at:
            return False
        self.failures += 1
        wait_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** (self.failures - 1))
        self.retry_at = now + (MISCONFIGURED_RETRY_S if self.misconfigured else wait_s)
        return True

    async def connection(self) -> Stream:
        """For one request, which gives it back by ``release``. Raises what making it raises."""
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
        """Give a connection back. One that saw anything but whole answers is not used again."""
        self._busy.discard(stream[1])
        if not whole or self._closed:
            stream[1].transport.abort()
            self._open()
        else:
            self._give(stream)

    def release_owing(self, stream: Stream, length: int | None) -> None:
        """Give back one whose answer nobody waits for any more: the whole of it, or a body of ``length`` bytes, is
        still to come. A dear connection is used again after that: a node that has too much to do would get more of it
        by connections made anew."""
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
            pass  # the request it was for has been counted as timed out, and the connection goes
        finally:
            self.release(stream, whole=whole)

    @property
    def connected(self) -> bool:
        """Is there a connection at all?"""
        return bool(self._idle) or len(self._busy) > len(self._settling)

    def drop_idle(self, *, silent: bool = False) -> None:
        """What idles at a node that failed has likely died with it; when it is back it gets fresh connections. Dear
        ones stay at a node that is merely ``silent``: it may have too much to do, and would get more by that."""
        if silent and self._connecting.at_once is not None:
            return
        for _, writer in self._idle:
            writer.transport.abort()
        self._idle.clear()

    def close(self) -> None:
        """Cut every connection, those being made included."""
        self._closed = True
        self.drop_idle()
        for writer in self._busy:
            writer.transport.abort()
        for task in (*self._openings, *self._settling):
            task.cancel()
        self._refuse(ConnectionAbortedError("the store is closed"))

    def _open(self) -> None:
        """Begin to make a connection, where one is wanted and there may be one more."""
        loop = asyncio.get_running_loop()
        if self._closed or all(waiter.done() for waiter in self._wanting):
            return
        if self._busy and loop.time() < self._refused_until:
            return
        at_once = self._connecting.at_once
        # A probe is alone, and what was begun before the node failed may be waiting for what is dead.
        if at_once is not None and not self.probing and len(self._openings) >= at_once:
            return
        if len(self._busy) + len(self._openings) < self._connections_max:
            opening = loop.create_task(self._make())
            self._openings.add(opening)
            opening.add_done_callback(self._made)

    def _made(self, opening: asyncio.Task[None]) -> None:
        self._openings.discard(opening)
        self._open()  # another, where more than one is wanted

    async def _make(self) -> None:
        try:
            stream = await self._connecting.open(self.host, self.port)
        except StoreMisconfigured as error:
            if self.misconfigured != str(error) and (self._busy or all(waiter.done() for waiter in self._wanting)):
                log.error("riak: %s: %s", self, error)  # nobody else would hear of it
            self.misconfigured = str(error)
            self._counters["connections_refused"] += 1
            self._refused_until = asyncio.get_running_loop().time() + MISCONFIGURED_RETRY_S
            if not self._busy:  # else these serve those who wait: a password may be changed while they are open
                self._refuse(error)
        except (OSError, EOFError, WireError) as error:  # TimeoutError is an OSError
            self.misconfigured = ""  # that may still be so, but this is not why
            self._refuse(error)
        except ValueError as error:  # a host that cannot be one
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
        """Those who wait try another node."""
        while self._wanting:
            waiter = self._wanting.popleft()
            if not waiter.done():
                waiter.set_exception(error)
