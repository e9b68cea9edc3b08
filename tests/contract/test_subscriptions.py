"""The contract's rules for subscriptions, on every store of ``conftest.ALL``.

To a store a filter is a text: none of these tests needs one that can match.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingeborg.broker.store.base import (
    FILTERS_MAX,
    PAGE_SUBSCRIPTIONS,
    Ended,
    Location,
    Store,
    StoreUnavailable,
    Subscribe,
    Subscription,
    Term,
    TooManyFilters,
)
from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.protocol.hashes import slot_of
from tests import proof
from tests.contract.asking import (
    BAD_CURSORS,
    BOTH,
    CHEAP,
    GONE,
    KINDS,
    LATER,
    LONGEST,
    NUL_CLIENTS,
    ODD_CLIENTS,
    ODD_FILTERS,
    ODD_TOPICS,
    PIZZA,
    SOUP,
    Held,
    Record,
    add,
    ended,
    everything,
    expiring,
    filters,
    in_order,
    listen,
    made,
    numbered,
    of_each_kind,
    of_slot,
    one,
    shows,
    subscribed,
    subscribers,
    subscribers_of,
    topics_of,
)
from tests.contract.conftest import ALL, OpenStore

MORE_THAN_A_PAGE = 1_400
"""More filters of a topic than any store's first page has."""

OF_ANN: Record = {None: GONE, PIZZA: None, SOUP: BOTH}
"""A record with something of every kind."""


async def give(store: Store, client: str, topics: list[str], record: Record) -> None:
    """Add the whole record in one batch."""
    await store.subscribe([Subscribe(client, topics, filter, term) for filter, term in record.items()])


# --- present


async def test_a_new_store_has_nothing(store: Store) -> None:
    await shows({}, store, clients=["ann"])


async def test_empty_batches_are_fine(store: Store) -> None:
    await store.subscribe([])
    await store.subscribe(
        [Subscribe("ann", [], filter, term, replace) for filter, term in KINDS for replace in (False, True)]
    )
    await store.unsubscribe([])
    await store.unsubscribe([("ann", [], None), ("ann", [], PIZZA)])
    assert await subscribers_of(store, []) == ([], {})
    assert await store.subscriptions_of([]) == []
    assert await subscribed(store, "ann", []) == []
    assert await store.end([]) == []
    assert await store.end([([], None, True)]) == [[]]
    assert await store.expiring(0, None, 10) == ([], None)
    await shows({}, store, clients=["ann"])


@of_each_kind
async def test_it_is_there_for_whoever_asks(store: Store, other: Store, filter: str | None, term: Term | None) -> None:
    for _ in range(2):  # the second time changes nothing
        await store.subscribe(
            [Subscribe("ann", ["rock", "jazz", "rock"], filter, term), Subscribe("bob", ["jazz"], filter, term)]
        )
        wanted = {("ann", "rock"): {filter: term}, ("ann", "jazz"): {filter: term}, ("bob", "jazz"): {filter: term}}
        await shows(wanted, store, other, clients=["an", "annn"])
    for _ in range(2):
        await other.unsubscribe([("ann", ["rock", "rock", "never had"], None)])
        await shows({**wanted, ("ann", "rock"): {}, ("ann", "never had"): {}}, store, other)
    await add(store, "bob", ["rock"], filter, term)  # an empty record can be filled again
    await shows({**wanted, ("ann", "rock"): {}, ("bob", "rock"): {filter: term}}, store, other)


async def test_a_client_has_all_kinds_at_one_topic(store: Store, other: Store) -> None:
    wanted: Held = {("ann", "rock"): {}, ("bob", "rock"): {PIZZA: None}}
    await add(store, "bob", ["rock"], PIZZA)
    for handle, (filter, term) in zip(itertools.cycle([store, other]), OF_ANN.items(), strict=False):
        await add(handle, "ann", ["rock"], filter, term)
        wanted["ann", "rock"][filter] = term
        await shows(wanted, store, other)


async def test_answers_come_in_the_order_asked_and_what_is_asked_may_repeat(store: Store) -> None:
    await store.subscribe([Subscribe("ann", ["rock", "jazz"]), Subscribe("bob", ["jazz"], None, GONE)])
    await add(store, "ann", ["jazz"], PIZZA)
    sets, pages = await subscribers_of(store, ["jazz", "none", "rock", "jazz"])
    assert [set(found) for found in sets] == [{"ann", "bob"}, set(), {"ann"}, {"ann", "bob"}]
    assert pages == {"jazz": ([("ann", PIZZA)], None)}
    assert await subscribed(store, "bob", ["rock", "jazz", "rock"]) == [False, True, False]
    found = await store.subscriptions_of([("bob", "jazz"), ("ann", "jazz"), ("bob", "rock"), ("bob", "jazz")])
    assert [[each.filter for each in record] for record in found] == [[None], [None, PIZZA], [], [None]]
    assert found[0] == found[3]


async def test_a_store_that_reads_memory_says_it_at_once(store: Store) -> None:
    await store.subscribe(
        [Subscribe(f"client {index}", ["rock"], numbered(index)) for index in range(MORE_THAN_A_PAGE)]
    )
    _, pages = await subscribers_of(store, ["rock"])
    asked: list[Callable[[], object]] = [
        partial(store.subscribers_now, ["rock", "none"]),
        partial(store.filtered_now, "rock", str(pages["rock"][1]), 10),
        partial(store.subscriptions_of_now, [("client 1", "rock"), ("nobody", "rock")]),
        partial(store.subscribed_now, "client 1", ["rock", "none"]),
        partial(store.locations_now, ["client 1"]),
    ]
    for ask in asked if store.shape.reads_memory else ():
        assert any(ask() is not None for _ in range(1_000))  # a busy machine can delay this


async def test_a_set_is_the_callers_to_change(store: Store) -> None:
    await store.subscribe([Subscribe(f"client {number}", ["rock"]) for number in range(200)])
    for found in (await store.subscribers(["rock", "rock"]), store.subscribers_now(["rock", "rock"])):
        for each in found[0] if found else ():
            assert isinstance(each, set)
            each.clear()
    (whole,) = await subscribers(store, ["rock"])
    assert len(whole) == 200


