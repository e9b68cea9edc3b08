"""The definitions, each on a handful of rows with answers that a person can check."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Event = tuple[str, int | None, int | None, int | None, int | None, int, int]
"""``(kind, connection, topic, seq, intended_ns, at_ns, value)``"""

pytestmark = pytest.mark.spark

EVENT = (
    "run string, started_ns long, kind string, phase string, connection long, topic long, seq long, "
    "intended_ns long, at_ns long, value long, detail string, file string, block long, line long"
)


def events(spark: SparkSession, *rows: Event) -> DataFrame:
    """Return rows `(kind, connection, topic, seq, intended_ns, at_ns, value)` of phase p of run r, in log order."""
    full = [
        ("r", 0, kind, "p", connection, topic, seq, intended, at, value, None, "f", 0, line)
        for line, (kind, connection, topic, seq, intended, at, value) in enumerate(rows)
    ]
    return spark.createDataFrame(full, EVENT)


def received(connection: int, seq: int, at: int, topic: int = 1) -> Event:
    return ("received", connection, topic, seq, 0, at, at)


def sent(connection: int, seq: int, intended: int, topic: int = 1) -> Event:
    return ("sent", connection, topic, seq, intended, intended, 1)


def flags_of(spark: SparkSession, *rows: Event) -> dict[str, set[tuple[int, int, int, int]]]:
    """Return `(connection, topic, at_ns, seq)` of the deliveries with each flag."""
    from ingeborg.bench.spark import transforms as t

    log = events(spark, *rows)
    found = [row.asDict() for row in t.deliveries_of(log, t.news_of(log)).collect()]
    return {
        flag: {(row["connection"], row["topic"], row["at_ns"], row["seq"]) for row in found if row[flag]}
        for flag in ("repeated", "reordered", "overtaken")
    }


def test_a_reordering_is_a_lower_seq_after_a_higher_one_and_a_repetition_is_not_one(spark: SparkSession) -> None:
    flags = flags_of(
        spark,
        *(sent(9, seq, intended=0, topic=topic) for topic in (1, 2) for seq in (1, 2, 3)),
        received(1, 2, at=10),
        received(1, 1, at=20),  # reordered
        received(1, 1, at=30),  # repeated, and not reordered again
        received(1, 3, at=40),
        received(2, 1, at=50),  # another connection
        received(1, 1, at=60, topic=2),  # another topic
        received(3, 2, at=70),
        received(3, 1, at=70),  # one clock reading: the order of lines says which came first
    )
    assert flags["repeated"] == {(1, 1, 30, 1)}
    assert flags["reordered"] == {(1, 1, 20, 1), (3, 1, 70, 1)}
    assert flags["overtaken"] == set()


def test_what_another_connection_had_published_as_well_is_overtaken_and_not_reordered(spark: SparkSession) -> None:
    flags = flags_of(
        spark,
        *(sent(9, seq, intended=0, topic=topic) for topic in (1, 2, 3, 4) for seq in (1, 2, 3)),
        sent(8, 3, intended=10, topic=1),
        received(1, 3, at=10, topic=1),  # it may have come from 8
        received(1, 1, at=20, topic=1),  # so this is overtaken
        received(1, 2, at=30, topic=1),
        sent(8, 3, intended=11, topic=2),
        received(1, 3, at=10, topic=2),  # only 9 can have sent it by then
        received(1, 1, at=20, topic=2),
        sent(8, 1, intended=15, topic=3),
        received(1, 3, at=10, topic=3),
        received(1, 1, at=20, topic=3),  # the late one may have come from 8 itself
        received(1, 2, at=30, topic=3),  # but not this one
        sent(8, 3, intended=10, topic=4),
        received(1, 3, at=10, topic=4),
        received(1, 2, at=20, topic=4),
        received(1, 1, at=30, topic=4),  # overtaken by 3, and out of order with 2
        received(1, 2, at=10, topic=5),
        received(1, 1, at=20, topic=5),  # the log does not say who sent these
    )
    assert flags["reordered"] == {(1, 2, 20, 1), (1, 3, 30, 2), (1, 4, 30, 1)}
    assert flags["overtaken"] == {(1, 1, 20, 1), (1, 1, 30, 2), (1, 3, 20, 1), (1, 4, 20, 2), (1, 5, 20, 1)}


def test_loss_counts_distinct_connections_and_not_what_a_later_message_stands_for(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    from ingeborg.bench.spark import transforms as t

    rows = events(
        spark,
        ("news", None, 1, 1, 0, 0, 3),
        received(1, 1, at=5),
        received(1, 1, at=6),  # a second copy to one connection replaces no other delivery
        ("news", None, 1, 2, 0, 0, 1),
        received(1, 2, at=7),
        received(2, 2, at=8),  # nor does one more than expected
        ("news", None, 1, 3, 0, 0, 0),  # no connection had to get it
    )
    standing = events(
        spark,
        *(("news", None, topic, seq, 0, seq, 1) for topic in (2, 3, 4) for seq in (1, 2, 3, 4)),
        *(received(1, 3, at=30, topic=topic) for topic in (2, 3)),
        *(received(1, 4, at=40, topic=topic) for topic in (2, 3, 4)),
        received(1, 4, at=41, topic=3),
    )
    # Topic 2 loses one message; topic 3 loses none, and one of its deliveries stands for nothing. The only delivery of
    # topic 4 stands for another one of its phase, and for two of the phase before.
    stands_for = F.expr("CASE WHEN topic = 4 THEN '3' WHEN topic = 3 OR seq = 3 THEN '1' END")
    standing = standing.withColumn("detail", F.when(F.col("kind") == "received", stands_for))
    standing = standing.withColumn("phase", F.expr("CASE WHEN topic = 4 AND seq > 2 THEN 'r' ELSE 'q' END"))
    rows = rows.unionByName(standing)
    news = t.news_of(rows)
    found = {row.phase: row for row in t.outcomes(news, t.deliveries_of(rows, news)).collect()}
    counts = ("expected", "lost", "conflated", "skipped", "excess", "rewritten")
    assert [found["p"][count] for count in counts] == [4, 2, 0, 0, 1, 0]
    assert [found["q"][count] for count in counts] == [10, 1, 5, 4, 0, 0]
    assert [found["r"][count] for count in counts] == [2, 0, 1, 3, 0, 0]


PERCENTILES = [
    ([7], {0: 7, 500_000: 7, 990_000: 7, 1_000_000: 7}),
    (list(range(1, 101)), {0: 1, 500_000: 50, 990_000: 99, 1_000_000: 100}),
    (list(range(1, 102)), {0: 1, 500_000: 51, 990_000: 100, 1_000_000: 101}),
    ([-3, 0, 5, 5], {0: -3, 500_000: 0, 990_000: 5, 1_000_000: 5}),
    ([-3, -3, -2, 0], {0: -3, 500_000: -3, 990_000: 0, 1_000_000: 0}),
    ([10**9 + index // 7 for index in range(999)], {0: 10**9, 500_000: 10**9 + 71, 990_000: 10**9 + 141}),
]


def test_percentiles_are_nearest_ranks(spark: SparkSession) -> None:
    """Every group is in one job, so that they also must not mix; some values share a bucket."""
    from ingeborg.bench.spark import quantiles

    rows = [(group, value) for group, (values, _) in enumerate(PERCENTILES) for value in reversed(values)]
    frame = spark.createDataFrame(rows, "run long, latency_ns long")
    points = PERCENTILES[0][1]
    found: dict[int, dict[int, int]] = {}
    for row in quantiles.percentiles(frame, ["run"], points, "latency_ns").collect():
        assert row.ppm not in found.setdefault(row.run, {}), "each point once"
        found[row.run][row.ppm] = row.latency_ns
    for group, (_, expected) in enumerate(PERCENTILES):
        assert found[group] | expected == found[group], group
        assert set(found[group]) == set(points)


def test_a_sketch_merges_and_keeps_its_bound(spark: SparkSession) -> None:
    from ingeborg.bench.spark import quantiles

    values = [(index * 7_919) % 20_011 for index in range(20_011)]  # 0 … 20,010 in disorder
    frame = spark.createDataFrame([("r", value) for value in values], "run string, lag_ns long").repartition(7)
    found = quantiles.sketched(frame, ["run"], [0, 100_000, 500_000, 990_000, 1_000_000], "lag_ns", 200)
    by_ppm = {row.ppm: row.lag_ns for row in found.collect()}
    assert (by_ppm.pop(0), by_ppm.pop(1_000_000)) == (0, 20_010)
    for ppm, value in by_ppm.items():
        assert abs(value + 1 - ppm / 1e6 * len(values)) <= len(values) / 200 + 1, ppm


def test_what_a_process_used_in_a_phase_is_between_the_samples_nearest_to_its_ends(spark: SparkSession) -> None:
    from ingeborg.bench.spark import transforms as t

    s = 10**9
    schema = "run long, started_ns long, at_ns long, source string, role string, cpu_s double, rss_bytes long, " + (
        "anon_bytes long"
    )
    samples = [
        (0, 0, at * s // 10, source, "server", cpu, at, None if source == "b" else at)
        for source, at, cpu in (
            ("a", 0, 1.0),
            ("a", 11, 2.0),  # nearest to the beginning, at 1 s
            ("a", 19, 2.5),
            ("a", 28, 0.5),  # restarted: its use before is known, the use after is not
            ("a", 31, 0.9),  # nearest to the end, at 3 s
            ("a", 40, 5.0),
            ("b", 8, 0.0),
            ("b", 39, 3.0),  # never seen in the phase itself, nor close to it
            ("c", 20, 4.0),  # seen once
            ("d", 9, 1.0),  # seen only at both ends, just outside, as for a phase of milliseconds
            ("d", 31, 1.5),
        )
    ]
    phases = spark.createDataFrame([(0, "p", s, 3 * s)], "run long, phase string, start_ns long, end_ns long")
    found = {row.source: row for row in t.machine_phases(spark.createDataFrame(samples, schema), phases).collect()}
    assert set(found) == {"a", "c", "d"}
    assert (found["d"].cpu_s, found["d"].elapsed_s) == (0.5, 2.2)
    assert found["a"].cpu_s == pytest.approx(0.5 + 0.4)
    assert found["a"].elapsed_s == 2.0
    assert (found["a"].rss_first, found["a"].rss_last, found["a"].anon_last) == (11, 31, 31)
    assert (found["c"].cpu_s, found["c"].elapsed_s, found["c"].rss_last) == (None, None, 20)


def test_sending_is_counted_where_it_says_and_its_lag_is_from_the_intended_time(spark: SparkSession) -> None:
    from ingeborg.bench.spark import transforms as t

    rows = events(
        spark,
        ("news", None, 1, 1, 0, 0, 3),
        ("sent", 1, 1, 1, 5, 9, 1),
        ("sent", 2, 1, 1, 3, 30, 0),
        ("error", None, None, None, None, 40, 0),
    )
    [row] = t.sending_counts(rows).collect()
    assert (row.news, row.reports, row.duplicates_offered, row.errors) == (1, 2, 1, 1)
    assert (row.first_ns, row.last_ns) == (0, 40)
    assert (row.first_sent_ns, row.last_sent_ns, row.first_intended_ns) == (9, 30, 3)
    assert sorted(row.lag_ns for row in t.lags(rows).collect()) == [4, 27]


def test_histogram_buckets_hold_their_latencies(spark: SparkSession) -> None:
    from ingeborg.bench.spark import transforms as t
    from ingeborg.bench.spark.job import histogram

    latencies = [-5, 0, 1, 999, 1_000, 1_000_000, 1_122_018, 2_000_000_000]
    rows = spark.createDataFrame(
        [("r", 0, "p", 0, value) for value in latencies],
        "run string, second int, phase string, intended_ns long, latency_ns long",
    )
    made = histogram([row.asDict() for row in t.histogram(rows).collect()])
    assert sum(row["deliveries"] for row in made) == len(latencies)
    assert [row["deliveries"] for row in made if row["high_ns"] == 0] == [2]
    for value in latencies[2:]:
        assert any(row.get("low_ns", 1 << 60) <= value < row["high_ns"] + 1 for row in made), value


LINES: list[tuple[str, str | None]] = [
    ("news,p,,1,1,0,0,3,", None),
    ("sent,p,1,1,1,0,5,0,", None),
    ("received,p,1,1,1,10,5,-5,", None),
    ("received,p,1,1,1,10,5,-5,12", None),
    ("received,p,1,1,1,10,5,-5,0", "not a number of skipped messages"),
    ("received,p,1,1,1,10,5,-5,causal", "not a number of skipped messages"),
    ('error,p,,,,,5,0,"a, ""b"""', None),
    ("error,p,,,,,5,0,", None),
    ("news,p,,1,1,0,0", "9 columns"),
    ("news,p,,1,1,0,0,3,,", "9 columns"),
    ("news,p,,one,1,0,0,3,", "9 columns"),
    ("news,p,,1,1.5,0,0,3,", "9 columns"),
    ("news,p,,1, 1,0,0,3,", "9 columns"),
    ("", "9 columns"),
    ("\x00\x00\x00", "a control character"),
    ("gossip,p,,1,1,0,0,3,", "unknown kind"),
    ("news,,,1,1,0,0,3,", "no phase"),
    ("news,p,,1,1,0,99999999999999999,3,", "at_ns"),
    ("news,p,,1,1,,0,3,", "intended_ns"),
    ("news,p,,,1,0,0,3,", "topic"),
    ("news,p,,1,0,0,0,3,", "below 1"),
    ("news,p,,1,1,0,0,-1,", "negative"),
    ("sent,p,,1,1,0,5,0,", "connection"),
    ("sent,p,1,1,1,0,5,2,", "neither"),
    ("received,p,1,1,1,10,5,5,", "at_ns - intended_ns"),
]


@pytest.mark.parametrize(("line", "problem"), LINES)
def test_every_line_is_good_or_says_what_is_wrong(
    checked_lines: dict[str, str | None], line: str, problem: str | None
) -> None:
    found = checked_lines[line]
    if problem is None:
        assert found is None
    else:
        assert found is not None
        assert problem in found


@pytest.fixture(scope="module")
def checked_lines(spark: SparkSession) -> dict[str, str | None]:
    """Judge every line of the test above in one job."""
    from ingeborg.bench.spark.checks import checked
    from ingeborg.bench.spark.schema import EVENTS

    lines = [line for line, _ in LINES]
    frame = spark.createDataFrame([(line, 0) for line in lines], "raw string, started_ns long")
    return {row.raw: row.problem for row in checked(frame, EVENTS).collect()}
