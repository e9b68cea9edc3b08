"""What the contract says of subscriptions with filters, on every store of ``conftest.STORES`` and on the simulator's.

A store takes a filter for a text: none of these tests needs one that anybody could match.
"""

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

from ingeborg.broker.store.base import (
    FILTERS_MAX,
    PAGE_SUBSCRIPTIONS,
    Store,
    StoreUnavailable,
    Term,
    TooManyFilters,
)
from tests import proof
from tests.contract.conftest import STORES, OpenStore, Storage
from tests.contract.test_store import ODD_CLIENTS, ODD_TOPICS, everything
from tests.contract.virtual import Virtual, virtual
from tests.store.asked import subscribers, subscribers_now

ALL: dict[str, Storage] = {**STORES, "simulator": virtual}

GONE = Term(True, 0.0)

PIZZA = '{"food":["pizza"]}'
SOUP = '{"food":["soup"]}'
CHEAP = '{"price":[{"numeric":["<",10]}]}'

NUL_CLIENTS = ["\0", "a\0", "a\0b", "a", "\0a", "a\0" * 64]
"""As `ODD_CLIENTS`, with the one character that ends a text in C."""

LONGEST = ['{"a":["%s"]}' % (letter * (4_096 - len('{"a":[""]}'))) for letter in "xy"]
"""Two filters as long as there may be, with the same beginning."""

ODD_FILTERS = [PIZZA, "{}", '{"\u00e9":["\U0001f4fb"]}', '{"\\u0000":[""]}', "f" * 512, "f" * 511, "F" * 511, *LONGEST]


@pytest.fixture(params=sorted(ALL))
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenStore]:
    """Opens handles on one new, empty storage; closes them after the test."""
    async with ALL[request.param](tmp_path) as opener:
        yield opener


async def pairs(store: Store, topic: str, limit: int = 100) -> set[tuple[str, str]]:
    """All pages of the topic's ``(client, filter)``, each there once: the same in whichever way they are asked for."""
    found: list[tuple[str, str]] = []
    cursor = None
    while True:
        now = store.filtered_now([(topic, cursor)], limit)
        ((page, rest),) = await store.filtered([(topic, cursor)], limit)
        assert now is None or [(sorted(said), where) for said, where in now] == [(sorted(page), rest)]
        found += page
        cursor = rest
        if cursor is None:
            assert len(set(found)) == len(found)
            return set(found)


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


async def of(store: Store, client: str, topic: str) -> list[str]:
    """The filters of one client at one topic."""
    (found,) = await store.filters_of([(client, topic)])
    return found


async def all_filtered(store: Store) -> Counter[tuple[str, str, str]]:
    """How often each ``(topic, client, filter)`` comes among all; each page checked for its size."""
    found: Counter[tuple[str, str, str]] = Counter()
    async for page in store.filtered_subscriptions():
        assert 1 <= sum(len(held) for _, held in page) <= PAGE_SUBSCRIPTIONS
        assert all(held for _, held in page)
        found.update((topic, client, text) for topic, held in page for client, text in held)
    return found


def text(number: int) -> str:
    """A filter that is no other number's."""
    return f'{{"n":[{number}]}}'


# --- there


async def test_a_topic_without_filters_has_an_empty_page(store: Store) -> None:
    await store.subscribe([("ann", ["rock"])])
    assert await store.filtered([("nobody", None), ("rock", None)], 10) == [([], None), ([], None)]
    assert store.filtered_now([("nobody", None), ("rock", None)], 10) in (None, [([], None), ([], None)])
    assert await store.filters_of([("ann", "rock"), ("nobody", "rock")]) == [[], []]
    assert await all_filtered(store) == {}


async def test_empty_batches_are_fine(store: Store) -> None:
    await store.subscribe_filtered([])
    await store.subscribe_filtered([("ann", [], PIZZA, False), ("ann", [], PIZZA, True)])
    await store.unsubscribe_filtered([])
    await store.unsubscribe_filtered([("ann", [], PIZZA)])
    await store.unsubscribe([("ann", [])])
    assert await store.filtered([], 10) == []
    assert store.filtered_now([], 10) in (None, [])
    assert await store.filters_of([]) == []
    assert await store.topics("ann", None, 10) == ([], None)
    assert await all_filtered(store) == {}


async def test_a_filter_is_there_for_whoever_asks_for_these(store: Store, other: Store) -> None:
    await store.subscribe([("bob", ["rock"])])
    await store.subscribe_filtered([("ann", ["rock", "jazz"], PIZZA, False), ("cleo", ["jazz"], CHEAP, False)])
    for handle in (store, other):
        assert await pairs(handle, "rock") == {("ann", PIZZA)}
        assert await pairs(handle, "jazz") == {("ann", PIZZA), ("cleo", CHEAP)}
        now = handle.filtered_now([("jazz", None), ("none", None)], 10)
        assert not handle.shape.reads_memory or now is not None
        asked = [("ann", "jazz"), ("bob", "rock"), ("cleo", "jazz"), ("cleo", "rock"), ("ann", "jazz")]
        assert await handle.filters_of(asked) == [[PIZZA], [], [CHEAP], [], [PIZZA]]
        assert sorted(await listing(handle, "ann")) == ["jazz", "rock"]
        assert await listing(handle, "bob") == ["rock"]
    wanted = {("rock", "ann", PIZZA): 1, ("jazz", "ann", PIZZA): 1, ("jazz", "cleo", CHEAP): 1}
    assert await all_filtered(other) == wanted


