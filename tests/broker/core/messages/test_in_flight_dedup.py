"""Repetitions at the next home of a topic, while its former home is still dispatching the message.

SPEC section 7: they wait for it and share its outcome, as they do if the topic stays.
"""

from __future__ import annotations

from typing import Any

import pytest

from ingeborg.broker.core.cluster.homes import home_table
from ingeborg.broker.core.dedup.dedup import key_of
from ingeborg.broker.core.limits import SIZES, Sizes
from ingeborg.broker.core.links.calls import TIMEOUT_S, Asker, Call
from ingeborg.broker.core.links.requests import Carried, PublishRequest
from ingeborg.protocol.hashes import slot_of
from tests.simulator.world import Node

from ..talk import Cluster, Talker

NAMES = "abcd"

#: A cut that a request outlives, and one that it does not.
SHORT_S, LONG_S = 3.5, TIMEOUT_S + 2.0

WAYS = ("leaves", "is new")


def topic_of(*homes: tuple[str, str]) -> str:
    """Return a topic with this home when these endpoints are present: pairs of ``("abcd", "a")``."""
    tables = [(home_table((name, name) for name in names), home) for names, home in homes]
    topics = (f"t{number}" for number in range(10_000))
    return next(topic for topic in topics if all(table[slot_of(topic)] == home for table, home in tables))


class Moved:
    """``paul`` has published ``x`` at ``a``, the topic's home, which cannot reach ``b``, where ``anna`` listens. Now
    ``c`` is the home, because ``a`` leaves or ``c`` is new."""

    def __init__(self, how: str, cut_s: float, *, at_d: bool = False, sizes: Sizes = SIZES) -> None:
        """Make the scene. ``at_d``: another subscriber is at ``d``, which ``a`` reaches."""
        leaves = how == "leaves"
        self.cluster = cluster = Cluster(*(NAMES if leaves else "abd"), sizes=sizes)
        self.topic = (
            topic_of((NAMES, "a"), ("bcd", "c"), ("bd", "d")) if leaves else topic_of((NAMES, "c"), ("abd", "a"))
        )
        self.anna = cluster.listener("anna", "b", self.topic)
        self.zoe = cluster.listener("zoe", "d", *([self.topic] if at_d else []))
        self.paul = cluster.client("paul", "a")
        cluster.world.cut("a", "b", cut_s)
        cluster.world.cut("b", "a", cut_s)
        self.publish(self.paul)
        cluster.world.run(0.1)
        if leaves:
            self.node("a").router.joining.leave()
        else:
            cluster.nodes["c"] = cluster.world.start("c")
        while not self.is_home("c"):
            cluster.world.run(0.1)
        self.bert, self.carl = cluster.client("bert", "c"), cluster.client("carl", "d")

    def node(self, name: str) -> Node:
        return self.cluster.nodes[name]

    def is_home(self, name: str) -> bool:
        members = self.node(name).router.members
        return members.joined and members.table[slot_of(self.topic)] == members.me.incarnation

    def publish(self, *talkers: Talker) -> None:
        for talker in talkers:
            talker.send(command="publish", topic=self.topic, payload="x", ack=True)

    def run(self, seconds: float) -> None:
        self.cluster.world.run(seconds)

    def got(self, talker: Talker) -> int:
        """Return how often the client got the message."""
        return talker.heard.count(f"{self.topic}: 'x'")

    def count(self, name: str) -> int:
        """Return a counter's sum over all endpoints."""
        return sum(node.router.counters.counts[name] for node in self.cluster.nodes.values())


@pytest.mark.parametrize("how", WAYS)
def test_a_repetition_at_the_next_home_shares_the_success(how: str) -> None:
    moved = Moved(how, SHORT_S)
    moved.publish(moved.bert, moved.carl, moved.bert)
    moved.run(0.5)
    assert (moved.paul.heard, moved.bert.heard, moved.carl.heard) == ([], [], [])
    moved.run(SHORT_S + 1.0)
    assert (moved.paul.heard, moved.bert.heard) == (["ok"], ["ok duplicate"] * 2)
    assert moved.carl.heard == ["ok duplicate"]
    moved.publish(moved.carl)
    moved.run(0.5)
    assert moved.carl.heard == ["ok duplicate"] * 2
    assert moved.got(moved.anna) == 1
    assert moved.count("duplicates_dropped") == 4


