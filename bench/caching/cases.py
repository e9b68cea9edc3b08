"""The plan: the streams, the room for each, and the policies.

Owns: the plan, cut into units that run separately and have their own files. Must never: run anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ingeborg.bench.caching.reads import AWAY_S, WISHES
from ingeborg.bench.caching.restaurants import EXPONENT, RETURNS

HOUR_S: Final = 3_600.0

#: The size of the memory, as a share of all items, or of the bytes of all records.
SHARES: Final = (0.01, 0.1)

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
ROOM_SEEDS: Final = 3

#: Names of streams of records and reads. A stream with ``plays`` in its name comes from the now-playing log.
PLAYS, POPULAR, UNEVEN, SIZES = "plays", "plays, popular", "plays, uneven", "zipf 1, sizes"

#: A stream in which a fifth of the subscribers never come back. The other subscribers are away for an hour at a time,
#: so the stream has many records that only the missing subscribers have not received.
GONE: Final = "zipf 1, gone"
GONE_SHARE: Final = 0.2
GONE_AWAY_S: Final = HOUR_S
STREAMS: Final = (PLAYS, *(f"zipf {exponent:g}" for exponent in EXPONENTS))

#: Additional values of two settings: how many hours subscribers are away, and how many topics each wishes for.
AWAY_H: Final = (1, 24)
OTHER_WISHES: Final = (4, 64)

#: Streams with these additional values.
SWEPT: Final = (PLAYS, "zipf 1")

#: The document's numbers of records (its experiments 1 to 4).
RECORDS: Final = (500, 800, 1_000, 2_000, 5_000, 10_000)

#: Parameters of experiments 5 to 7: lambda (mu is 1 - lambda), the batch, and gamma and alpha in all combinations.
RISES: Final = tuple(f"0.{tenths}" for tenths in range(1, 10))
BATCHES: Final = (1, 2, 3, 5, 10, 30, 100, 300, 1_000, 3_000, 10_000)
WEIGHTS: Final = ("0.1", "0.3", "0.5", "0.7", "0.9")

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


@dataclass(frozen=True)
class Document:
    """The document's experiments 1 and 2 or, with ``sweeps``, the parameters of experiments 5 to 7. They run with
    unlimited room and, with ``rooms``, also with bounded room."""

    records: int
    seed: int
    exponent: float = EXPONENT
    returns: float = RETURNS
    rooms: bool = False
    sweeps: bool = False

    @property
    def name(self) -> str:
        """Return the name of the unit's file."""
        parts = f"document n{self.records} e{self.exponent:g} r{self.returns:g}"
        return f"{parts}{' sweeps' if self.sweeps else ''} s{self.seed}".replace(" ", "-")

    @property
    def wants_log(self) -> bool:
        return False


Unit = Requests | Reads | Document


def units(seeds: int, *, log: bool) -> list[Unit]:
    """Return the whole plan, with this number of seeds (``SEEDS``) for the comparison. ``log`` says whether there is a
    now-playing log."""
    few, of_requests = min(seeds, FEW_SEEDS), min(seeds, REQUEST_SEEDS)
    found: list[Unit] = [Requests(exponent, seed) for exponent in EXPONENTS for seed in range(1, of_requests + 1)]
    found.append(Requests(0.0, 1))
    for share in SHARES:
        last = seeds + MORE_SEEDS.get(share, 0)
        found += [Reads(name, share, seed, whole=seed == 1) for name in STREAMS for seed in range(1, last + 1)]
        found += [Reads(name, share, seed) for name in (POPULAR, UNEVEN, SIZES) for seed in range(1, few + 1)]
        found += [Reads(GONE, share, seed, away_s=GONE_AWAY_S) for seed in range(1, few + 1)]
        for name in SWEPT:
            for seed in range(1, few + 1):
                found += [Reads(name, share, seed, away_s=hours * HOUR_S) for hours in AWAY_H]
                found += [Reads(name, share, seed, wishes=wishes) for wishes in OTHER_WISHES]
    found += documents()
    return [unit for unit in found if log or not unit.wants_log]


def documents() -> list[Unit]:
    """Return the document's part of the plan."""
    most = max(RECORDS)
    found: list[Unit] = [
        Document(records, seed, rooms=seed <= ROOM_SEEDS)
        for records in RECORDS
        for seed in range(1, DOCUMENT_SEEDS + 1)
    ]
    found += [Document(most, seed, exponent=0.0) for seed in range(1, DOCUMENT_SEEDS + 1)]
    found += [
        Document(most, seed, returns=returns, rooms=True)
        for returns in OTHER_RETURNS
        for seed in range(1, FEW_SEEDS + 1)
    ]
    found += [Document(most, seed, rooms=seed <= FEW_SEEDS, sweeps=True) for seed in range(1, DOCUMENT_SEEDS + 1)]
    return found