async def test_several_topics_asked_at_once_come_in_the_order_asked(store: Store) -> None:
    await store.subscribe_filtered([("ann", ["rock"], PIZZA, False), ("bob", ["jazz"], SOUP, False)])
    rock, jazz = ([("ann", PIZZA)], None), ([("bob", SOUP)], None)
    asked = [("jazz", None), ("none", None), ("rock", None), ("jazz", None)]
    assert await store.filtered(asked, 10) == [jazz, ([], None), rock, jazz]
    assert store.filtered_now(asked, 10) in (None, [jazz, ([], None), rock, jazz])


async def named(store: Store, topics: list[str]) -> list[str]:
    """Those that ``subscribers`` says have filters: the same in whichever way it is asked."""
    _, found = await store.subscribers(topics)
    now = store.subscribers_now(topics)
    assert not store.shape.reads_memory or now is not None
    assert now is None or now[1] == found
    return found


async def test_whoever_asks_for_subscribers_is_told_which_topics_have_filters(store: Store, other: Store) -> None:
    await store.subscribe([("ann", ["rock", "plain"])])
    assert await named(other, ["rock", "jazz", "plain", "none"]) == []
    await store.subscribe_filtered([("ann", ["rock", "jazz"], PIZZA, False), ("bob", ["jazz"], SOUP, False)])
    await store.subscribe_ending([("cleo", ["rock"], GONE)])
    for handle in (store, other):
        assert await named(handle, ["rock", "none", "plain", "jazz"]) == ["rock", "jazz"]
        assert await named(handle, ["none", "plain"]) == []
        assert await named(handle, []) == []
    await other.unsubscribe_filtered([("ann", ["rock", "jazz"], PIZZA)])
    for handle in (store, other):
        assert await named(handle, ["rock", "jazz"]) == ["jazz"]
    await store.subscribe_filtered([("ann", ["plain"], CHEAP, True)])
    assert await named(other, ["rock", "jazz", "plain"]) == ["jazz", "plain"]
    await store.unsubscribe([("ann", ["plain"]), ("bob", ["jazz"])])
    for handle in (store, other):
        assert await named(handle, ["rock", "jazz", "plain"]) == []


async def test_they_are_not_among_the_plain_ones_nor_the_ending_ones(store: Store, other: Store) -> None:
    await store.subscribe_filtered([("ann", ["rock"], PIZZA, False)])
    for handle in (store, other):
        assert await subscribers(handle, ["rock"]) == [set()]
        now = subscribers_now(handle, ["rock"])
        assert now is None or [set(found) for found in now] == [set()]
        assert await handle.terms([("ann", "rock")]) == [None]
    if not isinstance(store, Virtual):
        assert await everything(store) == {}


async def test_to_add_one_again_changes_nothing(store: Store, other: Store) -> None:
    for handle in (store, other, store):
        await handle.subscribe_filtered([("ann", ["rock", "rock"], PIZZA, False), ("ann", ["rock"], PIZZA, False)])
        assert await pairs(other, "rock") == {("ann", PIZZA)}
    await other.unsubscribe_filtered([("ann", ["rock"], PIZZA)])
    assert await pairs(store, "rock") == set()


async def test_another_filter_is_added_to_those_that_are_there(store: Store, other: Store) -> None:
    for handle, filter in [(store, SOUP), (other, PIZZA), (store, CHEAP)]:
        await handle.subscribe_filtered([("ann", ["rock"], filter, False)])
    assert await of(store, "ann", "rock") == sorted([PIZZA, SOUP, CHEAP])
    assert await pairs(other, "rock") == {("ann", PIZZA), ("ann", SOUP), ("ann", CHEAP)}
    assert await listing(other, "ann") == ["rock"]


async def test_several_in_one_batch_are_all_there(store: Store, other: Store) -> None:
    await store.subscribe_filtered([("ann", ["rock"], filter, False) for filter in (PIZZA, SOUP, CHEAP)])
    assert await of(other, "ann", "rock") == sorted([PIZZA, SOUP, CHEAP])


async def test_they_survive_that_every_handle_is_closed(open_store: OpenStore) -> None:
    first = await open_store()
    await first.subscribe_filtered([("ann", ["rock"], PIZZA, False), ("ann", ["rock", "jazz"], SOUP, False)])
    await first.unsubscribe_filtered([("ann", ["jazz"], SOUP)])
    await first.close()
    again = await open_store()
    assert await pairs(again, "rock") == {("ann", PIZZA), ("ann", SOUP)}
    assert await listing(again, "ann") == ["rock"]


