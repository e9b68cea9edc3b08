"""The plan of the replayed streams: the streams, the room for each, and the policies.

Owns: the parts of the plan, cut into units that run separately and have their own files. Must never: run anything.

The document does not say what a broker with bounded memory does with a record that a subscriber missed. Each bounded
unit replays both readings. In the first, which is the slides' rule, a record enters memory when it is published, or
never (``Ways.reads_in`` is False). In the second, a missed record requests admission again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from ingeborg.bench.caching.reads import AWAY_S, WISHES
from ingeborg.bench.caching.restaurants import EXPONENT, RETURNS

HOUR_S: Final = 3_600.0

#: The size of the memory, as a share of all items, or of the bytes of all records.
SHARES: Final = (0.01, 0.1)

#: The sizes of the memory in the sweep over capacities.
CAPACITIES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)

EXPONENTS: Final = (0.8, 1.0, 1.2)

#: Number of seeds of the streams in the comparison, number of additional seeds by room (with little room, results
#: differ more between seeds), and number of seeds of the other streams.
SEEDS: Final = 3
MORE_SEEDS: Final = {0.01: 2}
FEW_SEEDS: Final = 1

#: Number of seeds of plain requests. It is small, because these streams differ little.
REQUEST_SEEDS: Final = 3

#: Number of seeds of the document's experiments, which take little time, and of its experiments with bounded room.
DOCUMENT_SEEDS: Final = 10
ROOM_SEEDS: Final = 5
SWEEP_SEEDS: Final = 3

#: Names of streams of records and reads. A stream with ``plays`` in its name comes from the now-playing log.
PLAYS, POPULAR, UNEVEN, SIZES = "plays", "plays, popular", "plays, uneven", "zipf 1, sizes"

#: A stream in which a fifth of the subscribers never come back. The other subscribers are away for an hour at a time,
#: so the stream has many records that only the missing subscribers have not received.
GONE: Final = "zipf 1, gone"
GONE_SHARE: Final = 0.2
GONE_AWAY_S: Final = HOUR_S
STREAMS: Final = (PLAYS, *(f"zipf {exponent:g}" for exponent in EXPONENTS))

#: Streams with additional values of two settings: how many hours subscribers are away, and how many topics each wishes
#: for. Many wishes make a stream long, so the plan has them only for the short stream.
SWEPT: Final = (PLAYS, "zipf 1")
AWAY_H: Final = (1, 24)
OTHER_WISHES: Final = ((PLAYS, 4), ("zipf 1", 4), ("zipf 1", 64))

#: The stream with all capacities.
SWEPT_ROOM: Final = "zipf 1"

#: The document's numbers of records (its experiments 1 to 4).
RECORDS: Final = (500, 800, 1_000, 2_000, 5_000, 10_000)
MOST: Final = RECORDS[-1]

#: Parameters of experiments 5 to 7: lambda (mu is 1 - lambda), the batch, and gamma and alpha in all combinations.
RISES: Final = tuple(f"0.{tenths}" for tenths in range(1, 10))
BATCHES: Final = (1, 2, 3, 5, 10, 30, 100, 300, 1_000, 3_000, 10_000)
WEIGHTS: Final = ("0.1", "0.3", "0.5", "0.7", "0.9")

#: The room of experiments 5 to 7 with bounded memory, as a share of all bytes.
SWEEP_SHARE: Final = 0.1

#: How often a subscriber returns in a run: values in addition to the default.
OTHER_RETURNS: Final = (5.0, 80.0)


@dataclass(frozen=True)
class Requests:
    """Plain requests for items. ``exponent`` is that of Zipf's law. If it is 0, the items are the songs of the
    now-playing log."""

    exponent: float
    seed: int

    @property
    def name(self) -> str:
        """Return the name of the unit's file."""
        return f"requests {f'zipf {self.exponent:g}' if self.exponent else PLAYS} s{self.seed}".replace(" ", "-")

    @property
    def wants_log(self) -> bool:
        return not self.exponent

    @property
    def cost(self) -> float:
        """Return roughly the seconds that the unit takes on one core."""
        return 2.5 if self.exponent else 5.0


@dataclass(frozen=True)
class Reads:
    """A stream of records and reads. If ``whole`` is set, each policy runs in all ways that ``replay.Ways`` allows
    it."""

    stream: str
    share: float
    seed: int
    away_s: float = AWAY_S
    wishes: float = WISHES
    whole: bool = False

    @property
    def name(self) -> str:
        """Return the name of the unit's file."""
        what = f"{self.stream.replace(',', '')} a{self.away_s / HOUR_S:g} w{self.wishes:g} c{self.share:g}"
        return f"reads {what} s{self.seed}".replace(" ", "-")

    @property
    def wants_log(self) -> bool:
        return self.stream.startswith(PLAYS)

    @property
    def cost(self) -> float:
        """Return roughly the seconds that the unit takes on one core."""
        events = (12.0 if self.wants_log else 6.5) * self.wishes / WISHES
        return events * (1.6 if self.whole else 1.0)


@dataclass(frozen=True)
class Document:
    """The document's experiments 1 and 2: its strategies and ours in the document's world. ``share`` is the room, as a
    share of all bytes, or ``None`` without a limit."""

    records: int
    seed: int
    share: float | None = None
    exponent: float = EXPONENT
    returns: float = RETURNS

    @property
    def name(self) -> str:
        """Return the name of the unit's file."""
        room = "unbounded" if self.share is None else f"c{self.share:g}"
        return f"document n{self.records} e{self.exponent:g} r{self.returns:g} {room} s{self.seed}".replace(" ", "-")

    @property
    def wants_log(self) -> bool:
        return False

    @property
    def cost(self) -> float:
        """Return roughly the seconds that the unit takes on one core."""
        return self.records / MOST * (0.1 if self.share is None else 3.0)


