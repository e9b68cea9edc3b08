"""`bench overlay` runs the document's protocols and ours among thousands of simulated nodes.

Owns: the command's arguments, the processes that run the plan, the order of running and digesting, and the progress
messages.
"""

from __future__ import annotations

import argparse
import lzma
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import orjson

from ingeborg.bench.errors import BenchError
from ingeborg.bench.experiments import units
from ingeborg.bench.overlay import summary, work
from ingeborg.bench.overlay.experiments import NODES, PROTOCOLS, Cell, plan
from ingeborg.broker.core import overlay

CELLS, SUMMARY, PAGE = "overlay.json.xz", "summary.md", "report.html"
"""Files of a result. ``CELLS`` is JSON. It is compressed, because hundreds of rows repeat the same names."""

AT_ONCE: Final = 15_000_000
"""Maximum number of deliveries in the logs that exist at the same time, which belong to one or more cells. Each
delivery takes about 70 bytes, and the digest of this number of deliveries fits into Spark's memory."""

SAY_S: Final = 10.0

NOT_IN_ROWS: Final = (
    "cells.py",
    "claims.py",
    "command.py",
    "drawing.py",
    "job.py",
    "judges.py",
    "page.py",
    "printed.py",
    "sentences.py",
    "summary.py",
)
"""Sources that cannot change a row, because they only read rows."""

