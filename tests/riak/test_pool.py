"""The choice of a node for a request, and the handling of failures, on nodes that are plain sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from ingeborg.broker.store.base import StoreMisconfigured, StoreUnavailable
from ingeborg.broker.store.riak import riak_pb2 as pb
from ingeborg.broker.store.riak import wire
from ingeborg.broker.store.riak.connecting import Plain
from ingeborg.broker.store.riak.counters import zeroed
from ingeborg.broker.store.riak.node import BACKOFF_FIRST_S, BACKOFF_MAX_S, Node
from ingeborg.broker.store.riak.pool import Pool

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Listen = Callable[[Serve], Awaitable[tuple[str, int]]]
PONG = wire.frame(wire.SERVER_INFO_ANSWER, pb.RpbGetServerInfoResp(node=b"n").SerializeToString())


@pytest.fixture
async def listen() -> AsyncIterator[Listen]:
    """Start a node with the given behaviour; return its address."""
    async with AsyncExitStack() as servers:
        tasks: set[asyncio.Task[None]] = set()

        async def start(serve: Serve) -> tuple[str, int]:
            async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.current_task()
                assert task is not None
                tasks.add(task)
                try:
                    await serve(reader, writer)
                except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                    pass
                finally:
                    writer.transport.abort()

            server = await asyncio.start_server(accept, "127.0.0.1", 0)
            servers.callback(server.close)
            host, port = server.sockets[0].getsockname()
            return host, port

        yield start
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def one_frame(reader: asyncio.StreamReader) -> int:
    code, length = wire.frame_length(await reader.readexactly(wire.HEADER.size))
    await reader.readexactly(length)
    return code


async def pong(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        await one_frame(reader)
        writer.write(PONG)


def answering(answer: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await one_frame(reader)
            writer.write(answer)

    return serve


def pool_of(
    *addresses: tuple[str, int], connections: int = 2, timeout_s: float = 20.0, attempt_timeout_s: float | None = None
) -> tuple[Pool, dict[str, int]]:
    counters = zeroed()
    attempt_timeout_s = attempt_timeout_s or timeout_s / 3
    pool = Pool(
        addresses, counters, timeout_s=timeout_s, attempt_timeout_s=attempt_timeout_s, connections_per_node=connections
    )
    return pool, counters


async def ask(pool: Pool, final: Callable[[wire.Refusal], bool] | None = None) -> bytes:
    answer = await pool.request(
        wire.SERVER_INFO_REQUEST, b"", wire.SERVER_INFO_ANSWER, pb.RpbGetServerInfoResp, final=final
    )
    return answer.node


def refusing(text: str) -> Serve:
    return answering(wire.frame(wire.ERROR, pb.RpbErrorResp(errmsg=text.encode(), errcode=0).SerializeToString()))


async def test_connections_are_used_again_and_limited(listen: Listen) -> None:
    held: list[asyncio.StreamWriter] = []
    full = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await one_frame(reader)
            held.append(writer)
            if len(held) == 3:
                full.set()
            await full.wait()
            writer.write(PONG)

    pool, counters = pool_of(await listen(serve), connections=3, timeout_s=5.0)
    assert await asyncio.gather(*(ask(pool) for _ in range(30))) == [b"n"] * 30
    assert counters["connections_opened"] == 3
    assert len(set(held)) == 3
    pool.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\xff\xff\xff\xff\x08",  # a frame of 4 GB
        b"\x00\x00\x00\x00\x08",  # a frame without a code
        wire.frame(wire.GET_ANSWER),  # the answer to something else
        wire.frame(wire.SERVER_INFO_ANSWER, b"\xff\xff\xff"),  # a body that is not protobuf
        PONG[:-1],  # cut short
    ],
    ids=["silence", "huge", "empty", "other", "garbage", "short"],
)
async def test_what_is_no_answer_is_asked_of_another_node(listen: Listen, answer: bytes) -> None:
    bad = await listen(answering(answer))
    pool, counters = pool_of(bad, await listen(pong), attempt_timeout_s=0.3)
    for _ in range(4):
        assert await ask(pool) == b"n"
    assert counters["retries"] >= 1
    assert counters["nodes_set_aside"] >= 1
    assert counters["unavailable"] == 0
    pool.close()


async def test_a_node_that_hung_up_between_requests_costs_nothing(
    listen: Listen,
) -> None:
    hung_up = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await one_frame(reader)
        writer.write(PONG)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        hung_up.set()

    pool, counters = pool_of(await listen(serve))
    for number in range(1, 4):
        assert await ask(pool) == b"n"
        await hung_up.wait()
        hung_up.clear()
        await asyncio.sleep(0)  # the reader has the end of the stream by the next turn of the loop
        assert counters["connections_opened"] == number
    assert counters["retries"] <= 1
    pool.close()


async def test_a_refusal_by_every_node_is_unavailable_with_its_words(
    listen: Listen,
) -> None:
    pool, counters = pool_of(await listen(refusing("overload")), await listen(refusing("overload")), timeout_s=5.0)
    with pytest.raises(StoreUnavailable, match="overload"):
        await ask(pool)
    assert counters["overloads"] == counters["refusals"] == 6  # three rounds over two nodes
    assert counters["nodes_set_aside"] == 0  # they answer; nothing is wrong with them
    pool.close()


async def test_of_many_at_once_each_asks_each_node_once_before_it_believes_them(
    listen: Listen,
) -> None:
    """Requests wait for a connection if the other node's are busy, and do not ask the same node again."""
    nodes = [await listen(refusing("{pr_val_unsatisfied,2,1}")) for _ in range(2)]
    pool, counters = pool_of(*nodes, connections=2)
    answers = await asyncio.gather(*(ask(pool, final=lambda _: True) for _ in range(100)), return_exceptions=True)
    assert {type(answer) for answer in answers} == {wire.Refusal}
    assert counters["refusals"] == 200
    assert not pool._waiting
    pool.close()


