"""The journal of retained messages in the embedded store: its structure, the promises of this store alone, its worst
moments."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import lmdb
import pytest

from ingeborg.broker.command.doctor import embedded as doctor
from ingeborg.broker.store.base import KEEP_BYTES, RETAINED_BYTES_MAX, VOID, RetainedMessage, StoreError, Subscribe
from ingeborg.broker.store.embedded import journal
from ingeborg.broker.store.embedded.layout import Lane, prepare
from ingeborg.broker.store.embedded.operations import operations
from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.protocol.hashes import SLOTS

from .test_embedded import MAP_BYTES, at_last, line_of, opened, pid_of, start, until_ended
from .test_embedded import end as kill

JOURNAL = {b"kept", b"kept_floors", b"kept_about"}


def message(slot: int, stamp: int, payload: bytes = b"{}") -> RetainedMessage:
    """Return a message that differs from those of all other places."""
    return RetainedMessage(slot, stamp, "rock", payload, f"origin {slot}", stamp, 1.5 + stamp)


async def all_of(store: EmbeddedStore) -> list[RetainedMessage]:
    """Return every retained message."""
    found: list[RetainedMessage] = []
    cursor = None
    while True:
        page, _, cursor = await store.retained(range(SLOTS), cursor, 1_000)
        found += page
        if cursor is None:
            return found


# --- structure


async def test_a_reboot_takes_it_and_a_new_start_of_all_processes_does_not(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.keep([message(1, 1)], [], [(1, 1)])
    async with opened(tmp_path) as store:
        assert await store.retained([1], None, 10) == ([message(1, 1)], [(1, 1)], None)
        assert await store.retained_top() == 1
    (tmp_path / "soft" / "boot_id").write_text("another boot")
    async with opened(tmp_path) as store:
        assert await store.retained([1], None, 10) == ([], [], None)
        assert await store.retained_top() == 0


async def test_the_doctor_counts_what_is_kept(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.keep([message(1, stamp) for stamp in range(3)], [], [])
        assert store.retained_count() == 3
    (finding,) = await doctor.contents(tmp_path, MAP_BYTES)
    assert "; 3 retained messages; " in finding.seen


async def test_counters_count_them(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.keep([message(1, 1), message(1, 2)], [(1, 1)], [(1, 1)])
        await store.retained([1], None, 10)
        assert store.counters == {"reads": 1, "writes": 3, "writer_restarts": 0, "disk_stalls": 0}


# --- its worst moments

ENDLESS = """
import asyncio, sys
from pathlib import Path
from ingeborg.broker.store.base import RetainedMessage
from ingeborg.broker.store.embedded.store import EmbeddedStore
async def run():
    store = EmbeddedStore(Path(sys.argv[1]), timeout_s=60.0)
    await store.open()
    print(*store.writer_pids.values(), flush=True)
    for number in range(1_000_000):
        # Three messages come, one goes, and the floor says so.
        three = [RetainedMessage(1, 3 * number + more, "rock", b"{}", "me", number, 1.0) for more in (1, 2, 3)]
        await store.keep(three, [(1, 3 * number + 1)], [(1, 3 * number + 1)])
        print(number, flush=True)
