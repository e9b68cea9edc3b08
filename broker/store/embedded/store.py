"""The embedded store: one LMDB directory, shared by every endpoint process of the machine.

Owns: the store contract on LMDB. Reads run on the event loop, without a thread. They read memory, which takes
microseconds, and longer reads are split into slices. Writes go to two writer processes (``writer_link.py``,
``writer.py``): one for data that must survive a power cut, and one for data that must survive only ``kill -9``. Must
never: take LMDB's write lock, hold a read transaction across an ``await`` (LMDB could not reuse freed pages), or be
open in a process that forks without exec.

With ``read_only``, the store starts no writer, creates nothing, and cannot write.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import lmdb
import ormsgpack

from ingeborg.broker.store.base import (
    Ended,
    Endpoint,
    FilterPage,
    Location,
    RetainedMessage,
    Revocation,
    Settings,
    Shape,
    StoreError,
    StoreLost,
    StoreMisconfigured,
    StoreUnavailable,
    Subscribe,
    Subscribers,
    Subscription,
    TopicPage,
)
from ingeborg.broker.store.embedded import now
from ingeborg.broker.store.embedded.expiry import Expiry
from ingeborg.broker.store.embedded.files import RESTORE, Files, require_latest, require_same
from ingeborg.broker.store.embedded.journal import Journal
from ingeborg.broker.store.embedded.layout import (
    DEFAULT_MAP_SIZE_BYTES,
    FRAME_ITEMS,
    Environment,
    Lane,
    of_this_boot,
    open_for_reading,
    revocations_in,
    settings_in,
    stamp_in,
)
from ingeborg.broker.store.embedded.slices import SLICE_S, Slices, from_cursor
from ingeborg.broker.store.embedded.subscriptions import MEMBERS_PER_LOOK, PAIRS_AT_ONCE, Subscriptions
from ingeborg.broker.store.embedded.writer_link import WriterProcess
from ingeborg.broker.store.settings import packed
from ingeborg.protocol.hashes import HASH_BYTES, digest

_Found = TypeVar("_Found")
_Members = tuple[list[Subscribers], dict[str, FilterPage]]

NOBODY: _Members = ([], {})
"""The result of reading a lane that has no subscribers."""

LOCATIONS_AT_ONCE = 500
"""How many locations are read together, without slices. This takes 1 ms."""

NOT_OPEN = "the embedded store is not open"


class EmbeddedStore:
    """Implements ``Store`` in a directory on a local disk. All endpoints of a machine open the same directory, each
    with its own ``EmbeddedStore``."""

    #: ``topics_at_once`` keeps the writer's sorted runs full (``RUN_ROWS``). Keeping the topics of a slot together
    #: would be useless, because hashes scatter the topics anyway.
    shape = Shape(topics_at_once=250_000, slots_together=False, reads_memory=True, journal=True)

    def __init__(
        self,
        directory: Path,
        *,
        map_size_bytes: int = DEFAULT_MAP_SIZE_BYTES,
        timeout_s: float = 4.0,
        read_only: bool = False,
        death_fd: int = -1,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Set up the store without opening it.

        Args:
            directory: The store's directory.
            map_size_bytes: Size limit of each environment. It reserves address space, not disk space.
            timeout_s: Operations fail if the writer acknowledges nothing for this many seconds. A large batch that
                makes progress can take longer.
            read_only: Whether to open an existing store only for reading. Writes then fail with ``StoreUnavailable``.
            death_fd: The end of a pipe from which a writer reads why this process died (see ``writer.py``), or -1.
            wall_clock: A function that returns the Unix time in seconds.
        """
        self._read_only = read_only
        self._directory, self._map_size_bytes = directory.absolute(), map_size_bytes
        self._wall_clock = wall_clock
        self._writers = {
            lane: WriterProcess(
                self._directory,
                lane,
                map_size_bytes=map_size_bytes,
                timeout_s=timeout_s,
                death_fd=death_fd if lane is Lane.DURABLE else -1,  # one writer is enough for the report
            )
            for lane in Lane
        }
        self._durable_writer, self._soft_writer = self._writers[Lane.DURABLE], self._writers[Lane.SOFT]
        self._environments: dict[Lane, Environment] = {}  # empty if the store is not open
        self._opened: dict[Lane, _Opened] = {}
        self._lost = False
        self._reads = 0
        self._writes = 0
        # A read of several slices holds this lock until it is finished. Without the lock, every such read would run one
        # slice in each pass of the event loop, and the loop would wait for all.
        self._long = asyncio.Lock()
        self._slices = Slices(self._reading, self._holds, self._stamp, self._long)
        durable, soft = self._durable_writer.call, self._soft_writer.call
        self._subscriptions = Subscriptions(self._slices, self._database, self._writers)
        self._expiry = Expiry(self._slices, self._database, durable, soft, wall_clock=wall_clock)
        self._journal = Journal(self._slices, self._database, soft)

    @property
    def writer_restarts(self) -> int:
        """Return how many writer processes of both lanes have been replaced, for the metrics."""
        return sum(writer.restarts for writer in self._writers.values())

    @property
    def counters(self) -> dict[str, int]:
        """Return the counters for the metrics. ``reads`` and ``writes`` count topics, clients, subscriptions and
        hashes; ``disk_stalls`` counts how often a lane's writes had to wait for the disk for longer than the
        time-out."""
        return {
            "reads": self._reads,
            "writes": self._writes,
            "writer_restarts": self.writer_restarts,
            "disk_stalls": sum(writer.disk_stalls for writer in self._writers.values()),
        }

    @property
    def writer_pids(self) -> dict[Lane, int | None]:
        """Return the process id of each lane's writer, or ``None`` while it is being replaced. This is for operators
        and tests."""
        return {lane: writer.pid for lane, writer in self._writers.items()}

    async def open(self) -> None:
        try:
            if self._read_only:
                self._open_for_reading()
            else:
                await self._open_with_writers()
        except OSError as error:
            await self.close()
            raise StoreMisconfigured(f"the embedded store cannot read {self._directory}: {error}") from error
        except BaseException:
            await self.close()
            raise

    def _open_for_reading(self) -> None:
        self._environments[Lane.DURABLE] = _share(self._directory, Lane.DURABLE, self._map_size_bytes)
        # Do not open an environment of an earlier boot, because its pages can be incomplete. The next endpoint that
        # starts empties it.
        if of_this_boot(self._directory):
            self._environments[Lane.SOFT] = _share(self._directory, Lane.SOFT, self._map_size_bytes)

    async def _open_with_writers(self) -> None:
        outcomes = await asyncio.gather(*(writer.open() for writer in self._writers.values()), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        for lane in Lane:
            self._environments[lane] = _share(self._directory, lane, self._map_size_bytes)
            opened = self._writers[lane].files
            assert opened is not None
            self._opened[lane] = _Opened(opened, require_same(self._directory / lane, opened))
        self._look_at_files()

    async def close(self) -> None:
        lanes, self._environments = self._environments, {}
        self._opened = {}
        for environment in lanes.values():
            _give_back(environment)
        await asyncio.gather(*(writer.close() for writer in self._writers.values()))

    # --- subscriptions

    async def subscribe(self, batch: Sequence[Subscribe]) -> None:
        self._writes += sum(len(row.topics) for row in batch)
        before = await self._subscriptions.subscribe(batch)
        await self._expiry.subscribed(batch, before)

    async def unsubscribe(self, batch: Sequence[tuple[str, Sequence[str], str | None]]) -> None:
        self._writes += sum(len(topics) for _, topics, _ in batch)
        await self._subscriptions.unsubscribe(batch)

    async def subscribers(self, topics: Sequence[str]) -> tuple[list[Subscribers], dict[str, FilterPage]]:
        self._reads += len(topics)
        return await self._subscriptions.subscribers(topics)

    def subscribers_now(self, topics: Sequence[str]) -> tuple[list[Subscribers], dict[str, FilterPage]] | None:
        until = time.perf_counter() + SLICE_S
        soft = self._subscribers_now(Lane.SOFT, topics, until)  # reads begin with the soft lane (``subscriptions.py``)
        if soft is None:
            return None
        found = self._subscribers_now(Lane.DURABLE, topics, until)
        if found is None:
            return None
        self._reads += len(topics)
        return found if soft is NOBODY else now.joined(soft, found, PAIRS_AT_ONCE)

    def _subscribers_now(self, lane: Lane, topics: Sequence[str], until: float) -> _Members | None:
        """Return the lane's subscribers, or ``NOBODY`` if the soft lane is empty or has none for the only topic. Return
        ``None`` if the time was not enough. This does not use ``_reading``, with which it would take 1.5 times as
        long."""
        environment = self._environments.get(lane)
        if environment is None:
            if lane is Lane.SOFT and self._is_without_soft:
                return NOBODY
            raise StoreUnavailable(NOT_OPEN)
        try:
            txn = environment.begin(environment.db["subscribers"])
            try:
                cursor = txn.cursor()
                if lane is Lane.SOFT:
                    is_one = len(topics) == 1
                    if not cursor.first() or (is_one and not cursor.set_key(digest(topics[0].encode()))):
                        return NOBODY
                texts = environment.db["filters"]
                return now.subscribers(cursor, txn, texts, topics, MEMBERS_PER_LOOK, PAIRS_AT_ONCE, until)
            finally:
                txn.abort()  # this also closes its cursors
        except (lmdb.Error, ValueError, TypeError) as error:
            raise _explained(environment, error) from error

    async def filtered(self, topic: str, cursor: str, limit: int) -> FilterPage:
        return self.filtered_now(topic, cursor, limit)

    def filtered_now(self, topic: str, cursor: str, limit: int) -> FilterPage:
        _require_positive(limit)
        self._reads += 1
        return self._subscriptions.filter_page(topic, cursor, limit)

    async def subscriptions_of(self, pairs: Sequence[tuple[str, str]]) -> list[list[Subscription]]:
        self._reads += len(pairs)
        return await self._subscriptions.of(pairs)

    def subscriptions_of_now(self, pairs: Sequence[tuple[str, str]]) -> list[list[Subscription]] | None:
        return self._whole(self._subscriptions.of_now(pairs), pairs)

    async def subscribed(self, client: str, topics: Sequence[str]) -> list[bool]:
        self._reads += len(topics)
        return await self._subscriptions.subscribed(client, topics)

    def subscribed_now(self, client: str, topics: Sequence[str]) -> list[bool] | None:
        return self._whole(self._subscriptions.subscribed_now(client, topics), topics)

    def _whole(self, found: list[_Found], asked: Sequence[Any]) -> list[_Found] | None:
        """Return ``found`` if the time was enough for all items, and ``None`` otherwise."""
        if len(found) < len(asked):
            return None
        self._reads += len(asked)
        return found

    async def topics(self, client: str, cursor: str | None, limit: int) -> tuple[list[str], str | None]:
        _require_positive(limit)
        after = None if cursor is None else from_cursor(cursor, lambda topic_hash: len(topic_hash) == HASH_BYTES)
        self._reads += 1
        return await self._subscriptions.topics(client, after, limit)

    async def all_subscriptions(self) -> AsyncIterator[list[TopicPage]]:
        # Each page is read in a separate transaction. One transaction for all pages would be a snapshot. But until its
        # reader is done, LMDB could not reuse pages that writers free, and the file would grow with every write.
        last: tuple[bytes, bytes] | None = None
        while True:
            page, count, last = self._subscriptions.page(last)
            self._reads += count
            if page:
                yield page
            if last is None:
                return
            await asyncio.sleep(0)

    async def expiring_slots(self) -> list[int] | None:
        self._look_at_files()  # an idle endpoint makes no other check, and a truncated file would kill it
        return self._expiry.slots()

    async def expiring(self, slot: int, cursor: str | None, limit: int) -> tuple[list[Subscription], str | None]:
        page, rest = await self._expiry.page(slot, cursor, limit)
        self._reads += len(page)
        return page, rest

    async def end(
        self, batch: Sequence[tuple[Sequence[Subscription], Location | None, bool]]
    ) -> list[list[Subscription]]:
        self._writes += sum(len(subscriptions) for subscriptions, _, _ in batch)
        return await self._expiry.end(batch)

    async def ended(self, clients: Sequence[str]) -> list[Ended | None]:
        self._reads += len(clients)
        return await self._expiry.ended(clients)

    async def tidy(self, kept_s: float) -> int:
        return await self._expiry.tidy(kept_s)

    # --- the journal of retained messages

    async def keep(
        self,
        retained: Sequence[RetainedMessage],
        forgotten: Sequence[tuple[int, int]],
        floors: Sequence[tuple[int, int]],
        whole: Sequence[int] = (),
    ) -> None:
        self._writes += len(retained) + len(forgotten)
        await self._journal.keep(retained, forgotten, floors, whole)

    async def retained(
        self, slots: Sequence[int], cursor: str | None, limit: int
    ) -> tuple[list[RetainedMessage], list[tuple[int, int]], str | None]:
        _require_positive(limit)
        if self._is_without_soft:
            return [], [], None
        page, floors, rest = await self._journal.page(slots, cursor, limit)
        self._reads += len(page)
        return page, floors, rest

    async def retained_top(self) -> int:
        return 0 if self._is_without_soft else self._journal.top()

    async def reach(self, epochs: Sequence[str], stamp: int) -> tuple[list[tuple[str, int]], int]:
        return await self._journal.reach(epochs, stamp)

    def retained_count(self) -> int:
        """Return the number of retained messages, for operators."""
        return 0 if self._is_without_soft else self._journal.count()

    # --- locations

    async def listen(self, clients: Sequence[str], incarnation: str) -> list[tuple[Location, Ended | None]]:
        self._writes += len(clients)
        least = int(self._wall_clock() * 1000)
        drawn = [
            Location(max(held.number + 1, least) if held else least, incarnation, True)
            for held in await self.locations(clients)
        ]
        batch = list(zip(clients, drawn, strict=True))
        frames = ([(client, new.number, incarnation) for client, new in part] for part in _parts(batch))
        await self._soft_writer.call("listen", frames)
        # Read the ended subscriptions after the location is written (``expiry.py``). The writer does not return them,
        # because each of a frame's thousand clients can have a thousand topics.
        return list(zip(drawn, await self._expiry.ended(clients), strict=True))

    async def unlisten(self, batch: Sequence[tuple[str, Location]]) -> None:
        self._writes += len(batch)
        frames = ([(client, held.number, held.incarnation) for client, held in part] for part in _parts(batch))
        await self._soft_writer.call("unlisten", frames)

    async def locations(self, clients: Sequence[str]) -> list[Location | None]:
        self._reads += len(clients)
        if len(clients) <= LOCATIONS_AT_ONCE:
            return await self._locations_of(clients)
        async with self._long:
            return await self._locations_of(clients)

    def locations_now(self, clients: Sequence[str]) -> list[Location | None] | None:
        if len(clients) > LOCATIONS_AT_ONCE:
            return None
        with self._reading(Lane.SOFT, "locations") as (txn, _):
            found = now.locations(txn, clients, time.perf_counter() + SLICE_S)
        if found is not None:
            self._reads += len(clients)
        return found

    async def _locations_of(self, clients: Sequence[str]) -> list[Location | None]:
        found: list[Location | None] = []
        while len(found) < len(clients):
            with self._reading(Lane.SOFT, "locations") as (txn, _):
                until = time.perf_counter() + SLICE_S
                while True:
                    found.append(now.location(txn, clients[len(found)]))
                    if len(found) == len(clients) or time.perf_counter() >= until:
                        break
            if len(found) < len(clients):
                await asyncio.sleep(0)
        return found

    async def seen(self, hashes: Sequence[bytes], ttl_s: float) -> list[bool]:
        self._writes += len(hashes)
        return await self._soft_writer.call("seen", ((ttl_s, part) for part in _parts(hashes)))

    # --- registry

    async def register(self, endpoint: Endpoint) -> None:
        await self._sign_of_life("register", endpoint)

    async def heartbeat(self, endpoint: Endpoint) -> None:
        await self._sign_of_life("heartbeat", endpoint)

    async def _sign_of_life(self, operation: str, endpoint: Endpoint) -> None:
        try:
            self._look_at_files()
            await self._soft_writer.call(operation, [tuple(endpoint)])  # the writer checks the files as well
        except StoreLost:
            self._lost = True
            raise

    async def deregister(self, endpoint: Endpoint) -> None:
        await self._soft_writer.call("deregister", [tuple(endpoint)])

    async def endpoints(self) -> list[Endpoint]:
        if self._is_without_soft:
            return []
        with self._reading(Lane.SOFT, "registry") as (_, cursor):
            # A machine has few endpoint names, so slices are not necessary.
            return [Endpoint(*ormsgpack.unpackb(value)) for value in cursor.iternext(keys=False, values=True)]

    # --- the cluster's settings

    async def settings(self, first: Settings | None = None) -> Settings | None:
        with self._reading(Lane.DURABLE, None) as (txn, _):
            found = settings_in(txn)
        if found is not None or first is None:
            return found
        (record,) = await self._durable_writer.call("settings", [(packed(first), True)])
        return Settings(*record)

    async def set_settings(self, settings: Settings) -> None:
        await self._durable_writer.call("settings", [(packed(settings), False)])

    # --- revoked tokens

    async def revoke(self, batch: Sequence[Revocation]) -> None:
        # All revocations are in one frame, so that the writer records none if there are too many. (A frame has room for
        # 30,000.)
        await self._durable_writer.call("revoke", [(self._wall_clock(), [list(one) for one in batch])])

    async def revocations(self) -> list[Revocation]:
        with self._reading(Lane.DURABLE, None) as (txn, _):
            return revocations_in(txn)

    @property
    def lost(self) -> bool:
        """Return whether other processes no longer find this process's store in the directory."""
        return self._lost

    def _look_at_files(self) -> None:
        """Raise ``StoreLost`` if other processes no longer find this process's files in the directory. Every heartbeat
        and every expiry walk calls this, so that an idle endpoint notices as well. It takes two system calls for each
        lane."""
        for writer in self._writers.values():
            if writer.lost is not None:
                raise writer.lost
        for lane, opened in self._opened.items():
            path = self._directory / lane
            try:
                opened.size = require_same(path, opened.files, opened.size)
            except OSError as error:
                raise StoreUnavailable(f"the embedded store cannot check its files in {path}: {error}") from error
            environment = self._environments[lane]
            try:
                with environment.begin() as txn:
                    confirmed = txn.id()
            except lmdb.Error as error:
                raise StoreUnavailable(f"the embedded store cannot read {path}: {error}") from error
            require_latest(path, environment.env, confirmed)

    def _reading(self, lane: Lane, database: str | None) -> _Reading:
        """Open a read transaction and a cursor on one database. Never hold these across an ``await``. If ``database``
        is ``None``, the cursor is on the unnamed database, which has the layout."""
        environment = self._environments.get(lane)
        if environment is None:
            raise StoreUnavailable(NOT_OPEN)
        return _Reading(environment, None if database is None else environment.db[database])

    def _database(self, lane: Lane, name: str) -> Any:
        return self._environments[lane].db[name]

    # Every small read calls `_holds`, and every subscribe calls `_stamp`. Neither of the two uses `_reading`, which
    # would make them take 1.5 times as long.

    def _holds(self, lane: Lane, database: str) -> bool:
        """Return whether the database has any entry. For example, ``ended`` is usually empty."""
        environment = self._environments.get(lane)
        if environment is None:
            if self._is_without_soft:
                return False
            raise StoreUnavailable(NOT_OPEN)
        try:
            txn = environment.begin(environment.db[database])
            try:
                return txn.cursor().first()
            finally:
                txn.abort()  # this also closes its cursors
        except lmdb.Error as error:
            raise _explained(environment, error) from error

    def _stamp(self, lane: Lane) -> int:
        """Return the greatest stamp that the lane has given a term."""
        environment = self._environments.get(lane)
        if environment is None:
            raise StoreUnavailable(NOT_OPEN)
        try:
            txn = environment.begin()
            try:
                return stamp_in(txn)
            finally:
                txn.abort()
        except lmdb.Error as error:
            raise _explained(environment, error) from error

    @property
    def _is_without_soft(self) -> bool:
        """Return whether this store is read-only and has no soft environment, because no endpoint has created one since
        the boot."""
        return self._read_only and Lane.SOFT not in self._environments and Lane.DURABLE in self._environments


class _Reading:
    """A context manager for a read transaction and a cursor. It is a class because a generator would double the time of
    a small read."""

    __slots__ = ("_database", "_environment", "_txn")

    def __init__(self, environment: Environment, database: Any) -> None:
        self._environment, self._database = environment, database

    def __enter__(self) -> tuple[lmdb.Transaction, lmdb.Cursor]:
        try:
            self._txn = self._environment.begin(self._database)
        except lmdb.Error as error:
            raise _explained(self._environment, error) from error
        try:
            return self._txn, self._txn.cursor()
        except lmdb.Error as error:
            self._txn.abort()
            raise _explained(self._environment, error) from error

    def __exit__(self, _: object, error: BaseException | None, traceback: object) -> None:
        self._txn.abort()  # this also closes its cursors
        if error is not None and isinstance(error, (lmdb.Error, ValueError, TypeError)):
            raise _explained(self._environment, error) from error


def _explained(environment: Environment, error: Exception) -> StoreError:
    """Return the error that explains a failed read."""
    what = "cannot read" if isinstance(error, lmdb.ReadersFullError) else "found damage in"
    todo = "" if isinstance(error, lmdb.ReadersFullError) else f". Stop every endpoint of this store; {RESTORE}"
    return StoreError(f"the embedded store {what} {Path(environment.env.path()) / 'data.mdb'}: {error}{todo}")


class _Opened:
    """The files of a lane, as the last check found them."""

    def __init__(self, files: Files, size: int) -> None:
        self.files, self.size = files, size  # LMDB never shrinks a file


def _parts(items: Sequence[Any]) -> Iterator[list[Any]]:
    """Split the items into parts that fit a frame."""
    for start in range(0, len(items), FRAME_ITEMS):
        yield list(items[start : start + FRAME_ITEMS])


def _require_positive(limit: int) -> None:
    if limit < 1:
        raise ValueError(f"limit {limit} is not positive")


# A process must not open a file twice with LMDB, because closing one of the two would release the locks of both. So the
# stores of one process share an open environment. The key of this map is the file (device and inode). It is not the
# file's name, because another file can have that name by now.
_shared: dict[tuple[int, int], tuple[Environment, int]] = {}


def _share(directory: Path, lane: Lane, map_size_bytes: int) -> Environment:
    try:
        environment, users = _shared.get(_file_of(directory / lane)) or (
            open_for_reading(directory, lane, map_size_bytes),
            0,
        )
    except (OSError, lmdb.Error) as error:
        raise StoreMisconfigured(
            f"the embedded store cannot read the directory {directory}: {error}. Is this the store's directory "
            "(lmdb:DIR)? The first endpoint that starts makes a store; readers need write access to its lock.mdb files"
        ) from error
    _shared[_file_of(directory / lane)] = environment, users + 1
    return environment


def _give_back(environment: Environment) -> None:
    key = next(key for key, (shared, _) in _shared.items() if shared is environment)
    users = _shared[key][1] - 1
    if users:
        _shared[key] = environment, users
    else:
        del _shared[key]
        environment.env.close()


def _file_of(path: Path) -> tuple[int, int]:
    found = (path / "data.mdb").stat()
    return found.st_dev, found.st_ino
