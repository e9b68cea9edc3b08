"""The store contract, sentence by sentence of ``broker/store/base.py``, on every store of ``conftest.STORES``."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingeborg.broker.store.base import (
    PAGE_SUBSCRIPTIONS,
    Endpoint,
    Location,
    Settings,
    Store,
    StoreUnavailable,
    Superseded,
)
from tests import proof
from tests.contract.conftest import STORES, OpenStore
from tests.store.asked import listen, subscribers, subscribers_now

ODD_TOPICS = [
    "a",
    " ",
    "a ",
    "a/b",
    "a\u00e9",  # composed and decomposed are two topics: byte for byte
    "ae\u0301",
    "\N{SNOWMAN}",
    "\U0001f4fb" * 256,  # 1,024 bytes in 256 characters
    "x" * 1024,
    "x" * 1023,
    "x" * 1023 + "y",
    "\u2028",
    "\uffff",
    "%00",
    '"quoted\\',
    "../../etc/passwd",
    "0",
    "-0",
    "null",
]
ODD_CLIENTS = ["c", "cc", "c/", "c ", "C", "7", "07", "é", "\U0001f4fb" * 32, "n" * 128, "n" * 127 + "m"]


async def all_topics(store: Store, client: str, limit: int = 100) -> list[str]:
    """All pages of a client's topics, each checked for its size."""
    topics: list[str] = []
    cursor = None
    while True:
        page, cursor = await store.topics(client, cursor, limit)
        assert len(page) <= limit
        topics += page
        if cursor is None:
            return topics


async def everything(store: Store) -> Counter[tuple[str, str]]:
    """How often each ``(topic, client)`` comes among all subscriptions; each page checked for its size."""
    found: Counter[tuple[str, str]] = Counter()
    async for page in store.subscriptions():
        assert 1 <= sum(len(clients) for _, clients in page) <= PAGE_SUBSCRIPTIONS
        assert all(clients for _, clients in page)
        found.update((topic, client) for topic, clients in page for client in clients)
    return found


# --- subscriptions -----------------------------------------------------------------------------------------------


async def test_a_topic_nobody_had_has_an_empty_set(store: Store) -> None:
    assert await subscribers(store, ["nobody"]) == [set()]


async def test_empty_batches_are_fine(store: Store) -> None:
    await store.subscribe([])
    await store.subscribe([("client", [])])
    await store.unsubscribe([])
    await store.unlisten([])
    assert await subscribers(store, []) == []
    assert await store.locations([]) == []
    assert await listen(store, [], "i") == []
    assert await store.seen([], 1.0) == []
    assert await store.topics("client", None, 10) == ([], None)


async def test_subscribers_come_in_the_order_asked_repeated_topics_too(store: Store) -> None:
    await store.subscribe([("ann", ["rock", "jazz"]), ("bob", ["jazz"])])
    assert await subscribers(store, ["jazz", "none", "rock", "jazz"]) == [
        {"ann", "bob"},
        set(),
        {"ann"},
        {"ann", "bob"},
    ]


async def test_subscriber_sets_are_the_callers_to_change(store: Store) -> None:
    await store.subscribe([("ann", ["rock"])])
    first, second = await subscribers(store, ["rock", "rock"])
    first.add("intruder")
    second.clear()
    assert await subscribers(store, ["rock"]) == [{"ann"}]


async def test_subscribing_and_unsubscribing_twice_is_the_same_as_once(store: Store) -> None:
    for _ in range(2):
        await store.subscribe([("ann", ["rock", "jazz", "rock"])])
        assert await subscribers(store, ["rock", "jazz"]) == [{"ann"}, {"ann"}]
        assert sorted(await all_topics(store, "ann")) == ["jazz", "rock"]
    for _ in range(2):
        await store.unsubscribe([("ann", ["rock", "rock", "never had"])])
        assert await subscribers(store, ["rock", "jazz"]) == [set(), {"ann"}]
        assert await all_topics(store, "ann") == ["jazz"]


