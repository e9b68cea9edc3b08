"""Checks the Riak cluster: each named node, the bucket types, the store's layout.

Owns: the requests to Riak. Must never: write to the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ...store.base import StoreError, StoreMisconfigured
from ...store.riak import Connecting, RiakStore, riak_pb2, wire
from ...store.riak.checks import BACKENDS_SECTION, NODE_CONFIRMS_SINCE, single_backend
from ...store.riak.counters import zeroed
from ...store.riak.node import Node
from ...store.riak.pool import Pool
from .findings import Finding, Level, error, ok, warning

NODE_S = 3.0


async def nodes(addresses: Sequence[tuple[str, int]], connecting: Connecting | None = None) -> list[Finding]:
    """Check whether each node answers, and which version it runs."""
    times = {"timeout_s": NODE_S, "attempt_timeout_s": NODE_S}
    pool = Pool(addresses, zeroed(), connections_per_node=1, connecting=connecting, **times)
    try:
        findings = list(await asyncio.gather(*(_node(pool, node) for node in pool.nodes)))
    finally:
        pool.close()
    if any(finding.level != Level.ERROR for finding in findings):
        # One node that answers is enough to start an endpoint, so failures of the others are only warnings.
        findings = [
            finding._replace(level=Level.WARNING) if finding.level == Level.ERROR else finding for finding in findings
        ]
    if len(addresses) == 1:
        seen = "only one node is named: without it an endpoint has no store, and a write needs two machines"
        todo = "name several: --store riak:HOST:PORT,HOST:PORT; if there is only one, set INGEBORG_RIAK_NODE_CONFIRMS=1"
        findings.append(warning("Riak nodes", seen, todo))
    return findings


async def _node(pool: Pool, node: Node) -> Finding:
    check = f"Riak node {node}"
    try:
        info = await pool.ask(
            node, wire.SERVER_INFO_REQUEST, b"", wire.SERVER_INFO_ANSWER, riak_pb2.RpbGetServerInfoResp
        )
    except StoreMisconfigured as failure:
        return error(check, str(failure), "see docs/riak.md, Riak's security")
    except (OSError, EOFError, wire.WireError, wire.Refusal) as failure:
        seen = (
            "it does not answer in time"
            if isinstance(failure, TimeoutError)
            else str(failure) or "it closed the connection"
        )
        todo = "on that machine: riak ping (riak start); in riak.conf, set listener.protobuf.internal to this address"
        return error(check, seen, todo)
    version = info.server_version.decode("ascii", "replace")
    numbers = tuple(int(number) for number in version.split(".")[:2] if number.isdecimal())
    if numbers < NODE_CONFIRMS_SINCE:
        seen = f"answers, Riak {version}: it has no node_confirms, so both copies of a write can be on one machine"
        return warning(check, seen, "upgrade to 3.0 or newer; until then leave node_confirms out (docs/riak.md)")
    return ok(check, f"answers, Riak {version}")


async def set_up(
    addresses: Sequence[tuple[str, int]], namespace: str, connecting: Connecting | None = None
) -> list[Finding]:
    """Check the bucket types and the store's layout, which an endpoint also checks when it starts."""
    check = "Riak bucket types"
    store = RiakStore(addresses, namespace=namespace, read_only=True, connecting=connecting)
    contents = f"a store, under the namespace {namespace}"
    try:
        try:
            await store.open()
        except StoreMisconfigured as failure:
            if not str(failure).startswith("there is no store"):
                return [_misconfigured(check, failure)]
            contents = (
                f"no store yet under the namespace {namespace}; if you expect a store there, the nodes do not find it"
            )
        findings = [ok(check, "correct"), ok("store's contents", contents)]
        if not store.seen_backend:
            todo = f"docs/riak.md, {BACKENDS_SECTION}"
            findings.append(warning("Riak backends", single_backend(store.seen_type), todo))
        return findings
    except StoreError as failure:
        return [error(check, str(failure), "get a node to answer first")]
    finally:
        await store.close()


def _misconfigured(check: str, failure: StoreMisconfigured) -> Finding:
    seen, _, todo = str(failure).partition("\nRun these")
    return error(check, seen.replace("\n  -", ""), f"Run these{todo}" if todo else "see docs/riak.md")
