"""The bounds and the credit of the client library, against scripted endpoints on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection

from ingeborg.protocol.client import Client
from ingeborg.protocol.errors import ProtocolError

from .scripted import ScriptedEndpoint, succeed
from .test_client import client_of

pytestmark = [pytest.mark.usefixtures("transport", "logged"), pytest.mark.above_sockets]


def rules(bounds: object) -> list[dict[str, Any]]:
    """The rules that ``echo`` says are in force for these bounds."""
    return [{"for": bounds}]


async def echo(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
    """An endpoint that says which bounds are in force, and keeps nothing."""
    if "id" not in command:
        return
    fields: dict[str, Any] = {"bounds": rules(command["bounds"])} if "bounds" in command else {}
    if "recover" in command:
        fields["recovering"] = False
    await endpoint.reply(connection, command, result="success", **fields)


@pytest.fixture
async def endpoint() -> AsyncIterator[ScriptedEndpoint]:
    async with ScriptedEndpoint(echo) as endpoint:
        yield endpoint


async def flushed(client: Client) -> None:
    """Wait until the client has read what the endpoint has sent, and the endpoint what the client has."""
    await client.publish("t", "are you there?", ack=True)


def credits(endpoint: ScriptedEndpoint) -> list[int]:
    """The counts of the credits that have come since the last call."""
    commands = [endpoint.frames.get_nowait() for _ in range(endpoint.frames.qsize())]
    return [command["count"] for command in commands if command["command"] == "credit"]


# -- bounds


async def test_each_listen_has_the_latest_bounds_and_the_window(endpoint: ScriptedEndpoint) -> None:
    given = [{"prefix": "", "staleness_ms": 100}]
    client = client_of(endpoint, listen=True, bounds=given, window=8)
    given[0]["staleness_ms"] = 5  # too late to change anything
    async with client:
        listen = await endpoint.next("listen")
        assert (listen["bounds"], listen["window"]) == ([{"prefix": "", "staleness_ms": 100}], 8)
        assert client.bounds == rules(listen["bounds"])
        await client.set_bounds("wall")
        assert (await endpoint.next("bounds"))["bounds"] == "wall"
        assert client.bounds == rules("wall")
        endpoint.cut()
        listen = await endpoint.next("listen")
        assert (listen["bounds"], listen["window"]) == ("wall", 8)
        await client.set_bounds([])
        await client.listen()
        assert (await endpoint.next("listen"))["bounds"] == []


async def test_a_client_without_bounds_sends_none_and_knows_those_of_the_endpoint(endpoint: ScriptedEndpoint) -> None:
    async def by_default(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        await endpoint.reply(connection, command, result="success", bounds=[{"prefix": ""}])

    async with client_of(endpoint) as client:
        endpoint.script = by_default
        await client.listen()
        assert (await endpoint.next("listen")).keys() == {"command", "client_id", "id"}
        assert client.bounds == [{"prefix": ""}]
        endpoint.script = succeed
        await client.listen()
        assert client.bounds == []


async def test_bounds_that_an_endpoint_refuses_are_forgotten(endpoint: ScriptedEndpoint) -> None:
    async def refuse(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        await endpoint.reply(connection, command, error="bad_state", info="The client does not listen")

    async with client_of(endpoint, bounds="live") as client:
        endpoint.script = refuse
        with pytest.raises(ProtocolError, match="does not listen"):
            await client.set_bounds("wall")
        endpoint.script = echo
        await client.listen()
        assert client.bounds == rules("live")


async def test_a_listen_while_the_endpoint_answers_has_the_new_bounds(endpoint: ScriptedEndpoint) -> None:
    async def lose_the_first(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        endpoint.script = echo
        endpoint.cut()

    async with client_of(endpoint, listen=True, bounds="live") as client:
        assert (await endpoint.next("listen"))["bounds"] == "live"
        endpoint.script = lose_the_first
        await client.set_bounds("wall")
        assert (await endpoint.next("listen"))["bounds"] == "wall"
        assert client.bounds == rules("wall")


async def test_bad_ones_are_refused_before_anything_is_sent(endpoint: ScriptedEndpoint) -> None:
    for options, words in (
        ({"bounds": "wal"}, "there is no preset 'wal'; there are live, screen, wall"),
        ({"bounds": [{"prefix": "", "staleness_ms": 5}]}, "rule 1: 'staleness_ms' has to be null, or an integer"),
        ({"window": 0}, "Key 'window' has to be an integer from 1 to 100000"),
    ):
        with pytest.raises(ProtocolError, match=words):
            client_of(endpoint, **options)
    async with client_of(endpoint) as client:
        with pytest.raises(ProtocolError, match="has to be one of live, screen, wall, or a list"):
            await client.set_bounds({"prefix": ""})  # type: ignore[arg-type]
        with pytest.raises(ProtocolError, match="Key 'item' has to be a string of 1 to 128 bytes"):
            await client.publish("t", 1, item="")
        with pytest.raises(ProtocolError, match="Key 'weight' has to be a number from 0 to 1000000"):
            await client.publish_many([("t", 1)], weight=-1)
    assert endpoint.frames.empty()


async def test_a_publish_says_its_item_and_its_weight(endpoint: ScriptedEndpoint) -> None:
    async with client_of(endpoint) as client:
        await client.publish("t", 1, item="left", weight=2.5)
        await client.publish("t", 2, weight=0)
        await client.publish_many([("t", 3), ("u", 4)], item="right", weight=3)
        await client.publish("t", 5)
        sent = [await endpoint.next("publish") for _ in range(5)]
    assert [(each.get("item"), each.get("weight")) for each in sent] == [
        ("left", 2.5),
        (None, 0),
        ("right", 3),
        ("right", 3),
        (None, None),
    ]


async def test_a_notification_says_how_many_it_stands_for(endpoint: ScriptedEndpoint) -> None:
    async with client_of(endpoint, listen=True) as client:
        connection = endpoint.connections[0]
        await endpoint.notify("t", 1)
        await endpoint.send(connection, {"key": "t", "broadcast": 2, "skipped": 3})
        await endpoint.send(connection, {"key": "t", "broadcast": 3, "skipped": 4, "mid": "e.1"})
        came = [await anext(client) for _ in range(3)]
    assert came == [("t", 1), ("t", 2), ("t", 3)]
    assert [(each.skipped, each.mid) for each in came] == [(0, None), (3, None), (4, "e.1")]


# -- credit


async def test_the_client_confirms_what_the_application_has_processed(endpoint: ScriptedEndpoint) -> None:
    async with client_of(endpoint, listen=True, window=4) as client:
        for number in range(5):
            await endpoint.notify("t" if number else None, number)
        await flushed(client)
        assert credits(endpoint) == []
        for _ in range(3):  # it asks for the third, so it has processed two
            await anext(client)
        await flushed(client)
        assert credits(endpoint) == [2]
        await anext(client)
        await flushed(client)
        assert credits(endpoint) == []
        client.mark_processed()
        await flushed(client)
        assert credits(endpoint) == [4]


async def test_each_notification_counts_once_its_function_has_returned(endpoint: ScriptedEndpoint) -> None:
    came: list[Any] = []

    def on_notification(key: str | None, payload: Any) -> None:
        came.append(payload)

    options = {"recover": True, "window": 2, "on_notification": on_notification}
    async with client_of(endpoint, listen=True, **options) as client:
        connection = endpoint.connections[0]
        for more in ({}, {"mid": "e.1", "kept": True}, {"mid": "e.1", "kept": True}, {"skipped": 7}):
            await endpoint.send(connection, {"key": "t", "broadcast": more, **more})
        await endpoint.send(connection, {"position": "p"})
        await endpoint.notify(None, "to all")
        await flushed(client)
        assert credits(endpoint) == [1, 2, 3, 4, 5]
        assert (len(came), client.repeats) == (4, 1)


async def test_a_notification_of_a_former_connection_does_not_count(endpoint: ScriptedEndpoint) -> None:
    async with client_of(endpoint, listen=True, window=2) as client:
        for number in range(3):
            await endpoint.notify("t", number)
        await flushed(client)
        await anext(client)  # it processes this one while the connection is lost, and two wait
        endpoint.cut()
        await flushed(client)
        for number in range(3, 5):
            await endpoint.notify("t", number)
        await flushed(client)
        credits(endpoint)
        assert [(await anext(client)).broadcast for _ in range(4)] == [1, 2, 3, 4]
        await flushed(client)
        assert credits(endpoint) == [1]
        client.mark_processed()
        await flushed(client)
        assert credits(endpoint) == [2]


async def test_what_it_processes_without_a_connection_is_confirmed_on_none(endpoint: ScriptedEndpoint) -> None:
    lost = asyncio.Event()
    options = {"window": 1, "on_lost": lambda error: lost.set()}
    async with client_of(endpoint, listen=True, **options) as client:
        for number in range(2):
            await endpoint.notify("t", number)
        await flushed(client)
        endpoint.cut()
        await lost.wait()
        assert [(await anext(client)).broadcast for _ in range(2)] == [0, 1]
        client.mark_processed()
        await flushed(client)
        await endpoint.notify("t", 2)
        assert (await anext(client)).broadcast == 2
        client.mark_processed()
        await flushed(client)
        assert credits(endpoint) == [1]


async def test_without_a_window_nothing_is_confirmed(endpoint: ScriptedEndpoint) -> None:
    async with client_of(endpoint, listen=True, bounds="live") as client:
        for number in range(3):
            await endpoint.notify("t", number)
        await flushed(client)
        for _ in range(3):
            await anext(client)
        client.mark_processed()
        await flushed(client)
        assert credits(endpoint) == []
