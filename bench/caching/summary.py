"""The figures of `bench caching` as Markdown: for the terminal and the documentation.

Owns: the selection of tables. Must never: compute a figure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ingeborg.bench.caching import claims, conclusions, goals
from ingeborg.bench.caching.cases import SHARES
from ingeborg.bench.caching.found import MISSED, STRATEGIES, Found, Stream
from ingeborg.bench.caching.judging import Claim, room
from ingeborg.bench.caching.policies.named import BELADY, OURS, OWED
from ingeborg.bench.caching.work import BOUND, CEILING

Json = Mapping[str, Any]

ORDER: Final = ("lru", "sieve", "tinylfu", "gdsf", *STRATEGIES[2:5], *OURS, BELADY, CEILING, BOUND)
"""Policies in the tables of streams, the online ones first."""


def markdown(pure: Json, measured: Json) -> str:
    """Return the whole summary."""
    found = Found(pure, measured)
    lines = ["# Which records to keep in memory", "", "The document's findings, and ours.", ""]
    lines += table(("the document", "here"), map(_verdicts, claims.judged(found)))
    ours = conclusions.judged(found)
    if ours:
        lines += ["", "Our own sentences, judged by the same figures.", ""]
        lines += table(("the sentence", "found"), map(_verdicts, ours))
    if found.records:
        lines += ["", f"Hit rate by read in the document's world, with {found.most:,} records.", ""]
        lines += table(("memory", *STRATEGIES), capacities(found))
    for share in SHARES:
        streams = goals.compared_streams(found, share)
        if streams:
            lines += ["", f"Hits by read in per cent, memory for {share:.0%} of all bytes.", ""]
            lines += _streams(found, streams)
    return "\n".join(lines) + "\n"


def _verdicts(claim: Claim) -> list[str]:
    return [f"{claim.number}. {claim.text}", "; ".join(f"{reading}: {verdict}" for reading, verdict in claim.verdicts)]


def capacities(found: Found) -> list[list[str]]:
    """Return the hit rates with each capacity, for both readings of bounded memory."""
    rows = [["unbounded", *(rate(found.document(found.most, name), 3) for name in STRATEGIES)]]
    for again, reading in MISSED.items():
        for share in found.capacities(again=again):
            rates = [rate(found.document(found.most, name, share, again=again), 3) for name in STRATEGIES]
            rows.append([f"{room(share)}, {reading}", *rates])
    return rows


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table with aligned columns."""
    lines = [list(header), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    return ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]


def tight(text: str) -> str:
    """Remove the spaces that align columns, because a terminal shows them but rendered Markdown does not."""
    return re.sub(r"-{3,}", "---", re.sub(r" {2,}", " ", text))


def rate(row: Json | None, digits: int) -> str:
    """Format a hit rate by read, with its interval."""
    if row is None:
        return "–"
    mean, half = row["by_read"]
    return f"{mean:.{digits}f} ± {half:.{digits}f}" if half else f"{mean:.{digits}f}"


def percent(row: Json | None) -> str:
    """Format a hit rate by read, with its interval. A `+` means that missed records are admitted again."""
    if row is None:
        return "–"
    mean, half = row["by_read"]
    text = f"{100 * mean:.1f} ± {100 * half:.1f}" if half else f"{100 * mean:.1f}"
    return f"{text} +" if row["reads_in"] else text


def points(row: Json | None) -> str:
    """Format the lead of `owed`, and the policy that it is compared with."""
    if row is None:
        return "–"
    mean, half = row["by_read"]
    interval = f" ± {100 * half:.1f}" if half else ""
    return f"{100 * mean:+.1f}{interval} ({row['other']})"


def _streams(found: Found, streams: Sequence[Stream]) -> list[str]:
    names = [name for name in ORDER if any(found.reads(stream, name) for stream in streams)]
    rows = [[name, *(percent(found.reads(stream, name)) for stream in streams)] for name in names]
    rows.append([f"{OWED} ahead by", *(points(found.ahead(stream)) for stream in streams)])
    return table(("", *(stream.stream for stream in streams)), rows)
