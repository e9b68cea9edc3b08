"""A client's credit: what is confirmed, and when."""

from __future__ import annotations

import pytest

from ingeborg.protocol.credit import Credit


@pytest.mark.parametrize(
    ("window", "confirmed"),
    [(1, [1, 2, 3, 4, 5, 6, 7]), (3, [1, 2, 3, 4, 5, 6, 7]), (4, [2, 4, 6]), (5, [2, 4, 6]), (6, [3, 6]), (100, [])],
)
def test_half_a_window_is_confirmed_at_a_time(window: int, confirmed: list[int]) -> None:
    credit = Credit(window)
    counts = [credit.processed() for _ in range(7)]
    assert [count for count in counts if count is not None] == confirmed


def test_what_waits_from_a_former_connection_does_not_count_on_the_next() -> None:
    credit = Credit(2)
    assert [credit.processed() for _ in range(3)] == [1, 2, 3]
    credit.begins(waiting=2)
    assert [credit.processed() for _ in range(4)] == [None, None, 1, 2]
