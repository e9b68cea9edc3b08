"""`ingeborg features`: what it says of a store, what it switches off, and that it makes nothing."""

from __future__ import annotations

import io
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from ingeborg.broker.command import switching
from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.broker.store.riak import RiakStore
from tests.contract.virtual import handle
from tests.riak.double import RiakDouble
from tests.simulator import world

from ..running import ingeborg, serving

OTHER = "revocation: off (tokens that have been revoked are let in nowhere)\n"
STANDBY_ON = "standby: on (what belongs to slots is kept at a second endpoint as well)\n"
STANDBY_OFF = STANDBY_ON.replace("on (", "off (")
ON, OFF = OTHER + STANDBY_ON, OTHER + STANDBY_OFF


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[EmbeddedStore]:
    store = EmbeddedStore(directory)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def features(directory: Path, off: str | None = None, *, as_json: bool = False) -> tuple[int, str, str]:
    """The exit code, and what it said on standard output and on standard error."""
    out, told = io.StringIO(), io.StringIO()
    reading, writing = EmbeddedStore(directory, read_only=True), EmbeddedStore(directory)
    code = await switching.run(reading, writing, off, as_json=as_json, out=out, told=told)
    return code, out.getvalue(), told.getvalue()


async def test_those_that_are_on_are_listed_beside_those_that_are_known(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        assert await features(tmp_path) == (0, OFF, "")
        assert await features(tmp_path, as_json=True) == (0, '{"on":[],"known":["revocation","standby"]}\n', "")
        await store.switch("standby", True)
        assert await features(tmp_path) == (0, ON, "")
        assert await features(tmp_path, as_json=True) == (
            0,
            '{"on":["standby"],"known":["revocation","standby"]}\n',
            "",
        )


async def test_one_is_switched_off_beside_a_running_endpoint_and_what_that_means_is_said(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.switch("standby", True)
        assert await features(tmp_path, "standby") == (
            0,
            OFF,
            "ingeborg features: standby has been switched off. Endpoints that run notice it within seconds; only then "
            "start one of a version that does not know standby\n",
        )
        assert await store.features() == frozenset()
        assert await features(tmp_path, "standby") == (0, OFF, "ingeborg features: standby was off already\n")


async def test_one_that_is_left_is_said(tmp_path: Path) -> None:
    store, told = world.Store(), io.StringIO()
    for name in ("standby", "other"):
        store.switch(name, True)
    assert await switching.run(handle(store), handle(store), "standby", out=io.StringIO(), told=told) == 0
    assert told.getvalue().endswith("; other is still on, and versions from before features refuse the store\n")


async def test_one_that_an_endpoint_switches_on_again_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, told = world.Store(), io.StringIO()
    store.switch("standby", True)
    monkeypatch.setattr(store, "switch", lambda feature, on: None)
    out = io.StringIO()
    assert await switching.run(handle(store), handle(store), "standby", out=out, told=told) == 1
    assert (out.getvalue(), "on again" in told.getvalue()) == (ON, True)


async def test_an_unknown_name_is_wrong_usage_and_says_what_to_do(tmp_path: Path) -> None:
    assert await features(tmp_path / "absent", "Standby") == (
        2,
        "",
        "ingeborg features: this version knows no feature 'Standby', but revocation, standby. "
        "Switch it off with a version that knows it\n",
    )


async def test_a_store_with_one_that_is_unknown_is_refused_with_what_to_do(tmp_path: Path) -> None:
    async with opened(tmp_path / "store") as store:
        await store.switch("later", True)
    for off in (None, "standby"):
        code, out, told = await features(tmp_path / "store", off)
        assert (code, out) == (1, "")
        assert "is used with the feature 'later'" in told
        assert told.endswith("with such a version first (`ingeborg features --off later`)\n")


async def test_no_store_is_made(tmp_path: Path) -> None:
    for off in (None, "standby"):
        code, out, told = await features(tmp_path / "absent", off)
        assert (code, out, "cannot read the directory" in told) == (1, "", True)
    assert os.listdir(tmp_path) == []


async def test_as_a_command_beside_an_endpoint_and_on_riak(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, _), opened(tmp_path / "store") as store:
        await store.switch("standby", True)
        url = f"lmdb:{tmp_path / 'store'}"
        async with ingeborg(tmp_path, "features", "--store", url, "--off", "standby", "--json") as command:
            assert orjson.loads(await command.line("")) == {"on": [], "known": ["revocation", "standby"]}
            assert await command.ended() == 0
        assert await store.features() == frozenset()
    async with RiakDouble(nodes=3) as riak:
        riak.create_broker_types()
        riak_store = RiakStore(riak.addresses)
        await riak_store.open()
        await riak_store.switch("standby", True)
        url = "riak:" + ",".join(f"{host}:{port}" for host, port in riak.addresses)
        async with ingeborg(tmp_path, "features", "--store", url, "--off", "standby") as command:
            assert f"{await command.line('standby')}\n".endswith(STANDBY_OFF)
            assert await command.ended() == 0
            assert "within seconds" in command.said()
        assert await riak_store.features() == frozenset()
        await riak_store.close()


async def test_options_that_cannot_be_are_wrong_usage(tmp_path: Path) -> None:
    async with ingeborg(tmp_path, "features", "--store", "riak:nowhere") as command:
        assert await command.ended() == 2
        assert "ingeborg features: store 'riak:nowhere'" in command.said()
