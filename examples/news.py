"""News that wait for their reader: who was away is told what was reported meanwhile, and whether that is all.

A subject is a topic, and a report is kept for a day. The reader's position is in a file, so that the next time it goes
on where it ended, whatever ended it:

    python examples/news.py read ann football weather
    python examples/news.py report football "1:0"

Reports from what is kept are marked. Where the endpoints have forgotten some, or lost them, the reader says of which
subjects; a program with a state would read it anew. They have to keep a history: `ingeborg serve --history memory`.

``--url`` may be given several times. Where the endpoints want a token, give it in ``--token-file FILE`` or as the
variable ``INGEBORG_TOKEN``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from ingeborg import Client, ClientError, Gap, ProtocolError, read_token

DAY_S = 86_400


def lacking(gap: Gap) -> None:
    """Some of what was reported will not come any more."""
    print(f"some reports may be missing: {', '.join(gap.topics) if gap.topics else 'of any subject'}", flush=True)


async def read(client: Client, subjects: list[str]) -> None:
    """Print what was missed, and then what comes, until Ctrl-C."""
    await client.listen()  # first, since what was missed comes before what is new
    if subjects:
        await client.subscribe(subjects)
    print(f"{client.client_id} reads", flush=True)
    async for note in client:
        print(f"{note.key}: {note.broadcast}{' (missed)' if note.kept else ''}", flush=True)


async def run(options: argparse.Namespace) -> None:
    """Connect, and do what was asked."""
    urls = options.url or ["ws://127.0.0.1:9000"]
    secret = read_token(options.token_file)
    if options.what == "read":
        file = options.position or Path(f"{options.name}.position")
        async with Client(urls, options.name, token=secret, recover=file, on_gap=lacking) as client:
            await read(client, options.subjects)
    else:
        async with Client(urls, "newsroom", token=secret) as client:
            # Each report is one of its own, though it may say what an earlier one has said.
            await client.publish(options.subject, options.report, ack=True, dedup="retry", keep_s=DAY_S)
            print("reported", flush=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Read news, and what was missed of them.")
    parser.add_argument("--url", action="append", help="of an endpoint (ws://127.0.0.1:9000)")
    parser.add_argument("--token-file", metavar="FILE", help="with the token, where one is wanted")
    parts = parser.add_subparsers(dest="what", required=True)
    part = parts.add_parser("read", help="what comes, and what was missed")
    part.add_argument("name", help="of the reader; made of what a file's name may have, or say --position")
    part.add_argument("subjects", metavar="subject", nargs="*", help="more of them; those of before stay")
    part.add_argument("--position", metavar="FILE", type=Path, help="of this reader alone (NAME.position)")
    part = parts.add_parser("report", help="something")
    part.add_argument("subject")
    part.add_argument("report")
    try:
        asyncio.run(run(parser.parse_args()))
    except (ClientError, ProtocolError, OSError, ValueError) as error:
        sys.exit(f"news: {error}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