async def test_odd_topics_clients_and_filters_are_kept_apart_and_whole(store: Store, other: Store) -> None:
    clients = ODD_CLIENTS[::2] + NUL_CLIENTS[::2]
    await store.subscribe_filtered([(client, ODD_TOPICS, ODD_FILTERS[0], False) for client in clients])
    await store.subscribe_filtered([(clients[0], ODD_TOPICS[:1], filter, False) for filter in ODD_FILTERS])
    await store.subscribe_filtered([(NUL_CLIENTS[0], ODD_TOPICS[:1], filter, False) for filter in ODD_FILTERS[:3]])
    wanted = {(topic, client): ODD_FILTERS[:1] for topic in ODD_TOPICS for client in clients}
    wanted[ODD_TOPICS[0], clients[0]] = sorted(ODD_FILTERS)
    wanted[ODD_TOPICS[0], NUL_CLIENTS[0]] = sorted(ODD_FILTERS[:3])
    for topic in ODD_TOPICS:
        mine = {(client, filter) for client in clients for filter in wanted[topic, client]}
        assert await pairs(other, topic, 7) == mine
    for client in ODD_CLIENTS + NUL_CLIENTS:
        assert sorted(await listing(other, client, 3)) == (sorted(ODD_TOPICS) if client in clients else [])
        found = await other.filters_of([(client, topic) for topic in ODD_TOPICS])
        assert found == [wanted.get((topic, client), []) for topic in ODD_TOPICS]
    for client in NUL_CLIENTS[1::2] + ODD_CLIENTS[1::2]:
        await other.unsubscribe([(client, ODD_TOPICS)])
    await other.unsubscribe_filtered([(clients[0], ODD_TOPICS[:1], LONGEST[0])])
    wanted[ODD_TOPICS[0], clients[0]].remove(LONGEST[0])
    found_all = await all_filtered(store)
    assert found_all == {(*key, filter): 1 for key, filters in wanted.items() for filter in filters}


async def test_many_topics_in_one_batch(store: Store, other: Store) -> None:
    topics = [f"song {index}" for index in range(600)]
    await store.subscribe_filtered([("ann", topics, PIZZA, False), ("bob", topics[:10], SOUP, False)])
    pages = await other.filtered([(topic, None) for topic in topics], 10)
    assert [(set(page), rest) for page, rest in pages[:10]] == [({("ann", PIZZA), ("bob", SOUP)}, None)] * 10
    assert pages[10:] == [([("ann", PIZZA)], None)] * 590
    assert sorted(await listing(other, "ann", 99)) == sorted(topics)
    assert await other.filters_of([("ann", topic) for topic in topics]) == [[PIZZA]] * len(topics)
    await other.unsubscribe([("ann", topics[1:])])
    assert await listing(store, "ann") == topics[:1]


async def test_many_long_filters_in_one_batch(store: Store, other: Store) -> None:
    longest = [f'{{"a":["{number}{"x" * 4_000}"]}}' for number in range(FILTERS_MAX)]
    await store.subscribe_filtered([(f"c{index % 4}", ["rock"], filter, False) for index, filter in enumerate(longest)])
    assert await pairs(other, "rock") == {(f"c{index % 4}", filter) for index, filter in enumerate(longest)}


# --- gone


async def test_one_filter_is_taken_out_and_all_else_stays(store: Store, other: Store) -> None:
    both = [(client, ["rock", "jazz"], filter, False) for client in ("ann", "bob") for filter in (PIZZA, SOUP)]
    await store.subscribe_filtered(both)
    await store.subscribe([("ann", ["rock"])])
    await store.subscribe_ending([("ann", ["jazz"], GONE)])
    for _ in range(2):
        await other.unsubscribe_filtered([("ann", ["rock", "jazz", "never had"], PIZZA), ("ann", ["rock"], CHEAP)])
        for topic in ("rock", "jazz"):
            assert await pairs(store, topic) == {("ann", SOUP), ("bob", PIZZA), ("bob", SOUP)}
            assert await subscribers(store, [topic]) == [{"ann"}]
        assert sorted(await listing(store, "ann")) == ["jazz", "rock"]


async def test_the_last_filter_of_a_client_takes_its_topic_along(store: Store, other: Store) -> None:
    await store.subscribe_filtered([("ann", ["rock"], PIZZA, False), ("ann", ["rock"], SOUP, False)])
    await store.unsubscribe_filtered([("ann", ["rock"], PIZZA)])
    assert await listing(other, "ann") == ["rock"]
    await other.unsubscribe_filtered([("ann", ["rock"], SOUP)])
    assert await listing(store, "ann") == []
    assert await pairs(store, "rock") == set()
    assert await all_filtered(store) == {}
    await store.subscribe_filtered([("bob", ["rock"], PIZZA, False)])
    assert await pairs(other, "rock") == {("bob", PIZZA)}


async def test_unsubscribing_takes_out_everything_of_the_client(store: Store, other: Store) -> None:
    await store.subscribe([("ann", ["all", "plain"])])
    await store.subscribe_filtered([("ann", ["all", "stays"], filter, False) for filter in (PIZZA, SOUP)])
    await store.subscribe_filtered([("ann", ["filtered"], CHEAP, False), ("bob", ["all"], PIZZA, False)])
    await store.subscribe_ending([("ann", ["ending", "filtered"], GONE)])
    for _ in range(2):
        await other.unsubscribe([("ann", ["all", "plain", "ending", "filtered", "never had"])])
        assert await subscribers(store, ["all", "plain", "ending", "filtered"]) == [set()] * 4
        assert await pairs(store, "all") == {("bob", PIZZA)}
        assert await pairs(store, "filtered") == set()
        assert await listing(store, "ann") == ["stays"]
        assert await of(store, "ann", "stays") == sorted([PIZZA, SOUP])


