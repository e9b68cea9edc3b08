"""`python -m ingeborg.bench.caching.live`: run some or all units of the plan by hand.

Owns: the arguments, the order of running and digesting, and the progress output. Must never: run two units at once,
because each would distort the other's latency.
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
"""Value of ``--kafka``: start a Kafka here and end it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Return 0 if all units have run, 1 if some have not, 2 for wrong usage, and 130 if
    interrupted."""
    options = _parser().parse_args(arguments)
    # Treat SIGTERM like Ctrl-C, so that leaving the blocks ends everything that was started (a broker, a Kafka).
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
        description="Measure latency and throughput of the document's broker with each of its caching strategies. "
        "Units with results in DIR do not run again. To run one unit, give --only "
        "latency-lmdb-direct-n1000-threshold-unbounded-always-waiting-seed1-run1",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for rows and logs; created if missing")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run only these units; * and ? are wildcards")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="default: %(default)s")
    parser.add_argument("--list", action="store_true", help="only list the units")
    parser.add_argument(
        "--kafka",
        metavar="HOST:PORT",
        help=f"servers of a Kafka, or {HERE} to start one for this run; default: run no units with Kafka",
    )
    parser.add_argument(
        "--store", default="lmdb", metavar="riak:HOST:PORT,…", help="also run the units with Riak, on this Riak"
    )
    parser.add_argument("--reads", choices=READS, default=LOOP, help="where to read LMDB (default: %(default)s)")
    parser.add_argument(
        "--no-digest", action="store_true", help="do not digest the logs; then there are no percentiles"
    )
    parser.add_argument("--keep-logs", action="store_true", help="do not delete logs after their digest")
    return parser


def run(options: argparse.Namespace) -> int:
    """Run the units, then digest them."""
    out = Path(options.out)
    kind, _, nodes = options.store.partition(":")
    if options.store != "lmdb" and (kind != "riak" or not nodes):
        raise UsageError("--store must be riak:HOST:PORT,HOST:PORT…")
    units = cases.plan([options.seed], kafka=True, riak=True)
    if options.only:
        units = [unit for unit in units if any(fnmatch.fnmatchcase(unit.name, name) for name in options.only)]
        if not units:
            raise BenchError(f"no unit is called {' or '.join(options.only)}; --list shows all names")
    if options.list:
        print(*(unit.name for unit in units), sep="\n")
        return 0
    out.mkdir(parents=True, exist_ok=True)
    failed = run_all(units, out, kafka=options.kafka, riak=nodes, reads=options.reads)
    if not options.no_digest:
        digest_all(units, out, keep_logs=options.keep_logs)
    if failed:
        raise BenchError(f"{len(failed)} units have failed: {', '.join(failed)}; run the command again")
    return 0


def run_all(units: Sequence[Unit], out: Path, *, kafka: str | None, riak: str, reads: str = LOOP) -> list[str]:
    """Run the units one at a time, and return the names of failed units. ``kafka`` has the servers of a Kafka, or is
    ``HERE`` or ``None``. ``riak`` has the nodes of a Riak, or is empty. If one of these systems is missing, its units
    are left out, with a message. Raises ``BenchError`` if no node of Riak answers."""
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
                print(f"  {len(without)} units are left out without a {kind.capitalize()}: {remedy}", flush=True)
                due = [unit for unit in due if unit not in without]
        return _run(due, out, Places(servers, riak, reads))


def check(riak: str) -> None:
    """Check the nodes of a Riak, unless ``riak`` is empty. Raises ``BenchError`` if the text names no nodes, or if no
    node answers."""
    if riak:
        from ingeborg.bench.caching.live.riak import reach  # imported only if needed: it brings Protocol Buffers

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
    to_do, done_cost = sum(unit.cost for unit in due), 0.0
    for done, unit in enumerate(due, 1):
        try:
            work.run(unit, out, places)
            said = ""
        except BenchError as error:
            failed.append(unit.name)
            said = f": {error}"
        spent = time.monotonic() - begun
        done_cost += unit.cost
        left = spent / done_cost * (to_do - done_cost)
        print(f"  {unit.name}{said}: {done} of {len(due)} after {spent:.0f} s, some {left:.0f} s left", flush=True)
    return failed


def digest_all(units: Sequence[Unit], out: Path, *, keep_logs: bool = False) -> None:
    """Digest the logs of units that have run without a digest yet."""
    due = [unit for unit in units if work.kept(unit, out) and not work.path_of(out, work.DIGESTED, unit).is_file()]
    due = [unit for unit in due if work.path_of(out, work.LOGS, unit).is_dir()]
    if not due:
        return
    from ingeborg.bench.caching.live import job  # only now, because only the digest needs Spark

    begun = time.monotonic()
    print(f"  digesting {len(due)} logs …", flush=True)
    job.digest(due, out)
    if not keep_logs:
        job.discard(due, out)
    print(f"  digested in {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
