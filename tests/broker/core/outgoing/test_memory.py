"""The bound for the bytes that all connections hold: each connection's share, and which ones go."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.connections.outbox import Outbox
from ingeborg.broker.core.effects import Close, Effects
from ingeborg.broker.core.limits import Limits
from ingeborg.broker.core.model import Endpoint, Location
from ingeborg.broker.core.outgoing.memory import CLIENT_BYTES, FULL, Memory
from ingeborg.broker.core.router import Router
from ingeborg.protocol.errors import HELD_TOO_MUCH, CloseCode


def connection(number: int = 1, **holds: int) -> Connection:
    made = Connection(number, Outbox(1 << 20))
    for name, size in holds.items():
        setattr(made, name, size)
    return made


def test_what_a_connection_holds_is_the_sum_of_its_parts() -> None:
    memory = Memory(1 << 30, lambda: 1 << 40)
    one = connection(unread=1, waiting=10, unsent=100)
    one.clients |= {"a", "b"}
    one.outbox.push(b"x" * 1000)
    memory.weigh(one)
    assert memory.of(one) == 111 + 2 * CLIENT_BYTES  # a flowing outbox empties in this turn
    one.outbox.flowing = False
    memory.weigh(one)
    assert memory.of(one) == memory.total == 1111 + 2 * CLIENT_BYTES
    one.clients.clear()
    one.outbox.take()
    one.unread = one.waiting = one.unsent = 0
    memory.weigh(one)
    assert (memory.total, len(memory)) == (0, 0)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=30), st.integers(1, 500))
def test_the_greatest_go_and_no_more_than_have_to(sizes: list[int], bound: int) -> None:
    memory = Memory(bound, lambda: bound + 1)
    connections = [connection(number, unread=size) for number, size in enumerate(sizes)]
    for one in connections:
        memory.weigh(one)
    assert memory.full == (sum(sizes) > bound)
    chosen = memory.greatest()
    kept = [one for one in connections if one not in chosen]
    left = sum(one.unread for one in kept)
    if sum(sizes) <= bound:
        assert not chosen
        return
    assert left <= FULL * bound
    assert left + chosen[-1].unread > FULL * bound
    assert min(one.unread for one in chosen) >= max((one.unread for one in kept), default=0)
    assert not memory.full


def test_nobody_goes_for_what_is_there_once_and_counted_for_many() -> None:
    resident = 50
    memory = Memory(100, lambda: resident)
    for number in range(10):
        memory.weigh(connection(number, unsent=50))
    assert memory.full
    assert memory.greatest() == []
    resident = 101
    memory.weigh(connection(11, unsent=1))
    assert memory.full
    assert memory.greatest()


def test_who_is_leaving_already_is_not_chosen_again() -> None:
    memory = Memory(100, lambda: 1000)
    leaving, staying = connection(1, unread=80), connection(2, unread=50)
    leaving.ends_at = 5.0
    memory.weigh(leaving)
    memory.weigh(staying)
    assert memory.greatest() == []


# -- The router


def closes(effects: Effects) -> list[tuple[Connection, CloseCode]]:
    return [(act.connection, act.code) for act in effects.acts if isinstance(act, Close)]


def listening(limits: Limits, clients: int) -> tuple[Router, list[Connection]]:
    router = Router(Endpoint("a", "i", "ws://a", 0), 100.0, routing="lookup", limits=limits)
    return router, [router.connected(number, 100.0) for number in range(clients)]


def test_slow_readers_go_the_furthest_behind_first() -> None:
    router, connections = listening(Limits(held_bytes=10_000), 3)
    for one in connections:
        router.blocked(one, 0, 100.0)
    for one, count in zip(connections, (1, 5, 3), strict=True):
        for _ in range(count):
            router._sending.push(one, b"x" * 1000)
    assert closes(router.flush(100.0)) == []
    for _ in range(2):
        router._sending.push(connections[0], b"x" * 1000)
    effects = router.flush(100.0)
    assert closes(effects) == [(connections[1], HELD_TOO_MUCH)]
    assert router.counters.drops["held_too_much"] == 5
    assert router.counters.counts["connections_held_too_much"] == 1
    assert router.memory.total == 6000
    router._sending.push(connections[1], b"x" * 1000)
    assert closes(router.flush(100.0)) == []  # its close is on the way already
    router.disconnected(connections[1], 100.0)
    assert router.memory.total == 6000


def test_a_backlog_is_held_until_it_is_begun_or_dropped() -> None:
    router, (one,) = listening(Limits(), 1)
    listen = orjson.dumps({"command": "listen", "client_id": "a"})
    other = orjson.dumps({"command": "unlisten", "client_id": "a"})
    router.frame(one, listen, 100.0)
    router.frame(one, other, 100.0)
    router.frame(one, listen, 100.0)
    assert one.waiting == len(other) + len(listen)
    assert router.memory.of(one) == one.waiting + CLIENT_BYTES
    one.throttled = True
    router.disconnected(one, 100.0)
    assert router.counters.drops["command_of_closed_connection"] == 2
    assert (one.waiting, router.memory.total) == (0, 0)


def test_long_replies_that_wait_for_earlier_ones_are_held() -> None:
    router, (one,) = listening(Limits(), 1)
    router.frame(one, orjson.dumps({"command": "listen", "client_id": "a"}), 100.0)
    before = router.memory.of(one)
    for _ in range(10):
        router.frame(one, orjson.dumps({"command": "nothing", "id": "i" * 1_000}), 100.0)
    assert router.memory.of(one) > before + 10_000
    (call,) = router.flush(100.0).store
    router.stored(call.number, [(Location(1, "i", True), None)], None, 100.0)
    ((connection, frames),) = router.flush(100.0).write
    assert (connection, len(frames)) == (one, 11)
    assert one.waiting == 0


def test_a_client_that_comes_elsewhere_is_counted_there() -> None:
    router, (one, two) = listening(Limits(), 2)
    for connection in (one, two):
        router.frame(connection, orjson.dumps({"command": "listen", "client_id": "a"}), 100.0)
    assert (router.memory.of(one), router.memory.of(two)) == (0, CLIENT_BYTES)


@pytest.mark.parametrize("clients", [1, 1_800])
def test_clients_that_listen_are_counted_until_they_are_gone(clients: int) -> None:
    router, (one,) = listening(Limits(), 1)
    for number in range(clients):
        router.frame(one, orjson.dumps({"command": "listen", "client_id": number}), 100.0)
        router.flush(100.0)
    assert router.memory.total == clients * CLIENT_BYTES
    router.disconnected(one, 100.0)
    for _ in range(1 + clients // 500):
        if router.flush(100.0).more:
            router.work(100.0)
    assert router.hub.bindings == {}
    assert router.memory.total == 0
