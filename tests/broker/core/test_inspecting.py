"""What operators look at: endpoints, subscribers, locations. SPEC section 2.4."""

from __future__ import annotations

from typing import Any

import pytest

from broker.core import inspecting

from .talk import Cluster, Talker


def ask(talker: Talker, seconds: float = 0.5, **fields: Any) -> Any:
    before = len(talker.replies)
    talker.send(**fields)
    talker.hear(seconds)
    assert len(talker.replies) == before + 1
    return talker.replies[-1][1]


def names_up(reply: dict[str, Any]) -> dict[str, bool]:
    return {row["name"]: row["up"] for row in reply["endpoints"]}


def test_every_endpoint_says_how_it_is() -> None:
    cluster = Cluster("b", "a", "c")
    for name, node in cluster.nodes.items():
        node.router._inspecting._figures = lambda name=name: {"figures": {"said_by": name}}
    reply = ask(cluster.client("anna", "b"), command="endpoints", id=7)
    assert reply["id"] == 7
    assert [(row["name"], row["me"], row["up"], row["url"]) for row in reply["endpoints"]] == [
        ("a", False, True, "ws://a"),
        ("b", True, True, "ws://b"),
        ("c", False, True, "ws://c"),
    ]
    assert [row["figures"] for row in reply["endpoints"]] == [{"said_by": name} for name in "abc"]


def test_one_that_does_not_answer_is_not_up_and_keeps_nobody_waiting() -> None:
    cluster = Cluster("a", "b", "c")
    anna = cluster.client("anna", "a")
    cluster.nodes["c"].stalled_until = cluster.world.now + 10
    anna.send(command="endpoints")
    assert anna.hear(0.9) == []
    assert anna.hear(0.3) == ["ok"]
    reply = anna.replies[-1][1]
    assert names_up(reply) == {"a": True, "b": True, "c": False}
    assert reply["endpoints"][2]["figures"] is None


def test_one_that_dies_meanwhile_is_not_waited_for() -> None:
    cluster = Cluster("a", "b")
    anna = cluster.client("anna", "a")
    incarnation = cluster.nodes["b"].me.incarnation
    cluster.nodes["b"].stalled_until = cluster.world.now + 10
    anna.send(command="endpoints")
    anna.hear(0.1)
    cluster.nodes["a"].event(lambda now: cluster.nodes["a"].router.mesh.gone(incarnation))
    assert anna.hear(0.05) == ["ok"]


def fails() -> dict[str, Any]:
    raise OSError("no descriptor left")


def test_figures_that_cannot_be_had_are_said_so_and_harm_nothing_else() -> None:
    cluster = Cluster("a", "b")
    cluster.nodes["a"].router._inspecting._figures = fails
    anna, bert = cluster.client("anna", "a"), cluster.client("bert", "b")
    for _ in range(2):
        assert ask(anna, command="endpoints")["error"] == "internal"
        assert names_up(ask(bert, command="endpoints")) == {"a": False, "b": True}
    anna.hear(3.0)
    assert anna.say("listen") == ["ok"]
    assert cluster.nodes["b"].router.members.peers[cluster.nodes["a"].me.incarnation].connected


def test_all_who_ask_at_once_are_answered_with_one_look() -> None:
    cluster = Cluster("a", "b")
    asked = []
    cluster.nodes["b"].router._inspecting._figures = lambda: asked.append(1) or {}  # type: ignore[func-returns-value]
    anna = cluster.client("anna", "a")
    for _ in range(50):
        anna.send(command="endpoints")
    assert anna.hear() == ["ok"] * 50
    assert len(asked) == 1


def test_few_large_sets_are_read_at_a_time_and_too_many_askers_refused() -> None:
    cluster = Cluster("a")
    cluster.world.store.subscribers_of["t"] = {"x", "y"}
    anna = cluster.client("anna", "a")
    router = cluster.nodes["a"].router
    count = inspecting.WAITING_MAX + 50
    for _ in range(count):
        anna.send(command="subscribers", topic="t")
    for _ in range(1_000):
        anna.hear(0.005)
        under_way = [operation for _, operation, *_ in router.stores._calls.values() if operation == "subscribers"]
        assert len(under_way) <= inspecting.READS_AT_ONCE
    results = [reply.get("error", "ok") for _, reply in anna.replies]
    assert len(results) == count
    assert results.count("store_unavailable") == 50 - inspecting.READS_AT_ONCE
    assert results.count("ok") == count - results.count("store_unavailable")


def test_a_dead_one_is_shown_until_it_is_forgotten() -> None:
    cluster = Cluster("a", "b")
    cluster.world.crash(cluster.nodes["b"])
    cluster.world.run(5.0)
    assert names_up(ask(cluster.client("anna", "a"), command="endpoints")) == {"a": True, "b": False}


def test_subscribers_come_in_pages_with_their_places() -> None:
    cluster = Cluster("a", "b")
    for number in range(7):
        talker = cluster.client(f"c{number}", "ab"[number % 2])
        talker.say("subscribe t")
        if number < 4:
            talker.say("listen")
    anna = cluster.client("anna", "a")
    reply = ask(anna, command="subscribers", topic="t", limit=5)
    assert (reply["topic"], reply["count"]) == ("t", 7)
    assert [(row["client_id"], row["endpoint"]) for row in reply["subscribers"]] == [
        *(("c0", "a"), ("c1", "b"), ("c2", "a"), ("c3", "b")),
        ("c4", None),
    ]
    rest = ask(anna, command="subscribers", topic="t", limit=5, cursor=reply["cursor"])
    assert [row["client_id"] for row in rest["subscribers"]] == ["c5", "c6"]
    assert rest["cursor"] is None
    nobody = ask(anna, command="subscribers", topic="unknown")
    assert (nobody["count"], nobody["subscribers"], nobody["cursor"]) == (0, [], None)


def test_a_large_set_is_sorted_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspecting, "SORT_SLICE", 3)
    cluster = Cluster("a")
    cluster.world.store.subscribers_of["t"] = {f"c{number:03}" for number in range(100)}
    anna = cluster.client("anna", "a")
    seen: list[str] = []
    cursor = None
    while True:
        reply = ask(anna, command="subscribers", topic="t", limit=30, cursor=cursor)
        seen += [row["client_id"] for row in reply["subscribers"]]
        cursor = reply["cursor"]
        if cursor is None:
            break
    assert seen == [f"c{number:03}" for number in range(100)]


def test_a_client_is_found_where_it_listens() -> None:
    cluster = Cluster("a", "b")
    cluster.listener("bert", "b")
    anna = cluster.client("anna", "a")

    def place() -> Any:
        reply = ask(anna, command="location", client_id="bert")
        assert reply["client_id"] == "bert"
        return reply["endpoint"]

    assert place() == "b"
    cluster.world.crash(cluster.nodes["b"])
    cluster.world.run(5.0)
    assert place() is None
    assert ask(anna, command="location", client_id="nobody")["endpoint"] is None


def test_without_the_store_that_is_said() -> None:
    cluster = Cluster("a")
    anna = cluster.client("anna", "a")
    cluster.world.store.down = True
    for fields in ({"command": "location"}, {"command": "subscribers", "topic": "t"}):
        assert ask(anna, 6.0, **fields)["error"] == "store_unavailable"
