"""Repetitions that their origin drops: which, for how long, and its reports to the home. SPEC section 7."""

from __future__ import annotations

import pytest

from ingeborg.broker.core.dedup.dedup import key_of
from ingeborg.broker.core.dedup.origin_dedup import KNOWN_S, TELLS, TTL_S_MIN, OriginDedup
from ingeborg.broker.core.dedup.own_keys import own_key_of
from ingeborg.broker.core.limits import Sizes

from ..talk import Cluster

TTL_S = 60.0
INTERVAL_S = KNOWN_S / TELLS


def key(number: int) -> bytes:
    return key_of(7, "t", b"%d" % number)


def test_only_what_the_home_has_confirmed_is_known_and_not_for_long() -> None:
    origin_dedup = OriginDedup(TTL_S)
    assert not origin_dedup.known(key(1), 100.0)
    origin_dedup.learn(key(1), 100.0)
    assert not origin_dedup.known(key(2), 101.0)
    assert origin_dedup.known(key(1), 100.0 + KNOWN_S - 0.1)
    assert not origin_dedup.known(key(1), 100.0 + 2 * KNOWN_S)


def test_messages_with_keys_of_their_own_take_no_place_of_news() -> None:
    origin_dedup = OriginDedup(TTL_S)
    own = own_key_of(7, "t", "paul", "k", b"1")
    origin_dedup.learn(own, 100.0)
    assert len(origin_dedup) == 0
    assert not origin_dedup.known(own, 100.0)  # an origin asks the home about a retry


def test_homes_are_told_of_what_was_dropped_once_and_with_what_is_left_of_its_time() -> None:
    origin_dedup = OriginDedup(TTL_S)
    for number in range(3):
        origin_dedup.learn(key(number), 100.0)
    assert origin_dedup.to_tell(100.0, 9) == []
    for now in (100.1, 100.2, 100.3):
        assert origin_dedup.known(key(1), now)
    ((told, left),) = origin_dedup.to_tell(100.4, 9)
    assert told == key(1)
    assert left == pytest.approx(TTL_S - 0.1)
    assert origin_dedup.known(key(2), 100.5)
    assert origin_dedup.to_tell(100.4 + INTERVAL_S - 0.1, 9) == []
    assert [one for one, _ in origin_dedup.to_tell(100.4 + INTERVAL_S, 9)] == [key(2)]


@pytest.mark.parametrize("ttl_s", [TTL_S_MIN, 10.0, 20.0, TTL_S])
def test_a_home_hears_of_a_drop_long_before_it_forgets_the_payload(ttl_s: float) -> None:
    origin_dedup = OriginDedup(ttl_s)
    origin_dedup.learn(key(1), 0.0)
    home_forgets_at, now = ttl_s, 0.0
    while now < 5 * ttl_s:
        now += 0.1
        if origin_dedup.known(key(1), now):
            assert home_forgets_at - now > 1.0  # the longest delay on a link
        for _, left in origin_dedup.to_tell(now, 9):
            home_forgets_at = max(home_forgets_at, now + left)


@pytest.mark.parametrize("ttl_s", [0.0, 1.0])
def test_with_a_short_time_to_live_the_home_is_asked_every_time(ttl_s: float) -> None:
    origin_dedup = OriginDedup(ttl_s)
    origin_dedup.learn(key(1), 0.0)
    assert not origin_dedup.known(key(1), 0.1)
    assert len(origin_dedup) == 0


def test_homes_are_told_of_many_part_by_part_and_none_is_forgotten() -> None:
    origin_dedup = OriginDedup(TTL_S, Sizes(again_max=7))
    for number in range(10):
        origin_dedup.learn(key(number), 100.0)
    dropped = [number for number in range(10) if origin_dedup.known(key(number), 100.0)]
    assert dropped == list(range(7))  # the origin asks the home about the others
    told = []
    for now in (100.1, 100.2, 100.3, 100.4):
        part = [one for one, _ in origin_dedup.to_tell(now, 3)]
        assert len(part) <= 3
        told += part
    assert told == [key(number) for number in dropped]
    assert origin_dedup.known(key(9), 100.5)


# In a cluster


def test_the_home_hears_of_the_first_report_of_each_origin_and_the_others_are_dropped_where_they_came() -> None:
    cluster = Cluster("a", "b", "c")
    topic = cluster.topic_at("a")
    anna = cluster.listener("anna", "a", topic)
    for number, origin in enumerate("bbbcc"):
        heard = cluster.client(f"reporter {number}", origin).say(f"publish {topic} 'x' #1")
        assert heard == ["ok 1" if number == 0 else "ok 1 duplicate"]
    assert anna.heard[-1:] == [f"{topic}: 'x'"]
    assert anna.heard.count(f"{topic}: 'x'") == 1
    dropped = {name: node.router.counters.counts["duplicates_dropped"] for name, node in cluster.nodes.items()}
    assert dropped == {"a": 1, "b": 2, "c": 1}


def test_a_drop_at_the_origin_extends_the_time_to_live_at_the_home() -> None:
    cluster = Cluster("a", "b", "c", dedup_ttl_s=20.0)
    topic = cluster.topic_at("a")
    bob, cleo = cluster.client("bob", "b"), cluster.client("cleo", "c")
    assert bob.say(f"publish {topic} 'x' #1") == ["ok 1"]
    for _ in range(8):
        cluster.world.run(5.0)
        assert bob.say(f"publish {topic} 'x' #2") == ["ok 2 duplicate"]
    assert cluster.nodes["b"].router.counters.counts["duplicates_dropped"] == 8
    cluster.world.run(15.0)
    assert cleo.say(f"publish {topic} 'x' #3") == ["ok 3 duplicate"]
    cluster.world.run(25.0)
    assert cleo.say(f"publish {topic} 'x' #4") == ["ok 4"]


def test_what_is_not_to_be_checked_is_not_known() -> None:
    cluster = Cluster("a", "b")
    topic = cluster.topic_at("a")
    anna = cluster.listener("anna", "a", topic)
    bob = cluster.client("bob", "b")
    for number in range(3):
        assert bob.say(f"publish {topic} 'x' #{number}", dedup=False) == [f"ok {number}"]
    assert anna.heard.count(f"{topic}: 'x'") == 3
