"""Runs units on a real Kafka. All units use the same Kafka.

Owns: the server, the lanes in which units run, and the facts of each unit. Must never: know what an experiment does.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import uvloop
from confluent_kafka import KafkaException

from ingeborg.bench import rivals
from ingeborg.bench.autoscale import response, throughput, work
from ingeborg.bench.autoscale.cases import Changes, GroupRun, Reading, Steps, Work, may_share
from ingeborg.bench.errors import BenchError
from ingeborg.bench.experiments.experiment import Results, Unit

Done = Callable[[Unit, str], None]


def run(due: Sequence[Unit], results: Results, done: Done, at_once: int) -> None:
    """Run the units in their order, and call ``done`` after each unit. If units may share the machine, ``at_once``
    units run at the same time. Raises ``BenchError`` if Kafka does not start."""
    with rivals.running("kafka", state=results.out / "kafka") as server:
        uvloop.run(_all(due, results, done, at_once, server))


async def _all(due: Sequence[Unit], results: Results, done: Done, at_once: int, server: rivals.Server) -> None:
    for shared, some in itertools.groupby(due, lambda unit: may_share(unit.work)):
        waiting = iter(list(some))
        async with asyncio.TaskGroup() as lanes:
            for _ in range(at_once if shared else 1):
                lanes.create_task(_lane(waiting, results, done, server))


async def _lane(waiting: Iterator[Unit], results: Results, done: Done, server: rivals.Server) -> None:
    servers = server.url.partition("://")[2]
    for unit in waiting:
        try:
            facts = await _one(unit.work, servers, results)
        except (BenchError, KafkaException) as error:
            done(unit, str(error))
        else:
            results.keep(work.FACTS, unit.name, [{"kafka": server.version, "part": unit.part, **facts}])
            done(unit, "")


async def _one(task: Work, servers: str, results: Results) -> dict[str, Any]:
    match task:
        case Reading():
            return await throughput.run(task, servers, results)
        case Changes():
            return await response.changes(task, servers, results)
        case Steps():
            return await response.steps(task, servers, results)
        case GroupRun():
            return await work.run(task, servers, results)