async def test_what_it_says_at_once_is_what_it_says(store: Store, other: Store) -> None:
    await store.subscribe([("ann", ["rock", "jazz"]), ("bob", ["rock"])])
    (ann,) = await listen(store, ["ann"], "i")
    for handle in (store, other):
        sets = subscribers_now(handle, ["jazz", "none", "rock", "jazz"])
        locations = handle.locations_now(["bob", "ann"])
        if handle.shape.reads_memory:
            assert sets is not None
            assert locations is not None
        assert sets is None or list(map(set, sets)) == [{"ann"}, set(), {"ann", "bob"}, {"ann"}]
        assert sets is None or all(isinstance(found, set) or len(found) == len(set(found)) for found in sets)
        assert locations in (None, [None, ann])
        assert subscribers_now(handle, []) in (None, [])


async def test_one_clients_unsubscribe_leaves_the_others(store: Store) -> None:
    await store.subscribe([("ann", ["rock"]), ("bob", ["rock"])])
    await store.unsubscribe([("ann", ["rock"])])
    assert await subscribers(store, ["rock"]) == [{"bob"}]
    assert await all_topics(store, "bob") == ["rock"]


async def test_one_client_may_come_several_times_in_a_batch(store: Store) -> None:
    await store.subscribe([("ann", ["rock"]), ("bob", ["rock"]), ("ann", ["jazz"])])
    assert sorted(await all_topics(store, "ann")) == ["jazz", "rock"]


async def test_what_is_empty_can_be_filled_again(store: Store) -> None:
    await store.subscribe([("ann", ["rock"])])
    await store.unsubscribe([("ann", ["rock"])])
    await store.subscribe([("bob", ["rock"])])
    assert await subscribers(store, ["rock"]) == [{"bob"}]
    assert await all_topics(store, "ann") == []
    assert await all_topics(store, "bob") == ["rock"]


async def test_odd_topics_and_clients_are_kept_apart_and_whole(store: Store, other: Store) -> None:
    await store.subscribe([(client, ODD_TOPICS) for client in ODD_CLIENTS[::2]])
    assert await subscribers(other, ODD_TOPICS) == [set(ODD_CLIENTS[::2])] * len(ODD_TOPICS)
    for client in ODD_CLIENTS[::2]:
        assert sorted(await all_topics(other, client, limit=3)) == sorted(ODD_TOPICS)
    for client in ODD_CLIENTS[1::2]:
        assert await all_topics(other, client) == []
    await store.unsubscribe([(ODD_CLIENTS[0], ODD_TOPICS[::2])])
    assert sorted(await all_topics(other, ODD_CLIENTS[0])) == sorted(ODD_TOPICS[1::2])
    assert await subscribers(other, ODD_TOPICS[:2]) == [set(ODD_CLIENTS[2::2]), set(ODD_CLIENTS[::2])]


async def test_ids_and_topics_that_look_like_each_other_concatenated(store: Store) -> None:
    await store.subscribe([("a", ["bc"]), ("ab", ["c"]), ("c", ["ab"])])
    assert await subscribers(store, ["bc", "c", "ab", "abc", "a"]) == [{"a"}, {"ab"}, {"c"}, set(), set()]
    assert await all_topics(store, "abc") == []


async def test_ten_thousand_topics_in_one_batch(store: Store, other: Store) -> None:
    topics = [f"song {index}" for index in range(10_000)]
    await store.subscribe([("ann", topics)])
    assert await subscribers(other, topics) == [{"ann"}] * len(topics)
    found = await all_topics(other, "ann", limit=999)
    assert len(found) == len(topics)
    assert set(found) == set(topics)
    await other.unsubscribe([("ann", topics[1:])])
    assert await subscribers(store, topics[:3]) == [{"ann"}, set(), set()]
    assert await all_topics(store, "ann") == topics[:1]


async def test_ten_thousand_subscribers_of_one_topic(store: Store, other: Store) -> None:
    clients = [f"client {index}" for index in range(10_000)]
    await store.subscribe([(client, ["hit"]) for client in clients])
    assert await subscribers(other, ["hit"]) == [set(clients)]
    await other.unsubscribe([(client, ["hit"]) for client in clients[1:]])
    assert await subscribers(store, ["hit"]) == [set(clients[:1])]


