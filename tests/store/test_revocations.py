"""The record of revoked tokens: additions, its limit, and the error when it is full."""

from __future__ import annotations

import pytest

from ingeborg.broker.core.clients.revocations import KEPT_S
from ingeborg.broker.core.model import JTI, SUB, Revocation, TooManyRevocations
from ingeborg.broker.store.revocations import REVOCATIONS_MAX, recorded, union, unpacked

NOW = 1_800_000_000.0


def token(number: int, seconds: int = 100) -> Revocation:
    return Revocation(JTI, f"t{number:05}", 0, int(NOW) + seconds)


FULL = [token(number, 100 + number) for number in range(REVOCATIONS_MAX)]


def test_of_two_of_one_thing_the_later_times_are_recorded() -> None:
    first, second = Revocation(SUB, "ann", 5, int(NOW) + 9), Revocation(SUB, "ann", 7, int(NOW) + 1)
    assert recorded([first], [second], NOW) == [Revocation(SUB, "ann", 7, int(NOW) + 9)]
    assert recorded([second], [first, first], NOW) == union([first], [second])
    # An id and a subject with the same text are two revocations.
    assert len(recorded([first], [Revocation(JTI, "ann", 0, int(NOW))], NOW)) == 2


def test_what_is_over_goes_at_the_next_write() -> None:
    over, lasting = token(1, -int(KEPT_S)), token(2, -int(KEPT_S) + 1)
    assert recorded([over, lasting], [], NOW) == [lasting]
    assert recorded([], [over], NOW) == []


def test_one_too_many_is_refused_with_a_word_on_when_there_is_room() -> None:
    assert recorded(FULL[1:], FULL[:1], NOW) == FULL
    with pytest.raises(TooManyRevocations, match=r"4,096 revocations .* 2027-01-15 08:02:40 UTC\. Revoke a subject"):
        recorded(FULL, [token(70_000)], NOW)
    assert recorded(FULL, [token(3, 9_000)], NOW)[3] == token(3, 9_000)  # the number stays the same
    assert len(recorded(FULL, [token(70_000, 9_000)], NOW + 100 + KEPT_S)) == REVOCATIONS_MAX  # the first has expired


def test_two_records_of_a_cut_are_merged_whole_and_then_take_no_more() -> None:
    others = [token(number + 50_000) for number in range(REVOCATIONS_MAX)]
    merged = union(FULL, others)
    assert len(merged) == 2 * REVOCATIONS_MAX
    assert recorded(merged, [others[0]], NOW) == merged
    with pytest.raises(TooManyRevocations):
        recorded(merged, [token(99_999)], NOW)


@pytest.mark.parametrize(
    "value", [None, {}, [["jti", "t", 0]], [["kid", "t", 0, 1]], [["jti", 1, 0, 1]], [["sub", "t", 0.5, 1]], [7]]
)
def test_what_is_no_record_is_said_to_be_none(value: object) -> None:
    with pytest.raises(ValueError, match="record of revocations"):
        unpacked(value)