async def test_several_of_one_client_may_come_in_a_batch(store: Store, other: Store) -> None:
    await store.subscribe(
        [
            Subscribe("ann", ["rock"]),
            Subscribe("bob", ["rock"], None, GONE),
            Subscribe("ann", ["jazz"], PIZZA, GONE),
            Subscribe("ann", ["rock", "jazz"], SOUP),
            Subscribe("ann", ["rock"]),
        ]
    )
    wanted: Held = {("ann", "rock"): {None: None, SOUP: None}, ("ann", "jazz"): {PIZZA: GONE, SOUP: None}}
    await shows({**wanted, ("bob", "rock"): {None: GONE}}, store, other)
    await other.unsubscribe([("ann", ["rock"], SOUP), ("bob", ["rock"], None), ("ann", ["jazz"], PIZZA)])
    await shows({("ann", "rock"): {None: None}, ("ann", "jazz"): {SOUP: None}}, store, other)


async def test_odd_topics_clients_and_filters_are_kept_apart_and_whole(store: Store, other: Store) -> None:
    clients = ODD_CLIENTS[::2] + NUL_CLIENTS[::2]
    wanted: Held = {}
    kinds = itertools.cycle(KINDS)
    for pair, (filter, term) in zip(itertools.product(clients, ODD_TOPICS[::2]), kinds, strict=False):
        wanted[pair] = {filter: term}
    wanted |= {(client, topic): {} for client in clients for topic in ODD_TOPICS[1::2]}
    for client in (clients[0], NUL_CLIENTS[0]):
        wanted[client, ODD_TOPICS[0]] = {filter: (None, LATER)[odd % 2] for odd, filter in enumerate(ODD_FILTERS)}
    await store.subscribe(
        [Subscribe(client, [topic], *kind) for (client, topic), held in wanted.items() for kind in held.items()]
    )
    await other.unsubscribe([(client, ODD_TOPICS, None) for client in ODD_CLIENTS[1::2] + NUL_CLIENTS[1::2]])
    await other.unsubscribe([(clients[0], ODD_TOPICS[:1], LONGEST[0])])
    del wanted[clients[0], ODD_TOPICS[0]][LONGEST[0]]
    await shows(wanted, other, clients=ODD_CLIENTS + NUL_CLIENTS)


async def test_ids_and_topics_that_look_like_each_other_concatenated(store: Store) -> None:
    pairs = [("a", "bc"), ("ab", "c"), ("c", "ab")]
    await store.subscribe([Subscribe(client, [topic], None, GONE) for client, topic in pairs])
    await shows({**{pair: {None: GONE} for pair in pairs}, ("abc", "abc"): {}, ("a", "a"): {}}, store)


async def test_thousands_of_topics_in_one_batch(store: Store, other: Store) -> None:
    topics = [f"song {index}" for index in range(10_000)]
    some = topics[:400]
    await store.subscribe([Subscribe("ann", topics), Subscribe("bob", some, PIZZA), Subscribe("ann", some, SOUP, GONE)])
    sets, pages = await subscribers_of(other, topics)
    assert [set(found) for found in sets] == [{"ann"}] * len(topics)
    assert {topic: {*page} for topic, (page, _) in pages.items()} == {t: {("ann", SOUP), ("bob", PIZZA)} for t in some}
    assert sorted(await topics_of(other, "ann", 999)) == sorted(topics)
    assert await subscribed(other, "bob", topics[:800]) == [True] * 400 + [False] * 400
    await other.unsubscribe([("ann", topics[1:], None)])
    assert await subscribers(store, topics[:3]) == [{"ann"}, set(), set()]
    assert await topics_of(store, "ann") == topics[:1]


async def test_thousands_of_subscribers_of_one_topic(store: Store, other: Store) -> None:
    clients = [f"client {index}".ljust(40, "x") for index in range(10_000)]
    with_filters = clients[: PAGE_SUBSCRIPTIONS + 500]
    await store.subscribe([Subscribe(client, ["hit"]) for client in clients])
    await store.subscribe([Subscribe(each, ["hit"], numbered(index % 700)) for index, each in enumerate(with_filters)])
    await store.subscribe([Subscribe(f"passing {index}", ["hit"], None, GONE) for index in range(1_000)])
    assert await subscribers(other, ["hit"]) == [{*clients, *(f"passing {index}" for index in range(1_000))}]
    pairs = {(client, numbered(index % 700)) for index, client in enumerate(with_filters)}
    assert await filters(other, "hit", 500) == pairs
    assert [await subscribed(store, client, ["hit"]) for client in (clients[5_000], "client 0")] == [[True], [False]]
    by_client = [[each] for each in await expiring(store, slot_of("hit"), 300)]
    assert len(by_client) == 1_000
    assert await other.end([(mine, None, True) for mine in by_client]) == by_client
    await other.unsubscribe([(client, ["hit"], None) for client in clients[1:]])
    await shows({(clients[0], "hit"): {None: None, numbered(0): None}}, store, other, clients=clients[1:3])


async def test_many_long_filters_in_one_batch(store: Store, other: Store) -> None:
    longest = [f'{{"a":["{number}{"x" * 4_000}"]}}' for number in range(FILTERS_MAX)]
    await give(store, "ann", ["rock"], dict.fromkeys(longest, GONE))
    await shows({("ann", "rock"): dict.fromkeys(longest, GONE)}, other)


async def test_they_survive_that_every_handle_is_closed(open_store: OpenStore) -> None:
    first = await open_store()
    await give(first, "ann", ["rock", "jazz"], {None: GONE, PIZZA: None, SOUP: BOTH, CHEAP: None})
    await add(first, "bob", ["rock"])
    await first.unsubscribe([("ann", ["jazz"], SOUP)])
    rock, jazz = [await one(first, "ann", topic) for topic in ("rock", "jazz")]
    await first.end([([jazz], None, False)])
    await first.close()
    again = await open_store()
    wanted: Held = {("ann", "rock"): {None: GONE, PIZZA: None, SOUP: BOTH, CHEAP: None}, ("bob", "rock"): {None: None}}
    await shows({**wanted, ("ann", "jazz"): {PIZZA: None, CHEAP: None}}, again)
    assert await ended(again, "ann") == Ended([("jazz", None)], 1)
    assert await one(again, "ann", "rock") == rock
    (anew,) = await made(again, "ann", ["rock"])
    assert anew.stamp > rock.stamp


# --- terms


@pytest.mark.parametrize("filter", [None, PIZZA])
async def test_a_term_gives_one_that_has_a_term_the_new_one_and_a_greater_stamp(
    store: Store, other: Store, filter: str | None
) -> None:
    (before,) = await made(store, "ann", ["rock"], filter)
    for handle, term in [(store, LATER), (other, GONE), (store, BOTH), (other, BOTH)]:
        (now,) = await made(handle, "ann", ["rock"], filter, term)
        assert now.stamp > before.stamp
        await shows({("ann", "rock"): {filter: term}}, store, other)
        before = now


