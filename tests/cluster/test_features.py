"""An endpoint of a commit from before features: it refuses a store while one is on, and starts when none is."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from ingeborg.broker.store.base import Store
from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.broker.store.riak import RiakStore
from tests.broker.running import ingeborg

from ..riak.double import RiakDouble
from .test_stores import url_of

pytestmark = pytest.mark.cluster

Storage = Callable[[Path], AbstractAsyncContextManager[tuple[Store, str]]]


@asynccontextmanager
async def on_lmdb(directory: Path) -> AsyncIterator[tuple[Store, str]]:
    store = EmbeddedStore(directory / "store")
    await store.open()
    try:
        yield store, f"lmdb:{directory / 'store'}"
    finally:
        await store.close()


@asynccontextmanager
async def on_riak(_directory: Path) -> AsyncIterator[tuple[Store, str]]:
    async with RiakDouble(nodes=3) as riak:
        riak.create_broker_types()
        store = RiakStore(riak.addresses)
        await store.open()
        try:
            yield store, url_of(riak.addresses)
        finally:
            await store.close()


@pytest.mark.parametrize(
    ("storage", "refusal"),
    [
        (on_lmdb, "durable has layout 2, this version knows layout 1; run the version that wrote it"),
        (on_riak, "the object b'layout' in bucket b'ingeborg.layout' is none of this version's: not layout version 2"),
    ],
)
@pytest.mark.prove
async def test_a_release_from_before_features_says_why_it_does_not_start_while_one_is_on(
    storage: Storage, refusal: str, old: dict[str, str], tmp_path: Path
) -> None:
    variables = {**old, "XDG_DATA_HOME": str(tmp_path / "data")}  # the secret of endpoints on Riak lies there
    async with storage(tmp_path) as (store, url):
        serve = ("serve", "--port", "0", "--store", url)
        await store.switch("standby", True)
        async with ingeborg(tmp_path, *serve, variables=variables) as endpoint:
            assert await endpoint.ended() == 1
            assert refusal in endpoint.said()
        await store.switch("standby", False)
        async with ingeborg(tmp_path, *serve, variables=variables) as endpoint:
            await endpoint.ready_url()
            assert await endpoint.end(signal.SIGTERM) == 0
