"""What the contract says of ending subscriptions, on every store of ``conftest.STORES`` and on the simulator's."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingeborg.broker.store.base import ENDED_TOPICS_MAX, Ended, Ending, Location, Store, StoreUnavailable, Term
from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.protocol.hashes import slot_of
from tests import proof
from tests.contract.conftest import STORES, OpenStore, Storage
from tests.contract.test_store import ODD_CLIENTS, ODD_TOPICS, everything
from tests.contract.virtual import Virtual, virtual
from tests.store.asked import listen, subscribers, subscribers_now

ALL: dict[str, Storage] = {**STORES, "simulator": virtual}

GONE = Term(True, 0.0)
LATER = Term(False, 4e9)
BOTH = Term(True, 4e9 + 0.5)


@pytest.fixture(params=sorted(ALL))
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenStore]:
    """Opens handles on one new, empty storage; closes them after the test."""
    async with ALL[request.param](tmp_path) as opener:
        yield opener


async def records(store: Store, slot: int, limit: int = 100) -> list[Ending]:
    """All pages of the slot's ending subscriptions, each there once."""
    found: list[Ending] = []
    cursor = None
    while True:
        page, cursor = await store.ending(slot, cursor, limit)
        found += page
        if cursor is None:
            assert len({(record.topic, record.client) for record in found}) == len(found)
            return found


async def record(store: Store, client: str, topic: str) -> Ending | None:
    """The ending subscription, if it is one."""
    found = [each for each in await records(store, slot_of(topic)) if (each.client, each.topic) == (client, topic)]
    return found[0] if found else None


async def made(store: Store, client: str, topics: Sequence[str], term: Term = GONE) -> list[Ending]:
    """Subscribe, and what the store has of it then."""
    await store.subscribe_ending([(client, topics, term)])
    found = [await record(store, client, topic) for topic in topics]
    assert None not in found
    return [each for each in found if each is not None]


async def listing(store: Store, client: str, limit: int = 100) -> list[str]:
    """All pages of a client's topics, each checked for its size."""
    topics: list[str] = []
    cursor = None
    while True:
        page, cursor = await store.topics(client, cursor, limit)
        assert len(page) <= limit
        topics += page
        if cursor is None:
            return topics


async def members(store: Store, topic: str) -> set[str]:
    """The topic's subscribers, plain and ending: the same in whichever way they are asked for."""
    (found,) = await subscribers(store, [topic])
    now = subscribers_now(store, [topic])
    assert not store.shape.reads_memory or now is not None
    if now is not None:
        assert sorted(now[0]) == sorted(found)
    return found


async def ended(store: Store, client: str) -> Ended | None:
    """What has ended of the client, its topics sorted."""
    (found,) = await store.ended([client])
    return None if found is None else Ended(sorted(found.topics), found.total)


# --- there


async def test_an_ending_one_is_there_for_whoever_asks(store: Store, other: Store) -> None:
    await store.subscribe([("bob", ["rock"])])
    await store.subscribe_ending([("ann", ["rock", "jazz"], GONE), ("cleo", ["jazz"], BOTH)])
    for handle in (store, other):
        sets = [{"ann", "cleo"}, {"ann", "bob"}, set(), {"ann", "cleo"}]
        assert await subscribers(handle, ["jazz", "rock", "none", "jazz"]) == sets
        for topic, wanted in zip(("jazz", "rock", "none"), sets, strict=False):
            assert await members(handle, topic) == wanted
        assert sorted(await listing(handle, "ann")) == ["jazz", "rock"]
        pairs = [("ann", "rock"), ("bob", "rock"), ("cleo", "jazz"), ("cleo", "rock"), ("ann", "rock")]
        assert await handle.terms(pairs) == [GONE, None, BOTH, None, GONE]
        found = await record(handle, "ann", "rock")
        assert found is not None
        assert found[:3] == ("rock", "ann", GONE)
    if not isinstance(store, Virtual):
        assert await everything(store) == {("rock", "bob"): 1}


async def test_the_slots_that_have_any_are_told_where_that_takes_no_reading_of_all(store: Store, other: Store) -> None:
    assert await store.ending_slots() in (None, [])
    await store.subscribe([("ann", ["plain"])])
    topics = [f"song {number}" for number in range(20)]
    await store.subscribe_ending([("ann", topics, GONE), ("bob", topics[:3], LATER)])
    assert await other.ending_slots() in (None, sorted(set(map(slot_of, topics))))
    await store.unsubscribe([("ann", topics), ("bob", topics[1:3])])
    assert await other.ending_slots() in (None, [slot_of(topics[0])])
    if isinstance(store, EmbeddedStore):
        assert await store.ending_slots() is not None