async def test_one_clients_filters_are_no_matter_of_the_others(store: Store) -> None:
    clients = ["a", "a ", "aa", "\0", "a\0"]
    await store.subscribe_filtered([(client, ["rock"], PIZZA, False) for client in clients])
    await store.unsubscribe([("a", ["rock"])])
    assert await pairs(store, "rock") == {(client, PIZZA) for client in clients[1:]}
    await store.subscribe_filtered([("aa", ["rock"], SOUP, True)])
    assert await pairs(store, "rock") == {("a ", PIZZA), ("aa", SOUP), ("\0", PIZZA), ("a\0", PIZZA)}


# --- beside plain and ending ones


async def test_a_plain_one_and_an_ending_one_stand_beside_filters(store: Store, other: Store) -> None:
    await store.subscribe_filtered([("ann", ["rock", "jazz"], PIZZA, False)])
    await other.subscribe([("ann", ["rock"])])
    await other.subscribe_ending([("ann", ["jazz"], GONE)])
    for handle in (store, other):
        assert await subscribers(handle, ["rock", "jazz"]) == [{"ann"}, {"ann"}]
        assert await handle.terms([("ann", "rock"), ("ann", "jazz")]) == [None, GONE]
        assert await pairs(handle, "rock") == await pairs(handle, "jazz") == {("ann", PIZZA)}
    await store.subscribe_filtered([("ann", ["rock", "jazz"], SOUP, False)])
    assert await subscribers(other, ["rock", "jazz"]) == [{"ann"}, {"ann"}]
    await store.unsubscribe_filtered([("ann", ["rock", "jazz"], filter) for filter in (PIZZA, SOUP)])
    assert await subscribers(other, ["rock", "jazz"]) == [{"ann"}, {"ann"}]
    assert await pairs(other, "rock") == await pairs(other, "jazz") == set()


@pytest.mark.parametrize("limit", [1, 2, 7, 40, 41])
async def test_pages_of_a_clients_topics_have_all_kinds_once(store: Store, limit: int) -> None:
    topics = [f"song {index}" for index in range(40)]
    await store.subscribe([("ann", topics[:20]), ("anna", ["other"])])
    await store.subscribe_filtered([("ann", topics[10:30], PIZZA, False), ("ann", topics[15:25], SOUP, False)])
    await store.subscribe_filtered([("an", ["another"], PIZZA, False)])
    await store.subscribe_ending([("ann", topics[25:], GONE)])
    assert sorted(await listing(store, "ann", limit)) == sorted(topics)


async def test_a_topic_that_stays_comes_once_while_others_come_and_go(store: Store, other: Store) -> None:
    staying, leaving = [f"staying {i}" for i in range(40)], [f"leaving {i}" for i in range(40)]
    await store.subscribe_filtered([("ann", staying + leaving, PIZZA, False)])
    seen: Counter[str] = Counter()
    cursor = None
    for step in range(100):
        page, cursor = await store.topics("ann", cursor, 5)
        seen.update(page)
        if cursor is None:
            break
        gone = [topic for topic in page if topic in leaving][-1:] + leaving[step : step + 2]
        await other.unsubscribe([("ann", gone)])
        # Whatever it is subscribed to as, it stays.
        await other.subscribe([("ann", [staying[step % 40], f"coming {step}"])])
        await other.subscribe_filtered([("ann", [staying[(step + 9) % 40]], SOUP, True)])
    assert cursor is None
    assert {topic: seen[topic] for topic in staying} == dict.fromkeys(staying, 1)
    assert max(seen.values()) == 1


# --- instead of all else


async def test_it_takes_the_place_of_other_filters(store: Store, other: Store) -> None:
    await store.subscribe_filtered([("ann", ["rock", "jazz"], filter, False) for filter in (PIZZA, SOUP)])
    await store.subscribe_filtered([("bob", ["rock"], PIZZA, False)])
    for _ in range(2):
        await other.subscribe_filtered([("ann", ["rock", "new"], CHEAP, True)])
        assert await pairs(store, "rock") == {("ann", CHEAP), ("bob", PIZZA)}
        assert await pairs(store, "new") == {("ann", CHEAP)}
        assert await pairs(store, "jazz") == {("ann", PIZZA), ("ann", SOUP)}
        assert sorted(await listing(store, "ann")) == ["jazz", "new", "rock"]


async def test_one_of_those_that_are_there_may_be_the_one_that_stays(store: Store, other: Store) -> None:
    await store.subscribe_filtered([("ann", ["rock"], filter, False) for filter in (PIZZA, SOUP, CHEAP)])
    await other.subscribe_filtered([("ann", ["rock"], SOUP, True)])
    assert await of(store, "ann", "rock") == [SOUP]
    assert await pairs(store, "rock") == {("ann", SOUP)}


