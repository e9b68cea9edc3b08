"""The core of an endpoint alone: a trace of what clients send goes through a router, with a store in memory.

    python replay.py TRACE.json

No socket, no clock, no chance: two runs of one build do the same, instruction by instruction. `bench drift` runs this
file of each tree under callgrind, since only a tree's own file knows the doors of its router; for a tree that has none
it takes the one beside it. The trace is the same for both (``bench.drift.trace``). At the borders of its segments this
asks the system for its priority, which nothing else does: callgrind begins a new file there.

Exit code 3: this router cannot be driven like that, or the store is asked for what it does not have.

Owns: the turns, as ``broker.shell.driver`` has them, and the store's answers. Must never: import what not every tree
has, or do anything for a message that could be done before the first one.
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

#: Between two chunks, and between two ticks, in seconds of the trace.
CHUNK_S, TICK_S = 0.001, 0.1
#: A router that is alone joins within so many seconds.
JOIN_S = 30.0
#: Rounds of a turn, at most: no turn of a trace wants more than a few.
ROUNDS_MAX = 1_000

CANNOT = 3


class CannotReplay(Exception):
    """This tree's core is another than this file knows."""


class Store:
    """What the router asks, answered at once."""

    def __init__(self, me: Endpoint) -> None:
        self._me = me
        self._sets: defaultdict[str, list[str]] = defaultdict(list)  # of subscribers, by topic
        self._places: dict[str, Location] = {}  # by client
        self._operations: dict[str, Callable[..., Any]] = {
            "endpoints": lambda: [self._me],
            "register": self._register,
            "heartbeat": self._register,
            "features": frozenset,
            "revocations": list,
            "subscribe": self._subscribe,
            "subscribers": lambda names, *_: [tuple(self._sets[name]) for name in names],
            "filtered": lambda asked, limit: [([], None) for _ in asked],
            "listen": self._listen,
            "locations": lambda clients: [self._places.get(client) for client in clients],
            "ended": lambda clients: [None for _ in clients],
        }

    def answer(self, operation: str, arguments: tuple[Any, ...]) -> Any:
        """``CannotReplay``: it has no such operation."""
        do = self._operations.get(operation)
        if do is None:
            raise CannotReplay(f"the core asks the store for {operation}")
        return do(*arguments)

    def _register(self, endpoint: Endpoint) -> None:
        self._me = endpoint

    def _subscribe(self, batch: list[tuple[str, list[str]]], *_: Any) -> None:
        for client, names in batch:
            for name in names:
                self._sets[name].append(client)

    def _listen(self, clients: list[str], incarnation: str) -> list[Location]:
        for client in clients:
            number = len(self._places) + 1
            self._places[client] = Location(number, incarnation, True)
        return [self._places[client] for client in clients]


class Replay:
    """One router, with its connections, in its own time."""

    def __init__(self, connections: int) -> None:
        """``CannotReplay``: it does not join."""
        me = Endpoint("a", "0" * 16, "ws://127.0.0.1:9000", 0)
        self._now = 1_000.0
        self._tick_at = 0.0
        self._store = Store(me)
        self._joined = False
        self.frames = 0  # that were written to clients
        self._router = Router(me, self._now, shape=Shape(reads_memory=True), unix_s=self._now)
        until = self._now + JOIN_S
        while not self._joined:
            if self._now >= until:
                raise CannotReplay(f"the router has not joined within {JOIN_S:g} s")
            self._pass(TICK_S)
        self._connections = [self._router.connected(number, self._now) for number in range(connections)]

    def chunk(self, connection: int, frames: list[bytes]) -> None:
        """These come, and the turn ends; the next tick comes when it is due."""
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
    """Callgrind begins a new file."""
    os.getpriority(os.PRIO_PROCESS, 0)


def main() -> int:
    """Replay the trace; print how many frames each segment had written to clients. Returns the exit code."""
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
