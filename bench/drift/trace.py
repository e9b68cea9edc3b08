"""The trace: frames from clients, which the cores of both trees replay.

Owns: the trace. Must never: depend on anything outside this file, because both cores have to do the same work.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

#: Number of topics to which the publisher publishes in rotation, and number of subscribers of the topic with many
#: subscribers.
TOPICS, MANY = 50, 20
PAYLOAD_BYTES = 200

#: Numbers of the connections: the publisher's, the listener's, and that of the first of the many subscribers of one
#: topic.
PUBLISHER, LISTENER, FIRST_OF_MANY = 0, 1, 2
CONNECTIONS = FIRST_OF_MANY + MANY


class Segment(NamedTuple):
    """``name``: the figure's name, or empty if the segment only prepares others. ``times``: number of messages or
    commands. ``frames``: number of frames that the core writes to clients. ``chunks``: each chunk has the number of a
    connection, and the frames that arrive on it in one turn."""

    name: str
    times: int
    frames: int
    chunks: list[tuple[int, list[str]]]


def _command(command: str, client: str, **fields: Any) -> str:
    return json.dumps({"command": command, "client_id": client, **fields}, separators=(",", ":"))


def _publish(topic: str, number: int, **fields: Any) -> str:
    payload = f"{topic}: track {number:07} ".ljust(PAYLOAD_BYTES, "x")
    return _command("publish", "publisher", topic=topic, payload=payload, timestamp=1_700_000_000_000, **fields)


def _ready() -> Segment:
    """Return the segment in which every client listens and subscribes."""
    fresh = [f"fresh {number}" for number in range(MISSES)]
    names = [f"station/{number}" for number in range(TOPICS)]
    chunks = [(LISTENER, [_command("listen", "listener")])]
    chunks += [(LISTENER, [_command("subscribe", "listener", topic=[*names, *fresh])])]
    for number in range(MANY):
        client, connection = f"one of many {number}", FIRST_OF_MANY + number
        chunks += [(connection, [_command("listen", client)])]
        chunks += [(connection, [_command("subscribe", client, topic="for many")])]
    return Segment("", 0, 2 + 2 * MANY, chunks)


def _publishes(name: str, numbers: range, chunk: int, *, ack: bool, topic: str = "", to: int = 1) -> Segment:
    fields = {"ack": True} if ack else {}
    frames = [_publish(topic or f"station/{number % TOPICS}", number, **fields) for number in numbers]
    chunks = [(PUBLISHER, frames[at : at + chunk]) for at in range(0, len(frames), chunk)]
    return Segment(name, len(numbers), len(numbers) * (to + ack), chunks)


#: Numbers of three kinds of frames: messages to topics that had no message before, `listen` commands from new clients,
#: and `subscribe` commands to new topics.
MISSES, LISTENS, SUBSCRIBES = 500, 500, 500


def segments() -> list[Segment]:
    """Return the segments of the trace, in order."""
    again = _publish("station/0", 0, ack=True)
    return [
        _ready(),
        _publishes("", range(2_000), 50, ack=True),
        _publishes("", range(2_000, 2_200), 50, ack=False, topic="for many", to=MANY),
        _publishes("publish, alone in its event-loop turn, with ack", range(10_000, 14_000), 1, ack=True),
        _publishes("publish, 50 in a chunk", range(20_000, 24_000), 50, ack=False),
        _publishes("publish to 20 subscribers", range(30_000, 31_000), 50, ack=False, topic="for many", to=MANY),
        Segment("duplicate", 2_000, 2_000, [(PUBLISHER, [again])] * 2_000),
        Segment(
            "routing miss",
            MISSES,
            2 * MISSES,
            [(PUBLISHER, [_publish(f"fresh {number}", number, ack=True)]) for number in range(MISSES)],
        ),
        Segment(
            "listen", LISTENS, LISTENS, [(LISTENER, [_command("listen", f"new {each}")]) for each in range(LISTENS)]
        ),
        Segment(
            "subscribe",
            SUBSCRIBES,
            SUBSCRIBES,
            [(LISTENER, [_command("subscribe", "listener", topic=f"song {each}")]) for each in range(SUBSCRIBES)],
        ),
    ]


def text() -> str:
    """Return the trace in the JSON form that ``bench.micro.replay`` reads."""
    chunks = [{"chunks": segment.chunks} for segment in segments()]
    return json.dumps({"connections": CONNECTIONS, "segments": chunks})
