"""`ingeborg.bench.budgets.hops`: the figures of a hop from a digest, and the judgements."""

from __future__ import annotations

from typing import Any

import pytest

from ingeborg.bench.budgets import hops
from ingeborg.bench.budgets.hops import Cost
from ingeborg.bench.errors import BenchError


def run_of(delivered_us: float | None, *, delivered: float = 400.0, published: float = 100.0, lost: int = 0) -> Any:
    """Return a run as a digest has it, with that CPU for each delivered message."""
    phase = {
        "kind": "run",
        "cpu_us_per_delivered": {"server": delivered_us},
        "delivered_per_s": delivered,
        "reports_per_s": published,
    }
    return {"run": "r", "phases": [phase], "measured": {"lost": lost}}


def test_costs_are_medians_per_publish_of_turns_of_one_and_two_endpoints() -> None:
    runs = [run_of(us, lost=lost) for us, lost in ((1, 0), (5, 0), (9, 0), (4, 2), (2, 0), (6, 0))]
    assert hops.costs(runs, 3) == {1: Cost(8.0, 0), 2: Cost(20.0, 2)}


def test_a_run_without_its_servers_cpu_is_no_figure() -> None:
    with pytest.raises(BenchError, match="CPU is unknown"):
        hops.costs([run_of(1.0), run_of(None)], 1)


@pytest.mark.parametrize(
    ("two_us", "lost", "speed", "met"), [(20, 0, 1, True), (21, 0, 1, False), (20, 1, 1, False), (34, 0, 0.5, True)]
)
def test_a_hop_is_what_two_cost_beyond_one_and_loses_nothing(two_us: float, lost: int, speed: float, met: bool) -> None:
    check = hops.hop_check({1: Cost(5.0, 0), 2: Cost(two_us, lost)}, speed)
    assert check.met is met
    assert f"{two_us - 5:.1f} us" in check.measured
    assert ("lost" in check.measured) is bool(lost)


@pytest.mark.parametrize(("two_us", "gain", "met"), [(15.0, "1.33", True), (20.0, "1.00", False)])
def test_two_with_a_core_each_carry_twice_the_ratio_of_their_costs(two_us: float, gain: str, met: bool) -> None:
    check = hops.traffic_check({1: Cost(10.0, 0), 2: Cost(two_us, 0)})
    assert check.met is met
    assert check.measured.startswith(f"{gain} times")
