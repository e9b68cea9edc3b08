"""A digest made by hand, for tests of what is shown: no Spark, and any text of a log is hostile."""

from __future__ import annotations

from typing import Any

from bench import digest
from tests.bench import synthetic
from tests.bench.synthetic import START_NS, S

HOSTILE = "<script>alert('x')</script> & \"q\" | `m` \x1b[31m"


def figures(
    run: str, phase: str = "run", lost: int = 0, source: str = "demo-1", code: str = "store_unavailable"
) -> dict[str, list[dict[str, Any]]]:
    """Rows as Spark would give them, for one run of 20 measured seconds."""
    curve = [
        {"run": run, "phase": phase, "ppm": ppm, "latency_ns": 1_000_000 + ppm * 90 + (ppm == 1_000_000) * 50_000_000}
        for ppm in sorted({*digest.PERCENTILES_PPM.values(), 0, 250_000, 800_000, 999_990})
    ]
    deliveries = {"delivered": 5_000, "duplicated": 0, "reordered": 0, "unannounced": 0, "mean_ns": 1_500_000.0}
    sending = {"news": 1_000, "reports": 25_000, "duplicates_offered": 24_000, "errors": 3}
    return {
        "phases": [{"run": run, "phase": phase, "start_ns": START_NS, "end_ns": START_NS + 20 * S, "measured": 1}],
        "sending": [{"run": run, "phase": phase, "first_ns": START_NS, "last_ns": START_NS + S} | sending],
        "deliveries": [{"run": run, "phase": phase} | deliveries],
        "outcomes": [{"run": run, "phase": phase, "expected": 5_000 + lost, "lost": lost, "excess": 0, "rewritten": 0}],
        "errors": [{"run": run, "phase": phase, "code": code, "errors": 3}],
        "latency": curve,
        "counters": [
            {"run": run, "phase": phase, "source": source, "name": name, "first": 5.0, "last": 24_005.0, "reset": False}
            for name in ("ingeborg_duplicates_dropped_total", f"odd_total{{x={code}}}")
        ],
        "machine": [{"run": run}],
    }


def document(*runs: dict[str, Any], log: dict[str, Any] | None = None) -> dict[str, Any]:
    """A document of runs given by `{"facts": …, "figures": …}`."""
    log = log or {"files": 5, "size_bytes": 1_900_000, "lines": 30_000, "torn": [], "empty": []}
    rows: dict[str, list] = {}
    for run in runs:
        for name, table in run["figures"].items():
            rows.setdefault(name, []).extend(table)
    described = [{"facts": run["facts"], "directory": "/runs/x", "log": log} for run in runs]
    return digest.document(described, rows)


def plain(run: str = "demo", **changes: Any) -> dict[str, Any]:
    """A good run."""
    return {"facts": synthetic.facts(run, **changes), "figures": figures(run)}


def hostile() -> dict[str, Any]:
    """A run whose every text tries to be markup."""
    facts = synthetic.facts(HOSTILE, system=HOSTILE, workload=HOSTILE, commit=HOSTILE, goals={HOSTILE: 1, "p99_ms": 1})
    facts |= {
        "config": {HOSTILE: HOSTILE},
        "machine": {"cpu": HOSTILE, HOSTILE: [HOSTILE]},
        "software": {HOSTILE: HOSTILE},
    }
    return {"facts": facts, "figures": figures(HOSTILE, phase=HOSTILE, source=HOSTILE, code=HOSTILE)}


def tables(*runs: str, source: str = "demo-1", seconds: int = 22) -> dict[str, list[dict[str, Any]]]:
    """The tables beside the document."""
    second_rows, machine_rows = [], []
    for run in runs:
        for second in range(seconds):
            second_rows.append(
                {"run": run, "second": float(second), "reports": 1250.0 + second, "delivered": 250.0, "errors": 0.0}
                | {"news": 50.0, "duplicates_offered": 1200.0}
                | {"p50_ns": None if second == 3 else 1.5e6, "p99_ns": 4e6 + second, "max_ns": 9e6}
            )
            for name in ("host", "generator", source):
                machine_rows.append(  # noqa: PERF401
                    {"run": run, "source": name, "second": float(second), "cpu_cores": 0.4 if second else None}
                    | {"rss_bytes": 7e7 + second}
                )
    return {"seconds": second_rows, "machine": machine_rows, "histogram": [], "counters": []}
