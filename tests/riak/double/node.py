"""One node of the double: the Protocol Buffers port, on a real socket.

Owns: frames, requests and answers, and the ways in which a node can misbehave towards its clients. Must never: answer a
request that it does not fully understand: it refuses requests beyond its scope by name.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from .causality import NOTHING, Sibling, StoredObject, decode_vector, encode_vector
from .cluster import Key, Refuse
from .messages import CODES, Undecodable, decode, encode
from .security import START_TLS

if TYPE_CHECKING:
    from . import RiakDouble

Behaviour = Literal["serve", "hang", "mute", "close", "overload"]
"""Behaviour towards clients: normal; accept requests and never answer; carry out writes and never confirm; hang up on
every request; refuse every request."""

OUT_OF_SCOPE = {
    23: "RpbMapRedReq",
    25: "RpbIndexReq",
    27: "RpbSearchQueryReq",
    29: "RpbResetBucketReq",
    32: "RpbSetBucketTypeReq",
    50: "RpbCounterUpdateReq",
    80: "DtFetchReq",
    82: "DtUpdateReq",
}
"""Requests that Riak supports and the double does not."""

Answers = Iterator[tuple[int, dict[str, Any]]]


class Node:
    """See the package's docstring; ``RiakDouble`` makes it."""

    def __init__(self, double: RiakDouble, number: int) -> None:
        self.behaviour: Behaviour = "serve"
        self.requests = 0  # requests of every kind, even unanswered ones
        self.port = 0
        self._double = double
        self._memory = double.memory
        self._number = number
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen, on the previous port if there was one."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        self._memory.up[self._number] = True

    async def kill(self) -> None:
        """Stop at once: close connections and refuse new ones. The disk keeps its data."""
        self._memory.up[self._number] = False
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client or the test has ended it
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        security, user = self._double.security, None
        if security is not None:
            user = await security.welcome(reader, writer)
            if user is None:
                return
        while True:
            length, code = struct.unpack(">IB", await reader.readexactly(5))
            body = await reader.readexactly(length - 1)
            self.requests += 1
            if self.behaviour == "hang":
                await asyncio.Event().wait()
            if self.behaviour == "close":
                return
            async with self._double.under_way():
                frames, hang_up = self._handle(code, body, user)
            if self.behaviour == "mute" and code == 11:
                await asyncio.Event().wait()
            writer.write(frames)
            await writer.drain()
            if hang_up:
                return

    def _handle(self, code: int, body: bytes, user: bytes | None) -> tuple[bytes, bool]:
        """Return the answer's frames, and whether the connection then ends. ``user``: ``None`` in plain text."""
        if self.behaviour == "overload":
            return _error("overload"), False
        if code in OUT_OF_SCOPE:
            return _error(f"the double does not do {OUT_OF_SCOPE[code]}"), False
        if code == START_TLS:
            return _error("Security not enabled; STARTTLS not allowed."), False
        handler = {
            1: self._ping,
            7: self._server_info,
            9: self._get,
            11: self._put,
            13: self._delete,
            15: self._list_buckets,
            17: self._list_keys,
            19: self._bucket_props,
            21: self._set_bucket_props,
            31: self._type_props,
        }.get(code)
        if handler is None:
            return _error(f"Unknown message code: {code}"), False
        try:
            request = decode(CODES[code], body)
        except Undecodable as error:
            return _error(f"{{error,{{exit,badarg,[{{{error}}}]}}}}"), True
        security = self._double.security
        if user is not None and security is not None and (denied := security.denied(user, code, request)):
            return _error(denied), False
        try:
            return b"".join(_frame(answer_code, answer) for answer_code, answer in handler(request)), False
        except Refuse as refusal:
            return _error(str(refusal)), False

    def _ping(self, _request: dict[str, Any]) -> Answers:
        yield 2, {}

    def _server_info(self, _request: dict[str, Any]) -> Answers:
        node = f"double{self._number + 1}@127.0.0.1".encode()
        yield 8, {"node": node, "server_version": self._double.version.encode()}

    def _get(self, request: dict[str, Any]) -> Answers:
        key = _key(request)
        if key is None:
            yield 10, {}
            return
        stored = self._memory.read(self._number, key, request)
        if not stored.siblings:
            yield 10, {}
        elif stored.tombstone and request.get("deletedvclock"):
            yield 10, {"vclock": encode_vector(stored.vector)}
        elif stored.tombstone:
            yield 10, {}
        elif "if_modified" in request and _context(request["if_modified"]) == stored.vector:
            yield 10, {"unchanged": True}
        else:
            yield 10, _object(stored, head=request.get("head", False))

    def _put(self, request: dict[str, Any]) -> Answers:
        answer: dict[str, Any] = {}
        if "key" not in request:
            request["key"] = answer["key"] = self._double.new_key()
        key = _key(request)
        assert key is not None
        context = _context(request.get("vclock", b""))
        if request.get("if_none_match") or request.get("if_not_modified"):
            held = self._memory.read(self._number, key, {})
            there = bool(held.siblings) and not held.tombstone
            if request.get("if_none_match") and there:
                raise Refuse("match_found")
            if request.get("if_not_modified") and not there:
                raise Refuse("notfound")
            if request.get("if_not_modified") and held.vector != context:
                raise Refuse("modified")
        content = {field: value for field, value in request["content"].items() if field not in _SERVERS_OWN}
        content["vtag"] = self._double.new_vtag()
        stored = self._memory.write(self._number, key, context, content, request)
        if request.get("return_body") or request.get("return_head"):
            answer |= _object(stored, head=not request.get("return_body"))
        yield 12, answer

    def _delete(self, request: dict[str, Any]) -> Answers:
        key = _key(request)
        assert key is not None
        held = self._memory.read(self._number, key, {})
        if held.siblings:
            context = _context(request["vclock"]) if "vclock" in request else held.vector
            tombstone = {"value": b"", "vtag": self._double.new_vtag(), "deleted": True}
            self._memory.write(self._number, key, context, tombstone, {})
        yield 14, {}

    def _list_buckets(self, request: dict[str, Any]) -> Answers:
        yield 16, {"buckets": sorted(self._memory.bucket_names(request.get("type", b"default")))}

    def _list_keys(self, request: dict[str, Any]) -> Answers:
        for key in sorted(self._memory.keys(request.get("type", b"default"), request["bucket"])):
            yield 18, {"keys": [key]}
        yield 18, {"done": True}

    def _bucket_props(self, request: dict[str, Any]) -> Answers:
        yield 20, {"props": self._memory.props(request.get("type", b"default"), request["bucket"])}

    def _set_bucket_props(self, request: dict[str, Any]) -> Answers:
        place = (request.get("type", b"default"), request["bucket"])
        self._memory.buckets[place] = {**self._memory.props(*place), "write_once": False, **request["props"]}
        yield 22, {}

    def _type_props(self, request: dict[str, Any]) -> Answers:
        if request["type"] not in self._memory.types:
            raise Refuse(f'Invalid bucket type: <<"{request["type"].decode()}">>')
        yield 20, {"props": self._memory.types[request["type"]]}


