"""The `loadgen` command: its options, its signals, and its final report.

Owns: turning arguments into sessions. Must never: measure.

Exit codes: 0 means success. 1 means that a run failed, that a signal cut it short, or that `--check` found a fault. 2
means that usage or input is wrong. 3 means that the run is complete but lost deliveries or connections. 130 means that
a signal ended the program immediately: it was the second signal, or the run had not begun.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson

from ingeborg import streams
from ingeborg.protocol.options import add_options, given
from ingeborg.protocol.redaction import redacted

from .backends import SYSTEMS, check_urls
from .backends.base import BackendError
from .backends.ingeborg import client_id
from .coordinator.run import Outcome, RunFailed
from .coordinator.series import Series
from .coordinator.session import Session, Target
from .display.outcome import ending, faults, in_a_line, rows, troubled
from .display.progress import Progress, printable, table
from .process.assignment import air_plan, clients_name
from .process.worker import loop_factory
from .workloads.settings import KINDS, Kind, Radio, Replay, Settings, Topics, WorkloadError, settings

_PROCESSES_MAX = 64

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

#: Matches the folder of an absolute path. The word is the path, or ends with `=` and the path.
_FOLDER = re.compile(r"(?<![^=])/(?:.*/)?")

#: Prefix of the workload's own options in the parsed arguments.
_PREFIX = "set_"

#: The exit code of a run that is complete and has a result, but lost deliveries or connections. It is not 0, because a
#: dead or restarted server must never look like a success. It is not 1, because the log is complete and has figures.
EXIT_LOSSES = 3

_DESCRIPTIONS = {
    "traffic": (
        "the greatest sustainable rate, and latencies at that rate and at half that rate",
        "Subscribe 20 connections to 1,000 topics. Raise the publish rate until latency exceeds its limit, find the "
        "greatest rate within the limit, and measure there and at half that rate. With --rate, measure only that rate.",
    ),
    "topics": (
        "how a system handles 1, 2, 4 … 2,097,152 topics",
        "For each number of topics: one client subscribes to every topic, another publishes to them in turn as fast as "
        "it can with a bounded number of messages in flight, and every message has to arrive. Each number is one run, "
        "in its own folder under DIR. --resume continues a series that was cut short.",
    ),
    "radio": (
        "an invented radio: stations change songs, listeners report them, and clients get the songs they wish for",
        "Stations change songs. Every listener of a station reports the change, so most reports are duplicates. Every "
        "client with that song on its wish list must get one notification.",
    ),
    "replay": (
        "the radio world, with the songs of a recorded now-playing log",
        "Play a now-playing log: CSV, gzipped or plain, with the columns station, offset_s, artist, track. `loadgen "
        "preview` says beforehand what this would send.",
    ),
    "causal": (
        "questions and answers on several topics: does an answer overtake its question?",
        "Clients of all servers share rooms. Some clients ask questions. Clients that have received a question answer "
        "it, each on its own topic, and clients that have received an answer comment on it. In the log, `bench check "
        "causal` finds each answer that arrived before its question.",
    ),
}

_EPILOG = """\
examples:
  loadgen traffic --url ws://127.0.0.1:9000 --out runs/traffic
  loadgen traffic --system nats --url nats://127.0.0.1:4222 --dedup redis://127.0.0.1:6379 --out runs/nats
  loadgen topics --url ws://127.0.0.1:9000 --last 65536 --out runs/topics      (cut short? add --resume)
  loadgen radio --workload bench/workloads/radio-small.toml --clients 500 --url ws://127.0.0.1:9000 --out runs/radio
