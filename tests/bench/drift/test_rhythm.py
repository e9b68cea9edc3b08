"""Ticks are taken off a profile, and each figure gets its share of the ticks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.bench.drift.profile import Profile
from ingeborg.bench.drift.rhythm import Rhythm, rhythm
from ingeborg.bench.errors import BenchError

TICK, STORED = "CPyDef_router___Router___tick", "CPyDef_core___router___Router___stored"


def idle(ticks: int, answers: int, *, tick: float = 100.0, answer: float = 40.0, more: float = 0.0) -> Profile:
    return Profile(ticks * tick + answers * answer + more, {}, {TICK: ticks, STORED: answers, "other": 7}, {})


@given(st.floats(1_000, 200_000), st.floats(1_000, 200_000))
def test_both_are_found_from_stretches_of_several_lengths(tick: float, answer: float) -> None:
    stretches = [idle(ticks, answers, tick=tick, answer=answer) for ticks, answers in ((7, 4), (11, 4), (9, 2))]
    found = rhythm(stretches)
    assert found.tick == pytest.approx(tick)
    assert found.answer == pytest.approx(answer)
    assert found.answers == pytest.approx(10 / 27)


def test_a_second_has_ten_ticks_and_a_message_a_thousandth_of_it() -> None:
    found = Rhythm(tick=100.0, answer=40.0, answers=0.5)
    assert found.second == pytest.approx(1_200)
    assert found.share == pytest.approx(1.2)


def test_nothing_is_left_of_an_idle_endpoint() -> None:
    found = rhythm([idle(7, 4), idle(11, 4), idle(9, 2)])
    assert found.without(idle(20, 5)) == pytest.approx(0)
    assert found.without(idle(20, 5, more=1_000)) == pytest.approx(1_000)


def test_a_tick_among_messages_is_taken_off_with_its_part_of_the_signs_of_life() -> None:
    found = Rhythm(tick=100.0, answer=40.0, answers=0.5)
    assert found.without_ticks(idle(2, 30)) == pytest.approx(2 * 100 + 30 * 40 - 2 * 120)


def test_where_answers_come_in_step_with_ticks_all_is_the_ticks() -> None:
    found = rhythm([idle(10, 4), idle(20, 8)])
    assert found.tick == pytest.approx(116)
    assert (found.answer, found.answers) == (0.0, 0.0)


def test_an_endpoint_that_does_not_tick_is_none() -> None:
    with pytest.raises(BenchError, match="did not tick"):
        rhythm([idle(0, 3)])