@pytest.mark.parametrize("filter", [None, PIZZA])
async def test_no_term_beats_any_and_others_keep_theirs(store: Store, other: Store, filter: str | None) -> None:
    others: Record = {SOUP: GONE, CHEAP: None}
    await give(store, "ann", ["rock", "jazz"], {filter: GONE, **others})
    await add(store, "bob", ["rock"], filter, GONE)
    await add(other, "ann", ["rock"], filter)
    wanted: Held = {("ann", "jazz"): {filter: GONE, **others}, ("bob", "rock"): {filter: GONE}}
    for term in (GONE, LATER, None):
        await shows({**wanted, ("ann", "rock"): {filter: None, **others}}, store, other)
        await add(other, "ann", ["rock"], filter, term)
    await shows({**wanted, ("ann", "rock"): {filter: None, **others}}, store, other)


@pytest.mark.parametrize("how", ["end", "unsubscribe", "stay", "replace"])
@pytest.mark.parametrize("filter", [None, PIZZA])
async def test_one_that_is_made_anew_has_a_greater_stamp_whatever_was_between(
    store: Store, other: Store, filter: str | None, how: str
) -> None:
    stamps = []
    for handle in (store, other, store):
        (found,) = await made(handle, "ann", ["rock"], filter)
        stamps.append(found.stamp)
        if how == "end":
            await other.end([([found], None, True)])
        elif how == "stay":
            await add(other, "ann", ["rock"], filter)
        elif how == "replace":
            await add(other, "ann", ["rock"], SOUP, replace=True)
        await other.unsubscribe([("ann", ["rock"], None)])
    assert stamps == sorted(set(stamps))


# --- removed


async def test_one_with_a_filter_is_taken_out_and_all_else_stays(store: Store, other: Store) -> None:
    for client in ("ann", "bob"):
        await give(store, client, ["rock", "jazz"], OF_ANN)
    wanted: Held = {(client, topic): OF_ANN for client in ("ann", "bob") for topic in ("rock", "jazz")}
    for _ in range(2):
        await other.unsubscribe([("ann", ["rock", "never had"], SOUP), ("ann", ["rock"], CHEAP)])
        await shows({**wanted, ("ann", "rock"): {None: GONE, PIZZA: None}}, store, other)
    await other.unsubscribe([("ann", ["rock"], PIZZA)])
    await shows({**wanted, ("ann", "rock"): {None: GONE}}, store, other)


async def test_the_last_one_of_a_client_takes_its_topic_along(store: Store, other: Store) -> None:
    await give(store, "ann", ["rock"], {PIZZA: GONE, SOUP: None})
    await store.unsubscribe([("ann", ["rock"], PIZZA)])
    await shows({("ann", "rock"): {SOUP: None}}, store, other)
    await other.unsubscribe([("ann", ["rock"], SOUP)])
    await shows({("ann", "rock"): {}}, store, other)


async def test_without_a_filter_all_of_the_client_is_taken_out_and_nothing_of_others(
    store: Store, other: Store
) -> None:
    clients = ["a", "a ", "aa", "\0", "a\0"]
    for client in clients:
        await give(store, client, ["rock", "jazz"], OF_ANN)
    wanted: Held = {(client, topic): OF_ANN for client in clients for topic in ("rock", "jazz")}
    for _ in range(2):
        await other.unsubscribe([("a", ["rock", "never had"], None)])
        await shows({**wanted, ("a", "rock"): {}}, store, other)
    assert await ended(store, "a") is None


# --- replacing everything else


@of_each_kind
async def test_replace_takes_the_place_of_all_else_in_one_step(
    store: Store, other: Store, filter: str | None, term: Term | None
) -> None:
    for client in ("ann", "bob"):
        await give(store, client, ["rock", "jazz"], OF_ANN)
    wanted: Held = {(client, topic): OF_ANN for client in ("ann", "bob") for topic in ("rock", "jazz")}
    for _ in range(2):
        await add(other, "ann", ["rock", "new"], filter, term, replace=True)
        await shows({**wanted, ("ann", "rock"): {filter: term}, ("ann", "new"): {filter: term}}, store, other)


@pytest.mark.parametrize("filter", [None, PIZZA])
async def test_with_replace_it_has_the_new_term_whatever_it_had(store: Store, other: Store, filter: str | None) -> None:
    stamps = []
    for turn, term in enumerate([None, GONE, LATER, None, BOTH]):
        await add((store, other)[turn % 2], "ann", ["rock"], filter, term, replace=True)
        await shows({("ann", "rock"): {filter: term}}, store, other)
        stamps.append((await one(store, "ann", "rock", filter)).stamp)
    assert 0 < stamps[1] < stamps[2] < stamps[4]


async def test_at_no_moment_the_client_has_nothing_there(store: Store, other: Store) -> None:
    topics = [f"{index}" for index in range(12)]
    await store.subscribe([Subscribe("ann", topics[:6]), Subscribe("ann", topics[6:], SOUP, GONE)])
    kinds = [*KINDS, (SOUP, None)]
    for filter, term in itertools.islice(itertools.cycle(kinds), 8):
        changing = asyncio.gather(*(add(other, "ann", [topic], filter, term, replace=True) for topic in topics))
        while not changing.done():
            at_once = store.subscribers_now(topics)
            found = await store.subscribers(topics)
            for sets, pages in (found, at_once or found):
                assert all("ann" in clients or topic in pages for topic, clients in zip(topics, sets, strict=True))
            assert await store.subscribed("ann", topics) == [True] * len(topics)
            assert all(await store.subscriptions_of([("ann", topic) for topic in topics]))
            assert sorted(await topics_of(store, "ann")) == sorted(topics)
            await asyncio.sleep(0)
        await changing
    await shows({("ann", topic): {filter: term} for topic in topics}, store, other)


async def test_of_two_that_replace_at_the_same_time_one_at_least_stays(store: Store, other: Store) -> None:
    topics = [f"{index}" for index in range(10)]
    await add(store, "ann", topics, CHEAP)
    await asyncio.gather(
        *(add(store, "ann", [topic], PIZZA, replace=True) for topic in topics),
        *(add(other, "ann", [topic], None, replace=True) for topic in topics),
    )
    for record in await store.subscriptions_of([("ann", topic) for topic in topics]):
        assert [each.filter for each in record] in ([PIZZA], [None], [None, PIZZA])


