"""Clients with bounds at the router's door: what comes at once, what is held, and when it leaves. SPEC 2.8, 8.12."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from ingeborg.broker.core.bounds.holding import MESSAGES_PER_SLICE
from ingeborg.broker.core.limits import Limits
from ingeborg.broker.core.model import Load, Settings
from tests.broker.core.talk import Cluster, Talker
from tests.simulator.world import Node, World

BUSY = Load(1.0, 0.0)


class Reader(Talker):
    """A client's connection. ``came``: its notifications and when they came, in seconds since ``begin``."""

    def __init__(self, world: World, name: str, node: Node) -> None:
        super().__init__(world, name, node)
        self.came: list[tuple[float, dict[str, Any]]] = []

    def get(self, data: bytes) -> None:
        """A message from the endpoint."""
        message = json.loads(data)
        if "key" in message:
            self.came.append((self.world.now, message))
        super().get(data)

    def payloads(self) -> list[Any]:
        """The payloads that have come since the last call."""
        came, self.came = self.came, []
        return [message["broadcast"] for _, message in came]


def reader(cluster: Cluster, name: str, *topics: str, at: str = "a", **listen: Any) -> Reader:
    """A client that listens with these fields and has subscribed."""
    one = Reader(cluster.world, name, cluster.nodes[at])
    assert one.say("listen", **listen) == ["ok"]
    assert one.say(f"subscribe {','.join(topics)}") == ["ok"]
    return one


def publish(client: Talker, topic: str, payload: Any, **fields: Any) -> None:
    client.send(command="publish", topic=topic, payload=payload, dedup=False, **fields)


def bounds(**rule: Any) -> list[dict[str, Any]]:
    return [{"prefix": "", **rule}]


def busy(cluster: Cluster, seconds: float = 5.0) -> None:
    """Let the endpoints be busy for so long."""
    cluster.world.load = BUSY
    cluster.world.run(seconds)


def test_an_endpoint_that_is_not_busy_delivers_at_once() -> None:
    cluster = Cluster("a")
    ann = reader(cluster, "ann", "t", bounds=bounds(staleness_ms=40_000, priority=-1))
    begun = cluster.world.now
    for number in range(5):
        publish(ann, "t", number)
    cluster.world.run(0.1)
    assert [at - begun for at, _ in ann.came] == pytest.approx([0.04] * 5)
    assert ann.payloads() == [0, 1, 2, 3, 4]


def test_a_busy_endpoint_holds_no_longer_than_the_staleness() -> None:
    cluster = Cluster("a")
    ann = reader(cluster, "ann", "t", bounds=bounds(staleness_ms=500, priority=-1))
    busy(cluster)
    begun = cluster.world.now
    for number in range(3):
        publish(ann, "t", number)
    cluster.world.run(0.2)
    assert ann.came == []
    cluster.world.run(0.5)
    assert {0.2 < at - begun <= 0.54 for at, _ in ann.came} == {True}
    assert ann.payloads() == [0, 1, 2]


def test_the_more_urgent_client_waits_less() -> None:
    cluster = Cluster("a")
    high = reader(cluster, "high", "t", bounds=bounds(priority=1))
    low = reader(cluster, "low", "t", bounds=bounds(priority=-1))
    busy(cluster, 2.0)
    publish(high, "t", 1)
    cluster.world.run(0.1)
    assert (high.payloads(), low.payloads()) == ([1], [])


def test_latest_keeps_one_of_each_item_and_counts_the_others() -> None:
    cluster = Cluster("a")
    ann = reader(cluster, "ann", "t", bounds=bounds(interval_ms=1_000, staleness_ms=5_000, deliver="latest"))
    publish(ann, "t", "first")
    cluster.world.run(0.1)
    assert ann.payloads() == ["first"]
    for item, payload in [("x", 1), ("y", 2), ("x", 3), (None, 4), ("x", 5)]:
        publish(ann, "t", payload, **({"item": item} if item else {}))
    cluster.world.run(2.1)
    assert [(one["broadcast"], one.get("skipped", 0)) for _, one in ann.came] == [(2, 0), (4, 0), (5, 2)]


