"""A client that moves during a publish to it: its old endpoint can learn of the move before its topics' home does."""

from __future__ import annotations

from tests.simulator.world import Client, Node, World

from ..talk import Cluster


def slow_link(world: World, sender: Node, receiver: Node, seconds: float) -> None:
    """Delay everything sent on the link from now on until then at least; the other links are quick."""
    pair = frozenset((sender.me.incarnation, receiver.me.incarnation))
    channel = (sender.me.incarnation, receiver.me.incarnation, world._connected[pair])
    world._last[channel] = world.now + seconds


def test_nothing_is_lost_while_the_home_has_not_heard_of_the_move() -> None:
    cluster = Cluster("a", "b", "c")
    world = cluster.world
    topic = cluster.topic_at("b")
    anna = cluster.listener("anna", "a", topic)
    bert = cluster.client("bert", "b")
    bert.say(f"publish {topic} 'before'")

    slow_link(world, cluster.nodes["c"], cluster.nodes["b"], 0.3)
    again = Client(world, "anna", cluster.nodes["c"])
    again.send(command="listen")
    world.run(0.15)  # a knows, and has let her go; b does not know yet
    assert anna.closed_at is not None
    for number in range(5):
        bert.send(command="publish", topic=topic, payload=number, ack=True)
        world.run(0.01)
    world.run(1.0)
    # The order holds only for clients that stay (SPEC section 8).
    assert sorted(payload for _, _, payload in again.notes) == [0, 1, 2, 3, 4]
    assert again.replies[0][1] == {"result": "success"}
