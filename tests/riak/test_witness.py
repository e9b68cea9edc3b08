"""The official ``riak`` 2.7.0 client reads what the driver wrote, and the driver reads what the client wrote, siblings
included.

The client is from 2016: it needs a protobuf that cannot coexist with today's. So it has a separate environment. pip
makes it once in ``.venv-witness/`` (the tests are skipped if pip reaches no package index), and a short script drives
it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import venv
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import ormsgpack
import pytest

from ingeborg.broker.store.base import Location, Subscribe
from ingeborg.broker.store.riak import RiakStore
from ingeborg.broker.store.riak.layout import VERSION, Buckets, partition_of, set_root
from ingeborg.broker.store.riak.objects import Address
from tests import wants
from tests.contract.asking import listen, subscribers

from .double import RiakDouble
from .storages import real_nodes, real_options

ROOT = Path(__file__).parents[2]
PACKAGES = [
    "riak==2.7.0",
    "python3-protobuf==2.5.0",
    "basho-erlastic==2.1.1",
    "six==1.17.0",
    "setuptools==65.5.1",  # distutils, which Python 3.12 no longer has
]
"""All packages: installed without their dependencies, because riak's own pins can no longer be resolved."""

SETUP_TIMEOUT_S = 100

pytestmark = [pytest.mark.prove, pytest.mark.timeout(300)]  # includes making the environment


@pytest.fixture(scope="session")
def witness_python() -> Path:
    """Return the interpreter of the witness's environment, made at first use, and again when the pins change."""
    mark = sha256(repr((PACKAGES, sys.version_info[:2])).encode()).hexdigest()[:16]
    home = ROOT / ".venv-witness" / mark
    python = home / "bin" / "python"
    ready = home / "ready"  # written last, so that an unfinished environment is made again
    if not ready.exists():
        venv.create(home, clear=True)  # without its own pip, which would take twice as long as the rest
        install = [sys.executable, "-m", "pip", "--python", str(python), "install"]
        install += ["--quiet", "--no-deps", "--retries", "1", *PACKAGES]
        try:
            subprocess.run(install, check=True, capture_output=True, text=True, timeout=SETUP_TIMEOUT_S)
        except subprocess.CalledProcessError as error:
            wants.skip("the witness's packages", f"pip cannot install them: {error.stderr.strip().splitlines()[-1]}")
        except subprocess.TimeoutExpired:
            wants.skip("the witness's packages", f"pip did not install them within {SETUP_TIMEOUT_S} s")
        ready.touch()
    return python


class Riak(NamedTuple):
    """A cluster for the meeting, and how to open stores on it."""

    address: tuple[str, int]
    open_store: Callable[[], Any]
    buckets: Buckets


@pytest.fixture(params=["double", "real"])
async def riak(request: pytest.FixtureRequest) -> AsyncIterator[Riak]:
    stores: list[RiakStore] = []

    def opener(nodes: list[tuple[str, int]], options: dict[str, Any]) -> Callable[[], Any]:
        async def open_store() -> RiakStore:
            stores.append(RiakStore(nodes, **options))
            await stores[-1].open()
            return stores[-1]

        return open_store

    if request.param == "real":
        nodes, options = real_nodes(), real_options()
        yield Riak(nodes[0], opener(nodes, options), Buckets(options["namespace"]))
    else:
        async with RiakDouble(nodes=3) as double:
            double.create_broker_types()
            yield Riak(double.addresses[0], opener(double.addresses, {}), Buckets("ingeborg"))
    for store in stores:
        await store.close()


