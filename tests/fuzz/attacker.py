"""The process that attacks: opens connections, sends the attacks that ``malformed`` draws, and sorts the answers.

    python -m tests.fuzz.attacker URL COUNT SEED

With a wss:// URL it sends everything over TLS, and also attacks TLS itself. SSL_CERT_FILE verifies the certificate.

Owns: its connections, and their number. Must never: judge an endpoint by more than its answers. It prints one line of
JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import cast
from urllib.parse import urlsplit

import orjson
import uvloop

from tests.broker.running import HANDSHAKE

from . import malformed
from .malformed import CUT, Attack

#: Simultaneous connections; more would only wait in the endpoint's backlog.
CONNECTIONS = 64
#: Within this many seconds an endpoint cuts a peer that does not do its part (5 s), even on a busy machine.
ANSWER_S = 30.0
#: An endpoint cuts a handshake that takes too long, as it may on a busy machine.
CONNECT_TRIES = 5
#: Connections that dribble their handshake during the other attacks; the endpoint cuts each after 5 s.
DRIBBLES, DRIBBLE_S = 20, 0.25
#: Reset a connection and do not close it, since closing would block its port for a minute.
_RESET = struct.pack("ii", 1, 0)
#: The most surprising answers to report.
SURPRISES_MAX = 20


class Connection(asyncio.Protocol):
    """One connection, and all data that it received."""

    def __init__(self, then: bytes, until: Callable[[bytearray], bool]) -> None:
        self._then, self._until = then, until
        self.received = bytearray()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Prepare the connection."""
        self.transport = cast(asyncio.Transport, transport)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    def data_received(self, data: bytes) -> None:
        """Take a piece of the answer."""
        self.received += data
        if self._then and b"\r\n\r\n" in self.received:
            self.send(self._then)
            self._then = b""
        if self._until(self.received):
            self.transport.abort()

    async def begun(self) -> None:
        """Wait until it can send."""

    @property
    def cut(self) -> bool:
        """Return whether it ended in the wrong way. TCP does not show this."""
        return False

    def send(self, data: bytes) -> None:
        """Send some bytes."""
        self.transport.write(data)

    def end(self, past: bytes = b"") -> None:
        """End this side. ``past``: bytes to send after that."""
        assert not past
        self.end_tcp()

    def end_tcp(self) -> None:
        """End this side of TCP, without TLS's end."""
        with contextlib.suppress(OSError):  # it was cut already
            self.transport.write_eof()

    def eof_received(self) -> bool:
        """Cut the connection after the endpoint's last data."""
        self.transport.abort()
        return False

    def connection_lost(self, _: Exception | None) -> None:
        """Note that it is gone."""
        if not self.over.done():
            self.over.set_result(None)


class TlsConnection(Connection):
    """A connection over TLS, on bytes: the attack decides what it sends past TLS, and how each direction ends."""

    def __init__(
        self, then: bytes, until: Callable[[bytearray], bool], context: ssl.SSLContext, session: ssl.SSLSession | None
    ) -> None:
        super().__init__(then, until)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1", session=session)
        self._shaken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._notified = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        super().connection_made(transport)
        self._step()

    def data_received(self, data: bytes) -> None:
        """Take some records."""
        self._incoming.write(data)
        self._step()

    def _step(self) -> None:
        try:
            if not self._shaken.done():
                self.tls.do_handshake()
                self._shaken.set_result(None)
            while data := self.tls.read(1 << 16):
                super().data_received(data)
            self._notified = True
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLZeroReturnError:
            self._notified = True
        except ssl.SSLError:
            pass  # an alert, or nonsense: it is over, and `cut` says in which way
        self.transport.abort()

    def _flush(self) -> None:
        if data := self._outgoing.read():
            self.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        """Note that it is gone."""
        if not self._shaken.done():
            self._shaken.set_exception(error or ConnectionResetError("cut in the TLS handshake"))
            self._shaken.exception()  # retrieved, since nobody may be waiting any more
        super().connection_lost(error)

    async def begun(self) -> None:
        """Wait for the end of the handshake."""
        await self._shaken

    @property
    def cut(self) -> bool:
        """Return whether the endpoint's side ended without close_notify."""
        return not self._notified

    def send(self, data: bytes) -> None:
        """Send the bytes encrypted."""
        self.tls.write(data)
        self._flush()

    def end(self, past: bytes = b"") -> None:
        """Send close_notify, and then the bytes that should no longer come."""
        with contextlib.suppress(ssl.SSLError):  # the endpoint's own is not there yet
            self.tls.unwrap()
        self._flush()
        if past:
            self.transport.write(past)


