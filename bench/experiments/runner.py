"""The command of an evaluation: it runs the plan unit by unit, digests the rows, and writes the report.

Owns: the options that all evaluations share, the order of the steps, the progress messages, and the files of a result.
Must never: know what a unit does.

A finished unit has a file in the folder ``done``. An interrupted or failed run continues with ``--resume``, which runs
only the units that are not finished.
"""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from ingeborg.bench.errors import BenchError, Interrupted, UsageError
from ingeborg.bench.experiments import units
from ingeborg.bench.experiments.experiment import MEASURED, Digest, Experiment, Results, Selection, Unit

PAGE, SUMMARY = "report.html", "summary.md"

DONE: Final = "done"
"""The folder with a file for each finished unit."""

SEEDS_MAX: Final = 1_000


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], experiment: Experiment) -> None:
    """Add the command of an evaluation."""
    command = commands.add_parser(
        experiment.name,
        help=experiment.help,
        description=experiment.description,
        epilog=_epilog(experiment),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument(
        "--out", required=True, type=Path, metavar="DIR", help="folder for rows, digest and report; created if missing"
    )
    command.add_argument("--resume", action="store_true", help="continue the run in DIR, or add other parts to it")
    command.add_argument(
        "--only",
        nargs="+",
        choices=[part.name for part in experiment.parts],
        metavar="PART",
        help="run only these parts",
    )
    if not all(part.is_default for part in experiment.parts):
        command.add_argument("--whole", action="store_true", help="also run the parts that do not run by default")
    if experiment.seeds:
        command.add_argument(
            "--seeds", type=int, default=experiment.seeds, metavar="N", help="number of seeds (default: %(default)s)"
        )
    if experiment.only_live:
        command.set_defaults(processes=1)
    else:
        units.add_processes(command, experiment.word)
    command.add_argument(
        "--plan", action="store_true", help="only print the units, and how long they are expected to take"
    )
    command.add_argument("--report-only", action="store_true", help="only rebuild the report from the digest in DIR")
    experiment.add(command)
    command.set_defaults(command=lambda options: run(experiment, options))


def _epilog(experiment: Experiment) -> str:
    width = max(len(part.name) for part in experiment.parts)
    lines = [
        f"  {part.name:{width}}  {part.about}{'' if part.is_default else ' (not by default)'}"
        for part in experiment.parts
    ]
    return "\n".join(["parts:", *lines])


def run(experiment: Experiment, options: argparse.Namespace) -> int:
    """Run the command.

    Args:
        experiment: the evaluation.
        options: the parsed arguments.

    Returns:
        The exit code, which is 0.

    Raises:
        UsageError: an argument is wrong. Nothing has run.
        BenchError: a unit or the digest has failed.
        Interrupted: the user has ended the run. The message says how to continue.
    """
    results = Results(options.out)
    if options.report_only:
        _report(experiment, results)
        return 0
    units.check_processes(options.processes)
    selection = _selection(experiment, options)
    experiment.settle(options, selection.parts)
    plan = experiment.plan(selection)
    if options.plan:
        print(_planned(experiment, plan, options.processes))
        return 0
    if not plan:
        raise UsageError("the selected parts have no units with these options")
    _hold(experiment, results, resume=options.resume)
    with units.alone(results.out):
        failed = _units(experiment, plan, results, options.processes)
        if any(_is_done(results, unit) for unit in plan):
            _digest(experiment, results)
    if failed:
        raise BenchError(f"{len(failed)} {experiment.word} have failed: {', '.join(failed)}; repeat with --resume")
    return 0


def _digest(experiment: Experiment, results: Results) -> None:
    print("digesting …", flush=True)
    try:
        digest = experiment.digest(results)
        results.write(experiment.document, digest.pure)
        if digest.measured:
            results.write(MEASURED, digest.measured)
        _report(experiment, results)
    except KeyboardInterrupt:
        raise Interrupted("the units have ended; digest them with the same command and --resume") from None


def _selection(experiment: Experiment, options: argparse.Namespace) -> Selection:
    whole = getattr(options, "whole", False)
    if options.only and whole:
        raise UsageError("give either --only or --whole")
    parts = [part.name for part in experiment.parts if whole or part.is_default]
    seeds = getattr(options, "seeds", 0)
    if experiment.seeds and not 1 <= seeds <= SEEDS_MAX:
        raise UsageError(f"--seeds has to be from 1 to {SEEDS_MAX}")
    return Selection(options.only or parts, seeds)


def _hold(experiment: Experiment, results: Results, *, resume: bool) -> None:
    has_plan = (results.out / units.PLAN).is_file()
    if has_plan and not resume:
        raise UsageError(f"{results.out} has results already: continue them with --resume, or give another --out")
    if resume and not has_plan:
        raise UsageError(f"{results.out} has no run to continue: leave out --resume")
    units.hold(results.out, {"experiment": experiment.name, **experiment.identity()})


def _planned(experiment: Experiment, plan: Sequence[Unit], processes: int) -> str:
    lines = []
    for part in experiment.parts:
        of_part = [unit for unit in plan if unit.part == part.name]
        if of_part:
            about = f"{part.name}: {part.about}. {len(of_part)} {experiment.word}"
            lines += [f"{about}, {_time(_expected_s(of_part, processes))}", *(f"  {unit.name}" for unit in of_part)]
    return "\n".join([*lines, f"all: {len(plan)} {experiment.word}, {_time(_expected_s(plan, processes))}"])


def _expected_s(plan: Sequence[Unit], processes: int) -> float:
    return sum(unit.cost if unit.is_live else unit.cost / processes for unit in plan)


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"


# Units


def _units(experiment: Experiment, plan: Sequence[Unit], results: Results, processes: int) -> list[str]:
    """Run the units that are not finished. Return the names of the units that have failed."""
    progress = _Progress(experiment, plan, [unit for unit in plan if not _is_done(results, unit)], processes)
    try:
        for batch in experiment.batches(plan):
            _batch(experiment, batch, results, processes, progress)
    except KeyboardInterrupt:
        raise Interrupted(f"{progress.counted()}; continue with the same command and --resume") from None
    progress.end()
    return progress.failed


def _batch(
    experiment: Experiment, batch: Sequence[Unit], results: Results, processes: int, progress: _Progress
) -> None:
    def ended(unit: Unit, error: str) -> None:
        progress.ended(unit, error)
        if not error:
            units.keep(_path(results, unit), [{"unit": unit.name, "part": unit.part}])

    due = [unit for unit in batch if not _is_done(results, unit)]
    pooled = [unit for unit in due if not unit.is_live]
    jobs = [(number, unit, experiment, results) for number, unit in enumerate(pooled)]
    for number, error in _outcomes(jobs, processes, fresh=experiment.fresh):
        ended(pooled[number], error)
    live = [unit for unit in due if unit.is_live]
    if live:
        experiment.live(live, results, ended)
    experiment.after([unit for unit in batch if _is_done(results, unit)], results)


def _is_done(results: Results, unit: Unit) -> bool:
    return _path(results, unit).is_file()


def _path(results: Results, unit: Unit) -> Path:
    return results.path(DONE, unit.name, ".json")


Job = tuple[int, Unit, Experiment, Results]
Outcome = tuple[int, str]
"""A unit's number, and ``""`` or its error."""


def _outcomes(jobs: Sequence[Job], processes: int, *, fresh: bool) -> Iterator[Outcome]:
    """Run units in other processes, and yield each unit's outcome as soon as it has ended. An interrupt reaches only
    this process, which then ends the others.

    Each thread owns one process. So if the system kills a process, the thread knows whose unit has failed, and
    continues with another process. A pool would wait for that unit forever.
    """
    waiting = deque(jobs)
    ended: SimpleQueue[Future[Outcome] | Outcome] = SimpleQueue()
    for _ in range(min(processes, len(jobs))):
        threading.Thread(target=_lane, args=(waiting, ended, fresh), daemon=True).start()
    try:
        for _ in jobs:
            one = ended.get()
            yield one.result() if isinstance(one, Future) else one
    finally:
        waiting.clear()
        for process in multiprocessing.active_children():
            process.terminate()


def _lane(waiting: deque[Job], ended: SimpleQueue[Future[Outcome] | Outcome], fresh: bool) -> None:
    """Run units in one process at a time, until no unit is waiting."""
    context = multiprocessing.get_context("spawn")
    while waiting:
        with ProcessPoolExecutor(1, context, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as process:
            while waiting:
                try:
                    job = waiting.popleft()
                except IndexError:  # another lane took the last unit
                    break
                future = process.submit(_one, job)
                if isinstance(future.exception(), BrokenExecutor):
                    ended.put((job[0], "its process was killed, perhaps because memory ran out"))
                    break
                ended.put(future)
                if fresh:
                    break


def _one(job: Job) -> Outcome:
    """Run a unit in this process, which is one of several."""
    number, unit, experiment, results = job
    try:
        experiment.run(unit, results)
    except BenchError as error:
        return number, str(error)
    return number, ""


class _Progress:
    """Reports progress while units run. On a terminal, it keeps rewriting a single line. Elsewhere, it prints a new
    line every ``units.SAY_S`` seconds."""

    def __init__(self, experiment: Experiment, plan: Sequence[Unit], due: Sequence[Unit], processes: int) -> None:
        self._word = experiment.word
        self._processes = processes
        self._left = {unit.name: unit for unit in due}
        self._done = self._cost_s = 0.0
        self._count = len(due)
        self._begun = self._said = time.monotonic()
        self._on_terminal = sys.stdout.isatty()
        self.failed: list[str] = []
        before = len(plan) - len(due)
        self._say(
            f"{len(plan)} {self._word}{f', {before} done before' if before else ''}; "
            f"{_time(_expected_s(due, processes))}"
        )

    def ended(self, unit: Unit, error: str) -> None:
        """Count a unit that has ended."""
        del self._left[unit.name]
        self._cost_s += _expected_s([unit], self._processes)
        if error:
            self.failed.append(unit.name)
            self._say(f"  {unit.name}: {error}")
        now = time.monotonic()
        if self._on_terminal or now - self._said >= units.SAY_S:
            self._said = now
            self._say(f"  {self.counted()}{self._left_text(now)}", rewrite=True)

    def counted(self) -> str:
        """Return how many units have ended."""
        return f"{self._count - len(self._left)} of {self._count} {self._word} after {self._spent_s():.0f} s"

    def end(self) -> None:
        """Say that all units have ended."""
        if self._count:
            self._say(f"  {self.counted()}{f', {len(self.failed)} failed' if self.failed else ''}")

    def _spent_s(self) -> float:
        return time.monotonic() - self._begun

    def _left_text(self, now: float) -> str:
        if not self._left or not self._cost_s:
            return ""
        left_s = (now - self._begun) / self._cost_s * _expected_s(list(self._left.values()), self._processes)
        return f", {_time(left_s)} left"

    def _say(self, text: str, *, rewrite: bool = False) -> None:
        if self._on_terminal:
            print(f"\r\x1b[K{text}", end="" if rewrite else "\n", flush=True)
        else:
            print(text, flush=True)


# The report


def _report(experiment: Experiment, results: Results) -> None:
    from ingeborg.bench.report import html, markdown

    measured = results.read(MEASURED) if (results.out / MEASURED).is_file() else {}
    report = experiment.report(Digest(results.read(experiment.document), measured))
    for name, text in ((PAGE, html.page(report)), (SUMMARY, markdown.markdown(report))):
        (results.out / name).write_text(text, encoding="utf-8")
    print(markdown.terminal(report))
    print(results.out / PAGE)
