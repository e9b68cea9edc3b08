"""Run one unit of the plan, and write rows with each policy's results for a stream.

Owns: the rows, which depend only on the unit. Must never: compare policies, because the readers of the rows do that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from statistics import pvariance
from typing import Any, Final

from ingeborg.bench.caching import bound, ceiling, reads, restaurants
from ingeborg.bench.caching import log as logs
from ingeborg.bench.caching import requests as plain
from ingeborg.bench.caching.cases import (
    BATCHES,
    GONE,
    GONE_SHARE,
    POPULAR,
    RISES,
    SHARES,
    SIZES,
    UNEVEN,
    WEIGHTS,
    Document,
    Reads,
    Requests,
    Simulated,
    Sweep,
    Work,
    wants_log,
)
from ingeborg.bench.caching.policies.belady import Belady
from ingeborg.bench.caching.policies.named import BELADY, EITHER, ONLINE, OURS, OWED, PLAIN, RULES
from ingeborg.bench.caching.policies.ruled import Ruled
from ingeborg.bench.caching.policies.rules import Buffer, Mean, Rule, Threshold
from ingeborg.bench.caching.policies.tinylfu import TinyLfu
from ingeborg.bench.caching.replay import Outcome, Ways, replay, requests, unbounded
from ingeborg.bench.caching.simulator import Simulator
from ingeborg.bench.experiments.experiment import Results, Unit
from ingeborg.broker.core.caches.cache import COUNTED
from ingeborg.broker.core.caches.policy import Policy

Row = dict[str, Any]

ROWS, SIMULATED = "rows", "simulated"
"""The kinds of rows: results of our policies, and hits that libcachesim counts."""

BOUND, CEILING = "bound", "ceiling"
"""Names of rows that do not belong to a policy. See `bound.py` and `ceiling.py`."""

#: Standard deviation of the logarithm of the mean absence, if it differs between subscribers. With this value, two
#: thirds of the subscribers are between 1/2.7 and 2.7 times the median.
SPREAD: Final = 1.0


def run(unit: Unit, results: Results, log: Path | None, python: str | None) -> None:
    """Run the unit and keep its rows. ``log`` is the now-playing log, which only some units need, and ``python`` an
    interpreter with libcachesim."""
    work: Work = unit.work
    if isinstance(work, Simulated):
        assert python is not None  # see ``simulator.check``
        with Simulator(python) as simulator:
            results.keep(SIMULATED, unit.name, _simulated(work.requests, simulator, log))
    else:
        results.keep(ROWS, unit.name, rows(work, log))


def rows(work: Work, log: Path | None) -> Iterator[Row]:
    """Yield the rows of a stream."""
    match work:
        case Requests():
            return _requests(work, log)
        case Reads():
            return _reads(work, log)
        case Sweep():
            return _sweep(work)
        case Document():
            return _document(work)
    raise TypeError(work)


@lru_cache(maxsize=1)
def _plays(log: Path | None) -> list[logs.Play]:
    assert log is not None, "the plan must not have a unit that needs a log if there is no log"
    return logs.read(log)


# Plain requests


def _items(unit: Requests, log: Path | None) -> tuple[list[int], dict[float, int]]:
    """Return the requested items, and the number of entries that fit, by share."""
    items = plain.zipf(unit.exponent, unit.seed) if unit.exponent else logs.songs(_plays(log))
    different = plain.ITEMS if unit.exponent else len(set(items))
    return items, {share: int(different * share) for share in SHARES}


def _requests(unit: Requests, log: Path | None) -> Iterator[Row]:
    items, rooms = _items(unit, log)
    for share, room in rooms.items():
        policies: dict[str, Policy] = {name: ONLINE[name](room, room) for name in PLAIN}
        for name, policy in (policies | {BELADY: Belady(plain.following(items))}).items():
            counts = requests(items, policy, room)
            yield {
                "kind": "requests",
                "exponent": unit.exponent,
                "seed": unit.seed,
                "share": share,
                "policy": name,
                "requests": len(items),
                "hits": counts.hits,
            }


def _simulated(unit: Requests, simulator: Simulator, log: Path | None) -> Iterator[Row]:
    items, rooms = _items(unit, log)
    for share, room in rooms.items():
        for policy in (*PLAIN, BELADY):
            yield {
                "exponent": unit.exponent,
                "seed": unit.seed,
                "share": share,
                "policy": policy,
                "simulated": simulator.hits(policy, room, items),
                # With half the counters, our W-TinyLFU is as exact as libcachesim's. The sketch of libcachesim adds to
                # all counters of a key, so it counts too many requests for other keys.
                "narrow": requests(items, TinyLfu(room, room, width=2), room).hits if policy == "tinylfu" else None,
            }


# Records and reads


def _stream(unit: Reads, log: Path | None) -> reads.Stream:
    if wants_log(unit):
        return reads.played(
            _plays(log),
            unit.seed,
            unit.away_s,
            unit.wishes,
            popular=unit.stream == POPULAR,
            spread=SPREAD if unit.stream == UNEVEN else 0.0,
        )
    exponent = float(unit.stream.partition(",")[0].removeprefix("zipf "))
    gone = GONE_SHARE if unit.stream == GONE else 0.0
    return reads.zipf(exponent, unit.seed, unit.away_s, unit.wishes, even=unit.stream != SIZES, gone=gone)


def ways(policy: str, *, whole: bool) -> list[Ways]:
    """Return the ways in which a policy runs. `owed` always knows which subscribers have received a record, because it
    needs this knowledge."""
    if policy in OURS:
        return [Ways(reads_in, told=True) for reads_in in (False, True)]
    return [Ways(reads_in, told) for told in ((False, True) if whole else (False,)) for reads_in in (False, True)]


def _reads(unit: Reads, log: Path | None) -> Iterator[Row]:
    stream = _stream(unit, log)
    room = stream.room(unit.share)
    entries = room * len(stream.sizes) // stream.bytes
    facts: Row = {
        "kind": "reads",
        "stream": unit.stream,
        "away_s": unit.away_s,
        "wishes": unit.wishes,
        "seed": unit.seed,
        "share": unit.share,
    }
    for name, maker in ONLINE.items():
        for way in ways(name, whole=unit.whole):
            yield facts | {"policy": name} | _row(replay(stream, maker(room, entries), room, way), way)
    way = Ways(reads_in=True, told=True)
    yield facts | {"policy": BELADY} | _row(replay(stream, Belady(stream.following()), room, way), way)
    all_reads = len(stream.events) - len(stream.sizes)
    most = {"reads": all_reads, "records": len(stream.sizes)}
    yield facts | {"policy": BOUND} | most | {"hits": bound.hits(stream, room)}
    if unit.stream not in (UNEVEN, GONE):
        yield facts | {"policy": CEILING} | most | {"hits": ceiling.hits(stream, room)}


def _row(outcome: Outcome, way: Ways) -> Row:
    row: Row = {
        "reads_in": way.reads_in,
        "told": way.told,
        "reads": outcome.reads,
        "hits": outcome.hits,
        "records": outcome.records,
        "by_record": round(outcome.by_record, 6),
        "cached": outcome.cached,
        "copies": outcome.copies,
    }
    if outcome.counts is not None:
        row |= {name: getattr(outcome.counts, name) for name in COUNTED}
    return row


# The document's experiments


def _document(unit: Document) -> Iterator[Row]:
    found = restaurants.world(unit.records, unit.seed, unit.exponent)
    facts = _facts(unit.records, unit.seed, unit.share, unit.exponent, unit.returns) | {"sweep": False}
    if unit.share is None:
        rules = {**RULES, OWED: RULES["all"]}  # with room for all records, our policy must keep all
        for name, rule in rules.items():
            row = _row(unbounded(found.utilities, rule()), Ways())
            yield facts | {"policy": name, "parameters": ""} | row | {"written": _written(name, row)}
        return
    stream = restaurants.stream(found, unit.seed, unit.returns)
    room = stream.room(unit.share)
    nothing = unbounded(found.utilities, RULES["none"]())  # without a cache, no read is a hit in any stream
    for name, rule in RULES.items():
        for way in ways(name, whole=False):
            row = _row(nothing if name == "none" else replay(stream, Ruled(rule()), room, way), way)
            written = None if way.reads_in else _written(name, row)
            yield facts | {"policy": name, "parameters": ""} | row | {"written": written}
    for way in ways(OWED, whole=False):
        row = _row(replay(stream, ONLINE[OWED](room, 0), room, way), way)
        yield facts | {"policy": OWED, "parameters": ""} | row | {"written": _written(OWED, row)}


def _facts(records: int, seed: int, share: float | None, exponent: float, returns: float) -> Row:
    return {
        "kind": "document",
        "records": records,
        "exponent": exponent,
        "returns": returns,
        "seed": seed,
        "share": share,
    }


def _written(name: str, row: Row) -> int:
    """Return the number of records that the database gets, if a record goes to memory or to the database. It gets the
    records that did not enter memory, and the records that memory evicted, because they would be lost otherwise. The
    slides say that threshold writes each record."""
    records: int = row["records"]
    return records - row["cached"] + row.get("evicted", 0) if name in EITHER else records


def _sweep(unit: Sweep) -> Iterator[Row]:
    found = restaurants.world(unit.records, unit.seed)
    facts = _facts(unit.records, unit.seed, unit.share, restaurants.EXPONENT, restaurants.RETURNS) | {"sweep": True}
    stream = None if unit.share is None else restaurants.stream(found, unit.seed)
    for parameters, rule in swept(unit.policy).items():
        facts |= {"policy": unit.policy, "parameters": parameters}
        if unit.policy == "buffer":
            facts |= {"variance": round(_variance(found.utilities, *parameters.split()), 6)}
        if stream is None:
            yield facts | _row(unbounded(found.utilities, rule()), Ways())
            continue
        room = stream.room(unit.share or 0.0)
        for way in ways(unit.policy, whole=False):
            yield facts | _row(replay(stream, Ruled(rule()), room, way), way)


def swept(policy: str) -> Mapping[str, Callable[[], Rule]]:
    """Return the rules of a sweep, by the text of their parameters."""
    if policy == "threshold":
        return {f"{rise} {1 - Decimal(rise)}": partial(Threshold, rise, str(1 - Decimal(rise))) for rise in RISES}
    if policy == "mean":
        return {str(batch): partial(Mean, batch) for batch in BATCHES}
    return {f"{own} {before}": partial(Buffer, own, before) for own in WEIGHTS for before in WEIGHTS}


def _variance(utilities: Sequence[int], own: str, before: str) -> float:
    """Return the variance of buffer's threshold, relative to the variance of the numbers of subscribers."""
    thresholds = [float(own) * one + float(before) * former for former, one in pairwise([0, *utilities])]
    return pvariance(thresholds) / pvariance(utilities)
