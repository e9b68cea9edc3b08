"""Digests of version 2 made by hand, for tests of the display: no Spark, no log, and text as hostile as possible.

Owns the shape of a digest as its readers rely on it. `test_cli` compares them with the digest that Spark makes.
"""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

from ingeborg.bench.digest import files as digestdir
from ingeborg.bench.digest.tables import TABLES

Json = dict[str, Any]

HOSTILE = "<script>alert('x')</script> & \"q\" | `m` \x1b[31m"

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999, "max": 1.0}

TRAFFIC = {
    "connections": 20,
    "topics": 1000,
    "fanout": 5.0,
    "duplicates": 0.23,
    "repeat_within_s": 1.0,
    "size": "200",
    "skew": 0.0,
    "rate": None,
    "p99_ms": 50.0,
    "most_rate": 200_000.0,
    "processes": 2,
    "servers": 1,
}

TOPICS = {
    "first": 1,
    "last": 131_072,
    "messages": 20_000,
    "window": 10_000,
    "size": "200",
    "processes": 1,
    "servers": 1,
}


def facts(run: str = "demo", **changes: Any) -> Json:
    """Return a run.json's object."""
    ours = changes.get("system", "ingeborg") == "ingeborg"
    endpoints = {"endpoints": {"a": "compiled", "b": "compiled"}} if ours else {}
    return {
        "schema": 2,
        "run": run,
        "system": "ingeborg",
        "variant": "",
        "workload": "radio",
        "series": None,
        "seed": 1,
        "started_unix_ms": 1_772_000_000_000,
        "started_ns": 5_000_000_000_000,
        "complete": True,
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "config": {"clients": 200, "stations": 40, "servers": 2},
        "machine": {"cores": 2, "memory_bytes": 16_000_000_000, "kernel": "Linux 6.1", "cpu": "A processor"},
        "software": {"python": "3.11.7", "websockets": "17.0", "ingeborg": "0.1.0"},
        "form": {"generator": "interpreted", **endpoints},
        "goals": {"p50_ms": 500, "p99_ms": 2000},
    } | changes


def latency(p50_ns: float) -> Json:
    """Return percentiles that rise evenly, p99 at twice the median."""
    table: Json = {name: int(p50_ns * (0.98 + 2.04 * (share - 0.5))) for name, share in PERCENTILES.items()}
    table["p50"] = int(p50_ns)
    table["max"] = int(p50_ns * 4)
    return table | {"mean": p50_ns * 1.1}


def phase(name: str, kind: str, start_s: float, end_s: float, p50_ns: float | None = None, **changes: Any) -> Json:
    """Return a phase; with a median, one in which 250 messages came out of 1,250 a second."""
    duration_s = end_s - start_s
    busy = p50_ns is not None
    counts = {"news": 50, "reports": 1250, "duplicates_offered": 1200, "expected": 250, "delivered": 250}
    made: Json = {
        "phase": name,
        "kind": kind,
        "start_s": start_s,
        "end_s": end_s,
        "duration_s": duration_s,
        "measured": kind in ("run", "sustained", "half"),
        "listed": True,
        "offered_per_s": None,
        "amount": None,
        "detail": "",
        "amount_per_s": None,
        **{count: int(rate * duration_s) if busy else 0 for count, rate in counts.items()},
        **dict.fromkeys(
            ("lost", "conflated", "duplicated", "reordered", "overtaken", "excess", "unannounced", "errors"), 0
        ),
        "error_codes": {},
        "latency_ns": latency(p50_ns) if p50_ns is not None else dict.fromkeys([*PERCENTILES, "mean"]),
        "curve": [[ppm, int(p50_ns * (1 + 3 * ppm / 1e6))] for ppm in (0, 500_000, 900_000, 990_000, 999_990)]
        if p50_ns is not None
        else [],
        "lag_ns": {"p50": 20_000, "p99": 90_000, "max": 2_000_000} if busy else dict.fromkeys(("p50", "p99", "max")),
        "produce_per_s": None,
        "consume_per_s": None,
        "end_to_end_per_s": None,
        "processes": {},
        "cpu_us_per_delivered": {"server": None, "layer": None, "generator": None},
        "saturated": [],
        "noise": None,
    } | changes
    for rate, count in (("reports_per_s", "reports"), ("delivered_per_s", "delivered")):
        made.setdefault(rate, made[count] / duration_s if duration_s else None)
    if made["amount"] is not None and duration_s:
        made["amount_per_s"] = made["amount"] / duration_s
    return made


