"""Look up the figures of a digest, by their subject.

Owns: the look-ups, for claims and page. Must never: compute a figure, make markup, or do I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ingeborg.bench.caching.live.cases import DIRECT, KAFKA, LATENCY, LMDB, RIAK, THROUGHPUT
from ingeborg.bench.caching.policies.named import RULES
from ingeborg.bench.caching.restaurants import EXPONENT, RETURNS

Json = Mapping[str, Any]
Rate = Sequence[float]
"""A mean, and half the width of its 95 % interval, as a list from JSON."""

LIVE: Final = "live"
"""Folder of a result with the runs on real processes."""

STRATEGIES: Final = (*RULES, "owed")
"""The document's five strategies, and ours."""

NOVEL: Final = ("threshold", "mean", "buffer")

ROOMS: Final = (None, 0.1, 0.01)
"""Capacities, as shares of the bytes of all records. ``None`` means no limit."""

PLACES: Final = {"LMDB": (LMDB, DIRECT), "Kafka": (LMDB, KAFKA), "Riak": (RIAK, DIRECT)}
"""Set-ups of the real processes: the database, and how records come to the broker."""


_OF_DOCUMENT: Final = ("sweep", "records", "exponent", "returns", "share", "policy", "parameters")


class Stream(NamedTuple):
    """The values that are equal in rows that differ only in seed, policy and way."""

    stream: str
    away_s: float
    wishes: float
    share: float


def _stream(row: Json) -> Stream:
    return Stream(row["stream"], row["away_s"], row["wishes"], row["share"])


def _rows(found: Json) -> list[dict[str, Any]]:
    return [dict(zip(found["names"], values, strict=True)) for values in found["rows"]]


class Found:
    """The figures of `job.digest`: ``pure`` depends on the seeds, ``measured`` comes from real processes."""

    def __init__(self, pure: Json, measured: Json) -> None:
        self._document = {tuple(row[name] for name in _OF_DOCUMENT): row for row in _rows(pure["document"])}
        self._differences = {
            tuple(row[name] for name in (*_OF_DOCUMENT[1:5], "one", "other")): row for row in _rows(pure["differences"])
        }
        self._reads = {(_stream(row), row["policy"], row["knows"]): row for row in _rows(pure["reads"])}
        self._ahead = {(_stream(row), row["knows"]): row for row in _rows(pure["ahead"])}
        self._requests = {(row["exponent"], row["share"], row["policy"]): row for row in _rows(pure["requests"])}
        self.live = _rows(measured["live"])
        self.streams = list(dict.fromkeys(stream for stream, _, _ in self._reads))
        self.exponents = list(dict.fromkeys(exponent for exponent, _, _ in self._requests))

    @property
    def records(self) -> list[int]:
        """Return the numbers of records in the document's experiments."""
        return sorted({key[1] for key in self._document if not key[0]})

    def document(
        self,
        records: int,
        policy: str,
        share: float | None = None,
        exponent: float = EXPONENT,
        returns: float = RETURNS,
    ) -> Json | None:
        """Return a row of experiments 1 and 2."""
        return self._document.get((False, records, exponent, returns, share, policy, ""))

    def difference(
        self, records: int, one: str, other: str, what: str, share: float | None = None, exponent: float = EXPONENT
    ) -> Rate | None:
        """Return the difference of two policies in a figure, which is computed seed by seed."""
        world = (records, exponent, RETURNS, share)
        if row := self._differences.get((*world, one, other)):
            there: Rate = row[what]
            return there
        if row := self._differences.get((*world, other, one)):
            return (-row[what][0], row[what][1])
        return None

    def sweep(self, policy: str, share: float | None = None) -> dict[str, Json]:
        """Return the rows of experiments 5 to 7, by the text of their parameters."""
        return {key[6]: row for key, row in self._document.items() if key[0] and key[4] == share and key[5] == policy}

    def reads(self, stream: Stream, policy: str, *, knows: bool = False) -> Json | None:
        """Return the row of a policy that knows, or does not know, which subscribers have received a record."""
        return self._reads.get((stream, policy, knows))

    def policies(self, stream: Stream) -> list[str]:
        """Return the policies that ran with this stream."""
        return list(dict.fromkeys(policy for one, policy, _ in self._reads if one == stream))

    def ahead(self, stream: Stream, *, knows: bool = False) -> Json | None:
        """Return the lead of `owed` over the best other policy, and that policy."""
        return self._ahead.get((stream, knows))

    def requests(self, exponent: float, share: float, policy: str) -> Json | None:
        """Return a row of plain requests."""
        return self._requests.get((exponent, share, policy))

    def measured(
        self,
        kind: str,
        records: int,
        strategy: str,
        share: float | None = None,
        place: str = "LMDB",
        parameters: str = "",
    ) -> Json | None:
        """Return a row of real processes."""
        wanted = (kind, *PLACES[place], records, strategy, share, parameters)
        names = ("kind", "database", "via", "records", "strategy", "capacity", "parameters")
        return next((row for row in self.live if tuple(row[name] for name in names) == wanted), None)

    def measured_records(self, kind: str, place: str = "LMDB") -> list[int]:
        """Return the numbers of records that were measured at this place with the strategies' own parameters."""
        return sorted(
            {
                row["records"]
                for row in self.live
                if (row["kind"], row["database"], row["via"]) == (kind, *PLACES[place]) and not row["parameters"]
            }
        )

    def measured_sweep(self, strategy: str) -> dict[str, Json]:
        """Return the rows of a strategy's latencies, by its parameters."""
        return {
            row["parameters"]: row
            for row in self.live
            if row["kind"] == LATENCY and row["strategy"] == strategy and row["parameters"]
        }

    @property
    def repeats(self) -> list[tuple[float, float]]:
        """Return pairs of mean latencies of the units that ran twice. The sweeps repeat units, because they include the
        document's own parameters."""
        found = []
        for strategy, own in (("threshold", "0.5 0.5"), ("mean", "3"), ("buffer", "0.7 0.3")):
            again = self.measured_sweep(strategy).get(own)
            if again is None:
                continue
            first = self.measured(LATENCY, again["records"], strategy)
            if first is not None:
                found.append((first["latency_ms"], again["latency_ms"]))
        return found

    @property
    def throughputs(self) -> bool:
        """Return whether any throughput was measured."""
        return any(row["kind"] == THROUGHPUT for row in self.live)
