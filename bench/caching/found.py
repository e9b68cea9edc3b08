"""The figures of a digest, by what they are of.

Owns: the look-ups, for claims and page. Must never: compute a figure, or make markup. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ingeborg.bench.caching.live.cases import DIRECT, KAFKA, LATENCY, LMDB, RIAK, THROUGHPUT
from ingeborg.bench.caching.policies.named import RULES
from ingeborg.bench.caching.restaurants import EXPONENT, RETURNS

Json = Mapping[str, Any]
Rate = Sequence[float]
"""A mean, and half the width of its interval of 95 %, as JSON has it."""

LIVE: Final = "live"
"""The folder of a result that has what was run on real processes."""

STRATEGIES: Final = (*RULES, "owed")
"""The document's five, and ours."""

NOVEL: Final = ("threshold", "mean", "buffer")

ROOMS: Final = (None, 0.1, 0.01)
"""Capacities, as shares of the bytes of all records; ``None``: without a limit."""

PLACES: Final = {"LMDB": (LMDB, DIRECT), "Kafka": (LMDB, KAFKA), "Riak": (RIAK, DIRECT)}
"""Where real processes were run: the database, and what is in front."""


_OF_DOCUMENT: Final = ("sweep", "records", "exponent", "returns", "share", "policy", "parameters")


class Stream(NamedTuple):
    """What rows have in common that differ in seed, policy and way only."""

    stream: str
    away_s: float
    wishes: float
    share: float


def _stream(row: Json) -> Stream:
    return Stream(row["stream"], row["away_s"], row["wishes"], row["share"])


def _rows(found: Json) -> list[dict[str, Any]]:
    return [dict(zip(found["names"], values, strict=True)) for values in found["rows"]]


class Found:
    """What `job.digest` has found: ``pure`` of the seeds, ``measured`` on real processes."""

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
        """The numbers of records that the document's experiments were run with."""
        return sorted({key[1] for key in self._document if not key[0]})

    def document(
        self,
        records: int,
        policy: str,
        share: float | None = None,
        exponent: float = EXPONENT,
        returns: float = RETURNS,
    ) -> Json | None:
        """Of experiments 1 and 2."""
        return self._document.get((False, records, exponent, returns, share, policy, ""))

    def difference(
        self, records: int, one: str, other: str, what: str, share: float | None = None, exponent: float = EXPONENT
    ) -> Rate | None:
        """Of one policy less another, seed by seed."""
        world = (records, exponent, RETURNS, share)
        if row := self._differences.get((*world, one, other)):
            there: Rate = row[what]
            return there
        if row := self._differences.get((*world, other, one)):
            return (-row[what][0], row[what][1])
        return None

    def sweep(self, policy: str, share: float | None = None) -> dict[str, Json]:
        """Of experiments 5 to 7, by parameters, as they are written."""
        return {key[6]: row for key, row in self._document.items() if key[0] and key[4] == share and key[5] == policy}

    def reads(self, stream: Stream, policy: str, *, knows: bool = False) -> Json | None:
        """Of a policy, which knows who has had what, or does not."""
        return self._reads.get((stream, policy, knows))

    def policies(self, stream: Stream) -> list[str]:
        """That were run with it."""
        return list(dict.fromkeys(policy for one, policy, _ in self._reads if one == stream))

    def ahead(self, stream: Stream, *, knows: bool = False) -> Json | None:
        """By how much `owed` is ahead of which other."""
        return self._ahead.get((stream, knows))

    def requests(self, exponent: float, share: float, policy: str) -> Json | None:
        """Of plain requests."""
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
        """Of real processes."""
        wanted = (kind, *PLACES[place], records, strategy, share, parameters)
        names = ("kind", "database", "via", "records", "strategy", "capacity", "parameters")
        return next((row for row in self.live if tuple(row[name] for name in names) == wanted), None)

    def measured_records(self, kind: str, place: str = "LMDB") -> list[int]:
        """The numbers of records that were run there with the strategies' own parameters."""
        return sorted(
            {
                row["records"]
                for row in self.live
                if (row["kind"], row["database"], row["via"]) == (kind, *PLACES[place]) and not row["parameters"]
            }
        )

    def measured_sweep(self, strategy: str) -> dict[str, Json]:
        """Latencies by parameters."""
        return {
            row["parameters"]: row
            for row in self.live
            if row["kind"] == LATENCY and row["strategy"] == strategy and row["parameters"]
        }

    @property
    def repeats(self) -> list[tuple[float, float]]:
        """Mean latencies of units that were run twice: the document's own parameters are among those of the sweeps."""
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
        """Was any measured?"""
        return any(row["kind"] == THROUGHPUT for row in self.live)
