"""`bench drift --timing`: the report on pairs of times."""

from __future__ import annotations

import pytest

from ingeborg.bench.drift import timing
from ingeborg.bench.errors import BenchError

COSTS = {"publish": 10.0, "delivery": 4.0, "listen": 50.0, "subscribe": 60.0}


def say(found: list[tuple[timing.Costs, timing.Costs]], budget: float = 0.02) -> tuple[int, list[str]]:
    lines: list[str] = []
    return timing.report(found, budget, lines.append), lines


def test_what_costs_the_same_is_within_the_budget() -> None:
    code, lines = say([(COSTS, {name: cost * 1.01 for name, cost in COSTS.items()})] * 5)
    assert code == 0
    assert len(lines) == 1 + len(COSTS)
    assert lines[1].split() == ["received", "publish", "10.00", "10.10", "1.010", "1.010", "to", "1.010"]


def test_what_is_dearer_for_certain_is_named() -> None:
    code, lines = say([(COSTS, {**COSTS, "listen": 52.0}), (COSTS, {**COSTS, "listen": 52.5})] * 5)
    assert code == 1
    assert lines[-1] == "more than 1.02 times as expensive: listen"


def test_what_may_be_noise_is_not_held_against_it() -> None:
    code, _ = say([(COSTS, {**COSTS, "listen": 40.0}), (COSTS, {**COSTS, "listen": 70.0})] * 3)
    assert code == 0


def test_a_cost_of_nothing_is_no_cost() -> None:
    with pytest.raises(BenchError, match="was the machine idle"):
        say([(COSTS, {**COSTS, "delivery": -0.1})] * 5)
