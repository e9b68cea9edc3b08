"""The latency with which consumers read data, as the document models it (section VI-C, equations 16 to 27).

Owns: the two queues of each consumer, and the distribution of latencies. Must never: decide which consumer reads what.

A consumer has a *fixed* queue, with items that it read before, and a *rebalanced* queue, with items that are new to it.
It reads from the rebalanced queue only after a pause of ``PAUSE_S``. Within an iteration, the latency of a queue rises
or falls linearly from byte to byte. So this module stores a distribution as pieces. The latencies of a piece's bytes
are evenly distributed between two values.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ingeborg.autoscaler.groups.instance import NOWHERE
from ingeborg.bench.packing.streams import CAPACITY

ITERATION_S: Final = 30.0
PAUSE_S: Final = 5.0

#: A consumer's highest rate. A bin's capacity is lower, so that a consumer can catch up (section VI-C: C = 5/6 of
#: this).
CONSUMED: Final = CAPACITY * ITERATION_S / (ITERATION_S - PAUSE_S)

PERCENTILES: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)

#: Width of a histogram's step in seconds. The last step counts all greater latencies.
STEP_S: Final = 0.5
STEPS: Final = 100


class Piece(NamedTuple):
    """A number of bytes (``weight``) whose latencies are evenly distributed from ``low`` to ``high``, in seconds."""

    low: float
    high: float
    weight: float


class Latencies(NamedTuple):
    """A distribution of latencies.

    Attributes:
        late: share of the bytes whose latency is above 0.
        over_all: percentiles (``PERCENTILES``) of the latencies of all bytes.
        over_positive: the same percentiles for the late bytes only, or ``None`` if no byte is late.
        most: the greatest latency.
        histogram: share of all bytes that are late and whose latency is in each of the ``STEPS`` steps.
    """

    late: float
    over_all: list[float]
    over_positive: list[float] | None
    most: float
    histogram: list[float]


def by_count(items: int, consumers: int, seed: int) -> list[int]:
    """Return Kafka's assignment, which never changes: each consumer has the same number of random items (``kd_k`` in
    section VI-C)."""
    order = list(range(items))
    random.Random(f"kd {seed}").shuffle(order)
    where = [NOWHERE] * items
    for place, item in enumerate(order):
        where[item] = place % consumers
    return where


def latencies(stream: Sequence[Sequence[float]], assignments: Sequence[Sequence[int]]) -> Latencies:
    """Return the latencies of a stream whose items are read according to ``assignments``, which has one entry for each
    measurement. An item that is read for the first time does not count as rebalanced, because only a changed assignment
    causes a pause."""
    pieces: list[Piece] = []
    behind: dict[int, float] = {}  # by consumer, in seconds, at the end of an iteration (equation 20)
    former: Sequence[int] = ()
    for sizes, where in zip(stream, assignments, strict=True):
        fixed: dict[int, float] = {}
        rebalanced: dict[int, float] = {}
        for item, consumer in enumerate(where):
            queue = rebalanced if former and former[item] not in (NOWHERE, consumer) else fixed
            queue[consumer] = queue.get(consumer, 0.0) + sizes[item]
        now_behind: dict[int, float] = {}
        for consumer in sorted({*fixed, *rebalanced}):
            written, moved = fixed.get(consumer, 0.0), rebalanced.get(consumer, 0.0)
            read = min(CONSUMED, written) if moved else CONSUMED
            begin = behind.get(consumer, 0.0)
            if written:
                # Equation 19 times equation 21 is the rise of the line over an iteration.
                end = begin + ITERATION_S * (written / read - 1.0)
                pieces += _above_zero(begin, end, ITERATION_S * written)
                now_behind[consumer] = max(0.0, end)
            if moved:
                left = CONSUMED - read
                end = PAUSE_S + ITERATION_S * (moved / left - 1.0) if left > 0.0 else ITERATION_S
                pieces += _above_zero(PAUSE_S, end, ITERATION_S * moved)
        behind, former = now_behind, where
    return distribution(pieces)


def _above_zero(begin: float, end: float, weight: float) -> Iterable[Piece]:
    """Yield the part of the line above 0 unchanged, and the rest with latency 0 (equations 22 and 27)."""
    low, high = min(begin, end), max(begin, end)
    if low >= 0.0:
        yield Piece(low, high, weight)
    elif high <= 0.0:
        yield Piece(0.0, 0.0, weight)
    else:
        part = high / (high - low)
        yield Piece(0.0, high, weight * part)
        yield Piece(0.0, 0.0, weight * (1.0 - part))


def distribution(pieces: Sequence[Piece]) -> Latencies:
    """Return the distribution of the latencies of all pieces together."""
    total = sum(piece.weight for piece in pieces)
    late = [piece for piece in pieces if piece.high > 0.0]
    positive = sum(piece.weight for piece in late)
    wanted = [(1.0 - part) * positive for part in PERCENTILES]
    wanted += [(1.0 - part) * total for part in PERCENTILES]
    found = _above(late, wanted)
    histogram = [0.0] * STEPS
    for low, high, weight in late:
        first, last = min(STEPS - 1, int(low / STEP_S)), min(STEPS - 1, int(high / STEP_S))
        for step in range(first, last + 1):
            top = high if step == STEPS - 1 else min(high, (step + 1) * STEP_S)
            share = (top - max(low, step * STEP_S)) / (high - low) if high > low else 1.0
            histogram[step] += weight * share / total
    return Latencies(
        late=positive / total if total else 0.0,
        over_positive=found[: len(PERCENTILES)] if positive else None,
        over_all=found[len(PERCENTILES) :],
        most=max((piece.high for piece in late), default=0.0),
        histogram=histogram,
    )


def _above(pieces: Sequence[Piece], weights: Sequence[float]) -> list[float]:
    """For each number of bytes in ``weights``, return the latency that exactly this number of bytes exceeds, or 0 if
    fewer bytes are late."""
    changes: list[tuple[float, float, float]] = []  # negated latency; change of density; bytes exactly there
    for low, high, weight in pieces:
        if high > low:
            density = weight / (high - low)
            changes += [(-high, density, 0.0), (-low, -density, 0.0)]
        else:
            changes.append((-low, 0.0, weight))
    changes.sort()
    order = sorted(range(len(weights)), key=lambda index: weights[index])
    found = [0.0] * len(weights)
    above = density = 0.0
    at = changes[0][0] if changes else 0.0
    next_wanted = 0
    for place, change, atom in changes:
        reached = above + density * (place - at)
        while next_wanted < len(order) and weights[order[next_wanted]] <= reached:
            needed = weights[order[next_wanted]] - above
            found[order[next_wanted]] = -(at + (needed / density if density > 0.0 else 0.0))
            next_wanted += 1
        above, at = reached + atom, place
        density += change
        while next_wanted < len(order) and weights[order[next_wanted]] <= above:
            found[order[next_wanted]] = -place
            next_wanted += 1
    return found


def mean_consumers(assignments: Sequence[Sequence[int]]) -> float:
    """Return the mean number of consumers, which is the operational cost (figure 6)."""
    return sum(len(set(where)) for where in assignments) / len(assignments)


def summary(one: Latencies, consumers: float) -> Mapping[str, object]:
    """Return the distribution as a row, with values rounded to a useful precision."""
    return {
        "consumers": round(consumers, 3),
        "late": round(one.late, 6),
        "over_all": [round(value, 4) for value in one.over_all],
        "over_positive": one.over_positive and [round(value, 4) for value in one.over_positive],
        "most": round(one.most, 3),
        "histogram": [round(value, 6) for value in one.histogram],
    }
