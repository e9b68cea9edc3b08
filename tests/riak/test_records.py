"""Records on Riak: large topics, full partitions, network partitions, crashes at every moment, costs of operations."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Coroutine
from functools import partial
from typing import Any

import pytest
from hypothesis import strategies as st

from ingeborg.broker.store.base import (
    FILTERS_MAX,
    StoreMisconfigured,
    StoreUnavailable,
    Subscribe,
    Subscription,
    Term,
    TooManyFilters,
)
from ingeborg.broker.store.riak import RiakStore, partitions, records, wire
from ingeborg.broker.store.riak import entries as of
from ingeborg.broker.store.riak.layout import Buckets, partition_of, place_of
from ingeborg.broker.store.riak.writing import PARTITION, Over, Round
from tests.contract.asking import (
    CHEAP,
    GONE,
    LATER,
    PIZZA,
    SOUP,
    add,
    everything,
    filters,
    numbered,
    subscribers,
    subscribers_of,
    topics_of,
)

from .conftest import StoreOn
from .double import Key, RiakDouble
from .double.causality import merge
from .moments import ONE_BY_ONE, at, before_each_request, noted_in, of_one_slot, shrink, survives
from .storages import holds_for_any
from .test_failures import TOPICS

Record = dict[str | None, Term | None]
"""A client's record at a topic."""


@pytest.fixture
def small_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)


def key_of(topic: str) -> Key:
    return Key(b"ingeborg", *Buckets("ingeborg").partition(*partition_of(topic, 1)))


def write_unseen(riak: RiakDouble, topic: str, value: bytes) -> None:
    """Write as a home does on the other side of a network partition, which has seen none of the versions."""
    riak.memory.write(0, key_of(topic), {}, {"value": value, "vtag": b"t" * 22}, {})


def value_of(riak: RiakDouble, topic: str) -> bytes:
    """Return the current value of the topic's partition."""
    (sibling,) = riak.memory.object(key_of(topic)).siblings
    value: bytes = sibling.content["value"]
    return value


async def record(store: RiakStore, client: str, topic: str = "rock") -> Record:
    (found,) = await store.subscriptions_of([(client, topic)])
    return {each.filter: each.term for each in found}


async def spent(store: RiakStore, work: Coroutine[Any, Any, object]) -> tuple[int, int]:
    """Return how many objects the work reads and writes."""
    before = dict(store.counters)
    await work
    return store.counters["gets"] - before["gets"], store.counters["puts"] - before["puts"]


async def waits(store: RiakStore, work: Coroutine[Any, Any, object]) -> int:
    """Return how often, one after the other, the work waits for Riak: each time, all its requests are answered before
    it can make more."""
    request, waiting, under_way, count = store._pool.request, list[asyncio.Event](), 0, 0

    async def held(*arguments: Any, **options: Any) -> Any:
        nonlocal under_way
        waiting.append(asyncio.Event())
        await waiting[-1].wait()
        try:
            return await request(*arguments, **options)
        finally:
            under_way -= 1

    store._pool.request = held  # type: ignore[method-assign]
    task = asyncio.create_task(work)
    while not task.done():
        for _ in range(20):  # turns in which it makes its requests
            await asyncio.sleep(0)
        if waiting and not under_way:
            count, under_way = count + 1, len(waiting)
            for event in waiting:
                event.set()
            waiting.clear()
    store._pool.request = request  # type: ignore[method-assign]
    await task
    return count


# --- costs ---------------------------------------------------------------------------------------------------------