async def test_one_that_replaces_stays_beside_one_that_is_added(store: Store, other: Store) -> None:
    topics = [f"{index}" for index in range(10)]
    await add(store, "ann", topics, CHEAP)
    await asyncio.gather(
        *(add(store, "ann", [topic], PIZZA, replace=True) for topic in topics),
        *(add(other, "ann", [topic], SOUP) for topic in topics),
    )
    for record in await store.subscriptions_of([("ann", topic) for topic in topics]):
        # The union can bring back what one of two writers that missed each other has removed.
        assert {PIZZA} <= {each.filter for each in record} <= {PIZZA, SOUP, CHEAP}


# --- limits


async def test_a_client_has_no_more_than_its_number_of_filters_at_a_topic(store: Store, other: Store) -> None:
    half = FILTERS_MAX // 2
    full: Record = {numbered(each): (None, GONE)[each % 2] for each in range(FILTERS_MAX)}
    await give(store, "ann", ["rock"], dict(list(full.items())[:half]))
    await give(other, "ann", ["rock"], dict(list(full.items())[half:]))
    await add(store, "ann", ["rock"])  # ann has no filter yet
    for handle, term in ((store, None), (other, GONE)):
        with pytest.raises(TooManyFilters):
            await add(handle, "ann", ["rock"], PIZZA, term)
        await shows({("ann", "rock"): {None: None, **full}}, other)
        await add(handle, "ann", ["rock"], numbered(3), LATER)  # ann has it already
        full[numbered(3)] = LATER
    await store.subscribe([Subscribe("ann", ["jazz"], PIZZA), Subscribe("bob", ["rock"], PIZZA)])
    await store.unsubscribe([("ann", ["rock"], numbered(0))])
    await add(other, "ann", ["rock"], PIZZA)
    assert len((await store.subscriptions_of([("ann", "rock")]))[0]) == 1 + FILTERS_MAX
    await add(other, "ann", ["rock"], SOUP, replace=True)
    await shows({("ann", "rock"): {SOUP: None}, ("ann", "jazz"): {PIZZA: None}, ("bob", "rock"): {PIZZA: None}}, store)


async def test_too_many_in_one_batch_are_refused(store: Store, other: Store) -> None:
    with pytest.raises(TooManyFilters):
        await give(store, "ann", ["rock"], {numbered(number): None for number in range(FILTERS_MAX + 1)})
    assert len((await other.subscriptions_of([("ann", "rock")]))[0]) <= FILTERS_MAX
    await add(other, "ann", ["rock"], PIZZA, replace=True)
    await shows({("ann", "rock"): {PIZZA: None}}, store)


async def test_what_was_written_beside_a_topic_with_too_many_is_whole(store: Store, other: Store) -> None:
    full: Record = {numbered(number): None for number in range(FILTERS_MAX)}
    await give(store, "ann", ["rock"], full)
    topics = [f"topic {number}" for number in range(300)]
    with pytest.raises(TooManyFilters):
        await add(store, "ann", [*topics[:150], "rock", *topics[150:]], PIZZA, GONE)
    await add(store, "bob", ["rock"], PIZZA)  # after the calls under way
    records = await other.subscriptions_of([("ann", topic) for topic in topics])
    wanted: Held = {
        ("ann", topic): {PIZZA: GONE} if found else {} for topic, found in zip(topics, records, strict=True)
    }
    await shows({**wanted, ("ann", "rock"): full, ("bob", "rock"): {PIZZA: None}}, other)


# --- pages


@pytest.mark.parametrize("limit", [1, 2, 7, 40, 41])
async def test_pages_of_a_clients_topics_have_each_once(store: Store, other: Store, limit: int) -> None:
    topics = [f"song {index}" for index in range(40)]
    await store.subscribe([Subscribe("ann", topics[start::4], *kind) for start, kind in enumerate(KINDS)])
    await store.subscribe([Subscribe("ann", topics[:30], SOUP), Subscribe("ann", topics[10:20], CHEAP, GONE)])
    await store.subscribe([Subscribe("anna", ["other"]), Subscribe("an", ["another"], PIZZA)])
    listed = await topics_of(store, "ann", limit)
    assert sorted(listed) == sorted(topics)
    assert await topics_of(other, "ann", 100) == listed  # the order is stable


async def test_a_full_last_page_ends_the_paging(store: Store) -> None:
    await store.subscribe([Subscribe("ann", ["a"]), Subscribe("ann", ["b"], PIZZA, GONE)])
    page, cursor = await store.topics("ann", None, 2)
    assert (sorted(page), cursor) == (["a", "b"], None)


async def test_a_topic_that_stays_subscribed_comes_once_whatever_becomes_of_it(store: Store, other: Store) -> None:
    staying, leaving = [f"staying {i}" for i in range(40)], [f"leaving {i}" for i in range(40)]
    await store.subscribe([Subscribe("ann", staying[::4] + leaving[::2]), Subscribe("ann", staying + leaving, PIZZA)])
    seen: Counter[str] = Counter()
    cursor = None
    for step in range(100):
        page, cursor = await store.topics("ann", cursor, 5)
        seen.update(page)
        if cursor is None:
            break
        # Between the pages, topics come and go, sometimes the very one that the cursor points to.
        gone = [topic for topic in page if topic in leaving][-1:] + leaving[step : step + 2]
        await other.unsubscribe([("ann", gone, None)])
        kept = page[-1] if page[-1] in staying else "x"
        await other.subscribe(
            [
                Subscribe("ann", [staying[step % 40], f"coming {step}"], None, GONE),
                Subscribe("ann", [staying[(step + 9) % 40], kept], SOUP, None, replace=True),
            ]
        )
    assert cursor is None
    assert {topic: seen[topic] for topic in staying} == dict.fromkeys(staying, 1)
    assert max(seen.values()) == 1


@pytest.mark.parametrize("limit", [7, 1_000])
async def test_pages_of_a_topics_filters_have_each_once(store: Store, other: Store, limit: int) -> None:
    pairs = {(f"client {index % 70}", numbered(index)) for index in range(MORE_THAN_A_PAGE)}
    await store.subscribe([Subscribe(client, ["rock"], filter) for client, filter in pairs])
    await store.subscribe([Subscribe("ann", ["roc", "rock "], PIZZA), Subscribe("client 0", ["rock"])])
    assert await filters(other, "rock", limit) == pairs


