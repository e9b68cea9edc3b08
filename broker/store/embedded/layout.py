"""The layout of the embedded store on disk, and the frames between an endpoint and its writer processes.

Owns: everything on which the reading side (``store.py``) and the writing side (``writer.py``) must agree: the
directory's files, the databases and their keys and values, the layout's number, and the framing. Must never: begin its
own transactions after ``prepare`` has returned, or import asyncio (without asyncio, a writer starts in a twentieth of a
second).

::

    DIR/durable/   data.mdb, lock.mdb    synced at every commit: it survives a power cut
    DIR/soft/      data.mdb, lock.mdb    never synced: it survives kill -9, and is void after a reboot
    Both have subscriptions (``subscriptions.py`` says which lane has which), in five databases:
        subscribers  hash of topic  -> client ids; with filters: FF, client id, FF, hash of the filter  (sorted)
        topics_of    hash of client -> hashes of topics      (sorted, of fixed size)
        texts        hash of topic  -> topic                 (while it has a subscription)
        filters      hash of a filter -> number of subscriptions with the filter (8 bytes), then its text
        terms        slot, hash of topic, hash of client, hash of the filter or nothing
                                    -> [client id, topic, filter or nil, disconnect, ends_at, stamp]
    The soft environment also has:
        locations    client id      -> [number, incarnation, online]
        registry     hash of name   -> [name, incarnation, url, heartbeat]
        seen         payload hash   -> expiry, in seconds of the machine's monotonic clock
        ended        client id      -> time of the last end (Unix ms, 8 bytes), then
                                       [count, [[topic, filter or nil, stamp], ...]]
        kept         slot, stamp (8 bytes)              -> [topic, payload, origin, number, expiry (Unix s)]
        kept_floors  slot           -> stamp (8 bytes) from which on the slot is complete; FF…: nowhere complete
        kept_about   `top`          -> the greatest stamp (8 bytes); `lines` -> [[epoch, its last stamp or nil], ...]
        boot_id      (a file) id of the boot to which the environment belongs; another boot empties it
    Each environment also has the file `gate`. Locks on this file form the queue for the write lock and show its holder.
    DIR/made       notes that the durable environment was created (``files.py``)

Only one user has access: directories have mode 700, files 600.

Every subscription is in ``subscribers`` (``now.py`` describes the entries). A subscription with a term is also in
``terms``, where expiry finds it without reading other subscriptions. The databases ``kept``, ``kept_floors`` and
``kept_about`` are the journal of retained messages (``journal.py``).

The hashes are those of ``ingeborg.protocol.hashes.digest``. Keys have the hash of a topic instead of the topic, because
an LMDB key can have at most 511 bytes, but a topic can have 1,024. The unnamed database of each environment has the
entry ``layout``: the program, and the number of its layout. As soon as a subscription has had a term, this database
also has the entry ``stamp``: the greatest stamp that the lane has assigned (8 bytes). The durable environment's unnamed
database also has the following entries, unless they are empty. (They are not in the soft one, because a reboot empties
it.)

    features     names, separated by blanks (``features.py``)
    settings     [replication, history] of the cluster
    revocations  [[claim, value, issued until, expires at], …] of revoked tokens
"""

from __future__ import annotations

import enum
import errno
import fcntl
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, cast

import lmdb
import ormsgpack

from ingeborg.broker.store import revocations, settings
from ingeborg.broker.store.base import (
    Revocation,
    Settings,
    StoreError,
    StoreLost,
    StoreMisconfigured,
    StoreUnavailable,
    Subscription,
    Superseded,
    TooManyFilters,
    TooManyRevocations,
)
from ingeborg.broker.store.embedded import files
from ingeborg.broker.store.embedded.files import Damaged, Files
from ingeborg.broker.store.features import require_known

LAYOUT_NAME = b"ingeborg embedded store"
LAYOUT_NUMBER = 5

