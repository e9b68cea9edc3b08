"""Revoked tokens in a separate Riak object: versions that missed each other, and read-only stores."""

from __future__ import annotations

import time
from typing import Any

import ormsgpack
import pytest

from ingeborg.broker.core.model import JTI, SUB, Revocation
from ingeborg.broker.store.base import StoreMisconfigured, StoreUnavailable
from ingeborg.broker.store.riak.layout import VERSION, Buckets

from .conftest import StoreOn
from .double import Key, RiakDouble

OBJECT = Key(b"ingeborg", *Buckets("ingeborg").revocations)
LATER = int(time.time()) + 3_600
ANN, BERT = Revocation(SUB, "ann", 5, LATER), Revocation(JTI, "t-1", 0, LATER)


def packed(*revocations: Revocation) -> bytes:
    return ormsgpack.packb([VERSION, [list(each) for each in revocations]])


def versions(riak: RiakDouble) -> list[bytes]:
    """Return the content of the object, sibling by sibling."""
    return sorted(sibling.content["value"] for sibling in riak.memory.object(OBJECT).siblings)


def write_unseen(riak: RiakDouble, value: bytes) -> None:
    """Write as a process does on the other side of a network partition, which has seen none of the versions."""
    riak.memory.write(0, OBJECT, {}, {"value": value, "vtag": b"t" * 22}, {})


async def test_of_two_versions_that_missed_each_other_nothing_is_lost(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    await store.revoke([ANN])
    assert versions(riak) == [packed(ANN)]
    write_unseen(riak, packed(BERT, ANN._replace(issued_until=9, expires_at=LATER - 9)))
    merged = [BERT, ANN._replace(issued_until=9)]
    assert await store.revocations() == merged
    await store.repaired()
    assert versions(riak) == [packed(*merged)]


async def test_what_is_over_goes_at_the_next_write_and_is_over_where_a_merge_brings_it_back(
    riak: RiakDouble, store_on: StoreOn
) -> None:
    over = Revocation(JTI, "over", 0, 1_000_000_000)
    write_unseen(riak, packed(over))
    store = await store_on(riak)
    await store.revoke([ANN])
    assert versions(riak) == [packed(ANN)]
    write_unseen(riak, packed(over))
    assert await store.revocations() == [over, ANN]  # the reader knows the time
    await store.revoke([BERT])
    assert versions(riak) == [packed(BERT, ANN)]


async def test_for_reading_only_nothing_is_written(riak: RiakDouble, store_on: StoreOn) -> None:
    await (await store_on(riak)).revoke([ANN])
    reader = await store_on(riak, read_only=True)
    assert await reader.revocations() == [ANN]
    with pytest.raises(StoreUnavailable, match="reading only"):
        await reader.revoke([BERT])


@pytest.mark.parametrize("value", [[2, []], [VERSION], [VERSION, [["kid", "k", 0, 1]]], [VERSION, {}], 7])
async def test_what_is_none_of_this_versions_is_said_and_not_taken_for_nothing(
    riak: RiakDouble, store_on: StoreOn, value: Any
) -> None:
    store = await store_on(riak)
    write_unseen(riak, ormsgpack.packb(value))
    with pytest.raises(StoreMisconfigured, match=r"b'revocations' in bucket .* is not one of this version"):
        await store.revocations()
    with pytest.raises(StoreMisconfigured):
        await store.revoke([ANN])
