"""The contract's rules for revoked tokens, on every store of ``conftest.ALL``."""

from __future__ import annotations

import asyncio
import time

import pytest

from ingeborg.broker.core.model import JTI, SUB, Revocation
from ingeborg.broker.store.base import Store, StoreUnavailable, TooManyRevocations
from ingeborg.broker.store.revocations import REVOCATIONS_MAX
from tests.contract.conftest import OpenStore

LATER = int(time.time()) + 3_600
TOKEN, SUBJECT = Revocation(JTI, "t-1", 0, LATER), Revocation(SUB, "ann", 1_700_000_000, LATER)


async def test_a_new_store_has_none(store: Store) -> None:
    assert await store.revocations() == []
    await store.revoke([])
    assert await store.revocations() == []


async def test_what_is_revoked_is_so_at_every_handle_and_the_later_times_are_true(store: Store, other: Store) -> None:
    await store.revoke([TOKEN, SUBJECT])
    for _ in range(2):
        assert sorted(await other.revocations()) == [TOKEN, SUBJECT]
        await other.revoke([SUBJECT, TOKEN._replace(expires_at=LATER - 5)])
    await other.revoke([SUBJECT._replace(issued_until=1_700_000_009, expires_at=LATER - 1)])
    assert sorted(await store.revocations()) == [TOKEN, SUBJECT._replace(issued_until=1_700_000_009)]


async def test_what_is_revoked_survives_that_every_handle_is_closed(open_store: OpenStore) -> None:
    first = await open_store()
    await first.revoke([TOKEN])
    await first.close()
    again = await open_store()
    assert await again.revocations() == [TOKEN]


async def test_several_may_revoke_at_once_and_none_is_lost(store: Store, other: Store) -> None:
    for turn in range(5):
        tokens = [Revocation(JTI, f"é{turn}-{number}", 0, LATER) for number in range(20)]
        await asyncio.gather(*((store, other)[number % 2].revoke([token]) for number, token in enumerate(tokens)))
        assert set(tokens) <= set(await store.revocations())
        assert set(await store.revocations()) == set(await other.revocations())


async def test_one_too_many_is_refused_and_changes_nothing(store: Store, other: Store) -> None:
    longest = "x" * 123
    tokens = [Revocation(JTI, f"{longest}{number:05}", 0, LATER) for number in range(REVOCATIONS_MAX)]
    await store.revoke(tokens)
    with pytest.raises(TooManyRevocations, match="4,096 revocations that have not expired"):
        await other.revoke([SUBJECT, tokens[0]._replace(expires_at=LATER + 9)])
    assert sorted(await other.revocations()) == tokens
    await other.revoke([tokens[0]._replace(expires_at=LATER + 9)])  # replaces a recorded one
    assert sorted(await store.revocations())[0].expires_at == LATER + 9


async def test_what_is_over_makes_room(store: Store) -> None:
    over = Revocation(JTI, "over", 0, 1_000_000_000)
    await store.revoke([over])
    await store.revoke([TOKEN])
    assert await store.revocations() == [TOKEN]


async def test_a_closed_store_is_unavailable(open_store: OpenStore) -> None:
    mine = await open_store()
    await mine.close()
    for operation in (mine.revoke([TOKEN]), mine.revocations()):
        with pytest.raises(StoreUnavailable):
            await operation
