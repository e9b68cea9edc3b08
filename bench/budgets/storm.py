"""Measure a reconnect storm: one of several endpoints is killed, and all its clients listen again at the others.

    python -m ingeborg.bench.budgets.storm [--clients 20000] [--endpoints 4]

The endpoints share one embedded store. The clients use the client library, in processes of their own. Each client
listens and is subscribed to its own topic. Clients try the endpoints in different orders. One endpoint is killed with
SIGKILL, and is not started again. Two times are measured from the kill. The first ends when a client listens elsewhere.
The second ends when the client gets a message that was published to its topic after it listened again. Clients miss
messages that are published before they listen again, as the protocol says (SPEC, section 9). The program takes about a
minute. Clients and endpoints share this machine, so the times include the work of both sides.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections import Counter
from typing import NamedTuple

import uvloop

from ingeborg.bench.errors import BenchError

from .clients import CLIENTS_MAX, OTHER_FILES, all_told, allow_files, shares, started_clients
from .light import started
from .model import Check, measured, show

GOAL_S = 30.0
#: Clients that are not back after this time, in seconds, count as lost.
_STORM_S_MAX = 120.0
#: Time limit for one process to connect and subscribe its clients on a busy machine, in seconds.
_CONNECT_S_MAX = 180.0
#: A process has to answer within ``_STORM_S_MAX`` plus this number of seconds.
_ANSWER_S = 30.0


class Found(NamedTuple):
    """The result of a storm. ``victims`` is the number of clients of the killed endpoint. ``back_s`` and ``got_s`` are
    the sorted seconds from the kill until each of these clients listened again, and until it got a message. ``went_to``
    says how many of the victims moved to each endpoint, and ``lost_again`` how many of their new connections were lost.
    ``others`` is the number of clients of the other endpoints, and ``others_lost`` is the number of these clients that
    lost their connections. ``repeated`` counts messages that had to be sent again, and ``refused`` counts publishes
    that failed."""

    victims: int
    back_s: list[float]
    got_s: list[float]
    went_to: list[int]
    lost_again: int
    others: int
    others_lost: int
    repeated: int
    refused: int


async def measure(clients: int, endpoints: int) -> Found:
    """Measure one storm. Raises ``BenchError``."""
    # Allow enough open files for a process of clients. Also allow enough for an endpoint that accepts its share of all
    # clients while another endpoint is dead.
    allow_files(max(-(-clients // (endpoints - 1)), min(clients, CLIENTS_MAX)) + OTHER_FILES)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        serve = ("serve", "--port", "0", "--store", f"lmdb:{folder}/store")
        # Do not use `serve --endpoints`, because that would start the killed endpoint again.
        servers = [stack.enter_context(started("ingeborg.broker.command.cli", *serve)) for _ in range(endpoints)]
        urls = [url for url, _ in servers]
        assignments = [{"urls": urls, "numbers": share} for share in shares(clients)]
        async with started_clients("ingeborg.bench.budgets.storm_clients", assignments) as processes:
            await all_told(processes, _CONNECT_S_MAX)
            victim_url, victim = servers[0]
            for process in processes:
                process.tell({"victim": victim_url, "within_s": _STORM_S_MAX})
            victims = sum(answer["victims"] for answer in await all_told(processes, _ANSWER_S))
            if not victims:
                raise BenchError("the endpoint that is to be killed has no clients")
            killed_ns = time.monotonic_ns()
            victim.kill()
            answers = await all_told(processes, _STORM_S_MAX + _ANSWER_S)

    def since_s(name: str) -> list[float]:
        return sorted((at_ns - killed_ns) / 1e9 for answer in answers for at_ns in answer[name])

    went_to: Counter[str] = Counter()
    for answer in answers:
        went_to.update(answer["went_to"])
    names = ("lost_again", "others", "others_lost", "repeated", "refused")
    lost_again, others, others_lost, repeated, refused = (sum(answer[name] for answer in answers) for name in names)
    return Found(
        victims,
        since_s("back_ns"),
        since_s("got_ns"),
        [went_to[url] for url in urls[1:]],
        lost_again,
        others,
        others_lost,
        repeated,
        refused,
    )


def checks(found: Found) -> list[Check]:
    """Check that all clients are back in time, and that no other client was disturbed."""
    got = len(found.got_s)
    text = f"{got:,} of {found.victims:,} in {found.got_s[-1]:.1f} s" if got else f"none of {found.victims:,}"
    all_in_time = got == found.victims and found.got_s[-1] <= GOAL_S
    return [
        Check(
            "reconnect storm: clients of a killed endpoint that listen again and have got a message",
            f"all within {GOAL_S:g} s",
            text,
            all_in_time,
        ),
        Check(
            "clients of the other endpoints that lost their connections meanwhile",
            "none",
            f"{found.others_lost:,} of {found.others:,}",
            found.others_lost == 0,
        ),
    ]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, default=20_000)
    parser.add_argument("--endpoints", type=int, default=4)
    options = parser.parse_args()
    if options.endpoints < 2 or options.clients < options.endpoints:
        parser.error("give at least two endpoints, and at least one client for each")
    print(measured(), flush=True)
    try:
        found = uvloop.run(measure(options.clients, options.endpoints))
    except BenchError as error:
        parser.exit(1, f"{error}\n")
    for what, times in (("listens again", found.back_s), ("got a message", found.got_s)):
        if times:
            half, most = times[len(times) // 2], times[-1]
            print(f"{what:13}  first {times[0]:.2f} s  half {half:.2f} s  last {most:.2f} s")
    print("moved to      ", "  ".join(f"{count:,}" for count in found.went_to), " clients per endpoint")
    print(f"lost once more  {found.lost_again:,}; messages sent again  {found.repeated:,}; refused  {found.refused:,}")
    show(checks(found))


if __name__ == "__main__":
    main()
