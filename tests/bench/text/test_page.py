"""Tables in pages: their content, that the repository's pages match its sets, and the errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ingeborg.bench import comparison
from ingeborg.bench.digest import kept
from ingeborg.bench.errors import BenchError
from ingeborg.bench.text import page
from tests import wants
from tests.bench import digests

DOCS = Path(__file__).resolve().parents[3] / "docs"
#: The pages with tables of a set.
PAGES = sorted(path for path in DOCS.rglob("*.md") if "<!-- table: " in path.read_text("utf-8"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_tables_of_the_pages_are_those_of_the_sets(path: Path) -> None:
    wants.module("pyarrow", "bench")
    text = path.read_text("utf-8")
    assert page.made(text) == text, f"{path.name}: `make pages` makes its tables anew"
    assert len(re.findall("<!-- table: ", text)) == len(re.findall("<!-- end of table -->", text))


def test_the_figures_of_the_readme_are_those_of_the_comparison() -> None:
    """Each figure is in its system's row there, with the same unit; the text leaves out the ratio to ours."""
    readme = (DOCS.parent / "README.md").read_text("utf-8")
    (table,) = re.findall(r"^\| \| Ingeborg \|.*\n(?:\|.*\n)+", readme, re.MULTILINE)
    header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
    comparison_page = (DOCS / "comparison.md").read_text("utf-8")
    assert len(rows) >= 5
    for column, system in enumerate(header[1:], 1):
        name, _, release = system.lower().partition(" ")
        row_of = rf"^\| {name} · (?:home|{re.escape(release)} \(\d+\)) \|.*"
        theirs = " | ".join(re.findall(row_of, comparison_page, re.MULTILINE))
        measured = {re.sub(r" \(× [\d.]+\)", "", cell.strip()) for cell in theirs.split("|")}
        assert {row[column] for row in rows} <= measured, system


def test_there_are_such_pages() -> None:
    assert {path.name for path in PAGES} >= {"benchmarks.md", "comparison.md"}


def test_rows_are_the_comparison_s_and_ratios_are_to_ours() -> None:
    (of_traffic,) = comparison.traffic(digests.compared())
    (of_topics,) = comparison.topics(digests.compared())
    for source, rows in (
        ([row.name for row in of_traffic.rows], page.traffic(of_traffic).rows),
        ([series.name for series in of_topics.series], page.topics(of_topics).rows),
    ):
        assert [row[0].text for row in rows] == source
        assert not any("×" in cell.plain for cell in rows[0])
        assert any("×" in cell.plain for row in rows[1:] for cell in row)


def test_a_system_that_held_no_rate_says_so() -> None:
    (table,) = comparison.traffic(digests.compared())
    rows = {row.name: cells for row, cells in zip(table.rows, page.traffic(table).rows, strict=True)}
    for row in table.rows:
        assert (rows[row.name][1].text == "no rate was sustained") is (row.phase is None)


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    wants.module("pyarrow", "bench")
    with pytest.raises(BenchError, match="'rates' is not one of traffic, topics"):
        page.made("<!-- table: rates of x -->\n<!-- end of table -->")
    with pytest.raises(BenchError, match=re.escape(kept.NAME)):
        page.made("<!-- table: traffic of x -->\n<!-- end of table -->", tmp_path)


def test_all_else_of_a_page_stays() -> None:
    text = "# A page\n\n<!-- a comment -->\n| a | table |\n"
    assert page.made(text) == text
