"""Handmade figures of a whole evaluation: they agree with the document, apart from a test's changes.

Owns: the figures. Must never: be taken for results.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

from ingeborg.bench.caching.cases import BATCHES, CAPACITIES, RECORDS, RISES, SHARES, STREAMS, WEIGHTS
from ingeborg.bench.caching.found import PLACES, WRITTEN, Found
from ingeborg.bench.caching.live.cases import ALWAYS, POLLING, STRATEGIES, THROUGHPUT, WAITING
from ingeborg.bench.caching.live.parts import PARTS
from ingeborg.bench.caching.policies import named
from ingeborg.bench.caching.policies.named import BELADY, NOVEL, ONLINE, PLAIN
from ingeborg.bench.caching.reads import AWAY_S, WISHES
from ingeborg.bench.caching.work import BOUND, CEILING
from ingeborg.bench.experiments.figures import columns, rows_of

Row = dict[str, Any]

HITS = {"none": 0.0, "all": 1.0, "threshold": 0.5, "mean": 0.6, "buffer": 0.7, "owed": 1.0}
COPIES = {"none": 0.0, "all": 40.0, "threshold": 100.0, "mean": 98.0, "buffer": 60.0, "owed": 40.0}

#: The database's part of a latency with the largest number of records, in ms, as only a distant Riak would have.
DATABASE_MS = {"none": 40.0, "all": 0.01, "threshold": 20.0, "mean": 15.0, "buffer": 10.0, "owed": 0.01}


def world(**changes: Any) -> Row:
    """Return a row of the document's experiments."""
    return {"records": 500, "exponent": 1.0, "returns": 20.0, "share": None, "reads_in": False} | changes


def _policy(name: str, hits: float, copies: float, parameters: str = "", **more: Any) -> Row:
    figures = {
        "by_read": [hits, 0.01],
        "by_record": [hits, 0.01],
        "duplication": [copies, 1.0],
        "copies_per_record": [hits * 40, 1.0],
        "cached_share": [hits * 40 / copies if copies else 0.0, 0.01],
        "written_share": [1 - hits, 0.0] if name in named.EITHER else [1.0, 0.0],
        "variance": None,
    }
    return world(**more) | {"policy": name, "parameters": parameters, "seeds": 10} | figures


def documents() -> tuple[list[Row], list[Row]]:
    """Return means and differences."""
    means: list[Row] = []
    differences: list[Row] = []
    for records in RECORDS:
        shares = CAPACITIES if records == RECORDS[-1] else SHARES
        for share, again in ((None, False), *((share, again) for share in shares for again in (False, True))):
            at: Row = {"records": records, "share": share, "reads_in": again}
            means += [{"sweep": False} | _policy(name, HITS[name], COPIES[name], **at) for name in STRATEGIES]
            differences += [
                world(**at)
                | {"one": one, "other": other}
                | {"by_read": [HITS[one] - HITS[other], 0.01], "duplication": [COPIES[one] - COPIES[other], 1.0]}
                for one, other in combinations(("all", *NOVEL), 2)
            ]
    swept = [("threshold", f"{rise} {1 - float(rise):.1f}", 1 - float(rise)) for rise in RISES]
    swept += [("mean", str(batch), number / len(BATCHES)) for number, batch in enumerate(BATCHES)]
    swept += [
        ("buffer", f"{own} {before}", 1 / (1 + float(before) / (1 - float(own))))
        for own in WEIGHTS
        for before in WEIGHTS
    ]
    means += [
        {"sweep": True}
        | _policy(name, hits, 40.0, parameters, records=RECORDS[-1], share=share, reads_in=again)
        | {"variance": [float(parameters.split()[1]) ** 2, 0.001] if name == "buffer" else None}
        for name, parameters, hits in swept
        for share, again in ((None, False), (0.1, False), (0.1, True))
    ]
    return means, differences


def _live(kind: str, place: str, records: int, name: str, **changes: Any) -> Row:
    database, via = PLACES[place]
    row: Row = {"kind": kind, "database": database, "via": via, "writes": ALWAYS, "fetches": WAITING}
    row |= {"records": records, "strategy": name, "capacity": None, "parameters": ""}
    row |= {"runs": 3, "hit_rate": HITS[name], "broker_busy": 0.2, "load_busy": 0.3, "seconds": 4.0}
    few = (records - RECORDS[0]) / (RECORDS[-1] - RECORDS[0])
    if kind == THROUGHPUT:
        per_s = 10_000.0 * (1 + few * HITS[name])
        return row | {"records_per_s": [per_s, 100.0], "cpu_us": [1e6 / per_s, 0.5]} | changes
    latency_ms = 3.0 + few * DATABASE_MS[name]
    row |= {f"{part}_ms": 0.0 for part in PARTS} | {"database_ms": few * DATABASE_MS[name], "delivery_ms": 0.5}
    row |= {"writing_ms": 2.5}
    return row | {"latency_ms": [latency_ms, 0.1], "p50_ms": latency_ms, "p99_ms": 2 * latency_ms} | changes


