"""Subscriptions with filters on Riak: large topics, full partitions, cuts, crashes, and what an operation costs."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingeborg.broker.store.base import FILTERS_MAX, StoreUnavailable, Term, TooManyFilters
from ingeborg.broker.store.riak import RiakStore, filter_objects, filtered, layout, sets, wire
from ingeborg.broker.store.riak.layout import Buckets, partition_of
from tests import proof
from tests.store.asked import subscribers

from .conftest import StoreOn
from .double import Key, RiakDouble
from .test_ending import ONE_BY_ONE, at, before_each_request, dead_from, noted_in, of_one_slot
from .test_failures import TOPICS

PIZZA = '{"food":["pizza"]}'
SOUP = '{"food":["soup"]}'
CHEAP = '{"price":[{"numeric":["<",10]}]}'

Pairs = set[tuple[str, str]]
"""Clients and their filters at a topic."""


def shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects so small that everything spreads over all levels."""
    for module in (layout, sets, filter_objects):
        monkeypatch.setattr(module, "OBJECT_BYTES_MAX", 400)
    monkeypatch.setattr(filter_objects, "TOPIC_BYTES_MAX", 150)


@pytest.fixture
def small_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)


@pytest.fixture
async def single() -> AsyncIterator[RiakDouble]:
    """One node, whose requests come one after the other."""
    async with RiakDouble(nodes=1) as riak:
        riak.create_broker_types()
        yield riak


def key_of(topic: str) -> Key:
    return Key(b"ingeborg", *Buckets("ingeborg").filtered_partition(*partition_of(topic, 1)))


def topic_on_both_sides(riak: RiakDouble) -> str:
    """A topic whose filters have a primary on each side of a cut of five nodes."""
    for topic in TOPICS:
        nodes = {place.node for place in riak.memory.preference_list(0, key_of(topic))}
        if nodes & {0, 1} and nodes & {2, 3, 4}:
            return topic
    raise AssertionError("no such topic")


async def pairs(store: RiakStore, topic: str, limit: int = 100) -> Pairs:
    """All pages, each with what was asked for and no more than the rest of its last client; every pair once."""
    found: list[tuple[str, str]] = []
    cursor = None
    while True:
        ((page, cursor),) = await store.filtered([(topic, cursor)], limit)
        counts = Counter(client for client, _ in page)
        if cursor is not None:
            assert limit <= len(page) < limit + counts[page[-1][0]]
        found += page
        if cursor is None:
            assert len(set(found)) == len(found)
            return set(found)


async def listed(store: RiakStore, client: str) -> set[str]:
    topics, cursor = await store.topics(client, None, 1_000)
    assert cursor is None
    return set(topics)


async def everything(store: RiakStore) -> Counter[tuple[str, str, str]]:
    found: Counter[tuple[str, str, str]] = Counter()
    async for page in store.filtered_subscriptions():
        found.update((topic, client, text) for topic, held in page for client, text in held)
    return found


async def spent(store: RiakStore, work: Any) -> tuple[int, int]:
    """What is read and written meanwhile."""
    before = dict(store.counters)
    await work
    return store.counters["gets"] - before["gets"], store.counters["puts"] - before["puts"]


def text(number: int) -> str:
    """A filter that is no other number's."""
    return f'{{"n":[{number}]}}'


# --- what it costs -------------------------------------------------------------------------------------------------


