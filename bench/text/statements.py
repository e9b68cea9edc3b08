"""The texts of a comparison about its noise, how it was measured, and the results of the thesis in 2014.

Owns these texts and the figures of the thesis. The module returns plain texts and tables of text, which the page and
the Markdown summary share. It escapes nothing and computes no figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ingeborg.bench.comparison import (
    OWN_SYSTEM,
    TopicsSeries,
    TopicsTable,
    TrafficRow,
    TrafficTable,
    forms_of,
    main_phase,
    ratio,
)
from ingeborg.bench.digest.document import Json
from ingeborg.bench.text import figures
from ingeborg.bench.text.blocks import Cell, Table
from ingeborg.bench.text.tables import cell, ending, limit

LAYER = "dedup layer"
"""If the name of a variant contains this text, the deduplication layer of thesis 1.3.4 is in front of the system."""

NAMES_MAX = 12
"""Maximum number of versions, commits or settings to list. The sections of the runs have the rest."""


class Thesis(NamedTuple):
    """Results of the thesis for one system. Traffic (section 6.4) is in messages per second. ``topics`` is from section
    6.5."""

    system: str
    setup: str
    in_per_s: float | None
    all_per_s: float | None
    topics: str


THESIS = (
    Thesis("ingeborg", "Ingeborg, five small nodes with Riak", 200, 1840, "finished 2,097,152"),
    Thesis("rabbitmq", "RabbitMQ, a small node, duplicate check in Redis", 1000, 5259, "out of memory at 524,288"),
    Thesis("kafka", "Kafka", None, None, "out of file descriptors at 16,384"),
)
"""From sections 6.4.1 to 6.4.3 and 6.6 of the thesis, on virtual machines of 2014. The limits there were a p50 of 0.5 s
and a p99 of 2 s, and the topics benchmark ran on a single medium node."""

LATENCY = (
    "Latency is the time from the moment at which the schedule meant a message to be sent to the moment at which the "
    "receiver had it. So a stalled sender cannot hide a stall. Both times come from one clock on one machine. No "
    "sample is discarded, not even a zero, negative or late one."
)

COUNTING = (
    "Every message has a sequence number within its topic. Lost: a subscribed connection did not get the message. "
    "Twice: a connection got the message again. Reordered: a connection got the message after a later message of the "
    "same topic. Overtaken, if counted separately: a reordered message, if another connection had also published one "
    "of the two messages."
)

LIMITS = (
    "A figure is the limit of the system itself only if no other part was at its limit. The generator and the "
    "deduplication layer run on Python, where a process can use one core. The table names one of these two as the "
    "limit if its busiest process used at least 90 % of a core. It names the machine if at least 85 % of all cores "
    "were used. These rules apply to the measured phase and to the lowest step of the search that exceeded a limit. "
    "If another part was at its limit, the system itself may do better than the figure shows. The server's CPU time "
    "per delivered message can still be compared."
)

DUPLICATES = (
    "Some publishes repeat the payload of another connection within the time to live, as in the thesis (300 of 1,300). "
    "They count in the column “In”, but the system must not deliver them. This broker drops them itself. Where the "
    "table says “with dedup layer”, the deduplication layer of thesis 1.3.4 is in front of the system: publishers → a "
    "work queue → deduplicators → the system. The deduplicators share a Redis cache with a time to live, and each also "
    "has a local cache. If a system neither drops repetitions nor has the layer, the generator sends it none."
)

TOPICS_ORDER = (
    "The thesis publishes first and subscribes afterwards, to systems that store messages. This broker stores nothing "
    "here, so for every system the subscriber comes first. One client subscribes to all N topics. Another client "
    "publishes to these topics in turn at full speed, with at most {window} messages in flight."
)


def then_and_now_traffic(table: TrafficTable) -> Table:
    """Compare the thesis's traffic benchmark with this one."""
    header = ("2014", "In", "In all", "Now", "In", "In all", "Limited by")
    rows = []
    for thesis in THESIS:
        then = (
            [Cell(figures.rate(thesis.in_per_s)), Cell(figures.rate(thesis.all_per_s))]
            if thesis.in_per_s
            else [Cell("failed", mark="bad"), Cell(figures.NONE)]
        )
        row = _of_system(table.rows, thesis.system)
        if row is None:
            now = [Cell("not measured"), *[Cell(figures.NONE)] * 3]
        else:
            now = [
                Cell(row.name),
                *(cell(row.figures[key], figures.rate) for key in ("in_per_s", "all_per_s")),
                limit(row.limits)._replace(more=""),
            ]
        rows.append((Cell(thesis.setup), *then, *now))
    note = "The figures of 2014 were measured on several virtual machines, with p50 within 0.5 s and p99 within 2 s. "
    note += "Hardware and limits were different then, so the table shows history and does not compare systems."
    return Table("Then and now: the thesis's traffic benchmark of 2014", header, tuple(rows), note)


