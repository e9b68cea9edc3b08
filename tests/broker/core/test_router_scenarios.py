"""The whole router in scripts that a person can read: the clients' commands, and the frames that come back.

``tests/simulator`` has random histories with faults. Here every message takes 10 ms, and each script shows one rule of
SPEC.md, whose section it names.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from ingeborg.broker.core.clients.sessions import AFTER_CLOSE_S, READ_AHEAD, READ_AHEAD_BYTES
from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.effects import Effects, PauseOrResume
from ingeborg.broker.core.limits import SIZES, Limits
from ingeborg.protocol.hashes import slot_of
from tests.simulator.world import Node

from .talk import DELAY_S, Cluster, parse

ROUTINGS = pytest.mark.parametrize("routing", ["home", "lookup"])
PLACES = pytest.mark.parametrize("names", [("a",), ("a", "b", "c")], ids=["one endpoint", "three endpoints"])


# Section 1.3: order


@ROUTINGS
@PLACES
def test_a_publish_behind_its_own_subscribe_arrives(names: tuple[str, ...], routing: str) -> None:
    anna = Cluster(*names, routing=routing).client("anna", "a")
    heard = anna.say(
        "listen #1", "subscribe t0,t1,t2 #2", "publish t0 'x' #3", "publish t1 'y' #4", "publish t2 'z' #5"
    )
    assert [words for words in heard if words.startswith("ok")] == ["ok 1", "ok 2", "ok 3", "ok 4", "ok 5"]
    assert sorted(words for words in heard if not words.startswith("ok")) == ["t0: 'x'", "t1: 'y'", "t2: 'z'"]


def test_a_publish_without_ack_delays_no_reply_behind_it() -> None:
    """Its outcome comes from two other endpoints, which send it with their next frames. A tick is ten delays long."""
    cluster = Cluster("a", "b", "c")
    near, topic = cluster.topic_at("a"), cluster.topic_at("b")
    cluster.listener("ben", "c", topic)
    anna = cluster.client("anna", "a")
    assert anna.say(f"publish {near} 'warm'", f"publish {topic} 'warm'") == ["ok", "ok"]
    under_way = cluster.nodes["a"].router.calls
    waited = 0
    for number in range(10):
        anna.send(command="publish", topic=topic, payload=number, dedup=False)
        assert anna.hear(6 * DELAY_S) == []
        waited += len(under_way)
        # The command goes to `a`, a `Hurry` to `b` and on to `c`, and the outcome back.
        if number % 2:
            assert anna.say_soon(f"publish {near} '{number}'", 7 * DELAY_S) == ["ok"]
        else:  # it begins when the outcome is known
            assert anna.say_soon(f"unsubscribe {near}", 10 * DELAY_S) == ["ok"]
        assert len(under_way) == 0
        anna.send(command="publish", topic=topic, payload="the same", dedup=f"key {number}")
        # Its duplicate asks for an acknowledgement at another endpoint, and joins it.
        cora = cluster.client("anna", "c")
        cora.send(command="publish", client_id="anna", topic=topic, payload="the same", dedup=f"key {number}", ack=True)
        assert cora.hear(7 * DELAY_S) == ["ok duplicate"]
        cluster.world.run(0.23)
    assert waited >= 5


def test_at_one_endpoint_the_message_comes_before_its_acknowledgement() -> None:
    anna = Cluster("a").client("anna", "a")
    assert anna.say("listen #1", "subscribe t #2", "publish t 'x' #3") == ["ok 1", "ok 2", "t: 'x'", "ok 3"]


@ROUTINGS
def test_replies_come_in_the_order_of_their_commands(routing: str) -> None:
    """A cached topic is ready at once, another one waits for the store, a bad command needs neither."""
    cluster = Cluster("a", "b", routing=routing)
    near, far = cluster.topic_at("a"), cluster.topic_at("b")
    anna = cluster.client("anna", "a")
    anna.say(f"publish {near} 'warm' #0")
    heard = anna.say(
        f"publish {far} 'x' #1",
        f"publish {near} 'x' #2",
        "publish #3",
        f"publish {near}-new 'x' #4",
        f"publish {near} 'x' #5",
        "dance #6",
        f"publish {near} 'y' #7",
    )
    assert heard == ["ok 1", "ok 2", "error bad_state 3", "ok 4", "ok 5 duplicate", "error bad_command 6", "ok 7"]


def test_commands_of_one_kind_overlap_and_of_another_kind_wait() -> None:
    cluster = Cluster("a")
    anna = cluster.client("anna", "a")
    for command in (
        {"command": "subscribe", "topic": "t", "id": 1},
        {"command": "subscribe", "topic": "u", "id": 2},
        {"command": "publish", "topic": "t", "payload": "x", "id": 3},
        {"command": "unsubscribe", "topic": "t", "id": 4},
    ):
        anna.send(**command)
    core, router = anna.core, cluster.nodes["a"].router
    assert core is not None
    cluster.world.run(0.015)  # all four have arrived; the store has not answered
    assert (len(core.replies), len(core.backlog)) == (2, 2)
    assert router.counters.counts["publishes_received"] == 0
    assert anna.hear() == ["ok 1", "ok 2", "ok 4"]
    assert router.counters.counts["publishes_received"] == 1


@pytest.mark.parametrize(("waiting", "paused"), [(READ_AHEAD - 1, False), (READ_AHEAD, True)])
def test_what_waits_is_read_up_to_a_bound(waiting: int, paused: bool) -> None:
    cluster = Cluster("a")
    anna = cluster.client("anna", "a")
    anna.send(command="subscribe", topic="t")
    for number in range(waiting):
        anna.send(command="publish", topic="u", payload=number, ack=True)
    core = anna.core
    assert core is not None
    cluster.world.run(0.015)
    assert (len(core.backlog), core.backpressure) == (waiting, paused)
    assert anna.hear() == ["ok"] + waiting * ["ok"]
    assert not core.backpressure


def test_a_large_command_that_waits_is_the_last_one_read() -> None:
    cluster = Cluster("a")
    anna = cluster.client("anna", "a")
    anna.send(command="subscribe", topic="t")
    anna.send(command="publish", topic="u", payload=READ_AHEAD_BYTES * "x", ack=True)
    core = anna.core
    assert core is not None
    cluster.world.run(0.015)
    assert (len(core.backlog), core.backpressure) == (1, True)
    assert anna.hear() == ["ok", "ok"]
    assert not core.backpressure


def test_what_has_waited_begins_in_parts_and_connections_take_turns() -> None:
    cluster = Cluster("a")
    router = cluster.nodes["a"].router
    cores = [cluster.client(name, "a").core for name in ("anna", "berta")]
    publish = b'{"command":"publish","client_id":"anna","topic":"t","payload":1}'
    for core in cores:
        assert core is not None
        router.frame(core, b'{"command":"subscribe","client_id":"anna","topic":"t"}', cluster.world.now)
        for _ in range(1_000):
            router.frame(core, publish, cluster.world.now)
    for call in router.flush(cluster.world.now).store:
        router.stored(call.number, None, None, cluster.world.now)
    begun = [0]
    waiting = []
    while begun[-1] < 2_000:
        assert router.flush(cluster.world.now).more or begun[-1]
        begun.append(router.counters.counts["publishes_received"])
        waiting.append([len(core.backlog) for core in cores if core is not None])
    assert max(after - before for before, after in pairwise(begun)) == SIZES.backlog_bytes_per_turn // len(publish)
    assert waiting[1][0] == waiting[1][1] < 1_000
    assert waiting[-1] == [0, 0]


def test_of_what_waits_when_the_client_closes_all_is_begun_but_listens_and_reads() -> None:
    cluster = Cluster("a", "b")
    router = cluster.nodes["a"].router
    anna, berta = cluster.client("anna", "a"), cluster.listener("berta", "b", "news")
    for command in ("subscribe t", "publish news 'x'", "unsubscribe t", "listen", "subscriptions", "subscribe u"):
        anna.send(**parse(command))
    cluster.world.run(0.015)
    anna.close()
    there = cluster.listener("anna", "b")
    assert berta.heard[-1] == "news: 'x'"
    assert cluster.world.store.subscribers(["t", "u"])[0] == [set(), {"anna"}]
    assert router.counters.drops["command_of_closed_connection"] == 2
    assert "closed 4001" not in there.hear()


def test_what_waits_for_long_is_not_begun_after_the_client_has_closed() -> None:
    cluster = Cluster("a")
    router = cluster.nodes["a"].router
    anna = cluster.client("anna", "a")
    core = anna.core
    assert core is not None
    for frame in (
        b'{"command":"subscribe","client_id":"anna","topic":"t"}',
        b'{"command":"publish","client_id":"anna","topic":"t","payload":1}',
    ):
        router.frame(core, frame, cluster.world.now)
    router.disconnected(core, cluster.world.now)
    (call,) = router.flush(cluster.world.now).store
    router.stored(call.number, None, None, cluster.world.now + AFTER_CLOSE_S)
    router.flush(cluster.world.now + AFTER_CLOSE_S)
    assert router.counters.counts["publishes_received"] == 0
    assert router.counters.drops["command_of_closed_connection"] == 1


def test_a_bad_command_disturbs_nothing() -> None:
    cluster = Cluster("a")
    anna = cluster.listener("anna", "a", "t")
    core, router = anna.core, cluster.nodes["a"].router
    assert core is not None
    for frame in (b"", b"\xff", b"[]", b'{"command":"listen"}', b'{"a":1,"a":2}', b'{"command":"sing","client_id":1}'):
        router.frame(core, frame, cluster.world.now)
    assert anna.say("publish t 'x' #1") == [
        "error bad_json",
        "error bad_json",
        "error bad_json",
        "error bad_state",
        "error bad_json",
        "error bad_command",
        "t: 'x'",
        "ok 1",
    ]


# Sections 2.2, 6: listening


@ROUTINGS
@pytest.mark.parametrize("elsewhere", ["a", "b"])
def test_who_listens_elsewhere_loses_the_old_connection(elsewhere: str, routing: str) -> None:
    cluster = Cluster("a", "b", routing=routing)
    old = cluster.listener("anna", "a", "t")
    new = cluster.listener("anna", elsewhere)
    assert old.hear() == []
    assert old.heard == ["ok", "ok", "closed 4001"]
    assert new.say("publish t 'x'") in (["ok", "t: 'x'"], ["t: 'x'", "ok"])


@pytest.mark.parametrize("elsewhere", ["a", "b"])
def test_a_connection_with_other_clients_only_loses_the_one_that_went(elsewhere: str) -> None:
    cluster = Cluster("a", "b")
    gateway = cluster.client("anna", "a")
    assert gateway.say("listen", "subscribe t") == ["ok", "ok"]
    assert gateway.say("listen", "subscribe t", client_id="bert") == ["ok", "ok"]
    new = cluster.listener("anna", elsewhere)
    assert sorted(gateway.say("publish t 'x'", client_id="bert")) == ["ok", "t: 'x'"]
    assert "t: 'x'" in new.heard
    cluster.listener("bert", elsewhere)
    assert gateway.heard[-1] == "closed 4001"


def test_two_clients_on_one_connection_get_a_message_each() -> None:
    gateway = Cluster("a").client("anna", "a")
    for client in ("anna", "bert"):
        assert gateway.say("listen", "subscribe t", client_id=client) == ["ok", "ok"]
    assert gateway.say("publish t 'x'") == ["t: 'x'", "t: 'x'", "ok"]
    assert gateway.say("unlisten", client_id="bert") == ["ok"]
    assert gateway.say("publish t 'y'") == ["t: 'y'", "ok"]


def test_listening_twice_at_once_is_listening() -> None:
    anna = Cluster("a", "b").client("anna", "a")
    assert anna.say("subscribe t #1", "listen #2", "listen #3") == ["ok 1", "ok 2", "ok 3"]
    assert sorted(anna.say("publish t 'x' #4")) == ["ok 4", "t: 'x'"]


@ROUTINGS
def test_who_unlistens_gets_nothing_until_listening_again(routing: str) -> None:
    cluster = Cluster("a", "b", routing=routing)
    anna = cluster.listener("anna", "a", "t")
    bert = cluster.client("bert", "b")
    assert anna.say("unlisten", "unlisten") == ["ok", "ok"]
    assert bert.say("publish t 'missed'") == ["ok"]
    assert anna.hear() == []
    assert anna.say("listen") == ["ok"]
    assert bert.say("publish t 'x'") == ["ok"]
    assert anna.heard[-1] == "t: 'x'"


def test_unlisten_where_one_does_not_listen_takes_nothing_away() -> None:
    cluster = Cluster("a", "b")
    anna = cluster.listener("anna", "a", "t")
    assert cluster.client("anna", "b").say("unlisten") == ["ok"]
    assert sorted(anna.say("publish t 'x'")) == ["ok", "t: 'x'"]


@ROUTINGS
def test_a_closed_connection_keeps_the_subscriptions_for_the_next(routing: str) -> None:
    cluster = Cluster("a", "b", routing=routing)
    anna = cluster.listener("anna", "a", "t")
    bert = cluster.client("bert", "b")
    anna.close()
    assert bert.say("publish t 'missed'") == ["ok"]
    anna = cluster.client("anna", "b")
    assert anna.say("listen") == ["ok"]
    assert bert.say("publish t 'x'") == ["ok"]
    assert anna.heard == ["ok", "t: 'x'"]


# Section 7: duplicates


@ROUTINGS
def test_the_same_news_from_everywhere_is_delivered_once(routing: str) -> None:
    cluster = Cluster("a", "b", "c", routing=routing)
    anna = cluster.listener("anna", "b", "t")
    reporters = [cluster.client(f"reporter-{place}", place) for place in "abc"]
    replies = [reporter.say("publish t 'x'") for reporter in reporters for _ in range(3)]
    assert replies == [["ok"]] + [["ok duplicate"]] * 8
    assert anna.heard == ["ok", "ok", "t: 'x'"]
    assert reporters[0].say("publish t 'y'") == ["ok"]
    assert reporters[0].say("publish u 'x'") == ["ok"]


@ROUTINGS
def test_each_drop_extends_the_time_to_live_and_after_it_the_payload_is_new(routing: str) -> None:
    cluster = Cluster("a", "b", routing=routing, dedup_ttl_s=2.0)
    anna = cluster.listener("anna", "a", "t")
    bert = cluster.client("bert", "b")
    assert bert.say("publish t 'x' #1") == ["ok 1"]
    for number in range(2, 6):  # six seconds in all, never two of silence
        bert.hear(1.0)
        assert bert.say(f"publish t 'x' #{number}") == [f"ok {number} duplicate"]
    bert.hear(2.0)
    assert bert.say("publish t 'x' #6") == ["ok 6"]
    assert anna.heard == ["ok", "ok", "t: 'x'", "t: 'x'"]


def test_a_time_to_live_of_zero_delivers_everything() -> None:
    anna = Cluster("a", dedup_ttl_s=0.0).listener("anna", "a", "t")
    heard = anna.say("publish t 'x'", "publish t 'x'")
    assert [heard.count("t: 'x'"), heard.count("ok")] == [2, 2]


@ROUTINGS
def test_without_dedup_a_payload_is_neither_dropped_nor_remembered(routing: str) -> None:
    anna = Cluster("a", routing=routing).listener("anna", "a", "t")
    assert anna.say("publish t 'x'", dedup=False) == ["t: 'x'", "ok"]
    assert anna.say("publish t 'x'") == ["t: 'x'", "ok"]
    assert anna.say("publish t 'x'", dedup=False) == ["t: 'x'", "ok"]
    assert anna.say("publish t 'x'") == ["ok duplicate"]


def test_a_duplicate_of_a_message_under_way_waits_for_its_outcome() -> None:
    cluster = Cluster("a", "b")
    topic = cluster.topic_at("a")
    anna = cluster.listener("anna", "b", topic)
    first, second = cluster.client("first", "a"), cluster.client("second", "a")
    for client in (first, second):
        client.send(command="publish", topic=topic, payload="x", ack=True)
    cluster.world.run(0.015)
    assert cluster.nodes["a"].router.inflight.messages == 2
    assert (first.hear(), second.hear()) == (["ok"], [])
    assert second.heard == ["ok duplicate"]
    assert anna.heard[2:] == [f"{topic}: 'x'"]


def test_when_the_message_fails_so_do_its_duplicates_and_a_retry_is_none() -> None:
    cluster = Cluster("a")
    anna = cluster.listener("anna", "a", "t")
    bert = cluster.client("bert", "a")
    cluster.world.store.down = True
    anna.send(command="publish", topic="t", payload="x", ack=True)
    bert.send(command="publish", topic="t", payload="x")
    cluster.world.run(6.0)
    assert (anna.heard[2:], bert.heard) == (["error store_unavailable"], ["error store_unavailable"])
    assert bert.replies[0][1]["command"] == "publish"  # it had not asked for a reply
    cluster.world.store.down = False
    assert anna.say("publish t 'x'") == ["t: 'x'", "ok"]


# Section 8: guarantees


@pytest.mark.parametrize("what", ["publish", "broadcast"])
@pytest.mark.parametrize("crash_after_s", [0.015, 0.025, 0.035, 0.045], ids=lambda seconds: f"{seconds * 1000:.0f} ms")
def test_the_crash_of_the_home_loses_nothing_and_doubles_nothing(what: str, crash_after_s: float) -> None:
    """Before the message reaches the home; before it reaches the subscribers; before they, or the home, confirm it."""
    cluster = Cluster("a", "b", "c")
    broadcasts_home = cluster.nodes["a"].router.members.table[slot_of("")]
    home = next(name for name, node in cluster.nodes.items() if node.me.incarnation == broadcasts_home)
    origin, destination = sorted(set("abc") - {home})
    topic = cluster.topic_at(home)
    here, there = cluster.listener("here", origin, topic), cluster.listener("there", destination, topic)
    sender = cluster.client("sender", origin)
    sender.say(f"publish {topic} 'warm'")
    sender.send(command=what, payload="x", ack=True, **({"topic": topic} if what == "publish" else {}))
    cluster.world.run(crash_after_s)
    cluster.world.crash(cluster.nodes[home])
    assert sender.hear(6.0) == ["ok"]
    assert [note[2] for note in here.notes] == ["warm", "x"]
    assert [note[2] for note in there.notes] == ["warm", "x"]


def test_a_slow_reader_loses_its_connection_and_slows_nobody() -> None:
    cluster = Cluster("a", limits=Limits(outbox_bytes=200))
    slow, quick = cluster.listener("slow", "a", "t"), cluster.listener("quick", "a", "u")
    sender = cluster.client("sender", "a")
    node = cluster.nodes["a"]
    next(iter(node.router.hub.bindings.values())).connection.outbox.flowing = False  # slow's: its socket is full
    node.stalled_until = cluster.world.now + 0.1  # so that everything falls into one turn
    for number in range(10):
        sender.send(command="publish", topic="t", payload=f"number {number}")
    sender.send(command="publish", topic="u", payload="y")
    cluster.world.run(1.0)
    assert slow.heard == ["ok", "ok", "closed 4002"]
    assert quick.heard == ["ok", "ok", "u: 'y'"]
    # Six frames are more than 200 bytes; the later ones of the same turn had no room either.
    assert node.router.counters.drops["slow_consumer"] == 10
    assert sender.say("publish t 'z' #1") == ["ok 1"]
    assert "slow" not in node.router.hub.bindings


def test_a_slow_reader_may_keep_its_connection_and_lose_the_oldest_instead() -> None:
    cluster = Cluster("a", limits=Limits(outbox_bytes=200, drop_oldest=True))
    slow = cluster.listener("slow", "a", "t")
    sender = cluster.client("sender", "a")
    node = cluster.nodes["a"]
    next(iter(node.router.hub.bindings.values())).connection.outbox.flowing = False  # its socket is full
    node.stalled_until = cluster.world.now + 0.1  # so that everything falls into one turn
    for number in range(10):
        sender.send(command="publish", topic="t", payload=f"number {number}")
    slow.send(command="unsubscribe", topic="u", id=7)
    cluster.world.run(1.0)
    assert slow.heard[2:] == ["ok 7", *(f"t: 'number {number}'" for number in range(5, 10))]
    assert node.router.counters.drops["slow_consumer"] == 5
    assert "slow" in node.router.hub.bindings


@ROUTINGS
def test_a_publish_nobody_has_subscribed_to_succeeds(routing: str) -> None:
    bert = Cluster("a", "b", routing=routing).client("bert", "b")
    assert bert.say("publish t0 'x'", "publish t1 'x'", "publish t2 'x'") == ["ok", "ok", "ok"]


@ROUTINGS
def test_who_unsubscribes_gets_nothing_more(routing: str) -> None:
    cluster = Cluster("a", "b", routing=routing)
    anna = cluster.listener("anna", "a", "t", "u")
    bert = cluster.client("bert", "b")
    assert bert.say("publish t 'x'", "publish u 'x'") == ["ok", "ok"]
    assert anna.say("unsubscribe t,v") == ["ok"]
    assert bert.say("publish t 'y'", "publish u 'y'") == ["ok", "ok"]
    assert sorted(anna.heard[2:]) == ["ok", "t: 'x'", "u: 'x'", "u: 'y'"]


def test_while_the_store_is_down_what_is_cached_is_routed_and_the_rest_refused() -> None:
    cluster = Cluster("a", "b", "c")
    anna = cluster.listener("anna", "b", "cached", "uncached")
    bert = cluster.client("bert", "a")
    assert bert.say("publish cached 'before'") == ["ok"]
    cluster.world.store.down = True
    bert.hear(10.0)  # long enough for every heartbeat to be old
    assert bert.say("publish cached 'meanwhile'") == ["ok"]
    begun_at = cluster.world.now
    bert.send(command="publish", topic="uncached", payload="x")
    assert bert.hear(6.0) == ["error store_unavailable"]
    assert bert.replies[-1][0] - begun_at <= 5.6
    assert anna.say("subscribe new #1") + anna.hear(6.0) == ["error store_unavailable 1"]
    cluster.world.store.down = False
    bert.hear(2.0)
    assert bert.say("publish uncached 'x'") == ["ok"]
    assert anna.say("subscribe new #2") == ["ok 2"]
    assert anna.notes[0][1:] + anna.notes[1][1:] == ("cached", "before", "cached", "meanwhile")
    assert anna.notes[-1][1:] == ("uncached", "x")


def test_a_fast_publisher_is_not_read_until_there_is_room() -> None:
    cluster = Cluster("a", limits=Limits(inflight_messages=4))
    holds = watch_holds(cluster)
    fast, calm = cluster.client("fast", "a"), cluster.client("calm", "a")
    calm.say("publish warm 'x'")
    for number in range(10):
        fast.send(command="publish", topic=f"t{number}", payload="x", ack=True, id=number)
    cluster.world.run(0.015)
    assert cluster.nodes["a"].router.inflight.messages == 10  # the commands read before it was paused
    assert holds == [("fast", True)]
    assert fast.hear() == [f"ok {number}" for number in range(10)]
    assert holds == [("fast", True), ("fast", False)]
    assert cluster.nodes["a"].router.inflight.messages == 0


def test_the_bytes_under_way_are_bounded_too() -> None:
    cluster = Cluster("a", limits=Limits(inflight_bytes=1000))
    holds = watch_holds(cluster)
    fast = cluster.client("fast", "a")
    assert fast.say("publish t0 'small' #1") == ["ok 1"]
    assert holds == []
    fast.send(command="publish", topic="t1", payload="x" * 1000)
    fast.hear()
    assert holds == [("fast", True), ("fast", False)]
    assert cluster.nodes["a"].router.inflight.bytes == 0


def test_a_connection_that_waited_for_its_own_commands_is_read_again_after_a_congestion() -> None:
    cluster = Cluster("a", "b", limits=Limits(inflight_messages=2))
    topic = cluster.topic_at("a")
    anna = cluster.listener("anna", "b", topic)
    publisher, other = cluster.client("publisher", "a"), cluster.client("other", "a")
    publisher.say(f"publish {topic} 'warm'")
    cluster.nodes["b"].stalled_until = cluster.world.now + 2.0
    publisher.say(f"publish {topic} 'x'", f"publish {topic} 'y'")
    assert cluster.nodes["a"].router.inflight.congested
    assert other.say(f"subscribe {topic} #1", "subscriptions #2") == ["ok 1", "ok 2"]
    other.hear(3.0)
    assert [note[2] for note in anna.notes] == ["warm", "x", "y"]
    assert not cluster.nodes["a"].router.inflight.congested
    assert publisher.core is not None
    assert not publisher.core.backpressure
    assert other.core is not None
    assert not other.core.backpressure


def test_the_routing_cache_counts_subscribers_that_come_later() -> None:
    cluster = Cluster("a", limits=Limits(routes_ids=10))
    sender = cluster.client("sender", "a")
    for topic in ("t", "u", "v"):
        sender.say(f"publish {topic} 'first'")
    for number in range(10):
        assert sender.say("subscribe t,u,v", client_id=number) == ["ok"]
    sender.say("publish t 'second'")
    routes = cluster.nodes["a"].router.topics.routes
    held = sum(len(route.subscribers or ()) for topic in routes.topics() if (route := routes.get(topic)) is not None)
    assert held <= 10


def watch_holds(cluster: Cluster) -> list[tuple[str, bool]]:
    """Note the decisions of endpoint ``a`` about reading its connections from now on: (client, paused?)."""
    node = cluster.nodes["a"]
    holds: list[tuple[str, bool]] = []

    def name(connection: Connection) -> str:
        return node.clients[connection].name

    def watch(of: Node, effects: Effects) -> None:
        if of is node:
            holds.extend(
                (name(act.connection), act.connection.backpressure)
                for act in effects.acts
                if isinstance(act, PauseOrResume)
            )

    cluster.world.on_effects = watch
    return holds


@ROUTINGS
def test_a_client_s_topics_are_read_in_pages(routing: str) -> None:
    anna = Cluster("a", "b", routing=routing).listener("anna", "a", "t1", "t2", "t3")
    anna.say("subscriptions", limit=2)
    page = anna.replies[-1][1]
    assert page["topic"] == ["t1", "t2"]
    anna.say("subscriptions", limit=2, cursor=page["cursor"])
    assert anna.replies[-1][1] == {"result": "success", "topic": ["t3"], "cursor": None}


def test_a_subscribe_of_many_topics_is_written_whole_and_keeps_nobody_waiting() -> None:
    cluster = Cluster("a", "b", "c")
    anna = cluster.client("anna", "a")
    bert = cluster.listener("bert", "b", "t")
    bert.say("publish t 'warm'")
    topics = [f"topic {number}" for number in range(20_000)]
    anna.send(command="subscribe", topic=topics, id=1)
    begun_at = cluster.world.now
    for number in range(20):
        bert.send(command="publish", topic="t", payload=f"{number}")
        cluster.world.run(0.02)
    bert.hear(0.1)
    waits = [at - begun_at - 0.02 * index for index, (at, _, _) in enumerate(bert.notes[1:])]
    assert len(waits) == 20
    assert max(waits) < 0.1
    anna.hear(10.0)
    assert anna.heard == ["ok 1"]
    assert sum("anna" in clients for clients in cluster.world.store.records.values()) == len(topics)


@pytest.mark.parametrize("after_ms", range(0, 60, 5))
def test_a_client_that_comes_back_to_its_endpoint_while_a_message_looks_for_it_there_is_found(after_ms: int) -> None:
    """At some of these moments the home learns that the client is not there, and then reads that it is there again."""
    cluster = Cluster("a", "b")
    topic = cluster.topic_at("a")
    cluster.listener("anna", "b", topic)
    bob = cluster.client("bob", "a")
    assert bob.say(f"publish {topic} 'there' #1") == ["ok 1"]
    (anna,) = (client for client in cluster.nodes["b"].clients.values() if client.name == "anna")
    bob.send(**parse(f"publish {topic} 'going' #2"))
    cluster.world.run(0.015)
    anna.close()
    cluster.world.run(after_ms / 1000)
    again = cluster.client("anna", "b")
    assert "ok 3" in again.say("listen #3")
    assert bob.say(f"publish {topic} 'back' #4")[-1] == "ok 4"
    assert f"{topic}: 'back'" in again.heard


@pytest.mark.parametrize("dedup", [False, True])
def test_a_publish_that_its_origin_asks_again_after_a_sleep_is_delivered_once(dedup: bool) -> None:
    """Its home had it, and waited for an endpoint that was cut off; the others took the origin for dead meanwhile."""
    cluster = Cluster("a", "b", "c")
    topic = cluster.topic_at("c")
    anna, cora = cluster.listener("anna", "a", topic), cluster.listener("cora", "c", topic)
    bert = cluster.client("bert", "b")
    assert bert.say(f"publish {topic} 'warm' #1") == ["ok 1"]
    for one, other in (("a", "c"), ("c", "a")):
        cluster.world.cut(one, other, 4.2)
    bert.send(**{**parse(f"publish {topic} 'x' #2"), "dedup": dedup})
    cluster.world.run(3 * DELAY_S)
    cluster.nodes["b"].stalled_until = cluster.world.now + 4.0
    cluster.world.run(10.0)
    assert cluster.nodes["b"].router.counters.counts["leases_lapsed"] == 1
    assert bert.heard[1].startswith("ok 2")
    assert anna.heard.count(f"{topic}: 'x'") == cora.heard.count(f"{topic}: 'x'") == 1


def test_a_change_that_an_endpoint_slept_over_does_not_undo_a_later_one() -> None:
    cluster = Cluster("a", "b", "c")
    topic = cluster.topic_at("c")
    anna, bert = cluster.listener("anna", "a", topic), cluster.client("bert", "b")
    asleep = cluster.nodes["c"]
    asleep.stalled_until = cluster.world.now + 6.0
    assert anna.say(f"unsubscribe {topic} #1", f"subscribe {topic} #2") == []
    assert anna.hear(4.5) == ["ok 1", "ok 2"]  # by another home, since the others take this one for dead
    cluster.world.run(5.0)
    assert asleep.router.members.joined
    assert asleep.router.counters.drops["outdated_change"] == 1
    assert cluster.world.store.subscribers([topic])[0] == [{"anna"}]
    assert bert.say(f"publish {topic} 'x' #3") == ["ok 3"]
    assert anna.heard[-1] == f"{topic}: 'x'"


@pytest.mark.parametrize("home", ["a", "b", "c"])
def test_a_listen_whose_connection_ended_before_it_took_effect_loses_nobody_a_message(home: str) -> None:
    """Its location is the newest, but nobody is there: the home still looks for the client where it listened before."""
    cluster = Cluster("a", "b", "c")
    topic = cluster.topic_at(home)
    anna, bert = cluster.listener("anna", "b", topic), cluster.client("bert", "c")
    assert bert.say(f"publish {topic} 'first' #1") == ["ok 1"]
    gone = cluster.client("anna", "a")
    gone.send(command="listen")
    cluster.world.run(1.5 * DELAY_S)  # the store is writing it
    gone.close()
    for number in range(100):
        bert.send(**parse(f"publish {topic} '{number}'"))
        cluster.world.run(0.001)
    cluster.world.run(1.0)
    assert anna.heard[2:] == [f"{topic}: 'first'", *(f"{topic}: '{number}'" for number in range(100))]
    assert anna.core is not None
