"""Riak as a store for the contract suites: the double, and a real cluster if one is configured.

``INGEBORG_TEST_RIAK=host:port[,host:port…]`` names the nodes of a real cluster with the two bucket types of
``docs/riak.md``. Every storage is a separate namespace in it: a test reads and changes only what it has written, and
deletes nothing afterwards. ``INGEBORG_TEST_RIAK_NODE_CONFIRMS=1`` is for a cluster of one node.
``INGEBORG_TEST_RIAK_USER``, ``_PASSWORD_FILE`` and ``_CA_FILE`` are for one whose security is on.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy

from ingeborg.broker.command.config import ServeOptions
from ingeborg.broker.command.riak_credentials import RiakCredentials
from ingeborg.broker.store.riak import Credentials, RiakStore, Secured
from tests import proof, wants
from tests.broker.transports import Authority

from .double import RiakDouble, Security

OpenRiakStore = Callable[[], Awaitable[RiakStore]]

Example = TypeVar("Example")


def real_nodes() -> list[tuple[str, int]]:
    """Return the nodes of the real cluster; skip the test if there is none."""
    given = os.environ.get("INGEBORG_TEST_RIAK", "")
    if not given:
        wants.skip("a real Riak", "INGEBORG_TEST_RIAK=host:port[,host:port...], see docs/riak.md")
    return [(host, int(port)) for host, _, port in (node.rpartition(":") for node in given.split(","))]


def real_options() -> dict[str, Any]:
    """Return the options of a store on the real cluster."""
    node_confirms = int(os.environ.get("INGEBORG_TEST_RIAK_NODE_CONFIRMS", "2"))
    options = {"namespace": f"test-{secrets.token_hex(8)}", "node_confirms": node_confirms}
    return {**options, "connecting": Secured(credentials.current)} if (credentials := real_credentials()) else options


def real_credentials() -> RiakCredentials | None:
    """Return the credentials of a user of the real cluster, if its security is on."""
    names = ("riak_user", "riak_password_file", "riak_ca_file")
    given: dict[str, Any] = {name: os.environ.get(f"INGEBORG_TEST_{name.upper()}", "") for name in names}
    return RiakCredentials(ServeOptions(**given)) if given["riak_user"] else None


@asynccontextmanager
async def stores_on(nodes: Sequence[tuple[str, int]], **options: Any) -> AsyncIterator[OpenRiakStore]:
    """Open stores on these nodes, and close them at the end."""
    async with AsyncExitStack() as handles:

        async def open_store() -> RiakStore:
            store = RiakStore(nodes, **options)
            handles.push_async_callback(store.close)
            await store.open()
            return store

        yield open_store


PATIENT: dict[str, Any] = {"timeout_s": 60.0, "attempt_timeout_s": 20.0}
"""The double is in this process: its delays must not count as a node's."""


def holds_for_any(
    examples: SearchStrategy[Example], check: Callable[[list[RiakStore], Example], Coroutine[Any, Any, None]]
) -> None:
    """Run the check on some examples, each time with the same two stores on a double of one node."""

    async def start(stack: AsyncExitStack) -> list[RiakStore]:
        riak = await stack.enter_async_context(RiakDouble(nodes=1))
        riak.create_broker_types()
        opener = await stack.enter_async_context(stores_on(riak.addresses, node_confirms=1, **PATIENT))
        return [await opener(), await opener()]

    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        @settings(
            max_examples=proof.examples(40, 10),
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(example=examples)
        def check_each(stores: list[RiakStore], example: Example) -> None:
            runner.run(check(stores, example))

        try:
            check_each(runner.run(start(stack)))
        finally:
            runner.run(stack.aclose())


@asynccontextmanager
async def riak_double(_directory: Path) -> AsyncIterator[OpenRiakStore]:
    """Make a fresh double of three nodes."""
    async with RiakDouble(nodes=3) as riak:
        riak.create_broker_types()
        async with stores_on(riak.addresses, **PATIENT) as opener:
            yield opener


USER, PASSWORD = "ingeborg", b"the password of these tests"


def secure(riak: RiakDouble, authority: Authority) -> Credentials:
    """Turn the double's security on; return the driver's credentials."""
    nodes = authority.issue(11)
    riak.security = Security(nodes.chain, nodes.key, authority.file)
    riak.security.passwords[USER.encode()] = PASSWORD
    riak.security.grant_all(USER.encode(), b"ingeborg", b"ingeborg_seen")
    return Credentials(USER, PASSWORD, authority.context)


@asynccontextmanager
async def riak_double_tls(directory: Path) -> AsyncIterator[OpenRiakStore]:
    """Make a fresh double of three nodes whose security is on."""
    async with RiakDouble(nodes=3) as riak:
        riak.create_broker_types()
        credentials = secure(riak, Authority(directory))
        async with stores_on(riak.addresses, connecting=Secured(lambda: credentials), **PATIENT) as opener:
            yield opener


@asynccontextmanager
async def riak_real(_directory: Path) -> AsyncIterator[OpenRiakStore]:
    """Make an empty namespace of the real cluster."""
    async with stores_on(real_nodes(), **real_options()) as opener:
        yield opener
