"""Returning clients get their missed messages, or learn that some may be missing. SPEC section 8.10.

The clients are bare sockets, so that nothing but the broker decides what comes, and in which order.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from websockets.asyncio.client import ClientConnection, connect

from ingeborg.protocol.hashes import slot_of

from .processes import cluster_of, eventually

pytestmark = pytest.mark.cluster

#: The longest wait here, in seconds.
PATIENCE_S = 30.0
MEMORY, STORE = ("--history", "memory"), ("--history", "store")
TOPICS = [f"kept {number}" for number in range(24)]
KEEP_S = 600


class Raw:
    """A client's connection. ``frames``: everything received except replies to commands with an id."""

    def __init__(self, socket: ClientConnection, client_id: str) -> None:
        self.client_id = client_id
        self.frames: list[dict[str, Any]] = []
        self.positions: list[str] = []
        self._socket = socket
        self._number = 0

    async def _next(self) -> dict[str, Any]:
        frame: dict[str, Any] = orjson.loads(await self._socket.recv())
        if "position" in frame:
            self.positions.append(frame["position"])
        return frame

    async def ask(self, command: str, **fields: Any) -> dict[str, Any]:
        """Send the command; return its reply."""
        self._number += 1
        number = self._number
        await self._socket.send(
            orjson.dumps({"command": command, "client_id": self.client_id, "id": number, **fields}), text=True
        )
        async with asyncio.timeout(PATIENCE_S):
            while True:
                frame = await self._next()
                if frame.get("id") == number:
                    return frame
                self.frames.append(frame)

    async def until(self, key: str) -> dict[str, Any]:
        """Read until a frame with this key comes, and return it; all frames go into ``frames``."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                frame = await self._next()
                self.frames.append(frame)
                if key in frame:
                    return frame

    async def count(self, messages: int) -> None:
        """Read until this many messages have come in total."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.messages) < messages:
                self.frames.append(await self._next())

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [frame for frame in self.frames if "broadcast" in frame]

    @property
    def payloads(self) -> list[tuple[str, Any]]:
        """Return topic and payload, each message once, in the order of arrival."""
        by_mid = {frame.get("mid", index): frame for index, frame in enumerate(self.messages)}
        return [(frame["key"], frame["broadcast"]) for frame in by_mid.values()]

    @property
    def gaps(self) -> list[Any]:
        return [frame["gap"] for frame in self.frames if "gap" in frame]

    @property
    def lacking(self) -> set[str]:
        """Return those of ``TOPICS`` that a gap names, directly or by slot."""
        topics = {topic for gap in self.gaps for topic in gap.get("topics", [])}
        slots = {slot for gap in self.gaps for slot in gap.get("slots", [])}
        return {topic for topic in TOPICS if topic in topics or slot_of(topic) in slots}


@asynccontextmanager
async def raw(url: str, client_id: str, **options: Any) -> AsyncIterator[Raw]:
    async with connect(url, compression=None, max_size=None, **options) as socket:
        yield Raw(socket, client_id)


def ok(reply: dict[str, Any]) -> dict[str, Any]:
    assert reply.get("result") == "success", reply
    return reply


async def publish(url: str, messages: Sequence[tuple[str, Any]], **fields: Any) -> None:
    """Publish all of these, one after the other, retained unless ``fields`` say otherwise."""
    async with raw(url, "publisher") as publisher:
        for topic, payload in messages:
            options = {"keep_s": KEEP_S, **fields}
            ok(await publisher.ask("publish", topic=topic, payload=payload, ack=True, **options))


async def subscribed(url: str, client_id: str, topics: Sequence[str] = TOPICS) -> str:
    """Subscribe, listen for a moment and leave; return the position."""
    async with raw(url, client_id) as client:
        ok(await client.ask("subscribe", topic=list(topics)))
        reply = ok(await client.ask("listen", recover=True))
        assert reply["recovering"] is False
        return str(reply.get("position") or (await client.until("position"))["position"])


