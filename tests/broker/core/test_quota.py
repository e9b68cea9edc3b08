"""How many topics a client may have. SPEC section 1.4."""

from __future__ import annotations

import pytest

from broker.core import quota
from broker.core.limits import Limits

from .talk import Cluster, Talker


def talkers(limit: int) -> tuple[Cluster, Talker, Talker]:
    cluster = Cluster("a", "b", limits=Limits(subscriptions=limit))
    return cluster, cluster.client("anna", "a"), cluster.client("bert", "b")


def topics(first: int, end: int) -> list[str]:
    return [f"t{number}" for number in range(first, end)]


def test_a_client_may_have_as_many_as_that_and_no_more() -> None:
    cluster, anna, bert = talkers(4)
    assert anna.say(f"subscribe {','.join(topics(0, 4))}") == ["ok"]
    assert anna.say("subscribe t4") == ["error too_many_topics"]
    assert anna.say("subscribe t3,t4") == ["error too_many_topics"]
    assert bert.say("subscribe t4") == ["ok"]
    assert sorted(cluster.world.store.topics("anna", None, 9)[0]) == topics(0, 4)


def test_subscribing_again_adds_nothing() -> None:
    _, anna, _ = talkers(4)
    anna.say(f"subscribe {','.join(topics(0, 4))}")
    assert anna.say("subscribe t1", f"subscribe {','.join(topics(0, 4))}", "subscribe t1,t1") == ["ok", "ok", "ok"]


def test_who_has_taken_some_back_may_have_others() -> None:
    _, anna, _ = talkers(2)
    assert anna.say("subscribe t0,t1", "unsubscribe t0", "subscribe t2", "subscribe t3") == [
        *("ok", "ok", "ok"),
        "error too_many_topics",
    ]


def test_commands_sent_at_once_are_counted_one_after_the_other() -> None:
    cluster, anna, _ = talkers(3)
    assert anna.say(*(f"subscribe t{number} #{number}" for number in range(5))) == [
        *("ok 0", "ok 1", "ok 2"),
        *("error too_many_topics 3", "error too_many_topics 4"),
    ]
    assert sorted(cluster.world.store.topics("anna", None, 9)[0]) == topics(0, 3)


def test_all_pages_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota, "PAGE_LIMIT_MAX", 2)
    _, anna, _ = talkers(7)
    assert anna.say(f"subscribe {','.join(topics(0, 6))}") == ["ok"]
    assert anna.say("subscribe t6,t7") == ["error too_many_topics"]
    assert anna.say("subscribe t6") == ["ok"]
    assert anna.say("subscribe t7") == ["error too_many_topics"]


def test_without_the_store_nobody_is_counted() -> None:
    cluster, anna, _ = talkers(4)
    cluster.world.store.down = True
    anna.say("subscribe t0")
    assert anna.hear(6.0) == ["error store_unavailable"]
    cluster.world.store.down = False
    assert anna.say("subscribe t0") == ["ok"]


def test_of_a_client_on_many_connections_no_more_than_some_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota, "WAITING_MAX", 5)
    cluster, anna, _ = talkers(100)
    again = cluster.client("anna", "a")
    for number in range(4):
        anna.send(command="subscribe", topic=f"t{number}")
        again.send(command="subscribe", topic=f"u{number}")
    heard = [*anna.hear(), *again.heard]
    assert heard.count("ok") == 5
    assert heard.count("error store_unavailable") == 3
    assert anna.say("subscribe t9") == ["ok"]