async def test_reads_see_every_write_that_has_returned_at_whichever_handle(store: Store, other: Store) -> None:
    for index, (writer, reader) in enumerate(itertools.islice(itertools.cycle([(store, other), (other, store)]), 40)):
        await writer.subscribe([(f"client {index}", ["rock"])])
        assert f"client {index}" in (await subscribers(reader, ["rock"]))[0]
        if index % 2:
            await writer.unsubscribe([(f"client {index}", ["rock"])])
            assert f"client {index}" not in (await subscribers(reader, ["rock"]))[0]


async def test_concurrent_writers_of_one_topic_make_the_union(store: Store, other: Store) -> None:
    # Each handle under way twenty times at once, all on the same two topics.
    clients = [f"client {index}" for index in range(40)]
    await asyncio.gather(
        *(
            writer.subscribe([(client, ["rock", "jazz"])])
            for client, writer in zip(clients, [store, other] * 20, strict=True)
        )
    )
    for handle in (store, other):
        assert await subscribers(handle, ["rock", "jazz"]) == [set(clients), set(clients)]
        assert sorted(await all_topics(handle, clients[0])) == ["jazz", "rock"]


async def test_concurrent_writers_and_unsubscribers_lose_no_subscription(store: Store, other: Store) -> None:
    leaving, staying = [f"leaving {i}" for i in range(20)], [f"staying {i}" for i in range(20)]
    await store.subscribe([(client, ["rock"]) for client in leaving])
    await asyncio.gather(
        *(store.unsubscribe([(client, ["rock"])]) for client in leaving),
        *(other.subscribe([(client, ["rock"])]) for client in staying),
    )
    assert set(staying) <= (await subscribers(store, ["rock"]))[0]
    # "An unsubscription may have to be repeated; a subscription never."
    await store.unsubscribe([(client, ["rock"]) for client in leaving])
    assert await subscribers(other, ["rock"]) == [set(staying)]


async def test_awaited_operations_take_effect_in_order(store: Store, other: Store) -> None:
    for writer in (store, other, store):
        await writer.subscribe([("ann", ["rock"])])
        await other.unsubscribe([("ann", ["rock"])])
        await store.subscribe([("ann", ["rock"])])
        assert await subscribers(other, ["rock"]) == [{"ann"}]
        await writer.unsubscribe([("ann", ["rock"])])
        assert await subscribers(store, ["rock"]) == [set()]


async def test_subscriptions_survive_that_every_handle_is_closed(open_store: OpenStore) -> None:
    first = await open_store()
    await first.subscribe([("ann", ["rock"])])
    await first.close()
    again = await open_store()
    assert await subscribers(again, ["rock"]) == [{"ann"}]
    assert await all_topics(again, "ann") == ["rock"]


# --- pages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 7, 30, 31])
async def test_pages_give_every_topic_once(store: Store, limit: int) -> None:
    topics = [f"song {index}" for index in range(30)]
    await store.subscribe([("ann", topics), ("anna", ["other"])])
    assert sorted(await all_topics(store, "ann", limit)) == sorted(topics)


async def test_a_full_last_page_ends_the_paging(store: Store) -> None:
    await store.subscribe([("ann", ["a", "b"])])
    page, cursor = await store.topics("ann", None, 2)
    assert (sorted(page), cursor) == (["a", "b"], None)


async def test_the_order_of_pages_is_stable_and_the_same_at_every_handle(store: Store, other: Store) -> None:
    await store.subscribe([("ann", [f"song {index}" for index in range(50)])])
    assert await all_topics(store, "ann", 7) == await all_topics(other, "ann", 11)


async def test_what_stays_subscribed_through_the_paging_comes_exactly_once(store: Store, other: Store) -> None:
    staying, leaving = [f"staying {i}" for i in range(40)], [f"leaving {i}" for i in range(40)]
    await store.subscribe([("ann", staying + leaving)])
    seen: Counter[str] = Counter()
    cursor = None
    for step in range(100):
        page, cursor = await store.topics("ann", cursor, 5)
        seen.update(page)
        if cursor is None:
            break
        # Between the pages topics come and go; sometimes the very one the cursor stands on, unless it is to stay.
        gone = [topic for topic in page if topic in leaving][-1:] + leaving[step : step + 2]
        await other.unsubscribe([("ann", gone)])
        await other.subscribe([("ann", [f"coming {step}"])])
    assert cursor is None
    assert {topic: seen[topic] for topic in staying} == dict.fromkeys(staying, 1)
    assert max(seen.values()) == 1


