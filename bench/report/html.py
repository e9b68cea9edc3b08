"""Renders a report as one HTML page.

Owns: the templates, and escaping, which Jinja2 does for every text. Must never: choose what a report says.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ingeborg.bench.report import plots
from ingeborg.bench.report.plots import NARROW, WIDE, Plot, stacked, svg
from ingeborg.bench.text.blocks import MARKS, Figure, Report, Stack

_CODE = re.compile(r"`([^`]+)`")


def page(report: Report) -> str:
    """Return the page."""
    return _environment().get_template("page.html").render(report=report)


@cache
def _environment() -> Environment:
    package = "ingeborg.bench.report"
    made = Environment(loader=PackageLoader(package), autoescape=True, undefined=StrictUndefined)
    made.filters |= {"inline": _inline, "drawn": _drawn, "stacked": _stacked}
    style = resources.files(package).joinpath("report.css").read_text(encoding="utf-8")
    small = stacked(WIDE, first=False, last=False)
    made.globals |= {"style": Markup(style), "marks": MARKS, "lines": plots.legend, "wide": WIDE, "small": small}
    return made


def _inline(text: str) -> Markup:
    """Escape a text, and mark the words between backticks as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


def _drawn(figure: Figure) -> Markup:
    """Return the plot for a wide and for a narrow page. The style sheet shows only one drawing."""
    return Markup(svg(figure.plot, WIDE, NARROW, figure.identity))


def _stacked(stack: Stack) -> list[tuple[Plot, Markup]]:
    """Return the plots with their drawings."""
    return list(zip(stack.plots, map(Markup, plots.stack(stack.plots, stack.identity)), strict=True))
