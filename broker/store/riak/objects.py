"""Objects in Riak: reading, writing, resolving siblings, and serializing this process's writes to one object.

Owns: the quorums (ADR 0003 has the reasons), the second read after a not-found, the resolution of siblings, and the
grouping of changes. Must never: know more about an object than how two versions merge.

``change`` is the only way to write objects, except for the registry's heartbeat. It reads the object, merges the
siblings, edits the result, and writes it with the causal context of the read. While one write of an object is running,
further changes to the object wait, and then share the next write. So two writes of this process never create siblings,
and the store makes all waiting changes of a busy object with two requests.
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
"""The read quorum if no node reaches two primary copies on two machines, because much of the cluster is down."""
WRITE_W: Final = 2

REPAIRS_MAX: Final = 64
"""The largest number of objects whose siblings are written back concurrently. Siblings are rare. If more objects have
siblings, the next read of each object repairs them."""

DOUBTFUL_MAX: Final = 65_536
"""The number of objects for which this process remembers that the outcome of the last write is unknown. More are
expected only after a long outage of the store."""

_CONTENT_TYPE: Final = b"application/msgpack"


class StoredObject(Protocol):
    """The content of an object. ``cls()`` is the content of an object that was never written. It must equal an empty
    object."""

    dirty: bool  # set by an edit that changed something

    def absorb(self, value: bytes) -> None:
        """Merge one stored version into this object. Raise ``ValueError`` if the value is not a version of such an
        object."""

    def encode(self) -> bytes:
        """Return the version to store."""


_copies_missing: Final = operator.attrgetter("copies_missing")

S = TypeVar("S", bound=StoredObject)
R = TypeVar("R")


class Address(NamedTuple):
    """The address of an object."""

    bucket: bytes
    key: bytes


class Fetched(NamedTuple):
    """The result of a read: the values of all siblings, and their causal context. A tombstone counts as a sibling, but
    has no value."""

    values: list[bytes]
    siblings: int  # 0 if the object does not exist, or is deleted
    vclock: bytes | None

    @property
    def found(self) -> bool:
        """Return whether Riak found the object, even if only as a tombstone."""
        return self.vclock is not None


class Written(NamedTuple):
    """The result of a write: the number of siblings that exist now, and their causal context."""

    siblings: int
    vclock: bytes


class _Change(NamedTuple):
    """One caller's edit, and the future for its outcome."""

    edit: Callable[[Any], Any]
    outcome: asyncio.Future[Any]


class _Lane:
    """The changes of one object that wait for the running write."""

    def __init__(self, kind: Callable[[], Any]) -> None:
        self.kind = kind
        self.waiting: list[_Change] = []
        self.task: asyncio.Task[None] | None = None


class Objects:
    """The objects of one bucket type with ``allow_mult=true``, whose versions can be merged."""

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
        #: This is called with the merged object, and awaited, before several versions are written as one.
        self.before_resolving: Callable[[Any], Awaitable[None]] = _nothing

    async def get(self, address: Address) -> Fetched:
        """Return all versions. If the first read finds nothing, a second read confirms that; see ``docs/riak.md``."""
        fetched = await self._get_from_many(address)
        if fetched.found:
            return fetched
        # Two virtual nodes that never saw the key (fallbacks, or a primary with a new disk) can outvote the node that
        # has it. With r=1 and notfound_ok=false, Riak returns the object if it finds one copy anywhere, and answers
        # not-found only if all copies are missing.
        fetched = await self._get(address, pb.RpbGetReq(r=1, notfound_ok=False, basic_quorum=False))
        self._counters["notfounds_false" if fetched.siblings else "notfounds_confirmed"] += 1
        return fetched

    async def _get_from_many(self, address: Address) -> Fetched:
        # A node that is cut off from the others also answers as a fallback in their place, so its two answers are worth
        # no more than one. If the ring is uneven, such a node can even have two primary copies. So the copies that
        # answer have to be on two machines.
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
        request.deletedvclock = True  # return the causal context of a tombstone, for the next write
        request.timeout = self._server_timeout_ms
        # Without an explicit value, Riak would apply the value of the bucket type. Then Riak would refuse every read
        # with notfound_ok=false that finds nothing, and every read in a cluster that has only one machine left.
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
        """Write a version that replaces the versions covered by ``vclock``. When this returns, two nodes on two
        machines have the new version."""
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
            # Riak before 3.0 ignores this field.
            node_confirms=self._node_confirms,
        )
        self._counters["puts"] += 1
        self._counters["bytes_written"] += len(value)
        answer = await self._pool.request(wire.PUT_REQUEST, request.SerializeToString(), wire.PUT_ANSWER, pb.RpbPutResp)
        if len(answer.content) > 1:
            self._counters["siblings_written"] += 1
        return Written(len(answer.content), answer.vclock)

    async def read(self, kind: Callable[[], S], address: Address) -> S:
        """Return the object with its versions merged. If there are several versions, a background task tries to write
        them back as one."""
        fetched = await self.get(address)
        if fetched.siblings > 1 and not self._read_only:
            self._repair(kind, address)
        return merged(kind, address, fetched)

    async def read_only(self, kind: Callable[[], S], address: Address) -> S:
        """Return the object as ``read`` does, but write nothing back. If its versions contradict each other, an
        operator has to decide between them."""
        return merged(kind, address, await self.get(address))

    async def change(self, kind: Callable[[], S], address: Address, edit: Callable[[S], R]) -> R:
        """Edit the object and write it. Return the result of ``edit``, or raise its exception.

        ``edit`` gets the object as it was read, changed by the earlier edits that share the write. It must set
        ``dirty`` if it changes anything; otherwise the object is not written. ``edit`` can run even if the caller was
        cancelled meanwhile.
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
        """Wait until all running repairs have ended, successfully or not."""
        while self._repairs:
            await asyncio.wait(self._repairs)

    async def close(self) -> None:
        """Fail all running changes and repairs. The caller has to close the pool first, so that none of these waits for
        an answer."""
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
                    # Also fail the changes that have queued meanwhile, because they would wait just as long for the
                    # same error.
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
        # If the last write of the object may have reached only one node, write the object again even if there is
        # nothing to change. A read that finds a subscription on one node does not mean that the subscription is safe.
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
                # Another process wrote meanwhile, so repair the object. If this was a repair itself, the next read
                # repairs the rest; otherwise repairs could loop here.
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
    """Do nothing."""


def merged(kind: Callable[[], S], address: Address, fetched: Fetched) -> S:
    """Return the object that results from merging all versions. A tombstone counts as an empty object."""
    state = kind()
    for value in fetched.values:
        try:
            state.absorb(value)
        except (ValueError, TypeError, AttributeError) as error:  # an array of the right length can hold wrong types
            raise StoreMisconfigured(
                f"the object {address.key!r} in bucket {address.bucket!r} is not one of this version: {error}. "
                "See docs/riak.md, Layout"
            ) from error
    return state
