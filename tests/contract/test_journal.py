"""The contract's rules for the journal of retained messages, on the stores that have one and on the simulator's. Riak
has to say that it has none."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from operator import itemgetter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingeborg.broker.store.base import (
    EPOCHS_MAX,
    KEEP_BYTES,
    RETAINED_PAGE_BYTES,
    VOID,
    RetainedMessage,
    Store,
    StoreError,
)
from ingeborg.protocol.hashes import SLOTS
from tests import proof
from tests.contract.conftest import STORES, OpenStore, Storage, embedded
from tests.contract.virtual import virtual

ALL: dict[str, Storage] = {"embedded": embedded, "simulator": virtual}

TOP = VOID - 1
"""The greatest possible stamp."""


@pytest.fixture(params=sorted(ALL))
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenStore]:
    """Open handles on one new, empty storage, and close them after the test."""
    async with ALL[request.param](tmp_path) as opener:
        yield opener


def message(slot: int, stamp: int, payload: bytes = b"{}", topic: str = "rock") -> RetainedMessage:
    """Return a message that differs from those of all other places."""
    return RetainedMessage(slot, stamp, topic, payload, f"origin {slot}", stamp % 1_000_000, 1.5 + stamp % 1_000)


async def read(store: Store, slots: list[int], limit: int = 100) -> tuple[list[RetainedMessage], dict[int, int]]:
    """Return all pages: messages and floors."""
    found: list[RetainedMessage] = []
    floors: dict[int, int] = {}
    cursor = None
    while True:
        before = cursor
        page, raised, cursor = await store.retained(slots, before, limit)
        assert len(page) <= limit
        assert page or cursor is None
        assert not raised or before is None or cursor is None
        found += page
        floors.update(raised)
        if cursor is None:
            return found, floors


async def test_there_is_nothing_at_first(store: Store) -> None:
    assert store.shape.journal
    assert await store.retained([1, 2], None, 10) == ([], [], None)
    assert await store.retained([], None, 10) == ([], [], None)
    assert await store.retained_top() == 0
    await store.keep([], [], [])
    assert await store.retained(range(SLOTS), None, 10) == ([], [], None)
    assert await store.retained_top() == 0


async def test_all_of_a_message_comes_back_at_whichever_handle(store: Store, other: Store) -> None:
    one = RetainedMessage(7, 3, "r\u00f6ck", b'{"\x00": "\xff"}', "me 1", (1 << 53) - 1, 1_700_000_000.25)
    await store.keep([one], [], [])
    assert await other.retained([7], None, 10) == ([one], [], None)


async def test_they_come_in_the_order_of_slot_and_stamp(store: Store) -> None:
    places = [(0, 5), (0, 1 << 40), (0, 255), (0, 256), (1, 1), (255, 9), (256, 2), (SLOTS - 1, TOP), (SLOTS - 1, 0)]
    await store.keep([message(*place) for place in places], [], [])
    found, _ = await read(store, [SLOTS - 1, 256, 255, 1, 0, 0, 77])
    assert [(kept.slot, kept.stamp) for kept in found] == sorted(places)
    found, _ = await read(store, [1, 256])
    assert [(kept.slot, kept.stamp) for kept in found] == [(1, 1), (256, 2)]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_pages_have_all_of_them_once(store: Store, limit: int) -> None:
    all_of_them = [message(slot, stamp) for slot in (2, 4, 9) for stamp in range(5)]
    await store.keep(all_of_them, [], [(4, 2), (5, 1)])
    assert await read(store, [9, 4, 2], limit) == (all_of_them, {4: 2})
    assert await read(store, [3, 4, 5], limit) == (all_of_them[5:10], {4: 2, 5: 1})


async def test_what_goes_between_two_pages_is_missed_nowhere(store: Store) -> None:
    await store.keep([message(1, stamp) for stamp in range(6)], [], [])
    first, floors, cursor = await store.retained([1], None, 2)
    assert ([kept.stamp for kept in first], floors) == ([0, 1], [])
    # Including the last message of the page.
    await store.keep([message(1, 9)], [(1, 1), (1, 2), (1, 3)], [(1, 3)])
    rest, floors, cursor = await store.retained([1], cursor, 10)
    assert ([kept.stamp for kept in rest], floors, cursor) == ([4, 5, 9], [(1, 3)], None)


async def test_a_message_of_the_same_place_takes_its_place(store: Store) -> None:
    await store.keep([message(1, 1, b"1")], [], [])
    await store.keep([message(1, 1, b"2")], [], [])
    assert await read(store, [1]) == ([message(1, 1, b"2")], {})


async def test_what_is_forgotten_goes_and_all_may_be_said_twice(store: Store) -> None:
    for _ in range(2):
        await store.keep([message(1, 1), message(1, 2), message(2, 1)], [(1, 1), (3, 3)], [(1, 1)])
        assert await read(store, [1, 2]) == ([message(1, 2), message(2, 1)], {1: 1})
        assert await store.retained_top() == 3


async def test_a_floor_never_falls(store: Store, other: Store) -> None:
    await store.keep([], [], [(1, 7), (2, 1)])
    await other.keep([], [], [(1, 6), (2, 3), (2, 2)])
    assert await read(store, [1, 2, 3]) == ([], {1: 7, 2: 3})


async def test_a_void_floor_replaces_any_stamp_and_a_stamp_replaces_it_where_the_slot_is_whole(
    store: Store, other: Store
) -> None:
    await store.keep([message(1, 9)], [], [(1, 7), (2, VOID)])
    assert await read(other, [1, 2]) == ([message(1, 9)], {1: 7, 2: VOID})
    await other.keep([], [], [(1, VOID), (2, 0)], [2])
    assert await read(store, [1, 2]) == ([message(1, 9)], {1: VOID, 2: 0})
    await store.keep([], [], [(1, VOID), (2, VOID)])
    await other.keep([], [], [(1, 3), (2, 5)], [1, 2, 3])
    assert await read(store, [1, 2]) == ([message(1, 9)], {1: 3, 2: 5})
    await store.keep([], [], [(1, 2), (2, VOID), (2, 4)], [1, 2])
    assert await read(other, [1, 2]) == ([message(1, 9)], {1: 3, 2: 4})


async def test_a_void_floor_stays_where_the_slot_is_not_whole(store: Store, other: Store) -> None:
    await store.keep([], [], [(1, VOID), (2, VOID), (3, 1)])
    await other.keep([message(1, 9), message(2, 9)], [], [(1, 3), (2, 4), (3, 5)], [2])
    messages = [message(1, 9), message(2, 9)]
    assert await read(store, [1, 2, 3]) == (messages, {1: VOID, 2: 4, 3: 5})
    await store.keep([], [(1, 9)], [(1, TOP)])
    await store.keep([], [], [], [1])  # whole, but without a floor
    assert await read(other, [1, 2]) == (messages[1:], {1: VOID, 2: 4})
    assert await store.retained_top() == TOP


async def test_a_slot_is_whole_from_the_first_of_many_messages_on(store: Store) -> None:
    await store.keep([], [], [(1, VOID)])
    large = [message(1, stamp, b"x" * (KEEP_BYTES // 2)) for stamp in range(2, 7)]
    await store.keep(large, [(1, 2)], [(1, 1)], [1])
    assert await read(store, [1]) == (large[1:], {1: 1})


async def test_a_void_floor_is_no_stamp(store: Store, other: Store) -> None:
    await store.reach(["a"], 3)
    await other.keep([], [], [(1, VOID)])
    assert await store.retained_top() == 3
    assert await store.reach(["b"], 0) == ([("a", 3)], 3)
    await store.keep([message(1, 4)], [], [(2, VOID), (3, 2)])
    assert await other.retained_top() == 4
    assert await other.reach(["c"], 5) == ([("a", 3), ("b", 4)], 5)


async def test_the_greatest_stamp_outlives_its_message(store: Store, other: Store) -> None:
    await store.keep([message(1, 9)], [], [])
    await other.keep([message(2, 4)], [(1, 9), (2, 4)], [])
    assert await store.retained_top() == 9
    await store.keep([], [], [(2, 11)])
    assert await other.retained_top() == 11
    await store.keep([], [(2, TOP)], [])
    assert await other.retained_top() == TOP


async def test_a_life_of_the_cluster_ends_at_the_greatest_stamp_before_the_next_one(store: Store, other: Store) -> None:
    assert await store.reach(["a"], 0) == ([], 0)
    await store.keep([message(1, 7)], [], [])
    assert await other.reach(["a"], 5) == ([], 7)
    assert await other.reach(["a"], 9) == ([], 9)
    assert await other.reach(["b"], 11) == ([("a", 9)], 11)
    await store.keep([message(1, 20)], [], [])
    assert await store.reach(["b"], 0) == ([("a", 9)], 20)
    assert await store.reach(["c"], 0) == ([("a", 9), ("b", 20)], 20)
    assert await store.retained_top() == 20


async def test_lives_that_began_at_the_same_moment_are_one(store: Store, other: Store) -> None:
    await store.reach(["a"], 3)
    assert await store.reach(["b"], 4) == ([("a", 3)], 4)
    assert await other.reach(["c"], 5) == ([("a", 3), ("b", 4)], 5)  # it does not know "b" yet
    assert await other.reach(["b", "c"], 6) == ([("a", 3)], 6)
    assert await store.reach(["d"], 0) == ([("a", 3), ("b", 6), ("c", 6)], 6)


async def test_so_many_past_lives_are_recorded(store: Store) -> None:
    for number in range(EPOCHS_MAX + 3):
        past, _ = await store.reach([f"{number}"], number)
    assert past == [(f"{number}", number) for number in range(2, EPOCHS_MAX + 2)]


async def test_a_page_has_so_many_bytes_or_one_message(store: Store) -> None:
    large = [message(1, 1, b"x" * (RETAINED_PAGE_BYTES + 1)), message(1, 2, b"y" * (RETAINED_PAGE_BYTES - 1))]
    all_of_them = [*large, message(1, 3, b"zz"), message(2, 1, b"z")]
    await store.keep(all_of_them, [], [])
    pages = []
    cursor = None
    while True:
        page, _, cursor = await store.retained([1, 2], cursor, 10)
        pages.append([(kept.slot, kept.stamp) for kept in page])
        if cursor is None:
            break
    assert pages == [[(1, 1)], [(1, 2)], [(1, 3), (2, 1)]]
    assert (await read(store, [1, 2]))[0] == all_of_them


async def test_a_cursor_that_is_none_is_refused(store: Store) -> None:
    for cursor in ("", "x", "00", "0" * 19, "0" * 21):
        with pytest.raises(ValueError, match="cursor"):
            await store.retained([1], cursor, 10)


@pytest.mark.parametrize("kind", sorted(STORES.keys() - {"embedded", "riak-double-tls"}))
async def test_riak_says_that_it_has_none(kind: str, tmp_path: Path) -> None:
    async with STORES[kind](tmp_path) as opener:
        store = await opener()
        assert not store.shape.journal
        for operation in (
            store.keep([], [], []),
            store.retained([1], None, 1),
            store.retained_top(),
            store.reach(["l"], 1),
        ):
            with pytest.raises(StoreError, match="keeps no journal"):
                await operation


# --- against a model ---------------------------------------------------------------------------------------------

SOME = st.sampled_from([0, 1, 255, 256, SLOTS - 1])
STAMPS = [0, 1, 2, 255, 256, 1 << 40, TOP]
PLACES = st.tuples(SOME, st.sampled_from(STAMPS))
STEPS = st.tuples(
    st.integers(0, 1),
    st.lists(st.tuples(PLACES, st.sampled_from([b"", b"1", b"22"])), max_size=5),
    st.lists(PLACES, max_size=4),
    st.lists(st.tuples(SOME, st.sampled_from([VOID, *STAMPS])), max_size=3),
    st.lists(SOME, max_size=2),
    st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3, unique=True),
)


@pytest.mark.parametrize("kind", sorted(ALL))
def test_any_sequence_of_operations_gives_what_the_model_gives(kind: str, tmp_path: Path) -> None:
    slots = [0, 1, 255, 256, SLOTS - 1]

    async def check(directory: Path, steps: list[tuple[int, list, list, list, list, list]]) -> None:  # type: ignore[type-arg]
        kept: dict[tuple[int, int], RetainedMessage] = {}
        floors: dict[int, int] = {}
        lives: dict[str, int | None] = {}
        top = 0
        async with ALL[kind](directory) as opener:
            handles = [await opener(), await opener()]
            for handle, entries, forgotten, raised, whole, new in steps:
                messages = [message(slot, stamp, payload) for (slot, stamp), payload in entries]
                ended = {life: top if at is None else at for life, at in lives.items() if life not in new}
                past = sorted(ended.items(), key=itemgetter(1, 0))
                lives, top = dict(past) | dict.fromkeys(new), min(top + len(forgotten), TOP)
                assert await handles[handle].reach(new, top) == (past, top)
                await handles[handle].keep(messages, forgotten, raised, whole)
                kept |= {(each.slot, each.stamp): each for each in messages}
                kept = {place: each for place, each in kept.items() if place not in forgotten}
                for slot, stamp in raised:
                    held = floors.get(slot, stamp)
                    floors[slot] = stamp if held == VOID and slot in whole else max(stamp, held)
                seen = [*(place for place, _ in entries), *forgotten, *raised]
                top = max([top, *(stamp for _, stamp in seen if stamp != VOID)])
                for store in handles:
                    assert await store.retained_top() == top
                    for limit in (1, 3, 100):
                        wanted = [kept[place] for place in sorted(kept)]
                        assert await read(store, slots, limit) == (wanted, floors)
                    some = [each for each in wanted if each.slot in (1, 256)]
                    assert await read(store, [256, 1], 2) == (some, {s: f for s, f in floors.items() if s in (1, 256)})

    fresh = itertools.count()

    @settings(
        max_examples=proof.examples(12, 4),
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(STEPS, min_size=4, max_size=12))
    def examples(steps: list[tuple[int, list, list, list, list, list]]) -> None:  # type: ignore[type-arg]
        directory = tmp_path / f"{next(fresh)}"
        directory.mkdir()
        asyncio.run(check(directory, steps))

    examples()
