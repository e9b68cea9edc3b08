"""A wish list: learn when any radio station plays one of your songs.

A song is a topic. A listener wishes for songs. A client that hears a song on a station reports it, with the station as
the payload:

    python examples/wish_list.py wish ann "Daft Punk - Get Lucky" "ABBA - Waterloo"
    python examples/wish_list.py play bob triplej "Daft Punk - Get Lucky"

Several clients can report the same change. The broker treats all reports of one minute as one message, so ann gets one
notification. This requires identical payloads, so the payload does not name the reporter.

You can give ``--url`` several times. If an endpoint dies, the client continues at the next one. If the endpoints
require a token, pass it in ``--token-file FILE`` or in the variable ``INGEBORG_TOKEN``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from ingeborg import Client, ClientError, ProtocolError, read_token


async def wish(client: Client, songs: list[str]) -> None:
    """Add the songs to the listener's list, and print their reports until Ctrl-C."""
    if songs:
        await client.subscribe(songs)
    # The broker keeps subscriptions, so this list has today's songs and all earlier ones.
    wishes = [each.topic async for each in client.subscriptions()]
    await client.listen()
    print(f"{client.client_id} waits for {len(wishes)} songs", flush=True)
    async for note in client:
        match note.broadcast:
            case {"station": str(station)}:
                print(f"{note.key} is on {station}", flush=True)
            case other:  # anyone can publish anything
                print(f"{note.key}: {other!r}", flush=True)


async def play(client: Client, station: str, song: str) -> None:
    """Report a station's song. Success means that every endpoint with an interested listener has the report."""
    known = await client.publish(song, {"station": station}, ack=True)
    print("reported already" if known else "reported", flush=True)


async def run(options: argparse.Namespace) -> None:
    """Connect, and wish or report."""
    urls = options.url or ["ws://127.0.0.1:9000"]
    async with Client(urls, options.name, token=read_token(options.token_file)) as client:
        if options.what == "wish":
            await wish(client, options.songs)
        else:
            await play(client, options.station, options.song)


def main() -> None:
    """Parse the command line and run the example."""
    parser = argparse.ArgumentParser(description="Learn when a station plays one of your songs.")
    parser.add_argument("--url", action="append", help="an endpoint (ws://127.0.0.1:9000)")
    parser.add_argument("--token-file", metavar="FILE", help="holds the token, if the endpoints require one")
    parts = parser.add_subparsers(dest="what", required=True)
    part = parts.add_parser("wish", help="wait for songs")
    part.add_argument("name", help="the listener")
    part.add_argument("songs", metavar="song", nargs="*", help="a song to add to the list")
    part = parts.add_parser("play", help="report a song")
    part.add_argument("name", help="the reporter")
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