async def test_what_operations_cost_in_requests(
    riak: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of docs/riak.md."""
    store = await store_on(riak)
    await store.listen(["ann", "bob"], "here")
    assert await spent(store, store.subscribers(["rock"])) == (2, 0)  # never written: read twice
    for filter in (None, PIZZA):
        name = f"rock {filter}"
        assert await spent(store, add(store, "ann", [name], filter)) == (5 if filter is None else 4, 2)
        assert await spent(store, add(store, "ann", [name], filter)) == (3, 2)
        assert await spent(store, store.subscribers([name])) == (1, 0)
        assert await spent(store, store.subscriptions_of([("ann", name), ("bob", name)])) == (1, 0)
        assert await spent(store, store.subscribed("ann", [name])) == (1, 0)
        # In one write; the replaced subscription has no row in the index.
        assert await spent(store, add(store, "ann", [name], SOUP, replace=True)) == (3, 2)
        assert await spent(store, store.unsubscribe([("ann", [name], CHEAP)])) == (1, 0)
        assert await spent(store, store.unsubscribe([("ann", [name], None)])) == (2, 2)
    await add(store, "ann", ["rock"], PIZZA)
    assert await spent(store, store.unsubscribe([("ann", ["rock"], PIZZA)])) == (3, 2)
    # With a term there are rows of the index as well: a new one first, the former one last.
    assert await spent(store, add(store, "ann", ["rock"], None, GONE)) == (3 + 2, 3)
    assert await spent(store, add(store, "ann", ["rock"], None, LATER)) == (3 + 2, 4)
    assert await spent(store, store.unsubscribe([("ann", ["rock"], None)])) == (3, 3)
    many = [Subscribe(f"client {number}", [f"song {number}" for number in range(500)], PIZZA) for number in range(2)]
    _, puts = await spent(store, store.subscribe(many))
    assert puts == len({key_of(topic) for topic in many[0].topics}) + 2
    monkeypatch.setattr(partitions, "TOPIC_BYTES_MAX", 0)
    for client in ("ann", "bob"):
        await add(store, client, ["large"], PIZZA)
    assert store.counters["topics_spilled"] == 1
    assert await spent(store, add(store, "bob", ["large"], SOUP)) == (5, 2)


async def test_what_can_go_side_by_side_does(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    await store.listen(["ann", "bob"], "here")
    assert await waits(store, store.listen(["ann", "bob"], "here")) == 3  # a read, a write, a read
    await add(store, "ann", ["rock"])
    assert await waits(store, add(store, "ann", ["rock"])) == 5  # the record, the list, and the ended subscriptions
    assert await waits(store, store.subscribers(["rock", "jazz"])) == 2
    assert await waits(store, store.unsubscribe([("ann", ["rock"], None)])) == 4


# --- large topics --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_objects")
@pytest.mark.parametrize("count", [1, 12])
async def test_what_does_not_fit_is_found_read_in_pages_replaced_and_taken_out(
    riak: RiakDouble, store_on: StoreOn, count: int
) -> None:
    topics = of_one_slot(count)
    store, other = await store_on(riak), await store_on(riak)
    clients = [f"client {number}" for number in range(96 // count)]
    wanted: dict[str, Record] = {client: {} for client in clients}
    for kind in ((None, None), (numbered(0), None), (numbered(1), GONE)):
        some = clients[::2] if kind[0] is None else clients
        await store.subscribe([Subscribe(client, topics, *kind) for client in some])
        for client in some:
            wanted[client][kind[0]] = kind[1]
    assert store.counters["topics_spilled" if count == 1 else "partitions_filled"] >= 1
    assert store.counters["sets_grown"] or count > 1
    reader = await store_on(riak, read_only=True)

    async def compare() -> None:
        rows = {
            (topic, client, filter, term)
            for topic in topics
            for client in clients
            for filter, term in wanted[client].items()
        }
        found = await everything(reader)
        assert {row[:4] for row in found} == rows
        assert set(found.values()) <= {1}
        for topic in topics:
            pairs = {(client, filter) for _, client, filter, _ in rows if filter is not None}
            for limit in (1, 7, 1_000):
                assert await filters(other, topic, limit) == pairs
        without = {client for client in clients if None in wanted[client]}
        assert await subscribers(other, topics) == [without] * len(topics)
        records = await other.subscriptions_of([(client, topic) for client in clients for topic in topics])
        assert {row[:4] for found in records for row in found} == rows
        for client in (clients[0], clients[-1]):
            assert await topics_of(other, client) == (sorted(topics, key=of_place) if wanted[client] else [])

    await compare()
    await other.unsubscribe([(client, topics, numbered(0)) for client in clients[::3]])
    for client in clients[::3]:
        del wanted[client][numbered(0)]
    await store.subscribe([Subscribe(client, topics, PIZZA, None, True) for client in clients[1::4]])
    wanted |= {client: {PIZZA: None} for client in clients[1::4]}
    await other.subscribe([Subscribe(client, topics, None, LATER, True) for client in clients[2::4]])
    wanted |= {client: {None: LATER} for client in clients[2::4]}
    await compare()
    await other.unsubscribe([(client, topics, None) for client in clients])
    wanted = {client: {} for client in clients}
    await compare()
    assert reader.counters["puts"] == 0


def of_place(topic: str) -> bytes:
    return place_of(topic)


@pytest.mark.usefixtures("small_objects")
async def test_a_client_whose_record_is_in_several_objects_has_all_of_it(riak: RiakDouble, store_on: StoreOn) -> None:
    store, other = await store_on(riak), await store_on(riak)
    texts = [numbered(number) for number in range(FILTERS_MAX)]
    for start in range(0, FILTERS_MAX, 8):
        await store.subscribe([Subscribe("ann", ["hit"], each) for each in texts[start : start + 8]])
        others = [f"client {start} {number}" for number in range(20)]
        await store.subscribe([Subscribe(client, ["hit"], PIZZA) for client in others])
    assert store.counters["sets_grown"] >= 2
    assert list(await record(other, "ann", "hit")) == sorted(texts)
    assert {pair for pair in await filters(other, "hit", 10) if pair[0] == "ann"} == {("ann", each) for each in texts}
    with pytest.raises(TooManyFilters, match="remove one first"):
        await add(other, "ann", ["hit"], PIZZA)
    # A subscription without a term removes an existing term, and keeps a new one out, in any place.
    await other.subscribe([Subscribe("ann", ["hit"], each) for each in texts[::7]])
    await other.subscribe([Subscribe("ann", ["hit"], each, GONE) for each in texts])
    assert await record(store, "ann", "hit") == dict.fromkeys(texts)
    await other.subscribe([Subscribe("ann", ["hit"], texts[5], GONE, True)])
    assert await record(store, "ann", "hit") == {texts[5]: GONE}
    await add(store, "ann", ["hit"], PIZZA)
    assert await record(other, "ann", "hit") == {texts[5]: GONE, PIZZA: None}
    await add(store, "ann", ["hit"])
    assert await record(other, "ann", "hit") == {None: None, texts[5]: GONE, PIZZA: None}


async def test_the_first_page_of_filters_comes_with_the_subscribers_as_far_as_there_is_room(
    riak: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "FIRST_FILTERS", 3)
    store = await store_on(riak)
    wanted = {(f"client {number}", PIZZA) for number in range(70)}
    for is_large in (False, True):
        if is_large:
            shrink(monkeypatch)
        await store.subscribe([Subscribe(client, ["rock"], filter) for client, filter in sorted(wanted)])
        await add(store, "ann", ["rock"])
        sets, pages = await subscribers_of(store, ["rock", "none"])
        page, cursor = pages.pop("rock")
        assert (sets, pages, len(page)) == ([{"ann"}, set()], {}, 3)
        assert cursor is not None
        assert await filters(store, "rock", 8) == wanted
        wanted |= {(f"another {number}", SOUP) for number in range(70)}


async def test_filters_too_many_in_a_batch_leave_the_partition_as_it_was(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    await store.subscribe([Subscribe("ann", ["rock"], numbered(number)) for number in range(FILTERS_MAX)])
    with pytest.raises(TooManyFilters, match="'ann' would have 65 filters at topic 'rock', but only 64 are allowed"):
        await store.subscribe([Subscribe("bob", ["rock"], PIZZA), Subscribe("ann", ["rock"], PIZZA)])
    assert {client for client, _ in await filters(store, "rock")} == {"ann"}


async def test_what_is_on_its_way_when_a_topic_is_refused_is_listed(
    riak: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Riak writes what it has received, even if nobody waits for the answer."""
    store, other = await store_on(riak), await store_on(riak)
    await store.subscribe([Subscribe("ann", ["rock"], numbered(number)) for number in range(FILTERS_MAX)])
    request = store._pool.request
    late: list[tuple[Any, ...]] = []

    async def slow(code: int, *arguments: Any, **options: Any) -> Any:
        if code == wire.PUT_REQUEST:
            try:
                await refused.wait()
                for _ in range(100):  # turns in which a call that does not wait would return
                    await asyncio.sleep(0)
            except asyncio.CancelledError:
                late.append((code, *arguments))
                raise
        return await request(code, *arguments, **options)

    refused, require_room = asyncio.Event(), of.require_room

    def require(*arguments: Any) -> None:
        try:
            require_room(*arguments)
        except TooManyFilters:
            refused.set()
            raise

    monkeypatch.setattr(of, "require_room", require)
    monkeypatch.setattr(store._pool, "request", slow)
    topics = ["jazz", "folk", "rock"]
    assert len({key_of(topic) for topic in topics}) == 3
    with pytest.raises(TooManyFilters):
        await add(store, "ann", topics, PIZZA)
    for arguments in late:
        await request(*arguments)
    assert [len(await record(other, "ann", topic)) for topic in topics] == [1, 1, FILTERS_MAX]
    assert set(await topics_of(other, "ann")) == set(topics)


@pytest.mark.usefixtures("small_objects")
async def test_two_processes_that_grow_one_topic_at_once_lose_nothing(riak: RiakDouble, store_on: StoreOn) -> None:
    stores = [await store_on(riak), await store_on(riak)]
    kinds = [(None, None), (PIZZA, GONE)]
    await asyncio.gather(
        *(
            store.subscribe([Subscribe(f"client {start + offset}", ["hit"], *kinds[number]) for offset in range(9)])
            for number, store in enumerate(stores)
            for start in range(0, 90, 9)
        )
    )
    for store in stores:
        assert await filters(store, "hit") == {(f"client {index}", PIZZA) for index in range(90)}
        assert await subscribers(store, ["hit"]) == [{f"client {index}" for index in range(90)}]


CLIENTS = st.integers(0, 12).map(lambda number: f"client {number}")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "replace", "unsubscribe", "unsubscribe all"]),
        st.integers(0, 1),
        st.lists(CLIENTS, max_size=12, unique=True),
        st.none() | st.integers(0, 3).map(numbered),
        st.none() | st.just(GONE),
    ),
    max_size=8,
)
Steps = list[tuple[str, int, list[str], str | None, Term | None]]


