"""After 100,000 frames of nonsense an endpoint still serves, in bounded memory, without one failed turn.

Hypothesis draws the first commands of a batch, and its seed. A seeded ``random.Random`` makes hundreds of mutants from
these commands, and the test sends them pipelined. Both are fixed (``derandomize``), so that every run sends the same
bytes. A failing batch prints its templates and its seed. The endpoint is a real process.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import orjson
import ormsgpack
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ingeborg.protocol.pages import fetch, samples
from tests import proof
from tests.broker.running import PATIENCE_S, Plain, plain, raw, raw_frame, serving

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

#: In all 90,000 messages, and 10,000 frames that are not even valid WebSocket.
BATCHES, MESSAGES_PER_BATCH = proof.examples(150, 40), 600
RAW_BATCHES, CONNECTIONS_PER_BATCH, FRAMES_PER_CONNECTION = proof.examples(20, 8), 50, 10

#: The endpoint begins with about 50 MB, and caches a few megabytes of this nonsense.
GROWTH_BYTES_MAX = 100_000_000

TEXT, BINARY = 0x81, 0x82

SETTINGS: dict[str, Any] = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "phases": [Phase.generate],  # no shrinking, since a batch's effects on the endpoint last
    "suppress_health_check": list(HealthCheck),
}

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=True)
    | st.text(max_size=20)
    | st.text('\0\x1f\x7f\x85 \ud800"\\é\U0001f600', max_size=10),
    lambda children: st.lists(children, max_size=5) | st.dictionaries(st.text(max_size=5), children, max_size=5),
    max_leaves=10,
)
COMMANDS = st.fixed_dictionaries(
    {},
    optional={
        "command": st.sampled_from(
            ["listen", "unlisten", "subscribe", "unsubscribe", "publish", "broadcast", "subscriptions", "?"]
        )
        | VALUES,
        "client_id": st.integers(0, 20) | st.text(max_size=140) | VALUES,
        "topic": st.sampled_from("abcdef") | st.lists(st.text(max_size=8), max_size=20) | VALUES,
        "payload": VALUES,
        "ack": st.booleans() | VALUES,
        "dedup": st.booleans() | st.text(max_size=3) | VALUES,
        "until": st.just("disconnect") | VALUES,
        "ttl_s": st.integers(0, 5) | VALUES,
        "filter": st.dictionaries(st.sampled_from(["a", "b", "$or"]), st.lists(VALUES, max_size=3), max_size=3)
        | VALUES,
        "replace": st.booleans() | VALUES,
        "id": st.integers(0, 100) | VALUES,
        "timestamp": st.integers(0, 2**41) | VALUES,
        "limit": st.integers(-1, 10_001) | VALUES,
        "cursor": VALUES,
    },
)
TOKENS = [
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b'"',
        b"\\",
        b"null",
        b"true",
        b"-",
        b"1e999",
        b"NaN",
        b"\\ud800",
        b"\\u0000",
    ),
    *(b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\0", b"9" * 25, b"[" * 400, b'{"a":' * 300, b" " * 5000),
    *(b'"command":"publish",', b'"client_id":1,', b'"topic":["a","b"],', b'"payload":{},', b'"id":1,', b"x" * 1100),
]


HELLO = ormsgpack.packb(["hello", 1, b"n" * 16, "fuzz", "0" * 16, "ws://127.0.0.1:9", b"p" * 32])


def json_like(value: Any) -> bytes:
    """Return the value as JSON if possible; else Python's notation is nonsense of the same quality."""
    if isinstance(value, bytes):
        return value
    try:
        return orjson.dumps(value)
    except TypeError:
        return repr(value).encode(errors="surrogatepass")


def good(random: random.Random) -> bytes:
    """Return a command that the endpoint mostly accepts. Hypothesis does not draw it, since every run needs enough of
    each kind."""
    name = random.choice(["listen", "unlisten", "subscribe", "unsubscribe", "publish", "broadcast", "subscriptions"])
    topic = random.choice([*"abcdef", ["a", "b"], "", "a\0"])
    ends = random.choice([b"", b"", b',"until":"disconnect"', b',"ttl_s":1'])
    return b'{"command":"%b","client_id":%d,"topic":%b,"payload":%d,"ack":%b,"limit":10%b}' % (
        name.encode(),
        random.randrange(21),
        orjson.dumps(topic),
        random.randrange(1000),
        random.choice([b"true", b"false"]),
        ends,
    )


def mutate(random: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """Return the same data, mostly with a few changes, or sometimes unrelated data."""
    for _ in range(random.choice((0, 0, 1, 1, 1, 2, 5))):
        at, to = sorted((random.randrange(len(data) + 1), random.randrange(len(data) + 1)))
        change = random.randrange(7)
        if change == 0 and data:
            at = min(at, len(data) - 1)
            data = data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]
        elif change == 1:
            data = data[:at] + random.choice(TOKENS) + data[at:]
        elif change == 2:
            data = data[:at] + random.choice(TOKENS) + data[to:]
        elif change == 3:
            data = data[:at] + data[to:]
        elif change == 4:
            data = data[:to] + data[at:]
        elif change == 5:
            data = data[:at] + random.choice(others)[at:]
        else:
            data = random.randbytes(random.randrange(60))
    return data


