"""News that waits for its reader. A returning reader gets the reports that it missed, and learns whether any are lost.

A subject is a topic, and the broker keeps a report for a day. The reader's position is in a file, so the next run
continues where this one ended, even after a crash:

    python examples/news.py read ann football weather
    python examples/news.py report football "1:0"

The program marks missed reports. If the endpoints have forgotten or lost some reports, it names the subjects. (A
program that keeps state would then reload that state.) The endpoints must keep a history: `ingeborg serve --history
memory`.

You can give ``--url`` several times. If the endpoints require a token, pass it in ``--token-file FILE`` or in the
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
    """Say that some reports are lost."""
    print(f"some reports may be missing: {', '.join(gap.topics) if gap.topics else 'any subject'}", flush=True)


async def read(client: Client, subjects: list[str]) -> None:
    """Print missed reports, and then new ones, until Ctrl-C."""
    await client.listen()  # first, because missed reports come before new ones
    if subjects:
        await client.subscribe(subjects)
    print(f"{client.client_id} reads", flush=True)
    async for note in client:
        print(f"{note.key}: {note.broadcast}{' (missed)' if note.kept else ''}", flush=True)


async def run(options: argparse.Namespace) -> None:
    """Connect, and read or report."""
    urls = options.url or ["ws://127.0.0.1:9000"]
    secret = read_token(options.token_file)
    if options.what == "read":
        file = options.position or Path(f"{options.name}.position")
        async with Client(urls, options.name, token=secret, recover=file, on_gap=lacking) as client:
            await read(client, options.subjects)
    else:
        async with Client(urls, "newsroom", token=secret) as client:
            # Each report counts separately, even if an earlier one had the same text.
            await client.publish(options.subject, options.report, ack=True, dedup="retry", keep_s=DAY_S)
            print("reported", flush=True)


def main() -> None:
    """Parse the command line and run the example."""
    parser = argparse.ArgumentParser(description="Read news, including news that you missed.")
    parser.add_argument("--url", action="append", help="an endpoint (ws://127.0.0.1:9000)")
    parser.add_argument("--token-file", metavar="FILE", help="holds the token, if the endpoints require one")
    parts = parser.add_subparsers(dest="what", required=True)
    part = parts.add_parser("read", help="print missed and new reports")
    part.add_argument("name", help="the reader's name; it must be valid in a file name, unless you give --position")
    part.add_argument(
        "subjects", metavar="subject", nargs="*", help="a subject to follow, in addition to earlier subjects"
    )
    part.add_argument(
        "--position", metavar="FILE", type=Path, help="the file with this reader's position (default: NAME.position)"
    )
    part = parts.add_parser("report", help="publish a report")
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
