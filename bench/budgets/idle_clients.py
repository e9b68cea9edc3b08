"""One process of idle clients, which ``idle`` starts. They are bare connections that have sent `listen`, and answer
pings."""

from __future__ import annotations

import os

import orjson
import uvloop

from ingeborg.bench.errors import BenchError
from ingeborg.protocol.outgoing import OutgoingSocket

from .clients import assignment, commands, each, say
from .light import ask, dial


async def main() -> None:
    """For each command, connect as many clients as the command says, which can be none, and report how many are
    connected."""
    given = assignment()
    urls: list[str] = given["urls"]
    first, stop = given["numbers"]
    sockets: list[OutgoingSocket] = []

    async def one(number: int) -> None:
        socket = await dial(urls[number % len(urls)])
        answer = await ask(socket, orjson.dumps({"command": "listen", "client_id": f"idle {number}"}))
        if b'"success"' not in answer:
            raise BenchError(f"listen: {answer.decode()}")
        sockets.append(socket)

    async for command in commands():
        if (more := command.get("connect")) is not None:
            begin = first + len(sockets)
            try:
                await each(range(begin, min(begin + more, stop)), one)
            except (BenchError, OSError) as error:
                say(failed=str(error) or type(error).__name__)
                return
        say(connected=sum(not socket.over.done() for socket in sockets))
    os._exit(0)  # the system closes the connections at exit


if __name__ == "__main__":
    uvloop.run(main())
