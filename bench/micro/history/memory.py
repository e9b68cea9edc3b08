"""The bytes of a retained message in addition to its payload, as measured and as the log reports.

Owns: the figure `bytes`. Must never: measure two numbers of messages in one process.

Messages as an endpoint has them: each with its own topic, payload and number, as read from a frame or a link. The
growth of the process (RSS) is theirs, without the payloads. A topic's part is the rest if each topic has one message.
One process for each row.
"""

from __future__ import annotations

import gc
import multiprocessing
from typing import NamedTuple

import psutil

from ingeborg.bench.budgets.model import Check
from ingeborg.broker.core.cluster.homes import Homes
from ingeborg.broker.core.entries import ENTRY_BYTES, TOPIC_BYTES, Entry
from ingeborg.broker.core.retained.log import Log
from ingeborg.protocol.hashes import slot_of

COUNTS = (100_000, 1_000_000)
#: Messages at one topic.
PER_TOPIC = (100, 1)
PAYLOAD_BYTES = 100
ORIGIN = "0123456789abcdef"
#: The reported size may be lower by this share: `history-bytes` is an approximate limit.
LESS = 0.1


class Found(NamedTuple):
    """Bytes per message, with its payload and its part of the topic: by the growth of the process, and as reported."""

    rss: float
    said: float


def grown(count: int, per_topic: int) -> Found:
    """Measure a log with this number of messages, in a separate process."""
    log = Log(1 << 40, max(PER_TOPIC), Homes("me"))
    process = psutil.Process()
    gc.collect()
    gc.freeze()
    gc.disable()
    before = process.memory_info().rss
    for number in range(count):
        # Decoded from bytes: one string for each message, as with frames.
        topic = f"Some Artist - Some Song {number // per_topic:07}".encode().decode()
        payload = b"%09d " % number + b"x" * (PAYLOAD_BYTES - 10)
        origin = ORIGIN.encode().decode()
        stamp = 1_000_000 + number
        log.add(slot_of(topic), Entry(topic, payload, origin, 5_000_000 + number, stamp, 1e6 + number), 0.0)
    return Found((process.memory_info().rss - before) / count, log.bytes / count)


async def retained_bytes(share: float) -> list[Check]:
    """Measure each number of messages in all and at a topic."""
    rows: list[Check] = []
    topic_bytes = len(f"Some Artist - Some Song {0:07}")
    for count in (max(1_000, round(count * share)) for count in COUNTS):
        with_100 = 0.0
        for per_topic in PER_TOPIC:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                found = pool.apply(grown, (count, per_topic))
            entry = found.rss - PAYLOAD_BYTES
            if per_topic == 1:
                text = f"{entry - with_100:.0f} for the topic, its name of {topic_bytes} among them"
                said = f"{TOPIC_BYTES} and the name"
            else:
                with_100 = entry
                text, said = f"{entry:.0f} for the message, with a hundredth of its topic", f"{ENTRY_BYTES}"
            figure = f"bytes of {count:,} messages, {per_topic} at a topic, plus {PAYLOAD_BYTES} of payload"
            text = f"{text}; {found.rss:.0f} in all, {found.said:.0f} reported"
            rows.append(
                Check(figure, f"said: {said}; {LESS:.0%} less at most", text, found.said >= (1 - LESS) * found.rss)
            )
    return rows