async def test_what_operations_cost_in_requests(
    riak: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of docs/riak.md."""
    store = await store_on(riak)
    one = [("ann", ["rock"], PIZZA, False)]
    assert await spent(store, store.subscribers(["rock"])) == (6, 0)  # of three kinds, never written: looked at twice
    assert await spent(store, store.filtered([("rock", None)], 100)) == (2, 0)
    assert await spent(store, store.subscribe_filtered(one)) == (4, 2)
    assert await spent(store, store.subscribe_filtered(one)) == (2, 2)
    assert await spent(store, store.subscribe_filtered([("ann", ["rock"], SOUP, False)])) == (2, 2)
    assert await spent(store, store.filtered([("rock", None), ("rock", None)], 100)) == (1, 0)
    assert await spent(store, store.filters_of([("ann", "rock"), ("bob", "rock")])) == (1, 0)
    assert await spent(store, store.unsubscribe_filtered([("ann", ["rock"], SOUP)])) == (1, 1)
    assert await spent(store, store.unsubscribe_filtered([("ann", ["rock"], CHEAP)])) == (1, 0)
    await store.subscribe([("ann", ["rock"])])
    # In place of a plain one: as adding, and as an `unsubscribe`.
    assert await spent(store, store.subscribe_filtered([("ann", ["rock"], CHEAP, True)])) == (8, 4)
    assert await spent(store, store.unsubscribe_filtered([("ann", ["rock"], CHEAP)])) == (3, 2)
    await store.subscribe([("ann", ["rock"])])
    assert await spent(store, store.unsubscribe([("ann", ["rock"])])) == (8, 2)
    await store.subscribe([("ann", ["rock"])])
    await store.subscribe_filtered(one)
    assert await spent(store, store.unsubscribe([("ann", ["rock"])])) == (8, 4)
    many = [(f"client {number}", [f"song {number}" for number in range(500)], PIZZA, False) for number in range(2)]
    _, puts = await spent(store, store.subscribe_filtered(many))
    assert puts == len({key_of(topic) for topic in many[0][1]}) + 2
    monkeypatch.setattr(filter_objects, "TOPIC_BYTES_MAX", 0)
    for client in ("ann", "bob"):
        await store.subscribe_filtered([(client, ["large"], PIZZA, False)])
    assert store.counters["topics_spilled"] == 1
    assert await spent(store, store.subscribe_filtered([("bob", ["large"], SOUP, False)])) == (4, 2)


async def test_what_is_on_its_way_when_a_topic_is_refused_is_listed(
    riak: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Riak writes what has been sent to it, whether or not anybody still waits for the answer."""
    store, other = await store_on(riak), await store_on(riak)
    await store.subscribe_filtered([("ann", ["rock"], str(number), False) for number in range(FILTERS_MAX)])
    request = store._pool.request
    late: list[tuple[Any, ...]] = []

    async def slow(code: int, *arguments: Any, **options: Any) -> Any:
        if code == wire.PUT_REQUEST:
            try:
                await refused.wait()
                for _ in range(100):  # turns, in which whoever does not wait for it has said so
                    await asyncio.sleep(0)
            except asyncio.CancelledError:
                late.append((code, *arguments))
                raise
        return await request(code, *arguments, **options)

    refused, require_room = asyncio.Event(), filtered._require_room

    def require(*arguments: Any) -> None:
        try:
            require_room(*arguments)
        except TooManyFilters:
            refused.set()
            raise

    monkeypatch.setattr(filtered, "_require_room", require)
    monkeypatch.setattr(store._pool, "request", slow)
    topics = ["jazz", "folk", "rock"]
    assert len({key_of(topic) for topic in topics}) == 3
    with pytest.raises(TooManyFilters):
        await store.subscribe_filtered([("ann", topics, PIZZA, False)])
    for arguments in late:
        await request(*arguments)
    assert [len(texts) for texts in await other.filters_of([("ann", topic) for topic in topics])] == [1, 1, FILTERS_MAX]
    assert await listed(other, "ann") == set(topics)


# --- large topics --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_objects")
@pytest.mark.parametrize("count", [1, 12])
async def test_what_does_not_fit_is_found_read_in_pages_replaced_and_taken_out(
    riak: RiakDouble, store_on: StoreOn, count: int
) -> None:
    topics = of_one_slot(count)
    store, other = await store_on(riak), await store_on(riak)
    clients = [f"client {number}" for number in range(96 // count)]
    for number in range(2):
        await store.subscribe_filtered([(client, topics, text(number), False) for client in clients])
    assert store.counters["topics_spilled" if count == 1 else "partitions_filled"] >= 1
    assert store.counters["sets_grown"] or count > 1
    wanted = {(client, text(number)) for client in clients for number in range(2)}
    for limit in (1, 7, 1_000):
        for topic in topics:
            assert await pairs(other, topic, limit) == wanted
    asked = [(client, topic) for client in clients for topic in topics]
    assert await other.filters_of([*asked, ("nobody", topics[0])]) == [*[[text(0), text(1)]] * len(asked), []]
    reader = await store_on(riak, read_only=True)
    assert await everything(reader) == {(topic, *pair): 1 for topic in topics for pair in wanted}
    assert reader.counters["puts"] == 0
    assert await listed(other, clients[0]) == set(topics)

    await other.unsubscribe_filtered([(client, topics, text(0)) for client in clients[::2]])
    wanted -= {(client, text(0)) for client in clients[::2]}
    await other.subscribe([(client, topics) for client in clients[1::4]])
    await store.subscribe_filtered([(client, topics, PIZZA, True) for client in clients[1::4]])
    wanted = {pair for pair in wanted if pair[0] not in clients[1::4]} | {(client, PIZZA) for client in clients[1::4]}
    for topic in topics:
        assert await pairs(other, topic) == wanted
    assert await store.subscribers(["none", *topics]) == ([set()] * (len(topics) + 1), topics)
    await store.unsubscribe([(client, topics) for client in clients[1:]])
    for topic in topics:
        assert await pairs(other, topic) == {(clients[0], text(1))}
    await store.unsubscribe_filtered([(clients[0], topics, text(1))])
    assert await everything(store) == {}
    assert (await other.subscribers(topics))[1] == []
    assert await listed(store, clients[0]) == await listed(store, clients[1]) == set()
    await other.subscribe_filtered([(client, topics, PIZZA, False) for client in clients])
    assert await pairs(store, topics[-1], 5) == {(client, PIZZA) for client in clients}


@pytest.mark.usefixtures("small_objects")
async def test_a_client_whose_filters_are_in_several_objects_has_them_all(riak: RiakDouble, store_on: StoreOn) -> None:
    store, other = await store_on(riak), await store_on(riak)
    texts = [text(number) for number in range(FILTERS_MAX)]
    for start in range(0, FILTERS_MAX, 8):
        await store.subscribe_filtered([("ann", ["hit"], each, False) for each in texts[start : start + 8]])
        if start >= FILTERS_MAX // 2:  # until then the root is hers, and she has more than it has room for
            others = [f"client {start} {number}" for number in range(20)]
            await store.subscribe_filtered([(client, ["hit"], PIZZA, False) for client in others])
    assert store.counters["sets_grown"] >= 2
    assert await other.filters_of([("ann", "hit")]) == [sorted(texts)]
    assert {pair for pair in await pairs(other, "hit", 10) if pair[0] == "ann"} == {("ann", each) for each in texts}
    with pytest.raises(TooManyFilters, match="take one out first"):
        await other.subscribe_filtered([("ann", ["hit"], PIZZA, False)])
    await other.subscribe_filtered([("ann", ["hit"], each, False) for each in texts[::7]])
    assert await store.filters_of([("ann", "hit")]) == [sorted(texts)]
    await other.subscribe_filtered([("ann", ["hit"], texts[5], True)])
    assert await store.filters_of([("ann", "hit")]) == [[texts[5]]]
    await store.subscribe_filtered([("ann", ["hit"], PIZZA, False)])
    assert await other.filters_of([("ann", "hit")]) == [sorted([texts[5], PIZZA])]


async def test_a_filter_too_many_in_a_batch_leaves_the_partition_as_it_was(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    await store.subscribe_filtered([("ann", ["rock"], text(number), False) for number in range(FILTERS_MAX)])
    with pytest.raises(TooManyFilters, match="'ann' would have 65 filters at topic 'rock', where 64 are the most"):
        await store.subscribe_filtered([("bob", ["rock"], PIZZA, False), ("ann", ["rock"], PIZZA, False)])
    assert {client for client, _ in await pairs(store, "rock")} == {"ann"}


@pytest.mark.usefixtures("small_objects")
async def test_two_processes_that_grow_one_topic_at_once_lose_nothing(riak: RiakDouble, store_on: StoreOn) -> None:
    stores = [await store_on(riak), await store_on(riak)]
    await asyncio.gather(
        *(
            store.subscribe_filtered(
                [(f"client {start + offset}", ["hit"], text(number), False) for offset in range(9)]
            )
            for number, store in enumerate(stores)
            for start in range(0, 90, 9)
        )
    )
    wanted = {(f"client {index}", text(number)) for number in range(2) for index in range(90)}
    for store in stores:
        assert await pairs(store, "hit") == wanted


CLIENTS = st.integers(0, 12).map(lambda number: f"client {number}")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "replace", "unsubscribe", "unsubscribe all"]),
        st.integers(0, 1),
        st.lists(CLIENTS, max_size=12, unique=True),
        st.integers(0, 3).map(text),
    ),
    max_size=8,
)


