"""Live peers and homes: rendezvous hashing, joining, the lease, and death, each at its exact boundary."""

from __future__ import annotations

from collections import Counter
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.cluster.homes import home_table
from ingeborg.broker.core.cluster.membership import (
    DEAD_AFTER_S,
    FORGET_AFTER_S,
    LEASE_S,
    WRITTEN_OFF_MAX,
    Membership,
)
from ingeborg.broker.core.model import NO_INTRODUCTION, Endpoint, Introduction, Settings
from ingeborg.protocol.hashes import SLOTS, slot_of

ME = Endpoint("a", "a1", "ws://a", 0)
B = Endpoint("b", "b1", "ws://b", 1)
C = Endpoint("c", "c1", "ws://c", 1)
NEXT_B = Endpoint("b", "b2", "ws://b", 1)
START = 100.0
#: A little more than the finest step of float seconds of this size.
EPSILON = 1e-9

names = st.sets(st.text("abcdefgh-123", min_size=1, max_size=6), min_size=1, max_size=7)


def table_of(endpoint_names: set[str]) -> list[str]:
    return home_table((name, f"incarnation of {name}") for name in endpoint_names)


# Slots and homes


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_topic_has_a_slot(topic: str) -> None:
    assert 0 <= slot_of(topic) < SLOTS
    assert slot_of(topic) == slot_of(str(topic.encode(), "utf-8"))


def test_slots_are_the_same_in_every_version_of_the_program() -> None:
    assert [slot_of(topic) for topic in ("", "Some topic", "Beyoncé – Déjà Vu")] == [0, 336, 3358]


@given(names, st.randoms(use_true_random=False))
def test_the_table_does_not_depend_on_the_order_it_is_told_in(endpoint_names: set[str], random: object) -> None:
    pairs = [(name, f"incarnation of {name}") for name in sorted(endpoint_names)]
    shuffled = pairs[:]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert home_table(shuffled) == home_table(pairs)


@given(names, st.text("abcdefgh-123", min_size=1, max_size=6))
def test_only_the_slots_of_the_one_that_leaves_move(endpoint_names: set[str], leaver: str) -> None:
    stayers = endpoint_names - {leaver} or {"somebody"}
    before, after = table_of(stayers | {leaver}), table_of(stayers)
    gone = f"incarnation of {leaver}"
    assert all(old == new for old, new in zip(before, after, strict=True) if old != gone)
    assert gone not in after


def test_a_restarted_endpoint_is_home_of_the_same_slots() -> None:
    before = home_table([("a", "a1"), ("b", "b1"), ("c", "c1")])
    after = home_table([("a", "a1"), ("b", "b2"), ("c", "c1")])
    assert ["b2" if home == "b1" else home for home in before] == after


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 16])
@pytest.mark.parametrize("pattern", ["endpoint-{}", "host.example:{}", "{}"])
def test_the_slots_are_spread_evenly(count: int, pattern: str) -> None:
    homes = Counter(table_of({pattern.format(9000 + number) for number in range(count)}))
    assert len(homes) == count
    fair = SLOTS / count
    deviation = sqrt(fair * (1 - 1 / count))  # standard deviation of a binomial distribution
    assert all(abs(slots - fair) <= 4.5 * deviation for slots in homes.values())


# Joining


def test_alone_an_endpoint_joins_once_it_has_read_the_registry() -> None:
    members = Membership(ME, START)
    assert not members.joined
    members.registry([], START, START + 0.1)
    assert members.joined
    assert set(members.table) == {"a1"}
    assert members.view() == []


def test_a_registry_read_that_began_before_the_round_does_not_count() -> None:
    members = Membership(ME, START)
    members.registry([], START - EPSILON * 1e5, START + 0.1)
    assert not members.joined


def test_nor_does_one_that_began_a_lease_ago() -> None:
    # An endpoint that registered after this one, and cannot reach us, can have taken us for dead. A late welcome does
    # not tell.
    members = Membership(ME, START)
    members.registry([B], START, START + 0.1)
    ticking(members, START + LEASE_S)
    assert not members.lapsed(START + LEASE_S)
    members.welcomed_by("b1", 1)
    assert not members.joined
    members.registry([B], START, START + LEASE_S)
    assert not members.joined
    members.registry([B], START + LEASE_S, START + LEASE_S)
    assert members.joined


