"""Connects to a node: in plain text, or with TLS and a user if Riak's security is on.

Owns: the steps (connecting, StartTls, the TLS handshake, authentication), their time limits, and the messages about
wrong configuration. Must never: send anything except the StartTls request before TLS is established, continue in plain
text when TLS is required, or show a password.

A wrong configuration raises ``StoreMisconfigured``. ``OSError``, ``EOFError`` and ``WireError`` indicate problems of
the node that may be temporary.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from ..base import StoreMisconfigured
from . import riak_pb2 as pb
from . import wire

STEP_TIMEOUT_S: Final = 3.0
"""Time limit for each of three steps: connecting, StartTls and the handshake. Together, they normally take
milliseconds."""

AUTHENTICATION_TIMEOUT_S: Final = 15.0
"""Time limit of authentication. A node needs 0.7 s of a core to check a password, and checks those of several
connections one by one. If a password is wrong, the node waits another 5 s before it answers."""

SECURED_AT_ONCE: Final = 1
"""How many connections to one node are set up concurrently. Only one, because checking a password costs the node as
much as 700 requests, and a waiting request can also use a connection that becomes free."""

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True)
class Credentials:
    """How the driver identifies itself to Riak, and how it verifies the nodes. ``context`` verifies the nodes'
    certificates and host names, and holds the client's certificate if Riak requires one."""

    user: str
    password: bytes = field(repr=False)
    context: ssl.SSLContext


class Connecting(Protocol):
    """A way to connect."""

    timeout_s: float
    """The time limit for all steps together."""

    @property
    def at_once(self) -> int | None:
        """Return how many connections to one node may be set up concurrently, or ``None`` if there is no limit. There
        is a limit if a connection is expensive for the node."""

    async def open(self, host: str, port: int) -> Stream:
        """Return a connection that is ready for requests."""


class Plain:
    """Connects to nodes whose security is off."""

    at_once: int | None = None

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s

    async def open(self, host: str, port: int) -> Stream:
        async with asyncio.timeout(self.timeout_s):
            return await asyncio.open_connection(host, port)


class Secured:
    """Connects to nodes whose security is on. ``credentials`` is called for every new connection."""

    at_once: int | None = SECURED_AT_ONCE

    def __init__(
        self,
        credentials: Callable[[], Credentials],
        *,
        step_timeout_s: float = STEP_TIMEOUT_S,
        authentication_timeout_s: float = AUTHENTICATION_TIMEOUT_S,
    ) -> None:
        self.timeout_s = 3 * step_timeout_s + authentication_timeout_s
        self._credentials = credentials
        self._step_timeout_s = step_timeout_s
        self._authentication_timeout_s = authentication_timeout_s

    async def open(self, host: str, port: int) -> Stream:
        credentials = self._credentials()
        async with _step("connecting", self._step_timeout_s):
            sock = await _connected(host, port)
        try:
            async with _step("StartTls", self._step_timeout_s):
                await _start_tls(sock)
            async with _step("the TLS handshake", self._step_timeout_s):
                # The reader is created after StartTls. So bytes that arrived before the handshake cannot be mistaken
                # for bytes that arrived after it.
                reader, writer = await asyncio.open_connection(sock=sock, ssl=credentials.context, server_hostname=host)
        except BaseException:
            sock.close()
            raise
        try:
            async with _step("user and password", self._authentication_timeout_s):
                await _authenticate(reader, writer, credentials)
        except BaseException:
            writer.transport.abort()
            raise
        return reader, writer


@asynccontextmanager
async def _step(name: str, timeout_s: float) -> AsyncIterator[None]:
    """Run a step within its time limit, or raise ``TimeoutError`` with the name of the step. Translate TLS errors into
    messages for the operator."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        raise TimeoutError(f"{name}: no answer within {timeout_s:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise StoreMisconfigured(
            f"the node's certificate is invalid: {error.verify_message.rstrip('.')}. riak-ca-file (or the system's "
            "authorities, by default) must contain the authority that signed the certificate, and the certificate must "
            "be for the host in the store's URL"
        ) from error
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError, asyncio.IncompleteReadError) as error:
        raise ConnectionResetError(f"{name}: the connection was closed") from error
    except ssl.SSLError as error:
        raise StoreMisconfigured(
            f"{name}: TLS fails ({error.reason or error}). TLS 1.2 or newer is required. A client certificate, "
            "if any, must be signed by an authority in Riak's ssl.cacertfile, with check_crl = off or a CRL"
        ) from error


async def _connected(host: str, port: int) -> socket.socket:
    """Try the host's addresses in order, and return a connection to the first one that accepts."""
    loop = asyncio.get_running_loop()
    refused: OSError | None = None
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            refused = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise refused or OSError(f"{host} has no address")


async def _start_tls(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()

    async def exactly(size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = await loop.sock_recv(sock, size - len(data))
            if not part:
                raise ConnectionResetError
            data += part
        return data

    await loop.sock_sendall(sock, wire.frame(wire.START_TLS))
    code, length = wire.frame_length(await exactly(wire.HEADER.size), wire.GREETING_BYTES_MAX)
    text = wire.error_text(code, await exactly(length))
    if text is not None:
        raise StoreMisconfigured(
            f"the node does not accept TLS: {text!r}. Turn Riak's security on (ssl.certfile, ssl.keyfile and "
            "ssl.cacertfile in riak.conf, riak-admin security enable), or leave out riak-user: the broker never sends "
            "a password in plain text"
        )
    if code != wire.START_TLS:
        raise wire.WireError(f"message code {code} instead of {wire.START_TLS}")


async def _authenticate(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, credentials: Credentials) -> None:
    request = pb.RpbAuthReq(user=credentials.user.encode(), password=credentials.password)
    writer.write(wire.frame(wire.AUTH_REQUEST, request.SerializeToString()))
    code, length = wire.frame_length(await reader.readexactly(wire.HEADER.size), wire.GREETING_BYTES_MAX)
    text = wire.error_text(code, await reader.readexactly(length))
    if text is not None:
        raise StoreMisconfigured(
            f"the node refuses the user {credentials.user!r}: {text!r}. Either there is no such user (names are in "
            "lower case), or the password is wrong (riak-password-file), or no source lets the user in from this "
            "address (riak-admin security add-source)"
        )
    if code != wire.AUTH_ANSWER:
        raise wire.WireError(f"message code {code} instead of {wire.AUTH_ANSWER}")
