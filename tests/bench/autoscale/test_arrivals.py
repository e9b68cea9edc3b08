"""The endpoint that receives the members' data: its answers, and its notes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from ingeborg.autoscaler.sinks.base import Place, Record, RefusedError
from ingeborg.autoscaler.sinks.http import HttpSink
from ingeborg.bench.autoscale.arrivals import Arrivals, listening


class Endpoint:
    def __init__(self, arrivals: Arrivals, url: str) -> None:
        self.arrivals = arrivals
        self.sink = HttpSink(url)
        self.url = url

    async def post(self, path: str, document: object) -> int:
        async with aiohttp.ClientSession() as session, session.post(f"{self.url}{path}", json=document) as response:
            return response.status


@pytest_asyncio.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    arrivals = Arrivals(2)
    async with listening(arrivals) as port:
        found = Endpoint(arrivals, f"http://127.0.0.1:{port}")
        yield found
        await found.sink.close()


def place(epoch: int) -> Place:
    return Place("orders", "orders", 1, epoch, "m-1")


def records(*offsets: int) -> list[Record]:
    return [Record(offset, 1_000 + offset, None, b"x") for offset in offsets]


async def test_it_is_a_sink_for_this_projects_members(endpoint: Endpoint) -> None:
    assert await endpoint.sink.open(place(1)) == 0
    await endpoint.sink.append(place(1), records(0, 1))
    assert await endpoint.sink.open(place(2)) == 2
    with pytest.raises(RefusedError):
        await endpoint.sink.append(place(1), records(2))
    assert [row["times"] for row in endpoint.arrivals.rows] == [[1_000, 1_001]]
    assert (endpoint.arrivals.records, endpoint.arrivals.refused) == (2, 1)


async def test_a_record_counts_when_it_comes_for_the_first_time(endpoint: Endpoint) -> None:
    assert await endpoint.post("/batch", {"member": "a", "rows": [[0, [[0, 5], [1, 6]]], [1, [[0, 7]]]]}) == 200
    assert await endpoint.post("/batch", {"member": "b", "rows": [[0, [[1, 6], [2, 9]]]]}) == 200
    assert [(row["member"], row["partition"], row["times"]) for row in endpoint.arrivals.rows] == [
        ("a", 0, [5, 6]),
        ("a", 1, [7]),
        ("b", 0, [9]),
    ]
    assert (endpoint.arrivals.records, endpoint.arrivals.again, endpoint.arrivals.next) == (4, 1, [3, 1])


async def test_what_never_came_is_noted_as_waiting_and_not_again_when_it_does(endpoint: Endpoint) -> None:
    endpoint.arrivals.waiting(2_000, 0, [1_500])
    endpoint.arrivals.waiting(2_000, 1, [])
    assert await endpoint.post("/batch", {"member": "a", "rows": [[0, [[0, 1_500]]]]}) == 200
    [row] = endpoint.arrivals.rows
    assert (row["waiting"], row["at"], row["times"]) == (True, 2_000, [1_500])


async def test_members_say_how_many_partitions_they_have(endpoint: Endpoint) -> None:
    assert await endpoint.post("/owned", {"member": "a", "partitions": 2}) == 200
    assert endpoint.arrivals.owned == {"a": 2}
