"""The blocks of a report, from which HTML, Markdown and the terminal are made.

Owns: the kinds of blocks. Must never: contain markup, except the drawing of ``Drawing``.

In every text, words between backticks are code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

if TYPE_CHECKING:
    from ingeborg.bench.report.plots import Plot


class Cell(NamedTuple):
    """One cell of a table. `more` is small print below or after `text`. `mark` is `good`, `bad`, `warn` or `plain` for
    a badge, or empty. `sign` is the sign of a footnote. `to` is the identity of a section to which the text links."""

    text: str
    more: str = ""
    mark: str = ""
    sign: str = ""
    to: str = ""

    @property
    def signed(self) -> str:
        return f"{self.text} {self.sign}" if self.sign else self.text

    @property
    def plain(self) -> str:
        return f"{self.signed} ({self.more})" if self.more else self.signed


@dataclass(frozen=True)
class Table:
    """A table. Each row has a cell for each heading in `header`, and its first cell names the row. `note` has remarks
    for the reader. `form` is `words` if the last column has sentences, or `tall` if the table has too many rows to show
    without scrolling."""

    kind: ClassVar[str] = "table"

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    form: str = ""


def table(
    title: str, header: Sequence[str], rows: Iterable[Sequence[str | Cell]], note: str = "", form: str = ""
) -> Table:
    """Return a table whose cells may be plain texts."""
    cells = (tuple(Cell(one) if isinstance(one, str) else one for one in row) for row in rows)
    return Table(title, tuple(header), tuple(cells), note, form)


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    kind: ClassVar[str] = "text"

    text: str


@dataclass(frozen=True)
class Bullets:
    """A list of sentences."""

    kind: ClassVar[str] = "bullets"

    items: Sequence[str]


@dataclass(frozen=True)
class Figure:
    """A plot, and the text below it. ``identity`` is unique on the page."""

    kind: ClassVar[str] = "figure"

    plot: Plot
    identity: str
    caption: str


@dataclass(frozen=True)
class Stack:
    """Small plots above each other that share their x axis. ``identity`` is unique on the page. ``after`` has blocks
    below the caption."""

    kind: ClassVar[str] = "stack"

    title: str
    plots: Sequence[Plot]
    identity: str
    caption: str
    after: Sequence[Block] = ()


@dataclass(frozen=True)
class Card:
    """A figure in large print. ``more`` is small print below it."""

    label: str
    value: str
    more: Cell


@dataclass(frozen=True)
class Cards:
    """The most important figures."""

    kind: ClassVar[str] = "cards"

    cards: Sequence[Card]


@dataclass(frozen=True)
class Notice:
    """Blocks that a reader must not overlook, such as the reasons of a failure."""

    kind: ClassVar[str] = "notice"

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Facts:
    """Names and values, such as the settings of a run. A name without a value is a heading for the names after it."""

    kind: ClassVar[str] = "facts"

    title: str
    facts: Sequence[tuple[str, str | None]]


@dataclass(frozen=True)
class Drawing:
    """A drawing that is not a plot. ``svg`` is markup that this project makes."""

    kind: ClassVar[str] = "drawing"

    title: str
    svg: str
    caption: str


HOLDS: Final = "holds"
PARTLY: Final = "holds in part"
FAILS: Final = "does not hold"
NOISE: Final = "within noise"
DEPENDS: Final = "depends"
MARKS: Final = {HOLDS: "good", PARTLY: "warn", FAILS: "bad", NOISE: "warn", DEPENDS: "warn"}
"""The possible verdicts on a sentence, and the marks of their badges."""


class Verdict(NamedTuple):
    """A verdict on a sentence, for one interpretation of the document.

    Attributes:
        reading: the interpretation, and the parameters on which the verdict is based. It is a phrase without a period.
        verdict: one of ``MARKS``, but not ``DEPENDS``.
        found: the figures of this interpretation, or ``""`` if the figures of the claim suffice.
    """

    reading: str
    verdict: str
    found: str = ""


@dataclass(frozen=True)
class Claim:
    """A sentence of a document, and the verdicts on it.

    Attributes:
        where: the sentence's place in the document, such as a section or a figure.
        text: the sentence.
        verdicts: a verdict for each interpretation, at least one.
        found: our figures, as sentences.
        why: the reason for the figures, or ``""`` if we do not know it.
        published: figures that the authors have published elsewhere, with their source, or ``""`` if there are none.
    """

    where: str
    text: str
    verdicts: Sequence[Verdict]
    found: Sequence[str] = ()
    why: str = ""
    published: str = ""

    @property
    def verdict(self) -> str:
        """Return the verdict of all interpretations together."""
        each = {one.verdict for one in self.verdicts}
        return each.pop() if len(each) == 1 else DEPENDS

    @property
    def said(self) -> str:
        """Return our figures as one text, with a period after each figure."""
        return " ".join(text[:1].upper() + text[1:].rstrip(".") + "." for text in self.found)

    @property
    def tally(self) -> str:
        """Return how many interpretations have each verdict, such as `4 readings: 3 holds, 1 does not hold`."""
        counts = Counter(one.verdict for one in self.verdicts)
        return f"{len(self.verdicts)} readings: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}"


@dataclass(frozen=True)
class Claims:
    """The sentences of a document, with their verdicts."""

    kind: ClassVar[str] = "claims"

    title: str
    claims: Sequence[Claim]
    note: str = ""


def judged(title: str, claims: Sequence[Claim], note: str = "") -> list[Block]:
    """Return the sentences with their verdicts, or nothing if there are none."""
    return [Claims(title, claims, note)] if claims else []


@dataclass(frozen=True)
class Panel:
    """Blocks in a frame, below a title."""

    kind: ClassVar[str] = "panel"

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Fold:
    """Blocks that are only on the page, and that its reader has to open. ``more`` is small print after the summary."""

    kind: ClassVar[str] = "fold"

    summary: str
    blocks: Sequence[Block]
    more: str = ""


def panel(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str | Cell]], note: str = "", form: str = ""
) -> list[Block]:
    """Return a panel with a table, or nothing if the table has no rows."""
    return [Panel(title, [table("", header, rows, note, form)])] if rows else []


@dataclass(frozen=True)
class Section:
    """A heading, and the blocks below it. ``identity`` is the target of links, and unique on the page."""

    kind: ClassVar[str] = "section"

    title: str
    blocks: Sequence[Block]
    identity: str = ""


Block = Table | Text | Bullets | Figure | Stack | Drawing | Cards | Notice | Facts | Claims | Panel | Fold | Section


@dataclass(frozen=True)
class Report:
    """A whole report.

    Attributes:
        title: the heading.
        over: a word above the heading, such as "Evaluation".
        lead: the paragraphs below the heading: which document this is, and what the workload does.
        sections: the sections. The first section has the claims.
        command: the command that makes the results again.
        closing: sentences at the end.
    """

    title: str
    over: str
    lead: Sequence[str]
    sections: Sequence[Block]
    command: str = ""
    closing: Sequence[str] = ()


def claims_of(report: Report) -> list[Claim]:
    """Return all claims of a report, in order."""
    found: list[Claim] = []

    def visit(blocks: Iterable[Block]) -> None:
        for block in blocks:
            if isinstance(block, Claims):
                found.extend(block.claims)
            elif isinstance(block, Panel | Fold | Section | Notice):
                visit(block.blocks)

    visit(report.sections)
    return found
