"""The page of a soak. It shows the result first, then the account of all messages, then figures over time.

Owns: the content of the page and its order. Must never: compute a figure that the document does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ingeborg.bench.report import html
from ingeborg.bench.report.charts import duration_tick, rate_tick, size_tick
from ingeborg.bench.report.plots import Plot, Point, Scale, Series, linear, logarithmic, seconds_axis
from ingeborg.bench.text import figures
from ingeborg.bench.text.blocks import (
    Block,
    Bullets,
    Card,
    Cards,
    Cell,
    Facts,
    Figure,
    Fold,
    Notice,
    Panel,
    Report,
    Stack,
    Text,
    table,
)

Json = Mapping[str, Any]

#: Maximum number of rows in the folded table of lives. A soak of a day has thousands of lives.
LIVES_MAX = 200


def page(made: Json) -> str:
    """Return the whole page for the document ``made``, which ``summary`` returns."""
    settings = made["settings"]
    parts: list[Block] = [
        *_verdict(made),
        _cards(made),
        *_account(made),
        *_over_time(made),
        _memory(made),
        _counters(made),
        *_rate(made),
        _facts(made),
    ]
    text = (
        f"{settings['clients']:,} clients at {settings['endpoints']} endpoints for {figures.seconds(made['soak_s'])}: "
        f"{made['slow']:,} of the clients read slowly, {settings['moving_share_per_s']:.0%} move each "
        f"second, and an endpoint is killed every {settings['kill_every_s']:g} s"
    )
    closing = (
        "Generator and endpoints share one machine, so rates and latencies depend on all of them together. The record "
        "in the same folder makes this page again:"
    )
    command = "`python -m ingeborg.bench.soak --again FOLDER`"
    return html.page(Report("Soak", "Soak report", [text], parts, closing=[f"{closing} {command}."]))


def _verdict(made: Json) -> list[Block]:
    if not made["faults"]:
        return []
    examples = made["account"]["examples"]
    more = [Fold("Examples", [Bullets(examples)])] if examples else []
    return [Notice("It did not pass", [Bullets(made["faults"]), *more])]


def _cards(made: Json) -> Cards:
    account, latency = made["account"], made["latency"]
    unaccounted = sum(account["unaccounted"].values())
    mark = Cell("✗ see above", mark="bad") if unaccounted else Cell("✓ all accounted for", mark="good")
    spared = next((life for life in made["memory"] if life["endpoint"] == 0), None)
    slope = None if spared is None else spared["slope_bytes_per_h"]
    allowed = figures.size(made["settings"]["growth_bytes"])
    grown = "too short to tell" if slope is None else f"grew {_signed(spared['grown_bytes'])}; {allowed} allowed"  # type: ignore[index]
    if not made["memory_judged"]:
        grown += "; the soak was too short to judge it"
    greatest = made["greatest_per_s"]
    of = f"greatest rate: {figures.rate(greatest)}" if greatest else "set by --rate"
    latencies = f"p50 {_ms(latency['p50_ms'])}, max {_ms(latency['max_ms'])}"
    return Cards(
        [
            Card("Unaccounted", figures.count(unaccounted), mark),
            Card("Published", figures.rate(made["rate_per_s"]), Cell(of)),
            Card("Delivered", figures.count(account["deliveries"]), Cell(f"of {figures.count(account['due'])} due")),
            Card("p99 latency", _ms(latency["p99_ms"]), Cell(latencies)),
            Card("Endpoints killed", figures.count(len(made["kills"])), Cell(_down(made["kills"]))),
            Card(
                "Memory, slope",
                f"{_signed(slope)}/h" if slope is not None else figures.NONE,
                Cell(f"endpoint 0 {grown}"),
            ),
        ]
    )


def _ms(value_ms: float | None) -> str:
    return figures.NONE if value_ms is None else figures.duration(value_ms * 1e6)


def _signed(value_bytes: float | None) -> str:
    return (
        figures.NONE if value_bytes is None else f"{'+' if value_bytes >= 0 else '−'}{figures.size(abs(value_bytes))}"
    )


def _down(kills: Sequence[Json]) -> str:
    away = [(kill["ready_us"] - kill["killed_us"]) / 1e6 for kill in kills if kill["ready_us"] >= 0]
    return f"kill -9; the longest absence was {max(away):.1f} s" if away else "kill -9"


def _account(made: Json) -> list[Block]:
    account = made["account"]
    due = account["due"]
    rows: list[list[str | Cell]] = [["due: a message to a client that subscribed", figures.count(due), ""]]
    rows.append(["delivered once", figures.count(account["once"]), figures.share(account["once"], due)])
    for kind, words in (("twice", "delivered twice"), ("lost", "lost")):
        rows += [
            [f"{words}: {why}", figures.count(count), figures.share(count, due)]
            for why, count in sorted(account[kind].items(), key=lambda item: -item[1])
        ]
    unaccounted = account["unaccounted"]
    rows += [[f"unaccounted: {why}", Cell(figures.count(count), mark="bad"), ""] for why, count in unaccounted.items()]
    if not unaccounted:
        rows.append(["unaccounted", Cell("0", mark="good"), ""])
    publishes = [
        [_OUTCOMES.get(outcome, f"answered with {outcome}"), figures.count(count)]
        for outcome, count in sorted(account["publishes"].items(), key=lambda item: -item[1])
    ]
    publishes.append(["repetitions dropped as duplicates", figures.count(account["repeated_dropped"])])
    publishes.append(["not sent because too many were unanswered", figures.count(made["withheld"])])
    ends = [[_ENDS[how], figures.count(count)] for how, count in account["ends"].items()]
    text = (
        "Each message is due once to every client that subscribed to its topic. The protocol permits losses and "
        "repetitions for the listed reasons (SPEC sections 7 and 8). Any other loss or repetition is unaccounted."
    )
    return [
        Panel("Every message", [Text(text), table("", ["Result", "Messages", "Share"], rows)]),
        Panel(
            "Publishes, and connections that ended",
            [table("", ["Publishes", "Count"], publishes), table("", ["Connections", "Count"], ends)],
        ),
    ]


_OUTCOMES = {
    "new": "acknowledged",
    "duplicate": "acknowledged as a duplicate",
    "connection_lost": "not answered, because the endpoint was killed",
    "unanswered": "not answered, although the endpoint was alive",
}
_ENDS = {
    "moved": "the client moved",
    "end": "still open at the end",
    "killed": "its endpoint was killed",
    "slow": "closed or cut by the endpoint, because the client was slow",
}


def _over_time(made: Json) -> list[Block]:
    seconds = made["seconds"]
    end_s = made["phases"]["end_us"] / 1e6
    axis = seconds_axis(0, end_s)
    bands = [
        (
            kill["killed_us"] / 1e6,
            (kill["ready_us"] if kill["ready_us"] >= 0 else made["phases"]["end_us"]) / 1e6,
            str(kill["endpoint"]),
        )
        for kill in made["kills"]
    ]

    def drawn(title: str, series: list[Series], y: Callable[[int], Scale], said: str) -> Plot:
        return Plot(title=title, description=said, series=series, x=axis, y=y, bands=bands)

    def points(key: str) -> list[Point]:
        return [(row["at_s"], row[key]) for row in seconds]

    rates = [Series("published", points("published_per_s"), 0), Series("delivered", points("delivered_per_s"), 1)]
    peak = max((y for line in rates for _, y in line.points if y is not None), default=1.0)
    latencies = [
        Series(name, [(x, y * 1e6 if y is not None else None) for x, y in points(key)], colour)
        for colour, (name, key) in enumerate((("p50", "p50_ms"), ("p99", "p99_ms"), ("most", "max_ms")))
    ]
    values = [y for line in latencies for _, y in line.points if y is not None]
    memory = _memory_lines(made["samples"])
    most = max((y for line in memory for _, y in line.points if y is not None), default=1.0)
    plots = [
        drawn("Rates", rates, linear(peak, rate_tick), f"At most {figures.rate(peak)}."),
        drawn("Latency", latencies, logarithmic(values, duration_tick), f"p99 {_ms(made['latency']['p99_ms'])}."),
    ]
    caption = (
        "Shaded: the time between the kill of an endpoint (its number is above) and its return. Latency runs from the "
        "time at which a publish was due until a client that is not slow received it; it is shown at the due time, on "
        "a log scale. The plots begin with the search for the rate, continue with the soak, and end with the wait for "
        "the last messages."
    )
    return [
        Stack("Over time", plots, "time", caption),
        Figure(
            drawn("Memory of each process", memory, linear(most, size_tick), f"At most {figures.size(most)}."),
            "memory",
            "Anonymous memory. A gap in a line shows a kill. Endpoint 0 is never killed, so that one process runs "
            "throughout. The generator holds the messages that it has not written yet.",
        ),
    ]


def _memory_lines(samples: Sequence[Json]) -> list[Series]:
    """Return a line for each process, with a gap between two lives."""
    found: dict[int, list[Point]] = {}
    last: dict[int, int] = {}
    for sample in sorted(samples, key=lambda sample: sample["at_s"]):
        line = found.setdefault(sample["endpoint"], [])
        if line and last[sample["endpoint"]] != sample["life"]:
            line.append((sample["at_s"], None))
        last[sample["endpoint"]] = sample["life"]
        line.append((sample["at_s"], sample["anon_bytes"]))
    order = [number for number in sorted(found) if number >= 0]
    lines_of = [Series(f"endpoint {number}", found[number], number) for number in order]
    if -1 in found:
        lines_of.append(Series("generator", found[-1], 7, dashed=True))
    return lines_of


def _memory(made: Json) -> Panel:
    rows = [
        [
            "generator" if life["endpoint"] < 0 else f"endpoint {life['endpoint']}, life {life['life']}",
            f"{life['from_s']:.0f}–{life['to_s']:.0f} s",
            figures.size(life["first_bytes"]),
            figures.size(life["peak_bytes"]),
            figures.size(life["last_bytes"]),
            figures.NONE if life["slope_bytes_per_h"] is None else f"{_signed(life['slope_bytes_per_h'])}/h",
            _signed(life["grown_bytes"]),
        ]
        for life in made["memory"]
    ]
    header = ["Process", "Lived", "First", "Peak", "Last", "Slope", "Growth"]
    spared = [row for row in rows if row[0].startswith("endpoint 0") or row[0] == "generator"]
    text = (
        "The slope is that of a line fitted to the samples after the warm-up, one sample per second. The lives of "
        "killed endpoints are short, so their slopes show how memory fills and not whether it leaks."
    )
    every = Fold(f"All {len(rows)} lives", [table("", header, rows[:LIVES_MAX])])
    return Panel("Growth of memory", [Text(text), table("The processes that were never killed", header, spared), every])


def _counters(made: Json) -> Panel:
    counters = made["counters"]
    rows = [[f"dropped: {reason}", figures.count(count)] for reason, count in sorted(counters["drops"].items())]
    rows += [[f"error: {code}", figures.count(count)] for code, count in sorted(counters["errors"].items())]
    rows += [[name.replace("_", " "), figures.count(count)] for name, count in sorted(counters["others"].items())]
    text = (
        "Totals over all lives of the endpoints. For a life that ended with a kill, the values are those read just "
        "before the kill."
    )
    every = Fold(f"{len(rows)} counters", [table("", ["Counter", "In all"], rows)])
    return Panel("The endpoints' counters", [Text(text), every])


def _rate(made: Json) -> list[Block]:
    if not made["steps"]:
        return []
    rows = [
        [
            figures.rate(step["rate"]),
            figures.rate(step["sent_per_s"]),
            _ms(step["p99_ms"]),
            figures.count(step["unanswered"]),
            Cell("sustained", mark="good") if step["sustained"] else "not sustained",
        ]
        for step in made["steps"]
    ]
    text = (
        f"A rate is sustained if the generator sends at the offered rate, p99 is within "
        f"{made['settings']['p99_ms']:g} ms, and at most half a second's publishes are unanswered at the end. During "
        "the search there are slow and moving clients, but no kills."
    )
    steps = table("Steps of the search", ["Offered", "Sent", "p99", "Unanswered", "Result"], rows)
    return [Panel("The greatest rate", [Text(text), steps])]


def _facts(made: Json) -> Panel:
    cores = made["cpu_cores"]
    rows = [("processor of the generator", figures.percent_of_core(cores.get("-1")))]
    rows += [
        (f"processor of endpoint {number}", figures.percent_of_core(used))
        for number, used in cores.items()
        if number != "-1"
    ]
    rows += [
        (name.removesuffix("_bytes").replace("_", " "), figures.size(value) if name.endswith("_bytes") else str(value))
        for name, value in {**made["machine"], **made["settings"]}.items()
    ]
    return Panel("The run", [Facts("Facts of the run", rows)])