def test_an_endpoint_joins_when_all_it_knows_of_have_welcomed_it() -> None:
    members = Membership(ME, START)
    members.registry([B, C, ME], START, START)
    assert not members.joined
    assert members.unwelcomed() == ["b1", "c1"]
    assert set(members.table) == {"a1", "b1", "c1"}
    members.welcomed_by("b1", members.round)
    assert members.unwelcomed() == ["c1"]
    members.welcomed_by("c1", members.round - 1)  # from an earlier round
    assert not members.joined
    members.welcomed_by("c1", members.round)
    assert members.joined
    assert members.unwelcomed() == []


def test_one_that_is_known_by_its_link_only_has_to_welcome_too() -> None:
    members = Membership(ME, START)
    members.connected(B, START)
    members.registry([], START, START)
    assert not members.joined
    members.welcomed_by("b1", 1)
    assert members.joined


def test_a_welcome_by_a_stranger_is_none() -> None:
    members = Membership(ME, START)
    members.welcomed_by("b1", 1)
    members.registry([B], START, START)
    assert not members.joined


def joined_with(*peers: Endpoint, now: float = START) -> Membership:
    """Return a membership that joined with these peers at ``now``, and has just written its heartbeat."""
    members = Membership(ME, now)
    members.registry(peers, now, now)
    for peer in peers:
        members.connected(peer, now)
        members.welcomed_by(peer.incarnation, members.round)
    members.heartbeat_written(now)
    assert members.joined
    return members


def test_a_newcomer_enters_the_view_of_an_acting_endpoint_by_joining_only() -> None:
    members = joined_with(B)
    version = members.version
    members.registry([B, C], START + 1, START + 1)
    members.connected(C, START + 1)
    assert members.view() == ["b1"]
    assert members.version == version
    members.joined_by("c1", 1, 7)
    assert members.view() == ["b1", "c1"]
    assert members.version == version + 1
    assert "c1" in members.table
    assert members.joined


def test_one_that_nobody_knows_cannot_join() -> None:
    members = joined_with(B)
    assert members.joined_by("c1", 2, 7) == 0
    assert members.view() == ["b1"]


def test_an_entry_under_our_own_name_is_no_peer() -> None:
    members = Membership(ME, START)
    members.registry([ME._replace(incarnation="a0"), ME], START, START)
    assert members.peers == {}
    assert members.joined


# The lease


def test_the_lease_is_shorter_than_a_death() -> None:
    assert LEASE_S < DEAD_AFTER_S


def ticking(members: Membership, now: float) -> None:
    members.tick(now - 0.1)


def test_the_lease_lapses_exactly_so_long_after_the_heartbeat_that_was_written() -> None:
    members = joined_with(B)
    members.heartbeat_written(START + 1)
    ticking(members, START + 1 + LEASE_S)
    assert not members.lapsed(START + 1 + LEASE_S - EPSILON * 1e3)
    assert members.joined
    round_before = members.round
    assert members.lapsed(START + 1 + LEASE_S)
    assert not members.joined
    assert members.round == round_before + 1
    assert not members.lapsed(START + 1 + LEASE_S)  # once


def test_a_late_report_of_an_earlier_heartbeat_does_not_shorten_the_lease() -> None:
    members = joined_with(B)
    members.heartbeat_written(START + 2)
    members.heartbeat_written(START + 1)
    ticking(members, START + 4)
    assert not members.lapsed(START + 4)


def test_without_the_store_the_confirmations_of_all_peers_keep_the_lease() -> None:
    members = joined_with(B, C)
    now = START + 10
    ticking(members, now)
    members.confirmed("b1", now - LEASE_S + 0.1)
    members.confirmed("c1", now - LEASE_S + 0.1)
    members.confirmed("c1", now - 5)  # an older one reverts nothing
    assert not members.lapsed(now)


