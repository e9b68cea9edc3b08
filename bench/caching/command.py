"""`bench caching`: repeat the document's evaluation of its caching strategies, and evaluate this project's.

Owns: the arguments, the processes that run the plan, the order of running and digesting, and the progress output. Must
never: run other work during a measurement on real processes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ingeborg import form
from ingeborg.bench.caching import beside, plan, work
from ingeborg.bench.caching import log as logs
from ingeborg.bench.caching.cases import Unit
from ingeborg.bench.caching.found import LIVE
from ingeborg.bench.caching.live.cases import Unit as LiveUnit
from ingeborg.bench.errors import BenchError, UsageError
from ingeborg.bench.experiments import units
from ingeborg.broker.core import caches

SEEDS_MAX: Final = 100
FACTS = "facts.json"
DIGEST, MEASURED = "caching.json.xz", "live.json.xz"
"""Files with the results that the seeds determine, and with the measurements of a machine."""

PAGE, SUMMARY = "report.html", "summary.md"

KAFKA: Final = "kafka"

NOT_IN_ROWS: Final = (
    *("beside.py", "claims.py", "command.py", "conclusions.py", "drawn.py", "found.py", "goals.py", "job.py"),
    *("judging.py", "page.py", "plan.py", "simulator.py", "simulator_program.py", "summary.py", "timings.py"),
    "__main__.py",
)
"""Source files that only read rows, or describe the plan."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    command = commands.add_parser(
        "caching",
        help="compare strategies for keeping records in memory",
        description="Run every caching strategy of the document (Effect of Caching in a Content-Based Pub/Sub System "
        "using Kafka), other strategies, and ours. Run them over streams of records and reads, and then in a broker on "
        "real processes. Digest the results with Spark, and write one page. Units with results in DIR do not run "
        f"again. The same seeds give the same {DIGEST}; {MEASURED} depends on the machine. It takes about 20 minutes "
        "on two cores.",
    )
    command.add_argument(
        "--out", required=True, metavar="DIR", help="folder for rows, digests and page; created if missing"
    )
    command.add_argument(
        "--log", metavar="FILE", help="a now-playing log; without it, the command leaves out the streams of plays"
    )
    command.add_argument(
        "--only",
        nargs="+",
        default=(),
        metavar="PART",
        help="run only these parts: " + " ".join(f"{name} ({text})" for name, text in plan.PARTS.items()),
    )
    command.add_argument(
        "--seeds", type=int, metavar="N", help="use the seeds 1 to N in each part (default: each has its own number)"
    )
    units.add_processes(command, "streams")
    command.add_argument(
        "--via", choices=(KAFKA,), help="also measure with a real Kafka in front, which the command starts"
    )
    command.add_argument("--store", metavar="riak:HOST:PORT,…", help="also measure with the records in this Riak")
    command.add_argument("--no-live", action="store_true", help="replay streams only: measure no real processes")
    command.add_argument(
        "--libcachesim", metavar="PYTHON", help="also compare hit rates with the libcachesim of this interpreter"
    )
    command.add_argument(
        "--note",
        default="",
        metavar="TEXT",
        help="a note on the measurements for the page, such as whose Riak it was, and what else ran",
    )
    command.add_argument(
        "--again", action="store_true", help=f"only rebuild the page from the {DIGEST} and {MEASURED} in DIR"
    )
    command.set_defaults(command=_caching)


def _caching(options: argparse.Namespace) -> int:
    plan.check(options.only)
    if options.seeds is not None and not 1 <= options.seeds <= SEEDS_MAX:
        raise UsageError(f"--seeds must be from 1 to {SEEDS_MAX}")
    units.check_processes(options.processes)
    kind, _, nodes = (options.store or "riak:").partition(":")
    if kind != "riak" or (options.store and not nodes):
        raise UsageError("--store must be riak:HOST:PORT,HOST:PORT…")
    out = Path(options.out)
    failed: list[str] = []
    if not options.again:
        log = None if options.log is None else Path(options.log)
        _check(options, log, nodes)
        units.hold(out, {"seeds": options.seeds, "log": _identity(log), "sources": sources()})
        with units.alone(out):
            failed = _run(options, out, log, nodes)
            _digest(out)
    _pages(out)
    if failed:
        raise BenchError(f"{len(failed)} units have failed: {', '.join(failed)}; run the command again")
    return 0


