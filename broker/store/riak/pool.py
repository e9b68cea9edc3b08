"""Connections to the nodes of a cluster, and which of them gets the next request.

Owns: the connections, their number, the time-outs, the second attempts, and which nodes are set aside for failing.
Must never: know what a request means. A request given to ``Pool.request`` may be carried out more than once (an answer
that does not come in time says nothing about what happened), so only requests that may be repeated come here: reads,
and writes that merge.

Limits. Connections per node: a node answers one connection's requests one by one, and a few connections keep it busy.
Time per attempt: well under the time for all, so that a node that accepts and never answers leaves time for another.
Time for all attempts: under the five seconds in which a caller must hear of it. Rounds of refusals: three, because a
node that answers is not helped by being asked for seconds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from ..base import StoreMisconfigured, StoreUnavailable
from .wire import HEADER, M, Refusal, WireError, frame, frame_length, parse

BACKOFF_FIRST_S: Final = 0.05
BACKOFF_MAX_S: Final = 2.0
"""A node that is back serves again this much later at the latest; one connection attempt in that time costs nothing."""

REFUSAL_ROUNDS_MAX: Final = 3
ROUND_PAUSE_S: Final = 0.1

_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Node:
    """One node of the cluster: its connections, and whether it is set aside."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.idle: list[_Stream] = []  # last in, first out: what is not needed stays at the bottom
        self.busy: set[asyncio.StreamWriter] = set()
        self.in_use = 0  # turns given out, those still connecting included
        self.failures = 0  # in a row; 0: in good standing
        self.retry_at = 0.0  # loop time, while failures > 0
        self.probing = False  # a node set aside is tried by one request at a time

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
        self.retry_at = now + min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** (self.failures - 1))
        return True


