"""Publishers' own keys: the table's key of such a message, and the payload of each own key."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.dedup.dedup import KEY_BYTES, Dedup, hash_of_key, key_of, slot_of_key
from ingeborg.broker.core.dedup.own_keys import OwnKeys, is_own, own_key_of

texts = st.text(st.characters(codec="utf-8"), max_size=8)


def own(number: int, payload: bytes = b"x", slot: int = 7) -> bytes:
    return own_key_of(slot, "t", "paul", f"k{number}", payload)


def seen(table: Dedup[None], key: bytes, now: float) -> None:
    """Record that the key's message was dispatched."""
    table.begin(key)
    table.settle(key, True, now)


# The key


@given(st.integers(0, 4095), texts, texts, texts, st.binary(max_size=8))
def test_a_retry_has_the_same_key_which_says_its_slot_and_what_it_is(
    slot: int, topic: str, client: str, own_key: str, payload: bytes
) -> None:
    key = own_key_of(slot, topic, client, own_key, payload)
    assert key == own_key_of(slot, topic, client, own_key, payload)
    assert slot_of_key(key) == slot
    assert is_own(key)
    assert len(key) == KEY_BYTES
    assert len(hash_of_key(key)) == 16


def test_another_topic_client_or_own_key_is_another_message() -> None:
    """This also holds if the concatenated texts are the same."""
    messages = [
        ("t", "ab", "c"),
        ("t", "a", "bc"),
        ("ta", "b", "c"),
        ("t", "ab", "d"),
        ("t", "a\0b", "c"),
        ("t", "a", "\0bc"),
    ]
    keys = [own_key_of(0, *message, b"x") for message in messages]
    table: Dedup[None] = Dedup(60.0, 100)
    for key in keys:
        assert not table.duplicate(key, 0.0)
        assert not table.conflicts(key, 0.0)
        seen(table, key, 0.0)


def test_a_payloads_hash_is_hardly_ever_taken_for_an_own_key() -> None:
    found = sum(is_own(key_of(0, "t", b"%d" % number)) for number in range(100_000))
    assert 0 < found < 10  # one in 65,536, which is harmless


def test_keys_of_one_payload_are_spread_over_the_tables_parts() -> None:
    """A heartbeat repeats the same payload."""
    assert len({own(number)[-1] & 63 for number in range(1_000)}) == 64


# The payload of an own key


def test_another_payload_is_a_conflict_until_the_messages_time_is_over() -> None:
    table: Dedup[None] = Dedup(10.0, 100)
    seen(table, own(1), 0.0)
    assert table.conflicts(own(1, b"y"), 9.9)
    assert not table.conflicts(own(1), 9.9)
    assert not table.conflicts(own(2, b"y"), 9.9)
    assert not table.conflicts(own(1, b"y"), 10.0)


def test_a_conflict_is_no_sighting() -> None:
    table: Dedup[None] = Dedup(10.0, 100)
    seen(table, own(1), 0.0)
    assert table.conflicts(own(1, b"y"), 5.0)
    assert not table.duplicate(own(1), 10.0)


def test_a_payload_that_is_being_dispatched_is_in_conflict_with_another_and_one_that_failed_is_not() -> None:
    table: Dedup[str] = Dedup(10.0, 100)
    table.begin(own(1))
    assert table.conflicts(own(1, b"y"), 0.0)
    table.settle(own(1), False, 0.0)
    assert not table.conflicts(own(1, b"y"), 0.0)
    table.begin_elsewhere(own(2), "b", 30.0)
    assert table.conflicts(own(2, b"y"), 0.0)


def test_what_another_home_has_seen_is_known_too() -> None:
    table: Dedup[None] = Dedup(10.0, 100)
    table.add_all([own(1), own(2)], [5.0, 0.0], 0.0)
    table.add(own(3), 0.0, 5.0)
    assert [table.conflicts(own(number, b"y"), 1.0) for number in (1, 2, 3)] == [True, False, True]


def test_it_forgets_what_the_table_has_forgotten() -> None:
    table: Dedup[None] = Dedup(10.0, 1_000)
    for number in range(1_000):
        seen(table, own(number), 0.0)
    assert len(table.own_keys) == 1_000
    for _ in range(8):
        table.expire(20.0, 1_000)
    assert len(table.own_keys) == 0


@pytest.mark.parametrize("keys_max", [10, 100, 1_000])
def test_there_are_never_more_than_four_thirds_of_what_the_table_may_hold(keys_max: int) -> None:
    table: Dedup[None] = Dedup(10.0, keys_max)
    for number in range(20 * keys_max):
        seen(table, own(number), number / (3 * keys_max))
        assert len(table.own_keys) <= 4 / 3 * keys_max + 4


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from([b"x", b"y"]),
            st.sampled_from([0.0, 1.0, 4.0, 9.5, 10.0]),
            st.sampled_from(["publish", "fails", "moves"]),
        ),
        max_size=60,
    )
)
def test_it_agrees_with_a_dictionary_of_messages(steps: list[tuple[int, bytes, float, str]]) -> None:
    table: Dedup[None] = Dedup(10.0, 100)
    known: dict[int, tuple[bytes, float]] = {}
    now = 0.0
    for number, payload, passed, how in steps:
        now += passed
        key = own(number, payload)
        stands_for, expiry = known.get(number, (b"", -1.0))
        seen = expiry > now
        assert table.duplicate(key, now) is (seen and stands_for == payload)
        if seen:
            assert table.conflicts(key, now) is (stands_for != payload)
            if stands_for == payload:
                known[number] = payload, now + 10.0
            continue
        assert not table.conflicts(key, now)
        if how == "moves":
            table.add_all([key], [7.0], now)
            known[number] = payload, now + 7.0
            continue
        table.begin(key)
        table.settle(key, how == "publish", now)
        if how == "publish":
            known[number] = payload, now + 10.0


def test_so_many_are_looked_at_as_was_asked_for_and_the_others_next() -> None:
    gone: set[bytes] = set()
    keys = OwnKeys(lambda key, now: key not in gone)
    made = [own(number) for number in range(6)]
    for key in made:
        keys.take(key, 0.0)
    gone.update(itertools.islice(made, 4))
    found = []
    for _ in range(3):
        keys.look(2, 0.0)
        found.append(len(keys))
    assert found[0] >= 4
    assert found[2] == 2
