"""Measure recoveries of one client in two cases: many topics with one missed message each, and very many topics with
few missed messages in total.

Owns: the figures `missed` and `few`. Must never: report the time of an incomplete recovery.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

from ingeborg.bench.budgets.light import cpu_s, started
from ingeborg.bench.budgets.model import Check
from ingeborg.bench.budgets.recoverers import HISTORY_BYTES, Message, Publisher, Recoverer, load_subscriptions, message
from ingeborg.bench.errors import BenchError

MISSED_S = 1.0
COLD_S, WARM_S = 3.0, 0.2
#: Number of recoveries after the first recovery. A warm figure is their median.
WARM = 5

#: An endpoint's default for `max-routes`.
MAX_ROUTES = 50_000

CLIENT = "traveller"


class Took(NamedTuple):
    """The duration of a recovery, and the endpoint's CPU time during it, in seconds."""

    took_s: float
    cpu_s: float

    def __str__(self) -> str:
        return f"{self.took_s * 1e3:,.0f} ms (CPU of the endpoint {self.cpu_s * 1e3:,.0f} ms)"


@contextlib.asynccontextmanager
async def _endpoint(topics: list[str], max_routes: int) -> AsyncIterator[tuple[str, psutil.Process]]:
    """Start an endpoint at which the client has subscribed to these topics."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"lmdb:{folder}/store"
        await load_subscriptions(Path(folder), store, {CLIENT: topics})
        config = _config(Path(folder), max_routes)
        options = ("--config", config, "--store", store, "--history", "memory", "--history-bytes", str(HISTORY_BYTES))
        with started("ingeborg.broker.command.cli", "serve", "--port", "0", *options) as (url, process):
            yield url, process


def _config(folder: Path, max_routes: int) -> str:
    """Write a configuration file with the option `max-routes`, and return its path."""
    path = folder / "ingeborg.toml"
    path.write_text(f"max-routes = {max_routes}\n", encoding="utf-8")
    return str(path)


async def _recovered(client: Recoverer, url: str, process: psutil.Process, wanted: set[Message]) -> Took:
    """Measure one recovery. Raises ``BenchError`` if it did not deliver exactly the missed messages."""
    before_s = cpu_s(process)
    recovery = await client.recover(url)
    used_s = cpu_s(process) - before_s
    client.go()
    found = recovery.messages()
    if found != wanted:
        raise BenchError(
            f"{len(found & wanted):,} of {len(wanted):,} missed messages arrived, and {len(found - wanted):,} other "
            "messages"
        )
    return Took(recovery.took_s, used_s)


async def recoveries(
    topics: int, missed: int, others: int, other_topics: int, warm: int, max_routes: int = MAX_ROUTES
) -> list[Took]:
    """Recover a client with this number of ``topics``, and then ``warm`` times more from the same position. While the
    client was away, the endpoint kept one message at each of ``missed`` of its topics, and ``others`` messages at
    ``other_topics`` topics to which the client is not subscribed. ``max_routes`` is the limit of the routing cache."""
    names = [f"topic {number:07}" for number in range(topics)]
    async with _endpoint(names, max_routes) as (url, process):
        client = Recoverer(CLIENT)
        await client.introduce(url)
        client.go()
        of_client = [message(names[number * topics // missed], number) for number in range(missed)]
        of_others = [message(f"another's {number % other_topics:07}", number) for number in range(others)]
        # Spread the client's messages evenly among the other messages, so that they do not all come last.
        step = max(1, len(of_others) // max(1, len(of_client)))
        mixed: list[Message] = []
        for number, own in enumerate(of_client):
            mixed += [*of_others[number * step : (number + 1) * step], own]
        mixed += of_others[len(of_client) * step :]
        await Publisher().publish(url, mixed)
        return [await _recovered(client, url, process, set(of_client)) for _ in range(1 + warm)]


async def missed(share: float) -> list[Check]:
    """Measure a client with 10,000 topics that missed one message in each topic."""
    topics = max(10, round(10_000 * share))
    took, *more = await recoveries(topics, topics, 0, 1, WARM)
    figure = f"a client with {topics:,} topics that missed 1 message in each"
    middle = _middle(more)
    return [
        Check(figure, f"at most {MISSED_S:g} s", str(took), took.took_s <= MISSED_S),
        Check(f"{figure}, repeated", "reported", str(middle), True),
    ]


async def few(share: float) -> list[Check]:
    """Measure a client with 1,000,000 topics and 10 missed messages, while 100,000 messages of other topics are kept.
    First, each of these messages has its own topic, which is the worst case. Then each topic has 100 of the messages.
    *Cold*: the home's routing cache has hardly any of the other topics. *Warm*: the cache has all of these topics."""
    topics, others = max(100, round(1_000_000 * share)), max(100, round(100_000 * share))
    rows: list[Check] = []
    for other_topics, is_met in ((others, False), (max(1, others // 100), True)):
        figure = f"{topics:,} subscriptions, 10 messages missed, {others:,} kept at {other_topics:,} other topics"
        for words, routes, most in (("cold", 1, COLD_S), ("warm", 2 * others, WARM_S)):
            took, *more = await recoveries(topics, 10, others, other_topics, WARM, routes)
            one = _middle(more) if words == "warm" else took
            goal = "reported" if is_met else f"at most {most:g} s"
            rows.append(Check(f"{figure}: {words}", goal, str(one), is_met or one.took_s <= most))
    return rows


def _middle(all_of: list[Took]) -> Took:
    return Took(median(one.took_s for one in all_of), median(one.cpu_s for one in all_of))
