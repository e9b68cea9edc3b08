"""A small evaluation for the tests of the runner: it squares numbers. Its units can wait, or fail."""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ingeborg.bench.errors import BenchError, UsageError
from ingeborg.bench.experiments.experiment import Digest, Experiment, Part, Results, Selection, Unit
from ingeborg.bench.experiments.runner import DONE
from ingeborg.bench.report.plots import Plot, Series, linear
from ingeborg.bench.text.blocks import (
    FAILS,
    HOLDS,
    Bullets,
    Cell,
    Claim,
    Claims,
    Drawing,
    Figure,
    Fold,
    Panel,
    Report,
    Section,
    Text,
    Verdict,
    table,
)

SQUARES = "squares"


class Squares(Experiment):
    """``--fail N`` makes the unit of the number N fail, ``--kill N`` kills its process, and
    ``--stop N`` interrupts the run in it."""

    name = "squares"
    help = "square some numbers"
    description = "Square small and large numbers."
    word = "numbers"
    parts = (Part("small", "numbers from 1 to 3"), Part("large", "numbers from 100", is_default=False))
    seeds = 3

    def __init__(self) -> None:
        self.fail = self.stop = self.kill = 0
        self.sources = "one"

    def add(self, command: argparse.ArgumentParser) -> None:
        command.add_argument("--fail", type=int, default=0)
        command.add_argument("--stop", type=int, default=0)
        command.add_argument("--kill", type=int, default=0)

    def settle(self, options: argparse.Namespace, parts: Collection[str]) -> None:
        if options.fail < 0:
            raise UsageError("--fail has to be a number of the plan")
        self.fail, self.stop, self.kill = options.fail, options.stop, options.kill

    def plan(self, selection: Selection) -> Sequence[Unit]:
        begins = {"small": 1, "large": 100}
        return [
            Unit(f"{part}-{number}", part, number, cost=number, is_live=part == "large")
            for part in selection.parts
            for number in range(begins[part], begins[part] + selection.seeds)
        ]

    def identity(self) -> Mapping[str, Any]:
        return {"sources": self.sources}

    def run(self, unit: Unit, results: Results) -> None:
        if unit.work == self.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        if unit.work == self.fail:
            raise BenchError(f"{unit.work} has no square")
        if unit.work == self.stop:
            for number in range(1 if self.stop < 100 else 100, self.stop):  # the others come first
                while not results.path(DONE, f"{unit.part}-{number}", ".json").is_file():
                    time.sleep(0.01)
            os.kill(os.getpid() if unit.is_live else os.getppid(), signal.SIGINT)
            time.sleep(30)
        results.keep(SQUARES, unit.name, [{"number": unit.work, "square": unit.work**2, "process": os.getpid()}])

    def digest(self, results: Results) -> Digest:
        rows = list(results.rows(SQUARES))
        pure = {"squares": [[row["number"], row["square"]] for row in rows]}
        return Digest(pure, {"processes": len({row["process"] for row in rows})})

    def report(self, digest: Digest) -> Report:
        pairs = digest.pure["squares"]
        return report(pairs)


def report(pairs: Sequence[Sequence[int]]) -> Report:
    """Return a report with every kind of block."""
    most = max(square for _, square in pairs)
    claims = [
        Claim(
            "1",
            "A square is at least its number.",
            [Verdict("n ≥ 1", HOLDS)],
            [f"{len(pairs)} of {len(pairs)}", "all of them."],
        ),
        Claim(
            "2",
            "No square exceeds 8.",
            [Verdict("all numbers", HOLDS if most <= 8 else FAILS, f"up to {most}"), Verdict("numbers to 2", HOLDS)],
            why="3 < 4.",
            published="9 (their page).",
        ),
    ]
    plot = Plot(
        title="Squares by <number>",
        description="They grow.",
        series=[Series("square", [(one, other) for one, other in pairs], 0, dots=True)],
        x=linear(3, str),
        y=linear(most, str),
    )
    rows: list[list[str | Cell]] = [[str(number), Cell(str(square), "small print", "good")] for number, square in pairs]
    return Report(
        "Squares & more",
        "Evaluation",
        ["Numbers, squared with `n**2`."],
        [
            Section("Found", [Claims("The sentences", claims, "All of them.")]),
            Section("Figures", [Figure(plot, "f1", "By number."), Drawing("A line", "<svg></svg>", "Nothing.")]),
            Section("More", [Panel("Rows", [table("Squares", ("n", "square"), rows, "In order."), Text("<b>")])]),
            Section("Least", [Fold("Everything", [Bullets(["one", "two"])])]),
        ],
        "bench squares --out DIR",
        ["The end."],
    )
