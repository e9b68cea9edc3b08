"""The process ``python -m ingeborg.bench.micro.paged``.

Owns: the side channel's commands, and a watch over the event loop. Must never: do anything to the endpoint that the
product's own parts could not do.

=========== ============================ ==============================================================================
command     fields                       action and answer
=========== ============================ ==============================================================================
``fill``    pages, size                  make this number of pages (version 0) in each of its slots; answers ``pages``
``write``   slot, number, version, size  write a page; ``yes`` if the endpoint acts for the slot, else ``home``, a name
``remove``  slot, number                 remove a page; the answer is like that to ``write``
``pages``                                slot, number and version of each page in its slots (-1: its bytes are wrong)
``digests`` slots                        digest of each slot's pages; empty if the endpoint does not act for the slot
``seen``    keys                         add this number of payloads of its slots to the table of duplicates
``homes``   names                        the name of each slot's home if only these endpoints existed
``told``                                 the notes of the watch, and the endpoint's counters
=========== ============================ ==============================================================================

The process writes two files next to the socket. If the process ends in an orderly way, it writes its final answer to
``told`` to the file whose name ends in ``.last``. The file whose name ends in ``.told`` has the notices that the pages
got about their slots, each as a line of JSON. This file survives a crash, and has the notices from all runs of the
endpoint.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import secrets
import sys
import time
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from ingeborg.bench.budgets.pages import HEAD, digest, page
from ingeborg.bench.micro.paged.state import Pages, Told
from ingeborg.broker.command import config, serve
from ingeborg.broker.core.cluster.homes import home_table
from ingeborg.broker.shell import logs
from ingeborg.broker.shell.server import EndpointServer
from ingeborg.protocol.hashes import HASH_BYTES, SLOTS
from ingeborg.protocol.options import add_options

#: Time between two checks of the loop, in seconds. The checks take 1 % of a core.
LOOK_S = 0.002

#: The watch notes a turn that delayed the watch by more than this number of microseconds, or used more CPU time.
NOTED_US = 3_000

#: Maximum number of notes. The notes of a quarter of an hour fit, even if the watch notes every turn.
NOTED_MAX = 300_000

#: Number of pages or keys that a long command processes before it lets other work run. Processing them takes one or two
#: milliseconds.
PAGES_AT_ONCE, KEYS_AT_ONCE = 50, 500

_LINE_BYTES_MAX = 1 << 20

Json = dict[str, Any]


class Watch:
    """Notes events that are not visible from outside the process: long turns, slots that the endpoint released, copies
    of slots that are under way, and connections that the endpoint did not read for a while."""

    def __init__(self, server: EndpointServer) -> None:
        self._router = server.router
        self._loop = asyncio.get_running_loop()
        self._state: tuple[int, bool] = (-1, False)
        self._acted: set[int] = set()  # slots that this endpoint acted for at the last check
        self._copies = 0
        self._paused: dict[Any, int] = {}  # connection -> start of its pause
        self._looked_ns = time.monotonic_ns()
        self._busy_ns = time.thread_time_ns()
        self.turns: list[tuple[int, int, int]] = []  # time in ns; delay and CPU time in us
        self.let_go: list[tuple[int, list[int]]] = []  # when it still acted for the slots, in ns; slots
        self.copies: list[tuple[int, int]] = []  # time in ns; number of copies under way since then
        self.paused: list[tuple[int, int]] = []  # time in ns; us for which a connection was not read
        self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        now_ns, busy_ns = time.monotonic_ns(), time.thread_time_ns()
        late_us = (now_ns - self._looked_ns) // 1_000 - int(LOOK_S * 1e6)
        used_us = (busy_ns - self._busy_ns) // 1_000
        if max(late_us, used_us) > NOTED_US and len(self.turns) < NOTED_MAX:
            self.turns.append((now_ns, late_us, used_us))
        members = self._router.members
        state = members.version, members.joined
        if state != self._state:
            self._state = state
            me = members.me.incarnation
            acts = {slot for slot, home in enumerate(members.table) if home == me} if members.joined else set()
            if self._acted - acts:
                self.let_go.append((self._looked_ns, sorted(self._acted - acts)))
            self._acted = acts
        if len(self._router.cluster.replicas) != self._copies:
            self._copies = len(self._router.cluster.replicas)
            self.copies.append((now_ns, self._copies))
        self._look_at_connections(now_ns)
        self._looked_ns, self._busy_ns = now_ns, time.thread_time_ns()
        self._loop.call_later(LOOK_S, self._look)

    def _look_at_connections(self, now_ns: int) -> None:
        connections = self._router.sessions.connections.values()
        paused = {connection for connection in connections if connection.backpressure}
        for connection in paused - self._paused.keys():
            self._paused[connection] = now_ns
        for connection in self._paused.keys() - paused:
            self.paused.append((now_ns, (now_ns - self._paused.pop(connection)) // 1_000))


class Process:
    """One endpoint and its side channel."""

    def __init__(self, side: Path, *, watched: bool, dials_from: str | None) -> None:
        """``watched`` says whether to watch the event loop. ``dials_from`` is the local address from which the endpoint
        connects to peers."""
        self._side = side
        self._watched = watched
        self._dials_from = dials_from
        self._pages = Pages(self._note)
        self._server: EndpointServer | None = None
        self._watch: Watch | None = None
        self._opening: asyncio.Task[Any] | None = None

    def make(self, *arguments: Any, **options: Any) -> EndpointServer:
        """Return the server, with pages as an additional state. The event loop must be running."""
        if self._dials_from is not None:
            loop: Any = asyncio.get_running_loop()
            loop.create_connection = partial(loop.create_connection, local_addr=(self._dials_from, 0))
        self._server = server = EndpointServer(*arguments, **options, states=[self._pages])
        if self._watched:
            self._watch = Watch(server)
        self._side.unlink(missing_ok=True)  # a killed process may have left the socket
        opening = asyncio.start_unix_server(self._serve, self._side, limit=_LINE_BYTES_MAX)
        self._opening = asyncio.get_running_loop().create_task(opening)  # its result keeps the channel's server
        return server

    def _note(self, told: Told) -> None:
        with self._side.with_suffix(".told").open("ab") as file:
            file.write(orjson.dumps(told) + b"\n")

    def leave_word(self) -> None:
        """After the endpoint has ended, write the final answer to ``told`` into the file ``.last``."""
        if self._watch is not None:
            self._side.with_suffix(".last").write_bytes(orjson.dumps(self._told({})))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # When the process ends, this task is cancelled. Python 3.11 would log the cancellation as a connection error.
        with contextlib.suppress(asyncio.CancelledError, OSError):
            while line := await reader.readline():
                command = orjson.loads(line)
                try:
                    answer = _COMMANDS[command["do"]](self, command)
                    if not isinstance(answer, dict):
                        answer = await answer
                except Exception as error:
                    answer = {"failed": f"{type(error).__name__}: {error}"}
                writer.write(orjson.dumps(answer) + b"\n")
        writer.close()

    # The side channel's commands

    @property
    def _on(self) -> EndpointServer:
        assert self._server is not None
        return self._server

    def _acts(self, slot: int) -> bool:
        """Say whether this endpoint may act for the slot now. The check is the same as for a client's message."""
        router = self._on.router
        router._at(time.monotonic())  # no valid lease, even if the router has not noticed yet
        return router.members.joined and router.members.table[slot] == router.me.incarnation

    def _write(self, command: Json) -> Json:
        slot, number = command["slot"], command["number"]
        if not self._acts(slot):
            return {"yes": False, "home": self._name_of(self._on.router.members.table[slot])}
        gone = command["do"] == "remove"
        self._pages.put(slot, number, None if gone else page(slot, number, command["version"], command["size"]))
        replicas = self._on.router.cluster.replicas
        if replicas.watching:
            replicas.changed(self._pages, slot, (slot, number))
            self._on.driver.turn()
        return {"yes": True}

    def _name_of(self, incarnation: str) -> str:
        router = self._on.router
        peer = router.members.peers.get(incarnation)
        return router.me.name if peer is None else peer.endpoint.name

    async def _fill(self, command: Json) -> Json:
        written = 0
        for slot in range(SLOTS):
            if self._acts(slot):
                for number in range(command["pages"]):
                    self._pages.put(slot, number, page(slot, number, 0, command["size"]))
                written += command["pages"]
                if written % PAGES_AT_ONCE < command["pages"]:
                    await asyncio.sleep(0)
        return {"pages": written}

    async def _read(self, command: Json) -> Json:
        rows = []
        for slot, numbers in list(self._pages.of.items()):
            if self._acts(slot):
                for number, data in list(numbers.items()):
                    _, _, version = HEAD.unpack_from(data)
                    is_right = data == page(slot, number, version, len(data))
                    rows.append((slot, number, version if is_right else -1))
            await asyncio.sleep(0)
        return {"pages": rows}

    async def _digests(self, command: Json) -> Json:
        found = []
        for slot in command["slots"]:
            if self._acts(slot):
                pages = self._pages.of.get(slot, {})
                found.append(digest(pages[number] for number in sorted(pages)))
            else:
                found.append("")
            await asyncio.sleep(0)
        return {"digests": found}

    async def _seen(self, command: Json) -> Json:
        dedup = self._on.router.replication.dedup
        mine = [slot for slot in range(SLOTS) if self._acts(slot)]
        for number in range(command["keys"]):
            slot = mine[number % len(mine)]
            dedup.add(slot.to_bytes(2) + secrets.token_bytes(HASH_BYTES), time.monotonic())
            if number % KEYS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return {"keys": len(dedup)}

    def _homes(self, command: Json) -> Json:
        return {"homes": home_table((name, name) for name in command["names"])}

    def _told(self, command: Json) -> Json:
        watch, router = self._watch, self._on.router
        if watch is None:
            raise ValueError("there are no notes without --watch")
        return {
            "told": self._pages.told,
            "let_go": watch.let_go,
            "copies": watch.copies,
            "turns": watch.turns,
            "paused": watch.paused,
            "keys": len(router.replication.dedup),
            "counts": dict(router.counters.counts),
            "drops": dict(router.counters.drops),
        }


