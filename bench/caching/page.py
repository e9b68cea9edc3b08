"""The page of `bench caching`: the document's seven experiments and findings, our figures for them, and our policy.

Owns: the words and tables. Must never: compute a figure that the digest does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, Final

from ingeborg.bench.caching import claims, conclusions, drawn, goals
from ingeborg.bench.caching.cases import GONE, GONE_AWAY_S, HOUR_S, POPULAR, SHARES, SIZES, SWEPT, UNEVEN
from ingeborg.bench.caching.found import FETCHED, MISSED, PLACES, ROOMS, STRATEGIES, Found, Setup, Stream
from ingeborg.bench.caching.judging import EQUAL, FAILS, HOLDS, Claim, ms, room
from ingeborg.bench.caching.live.cases import LATENCY, POLLING, SUBSCRIBERS
from ingeborg.bench.caching.live.parts import PARTS
from ingeborg.bench.caching.policies.named import BELADY, NOVEL, OWED, PLAIN
from ingeborg.bench.caching.reads import AWAY_S, WISHES
from ingeborg.bench.caching.summary import ORDER, capacities, percent, points, rate
from ingeborg.bench.caching.work import BOUND, CEILING
from ingeborg.bench.report.markup import Html, badge, bullets, explain, folded, framed, html, panel, table

Json = Mapping[str, Any]

MARKS: Final = {HOLDS: "good", FAILS: "bad", EQUAL: "warn"}


def page(pure: Json, measured: Json) -> str:
    """Return the whole page from the command's digests."""
    found = Found(pure, measured)
    lead = Html(
        "<p class=lead>The document (<i>Effect of Caching in a Content-Based Pub/Sub System using Kafka</i>, UCI) "
        "puts a cache into a broker behind Kafka, with five strategies of admission. This page repeats its seven "
        "experiments. It also has the usual policies of cache comparisons, and <b>owed</b>, the policy of this "
        "project. owed keeps the records that the most subscribers have not received yet, relative to their size. ± "
        "is half a 95 % confidence interval over the seeds.</p>"
    )
    parts: list[Html] = [_heading("The document's findings, and ours"), _claims(found), _ours(found)]
    parts.append(_goals(found))
    parts += [_heading("Experiments 1 and 2: hits and copies"), _capacities(found), *drawn.hits(found)]
    parts += [*drawn.copies(found), _document(found)]
    if found.live:
        parts += [_heading("Experiments 3 and 4: latency and throughput"), *drawn.latency(found), _made_of(found)]
        parts += [*drawn.throughput(found), _bounded(found)]
    parts += [_heading("Experiments 5 to 7: parameters"), *drawn.parameters(found), _latencies(found)]
    if found.exponents or found.streams:
        parts += [_heading("Other streams, other policies"), _requests(found)]
        parts += [_streams(found, share) for share in SHARES]
        parts += [_told(found), _others(found), *_swept(found)]
    parts += [_heading("How it was measured"), _method(found, measured.get("facts", {}))]
    footer = Html("<footer><p>bench caching; every figure comes from a row that the command keeps.</p></footer>")
    return framed("Which records to keep in memory", "Evaluation", lead, [part for part in parts if part], footer)


def _heading(text: str) -> Html:
    return Html(f"<h2>{html(text)}</h2>")


# Verdicts


def _claims(found: Found) -> Html:
    return panel(
        "The document's findings",
        explain(
            "The document prints charts without numbers. It does not say how much memory there is, where each record "
            "is written, what happens to a missed record, or how subscribers fetch. So we judge each sentence by each "
            "reading. A sentence about all numbers of records holds if it holds for each number. A difference in hit "
            "rate or duplication counts if its interval, computed seed by seed, does not contain 0. A difference in "
            "throughput or latency counts if the intervals of several runs do not overlap. A difference in latency "
            "must also come from the database."
        ),
        *_listed(claims.judged(found)),
        Html("<h4>Sentences without a verdict</h4>"),
        bullets(f"{sentence} {reason}" for sentence, reason in claims.NOT_JUDGED.items()),
    )


def _ours(found: Found) -> Html:
    judged = conclusions.judged(found)
    return panel("Our own sentences, judged by the same figures", *_listed(judged)) if judged else Html("")


