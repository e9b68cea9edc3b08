"""Ends on Riak: an end against a listen at every moment, crashes between index and record, siblings, large slots."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from typing import Any

import pytest

from ingeborg.broker.store.base import Ended, Location, StoreUnavailable, Subscribe, Subscription, Term
from ingeborg.broker.store.riak import RiakStore
from ingeborg.broker.store.riak.writing import Round
from ingeborg.protocol.hashes import slot_of
from tests.contract.asking import GONE, LATER, PIZZA, SOUP, add, ended, listen, made, subscribers, topics_of

from .conftest import StoreOn
from .double import RiakDouble
from .moments import ONE_BY_ONE, at, before_each_request, dead_from, noted_in, of_one_slot, shrink, survives
from .test_records import record, value_of, write_unseen

TOPICS = ["rock", "jazz", "folk"]


class Clock:
    """A process's clock: Unix time in seconds."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def rows(store: RiakStore, *topics: str, limit: int = 100) -> list[Subscription]:
    """Read the index of the slots of these topics page by page; each row has to come once."""
    found: list[Subscription] = []
    for slot in {slot_of(topic) for topic in topics}:
        cursor = None
        while True:
            page, cursor = await store.expiring(slot, cursor, limit)
            assert len(page) <= limit
            found += page
            if cursor is None:
                break
    assert len(set(found)) == len(found)
    return found


async def of_client(store: RiakStore, client: str, *topics: str) -> list[Subscription]:
    return [row for row in await rows(store, *topics) if row.client == client]


async def holding(store: RiakStore, client: str, topics: list[str] = TOPICS) -> set[str]:
    """Return those topics whose messages the client gets."""
    found = await subscribers(store, topics)
    return {topic for topic, clients in zip(topics, found, strict=True) if client in clients}


async def offline(store: RiakStore, client: str = "ann") -> Location:
    """Let the client listen and go offline."""
    (location,) = await listen(store, [client], "before")
    await store.unlisten([(client, location)])
    return location._replace(online=False)


async def ask(store: RiakStore, client: str, answers: list[Ended | None]) -> None:
    """Add the client's ended subscriptions to the answers."""
    answers.append(await ended(store, client))


def names(*topics: str) -> Ended:
    return Ended(sorted((topic, None) for topic in topics), len(topics))


# --- the index -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("is_large", [False, True])
async def test_a_writer_that_dies_at_any_moment_leaves_no_term_without_a_row_and_no_row_stops_expiry(
    single: RiakDouble,
    store_on: StoreOn,
    monkeypatch: pytest.MonkeyPatch,
    clock: Clock,
    replace: bool,
    is_large: bool,
) -> None:
    if is_large:
        shrink(monkeypatch)
    store, home = [await store_on(single, **ONE_BY_ONE, wall_clock=clock) for _ in range(2)]
    await home.subscribe(
        [Subscribe(f"other {number}", ["rock"], PIZZA, GONE) for number in range(9 if is_large else 1)]
    )
    acts = before_each_request(store)
    left_over: set[str] = set()
    for crash in itertools.count():
        client = f"client {crash}"
        await add(home, client, ["rock"], SOUP, GONE)
        await add(home, client, ["rock"], PIZZA, GONE)
        clock.now += 1.0
        is_through = await survives(acts, crash, add(store, client, ["rock"], PIZZA, LATER, replace=replace))
        held = [row for row in (await home.subscriptions_of([(client, "rock")]))[0] if row.term]
        indexed = await of_client(home, client, "rock")
        assert set(held) <= set(indexed), crash
        left_over |= {"behind" if row.term == GONE else "ahead" for row in set(indexed) - set(held)}
        if is_through:
            assert set(held) == set(indexed)
            break
        # A subscription that is not over does not end; one that does not exist counts as ended.
        (out,) = await home.end([(indexed, None, False)])
        texts = {row.filter for row in held}
        assert texts <= {row.filter for row in out}, crash
        assert await record(home, client) == {}
        # A young row stays, because its write may still be on its way. It goes when it is old.
        clock.now += 3_601.0
        young = await of_client(home, client, "rock")
        assert await home.end([(young, None, False)]) == [young]
        assert await of_client(home, client, "rock") == []
        assert await topics_of(home, client) == []
    assert left_over == {"behind", "ahead"}


