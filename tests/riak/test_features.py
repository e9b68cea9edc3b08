"""Features in Riak's layout object: versions that missed each other, and who is refused."""

from __future__ import annotations

import ormsgpack
import pytest

from ingeborg.broker.store.base import StoreMisconfigured, StoreUnavailable
from ingeborg.broker.store.riak.layout import Buckets

from .conftest import StoreOn
from .double import Key, RiakDouble

LAYOUT = Key(b"ingeborg", *Buckets("ingeborg").layout)
NONE = ormsgpack.packb([2, 4096, 1])


def on(*features: str) -> bytes:
    return ormsgpack.packb([3, 4096, 1, list(features)])


def versions(riak: RiakDouble) -> list[bytes]:
    """What is in the layout object, sibling by sibling."""
    return sorted(sibling.content["value"] for sibling in riak.memory.object(LAYOUT).siblings)


def write_unseen(riak: RiakDouble, value: bytes) -> None:
    """As by a process on the other side of a cut, which has seen none of the versions that are there."""
    riak.memory.write(0, LAYOUT, {}, {"value": value, "vtag": b"t" * 22}, {})


async def test_the_object_is_as_it_was_before_there_were_features_unless_one_is_on(
    riak: RiakDouble, store_on: StoreOn
) -> None:
    store = await store_on(riak)
    assert versions(riak) == [NONE]
    await store.switch("standby", True)
    assert versions(riak) == [on("standby")]
    await store.switch("standby", False)
    assert versions(riak) == [NONE]


async def test_of_an_on_and_an_off_that_missed_each_other_the_on_is_true_and_off_is_to_be_repeated(
    riak: RiakDouble, store_on: StoreOn
) -> None:
    store = await store_on(riak)
    await store.switch("standby", True)
    await store.switch("standby", False)
    write_unseen(riak, on("standby"))
    assert await store.features() == {"standby"}
    await store.repaired()
    assert len(versions(riak)) == 2  # reading them writes nothing
    await store.switch("standby", False)
    assert versions(riak) == [NONE]
    assert await store.features() == frozenset()


async def test_what_others_switch_on_meanwhile_is_switched_off_again_or_told(
    riak: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await store_on(riak)
    change = store._objects.change
    times = 1

    async def disturbed(*arguments: object) -> object:
        nonlocal times
        result: object = await change(*arguments)  # type: ignore[arg-type]
        if times:
            times -= 1
            write_unseen(riak, on("standby"))
        return result

    await store.switch("standby", True)
    monkeypatch.setattr(store._objects, "change", disturbed)
    await store.switch("standby", False)
    assert await store.features() == frozenset()
    times = 10
    with pytest.raises(StoreUnavailable, match="'standby' on at the same time: it is still on"):
        await store.switch("standby", False)
    assert await store.features() == {"standby"}


async def test_a_store_that_two_created_at_once_can_be_switched(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    write_unseen(riak, NONE)
    await store.switch("standby", True)
    assert versions(riak) == [on("standby")]
    assert await (await store_on(riak)).features() == {"standby"}


async def test_one_that_is_not_known_here_is_refused_at_the_start_and_no_endpoint_that_runs_minds(
    riak: RiakDouble, store_on: StoreOn
) -> None:
    store = await store_on(riak)
    await store.switch("standby", True)
    await store.switch("later", True)
    for options in ({}, {"read_only": True}):
        with pytest.raises(StoreMisconfigured) as raised:
            await store_on(riak, **options)
        assert str(raised.value) == (
            "the store whose buckets begin with 'ingeborg' is used with the feature 'later', and this version knows "
            "the features 'ending', 'filters', 'history', 'journal', 'revocation', 'standby' only: start a version "
            "that knows what is in use, or switch it off with such a version first (`ingeborg features --off later`)"
        )
    await store.subscribe([("ann", ["rock"])])
    assert await store.features() == {"standby", "later"}


async def test_a_form_of_later_still_is_said_and_no_endpoint_that_runs_minds(
    riak: RiakDouble, store_on: StoreOn
) -> None:
    store = await store_on(riak)
    write_unseen(riak, ormsgpack.packb([4, "whatever"]))
    for asked in (store.features(), store.switch("standby", True), store_on(riak)):
        with pytest.raises(StoreMisconfigured, match=r"ingeborg\.layout.* is none of this version's"):
            await asked
    await store.subscribe([("ann", ["rock"])])
    assert await store.subscribers(["rock"]) == [{"ann"}]


async def test_a_layout_that_contradicts_itself_is_left_for_a_person(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    write_unseen(riak, ormsgpack.packb([2, 4096, 2]))
    for wanted in (True, False):
        with pytest.raises(StoreMisconfigured, match="contradictory versions"):
            await store.switch("standby", wanted)
    assert await store.features() == frozenset()
    await store.repaired()
    assert len(versions(riak)) == 2


async def test_for_reading_only_nothing_is_switched(riak: RiakDouble, store_on: StoreOn) -> None:
    await store_on(riak)
    reader = await store_on(riak, read_only=True)
    with pytest.raises(StoreUnavailable, match="reading only"):
        await reader.switch("standby", True)
    assert versions(riak) == [NONE]
