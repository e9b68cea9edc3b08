"""Riak's security in the double: TLS on the connection, a user, and the user's permissions.

Owns: the dialogue before the first request, the users, sources and grants, and the ways in which a step can fail. Must
never: accept what a real node would refuse. ``test_security.py`` compares the dialogue with a real node's.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections import defaultdict
from pathlib import Path
from typing import Any, Literal

from .messages import CODES, Undecodable, decode, encode

START_TLS, AUTH, AUTHENTICATED = 255, 253, 254
ATTEMPTS = 3

Step = Literal["StartTls", "handshake", "user"]

PERMISSIONS = {
    9: "riak_kv.get",
    11: "riak_kv.put",
    13: "riak_kv.delete",
    15: "riak_kv.list_buckets",
    17: "riak_kv.list_keys",
    19: "riak_core.get_bucket",
    21: "riak_core.set_bucket",
    31: "riak_core.get_bucket_type",
}


class Security:
    """The security of a cluster where it is on. ``chain``, ``key``: PEM files of the nodes' certificate. ``clients``:
    the authority of the clients' certificates."""

    def __init__(self, chain: Path, key: Path, clients: Path | None = None) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(chain, key)
        if clients is not None:
            self.context.verify_mode = ssl.CERT_OPTIONAL
            self.context.load_verify_locations(clients)
        self.passwords: dict[bytes, bytes] = {}  # users with the source `password`
        self.by_certificate: set[bytes] = set()  # users with the source `certificate`
        self.grants: defaultdict[bytes, set[tuple[str, bytes]]] = defaultdict(set)  # (permission, bucket type)
        self.comparing_s = 0.0  # time to compare a password; a real node: 0.7
        self.refusing_s = 5.0
        self.fails_at: Step | None = None
        self.silently = True  # False: it hangs up
        self.logins = 0

    def grant_all(self, user: bytes, *types: bytes) -> None:
        """Grant the permissions that docs/riak.md lists for the driver's user, on these bucket types."""
        for type_ in types:
            for permission in ("riak_core.get_bucket_type", "riak_kv.get", "riak_kv.put"):
                self.grants[user].add((permission, type_))

    def denied(self, user: bytes, code: int, request: dict[str, Any]) -> str | None:
        """Return a node's error for a request without the necessary permission."""
        permission = PERMISSIONS.get(code)
        type_ = request.get("type", b"default")
        if permission is None or (permission, type_) in self.grants[user]:
            return None
        where = type_ + b"/" + request["bucket"] if "bucket" in request else type_
        return f"Permission denied: User '{user.decode()}' does not have '{permission}' on {where.decode()}"

    async def welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
        """Run the dialogue before the first request. Return the user, or ``None`` if the connection ends."""
        while (await _frame(reader))[0] != START_TLS:
            _say(writer, "Security is enabled, please STARTTLS first")
        if await self._fails("StartTls"):
            return None
        writer.write(struct.pack(">IB", 1, START_TLS))
        await writer.drain()
        if await self._fails("handshake"):
            return None
        try:
            await writer.start_tls(self.context)
        except (ssl.SSLError, OSError):
            return None
        attempts = 0
        while attempts < ATTEMPTS:
            code, body = await _frame(reader)
            if code != AUTH:
                _say(writer, "Security is enabled, please authenticate first")
                continue
            if await self._fails("user"):
                return None
            try:
                request = decode(CODES[AUTH], body)
            except Undecodable:
                return None
            await asyncio.sleep(self.comparing_s)
            if self._known(request, writer):
                self.logins += 1
                writer.write(struct.pack(">IB", 1, AUTHENTICATED))
                user: bytes = request["user"]
                return user
            attempts += 1
            await asyncio.sleep(self.refusing_s)
            _say(writer, "Authentication failed")
        await writer.drain()
        return None

    def _known(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        user = request.get("user", b"")
        if user in self.by_certificate:
            certificate = writer.get_extra_info("peercert") or {}
            return (("commonName", user.decode()),) in certificate.get("subject", ())
        return user in self.passwords and self.passwords[user] == request.get("password")

    async def _fails(self, step: Step) -> bool:
        if self.fails_at == step and self.silently:
            await asyncio.Event().wait()
        return self.fails_at == step


async def _frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    length, code = struct.unpack(">IB", await reader.readexactly(5))
    return code, await reader.readexactly(length - 1)


def _say(writer: asyncio.StreamWriter, text: str) -> None:
    body = encode("Error", {"errmsg": text.encode(), "errcode": 0})
    writer.write(struct.pack(">IB", 1 + len(body), 0) + body)