async def test_the_sets_are_the_callers_to_change(store: Store) -> None:
    await store.subscribe_ending([("ann", ["rock"], GONE)])
    first, second = await subscribers(store, ["rock", "rock"])
    first.add("intruder")
    second.clear()
    assert await members(store, "rock") == {"ann"}


async def test_empty_batches_are_fine(store: Store) -> None:
    await store.subscribe_ending([])
    await store.subscribe_ending([("ann", [], GONE)])
    await store.subscribe([])
    await store.unsubscribe([("ann", [])])
    assert await subscribers(store, []) == []
    assert await store.terms([]) == []
    assert await store.end([]) == []
    assert await store.end([([], None, True)]) == [[]]
    assert await store.ended([]) == []
    assert await store.topics("ann", None, 10) == ([], None)
    assert await store.ending(0, None, 10) == ([], None)


async def test_odd_topics_and_clients_are_kept_apart_and_whole(store: Store, other: Store) -> None:
    await store.subscribe_ending([(client, ODD_TOPICS, LATER) for client in ODD_CLIENTS[::2]])
    assert await subscribers(other, ODD_TOPICS) == [set(ODD_CLIENTS[::2])] * len(ODD_TOPICS)
    for client in ODD_CLIENTS:
        mine = ODD_TOPICS if client in ODD_CLIENTS[::2] else []
        assert sorted(await listing(other, client, limit=3)) == sorted(mine)
    found = [record for slot in {slot_of(topic) for topic in ODD_TOPICS} for record in await records(other, slot, 2)]
    assert sorted((each.client, each.topic) for each in found) == sorted(
        itertools.product(ODD_CLIENTS[::2], ODD_TOPICS)
    )
    by_client = [[each for each in found if each.client == client] for client in ODD_CLIENTS[::2]]
    assert await store.end([(mine, None, True) for mine in by_client]) == by_client
    assert await other.ended(ODD_CLIENTS[:1]) == [Ended([each.topic for each in by_client[0]], len(ODD_TOPICS))]


async def test_many_in_one_batch_and_many_of_one_topic(store: Store, other: Store) -> None:
    topics = [f"song {index}" for index in range(1_500)]
    clients = [f"client {index}" for index in range(600)]
    await store.subscribe_ending([("ann", topics, GONE), *((client, ["hit"], GONE) for client in clients)])
    assert await subscribers(other, topics) == [{"ann"}] * len(topics)
    assert await subscribers(other, ["hit", "song 3"]) == [set(clients), {"ann"}]
    assert sorted(await listing(other, "ann", 999)) == sorted(topics)
    found = await records(store, slot_of("hit"), 100)
    by_client = [[each] for each in found if each.topic == "hit"]
    assert await other.end([(mine, None, True) for mine in by_client]) == by_client
    assert await subscribers(store, ["hit"]) == [set()]


async def test_they_survive_that_every_handle_is_closed(open_store: OpenStore) -> None:
    first = await open_store()
    rock, jazz = await made(first, "ann", ["rock", "jazz"])
    await first.end([([jazz], None, False)])
    await first.close()
    again = await open_store()
    assert await members(again, "rock") == {"ann"}
    assert await record(again, "ann", "rock") == rock
    assert await ended(again, "ann") == Ended(["jazz"], 1)
    (anew,) = await made(again, "ann", ["rock"])
    assert anew.stamp > rock.stamp


# --- anew, and beside plain ones


async def test_to_subscribe_again_gives_new_terms_and_a_greater_stamp(store: Store, other: Store) -> None:
    (before,) = await made(store, "ann", ["rock"], GONE)
    for handle, term in [(store, LATER), (other, GONE), (store, BOTH), (other, BOTH)]:
        (now,) = await made(handle, "ann", ["rock"], term)
        assert now.term == term
        assert now.stamp > before.stamp
        assert await store.terms([("ann", "rock")]) == [term]
        assert await members(other, "rock") == {"ann"}
        before = now


@pytest.mark.parametrize("how", ["end", "unsubscribe", "subscribe"])
async def test_one_that_is_made_anew_has_another_stamp_whatever_was_between(
    store: Store, other: Store, how: str
) -> None:
    stamps = []
    for handle in (store, other, store):
        (found,) = await made(handle, "ann", ["rock"])
        stamps.append(found.stamp)
        if how == "end":
            await other.end([([found], None, True)])
        elif how == "subscribe":
            await other.subscribe([("ann", ["rock"])])
        await other.unsubscribe([("ann", ["rock"])])
    assert stamps == sorted(set(stamps))