async def test_it_takes_the_place_of_a_plain_one_and_of_an_ending_one(store: Store, other: Store) -> None:
    await store.subscribe([("ann", ["rock", "stays"]), ("bob", ["rock"])])
    await store.subscribe_ending([("ann", ["jazz"], GONE), ("bob", ["jazz"], GONE)])
    await other.subscribe_filtered([("ann", ["rock", "jazz"], PIZZA, True)])
    for handle in (store, other):
        assert await subscribers(handle, ["rock", "jazz", "stays"]) == [{"bob"}, {"bob"}, {"ann"}]
        assert await handle.terms([("ann", "jazz"), ("bob", "jazz")]) == [None, GONE]
        assert await pairs(handle, "rock") == await pairs(handle, "jazz") == {("ann", PIZZA)}
        assert sorted(await listing(handle, "ann")) == ["jazz", "rock", "stays"]
    if not isinstance(store, Virtual):
        assert await everything(store) == {("rock", "bob"): 1, ("stays", "ann"): 1}


async def test_a_client_is_never_without_anything_while_one_takes_the_place_of_another(
    store: Store, other: Store
) -> None:
    topics = [f"{index}" for index in range(12)]
    await store.subscribe([("ann", topics[:6])])
    await store.subscribe_ending([("ann", topics[6:], GONE)])
    filters = itertools.cycle([PIZZA, SOUP, CHEAP])
    for _ in range(4):
        filter = next(filters)
        changing = asyncio.gather(*(other.subscribe_filtered([("ann", [topic], filter, True)]) for topic in topics))
        while not changing.done():
            # In this order: what is no plain one any more has its filter by then.
            plain = await subscribers(store, topics)
            found = await store.filters_of([("ann", topic) for topic in topics])
            assert all(held or "ann" in clients for held, clients in zip(found, plain, strict=True))
            assert sorted(await listing(store, "ann")) == sorted(topics)
            await asyncio.sleep(0)
        await changing
        assert await store.filters_of([("ann", topic) for topic in topics]) == [[filter]] * len(topics)
    assert await subscribers(store, topics) == [set()] * len(topics)


# --- how many


async def test_a_client_has_no_more_than_its_number_at_a_topic(store: Store, other: Store) -> None:
    half = FILTERS_MAX // 2
    await store.subscribe_filtered([("ann", ["rock"], text(number), False) for number in range(half)])
    await other.subscribe_filtered([("ann", ["rock"], text(number), False) for number in range(half, FILTERS_MAX)])
    full = sorted(map(text, range(FILTERS_MAX)))
    for handle in (store, other):
        with pytest.raises(TooManyFilters):
            await handle.subscribe_filtered([("ann", ["rock"], PIZZA, False)])
        assert await of(handle, "ann", "rock") == full
        await handle.subscribe_filtered([("ann", ["rock"], text(3), False)])  # which it has
        await handle.subscribe_filtered([("ann", ["jazz"], PIZZA, False), ("bob", ["rock"], PIZZA, False)])
    await store.unsubscribe_filtered([("ann", ["rock"], text(0))])
    await other.subscribe_filtered([("ann", ["rock"], PIZZA, False)])
    assert await of(store, "ann", "rock") == sorted([*full[1:], PIZZA])
    await other.subscribe_filtered([("ann", ["rock"], SOUP, True)])
    assert await of(store, "ann", "rock") == [SOUP]


async def test_too_many_in_one_batch_are_refused(store: Store, other: Store) -> None:
    with pytest.raises(TooManyFilters):
        await store.subscribe_filtered([("ann", ["rock"], text(number), False) for number in range(FILTERS_MAX + 1)])
    assert len(await of(other, "ann", "rock")) <= FILTERS_MAX
    await other.subscribe_filtered([("ann", ["rock"], PIZZA, True)])
    assert await pairs(store, "rock") == {("ann", PIZZA)}


async def test_what_was_written_beside_a_topic_with_too_many_is_listed(store: Store, other: Store) -> None:
    await store.subscribe_filtered([("ann", ["rock"], text(number), False) for number in range(FILTERS_MAX)])
    topics = ["rock", *(f"topic {number}" for number in range(300))]
    with pytest.raises(TooManyFilters):
        await store.subscribe_filtered([("ann", topics, PIZZA, False)])
    await store.subscribe_filtered([("bob", ["rock"], PIZZA, False)])  # behind what was under way
    found = await other.filters_of([("ann", topic) for topic in topics])
    listed, _ = await other.topics("ann", None, 1_000)
    assert sorted(listed) == sorted(topic for topic, filters in zip(topics, found, strict=True) if filters)


# --- pages


@pytest.mark.parametrize("limit", [1, 3, 7, 1_000])
async def test_pages_of_a_topic_have_its_pairs_once(store: Store, other: Store, limit: int) -> None:
    wanted = {(f"client {index % 20}", text(index)) for index in range(50)}
    await store.subscribe_filtered([(client, ["rock"], filter, False) for client, filter in wanted])
    await store.subscribe_filtered([("ann", ["roc", "rock "], PIZZA, False)])
    assert await pairs(other, "rock", limit) == wanted