#: An answer to a correct part before the malformed one.
_EXPECTED = "as it has to be"


def answers(received: bytes) -> list[str]:
    """Return the answers in words: an HTTP status each, ``close`` with its code, or a reply's error."""
    found = []
    while received.startswith(b"HTTP/1.1 "):
        head, _, received = received.partition(b"\r\n\r\n")
        status = head[9:12].decode()
        if status != "101":
            found.append(f"HTTP {status}")
            if (at := received.find(b"HTTP/1.1 ")) >= 0:  # a second answer, though only one is allowed
                received = received[at:]
            else:
                return found
    while len(received) >= 2:
        first, size, at = received[0], received[1], 2
        if size > 125:
            wide = 2 if size == 126 else 8
            size, at = int.from_bytes(received[2 : 2 + wide], "big"), 2 + wide
        payload, received = received[at : at + size], received[at + size :]
        if first == malformed.CLOSE:
            found.append(f"close {int.from_bytes(payload[:2], 'big')}")
        elif first in (malformed.PING, malformed.PONG):  # the endpoint pings each connection when it is due
            found.append(_EXPECTED)
        elif first == malformed.TEXT:
            for line in payload.split(b"\n"):  # a single line if it does not speak in lines
                reply = orjson.loads(line)
                found.append(str(reply.get("error") or reply.get("result") or "a notification"))
        elif first == malformed.BINARY:
            found.append(_EXPECTED)  # the challenge of the endpoints' own handshake
        else:
            found.append(f"frame {first:#x}")
    return found


def _of_tls(received: bytes | bytearray) -> list[str]:
    """Return what is no TLS. An endpoint answers bare bytes with alerts, or the beginning of a handshake."""
    return [] if received[:1] in (b"", b"\x15", b"\x16") else [f"something that is no TLS: {bytes(received[:20])!r}"]


def surprise(attack: Attack, found: list[str]) -> str:
    """Return the fault in the answers; empty: they are right."""
    rest = [answer for answer in found if answer != _EXPECTED]
    if attack.each:
        if rest[-1:] != ["bad_command"]:
            return f"did not end with the answer to the last command: {rest[-3:]}"
        rest = rest[:-1]
        if len(rest) != attack.commands:
            return f"{len(rest)} answers to {attack.commands} commands"
    elif not rest:
        return "" if CUT in attack.answers else "no answer"
    elif len(rest) > 1:
        return f"{len(rest)} answers to one: {rest[:3]}"
    wrong = [answer for answer in rest if answer not in attack.answers]
    return f"answered {wrong[0]}" if wrong else ""


def _never(_: bytearray) -> bool:
    return False


#: The conditions that end a connection, by its attack's ending; else the endpoint ends it.
_ENDS: dict[str, Callable[[bytearray], bool]] = {
    "last": lambda received: malformed.LAST in received[-200:],
    "close": lambda received: any(answer.startswith("close") for answer in answers(bytes(received))),
}


