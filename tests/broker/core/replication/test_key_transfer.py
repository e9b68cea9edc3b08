"""Keys on their way with their slots: which ones reach which home, with their remaining time, and which are lost."""

from __future__ import annotations

from itertools import chain
from typing import Any

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.dedup.dedup import hash_of_key, key_of, key_of_hash, slot_of_key
from ingeborg.broker.core.dispatch import Dispatch
from ingeborg.broker.core.limits import Sizes
from ingeborg.broker.core.links.requests import Known, SeenRequest
from ingeborg.broker.core.replication.key_transfer import DISPATCHED_S
from ingeborg.protocol.hashes import HASH_BYTES, SLOTS, slot_of

from ..way import ANN, BOB, DEDUP_TTL_S, Way, message, topic_at, topic_moving, topics_at


def key(topic: str, payload: bytes = b"1") -> bytes:
    return key_of(slot_of(topic), topic, payload)


def dispatch(topic: str) -> Dispatch:
    return Dispatch(message(topic), slot_of(topic), key(topic), None)


def knows(way: Way, *keys: bytes) -> list[bool]:
    """Return, for each key, whether the table of duplicates has it."""
    kept = set(chain.from_iterable(way.dedup.keys_of(frozenset(range(SLOTS)))))
    return [one in kept for one in keys]


def seen(*keys: tuple[bytes, Known]) -> SeenRequest:
    """Return another endpoint's request about these keys."""
    return SeenRequest([(slot_of_key(key), hash_of_key(key), known) for key, known in keys])


def told(way: Way) -> list[tuple[str, list[tuple[bytes, Known]]]]:
    """Return the receivers and keys of this endpoint's requests since the last call."""
    asked = way.take_asked()
    assert {type(call.request) for call in asked} <= {SeenRequest}
    return [(call.target, [(key_of_hash(*of), left) for *of, left in call.request.keys]) for call in asked]


def test_who_waits_for_the_keys_to_be_on_their_way_waits_for_their_last_slice() -> None:
    way = Way(sizes=Sizes(keys_per_slice=2))
    topic = topic_moving(way.members, "m", Way(ANN).members, "a")
    for number in range(5):
        way.dedup.begin(key(topic, str(number).encode()))
    way.lets_in(ANN)
    way.keys.view_changed()
    assert told(way) == []  # keys can be many, so it works in slices
    over: list[bool] = []
    way.cluster.transfers.after(lambda: over.append(True))
    (job,) = way.desk.jobs
    slices = []
    for _ in job:
        assert not over
        slices += [len(batch) for _, batch in told(way)]
    assert slices == [2, 2, 1]
    assert over == [True]


def test_what_a_former_home_tells_is_known_for_what_was_left_of_its_time() -> None:
    way = Way(ANN)
    one = key(topic_at(way.members, "m"))
    way.keys.seen_requested("a", 7, seen((one, 10.0)))
    assert way.desk.answers == [("a", 7, None)]
    assert way.dedup.take(one, way.desk.now + 4.0) == pytest.approx(6.0)


def test_of_a_message_that_is_still_being_dispatched_its_new_home_is_told_by_whom() -> None:
    way, after = Way(), Way(ANN)
    going = key(topic_moving(way.members, "m", after.members, "a"))
    staying = key(topic_moving(way.members, "m", after.members, "m"))
    seen = key(topic_moving(way.members, "m", after.members, "a"), b"seen")  # goes with the replica of its slot
    way.dedup.begin(going)
    way.dedup.begin(staying)
    way.dedup.add(seen, way.desk.now)
    way.lets_in(ANN)
    way.keys.view_changed()
    way.desk.work()
    assert told(way) == [("a", [(going, "m")])]
    assert way.dedup.pending_keys() == [going, staying]
    assert knows(way, seen) == [True]


def test_a_home_that_is_none_any_more_passes_on_who_is_still_handing_a_message_over() -> None:
    way, after = Way(BOB), Way(ANN, BOB)
    topics = [topic_moving(way.members, "m", after.members, "a")]
    topics += [topic for topic in topics_at(way.members, "m", 200) if after.members.table[slot_of(topic)] == "a"][1:3]
    keys = [key(topic) for topic in topics]
    gone = zip(keys, ["b", "of one that is gone", "b"], strict=True)
    way.keys.seen_requested("b", 7, seen(*gone))
    waiting = way.dedup.pending(keys[2])
    assert waiting is not None
    waiting.append(dispatch(topics[2]))  # `b` itself reports it
    way.lets_in(ANN)
    way.keys.view_changed()
    way.desk.work()
    assert told(way) == [("a", [(keys[0], "b"), (keys[2], "b")])]
    assert way.dedup.pending_keys() == [keys[2]]


def test_what_a_former_home_could_not_dispatch_is_forgotten() -> None:
    way = Way(ANN)
    one = key(topic_at(way.members, "m"))
    way.keys.seen_requested("a", 7, seen((one, "a")))
    assert way.dedup.pending_keys() == [one]
    way.keys.seen_requested("a", 8, seen((one, 0.0)))
    assert way.dedup.pending_keys() == []
    assert knows(way, one) == [False]


def test_what_a_former_home_says_no_more_of_is_forgotten_with_time_alone() -> None:
    way = Way(ANN)
    one = key(topic_at(way.members, "m"))
    way.keys.seen_requested("a", 7, seen((one, "a")))
    way.desk.now += DISPATCHED_S - 1.0
    way.keys.tick()
    assert way.dedup.pending_keys() == [one]
    way.desk.now += 2.0
    way.keys.tick()
    assert way.dedup.pending_keys() == []