async def test_pages_of_several_topics_go_on_side_by_side(store: Store) -> None:
    wanted = {f"t{number}": {(f"client {index}", PIZZA) for index in range(7 * number)} for number in range(4)}
    batch = [(client, [topic], filter, False) for topic, held in wanted.items() for client, filter in held]
    await store.subscribe_filtered(batch)
    found: dict[str, list[tuple[str, str]]] = {topic: [] for topic in wanted}
    asked: list[tuple[str, str | None]] = [(topic, None) for topic in wanted]
    while asked:
        pages = await store.filtered(asked, 4)
        rest: list[tuple[str, str | None]] = []
        for (topic, _), (page, cursor) in zip(asked, pages, strict=True):
            found[topic] += page
            if cursor is not None:
                rest.append((topic, cursor))
        asked = rest
    assert {topic: sorted(held) for topic, held in found.items()} == {t: sorted(held) for t, held in wanted.items()}


async def test_what_stays_comes_once_while_others_come_and_go(store: Store, other: Store) -> None:
    staying, leaving = [f"staying {i}" for i in range(30)], [f"leaving {i}" for i in range(30)]
    await store.subscribe_filtered([(client, ["rock"], PIZZA, False) for client in staying + leaving])
    seen: Counter[tuple[str, str]] = Counter()
    cursor = None
    for step in range(200):
        ((page, cursor),) = await store.filtered([("rock", cursor)], 4)
        seen.update(page)
        if cursor is None:
            break
        # Sometimes the very one that the cursor stands on.
        gone = [client for client, _ in page if client in leaving][-1:] + leaving[step : step + 1]
        await other.unsubscribe([(client, ["rock"]) for client in gone])
        await other.subscribe_filtered(
            [(f"coming {step}", ["rock"], PIZZA, False), (staying[step % 30], ["rock"], SOUP, False)]
        )
    assert cursor is None
    assert {client: seen[client, PIZZA] for client in staying} == dict.fromkeys(staying, 1)
    assert max(seen.values()) == 1


@pytest.mark.parametrize("cursor", ["", "x", "0", "é", "g" * 64, "00", " " * 64, "A" * 64, "9" * 200, "-1", "null"])
async def test_a_cursor_of_elsewhere_is_refused(store: Store, cursor: str) -> None:
    await store.subscribe_filtered([("ann", ["rock"], PIZZA, False)])
    with pytest.raises(ValueError, match="cursor"):
        await store.filtered([("rock", cursor)], 10)


async def test_a_topic_with_thousands_of_pairs(store: Store, other: Store) -> None:
    wanted = {(f"client {index}", text(index % 700)) for index in range(3 * PAGE_SUBSCRIPTIONS)}
    await store.subscribe_filtered([(client, ["hit"], filter, False) for client, filter in wanted])
    assert await pairs(other, "hit", 500) == wanted
    assert await all_filtered(other) == {("hit", client, filter): 1 for client, filter in wanted}
    await other.unsubscribe([(f"client {index}", ["hit"]) for index in range(1, 3 * PAGE_SUBSCRIPTIONS)])
    assert await pairs(store, "hit") == {("client 0", text(0))}


