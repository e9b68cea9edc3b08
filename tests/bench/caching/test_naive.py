"""Figures use the better way of a policy, over the seeds, and a broker could have the rivals of `owed`."""

from __future__ import annotations

from typing import Any

import pytest

from ingeborg.bench.caching.found import Stream

from . import naive
from .naive import Reads, better

Row = dict[str, Any]

STREAM = Stream("zipf 1", 3_600.0, 16.0, 0.1)


def row(policy: str, seed: int, hits: float, **more: Any) -> Row:
    """Return a row of a hundred reads."""
    return {"kind": "reads", "seed": seed, "policy": policy, "reads": 100, "hits": hits, **STREAM._asdict(), **more}


def ways(policy: str, told: bool, plain: tuple[int, int], reading_in: tuple[int, int]) -> list[Row]:
    """Return rows of two seeds in two ways."""
    return [
        row(policy, seed, hits, reads_in=reads_in, told=told, by_record=hits / 200)
        for reads_in, each in ((False, plain), (True, reading_in))
        for seed, hits in enumerate(each, 1)
    ]


ROWS = [
    *ways("lru", False, (10, 30), (25, 20)),
    *ways("lru", True, (40, 42), (10, 10)),
    *ways("mean", False, (22, 22), (30, 10)),
    *ways("owed", True, (50, 54), (56, 52)),
    *ways("owed inflated", True, (99, 99), (99, 99)),
    row("belady", 1, 70, reads_in=True, told=True, by_record=0.5),
    row("belady", 2, 72, reads_in=True, told=True, by_record=0.5),
    row("bound", 1, 80),
    row("bound", 2, 80),
    row("ceiling", 1, 55.5),
    row("ceiling", 2, 54.5),
]


def test_the_better_way_is_the_one_with_more_hits_on_average_over_all_seeds() -> None:
    best = better(ways("lru", False, (10, 30), (25, 20)))
    assert best.reads_in
    assert best.rate() == pytest.approx((0.225, 12.706 * 0.05 / 2))
    assert best.rate(naive.by_record)[0] == pytest.approx(0.1125)
    assert not better(ways("mean", False, (20, 20), (30, 10))).reads_in  # equal: no record comes in again


def test_owed_is_set_beside_the_best_other_that_is_not_told_or_is() -> None:
    reads = Reads(ROWS)
    assert reads.streams == [STREAM]
    assert reads.policies(STREAM) == ["lru", "mean", "owed", "owed inflated", "belady", "bound", "ceiling"]
    ahead = reads.ahead(STREAM)
    assert ahead.other == "lru"  # .225 is more than .22
    assert ahead.rate == pytest.approx((0.315, 12.706 * 0.01 / 2))  # 31 and 32 points
    told = reads.ahead(STREAM, told=True)
    assert told.other == "lru"
    assert told.rate[0] == pytest.approx(0.13)
    assert reads.ahead(STREAM, value=naive.by_record).rate[0] == pytest.approx(0.1575)


def test_a_difference_is_of_the_seeds_that_both_have() -> None:
    rows = [each for each in ROWS if each["policy"] == "owed" or each["seed"] == 1]
    assert Reads(rows).ahead(STREAM).rate == pytest.approx((0.26, 0.0))
    assert Reads(rows).ahead(STREAM, told=True).rate == pytest.approx((0.16, 0.0))


def test_what_nobody_can_have_is_shown_and_has_no_ways() -> None:
    reads = Reads(ROWS)
    found = {name: reads.best(STREAM, name) for name in ("belady", "bound", "ceiling")}
    assert {name: best.rate()[0] for name, best in found.items() if best is not None} == pytest.approx(
        {"belady": 0.71, "bound": 0.8, "ceiling": 0.55}
    )
    assert reads.best(STREAM, "mean", told=True) is None


def test_the_documents_figures_are_by_policy_parameters_and_records() -> None:
    def one(records: int, seed: int, reads_in: bool, hits: int, cached: int) -> Row:
        facts = {"kind": "document", "policy": "mean", "parameters": "3", "records": records, "share": None}
        return facts | {"seed": seed, "reads_in": reads_in, "reads": 80, "hits": hits, "cached": cached, "copies": 60}

    rows = [one(20, 1, False, 8, 30), one(20, 2, False, 16, 60), one(20, 1, True, 8, 1), one(20, 2, True, 8, 1)]
    rows += [one(40, 1, False, 40, 0), one(40, 1, False, 40, 0) | {"share": 0.1}]
    found = naive.document(rows, naive.by_read, share=None, reads_in=False)
    assert found == {("mean", "3"): {20: (pytest.approx(0.15), pytest.approx(0.6353)), 40: (0.5, 0.0)}}
    duplication = naive.document(rows, naive.duplication, share=None, reads_in=False)["mean", "3"]
    assert (duplication[20][0], duplication[40][0]) == (1.5, 0.0)  # 0 without a record in memory
    assert naive.document(rows, naive.duplication, share=None, reads_in=True)["mean", "3"][20][0] == 60.0
    assert naive.document(rows, naive.copies, share=None, reads_in=False)["mean", "3"][20][0] == 3.0
    assert naive.document(rows, naive.by_read, share=0.2) == {}
