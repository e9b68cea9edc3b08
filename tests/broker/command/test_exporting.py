"""`ingeborg export`: there and back between stores, the output after an early end, living writers."""

from __future__ import annotations

import asyncio
import io
import itertools
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingeborg.bench.starting import environment
from ingeborg.broker.command import cli, exporting, importing
from ingeborg.broker.core.model import StoreUnavailable
from ingeborg.broker.store.base import PAGE_SUBSCRIPTIONS, Store, Subscribe, Subscription, Term, TopicPage
from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.broker.store.riak import RiakStore
from tests.riak.double import RiakDouble

from ..running import PATIENCE_S, ingeborg, plain, serving

Subscriptions = set[tuple[str, str]]


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator[Store]:
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def subscribe(store: Store, subscriptions: Subscriptions) -> None:
    async with opened(store):
        await store.subscribe([Subscribe(client, [topic]) for topic, client in sorted(subscriptions)])


async def export(store: Store, file: Path) -> tuple[int, str]:
    told = io.StringIO()
    return await exporting.run(store, str(file), told=told), told.getvalue()


async def fill_from(file: Path, store: Store) -> None:
    with file.open("rb") as lines:
        assert await importing.run(lines, store, out=io.StringIO(), told=io.StringIO()) == 0


def read(file: Path) -> Subscriptions:
    """Return the subscriptions in the lines; each has to be there once."""
    entries = [
        (line["topic"], client)
        for line in map(orjson.loads, file.read_bytes().splitlines())
        for client in line["client_ids"]
    ]
    assert len(entries) == len(set(entries))
    return set(entries)


# -- There and back

CHARACTERS = st.characters(blacklist_categories=("Cs", "Cc"))
TOPICS = st.text(CHARACTERS, min_size=1, max_size=250)
CLIENTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=32)


def test_from_lmdb_to_riak_and_back_nothing_is_lost_or_made(tmp_path: Path) -> None:
    fresh = itertools.count()

    async def check(riak: RiakDouble, subscriptions: Subscriptions) -> None:
        there = tmp_path / str(next(fresh))
        there.mkdir()
        namespace = f"n{there.name}"
        await subscribe(EmbeddedStore(there / "first"), subscriptions)
        assert (await export(EmbeddedStore(there / "first", read_only=True), there / "1.jsonl"))[0] == 0
        assert read(there / "1.jsonl") == subscriptions
        await fill_from(there / "1.jsonl", RiakStore(riak.addresses, namespace=namespace))
        store = RiakStore(riak.addresses, namespace=namespace, read_only=True)
        assert (await export(store, there / "2.jsonl"))[0] == 0
        assert read(there / "2.jsonl") == subscriptions
        await fill_from(there / "2.jsonl", EmbeddedStore(there / "second"))
        assert (await export(EmbeddedStore(there / "second", read_only=True), there / "3.jsonl"))[0] == 0
        assert (there / "3.jsonl").read_bytes() == (there / "1.jsonl").read_bytes()
        async with opened(EmbeddedStore(there / "second")) as second:  # listings by client are there as well
            for client in sorted({client for _, client in subscriptions})[:3]:
                page, cursor = await second.topics(client, None, 10_000)
                assert cursor is None
                assert {(topic, client) for topic in page} == {entry for entry in subscriptions if entry[1] == client}

    with asyncio.Runner() as runner:
        riak = RiakDouble(nodes=3)
        runner.run(riak.__aenter__())
        riak.create_broker_types()

        @settings(max_examples=2, deadline=None, database=None, derandomize=True, suppress_health_check=[*HealthCheck])
        @given(st.sets(st.tuples(TOPICS, CLIENTS), min_size=20, max_size=40))
        def examples(some: Subscriptions) -> None:
            many = {(f"{index}", "ann") for index in range(PAGE_SUBSCRIPTIONS)}  # a page, and another for the rest
            runner.run(check(riak, some | many))

        try:
            examples()
        finally:
            runner.run(riak.__aexit__(None, None, None))


