"""What a message costs an endpoint in CPU, beside a bare ``websockets`` server that parses and broadcasts.

    python -m tests.broker.measure_message_cost [--messages 20000]

Both servers are processes of their own and get the same frames from the same generator: pipelined publishes of about
200 bytes to one topic with 1, 5 and 20 subscribers. What is printed is the server process's CPU time divided by the
publishes, from ``/proc``. Bounded by the number of messages; takes about half a minute. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile

import orjson
import uvloop
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, broadcast, serve

FANOUTS = (1, 5, 20)
READY_S = 20.0
DRAIN_S = 60.0

#: Publishes in one write of the generator: what a busy publisher's kernel buffer holds.
BURST = 50


async def bare() -> None:
    """The comparison: parse each publish, broadcast the notification to whoever has said ``listen``."""
    listeners: set[ServerConnection] = set()

    async def handler(connection: ServerConnection) -> None:
        async for message in connection:
            command = orjson.loads(message)
            if command["command"] == "listen":
                listeners.add(connection)
                await connection.send(b'{"result":"success"}', text=True)
            elif command["command"] == "subscribe":
                await connection.send(b'{"result":"success"}', text=True)
            else:
                frame = orjson.dumps({"key": command["topic"], "broadcast": command["payload"]})
                broadcast(listeners, frame.decode())

    async with serve(handler, "127.0.0.1", 0, compression=None, max_queue=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        print(f"bare: ready at ws://127.0.0.1:{port}/", flush=True)
        await server.serve_forever()


def cpu_s(pid: int) -> float:
    """User and system time of the process so far."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _say(connection: ClientConnection, **fields: object) -> None:
    await connection.send(orjson.dumps(fields), text=True)
    async with asyncio.timeout(DRAIN_S):
        await connection.recv()


async def _drain(connection: ClientConnection, count: int) -> None:
    for _ in range(count):
        await connection.recv(decode=False)


async def load(url: str, pid: int, messages: int, fanout: int) -> float:
    """CPU microseconds of the server per publish."""
    options = {"compression": None, "max_queue": None}
    subscribers = [await connect(url, **options) for _ in range(fanout)]
    publisher = await connect(url, **options)
    topic = f"topic {fanout}"
    for number, subscriber in enumerate(subscribers):
        await _say(subscriber, command="listen", client_id=f"s{fanout}-{number}")
        await _say(subscriber, command="subscribe", client_id=f"s{fanout}-{number}", topic=topic)
    frames = [
        orjson.dumps(
            {"command": "publish", "client_id": "p", "topic": topic, "payload": f"{fanout} {number:09}".ljust(120)}
        )
        for number in range(messages)
    ]
    before = cpu_s(pid)
    async with asyncio.timeout(DRAIN_S):
        readers = [asyncio.create_task(_drain(subscriber, messages)) for subscriber in subscribers]
        for start in range(0, messages, BURST):
            for frame in frames[start : start + BURST]:
                await publisher.send(frame, text=True)
            await asyncio.sleep(0)
        await asyncio.gather(*readers)
    spent = cpu_s(pid) - before
    for connection in (publisher, *subscribers):
        await connection.close()
    return spent / messages * 1e6


def _start(arguments: list[str]) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen([sys.executable, "-m", *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    return process, line.rpartition(" ")[2].strip()


async def measure(messages: int) -> None:
    """Both servers, every fan-out; the table to standard output."""
    with tempfile.TemporaryDirectory() as folder:
        ours, our_url = _start(["broker.cli", "serve", "--port", "0", "--store", f"lmdb:{folder}/store"])
        theirs, their_url = _start(["tests.broker.measure_message_cost", "--serve-bare"])
        try:
            print("CPU of the server process, microseconds per publish")
            print("subscribers  endpoint  bare websockets  ratio")
            for fanout in FANOUTS:
                count = messages // max(1, fanout // 5)
                a = await load(our_url, ours.pid, count, fanout)
                b = await load(their_url, theirs.pid, count, fanout)
                print(f"{fanout:11}  {a:8.1f}  {b:15.1f}  {a / b:5.2f}")
        finally:
            for process in (ours, theirs):
                process.terminate()
                process.wait(20)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--serve-bare", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    uvloop.run(bare() if options.serve_bare else measure(options.messages))


if __name__ == "__main__":
    main()
