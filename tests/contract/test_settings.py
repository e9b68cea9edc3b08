"""What the contract says of the cluster's settings, on every store of ``conftest.STORES``."""

from __future__ import annotations

import asyncio

import pytest

from ingeborg.broker.store.base import Settings, Store
from ingeborg.broker.store.riak import RiakStore
from tests.contract.conftest import OpenStore
from tests.store.asked import subscribers

ONE, OTHER = Settings(standby=True, history="memory"), Settings(standby=False, history="store")


async def test_a_new_store_has_none_and_to_ask_records_none(store: Store, other: Store) -> None:
    for handle in (store, other, store):
        assert await handle.settings() is None


async def test_the_first_ones_are_recorded_once(store: Store, other: Store) -> None:
    assert await store.settings(ONE) == ONE
    for handle in (store, other):
        assert await handle.settings() == ONE
        assert await handle.settings(OTHER) == ONE
    assert await store.settings() == ONE


async def test_settings_that_promise_nothing_are_recorded_as_well(store: Store, other: Store) -> None:
    assert await store.settings(Settings()) == Settings()
    assert await other.settings(ONE) == Settings()


async def test_others_take_their_place_whether_there_are_any_or_not(store: Store, other: Store) -> None:
    for handle, wanted in ((store, ONE), (other, OTHER), (other, ONE), (store, Settings()), (store, ONE)):
        await handle.set_settings(wanted)
        assert await store.settings() == await other.settings() == wanted
        assert await other.settings(OTHER) == wanted


async def test_they_survive_that_every_handle_is_closed(open_store: OpenStore) -> None:
    first = await open_store()
    await first.settings(ONE)
    await first.subscribe([("ann", ["rock"])])
    await first.close()
    again = await open_store()
    assert await again.settings(OTHER) == ONE
    await again.set_settings(OTHER)
    await again.close()
    again = await open_store()
    assert await again.settings() == OTHER
    assert await subscribers(again, ["rock"]) == [{"ann"}]


async def test_processes_that_record_first_ones_at_the_same_time_agree(store: Store, other: Store) -> None:
    said = await asyncio.gather(store.settings(ONE), other.settings(OTHER))
    found = await store.settings()
    assert [*said] == [found, found] or isinstance(store, RiakStore)
    assert found in (ONE, OTHER, Settings(standby=False, history="memory"))  # or what both promise
    assert await store.settings(ONE) == await other.settings(OTHER) == found


async def test_of_two_changes_at_the_same_time_one_counts_for_all(store: Store, other: Store) -> None:
    await store.settings(Settings(standby=True, history="store"))
    for _ in range(5):
        await asyncio.gather(store.set_settings(ONE), other.set_settings(OTHER))
        found = await store.settings()
        assert found in (ONE, OTHER, Settings(standby=False, history="memory"))
        assert await other.settings() == found


async def test_what_are_no_settings_is_refused(store: Store) -> None:
    for record in (store.settings, store.set_settings):
        with pytest.raises(ValueError, match="no settings"):
            await record(Settings(standby=True, history="disk"))
    assert await store.settings() is None
