"""Whether answers overtake their questions: `loadgen causal` against real servers, and its logs' naive checker."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from ..cluster.processes import cluster_of
from ..histories.bed import bed
from .backends.conftest import start
from .generator import Generator
from .overtaking import Row, Violation, message_of, rows, violations
from .plain_broker import PlainBroker

#: One publishing connection: it asks, and answers when it has its own question.
ALONE = ("--rooms", "1", "--speakers", "1", "--answers", "1")
SHORT = ("--duration-s", "1", "--rate", "80")

Q, A, C, D = (1, 1), (2, 1), (3, 1), (4, 1)


async def causal(out: Path, *arguments: str, urls: list[str], system: str = "ingeborg") -> list[Row]:
    """The events of a run that lost nothing."""
    *before, last = urls  # which the generator is given last
    more = [word for url in before for word in ("--url", url)]
    async with Generator(last, out, "causal", "--system", system, *more, *SHORT, *arguments) as generator:
        code, complained = await generator.ended()
    assert (code, complained) == (0, ""), generator.said
    assert generator.facts["complete"] is True
    return rows(out)


def kinds(events: list[Row]) -> Counter[str]:
    return Counter(row["detail"] or row["kind"] for row in events)


# -- The checker


def log(*told: tuple[int, str, tuple[int, int]]) -> list[Row]:
    """Events in their order: connection, what it did, message. All but the first message reply to something."""
    return [
        {
            "kind": kind,
            "connection": str(connection),
            "topic": str(message[0]),
            "seq": str(message[1]),
            "intended_ns": str(at_ns),
            "at_ns": str(at_ns),
            "detail": "causal" if kind == "sent" and message != Q else "",
        }
        for at_ns, (connection, kind, message) in enumerate(told)
    ]


ASKED = ((0, "sent", Q), (1, "received", Q), (1, "sent", A))


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ((*ASKED, (2, "received", Q), (2, "received", A)), []),
        ((*ASKED, (2, "received", A), (2, "received", Q)), [(2, (Q, A))]),
        ((*ASKED, (2, "received", A)), []),  # it does not hear questions, or the question was lost
        ((*ASKED, (2, "received", Q), (2, "received", A), (2, "received", Q)), []),  # came twice
        # Sent, then sent; through a connection that the first did not come to.
        (((0, "sent", Q), (0, "sent", A), (2, "received", A), (2, "received", Q)), [(2, (Q, A))]),
        ((*ASKED, (3, "received", A), (3, "sent", C), (2, "received", C), (2, "received", Q)), [(2, (Q, A, C))]),
        # Nothing leads from one to the other: received too late, or by another connection.
        (((0, "sent", Q), (1, "sent", A), (1, "received", Q), (2, "received", A), (2, "received", Q)), []),
        (((0, "sent", Q), (3, "received", Q), (1, "sent", A), (2, "received", A), (2, "received", Q)), []),
        # A chain by what was sent in between.
        ((*ASKED, (1, "sent", D), (2, "received", D), (2, "received", Q)), [(2, (Q, A, D))]),
    ],
)
def test_the_checker_finds_these_and_nothing_else(
    told: tuple[tuple[int, str, tuple[int, int]], ...], found: list[Violation]
) -> None:
    assert violations(log(*told)) == found


# -- Runs


@pytest.mark.parametrize("processes", ["1", "2"])
async def test_a_run_says_all_of_its_plan_and_marks_what_replies(tmp_path: Path, processes: str) -> None:
    async with PlainBroker() as broker:
        goal = ("--violations", "0", "--partial", "0")
        events = await causal(tmp_path / "log", *goal, "--processes", processes, urls=[broker.url])
    counted = kinds(events)
    # Of each question 2 answers, of each answer 1 comment; 8 members hear all.
    assert (counted["sent"], counted["causal"], counted["news"], counted["received"]) == (80, 320, 400, 3200)
    facts = json.loads((tmp_path / "log" / "run.json").read_text())
    assert (facts["workload"], facts["goals"], facts["config"]["think_ms"]) == ("causal", {"causal_violations": 0}, 5.0)
    assert {row["value"] for row in events if row["kind"] == "news"} == {"8"}
    assert {row["phase"] for row in events} == {"run"}
    assert violations(events) == []  # one broker that does one thing after the other
    assert not any(broker.subscribers.values())


@pytest.mark.cluster
async def test_on_a_slow_link_between_endpoints_an_answer_overtakes_its_question(tmp_path: Path) -> None:
    """It promises an order per connection and topic (SPEC 8.5)."""
    (tmp_path / "bed").mkdir()
    async with bed("lmdb", "proxy", tmp_path / "bed", "abcd") as on:
        await on.wires.slow(("a", "b"), 1.0)
        urls = [endpoint.url for endpoint in on.endpoints.values()]
        events = await causal(tmp_path / "log", urls=urls)
        await on.cluster.no_fault()
    publishers = {message_of(row): row["connection"] for row in events if row["kind"] == "sent"}
    # A client at b has got what one connection says to another's message before that.
    assert any(
        len(chain) == 2 and connection % 4 == 1 and publishers[chain[0]] != publishers[chain[1]]
        for connection, chain in violations(events)
    )
    assert json.loads((tmp_path / "log" / "run.json").read_text())["goals"] == {}


@pytest.mark.cluster
async def test_where_one_connection_orders_all_nothing_overtakes(tmp_path: Path) -> None:
    async with cluster_of(["a"], tmp_path) as cluster:
        events = await causal(tmp_path / "log", *ALONE, urls=[cluster["a"].url])
    assert kinds(events)["causal"] == 160
    assert violations(events) == []


@pytest.mark.parametrize("system", ["nats", "rabbitmq", "kafka"])
async def test_one_publisher_is_overtaken_only_where_nothing_is_promised(tmp_path: Path, system: str) -> None:
    with start(system, tmp_path) as server:
        events = await causal(tmp_path / "log", *ALONE, system=system, urls=[server.url])
    assert kinds(events)["causal"] == 160
    assert system == "kafka" or violations(events) == []
