"""Made-up runs: logs in the format of bench/SCHEMA.md, from a seed.

Owns the look of a test's run. It shares no code with the digest, so that an error in one does not hide in both.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EVENT_HEADER = "kind,phase,connection,topic,seq,intended_ns,at_ns,value,detail"
PHASE_HEADER = "phase,kind,start_ns,end_ns,measured,offered_per_s,amount,detail"
MACHINE_HEADER = (
    "at_ns,source,role,cpu_s,rss_bytes,anon_bytes,net_rx_bytes,net_tx_bytes,disk_read_bytes,disk_write_bytes"
)
COUNTER_HEADER = "at_ns,phase,source,name,value"

START_NS = 5_000_000_000_000
MS = 1_000_000
S = 1_000 * MS

Row = tuple[Any, ...]


def facts(run: str = "r1", **changes: Any) -> dict[str, Any]:
    """Return a run.json's object."""
    return {
        "schema": 2,
        "run": run,
        "system": "ingeborg",
        "variant": "home",
        "workload": "radio",
        "series": None,
        "seed": 1,
        "started_unix_ms": 1_772_000_000_000,
        "started_ns": START_NS,
        "complete": True,
        "config": {"clients": 3, "stations": 1},
        "machine": {"cores": 2, "memory_bytes": 16_000_000_000, "kernel": "Linux 6.1", "cpu": "A processor"},
        "software": {"python": "3.11.7", "websockets": "17.0", "ingeborg": "0.1.0"},
        "form": {"generator": "interpreted", "endpoints": {"a": "compiled"}},
        "goals": {"p50_ms": 500, "p99_ms": 2000},
    } | changes


@dataclass
class Run:
    """A run's content; `write` makes its directory. `parts` are the event files' rows, of processes 000, 001 …"""

    facts: dict[str, Any]
    parts: list[list[Row]]
    phases: list[Row]
    machine: list[Row] = field(default_factory=list)
    counters: list[Row] = field(default_factory=list)

    @property
    def events(self) -> list[Row]:
        return [row for part in self.parts for row in part]

    def write(self, directory: Path) -> Path:
        directory.mkdir(parents=True)
        (directory / "run.json").write_text(json.dumps(self.facts), encoding="utf-8")
        for process, rows in enumerate(self.parts):
            write_csv(directory / f"events-{process:03d}-0000.csv", EVENT_HEADER, rows)
        write_csv(directory / "phases.csv", PHASE_HEADER, self.phases)
        if self.machine:
            write_csv(directory / "machine.csv", MACHINE_HEADER, self.machine)
        if self.counters:
            write_csv(directory / "counters.csv", COUNTER_HEADER, self.counters)
        return directory


