"""Writes the verdicts of the causal check as text for a terminal.

Owns the words, and the number of violations shown. The verdicts come from the check (`bench.spark.causal.verdicts`).
Must never: judge.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from ingeborg.bench.digest.document import NS_PER_S, Json
from ingeborg.bench.text.figures import counted
from ingeborg.bench.text.summary import plain

SHOWN = 10
"""The default of `--shown`, which is the number of violations to show for each run. A few are enough, because most
violations of a run have the same cause."""

SHOWN_MAX = 100
"""Maximum number of violations to show for all runs together. The check searches for the trail of each violation, and
nobody would read more."""


def shown(number: str) -> int:
    """Return the value of `--shown` as a number. Raises ``ArgumentTypeError`` if it is not a number."""
    if not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{number!r} is not a number of violations: give 0 or more")
    return min(int(number), SHOWN_MAX)


def verdicts(made: Sequence[Json]) -> str:
    """Return the verdicts as text, run by run."""
    return "\n".join(line for verdict in made for line in _verdict(verdict))


def _verdict(verdict: Json) -> Iterator[str]:
    wrong, unsent = verdict["violations"], verdict["unsent"]
    yield (
        f"{plain(verdict['run'])}: {counted(wrong, 'causal violation') if wrong else 'no causal violation'}"
        + (f" at {counted(verdict['connections'], 'connection')}" if wrong else "")
        + f"; {counted(verdict['deliveries'], 'delivery', 'deliveries')} judged, {verdict['late']:,} of them after a "
        "message that was sent later"
    )
    marked, reports = verdict["marked"], counted(verdict["reports"], "publish", "publishes")
    if marked:
        yield f"  {marked:,} of {reports} are marked causal, and only these depend on earlier messages"
    else:
        yield f"  {reports}, none marked causal, so each depends on everything that its connection had sent or received"
    if unsent:
        yield f"  not judged: {counted(unsent, 'delivery', 'deliveries')} of messages that nobody in the log sent"
    if not verdict["whole"]:
        files = f"{counted(len(verdict['torn']), 'torn file')}, {len(verdict['empty']):,} empty"
        yield f"  The run was cut short. Its log up to that time is judged ({files})"
    if verdict["messages"]:
        mean = verdict["entries"] / verdict["messages"]
        yield (
            f"  sequential pass: {verdict['pass_s']:.2f} s of a core for {counted(verdict['messages'], 'message')}; "
            f"clocks have {mean:.2f} entries on average and {verdict['entries_max']:,} at most, for messages that "
            "could still come too late"
        )
    for example in verdict["examples"]:
        yield from _example(example, verdict["started_ns"])
    if more := wrong - len(verdict["examples"]):
        yield f"  and {more:,} more" if verdict["examples"] else f"  {more:,} not shown"


def _example(example: Json, started_ns: int) -> Iterator[str]:
    def at(ns: int) -> str:
        return f"{(ns - started_ns) / NS_PER_S:.6f} s"

    def message(of: Json, name: str = "") -> str:
        return f"topic {of[f'{name}topic']} no. {of[f'{name}seq']}"

    yield (
        f"  connection {example['connection']} got {message(example, 'before_')} at {at(example['before_ns'])}, but "
        f"{message(example)}, on which it depends, only at {at(example['at_ns'])}:"
    )
    for link in example["trail"]:
        cause = ""
        if link["cause_seq"] is not None:
            how = "sent" if link["cause_ns"] is None else f"received at {at(link['cause_ns'])}"
            cause = f" after {message(link, 'cause_')}, {how}"
        yield f"    {at(link['at_ns'])}: connection {link['connection']} sent {message(link)}{cause}"
