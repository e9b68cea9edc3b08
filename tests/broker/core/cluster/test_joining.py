"""Joining, staying and leaving: the signs of life, the name, when an endpoint welcomes newcomers, and lost peers."""

from __future__ import annotations

import pytest

from ingeborg.broker.core.cluster.assembly import Cluster
from ingeborg.broker.core.cluster.joining import AGAIN_S, NAME_MOVES, NAME_QUIET_S, PERIOD_S, PREPARE_S
from ingeborg.broker.core.cluster.membership import DEAD_AFTER_S, FORGET_AFTER_S, LEASE_S
from ingeborg.broker.core.effects import DropLink, Gone, Joined, Stop
from ingeborg.broker.core.links.calls import Call
from ingeborg.broker.core.links.requests import JoinRequest, LeaveRequest, PrepareRequest, Request
from ingeborg.broker.core.model import (
    NO_INTRODUCTION,
    Endpoint,
    StoreError,
    StoreLost,
    StoreUnavailable,
    Superseded,
)
from ingeborg.broker.core.part import Part

from ..fake_desk import ME, FakeDesk, Stored
from ..surroundings import peer

DOWN = StoreUnavailable("no quorum")


class Observer(Part):
    """A part that records its calls."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.missed: list[tuple[str, int | None]] = []

    def view_changed(self) -> None:
        self.told.append("view changed")

    def joined(self) -> None:
        self.told.append("joined")

    def lapsed(self) -> None:
        self.told.append("lapsed")

    def peer_missed(self, peer: str, void_before: int | None) -> None:
        self.missed.append((peer, void_before))


class Newcomer:
    """An endpoint from its first tick on. The test moves time."""

    def __init__(self, *, alone_at_url: bool = True) -> None:
        self.desk = FakeDesk()
        cluster = Cluster(self.desk.base, alone_at_url=alone_at_url)
        self.members, self.joining = cluster.members, cluster.joining
        self.writes, self.transfers = cluster.writes, cluster.transfers
        self.observer = Observer()
        cluster.observers.bind([self.observer])

    def later(self, seconds: float = PERIOD_S) -> None:
        self.desk.now += seconds
        self.joining.tick()

    def stored(self, *operations: str) -> list[Stored]:
        """Return the calls of the store since the last look, and assert their operations."""
        calls = self.desk.stored[:]
        self.desk.stored.clear()
        assert [call.operation for call in calls] == list(operations)
        return calls

    def asked(self) -> list[tuple[type[Request], str]]:
        """Return the requests to peers since the last look, and keep the last one in ``last``."""
        asked = self.desk.asked[:]
        self.desk.asked.clear()
        if asked:
            self.last: Call = asked[-1]
        return [(type(call.request), call.target) for call in asked]

    def stopped(self) -> list[str]:
        return [act.why for act in self.desk.acts if isinstance(act, Stop)]

    def link_up(self, incarnation: str) -> None:
        self.joining.link_up(peer(incarnation), NO_INTRODUCTION)

    def prepare(self, *peers: str) -> None:
        """Answer that these peers replicated all future slots of this endpoint. Assert that this was the only
        request."""
        asked = self.desk.asked[:]
        self.desk.asked.clear()
        assert [(type(call.request), call.target) for call in asked] == [(PrepareRequest, peer) for peer in peers]
        for call in asked:
            self.joining.answered(call, True)

    def register(self) -> None:
        """Find the name free, and write the entry."""
        self.joining.tick()
        self.stored("endpoints")[0].end([])
        self.stored("register")[0].end()

    def read(self, *entries: Endpoint) -> None:
        """A period later, write the heartbeat and read this registry."""
        self.later()
        heartbeat, registry = self.stored("heartbeat", "endpoints")
        heartbeat.end()
        registry.end([ME, *entries])

    def join(self, *peers: str) -> None:
        """Link the peers, and let them welcome this endpoint."""
        self.register()
        for incarnation in peers:
            self.link_up(incarnation)
        self.read(*map(peer, peers))
        self.prepare(*peers)
        calls = list(self.desk.asked)
        self.desk.asked.clear()
        for call in calls:
            self.joining.answered(call, 0)
        assert self.members.joined
        self.observer.told.clear()
        self.desk.acts.clear()


@pytest.fixture
def newcomer() -> Newcomer:
    return Newcomer()


@pytest.fixture
def member() -> Newcomer:
    """Return an endpoint that has joined the peers p and q."""
    member = Newcomer()
    member.join("p", "q")
    return member


# The name


def test_the_name_is_looked_up_before_it_is_registered(newcomer: Newcomer) -> None:
    newcomer.joining.tick()
    (look,) = newcomer.stored("endpoints")
    newcomer.later()
    newcomer.stored()  # one look at a time
    look.end([peer("p")])
    assert newcomer.stored("register")[0].arguments == (ME._replace(heartbeat=1),)
    assert not newcomer.joining.name_awaited


def test_a_look_that_failed_is_repeated(newcomer: Newcomer) -> None:
    newcomer.joining.tick()
    newcomer.stored("endpoints")[0].end(error=DOWN)
    newcomer.stored()
    newcomer.later()
    newcomer.stored("endpoints")


def test_who_was_at_our_url_under_our_name_is_dead(newcomer: Newcomer) -> None:
    newcomer.joining.tick()
    newcomer.stored("endpoints")[0].end([ME._replace(incarnation="before")])
    newcomer.stored("register")


@pytest.mark.parametrize("url", [ME.url, "ws://elsewhere"])
def test_a_name_that_another_may_still_have_is_taken_when_it_has_been_quiet_for_long_enough(url: str) -> None:
    newcomer = Newcomer(alone_at_url=False)
    holder = Endpoint("me", "before", url, 7)
    newcomer.joining.tick()
    newcomer.stored("endpoints")[0].end([holder])
    for _ in range(round(NAME_QUIET_S / PERIOD_S)):
        assert newcomer.joining.name_awaited
        newcomer.later()
        newcomer.stored("endpoints")[0].end([holder])
    newcomer.stored("register")
    assert newcomer.stopped() == []


def test_a_name_that_another_lives_under_is_left_to_it(newcomer: Newcomer) -> None:
    newcomer.joining.tick()
    for heartbeat in range(NAME_MOVES + 1):
        assert newcomer.stopped() == []
        newcomer.stored("endpoints")[0].end([Endpoint("me", "other", "ws://elsewhere", heartbeat)])
        newcomer.later()
    (why,) = newcomer.stopped()
    assert "'me' is already running at ws://elsewhere" in why
    newcomer.later()
    newcomer.stored()


# Signs of life


def test_the_heartbeat_is_written_and_the_registry_read_in_every_period(newcomer: Newcomer) -> None:
    newcomer.register()
    for beat in (2, 3):
        newcomer.later(PERIOD_S / 2)
        heartbeat, registry = newcomer.stored("heartbeat", "endpoints")
        assert heartbeat.arguments == (ME._replace(heartbeat=beat),)
        heartbeat.end()
        registry.end([])
        newcomer.later(PERIOD_S / 2)
        newcomer.stored()


def test_none_is_begun_while_the_last_is_under_way(newcomer: Newcomer) -> None:
    newcomer.register()
    newcomer.later()
    heartbeat, registry = newcomer.stored("heartbeat", "endpoints")
    newcomer.later()
    newcomer.stored()
    heartbeat.end(error=DOWN)
    newcomer.later()
    newcomer.stored("heartbeat")
    registry.end(error=DOWN)
    newcomer.later()
    newcomer.stored("endpoints")


def test_a_heartbeat_keeps_the_lease_from_when_its_writing_began(newcomer: Newcomer) -> None:
    newcomer.register()
    newcomer.later()
    heartbeat, _ = newcomer.stored("heartbeat", "endpoints")
    newcomer.desk.now += 1.0
    heartbeat.end()
    assert newcomer.members.store_fresh(newcomer.desk.now, 1.01)
    assert not newcomer.members.store_fresh(newcomer.desk.now, 1.0)


def test_until_it_is_registered_it_tries_to_register(newcomer: Newcomer) -> None:
    newcomer.joining.tick()
    newcomer.stored("endpoints")[0].end([])
    newcomer.stored("register")[0].end(error=DOWN)
    newcomer.later()
    newcomer.stored("register")[0].end()
    newcomer.later(0.0)  # it reads earlier registrations at once
    newcomer.stored("heartbeat", "endpoints")


@pytest.mark.parametrize("error", [Superseded("another runs under this name"), StoreLost("another store is there")])
def test_a_process_that_must_not_go_on_stops(newcomer: Newcomer, error: StoreError) -> None:
    newcomer.register()
    newcomer.later()
    newcomer.stored("heartbeat", "endpoints")[0].end(error=error)
    assert newcomer.stopped() == [str(error)]
    assert newcomer.joining.stopping == str(error)


# Joining


def test_alone_it_has_joined_with_the_first_look_at_the_registry(newcomer: Newcomer) -> None:
    newcomer.register()
    assert not newcomer.members.joined
    newcomer.read()
    assert newcomer.observer.told[0] == "joined"
    assert [act for act in newcomer.desk.acts if isinstance(act, Joined)] == [Joined()]
    assert newcomer.desk.counts["joins"] == 1


def test_it_has_joined_when_all_peers_have_welcomed_it(newcomer: Newcomer) -> None:
    newcomer.register()
    newcomer.read(peer("p"), peer("q"))
    assert newcomer.asked() == []  # the peers are not reachable yet
    newcomer.link_up("p")
    newcomer.prepare("p")
    assert newcomer.asked() == []  # no peer should release a slot before all can
    newcomer.link_up("q")
    newcomer.prepare("q")
    of_p, of_q = newcomer.desk.asked
    assert newcomer.asked() == [(JoinRequest, "p"), (JoinRequest, "q")]
    assert of_p.request == of_q.request == JoinRequest(newcomer.members.round)
    newcomer.later()
    assert newcomer.asked() == []  # once in a round
    newcomer.joining.answered(of_p, 0)
    assert not newcomer.members.joined
    newcomer.joining.answered(of_q, 0)
    assert newcomer.members.joined
    assert newcomer.observer.told.count("joined") == 1
    assert Joined() in newcomer.desk.acts


def test_peers_are_asked_to_join_when_all_have_copied(newcomer: Newcomer) -> None:
    newcomer.register()
    newcomer.read(peer("p"), peer("q"))
    newcomer.link_up("p")
    newcomer.link_up("q")
    of_p, of_q = newcomer.desk.asked
    assert newcomer.asked() == [(PrepareRequest, "p"), (PrepareRequest, "q")]
    newcomer.joining.answered(of_p, True)
    newcomer.joining.answered(of_q, False)
    assert newcomer.asked() == []
    newcomer.later(0.1)
    assert newcomer.asked() == [(PrepareRequest, "q")]
    newcomer.joining.failed(newcomer.last, "peer_unavailable", "")
    newcomer.later(AGAIN_S)
    assert newcomer.asked() == [(PrepareRequest, "p"), (PrepareRequest, "q")]
    newcomer.joining.answered(newcomer.last, True)
    assert newcomer.asked() == [(JoinRequest, "p"), (JoinRequest, "q")]


def test_one_that_replicates_for_too_long_is_waited_for_no_longer(newcomer: Newcomer) -> None:
    newcomer.register()
    newcomer.link_up("p")
    newcomer.read(peer("p"))
    assert newcomer.asked() == [(PrepareRequest, "p")]
    waited_s = 0.0
    while (kind := type(newcomer.last.request)) == PrepareRequest:
        newcomer.joining.answered(newcomer.last, False)
        waited_s += 0.5
        newcomer.later(0.5)
        newcomer.asked()
        newcomer.desk.stored.clear()
    assert kind == JoinRequest
    assert PREPARE_S - 0.5 <= waited_s <= PREPARE_S + 0.5


def test_a_peer_that_did_not_answer_is_asked_again(newcomer: Newcomer) -> None:
    newcomer.register()
    newcomer.link_up("p")
    newcomer.prepare("p")
    newcomer.asked()
    newcomer.joining.failed(newcomer.last, "peer_unavailable", "")
    newcomer.later(0.1)
    assert newcomer.asked() == [(JoinRequest, "p")]


@pytest.mark.parametrize(("answer", "missed"), [(0, []), (7, [("p", 7)])])
def test_the_welcome_says_whether_the_peer_has_acted_without_this_endpoint(
    newcomer: Newcomer, answer: int, missed: list[tuple[str, int | None]]
) -> None:
    newcomer.register()
    newcomer.link_up("p")
    newcomer.prepare("p")
    newcomer.asked()
    newcomer.joining.answered(newcomer.last, answer)
    assert newcomer.observer.missed == missed


def test_a_welcome_that_did_not_come_may_have_said_so(newcomer: Newcomer) -> None:
    newcomer.register()
    newcomer.link_up("p")
    newcomer.prepare("p")
    newcomer.asked()
    newcomer.joining.failed(newcomer.last, "peer_unavailable", "")
    assert newcomer.observer.missed == [("p", None)]


def test_one_that_is_gone_is_not(newcomer: Newcomer) -> None:
    newcomer.register()
    newcomer.link_up("p")
    newcomer.prepare("p")
    newcomer.asked()
    assert newcomer.joining.lost(newcomer.last) is None
    newcomer.later(0.1)
    assert newcomer.asked() == []


def test_a_welcome_is_a_lease_from_when_it_was_asked_for(newcomer: Newcomer) -> None:
    newcomer.link_up("p")
    newcomer.prepare("p")
    asked_at = newcomer.desk.now
    newcomer.desk.now += 1.0
    newcomer.asked()
    newcomer.joining.answered(newcomer.last, 0)
    assert not newcomer.members.lapsed(asked_at + LEASE_S - 0.01)
    assert newcomer.members.lapsed(asked_at + LEASE_S)


def test_a_lapsed_lease_is_counted_told_and_followed_by_a_new_round(member: Newcomer) -> None:
    member.desk.now += DEAD_AFTER_S
    assert member.members.lapsed(member.desk.now)
    member.joining.lease_lapsed()
    assert member.observer.told == ["lapsed"]
    assert member.desk.counts["leases_lapsed"] == 1
    member.later()
    member.prepare("p", "q")
    assert member.asked() == [(JoinRequest, "p"), (JoinRequest, "q")]
    assert member.last.context == 2


# Newcomers


def test_a_newcomer_is_welcome_when_nothing_is_under_way_for_the_slots_that_are_its(member: Newcomer) -> None:
    member.link_up("new")
    assert member.members.table.count("new") == 0
    member.writes.begin("write")
    member.transfers.begin("keys of before")
    member.joining.join_requested("new", 5, JoinRequest(1))
    assert member.members.table.count("new") > 0  # from here on these are the newcomer's slots
    assert member.observer.told == ["view changed"]
    member.writes.begin("later write")
    member.transfers.begin("keys")
    member.writes.end("write")
    member.transfers.end("keys of before")
    assert member.desk.answers == []
    member.transfers.end("keys")
    assert member.desk.answers == [("new", 5, 0)]


def test_a_peer_that_joins_again_and_has_its_slots_still_changes_no_view(member: Newcomer) -> None:
    member.joining.join_requested("p", 5, JoinRequest(2))
    assert member.desk.answers == [("p", 5, 0)]
    assert member.observer.told == []


def test_a_stranger_is_declined(member: Newcomer) -> None:
    member.joining.join_requested("stranger", 5, JoinRequest(1))
    assert member.desk.declined == [("stranger", 5, "peer_unavailable")]
    assert member.observer.told == []


# Peers that go


def test_a_peer_that_is_dead_is_told_of_once_and_its_link_dropped(member: Newcomer) -> None:
    for beat in range(2, 2 + round(2 * DEAD_AFTER_S / PERIOD_S)):
        member.read(peer("p")._replace(heartbeat=beat), peer("q"))
    assert member.observer.told == ["view changed"]
    assert member.desk.counts["endpoints_gone"] == 1
    assert [act for act in member.desk.acts if isinstance(act, DropLink)] == [DropLink("q")]
    assert [act.endpoint.name for act in member.desk.acts if isinstance(act, Gone)] == ["q"]
    assert member.members.table.count("q") == 0


def test_the_entry_of_one_that_is_dead_for_long_is_taken_out(member: Newcomer) -> None:
    dead = peer("q")
    beats = iter(range(2, 1_000))

    def read() -> None:
        member.read(peer("p")._replace(heartbeat=next(beats)), dead)

    while member.members.peers["q"].dead_since is None:
        read()
    for _ in range(round(FORGET_AFTER_S / PERIOD_S)):
        member.stored()
        read()
    (out,) = member.stored("deregister")
    assert out.arguments == (dead,)
    read()
    member.stored()  # one call at a time
    out.end(error=DOWN)
    read()
    member.stored("deregister")


def test_a_peer_that_leaves_is_home_of_nothing_and_gone_with_its_link(member: Newcomer) -> None:
    member.joining.leave_announced("p", 5, LeaveRequest())
    assert member.members.table.count("p") == 0
    assert "p" in member.members.view()  # p still has its clients
    assert member.observer.told == ["view changed"]
    assert member.desk.answers == [("p", 5, None)]
    member.joining.link_down("p")
    assert "p" not in member.members.peers
    assert member.desk.counts["endpoints_gone"] == 1


def test_one_whose_link_breaks_without_a_word_stays(member: Newcomer) -> None:
    member.joining.link_down("p")
    assert "p" in member.members.view()
    assert member.observer.told == []


# Leaving


def test_who_leaves_says_so_when_its_writes_have_ended(member: Newcomer) -> None:
    member.writes.begin("write")
    member.joining.leave()
    assert member.members.table.count("m") == 0
    assert member.observer.told == ["view changed"]
    member.joining.tick()
    assert member.asked() == []
    assert not member.joining.transferred
    member.writes.end("write")
    member.joining.tick()
    assert member.asked() == [(LeaveRequest, "p"), (LeaveRequest, "q")]
    member.joining.tick()
    assert member.asked() == []


def test_it_has_transferred_when_that_is_said_and_keys_are_on_their_way(member: Newcomer) -> None:
    member.transfers.begin("keys")
    member.joining.leave()
    assert not member.joining.transferred
    member.joining.tick()
    assert member.asked() == []  # the keys come before the request that makes peers the new homes
    member.transfers.end("keys")
    assert not member.joining.transferred
    member.joining.go_on_leaving()
    assert member.asked() == [(LeaveRequest, "p"), (LeaveRequest, "q")]
    assert member.joining.transferred


def test_a_peer_that_did_not_take_note_is_told_again(member: Newcomer) -> None:
    member.joining.leave()
    member.joining.tick()
    member.asked()
    told = member.last
    member.joining.failed(told, "peer_unavailable", "")
    assert member.asked() == [(LeaveRequest, told.target)]


def test_one_that_comes_later_is_told_when_it_joins(member: Newcomer) -> None:
    member.joining.leave()
    member.joining.tick()
    member.asked()
    member.link_up("new")
    member.joining.join_requested("new", 5, JoinRequest(1))
    assert member.asked() == [(LeaveRequest, "new")]
    assert member.desk.answers == [("new", 5, 0)]


def test_it_is_gone_when_its_clients_are_it_is_out_of_the_registry_and_idle(member: Newcomer) -> None:
    inflight = member.desk.base.inflight
    inflight.begin(0)
    member.joining.leave()
    member.joining.tick()
    member.stored()  # it stays registered while it has clients
    member.joining.depart()
    member.joining.tick()
    (out,) = member.stored("deregister")
    assert out.arguments == (ME,)
    member.asked()
    inflight.end(0)
    assert not member.joining.left
    out.end(error=DOWN)  # the others will find it dead
    assert member.joining.left
    inflight.begin(0)
    assert not member.joining.left
    member.later(10.0)
    member.stored()  # it has stopped its signs of life


def test_its_entry_is_taken_out_behind_its_last_heartbeat(member: Newcomer) -> None:
    member.later()
    heartbeat, _ = member.stored("heartbeat", "endpoints")
    member.joining.leave()
    member.joining.depart()
    member.joining.tick()
    member.stored()
    heartbeat.end()
    member.joining.tick()
    member.stored("deregister")


def test_one_that_is_alone_is_home_until_it_is_taken_out_and_its_writes_have_ended(newcomer: Newcomer) -> None:
    newcomer.join()
    newcomer.joining.leave()
    newcomer.joining.tick()
    newcomer.writes.begin("write")
    newcomer.joining.depart()
    newcomer.joining.tick()
    newcomer.stored()  # an endpoint that starts now asks this one, and is welcome when the write has ended
    assert (newcomer.members.joined, newcomer.observer.told) == (True, [])
    newcomer.writes.end("write")
    newcomer.joining.tick()
    newcomer.stored("deregister")
    assert (newcomer.members.joined, newcomer.observer.told) == (False, ["lapsed"])
