"""Promises of the embedded store alone: killed and stopped processes, full maps and disks, foreign directories."""

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

from ingeborg.broker.store.base import Endpoint, Settings, StoreError, StoreMisconfigured, StoreUnavailable, Subscribe
from ingeborg.broker.store.embedded import store as embedded
from ingeborg.broker.store.embedded import subscriptions, writer_link
from ingeborg.broker.store.embedded.layout import LAYOUT_NUMBER, Lane, open_for_reading, pack, prepare
from ingeborg.broker.store.embedded.operations import operations
from ingeborg.broker.store.embedded.store import LOCATIONS_AT_ONCE, EmbeddedStore
from ingeborg.broker.store.embedded.subscriptions import MEMBERS_PER_LOOK
from ingeborg.protocol.hashes import digest
from tests import wants
from tests.store.asked import listen, subscribers, subscribers_now
from tests.store.endless_subscriber import batch_topics

ROOT = Path(__file__).parents[2]
MAP_BYTES = 64 << 20
PATIENCE_S = 60.0  # other processes use the disk
ME = Endpoint("me", "i", "ws://127.0.0.1:9000", 1)


@asynccontextmanager
async def opened(directory: Path, **options: Any) -> AsyncIterator[EmbeddedStore]:
    """Yield an open store, and close it in any case."""
    store = EmbeddedStore(directory, **{"timeout_s": PATIENCE_S, **options})
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def at_last(operation: Callable[[], Awaitable[Any]]) -> None:
    """Repeat it until it succeeds: a new writer starts slowly on a busy machine, and waiting calls time out."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await operation()
                return
            except StoreUnavailable:
                continue


def pid_of(store: EmbeddedStore, lane: Lane) -> int:
    """Return the pid of the lane's writer, which has to exist."""
    pid = store.writer_pids[lane]
    assert pid is not None
    return pid


async def until_ended(pid: int) -> None:
    """Return when the process, child or not, has ended: a commit under way can take long on a busy disk."""
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
    """Start a Python process of this project, and read its output line by line."""
    return subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT)


