"""Short runs of `loadgen causal`, and the late deliveries in them.

Owns: how a run is made and judged here, by the sets of all messages on which each message depends.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from ..bench.causality import plain
from ..bench.causality.plain import Message
from ..bench.synthetic import Row
from .generator import Generator

#: One publishing connection: it asks, and answers when it has received its own question.
ALONE = ("--rooms", "1", "--speakers", "1", "--answers", "1")
SHORT = ("--duration-s", "1", "--rate", "80")

Violations = dict[tuple[int, Message], set[Message]]


async def causal(out: Path, *arguments: str, urls: list[str], system: str = "ingeborg") -> tuple[list[Row], Violations]:
    """Return the events of a run that lost nothing, and its late deliveries."""
    *before, last = urls  # the generator's last URL
    more = [word for url in before for word in ("--url", url)]
    async with Generator(last, out, "causal", "--system", system, *more, *SHORT, *arguments) as generator:
        code, complained = await generator.ended()
    assert (code, complained) == (0, ""), generator.said
    assert generator.facts["complete"] is True
    log = plain.log(out)
    return [row for part in log.parts for row in part], plain.violations(plain.told(log))


def kinds(events: list[Row]) -> Counter[str]:
    return Counter(row[8] or row[0] for row in events)


async def of_one_publisher(out: Path, system: str, url: str) -> Violations:
    """Return the late deliveries, if one connection asks and answers."""
    events, late = await causal(out, *ALONE, system=system, urls=[url])
    assert kinds(events)["causal"] == 160
    return late
