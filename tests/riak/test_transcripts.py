"""The double answers as a real Riak 3.2.1 answered: every recorded request, in order, against a fresh double.

The recordings are outside the project (in ``../shared/riak``, next to the checkout). The tests compare the structure:
message codes, present fields, values, the number of siblings, the words of errors. Vector clocks, vtags and times are
opaque. In a request, the tests replace a recorded vector clock with the double's own from the same place of the same
answer.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests import wants

from .double import RiakDouble
from .double.messages import CODES, Message, decode, encode

RECORDINGS = Path(__file__).parents[2].parent / "shared" / "riak"

OUT_OF_SCOPE = {
    "index-eq": "secondary indexes: the driver keeps its own index, because LevelDB only has them",
    "index-keys-range": "secondary indexes",
    "set-add": "Riak data types: the driver's sets are plain objects, merged by the driver",
    "set-add-body": "Riak data types",
    "set-fetch": "Riak data types",
    "set-remove-no-context": "Riak data types",
    "set-remove": "Riak data types",
    "set-fetch-2": "Riak data types",
    "set-fetch-notfound": "Riak data types",
    "counter": "Riak data types",
    "counter-fetch": "Riak data types",
    "dt-on-kv-type": "Riak data types",
    "kv-get-on-dt-type": "the bytes of a Riak data type",
}
"""Requests that the double must refuse, naming what it does not support, instead of answering wrongly."""

OPAQUE_NUMBERS = ("last_mod", "last_mod_usecs")


def recorded(name: str) -> list[dict[str, Any]]:
    path = RECORDINGS / name
    if not path.exists():
        wants.skip("recordings of a real Riak", "not beside this checkout (../shared/riak)")
    with path.open() as lines:
        return [json.loads(line) for line in lines]


class Client:
    """One connection that sends bytes as they are."""

    def __init__(self) -> None:
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, data: bytes, address: tuple[str, int], pieces: int = 1) -> None:
        if self.streams is None:
            self.streams = await asyncio.open_connection(*address)
        step = max(1, len(data) // pieces)
        for start in range(0, len(data), step):
            self.streams[1].write(data[start : start + step])
            await self.streams[1].drain()

    async def answer(self) -> tuple[int, bytes] | None:
        """Return the next frame; ``None`` if the node has closed the connection."""
        assert self.streams is not None
        try:
            length, code = struct.unpack(">IB", await self.streams[0].readexactly(5))
            return code, await self.streams[0].readexactly(length - 1)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.close()
            return None

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = Client()
    yield client
    client.close()


def frames(request: dict[str, Any], clocks: dict[bytes, bytes]) -> bytes:
    """Return the recorded request for the double, with the double's own vector clocks."""
    body = bytes.fromhex(request["hex"])
    if request["code"] is None:
        return body  # several frames in one write
    name = CODES.get(request["code"])
    if name in ("GetReq", "PutReq", "DelReq") and body != b"\xff" * 4:
        message = decode(name, body)
        for field in ("vclock", "if_modified"):
            if field in message:
                message[field] = clocks[message[field]]
        body = encode(name, message)
    return struct.pack(">IB", 1 + len(body), request["code"]) + body


def structure(code: int, body: bytes) -> Message:
    """Return an answer without the parts that differ from run to run. Siblings have no order."""
    message = decode(CODES[code], body)
    if "vclock" in message:
        message["vclock"] = "opaque"
    if "node" in message:
        message["node"] = "named by its operator"
    if CODES[code] == "PutResp" and "key" in message:
        assert 20 < len(message["key"]) < 40
        message["key"] = "made by the server"
    for content in message.get("content", []):
        assert 15 < len(content["vtag"]) < 30
        content["vtag"] = "opaque"
        content.update({field: "opaque" for field in OPAQUE_NUMBERS if field in content})
    if "content" in message:
        message["content"].sort(key=repr)
    return message


def note_clocks(code: int, theirs: bytes, ours: bytes, clocks: dict[bytes, bytes]) -> None:
    if CODES[code] in ("GetResp", "PutResp"):
        clock = decode(CODES[code], theirs).get("vclock")
        if clock:
            clocks[clock] = decode(CODES[code], ours)["vclock"]