async def test_a_filter_that_stays_comes_once_while_others_come_and_go(store: Store, other: Store) -> None:
    half = MORE_THAN_A_PAGE // 2
    staying, leaving = [f"staying {i}" for i in range(half)], [f"leaving {i}" for i in range(half)]
    await store.subscribe([Subscribe(client, ["rock"], PIZZA) for client in staying + leaving])
    _, pages = await subscribers_of(store, ["rock"])
    page, cursor = pages["rock"]
    assert cursor is not None
    seen = Counter(page)
    for step in range(half):
        if cursor is None:
            break
        gone = [client for client, _ in page if client in leaving][-1:] + leaving[step : step + 1]
        await other.unsubscribe([(client, ["rock"], None) for client in gone])
        await other.subscribe(
            [Subscribe(f"coming {step}", ["rock"], PIZZA), Subscribe(staying[step], ["rock"], SOUP, GONE)]
        )
        page, cursor = await store.filtered("rock", cursor, 40)
        seen.update(page)
    assert cursor is None
    assert {client: seen[client, PIZZA] for client in staying} == dict.fromkeys(staying, 1)
    assert max(seen.values()) == 1


@pytest.mark.parametrize("limit", [1, 3, 1_000])
async def test_pages_of_a_slot_have_its_own_with_a_term_once(store: Store, other: Store, limit: int) -> None:
    mine = of_slot(7, 4)
    wanted = {
        (topic, f"client {index}", filter): Term(bool(index % 2), index / 2)
        for topic in mine
        for index in range(5)
        for filter in (None, PIZZA, SOUP)
    }
    batch = [Subscribe(client, [topic], filter, term) for (topic, client, filter), term in wanted.items()]
    await store.subscribe([*batch, Subscribe("ann", of_slot(8, 2) + of_slot(6, 2), None, GONE)])
    await store.subscribe([Subscribe("ann", mine), Subscribe("client 0", mine, CHEAP)])
    found = await expiring(other, 7, limit)
    assert {(each.topic, each.client, each.filter): each.term for each in found} == wanted
    assert await store.expiring(9, None, limit) == ([], None)


async def test_one_with_a_term_comes_once_while_others_come_and_go(store: Store, other: Store) -> None:
    (topic, passing) = of_slot(4095, 2)
    staying, leaving = [f"staying {i}" for i in range(30)], [f"leaving {i}" for i in range(30)]
    await store.subscribe([Subscribe(client, [topic, passing], PIZZA, GONE) for client in staying + leaving])
    seen: Counter[tuple[str, str]] = Counter()
    cursor = None
    for step in range(200):
        page, cursor = await store.expiring(4095, cursor, 4)
        seen.update((each.client, each.topic) for each in page)
        if cursor is None:
            break
        gone = [each.client for each in page if each.client in leaving][-1:] + leaving[step : step + 1]
        await other.unsubscribe([(client, [topic, passing], None) for client in gone])
        await add(other, f"coming {step}", [topic], None, GONE)
    assert cursor is None
    assert {client: seen[client, topic] for client in staying} == dict.fromkeys(staying, 1)
    assert max(seen.values()) == 1


async def test_the_slots_that_have_a_term_are_told_where_that_takes_no_reading_of_all(
    store: Store, other: Store
) -> None:
    await store.subscribe([Subscribe("ann", ["plain"]), Subscribe("ann", ["filtered"], PIZZA)])
    assert await store.expiring_slots() in (None, [])
    topics = [f"song {number}" for number in range(20)]
    await store.subscribe([Subscribe("ann", topics, SOUP, GONE), Subscribe("bob", topics[:3], None, LATER)])
    assert await other.expiring_slots() in (None, sorted(set(map(slot_of, topics))))
    await store.unsubscribe([("ann", topics, None), ("bob", topics[1:2], None)])
    await add(store, "bob", topics[2:3])
    assert await other.expiring_slots() in (None, [slot_of(topics[0])])
    if isinstance(store, EmbeddedStore):
        assert await store.expiring_slots() is not None


@pytest.mark.parametrize("cursor", BAD_CURSORS)
async def test_a_cursor_of_elsewhere_is_refused(store: Store, cursor: str) -> None:
    await add(store, "ann", ["rock"], PIZZA, GONE)
    with pytest.raises(ValueError, match="cursor"):
        await store.topics("ann", cursor, 10)
    with pytest.raises(ValueError, match="cursor"):
        await store.filtered("rock", cursor, 10)
    with pytest.raises(ValueError, match="cursor"):
        await store.expiring(slot_of("rock"), cursor, 10)


# --- everything


async def test_all_of_them_come_once_whole_pages_too(store: Store, other: Store) -> None:
    wanted = {Subscription("hit", f"client {index}") for index in range(3 * PAGE_SUBSCRIPTIONS)}
    wanted |= {Subscription(f"song {index}", "ann") for index in range(PAGE_SUBSCRIPTIONS)}
    wanted |= {Subscription("hit", f"client {index % 99}", numbered(index)) for index in range(PAGE_SUBSCRIPTIONS + 99)}
    await store.subscribe([Subscribe(each.client, [each.topic], each.filter) for each in wanted])
    await add(store, "ann", ["left"])
    await store.unsubscribe([("ann", ["left"], None)])
    clients = [f"passing {index}" for index in range(PAGE_SUBSCRIPTIONS)]
    await store.subscribe([Subscribe(client, ["hit", "miss"], None, LATER) for client in clients])
    found = await everything(other)
    assert set(found.values()) == {1}
    with_terms = {each for each in found if each.term is not None}
    assert found.keys() - with_terms == wanted
    assert {(each.topic, each.client) for each in with_terms} == set(itertools.product(["hit", "miss"], clients))


