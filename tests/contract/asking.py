"""The questions that the suites ask a store, each in every way that the contract has for it.

Owns: the names that tests use, one call that subscribes, and one that compares everything readable with the expected
state. Must never: know what a test has done.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

from ingeborg.broker.store.base import (
    PAGE_SUBSCRIPTIONS,
    Ended,
    FilterPage,
    Location,
    Store,
    Subscribe,
    Subscribers,
    Subscription,
    Term,
)
from ingeborg.protocol.hashes import slot_of

ODD_TOPICS = [
    "a",
    " ",
    "a ",
    "a/b",
    "a\u00e9",  # composed and decomposed forms are two topics: the store compares bytes
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

NUL_CLIENTS = ["\0", "a\0", "a\0b", "a", "\0a", "a\0" * 64]
"""``ODD_CLIENTS``, and the one character that ends a string in C."""

PIZZA = '{"food":["pizza"]}'
SOUP = '{"food":["soup"]}'
CHEAP = '{"price":[{"numeric":["<",10]}]}'

LONGEST = ['{"a":["%s"]}' % (letter * (4_096 - len('{"a":[""]}'))) for letter in "xy"]
"""Two filters of the greatest length, with the same beginning."""

ODD_FILTERS = [PIZZA, "{}", '{"\u00e9":["\U0001f4fb"]}', '{"\\u0000":[""]}', "f" * 512, "f" * 511, "F" * 511, *LONGEST]

GONE = Term(True, 0.0)
LATER = Term(False, 4e9)
BOTH = Term(True, 4e9 + 0.5)

KINDS = [(None, None), (None, GONE), (PIZZA, None), (PIZZA, BOTH)]
"""A subscription's filter and term."""

of_each_kind = pytest.mark.parametrize(
    ("filter", "term"), KINDS, ids=["plain", "expiring", "filtered", "filtered-expiring"]
)

BAD_CURSORS = ["", "x", "0", "é", "g" * 64, "00", " " * 64, "A" * 64, "9" * 200, "-1", "null"]

Record = dict[str | None, Term | None]
"""A client's record at a topic: filters and their terms. Empty: nothing."""

Held = dict[tuple[str, str], Record]
"""Records by client and topic."""

Answer = TypeVar("Answer")


def numbered(number: int) -> str:
    """Return a filter that no other number has."""
    return f'{{"n":[{number}]}}'


def of_slot(slot: int, count: int) -> list[str]:
    """Return topics of one slot."""
    return list(itertools.islice((topic for topic in map(str, itertools.count()) if slot_of(topic) == slot), count))


async def add(
    store: Store,
    client: str,
    topics: Sequence[str],
    filter: str | None = None,
    term: Term | None = None,
    *,
    replace: bool = False,
) -> None:
    """Subscribe one client."""
    await store.subscribe([Subscribe(client, topics, filter, term, replace)])


async def made(
    store: Store, client: str, topics: Sequence[str], filter: str | None = None, term: Term | None = GONE
) -> list[Subscription]:
    """Subscribe, and return what the store then has."""
    await add(store, client, topics, filter, term)
    return [await one(store, client, topic, filter) for topic in topics]


async def one(store: Store, client: str, topic: str, filter: str | None = None) -> Subscription:
    """Return the client's subscription with this filter, which has to exist."""
    (record,) = await store.subscriptions_of([(client, topic)])
    (found,) = (each for each in record if each.filter == filter)
    return found


async def _said(asked: Callable[..., Awaitable[Answer]], now: Callable[..., Answer | None], *arguments: Any) -> Answer:
    """Return the answer, after checking that an immediate answer is the same."""
    at_once = now(*arguments)
    found = await asked(*arguments)
    assert at_once is None or _plain(at_once) == _plain(found)
    return found


def _plain(answer: Any) -> Any:
    """Return the answer in a comparable form: clients come in any order."""
    match answer:
        case (list(sets), dict(pages)):
            return [sorted(found) for found in sets], pages
    return answer


async def subscribers_of(store: Store, topics: Sequence[str]) -> tuple[list[Subscribers], dict[str, FilterPage]]:
    """Return the clients without a filter, and the first pages of filters."""
    sets, pages = await _said(store.subscribers, store.subscribers_now, topics)
    assert all(len(found) == len(set(found)) for found in sets)
    assert all(page for page, _ in pages.values())
    return sets, pages


async def subscribers(store: Store, topics: Sequence[str]) -> list[set[str]]:
    """Return the clients without a filter."""
    sets, _ = await subscribers_of(store, topics)
    return [set(found) for found in sets]


async def filters(store: Store, topic: str, limit: int = 100) -> set[tuple[str, str]]:
    """Return all pages of the topic's clients and filters; each has to come once."""
    _, pages = await subscribers_of(store, [topic])
    assert set(pages) <= {topic}
    page, cursor = pages.get(topic, ([], None))
    found = list(page)
    while cursor is not None:
        page, cursor = await _said(store.filtered, store.filtered_now, topic, cursor, limit)
        found += page
    assert len(set(found)) == len(found)
    return set(found)


