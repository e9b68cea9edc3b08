"""Compares the document's rules with the same formulas in fractions, also where a tie decides."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.bench.caching.policies.rules import Buffer, Everything, Mean, Nothing, Rule, Threshold

utilities = st.lists(st.integers(0, 40), max_size=60)
shares = st.integers(0, 10).map(lambda tenths: f"{tenths / 10:.1f}")


def admitted(rule: Rule, found: list[int]) -> list[bool]:
    return [rule.admits(utility) for utility in found]


@given(utilities, shares, shares)
def test_threshold_rises_with_what_comes_in_and_falls_with_what_does_not(
    found: list[int], rise: str, fall: str
) -> None:
    threshold, wanted = Fraction(0), []
    for utility in found:
        wanted.append(utility > threshold)
        threshold += Fraction(rise) * utility if wanted[-1] else -Fraction(fall) * utility
    assert admitted(Threshold(rise, fall), found) == wanted


@given(utilities, st.integers(1, 7))
def test_mean_is_that_of_the_last_whole_batch(found: list[int], batch: int) -> None:
    wanted = []
    for at, utility in enumerate(found):
        whole = (at + 1) // batch * batch
        last = found[whole - batch : whole] if whole else []
        wanted.append(utility > (Fraction(sum(last), batch) if last else 0))
    assert admitted(Mean(batch), found) == wanted


@given(utilities, shares, shares)
def test_buffer_weighs_a_record_and_the_one_before(found: list[int], own: str, before: str) -> None:
    former = [0, *found]
    wanted = [
        utility > Fraction(own) * utility + Fraction(before) * past
        for utility, past in zip(found, former, strict=False)
    ]
    assert admitted(Buffer(own, before), found) == wanted


def test_all_and_nothing() -> None:
    assert admitted(Everything(), [0, 1, 9]) == [True] * 3
    assert admitted(Nothing(), [0, 1, 9]) == [False] * 3


def test_a_record_with_as_many_subscribers_as_the_one_before_does_not_come_in() -> None:
    assert 0.7 * 3 + 0.3 * 3 < 3  # so floats would admit it
    assert admitted(Buffer("0.7", "0.3"), [3, 3, 3]) == [True, False, False]


def test_a_record_that_is_as_large_as_the_mean_does_not_come_in() -> None:
    # 1 + 1 + 2: more than 4/3 is 2, and not 1. 2 + 2 + 2: not more than 2.
    assert admitted(Mean(3), [1, 1, 2, 2, 2, 2, 2]) == [True, True, True, True, True, False, False]


def test_a_tie_with_the_threshold_stays_out_even_in_tenths() -> None:
    # t: 0, then .1 * 3 = .3 thrice raised by tenths of 1: .1 + .1 + .1 is not .3 in floats.
    assert 0.1 + 0.1 + 0.1 != 0.3
    rule = Threshold("0.1", "0.1")
    assert admitted(rule, [10, 1, 1]) == [True, False, True]  # t: 1, .9, 1


@pytest.mark.parametrize(("rise", "fall"), [("0.1", "0.9"), ("0.5", "0.5"), ("0.9", "0.1"), ("1", "3")])
def test_thresholds_hit_rate_is_the_fall_of_both(rise: str, fall: str) -> None:
    found = [(number * 7919) % 101 for number in range(20_000)]
    rule = Threshold(rise, fall)
    hits = sum(utility for utility in found if rule.admits(utility))
    assert hits / sum(found) == pytest.approx(float(Fraction(fall) / (Fraction(rise) + Fraction(fall))), abs=0.001)


@given(utilities.filter(bool))
def test_of_buffers_weights_only_one_ratio_matters(found: list[int]) -> None:
    assert admitted(Buffer("0.7", "0.3"), found) == admitted(Buffer("0.1", "0.9"), found)
    assert admitted(Buffer("0.7", "0.1"), found) == admitted(Buffer("0.1", "0.3"), found)


@given(utilities)
def test_a_batch_of_one_lets_nothing_in_and_one_that_never_ends_all_that_has_anybody(found: list[int]) -> None:
    assert not any(admitted(Mean(1), found))
    assert admitted(Mean(1_000), found) == [utility > 0 for utility in found]
