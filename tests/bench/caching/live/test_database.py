"""LMDB and Riak return written records; a missing one is an error that names it."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import aclosing
from pathlib import Path

import pytest

from ingeborg.bench.caching.live.database import Database, DatabaseError, Lmdb
from ingeborg.bench.caching.live.riak import Riak
from tests.riak.double import RiakDouble

KINDS = ("lmdb", "riak")


async def databases(kind: str, directory: Path) -> AsyncGenerator[Database, None]:
    """Open a database, and close it afterwards."""
    if kind != "riak":
        database: Database = Lmdb(directory / "store")
        await database.open()
        yield database
        await database.close()
        return
    async with RiakDouble(nodes=3) as double:
        double.create_broker_types()
        database = Riak(double.addresses)
        await database.open()
        yield database
        await database.close()


async def found(read: list[bytes] | Awaitable[list[bytes]]) -> Sequence[bytes]:
    return await read if inspect.isawaitable(read) else read


@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_written_is_read_in_the_order_in_which_it_is_asked_for(kind: str, tmp_path: Path) -> None:
    async with aclosing(databases(kind, tmp_path)) as several:
        async for database in several:
            items = [(number, b"record %d" % number) for number in range(300)]
            await database.write(items[:200])
            await database.write(items[200:])
            asked = [299, 0, 7, 7, 256]
            assert await found(database.read(asked)) == [items[number][1] for number in asked]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_record_that_is_lost_is_an_error_that_names_it(kind: str, tmp_path: Path) -> None:
    async with aclosing(databases(kind, tmp_path)) as several:
        async for database in several:
            await database.write([(1, b"one")])
            with pytest.raises(DatabaseError, match="has lost record 2"):
                await found(database.read([1, 2]))


async def test_lmdb_takes_no_directory_that_is_there(tmp_path: Path) -> None:
    database = Lmdb(tmp_path)
    with pytest.raises(DatabaseError, match=f"cannot be opened in {tmp_path}"):
        await database.open()
    await database.close()


async def test_without_a_riak_that_answers_the_error_says_so() -> None:
    database = Riak([("127.0.0.1", 1)])
    with pytest.raises(DatabaseError, match="no Riak node answers"):
        await database.open()
    await database.close()