@pytest.mark.parametrize("cursor", ["", "x", "0", "é", "g" * 32, "00", " " * 32, "A" * 32, "9" * 200, "-1", "null"])
async def test_a_cursor_of_elsewhere_is_refused(store: Store, cursor: str) -> None:
    await store.subscribe([("ann", ["rock"])])
    with pytest.raises(ValueError, match="cursor"):
        await store.topics("ann", cursor, 10)


# --- all of them --------------------------------------------------------------------------------------------------


async def test_an_empty_store_has_no_subscriptions_to_go_through(store: Store) -> None:
    assert await everything(store) == {}


async def test_all_subscriptions_come_once_odd_ones_and_whole_pages_too(store: Store, other: Store) -> None:
    wanted = {(topic, client) for topic in ODD_TOPICS for client in ODD_CLIENTS}
    wanted |= {("hit", f"client {index}") for index in range(3 * PAGE_SUBSCRIPTIONS)}  # more pages than one
    wanted |= {(f"song {index}", "ann") for index in range(PAGE_SUBSCRIPTIONS)}
    await store.subscribe([(client, [topic]) for topic, client in wanted])
    await store.subscribe([("ann", ["left"])])
    await store.unsubscribe([("ann", ["left"])])
    assert await everything(other) == dict.fromkeys(wanted, 1)


async def test_what_stays_subscribed_comes_once_while_others_come_and_go(store: Store, other: Store) -> None:
    staying = {(f"staying {index}", f"client {index % 7}") for index in range(2 * PAGE_SUBSCRIPTIONS)}
    staying |= {("hit", f"client {index}") for index in range(2 * PAGE_SUBSCRIPTIONS)}
    leaving = [f"leaving {index}" for index in range(PAGE_SUBSCRIPTIONS)]
    await store.subscribe([*((client, [topic]) for topic, client in staying), ("ann", leaving), ("leaver", ["hit"])])
    found: Counter[tuple[str, str]] = Counter()
    step = 0
    async for page in store.subscriptions():
        found.update((topic, client) for topic, clients in page for client in clients)
        # Among them the very entry that the page ended with, and those of the set it ended in.
        last, clients = page[-1]
        await other.unsubscribe([("ann", leaving[step : step + 99]), ("leaver", ["hit"])])
        if (last, clients[-1]) not in staying:
            await other.unsubscribe([(clients[-1], [last])])
        await other.subscribe([("ann", [f"coming {step} {index}" for index in range(20)]), (f"a {step}", ["hit"])])
        step += 99
    assert step >= 99 * 3
    assert {entry: found[entry] for entry in staying} == dict.fromkeys(staying, 1)
    assert max(found.values()) == 1


# --- locations ---------------------------------------------------------------------------------------------------


async def test_a_client_that_never_listened_has_no_location(store: Store) -> None:
    assert await store.locations(["ann"]) == [None]


async def test_listening_maps_each_client_in_the_order_asked(store: Store, other: Store) -> None:
    ann, bob = await listen(store, ["ann", "bob"], "here")
    assert (ann[1:], bob[1:]) == (("here", True), ("here", True))
    (moved,) = await listen(other, ["bob"], "there")
    assert moved[1:] == ("there", True)
    assert moved.rank > bob.rank
    expected = [moved, None, ann]
    assert await store.locations(["bob", "none", "ann"]) == expected
    assert await other.locations(["bob", "none", "ann"]) == expected


async def test_a_listen_number_is_no_less_than_the_unix_time_in_milliseconds(store: Store) -> None:
    before = int(time.time() * 1000)
    (location,) = await listen(store, ["ann"], "here")
    assert before <= location.number <= time.time() * 1000


async def test_listen_numbers_rise_over_all_handles(store: Store, other: Store) -> None:
    numbers = [(await listen(handle, ["ann"], "i"))[0].number for handle in [store, other, other, store] * 5]
    assert numbers == sorted(set(numbers))


