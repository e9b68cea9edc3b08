"""The plan. It lists the streams and their number, and the algorithms that pack them.

Owns: the plan and its units, which run and are stored separately. Must never: run anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ingeborg.autoscaler.groups.instance import Instance, relabel
from ingeborg.autoscaler.groups.mend import mend
from ingeborg.autoscaler.groups.packing import DOCUMENT, Algorithm, Work
from ingeborg.bench.packing.streams import Reading, Start, drawn, hashed
from ingeborg.protocol.hashes import SLOTS

DELTAS: Final = (0.0, 5.0, 10.0, 15.0, 20.0, 25.0)

#: The deltas for which the document prints figures.
ENDS: Final = (5.0, 25.0)

#: Number of measurements in a stream (section VI-B), and in a stream for the comparison with Kafka's assignment
#: (section VI-C).
COUNT: Final = 500
LATENCY_COUNT: Final = 100
LATENCY_DELTA: Final = 5.0
LATENCY_ITEMS: Final = 32

#: Number of seeds for the document's own streams, and for the additional streams.
SEEDS: Final = 30
FEW_SEEDS: Final = 5

#: The solver searches for the optimum of every ``OPTIMUM_EVERY``-th measurement in ``OPTIMUM_SEEDS`` streams of each
#: delta.
OPTIMUM_EVERY: Final = 10
OPTIMUM_SEEDS: Final = 3

#: How many times each timed decision is made.
TIMED_TRIES: Final = 3

#: Algorithms whose latencies are computed, in addition to those of Kafka's assignment for each number of consumers.
LATENCY_OF: Final = ("MWF", "BFD", "mend")


def relabelled(instance: Instance) -> Work:
    """Pack with BFD, then renumber the bins to match the previous packing as well as possible. The result shows how
    much the choice of bin numbers alone saves."""
    where = yield from DOCUMENT["BFD"](instance)
    return relabel(instance, where)


ALGORITHMS: Final[Mapping[str, Algorithm]] = {**DOCUMENT, "BFD relabelled": relabelled, "mend": mend}

#: Algorithms that pack items in their order of arrival (section II-B). The document does not specify this order. With a
#: random order, the algorithms rank as in the document's figures. If the order is always the same, and new bins are
#: chosen as in section VI-A, fewer items move.
ONLINE: Final = ("NF", "FF", "BF", "WF")

#: Algorithms for a very large number of items.
FEW_ALGORITHMS: Final = ("NFD", "BFD", "MWF", "MBF", "MWFP", "MBFP", "mend")


@dataclass(frozen=True)
class Case:
    """Streams that differ only in their delta and their seed. ``exponent`` is the exponent of Zipf's law for topics
    that are hashed to slots, or 0 for the document's streams."""

    name: str
    items: int
    reading: Reading = Reading.CLAMPED
    start: Start = Start.RANDOM
    deltas: tuple[float, ...] = DELTAS
    count: int = COUNT
    seeds: int = SEEDS
    exponent: float = 0.0
    algorithms: tuple[str, ...] = tuple(ALGORITHMS)
    shuffled: bool = True
    """Whether the ``ONLINE`` algorithms get the items in random order. Otherwise the items come in the order of their
    numbers."""
    optimum: bool = False
    """Whether to search for the optimum, which is the smallest number of bins that suffices."""
    timed: bool = False
    """Whether to time each decision, in the slices in which a broker would make it."""

    def stream(self, delta: float, seed: int) -> Iterator[list[float]]:
        """Return one stream."""
        if self.exponent:
            return hashed(self.exponent, self.count, delta, seed)
        return drawn(self.items, self.count, delta, seed, self.reading, self.start)


def cases(seeds: int) -> list[Case]:
    """Return all cases, with ``seeds`` seeds for the document's own streams."""
    few = min(seeds, FEW_SEEDS)
    large = {"deltas": ENDS, "count": 10, "seeds": 1, "algorithms": FEW_ALGORITHMS, "timed": True}
    return [
        Case("32", 32, seeds=seeds, optimum=True),
        Case("200", 200, seeds=seeds),
        *(Case(f"{items} as written", items, Reading.AS_WRITTEN, deltas=ENDS, seeds=few) for items in (32, 200)),
        *(
            Case(f"{items} in order", items, shuffled=False, deltas=ENDS, seeds=few, algorithms=tuple(DOCUMENT))
            for items in (32, 200)
        ),
        *(
            Case(f"32 from {start}", 32, start=start, deltas=ENDS, seeds=few)
            for start in (Start.NOTHING, Start.HALF, Start.FULL)
        ),
        Case("4096", SLOTS, **large),  # type: ignore[arg-type]
        Case("4096 Zipf 1", SLOTS, exponent=1.0, **large),  # type: ignore[arg-type]
        Case("4096 Zipf 0.5", SLOTS, exponent=0.5, **large),  # type: ignore[arg-type]
    ]


@dataclass(frozen=True)
class Unit:
    """The work that one process does at a time and stores in its own files. ``case`` is ``None`` in the comparison with
    Kafka's assignment."""

    case: Case | None
    delta: float
    seed: int

    @property
    def name(self) -> str:
        """Return the name of the unit's files, without the suffix."""
        return f"{self.case.name if self.case else 'latency'} d{self.delta:g} s{self.seed}".replace(" ", "-")


def units(seeds: int) -> list[Unit]:
    """Return the whole plan, longest units first, so that all processes end at about the same time."""
    found = [
        Unit(case, delta, seed) for case in cases(seeds) for delta in case.deltas for seed in range(1, case.seeds + 1)
    ]
    found += [Unit(None, LATENCY_DELTA, seed) for seed in range(1, seeds + 1)]
    return sorted(found, key=lambda unit: (-(unit.case.items * unit.case.count if unit.case else 0), unit.name))
