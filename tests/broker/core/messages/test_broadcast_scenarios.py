"""Broadcasts, in scripts: their recipients, also while clients move and links are cut. SPEC.md section 8, rule 3.

A broadcast has a home, as topics have; here ``home``. ``tests/simulator/test_broadcasts.py`` has random histories of
the same kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ingeborg.broker.core.limits import SIZES, Sizes
from ingeborg.broker.core.links.requests import BroadcastRequest, DeliverRequest, Request
from ingeborg.broker.core.topics.moved import MOVED_S
from ingeborg.protocol.hashes import slot_of

from ..queued import queued
from ..talk import DELAY_S, Cluster, Talker

ROUTINGS = pytest.mark.parametrize("routing", ["home", "lookup"])


class Broadcasting(Cluster):
    """Endpoints. At ``home``, the home of broadcasts, bert sends one."""

    def __init__(self, names: str = "abc", routing: str = "home", sizes: Sizes = SIZES) -> None:
        super().__init__(*names, routing=routing, sizes=sizes)
        table = self.nodes["a"].router.members.table
        self.home = "a" if routing == "lookup" else self.world.nodes[table[slot_of("")]].me.name
        self.others = sorted(set(names) - {self.home})
        self.bert = self.client("bert", self.home)

    def cut(self, one: str, other: str, seconds: float) -> None:
        for sides in ((one, other), (other, one)):
            self.world.cut(*sides, seconds)

    def listen(self, client: str, at: str) -> Talker:
        """Send a `listen` without waiting for the reply."""
        talker = self.client(client, at)
        talker.send(command="listen")
        return talker

    def requests_of_home(self, sent: Callable[[str, Request], None]) -> None:
        """Call ``sent`` for each at the end of its turn, with the peer's incarnation."""
        node = self.nodes[self.home]

        def look() -> None:
            for peer, link in node.router.calls.links.items():
                for _, said in queued(link):
                    if isinstance(said, Request):
                        sent(peer, said)

        node.on_turn = look

    def broadcast(self, **fields: Any) -> None:
        self.bert.send(command="broadcast", payload="x", ack=True, **fields)


def times(*places: Talker) -> int:
    """Return how often the broadcast came."""
    return sum(place.heard.count("everybody: 'x'") for place in places)


@ROUTINGS
def test_it_goes_to_every_listening_client_once(routing: str) -> None:
    cluster = Cluster("a", "b", "c", routing=routing)
    listeners = [cluster.listener(f"listener-{place}", place) for place in "abc"]
    gateway = cluster.client("x", "b")
    for client in ("x", "y"):
        gateway.say("listen", client_id=client)
    deaf = cluster.client("deaf", "c")
    cluster.client("gone", "c").close()
    sender = cluster.client("sender", "a")
    assert sender.say("broadcast 'news' #1") == ["ok 1"]
    assert sender.say("broadcast 'news' #2") == ["ok 2 duplicate"]
    assert listeners[0].say("broadcast 'news' #3") == ["ok 3 duplicate"]
    assert [listener.heard.count("everybody: 'news'") for listener in listeners] == [1, 1, 1]
    assert gateway.heard[2:] == ["everybody: 'news'", "everybody: 'news'"]
    assert (deaf.heard, sender.heard) == ([], ["ok 1", "ok 2 duplicate"])
    assert gateway.notes[0][1] is None


def test_one_to_many_leaves_room_for_other_messages() -> None:
    cluster = Cluster("a")
    crowd = cluster.client("0", "a")
    for number in range(3 * SIZES.delivery_slice):
        crowd.send(command="listen", client_id=str(number))
    cluster.world.run(1.0)
    assert crowd.heard == ["ok"] * 3 * SIZES.delivery_slice
    anna = cluster.listener("anna", "a", "t")
    anna.say("publish t 'warm'")
    sender = cluster.client("sender", "a")
    sender.send(command="broadcast", payload="news", ack=True, id=1)
    sender.world.run(0.0105)  # it has begun
    router = cluster.nodes["a"].router
    assert router._jobs
    sent = router.counters.counts["messages_delivered"]
    router.work(cluster.world.now)
    assert 0 < router.counters.counts["messages_delivered"] - sent <= SIZES.delivery_slice
    assert sender.hear() == ["ok 1"]
    assert crowd.heard.count("everybody: 'news'") == 3 * SIZES.delivery_slice