async def test_where_there_is_a_plain_one_nothing_changes(store: Store, other: Store) -> None:
    await store.subscribe([("ann", ["rock"])])
    await other.subscribe_ending([("ann", ["rock", "jazz"], GONE), ("bob", ["rock"], GONE)])
    assert await record(store, "ann", "rock") is None
    assert await store.terms([("ann", "rock"), ("ann", "jazz"), ("bob", "rock")]) == [None, GONE, GONE]
    assert await members(store, "rock") == {"ann", "bob"}
    assert sorted(await listing(store, "ann", 1)) == ["jazz", "rock"]


async def test_a_plain_one_takes_the_place_of_an_ending_one(store: Store, other: Store) -> None:
    (rock, _) = await made(store, "ann", ["rock", "jazz"])
    await other.subscribe([("ann", ["rock", "pop"])])
    assert await record(store, "ann", "rock") is None
    assert await store.terms([("ann", "rock"), ("ann", "jazz")]) == [None, GONE]
    assert await members(store, "rock") == {"ann"}
    assert sorted(await listing(store, "ann", 2)) == ["jazz", "pop", "rock"]
    assert await store.end([([rock], None, True)]) == [[]]
    assert await ended(store, "ann") is None


async def test_unsubscribing_takes_out_whichever_it_is(store: Store, other: Store) -> None:
    await store.subscribe([("ann", ["plain"])])
    await store.subscribe_ending([("ann", ["ending", "stays"], GONE), ("bob", ["ending"], LATER)])
    for _ in range(2):
        await other.unsubscribe([("ann", ["plain", "ending", "never had"])])
        assert await subscribers(store, ["plain", "ending", "stays"]) == [set(), {"bob"}, {"ann"}]
        assert await listing(store, "ann") == ["stays"]
        assert await record(store, "ann", "ending") is None
    assert await ended(store, "ann") is None


# --- pages


@pytest.mark.parametrize("limit", [1, 2, 7, 30, 31])
async def test_pages_of_a_clients_topics_have_both_kinds_once(store: Store, limit: int) -> None:
    plain, ending = [f"plain {index}" for index in range(15)], [f"ending {index}" for index in range(15)]
    await store.subscribe([("ann", plain), ("anna", ["other"])])
    await store.subscribe_ending([("ann", ending, GONE), ("an", ["another"], GONE)])
    assert sorted(await listing(store, "ann", limit)) == sorted(plain + ending)
    assert await listing(store, "ann", limit) == await listing(store, "ann", 100)


async def test_a_full_last_page_ends_the_paging(store: Store) -> None:
    await store.subscribe([("ann", ["a"])])
    await store.subscribe_ending([("ann", ["b"], GONE)])
    page, cursor = await store.topics("ann", None, 2)
    assert (sorted(page), cursor) == (["a", "b"], None)


async def test_a_topic_that_stays_subscribed_comes_once_whatever_it_becomes(store: Store, other: Store) -> None:
    staying, leaving = [f"staying {i}" for i in range(40)], [f"leaving {i}" for i in range(40)]
    await store.subscribe([("ann", staying[::4] + leaving[::2])])
    await store.subscribe_ending([("ann", staying + leaving, GONE)])
    seen: Counter[str] = Counter()
    cursor = None
    for step in range(100):
        page, cursor = await store.topics("ann", cursor, 5)
        seen.update(page)
        if cursor is None:
            break
        gone = [topic for topic in page if topic in leaving][-1:] + leaving[step : step + 2]
        await other.unsubscribe([("ann", gone)])
        await other.subscribe([("ann", [staying[step % 40], page[-1] if page[-1] in staying else "x"])])
        await other.subscribe_ending([("ann", [f"coming {step}"], LATER)])
    assert cursor is None
    assert {topic: seen[topic] for topic in staying} == dict.fromkeys(staying, 1)
    assert max(seen.values()) == 1


BAD_CURSORS = ["", "x", "0", "é", "g" * 64, "00", " " * 64, "A" * 64, "9" * 200, "-1", "null"]


@pytest.mark.parametrize("cursor", BAD_CURSORS)
async def test_a_cursor_of_elsewhere_is_refused(store: Store, cursor: str) -> None:
    await store.subscribe_ending([("ann", ["rock"], GONE)])
    with pytest.raises(ValueError, match="cursor"):
        await store.ending(slot_of("rock"), cursor, 10)
    if not isinstance(store, Virtual):
        with pytest.raises(ValueError, match="cursor"):
            await store.topics("ann", cursor, 10)


def of_slot(slot: int, count: int) -> list[str]:
    """Topics of one slot."""
    return list(itertools.islice((topic for topic in map(str, itertools.count()) if slot_of(topic) == slot), count))


