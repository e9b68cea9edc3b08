"""What is run: which streams, how many of them, and which algorithms.

Owns: the plan, cut into units that are run and kept each by itself. Must never: run anything.
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

#: Of which the document prints figures.
ENDS: Final = (5.0, 25.0)

#: Measurements of a stream (section VI-B), and of the comparison with Kafka's assignment (VI-C).
COUNT: Final = 500
LATENCY_COUNT: Final = 100
LATENCY_DELTA: Final = 5.0
LATENCY_ITEMS: Final = 32

#: Seeds of the document's own streams, and of what is looked at besides.
SEEDS: Final = 30
FEW_SEEDS: Final = 5

#: The optimum is looked for in every so many-th measurement of so many streams of a delta.
OPTIMUM_EVERY: Final = 10
OPTIMUM_SEEDS: Final = 3

#: A decision that is timed is made so often.
TIMED_TRIES: Final = 3

#: Whose latencies are looked at, beside equal numbers of items for each number of consumers.
LATENCY_OF: Final = ("MWF", "BFD", "mend")


def relabelled(instance: Instance) -> Work:
    """BFD, with the numbers of bins that fit the former packing best: what a choice of names alone is worth."""
    where = yield from DOCUMENT["BFD"](instance)
    return relabel(instance, where)


ALGORITHMS: Final[Mapping[str, Algorithm]] = {**DOCUMENT, "BFD relabelled": relabelled, "mend": mend}

#: Those that take items as they come (section II-B). The document does not say in which order that is. By chance, its
#: figures' orders are found again; always the same, with the choice of new bins of section VI-A, less moves.
ONLINE: Final = ("NF", "FF", "BF", "WF")

#: Of very many items.
FEW_ALGORITHMS: Final = ("NFD", "BFD", "MWF", "MBF", "MWFP", "MBFP", "mend")


@dataclass(frozen=True)
class Case:
    """Streams that differ in their delta and their seed only. ``exponent``: of topics that are hashed to slots; 0: the
    document's streams."""

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
    """Items come to the ``ONLINE`` algorithms in an order of chance; else in that of their numbers."""
    optimum: bool = False
    """The fewest bins that will do are looked for, too."""
    timed: bool = False
    """Each decision is timed, too, in the slices in which a broker would do it."""

    def stream(self, delta: float, seed: int) -> Iterator[list[float]]:
        """One of them."""
        if self.exponent:
            return hashed(self.exponent, self.count, delta, seed)
        return drawn(self.items, self.count, delta, seed, self.reading, self.start)


def cases(seeds: int) -> list[Case]:
    """Everything, with so many seeds for the document's own streams."""
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
    """What one process runs at a time, and keeps in a file of its own. ``case``: ``None`` is the comparison with equal
    numbers of items."""

    case: Case | None
    delta: float
    seed: int

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.case.name if self.case else 'latency'} d{self.delta:g} s{self.seed}".replace(" ", "-")


def units(seeds: int) -> list[Unit]:
    """The whole plan; those that take longest first, so that both ends of it end together."""
    found = [
        Unit(case, delta, seed) for case in cases(seeds) for delta in case.deltas for seed in range(1, case.seeds + 1)
    ]
    found += [Unit(None, LATENCY_DELTA, seed) for seed in range(1, seeds + 1)]
    return sorted(found, key=lambda unit: (-(unit.case.items * unit.case.count if unit.case else 0), unit.name))
