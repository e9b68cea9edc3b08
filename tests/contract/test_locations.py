"""The contract's rules for locations and ended subscriptions, on every store of ``conftest.ALL``."""

from __future__ import annotations

import asyncio
import time

import pytest

from ingeborg.broker.store.base import (
    ENDED_BYTES_MAX,
    ENDED_MAX,
    Ended,
    Location,
    Store,
    StoreUnavailable,
    Subscribe,
    Term,
)
from ingeborg.protocol.hashes import slot_of
from tests.contract.asking import (
    GONE,
    LONGEST,
    ODD_CLIENTS,
    ODD_TOPICS,
    PIZZA,
    SOUP,
    add,
    ended,
    expiring,
    in_order,
    listen,
    made,
    of_each_kind,
    one,
)
from tests.contract.conftest import OpenStore

# --- locations


async def test_a_client_that_never_listened_has_no_location(store: Store) -> None:
    assert await store.locations(["ann"]) == [None]
    assert await store.locations([]) == []
    assert await listen(store, [], "i") == []
    await store.unlisten([])


async def test_listening_maps_each_client_in_the_order_asked(store: Store, other: Store) -> None:
    ann, bob = await listen(store, ["ann", "bob"], "here")
    assert (ann[1:], bob[1:]) == (("here", True), ("here", True))
    (moved,) = await listen(other, ["bob"], "there")
    assert moved[1:] == ("there", True)
    assert moved.rank > bob.rank
    for handle in (store, other):
        assert await handle.locations(["bob", "none", "ann"]) == [moved, None, ann]
        at_once = handle.locations_now(["bob", "none", "ann"])
        assert at_once == [moved, None, ann] or (at_once is None and not handle.shape.reads_memory)


async def test_a_listen_number_is_no_less_than_the_unix_time_in_milliseconds(store: Store) -> None:
    before = int(time.time() * 1000)
    (location,) = await listen(store, ["ann"], "here")
    assert before <= location.number <= time.time() * 1000


async def test_listen_numbers_rise_over_all_handles(store: Store, other: Store) -> None:
    numbers = [(await listen(handle, ["ann"], "i"))[0].number for handle in [store, other, other, store] * 5]
    assert numbers == sorted(set(numbers))


async def test_a_listen_number_is_above_any_that_has_returned(store: Store, other: Store) -> None:
    # Rounds of concurrent listens: two listens of one round can draw the same number, but never that of an earlier
    # round.
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
        # Both handles return the greatest by rank.
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
    (newest,) = await listen(store, ["ann"], "here")  # a second time at the same endpoint is newer, too
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


# --- ended subscriptions


async def test_nothing_has_ended_of_a_client_that_lost_nothing(store: Store) -> None:
    await made(store, "ann", ["rock"])
    assert await store.ended([]) == []
    assert await store.ended(["ann", "nobody"]) == [None, None]


async def test_a_client_whose_subscription_has_ended_is_told_by_its_listen(store: Store, other: Store) -> None:
    rock, _ = await made(store, "ann", ["rock", "jazz"], PIZZA)
    (bobs,) = await made(store, "bob", ["rock"])
    assert [said for _, said in await store.listen(["ann", "bob"], "here")] == [None, None]
    assert await other.end([([rock], None, False), ([bobs], None, False)]) == [[rock], [bobs]]
    await add(store, "bob", ["rock"])
    for handle in (store, other, store):  # repeatedly, until the store forgets it
        found = await handle.listen(["bob", "nobody", "ann"], "there")
        assert [said for _, said in found] == [None, None, Ended([("rock", PIZZA)], 1)]
        assert await store.locations(["bob", "nobody", "ann"]) == [location for location, _ in found]


@of_each_kind
@pytest.mark.parametrize("replace", [False, True])
async def test_what_is_subscribed_to_anew_has_not_ended_any_more(
    store: Store, other: Store, filter: str | None, term: Term | None, replace: bool
) -> None:
    topics = ["a", "b", "c"]
    mine = [each for text in (None, PIZZA, SOUP) for each in await made(store, "ann", topics, text)]
    (bobs,) = await made(store, "bob", ["a"])
    await store.end([(mine, None, True), ([bobs], None, True)])
    names = {(each.topic, each.filter) for each in mine}
    assert await ended(store, "ann") == in_order(Ended([*names], 9))
    for again in (["b", "other"], ["c"]):
        await add(other, "ann", again, filter, term, replace=replace)
        names -= {name for name in names if name[0] in again and (replace or name[1] == filter)}
        assert await ended(store, "ann") == in_order(Ended([*names], len(names)))
    await store.unsubscribe([("ann", topics, None)])
    assert await ended(store, "ann") == in_order(Ended([*names], len(names)))
    await store.subscribe([Subscribe("ann", ["a"], text) for text in (None, PIZZA, SOUP)])
    names -= {name for name in names if name[0] == "a"}
    assert await ended(store, "ann") == (in_order(Ended([*names], len(names))) if names else None)
    assert await ended(store, "bob") == Ended([("a", None)], 1)
    (anew,) = await made(store, "ann", ["z"])
    await store.end([([anew], None, True)])
    assert await ended(store, "ann") == in_order(Ended([*names, ("z", None)], len(names) + 1))