@pytest.mark.parametrize("limit", [1, 3, 1_000])
async def test_pages_of_a_slot_have_its_own_once(store: Store, other: Store, limit: int) -> None:
    mine = of_slot(7, 4)
    wanted = {(topic, f"client {index}"): Term(bool(index % 2), index / 2) for topic in mine for index in range(5)}
    batch = [(client, [topic], term) for (topic, client), term in wanted.items()]
    await store.subscribe_ending([*batch, ("ann", of_slot(8, 2) + of_slot(6, 2), GONE)])
    await store.subscribe([("ann", mine)])
    found = await records(other, 7, limit)
    assert {(each.topic, each.client): each.term for each in found} == wanted
    assert await store.ending(9, None, limit) == ([], None)


async def test_what_stays_comes_once_while_others_come_and_go(store: Store, other: Store) -> None:
    (topic, passing) = of_slot(4095, 2)
    staying, leaving = [f"staying {i}" for i in range(30)], [f"leaving {i}" for i in range(30)]
    await store.subscribe_ending([(client, [topic, passing], GONE) for client in staying + leaving])
    seen: Counter[tuple[str, str]] = Counter()
    cursor = None
    for step in range(200):
        page, cursor = await store.ending(4095, cursor, 4)
        seen.update((each.client, each.topic) for each in page)
        if cursor is None:
            break
        gone = [each.client for each in page if each.client in leaving][-1:] + leaving[step : step + 1]
        await other.unsubscribe([(client, [topic, passing]) for client in gone])
        await other.subscribe_ending([(f"coming {step}", [topic], GONE), (staying[step % 30], [topic], LATER)])
    assert cursor is None
    assert {client: seen[client, topic] for client in staying} == dict.fromkeys(staying, 1)
    assert max(seen.values()) == 1


# --- ending


async def test_what_ends_is_gone_and_is_said_to_have_ended(store: Store, other: Store) -> None:
    rock, jazz = await made(store, "ann", ["rock", "jazz"])
    (bobs,) = await made(store, "bob", ["rock"])
    assert await store.ended(["ann", "nobody"]) == [None, None]
    assert await other.end([([rock], None, True), ([bobs], None, False)]) == [[rock], [bobs]]
    for handle in (store, other):
        assert await members(handle, "rock") == set()
        assert await listing(handle, "ann") == ["jazz"]
        assert await handle.terms([("ann", "rock"), ("ann", "jazz")]) == [None, GONE]
        assert await record(handle, "ann", "rock") is None
        assert await record(handle, "ann", "jazz") == jazz
        expected = [Ended(["rock"], 1), None, Ended(["rock"], 1), Ended(["rock"], 1)]
        assert await handle.ended(["bob", "nobody", "ann", "ann"]) == expected


async def test_a_client_whose_subscription_has_ended_is_told_by_its_listen(store: Store, other: Store) -> None:
    rock, _ = await made(store, "ann", ["rock", "jazz"])
    (bobs,) = await made(store, "bob", ["rock"])
    assert [said for _, said in await store.listen(["ann", "bob"], "here")] == [None, None]
    assert await other.end([([rock], None, False), ([bobs], None, False)]) == [[rock], [bobs]]
    await store.subscribe([("bob", ["rock"])])
    for handle in (store, other, store):  # for as long as it is not forgotten
        found = await handle.listen(["bob", "nobody", "ann"], "there")
        assert [said for _, said in found] == [None, None, Ended(["rock"], 1)]
        assert await store.locations(["bob", "nobody", "ann"]) == [location for location, _ in found]


async def test_what_was_gone_is_named_again_and_counted_once(store: Store, other: Store) -> None:
    (rock,) = await made(store, "ann", ["rock"])
    for handle in (store, other, store):
        assert await handle.end([([rock], None, True)]) == [[rock]]
        assert await ended(handle, "ann") == Ended(["rock"], 1)
    await listen(store, ["ann"], "here")
    assert await other.end([([rock], None, True)]) == [[rock]]
    assert await ended(other, "ann") == Ended(["rock"], 1)


async def test_what_was_unsubscribed_from_is_gone_and_has_not_ended(store: Store, other: Store) -> None:
    rock, jazz = await made(store, "ann", ["rock", "jazz"])
    await other.unsubscribe([("ann", ["rock"])])
    assert await store.end([([rock, jazz], None, True)]) == [[rock, jazz]]
    assert await ended(store, "ann") == Ended(["jazz"], 1)