def run(about: Json, phases: list[Json], **changes: Any) -> Json:
    """Return a run of these phases: the last measured one's percentiles stand for all."""
    measured = [one for one in phases if one["measured"]]
    counts = (
        *("news", "reports", "duplicates_offered", "expected", "delivered", "lost", "conflated", "duplicated"),
        *("reordered", "excess", "unannounced", "errors"),
    )
    totals: Json = {count: sum(one[count] for one in measured) for count in counts}
    duration_s = sum(one["duration_s"] for one in measured)
    last = measured[-1] if measured else phase("none", "run", 0, 1)
    totals |= {
        "phases": [one["phase"] for one in measured],
        "duration_s": duration_s,
        "reports_per_s": totals["reports"] / duration_s if duration_s else None,
        "delivered_per_s": totals["delivered"] / duration_s if duration_s else None,
        "error_codes": {},
        "latency_ns": last["latency_ns"],
        "curve": last["curve"],
        "duplicates_dropped": totals["duplicates_offered"] if totals["news"] else None,
    }
    return {
        "run": about["run"],
        "facts": about,
        "log": {"files": 5, "size_bytes": 1_900_000, "lines": 30_000, "torn": [], "empty": [], "sha256": None},
        "percentile_error": None,
        "failed": about.get("failed"),
        "phases": phases,
        "measured": totals,
        "goals": goals(about, totals),
        "memory": {"server_bytes_per_connection": None, "server_bytes_per_subscription": None},
        "store_operations_per_delivered": None,
        "counters": [],
        "notes": [],
    } | changes


def goals(about: Json, measured: Json) -> list[Json]:
    """Judge goals as the digest does."""
    judged = []
    for name, limit in {**about["goals"], "lost": 0, "duplicated": 0}.items():
        value: float | None = None
        if name.endswith("_ms"):
            value_ns = measured["latency_ns"].get(name.removesuffix("_ms"))
            value = None if value_ns is None else value_ns / 1e6
        elif measured["news"]:
            value = measured.get(name)
        known = name.endswith("_ms") or name in measured
        judged.append(
            {
                "goal": name,
                "limit": limit,
                "measured": value,
                "met": (value is not None and value <= limit) if known else None,
            }
        )
    return judged


def demo(name: str = "demo", **changes: Any) -> Json:
    """Return a good run of radio: 20 measured seconds."""
    about = facts(name, **changes)
    phases = [
        phase("connect", "connect", 0, 1, amount=200),
        phase("subscribe", "subscribe", 1, 3, amount=12_400),
        phase("run", "run", 3, 23, 1_550_000, errors=3, error_codes={"store_unavailable": 3}),
        phase("drain", "drain", 23, 24),
    ]
    counters = [
        {"name": counter, "delta": 24_000, "sources": {"demo-1": 12_000, "demo-2": 12_000}}
        for counter in ("ingeborg_duplicates_dropped_total", "odd_total{x=1}")
    ]
    return run(about, phases, counters=counters)