def live() -> list[Row]:
    """Return rows of real processes."""
    rows = [
        _live(kind, place, records, name, writes=writes)
        for place in PLACES
        for kind in ("latency", "throughput")
        for records in RECORDS
        for name in STRATEGIES
        for writes in WRITTEN
        if writes == ALWAYS or (name in named.EITHER and records in (RECORDS[0], RECORDS[-1]))
    ]
    most: Row = {"place": "LMDB", "records": RECORDS[-1], "fetches": POLLING, "runs": 1}
    rows += [_live("latency", name=name, **most) for name in STRATEGIES]
    rows += [_live("latency", name=name, capacity=0.1, **most) for name in STRATEGIES[1:]]
    for number in range(5):
        slower = 20.0 * number
        times = {"latency_ms": [3.0 + slower, 0.0], "database_ms": slower, "runs": 1}
        share = f"0.{1 + 2 * number}"
        rows.append(_live("latency", "LMDB", 2_000, "threshold", parameters=f"{share} 0.{9 - 2 * number}", **times))
        rows.append(_live("latency", "LMDB", 2_000, "buffer", parameters=f"0.7 {share}", **times))
        batch = 10 ** (4 - number)
        rows.append(_live("latency", "LMDB", 2_000, "mean", parameters=str(batch), **times))
    return rows


def streams() -> dict[str, list[Row]]:
    """Return records and reads: means, the lead of `owed`, and the lead of each policy over the best rule."""
    means, ahead, over_rules = [], [], []
    for share in SHARES:
        for stream in STREAMS:
            at = {"stream": stream, "away_s": AWAY_S, "wishes": WISHES, "share": share}
            rates = dict.fromkeys(ONLINE, 0.5) | {"owed": 0.6, BELADY: 0.7, CEILING: 0.61, BOUND: 0.71}
            means += [
                at
                | {"policy": name, "knows": False, "reads_in": name == "lru", "seeds": 3}
                | {"by_read": [rate, 0.001]}
                for name, rate in rates.items()
            ]
            means.append(means[-len(rates)] | {"knows": True, "reads_in": False, "by_read": [0.55, 0.001]})
            ahead.append(at | {"knows": False, "other": "sieve", "by_read": [0.1, 0.002]})
            ahead.append(at | {"knows": True, "other": "lru", "by_read": [0.05, 0.002]})
            over_rules += [
                at | {"policy": name, "rule": "mean", "by_read": [rate - 0.4, 0.001]}
                for name, rate in rates.items()
                if name in ONLINE and name not in NOVEL
            ]
    return {"reads": means, "ahead": ahead, "over_rules": over_rules}


def requests() -> list[Row]:
    """Return plain requests, with libcachesim's hits."""
    return [
        {"exponent": exponent, "share": share, "policy": name, "seeds": 3}
        | {"rate": [0.5 + 0.2 * (name == BELADY), 0.01], "libcachesim": [0.501 + 0.2 * (name == BELADY), 0.01]}
        | {"narrow": [0.502, 0.01] if name == "tinylfu" else None}
        for exponent in (0.0, 0.8, 1.0, 1.2)
        for share in SHARES
        for name in (*PLAIN, BELADY)
    ]


FACTS = {
    "cores": 2,
    "memory_bytes": 8 << 30,
    "kernel": "6.1",
    "python": "3.11",
    "form": "interpreted",
    "note": "A note.",
}


def digests() -> tuple[Row, Row]:
    """Return the stored digests: of the seeds, and measured."""
    means, differences = documents()
    pure = {"requests": requests(), "document": means, "differences": differences, **streams()}
    return {name: columns(rows) for name, rows in pure.items()}, {"live": columns(live()), "facts": FACTS}


def found(kind: str = "", change: Callable[[Row], Row] = lambda row: row) -> Found:
    """Return all figures; ``change`` changes each row of one kind."""
    pure, measured = digests()
    for name, table in (pure | measured).items():
        if name == kind:
            (pure if name in pure else measured)[name] = columns(list(map(change, rows_of(table))))
    return Found(pure, measured)
