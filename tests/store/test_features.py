"""How the embedded store records features: its bytes, who refuses them, and what disturbs them."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import lmdb
import pytest

from ingeborg.broker.store.base import StoreError, StoreMisconfigured
from ingeborg.broker.store.embedded.layout import Lane, open_for_reading, prepare
from ingeborg.broker.store.embedded.store import EmbeddedStore

from .test_embedded import MAP_BYTES, at_last, opened, pid_of, until_ended

LATER = (
    "is used with the feature 'later', and this version "
    "knows the features 'ending', 'filters', 'history', 'journal', 'revocation', 'standby' only"
)


def recorded(directory: Path, lane: Lane = Lane.DURABLE) -> dict[bytes, bytes]:
    """What the unnamed database holds, beside the named ones."""
    environment = open_for_reading(directory, lane, MAP_BYTES)
    try:
        with environment.env.begin() as txn:
            return {key: value for key, value in txn.cursor() if key not in set(map(str.encode, environment.db))}
    finally:
        environment.env.close()


def spoil(directory: Path, **entries: bytes) -> None:
    """Write entries of the unnamed database of the durable environment."""
    with lmdb.open(str(directory / Lane.DURABLE), max_dbs=3) as env, env.begin(write=True) as txn:
        for key, value in entries.items():
            txn.put(key.encode(), value)


async def switch(directory: Path, *switches: tuple[str, bool]) -> None:
    async with opened(directory) as store:
        for name, on in switches:
            await store.switch(name, on)


async def refused(directory: Path, match: str, *, read_only: bool = False) -> None:
    store = EmbeddedStore(directory, map_size_bytes=MAP_BYTES, read_only=read_only)
    with pytest.raises(StoreMisconfigured, match=match):
        await store.open()
    assert set(store.writer_pids.values()) == {None}
    await store.close()


async def test_without_features_the_layout_is_as_it_was_before_there_were_any(tmp_path: Path) -> None:
    as_before = {b"layout": b"ingeborg embedded store 1"}
    await switch(tmp_path)
    assert recorded(tmp_path) == as_before
    await switch(tmp_path, ("standby", True))
    assert recorded(tmp_path) == {b"layout": b"ingeborg embedded store 2", b"features": b"standby"}
    async with opened(tmp_path) as store:
        await store.switch("a-later-one", True)
        assert (tmp_path / "durable" / "data.mdb").read_bytes().count(b"a-later-one standby") >= 1
        await store.switch("a-later-one", False)
    await switch(tmp_path, ("standby", False))
    assert recorded(tmp_path) == recorded(tmp_path, Lane.SOFT) == as_before


async def test_the_soft_environment_holds_nothing_of_them_and_a_reboot_leaves_them(tmp_path: Path) -> None:
    await switch(tmp_path, ("standby", True))
    assert recorded(tmp_path, Lane.SOFT) == {b"layout": b"ingeborg embedded store 1"}
    (tmp_path / "soft" / "boot_id").write_text("another boot")
    async with opened(tmp_path) as store:
        assert await store.features() == {"standby"}


async def test_one_that_is_not_known_here_is_refused_by_whoever_opens_the_store(tmp_path: Path) -> None:
    await switch(tmp_path, ("later", True), ("standby", True))
    await refused(tmp_path, LATER)
    await refused(tmp_path, "`ingeborg features --off later`", read_only=True)
    with pytest.raises(StoreMisconfigured, match=LATER):
        open_for_reading(tmp_path, Lane.DURABLE, MAP_BYTES)
    with pytest.raises(StoreMisconfigured, match=LATER):
        prepare(tmp_path, Lane.DURABLE, MAP_BYTES)


async def test_those_that_are_known_are_read_by_whoever_reads(tmp_path: Path) -> None:
    await switch(tmp_path, ("standby", True))
    async with opened(tmp_path, read_only=True) as reader:
        assert await reader.features() == {"standby"}
        with pytest.raises(StoreError):
            await reader.switch("standby", False)


async def test_an_endpoint_that_runs_keeps_its_store_whatever_is_switched_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.switch("later", True)
        killed = pid_of(store, Lane.DURABLE)
        os.kill(killed, signal.SIGKILL)
        await until_ended(killed)
        await at_last(lambda: store.subscribe([("ann", ["rock"])]))
        assert store.writer_restarts == 1
        assert await store.features() == {"later"}
        await store.switch("later", False)
    async with opened(tmp_path) as store:
        assert await store.subscribers(["rock"]) == [{"ann"}]


@pytest.mark.parametrize(
    "entries",
    [
        {"layout": b"ingeborg embedded store 2"},
        {"layout": b"ingeborg embedded store 3", "features": b"later"},
        {"features": b"standby"},
    ],
)
async def test_a_number_that_does_not_go_with_the_features_is_refused(
    tmp_path: Path, entries: dict[str, bytes]
) -> None:
    await switch(tmp_path)
    spoil(tmp_path, **entries)
    number = entries.get("layout", b"1")[-1:].decode()
    await refused(tmp_path, f"has layout {number}, this version knows layout 1, or 2 with features; run the version")


async def test_large_writes_and_switches_go_side_by_side(tmp_path: Path) -> None:
    topics = [f"song {index}" for index in range(5_000)]
    async with opened(tmp_path) as store:
        writes = [store.subscribe([(client, topics)]) for client in ("ann", "bob")]
        switches = [store.switch(name, True) for name in ("standby", "later")]
        await asyncio.gather(*writes, *switches)
        assert await store.features() == {"standby", "later"}
        assert await store.subscribers(topics) == [{"ann", "bob"}] * len(topics)


def test_what_is_made_anew_has_none(tmp_path: Path) -> None:
    prepare(tmp_path, Lane.DURABLE, MAP_BYTES).environment.env.close()
    assert recorded(tmp_path) == {b"layout": b"ingeborg embedded store 1"}