DEFAULT_MAP_SIZE_BYTES = 64 << 30
"""The default size of an environment's map. It reserves only address space: the file grows as data is written. A
billion subscriptions need about this size."""

MAX_READERS = 1024
"""The number of reader slots of each environment, with 64 bytes each. A process takes one slot, so this is the number
of processes that can share the directory. LMDB's default of 126 would allow only 42 endpoints with two writers each."""

LOCK_FILE_BYTES = (MAX_READERS + 2) * 64
"""Size of LMDB's ``lock.mdb``: one slot for each reader, and a header of the size of two slots."""

_BOOT_ID = re.compile(rb"[0-9A-Fa-f-]{36}")
"""A valid boot id."""

STAMP_BYTES = 8

FRAME_ITEMS = 1024
"""The number of subscriptions, clients or hashes per frame. A frame takes 1-4 ms to write, and concurrent callers take
turns frame by frame."""

FILTER_ITEMS = 8
"""In a frame, an item with a filter counts as this many items, because it has more bytes and takes longer to write."""

LARGE_ROWS = 128
"""If a call has at least this many subscriptions, its frames wait for the writer's next run instead of the next commit.
All frames of a call are handled in the same way, so that the writer keeps their order."""

FRAME_BYTES_MAX = 4 << 20
"""The largest size of a frame. A frame of ``FRAME_ITEMS`` topics of 1,024 bytes, each for a client id of 128 bytes, has
1.2 MB. A frame beyond this limit is a bug."""


class Lane(enum.StrEnum):
    """One LMDB environment and the writer process that writes it."""

    DURABLE = "durable"
    SOFT = "soft"


_OF_SUBSCRIPTIONS: dict[str, dict[str, bool]] = {
    "subscribers": {"dupsort": True},
    "topics_of": {"dupsort": True, "dupfixed": True},
    "texts": {},
    "filters": {},
    "terms": {},
}

DATABASES: dict[Lane, dict[str, dict[str, bool]]] = {
    Lane.DURABLE: _OF_SUBSCRIPTIONS,
    Lane.SOFT: {
        **_OF_SUBSCRIPTIONS,
        "locations": {},
        "registry": {},
        "seen": {},
        "ended": {},
        "kept": {},
        "kept_floors": {},
        "kept_about": {},
    },
}


# --- environments ------------------------------------------------------------------------------------------------


class Environment:
    """An open LMDB environment and its databases, indexed by name."""

    def __init__(self, env: lmdb.Environment, lane: Lane) -> None:
        """Open the databases that ``prepare`` created. This waits for the write lock if ``env`` can write."""
        self.env = env
        self.db: dict[str, Any] = {
            name: env.open_db(name.encode(), None, create=False, **flags) for name, flags in DATABASES[lane].items()
        }

    def begin(self, db: Any = None, *, write: bool = False) -> lmdb.Transaction:
        """Begin a transaction. This also works if another process has enlarged the map."""
        try:
            return self.env.begin(db, None, write)  # positional arguments: keywords would take 1.5 times as long
        except lmdb.MapResizedError:
            self.env.set_mapsize(0)  # adopt the file's current size
            return self.env.begin(db, write=write)


def open_for_reading(directory: Path, lane: Lane, map_size_bytes: int) -> Environment:
    """Open an environment, which a writer has prepared, for reading only. This call cannot take the write lock, so it
    never waits for the lock. Raises ``StoreMisconfigured`` if the environment is damaged, or has data of another
    program or layout.
    """
    data = directory / lane / "data.mdb"
    try:
        is_whole = files.require_whole(data)
    except Damaged as error:
        raise Damaged(f"{error}. Stop every endpoint of this store; {files.RESTORE}") from None
    if not is_whole:
        raise StoreMisconfigured(f"there is no store in {directory}: {data} does not exist, or is empty")
    env = lmdb.open(
        str(directory / lane),
        readonly=True,
        create=False,
        mode=files.PRIVATE_FILE,  # the mode of lock.mdb, if LMDB has to create it
        map_size=map_size_bytes,
        max_dbs=len(DATABASES[lane]),
        max_readers=MAX_READERS,
    )
    try:
        with env.begin() as txn:
            require_known(_features_of(txn, lane, directory), f"the store in {directory}")
        return Environment(env, lane)
    except BaseException:
        env.close()
        raise


