"""The client library against scripted endpoints on real sockets."""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers
from websockets.exceptions import InvalidStatus
from websockets.http11 import Response

import ingeborg.protocol.client
import ingeborg.protocol.outgoing
import ingeborg.protocol.pacing
from ingeborg.protocol.client import (
    Client,
    ClosedForGood,
    CommandTimeout,
    ConnectFailed,
    ConnectionLost,
    Notification,
    Revoked,
)
from ingeborg.protocol.errors import (
    REPLACED,
    SLOW_CONSUMER,
    SUBSCRIPTIONS_ENDED,
    TOKEN_REVOKED,
    CloseCode,
    ProtocolError,
)
from ingeborg.protocol.listings import Subscription
from ingeborg.protocol.outgoing import OutgoingSocket, connect
from tests import wants

from .scripted import PATIENCE_S, Script, ScriptedEndpoint, free_url, succeed

pytestmark = pytest.mark.usefixtures("transport", "logged")


def client_of(*endpoints: ScriptedEndpoint | str, **options: Any) -> Client:
    urls = [endpoint if isinstance(endpoint, str) else endpoint.url for endpoint in endpoints]
    return Client(urls, options.pop("client_id", "c1"), **{"timeout_s": 5.0, "backoff_base_s": 0.001, **options})


class Longest(random.Random):
    """Make every pause as long as possible."""

    def random(self) -> float:
        return 1.0


@pytest.fixture
async def endpoint() -> AsyncIterator[ScriptedEndpoint]:
    async with ScriptedEndpoint() as endpoint:
        yield endpoint


# -- commands and replies


async def test_writes_the_frames_of_the_specification(endpoint: ScriptedEndpoint) -> None:
    async with client_of(endpoint, client_id=7) as client:
        await client.listen()
        await client.subscribe("a topic")
        await client.unsubscribe(["a", "b"])
        await client.publish("t", {"k": [1, None]}, timestamp=12)
        await client.publish("t", "x", ack=True, dedup=False)
        await client.broadcast("all")
        await client.unlisten()
    frames = [endpoint.frames.get_nowait() for _ in range(7)]
    assert all(frame.pop("client_id") == 7 for frame in frames)
    ids = [frame.pop("id", None) for frame in frames]
    assert frames == [
        {"command": "listen"},
        {"command": "subscribe", "topic": ["a topic"]},
        {"command": "unsubscribe", "topic": ["a", "b"]},
        {"command": "publish", "topic": "t", "payload": {"k": [1, None]}, "timestamp": 12},
        {"command": "publish", "topic": "t", "payload": "x", "ack": True, "dedup": False},
        {"command": "broadcast", "payload": "all"},
        {"command": "unlisten"},
    ]
    assert [number is None for number in ids] == [False, False, False, True, False, True, False]
    assert len({number for number in ids if number is not None}) == 5


