"""Look up the figures of a digest, by their subject.

Owns: the look-ups for claims and report, and the names of the interpretations of the document. Must never: compute a
figure, or do I/O.

A digest may lack a part that did not run. A look-up then finds nothing, and the claims that need the figure are not
judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ingeborg.bench.caching.cases import STREAMS
from ingeborg.bench.caching.live.cases import (
    ALWAYS,
    DIRECT,
    EITHER,
    KAFKA,
    LATENCY,
    LMDB,
    POLLING,
    RIAK,
    WAITING,
)
from ingeborg.bench.caching.policies import named
from ingeborg.bench.caching.reads import AWAY_S, WISHES
from ingeborg.bench.caching.restaurants import EXPONENT, RETURNS
from ingeborg.bench.experiments.figures import rows_of

Json = Mapping[str, Any]
Rate = Sequence[float]
"""A mean, and half the width of its 95 % confidence interval, as a list from JSON."""

ROOMS: Final = (None, 0.1, 0.01)
"""Capacities of the experiments over the number of records, as shares of the bytes of all records. ``None`` means no
limit."""

PLACES: Final = {"LMDB": (LMDB, DIRECT), "Kafka": (LMDB, KAFKA), "Riak": (RIAK, DIRECT)}
"""Set-ups of the real processes: the database, and the way in which records reach the broker."""

MISSED: Final = {False: "missed records stay out", True: "missed records ask again"}
"""The interpretations of bounded memory. The first is the slides' rule, and the rule of the real processes."""

FETCHED: Final = {WAITING: "polls wait", POLLING: "polls twice a second"}
"""The interpretations of how subscribers fetch."""

WRITTEN: Final = {ALWAYS: "each record written", EITHER: "memory or database"}
"""The interpretations of where a record is written."""

_OF_DOCUMENT: Final = ("sweep", "records", "exponent", "returns", "share", "reads_in", "policy", "parameters")
_OF_LIVE: Final = ("kind", "database", "via", "writes", "fetches", "records", "strategy", "capacity", "parameters")


class Stream(NamedTuple):
    """The values that are equal in rows that differ only in seed, policy and way."""

    stream: str
    away_s: float
    wishes: float
    share: float


class Setup(NamedTuple):
    """A set-up of the real processes, with one interpretation of where a record is written and of how subscribers
    fetch."""

    place: str
    writes: str = ALWAYS
    fetches: str = WAITING

    def __str__(self) -> str:
        return f"{self.place}, {FETCHED[self.fetches]}, {WRITTEN[self.writes]}"


ON_LMDB: Final = Setup("LMDB")
"""The set-up of experiments 3 and 4: LMDB, polls that wait, and each record written."""


def _stream(row: Json) -> Stream:
    return Stream(row["stream"], row["away_s"], row["wishes"], row["share"])