def test_any_growing_topic_has_what_the_model_has() -> None:
    fresh = itertools.count()

    async def check(stores: list[RiakStore], steps: Steps) -> None:
        topic, model = f"topic {next(fresh)}", dict[str, Record]()
        for how, handle, clients, filter, term in steps:
            if how.startswith("unsubscribe"):
                gone = None if how == "unsubscribe all" else filter
                await stores[handle].unsubscribe([(each, [topic], gone) for each in clients])
            else:
                rows = [Subscribe(each, [topic], filter, term, how == "replace") for each in clients]
                await stores[handle].subscribe(rows)
            for client in clients:
                held = model.setdefault(client, {})
                if how in ("replace", "unsubscribe all") or (how == "unsubscribe" and filter is None):
                    held.clear()
                if how == "unsubscribe":
                    held.pop(filter, None)
                elif how != "unsubscribe all" and held.get(filter, term) is not None:
                    held[filter] = term
                elif how != "unsubscribe all":
                    held[filter] = None
        for store in stores:
            assert [await record(store, client, topic) for client in model] == list(model.values())
            pairs = {(client, text) for client, held in model.items() for text in held if text is not None}
            assert await filters(store, topic, 3) == pairs
            assert await subscribers(store, [topic]) == [{client for client, held in model.items() if None in held}]
        for client, held in model.items():
            assert (topic in await topics_of(stores[0], client)) is bool(held)

    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        holds_for_any(STEPS, check)


