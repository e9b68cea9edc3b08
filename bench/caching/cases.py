"""The plan of the replayed streams: the streams, and the room for each.

Owns: all parts of the evaluation, and the units that replay streams (``live.cases`` has the units with real processes).
Must never: run anything.

The document does not say what a broker with bounded memory does with a record that a subscriber missed. So each unit
with bounded memory replays two interpretations. In the first, which is the slides' rule, a record enters memory when it
is published, or never (``Ways.reads_in`` is False). In the second, a missed record requests admission again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from ingeborg.bench.caching.reads import AWAY_S, WISHES
from ingeborg.bench.caching.restaurants import EXPONENT, RETURNS
from ingeborg.bench.experiments.experiment import Part, Unit

HOUR_S: Final = 3_600.0

#: The size of the memory, as a share of all items, or of the bytes of all records.
SHARES: Final = (0.01, 0.1)

#: The sizes of the memory in the sweep over capacities.
CAPACITIES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)

EXPONENTS: Final = (0.8, 1.0, 1.2)

#: Default numbers of seeds. The first number is for the document's experiments with unlimited memory. The others are,
#: in order: experiments with bounded memory, sweeps with bounded memory, plain requests, the streams of the comparison
#: by room (with little room, results differ more between seeds), and all other streams. With another ``--seeds``, all
#: numbers change by the same factor, and are at least 1.
SEEDS: Final = 10
ROOM_SEEDS: Final = 5
SWEEP_SEEDS: Final = 3
REQUEST_SEEDS: Final = 3
COMPARED_SEEDS: Final = {0.01: 5, 0.1: 3}
FEW_SEEDS: Final = 1

#: Names of streams of records and reads. A stream with ``plays`` in its name comes from the now-playing log.
PLAYS, POPULAR, UNEVEN, SIZES = "plays", "plays, popular", "plays, uneven", "zipf 1, sizes"

#: A stream in which a fifth of the subscribers never come back. The other subscribers are away for an hour at a time.
#: So many records wait only for the subscribers that never come back.
GONE: Final = "zipf 1, gone"
GONE_SHARE: Final = 0.2
GONE_AWAY_S: Final = HOUR_S
STREAMS: Final = (PLAYS, *(f"zipf {exponent:g}" for exponent in EXPONENTS))

#: Streams with additional values of two settings: how many hours subscribers are away, and for how many topics each
#: subscriber wishes. Many wishes make a stream long, so the plan has them only for the short stream.
SWEPT: Final = (PLAYS, "zipf 1")
AWAY_H: Final = (1, 24)
OTHER_WISHES: Final = ((PLAYS, 4), ("zipf 1", 4), ("zipf 1", 64))

#: The stream that runs with all capacities.
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

#: Numbers of returns of a subscriber in a run, in addition to the default number.
OTHER_RETURNS: Final = (5.0, 80.0)

#: Names of the parts that need an option or a separate server.
LIBCACHESIM, LIVE_KAFKA, LIVE_RIAK = "libcachesim", "live-kafka", "live-riak"

PARTS: Final = (
    Part("experiment1", "hit rates over the number of records, with unlimited and with bounded memory"),
    Part("experiment2", "duplication factors over the number of records, from the same runs"),
    Part("experiment3", "latencies on real processes, of subscribers whose polls wait for a record"),
    Part("experiment4", "throughputs on real processes, over many rounds and several runs"),
    Part("experiment5", "hit rates of threshold over λ and μ"),
    Part("experiment6", "hit rates of mean over the batch"),
    Part("experiment7", "hit rates of buffer over γ and α"),
    Part("capacity", "hit rates over seven capacities, with equally popular kinds and with other numbers of returns"),
    Part("requests", "hits of plain requests, as in the usual comparison of caches"),
    Part("reads", "hit rates of nine policies on streams of records and reads"),
    Part("subscribers", "hit rates on streams with other subscribers and with other sizes of records"),
    Part("live-polling", "latencies of subscribers that poll twice a second"),
    Part("live-parameters", "latencies over the parameters of experiments 5 to 7"),
    Part(LIBCACHESIM, "the part requests, also counted by libcachesim (needs --libcachesim)", is_default=False),
    Part(LIVE_KAFKA, "latencies and throughputs with a real Kafka in front (needs --via)", is_default=False),
    Part(LIVE_RIAK, "latencies with the records in a real Riak (needs --store)", is_default=False),
)


@dataclass(frozen=True)
class Requests:
    """Plain requests for items. ``exponent`` is the exponent of Zipf's law. If it is 0, the items are the songs of the
    now-playing log."""

    exponent: float
    seed: int

    @property
    def name(self) -> str:
        """Return the name of the unit's files."""
        return f"requests {f'zipf {self.exponent:g}' if self.exponent else PLAYS} s{self.seed}".replace(" ", "-")


