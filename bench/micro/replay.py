"""Replay a trace of clients' frames through the core of an endpoint alone: a router with a store in memory.

    python replay.py TRACE.json

The replay uses no sockets, no clock and no randomness, so two runs of one build execute the same instructions.
`bench drift` runs this file under callgrind, to compare trees (versions of the source). It runs each tree's own copy of
this file, because only that copy fits the interface of the tree's router. For a tree without a copy, it runs the
working tree's file. All trees get the same trace (``bench.drift.trace``). Between two segments of the trace, this file
calls ``os.getpriority``, and callgrind begins a new output file. No other code calls that function.

Exit code 3 means that this file does not fit the router's interface, or that the router requested an unknown operation
of the store.

Owns: turns like those of ``broker.shell.driver``, and the store's answers. Must never: import anything that some tree
lacks. Must never: leave work to the first message if the work can be done earlier.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ingeborg.broker.core.effects import StoreCall
from ingeborg.broker.core.model import Endpoint, Location, Shape
from ingeborg.broker.core.router import Router

#: Time between two chunks, and between two ticks, in seconds of the trace.
CHUNK_S, TICK_S = 0.001, 0.1
#: Time within which a router without peers joins, in seconds of the trace.
JOIN_S = 30.0
#: Time to wait after joining, in seconds of the trace. In this time, a router examines all its slots once. That work is
#: not part of a message's cost.
SETTLE_S = 10.0
#: Maximum number of rounds of a turn. A turn of a trace needs only a few.
ROUNDS_MAX = 1_000

CANNOT = 3


class CannotReplay(Exception):
    """Raised if this file does not fit the core of this tree."""


class Store:
    """A store in memory that answers the router immediately."""

    def __init__(self, me: Endpoint) -> None:
        self._me = me
        self._sets: defaultdict[str, list[str]] = defaultdict(list)  # subscribers by topic
        self._places: dict[str, Location] = {}  # locations by client
        self._operations: dict[str, Callable[..., Any]] = {
            "endpoints": lambda: [self._me],
            "register": self._register,
            "heartbeat": self._register,
            "revocations": list,
            "subscribe": self._subscribe,
            "subscribers": lambda names: ([tuple(self._sets[name]) for name in names], {}),
            "listen": self._listen,
            "locations": lambda clients: [self._places.get(client) for client in clients],
            "ended": lambda clients: [None for _ in clients],
            "expiring_slots": list,
            "tidy": lambda kept_s: 0,
        }

    def answer(self, operation: str, arguments: tuple[Any, ...]) -> Any:
        """Answer an operation. Raises ``CannotReplay`` if this store does not have the operation."""
        do = self._operations.get(operation)
        if do is None:
            raise CannotReplay(f"the core asks the store for {operation}")
        return do(*arguments)

    def _register(self, endpoint: Endpoint) -> None:
        self._me = endpoint

    def _subscribe(self, batch: list[Any]) -> None:
        for client, names, *_ in batch:
            for name in names:
                self._sets[name].append(client)

    def _listen(self, clients: list[str], incarnation: str) -> list[tuple[Location, None]]:
        for client in clients:
            number = len(self._places) + 1
            self._places[client] = Location(number, incarnation, True)
        return [(self._places[client], None) for client in clients]


class Replay:
    """One router with its connections, and virtual time."""

    def __init__(self, connections: int) -> None:
        """Start the router, and let it join. Raises ``CannotReplay`` if it does not join."""
        me = Endpoint("a", "0" * 16, "ws://127.0.0.1:9000", 0)
        self._now = 1_000.0
        self._tick_at = 0.0
        self._store = Store(me)
        self._joined = False
        self.frames = 0  # number of frames written to clients
        self._router = Router(me, self._now, shape=Shape(reads_memory=True), unix_s=self._now)
        until = self._now + JOIN_S
        while not self._joined:
            if self._now >= until:
                raise CannotReplay(f"the router has not joined within {JOIN_S:g} s")
            self._pass(TICK_S)
        settled = self._now + SETTLE_S
        while self._now < settled:
            self._pass(TICK_S)
        self._connections = [self._router.connected(number, self._now) for number in range(connections)]

    def chunk(self, connection: int, frames: list[bytes]) -> None:
        """Give the router these frames, end the turn, and advance the time. A tick follows if it is due."""
        self._router.frames(self._connections[connection], frames, self._now, True)
        self._turn()
        self._pass(CHUNK_S)

    def _pass(self, seconds: float) -> None:
        self._now += seconds
        if self._now >= self._tick_at:
            self._tick_at = self._now + TICK_S
            self._router.tick(self._now, self._now)
            self._turn()

    def _turn(self) -> None:
        router, now = self._router, self._now
        for _ in range(ROUNDS_MAX):
            while calls := router.asks(now):
                self._answer(calls)
            effects = router.flush(now)
            for _, frames in effects.write:
                self.frames += len(frames)
            if effects.write:
                router.written(now)
            self._joined = self._joined or any(type(act).__name__ == "Joined" for act in effects.acts)
            self._answer(effects.store)
            if effects.more:
                router.work(now)
            elif not effects.store:
                return
        raise CannotReplay(f"a turn does not end within {ROUNDS_MAX} rounds")

    def _answer(self, calls: list[StoreCall]) -> None:
        for call in calls:
            self._router.stored(call.number, self._store.answer(call.operation, call.arguments), None, self._now)


def border() -> None:
    """Call the function at which callgrind begins a new file."""
    os.getpriority(os.PRIO_PROCESS, 0)


def main() -> int:
    """Replay the trace, and print the number of frames that each segment wrote to clients. Return the exit code."""
    trace = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    segments = [
        [(connection, [frame.encode() for frame in frames]) for connection, frames in segment["chunks"]]
        for segment in trace["segments"]
    ]
    gc.disable()
    written = []
    try:
        replay = Replay(trace["connections"])
        for segment in segments:
            before = replay.frames
            border()
            for connection, frames in segment:
                replay.chunk(connection, frames)
            written.append(replay.frames - before)
        border()
    except (CannotReplay, AttributeError, TypeError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return CANNOT
    print(json.dumps(written))
    return 0


if __name__ == "__main__":
    sys.exit(main())