EXPERIMENTS: Final = {
    "thesis": ("document", "between", "more", "grove", "printed"),
    "timers": ("timers",),
    "crash": ("crash",),
    "churn": ("churn",),
}
"""The parts of each experiment of this command."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    command = commands.add_parser(
        "overlay",
        help="simulate broadcast over trees and floods among thousands of nodes",
        description="Run the evaluation of a thesis (CPTCast, Plumtree, PRC-broadcast) and of grove in a "
        "simulated network of two sites. Each log is digested with Spark, and then deleted. The experiments are "
        "thesis: the document's grid of payloads, intervals and senders, and its algorithms as printed; timers: "
        "Plumtree and CPTCast with other time-outs; crash: a share of the nodes crashes at once, or two halves are cut "
        "off from each other; churn: nodes crash and join all the time. A cell that is already in DIR does not run "
        f"again. The same seed gives the same rows, and the same {CELLS}.",
    )
    command.add_argument("experiment", choices=sorted(EXPERIMENTS), help="the experiment to run")
    command.add_argument("--out", required=True, metavar="DIR", help="folder for rows and figures; created if missing")
    command.add_argument(
        "--nodes", type=int, default=NODES, metavar="N", help="number of nodes in each world (default: %(default)s)"
    )
    command.add_argument(
        "--seed", type=int, default=1, metavar="N", help="seed of all random numbers (default: %(default)s)"
    )
    command.add_argument(
        "--protocols", nargs="+", choices=PROTOCOLS, default=PROTOCOLS, metavar="NAME", help="run only these protocols"
    )
    units.add_processes(command, "cells")
    command.add_argument("--keep-logs", action="store_true", help="keep the digested logs, about 70 MB for each cell")
    command.add_argument("--again", action="store_true", help=f"only make the page again, from the {CELLS} in DIR")
    command.set_defaults(command=_overlay)


def _overlay(options: argparse.Namespace) -> int:
    units.check_processes(options.processes)
    out = Path(options.out)
    if options.again:
        _pages(out)
        return 0
    cells = plan(EXPERIMENTS[options.experiment], options.nodes, [options.seed], options.protocols)
    # Cells of several sizes and experiments can share a directory, because their names contain both.
    units.hold(out, {"sources": sources()})
    with units.alone(out):
        _run(cells, out, options.processes, options.keep_logs)
        _gather(out, options.seed)
    _pages(out)
    times = [orjson.loads(path.read_bytes()) for path in sorted((out / work.TIMES).glob("*.json"))]
    print(summary.speed(times))
    return 0


def sources() -> str:
    """Return a fingerprint of the code that determines the rows, which is the simulator, the protocols and the plan."""
    return units.fingerprint((Path(overlay.__path__[0]), Path(__file__).parent), NOT_IN_ROWS)


def _run(cells: Sequence[Cell], out: Path, processes: int, keep_logs: bool) -> None:
    """Alternate between simulating and digesting, so that few logs exist at the same time."""
    due = sorted((cell for cell in cells if not _done(cell, out)), key=lambda cell: -cell.cost)
    print(f"{len(cells)} cells, {len(cells) - len(due)} of them done earlier", flush=True)
    progress = _Progress(len(due), sum(not work.kept(cell, out) for cell in due))
    for batch in _batches(due):
        for cell in batch:
            if work.kept(cell, out) and not work.path_of(out, work.LOGS, cell).is_dir():
                work.path_of(out, work.ROWS, cell).unlink()  # its log was deleted before it was digested
        _simulate([cell for cell in batch if not work.kept(cell, out)], out, processes, progress)
        _digest(batch, out, keep_logs, progress)
    progress.end()


def _done(cell: Cell, out: Path) -> bool:
    from ingeborg.bench.overlay.job import DIGESTED

    return work.kept(cell, out) and work.path_of(out, DIGESTED, cell).is_file()


def _batches(cells: Sequence[Cell]) -> Iterator[Sequence[Cell]]:
    batch: list[Cell] = []
    rows = 0
    for cell in cells:
        if batch and rows + cell.deliveries > AT_ONCE:
            yield batch
            batch, rows = [], 0
        batch.append(cell)
        rows += cell.deliveries
    if batch:
        yield batch


def _simulate(cells: Sequence[Cell], out: Path, processes: int, progress: _Progress) -> None:
    if not cells:
        return
    spent_s = 0.0
    # Each cell has its own process, whose end frees the world's memory.
    for _, spent_s in units.run(_one, [(cell, out) for cell in cells], processes, fresh=True):
        progress.cell(spent_s)
    progress.simulated(spent_s)


def _one(task: tuple[Cell, Path]) -> None:
    work.run(*task)


def _digest(cells: Sequence[Cell], out: Path, keep_logs: bool, progress: _Progress) -> None:
    from ingeborg.bench.overlay import job

    begun = time.monotonic()
    print(f"  digesting {len(cells)} logs …", flush=True)
    job.digest(cells, out)
    if not keep_logs:
        job.discard(cells, out)
    progress.digested(time.monotonic() - begun)


class _Progress:
    """The progress messages while cells run. Simulating and digesting are timed separately."""

    def __init__(self, digests: int, cells: int) -> None:
        self._digests, self._cells = digests, cells
        self._done = 0
        self._simulating_s = self._digesting_s = 0.0
        self._said = time.monotonic()

    def cell(self, of_batch_s: float) -> None:
        """Count one more simulated cell. ``of_batch_s``: the time since its batch began."""
        self._done += 1
        now = time.monotonic()
        if now - self._said < SAY_S and self._done < self._cells:
            return
        self._said = now
        spent = self._simulating_s + of_batch_s
        left = spent / self._done * (self._cells - self._done)
        text = f"  {self._done} of {self._cells} cells simulated in {spent:.0f} s"
        print(f"{text}, about {_minutes(left)} left to simulate the others" if left else text, flush=True)

    def simulated(self, seconds: float) -> None:
        self._simulating_s += seconds

    def digested(self, seconds: float) -> None:
        self._digesting_s += seconds

    def end(self) -> None:
        if self._digests:
            print(
                f"{self._done} cells simulated in {_minutes(self._simulating_s)}, {self._digests} digested in "
                f"{_minutes(self._digesting_s)}",
                flush=True,
            )


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _gather(out: Path, seed: int) -> None:
    """Collect all rows of DIR in one file, ordered by name, and add the digest's figures."""
    from ingeborg.bench.overlay import drawing, job

    rows = []
    for path in sorted((out / work.ROWS).glob("*.json")):
        found = out / job.DIGESTED / path.name
        if found.is_file():
            row = orjson.loads(path.read_bytes())
            rows.append({**row, "digest": orjson.loads(found.read_bytes())["phases"]})
    document = {"cells": rows, "drawing": drawing.drawing(seed)}
    (out / CELLS).write_bytes(lzma.compress(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE), preset=9))


def _pages(out: Path) -> None:
    from ingeborg.bench.overlay import page

    try:
        document = orjson.loads(lzma.decompress((out / CELLS).read_bytes()))
    except (OSError, ValueError, lzma.LZMAError) as error:
        raise BenchError(f"{out} has no readable {CELLS} from bench overlay ({error})") from error
    text = summary.markdown(document["cells"])
    (out / SUMMARY).write_text(text, encoding="utf-8")
    (out / PAGE).write_text(page.page(document), encoding="utf-8")
    print(text, end="")
    print(out / PAGE)
