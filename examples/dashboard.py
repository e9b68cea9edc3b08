"""A dashboard in the terminal, with the load of the endpoints and the latest notifications of some topics.

    python examples/dashboard.py
    python examples/dashboard.py --url ws://127.0.0.1:9001 "Daft Punk - Get Lucky" --seconds 10

The ``/metrics`` page of one endpoint names the other endpoints. A rate is the growth of a counter in one second. If the
output is not a terminal, the program prints one picture after the other. If the endpoints require a token, pass it in
``--token-file FILE`` or in the variable ``INGEBORG_TOKEN``. The token has to be for the client ``dashboard``.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import time
from collections import defaultdict, deque
from typing import Any, NamedTuple

from ingeborg import Client, ClientError, ProtocolError, read_token
from ingeborg.protocol.pages import PageError, fetch, samples

COUNTERS = [f"ingeborg_{what}_total" for what in ("publishes_received", "messages_delivered", "duplicates_dropped")]
TITLES = ("clients", "in/s", "out/s", "dropped/s", "MB")


class Scrape(NamedTuple):
    """The metrics of one endpoint at one time."""

    at_s: float
    name: str
    sums: dict[str, float]  # the sum of each metric over all its labels
    peers: list[str]  # URLs


async def scrape(url: str) -> Scrape | None:
    """Read an endpoint's metrics. Return ``None`` if it does not answer."""
    try:
        page = await fetch(url, "/metrics")
    except PageError:
        return None
    if page.status != 200:
        return None
    name, sums, peers = url, defaultdict[str, float](float), list[str]()
    for sample in samples(page.text):
        sums[sample.name] += sample.value
        if sample.name == "ingeborg_info":
            name = sample.labels["name"]
        elif sample.name == "ingeborg_peer_up":
            peers.append(sample.labels["url"])
    return Scrape(time.monotonic(), name, sums, peers)


def row(url: str, old: Scrape | None, new: Scrape | None) -> str:
    """Return one endpoint's line."""
    if old is None or new is None:
        return f"{url:<24}  {'does not answer' if new is None else 'just seen'}"
    seconds = new.at_s - old.at_s
    rates = [max(new.sums[counter] - old.sums[counter], 0) / seconds for counter in COUNTERS]
    cells = [new.sums["ingeborg_clients"], *rates, new.sums["process_resident_memory_bytes"] / 1e6]
    return f"{new.name:<24}" + "".join(f"{cell:>10,.0f}" for cell in cells)


async def watch(url: str, notes: deque[str], seconds: int) -> None:
    """Draw once a second for this many seconds, or forever if ``seconds`` is 0."""
    head = f"{'endpoint':<24}" + "".join(f"{title:>10}" for title in TITLES)
    # To avoid flicker, start at the upper left corner, and erase the end of each line and everything below the last
    # line.
    corner, end, below = ("\x1b[H", "\x1b[K\n", "\x1b[J") if sys.stdout.isatty() else ("", "\n", "")
    before = {url: await scrape(url)}
    for _ in range(seconds) if seconds else itertools.count():
        await asyncio.sleep(1)
        urls = {url} | {peer for one in before.values() if one for peer in one.peers}
        now = dict(zip(sorted(urls), await asyncio.gather(*map(scrape, sorted(urls))), strict=True))
        lines = [head, *(row(peer, before.get(peer), now[peer]) for peer in now), "", *notes]
        print(corner + end.join(lines), end=end + below, flush=True)
        before = now


async def run(options: argparse.Namespace) -> None:
    """Follow the topics, draw, and leave no subscription behind."""
    notes: deque[str] = deque(maxlen=8)

    def heard(topic: str | None, payload: Any) -> None:
        notes.append(f"{topic or 'to all'}: {payload!r}"[:110])

    async with Client(
        options.url, "dashboard", token=read_token(options.token_file), on_notification=heard, listen=True
    ) as client:
        await client.subscribe(options.topics, until="disconnect")  # they end a minute after a kill
        try:
            await watch(options.url, notes, options.seconds)
        finally:
            await client.unsubscribe(options.topics)


def main() -> None:
    """Parse the command line and run the example."""
    parser = argparse.ArgumentParser(description="Watch the endpoints.")
    parser.add_argument("--url", default="ws://127.0.0.1:9000", help="any endpoint (ws://127.0.0.1:9000)")
    parser.add_argument("--token-file", metavar="FILE", help="holds the token, if the endpoints require one")
    parser.add_argument("--seconds", type=int, default=0, help="end after this many seconds (0: never)")
    parser.add_argument("topics", metavar="topic", nargs="*", help="show the notifications of this topic")
    try:
        asyncio.run(run(parser.parse_args()))
    except (ClientError, ProtocolError, OSError, ValueError) as error:
        sys.exit(f"dashboard: {error}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
