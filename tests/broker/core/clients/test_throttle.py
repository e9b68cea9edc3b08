"""The rate at which a connection can send commands. SPEC section 1.4."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.clients.throttle import Throttle
from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.connections.outbox import Outbox
from ingeborg.broker.core.limits import Limits

from ..talk import Cluster, Talker, parse

PER_S = 10


def connection() -> Connection:
    return Connection(1, Outbox(1 << 20))


@given(st.lists(st.tuples(st.floats(0, 0.3), st.integers(1, 4)), max_size=200))
def test_over_any_time_no_more_is_taken_than_a_second_s_worth_and_the_rate(steps: list[tuple[float, int]]) -> None:
    """A sender sends at every chance: it stays within the bucket, plus the last command's debt."""
    throttle = Throttle(PER_S)
    sender = connection()
    now = 100.0
    throttle.limit(sender, now)
    taken = 0
    for wait, cost in steps:
        now += wait
        throttle.released(now)
        if not sender.throttled:
            throttle.spend(sender, cost, now)
            taken += cost
            assert taken <= PER_S + (now - 100.0) * PER_S + cost


def test_a_debt_is_waited_for() -> None:
    throttle = Throttle(PER_S)
    sender = connection()
    throttle.limit(sender, 0.0)
    assert throttle.spend(sender, 60, 0.0)  # 50 more than it had: five seconds
    assert throttle.released(4.9) == []
    assert throttle.released(5.0) == [sender]
    assert not sender.throttled
    assert throttle.spend(sender, 1, 5.0)


def test_a_connection_that_is_gone_is_forgotten() -> None:
    throttle = Throttle(PER_S)
    sender = connection()
    throttle.limit(sender, 0.0)
    throttle.spend(sender, 60, 0.0)
    throttle.forget(sender)
    assert throttle.released(100.0) == []


def talker(*, throttled: bool = True) -> tuple[Cluster, Talker]:
    cluster = Cluster("a", limits=Limits(commands_per_s=PER_S))
    anna = cluster.client("anna", "a")
    assert anna.core is not None
    if throttled:
        cluster.nodes["a"].router.sessions._throttle.limit(anna.core, cluster.world.now)
    return cluster, anna


@pytest.mark.parametrize("command", ["publish t 'x'", "nonsense", "unlisten"])
def test_commands_that_come_too_fast_are_taken_later_and_none_is_lost(command: str) -> None:
    cluster, anna = talker()
    for number in range(50):
        anna.send(**parse(f"{command} #{number}"))
    anna.hear(0.08)
    assert len(anna.heard) == PER_S + 1  # its allowance, and the command that exceeds it
    assert anna.core is not None
    assert anna.core.backpressure
    anna.hear(1.0)
    assert PER_S + 1 < len(anna.heard) <= 2 * PER_S + 2
    anna.hear(4.0)
    assert [reply["id"] for _, reply in anna.replies] == list(range(50))
    assert not anna.core.backpressure
    assert cluster.nodes["a"].router.counters.counts["commands_throttled"] >= 3


def test_each_topic_counts_as_a_command() -> None:
    _, anna = talker()
    anna.send(command="unsubscribe", topic=[f"t{number}" for number in range(5 * PER_S)])
    anna.send(command="unlisten")
    assert anna.hear(3.9) == ["ok"]
    assert anna.hear(0.4) == ["ok"]


def test_a_connection_of_this_machine_is_not_limited() -> None:
    _, anna = talker(throttled=False)
    assert anna.say(*["publish t 'x'"] * 50) == ["ok", *["ok duplicate"] * 49]
