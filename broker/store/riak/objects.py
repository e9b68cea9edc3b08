"""Objects in Riak: reading, writing, siblings, and one writer per object within this process.

Owns: the quorums (ADR 0003 has the reasons), the second look at a not-found, the resolution of siblings and the
grouping of changes. Must never: know what is in an object beyond how two versions of it merge.

``change`` is the one way objects are written (the registry's heartbeat aside): read, merge the siblings, edit, write
back with the causal context read. Changes to one object queue up behind its write under way and then share the next
one, so this process never makes a sibling with itself and a busy object costs two requests however many changes come.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from ingeborg.protocol.bounded import BoundedMap

from ..base import StoreError, StoreMisconfigured, StoreUnavailable
from . import riak_pb2 as pb
from . import wire
from .pool import Pool

READ_R: Final = 2
READ_PR: Final = 2
READ_PR_OF_FEW: Final = 1
"""Where no node reaches two primaries on two machines: much of the cluster is down."""
WRITE_W: Final = 2

REPAIRS_MAX: Final = 64
"""Siblings being written back at once. They are rare, and what is dropped here is repaired by the next read."""

DOUBTFUL_MAX: Final = 65_536
"""Objects whose last write has an unknown outcome. More of them than this and the store has been down for long."""

_CONTENT_TYPE: Final = b"application/msgpack"


class StoredObject(Protocol):
    """What is in an object. ``cls()`` is the object that was never written; it must equal an empty one."""

    dirty: bool  # set by an edit that changed something

    def absorb(self, value: bytes) -> None:
        """Merge one stored version in. ``ValueError`` for what is no version of such an object."""

    def encode(self) -> bytes:
        """The version to store."""


_copies_missing: Final = operator.attrgetter("copies_missing")

S = TypeVar("S", bound=StoredObject)
R = TypeVar("R")


class Address(NamedTuple):
    """Where an object lives."""

    bucket: bytes
    key: bytes


class Fetched(NamedTuple):
    """What a read found: the values of all siblings (a tombstone is a sibling without one) and their causal context."""

    values: list[bytes]
    siblings: int  # 0: there is no such object, or it has been deleted
    vclock: bytes | None

    @property
    def found(self) -> bool:
        """Whether there is something, a tombstone included."""
        return self.vclock is not None


class Written(NamedTuple):
    """What a write left: the number of siblings there are now, and their causal context."""

    siblings: int
    vclock: bytes


class _Change(NamedTuple):
    """One caller's edit, and where its outcome goes."""

    edit: Callable[[Any], Any]
    outcome: asyncio.Future[Any]


class _Lane:
    """The changes to one object that wait for its write under way."""

    def __init__(self, kind: Callable[[], Any]) -> None:
        self.kind = kind
        self.waiting: list[_Change] = []
        self.task: asyncio.Task[None] | None = None