def test_an_interval_passes_between_two_deliveries_of_a_topic() -> None:
    cluster = Cluster("a")
    ann = reader(cluster, "ann", "t", "u", bounds=bounds(interval_ms=500))
    for number in range(100):
        publish(ann, "t", number)
        if number % 10 == 0:
            publish(ann, "u", number)
        cluster.world.run(0.05)
    cluster.world.run(1.0)
    times = sorted({round(at, 3) for at, one in ann.came if one["key"] == "t"})
    assert all(later - sooner >= 0.48 for sooner, later in itertools.pairwise(times))
    assert len(times) >= 10
    assert {round(at, 3) for at, one in ann.came if one["key"] == "u"} <= set(times), "one write for both topics"
    assert [one["broadcast"] for _, one in ann.came if one["key"] == "t"] == list(range(100))


def test_what_exceeds_the_weight_sends_all_of_its_topic_at_once() -> None:
    cluster = Cluster("a")
    ann = reader(cluster, "ann", "t", bounds=bounds(interval_ms=10_000, numerical=10))
    publish(ann, "t", 0)
    for weight in (4, 6):
        publish(ann, "t", weight, weight=weight)
    cluster.world.run(0.1)
    assert ann.payloads() == [0]
    publish(ann, "t", "more", weight=0.5)
    cluster.world.run(0.1)
    assert ann.payloads() == [4, 6, "more"]


def test_the_weight_of_what_was_replaced_counts() -> None:
    cluster = Cluster("a")
    ann = reader(cluster, "ann", "t", bounds=bounds(interval_ms=10_000, numerical=10, deliver="latest"))
    for _ in range(12):
        publish(ann, "t", "x")
    cluster.world.run(0.1)
    assert [one.get("skipped", 0) for _, one in ann.came] == [0, 10]


def test_a_window_bounds_what_is_on_its_way() -> None:
    cluster = Cluster("a")
    ann = reader(cluster, "ann", "t", bounds="screen", window=2)
    for number in range(6):
        publish(ann, "t", number, item=str(number % 3))
        cluster.world.run(0.1)
    assert ann.payloads() == [0, 1]
    ann.send(command="credit", count=2)
    cluster.world.run(0.1)
    assert [(one["broadcast"], one.get("skipped", 0)) for _, one in ann.came] == [(3, 0), (4, 0)]
    ann.came.clear()
    ann.send(command="credit", count=3)
    cluster.world.run(0.1)
    assert [(one["broadcast"], one.get("skipped", 0)) for _, one in ann.came] == [(5, 1)]


@pytest.mark.parametrize(
    ("command", "info"),
    [
        ({"command": "credit", "count": 1}, "Key 'count' has 1, but only 0 notifications were sent"),
        ({"command": "credit", "count": -1}, "Key 'count' has to be an integer"),
        ({"command": "credit"}, "Key 'count' has to be an integer"),
    ],
)
def test_a_bad_credit_gets_an_error(command: dict[str, Any], info: str) -> None:
    ann = reader(Cluster("a"), "ann", "t", bounds="wall", window=2)
    ann.send(**command)
    ann.hear()
    assert ann.replies[-1][1]["error"] == "bad_state"
    assert info in ann.replies[-1][1]["info"]


def test_a_credit_waits_for_no_other_command() -> None:
    cluster = Cluster("a")
    ann = reader(cluster, "ann", "t", bounds="wall", window=1)
    bert = cluster.client("bert", "a")
    publish(bert, "t", 1)
    cluster.world.run(0.1)
    publish(bert, "t", 2)
    cluster.world.store.answers = lambda *_: False  # type: ignore[method-assign]
    cluster.world.run(3.0)
    assert ann.payloads() == [1]
    ann.send(command="subscribe", topic="u", id=1)
    ann.send(command="unsubscribe", topic="u", id=2)
    ann.send(command="credit", count=1)
    cluster.world.run(0.1)
    assert ann.payloads() == [2]


