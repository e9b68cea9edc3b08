"""The double and a real cluster, side by side: features that are not in the recordings, above all ``node_confirms``.

These tests run if ``INGEBORG_TEST_RIAK`` names a cluster of at least three nodes with the bucket types of
``docs/riak.md``. They write to their own keys and stop nothing.
"""

from __future__ import annotations

import secrets
import struct
from typing import Any

from .double import RiakDouble
from .double.messages import CODES, Message, decode, encode
from .storages import real_nodes
from .test_transcripts import Client, structure

ERROR, GET, PUT, DELETE, BUCKET_PROPS, TYPE_PROPS = 0, 9, 11, 13, 19, 31
BUCKETS_TRIED = 64
CLOCK = b"<the vector clock of the last answer that had one>"


def value(text: bytes) -> Message:
    return {"value": text, "content_type": b"text/plain"}


STEPS: list[tuple[int, Message]] = [
    # A type's node_confirms is not among its properties here, but still applies, even to reads.
    (TYPE_PROPS, {"type": b"ingeborg"}),
    (TYPE_PROPS, {"type": b"ingeborg_seen"}),
    (GET, {"key": b"a", "r": 2, "pr": 1}),
    (GET, {"key": b"a", "r": 1, "notfound_ok": False}),
    (GET, {"key": b"a", "r": 1, "notfound_ok": False, "node_confirms": 0}),
    (GET, {"key": b"a", "node_confirms": 3}),
    (GET, {"key": b"a", "pr": 3, "node_confirms": 0}),
    # Writes.
    (PUT, {"key": b"a", "content": value(b"1"), "w": 2, "node_confirms": 2, "return_head": True}),
    (PUT, {"key": b"a", "content": value(b"2"), "w": 2, "node_confirms": 3, "return_head": True}),
    (GET, {"key": b"a", "r": 3, "notfound_ok": False, "node_confirms": 0}),
    (PUT, {"key": b"a", "content": value(b"3"), "vclock": CLOCK, "return_head": True, "node_confirms": 0}),
    (GET, {"key": b"a", "deletedvclock": True, "node_confirms": 0}),
    (PUT, {"key": b"b", "content": value(b"3"), "w": 4}),
    (GET, {"key": b"b", "r": 4}),
    # Tombstones: alone, replaced with their context, and next to a value.
    (DELETE, {"key": b"a", "vclock": CLOCK}),
    (GET, {"key": b"a", "r": 2, "pr": 1, "node_confirms": 0}),
    (GET, {"key": b"a", "r": 2, "pr": 1, "node_confirms": 0, "deletedvclock": True}),
    (PUT, {"key": b"a", "content": value(b"4"), "vclock": CLOCK, "return_head": True}),
    (GET, {"key": b"a"}),
    (PUT, {"key": b"c", "content": value(b"5"), "return_head": True}),
    (PUT, {"key": b"c", "content": value(b"6"), "return_head": True}),
    (DELETE, {"key": b"c", "vclock": CLOCK}),
    (PUT, {"key": b"c", "content": value(b"7"), "return_head": True}),
    (GET, {"key": b"c", "deletedvclock": True}),
    # Last write wins, and keys that are not text.
    (PUT, {"key": b"\x00\xff", "content": {"value": b"8"}, "type": b"ingeborg_seen"}),
    (PUT, {"key": b"\x00\xff", "content": {"value": b"9"}, "type": b"ingeborg_seen"}),
    (GET, {"key": b"\x00\xff", "type": b"ingeborg_seen"}),
    (GET, {"key": b""}),
    (GET, {"key": b"a", "bucket": b""}),
    (PUT, {"key": b"a", "content": value(b"x"), "if_none_match": True}),
    (PUT, {"key": b"none", "content": value(b"x"), "if_not_modified": True, "vclock": CLOCK}),
]


async def answered(client: Client, address: tuple[str, int], code: int, message: Message) -> tuple[int, bytes]:
    body = encode(CODES[code], message)
    await client.send(struct.pack(">IB", 1 + len(body), code) + body, address)
    answer = await client.answer()
    assert answer is not None, message
    return answer


async def bucket_on_three_machines(address: tuple[str, int]) -> bytes:
    """Return a bucket whose key ``a`` this cluster keeps on three machines.

    If the ring's size is not a multiple of the number of nodes, some keys have two of their three copies on one
    machine. Which keys these are differs between the double and a real cluster, because their hashes and their rings
    differ.
    """
    client = Client()
    try:
        for _ in range(BUCKETS_TRIED):
            bucket = f"test-{secrets.token_hex(8)}".encode()
            message = {"bucket": bucket, "key": b"a", "type": b"ingeborg", "node_confirms": 3, "pr": 3}
            code, _ = await answered(client, address, GET, message)
            if code != ERROR:
                return bucket
    finally:
        client.close()
    raise AssertionError(f"of {BUCKETS_TRIED} keys none has three copies on three machines: is every node up?")


async def told(address: tuple[str, int], bucket: bytes) -> list[Any]:
    """Return the structure of the answer to each step."""
    client, clock, answers = Client(), b"", []
    for code, message in STEPS:
        if code in (GET, PUT, DELETE):
            message = {"bucket": bucket, "type": b"ingeborg", **message}
        if message.get("vclock") == CLOCK:
            message = {**message, "vclock": clock}
        answer = await answered(client, address, code, message)
        answers.append((answer[0], structure(*answer)))
        clock = decode(CODES[answer[0]], answer[1]).get("vclock", clock)
    client.close()
    return answers


async def test_the_double_says_what_a_real_cluster_says() -> None:
    nodes = real_nodes()
    real = await told(nodes[0], await bucket_on_three_machines(nodes[0]))
    async with RiakDouble(nodes=len(nodes)) as riak:
        riak.create_broker_types()
        double = await told(riak.addresses[0], await bucket_on_three_machines(riak.addresses[0]))
    for step, ours, theirs in zip(STEPS, double, real, strict=True):
        assert ours == theirs, step
