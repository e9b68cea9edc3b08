"""The shape of an evaluation. It has parts, a plan of units, a digest and a report.

Owns: the interface between an evaluation and the runner. Must never: print, or choose a folder.
"""

from __future__ import annotations

import argparse
import json
import lzma
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from ingeborg.bench.errors import BenchError
from ingeborg.bench.experiments import units
from ingeborg.bench.text.blocks import Report

Json = dict[str, Any]

MEASURED: Final = "measured.json.xz"
"""The file of a result that holds measurements made on a machine. They differ from run to run."""


@dataclass(frozen=True)
class Part:
    """A part of an evaluation, which a user can select by its name.

    Attributes:
        name: the name for ``--only``.
        about: what the part shows, as a sentence without its period.
        is_default: whether the part runs if the user selects nothing.
    """

    name: str
    about: str
    is_default: bool = True


@dataclass(frozen=True)
class Unit:
    """The work that runs, and is stored, as a whole.

    Attributes:
        name: the name of the unit's files. It is unique in the plan.
        part: the name of its part.
        work: the evaluation's own description of the work. Another process must be able to import its class.
        cost: the seconds that the unit takes on a core of the machine in docs/benchmarks.md. The runner computes the
            remaining time from these costs.
        is_live: whether the unit measures real processes, so that nothing else may run meanwhile.
    """

    name: str
    part: str
    work: Any
    cost: float = 1.0
    is_live: bool = False


@dataclass(frozen=True)
class Selection:
    """The user's selection. ``seeds``: the number of seeds, or 0 if the evaluation has no option for it."""

    parts: Collection[str]
    seeds: int


class Digest(NamedTuple):
    """An evaluation's figures. ``pure`` has the figures that follow from the seeds, and ``measured`` has the figures
    that were measured on a machine."""

    pure: Json
    measured: Json


class Results:
    """The folder with an evaluation's results. Each kind of rows has a folder, where each unit has a file."""

    def __init__(self, out: Path) -> None:
        self.out = out

    def path(self, kind: str, name: str, suffix: str = ".jsonl") -> Path:
        """Return the path of a unit's rows."""
        return self.out / kind / f"{name}{suffix}"

    def keep(self, kind: str, name: str, rows: Iterable[Any]) -> None:
        """Write a unit's rows. The file appears only when it is complete."""
        units.keep(self.path(kind, name), rows)

    def rows(self, kind: str) -> Iterator[Json]:
        """Yield the rows of one kind, in the order of the units' names."""
        for path in sorted((self.out / kind).glob("*.jsonl")):
            for line in path.read_text(encoding="utf-8").splitlines():
                yield json.loads(line)

    def write(self, name: str, document: Any) -> None:
        """Write a document as compressed JSON."""
        text = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        units.write(self.out / name, lzma.compress(text, preset=9))

    def read(self, name: str) -> Any:
        """Read a document. Raises ``BenchError`` if it is missing or damaged."""
        try:
            return json.loads(lzma.decompress((self.out / name).read_bytes()))
        except FileNotFoundError:
            raise BenchError(f"{self.out} has no {name}: run the command without --report-only first") from None
        except (OSError, ValueError, lzma.LZMAError) as error:
            raise BenchError(f"{self.out / name} cannot be read: {error}") from error


class Experiment(ABC):
    """An evaluation. The runner makes one object, and passes copies to the processes that run units.

    Attributes:
        name: the name of the command, and of the file with the digest.
        help: what the command does, in a few words.
        description: what the command does, for ``--help``.
        word: the word for its units, in the plural.
        parts: its parts, in the order of the report.
        seeds: the default number of seeds. 0 means that the user cannot choose it.
        fresh: whether each unit needs a separate process. The end of the process frees the memory.
        only_live: whether all units measure real processes. Then the command has no option for the number of processes.
    """

    name: ClassVar[str]
    help: ClassVar[str]
    description: ClassVar[str]
    word: ClassVar[str] = "units"
    parts: ClassVar[Sequence[Part]]
    seeds: ClassVar[int] = 0
    fresh: ClassVar[bool] = False
    only_live: ClassVar[bool] = False

    @property
    def document(self) -> str:
        """Return the name of the file with the figures that follow from the seeds."""
        return f"{self.name}.json.xz"

    def add(self, command: argparse.ArgumentParser) -> None:  # noqa: B027 (most have none)
        """Add the evaluation's own options."""

    def settle(self, options: argparse.Namespace, parts: Collection[str]) -> None:  # noqa: B027 (most have none)
        """Store the evaluation's own options. Check everything that the units of these parts will need, so that an
        error appears now and not after minutes.

        Raises:
            UsageError: an option is wrong.
            BenchError: a program or a file is missing.
        """

    @abstractmethod
    def plan(self, selection: Selection) -> Sequence[Unit]:
        """Return the units of the selected parts. Long units come first, so that all processes end at about the same
        time."""

    @abstractmethod
    def identity(self) -> Mapping[str, Any]:
        """Return everything that determines the rows of a unit, in addition to its name: a fingerprint of the sources,
        and options. A folder holds only rows with the same identity."""

    @abstractmethod
    def run(self, unit: Unit, results: Results) -> None:
        """Run one unit, and keep its rows. Raises ``BenchError`` if it fails."""

    def live(self, due: Sequence[Unit], results: Results, done: Callable[[Unit, str], None]) -> None:
        """Run units that measure real processes. Call ``done`` after each, with the unit and ``""`` or the error."""
        for unit in due:
            try:
                self.run(unit, results)
            except BenchError as error:
                done(unit, str(error))
            else:
                done(unit, "")

    def batches(self, plan: Sequence[Unit]) -> Iterable[Sequence[Unit]]:
        """Divide the plan into batches, if something has to happen after some of the units (see ``after``)."""
        return [plan]

    def after(self, batch: Sequence[Unit], results: Results) -> None:  # noqa: B027 (most do nothing)
        """Do what has to happen after a batch's units are finished, unless an earlier run has done it."""

    @abstractmethod
    def digest(self, results: Results) -> Digest:
        """Compute the figures of everything in the folder."""

    @abstractmethod
    def report(self, digest: Digest) -> Report:
        """Return the report. Parts that did not run are left out."""
