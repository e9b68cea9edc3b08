"""The plan. It lists the streams and their number, and the algorithms that pack them.

Owns: the parts of the plan, and their units, which run and are stored separately. Must never: run anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ingeborg.autoscaler.groups.instance import Instance, relabel
from ingeborg.autoscaler.groups.mend import mend
from ingeborg.autoscaler.groups.packing import DOCUMENT, Algorithm, Work
from ingeborg.bench.experiments.experiment import Part, Unit
from ingeborg.bench.packing.readings import FF_BY_AGE, NF_BIN_0, NFD_BIN_0, SECOND
from ingeborg.bench.packing.streams import Reading, Start, drawn, hashed
from ingeborg.protocol.hashes import SLOTS

DELTAS: Final = (0.0, 5.0, 10.0, 15.0, 20.0, 25.0)

#: The deltas for which the document prints figures.
ENDS: Final = (5.0, 25.0)

#: Numbers of measurements in a stream: in general (section VI-B), and for the comparison with Kafka's assignment
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

#: Cost of packing an item once, in microseconds on the machine of the stored results. A unit of the part ``latency``
#: also computes the latencies of 49 assignments. The solver's cost is a rough estimate.
ITEM_US: Final = 2.0
LATENCY_US: Final = 300_000.0
OPTIMUM_US: Final = 5_000_000.0

#: Names of the parts. ``PARTS`` says what each part measures.
PART_DOCUMENT, AS_WRITTEN, WHOLE, IN_ORDER, STARTS, NAMING, LARGE, LATENCY, OPTIMUM = (
    *("document", "as-written", "whole", "in-order", "starts", "naming", "large", "latency", "optimum"),
)

PARTS: Final = (
    Part(PART_DOCUMENT, "bins and moved load of every algorithm on the document's streams, as in figures 9 to 12"),
    Part(AS_WRITTEN, "bins and moved load with sizes above the capacity, which equation 15 allows"),
    Part(WHOLE, "bins and moved load with sizes in whole per cent of the capacity, as in the published program"),
    Part(IN_ORDER, "bins and moved load if the online algorithms always get the items in the same order"),
    Part(STARTS, "bins and moved load with the document's other first sizes: nothing, half the capacity, the capacity"),
    Part(NAMING, "whether the names of the former bins change how many bins an adapted algorithm needs"),
    Part(LARGE, "bins, moved load and the time of a decision with 4,096 items, also with loads by Zipf's law"),
    Part(LATENCY, "the document's model of latency for every algorithm and for 1 to 32 equal shares, figures 5 to 8"),
    Part(
        OPTIMUM,
        "the distance of every algorithm from the optimum, which a solver finds (needs --optimum)",
        is_default=False,
    ),
)


def relabelled(instance: Instance) -> Work:
    """Pack with BFD, and then renumber the bins so that they match the previous packing as well as possible. The result
    shows how many moves the choice of bin numbers alone saves."""
    where = yield from DOCUMENT["BFD"](instance)
    return relabel(instance, where)


ALGORITHMS: Final[Mapping[str, Algorithm]] = {**DOCUMENT, **SECOND, "BFD relabelled": relabelled, "mend": mend}

#: Algorithms that pack items in their order of arrival (section II-B). The document does not specify this order. With a
#: random order, the algorithms have the same ranking as in the document's figures. If the order is always the same, and
#: new bins are chosen as in section VI-A, fewer items move.
ONLINE: Final = ("NF", "FF", "BF", "WF", NF_BIN_0, FF_BY_AGE)

#: The algorithms whose number of bins does not depend on the names of bins, according to section VI-A.
ADAPTED: Final = ("NF", "FF", "BF", "WF", "NFD", "FFD", "BFD", "WFD", *SECOND)

#: The algorithms that run with a very large number of items.
FEW_ALGORITHMS: Final = ("NFD", NFD_BIN_0, "BFD", "MWF", "MBF", "MWFP", "MBFP", "mend")


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
    unnamed: bool = False
    """Whether to pack each measurement a second time, as if no item had a former bin."""
    timed: bool = False
    """Whether to time each decision, in the slices in which a broker would make it."""

    def stream(self, delta: float, seed: int) -> Iterator[list[float]]:
        """Return one stream."""
        if self.exponent:
            return hashed(self.exponent, self.count, delta, seed)
        return drawn(self.items, self.count, delta, seed, self.reading, self.start)


def cases(seeds: int) -> dict[str, list[Case]]:
    """Return the cases of each part, with ``seeds`` seeds for the document's own streams."""
    few = min(seeds, FEW_SEEDS)
    large = {"deltas": ENDS, "count": 10, "seeds": 1, "algorithms": FEW_ALGORITHMS, "timed": True}
    in_order = tuple(name for name in ALGORITHMS if name in DOCUMENT or name in SECOND)
    return {
        PART_DOCUMENT: [Case(str(items), items, seeds=seeds) for items in (32, 200)],
        AS_WRITTEN: [
            Case(f"{items} as written", items, Reading.AS_WRITTEN, deltas=ENDS, seeds=few) for items in (32, 200)
        ],
        WHOLE: [Case("200 whole per cent", 200, Reading.WHOLE, deltas=ENDS, seeds=few)],
        IN_ORDER: [
            Case(f"{items} in order", items, shuffled=False, deltas=ENDS, seeds=few, algorithms=in_order)
            for items in (32, 200)
        ],
        STARTS: [
            Case(f"32 from {start}", 32, start=start, deltas=ENDS, seeds=few)
            for start in (Start.NOTHING, Start.HALF, Start.FULL)
        ],
        NAMING: [
            Case(f"{items} naming", items, deltas=ENDS, seeds=few, algorithms=ADAPTED, unnamed=True)
            for items in (32, 200)
        ],
        LARGE: [
            Case("4096", SLOTS, **large),  # type: ignore[arg-type]
            Case("4096 Zipf 1", SLOTS, exponent=1.0, **large),  # type: ignore[arg-type]
            Case("4096 Zipf 0.5", SLOTS, exponent=0.5, **large),  # type: ignore[arg-type]
        ],
        LATENCY: [Case("latency", LATENCY_ITEMS, deltas=(LATENCY_DELTA,), count=LATENCY_COUNT, seeds=seeds)],
        OPTIMUM: [Case("optimum", 32, seeds=min(seeds, OPTIMUM_SEEDS))],
    }