def line_of(process: subprocess.Popen[str]) -> str:
    """Return the next line that the process prints."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.endswith("\n"), f"ended with {process.poll()} instead"
    return line


def end(process: subprocess.Popen[str]) -> None:
    """Kill the process and discard its output."""
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
                    assert await subscribers(store, topics) == [{client}] * len(topics)
    finally:
        end(killed)
        end(living)


async def test_a_killed_writer_fails_what_is_under_way_and_is_replaced(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.subscribe([Subscribe("ann", ["before"])])
        pid = pid_of(store, Lane.DURABLE)
        os.kill(pid, signal.SIGSTOP)  # to make sure that the operations are under way
        under_way = [asyncio.create_task(store.subscribe([Subscribe("ann", [f"{n}"])])) for n in range(3)]
        under_way.append(
            asyncio.create_task(store.subscribe([Subscribe("ann", [f"large {n}" for n in range(200_000)])]))
        )
        await asyncio.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        for outcome in await asyncio.gather(*under_way, return_exceptions=True):
            assert isinstance(outcome, StoreUnavailable)
        await at_last(lambda: store.subscribe([Subscribe("ann", ["after"])]))
        assert await subscribers(store, ["before", "after"]) == [{"ann"}, {"ann"}]
        assert store.writer_restarts == 1
        assert pid_of(store, Lane.DURABLE) != pid


async def test_a_writer_killed_again_and_again_comes_back(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for round_ in range(1, 4):
            os.kill(pid_of(store, Lane.SOFT), signal.SIGKILL)
            with pytest.raises(StoreUnavailable):
                await store.heartbeat(ME)  # the first operation to notice
            await at_last(lambda: store.heartbeat(ME))
            assert store.writer_restarts == round_
        assert await store.endpoints() == [ME]


# --- stopped -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lane", list(Lane))
async def test_a_stopped_writer_ends_in_an_error_and_is_replaced(tmp_path: Path, lane: Lane) -> None:
    async with opened(tmp_path, timeout_s=0.4) as store:
        operation: Callable[[], Awaitable[Any]] = {
            Lane.DURABLE: lambda: store.subscribe([Subscribe("ann", ["rock"])]),
            Lane.SOFT: lambda: listen(store, ["ann"], "i"),
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
        await patient.subscribe([Subscribe("ann", ["rock"])])
    async with opened(tmp_path, timeout_s=0.4) as store:
        holder = start("-c", HOLD_THE_LOCK, str(tmp_path))
        try:
            line_of(holder)
            for _ in range(2):  # under way, and then while the next writer cannot get ready
                with pytest.raises(StoreUnavailable, match=f"process {holder.pid} has the write lock"):
                    await asyncio.wait_for(store.subscribe([Subscribe("bob", ["rock"])]), 10)
            assert await subscribers(store, ["rock"]) == [{"ann"}]
            await at_last(lambda: store.heartbeat(ME))
        finally:
            end(holder)
        await at_last(lambda: store.subscribe([Subscribe("bob", ["rock"])]))
        assert await subscribers(store, ["rock"]) == [{"ann", "bob"}]


# --- full --------------------------------------------------------------------------------------------------------


async def test_a_full_map_says_what_to_raise_and_loses_nothing(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    async with opened(tmp_path, map_size_bytes=1 << 20) as store:
        with pytest.raises(StoreError, match="MAP_SIZE_BYTES"):  # noqa: PT012 - which batch it is, is open
            for batch in range(1_000):
                topics = [f"{batch}/{index}" for index in range(500)]
                await store.subscribe([Subscribe("ann", topics)])
                acknowledged += topics
        assert acknowledged
        # Small and large batches in the same transactions: those that fit succeed, the others fail.
        mixed = [[f"{n}/{i}" for i in range(10 if n % 3 else 1_000)] for n in range(1_000, 1_040)]
        outcomes = await asyncio.gather(
            *(store.subscribe([Subscribe("ann", topics)]) for topics in mixed), return_exceptions=True
        )
        assert any(outcomes)
        for topics, outcome in zip(mixed, outcomes, strict=True):
            if outcome is None:
                acknowledged += topics
            else:
                assert "MAP_SIZE_BYTES" in str(outcome)
        assert await subscribers(store, acknowledged) == [{"ann"}] * len(acknowledged)
        await store.heartbeat(ME)
        assert store.writer_restarts == 0
    async with opened(tmp_path, map_size_bytes=MAP_BYTES) as store:
        await store.subscribe([Subscribe("ann", ["one more"])])
        assert await subscribers(store, ["one more", *acknowledged]) == [{"ann"}] * (len(acknowledged) + 1)


async def test_a_store_with_a_smaller_map_adopts_the_larger_one_of_another_process(tmp_path: Path) -> None:
    topics = [f"song {index}" for index in range(20_000)]
    async with opened(tmp_path, map_size_bytes=1 << 20) as small, opened(tmp_path, map_size_bytes=MAP_BYTES) as large:
        await large.subscribe([Subscribe("ann", topics)])
        assert await subscribers(small, topics) == [{"ann"}] * len(topics)
        await small.subscribe([Subscribe("bob", topics)])
        assert await subscribers(large, topics) == [{"ann", "bob"}] * len(topics)


async def test_a_full_disk_is_an_error_and_the_store_recovers_when_there_is_room(tmp_path: Path) -> None:
    # A limit on the size of the writer's files stands in for a full disk: LMDB gets its error from the same system
    # call.
    async with opened(tmp_path) as store:
        await store.subscribe([Subscribe("ann", ["before"])])
        pid, file_bytes = pid_of(store, Lane.DURABLE), os.stat(tmp_path / "durable" / "data.mdb").st_size
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (file_bytes, hard))
        topics = [f"song {index}" for index in range(5_000)]
        with pytest.raises(StoreUnavailable, match="may not grow"):
            await store.subscribe([Subscribe("ann", topics)])
        assert await subscribers(store, ["before"]) == [{"ann"}]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
        await store.subscribe([Subscribe("ann", topics)])
        assert await subscribers(store, ["before", *topics]) == [{"ann"}] * (len(topics) + 1)


# --- directories -------------------------------------------------------------------------------------------------


def with_content(path: Path, content: bytes) -> Path:
    """Write a file with that content, and return its path."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


async def refused(directory: Path, match: str) -> None:
    """Check that opening fails with the text and leaves nothing behind, and that closing afterwards works."""
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
    with pytest.raises(StoreMisconfigured, match="set a smaller map size"):
        await store.open()


async def test_a_directory_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    wants.other_user_than_root()
    os.chmod(tmp_path, 0o500)
    await refused(tmp_path, "this user can write to")


