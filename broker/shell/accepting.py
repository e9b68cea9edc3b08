"""Accepts connections: decides when, how many at once, and what happens when file descriptors run out.

Several processes can share a port (ADR 27). Owns: the watch on a listening socket, and the connections accepted from it
until they end. Must never: listen, or leave a connection waiting at a shared port for longer than the other processes
need to react.

The process reserves its last descriptors for work that must continue when clients have used up all others: health
pages, links, and the process that reads large frames. The system always assigns the lowest free descriptor, so the
number of a new connection's descriptor shows how many are left.
"""

from __future__ import annotations

import asyncio
import errno
import http
import logging
import os
import resource
import select
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from websockets.http11 import Request

from ingeborg.protocol.sockets import as_protocol

from ..access.admission import Refused
from .client_socket import ClientSocket
from .clients import Clients
from .logs import Sparing
from .status_table import Other, StatusEntry

log = logging.getLogger("ingeborg.endpoint")

#: Maximum number of connections accepted in one pass of the loop. They take about 3 ms, in which the loop serves nobody
#: else.
AT_ONCE = 32

#: A process that has more connections than the mean of all processes plus some slack leaves new ones to the others for
#: a moment (``MOMENT_S``). The slack is one connection, plus one for every ``SLACK_EACH`` connections of the mean. It
#: is small if there are few connections, because each of these may be busy. If the other processes accept none, this
#: process accepts up to ``A_FEW``.
SLACK_EACH, A_FEW = 8, 4
#: The maximum slack. A process that exceeds the mean by more than this leaves new connections to the others for longer
#: (``PAUSE_S``). If the others accept none, the process then accepts up to ``AT_ONCE``.
SLACK = 16

#: The lengths of the short and of the long pause, in seconds. An idle process reacts within a millisecond, and a busy
#: process after a pass of its loop.
MOMENT_S, PAUSE_S = 0.001, 0.005
#: Maximum number of pauses in a row while the other processes accept some connections. The number is limited because
#: the others may not keep up.
PAUSES_MAX = 4

#: Number of descriptors withheld from clients. If the process can have only few descriptors, it withholds one in
#: ``SPARE_PART``. Connections for pages and links can use the first half of this reserve. The rest is for the
#: endpoint's own files and processes.
SPARE_FILES, SPARE_PART = 64, 8
#: Time limit for the request on a connection with a reserved descriptor, in seconds. It is short because such a
#: connection keeps others out.
SPARE_S = 1.0

#: Pause when the system cannot give the process a connection, in seconds. The usual cause is a lack of memory. In the
#: meantime, the other processes at the port take new connections.
FULL_S = 0.2
#: The errors that Linux reports for a connection that ended while it waited (accept(2)). Other connections may wait
#: behind it.
GONE = frozenset(
    (
        *(errno.ECONNABORTED, errno.EPROTO, errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.EPERM),
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH),
    )
)
#: Minimum interval between two log lines about the same failure to accept, in seconds.
SAY_S = 30.0

#: Time for handshakes under way to finish after the process has stopped accepting, in seconds: three round trips of 300
#: ms. A client that sends its request later is refused, so that it connects elsewhere.
HANDSHAKES_S = 1.0