_SERVERS_OWN = {"vtag", "last_mod", "last_mod_usecs", "deleted"}


def _key(request: dict[str, Any]) -> Key | None:
    if "key" not in request:
        return None
    if not request["key"]:
        raise Refuse("Key cannot be zero-length")
    if not request["bucket"]:
        raise Refuse("Bucket cannot be zero-length")
    return Key(request.get("type", b"default"), request["bucket"], request["key"])


def _context(vclock: bytes) -> dict[str, int]:
    if not vclock:
        return NOTHING.vector
    try:
        return decode_vector(vclock)
    except ValueError as error:
        raise Refuse(str(error)) from error


def _object(stored: StoredObject, *, head: bool) -> dict[str, Any]:
    contents = [_content(sibling, head=head) for sibling in stored.siblings]
    return {"content": contents, "vclock": encode_vector(stored.vector)}


def _content(sibling: Sibling, *, head: bool) -> dict[str, Any]:
    seconds, micros = divmod(sibling.written_us, 1_000_000)
    content = {**sibling.content, "last_mod": seconds, "last_mod_usecs": micros}
    return {**content, "value": b""} if head else content


def _frame(code: int, message: dict[str, Any]) -> bytes:
    body = encode(CODES[code], message)
    return struct.pack(">IB", 1 + len(body), code) + body


def _error(text: str) -> bytes:
    return _frame(0, {"errmsg": text.encode(), "errcode": 0})
