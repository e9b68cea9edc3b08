"""The definitions, each on a handful of rows with answers a person can check."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

EVENT = (
    "run string, started_ns long, kind string, phase string, connection long, topic long, seq long, "
    "intended_ns long, at_ns long, value long, detail string, file string, block long, line long"
)


def events(spark, *rows):
    """Rows `(kind, connection, topic, seq, intended_ns, at_ns, value)` of phase p of run r, in the order of the log."""
    full = [
        ("r", 0, kind, "p", connection, topic, seq, intended, at, value, None, "f", 0, line)
        for line, (kind, connection, topic, seq, intended, at, value) in enumerate(rows)
    ]
    return spark.createDataFrame(full, EVENT)


def received(connection, seq, at, topic=1):
    return ("received", connection, topic, seq, 0, at, at)


def test_a_reordering_is_a_lower_seq_after_a_higher_one_and_a_repetition_is_not_one(spark):
    from bench.spark import transforms as t

    rows = events(
        spark,
        received(1, 2, at=10),
        received(1, 1, at=20),  # reordered
        received(1, 1, at=30),  # repeated, and not reordered again
        received(1, 3, at=40),
        received(2, 1, at=50),  # another connection
        received(1, 1, at=60, topic=2),  # another topic
        received(3, 2, at=70),
        received(3, 1, at=70),  # one clock reading: the order of lines says which came first
    )
    found = t.deliveries_of(rows, t.news_of(rows)).orderBy("at_ns", "seq").collect()
    flags = {(row.connection, row.topic, row.at_ns, row.seq): (row.repeated, row.reordered) for row in found}
    assert {key for key, (repeated, _) in flags.items() if repeated} == {(1, 1, 30, 1)}
    assert {key for key, (_, reordered) in flags.items() if reordered} == {(1, 1, 20, 1), (3, 1, 70, 1)}


def test_loss_counts_distinct_connections(spark):
    from bench.spark import transforms as t

    rows = events(
        spark,
        ("news", None, 1, 1, 0, 0, 3),
        received(1, 1, at=5),
        received(1, 1, at=6),  # twice to one connection makes up for nobody
        ("news", None, 1, 2, 0, 0, 1),
        received(1, 2, at=7),
        received(2, 2, at=8),  # one more than expected makes up for nobody either
        ("news", None, 1, 3, 0, 0, 0),  # nobody had to get it
    )
    news = t.news_of(rows)
    [row] = t.outcomes(news, t.deliveries_of(rows, news)).collect()
    assert (row.expected, row.lost, row.excess, row.rewritten) == (4, 2, 1, 0)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7], {500_000: 7, 990_000: 7, 1_000_000: 7}),
        (list(range(1, 101)), {500_000: 50, 990_000: 99, 1_000_000: 100}),
        (list(range(1, 102)), {500_000: 51, 990_000: 100, 1_000_000: 101}),
        ([-3, 0, 5, 5], {500_000: 0, 990_000: 5, 1_000_000: 5}),
    ],
)
def test_percentiles_are_nearest_ranks(spark, values, expected):
    from bench.spark import transforms as t

    rows = spark.createDataFrame([("r", value) for value in reversed(values)], "run string, latency_ns long")
    found = t.percentiles(rows, ["run"], expected).collect()
    assert {row.ppm: row.latency_ns for row in found} == expected


def test_histogram_buckets_hold_their_latencies(spark):
    from bench.spark import transforms as t
    from bench.spark.job import histogram

    latencies = [-5, 0, 1, 999, 1_000, 1_000_000, 1_122_018, 2_000_000_000]
    rows = spark.createDataFrame(
        [("r", 0, "p", 0, value) for value in latencies],
        "run string, started_ns long, phase string, intended_ns long, latency_ns long",
    )
    made = histogram([row.asDict() for row in t.histogram(rows).collect()])
    assert sum(row["deliveries"] for row in made) == len(latencies)
    assert made[0]["high_ns"] == 0
    assert made[0]["deliveries"] == 2
    for value in latencies[2:]:
        assert any(row.get("low_ns", 1 << 60) <= value < row["high_ns"] + 1 for row in made), value


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("news,p,,1,1,0,0,3,", None),
        ("sent,p,1,1,1,0,5,0,", None),
        ("received,p,1,1,1,10,5,-5,", None),
        ('error,p,,,,,5,0,"a, ""b"""', None),
        ("error,p,,,,,5,0,", None),
        ("news,p,,1,1,0,0", "9 columns"),
        ("news,p,,1,1,0,0,3,,", "9 columns"),
        ("news,p,,one,1,0,0,3,", "9 columns"),
        ("news,p,,1,1.5,0,0,3,", "9 columns"),
        ("news,p,,1, 1,0,0,3,", "9 columns"),
        ("", "9 columns"),
        ("\x00\x00\x00", "9 columns"),
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
    ],
)
def test_every_line_is_good_or_says_what_is_wrong(checked_lines, line, problem):
    found = checked_lines[line]
    assert found is None if problem is None else problem in found


@pytest.fixture(scope="module")
def checked_lines(spark):
    """Every line of the test above, judged in one job."""
    from bench.spark import transforms as t
    from bench.spark.schema import EVENTS

    lines = [case[0] for case in test_every_line_is_good_or_says_what_is_wrong.pytestmark[0].args[1]]
    frame = spark.createDataFrame([(line, 0) for line in lines], "raw string, started_ns long")
    return {row.raw: row.problem for row in t.checked(frame, EVENTS).collect()}
