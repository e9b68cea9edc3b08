"""The document's world, and its figures from an earlier computation (seed 1)."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

import pytest

from ingeborg.bench.caching.policies.rules import Buffer, Everything, Mean, Nothing, Rule, Threshold
from ingeborg.bench.caching.replay import unbounded
from ingeborg.bench.caching.restaurants import KINDS, SIZES, stream, world

from . import naive, small


def found(rule: Rule, exponent: float = 1.0) -> dict[str, float]:
    return asdict(unbounded(world(10_000, 1, exponent).utilities, rule))


def test_there_are_24_kinds_and_the_documents_bitmaps_are_two_of_them() -> None:
    assert len(KINDS) == len(set(KINDS)) == 24
    assert KINDS.index(("McDonald's", "Burger", 30)) == 0b10 * 6 + 0b0 * 3 + 0b01  # 10001: R2, F0, D1
    assert KINDS.index(("PizzaHut", "Pizza", 50)) == 0b00 * 6 + 6 + 0b1 * 3 + 0b10
    assert SIZES[0] == len('{"restaurant":"Dominos","food":"Burger","discount":70}')


def test_a_longer_run_begins_with_a_shorter_one() -> None:
    short, long = world(500, 7), world(2_000, 7)
    assert (long.chosen, long.published[:500]) == (short.chosen, short.published)
    assert sum(Counter(short.chosen).values()) == 1_000


def test_everybody_reads_each_record_that_it_wants() -> None:
    made = world(200, 1)
    reading = stream(made, 1)
    wanted = [utility for utility in made.utilities if utility]
    assert list(reading.readers) == wanted
    assert len(reading.events) == len(wanted) + sum(wanted)


def test_a_stream_is_the_same_for_the_same_seed() -> None:
    """Pinned, because published figures depend on this."""
    assert small.digest(stream(world(500, 1), 1)) == "b001e05af7dd1928"


@pytest.mark.parametrize(("rise", "fall", "rate"), [("0.9", "0.1", 0.1), ("0.5", "0.5", 0.5), ("0.1", "0.9", 0.9)])
def test_thresholds_hit_rate_is_mu_of_lambda_and_mu(rise: str, fall: str, rate: float) -> None:
    assert naive.by_read(found(Threshold(rise, fall))) == pytest.approx(rate, abs=0.01)


@pytest.mark.parametrize(
    ("rule", "rate"),
    [(Nothing(), 0.0), (Everything(), 1.0), (Buffer(), 0.724), (Mean(), 0.706), (Mean(1), 0.0), (Mean(20_000), 1.0)],
)
def test_hit_rates_by_read(rule: Rule, rate: float) -> None:
    assert naive.by_read(found(rule)) == pytest.approx(rate, abs=0.01)


@pytest.mark.parametrize(("batch", "rate"), [(3, 0.706), (100, 0.619), (1_000, 0.655)])
def test_over_batches_the_hit_rate_is_not_monotone(batch: int, rate: float) -> None:
    assert naive.by_read(found(Mean(batch))) == pytest.approx(rate, abs=0.01)


def test_without_skew_mean_leads() -> None:
    assert naive.by_read(found(Mean(), 0.0)) == pytest.approx(0.546, abs=0.01)
    assert naive.by_read(found(Buffer(), 0.0)) == pytest.approx(0.507, abs=0.01)


@pytest.mark.parametrize(("rule", "factor"), [(Threshold(), 100), (Mean(), 72), (Buffer(), 64), (Everything(), 41)])
def test_duplication_factors(rule: Rule, factor: float) -> None:
    assert naive.duplication(found(rule)) == pytest.approx(factor, abs=0.5)


def test_copies_per_record_and_by_record() -> None:
    outcome = found(Threshold())
    assert naive.copies(outcome) == pytest.approx(naive.duplication(outcome) * outcome["by_record"])
    assert naive.copies(outcome) == pytest.approx(0.5 * naive.copies(found(Everything())), rel=0.01)
    assert naive.duplication(found(Nothing())) == 0.0