async def test_what_stays_comes_once_among_all_while_others_come_and_go(store: Store, other: Store) -> None:
    size = PAGE_SUBSCRIPTIONS
    staying = {Subscription(f"staying {index}", f"client {index % 7}") for index in range(size)}
    staying |= {Subscription("hit", f"client {index}", (None, SOUP)[index % 2]) for index in range(2 * size)}
    leaving = [f"leaving {index}" for index in range(size)]
    batch = [Subscribe(each.client, [each.topic], each.filter) for each in staying]
    await store.subscribe([*batch, Subscribe("ann", leaving, PIZZA), Subscribe("leaver", ["hit"], None, GONE)])
    found: Counter[Subscription] = Counter()
    step = 0
    async for page in store.all_subscriptions():
        rows = [each for topic, plain, others in page for each in (*(Subscription(topic, c) for c in plain), *others)]
        found.update(rows)
        # Among them the very last one of the page, and others of the topic in which the page ended.
        await other.unsubscribe([("ann", leaving[step : step + 99], None), ("leaver", ["hit"], None)])
        if rows[-1] not in staying:
            await other.unsubscribe([(rows[-1].client, [rows[-1].topic], rows[-1].filter)])
        await add(other, "ann", [f"coming {step} {index}" for index in range(20)], CHEAP, GONE)
        await add(other, f"a {step}", ["hit"])
        step += 99
    assert step >= 99 * 3
    assert {each: found[each] for each in staying} == dict.fromkeys(staying, 1)
    assert max(found.values()) == 1


# --- ends


@pytest.mark.parametrize("filter", [None, PIZZA])
async def test_what_ends_is_gone_and_is_said_to_have_ended(store: Store, other: Store, filter: str | None) -> None:
    rock, _ = await made(store, "ann", ["rock", "jazz"], filter)
    (bobs,) = await made(store, "bob", ["rock"], filter)
    await add(store, "ann", ["rock"], SOUP)
    assert await other.end([([rock], None, True), ([bobs], None, False)]) == [[rock], [bobs]]
    wanted: Held = {("ann", "rock"): {SOUP: None}, ("ann", "jazz"): {filter: GONE}, ("bob", "rock"): {}}
    await shows(wanted, store, other)
    for handle in (store, other):
        found = await handle.ended(["bob", "nobody", "ann", "ann"])
        assert found == [Ended([("rock", filter)], 1), None, *[Ended([("rock", filter)], 1)] * 2]


async def test_what_was_gone_is_named_again_and_counted_once(store: Store, other: Store) -> None:
    (rock,) = await made(store, "ann", ["rock"], PIZZA)
    for handle in (store, other, store):
        assert await handle.end([([rock], None, True)]) == [[rock]]
        assert await ended(handle, "ann") == Ended([("rock", PIZZA)], 1)
    await listen(store, ["ann"], "here")
    assert await other.end([([rock], None, True)]) == [[rock]]
    assert await ended(other, "ann") == Ended([("rock", PIZZA)], 1)


async def test_what_was_unsubscribed_from_is_gone_and_has_not_ended(store: Store, other: Store) -> None:
    rock, jazz = await made(store, "ann", ["rock", "jazz"])
    await add(store, "ann", ["rock"], PIZZA, replace=True)
    assert await other.end([([rock, jazz], None, True)]) == [[rock, jazz]]
    assert await ended(store, "ann") == Ended([("jazz", None)], 1)
    await shows({("ann", "rock"): {PIZZA: None}, ("ann", "jazz"): {}}, store, other)


@pytest.mark.parametrize("filter", [None, PIZZA])
async def test_one_that_has_another_stamp_or_no_term_stays(store: Store, other: Store, filter: str | None) -> None:
    before, jazz = await made(store, "ann", ["rock", "jazz"], filter)
    (now,) = await made(other, "ann", ["rock"], filter, LATER)
    for only in (True, False):
        assert await store.end([([before], None, only)]) == [[]]
        assert await one(store, "ann", "rock", filter) == now
    assert await ended(store, "ann") is None
    assert await store.end([([before, jazz], None, True)]) == [[jazz]]
    await add(other, "ann", ["rock"], filter)
    assert await store.end([([before, now], None, False)]) == [[]]
    await shows({("ann", "rock"): {filter: None}, ("ann", "jazz"): {}}, store, other)
    assert await ended(store, "ann") == Ended([("jazz", filter)], 1)


async def test_it_ends_only_where_the_location_is_the_given_one(store: Store, other: Store) -> None:
    (rock,) = await made(store, "ann", ["rock"], PIZZA)
    (first,) = await listen(store, ["ann"], "here")
    offline = first._replace(online=False)

    async def stays(*given: Location | None) -> None:
        for location in given:
            assert await store.end([([rock], location, True)]) == [[]]
            assert await one(other, "ann", "rock", PIZZA) == rock
            assert await ended(other, "ann") is None

    await stays(None, offline, first._replace(number=first.number - 1), first._replace(incarnation="elsewhere"))
    await other.unlisten([("ann", first)])
    await stays(None, first)
    (second,) = await listen(other, ["ann"], "there")
    await stays(None, first, offline, second._replace(online=False))
    await other.unlisten([("ann", second)])
    await stays(None, offline)
    away = second._replace(online=False)
    assert await store.end([([rock], away, True)]) == [[rock]]
    assert await ended(other, "ann") == Ended([("rock", PIZZA)], 1)


async def test_one_that_is_not_bound_to_a_location_ends_wherever_the_client_listens(store: Store) -> None:
    (rock,) = await made(store, "ann", ["rock"], PIZZA, LATER)
    await listen(store, ["ann"], "here")
    assert await store.end([([rock], None, False)]) == [[rock]]
    assert await ended(store, "ann") == Ended([("rock", PIZZA)], 1)


async def test_each_entry_is_answered_for_itself(store: Store) -> None:
    mine = await made(store, "ann", ["a", "b", "c"])
    (filtered,) = await made(store, "ann", ["a"], PIZZA)
    (bobs,) = await made(store, "bob", ["a"])
    (here,) = await listen(store, ["bob"], "here")
    batch = [(mine[:1], None, True), ([bobs], None, True), ([], None, False), ([*mine[1:], filtered], None, True)]
    assert await store.end(batch) == [mine[:1], [], [], [*mine[1:], filtered]]
    assert await store.end([([bobs], here, True)]) == [[bobs]]
    assert await ended(store, "ann") == Ended([("a", None), ("a", PIZZA), ("b", None), ("c", None)], 4)


# --- concurrency


