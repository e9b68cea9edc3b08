"""Short runs in virtual time, with the rows of real runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ingeborg.bench.dyconits import model, rows, workload
from ingeborg.bench.dyconits.cases import ALL, KAFKA, LATEST, LAYERS, PLAIN
from ingeborg.bench.dyconits.layer.settings import PROGRAMS
from ingeborg.bench.experiments.experiment import Results

LENGTH_S = 12.0
LOAD = replace(workload.load(workload.DEFAULT), length_s=LENGTH_S)

#: A system of the plan to the readings of its run in virtual time. This broker's bounds skip every other message.
RUNS = {KAFKA: None, **LAYERS, PLAIN: None, ALL: PROGRAMS, LATEST: None}


def keep(results: Results, experiment: str, system: str, seed: int = 1, part: str = "") -> model.Found:
    """Keep the rows of a run, and return it."""
    found = model.run(LOAD, experiment, RUNS[system], seed, LENGTH_S)
    unit = f"{experiment}-{system}-{seed}"
    samples = found.samples
    if system == LATEST:
        samples = [one._replace(taken=one.last - one.last // 2, skipped=one.last // 2) for one in samples]
    produced = (row for topic, times_ms in found.produced.items() for row in rows.produced(topic, times_ms))
    results.keep(rows.PRODUCED, unit, produced)
    results.keep(rows.SAMPLES, unit, rows.rows(samples))
    results.keep(rows.USED, unit, rows.rows(found.used))
    results.keep(rows.CONTROLS, unit, rows.rows(found.controls))
    facts: dict[str, Any] = {
        "part": part or experiment,
        "experiment": experiment,
        "system": system,
        "seed": seed,
        "length_s": LENGTH_S,
        "unit": unit,
        "server": "Kafka 4.3.1",
        "units": LOAD.experiments[experiment].units,
        "server_s": 1.0,
        "level": 0.0,
        "late_ms": 2.5,
        "updates": found.messages,
        "reports": 4,
    }
    results.keep(rows.FACTS, unit, [facts])
    return found