def _listed(judged: Sequence[Claim]) -> list[Html]:
    parts: list[Html] = []
    for claim in judged:
        verdicts = "".join(
            f"<li>{badge(verdict, MARKS[verdict])} {html(reading)}</li>" for reading, verdict in claim.verdicts
        )
        parts.append(Html(f"<h4>{claim.number}. {html(claim.text)}</h4><ul class=legend>{verdicts}</ul>"))
        parts += [bullets(claim.found), explain(claim.why)]
    return parts


def _goals(found: Found) -> Html:
    rows = []
    for goal in goals.goals(found):
        for index, (reading, text, met) in enumerate(goal.found):
            mark = "" if met is None else "good" if met else "bad"
            said = Html("") if met is None else badge("met" if met else "missed", mark)
            rows.append([goal.text if not index else "", reading, goal.limit if not index else "", text, said])
    if not rows:
        return Html("")
    return panel(
        "owed and its goal, and the policies and their bounds",
        table(("", "stream, memory", "goal", "found", ""), rows, "Goals", "compared"),
        explain(
            "The figures are hit rates by read. The mean over the seeds decides whether a goal is met. If its interval "
            "reaches below the goal, the seeds are too few to be certain. owed uses only its knowledge of which "
            "subscribers have received a record. The other policies are as their authors published them. Each runs in "
            "its better way, with or without admitting missed records again. Belady's rule needs to know the future. "
            "PFOO is an upper bound for records of different sizes (Berger et al., SIGMETRICS 2018). libcachesim "
            "counts the same requests with its own code. Its W-TinyLFU has a less exact sketch, so for this check our "
            "W-TinyLFU has half its counters. In all other figures it has all its counters, which gains up to a point."
        ),
    )


# The document's experiments


def _capacities(found: Found) -> Html:
    rows = capacities(found)
    even = [rate(found.document(found.most, name, exponent=0.0), 3) for name in STRATEGIES]
    if any(text != "–" for text in even):
        rows.append(["unbounded, no skew", *even])
    return panel(
        f"Hit rate by read, {found.most:,} records",
        table(("memory", *STRATEGIES), rows, "Hit rates"),
        explain(
            "In a read, one subscriber fetches one record. The world has 24 kinds of offers, and 1,000 subscribers "
            "that want one kind each, by Zipf's law. Without skew, all kinds are equally popular, apart from chance. "
            "With memory for all records, our policy keeps all records."
        ),
    )


def _document(found: Found) -> Html:
    blocks = []
    figures: tuple[tuple[str, str, int], ...] = (
        ("by_read", "hit rate by read", 3),
        ("by_record", "hit rate by record", 3),
        ("duplication", "duplication factor", 1),
        ("copies_per_record", "copies per record", 1),
        ("cached_share", "share of records that were admitted", 3),
        ("written_share", "share of records that the database gets, memory or database", 3),
    )
    for share, again in ((None, False), *((share, again) for share in ROOMS[1:] for again in MISSED)):
        for what, title, digits in figures:
            rows = [
                [
                    name,
                    *(
                        _figure(found.document(number, name, share, again=again), what, digits)
                        for number in found.records
                    ),
                ]
                for name in STRATEGIES
            ]
            if not any(text != "–" for row in rows for text in row[1:]):
                continue
            caption = f"{title}, {room(share)}{'' if share is None else f', {MISSED[again]}'}"
            blocks.append(Html(f"<h4>{html(caption)}</h4>"))
            blocks.append(table(("", *(f"{number:,}" for number in found.records)), rows, caption))
    return panel("Experiments 1 and 2 as numbers", folded("All figures, over the number of records", *blocks))


def _figure(row: Json | None, what: str, digits: int) -> str:
    if row is None or row.get(what) is None:
        return "–"
    mean, half = row[what]
    return f"{mean:.{digits}f} ± {half:.{digits}f}" if half else f"{mean:.{digits}f}"


