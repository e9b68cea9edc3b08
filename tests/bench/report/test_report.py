"""The page: complete, self-contained, escaped, and readable in a real browser at any width."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ingeborg.bench import comparison, report
from ingeborg.bench.report import charts
from ingeborg.bench.report.page import DETAILED_MAX
from ingeborg.bench.report.plots import linear
from ingeborg.bench.report.run import ROWS_MAX
from ingeborg.bench.text import figures
from tests.bench import digests
from tests.browser.devtools import look

SVG = set("viewbox x y width height d r cx cy text-anchor http-equiv tabindex transform".split())  # noqa: SIM905
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

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)

    @property
    def text(self) -> str:
        return " ".join(self.texts)


def page_of(*runs: digests.Json) -> str:
    return report.page(digests.document(*runs), digests.tables(*runs))


@pytest.fixture(scope="module")
def good() -> str:
    return page_of(digests.demo())


@pytest.fixture(scope="module")
def many() -> str:
    document = digests.compared()
    return report.page(document, digests.tables(*document["runs"]))


# -- one run


def test_it_has_every_plot_and_figure(good: str) -> None:
    page = Page(good)
    titles = [text for text in page.texts if text.endswith(("percentile", "over time"))]
    for title in ("Latency by percentile", *OVER_TIME):
        assert titles.count(title) == 2, f"{title}: a heading, and the title of the drawings"
    for text in (
        "1.55 ms",
        "24,000",
        "1,250/s",
        "expected 5,000; 0 delivered twice",
        "✓ met",
        "seed 1",
        "99.9 %",
        "store_unavailable",
        "Subscribe: 12,400 in 2.00 s, 6,200/s.",
        "0 in every phase: Lost, Conflated, Twice, Reordered, Overtaken.",
    ):
        assert text in page.text, text
    for _, attributes in (element for element in page.elements if element[0] == "svg"):
        assert attributes["role"] == "img"
        assert attributes["aria-labelledby"]


OVER_TIME = ("Rates over time", "Latency over time", "Processor over time", "Memory over time", "Network over time")


def test_it_needs_nothing_from_anywhere(many: str) -> None:
    assert "http:" not in many
    assert "https:" not in many
    page = Page(many)
    assert not page.count("script")
    assert not page.count("link")
    assert not page.count("img")
    assert "@import" not in many
    assert "url(" not in many


def test_identities_are_unique(many: str) -> None:
    identities = re.findall(r' id="([^"]+)"', many)
    assert len(identities) == len(set(identities))
    for names in re.findall(r'aria-labelledby="([^"]+)"', many):
        assert set(names.split()) <= set(identities)
    for target in re.findall(r'href="#([^"]+)"', many):
        assert target in identities


def test_no_text_of_a_log_becomes_markup() -> None:
    for runs in ([digests.hostile()], [digests.hostile(), *digests.hostile_compared(), digests.demo()]):
        tables = digests.tables(*runs)
        for row in tables["machine"]:
            row |= {"source": digests.HOSTILE, "role": digests.HOSTILE}
        page = Page(report.page(digests.document(*runs), tables))
        assert not page.count("script")
        assert "alert('x')" in page.text, "it is shown, as text"
        allowed = set("class id href content name lang charset scope colspan hidden role".split()) | SVG  # noqa: SIM905
        for _, attributes in page.elements:
            for name in attributes:
                assert name in allowed or name.startswith("aria-"), name


def test_missed_goals_notes_and_a_system_without_counters() -> None:
    run = digests.demo(goals={"p50_ms": 1, "p99_ms": 2000})
    run |= {"counters": [], "notes": ["The run was cut short."], "failed": "the server died"}
    run["measured"]["duplicates_dropped"] = None
    text = Page(page_of(run)).text
    for said in (
        "✗ missed",
        "3 of 4 met",
        "Read this first",
        "The run was cut short",
        "The run failed: the server died",
        "does not report how many",
    ):
        assert said in text, said


def test_a_run_in_which_nothing_happened_says_so() -> None:
    run = digests.run(digests.facts("nothing"), [], notes=["Nothing was measured"], failed="no server")
    page = Page(report.page(digests.document(run), {"seconds": [], "machine": []}))
    assert page.count("svg") == 0
    for said in ("Nothing was delivered", "Nothing was measured", "0 of 4 met", "no server"):
        assert said in page.text


def test_it_begins_with_the_workload_and_says_how_to_repeat_the_run() -> None:
    page = Page(page_of(digests.demo(command="loadgen radio --url 'ws://h:9000/?token=…' --out x")))
    said = "The listeners of 40 invented radio stations report each change of song, and the broker sends one message"
    assert page.text.index(said) < page.text.index("p50 latency")
    assert "loadgen radio --url 'ws://h:9000/?token=…' --out x" in page.texts
    assert "Repeat it with" not in Page(page_of(digests.demo())).texts, "an older log does not know"


def test_the_verdict_stands_with_the_limit() -> None:
    run = digests.demo()
    run["phases"][2]["saturated"] = [{"part": "machine", "why": "the machine used 91 % of its 2 cores"}]
    page = Page(page_of(run))
    at = page.texts.index("Goals: 4 of 4 met, at its limit: machine")
    assert page.texts[at + 1] == (
        "The machine used 91 % of its 2 cores. So the system itself may do better than these figures say."
    )
    limited = digests.traffic("t", limits=digests.saturated("generator"))
    many = Page(page_of(limited, digests.traffic("u", system="nats")))
    assert "at its limit: generator" in many.texts
    assert "Traffic: 1 of 2 systems may do better, because something else was at its limit: generator (1)." in many.text
    own = Page(page_of(digests.traffic("t"))).text
    assert (
        "The limit was the system itself: neither the generator, nor a layer, nor the machine was at its limit." in own
    )


def test_the_steps_of_a_search_and_the_configuration_are_folded() -> None:
    text = page_of(digests.traffic("t", rate=16_000))
    assert re.sub("<details>.*?</details>", "", text, flags=re.DOTALL).count('<th scope="row">search-') == 0
    folds = re.findall("<details><summary>([^<]*)</summary>(.*?)</details>", text, flags=re.DOTALL)
    steps = {summary: fold.count('<th scope="row">search-') for summary, fold in folds}
    assert steps["The search: 6 steps"] == 6
    assert "Configuration: 12 settings" in steps


def test_without_a_measured_phase_the_last_phases_are_shown_and_said() -> None:
    run = digests.traffic("t", rate=200_000)
    for phase in run["phases"]:
        phase["measured"] = False
    text = Page(page_of(run)).text
    assert "No phase was measured, so these are the last 8 phases with a delivery." in text
    assert "half-21" in text


def machine_line(seconds: list[int]) -> list[tuple[float, float | None]]:
    """Return the line of a server's memory, of which there are samples in these seconds."""
    rows = [
        {"source": "a", "role": "server", "second": second, "cpu_cores": 0.5, "rss_bytes": 7.0, "net_rx_bytes_s": None}
        | {"net_tx_bytes_s": None}
        for second in seconds
    ]
    [memory] = [one for one in charts.over_time(digests.demo(), [], rows) if one.plot.title == "Memory over time"]
    [line] = memory.plot.series
    return list(line.points)


