"""Measure bounds under load: the age of each preset's messages, the greatest sustainable rate, and an overload.

    python -m ingeborg.bench.budgets.overload [--rounds 3]

20 subscribers subscribe to all 100 topics: 4 with the preset `live`, 6 with `screen` and 10 with `wall`. One connection
publishes. The endpoint runs on the first core, and everything else on the second. Each round raises the rate until
messages are too old for their subscribers. It does so once without bounds, and once while all subscribers have bounds.
Then the load rises from 50 % to 150 % of the greatest rate without bounds, and stays there. At the end of a round, at
90 % and 150 % of that rate, 16 subscribers with a staleness of 500 ms are compared with 4 subscribers without bounds.
The endpoint must not hold a message for longer than 500 ms. A round takes five minutes.
"""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from .bounds import spread
from .floor import Floor, Load, Sample, constant, floor
from .model import Check, command

ROUNDS = 3

#: The presets, the number of subscribers of each preset, and the age in seconds that each preset allows.
PRESETS = (("live", 4, 0.05), ("screen", 6, 1.0), ("wall", 10, 5.0))
#: A rate is too high if 1 % of a preset's messages exceed the age that the preset allows by more than this number of
#: seconds.
LATE_S = 0.1
RATE_FIRST, RATE_MAX, STEP, TRIED_S = 2_000.0, 200_000.0, 1.5, 4.0

#: The overload: its highest rate as a multiple of the greatest rate without bounds, the seconds until the load reaches
#: that rate, and the seconds of the whole load.
OVERLOAD, RISE_S, OVERLOAD_S = 1.5, 10.0, 30.0
#: The level has to be back at 0 within this number of seconds after the last message.
QUIET_S = 10.0
#: Seconds to wait for the last message.
SETTLE_S = 60.0

#: Settings for measuring how exactly an endpoint keeps to a staleness: the rule, the loads as shares of the greatest
#: rate, and the length of each load in seconds. The lag of a message is the greatest age that a subscriber without
#: bounds saw within ``AROUND_S`` seconds of the message's arrival.
EXACT: dict[str, Any] = {"prefix": "", "staleness_ms": 500, "priority": -1}
EXACT_SHARES, EXACT_S, AROUND_S = (0.9, 1.5), 8.0, 0.05
#: A message is late if its age exceeds staleness plus lag by more than ``BEYOND_S`` seconds. At most this share of the
#: messages may be late.
BEYOND_S, BEYOND_SHARE = 0.01, 0.001

STEERED, LIVE_P99_S = 1.25, 0.05


class Age(NamedTuple):
    """The ages of a preset's probes: the seconds from the planned publish to the arrival. ``p99`` is their 99th
    percentile. ``excess`` is ``p99`` minus the age that the preset allows."""

    preset: str
    p99: float
    excess: float


def ages(load: Load) -> list[Age]:
    """Return the ages of each preset."""
    found = []
    for (name, _, allowed), probes in zip(PRESETS, load.probes, strict=True):
        sorted_ages = sorted(came - planned for planned, came in probes)
        p99 = sorted_ages[int(0.99 * len(sorted_ages))] if sorted_ages else math.inf
        found.append(Age(name, p99, p99 - allowed))
    return found


def preset(number: int) -> str:
    """Return the preset of a subscriber."""
    names = [name for name, count, _ in PRESETS for _ in range(count)]
    return names[number]


def line(kind: str, rate: float, seconds: float, load: Load) -> str:
    """Return the line that reports a load."""
    fresh = ", ".join(f"{age.preset} {age.p99 * 1000:,.1f} ms" for age in ages(load))
    level = max(sample.level for sample in load.samples)
    share = load.cpu_s / seconds
    return (
        f"{kind}, {rate:,.0f}/s: p99 {fresh}; {share:.0%} of a core, generator {load.generator:.0%}, level {level:.0f}"
    )


async def greatest(clients: Floor, kind: str) -> float:
    """Return the greatest rate at which no subscriber's messages were too old."""
    await clients.bind(preset if kind == "bounds" else lambda _: [])
    rate, best = RATE_FIRST, 0.0
    while rate <= RATE_MAX:
        load = await clients.load(constant(rate), TRIED_S, SETTLE_S)
        print(line(kind, rate, TRIED_S, load), flush=True)
        if not load.is_whole or max(age.excess for age in ages(load)) > LATE_S:
            break
        best = rate
        rate *= STEP
    await asyncio.sleep(QUIET_S)  # the endpoint returns to level 0 in this time
    return best


