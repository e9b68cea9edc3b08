"""A wish list: hear when a song of yours is played, on whatever station.

A song is a topic. A listener wishes for songs; whoever hears one reports it, with the station as the payload:

    python examples/wish_list.py wish ann "Daft Punk - Get Lucky" "ABBA - Waterloo"
    python examples/wish_list.py play bob triplej "Daft Punk - Get Lucky"

Let several report the same change: the broker takes those of one minute for one message, and ann is told once. For
that the payload must be the same whoever reports it, so nothing of the reporter is in it.

``--url`` may be given several times: if an endpoint dies, the client goes on at the next. Where the endpoints want a
token, give it in ``--token-file FILE`` or as the variable ``INGEBORG_TOKEN``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from ingeborg import Client, ClientError, ProtocolError, read_token


async def wish(client: Client, songs: list[str]) -> None:
    """Add the songs to the listener's list, and print what is played of it until Ctrl-C."""
    if songs:
        await client.subscribe(songs)
    # Subscriptions are the broker's to keep: these are of today, and of all the days before.
    wishes = [each.topic async for each in client.subscriptions()]
    await client.listen()
    print(f"{client.client_id} waits for {len(wishes)} songs", flush=True)
    async for note in client:
        match note.broadcast:
            case {"station": str(station)}:
                print(f"{note.key} is on {station}", flush=True)
            case other:  # anybody may publish anything
                print(f"{note.key}: {other!r}", flush=True)


async def play(client: Client, station: str, song: str) -> None:
    """Report what a station plays. Success: every endpoint with a listener that wishes for it has it."""
    known = await client.publish(song, {"station": station}, ack=True)
    print("reported already" if known else "reported", flush=True)


async def run(options: argparse.Namespace) -> None:
    """Connect, and do what was asked."""
    urls = options.url or ["ws://127.0.0.1:9000"]
    async with Client(urls, options.name, token=read_token(options.token_file)) as client:
        if options.what == "wish":
            await wish(client, options.songs)
        else:
            await play(client, options.station, options.song)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Hear when a song of yours is played.")
    parser.add_argument("--url", action="append", help="of an endpoint (ws://127.0.0.1:9000)")
    parser.add_argument("--token-file", metavar="FILE", help="with the token, where one is wanted")
    parts = parser.add_subparsers(dest="what", required=True)
    part = parts.add_parser("wish", help="wait for songs")
    part.add_argument("name", help="of the listener")
    part.add_argument("songs", metavar="song", nargs="*", help="to add to the list")
    part = parts.add_parser("play", help="report a song")
    part.add_argument("name", help="of whoever reports it")
    part.add_argument("station")
    part.add_argument("song")
    try:
        asyncio.run(run(parser.parse_args()))
    except (ClientError, ProtocolError, OSError, ValueError) as error:
        sys.exit(f"wish_list: {error}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
