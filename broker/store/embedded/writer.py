"""A writer process of the embedded store: ``python -m ingeborg.broker.store.embedded.writer DIR durable|soft
MAP_SIZE_BYTES FD [FILES]``. ``FD`` is a pipe into which Python writes a report if a signal kills the endpoint
(``faulthandler``), or -1. A writer that replaces another one also gets ``FILES`` (``device:inode:inode``), which
identifies the files that the endpoint has open. If it finds other files, it exits.

Owns: every write to one LMDB environment on behalf of one endpoint process. The endpoint is the writer's parent, and
sends frames (``layout.py``) over the socket that is the writer's standard input. The writer commits in groups: it
writes received frames for at most ``CHUNK_S``, commits, and only then acknowledges. Between two commits, the writers of
other processes can get the lock. Small frames go into the next commit. Large frames go into sorted runs, each over many
commits (``subscription_operations.py``). A writer has one thread, and each environment has its own writer process,
because two writing threads would compete for the GIL (docs/adr/0002). Must never: outlive its parent (it exits when the
socket is closed), acknowledge before the commit, or apply a frame after its parent has died.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import lmdb

from ingeborg.broker.store.base import StoreError, StoreLost, StoreUnavailable
from ingeborg.broker.store.embedded.files import RESTORE, Files, require_latest, require_same, why_not_written
from ingeborg.broker.store.embedded.layout import (
    GREETING,
    LAST_WORDS,
    PROGRESS,
    Group,
    Lane,
    Prepared,
    Unpacker,
    pack,
    prepare,
)
from ingeborg.broker.store.embedded.operations import operations
from ingeborg.broker.store.embedded.subscription_operations import Run, Subscriptions

CHUNK_S = 0.01
"""For how long one transaction accepts more frames. A write of another process may have to wait for this time, plus the
time of the commit."""

RECEIVE_BYTES = 1 << 18

DEATH_BYTES_MAX = 1 << 16
"""The capacity of a pipe (pipe(7)). The report of a stack takes about 2,000 bytes."""

OF_SUBSCRIPTIONS = frozenset(("subscribe", "unsubscribe"))
"""Operations whose large frames wait for the next run (``Run``) instead of the next commit. Their arguments begin with
a flag that says whether the frame is large, and end with the groups."""

RUN_ROWS = 125_000
"""A run gets no more frames when it has this many subscriptions. This is half of the endpoint's budget, so the frames
of the next run have arrived when a run is finished."""

GROWING = frozenset(("subscribe", "listen", "seen", "keep"))
"""Operations that the writer refuses when the map is full. The other operations remove data, or write the few entries
of the registry and the layout. But LMDB allocates pages for a changed tree before it frees any, so these other
operations get additional room beyond the map's size."""

RESERVE_BYTES = 16 << 20
"""Size of this additional room. It is several times as much as one transaction can change in ``CHUNK_S``."""

RESERVES_MAX = 16
"""How many times a writer can add this room. Once is not enough, because other endpoints' writers may use it up."""

_DAMAGE = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.BadTxnError, ValueError, TypeError)
"""Errors from LMDB and from decoding. They mean that a page does not have the content that was written."""

Frame = tuple[int, str, Any]  # number, operation, argument
Reply = tuple[int, str, Any]  # number, outcome, results


def main(arguments: list[str]) -> int:
    """Prepare the environment, send the outcome to the parent as a greeting, then write until the parent closes the
    socket."""
    # Ctrl-C and a service manager's SIGTERM reach every process of the service. The endpoint still needs this process
    # while it drains. It ends this process by closing the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    directory, lane, map_size_bytes = Path(arguments[0]), Lane(arguments[1]), int(arguments[2])
    opened = Files(*map(int, arguments[4].split(":"))) if len(arguments) > 4 else None
    parent = os.getppid()
    connection = socket.socket(fileno=0)
    try:
        try:
            prepared = prepare(directory, lane, map_size_bytes, opened)
            writer = Writer(directory, lane, map_size_bytes, prepared, (connection, parent))
        except StoreError as error:
            connection.sendall(pack(_failure(GREETING, error)))
            return 1
        connection.sendall(pack((GREETING, "", [list(prepared.files), prepared.notes])))
        writer.serve()
    except (ConnectionError, ParentGone):
        pass  # the endpoint was killed, so no process waits for the answer
    except lmdb.PanicError as error:
        # This process cannot continue. The endpoint starts another writer, and reports this message to its callers.
        with suppress(ConnectionError):
            connection.sendall(pack((LAST_WORDS, "", why_not_written(directory / lane, error))))
        return 1
    finally:
        if arguments[3] != "-1":
            _tell_of_death(directory, int(arguments[3]))
    return 0