# --- full partitions, and everything ------------------------------------------------------------------------------


async def test_topics_that_came_after_their_partition_was_full_are_found_too(
    riak: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch)
    store = await store_on(riak)
    # Topics of one slot, so that a partition fills; and one with a large set, whose partition has room.
    kinds: list[tuple[str | None, Term | None]] = [(None, None), (None, GONE), (PIZZA, None), (PIZZA, LATER)]
    topics = of_one_slot(40)
    await store.subscribe(
        [Subscribe(f"client {topics.index(topic) % 4}", [topic], *kinds[topics.index(topic) % 4]) for topic in topics]
    )
    await store.subscribe([Subscribe(f"client {number:03}", ["hit"]) for number in range(100)])
    assert store.counters["partitions_filled"] == 1
    assert store.counters["topics_spilled"] >= 1
    found = await everything(await store_on(riak, read_only=True))
    assert set(found.values()) == {1}
    assert {row[:4] for row in found} == {
        *((topic, f"client {n % 4}", *kinds[n % 4]) for n, topic in enumerate(topics)),
        *(("hit", f"client {number:03}", None, None) for number in range(100)),
    }
    # A process names a topic once, not with every write.
    before = store.counters["puts"]
    await add(store, "ann", [topics[-1]])
    await add(store, "bob", [topics[-1]])
    assert store.counters["puts"] - before == 4


