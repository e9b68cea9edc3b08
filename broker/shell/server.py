"""Assembles one endpoint from its core, driver, store and sockets, starts it, and ends it.

Owns: the listening sockets, and the order in which things start and end. Must never: handle an event.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.sockets import LINGER_S

from ..access.admission import Access
from ..core.bounds.steering import BUSY_TARGET
from ..core.clients.leaving import LEAVE_S
from ..core.cluster.slots import SlotState
from ..core.connections.large import Outcome
from ..core.effects import Forget, Gone, Joined, Knows, Left, Read, SlotsTransferred, Stop
from ..core.limits import PATIENCE, SIZES, Limits, Patience, Sizes
from ..core.model import NO_SETTINGS, Endpoint, Settings
from ..core.router import Router
from ..store.base import Store
from ..web import operating
from ..web.pages import Pages
from . import machine
from .accepting import Accepting
from .clients import Clients, Terms
from .driver import Driver
from .logs import cut
from .peer_socket import Peers
from .reading import Reader
from .status import Status
from .status_table import State, StatusEntry
from .tls import Certificate

log = logging.getLogger("ingeborg.endpoint")

#: How long an orderly shutdown waits for clients that have not answered the close, in seconds.
CLOSE_S = 2.0

#: How long a shutdown waits beyond the core's own time limits, in seconds, in case the core does not run.
END_S = 5.0

#: Time limit for a TLS handshake, in seconds.
TLS_S = 5.0

#: Maximum number of connections that can wait to be accepted: enough for a reconnect storm.
BACKLOG = 4096


class EndpointServer:
    """One endpoint process.

    All peers share the ``secret``. ``alone_at_url`` says that no other endpoint can be at the URL of ``me``. ``states``
    are states of slots in addition to the core's own. ``entry`` is this process's entry in the supervisor's table.
    ``on_fatal`` gets the reason why the process has to end: another endpoint has its name, or the store is lost. If the
    core fails, ``on_broken`` ends the process immediately.
    """

    def __init__(
        self,
        me: Endpoint,
        store: Store,
        *,
        secret: bytes,
        store_name: str,
        routing: str = "home",
        dedup_ttl_s: float = 60.0,
        grace_s: float = 60.0,
        presence: Sequence[str] = (),
        bounds: str = "",
        busy_target: float = BUSY_TARGET,
        limits: Limits | None = None,
        sizes: Sizes = SIZES,
        patience: Patience = PATIENCE,
        frame_bytes_max: int = 16 << 20,
        ping_s: float = 25.0,
        compression: bool = False,
        access: Access | None = None,
        certificate: Certificate | None = None,
        drain_s: float = 5.0,
        settings: Settings = NO_SETTINGS,
        alone_at_url: bool = True,
        states: Sequence[SlotState] = (),
        entry: StatusEntry | None = None,
        on_fatal: Callable[[str], None] | None = None,
        on_broken: Callable[[], None] | None = None,
    ) -> None:
        self.router = Router(
            me,
            time.monotonic(),
            routing=routing,
            dedup_ttl_s=dedup_ttl_s,
            grace_s=grace_s,
            presence=presence,
            bounds=bounds,
            busy_target=busy_target,
            limits=limits,
            sizes=sizes,
            patience=patience,
            shape=store.shape,
            figures=self._figures,
            resident=machine.resident_bytes,
            alone_at_url=alone_at_url,
            ping_s=ping_s,
            unix_s=time.time(),
            settings=settings,
            states=states,
        )
        if log.isEnabledFor(logging.DEBUG):
            self.router.outgoing.replies.on_refusal = _log_refusal
        self.store = store
        self.ready = asyncio.Event()
        self.driver = driver = Driver(self.router, store, self._each_tick, on_broken)
        self.reader = Reader(self.router.read_wanted, self._frame_read)
        self.status = Status(self.router, store, store_name, routing, self.reader, driver.loop_lag)
        self.peers = Peers(driver, secret)
        access = access or Access()
        access.revoking = self.router.clients.revoking
        self.status.callback = self._callback = access.callback
        self.status.wants_tokens = access.wants_token
        terms = Terms(frame_bytes_max, self.router.base.limits.large_bytes, compression, dedup_ttl_s)
        self.clients = Clients(driver, self.peers, Pages(self.status, access), access, self.status, terms)
        driver.carry_out(Read, self.reader.read)
        driver.carry_out(Forget, lambda act: self.reader.forget(act.number))
        driver.carry_out(Gone, lambda act: log.info("%s: %s is gone", me.name, act.endpoint.name))
        driver.carry_out(Joined, self._serves)
        driver.carry_out(Knows, self._serves)
        driver.carry_out(Stop, self._stop)
        driver.carry_out(SlotsTransferred, self._slots_transferred)
        driver.carry_out(Left, self._left)
        self._certificate = certificate
        self._drain_s = drain_s
        self._transfer_s = patience.transfer_s
        self._on_fatal = on_fatal
        self._reasons: list[str] = []  # the reasons for not being ready that were logged last
        self._gone = asyncio.Event()
        self._own: list[Accepting] = []  # at ports that no other process shares
        self._entry = entry
        self._ending = False
        self._shared: Accepting | None = None  # at the shared port

    # Start and end

    async def start(
        self, sock: socket.socket, internal: socket.socket | None = None, *, shared: bool = False, opened: bool = False
    ) -> None:
        """Open the store, unless it has been ``opened``, and accept on the listening socket. ``ready`` is set when the
        other endpoints have let this endpoint in.

        ``internal`` is a socket for the other endpoints and ``/metrics``. If it is given, no other address serves the
        endpoints and ``/metrics``. ``shared`` says that other processes accept on the listening socket as well. This
        process then accepts only while it is ready.

        Raises ``StoreError`` if the store is unusable.
        """
        if not opened:
            await self.store.open()
        tls: dict[str, Any] = {}
        if self._certificate is not None:
            tls = {"ssl": self._certificate.context, "ssl_handshake_timeout": TLS_S, "ssl_shutdown_timeout": LINGER_S}
        self.status.internal = internal is not None
        counts = self.router.counters.counts
        if shared:
            assert self._entry is not None, "a process that shares a port has an entry in the status table"
            self._shared = Accepting(sock, self.clients, tls, counts, entry=self._entry)
        else:
            self._own.append(Accepting(sock, self.clients, tls, counts))
        if internal is not None:
            self._own.append(Accepting(internal, self.clients, tls, counts, internal=True))
        for accepting in self._own:
            accepting.follow(True)
        self.driver.start()

    async def stop(self) -> None:
        """Shut down cleanly: hand over all homes, disconnect the clients, finish the work under way, and close
        everything."""
        self._ending = True
        self._show(time.monotonic())
        if self._shared is not None:  # other processes accept the next clients, so none is refused
            await self._shared.end()
        self.status.leaving = True
        self.router.leave(time.monotonic(), self._drain_s)
        self.driver.turn()
        await self.clients.turn_away()
        try:
            async with asyncio.timeout(self._transfer_s + self._drain_s + LEAVE_S + END_S):
                await self._gone.wait()
        except TimeoutError:
            log.error("the endpoint did not finish in time; it loses the work under way")
        for accepting in self._own:
            accepting.close()
        await self.peers.close()
        await self.reader.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.clients.gone()
        except TimeoutError:
            log.warning("%d clients did not answer the close", len(self.clients.sockets))
        self.clients.cut()
        if self._callback is not None:
            await self._callback.close()
        await self.driver.stop()
        await self.store.close()

    def _serves(self, act: Joined | Knows | None = None) -> None:
        status = self.status
        if self.router.members.joined and not status.knows_nothing_of_tokens and not status.awaits_position:
            status.has_begun = True
            self._show(time.monotonic())  # first, because clients connect when ``ready`` is set
            self.ready.set()

    def _slots_transferred(self, act: SlotsTransferred) -> None:
        if not act.in_time:
            log.warning("could not transfer all slots to the other endpoints within %.0f s", self._transfer_s)

    def _left(self, act: Left) -> None:
        if not act.in_time:
            log.warning("could not finish everything within %.0f s after the last client left", LEAVE_S)
        self._gone.set()

    def _stop(self, act: Stop) -> None:
        if not self.status.leaving and self._on_fatal is not None:
            self._on_fatal(act.why)
            self._on_fatal = None

    # Around the core

    def _figures(self) -> dict[str, Any]:
        try:
            return operating.figures(self.status)
        except Exception:
            log.exception("cannot read the endpoint's figures")
            raise

    def _frame_read(self, number: int, outcome: Outcome | None) -> None:
        try:
            self.router.read(number, outcome, time.monotonic())
        except Exception:
            self.driver.failed("a large frame")
        self.driver.turn()

    def _each_tick(self, now: float) -> None:
        if self._certificate is not None:
            self._certificate.refresh(now)
        if not self.ready.is_set():
            self._serves()
        if not self.status.leaving:
            self._tell_readiness()
        self._show(now)

    def _show(self, now: float) -> None:
        """Show this endpoint's state to the supervisor and to the processes at its port. Accept at a shared port if
        ready."""
        if self._entry is None:
            return
        ready = not self._ending and not self.status.not_ready()
        self._entry.show(State.LEAVING if self._ending else State.ACCEPTING if ready else State.WAITING, now)
        if self._shared is not None:
            self._shared.follow(ready)

    def _tell_readiness(self) -> None:
        """Log the answer of ``/readyz`` when it changes."""
        reasons = self.status.not_ready()
        if reasons != self._reasons and self.ready.is_set():
            self._reasons = reasons
            if reasons:
                log.warning("%s: not ready: %s", self.router.me.name, "; ".join(reasons))
            else:
                log.info("%s: ready", self.router.me.name)


def _log_refusal(connection: int, request: Any, command: str, error: ProtocolError) -> None:
    log.debug(
        "refused: %s",
        error.info,
        extra={"connection": connection, "request": cut(request), "command": command, "code": error.code},
    )
