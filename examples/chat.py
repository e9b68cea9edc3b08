"""A chat, in which each room is a topic and each line is a message.

    python examples/chat.py ann lobby kitchen          # ann joins two rooms; her lines go to the last room
    echo "dinner is ready" | python examples/chat.py bob kitchen

``/join ROOM`` joins a room and makes it the current one, ``/leave ROOM`` leaves it, and ``/rooms`` lists your rooms.
The broker remembers who is in which room, so ann is still in both rooms tomorrow. While she is away, she misses
messages.

You can give ``--url`` several times. If an endpoint dies, the client continues at the next one. If the endpoints
require a token, pass it in ``--token-file FILE`` or in the variable ``INGEBORG_TOKEN``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

from ingeborg import Client, ClientError, ProtocolError, read_token

PREFIX = "chat room "  # other programs may use the same endpoints


async def lines() -> AsyncIterator[str]:
    """Yield the lines of standard input. Reading from a terminal blocks, so a thread does it. The thread is a daemon,
    so Ctrl-C does not have to wait for it."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[str | None] = asyncio.Queue(100)

    def read() -> None:
        for line in open(0, "rb", buffering=0, closefd=False):  # noqa: SIM115 - not ours to close
            asyncio.run_coroutine_threadsafe(queue.put(line.decode(errors="replace").strip()), loop).result()
        asyncio.run_coroutine_threadsafe(queue.put(None), loop).result()

    threading.Thread(target=read, daemon=True).start()
    while (line := await queue.get()) is not None:
        yield line


async def chat(client: Client, name: str, rooms: list[str]) -> None:
    """Join the rooms, then send each typed line until the input ends."""

    async def joined() -> list[str]:
        topics = [each.topic async for each in client.subscriptions()]
        return sorted(topic.removeprefix(PREFIX) for topic in topics if topic.startswith(PREFIX))

    await client.subscribe([PREFIX + room for room in rooms])
    await client.listen()
    room = rooms[-1] if rooms else next(iter(await joined()), None)
    print(f"you are in {', '.join(await joined()) or 'no room'}", flush=True)
    async for line in lines():
        command, _, argument = line.partition(" ")
        if command == "/join" and argument:
            room = argument
            await client.subscribe(PREFIX + room)
        elif command == "/leave" and argument:
            await client.unsubscribe(PREFIX + argument)
            room = None if argument == room else room
        elif command == "/rooms":
            print(f"you are in {', '.join(await joined()) or 'no room'}", flush=True)
        elif line and room:
            # A person can say "yes" twice. But if the connection breaks now and the client sends this message again,
            # nobody reads it twice.
            await client.publish(PREFIX + room, {"from": name, "text": line}, ack=True, dedup="retry")


async def run(options: argparse.Namespace) -> None:
    """Connect, print messages of others, and chat."""

    def heard(topic: str | None, said: Any) -> None:
        match said:  # anyone can publish anything, and a terminal obeys control characters
            case {"from": str(who), "text": str(text)} if topic and who != options.name:
                line = f"[{topic.removeprefix(PREFIX)}] {who}: {text}"
                print("".join(filter(str.isprintable, line)), flush=True)

    urls = options.url or ["ws://127.0.0.1:9000"]
    async with Client(urls, options.name, token=read_token(options.token_file), on_notification=heard) as client:
        await chat(client, options.name, options.rooms)


def main() -> None:
    """Parse the command line and run the example."""
    parser = argparse.ArgumentParser(description="Chat in rooms.")
    parser.add_argument("--url", action="append", help="an endpoint (ws://127.0.0.1:9000)")
    parser.add_argument("--token-file", metavar="FILE", help="holds the token, if the endpoints require one")
    parser.add_argument("name", help="your name")
    parser.add_argument("rooms", metavar="room", nargs="*", help="a room to join")
    try:
        asyncio.run(run(parser.parse_args()))
    except (ClientError, ProtocolError, OSError, ValueError) as error:
        sys.exit(f"chat: {error}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