def test_each_credit_lets_the_most_urgent_topic_go_on() -> None:
    cluster = Cluster("a")
    rules = [{"topic": "high", "staleness_ms": 1_000, "priority": 1}, {"prefix": "", "staleness_ms": 1_000}]
    ann = reader(cluster, "ann", "t", "low", "high", bounds=rules, window=1)
    for topic in ("t", "low", "high"):
        publish(ann, topic, topic)
        cluster.world.run(0.1)
    for count in (1, 2, 3):
        ann.send(command="credit", count=count)
        cluster.world.run(0.1)
    assert ann.payloads() == ["t", "high", "low"]


def test_a_window_comes_with_the_first_listen() -> None:
    cluster = Cluster("a")
    ann = cluster.client("ann", "a")
    assert ann.say("listen") == ["ok"]
    assert ann.say("listen", window=3) == ["error bad_state"]
    assert ann.say("credit", count=0) == ["error bad_state"]


def test_the_reply_has_the_rules_in_force_and_bounds_replaces_them() -> None:
    cluster = Cluster("a")
    ann = cluster.client("ann", "a")
    ann.say("listen", bounds="wall")
    rule = ann.replies[-1][1]["bounds"][0]
    assert rule == {
        "prefix": "",
        "staleness_ms": 5000,
        "numerical": None,
        "interval_ms": 1000,
        "deliver": "latest",
        "priority": -1,
    }
    ann.say("bounds", bounds=[])
    assert ann.replies[-1][1]["bounds"] == []
    ann.say("listen")
    assert "bounds" not in ann.replies[-1][1]


def test_bounds_of_a_client_that_listens_elsewhere_are_refused() -> None:
    cluster = Cluster("a")
    assert cluster.client("ann", "a").say("bounds", bounds="wall") == ["error bad_state"]


def test_an_operators_rules_are_those_of_clients_that_say_nothing() -> None:
    cluster = Cluster(
        "a",
        bounds='[{"prefix":"","staleness_ms":null,"numerical":null,"interval_ms":1000,"deliver":"all","priority":0}]',
    )
    ann, bert = cluster.client("ann", "a"), cluster.client("bert", "a")
    ann.say("listen")
    assert ann.replies[-1][1]["bounds"][0]["interval_ms"] == 1000
    bert.say("listen", bounds=[])
    assert "bounds" not in bert.replies[-1][1]


HOLDING: dict[str, Any] = {"bounds": bounds(interval_ms=10_000)}


def holding(cluster: Cluster, **listen: Any) -> Reader:
    """A client for which something is held."""
    ann = reader(cluster, "ann", "t", "u", **(listen or HOLDING))
    bert = cluster.client("bert", "a")
    for number in range(3):
        publish(bert, "t", number)
    cluster.world.run(0.1)
    assert ann.payloads() == [0]
    return ann


@pytest.mark.parametrize(
    ("command", "fields"),
    [
        ("unlisten", {}),
        ("listen", {}),
        ("bounds", {"bounds": "wall"}),
        ("unsubscribe t", {}),
        ("subscribe t", {"replace": True}),
    ],
)
def test_what_is_held_leaves_before_the_reply(command: str, fields: dict[str, Any]) -> None:
    ann = holding(Cluster("a"))
    assert ann.say(command, **fields)[-3:] == ["t: 1", "t: 2", "ok"]


HISTORY: dict[str, Any] = {"settings": Settings(history="memory"), "limits": Limits(history_bytes=1 << 20)}


def test_what_is_held_leaves_before_kept_messages_that_a_subscribe_asks_for() -> None:
    cluster = Cluster("a", **HISTORY)
    ann = holding(cluster)
    publish(ann, "u", "kept", keep_s=60)
    cluster.world.run(0.1)
    ann.came.clear()
    ann.say("subscribe u", last=1)
    assert ann.payloads() == [1, 2, "kept"]


@pytest.mark.parametrize("keep_s", [0, 60])
def test_only_a_kept_message_of_a_client_that_recovers_is_never_replaced(keep_s: int) -> None:
    cluster = Cluster("a", **HISTORY)
    ann = reader(cluster, "ann", "t", recover=True, bounds="wall")
    for number in range(4):
        publish(ann, "t", number, **({"keep_s": keep_s} if keep_s else {}))
    cluster.world.run(3.0)
    assert all("mid" in message for _, message in ann.came)
    assert ann.payloads() == ([0, 1, 2, 3] if keep_s else [0, 3])