def then_and_now_topics(table: TopicsTable) -> Table:
    """Compare the thesis's topics benchmark with this one."""
    header = ("2014", "Came to", "Now", "Came to", "Subscribe time against ours, 2014", "Now")
    own = _of_system(table.series, THESIS[0].system)
    rows = []
    for thesis in THESIS:
        series = _of_system(table.series, thesis.system)
        now = (Cell("not measured"), Cell(figures.NONE)) if series is None else (Cell(series.name), _came_to(series))
        then = "about 20 times at many topics" if thesis.system == "rabbitmq" else figures.NONE
        rows.append(
            (Cell(thesis.setup.partition(",")[0]), Cell(thesis.topics), *now, Cell(then), _against(series, own))
        )
    note = "The figures of 2014 were measured on one virtual machine, and the thesis published before it subscribed. "
    note += "So the table shows history and does not compare systems."
    return Table("Then and now: the thesis's topics benchmark of 2014", header, tuple(rows), note)


def _of_system(rows: Iterable[Any], system: str) -> Any:
    """Return the system's row that is most similar to the set-up of the thesis. For RabbitMQ and Kafka this is a row
    with the deduplication layer. If there is no such row, as for our system, it is the first row."""
    of = [row for row in rows if row.system == system]
    return next((row for row in of if LAYER in row.variant), of[0] if of else None)


def _came_to(series: TopicsSeries) -> Cell:
    if series.failure is not None:
        return ending(series)
    return Cell(f"finished {figures.count(series.finished)}", mark="good")


def _against(series: TopicsSeries | None, own: TopicsSeries | None) -> Cell:
    if series is None or own is None or series is own:
        return Cell(figures.NONE)
    numbers = [{p.topics for p in each.points if p.figures["subscribe_s"] is not None} for each in (series, own)]
    at = max(numbers[0] & numbers[1], default=None)
    points = (series.at(at), own.at(at)) if at is not None else (None, None)
    if points[0] is None or points[1] is None:
        return Cell(figures.NONE)
    times = ratio(points[0].figures["subscribe_s"], points[1].figures["subscribe_s"])
    return Cell(figures.ratio(times), f"at {figures.count(at)}")


def noise(table: TrafficTable) -> Table:
    """Return how much the figures of each system vary, between its runs or within its only run."""
    header = ("System", "Runs", "Noise", "Out", "p99")
    return Table("Noise", header, tuple(_noise(row) for row in table.rows), _NOISE)


_NOISE = (
    "If a system has several runs, its figures are medians, and this table shows the lowest and the highest figures. "
    "If it has a single run, the table shows how much the seconds of the measured phase differ: the standard deviation "
    "of the deliveries per second, and the middle half of the p99 values. Ignore differences that are smaller than the "
    "noise."
)