@pytest.mark.parametrize("how", WAYS)
def test_it_shares_the_failure_and_a_retry_is_new(how: str) -> None:
    moved = Moved(how, LONG_S)
    moved.publish(moved.bert, moved.carl)
    moved.run(LONG_S + 1.0)
    assert moved.paul.heard == moved.bert.heard == moved.carl.heard == ["error peer_unavailable"]
    late = moved.got(moved.anna)  # when the cut was over
    moved.publish(moved.bert)
    moved.run(0.5)
    assert moved.bert.heard[1:] == ["ok"]
    assert moved.got(moved.anna) == late + 1


@pytest.mark.parametrize("how", WAYS)
def test_it_shares_what_reached_some_and_a_retry_is_none(how: str) -> None:
    moved = Moved(how, LONG_S, at_d=True)
    moved.publish(moved.bert, moved.carl)
    moved.run(LONG_S)
    replies = [talker.replies[-1][1] for talker in (moved.paul, moved.bert, moved.carl)]
    assert [(reply["error"], reply["delivered"], reply["failed"]) for reply in replies] == [
        ("partial", ["d"], ["b"])
    ] * 3
    moved.publish(moved.bert)
    moved.run(0.5)
    assert moved.bert.heard[1:] == ["ok duplicate"]
    assert moved.got(moved.zoe) == 1
    assert moved.got(moved.anna) <= 1  # when the cut was over


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("cut_s", [SHORT_S, LONG_S])
def test_nothing_is_kept_of_a_message_that_nobody_repeats(how: str, cut_s: float) -> None:
    moved = Moved(how, cut_s)
    new_home = moved.node("c").router.replication.dedup
    assert len(new_home.elsewhere) == 1
    moved.run(cut_s + 1.0)
    assert new_home.elsewhere == {}
    assert new_home.pending_keys() == []
    moved.publish(moved.bert)
    moved.run(0.5)
    assert moved.bert.heard == (["ok duplicate"] if cut_s == SHORT_S else ["ok"])


@pytest.mark.parametrize("how", WAYS)
def test_where_the_former_home_dies_the_new_one_hands_the_repetition_over(how: str) -> None:
    moved = Moved(how, LONG_S)
    moved.publish(moved.bert, moved.carl)
    moved.run(0.1)
    moved.cluster.world.crash(moved.node("a"))
    moved.run(4.5)
    assert sorted([moved.bert.heard, moved.carl.heard]) == [["ok"], ["ok duplicate"]]
    assert moved.got(moved.anna) == 1


@pytest.mark.parametrize("how", WAYS)
def test_who_repeats_it_after_the_former_home_has_died_does_not_wait_for_that(how: str) -> None:
    moved = Moved(how, LONG_S)
    moved.cluster.world.crash(moved.node("a"))
    moved.run(4.5)
    moved.publish(moved.bert)
    moved.run(0.1)
    assert moved.bert.heard == ["ok"]
    assert moved.got(moved.anna) == 1


def test_the_next_home_hands_on_what_the_first_is_still_dispatching() -> None:
    moved = Moved("leaves", SHORT_S)
    moved.node("c").router.joining.leave()
    moved.run(0.3)
    assert moved.is_home("d")
    moved.publish(moved.carl, moved.carl)
    moved.run(SHORT_S + 1.0)
    assert moved.carl.heard == ["ok duplicate"] * 2
    assert moved.got(moved.anna) == 1


def test_a_slot_that_comes_back_brings_no_word_of_the_message_that_its_home_has_itself() -> None:
    moved = Moved("is new", SHORT_S)
    moved.node("c").router.joining.leave()
    moved.run(0.3)
    assert moved.is_home("a")
    moved.publish(moved.carl)
    moved.run(SHORT_S + 1.0)
    assert moved.carl.heard == ["ok duplicate"]
    assert moved.got(moved.anna) == 1


def test_who_waits_for_a_former_home_that_is_not_reached_is_told_so_in_time() -> None:
    moved = Moved("is new", LONG_S)
    moved.cluster.world.cut("a", "c", 3 * TIMEOUT_S)
    moved.cluster.world.cut("c", "a", 3 * TIMEOUT_S)
    moved.publish(moved.bert)
    moved.run(TIMEOUT_S + 0.5)
    assert moved.bert.heard == ["error peer_unavailable"]


