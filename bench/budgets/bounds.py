"""Measure how much CPU time bounds save: the same publishes go to subscribers without bounds and with an interval.

    python -m ingeborg.bench.budgets.bounds [--rounds 5]

20 subscribers subscribe to all 100 topics, and one connection publishes. One endpoint runs on the first core, and
everything else on the second. The figures are the CPU times that the endpoint uses for the same deliveries, at a low
rate and at a high rate. At each rate, subscribers first have no bounds, then `interval_ms` 250 and `all`, and then
`interval_ms` 250 and `latest`. The last two loads compare a short interval with a long one. With the short interval,
the endpoint has to hold up to 0.8 times its limit of held messages. With the long interval, it would have to hold up to
1.6 times that limit. The program takes six minutes on an idle machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from ingeborg.bench.errors import BenchError

from .floor import FANOUT, Floor, constant, floor
from .model import Check, command

ROUNDS = 5

#: The publishes per second of the two loads, and the length of each load in seconds.
RATES, LOAD_S = (600, 3_000), 4.0
INTERVAL = {"prefix": "", "interval_ms": 250}
KINDS: dict[str, list[dict[str, Any]]] = {
    "plain": [],
    "all": [INTERVAL],
    "latest": [{**INTERVAL, "deliver": "latest"}],
}
#: The goals: `all` and `latest` each have to save this share of the CPU time.
SAVED = {"all": 0.30, "latest": 0.45}

#: The limit of held messages (SPEC section 1.4).
HELD_MAX = 200_000
#: The rate and length of the load that reaches this limit, and its two intervals. They would make the endpoint hold up
#: to 0.8 times and 1.6 times the limit.
HELD_RATE, HELD_S = 3_000, 15.0
HELD = {
    share: [{"prefix": "", "interval_ms": round(share * HELD_MAX / (HELD_RATE * FANOUT) * 1000)}]
    for share in (0.8, 1.6)
}


async def per_delivery(clients: Floor, rules: Any, rate: float, seconds: float) -> float:
    """Return the endpoint's CPU time per message and subscriber, in microseconds. Raises ``BenchError`` if a message is
    missing."""
    await clients.bind(lambda _: rules)
    load = await clients.load(constant(rate), seconds, 30.0)
    if not load.is_whole:
        raise BenchError(f"{rules}: not every message arrived")
    return load.cpu_s / (load.published * FANOUT) * 1e6


async def alternately(
    clients: Floor, kinds: Mapping[Any, Any], rounds: int, rate: float, seconds: float
) -> dict[Any, list[float]]:
    """Return the CPU times of each kind, one for each round. The kinds alternate."""
    found: dict[Any, list[float]] = {kind: [] for kind in kinds}
    for number in range(rounds):
        order = list(kinds)
        for kind in order if number % 2 else order[::-1]:
            found[kind].append(await per_delivery(clients, kinds[kind], rate, seconds))
    return found


async def measure(rounds: int) -> list[Check]:
    """Measure all loads. Raises ``BenchError`` if a message is missing or the endpoint does not answer."""
    checks: list[Check] = []
    async with floor() as clients:
        for rate in RATES:
            checks += interval_checks(await alternately(clients, KINDS, rounds, rate, LOAD_S), rate)
        checks.append(held_check(await alternately(clients, HELD, rounds, HELD_RATE, HELD_S)))
    return checks


def spread(values: Sequence[float], form: str) -> str:
    """Return the median, and the range of all values."""
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def interval_checks(found: Mapping[str, Sequence[float]], rate: float) -> list[Check]:
    """Compare each kind with ``plain``, round by round."""
    rows = []
    for kind, goal in SAVED.items():
        saved = [1 - with_us / plain_us for with_us, plain_us in zip(found[kind], found["plain"], strict=True)]
        text = f"{spread(saved, '.0%')} of {spread(found['plain'], '.2f')} us per due delivery"
        figure = f"CPU of the endpoint saved by interval_ms 250, {kind}, {rate} publishes per second"
        rows.append(Check(figure, f"at least {goal:.0%}", text, median(saved) >= goal))
    return rows


def held_check(found: Mapping[float, Sequence[float]]) -> Check:
    """Compare a load that exceeds the limit of held messages with one below it."""
    below, above = (found[share] for share in sorted(found))
    price = [above_us / below_us for below_us, above_us in zip(below, above, strict=True)]
    text = f"{spread(price, '.2f')} times {spread(below, '.2f')} us per due delivery"
    return Check("CPU per delivery above the limit of held messages", "at most 1.00", text, median(price) <= 1.0)


if __name__ == "__main__":
    command(__doc__, measure, "rounds", ROUNDS)