@dataclass(frozen=True)
class Sweep:
    """The document's experiments 5 to 7: all parameters of one policy, with the largest number of records."""

    policy: str
    seed: int
    share: float | None = None
    records: int = MOST

    @property
    def name(self) -> str:
        """Return the name of the unit's file."""
        room = "unbounded" if self.share is None else f"c{self.share:g}"
        return f"sweep-{self.policy}-n{self.records}-{room}-s{self.seed}"

    @property
    def wants_log(self) -> bool:
        return False

    @property
    def cost(self) -> float:
        """Return roughly the seconds that the unit takes on one core."""
        count = {"threshold": len(RISES), "mean": len(BATCHES), "buffer": len(WEIGHTS) ** 2}[self.policy]
        return self.records / MOST * count * (0.01 if self.share is None else 0.45)


Unit = Requests | Reads | Document | Sweep

Seeds = Sequence[int] | None
"""The seeds that a user selected, or ``None`` for each part's own seeds."""

AnyUnit = TypeVar("AnyUnit")


@dataclass(frozen=True)
class Part(Generic[AnyUnit]):
    """A part of the plan that a user can select by its name. ``text`` says in one sentence what it is, and ``units``
    returns its units."""

    name: str
    text: str
    units: Callable[[Seeds], list[AnyUnit]]


def first(seeds: Seeds, count: int) -> Sequence[int]:
    """Return the selected seeds, or the first ``count`` seeds."""
    return range(1, count + 1) if seeds is None else seeds


def requests(seeds: Seeds = None) -> list[Unit]:
    """Return plain requests. Each seed draws new requests, and the log has one order."""
    drawn = [Requests(exponent, seed) for exponent in EXPONENTS for seed in first(seeds, REQUEST_SEEDS)]
    return [*drawn, Requests(0.0, 1)]


def reads(seeds: Seeds = None) -> list[Unit]:
    """Return the comparison on streams of records and reads."""
    found: list[Unit] = []
    for share in SHARES:
        those = first(seeds, SEEDS + MORE_SEEDS.get(share, 0))
        found += [Reads(name, share, seed, whole=seed == those[0]) for name in STREAMS for seed in those]
    return found


def subscribers(seeds: Seeds = None) -> list[Unit]:
    """Return the streams in which subscribers or records differ from those of the comparison."""
    found: list[Unit] = []
    for share in SHARES:
        for seed in first(seeds, FEW_SEEDS):
            found += [Reads(name, share, seed) for name in (POPULAR, UNEVEN, SIZES)]
            found.append(Reads(GONE, share, seed, away_s=GONE_AWAY_S))
            found += [Reads(name, share, seed, away_s=hours * HOUR_S) for name in SWEPT for hours in AWAY_H]
            found += [Reads(name, share, seed, wishes=wishes) for name, wishes in OTHER_WISHES]
    return found


def over_records(seeds: Seeds = None) -> list[Unit]:
    """Return experiments 1 and 2, which count hits and copies in the same runs."""
    found: list[Unit] = [Document(records, seed) for records in RECORDS for seed in first(seeds, DOCUMENT_SEEDS)]
    return found + [
        Document(records, seed, share) for share in SHARES for records in RECORDS for seed in first(seeds, ROOM_SEEDS)
    ]


def capacities(seeds: Seeds = None) -> list[Unit]:
    """Return the sweep over capacities in the document's world, with other numbers of returns, and on a stream."""
    found: list[Unit] = [Document(MOST, seed) for seed in first(seeds, DOCUMENT_SEEDS)]
    found += [Document(MOST, seed, exponent=0.0) for seed in first(seeds, DOCUMENT_SEEDS)]
    found += [Document(MOST, seed, share) for share in CAPACITIES for seed in first(seeds, ROOM_SEEDS)]
    found += [
        Document(MOST, seed, share, returns=returns)
        for share in SHARES
        for returns in OTHER_RETURNS
        for seed in first(seeds, SWEEP_SEEDS)
    ]
    return found + [
        # With the two rooms of the comparison, these are the first units of the comparison.
        Reads(SWEPT_ROOM, share, seed, whole=share in SHARES and seed == first(seeds, FEW_SEEDS)[0])
        for share in CAPACITIES
        for seed in first(seeds, FEW_SEEDS)
    ]


def sweep(policy: str) -> Callable[[Seeds], list[Unit]]:
    """Return the function that returns the units of one of experiments 5 to 7."""

    def units(seeds: Seeds = None) -> list[Unit]:
        found: list[Unit] = [Sweep(policy, seed) for seed in first(seeds, DOCUMENT_SEEDS)]
        return found + [Sweep(policy, seed, SWEEP_SHARE) for seed in first(seeds, SWEEP_SEEDS)]

    return units


PARTS: Final[Sequence[Part[Unit]]] = (
    Part("experiment1", "Hit rates over the number of records, with unlimited and with bounded memory.", over_records),
    Part("experiment2", "Duplication factors over the number of records, from the same runs.", over_records),
    Part("experiment5", "Hit rates of threshold over λ and μ.", sweep("threshold")),
    Part("experiment6", "Hit rates of mean over the batch.", sweep("mean")),
    Part("experiment7", "Hit rates of buffer over γ and α.", sweep("buffer")),
    Part("capacity", "Hit rates over seven capacities, with other popularity and with other returns.", capacities),
    Part("requests", "Hits of plain requests, as in the usual comparison of caches.", requests),
    Part("reads", "Hit rates of nine policies on streams of records and reads.", reads),
    Part("subscribers", "The same with other subscribers and with other sizes of records.", subscribers),
)
"""All parts with replayed streams."""
