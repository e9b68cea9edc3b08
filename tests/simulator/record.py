"""The decisions of a history's endpoints, to the byte: ``python -m tests.simulator.record SEED…`` prints a line each.

Owns: which seeds run in which way, and the recorded part of a turn: every effect in its order, and at the end every
counter. Must never: leave out a difference. Two runs of the same code record the same; so do the two forms of the code.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any

from ingeborg import form
from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.effects import Effects
from ingeborg.broker.core.limits import Limits, Sizes
from ingeborg.broker.core.model import Shape

from .history import History
from .world import Node

#: The shape of a store that is read at once, as the embedded one.
MEMORY = Shape(reads_memory=True)

#: Ways to run a history, in rotation: some cut long work into slices, others read in another way.
WAYS: tuple[Mapping[str, Any], ...] = (
    {},
    {"faults": False},
    {"slow": True},
    {"drains": True},
    {"slow": True, "drains": True},
    {"faults": False, "cuts": True, "drains": True},
    {"sizes": Sizes(delivery_slice=1, clients_per_slice=1, recipients_max=3, list_ids_max=6)},
    {"sizes": Sizes(closed_per_slice=0, topics_at_once=0, backlog_bytes_per_turn=1), "limits": Limits(large_bytes=70)},
    {"routing": "lookup", "faults": False},
    {"shape": MEMORY, "drains": True},
    {"shape": MEMORY, "limits": Limits(routes_topics=2), "sizes": Sizes(topics_per_read=1)},
)


def plain(value: Any) -> Any:
    """Convert the value into values whose ``repr`` is the same in every process."""
    if isinstance(value, Connection):
        return ("connection", value.number)
    if isinstance(value, Enum) or value is None or isinstance(value, str | bytes | bytearray | int | float):
        return value
    if isinstance(value, Mapping):
        return [(plain(key), plain(item)) for key, item in value.items()]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, map(plain, value)))
    if isinstance(value, list | tuple):
        name = type(value).__name__
        return (name, *map(plain, value)) if hasattr(value, "_fields") else [plain(item) for item in value]
    raise TypeError(f"nobody has said how a {type(value).__name__} is recorded")


class Recorder:
    """The record of one history."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=12)
        self.turns = self.acts = 0

    def turn(self, node: Node, effects: Effects) -> None:
        """Record the end of an endpoint's turn."""
        self.turns += 1
        self.acts += len(effects.acts)
        self._add((node.me.name, node.world.now, plain(effects)))

    def end(self, node: Node) -> None:
        """Record the counters of an endpoint's life."""
        counters = node.router.counters
        counters.observe()
        rows = (counters.counts, counters.drops, counters.errors, counters.commands)
        times = (counters.publish_times.buckets(), counters.delivery_times.buckets())
        self._add((node.me.name, [sorted(plain(row)) for row in rows], times))

    def _add(self, what: object) -> None:
        self._hash.update(repr(what).encode())

    def text(self) -> str:
        """Return the whole record as one digest."""
        return self._hash.hexdigest()


def record(seed: int) -> str:
    """Return a line: the seed, its way, and the record."""
    way = seed % len(WAYS)
    history = History(seed, **WAYS[way])
    recorder = Recorder()
    history.world.on_effects = recorder.turn
    violations = history.run()
    for node in history.world.nodes.values():
        recorder.end(node)
    done = f"{recorder.turns} turns, {recorder.acts} acts, {len(violations)} violations"
    return f"{seed} way {way}: {done}, {recorder.text()}"


def main(arguments: list[str]) -> int:
    """Print the form of the code first, then the records."""
    print(form.name())
    for seed in map(int, arguments):
        print(record(seed), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