class Found:
    """The figures of `job.digest`: ``pure`` depends on the seeds, and ``measured`` comes from real processes. Each part
    of the plan can be missing."""

    def __init__(self, pure: Json, measured: Json) -> None:
        self._document = {tuple(row[name] for name in _OF_DOCUMENT): row for row in rows_of(pure["document"])}
        self._differences = {
            tuple(row[name] for name in (*_OF_DOCUMENT[1:6], "one", "other")): row
            for row in rows_of(pure["differences"])
        }
        self._reads = {(_stream(row), row["policy"], row["knows"]): row for row in rows_of(pure["reads"])}
        self._ahead = {(_stream(row), row["knows"]): row for row in rows_of(pure["ahead"])}
        self._over_rules = {(_stream(row), row["policy"]): row for row in rows_of(pure["over_rules"])}
        self._requests = {(row["exponent"], row["share"], row["policy"]): row for row in rows_of(pure["requests"])}
        self.live = rows_of(measured.get("live"))
        self.facts: Json = measured.get("facts", {})
        self._measured = {tuple(row[name] for name in _OF_LIVE): row for row in self.live}
        self.streams = list(dict.fromkeys(stream for stream, _, _ in self._reads))
        self.exponents = list(dict.fromkeys(exponent for exponent, _, _ in self._requests))

    @property
    def records(self) -> list[int]:
        """Return the numbers of records in the document's experiments."""
        return sorted({key[1] for key in self._document if not key[0]})

    @property
    def most(self) -> int:
        """Return the largest number of records, or 0 without the document's experiments."""
        return max(self.records, default=0)

    def capacities(self, *, again: bool) -> list[float]:
        """Return the shares of bounded rooms with the largest number of records, with the largest room first."""
        world = (False, self.most, EXPONENT, RETURNS)
        shares = {key[4] for key in self._document if key[:4] == world and key[5] is again}
        return sorted((share for share in shares if share is not None), reverse=True)

    def document(
        self,
        records: int,
        policy: str,
        share: float | None = None,
        *,
        again: bool = False,
        exponent: float = EXPONENT,
        returns: float = RETURNS,
    ) -> Json | None:
        """Return a row of experiments 1 and 2. With ``again``, missed records request admission again."""
        return self._document.get((False, records, exponent, returns, share, again, policy, ""))

    def difference(
        self,
        records: int,
        one: str,
        other: str,
        what: str,
        share: float | None = None,
        *,
        again: bool = False,
        returns: float = RETURNS,
    ) -> Rate | None:
        """Return by how much a figure differs between two of the document's strategies, computed seed by seed."""
        world = (records, EXPONENT, returns, share, again)
        if row := self._differences.get((*world, one, other)):
            there: Rate = row[what]
            return there
        if row := self._differences.get((*world, other, one)):
            return (-row[what][0], row[what][1])
        return None

    def sweep(self, policy: str, share: float | None = None, *, again: bool = False) -> dict[str, Json]:
        """Return the rows of experiments 5 to 7, by the text of their parameters."""
        wanted = (True, share, again, policy)
        return {key[7]: row for key, row in self._document.items() if (key[0], key[4], key[5], key[6]) == wanted}

    def compared(self, share: float) -> list[Stream]:
        """Return the streams of the comparison with this room, in the order of the plan."""
        wanted = [Stream(name, AWAY_S, WISHES, share) for name in STREAMS]
        return [stream for stream in wanted if stream in self.streams]

    def reads(self, stream: Stream, policy: str, *, knows: bool = False) -> Json | None:
        """Return the row of a policy. The caller chooses whether the policy knows which subscribers have received a
        record."""
        return self._reads.get((stream, policy, knows))

    def policies(self, stream: Stream) -> list[str]:
        """Return the policies that ran with this stream."""
        return list(dict.fromkeys(policy for one, policy, _ in self._reads if one == stream))

    def ahead(self, stream: Stream, *, knows: bool = False) -> Json | None:
        """Return the lead of `owed` over the best other policy, and that policy."""
        return self._ahead.get((stream, knows))

    def over_rules(self, stream: Stream, policy: str) -> Json | None:
        """Return the lead of a policy over the document's best rule, and that rule."""
        return self._over_rules.get((stream, policy))

    def requests(self, exponent: float, share: float, policy: str) -> Json | None:
        """Return a row of plain requests."""
        return self._requests.get((exponent, share, policy))

    def measured(
        self, kind: str, records: int, strategy: str, share: float | None = None, setup: Setup = ON_LMDB
    ) -> Json | None:
        """Return a row of real processes. A strategy that writes each record in any case has only one row."""
        writes = setup.writes if strategy in named.EITHER else ALWAYS
        return self._measured.get((kind, *PLACES[setup.place], writes, setup.fetches, records, strategy, share, ""))

    def setups(self, kind: str) -> list[Setup]:
        """Return the set-ups that were measured without a cache and with unlimited caching."""
        every = [Setup(place, writes, fetches) for place in PLACES for fetches in FETCHED for writes in WRITTEN]
        return [setup for setup in every if self.measured_records(kind, setup)]

    def measured_records(self, kind: str, setup: Setup) -> list[int]:
        """Return the numbers of records that were measured in this set-up with unlimited memory, both without a cache
        and with unlimited caching."""
        numbers = sorted({row["records"] for row in self.live})
        return [one for one in numbers if all(self.measured(kind, one, name, None, setup) for name in ("none", "all"))]

    def measured_sweep(self, strategy: str, fetches: str = WAITING) -> dict[str, Json]:
        """Return the rows of a strategy's latencies on LMDB, by the strategy's parameters."""
        wanted = (LATENCY, *PLACES["LMDB"], ALWAYS, fetches)
        return {
            key[8]: row for key, row in self._measured.items() if (*key[:5], key[6]) == (*wanted, strategy) and key[8]
        }
