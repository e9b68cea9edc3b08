"""What only the embedded store promises: processes killed and stopped, full maps and disks, foreign directories."""

from __future__ import annotations

import asyncio
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import lmdb
import pytest
import uvloop

from ingeborg.broker.store.base import Endpoint, StoreError, StoreMisconfigured, StoreUnavailable
from ingeborg.broker.store.embedded import store as embedded
from ingeborg.broker.store.embedded import writer_link
from ingeborg.broker.store.embedded.layout import Lane, open_for_reading, pack, prepare
from ingeborg.broker.store.embedded.operations import operations
from ingeborg.broker.store.embedded.store import LOCATIONS_AT_ONCE, MEMBERS_PER_LOOK, EmbeddedStore
from ingeborg.protocol.hashes import digest
from tests import wants
from tests.store.endless_subscriber import batch_topics

ROOT = Path(__file__).parents[2]
MAP_BYTES = 64 << 20
PATIENCE_S = 60.0  # the disk is one that others use, too
ME = Endpoint("me", "i", "ws://127.0.0.1:9000", 1)


@asynccontextmanager
async def opened(directory: Path, **options: Any) -> AsyncIterator[EmbeddedStore]:
    """An open store, closed in any case."""
    store = EmbeddedStore(directory, **{"timeout_s": PATIENCE_S, **options})
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def at_last(operation: Callable[[], Awaitable[Any]]) -> None:
    """Again until it succeeds: a new writer takes a while to start on a busy machine, and those who wait give up."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await operation()
                return
            except StoreUnavailable:
                continue


def pid_of(store: EmbeddedStore, lane: Lane) -> int:
    """The lane's writer, which is there."""
    pid = store.writer_pids[lane]
    assert pid is not None
    return pid


