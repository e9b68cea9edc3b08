"""A reconnect storm: one of several endpoints is killed, and all its clients listen again at the others.

    python -m ingeborg.bench.budgets.storm [--clients 20000] [--endpoints 4]

Endpoints over one embedded store; clients of the client library in their own processes, each listening and subscribed
to its own topic, with the endpoints in another order than its neighbours. One endpoint is killed (SIGKILL, and nobody
starts it again). Measured from then: until a client listens elsewhere, and until it gets a message published to its
topic after that. Messages published in between are missed, as the protocol says (SPEC, section 9). About a minute;
clients and endpoints share this machine, so it is the time of both sides.
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
#: Clients that are not back after this time stay away.
_STORM_S_MAX = 120.0
#: For connecting and subscribing one process' clients, on a busy machine.
_CONNECT_S_MAX = 180.0
#: For the answer, beyond ``_STORM_S_MAX``.
_ANSWER_S = 30.0


class Found(NamedTuple):
    """``victims``: clients of the killed endpoint; ``back_s``, ``got_s``: seconds from the kill until one listened
    again and until it got a message, sorted; ``went_to``: how many to each endpoint; ``lost_again``: how many of their
    connections were lost once more; ``others``, ``others_lost``: clients of the other endpoints, and how many lost
    their connections; ``repeated``: messages that had to be sent again; ``refused``: publishes that failed."""

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
    """Measure one storm. ``BenchError``."""
    # Open files of an endpoint when another one is dead, and of a process of clients.
    allow_files(max(-(-clients // (endpoints - 1)), min(clients, CLIENTS_MAX)) + OTHER_FILES)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        serve = ("serve", "--port", "0", "--store", f"lmdb:{folder}/store")
        # Do not use `serve --endpoints`: that would start the killed one again.
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
    """Judge whether all clients are back in time, and no other client was disturbed."""
    got = len(found.got_s)
    text = f"{got:,} of {found.victims:,} in {found.got_s[-1]:.1f} s" if got else f"none of {found.victims:,}"
    all_in_time = got == found.victims and found.got_s[-1] <= GOAL_S
    return [
        Check(
            "reconnect storm: clients of a killed endpoint that listen again, and got a message",
            f"all in {GOAL_S:g} s",
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
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, default=20_000)
    parser.add_argument("--endpoints", type=int, default=4)
    options = parser.parse_args()
    if options.endpoints < 2 or options.clients < options.endpoints:
        parser.error("at least two endpoints, and a client for each")
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