class Gate:
    """The queue for an environment's write lock. It is a file that a process locks before it waits for the write lock,
    and all processes share it.

    LMDB's lock is not fair. In a measurement with two processes that wrote all the time, a third process waited for 1.8
    s without the gate, and for only 12 ms with it (docs/adr/0002). A process always takes the gate before the write
    lock, and releases the gate when it has the write lock.
    """

    def __init__(self, directory: Path, lane: Lane) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(directory / lane / "gate", flags, files.PRIVATE_FILE)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Wait in the queue, and hold the gate in the block. If a process dies meanwhile, the kernel releases its lock
        on the file."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    @contextmanager
    def signed(self) -> Iterator[None]:
        """In the block, let ``lock_holder`` find this process, which has the write lock."""
        # This is a kernel lock, because writing the process id to the file could wait for the disk. If the system
        # refuses the lock, messages for operators lack this process's id, but the write can still succeed.
        pid = os.getpid()
        with suppress(OSError):
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, pid)
        try:
            yield
        finally:
            with suppress(OSError):
                fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, pid)


_FLOCK = struct.Struct("hhqqi4x")
"""The kernel's ``struct flock`` on 64-bit Linux: type, whence, start, length, process."""


def lock_holder(directory: Path, lane: Lane) -> int | None:
    """Return the other process that has the write lock of a lane. Return ``None`` if no other process has the lock, or
    if the system does not say which process has it. This does not access the disk."""
    if sys.platform != "linux":
        return None
    try:
        fd = os.open(directory / lane / "gate", os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 1, 0, 0)  # from byte 1 to the end
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    except OSError:
        return None
    finally:
        os.close(fd)
    return pid if kind != fcntl.F_UNLCK and pid > 0 else None