class Pool:
    """All nodes of the cluster. Use it in one event loop, the one it was first used in."""

    def __init__(
        self,
        nodes: Sequence[tuple[str, int]],
        counters: dict[str, int],
        *,
        timeout_s: float,
        attempt_timeout_s: float,
        connections_per_node: int,
    ) -> None:
        self.nodes = [Node(host, port) for host, port in nodes]
        self._counters = counters
        self._timeout_s = timeout_s
        self._attempt_timeout_s = attempt_timeout_s
        self._connections_per_node = connections_per_node
        self._turn = 0  # where the next search for a node starts, so that equals take turns
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False

    @property
    def capacity(self) -> int:
        """Requests that can be under way at once, with every node up."""
        return len(self.nodes) * self._connections_per_node

    async def request(self, code: int, body: bytes, expected: int, kind: type[M]) -> M:
        """Have some node do it. Raises ``StoreUnavailable``, or ``StoreMisconfigured`` where no node ever will."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        request = frame(code, body)
        tried: set[Node] = set()
        rounds = refused_rounds = 0
        refused = False
        reason = "no connection became free"
        while True:
            node = await self._next(deadline, tried, reason)
            attempt_ends = min(deadline, loop.time() + self._attempt_timeout_s)
            try:
                answered, answer = await self._exchange(node, request, attempt_ends)
                result = parse(kind, expected, answered, answer)
                self._restore(node)
                return result
            except Refusal as refusal:
                self._restore(node)
                self._counters["refusals"] += 1
                self._counters["overloads"] += refusal.overload
                refused = True
                reason = f"{node} answers: {refusal.text}"
                if refusal.permanent:
                    raise StoreMisconfigured(f"Riak refuses: {reason}. See docs/riak.md") from refusal
            except TimeoutError:
                self._counters["timeouts"] += 1
                if not refused:  # what a node said explains more than another one's silence
                    reason = f"{node} does not answer"
                self._set_aside(node)
            except (OSError, EOFError, WireError) as error:
                self._counters["connection_failures"] += 1
                if not refused:
                    reason = f"{node}: {error or type(error).__name__}"
                self._set_aside(node)
            finally:
                self._leave(node)
            tried.add(node)
            self._counters["retries"] += 1
            if any(node not in tried and node.usable(loop.time()) for node in self.nodes):
                continue
            # Every node there is has had its chance: pause, for longer each time, and begin again.
            tried.clear()
            rounds += 1
            refused_rounds += refused
            if refused_rounds == REFUSAL_ROUNDS_MAX:
                self._counters["unavailable"] += 1
                raise StoreUnavailable(f"Riak did not do it: {reason}")
            await asyncio.sleep(min(ROUND_PAUSE_S * rounds, max(0.0, deadline - loop.time())))

    async def ask(self, node: Node, code: int, body: bytes, expected: int, kind: type[M]) -> M:
        """Have this one node do it, in one attempt. Raises ``Refusal``, ``OSError``, ``EOFError`` or ``WireError``."""
        node.in_use += 1
        try:
            ends = asyncio.get_running_loop().time() + self._attempt_timeout_s
            return parse(kind, expected, *await self._exchange(node, frame(code, body), ends))
        except (OSError, EOFError, WireError):
            self._set_aside(node)
            raise
        finally:
            self._leave(node)

    def close(self) -> None:
        """Cut every connection; what is under way ends with ``StoreUnavailable``."""
        self._closed = True
        for node in self.nodes:
            for _, writer in node.idle:
                writer.transport.abort()
            node.idle.clear()
            for writer in node.busy:
                writer.transport.abort()
        while self._waiting:
            self._wake()

    def _restore(self, node: Node) -> None:
        if node.failures:
            node.failures = 0
            # While it was set aside one request at a time went there, and woke one other: now all of them can.
            for _ in range(self._connections_per_node):
                self._wake()

    def _set_aside(self, node: Node) -> None:
        self._counters["nodes_set_aside"] += node.failed(asyncio.get_running_loop().time())
        # What idles there has likely died with it; a node that is back gets fresh connections.
        for _, writer in node.idle:
            writer.transport.abort()
        node.idle.clear()

    async def _next(self, deadline: float, tried: set[Node], reason: str) -> Node:
        """A node with a free connection, the least busy; one not ``tried`` where there is one. Takes the turn."""
        loop = asyncio.get_running_loop()
        first_in_line = False
        while True:
            now = loop.time()
            if self._closed:
                raise StoreUnavailable("the store is closed")
            if now >= deadline:
                self._wake()  # the turn this one was woken for is another's
                self._counters["unavailable"] += 1
                raise StoreUnavailable(f"Riak did not answer within {self._timeout_s:g} s: {reason}")
            self._turn = (self._turn + 1) % len(self.nodes)
            ready = [
                node
                for node in (*self.nodes[self._turn :], *self.nodes[: self._turn])
                if node.in_use < self._connections_per_node and node.usable(now)
            ]
            if ready:
                node = min([node for node in ready if node not in tried] or ready, key=lambda node: node.in_use)
                node.in_use += 1
                node.probing = node.failures > 0
                return node
            retries = [node.retry_at for node in self.nodes if node.failures and not node.probing]
            await self._wait(min([deadline, *(at for at in retries if at > now)]), first_in_line)
            first_in_line = True

    async def _wait(self, until: float, first_in_line: bool) -> None:
        """Until a connection is given back, or the time has come."""
        waiter = asyncio.get_running_loop().create_future()
        # Whoever was woken and found the place taken again keeps the head of the line.
        (self._waiting.appendleft if first_in_line else self._waiting.append)(waiter)
        try:
            async with asyncio.timeout_at(until):
                await waiter
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake()  # the turn was meant for somebody who still wants it
            raise
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def _wake(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _leave(self, node: Node) -> None:
        node.in_use -= 1
        node.probing = False
        self._wake()

    async def _exchange(self, node: Node, request: bytes, ends: float) -> tuple[int, bytes]:
        """One request and its answer. A connection that saw anything but a whole answer is not used again."""
        async with asyncio.timeout_at(ends):
            reader, writer = await self._connection(node)
            node.busy.add(writer)
            try:
                writer.write(request)
                await writer.drain()
                code, length = frame_length(await reader.readexactly(HEADER.size))
                answer = await reader.readexactly(length)
            except BaseException:
                writer.transport.abort()
                raise
            finally:
                node.busy.discard(writer)
        if self._closed:
            writer.transport.abort()
        else:
            node.idle.append((reader, writer))
        return code, answer

    async def _connection(self, node: Node) -> _Stream:
        while node.idle:
            reader, writer = node.idle.pop()
            if not (reader.at_eof() or writer.is_closing()):
                return reader, writer
            writer.transport.abort()
        stream = await asyncio.open_connection(node.host, node.port)
        self._counters["connections_opened"] += 1
        return stream