async def replay(case: dict[str, Any], client: Client, address: tuple[str, int], clocks: dict[bytes, bytes]) -> None:
    """Replay one recorded request; fail if the double's answers differ."""
    name, request = case["case"], case["request"]
    if client.streams is None and case["responses"][0].get("closed"):
        return  # the connection is closed already, as recorded: the node hung up after its last answer
    await client.send(frames(request, clocks), address, pieces=64 if name == "byte-by-byte" else 1)
    if name in ("list-keys", "list-buckets"):
        await listing(case, client)
        return
    for expected in case["responses"]:
        answer = await client.answer()
        if expected.get("closed"):
            assert answer is None, name
            continue
        assert answer is not None, name
        code, body = answer
        assert code == expected["code"], (name, body)
        if expected.get("left_out"):
            continue
        theirs = bytes.fromhex(expected["hex"])
        assert structure(code, body) == structure(code, theirs), name
        note_clocks(code, theirs, body, clocks)


async def listing(case: dict[str, Any], client: Client) -> None:
    """Compare the listed names, not the frames, which a node chooses freely; the real node had other buckets as
    well."""
    expected: Counter[bytes] = Counter()
    for frame in case["responses"]:
        message = decode(CODES[frame["code"]], bytes.fromhex(frame["hex"]))
        expected.update(message.get("keys", message.get("buckets", [])))
    got: Counter[bytes] = Counter()
    while True:
        answer = await client.answer()
        assert answer is not None
        code, body = answer
        assert code == case["responses"][0]["code"]
        message = decode(CODES[code], body)
        got.update(message.get("keys", message.get("buckets", [])))
        if message.get("done") or case["case"] == "list-buckets":
            break
    if case["case"] == "list-buckets":
        assert set(got) <= set(expected)
        assert got
    else:
        named = Counter({key: count for key, count in expected.items() if len(key) < 20})
        assert Counter({key: count for key, count in got.items() if len(key) < 20}) == named
        assert got.total() == expected.total()


async def test_one_node_answers_as_the_real_one_did(client: Client) -> None:
    cases = recorded("transcripts.jsonl")
    assert set(OUT_OF_SCOPE) <= {case["case"] for case in cases}
    clocks: dict[bytes, bytes] = {}
    async with RiakDouble(nodes=1) as riak:
        riak.memory.create_type("mult")
        riak.memory.create_type("lww", allow_mult=False, last_write_wins=True)
        riak.memory.create_type("sets", datatype=b"set")
        riak.memory.create_type("counters", datatype=b"counter")
        for case in cases:
            if case["case"] in OUT_OF_SCOPE:
                await client.send(frames(case["request"], clocks), riak.addresses[0])
                answer = await client.answer()
                assert answer is not None
                assert answer[0] == 0, case["case"]
                assert b"the double does not do" in answer[1]
            else:
                await replay(case, client, riak.addresses[0], clocks)


async def test_three_nodes_with_one_and_two_killed_answer_as_the_real_ones_did(client: Client) -> None:
    clocks: dict[bytes, bytes] = {}
    killed = {"one-killed": [2], "two-killed": [1, 2]}
    async with RiakDouble(nodes=3) as riak:
        riak.memory.create_type("mult")
        for case in recorded("failures.jsonl"):
            for number in killed.get(case["case"][:10], []):
                if riak.memory.up[number]:
                    await riak.nodes[number].kill()
            await replay(case, client, riak.addresses[0], clocks)
        assert riak.memory.up == [True, False, False]


@pytest.mark.parametrize("name", ["transcripts.jsonl", "failures.jsonl"])
def test_the_tables_of_messages_lose_nothing_of_what_a_real_node_sent(name: str) -> None:
    # Byte for byte: an unknown field would be missing after encoding it again.
    for case in recorded(name):
        for frame in [case["request"], *case["responses"]]:
            code = frame.get("code")
            if code in CODES and frame["hex"] != "ffffffff":
                body = bytes.fromhex(frame["hex"])
                assert encode(CODES[code], decode(CODES[code], body)) == body, case["case"]