async def test_one_with_another_stamp_stays(store: Store, other: Store) -> None:
    before, jazz = await made(store, "ann", ["rock", "jazz"])
    (now,) = await made(other, "ann", ["rock"], LATER)
    for only in (True, False):
        assert await store.end([([before], None, only)]) == [[]]
        assert await record(store, "ann", "rock") == now
        assert await ended(store, "ann") is None
    assert await store.end([([before, jazz], None, True)]) == [[jazz]]
    assert await store.end([([now], None, True)]) == [[now]]
    assert await ended(store, "ann") == Ended(["jazz", "rock"], 2)


async def test_it_ends_only_where_the_location_is_the_given_one(store: Store, other: Store) -> None:
    (rock,) = await made(store, "ann", ["rock"])
    (first,) = await listen(store, ["ann"], "here")
    offline = first._replace(online=False)

    async def stays(*given: Location | None) -> None:
        for location in given:
            assert await store.end([([rock], location, True)]) == [[]]
            assert await members(other, "rock") == {"ann"}
            assert await ended(other, "ann") is None

    await stays(None, offline, first._replace(number=first.number - 1), first._replace(incarnation="elsewhere"))
    await other.unlisten([("ann", first)])
    await stays(None, first)
    (second,) = await listen(other, ["ann"], "there")
    await stays(None, first, offline, second._replace(online=False))
    await other.unlisten([("ann", second)])
    await stays(None, offline)
    away = second._replace(online=False)
    assert await store.locations(["ann"]) == [away]
    assert await store.end([([rock], away, True)]) == [[rock]]
    assert await ended(other, "ann") == Ended(["rock"], 1)


async def test_one_that_is_not_bound_to_a_location_ends_wherever_the_client_listens(store: Store) -> None:
    (rock,) = await made(store, "ann", ["rock"], LATER)
    await listen(store, ["ann"], "here")
    assert await store.end([([rock], None, False)]) == [[rock]]
    assert await ended(store, "ann") == Ended(["rock"], 1)


async def test_each_entry_is_answered_for_itself(store: Store) -> None:
    mine = await made(store, "ann", ["a", "b", "c"])
    (bobs,) = await made(store, "bob", ["a"])
    (here,) = await listen(store, ["bob"], "here")
    batch = [(mine[:1], None, True), ([bobs], None, True), ([], None, False), (mine[1:], None, True)]
    assert await store.end(batch) == [mine[:1], [], [], mine[1:]]
    assert await store.end([([bobs], here, True)]) == [[bobs]]


# --- what has ended


@pytest.mark.parametrize("how", ["plain", "ending"])
async def test_what_is_subscribed_to_anew_has_not_ended_any_more(store: Store, other: Store, how: str) -> None:
    topics = ["a", "b", "c"]
    mine = await made(store, "ann", topics)
    (bobs,) = await made(store, "bob", ["a"])
    await store.end([(mine, None, True), ([bobs], None, True)])

    async def again(*these: str) -> None:
        if how == "plain":
            await other.subscribe([("ann", these)])
        else:
            await other.subscribe_ending([("ann", these, LATER)])

    await again("b", "other")
    assert await ended(store, "ann") == Ended(["a", "c"], 2)
    await store.unsubscribe([("ann", ["b", "c"])])
    assert await ended(store, "ann") == Ended(["a", "c"], 2)
    await again("c", "a")
    assert await ended(store, "ann") is None
    assert await ended(store, "bob") == Ended(["a"], 1)
    (anew,) = await made(store, "ann", ["z"])
    await store.end([([anew], None, True)])
    assert await ended(store, "ann") == Ended(["z"], 1)


async def test_the_latest_topics_are_named_and_all_are_counted(store: Store, other: Store) -> None:
    topics = [f"{index}" for index in range(ENDED_TOPICS_MAX + 150)]
    await store.subscribe_ending([("ann", topics, GONE)])
    mine = [each for slot in {slot_of(topic) for topic in topics} for each in await records(store, slot)]
    assert len(mine) == len(topics)
    assert await store.end([(mine[:100], None, True)]) == [mine[:100]]
    assert await other.end([(mine[100:1_000], None, True)]) == [mine[100:1_000]]
    assert await ended(other, "ann") == Ended(sorted(each.topic for each in mine[:1_000]), 1_000)
    await store.end([(mine[1_000:], None, True)])
    found = await ended(other, "ann")
    assert found is not None
    assert len(found.topics) == ENDED_TOPICS_MAX
    assert found.total == len(topics)
    assert {each.topic for each in mine[1_000:]} < set(found.topics)
    # Whether what is counted without its name has been subscribed to again nobody knows.
    await store.subscribe_ending([("ann", topics[:500], GONE), ("ann", topics[500:], GONE)])
    assert await ended(other, "ann") == Ended([], 150)


