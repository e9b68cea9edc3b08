"""Ending subscriptions in the embedded store: what it is made of, what only it promises, and its worst moments."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingeborg.broker.command.doctor import embedded as doctor
from ingeborg.broker.store.base import Ended, Ending, Location, StoreError, Term
from ingeborg.broker.store.embedded import ending_operations, endings, now, slices
from ingeborg.broker.store.embedded.layout import FRAME_ITEMS, Lane, prepare
from ingeborg.broker.store.embedded.operations import operations
from ingeborg.broker.store.embedded.store import MEMBERS_PER_LOOK, EmbeddedStore
from ingeborg.protocol.hashes import digest, slot_of
from tests import proof
from tests.store.asked import listen, subscribers, subscribers_now

from .test_embedded import MAP_BYTES, at_last, line_of, opened, pid_of, start, until_ended
from .test_embedded import end as kill

GONE = Term(True, 0.0)
LATER = Term(False, 4e9)


async def records(store: EmbeddedStore, topic: str) -> list[Ending]:
    """Of the topic's slot, in one page."""
    return (await store.ending(slot_of(topic), None, 100_000))[0]


# --- what it is made of


async def test_who_only_reads_does_without_until_an_endpoint_of_this_boot_has_made_them(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.subscribe([("ann", ["jazz"])])
        await store.subscribe_ending([("ann", ["rock"], GONE)])
    (tmp_path / "soft" / "boot_id").write_text("another boot")
    async with opened(tmp_path, read_only=True) as reader:
        assert await reader.ending(slot_of("rock"), None, 10) == ([], None)
        assert await subscribers(reader, ["rock", "jazz"]) == [set(), {"ann"}]
        assert subscribers_now(reader, ["rock", "jazz"]) == [(), ("ann",)]
        assert await reader.topics("ann", None, 10) == (["jazz"], None)
        assert reader.subscribed_now("ann", ["rock", "jazz"]) == [False, True]
        assert await reader.ended(["ann"]) == [None]
        assert await reader.kept([1], None, 10) == ([], [], None)
        assert (await reader.kept_top(), reader.kept_count()) == (0, 0)


async def test_the_doctor_reads_them(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await listen(store, ["ann"], "i")
        await store.subscribe_ending([("ann", ["rock"], GONE)])
    problem, words = await doctor.read_through(tmp_path, Lane.SOFT, MAP_BYTES)
    assert (problem, words) == (None, "3 entries")  # of these two are for the subscription


async def test_a_reboot_takes_them_and_a_new_start_of_all_processes_does_not(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.subscribe_ending([("ann", ["rock"], GONE)])
        await store.subscribe([("ann", ["jazz"])])
    async with opened(tmp_path) as store:
        assert await subscribers(store, ["rock", "jazz"]) == [{"ann"}, {"ann"}]
    (tmp_path / "soft" / "boot_id").write_text("another boot")
    async with opened(tmp_path) as store:
        assert await subscribers(store, ["rock", "jazz"]) == [set(), {"ann"}]


ENDLESS = """
import asyncio, sys
from pathlib import Path
from ingeborg.broker.store.base import Term
from ingeborg.broker.store.embedded.store import EmbeddedStore
async def run():
    store = EmbeddedStore(Path(sys.argv[1]), timeout_s=60.0)
    await store.open()
    print(*store.writer_pids.values(), flush=True)
    for number in range(1_000_000):
        await store.subscribe_ending([("ann", [f"{number}"], Term(True, 0.0))])
        print(number, flush=True)
asyncio.run(run())
"""


async def test_kill_9_of_an_endpoint_loses_none_that_was_acknowledged(tmp_path: Path) -> None:
    process = start("-c", ENDLESS, str(tmp_path))
    try:
        assert process.stdout is not None
        writers = [int(pid) for pid in line_of(process).split()]
        for _ in range(20):
            last = int(line_of(process))
        process.kill()
        last = max([last, *map(int, process.stdout.read().split("\n")[:-1])])
        for pid in writers:
            await until_ended(pid)
        async with opened(tmp_path) as store:
            topics = [f"{number}" for number in range(last + 1)]
            assert await subscribers(store, topics) == [{"ann"}] * len(topics)
    finally:
        kill(process)


async def test_a_killed_writer_is_replaced_and_stamps_go_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.subscribe_ending([("ann", ["rock"], GONE)])
        (before,) = await records(store, "rock")
        killed = pid_of(store, Lane.SOFT)
        os.kill(killed, signal.SIGKILL)
        await until_ended(killed)
        await at_last(lambda: store.subscribe_ending([("ann", ["rock"], LATER)]))
        (now,) = await records(store, "rock")
        assert now.term == LATER
        assert now.stamp > before.stamp


async def test_a_full_map_refuses_new_ones_and_lets_them_end(tmp_path: Path) -> None:
    async with opened(tmp_path, map_size_bytes=1 << 20) as store:
        topics = [f"{number} ".ljust(200, "x") for number in range(3_000)]
        with pytest.raises(StoreError, match="the embedded store is full"):
            await store.subscribe_ending([("ann", topics, GONE)])
        mine = [each for slot in range(4096) for each in (await store.ending(slot, None, 5_000))[0]]
        assert len(mine) >= FRAME_ITEMS
        with pytest.raises(StoreError, match="the embedded store is full"):
            await store.subscribe_ending([("bob", topics, GONE)])
        assert await store.end([(mine, None, True)]) == [mine]
        (said,) = await store.ended(["ann"])
        assert said is not None
        assert said.total == len(mine)
        await store.subscribe_ending([("bob", ["rock"], GONE)])


# --- slices and frames


@pytest.fixture
def tiny_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read looks at one thing, or two, and lets go of the loop."""
    for module in (endings, slices):
        monkeypatch.setattr(module, "SLICE_S", -1.0)
        monkeypatch.setattr(module, "LOOKS", 2)


@pytest.mark.usefixtures("tiny_slices")
async def test_what_takes_many_slices_is_whole(tmp_path: Path) -> None:
    topics = [f"{index}" for index in range(15)]
    clients = [f"client {index}" for index in range(7)]
    async with opened(tmp_path) as store:
        await store.subscribe([("ann", topics[::3]), ("bob", topics)])
        await store.subscribe_ending(
            [("ann", topics, GONE), *((client, ["hit"], LATER) for client in clients), ("cleo", topics[:3], GONE)]
        )
        assert await subscribers(store, ["hit", "3", "1", "none", "hit"]) == [
            set(clients),
            {"ann", "bob"},
            {"ann", "bob", "cleo"},
            set(),
            set(clients),
        ]
        assert sorted((await store.topics("ann", None, 100))[0]) == sorted(topics)
        pairs = [(client, topic) for client in ("ann", "cleo") for topic in topics]
        anns = [None if index % 3 == 0 else GONE for index in range(15)]
        assert await store.terms(pairs) == [*anns, *[GONE] * 3, *[None] * 12]
        hits = await records(store, "hit")
        assert {each.client for each in hits if each.topic == "hit"} == set(clients)
        await store.unsubscribe([("ann", topics[:10]), ("nobody", ["x"]), ("cleo", ["2", "0"])])
        assert sorted((await store.topics("ann", None, 100))[0]) == topics[10:]
        assert await subscribers(store, ["1", "2", "14"]) == [{"bob", "cleo"}, {"bob"}, {"bob", "ann"}]
        await store.subscribe([("ann", topics), ("client 3", ["hit"])])
        assert await store.terms([("ann", topic) for topic in topics]) == [None] * 15
        assert await store.ended(["ann", *clients]) == [None] * 8


async def test_large_batches_go_frame_by_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [f"song {index}" for index in range(2 * FRAME_ITEMS + 10)]
    async with opened(tmp_path) as store:
        call, sizes, under_way = store._soft_writer.call, list[tuple[str, int]](), 0

        async def counted(operation: str, frames: Any) -> list[Any]:
            nonlocal under_way
            assert not under_way, "the next one was sent before this one was committed"
            under_way += 1
            (frame,) = frames
            sizes.append((operation, sum(len(entry[3 if operation == "end" else 1]) for entry in frame[-1])))
            found = await call(operation, [frame])
            under_way -= 1
            return found

        monkeypatch.setattr(store._endings, "_call", counted)
        await store.subscribe_ending([("ann", topics, GONE), ("bob", topics[:5], GONE)])
        mine = [each for slot in range(4096) for each in (await store.ending(slot, None, 5_000))[0]]
        by_client = [[each for each in mine if each.client == client] for client in ("bob", "ann")]
        assert await store.end([(each, None, True) for each in by_client]) == by_client
        assert sizes == [
            ("subscribe_ending", FRAME_ITEMS),
            ("subscribe_ending", FRAME_ITEMS),
            ("subscribe_ending", 15),
            ("end", 5),
            ("end", FRAME_ITEMS),
            ("end", FRAME_ITEMS),
            ("end", 10),
        ]


async def test_what_is_said_at_once_is_said_of_few_only(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        few = [(f"{number}", ["hit"], GONE) for number in range(MEMBERS_PER_LOOK - 1)]
        await store.subscribe_ending(few)
        found = subscribers_now(store, ["none", "hit"])
        assert found is not None
        assert (found[0], set(found[1])) == ((), {client for client, _, _ in few})
        await store.subscribe([("plain", ["hit"])])
        assert subscribers_now(store, ["none", "hit"]) is None
        assert len((await subscribers(store, ["hit"]))[0]) == MEMBERS_PER_LOOK


# --- between two environments


async def interrupted(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch, operation: str, meanwhile: Callable[[], Any]
) -> None:
    """Before the writer is asked for the operation the next time, something else is done."""
    call = store._soft_writer.call

    async def interrupting(name: str, frames: Any) -> list[Any]:
        if name == operation:
            monkeypatch.setattr(store._endings, "_call", call)
            await meanwhile()
        return await call(name, frames)

    monkeypatch.setattr(store._endings, "_call", interrupting)


async def test_whoever_reads_both_reads_the_ending_ones_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        clients, lanes = store._endings.clients, list[Lane]()
        reading, holds = store._reading, store._holds

        async def becoming_plain(topics: list[str]) -> list[list[str]]:
            await other.subscribe([("ann", ["before"])])
            found = await clients(topics)
            await other.subscribe([("ann", ["after"])])
            return found

        def noted(lane: Lane, database: str | None) -> Any:
            lanes.append(lane)
            return reading(lane, database)

        def looked(lane: Lane, database: str) -> bool:
            lanes.append(lane)
            return holds(lane, database)

        await store.subscribe_ending([("ann", ["before", "after"], GONE)])
        monkeypatch.setattr(store._endings, "clients", becoming_plain)
        assert await subscribers(store, ["before", "after"]) == [{"ann"}, {"ann"}]
        for part in (store, store._endings):
            monkeypatch.setattr(part, "_reading", noted)
            monkeypatch.setattr(part, "_holds", looked)
        subscribers_now(store, ["before"])  # there are none any more
        store.subscribed_now("ann", ["before"])
        await subscribers(store, ["before"])
        await store.topics("ann", None, 10)
        assert lanes == [Lane.SOFT, Lane.DURABLE] * 4
        await store.subscribe_ending([("bob", ["before"], GONE)])
        lanes.clear()
        subscribers_now(store, ["before"])
        store.subscribed_now("ann", ["before"])
        await store.topics("ann", None, 10)
        assert lanes == [Lane.SOFT, Lane.SOFT, Lane.DURABLE] * 3


async def test_one_that_becomes_plain_before_it_is_written_is_taken_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        await interrupted(store, monkeypatch, "subscribe_ending", lambda: other.subscribe([("ann", ["rock"])]))
        await store.subscribe_ending([("ann", ["rock", "jazz"], GONE)])
        assert await records(store, "rock") == []
        assert await store.terms([("ann", "rock"), ("ann", "jazz")]) == [None, GONE]
        assert await subscribers(store, ["rock"]) == [{"ann"}]


async def test_one_that_becomes_plain_while_it_ends_has_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        await store.subscribe_ending([("ann", ["rock"], GONE)])
        mine = await records(store, "rock")
        await interrupted(store, monkeypatch, "end", lambda: other.subscribe([("ann", ["rock"])]))
        assert await store.end([(mine, None, True)]) == [[]]
        assert await store.ended(["ann"]) == [None]
        assert await subscribers(store, ["rock"]) == [{"ann"}]


async def test_what_a_crash_left_beside_a_plain_one_is_no_ending_one_and_ends_without_a_word(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.subscribe_ending([("ann", ["rock"], GONE)])
        mine = await records(store, "rock")
        await store._durable_writer.call("subscribe", [[("ann", ["rock"])]])  # as one that came no further
        assert [*map(set, subscribers_now(store, ["rock"]) or [])] == [{"ann"}]
        assert await subscribers(store, ["rock"]) == [{"ann"}]
        assert await store.topics("ann", None, 1) == (["rock"], None)
        assert await store.terms([("ann", "rock")]) == [None]
        assert await store.end([(mine, None, True)]) == [[]]
        assert await records(store, "rock") == []
        assert await store.ended(["ann"]) == [None]
        assert await subscribers(store, ["rock"]) == [{"ann"}]


@pytest.mark.parametrize("operation", ["subscribe", "unsubscribe"])
async def test_what_comes_while_a_plain_one_is_written_is_taken_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """Before that there is nothing that ends, and nothing with a filter."""
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        call = store._durable_writer.call

        async def writing(name: str, frames: Any) -> list[Any]:
            monkeypatch.setattr(store._durable_writer, "call", call)
            await other.subscribe_ending([("ann", ["rock"], GONE)])
            await other.subscribe_filtered([("ann", ["rock"], "{}", False)])
            return await call(name, frames)

        monkeypatch.setattr(store._durable_writer, "call", writing)
        await getattr(store, operation)([("ann", ["rock"])])
        assert await records(other, "rock") == []
        assert await subscribers(other, ["rock"]) == [{"ann"} if operation == "subscribe" else set()]
        assert await other.filters_of([("ann", "rock")]) == [["{}"] if operation == "subscribe" else []]


async def test_it_ends_before_a_plain_one_takes_its_place_and_has_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        await store.subscribe_ending([("ann", ["rock"], GONE)])
        mine = await records(store, "rock")
        # Between its look at the soft environment and its writing there: the ending one is gone by then.
        await interrupted(store, monkeypatch, "take_out", lambda: other.end([(mine, None, True)]))
        await store.subscribe([("ann", ["rock"])])
        assert await store.ended(["ann"]) == [None]
        assert await subscribers(store, ["rock"]) == [{"ann"}]


async def test_what_ends_before_the_location_is_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        await store.subscribe_ending([("ann", ["rock"], GONE)])
        mine, call = await records(store, "rock"), other._soft_writer.call

        async def ending(name: str, frames: Any) -> list[Any]:
            assert await store.end([(mine, None, True)]) == [mine]
            return await call(name, frames)

        monkeypatch.setattr(other._soft_writer, "call", ending)
        ((_, said),) = await other.listen(["ann"], "here")
        assert said == Ended(["rock"], 1)


async def test_a_listen_that_comes_while_many_end_keeps_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = [f"{index}" for index in range(FRAME_ITEMS + 50)]
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        await store.subscribe_ending([("ann", topics, GONE)])
        mine = [each for slot in range(4096) for each in (await store.ending(slot, None, 5_000))[0]]
        call, calls = store._soft_writer.call, itertools.count()

        async def listening(name: str, frames: Any) -> list[Any]:
            if name == "end" and next(calls) == 1:
                await listen(other, ["ann"], "here")
            return await call(name, frames)

        monkeypatch.setattr(store._endings, "_call", listening)
        assert await store.end([(mine, None, True)]) == [mine[:FRAME_ITEMS]]
        (said,) = await other.ended(["ann"])
        assert said is not None
        assert said.total == FRAME_ITEMS
        left = {each.topic for each in mine[FRAME_ITEMS:]}
        assert set((await other.topics("ann", None, 1_000))[0]) == left


# --- clearing up


class Clock:
    """Seconds of Unix time, set by the test."""

    def __init__(self) -> None:
        self.unix_s = 1_000_000_000.0

    def __call__(self) -> float:
        return self.unix_s


async def test_what_is_old_goes_and_who_listens_or_is_waited_for_stays(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path, wall_clock=clock) as store:
        here = await listen(store, ["away", "here", "waited for"], "i")
        await store.unlisten([("away", here[0]), ("waited for", here[2])])
        await store.subscribe_ending([("waited for", ["rock"], GONE), ("old", ["rock"], GONE)])
        mine = [each for each in await records(store, "rock") if each.client == "old"]
        await store.end([(mine, None, True)])
        clock.unix_s += 600.0
        (young,) = await listen(store, ["young"], "i")
        await store.unlisten([("young", young)])
        assert await store.tidy(600.0) == 0  # not longer ago than that
        clock.unix_s += 0.001
        assert await store.tidy(600.0) == 2
        assert await store.tidy(600.0) == 0
        assert await store.ended(["old"]) == [None]
        names = ["away", "here", "waited for", "young"]
        found = [None, here[1], here[2]._replace(online=False), young._replace(online=False)]
        assert await store.locations(names) == found
        clock.unix_s += 1.0
        await store.unsubscribe([("waited for", ["rock"])])
        assert await store.tidy(600.0) == 1
        assert await store.locations(["waited for"]) == [None]


async def test_a_later_end_keeps_what_has_ended_for_longer(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path, wall_clock=clock) as store:
        await store.subscribe_ending([("ann", ["rock", "jazz"], GONE)])
        for topic in ("rock", "jazz"):
            await store.end([([each for each in await records(store, topic) if each.topic == topic], None, True)])
            clock.unix_s += 400.0
        assert await store.tidy(600.0) == 0
        assert await store.ended(["ann"]) == [Ended(["rock", "jazz"], 2)]
        clock.unix_s += 201.0
        assert await store.tidy(600.0) == 1


def test_a_step_is_bounded_and_goes_on_where_the_last_one_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending_operations, "TIDY_RECORDS", 10)
    monkeypatch.setattr(ending_operations, "TIDY_S", 60.0)
    environment = prepare(tmp_path, Lane.SOFT, MAP_BYTES).environment
    soft = operations(environment, Lane.SOFT)
    with environment.env as env:
        with env.begin(write=True) as txn:
            soft["listen"](txn, [(f"{number:03}", number, "i") for number in range(100)])
            soft["unlisten"](txn, [(f"{number:03}", number, "i") for number in range(0, 100, 2)])
        went = []
        for _ in range(11):
            with env.begin(write=True) as txn:
                went += soft["tidy"](txn, (95, 0))
        # Of those that are away the numbers up to 94 are old: five in ten, and the last two of the last ten stay.
        assert went == [5, 5, 5, 5, 5, 5, 5, 5, 5, 3, 0]
        monkeypatch.setattr(ending_operations, "TIDY_S", -1.0)
        with env.begin(write=True) as txn:
            assert soft["tidy"](txn, (1_000, 0)) == [0]
        with env.begin() as txn:
            assert txn.stat(environment.db["locations"])["entries"] == 52


# --- ending and ending_of

NAMES = st.sampled_from(["a", "b", "ab", "é"])
SOME = st.lists(NAMES, max_size=4)
FRAMES = st.one_of(
    st.tuples(st.just("subscribe_ending"), st.lists(st.tuples(NAMES, SOME, st.booleans(), st.just(0.0)), max_size=3)),
    st.tuples(st.just("take_out"), st.lists(st.tuples(NAMES, SOME), max_size=3)),
    st.tuples(st.just("end"), st.lists(st.tuples(NAMES, SOME, st.booleans(), st.booleans()), max_size=3)),
)


def test_the_two_databases_have_the_same_subscriptions_and_no_others(tmp_path: Path) -> None:
    environment = prepare(tmp_path, Lane.SOFT, MAP_BYTES).environment
    soft, db = operations(environment, Lane.SOFT), environment.db

    def both(txn: Any) -> tuple[list[tuple[bytes, str]], list[tuple[bytes, str]]]:
        found = [(key, endings.ending_in(value)) for key, value in txn.cursor(db["ending"])]
        for key, each in found:
            topic_hash = digest(each.topic.encode())
            assert key == now.prefix_of(each.topic, topic_hash) + digest(each.client.encode())
        first = sorted((digest(each.client.encode()) + digest(each.topic.encode()), each.topic) for _, each in found)
        return first, [(key, value.decode()) for key, value in txn.cursor(db["ending_of"])]

    def stamp_of(txn: Any, client: str, topic: str) -> int:
        value = txn.get(now.prefix_of(topic, digest(topic.encode())) + digest(client.encode()), db=db["ending"])
        return 1 if value is None else endings.ending_in(value).stamp

    with environment.env as env:

        @settings(
            max_examples=proof.examples(100, 25),
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(st.lists(st.lists(FRAMES, max_size=4), max_size=6))
        def examples(transactions: list[list[tuple[str, Any]]]) -> None:
            for frames in transactions:
                with env.begin(write=True) as txn:
                    for operation, batch in frames:
                        if operation == "subscribe_ending":
                            soft[operation](txn, [batch])
                        elif operation == "take_out":
                            soft[operation](txn, (bool(len(batch) % 2), batch))
                        else:
                            entries = [
                                (
                                    client,
                                    None,
                                    True,
                                    [(topic, stamp_of(txn, client, topic) - late, plain) for topic in ts],
                                )
                                for client, ts, late, plain in batch
                            ]
                            assert len(soft[operation](txn, (1, entries))) == sum(len(ts) for _, ts, _, _ in batch)
                with env.begin() as txn:
                    first, second = both(txn)
                    assert first == second
            with env.begin(write=True) as txn:
                soft["take_out"](txn, (True, [(name, ["a", "b", "ab", "é"]) for name in ("a", "b", "ab", "é")]))
                assert [txn.stat(db[name])["entries"] for name in ("ending", "ending_of", "ended")] == [0, 0, 0]

        examples()


async def test_counters_count_them(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.subscribe_ending([("ann", ["rock", "jazz"], GONE)])
        mine = await records(store, "rock")
        await store.end([(mine, Location(1, "i", True), True)])
        await store.terms([("ann", "rock")])
        await store.ended(["ann", "bob"])
        subscribers_now(store, ["rock"])
        assert store.counters == {"reads": 5, "writes": 3, "writer_restarts": 0, "disk_stalls": 0}