def test_without_the_store_one_silent_peer_ends_the_lease() -> None:
    members = joined_with(B, C)
    now = START + 10
    ticking(members, now)
    members.confirmed("b1", now)
    members.confirmed("c1", now - LEASE_S)
    assert members.lapsed(now)


def test_alone_and_without_the_store_an_endpoint_goes_on() -> None:
    members = joined_with()
    ticking(members, START + 100)
    assert not members.lapsed(START + 100)


def test_a_process_that_was_stalled_believes_nothing() -> None:
    members = joined_with(B)
    members.tick(START)
    members.heartbeat_written(START + 2)
    assert not members.lapsed(START + LEASE_S)
    members.heartbeat_written(START + LEASE_S)
    assert members.lapsed(START + LEASE_S + EPSILON * 1e3)


def test_after_a_lapse_everything_has_to_be_earned_again() -> None:
    members = joined_with(B)
    ticking(members, START + 5)
    assert members.lapsed(START + 5)
    members.welcomed_by("b1", members.round)
    assert not members.joined  # the registry was read in the round before
    members.registry([B], START + 4.9, START + 5.1)
    assert not members.joined
    members.registry([B], START + 5, START + 5.2)
    assert members.joined


def test_a_welcome_is_a_lease_of_its_own() -> None:
    members = Membership(ME, START)
    members.registry([B, C], START, START)
    members.peers["b1"].asked_at = START
    members.welcomed_by("b1", 1)
    ticking(members, START + LEASE_S)
    assert not members.lapsed(START + LEASE_S - EPSILON * 1e3)
    assert members.lapsed(START + LEASE_S)  # b can have taken us for dead since: ask again
    assert members.unwelcomed() == ["b1", "c1"]


# Death


def test_a_peer_is_dead_when_link_and_heartbeat_have_been_silent_for_exactly_so_long() -> None:
    members = joined_with(B)
    assert members.registry([B], START + DEAD_AFTER_S - EPSILON * 1e3, START + DEAD_AFTER_S + 1) == []
    assert members.view() == ["b1"]
    assert members.registry([B], START + DEAD_AFTER_S, START + DEAD_AFTER_S) == [B]
    assert members.view() == []
    assert set(members.table) == {"a1"}
    assert members.registry([B], START + DEAD_AFTER_S, START + DEAD_AFTER_S) == []  # reported once


def test_a_link_that_speaks_keeps_its_peer_alive() -> None:
    members = joined_with(B)
    members.heard("b1", START + 10)
    assert members.registry([B], START + 12, START + 10 + DEAD_AFTER_S - EPSILON * 1e3) == []
    assert members.registry([B], START + 12, START + 10 + DEAD_AFTER_S) == [B]


def test_a_link_that_broke_just_now_is_no_silence_yet() -> None:
    members = joined_with(B)
    members.heard("b1", START + 10)
    members.disconnected("b1")
    assert members.registry([B], START + 11, START + 11) == []


def test_a_heartbeat_that_moves_keeps_its_peer_alive() -> None:
    members = joined_with(B)
    for beat in range(2, 8):
        now = START + 2 * beat
        assert members.registry([B._replace(heartbeat=beat)], now, now) == []
    assert members.view() == ["b1"]


def test_that_a_heartbeat_did_not_move_is_known_up_to_when_the_read_began() -> None:
    members = joined_with(B)
    assert members.registry([B], START + 1, START + 60) == []  # a read that took a minute
    assert members.registry([B], START + 60, START + 60) == [B]


def test_while_the_registry_cannot_be_read_nobody_dies() -> None:
    members = joined_with(B)
    for second in range(100):
        members.tick(START + second)
    assert members.view() == ["b1"]


def test_a_dead_peer_that_moves_again_is_let_in_by_joining_only() -> None:
    members = joined_with(B)
    assert members.registry([B], START + 5, START + 5) == [B]
    assert members.registry([B._replace(heartbeat=2)], START + 6, START + 6) == []
    assert members.view() == []
    members.joined_by("b1", 2, 7)
    assert members.view() == ["b1"]