async def test_a_listen_number_is_above_any_that_has_returned(store: Store, other: Store) -> None:
    # Rounds of concurrent listens: two of one round may draw the same number, none a number of an earlier round.
    highest = 0
    for round_ in range(10):
        drawn = await asyncio.gather(
            *(
                listen(handle, ["ann"], f"{name} {round_}")
                for handle, name in [(store, "a"), (other, "b"), (store, "c")]
            )
        )
        locations = [locations[0] for locations in drawn]
        assert min(location.number for location in locations) > highest
        highest = max(location.number for location in locations)
        # The greatest by rank is true, at both.
        assert await store.locations(["ann"]) == [max(locations, key=lambda location: location.rank)]
        assert await other.locations(["ann"]) == await store.locations(["ann"])


async def test_unlisten_marks_offline_and_keeps_the_number(store: Store, other: Store) -> None:
    (location,) = await listen(store, ["ann"], "here")
    for _ in range(2):
        await store.unlisten([("ann", location)])
        assert await other.locations(["ann"]) == [location._replace(online=False)]
    (newer,) = await listen(other, ["ann"], "there")
    assert newer.number > location.number


async def test_unlisten_leaves_a_newer_mapping(store: Store, other: Store) -> None:
    (old,) = await listen(store, ["ann"], "here")
    (new,) = await listen(other, ["ann"], "there")
    await store.unlisten([("ann", old)])
    assert await store.locations(["ann"]) == [new]
    (newest,) = await listen(store, ["ann"], "here")  # the same endpoint once more is newer, too
    await store.unlisten([("ann", old)])
    assert await other.locations(["ann"]) == [newest]


async def test_unlisten_of_a_number_that_another_holds_changes_nothing(store: Store) -> None:
    (mine,) = await listen(store, ["ann"], "here")
    await store.unlisten([("ann", mine._replace(incarnation="elsewhere")), ("bob", mine)])
    assert await store.locations(["ann", "bob"]) == [mine, None]


async def test_the_rank_orders_by_number_then_incarnation_then_offline() -> None:
    ordered = [
        Location(1, "b", True),
        Location(1, "b", False),
        Location(2, "a", True),
        Location(2, "a", False),
        Location(2, "b", True),
        Location(10, "a", True),
    ]
    assert sorted({*ordered}, key=lambda location: location.rank) == ordered


async def test_many_and_odd_clients_listen(store: Store, other: Store) -> None:
    clients = [f"client {index}" for index in range(5_000)] + ODD_CLIENTS
    locations = await listen(store, clients, "here")
    assert await other.locations(clients) == locations
    assert {location[1:] for location in locations} == {("here", True)}
    await other.unlisten(list(zip(clients, locations, strict=True)))
    assert await store.locations(clients) == [location._replace(online=False) for location in locations]


# --- seen hashes -------------------------------------------------------------------------------------------------


def hashes(count: int, kind: int = 0) -> list[bytes]:
    return [bytes([kind]) + index.to_bytes(15, "big") for index in range(count)]


async def test_a_hash_is_seen_from_the_second_time_on_everywhere(store: Store, other: Store) -> None:
    first, second = hashes(2)
    assert await store.seen([first], 60.0) == [False]
    assert await store.seen([first, second], 60.0) == [True, False]
    assert await other.seen([second, first, hashes(3)[2]], 60.0) == [True, True, False]


async def test_many_hashes_at_once(store: Store, other: Store) -> None:
    batch = hashes(3_000)
    assert await store.seen(batch, 60.0) == [False] * len(batch)
    assert await other.seen(batch[::-1] + hashes(1, kind=1), 60.0) == [True] * len(batch) + [False]


async def test_a_hash_is_forgotten_after_its_time(store: Store) -> None:
    (payload,) = hashes(1)
    assert await store.seen([payload], 0.05) == [False]
    # The clock is the store's, so this is waited out. A late wake-up does no harm; a store that counts whole seconds
    # may keep the hash for longer, and each look extends the time: hence longer and longer waits.
    for wait_s in (0.1, 1.5, 3.0, 6.0):
        await asyncio.sleep(wait_s)
        if not (await store.seen([payload], 0.05))[0]:
            return
    pytest.fail("a hash with a time-to-live of 0.05 s was still there after 6 s")