# --- at the same time


async def test_a_client_that_listens_keeps_them_or_is_told(store: Store, other: Store) -> None:
    kept = told = 0
    for turn in range(40):
        (rock,) = await made(store, "ann", ["rock"])
        (here,) = await listen(store, ["ann"], "before")
        await store.unlisten([("ann", here)])
        away = here._replace(online=False)

        async def come() -> Ended | None:
            ((_, said),) = await other.listen(["ann"], "here")
            return said

        async def end(away: Location = away, rock: Ending = rock, turn: int = turn) -> list[Ending]:
            for _ in range(turn % 4):
                await asyncio.sleep(0)
            return (await store.end([([rock], away, True)]))[0]

        if turn % 2:
            said, out = await asyncio.gather(come(), end())
        else:
            out, said = await asyncio.gather(end(), come())
        if out:
            assert said == Ended(["rock"], 1), "it has ended without a word"
            assert await members(other, "rock") == set()
            told += 1
        else:
            assert await members(other, "rock") == {"ann"}
            assert await ended(other, "ann") is None
            kept += 1
    assert kept + told == 40


async def test_one_that_is_made_anew_meanwhile_stays(store: Store, other: Store) -> None:
    for _ in range(20):
        (rock,) = await made(store, "ann", ["rock"])
        await asyncio.gather(
            store.end([([rock], None, True)]), other.subscribe_ending([("ann", ["rock"], LATER), ("bob", ["a"], GONE)])
        )
        assert await members(store, "rock") == {"ann"}
        assert await other.terms([("ann", "rock")]) == [LATER]


async def test_one_that_becomes_plain_meanwhile_stays(store: Store, other: Store) -> None:
    for _ in range(20):
        (rock,) = await made(store, "ann", ["rock"])
        await asyncio.gather(store.end([([rock], None, True)]), other.subscribe([("ann", ["rock"])]))
        assert await members(store, "rock") == {"ann"}
        assert await record(store, "ann", "rock") is None
        await store.unsubscribe([("ann", ["rock"])])


async def test_of_a_plain_and_an_ending_one_at_the_same_time_the_plain_one_stays(store: Store, other: Store) -> None:
    topics = [f"{index}" for index in range(40)]
    await asyncio.gather(
        *(store.subscribe([("ann", [topic])]) for topic in topics),
        *(other.subscribe_ending([("ann", [topic], GONE)]) for topic in topics),
    )
    assert await subscribers(store, topics) == [{"ann"}] * len(topics)
    assert await store.terms([("ann", topic) for topic in topics]) == [None] * len(topics)
    await store.unsubscribe([("ann", topics)])
    assert await subscribers(other, topics) == [set()] * len(topics)


async def test_a_client_is_never_missed_while_its_subscription_becomes_plain(store: Store, other: Store) -> None:
    if isinstance(store, Virtual):
        return  # nothing in it takes time
    topics = [f"{index}" for index in range(60)]
    await store.subscribe_ending([("ann", topics, GONE)])
    becoming = asyncio.gather(*(other.subscribe([("ann", [topic])]) for topic in topics))
    while not becoming.done():
        assert await subscribers(store, topics) == [{"ann"}] * len(topics)
        now = subscribers_now(store, topics)
        assert now is None or [*map(set, now)] == [{"ann"}] * len(topics)
        assert sorted(await listing(store, "ann")) == sorted(topics)
    await becoming
    assert await store.terms([("ann", topic) for topic in topics]) == [None] * len(topics)


# --- kept up, cleared up


async def test_to_renew_changes_nothing(store: Store) -> None:
    (rock,) = await made(store, "ann", ["rock"])
    await store.renew(slot_of("rock"))
    await store.renew(slot_of("rock") + 1 & 4095)
    assert await record(store, "ann", "rock") == rock
    assert await members(store, "rock") == {"ann"}


async def test_clearing_up_leaves_all_that_is_young_or_in_use(store: Store, other: Store) -> None:
    rock, jazz = await made(store, "ann", ["rock", "jazz"])
    here, _, _ = await listen(store, ["ann", "bob", "cleo"], "here")
    gone = await store.locations(["bob", "cleo"])
    await store.unlisten([(client, where) for client, where in zip(["bob", "cleo"], gone, strict=True) if where])
    (cleos,) = await made(store, "cleo", ["rock"])
    before = await store.locations(["ann", "bob", "cleo"])
    await store.end([([jazz], None, False)])
    for _ in range(3):
        assert await other.tidy(3600.0) == 0
    assert await ended(store, "ann") == Ended(["jazz"], 1)
    assert await store.locations(["ann", "bob", "cleo"]) == before
    for _ in range(3):
        await other.tidy(0.0)
    (now,) = await store.locations(["bob"])
    assert now in (None, before[1])
    assert await store.locations(["ann", "cleo"]) == [here, before[2]]  # one listens, the other is waited for
    assert await record(store, "ann", "rock") == rock
    assert await record(store, "cleo", "rock") == cleos
    (again,) = await listen(other, ["bob"], "there")
    assert before[1] is not None
    assert again.number > before[1].number