def _noise(row: TrafficRow) -> tuple[Cell, ...]:
    name, runs = Cell(row.name), Cell(figures.count(len(row.runs)))
    if len(row.runs) > 1:
        return (
            name,
            runs,
            Cell("between runs"),
            _span(row, "out_per_s", figures.rate),
            _span(row, "p99_ns", figures.duration),
        )
    within = row.noise
    if within is None:
        return name, runs, Cell("unknown", "too short"), Cell(figures.NONE), Cell(figures.NONE)
    out, p99 = within["delivered_per_s"], within["p99_ns"]
    return (
        name,
        runs,
        Cell("within the run", f"{within['seconds']} seconds"),
        Cell(f"± {figures.share(out['cv'], 1)}" if out["cv"] is not None else figures.NONE),
        Cell(
            f"{figures.duration(p99['q1'])} … {figures.duration(p99['q3'])}" if p99["q1"] is not None else figures.NONE
        ),
    )


def _span(row: TrafficRow, key: str, text: Any) -> Cell:
    figure = row.figures[key]
    return Cell(figures.NONE) if figure is None else Cell(f"{text(figure.low)} … {text(figure.high)}")


def topics_noise(table: TopicsTable) -> str:
    """Return the noise of a topics benchmark, as a sentence."""
    most = max((len(point.runs) for series in table.series for point in series.points), default=1)
    if most > 1:
        return f"Noise: there are up to {most} runs for each number of topics, and the figures are their medians."
    return "Noise: there is one run for each number of topics. The jumps between neighbouring numbers show the noise."


def topics_order(table: TopicsTable) -> str:
    """Return the difference between this topics benchmark and the benchmark of the thesis."""
    window = table.load.get("window")
    return TOPICS_ORDER.format(
        window=figures.count(window) if isinstance(window, int | float) else "a limited number of"
    )


_UNITS = {"_s": " s", "_ms": " ms"}


