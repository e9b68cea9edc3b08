"""What the contract says of features, on every store of ``conftest.STORES`` and on the simulator's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingeborg.broker.store.base import Store, StoreError, StoreMisconfigured
from ingeborg.broker.store.features import FEATURES_MAX
from tests import proof
from tests.contract.conftest import STORES, OpenStore, Storage
from tests.contract.virtual import Virtual, virtual

ALL: dict[str, Storage] = {**STORES, "simulator": virtual}


@pytest.fixture(params=sorted(ALL))
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenStore]:
    """Opens handles on one new, empty storage; closes them after the test."""
    async with ALL[request.param](tmp_path) as opener:
        yield opener


async def test_a_new_store_has_none(store: Store) -> None:
    assert await store.features() == frozenset()


async def test_what_is_switched_is_so_at_every_handle_and_may_be_switched_again(store: Store, other: Store) -> None:
    for _ in range(2):
        await store.switch("standby", True)
        assert await other.features() == {"standby"}
    await other.switch("of-a-later-version-2", True)
    assert await store.features() == {"standby", "of-a-later-version-2"}
    for _ in range(2):
        await other.switch("standby", False)
        assert await store.features() == {"of-a-later-version-2"}
    await store.switch("of-a-later-version-2", False)
    await store.switch("never-on", False)
    assert await store.features() == await other.features() == frozenset()


async def test_what_is_on_survives_that_every_handle_is_closed(open_store: OpenStore) -> None:
    first = await open_store()
    await first.switch("standby", True)
    await first.close()
    again = await open_store()
    assert await again.features() == {"standby"}
    await again.switch("standby", False)
    await again.close()
    assert await (await open_store()).features() == frozenset()


async def test_several_may_switch_at_once(store: Store, other: Store) -> None:
    for _ in range(5):
        names = [f"feature-{number}" for number in range(4)]
        ons = [handle.switch(name, True) for handle in (store, other, store) for name in names]
        await asyncio.gather(*ons)
        assert await store.features() == await other.features() == set(names)
        await asyncio.gather(*(handle.switch(name, False) for handle in (store, other) for name in names))
        for name in await store.features():
            await store.switch(name, False)  # a switch at the same time, even one that switched off, may have undone it
        assert await other.features() == frozenset()


async def test_an_on_is_never_lost_to_what_is_switched_off_at_the_same_time(store: Store, other: Store) -> None:
    for _ in range(10):
        await store.switch("standby", True)
        await asyncio.gather(store.switch("standby", False), other.switch("other", True))
        assert "other" in await store.features()
        await other.switch("standby", False)
        assert await store.features() == {"other"}
        await store.switch("other", False)


@pytest.mark.parametrize("name", ["", "Standby", "1st", "-", "a b", "a\nb", "é", "x" * 33, "standby\n"])
async def test_what_is_no_name_is_refused(store: Store, name: str) -> None:
    for on in (True, False):
        with pytest.raises(ValueError, match="no feature's name"):
            await store.switch(name, on)
    assert await store.features() == frozenset()


async def test_one_too_many_is_refused_and_changes_nothing(store: Store, other: Store) -> None:
    names = ["x" * 32, *(f"feature-{number}" for number in range(FEATURES_MAX - 1))]
    for name in names:
        await store.switch(name, True)
    with pytest.raises(StoreError, match="switch one off before 'standby'"):
        await other.switch("standby", True)
    await other.switch(names[3], True)
    assert await store.features() == set(names)
    await store.switch(names[3], False)
    await other.switch("standby", True)
    assert await store.features() == {*names, "standby"} - {names[3]}


async def test_one_that_is_not_known_here_is_refused_at_the_start_only(open_store: OpenStore, store: Store) -> None:
    await store.switch("standby", True)
    await store.switch("later", True)
    await store.subscribe([("ann", ["rock"])])
    assert await store.features() == {"standby", "later"}
    if isinstance(store, Virtual):
        return  # nothing is asked when it is opened
    with pytest.raises(StoreMisconfigured, match="the feature 'later', and this version knows the features 'ending'"):
        await open_store()
    await store.switch("later", False)
    assert await (await open_store()).subscribers(["rock"]) == [{"ann"}]


NAMES = st.sampled_from(["a", "b", "standby"])
STEPS = st.lists(st.tuples(st.integers(0, 1), NAMES, st.booleans()), max_size=12)


@pytest.mark.parametrize("kind", sorted(ALL.keys() - {"riak-double-tls"}))
def test_any_sequence_of_switches_gives_what_a_set_gives(kind: str, tmp_path: Path) -> None:
    async def check(handles: list[Store], steps: list[tuple[int, str, bool]]) -> None:
        expected = set(await handles[0].features())  # of the examples before, for the storage is one
        for turn, (number, name, on) in enumerate(steps):
            await handles[number].switch(name, on)
            (expected.add if on else expected.discard)(name)
            assert await handles[turn % 2].features() == expected

    with asyncio.Runner() as runner:
        storage = ALL[kind](tmp_path)

        async def start() -> list[Store]:
            opener = await storage.__aenter__()
            return [await opener(), await opener()]

        handles = runner.run(start())

        @settings(
            max_examples=proof.examples(40, 10),
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(STEPS)
        def examples(steps: list[tuple[int, str, bool]]) -> None:
            runner.run(check(handles, steps))

        try:
            examples()
        finally:
            runner.run(storage.__aexit__(None, None, None))
