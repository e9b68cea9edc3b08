"""Decisions with each algorithm: the owner of each queue, and the number of members."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.autoscaler.deciding import Group, Rules, decide
from ingeborg.autoscaler.model import Queue
from ingeborg.autoscaler.settings import ALGORITHMS

CAPACITY, FILL = 120.0, 5 / 6


def rules(algorithm: str = "mend", *, least: int = 1, most: int = 100, price: float = 1.0) -> Rules:
    return Rules(algorithm, price, CAPACITY, FILL, least, most)


def group(sizes: list[float], owners: dict[int, int] | None = None, members: tuple[int, ...] = ()) -> Group:
    queues = [Queue("t", number) for number in range(len(sizes))]
    owned = {queues[number]: member for number, member in (owners or {}).items()}
    return Group(dict(zip(queues, sizes, strict=True)), owned, dict.fromkeys(members, CAPACITY), frozenset())


def loads(found: Group, where: dict[Queue, int]) -> dict[int, list[float]]:
    loads: dict[int, list[float]] = {}
    for queue, number in where.items():
        loads.setdefault(number, []).append(found.sizes[queue])
    return loads


SIZES = st.lists(st.floats(0.0, 150.0), min_size=1, max_size=30)
MEMBERS = st.sets(st.integers(1, 12), max_size=8)


@given(st.sampled_from(ALGORITHMS), SIZES, MEMBERS, st.integers(1, 6), st.integers(1, 12), st.randoms())
def test_every_queue_gets_a_member_and_no_member_more_than_its_part(
    algorithm: str, sizes: list[float], members: set[int], least: int, most: int, chance: object
) -> None:
    least = min(least, most)
    numbers = sorted(members)
    owners = {n: chance.choice(numbers) for n in range(len(sizes)) if numbers and chance.random() < 0.7}  # type: ignore[attr-defined]
    found = group(sizes, owners, tuple(numbers))
    decision = decide(found._replace(reserved=frozenset({13, 2} - members)), rules(algorithm, least=least, most=most))
    assert decision.where.keys() == found.sizes.keys()
    used = loads(found, decision.where)
    assert not {13, 2} - members & used.keys()
    assert decision.capped == (decision.members > most)
    assert len(used) <= max(most, 1) or not decision.capped
    if not decision.capped:
        for some in used.values():
            assert len(some) == 1 or math.fsum(some) <= CAPACITY * FILL * (1 + 1e-6)
    assert set(decision.hot) == {queue for queue, size in found.sizes.items() if size > CAPACITY * (1 + 1e-9)}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_members_that_are_there_get_something_before_a_new_one_is_wanted(algorithm: str) -> None:
    decision = decide(group([90.0, 90.0, 90.0], members=(4, 7)), rules(algorithm))
    assert sorted(decision.where.values()) == [1, 4, 7]


def test_nothing_moves_that_need_not() -> None:
    owners = {0: 3, 1: 3, 2: 5, 3: 5}
    decision = decide(group([40.0, 40.0, 50.0, 45.0], owners, (3, 5)), rules())
    assert list(decision.where.values()) == [3, 3, 5, 5]


@pytest.mark.parametrize(("sizes", "counts"), [([10.0] * 16, [4, 4, 4, 4]), ([0.0] * 8, [2, 2, 2, 2])])
def test_with_a_least_number_each_of_so_many_gets_its_part(sizes: list[float], counts: list[int]) -> None:
    decision = decide(group(sizes), rules(least=4))
    assert sorted(map(len, loads(group(sizes), decision.where).values())) == counts


def test_at_most_so_many_are_levelled_and_stay_so() -> None:
    found = group([50.0, 50.0, 50.0, 40.0, 40.0, 40.0, 30.0, 30.0])
    decision = decide(found, rules(most=3))
    assert decision.capped
    assert decision.members > 3
    sums = sorted(math.fsum(some) for some in loads(found, decision.where).values())
    assert sums[-1] <= CAPACITY
    again = decide(found._replace(owners=decision.where, members=dict.fromkeys((1, 2, 3), CAPACITY)), rules(most=3))
    assert again.where == decision.where


def test_what_is_too_much_for_anybody_is_alone() -> None:
    found = group([500.0, 10.0, 10.0])
    decision = decide(found, rules())
    assert decision.hot == (Queue("t", 0),)
    assert sorted(map(len, loads(found, decision.where).values())) == [1, 2]


def test_a_member_that_can_take_more_gets_more() -> None:
    found = group([90.0, 90.0], members=(1, 2))._replace(members={1: CAPACITY, 2: 2 * CAPACITY})
    decision = decide(found, rules("bfd"))
    assert list(decision.where.values()) == [1, 2]
    found = group([150.0, 90.0], members=(1, 2))._replace(members={1: CAPACITY, 2: 2 * CAPACITY})
    decision = decide(found, rules())
    assert decision.where[Queue("t", 0)] == 2
    assert decision.hot == ()