def name_files(directory: Path) -> None:
    """Make run.json name every file with its size and checksum, as loadgen does when it closes a run."""
    facts = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    facts["files"] = {
        path.name: {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in sorted(directory.glob("*.csv"))
    }
    (directory / "run.json").write_text(json.dumps(facts), encoding="utf-8")


def write_csv(path: Path, header: str, rows: Iterable[Sequence[Any]]) -> None:
    lines = [header, *(",".join("" if cell is None else str(cell) for cell in row) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def news(phase: str, topic: int, seq: int, at: int, expected: int) -> Row:
    return ("news", phase, None, topic, seq, START_NS + at, START_NS + at, expected, None)


def sent(phase: str, connection: int, topic: int, seq: int, intended: int, at: int, first: int) -> Row:
    return ("sent", phase, connection, topic, seq, START_NS + intended, START_NS + at, first, None)


def received(phase: str, connection: int, topic: int, seq: int, intended: int, at: int, skipped: int = 0) -> Row:
    detail = skipped or None
    return ("received", phase, connection, topic, seq, START_NS + intended, START_NS + at, at - intended, detail)


def error(phase: str, at: int, code: str) -> Row:
    return ("error", phase, None, None, None, None, START_NS + at, 0, code)


def phase(name: str, kind: str, start: int, end: int, measured: int = 0, **more: Any) -> Row:
    """Return a row of phases.csv; times in ns since the run's start. `more`: offered_per_s, amount, detail."""
    rest = (more.get("offered_per_s"), more.get("amount"), more.get("detail"))
    return (name, kind, START_NS + start, START_NS + end, measured, *rest)


def sample(
    at: int, source: str, role: str, cpu_s: float | None, rss: int | None = None, anon: int | None = None
) -> Row:
    """Return a row of machine.csv without network and disk."""
    return (START_NS + at, source, role, cpu_s, rss, anon, None, None, None, None)


def random_run(run: str, rng: random.Random) -> Run:
    """Draw a small run with everything that can go wrong: losses, repetitions, reorderings, stray deliveries,
    errors, deliveries that stand for others, missing or not, negative latencies, equal clock readings, deliveries
    in the phase after their news, and processes that restart, are missing, or do not report everything."""
    processes = rng.randint(1, 3)
    parts: list[list[Row]] = [[] for _ in range(processes)]
    spans = [
        ("warm", "search", 0, 2 * S, 0),
        ("run", rng.choice(("run", "sustained")), 2 * S, 6 * S, 1),
        ("again", "half", 6 * S, 9 * S + rng.choice((0, 700 * MS)), rng.randint(0, 1)),
        ("drain", "drain", 10 * S, 12 * S, 0),
    ]
    connections = rng.randint(1, 6)
    arrivals: list[tuple[int, int, Row]] = []
    sequence: dict[int, int] = {}

    def phase_at(at: int) -> str:
        return next((name for name, _, start, end, _ in spans if start <= at < end), "drain")

    for _ in range(rng.randint(0, 60)):
        topic = rng.randint(1, 5)
        seq = sequence[topic] = sequence.get(topic, 0) + 1
        intended = rng.randrange(0, 9 * S)
        listeners = rng.sample(range(connections), rng.randint(0, connections))
        parts[0].append(news(phase_at(intended), topic, seq, intended, len(listeners)))
        for index in range(rng.randint(0, 4)):
            meant = intended + rng.randrange(0, 50 * MS)
            at = meant + rng.randrange(0, 300 * MS)
            parts[0].append(sent(phase_at(at), rng.randrange(connections), topic, seq, meant, at, int(index == 0)))
        for connection in listeners:
            for _ in range(rng.choice((0, 1, 1, 1, 1, 2))):
                # Coarse times, so that two messages often have one clock reading; some before their intended time.
                at = intended + rng.randrange(-5, 400) * 10 * MS
                at -= at % (20 * MS)
                row = received(phase_at(at), connection, topic, seq, intended, at, rng.choice((0, 0, 0, 0, 0, 1, 2)))
                arrivals.append((at, connection % processes, row))
    for _ in range(rng.randint(0, 5)):
        at = rng.randrange(0, 9 * S)
        stray = received(phase_at(at), rng.randrange(connections), 99, rng.randint(1, 3), at, at + 5 * MS)
        arrivals.append((at + 5 * MS, 0, stray))
    rng.shuffle(arrivals)
    for _, process, row in sorted(arrivals, key=lambda arrival: arrival[0]):
        parts[process].append(row)
    for _ in range(rng.randint(0, 6)):
        at = rng.randrange(0, 12 * S)
        parts[-1].append(error(phase_at(at), at, rng.choice(("store_unavailable", "rate_limited", "odd 'code'"))))
    parts[0] = parts[0] or [error("run", 3 * S, "internal")]
    phases = [
        phase("connect", "connect", -2 * S, -S, amount=rng.choice((None, 0, connections))),
        phase("subscribe", "subscribe", -S, 0, amount=rng.randint(1, 100), detail='"1, 2"'),
    ]
    for name, kind, start, end, measured in spans:
        phases.append(phase(name, kind, start, end, measured, offered_per_s=rng.choice((None, 5, 7.5))))
    ends = sorted({at - START_NS for row in phases for at in row[2:4]})
    return Run(facts(run), parts, phases, _random_machine(rng, ends))


def _random_machine(rng: random.Random, ends: Sequence[int]) -> list[Row]:
    """Sample some processes of every role, once a second and shortly after both ends of every phase."""
    rows: list[Row] = []
    roles = ("generator", "generator", "server", "server", "layer", "host")
    for number, role in enumerate(rng.sample(roles, rng.randint(0, len(roles)))):
        busy, cpu_s, last = rng.uniform(0, 1.3) * (2 if role == "host" else 1), rng.uniform(0, 9), -3 * S
        knows_anon = rng.random() < 0.7
        for at in sorted({*range(-3 * S + rng.randrange(S), 12 * S, S), *(end + 3 * MS for end in ends)}):
            cpu_s = cpu_s + busy * rng.uniform(0.8, 1.0) * (at - last) / S if rng.random() > 0.02 else 0.0
            level = rng.randrange(10**6, 10**9)
            anon = level // 2 if knows_anon else None
            rows.append(sample(at, f"{role}-{number}", role, round(cpu_s, 3), level, anon))
            last = at
    rng.shuffle(rows)
    return rows


def radio_run(run: str, seconds: int = 20, rate: float = 60.0, seed: int = 1, **changes: Any) -> Run:
    """Draw a run like a demo's: many listeners, most reports duplicates, a stall in the middle, two endpoints."""
    rng = random.Random(seed)
    rows: list[Row] = []
    arrivals: list[tuple[int, Row]] = []
    sequence: dict[int, int] = {}
    begin, end = 2 * S, (2 + seconds) * S
    at = begin
    while (at := at + int(rng.expovariate(rate) * S)) < end:
        topic = int(rng.paretovariate(0.8)) % 2_000
        seq = sequence[topic] = sequence.get(topic, 0) + 1
        listeners = rng.sample(range(500), rng.choice((1, 2, 4, 6, 8)))
        rows.append(news("run", topic, seq, at, len(listeners)))
        rows += [
            sent("run", rng.randrange(500), topic, seq, at, at + int(rng.expovariate(200) * S), int(index == 0))
            for index in range(25)
        ]
        stall = 120 * MS if begin + 11 * S < at < begin + 12.2 * S else 0
        for connection in listeners:
            latency = int(rng.lognormvariate(0.4, 0.6) * MS) + (int(rng.random() * stall))
            arrivals.append((at + latency, received("run", connection, topic, seq, at, at + latency)))
    rows += [row for _, row in sorted(arrivals, key=lambda arrival: arrival[0])]
    phases = [
        phase("connect", "connect", 0, S, amount=500),
        phase("subscribe", "subscribe", S, 2 * S, amount=12_400),
        phase("run", "run", begin, end, 1, offered_per_s=25 * rate),
        phase("drain", "drain", end, end + 2 * S),
    ]
    machine: list[Row] = []
    sources = {
        "generator-0": ("generator", 0.55, 160e6),
        "host": ("host", 1.4, 3.1e9),
        "demo-1": ("server", 0.38, 72e6),
        "demo-2": ("server", 0.31, 70e6),
    }
    cpu = dict.fromkeys(sources, 0.0)
    for second in range(seconds + 5):
        for source, (role, base, rss) in sources.items():
            cpu[source] += base * rng.uniform(0.85, 1.15)
            level = int(rss * (1 + second / 200))
            network = (second * 900_000, second * 1_100_000, 0, second * 40_000) if role == "host" else (None,) * 4
            anon = None if role == "host" else level - 9_000_000
            row = (START_NS + second * S, source, role, round(cpu[source], 3), level, anon, *network)
            machine.append(row)
    reports = sum(row[0] == "sent" for row in rows)
    repeats = sum(row[0] == "sent" and row[7] == 0 for row in rows)
    counters: list[Row] = []
    for moment, share in ((begin, 0.0), (end, 1.0)):
        for endpoint in ("demo-1", "demo-2"):
            for name, total in (
                ("ingeborg_publishes_total", reports),
                ("ingeborg_duplicates_dropped_total", repeats),
                ("ingeborg_deliveries_total", len(arrivals)),
            ):
                counters.append((START_NS + moment, "run", endpoint, name, 10 + share * total / 2))
            counters.append((START_NS + moment, "run", endpoint, "ingeborg_connections", 250))
    return Run(facts(run, **changes), [rows], phases, machine, counters)
