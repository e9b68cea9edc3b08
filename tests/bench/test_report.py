"""The page: complete, self-contained, escaped, and readable in a real browser at any width."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from bench import charts, report
from tests.bench import browser, made

SVG = set("viewbox x y width height d r cx cy text-anchor http-equiv tabindex".split())  # noqa: SIM905
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """The page's elements and text; fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)

    @property
    def text(self) -> str:
        return " ".join(self.texts)


@pytest.fixture(scope="module")
def good() -> str:
    return report.page(made.document(made.plain()), made.tables("demo"))


def test_it_has_every_plot_and_figure(good):
    page = Page(good)
    titles = [text for text in page.texts if text.endswith(("percentile", "over time"))]
    plots = ["Latency by percentile", "Latency over time", "Rates over time", "Processor over time", "Memory over time"]
    for title in plots:
        assert titles.count(title) == 3, f"{title}: a heading, and the titles of the wide and the narrow drawing"
    for text in (
        "46.0 ms",
        "24,000",
        "1,250/s",
        "of 5,000 expected; 0 delivered twice",
        "✓ met",
        "seed 1",
        "99.9 %",
        "store_unavailable",
    ):
        assert text in page.text, text
    for _, attributes in (element for element in page.elements if element[0] == "svg"):
        assert attributes["role"] == "img"
        assert attributes["aria-labelledby"]


def test_it_needs_nothing_from_anywhere(good):
    assert "http:" not in good
    assert "https:" not in good
    page = Page(good)
    assert not page.count("script")
    assert not page.count("link")
    assert not page.count("img")
    assert "@import" not in good
    assert "url(" not in good


def test_identities_are_unique(good):
    identities = re.findall(r' id="([^"]+)"', good)
    assert len(identities) == len(set(identities))
    for names in re.findall(r'aria-labelledby="([^"]+)"', good):
        assert set(names.split()) <= set(identities)


def test_no_text_of_a_log_becomes_markup():
    document = made.document(made.hostile(), made.plain())
    text = report.page(document, made.tables(made.HOSTILE, "demo", source=made.HOSTILE))
    page = Page(text)
    assert not page.count("script")
    assert "alert('x')" in page.text, "it is shown, as text"
    allowed = set("class id href content name lang charset scope colspan hidden role".split()) | SVG  # noqa: SIM905
    for _, attributes in page.elements:
        for name in attributes:
            assert name in allowed or name.startswith("aria-"), name


def test_missed_goals_notes_and_a_system_without_counters():
    run = made.plain(goals={"p50_ms": 1, "p99_ms": 2000}, complete=False)
    run["figures"] = made.figures("demo", lost=7) | {"counters": []}
    text = Page(report.page(made.document(run), made.tables("demo"))).text
    for said in ("✗ missed", "2 of 4 met", "Read this first", "The run was cut short", "does not say how many"):
        assert said in text, said


def test_a_run_in_which_nothing_happened_says_so():
    run = made.plain()
    run["figures"] = {name: [] for name in run["figures"]}
    page = Page(report.page(made.document(run), {"seconds": [], "machine": [], "histogram": [], "counters": []}))
    assert page.count("svg") == 0
    for said in ("Nothing was delivered", "Nothing was measured", "0 of 4 met"):
        assert said in page.text


def test_a_long_run_is_drawn_in_bins_and_says_so():
    seconds = 4 * charts.POINTS_MAX
    text = report.page(made.document(made.plain()), made.tables("demo", seconds=seconds))
    assert "Each point stands for 4 seconds: the largest of its values." in text
    assert "Each point stands for 4 seconds: their mean." in text
    assert f"every {seconds // report.ROWS_MAX} seconds; all of them are in seconds.csv" in text
    assert len(text) < 400_000


_LAYOUT = """{
    overflow: document.documentElement.scrollWidth - innerWidth,
    drawings: [...document.querySelectorAll('svg')].filter(s => s.getClientRects().length).length,
    small: [...document.querySelectorAll('svg text')].filter(t => t.getClientRects().length)
        .filter(t => t.getBoundingClientRect().height < 10).length,
    outside: [...document.querySelectorAll('svg text')].filter(t => t.getClientRects().length)
        .filter(t => t.getBoundingClientRect().right > innerWidth || t.getBoundingClientRect().left < 0).length,
    ink: getComputedStyle(document.body).color,
}"""


async def test_in_a_browser_at_desktop_and_phone_width(chromium, tmp_path):
    page = tmp_path / "report.html"
    document = made.document(made.plain(), made.hostile())
    page.write_text(report.page(document, made.tables("demo", made.HOSTILE)), encoding="utf-8")
    seen = {}
    for width, dark in ((390, False), (1280, True)):
        seen[width] = await browser.look(chromium, page, tmp_path / f"profile-{width}", width, _LAYOUT, dark)
        assert seen[width].complaints == []
        assert [url for url in seen[width].requests if not url.startswith(("file:", "about:"))] == []
        assert seen[width].value["overflow"] <= 0
        assert seen[width].value["outside"] == 0
        assert seen[width].value["small"] == 0
        assert seen[width].value["drawings"] == 10, "each of the five plots of two runs once"
    assert seen[390].value["ink"] != seen[1280].value["ink"], "light and dark differ"