async def test_a_client_that_listens_keeps_them_or_is_told(store: Store, other: Store) -> None:
    kept = told = 0
    for turn in range(40):
        filter = (None, PIZZA)[turn // 8 % 2]
        (rock,) = await made(store, "ann", ["rock"], filter)
        (here,) = await listen(store, ["ann"], "before")
        await store.unlisten([("ann", here)])
        away = here._replace(online=False)

        async def come() -> Ended | None:
            ((_, said),) = await other.listen(["ann"], "here")
            return said

        async def end(away: Location = away, rock: Subscription = rock, turn: int = turn) -> list[Subscription]:
            for _ in range(turn % 4):
                await asyncio.sleep(0)
            return (await store.end([([rock], away, True)]))[0]

        if turn % 8 < 4:
            said, out = await asyncio.gather(come(), end())
        else:
            out, said = await asyncio.gather(end(), come())
        if out:
            assert said == Ended([("rock", filter)], 1), "it has ended without a word"
            assert await subscribed(other, "ann", ["rock"]) == [False]
            await add(other, "ann", ["rock"], filter, replace=True)
            told += 1
        else:
            assert await one(other, "ann", "rock", filter) == rock
            kept += 1
        assert await ended(other, "ann") is None
        await store.unsubscribe([("ann", ["rock"], None)])
    assert kept + told == 40


@pytest.mark.parametrize("term", [None, LATER])
async def test_one_that_is_made_anew_meanwhile_stays(store: Store, other: Store, term: Term | None) -> None:
    for turn in range(20):
        filter = (None, PIZZA)[turn % 2]
        (rock,) = await made(store, "ann", ["rock"], filter)
        await asyncio.gather(store.end([([rock], None, True)]), add(other, "ann", ["rock"], filter, term))
        await shows({("ann", "rock"): {filter: term}}, store, other)
        await store.unsubscribe([("ann", ["rock"], None)])


async def test_of_one_with_a_term_and_one_without_at_the_same_time_the_latter_counts(
    store: Store, other: Store
) -> None:
    topics = [f"{index}" for index in range(40)]
    kinds = [(topic, (None, PIZZA)[index % 2]) for index, topic in enumerate(topics)]
    await asyncio.gather(
        *(add(store, "ann", [topic], filter) for topic, filter in kinds),
        *(add(other, "ann", [topic], filter, GONE) for topic, filter in kinds),
    )
    await shows({("ann", topic): {filter: None} for topic, filter in kinds}, store, other)


async def test_concurrent_writers_make_the_union(store: Store, other: Store) -> None:
    # Each handle has eighty concurrent operations, all on the same two topics.
    kinds = [(None, GONE), *((numbered(number), (None, LATER)[number % 2]) for number in range(39))]
    writers = itertools.cycle([store, other])
    await asyncio.gather(
        *(
            add(next(writers), client, ["rock", "jazz"], filter, term)
            for filter, term in kinds
            for client in ("ann", "bob", "cleo")
        ),
        *(add(next(writers), f"client {index}", ["rock", "jazz"]) for index in range(40)),
    )
    held: Held = {(client, topic): dict(kinds) for client in ("ann", "bob", "cleo") for topic in ("rock", "jazz")}
    plain: Held = {(f"client {index}", topic): {None: None} for index in range(40) for topic in ("rock", "jazz")}
    await shows({**held, **plain}, store, other)


async def test_concurrent_writers_and_unsubscribers_lose_no_subscription(store: Store, other: Store) -> None:
    leaving, staying = [f"leaving {i}" for i in range(20)], [f"staying {i}" for i in range(20)]
    kinds = itertools.cycle(KINDS)
    await store.subscribe([Subscribe(client, ["rock"], *next(kinds)) for client in leaving])
    wanted: Held = {(client, "rock"): dict([next(kinds)]) for client in staying}
    await asyncio.gather(
        *(store.unsubscribe([(client, ["rock"], None)]) for client in leaving),
        *(add(other, client, topics, *kind) for (client, *topics), held in wanted.items() for kind in held.items()),
    )
    found = await store.subscriptions_of(list(wanted))
    assert [{each.filter: each.term for each in record} for record in found] == list(wanted.values())
    # "An unsubscription may have to be repeated; a subscription never."
    await store.unsubscribe([(client, ["rock"], None) for client in leaving])
    await shows(wanted, store, other, clients=leaving)


async def test_awaited_operations_take_effect_in_order_at_whichever_handle(store: Store, other: Store) -> None:
    handles = itertools.cycle([store, other, other, store, other])
    for filter, term in KINDS * 3:
        await add(next(handles), "ann", ["rock"], filter, term)
        await next(handles).unsubscribe([("ann", ["rock"], filter)])
        await add(next(handles), "ann", ["rock"], filter, term)
        assert await subscribed(next(handles), "ann", ["rock"]) == [True]
        await add(next(handles), "ann", ["rock"], SOUP, replace=True)
        assert await filters(next(handles), "rock") == {("ann", SOUP)}
        assert await subscribers(next(handles), ["rock"]) == [set()]
        await add(next(handles), "ann", ["rock"], None, GONE)
        assert await subscribers(next(handles), ["rock"]) == [{"ann"}]
        await next(handles).unsubscribe([("ann", ["rock"], None)])
        assert await subscribed(next(handles), "ann", ["rock"]) == [False]


# --- closing


async def test_a_closed_store_is_unavailable_and_may_be_closed_twice(open_store: OpenStore, store: Store) -> None:
    mine = await open_store()
    (rock,) = await made(mine, "ann", ["rock"])
    await mine.close()
    await mine.close()
    for operation in (
        add(mine, "ann", ["rock"]),
        add(mine, "ann", ["rock"], PIZZA, GONE, replace=True),
        mine.unsubscribe([("ann", ["rock"], None)]),
        mine.unsubscribe([("ann", ["rock"], PIZZA)]),
        mine.subscribers(["rock"]),
        mine.subscriptions_of([("ann", "rock")]),
        mine.subscribed("ann", ["rock"]),
        mine.topics("ann", None, 10),
        mine.expiring(slot_of("rock"), None, 10),
        mine.end([([rock], None, True)]),
        everything(mine),
    ):
        with pytest.raises(StoreUnavailable):
            await operation
    if mine.shape.reads_memory:
        for now in (partial(mine.subscribed_now, "ann"), mine.subscribers_now):
            with pytest.raises(StoreUnavailable):
                now(["rock"])
    await shows({("ann", "rock"): {None: GONE}}, store)  # another handle is not affected


async def test_closing_ends_what_is_under_way(open_store: OpenStore) -> None:
    mine = await open_store()
    topics = [f"t{topic}" for topic in range(2_000)]
    under_way = [asyncio.create_task(add(mine, f"c{index}", topics, *KINDS[index])) for index in range(4)]
    await asyncio.sleep(0)  # let each one begin
    await mine.close()
    for outcome in await asyncio.gather(*under_way, return_exceptions=True):
        assert outcome is None or isinstance(outcome, StoreUnavailable)


# --- against a model

CLIENTS = st.sampled_from(["a", "b", "a\0", "é"])
TOPICS = st.lists(st.sampled_from(["a", "b", "ab", "é"]), max_size=4)
HANDLE = st.integers(0, 1)
FILTERS = st.sampled_from([None, PIZZA, SOUP])
TERMS = st.sampled_from([None, GONE, LATER, BOTH])
SOME = st.lists(CLIENTS, max_size=2, unique=True)
PLACES = st.sampled_from(["it", "before", "none"])  # the location given to `end`
# One row per client in a batch: the order of several rows is undefined.
ROWS = st.lists(st.tuples(CLIENTS, TOPICS, FILTERS, TERMS, st.booleans()), max_size=3, unique_by=lambda row: row[0])
STEPS = st.one_of(
    st.tuples(st.just("subscribe"), HANDLE, ROWS),
    st.tuples(st.just("subscribe"), HANDLE, ROWS),
    st.tuples(st.just("unsubscribe"), HANDLE, st.lists(st.tuples(CLIENTS, TOPICS, FILTERS), max_size=3)),
    st.tuples(st.just("end"), HANDLE, st.lists(st.tuples(CLIENTS, TOPICS, st.booleans(), PLACES), max_size=3)),
    st.tuples(st.just("listen"), HANDLE, SOME),
    st.tuples(st.just("unlisten"), HANDLE, SOME),
)

Key = tuple[str, str, str | None]


class Model:
    """The contract's rules, as dictionaries by client, topic and filter."""

    def __init__(self) -> None:
        self.held: dict[Key, Subscription] = {}
        self.past: dict[Key, list[Subscription]] = {}  # all that had a term, in order
        self.ended: dict[str, list[tuple[str, str | None]]] = {}
        self.locations: dict[str, list[Location]] = {}  # by client, in order

    def subscribe(self, row: Subscribe, topic: str, found: Subscription) -> None:
        """Apply a row, with what the store has now."""
        key = row.client, topic, row.filter
        before = self.held.get(key)
        if row.replace:
            self.held = {each: held for each, held in self.held.items() if each[:2] != key[:2]}
        stays = not row.replace and before is not None and before.term is None
        assert found.term == (None if stays else row.term)
        assert (found.stamp == 0) is (found.term is None)
        if found.term is not None:
            past = self.past.setdefault(key, [])
            assert not past or found.stamp > past[-1].stamp
            past.append(found)
        self.held[key] = found
        names = self.ended.get(row.client, [])
        self.ended[row.client] = [each for each in names if each[0] != topic or not (row.replace or each[1] == key[2])]

    def unsubscribe(self, client: str, topics: list[str], filter: str | None) -> None:
        """Remove one subscription, or all."""
        for key in [key for key in self.held if key[0] == client and key[1] in topics]:
            if filter is None or key[2] == filter:
                del self.held[key]

    def end(self, subscriptions: list[Subscription], location: Location | None, only: bool) -> list[Subscription]:
        """Apply one entry."""
        out = []
        for each in subscriptions:
            held = self.held.get((each.client, each.topic, each.filter))
            if held is not None:
                if held.stamp != each.stamp or (only and self.location(each.client) != location):
                    continue
                del self.held[each.client, each.topic, each.filter]
                self.ended.setdefault(each.client, []).append((each.topic, each.filter))
            out.append(each)
        return out

    def location(self, client: str) -> Location | None:
        """Return the client's current location."""
        return self.locations[client][-1] if client in self.locations else None


class Played:
    """Runs steps against two handles, under its own names."""

    def __init__(self, handles: list[Store], mark: str) -> None:
        self.handles, self.mark, self.model = handles, mark, Model()

    async def step(self, name: str, store: Store, batch: list[Any]) -> None:
        """Run one operation on the store and the model."""
        model, mark = self.model, self.mark
        if name == "listen":
            clients = [mark + client for client in batch]
            for client, location in zip(clients, await listen(store, clients, "i"), strict=True):
                model.locations.setdefault(client, []).append(location)
            return
        if name == "unlisten":
            for client in (mark + client for client in batch if mark + client in model.locations):
                location = model.locations[client][-1]
                await store.unlisten([(client, location)])
                model.locations[client].append(location._replace(online=False))
            return
        mine = [(mark + client, [mark + topic for topic in topics], *others) for client, topics, *others in batch]
        if name == "subscribe":
            rows = [Subscribe(*row) for row in mine]
            await store.subscribe(rows)
            for row in rows:
                for topic in dict.fromkeys(row.topics):
                    model.subscribe(row, topic, await one(store, row.client, topic, row.filter))
        elif name == "unsubscribe":
            await store.unsubscribe(mine)
            for each in mine:
                model.unsubscribe(*each)
        else:
            entries = [self.entry(*each) for each in mine]
            assert await store.end(entries) == [model.end(*entry) for entry in entries]

    def entry(
        self, client: str, topics: list[str], only: bool, place: str
    ) -> tuple[list[Subscription], Location | None, bool]:
        """Return an entry of ``end``: the current or last subscriptions; without ``only``, the first topic's first
        one."""
        pasts = [past for key, past in self.model.past.items() if key[0] == client and key[1] in topics]
        chosen = [past[-1 if only or number else 0] for number, past in enumerate(pasts)]
        where = self.model.locations.get(client, [])
        given = where[-1] if where and place == "it" else where[0] if where and place == "before" else None
        return chosen, given, only

    async def compare(self) -> None:
        """Compare everything readable."""
        clients = [self.mark + name for name in ("a", "b", "a\0", "é", "never")]
        wanted: Held = {
            (client, self.mark + topic): {} for client in clients for topic in ("a", "b", "ab", "é", "never")
        }
        for (client, topic, filter), held in self.model.held.items():
            wanted[client, topic][filter] = held.term
        await shows(wanted, *self.handles, is_all=False)
        for store in self.handles:
            found = await store.subscriptions_of([key[:2] for key in self.model.held])
            assert {each for record in found for each in record} == set(self.model.held.values())
            for client in clients:
                names = in_order(Ended(names := self.model.ended.get(client, []), len(names)))
                assert await ended(store, client) == (names if names.total else None)
            assert await store.locations(clients) == [self.model.location(client) for client in clients]


@pytest.mark.parametrize("kind", sorted(ALL))
def test_any_sequence_of_operations_gives_what_the_model_gives(kind: str, tmp_path: Path) -> None:
    # One storage for all examples, because opening it takes longer than an example: each example has its own names.
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
            max_examples=proof.examples(300, 50),
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
