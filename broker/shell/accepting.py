"""Accepting from a port that several processes share: when this one takes a connection, and how many at once (ADR 27).

Owns: the watch on the shared socket, and the connections that came by it, until they are over. Must never: listen, or
keep what waits from the other processes for longer than they take to come.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import select
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from .board import Other, Place
from .client_socket import Clients, ClientSocket

log = logging.getLogger("ingeborg.endpoint")

#: Connections taken in one pass of the loop: some 3 ms, in which nobody else is served.
AT_ONCE = 32

#: How many connections more than the mean of all a process may have before it leaves new ones to the others for a
#: moment: one, and one more for each so many of the mean. Few connections may each be a busy one. If the others do not
#: come, it takes a few.
SLACK_EACH, A_FEW = 8, 4
#: And before it leaves them for longer, and takes many if the others do not come.
SLACK = 16

#: How long it leaves them, in seconds: an idle process comes within a millisecond, a busy one after a turn of its loop.
MOMENT_S, PAUSE_S = 0.001, 0.005
#: And how often in a row, while the others take some: it may be that they do not keep up.
PAUSES_MAX = 4

#: How long it takes nothing where it cannot, in seconds: mostly for want of a file or of memory. The others take what
#: comes meanwhile.
FULL_S = 0.2
#: What Linux says of a connection that has ended while it waited (accept(2)): there may be others behind it.
GONE = frozenset(
    (
        *(errno.ECONNABORTED, errno.EPROTO, errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.EPERM),
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH),
    )
)
#: Between two lines of the log that say so, in seconds.
SAY_S = 30.0

#: How long handshakes that are under way may take when it accepts no more, in seconds: three round trips of 300 ms.
#: Whoever has not sent a request by then is told to go elsewhere when he does.
HANDSHAKES_S = 1.0


class Share:
    """How many of the connections that wait this process takes, by what all of them have. Pure.

    Connections live long, so each process should have as many as any other. But nobody knows which processes will come
    for what waits, and one that stands still will not. So one that has more than its share leaves them for a moment,
    again while others take some, and then takes them all the same.
    """

    def __init__(self) -> None:
        self.pause_s = PAUSE_S  # the next one
        self._pauses = 0  # in a row
        self._taken = 0  # by the others, at the last one

    def all_taken(self) -> None:
        """After a pause nothing waits."""
        self._pauses = 0

    def turn(self, connections: int, others: Sequence[Other]) -> int:
        """Something waits: take so many now. 0: pause for ``pause_s``, then look whether something waits still."""
        if not others:
            return AT_ONCE
        mean = (connections + sum(other.connections for other in others)) / (len(others) + 1)
        over = connections - int(mean)
        few = min(1 + int(mean) // SLACK_EACH, SLACK) - over
        room = SLACK - over
        if few > 0:
            self._pauses = 0
            return min(few, AT_ONCE)
        is_far = room <= 0
        taken = sum(other.taken for other in others)
        if self._pauses and (taken == self._taken or self._pauses >= PAUSES_MAX):
            self._pauses = 0
            return AT_ONCE if is_far else min(room, A_FEW)
        self.pause_s = PAUSE_S if is_far else MOMENT_S
        self._pauses += 1
        self._taken = taken
        return 0


class Accepting:
    """One endpoint's. ``tls``: further arguments of ``connect_accepted_socket``; ``counts``: the core's counters."""

    def __init__(
        self, sock: socket.socket, place: Place, clients: Clients, tls: dict[str, Any], counts: Counter[str]
    ) -> None:
        self._sock = sock
        self._place = place
        self._clients = clients
        self._tls = tls
        self._counts = counts
        self._share = Share()
        self._open = False
        self._pause: asyncio.TimerHandle | None = None
        self._taken = 0
        self._connections: set[SharedSocket] = set()
        self._opening: set[SharedSocket] = set()  # their handshakes are not over
        self._opened = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._silent_until = 0.0
        self._waits = select.poll()
        self._waits.register(sock.fileno(), select.POLLIN)
        self._loop = asyncio.get_running_loop()

    def follow(self, ready: bool) -> None:
        """Take connections, or leave them to others."""
        if ready is not self._open:
            self._open = ready
            if ready:
                self._watch()
            else:
                self._look_away()

    async def end(self) -> None:
        """Take no more, and let go of the socket, which stays open for as long as others have it; handshakes under way
        have ``HANDSHAKES_S`` to end."""
        self.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(HANDSHAKES_S):
                while self._opening:
                    self._opened.clear()
                    await self._opened.wait()

    def close(self) -> None:
        """Let go of the socket."""
        self.follow(False)
        self._sock.close()

    def _watch(self) -> None:
        self._pause = None
        self._loop.add_reader(self._sock.fileno(), self._come)

    def _look_away(self, for_s: float | None = None, then: Callable[[], None] | None = None) -> None:
        """Let what comes wake up the others only."""
        self._loop.remove_reader(self._sock.fileno())
        if self._pause is not None:
            self._pause.cancel()
        self._pause = None if for_s is None or then is None else self._loop.call_later(for_s, then)

    def _come(self) -> None:
        """Something waits."""
        most = self._share.turn(len(self._connections), self._place.others(time.monotonic()))
        if not most:
            self._look_away(self._share.pause_s, self._come_again)
            return
        for _ in range(most):
            try:
                sock, _ = self._sock.accept()
            except BlockingIOError:
                break  # another process has been first
            except OSError as error:
                if error.errno in GONE:
                    continue
                self._full(error)
                return
            self._adopt(sock)
        if self._pause is not None:
            self._watch()

    def _come_again(self) -> None:
        """Does something wait that was left to the others?"""
        if self._waits.poll(0):
            self._come()
        else:
            self._share.all_taken()
            self._watch()

    def _full(self, error: OSError) -> None:
        self._counts["accepts_failed"] += 1
        if time.monotonic() >= self._silent_until:
            self._silent_until = time.monotonic() + SAY_S
            log.warning(
                "cannot accept: %s; what waits is left to the other endpoints of the port, and tried again every %g s",
                error.strerror,
                FULL_S,
            )
        self._look_away(FULL_S, self._watch)

    def _adopt(self, sock: socket.socket) -> None:
        client = SharedSocket(self._clients, self)
        self._taken += 1
        self._connections.add(client)
        self._opening.add(client)
        self._place.hold(len(self._connections), self._taken)
        task = self._loop.create_task(self._begin(client, sock))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _begin(self, client: SharedSocket, sock: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: client, sock, **self._tls)
        except OSError as error:  # TLS's errors are such
            log.debug("a connection ended before its handshake began: %s", error)
            self.over(client)

    def settled(self, client: SharedSocket) -> None:
        """The handshake is over, in whichever way."""
        self._opening.discard(client)
        if not self._opening:
            self._opened.set()

    def over(self, client: SharedSocket) -> None:
        """The connection is gone."""
        self.settled(client)
        self._connections.discard(client)
        self._place.hold(len(self._connections), self._taken)


class SharedSocket(ClientSocket):
    """A client's connection that came by the shared port."""

    def __init__(self, clients: Clients, accepting: Accepting) -> None:
        super().__init__(clients)
        self._accepting = accepting

    def settled(self) -> None:
        """See ``Socket``."""
        super().settled()
        self._accepting.settled(self)

    def closed(self) -> None:
        """See ``Socket``."""
        super().closed()
        self._accepting.over(self)