def test_who_comes_back_is_told_whether_this_endpoint_has_acted_without_it() -> None:
    members = joined_with(B)
    assert members.joined_by("b1", 2, 7) == 0  # its lease lapsed before any peer took it for dead
    members.registry([B], START + 5, START + 5)
    members.registry([B._replace(heartbeat=2)], START + 6, START + 6)
    assert members.joined_by("b1", 3, 7) == 7
    assert members.joined_by("b1", 3, 9) == 7  # the answer could be lost
    assert members.joined_by("b1", 4, 11) == 0


def test_whoever_this_endpoint_did_not_act_without_has_missed_nothing() -> None:
    members = Membership(ME, START)
    members.connected(B, START)
    assert members.joined_by("b1", 2, 7) == 0  # this one has never acted
    members = joined_with(B, C)
    assert members.lapsed(START + LEASE_S)
    members.heard("c1", START + 5)
    members.registry([B, C], START + 5, START + 5)
    assert (members.view(), members.joined) == (["c1"], False)
    members.connected(B, START + 5)
    assert members.joined_by("b1", 2, 7) == 0


def test_a_newcomer_has_missed_nothing_for_it_has_kept_nothing() -> None:
    members = joined_with(B)
    members.connected(C, START + 1)
    assert members.joined_by("c1", 1, 7) == 0
    assert members.joined_by("c1", 2, 7) == 0


def test_who_comes_back_unknown_has_missed_what_was_done_since() -> None:
    members = joined_with(B)
    members.connected(C, START + 1)
    assert members.joined_by("c1", 2, 7) == 7


def test_this_process_stood_still_when_time_has_jumped_by_more_than_a_lease() -> None:
    members = joined_with(B)
    members.tick(START + 0.1)
    members.tick(START + 0.1 + LEASE_S)
    assert members.stalls == 0
    members.tick(START + 0.3 + 2 * LEASE_S)
    assert members.stalls == 1


def test_a_dead_peer_that_is_no_longer_in_the_registry_is_forgotten() -> None:
    members = joined_with(B)
    members.registry([], START + 5, START + 5)
    assert members.peers == {}


def test_the_entry_of_one_dead_for_long_is_to_be_taken_out() -> None:
    members = joined_with(B)
    members.registry([B], START + 5, START + 5)
    assert members.forgotten(START + 5 + FORGET_AFTER_S - EPSILON * 1e3) == []
    assert members.forgotten(START + 5 + FORGET_AFTER_S) == [B]


# Superseded, and gone by their own announcement


@pytest.mark.parametrize("how", ["registry", "link"])
def test_a_newer_incarnation_takes_the_place_of_the_older_at_once(how: str) -> None:
    members = joined_with(B)
    if how == "registry":
        gone = members.registry([NEXT_B], START + 1, START + 1)
    else:
        gone = members.connected(NEXT_B, START + 1)
    assert gone == [B]
    assert members.view() == []
    assert set(members.peers) == {"b2"}
    assert members.connected(B, START + 2) == []  # the older one is gone for good
    assert members.registry([B, NEXT_B], START + 2, START + 2) == []
    assert set(members.peers) == {"b2"}


def test_one_that_said_goodbye_is_out_of_the_view_and_stays_out() -> None:
    members = joined_with(B)
    assert members.left("b1") == B
    assert members.left("b1") is None
    members.registry([B], START + 1, START + 1)
    members.connected(B, START + 1)
    assert members.peers == {}
    assert set(members.table) == {"a1"}


def test_what_is_remembered_of_the_gone_is_bounded() -> None:
    members = Membership(ME, START)
    for number in range(WRITTEN_OFF_MAX + 10):
        members.left(f"x{number}")
    assert len(members._written_off) == WRITTEN_OFF_MAX
    members.registry([B._replace(incarnation=f"x{WRITTEN_OFF_MAX + 9}")], START, START)
    assert members.peers == {}


# Leaving


def test_one_that_leaves_gives_its_slots_to_the_others() -> None:
    members = joined_with(B)
    members.leave()
    assert not members.joined
    assert set(members.table) == {"b1"}
    members.registry([B], START + 1, START + 1)
    assert members.unwelcomed() == []
    assert not members.joined