def _made_of(found: Found) -> Html:
    blocks: list[Html] = []
    for setup in found.setups(LATENCY):
        records = found.measured_records(LATENCY, setup)[-1]
        rows = []
        for name in STRATEGIES:
            row = found.measured(LATENCY, records, name, None, setup)
            if row is not None:
                each = [ms(row.get(f"{part}_ms")) for part in PARTS]
                rows.append([name, *each, ms(row["latency_ms"][0]), ms(row.get("p99_ms")), f"{row['hit_rate']:.0%}"])
        caption = f"{setup}, {records:,} records"
        blocks.append(Html(f"<h4>{html(caption)}</h4>"))
        blocks.append(table(("", *PARTS, "in all", "p99", "hits"), rows, f"Parts of a latency, {caption}", "compared"))
    if not blocks:
        return Html("")
    return panel(
        "The parts of a latency",
        *blocks,
        explain(
            "The figures are means over all deliveries, and the parts add up to the latency. sending: from the "
            "intended time of a record until the broker has it, through Kafka if Kafka is in front. matching: until "
            "the broker knows the record's subscribers. writing: until the record is safe in the database, or its turn "
            "comes if nobody writes it. waiting: until the subscriber polls. memory: the search in memory. database: "
            "reading the records that were not in memory. delivery: until the subscriber has the answer."
        ),
    )


def _bounded(found: Found) -> Html:
    """Show the latencies of subscribers that poll twice a second, with each capacity."""
    setup = Setup("LMDB", fetches=POLLING)
    records = found.measured_records(LATENCY, setup)
    rows = []
    for share in ROOMS if records else ():
        cells = [found.measured(LATENCY, records[-1], name, share, setup) for name in STRATEGIES]
        if any(row is not None for row in cells):
            texts = ["–" if row is None else f"{ms(row['latency_ms'][0])}, {row['hit_rate']:.0%}" for row in cells]
            rows.append([room(share), *texts])
    if not rows:
        return Html("")
    caption = f"{setup}: mean latency and hits, {records[-1]:,} records"
    return panel(
        "Latency with bounded memory",
        table(("memory", *STRATEGIES), rows, caption),
        explain(f"{caption}. In these runs, {MISSED[False]}. Without a cache, there is only one capacity."),
    )


def _latencies(found: Found) -> Html:
    rows = []
    for strategy, fetches in product(NOVEL, FETCHED):
        swept = found.measured_sweep(strategy, fetches)
        for name in sorted(swept, key=lambda name: [float(value) for value in name.split()]):
            row = swept[name]
            rows.append(
                [
                    f"{strategy} {name}, {FETCHED[fetches]}",
                    f"{row['hit_rate']:.3f}",
                    ms(row["latency_ms"][0]),
                    ms(row["database_ms"]),
                ]
            )
    if not rows:
        return Html("")
    header = ("", "hit rate", "mean latency", "the database's part")
    return panel(
        "Latencies over the parameters of experiments 5 to 7",
        table(header, rows, "Latencies over parameters"),
        explain(
            "The parameters are λ μ of threshold, the batch of mean, and γ α of buffer. One run each, on LMDB, with "
            "unlimited memory."
        ),
    )


# Other streams


def _requests(found: Found) -> Html:
    if not found.exponents:
        return Html("")
    blocks: list[Html] = []
    for share in SHARES:
        rows = []
        for exponent in sorted(found.exponents, key=lambda exponent: (not exponent, exponent)):
            cells = []
            for name in (*PLAIN, BELADY):
                row = found.requests(exponent, share, name)
                cells.append("–" if row is None else _beside(row))
            rows.append([goals.requests_of(exponent), *cells])
        caption = f"Room for {share:.0%} of all items"
        blocks += [Html(f"<h4>{html(caption)}</h4>"), table(("", *PLAIN, BELADY), rows, caption)]
    return panel(
        "Plain requests: share of hits, in per cent",
        *blocks,
        explain(
            "All items have one size, and a missing item requests admission. There are no subscribers, so owed cannot "
            "decide anything. The requests follow Zipf's law with the given exponent, or are the songs of a "
            "now-playing log. The figures in brackets are libcachesim's for the same requests."
        ),
    )


def _beside(row: Json) -> str:
    text = f"{100 * row['rate'][0]:.1f}"
    return f"{text} ({100 * row['libcachesim'][0]:.1f})" if row["libcachesim"] else text


def _table(found: Found, streams: Sequence[Stream], caption: str, of: Callable[[Stream], str]) -> Html:
    names = [name for name in ORDER if any(found.reads(stream, name) for stream in streams)]
    rows: list[list[str]] = [[name, *(percent(found.reads(stream, name)) for stream in streams)] for name in names]
    rows.append([f"{OWED} ahead by", *(points(found.ahead(stream)) for stream in streams)])
    return table(("", *map(of, streams)), rows, caption)


