"""Filters in the embedded store: what it is made of, what only it promises, and its worst moments."""

from __future__ import annotations

import logging
import os
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lmdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingeborg.broker.command.doctor import embedded as doctor
from ingeborg.broker.store.base import (
    FILTERS_MAX,
    PAGE_SUBSCRIPTIONS,
    StoreError,
    StoreUnavailable,
    Term,
    TooManyFilters,
)
from ingeborg.broker.store.embedded import endings, filters, now, slices
from ingeborg.broker.store.embedded.layout import FRAME_BYTES_MAX, Lane, open_for_reading, pack, prepare
from ingeborg.broker.store.embedded.operations import operations
from ingeborg.broker.store.embedded.store import PAIRS_AT_ONCE, EmbeddedStore
from ingeborg.protocol.hashes import digest
from tests import proof

from .test_embedded import MAP_BYTES, at_last, line_of, opened, pid_of, start, until_ended
from .test_embedded import end as kill

GONE = Term(True, 0.0)
PIZZA = '{"food":["pizza"]}'
SOUP = '{"food":["soup"]}'


def sizes(directory: Path) -> dict[str, int]:
    """Entries of the durable environment's databases."""
    environment = open_for_reading(directory, Lane.DURABLE, MAP_BYTES)
    with environment.env as env, env.begin() as txn:
        return {name: txn.stat(db)["entries"] for name, db in environment.db.items()}


async def pairs(store: EmbeddedStore, topic: str, limit: int = 10_000) -> list[tuple[str, str]]:
    """Of the topic, in one page."""
    (((found, _)),) = await store.filtered([(topic, None)], limit)
    return found


# --- what it is made of


