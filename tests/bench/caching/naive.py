"""Computes figures from rows without Spark: a second opinion on the job.

A policy has up to four ways (`replay.Ways`). Whether missed records come in again is the policy's own choice: the way
with more hits on average counts, separately for each stream and room. `owed` knows which subscribers have had a record,
which is all that it uses. The others do not, as their authors published them; their results with this knowledge are
separate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from ingeborg.bench.caching.found import Stream
from ingeborg.bench.caching.policies.named import BELADY, OURS, OWED
from ingeborg.bench.caching.work import BOUND, CEILING, Row
from ingeborg.bench.experiments.figures import interval

Rate = tuple[float, float]
"""A mean, and half the width of its interval of 95 %."""

Value = Callable[[Mapping[str, Any]], float]
"""A value of a row."""


def by_read(row: Mapping[str, Any]) -> float:
    """Return the share of reads that were hits."""
    return float(row["hits"] / row["reads"])


def by_record(row: Mapping[str, Any]) -> float:
    """Return the share of a record's reads that were hits, averaged over records."""
    return float(row["by_record"])


def duplication(row: Mapping[str, Any]) -> float:
    """Return the document's duplication factor: the mean number of subscribers of a record in memory."""
    return float(row["copies"] / row["cached"]) if row["cached"] else 0.0


def copies(row: Mapping[str, Any]) -> float:
    """Return the mean number of subscribers of a record in memory, over all records."""
    return float(row["copies"] / row["records"])


NO_POLICY: Final = (BELADY, BOUND, CEILING)
"""Policies that no broker can have."""


class Best(NamedTuple):
    """The rows of a policy in its better way, one for each seed."""

    reads_in: bool
    rows: Mapping[int, Mapping[str, Any]]

    def rate(self) -> Rate:
        """Return the rate by read over the seeds."""
        return interval([by_read(self.rows[seed]) for seed in sorted(self.rows)])


def better(rows: Iterable[Mapping[str, Any]]) -> Best:
    """Choose the better way from the rows of one policy with one stream."""
    ways: dict[bool, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for row in rows:
        ways[bool(row.get("reads_in"))][row["seed"]] = row
    best = [Best(reads_in, by_seed) for reads_in, by_seed in sorted(ways.items())]
    return max(best, key=lambda one: one.rate()[0])


# Streams of records and reads


class Ahead(NamedTuple):
    """The lead of `owed` over another policy, seed by seed."""

    other: str
    rate: Rate


class Reads:
    """All figures of streams of records and reads."""

    def __init__(self, rows: Iterable[Row]) -> None:
        found: dict[tuple[Stream, str, bool], list[Row]] = defaultdict(list)
        for row in rows:
            if row["kind"] == "reads":
                stream = Stream(row["stream"], row["away_s"], row["wishes"], row["share"])
                told = bool(row.get("told")) and row["policy"] not in (*OURS, *NO_POLICY)
                found[stream, row["policy"], told].append(row)
        self._best = {key: better(each) for key, each in found.items()}
        self.streams = list(dict.fromkeys(stream for stream, _, _ in found))

    def policies(self, stream: Stream) -> list[str]:
        """Return the policies in the order of the plan."""
        return list(dict.fromkeys(name for one, name, _ in self._best if one == stream))

    def best(self, stream: Stream, policy: str, *, told: bool = False) -> Best | None:
        """Return the policy in its better way. ``told``: it knows which subscribers have had a record, without using
        this itself."""
        return self._best.get((stream, policy, told))

    def ahead(self, stream: Stream, *, told: bool) -> Ahead:
        """Return the lead over the best other policy that a broker could have. ``told``: the others have the same
        knowledge."""
        ours = self._best[stream, OWED, False].rows
        others = {
            name: best
            for (one, name, knows), best in self._best.items()
            if one == stream and knows == told and name not in (*OURS, *NO_POLICY)
        }
        other = max(others, key=lambda name: others[name].rate()[0])
        theirs = others[other].rows
        seeds = sorted(ours.keys() & theirs.keys())  # not every seed has all ways
        return Ahead(other, interval([by_read(ours[seed]) - by_read(theirs[seed]) for seed in seeds]))


# The document's experiments


def document(rows: Iterable[Row], value: Value, **wanted: Any) -> dict[tuple[str, str], dict[int, Rate]]:
    """Return for each policy with its parameters the rates by number of records. ``wanted``: the required values of
    rows, which include the reading of bounded memory (``reads_in``)."""
    found: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for row in rows:
        if row["kind"] == "document" and all(row[name] == each for name, each in wanted.items()):
            found[row["policy"], row["parameters"], row["records"]].append(row)
    rates: dict[tuple[str, str], dict[int, Rate]] = defaultdict(dict)
    for (policy, parameters, records), each in found.items():
        rates[policy, parameters][records] = interval([value(row) for row in each])
    return dict(rates)