@dataclass(frozen=True)
class Simulated:
    """The same requests, whose hits libcachesim counts."""

    requests: Requests

    @property
    def name(self) -> str:
        """Return the name of the unit's files."""
        return f"{LIBCACHESIM}-{self.requests.name}"


@dataclass(frozen=True)
class Reads:
    """A stream of records and reads. If ``whole`` is set, each policy runs in all its ways (``replay.Ways``)."""

    stream: str
    share: float
    seed: int
    away_s: float = AWAY_S
    wishes: float = WISHES
    whole: bool = False

    @property
    def name(self) -> str:
        """Return the name of the unit's files."""
        what = f"{self.stream.replace(',', '')} a{self.away_s / HOUR_S:g} w{self.wishes:g} c{self.share:g}"
        return f"reads {what} s{self.seed}".replace(" ", "-")


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
        """Return the name of the unit's files."""
        return f"document-n{self.records}-e{self.exponent:g}-r{self.returns:g}-{_room(self.share)}-s{self.seed}"


@dataclass(frozen=True)
class Sweep:
    """The document's experiments 5 to 7: all parameters of one policy, with the largest number of records."""

    policy: str
    seed: int
    share: float | None = None
    records: int = MOST

    @property
    def name(self) -> str:
        """Return the name of the unit's files."""
        return f"sweep-{self.policy}-n{self.records}-{_room(self.share)}-s{self.seed}"


Work = Requests | Simulated | Reads | Document | Sweep


def _room(share: float | None) -> str:
    return "unbounded" if share is None else f"c{share:g}"


def wants_log(work: Work) -> bool:
    """Return whether the work needs a now-playing log."""
    match work:
        case Simulated(requests):
            return wants_log(requests)
        case Requests(exponent):
            return not exponent
        case Reads(stream):
            return stream.startswith(PLAYS)
    return False


def cost_s(work: Work) -> float:
    """Return roughly the seconds that the work takes on a core of the machine in docs/benchmarks.md."""
    match work:
        case Requests():
            return 5.0 if wants_log(work) else 2.5
        case Simulated(requests):
            return 2.0 * cost_s(requests)
        case Reads():
            events = (12.0 if wants_log(work) else 6.5) * work.wishes / WISHES
            return events * (1.6 if work.whole else 1.0)
        case Document():
            return work.records / MOST * (0.1 if work.share is None else 3.0)
        case Sweep():
            count = {"threshold": len(RISES), "mean": len(BATCHES), "buffer": len(WEIGHTS) ** 2}[work.policy]
            return work.records / MOST * count * (0.01 if work.share is None else 0.45)


Seeds = Callable[[int], range]
"""A function that takes a part's default number of seeds, and returns the seeds."""