async def witness(python: Path, riak: Riak, *steps: tuple[Address, str, Any]) -> list[list[bytes | None]]:
    """Have the official client do the steps ``(address, what, value)``; return the values that exist after each
    step."""
    orders = [
        {
            "type": "ingeborg",
            "bucket": address.bucket.decode(),
            "key": address.key.decode(),
            what: b64encode(value).decode() if isinstance(value, bytes) else value,
        }
        for address, what, value in steps
    ]
    script = Path(__file__).parent / "witness" / "say.py"
    environment = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    process = await asyncio.create_subprocess_exec(
        str(python),
        str(script),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    order = json.dumps({"host": riak.address[0], "port": riak.address[1], "steps": orders}).encode()
    try:
        async with asyncio.timeout(30):
            said, complaint = await process.communicate(order)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    assert process.returncode == 0, complaint.decode()
    return [[None if value is None else b64decode(value) for value in values] for values in json.loads(said)]


def unpacked(value: bytes | None) -> Any:
    """Return the content of an existing object."""
    assert value is not None
    return ormsgpack.unpackb(value)


def partition(riak: Riak, topic: str) -> Address:
    return riak.buckets.partition(*partition_of(topic, 1))


async def test_the_witness_reads_what_the_driver_wrote(witness_python: Path, riak: Riak) -> None:
    store = await riak.open_store()
    await store.subscribe([Subscribe("ann", ["rock"]), Subscribe("bob", ["rock"])])
    (listening,) = await listen(store, ["ann"], "here")
    (topic,), (topics,), (location,), nothing = await witness(
        witness_python,
        riak,
        (partition(riak, "rock"), "get", True),
        (set_root(riak.buckets.clients, "ann"), "get", True),
        (riak.buckets.location("ann"), "get", True),
        (riak.buckets.location("nobody"), "get", True),
    )
    assert unpacked(topic) == [VERSION, {"rock": ["ann", "bob"]}, {}, [], False]
    version, name, level, members, removed = unpacked(topics)
    assert (version, name, level, list(members), removed) == (VERSION, "ann", 0, ["rock"], {})
    assert unpacked(location) == [VERSION, [*listening], [], [], 0, 0]
    assert nothing == []


async def test_the_driver_reads_what_the_witness_wrote(witness_python: Path, riak: Riak) -> None:
    store = await riak.open_store()
    there = Location(2**60, "there", True)  # far above any clock's time
    await witness(
        witness_python,
        riak,
        (partition(riak, "rock"), "blind", ormsgpack.packb([VERSION, {"rock": ["ann"]}, {}, [], False])),
        (riak.buckets.location("ann"), "blind", ormsgpack.packb([VERSION, [*there], [], [], 0, 0])),
    )
    assert await subscribers(store, ["rock"]) == [{"ann"}]
    assert await store.locations(["ann"]) == [there]
    assert await listen(store, ["ann"], "here") == [Location(there.number + 1, "here", True)]
    await store.subscribe([Subscribe("bob", ["rock"])])
    ((value,),) = await witness(witness_python, riak, (partition(riak, "rock"), "get", True))
    assert unpacked(value)[1] == {"rock": ["ann", "bob"]}


async def test_the_driver_resolves_siblings_the_witness_made(witness_python: Path, riak: Riak) -> None:
    store = await riak.open_store()
    await store.subscribe([Subscribe("ann", ["rock"])])
    rival = ormsgpack.packb([VERSION, {"rock": ["bob"], "jazz": ["bob"]}, {}, [], False])
    if partition(riak, "jazz") == partition(riak, "rock"):
        raise AssertionError("two topics of different partitions were meant")
    (made,) = await witness(witness_python, riak, (partition(riak, "rock"), "blind", rival))
    assert len(made) == 2
    assert await subscribers(store, ["rock"]) == [{"ann", "bob"}]
    await store.repaired()
    (left,) = await witness(witness_python, riak, (partition(riak, "rock"), "get", True))
    assert [unpacked(value)[1]["rock"] for value in left] == [["ann", "bob"]]
    assert store.counters["siblings_resolved"] == 1


async def test_the_witness_resolves_siblings_the_driver_met(witness_python: Path, riak: Riak) -> None:
    store = await riak.open_store()
    await store.subscribe([Subscribe("ann", ["rock"])])
    united = ormsgpack.packb([VERSION, {"rock": ["ann", "bob"]}, {}, [], False])
    both, one = await witness(
        witness_python,
        riak,
        (partition(riak, "rock"), "blind", ormsgpack.packb([VERSION, {"rock": ["bob"]}, {}, [], False])),
        (partition(riak, "rock"), "put", united),
    )
    assert len(both) == 2
    assert one == [united]
    assert await subscribers(store, ["rock"]) == [{"ann", "bob"}]
    assert store.counters["siblings_found"] == 0


async def test_what_the_witness_deleted_is_an_empty_set(witness_python: Path, riak: Riak) -> None:
    store = await riak.open_store()
    await store.subscribe([Subscribe("ann", ["rock"])])
    (left,) = await witness(witness_python, riak, (partition(riak, "rock"), "delete", True))
    assert left == []
    assert await subscribers(store, ["rock"]) == [set()]
    await store.subscribe([Subscribe("bob", ["rock"])])
    ((value,),) = await witness(witness_python, riak, (partition(riak, "rock"), "get", True))
    assert unpacked(value)[1] == {"rock": ["bob"]}