def _tell_of_death(directory: Path, fd: int) -> None:
    """Report why the endpoint died, if it died of a memory fault. The endpoint maps LMDB's files, and could not say
    itself which file failed."""
    os.set_blocking(fd, False)
    with suppress(BlockingIOError):  # the endpoint is alive, or was killed without a report
        if words := os.read(fd, DEATH_BYTES_MAX):
            sys.stderr.write(
                f"{words.decode(errors='replace').rstrip()}\n"
                "ingeborg: the endpoint died as shown above. "
                "If it was reading its store (broker/store/embedded/store.py), "
                f"data.mdb in {directory / Lane.DURABLE} or {directory / Lane.SOFT} is damaged or truncated, or its "
                f"disk fails: run `ingeborg doctor --store lmdb:{directory}` to check both files\n"
            )
            sys.stderr.flush()


class ParentGone(Exception):
    """The endpoint died while this process waited for the write lock."""


class Writer:
    """Reads frames, commits the changes and sends replies."""

    def __init__(
        self, directory: Path, lane: Lane, map_size_bytes: int, prepared: Prepared, link: tuple[socket.socket, int]
    ) -> None:
        """Keep the environment and the connection. ``link`` is the connection to the parent, and the parent's process
        id."""
        environment = prepared.environment
        self._path, self._map_size_bytes = directory / lane, map_size_bytes
        self._environment, self._gate, self._files = environment, prepared.gate, prepared.files
        self._connection, self._parent = link
        self._reserving = False  # whether the map is enlarged by the additional room
        self._settled = -1  # the last transaction of the latest attempt to make room
        self._operations = operations(environment, lane)
        self._subscriptions = Subscriptions(environment)
        self._unpacker = Unpacker()
        # Pending frames. The parent limits their size, because it sends at most its budgets of bytes before it gets
        # acknowledgements.
        self._small: deque[Frame] = deque()
        self._large: deque[Frame] = deque()
        self._run: Run | None = None

    def serve(self) -> None:
        """Serve until the parent closes the socket. Then drop all frames that are not acknowledged."""
        while self._receive():
            if self._run is None and self._large:
                self._run = self._next_run(self._large)
            replies = self._commit(self._small, self._run)
            if self._run is not None and self._run.done:
                self._run = None
            self._connection.sendall(b"".join(map(pack, replies)))

    def _receive(self) -> bool:
        """Read the frames that have arrived, and wait only if none are pending. Return False if the parent has closed
        the socket."""
        while True:
            busy = self._small or self._large or self._run
            try:
                data = self._connection.recv(RECEIVE_BYTES, socket.MSG_DONTWAIT if busy else 0)
            except BlockingIOError:
                return True
            if not data:
                return False
            for number, operation, argument in self._unpacker.feed(data):
                is_large = operation in OF_SUBSCRIPTIONS and argument[0]
                (self._large if is_large else self._small).append((number, operation, argument))

    def _next_run(self, large: deque[Frame]) -> Run:
        """Return a run of the waiting frames, up to the first frame with a different operation. Frames of concurrent
        calls need no order."""
        operation, frames, rows = large[0][1], [], 0
        while large and large[0][1] == operation and rows < RUN_ROWS:
            number, _, (_, above, groups) = large.popleft()
            frames.append((number, above, groups))
            rows += _count(groups)
        return Run(self._subscriptions, operation, frames)

    def _commit(self, small: deque[Frame], run: Run | None) -> list[Reply]:
        """Commit one transaction with as many small frames, and as much of the run, as its time allows. Return the
        replies."""
        taken: list[Frame] = []
        replies: list[Reply] = []
        position = run.position if run else 0
        try:
            with self._begin() as txn:
                until = time.monotonic() + CHUNK_S
                while small and time.monotonic() < until:
                    taken.append(small.popleft())
                    replies.append(self._apply(txn, taken[-1]))
                if run:
                    run.step(txn)  # at least one step, so that small frames do not starve the run
                    while not run.done and time.monotonic() < until:
                        run.step(txn)
        except lmdb.PanicError:
            raise  # this process can no longer use the environment; the endpoint starts another one
        except (lmdb.Error, OSError, StoreLost, ValueError, TypeError) as error:
            # LMDB has rolled back the whole transaction. Possibly only one part has failed, for example because the map
            # is full, so try each part alone.
            if run:
                run.position = position
            if len(taken) + bool(run) > 1:
                alone = [reply for frame in taken for reply in self._commit(deque([frame]), None)]
                return alone + (self._commit(deque(), run) if run else [])
            if isinstance(error, lmdb.MapFullError):
                if (run.operation if run else taken[0][1]) in GROWING:
                    if self._settle():
                        return self._commit(deque(taken), run)
                elif not self._reserving and self._reserve():
                    try:
                        return self._commit(deque(taken), run)
                    finally:
                        self._end_reserve()
            if run:
                run.abandon()
            # If the transaction did not even begin, no frame was taken. Then the first waiting frame fails.
            numbers = run.numbers if run else [(taken or [small.popleft()])[0][0]]
            return [_failure(number, self._explained(error)) for number in numbers]
        if run and run.done:
            replies += [(number, "", run.results) for number in run.numbers]
        elif run:
            replies.append((PROGRESS, "", []))
        return replies

    @contextmanager
    def _begin(self) -> Iterator[lmdb.Transaction]:
        """Begin a transaction. The end of the block commits the transaction, and an error aborts it."""
        with self._gate.held():
            txn = self._environment.begin(write=True)
        with self._gate.signed(), txn:
            if os.getppid() != self._parent:
                # This process may have waited for the lock for a long time, and the writer of a new endpoint may have
                # made newer changes meanwhile.
                raise ParentGone
            require_same(self._path, self._files)  # data that is written to a removed file would be lost
            require_latest(self._path, self._environment.env, txn.id() - 1)
            yield txn

    def _settle(self) -> bool:
        """Make recently freed pages usable. Return whether another attempt is worthwhile. LMDB reuses pages only two
        transactions after it has freed them. As long as the writer refuses every frame, there would be no such
        transactions, so this method makes two."""
        env = self._environment.env
        if env.info()["last_txnid"] == self._settled or not self._reserve():
            return False
        try:
            for _ in range(2):
                with self._begin() as txn:
                    txn.put(b"layout", bytes(cast(bytes, txn.get(b"layout"))))  # unchanged
        except (lmdb.Error, StoreLost, OSError):
            return False  # the frame fails with its own error
        finally:
            self._end_reserve()
        self._settled = env.info()["last_txnid"]
        return True

    def _reserve(self) -> bool:
        """Enlarge the map for operations that free space. Return whether this was possible."""
        env = self._environment.env
        used = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
        if used + RESERVE_BYTES > self._map_size_bytes + RESERVES_MAX * RESERVE_BYTES:
            return False
        env.set_mapsize(max(used, self._map_size_bytes) + RESERVE_BYTES)
        self._reserving = True
        return True

    def _end_reserve(self) -> None:
        self._reserving = False
        self._environment.env.set_mapsize(self._map_size_bytes)  # LMDB keeps at least the space in use

    def _apply(self, txn: lmdb.Transaction, frame: Frame) -> Reply:
        number, operation, argument = frame
        try:
            return number, "", self._operations[operation](txn, argument)
        except StoreError as error:  # raised before the operation writes anything
            return _failure(number, error)

    def _explained(self, error: Exception) -> StoreError:
        """Return the error that explains a failed write."""
        path = self._path
        if isinstance(error, StoreLost):
            return error
        if isinstance(error, lmdb.MapFullError):
            return StoreError(
                f"the embedded store is full: {path / 'data.mdb'} has reached its map size. Restart every endpoint of "
                f"this machine with a larger one (INGEBORG_MAP_SIZE_BYTES={2 * self._map_size_bytes}). Acknowledged "
                "data is safe, and unsubscribing works meanwhile"
            )
        if isinstance(error, _DAMAGE):
            return StoreError(
                f"{path / 'data.mdb'} is damaged ({error}): stop every endpoint of this store, and {RESTORE}"
            )
        return StoreUnavailable(
            f"the embedded store could not write {path}: {why_not_written(path, error)}. Acknowledged data is safe"
        )


def _failure(number: int, error: StoreError) -> Reply:
    return number, type(error).__name__, str(error)


def _count(groups: Sequence[Group]) -> int:
    return sum(len(topics) for _, pairs in groups for _, topics in pairs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