def test_a_line_breaks_only_where_samples_are_missing() -> None:
    late = machine_line([*range(10), 12, 15, *range(20, 25)])
    assert all(y == 7.0 for _, y in late), "samples that are 2, 3 and 5 s apart are late, not missing"
    missing = machine_line([*range(10), *range(16, 25)])
    assert [x for x, y in missing if y is None] == [10.0], "no sample for 6 s"
    rare = machine_line(list(range(0, 200, 10)))
    assert all(y == 7.0 for _, y in rare), "one sample each 10 s is no line of dots"
    binned = machine_line([*range(1_000), *range(1_100, 3_000)])
    assert [x for x, y in binned if y is None] == [1_000.0]
    assert len(binned) < charts.POINTS_MAX


@pytest.mark.parametrize(
    ("tick", "least"),
    [(charts.core_tick, -3), (charts.rate_tick, -3), (charts.size_tick, 2), (charts.duration_tick, 2)],
)
def test_each_tick_of_an_axis_has_its_own_text(tick: Callable[[float], str], least: int) -> None:
    for exponent in range(least, 10):
        for first in range(1, 100):
            texts = [text for _, text in linear(first / 10 * 10**exponent, tick)(5).ticks]
            assert len(set(texts)) == len(texts), texts


def test_a_long_run_is_drawn_in_bins_and_says_so() -> None:
    run = digests.demo()
    seconds = 4 * charts.POINTS_MAX
    for phase in run["phases"][2:]:
        phase["end_s"] = phase["end_s"] - 24 + seconds - 1
    text = page_of(run)
    assert "Each point covers 4 seconds: the largest of its values." in text
    assert "Each point covers 4 seconds: their mean." in text
    assert f"every {seconds // ROWS_MAX} seconds; the digest has every second" in text
    assert len(text) < 400_000


def test_a_run_of_traffic_shows_its_search_and_the_sustained_rate() -> None:
    page = Page(page_of(digests.traffic("t")))
    for said in (
        "At the greatest sustained rate, 4,000/s offered.",
        "offered",
        "breach: p99 160 ms above 50 ms; too late by half to be a stall",
        "Greatest sustained rate, with its latency, and latency at half that rate",
        "All systems have the same latency limit: p99 within 50.0 ms.",
        "Then and now: the thesis's traffic benchmark of 2014",
    ):
        assert said in page.text, said


# -- many runs


