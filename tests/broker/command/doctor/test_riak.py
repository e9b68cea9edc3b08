"""The checks of a Riak cluster, on the double."""

from __future__ import annotations

import pytest

from ingeborg.broker.command.doctor import riak as checks
from ingeborg.broker.store.riak import RiakStore
from tests.riak.double import RiakDouble


async def test_a_cluster_that_is_set_up_is_found_good_before_and_after_its_store_is_made() -> None:
    async with RiakDouble(nodes=3) as riak:
        riak.create_broker_types()
        findings = [*await checks.nodes(riak.addresses), *await checks.set_up(riak.addresses, "ingeborg")]
        assert [finding.level for finding in findings] == ["ok"] * 5
        assert findings[0].seen == "answers, Riak 3.2.1"
        assert findings[-1].seen.startswith("no store yet under the namespace ingeborg; if you expect a store there")
        assert not riak.memory.bucket_names(b"ingeborg")
        store = RiakStore(riak.addresses)
        await store.open()
        await store.close()
        assert (await checks.set_up(riak.addresses, "ingeborg"))[-1].seen == "a store, under the namespace ingeborg"


async def test_nodes_that_may_have_a_single_backend_are_warned_of() -> None:
    async with RiakDouble(nodes=3) as riak:
        riak.create_broker_types()
        riak.memory.create_type("ingeborg_seen", allow_mult=False, last_write_wins=True)
        finding = (await checks.set_up(riak.addresses, "ingeborg"))[-1]
        assert (finding.check, finding.level) == ("Riak backends", "warning")
        assert "every subscription is gone" in finding.seen
        assert finding.todo == "docs/riak.md, Backends first"


async def test_nodes_that_do_not_answer_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "NODE_S", 2.0)
    async with RiakDouble(nodes=3) as riak:
        riak.create_broker_types()
        riak.nodes[1].behaviour = "hang"
        await riak.nodes[2].kill()
        up, silent, down = await checks.nodes(riak.addresses)
        assert (up.level, silent.level, down.level) == ("ok", "warning", "warning")
        assert "does not answer" in silent.seen
        assert "riak ping" in down.todo
        await riak.nodes[0].kill()
        assert {finding.level for finding in await checks.nodes(riak.addresses)} == {"error"}


async def test_an_old_node_and_a_single_one_are_warned_of() -> None:
    async with RiakDouble(nodes=1, version="2.9.1") as riak:
        old, single = await checks.nodes(riak.addresses)
        assert (old.level, single.level) == ("warning", "warning")
        assert "no node_confirms" in old.seen


async def test_missing_bucket_types_are_found_with_their_commands() -> None:
    async with RiakDouble(nodes=3) as riak:
        (finding,) = await checks.set_up(riak.addresses, "ingeborg")
        assert finding.level == "error"
        assert "bucket type 'ingeborg' does not exist" in finding.seen
        assert "riak-admin bucket-type create ingeborg " in finding.todo
        riak.create_broker_types()
        riak.memory.create_type("ingeborg", n_val=1)
        assert "n_val 1" in (await checks.set_up(riak.addresses, "ingeborg"))[0].seen
