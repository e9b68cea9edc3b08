"""What a publish to a topic of 100,000 subscribers on several endpoints costs, and for how long it keeps a loop.

    python -m tests.broker.measure_large_set [--subscribers 100000] [--endpoints 3]

Owns: the figures of docs/adr/0011. The routers are the real ones; network, store and clients are the simulator's, so
that processes do not take each other's core while the time is taken, and the system calls of sending are not in it.
Once as it is, and once without lists that are kept. Two minutes. Must never: be collected as a test.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

from ingeborg.broker.core.limits import SIZES, Sizes
from tests.simulator.world import Node

from .core.talk import Cluster, parse

MESSAGES = 5


class Watched:
    """A node's router, each call of which is timed."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.reset()
        for name in ("flush", "work", "tick", "link_frame", "stored", "frame"):
            setattr(node.router, name, self._timed(getattr(node.router, name)))

    def reset(self) -> None:
        self.longest_ms = self.sum_ms = 0.0

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            begun = time.perf_counter()
            try:
                return call(*arguments)
            finally:
                took_ms = (time.perf_counter() - begun) * 1000
                self.sum_ms += took_ms
                self.longest_ms = max(self.longest_ms, took_ms)

        return timed


def _forget(data: bytes) -> None:
    pass


def measure(subscribers: int, endpoints: int, sizes: Sizes = SIZES) -> None:
    """Print the figures of a first message and of later ones."""
    names = [f"endpoint {number}" for number in range(endpoints)]
    cluster = Cluster(*names, sizes=sizes)
    nodes = [cluster.nodes[name] for name in names]
    topic = cluster.topic_at(names[0])
    world = cluster.world
    crowds = [cluster.client("0", name) for name in names]
    for place, crowd in enumerate(crowds):
        crowd.get = _forget  # type: ignore[method-assign]  # a hundred thousand clients keep nothing
        for number in range(place, subscribers, endpoints):
            crowd.send(command="listen", client_id=f"client {number:07}")
    world.run(60.0)
    clients = {f"client {number:07}" for number in range(subscribers)}
    # A plain set, for the simulator's own costs the sorting.
    world.store.subscribers = lambda topics: ([set(clients) for _ in topics], {})  # type: ignore[method-assign]
    publisher = cluster.client("publisher", names[0])
    sent_bytes = 0
    send_link = world.send_link

    def counting(sender: str, receiver: str, frame: bytes) -> None:
        nonlocal sent_bytes
        sent_bytes += len(frame)
        send_link(sender, receiver, frame)

    world.send_link = counting  # type: ignore[method-assign]
    publisher.say(f"publish {topic} 'warm'")
    world.run(5.0)
    watched = [Watched(node) for node in nodes]
    gc.collect()
    gc.freeze()
    gc.disable()
    for number in range(MESSAGES):
        sent_bytes = 0
        for each in watched:
            each.reset()
        publisher.send(**parse(f"publish {topic} '{number}'"))
        world.run(5.0)
        home, *others = watched
        print(
            f"  message {number + 1}: {sent_bytes:>9,} B over links; CPU {home.sum_ms:6.1f} ms at the home,"
            f" {max(each.sum_ms for each in others):6.1f} ms at another; longest call {home.longest_ms:4.1f}"
            f" and {max(each.longest_ms for each in others):4.1f} ms"
        )
    gc.enable()
    gc.unfreeze()


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--subscribers", type=int, default=100_000)
    parser.add_argument("--endpoints", type=int, default=3)
    options = parser.parse_args(arguments)
    print(f"{options.subscribers:,} subscribers at {options.endpoints} endpoints, as it is:")
    measure(options.subscribers, options.endpoints)
    print("with the list in every message:")
    measure(options.subscribers, options.endpoints, Sizes(list_ids_max=0))


if __name__ == "__main__":
    main()