def hostile() -> Json:
    """Return a run in which every text tries to be markup."""
    made = demo(
        HOSTILE,
        system=HOSTILE,
        variant=HOSTILE,
        workload=HOSTILE,
        commit=HOSTILE,
        goals={HOSTILE: 1, "p99_ms": 1},
        config={HOSTILE: HOSTILE},
        machine={"cpu": HOSTILE, HOSTILE: [HOSTILE]},
        software={HOSTILE: HOSTILE},
        form={"generator": HOSTILE, "endpoints": {HOSTILE: HOSTILE, "b": "compiled"}},
    )
    for one in made["phases"]:
        one |= {"phase": HOSTILE, "detail": HOSTILE, "error_codes": {HOSTILE: 1}}
        one["saturated"] = [{"part": HOSTILE, "why": HOSTILE}]
    counter = {"name": HOSTILE, "delta": 1, "sources": {HOSTILE: 1}}
    return made | {"notes": [HOSTILE], "failed": HOSTILE, "counters": [counter]}


def hostile_compared() -> list[Json]:
    """Return such runs for the comparison."""
    names: Json = {"system": HOSTILE, "variant": HOSTILE}
    settings = {"size": HOSTILE, "window": HOSTILE}
    return [
        traffic(HOSTILE + "1", limits=saturated(HOSTILE), config=TRAFFIC | settings, **names),
        traffic(HOSTILE + "2", config=TRAFFIC | settings, failed=HOSTILE, **names),
        topics(HOSTILE + "3", 4, limits=saturated(HOSTILE), config=TOPICS | settings | {"topics": 4}, **names)
        | {"notes": [HOSTILE]},
        topics(HOSTILE + "4", 8, config=TOPICS | settings | {"topics": 8}, failed=HOSTILE, **names),
    ]


def document(*runs: Json) -> Json:
    return {"digest": 2, "runs": list(runs)}


def saturated(part: str = "generator", share: float = 0.97) -> list[Json]:
    return [{"part": part, "why": f"the busiest {part} process used {share:.0%} of a core"}]


def traffic(
    name: str,
    rate: float = 4000.0,
    p50_ns: float = 4_000_000,
    server_us: float | None = 20.0,
    limits: list[Json] | None = None,
    lost: int = 0,
    *,
    config: Json | None = None,
    **changes: Any,
) -> Json:
    """Return a run of traffic that searched up to `rate` publishes a second, was too slow above, and measured."""
    about = facts(
        name, workload="traffic", goals={"p99_ms": 50}, config=TRAFFIC if config is None else config, **changes
    )
    phases = [phase("connect", "connect", 0, 0.5, amount=20), phase("subscribe", "subscribe", 0.5, 1.5, amount=5000)]
    at_s = 1.5

    def step(title: str, kind: str, offered: float, length_s: float, median_ns: float, **more: Any) -> None:
        nonlocal at_s
        delivered = int(offered * length_s * 3.85)
        counts = {
            "reports": int(offered * length_s),
            "duplicates_offered": int(offered * length_s * 0.23),
            "news": int(offered * length_s * 0.77),
            "expected": delivered,
            "delivered": delivered,
        }
        cpu_s = (server_us or 0) * delivered / 1e6
        processes = {
            "server": {"cpu_s": cpu_s, "cpu_cores_max": cpu_s / length_s, "rss_bytes": 9e7, "anon_bytes": 7e7},
            "generator": {"cpu_s": length_s * 0.8, "cpu_cores_max": 0.8, "rss_bytes": 6e7, "anon_bytes": None},
        }
        noise = {
            "seconds": int(length_s),
            "delivered_per_s": {"mean": offered * 3.85, "cv": 0.021},
            "p99_ns": {"q1": median_ns * 1.8, "median": median_ns * 2, "q3": median_ns * 2.2},
        }
        phases.append(
            phase(
                title,
                kind,
                at_s,
                at_s + length_s,
                median_ns,
                offered_per_s=offered,
                processes=processes if server_us else {},
                cpu_us_per_delivered={"server": server_us, "layer": None, "generator": 40.0},
                noise=noise if length_s >= 3 else None,
                **(counts | more),
            )
        )
        at_s += length_s + 0.3

    tried, offered = 0, 500.0
    while offered < rate:
        tried += 1
        step(f"search-{tried:02d}", "search", offered, 3, p50_ns / 4, detail="held: p99 2 ms; 0 ms behind")
        offered *= 2
    step(
        f"search-{tried + 1:02d}",
        "search",
        rate * 1.1,
        3,
        p50_ns * 20,
        detail="breach: p99 160 ms above 50 ms; too late by half to be a stall",
        saturated=limits or [],
    )
    step("sustained-20", "sustained", rate, 15, p50_ns, detail="held: p99 8 ms; 0 ms behind", lost=lost)
    step("half-21", "half", rate / 2, 15, p50_ns / 3, detail="held: p99 3 ms; 0 ms behind")
    phases.append(phase("unsubscribe", "unsubscribe", at_s, at_s + 0.8, amount=5000))
    memory = {"server_bytes_per_connection": 31_000.0, "server_bytes_per_subscription": 410.0}
    return run(about, phases, memory=memory)