async def until_ended(pid: int) -> None:
    """Return when the process, child or not, is no more: a commit that it is in may take long on a busy disk."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        poll = select.poll()  # not select(), which knows file descriptors up to 1,023 only
        poll.register(watched, select.POLLIN)
        assert await asyncio.to_thread(poll.poll, PATIENCE_S * 1e3), f"process {pid} lives on"
    finally:
        os.close(watched)


def start(*arguments: str) -> subprocess.Popen[str]:
    """A Python process of this project, its output to be read line by line."""
    return subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT)


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line the process prints."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.endswith("\n"), f"ended with {process.poll()} instead"
    return line


def end(process: subprocess.Popen[str]) -> None:
    """Kill it and forget what it printed."""
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


# --- killed ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batches", [1, 2, 5])
async def test_kill_9_of_an_endpoint_loses_nothing_acknowledged_and_leaves_no_writer(
    tmp_path: Path, batches: int
) -> None:
    # Two processes write to one directory; one is killed in the middle of a batch, the other goes on.
    killed, living = (
        start("-m", "tests.store.endless_subscriber", str(tmp_path), name) for name in ("killed", "living")
    )
    try:
        writers = [int(pid) for pid in line_of(killed).split()]
        line_of(living)
        for _ in range(batches):
            acknowledged = int(line_of(killed))
        killed.kill()
        assert killed.stdout is not None
        acknowledged = max([acknowledged, *map(int, killed.stdout.read().split())])
        for pid in writers:
            await until_ended(pid)
        line_of(living)
        living_acknowledged = int(line_of(living))
        async with opened(tmp_path) as store:
            for client, last in (("killed", acknowledged), ("living", living_acknowledged)):
                for batch in range(last + 1):
                    topics = batch_topics(client, batch)
                    assert await store.subscribers(topics) == [{client}] * len(topics)
    finally:
        end(killed)
        end(living)


async def test_a_killed_writer_fails_what_is_under_way_and_is_replaced(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.subscribe([("ann", ["before"])])
        pid = pid_of(store, Lane.DURABLE)
        os.kill(pid, signal.SIGSTOP)  # so that the operations are under way for certain
        under_way = [asyncio.create_task(store.subscribe([("ann", [f"{n}"])])) for n in range(3)]
        under_way.append(asyncio.create_task(store.subscribe([("ann", [f"large {n}" for n in range(200_000)])])))
        await asyncio.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        for outcome in await asyncio.gather(*under_way, return_exceptions=True):
            assert isinstance(outcome, StoreUnavailable)
        await at_last(lambda: store.subscribe([("ann", ["after"])]))
        assert await store.subscribers(["before", "after"]) == [{"ann"}, {"ann"}]
        assert store.writer_restarts == 1
        assert pid_of(store, Lane.DURABLE) != pid


async def test_a_writer_killed_again_and_again_comes_back(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for round_ in range(1, 4):
            os.kill(pid_of(store, Lane.SOFT), signal.SIGKILL)
            with pytest.raises(StoreUnavailable):
                await store.heartbeat(ME)  # the first to notice
            await at_last(lambda: store.heartbeat(ME))
            assert store.writer_restarts == round_
        assert await store.endpoints() == [ME]


# --- stopped -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lane", list(Lane))
async def test_a_stopped_writer_ends_in_an_error_and_is_replaced(tmp_path: Path, lane: Lane) -> None:
    async with opened(tmp_path, timeout_s=0.4) as store:
        operation: Callable[[], Awaitable[Any]] = {
            Lane.DURABLE: lambda: store.subscribe([("ann", ["rock"])]),
            Lane.SOFT: lambda: store.listen(["ann"], "i"),
        }[lane]
        pid = pid_of(store, lane)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(StoreUnavailable, match=r"confirmed nothing in 0\.4 s"):
            await asyncio.wait_for(operation(), PATIENCE_S)
        await until_ended(pid)
        await at_last(operation)


HOLD_THE_LOCK = """
import lmdb, os, pathlib, signal, sys
from ingeborg.broker.store.embedded.layout import Gate, Lane
directory = pathlib.Path(sys.argv[1])
transaction = lmdb.open(str(directory / "durable"), max_dbs=3).begin(write=True)
with Gate(directory, Lane.DURABLE).signed():
    print("held", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


async def test_a_stopped_process_with_the_write_lock_is_named_and_only_writes_wait_for_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as patient:
        await patient.subscribe([("ann", ["rock"])])
    async with opened(tmp_path, timeout_s=0.4) as store:
        holder = start("-c", HOLD_THE_LOCK, str(tmp_path))
        try:
            line_of(holder)
            for _ in range(2):  # under way, and then while the next writer cannot get ready
                with pytest.raises(StoreUnavailable, match=f"process {holder.pid} has the write lock"):
                    await asyncio.wait_for(store.subscribe([("bob", ["rock"])]), 10)
            assert await store.subscribers(["rock"]) == [{"ann"}]
            await at_last(lambda: store.heartbeat(ME))
        finally:
            end(holder)
        await at_last(lambda: store.subscribe([("bob", ["rock"])]))
        assert await store.subscribers(["rock"]) == [{"ann", "bob"}]


# --- full --------------------------------------------------------------------------------------------------------


async def test_a_full_map_says_what_to_raise_and_loses_nothing(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    async with opened(tmp_path, map_size_bytes=1 << 20) as store:
        with pytest.raises(StoreError, match="MAP_SIZE_BYTES"):  # noqa: PT012 - which batch it is, is open
            for batch in range(1_000):
                topics = [f"{batch}/{index}" for index in range(500)]
                await store.subscribe([("ann", topics)])
                acknowledged += topics
        assert acknowledged
        # Small and large ones in the same transactions; what fits, fits, and the others hear of it.
        mixed = [[f"{n}/{i}" for i in range(10 if n % 3 else 1_000)] for n in range(1_000, 1_040)]
        outcomes = await asyncio.gather(
            *(store.subscribe([("ann", topics)]) for topics in mixed), return_exceptions=True
        )
        assert any(outcomes)
        for topics, outcome in zip(mixed, outcomes, strict=True):
            if outcome is None:
                acknowledged += topics
            else:
                assert "MAP_SIZE_BYTES" in str(outcome)
        assert await store.subscribers(acknowledged) == [{"ann"}] * len(acknowledged)
        await store.heartbeat(ME)
        assert store.writer_restarts == 0
    async with opened(tmp_path, map_size_bytes=MAP_BYTES) as store:
        await store.subscribe([("ann", ["one more"])])
        assert await store.subscribers(["one more", *acknowledged]) == [{"ann"}] * (len(acknowledged) + 1)


async def test_a_store_with_a_smaller_map_adopts_the_larger_one_of_another_process(tmp_path: Path) -> None:
    topics = [f"song {index}" for index in range(20_000)]
    async with opened(tmp_path, map_size_bytes=1 << 20) as small, opened(tmp_path, map_size_bytes=MAP_BYTES) as large:
        await large.subscribe([("ann", topics)])
        assert await small.subscribers(topics) == [{"ann"}] * len(topics)
        await small.subscribe([("bob", topics)])
        assert await large.subscribers(topics) == [{"ann", "bob"}] * len(topics)


async def test_a_full_disk_is_an_error_and_the_store_recovers_when_there_is_room(tmp_path: Path) -> None:
    # A limit on the size of the writer's files stands for the disk: LMDB gets its error from the same system call.
    async with opened(tmp_path) as store:
        await store.subscribe([("ann", ["before"])])
        pid, file_bytes = pid_of(store, Lane.DURABLE), os.stat(tmp_path / "durable" / "data.mdb").st_size
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (file_bytes, hard))
        topics = [f"song {index}" for index in range(5_000)]
        with pytest.raises(StoreUnavailable, match="may not grow"):
            await store.subscribe([("ann", topics)])
        assert await store.subscribers(["before"]) == [{"ann"}]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
        await store.subscribe([("ann", topics)])
        assert await store.subscribers(["before", *topics]) == [{"ann"}] * (len(topics) + 1)


# --- directories -------------------------------------------------------------------------------------------------


def with_content(path: Path, content: bytes) -> Path:
    """The path, of a file with that content by now."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


async def refused(directory: Path, match: str) -> None:
    """Opening fails with the text, leaves nothing behind, and closing afterwards is fine."""
    store = EmbeddedStore(directory, map_size_bytes=MAP_BYTES)
    with pytest.raises(StoreMisconfigured, match=match):
        await store.open()
    assert set(store.writer_pids.values()) == {None}
    await store.close()


async def test_a_directory_that_is_a_file_or_lies_in_one_is_refused(tmp_path: Path) -> None:
    file = with_content(tmp_path / "file", b"mine")
    await refused(file, "cannot use the directory")
    await refused(file / "below", "cannot use the directory")
    assert file.stat().st_size == len(b"mine")


async def test_a_map_larger_than_the_address_space_is_refused(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path, map_size_bytes=1 << 60)
    with pytest.raises(StoreMisconfigured, match="give a smaller map size"):
        await store.open()


async def test_a_directory_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    wants.other_user_than_root()
    os.chmod(tmp_path, 0o500)
    await refused(tmp_path, "this user may write")


async def test_a_file_that_is_not_lmdb_is_refused(tmp_path: Path) -> None:
    with_content(tmp_path / "durable" / "data.mdb", b"something else " * 1_000)
    await refused(tmp_path, "data.mdb is damaged: meta page 0 is not LMDB's")


async def test_another_programs_lmdb_environment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "durable").mkdir()
    with lmdb.open(str(tmp_path / "durable")) as env, env.begin(write=True) as txn:
        txn.put(b"their", b"entry")
    await refused(tmp_path, "of another program")


async def test_a_newer_layout_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass
    with lmdb.open(str(tmp_path / "durable"), max_dbs=3) as env, env.begin(write=True) as txn:
        txn.put(b"layout", b"ingeborg embedded store 3")
    await refused(tmp_path, "has layout 3, this version knows layout 1")


async def test_a_reboot_empties_the_soft_environment_only_and_unread(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.subscribe([("ann", ["rock"])])
        (location,) = await store.listen(["ann"], "i")
        await store.register(ME)
    async with opened(tmp_path) as store:  # the same boot
        assert await store.locations(["ann"]) == [location]
        assert await store.endpoints() == [ME]
    with_content(tmp_path / "soft" / "boot_id", b"an earlier boot")
    with_content(tmp_path / "soft" / "data.mdb", b"half written before the power cut")
    async with opened(tmp_path) as store, opened(tmp_path) as sibling:
        assert await store.subscribers(["rock"]) == [{"ann"}]
        assert await store.locations(["ann"]) == [None]
        assert await store.endpoints() == []
        await store.register(ME)
        assert await sibling.endpoints() == [ME]


# --- the event loop ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def counted_turns() -> AsyncIterator[Callable[[], int]]:
    """How many turns the event loop has made."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count())
    try:
        yield lambda: turns
    finally:
        counter.cancel()


async def test_a_large_write_lets_go_of_the_loop_at_every_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = [f"song {index}" for index in range(100_000)]
    packed_at: list[int] = []
    async with opened(tmp_path) as store, counted_turns() as turns:

        def recorded(body: Any) -> bytes:
            packed_at.append(turns())
            return pack(body)

        monkeypatch.setattr(writer_link, "pack", recorded)
        await store.subscribe([("ann", topics)])
    assert len(packed_at) == 98
    assert len(set(packed_at)) == len(packed_at), "two frames in one turn of the loop"


async def test_large_reads_go_in_slices_and_come_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = [f"client {index}" for index in range(3_000)]
    topics = [f"song {index}" for index in range(500)]
    async with opened(tmp_path) as store:
        await store.subscribe([("ann", topics)])
        await store.subscribe([(client, ["hit"]) for client in clients])
        locations = await store.listen(clients, "i")
        monkeypatch.setattr(embedded, "SLICE_S", 0.0)  # every slice is over as soon as it can be
        async with counted_turns() as turns:
            for read, expected, slices in (
                (store.subscribers(["hit"]), [set(clients)], 5),
                (store.subscribers(topics), [{"ann"}] * 500, 499),
                (store.locations(clients), locations, 2_999),
            ):
                before = turns()
                assert await read == expected
                assert turns() - before >= slices
            before = turns()
            page, cursor = await store.topics("ann", None, 400)
            rest, end_ = await store.topics("ann", cursor, 400)
            assert turns() - before >= 498
        assert sorted(page + rest) == sorted(topics)
        assert end_ is None


async def test_what_takes_longer_is_not_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingeborg.broker.store.embedded.store.SLICE_S", 60.0)  # a busy machine is not what is tested
    async with opened(tmp_path) as store:
        clients = [f"client {number}" for number in range(MEMBERS_PER_LOOK + 1)]
        await store.subscribe([(client, ["hit"]) for client in clients[1:]] + [("client 0", ["song"])])
        (most,) = store.subscribers_now(["hit"]) or [set()]
        assert set(most) == set(clients[1:])
        await store.subscribe([("client 0", ["hit"])])
        assert store.subscribers_now(["song", "hit"]) is None
        assert store.subscribers_now(["song"]) == [("client 0",)]
        assert store.locations_now(["nobody"] * LOCATIONS_AT_ONCE) == [None] * LOCATIONS_AT_ONCE
        assert store.locations_now(["nobody"] * (LOCATIONS_AT_ONCE + 1)) is None


async def test_when_the_time_is_up_nothing_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingeborg.broker.store.embedded.store.SLICE_S", 0.0)
    async with opened(tmp_path) as store:
        assert store.subscribers_now(["song"]) == [()]  # it has been read
        assert store.locations_now(["ann"]) == [None]
        assert store.subscribers_now(["song", "other"]) is None
        assert store.locations_now(["ann", "bob"]) is None


async def test_a_small_write_overtakes_a_large_one(tmp_path: Path) -> None:
    async with opened(tmp_path) as store, opened(tmp_path) as sibling:
        large = asyncio.create_task(store.subscribe([("ann", [f"song {index}" for index in range(300_000)])]))
        await store.subscribe([("bob", ["rock"])])
        await sibling.subscribe([("cid", ["rock"])])
        assert not large.done()
        await large
        assert await store.subscribers(["rock", "song 0", "song 299999"]) == [{"bob", "cid"}, {"ann"}, {"ann"}]


async def test_a_cancelled_write_disturbs_no_other(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for _ in range(3):
            cancelled = asyncio.create_task(store.subscribe([("ann", [f"song {index}" for index in range(150_000)])]))
            kept = asyncio.create_task(store.subscribe([("bob", [f"song {index}" for index in range(5_000)])]))
            await asyncio.sleep(0.01)
            cancelled.cancel()
            await kept
        assert "bob" in (await store.subscribers(["song 4999"]))[0]
        await store.unsubscribe([("bob", ["song 4999"])])


def test_it_works_on_uvloop_too(tmp_path: Path) -> None:
    async def use() -> None:
        async with opened(tmp_path, timeout_s=0.4) as store:
            await at_last(lambda: store.subscribe([("ann", ["rock"])]))
            os.kill(pid_of(store, Lane.DURABLE), signal.SIGSTOP)
            with pytest.raises(StoreUnavailable):
                await store.subscribe([("bob", ["rock"])])
            await at_last(lambda: store.subscribe([("bob", ["rock"])]))
            assert await store.subscribers(["rock"]) == [{"ann", "bob"}]

    uvloop.run(use())


# --- what is kept ------------------------------------------------------------------------------------------------


async def test_nothing_is_left_of_topics_and_clients_that_are_gone(tmp_path: Path) -> None:
    topics = [f"song {index}" for index in range(2_000)]
    async with opened(tmp_path) as store:
        await store.subscribe([("ann", topics), ("bob", topics[:10])])
        await store.unsubscribe([("ann", topics)])
        assert await store.topics("bob", None, 1_000) != ([], None)
        await store.unsubscribe([("bob", topics)])
    environment = open_for_reading(tmp_path, Lane.DURABLE, MAP_BYTES)
    with environment.env as env, env.begin() as txn:
        assert {"subscribers", "topics_of", "texts"} <= environment.db.keys()
        assert {txn.stat(db)["entries"] for db in environment.db.values()} == {0}


def test_expired_hashes_are_swept_away_by_later_calls(tmp_path: Path) -> None:
    environment = prepare(tmp_path, Lane.SOFT, MAP_BYTES).environment
    seen = operations(environment, Lane.SOFT)["seen"]
    with environment.env as env:
        with env.begin(write=True) as txn:
            seen(txn, (0.0, [digest(b"expired %d" % index) for index in range(1_000)]))
        for call in range(200):
            with env.begin(write=True) as txn:
                seen(txn, (60.0, [digest(b"alive %d" % index) for index in range(call * 10, call * 10 + 10)]))
        # 4,000 entries have been looked at, more than there ever were: only the 2,000 alive are left.
        with env.begin() as txn:
            assert txn.stat(environment.db["seen"])["entries"] == 2_000


async def test_stores_of_one_process_share_the_environment_until_the_last_is_closed(tmp_path: Path) -> None:
    async with opened(tmp_path) as first:
        async with opened(tmp_path) as second:
            await second.subscribe([("ann", ["rock"])])
        assert await first.subscribers(["rock"]) == [{"ann"}]
        assert len(embedded._shared) == 2
    assert not embedded._shared


async def test_what_is_read_and_written_is_counted(tmp_path: Path) -> None:
    async with opened(tmp_path, map_size_bytes=MAP_BYTES) as store:
        await store.subscribe([("ann", ["a", "b", "c"]), ("bob", ["a"])])
        await store.unsubscribe([("ann", ["c"])])
        await store.listen(["ann", "bob"], "i")
        written = 5 + 2
        read = store.counters["reads"]  # drawing a listen number reads the one before
        await store.subscribers(["a", "b"])
        await store.locations(["ann", "bob", "eve"])
        await store.topics("ann", None, 10)
        assert store.counters == {"reads": read + 6, "writes": written, "writer_restarts": 0, "disk_stalls": 0}


# --- for reading only


async def test_for_reading_only_nothing_is_made_and_no_writer_is_started(tmp_path: Path) -> None:
    absent = EmbeddedStore(tmp_path / "absent", read_only=True)
    with pytest.raises(StoreMisconfigured, match=r"cannot read .*absent.* Is it the store's"):
        await absent.open()
    await absent.close()
    assert os.listdir(tmp_path) == []
    async with opened(tmp_path / "store") as store:
        await store.subscribe([("ann", ["rock"])])
        await store.register(ME)
        async with opened(tmp_path / "store", read_only=True) as reader:
            assert await reader.subscribers(["rock"]) == [{"ann"}]
            assert await reader.endpoints() == [ME]
            assert list(reader.writer_pids.values()) == [None, None]
            with pytest.raises(StoreUnavailable):
                await reader.subscribe([("ann", ["jazz"])])
    (tmp_path / "store" / "soft" / "boot_id").write_text("another boot")
    async with opened(tmp_path / "store", read_only=True) as reader:
        assert await reader.endpoints() == []  # it may be half written
        assert [page async for page in reader.subscriptions()] == [[("rock", ["ann"])]]


async def test_for_reading_only_a_directory_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "durable").mkdir()
    with lmdb.open(str(tmp_path / "durable"), map_size=MAP_BYTES) as foreign, foreign.begin(write=True) as txn:
        txn.put(b"layout", b"something else 1")
    reader = EmbeddedStore(tmp_path, read_only=True, map_size_bytes=MAP_BYTES)
    with pytest.raises(StoreMisconfigured, match="of another program"):
        await reader.open()