def numbered(first: int, count: int, topics: Sequence[str] = TOPICS) -> list[tuple[str, Any]]:
    return [(topics[number % len(topics)], number) for number in range(first, first + count)]


def by_topic(messages: Sequence[tuple[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for topic, payload in messages:
        found.setdefault(topic, []).append(payload)
    return found


async def back(url: str, client_id: str, position: str) -> tuple[Raw, str]:
    """Come back with the position, and read to the end of the recovery; return that with the new position."""
    async with raw(url, client_id) as client:
        assert ok(await client.ask("listen", recover=position))["recovering"] is True
        if not any(frame.get("recovered") for frame in client.frames):
            await client.until("recovered")
        return client, client.positions[-1]


async def test_what_was_missed_comes_in_order_at_whichever_endpoint_and_only_once(tmp_path: Path) -> None:
    async with cluster_of("abc", tmp_path, *MEMORY) as cluster:
        a, b, c = (cluster[name].url for name in "abc")
        position = await subscribed(a, "anna")
        await publish(b, numbered(0, 100))
        anna, later = await back(c, "anna", position)
        assert by_topic(anna.payloads) == by_topic(numbered(0, 100))
        assert len(anna.messages) == 100
        assert all(frame["kept"] is True for frame in anna.messages)
        assert anna.gaps == []
        once_more, _ = await back(b, "anna", position)  # from the old position: the same again
        assert by_topic(once_more.payloads) == by_topic(anna.payloads)

        async def has_had_all() -> bool:
            # A position covers everything up to a state of all homes a second or two ago.
            nonlocal later
            client, later = await back(b, "anna", later)
            return client.payloads == []

        await eventually(has_had_all, "a position that covers all")
        # Live messages have the same names.
        async with raw(b, "anna") as client:
            ok(await client.ask("listen", recover=later))
            if not any(frame.get("recovered") for frame in client.frames):
                await client.until("recovered")  # earlier messages can come as retained ones
            await publish(a, numbered(100, 1))
            await client.count(1)
            live = client.messages[-1]
            assert "kept" not in live
        anna, _ = await back(a, "anna", later)
        assert [frame["mid"] for frame in anna.messages] == [live["mid"]]
        # From a position of another cluster, any message may be missing; the retained ones follow.
        stranger, _ = await back(a, "anna", "other.5")
        assert stranger.gaps == [None]
        assert by_topic(stranger.payloads) == by_topic(numbered(0, 101))


async def test_the_latest_those_since_and_the_pages_of_one_topic(tmp_path: Path) -> None:
    variables = {"INGEBORG_HISTORY_SIZE": "30", "INGEBORG_HISTORY_TOPICS": "auto/=60"}
    async with cluster_of("ab", tmp_path, *MEMORY, **variables) as cluster:
        a, b = cluster["a"].url, cluster["b"].url
        position = await subscribed(a, "other", ["news"])
        await publish(a, [("news", number) for number in range(40)])
        for url in (a, b):
            async with raw(url, "anna") as anna:
                reply = ok(await anna.ask("history", topic="news", last=3))
                assert [one["broadcast"] for one in reply["publications"]] == [37, 38, 39]
                assert reply["mid"] == reply["publications"][-1]["mid"]
                since = reply["publications"][0]["mid"]
                reply = ok(await anna.ask("history", topic="news", since=since, limit=1))
                assert [one["broadcast"] for one in reply["publications"]] == [38]
                assert (reply["more"], reply["recovered"]) == (True, True)
                reply = ok(await anna.ask("history", topic="news", since=reply["mid"]))
                assert [one["broadcast"] for one in reply["publications"]] == [39]
                assert (reply["more"], reply["recovered"]) == (False, True)
                reply = ok(await anna.ask("history", topic="news", since="nobody.7"))
                assert len(reply["publications"]) == 30
                assert reply["recovered"] is False
                reply = ok(await anna.ask("history", topic="nothing"))
                assert (reply["publications"], reply["mid"], reply["more"]) == ([], None, False)
                # A listening client can get them with a subscription, before later messages.
                assert (await anna.ask("subscribe", topic="news", last=2))["error"] == "bad_state"
                ok(await anna.ask("listen"))
                ok(await anna.ask("subscribe", topic=["news", "nothing"], last=2))
                assert anna.payloads == [("news", 38), ("news", 39)]
                assert all(frame["kept"] for frame in anna.messages)
                assert anna.gaps == []
                reply = ok(await anna.ask("subscribe", topic="news", since=position))
                assert reply["recovered"] is False  # ten were more than the endpoint retains
                assert anna.gaps == [{"topics": ["news"]}]
                ok(await anna.ask("unsubscribe", topic="news"))
        # By configuration, at the publisher's endpoint.
        async with raw(a, "paul") as paul:
            ok(await paul.ask("publish", topic="auto/1", payload=1, ack=True))
            ok(await paul.ask("publish", topic="manual/1", payload=1, ack=True))
            assert [one["broadcast"] for one in (await paul.ask("history", topic="auto/1"))["publications"]] == [1]
            assert (await paul.ask("history", topic="manual/1"))["publications"] == []
            # A repetition retains nothing.
            assert (await paul.ask("publish", topic="auto/1", payload=1, ack=True))["duplicate"] is True
            assert len((await paul.ask("history", topic="auto/1"))["publications"]) == 1


async def test_one_that_recovers_has_its_connection_for_itself(tmp_path: Path) -> None:
    async with cluster_of("a", tmp_path, *MEMORY) as cluster:
        async with raw(cluster["a"].url, "anna") as client:
            ok(await client.ask("listen", recover=True))
            client.client_id = "bert"
            assert (await client.ask("listen"))["error"] == "bad_state"
        async with raw(cluster["a"].url, "carl") as client:
            ok(await client.ask("listen"))
            client.client_id = "dora"
            assert (await client.ask("listen", recover=True))["error"] == "bad_state"


@pytest.mark.parametrize("options", [(), ("--routing", "lookup")])
async def test_where_no_history_is_kept_whatever_asks_for_it_is_refused(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    async with cluster_of("a", tmp_path, *options) as cluster, raw(cluster["a"].url, "anna") as anna:
        ok(await anna.ask("listen"))
        for command, fields in (
            ("publish", {"topic": "t", "payload": 1, "ack": True, "keep_s": 1}),
            ("listen", {"recover": True}),
            ("history", {"topic": "t"}),
            ("subscribe", {"topic": "t", "last": 1}),
        ):
            reply = await anna.ask(command, **fields)
            assert (command, reply.get("error")) == (command, "bad_state"), reply
        ok(await anna.ask("publish", topic="t", payload=1, ack=True))


@pytest.mark.parametrize("replication", ["on", "off"])
async def test_a_crash_of_a_home_loses_nothing_with_a_replica_and_is_told_without(
    tmp_path: Path, replication: str
) -> None:
    async with cluster_of("abc", tmp_path, *MEMORY, "--replication", replication) as cluster:
        a, b = cluster["a"].url, cluster["b"].url
        await cluster.replicated()
        position = await subscribed(a, "anna")
        of_c = {topic for topic in TOPICS if cluster.home(topic) == "c"}
        await publish(b, numbered(0, 96))
        await cluster["c"].kill()
        await publish(b, numbered(96, 48))  # these wait until some endpoint acts for them
        anna, _ = await back(b, "anna", position)
        wanted, found = by_topic(numbered(0, 144)), by_topic(anna.payloads)
        if replication == "on":
            assert anna.gaps == []
            assert found == wanted
            return
        assert anna.lacking == of_c
        assert found == {topic: [one for one in wanted[topic] if topic not in of_c or one >= 96] for topic in TOPICS}


async def test_with_a_journal_nothing_is_missing_after_all_have_ended(tmp_path: Path) -> None:
    async with cluster_of("ab", tmp_path, *STORE) as cluster:
        position = await subscribed(cluster["a"].url, "anna")
        await publish(cluster["b"].url, numbered(0, 72))
        await cluster["a"].kill()
        await cluster["b"].kill()
        await cluster.whole()
        await publish(cluster["a"].url, numbered(72, 24))
        anna, _ = await back(cluster["a"].url, "anna", position)
        assert anna.gaps == []
        assert by_topic(anna.payloads) == by_topic(numbered(0, 96))
        # And after an orderly end.
        for name in "ab":
            cluster[name].signal(signal.SIGTERM)
        for name in "ab":
            assert await cluster[name].ended(within_s=25) == 0
        await cluster.whole()
        anna, _ = await back(cluster["b"].url, "anna", position)
        assert anna.gaps == []
        assert by_topic(anna.payloads) == by_topic(numbered(0, 96))


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.prove)])
async def test_with_a_journal_one_endpoint_alone_goes_on_as_well(tmp_path: Path, how: signal.Signals) -> None:
    """Wait until the registry has nobody else, neither alive nor dead."""
    async with cluster_of("a", tmp_path, *STORE) as cluster:
        position = await subscribed(cluster["a"].url, "anna")
        await publish(cluster["a"].url, numbered(0, 24))
        cluster["a"].signal(how)
        await cluster["a"].ended(within_s=25)
        await cluster.whole()
        anna, _ = await back(cluster["a"].url, "anna", position)
        assert (anna.gaps, by_topic(anna.payloads)) == ([], by_topic(numbered(0, 24)))


async def test_without_one_a_position_of_before_the_end_of_all_is_of_another_life(tmp_path: Path) -> None:
    async with cluster_of("a", tmp_path, *MEMORY) as cluster:
        position = await subscribed(cluster["a"].url, "anna")
        await publish(cluster["a"].url, numbered(0, 24))
        await cluster["a"].kill()
        await cluster.whole()
        anna, _ = await back(cluster["a"].url, "anna", position)
        assert (anna.gaps, anna.payloads) == ([None], [])


@pytest.mark.parametrize("slow_consumer", ["close", pytest.param("drop_oldest", marks=pytest.mark.prove)])
async def test_a_slow_reader_that_has_missed_much_is_not_closed(tmp_path: Path, slow_consumer: str) -> None:
    """5,000 messages of 2 KB are ten times what its outbox holds."""
    variables = {
        "INGEBORG_SLOW_CONSUMER": slow_consumer,
        "INGEBORG_MAX_OUTBOX_BYTES": "1000000",
        "INGEBORG_HISTORY_SIZE": "5000",
    }
    count = 5_000
    async with cluster_of("ab", tmp_path, *MEMORY, **variables) as cluster:
        position = await subscribed(cluster["a"].url, "anna", ["big"])
        async with raw(cluster["b"].url, "paul") as paul:
            for number in range(count):
                await paul._socket.send(
                    orjson.dumps(
                        {
                            "command": "publish",
                            "client_id": "paul",
                            "topic": "big",
                            "payload": [number, "x" * 2_000],
                            "keep_s": KEEP_S,
                        }
                    ),
                    text=True,
                )
            ok(await paul.ask("publish", topic="other", payload=1, ack=True))
        await cluster.idle()
        before = await cluster["a"].metrics()
        async with raw(cluster["a"].url, "anna", max_queue=1) as anna:
            ok(await anna.ask("listen", recover=position))
            for _ in range(20):
                await asyncio.sleep(0.05)  # it is slow
                await anna.count(len(anna.messages) + 10)
            await anna.until("recovered")
            assert [payload[0] for _, payload in anna.payloads] == list(range(count))
            assert anna.gaps == []
            # Before the connection ends: it would take a position under way with it.
            scrape = await cluster["a"].metrics()
        assert scrape["drops_total"] == before["drops_total"]
        assert scrape["messages_sent_again_total"] == count
        assert scrape["gaps_told_total"] == 0