def test_no_position_covers_what_is_held() -> None:
    cluster = Cluster("a", **HISTORY)
    ann = reader(cluster, "ann", "t", recover=True, bounds=bounds(interval_ms=20_000))
    words: list[dict[str, Any]] = []
    ann.on_word = words.append
    for number in range(2):
        publish(ann, "t", number, keep_s=600)
        cluster.world.run(4.0)
    assert ann.payloads() == [0]
    ann.closed(1006)
    again = Reader(cluster.world, "ann", cluster.nodes["a"])
    again.say("listen", recover=words[-1]["position"])
    cluster.world.run(3.0)
    assert again.payloads() == [1]


def test_what_is_held_leaves_before_the_client_is_replaced() -> None:
    cluster = Cluster("a", "b")
    ann = holding(cluster)
    cluster.listener("ann", "b")
    assert ann.heard[-3:] == ["t: 1", "t: 2", "closed 4001"]


@pytest.mark.parametrize("elsewhere", ["a", "b"])
def test_a_connection_forgets_the_bounds_of_a_client_that_moved(elsewhere: str) -> None:
    cluster = Cluster("a", "b")
    holding_part = cluster.nodes["a"].router.layers.bounds.holding
    gateway = reader(cluster, "ann", "t", **HOLDING)
    assert gateway.say("listen", client_id="bert", **HOLDING) == ["ok"]
    for payload in ("first", "held"):
        publish(gateway, "t", payload)
    cluster.world.run(0.1)
    cluster.listener("ann", elsewhere)
    assert gateway.payloads() == ["first", "held"]
    assert (holding_part.clients, holding_part.conits, holding_part.held) == (1, 0, 0)
    assert gateway.say("listen", client_id="ann", **HOLDING) == ["ok"]
    assert holding_part.clients == 2


def test_what_is_held_for_a_lost_connection_is_counted() -> None:
    cluster = Cluster("a")
    ann = holding(cluster)
    ann.close()
    cluster.world.run(0.1)
    router = cluster.nodes["a"].router
    assert router.counters.drops["connection_closed"] == 2
    assert (router.layers.bounds.holding.held, router.memory.total) == (0, 0)


def test_a_broadcast_is_never_held() -> None:
    cluster = Cluster("a")
    ann = holding(cluster)
    ann.send(command="broadcast", payload="now")
    cluster.world.run(0.1)
    assert ann.payloads() == ["now"]


def test_a_slow_reader_of_the_latest_is_not_closed() -> None:
    cluster = Cluster("a", limits=Limits(outbox_bytes=10_000))
    cluster.world.socket_bytes = 2_000
    ann = reader(cluster, "ann", "t", bounds="screen")
    bert = cluster.client("bert", "a")
    ann.deaf_until = cluster.world.now + 20
    for number in range(200):
        publish(bert, "t", f"{number:0500}")
        cluster.world.run(0.05)
    cluster.world.run(30)
    assert ann.closed_at is None
    last = ann.came[-1][1]
    assert last["broadcast"] == f"{199:0500}"
    assert sum(1 + one.get("skipped", 0) for _, one in ann.came) == 200


def test_a_slow_reader_of_everything_is_closed_as_without_bounds() -> None:
    cluster = Cluster("a", limits=Limits(outbox_bytes=10_000))
    cluster.world.socket_bytes = 2_000
    ann = reader(cluster, "ann", "t", bounds="live")
    bert = cluster.client("bert", "a")
    ann.deaf_until = cluster.world.now + 20
    for number in range(60):
        publish(bert, "t", f"{number:0500}")
        cluster.world.run(0.05)
    cluster.world.run(30)
    assert ann.close_code == 4002
    assert cluster.nodes["a"].router.layers.bounds.holding.held == 0


def test_at_the_limit_of_held_messages_they_leave_at_once() -> None:
    cluster = Cluster("a")
    router = cluster.nodes["a"].router
    router.layers.bounds.holding._held_max = 2
    ann = holding(cluster)
    publish(ann, "t", 3)
    cluster.world.run(0.1)
    assert ann.payloads() == [1, 2, 3]