Then: bench digest RUN… --out DIR, and bench report DIR --out report.html
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit code."""
    options = _parser().parse_args(arguments)
    options.command = _command(sys.argv[1:] if arguments is None else arguments)
    # These handlers apply until a run begins. A run has its own handlers.
    before = {number: signal.signal(number, signal.default_int_handler) for number in _SIGNALS}
    try:
        if options.kind == "wishes":
            return _wishes(_settings(options, Radio), options.out)
        if options.kind == "preview":
            return _preview(_settings(options, Replay))
        workload = _settings(options, KINDS[options.kind])
        target = _target(options)
        with Progress(sys.stdout) as progress, asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_generate(options, workload, target, progress))
    except (WorkloadError, FileExistsError) as error:
        print(f"loadgen: {redacted(str(error))}", file=sys.stderr)
        return 2
    except (BackendError, RunFailed, OSError) as error:
        print(f"loadgen: {redacted(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("loadgen: interrupted", file=sys.stderr)
        return 130
    except asyncio.CancelledError:
        print("loadgen: interrupted twice, so ended immediately", file=sys.stderr)
        return 130
    finally:
        for number, handler in before.items():
            # The run is over. If the program ends now, ignore signals, so that no signal interrupts its end.
            signal.signal(number, signal.SIG_IGN if arguments is None else handler)


def _command(words: Sequence[str]) -> str:
    """Return the command line that repeats the run. It leaves out secrets and the folders of absolute paths, because
    other people may read the log."""
    return shlex.join(["loadgen", *(redacted(_FOLDER.sub("", word)) for word in words)])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="loadgen",
        description="Drive a broker with a workload, and log every message.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="workloads", metavar="WORKLOAD", dest="kind", required=True)
    for kind, (short, long) in _DESCRIPTIONS.items():
        command = commands.add_parser(kind, help=short, description=long)
        if kind == "replay":
            _log(command)
        _common(command, kind)
        _of_workload(command, KINDS[kind])
    command = commands.add_parser(
        "wishes",
        help="the wish lists of a radio workload, as lines for `ingeborg import`",
        description="Write the wish lists of a radio workload as JSON lines. `ingeborg import` puts them into a store, "
        "where `loadgen radio --subscribed` with the same workload finds them.",
    )
    command.add_argument("--out", type=Path, required=True, metavar="FILE", help="must not exist")
    command.add_argument(
        "--workload", type=Path, metavar="FILE.toml", help="file with settings; options given here override them"
    )
    _of_workload(command, Radio)
    command = commands.add_parser(
        "preview",
        help="print what `loadgen replay` would send; this needs no server",
        description="Read the log, and draw the workload that `loadgen replay` makes from it. Print what "
        "`loadgen replay` would send, and report the errors that it would report. This needs no server.",
    )
    _log(command)
    command.add_argument(
        "--workload", type=Path, metavar="FILE.toml", help="file with settings; options given here override them"
    )
    _of_workload(command, Replay)
    return parser


def _log(command: argparse.ArgumentParser) -> None:
    command.add_argument(f"{_PREFIX}log", nargs="?", default=argparse.SUPPRESS, metavar="FILE", help="the log")


def _of_workload(command: argparse.ArgumentParser, kind: type[Settings]) -> None:
    """Add one option per key of the workload. Options have no defaults, so that the workload file can set the keys."""
    group = command.add_argument_group(f"settings of the workload {kind.workload} (also the keys of its file)")
    add_options(group, kind, prefix=_PREFIX, told="(default: {})")


def _common(command: argparse.ArgumentParser, kind: str) -> None:
    add = command.add_argument
    add("--system", choices=sorted(SYSTEMS), default="ingeborg", help="the system under load (default: %(default)s)")
    add(
        "--url",
        action="append",
        required=True,
        metavar="URL",
        help="a server; repeat the option to spread the connections",
    )
    add("--out", type=Path, required=True, metavar="DIR", help="directory for the log; must be new or empty")
    add("--workload", type=Path, metavar="FILE.toml", help="file with settings; options given here override them")
    if kind == "topics":
        add("--resume", action="store_true", help="continue the series in DIR that was cut short")
    else:
        add(
            "--processes",
            type=_count(1, _PROCESSES_MAX),
            default=1,
            metavar="N",
            help="processes of the generator, which share the connections (default: %(default)s)",
        )
        add(
            "--check",
            action="store_true",
            help="exit with 1 if anything was lost, arrived twice or failed, or if a latency missed its goal",
        )
    if kind in ("radio", "replay"):
        add(
            "--subscribed",
            action="store_true",
            help="the store already has the wish lists that `loadgen wishes` wrote (ingeborg only)",
        )
    add("--variant", default="", metavar="TEXT", help="how the system is set up, for the report (home, lookup, …)")
    add(
        "--lines",
        action="store_true",
        help="let several messages share a frame, in both directions (SPEC 1.6; ingeborg only)",
    )
    add(
        "--metrics-url",
        action="append",
        default=[],
        metavar="URL",
        help="URL of an endpoint's metrics and health, if it differs from --url; one per endpoint (ingeborg only)",
    )
    add(
        "--server-pid",
        type=_count(1, 1 << 22),
        action="append",
        default=[],
        metavar="PID",
        help="a process of the system on this machine, if no --url leads to it",
    )
    layer = command.add_argument_group("deduplication layer (for systems that do not drop duplicates; thesis 1.3.4)")
    layer.add_argument("--dedup", metavar="REDIS_URL", help="put the layer in front of the system, with this Redis")
    layer.add_argument(
        "--deduplicators",
        type=_count(1, _PROCESSES_MAX),
        default=1,
        metavar="N",
        help="processes of the layer (default: 1)",
    )
    layer.add_argument(
        "--dedup-ttl-s",
        type=float,
        default=10.0,
        metavar="S",
        help="how long the layer remembers a message (default: %(default)s)",
    )


def _count(least: int, most: int) -> Callable[[str], int]:
    def count(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"has to be a whole number from {least} to {most}, not {text!r}")
        return value

    return count


def _settings(options: argparse.Namespace, kind: type[Kind]) -> Kind:
    return settings(kind, options.workload, given(options, kind, prefix=_PREFIX))


def _target(options: argparse.Namespace) -> Target:
    try:
        check_urls(options.system, options.url)
        check_urls("ingeborg", options.metrics_url, "--metrics-url")
        if options.dedup is not None:
            check_urls("redis", [options.dedup])
    except ValueError as error:
        raise WorkloadError(str(error)) from None
    if options.dedup is not None and SYSTEMS[options.system].deduplicates:
        raise WorkloadError(f"--dedup: {options.system} already drops duplicates: leave out --dedup")
    if options.lines and options.system != "ingeborg":
        raise WorkloadError(f"--lines: {options.system} does not have it; only ingeborg does")
    if options.metrics_url and options.system != "ingeborg":
        raise WorkloadError(f"--metrics-url: {options.system} does not have it; only ingeborg does")
    if not 0 < options.dedup_ttl_s <= 3600:
        raise WorkloadError("--dedup-ttl-s has to be above 0 and at most 3600")
    return Target(
        options.system,
        options.url,
        options.variant,
        options.dedup,
        options.deduplicators,
        options.dedup_ttl_s,
        options.server_pid,
        options.lines,
        options.metrics_url,
    )


def _wishes(workload: Radio, out: Path) -> int:
    plan, name = air_plan(workload), clients_name(workload)
    subscriptions = 0
    with out.open("xb") as file:
        for number in range(plan.connections):
            if topics := plan.subscriptions(number):
                line = {"client_id": client_id(name, number), "topic": topics}
                file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
                subscriptions += len(topics)
    print(f"{out}: {subscriptions:,} subscriptions of {plan.connections:,} clients")
    return 0


def _preview(workload: Replay) -> int:
    for note in air_plan(workload).notes:
        print(printable(note))
    return 0


async def _generate(options: argparse.Namespace, workload: Settings, target: Target, progress: Progress) -> int:
    signals = _Signals(progress)
    if isinstance(workload, Topics):
        return await _series(options, workload, target, progress, signals)
    subscribed = getattr(options, "subscribed", False)
    if subscribed and options.system != "ingeborg":
        raise WorkloadError(f"--subscribed: {options.system}'s subscriptions do not outlive a connection")
    session = Session(
        target,
        workload,
        options.out,
        progress,
        command=options.command,
        processes=options.processes,
        subscribed=subscribed,
    )
    outcome = await session.execute(signals.cuts)
    _say(progress, outcome, session.out)
    if not outcome.complete:
        return 1
    found = faults(outcome, workload) if options.check else []
    if found:
        _complain("check failed: " + ", ".join(found))
        return 1
    return EXIT_LOSSES if troubled(outcome) else 0


async def _series(
    options: argparse.Namespace, workload: Topics, target: Target, progress: Progress, signals: _Signals
) -> int:
    series = Series(options.out, target, workload, resume=options.resume)
    code = 0
    for topics, directory in series.left():
        session = Session(
            target, workload, directory, progress, command=options.command, topics=topics, series=series.id
        )
        outcome = await session.execute(signals.cuts)
        if outcome.complete:
            progress.say(f"{topics:>9,} topics: {in_a_line(outcome)}")
            if troubled(outcome):
                _complain(f"{topics:,} topics: {ending(outcome)}")
                code = EXIT_LOSSES
        else:
            _say(progress, outcome, directory)
            if outcome.failed is None:
                progress.say(f"run the same command with --resume to continue from {topics:,} topics")
            return 1
        series.done(topics, directory)
    return code


def _say(progress: Progress, outcome: Outcome, directory: Path) -> None:
    progress.say("\n" + table([*rows(outcome), ("log", str(directory))]))
    if outcome.complete and not troubled(outcome):
        progress.say(ending(outcome))
    else:
        _complain(ending(outcome))


def _complain(text: str) -> None:
    """Print a complaint without unprintable characters, because its text can come from the system under load."""
    print(f"loadgen: {printable(text)}", file=sys.stderr, flush=True)


class _Signals:
    """Handles SIGINT and SIGTERM. The first signal cuts the run short, and the second ends the program immediately."""

    def __init__(self, progress: Progress) -> None:
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._progress = progress
        self._times = 0
        self._cut: Callable[[], None] = lambda: None
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal)

    def cuts(self, cut: Callable[[], None]) -> None:
        """Set the function that the first signal calls. If that signal has already arrived, call the function
        immediately."""
        self._cut = cut
        if self._times:
            cut()

    def _on_signal(self) -> None:
        self._times += 1
        if self._times == 1:
            self._progress.say("cutting the run short (interrupt again to end immediately)")
            self._cut()
        elif self._task is not None:
            self._task.cancel()


if __name__ == "__main__":
    sys.exit(streams.run("loadgen", main))
