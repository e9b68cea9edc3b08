"""The feed of a market: prices of 100 shares, at a rate that you choose.

    python examples/market.py --rate 1000

``examples/market.html`` shows the prices, and its slider changes the rate. Every price is a message to one topic, and
the message's ``item`` is the share. So an endpoint can leave out a price that a newer price of the same share replaces.
Each reader's bounds say whether the endpoint may do so.

You can give ``--url`` several times. If the endpoints require a token, pass it in ``--token-file FILE`` or in the
variable ``INGEBORG_TOKEN``. The token has to be for the client ``market feed``.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from typing import Any

from ingeborg import Client, ClientError, ProtocolError, read_token

TOPIC = "market prices"
RATE_TOPIC = "market rate"

RATE_MAX = 10_000
STEP_S = 0.01

#: Symbols of shares that do not exist.
SYMBOLS = [
    f"{one}{other}"
    for one in ("BA", "DE", "FI", "GO", "KU", "LA", "ME", "NI", "RO", "SU")
    for other in ("DA", "LO", "MI", "NE", "RU", "SA", "TO", "VI", "XE", "ZU")
]


class Feed:
    """The prices, and the number of ticks that the feed publishes per second."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self._prices = {symbol: random.uniform(20, 500) for symbol in SYMBOLS}

    def heard(self, topic: str | None, rate: Any) -> None:
        """Change the rate to the number of ticks per second that a page requests."""
        if topic == RATE_TOPIC and type(rate) is int and 0 <= rate <= RATE_MAX:  # anyone can publish anything
            self.rate = rate
            print(f"{rate} ticks a second", flush=True)

    def tick(self) -> dict[str, Any]:
        """Return the next price of some share."""
        symbol = random.choice(SYMBOLS)
        self._prices[symbol] = price = max(self._prices[symbol] * random.gauss(1, 0.0005), 1.0)
        return {"symbol": symbol, "price": round(price, 2), "at": time.time_ns() // 1_000_000}

    async def publish(self, client: Client) -> None:
        """Publish ticks until Ctrl-C."""
        due, before = 0.0, time.monotonic()
        while True:
            await asyncio.sleep(STEP_S)
            now = time.monotonic()
            due += self.rate * min(now - before, 1.0)  # after a longer pause, the feed does not catch up
            before = now
            for _ in range(int(due)):
                tick = self.tick()
                # A share can return to an earlier price. Such a message is not a duplicate.
                await client.publish(TOPIC, tick, item=tick["symbol"], dedup=False)
            due %= 1


async def run(options: argparse.Namespace) -> None:
    """Connect, and publish."""
    feed = Feed(options.rate)
    async with Client(
        options.url, "market feed", token=read_token(options.token_file), on_notification=feed.heard, listen=True
    ) as client:
        await client.subscribe(RATE_TOPIC, until="disconnect")
        print(f"{feed.rate} ticks a second", flush=True)
        await feed.publish(client)


def main() -> None:
    """Parse the command line and run the example."""
    parser = argparse.ArgumentParser(description="Publish prices.")
    parser.add_argument("--url", action="append", help="an endpoint (ws://127.0.0.1:9000)")
    parser.add_argument("--token-file", metavar="FILE", help="holds the token, if the endpoints require one")
    parser.add_argument("--rate", type=int, default=1_000, help="ticks a second at the beginning (1000)")
    options = parser.parse_args()
    options.url = options.url or ["ws://127.0.0.1:9000"]
    if not 0 <= options.rate <= RATE_MAX:
        parser.error(f"--rate has to be from 0 to {RATE_MAX}")
    try:
        asyncio.run(run(options))
    except (ClientError, ProtocolError, OSError, ValueError) as error:
        sys.exit(f"market: {error}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
