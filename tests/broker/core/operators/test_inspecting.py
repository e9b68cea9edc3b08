"""The operators' views: endpoints, subscribers, locations. SPEC section 2.4. First among endpoints, then the part
alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from ingeborg.broker.core.connections.grants import Grant
from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.limits import SIZES, Sizes
from ingeborg.broker.core.links.calls import Call
from ingeborg.broker.core.links.requests import FiguresRequest
from ingeborg.broker.core.model import Location, StoreUnavailable, Subscribe, Subscription, Term
from ingeborg.broker.core.operators import inspecting, subscribers, words
from ingeborg.broker.core.operators.looks import looks
from ingeborg.broker.core.part import bind
from ingeborg.broker.core.router import Router

from ..surroundings import Surroundings, command
from ..talk import Cluster, Talker


def ask(talker: Talker, seconds: float = 0.5, **fields: Any) -> Any:
    before = len(talker.replies)
    talker.send(**fields)
    talker.hear(seconds)
    assert len(talker.replies) == before + 1
    return talker.replies[-1][1]


def figures_of(router: Router) -> inspecting.Inspecting:
    return next(part for part in router.layers.parts if isinstance(part, inspecting.Inspecting))


def names_up(reply: dict[str, Any]) -> dict[str, bool]:
    return {row["name"]: row["up"] for row in reply["endpoints"]}


def test_every_endpoint_says_how_it_is() -> None:
    cluster = Cluster("b", "a", "c")
    for name, node in cluster.nodes.items():
        figures_of(node.router)._figures = partial(dict, figures={"said_by": name})
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
    figures_of(cluster.nodes["a"].router)._figures = fails
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
    figures_of(cluster.nodes["b"].router)._figures = lambda: asked.append(1) or {}  # type: ignore[func-returns-value]
    anna = cluster.client("anna", "a")
    for _ in range(50):
        anna.send(command="endpoints")
    assert anna.hear() == ["ok"] * 50
    assert len(asked) == 1


def test_few_large_sets_are_read_at_a_time_and_too_many_askers_refused() -> None:
    cluster = Cluster("a")
    cluster.world.store.subscribe([Subscribe(name, ["t"]) for name in "xy"])
    anna = cluster.client("anna", "a")
    router = cluster.nodes["a"].router
    count = words.WAITING_MAX + 50
    for _ in range(count):
        anna.send(command="subscribers", topic="t")
    for _ in range(20 * count):
        anna.hear(0.005)
        if len(anna.replies) == count:
            break
        under_way = [operation for _, operation, *_ in router.stores._calls.values() if operation == "subscribers"]
        assert len(under_way) <= subscribers.READS_AT_ONCE
    results = [reply.get("error", "ok") for _, reply in anna.replies]
    assert len(results) == count
    assert results.count("store_unavailable") == 50 - subscribers.READS_AT_ONCE
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


def test_a_large_set_is_sorted_in_slices() -> None:
    cluster = Cluster("a", sizes=Sizes(sort_slice=3))
    cluster.world.store.subscribe([Subscribe(f"c{number:03}", ["t"]) for number in range(100)])
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


class Alone(Surroundings):
    """An endpoint with the peers ``p`` and ``q``; only ``p`` is linked."""

    def __init__(self) -> None:
        super().__init__("p", "q")
        self.members.disconnected("q")
        self.own: Any = {"figures": "ours"}
        self.parts = looks(self.desk.real, self.members, self.replies, self.figures, SIZES)
        self.commands = bind(self.parts).commands
        self.part = next(part for part in self.parts if isinstance(part, inspecting.Inspecting))

    def figures(self) -> dict[str, Any]:
        if isinstance(self.own, Exception):
            raise self.own
        assert isinstance(self.own, dict)
        return self.own

    def ask(self, name: str, **fields: Any) -> Connection:
        connection = self.client(name)
        self.commands[name].handler(connection, command(name, **fields))
        return connection

    def asked(self) -> Call:
        """Return the one peer whose figures the part requests."""
        (call,) = self.desk.asked
        self.desk.asked.clear()
        assert (call.request, call.target) == (FiguresRequest(), "p")
        return call

    def rows(self, connection: Connection) -> dict[str, Any]:
        """Return the answer: endpoint -> its figures, if it is up."""
        (reply,) = self.heard(connection)
        return {row["name"]: row["figures"] for row in reply["endpoints"] if row["up"]}

    def all_plain(self) -> None:
        """Has no subscription of the page a term or a filter?"""
        (call,) = self.stored("subscriptions_of")
        call.end([[Subscription(topic, client)] for client, topic in call.arguments[0]])


@pytest.fixture
def alone() -> Alone:
    return Alone()


def test_only_peers_that_are_linked_are_asked_and_all_are_shown(alone: Alone) -> None:
    anna = alone.ask("endpoints")
    call = alone.asked()
    assert alone.heard(anna) == []
    alone.part.answered(call, {"figures": "theirs"})
    (reply,) = alone.heard(anna)
    assert [(row["name"], row["me"], row["up"], row["figures"]) for row in reply["endpoints"]] == [
        ("me", True, True, "ours"),
        ("p", False, True, "theirs"),
        ("q", False, False, None),
    ]


@pytest.mark.parametrize("end", ["refused", "gone", "late"])
def test_a_peer_without_figures_is_shown_without_and_keeps_nobody_waiting(alone: Alone, end: str) -> None:
    anna = alone.ask("endpoints")
    call = alone.asked()
    if end == "refused":
        alone.part.failed(call, "internal", "no descriptor left")
    elif end == "gone":
        assert alone.part.lost(call) is None
    else:
        alone.desk.now += inspecting.FIGURES_S - 0.01
        alone.part.tick()
        assert alone.heard(anna) == []
        alone.desk.now += 0.01
        alone.part.tick()
    assert alone.rows(anna) == {"me": "ours"}


def test_an_answer_that_comes_too_late_is_not_taken_for_one_to_the_next_question(alone: Alone) -> None:
    bert = alone.ask("endpoints")
    late = alone.asked()
    alone.desk.now += inspecting.FIGURES_S
    alone.part.tick()
    assert alone.results(bert) == ["ok"]
    anna = alone.ask("endpoints")
    alone.part.answered(late, {"figures": "old"})
    assert (alone.heard(anna), alone.heard(bert)) == ([], [])
    assert alone.desk.counters.commands["endpoints"] == {"success": 1}
    alone.part.answered(alone.asked(), {"figures": "new"})
    assert alone.rows(anna) == {"me": "ours", "p": "new"}


def test_who_asks_meanwhile_is_answered_with_the_same_look_and_too_many_are_refused(alone: Alone) -> None:
    askers = [alone.ask("endpoints") for _ in range(words.WAITING_MAX + 1)]
    call = alone.asked()
    assert alone.results(askers[-1]) == ["store_unavailable"]
    alone.part.answered(call, {"figures": "theirs"})
    assert [alone.results(asker) for asker in askers[:-1]] == [["ok"]] * words.WAITING_MAX


def test_an_endpoint_that_does_not_know_its_own_figures_asks_nobody_else(alone: Alone) -> None:
    alone.own = OSError("no descriptor left")
    assert alone.results(alone.ask("endpoints")) == ["internal"]
    assert alone.desk.asked == []


def test_a_peer_is_told_our_figures_or_that_there_are_none(alone: Alone) -> None:
    alone.part.figures_requested("p", 7, FiguresRequest())
    alone.own = OSError("no descriptor left")
    alone.part.figures_requested("p", 8, FiguresRequest())
    assert alone.desk.answers == [("p", 7, {"figures": "ours"})]
    assert alone.desk.declined == [("p", 8, "internal")]


def test_a_page_of_topics_is_what_the_store_says(alone: Alone) -> None:
    anna = alone.ask("subscriptions", cursor="after", limit=2)
    (call,) = alone.stored("topics")
    assert call.arguments == ("anna", "after", 2)
    call.end((["s", "t"], "t"))
    alone.all_plain()
    assert alone.heard(anna) == [{"result": "success", "topic": ["s", "t"], "cursor": "t"}]


@pytest.mark.parametrize(
    ("error", "code"), [(ValueError("no such page"), "bad_state"), (StoreUnavailable("no quorum"), "store_unavailable")]
)
def test_a_cursor_that_is_none_is_the_clients_fault_and_the_rest_the_stores(
    alone: Alone, error: Exception, code: str
) -> None:
    anna = alone.ask("subscriptions")
    alone.stored("topics")[0].end(error=error)
    assert alone.results(anna) == [code]


def test_of_many_subscribers_only_those_of_the_page_are_located(alone: Alone) -> None:
    anna = alone.ask("subscribers", topic="t", cursor="b", limit=2)
    (read,) = alone.stored("subscribers")
    assert read.arguments == (["t"],)
    read.end(([{"a", "b", "c", "d", "e"}], {}))
    alone.stored()
    alone.desk.work()
    (locate,) = alone.stored("locations")
    assert locate.arguments == (["c", "d"],)
    locate.end([Location(1, "p", True), None])
    alone.all_plain()
    (reply,) = alone.heard(anna)
    assert (reply["topic"], reply["count"], reply["cursor"]) == ("t", 5, "d")
    assert reply["subscribers"] == [
        {"client_id": "c", "online": True, "endpoint": "p"},
        {"client_id": "d", "online": False, "endpoint": None},
    ]


def test_who_is_no_operator_is_told_who_listens_and_neither_where_nor_until_when(alone: Alone) -> None:
    anna = alone.client("subscribers")
    anna.grant = Grant("anna", (), (), False, 0.0, presence=("t",))
    alone.commands["subscribers"].handler(anna, command("subscribers", topic="t"))
    alone.stored("subscribers")[0].end(([{"a", "b", "c"}], {}))
    alone.desk.work()
    alone.stored("locations")[0].end([Location(1, "p", True), Location(1, "p", False), Location(1, "dead", True)])
    alone.stored()
    (reply,) = alone.heard(anna)
    assert reply["subscribers"] == [
        {"client_id": "a", "online": True},
        {"client_id": "b", "online": False},
        {"client_id": "c", "online": False},
    ]


def test_few_sets_are_in_memory_at_once_and_the_next_is_read_when_one_is_sorted(alone: Alone) -> None:
    askers = [alone.ask("subscribers", topic=f"t{number}") for number in range(subscribers.READS_AT_ONCE + 2)]
    first, second = alone.stored("subscribers", "subscribers")
    first.end(([{"a"}], {}))
    alone.stored()  # the part has read it, and it still exists
    alone.desk.work()
    third, _ = alone.stored("subscribers", "locations")
    assert third.arguments == (["t2"],)
    second.end(error=StoreUnavailable("no quorum"))
    (last,) = alone.stored("subscribers")
    assert last.arguments == ([f"t{subscribers.READS_AT_ONCE + 1}"],)
    assert alone.results(askers[1]) == ["store_unavailable"]


def test_a_client_is_where_its_location_says_unless_that_endpoint_is_dead(alone: Alone) -> None:
    def place(location: Location | None) -> Any:
        anna = alone.ask("location")
        (call,) = alone.stored("locations")
        assert call.arguments == (["anna"],)
        call.end([location])
        return alone.heard(anna)[0]["endpoint"]

    assert place(Location(1, "m", True)) == "me"
    assert place(Location(1, "q", True)) == "q"
    assert place(Location(1, "q", False)) is None
    assert place(Location(1, "long gone", True)) is None
    assert place(None) is None
    alone.members.peers["q"].dead_since = alone.desk.now
    assert place(Location(1, "q", True)) is None


def test_no_question_changes_anything_or_is_answered_without_the_store(alone: Alone) -> None:
    for name, fields in (("subscriptions", {}), ("subscribers", {"topic": "t"}), ("location", {})):
        anna = alone.ask(name, **fields)
        assert alone.heard(anna) == []
        (call,) = alone.desk.stored
        alone.desk.stored.clear()
        assert call.operation in {"topics", "subscribers", "locations"}
        call.end(error=StoreUnavailable("no quorum"))
        assert alone.results(anna) == ["store_unavailable"]


# Subscriptions with a filter or a term


def test_of_what_is_more_than_one_without_filter_and_term_all_is_said(alone: Alone) -> None:
    anna = alone.ask("subscriptions", id=1)
    (topics,) = alone.stored("topics")
    assert topics.arguments == ("anna", None, 1_000)
    topics.end((["t", "gone", "u", "v"], None))
    (read,) = alone.stored("subscriptions_of")
    assert read.arguments == ([("anna", topic) for topic in ("t", "gone", "u", "v")],)
    until, both = Term(True, 0.0), Term(True, 12.5)
    read.end(
        [
            [Subscription("t", "anna", None, until, 1)],
            [],
            [Subscription("u", "anna")],
            [Subscription("v", "anna"), Subscription("v", "anna", '{"a":[1]}', both, 2)],
        ]
    )
    said = {"t": [{"until": "disconnect"}], "v": [{}, {"filter": {"a": [1]}, "until": "disconnect", "ends_at": 12.5}]}
    page = {"topic": ["t", "u", "v"], "cursor": None, "subscriptions": said}
    assert alone.heard(anna) == [{"result": "success", "id": 1, **page}]


def test_so_it_is_of_a_topics_subscribers(alone: Alone) -> None:
    anna = alone.ask("subscribers", topic="t")
    alone.stored("subscribers")[0].end(([{"anna", "bert"}], {"t": ([("bert", "{}"), ("carl", "{}")], "next")}))
    (rest,) = alone.stored("filtered")
    assert rest.arguments == ("t", "next", subscribers.FILTERS_PER_READ)
    rest.end(([("dora", "{}")], None))
    alone.desk.work()
    alone.stored("locations")[0].end([None] * 4)
    (read,) = alone.stored("subscriptions_of")
    filtered = Subscription("t", "dora", '{"a":[1]}', Term(False, 7.0), 1)
    read.end([[Subscription("t", "anna")], [Subscription("t", "bert", None, Term(True, 0.0), 1)], [], [filtered]])
    (reply,) = alone.heard(anna)
    away = {"online": False, "endpoint": None}
    assert (reply["count"], reply["subscribers"]) == (
        4,
        [
            {"client_id": "anna", **away},
            {"client_id": "bert", **away, "subscriptions": [{"until": "disconnect"}]},
            {"client_id": "carl", **away, "filtered": True},  # it has gone meanwhile
            {"client_id": "dora", **away, "filtered": True, "subscriptions": [{"filter": {"a": [1]}, "ends_at": 7.0}]},
        ],
    )


@pytest.mark.parametrize("name", ["subscriptions", "subscribers"])
def test_where_the_store_does_not_say_what_there_is_the_command_fails(alone: Alone, name: str) -> None:
    anna = alone.ask(name, **({} if name == "subscriptions" else {"topic": "t"}))
    if name == "subscriptions":
        alone.stored("topics")[0].end((["t"], None))
    else:
        alone.stored("subscribers")[0].end(([("anna",)], {}))
        alone.desk.work()
        alone.stored("locations")[0].end([None])
    alone.stored("subscriptions_of")[0].end(error=StoreUnavailable("down"))
    assert alone.results(anna) == ["store_unavailable"]