def boot_id() -> str:
    """Return the id of the machine's current boot. Raises ``StoreMisconfigured`` if the system does not have such an
    id."""
    try:
        if sys.platform == "darwin":
            asked = subprocess.run(["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, timeout=5)
            found = asked.stdout.decode().strip()
        else:
            found = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (OSError, subprocess.SubprocessError) as error:
        raise StoreMisconfigured(f"the embedded store cannot read the machine's boot id: {error}") from error
    if not found:
        raise StoreMisconfigured("the embedded store needs the machine's boot id, and this system has none")
    return found


class Prepared(NamedTuple):
    """An environment to write to. ``files`` identifies the opened files. ``notes`` are sentences for the operator."""

    environment: Environment
    gate: Gate
    files: Files
    notes: list[str]


def prepare(directory: Path, lane: Lane, map_size_bytes: int, opened: Files | None = None) -> Prepared:
    """Create or check one environment, and open it for writing. Raises ``StoreMisconfigured`` if that fails.

    ``opened`` identifies the files that the endpoint already has open, if any. With ``opened``, this creates nothing,
    and raises ``StoreLost`` if it finds other files. Call this in a writer process, because it takes the gate and the
    write lock.
    """
    path = directory / lane
    notes: list[str] = []
    try:
        if opened is None:
            files.make_directory(directory)
            files.make_directory(path)
        else:
            files.require_same(path, opened)
        loose = files.make_root_private(directory) if lane is Lane.DURABLE else []
        loose += files.make_private(path)
        if loose:
            notes.append(f"other users of this machine could open {', '.join(loose)}; now only the owner can")
        gate = Gate(directory, lane)
        with gate.held():
            if opened is not None:
                files.require_same(path, opened)
            notes += _empty_after_reboot(path) if lane is Lane.SOFT else []
            notes += _make_way(directory, lane, path / "data.mdb")
            files.reserve_lock_file(path, LOCK_FILE_BYTES)
            env = lmdb.open(
                str(path),
                map_size=map_size_bytes,
                max_dbs=len(DATABASES[lane]),
                max_readers=MAX_READERS,
                sync=lane is Lane.DURABLE,
                mode=files.PRIVATE_FILE,
            )
            env.reader_check()  # free the slots of killed processes
            features = _check_layout(env, lane, directory)
            # Check the features only in an endpoint's first writer. When a later writer replaces it, the endpoint is
            # already running, and cannot work without a writer.
            if opened is None:
                require_known(features, f"the store in {directory}")
            if lane is Lane.DURABLE and not files.is_made(directory):
                files.note_made(directory)
            files.make_private(path)  # new files got their modes from the umask
            return Prepared(Environment(env, lane), gate, files.files_at(path)[0], notes)
    except lmdb.MemoryError as error:
        raise StoreMisconfigured(
            f"the embedded store cannot map {map_size_bytes:,} bytes of address space ({error}): "
            "set a smaller map size, or raise the limit on address space (ulimit -v)"
        ) from error
    except (OSError, lmdb.Error) as error:
        raise _unusable(directory, path, error) from error


def _unusable(directory: Path, path: Path, error: Exception) -> StoreMisconfigured:
    """Return an error that explains why the directory is unusable."""
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, lmdb.DiskError) or number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        there = next(place for place in (path, *path.parents) if place.exists())
        return StoreMisconfigured(f"the embedded store cannot write {path}: {files.why_not_written(there, error)}")
    if isinstance(error, lmdb.InvalidError | lmdb.CorruptedError | lmdb.PageNotFoundError):
        return Damaged(f"{path / 'data.mdb'} is damaged ({error}): {files.RESTORE}")
    return StoreMisconfigured(
        f"the embedded store cannot use the directory {directory}: {error}. Use a directory on a local disk that "
        "this user can write to, and that is empty or was made by this program"
    )


def _make_way(directory: Path, lane: Lane, data: Path) -> list[str]:
    """Make sure that ``data.mdb`` is either intact or absent, so that LMDB can open or create it. Return notes about
    any changes."""
    try:
        if files.require_whole(data):
            return []
        what = f"{data} is {'empty' if data.exists() else 'not there'}"
        in_use = files.is_in_use(data.parent)
    except Damaged as error:
        if not files.regular_file(data):
            raise
        what, in_use = str(error), files.is_in_use(data.parent)
        if lane is Lane.DURABLE:
            raise Damaged(f"{what}. Stop every endpoint of this store; {files.RESTORE}") from None
        if not in_use:
            _remove(data.parent)
            text = "no endpoint was using this file, so the store has made a new one"
            lost = "retained messages, subscriptions until disconnect and notes of ended subscriptions"
            return [f"{what}; {text}, and only these are lost: {lost}"]
    if in_use:
        raise Damaged(f"{what}, though a process has it open: stop every endpoint of {directory}, and start again")
    if lane is Lane.DURABLE and files.is_made(directory):
        raise Damaged(
            f"{what}, though a store was made here. Restore it from a backup; or, to begin with an empty store (into "
            f"which `ingeborg import` can read an export), remove {directory / files.MADE}"
        )
    _remove(data.parent)  # these files are from an interrupted creation
    return []


def _remove(path: Path) -> None:
    for name in ("data.mdb", "lock.mdb"):
        (path / name).unlink(missing_ok=True)


def of_this_boot(directory: Path) -> bool:
    """Return whether the soft environment exists and belongs to this boot. An environment from an earlier boot is
    void."""
    mark = directory / Lane.SOFT / "boot_id"
    return files.regular_file(mark) is not None and mark.read_bytes() == boot_id().encode()


def _empty_after_reboot(soft: Path) -> list[str]:
    """Remove a soft environment of an earlier boot before LMDB opens it, because pages may be incomplete without a
    sync. Return notes for the operator."""
    mark, current = soft / "boot_id", boot_id().encode()
    found = None
    if files.regular_file(mark) is not None:
        found = mark.read_bytes()
        if found == current:
            return []
    notes = []
    # No process survives a reboot. So if a process has the environment open, it belongs to this boot, even if the mark
    # differs.
    if files.is_in_use(soft):
        notes.append(f"{mark} was damaged or removed while the store is in use: the store has written it again")
    else:
        _remove(soft)
        if found is not None and not _BOOT_ID.fullmatch(found):
            text = (
                "locations of clients, retained messages and subscriptions until disconnect are lost, as after a reboot"
            )
            notes.append(f"{mark} was damaged: {text}")
    # Replace the mark atomically, because half a mark would look like that of another boot.
    draft = soft / "boot_id.new"
    draft.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, files.PRIVATE_FILE), "wb") as file:
            file.write(current)
        draft.replace(mark)
    finally:
        draft.unlink(missing_ok=True)
    return notes


