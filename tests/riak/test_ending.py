"""Ending subscriptions on Riak: an end against a listen at every moment, crashes, siblings, expiry, large topics."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from ingeborg.broker.store.base import Ended, Ending, Location, StoreMisconfigured, StoreUnavailable, Term
from ingeborg.broker.store.riak import RiakStore, layout, sets, terms
from ingeborg.broker.store.riak.layout import Buckets, partition_of
from ingeborg.protocol.hashes import slot_of
from tests.store.asked import listen, subscribers

from .conftest import StoreOn
from .double import Key, RiakDouble
from .double.cluster import Refuse

GONE = Term(disconnect=True, ends_at=0.0)
TOPICS = ["rock", "jazz", "folk"]
DAY_S = 86_400.0


class Clock:
    """The processes' time, in seconds since the epoch; the double's goes along with it."""

    def __init__(self, riak: RiakDouble) -> None:
        self.now = 1_800_000_000.0
        self._riak = riak

    def __call__(self) -> float:
        return self.now

    def go_on(self, seconds: float) -> None:
        self.now += seconds
        self._riak.memory.pass_time(seconds)


@pytest.fixture
def clock(riak: RiakDouble) -> Clock:
    return Clock(riak)


@pytest.fixture
def small_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (layout, sets, terms):
        monkeypatch.setattr(module, "OBJECT_BYTES_MAX", 400)
    for module in (layout, terms):
        monkeypatch.setattr(module, "TOPIC_CLIENTS_MAX", 3)


async def all_ending(store: RiakStore, *topics: str, limit: int = 100) -> list[Ending]:
    """Those of the slots of these topics, page by page."""
    found: list[Ending] = []
    for slot in {slot_of(topic) for topic in topics}:
        cursor = None
        while True:
            page, cursor = await store.ending(slot, cursor, limit)
            assert len(page) <= limit
            found += page
            if cursor is None:
                break
    assert len({(ending.client, ending.topic) for ending in found}) == len(found)
    return found


async def listed(store: RiakStore, client: str) -> set[str]:
    topics, cursor = await store.topics(client, None, 1_000)
    assert cursor is None
    assert len(set(topics)) == len(topics)
    return set(topics)


async def holding(store: RiakStore, client: str, topics: list[str] = TOPICS) -> set[str]:
    """Those topics whose messages the client gets."""
    sets_found = await subscribers(store, topics)
    return {topic for topic, clients in zip(topics, sets_found, strict=True) if client in clients}


async def offline(store: RiakStore, client: str = "ann") -> Location:
    """The client listened, and has gone."""
    (location,) = await listen(store, [client], "before")
    await store.unlisten([(client, location)])
    return location._replace(online=False)


Act = Callable[[int], Awaitable[None]]


def before_each_request(store: RiakStore) -> list[Act]:
    """Each of the list is awaited, with the request's number, before each request that the store makes; the numbers
    begin anew when the list is changed."""
    acts: list[Act] = []
    request, number, seen = store._pool.request, 0, list(acts)

    async def disturbed(*arguments: Any, **options: Any) -> Any:
        nonlocal number, seen
        if acts != seen:
            number, seen = 0, list(acts)
        number += 1
        for act in seen:
            await act(number - 1)
        return await request(*arguments, **options)

    store._pool.request = disturbed  # type: ignore[method-assign]
    return acts


def at(moment: int, work: Callable[[], Awaitable[object]]) -> Act:
    """Do it before that request."""

    async def act(number: int) -> None:
        if number == moment:
            await work()

    return act


def dead_from(moment: int) -> Act:
    """That request does not come, nor any after it."""

    async def act(number: int) -> None:
        if number >= moment:
            raise StoreUnavailable("the process has died")

    return act


def noted_in(numbers: list[int]) -> Act:
    """The numbers of the requests."""

    async def act(number: int) -> None:
        numbers.append(number)

    return act


async def told(store: RiakStore, *clients: str) -> list[Ended | None]:
    """What has ended of each client, its topics sorted."""
    found = await store.ended(clients)
    return [ended and ended._replace(topics=sorted(ended.topics)) for ended in found]


async def ask(store: RiakStore, client: str, answers: list[Ended | None]) -> None:
    """What has ended of the client, noted among the answers."""
    answers += await told(store, client)


ONE_BY_ONE: dict[str, Any] = {"node_confirms": 1, "connections_per_node": 1}


# --- the operations ------------------------------------------------------------------------------------------------


async def test_what_is_subscribed_to_until_the_end_is_there_until_then(riak: RiakDouble, store_on: StoreOn) -> None:
    store, other = await store_on(riak), await store_on(riak)
    until = Term(disconnect=False, ends_at=1_900_000_000.5)
    await store.subscribe_ending([("ann", TOPICS, GONE), ("bob", ["rock"], until)])
    assert await subscribers(other, ["rock", "none", "jazz"]) == [{"ann", "bob"}, set(), {"ann"}]
    assert await other.terms([("bob", "rock"), ("ann", "none"), ("ann", "rock")]) == [until, None, GONE]
    assert await listed(other, "ann") == set(TOPICS)
    endings = await all_ending(other, *TOPICS)
    assert {(ending.topic, ending.client, ending.term) for ending in endings} == {
        *((topic, "ann", GONE) for topic in TOPICS),
        ("rock", "bob", until),
    }
    location = await offline(store)
    mine = [ending for ending in endings if ending.client == "ann"]
    (out,) = await other.end([(mine, location, True)])
    assert sorted(out) == sorted(mine)
    assert await told(store, "ann", "bob") == [Ended(sorted(TOPICS), 3), None]
    assert await holding(store, "ann") == await listed(store, "ann") == set()
    assert await subscribers(store, ["rock"]) == [{"bob"}]
    # Again: it is gone, and told so; nothing is named twice.
    assert await store.end([(mine, location, True)]) == [mine]
    assert await told(store, "ann") == [Ended(sorted(TOPICS), 3)]
    await store.subscribe_ending([("ann", ["rock"], GONE)])
    assert await told(store, "ann") == [Ended(["folk", "jazz"], 2)]
    await store.subscribe([("ann", ["folk", "jazz"])])
    assert await told(store, "ann") == [None]


async def test_a_plain_one_wins_in_either_order(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    await store.subscribe([("ann", ["rock"])])
    await store.subscribe_ending([("ann", ["rock", "jazz"], GONE)])
    await store.subscribe([("ann", ["jazz"])])
    assert await store.terms([("ann", "rock"), ("ann", "jazz")]) == [None, None]
    assert await all_ending(store, "rock", "jazz") == []
    assert await listed(store, "ann") == {"rock", "jazz"}
    assert await store._ending.topics("ann", b"", 10) == []
    await store.unsubscribe([("ann", ["rock", "jazz"])])
    await store.subscribe_ending([("ann", ["rock"], GONE)])
    await store.unsubscribe([("ann", ["rock", "jazz"])])
    assert await holding(store, "ann") == await listed(store, "ann") == set()


async def test_an_ending_one_that_a_crash_left_beside_a_plain_one_goes_in_silence(
    riak: RiakDouble, store_on: StoreOn
) -> None:
    store = await store_on(riak)
    await store.subscribe_ending([("ann", ["rock"], GONE)])
    await store._change_subscribers(store._plan([("ann", ["rock"])], 0))  # as one that came no further
    assert await store.terms([("ann", "rock")]) == [None]
    assert await listed(store, "ann") == {"rock"}
    endings = await all_ending(store, "rock")
    assert await store.end([(endings, await offline(store), True)]) == [[]]
    assert await all_ending(store, "rock") == []
    assert await told(store, "ann") == [None]
    assert await subscribers(store, ["rock"]) == [{"ann"}]
    assert await store.end([(endings, None, False)]) == [[]]  # gone, and a plain one there


async def test_only_a_client_that_is_where_it_was_loses_what_it_has(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    await store.subscribe_ending([("ann", TOPICS, GONE), ("bob", TOPICS, GONE)])
    before = await offline(store)
    endings = await all_ending(store, *TOPICS)
    anns, bobs = ([ending for ending in endings if ending.client == client] for client in ("ann", "bob"))
    await listen(store, ["ann"], "now")
    ann, bob, none = await store.end([(anns, before, True), (bobs, None, True), ([], None, True)])
    assert (ann, sorted(bob), none) == ([], sorted(bobs), [])
    assert await holding(store, "ann") == set(TOPICS)
    (ann,) = await store.end([(anns[:1], None, False)])  # its time is over, wherever its client is
    assert ann == anns[:1]
    assert await told(store, "ann", "ann") == [Ended([anns[0].topic], 1)] * 2


async def test_what_ends_before_the_location_is_written_is_named(
    riak: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = await store_on(riak), await store_on(riak)
    await store.subscribe_ending([("ann", ["rock"], GONE)])
    endings, change = await all_ending(store, "rock"), other._objects.change

    async def ending(*arguments: Any) -> Any:
        assert await store.end([(endings, None, True)]) == [endings]
        return await change(*arguments)

    monkeypatch.setattr(other._objects, "change", ending)
    ((_, said),) = await other.listen(["ann"], "here")
    assert said == Ended(["rock"], 1)


async def test_a_listen_that_cannot_read_what_has_ended_fails(
    riak: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await store_on(riak)

    async def read(*_: Any) -> Any:
        raise StoreUnavailable("no node answers")

    with monkeypatch.context() as patched:
        patched.setattr(store._ending_objects, "read", read)
        with pytest.raises(StoreUnavailable, match="no node answers"):
            await store.listen(["ann"], "here")
    ((location, said),) = await store.listen(["ann"], "here")
    assert await store.locations(["ann"]) == [location]
    assert said is None


async def waits(store: RiakStore, work: Coroutine[Any, Any, object]) -> int:
    """How often, one time after the other, the work waits for Riak: all requests that it has made are answered before
    it may make more."""
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
        for _ in range(20):  # turns, in which it makes its requests
            await asyncio.sleep(0)
        if waiting and not under_way:
            count, under_way = count + 1, len(waiting)
            for event in waiting:
                event.set()
            waiting.clear()
    store._pool.request = request  # type: ignore[method-assign]
    await task
    return count


async def test_what_has_ended_of_clients_that_listen_is_read_at_the_same_time(
    riak: RiakDouble, store_on: StoreOn
) -> None:
    store = await store_on(riak)
    clients = [f"client {number}" for number in range(4)]
    await listen(store, clients, "before")
    # A location is read and written, and what was never written is looked at twice.
    assert await waits(store, store.listen(clients, "here")) == 4


async def test_kinds_are_written_and_read_at_the_same_time(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    for change in (store.subscribe, store.unsubscribe):
        await store.subscribe([("ann", ["rock"])])
        assert await waits(store, change([("ann", ["rock"])])) == 4  # a read and a write of its set, and of its list
    await store.subscribe([("ann", ["rock"])])
    # What was never written is looked at twice.
    assert await waits(store, subscribers(store, ["rock"])) == 2 + 2  # filters behind the sets, as a replacement asks
    assert await waits(store, store.subscribed("ann", ["rock"])) == 2
    assert await waits(store, store.subscribed("bob", ["rock"])) == 2 * 2


async def test_topics_come_in_pages_each_once_whichever_kind_they_are(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    topics = [f"song {number}" for number in range(40)]
    await store.subscribe_ending([("ann", topics[:25], GONE)])
    await store._change_topics([("ann", topics[20:])], adding=True)  # five are in both lists
    for limit in (1, 7, 39, 40, 41):
        found: list[str] = []
        cursor = None
        while True:
            page, cursor = await store.topics("ann", cursor, limit)
            assert 0 < len(page) <= limit
            found += page
            if cursor is None:
                break
        assert found == sorted(topics, key=layout.place_of)


async def test_what_is_no_cursor_is_refused(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    for cursor in ("", "x", "0" * 66, "01" + "0" * 65, "00" + "0" * 32 + "2" + "0" * 32):
        with pytest.raises(ValueError, match="no cursor of this store"):
            await store.ending(7, cursor, 10)


async def test_more_than_are_named_are_counted(
    riak: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(terms, "ENDED_TOPICS_MAX", 5)
    store = await store_on(riak, wall_clock=clock)
    topics = [f"song {number}" for number in range(8)]
    await store.subscribe_ending([("ann", topics, GONE)])
    for topic in topics:
        clock.go_on(1.0)
        await store.end([(await all_ending(store, topic), None, False)])
    assert await told(store, "ann") == [Ended(topics[3:], 8)]
    assert store.counters["ended_unnamed"] == 3
    await store.tidy(2.5)
    assert await told(store, "ann") == [Ended(topics[5:], 3)]
    clock.go_on(3.0)
    assert await told(store, "ann") == [None]


async def test_a_start_wants_the_type(riak: RiakDouble, store_on: StoreOn, caplog: pytest.LogCaptureFixture) -> None:
    store = await store_on(riak)
    assert store.ending_backend == "ending"
    assert "names no backend" not in caplog.text
    riak.memory.create_type("ingeborg_ending")
    await store_on(riak)
    assert "'ingeborg_ending' names no backend, so that what has ended stays" in caplog.text
    riak.memory.create_type("ingeborg_ending", allow_mult=False)
    for options in ({}, {"read_only": True}):
        with pytest.raises(StoreMisconfigured, match="'ingeborg_ending' has allow_mult=false"):
            await store_on(riak, **options)
    with pytest.raises(StoreMisconfigured, match="create house_ending"):
        await store_on(riak, ending_type="house_ending")


# --- an end, and what else happens at the same time ----------------------------------------------------------------


@pytest.fixture
async def single() -> AsyncIterator[RiakDouble]:
    """One node, whose requests come one after the other."""
    async with RiakDouble(nodes=1) as riak:
        riak.create_broker_types()
        yield riak


async def requests_of_an_end(riak: RiakDouble, store_on: StoreOn, topics: list[str] = TOPICS) -> int:
    """How many there are in the tests below, where nothing disturbs it."""
    store = await store_on(riak, **ONE_BY_ONE)
    await store.subscribe_ending([("nobody", topics, GONE)])
    location, endings = await offline(store, "nobody"), await all_ending(store, *TOPICS)
    count = 0

    async def note(number: int) -> None:
        nonlocal count
        count = number + 1

    before_each_request(store).append(note)
    assert await store.end([(endings, location, True)]) == [endings]
    assert count >= 16
    return count


async def test_an_end_against_a_listen_at_every_moment(single: RiakDouble, store_on: StoreOn) -> None:
    """The location is written before one request of the ``end``, what has ended is asked for before another one."""
    topics = TOPICS[:2]
    requests = await requests_of_an_end(single, store_on, topics)
    outcomes = set()
    store, elsewhere = await store_on(single, **ONE_BY_ONE), await store_on(single, **ONE_BY_ONE)
    acts = before_each_request(store)
    for listens, asks in itertools.combinations_with_replacement(range(requests + 1), 2):
        client = f"{listens}-{asks}"
        await store.subscribe_ending([(client, topics, GONE)])
        location = await offline(store, client)
        endings = [ending for ending in await all_ending(store, *topics) if ending.client == client]
        named: list[Ended | None] = []

        listen, hear = partial(elsewhere.listen, [client], "after"), partial(ask, elsewhere, client, named)
        acts[:] = [at(listens, listen), at(asks, hear)]
        (out,) = await store.end([(endings, location, True)])
        acts.clear()
        if listens == requests:  # when it is through
            await listen()
        if asks == requests:
            await hear()
        kept = await holding(elsewhere, client, topics)
        assert kept in (set(), set(topics)), client
        assert kept == await listed(elsewhere, client), client
        assert {ending.topic for ending in out} == set(topics) - kept, client
        if not kept:  # then it knows
            assert named == [Ended(sorted(topics), 2)], client
        else:
            assert await told(elsewhere, client) == [None], client
        outcomes.add((bool(kept), named == [None]))
    # Kept and told nothing, kept and told of an end that did not come to pass, out and told so.
    assert outcomes == {(True, True), (True, False), (False, False)}


async def test_a_crash_between_two_writes_of_an_end_loses_nothing_in_silence(
    single: RiakDouble, store_on: StoreOn
) -> None:
    requests = await requests_of_an_end(single, store_on)
    store, next_home = await store_on(single, **ONE_BY_ONE), await store_on(single, **ONE_BY_ONE)
    acts = before_each_request(store)
    left_over = set()
    for crash in range(requests):
        client = f"client {crash}"
        await next_home.subscribe_ending([(client, TOPICS, GONE)])
        location, endings = await offline(next_home, client), await all_ending(next_home, *TOPICS)

        acts[:] = [dead_from(crash)]
        with pytest.raises(StoreUnavailable):
            await store.end([(endings, location, True)])
        kept = await holding(next_home, client)
        (named,) = await told(next_home, client)
        assert set(TOPICS) - kept <= set(named.topics if named else ())
        left_over.add(len(kept))
        # And the next home makes an end of it.
        left = await all_ending(next_home, *TOPICS)
        assert {ending.topic for ending in left} == kept
        assert await next_home.end([(left, location, True)]) == [left]
        assert await holding(next_home, client) == await listed(next_home, client) == set()
        assert await told(next_home, client) == [Ended(sorted(TOPICS), 3)]
    assert left_over == {0, 1, 2, 3}


async def test_what_is_subscribed_to_anew_meanwhile_stays_is_listed_and_has_not_ended(
    single: RiakDouble, store_on: StoreOn
) -> None:
    requests = await requests_of_an_end(single, store_on)
    store, other = await store_on(single, **ONE_BY_ONE), await store_on(single, **ONE_BY_ONE)
    acts = before_each_request(store)
    reported = []
    for moment in range(requests - 2):  # it does not read the location, twice
        client = f"client {moment}"
        await store.subscribe_ending([(client, TOPICS, GONE)])
        endings = [ending for ending in await all_ending(store, *TOPICS) if ending.client == client]

        acts[:] = [at(moment, partial(other.subscribe_ending, [(client, ["rock"], GONE)]))]
        (out,) = await store.end([(endings, None, False)])
        acts.clear()
        assert await holding(other, client) == await listed(other, client) == {"rock"}, moment
        assert await told(other, client) == [Ended(["folk", "jazz"], 2)], moment
        reported.append("rock" in {ending.topic for ending in out})
    assert reported == sorted(reported)  # from the moment on at which the old one is out
    assert {*reported} == {False, True}


@pytest.mark.parametrize("spilled", [False, True])
async def test_a_reader_finds_who_becomes_plain_meanwhile_at_every_moment(
    single: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch, spilled: bool
) -> None:
    if spilled:
        monkeypatch.setattr(terms, "TOPIC_CLIENTS_MAX", 1)
    reader, home = await store_on(single, **ONE_BY_ONE), await store_on(single, **ONE_BY_ONE)
    acts = before_each_request(reader)
    met: list[int] = []
    await home.subscribe_ending([("first", ["rock"], GONE)])
    for moment in itertools.count():
        client = f"client {moment}"
        met.clear()
        await home.subscribe_ending([(client, ["rock"], GONE)])
        acts[:] = [noted_in(met), at(moment, partial(home.subscribe, [(client, ["rock"])]))]
        assert await holding(reader, client, ["rock"]) == {"rock"}, moment
        acts.clear()
        if max(met) < moment:
            break
        # Its mark is no subscription.
        assert await holding(reader, client, ["rock"]) == {"rock"}
        assert await home.terms([(client, "rock")]) == [None]
        assert client not in {ending.client for ending in await all_ending(home, "rock")}
        await home.unsubscribe([(client, ["rock"])])
        assert await holding(reader, client, ["rock"]) == set()
    assert moment >= 2


async def test_a_mark_comes_to_nothing_after_a_while(riak: RiakDouble, store_on: StoreOn, clock: Clock) -> None:
    store = await store_on(riak, wall_clock=clock)
    await store.subscribe_ending([("ann", ["rock"], GONE)])
    await store.subscribe([("ann", ["rock"])])
    await store._change_subscribers(store._plan([("ann", ["rock"])], 1))  # as one that came no further
    clock.go_on(terms.MARKED_MS / 1000 + 1)
    assert await holding(store, "ann") == set()
    # A new ending one begins where nothing was.
    await store.subscribe_ending([("ann", ["rock"], GONE)])
    assert await store.terms([("ann", "rock")]) == [GONE]


async def test_of_two_versions_the_later_term_is_true_and_what_one_of_them_took_out_has_to_go_again(
    riak: RiakDouble, store_on: StoreOn, clock: Clock
) -> None:
    store = await store_on(riak, wall_clock=clock)
    await store.subscribe_ending([("ann", ["rock"], GONE), ("bob", ["rock"], GONE)])
    key = Key(b"ingeborg_ending", *Buckets("ingeborg").ending_partition(*partition_of("rock", 1)))
    before = riak.memory.object(key)
    clock.go_on(1.0)
    until = Term(disconnect=True, ends_at=1_900_000_000.0)
    await store.subscribe_ending([("ann", ["rock"], until)])
    bobs = [ending for ending in await all_ending(store, "rock") if ending.client == "bob"]
    assert await store.end([(bobs, None, False)]) == [bobs]
    # As by a home on the other side of a cut, which has seen neither.
    (sibling,) = before.siblings
    riak.memory.write(0, key, {}, {"value": sibling.content["value"], "vtag": b"t" * 22}, {})
    assert await store.terms([("ann", "rock"), ("bob", "rock")]) == [until, GONE]
    await store.repaired()
    assert len(riak.memory.object(key).siblings) == 1
    assert await store.end([(bobs, None, False)]) == [bobs]
    assert await subscribers(store, ["rock"]) == [{"ann"}]


async def test_ends_of_one_client_at_two_homes_at_once_are_all_named(riak: RiakDouble, store_on: StoreOn) -> None:
    homes = [await store_on(riak) for _ in TOPICS]
    await homes[0].subscribe_ending([("ann", TOPICS, GONE)])
    location = await offline(homes[0])
    parts = [await all_ending(homes[0], topic) for topic in TOPICS]
    riak.hold(3)  # all three read before one of them writes
    await asyncio.gather(*(home.end([(part, location, True)]) for home, part in zip(homes, parts, strict=True)))
    assert await told(homes[0], "ann") == [Ended(sorted(TOPICS), 3)]
    assert await listed(homes[0], "ann") == set()


# --- expiry --------------------------------------------------------------------------------------------------------


async def test_what_is_renewed_in_time_stays_and_what_is_not_goes(
    riak: RiakDouble, store_on: StoreOn, clock: Clock
) -> None:
    store = await store_on(riak, wall_clock=clock)
    assert store.shape.renew_s == DAY_S / 3
    await store.subscribe_ending([("ann", TOPICS, GONE), ("bob", TOPICS, GONE)])
    for _ in range(12):
        clock.go_on(store.shape.renew_s)
        await store.renew(slot_of("rock"))
    assert await holding(store, "ann") == {"rock"}
    assert await listed(store, "bob") == set(TOPICS)  # a list is renewed whole; what it has too many is not delivered
    await store.renew(slot_of("jazz"))  # nothing there any more
    assert await all_ending(store, *TOPICS) != []
    clock.go_on(DAY_S - 1)
    assert await holding(store, "ann") == {"rock"}
    clock.go_on(1)
    assert await holding(store, "ann") == await listed(store, "ann") == set()
    assert await all_ending(store, *TOPICS) == []
    # And it begins anew, although nothing of it is known any more.
    await store.subscribe_ending([("ann", ["rock"], GONE)])
    assert await holding(store, "ann") == await listed(store, "ann") == {"rock"}


async def test_a_list_is_written_again_by_one_slot_of_several(
    riak: RiakDouble, store_on: StoreOn, clock: Clock
) -> None:
    store = await store_on(riak, wall_clock=clock)
    await store.subscribe_ending([("ann", TOPICS, GONE)])
    for topic in TOPICS:
        await store.renew(slot_of(topic))
    assert store.counters["endings_renewed"] == len(TOPICS) + 1
    clock.go_on(store.shape.renew_s)
    await store.renew(slot_of("rock"))
    assert store.counters["endings_renewed"] == len(TOPICS) + 1 + 2


async def test_what_has_ended_is_told_until_it_expires(riak: RiakDouble, store_on: StoreOn, clock: Clock) -> None:
    store = await store_on(riak, wall_clock=clock)
    await store.subscribe_ending([("ann", ["rock", "jazz"], GONE)])
    await store.end([(await all_ending(store, "rock"), None, False)])
    clock.go_on(DAY_S - 1)
    assert await told(store, "ann") == [Ended(["rock"], 1)]
    await store.renew(slot_of("jazz"))
    await store.subscribe_ending([("ann", ["jazz"], GONE)])
    await store.end([(await all_ending(store, "jazz"), None, False)])
    clock.go_on(2)
    assert await told(store, "ann") == [Ended(["jazz"], 1)]


# --- large topics --------------------------------------------------------------------------------------------------


def of_one_slot(count: int) -> list[str]:
    """So many topics, all of the slot of the first."""
    topics = (f"song {number}" for number in itertools.count())
    first = next(topics)
    return [first, *itertools.islice((topic for topic in topics if slot_of(topic) == slot_of(first)), count - 1)]


@pytest.mark.usefixtures("small_objects")
@pytest.mark.parametrize("count", [1, 12])
async def test_what_does_not_fit_is_found_read_in_pages_renewed_and_ended(
    riak: RiakDouble, store_on: StoreOn, clock: Clock, count: int
) -> None:
    topics = of_one_slot(count)
    slot = slot_of(topics[0])
    store, other = await store_on(riak, wall_clock=clock), await store_on(riak, wall_clock=clock)
    clients = [f"client {number}" for number in range(96 // count)]
    for client in clients:
        await store.subscribe_ending([(client, topics, GONE)])
    assert store.counters["topics_spilled" if count == 1 else "partitions_filled"] >= 1
    assert store.counters["sets_grown"] or count > 1

    async def pages(limit: int) -> list[Ending]:
        found: list[Ending] = []
        cursor = None
        while True:
            page, cursor = await other.ending(slot, cursor, limit)
            assert len(page) <= limit
            found += page
            if cursor is None:
                return found

    for _ in range(4):
        clock.go_on(store.shape.renew_s)
        await store.renew(slot)
    # What came last is written to the last object of many, and still those that lead to it are as young.
    await store.subscribe_ending([("last", topics, GONE)])
    clients.append("last")
    for limit in (1, 7, 1_000):
        found = await pages(limit)
        assert len(found) == len(clients) * len(topics)
        assert {(ending.client, ending.topic) for ending in found} == {(c, t) for c in clients for t in topics}
    assert await subscribers(other, topics) == [set(clients)] * len(topics)
    pairs = [(client, topic) for client in clients for topic in topics]
    assert await other.terms([*pairs, ("nobody", topics[0])]) == [*[GONE] * len(pairs), None]
    assert await listed(other, "last") == set(topics)
    half = [ending for ending in found if ending.client in clients[::2]]
    outcome = await other.end([([ending], None, False) for ending in half])
    assert outcome == [[ending] for ending in half]
    assert await subscribers(store, topics) == [set(clients[1::2])] * len(topics)
    # A stamp that is not the one it has.
    kept = [ending._replace(stamp=ending.stamp + 1) for ending in found if ending.client in clients[1::2]]
    assert await other.end([(kept, None, False)]) == [[]]
    await store.subscribe([(client, topics) for client in clients[1::2]])
    assert await pages(1_000) == []
    assert await subscribers(store, topics) == [set(clients[1::2])] * len(topics)
    await store.subscribe_ending([(client, topics, GONE) for client in clients[1::2]])
    assert await pages(1_000) == []  # plain ones in large sets are found, too
    await store.unsubscribe([(client, topics) for client in clients])
    clock.go_on(DAY_S)
    assert await subscribers(store, topics) == [set()] * len(topics)


@pytest.mark.usefixtures("small_objects")
async def test_a_new_subscription_in_a_large_topic_that_is_old_is_not_cut_off_by_what_leads_to_it(
    riak: RiakDouble, store_on: StoreOn, clock: Clock
) -> None:
    store = await store_on(riak, wall_clock=clock)
    await store.subscribe_ending([(f"client {number}", ["hit"], GONE) for number in range(60)])
    clock.go_on(DAY_S - 1)  # nobody renews
    await store.subscribe_ending([("ann", ["hit"], GONE)])
    clock.go_on(2)
    assert "ann" in (await subscribers(store, ["hit"]))[0]
    assert "ann" in {ending.client for ending in await all_ending(store, "hit")}


async def test_a_backend_that_nodes_do_not_have_is_guessed_when_the_store_is_opened(
    riak: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a real node answers then: the type is there, and whatever is asked of it times out."""
    read = riak.memory.read

    def without_backend(at: int, key: Key, request: dict[str, Any]) -> Any:
        if key.type == b"ingeborg_ending":
            raise Refuse("timeout")
        return read(at, key, request)

    monkeypatch.setattr(riak.memory, "read", without_backend)
    store = RiakStore(riak.addresses, timeout_s=2.0, attempt_timeout_s=1.0)
    with pytest.raises(StoreUnavailable, match=r"a node has no backend 'ending' in its riak\.conf \(docs"):
        await store.open()
    await store.close()