async def test_a_closed_store_is_unavailable(open_store: OpenStore) -> None:
    mine = await open_store()
    if isinstance(mine, Virtual):
        return  # there is nothing to close
    (rock,) = await made(mine, "ann", ["rock"])
    await mine.close()
    for operation in (
        mine.subscribe_ending([("ann", ["rock"], GONE)]),
        mine.subscribe([("ann", ["rock"])]),
        mine.unsubscribe([("ann", ["rock"])]),
        subscribers(mine, ["rock"]),
        mine.topics("ann", None, 10),
        mine.terms([("ann", "rock")]),
        mine.ending(slot_of("rock"), None, 10),
        mine.end([([rock], None, True)]),
        mine.ended(["ann"]),
    ):
        with pytest.raises(StoreUnavailable):
            await operation


# --- against a model ---------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "ab", "é"])
SOME = st.lists(NAMES, max_size=4)
HANDLE = st.integers(0, 1)
PAIRS = st.lists(st.tuples(NAMES, SOME), max_size=3)
TERMS = st.sampled_from([GONE, LATER, BOTH])
PLACES = st.sampled_from(["it", "before", "none"])  # the location given to `end`
STEPS = st.one_of(
    st.tuples(st.just("subscribe"), HANDLE, PAIRS),
    st.tuples(st.just("unsubscribe"), HANDLE, PAIRS),
    st.tuples(st.just("subscribe_ending"), HANDLE, st.lists(st.tuples(NAMES, SOME, TERMS), max_size=3)),
    st.tuples(st.just("subscribe_ending"), HANDLE, st.lists(st.tuples(NAMES, SOME, TERMS), max_size=3)),
    st.tuples(st.just("end"), HANDLE, st.lists(st.tuples(NAMES, SOME, st.booleans(), PLACES), max_size=3)),
    st.tuples(st.just("listen"), HANDLE, st.lists(NAMES, max_size=2, unique=True)),
    st.tuples(st.just("unlisten"), HANDLE, st.lists(NAMES, max_size=2, unique=True)),
)


class Model:
    """What the contract says, as dictionaries."""

    def __init__(self) -> None:
        self.plain: set[tuple[str, str]] = set()  # (client, topic)
        self.endings: dict[tuple[str, str], Ending] = {}
        self.past: dict[tuple[str, str], Ending] = {}  # as it was first
        self.ended: dict[str, list[str]] = {}
        self.locations: dict[str, list[Location]] = {}  # by client: all that it had, the last one last

    def subscribe(self, client: str, topics: list[str]) -> None:
        """Plain."""
        for topic in topics:
            self.plain.add((client, topic))
            self.endings.pop((client, topic), None)
            self._anew(client, topic)

    def unsubscribe(self, client: str, topics: list[str]) -> None:
        """Of both kinds."""
        for topic in topics:
            self.plain.discard((client, topic))
            self.endings.pop((client, topic), None)

    def made(self, found: Ending, term: Term) -> None:
        """The store has this one of a `subscribe_ending`."""
        pair = found.client, found.topic
        before = self.endings.get(pair) or self.past.get(pair)
        assert found.term == term
        assert before is None or found.stamp > before.stamp
        self.endings[pair] = found
        self.past.setdefault(pair, found)
        self._anew(*pair)

    def end(self, endings: list[Ending], location: Location | None, only: bool) -> list[Ending]:
        """One entry."""
        out = []
        for ending in endings:
            pair = ending.client, ending.topic
            held = self.endings.get(pair)
            if held is not None and (held.stamp != ending.stamp or (only and self.location(ending.client) != location)):
                continue
            if held is not None:
                del self.endings[pair]
                self.ended.setdefault(ending.client, []).append(ending.topic)
            if pair not in self.plain:
                out.append(ending)
        return out

    def location(self, client: str) -> Location | None:
        """Where it is."""
        return self.locations[client][-1] if client in self.locations else None

    def _anew(self, client: str, topic: str) -> None:
        self.ended[client] = [name for name in self.ended.get(client, []) if name != topic]