async def test_for_reading_only_nothing_is_written_siblings_are_left_and_no_store_is_made(
    riak: RiakDouble, store_on: StoreOn
) -> None:
    with pytest.raises(StoreMisconfigured, match="there is no store"):
        await store_on(riak, read_only=True)
    store = await store_on(riak)
    await add(store, "ann", ["rock"], None, GONE)
    before = value_of(riak, "rock")
    await add(store, "bob", ["rock"])
    write_unseen(riak, "rock", before)
    await store.close()
    reader = await store_on(riak, read_only=True)
    assert {row[:2] for row in await everything(reader)} == {("rock", "ann"), ("rock", "bob")}
    assert reader.counters["siblings_found"] >= 1
    await reader.repaired()
    assert reader.counters["puts"] == 0
    with pytest.raises(StoreUnavailable, match="for reading only"):
        await add(reader, "ann", ["jazz"])


# --- concurrency and crashes ---------------------------------------------------------------------------------------


async def filling(store: RiakStore, is_large: bool) -> None:
    """Add other clients to the topic, enough for its own objects if it has to be large."""
    await store.subscribe([Subscribe(f"other {number}", ["rock"], PIZZA) for number in range(40 if is_large else 2)])


@pytest.fixture(params=[False, True], ids=["small", "large"])
def is_large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param:
        shrink(monkeypatch)
    return bool(request.param)


@pytest.mark.parametrize(("filter", "term"), [(CHEAP, None), (CHEAP, GONE), (None, None), (None, GONE)])
async def test_a_replacement_that_dies_at_any_moment_leaves_the_one_the_other_or_both(
    single: RiakDouble, store_on: StoreOn, is_large: bool, filter: str | None, term: Term | None
) -> None:
    store, other = await store_on(single, **ONE_BY_ONE), await store_on(single, **ONE_BY_ONE)
    await filling(other, is_large)
    acts = before_each_request(store)
    outcomes = set()
    old: Record = {SOUP: None, PIZZA: GONE}
    for crash in itertools.count():
        client = f"client {crash}"
        for text in old:
            await add(other, client, ["rock"], text, old[text])
        is_through = await survives(acts, crash, add(store, client, ["rock"], filter, term, replace=True))
        held = await record(other, client)
        assert filter in held or held == old, crash
        assert await topics_of(other, client) == ["rock"], crash
        outcomes.add(filter in held)
        if is_through:
            assert held == {filter: term}
            break
        await add(other, client, ["rock"], filter, term, replace=True)
        assert await record(other, client) == {filter: term}
    assert outcomes == {False, True}


