"""`ingeborg cluster`, and how `ingeborg serve` treats the settings that a store records."""

from __future__ import annotations

import io
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from ingeborg.broker.command import cluster, serve
from ingeborg.broker.command.config import ConfigError, ServeOptions, load
from ingeborg.broker.core.model import Settings, StoreUnavailable
from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.broker.store.riak import RiakStore
from tests.riak.double import RiakDouble

from ..running import ingeborg, serving

NONE_YET = "ingeborg cluster: no settings are recorded yet; the first endpoint records its own\n"


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[EmbeddedStore]:
    store = EmbeddedStore(directory)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def run(directory: Path, *change: str, as_json: bool = False) -> tuple[int, str, str]:
    """Return the exit code, and the command's standard output and standard error."""
    out, told = io.StringIO(), io.StringIO()
    reading, writing = EmbeddedStore(directory, read_only=True), EmbeddedStore(directory)
    what = (change[0], change[1]) if change else None
    code = await cluster.run(reading, writing, what, as_json=as_json, out=out, told=told)
    return code, out.getvalue(), told.getvalue()


# -- The command


async def test_it_shows_the_settings_that_are_recorded(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        assert await run(tmp_path) == (0, "", NONE_YET)
        assert await run(tmp_path, as_json=True) == (0, '{"replication":null,"history":null}\n', NONE_YET)
        await store.settings(Settings(True, "memory"))
        assert await run(tmp_path) == (0, "replication: on\nhistory: memory\n", "")
        assert await run(tmp_path, as_json=True) == (0, '{"replication":"on","history":"memory"}\n', "")


async def test_it_records_a_value_and_says_when_it_counts(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.settings(Settings(False, "memory"))
        assert await run(tmp_path, "replication", "on") == (
            0,
            "replication: on\nhistory: memory\n",
            "ingeborg cluster: replication on is recorded. Endpoints read it when they restart. It takes effect "
            "when every running endpoint has read it, so restart them one by one\n",
        )
        assert await store.settings() == Settings(True, "memory")
        assert (await run(tmp_path, "history", "store"))[0] == 0
        assert await store.settings() == Settings(True, "store")
        assert await run(tmp_path, "replication", "on") == (
            0,
            "replication: on\nhistory: store\n",
            "ingeborg cluster: replication is on already\n",
        )


async def test_a_store_that_no_endpoint_has_served_takes_none(tmp_path: Path) -> None:
    """One setting alone would record a value of the other that nobody has chosen."""
    async with opened(tmp_path) as store:
        said = f"{NONE_YET.rstrip()}: start it with --history memory\n"
        assert await run(tmp_path, "history", "memory") == (1, "", said)
        assert await store.settings() is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("journal", "on"), "there is no setting 'journal'; the settings are replication and history"),
        (("replication", "true"), "replication 'true': has to be off or on"),
        (("history", "on"), "history 'on': has to be off, memory or store"),
    ],
)
async def test_what_is_no_setting_and_no_value_is_wrong_usage(
    tmp_path: Path, change: tuple[str, str], why: str
) -> None:
    assert await run(tmp_path / "absent", *change) == (2, "", f"ingeborg cluster: {why}\n")


async def test_no_store_is_made(tmp_path: Path) -> None:
    for change in ((), ("replication", "on")):
        code, out, told = await run(tmp_path / "absent", *change)
        assert (code, out, "cannot read the directory" in told) == (1, "", True)
    assert os.listdir(tmp_path) == []


class Overtaken(EmbeddedStore):
    """Another command records its own value right after this one."""

    async def set_settings(self, settings: Settings) -> None:
        await super().set_settings(settings)
        await super().set_settings(Settings(False, "off"))