def test_what_is_known_for_longer_already_is_not_shortened_by_it() -> None:
    way = Way(ANN)
    one = key(topic_at(way.members, "m"))
    way.dedup.add(one, way.desk.now)
    way.keys.seen_requested("a", 7, seen((one, 10.0)))
    assert way.dedup.take(one, way.desk.now) == pytest.approx(DEDUP_TTL_S)


def test_an_endpoint_that_leaves_passes_on_what_it_is_still_told() -> None:
    way = Way(ANN, BOB)
    one = key(topic_moving(way.members, "m", Way(ANN, BOB).members, "m"))
    way.members.leave()
    home = way.members.table[slot_of_key(one)]
    way.keys.seen_requested("a", 7, seen((one, 10.0)))
    assert told(way) == [(home, [(one, 10.0)])]
    assert knows(way, one) == [False]
    assert way.desk.answers == [("a", 7, None)]


def test_keys_that_a_home_could_not_be_told_of_are_counted() -> None:
    way = Way(ANN)
    topic = topic_at(way.members, "a")
    way.keys.hand_on([(key(topic, b"1"), 5.0), (key(topic, b"2"), 5.0)])
    (call,) = way.take_asked()
    call.asker.failed(call, "peer_unavailable", "did not answer")
    assert way.desk.drops == {"dedup_not_handed_on": 2}


def test_when_the_home_is_lost_the_keys_go_to_the_next_one_or_stay_here() -> None:
    way = Way(ANN, BOB)
    to_bob = key(topic_moving(way.members, "a", Way(BOB).members, "b"))
    to_me = key(topic_moving(way.members, "a", Way(BOB).members, "m"))
    way.keys.hand_on([(to_bob, 5.0), (to_me, 6.0)])
    (call,) = way.take_asked()
    way.loses(ANN)
    assert call.asker.lost(call) is None
    assert told(way) == [("b", [(to_bob, 5.0)])]
    assert way.dedup.take(to_me, way.desk.now) == pytest.approx(6.0)
    assert not way.desk.drops


def test_homes_are_told_of_what_was_dropped_here_as_the_origin() -> None:
    way = Way(ANN)
    one = key(topic_at(way.members, "a"))
    way.origin_dedup.learn(one, way.desk.now)
    assert way.origin_dedup.known(one, way.desk.now)
    way.desk.now += 1.0
    way.keys.tick()
    assert told(way) == [("a", [(one, DEDUP_TTL_S - 1.0)])]
    way.keys.tick()
    assert told(way) == []


def test_keys_whose_time_is_over_leave_with_time_alone() -> None:
    way = Way()
    way.dedup.add(key("t"), way.desk.now)
    way.desk.now += 2 * DEDUP_TTL_S
    way.keys.tick()
    assert len(way.dedup) == 0


# The content of a replica


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(0.0, 59.0)), max_size=60), st.frozensets(st.integers(0, 9)))
def test_a_replica_carries_the_keys_of_its_slots_and_what_is_left_of_their_time(
    seen: list[tuple[int, float]], slots: frozenset[int]
) -> None:
    here, there = Way(), Way()
    times: dict[bytes, float] = {}
    now = here.desk.now
    for number, (slot, after_s) in enumerate(sorted(seen, key=lambda one: one[1])):
        one = key_of_hash(slot, number.to_bytes(HASH_BYTES))
        here.dedup.add(one, now + after_s)
        times[one] = now + after_s + DEDUP_TTL_S
    here.desk.now = there.desk.now = now + 30.0
    keys = [key for part in here.replication.seen.departing(slots) for key in part]
    alive = {key for key, until in times.items() if slot_of_key(key) in slots and until > here.desk.now}
    assert alive <= set(keys) <= {key for key in times if slot_of_key(key) in slots}
    assert there.replication.seen.absorb(here.replication.seen.pack(keys)) == len(keys)
    for one in times:
        left = times[one] - here.desk.now if one in alive else 0.0
        assert there.dedup.left([one], there.desk.now)[0] == pytest.approx(min(max(left, 0.0), DEDUP_TTL_S), abs=0.01)


def test_what_changes_while_keys_are_looked_for_is_found_or_told() -> None:
    way = Way()
    keys = [key_of_hash(0, number.to_bytes(HASH_BYTES)) for number in range(600)]
    for number, one in enumerate(keys):  # some generations
        way.dedup.add(one, way.desk.now + number / 10)
    found: set[bytes] = set()
    for index, part in enumerate(way.replication.seen.departing(frozenset({0}))):
        found |= set(part)
        way.dedup.expire(way.desk.now + 60.0 + index / 100, 100)
    assert {one for one in keys if way.dedup.left([one], way.desk.now + 65.0)[0] > 0} <= found


@pytest.mark.parametrize("rows", [{}, [b"x" * 18, b"1234"], [b"x" * 17, b"1234", {}], [b"\xff" * 18, b"1234", {}]])
def test_what_no_home_has_packed_is_refused_whole(rows: Any) -> None:
    way = Way()
    with pytest.raises(ValueError, match=r"bytes|not an array"):
        way.replication.seen.absorb(ormsgpack.packb(rows, option=ormsgpack.OPT_NON_STR_KEYS))
    assert len(way.dedup) == 0