class Target:
    """The endpoint, and one of its clients, which only uses it normally."""

    def __init__(self, url: str, witness: Plain) -> None:
        self.url = url
        self.port = int(url.rstrip("/").rpartition(":")[2])
        self._witness = witness
        self._name = f"witness-{secrets.token_hex(16)}"
        self._number = 0
        self._memory_bytes = 0.0
        self.frames = 0

    async def metrics(self) -> dict[str, float]:
        page = await fetch(self.url, "/metrics")
        return {sample.series: sample.value for sample in samples(page.text)}

    async def begin(self) -> None:
        for command in ("listen", "subscribe"):
            reply = await self._witness.ask({"command": command, "client_id": self._name, "topic": self._name})
            assert reply == {"result": "success"}
        self._memory_bytes = (await self.metrics())["process_resident_memory_bytes"]

    async def still_serves(self) -> None:
        """Do a round trip, and check the metrics."""
        self._number += 1
        publish = {"command": "publish", "client_id": self._name, "topic": self._name, "payload": self._number}
        await self._witness.send(publish)
        while (heard := await self._witness.hear())["key"] is None:
            pass  # a broadcast of the nonsense
        assert heard == {"key": self._name, "broadcast": self._number}
        metrics = await self.metrics()
        assert metrics["ingeborg_turns_failed_total"] == 0
        assert metrics["process_resident_memory_bytes"] - self._memory_bytes < GROWTH_BYTES_MAX


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def target(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Target]:
    async with serving(tmp_path_factory.mktemp("fuzz")) as (process, url), plain(url) as witness:
        target = Target(url, witness)
        await target.begin()
        yield target
        print(f"{target.frames:,} frames")
        assert "Traceback" not in process.said()


@settings(max_examples=BATCHES, **SETTINGS)
@given(templates=st.lists(COMMANDS, min_size=6, max_size=6), seed=st.integers(0, 2**32))
async def test_messages_of_nonsense_are_answered_one_by_one(target: Target, templates: list[Any], seed: int) -> None:
    rng = random.Random(seed)
    others = [*map(json_like, templates), *(good(rng) for _ in range(6))]
    messages = [mutate(rng, rng.choice(others), others) for _ in range(MESSAGES_PER_BATCH)]
    last = orjson.dumps({"command": "no such command", "id": "the last"})
    frames = [raw_frame(opcode_for(message), message) for message in [*messages, last]]
    async with raw(target.url, limit=1 << 20) as connection:
        await connection.upgrade()
        connection.writer.write(b"".join(frames))
        # No message closes the connection, and the answer to the last command is the last one.
        while True:
            first, payload = await connection.frame()
            assert first == TEXT, (first, payload)
            reply = orjson.loads(payload)
            if reply.get("id") == "the last":
                break
            assert reply.keys() & {"result", "error", "broadcast"}
    target.frames += len(messages)
    await target.still_serves()


def opcode_for(message: bytes) -> int:
    try:
        message.decode()
    except UnicodeDecodeError:
        return BINARY  # in a text frame it would close the connection, as it has to
    return TEXT


@settings(max_examples=RAW_BATCHES, **SETTINGS)
@given(templates=st.lists(COMMANDS, min_size=6, max_size=6), seed=st.integers(0, 2**32))
async def test_frames_of_nonsense_cost_nobody_else(target: Target, templates: list[Any], seed: int) -> None:
    rng = random.Random(seed)
    others = [*map(json_like, templates), *(good(rng) for _ in range(6))]

    def frame() -> bytes:
        kind = rng.randrange(4)
        if kind == 0:
            return rng.randbytes(rng.randrange(1, 40))
        message = mutate(rng, rng.choice(others), others)
        if kind == 1:
            return raw_frame(rng.randrange(256), message, masked=rng.random() < 0.9)
        if kind == 2:
            return raw_frame(rng.choice((0x01, 0x00, 0x80, 0x88, 0x89, 0x8A)), message[: rng.randrange(200)])
        return mutate(rng, raw_frame(TEXT, message), [raw_frame(TEXT, message)])

    async def connect() -> None:
        path = rng.choice(("/", "/", "/_peer"))
        frames = b"".join(frame() for _ in range(FRAMES_PER_CONNECTION))
        if path == "/_peer":  # messages in the frames of its handshake, with wrong contents
            frames = raw_frame(BINARY, mutate(rng, HELLO, [HELLO])) + frames
        early = rng.random() < 0.2
        async with raw(target.url) as connection:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await connection.upgrade(path, behind=frames if early else b"")
                connection.writer.write(b"" if early else frames)
                # The client ends its stream. The connection ends in any state.
                connection.writer.write_eof()
                async with asyncio.timeout(PATIENCE_S):
                    while await connection.reader.read(1 << 16):
                        pass

    await asyncio.gather(*(connect() for _ in range(CONNECTIONS_PER_BATCH)))
    target.frames += CONNECTIONS_PER_BATCH * FRAMES_PER_CONNECTION
    await target.still_serves()


async def test_nothing_is_left_of_it(target: Target) -> None:
    assert target.frames == BATCHES * MESSAGES_PER_BATCH + RAW_BATCHES * CONNECTIONS_PER_BATCH * FRAMES_PER_CONNECTION
    async with asyncio.timeout(PATIENCE_S):
        while True:
            metrics = await target.metrics()
            witness_only = metrics["ingeborg_connections"] == metrics["ingeborg_clients"] == 1
            if witness_only and metrics["ingeborg_publishes_in_flight"] == 0:
                break
            await asyncio.sleep(0.05)
    # The nonsense was varied: it caused every kind of error, and the endpoint accepted much. The numbers depend on
    # Hypothesis's draws, and these on the modules that this process has loaded: it tries constants of their sources.
    for code in ("bad_json", "bad_command", "bad_state", "bad_topic"):
        assert metrics[f'ingeborg_errors_total{{code="{code}"}}'] > 100
    for accepted in ("publishes_received", "duplicates_dropped", "subscriptions_changed"):
        assert metrics[f"ingeborg_{accepted}_total"] > 200
    assert metrics['ingeborg_errors_total{code="peer_handshake"}'] > 20
    assert (await fetch(target.url, "/readyz")).status == 200
