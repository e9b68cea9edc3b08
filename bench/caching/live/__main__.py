"""`python -m ingeborg.bench.caching.live`: units of the plan, or all of it, by hand.

Owns: its arguments, the order of running and digesting, and what is said meanwhile. Must never: run two units at once:
a latency that is measured beside another unit is not its own.
"""

from __future__ import annotations

import argparse
import asyncio
import fnmatch
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from ingeborg.bench import rivals
from ingeborg.bench.caching.live import cases, work
from ingeborg.bench.caching.live.cases import Unit
from ingeborg.bench.caching.live.database import LOOP, READS
from ingeborg.bench.caching.live.run import Places
from ingeborg.bench.errors import BenchError, UsageError

HERE = "here"
"""For ``--kafka``: one that is started, and ended."""


def main(arguments: Sequence[str] | None = None) -> int:
    """0: all has been run; 1: not all; 2: wrong usage; 130: interrupted."""
    options = _parser().parse_args(arguments)
    # As Ctrl-C: what has been started (a broker, a Kafka) is ended on the way out.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run(options)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ingeborg.bench.caching.live",
        description="Measure latency and throughput of the document's broker with each of its caching strategies. What "
        "DIR holds already is not run again. One unit: --only latency-lmdb-direct-n1000-threshold-unbounded-seed1",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="where rows and logs go; made if not there")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these units; * and ? stand for other letters")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="default: %(default)s")
    parser.add_argument("--list", action="store_true", help="only say what would be run")
    parser.add_argument(
        "--kafka", metavar="HOST:PORT", help=f"servers of a Kafka; {HERE}: one is started and ended; else no unit of it"
    )
    parser.add_argument("--store", default="lmdb", metavar="riak:HOST:PORT,…", help="a Riak, too, for its units")
    parser.add_argument("--reads", choices=READS, default=LOOP, help="where LMDB is read (default: %(default)s)")
    parser.add_argument("--no-digest", action="store_true", help="leave the logs as they are, without percentiles")
    parser.add_argument("--keep-logs", action="store_true", help="do not delete logs that have been digested")
    return parser


def run(options: argparse.Namespace) -> int:
    """Units first, then their digest."""
    out = Path(options.out)
    kind, _, nodes = options.store.partition(":")
    if options.store != "lmdb" and (kind != "riak" or not nodes):
        raise UsageError("--store has to be riak:HOST:PORT,HOST:PORT…")
    units = cases.plan(options.seed, kafka=True, riak=True)
    if options.only:
        units = [unit for unit in units if any(fnmatch.fnmatchcase(unit.name, name) for name in options.only)]
        if not units:
            raise BenchError(f"no unit is called {' or '.join(options.only)}; --list says which there are")
    if options.list:
        print(*(unit.name for unit in units), sep="\n")
        return 0
    out.mkdir(parents=True, exist_ok=True)
    failed = run_all(units, out, kafka=options.kafka, riak=nodes, reads=options.reads)
    if not options.no_digest:
        digest_all(units, out, keep_logs=options.keep_logs)
    if failed:
        raise BenchError(f"{len(failed)} units have failed: {', '.join(failed)}; run it again")
    return 0


def run_all(units: Sequence[Unit], out: Path, *, kafka: str | None, riak: str, reads: str = LOOP) -> list[str]:
    """One after the other; the names of those that failed. ``kafka``: servers, ``HERE``, or ``None``; ``riak``: nodes,
    or empty. Where one is not there its units are left out, and that is said. Raises ``BenchError``: no node of Riak
    answers."""
    due = [unit for unit in units if not work.kept(unit, out)]
    if any(unit.database == cases.RIAK for unit in due):
        check(riak)
    print(f"{len(units)} units, {len(units) - len(due)} of them done before", flush=True)
    with ExitStack() as stack:
        servers = _kafka(kafka, due, out, stack)
        absent = [
            (cases.KAFKA, "via", servers, "give --kafka"),
            (cases.RIAK, "database", riak, "give --store riak:HOST:PORT"),
        ]
        for kind, field, place, remedy in absent:
            without = [unit for unit in due if getattr(unit, field) == kind]
            if without and not place:
                print(f"  {len(without)} units are left out, as there is no {kind.capitalize()}: {remedy}", flush=True)
                due = [unit for unit in due if unit not in without]
        return _run(due, out, Places(servers, riak, reads))


def check(riak: str) -> None:
    """Raises ``BenchError``: these are no nodes of a Riak, or none answers. Empty: none is wanted."""
    if riak:
        from ingeborg.bench.caching.live.riak import reach  # only where it is wanted: it brings Protocol Buffers

        asyncio.run(reach(riak))


def _kafka(wanted: str | None, due: Sequence[Unit], out: Path, stack: ExitStack) -> str:
    if wanted != HERE:
        return wanted or ""
    if not any(unit.via == cases.KAFKA for unit in due):
        return ""
    try:
        server = stack.enter_context(rivals.running("kafka", state=out / "kafka"))
    except rivals.NotInstalledError as error:
        print(f"  {error} (make test-tools KAFKA=1)", flush=True)
        return ""
    return server.url.partition("://")[2]


def _run(due: Sequence[Unit], out: Path, places: Places) -> list[str]:
    failed: list[str] = []
    begun = time.monotonic()
    for done, unit in enumerate(due, 1):
        try:
            work.run(unit, out, places)
            said = ""
        except BenchError as error:
            failed.append(unit.name)
            said = f": {error}"
        spent = time.monotonic() - begun
        left = spent / done * (len(due) - done)
        print(f"  {unit.name}{said}: {done} of {len(due)} after {spent:.0f} s, some {left:.0f} s left", flush=True)
    return failed


def digest_all(units: Sequence[Unit], out: Path, *, keep_logs: bool = False) -> None:
    """The logs of those that have been run and not digested yet."""
    due = [unit for unit in units if work.kept(unit, out) and not work.path_of(out, work.DIGESTED, unit).is_file()]
    due = [unit for unit in due if work.path_of(out, work.LOGS, unit).is_dir()]
    if not due:
        return
    from ingeborg.bench.caching.live import job  # only now: Spark is loaded by whoever digests

    begun = time.monotonic()
    print(f"  digesting {len(due)} logs …", flush=True)
    job.digest(due, out)
    if not keep_logs:
        job.discard(due, out)
    print(f"  digested in {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