async def test_lines_of_a_topic_and_of_a_client_may_be_mixed(tmp_path: Path) -> None:
    file = tmp_path / "mixed.jsonl"
    file.write_text('{"client_id": 7, "topic": ["a", "b"]}\n{"topic": "b", "client_ids": [7, "8", "é"]}\n')
    await fill_from(file, EmbeddedStore(tmp_path / "store"))
    assert (await export(EmbeddedStore(tmp_path / "store", read_only=True), tmp_path / "out"))[0] == 0
    assert read(tmp_path / "out") == {("a", "7"), ("b", "7"), ("b", "8"), ("b", "é")}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"topic": ["t"], "client_ids": ["c"]}', "Key 'topic' has to be one string"),
        ('{"client_ids": ["c"]}', "Key 'topic' has to be one string"),
        ('{"topic": "", "client_ids": ["c"]}', "bad_topic"),
        ('{"topic": "t", "client_ids": "c"}', "Key 'client_ids' has to be a list"),
        (
            '{"topic": "t", "client_ids": ["c"], "client_id": "d"}',
            "Key 'client_id' must not be in a line that lists clients",
        ),
        ('{"topic": "t", "client_ids": ["c", ""]}', "Item 2 of 'client_ids'"),
        ('{"topic": "t", "client_ids": [1.5]}', "Item 1 of 'client_ids'"),
        ('{"topic": "t", "subscriptions": {}}', "Key 'subscriptions' has to be a list"),
        (
            '{"topic": "t", "subscriptions": [{"client_id": "c"}, ["d"]]}',
            "Item 2 of 'subscriptions': bad_state",
        ),
        (
            '{"topic": "t", "subscriptions": [{"filter": {"a": [1]}}]}',
            "Item 1 of 'subscriptions': bad_state",
        ),
        (
            '{"topic": "t", "subscriptions": [{"client_id": ""}]}',
            "Item 1 of 'subscriptions': bad_state",
        ),
        (
            '{"topic": "t", "subscriptions": [{"client_id": "c", "filter": {}}]}',
            "Item 1 of 'subscriptions': bad_filter",
        ),
        ('{"topic": "t", "subscriptions": [{"client_id": "c", "ends_at": 0}]}', "Item 1 of 'subscriptions': bad_state"),
    ],
)
async def test_a_bad_line_of_a_topic_is_named(tmp_path: Path, line: str, words: str) -> None:
    told = io.StringIO()
    lines = io.BytesIO(b'{"topic": "t", "client_ids": []}\n' + line.encode())
    assert await importing.run(lines, EmbeddedStore(tmp_path), told=told) == 1
    assert "line 2: " in told.getvalue()
    assert words in told.getvalue()


# -- Failures


class Failing(EmbeddedStore):
    """A store that fails after its first page."""

    async def all_subscriptions(self) -> AsyncIterator[list[TopicPage]]:
        async for page in super().all_subscriptions():
            yield page
            raise StoreUnavailable("no more today")


MANY: Subscriptions = {(f"topic {index}", "ann") for index in range(PAGE_SUBSCRIPTIONS + 1)}


async def test_a_store_that_fails_midway_leaves_the_former_file_and_whole_lines_beside_it(tmp_path: Path) -> None:
    await subscribe(EmbeddedStore(tmp_path / "store"), MANY)
    out = tmp_path / "out"
    out.write_text("of yesterday\n")
    code, told = await export(Failing(tmp_path / "store", read_only=True), out)
    assert code == 1
    assert "no more today" in told
    assert "the output is incomplete; run the export again" in told
    assert out.read_text() == "of yesterday\n"
    assert 0 < len(read(tmp_path / "out.part")) <= PAGE_SUBSCRIPTIONS
    assert (await export(EmbeddedStore(tmp_path / "store", read_only=True), out))[0] == 0
    assert read(out) == MANY
    assert not (tmp_path / "out.part").exists()
    assert out.stat().st_mode & 0o777 == 0o600


