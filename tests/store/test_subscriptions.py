"""Subscriptions in the embedded store: their structure, the promises of this store alone, and its worst moments."""

from __future__ import annotations

import itertools
import logging
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
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
    Subscribe,
    Subscription,
    Term,
    TooManyFilters,
)
from ingeborg.broker.store.embedded import now, slices, subscriptions
from ingeborg.broker.store.embedded.layout import (
    DATABASES,
    FILTER_ITEMS,
    FRAME_BYTES_MAX,
    FRAME_ITEMS,
    LARGE_ROWS,
    Group,
    Lane,
    frames_of,
    pack,
    prepare,
)
from ingeborg.broker.store.embedded.operations import operations
from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.broker.store.embedded.subscription_operations import GONE, STAYS, TAKEN_OUT, Run, unpack_filter
from ingeborg.broker.store.embedded.subscription_operations import Subscriptions as Written
from ingeborg.broker.store.embedded.subscriptions import MEMBERS_PER_LOOK, PAIRS_AT_ONCE
from ingeborg.protocol.hashes import digest
from tests import proof

from .asked import subscribers
from .test_embedded import MAP_BYTES, at_last, line_of, opened, pid_of, start, until_ended
from .test_embedded import end as kill

AWAY = Term(True, 0.0)
LATER = Term(False, 4e9)
PIZZA = '{"food":["pizza"]}'
SOUP = '{"food":["soup"]}'


async def pairs(store: EmbeddedStore, topic: str, limit: int = 10_000) -> list[tuple[str, str]]:
    """Return the topic's clients and filters, from all pages."""
    _, pages = await store.subscribers([topic])
    found, cursor = pages.get(topic, ([], None))
    while cursor is not None:
        page, cursor = await store.filtered(topic, cursor, limit)
        found += page
    return found


async def terms(store: EmbeddedStore, asked: Iterable[tuple[str, str]]) -> list[dict[str | None, Term | None]]:
    """Return what each pair has, by filter."""
    return [{each.filter: each.term for each in record} for record in await store.subscriptions_of(list(asked))]


def sizes(store: EmbeddedStore) -> dict[str, int]:
    """Return the number of entries in each database of subscriptions, for both environments."""
    found = Counter(dict.fromkeys(DATABASES[Lane.DURABLE], 0))
    for environment in store._environments.values():
        with environment.begin() as txn:
            found.update({name: txn.stat(environment.db[name])["entries"] for name in DATABASES[Lane.DURABLE]})
    return dict(found)


# --- structure


