"""One endpoint through real sockets: the commands, their replies and their order. SPEC sections 1 to 5."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import orjson
import pytest

from ingeborg.broker.core.effects import Act, Gone, Joined
from ingeborg.broker.core.limits import Limits
from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.protocol.client import Client
from tests.conftest import Logged

from ..measure_stall import measure
from ..running import PATIENCE_S, Gated, Running, plain, raw, raw_frame, round_trip, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("transport", "logged")]

SUCCESS = {"result": "success"}

# The frames of the thesis, section 4.3, as printed, with missing commas added and trailing ones removed.
LISTING_4_1 = '{\n  "command": "listen",\n  "client_id": 1\n}'
LISTING_4_2 = '{\n  "command": "subscribe",\n  "client_id": 1,\n  "topic": "Some topic"\n}'
LISTING_4_3 = '{\n  "command": "subscribe",\n  "client_id": 1,\n  "topic": ["Topic 1", "Topic 2"]\n}'
LISTING_4_4 = (
    '{\n  "command": "publish",\n  "client_id": 1,\n  "topic": "Some topic",\n  "payload": "Payload data",\n'
    '  "timestamp": 1431104020907\n}'
)
LISTING_4_6 = {"error": "bad_state", "message": "Error", "info": "Key 'topic' not specified"}
LISTING_4_7 = {"key": "Some topic", "broadcast": "Payload data"}


def subscribe(client: str, topic: str | list[str], **more: object) -> dict[str, object]:
    return {"command": "subscribe", "client_id": client, "topic": topic, **more}


def listen(client: str, **more: object) -> dict[str, object]:
    return {"command": "listen", "client_id": client, **more}


def publish(topic: str, payload: object, **more: object) -> dict[str, object]:
    return {"command": "publish", "client_id": "publisher", "topic": topic, "payload": payload, **more}


# -- The thesis's listings


@pytest.mark.parametrize("coded", [str, str.encode], ids=["text", "binary"])
async def test_the_frames_of_the_thesis_get_the_answers_listed(
    tmp_path: Path, coded: Callable[[str], str | bytes]
) -> None:
    async with running(tmp_path) as endpoint, plain(endpoint.url) as subscriber, plain(endpoint.url) as publisher:
        assert await subscriber.ask(coded(LISTING_4_1)) == SUCCESS
        assert await subscriber.ask(coded(LISTING_4_2)) == SUCCESS
        assert await subscriber.ask(coded(LISTING_4_3)) == SUCCESS
        await publisher.send(coded(LISTING_4_4))
        assert await subscriber.hear() == LISTING_4_7
        # A publish gets no reply: the next message to its sender answers something else.
        assert await publisher.ask(coded('{"command": "subscribe", "client_id": 2}')) == LISTING_4_6
        await publisher.send(coded(LISTING_4_4.replace("Some topic", "Topic 2")))
        assert await subscriber.hear() == {"key": "Topic 2", "broadcast": "Payload data"}


# -- Commands


async def test_ids_are_echoed_and_replies_leave_in_the_order_of_the_commands(shared: Running, name: str) -> None:
    async with plain(shared.url) as connection:
        await connection.send(
            subscribe(name, "t", id=1),
            publish("nobody's", 1, ack=True, id="two"),
            {"command": "nonsense", "client_id": name, "id": 3},
            listen(name),
            {"command": "unsubscribe", "client_id": name, "topic": ["t"], "id": 5},
            {"command": "unlisten", "client_id": name, "id": 6},
        )
        assert await connection.hear() == {**SUCCESS, "id": 1}
        assert await connection.hear() == {**SUCCESS, "duplicate": False, "id": "two"}
        refusal = await connection.hear()
        assert (refusal["error"], refusal["id"]) == ("bad_command", 3)
        assert await connection.hear() == SUCCESS
        assert await connection.hear() == {**SUCCESS, "id": 5}
        assert await connection.hear() == {**SUCCESS, "id": 6}


async def test_a_thousand_pipelined_commands_are_answered_in_order(shared: Running, name: str) -> None:
    async with plain(shared.url) as connection:
        for number in range(1000):
            await connection.send(
                [
                    subscribe(name, f"{name}-{number}", id=number),
                    {"command": "unsubscribe", "client_id": name, "topic": f"{name}-{number - 1}", "id": number},
                    publish(f"{name}-{number}", number, ack=True, id=number),
                    {"command": "subscriptions", "client_id": name, "limit": 1, "id": number},
                    {"command": "?", "client_id": name, "id": number},
                ][number % 5]
            )
        assert [(await connection.hear())["id"] for _ in range(1000)] == list(range(1000))


async def test_pipelined_commands_take_effect_in_order(shared: Running, name: str) -> None:
    async with plain(shared.url) as connection:
        await connection.send(
            listen(name),
            publish(name, "too early"),
            subscribe(name, name),
            publish(name, "in time"),
            {"command": "unsubscribe", "client_id": name, "topic": name},
            publish(name, "too late"),
            subscribe(name, name, id="end"),
        )
        heard = [await connection.hear() for _ in range(5)]
        assert heard == [SUCCESS, SUCCESS, {"key": name, "broadcast": "in time"}, SUCCESS, {**SUCCESS, "id": "end"}]


async def test_one_publishers_messages_to_one_topic_arrive_in_order(shared: Running, name: str) -> None:
    async with plain(shared.url) as subscriber, plain(shared.url) as publisher:
        await subscriber.ask(listen(name))
        await subscriber.ask(subscribe(name, name))
        for number in range(500):
            await publisher.send(publish(name, number))
        assert [(await subscriber.hear())["broadcast"] for _ in range(500)] == list(range(500))


async def test_several_clients_share_one_connection(shared: Running, name: str) -> None:
    first, second = f"{name}-1", f"{name}-2"
    async with plain(shared.url) as gateway, plain(shared.url) as elsewhere:
        for client in (first, second):
            await gateway.ask(listen(client))
            await gateway.ask(subscribe(client, client))
        await gateway.send(publish(first, 1), publish(second, 2))
        assert await gateway.hear() == {"key": first, "broadcast": 1}
        assert await gateway.hear() == {"key": second, "broadcast": 2}

        # One client moves: the gateway keeps its connection, and the other client.
        assert await elsewhere.ask(listen(first)) == SUCCESS
        await gateway.send(publish(first, 3), publish(second, 4))
        assert await elsewhere.hear() == {"key": first, "broadcast": 3}
        assert await gateway.hear() == {"key": second, "broadcast": 4}

        # The last one moves: nobody is left at the old connection, which learns not to come back.
        assert await elsewhere.ask(listen(second)) == SUCCESS
        code, _ = await gateway.closed()
        assert code == 4001


async def test_an_integer_and_its_digits_are_one_client(shared: Running, name: str) -> None:
    async with plain(shared.url) as connection:
        await connection.send(
            {"command": "listen", "client_id": 70007}, {"command": "subscribe", "client_id": "70007", "topic": name}
        )
        assert [await connection.hear() for _ in range(2)] == [SUCCESS, SUCCESS]
        await connection.send(publish(name, None))
        assert await connection.hear() == {"key": name, "broadcast": None}


async def test_who_does_not_listen_hears_nothing_and_keeps_the_subscription(shared: Running, name: str) -> None:
    async with plain(shared.url) as connection:
        await connection.ask(subscribe(name, name))
        assert await connection.ask(publish(name, 1, ack=True)) == {**SUCCESS, "duplicate": False}
        await connection.ask(listen(name))
        await connection.send(publish(name, 2))
        assert await connection.hear() == {"key": name, "broadcast": 2}
        await connection.ask({"command": "unlisten", "client_id": name})
        assert await connection.ask(publish(name, 3, ack=True)) == {**SUCCESS, "duplicate": False}
    async with plain(shared.url) as again:
        await again.ask(listen(name))
        await again.send(publish(name, 4))
        assert await again.hear() == {"key": name, "broadcast": 4}


async def test_a_broadcast_reaches_every_listening_client(tmp_path: Path) -> None:
    async with running(tmp_path) as endpoint, plain(endpoint.url) as one, plain(endpoint.url) as two:
        await one.ask(listen("1"))
        await two.ask(listen("2"))
        broadcast = {"command": "broadcast", "client_id": "0", "payload": {"to": "all"}, "ack": True}
        async with plain(endpoint.url) as sender:
            assert await sender.ask(broadcast) == {**SUCCESS, "duplicate": False}
            assert await sender.ask(broadcast) == {**SUCCESS, "duplicate": True}
        for connection in (one, two):
            assert await connection.hear() == {"key": None, "broadcast": {"to": "all"}}


async def test_duplicates_are_dropped_whoever_sends_them(shared: Running, name: str) -> None:
    async with plain(shared.url) as subscriber, plain(shared.url) as one, plain(shared.url) as two:
        await subscriber.ask(listen(name))
        await subscriber.ask(subscribe(name, name))
        assert await one.ask(publish(name, {"a": 1, "b": 2}, ack=True)) == {**SUCCESS, "duplicate": False}
        # The same JSON value: key order, spaces, timestamp and client do not count.
        spelled = '{"command":"publish","client_id":9,"topic":"%s","payload":{ "b":2,"a":1 },"timestamp":5,"ack":true}'
        assert await two.ask(spelled % name) == {**SUCCESS, "duplicate": True}
        assert await two.ask(publish(name, {"a": 1, "b": 2}, ack=True, dedup=False)) == {**SUCCESS, "duplicate": False}
        assert await one.ask(publish(name, "end", ack=True)) == {**SUCCESS, "duplicate": False}
        heard = [(await subscriber.hear())["broadcast"] for _ in range(3)]
        assert heard == [{"a": 1, "b": 2}, {"a": 1, "b": 2}, "end"]


@pytest.mark.over_tcp
async def test_after_the_time_to_live_a_payload_is_new_again(tmp_path: Path) -> None:
    async with running(tmp_path, dedup_ttl_s=0.05) as endpoint, plain(endpoint.url) as connection:
        assert (await connection.ask(publish("t", 1, ack=True)))["duplicate"] is False
        async with asyncio.timeout(10):
            while True:
                await asyncio.sleep(0.2)  # each drop extends it: repeating without a pause would never end
                if not (await connection.ask(publish("t", 1, ack=True)))["duplicate"]:
                    break


@pytest.mark.parametrize(
    "payload",
    [None, True, 0, -(2**63), 2**64 - 1, 1e300, 0.1, "", "ä\u2028\U0001f600\0", [], {}, [1, [2, {"": None}]]],
    ids=repr,
)
async def test_payloads_arrive_as_the_same_value(shared: Running, name: str, payload: object) -> None:
    topic = orjson.dumps([name, payload]).decode()
    async with plain(shared.url) as connection:
        await connection.ask(listen(topic[:50]))
        await connection.ask(subscribe(topic[:50], topic))
        await connection.send(publish(topic, payload))
        heard = await connection.hear()
        assert heard == {"key": topic, "broadcast": payload}
        assert type(heard["broadcast"]) is type(payload)


async def test_subscriptions_come_in_pages(shared: Running, name: str) -> None:
    topics = {f"{name} {number}" for number in range(25)}
    async with plain(shared.url) as connection:
        await connection.ask(subscribe(name, sorted(topics)))
        ask = {"command": "subscriptions", "client_id": name, "limit": 10}
        pages = [await connection.ask(ask)]
        while pages[-1]["cursor"] is not None:
            pages.append(await connection.ask({**ask, "cursor": pages[-1]["cursor"]}))
        assert [len(page["topic"]) for page in pages] == [10, 10, 5]
        found = [topic for page in pages for topic in page["topic"]]
        assert set(found) == topics
        refusal = await connection.ask({**ask, "cursor": "of another store", "id": 1})
        assert (refusal["error"], refusal["id"]) == ("bad_state", 1)
        assert "'cursor'" in refusal["info"]
        assert await connection.ask({"command": "subscriptions", "client_id": "nobody"}) == {
            **SUCCESS,
            "topic": [],
            "cursor": None,
        }


@pytest.mark.over_tcp
async def test_subscriptions_outlive_the_endpoint(tmp_path: Path) -> None:
    async with running(tmp_path) as endpoint, plain(endpoint.url) as connection:
        await connection.ask(subscribe("c", ["t1", "t2"]))
        await connection.ask(listen("c"))
    async with running(tmp_path) as endpoint, plain(endpoint.url) as connection:
        await connection.ask(listen("c"))
        await connection.send(publish("t2", "hello again"))
        assert await connection.hear() == {"key": "t2", "broadcast": "hello again"}


async def test_lookup_routing_gives_the_same_answers(tmp_path: Path) -> None:
    async with running(tmp_path, routing="lookup") as endpoint, plain(endpoint.url) as connection:
        await connection.ask(listen("c"))
        await connection.ask(subscribe("c", "t"))
        assert await connection.ask(publish("t", 1, ack=True, id=1)) in (
            {"key": "t", "broadcast": 1},
            {**SUCCESS, "duplicate": False, "id": 1},
        )
        await connection.hear()
        assert await connection.ask(publish("t", 1, ack=True)) == {**SUCCESS, "duplicate": True}


# -- Connections


async def test_messages_are_compressed_where_both_sides_want_it(tmp_path: Path) -> None:
    async with running(tmp_path, compression=True) as endpoint:
        url = endpoint.url
        async with plain(url, compression="deflate") as squeezed, plain(url) as as_it_is:
            assert squeezed.socket.response is not None
            assert "permessage-deflate" in squeezed.socket.response.headers["Sec-WebSocket-Extensions"]
            for number, connection in enumerate((squeezed, as_it_is)):
                await connection.ask(listen(str(number)))
                await connection.ask(subscribe(str(number), "t"))
            await squeezed.send(publish("t", "a" * 50_000))
            for connection in (squeezed, as_it_is):
                assert await connection.hear() == {"key": "t", "broadcast": "a" * 50_000}
    async with running(tmp_path) as endpoint, plain(endpoint.url, compression="deflate") as connection:
        assert connection.socket.response is not None
        assert "Sec-WebSocket-Extensions" not in connection.socket.response.headers


async def test_any_path_is_a_websocket_endpoint(shared: Running) -> None:
    for path in ("", "?query", "some/path", "metricsX", "_peer/x", "ünïcode"):
        await round_trip(shared.url + path)


async def test_a_message_may_come_in_fragments(shared: Running, name: str) -> None:
    command = orjson.dumps(listen(f"{name}-ü", id=1))
    async with raw(shared.url) as connection:
        # Cut within the two bytes of the ü; a ping may come between.
        cut = command.index("ü".encode()) + 1
        pieces = [raw_frame(0x01, command[:cut]), raw_frame(0x00), raw_frame(0x80, command[cut:])]
        await connection.upgrade()
        connection.writer.write(pieces[0] + raw_frame(0x89, b"ping") + pieces[1] + pieces[2])
        assert await connection.frame() == (0x8A, b"ping")
        first, reply = await connection.frame()
        assert (first, orjson.loads(reply)) == (0x81, {**SUCCESS, "id": 1})


async def test_what_came_before_a_close_in_the_same_packet_is_done(shared: Running, name: str) -> None:
    async with plain(shared.url) as subscriber:
        await subscriber.ask(listen(name))
        await subscriber.ask(subscribe(name, name))
        for end in (raw_frame(0x88, b"\x03\xe8"), raw_frame(0x83, b"no such opcode")):
            async with raw(shared.url) as connection:
                await connection.upgrade()
                connection.writer.write(raw_frame(0x81, orjson.dumps(publish(name, repr(end)))) + end)
                assert await subscriber.hear() == {"key": name, "broadcast": repr(end)}


async def test_a_closed_connection_no_longer_listens(tmp_path: Path) -> None:
    async with running(tmp_path) as endpoint:
        async with plain(endpoint.url) as connection:
            await connection.ask(listen("c"))
            assert (await endpoint.metrics())["ingeborg_clients"] == 1
        await endpoint.until(lambda metrics: not metrics["ingeborg_connections"] and not metrics["ingeborg_clients"])


async def test_an_orderly_end_finishes_what_is_under_way_and_says_goodbye(tmp_path: Path) -> None:
    store = Gated(EmbeddedStore(tmp_path))
    async with running(tmp_path, store=store) as endpoint:
        server = endpoint.server
        async with plain(endpoint.url) as subscriber, plain(endpoint.url) as publisher:
            await subscriber.ask(listen("c"))
            await subscriber.ask(subscribe("c", "t"))
            await round_trip(endpoint.url)
            store.shut()
            await publisher.send(publish("t", "last words", ack=True))
            await publisher.send(publish("never subscribed to", "needs the store", ack=True))
            await endpoint.until(lambda metrics: metrics["ingeborg_publishes_in_flight"] == 2)
            ending = asyncio.create_task(server.stop())
            await asyncio.sleep(0)  # it has begun
            assert server.status.leaving
            store.reopen()
            assert await subscriber.hear() == {"key": "t", "broadcast": "last words"}
            for _ in range(2):
                assert await publisher.hear() == {**SUCCESS, "duplicate": False}
            assert (await subscriber.closed())[0] == 1001
            assert (await publisher.closed())[0] == 1001
            async with asyncio.timeout(10):
                await ending


@pytest.mark.over_tcp
async def test_every_act_of_the_core_is_carried_out_by_somebody(tmp_path: Path) -> None:
    async with running(tmp_path) as endpoint:
        assert set(endpoint.server.driver._acts) == set(get_args(Act))


@pytest.mark.over_tcp
async def test_an_act_that_fails_takes_no_other_with_it(tmp_path: Path, logged: Logged) -> None:
    logged.expect("the handling of a Gone failed")
    async with running(tmp_path) as endpoint:
        server = endpoint.server
        carried_out: list[Joined] = []

        def fails(act: Gone) -> None:
            raise RuntimeError("as if by a fault of ours")

        server.driver.carry_out(Gone, fails)
        server.driver.carry_out(Joined, carried_out.append)
        server.router._desk.emit(Gone(server.router.me))
        server.router._desk.emit(Joined())
        server.driver._end_turn()
        assert carried_out == [Joined()]
        assert server.router.counters.counts["turns_failed"] == 1


@pytest.mark.over_tcp
@pytest.mark.parametrize("at", ["a slice of work", "the end of a turn", "the answer to subscribers", "an event"])
async def test_a_fault_of_the_core_ends_the_endpoint(tmp_path: Path, logged: Logged, at: str) -> None:
    logged.expect(f"the core failed at {at}, and may hold half a change")
    broken = asyncio.Event()

    def fails() -> Iterator[bool]:
        raise RuntimeError("as if by a fault of ours")
        yield

    async def nobody_knows(topics: list[str]) -> None:
        """The store fails to answer, either later,"""

    def anybody(topics: list[str]) -> int:
        """or at once."""
        return len(topics)

    async with running(tmp_path, on_broken=broken.set) as endpoint:
        server = endpoint.server
        if at == "a slice of work":
            server.router._desk.job(fails())
        elif at == "an event":
            asyncio.get_running_loop().call_soon(server.router.frame, None, b"{}", 0.0)  # type: ignore[arg-type]
        else:
            server.store.subscribers = nobody_knows  # type: ignore[assignment, method-assign]
            server.driver._now = {"subscribers": anybody} if at == "the end of a turn" else {}
            async with plain(endpoint.url) as client:
                await client.send('{"command":"publish","client_id":"a","topic":"t","payload":1}')
                async with asyncio.timeout(PATIENCE_S):
                    await broken.wait()
        server.driver.turn()
        async with asyncio.timeout(PATIENCE_S):
            await broken.wait()
        server.status.leaving = True  # so that no orderly end follows
        await server.driver.stop()
        await server.store.close()


# -- One large command, and all other clients


@pytest.mark.over_tcp
async def test_a_hundred_thousand_topics_in_one_command_keep_nobody_waiting(tmp_path: Path) -> None:
    gc.freeze()  # as `serve` does: the collector then ignores the suite's own objects meanwhile
    try:
        async with running(tmp_path) as endpoint:
            measured = await measure(endpoint.url, topics=100_000, clock=time.thread_time)
    finally:
        gc.unfreeze()
    print(measured.text())
    assert measured.round_trips > 20
    # In CPU time of this thread, which does all the work: a busy machine does not distort it.
    # (The requirement is 100 ms on an idle one: ``python -m tests.broker.measure_stall``.)
    assert measured.worst_s < 0.3 * measured.took_s


async def test_a_connection_with_much_under_way_is_read_more_slowly(tmp_path: Path) -> None:
    limits = Limits(inflight_messages=10)
    async with running(tmp_path, limits=limits) as endpoint, plain(endpoint.url) as connection:
        await connection.ask(listen("c"))
        await connection.ask(subscribe("c", [f"t{number}" for number in range(200)]))
        for number in range(200):
            await connection.send(publish(f"t{number}", number, ack=True))
        heard = [await connection.hear() for _ in range(400)]
        assert sorted(message["broadcast"] for message in heard if "key" in message) == list(range(200))
        assert heard.count({**SUCCESS, "duplicate": False}) == 200


async def test_the_client_library_works_against_a_real_endpoint(shared: Running, name: str) -> None:
    async with Client(shared.url, name) as subscriber, Client(shared.url, f"{name}-publisher") as publisher:
        await subscriber.subscribe([name, f"{name} 2"])
        await subscriber.listen()
        assert await publisher.publish(name, {"n": 1}, ack=True) is False
        assert await publisher.publish(name, {"n": 1}, ack=True) is True
        async with asyncio.timeout(10):
            notification = await anext(aiter(subscriber))
        assert (notification.key, notification.broadcast) == (name, {"n": 1})
        assert {each.topic async for each in subscriber.subscriptions()} == {name, f"{name} 2"}