async def subscribed(store: Store, client: str, topics: Sequence[str]) -> list[bool]:
    """Return whether the client has anything at each topic."""
    return await _said(store.subscribed, store.subscribed_now, client, topics)


async def topics_of(store: Store, client: str, limit: int = 100) -> list[str]:
    """Return all pages of a client's topics, after checking the size of each page."""
    topics: list[str] = []
    cursor = None
    while True:
        page, cursor = await store.topics(client, cursor, limit)
        assert len(page) <= limit
        topics += page
        if cursor is None:
            return topics


async def expiring(store: Store, slot: int, limit: int = 100) -> list[Subscription]:
    """Return all pages of the slot's subscriptions with a term; each has to come once.

    Some stores can list a subscription with an earlier term, or one that is gone: this returns only current ones.
    """
    found: list[Subscription] = []
    cursor = None
    while True:
        page, cursor = await store.expiring(slot, cursor, limit)
        found += page
        if cursor is None:
            break
    if await store.expiring_slots() is None:
        records = await store.subscriptions_of([(each.client, each.topic) for each in found])
        found = [each for each, record in zip(found, records, strict=True) if each in record]
    assert len(set(found)) == len(found)
    assert all(each.term is not None and each.stamp for each in found)
    return found


async def everything(store: Store) -> Counter[Subscription]:
    """Return how often each subscription comes in a listing of everything, after checking each page's size and
    shape."""
    found: Counter[Subscription] = Counter()
    async for page in store.all_subscriptions():
        assert 1 <= sum(len(plain) + len(others) for _, plain, others in page) <= PAGE_SUBSCRIPTIONS
        for topic, plain, others in page:
            assert plain or others
            assert all(each.topic == topic for each in others)
            assert all(each.filter is not None or each.term is not None for each in others)
            found.update(Subscription(topic, client) for client in plain)
            found.update(others)
    return found


async def listen(store: Store, clients: Sequence[str], incarnation: str) -> list[Location]:
    """Return the new location of each client."""
    return [location for location, _ in await store.listen(clients, incarnation)]


async def ended(store: Store, client: str) -> Ended | None:
    """Return the client's ended subscriptions, sorted."""
    (found,) = await store.ended([client])
    return None if found is None else in_order(found)


def in_order(found: Ended) -> Ended:
    """Return it with sorted names."""
    return Ended(sorted(found.subscriptions, key=lambda name: (name[0], name[1] or "")), found.total)


async def shows(wanted: Held, *handles: Store, clients: Iterable[str] = (), is_all: bool = True) -> None:
    """Compare everything that each handle can answer about these clients and topics.

    Args:
        wanted: The expected records.
        handles: Handles that all have to answer the same.
        clients: More clients, which have nothing.
        is_all: Whether the store has nothing else.
    """
    topics = [*sorted({topic for _, topic in wanted}), "a topic of nobody"]
    clients = [*sorted({client for client, _ in wanted} | set(clients)), "nobody"]
    held = {pair: record for pair, record in wanted.items() if record}
    for store in handles:
        pairs = list(itertools.product(clients, topics))
        records = await _said(store.subscriptions_of, store.subscriptions_of_now, pairs)
        for (client, topic), record in zip(pairs, records, strict=True):
            assert all((each.topic, each.client) == (topic, client) for each in record)
            assert [each.filter or "" for each in record] == sorted(each.filter or "" for each in record)
            assert {each.filter: each.term for each in record} == held.get((client, topic), {})
            assert all((each.term is None) is (each.stamp == 0) for each in record)
        found = {each for record in records for each in record}
        without = [{client for client, at in held if at == topic and None in held[client, at]} for topic in topics]
        assert await subscribers(store, topics) == without
        _, pages = await subscribers_of(store, topics)
        for topic in topics:
            mine = {(each.client, each.filter) for each in found if each.topic == topic and each.filter is not None}
            assert (topic in pages) is bool(mine)
            assert await filters(store, topic, 2) == mine
        for client in clients:
            assert await subscribed(store, client, topics) == [(client, topic) in held for topic in topics]
            listed = await topics_of(store, client, 2)
            assert sorted(listed) == sorted(topic for whose, topic in held if whose == client)
        with_terms = {each for each in found if each.term is not None}
        slots = {slot_of(topic) for topic in topics}
        rows = {each for slot in slots for each in await expiring(store, slot, 2) if each.topic in topics}
        assert rows == with_terms
        if is_all:
            assert await everything(store) == Counter(found)
            assert await store.expiring_slots() in (None, sorted({slot_of(each.topic) for each in with_terms}))