async def test_two_replacements_at_once_leave_a_client_something_at_every_moment(
    single: RiakDouble, store_on: StoreOn, is_large: bool
) -> None:
    """The second replacement runs whole between two requests of the first, and a read before each."""
    store, other, reader = [await store_on(single, **ONE_BY_ONE) for _ in range(3)]
    await filling(other, is_large)
    acts = before_each_request(store)
    met: list[int] = []
    outcomes = set()
    for moment in itertools.count():
        client = f"client {moment}"
        await add(other, client, ["rock"], PIZZA)

        async def look(_: int, client: str = client) -> None:
            assert await record(reader, client), client
            assert await reader.subscribed(client, ["rock"]) == [True]

        met.clear()
        second = partial(add, other, client, ["rock"], SOUP, replace=True)
        acts[:] = [noted_in(met), at(moment, second), look]
        await add(store, client, ["rock"], None, GONE, replace=True)
        acts.clear()
        held = await record(reader, client)
        assert held
        assert held.keys() <= {None, SOUP, PIZZA}
        if max(met) < moment:
            assert held == {None: GONE}
            break
        outcomes.add(tuple(held))
    assert (SOUP,) in outcomes or (None,) in outcomes
    assert moment >= 4


async def test_a_topic_is_listed_if_another_filter_comes_while_the_last_one_leaves(
    single: RiakDouble, store_on: StoreOn, is_large: bool
) -> None:
    store, other = await store_on(single, **ONE_BY_ONE), await store_on(single, **ONE_BY_ONE)
    await filling(other, is_large)
    acts = before_each_request(store)
    met: list[int] = []
    for moment in itertools.count():
        client = f"client {moment}"
        await add(other, client, ["rock"], PIZZA)
        met.clear()
        acts[:] = [noted_in(met), at(moment, partial(add, other, client, ["rock"], SOUP, GONE))]
        await store.unsubscribe([(client, ["rock"], PIZZA)])
        acts.clear()
        if max(met) < moment:
            assert await topics_of(other, client) == []
            break
        # Both, if the two writes missed each other.
        assert {SOUP} <= (await record(other, client)).keys() <= {SOUP, PIZZA}, moment
        assert await topics_of(other, client) == ["rock"], moment
    assert moment >= 4


async def test_what_leaves_its_partition_meanwhile_is_added_elsewhere(
    single: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch)
    store, other = await store_on(single, **ONE_BY_ONE), await store_on(single, **ONE_BY_ONE)
    acts = before_each_request(store)
    met: list[int] = []
    present = []
    for moment in range(30):
        topic = f"song {moment}"
        await add(other, "ann", [topic], PIZZA)
        await other.subscribe([Subscribe(f"other {number}", [topic], PIZZA) for number in range(9)])
        met.clear()
        acts[:] = [noted_in(met), at(moment, partial(other.unsubscribe, [("ann", [topic], PIZZA)]))]
        await add(store, "ann", [topic], PIZZA)
        acts.clear()
        present.append(("ann", PIZZA) in await filters(other, topic))
        if max(met) < moment:
            break
    # A removal before the write has no effect, and one after it wins; without one the topic is listed.
    assert present[:3] == [True] * 3
    assert present[:-1] == sorted(present[:-1], reverse=True)
    assert present[-2:] == [False, True]


# --- cuts and siblings ---------------------------------------------------------------------------------------------


def topic_on_both_sides(riak: RiakDouble) -> str:
    """Return a topic with a primary on each side of a partition of five nodes."""
    for topic in TOPICS:
        nodes = {place.node for place in riak.memory.preference_list(0, key_of(topic))}
        if nodes & {0, 1} and nodes & {2, 3, 4}:
            return topic
    raise AssertionError("no such topic")