def topics(
    name: str,
    number: int,
    subscribe_s: float = 1.0,
    produce: float = 20_000.0,
    consume: float = 18_000.0,
    server_bytes: float | None = 8e7,
    limits: list[Json] | None = None,
    *,
    config: Json | None = None,
    failed: str | None = None,
    **changes: Any,
) -> Json:
    """Return a run of topics at one N. With `failed` it ended while subscribing."""
    more = {"failed": failed, "complete": False} if failed is not None else {}
    settings = TOPICS | {"topics": number} if config is None else config
    about = facts(name, **({"workload": "topics", "goals": {}, "series": "s", "config": settings} | changes | more))
    connect = phase("connect", "connect", 0, 0.1, amount=2)
    if failed is not None:
        return run(about, [connect, phase("subscribe", "subscribe", 0.1, 0.1 + subscribe_s)])
    start_s = 0.1 + subscribe_s
    messages = max(20_000, number)
    length_s = messages / consume
    server = {"cpu_s": messages * 2e-5, "cpu_cores_max": 0.7, "rss_bytes": 9e7, "anon_bytes": server_bytes}
    flood = phase(
        "run",
        "run",
        start_s,
        start_s + length_s,
        5_000_000,
        produce_per_s=produce,
        consume_per_s=consume,
        end_to_end_per_s=consume * 0.99,
        processes={"server": server} if server_bytes else {},
        cpu_us_per_delivered={"server": 20.0 if server_bytes else None, "layer": None, "generator": 30.0},
        saturated=limits or [],
        **dict.fromkeys(("news", "reports", "expected", "delivered"), messages),
        duplicates_offered=0,
    )
    subscribe = phase("subscribe", "subscribe", 0.1, start_s, amount=number)
    ended = phase("unsubscribe", "unsubscribe", start_s + length_s, start_s + length_s + subscribe_s, amount=number)
    return run(about, [connect, subscribe, flood, ended])


def tables(*runs: Json, seed: int = 1) -> dict[str, list[Json]]:
    """Return the tables of a document: a row per second that its phases span, for four processes."""
    rng = random.Random(seed)
    second_rows: list[Json] = []
    machine_rows: list[Json] = []
    for one in runs:
        last_s = int(max((each["end_s"] for each in one["phases"]), default=0)) + 1
        for second in range(last_s):
            now = next((each for each in one["phases"] if each["start_s"] <= second < each["end_s"]), None)
            busy = now if now is not None and now["delivered"] else None
            wave = rng.uniform(0.95, 1.05)
            second_rows.append(
                {"run": one["run"], "second": second, "news": 50, "duplicates_offered": 0, "errors": 0}
                | {"reports": int(busy["reports_per_s"] * wave) if busy else 0}
                | {"delivered": int(busy["delivered_per_s"] * wave) if busy else 0}
                | {
                    f"{name}_ns": int(busy["latency_ns"][name] * wave) if busy else None
                    for name in ("p50", "p99", "max")
                }
            )
            level = min(1.0, (busy["delivered_per_s"] if busy else 0) / 15_000)
            for source, role, cores, rss in (
                ("host", "host", 1.6, 3.1e9),
                ("generator-0", "generator", 0.8, 6e7),
                ("coordinator", "generator", 0.05, 5e7),
                ("127.0.0.1:9000", "server", 0.7, 8e7),
            ):
                host = role == "host"
                machine_rows.append(
                    {"run": one["run"], "source": source, "role": role, "second": second}
                    | {"cpu_cores": cores * (0.1 + 0.9 * level) * wave if second else None}
                    | {"rss_bytes": int(rss * (1 + second / 400)), "anon_bytes": int(rss * 0.8)}
                    | {
                        "net_rx_bytes_s": 4e6 * level if host else None,
                        "net_tx_bytes_s": 4.2e6 * level if host else None,
                    }
                    | {"disk_read_bytes_s": None, "disk_write_bytes_s": None}
                )
    return {"seconds": second_rows, "machine": machine_rows, "histogram": [], "counters": []}


