"""Figures derived from others, and their report."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ingeborg.bench.drift import cases, whole
from ingeborg.bench.drift.cases import Case
from ingeborg.bench.drift.figures import Figure, Pair, difference, pairs
from ingeborg.bench.drift.profile import Profile
from ingeborg.bench.drift.report import report
from ingeborg.bench.drift.rhythm import Rhythm
from ingeborg.bench.drift.whole import Window

NONE: Mapping[str, float] = {}

#: A script that no test runs.
NOTHING = cases.duplicates


def figure(each: float, own: Mapping[str, float] = NONE, *, judged: bool = True) -> Figure:
    return Figure("publish", each, own, judged)


def pair(base: Figure | None, here: Figure | None) -> Pair:
    return Pair("publish", base, here)


def say(*rows: Pair, budget: float = 0.01, functions: int = 8) -> tuple[int, list[str]]:
    lines: list[str] = []
    return report([("whole endpoints", rows)], budget, functions, lines.append), lines


def test_a_figure_of_both_has_its_ratio() -> None:
    code, lines = say(pair(figure(100_000), figure(100_900)))
    assert code == 0
    assert lines[2].split() == ["publish", "100,000", "100,900", "1.009"]


def test_what_is_over_the_budget_is_named_and_is_exit_code_1() -> None:
    code, lines = say(pair(figure(100_000), figure(101_100)))
    assert code == 1
    assert lines[2].split()[-2:] == ["1.011", "over"]
    assert lines[-1] == "more than 1.01 times as expensive: publish (whole endpoints)"


def test_what_is_cheaper_is_never_over() -> None:
    assert say(pair(figure(100_000), figure(50_000)), budget=0.0)[0] == 0


def test_what_is_not_there_is_said_and_is_no_fault() -> None:
    code, lines = say(pair(None, figure(17_000)))
    assert code == 0
    assert lines[2].split() == ["publish", "not", "there", "17,000"]


def test_what_the_working_tree_has_lost_is_named_and_is_exit_code_1() -> None:
    code, lines = say(pair(figure(17_000), None))
    assert code == 1
    assert lines[-1] == "no longer exists: publish (whole endpoints)"


def test_a_part_of_other_figures_is_not_judged_by_itself() -> None:
    code, lines = say(pair(figure(100, judged=False), figure(200, judged=False)))
    assert code == 0
    assert lines[2].split()[-1] == "2.000"


def test_the_functions_of_a_difference_are_shown_with_their_names() -> None:
    base = figure(10_000, {"CPyDef_dedup___Dedup___add": 700, "malloc": 300, "CPyDef_wire___decode": 5})
    here = figure(10_400, {"CPyDef_dedup___Dedup___add": 900, "malloc": 200, "CPyDef_wire___decode": 6, "memset": 300})
    _, lines = say(pair(base, here), functions=3)
    shown = [line.split() for line in lines if "  dedup." in line or "malloc" in line or "memset" in line]
    assert shown == [
        ["0", "300", "+300", "memset"],
        ["700", "900", "+200", "dedup.Dedup.add"],
        ["300", "200", "-100", "malloc"],
    ]
    assert not any("wire.decode" in line for line in lines)


def test_functions_are_not_shown_of_what_has_not_changed_nor_where_nobody_wants_them() -> None:
    same = pair(figure(10_000, {"malloc": 300}), figure(10_001, {"malloc": 310}))
    assert len(say(same)[1]) == 3
    changed = pair(figure(10_000, {"malloc": 300}), figure(10_050, {"malloc": 350}))
    assert len(say(changed)[1]) > 3
    assert len(say(changed, functions=0)[1]) == 3


def test_a_difference_is_divided_with_its_functions() -> None:
    found = difference("each further", figure(120, {"a": 60, "b": 1}), figure(20, {"a": 10, "c": 5}), 10)
    assert found == Figure("each further", 10, {"a": 5, "b": 0.1, "c": -0.5})
    assert difference("each further", None, figure(20)) is None


def test_pairs_are_side_by_side() -> None:
    assert pairs([figure(1), None], [figure(2), figure(3)], ["a", "b"]) == [
        Pair("a", figure(1), figure(2)),
        Pair("b", None, figure(3)),
    ]
    assert pairs([None], [figure(3)], ["b"])[0].ratio is None


def test_publishes_have_what_they_leave_for_later_and_a_hop_has_it_once() -> None:
    costs = {cases.ALONE: 100.0, cases.CHUNK: 60.0, cases.MANY: 98.0, cases.HOP: 260.0, cases.LATER: 4.0}
    found = whole.together({name: Figure(name, each, {}) for name, each in costs.items()})
    by_name = dict(zip(whole.NAMES, found, strict=True))
    each = {name: None if figure is None else figure.each for name, figure in by_name.items()}
    assert each[cases.ALONE] == 104.0
    assert each[cases.CHUNK] == 64.0
    assert each[cases.FURTHER] == pytest.approx(2.0)
    assert each[cases.HOP] == 160.0
    assert each[cases.HOP_CHUNK] is None
    assert each[cases.RECOVERY] is None


REST = Rhythm(tick=100.0, answer=0.0, answers=0.0)


def profile(total: float, ticks: int, own: Mapping[str, float] = NONE) -> Profile:
    return Profile(total, own, {"CPyDef_router___Router___tick": ticks}, {})


def window(total: float, ticks: int, own: Mapping[str, float] = NONE, times: int = 10) -> Window:
    return Window(times, [profile(total, ticks, own)])


async def test_the_dearest_and_the_cheapest_window_do_not_count() -> None:
    case = Case("listen", NOTHING, 10, 1)
    windows = [window(1_000, 0, {"f": 10}), window(9_000, 0, {"f": 900}), window(1_130, 1, {"f": 30}), window(10, 0)]
    found = whole.middle(case, windows, [REST])
    assert found.each == pytest.approx((1_000 + 1_030) / 2 / 10 + REST.share)
    assert found.own == {"f": pytest.approx(2)}
    assert found.judged


async def test_what_was_done_oftener_than_asked_for_is_divided_by_how_often() -> None:
    case = Case("recovery", cases.recoveries, 10, 1)
    windows = [window(1_000, 0, {"f": 20}), window(1_300, 0, {"f": 26}, times=13), window(1_000, 0)]
    found = whole.middle(case, windows, [REST])
    assert found.each == pytest.approx(100 + REST.share)


async def test_what_is_counted_at_rest_has_no_share_and_is_a_part_of_others() -> None:
    case = Case("later", NOTHING, 10, 1, rests=True)
    found = whole.middle(case, [window(1_000 + 20 * 100, 20)] * 3, [REST])
    assert found == Figure("later", 100.0, {}, judged=False)


async def test_both_endpoints_of_a_hop_count() -> None:
    case = Case("hop", NOTHING, 10, 1)
    both = [profile(500, 0, {"f": 10}), profile(300, 0, {"f": 5})]
    found = whole.middle(case, [Window(10, both)] * 3, [REST, REST])
    assert found.each == pytest.approx(80 + 2 * REST.share)
    assert found.own == {"f": pytest.approx(1.5)}