async def test_a_file_that_is_not_lmdb_is_refused(tmp_path: Path) -> None:
    with_content(tmp_path / "durable" / "data.mdb", b"something else " * 1_000)
    await refused(tmp_path, "data.mdb is damaged: meta page 0 is not LMDB's")


async def test_another_programs_lmdb_environment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "durable").mkdir()
    with lmdb.open(str(tmp_path / "durable")) as env, env.begin(write=True) as txn:
        txn.put(b"their", b"entry")
    await refused(tmp_path, "of another program")


def planted(directory: Path, lane: Lane, **entries: bytes) -> None:
    """Write entries of the unnamed database, as another version would."""
    with lmdb.open(str(directory / lane), max_dbs=9, map_size=MAP_BYTES) as env, env.begin(write=True) as txn:
        for key, value in entries.items():
            txn.put(key.encode(), value)


@pytest.mark.parametrize("lane", list(Lane))
@pytest.mark.parametrize("number", [LAYOUT_NUMBER - 1, LAYOUT_NUMBER + 1])
async def test_another_layout_is_refused_with_one_line(tmp_path: Path, lane: Lane, number: int) -> None:
    async with opened(tmp_path):
        pass
    planted(tmp_path, lane, layout=b"ingeborg embedded store %d" % number)
    said = (
        f"{tmp_path / lane} has layout {number}, and this version reads layout {LAYOUT_NUMBER} only: export the store "
        r"with the version that wrote it, and import the export into an empty store \(`ingeborg export`, "
        r"`ingeborg import`\)$"
    )
    await refused(tmp_path, said)
    with pytest.raises(StoreMisconfigured, match=said):
        open_for_reading(tmp_path, lane, MAP_BYTES)