async def test_who_only_reads_finds_them_and_writes_none(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.subscribe([Subscribe("ann", ["rock"])])
        async with opened(tmp_path, read_only=True) as reader:
            await store.subscribe([Subscribe("ann", ["jazz"], PIZZA, AWAY)])
            assert await terms(reader, [("ann", "jazz"), ("ann", "rock")]) == [{PIZZA: AWAY}, {None: None}]
            with pytest.raises(StoreUnavailable):
                await reader.subscribe([Subscribe("ann", ["jazz"], SOUP)])
    # Three for each subscription, one for the filter, and one for the term.
    assert (await doctor.read_through(tmp_path, Lane.DURABLE, MAP_BYTES)) == (None, "3 entries")
    assert (await doctor.read_through(tmp_path, Lane.SOFT, MAP_BYTES)) == (None, "5 entries")


async def test_nothing_is_left_of_those_that_are_gone(tmp_path: Path) -> None:
    topics, clients = [f"song {index}" for index in range(200)], [f"client {index}" for index in range(300)]
    async with opened(tmp_path) as store:
        await store.subscribe([Subscribe("ann", topics, f'{{"n":[{number}]}}', AWAY) for number in range(3)])
        await store.subscribe([Subscribe(client, ["hit"], SOUP) for client in clients])
        await store.subscribe([Subscribe("ann", topics), Subscribe("bob", topics[:9], None, LATER)])
        await store.unsubscribe([("ann", topics, None), *((client, ["hit"], SOUP) for client in clients)])
        assert sizes(store) == {"subscribers": 9, "topics_of": 9, "texts": 9, "filters": 0, "terms": 9}
        await store.unsubscribe([("bob", topics, None)])
        assert set(sizes(store).values()) == {0}


async def test_equal_filters_are_kept_once_and_go_with_the_last_that_has_them(tmp_path: Path) -> None:
    long = '{"a":["%s"]}' % ("x" * 4_000)
    async with opened(tmp_path, map_size_bytes=3 << 20) as store:  # 40 MB would not fit
        clients = [f"client {index}" for index in range(5_000)]
        await store.subscribe([Subscribe(client, ["rock", "jazz"], long) for client in clients])
        await store.unsubscribe([(client, ["rock"], None) for client in clients])
        await store.unsubscribe([(client, ["jazz"], long) for client in clients[1:]])
        assert await pairs(store, "jazz") == [(clients[0], long)]
        assert sizes(store) == {"subscribers": 1, "topics_of": 1, "texts": 1, "filters": 1, "terms": 0}


# --- its worst moments

ENDLESS = """
import asyncio, sys
from pathlib import Path
from ingeborg.broker.store.base import Subscribe, Term
from ingeborg.broker.store.embedded.store import EmbeddedStore
async def run():
    store = EmbeddedStore(Path(sys.argv[1]), timeout_s=60.0)
    await store.open()
    print(*store.writer_pids.values(), flush=True)
    for number in range(1_000_000):
        topic = str(number)
        kinds = [Subscribe("ann", [topic], "one", Term(True, 0.0)), Subscribe("bob", [topic], None, Term(False, 4e9))]
        await store.subscribe([*kinds, Subscribe("ann", ["last"], topic, replace=True)])
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
        async with opened(tmp_path) as other:  # a second process sees the first one's writes
            assert await terms(other, [("ann", f"{last}")]) == [{"one": AWAY}]
        process.kill()
        last = max([last, *map(int, process.stdout.read().split("\n")[:-1])])
        for pid in writers:
            await until_ended(pid)
        async with opened(tmp_path) as store:
            asked = [(client, f"{number}") for number in range(last + 1) for client in ("ann", "bob")]
            assert await terms(store, asked) == [{"one": AWAY}, {None: LATER}] * (last + 1)
            ((newest,),) = await terms(store, [("ann", "last")])
            assert int(newest or -1) in (last, last + 1)
    finally:
        kill(process)


async def test_a_killed_writer_is_replaced_and_stamps_go_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.subscribe([Subscribe("ann", ["rock"], PIZZA, AWAY)])
        ((before,),) = await store.subscriptions_of([("ann", "rock")])
        killed = pid_of(store, Lane.DURABLE)
        os.kill(killed, signal.SIGKILL)
        await until_ended(killed)
        await at_last(lambda: store.subscribe([Subscribe("ann", ["rock"], PIZZA, LATER)]))
        ((after,),) = await store.subscriptions_of([("ann", "rock")])
        assert after.term == LATER
        assert after.stamp > before.stamp


@pytest.mark.parametrize(("size", "term"), [(0, AWAY), (2_000, AWAY), (2_000, LATER)])
async def test_a_full_map_refuses_new_ones_and_lets_them_go_and_end(tmp_path: Path, size: int, term: Term) -> None:
    """Subscriptions without filters, in runs, and with long filters."""
    numbers = range(12_000) if not size else range(2_000)

    def rows(client: str, topic: str) -> list[Subscribe]:
        filters = [f'{{"n":["{number}{"x" * size}"]}}' if size else None for number in numbers]
        return [Subscribe(f"{client} {number}", [topic], filters[number], term) for number in numbers]

    async with opened(tmp_path, map_size_bytes=2 << 20) as store:
        for client in ("ann", "bob"):
            with pytest.raises(StoreError, match="the embedded store is full"):
                await store.subscribe(rows(client, "rock"))
        # Queued after all that was still under way.
        await store.unsubscribe([("nobody", ["x"], None)])
        await store.tidy(600.0)
        held = [each async for page in store.all_subscriptions() for _, _, some in page for each in some]
        assert len(held) >= FRAME_ITEMS // FILTER_ITEMS
        expiring, going = held[: len(held) // 2], held[len(held) // 2 :]
        assert await store.end([([each], None, True) for each in expiring]) == [[each] for each in expiring]
        await store.unsubscribe([(each.client, [each.topic], each.filter) for each in going])
        assert set(sizes(store).values()) == {0}
        assert {said.total for said in await store.ended([each.client for each in expiring]) if said} == {1}
        await store.subscribe(rows("cleo", "rock")[:1])


async def test_a_filter_that_is_named_and_not_there_is_damage(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.subscribe([Subscribe("ann", ["rock"], PIZZA)])
    with lmdb.open(str(tmp_path / "durable"), max_dbs=8, map_size=MAP_BYTES) as env:
        texts = env.open_db(b"filters")
        with env.begin(texts, write=True) as txn:
            txn.delete(digest(PIZZA.encode()))
    async with opened(tmp_path) as store:
        for operation in (store.subscribers(["rock"]), store.subscriptions_of([("ann", "rock")])):
            with pytest.raises(StoreError, match="found damage in"):
                await operation
        with pytest.raises(StoreError, match="found damage in"):
            store.subscribers_now(["rock"])


async def test_one_client_that_has_too_many_is_no_trouble_of_the_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts = [f'{{"n":[{number}]}}' for number in range(FILTERS_MAX + 1)]
    async with opened(tmp_path) as store:
        with caplog.at_level(logging.WARNING):
            with pytest.raises(TooManyFilters, match=r"client 'ann' .* 64 filters at topic 'rock': remove one first"):
                await store.subscribe(
                    [Subscribe("bob", ["jazz"], PIZZA), *(Subscribe("ann", ["rock"], text) for text in texts)]
                )
            await store.subscribe(
                [Subscribe("ann", ["rock"]), *(Subscribe("ann", ["rock"], text) for text in texts[1:])]
            )
        assert not caplog.records
        # A frame is all or nothing.
        assert await pairs(store, "jazz") == []
        assert store.writer_restarts == 0


# --- slices and frames


@pytest.fixture
def tiny_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each read check one or two entries, then yield to the loop."""
    monkeypatch.setattr("ingeborg.broker.store.embedded.store.SLICE_S", -1.0)
    for module in (subscriptions, slices):
        monkeypatch.setattr(module, "SLICE_S", -1.0)
        monkeypatch.setattr(module, "LOOKS", 2)
    monkeypatch.setattr(subscriptions, "MEMBERS_PER_LOOK", 2)
    monkeypatch.setattr(subscriptions, "PAIRS_AT_ONCE", 2)
    monkeypatch.setattr(now, "TOPICS_PER_LOOK", 2)


@pytest.mark.usefixtures("tiny_slices")
@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_what_takes_many_slices_is_whole(tmp_path: Path, limit: int) -> None:
    topics, texts = [f"{index}" for index in range(7)], [f"filter {index}" for index in range(5)]
    filtered = {
        Subscription(topic, client, text)
        for topic in topics
        for client in ("ann", "bob")
        for text in texts[int(topic) :]
    }
    plain = {Subscription(topic, client) for topic in topics[::2] for client in ("ann", "cleo", "dora", "eve")}
    async with opened(tmp_path) as store:
        await store.subscribe([Subscribe(each.client, [each.topic], each.filter) for each in filtered | plain])
        sets, pages = await store.subscribers([*topics, "none"])
        assert [set(found) for found in sets] == [
            {each.client for each in plain if each.topic == topic} for topic in [*topics, "none"]
        ]
        assert sorted(pages) == topics[:5]
        for topic in topics:
            wanted = [(each.client, each.filter) for each in filtered if each.topic == topic]
            assert sorted(await pairs(store, topic, limit)) == sorted(wanted)
        asked = [(client, topic) for topic in topics for client in ("ann", "cleo")]
        assert await store.subscriptions_of(asked) == [
            sorted((each for each in filtered | plain if (each.client, each.topic) == pair), key=by_filter)
            for pair in asked
        ]
        assert store.subscriptions_of_now(asked) is None
        mine, cursor = list[str](), None
        while True:
            page, cursor = await store.topics("ann", cursor, limit)
            mine += page
            if cursor is None:
                break
        assert sorted(mine) == sorted({*topics[:5], *topics[::2]})
        everything = [page async for page in store.all_subscriptions()]
        assert max(len(plain) + len(some) for page in everything for _, plain, some in page) <= 2
        found = [Subscription(topic, client) for page in everything for topic, clients, _ in page for client in clients]
        found += [each for page in everything for _, _, some in page for each in some]
        assert Counter(found) == Counter(filtered | plain)


def by_filter(each: Subscription) -> tuple[bool, str]:
    """Return the sort key of a client's subscriptions at a topic."""
    return each.filter is not None, each.filter or ""


@pytest.mark.usefixtures("tiny_slices")
async def test_who_goes_from_a_filter_to_none_while_a_large_set_is_read_is_in_one_of_the_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        await store.subscribe([Subscribe("ann", ["hit"], PIZZA), *(Subscribe(name, ["hit"]) for name in "mnopqrstuvw")])

        async def interrupted(read_slice: Callable[[], bool]) -> None:
            for number in itertools.count():
                if read_slice():
                    return
                if number == 1:
                    await other.subscribe([Subscribe("ann", ["hit"], replace=True)])

        monkeypatch.setattr(store._slices, "through", interrupted)
        (found,), pages = await store.subscribers(["hit"])
        assert set(found) == {"ann", *"mnopqrstuvw"}
        assert pages == {}


async def test_large_batches_go_in_frames_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = [f"{number:04}" + "x" * 4_092 for number in range(266)]
    async with opened(tmp_path) as store:
        frames = list[tuple[str, bool, int]]()

        async def counted(lane: Lane, operation: str, arguments: Iterable[Any]) -> list[Any]:
            sent = list(arguments)
            assert all(len(pack((0, operation, frame))) < FRAME_BYTES_MAX // 4 for frame in sent)
            frames.extend(
                (operation, is_large, sum(len(topics) for _, rows in groups for _, topics in rows))
                for is_large, _, groups in sent
            )
            return await store._writers[lane].call(operation, sent)

        writers = {lane: SimpleNamespace(call=partial(counted, lane), is_held=False) for lane in Lane}
        monkeypatch.setattr(store._subscriptions, "_writers", writers)
        await store.subscribe([Subscribe("\N{SNOWMAN}" * 42, ["t" * 1_024], text, AWAY, True) for text in longest])
        assert await pairs(store, "t" * 1_024) == [("\N{SNOWMAN}" * 42, longest[-1])]
        topics = [f"{index}" for index in range(FRAME_ITEMS + 2)]
        await store.subscribe([Subscribe("ann", topics), Subscribe("bob", topics[:9], SOUP), Subscribe("bob", ["x"])])
        await store.subscribe([Subscribe("ann", topics[: LARGE_ROWS - 1])])
        await store.unsubscribe([("ann", [*topics, "never had"], None), ("bob", topics[:LARGE_ROWS], SOUP)])
        assert frames == [
            *[("subscribe", False, size) for size in (128, 128, 10)],
            *[("subscribe", True, size) for size in (FRAME_ITEMS, 2)],
            ("subscribe", False, 10),  # the client that has filters
            ("subscribe", False, LARGE_ROWS - 1),
            *[("unsubscribe", True, size) for size in (FRAME_ITEMS, 3 + 127, 1)],
        ]


@pytest.mark.parametrize("text", [None, PIZZA])
async def test_the_rows_of_a_large_batch_are_written_in_their_order(tmp_path: Path, text: str | None) -> None:
    """Its last frame is small, but overtakes none of the others."""
    topics = [f"song {index}" for index in range(2 * FRAME_ITEMS)]
    async with opened(tmp_path) as store:
        batch = [
            Subscribe("ann", topics, text, AWAY),
            Subscribe("ann", topics, text, LATER, replace=True),
            Subscribe("ann", topics[-3:], text, AWAY, replace=True),
        ]
        await store.subscribe(batch)
        found = await terms(store, [("ann", topic) for topic in topics])
        assert found == [{text: LATER}] * (len(topics) - 3) + [{text: AWAY}] * 3


async def test_what_is_said_at_once_is_said_of_few_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingeborg.broker.store.embedded.store.SLICE_S", 60.0)  # not a test of the machine's load
    async with opened(tmp_path) as store:
        few = [(f"{number:04}", PIZZA) for number in range(PAIRS_AT_ONCE)]
        await store.subscribe([Subscribe(client, ["hit"], text) for client, text in few])
        await store.subscribe([Subscribe(f"{number}", ["hit"]) for number in range(MEMBERS_PER_LOOK - 1)])
        found = store.subscribers_now(["none", "hit"])
        assert found is not None
        assert [len(clients) for clients in found[0]] == [0, MEMBERS_PER_LOOK - 1]
        assert found[1] == {"hit": (few, None)}
        await store.subscribe([Subscribe("one more", ["hit"], PIZZA)])
        found = store.subscribers_now(["hit"])
        assert found is not None
        page, cursor = found[1]["hit"]
        assert page == few
        assert cursor is not None
        assert store.filtered_now("hit", cursor, 1) == ([("one more", PIZZA)], None)
        await store.subscribe([Subscribe(name, ["hit"]) for name in ("a", "b")])
        assert store.subscribers_now(["hit"]) is None


async def test_when_the_time_is_up_nothing_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("store", "subscriptions"):
        monkeypatch.setattr(f"ingeborg.broker.store.embedded.{module}.SLICE_S", 0.0)
    topics = [f"{index}" for index in range(3 * now.TOPICS_PER_LOOK + 1)]
    wanted = [index % 4 != 3 for index in range(len(topics))]
    few = now.TOPICS_PER_LOOK
    async with opened(tmp_path) as store:
        await store.subscribe([Subscribe("ann", ["rock", "jazz"], PIZZA), Subscribe("ann", topics[::4])])
        await store.subscribe([Subscribe("ann", topics[1::4], None, AWAY), Subscribe("ann", topics[2::4], PIZZA)])
        assert store.subscribers_now(["rock", "jazz"]) is None
        assert store.subscribers_now(["rock"]) == ([()], {"rock": ([("ann", PIZZA)], None)})
        assert store.subscriptions_of_now([("ann", "rock"), ("ann", "jazz")]) is None
        assert store.subscriptions_of_now([("ann", "rock")]) == [[Subscription("rock", "ann", PIZZA)]]
        assert store.subscribed_now("ann", topics[: few + 1]) is None
        assert store.subscribed_now("ann", topics[:few]) == wanted[:few]
        assert await store.subscribed("ann", topics) == wanted


async def test_a_page_of_all_is_no_larger_than_it_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "SLICE_S", 60.0)
    async with opened(tmp_path) as store:
        await store.subscribe([Subscribe(f"{number}", ["hit"], PIZZA) for number in range(PAGE_SUBSCRIPTIONS)])
        await store.subscribe([Subscribe("ann", ["hit"])])
        sizes = [[(len(plain), len(some)) for _, plain, some in page] async for page in store.all_subscriptions()]
        assert sizes == [[(1, PAGE_SUBSCRIPTIONS - 1)], [(0, 1)]]


# --- the five databases

CLIENTS = st.sampled_from(["a", "a\0"])
TOPICS = st.sampled_from(["x", "é"])
SOME = st.lists(TOPICS, min_size=1, max_size=2)
TEXTS = st.sampled_from([None, "f", "g"])
TERMS = st.sampled_from([None, AWAY, LATER])
ROWS = st.one_of(
    st.builds(Subscribe, CLIENTS, SOME, st.none(), st.none(), st.just(False)),
    st.builds(Subscribe, CLIENTS, SOME, st.none(), TERMS, st.just(False)),
    st.builds(Subscribe, CLIENTS, SOME, TEXTS, TERMS, st.booleans()),
)
FRAMES = st.one_of(
    st.tuples(st.just("subscribe"), st.lists(ROWS, min_size=1, max_size=2), st.booleans()),
    st.tuples(st.just("unsubscribe"), st.lists(st.tuples(CLIENTS, SOME, TEXTS), max_size=3), st.booleans()),
    st.tuples(st.just("end"), st.lists(st.tuples(CLIENTS, TOPICS, TEXTS, st.booleans()), max_size=3), st.just(False)),
)


class Model:
    """The result of the frames, as dictionaries."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], dict[str | None, Term | None]] = {}  # by client and topic

    def at(self, client: str, topic: str) -> dict[str | None, Term | None]:
        """Return the record, by filter."""
        return self.held.setdefault((client, topic), {})

    def subscribe(self, row: Subscribe) -> None:
        """Apply one row."""
        for topic in row.topics:
            here = self.at(row.client, topic)
            stays = row.filter in here and here[row.filter] is None and not row.replace
            if row.replace:
                here.clear()
            here[row.filter] = None if stays else row.term

    def unsubscribe(self, row: tuple[str, list[str], str | None]) -> None:
        """Apply one row."""
        client, topics, text = row
        for topic in topics:
            here = self.at(client, topic)
            if text is None:
                here.clear()
            else:
                here.pop(text, None)

    def end(self, client: str, topic: str, text: str | None, is_late: bool) -> int:
        """Apply one end, and return its outcome."""
        here = self.at(client, topic)
        if text not in here:
            return GONE
        if is_late or here[text] is None:
            return STAYS
        del here[text]
        return TAKEN_OUT

    def everything(self) -> list[Subscription]:
        """Return all subscriptions, without stamps."""
        return [
            Subscription(topic, client, text, term)
            for (client, topic), here in self.held.items()
            for text, term in here.items()
        ]


class Durable:
    """The environment, written without a writer process."""

    def __init__(self, directory: Path) -> None:
        self.environment = prepare(directory, Lane.DURABLE, MAP_BYTES).environment
        self.db = self.environment.db
        self._operations = operations(self.environment, Lane.DURABLE)
        self._written = Written(self.environment)

    def write(self, txn: Any, operation: str, batch: list[Any], is_run: bool) -> None:
        """Write a frame of ``subscribe`` or ``unsubscribe``; for a run, row by row."""
        if operation == "subscribe":
            rows = [(subscriptions._wanted(row), row.client, row.topics, row.filter is not None) for row in batch]
        else:
            rows = [(text, client, topics, text is not None) for client, topics, text in batch]
        for groups in frames_of(rows):
            if is_run:
                run = Run(self._written, operation, [(1, 0, groups)])
                while not run.done:
                    run.step(txn)
            else:
                self._operations[operation](txn, (False, 0, groups))

    def end(self, txn: Any, items: list[tuple[str, str, str | None, bool]]) -> list[Any]:
        """Write a frame of ``take_out``; the flag asks for an outdated stamp."""
        groups: list[Group] = [
            (None, [(client, [(topic, text, self.stamp(txn, client, topic, text) - is_late)])])
            for client, topic, text, is_late in items
        ]
        return self._operations["take_out"](txn, groups)

    def stamp(self, txn: Any, client: str, topic: str, text: str | None) -> int:
        """Return the term's stamp."""
        (found,) = self.read(txn, [(client, topic)])
        return next((each.stamp for each in found if each.filter == text), 0)

    def read(self, txn: Any, asked: list[tuple[str, str]]) -> list[list[Subscription]]:
        """Return what each client has at each topic."""
        cursors = txn.cursor(self.db["subscribers"]), txn.cursor(self.db["terms"])
        return now.subscriptions_of(*cursors, txn, self.db["filters"], asked, float("inf"))

    def compare(self, txn: Any, model: Model) -> None:
        """Check that all databases have exactly what the model has."""
        held, db = model.everything(), self.db
        hashed = [(digest(each.topic.encode()), each.client.encode(), now.key_of(each.filter), each) for each in held]
        found = Counter(txn.cursor(db["subscribers"]))
        assert found == Counter((topic, now.entry_of(client, key)) for topic, client, key, _ in hashed)
        assert sorted(txn.cursor(db["topics_of"])) == sorted(
            {(digest(client), topic) for topic, client, _, _ in hashed}
        )
        assert sorted(txn.cursor(db["texts"])) == sorted({(topic, each.topic.encode()) for topic, _, _, each in hashed})
        counts = Counter(each.filter.encode() for each in held if each.filter is not None)
        texts = {digest(text): (count, text) for text, count in counts.items()}
        assert {key: unpack_filter(value) for key, value in txn.cursor(db["filters"])} == texts
        with_terms = {
            now.prefix_of(each.topic, topic) + digest(client) + key: each
            for topic, client, key, each in hashed
            if each.term is not None
        }
        records = {key: now.subscription_in(value) for key, value in txn.cursor(db["terms"])}
        assert {key: each._replace(stamp=0) for key, each in records.items()} == with_terms
        pairs = sorted(model.held)
        for (client, topic), mine in zip(pairs, self.read(txn, pairs), strict=True):
            assert mine == sorted(mine, key=by_filter)
            assert {each.filter: each.term for each in mine} == model.held[client, topic]
        with txn.cursor(db["subscribers"]) as cursor:
            topics = ["x", "é"]
            said = now.subscribers(cursor, txn, db["filters"], topics, 100, 100, float("inf"))
            assert said is not None
            for topic, clients in zip(topics, said[0], strict=True):
                mine = [each for each in held if each.topic == topic]
                assert sorted(clients) == sorted(each.client for each in mine if each.filter is None)
                page, _ = said[1].get(topic, ([], None))
                assert sorted(page) == sorted((each.client, each.filter) for each in mine if each.filter is not None)


def test_the_databases_have_the_same_subscriptions_and_no_others(tmp_path: Path) -> None:
    durable = Durable(tmp_path)
    env = durable.environment.env

    @settings(
        max_examples=proof.examples(300, 80),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(st.lists(FRAMES, min_size=1, max_size=4), min_size=1, max_size=6))
    def examples(transactions: list[list[tuple[str, Any, bool]]]) -> None:
        model, stamps = Model(), Counter[tuple[str, str, str | None]]()
        for frames in transactions:
            with env.begin(write=True) as txn:
                for operation, batch, is_run in frames:
                    if operation == "end":
                        # A stamp does not change while the others of a frame are removed.
                        assert durable.end(txn, batch) == [model.end(*item) for item in batch]
                        continue
                    durable.write(txn, operation, batch, is_run)
                    for row in batch:
                        getattr(model, operation)(row)
            with env.begin() as txn:
                durable.compare(txn, model)
                for each in (one for mine in durable.read(txn, sorted(model.held)) for one in mine):
                    assert (each.stamp == 0) is (each.term is None)
                    assert each.term is None or each.stamp >= stamps[each.topic, each.client, each.filter]
                    stamps[each.topic, each.client, each.filter] = max(each.stamp, 0)
        with env.begin(write=True) as txn:
            durable.write(txn, "unsubscribe", [(name, ["x", "é"], None) for name in ("a", "a\0")], False)
            assert all(txn.stat(each)["entries"] == 0 for each in durable.db.values())

    with env:
        examples()


def test_a_term_is_given_with_a_greater_stamp_also_within_a_transaction(tmp_path: Path) -> None:
    durable = Durable(tmp_path)
    stamps = []
    with durable.environment.env as env:
        for replace in (False, True, False):
            with env.begin(write=True) as txn:
                for term in (AWAY, LATER, LATER):
                    durable.write(txn, "subscribe", [Subscribe("ann", ["rock"], PIZZA, term, replace)], replace)
                    stamps.append(durable.stamp(txn, "ann", "rock", PIZZA))
    assert stamps == sorted(set(stamps))


def test_a_refused_frame_has_changed_nothing(tmp_path: Path) -> None:
    durable = Durable(tmp_path)
    model = Model()
    with durable.environment.env as env:
        with env.begin(write=True) as txn:
            durable.write(txn, "subscribe", [Subscribe("ann", ["rock"])], False)
        model.subscribe(Subscribe("ann", ["rock"]))
        with env.begin(write=True) as txn:
            batch = [Subscribe("ann", ["rock"], PIZZA, AWAY, True), Subscribe("bob", ["rock"])]
            batch += [Subscribe("ann", ["x"], f"{number}") for number in range(FILTERS_MAX + 1)]
            with pytest.raises(TooManyFilters):
                durable.write(txn, "subscribe", batch, False)
            durable.compare(txn, model)


def test_an_entry_is_no_longer_than_a_duplicate_may_be() -> None:
    assert len(now.entry_of(b"\0" * 128, digest(b""))) == 146


# --- for the metrics


async def test_counters_count_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("store", "subscriptions"):
        monkeypatch.setattr(f"ingeborg.broker.store.embedded.{module}.SLICE_S", 60.0)
    async with opened(tmp_path) as store:
        await store.subscribe([Subscribe("ann", ["rock", "jazz"], PIZZA), Subscribe("ann", ["rock"], None, AWAY)])
        await store.unsubscribe([("ann", ["rock"], PIZZA)])
        assert store.counters == {"reads": 0, "writes": 4, "writer_restarts": 0, "disk_stalls": 0}
        await store.subscribers(["rock", "jazz"])
        store.subscribers_now(["rock"])
        store.filtered_now("jazz", (now.FILTERED + now.entry_of(b"a", digest(b""))[1:]).hex(), 10)
        ((mine,), _) = await store.subscriptions_of([("ann", "rock"), ("ann", "jazz")])
        store.subscriptions_of_now([("ann", "rock")])
        store.subscribed_now("ann", ["rock", "jazz"])
        assert [page async for page in store.all_subscriptions()] != []
        await store.ended(["ann", "bob"])
        assert store.counters == {"reads": 13, "writes": 4, "writer_restarts": 0, "disk_stalls": 0}
        await store.end([([mine], None, True)])
        assert store.counters["writes"] == 5
        assert await subscribers(store, ["rock"]) == [set()]