def _run(options: argparse.Namespace, out: Path, log: Path | None, nodes: str) -> list[str]:
    """Run the whole plan; return the names of the failed units."""
    seeds = None if options.seeds is None else range(1, options.seeds + 1)
    streams = plan.streams(options.only, seeds, log=log is not None)
    _say_left_out(options, len(plan.streams(options.only, seeds, log=True)) - len(streams))
    due = [(unit, out, log) for unit in streams if not work.kept(unit, out)]
    units.run_streams(_one, due, len(streams), options.processes)
    if options.libcachesim:
        print("asking libcachesim …", flush=True)
        beside.run(streams, out, options.libcachesim, log, options.processes)
    measured = [] if options.no_live else plan.processes(options.only, seeds)
    return _live(out, measured, options.via or "", nodes, options.note) if measured else []


def _check(options: argparse.Namespace, log: Path | None, nodes: str) -> None:
    """Check everything that the command needs later, so that an error appears now and not after minutes."""
    if log is not None:
        logs.read(log)
    if options.libcachesim:
        beside.check(options.libcachesim)
    if nodes and not options.no_live:
        from ingeborg.bench.caching.live.__main__ import check

        check(nodes)


def sources() -> str:
    """Return a fingerprint of the code that determines the rows of the streams: the policies, and the plan."""
    folders = (Path(caches.__path__[0]), Path(__file__).parent)
    return units.fingerprint(folders, (*NOT_IN_ROWS, "live"))


def live_sources() -> str:
    """Return a fingerprint of the code that determines the measurements. It also covers the broker, its publishers and
    its subscribers."""
    return sources() + units.fingerprint([Path(__file__).parent / "live"], NOT_IN_ROWS)


def _identity(log: Path | None) -> str | None:
    if log is None:
        return None
    try:
        return hashlib.blake2b(log.read_bytes(), digest_size=8).hexdigest()
    except OSError as error:
        raise BenchError(f"{log}: {error.strerror}") from error


def _say_left_out(options: argparse.Namespace, of_log: int) -> None:
    if of_log:
        print(f"{of_log} streams are left out without a now-playing log: give --log", flush=True)
    if not options.libcachesim:
        print("no comparison with libcachesim: give --libcachesim an interpreter that has it", flush=True)
    if options.no_live:
        print("latency and throughput are left out (--no-live)", flush=True)


def _one(job: tuple[Unit, Path, Path | None]) -> None:
    work.run(*job)


def _live(out: Path, measured: Sequence[LiveUnit], via: str, riak: str, note: str) -> list[str]:
    """Run and digest the measurements; return the names of the failed units."""
    from ingeborg.bench.caching.live import __main__ as live

    units.hold(out / LIVE, {"sources": live_sources()})
    facts = out / LIVE / FACTS
    if not facts.is_file():
        facts.write_text(json.dumps(_machine() | {"note": note}) + "\n", encoding="utf-8")
    failed = live.run_all(measured, out / LIVE, kafka=live.HERE if via else None, riak=riak)
    live.digest_all(measured, out / LIVE)
    return failed


def _machine() -> dict[str, Any]:
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "form": form.name(),
    }


def _digest(out: Path) -> None:
    from ingeborg.bench.caching import job

    print("digesting …", flush=True)
    found, measured = job.digest(out)
    facts = out / LIVE / FACTS
    measured["facts"] = json.loads(facts.read_text(encoding="utf-8")) if facts.is_file() else {}
    for name, document in ((DIGEST, found), (MEASURED, measured)):
        text = json.dumps(document, separators=(",", ":")).encode() + b"\n"
        (out / name).write_bytes(lzma.compress(text, preset=9))


def _pages(out: Path) -> None:
    from ingeborg.bench.caching import page, summary

    try:
        pure, measured = (json.loads(lzma.decompress((out / name).read_bytes())) for name in (DIGEST, MEASURED))
    except (OSError, ValueError, lzma.LZMAError) as error:
        raise BenchError(f"{out} has no {DIGEST} and {MEASURED} of bench caching ({error})") from error
    text = summary.markdown(pure, measured)
    (out / SUMMARY).write_text(summary.tight(text), encoding="utf-8")
    (out / PAGE).write_text(page.page(pure, measured), encoding="utf-8")
    print(text, end="")
    print(out / PAGE)