async def test_two_halves_add_to_one_record_and_after_healing_it_has_all(
    store_on: StoreOn,
) -> None:
    async with RiakDouble(nodes=5) as riak:
        riak.create_broker_types()
        left, right = await store_on(riak, nodes=[0, 1]), await store_on(riak, nodes=[2, 3, 4])
        topic = topic_on_both_sides(riak)
        for client in ("ann", "bob"):
            await left._records._writer.write({(client, topic): of.Wanted({PIZZA: LATER}, False)})
        riak.memory.cut([0, 1], [2, 3, 4])
        # Only the records: it is chance whether other objects have primaries on this side.
        await left._records._writer._put(round_of("ann", topic, SOUP, None, 1))
        await left._records._writer._put(round_of("ann", topic, PIZZA, None, 1))
        await right._records._writer._put(round_of("ann", topic, CHEAP, None, 1))
        await right._records._writer._put(round_of("ann", topic, PIZZA, GONE, 1 << 60))
        await right._records.take({("bob", topic): partial(of.take, gone=None)})
        riak.memory.heal()
        assert len(riak.memory.object(key_of(topic)).siblings) == 2
        assert await record(left, "ann", topic) == {PIZZA: None, SOUP: None, CHEAP: None}
        await left.repaired()
        assert len(riak.memory.object(key_of(topic)).siblings) == 1
        # A client may have to repeat an unsubscription.
        assert (await record(right, "bob", topic)).keys() <= {PIZZA}
        await right.unsubscribe([("bob", [topic], None)])
        assert await record(right, "bob", topic) == {}


def round_of(client: str, topic: str, filter: str, term: Term | None, stamp: int) -> Round:
    return Round({(client, topic): of.Wanted({filter: term}, False)}, stamp, Over())


@pytest.mark.parametrize("is_spilled", [False, True])
async def test_a_replacement_takes_out_what_it_has_seen_elsewhere_and_nothing_that_came_since(
    riak: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch, is_spilled: bool
) -> None:
    if is_spilled:
        monkeypatch.setattr(partitions, "TOPIC_BYTES_MAX", 0)
    store, pair, level = await store_on(riak), ("ann", "rock"), 0 if is_spilled else PARTITION
    await add(store, "bob", ["rock"], PIZZA)
    await add(store, "ann", ["rock"], PIZZA, LATER)
    seen = (await store._records.find([pair]))[pair]
    for filter, term in ((PIZZA, GONE), (SOUP, None)):
        await add(store, "ann", ["rock"], filter, term)
    take_replaced, round_ = store._records._writer._take_replaced, round_of(*pair, CHEAP, None, 1)
    await take_replaced({(pair, level): seen}, round_)
    assert await record(store, "ann") == {PIZZA: GONE, SOUP: None}
    await take_replaced({(pair, level): {SOUP: None, CHEAP: None}}, round_)
    assert await record(store, "ann") == {PIZZA: GONE}


@pytest.mark.parametrize("filter", [None, PIZZA])
async def test_what_is_confirmed_on_one_side_of_a_cut_again_survives_what_left_it_on_the_other(
    riak: RiakDouble, store_on: StoreOn, filter: str | None
) -> None:
    """The subscription is found where it is added, in a copy from before a removal that the other side has seen."""
    store = await store_on(riak)
    await add(store, "ann", ["rock"], filter)
    before = riak.memory.object(key_of("rock"))
    await store.unsubscribe([("ann", ["rock"], filter)])
    gone = riak.memory.object(key_of("rock"))
    holders = [held for held in riak.memory.copies.values() if key_of("rock") in held]
    for held in holders:
        held[key_of("rock")] = before
    await add(store, "ann", ["rock"], filter)
    for held in holders:
        held[key_of("rock")] = merge(held[key_of("rock")], gone, allow_mult=True)
    assert await record(store, "ann") == {filter: None}


