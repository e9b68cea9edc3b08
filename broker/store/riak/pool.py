"""Choose the node that gets the next request, and decide what happens to a failed request.

Owns: the requests' time-outs, the retries, and setting nodes aside after failures. Must never: know what a request
means, or how to connect. If a node does not answer in time, its request may have run or not. ``Pool.request`` then
sends the request again, so callers must pass only repeatable requests: reads, and writes that merge.

The limits have these reasons:
- Connections per node: a node answers the requests of one connection one by one, and a few connections keep it busy.
- Time per attempt: much less than the time for all attempts, so that a request can go to another node if one is silent.
- Time for all attempts: less than the five seconds within which a caller must learn of a failure.
- Rounds of refusals: three. If all nodes answer with a refusal, more rounds are unlikely to help.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ..base import StoreMisconfigured, StoreUnavailable
from .connecting import Connecting, Plain, Stream
from .node import Node, grouped
from .wire import HEADER, M, Refusal, WireError, frame, frame_length, parse

REFUSAL_ROUNDS_MAX: Final = 3
ROUND_PAUSE_S: Final = 0.1


class _Waiting(NamedTuple):
    """A request that waits for a connection to any node that it has not ``tried``."""

    turn: asyncio.Future[Node | None]  # a node that has a free connection; None to search again
    tried: set[Node]


class Pool:
    """All nodes of the cluster. A pool belongs to the event loop in which it is first used. ``connecting`` says how to
    connect; by default, connections are in plain text."""

    def __init__(
        self,
        nodes: Sequence[tuple[str, int]],
        counters: dict[str, int],
        *,
        timeout_s: float,
        attempt_timeout_s: float,
        connections_per_node: int,
        connecting: Connecting | None = None,
    ) -> None:
        self._connecting = connecting or Plain(attempt_timeout_s)
        self.nodes = [Node(host, port, self._connecting, counters, connections_per_node) for host, port in nodes]
        self._counters = counters
        self._timeout_s = timeout_s
        self._attempt_timeout_s = attempt_timeout_s
        self._connections_per_node = connections_per_node
        self._turn = 0  # where the next search starts, so that equally busy nodes take turns
        self._waiting: deque[_Waiting] = deque()
        self._closed = False

    @property
    def capacity(self) -> int:
        """Return how many requests can run at the same time when all nodes are up."""
        return len(self.nodes) * self._connections_per_node

    async def request(
        self, code: int, body: bytes, expected: int, kind: type[M], *, final: Callable[[Refusal], bool] | None = None
    ) -> M:
        """Send the request to one node after the other until a node carries it out. Raises ``StoreUnavailable``, or
        ``StoreMisconfigured`` if no node can do so until an operator changes the configuration.

        ``final`` tells which refusals are final. If all live nodes answer with a final refusal, this raises
        ``Refusal``.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        request = frame(code, body)
        tried: set[Node] = set()
        rounds = refused_rounds = 0
        refused = False
        believed: Refusal | None = None  # a final refusal in this round
        undecided = False
        reason = "no connection became free"
        while True:
            node = await self._next(deadline, tried, reason)
            if node is None:
                # All nodes have been tried. Pause, longer in each round, and begin again.
                tried.clear()
                if believed is not None and not undecided:
                    raise believed
                believed, undecided = None, False
                rounds += 1
                refused_rounds += refused
                if refused_rounds == REFUSAL_ROUNDS_MAX:
                    self._counters["unavailable"] += 1
                    raise StoreUnavailable(f"Riak did not carry out the request: {reason}")
                await asyncio.sleep(min(ROUND_PAUSE_S * rounds, max(0.0, deadline - loop.time())))
                continue
            probe = node.probing
            attempt_ends = min(deadline, loop.time() + self._attempt_timeout_s)
            asked = False
            try:
                async with asyncio.timeout_at(attempt_ends):
                    stream = await node.connection()
                    asked = True
                    answer = await _exchange(node, stream, request)
                result = parse(kind, expected, *answer)
                self._restore(node)
                return result
            except Refusal as refusal:
                self._restore(node)
                self._counters["refusals"] += 1
                self._counters["overloads"] += refusal.overload
                refused = True
                if final is not None and final(refusal):
                    believed = refusal
                else:
                    undecided = True
                reason = f"{node} answers: {refusal.text}"
                if refusal.permanent:
                    raise StoreMisconfigured(f"Riak refuses: {node} {_advice(refusal)} See docs/riak.md") from refusal
            except StoreMisconfigured as error:  # there was no connection, so the request was not sent
                self._counters["connection_failures"] += 1
                reason = f"{node}: {error}"
                self._set_aside(node)
            except TimeoutError as error:
                self._counters["timeouts"] += 1
                undecided = undecided or not probe  # a silent probe shows that the node is still down
                if not refused:  # a refusal explains more than the silence of another node
                    reason = f"{node}: {error}" if str(error) else f"{node} does not answer"
                if asked or not node.connected:  # otherwise all its connections were busy, which is no failure
                    self._set_aside(node, silent=True)
            except (OSError, EOFError, WireError) as error:
                self._counters["connection_failures"] += 1
                if not refused:
                    reason = f"{node}: {str(error) or type(error).__name__}"
                self._set_aside(node)
            finally:
                self._leave(node)
            tried.add(node)
            self._counters["retries"] += 1

    async def ask(self, node: Node, code: int, body: bytes, expected: int, kind: type[M]) -> M:
        """Send the request to this node once. Connecting may take longer than in ``request``. Raises ``Refusal``,
        ``StoreMisconfigured``, ``OSError``, ``EOFError`` or ``WireError``."""
        node.in_use += 1
        try:
            async with asyncio.timeout(self._connecting.timeout_s):
                stream = await node.connection()
            async with asyncio.timeout(self._attempt_timeout_s):
                answer = await _exchange(node, stream, frame(code, body))
            return parse(kind, expected, *answer)
        except Refusal as refusal:
            if refusal.permanent:
                raise StoreMisconfigured(_advice(refusal)) from refusal
            raise
        except TimeoutError as error:
            self._set_aside(node, silent=True)
            raise TimeoutError(str(error) or "does not answer") from error
        except (StoreMisconfigured, OSError, EOFError, WireError):
            self._set_aside(node)
            raise
        finally:
            self._leave(node)

    def close(self) -> None:
        """Close all connections. Requests that are still running raise ``StoreUnavailable``."""
        self._closed = True
        for node in self.nodes:
            node.close()
        self._wake_all()

    def _restore(self, node: Node) -> None:
        if node.failures:
            node.failures = 0
            # While the node was set aside, only one request at a time used it. Now wake as many waiting requests as the
            # node can serve.
            for _ in range(self._connections_per_node):
                self._wake(node)

    def _set_aside(self, node: Node, *, silent: bool = False) -> None:
        if node.failed(asyncio.get_running_loop().time()):
            self._counters["nodes_set_aside"] += 1
            self._wake_all()  # some may be waiting for this node
        node.drop_idle(silent=silent)

    async def _next(self, deadline: float, tried: set[Node], reason: str) -> Node | None:
        """Return the least busy node that is not in ``tried``, and reserve one of its connections. Waits until one is
        free. Returns ``None`` if all live nodes have been tried."""
        loop = asyncio.get_running_loop()
        first_in_line = False
        turn: Node | None = None  # a node at which a connection is reserved for this request
        try:
            while True:
                now = loop.time()
                if self._closed:
                    raise StoreUnavailable("the store is closed")
                if turn is not None:
                    node, turn = turn, None
                    return node
                if now >= deadline:
                    self._counters["unavailable"] += 1
                    raise StoreUnavailable(f"Riak did not answer within {self._timeout_s:g} s: {reason}")
                self._turn = (self._turn + 1) % len(self.nodes)
                usable = [
                    node
                    for node in (*self.nodes[self._turn :], *self.nodes[: self._turn])
                    if node not in tried and node.usable(now)
                ]
                if tried and not usable:
                    return None
                if ready := [node for node in usable if node.in_use < self._connections_per_node]:
                    node = min(ready, key=lambda node: node.in_use)
                    self._enter(node)
                    return node
                if all(node.failures and node.misconfigured for node in self.nodes):  # and none is due for a retry
                    self._counters["unavailable"] += 1
                    why = grouped((node, node.misconfigured) for node in self.nodes)
                    raise StoreMisconfigured(f"no Riak node lets the broker in: {why}. See docs/riak.md")
                retries = [node.retry_at for node in self.nodes if node.failures and not node.probing]
                turn = await self._wait(tried, min([deadline, *(at for at in retries if at > now)]), first_in_line)
                first_in_line = True
        finally:
            if turn is not None:
                self._leave(turn)

    async def _wait(self, tried: set[Node], until: float, first_in_line: bool) -> Node | None:
        """Wait until a node that is not in ``tried`` has a free connection, or a node is set aside, or the time is
        up."""
        waiting = _Waiting(asyncio.get_running_loop().create_future(), tried)
        # A request that was woken but got no connection goes back to the front of the queue.
        (self._waiting.appendleft if first_in_line else self._waiting.append)(waiting)
        turn = waiting.turn
        try:
            await asyncio.wait([turn], timeout=until - asyncio.get_running_loop().time())
            return turn.result() if turn.done() else None
        except asyncio.CancelledError:
            if turn.done() and (node := turn.result()) is not None:
                self._leave(node)
            raise
        finally:
            if not turn.done():  # otherwise the code that woke it has removed it from the queue
                self._waiting.remove(waiting)

    def _wake(self, node: Node) -> None:
        """Reserve a free connection of the node for the request that has waited longest. Without the reservation, newer
        requests could take the connection again and again before the waiting one continues."""
        if node.in_use >= self._connections_per_node or not node.usable(asyncio.get_running_loop().time()):
            return
        for waiting in self._waiting:
            if node not in waiting.tried:
                self._waiting.remove(waiting)
                self._enter(node)
                waiting.turn.set_result(node)
                return

    def _wake_all(self) -> None:
        while self._waiting:
            self._waiting.popleft().turn.set_result(None)

    def _enter(self, node: Node) -> None:
        node.in_use += 1
        node.probing = node.failures > 0

    def _leave(self, node: Node) -> None:
        node.in_use -= 1
        node.probing = False
        self._wake(node)


async def _exchange(node: Node, stream: Stream, request: bytes) -> tuple[int, bytes]:
    """Send one request, return the answer, and release the connection."""
    reader, writer = stream
    length: int | None = None
    try:
        writer.write(request)
        await writer.drain()
        code, length = frame_length(await reader.readexactly(HEADER.size))
        answer = await reader.readexactly(length)
    except asyncio.CancelledError:
        node.release_owing(stream, length)
        raise
    except BaseException:
        node.release(stream, whole=False)
        raise
    node.release(stream, whole=True)
    return code, answer


def _advice(refusal: Refusal) -> str:
    """Return the text of a permanent refusal, with advice."""
    advice = ""
    if refusal.plain_text:
        advice = " Riak's security is on: give riak-user, riak-password-file and riak-ca-file."
    elif refusal.not_granted:
        advice = " Grant it with riak-admin security grant."
    return f"answers: {refusal.text}.{advice}"