async def test_asking_extends_the_time(store: Store) -> None:
    (payload,) = hashes(1)
    await store.seen([payload], 0.001)
    await store.seen([payload], 60.0)
    assert await store.seen([payload], 60.0) == [True]


# --- registry ----------------------------------------------------------------------------------------------------


async def test_the_registry_lists_every_endpoint_once(store: Store, other: Store) -> None:
    assert await store.endpoints() == []
    ann = Endpoint("ann", "i1", "ws://127.0.0.1:9000", 0)
    bob = Endpoint("böb/ " + "b" * 100, "i2", "ws://127.0.0.1:9001", 0)
    await store.register(ann)
    await other.register(bob)
    await store.register(ann)
    assert sorted(await other.endpoints()) == sorted([ann, bob])
    assert sorted(await store.endpoints()) == sorted([ann, bob])


async def test_a_heartbeat_moves_the_count_that_others_see(store: Store, other: Store) -> None:
    endpoint = Endpoint("e", "i1", "ws://127.0.0.1:9000", 0)
    await store.register(endpoint)
    for count in (1, 2, 2**40):
        await store.heartbeat(endpoint._replace(heartbeat=count))
        assert await other.endpoints() == [endpoint._replace(heartbeat=count)]


async def test_a_heartbeat_without_an_entry_writes_it(store: Store, other: Store) -> None:
    endpoint = Endpoint("e", "i1", "ws://127.0.0.1:9000", 5)
    await store.heartbeat(endpoint)
    assert await other.endpoints() == [endpoint]


async def test_who_registers_a_name_supersedes_its_holder(store: Store, other: Store) -> None:
    former = Endpoint("e", "i1", "ws://127.0.0.1:9000", 7)
    latter = Endpoint("e", "i2", "ws://127.0.0.1:9001", 0)
    await store.register(former)
    await other.register(latter)
    assert await store.endpoints() == [latter]
    with pytest.raises(Superseded, match="e"):
        await store.heartbeat(former._replace(heartbeat=8))
    await store.deregister(former)
    assert await store.endpoints() == [latter]
    await other.heartbeat(latter._replace(heartbeat=1))


async def test_deregistering_takes_the_entry_out_and_may_be_repeated(store: Store, other: Store) -> None:
    endpoint = Endpoint("e", "i1", "ws://127.0.0.1:9000", 0)
    await store.register(endpoint)
    await store.deregister(endpoint)
    await store.deregister(endpoint)
    assert await other.endpoints() == []


# --- closing -----------------------------------------------------------------------------------------------------


async def test_a_closed_store_is_unavailable_and_may_be_closed_twice(open_store: OpenStore, store: Store) -> None:
    mine = await open_store()
    await mine.close()
    await mine.close()
    endpoint = Endpoint("e", "i", "ws://127.0.0.1:9000", 0)
    for operation in (
        mine.subscribe([("ann", ["rock"])]),
        mine.unsubscribe([("ann", ["rock"])]),
        subscribers(mine, ["rock"]),
        mine.topics("ann", None, 10),
        listen(mine, ["ann"], "i"),
        mine.unlisten([("ann", Location(1, "i", True))]),
        mine.locations(["ann"]),
        mine.seen(hashes(1), 1.0),
        mine.register(endpoint),
        mine.heartbeat(endpoint),
        mine.deregister(endpoint),
        mine.endpoints(),
        mine.settings(),
        mine.settings(Settings()),
        mine.set_settings(Settings()),
    ):
        with pytest.raises(StoreUnavailable):
            await operation
    with pytest.raises(StoreUnavailable):
        await everything(mine)
    await store.subscribe([("ann", ["rock"])])  # a sibling's handle is not affected


async def test_closing_ends_what_is_under_way(open_store: OpenStore) -> None:
    mine = await open_store()
    under_way = [
        asyncio.create_task(mine.subscribe([(f"c{index}", [f"t{topic}" for topic in range(2_000)])]))
        for index in range(3)
    ]
    await asyncio.sleep(0)  # each has begun
    await mine.close()
    for outcome in await asyncio.gather(*under_way, return_exceptions=True):
        assert outcome is None or isinstance(outcome, StoreUnavailable)


