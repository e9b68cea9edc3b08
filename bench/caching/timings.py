"""Judge the document's findings about latency and throughput by the runs on real processes.

Owns: the choice of figures for each finding. Must never: do I/O.

The slides do not say how subscribers fetch, and say only for three strategies where a record is written. So the
findings are judged for each set-up (LMDB, Kafka in front, Riak) and for each interpretation that was measured
(`found.Setup`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ingeborg.bench.caching.found import FETCHED, WRITTEN, Found, Json, Setup
from ingeborg.bench.caching.judging import RUNS_MIN, SLIGHT, above, ms, of_runs, over, sign, slower
from ingeborg.bench.caching.live.cases import ALWAYS, EITHER, LATENCY, THROUGHPUT
from ingeborg.bench.caching.policies.named import OWED, RULES
from ingeborg.bench.text.blocks import FAILS, HOLDS, NOISE, Claim, Verdict

MANY: Final = "above all with many records"


def _rows(found: Found, kind: str, records: int, setup: Setup) -> dict[str, Json]:
    """Return the rows of the document's strategies with unlimited memory."""
    rows = {name: found.measured(kind, records, name, None, setup) for name in RULES}
    return {name: row for name, row in rows.items() if row is not None}


# Experiment 3


def latency(found: Found) -> Claim:
    """Judge experiment 3."""
    verdicts: list[Verdict] = []
    for setup in found.setups(LATENCY):
        numbers = found.measured_records(LATENCY, setup)
        few, many = (_rows(found, LATENCY, number, setup) for number in (numbers[0], numbers[-1]))
        greatest = over([slower(many["none"], row) for name, row in many.items() if name != "none"])
        verdicts.append(Verdict(f"{setup}: greatest", greatest, f"{numbers[-1]:,} records: {_latencies(many)}"))
        if len(numbers) > 1:
            verdicts.append(Verdict(f"{setup}: {MANY}", _grows(found, LATENCY, setup, numbers)))
            negligible = HOLDS if slower(few["none"], few["all"]) == NOISE else FAILS
            said = f"{numbers[0]:,} records: none {_ms(few['none'])}, all {_ms(few['all'])}"
            verdicts.append(Verdict(f"{setup}: negligible with few", negligible, said))
    return Claim(
        "experiment 3",
        "Latency is greatest without a cache, above all with many records. With few, the difference is negligible.",
        verdicts,
        [],
        "If subscribers poll twice a second, a record waits a quarter of a second for a subscriber, on average, and "
        "this time hides all others. If polls wait at the broker, a latency consists only of the broker's work, its "
        "writes and the sockets. A read of LMDB takes microseconds, so a hit saves little. A read of Riak is a "
        "request over the network. If every delivery needs a read, writes wait for reads as well. If a record goes to "
        "memory or to the database, a record in memory waits for no write, unless one of its subscribers still waits "
        "for an earlier record, because each subscriber gets its records in order.",
    )


def _latencies(rows: dict[str, Json]) -> str:
    each = ", ".join(f"{name} {_ms(row)}" for name, row in rows.items())
    times = [
        f"{text} {ms(rows['none'][f'{part}_ms'])} and {ms(rows['all'][f'{part}_ms'])}"
        for part, text in (("database", "reads"), ("writing", "writes"), ("waiting", "waiting for a poll"))
    ]
    return f"{each}; parts of none and all: {', '.join(times)}"


def _ms(row: Json) -> str:
    return of_runs(row, "latency_ms", ms)


# Experiment 4


def throughput(found: Found) -> Claim:
    """Judge experiment 4. The slides do not say whether unlimited caching writes each record. In one interpretation,
    mean and buffer write a record to memory or to the database. That interpretation is judged twice: once if unlimited
    caching writes nothing, and once if it writes each record."""
    verdicts: list[Verdict] = []
    for setup in found.setups(THROUGHPUT):
        numbers = found.measured_records(THROUGHPUT, setup)
        rows = _rows(found, THROUGHPUT, numbers[-1], setup)
        variants = {"": rows}
        if setup.writes == EITHER:
            written = found.measured(THROUGHPUT, numbers[-1], "all", None, setup._replace(writes=ALWAYS))
            variants = {", all writes nothing": rows}
            if written is not None:
                variants[", all writes each"] = rows | {"all": written}
        for variant, known in variants.items():
            others = [row for name, row in known.items() if name != "all"]
            greatest = over(above(known["all"], row, "records_per_s") for row in others)
            whole = _with_ours(found, numbers[-1], setup, known)
            said = f"records/s with {numbers[-1]:,} records: {_listed(whole, 'records_per_s', ',.0f')}{_runs(whole)}"
            verdicts.append(Verdict(f"{_of(setup)}{variant}: greatest", greatest, said))
            if all("cpu_us" in row for row in known.values()):
                least = over(above(row, known["all"], "cpu_us") for row in others)
                said = f"the broker's CPU time for a record in µs: {_listed(whole, 'cpu_us', '.1f')}"
                verdicts.append(Verdict(f"{_of(setup)}{variant}: least CPU time", least, said))
        if len(numbers) > 1:
            verdicts.append(Verdict(f"{_of(setup)}: {MANY}", _grows(found, THROUGHPUT, setup, numbers)))
    return Claim(
        "experiment 4",
        "Throughput is greatest with unlimited caching, above all with many records.",
        verdicts,
        _saved(found),
        "If the broker writes each record, its work hardly depends on the strategy: a hit only saves a look-up in "
        "LMDB, which takes a few microseconds for a batch of reads. If a record goes to memory or to the database, "
        "unlimited caching can write nothing, and then saves all the database's work. A difference counts if the "
        f"intervals of at least {RUNS_MIN} runs do not overlap. Other work on the machine changes a throughput, but "
        "hardly the CPU time that the broker needs for a record. On an idle machine the broker is the bottleneck, so "
        "the least CPU time gives the greatest throughput.",
    )


