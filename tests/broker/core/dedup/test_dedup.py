"""The table of duplicates against a dictionary that forgets nothing, and its bounds."""

from __future__ import annotations

import math
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.dedup.dedup import KEY_BYTES, Dedup, key_of, slot_of_key
from ingeborg.protocol.hashes import SLOTS, slot_of

TTL_S = 60.0
ROOMY = 1_000


def key(number: int, slot: int = 7) -> bytes:
    return key_of(slot, "t", b"%d" % number)


# Duplicates


def test_a_payload_is_a_duplicate_until_its_time_is_over() -> None:
    table: Dedup[None] = Dedup(TTL_S, ROOMY)
    table.add(key(1), 100.0)
    assert not table.duplicate(key(2), 100.0)
    assert table.duplicate(key(1), 159.9)


def test_its_time_is_over_at_the_exact_instant() -> None:
    table: Dedup[None] = Dedup(TTL_S, ROOMY)
    table.add(key(1), 100.0)
    assert not table.duplicate(key(1), 160.0)
    table.expire(160.0, 1)
    assert len(table) == 0


def test_each_drop_extends_the_time() -> None:
    table: Dedup[None] = Dedup(TTL_S, ROOMY)
    table.add(key(1), 0.0)
    for now in range(50, 1_000, 50):
        assert table.duplicate(key(1), float(now))
    assert not table.duplicate(key(1), 950.0 + TTL_S)


def test_a_time_to_live_of_zero_turns_it_off() -> None:
    table: Dedup[None] = Dedup(0.0, ROOMY)
    table.add(key(1), 0.0)
    table.begin(key(2))
    table.settle(key(2), True, 0.0)
    assert not table.duplicate(key(1), 0.0)
    assert not table.duplicate(key(2), 0.0)
    assert len(table) == 0


@given(
    st.sampled_from([20, ROOMY]),  # 5 keys in a generation, which makes many generations, or 250
    st.lists(
        st.tuples(
            st.sampled_from(["duplicate", "publish", "expire", "dispatched", "dispatched at once"]),
            st.integers(0, 4),
            st.sampled_from([0.0, 0.001, 0.5, 1.0, 4.0, 9.5, 10.0, 11.0]),
            st.sampled_from([0.5, 3.0, 10.0]),
        ),
        max_size=150,
    ),
)
def test_it_agrees_with_a_dictionary_of_expiries(keys_max: int, steps: list[tuple[str, int, float, float]]) -> None:
    table: Dedup[None] = Dedup(10.0, keys_max)
    expiries: dict[int, float] = {}
    now = 0.0
    for what, number, passed, left in steps:
        now += passed
        seen = expiries.get(number, -1.0) > now
        if what == "duplicate":
            assert table.duplicate(key(number), now) is seen
            if seen:
                expiries[number] = now + 10.0
        elif what == "publish":
            table.begin(key(number))
            table.settle(key(number), True, now)
            expiries[number] = now + 10.0
        elif what == "dispatched":
            table.add(key(number), now, left)
            expiries[number] = max(now + left, expiries.get(number, 0.0))
        elif what == "dispatched at once":
            numbers = [number, (number + 1) % 5, (number + 2) % 5, number]
            table.add_all([key(one) for one in numbers], [left, 2 * left, math.nan, left / 2], now)
            for one, seconds in zip(numbers[:2], (left, 2 * left), strict=True):
                expiries[one] = max(now + min(seconds, 10.0), expiries.get(one, 0.0))
        else:
            table.expire(now, 2)
    left_s = table.left([key(number) for number in range(5)], now)
    assert [max(left, 0.0) for left in left_s] == pytest.approx(
        [max(expiries.get(number, 0.0) - now, 0.0) for number in range(5)]
    )
    for number in range(5):
        assert table.duplicate(key(number), now) is (expiries.get(number, -1.0) > now)


def test_what_is_dispatched_at_once_keeps_to_the_bounds() -> None:
    table: Dedup[None] = Dedup(TTL_S, 100)
    for turn in range(10):
        table.add_all([key(number) for number in range(37 * turn, 37 * turn + 37)], [TTL_S] * 37, float(turn))
        assert len(table) <= 100
    assert table.evicted == 270
    assert sum(table.duplicate(key(number), 9.0) for number in range(370)) == 100
    table.add_all([key(1)], [0.0], 9.0)
    assert not table.duplicate(key(1), 9.0)