def _streams(found: Found, share: float) -> Html:
    streams = goals.compared_streams(found, share)
    if not streams:
        return Html("")
    caption = f"Records and reads, memory for {share:.0%} of all bytes: hits by read, in per cent"
    return panel(
        caption,
        _table(found, streams, caption, lambda stream: stream.stream),
        explain(
            "2,000 subscribers come back four times a day, on average, and read the records that they have missed. "
            "plays has a record for each row of a now-playing log. zipf has 60,000 records to 10,000 topics. + means "
            f"that missed records are admitted again. {CEILING} is the largest average number of hits of a policy "
            "that does not know which subscriber comes back first. "
            f"{BOUND} is a number of hits that no policy can exceed."
        ),
    )


def _told(found: Found) -> Html:
    rows = []
    for share in SHARES:
        for stream in goals.compared_streams(found, share):
            ahead = found.ahead(stream, knows=True)
            if ahead is not None:
                row = found.reads(stream, ahead["other"], knows=True)
                rows.append([f"{stream.stream}, {share:.0%}", percent(row), points(ahead)])
    if not rows:
        return Html("")
    return panel(
        "If the other policies knew as much",
        table(("", "best other policy", f"{OWED} ahead by"), rows, "With equal knowledge"),
        explain(
            "Here every policy drops a record as soon as all its subscribers have received it, and admits only records "
            "again that some subscriber has not received. The difference to the table above is the part of owed's "
            "lead that comes from this knowledge. The rest of the lead comes from the order of eviction. There are "
            "fewer seeds than above. Each lead compares the same seeds."
        ),
    )


def _others(found: Found) -> Html:
    streams = [Stream(name, AWAY_S, WISHES, share) for name in (POPULAR, UNEVEN, SIZES) for share in SHARES]
    streams += [Stream(GONE, GONE_AWAY_S, WISHES, share) for share in SHARES]
    streams = [stream for stream in streams if stream in found.streams]
    if not streams:
        return Html("")
    caption = "Streams on which owed could do worse: hits by read, in per cent"
    return panel(
        caption,
        _table(found, streams, caption, lambda stream: f"{stream.stream}, {stream.share:.0%}"),
        explain(
            "popular: more subscribers wish for songs that play more often. uneven: subscribers differ in how long "
            "they are away. sizes: records have from 50 to 5,000 bytes. gone: a fifth of the subscribers never come "
            "back, and the others are away for an hour."
        ),
    )


def _swept(found: Found) -> list[Html]:
    def rows(wanted: Callable[[Stream], bool], of: Callable[[Stream], str]) -> list[list[str]]:
        streams = [one for one in found.streams if one.stream in SWEPT and wanted(one)]
        streams.sort(key=lambda one: (one.stream, one.share, one.away_s, one.wishes))
        listed = []
        for stream in streams:
            other = found.reads(stream, goals.best_other(found, stream))
            cells = [percent(found.reads(stream, OWED)), percent(other), points(found.ahead(stream))]
            cells += [percent(found.reads(stream, name)) for name in (CEILING, BOUND)]
            listed.append([f"{stream.stream}, {stream.share:.0%}, {of(stream)}", *cells])
        return listed

    header = ("", OWED, "best other", "ahead by", CEILING, BOUND)
    away = rows(lambda one: one.wishes == WISHES, lambda one: f"{one.away_s / HOUR_S:g} h")
    wishes = rows(lambda one: one.away_s == AWAY_S, lambda one: f"{one.wishes:g} topics")
    panels = []
    for title, listed in (("How long subscribers are away", away), ("How many topics each wishes for", wishes)):
        if listed:
            panels.append(panel(title, folded("All streams", table(header, listed, title))))
    return panels


# Method


def _method(found: Found, facts: Json) -> Html:
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
    if facts.get("cores"):
        items.append(
            f"Machine: {facts['cores']} cores, {facts['memory_bytes'] / 2**30:.1f} GiB, Linux {facts['kernel']}, "
            f"Python {facts['python']}, form of the code: {facts['form']}."
        )
    if facts.get("note"):
        items.append(str(facts["note"]))
    measured = {setup.place for setup in found.setups(LATENCY)}
    missing = [place for place in PLACES if place not in measured]
    if missing:
        items.append(f"Not measured: {', '.join(missing)}.")
    return panel("Streams, processes, machine", bullets(items))
