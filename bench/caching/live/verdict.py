"""Compare the answers that subscribers got with the due answers: every matching record once, in order, with its
payload.

Owns: the deliveries as rows, and their faults. Must never: leave a delivery out, or repair a delivery.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

from ingeborg.bench.caching.live.messages import Head, head_of, records_of
from ingeborg.bench.caching.live.subscribing import Got

SHOWN_MAX: Final = 3
"""Maximum number of faults in the text. Further faults are only counted."""


class Batch(NamedTuple):
    """An answer of the broker: its subscriber, its time of arrival, its head, and its records."""

    subscriber: int
    at_ns: int
    head: Head
    numbers: array[int]


def batches(got: Sequence[Got], payloads: Sequence[bytes]) -> tuple[list[Batch], list[str]]:
    """Return the answers in the order of arrival, and the faults of their payloads."""
    found, faults = [], []
    for subscriber, at_ns, message in got:
        head = head_of(message)
        records = records_of(message)
        if len(records) != head.records:
            faults.append(f"subscriber {subscriber} got {len(records)} records in an answer that says {head.records}")
        for number, payload in records:
            if not 0 <= number < len(payloads) or payloads[number] != payload:
                faults.append(f"subscriber {subscriber} got a record {number} that nobody has published")
        found.append(Batch(subscriber, at_ns, head, array("l", [number for number, _ in records])))
    return found, faults


def faults_of(made: Sequence[Batch], owed: Sequence[Sequence[int]]) -> list[str]:
    """Return the faults of each subscriber's deliveries."""
    got: list[list[int]] = [[] for _ in owed]
    for batch in made:
        got[batch.subscriber].extend(batch.numbers)
    faults = []
    for subscriber, (numbers, wanted) in enumerate(zip(got, owed, strict=True)):
        if numbers == list(wanted):
            continue
        once = set(numbers)
        lost, strange = len(set(wanted) - once), len(once - set(wanted))
        parts = {"lost": lost, "not for it": strange, "more than once": len(numbers) - len(once)}
        told = [f"{count} {what}" for what, count in parts.items() if count] or ["in another order"]
        faults.append(f"subscriber {subscriber}: {', '.join(told)}, of {len(wanted)} records")
    return faults


def summary(faults: Sequence[str]) -> str:
    """Summarise the faults in a line, which is empty if there are none."""
    more = len(faults) - SHOWN_MAX
    return "; ".join([*faults[:SHOWN_MAX], *([f"and {more} more"] if more > 0 else [])])
