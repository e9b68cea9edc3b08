"""Measure the bytes that a retained message takes in addition to its payload, and compare them with the estimate of the
log, which holds the message.

Owns: the figure `bytes`. Must never: make two measurements in one process.

The messages are like those in an endpoint: each has its own topic, payload and number, as if read from a frame or a
link. The bytes of messages are the growth of the process (RSS) minus the payloads. The bytes of a topic are the
difference between one message per topic and many messages per topic. Each row comes from a separate process.
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
#: Numbers of messages per topic.
PER_TOPIC = (100, 1)
PAYLOAD_BYTES = 100
ORIGIN = "0123456789abcdef"
#: The reported size may be lower than the measured size by this share, because `history-bytes` is an approximate limit.
LESS = 0.1


class Found(NamedTuple):
    """Bytes per message, including its payload and its share of the topic. ``rss`` is computed from the growth of the
    process. ``said`` is reported by the log."""

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
        # Decode each topic from bytes, so that each message has its own string, as with frames.
        topic = f"Some Artist - Some Song {number // per_topic:07}".encode().decode()
        payload = b"%09d " % number + b"x" * (PAYLOAD_BYTES - 10)
        origin = ORIGIN.encode().decode()
        stamp = 1_000_000 + number
        log.add(slot_of(topic), Entry(topic, payload, origin, 5_000_000 + number, stamp, 1e6 + number), 0.0)
    return Found((process.memory_info().rss - before) / count, log.bytes / count)


async def retained_bytes(share: float) -> list[Check]:
    """Measure each combination of total messages and messages per topic."""
    rows: list[Check] = []
    topic_bytes = len(f"Some Artist - Some Song {0:07}")
    for count in (max(1_000, round(count * share)) for count in COUNTS):
        with_100 = 0.0
        for per_topic in PER_TOPIC:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                found = pool.apply(grown, (count, per_topic))
            entry = found.rss - PAYLOAD_BYTES
            if per_topic == 1:
                text = f"{entry - with_100:.0f} for the topic, including its name of {topic_bytes} bytes"
                said = f"{TOPIC_BYTES} plus the name"
            else:
                with_100 = entry
                text, said = f"{entry:.0f} for the message, including 1/100 of its topic", f"{ENTRY_BYTES}"
            figure = f"bytes of {count:,} messages, {per_topic} per topic, without the {PAYLOAD_BYTES} bytes of payload"
            text = f"{text}; with payload {found.rss:.0f} measured, {found.said:.0f} reported"
            rows.append(
                Check(
                    figure, f"estimate: {said}; at most {LESS:.0%} too low", text, found.said >= (1 - LESS) * found.rss
                )
            )
    return rows