asyncio.run(run())
"""


async def test_kill_9_of_an_endpoint_loses_nothing_acknowledged_and_leaves_no_half(tmp_path: Path) -> None:
    process = start("-c", ENDLESS, str(tmp_path))
    try:
        assert process.stdout is not None
        writers = [int(pid) for pid in line_of(process).split()]
        for _ in range(20):
            last = int(line_of(process))
        async with opened(tmp_path) as other:  # a second process sees the first one's writes
            assert 3 * last + 3 in [kept.stamp for kept in await all_of(other)]
        process.kill()
        last = max([last, *map(int, process.stdout.read().split("\n")[:-1])])
        for pid in writers:
            await until_ended(pid)
        async with opened(tmp_path) as store:
            top = await store.retained_top()
            written = top // 3 - 1
            assert written in (last, last + 1)  # one more can have been written without an acknowledgement
            stamps = [kept.stamp for kept in await all_of(store)]
            assert stamps == [stamp for stamp in range(1, top + 1) if stamp % 3 != 1]
            assert (await store.retained([1], None, 1_000_000))[1] == [(1, 3 * written + 1)]
    finally:
        kill(process)


async def test_a_killed_writer_is_replaced(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.keep([message(1, 1)], [], [(1, 5)])
        killed = pid_of(store, Lane.SOFT)
        os.kill(killed, signal.SIGKILL)
        await until_ended(killed)
        await at_last(lambda: store.keep([message(1, 2)], [], [(1, 4)]))
        assert await store.retained([1], None, 10) == ([message(1, 1), message(1, 2)], [(1, 5)], None)
        assert await store.retained_top() == 5


async def test_a_killed_writer_of_subscriptions_is_no_matter(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        os.kill(pid_of(store, Lane.DURABLE), signal.SIGSTOP)
        try:
            await store.keep([message(1, 1)], [], [])
            assert await all_of(store) == [message(1, 1)]
        finally:
            os.kill(pid_of(store, Lane.DURABLE), signal.SIGCONT)


async def test_a_subscribe_does_not_wait_for_what_is_kept(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        os.kill(pid_of(store, Lane.SOFT), signal.SIGSTOP)
        keeping = asyncio.create_task(store.keep([message(1, 1)], [], []))
        try:
            await store.subscribe([Subscribe("ann", ["rock"])])
            assert not keeping.done()
        finally:
            os.kill(pid_of(store, Lane.SOFT), signal.SIGCONT)
        await keeping


async def test_a_full_map_refuses_new_ones_and_lets_them_go(tmp_path: Path) -> None:
    many = [message(1, stamp, b"x" * 2_000) for stamp in range(2_000)]
    async with opened(tmp_path, map_size_bytes=1 << 20) as store:
        # One by one, to the last page: a frame that does not fit leaves the free space as it was.
        async def fill() -> None:
            for one in many:
                await store.keep([one], [], [])

        with pytest.raises(StoreError, match="the embedded store is full"):
            await fill()
        held = await all_of(store)
        assert held == many[: len(held)]
        with pytest.raises(StoreError, match="the embedded store is full"):
            await store.keep(many[len(held) :], [], [])
        await store.keep([], [], [(slot, 1) for slot in range(2, SLOTS)])  # small, but needs room
        await store.keep([], [(1, stamp) for stamp in range(2_000)], [(1, 1_999)])
        assert await store.retained([1], None, 10) == ([], [(1, 1_999)], None)
        await store.keep(many[:10], [], [])
        assert await all_of(store) == many[:10]


async def test_what_is_no_message_is_damage(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.keep([message(1, 1)], [], [])
    with lmdb.open(str(tmp_path / "soft"), max_dbs=9, map_size=MAP_BYTES) as env:
        kept = env.open_db(b"kept")
        with env.begin(kept, write=True) as txn:
            txn.put(journal.pack_slot(1) + journal.pack_stamp(1), b"no message")
    async with opened(tmp_path) as store:
        with pytest.raises(StoreError, match="found damage in"):
            await store.retained([1], None, 10)


@pytest.mark.parametrize(
    ("kept", "forgotten", "floors", "said"),
    [
        ([message(SLOTS, 1)], [], [], "4096 is not a slot"),
        ([message(1, -1)], [], [], "-1 is not a stamp"),
        ([], [(-1, 1)], [], "-1 is not a slot"),
        ([], [], [(1, 1 << 64)], "is not a stamp"),
        ([], [(1, VOID)], [], "is not a stamp"),
        ([message(1, 1, b"x" * RETAINED_BYTES_MAX)], [], [], "too large to retain: 3,145,728 at most"),
    ],
)
async def test_what_cannot_be_kept_is_refused_and_nothing_is_written(
    tmp_path: Path,
    kept: list[RetainedMessage],
    forgotten: list[tuple[int, int]],
    floors: list[tuple[int, int]],
    said: str,
) -> None:
    async with opened(tmp_path) as store:
        with pytest.raises(ValueError, match=said):
            await store.keep([message(1, 1), *kept], forgotten, floors)
        assert await all_of(store) == []
        assert await store.retained_top() == 0
        assert store.writer_restarts == 0


# --- slices and frames


async def test_what_takes_many_slices_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "SLICE_S", -1.0)
    kept = [message(slot, stamp) for slot in (0, 1, 7, SLOTS - 1) for stamp in range(5)]
    async with opened(tmp_path) as store:
        await store.keep(kept, [], [(7, 3)])
        assert await store.retained(range(SLOTS), None, 100) == (kept, [(7, 3)], None)
        assert await store.retained([1, 3, 7], None, 100) == (kept[5:15], [(7, 3)], None)
        # A message that goes while a page is read is either in the page, with its floor, or not.
        reading = asyncio.create_task(store.retained([7, 1], None, 100))
        await asyncio.sleep(0)
        await store.keep([], [(7, stamp) for stamp in range(5)], [(7, 4)])
        page, floors, rest = await reading
        assert (page[:5], rest) == (kept[5:10], None)
        assert len(page) == 10 or floors == [(7, 4)]


async def test_what_is_much_goes_frame_by_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames: list[tuple[str, list[int]]] = []
    async with opened(tmp_path) as store:
        call, under_way = store._soft_writer.call, 0

        async def counted(operation: str, arguments: Any) -> list[Any]:
            nonlocal under_way
            assert not under_way, "the next one was sent before this one was committed"
            under_way += 1
            (frame,) = arguments
            frames.append((operation, [len(part) for part in frame]))
            found = await call(operation, arguments)
            under_way -= 1
            return found

        monkeypatch.setattr(store._journal, "_call", counted)
        small = [message(1, stamp) for stamp in range(KEEP_BYTES // journal.OVERHEAD_BYTES)]
        large = [message(2, stamp, b"x" * (KEEP_BYTES // 2)) for stamp in range(3)]
        largest = message(3, 1, b"x" * (RETAINED_BYTES_MAX - 64))
        gone = [(5, stamp) for stamp in range(journal.FRAME_FORGOTTEN + 3)]
        await store.keep([*small[:5], *large, largest], gone, [(1, 1), (1, 2), (4, 1)], [1, 4])
        assert frames == [
            ("keep", [6, 0, 3, 2]),  # floors first
            ("keep", [1, 0, 0, 0]),
            ("keep", [1, 0, 0, 0]),
            ("keep", [1, journal.FRAME_FORGOTTEN, 0, 0]),
            ("forget", [0, 3, 0, 0]),
        ]
        assert await all_of(store) == [*small[:5], *large, largest]
        frames.clear()
        await store.keep([], [], [])
        await store.keep([], [], [(1, 3)])
        await store.keep(small, [(2, 1)], [(1, 1)])
        assert frames[0] == ("forget", [0, 0, 1, 0])
        assert [sum(counts) for counts in zip(*(sizes for _, sizes in frames[1:]), strict=True)] == [
            len(small),
            1,
            1,
            0,
        ]


def test_a_frame_that_is_rolled_back_leaves_nothing(tmp_path: Path) -> None:
    environment = prepare(tmp_path, Lane.SOFT, MAP_BYTES).environment
    soft, db = operations(environment, Lane.SOFT), environment.db
    frame = [[journal.pack_retained(message(1, 1))], [], [(journal.pack_slot(1), journal.pack_stamp(1))], []]
    with environment.env as env:
        txn = env.begin(write=True)
        assert soft["keep"](txn, frame) == []
        assert soft["reach"](txn, (["l"], journal.pack_stamp(2))) == [[], journal.pack_stamp(2)]
        txn.abort()
        with env.begin() as txn:
            assert [txn.stat(db[name.decode()])["entries"] for name in sorted(JOURNAL)] == [0, 0, 0]