def test_at_once_nothing_is_kept_either_where_it_is_turned_off() -> None:
    table: Dedup[None] = Dedup(0.0, ROOMY)
    table.add_all([key(1)], [5.0], 0.0)
    assert len(table) == 0


# Pending


def test_waiters_of_a_pending_message_are_told_of_its_outcome_once() -> None:
    table: Dedup[str] = Dedup(TTL_S, ROOMY)
    assert table.pending(key(1)) is None
    table.begin(key(1))
    waiters = table.pending(key(1))
    assert waiters == []
    waiters.extend(["first", "second"])
    assert not table.duplicate(key(1), 0.0)
    assert table.settle(key(1), True, 0.0) == ["first", "second"]
    assert table.pending(key(1)) is None
    assert table.settle(key(1), True, 0.0) == []


def test_who_repeats_what_a_former_home_is_dispatching_waits_as_if_it_were_here() -> None:
    dedup: Dedup[str] = Dedup(60.0, 100)
    dedup.begin_elsewhere(key(1), "a", 30.0)
    assert dedup.pending_here(key(1)) is None
    waiters = dedup.pending(key(1))
    assert waiters == []
    waiters.append("bert")
    dedup.expire_elsewhere(31.0)  # a waiter hears from the former home, or that it is gone
    dedup.forget_elsewhere(key(1))
    assert dedup.end_elsewhere(key(1), True, 32.0) == ["bert"]
    assert (dedup.pending(key(1)), dedup.elsewhere, dedup.duplicate(key(1), 33.0)) == (None, {}, True)


def test_what_nobody_said_or_asked_any_more_of_is_forgotten_in_time() -> None:
    dedup: Dedup[str] = Dedup(60.0, 100)
    dedup.begin_elsewhere(key(1), "a", 30.0)
    dedup.begin_elsewhere(key(2), "a", 31.0)
    dedup.begin_elsewhere(key(1), "b", 40.0)  # known already
    dedup.expire_elsewhere(30.0)
    assert (dedup.pending_keys(), dedup.elsewhere) == ([key(2)], {key(2): ("a", 31.0)})
    dedup.begin(key(3))
    dedup.begin_elsewhere(key(3), "a", 50.0)  # this endpoint itself dispatches it
    assert dedup.pending_here(key(3)) == []
    assert dedup.pending_here(None) is None


def test_a_message_that_failed_is_forgotten() -> None:
    table: Dedup[None] = Dedup(TTL_S, ROOMY)
    table.begin(key(1))
    table.settle(key(1), False, 0.0)
    assert not table.duplicate(key(1), 0.0)
    assert len(table) == 0


def test_the_time_runs_from_the_outcome() -> None:
    table: Dedup[None] = Dedup(TTL_S, ROOMY)
    table.begin(key(1))
    table.settle(key(1), True, 5.0)
    assert table.duplicate(key(1), 64.9)


# Bounds


def test_a_full_table_forgets_of_those_seen_longest_ago_and_counts_it() -> None:
    table: Dedup[None] = Dedup(TTL_S, 100)
    for number in range(100):
        table.add(key(number), number / 100)
    assert all(table.duplicate(key(number), 2.0) for number in range(25))
    for number in range(100, 150):
        table.add(key(number), 3.0)
        assert len(table) == 100
    assert table.evicted == 50
    gone = [number for number in range(150) if not table.duplicate(key(number), 4.0)]
    assert gone == list(range(25, 75))


def test_what_makes_room_although_its_time_is_over_was_not_evicted() -> None:
    table: Dedup[None] = Dedup(TTL_S, 4)
    table.add(key(0), 0.0, 1.0)
    for number in range(1, 5):
        table.add(key(number), 2.0)
    assert (table.evicted, len(table)) == (0, 4)
    table.add(key(5), 3.0)
    assert (table.evicted, len(table)) == (1, 4)


