"""Run a unit of the plan on a real Kafka.

Owns: the choice of the experiment for each kind of unit. Must never: know what an experiment does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ingeborg.bench.autoscale import response, throughput, work
from ingeborg.bench.autoscale.cases import Changes, Planned, Reading, Steps


async def run(unit: Planned, out: Path, servers: str) -> dict[str, Any]:
    """Run the unit, store its rows below ``out``, and return its facts. ``servers`` are the addresses of Kafka's
    servers. Raises ``BenchError`` if a program fails."""
    match unit:
        case Reading():
            return await throughput.run(unit.condition, unit.repeat, servers, out)
        case Changes():
            return await response.changes(unit, servers, out)
        case Steps():
            return await response.steps(servers, out)
        case _:
            return await work.run(unit, servers, out)