def test_one_that_died_with_an_endpoint_is_counted() -> None:
    cluster = Broadcasting("ab")
    cluster.world.crash(cluster.nodes[cluster.others[0]])
    cluster.broadcast()
    assert cluster.bert.hear(6.0) == ["ok"]
    assert cluster.nodes[cluster.home].router.counters.drops["broadcast_endpoint_gone"] == 1


# Clients that move


@ROUTINGS
@pytest.mark.parametrize("comes_first", ["broadcast", "move"])
@pytest.mark.parametrize("to_the_home", [False, True], ids=["elsewhere", "to the home"])
def test_who_moves_before_it_comes_to_the_old_place_gets_it_at_the_new_one(
    routing: str, comes_first: str, to_the_home: bool
) -> None:
    """The new place has already had the broadcast, and the old one, cut off, has not."""
    cluster = Broadcasting(routing=routing)
    old, other = cluster.others
    stays, anna = cluster.listener("stays", cluster.home), cluster.listener("anna", old)
    cluster.cut(cluster.home, old, 2.0)
    moved = cluster.client("anna", cluster.home if to_the_home else other)
    says: list[Callable[[], object]] = [cluster.broadcast, lambda: moved.send(command="listen")]
    for say in says if comes_first == "broadcast" else reversed(says):
        say()
        cluster.world.run(0.5)
    cluster.world.run(4.0)
    assert cluster.bert.heard == ["ok"]
    assert times(stays) == 1
    assert anna.heard == ["ok", "closed 4001"]
    assert sorted(moved.heard) == ["everybody: 'x'", "ok"]


@pytest.mark.parametrize("how", ["home", "home that knows no places", "lookup"])
def test_who_moves_on_while_it_is_on_its_way_to_the_new_place_gets_it(how: str) -> None:
    """... although the place to which the client returns has had it meanwhile, as the other had before."""
    cluster = Broadcasting(routing="lookup" if how == "lookup" else "home")
    home, (old, other) = cluster.home, cluster.others
    first = cluster.listener("anna", old)
    cluster.cut(home, old, 2.0)
    cluster.broadcast()  # home and other get it at once
    cluster.world.run(0.5)
    second = cluster.listen("anna", other)
    cluster.world.run(1.4)
    if how == "home that knows no places":
        cluster.nodes[home].router.topics.locations.clear()
    cluster.cut(home, other, 1.0)
    cluster.world.run(0.6)  # old has answered that she has moved; the request that follows her to other waits
    third = cluster.listen("anna", old)
    cluster.world.run(4.0)
    assert cluster.bert.heard == ["ok"]
    assert times(first, second, third) == 1


def test_who_never_rests_does_not_keep_it_for_ever() -> None:
    """Each time the broadcast reaches anna's known place, she has moved on."""
    cluster = Broadcasting()
    home, (old, other) = cluster.home, cluster.others
    places = [cluster.listener("anna", old)]
    moves: list[float] = []

    def sent(peer: str, request: Request) -> None:
        if isinstance(request, DeliverRequest):
            there = cluster.world.nodes[peer].me.name
            cluster.cut(home, there, 0.1)
            moves.append(cluster.world.now)
            places.append(cluster.listen("anna", other if there == old else old))

    cluster.requests_of_home(sent)
    cluster.cut(home, old, 0.5)
    cluster.broadcast()
    cluster.world.run(0.1)
    places.append(cluster.listen("anna", other))
    begun = cluster.world.now
    cluster.world.run(MOVED_S + 2.0)
    assert cluster.bert.heard == ["ok"]
    assert len(moves) > 10
    assert MOVED_S - 1.0 < moves[-1] - begun < MOVED_S + 1.0
    assert times(*places) == 0
    assert cluster.nodes[home].router.counters.drops["not_listening"] == 1
    assert cluster.nodes[home].router.inflight.messages == 0


@ROUTINGS
def test_who_comes_again_to_the_same_place_between_two_slices_has_it_once(routing: str) -> None:
    cluster = Broadcasting(routing=routing, sizes=Sizes(delivery_slice=1))
    old, other = cluster.others
    for number in range(60):
        cluster.listener(f"crowd {number}", other)
    cluster.listener("anna", old)
    cluster.cut(cluster.home, old, 2.0)
    cluster.world.run(0.1)
    first = cluster.listen("anna", other)
    cluster.world.run(0.3)
    cluster.broadcast()
    cluster.world.run(1.5 * DELAY_S)  # the requests go out
    again = cluster.listen("anna", other)
    cluster.world.run(4.0)
    assert (times(first), times(again)) in {(1, 0), (0, 1)}