async def test_the_latest_are_named_and_all_are_counted(store: Store, other: Store) -> None:
    topics = [f"{index}" for index in range(ENDED_MAX // 2 + 75)]
    await store.subscribe([Subscribe("ann", topics, filter, GONE) for filter in (None, PIZZA)])
    mine = [each for slot in {slot_of(topic) for topic in topics} for each in await expiring(store, slot)]
    assert len(mine) == ENDED_MAX + 150
    assert await store.end([(mine[:100], None, True)]) == [mine[:100]]
    assert await other.end([(mine[100:ENDED_MAX], None, True)]) == [mine[100:ENDED_MAX]]
    assert await ended(other, "ann") == in_order(
        Ended([(each.topic, each.filter) for each in mine[:ENDED_MAX]], ENDED_MAX)
    )
    await store.end([(mine[ENDED_MAX:], None, True)])
    found = await ended(other, "ann")
    assert found is not None
    assert len(found.subscriptions) == ENDED_MAX
    assert found.total == ENDED_MAX + 150
    assert {(each.topic, each.filter) for each in mine[ENDED_MAX:]} < set(found.subscriptions)
    # Nobody knows whether the client has subscribed again to what is counted without a name.
    await store.subscribe([Subscribe("ann", topics, filter, GONE) for filter in (None, PIZZA)])
    assert await ended(other, "ann") == Ended([], 150)


async def test_so_many_bytes_of_them_are_named(store: Store, other: Store) -> None:
    text = LONGEST[0]
    topics = [f"{index} ".ljust(1_024, "x") for index in range(ENDED_BYTES_MAX // (1_024 + len(text)) + 20)]
    await add(store, "ann", topics, text, GONE)
    mine = [await one(store, "ann", topic, text) for topic in topics]
    for start in range(0, len(mine), 50):
        await other.end([(mine[start : start + 50], None, True)])
    found = await ended(store, "ann")
    assert found is not None
    assert found.total == len(topics)
    assert (
        ENDED_BYTES_MAX * 3 // 4
        <= sum(len(f"{topic}{filter}") for topic, filter in found.subscriptions)
        <= ENDED_BYTES_MAX
    )
    assert (topics[-1], text) in found.subscriptions
    assert (topics[0], text) not in found.subscriptions


async def test_odd_topics_clients_and_filters_are_named_whole(store: Store, other: Store) -> None:
    for client in ODD_CLIENTS[:4]:
        mine = [each for text in (None, LONGEST[0]) for each in await made(store, client, ODD_TOPICS, text)]
        assert await store.end([(mine, None, True)]) == [mine]
        names = [(each.topic, each.filter) for each in mine]
        assert await ended(other, client) == in_order(Ended(names, len(names)))


# --- cleaning up


async def test_clearing_up_leaves_all_that_is_young_or_in_use(store: Store, other: Store) -> None:
    rock, jazz = await made(store, "ann", ["rock", "jazz"], PIZZA)
    here, _ = await listen(store, ["ann", "bob"], "here")
    (gone,) = await store.locations(["bob"])
    assert gone is not None
    await store.unlisten([("bob", gone)])
    before = await store.locations(["ann", "bob"])
    await store.end([([jazz], None, False)])
    for _ in range(3):
        assert await other.tidy(3600.0) == 0
    assert await ended(store, "ann") == Ended([("jazz", PIZZA)], 1)
    assert await store.locations(["ann", "bob"]) == before
    await asyncio.sleep(0.01)  # so that the forgotten records are in the past
    for _ in range(3):
        await other.tidy(0.0)
    (now,) = await store.locations(["bob"])
    assert now in (None, before[1])
    assert await store.locations(["ann"]) == [here]
    assert await one(store, "ann", "rock", PIZZA) == rock
    (again,) = await listen(other, ["bob"], "there")
    assert again.number > gone.number


# --- closing


async def test_a_closed_store_is_unavailable(open_store: OpenStore) -> None:
    mine = await open_store()
    await mine.close()
    for operation in (
        listen(mine, ["ann"], "i"),
        mine.unlisten([("ann", Location(1, "i", True))]),
        mine.locations(["ann"]),
        mine.ended(["ann"]),
    ):
        with pytest.raises(StoreUnavailable):
            await operation
