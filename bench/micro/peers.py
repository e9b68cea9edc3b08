"""Measure the cost that each peer adds to an endpoint's event loop, even without messages.

    python -m ingeborg.bench.micro.peers [--peers 1,3,9,99,999]

Owns: the lines of docs/scaling.md on costs that grow with the number of endpoints. The program links one router to
simulated peers. Each figure is the minimum of five measurements. The program takes half a minute. Must never: be
collected as a test.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence

import ormsgpack

from ingeborg.broker.core.cluster import homes
from ingeborg.broker.core.model import Endpoint
from ingeborg.broker.core.router import Router
from ingeborg.protocol.hashes import SLOTS

REPEATS = 5


def least_us(do: Callable[[], object], times: int = 1) -> float:
    """Return the microseconds of one call. Five series of ``times`` calls are measured, and the smallest mean
    counts."""
    found = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        for _ in range(times):
            do()
        found.append((time.perf_counter() - begun) / times * 1e6)
    return min(found)


def linked(peers: int) -> tuple[Router, list[Endpoint]]:
    """Return the router of an endpoint with an open link to each peer, and the peers."""
    me = Endpoint("endpoint 0", f"{0:016x}", "ws://127.0.0.1:1", 0)
    others = [Endpoint(f"endpoint {number}", f"{number:016x}", me.url, 1) for number in range(1, peers + 1)]
    router = Router(me, 0.0)
    router.members.registry(others, 0.0, 0.0)
    for peer in others:
        router.link_up(peer, 0.0)
        router.link_frame(peer.incarnation, ormsgpack.packb(["open", f"its {peer.name}", None, 0]), 0.0)
    router.flush(0.0)
    return router, others


def measure(peers: int) -> tuple[float, float, float, float, float]:
    """Return four times in microseconds: those of an idle turn, of a turn that pings every peer, of a registry read,
    and of computing the table of homes. The last value is the number of slots of the fullest home, divided by the
    mean."""
    router, others = linked(peers)

    def ping() -> None:
        router.mesh.ping()  # a tick does this every half second
        router.flush(0.0)

    beat = iter(range(2, 2 + REPEATS))

    def read() -> None:
        heartbeat = next(beat)
        router.members.registry([peer._replace(heartbeat=heartbeat) for peer in others], 0.1, 0.1)

    members = [(peer.name, peer.incarnation) for peer in (router.me, *others)]

    newcomers = iter(range(REPEATS))

    def draw() -> None:
        homes.home_table([*members, (f"newcomer {next(newcomers)}", "")])  # not cached

    fullest = max(Counter(homes.home_table(members)).values()) * len(members) / SLOTS
    return (
        least_us(lambda: router.flush(0.0), times=max(20_000 // peers, 5)),
        least_us(ping),
        least_us(read),
        least_us(draw),
        fullest,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peers", default="1,3,9,99,999")
    options = parser.parse_args(arguments)
    print("endpoints    idle turn   ping turn   registry read   home_table   fullest home")
    for peers in map(int, options.peers.split(",")):
        flush, ping, read, draw, fullest = measure(peers)
        print(
            f"{peers + 1:>9} {flush:9.1f} us {ping / 1000:8.2f} ms {read / 1000:12.2f} ms"
            f" {draw / 1000:9.0f} ms {fullest:10.2f} x",
            flush=True,
        )


if __name__ == "__main__":
    main()
