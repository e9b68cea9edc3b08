"""The report of `bench caching`: the document's sentences with verdicts, its seven experiments, and our policy.

Owns: the words and tables. Must never: compute a figure that the digest does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, Final

from ingeborg.bench.caching import claims, conclusions, goals, plots
from ingeborg.bench.caching.cases import GONE, GONE_AWAY_S, HOUR_S, PLAYS, POPULAR, SHARES, SIZES, SWEPT, UNEVEN
from ingeborg.bench.caching.found import FETCHED, MISSED, PLACES, ROOMS, Found, Rate, Setup, Stream
from ingeborg.bench.caching.judging import ms, points, room
from ingeborg.bench.caching.live.cases import LATENCY, POLLING, STRATEGIES, SUBSCRIBERS, THROUGHPUT
from ingeborg.bench.caching.live.parts import PARTS
from ingeborg.bench.caching.policies.named import BELADY, NOVEL, OURS, OWED, PLAIN
from ingeborg.bench.caching.reads import AWAY_S, WISHES
from ingeborg.bench.caching.work import BOUND, CEILING
from ingeborg.bench.experiments.experiment import Digest
from ingeborg.bench.experiments.figures import with_interval
from ingeborg.bench.text.blocks import (
    Block,
    Bullets,
    Cell,
    Facts,
    Fold,
    Panel,
    Report,
    Section,
    Table,
    Text,
    judged,
    table,
)

Json = Mapping[str, Any]

ORDER: Final = (*PLAIN, *NOVEL, *OURS, BELADY, CEILING, BOUND)
"""Policies in the tables of streams. The online policies come first."""

NONE: Final = "–"
PLUS: Final = "+: missed records ask for admission again."

LEAD: Final = (
    "Mason Nienaber, Radhit Dedania and Tarun Sai Ganesh Nerella, “Effect of Caching in a Content-Based Pub/Sub "
    "System using Kafka” (undated slides, University of California, Irvine), put a cache into a broker behind Kafka, "
    "with five strategies of admission. This report repeats their seven experiments. It also has the usual policies "
    "of cache comparisons, and this project's policy `owed`, which keeps the records that the most subscribers have "
    "not received yet, relative to their size.",
    "Restaurants publish offers of 24 kinds, and each of 1,000 subscribers wants one kind, by Zipf's law. A read is "
    "one subscriber's fetch of one record, and a hit is a read that memory answers. ± is half the width of the 95 % "
    "confidence interval over the seeds.",
)

NOTE: Final = (
    "The document prints charts without numbers. It does not say how much memory there is, where each record is "
    "written, what happens to a missed record, or how subscribers fetch. So we judge each sentence for each "
    "interpretation. A sentence about all numbers of records holds if it holds for each number. A difference in hit "
    "rate or duplication counts if its interval, computed seed by seed, does not contain 0. A difference in throughput "
    "or latency counts if the intervals of several runs do not overlap. A difference in latency must also come from "
    "the database."
)


def report(digest: Digest) -> Report:
    """Return the report for the digest of `job.digest`."""
    found = Found(digest.pure, digest.measured)
    sections = [
        Section(
            "The claims of the document, and our results",
            [
                *judged("The document's sentences", claims.judged(found), NOTE),
                Panel("Sentences without a verdict", [Bullets(claims.NOT_JUDGED)]),
                *judged("Our own sentences, judged by the same figures", conclusions.judged(found)),
            ],
        ),
        Section("Experiment 1: cache hit rate", plots.hits(found)),
        Section("Experiment 2: duplication factor", [*plots.copies(found), *_document(found)]),
        Section(
            "Experiment 3: end-to-end latency",
            [*plots.latency(found), *_over_records(found, LATENCY), *_made_of(found)],
        ),
        Section("Experiment 4: throughput", [*plots.throughput(found), *_over_records(found, THROUGHPUT)]),
        Section("Experiments 5 to 7: parameters", [*plots.parameters(found), *_latencies(found)]),
        Section(
            "Beyond the document",
            [
                *_goals(found),
                *_capacities(found),
                *_bounded(found),
                *(block for share in SHARES for block in _streams(found, share)),
                *_told(found),
                *_others(found),
                *_swept(found),
                *_requests(found),
            ],
        ),
        Section("How it was measured", _method(found)),
    ]
    return Report(
        "Which records to keep in memory",
        "Evaluation",
        LEAD,
        [section for section in sections if section.blocks],
        "make caching LOG=now-playing.csv.gz",
        ["docs/caching.md explains each figure."],
    )


def _panel(title: str, blocks: Sequence[Table | Fold], *texts: str) -> list[Block]:
    """Return a panel, or nothing if no table has rows."""
    kept = [one for one in blocks if isinstance(one, Fold) or one.rows]
    return [Panel(title, [*kept, *map(Text, texts)])] if kept else []


def _value(row: Json | None, what: str, text: Callable[[float], str]) -> str:
    """Format a mean with its interval."""
    values: Rate | None = None if row is None else row.get(what)
    if values is None:
        return NONE
    return with_interval(values, text)


def _rate(row: Json | None) -> str:
    return _value(row, "by_read", "{:.3f}".format)


def _percent(row: Json | None) -> Cell:
    text = _value(row, "by_read", lambda value: f"{100 * value:.1f}")
    return Cell(text, sign="+" if row is not None and row.get("reads_in") else "")


def _ahead(row: Json | None) -> str:
    """Format the lead of `owed`, and the name of the policy with which it is compared."""
    return NONE if row is None else f"{points(row['by_read'])} ({row['other']})"


# The document's experiments


def _document(found: Found) -> list[Block]:
    figures = (
        ("by_read", "hit rate by read", "{:.3f}"),
        ("by_record", "hit rate by record", "{:.3f}"),
        ("duplication", "duplication factor", "{:.1f}"),
        ("copies_per_record", "copies per record", "{:.1f}"),
        ("cached_share", "share of records that were admitted", "{:.3f}"),
        ("written_share", "share of records in the database, if a record goes to memory or to the database", "{:.3f}"),
    )
    tables: list[Block] = []
    for share, again in ((None, False), *product(ROOMS[1:], MISSED)):
        for what, title, form in figures:
            rows = []
            for name in STRATEGIES:
                each = [found.document(number, name, share, again=again) for number in found.records]
                rows.append([name, *(_value(row, what, form.format) for row in each)])
            if any(cell != NONE for row in rows for cell in row[1:]):
                reading = "" if share is None else f", {MISSED[again]}"
                header = ("", *(f"{number:,}" for number in found.records))
                tables.append(table(f"{title}, {room(share)}{reading}", header, rows))
    return [Fold("Experiments 1 and 2 as numbers, over the number of records", tables)] if tables else []


def _over_records(found: Found, kind: str) -> list[Block]:
    """Return the figures of real processes with unlimited memory, by the number of records, for each set-up."""
    tables: list[Block] = []
    for setup in found.setups(kind):
        records = found.measured_records(kind, setup)
        rows = []
        what, text = ("latency_ms", ms) if kind == LATENCY else ("records_per_s", "{:,.0f}".format)
        for name in STRATEGIES:
            each = [found.measured(kind, number, name, None, setup) for number in records]
            rows.append([name, *(_value(row, what, text) for row in each)])
        title = f"{'mean latency' if kind == LATENCY else 'records/s'}, {setup}"
        tables.append(table(title, ("", *(f"{number:,}" for number in records)), rows))
    return [Fold("As numbers, over the number of records", tables)] if tables else []


def _made_of(found: Found) -> list[Block]:
    tables = []
    for setup in found.setups(LATENCY):
        records = found.measured_records(LATENCY, setup)[-1]
        each = {name: found.measured(LATENCY, records, name, None, setup) for name in STRATEGIES}
        rows = {name: row for name, row in each.items() if row is not None}
        lines = [[part, *(ms(row.get(f"{part}_ms")) for row in rows.values())] for part in PARTS]
        lines.append(["in all", *(ms(row["latency_ms"][0]) for row in rows.values())])
        lines.append(["p99", *(ms(row.get("p99_ms")) for row in rows.values())])
        lines.append(["hits", *(f"{row['hit_rate']:.0%}" for row in rows.values())])
        tables.append(table(f"{setup}, {records:,} records", ("", *rows), lines))
    # A page with all set-ups unfolded would be too long.
    folded = [Fold("The other set-ups", tables[1:])] if tables[1:] else []
    return _panel(
        "The parts of a latency",
        [*tables[:1], *folded],
        "The figures are means over all deliveries, and the parts add up to the latency. Sending: from the intended "
        "time of a record until the broker has it, through Kafka if Kafka is in front. Matching: until the broker "
        "knows the record's subscribers. Writing: until the record is safe in the database or, if it is not written, "
        "until its turn comes. Waiting: until the subscriber polls. Memory: the search in memory. Database: reading "
        "the records that were not in memory. Delivery: until the subscriber has the answer.",
    )


def _latencies(found: Found) -> list[Block]:
    rows = []
    for strategy, fetches in product(NOVEL, FETCHED):
        swept = found.measured_sweep(strategy, fetches)
        for name in sorted(swept, key=lambda name: [float(value) for value in name.split()]):
            row = swept[name]
            cells = [f"{row['hit_rate']:.3f}", ms(row["latency_ms"][0]), ms(row["database_ms"])]
            rows.append([f"{strategy} {name}, {FETCHED[fetches]}", *cells])
    header = ("", "hit rate", "mean latency", "the database's part")
    note = (
        "The parameters are λ μ of threshold, the batch of mean, and γ α of buffer. One run each, on LMDB, with "
        "unlimited memory."
    )
    return [Fold("Latencies over the parameters", [table("", header, rows, note)])] if rows else []


# Beyond the document


def _goals(found: Found) -> list[Block]:
    rows: list[list[str | Cell]] = []
    for goal in goals.goals(found):
        for index, (reading, text, met) in enumerate(goal.found):
            verdict = Cell("") if met is None else Cell("met", mark="good") if met else Cell("missed", mark="bad")
            rows.append([goal.text if not index else "", reading, "" if index else goal.limit, text, verdict])
    return _panel(
        "owed and its goal, and the policies and their bounds",
        [table("", ("", "stream, memory", "goal", "found", ""), rows)],
        "The figures are hit rates by read. The mean over the seeds decides whether a goal is met. If its interval "
        "reaches below the goal, the seeds are too few to be certain. `owed` uses only its knowledge of which "
        "subscribers have received a record. The other policies are as their authors published them. Each runs in its "
        "better way, with or without admitting missed records again. Belady's rule needs to know the future. PFOO is "
        "an upper bound for records of different sizes (Berger et al., SIGMETRICS 2018). libcachesim counts the same "
        "requests with its own code. Its W-TinyLFU has a less exact sketch, so for this check our W-TinyLFU has half "
        "its counters. In all other figures it has all its counters, which increases its hit rate by up to a point.",
    )


def _capacities(found: Found) -> list[Block]:
    """Return the hit rates with each capacity, for each interpretation of bounded memory."""
    if not found.records:
        return []
    rows = [["unbounded", *(_rate(found.document(found.most, name)) for name in STRATEGIES)]]
    for again, reading in MISSED.items():
        for share in found.capacities(again=again):
            rates = [_rate(found.document(found.most, name, share, again=again)) for name in STRATEGIES]
            rows.append([f"{room(share)}, {reading}", *rates])
    even = [_rate(found.document(found.most, name, exponent=0.0)) for name in STRATEGIES]
    if any(text != NONE for text in even):
        rows.append(["unbounded, no skew", *even])
    return _panel(
        f"Hit rate by read for each capacity, {found.most:,} records",
        [table("", ("memory", *STRATEGIES), rows)],
        "Without skew, all kinds are equally popular, apart from chance. With memory for all records, our policy keeps "
        "all records.",
    )


def _bounded(found: Found) -> list[Block]:
    """Show the latencies of subscribers that poll twice a second, with each capacity."""
    setup = Setup("LMDB", fetches=POLLING)
    records = found.measured_records(LATENCY, setup)
    rows = []
    for share in ROOMS if records else ():
        cells = [found.measured(LATENCY, records[-1], name, share, setup) for name in STRATEGIES]
        texts = [NONE if row is None else f"{ms(row['latency_ms'][0])}, {row['hit_rate']:.0%}" for row in cells]
        rows.append([room(share), *texts])
    caption = f"{setup}: mean latency and hits, {records[-1]:,} records" if records else ""
    return _panel(
        "Latency with bounded memory",
        [table(caption, ("memory", *STRATEGIES), rows)],
        f"In these runs, {MISSED[False]}. Without a cache, there is only one capacity.",
    )


def _requests(found: Found) -> list[Block]:
    def cell(row: Json | None) -> str:
        if row is None:
            return NONE
        theirs = row["libcachesim"]
        return f"{100 * row['rate'][0]:.1f}" + (f" ({100 * theirs[0]:.1f})" if theirs else "")

    exponents = sorted(found.exponents, key=lambda exponent: (not exponent, exponent))
    tables = []
    for share in SHARES:
        rows = []
        for exponent in exponents:
            cells = [cell(found.requests(exponent, share, name)) for name in (*PLAIN, BELADY)]
            rows.append([f"zipf {exponent:g}" if exponent else PLAYS, *cells])
        tables.append(table(f"Room for {share:.0%} of all items", ("", *PLAIN, BELADY), rows))
    return _panel(
        "Plain requests: share of hits, in per cent",
        tables,
        "All items have one size, and a missing item requests admission. There are no subscribers, so `owed` cannot "
        "decide anything. The requests follow Zipf's law with the given exponent, or are the songs of a now-playing "
        "log. The figures in brackets are libcachesim's for the same requests.",
    )


def _table(found: Found, streams: Sequence[Stream], of: Callable[[Stream], str]) -> Table:
    names = [name for name in ORDER if any(found.reads(stream, name) for stream in streams)]
    rows: list[list[str | Cell]] = [
        [name, *(_percent(found.reads(stream, name)) for stream in streams)] for name in names
    ]
    if rows:
        rows.append([f"{OWED} ahead by", *(_ahead(found.ahead(stream)) for stream in streams)])
    return table("", ("", *map(of, streams)), rows, PLUS)


def _streams(found: Found, share: float) -> list[Block]:
    return _panel(
        f"Records and reads, memory for {share:.0%} of all bytes: hits by read, in per cent",
        [_table(found, found.compared(share), lambda stream: stream.stream)],
        "2,000 subscribers come back four times a day, on average, and read the records that they have missed. The "
        "stream plays has a record for each row of a now-playing log, and zipf has 60,000 records to 10,000 topics. "
        f"{CEILING} is the largest average number of hits of a policy that does not know which subscriber comes back "
        f"first. {BOUND} is a number of hits that no policy can exceed.",
    )


def _told(found: Found) -> list[Block]:
    rows: list[list[str | Cell]] = []
    for share in SHARES:
        for stream in found.compared(share):
            ahead = found.ahead(stream, knows=True)
            if ahead is not None:
                best = _percent(found.reads(stream, ahead["other"], knows=True))
                rows.append([f"{stream.stream}, {share:.0%}", best, _ahead(ahead)])
    return _panel(
        "If the other policies knew as much",
        [table("", ("", "best other policy", f"{OWED} ahead by"), rows, PLUS)],
        "Here every policy drops a record as soon as all its subscribers have received it, and readmits a record only "
        "if some subscriber has not received it. The difference from the table above is the part of owed's lead that "
        "comes from this knowledge. The rest of the lead comes from the order of eviction. There are fewer seeds than "
        "above. Each lead compares the same seeds.",
    )


def _others(found: Found) -> list[Block]:
    streams = [Stream(name, AWAY_S, WISHES, share) for name in (POPULAR, UNEVEN, SIZES) for share in SHARES]
    streams += [Stream(GONE, GONE_AWAY_S, WISHES, share) for share in SHARES]
    kept = [stream for stream in streams if stream in found.streams]
    # There are two tables, because a single table would be wider than a page.
    halves = [[stream for stream in kept if stream.share == share] for share in SHARES]
    tables = [_table(found, half, lambda one: f"{one.stream}, {one.share:.0%}") for half in halves]
    return _panel(
        "Streams on which owed could do worse: hits by read, in per cent",
        tables,
        "popular: more subscribers wish for songs that play more often. uneven: subscribers differ in how long they "
        "are away. sizes: records have from 50 to 5,000 bytes. gone: a fifth of the subscribers never come back, and "
        "the others are away for an hour.",
    )


def _swept(found: Found) -> list[Block]:
    def fold(title: str, wanted: Callable[[Stream], bool], of: Callable[[Stream], str]) -> list[Block]:
        streams = [one for one in found.streams if one.stream in SWEPT and wanted(one)]
        streams.sort(key=lambda one: (one.stream, one.share, one.away_s, one.wishes))
        rows: list[list[str | Cell]] = []
        for stream in streams:
            ahead = found.ahead(stream)
            other = OWED if ahead is None else str(ahead["other"])
            cells = [_percent(found.reads(stream, OWED)), _percent(found.reads(stream, other)), Cell(_ahead(ahead))]
            cells += [_percent(found.reads(stream, name)) for name in (CEILING, BOUND)]
            rows.append([f"{stream.stream}, {stream.share:.0%}, {of(stream)}", *cells])
        header = ("", OWED, "best other", "ahead by", CEILING, BOUND)
        return [Fold(title, [table("", header, rows, PLUS)])] if rows else []

    away, wishes = "How long subscribers are away", "How many topics each wishes for"
    return [
        *fold(away, lambda one: one.wishes == WISHES, lambda one: f"{one.away_s / HOUR_S:g} h"),
        *fold(wishes, lambda one: one.away_s == AWAY_S, lambda one: f"{one.wishes:g} topics"),
    ]


# Method


def _method(found: Found) -> list[Block]:
    items = [
        "The figures for hits, copies and parameters come from streams that are drawn from seeds and replayed. The "
        "same seeds give the same figures on any machine.",
        "Threshold, mean and buffer use exact integer arithmetic. With bounded memory, each of the document's "
        "strategies evicts by LRU.",
    ]
    if found.live:
        busy = max((row.get("broker_busy", 0.0) for row in found.live if row["kind"] == LATENCY), default=0.0)
        items.append(
            f"Latency and throughput are measured with the document's broker as a process, and with {SUBSCRIBERS} "
            "subscribers on WebSockets. Records come at a fixed rate, or as fast as possible in many rounds. Spark "
            f"digests the log of each latency. At a fixed rate, the broker used at most {busy:.0%} of a core."
        )
    measured = {setup.place for setup in found.setups(LATENCY)}
    missing = [place for place in PLACES if place not in measured]
    if missing:
        items.append(f"Not measured: {', '.join(missing)}.")
    if not any(stream.stream.startswith(PLAYS) for stream in found.streams):
        items.append("The streams of plays are left out: there was no now-playing log, or their parts did not run.")
    facts = found.facts
    blocks: list[Block] = [Bullets(items)]
    if facts.get("cores"):
        machine = [
            ("cores", f"{facts['cores']}"),
            ("memory", f"{facts['memory_bytes'] / 2**30:.1f} GiB"),
            ("kernel", f"Linux {facts['kernel']}"),
            ("Python", f"{facts['python']}"),
            ("form of the code", f"{facts['form']}"),
        ]
        blocks.append(Facts("The machine", machine))
    if facts.get("note"):
        blocks.append(Text(facts["note"]))
    return blocks