def test_any_growing_topic_has_what_the_model_has() -> None:
    fresh = itertools.count()

    async def check(stores: list[RiakStore], steps: list[tuple[str, int, list[str], str]]) -> None:
        topic, model = f"topic {next(fresh)}", set[tuple[str, str]]()
        for how, handle, clients, filter_text in steps:
            store = stores[handle]
            if how in ("add", "replace"):
                await store.subscribe_filtered([(each, [topic], filter_text, how == "replace") for each in clients])
            elif how == "unsubscribe":
                await store.unsubscribe_filtered([(each, [topic], filter_text) for each in clients])
            else:
                await store.unsubscribe([(each, [topic]) for each in clients])
            if how in ("replace", "unsubscribe all"):
                model = {pair for pair in model if pair[0] not in clients}
            mine = {(each, filter_text) for each in clients}
            model = model | mine if how in ("add", "replace") else model - mine
        for store in stores:
            assert await pairs(store, topic, 3) == model
        clients = sorted({client for _, _, named, _ in steps for client in named})
        for client in clients:
            assert (topic in await listed(stores[0], client)) == (client in {name for name, _ in model})

    async def start() -> tuple[RiakDouble, list[RiakStore]]:
        riak = await RiakDouble(nodes=1).__aenter__()
        riak.create_broker_types()
        stores = [RiakStore(riak.addresses, node_confirms=1) for _ in range(2)]
        for store in stores:
            await store.open()
        return riak, stores

    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        shrink(patch)
        riak, stores = runner.run(start())

        @settings(
            max_examples=proof.examples(40, 10),
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(STEPS)
        def examples(steps: list[tuple[str, int, list[str], str]]) -> None:
            runner.run(check(stores, steps))

        try:
            examples()
        finally:
            for store in stores:
                runner.run(store.close())
            runner.run(riak.__aexit__())


# --- at the same time, and after a crash ---------------------------------------------------------------------------


async def filling(store: RiakStore, large: bool) -> None:
    """Others at the topic, many enough for objects of its own if it is to be large."""
    await store.subscribe_filtered(
        [(f"other {number}", ["rock"], PIZZA, False) for number in range(40 if large else 2)]
    )


async def nothing_to(store: RiakStore, client: str) -> bool:
    """Whether nothing is delivered to the client, asked in the order of the contract suite."""
    (plain,) = await subscribers(store, ["rock"])
    (held,) = await store.filters_of([(client, "rock")])
    return client not in plain and not held


@pytest.mark.parametrize("large", [False, True])
async def test_a_replacement_that_dies_at_any_moment_leaves_the_one_the_other_or_both(
    single: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    if large:
        shrink(monkeypatch)
    store, other = await store_on(single, **ONE_BY_ONE), await store_on(single, **ONE_BY_ONE)
    await filling(other, large)
    acts = before_each_request(store)
    outcomes = set()
    for crash in itertools.count():
        client = f"client {crash}"
        await other.subscribe([(client, ["rock"])])
        for filter_text in (PIZZA, SOUP):
            await other.subscribe_filtered([(client, ["rock"], filter_text, False)])
        acts[:] = [dead_from(crash)]
        try:
            await store.subscribe_filtered([(client, ["rock"], CHEAP, True)])
            through = True
        except StoreUnavailable:
            through = False
        acts.clear()
        (held,) = await other.filters_of([(client, "rock")])
        (plain,) = await subscribers(other, ["rock"])
        assert client in plain or CHEAP in held, crash
        assert CHEAP in held or {PIZZA, SOUP} <= set(held), crash
        assert await listed(other, client) == {"rock"}, crash
        outcomes.add((client in plain, CHEAP in held))
        if through:
            assert (client in plain, held) == (False, [CHEAP])
            break
        await other.subscribe_filtered([(client, ["rock"], CHEAP, True)])
        assert await other.filters_of([(client, "rock")]) == [[CHEAP]]
        assert await subscribers(other, ["rock"]) == [set()]
    assert outcomes == {(True, False), (True, True), (False, True)}


@pytest.mark.parametrize(
    ("before", "after"),
    [("ending", "plain"), ("ending", "filter"), ("plain", "filter"), ("filter", "plain"), ("filter", "ending")],
)
async def test_one_that_becomes_another_kind_between_two_requests_is_never_missed(
    single: RiakDouble, store_on: StoreOn, before: str, after: str
) -> None:
    store, reader = await store_on(single, **ONE_BY_ONE), await store_on(single, **ONE_BY_ONE)

    async def make(kind: str, topic: str, *, instead: bool) -> None:
        """``instead``: a plain one takes the place of an ending one, one with a filter that of all others."""
        if kind == "plain":
            await store.subscribe([("ann", [topic])])
        elif kind == "ending":
            await store.subscribe_ending([("ann", [topic], Term(disconnect=True, ends_at=0.0))])
        else:
            await store.subscribe_filtered([("ann", [topic], PIZZA, instead)])

    async def become(topic: str) -> None:
        became.append(topic)
        await make(after, topic, instead=True)
        if before == "filter":
            await store.unsubscribe_filtered([("ann", [topic], PIZZA)])

    acts = before_each_request(reader)
    became: list[str] = []
    for moment in itertools.count():
        topic = f"song {moment}"
        await make(before, topic, instead=False)
        became.clear()
        acts[:] = [at(moment, partial(become, topic))]
        assert await reader.subscribed("ann", [topic]) == [True], moment
        acts.clear()
        if not became:
            break
    assert moment > 0


@pytest.mark.parametrize("large", [False, True])
async def test_two_replacements_at_once_leave_a_client_something_at_every_moment(
    single: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    """The second one comes whole between two requests of the first, and a reader before each."""
    if large:
        shrink(monkeypatch)
    store, other, reader = [await store_on(single, **ONE_BY_ONE) for _ in range(3)]
    await filling(other, large)
    acts = before_each_request(store)
    met: list[int] = []
    outcomes = set()
    for moment in itertools.count():
        client = f"client {moment}"
        await other.subscribe_filtered([(client, ["rock"], PIZZA, False)])

        async def look(_: int, client: str = client) -> None:
            assert not await nothing_to(reader, client), client

        met.clear()
        second = partial(other.subscribe_filtered, [(client, ["rock"], SOUP, True)])
        acts[:] = [noted_in(met), at(moment, second), look]
        await store.subscribe_filtered([(client, ["rock"], CHEAP, True)])
        acts.clear()
        (held,) = await reader.filters_of([(client, "rock")])
        assert held, moment
        assert set(held) <= {PIZZA, SOUP, CHEAP}
        if max(met) < moment:
            assert held == [CHEAP]
            break
        outcomes.add(tuple(held))
    assert (SOUP,) in outcomes or (CHEAP,) in outcomes
    assert moment >= 4


@pytest.mark.parametrize("large", [False, True])
async def test_a_topic_is_listed_if_another_filter_comes_while_the_last_one_leaves(
    single: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    if large:
        shrink(monkeypatch)
    store, other = await store_on(single, **ONE_BY_ONE), await store_on(single, **ONE_BY_ONE)
    await filling(other, large)
    acts = before_each_request(store)
    met: list[int] = []
    for moment in itertools.count():
        client = f"client {moment}"
        await other.subscribe_filtered([(client, ["rock"], PIZZA, False)])
        met.clear()
        acts[:] = [
            noted_in(met),
            at(moment, partial(other.subscribe_filtered, [(client, ["rock"], SOUP, False)])),
        ]
        await store.unsubscribe_filtered([(client, ["rock"], PIZZA)])
        acts.clear()
        if max(met) < moment:
            assert await listed(other, client) == set()
            break
        (held,) = await other.filters_of([(client, "rock")])
        assert held in ([SOUP], [PIZZA, SOUP]), moment  # both, where the two writes missed each other
        assert await listed(other, client) == {"rock"}, moment
    assert moment >= 5


async def test_a_filter_that_leaves_its_partition_meanwhile_is_added_elsewhere(
    single: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch)
    store, other = await store_on(single, **ONE_BY_ONE), await store_on(single, **ONE_BY_ONE)
    topics = [f"song {number}" for number in range(30)]
    acts = before_each_request(store)
    met: list[int] = []
    present = []
    for moment, topic in enumerate(topics):
        await other.subscribe_filtered([("ann", [topic], PIZZA, False)])
        await other.subscribe_filtered([(f"other {number}", [topic], PIZZA, False) for number in range(9)])
        met.clear()
        acts[:] = [noted_in(met), at(moment, partial(other.unsubscribe_filtered, [("ann", [topic], PIZZA)]))]
        await store.subscribe_filtered([("ann", [topic], PIZZA, False)])
        acts.clear()
        present.append(("ann", PIZZA) in await pairs(other, topic))
        if max(met) < moment:
            break
    # Before the write it is as good as added anew, after it the removal is the later one; and without one it is there.
    assert present[:3] == [True] * 3
    assert present[:-1] == sorted(present[:-1], reverse=True)
    assert present[-2:] == [False, True]


# --- cuts and siblings ---------------------------------------------------------------------------------------------


async def test_two_halves_add_filters_and_after_healing_there_are_all_in_one_object(store_on: StoreOn) -> None:
    async with RiakDouble(nodes=5) as riak:
        riak.create_broker_types()
        left, right = await store_on(riak, nodes=[0, 1]), await store_on(riak, nodes=[2, 3, 4])
        topic = topic_on_both_sides(riak)
        await left.subscribe_filtered([("ann", [topic], PIZZA, False), ("before", [topic], PIZZA, False)])
        riak.memory.cut([0, 1], [2, 3, 4])
        await left.subscribe_filtered([("ann", [topic], SOUP, False), ("left", [topic], PIZZA, False)])
        await right.subscribe_filtered([("ann", [topic], CHEAP, False), ("right", [topic], PIZZA, False)])
        await right.unsubscribe([("before", [topic])])
        riak.memory.heal()
        assert len(riak.memory.object(key_of(topic)).siblings) == 2
        wanted = {("ann", PIZZA), ("ann", SOUP), ("ann", CHEAP), ("left", PIZZA), ("right", PIZZA)}
        assert wanted <= await pairs(left, topic) <= wanted | {("before", PIZZA)}
        await left.repaired()
        assert len(riak.memory.object(key_of(topic)).siblings) == 1
        # An unsubscription may have to be repeated.
        await right.unsubscribe([("before", [topic])])
        assert await pairs(right, topic) == wanted
        assert await listed(right, "ann") == {topic}


async def test_what_is_confirmed_on_one_side_of_a_cut_again_survives_what_left_it_on_the_other(
    store_on: StoreOn,
) -> None:
    """Found where it is added, in a copy from before a removal that the other side has seen."""
    async with RiakDouble(nodes=5) as riak:
        riak.create_broker_types()
        left, right = await store_on(riak, nodes=[0, 1]), await store_on(riak, nodes=[2, 3, 4])
        topic = topic_on_both_sides(riak)
        await left.subscribe_filtered([("ann", [topic], PIZZA, False)])
        riak.memory.cut([0, 1], [2, 3, 4])
        await right.unsubscribe([("ann", [topic])])
        await left.subscribe_filtered([("ann", [topic], PIZZA, False)])
        riak.memory.heal()
        assert await pairs(right, topic) == {("ann", PIZZA)}
        assert await listed(right, "ann") == {topic}


@pytest.mark.parametrize("seed", range(4))
async def test_what_was_confirmed_and_not_taken_out_is_there_after_any_cuts(
    store_on: StoreOn, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Beside what comes and goes in the same objects, some of it refused on the side that has too few machines."""
    shrink(monkeypatch)
    chance = random.Random(seed)
    async with RiakDouble(nodes=5) as riak:
        riak.create_broker_types()
        stores = [await store_on(riak, nodes=[number]) for number in range(5)]
        topics = of_one_slot(4)
        confirmed: set[tuple[str, str, str]] = set()
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
                await store.subscribe_filtered([(client, some, text(step), False)])
                confirmed |= {(topic, client, text(step)) for topic in some}
                await store.subscribe_filtered([(passing, some, text(chance.randrange(4)), chance.random() < 0.5)])
                if step % 3 == 0:
                    await store.unsubscribe([(passing, topics)])
            except StoreUnavailable:
                refused += 1
        riak.memory.heal()
        for topic in topics:
            wanted = {(client, held) for at_topic, client, held in confirmed if at_topic == topic}
            for store in stores:
                assert wanted <= await pairs(store, topic)
        assert refused
        assert len(confirmed) > 40


@pytest.mark.usefixtures("small_objects")
async def test_what_is_in_the_partition_and_in_objects_of_its_own_comes_once(
    riak: RiakDouble, store_on: StoreOn
) -> None:
    store = await store_on(riak)
    await store.subscribe_filtered([("ann", ["rock"], PIZZA, False)])
    before = riak.memory.object(key_of("rock"))
    (sibling,) = before.siblings
    await store.subscribe_filtered([(f"other {number}", ["rock"], PIZZA, False) for number in range(9)])
    await store.unsubscribe_filtered([("ann", ["rock"], PIZZA)])
    await store.subscribe_filtered([("ann", ["rock"], PIZZA, False), ("ann", ["rock"], SOUP, False)])
    # A late write of a home from before.
    riak.memory.write(0, key_of("rock"), {}, {"value": sibling.content["value"], "vtag": b"t" * 22}, {})
    wanted = {("ann", PIZZA), ("ann", SOUP), *((f"other {number}", PIZZA) for number in range(9))}
    for limit in (1, 3, 100):
        assert await pairs(store, "rock", limit) == wanted
    assert await everything(store) == {("rock", *pair): 1 for pair in wanted}
    await store.unsubscribe_filtered([("ann", ["rock"], PIZZA)])
    assert await pairs(store, "rock") == wanted - {("ann", PIZZA)}


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_with_one_node_down_everything_goes_on_and_no_filter_is_lost(
    riak: RiakDouble, store_on: StoreOn, number: int
) -> None:
    riak.memory.faults.fallbacks_answer_first = True
    store = await store_on(riak)
    await store.subscribe_filtered([("ann", TOPICS, PIZZA, False)])
    await riak.nodes[number].kill()
    asked = [("ann", topic) for topic in TOPICS]
    assert await store.filters_of(asked) == [[PIZZA]] * len(TOPICS)
    await store.subscribe_filtered([("ann", TOPICS, SOUP, False)])
    await riak.restart(number)
    assert await store.filters_of(asked) == [[PIZZA, SOUP]] * len(TOPICS)


async def test_what_one_of_two_versions_took_out_has_to_go_again(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    await store.subscribe_filtered([("ann", ["rock"], PIZZA, False)])
    before = riak.memory.object(key_of("rock"))
    (sibling,) = before.siblings
    # As by a home on the other side of a cut, which has not seen that it went.
    await store.unsubscribe_filtered([("ann", ["rock"], PIZZA)])
    riak.memory.write(0, key_of("rock"), {}, {"value": sibling.content["value"], "vtag": b"t" * 22}, {})
    assert await pairs(store, "rock") == {("ann", PIZZA)}
    await store.repaired()
    assert len(riak.memory.object(key_of("rock")).siblings) == 1
    await store.unsubscribe_filtered([("ann", ["rock"], PIZZA)])
    assert await pairs(store, "rock") == set()


# --- cursors -------------------------------------------------------------------------------------------------------


async def test_what_is_no_cursor_is_refused(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    for cursor in ("", "x", "2" + "0" * 32, "0" * 32, "0" * 34, "0" + "A" * 32):
        with pytest.raises(ValueError, match="no cursor of this store"):
            await store.filtered([("rock", cursor)], 10)
    with pytest.raises(ValueError, match="one filter"):
        await store.filtered([("rock", None)], 0)
