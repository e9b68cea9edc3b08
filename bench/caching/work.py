"""Run one unit of the plan, and write rows with each policy's results for a stream.

Owns: the rows, which depend on the unit alone. Must never: compare policies, because the readers of the rows do that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache, partial
from pathlib import Path
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
    Unit,
)
from ingeborg.bench.caching.policies.belady import Belady
from ingeborg.bench.caching.policies.named import BELADY, ONLINE, OURS, OWED, PLAIN, RULES
from ingeborg.bench.caching.policies.ruled import Ruled
from ingeborg.bench.caching.policies.rules import Buffer, Mean, Rule, Threshold
from ingeborg.bench.caching.replay import Outcome, Ways, replay, requests, unbounded
from ingeborg.bench.experiments.units import keep
from ingeborg.broker.core.caches.cache import COUNTED
from ingeborg.broker.core.caches.policy import Policy

Row = dict[str, Any]

ROWS: Final = "rows"
"""Folder of a result, with a file for each unit."""

BOUND, CEILING = "bound", "ceiling"
"""Names of rows that belong to no policy; see `bound.py` and `ceiling.py`."""

#: Standard deviation of the logarithm of the mean absence, if it differs between subscribers. With this value, two of
#: three subscribers are between 1/2.7 and 2.7 times the median.
SPREAD: Final = 1.0

#: The room of sweeps with bounded memory, as a share of all bytes.
SWEEP_SHARE: Final = 0.1


def run(unit: Unit, out: Path, log: Path | None) -> None:
    """Run the unit and keep its rows, unless they exist. ``log`` is the now-playing log, which only some units need."""
    if kept(unit, out):
        return
    keep(_path(unit, out), rows(unit, log))


def kept(unit: Unit, out: Path) -> bool:
    """Return whether the unit is done."""
    return _path(unit, out).is_file()


def _path(unit: Unit, out: Path) -> Path:
    return out / ROWS / f"{unit.name}.jsonl"


def rows(unit: Unit, log: Path | None) -> Iterator[Row]:
    """Yield the rows of one unit."""
    if isinstance(unit, Requests):
        return _requests(unit, log)
    return _reads(unit, log) if isinstance(unit, Reads) else _document(unit)


@lru_cache(maxsize=1)
def _plays(log: Path | None) -> list[logs.Play]:
    assert log is not None, "the plan must not have a unit that needs a log if there is no log"
    return logs.read(log)


# Plain requests


def _requests(unit: Requests, log: Path | None) -> Iterator[Row]:
    items = plain.zipf(unit.exponent, unit.seed) if unit.exponent else logs.songs(_plays(log))
    different = plain.ITEMS if unit.exponent else len(set(items))
    for share in SHARES:
        room = int(different * share)
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


# Records and reads


def _stream(unit: Reads, log: Path | None) -> reads.Stream:
    if unit.wants_log:
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
    would be useless without this knowledge."""
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
    utilities = found.utilities
    facts: Row = {
        "kind": "document",
        "sweep": unit.sweeps,
        "records": unit.records,
        "exponent": unit.exponent,
        "returns": unit.returns,
        "seed": unit.seed,
    }
    rules = _swept() if unit.sweeps else {(name, ""): rule for name, rule in RULES.items()}
    no_way = Ways()
    for (name, parameters), rule in rules.items():
        row = _row(unbounded(utilities, rule()), no_way)
        yield facts | {"policy": name, "parameters": parameters, "share": None} | row
    if not unit.sweeps:  # with room for all records, our policy must keep all
        yield (
            facts
            | {"policy": OWED, "parameters": "", "share": None}
            | _row(unbounded(utilities, RULES["all"]()), no_way)
        )
    if not unit.rooms:
        return
    stream = restaurants.stream(found, unit.seed, unit.returns)
    for share in (SWEEP_SHARE,) if unit.sweeps else SHARES:
        room = stream.room(share)
        for (name, parameters), rule in rules.items():
            for way in [no_way] if unit.sweeps else ways(name, whole=False):
                row = _row(replay(stream, Ruled(rule()), room, way), way)
                yield facts | {"policy": name, "parameters": parameters, "share": share} | row
        for way in [] if unit.sweeps else ways(OWED, whole=False):
            row = _row(replay(stream, ONLINE[OWED](room, 0), room, way), way)
            yield facts | {"policy": OWED, "parameters": "", "share": share} | row


def _swept() -> Mapping[tuple[str, str], Callable[[], Rule]]:
    """Return the rules of the sweeps by their names and the text of their parameters."""
    found: dict[tuple[str, str], Callable[[], Rule]] = {}
    for rise in RISES:
        fall = str(1 - Decimal(rise))
        found["threshold", f"{rise} {fall}"] = partial(Threshold, rise, fall)
    for batch in BATCHES:
        found["mean", str(batch)] = partial(Mean, batch)
    for own in WEIGHTS:
        for before in WEIGHTS:
            found["buffer", f"{own} {before}"] = partial(Buffer, own, before)
    return found