def test_the_last_one_stays_home_to_the_end() -> None:
    members = joined_with()
    members.leave()
    assert members.joined
    assert set(members.table) == {"a1"}


def test_one_that_is_told_while_the_others_leave_already_is_the_last_one() -> None:
    members = joined_with(B)
    members.leaves("b1")
    members.leave()
    assert members.joined
    assert set(members.table) == {"a1"}


# Introductions of peers


def test_the_grace_time_is_the_least_of_those_in_the_view() -> None:
    members = Membership(ME, START, grace_s=60.0)
    assert members.grace_s == 60.0
    members.connected(B, START, Introduction(7.5))
    members.connected(C, START, Introduction(90.0))
    assert members.grace_s == 7.5
    members.disconnected("b1")
    assert members.grace_s == 7.5
    members.left("b1")
    assert members.grace_s == 60.0


def test_a_newcomer_counts_once_it_may_become_a_home() -> None:
    members = Membership(ME, START, grace_s=60.0)
    members.registry([], START, START)
    members.connected(B, START, Introduction(1.0))
    assert members.grace_s == 60.0
    members.joined_by("b1", 1, 0)
    assert members.grace_s == 1.0


def test_endpoints_that_go_by_other_settings_are_named_from_their_link_to_their_death() -> None:
    members = Membership(ME, START, settings=Settings(replication=True))
    members.registry([B, C], START, START)
    assert members.differing() == []  # neither has introduced itself yet
    members.connected(C, START, Introduction(60.0, Settings()))
    members.connected(B, START, Introduction(60.0, Settings(True, "memory")))
    assert members.differing() == ["b", "c"]
    members.connected(C, START, Introduction(1.0, Settings(replication=True)))  # it restarted with these
    assert members.differing() == ["b"]
    members.registry([B, C], START + DEAD_AFTER_S, START + DEAD_AFTER_S)
    assert members.differing() == []


@pytest.mark.parametrize("history", ["memory", "store"])
def test_messages_are_kept_where_any_endpoint_keeps_them(history: str) -> None:
    keeping = Settings(history=history)
    assert Membership(ME, START, settings=keeping).keep_messages
    members = Membership(ME, START)
    members.registry([B], START, START)
    assert not members.keep_messages
    members.connected(B, START, NO_INTRODUCTION)
    assert not members.keep_messages
    members.connected(B, START, Introduction(60.0, keeping))
    assert members.keep_messages
    members.left("b1")
    assert not members.keep_messages


def test_this_endpoint_is_in_its_own_view() -> None:
    members = joined_with(B)
    assert members.in_view("a1")
    assert members.in_view("b1")
    assert not members.in_view("c1")


# The invariant, between two observers


@given(
    written_at=st.floats(0, 10),
    begun_after=st.floats(-3, 10),
    read_took=st.floats(0, 5),
    heard_at=st.floats(-10, 10),
)
def test_whoever_is_taken_for_dead_has_let_its_lease_lapse(
    written_at: float, begun_after: float, read_took: float, heard_at: float
) -> None:
    """All on one clock: b began its last heartbeat at ``written_at``, and a last heard from b at ``heard_at``."""
    observer = Membership(ME, 0.0)
    observer.registry([B], 0.0, 0.0)
    seen_at = max(written_at, 0.0)  # no observer can see a heartbeat before its write began
    observer.registry([B._replace(heartbeat=2)], seen_at, seen_at)
    observer.heard("b1", heard_at)
    begun_at = seen_at + max(begun_after, 0.0)
    now = begun_at + read_took
    observer.registry([B._replace(heartbeat=2)], begun_at, now)
    if observer.view() == []:
        other = Membership(B, 0.0)
        other.registry([ME], 0.0, 0.0)
        other.welcomed_by("a1", 1)
        assert other.joined
        other.heartbeat_written(written_at)
        other.confirmed("a1", heard_at)  # at best b sent it at the moment when a heard it
        other.tick(now)
        assert other.lapsed(now)