# --- against a model ---------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "ab", "é"])
SOME = st.lists(NAMES, max_size=4)
HANDLE = st.integers(0, 1)
STEPS = st.one_of(
    st.tuples(st.just("subscribe"), HANDLE, st.lists(st.tuples(NAMES, SOME), max_size=3)),
    st.tuples(st.just("unsubscribe"), HANDLE, st.lists(st.tuples(NAMES, SOME), max_size=3)),
    st.tuples(st.just("listen"), HANDLE, st.lists(NAMES, max_size=3, unique=True)),
    st.tuples(st.just("unlisten"), HANDLE, st.lists(st.tuples(NAMES, st.integers(1, 4)), max_size=3)),
)


class Model:
    """What the contract says, as dictionaries."""

    def __init__(self) -> None:
        self.subscriptions: set[tuple[str, str]] = set()  # (client, topic)
        self.locations: dict[str, Location] = {}
        self.history: dict[str, list[Location]] = {}

    def given(self, client: str, back: int) -> Location:
        """The location that the client's ``back``-th last ``listen`` returned, or one that none did."""
        history = self.history.get(client, [])
        return history[-back] if back <= len(history) else Location(back, "nobody", True)

    def listened(self, client: str, location: Location, incarnation: str) -> None:
        known = self.locations.get(client)
        assert location[1:] == (incarnation, True)
        assert known is None or location.number > known.number
        self.locations[client] = location
        self.history.setdefault(client, []).append(location)

    def apply(self, name: str, batch: list[tuple[Any, Any]]) -> None:
        if name == "subscribe":
            self.subscriptions |= {(client, topic) for client, topics in batch for topic in topics}
        elif name == "unsubscribe":
            self.subscriptions -= {(client, topic) for client, topics in batch for topic in topics}
        elif name == "unlisten":
            for client, back in batch:
                if self.locations.get(client) == self.given(client, back):
                    self.locations[client] = self.locations[client]._replace(online=False)


@pytest.mark.parametrize("kind", sorted(STORES))
def test_any_sequence_of_operations_gives_what_the_model_gives(kind: str, tmp_path: Path) -> None:
    # One storage for all examples, because opening it takes longer than an example: each has names of its own.
    fresh = itertools.count()

    async def check(handles: list[Store], steps: list[tuple[str, int, list[Any]]]) -> None:
        model, mark = Model(), f"{next(fresh)}:"
        for name, handle, batch in steps:
            store = handles[handle]
            if name == "listen":
                drawn = await listen(store, [mark + client for client in batch], f"i{handle}")
                for client, location in zip(batch, drawn, strict=True):
                    model.listened(client, location, f"i{handle}")
            elif name == "unlisten":
                await store.unlisten([(mark + client, model.given(client, back)) for client, back in batch])
            else:
                marked = [(mark + client, [mark + topic for topic in topics]) for client, topics in batch]
                await getattr(store, name)(marked)
            model.apply(name, batch)
        names = ["a", "b", "ab", "é", "never"]
        for store in handles:
            expected_sets = [{mark + c for c, t in model.subscriptions if t == topic} for topic in names]
            assert await subscribers(store, [mark + topic for topic in names]) == expected_sets
            at_once = subscribers_now(store, [mark + topic for topic in names])
            assert at_once is None or list(map(set, at_once)) == expected_sets
            for client in names:
                expected_topics = sorted(mark + t for c, t in model.subscriptions if c == client)
                assert sorted(await all_topics(store, mark + client, limit=2)) == expected_topics
            expected_locations = [model.locations.get(client) for client in names]
            assert await store.locations([mark + client for client in names]) == expected_locations
            assert store.locations_now([mark + client for client in names]) in (None, expected_locations)

    with asyncio.Runner() as runner:
        storage = STORES[kind](tmp_path)

        async def start() -> list[Store]:
            opener = await storage.__aenter__()
            return [await opener(), await opener()]

        handles = runner.run(start())

        @settings(
            max_examples=proof.examples(150, 25),
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(st.lists(STEPS, max_size=15))
        def examples(steps: list[tuple[str, int, list[Any]]]) -> None:
            runner.run(check(handles, steps))

        try:
            examples()
        finally:
            runner.run(storage.__aexit__(None, None, None))