async def test_who_only_reads_finds_them_and_writes_none(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.subscribe([("ann", ["rock"])])
        async with opened(tmp_path, read_only=True) as reader:
            assert reader.filtered_now([("rock", None)], 10) == [([], None)]
            await store.subscribe_filtered([("ann", ["jazz"], PIZZA, False)])
            assert await pairs(reader, "jazz") == [("ann", PIZZA)]
            assert sorted((await reader.topics("ann", None, 10))[0]) == ["jazz", "rock"]
            with pytest.raises(StoreUnavailable):
                await reader.subscribe_filtered([("ann", ["jazz"], SOUP, False)])
    assert (await doctor.read_through(tmp_path, Lane.DURABLE, MAP_BYTES)) == (None, "7 entries")


async def test_a_reboot_leaves_them(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.subscribe_filtered([("ann", ["rock"], PIZZA, False)])
    (tmp_path / "soft" / "boot_id").write_text("another boot")
    async with opened(tmp_path) as store:
        assert await pairs(store, "rock") == [("ann", PIZZA)]


async def test_nothing_is_left_of_those_that_are_gone(tmp_path: Path) -> None:
    topics, clients = [f"song {index}" for index in range(200)], [f"client {index}" for index in range(300)]
    async with opened(tmp_path) as store:
        await store.subscribe_filtered([("ann", topics, f'{{"n":[{number}]}}', False) for number in range(3)])
        await store.subscribe_filtered([(client, ["hit"], SOUP, False) for client in clients])
        await store.subscribe([("ann", topics)])
        await store.unsubscribe([("ann", topics), *((client, ["hit"]) for client in clients)])
    assert set(sizes(tmp_path).values()) == {0}


async def test_equal_filters_are_kept_once_and_go_with_the_last_that_has_them(tmp_path: Path) -> None:
    long = '{"a":["%s"]}' % ("x" * 4_000)
    async with opened(tmp_path, map_size_bytes=2 << 20) as store:  # 40 MB would not fit
        clients = [f"client {index}" for index in range(5_000)]
        await store.subscribe_filtered([(client, ["rock", "jazz"], long, False) for client in clients])
        await store.unsubscribe([(client, ["rock"]) for client in clients])
        await store.unsubscribe([(client, ["jazz"]) for client in clients[1:]])
        assert await pairs(store, "jazz") == [(clients[0], long)]
        assert sizes_of(store, "filters", "filtered", "filtered_of", "filtered_topics") == [1, 1, 1, 1]


def sizes_of(store: EmbeddedStore, *names: str) -> list[int]:
    """The same of an open store, in which nobody else may open the environment."""
    environment = store._environments[Lane.DURABLE]
    with environment.begin() as txn:
        return [txn.stat(environment.db[name])["entries"] for name in names]


# --- its worst moments

ENDLESS = """
import asyncio, sys
from pathlib import Path
from ingeborg.broker.store.embedded.store import EmbeddedStore
async def run():
    store = EmbeddedStore(Path(sys.argv[1]), timeout_s=60.0)
    await store.open()
    print(*store.writer_pids.values(), flush=True)
    for number in range(1_000_000):
        await store.subscribe_filtered([("ann", [f"{number}"], "one", False), ("ann", ["last"], f"{number}", True)])
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
        async with opened(tmp_path) as other:  # a second process sees what the first has written
            assert await pairs(other, f"{last}") == [("ann", "one")]
        process.kill()
        last = max([last, *map(int, process.stdout.read().split("\n")[:-1])])
        for pid in writers:
            await until_ended(pid)
        async with opened(tmp_path) as store:
            asked = [("ann", f"{number}") for number in range(last + 1)]
            assert await store.filters_of(asked) == [["one"]] * len(asked)
            ((newest,),) = await store.filters_of([("ann", "last")])
            assert int(newest) in (last, last + 1)
    finally:
        kill(process)


async def test_a_killed_writer_is_replaced(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.subscribe_filtered([("ann", ["rock"], PIZZA, False)])
        killed = pid_of(store, Lane.DURABLE)
        os.kill(killed, signal.SIGKILL)
        await until_ended(killed)
        await at_last(lambda: store.subscribe_filtered([("ann", ["rock"], SOUP, False)]))
        assert await store.filters_of([("ann", "rock")]) == [[PIZZA, SOUP]]


async def test_a_full_map_refuses_new_ones_and_lets_them_go(tmp_path: Path) -> None:
    texts = [f'{{"n":["{number}{"x" * 2_000}"]}}' for number in range(3_000)]
    async with opened(tmp_path, map_size_bytes=1 << 20) as store:
        with pytest.raises(StoreError, match="the embedded store is full"):
            await store.subscribe_filtered([(f"{number}", ["rock"], text, False) for number, text in enumerate(texts)])
        assert len(await pairs(store, "rock")) >= filters.FRAME_FILTERS
        with pytest.raises(StoreError, match="the embedded store is full"):
            await store.subscribe_filtered([(f"{number}", ["jazz"], text, False) for number, text in enumerate(texts)])
        await store.unsubscribe([("nobody", ["x"])])  # behind whatever of these was still under way
        held = await pairs(store, "rock")
        await store.unsubscribe([(client, ["rock"]) for client, _ in held[1:]])
        await store.unsubscribe_filtered([(held[0][0], ["rock"], held[0][1])])
        assert await pairs(store, "rock") == []
        await store.subscribe_filtered([("bob", ["rock"], texts[0], False)])
        assert await pairs(store, "rock") == [("bob", texts[0])]


async def test_a_filter_that_is_named_and_not_there_is_damage(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.subscribe_filtered([("ann", ["rock"], PIZZA, False)])
    with lmdb.open(str(tmp_path / "durable"), max_dbs=8, map_size=MAP_BYTES) as env:
        texts = env.open_db(b"filters")
        with env.begin(texts, write=True) as txn:
            txn.delete(digest(PIZZA.encode()))
    async with opened(tmp_path) as store:
        for operation in (store.filtered([("rock", None)], 10), store.filters_of([("ann", "rock")])):
            with pytest.raises(StoreError, match="found damage in"):
                await operation
        with pytest.raises(StoreError, match="found damage in"):
            store.filtered_now([("rock", None)], 10)


async def test_one_client_that_has_too_many_is_no_trouble_of_the_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts = [f'{{"n":[{number}]}}' for number in range(FILTERS_MAX + 1)]
    async with opened(tmp_path) as store:
        with caplog.at_level(logging.WARNING):
            with pytest.raises(TooManyFilters, match=r"client 'ann' .* 64 filters at topic 'rock': take one .* out"):
                await store.subscribe_filtered(
                    [("bob", ["jazz"], PIZZA, True), *(("ann", ["rock"], text, False) for text in texts)]
                )
            await store.subscribe_filtered([("ann", ["rock"], text, False) for text in texts[1:]])
        assert not caplog.records
        # Of one frame all or nothing is done.
        assert await pairs(store, "jazz") == []
        assert store.writer_restarts == 0


# --- slices and frames


@pytest.fixture
def tiny_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read looks at one thing, or two, and lets go of the loop."""
    for module in (endings, filters, slices):
        monkeypatch.setattr(module, "SLICE_S", -1.0)
        monkeypatch.setattr(module, "LOOKS", 2)


@pytest.mark.usefixtures("tiny_slices")
@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_what_takes_many_slices_is_whole(tmp_path: Path, limit: int) -> None:
    topics, texts = [f"{index}" for index in range(7)], [f"filter {index}" for index in range(5)]
    wanted = {(topic, (client, text)) for topic in topics for client in ("ann", "bob") for text in texts[int(topic) :]}
    async with opened(tmp_path) as store:
        await store.subscribe_filtered([(client, [topic], text, False) for topic, (client, text) in wanted])
        await store.subscribe([("ann", ["5", "6", "1"])])
        await store.subscribe_ending([("ann", ["0", "7"], GONE)])
        found = []
        asked: list[tuple[str, str | None]] = [(topic, None) for topic in topics]
        while asked:
            pages = await store.filtered(asked, limit)
            assert all(len(page) <= limit for page, _ in pages)
            found += [(topic, pair) for (topic, _), (page, _) in zip(asked, pages, strict=True) for pair in page]
            asked = [(topic, rest) for (topic, _), (_, rest) in zip(asked, pages, strict=True) if rest is not None]
        assert sorted(found) == sorted(wanted)
        held = [sorted(texts[int(topic) :]) for topic in topics]
        assert await store.filters_of([("ann", topic) for topic in topics]) == held
        mine, cursor = list[str](), None
        while True:
            page, cursor = await store.topics("ann", cursor, limit)
            mine += page
            if cursor is None:
                break
        assert sorted(mine) == sorted([*topics, "7"])
        everything = [page async for page in store.filtered_subscriptions()]
        assert max(sum(len(some) for _, some in page) for page in everything) <= 2
        assert sorted((topic, pair) for page in everything for topic, some in page for pair in some) == sorted(wanted)
        await store.unsubscribe([("ann", topics[:3]), ("nobody", ["x"]), ("bob", ["never had"])])
        assert [len(page) for page, _ in await store.filtered([(topic, None) for topic in topics], 100)] == [
            *(5, 4, 3),
            *(4, 2, 0, 0),
        ]


async def test_large_batches_go_in_frames_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = [f"{number:04}" + "x" * 4_092 for number in range(2 * filters.FRAME_FILTERS + 10)]
    async with opened(tmp_path) as store:
        call, frames = store._durable_writer.call, list[tuple[str, int]]()

        async def counted(operation: str, arguments: Any) -> list[Any]:
            sent = list(arguments)
            assert all(len(pack((0, operation, frame))) < FRAME_BYTES_MAX // 4 for frame in sent)
            frames.extend((operation, sum(len(topics) for _, topics, *_ in frame)) for frame in sent)
            return await call(operation, sent)

        monkeypatch.setattr(store._filters, "_call", counted)
        batch: Sequence[Any] = [("\N{SNOWMAN}" * 42, ["t" * 1_024], text, True) for text in longest]
        await store.subscribe_filtered(batch)
        assert await pairs(store, "t" * 1_024) == [("\N{SNOWMAN}" * 42, longest[-1])]
        topics = [f"{index}" for index in range(filters.FRAME_FILTERS + 2)]
        await store.subscribe_filtered([("ann", topics, PIZZA, False)])
        await store.unsubscribe([("ann", [*topics, "never had"]), ("bob", topics)])
        many = filters.FRAME_FILTERS
        assert frames == [
            *[("subscribe_filtered", size) for size in (many, many, 10)],
            *[("subscribe_filtered", size) for size in (many, 2)],
            *[("unsubscribe_filtered", size) for size in (many, 2)],
        ]


async def test_what_is_said_at_once_is_said_of_few_only(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        few = [(f"{number:04}", PIZZA) for number in range(PAIRS_AT_ONCE)]
        await store.subscribe_filtered([(client, ["hit"], text, False) for client, text in few])
        assert store.filtered_now([("none", None), ("hit", None)], 10_000) == [([], None), (few, None)]
        assert store.filtered_now([("hit", None)], PAIRS_AT_ONCE - 1) is None  # there is a second page
        assert store.filtered_now([("none", None), ("none", "0")], 10) is None
        await store.subscribe_filtered([("one more", ["hit"], PIZZA, False)])
        assert store.filtered_now([("none", None), ("hit", None)], 10_000) is None
        assert len(await pairs(store, "hit")) == PAIRS_AT_ONCE + 1


async def test_when_the_time_is_up_nothing_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingeborg.broker.store.embedded.store.SLICE_S", 0.0)
    async with opened(tmp_path) as store:
        await store.subscribe_filtered([("ann", ["rock", "jazz"], PIZZA, False)])
        assert store.filtered_now([("rock", None), ("jazz", None)], 10) is None
        assert store.filtered_now([("rock", None)], 10) == [([("ann", PIZZA)], None)]
        assert store.subscribers_now(["rock"]) == ([()], ["rock"])
        with store._reading(Lane.DURABLE, "filtered") as (_, cursor):  # the plain ones have left none
            assert now.with_filters(cursor, ["rock", "jazz"], 0.0) is None
            assert now.with_filters(cursor, ["none"], 0.0) == []


@pytest.mark.usefixtures("tiny_slices")
async def test_which_of_many_topics_have_some_is_found_in_slices(tmp_path: Path) -> None:
    topics = [f"{number}" for number in range(9)]
    async with opened(tmp_path) as store:
        await store.subscribe_filtered([("ann", topics[::3], PIZZA, False)])
        assert await store.subscribers([*topics, "0"]) == ([set()] * 10, ["0", "3", "6", "0"])


async def test_a_page_of_all_is_no_larger_than_it_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "SLICE_S", 60.0)
    async with opened(tmp_path) as store:
        batch = [(f"{number}", ["hit"], PIZZA, False) for number in range(PAGE_SUBSCRIPTIONS + 1)]
        await store.subscribe_filtered(batch)
        sizes = [sum(len(some) for _, some in page) async for page in store.filtered_subscriptions()]
        assert sizes == [PAGE_SUBSCRIPTIONS, 1]


# --- instead of all else


async def test_it_takes_the_place_of_an_ending_one_when_it_is_there_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store:
        await store.subscribe_ending([("ann", ["rock"], GONE)])
        call = store._soft_writer.call

        async def looking(operation: str, frames: Any) -> list[Any]:
            assert operation == "take_out"
            assert await pairs(store, "rock") == [("ann", SOUP)]
            return await call(operation, frames)

        monkeypatch.setattr(store._endings, "_call", looking)
        await store.subscribe_filtered([("ann", ["rock"], PIZZA, False)])
        assert await store.terms([("ann", "rock")]) == [GONE]
        await store.subscribe_filtered([("ann", ["rock"], SOUP, True)])
        assert await store.terms([("ann", "rock")]) == [None]
        assert await store.ended(["ann"]) == [None]


async def test_a_client_whose_filter_takes_the_place_of_a_plain_one_is_never_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        await store.subscribe([("ann", ["rock"])])
        plain = store._plain_subscribers

        async def replaced(topics: Sequence[str]) -> list[set[str]]:
            await other.subscribe_filtered([("ann", topics, PIZZA, True)])
            return await plain(topics)

        monkeypatch.setattr(store, "_plain_subscribers", replaced)
        assert await store.subscribers(["rock"]) == ([set()], ["rock"])


async def test_what_has_ended_is_not_said_of_a_topic_where_one_has_taken_the_place_of_all(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.subscribe_ending([("ann", ["rock", "jazz"], GONE)])
        mine = [each for slot in range(4096) for each in (await store.ending(slot, None, 100))[0]]
        await store.end([(mine, None, True)])
        await store.subscribe_filtered([("ann", ["rock"], PIZZA, True)])
        (ended,) = await store.ended(["ann"])
        assert ended is not None
        assert ended.topics == ["jazz"]


# --- the four databases

CLIENTS = st.sampled_from(["a", "b", "a\0", "é"])
SOME = st.lists(st.sampled_from(["x", "y", "é"]), max_size=3)
TEXTS = st.sampled_from(["f", "g", "h"])
FRAMES = st.one_of(
    st.tuples(st.just("subscribe_filtered"), st.lists(st.tuples(CLIENTS, SOME, TEXTS, st.booleans()), max_size=4)),
    st.tuples(
        st.just("unsubscribe_filtered"), st.lists(st.tuples(CLIENTS, SOME, st.one_of(TEXTS, st.none())), max_size=3)
    ),
    st.tuples(st.sampled_from(["subscribe", "unsubscribe"]), st.lists(st.tuples(CLIENTS, SOME), max_size=3)),
)


class Model:
    """What the frames have made, in the order of their entries."""

    def __init__(self) -> None:
        self.plain: set[tuple[str, str]] = set()  # (client, topic)
        self.filtered: set[tuple[str, str, str]] = set()

    def done(self, operation: str, batch: Sequence[Any]) -> None:
        """All entries of a frame."""
        for client, topics, *others in batch:
            for topic in topics:
                getattr(self, operation)(client, topic, *others)

    def subscribe(self, client: str, topic: str) -> None:
        """Plain."""
        self.plain.add((client, topic))

    def unsubscribe(self, client: str, topic: str) -> None:
        """Plain."""
        self.plain.discard((client, topic))

    def subscribe_filtered(self, client: str, topic: str, text: str, replace: bool) -> None:
        """Beside the others, or instead."""
        if replace:
            self.plain.discard((client, topic))
            self.unsubscribe_filtered(client, topic, None)
        self.filtered.add((client, topic, text))

    def unsubscribe_filtered(self, client: str, topic: str, text: str | None) -> None:
        """One, or all."""
        self.filtered -= {e for e in self.filtered if e[:2] == (client, topic) and text in (None, e[2])}


def test_the_databases_have_the_same_subscriptions_and_no_others(tmp_path: Path) -> None:
    environment = prepare(tmp_path, Lane.DURABLE, MAP_BYTES).environment
    durable, db = operations(environment, Lane.DURABLE), environment.db

    def compare(txn: Any, model: Model) -> None:
        found = Counter((key, value) for key, value in txn.cursor(db["filtered"]))
        hashed = [(digest(t.encode()), c.encode(), digest(f.encode())) for c, t, f in model.filtered]
        assert found == Counter((topic, filters.pair_of(client, text)) for topic, client, text in hashed)
        of = {(digest(client.encode()), digest(topic.encode())) for client, topic, _ in model.filtered}
        assert sorted(txn.cursor(db["filtered_of"])) == sorted(of)
        topics = {(digest(topic.encode()), topic.encode()) for _, topic, _ in model.filtered}
        assert sorted(txn.cursor(db["filtered_topics"])) == sorted(topics)
        counts = Counter(text for _, _, text in model.filtered)
        texts = {digest(text.encode()): (count, text.encode()) for text, count in counts.items()}
        assert {key: filters.unpack_filter(value) for key, value in txn.cursor(db["filters"])} == texts
        plain = sorted((digest(topic.encode()), client.encode()) for client, topic in model.plain)
        assert sorted(txn.cursor(db["subscribers"])) == plain
        assert txn.stat(db["texts"])["entries"] == len({topic for _, topic in model.plain})
        with txn.cursor(db["filtered"]) as cursor:
            for topic in ("x", "y", "é"):
                wanted = sorted((client, text) for client, at, text in model.filtered if at == topic)
                said = now.filtered(cursor, txn, db["filters"], [(topic, None)], 100, float("inf"))
                assert said is not None
                assert sorted(said[0][0]) == wanted

    with environment.env as env:

        @settings(
            max_examples=proof.examples(100, 25),
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(st.lists(st.lists(FRAMES, max_size=4), max_size=6))
        def examples(transactions: list[list[tuple[str, Any]]]) -> None:
            model = Model()
            for frames in transactions:
                with env.begin(write=True) as txn:
                    for operation, batch in frames:
                        durable[operation](txn, batch)
                        model.done(operation, batch)
                with env.begin() as txn:
                    compare(txn, model)
            everywhere = [(client, ["x", "y", "é"]) for client in ("a", "b", "a\0", "é")]
            with env.begin(write=True) as txn:
                durable["unsubscribe"](txn, everywhere)
                durable["unsubscribe_filtered"](txn, [(client, topics, None) for client, topics in everywhere])
                assert all(txn.stat(each)["entries"] == 0 for each in db.values())

        examples()


def test_a_refused_frame_has_changed_nothing(tmp_path: Path) -> None:
    environment = prepare(tmp_path, Lane.DURABLE, MAP_BYTES).environment
    durable = operations(environment, Lane.DURABLE)
    with environment.env as env:
        with env.begin(write=True) as txn:
            durable["subscribe"](txn, [("ann", ["rock"])])
        with env.begin(write=True) as txn:
            batch = [("ann", ["rock"], PIZZA, True), *(("ann", ["x"], f"{n}", False) for n in range(FILTERS_MAX + 1))]
            with pytest.raises(TooManyFilters):
                durable["subscribe_filtered"](txn, batch)
            entries = {name: txn.stat(db)["entries"] for name, db in environment.db.items()}
            plain = {"subscribers", "topics_of", "texts"}
            assert entries == {name: int(name in plain) for name in entries}


def test_a_value_is_no_longer_than_a_duplicate_may_be() -> None:
    assert len(filters.pair_of(b"\0" * 128, digest(b""))) == 145


# --- for the metrics


async def test_counters_count_them(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.subscribe_filtered([("ann", ["rock", "jazz"], PIZZA, False)])
        await store.unsubscribe_filtered([("ann", ["rock"], PIZZA)])
        assert store.counters == {"reads": 0, "writes": 3, "writer_restarts": 0, "disk_stalls": 0}
        await store.filtered([("rock", None), ("jazz", None)], 10)
        store.filtered_now([("rock", None)], 10)
        await store.filters_of([("ann", "rock"), ("ann", "jazz")])
        _ = [page async for page in store.filtered_subscriptions()]
        assert store.counters == {"reads": 6, "writes": 3, "writer_restarts": 0, "disk_stalls": 0}
