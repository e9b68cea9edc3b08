"""Revoked tokens: the map against a naive reading of all revocations that it got."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.clients.revocations import KEPT_S, Revocations, is_over, later
from ingeborg.broker.core.connections.grants import Grant
from ingeborg.broker.core.model import JTI, SUB, Revocation

NOW = 1_800_000_000.0
SECONDS = st.integers(int(NOW) - 100, int(NOW) + 100)
NAMES = st.sampled_from(["ann", "gw-*", "gw-7", "t1"])
REVOCATIONS = st.builds(Revocation, st.sampled_from([JTI, SUB]), NAMES, SECONDS, SECONDS).map(
    lambda one: one._replace(issued_until=0) if one.claim == JTI else one
)


def grant(client: str = "ann", jti: str | None = None, issued_at: float | None = None) -> Grant:
    return Grant(client, (), (), False, NOW + 60, jti=jti, issued_at=issued_at)


GRANTS = st.builds(
    grant,
    NAMES,
    st.none() | NAMES,
    st.none() | SECONDS.map(float) | st.floats(NOW - 100, NOW + 100),
)


def naive(told: list[Revocation], unix_s: float, one: Grant) -> bool:
    """Does one of these revocations name the token, in the words of SPEC section 2.4?"""
    lasting = [each for each in told if each.expires_at + KEPT_S > unix_s]
    if any(each.claim == JTI and each.value == one.jti for each in lasting):
        return True
    if one.issued_at is None:
        return any(each.claim == SUB and each.value == one.client for each in lasting)
    # A token issued in the second of a revocation, or before. An expired revocation names no token, and hides no other
    # one.
    return any(
        each.claim == SUB and each.value == one.client and math.floor(one.issued_at) <= each.issued_until
        for each in lasting
    )


@given(st.lists(REVOCATIONS, max_size=12), GRANTS)
def test_a_grant_is_named_if_any_revocation_names_it(told: list[Revocation], one: Grant) -> None:
    known = Revocations()
    for each in told:
        named = known.names(one)
        assert known.add([each], NOW) >= (known.names(one) and not named)
    assert known.names(one) is naive(told, NOW, one)
    assert len(known) == len({(each.claim, each.value) for each in told if not is_over(each, NOW)})


@given(st.lists(REVOCATIONS, max_size=12), st.randoms(), GRANTS)
def test_the_order_means_nothing_and_neither_does_a_repetition(
    told: list[Revocation], random: object, one: Grant
) -> None:
    first, second = Revocations(), Revocations()
    first.add(told, NOW)
    shuffled = [*told, *told]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    second.add(shuffled, NOW)
    assert (first._ids, first._subjects) == (second._ids, second._subjects)
    assert first.names(one) is second.names(one)
    assert not second.add(told, NOW)


@given(st.lists(REVOCATIONS, max_size=12), st.integers(0, 300), GRANTS)
def test_what_is_over_is_forgotten_and_nothing_else(told: list[Revocation], seconds: int, one: Grant) -> None:
    known, fresh = Revocations(), Revocations()
    known.add(told, NOW - 300)
    before = known.names(one)
    known.forget(NOW + seconds)
    assert all(not is_over(each, NOW + seconds) for each in (*known._ids.values(), *known._subjects.values()))
    fresh.add(told, NOW + seconds)
    assert fresh.names(one) <= known.names(one) <= before


@given(REVOCATIONS, REVOCATIONS, REVOCATIONS)
def test_of_two_the_later_times_are_true(one: Revocation, other: Revocation, third: Revocation) -> None:
    other, third = (each._replace(claim=one.claim, value=one.value) for each in (other, third))
    assert later(one, other) == later(other, one)
    assert later(later(one, other), third) == later(one, later(other, third))
    assert later(one, one) == one
    assert later(one, other).expires_at == max(one.expires_at, other.expires_at)


def test_the_second_of_the_revocation_is_included_and_who_logs_in_after_it_is_not_named() -> None:
    known = Revocations()
    assert known.add([Revocation(SUB, "ann", int(NOW), int(NOW) + 10)], NOW)
    assert known.names(grant(issued_at=NOW))
    assert known.names(grant(issued_at=NOW + 0.999))
    assert not known.names(grant(issued_at=NOW + 1))
    assert known.names(grant())  # without a time of issue it can be of any age


def test_a_gateways_subject_is_that_string_and_not_what_ids_begin_with() -> None:
    known = Revocations()
    known.add([Revocation(SUB, "gw-*", int(NOW), int(NOW) + 10)], NOW)
    assert known.names(grant("gw-*"))
    assert not known.names(grant("gw-7"))


def test_it_is_remembered_a_minute_longer_than_it_says() -> None:
    revocation = Revocation(JTI, "t1", 0, int(NOW))
    assert not is_over(revocation, NOW + KEPT_S - 0.1)
    assert is_over(revocation, NOW + KEPT_S)
