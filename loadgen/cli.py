"""The `loadgen` command: its options, its signals, and what it says at the end.

Owns: turning arguments into a world, a backend and a run. Must never: measure. Exit codes: 0 done; 1 the run failed,
was cut short by a signal, or `--check` found fault; 2 wrong usage or input.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import resource
import secrets
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from protocol.pages import PageError, fetch

from . import machine, replay, workload
from .backends.ingeborg import Ingeborg
from .progress import Progress, summary
from .run import Outcome, Run, RunFailed
from .rundir import RunDirectory
from .workload import Crowd, WorkloadError, World

SYSTEMS = ("ingeborg",)
#: Thesis 1.3.2: half of the notifications within half a second, 99 % within two.
RADIO_GOALS = {"p50_ms": 500, "p99_ms": 2000}
#: A replay covers this much of its log where no speed is given.
REPLAY_SPAN_S = 3600.0
#: On how many wish lists a played song is, where not said; the full-size workload's figure (thesis 1.3.2).
_WISHES = 100
#: File descriptors beside those of the connections.
_FILES_SPARE = 64
#: An endpoint that has just started needs a moment to find its peers.
_READY_TIMEOUT_S = 10.0
_READY_POLL_S = 0.1
_DUPLICATES = "ingeborg_duplicates_dropped_total"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        world, notes = options.world(options)
        _allow_files(options.clients + _FILES_SPARE)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_run(options, world, notes))
    except (WorkloadError, FileExistsError) as error:
        print(f"loadgen: {error}", file=sys.stderr)
        return 2
    except (RunFailed, OSError) as error:
        print(f"loadgen: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("loadgen: interrupted twice: ended at once", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="loadgen", description="Drive a broker with a workload, and log every message."
    )
    commands = parser.add_subparsers(title="workloads", metavar="WORKLOAD", required=True)

    radio = commands.add_parser(
        "radio",
        help="made-up radio: stations change songs, their listeners report it, wish lists fire",
        description="Stations change songs; every listener of a station reports it (so most reports are duplicates); "
        "every client with that song on its wish list must get one notification.",
    )
    _common(radio, stations=40)
    radio.add_argument(
        "--song-s", type=_positive, default=10.0, metavar="S", help="length of a song (default: %(default)s)"
    )
    radio.add_argument("--songs", type=int, default=10_000, metavar="N", help="songs there are (default: %(default)s)")
    radio.set_defaults(workload="radio", world=_radio)

    command = commands.add_parser(
        "replay",
        help="the same, driven by a recorded now-playing log",
        description="Play a now-playing log: CSV, gzip or not, with the columns station, offset_s, artist, track.",
    )
    command.add_argument("file", type=Path, metavar="FILE", help="the log")
    _common(command, stations=100)
    command.add_argument(
        "--speed", type=_positive, metavar="X", help="seconds of the log per second (default: an hour of it in the run)"
    )
    command.add_argument(
        "--start-s", type=float, default=0.0, metavar="S", help="second of the log to begin with (default: %(default)s)"
    )
    command.set_defaults(workload="replay", world=_replay)
    return parser


def _common(command: argparse.ArgumentParser, *, stations: int) -> None:
    add = command.add_argument
    add("--url", action="append", required=True, metavar="URL", help="endpoint; repeat it to spread the clients")
    add("--out", type=Path, required=True, metavar="DIR", help="where the log goes; must not exist or be empty")
    add("--system", choices=SYSTEMS, default="ingeborg", help="what is under load (default: %(default)s)")
    add("--clients", type=int, default=200, metavar="N", help="clients, each with a connection (default: %(default)s)")
    add("--stations", type=int, default=stations, metavar="N", help="stations on the air (default: %(default)s)")
    add("--listens", type=int, default=5, metavar="N", help="stations each client listens to (default: %(default)s)")
    add("--duration", type=_positive, default=20.0, metavar="S", help="seconds of load (default: %(default)s)")
    add(
        "--wishes",
        type=float,
        metavar="N",
        help=f"wish lists a played song is on, on average (default: {_WISHES}, or half of the clients if that is less)",
    )
    add(
        "--idle-wishes",
        type=int,
        default=50,
        metavar="N",
        help="songs nobody plays on each wish list (default: %(default)s)",
    )
    add(
        "--spread-ms",
        type=float,
        default=200.0,
        metavar="MS",
        help="reports of a change come within so long of it (default: %(default)s)",
    )
    add(
        "--drain",
        type=_positive,
        default=10.0,
        metavar="S",
        help="the longest wait for what is still under way (default: %(default)s)",
    )
    add("--seed", type=int, default=1, metavar="N", help="the same seed makes the same run (default: %(default)s)")
    add("--check", action="store_true", help="exit with 1 if anything was lost, came twice or failed, or missed a goal")


def _positive(text: str) -> float:
    value = float(text)
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError("has to be above 0")
    return value


def _crowd(options: argparse.Namespace) -> Crowd:
    if options.wishes is None:
        options.wishes = min(_WISHES, options.clients / 2)
    options.listens = min(options.listens, options.stations)
    spread_s = options.spread_ms / 1000
    return Crowd(options.clients, options.listens, options.wishes, options.idle_wishes, spread_s, options.seed)


def _radio(options: argparse.Namespace) -> tuple[World, list[str]]:
    world = workload.radio(
        _crowd(options),
        stations=options.stations,
        songs=options.songs,
        song_s=options.song_s,
        duration_s=options.duration,
    )
    return world, []


def _replay(options: argparse.Namespace) -> tuple[World, list[str]]:
    log = replay.read(options.file)
    if options.speed is None:
        options.speed = REPLAY_SPAN_S / options.duration
    world = replay.replay(
        log,
        _crowd(options),
        stations=options.stations,
        start_s=options.start_s,
        speed=options.speed,
        duration_s=options.duration,
    )
    span_s = options.duration * options.speed
    notes = [
        f"{options.file.name}: {len(log.rows):,} changes; seconds {options.start_s:g} to {options.start_s + span_s:g}"
    ]
    notes += [f"skipped {count:,} rows: {reason}" for reason, count in log.skipped.most_common()]
    return world, notes


async def _run(options: argparse.Namespace, world: World, notes: Sequence[str]) -> int:
    progress = Progress(sys.stdout)
    started_unix_ms, started_ns = time.time_ns() // 1_000_000, time.monotonic_ns()
    # Part of every payload and client id: a second run of a seed is not taken for the first one's duplicate.
    run_id = f"{options.workload}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
    for url in options.url:
        await _ready(url)
    directory = RunDirectory(
        options.out,
        {
            "schema": 1,
            "run": run_id,
            "system": options.system,
            "workload": options.workload,
            "seed": options.seed,
            "started_unix_ms": started_unix_ms,
            "started_ns": started_ns,
            "config": _config(options),
            "machine": machine.facts(),
            "software": machine.software(("ingeborg", "websockets", "orjson", "uvloop")),
            "goals": RADIO_GOALS,
            "subscriptions": world.subscriptions,
        },
    )
    plan = world.schedule
    for note in notes:
        progress.say(note)
    progress.say(
        f"{options.workload}: {options.clients:,} clients, {options.stations:,} stations, {len(plan.news):,} news "
        f"of {len(plan.topics):,} songs ({plan.unheard:,} changes that nobody hears), "
        f"{sum(map(len, plan.reports)):,} reports, {world.expected:,} deliveries"
    )
    run = Run(
        world,
        Ingeborg(options.url, run_id),
        directory,
        progress,
        run_id=run_id,
        duration_s=options.duration,
        drain_s=options.drain,
    )
    _on_signals(run.cut, progress)
    outcome = await run.execute()
    progress.say("\n" + summary(outcome.tally, _rows(outcome)) + f"\nlog          {directory.path}")
    if not outcome.complete:
        progress.say("cut short: the log holds what was measured until then, and is marked incomplete")
        return 1
    return 1 if options.check and _faults(outcome, progress) else 0


async def _ready(url: str) -> None:
    """Wait for the endpoint to be ready: a wrong URL fails here, in words, and not by each of the clients."""
    why = ""
    try:
        async with asyncio.timeout(_READY_TIMEOUT_S):
            while True:
                page = await fetch(url, "/readyz")
                if page.status == 200:
                    return
                why = f"HTTP status {page.status}: {' '.join(page.text.split())[:200]}"
                await asyncio.sleep(_READY_POLL_S)
    except PageError as error:
        raise RunFailed(str(error)) from None
    except TimeoutError:
        raise RunFailed(f"{url} is not ready after {_READY_TIMEOUT_S:g} s: {why}") from None


def _config(options: argparse.Namespace) -> dict[str, object]:
    hidden = ("world", "workload", "system", "seed", "check")
    plain = {name: value for name, value in vars(options).items() if name not in hidden}
    return {name: value.name if isinstance(value, Path) else value for name, value in plain.items()}


def _rows(outcome: Outcome) -> list[tuple[str, str]]:
    rows = []
    before = {server.source: server.values.get(_DUPLICATES, 0.0) for server in outcome.before}
    after = {server.source: server.values[_DUPLICATES] for server in outcome.after if _DUPLICATES in server.values}
    # A counter that went back is a restarted endpoint's: what it dropped since is all that is known.
    dropped = [
        now - before.get(source, 0.0) if now >= before.get(source, 0.0) else now for source, now in after.items()
    ]
    if missing := before.keys() - after.keys():
        rows.append(("counters missing", ", ".join(sorted(missing))))
    rows.append(("duplicates dropped", f"{sum(dropped):,.0f}" if after else "not told by the endpoints"))
    if seconds := outcome.phases_s.get("subscribe"):
        rows.append(("subscriptions", f"{outcome.subscriptions:,} in {seconds:.2f} s"))
    return rows


def _faults(outcome: Outcome, progress: Progress) -> bool:
    tally = outcome.tally
    faults = [
        f"{count:,} {what}"
        for what, count in (
            ("lost", tally.lost),
            ("delivered twice", tally.duplicates),
            ("errors", tally.errors.total()),
        )
        if count
    ]
    for percent, goal_ms in ((50, RADIO_GOALS["p50_ms"]), (99, RADIO_GOALS["p99_ms"])):
        found_ms = tally.latencies.percentile_ms(percent)
        if found_ms is not None and found_ms > goal_ms:
            faults.append(f"p{percent} of {found_ms:.1f} ms is above {goal_ms} ms")
    if faults:
        progress.say("check failed: " + ", ".join(faults))
    return bool(faults)


def _on_signals(cut: Callable[[], None], progress: Progress) -> None:
    """The first SIGINT or SIGTERM ends the run in order; the second ends the program."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    times = 0

    def on_signal() -> None:
        nonlocal times
        times += 1
        if times == 1:
            progress.say("cutting the run short (once more: end at once)")
            cut()
        else:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)


def _allow_files(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise WorkloadError(f"--clients: this process may open {hard} files, {wanted} are needed (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # where there is none (Windows), asyncio's own loop does
        return None
    return uvloop.new_event_loop


if __name__ == "__main__":
    sys.exit(main())
