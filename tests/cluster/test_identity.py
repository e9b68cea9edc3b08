"""Admission: endpoints with one name, and endpoints that do not share the secret."""

from __future__ import annotations

import re
import secrets
import signal
from pathlib import Path

import pytest

from ingeborg.broker.command.serve import NAME_TAKEN
from ingeborg.protocol.client import Client
from ingeborg.protocol.pages import fetch

from .processes import cluster_of, eventually
from .stalls import again_after_a_stall
from .traffic import Ear

pytestmark = pytest.mark.cluster


async def test_who_comes_under_the_name_of_a_living_endpoint_ends_and_says_why(tmp_path: Path) -> None:
    async with cluster_of(["twin", "other"], tmp_path) as cluster:
        older = cluster["twin"]
        async with Ear([older.url], "faithful", backoff_max_s=0.2) as ear:
            await ear.client.subscribe("twins")
            younger = cluster.new("twin")
            await younger.start(ready=False)
            assert await younger.ended() == NAME_TAKEN
            assert f"endpoint 'twin' is already running at {older.url}; give every endpoint its own" in younger.said()
            async with Client(cluster["other"].url, "friend", timeout_s=20) as friend:
                assert await friend.publish("twins", 1, ack=True) is False
            await ear.hears([("twins", 1)])
        assert (await older.metrics())["joins_total"] == 1
        assert (await cluster["other"].metrics())["endpoints_gone_total"] == 0


async def test_one_that_stood_still_until_its_name_was_taken_ends_and_says_why(tmp_path: Path) -> None:
    async with cluster_of(["twin", "other"], tmp_path) as cluster:
        older, younger = cluster["twin"], cluster.new("twin")
        older.signal(signal.SIGSTOP)
        await younger.start(ready=False)
        await eventually(younger.answers, "it serves HTTP")
        waiting = "another endpoint had the name twin until recently, and may still be running\n"
        assert (await fetch(younger.url, "/readyz")).text in (waiting, "ready\n")
        await younger.ready()
        older.signal(signal.SIGCONT)
        assert await older.ended() == NAME_TAKEN
        assert re.search(rf"{re.escape(younger.url)}.* registered as endpoint 'twin'.* its own name", older.said())
        async with Client(younger.url, "friend", timeout_s=20) as friend:
            assert await friend.publish("twins", 1, ack=True) is False


# A lease that a stall ends does not come back while the stranger, which nobody admits, is there (ADR 4).
@again_after_a_stall(1.5)
async def test_endpoints_that_do_not_share_the_secret_do_not_link(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for file in (ours, theirs):
        file.write_text(secrets.token_hex(32))
    async with cluster_of(["a", "b"], tmp_path, "--peer-secret-file", str(ours)) as cluster:
        stranger = cluster.new("stranger", "--peer-secret-file", str(theirs))
        await stranger.start(ready=False)
        await eventually(stranger.answers, "the stranger serves HTTP")

        async def all_say_why() -> bool:
            # Only the endpoint that is dialled finds out; the other one learns nothing more.
            return all("no link with" in endpoint.said() for endpoint in cluster.endpoints.values())

        await eventually(all_say_why, "a word about the refused links in every log")
        why = "it does not know the shared secret: give all endpoints the same --peer-secret-file"
        assert any(why in endpoint.said() for endpoint in cluster.endpoints.values())
        assert sum([(await endpoint.metrics())["errors_total"] for endpoint in cluster.endpoints.values()]) > 0
        answer = await fetch(stranger.url, "/readyz")
        assert (answer.status, answer.text) == (503, "not all other endpoints have let this one in yet\n")
        assert (await stranger.metrics()).peers_up == set()

        # The others go on without it.
        await cluster.linked("a", "b")
        assert (await fetch(cluster["a"].url, "/readyz")).status == 200
        async with Ear(cluster["a"].url, "ear") as ear, Client(cluster["b"].url, "friend", timeout_s=20) as friend:
            topics = [f"secret {number}" for number in range(20)]
            await ear.client.subscribe(topics)
            for topic in topics:
                assert await friend.publish(topic, "x", ack=True) is False
            await ear.all_read()
            assert ear.heard == {(topic, "x"): 1 for topic in topics}


async def test_endpoints_without_a_secret_file_find_the_same_one_beside_their_store(tmp_path: Path) -> None:
    async with cluster_of(["a", "b"], tmp_path):
        secret = tmp_path / "store" / "peer-secret"
        assert len(secret.read_text().strip()) == 64
        assert secret.stat().st_mode & 0o077 == 0
