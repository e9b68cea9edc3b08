"""`ingeborg.bench.budgets` without measurements: the line through the costs, the judgements, the output."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from ingeborg import form
from ingeborg.bench.budgets import __main__ as budgets
from ingeborg.bench.budgets import cost, latency, misses
from ingeborg.bench.budgets.model import Check, show
from ingeborg.bench.errors import BenchError

FANOUTS = (1, 5, 20, 100)


def line(publish_us: float, delivery_us: float) -> dict[int, float]:
    return {fanout: publish_us + delivery_us * fanout for fanout in FANOUTS}


# -- cost


@pytest.mark.parametrize(("publish_us", "delivery_us"), [(12.0, 6.0), (0.5, 90.0), (100.0, 0.1)])
def test_the_costs_of_a_line_are_found_again(publish_us: float, delivery_us: float) -> None:
    assert cost.fit(line(publish_us, delivery_us)) == pytest.approx((publish_us, delivery_us))


def test_an_error_of_a_part_at_many_subscribers_says_little_about_the_publish() -> None:
    costs = line(12.0, 6.0)
    costs[100] *= 1.1
    # A least-squares fit of the absolute errors would give 6.8.
    assert cost.fit(costs).publish_us == pytest.approx(12.0, rel=0.1)


@pytest.mark.parametrize(
    ("publish_us", "delivery_us", "met"),
    [
        (10.0 - 1e-6, 6.4 - 1e-6, [True, True]),
        (10.1, 6.4 - 1e-6, [False, True]),
        (10.0 - 1e-6, 6.5, [True, False]),
    ],
)
def test_a_publish_may_cost_as_much_as_the_bare_servers_and_a_delivery_four_fifths(
    publish_us: float, delivery_us: float, met: list[bool]
) -> None:
    found = cost.checks(line(publish_us, delivery_us), line(10.0, 8.0))
    assert [check.figure for check in found] == ["CPU per received publish", "CPU per delivered message"]
    assert [check.met for check in found] == met
    assert found[0].measured == f"{publish_us:.1f} us, {publish_us / 10:.2f} times 10.0 us"


@pytest.mark.parametrize("bare", [line(-1.0, 8.0), {fanout: 100.0 / fanout for fanout in FANOUTS}])
def test_costs_that_cannot_be_are_no_comparison(bare: dict[int, float]) -> None:
    with pytest.raises(BenchError, match="was the machine idle"):
        cost.checks(line(10.0, 8.0), bare)


# -- misses


def test_a_miss_may_cost_four_microseconds_more_and_wait_for_nothing() -> None:
    hit = misses.Turn(10.0, 50_000.0)
    # 14 us of CPU allow for 5/7 of the rate; nine tenths of this are enough.
    for miss, met in (
        (misses.Turn(14.0, 32_200.0), [True, True]),
        (misses.Turn(14.1, 32_200.0), [False, True]),
        (misses.Turn(14.0, 32_000.0), [True, False]),
    ):
        found = misses.checks({65_536: (hit, miss)})
        assert [check.met for check in found] == met


def test_in_full_every_power_of_two_from_what_the_cache_does_not_hold_to_the_missions_is_measured() -> None:
    assert misses.sizes(True) == [65_536, 131_072, 262_144, 524_288, 1_048_576, 2_097_152]
    assert misses.sizes(False) == [65_536, 2_097_152]


# -- latency


def in_ns(most_us: int, worst_us: int) -> list[int]:
    """A hundred latencies, sorted; two are the worst."""
    return [most_us * 1000] * 98 + [worst_us * 1000] * 2


@pytest.mark.parametrize(
    ("one", "two", "met"),
    [
        (in_ns(150, 600), in_ns(300, 1200), [True, True, True, True]),
        (in_ns(151, 600), in_ns(300, 1201), [False, True, True, False]),
        (in_ns(150, 601), in_ns(301, 1200), [True, False, False, True]),
    ],
)
def test_one_endpoint_may_take_one_and_a_half_and_two_three_times_the_echos_latency(
    one: list[int], two: list[int], met: list[bool]
) -> None:
    found = latency.checks({"echo": in_ns(100, 400), "one": one, "two": two})
    assert [check.figure for check in found] == [
        *("latency p50, one endpoint", "latency p99, one endpoint"),
        *("latency p50, across two endpoints", "latency p99, across two endpoints"),
    ]
    assert [check.met for check in found] == met
    assert found[0].measured == f"{one[0] / 1000:.0f} us, {one[0] / 100_000:.2f} times 100 us"


@pytest.mark.parametrize("name", ["compiled", "interpreted"])
def test_what_is_measured_is_said_first_and_below_the_table(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(form, "name", lambda: name)
    monkeypatch.setattr(budgets, "BUDGETS", {"speed": lambda full: [Check("speed", "at least 1 m/s", "2 m/s", True)]})
    monkeypatch.setattr("sys.argv", ["budgets", "--out", str(tmp_path / "table.md")])
    assert budgets.main() == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == f"ingeborg {version('ingeborg')}, {name} (endpoints and generators)"
    assert last == f"Measured: {first}."
    assert (tmp_path / "table.md").read_text().endswith(f"|\n\n{last}\n")


def test_a_check_is_shown_on_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    show([Check("speed", "at least 10 m/s", "12 m/s", True), Check("weight", "at most 3 kg", "4 kg", False)])
    assert capsys.readouterr().out == (
        "speed: 12 m/s (goal: at least 10 m/s): met\nweight: 4 kg (goal: at most 3 kg): not met\n"
    )