def files_max() -> int:
    """Return how many descriptors this process can have (``ulimit -n``). The limit can change while the process
    runs."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def spare_files(most: int) -> int:
    """Return how many of ``most`` descriptors are withheld from clients."""
    return min(SPARE_FILES, most // SPARE_PART)


class Share:
    """Decides how many waiting connections this process takes, from the counts of all processes. Pure.

    Connections live long, so each process should have as many as any other. But nobody knows which processes will take
    the waiting connections, and a stalled process will take none. So a process that has more than its share leaves the
    connections to the others for a moment, repeats that while the others take some, and then takes the rest itself.
    """

    def __init__(self) -> None:
        self.pause_s = PAUSE_S  # length of the next pause
        self._pauses = 0  # in a row
        self._taken = 0  # connections that the others had taken at the last pause

    def all_taken(self) -> None:
        """Record that no connection waits any longer after a pause."""
        self._pauses = 0

    def turn(self, connections: int, others: Sequence[Other], is_full: bool = False) -> int:
        """Return how many of the waiting connections to take now, or 0 to pause for ``pause_s`` and then check again.

        If ``is_full`` is true, this process would have to refuse the connections. It therefore leaves them to the other
        processes as long as those accept some, up to ``PAUSES_MAX`` pauses in a row.
        """
        if not others:
            return AT_ONCE
        mean = (connections + sum(other.connections for other in others)) / (len(others) + 1)
        over = connections - int(mean)
        few = min(1 + int(mean) // SLACK_EACH, SLACK) - over
        room = SLACK - over
        if few > 0 and not is_full:
            self._pauses = 0
            return min(few, AT_ONCE)
        is_far = room <= 0 or is_full
        taken = sum(other.taken for other in others)
        if self._pauses and (taken == self._taken or self._pauses >= PAUSES_MAX):
            self._pauses = 0
            return AT_ONCE if is_far else min(room, A_FEW)
        self.pause_s = PAUSE_S if is_far else MOMENT_S
        self._pauses += 1
        self._taken = taken
        return 0


class Accepting:
    """One listening socket of an endpoint.

    ``tls`` has further arguments for ``connect_accepted_socket``. ``counts`` are the core's counters. ``entry`` is this
    process's entry in the status table, or ``None`` if no other process shares the socket. ``internal`` says that the
    socket listens at the internal address.
    """

    def __init__(
        self,
        sock: socket.socket,
        clients: Clients,
        tls: dict[str, Any],
        counts: Counter[str],
        *,
        entry: StatusEntry | None = None,
        internal: bool = False,
    ) -> None:
        self._sock = sock
        self._entry = entry
        self._internal = internal
        self._clients = clients
        self._tls = tls
        self._counts = counts
        self._share = Share()
        self._open = False
        self._pause: asyncio.TimerHandle | None = None
        self._taken = 0
        self._connections: set[AcceptedSocket] = set()
        self._opening: set[AcceptedSocket] = set()  # still in their handshakes
        self._opened = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._saying = Sparing(SAY_S)
        self._waits = select.poll()
        self._waits.register(sock.fileno(), select.POLLIN)
        self._loop = asyncio.get_running_loop()
        sock.setblocking(False)

    def follow(self, ready: bool) -> None:
        """Accept connections if ``ready``, otherwise leave them to the other processes."""
        if ready is not self._open:
            self._open = ready
            if ready:
                self._watch()
            else:
                self._look_away()

    async def end(self) -> None:
        """Stop accepting, close our descriptor of the socket, and wait up to ``HANDSHAKES_S`` for handshakes under way.

        The socket stays open as long as other processes have a descriptor of it.
        """
        self.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(HANDSHAKES_S):
                while self._opening:
                    self._opened.clear()
                    await self._opened.wait()

    def close(self) -> None:
        """Stop accepting, and close our descriptor of the socket."""
        self.follow(False)
        self._sock.close()

    def _watch(self) -> None:
        self._pause = None
        self._loop.add_reader(self._sock.fileno(), self._come)

    def _look_away(self, for_s: float | None = None, then: Callable[[], None] | None = None) -> None:
        """Stop watching the socket, so that new connections wake up only the other processes. Call ``then`` after
        ``for_s`` seconds, if both are given."""
        self._loop.remove_reader(self._sock.fileno())
        if self._pause is not None:
            self._pause.cancel()
        self._pause = None if for_s is None or then is None else self._loop.call_later(for_s, then)

    def _come(self) -> None:
        """Take some of the waiting connections."""
        most = AT_ONCE
        if self._entry is not None:
            others = self._entry.others(time.monotonic())
            most = self._share.turn(len(self._connections), others, self._is_full())
        if not most:
            self._look_away(self._share.pause_s, self._come_again)
            return
        for _ in range(most):
            try:
                sock, _ = self._sock.accept()
            except BlockingIOError:
                break  # another process was first
            except OSError as error:
                if error.errno in GONE:
                    continue
                self._refused("cannot accept", f"cannot accept: {error.strerror}; trying again every {FULL_S:g} s")
                self._look_away(FULL_S, self._watch)
                return
            self._adopt(sock)
        if self._pause is not None:
            self._watch()

    def _come_again(self) -> None:
        """After a pause, accept the connections that still wait."""
        if self._waits.poll(0):
            self._come()
        else:
            self._share.all_taken()
            self._watch()

    def _is_full(self) -> bool:
        """Return whether the next connection would get a reserved descriptor."""
        try:
            next_one = os.dup(self._sock.fileno())
        except OSError:
            return True
        os.close(next_one)
        most = files_max()
        return most - next_one <= spare_files(most)

    def _adopt(self, sock: socket.socket) -> None:
        most = files_max()
        left, spare = most - sock.fileno(), spare_files(most)
        if left <= spare // 2:
            sock.close()
            self.no_file()
            return
        client = AcceptedSocket(self._clients, self, self._internal, left <= spare)
        self._taken += 1
        self._connections.add(client)
        self._opening.add(client)
        self._show()
        task = self._loop.create_task(self._begin(client, sock))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _begin(self, client: AcceptedSocket, sock: socket.socket) -> None:
        tls = {**self._tls, "ssl_handshake_timeout": SPARE_S} if self._tls and client.spare else self._tls
        try:
            await self._loop.connect_accepted_socket(lambda: as_protocol(client), sock, **tls)
        except OSError as error:  # TLS errors included
            log.debug("a connection ended before its handshake began: %s", error)
            self.over(client)

    def no_file(self) -> None:
        """Count and log the refusal of a client, since clients use all descriptors that are available to them."""
        most = files_max()
        self._refused(
            "no file",
            f"clients use all open files available to them: {most - spare_files(most)} of {most}; refusing new clients "
            "until some leave, or `ulimit -n` is raised",
        )

    def _refused(self, kind: str, text: str) -> None:
        self._counts["accepts_failed"] += 1
        if self._saying.is_due(kind):
            log.warning("%s", text)

    def _show(self) -> None:
        if self._entry is not None:
            self._entry.show_counts(len(self._connections), self._taken)

    def settled(self, client: AcceptedSocket) -> None:
        """Record that a handshake has ended, successfully or not."""
        self._opening.discard(client)
        if not self._opening:
            self._opened.set()

    def over(self, client: AcceptedSocket) -> None:
        """Record that a connection has ended, or no longer belongs to a client."""
        self.settled(client)
        self._connections.discard(client)
        self._show()


class AcceptedSocket(ClientSocket):
    """A connection accepted from a listening socket. ``spare``: whether the connection has a reserved descriptor."""

    def __init__(self, clients: Clients, accepting: Accepting, internal: bool, spare: bool) -> None:
        super().__init__(clients, internal)
        self._accepting = accepting
        self.spare = spare

    def connection_made(self, transport: Any) -> None:
        """See ``Socket``."""
        super().connection_made(transport)
        if self.spare and self._abort is not None:
            self._abort.cancel()
            self._abort = asyncio.get_running_loop().call_later(SPARE_S, self.transport.abort)

    def check_room(self) -> None:
        """See ``ClientSocket``."""
        if self.spare:
            self._accepting.no_file()
            text = "This endpoint has no open file left for another client: try later, or connect to another endpoint"
            raise Refused(http.HTTPStatus.SERVICE_UNAVAILABLE, text, **{"Retry-After": "5"})

    def _become_peer(self, request: Request) -> None:
        """See ``ClientSocket``. From here on another protocol owns the connection."""
        super()._become_peer(request)
        self._accepting.over(self)

    def settled(self) -> None:
        """See ``Socket``."""
        super().settled()
        self._accepting.settled(self)

    def closed(self) -> None:
        """See ``Socket``."""
        super().closed()
        self._accepting.over(self)