async def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await subscribe(EmbeddedStore(tmp_path / "store"), MANY)
    write, room = os.write, 10_005

    def writes(fd: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(28, "No space left on device")
        written = write(fd, data[:room])
        room -= written
        return written

    monkeypatch.setattr(os, "write", writes)
    code, told = await export(EmbeddedStore(tmp_path / "store", read_only=True), tmp_path / "out")
    monkeypatch.undo()
    assert code == 1
    assert "No space left on device; the output is incomplete: make room" in told
    assert not (tmp_path / "out").exists()
    assert 9_900 < (tmp_path / "out.part").stat().st_size <= 10_005
    assert read(tmp_path / "out.part") < MANY


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", "--store", f"lmdb:{tmp_path / 'absent'}"]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert "Is this the store's directory (lmdb:DIR)?" in err
    assert list(tmp_path.iterdir()) == []
    assert cli.main(["export", "--store", "elsewhere"]) == 2


@asynccontextmanager
async def exporting_to_a_pipe(directory: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ingeborg.broker.command.cli", "export", "--store", f"lmdb:{directory}", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(),
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


LONG = {("x" * 1000 + f" {index}", "ann") for index in range(2_000)}  # more than a pipe and its reader's buffer hold


async def test_a_pipe_gets_everything_and_standard_error_the_outcome(tmp_path: Path) -> None:
    await subscribe(EmbeddedStore(tmp_path / "store"), LONG)
    async with exporting_to_a_pipe(tmp_path / "store", "--json") as process, asyncio.timeout(PATIENCE_S):
        out, err = await process.communicate()
    (tmp_path / "out").write_bytes(out)
    assert read(tmp_path / "out") == LONG
    summary = orjson.loads(err)
    assert (summary["subscriptions"], summary["lines"], summary["file"]) == (2_000, 2_000, "-")
    assert process.returncode == 0


async def test_a_reader_that_goes_is_no_success_and_no_traceback(tmp_path: Path) -> None:
    await subscribe(EmbeddedStore(tmp_path / "store"), LONG)
    async with exporting_to_a_pipe(tmp_path / "store") as process, asyncio.timeout(PATIENCE_S):
        assert process.stdout is not None
        assert process.stderr is not None
        await process.stdout.readline()
        process.stdout._transport.close()  # type: ignore[attr-defined]  # as `head` does
        said = (await process.stderr.read()).decode()
        assert await process.wait() == 1
    assert said == "ingeborg export: the program that read the output has ended; the output is incomplete\n"


async def test_ctrl_c_ends_it_while_the_pipe_is_full(tmp_path: Path) -> None:
    await subscribe(EmbeddedStore(tmp_path / "store"), LONG)
    async with exporting_to_a_pipe(tmp_path / "store") as process, asyncio.timeout(PATIENCE_S):
        assert process.stdout is not None
        await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
        assert process.stderr is not None
        assert b"Traceback" not in await process.stderr.read()


# -- Damage


def damage(data: Path) -> None:
    """Mark each page that leads to others (LMDB's flag 1, in its bytes 10 and 11) as leading to only one, where LMDB
    needs two: it aborts."""
    content = bytearray(data.read_bytes())
    pages = range(2 * 4096, len(content), 4096)
    branches = [page for page in pages if content[page + 10 : page + 12] == b"\x01\0"]
    assert branches
    for page in branches:
        content[page + 12 : page + 14] = (18).to_bytes(2, "little")  # where the last pointer ends, after 16 bytes
    data.write_bytes(content)


@pytest.mark.parametrize("file", ["-", "out"])
async def test_a_store_that_is_damaged_in_its_middle_is_told_with_what_to_do(tmp_path: Path, file: str) -> None:
    store = tmp_path / "store"
    await subscribe(EmbeddedStore(store), LONG)
    damage(store / "durable" / "data.mdb")
    out = file if file == "-" else str(tmp_path / file)
    async with exporting_to_a_pipe(store, out) as process, asyncio.timeout(PATIENCE_S):
        _, err = await process.communicate()
    said = err.decode()
    assert process.returncode == 1
    assert f"ingeborg export: the store in {store} is damaged, or its disk fails: " in said
    assert "died of SIGABRT" in said
    assert (
        f"`ingeborg doctor --store lmdb:{store}` names the damaged file; stop every endpoint of the store, and " in said
    )
    assert "Traceback" not in said
    assert not (tmp_path / "out").exists()


def overwrite(data: Path, pages: Iterable[int]) -> None:
    with data.open("r+b") as opened:
        for page in pages:
            opened.seek(page * 4096)
            opened.write(b"something else".ljust(16) * 256)


def directory_of_databases(data: Path) -> int:
    """Return the root page of an LMDB file's main tree, from the newer of its two meta pages."""
    content = data.read_bytes()[: 2 * 4096]
    metas = [content[start + 16 : start + 4096] for start in (0, 4096)]
    newest = max(metas, key=lambda meta: int.from_bytes(meta[128:136], "little"))
    return int.from_bytes(newest[112:120], "little")


@pytest.mark.parametrize("which", ["the middle", "the directory"])
async def test_a_page_that_is_overwritten_is_told_too(tmp_path: Path, which: str) -> None:
    store = tmp_path / "store"
    await subscribe(EmbeddedStore(store), LONG)
    data = store / "durable" / "data.mdb"
    if which == "the middle":  # it may hold the root of a database, depending on how the writes were batched
        middle = data.stat().st_size // 2 // 4096
        overwrite(data, range(middle - 20, middle + 20))
        expected = r"found damage in .*/durable/data.mdb: |is damaged[:,] "
    else:
        overwrite(data, [directory_of_databases(data)])
        expected = r"durable/data.mdb is damaged: page \d+ of the directory of databases is not a page of a tree\. "
    async with exporting_to_a_pipe(store) as process, asyncio.timeout(PATIENCE_S):
        _, err = await process.communicate()
    assert process.returncode == 1
    assert re.search(expected, err.decode())
    assert "stop every endpoint of" in err.decode().lower()


# -- Next to living endpoints


@pytest.mark.cluster
async def test_an_endpoint_goes_on_meanwhile_and_what_stays_is_in_it(tmp_path: Path) -> None:
    staying = {(f"staying {index}", "ann") for index in range(3 * PAGE_SUBSCRIPTIONS)}
    async with serving(tmp_path) as (_, url), plain(url) as connection:
        topics = sorted(topic for topic, _ in staying)
        assert await connection.ask({"command": "subscribe", "client_id": "ann", "topic": topics}) == {
            "result": "success"
        }

        async def come_and_go() -> None:
            for number in itertools.count():
                command = {"client_id": "bob", "topic": [f"passing {number % 50} {index}" for index in range(20)]}
                await connection.ask({"command": "subscribe" if number % 2 else "unsubscribe", **command})

        busy = asyncio.create_task(come_and_go())
        try:
            async with ingeborg(
                tmp_path, "export", "--store", f"lmdb:{tmp_path / 'store'}", str(tmp_path / "out")
            ) as run:
                assert await run.ended() == 0
        finally:
            busy.cancel()
        assert staying <= read(tmp_path / "out")


# -- Filters and terms

CHEAP, NEAR = '{"price":[{"numeric":["<",5]}]}', '{"zip":["81667",{"prefix":"80"}]}'
GONE, LATER, BOTH = Term(True, 0.0), Term(False, 4e9), Term(True, 4e9 + 0.25)


async def everything(store: Store) -> set[Subscription]:
    """Return everything in it; each has to come once."""
    found = [
        each
        async for page in store.all_subscriptions()
        for topic, clients, others in page
        for each in (*(Subscription(topic, client) for client in clients), *others)
    ]
    assert len(found) == len(set(found))
    return {each._replace(stamp=0) for each in found}


async def test_filters_and_terms_are_there_again_in_any_combination(tmp_path: Path) -> None:
    wanted = {
        Subscription("hit", f"client {index:04}", (None, CHEAP, NEAR)[index % 3], (None, GONE, LATER, BOTH)[index % 4])
        for index in range(2 * PAGE_SUBSCRIPTIONS + 50)
    }
    wanted |= {Subscription("hit", "ann", text, GONE) for text in (None, CHEAP, NEAR)}
    wanted |= {Subscription(f"topic {index}", "ann", None, (None, GONE)[index % 2]) for index in range(50)}
    expiring, filtered = sum(each.term is not None for each in wanted), sum(each.filter is not None for each in wanted)
    told = f"{len(wanted):,} subscriptions ({expiring:,} that end, {filtered:,} with filters)"
    async with opened(EmbeddedStore(tmp_path / "store")) as store:
        await store.subscribe([Subscribe(each.client, [each.topic], each.filter, each.term) for each in wanted])
        code, said = await export(EmbeddedStore(tmp_path / "store", read_only=True), tmp_path / "out")
        assert code == 0
        assert f"exported {told} in " in said
    lines = [orjson.loads(line) for line in (tmp_path / "out").read_bytes().splitlines()]
    assert len(lines) < 65  # a topic's share lines
    assert sum(len(line.get("client_ids", ())) for line in lines) == sum(
        each.filter is None and each.term is None for each in wanted
    )
    out = io.StringIO()
    with (tmp_path / "out").open("rb") as file:
        assert await importing.run(file, EmbeddedStore(tmp_path / "second"), out=out, told=io.StringIO()) == 0
    assert out.getvalue().startswith(f"imported {told} from ")
    async with opened(EmbeddedStore(tmp_path / "second")) as second:
        assert await everything(second) == wanted


async def test_a_file_of_this_format_is_read_and_written_again_as_it_was(tmp_path: Path) -> None:
    text = (
        b'{"topic":"stays","client_ids":["ann","bob"]}\n',
        b'{"topic":"mixed","client_ids":["ann"],"subscriptions":[{"client_id":"bob","until":"disconnect"},'
        b'{"client_id":"ann","filter":{"price":[1]}},'
        b'{"client_id":"bob","filter":{"price":[1]},"until":"disconnect","ends_at":4000000000.5}]}\n',
        b'{"topic":"offers","subscriptions":[{"client_id":"dan","filter":{"price":[{"numeric":["<",5]}]}}]}\n',
    )
    (tmp_path / "in").write_bytes(b"".join(text))
    await fill_from(tmp_path / "in", EmbeddedStore(tmp_path / "store"))
    assert (await export(EmbeddedStore(tmp_path / "store", read_only=True), tmp_path / "out"))[0] == 0
    assert sorted((tmp_path / "out").read_bytes().splitlines(keepends=True)) == sorted(text)
