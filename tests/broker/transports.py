"""TLS for tests: certificates, and a connection that leaves the end of each direction to the test.

Owns: an authority for 127.0.0.1, and TLS over a plain transport. Must never: hide how a connection ended. The loops'
own TLS transports say nothing of a stream that was cut before its close_notify, and read no more once they have sent
theirs.
"""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from pathlib import Path
from typing import Any, NamedTuple, cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Pair(NamedTuple):
    chain: Path
    key: Path


class Authority:
    """Issues certificates for 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        self._root = self._signed(self._name, self._key.public_key(), 1, authority=True)
        self.file = folder / "authority.pem"
        self.file.write_bytes(self._root.public_bytes(serialization.Encoding.PEM))
        self.context = ssl.create_default_context(cafile=str(self.file))

    def _signed(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePublicKey,
        serial: int,
        *,
        authority: bool,
        lasts: datetime.timedelta = datetime.timedelta(hours=1),
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(serial)
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + lasts)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if authority:
            usage = dict.fromkeys(
                ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"), False
            )
            builder = builder.add_extension(
                x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, decipher_only=False, **usage),
                critical=True,
            )
        else:
            address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
            builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def issue(
        self, serial: int, pair: Pair | None = None, lasts: datetime.timedelta = datetime.timedelta(hours=1)
    ) -> Pair:
        """A new key and its certificate, in files of the serial number, or in the given ones."""
        pair = pair or Pair(self._folder / f"{serial}.pem", self._folder / f"{serial}.key")
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "endpoint")])
        certificate = self._signed(name, key.public_key(), serial, authority=False, lasts=lasts)
        pair.chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return pair


class TlsStream(asyncio.Protocol):
    """The client's side of TLS, on bytes. ``reader`` has what comes; the rest is as an ``asyncio.StreamWriter``'s."""

    def __init__(self, context: ssl.SSLContext, limit: int = 2**16) -> None:
        self.reader = asyncio.StreamReader(limit)
        self.notified = False  # the peer has sent its close_notify
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")
        self._takes = asyncio.Event()
        self._takes.set()
        self._over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        self.transport = cast(asyncio.Transport, transport)
        self.reader.set_transport(self.transport)
        self._read()

    def data_received(self, data: bytes) -> None:
        """Some records, or pieces of some."""
        self._incoming.write(data)
        self._read()

    def _read(self) -> None:
        try:
            if not self.ready.done():
                self.tls.do_handshake()
                self.ready.set_result(None)
            while not self.notified:
                if data := self.tls.read(2**16):
                    self.reader.feed_data(data)
                else:
                    self._notice()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._notice()
        except OSError as error:
            self._fail(error)
        self._flush()

    def _notice(self) -> None:
        self.notified = True
        self.reader.feed_eof()

    def _fail(self, error: Exception) -> None:
        if not self.ready.done():
            self.ready.set_exception(error)
            self.ready.exception()  # seen: nobody may be waiting any more
        self.reader.set_exception(error)

    def _flush(self) -> None:
        if (data := self._outgoing.read()) and not self.transport.is_closing():
            self.transport.write(data)

    def eof_received(self) -> bool:
        """TCP's end, which is not TLS's."""
        self._end()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        """It is gone."""
        if error is not None and not self.notified:
            self._fail(error)
        self._end()
        self._over = True
        self._takes.set()

    def _end(self) -> None:
        if not self.ready.done():
            self._fail(ConnectionResetError("the connection ended before the TLS handshake did"))
        self.reader.feed_eof()

    def pause_writing(self) -> None:
        """The kernel takes no more."""
        self._takes.clear()

    def resume_writing(self) -> None:
        """It does again."""
        self._takes.set()

    # As a StreamWriter

    def write(self, data: bytes, *, last: bool = False) -> None:
        """Encrypt and send; once the connection is over it goes nowhere. ``last``: with close_notify, in one piece."""
        if data and not self._over:
            self.tls.write(data)
        if last:
            self.write_eof()
        else:
            self._flush()

    async def drain(self) -> None:
        """Until the kernel takes more."""
        if self.transport.is_closing():
            await asyncio.sleep(0)  # as StreamWriter's: whoever only writes has to hear of it
        await self._takes.wait()
        if (error := self.reader.exception()) is not None:
            raise error
        if self._over:
            raise ConnectionResetError("the connection is over")

    def write_eof(self) -> None:
        """Send close_notify; what comes is still read."""
        try:
            self.tls.unwrap()
        except ssl.SSLError:  # it would like the peer's to come right behind
            pass
        self._flush()

    def close(self) -> None:
        """Send close_notify, and close."""
        if not self._over:
            self.write_eof()
        self.transport.close()


async def open_tls(host: str, port: int, context: ssl.SSLContext, limit: int = 2**16, **options: Any) -> TlsStream:
    """A connection whose TLS handshake is done. ``options``: of ``create_connection``."""
    where: dict[str, Any] = {} if "sock" in options else {"host": host, "port": port}
    stream: TlsStream
    _, stream = await asyncio.get_running_loop().create_connection(
        lambda: TlsStream(context, limit), **where, **options
    )
    try:
        await stream.ready
    except BaseException:
        stream.transport.abort()
        raise
    return stream
