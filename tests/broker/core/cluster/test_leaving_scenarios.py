"""Scripts of an orderly shutdown: what the endpoint hands on, and what others lose.

SPEC.md sections 1.1, 7 and 8.
"""

from __future__ import annotations

from functools import partial

import pytest

from ingeborg.broker.core.links.calls import TIMEOUT_S
from ingeborg.broker.core.links.requests import LeaveRequest
from tests.simulator.world import Node

from ..talk import Cluster


def _leave(node: Node, now: float) -> None:
    node.router.joining.leave()


def test_an_endpoint_that_leaves_hands_on_what_it_has_seen() -> None:
    cluster = Cluster("a", "b", "c")
    topic = cluster.topic_at("a")
    anna = cluster.listener("anna", "b", topic)
    bert = cluster.client("bert", "c")
    assert bert.say(f"publish {topic} 'x'") == ["ok"]
    leaving = cluster.nodes["a"]
    leaving.router.joining.leave()
    leaving.router.joining.depart()
    cluster.world.run(8.0)
    assert leaving.router.joining.left
    leaving.alive = False
    assert bert.say(f"publish {topic} 'x'") == ["ok duplicate"]
    assert bert.say(f"publish {topic} 'y'") == ["ok"]
    assert anna.heard[2:] == [f"{topic}: 'x'", f"{topic}: 'y'"]
    assert cluster.nodes["b"].router.counters.drops["dedup_not_handed_on"] == 0


@pytest.mark.parametrize("after_ms", range(-120, 121, 10))
def test_what_two_that_leave_at_about_the_same_time_have_seen_stays_known(after_ms: int) -> None:
    cluster = Cluster("a")
    for name in "bc":  # their ticks, and so their requests, come at different times
        cluster.world.run(0.035)
        cluster.nodes[name] = cluster.world.start(name)
    cluster.world.run(3.0)
    topics = [cluster.topic_at(home, f"{number} ") for home in "abc" for number in range(3)]
    bert = cluster.client("bert", "a")
    for topic in topics:
        bert.send(command="publish", topic=topic, payload="x", ack=True)
    assert set(bert.hear()) == {"ok"}
    first, second = ("b", "c") if after_ms > 0 else ("c", "b")
    leaving = [cluster.nodes[first], cluster.nodes[second]]
    for node in leaving:
        node.event(partial(_leave, node))
        cluster.world.run(abs(after_ms) / 1000)
    cluster.world.run(0.5)
    for node in leaving:
        node.router.joining.depart()
    cluster.world.run(6.0)
    for node in leaving:
        assert node.router.joining.left
        node.alive = False
    cluster.world.run(5.0)
    for topic in topics:
        bert.send(command="publish", topic=topic, payload="x", ack=True)
    assert set(bert.hear()) == {"ok duplicate"}


@pytest.mark.parametrize("leaver", ["a", "b"])
def test_while_an_endpoint_leaves_the_others_lose_nothing(leaver: str) -> None:
    cluster = Cluster("a", "b", "c")
    topics = [cluster.topic_at(home) for home in "abc"]
    anna = cluster.listener("anna", "c", *topics)
    bert = cluster.client("bert", "c")
    cluster.nodes[leaver].router.joining.leave()
    cluster.nodes[leaver].router.joining.depart()
    for number in range(40):
        for topic in topics:
            bert.send(command="publish", topic=topic, payload=number, ack=True)
        cluster.world.run(0.02)
    bert.hear(6.0)
    assert bert.heard == ["ok"] * 120
    assert sorted((topic, payload) for _, topic, payload in anna.notes) == [
        (topic, number) for topic in sorted(topics) for number in range(40)
    ]


def test_an_endpoint_that_leaves_finishes_what_its_clients_published() -> None:
    cluster = Cluster("a", "b")
    topic = cluster.topic_at("a")
    anna = cluster.listener("anna", "b", topic)
    bert = cluster.client("bert", "a")
    bert.send(command="publish", topic=topic, payload="x", ack=True)
    cluster.world.run(0.012)
    cluster.nodes["a"].router.joining.leave()
    cluster.nodes["a"].router.joining.depart()
    assert bert.hear(2.0) == ["ok"]
    assert anna.heard[2:] == [f"{topic}: 'x'"]


def test_an_idle_endpoint_leaves_without_waiting_for_a_time_out() -> None:
    cluster = Cluster("a", "b")
    leaving = cluster.nodes["a"]
    # A leaving endpoint no longer dials, and the others have written it off.
    cluster.world.dial = lambda dialler, target: None  # type: ignore[method-assign]
    leaving.router.joining.leave()
    leaving.router.joining.depart()
    cluster.world.run(2.0)
    assert leaving.router.joining.left


def test_clients_of_an_endpoint_that_leaves_get_messages_until_their_connection_is_closed() -> None:
    cluster = Cluster("a", "b")
    topic = cluster.topic_at("b")
    anna = cluster.listener("anna", "a", topic)
    bert = cluster.client("bert", "b")
    cluster.nodes["a"].router.joining.leave()
    cluster.nodes["a"].router.joining.depart()
    cluster.world.run(0.3)
    assert bert.say(f"publish {topic} 'x'") == ["ok"]
    assert anna.heard[2:] == [f"{topic}: 'x'"]


def test_a_peer_that_did_not_hear_of_it_is_told_again() -> None:
    cluster = Cluster("a", "b")
    leaving, deaf = (cluster.nodes[name] for name in "ab")
    requests = deaf.router.mesh._requests
    deaf.router.mesh.bind({**requests, LeaveRequest: lambda peer, number, request: None})
    leaving.router.joining.leave()
    cluster.world.run(2.0)
    assert set(deaf.router.members.table) == {leaving.me.incarnation, deaf.me.incarnation}
    deaf.router.mesh.bind(requests)
    cluster.world.run(TIMEOUT_S)
    assert set(deaf.router.members.table) == {deaf.me.incarnation}