async def test_pipelined_commands_are_matched_by_id_whatever_the_order_of_replies(endpoint: ScriptedEndpoint) -> None:
    held = []

    async def backwards(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        held.append(command)
        if len(held) == 10:
            for earlier in reversed(held):
                await endpoint.reply(connection, earlier, result="success", duplicate=earlier["payload"] % 2 == 0)

    endpoint.script = backwards
    async with client_of(endpoint) as client:
        answers = await asyncio.gather(*(client.publish("t", number, ack=True) for number in range(10)))
    assert answers == [number % 2 == 0 for number in range(10)]


async def test_an_error_reply_is_raised_with_its_fields_and_only_by_its_own_command(endpoint: ScriptedEndpoint) -> None:
    async def partly(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        if command["payload"] == "bad":
            await endpoint.reply(connection, command, error="partial", message="m", info="i", delivered=2, failed=1)
        else:
            await succeed(endpoint, connection, command)

    endpoint.script = partly
    async with client_of(endpoint) as client:
        bad, good = await asyncio.gather(
            client.publish("t", "bad", ack=True), client.publish("t", "good", ack=True), return_exceptions=True
        )
    assert good is False
    assert isinstance(bad, ProtocolError)
    assert (bad.code, bad.info, bad.extra) == ("partial", "i", {"delivered": 2, "failed": 1})


async def test_an_unknown_error_code_of_a_newer_endpoint_is_not_retried(endpoint: ScriptedEndpoint) -> None:
    async def refuse(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        await endpoint.reply(connection, command, error="forbidden", message="not yours")

    endpoint.script = refuse
    async with client_of(endpoint) as client:
        with pytest.raises(ProtocolError, match="forbidden: not yours"):
            await client.subscribe("t")
    assert endpoint.frames.qsize() == 1


async def test_failed_unacknowledged_publishes_are_counted_kept_and_told(endpoint: ScriptedEndpoint) -> None:
    told: asyncio.Queue[ProtocolError] = asyncio.Queue()

    async def fail(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        await endpoint.send(connection, {"error": "store_unavailable", "info": "down", "command": command["command"]})

    endpoint.script = fail
    async with client_of(endpoint, on_error=told.put_nowait) as client:
        assert await client.publish("t", 1) is None
        assert await client.broadcast(2) is None
        assert [(await told.get()).extra["command"] for _ in range(2)] == ["publish", "broadcast"]
        assert client.error_counts == {"store_unavailable": 2}
        assert [error.info for error in client.errors] == ["down", "down"]


async def test_subscriptions_are_paged_with_the_cursor(endpoint: ScriptedEndpoint) -> None:
    pages = {None: (["a", "b"], "p2"), "p2": (["c"], "p3"), "p3": ([], None)}

    async def page(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        topics, cursor = pages[command.get("cursor")]
        assert command["limit"] == 2
        await endpoint.reply(connection, command, result="success", topic=topics, cursor=cursor)

    endpoint.script = page
    async with client_of(endpoint) as client:
        assert [each.topic async for each in client.subscriptions(limit=2)] == ["a", "b", "c"]


async def test_a_token_is_taken_back_by_its_id_or_by_its_subject(endpoint: ScriptedEndpoint) -> None:
    async def revoke(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        more = {} if "jti" in command else {"issued_until": 1}
        await endpoint.reply(connection, command, result="success", expires_at=command.get("expires_at", 2), **more)

    endpoint.script = revoke
    wrong: list[dict[str, Any]] = [
        {},
        {"jti": "a", "sub": "b"},
        {"jti": ""},
        {"sub": 7},
        {"jti": "a", "expires_at": -1},
    ]
    async with client_of(endpoint) as client:
        assert await client.revoke(jti="t-1", expires_at=7) == Revoked(7)
        assert await client.revoke(sub="ann") == Revoked(2, 1)
        for fields in wrong:
            with pytest.raises(ProtocolError, match="bad_state"):
                await client.revoke(**fields)


async def test_subscribers_are_paged_with_the_cursor(endpoint: ScriptedEndpoint) -> None:
    rows = [{"client_id": "a", "online": True}, {"client_id": "b", "online": False, "filtered": True}]
    rows += [{"client_id": "c", "online": True}]

    async def page(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        assert (command["command"], command["topic"], command["limit"]) == ("subscribers", "room/1", 2)
        begin = int(command.get("cursor", 0))
        cursor = "2" if begin == 0 else None
        some = {"count": 3, "subscribers": rows[begin : begin + 2]}
        await endpoint.reply(connection, command, result="success", topic="room/1", cursor=cursor, **some)

    endpoint.script = page
    async with client_of(endpoint) as client:
        found = [subscriber async for subscriber in client.subscribers("room/1", limit=2)]
        with pytest.raises(ProtocolError, match="topic"):
            _ = [subscriber async for subscriber in client.subscribers("")]
    assert found == [("a", True, False), ("b", False, True), ("c", True, False)]


async def test_a_page_may_be_longer_than_a_command(endpoint: ScriptedEndpoint) -> None:
    topics = [f"topic {number}" for number in range(1_000)]

    async def page(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        await endpoint.reply(connection, command, result="success", topic=topics, cursor=None)

    endpoint.script = page
    async with client_of(endpoint, max_frame_bytes=2_000) as client:
        assert [each.topic async for each in client.subscriptions()] == topics


async def test_a_batch_over_the_frame_limit_is_split_and_complete(endpoint: ScriptedEndpoint) -> None:
    topics = [f"topic {number} {'é' * (number % 40)}" for number in range(500)]
    limit = 4096
    async with client_of(endpoint, max_frame_bytes=limit) as client:
        await client.subscribe(topics)
    frames = [endpoint.frames.get_nowait() for _ in range(endpoint.frames.qsize())]
    assert len(frames) > 1
    assert sorted(topic for frame in frames for topic in frame["topic"]) == sorted(topics)


async def test_more_and_more_of_a_large_subscribe_is_under_way_while_it_is_quick(
    endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingeborg.protocol.client, "TOPICS_BYTES_MAX", 1500)
    monkeypatch.setattr(ingeborg.protocol.pacing, "AT_ONCE_MAX", 5)
    monkeypatch.setattr(ingeborg.protocol.pacing, "_S_SHORT", 60.0)  # every time on this machine is quick
    monkeypatch.setattr(ingeborg.protocol.pacing, "_S_LONG", 120.0)
    held: deque[dict[str, Any]] = deque()
    most: list[int] = []
    topics = [f"topic {number:04}" for number in range(3000)]
    left = len(topics)

    async def hold(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        """Answer once more commands are under way than ever before, or all commands."""
        held.append(command)
        nonlocal left
        left -= len(command["topic"])
        if len(held) > len(most) or len(held) == 5 or not left:
            most.append(len(held))
            while held:
                await endpoint.reply(connection, held.popleft(), result="success")

    endpoint.script = hold
    async with client_of(endpoint) as client:
        await client.subscribe(topics)
    assert most[:4] == [1, 2, 3, 4]
    assert max(most) == 5


async def test_a_large_subscribe_ends_with_the_first_error_and_sends_no_more(
    endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingeborg.protocol.client, "TOPICS_BYTES_MAX", 1500)

    async def fail(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        if "topic 0100" in command["topic"]:
            await endpoint.reply(connection, command, error="bad_state", message="no")
        elif command["topic"][0] != "after it":
            await succeed(endpoint, connection, command)

    endpoint.script = fail
    async with client_of(endpoint) as client:
        with pytest.raises(ProtocolError, match="bad_state"):
            await client.subscribe([f"topic {number:04}" for number in range(3000)])
    sent = sum(len(endpoint.frames.get_nowait()["topic"]) for _ in range(endpoint.frames.qsize()))
    assert sent < 3000


async def test_a_batch_of_publishes_goes_out_in_its_order(endpoint: ScriptedEndpoint) -> None:
    pairs = [(f"t{number % 3}", [number]) for number in range(100)]
    async with client_of(endpoint) as client:
        await client.publish_many(pairs, dedup=False)
        await client.subscribe("after them")
    frames = [endpoint.frames.get_nowait() for _ in pairs]
    assert frames == [
        {"command": "publish", "client_id": "c1", "topic": topic, "payload": payload, "dedup": False}
        for topic, payload in pairs
    ]


async def test_a_publish_has_the_key_that_it_is_given_or_one_that_is_like_no_other(endpoint: ScriptedEndpoint) -> None:
    async with client_of(endpoint) as client, client_of(endpoint) as other:
        assert await client.publish("t", "paid", ack=True, dedup="retry") is False
        await client.publish("t", "paid", dedup="retry")
        await client.publish_many([("t", 1), ("t", 2)], dedup="retry")
        await client.publish("t", "paid", dedup="order 7")
        await client.subscribe("after them")
        await other.broadcast("paid", ack=True, dedup="retry")
        for bad in ("", "x" * 129, "true"):
            with pytest.raises(ProtocolError, match="bad_state: Key 'dedup'"):
                await client.publish("t", 1, dedup=bad)
            with pytest.raises(ProtocolError, match="bad_state: Key 'dedup'"):
                await client.publish_many([("t", 1)], dedup=bad)
    keys: list[Any] = [endpoint.frames.get_nowait().get("dedup") for _ in range(7)]
    assert keys.pop(5) is None
    assert keys.pop(4) == "order 7"
    assert len(set(keys)) == 5
    assert all(6 < len(key) <= 40 for key in keys)


async def test_a_retry_has_the_key_of_its_first_try_and_is_no_duplicate_of_another(endpoint: ScriptedEndpoint) -> None:
    async def cut_first(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        if len(endpoint.connections) == 1:
            endpoint.cut()
        else:
            await endpoint.reply(connection, command, result="success", duplicate=True)

    endpoint.script = cut_first
    async with client_of(endpoint) as client:
        assert await client.publish("t", 1, ack=True, dedup="retry") is False
        assert await client.publish("t", 1, ack=True, dedup="mine") is True
    first, second, third = (endpoint.frames.get_nowait()["dedup"] for _ in range(3))
    assert first == second
    assert third == "mine"


async def test_a_batch_of_publishes_with_a_bad_one_sends_none(endpoint: ScriptedEndpoint) -> None:
    async with client_of(endpoint) as client:
        with pytest.raises(ProtocolError, match="bad_topic"):
            await client.publish_many([("a", 1), ("", 2), ("b", 3)])
        await client.subscribe("after them")
    assert endpoint.frames.get_nowait()["command"] == "subscribe"
    assert endpoint.frames.empty()


@pytest.mark.parametrize(
    ("topic", "code"), [("", "bad_topic"), ("a\nb", "bad_topic"), ("é" * 513, "bad_topic"), ("\ud800", "bad_topic")]
)
async def test_bad_topics_are_refused_before_anything_is_sent(
    endpoint: ScriptedEndpoint, topic: str, code: str
) -> None:
    async with client_of(endpoint) as client:
        with pytest.raises(ProtocolError) as caught:
            await client.subscribe(["fine", topic])
        assert caught.value.code == code
    assert endpoint.frames.empty()


async def test_what_json_cannot_say_and_what_no_frame_can_hold_is_refused(endpoint: ScriptedEndpoint) -> None:
    async with client_of(endpoint, max_frame_bytes=5000) as client:
        with pytest.raises(ProtocolError, match="bad_json"):
            await client.publish("t", 2**64)
        with pytest.raises(ProtocolError, match="too_large"):
            await client.publish("t", "x" * 5000)
    assert endpoint.frames.empty()


@pytest.mark.parametrize("client_id", ["", "x" * 129, 1.5, True, None])
def test_bad_client_ids_are_refused(client_id: Any) -> None:
    with pytest.raises(ValueError, match="client_id"):
        Client("ws://127.0.0.1:9", client_id)


def test_bad_urls_are_refused() -> None:
    with pytest.raises(ValueError, match="not a ws:// or wss:// URL"):
        Client("http://127.0.0.1", "c")


@pytest.mark.parametrize(
    "url", ["ws://ann:hidden@x", "wss://x/?a=b&access_token=hidden", "http://hidden@x", "ws:// hidden@", "hidden@x"]
)
def test_a_url_with_a_secret_is_refused_without_saying_it(url: str) -> None:
    with pytest.raises(ValueError, match="must not contain a user name, a password") as caught:
        Client(url, "c")
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "token", ["hidden\n", "hidden\r\nX-Evil: 1", "\ufeffhidden", "hid den", "hiddén", "", b"hidden"]
)
def test_what_is_no_token_is_refused_without_saying_it(token: Any) -> None:
    with pytest.raises(ValueError, match="visible ASCII") as caught:
        Client("ws://x", "c", token=token)
    assert "hid" not in str(caught.value)


async def test_a_token_that_is_not_to_be_had_fails_the_attempt_and_is_asked_for_again(
    endpoint: ScriptedEndpoint,
) -> None:
    faults: list[Any] = [OSError("down"), ValueError("no JSON"), RuntimeError("500"), TimeoutError(), KeyError("token")]
    faults += [asyncio.CancelledError(), GeneratorExit()]  # from a task that another one has cancelled
    given: list[Any] = ["first", *faults, "<html>an error page</html>", None, "last"]

    async def token() -> str:
        answer = given.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[no-any-return]

    told: list[str] = []
    async with client_of(endpoint, token=token, on_unreachable=lambda error: told.append(str(error))) as client:
        endpoint.cut()
        await endpoint.connections[0].wait_closed()
        await client.subscribe("t")
    assert len(told) == 9
    assert all(f"{endpoint.url}: no token: " in text for text in told)
    assert not any("error page" in text for text in told)
    assert endpoint.connections[-1].request is not None
    assert endpoint.connections[-1].request.headers["Authorization"] == "Bearer last"
    with pytest.raises(ConnectFailed, match="no token: 'x'"):
        await client_of(endpoint, token=lambda: dict[str, str]()["x"]).connect()


async def test_a_command_that_times_out_says_why_the_client_is_connected_nowhere(
    endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: Any, **__: Any) -> Any:
        raise InvalidStatus(Response(401, "Unauthorized", Headers(), b"it has expired"))

    unreachable = asyncio.Event()
    async with client_of(endpoint, token="t") as client:
        monkeypatch.setattr(ingeborg.protocol.client, "connect", refused)
        endpoint.cut()
        said = "the endpoint refuses the token, and the client has no on_unreachable: .*HTTP 401"
        with pytest.raises(CommandTimeout), pytest.warns(RuntimeWarning, match=said):
            await client.subscribe("t", timeout_s=0.2)
    monkeypatch.setattr(ingeborg.protocol.client, "connect", connect)
    async with client_of(endpoint, token="t", on_unreachable=lambda _: unreachable.set()) as client:
        monkeypatch.setattr(ingeborg.protocol.client, "connect", refused)
        endpoint.cut()
        await asyncio.wait_for(unreachable.wait(), PATIENCE_S)
        client._timeout_s = 0.05
        for attempt in (client.subscribe("t", timeout_s=0.05), client.publish("t", 1)):
            with pytest.raises(CommandTimeout, match="HTTP 401: it has expired"):
                await attempt


async def test_any_iterable_of_topics_is_gone_through_once(endpoint: ScriptedEndpoint) -> None:
    async with client_of(endpoint) as client:
        for kind in (list, tuple, iter, dict.fromkeys, deque, lambda text: (letter for letter in text)):
            for command in (client.subscribe, client.unsubscribe):
                await command(kind("ab"))
                assert (await endpoint.next(command.__name__))["topic"] == ["a", "b"]
        for wrong in (None, 5, b"a"):
            with pytest.raises(TypeError, match="topics have to be a string, or strings, not"):
                await client.subscribe(wrong)  # type: ignore[arg-type]


async def test_what_an_endpoint_closes_with_is_said_once(endpoint: ScriptedEndpoint) -> None:
    lost: asyncio.Queue[str] = asyncio.Queue()
    async with client_of(endpoint, on_lost=lambda error: lost.put_nowait(str(error))):
        await endpoint.connections[0].close(SLOW_CONSUMER.code, SLOW_CONSUMER.reason)
        said = await asyncio.wait_for(lost.get(), PATIENCE_S)
        assert said == f"{endpoint.url}: closed by the endpoint, 4002: {SLOW_CONSUMER.reason}"


# -- time-outs


async def test_a_command_without_an_answer_times_out_and_its_late_reply_is_counted(endpoint: ScriptedEndpoint) -> None:
    held: asyncio.Queue[tuple[ServerConnection, dict[str, Any]]] = asyncio.Queue()

    async def hold(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        await held.put((connection, command))

    endpoint.script = hold
    async with client_of(endpoint) as client:
        with pytest.raises(CommandTimeout):
            await client.subscribe("t", timeout_s=0.05)
        connection, command = await held.get()
        await endpoint.reply(connection, command, result="success")
        endpoint.script = succeed
        await client.subscribe("u")
        assert client.late_replies == 1


async def test_connecting_to_an_endpoint_that_never_answers_times_out() -> None:
    async with await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectFailed, match=r"no answer within 0\.05 s"):
            await client_of(f"ws://127.0.0.1:{port}", timeout_s=0.05).connect()


async def test_a_command_waits_for_the_connection_no_longer_than_its_time_out(endpoint: ScriptedEndpoint) -> None:
    async with client_of(endpoint, backoff_base_s=60, backoff_max_s=60, random=Longest()) as client:
        endpoint.cut()
        await endpoint.connections[0].wait_closed()
        client._timeout_s = 0.2
        for attempt in (client.subscribe("t"), client.publish("t", 1), client.publish("t", 1, ack=True)):
            with pytest.raises(CommandTimeout):
                await attempt


# -- connecting and reconnecting


async def test_connects_to_the_first_of_the_list_that_works(endpoint: ScriptedEndpoint) -> None:
    async with client_of(free_url(), endpoint) as client:
        assert client.url == endpoint.url


async def test_says_of_every_endpoint_why_when_none_works() -> None:
    with pytest.raises(ConnectFailed, match=r"ws://127\.0\.0\.1:9/: .*refused.*; ws://127\.0\.0\.1:9/b: .*refused"):
        await client_of(free_url(), free_url() + "b").connect()


async def test_reconnects_to_the_next_endpoint_listens_again_and_goes_on_receiving(endpoint: ScriptedEndpoint) -> None:
    lost: list[Exception] = []
    async with ScriptedEndpoint() as second, client_of(endpoint, second, listen=True, on_lost=lost.append) as client:
        await endpoint.next("listen")
        await endpoint.notify("t", 1)
        assert await anext(client) == Notification("t", 1)
        endpoint.cut()
        await second.next("listen")
        await second.notify("t", 2)
        assert await anext(client) == Notification("t", 2)
        await client.subscribe("t")
        assert (client.url, client.reconnects, len(lost)) == (second.url, 1, 1)


async def test_listening_stops_being_renewed_after_unlisten(endpoint: ScriptedEndpoint) -> None:
    async with client_of(endpoint, listen=True) as client:
        await client.unlisten()
        endpoint.cut()
        await client.subscribe("t")
    assert [endpoint.frames.get_nowait()["command"] for _ in range(3)] == ["listen", "unlisten", "subscribe"]


async def test_an_endpoint_that_cannot_listen_now_is_passed_over_for_the_next(endpoint: ScriptedEndpoint) -> None:
    async def not_now(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        await endpoint.reply(connection, command, error="store_unavailable", info="down")

    endpoint.script = not_now
    async with ScriptedEndpoint() as second, client_of(endpoint, second, listen=True) as client:
        assert client.url == second.url


async def test_listening_refused_for_good_ends_the_client(endpoint: ScriptedEndpoint) -> None:
    async def refuse(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        await endpoint.reply(connection, command, error="bad_state", info="no")

    endpoint.script = refuse
    with pytest.raises(ProtocolError, match="bad_state"):
        await client_of(endpoint, listen=True).connect()

    endpoint.script = succeed
    async with client_of(endpoint, listen=True) as client:
        endpoint.script = refuse
        endpoint.cut()
        with pytest.raises(ProtocolError, match="bad_state"):
            await anext(client)


async def test_a_broken_connection_is_retried_for_what_is_safe_to_repeat(endpoint: ScriptedEndpoint) -> None:
    async def cut_first(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        if len(endpoint.connections) == 1:
            endpoint.cut()
        else:
            await endpoint.reply(connection, command, result="success", duplicate=True)

    commands: list[tuple[Callable[[Client], Awaitable[object]], bool]] = [
        (lambda client: client.subscribe("t"), True),
        (lambda client: client.listen(), True),
        (lambda client: client.publish("t", 1, ack=True), True),
        (lambda client: client.publish("t", 1, ack=True, dedup=False), False),
    ]
    for command, repeated in commands:
        endpoint.connections.clear()
        endpoint.script = cut_first
        async with client_of(endpoint) as client:
            if repeated:
                await command(client)
            else:
                with pytest.raises(ConnectionLost):
                    await command(client)


async def test_a_passing_error_is_retried_until_it_passes_or_the_time_is_up(endpoint: ScriptedEndpoint) -> None:
    tries: list[dict[str, Any]] = []

    async def third_time(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        tries.append(command)
        if len(tries) < 3:
            await endpoint.reply(connection, command, error="peer_unavailable", info="try again")
        else:
            await endpoint.reply(connection, command, result="success")

    async def never(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        await endpoint.reply(connection, command, error="store_unavailable", info="down")

    endpoint.script = third_time
    async with client_of(endpoint) as client:
        await client.subscribe("t")
        tries.clear()
        assert await client.publish("t", 1, ack=True) is False
        tries.clear()
        with pytest.raises(ProtocolError, match="peer_unavailable"):
            await client.publish("t", 1, ack=True, dedup=False)
        assert len(tries) == 1
        endpoint.script = never
        with pytest.raises(ProtocolError, match="store_unavailable: down"):
            await client.subscribe("t", timeout_s=1.0)


async def test_the_backoff_has_full_jitter_and_grows_to_its_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dice(random.Random):
        def random(self) -> float:
            return draws.pop(0)

    draws = [1.0, 0.0, 0.5, 1.0, 0.25, 1.0]
    slept: list[float] = []
    real_sleep = asyncio.sleep
    done = asyncio.Event()

    async def no_sleep(delay_s: float) -> None:
        if asyncio.current_task() is not client._task:
            await real_sleep(delay_s)
            return
        slept.append(delay_s)
        if not draws:
            done.set()
            await real_sleep(3600)

    async with ScriptedEndpoint() as endpoint:
        client = client_of(endpoint, free_url(), backoff_base_s=0.1, backoff_max_s=1.0, random=Dice())
        async with client:
            monkeypatch.setattr("ingeborg.protocol.client.asyncio.sleep", no_sleep)
            client._urls = [free_url()]  # from now on no endpoint answers
            client._next_url = 0
            endpoint.cut()
            async with asyncio.timeout(PATIENCE_S):
                await done.wait()
    # draw × min(1.0, 0.1 × 2^n), n = 0 …
    assert slept == pytest.approx([0.1, 0.0, 0.2, 0.8, 0.25, 1.0])


@pytest.mark.parametrize("lasted", [True, False])
async def test_the_backoff_begins_again_when_a_connection_has_lasted_whatever_has_come_over_it(
    endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch, lasted: bool
) -> None:
    monkeypatch.setattr(ingeborg.protocol.client, "LASTED_S", 0.0 if lasted else math.inf)
    slept: list[float] = []
    real_sleep = asyncio.sleep

    async def no_sleep(delay_s: float) -> None:
        if asyncio.current_task() is client._task:
            slept.append(delay_s)
            delay_s = 0.0
        await real_sleep(delay_s)

    async with client_of(endpoint, listen=True, backoff_base_s=0.1, random=Longest()) as client:
        monkeypatch.setattr("ingeborg.protocol.client.asyncio.sleep", no_sleep)
        for number in range(3):
            await endpoint.next("listen")
            if not lasted:
                await endpoint.notify("t", number)
                await anext(client)
            endpoint.cut()
        await endpoint.next("listen")
    assert slept == pytest.approx([0.1, 0.1, 0.1] if lasted else [0.1, 0.2, 0.4])


async def test_a_connection_that_a_command_has_waited_on_in_vain_is_probed_and_cut(
    endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingeborg.protocol.outgoing, "_PROBE_S", 0.05)
    lost: list[ConnectionLost] = []
    async with ScriptedEndpoint() as second, client_of(endpoint, second, on_lost=lost.append) as client:
        endpoint.connections[0].transport.pause_reading()  # like a network that has gone silent
        with pytest.raises(CommandTimeout):
            await client.subscribe("t", timeout_s=0.05)
        await client.subscribe("t")
        assert client.url == second.url
    assert "no answer to a ping" in str(lost[0])


async def test_a_silent_connection_is_probed_and_stays_while_it_answers(
    endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingeborg.protocol.outgoing, "_LOOK_S", 0.01)
    enough = asyncio.Event()
    probes = 0
    ping = OutgoingSocket.ping

    def counted(socket: OutgoingSocket) -> None:
        nonlocal probes
        probes += 1
        if probes == 4:
            enough.set()
        ping(socket)

    def probed(socket: OutgoingSocket) -> None:  # once the answer has come, instead of after ten seconds
        assert socket.heard
        assert socket._probing is not None
        socket._probing.cancel()
        socket._probing = None

    monkeypatch.setattr(OutgoingSocket, "ping", counted)
    async with client_of(endpoint) as client:
        async with asyncio.timeout(PATIENCE_S):
            monkeypatch.setattr(OutgoingSocket, "ponged", probed)
            await enough.wait()
        assert client.reconnects == 0


@pytest.mark.parametrize("code", [REPLACED, TOKEN_REVOKED, SLOW_CONSUMER])
async def test_close_codes_decide_whether_to_reconnect(endpoint: ScriptedEndpoint, code: CloseCode) -> None:
    async with client_of(endpoint, listen=True) as client:
        await endpoint.next("listen")
        await endpoint.notify("t", "before")
        await endpoint.connections[0].close(code.code, code.reason)
        assert await anext(client) == Notification("t", "before")
        if code.reconnect:
            await endpoint.next("listen")
        else:
            with pytest.raises(ClosedForGood) as caught:
                await asyncio.wait_for(anext(client), PATIENCE_S)
            assert caught.value.code == code.code
            with pytest.raises(ClosedForGood):
                await client.subscribe("t")
            assert len(endpoint.connections) == 1


@pytest.mark.parametrize("fixed", [True, False])
async def test_who_is_revoked_while_it_is_away_ends_unless_it_can_have_another_token(
    endpoint: ScriptedEndpoint, fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants.interpreted()
    tries = 0
    challenge = {"WWW-Authenticate": 'Bearer error="invalid_token", error_description="revoked"'}

    async def refused(*arguments: Any, **options: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise InvalidStatus(Response(401, "Unauthorized", Headers(challenge), b"it has been revoked"))
        return await connect(*arguments, **options)

    async with client_of(endpoint, listen=True, token="t" if fixed else lambda: "t") as client:
        await endpoint.next("listen")
        monkeypatch.setattr(ingeborg.protocol.client, "connect", refused)
        endpoint.cut()
        if fixed:
            with pytest.raises(ClosedForGood) as caught:
                await asyncio.wait_for(anext(client), PATIENCE_S)
            assert caught.value.code == TOKEN_REVOKED.code
        else:
            await endpoint.next("listen")
        assert tries == 2 - fixed


async def test_garbage_from_an_endpoint_costs_it_the_connection(endpoint: ScriptedEndpoint) -> None:
    async with ScriptedEndpoint() as second, client_of(endpoint, second, listen=True) as client:
        await endpoint.connections[0].send("{not json")
        await second.next("listen")
        await client.subscribe("t")
        assert endpoint.connections[0].close_code == 1002
        assert client.url == second.url


# -- subscriptions that end


async def end_them(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
    """An endpoint that has ended no subscriptions."""
    fields = {"grace_s": 60.0} if "until" in command else {}
    await endpoint.reply(connection, command, result="success", **fields)


def ended(*topics: str, **filters: Any) -> Script:
    """An endpoint that has ended these: topics, and topics with their filters."""
    named: list[dict[str, Any]] = [{"topic": topic} for topic in topics]
    named += [{"topic": topic, "filter": filter} for topic, filter in filters.items()]

    async def script(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        if command["command"] == "listen":
            await endpoint.reply(connection, command, result="success", ended=named, ended_count=len(named))
        else:
            await end_them(endpoint, connection, command)

    return script


async def test_a_subscribe_says_when_it_ends(endpoint: ScriptedEndpoint) -> None:
    endpoint.script = end_them
    async with client_of(endpoint) as client:
        await client.subscribe("a", until="disconnect")
        await client.subscribe(["b"], ttl_s=60)
        await client.subscribe("c", until="disconnect", ttl_s=5, filter={"price": [2.0, 1, 1]})
        for bad in ({"until": "tomorrow"}, {"ttl_s": 0}):
            with pytest.raises(ProtocolError, match="bad_state"):
                await client.subscribe("d", **bad)
    frames = [endpoint.frames.get_nowait() for _ in range(endpoint.frames.qsize())]
    assert [{key: frame[key] for key in frame.keys() - {"id", "command", "client_id"}} for frame in frames] == [
        {"topic": ["a"], "until": "disconnect"},
        {"topic": ["b"], "ttl_s": 60},
        {"topic": ["c"], "until": "disconnect", "ttl_s": 5, "filter": {"price": [1, 2]}},
    ]


async def test_what_has_ended_while_it_was_away_is_subscribed_to_again(endpoint: ScriptedEndpoint) -> None:
    endpoint.script = end_them
    told: asyncio.Queue[tuple[list[Subscription], int]] = asyncio.Queue()

    def on_ended(found: list[Subscription], count: int) -> None:
        told.put_nowait((found, count))

    async with client_of(endpoint, listen=True, on_ended=on_ended) as client:
        await client.subscribe(["a", "b", "c"], until="disconnect")
        await client.subscribe("plain")
        await client.unsubscribe("b")
        await endpoint.next("unsubscribe")
        endpoint.script = ended("a", "b", "other")
        endpoint.cut()
        again = await endpoint.next("subscribe")
        assert (again["topic"], again["until"]) == (["a"], "disconnect")
        async with asyncio.timeout(PATIENCE_S):
            assert await told.get() == ([Subscription("b"), Subscription("other")], 2)


async def test_all_is_subscribed_to_again_after_close_code_4007(endpoint: ScriptedEndpoint) -> None:
    endpoint.script = end_them
    async with client_of(endpoint, listen=True) as client:
        await client.subscribe(["a", "b"], until="disconnect")
        await endpoint.next("subscribe")
        await endpoint.connections[0].close(SUBSCRIPTIONS_ENDED.code, SUBSCRIPTIONS_ENDED.reason)
        assert (await endpoint.next("subscribe"))["topic"] == ["a", "b"]


async def test_subscribing_again_outlasts_errors_that_pass_and_lost_connections(endpoint: ScriptedEndpoint) -> None:
    tries: list[dict[str, Any]] = []

    async def grudging(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        if command["command"] != "subscribe":
            await end_them(endpoint, connection, command)
            return
        tries.append(command)
        if len(tries) == 1:
            await endpoint.reply(connection, command, error="peer_unavailable", info="not yet")
        elif len(tries) == 2:
            endpoint.cut()
        else:
            await end_them(endpoint, connection, command)

    endpoint.script = end_them
    async with client_of(endpoint, listen=True) as client:
        await client.subscribe("a", until="disconnect")
        endpoint.script = grudging
        await endpoint.connections[0].close(SUBSCRIPTIONS_ENDED.code, SUBSCRIPTIONS_ENDED.reason)
        for _ in range(4):
            assert (await endpoint.next("subscribe"))["topic"] == ["a"]
        await client.publish("t", 1, ack=True)
        assert len(tries) == 3


async def test_what_is_unsubscribed_from_meanwhile_is_not_subscribed_to_again(endpoint: ScriptedEndpoint) -> None:
    async def refuse(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        if command["command"] == "subscribe":
            await endpoint.reply(connection, command, error="peer_unavailable", info="not now")
        elif command["command"] != "unsubscribe":
            await ended("a")(endpoint, connection, command)

    endpoint.script = end_them
    async with client_of(endpoint, listen=True, backoff_max_s=0.001) as client:
        await client.subscribe("a", until="disconnect")
        endpoint.script = refuse
        endpoint.cut()
        for _ in range(3):
            await endpoint.next("subscribe")
        unsubscribing = asyncio.create_task(client.unsubscribe("a"))
        await endpoint.next("unsubscribe")  # and no answer comes
        for number in range(50):
            await client.publish("t", number, ack=True)
        unsubscribing.cancel()
        sent = [endpoint.frames.get_nowait()["command"] for _ in range(endpoint.frames.qsize())]
        assert set(sent) == {"publish"}


async def test_what_ended_before_it_connected_is_told_once_it_is(endpoint: ScriptedEndpoint) -> None:
    told: asyncio.Queue[tuple[list[Subscription], int]] = asyncio.Queue()
    endpoint.script = ended("of an earlier program")
    options: dict[str, Any] = {"on_ended": lambda found, count: told.put_nowait((found, count))}
    async with client_of(endpoint, listen=True, **options), asyncio.timeout(PATIENCE_S):
        assert await told.get() == ([Subscription("of an earlier program")], 1)
    async with client_of(endpoint, **options) as client:
        assert told.empty()
        await client.listen()
        assert told.get_nowait() == ([Subscription("of an earlier program")], 1)


async def test_what_is_refused_now_is_told_with_the_reason(endpoint: ScriptedEndpoint) -> None:
    async def refuse(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        if command["command"] == "subscribe":
            await endpoint.reply(connection, command, error="forbidden", info="not any more")
        else:
            await ended("a")(endpoint, connection, command)

    told: asyncio.Queue[tuple[list[Subscription], int]] = asyncio.Queue()
    endpoint.script = end_them
    options: dict[str, Any] = {"on_ended": lambda found, count: told.put_nowait((found, count))}
    async with client_of(endpoint, listen=True, **options) as client, asyncio.timeout(PATIENCE_S):
        await client.subscribe("a", until="disconnect")
        endpoint.script = refuse
        endpoint.cut()
        assert await told.get() == ([Subscription("a")], 1)
        assert client.error_counts == {"forbidden": 1}


FILTER = {"restaurant": ["Dominos"], "discount": [{"numeric": [">=", 30]}]}


async def test_a_filter_goes_with_its_subscribe_and_its_unsubscribe(endpoint: ScriptedEndpoint) -> None:
    async with client_of(endpoint) as client:
        await client.subscribe("offers", filter=FILTER)
        await client.subscribe(["offers", "more"], replace=True)
        await client.unsubscribe("offers", filter=FILTER)
        frames = [endpoint.frames.get_nowait() for _ in range(endpoint.frames.qsize())]
        for frame in frames:
            del frame["id"], frame["client_id"]
        assert frames == [
            {"command": "subscribe", "filter": FILTER, "topic": ["offers"]},
            {"command": "subscribe", "replace": True, "topic": ["offers", "more"]},
            {"command": "unsubscribe", "filter": FILTER, "topic": ["offers"]},
        ]
        for bad in ({}, {"price": 5}, {"price": [float("nan")]}):
            with pytest.raises(ProtocolError, match="bad_filter"):
                await client.subscribe("t", filter=bad)
            with pytest.raises(ProtocolError, match="bad_filter"):
                await client.unsubscribe("t", filter=bad)
        assert endpoint.frames.empty()


async def test_what_has_ended_with_a_filter_is_subscribed_to_with_it_but_for_what_was_replaced(
    endpoint: ScriptedEndpoint,
) -> None:
    told: asyncio.Queue[tuple[list[Subscription], int]] = asyncio.Queue()
    endpoint.script = end_them
    options: dict[str, Any] = {"on_ended": lambda found, count: told.put_nowait((found, count))}
    async with client_of(endpoint, listen=True, **options) as client:
        await client.subscribe(["a", "b"], until="disconnect", filter=FILTER)
        await client.subscribe("c", until="disconnect")
        await client.subscribe("b", until="disconnect", replace=True)
        await client.subscribe("c", filter=FILTER, replace=True)
        await client.subscribe("d", filter=FILTER, until="disconnect")
        await client.unsubscribe("d", filter=FILTER)
        await endpoint.next("unsubscribe")
        endpoint.script = ended("a", "b", "c", a=FILTER, b=FILTER, d=FILTER)
        endpoint.cut()
        again = [await endpoint.next("subscribe") for _ in range(2)]
        asked = [(frame["topic"], frame["until"], frame.get("filter")) for frame in again]
        assert asked == [(["b"], "disconnect", None), (["a"], "disconnect", FILTER)]
        others = [Subscription("a"), Subscription("c"), Subscription("b", FILTER), Subscription("d", FILTER)]
        async with asyncio.timeout(PATIENCE_S):
            assert await told.get() == (others, 4)


async def test_what_its_callbacks_of_ended_ones_raise_is_not_swallowed(endpoint: ScriptedEndpoint) -> None:
    def on_ended(found: list[Subscription], count: int) -> None:
        raise LookupError("the program's own")

    endpoint.script = ended("x")
    client = client_of(endpoint, on_ended=on_ended)
    await client.connect()
    with pytest.raises(LookupError):
        await client.listen()
    with pytest.raises(LookupError):
        await client.subscribe("t")
    with pytest.raises(LookupError):
        await client.close()


async def test_closing_ends_what_subscribes_again(endpoint: ScriptedEndpoint) -> None:
    async def silent(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        if command["command"] == "listen":
            await ended("a")(endpoint, connection, command)

    endpoint.script = end_them
    client = client_of(endpoint, listen=True)
    async with client:
        await client.subscribe("a", until="disconnect")
        await endpoint.next("subscribe")
        endpoint.script = silent
        endpoint.cut()
        await endpoint.next("subscribe")
    task = client._renewals._task
    assert task is not None
    assert task.done()


# -- notifications


async def test_what_was_read_before_the_end_is_delivered_and_then_the_iteration_ends(
    endpoint: ScriptedEndpoint,
) -> None:
    client = client_of(endpoint, listen=True)
    async with client:
        for number in range(3):
            await endpoint.notify("t" if number else None, number)
        await client.subscribe("after them")  # its reply follows the notifications
    assert [notification async for notification in client] == [(None, 0), ("t", 1), ("t", 2)]


#: The most bytes that the event loops read from a socket at once.
ONE_READ = 1 << 18


async def test_a_full_queue_stops_the_reading_and_loses_nothing(endpoint: ScriptedEndpoint) -> None:
    count = 20_000
    payload = "x" * 1000  # far more in all than the socket buffers hold

    async def flood() -> None:
        for number in range(count):
            await endpoint.notify("t", [number, payload])

    async with client_of(endpoint, listen=True, queue_max=100) as client:
        flooding = asyncio.create_task(flood())
        stalled = await _settled(lambda: endpoint.connections[0].transport.get_write_buffer_size() > 0)
        assert stalled, "the endpoint was never slowed down"
        assert not await _settled(lambda: len(client._queue) > 100 + ONE_READ // 1000 or flooding.done(), turns=2000)
        seen = []
        async for notification in client:
            seen.append(notification.broadcast[0])
            if len(seen) == count:
                break
        await flooding
    assert seen == list(range(count))


async def _settled(condition: Callable[[], bool], turns: int = 100_000) -> bool:
    """Turn the loop until the condition holds. Their number is bounded, not the time."""
    for _ in range(turns):
        if condition():
            return True
        await asyncio.sleep(0)
    return False


async def test_the_callback_takes_the_place_of_the_iterator_and_its_exception_is_not_swallowed(
    endpoint: ScriptedEndpoint,
) -> None:
    got: asyncio.Queue[tuple[str | None, Any]] = asyncio.Queue()

    def callback(key: str | None, payload: Any) -> None:
        if payload == "bad":
            raise LookupError("the program's own")
        got.put_nowait((key, payload))

    client = client_of(endpoint, listen=True, on_notification=callback)
    await client.connect()
    with pytest.raises(RuntimeError):
        aiter(client)
    await endpoint.notify("t", 1)
    assert await got.get() == ("t", 1)
    await endpoint.notify("t", "bad")
    await endpoint.connections[0].wait_closed()
    with pytest.raises(LookupError):
        await client.subscribe("t")
    with pytest.raises(LookupError):
        await client.close()


@pytest.mark.parametrize(
    "failure",
    [
        LookupError("the program's own"),
        BrokenPipeError("its output, no connection"),
        ProtocolError("bad_state", "of something else"),
    ],
)
async def test_a_callback_that_fails_while_the_client_listens_again_ends_it(
    endpoint: ScriptedEndpoint, failure: BaseException
) -> None:
    def callback(key: str | None, payload: Any) -> None:
        raise failure

    async def notify_first(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        await endpoint.notify("t", 1)
        await succeed(endpoint, connection, command)

    client = client_of(endpoint, listen=True, on_notification=callback)
    await client.connect()
    endpoint.script = notify_first
    endpoint.cut()
    with pytest.raises(type(failure)):
        await client.subscribe("t")
    async with asyncio.timeout(PATIENCE_S):
        assert client._task is not None
        await asyncio.wait({client._task})  # without `close`, which would end a client that keeps connecting
    with pytest.raises(type(failure)) as caught:
        await client.close()
    assert caught.value is failure
    assert len(endpoint.connections) == 2


async def test_close_fails_the_commands_under_way_and_is_idempotent(endpoint: ScriptedEndpoint) -> None:
    async def silent(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        return

    endpoint.script = silent
    client = client_of(endpoint)
    await client.connect()
    under_way = asyncio.create_task(client.subscribe("t"))
    await endpoint.next("subscribe")
    await client.close()
    await client.close()
    with pytest.raises(ClosedForGood):
        await under_way
    with pytest.raises(ClosedForGood):
        await client.publish("t", 1)
    with pytest.raises(StopAsyncIteration):
        await anext(client)


@pytest.mark.parametrize("raised", [StopIteration(), asyncio.CancelledError(), GeneratorExit()])
async def test_what_no_future_takes_ends_the_client_as_any_other_of_a_callback_s_exceptions(
    endpoint: ScriptedEndpoint, raised: BaseException
) -> None:
    def on_notification(key: str | None, payload: Any) -> None:
        raise raised

    client = client_of(endpoint, on_notification=on_notification)
    await client.connect()
    await endpoint.notify("t", 1)
    with pytest.raises(RuntimeError, match=f"a callback has raised {type(raised).__name__}"):
        await asyncio.wait_for(client._task or endpoint.next("nothing"), PATIENCE_S)
    with pytest.raises(RuntimeError, match="a callback has raised"):
        await client.subscribe("t")
    with pytest.raises(RuntimeError, match="a callback has raised"):
        await client.close()


async def test_a_refusal_of_many_topics_is_repeated_no_longer_than_of_one(endpoint: ScriptedEndpoint) -> None:
    async def refuse(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        await endpoint.reply(connection, command, error="store_unavailable", info="the disk is full")

    endpoint.script = refuse
    async with client_of(endpoint, timeout_s=0.2) as client, asyncio.timeout(PATIENCE_S):
        with pytest.raises(ProtocolError, match="the disk is full"):
            await client.subscribe([f"{number}" * 100 for number in range(1000)])