class Overload(NamedTuple):
    """The result of the overload. ``ages`` has the ages of all probes, by preset. ``back_s`` is the number of seconds
    from the last message until the level was 0. ``is_steady`` says that the level never rose after the last message."""

    ages: list[Age]
    back_s: float
    is_steady: bool


async def overload(clients: Floor, rate: float) -> Overload:
    """Overload the endpoint, and wait until its level is 0 again."""
    await clients.bind(preset)
    top = OVERLOAD * rate
    load = await clients.load(lambda at: min(top, 0.5 * rate + (top - 0.5 * rate) * at / RISE_S), OVERLOAD_S, SETTLE_S)
    print(line("overload", top, OVERLOAD_S, load), flush=True)
    quiet: list[Sample] = []
    await clients.sample(quiet, 2 * QUIET_S)
    levels = [sample.level for sample in quiet]
    back_s = next((sample.at_s for sample in quiet if not sample.level), math.inf)
    return Overload(ages(load), back_s, all(later <= sooner for sooner, later in pairwise(levels)))


def beyond(load: Load, staleness_s: float) -> float:
    """Return the share of the probes that were held for too long. The first counting subscriber has no bounds."""
    lags = sorted((came, came - planned) for planned, came in load.probes[0])
    times = [came for came, _ in lags]
    late = total = 0
    for planned, came in (probe for probes in load.probes[1:] for probe in probes):
        around = lags[bisect_left(times, came - AROUND_S) : bisect_right(times, came + AROUND_S)]
        lag_s = max((age for _, age in around), default=0.0)
        total += 1
        late += came - planned > staleness_s + lag_s + BEYOND_S
    return late / max(total, 1)


async def exactness(clients: Floor, rate: float) -> float:
    """Return the share of the messages that the endpoint held for too long when publishes came at this rate."""
    await clients.bind(lambda number: [] if preset(number) == "live" else [EXACT])
    load = await clients.load(constant(rate), EXACT_S, SETTLE_S)
    await asyncio.sleep(QUIET_S)
    found = beyond(load, EXACT["staleness_ms"] / 1000)
    level = max(sample.level for sample in load.samples)
    print(f"staleness 500 ms, {rate:,.0f}/s: {found:.3%} too late, level {level:.0f}", flush=True)
    return found


async def measure(rounds: int) -> list[Check]:
    """Measure everything. Raises ``BenchError`` if the endpoint does not answer, or closes a connection."""
    found: dict[str, list[float]] = {"plain": [], "bounds": []}
    over: list[Overload] = []
    late: dict[float, list[float]] = {share: [] for share in EXACT_SHARES}
    async with floor() as clients:
        for number in range(rounds):
            for kind in list(found)[:: -1 if number % 2 else 1]:
                found[kind].append(await greatest(clients, kind))
            over.append(await overload(clients, found["plain"][-1]))
            for share in EXACT_SHARES:
                late[share].append(await exactness(clients, share * found["plain"][-1]))
    return [*checks(found["plain"], found["bounds"], over), *map(exact_check, late, late.values())]


def checks(plain: Sequence[float], bounds: Sequence[float], over: Sequence[Overload]) -> list[Check]:
    """Compare the figures with their goals."""
    gain = [with_bounds / without for without, with_bounds in zip(plain, bounds, strict=True)]
    text = f"{spread(gain, '.2f')} of {spread(plain, ',.0f')} publishes per second"
    rows = [
        Check("greatest rate with bounds, relative to without", f"at least {STEERED}", text, median(gain) >= STEERED)
    ]
    p99 = [one.ages[0].p99 * 1000 for one in over]
    goal = f"at most {LIVE_P99_S * 1000:.0f} ms"
    rows.append(Check("p99 of `live` at 150 %", goal, f"{spread(p99, '.0f')} ms", median(p99) <= LIVE_P99_S * 1000))
    back = [one.back_s for one in over]
    is_steady = all(one.is_steady for one in over)
    text = f"{spread(back, '.1f')} s, {'without' if is_steady else 'with'} a rise after the load"
    rows.append(
        Check("time to level 0 after the load", f"within {QUIET_S:.0f} s", text, max(back) <= QUIET_S and is_steady)
    )
    return rows


def exact_check(share: float, late: Sequence[float]) -> Check:
    """Compare the share of messages that were held for too long with the goal."""
    figure = f"messages more than {BEYOND_S * 1000:.0f} ms older than staleness plus lag, at {share:.0%} load"
    return Check(figure, f"at most {BEYOND_SHARE:.1%}", spread(late, ".3%"), median(late) <= BEYOND_SHARE)


if __name__ == "__main__":
    command(__doc__, measure, "rounds", ROUNDS)
