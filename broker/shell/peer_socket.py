"""Connections between endpoints: who dials, how both sides prove that they know the shared secret, and the sockets
under the link.

Owns: the sockets of the links. Must never: look into a frame after the handshake (``core.links`` does).

A link's connection is a WebSocket at the reserved path ``/_peer``, at the internal port if there is one, else at the
clients' port. The endpoint with the smaller incarnation dials. After a second without a link, the other endpoint dials.
The handshake follows in MessagePack:

1. acceptor: ``["challenge", VERSION, nonce, capabilities, settings]``
2. dialler: ``["hello", VERSION, nonce, name, incarnation, url, capabilities, settings, proof]``
3. acceptor: ``["welcome", name, incarnation, url, proof]``

A proof is an HMAC-SHA256 with the shared secret as its key. It covers the prover's role, both nonces, the prover's
name, incarnation and URL, and both sides' capabilities and settings. So nobody can replay one side's proof as the other
side's proof.

``capabilities`` lists the features that a peer has to support in addition to VERSION (``core.links.capabilities``).
``settings`` is ``[grace time in seconds, replication, history]``.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import math
import secrets
import ssl
import time
from contextlib import suppress
from typing import Any

import ormsgpack
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidURI
from websockets.http11 import Request, Response
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from ingeborg.protocol.errors import GOING_AWAY, POLICY, PROTOCOL_VIOLATION
from ingeborg.protocol.frames import binary_frame, masked_binary_frame
from ingeborg.protocol.sockets import Socket, as_protocol, library_log, next_mask

from ..core.cluster.mesh import REDIAL_MAX_S
from ..core.effects import Dial, DropLink
from ..core.links.capabilities import CAPABILITIES, CAPABILITIES_MAX, unknown
from ..core.model import HISTORIES, Endpoint, Introduction, Settings
from ..core.settings import words
from .driver import Driver
from .tls import Trust

log = logging.getLogger("ingeborg.peers")

#: The version of the handshake, the links and the requests. Endpoints with different versions do not form links.
VERSION = 8

#: The path that clients cannot use.
PEER_PATH = "/_peer"

#: Maximum number of bytes of a link's frame. A frame holds at most one batch of items, and an item holds at most one
#: payload or one slice of a command.
FRAME_BYTES_MAX = 256 << 20

#: Maximum number of bytes of a handshake's frame. An unauthenticated peer could be any program, and a hello has only a
#: few hundred bytes.
HANDSHAKE_BYTES_MAX = 4096

#: Bytes handled from a link in one pass of the loop, up to the end of a frame: a few hundred messages, or the `listen`
#: of a thousand clients. Without this limit, a pass would handle four times as many bytes, and all other connections
#: would wait.
LINK_BYTES_AT_ONCE = 64 << 10

#: Minimum interval in seconds between two log lines with the same reason for a missing link, and maximum number of
#: reasons to remember.
COMPLAINT_S = 30.0
COMPLAINTS_MAX = 1_000

#: Maximum number of characters of an HTTP answer that the log shows as the reason for a missing link.
ANSWER_CHARS_MAX = 200

#: Time limit for a TCP connection to a peer, in seconds.
DIAL_TIMEOUT_S = 2.0


#: One side's capabilities and settings, in the form in which it sends them.
Told = tuple[list[str], list[Any]]


def proof(
    secret: bytes, role: bytes, nonces: tuple[bytes, bytes], endpoint: Endpoint, told: tuple[Told, Told]
) -> bytes:
    """Compute the proof that the sender knows the secret and is ``endpoint``, with this role in this handshake.
    ``told`` has the capabilities and settings of the acceptor, and then those of the dialler."""
    fields = ormsgpack.packb([role, *nonces, endpoint.name, endpoint.incarnation, endpoint.url, *told])
    return hmac.new(secret, fields, hashlib.sha256).digest()


class PeerSocket(Socket):
    """One connection of a link, on either side."""

    def __init__(self, peers: Peers, ws: ClientProtocol | ServerProtocol, dialled: Endpoint | None) -> None:
        super().__init__(ws)
        self.quantum_bytes = LINK_BYTES_AT_ONCE
        self._peers = peers
        self._dialled = dialled  # the endpoint that we dialled, or None if the peer dialled us
        self._nonce = secrets.token_bytes(16)
        self.endpoint: Endpoint | None = None  # the peer, once it has proved its identity
        self.introduced = asyncio.Event()  # set when the peer has proved its identity, or this connection is gone

    def connection_made(self, transport: Any) -> None:
        """Request the upgrade to a WebSocket, since we dialled."""
        super().connection_made(transport)
        assert isinstance(self.ws, ClientProtocol)
        self.ws.send_request(self.ws.connect())
        self.send_protocol()

    def adopt(self, transport: Any) -> None:
        """Take over the transport of a connection that the peer dialled and that was upgraded at the reserved path."""
        super().connection_made(transport)
        transport.set_protocol(self)
        self._say(["challenge", VERSION, self._nonce, *self._peers.told])

    def handshake(self, event: Request | Response) -> None:
        """Log a refusal. The library's protocol object checks the acceptor's answer to our request, and closes the
        connection if it rejects the answer."""
        if self.ws.state is not OPEN and isinstance(event, Response):
            said = (event.body or b"").decode(errors="replace").strip()[:ANSWER_CHARS_MAX]
            self._complain(f"it answers {event.status_code}: {said!r}")

    def message(self, data: bytes) -> None:
        """Handle a frame of the link, or of the handshake before it. A text frame is an error."""
        if self._text:
            self.fail(PROTOCOL_VIOLATION)
        elif self.endpoint is not None:
            self._peers.frame(self, data)
        else:
            try:
                self._introduce(*ormsgpack.unpackb(data))
            except (ormsgpack.MsgpackDecodeError, TypeError, ValueError):
                self._refuse("a handshake that is not of this protocol")

    def _introduce(self, kind: str, *fields: Any) -> None:
        secret = self._peers.secret
        me = self._peers.me
        if kind == "challenge" and self._dialled is not None:
            version, theirs, *said = fields
            if version != VERSION:
                self._refuse(f"it speaks version {version} of the peer protocol, not {VERSION}")
                return
            self._nonces, self._told = (theirs, self._nonce), (_told(said), self._peers.told)
            if self._refuses(self._told[0]):
                return
            mine = proof(secret, b"dialler", self._nonces, me, self._told)
            self._say(["hello", VERSION, self._nonce, me.name, me.incarnation, me.url, *self._peers.told, mine])
        elif kind == "hello" and self._dialled is None:
            version, theirs, name, incarnation, url, *said, given = fields
            endpoint = Endpoint(name, incarnation, url, 0)
            self._nonces, self._told = (self._nonce, theirs), (self._peers.told, _told(said))
            if not hmac.compare_digest(given, proof(secret, b"dialler", self._nonces, endpoint, self._told)):
                self._refuse("it does not know the shared secret: give all endpoints the same --peer-secret-file")
                return
            if self._refuses(self._told[1]):
                return
            mine = proof(secret, b"acceptor", self._nonces, me, self._told)
            self._say(["welcome", me.name, me.incarnation, me.url, mine])
            # The hello was the peer's last frame of the handshake. The link's frames follow.
            self.ws = ServerProtocol(state=OPEN, max_size=FRAME_BYTES_MAX, logger=library_log)
            self._proved(endpoint, self._told[1])
        elif kind == "welcome" and self._dialled is not None:
            name, incarnation, url, given = fields
            endpoint = Endpoint(name, incarnation, url, 0)
            if not hmac.compare_digest(given, proof(secret, b"acceptor", self._nonces, endpoint, self._told)):
                self._refuse("it does not know the shared secret: give all endpoints the same --peer-secret-file")
            elif incarnation != self._dialled.incarnation:
                self._refuse("another endpoint answers at this address now")
            else:
                self._proved(endpoint, self._told[0])
        else:
            self._refuse("a handshake message out of order")

    def _refuses(self, theirs: Told) -> bool:
        """Return whether the peer needs a capability that this version does not know."""
        names = unknown(theirs[0])
        if names:
            self._refuse(f"it needs {', '.join(names)}, which this version does not know: start a version that does")
        return bool(names)

    def _proved(self, endpoint: Endpoint, theirs: Told) -> None:
        self.endpoint = endpoint
        self.introduced.set()
        self.settled()
        grace_s, replication, history = theirs[1]
        self._peers.up(self, endpoint, Introduction(float(grace_s), Settings(replication, history)))

    def _refuse(self, why: str) -> None:
        self._complain(why)
        self.close(POLICY)

    def _complain(self, why: str) -> None:
        self._peers.count_error("peer_handshake")
        peer = self.transport.get_extra_info("peername")
        whom = self._dialled.url if self._dialled is not None else str(peer[0] if peer else "a peer that has gone")
        self._peers.complain(whom, why)

    def _say(self, fields: list[Any]) -> None:
        self.send([ormsgpack.packb(fields)])

    def send(self, frames: list[bytes]) -> None:
        """Write frames of the link. The link keeps each frame until the peer confirms it, and limits the total size of
        these frames."""
        if self.ws.state is not OPEN:
            return
        if self._dialled is None:
            self.transport.write(b"".join([binary_frame(frame) for frame in frames]))
        else:
            self.transport.write(b"".join([masked_binary_frame(frame, next_mask()) for frame in frames]))

    def chunk_ends(self) -> None:
        """Schedule the end of the turn."""
        self._peers.turn()

    def rest_waits(self) -> None:
        """Handle the rest in the next passes of the loop. Reading pauses until then, so TCP holds the peer back."""
        if not self.transport.is_closing():
            self.transport.pause_reading()
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self.take_on()
        if self.waits:
            asyncio.get_running_loop().call_soon(self._go_on)
        elif not self.transport.is_closing():
            self.transport.resume_reading()

    def closed(self) -> None:
        """Report that the connection is gone. The link can continue over another connection."""
        self.introduced.set()
        if self.endpoint is not None:
            self._peers.down(self, self.endpoint)
        elif self._dialled is not None and self.ws.close_rcvd_then_sent and self.ws.close_code == POLICY.code:
            self._peers.complain(self._dialled.url, "it refused our handshake; its log says why (a different secret?)")


def _told(fields: list[Any]) -> Told:
    """Return the sender's capabilities and settings in a handshake. Raises ``ValueError`` if it is malformed."""
    names, settings = fields
    if type(names) is not list or len(names) > CAPABILITIES_MAX or not all(type(name) is str for name in names):
        raise ValueError("not capabilities")
    grace_s, replication, history = settings
    if (
        type(grace_s) not in (int, float)
        or not grace_s > 0
        or type(replication) is not bool
        or history not in HISTORIES
    ):
        raise ValueError("not settings")
    return names, settings


