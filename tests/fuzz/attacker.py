"""The process that attacks: opens connections, sends what ``malformed`` draws, and sorts what is answered.

    python -m tests.fuzz.attacker URL COUNT SEED

A URL of wss:// has all of it sent over TLS, and what breaks TLS itself. The certificate is verified by SSL_CERT_FILE.

Owns: its connections, and how many there are at once. Must never: judge an endpoint by more than its answers. It
prints one line of JSON.
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

#: At once; more would only wait in the endpoint's backlog.
CONNECTIONS = 64
#: Within this an endpoint has cut whoever does not do his part (5 s), on a busy machine.
ANSWER_S = 30.0
#: A handshake that takes longer than an endpoint allows is cut; on a machine that does much else it may.
CONNECT_TRIES = 5
#: Connections that dribble their handshake while the others do what they do; each is cut after 5 s.
DRIBBLES, DRIBBLE_S = 20, 0.25
#: Reset and not closed: a port would be of no use for a minute otherwise.
_RESET = struct.pack("ii", 1, 0)
#: Of ways that an endpoint's answers may surprise, so many are told.
SURPRISES_MAX = 20


class Connection(asyncio.Protocol):
    """One, and all that came of it."""

    def __init__(self, then: bytes, until: Callable[[bytearray], bool]) -> None:
        self._then, self._until = then, until
        self.received = bytearray()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is up."""
        self.transport = cast(asyncio.Transport, transport)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    def data_received(self, data: bytes) -> None:
        """A piece of the answer."""
        self.received += data
        if self._then and b"\r\n\r\n" in self.received:
            self.send(self._then)
            self._then = b""
        if self._until(self.received):
            self.transport.abort()

    async def begun(self) -> None:
        """Until something can be sent."""

    @property
    def cut(self) -> bool:
        """It ended, and not as it should have. Of TCP that cannot be told."""
        return False

    def send(self, data: bytes) -> None:
        """Some bytes."""
        self.transport.write(data)

    def end(self, past: bytes = b"") -> None:
        """Of this side. ``past``: what is still sent behind it."""
        assert not past
        self.end_tcp()

    def end_tcp(self) -> None:
        """Whatever TLS should say first."""
        with contextlib.suppress(OSError):  # it was cut already
            self.transport.write_eof()

    def eof_received(self) -> bool:
        """The endpoint has said all it had to."""
        self.transport.abort()
        return False

    def connection_lost(self, _: Exception | None) -> None:
        """It is gone."""
        if not self.over.done():
            self.over.set_result(None)


class TlsConnection(Connection):
    """The same over TLS, on bytes: what is sent past it, and how each direction ends, is the attack's to say."""

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
        """Some records."""
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
            pass  # an alert, or nonsense: it is over, and `cut` says how
        self.transport.abort()

    def _flush(self) -> None:
        if data := self._outgoing.read():
            self.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        """It is gone."""
        if not self._shaken.done():
            self._shaken.set_exception(error or ConnectionResetError("cut in the TLS handshake"))
            self._shaken.exception()  # seen: nobody may be waiting any more
        super().connection_lost(error)

    async def begun(self) -> None:
        """The handshake is done."""
        await self._shaken

    @property
    def cut(self) -> bool:
        """The endpoint's side ended without close_notify."""
        return not self._notified

    def send(self, data: bytes) -> None:
        """Encrypted."""
        self.tls.write(data)
        self._flush()

    def end(self, past: bytes = b"") -> None:
        """Close_notify; then what should not come any more."""
        with contextlib.suppress(ssl.SSLError):  # the endpoint's own is not there yet
            self.tls.unwrap()
        self._flush()
        if past:
            self.transport.write(past)


#: An answer to what was right before something was wrong.
_EXPECTED = "as it has to be"


def answers(received: bytes) -> list[str]:
    """What came, in words: an HTTP status each, ``close`` with its code, or a reply's error."""
    found = []
    while received.startswith(b"HTTP/1.1 "):
        head, _, received = received.partition(b"\r\n\r\n")
        status = head[9:12].decode()
        if status != "101":
            found.append(f"HTTP {status}")
            if (at := received.find(b"HTTP/1.1 ")) >= 0:  # a second answer, where there may be one at most
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
        elif first in (malformed.PING, malformed.PONG):  # the endpoint pings whoever is there when it is due
            found.append(_EXPECTED)
        elif first == malformed.TEXT:
            for line in payload.split(b"\n"):  # of one where it does not speak in lines
                reply = orjson.loads(line)
                found.append(str(reply.get("error") or reply.get("result") or "a notification"))
        elif first == malformed.BINARY:
            found.append(_EXPECTED)  # the challenge of the endpoints' own handshake
        else:
            found.append(f"frame {first:#x}")
    return found


def _of_tls(received: bytes | bytearray) -> list[str]:
    """Of an endpoint that speaks it and was not spoken to so: alerts, and the beginning of a handshake."""
    return [] if received[:1] in (b"", b"\x15", b"\x16") else [f"something that is no TLS: {bytes(received[:20])!r}"]


def surprise(attack: Attack, found: list[str]) -> str:
    """What is wrong with the answers; nothing: they are right."""
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


#: When a connection is done with, by its attack's ending; else when the endpoint ends it.
_ENDS: dict[str, Callable[[bytearray], bool]] = {
    "last": lambda received: malformed.LAST in received[-200:],
    "close": lambda received: any(answer.startswith("close") for answer in answers(bytes(received))),
}


class Attacker:
    """``count``: malformed things to send."""

    def __init__(self, url: str, count: int, seed: int) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._host, self._port = parts.hostname, parts.port
        # Both versions that there are; a session is taken up again now and then, as clients do.
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
        """All of it."""
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
                # A turn of the loop, so that something has been sent.
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
        """What comes byte by byte, and does not come to its end in time."""
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
    """The command."""
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
