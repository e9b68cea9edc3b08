"""Run histories by seed, without end, or check a record again: ``python -m tests.histories --help``.

Owns: the command line and the output. Must never: leave a process, a namespace or a stopped writer behind.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ingeborg.broker.core.model import HISTORIES, Settings

from .bed import Bed, bed
from .checker import Verdict, check, excerpt
from .plan import DURATIONS_S, READERS, Plan, make_plan
from .record import Event, line, read, write
from .run import run_history

#: The beds of a soak, each with this many histories: a bed takes some seconds to set up, and should not grow old.
BEDS = (("lmdb", "any"), ("riak", "proxy"), ("lmdb", "proxy"))
HISTORIES_PER_BED = 6

#: The settings that a soak draws from.
SETTINGS = (
    Settings(False, "memory"),
    Settings(True, "store"),
    Settings(),
    Settings(True, "memory"),
    Settings(False, "store"),
    Settings(True),
)

#: Violations shown in full; the others are only counted.
SHOWN_MAX = 3


def command_for(plan: Plan, settings: Settings, grace_s: int | None) -> str:
    """Return the command that runs this plan again."""
    faults = ",".join(plan.kinds).replace(" ", "-") or "none"
    again = f"python -m tests.histories run {plan.seed} --store {plan.store} --network {plan.network} --faults {faults}"
    grace = "" if grace_s is None else f" --grace {grace_s}"
    return f"{again}{' --replication' * settings.replication} --history {settings.history}{grace}"


def summary(plan: Plan, verdict: Verdict) -> str:
    """Describe the outcome in one line."""
    losses = ", ".join(f"{cause} {count}" for cause, count in sorted(verdict.losses.items())) or "none"
    drops = ", ".join(f"{reason} {count:g}" for reason, count in sorted(verdict.drops.items())) or "none"
    return (
        f"seed {plan.seed}  {plan.store}, {plan.network}  faults: {', '.join(plan.kinds) or 'none'}  "
        f"operations {verdict.operations}  deliveries {verdict.deliveries} (due {verdict.obligations})  "
        f"losses: {losses}  drops: {drops}  unread {verdict.unread}  twice {verdict.allowed_twice}  "
        f"undone {verdict.undone}  pages {verdict.pages.right} (moved {verdict.pages.moved}, lost with a home "
        f"{verdict.pages.excused}){_recovered(plan, verdict)}  violations {len(verdict.violations)}"
    )


def _recovered(plan: Plan, verdict: Verdict) -> str:
    of = verdict.recovered
    counts = f"positions {of.saved} (back {of.back})  gaps {of.gaps}  owed {of.owed}  in history {of.asked}"
    pages = verdict.streamed
    streams = f"streams back {pages.back}  gaps {pages.gaps}  messages {pages.messages} (owed {pages.owed})"
    return f"  {counts}" * bool(plan.readers) + f"  {streams}" * bool(plan.streams)


def failure(plan: Plan, verdict: Verdict, events: Sequence[Event], path: Path) -> str:
    """Print what a reader needs to understand a violation and to see it again. The record goes to ``path``."""
    write(events, path)
    text = [f"seed {plan.seed}: {len(verdict.violations)} violations"]
    for violation in verdict.violations[:SHOWN_MAX]:
        text.append(f"\nat {violation.at:.3f} s, {violation}")
        text += [f"  {line(event)}" for event in excerpt(events, violation)]
    if len(verdict.violations) > SHOWN_MAX:
        text.append(f"\nand {len(verdict.violations) - SHOWN_MAX} more")
    header = events[0]
    again = command_for(plan, Settings(header["replication"], header["history"]), header["grace_s"])
    text.append(f"\nagain:     {again}")
    text.append(f"the record: python -m tests.histories check {path}")
    return "\n".join(text)


def plan_for(seed: int, on: Bed, kinds: Sequence[str] | None) -> Plan:
    """Draw the plan of this seed on this bed."""
    return make_plan(
        seed,
        store=on.store,
        network=on.network,
        endpoints=list(on.endpoints),
        links=on.wires.links,
        kinds=kinds,
        history=on.settings.history != "off",
        readers=READERS if on.grace_s is None else 0,
    )


def heading(on: Bed) -> str:
    """Describe the plan in one line."""
    return f"bed: {on.store}, endpoints {''.join(on.endpoints)}, {on.form}, network: {on.wires.name}{on.about}"


async def run_one(seed: int, on: Bed, kinds: Sequence[str] | None, records: Path) -> int:
    """Run one history and print a line about it, or many; return 1 if it violates something."""
    plan = plan_for(seed, on, kinds)
    events = await run_history(on, plan)
    verdict = check(events)
    print(summary(plan, verdict), flush=True)
    if verdict.violations:
        print(failure(plan, verdict, events, records / f"{plan.store}-{plan.seed}.jsonl"), flush=True)
        for endpoint in on.endpoints.values():
            print(f"the log of {endpoint.name}: {endpoint.said()[-2000:]}", flush=True)
        return 1
    return 0


async def soak(minutes: float, seed: int, records: Path) -> int:
    """Run new seeds until the time is over or one violates something."""
    until = time.monotonic() + 60 * minutes
    turn = 0
    while time.monotonic() < until:
        store, network = BEDS[turn % len(BEDS)]
        settings = SETTINGS[turn // len(BEDS) % len(SETTINGS)]
        if store == "riak" and settings.history == "store":
            settings = settings._replace(history="memory")  # only the embedded store has a journal
        turn += 1
        with tempfile.TemporaryDirectory(prefix="histories-") as directory:
            async with bed(store, network, Path(directory), settings=settings) as on:
                print(heading(on), flush=True)
                for _ in range(HISTORIES_PER_BED):
                    if time.monotonic() >= until:
                        break
                    if await run_one(seed, on, None, records):
                        return 1
                    seed += 1
    return 0


async def run(
    seed: int,
    store: str,
    network: str,
    kinds: Sequence[str] | None,
    times: int,
    records: Path,
    settings: Settings,
    grace_s: int | None,
) -> int:
    """Run one seed this many times: the plan is the same, but the processes never behave exactly alike."""
    for _ in range(times):
        # A new bed each time: topics and payloads belong to the seed.
        with tempfile.TemporaryDirectory(prefix="histories-") as directory:
            async with bed(store, network, Path(directory), settings=settings, grace_s=grace_s) as on:
                print(heading(on), flush=True)
                if await run_one(seed, on, kinds, records):
                    return 1
    return 0


def _kinds(text: str) -> list[str]:
    known = {kind.replace(" ", "-"): kind for kind in DURATIONS_S}
    if text == "none":
        return []
    try:
        return [known[name] for name in text.split(",")]
    except KeyError as error:
        raise argparse.ArgumentTypeError(f"no fault {error}; there are {', '.join(known)}, and none") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """0: no violation; 1: a violation; 130: interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=__doc__)
    parser.add_argument("--records", type=Path, default=Path("runs/histories"), help="where failing records go")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run", help="one seed")
    one.add_argument("seed", type=int)
    one.add_argument("--store", choices=("lmdb", "riak"), default="lmdb")
    one.add_argument("--network", choices=("any", "proxy", "namespaces"), default="any")
    one.add_argument("--faults", type=_kinds, default=None, help="such as kill,long-pause; none; by default the seed's")
    one.add_argument("--times", type=int, default=1)
    one.add_argument("--replication", action="store_true", help="slots have replicas; kill: one endpoint at a time")
    one.add_argument("--history", choices=HISTORIES, default="off", help="where messages are kept; clients recover")
    one.add_argument("--grace", type=int, help="grace time in seconds; with it, only pages with event streams recover")
    on = commands.add_parser("soak", help="new seeds until the time is over")
    on.add_argument("--minutes", type=float, default=30.0)
    on.add_argument("--seed", type=int, default=1)
    again = commands.add_parser("check", help="a record, once more")
    again.add_argument("record", type=Path)
    options = parser.parse_args(arguments)
    if options.command == "check":
        return check_record(options.record)

    async def within() -> int:
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        if options.command == "soak":
            return await soak(options.minutes, options.seed, options.records)
        return await run(
            options.seed,
            options.store,
            options.network,
            options.faults,
            options.times,
            options.records,
            Settings(options.replication, options.history),
            options.grace,
        )

    try:
        return asyncio.run(within())
    except asyncio.CancelledError:
        print("interrupted", file=sys.stderr)
        return 130


def check_record(path: Path) -> int:
    """Judge a record again, without any process."""
    try:
        events = read(path)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    verdict = check(events)
    for violation in verdict.violations:
        print(f"at {violation.at:.3f} s, {violation}")
        for event in excerpt(events, violation):
            print(f"  {line(event)}")
    print(f"{len(verdict.violations)} violations; losses: {dict(verdict.losses)}")
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
