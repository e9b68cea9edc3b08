"""The digest of rows that can be counted by hand, and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ingeborg.bench.autoscale import report
from ingeborg.bench.report import html, markdown
from ingeborg.bench.text.blocks import claims_of

from . import small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Json = dict[str, Any]

PLAN: Json = {"time_scale": 10.0, "iterations": 60, "delta": 5.0}

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def digested(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Json:
    from ingeborg.bench.autoscale import job

    out = tmp_path_factory.mktemp("rows")
    small.results(out)
    return job.figures(spark, out)


def test_latencies_are_of_what_was_to_be_written_in_the_run(digested: Json) -> None:
    runs = {row["unit"]: row for row in digested["runs"]}
    assert list(runs) == ["kip-848-18-s1", "kip-848-18-s2", "mend-s1", "mend-s2"]
    assert [row["records"] for row in runs.values()] == [11] * 4
    assert runs["mend-s1"]["latency_s"][0] == 0.1
    assert runs["mend-s2"]["latency_s"][0] == 0.2
    assert runs["kip-848-18-s2"]["latency_s"][0] == 4.0


def test_what_never_came_counts_as_late_as_it_was_at_least(digested: Json) -> None:
    [run] = [row for row in digested["runs"] if row["unit"] == "mend-s1"]
    assert (run["waiting"], run["most_s"]) == (1, 4.5)
    assert run["late"] == pytest.approx(1 / 11, abs=1e-4)


def test_members_are_those_of_the_run_alone(digested: Json) -> None:
    assert {(row["members"], row["fewest"], row["most"]) for row in digested["runs"]} == {(5.0, 4, 6)}


def test_steps_are_those_of_the_run_alone(digested: Json) -> None:
    [run] = [row for row in digested["runs"] if row["unit"] == "mend-s1"]
    assert (run["decisions"], run["starts"], run["hand_overs"]) == (1, 1, 0)


def test_a_run_says_whether_its_group_was_warm(digested: Json) -> None:
    mend = digested["systems"][-1]
    assert (mend["not_settled"], mend["not_caught_up"], mend["behind_s"]) == (0, 0, 0.2)
    [long] = digested["long"]
    assert (long["systems"][0]["not_caught_up"], long["systems"][0]["behind_s"]) == (1, 3.5)


def test_long_streams_are_apart_from_the_others(digested: Json) -> None:
    assert {row["part"] for row in digested["runs"]} == {"groups"}
    [long] = digested["long"]
    assert long["iterations"] == 100
    [run] = long["runs"]
    assert (run["unit"], run["label"], run["records"], run["members"]) == ("keda-50-n100-s1", "keda 50", 3, 7.0)
    assert long["over_time"] == [{"unit": "keda-50-n100-s1", "p99_s": [3.0, 3.0]}]
    [decided] = digested["changes_long"]
    assert (decided["event"], decided["count"]) == ("decided", 1)


def test_latencies_over_time_are_of_every_run(digested: Json) -> None:
    over_time = {row["unit"]: row["p99_s"] for row in digested["over_time"]}
    assert list(over_time) == [row["unit"] for row in digested["runs"]]
    assert over_time["mend-s2"][0] == 0.2


def test_seeds_are_put_together(digested: Json) -> None:
    mend = digested["systems"][-1]
    assert (mend["label"], mend["seeds"], mend["waiting"], mend["records"]) == ("mend", 2, 2, 22)
    middle, half, least, most = mend["latency_s"][0]
    assert (middle, least, most) == (0.15, 0.1, 0.2)
    assert half == pytest.approx(12.706 * 0.0707107 / 2**0.5, abs=1e-3)


def test_steps_of_changes_are_counted_by_what_they_belong_to(digested: Json) -> None:
    changes = {(row["of"], row["event"]): row for row in digested["changes"]}
    assert {of for of, _ in changes} == {"delta 5", "delta 25"}
    settled = changes["delta 25", "settled"]
    assert (settled["count"], settled["seconds"][0], settled["most"]) == (3, 0.4, 3.0)
    assert settled["below_1_s"] == pytest.approx(2 / 3, abs=1e-4)
    assert sum(count for _, count in settled["histogram"]) == 3
    [joined] = [row for row in digested["handovers"] if row["event"] == "joined"]
    assert (joined["of"], joined["count"], joined["most"]) == ("mend", 2, 3.0)


def test_throughput_is_of_whole_windows(digested: Json) -> None:
    # Each quarter of a second has two batches of 5 MB; the last batch is smaller.
    assert [row["test"] for row in digested["throughput"]] == [1, 2, 3]
    first = digested["throughput"][0]
    assert (first["samples"], first["median"], first["least"], first["most"]) == (4, *[40_000_000] * 3)
    assert first["histogram"] == [[4, 4]]


def test_a_quarter_of_a_second_without_a_batch_counts_but_for_those_before_the_last_one(digested: Json) -> None:
    second = digested["throughput"][1]
    assert (second["samples"], second["least"], second["most"]) == (4, 0, 40_000_000)
    assert second["histogram"] == [[0, 2], [4, 2]]


def test_a_monitor_knows_a_rate_when_it_is_within_a_twentieth(digested: Json) -> None:
    # From 1 to 2 in 30 s: 1.9 after 27.
    assert digested["steps"]["known_after_s"][0] == 27.0
    assert digested["steps"]["known_after_s"][1:] == [None, None, None]


def test_a_digest_names_its_kafka_and_its_machine(digested: Json) -> None:
    assert digested["kafka"] == ["4.3.1"]
    assert set(digested["machine"]) == {"cores", "memory", "python"}


def test_the_report_has_every_figure(digested: Json) -> None:
    made = report.report(PLAN, digested)
    page, summary = html.page(made), markdown.markdown(made)
    for title in ("Table V", "Table VI", *(f"Figure {number}" for number in range(13, 18))):
        assert title in page
    for title in ("streams with 100 decisions", "500 decisions of the controller", "p99 over time of all 4 runs"):
        assert title in page
    assert "| mend | 2 | 5.0 | 0.15 ± 0.64 |" in summary
    assert "| KEDA's rule, lag 50 |  |  | 1 of 1 runs, up to 3.5 s |" in summary


def test_a_part_alone_gives_a_report(digested: Json) -> None:
    alone = {**dict.fromkeys(digested), "long": [], **{name: digested[name] for name in ("kafka", "machine", "steps")}}
    made = report.report(PLAN, alone)
    assert [claim.where for claim in claims_of(made)] == ["VI-F"]
    page = html.page(made)
    assert "Figure 14" in page
    assert "Figure 13:" not in page
    assert "Groups" not in page