async def test_a_value_that_another_command_has_replaced_is_a_failure(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.settings(Settings())
        told = io.StringIO()
        reading, writing = EmbeddedStore(tmp_path, read_only=True), Overtaken(tmp_path)
        assert await cluster.run(reading, writing, ("replication", "on"), out=io.StringIO(), told=told) == 1
        assert told.getvalue() == "ingeborg cluster: someone else has set replication to off meanwhile\n"


async def test_as_a_command_beside_an_endpoint(tmp_path: Path) -> None:
    async with serving(tmp_path, "--replication", "on"):
        where = ("--store", f"lmdb:{tmp_path / 'store'}")
        async with ingeborg(tmp_path, "cluster", *where, "--json") as command:
            assert orjson.loads(await command.line("")) == {"replication": "on", "history": "off"}
            assert await command.ended() == 0
        async with ingeborg(tmp_path, "cluster", *where, "set", "history", "store") as command:
            assert [await command.line(""), await command.line("")] == ["replication: on", "history: store"]
            assert await command.ended() == 0
        async with ingeborg(tmp_path, "cluster", "set", "replication", "off", *where) as command:
            assert await command.line("") == "replication: off"
            assert await command.ended() == 0
            assert "restart them one by one" in command.said()
    async with serving(tmp_path), opened(tmp_path / "store") as store:  # which takes the recorded ones
        assert await store.settings() == Settings(False, "store")


async def test_on_riak_there_is_no_history_in_the_store(tmp_path: Path) -> None:
    async with RiakDouble(nodes=3) as riak:
        riak.create_broker_types()
        store = RiakStore(riak.addresses)
        await store.open()
        await store.settings(Settings(False, "off"))
        where = ("--store", "riak:" + ",".join(f"{host}:{port}" for host, port in riak.addresses))
        async with ingeborg(tmp_path, "cluster", *where, "set", "history", "store") as command:
            assert await command.ended() == 2
            assert command.said() == (
                "ingeborg cluster: history store needs the embedded store (lmdb:DIR), because this store has no "
                "journal\n"
            )
        async with ingeborg(tmp_path, "cluster", *where, "set", "history", "memory") as command:
            assert [await command.line(""), await command.line("")] == ["replication: off", "history: memory"]
            assert await command.ended() == 0
        assert await store.settings() == Settings(False, "memory")
        await store.close()


async def test_options_that_cannot_be_are_wrong_usage(tmp_path: Path) -> None:
    async with ingeborg(tmp_path, "cluster", "--store", "riak:nowhere") as command:
        assert await command.ended() == 2
        assert "ingeborg cluster: store 'riak:nowhere'" in command.said()


# -- How an endpoint treats them


async def settled(directory: Path, **options: str) -> Settings:
    """Return the settings of an endpoint started with these options."""
    store = EmbeddedStore(directory)
    settings = await serve.settled(load({"store": f"lmdb:{directory}", **options}, {}, None), store)
    await store.close()
    return settings


async def test_the_first_endpoint_records_what_it_was_asked_for_and_later_ones_take_it(tmp_path: Path) -> None:
    assert await settled(tmp_path, history="memory") == Settings(False, "memory")
    assert await settled(tmp_path) == Settings(False, "memory")
    assert await settled(tmp_path, replication="off", history="memory") == Settings(False, "memory")
    async with opened(tmp_path) as store:
        await store.set_settings(Settings(True, "off"))
    assert await settled(tmp_path) == Settings(True, "off")


async def test_an_endpoint_of_a_new_cluster_that_is_asked_for_nothing_records_that_all_is_off(tmp_path: Path) -> None:
    assert await settled(tmp_path) == Settings(False, "off")
    with pytest.raises(ConfigError, match="the cluster has replication=off"):
        await settled(tmp_path, replication="on")


@pytest.mark.parametrize(
    ("recorded", "options", "why"),
    [
        (
            Settings(False, "off"),
            {"replication": "on"},
            "the cluster has replication=off, as its store records, but this endpoint was started with replication=on: "
            "start it without --replication, or change the cluster with `ingeborg cluster set replication on`",
        ),
        (
            Settings(True, "store"),
            {"replication": "on", "history": "off"},
            "the cluster has history=store, as its store records, but this endpoint was started with history=off: "
            "start it without --history, or change the cluster with `ingeborg cluster set history off`",
        ),
        (
            Settings(True, "off"),
            {"routing": "lookup"},
            "the cluster has replication=on, as its store records, and this setting needs routing=home, "
            "because with routing=lookup there are no homes",
        ),
        (
            Settings(True, "off"),
            {"dedup_ttl": "0"},
            "the cluster has replication=on, as its store records, and this setting needs a dedup-ttl above 0, "
            "because without it there are no duplicates to replicate",
        ),
        (
            Settings(False, "memory"),
            {"routing": "lookup"},
            "the cluster has history=memory, as its store records, and this setting needs routing=home, "
            "because with routing=lookup there are no homes that retain messages",
        ),
    ],
)
async def test_an_endpoint_that_does_not_fit_the_cluster_is_refused(
    tmp_path: Path, recorded: Settings, options: dict[str, str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with opened(tmp_path) as store:
        await store.settings(recorded)
        other = EmbeddedStore(tmp_path)
        with pytest.raises(ConfigError) as refused:
            await serve.settled(load({"store": f"lmdb:{tmp_path}", **options}, {}, None), other)
        assert str(refused.value) == why
        with pytest.raises(StoreUnavailable):  # it is closed
            await other.set_settings(Settings(True, "off"))
        assert await store.settings() == recorded
    # A supervisor checks before it starts any.
    assert await serve.agrees(load({"store": f"lmdb:{tmp_path}", **options}, {}, None)) == 2
    assert capsys.readouterr().err == f"ingeborg serve: {why}\n"


async def test_a_supervisor_leaves_a_store_that_cannot_be_read_to_its_endpoints(tmp_path: Path) -> None:
    assert await serve.agrees(ServeOptions(store=f"lmdb:{tmp_path / 'absent'}", replication="on")) == 0
    assert await serve.agrees(ServeOptions(store="riak:127.0.0.1:1", replication="on")) == 0
    assert await serve.agrees(ServeOptions(store="riak:127.0.0.1:1", riak_ca_file="none.pem", replication="on")) == 0
    assert os.listdir(tmp_path) == []
    async with opened(tmp_path):
        assert await serve.agrees(ServeOptions(store=f"lmdb:{tmp_path}", replication="on")) == 0


@pytest.mark.parametrize("several", [(), ("--endpoints", "3"), ("--share-port", "--endpoints", "2")])
async def test_serve_says_once_that_the_cluster_has_other_settings_and_ends(
    tmp_path: Path, several: tuple[str, ...]
) -> None:
    async with opened(tmp_path / "store") as store:
        await store.settings(Settings())
    where = ("--store", f"lmdb:{tmp_path / 'store'}", *(() if several else ("--port", "0")))
    async with ingeborg(tmp_path, "serve", *where, *several, "--replication", "on") as process:
        assert await process.ended() == 2
        assert process.said() == (
            "ingeborg serve: the cluster has replication=off, as its store records, but this endpoint was started with "
            "replication=on: start it without --replication, or change the cluster with "
            "`ingeborg cluster set replication on`\n"
        )


async def test_topics_that_are_kept_are_without_effect_while_history_is_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await settled(tmp_path, history_topics="news/=60")
    assert "history-topics has no effect: the cluster's store records history off" in caplog.text
    caplog.clear()
    async with opened(tmp_path) as store:
        await store.set_settings(Settings(False, "memory"))
    await settled(tmp_path, history_topics="news/=60")
    assert caplog.text == ""
