"""The client library's recovery of missed messages, against scripted endpoints on real sockets."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from websockets.asyncio.server import ServerConnection

import ingeborg.protocol.saving
from ingeborg.protocol.client import Client, Gap, Notification, PositionError
from ingeborg.protocol.errors import SUBSCRIPTIONS_ENDED, ProtocolError
from ingeborg.protocol.hashes import slot_of

from .scripted import PATIENCE_S, ScriptedEndpoint, succeed
from .test_client import client_of, ended

pytestmark = [pytest.mark.usefixtures("transport", "logged"), pytest.mark.above_sockets]


async def recover(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
    """An endpoint with history that has kept nothing."""
    if command["command"] != "listen":
        await succeed(endpoint, connection, command)
    elif command["recover"] is True:
        await endpoint.reply(connection, command, result="success", recovering=False)
    else:
        await endpoint.reply(connection, command, result="success", recovering=True)


@pytest.fixture
async def endpoint() -> AsyncIterator[ScriptedEndpoint]:
    async with ScriptedEndpoint(recover) as endpoint:
        yield endpoint


async def tell(endpoint: ScriptedEndpoint, *messages: dict[str, Any]) -> None:
    for message in messages:
        await endpoint.send(endpoint.connections[-1], message)


def note(number: int, **more: Any) -> dict[str, Any]:
    return {"key": "t", "broadcast": number, "mid": f"e.{number}", **more}


async def flushed(client: Client) -> None:
    """Wait until the client has read all that the endpoint has sent: the reply follows it."""
    await client.publish("t", "are you there?", ack=True)


async def listened_with(endpoint: ScriptedEndpoint) -> object:
    return (await endpoint.next("listen"))["recover"]


# -- positions


async def test_it_listens_with_the_latest_position_after_each_lost_connection(endpoint: ScriptedEndpoint) -> None:
    async with client_of(endpoint, listen=True, recover=True) as client:
        assert await listened_with(endpoint) is True
        await tell(endpoint, {"position": "p1"}, note(1), {"position": "p2", "recovered": True})
        await flushed(client)
        endpoint.cut()
        assert await listened_with(endpoint) == "p2"
        endpoint.cut()
        assert await listened_with(endpoint) == "p2"


async def test_a_saved_position_is_what_it_begins_with(endpoint: ScriptedEndpoint) -> None:
    async with client_of(endpoint, recover="saved") as client:
        assert client.position == "saved"
        await client.listen()
        assert await listened_with(endpoint) == "saved"
    for bad in ("", "x" * 129):
        with pytest.raises(ValueError, match="recover: a position that is no string of 1 to 128 bytes"):
            client_of(endpoint, recover=bad)


async def test_a_position_is_its_own_only_when_what_came_before_it_has_been_processed(
    endpoint: ScriptedEndpoint,
) -> None:
    async with client_of(endpoint, listen=True, recover=True) as client:
        await tell(endpoint, {"position": "p0"}, note(1), {"position": "p1"}, note(2), {"position": "p2"}, note(3))
        await flushed(client)
        before = client.position
        assert before is None
        assert [((await anext(client)).broadcast, client.position) for _ in range(3)] == [
            (1, "p0"),
            (2, "p1"),
            (3, "p2"),
        ]
        await tell(endpoint, {"position": "p3"}, {"position": "p4"}, note(4), {"position": "p5"})
        await flushed(client)
        assert client.position == "p2"
        client.mark_processed()
        assert client.position == "p4"
        assert (await anext(client)).broadcast == 4
        endpoint.cut()
        await endpoint.next("listen")
        assert await listened_with(endpoint) == "p5"  # a lost connection does not lose messages that wait here


async def test_a_callback_that_has_returned_has_worked_it_off(endpoint: ScriptedEndpoint) -> None:
    seen: list[tuple[Any, str | None]] = []

    def on_notification(key: str | None, payload: Any) -> None:
        seen.append((payload, client.position))

    def on_gap(gap: Gap) -> None:
        seen.append((gap, client.position))

    options: dict[str, Any] = {"on_notification": on_notification, "on_gap": on_gap}
    client: Client = client_of(endpoint, listen=True, recover=True, **options)
    async with client:
        await tell(endpoint, note(1), {"position": "p1"}, note(1), {"gap": {"topics": ["t"]}}, note(2))
        await flushed(client)
        assert seen == [(1, None), (Gap(["t"]), "p1"), (2, "p1")]


async def test_positions_that_nobody_takes_are_one(endpoint: ScriptedEndpoint) -> None:
    async with client_of(endpoint, listen=True, recover=True) as client:
        await tell(endpoint, *({"position": f"p{number}"} for number in range(100)))
        await flushed(client)
        assert len(client._queue) == 1
        client.mark_processed()
        assert client.position == "p99"


async def test_a_listen_that_comes_later_recovers_too(endpoint: ScriptedEndpoint) -> None:
    async def with_position(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        if command["command"] == "listen":
            more = {"position": "first"} if command["recover"] is True else {}
            recovering = command["recover"] is not True
            await endpoint.reply(connection, command, result="success", recovering=recovering, **more)
        else:
            await succeed(endpoint, connection, command)

    endpoint.script = with_position
    async with client_of(endpoint, recover=True) as client:
        await client.listen()
        client.mark_processed()
        assert client.position == "first"
        await client.unlisten()
        await client.listen()
        assert client.gaps == 0
    assert [await listened_with(endpoint), await listened_with(endpoint)] == [True, "first"]


# -- messages


async def test_repeats_are_dropped_and_counted_and_messages_have_their_names(endpoint: ScriptedEndpoint) -> None:
    async with client_of(endpoint, listen=True, recover=True) as client:
        await tell(endpoint, {"position": "p"}, note(1), note(2))
        await flushed(client)
        endpoint.cut()
        await endpoint.next("listen")
        await endpoint.next("listen")
        await tell(endpoint, note(1, kept=True), note(2, kept=True), note(3, kept=True), note(4), note(3))
        await tell(endpoint, {"key": None, "broadcast": "all"})
        came = [await anext(client) for _ in range(5)]
    assert came == [("t", 1), ("t", 2), ("t", 3), ("t", 4), (None, "all")]
    assert all(isinstance(one, Notification) for one in came)
    assert [(one.mid, one.kept) for one in came] == [
        *(("e.1", False), ("e.2", False), ("e.3", True), ("e.4", False)),
        (None, False),
    ]
    assert client.repeats == 3


async def test_who_does_not_recover_is_sent_what_it_asks_for_as_often_as_it_asks(endpoint: ScriptedEndpoint) -> None:
    async def kept(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        if "last" in command:
            await tell(endpoint, note(1, kept=True))
        await succeed(endpoint, connection, command)

    endpoint.script = kept
    async with client_of(endpoint, listen=True) as client:
        await client.subscribe("t", last=1)
        await client.subscribe("t", last=1)
        assert [(await anext(client)).mid for _ in range(2)] == ["e.1", "e.1"]
        await tell(endpoint, {"position": "of nobody"}, note(2))
        assert (await anext(client)).broadcast == 2
        assert (client.position, client.repeats) == (None, 0)


# -- gaps


async def test_gaps_are_told_in_their_place(endpoint: ScriptedEndpoint) -> None:
    told: list[Any] = []
    async with client_of(endpoint, listen=True, recover="p", on_gap=told.append) as client:
        await tell(endpoint, note(1), {"gap": {"topics": ["a", "b", "a"]}}, note(2), {"gap": None}, {"position": "q"})
        await tell(endpoint, note(3), {"gap": {}})
        await flushed(client)
        async for notification in client:
            told.append(notification.broadcast)
            if notification.broadcast == 3:
                break
        assert told == [1, Gap(["a", "b"]), 2, Gap(None), 3]
        waiting = asyncio.create_task(anext(client))
        await flushed(client)
        assert told[5:] == [Gap(None)]  # even without a notification
        waiting.cancel()
    assert client.gaps == 3


async def test_a_gap_that_nobody_is_told_of_is_a_warning(endpoint: ScriptedEndpoint) -> None:
    async with client_of(endpoint, listen=True, recover="p") as client:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("default")  # as in a program: Python shows the same warning once
            for number in (1, 2, 3):
                await tell(endpoint, {"gap": None}, note(number))
                await anext(client)
        said = "messages may be missing (gap {} of client c1), and there is no on_gap: read the current state again"
        assert [str(warning.message) for warning in told] == [said.format(number) for number in (1, 2, 3)]
        assert client.gaps == 3


async def test_slots_are_the_clients_topics_where_it_knows_all_of_them(endpoint: ScriptedEndpoint) -> None:
    async def page(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        if command["command"] == "subscriptions":
            await endpoint.reply(connection, command, result="success", topic=before, cursor=None)
        else:
            await recover(endpoint, connection, command)

    gaps: list[Gap] = []
    before = ["elsewhere", "of before", "gone"]
    endpoint.script = page
    slots = [slot_of("of before"), slot_of("new"), slot_of("gone")]
    async with client_of(endpoint, listen=True, recover="p", on_gap=gaps.append) as client:
        await tell(endpoint, {"gap": {"slots": slots, "topics": ["named"]}})
        await flushed(client)
        assert [each.topic async for each in client.subscriptions()] == before
        await client.subscribe("new")
        await client.unsubscribe("gone")
        await tell(endpoint, {"gap": {"slots": slots, "topics": ["named"]}}, note(1))
        await anext(client)
    unsure, sure = gaps
    assert unsure.topics is None
    assert sure.topics == ["named", "new", "of before"]
    for gap in gaps:
        assert all(gap.concerns(topic) for topic in ("new", "of before", "named"))
        assert not gap.concerns("elsewhere")
    assert Gap(None).concerns("elsewhere")
    assert not Gap(["a"]).concerns("elsewhere")


async def test_who_was_away_before_it_had_a_position_is_told_a_gap(endpoint: ScriptedEndpoint) -> None:
    gaps: list[Gap] = []
    async with client_of(endpoint, listen=True, recover=True, on_gap=gaps.append) as client:
        await endpoint.next("listen")
        endpoint.cut()
        assert await listened_with(endpoint) is True
        await tell(endpoint, {"position": "p"}, note(1))
        await anext(client)
        assert gaps == [Gap(None)]
        endpoint.cut()
        assert await listened_with(endpoint) == "p"
        await flushed(client)
        assert client.gaps == 1


@pytest.mark.parametrize(
    "frame",
    [
        {"position": 7},
        {"position": ""},
        {"position": "x" * 129},
        {"gap": 1},
        {"gap": {"topics": "t"}},
        {"gap": {"slots": [4096]}},
        {"gap": {"slots": [True]}},
        {"key": "t", "broadcast": 1, "mid": 2},
        {"id": 1},
        {"news": 1},
    ],
)
async def test_what_is_of_no_such_form_costs_the_endpoint_the_connection(
    endpoint: ScriptedEndpoint, frame: dict[str, Any]
) -> None:
    async with client_of(endpoint, listen=True, recover="p"):
        await endpoint.next("listen")
        await tell(endpoint, frame)
        await endpoint.next("listen")
        assert endpoint.connections[0].close_code == 1002


# -- refusals


async def test_where_nothing_is_kept_recover_is_an_error_and_no_loop(endpoint: ScriptedEndpoint) -> None:
    async def refuse(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        await endpoint.reply(connection, command, error="bad_state", info="No message is kept here")

    async with client_of(endpoint, listen=True, recover=True) as client:
        endpoint.script = refuse
        endpoint.cut()
        with pytest.raises(ProtocolError, match="bad_state: No message is kept here"):
            await asyncio.wait_for(anext(client), PATIENCE_S)
    assert len(endpoint.connections) == 2
    with pytest.raises(ProtocolError, match="bad_state: No message is kept here"):
        await client_of(endpoint, listen=True, recover=True).connect()
    assert len(endpoint.connections) == 3


# -- ended subscriptions


async def test_what_has_ended_is_subscribed_to_since_the_position_that_it_was_away_with(
    endpoint: ScriptedEndpoint,
) -> None:
    tries: list[dict[str, Any]] = []

    async def away(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        if command["command"] == "listen":
            fields = {"recovering": True, "ended": [{"topic": "a"}], "ended_count": 1}
            await endpoint.reply(connection, command, result="success", **fields)
            await tell(endpoint, {"position": f"later {len(endpoint.connections)}", "recovered": True})
        elif command["command"] == "subscribe":
            tries.append(command)
            if len(tries) == 1:
                endpoint.cut()
            else:
                await endpoint.reply(connection, command, result="success", grace_s=60.0)
        else:
            await succeed(endpoint, connection, command)

    async def first(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        more = {"recovering": False, "position": "p1"} if command["command"] == "listen" else {"grace_s": 60.0}
        await endpoint.reply(connection, command, result="success", **more)

    endpoint.script = first
    async with client_of(endpoint, listen=True, recover=True) as client:
        await client.subscribe(["a", "b"], until="disconnect")
        await endpoint.next("subscribe")
        endpoint.script = away
        endpoint.cut()
        for _ in range(2):  # the second listens with another position, and topic a has missed more
            again = await endpoint.next("subscribe")
            assert (again["topic"], again["until"], again["since"]) == (["a"], "disconnect", "p1")
        await flushed(client)
        task = client._renewals._task
        assert task is not None
        await asyncio.wait_for(task, PATIENCE_S)
        while not endpoint.frames.empty():
            assert endpoint.frames.get_nowait().get("since", "p1") == "p1"
        endpoint.cut()
        assert (await endpoint.next("subscribe"))["since"] == "later 3"


async def test_without_recover_it_is_subscribed_to_as_ever(endpoint: ScriptedEndpoint) -> None:
    async def end(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        await endpoint.reply(connection, command, result="success", grace_s=60.0)

    endpoint.script = end
    async with client_of(endpoint, listen=True) as client:
        await client.subscribe("a", until="disconnect")
        await endpoint.next("subscribe")
        endpoint.script = ended("a")
        await endpoint.connections[0].close(SUBSCRIPTIONS_ENDED.code, SUBSCRIPTIONS_ENDED.reason)
        assert "since" not in await endpoint.next("subscribe")


# -- a file


def saved(path: Path) -> dict[str, Any]:
    value = orjson.loads(path.read_bytes())
    assert type(value) is dict
    return value


async def test_a_file_keeps_the_position_from_one_program_to_the_next(
    endpoint: ScriptedEndpoint, tmp_path: Path
) -> None:
    file = tmp_path / "ann.position"
    async with client_of(endpoint, listen=True, recover=file) as client:
        assert await listened_with(endpoint) is True
        await tell(endpoint, {"position": "p1"}, note(1), note(2), note(3), note(4))
        for _ in range(3):
            await anext(client)
    assert saved(file) == {"position": "p1", "mids": ["e.1", "e.2"]}  # the program was still processing the third
    async with client_of(endpoint, listen=True, recover=file) as client:
        assert client.position == "p1"
        assert await listened_with(endpoint) == "p1"
        await tell(endpoint, *(note(number, kept=True) for number in range(1, 5)), {"position": "p2"})
        await flushed(client)
        assert [(await anext(client)).broadcast for _ in range(2)] == [3, 4]
        client.mark_processed()
    assert saved(file) == {"position": "p2", "mids": []}
    assert os.listdir(tmp_path) == ["ann.position"]


async def test_the_file_is_written_when_something_changes_and_seldom(
    endpoint: ScriptedEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    replace = ingeborg.protocol.saving._replace

    def noted(path: Path, text: bytes) -> None:
        replace(path, text)
        loop.call_soon_threadsafe(written.put_nowait, orjson.loads(text)["position"])

    monkeypatch.setattr(ingeborg.protocol.saving, "_replace", noted)
    monkeypatch.setattr(ingeborg.protocol.saving, "_INTERVAL_S", 3600.0)
    file = tmp_path / "position"
    async with client_of(endpoint, listen=True, recover=file, on_notification=lambda key, payload: None) as client:
        await tell(endpoint, {"position": "p0"})
        async with asyncio.timeout(PATIENCE_S):
            assert await written.get() == "p0"
        for number in range(50):
            await tell(endpoint, note(number), {"position": f"p{number + 1}"})
        await flushed(client)
        assert client.position == "p50"
        assert written.empty()
    assert written.get_nowait() == "p50"
    assert written.empty()
    assert saved(file)["position"] == "p50"


async def test_a_position_that_cannot_be_saved_is_told_tried_again_and_raised_in_the_end(
    endpoint: ScriptedEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingeborg.protocol.saving, "_INTERVAL_S", 0.001)
    told: asyncio.Queue[OSError] = asyncio.Queue()
    folder = tmp_path / "folder"
    folder.mkdir()
    client = client_of(endpoint, listen=True, recover=folder / "position", on_unsaved=told.put_nowait)
    await client.connect()
    folder.rmdir()
    await tell(endpoint, {"position": "p"})
    waiting = asyncio.create_task(anext(client))
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(3):
            assert isinstance(await told.get(), FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        await client.close()
    with pytest.raises(StopAsyncIteration):
        await waiting
    folder.mkdir()
    await client.close()
    assert saved(folder / "position")["position"] == "p"


async def test_what_its_callback_raises_of_it_ends_the_client(endpoint: ScriptedEndpoint, tmp_path: Path) -> None:
    def on_unsaved(error: OSError) -> None:
        raise LookupError("the program's own")

    folder = tmp_path / "folder"
    folder.mkdir()
    client = client_of(endpoint, listen=True, recover=folder / "position", on_unsaved=on_unsaved)
    await client.connect()
    folder.rmdir()
    await tell(endpoint, {"position": "p"})
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(LookupError):
            await anext(client)
    folder.mkdir()
    with pytest.raises(LookupError):
        await client.close()


@pytest.mark.parametrize("text", [b"", b"p1\n", b"[1]", b"{}", b'{"position":""}', b'{"position":"p","mids":[1]}'])
async def test_a_file_that_holds_no_position_is_refused_and_left_as_it_is(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "position"
    file.write_bytes(text)
    with pytest.raises(PositionError, match=r"holds no position .*: give another file, or remove it to start over"):
        await client_of("ws://127.0.0.1:9/", recover=file).connect()
    with pytest.raises(PositionError, match=r"nowhere/position cannot be used: No such file or directory"):
        await client_of("ws://127.0.0.1:9/", recover=tmp_path / "nowhere" / "position").connect()
    assert file.read_bytes() == text


# -- requests for kept messages


async def test_publishes_say_how_long_they_are_kept(endpoint: ScriptedEndpoint) -> None:
    async with client_of(endpoint) as client:
        await client.publish("t", 1, ack=True, keep_s=60)
        await client.publish_many([("t", 2), ("u", 3)], keep_s=86_400)
        await client.publish("t", 4, ack=True)
        for bad in (0, 86_401, 1.5, True):
            with pytest.raises(ProtocolError, match="bad_state: Key 'keep_s'"):
                await client.publish("t", 1, keep_s=bad)  # type: ignore[arg-type]
            with pytest.raises(ProtocolError, match="bad_state: Key 'keep_s'"):
                await client.publish_many([("t", 1)], keep_s=bad)  # type: ignore[arg-type]
    assert [(await endpoint.next("publish")).get("keep_s") for _ in range(4)] == [60, 86_400, 86_400, None]


async def test_a_subscribe_asks_for_kept_messages_of_a_thousand_topics_at_a_time(endpoint: ScriptedEndpoint) -> None:
    topics = [f"topic {number}" for number in range(2_500)]
    async with client_of(endpoint) as client:
        await client.subscribe(topics, last=3)
        await client.subscribe("t", since="p", filter={"a": [1]})
        wrong: list[dict[str, Any]] = [{"last": 0}, {"last": 1001}, {"last": True}, {"since": ""}]
        for bad in [*wrong, {"since": "x" * 129}, {"last": 1, "since": "p"}]:
            with pytest.raises(ProtocolError, match="bad_state"):
                await client.subscribe("t", **bad)
    frames = [endpoint.frames.get_nowait() for _ in range(4)]
    assert endpoint.frames.empty()
    assert [frame.get("last") for frame in frames] == [3, 3, 3, None]
    assert max(len(frame["topic"]) for frame in frames) == 1_000
    assert sorted(topic for frame in frames[:3] for topic in frame["topic"]) == sorted(topics)
    assert (frames[3]["since"], frames[3]["filter"]) == ("p", {"a": [1]})


async def test_history_is_read_and_gone_on_with(endpoint: ScriptedEndpoint) -> None:
    async def page(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        rows = [{"broadcast": number, "mid": f"e.{number}"} for number in ((3,) if "since" in command else (1, 2))]
        more = {"mid": rows[-1]["mid"], "more": "since" not in command, "recovered": "since" in command}
        await endpoint.reply(connection, command, result="success", publications=rows, **more)

    endpoint.script = page
    async with client_of(endpoint) as client:
        first = await client.history("t", last=2, limit=2, filter={"a": [1.0]})
        assert (first.publications, first.mid, first.more, first.recovered) == (
            *([("t", 1), ("t", 2)], "e.2", True, False),
        )
        assert [(one.mid, one.kept) for one in first.publications] == [("e.1", True), ("e.2", True)]
        rest = await client.history("t", since=first.mid)
        assert ([one.broadcast for one in rest.publications], rest.mid, rest.more, rest.recovered) == (
            *([3], "e.3", False, True),
        )
        wrong: list[dict[str, Any]] = [{"last": 0}, {"since": ""}, {"limit": 0}, {"limit": 1001}]
        for bad in [*wrong, {"last": 1, "since": "m"}]:
            with pytest.raises(ProtocolError, match="bad_state"):
                await client.history("t", **bad)
        with pytest.raises(ProtocolError, match="bad_filter"):
            await client.history("t", filter={})
    one, two = endpoint.frames.get_nowait(), endpoint.frames.get_nowait()
    assert endpoint.frames.empty()
    del one["id"], two["id"]
    same = {"command": "history", "client_id": "c1", "topic": "t"}
    assert one == {**same, "last": 2, "limit": 2, "filter": {"a": [1]}}
    assert two == {**same, "since": "e.2"}
