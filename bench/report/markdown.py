"""Renders a report as Markdown, and its claims as lines for a terminal.

Owns: the form of the Markdown and of these lines. Must never: choose what a report says. The only exception: figures
and folded blocks are only on the page.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from ingeborg.bench.text.blocks import (
    Block,
    Bullets,
    Cards,
    Claim,
    Claims,
    Notice,
    Panel,
    Report,
    Section,
    Table,
    Text,
    claims_of,
)
from ingeborg.bench.text.summary import table_lines

TERMINAL_COLUMNS = 100


def markdown(report: Report) -> str:
    """Return the report as Markdown."""
    lines = [f"# {report.title}"]
    for text in report.lead:
        lines += ["", text]
    if report.command:
        lines += ["", f"Make it again: `{report.command}`"]
    lines += _blocks(report.sections, 2)
    for text in report.closing:
        lines += ["", text]
    return "\n".join(lines) + "\n"


def _blocks(blocks: Sequence[Block], level: int) -> Iterator[str]:
    for block in blocks:
        match block:
            case Section(title, inside) | Panel(title, inside):
                found = list(_blocks(inside, level + 1))
                if found:
                    yield from ("", f"{'#' * level} {title}", *found)
            case Notice(title, inside):
                yield from ("", f"**{title}**", *_blocks(inside, level))
            case Cards(cards):
                yield from ("", *(f"- {card.label}: {card.value} ({card.more.plain})" for card in cards))
            case Text(text):
                yield from ("", text)
            case Bullets(items):
                yield from ("", *(f"- {item}" for item in items))
            case Table():
                if block.title:
                    yield from ("", f"**{block.title}**")
                yield from ("", *table_lines(block.header, block.rows))
                if block.note:
                    yield from ("", block.note)
            case Claims():
                yield from ("", f"{'#' * level} {block.title}", "")
                for claim in block.claims:
                    yield from _claim(claim)
                if block.note:
                    yield from ("", block.note)


def _claim(claim: Claim) -> Iterator[str]:
    """Return the lines of a claim. The reason is on the page only."""
    yield f"- “{claim.text}” ({claim.where}) **{claim.verdict}**. {claim.said}".rstrip()
    for one in claim.verdicts:
        verdict = f"{one.verdict}: " if len(claim.verdicts) > 1 else ""
        yield f"  - {verdict}{one.reading}{f': {one.found}' if one.found else ''}"
    if claim.published:
        yield f"  - published by the authors: {claim.published}"


def terminal(report: Report) -> str:
    """Return the claims, each as one or two lines, and the number of claims with each verdict."""
    claims = claims_of(report)
    counts = Counter(claim.verdict for claim in claims)
    lines = [f"{report.title}: {', '.join(f'{verdict} {count}' for verdict, count in counts.items()) or 'no claims'}"]
    width = max((len(claim.verdict) for claim in claims), default=0)
    for claim in claims:
        text = f"{claim.text} {claim.said}".rstrip()
        wrapped = textwrap.wrap(text, TERMINAL_COLUMNS - width - 4)
        lines.append(f"  {claim.verdict:{width}}  {wrapped[0]}")
        lines += [f"  {'':{width}}  {line}" for line in wrapped[1:]]
    return "\n".join(lines)