async def test_a_feature_that_is_not_known_here_is_refused_when_the_store_is_opened(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.subscribe([Subscribe("ann", ["rock"])])
    planted(tmp_path, Lane.DURABLE, features=b"later other")
    said = rf"the store in {tmp_path} has features that this version does not know: 'later', 'other'\. Start a version"
    await refused(tmp_path, said)
    with pytest.raises(StoreMisconfigured, match=said):
        open_for_reading(tmp_path, Lane.DURABLE, MAP_BYTES)


PLANT = """
import lmdb, sys
with lmdb.open(sys.argv[1], max_dbs=9, map_size=64 << 20) as env, env.begin(write=True) as txn:
    txn.put(b"features", b"later")
print("planted", flush=True)
"""


async def test_an_endpoint_that_runs_keeps_its_store_whatever_features_come(tmp_path: Path) -> None:
    async with opened(tmp_path, map_size_bytes=MAP_BYTES) as store:
        process = start("-c", PLANT, str(tmp_path / "durable"))
        try:
            line_of(process)
        finally:
            end(process)
        killed = pid_of(store, Lane.DURABLE)
        os.kill(killed, signal.SIGKILL)
        await until_ended(killed)
        await at_last(lambda: store.subscribe([Subscribe("ann", ["rock"])]))
        assert store.writer_restarts == 1
        assert await subscribers(store, ["rock"]) == [{"ann"}]


async def test_a_reboot_empties_the_soft_environment_only_and_unread(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.subscribe([Subscribe("ann", ["rock"])])
        (location,) = await listen(store, ["ann"], "i")
        await store.register(ME)
    async with opened(tmp_path) as store:  # the same boot
        assert await store.locations(["ann"]) == [location]
        assert await store.endpoints() == [ME]
    with_content(tmp_path / "soft" / "boot_id", b"an earlier boot")
    with_content(tmp_path / "soft" / "data.mdb", b"half written before the power cut")
    async with opened(tmp_path) as store, opened(tmp_path) as sibling:
        assert await subscribers(store, ["rock"]) == [{"ann"}]
        assert await store.locations(["ann"]) == [None]
        assert await store.endpoints() == []
        await store.register(ME)
        assert await sibling.endpoints() == [ME]


async def test_who_is_late_with_first_settings_is_given_those_that_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = Settings(replication=True, history="memory")
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        call = store._durable_writer.call

        async def late(operation: str, frames: Any) -> list[Any]:
            assert await other.settings(recorded) == recorded
            return await call(operation, frames)

        monkeypatch.setattr(store._durable_writer, "call", late)
        assert await store.settings(Settings(replication=False, history="store")) == recorded
        assert await store.settings() == await other.settings() == recorded


async def test_settings_survive_a_reboot_and_what_is_no_record_of_them_is_damage(tmp_path: Path) -> None:
    wanted = Settings(replication=True, history="store")
    async with opened(tmp_path) as store:
        assert await store.settings(wanted) == wanted
        async with opened(tmp_path, read_only=True) as reader:
            assert await reader.settings() == wanted
            with pytest.raises(StoreUnavailable):
                await reader.set_settings(Settings())
    with_content(tmp_path / "soft" / "boot_id", b"an earlier boot")
    async with opened(tmp_path) as store:
        assert await store.settings() == wanted
    planted(tmp_path, Lane.DURABLE, settings=b"\xc3")  # true
    async with opened(tmp_path) as store:
        with pytest.raises(StoreError, match=r"found damage in .*: the record of settings is invalid"):
            await store.settings()
        await store.set_settings(wanted)
        assert await store.settings() == wanted


# --- the event loop ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def counted_turns() -> AsyncIterator[Callable[[], int]]:
    """Yield a function that returns how many turns the event loop has made."""
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
        await store.subscribe([Subscribe("ann", topics)])
    assert len(packed_at) == 98
    assert len(set(packed_at)) == len(packed_at), "two frames in one turn of the loop"


async def test_large_reads_go_in_slices_and_come_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = [f"client {index}" for index in range(3_000)]
    topics = [f"song {index}" for index in range(500)]
    async with opened(tmp_path) as store:
        await store.subscribe([Subscribe("ann", topics)])
        await store.subscribe([Subscribe(client, ["hit"]) for client in clients])
        locations = await listen(store, clients, "i")
        for module in (embedded, subscriptions):
            monkeypatch.setattr(module, "SLICE_S", 0.0)  # every slice ends as early as possible
        async with counted_turns() as turns:
            for read, expected, slices in (
                (subscribers(store, ["hit"]), [set(clients)], 5),
                (subscribers(store, topics), [{"ann"}] * 500, 499),
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
    monkeypatch.setattr("ingeborg.broker.store.embedded.store.SLICE_S", 60.0)  # not a test of the machine's load
    async with opened(tmp_path) as store:
        clients = [f"client {number}" for number in range(MEMBERS_PER_LOOK + 1)]
        await store.subscribe(
            [Subscribe(client, ["hit"]) for client in clients[1:]] + [Subscribe("client 0", ["song"])]
        )
        (most,) = subscribers_now(store, ["hit"]) or [set()]
        assert set(most) == set(clients[1:])
        await store.subscribe([Subscribe("client 0", ["hit"])])
        assert subscribers_now(store, ["song", "hit"]) is None
        assert subscribers_now(store, ["song"]) == [("client 0",)]
        assert store.locations_now(["nobody"] * LOCATIONS_AT_ONCE) == [None] * LOCATIONS_AT_ONCE
        assert store.locations_now(["nobody"] * (LOCATIONS_AT_ONCE + 1)) is None


async def test_when_the_time_is_up_nothing_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingeborg.broker.store.embedded.store.SLICE_S", 0.0)
    async with opened(tmp_path) as store:
        assert subscribers_now(store, ["song"]) == [()]  # it has been read
        assert store.locations_now(["ann"]) == [None]
        assert subscribers_now(store, ["song", "other"]) is None
        assert store.locations_now(["ann", "bob"]) is None


async def test_a_small_write_overtakes_a_large_one(tmp_path: Path) -> None:
    async with opened(tmp_path) as store, opened(tmp_path) as sibling:
        large = asyncio.create_task(store.subscribe([Subscribe("ann", [f"song {index}" for index in range(300_000)])]))
        await store.subscribe([Subscribe("bob", ["rock"])])
        await sibling.subscribe([Subscribe("cid", ["rock"])])
        assert not large.done()
        await large
        assert await subscribers(store, ["rock", "song 0", "song 299999"]) == [{"bob", "cid"}, {"ann"}, {"ann"}]


async def test_a_cancelled_write_disturbs_no_other(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for _ in range(3):
            cancelled = asyncio.create_task(
                store.subscribe([Subscribe("ann", [f"song {index}" for index in range(150_000)])])
            )
            kept = asyncio.create_task(store.subscribe([Subscribe("bob", [f"song {index}" for index in range(5_000)])]))
            await asyncio.sleep(0.01)
            cancelled.cancel()
            await kept
        assert "bob" in (await subscribers(store, ["song 4999"]))[0]
        await store.unsubscribe([("bob", ["song 4999"], None)])


def test_it_works_on_uvloop_too(tmp_path: Path) -> None:
    async def use() -> None:
        async with opened(tmp_path, timeout_s=0.4) as store:
            await at_last(lambda: store.subscribe([Subscribe("ann", ["rock"])]))
            os.kill(pid_of(store, Lane.DURABLE), signal.SIGSTOP)
            with pytest.raises(StoreUnavailable):
                await store.subscribe([Subscribe("bob", ["rock"])])
            await at_last(lambda: store.subscribe([Subscribe("bob", ["rock"])]))
            assert await subscribers(store, ["rock"]) == [{"ann", "bob"}]

    uvloop.run(use())


# --- retained data ------------------------------------------------------------------------------------------------


async def test_nothing_is_left_of_topics_and_clients_that_are_gone(tmp_path: Path) -> None:
    topics = [f"song {index}" for index in range(2_000)]
    async with opened(tmp_path) as store:
        await store.subscribe([Subscribe("ann", topics), Subscribe("bob", topics[:10])])
        await store.unsubscribe([("ann", topics, None)])
        assert await store.topics("bob", None, 1_000) != ([], None)
        await store.unsubscribe([("bob", topics, None)])
    environment = open_for_reading(tmp_path, Lane.DURABLE, MAP_BYTES)
    with environment.env as env, env.begin() as txn:
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
        # The store has checked 4,000 entries, more than ever existed: only the 2,000 live ones are left.
        with env.begin() as txn:
            assert txn.stat(environment.db["seen"])["entries"] == 2_000


async def test_stores_of_one_process_share_the_environment_until_the_last_is_closed(tmp_path: Path) -> None:
    async with opened(tmp_path) as first:
        async with opened(tmp_path) as second:
            await second.subscribe([Subscribe("ann", ["rock"])])
        assert await subscribers(first, ["rock"]) == [{"ann"}]
        assert len(embedded._shared) == 2
    assert not embedded._shared


async def test_what_is_read_and_written_is_counted(tmp_path: Path) -> None:
    async with opened(tmp_path, map_size_bytes=MAP_BYTES) as store:
        await store.subscribe([Subscribe("ann", ["a", "b", "c"]), Subscribe("bob", ["a"])])
        await store.unsubscribe([("ann", ["c"], None)])
        await listen(store, ["ann", "bob"], "i")
        written = 5 + 2
        read = store.counters["reads"]  # drawing a listen number reads the previous one
        await subscribers(store, ["a", "b"])
        await store.locations(["ann", "bob", "eve"])
        await store.topics("ann", None, 10)
        assert store.counters == {"reads": read + 6, "writes": written, "writer_restarts": 0, "disk_stalls": 0}


# --- for reading only


async def test_for_reading_only_nothing_is_made_and_no_writer_is_started(tmp_path: Path) -> None:
    absent = EmbeddedStore(tmp_path / "absent", read_only=True)
    with pytest.raises(StoreMisconfigured, match=r"cannot read .*absent.* Is this the store's directory"):
        await absent.open()
    await absent.close()
    assert os.listdir(tmp_path) == []
    async with opened(tmp_path / "store") as store:
        await store.subscribe([Subscribe("ann", ["rock"])])
        await store.register(ME)
        async with opened(tmp_path / "store", read_only=True) as reader:
            assert await subscribers(reader, ["rock"]) == [{"ann"}]
            assert await reader.endpoints() == [ME]
            assert list(reader.writer_pids.values()) == [None, None]
            with pytest.raises(StoreUnavailable):
                await reader.subscribe([Subscribe("ann", ["jazz"])])
    (tmp_path / "store" / "soft" / "boot_id").write_text("another boot")
    async with opened(tmp_path / "store", read_only=True) as reader:
        assert await reader.endpoints() == []  # the lane may be half written
        assert [page async for page in reader.all_subscriptions()] == [[("rock", ["ann"], [])]]


async def test_for_reading_only_a_directory_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "durable").mkdir()
    with lmdb.open(str(tmp_path / "durable"), map_size=MAP_BYTES) as foreign, foreign.begin(write=True) as txn:
        txn.put(b"layout", b"something else 1")
    reader = EmbeddedStore(tmp_path, read_only=True, map_size_bytes=MAP_BYTES)
    with pytest.raises(StoreMisconfigured, match="of another program"):
        await reader.open()
