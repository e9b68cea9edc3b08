"""The first messages of six protocols. They suffice to check that a server answers, and to learn its release.

Owns: one exchange per protocol over a connected socket that has a time-out. Must never: leave anything in the server.
There are two reasons why the module does not use the client libraries. They need asyncio, but the code that starts the
servers is synchronous (and may itself run inside an event loop). They also reconnect silently where we need the error.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import struct
from collections.abc import Callable

#: ``(connection) -> version``. The version is "" if the protocol does not report it. Raises ``NotReadyError`` or
#: ``OSError`` if the server is not ready yet.
Handshake = Callable[[socket.socket], str]

#: Limit of an answer's size. The first answers of these protocols are far shorter: a few hundred bytes for NATS's INFO,
#: RabbitMQ's properties, Centrifuge's reply to a connect and Kafka's metadata without topics, and a few kilobytes for
#: Redis's INFO.
ANSWER_BYTES_MAX = 65_536


class NotReadyError(Exception):
    """Raised if the server answers, but cannot serve clients yet."""


def amqp(connection: socket.socket) -> str:
    """Send the protocol header of AMQP 0-9-1 (section 4.2.2), and wait for the method connection.start (10, 10)."""
    connection.sendall(b"AMQP\x00\x00\x09\x01")
    kind, _channel, size = struct.unpack(">BHI", _exactly(connection, 7))
    payload = _exactly(connection, size)
    if kind != 1 or payload[:4] != b"\x00\x0a\x00\x0a":
        raise NotReadyError(f"no connection.start: {payload[:32]!r}")
    # server-properties is a table. An entry has a short name, a letter for the type, and a value. The type S is a
    # string that follows its length (four bytes).
    version = re.search(rb"\x07versionS\x00\x00\x00(.)", payload, re.DOTALL)
    return payload[version.end() : version.end() + version[1][0]].decode("ascii", "replace") if version else ""


def kafka(connection: socket.socket) -> str:
    """Ask for metadata (key 3, version 4) without topics. The answer lists brokers, and is empty until the broker has
    joined its cluster."""
    request = struct.pack(">hhih", 3, 4, 1, -1) + struct.pack(">i?", 0, False)
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    _correlation, _throttle_ms, brokers = struct.unpack_from(">iii", _exactly(connection, size))
    if brokers < 1:
        raise NotReadyError("the broker has not joined its cluster yet")
    return ""


def nats(connection: socket.socket) -> str:
    """Read INFO, which the server sends first, without a request. Then send CONNECT and PING. PONG shows that the
    server has accepted CONNECT."""
    information = _line(connection)
    if not information.startswith(b"INFO "):
        raise NotReadyError(f"no INFO: {information[:32]!r}")
    connection.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n')
    answer = _line(connection)
    if answer != b"PONG":
        raise NotReadyError(f"no PONG: {answer[:32]!r}")
    return str(json.loads(information[5:])["version"])


def redis(connection: socket.socket) -> str:
    """Send PING as an inline command (Redis answers with an error while it is loading), then ask for the server section
    of INFO."""
    connection.sendall(b"PING\r\n")
    answer = _line(connection)
    if answer != b"+PONG":
        raise NotReadyError(f"no PONG: {answer[:64]!r}")
    connection.sendall(b"INFO server\r\n")
    length = int(_line(connection)[1:])
    version = re.search(rb"redis_version:(\S+)", _exactly(connection, length))
    return version[1].decode("ascii", "replace") if version else ""


def mqtt(connection: socket.socket) -> str:
    """Send CONNECT of MQTT 3.1.1 with a clean session and no client name, expect CONNACK with code 0 (sections 3.1 and
    3.2), and send DISCONNECT."""
    connection.sendall(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x0a\x00\x00")
    answer = _exactly(connection, 4)
    if answer != b"\x20\x02\x00\x00":
        raise NotReadyError(f"no accepting CONNACK: {answer!r}")
    connection.sendall(b"\xe0\x00")
    return ""


def centrifuge(connection: socket.socket) -> str:
    """Use Centrifuge's JSON protocol over WebSocket (RFC 6455, sections 1.3 and 5.2): upgrade the connection, then send
    the command `connect`. The reply has the version that the program reports for itself."""
    connection.sendall(
        b"GET /connection/websocket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + base64.b64encode(os.urandom(16)) + b"\r\n\r\n"
    )
    answer = _line(connection)
    if not answer.startswith(b"HTTP/1.1 101 "):
        raise NotReadyError(f"no upgrade: {answer[:64]!r}")
    while _line(connection):
        pass
    command = b'{"id":1,"connect":{}}'
    # The command is one complete text frame with a mask of zeros. It has fewer than 126 bytes, so its length fits into
    # one byte.
    connection.sendall(bytes([0x81, 0x80 | len(command)]) + bytes(4) + command)
    kind, size = _exactly(connection, 2)
    if size == 126:
        (size,) = struct.unpack(">H", _exactly(connection, 2))
    reply = _exactly(connection, size)
    if kind != 0x81 or not reply.startswith(b'{"id":1,"connect":'):
        raise NotReadyError(f"no reply to a connect: {reply[:64]!r}")
    return str(json.loads(reply)["connect"].get("version", "")).removeprefix("v")


def _exactly(connection: socket.socket, size: int) -> bytes:
    if not 0 <= size <= ANSWER_BYTES_MAX:
        raise NotReadyError(f"an answer of {size} bytes is not valid in this protocol")
    answer = b""
    while len(answer) < size:
        part = connection.recv(size - len(answer))
        if not part:
            raise NotReadyError("the connection was closed in the middle of an answer")
        answer += part
    return answer


def _line(connection: socket.socket) -> bytes:
    # Reading byte by byte does not consume the data after the line. It is slow, but there are only a few lines.
    line = b""
    while not line.endswith(b"\r\n"):
        if len(line) >= ANSWER_BYTES_MAX:
            raise NotReadyError("a line without an end is not valid in this protocol")
        line += _exactly(connection, 1)
    return line[:-2]
