"""The pieces of HTML that make up the page.

Owns escaping: no other module turns text into markup. A plain `str` is escaped, and an `Html` passes unchanged. Only
this package makes `Html`, and only from its own words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

from ingeborg.bench.report import charts, plots
from ingeborg.bench.report.charts import Drawn
from ingeborg.bench.report.plots import WIDE, Frame, stacked
from ingeborg.bench.text.tables import Cell, Table


class Html(str):
    """Markup, safe to put on the page."""

    __slots__ = ()


def html(text: str) -> Html:
    """Return text as markup, or markup unchanged."""
    return text if isinstance(text, Html) else Html(escape(text))


def join(parts: Iterable[Html], between: str = "") -> Html:
    return Html(between.join(parts))


def lines(parts: Iterable[Html]) -> Html:
    """Return the parts that are not empty, below each other."""
    return Html("\n".join(part for part in parts if part))


def badge(text: str, mark: str = "") -> Html:
    """Return a badge. `mark` is `good`, `bad` or `warn`, or empty for a neutral badge."""
    return Html(f'<span class="badge {mark}">{html(text)}</span>')


def cell(content: Cell) -> Html:
    """Return a cell's text and its small print. The text is a badge if the cell has a mark."""
    text = badge(content.signed, content.mark) if content.mark else html(content.signed)
    return Html(f'{text}<span class="small">{html(content.more)}</span>') if content.more else text


def table(header: Sequence[str], rows: Iterable[Sequence[str]], caption: str, css: str = "") -> Html:
    """Return a table that scrolls independently of the page if it is too wide. The first cell of a row is the row's
    heading."""
    head = join(Html(f'<th scope="col">{html(text)}</th>') for text in header)
    body = []
    for first, *rest in rows:
        cells = "".join(f"<td>{html(text)}</td>" for text in rest)
        body.append(f'<tr><th scope="row">{html(first)}</th>{cells}</tr>')
    name = html(caption)
    return Html(
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}"><table class="{css}">'
        f"<caption hidden>{name}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def compared(one: Table, css: str = "") -> Html:
    """Return a table of the comparison, and its note."""
    rows = ([cell(content) for content in row] for row in one.rows)
    note = explain(one.note) if one.note else Html("")
    return Html(f"{table(one.header, rows, one.title, f'compared {css}')}{note}")


def titled(one: Table) -> Html:
    """Return a table of the comparison, and its note, in a panel with the table's title."""
    return panel(one.title, compared(one))


def panel(title: str, *parts: Html) -> Html:
    return Html(f'<section class="panel"><h3>{html(title)}</h3>{join(parts)}</section>')


def explain(text: str) -> Html:
    return Html(f'<p class="explain">{html(text)}</p>')


def folded(summary: str, *parts: Html) -> Html:
    return Html(f"<details><summary>{html(summary)}</summary>{join(parts)}</details>")


def bullets(items: Iterable[str]) -> Html:
    return Html(f"<ul>{''.join(f'<li>{html(item)}</li>' for item in items)}</ul>")


def legend(drawn: Drawn, frame: Frame = WIDE) -> Html:
    """Return the names of the lines that a reader can see in the frame, in the colours of the lines."""
    items = [f'<li class="{css}"><i></i>{html(name)}</li>' for name, css in plots.legend(drawn.plot, frame)]
    return Html(f'<ul class="legend" aria-label="Lines of the plot">{"".join(items)}</ul>')


def plot(drawn: Drawn | None, identity: str, caption: str, *after: Html) -> Html:
    """Return a panel with one plot."""
    if drawn is None:
        return Html("")
    return Html(
        f'<section class="panel"><figure><h3>{html(drawn.plot.title)}</h3>{legend(drawn)}'
        f"{charts.both(drawn, identity)}{_crosses(drawn)}<figcaption>{html(caption)}</figcaption></figure>"
        f"{join(after)}</section>"
    )


def _crosses(drawn: Drawn) -> Html:
    crosses = drawn.plot.crosses
    if not crosses:
        return Html("")
    items = "".join(f'<li class="s{cross.colour % 8}"><b>✕</b> {html(cross.text)}</li>' for cross in crosses)
    return Html(f'<ul class="crosses" aria-label="Systems that failed">{items}</ul>')


def stack(drawn: Sequence[Drawn], identity: str, caption: str, *after: Html) -> Html:
    """Return a panel of small plots above each other that share their x axis."""
    if not drawn:
        return Html("")
    frame = stacked(WIDE, first=False, last=False)
    figures = join(
        Html(f"<figure><h4>{html(one.plot.title)}</h4>{legend(one, frame)}{svg}</figure>")
        for one, svg in zip(drawn, plots.stack([one.plot for one in drawn], identity), strict=True)
    )
    return panel("Over time", Html(f'<div class="stack">{figures}</div>'), explain(caption), *after)


def framed(title: str, kind: str, lead: Html, parts: Sequence[Html], footer: Html) -> str:
    """Return a page in the house style, with `kind` in small print over the title, and `lead` below the title."""
    style = resources.files("ingeborg.bench.report").joinpath("report.css").read_text(encoding="utf-8")
    body = lines(
        [
            Html(f'<header class="page"><p class="over">{html(kind)}</p><h1>{html(title)}</h1>'),
            lead,
            Html("</header><main>"),
            *parts,
            Html(f"</main>{footer}"),
        ]
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # The page loads and runs nothing. With this policy, the browser enforces this even if a text was left unescaped
        # by mistake.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{html(title)} · {html(kind.lower())}</title><style>\n{style}</style></head>\n<body>\n"
        f"{body}\n</body></html>\n"
    )