def of(seeds: int) -> Seeds:
    """Return the seeds for ``--seeds``."""
    return lambda own: range(1, max(1, seeds * own // SEEDS) + 1)


def _requests(of: Seeds) -> list[Work]:
    """Return plain requests. Each seed draws new requests. The log's requests always have the same order."""
    return [*(Requests(exponent, seed) for exponent in EXPONENTS for seed in of(REQUEST_SEEDS)), Requests(0.0, 1)]


def _simulated(of: Seeds) -> list[Work]:
    """Return plain requests for both programs, because the figures of the two programs are compared."""
    both: list[Work] = []
    for work in _requests(of):
        assert isinstance(work, Requests)
        both += [work, Simulated(work)]
    return both


def _reads(of: Seeds) -> list[Work]:
    """Return the comparison on streams of records and reads."""
    return [
        Reads(name, share, seed, whole=seed == 1)
        for share in SHARES
        for name in STREAMS
        for seed in of(COMPARED_SEEDS[share])
    ]


def _subscribers(of: Seeds) -> list[Work]:
    """Return the streams whose subscribers or records differ from those of the comparison."""
    found: list[Work] = []
    for share in SHARES:
        for seed in of(FEW_SEEDS):
            found += [Reads(name, share, seed) for name in (POPULAR, UNEVEN, SIZES)]
            found.append(Reads(GONE, share, seed, away_s=GONE_AWAY_S))
            found += [Reads(name, share, seed, away_s=hours * HOUR_S) for name in SWEPT for hours in AWAY_H]
            found += [Reads(name, share, seed, wishes=wishes) for name, wishes in OTHER_WISHES]
    return found


def _over_records(of: Seeds) -> list[Work]:
    """Return experiments 1 and 2, which count hits and copies in the same runs."""
    rooms = ((None, SEEDS), *((share, ROOM_SEEDS) for share in SHARES))
    return [Document(records, seed, share) for share, own in rooms for records in RECORDS for seed in of(own)]


def _capacities(of: Seeds) -> list[Work]:
    """Return the sweep over capacities in the document's world, with other numbers of returns, and on a stream."""
    found: list[Work] = [Document(MOST, seed, exponent=exponent) for exponent in (EXPONENT, 0.0) for seed in of(SEEDS)]
    found += [Document(MOST, seed, share) for share in CAPACITIES for seed in of(ROOM_SEEDS)]
    found += [
        Document(MOST, seed, share, returns=returns)
        for share in SHARES
        for returns in OTHER_RETURNS
        for seed in of(SWEEP_SEEDS)
    ]
    return found + [
        # For the two rooms of the comparison, these units are also the first units of the comparison.
        Reads(SWEPT_ROOM, share, seed, whole=share in SHARES and seed == 1)
        for share in CAPACITIES
        for seed in of(FEW_SEEDS)
    ]


def _sweep(policy: str, of: Seeds) -> list[Work]:
    """Return one of experiments 5 to 7."""
    rooms = ((None, SEEDS), (SWEEP_SHARE, SWEEP_SEEDS))
    return [Sweep(policy, seed, share) for share, own in rooms for seed in of(own)]


WORKS: Final[dict[str, Callable[[Seeds], list[Work]]]] = {
    "experiment1": _over_records,
    "experiment2": _over_records,
    "experiment5": lambda of: _sweep("threshold", of),
    "experiment6": lambda of: _sweep("mean", of),
    "experiment7": lambda of: _sweep("buffer", of),
    "capacity": _capacities,
    "requests": _requests,
    "reads": _reads,
    "subscribers": _subscribers,
    LIBCACHESIM: _simulated,
}
"""The work of each part that replays streams."""


def units(seeds: int, parts: Collection[str], *, log: bool) -> list[Unit]:
    """Return the units of the parts, the most expensive first. If two parts share a unit, the first part has it.
    ``log`` says whether there is a now-playing log."""
    found: dict[str, Unit] = {}
    for part, works in WORKS.items():
        for work in works(of(seeds)) if part in parts else ():
            if log or not wants_log(work):
                found.setdefault(work.name, Unit(work.name, part, work, cost_s(work)))
    return sorted(found.values(), key=lambda unit: (-unit.cost, unit.name))