class Peers:
    """The connections that carry this endpoint's links, indexed by the peer's incarnation. All endpoints share the
    ``secret``."""

    def __init__(self, driver: Driver, secret: bytes) -> None:
        self.secret = secret
        self._introduction = introduction = driver.router.members.introduction
        self.told: Told = sorted(CAPABILITIES), [introduction.grace_s, *introduction.settings]
        self.me = driver.router.me
        self._driver = driver
        self._router = driver.router
        self.sockets: dict[str, PeerSocket] = {}
        self._dialling: set[asyncio.Task[None]] = set()
        self._trust: Trust | None = None
        self._complained: dict[tuple[str, str], float] = {}  # peer and reason -> when it was last logged
        driver.send_with(self._send)
        driver.carry_out(Dial, self._begin_to_dial)
        driver.carry_out(DropLink, lambda act: self._drop(act.incarnation))

    def turn(self) -> None:
        """Schedule the end of the turn, since data has arrived."""
        self._driver.turn()

    def count_error(self, code: str) -> None:
        """Count an error in a peer's connection, by its code."""
        self._router.counters.errors[code] += 1

    def complain(self, whom: str, why: str) -> None:
        """Log why a link is missing. Since the endpoint dials again every second, log the same reason only
        periodically."""
        now = time.monotonic()
        if now - self._complained.get((whom, why), -math.inf) < COMPLAINT_S:
            return
        if len(self._complained) >= COMPLAINTS_MAX:
            self._complained.clear()
        self._complained[whom, why] = now
        log.warning("no link with %s: %s", whom, why)

    def _begin_to_dial(self, act: Dial) -> None:
        task = asyncio.get_running_loop().create_task(self._dial(act.endpoint))
        self._dialling.add(task)
        task.add_done_callback(self._dialled)

    def _dialled(self, task: asyncio.Task[None]) -> None:
        self._dialling.discard(task)
        if not task.cancelled():
            task.result()  # a bug of ours reaches the loop now, and not when the task is collected

    async def _dial(self, endpoint: Endpoint) -> None:
        loop = asyncio.get_running_loop()
        try:
            uri = parse_uri(endpoint.url.rstrip("/") + PEER_PATH)
            ws = ClientProtocol(uri, max_size=FRAME_BYTES_MAX, logger=library_log)
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                _, peer = await loop.create_connection(
                    lambda: as_protocol(PeerSocket(self, ws, endpoint)),
                    uri.host,
                    uri.port,
                    ssl=self._trusted() if uri.secure else None,
                )
        except ssl.SSLError as error:
            self._router.counters.counts["dials_failed"] += 1
            self.complain(endpoint.url, f"its certificate or its TLS is not acceptable: {error}")
        except (OSError, TimeoutError, ValueError, InvalidURI) as error:
            # Peers refuse connections while they start or end. Membership decides whether a peer is dead.
            self._router.counters.counts["dials_failed"] += 1
            log.debug("cannot reach %s at %s: %s", endpoint.name, endpoint.url, error)
        else:
            # A busy peer takes a while to introduce itself. A second connection would only add work, and break the
            # first. But if the peer stays silent, this connection may have failed, and another may succeed.
            with suppress(TimeoutError):
                async with asyncio.timeout(REDIAL_MAX_S):
                    await peer.introduced.wait()
        if endpoint.incarnation not in self.sockets:
            self._router.dial_failed(endpoint.incarnation, time.monotonic())

    def _trusted(self) -> ssl.SSLContext:
        if self._trust is None:
            self._trust = Trust()  # takes 10 ms, and only an endpoint that dials over TLS needs it
        return self._trust.current()

    def up(self, socket: PeerSocket, endpoint: Endpoint, introduction: Introduction) -> None:
        """Adopt the authenticated connection, and abort any earlier connection of the same peer."""
        former = self.sockets.get(endpoint.incarnation)
        self.sockets[endpoint.incarnation] = socket
        if former is not None:
            former.transport.abort()
        log.info("%s: linked with %s at %s", self.me.name, endpoint.name, endpoint.url)
        self._compare(endpoint, introduction)
        socket.send([self._router.link_up(endpoint, time.monotonic(), introduction)])
        self.turn()

    def _compare(self, endpoint: Endpoint, theirs: Introduction) -> None:
        """Warn if the peer has other settings, because the operator's choice may then not be in effect."""
        mine, name, me = self._introduction, endpoint.name, self.me.name
        if theirs.grace_s != mine.grace_s:
            text = (
                "grace times differ: %s has %g s, %s has %g s; the lowest applies: give all endpoints the same --grace"
            )
            log.warning(text, me, mine.grace_s, name, theirs.grace_s)
        others = words(theirs.settings)
        for setting, own in words(mine.settings).items():
            if own != others[setting]:
                text = "setting %s differs: %s has %s, %s has %s; the weaker promise applies until all are restarted"
                log.warning(text, setting, me, own, name, others[setting])

    def frame(self, socket: PeerSocket, data: bytes) -> None:
        """Handle a frame of a peer's link."""
        assert socket.endpoint is not None
        incarnation = socket.endpoint.incarnation
        if self.sockets.get(incarnation) is not socket:
            return
        try:
            self._router.link_frame(incarnation, data, time.monotonic())
        except Exception:
            self._driver.failed("a peer's frame")
            self._drop(incarnation)

    def down(self, socket: PeerSocket, endpoint: Endpoint) -> None:
        """Remove a connection that is gone. If the link was using it, report the loss."""
        if self.sockets.get(endpoint.incarnation) is socket:
            del self.sockets[endpoint.incarnation]
            log.info("%s: the link to %s is down", self.me.name, endpoint.name)
            self._router.link_down(endpoint.incarnation, time.monotonic())
            self.turn()

    def _send(self, incarnation: str, frames: list[bytes]) -> None:
        """Write frames to the peer. If there is no connection, the link sends the frames again over the next
        connection."""
        socket = self.sockets.get(incarnation)
        if socket is not None:
            socket.send(frames)

    def _drop(self, incarnation: str) -> None:
        """Abort the connection to the peer. A new connection begins with a new handshake."""
        socket = self.sockets.get(incarnation)
        if socket is not None:
            socket.transport.abort()

    async def close(self) -> None:
        """Close all connections."""
        dialling = list(self._dialling)
        for task in dialling:
            task.cancel()
        await asyncio.gather(*dialling, return_exceptions=True)
        for socket in list(self.sockets.values()):
            socket.close(GOING_AWAY)