async def test_one_that_waits_for_a_node_that_is_set_aside_does_without(
    listen: Listen,
) -> None:
    pool, counters = pool_of(
        await listen(refusing("{pr_val_unsatisfied,2,1}")),
        await listen(answering(b"")),
        connections=1,
        attempt_timeout_s=1.0,
    )
    answers = await asyncio.gather(*(ask(pool, final=lambda _: True) for _ in range(20)), return_exceptions=True)
    assert {type(answer) for answer in answers} == {wire.Refusal}
    assert counters["timeouts"] < 10  # one that noticed it, and some that probed
    pool.close()


async def test_a_node_that_is_still_silent_when_it_is_probed_has_no_say(
    listen: Listen,
) -> None:
    """Otherwise there would be two time-outs, and the driver would not believe the answers."""
    pool, counters = pool_of(
        await listen(refusing("{pr_val_unsatisfied,2,1}")), await listen(answering(b"")), attempt_timeout_s=1.0
    )
    silent = pool.nodes[1]
    for refusals in (2, 1):  # at first it is unknown whether the silent node is alive
        before = counters["refusals"]
        with pytest.raises(wire.Refusal):
            await ask(pool, final=lambda _: True)
        assert counters["refusals"] - before == refusals
        while not silent.usable(asyncio.get_running_loop().time()):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    pool.close()


@pytest.mark.parametrize("text", ["no_type", 'Invalid bucket type: <<"x">>', "{n_val_violation,1}"])
async def test_what_no_node_will_ever_do_is_not_tried_again(listen: Listen, text: str) -> None:
    pool, counters = pool_of(await listen(refusing(text)))
    with pytest.raises(StoreMisconfigured):
        await ask(pool)
    assert counters["retries"] == 0
    pool.close()


async def test_everybody_in_line_is_served_at_once_when_the_node_recovers(
    listen: Listen,
) -> None:
    well, three = asyncio.Event(), asyncio.Event()
    first, together = True, 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal first, together
        while True:
            await one_frame(reader)
            await well.wait()
            if reader.at_eof():
                return  # the request has given up
            if first:  # it shows that the node works; then three have to come together
                first = False
            else:
                together += 1
                if together >= 3:
                    three.set()
                await three.wait()
                together -= 1
            writer.write(PONG)

    pool, counters = pool_of(await listen(serve), connections=3, timeout_s=60.0, attempt_timeout_s=1.0)
    line = [asyncio.create_task(ask(pool)) for _ in range(50)]
    async with asyncio.timeout(30):
        while not counters["nodes_set_aside"]:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)
    well.set()
    assert await asyncio.gather(*line) == [b"n"] * 50
    pool.close()


async def test_one_that_waits_is_served_before_one_that_asks_again_and_again(listen: Listen) -> None:
    pool, _ = pool_of(await listen(pong), connections=1)
    served: list[str] = []

    async def ask_again_and_again() -> None:
        while "patient" not in served and len(served) < 100:
            await ask(pool)
            served.append("busy")

    busy = asyncio.create_task(ask_again_and_again())
    await asyncio.sleep(0)  # it has the connection
    await ask(pool)
    served.append("patient")
    await busy
    assert served.count("busy") <= 2
    pool.close()


async def test_closing_ends_what_is_under_way_and_what_waits(
    listen: Listen,
) -> None:
    pool, _ = pool_of(await listen(answering(b"")), connections=1, timeout_s=30.0)
    under_way = [asyncio.create_task(ask(pool)) for _ in range(3)]
    await asyncio.sleep(0.05)
    pool.close()
    async with asyncio.timeout(20):  # sooner than any time-out of the pool
        for outcome in await asyncio.gather(*under_way, return_exceptions=True):
            assert isinstance(outcome, StoreUnavailable)


@pytest.mark.parametrize("when", ["while it waits", "as its turn comes"])
async def test_one_who_gives_up_does_not_take_the_others_turn(listen: Listen, when: str) -> None:
    asked, release = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await one_frame(reader)
            asked.set()
            await release.wait()
            writer.write(PONG)

    pool, _ = pool_of(await listen(serve), connections=1, timeout_s=30.0)
    first, impatient, patient = (asyncio.create_task(ask(pool)) for _ in range(3))
    await asked.wait()  # by the first; the others are in line
    if when == "while it waits":
        impatient.cancel()
    else:
        first.add_done_callback(lambda _: impatient.cancel())
    release.set()
    async with asyncio.timeout(10):
        assert await first == await patient == b"n"
    assert impatient.cancelled()
    pool.close()


def node_of_none() -> Node:
    return Node("h", 1, Plain(1.0), zeroed(), 1)


def test_a_node_is_set_aside_for_longer_each_time_but_never_for_long() -> None:
    node, now, waits = node_of_none(), 0.0, []
    for _ in range(12):
        assert node.failed(now)
        assert not node.failed(now)  # concurrent failures count once
        waits.append(node.retry_at - now)
        assert not node.usable(now)
        now = node.retry_at
        assert node.usable(now)
    assert waits[0] == pytest.approx(BACKOFF_FIRST_S)
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(BACKOFF_MAX_S)


def test_a_node_set_aside_is_tried_by_one_request_at_a_time() -> None:
    node = node_of_none()
    node.failed(0.0)
    node.probing = True
    assert not node.usable(100.0)