def write(directory: Path, *runs: Json) -> None:
    """Write their digest to disk."""
    (directory / digestdir.DOCUMENT).write_text(json.dumps(document(*runs)), encoding="utf-8")
    for name, columns in TABLES.items():
        with (directory / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(tables(*runs)[name])


SYSTEMS: tuple[tuple[str, str, float, float, float, str | None], ...] = (
    ("ingeborg", "home", 9000, 28, 1, None),
    ("ingeborg", "lookup", 4100, 61, 1, None),
    ("rabbitmq", "with dedup layer", 2300, 95, 22, "layer"),
    ("kafka", "with dedup layer", 700, 240, 160, "layer"),
    ("nats", "", 14000, 6, 2, "generator"),
    ("nats", "with dedup layer", 2600, 9, 2, "layer"),
    ("redis", "with dedup layer", 2500, 11, 1.5, "layer"),
    ("mqtt", "with dedup layer", 2400, 14, 3, "machine"),
)
"""Name, variant, sustained rate, server CPU in µs per delivered, seconds to subscribe to 131,072 topics, and the other
part at its limit: a plausible comparison."""


def compared(doublings: int = 17, seed: int = 1) -> Json:
    """Return eight systems through traffic (the first one three times) and topics; Kafka fails at 4,096."""
    rng = random.Random(seed)
    runs = []
    for system, variant, rate, server_us, _, part in SYSTEMS:
        for repetition in range(3 if variant == "home" else 1):
            wave = rng.uniform(0.97, 1.03)
            runs.append(
                traffic(
                    f"traffic-{system}-{variant or 'plain'}-{repetition}",
                    rate * wave,
                    5_000_000 * wave,
                    server_us,
                    saturated(part) if part else None,
                    lost=3 if system == "mqtt" else 0,
                    system=system,
                    variant=variant,
                    seed=1 + repetition,
                )
            )
    for system, variant, rate, _, longest_s, part in SYSTEMS:
        if system != "ingeborg" and variant and system not in ("rabbitmq", "kafka"):
            continue
        for power in range(doublings + 1):
            number = 1 << power
            failed = system == "kafka" and power == 12
            slow = 1 + power / 40 + (power > 13) * (power - 13) * rng.uniform(0.1, 0.3)
            runs.append(
                topics(
                    f"topics-{system}-{variant or 'plain'}-{number}",
                    number,
                    0.002 + longest_s * number / (1 << 17),
                    rate * 4 / slow * rng.uniform(0.95, 1.05),
                    rate * 3.7 / slow * rng.uniform(0.95, 1.05),
                    6e7 + number * 900,
                    saturated(part) if part == "generator" and power < 9 else None,
                    system=system,
                    variant="" if variant.startswith("with") else variant,
                    failed="subscribe: timeout: no answer within 300 s" if failed else None,
                )
            )
            if failed:
                break
    return document(*runs)