class Played:
    """Steps against two handles, under names of their own."""

    def __init__(self, handles: list[Store], mark: str) -> None:
        self.handles, self.mark, self.model = handles, mark, Model()

    def pairs(self, batch: list[tuple[str, list[str]]]) -> list[tuple[str, list[str]]]:
        return [(self.mark + client, [self.mark + topic for topic in topics]) for client, topics in batch]

    async def step(self, name: str, store: Store, batch: list[Any]) -> None:
        """One operation, and what the model makes of it."""
        model = self.model
        if name in ("subscribe", "unsubscribe"):
            pairs = self.pairs(batch)
            await getattr(store, name)(pairs)
            for client, topics in pairs:
                getattr(model, name)(client, topics)
        elif name == "subscribe_ending":
            pairs = self.pairs([(client, topics) for client, topics, _ in batch])
            terms = [term for _, _, term in batch]
            await store.subscribe_ending(
                [(client, topics, term) for (client, topics), term in zip(pairs, terms, strict=True)]
            )
            last = {
                (client, topic): term
                for (client, topics), term in zip(pairs, terms, strict=True)
                for topic in topics
                if (client, topic) not in model.plain
            }
            for (client, topic), term in last.items():
                found = await record(store, client, topic)
                assert found is not None
                model.made(found, term)
        elif name == "end":
            await self.end(store, batch)
        elif name == "listen":
            clients = [self.mark + client for client in batch]
            for client, location in zip(clients, await listen(store, clients, "i"), strict=True):
                model.locations.setdefault(client, []).append(location)
        else:
            for client in (self.mark + client for client in batch):
                if client in model.locations:
                    location = model.locations[client][-1]
                    await store.unlisten([(client, location)])
                    model.locations[client].append(location._replace(online=False))

    async def end(self, store: Store, batch: list[tuple[str, list[str], bool, str]]) -> None:
        """Of each entry those that there are by now, and those that there were at first."""
        model = self.model
        entries: list[tuple[list[Ending], Location | None, bool]] = []
        for client, topics, only, place in batch:
            all_of = [(self.mark + client, self.mark + topic) for topic in dict.fromkeys(topics)]
            chosen = [model.endings.get(pair) or model.past.get(pair) for pair in all_of]
            chosen += [model.past.get(pair) for pair in all_of[:1]]
            known = {each.stamp: each for each in chosen if each is not None}
            where = model.locations.get(self.mark + client, [])
            given = where[-1] if where and place == "it" else where[0] if where and place == "before" else None
            entries.append(([*known.values()], given, only))
        expected = [model.end(*entry) for entry in entries]
        assert await store.end(entries) == expected

    async def compare(self) -> None:
        """All that can be read."""
        model, mark = self.model, self.mark
        names = [mark + name for name in ("a", "b", "ab", "é", "never")]
        both = model.plain | model.endings.keys()
        for store in self.handles:
            sets = [{c for c, t in both if t == topic} for topic in names]
            assert await subscribers(store, names) == sets
            at_once = subscribers_now(store, names)
            assert at_once is None or list(map(set, at_once)) == sets
            for client in names:
                assert sorted(await listing(store, client, 2)) == sorted(t for c, t in both if c == client)
            pairs = list(itertools.product(names, names))
            held = [model.endings.get(pair) for pair in pairs]
            assert await store.terms(pairs) == [None if each is None else each.term for each in held]
            found = [each for slot in set(map(slot_of, names)) for each in await records(store, slot, 2)]
            mine = sorted(each for each in found if each.client.startswith(mark))
            assert mine == sorted(model.endings.values())
            for client in names:
                topics = sorted(model.ended.get(client, []))
                assert await ended(store, client) == (Ended(topics, len(topics)) if topics else None)
            assert await store.locations(names) == [model.location(client) for client in names]


@pytest.mark.parametrize("kind", sorted(ALL.keys() - {"riak-double-tls"}))
def test_any_sequence_of_operations_gives_what_the_model_gives(kind: str, tmp_path: Path) -> None:
    # One storage for all examples, because opening it takes longer than an example: each has names of its own.
    fresh = itertools.count()

    async def check(handles: list[Store], steps: list[tuple[str, int, list[Any]]]) -> None:
        played = Played(handles, f"{next(fresh)}:")
        for name, handle, batch in steps:
            await played.step(name, handles[handle], batch)
        await played.compare()

    with asyncio.Runner() as runner:
        storage = ALL[kind](tmp_path)

        async def start() -> list[Store]:
            opener = await storage.__aenter__()
            return [await opener(), await opener()]

        handles = runner.run(start())

        @settings(
            max_examples=proof.examples(100, 15),
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