@pytest.mark.parametrize("seed", range(4))
async def test_what_was_confirmed_and_not_taken_out_is_there_after_any_cuts(
    store_on: StoreOn, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Others come and go in the same objects; the side with too few machines refuses some changes."""
    shrink(monkeypatch)
    chance = random.Random(seed)
    kinds: list[tuple[str | None, Term | None]] = [(None, None), (None, LATER), (PIZZA, None), (SOUP, LATER)]
    async with RiakDouble(nodes=5) as riak:
        riak.create_broker_types()
        stores = [await store_on(riak, nodes=[number]) for number in range(5)]
        topics = of_one_slot(4)
        confirmed: set[Subscription] = set()
        refused = 0
        for step in range(60):
            if step % 6 == 3:
                here = chance.sample(range(5), chance.choice([1, 2, 2]))
                riak.memory.cut(here, [number for number in range(5) if number not in here])
            elif step % 6 == 0:
                riak.memory.heal()
            store, some = chance.choice(stores), chance.sample(topics, 2)
            client, passing = f"staying {chance.randrange(9)}", f"passing {chance.randrange(4)}"
            try:
                filter, term = chance.choice(kinds)
                await add(store, client, some, filter, term)
                confirmed |= {Subscription(topic, client, filter) for topic in some}
                await add(store, passing, some, *chance.choice(kinds), replace=chance.random() < 0.5)
                if step % 3 == 0:
                    await store.unsubscribe([(passing, topics, None)])
            except StoreUnavailable:
                refused += 1
        riak.memory.heal()
        for store in stores:
            pairs = {(row.client, row.topic) for row in confirmed}
            found = await store.subscriptions_of(sorted(pairs))
            assert confirmed <= {row._replace(term=None, stamp=0) for rows in found for row in rows}
        assert refused
        assert len(confirmed) > 30


@pytest.mark.usefixtures("small_objects")
async def test_what_is_in_the_partition_and_in_objects_of_its_own_comes_once(
    riak: RiakDouble, store_on: StoreOn
) -> None:
    store = await store_on(riak)
    await add(store, "ann", ["rock"], PIZZA)
    before = value_of(riak, "rock")
    others = [f"other {number}" for number in range(9)]
    await store.subscribe([Subscribe(client, ["rock"], PIZZA) for client in others])
    await store.unsubscribe([("ann", ["rock"], PIZZA)])
    await add(store, "ann", ["rock"], PIZZA)
    await add(store, "ann", ["rock"], SOUP)
    write_unseen(riak, "rock", before)  # a late write of a home from before
    wanted = {("ann", PIZZA), ("ann", SOUP), *((client, PIZZA) for client in others)}
    for limit in (1, 3, 100):
        assert await filters(store, "rock", limit) == wanted
    assert {(row.client, row.filter): count for row, count in (await everything(store)).items()} == dict.fromkeys(
        wanted, 1
    )
    await store.unsubscribe([("ann", ["rock"], PIZZA)])
    assert await filters(store, "rock") == wanted - {("ann", PIZZA)}


async def test_what_one_of_two_versions_took_out_has_to_go_again(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    await store.subscribe([Subscribe("ann", ["rock"], PIZZA), Subscribe("bob", ["rock"])])
    before = value_of(riak, "rock")
    await store.unsubscribe([("ann", ["rock"], PIZZA), ("bob", ["rock"], None)])
    write_unseen(riak, "rock", before)
    for client, held in (("ann", {PIZZA: None}), ("bob", {None: None})):
        assert await record(store, client) == held
    await store.repaired()
    assert len(riak.memory.object(key_of("rock")).siblings) == 1
    await store.unsubscribe([("ann", ["rock"], PIZZA), ("bob", ["rock"], None)])
    assert await record(store, "ann") == await record(store, "bob") == {}


# --- cursors -------------------------------------------------------------------------------------------------------


async def test_what_is_no_cursor_or_no_page_is_refused(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    for cursor in ("", "x", "0" * 31, "A" * 32):
        for work in (store.filtered("rock", cursor, 1), store.expiring(7, cursor, 1), store.topics("ann", cursor, 1)):
            with pytest.raises(ValueError, match="not a cursor of this store"):
                await work
    with pytest.raises(ValueError, match="one filter"):
        await store.filtered("rock", "0" * 32, 0)