@pytest.mark.parametrize("how", ["a new connection", "unlisten and listen", "a listen that fails"])
def test_who_comes_again_to_the_same_place_behind_it_does_not_get_it_again(how: str) -> None:
    """The old place, cut off until then, says that she has moved; the new one knows that she has had it."""
    cluster = Broadcasting()
    old, other = cluster.others
    cluster.listener("anna", old)
    cluster.cut(cluster.home, old, 2.0)
    first = cluster.listen("anna", other)
    cluster.world.run(0.3)
    cluster.broadcast()
    cluster.world.run(0.3)
    assert times(first) == 1
    again = cluster.client("anna", other)
    if how == "unlisten and listen":
        first.send(command="unlisten")
        first.send(command="listen")
    elif how == "a new connection":
        again.send(command="listen")
    else:
        cluster.world.store.readonly.add(cluster.nodes[other].me.incarnation)
        again.send(command="listen")
        cluster.world.run(0.1)
        cluster.world.store.readonly.clear()
    cluster.world.run(6.0)
    assert cluster.bert.heard == ["ok"]
    assert times(first, again) == 1


def test_a_crowd_that_moves_is_followed_in_slices() -> None:
    cluster = Broadcasting()
    old, other = cluster.others
    crowd = range(3 * SIZES.delivery_slice)
    before, after = cluster.client("0", old), cluster.client("0", other)
    for number in crowd:
        before.send(command="listen", client_id=str(number))
    cluster.world.run(2.0)
    cluster.cut(cluster.home, old, 2.0)
    cluster.broadcast()
    cluster.world.run(0.3)
    for number in crowd:
        after.send(command="listen", client_id=str(number))
    cluster.world.run(4.0)
    assert cluster.bert.heard == ["ok"]
    assert (times(before), times(after)) == (0, len(crowd))
    for node in cluster.nodes.values():
        known = node.router._delivery
        assert known._recent_clients == sum(len(had.clients) for had in known._recent.values())
        assert not known._queues
        assert node.router.inflight.messages == 0


# The cost, and its independence of moves


@pytest.mark.parametrize("names", ["abc", "abcde"])
def test_who_moved_before_it_began_is_not_followed(names: str) -> None:
    """A broadcast is one request to each other endpoint, however many clients have moved in the last seconds."""
    cluster = Broadcasting(names)
    ways = [(old, new) for old in names for new in names if old != new]
    for old, _ in ways:
        cluster.listen(f"from {old}", old)
    for number, (old, _) in enumerate(ways):
        cluster.listen(f"mover {number}", old)
    cluster.world.run(1.0)
    for number, (_, new) in enumerate(ways):
        cluster.listen(f"mover {number}", new)
    cluster.world.run(1.0)
    asked: list[type[Request]] = []
    cluster.requests_of_home(lambda peer, request: asked.append(type(request)))
    assert cluster.bert.say("broadcast 'x' #1") == ["ok 1"]
    assert [kind for kind in asked if kind in (BroadcastRequest, DeliverRequest)] == [BroadcastRequest] * (
        len(names) - 1
    )


@pytest.mark.parametrize("how", ["home", "home that knows no places", "lookup"])
def test_it_does_not_need_the_store_for_who_moved_before(how: str) -> None:
    cluster = Broadcasting(routing="lookup" if how == "lookup" else "home")
    old, other = cluster.others
    cluster.listener("anna", old)
    moved = cluster.listener("anna", other)
    cluster.world.run(3.0)
    if how == "home that knows no places":
        cluster.nodes[cluster.home].router.topics.locations.clear()
    cluster.world.store.down = True
    cluster.broadcast(dedup=False)
    cluster.world.run(6.0)
    assert cluster.bert.heard == ["ok"]
    assert times(moved) == 1


def test_more_moves_than_are_remembered_are_counted_by_the_next_broadcast() -> None:
    cluster = Broadcasting(sizes=Sizes(moved_max=5))
    old, other = cluster.others
    for place in (old, other):
        for number in range(8):
            cluster.listen(f"mover {number}", place)
        cluster.world.run(1.0)
    drops = cluster.nodes[old].router.counters.drops
    assert drops["moved_evicted"] == 0
    assert cluster.bert.say("broadcast 'x'") == ["ok"]
    assert drops["moved_evicted"] == 1
    cluster.world.run(MOVED_S)
    assert cluster.bert.say("broadcast 'y'") == ["ok"]
    assert drops["moved_evicted"] == 1
