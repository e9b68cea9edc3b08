"""`bench autoscale`: compares the document's autoscaler and ours with Kafka's own groups and KEDA's rule, on a real
Kafka.

Owns: the arguments, the order of running and digesting, and the progress output.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import json
import lzma
import os
import platform
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
import uvloop

from ingeborg import autoscaler
from ingeborg.bench import rivals
from ingeborg.bench.autoscale import cases, scale
from ingeborg.bench.errors import BenchError, ExtraMissing, UsageError
from ingeborg.bench.experiments import units

#: The parts of ``all``. The part ``long`` takes half a day, and runs only on request.
USUAL: Final = (cases.THROUGHPUT, cases.RESPONSE, cases.GROUPS)
EXPERIMENTS: Final = (*(part.name for part in cases.PARTS), "all")
FACTS, DIGEST = "facts", "autoscale.json.xz"
PAGE, SUMMARY = "report.html", "summary.md"

NOT_IN_ROWS: Final = ("command.py", "job.py", "page.py", "claims.py")
"""Source files that only read rows, so the rows stay valid when these files change."""

SEEDS_MAX, ITERATIONS_MAX, AT_ONCE_MAX = 1_000, 100, 16


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    whole_hours = cases.hours(cases.plan(USUAL))
    command = commands.add_parser(
        "autoscale",
        help="compare the autoscaler of consumer groups with Kafka's own groups, on a real Kafka",
        description="Run the experiments of the document (arXiv 2402.06085, section VI) with real programs, on a Kafka "
        "started for this run; digest their rows with Spark, and write one page. throughput: how fast one member "
        "reads, under the conditions of table VI. response: how long each step of a change takes (figures 14 to 17). "
        "groups: compares late data and member-seconds of `ingeborg autoscale`, Kafka's own assignments and KEDA's "
        f"rule; times are scaled 1:{scale.TIME:g}, and all takes about {whole_hours:.0f} hours. long: the same with "
        "the document's 100 and 500 decisions in a stream, and 500 decisions of the controller, which takes about "
        f"{cases.hours(cases.plan([cases.LONG])):.0f} hours. Finished runs in DIR do not run again.",
    )
    command.add_argument(
        "experiment", choices=EXPERIMENTS, help="the experiment to run; all: the first three, one after another"
    )
    command.add_argument(
        "--out", required=True, metavar="DIR", help="where to write rows and figures; created if missing"
    )
    command.add_argument(
        "--seeds", type=int, default=scale.SEEDS, metavar="N", help="groups: number of streams (default: %(default)s)"
    )
    command.add_argument(
        "--iterations",
        type=int,
        default=scale.ITERATIONS,
        metavar="N",
        help=f"groups: number of measurements in each stream, {scale.ITERATION_S:g} s each (default: %(default)s)",
    )
    command.add_argument(
        "--delta",
        type=float,
        default=scale.DELTA,
        metavar="PERCENT",
        help="groups: greatest change of a partition's load between measurements, %% of C (default: %(default)g)",
    )
    command.add_argument(
        "--at-once",
        type=int,
        default=1,
        metavar="N",
        help="groups: number of concurrent runs of groups with a fixed number of members, if one run does not keep the "
        "machine busy (default: %(default)s)",
    )
    command.add_argument("--again", action="store_true", help=f"only rebuild the page from the {DIGEST} in DIR")
    command.set_defaults(command=_autoscale)


def _autoscale(options: argparse.Namespace) -> int:
    if not 1 <= options.seeds <= SEEDS_MAX:
        raise UsageError(f"--seeds has to be from 1 to {SEEDS_MAX}")
    if not 1 <= options.iterations <= ITERATIONS_MAX:
        raise UsageError(f"--iterations has to be from 1 to {ITERATIONS_MAX}: a run takes at most five minutes")
    if not 0.0 <= options.delta <= 100.0:
        raise UsageError("--delta has to be from 0 to 100")
    if not 1 <= options.at_once <= AT_ONCE_MAX:
        raise UsageError(f"--at-once has to be from 1 to {AT_ONCE_MAX}")
    out = Path(options.out).absolute()
    if not options.again:
        try:
            import aiohttp  # noqa: F401
            import aiokafka  # noqa: F401
            import confluent_kafka  # noqa: F401
            import psutil  # noqa: F401
        except ImportError as error:
            raise ExtraMissing(
                f"{error}: pip install 'ingeborg[server,autoscale,bench,rivals]', or prepare the repository: make setup"
            ) from error
        units.hold(out, {"iterations": options.iterations, "delta": options.delta, "sources": sources()})
        with units.alone(out):
            _run(options, out)
            _digest(out)
    _pages(out)
    return 0


def sources() -> str:
    """Return a fingerprint of everything that determines the rows: the autoscaler, and the experiments."""
    return units.fingerprint((Path(autoscaler.__path__[0]), Path(__file__).parent), (*NOT_IN_ROWS, "view"))


def _run(options: argparse.Namespace, out: Path) -> None:
    from ingeborg.bench.autoscale import running

    only = USUAL if options.experiment == "all" else (options.experiment,)
    plan = cases.plan(only, options.seeds, options.iterations, options.delta)
    jobs = [_Job(unit.name, functools.partial(running.run, unit, out), unit.is_fixed) for unit in plan]
    (out / FACTS).mkdir(exist_ok=True)
    due = [job for job in jobs if not job.is_done(out)]
    print(f"{len(jobs)} runs, {len(jobs) - len(due)} already done", flush=True)
    if not due:
        return
    progress = _Progress(len(due), out)
    with rivals.running("kafka", state=out / "kafka") as server:
        for may_share, some in itertools.groupby(due, lambda job: job.may_share):
            uvloop.run(_lanes(list(some), options.at_once if may_share else 1, server, progress))
    if progress.failed:
        names = ", ".join(progress.failed)
        raise BenchError(f"{len(progress.failed)} of {len(due)} runs have failed: {names}; run the command again")


class _Job(NamedTuple):
    """A run to do. ``work`` is a function that takes the addresses of Kafka's servers, and returns facts. ``may_share``
    says whether the run may share the machine with other runs."""

    name: str
    work: Callable[[str], Coroutine[Any, Any, Any]]
    may_share: bool = False

    def is_done(self, out: Path) -> bool:
        return (out / FACTS / f"{self.name}.json").is_file()


class _Progress:
    def __init__(self, due: int, out: Path) -> None:
        self._due = due
        self._out = out
        self._done = 0
        self._begun_s = time.monotonic()
        self.failed: list[str] = []

    def done(self, job: _Job, facts: dict[str, Any]) -> None:
        (self._out / FACTS / f"{job.name}.json").write_bytes(orjson.dumps(facts) + b"\n")
        self._done += 1
        spent_s = time.monotonic() - self._begun_s
        left_s = spent_s / self._done * (self._due - self._done)
        print(f"  {job.name}: {self._done} of {self._due} after {spent_s:.0f} s, about {left_s:.0f} s left", flush=True)

    def fails(self, job: _Job, error: BenchError) -> None:
        self.failed.append(job.name)
        self._due -= 1
        print(f"  {job.name}: {error}", flush=True)


async def _lanes(jobs: list[_Job], lanes: int, server: rivals.Server, progress: _Progress) -> None:
    waiting = iter(jobs)
    servers = server.url.partition("://")[2]

    async def lane() -> None:
        for job in waiting:
            try:
                facts = await job.work(servers)
            except BenchError as error:
                progress.fails(job, error)
            else:
                progress.done(job, {"kafka": server.version, **facts})

    async with asyncio.TaskGroup() as tasks:
        for _ in range(lanes):
            tasks.create_task(lane())


def _digest(out: Path) -> None:
    from ingeborg.bench.autoscale import job

    print("digesting …", flush=True)
    facts = [json.loads(path.read_bytes()) for path in sorted((out / FACTS).glob("*.json"))]
    document = {
        "kafka": sorted({each["kafka"] for each in facts}),
        "machine": _machine(),
        "time_scale": scale.TIME,
        **job.digest(out),
    }
    found = json.dumps(document, separators=(",", ":")).encode() + b"\n"
    (out / DIGEST).write_bytes(lzma.compress(found, preset=9))


def _machine() -> dict[str, str]:
    import psutil

    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "python": platform.python_version(),
    }


def _pages(out: Path) -> None:
    from ingeborg.bench.autoscale import page

    try:
        document = json.loads(lzma.decompress((out / DIGEST).read_bytes()))
    except (OSError, ValueError, lzma.LZMAError) as error:
        raise BenchError(f"{out} has no {DIGEST} of bench autoscale ({error})") from error
    summary = page.summary(document)
    (out / PAGE).write_text(page.page(document), encoding="utf-8")
    (out / SUMMARY).write_text(summary, encoding="utf-8")
    print(summary)
    print(out / PAGE)