def _check_layout(env: lmdb.Environment, lane: Lane, directory: Path) -> frozenset[str]:
    """Return the features of an environment. Raises ``StoreMisconfigured`` if its layout is not this version's. A new
    environment gets this version's layout, and has no features."""
    with env.begin() as txn:
        if txn.stat()["entries"]:
            return _features_of(txn, lane, directory)
    with env.begin(write=True) as txn:
        txn.put(b"layout", b"%s %d" % (LAYOUT_NAME, LAYOUT_NUMBER))
        for name, flags in DATABASES[lane].items():
            env.open_db(name.encode(), txn=txn, **flags)
    return frozenset()


def _features_of(txn: lmdb.Transaction, lane: Lane, directory: Path) -> frozenset[str]:
    """Return the recorded features. Raises ``StoreMisconfigured`` if the layout is not this version's."""
    program, _, number = bytes(cast(bytes, txn.get(b"layout", b""))).rpartition(b" ")
    if program != LAYOUT_NAME or not number.isdigit():
        raise StoreMisconfigured(
            f"{directory / lane} holds an LMDB environment of another program; give the store its own directory"
        )
    if int(number) != LAYOUT_NUMBER:
        raise StoreMisconfigured(
            f"{directory / lane} has layout {int(number)}, and this version reads layout {LAYOUT_NUMBER} only: export "
            "the store with the version that wrote it, and import the export into an empty store (`ingeborg export`, "
            "`ingeborg import`)"
        )
    return frozenset(bytes(cast(bytes, txn.get(b"features", b""))).decode("ascii", "replace").split())


def settings_in(txn: lmdb.Transaction) -> Settings | None:
    """Return the recorded settings. Raises ``ValueError`` if the record is invalid."""
    packed = txn.get(b"settings")
    return None if packed is None else settings.unpacked(ormsgpack.unpackb(packed))


def record_settings(txn: lmdb.Transaction, record: Sequence[Any]) -> None:
    """Replace the record of settings."""
    txn.put(b"settings", ormsgpack.packb(record))


def revocations_in(txn: lmdb.Transaction) -> list[Revocation]:
    """Return the recorded revocations. Raises ``ValueError`` if the record is invalid."""
    packed = txn.get(b"revocations")
    return [] if packed is None else revocations.unpacked(ormsgpack.unpackb(packed))


def record_revocations(txn: lmdb.Transaction, revoked: Sequence[Revocation]) -> None:
    """Replace the recorded revocations."""
    txn.put(b"revocations", ormsgpack.packb([list(revocation) for revocation in revoked]))


def stamp_in(txn: lmdb.Transaction) -> int:
    """Return the greatest stamp that the lane has given a term, or 0 if there is none."""
    return int.from_bytes(cast(bytes, txn.get(b"stamp", b"")), "big")