class Objects:
    """All objects of one bucket type whose versions merge (``allow_mult=true``)."""

    def __init__(
        self,
        pool: Pool,
        counters: dict[str, int],
        *,
        bucket_type: bytes,
        node_confirms: int,
        server_timeout_s: float,
        read_only: bool = False,
    ) -> None:
        self._read_only = read_only
        self._pool = pool
        self._counters = counters
        self._type = bucket_type
        self._node_confirms = node_confirms
        self._server_timeout_ms = round(server_timeout_s * 1000)
        self._lanes: dict[Address, _Lane] = {}
        self._repairs: set[asyncio.Task[None]] = set()
        self._doubtful: BoundedMap[Address, None] = BoundedMap(DOUBTFUL_MAX)
        self._closed = False
        #: Awaited before several versions of an object are written as one, with the object.
        self.before_resolving: Callable[[Any], Awaitable[None]] = _nothing

    async def get(self, address: Address) -> Fetched:
        """All versions there are. A not-found is believed at the second look only, see ``docs/riak.md``."""
        fetched = await self._get_from_many(address)
        if fetched.found:
            return fetched
        # Two virtual nodes that never saw the key (fallbacks, a primary with a new disk) can outvote the one that has
        # it. With r=1 and notfound_ok=false a single copy anywhere is enough, and only all of them can say no.
        fetched = await self._get(address, pb.RpbGetReq(r=1, notfound_ok=False, basic_quorum=False))
        self._counters["notfounds_false" if fetched.siblings else "notfounds_confirmed"] += 1
        return fetched

    async def _get_from_many(self, address: Address) -> Fetched:
        # Of a node that is cut off, which stands in for others itself, two answers are worth no more than one; and in a
        # ring that its nodes do not share evenly it can have two primaries. So they have to be two machines' as well.
        confirms = self._node_confirms
        try:
            request = pb.RpbGetReq(r=READ_R, pr=READ_PR, node_confirms=confirms)
            return await self._get(address, request, final=_copies_missing)
        except wire.Refusal:
            self._counters["reads_of_few"] += 1
        try:
            request = pb.RpbGetReq(r=READ_R, pr=READ_PR_OF_FEW, node_confirms=confirms)
            return await self._get(address, request, final=_copies_missing)
        except wire.Refusal:
            return await self._get(address, pb.RpbGetReq(r=READ_R, pr=READ_PR_OF_FEW))

    async def _get(
        self, address: Address, request: pb.RpbGetReq, final: Callable[[wire.Refusal], bool] | None = None
    ) -> Fetched:
        request.type = self._type
        request.bucket, request.key = address
        request.deletedvclock = True  # a tombstone's causal context, so that what is written next replaces it
        request.timeout = self._server_timeout_ms
        # Else the type's would apply. It would refuse every read that finds nothing with notfound_ok=false, and all in
        # a cluster of which one machine is left.
        if not request.HasField("node_confirms"):
            request.node_confirms = 0
        self._counters["gets"] += 1
        body = request.SerializeToString()
        answer = await self._pool.request(wire.GET_REQUEST, body, wire.GET_ANSWER, pb.RpbGetResp, final=final)
        values = [content.value for content in answer.content if not content.deleted]
        self._counters["bytes_read"] += sum(map(len, values))
        if len(answer.content) > 1:
            self._counters["siblings_found"] += 1
        return Fetched(values, len(answer.content), answer.vclock or None)

    async def put(self, address: Address, value: bytes, vclock: bytes | None) -> Written:
        """Write a version that replaces those ``vclock`` covers. On two nodes, and on two machines, when it returns."""
        if self._read_only:
            raise StoreUnavailable("the store was opened for reading only")
        request = pb.RpbPutReq(
            bucket=address.bucket,
            key=address.key,
            type=self._type,
            vclock=vclock,
            content=pb.RpbContent(value=value, content_type=_CONTENT_TYPE),
            w=WRITE_W,
            return_head=True,
            timeout=self._server_timeout_ms,
            # A node older than 3.0 skips the field.
            node_confirms=self._node_confirms,
        )
        self._counters["puts"] += 1
        self._counters["bytes_written"] += len(value)
        answer = await self._pool.request(wire.PUT_REQUEST, request.SerializeToString(), wire.PUT_ANSWER, pb.RpbPutResp)
        if len(answer.content) > 1:
            self._counters["siblings_written"] += 1
        return Written(len(answer.content), answer.vclock)

    async def read(self, kind: Callable[[], S], address: Address) -> S:
        """The object, its versions merged; more than one is written back as one, soon and best effort."""
        fetched = await self.get(address)
        if fetched.siblings > 1 and not self._read_only:
            self._repair(kind, address)
        return merged(kind, address, fetched)

    async def read_only(self, kind: Callable[[], S], address: Address) -> S:
        """As ``read``, but versions that contradict each other stay as they are, for a person to decide."""
        return merged(kind, address, await self.get(address))

    async def change(self, kind: Callable[[], S], address: Address, edit: Callable[[S], R]) -> R:
        """Edit the object and have it written; what ``edit`` returned, or the error it raised.

        ``edit`` sees the object as read, with the edits that share its write applied, and sets ``dirty`` if it changed
        anything: else nothing is written. It may be called although the caller has been cancelled meanwhile.
        """
        if self._closed:
            raise StoreUnavailable("the store is closed")
        self._counters["changes"] += 1
        lane = self._lanes.get(address)
        if lane is None:
            lane = self._lanes[address] = _Lane(kind)
        outcome: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        lane.waiting.append(_Change(edit, outcome))
        if lane.task is None:
            lane.task = asyncio.create_task(self._write_out(address, lane))
        return await outcome

    async def repaired(self) -> None:
        """Wait until every repair under way has ended, one way or the other."""
        while self._repairs:
            await asyncio.wait(self._repairs)

    async def close(self) -> None:
        """Fail what is under way. The pool must be closed already, so that nothing here waits for an answer."""
        self._closed = True
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        if pending := [*tasks, *self._repairs]:
            await asyncio.wait(pending)

    async def _write_out(self, address: Address, lane: _Lane) -> None:
        try:
            while lane.waiting:
                group = lane.waiting
                lane.waiting = []
                self._counters["changes_grouped"] += len(group) - 1
                try:
                    await self._apply(address, lane.kind, group)
                except Exception as error:
                    # Those that queued meanwhile would wait as long again for the same answer.
                    failed = [*group, *lane.waiting]
                    lane.waiting = []
                    for change in failed:
                        if not change.outcome.done():
                            change.outcome.set_exception(error)
        finally:
            del self._lanes[address]
            for change in lane.waiting:
                change.outcome.cancel()

    async def _apply(self, address: Address, kind: Callable[[], Any], group: list[_Change]) -> None:
        fetched = await self.get(address)
        state = merged(kind, address, fetched)
        done: list[tuple[asyncio.Future[Any], Any]] = []
        for change in group:
            try:
                done.append((change.outcome, change.edit(state)))
            except StoreError as error:
                if not change.outcome.done():
                    change.outcome.set_exception(error)
        # An object whose last write may have reached one node only is written again, even if nothing is left to
        # change in it: finding a subscription there does not mean that it is safe.
        if state.dirty or fetched.siblings > 1 or address in self._doubtful:
            if fetched.siblings > 1:
                await self.before_resolving(state)
            try:
                written = await self.put(address, state.encode(), fetched.vclock)
            except StoreError:
                self._doubtful.put(address, None)
                raise
            self._doubtful.discard(address)
            state.contested = written.siblings > 1
            if fetched.siblings > 1 and written.siblings <= 1:
                self._counters["siblings_resolved"] += 1
            if written.siblings > 1 and fetched.siblings <= 1:
                # Another process wrote meanwhile. Was this a repair itself, the next read goes on: no loop from here.
                self._repair(kind, address)
        for outcome, result in done:
            if not outcome.done():
                outcome.set_result(result)

    def _repair(self, kind: Callable[[], Any], address: Address) -> None:
        if self._closed or len(self._repairs) >= REPAIRS_MAX:
            self._counters["repairs_dropped"] += 1
            return
        task = asyncio.create_task(self._write_back(kind, address))
        self._repairs.add(task)
        task.add_done_callback(self._repairs.discard)

    async def _write_back(self, kind: Callable[[], Any], address: Address) -> None:
        try:
            await self.change(kind, address, lambda state: None)
        except StoreError:
            self._counters["repairs_failed"] += 1


async def _nothing(state: Any) -> None:
    """Nothing has to be done before."""


def merged(kind: Callable[[], S], address: Address, fetched: Fetched) -> S:
    """All versions as one. A tombstone counts as the empty object."""
    state = kind()
    for value in fetched.values:
        try:
            state.absorb(value)
        except (ValueError, TypeError, AttributeError) as error:  # an array of the right length may hold anything
            raise StoreMisconfigured(
                f"the object {address.key!r} in bucket {address.bucket!r} is none of this version's: {error}. "
                "See docs/riak.md, Layout"
            ) from error
    return state
