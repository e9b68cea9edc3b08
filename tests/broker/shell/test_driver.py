"""The end of a turn: answers that the store has at once come in this turn, and everything else in a later one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.effects import StoreCall
from ingeborg.broker.core.model import Endpoint, FilterPage, Location, Shape, StoreError, Subscribers, Subscription
from ingeborg.broker.core.router import Router
from ingeborg.broker.shell.driver import Driver
from tests import wants

ME = Endpoint("me", "m", "ws://me", 0)


class Memory:
    """A store with a test's choice of immediate answers."""

    shape = Shape(reads_memory=True)

    def __init__(self) -> None:
        self.at_once: list[Any] = []  # answers; exceptions are raised
        self.later: list[list[str]] = []  # topics of the slow requests
        self.asked = asyncio.Event()

    async def subscribers(self, topics: list[str]) -> tuple[list[Subscribers], dict[str, FilterPage]]:
        self.later.append(topics)
        self.asked.set()
        return [() for _ in topics], {}

    def subscribers_now(self, topics: Sequence[str]) -> tuple[list[Subscribers], dict[str, FilterPage]] | None:
        answer: Any = self.at_once.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return None if answer is None else ([answer for _ in topics], {})

    def locations_now(self, clients: Sequence[str]) -> list[Location | None]:
        return [None for _ in clients]

    def filtered_now(self, topic: str, cursor: str, limit: int) -> FilterPage:
        return [("ann", f"{topic} {limit}")], cursor

    def subscribed_now(self, client: str, topics: Sequence[str]) -> list[bool]:
        return [topic == client for topic in topics]

    def subscriptions_of_now(self, pairs: Sequence[tuple[str, str]]) -> list[list[Subscription]]:
        return [[Subscription(topic, client)] for client, topic in pairs]


class Endpointed:
    """A driver and its router, the home of everything, and a client that publishes."""

    def __init__(self) -> None:
        self.store = Memory()
        self.router = Router(ME, time.monotonic(), routing="lookup", dedup_ttl_s=0.0, shape=self.store.shape)
        self.driver = Driver(self.router, self.store, lambda now: None)  # type: ignore[arg-type]
        self.written: list[bytes] = []
        self.told = asyncio.Event()
        self.driver.write_with(self._write)
        self.publisher = self.router.connected(1, time.monotonic())

    def _write(self, writes: list[tuple[Connection, list[bytes]]]) -> None:
        for _, frames in writes:
            self.written += frames
        self.told.set()

    def publish(self, topic: str) -> None:
        data = b'{"command":"publish","client_id":"p","topic":"%s","payload":1,"ack":true}' % topic.encode()
        self.router.frame(self.publisher, data, time.monotonic())
        self.driver.turn()


async def test_what_the_store_says_at_once_ends_with_the_turn() -> None:
    endpoint = Endpointed()
    endpoint.store.at_once = [("ann",)]
    endpoint.publish("song")
    await asyncio.sleep(0)  # the turn ends
    assert endpoint.router.counters.counts["store_calls"] == 2  # for subscribers and for locations
    (reply,) = endpoint.written
    assert b'"result":"success"' in reply
    assert endpoint.store.later == []


async def test_what_it_does_not_say_at_once_is_asked_for_in_the_other_way() -> None:
    endpoint = Endpointed()
    endpoint.store.at_once = [None]
    endpoint.publish("song")
    await asyncio.sleep(0)
    assert endpoint.written == []
    await endpoint.store.asked.wait()
    assert endpoint.store.later == [["song"]]
    await endpoint.told.wait()
    (reply,) = endpoint.written
    assert b'"result":"success"' in reply


@pytest.mark.parametrize(
    ("operation", "arguments", "found"),
    [
        ("filtered", ("song", "a", 10), ([("ann", "song 10")], "a")),
        ("subscribed", ("ann", ["ann", "song"]), [True, False]),
        ("subscriptions_of", ([("ann", "song")],), [[Subscription("song", "ann")]]),
    ],
)
async def test_whatever_it_may_say_at_once_is_asked_for_in_that_way(
    monkeypatch: pytest.MonkeyPatch, operation: str, arguments: tuple[Any, ...], found: Any
) -> None:
    wants.interpreted()
    endpoint = Endpointed()
    calls, told = [[StoreCall(7, operation, arguments)], []], list[Any]()
    monkeypatch.setattr(endpoint.router, "asks", lambda now: calls.pop(0))
    monkeypatch.setattr(endpoint.router, "stored", lambda *answer: told.append(answer[:3]))
    endpoint.driver.turn()
    await asyncio.sleep(0)
    assert told == [(7, found, None)]


async def test_a_store_that_cannot_be_read_is_an_error_in_this_turn(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = Endpointed()
    endpoint.store.at_once = [StoreError("damaged")]
    endpoint.publish("song")
    await asyncio.sleep(0)
    (reply,) = endpoint.written
    assert b"store_unavailable" in reply
    assert b"damaged" not in reply  # which is for the operator
    assert caplog.messages == ["the store failed in subscribers: damaged"]


async def test_a_fault_of_a_store_that_is_read_at_once_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = Endpointed()
    endpoint.store.at_once = [KeyError("a fault")]
    endpoint.publish("song")
    await asyncio.sleep(0)
    assert b"store_unavailable" in endpoint.written[0]
    assert "the store failed in subscribers" in caplog.text