@given(st.integers(1, 12), st.lists(st.integers(0, 20), max_size=120))
def test_the_bound_holds_and_the_latest_seen_are_kept(keys_max: int, numbers: list[int]) -> None:
    table: Dedup[None] = Dedup(TTL_S, keys_max)
    latest: list[int] = []
    for now, number in enumerate(numbers):
        found = table.duplicate(key(number), now / 1000)
        assert found is (number in latest) or number in latest[: -max(keys_max // 2, 1)]
        if not found:
            table.add(key(number), now / 1000)
        latest = [other for other in latest if other != number] + [number]
        assert len(table) <= keys_max


def test_expiring_takes_a_bounded_number_of_keys_at_a_time() -> None:
    table: Dedup[None] = Dedup(TTL_S, ROOMY)
    for number in range(10):
        table.add(key(number), 0.0)
    table.add(key(10), 30.0)
    table.expire(59.9, 4)
    assert len(table) == 11
    # Ten keys have expired, and go with their generation.
    table.expire(90.0, 4)
    assert len(table) == 7
    table.expire(90.0, 100)
    assert len(table) <= 1
    table.expire(120.0, 100)
    table.expire(150.0, 100)
    assert len(table) == 0


def test_a_key_seen_again_stays_for_its_whole_time() -> None:
    table: Dedup[None] = Dedup(TTL_S, ROOMY)
    for number in range(10):
        table.add(key(number), 0.0)
    assert table.duplicate(key(3), 50.0)
    table.expire(60.0, 100)
    assert len(table) == 1
    assert table.duplicate(key(3), 109.9)
    table.expire(169.9, 100)
    table.expire(169.9, 100)
    assert len(table) == 0


def test_keys_whose_time_is_over_do_not_pile_up_however_fast_new_ones_come() -> None:
    table: Dedup[None] = Dedup(TTL_S, ROOMY)
    for number in range(2_000):
        table.add(key(number), number / 5)  # 300 live at a time, and up to a third as many can be expired
        assert len(table) <= 401
    assert table.evicted == 0


@pytest.mark.parametrize("rare_left", [0, 200])
def test_keys_seen_again_and_again_leave_no_ever_growing_row_of_generations(rare_left: int) -> None:
    """Each generation would keep the room of its keys, and every new payload would search it."""
    ttl_s = 1_000.0
    table: Dedup[None] = Dedup(ttl_s, ROOMY)
    for number in range(500, 700):
        table.add(key(number), 0.0, None if rare_left else 1.0)
    for number in range(300):
        table.add(key(number), 0.0)
    most = 0
    for now in range(1, 900):
        for number in range(300):  # more than fit in a generation
            assert table.duplicate(key(number), float(now))
        most = max(most, table.generations)
    assert most <= 9
    table.expire(900.0, ROOMY)
    assert len(table) == 300 + rare_left
    assert all(table.duplicate(key(number), 901.0) for number in range(500, 500 + rare_left))
    assert table.evicted == 0


# From home to home


def test_the_keys_of_moved_slots_are_handed_on_with_what_is_left_of_their_time() -> None:
    old: Dedup[None] = Dedup(TTL_S, ROOMY)
    old.add(key(1, slot=4095), 0.0)
    old.add(key(2, slot=4095), 10.0)
    old.add(key(3, slot=0), 10.0)
    moved = list(chain.from_iterable(old.keys_of(frozenset({4095}))))
    handed = {one: left for one in moved if (left := old.take(one, 60.0)) > 0}
    assert handed == {key(2, slot=4095): 10.0}  # the first had expired
    assert old.take(key(2, slot=4095), 60.0) <= 0  # it is gone
    assert old.duplicate(key(3, slot=0), 60.0)
    old.expire(70.0, 10)
    assert len(old) == 1

    new: Dedup[None] = Dedup(TTL_S, ROOMY)
    for one, left in handed.items():
        new.add(one, 1_000.0, left)  # another clock
    assert not new.duplicate(key(2, slot=4095), 1_010.0)


def test_a_dispatched_key_never_lives_longer_than_the_time_to_live() -> None:
    table: Dedup[None] = Dedup(TTL_S, ROOMY)
    table.add(key(1), 0.0, 10_000.0)
    assert not table.duplicate(key(1), TTL_S)


def test_a_dispatched_key_does_not_shorten_the_time_of_one_seen_here() -> None:
    table: Dedup[None] = Dedup(TTL_S, ROOMY)
    table.add(key(1), 10.0)
    table.add(key(1), 11.0, 1.0)
    assert table.duplicate(key(1), 69.0)


# Keys


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), st.binary(max_size=20))
def test_a_key_tells_its_slot(topic: str, payload: bytes) -> None:
    slot = slot_of(topic)
    made = key_of(slot, topic, payload)
    assert slot_of_key(made) == slot < SLOTS
    assert len(made) == KEY_BYTES


@given(
    st.lists(st.tuples(st.sampled_from(["", "a", "ab", "b"]), st.sampled_from([b"", b"1", b"b1", b'"b"'])), max_size=9)
)
def test_different_messages_have_different_keys(messages: list[tuple[str, bytes]]) -> None:
    made = {message: key_of(slot_of(message[0]), *message) for message in messages}
    assert len(set(made.values())) == len(made)