def test_so_many_wait_for_one_message_and_no_more() -> None:
    moved = Moved("leaves", SHORT_S, sizes=Sizes(waiters_max=2))
    moved.publish(moved.bert, moved.bert, moved.carl)
    moved.run(SHORT_S + 1.0)
    assert moved.bert.heard == ["ok duplicate"] * 2
    assert moved.carl.heard == ["error peer_unavailable"]
    assert moved.node("c").router.counters.drops["duplicate_waiters_full"] == 1


class Again(Asker):
    """An origin that asks its home again. ``said``: the answers."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def answered(self, call: Call, value: Any) -> None:
        self.said.append("duplicate" if value else "dispatched")

    def failed(self, call: Call, code: str, info: Any) -> None:
        self.said.append([code, info[1]["delivered"], info[1]["failed"]])


def test_an_origin_that_asks_again_hears_whom_its_message_has_not_reached() -> None:
    cluster = Cluster(*"abd")
    world = cluster.world
    topic = topic_of(("abd", "a"))
    cluster.listener("anna", "b", topic)
    cluster.listener("zoe", "d", topic)
    home, origin = cluster.nodes["a"].me.incarnation, cluster.nodes["b"]
    calls = origin.router.calls
    world.cut("a", "b", LONG_S)
    bert = cluster.client("bert", "b")
    number = calls.number() + 1  # the message's
    bert.send(command="publish", topic=topic, payload="x", ack=True)
    world.run(LONG_S + 1.0)
    key, me = key_of(slot_of(topic), topic, b'"x"'), origin.me.incarnation
    request = PublishRequest(Carried(topic, b'"x"', me, number), key, again=True)
    other = PublishRequest(Carried(topic, b'"x"', me, number + 1_000), key, again=True)
    again, like_it = Again(), Again()
    origin.event(lambda now: calls.make(home, request, again, None, now, number))
    origin.event(lambda now: calls.make(home, other, like_it, None, now))
    world.run(0.5)
    assert again.said == [["partial", ["d"], ["b"]]]
    assert like_it.said == ["duplicate"]


# Publishers' own keys


@pytest.mark.parametrize("where", "abcd")
def test_what_changes_back_is_delivered_a_retry_is_dropped_and_another_payload_refused(where: str) -> None:
    """This holds at the home and at other endpoints, through messages of other publishers."""
    cluster = Cluster(*NAMES)
    topic = topic_of((NAMES, "a"))
    anna = cluster.listener("anna", "b", topic)
    paul, other = cluster.client("paul", where), cluster.client("other", "d")

    def said(talker: Talker, payload: str, own_key: str | bool) -> Any:
        talker.send(command="publish", topic=topic, payload=payload, dedup=own_key, ack=True)
        cluster.world.run(0.5)
        reply = talker.replies[-1][1]
        return reply.get("error", reply.get("duplicate"))

    assert said(paul, "paid", "1") is False
    assert said(paul, "on hold", "2") is False
    assert said(other, "on hold", True) is False  # the same payload, and another message
    assert said(paul, "paid", "3") is False
    assert said(paul, "paid", "1") is True  # a late retry
    assert said(paul, "on hold", "1") == "conflict"
    assert said(other, "on hold", "1") is False  # another publisher's key
    assert said(paul, "paid", True) is False  # it has no key, so it differs from all others
    assert [note[2] for note in anna.notes] == ["paid", "on hold", "on hold", "paid", "on hold", "paid"]
    assert sum(node.router.counters.drops["publish_conflict"] for node in cluster.nodes.values()) == 1


@pytest.mark.parametrize("how", WAYS)
def test_a_key_of_its_own_goes_with_the_topic_to_its_next_home(how: str) -> None:
    """This holds also while the former home is still dispatching its message."""
    moved = Moved(how, SHORT_S)
    own: dict[str, Any] = {"command": "publish", "topic": moved.topic, "ack": True, "client_id": "paul"}
    moved.run(6.0)
    moved.paul.send(**own, payload="y", dedup="k")
    moved.run(1.0)
    home = next(name for name in NAMES if name in moved.cluster.nodes and moved.is_home(name))
    moved.cluster.nodes[home].router.joining.leave()
    moved.run(4.0)
    moved.carl.send(**own, payload="y", dedup="k")
    moved.carl.send(**own, payload="z", dedup="k")
    moved.run(1.0)
    retry, conflict = (reply for _, reply in moved.carl.replies[-2:])
    assert retry["duplicate"] is True
    assert conflict["error"] == "conflict"
