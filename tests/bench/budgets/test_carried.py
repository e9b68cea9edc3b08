"""`ingeborg.bench.budgets.carried`: the judgements and the output."""

from __future__ import annotations

import pytest

from ingeborg.bench.budgets import carried
from ingeborg.bench.budgets.carried import Carried, Json
from ingeborg.bench.errors import BenchError

FAIR = {
    "ingeborg": Carried(1_001.0, 2.6, 0),
    "ingeborg, lines": Carried(2_002.0, 2.0, 0),
    "nats": Carried(1_000.0, 2.0, 5),
    "nats-current": Carried(990.0, 2.0, 0),
    carried.LAYERED: Carried(100.0, 16.0, 0),
}


def test_what_is_wanted_is_met_at_the_bound() -> None:
    found = carried.checks(FAIR)
    assert [check.met for check in found] == [True] * 7
    assert found[0].measured == "1,001/s, 1.00 times 1,000/s (lost 5)"
    assert found[2].measured == "2.60 us, 1.30 times 2.00 us"
    assert [check.goal for check in found[3:6]] == [
        "at most 1.3 times the rival's",
        "at most 1/6 of the rival's",
        "at most 1/8 of the rival's",
    ]


@pytest.mark.parametrize(
    ("system", "figures", "not_met"),
    [
        ("ingeborg", Carried(1_000.0, 2.6, 0), [0]),
        ("ingeborg", Carried(980.0, 2.6, 0), [0, 1]),
        ("ingeborg", Carried(1_001.0, 2.61, 0), [2, 3]),
        ("ingeborg", Carried(1_001.0, 2.6, 1), [0, 1]),
        (carried.LAYERED, Carried(100.0, 15.5, 0), [4, 5]),
        ("ingeborg, lines", Carried(2_002.0, 2.1, 0), [5]),
        ("ingeborg, lines", Carried(500.0, 2.0, 1), [6]),
    ],
)
def test_what_is_not_met_is_told(system: str, figures: Carried, not_met: list[int]) -> None:
    found = carried.checks(FAIR | {system: figures})
    assert [number for number, check in enumerate(found) if not check.met] == not_met


def a_run(system: str, rate: float, server_us: float | None, lost: int = 0, *, held: bool = True) -> Json:
    phase = {
        "kind": "sustained",
        "measured": held,
        "reports_per_s": rate,
        "delivered_per_s": 5 * rate,
        "cpu_us_per_delivered": {"server": server_us},
    }
    return {"run": "r", "facts": {"variant": system}, "phases": [phase], "measured": {"lost": lost}}


def test_figures_are_medians_by_system_and_losses_are_added_up() -> None:
    runs = [a_run("nats", rate, us, lost) for rate, us, lost in ((10.0, 3.0, 1), (30.0, 1.0, 2), (20.0, 2.0, 0))]
    assert carried.carried([*runs, a_run(carried.LAYERED, 1.0, 9.0)]) == {
        "nats": Carried(120.0, 2.0, 3),
        carried.LAYERED: Carried(6.0, 9.0, 0),
    }


def test_a_turn_in_which_no_rate_was_held_is_one_of_no_messages() -> None:
    runs = [a_run("nats", 10.0, 3.0), a_run("nats", 1.0, None, 2, held=False), a_run("nats", 30.0, 1.0)]
    found = carried.carried(runs)["nats"]
    assert found == Carried(60.0, 2.0, 2, 1)
    checks = carried.checks(FAIR | {"nats": found})
    assert checks[0].measured.endswith("60/s (lost 2) (1 turns in which no rate met the limit)")


def test_a_system_that_held_no_rate_or_whose_cpu_nobody_knows_is_no_figure() -> None:
    with pytest.raises(BenchError, match="no rate"):
        carried.carried([a_run("nats", 1.0, 1.0, held=False)])
    with pytest.raises(BenchError, match="CPU is unknown"):
        carried.carried([a_run("nats", 1.0, None)])
