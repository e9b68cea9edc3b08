"""A writer's commits. The test plays the parent, and failures come at the worst moment."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
import pytest

from ingeborg.broker.store.embedded.layout import (
    LARGE_ROWS,
    PROGRESS,
    Environment,
    Gate,
    Lane,
    Unpacker,
    lock_holder,
    pack,
    prepare,
)
from ingeborg.broker.store.embedded.subscription_operations import STEP_ROWS, Run
from ingeborg.broker.store.embedded.writer import ParentGone, Writer

MAP_BYTES = 64 << 20
LARGE = [f"song {index}" for index in range(3 * STEP_ROWS)]


class Parent:
    """Sends frames and reads replies."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._unpacker = connection, Unpacker()
        connection.settimeout(10)

    def send(self, *frames: tuple[int, str, Any]) -> None:
        """Send all frames in one piece, so that the writer gets them together."""
        self._connection.sendall(b"".join(map(pack, frames)))

    def replies(self, count: int) -> dict[int, tuple[str, Any]]:
        """Return ``count`` replies by number, without progress reports."""
        found: dict[int, tuple[str, Any]] = {}
        while len(found) < count:
            for number, outcome, results in self._unpacker.feed(self._connection.recv(1 << 16)):
                if number != PROGRESS:
                    found[number] = outcome, results
        return found


@contextmanager
def writing(directory: Path, lane: Lane = Lane.DURABLE) -> Iterator[tuple[Parent, Environment]]:
    """Run a writer in a thread; yield its parent, and the environment that it writes to."""
    prepared = prepare(directory, lane, MAP_BYTES)
    environment = prepared.environment
    ours, theirs = socket.socketpair()
    writer = Writer(directory, lane, MAP_BYTES, prepared, (theirs, os.getppid()))
    thread = threading.Thread(target=writer.serve)
    thread.start()
    try:
        with ours, theirs:
            yield Parent(ours), environment
            ours.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            assert not thread.is_alive(), "the writer did not end when its parent hung up"
    finally:
        environment.env.close()


def rows(*pairs: tuple[str, list[str]]) -> tuple[bool, int, list[Any]]:
    """Return an argument of ``subscribe`` or ``unsubscribe``, for clients and topics."""
    return sum(len(topics) for _, topics in pairs) >= LARGE_ROWS, 0, [(None, pairs)]


def done(replies: dict[int, tuple[str, Any]]) -> bool:
    """Return whether no reply is a failure."""
    return all(not outcome for outcome, _ in replies.values())


def entries(environment: Environment, database: str) -> int:
    """Return the number of entries."""
    with environment.begin() as txn:
        return int(txn.stat(environment.db[database])["entries"])


def test_what_shares_a_transaction_with_a_failure_is_done_again_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, failures = Run.step, iter([lmdb.MapFullError("played")])

    def fails_once_after_writing(self: Run, txn: lmdb.Transaction) -> None:
        step(self, txn)
        for failure in failures:
            raise failure

    monkeypatch.setattr(Run, "step", fails_once_after_writing)
    with writing(tmp_path) as (parent, environment):
        parent.send((1, "subscribe", rows(("ann", ["rock"]))), (2, "subscribe", rows(("bob", LARGE))))
        assert done(parent.replies(2))
        assert entries(environment, "subscribers") == entries(environment, "topics_of") == len(LARGE) + 1


def test_a_run_that_cannot_be_written_fails_each_of_its_frames_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Run, txn: lmdb.Transaction) -> None:
        raise lmdb.MapFullError("played")

    with writing(tmp_path) as (parent, environment):
        with monkeypatch.context() as patched:
            patched.setattr(Run, "step", fails)
            parent.send(
                (1, "subscribe", rows(("ann", LARGE))),
                (2, "subscribe", rows(("bob", LARGE))),
                (3, "subscribe", rows(("cid", ["rock"]))),
            )
            replies = parent.replies(3)
        assert [replies[number][0] for number in (1, 2, 3)] == ["StoreError", "StoreError", ""]
        assert entries(environment, "subscribers") == 1
        parent.send((4, "subscribe", rows(("ann", LARGE))))
        assert done(parent.replies(1))


