"""A report as a page, as Markdown and in the terminal."""

from __future__ import annotations

import re

from ingeborg.bench.report import html, markdown
from ingeborg.bench.text.blocks import claims_of
from tests.bench.experiments.squares import report
from tests.bench.report.test_report import Page

REPORT = report([(1, 1), (2, 4), (3, 9)])


def test_the_page_has_every_block_and_escapes_every_text() -> None:
    page = html.page(REPORT)
    assert "<h1>Squares &amp; more</h1>" in page
    assert "Numbers, squared with <code>n**2</code>." in page
    assert "<h3>Squares by &lt;number&gt;</h3>" in page
    assert '<span class="badge warn">depends</span>' in page
    assert "<summary>2 readings: 1 does not hold, 1 holds</summary>" in page
    assert '<span class="badge bad">does not hold</span> all numbers: up to 9</li>' in page
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert page.count("<svg") == 3  # a plot for two widths, and a drawing
    assert "<details><summary>Everything</summary><ul><li>one</li><li>two</li></ul>" in page
    assert '<td><span class="badge good">1</span><span class="small">small print</span></td>' in page
    assert "Make it again: <code>bench squares --out DIR</code>" in page
    assert Page(page).count("table") == 1


def test_markdown_has_the_claims_and_tables_and_no_figures() -> None:
    assert (
        markdown.markdown(REPORT)
        == """\
# Squares & more

Numbers, squared with `n**2`.

Make it again: `bench squares --out DIR`

## Found

### The sentences

- “A square is at least its number.” (1) **holds**. 3 of 3. All of them.
  - n ≥ 1
- “No square exceeds 8.” (2) **depends**.
  - does not hold: all numbers: up to 9
  - holds: numbers to 2
  - published by the authors: 9 (their page).

All of them.

## More

### Rows

**Squares**

| n | square |
| --- | --- |
| 1 | 1 (small print) |
| 2 | 4 (small print) |
| 3 | 9 (small print) |

In order.

<b>

The end.
"""
    )


def test_a_terminal_wraps_the_claims() -> None:
    wide = report([(number, number**2) for number in range(1, 4)])
    lines = markdown.terminal(wide).splitlines()
    assert lines[0] == "Squares & more: holds 1, depends 1"
    assert all(len(line) <= markdown.TERMINAL_COLUMNS for line in lines)


def test_all_claims_are_found_at_any_depth() -> None:
    assert [claim.where for claim in claims_of(REPORT)] == ["1", "2"]
    assert not re.search(r"\{\{|\{%", html.page(REPORT))