def test_the_limit_of_one_connection_leaves_the_messages_of_others_alone() -> None:
    cluster = Cluster("a")
    holding_part = cluster.nodes["a"].router.layers.bounds.holding
    holding_part._connection_held_max = 2
    ann, bert = holding(cluster), reader(cluster, "bert", "v", bounds=bounds(interval_ms=1_000))
    for number in range(3, 5):
        publish(ann, "t", number)
        publish(ann, "v", number)
    cluster.world.run(0.1)
    assert (ann.payloads(), bert.payloads(), holding_part.held) == ([1, 2, 3], [3], 2)


def test_the_limit_of_held_messages_also_holds_for_a_client_that_does_not_take() -> None:
    cluster = Cluster("a")
    holding_part = cluster.nodes["a"].router.layers.bounds.holding
    holding_part._held_max = 2
    ann = reader(cluster, "ann", "t", window=1, bounds=bounds(numerical=1))
    for number in range(20):
        publish(ann, "t", number)
    cluster.world.run(0.1)
    assert holding_part.held <= 2
    assert ann.payloads()[:18] == list(range(18))


def test_with_as_many_topics_as_it_may_watch_messages_pass() -> None:
    cluster = Cluster("a")
    holding_part = cluster.nodes["a"].router.layers.bounds.holding
    holding_part._held_max = 1
    ann = reader(cluster, "ann", "t", "u", bounds=bounds(interval_ms=1_000))
    for number in range(2):
        publish(ann, "t", f"t{number}")
        publish(ann, "u", f"u{number}")
    cluster.world.run(0.1)
    assert (ann.payloads(), holding_part.conits) == (["t0", "u0", "u1"], 1)
    cluster.world.run(3.0)
    assert (ann.payloads(), holding_part.conits) == (["t1"], 0)


def test_level_zero_comes_back_within_ten_seconds_and_lets_go() -> None:
    cluster = Cluster("a")
    ann = reader(cluster, "ann", "t", bounds=bounds(priority=-1))
    busy(cluster, 10.0)
    steering = cluster.nodes["a"].router.layers.bounds.steering
    assert steering.level == 19
    publish(ann, "t", 1)
    cluster.world.load = Load()
    cluster.world.run(10.1)
    assert steering.level == 0
    cluster.world.run(0.2)
    assert ann.payloads() == [1]


def test_a_refused_listen_leaves_the_window_as_it_is() -> None:
    cluster = Cluster("a")
    ann = Reader(cluster.world, "ann", cluster.nodes["a"])
    assert ann.say("listen", window=1, recover=True) == ["error bad_state"]  # the cluster retains no messages
    assert ann.say("listen") == ["ok"]
    assert ann.say("subscribe t") == ["ok"]
    for number in range(3):
        publish(ann, "t", number)
    cluster.world.run(0.1)
    assert ann.payloads() == [0, 1, 2]
    ben = reader(cluster, "ben", "u", window=1, bounds="screen")
    assert ben.say("listen", window=50, recover=True) == ["error bad_state"]
    for number in range(3):
        publish(ben, "u", number)
    cluster.world.run(2.0)
    assert ben.payloads() == [0]


def test_a_window_also_limits_what_leaves_because_of_its_weight() -> None:
    cluster = Cluster("a")
    ann = reader(cluster, "ann", "t", window=2, bounds=bounds(interval_ms=40_000, numerical=3))
    for number in range(6):
        publish(ann, "t", number)
    cluster.world.run(0.1)
    assert ann.payloads() == [0, 1]
    ann.send(command="credit", count=1)
    cluster.world.run(0.1)
    assert ann.payloads() == [2]


def test_a_large_release_leaves_in_slices() -> None:
    cluster = Cluster("a")
    ann = reader(cluster, "ann", "t", bounds=bounds(interval_ms=1_000))
    count = 2 * MESSAGES_PER_SLICE
    for number in range(count):
        publish(ann, "t", number)
    cluster.world.run(3.0)
    assert ann.payloads() == list(range(count))
    assert cluster.nodes["a"].router.layers.bounds.holding.released["due"] == 2