_COMMANDS: Mapping[str, Any] = {
    "fill": Process._fill,
    "write": Process._write,
    "remove": Process._write,
    "pages": Process._read,
    "digests": Process._digests,
    "seen": Process._seen,
    "homes": Process._homes,
    "told": Process._told,
}


def main() -> int:
    """Run the command. Return the exit code."""
    parser = argparse.ArgumentParser(description="an endpoint that keeps pages with its slots")
    parser.add_argument("--side", type=Path, required=True, metavar="SOCKET")
    parser.add_argument(
        "--watch", action="store_true", help="take the notes that `told` returns; this takes 1 %% of a core"
    )
    parser.add_argument(
        "--dial-from", metavar="ADDRESS", help="the local address from which the endpoint connects to peers"
    )
    add_options(parser, config.ServeOptions)
    given = vars(parser.parse_args())
    process = Process(given.pop("side"), watched=given.pop("watch"), dials_from=given.pop("dial_from"))
    names = {row.name for row in fields(config.ServeOptions)}
    options = config.load({name: value for name, value in given.items() if name in names}, dict(os.environ), None)
    logs.set_up(options.log_format, options.log_level)
    code = serve.run(options, endpoint=process.make)
    process.leave_word()
    return code


if __name__ == "__main__":
    sys.exit(main())