def test_large_frames_of_both_operations_are_each_done(tmp_path: Path) -> None:
    with writing(tmp_path) as (parent, environment):
        parent.send((1, "subscribe", rows(("ann", LARGE), ("bob", LARGE))))
        assert done(parent.replies(1))
        parent.send(
            (2, "unsubscribe", rows(("ann", LARGE))),
            (3, "subscribe", rows(("cid", LARGE[:200]))),
            (4, "unsubscribe", rows(("bob", LARGE))),
        )
        assert done(parent.replies(3))
        assert entries(environment, "subscribers") == entries(environment, "texts") == 200


def test_a_refused_frame_leaves_the_others_of_its_transaction(tmp_path: Path) -> None:
    with writing(tmp_path, Lane.SOFT) as (parent, environment):
        parent.send(
            (1, "register", ("e", "new", "ws://127.0.0.1:1", 0)),
            (2, "heartbeat", ("e", "old", "ws://127.0.0.1:2", 9)),
            (3, "listen", [("ann", 5, "i"), ("ann", 4, "i")]),
        )
        replies = parent.replies(3)
        assert [replies[number][0] for number in (1, 2, 3)] == ["", "Superseded", ""]
        assert entries(environment, "registry") == entries(environment, "locations") == 1


def test_an_orphan_applies_nothing(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, Lane.DURABLE, MAP_BYTES)
    environment = prepared.environment
    ours, theirs = socket.socketpair()
    with ours, theirs, environment.env:
        writer = Writer(tmp_path, Lane.DURABLE, MAP_BYTES, prepared, (theirs, os.getppid() + 1))
        Parent(ours).send((1, "unsubscribe", rows(("ann", ["rock"]))))
        with pytest.raises(ParentGone):
            writer.serve()
        with environment.begin(write=True):  # which shows that it holds no lock
            pass


def test_who_has_the_write_lock_is_known_to_other_processes_and_only_while_it_has_it(tmp_path: Path) -> None:
    with writing(tmp_path) as (parent, _):
        gate = Gate(tmp_path, Lane.DURABLE)
        with gate.signed():
            assert holder_seen_by_another(tmp_path) == os.getpid()
            assert lock_holder(tmp_path, Lane.DURABLE) is None  # it reports only other processes
        assert holder_seen_by_another(tmp_path) is None
        parent.send((1, "subscribe", rows(("ann", ["rock"]))))
        assert done(parent.replies(1))
        assert holder_seen_by_another(tmp_path) is None
    assert lock_holder(tmp_path / "nothing", Lane.DURABLE) is None


def holder_seen_by_another(directory: Path) -> int | None:
    """Return which process holds the write lock, as another process sees it."""
    code = (
        "import sys, pathlib; from ingeborg.broker.store.embedded.layout import Lane, lock_holder; "
        "print(lock_holder(pathlib.Path(sys.argv[1]), Lane.DURABLE))"
    )
    asked = subprocess.run([sys.executable, "-c", code, str(directory)], capture_output=True, text=True, check=True)
    return None if asked.stdout.strip() == "None" else int(asked.stdout)


def test_only_the_durable_environment_is_synced_at_every_commit(tmp_path: Path) -> None:
    synced = {}
    for lane in Lane:
        environment = prepare(tmp_path, lane, MAP_BYTES).environment
        with environment.env as env:
            synced[lane] = (env.flags()["sync"], env.flags()["metasync"])
    assert synced == {Lane.DURABLE: (True, True), Lane.SOFT: (False, True)}


def test_a_writer_does_not_import_asyncio() -> None:
    """With asyncio it would start a fifth slower, and each endpoint starts two writers."""
    said = "import sys, ingeborg.broker.store.embedded.writer; print('asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr
