"""The contract's rules for the registry, seen hashes and the cluster's settings, on every store of
``conftest.STORES``."""

from __future__ import annotations

import asyncio

import pytest

from ingeborg.broker.store.base import Endpoint, Settings, Store, StoreUnavailable, Superseded
from ingeborg.broker.store.riak import RiakStore
from tests.contract.conftest import STORES, OpenStore

# The simulator's store has no settings.
pytestmark = pytest.mark.parametrize("open_store", sorted(STORES), indirect=True)

ONE, OTHER = Settings(replication=True, history="memory"), Settings(replication=False, history="store")


# --- seen hashes


def hashes(count: int, kind: int = 0) -> list[bytes]:
    return [bytes([kind]) + index.to_bytes(15, "big") for index in range(count)]


async def test_a_hash_is_seen_from_the_second_time_on_everywhere(store: Store, other: Store) -> None:
    first, second = hashes(2)
    assert await store.seen([first], 60.0) == [False]
    assert await store.seen([first, second], 60.0) == [True, False]
    assert await other.seen([second, first, hashes(3)[2]], 60.0) == [True, True, False]


async def test_many_hashes_at_once(store: Store, other: Store) -> None:
    assert await store.seen([], 1.0) == []
    batch = hashes(3_000)
    assert await store.seen(batch, 60.0) == [False] * len(batch)
    assert await other.seen(batch[::-1] + hashes(1, kind=1), 60.0) == [True] * len(batch) + [False]


async def test_a_hash_is_forgotten_after_its_time(store: Store) -> None:
    (payload,) = hashes(1)
    assert await store.seen([payload], 0.05) == [False]
    # The clock is the store's, so the test has to wait. A late wake-up does no harm. A store that counts whole seconds
    # may keep the hash for longer, and each call extends the time: hence the growing waits.
    for wait_s in (0.1, 1.5, 3.0, 6.0):
        await asyncio.sleep(wait_s)
        if not (await store.seen([payload], 0.05))[0]:
            return
    pytest.fail("a hash with a time-to-live of 0.05 s was still there after 6 s")


async def test_asking_extends_the_time(store: Store) -> None:
    (payload,) = hashes(1)
    await store.seen([payload], 0.001)
    await store.seen([payload], 60.0)
    assert await store.seen([payload], 60.0) == [True]


# --- registry


async def test_the_registry_lists_every_endpoint_once(store: Store, other: Store) -> None:
    assert await store.endpoints() == []
    ann = Endpoint("ann", "i1", "ws://127.0.0.1:9000", 0)
    bob = Endpoint("böb/ " + "b" * 100, "i2", "ws://127.0.0.1:9001", 0)
    await store.register(ann)
    await other.register(bob)
    await store.register(ann)
    assert sorted(await other.endpoints()) == sorted([ann, bob])
    assert sorted(await store.endpoints()) == sorted([ann, bob])


async def test_a_heartbeat_moves_the_count_that_others_see(store: Store, other: Store) -> None:
    endpoint = Endpoint("e", "i1", "ws://127.0.0.1:9000", 0)
    await store.register(endpoint)
    for count in (1, 2, 2**40):
        await store.heartbeat(endpoint._replace(heartbeat=count))
        assert await other.endpoints() == [endpoint._replace(heartbeat=count)]


async def test_a_heartbeat_without_an_entry_writes_it(store: Store, other: Store) -> None:
    endpoint = Endpoint("e", "i1", "ws://127.0.0.1:9000", 5)
    await store.heartbeat(endpoint)
    assert await other.endpoints() == [endpoint]


async def test_who_registers_a_name_supersedes_its_holder(store: Store, other: Store) -> None:
    former = Endpoint("e", "i1", "ws://127.0.0.1:9000", 7)
    latter = Endpoint("e", "i2", "ws://127.0.0.1:9001", 0)
    await store.register(former)
    await other.register(latter)
    assert await store.endpoints() == [latter]
    with pytest.raises(Superseded, match="e"):
        await store.heartbeat(former._replace(heartbeat=8))
    await store.deregister(former)
    assert await store.endpoints() == [latter]
    await other.heartbeat(latter._replace(heartbeat=1))


async def test_deregistering_takes_the_entry_out_and_may_be_repeated(store: Store, other: Store) -> None:
    endpoint = Endpoint("e", "i1", "ws://127.0.0.1:9000", 0)
    await store.register(endpoint)
    await store.deregister(endpoint)
    await store.deregister(endpoint)
    assert await other.endpoints() == []


# --- settings


async def test_a_new_store_has_no_settings_and_to_ask_records_none(store: Store, other: Store) -> None:
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
    await first.close()
    again = await open_store()
    assert await again.settings(OTHER) == ONE
    await again.set_settings(OTHER)
    await again.close()
    again = await open_store()
    assert await again.settings() == OTHER


async def test_processes_that_record_first_ones_at_the_same_time_agree(store: Store, other: Store) -> None:
    said = await asyncio.gather(store.settings(ONE), other.settings(OTHER))
    found = await store.settings()
    assert [*said] == [found, found] or isinstance(store, RiakStore)
    assert found in (ONE, OTHER, Settings(replication=False, history="memory"))  # or the common part
    assert await store.settings(ONE) == await other.settings(OTHER) == found


async def test_of_two_changes_at_the_same_time_one_counts_for_all(store: Store, other: Store) -> None:
    await store.settings(Settings(replication=True, history="store"))
    for _ in range(5):
        await asyncio.gather(store.set_settings(ONE), other.set_settings(OTHER))
        found = await store.settings()
        assert found in (ONE, OTHER, Settings(replication=False, history="memory"))
        assert await other.settings() == found


async def test_what_are_no_settings_is_refused(store: Store) -> None:
    for record in (store.settings, store.set_settings):
        with pytest.raises(ValueError, match="record of settings is invalid"):
            await record(Settings(replication=True, history="disk"))
    assert await store.settings() is None


# --- closing


async def test_a_closed_store_is_unavailable(open_store: OpenStore, store: Store) -> None:
    mine = await open_store()
    await mine.close()
    endpoint = Endpoint("e", "i", "ws://127.0.0.1:9000", 0)
    for operation in (
        mine.seen(hashes(1), 1.0),
        mine.register(endpoint),
        mine.heartbeat(endpoint),
        mine.deregister(endpoint),
        mine.endpoints(),
        mine.settings(),
        mine.settings(Settings()),
        mine.set_settings(Settings()),
    ):
        with pytest.raises(StoreUnavailable):
            await operation
    assert await store.endpoints() == []  # another handle is not affected
