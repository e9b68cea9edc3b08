"""Two versions of the peer protocol on one store: the rules of docs/upgrading.md for an upgrade that changes it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ingeborg.bench.starting import claim
from ingeborg.broker.shell.peer_socket import VERSION
from ingeborg.protocol.client import Client
from ingeborg.protocol.pages import fetch
from tests.broker.running import Process, plain, started_by

from .processes import eventually
from .stalls import again_after_a_stall

pytestmark = pytest.mark.cluster

#: The command line, in a process whose peer protocol has another number.
_SERVE = (
    "import sys; from ingeborg.broker.shell import peer_socket; peer_socket.VERSION = {}; "
    "from ingeborg.broker.command.cli import main; sys.exit(main(sys.argv[1:]))"
)


@asynccontextmanager
async def endpoint(directory: Path, version: int) -> AsyncIterator[tuple[Process, str]]:
    """Start an endpoint with that version on the directory's store; return it and its URL."""
    with claim() as port:
        options = ("--name", f"of-version-{version}", "--port", str(port.first), "--store", f"lmdb:{directory}/store")
        command = [sys.executable, "-c", _SERVE.format(version), "serve", *options]
        async with started_by(command, directory) as running:
            yield running, f"ws://127.0.0.1:{port.first}"


# A lease that a stall ends does not come back while the new one, which nobody admits, is there (ADR 4).
@again_after_a_stall(1.5)
async def test_the_new_version_waits_until_the_last_of_the_old_one_has_gone(tmp_path: Path) -> None:
    async with endpoint(tmp_path, VERSION) as (old, old_url):
        await old.ready_url()
        async with Client(old_url, "ann") as ann:
            await ann.subscribe("news")
        async with endpoint(tmp_path, VERSION + 1) as (new, new_url):

            async def said() -> bool:
                """Let chance decide which of the two dials, and so which one finds out."""
                return "of the peer protocol, not" in new.said() + old.said()

            await eventually(said, "one of them says why they are not linked")
            page = await fetch(new_url, "/readyz")
            assert (page.status, page.text) == (503, "not all other endpoints have let this one in yet\n")
            async with plain(new_url) as connection:
                publish = {"command": "publish", "client_id": "bob", "topic": "news", "payload": 1}
                assert (await connection.ask(publish))["error"] == "peer_unavailable"
            assert (await fetch(old_url, "/readyz")).status == 200
            async with Client(old_url, "bob") as bob:
                assert await bob.publish("news", 2, ack=True) is False

            assert await old.end() == 0
            await new.ready_url()
            async with Client(new_url, "ann", listen=True) as ann, Client(new_url, "bob") as bob:
                await bob.publish("news", 3, ack=True)
                assert (await anext(ann)).broadcast == 3