async def test_all_of_them_come_once_while_others_come_and_go(store: Store, other: Store) -> None:
    if isinstance(store, Virtual):
        return  # it gives them all in one instant
    staying = {(f"staying {index}", f"client {index % 7}", PIZZA) for index in range(PAGE_SUBSCRIPTIONS)}
    staying |= {("hit", f"client {index}", SOUP) for index in range(PAGE_SUBSCRIPTIONS)}
    leaving = [f"leaving {index}" for index in range(PAGE_SUBSCRIPTIONS // 2)]
    await store.subscribe_filtered([(client, [topic], filter, False) for topic, client, filter in staying])
    await store.subscribe_filtered([("ann", leaving, PIZZA, False), ("leaver", ["hit"], PIZZA, False)])
    found: Counter[tuple[str, str, str]] = Counter()
    step = 0
    async for page in store.filtered_subscriptions():
        found.update((topic, client, filter) for topic, held in page for client, filter in held)
        last, held = page[-1]
        await other.unsubscribe([("ann", leaving[step : step + 99]), ("leaver", ["hit"])])
        if (last, *held[-1]) not in staying:
            await other.unsubscribe_filtered([(held[-1][0], [last], held[-1][1])])
        await other.subscribe_filtered([("ann", [f"coming {step}"], PIZZA, False), (f"a {step}", ["hit"], SOUP, False)])
        step += 99
    assert step >= 99 * 2
    assert {entry: found[entry] for entry in staying} == dict.fromkeys(staying, 1)
    assert max(found.values()) == 1


# --- at the same time


async def test_reads_see_every_write_that_has_returned_at_whichever_handle(store: Store, other: Store) -> None:
    for index, (writer, reader) in enumerate(itertools.islice(itertools.cycle([(store, other), (other, store)]), 20)):
        await writer.subscribe_filtered([("ann", ["rock"], text(index), index % 3 == 2)])
        assert ("ann", text(index)) in await pairs(reader, "rock")
        assert text(index) in await of(reader, "ann", "rock")
        if index % 2:
            await writer.unsubscribe_filtered([("ann", ["rock"], text(index))])
            assert ("ann", text(index)) not in await pairs(reader, "rock")


async def test_concurrent_writers_make_the_union(store: Store, other: Store) -> None:
    filters = [text(number) for number in range(40)]
    await asyncio.gather(
        *(
            writer.subscribe_filtered([(client, ["rock", "jazz"], filter, False)])
            for filter, writer in zip(filters, [store, other] * 20, strict=True)
            for client in ("ann", "bob")
        )
    )
    for handle in (store, other):
        for topic in ("rock", "jazz"):
            assert await pairs(handle, topic) == {(client, filter) for client in ("ann", "bob") for filter in filters}
        assert sorted(await listing(handle, "ann")) == ["jazz", "rock"]


async def test_concurrent_writers_and_unsubscribers_lose_no_filter(store: Store, other: Store) -> None:
    leaving, staying = [f"leaving {i}" for i in range(20)], [f"staying {i}" for i in range(20)]
    await store.subscribe_filtered([(client, ["rock"], PIZZA, False) for client in leaving])
    await asyncio.gather(
        *(store.unsubscribe([(client, ["rock"])]) for client in leaving[:10]),
        *(store.unsubscribe_filtered([(client, ["rock"], PIZZA)]) for client in leaving[10:]),
        *(other.subscribe_filtered([(client, ["rock"], PIZZA, False)]) for client in staying),
    )
    assert {(client, PIZZA) for client in staying} <= await pairs(store, "rock")
    # "An unsubscription may have to be repeated; a subscription never."
    await store.unsubscribe([(client, ["rock"]) for client in leaving])
    assert await pairs(other, "rock") == {(client, PIZZA) for client in staying}


async def test_of_two_that_take_all_elses_place_at_the_same_time_one_at_least_stays(store: Store, other: Store) -> None:
    topics = [f"{index}" for index in range(10)]
    await store.subscribe_filtered([("ann", topics, CHEAP, False)])
    await asyncio.gather(
        *(store.subscribe_filtered([("ann", [topic], PIZZA, True)]) for topic in topics),
        *(other.subscribe_filtered([("ann", [topic], SOUP, True)]) for topic in topics),
    )
    for found in await store.filters_of([("ann", topic) for topic in topics]):
        assert found in ([PIZZA], [SOUP], [PIZZA, SOUP])


async def test_one_that_takes_all_elses_place_stays_beside_one_that_is_added(store: Store, other: Store) -> None:
    topics = [f"{index}" for index in range(10)]
    await store.subscribe_filtered([("ann", topics, CHEAP, False)])
    await asyncio.gather(
        *(store.subscribe_filtered([("ann", [topic], PIZZA, True)]) for topic in topics),
        *(other.subscribe_filtered([("ann", [topic], SOUP, False)]) for topic in topics),
    )
    for found in await store.filters_of([("ann", topic) for topic in topics]):
        # What one of two writers that missed each other has taken out may come back, by the union.
        assert found in ([PIZZA], [PIZZA, SOUP], sorted([PIZZA, SOUP, CHEAP]))


async def test_awaited_operations_take_effect_in_order(store: Store, other: Store) -> None:
    for writer in (store, other, store):
        await writer.subscribe_filtered([("ann", ["rock"], PIZZA, False)])
        await other.unsubscribe_filtered([("ann", ["rock"], PIZZA)])
        await store.subscribe_filtered([("ann", ["rock"], PIZZA, False)])
        assert await pairs(other, "rock") == {("ann", PIZZA)}
        await writer.unsubscribe([("ann", ["rock"])])
        assert await pairs(store, "rock") == set()
        await other.subscribe([("ann", ["rock"])])
        await writer.subscribe_filtered([("ann", ["rock"], SOUP, True)])
        assert await subscribers(other, ["rock"]) == [set()]
        await other.subscribe([("ann", ["rock"])])
        assert await subscribers(store, ["rock"]) == [{"ann"}]
        assert await pairs(store, "rock") == {("ann", SOUP)}
        await other.unsubscribe([("ann", ["rock"])])


async def test_a_closed_store_is_unavailable(open_store: OpenStore) -> None:
    mine = await open_store()
    if isinstance(mine, Virtual):
        return  # there is nothing to close
    await mine.close()

    async def through() -> None:
        async for _ in mine.filtered_subscriptions():
            pass

    for operation in (
        mine.subscribe_filtered([("ann", ["rock"], PIZZA, False)]),
        mine.subscribe_filtered([("ann", ["rock"], PIZZA, True)]),
        mine.unsubscribe_filtered([("ann", ["rock"], PIZZA)]),
        mine.unsubscribe([("ann", ["rock"])]),
        mine.filtered([("rock", None)], 10),
        mine.filters_of([("ann", "rock")]),
        mine.topics("ann", None, 10),
        through(),
    ):
        with pytest.raises(StoreUnavailable):
            await operation


# --- against a model ---------------------------------------------------------------------------------------------

CLIENTS = st.sampled_from(["a", "b", "a\0", "é"])
SOME = st.lists(st.sampled_from(["a", "b", "ab", "é"]), max_size=4)
HANDLE = st.integers(0, 1)
FILTERS = st.sampled_from([PIZZA, SOUP, CHEAP])
PAIRS = st.lists(st.tuples(CLIENTS, SOME), max_size=3)
# Of one client only one in a batch takes the place of all else: in which order those of a batch are done nobody says.
REPLACING = st.lists(st.tuples(CLIENTS, SOME, FILTERS, st.just(True)), max_size=2, unique_by=lambda entry: entry[0])
ADDING = st.lists(st.tuples(CLIENTS, SOME, FILTERS, st.just(False)), max_size=3)
STEPS = st.one_of(
    st.tuples(st.just("subscribe"), HANDLE, PAIRS),
    st.tuples(st.just("subscribe_ending"), HANDLE, PAIRS),
    st.tuples(st.just("unsubscribe"), HANDLE, PAIRS),
    st.tuples(st.just("subscribe_filtered"), HANDLE, ADDING),
    st.tuples(st.just("subscribe_filtered"), HANDLE, ADDING),
    st.tuples(st.just("subscribe_filtered"), HANDLE, REPLACING),
    st.tuples(st.just("unsubscribe_filtered"), HANDLE, st.lists(st.tuples(CLIENTS, SOME, FILTERS), max_size=3)),
)


class Model:
    """What the contract says, as sets."""

    def __init__(self) -> None:
        self.plain: set[tuple[str, str]] = set()  # (client, topic)
        self.ending: set[tuple[str, str]] = set()
        self.filtered: set[tuple[str, str, str]] = set()  # (client, topic, filter)

    def subscribe(self, client: str, topic: str) -> None:
        """Plain."""
        self.plain.add((client, topic))
        self.ending.discard((client, topic))

    def subscribe_ending(self, client: str, topic: str) -> None:
        """Where there is no plain one."""
        if (client, topic) not in self.plain:
            self.ending.add((client, topic))

    def unsubscribe(self, client: str, topic: str) -> None:
        """Of all kinds."""
        self.plain.discard((client, topic))
        self.ending.discard((client, topic))
        self.filtered = {entry for entry in self.filtered if entry[:2] != (client, topic)}

    def subscribe_filtered(self, client: str, topic: str, filter: str, replace: bool) -> None:
        """Beside what there is, or instead."""
        if replace:
            self.unsubscribe(client, topic)
        self.filtered.add((client, topic, filter))

    def unsubscribe_filtered(self, client: str, topic: str, filter: str) -> None:
        """That one."""
        self.filtered.discard((client, topic, filter))


async def played(store: Store, model: Model, mark: str, name: str, batch: Sequence[Any]) -> None:
    """One operation under names of their own, and what the model makes of it."""
    mine = [(mark + client, [mark + topic for topic in topics], *others) for client, topics, *others in batch]
    if name == "subscribe":
        await store.subscribe(mine)
    elif name == "unsubscribe":
        await store.unsubscribe(mine)
    elif name == "subscribe_ending":
        await store.subscribe_ending([(client, topics, GONE) for client, topics in mine])
    else:
        await getattr(store, name)(mine)
    for client, topics, *others in mine:
        for topic in topics:
            getattr(model, name)(client, topic, *others)


async def compare(store: Store, model: Model, mark: str) -> None:
    """All that can be read."""
    clients = [mark + name for name in ("a", "b", "a\0", "é", "never")]
    names = [mark + name for name in ("a", "b", "ab", "é", "never")]
    full = model.plain | model.ending
    assert await subscribers(store, names) == [{c for c, t in full if t == topic} for topic in names]
    assert await named(store, names) == [topic for topic in names if any(t == topic for _, t, _ in model.filtered)]
    for topic in names:
        assert await pairs(store, topic, 2) == {(c, f) for c, t, f in model.filtered if t == topic}
    with_filters = {(client, topic) for client, topic, _ in model.filtered}
    for client in clients:
        everywhere = full | with_filters
        assert sorted(await listing(store, client, 2)) == sorted(t for c, t in everywhere if c == client)
        for unfiltered, those in ((False, everywhere), (True, full)):
            wanted_of = [(client, topic) in those for topic in names]
            assert await store.subscribed(client, names, unfiltered) == wanted_of
            assert store.subscribed_now(client, names, unfiltered) in (None, wanted_of)
    asked = list(itertools.product(clients, names))
    wanted = [sorted(f for c, t, f in model.filtered if (c, t) == pair) for pair in asked]
    assert await store.filters_of(asked) == wanted


@pytest.mark.parametrize("kind", sorted(ALL.keys() - {"riak-double-tls"}))
def test_any_sequence_of_operations_gives_what_the_model_gives(kind: str, tmp_path: Path) -> None:
    # One storage for all examples, because opening it takes longer than an example: each has names of its own.
    fresh = itertools.count()

    async def check(handles: list[Store], steps: list[tuple[str, int, list[Any]]]) -> None:
        model, mark = Model(), f"{next(fresh)}:"
        for name, handle, batch in steps:
            await played(handles[handle], model, mark, name, batch)
        for store in handles:
            await compare(store, model, mark)

    with asyncio.Runner() as runner:
        storage = ALL[kind](tmp_path)

        async def start() -> list[Store]:
            opener = await storage.__aenter__()
            return [await opener(), await opener()]

        handles = runner.run(start())

        @settings(
            max_examples=proof.examples(80, 12),
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(st.lists(STEPS, max_size=12))
        def examples(steps: list[tuple[str, int, list[Any]]]) -> None:
            runner.run(check(handles, steps))

        try:
            examples()
        finally:
            runner.run(storage.__aexit__(None, None, None))