def record_stamp(txn: lmdb.Transaction, stamp: int) -> None:
    """Record the greatest stamp that the lane has given a term."""
    txn.put(b"stamp", stamp.to_bytes(STAMP_BYTES, "big"))


# --- frames ------------------------------------------------------------------------------------------------------
#
# The endpoint sends [number, operation, argument]. The writer answers each frame, in any order, with [number, outcome,
# results]. The outcome is "" or the name of an error. For an error, the results are replaced by its message.

GREETING = -1
"""Number of the writer's first frame, which says that the writer is ready, or why it is not."""

PROGRESS = -2
"""Number of the frames that report progress: a commit that did not complete any frame."""

LAST_WORDS = -3
"""Number of the last frame of a writer that has to end. The results say why."""

ERRORS: dict[str, type[StoreError]] = {
    error.__name__: error
    for error in (
        StoreError,
        StoreUnavailable,
        StoreMisconfigured,
        Damaged,
        StoreLost,
        Superseded,
        TooManyFilters,
        TooManyRevocations,
    )
}

_LENGTH_BYTES = 4


def pack(body: Any) -> bytes:
    """Return one frame: its length in 4 bytes, then the body in MessagePack."""
    packed = ormsgpack.packb(body)
    assert len(packed) <= FRAME_BYTES_MAX, f"frame of {len(packed)} bytes"
    return len(packed).to_bytes(_LENGTH_BYTES, "big") + packed


Group = tuple[Any, list[tuple[str, list[Any]]]]
"""A value that applies to the whole group, and a list of clients, each with its items (topics or subscriptions)."""


def frames_of(rows: Iterable[tuple[Any, str, Sequence[Any], bool]]) -> Iterator[list[Group]]:
    """Split the rows into frames. A row consists of the client, its items, one value for all the items, and whether
    they have filters.

    If a client has many items, they are split over several frames. Neighboring rows with the same value form one group,
    so the value is stored only once, and each topic adds only its own text.
    """
    frame: list[Group] = []
    room = FRAME_ITEMS
    for what, client, items, has_filter in rows:
        weight = FILTER_ITEMS if has_filter else 1
        start = 0
        while start < len(items):
            if room < weight:
                yield frame
                frame, room = [], FRAME_ITEMS
            part = list(items[start : start + room // weight])
            if not frame or frame[-1][0] != what:
                frame.append((what, []))
            frame[-1][1].append((client, part))
            start += len(part)
            room -= len(part) * weight
    if frame:
        yield frame


def frames_of_subscriptions(rows: Iterable[tuple[Any, Subscription]]) -> Iterator[list[Group]]:
    """Split the rows into frames. A row has a value and a subscription, which a frame represents by its topic, filter
    and stamp. Neighboring subscriptions of one client with the same value share one entry."""
    entries = (
        (what, client, [one for _, one in same])
        for (what, client), same in groupby(rows, key=lambda row: (row[0], row[1].client))
    )
    return frames_of(
        (
            what,
            client,
            [(one.topic, one.filter, one.stamp) for one in mine],
            any(one.filter is not None for one in mine),
        )
        for what, client, mine in entries
    )


class Unpacker:
    """Reassembles frames from a socket's bytes. It holds at most one incomplete frame between calls."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """Return the bodies that are now complete."""
        self._rest += data
        bodies, start = [], 0
        while len(self._rest) - start >= _LENGTH_BYTES:
            body_start = start + _LENGTH_BYTES
            end = body_start + int.from_bytes(self._rest[start:body_start], "big")
            assert end - body_start <= FRAME_BYTES_MAX, f"frame of {end - body_start} bytes"
            if len(self._rest) < end:
                break
            bodies.append(ormsgpack.unpackb(bytes(self._rest[body_start:end])))
            start = end
        del self._rest[:start]
        return bodies
