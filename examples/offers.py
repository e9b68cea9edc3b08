"""Offers of restaurants: receive the offers that you care about, and no others.

All offers go to one topic. A waiting client selects offers by restaurant, by food, and by the discount in percent. The
broker compares each offer with the clients' filters, and sends it only to the clients whose filters match:

    python examples/offers.py wait ann --restaurant Dominos --restaurant Vapiano --discount 30
    python examples/offers.py offer Dominos pizza 35

``wait`` without an option waits for every offer. Each ``wait`` replaces the client's earlier filter. Like every plain
subscription, a filter stays until the client removes it. With ``--forget``, the program removes its filter at the end.

You can give ``--url`` several times. If the endpoints require a token, pass it in ``--token-file FILE`` or in the
variable ``INGEBORG_TOKEN``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any

from ingeborg import Client, ClientError, ProtocolError, read_token

TOPIC = "offers"


def wanted(options: argparse.Namespace) -> dict[str, Any]:
    """Return the filter. Each attribute must match one entry of its list; every offer has a restaurant."""
    filter: dict[str, Any] = {"restaurant": options.restaurant or [{"exists": True}]}
    if options.food:
        filter["food"] = options.food
    if options.discount is not None:
        filter["discount"] = [{"numeric": [">=", options.discount]}]
    return filter


async def wait(client: Client, filter: dict[str, Any], forget: bool) -> None:
    """Print the offers that match until Ctrl-C."""
    await client.subscribe(TOPIC, filter=filter, replace=True)
    await client.listen()
    print(f"{client.client_id} waits for {filter}", flush=True)
    try:
        async for note in client:
            match note.broadcast:
                case {"restaurant": restaurant, "food": food, "discount": discount}:
                    print(f"{restaurant}: {food}, {discount} % off", flush=True)
                case other:  # anyone can publish anything
                    print(f"{other!r}", flush=True)
    finally:
        if forget:
            await client.unsubscribe(TOPIC, filter=filter)


async def offer(client: Client, restaurant: str, food: str, discount: float) -> None:
    """Publish an offer to the clients that wait for it. The same offer, published a minute later, is a new offer."""
    payload = {"restaurant": restaurant, "food": food, "discount": discount}
    await client.publish(TOPIC, payload, ack=True, dedup="retry")
    print("offered", flush=True)


async def run(options: argparse.Namespace) -> None:
    """Connect, and wait or offer."""
    urls = options.url or ["ws://127.0.0.1:9000"]
    name = options.name if options.what == "wait" else options.restaurant
    async with Client(urls, name, token=read_token(options.token_file)) as client:
        if options.what == "wait":
            await wait(client, wanted(options), options.forget)
        else:
            await offer(client, options.restaurant, options.food, options.discount)


def main() -> None:
    """Parse the command line and run the example."""
    parser = argparse.ArgumentParser(description="Receive the offers that you care about.")
    parser.add_argument("--url", action="append", help="an endpoint (ws://127.0.0.1:9000)")
    parser.add_argument("--token-file", metavar="FILE", help="holds the token, if the endpoints require one")
    parts = parser.add_subparsers(dest="what", required=True)
    part = parts.add_parser("wait", help="wait for offers")
    part.add_argument("name", help="the waiting client")
    part.add_argument("--restaurant", action="append", help="offers from this restaurant; can be given several times")
    part.add_argument("--food", action="append", help="offers of this food; can be given several times")
    part.add_argument("--discount", metavar="PERCENT", type=float, help="the minimum discount")
    part.add_argument("--forget", action="store_true", help="remove the filter when this program ends")
    part = parts.add_parser("offer", help="publish an offer")
    part.add_argument("restaurant")
    part.add_argument("food")
    part.add_argument("discount", metavar="PERCENT", type=float)
    try:
        asyncio.run(run(parser.parse_args()))
    except (ClientError, ProtocolError, OSError, ValueError) as error:
        sys.exit(f"offers: {error}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