def _of(setup: Setup) -> str:
    """Return the set-up's name without the way of fetching, because polls always wait in these runs."""
    return f"{setup.place}, {WRITTEN[setup.writes]}"


def _with_ours(found: Found, records: int, setup: Setup, rows: dict[str, Json]) -> dict[str, Json]:
    ours = found.measured(THROUGHPUT, records, OWED, None, setup)
    return rows if ours is None else rows | {OWED: ours}


def _listed(rows: dict[str, Json], what: str, form: str) -> str:
    each = {name: row for name, row in rows.items() if what in row}
    return ", ".join(f"{name} {of_runs(row, what, lambda value: f'{value:{form}}')}" for name, row in each.items())


def _runs(rows: dict[str, Json]) -> str:
    if not all("seconds" in row for row in rows.values()):
        return ""
    fewest, shortest = (min(row[what] for row in rows.values()) for what in ("runs", "seconds"))
    return f"; at least {fewest} runs, each of {shortest:.1f} s or more on average"


def _grows(found: Found, kind: str, setup: Setup, numbers: Sequence[int]) -> str:
    """Return whether the effect of a cache is greater with many records. The effect is the ratio of two strategies'
    values. According to the document, the first strategy should have the greatest value, and the second the least
    value."""
    first, last, what = ("none", "all", "latency_ms") if kind == LATENCY else ("all", "none", "records_per_s")
    leads = []
    for number in (numbers[0], numbers[-1]):
        rows = _rows(found, kind, number, setup)
        if min(rows[name]["runs"] for name in (first, last)) < RUNS_MIN:
            return NOISE
        (greatest, half), (least, width) = (rows[name][what] for name in (first, last))
        leads.append((greatest / least - 1, greatest / least * (half / greatest + width / least)))
    (few, half), (many, width) = leads
    return sign((many - few, half + width))


def _saved(found: Found) -> list[str]:
    """Return the share of the records that the database gets if a record goes to memory or to the database."""
    rows = {name: found.document(found.most, name) for name in RULES}
    shares = {name: row["written_share"][0] for name, row in rows.items() if row is not None and "written_share" in row}
    each = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    title = "Share of records in the database, if memory has no limit and a record goes to memory or to the database"
    return [f"{title}: {each}."] if each else []


def costliest(found: Found, strategy: str) -> list[Verdict]:
    """Judge whether a strategy has the lowest throughput of all strategies with the largest number of records. Also
    judge whether it needs the most CPU time for a record."""
    verdicts: list[Verdict] = []
    for setup in found.setups(THROUGHPUT):
        records = found.measured_records(THROUGHPUT, setup)[-1]
        rows = _with_ours(found, records, setup, _rows(found, THROUGHPUT, records, setup))
        if setup.writes == ALWAYS and strategy in rows:
            ours, others = rows[strategy], [row for name, row in rows.items() if name != strategy]
            lowest = over(above(row, ours, "records_per_s") for row in others)
            verdicts.append(Verdict(f"{_of(setup)}, {records:,} records: throughput", lowest))
            if all("cpu_us" in row for row in rows.values()):
                most = over(above(ours, row, "cpu_us") for row in others)
                verdicts.append(Verdict(f"{_of(setup)}, {records:,} records: CPU time", most))
    return verdicts


# The motivation


def database(found: Found) -> Claim:
    """Judge the motivation's sentence about the database."""
    verdicts: list[Verdict] = []
    for setup in found.setups(LATENCY):
        if setup.writes == EITHER:
            continue
        none = _rows(found, LATENCY, found.measured_records(LATENCY, setup)[-1], setup)["none"]
        whole = none["latency_ms"][0]
        for name, part in (("reads", none["database_ms"]), ("writes", none["writing_ms"])):
            verdict = HOLDS if part >= SLIGHT * whole else FAILS
            said = f"{ms(part)} of {ms(whole)}"
            verdicts.append(Verdict(f"{setup.place}, {FETCHED[setup.fetches]}: {name}", verdict, said))
    return Claim(
        "motivation",
        "Database access results in additional significant delay.",
        verdicts,
        [],
        "The figures are those without a cache, with the largest number of records. A delay of at least "
        f"{SLIGHT:.0%} of the latency counts as significant.",
    )