@dataclass(frozen=True)
class Stream:
    """One stream of a case. It is the work of a unit."""

    case: Case
    delta: float
    seed: int

    @property
    def name(self) -> str:
        """Return the name of the unit's files."""
        return f"{self.case.name} d{self.delta:g} s{self.seed}".replace(" ", "-")

    def sizes(self) -> Iterator[list[float]]:
        """Return the measurements."""
        return self.case.stream(self.delta, self.seed)


def _cost_s(part: str, case: Case) -> float:
    packings = len(case.algorithms) * case.count * (TIMED_TRIES if case.timed else 2 if case.unnamed else 1)
    more = {LATENCY: LATENCY_US, OPTIMUM: OPTIMUM_US}.get(part, 0.0)
    return (packings * case.items * ITEM_US + more) / 1e6


def units(seeds: int, parts: Collection[str]) -> list[Unit]:
    """Return the units of the parts, the most expensive first, so that all processes end at about the same time."""
    found = [
        Unit(stream.name, part, stream, _cost_s(part, case))
        for part, of_part in cases(seeds).items()
        if part in parts
        for case in of_part
        for delta in case.deltas
        for stream in (Stream(case, delta, seed) for seed in range(1, case.seeds + 1))
    ]
    return sorted(found, key=lambda unit: (-unit.cost, unit.name))
