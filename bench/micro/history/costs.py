"""Measure the extra cost of a kept message in an endpoint, and the cost of history for a message that is not kept.

Owns: the figures `keep` and `unused`. Must never: compare endpoints or kinds of messages that were measured minutes
apart.

The two loads of a comparison have the same rate, and one topic with one subscriber. They alternate in turns of half a
second. Every pair of turns reverses the order. A figure is the median of the differences between the two turns of a
pair, because other load on the machine affects both turns. The topic always has its maximum number of retained
messages, so that each new message evicts an old one.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator
from statistics import median
from typing import NamedTuple

import psutil

from ingeborg.bench.budgets.cost import Load
from ingeborg.bench.budgets.light import cpu_s, started
from ingeborg.bench.budgets.model import Check
from ingeborg.bench.budgets.recoverers import KEEP_S

MEMORY_US, STORE_US = 5.0, 30.0
#: Maximum cost in microseconds that history may add to a message that is not retained. This is enough time to test one
#: or two conditions.
UNUSED_US = 1.0
#: Publishes per second, and duration of a turn in seconds. An endpoint needs a quarter of a core for this rate.
RATE, TURN_S = 2_000, 0.5
#: Number of pairs of turns.
PAIRS = 24
BYTES = ("--history-bytes", str(64 << 20))
MEMORY = ("--history", "memory", *BYTES)


class Turn(NamedTuple):
    """CPU microseconds per publish: those of the endpoint itself, and those of the processes that write its store."""

    endpoint_us: float
    writers_us: float


class Publishing(Load):
    """A load of messages to a topic with one subscriber. ``keeps`` says whether the publisher asks the endpoint to
    retain the messages."""

    keeps = False

    def __init__(self, url: str, process: psutil.Process) -> None:
        super().__init__(url, process, 1)

    def _publish(self, number: int, payload: str, ack: bool) -> bytes:
        frame = super()._publish(number, payload, ack)
        return frame[:-1] + b',"keep_s":%d}' % KEEP_S if self.keeps else frame

    async def __aenter__(self) -> Publishing:
        await super().__aenter__()
        return self

    async def turn(self, seconds: float, *, keeps: bool) -> Turn:
        """Run one turn, and return its cost."""
        self.keeps = keeps
        count = int(RATE * seconds)
        alone_s = own_cpu_s(self._process)
        both_us = await self.cost_us(RATE, seconds)
        alone_us = (own_cpu_s(self._process) - alone_s) / count * 1e6
        return Turn(alone_us, max(0.0, both_us - alone_us))


def own_cpu_s(process: psutil.Process) -> float:
    """Return the CPU seconds that the process has used so far, without its child processes."""
    children = sum(cpu_s(child) for child in process.children())
    return cpu_s(process) - children


@contextlib.asynccontextmanager
async def _publishing(*options: str) -> AsyncIterator[Publishing]:
    """Start an endpoint with these options, and yield a load for it."""
    with tempfile.TemporaryDirectory() as folder:
        serve = ("serve", "--port", "0", "--store", f"lmdb:{folder}/store", *options)
        with started("ingeborg.broker.command.cli", *serve) as (url, process):
            async with Publishing(url, process) as publishing:
                yield publishing


class Pair(NamedTuple):
    """Medians over all pairs of turns: the cost of a plain turn, the difference between the two turns, and the
    difference in the writers' cost."""

    plain_us: float
    more_us: float
    writers_us: float

    def __str__(self) -> str:
        return f"{self.more_us:+.1f} us, added to {self.plain_us:.1f} us; the store's writers {self.writers_us:+.1f} us"


async def _by_turns(plain: Publishing, other: Publishing, keeps: bool, pairs: int, seconds: float) -> Pair:
    """Compare turns of ``other`` with turns of ``plain``, whose messages are not retained."""
    for _ in range(2):  # warm up: fill the routing cache and the topic
        await plain.turn(seconds, keeps=False)
        await other.turn(seconds, keeps=keeps)
    without: list[Turn] = []
    beside: list[Turn] = []
    for number in range(pairs):
        if number % 2:
            without.append(await plain.turn(seconds, keeps=False))
        beside.append(await other.turn(seconds, keeps=keeps))
        if not number % 2:
            without.append(await plain.turn(seconds, keeps=False))
    return Pair(
        median(turn.endpoint_us for turn in without),
        median(turn.endpoint_us - base.endpoint_us for turn, base in zip(beside, without, strict=True)),
        median(turn.writers_us - base.writers_us for turn, base in zip(beside, without, strict=True)),
    )


def _sizes(share: float) -> tuple[int, float]:
    return max(1, round(PAIRS * share)), max(0.05, TURN_S * share)


async def keep(share: float) -> list[Check]:
    """Compare kept messages with other messages at the same endpoint. The endpoint keeps messages only in memory, or
    also in the store."""
    rows: list[Check] = []
    for words, most, options in (
        ("in memory", MEMORY_US, MEMORY),
        ("also in the store", STORE_US, ("--history", "store", *BYTES)),
    ):
        async with _publishing(*options) as publishing:
            pair = await _by_turns(publishing, publishing, True, *_sizes(share))
        figure = f"CPU of the endpoint to keep a message {words}"
        rows.append(Check(figure, f"at most {most:g} us more", str(pair), pair.more_us <= most))
    return rows


async def unused(share: float) -> list[Check]:
    """Compare messages that are not retained, at an endpoint with history and at one without."""
    async with _publishing() as plain, _publishing(*MEMORY) as other:
        pair = await _by_turns(plain, other, False, *_sizes(share))
    figure = "CPU of a message that is not retained, with history compared with no history"
    return [Check(figure, f"at most {UNUSED_US:g} us more", str(pair), pair.more_us <= UNUSED_US)]