class Attacker:
    """Sends attacks. ``count``: malformed things to send."""

    def __init__(self, url: str, count: int, seed: int) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._host, self._port = parts.hostname, parts.port
        # Both versions of TLS. It resumes a session now and then, as clients do.
        self._contexts: list[ssl.SSLContext] = []
        if parts.scheme == "wss":
            self._contexts = [ssl.create_default_context() for _ in range(2)]
            self._contexts[1].maximum_version = ssl.TLSVersion.TLSv1_2
        self._sessions: dict[ssl.SSLContext, ssl.SSLSession | None] = {}
        self._left = count
        self._random = random.Random(seed)
        self.kinds: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.surprises: list[str] = []
        self.surprised = 0
        self.connections = 0

    async def run(self) -> None:
        """Send everything."""
        whole = HANDSHAKE.format(path="/").encode()
        kinds = [("dribbled handshake", whole, False)]
        if self._contexts:
            kinds.append(("dribbled TLS handshake", malformed.CLIENT_HELLO, True))
        dribbles = [asyncio.create_task(self._dribble(*kind)) for kind in kinds for _ in range(DRIBBLES)]
        self._left -= len(dribbles)
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(self._work())
        await asyncio.gather(*dribbles)

    async def _work(self) -> None:
        while self._left > 0:
            attack = malformed.draw(self._random, bool(self._contexts))
            self._left -= attack.commands
            await self._one(attack)

    async def _one(self, attack: Attack) -> None:
        until = _ENDS.get(attack.ending, _never)
        connection = await self._connect(attack.then, until, bare=attack.bare)
        transport = connection.transport
        try:
            connection.send(attack.data)
            if attack.ending == "reset":
                # A turn of the loop sends something.
                await asyncio.sleep(0)
            else:
                if attack.ending == "eof":
                    connection.end(attack.past)
                elif attack.ending == "fin":
                    transport.write(attack.past)
                    connection.end_tcp()
                async with asyncio.timeout(ANSWER_S):
                    await connection.over
        except TimeoutError:
            self._tell(attack, f"not ended within {ANSWER_S:g} s")
        finally:
            transport.abort()
        found = _of_tls(connection.received) if attack.bare else answers(bytes(connection.received))
        wrong = "" if attack.ending == "reset" else surprise(attack, found)
        if not wrong and found and attack.ending in ("eof", "wait") and not attack.bare and connection.cut:
            wrong = "ended without close_notify"
        if wrong:
            self._tell(attack, wrong)
        self.kinds[attack.kind] += attack.commands
        counted = [answer for answer in found if answer != _EXPECTED] or [CUT]
        self.answers.update(counted[: attack.commands] if attack.each else counted)

    def _tell(self, attack: Attack, wrong: str) -> None:
        self.surprised += 1
        if len(self.surprises) < SURPRISES_MAX:
            self.surprises.append(f"{attack.kind}: {wrong}: {attack.data[-300:]!r}")

    async def _connect(self, then: bytes, until: Callable[[bytearray], bool], *, bare: bool = False) -> Connection:
        self.connections += 1
        make: Callable[[], Connection]
        if self._contexts and not bare:
            context = self._random.choice(self._contexts)
            session = self._random.choice((self._sessions.get(context), None))
            make = partial(TlsConnection, then, until, context, session)
        else:
            make = partial(Connection, then, until)
        loop = asyncio.get_running_loop()
        for tries_left in reversed(range(CONNECT_TRIES)):
            try:
                async with asyncio.timeout(ANSWER_S):
                    _, connection = await loop.create_connection(make, self._host, self._port)
                    await connection.begun()
                break
            except ConnectionResetError:
                if not tries_left:
                    raise
        if isinstance(connection, TlsConnection):
            self._sessions[connection.tls.context] = connection.tls.session
        return connection

    async def _dribble(self, kind: str, whole: bytes, bare: bool) -> None:
        """Send a handshake byte by byte, too slowly to end in time."""
        connection = await self._connect(b"", _never, bare=bare)
        began_s = time.monotonic()
        for byte in whole:
            if connection.over.done() or time.monotonic() - began_s > ANSWER_S:
                break
            connection.send(bytes([byte]))
            await asyncio.wait((connection.over,), timeout=DRIBBLE_S)
        attack = Attack(kind, 1, b"", frozenset({CUT}))
        if not connection.over.done():
            self._tell(attack, "not cut")
        connection.transport.abort()
        self.kinds[attack.kind] += 1
        self.answers.update(answers(bytes(connection.received)) or [CUT])


def main() -> None:
    """Run the command."""
    url, count, seed = sys.argv[1:]
    attacker = Attacker(url, int(count), int(seed))
    began_s = time.monotonic()
    uvloop.run(attacker.run())
    told = {
        "seconds": time.monotonic() - began_s,
        "connections": attacker.connections,
        "kinds": dict(attacker.kinds),
        "answers": dict(attacker.answers),
        "surprised": attacker.surprised,
        "surprises": attacker.surprises,
    }
    print(orjson.dumps(told).decode(), flush=True)


if __name__ == "__main__":
    main()