def load_text(load: Mapping[str, Any]) -> str:
    """Return the settings that have a value, such as `connections 20, topics 1,000, repeat within 1 s …`."""
    parts = []
    for name, value in load.items():
        if value is None:
            continue
        shown = figures.plain(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
        suffix = next((suffix for suffix in _UNITS if name.endswith(suffix)), "")
        parts.append(f"{name.removesuffix(suffix).replace('_', ' ')} {shown}{_UNITS.get(suffix, '')}")
    return ", ".join(parts)


def latency_limit(run: Json) -> str:
    """Return the latency limit of the run's sustained rate, such as `p99 within 50.0 ms`."""
    limit_ms = run["facts"]["goals"].get("p99_ms")
    return "no latency limit" if limit_ms is None else f"p99 within {figures.goal('p99_ms', limit_ms)}"


def method(runs: Sequence[Json]) -> list[tuple[str, str]]:
    """Return how the runs were measured, as pairs (heading, text)."""
    facts = [run["facts"] for run in runs]
    workloads = sorted({str(fact["workload"]) for fact in facts})
    said = [
        ("Machine", joined(machine_text(fact) for fact in facts)),
        ("Commit", joined(str(fact["commit"]) for fact in facts if fact.get("commit")) or "unknown"),
        ("Form of the code", forms_text(runs)),
        ("Software", joined(f"{name} {version}" for fact in facts for name, version in _mapping(fact, "software"))),
        ("Workloads", ", ".join(workloads)),
        ("Seeds", joined(str(fact.get("seed", figures.NONE)) for fact in facts)),
    ]
    return [(heading, text) for heading, text in said if text] + rules(runs)


def rules(runs: Sequence[Json]) -> list[tuple[str, str]]:
    """Return the rules of the measurement, as pairs (heading, text)."""
    said = [("Latency", LATENCY + _percentiles(runs)), ("Counts", COUNTING), ("Limits", LIMITS)]
    is_traffic = any(run["facts"]["workload"] == "traffic" for run in runs)
    return [*said, ("Duplicates", DUPLICATES)] if is_traffic else said


def notes(run: Json) -> list[str]:
    """Return the notes that a reader must know before relying on a run's figures. If the run failed, the first note
    says why."""
    return [*([f"The run failed: {run['failed']}"] if run["failed"] else []), *run["notes"]]


def warnings(runs: Sequence[Json]) -> list[str]:
    """Return warnings about differences that make a comparison of these runs unreliable."""
    facts = [run["facts"] for run in runs]
    found = []
    for what, texts in (
        ("machines", {machine_text(fact) for fact in facts}),
        ("commits", {str(fact["commit"]) for fact in facts if fact.get("commit")}),
        ("forms of the generator", {form for fact in facts for form in forms_of(fact, "generator")}),
        ("forms of the endpoints", {form for fact in facts for form in forms_of(fact, "endpoints")}),
    ):
        if len(texts) > 1:
            found.append(f"The runs have {len(texts)} different {what}, so their figures cannot be compared directly.")
    return found


def _percentiles(runs: Sequence[Json]) -> str:
    errors = [run["percentile_error"] for run in runs if run.get("percentile_error")]
    exact = " Percentiles are exact (nearest rank) and cover every delivery"
    if not errors:
        return exact + "."
    exact += f", except in {figures.counted(len(errors), 'large run')}. There a sketch estimates them"
    return f"{exact}, with an error of at most {max(errors):.4%} of all ranks."


def _mapping(fact: Mapping[str, Any], name: str) -> Iterable[tuple[str, Any]]:
    value = fact.get(name)
    return value.items() if isinstance(value, dict) else ()


def joined(texts: Iterable[str], between: str = "; ") -> str:
    """Join the distinct texts, up to a limit of `NAMES_MAX`."""
    distinct = list(dict.fromkeys(texts))
    more = f"{between}and {len(distinct) - NAMES_MAX} more" if len(distinct) > NAMES_MAX else ""
    return between.join(distinct[:NAMES_MAX]) + more


def machine_text(facts: Mapping[str, Any]) -> str:
    """Return a text such as `2 cores, 16.0 GB memory, A processor, Linux 6.1`, with the facts that run.json has."""
    machine = facts.get("machine")
    if not isinstance(machine, dict):
        return "machine unknown"
    memory = machine.get("memory_bytes")
    texts = [
        f"{machine['cores']} cores" if machine.get("cores") else "",
        f"{figures.size(memory)} memory" if isinstance(memory, int | float) else "",
        str(machine.get("cpu") or ""),
        str(machine.get("kernel") or ""),
    ]
    return ", ".join(text for text in texts if text) or "machine unknown"


def form_text(facts: Mapping[str, Any]) -> str:
    """Return a text such as `generator interpreted, endpoints compiled`. If endpoints differ, the text has the form of
    each endpoint. For a system that is not ours, the text has only the form of the generator."""
    generator, endpoints = forms_of(facts, "generator"), forms_of(facts, "endpoints")
    if not generator and not endpoints:
        return "unknown"
    said = [f"generator {', '.join(generator) or 'unknown'}"]
    if len(endpoints) == 1:
        said += [f"endpoints {form}" for form in endpoints]
    elif endpoints:
        said += [f"{joined(names, ', ')} {form}" for form, names in endpoints.items()]
    elif facts.get("system") == OWN_SYSTEM:
        said.append("endpoints unknown")
    return ", ".join(said)


def forms_text(runs: Sequence[Json]) -> str:
    """Return the forms of all runs. The text of a rival's run is left out if the generator of one of our runs had the
    same form."""
    texts = {form_text(run["facts"]): None for run in runs}
    return joined(text for text in texts if not any(other.startswith(f"{text}, ") for other in texts))


def traffic_phase_text(run: Json) -> str:
    """Return a description of the phase that a traffic run's cards show, such as `at the greatest sustained rate,
    4,210/s offered`."""
    phase = main_phase(run)
    if phase is None:
        return "no rate was sustained"
    what = "at the greatest sustained rate" if phase["kind"] == "sustained" else "at a fixed rate"
    return f"{what}, {figures.rate(phase['offered_per_s'])} offered" if phase["offered_per_s"] else what