def test_verdicts_comparisons_and_method_come_before_the_runs(many: str) -> None:
    page = Page(many)
    order = ["What was found", "Goals: 1 of 13 missed, 1 of 13 ended early", "Traffic", "Topics", "The runs"]
    order.append("How it was measured")
    places = [page.texts.index(title) for title in order]
    assert places == sorted(places)
    for said in (
        "layer",
        "the busiest layer process used 97% of a core",
        "kafka, failed at 4,096: subscribe: timeout: no answer within 300 s",
        "× 142",
        "for every system the subscriber comes first",
        "between runs",
        "lost 3, not ≤ 0",
        "All goals met: 11 of 13",
    ):
        assert said in page.text, said


def test_topics_are_a_table_per_series_and_no_section_per_number(many: str) -> None:
    page = Page(many)
    sections = [attributes["id"] for tag, attributes in page.elements if tag == "section" and "id" in attributes]
    traffic_runs = [f"run-{index}" for index in range(10)]
    assert sections == ["traffic-0", "topics-0", *traffic_runs]
    for title in ("Time to subscribe to N topics", "Produce rate over N topics", "Consume rate over N topics"):
        assert page.texts.count(title) == 3, "a heading, the drawings, and what unfolds the table"


def test_every_system_is_a_line_and_a_failure_is_marked(many: str) -> None:
    svgs = re.findall(r"<svg.*?</svg>", many)
    [first] = [index for index, text in enumerate(svgs) if ">Produce rate over N topics<" in text]
    wide, narrow = svgs[first : first + 2]
    assert [text.count('class="cross ') for text in (wide, narrow)] == [1, 1]
    assert wide.count('class="line ') == 5
    holes = re.findall('class="hole" d="([^"]*)"', wide)
    assert [path.count("h0") for path in holes] == [9], "the generator was at its limit at 1 … 256 topics of one system"
    lines = re.search('<g id="([^"]*)"><path class="line ', wide)
    assert lines is not None
    assert f'<use href="#{lines[1]}"' in narrow


def test_the_tables_have_the_digests_figures(many: str) -> None:
    page = Page(many)
    (table,) = comparison.traffic(digests.compared())
    for row in table.rows:
        for key, text in (("in_per_s", figures.rate), ("p99_ns", figures.duration), ("server_cpu_us", figures.micros)):
            figure = row.figures[key]
            assert figure is not None
            assert text(figure.value) in page.texts, (row.name, key)


def test_a_page_of_a_hundred_runs_stays_readable() -> None:
    runs = [digests.traffic(f"t{number}", seed=number) for number in range(100)]
    text = page_of(*runs)
    assert len(text) < 5_000_000
    assert f"There is no section for {100 - DETAILED_MAX} more runs" in text


# -- a real browser

_LAYOUT = """(() => {
    for (const fold of document.querySelectorAll('details')) fold.open = true;
    const shown = [...document.querySelectorAll('svg text')].filter(t => t.getClientRects().length);
    const boxes = shown.map(t => [t.getBoundingClientRect(), t.ownerSVGElement.getBoundingClientRect()]);
    return {
        overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
        drawings: [...document.querySelectorAll('svg')].filter(s => s.getClientRects().length).length,
        small: boxes.filter(([text]) => text.height < 10).length,
        cut: boxes.filter(([text, svg]) => text.right > svg.right + 0.5 || text.left < svg.left - 0.5
            || text.bottom > svg.bottom + 1.5 || text.top < svg.top - 1.5).length,
        lost: [...document.querySelectorAll('svg')].filter(s => s.getClientRects().length)
            .flatMap(s => [...s.querySelectorAll('use')]).filter(u => u.getBoundingClientRect().width < 10).length,
        ink: getComputedStyle(document.body).color,
        wide: [...document.querySelectorAll('.scroll')].filter(
            s => s.getBoundingClientRect().right > document.documentElement.clientWidth).length,
    };
})()"""


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("dark", [False, True])
async def test_in_a_browser_at_desktop_and_phone_width(tmp_path: Path, many: str, width: int, dark: bool) -> None:
    """Every folded part is unfolded."""
    path = tmp_path / "report.html"
    path.write_text(many, encoding="utf-8")
    seen = await look(path, width, _LAYOUT, dark)
    assert seen.complaints == []
    assert [url for url in seen.requests if not url.startswith(("file:", "about:"))] == []
    assert seen.value == {
        "overflow": 0,
        # Four plots of topics, one curve of all systems; for each of ten runs a curve and five over time. Each once.
        "drawings": 5 + 10 * 6,
        "small": 0,
        "cut": 0,
        "lost": 0,
        "ink": "rgb(231, 234, 240)" if dark else "rgb(26, 31, 41)",
        "wide": 0,
    }


async def test_hostile_text_and_a_single_run_in_a_browser(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    for runs in ([digests.demo()], [digests.hostile(), *digests.hostile_compared()]):
        path.write_text(page_of(*runs), encoding="utf-8")
        seen = await look(path, 390, _LAYOUT)
        assert seen.complaints == []
        assert (seen.value["overflow"], seen.value["cut"], seen.value["wide"]) == (0, 0, 0)