async def test_a_write_that_is_on_its_way_keeps_its_row(
    riak: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is there, but the record is not: expiry in between reports that nothing is there, and leaves the row."""
    store, home = await store_on(riak), await store_on(riak)
    put, expired = store._records._writer._put, list[Subscription]()

    async def late(round_: Round) -> None:
        expired.extend(await rows(home, "rock"))
        assert await home.end([(expired, None, False)]) == [expired]
        await put(round_)

    monkeypatch.setattr(store._records._writer, "_put", late)
    await add(store, "ann", ["rock"], PIZZA, GONE)
    assert len(expired) == 1
    assert await rows(home, "rock") == expired
    assert await home.end([(expired, None, False)]) == [expired]
    assert await record(home, "ann") == {}
    assert await rows(home, "rock") == []


async def test_expiry_takes_out_the_term_that_it_has_read_and_no_other(
    riak: RiakDouble, store_on: StoreOn, clock: Clock
) -> None:
    store = await store_on(riak, wall_clock=clock)
    read = await made(store, "ann", ["rock"], None, GONE) + await made(store, "ann", ["rock"], PIZZA, GONE)
    clock.now += 1.0
    await add(store, "ann", ["rock"], None, LATER)
    await add(store, "ann", ["rock"], PIZZA)
    assert await store.end([(read, None, False)]) == [[]]
    assert await record(store, "ann") == {None: LATER, PIZZA: None}
    assert await ended(store, "ann") is None
    assert {row.term for row in await rows(store, "rock")} == {LATER}
    # A crash can leave a row of a term that the record has lost: the first expiry walk that finds it removes it.
    await store._terms.add(read)
    assert len(await rows(store, "rock")) == 3
    assert await store.end([(read, None, False)]) == [[]]
    assert {row.term for row in await rows(store, "rock")} == {LATER}


async def test_a_clock_that_is_behind_gives_a_greater_stamp_all_the_same(
    riak: RiakDouble, store_on: StoreOn, clock: Clock
) -> None:
    ahead, behind = await store_on(riak), await store_on(riak, wall_clock=clock)
    clock.now = 1_700_000_000.0
    (first,) = await made(ahead, "ann", ["rock"], PIZZA, GONE)
    (second,) = await made(behind, "ann", ["rock"], PIZZA, LATER)
    assert second.stamp > first.stamp > clock.now * 1000
    assert second.term == LATER
    assert await rows(ahead, "rock") == [second]
    assert await ahead.end([([first], None, False)]) == [[]]
    assert await ahead.end([([second], None, False)]) == [[second]]
    # And a clock can be behind by more than the age of a young row.
    assert await rows(ahead, "rock") == []


async def test_what_a_merge_brings_back_ends_again(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    bobs = await made(store, "bob", ["rock"], PIZZA, GONE)
    before = value_of(riak, "rock")
    anns = await made(store, "ann", ["rock"], None, LATER)
    assert await store.end([(bobs, None, False)]) == [bobs]
    assert await rows(store, "rock") == anns
    write_unseen(riak, "rock", before)
    assert await record(store, "bob") == {PIZZA: GONE}
    await store.repaired()
    assert await record(store, "ann") == {None: LATER}
    assert await rows(store, "rock") == sorted(bobs + anns, key=(await rows(store, "rock")).index)
    assert await store.end([(bobs, None, False)]) == [bobs]
    assert await rows(store, "rock") == anns


@pytest.mark.parametrize("is_large", [False, True])
async def test_a_slot_with_many_is_read_in_pages_and_ended(
    riak: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    if is_large:
        shrink(monkeypatch)
    topics = of_one_slot(4)
    store, other = await store_on(riak), await store_on(riak)
    clients = [f"client {number}" for number in range(12)]
    await store.subscribe([Subscribe(client, topics, PIZZA, GONE) for client in clients])
    await store.subscribe([Subscribe(client, topics) for client in ["stays", *clients[:6]]])
    for limit in (1, 7, 1_000):
        found = await rows(other, topics[0], limit=limit)
        assert {(row.client, row.topic) for row in found} == set(itertools.product(clients, topics))
    # It reads only the index, even if the slot has much else.
    before = other.counters["gets"]
    await other.expiring(slot_of(topics[0]), None, 10)
    assert is_large or other.counters["gets"] - before == 1
    half = [row for row in found if row.client in clients[::2]]
    assert await other.end([([row], None, False) for row in half]) == [[row] for row in half]
    kept = [row._replace(stamp=row.stamp - 1) for row in found if row.client in clients[1::2]]
    assert await other.end([(kept, None, False)]) == [[]]
    assert set(await rows(store, topics[0])) == set(found) - set(half)
    assert await subscribers(store, topics) == [{"stays", *clients[:6]}] * len(topics)
    assert [await topics_of(store, client) != [] for client in clients] == [
        client in clients[:6] or client in clients[1::2] for client in clients
    ]


# --- an end, and what else happens at the same time ----------------------------------------------------------------


async def test_only_a_client_that_is_where_it_was_loses_what_it_has(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    anns, bobs = await made(store, "ann", TOPICS), await made(store, "bob", TOPICS)
    before = await offline(store)
    await listen(store, ["ann"], "now")
    assert await store.end([(anns, before, True), (bobs, None, True), ([], None, True)]) == [[], bobs, []]
    assert store.counters["ends_called_off"] == 0  # the end noticed it before it wrote anything
    assert await holding(store, "ann") == set(TOPICS)
    assert await store.end([(anns[:1], None, False)]) == [anns[:1]]  # its term is over, wherever its client is
    assert await ended(store, "ann") == names(anns[0].topic)
    # Again: it is gone, and the result says so; nothing is named twice.
    assert await store.end([(anns[:1], None, False)]) == [anns[:1]]
    assert await ended(store, "ann") == names(anns[0].topic)


async def test_what_ends_before_the_location_is_written_is_named(
    riak: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This happens between the two requests of a `listen` that write the location: it has read the state before."""
    store, other = await store_on(riak), await store_on(riak)
    found = await made(store, "ann", ["rock"])
    put = other._objects.put

    async def ends(*arguments: Any) -> Any:
        monkeypatch.setattr(other._objects, "put", put)
        assert await store.end([(found, None, True)]) == [found]
        return await put(*arguments)

    monkeypatch.setattr(other._objects, "put", ends)
    ((location, said),) = await other.listen(["ann"], "here")
    assert said == names("rock")
    assert await store.locations(["ann"]) == [location]


async def test_a_listen_that_cannot_read_what_has_ended_fails(
    riak: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await store_on(riak)

    async def read(*_: Any) -> Any:
        raise StoreUnavailable("no node answers")

    with monkeypatch.context() as patched:
        patched.setattr(store._objects, "read", read)
        with pytest.raises(StoreUnavailable, match="no node answers"):
            await store.listen(["ann"], "here")
    ((location, said),) = await store.listen(["ann"], "here")
    assert await store.locations(["ann"]) == [location]
    assert said is None


async def test_what_has_ended_is_told_for_as_long_as_tidy_says(
    riak: RiakDouble, store_on: StoreOn, clock: Clock
) -> None:
    store = await store_on(riak, wall_clock=clock)
    for topic in ("rock", "jazz"):
        assert await store.end([(await made(store, "ann", [topic]), None, False)])
        clock.now += 400.0
    assert await ended(store, "ann") == names("jazz")
    assert await store.tidy(1_000.0) == 0
    assert await ended(store, "ann") == names("jazz", "rock")
    assert await store.tidy(100.0) == 0
    assert await ended(store, "ann") is None
    await listen(store, ["ann"], "here")
    await store.tidy(1_000.0)
    assert await ended(store, "ann") is None  # it went with that write


async def requests_of_an_end(riak: RiakDouble, store_on: StoreOn, topics: list[str] = TOPICS) -> int:
    """Return how many requests an end makes in the tests below if nothing disturbs it."""
    store = await store_on(riak, **ONE_BY_ONE)
    found, location = await made(store, "nobody", topics), await offline(store, "nobody")
    met: list[int] = []
    before_each_request(store).append(noted_in(met))
    assert await store.end([(found, location, True)]) == [found]
    assert len(met) >= 14
    return len(met)


async def test_an_end_against_a_listen_at_every_moment(single: RiakDouble, store_on: StoreOn) -> None:
    """The location is written before one request of the ``end``, and the ended ones are read before another request."""
    topics = TOPICS[:2]
    requests = await requests_of_an_end(single, store_on, topics)
    outcomes = set()
    store, elsewhere = await store_on(single, **ONE_BY_ONE), await store_on(single, **ONE_BY_ONE)
    acts = before_each_request(store)
    for listens, asks in itertools.combinations_with_replacement(range(requests + 1), 2):
        client = f"{listens}-{asks}"
        found, location = await made(store, client, topics), await offline(store, client)
        named: list[Ended | None] = []
        move, hear = partial(elsewhere.listen, [client], "after"), partial(ask, elsewhere, client, named)
        acts[:] = [at(listens, move), at(asks, hear)]
        (out,) = await store.end([(found, location, True)])
        acts.clear()
        if listens == requests:  # when it is complete
            await move()
        if asks == requests:
            await hear()
        kept = await holding(elsewhere, client, topics)
        assert kept in (set(), set(topics)), client
        assert kept == set(await topics_of(elsewhere, client)), client
        assert {row.topic for row in out} == set(topics) - kept, client
        if not kept:  # in which case it knows
            assert named == [names(*topics)], client
        else:
            assert await ended(elsewhere, client) is None, client
            assert {row.topic for row in await of_client(elsewhere, client, *topics)} == kept
            await elsewhere.unsubscribe([(client, topics, None)])
        outcomes.add((bool(kept), named == [None]))
    # Kept and not named; kept, but named as ended; removed and named.
    assert outcomes == {(True, True), (True, False), (False, False)}


async def test_a_crash_between_two_writes_of_an_end_loses_nothing_in_silence(
    single: RiakDouble, store_on: StoreOn, clock: Clock
) -> None:
    requests = await requests_of_an_end(single, store_on)
    store, next_home = [await store_on(single, **ONE_BY_ONE, wall_clock=clock) for _ in range(2)]
    acts = before_each_request(store)
    left_over = set()
    for crash in range(requests):
        client = f"client {crash}"
        found, location = await made(next_home, client, TOPICS), await offline(next_home, client)
        acts[:] = [dead_from(crash)]
        with pytest.raises(StoreUnavailable):
            await store.end([(found, location, True)])
        kept = await holding(next_home, client)
        named = await ended(next_home, client)
        assert set(TOPICS) - kept <= {topic for topic, _ in (named.subscriptions if named else [])}
        left_over.add(len(kept))
        # And the next home ends it.
        left = await of_client(next_home, client, *TOPICS)
        assert kept <= {row.topic for row in left}
        assert await next_home.end([(left, location, True)]) == [left]
        assert await holding(next_home, client) == {*await topics_of(next_home, client)} == set()
        assert await ended(next_home, client) == names(*TOPICS)
        clock.now += 3_601.0
        assert await next_home.end([(left, location, True)]) == [left]
        assert await of_client(next_home, client, *TOPICS) == []
    assert left_over == {0, 1, 2, 3}


@pytest.mark.parametrize(("filter", "term"), [(None, GONE), (None, None), (PIZZA, LATER)])
async def test_what_is_subscribed_to_anew_meanwhile_stays_is_listed_and_has_not_ended(
    single: RiakDouble, store_on: StoreOn, filter: str | None, term: Term | None
) -> None:
    requests = await requests_of_an_end(single, store_on)
    store, other = await store_on(single, **ONE_BY_ONE), await store_on(single, **ONE_BY_ONE)
    acts = before_each_request(store)
    reported = []
    for moment in range(requests - 2):  # it does not read the location, twice
        client = f"client {moment}"
        found = await made(store, client, TOPICS)
        acts[:] = [at(moment, partial(add, other, client, ["rock"], filter, term))]
        (out,) = await store.end([(found, None, False)])
        acts.clear()
        assert (await record(other, client))[filter] == term, moment
        assert await topics_of(other, client) == ["rock"], moment
        gone = [("folk", None), ("jazz", None)] + ([("rock", None)] if filter else [])
        assert await ended(other, client) == Ended(sorted(gone), len(gone)), moment
        (mine,) = await other.subscriptions_of([(client, "rock")])
        assert {row for row in mine if row.term} <= set(await of_client(other, client, "rock")), moment
        reported.append("rock" in {row.topic for row in out})
    assert reported == sorted(reported)  # from the moment on at which the old one is removed
    assert {*reported} == ({True} if filter else {False, True})


async def test_ends_of_one_client_at_two_homes_at_once_are_all_named(riak: RiakDouble, store_on: StoreOn) -> None:
    homes = [await store_on(riak) for _ in TOPICS]
    found, location = await made(homes[0], "ann", TOPICS), await offline(homes[0])
    riak.hold(3)  # all three read before the first one writes
    await asyncio.gather(*(home.end([([row], location, True)]) for home, row in zip(homes, found, strict=True)))
    assert await ended(homes[0], "ann") == names(*TOPICS)
    assert await topics_of(homes[0], "ann") == []
    # And the client subscribes again to all topics at once.
    riak.hold(3)
    await asyncio.gather(*(add(home, "ann", [topic]) for home, topic in zip(homes, TOPICS, strict=True)))
    assert await ended(homes[0], "ann") is None
    assert set(await topics_of(homes[0], "ann")) == set(TOPICS)
