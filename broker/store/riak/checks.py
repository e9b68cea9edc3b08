"""Checks the nodes, the bucket types and the layout when a store is opened, before the store writes anything.

Owns: the requirements, and the messages that say how to meet them. Must never: change the configuration of a cluster.
The only write is the layout object of a new store.

Riak's Protocol Buffers API does not show whether a bucket type has ``node_confirms``. So this module checks the nodes'
versions instead, and the driver sends ``node_confirms`` with every write.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ..base import StoreMisconfigured, StoreUnavailable
from ..features import require_known
from . import riak_pb2 as pb
from . import wire
from .layout import PARTITIONS_PER_SLOT_MAX, Buckets, Layout
from .node import Node, grouped
from .objects import WRITE_W, Objects
from .pool import Pool

log = logging.getLogger("ingeborg.riak")

N_VAL: Final = 3
GRANTS: Final = "riak_core.get_bucket_type,riak_kv.get,riak_kv.put"
"""The only permissions that the driver's user needs on each bucket type if Riak's security is on."""
NODE_CONFIRMS_SINCE: Final = (3, 0)

_NOT_GRANTED: Final = "not granted"


BACKENDS_SECTION: Final = "Backends first"
"""The heading of a section in docs/riak.md."""


_LASTING: Final = f'"allow_mult":true,"n_val":{N_VAL},"node_confirms":{WRITE_W}'
_SEEN: Final = f'"allow_mult":false,"last_write_wins":true,"dvv_enabled":false,"n_val":{N_VAL}'


def creation_commands(bucket_type: str, seen_type: str) -> dict[str, str]:
    """Return the properties with which to create each bucket type, as ``riak-admin`` expects them."""
    return {bucket_type: f'{{"props":{{{_LASTING}}}}}', seen_type: f'{{"props":{{{_SEEN}}}}}'}


async def check_nodes(pool: Pool) -> list[tuple[int, ...]]:
    """Return the versions of the nodes that answer, which is at least one. Set the other nodes aside, so that they are
    tried again later."""

    async def version(node: Node) -> tuple[int, ...] | Exception:
        try:
            info = await pool.ask(node, wire.SERVER_INFO_REQUEST, b"", wire.SERVER_INFO_ANSWER, pb.RpbGetServerInfoResp)
        except (StoreMisconfigured, OSError, EOFError, wire.WireError, wire.Refusal) as error:
            return error
        numbers = info.server_version.decode("ascii", "replace").split(".")
        return tuple(int(number) for number in numbers[:3] if number.isdecimal())

    answers = await asyncio.gather(*map(version, pool.nodes))
    versions = [answer for answer in answers if isinstance(answer, tuple)]
    failed = [(node, answer) for node, answer in zip(pool.nodes, answers, strict=True) if isinstance(answer, Exception)]
    why = grouped((node, str(error) or type(error).__name__) for node, error in failed)
    if not versions and any(isinstance(error, StoreMisconfigured) for _, error in failed):
        raise StoreMisconfigured(f"no Riak node lets the broker in: {why}. See docs/riak.md")
    if not versions:
        raise StoreUnavailable(f"no Riak node answers: {why}")
    if failed:
        log.warning("riak: these nodes are not used for now: %s", why)
    if min(versions) < NODE_CONFIRMS_SINCE:
        log.warning(
            "riak: a node runs version %s. Riak before 3.0 has no node_confirms, so while nodes are down, two copies "
            "on one machine can confirm a write",
            ".".join(map(str, min(versions))),
        )
    return versions


async def check_types(pool: Pool, bucket_type: str, seen_type: str) -> str:
    """Return the backend that the bucket type for hashes names. If a bucket type is not usable, raise
    ``StoreMisconfigured`` with all commands that are necessary."""
    props = {name: await _props(pool, name) for name in (bucket_type, seen_type)}
    problems = [
        problem for name, found in props.items() for problem in _problems(name, found, allow_mult=name != seen_type)
    ]
    _require_none(problems, creation_commands(bucket_type, seen_type))
    seen = props[seen_type]
    assert isinstance(seen, pb.RpbBucketProps), "otherwise there was a problem"
    if not seen.backend:
        log.warning("riak: %s", single_backend(seen_type))
    return seen.backend.decode("utf-8", "replace")


def single_backend(seen_type: str) -> str:
    """Return the warning about a bucket type for hashes that names no backend."""
    return (
        f"bucket type '{seen_type}' names no backend. If the storage_backend or the default backend of the nodes is "
        "changed, they no longer find their data, and every subscription is gone. Set up the backends as in "
        f"docs/riak.md, {BACKENDS_SECTION}, while the nodes have no data yet"
    )


GONE: Final = (
    "Riak no longer finds this store, not even its layout. If the storage_backend or the default backend of the nodes "
    "was changed, restore it, and restart the nodes. Until then the nodes find nothing, and data written meanwhile may "
    f"be hidden afterwards. docs/riak.md, {BACKENDS_SECTION}"
)


def _require_none(problems: list[str], commands: dict[str, str]) -> None:
    """If there are problems, raise ``StoreMisconfigured`` and say how to solve them. ``commands`` has the properties of
    the checked bucket types, by name."""
    if not problems:
        return
    if any(_NOT_GRANTED in problem for problem in problems):
        lines = ["Riak does not grant the broker's user what it needs:", *(f"  - {problem}" for problem in problems)]
        lines.append("Run these on one node of the cluster:")
        lines += [f"  riak-admin security grant {GRANTS} on {name} to USER" for name in commands]
        raise StoreMisconfigured("\n".join(lines))
    lines = ["Riak is not set up for this broker:", *(f"  - {problem}" for problem in problems)]
    lines.append("Run these on one node of the cluster (a type that exists already needs only 'activate' or 'update'):")
    for name, properties in commands.items():
        if any(f"'{name}'" in problem for problem in problems):
            lines.append(f"  riak-admin bucket-type create {name} '{properties}'")
            lines.append(f"  riak-admin bucket-type activate {name}")
    lines.append(f"First configure the backends in every node's riak.conf: docs/riak.md, {BACKENDS_SECTION}.")
    lines.append("On Riak before 3.0 leave node_confirms out. docs/riak.md has the reasons.")
    raise StoreMisconfigured("\n".join(lines))


async def _props(pool: Pool, name: str) -> pb.RpbBucketProps | str:
    """Return the properties of a bucket type, or the reason why they are not available."""
    request = pb.RpbGetBucketTypeReq(type=name.encode()).SerializeToString()
    try:
        answer = await pool.request(wire.TYPE_PROPS_REQUEST, request, wire.BUCKET_PROPS_ANSWER, pb.RpbGetBucketResp)
    except StoreMisconfigured as error:
        refusal = error.__cause__ if isinstance(error.__cause__, wire.Refusal) else None
        if refusal is not None and refusal.not_granted:
            return f"{_NOT_GRANTED}: {refusal.text}"
        if refusal is None or not refusal.no_such_type:
            raise
        return f"bucket type '{name}' does not exist, or is not active"
    return answer.props


def _problems(name: str, props: pb.RpbBucketProps | str, *, allow_mult: bool) -> list[str]:
    if isinstance(props, str):
        return [props]
    found = []
    if props.n_val < N_VAL:
        found.append(f"bucket type '{name}' has n_val {props.n_val}; it has to be {N_VAL} when the type is created")
    if props.allow_mult != allow_mult:
        found.append(f"bucket type '{name}' has allow_mult={_word(props.allow_mult)}")
    if allow_mult and props.last_write_wins:
        found.append(f"bucket type '{name}' has last_write_wins=true: concurrent subscriptions would be lost")
    special = [kind for kind in ("datatype", "consistent", "write_once") if getattr(props, kind)]
    found.extend(f"bucket type '{name}' has {kind} set, which the broker cannot use" for kind in special)
    return found


def _word(value: bool) -> str:
    return "true" if value else "false"


async def settle_layout(objects: Objects, buckets: Buckets, wanted: int | None, *, read_only: bool = False) -> int:
    """Return this store's number of partitions per slot. If the store does not exist, create it with ``wanted`` (or 1)
    partitions per slot; with ``read_only``, raise an error instead. Refuse a store with a feature that this version
    does not know.

    Two endpoints that use different numbers would not see each other's subscriptions. Riak has no atomic create. So a
    process that creates the layout then reads it again. If two processes create it at the same time, at least the
    later one sees both versions.
    """
    choice = wanted or 1
    if not 1 <= choice <= PARTITIONS_PER_SLOT_MAX or choice & (choice - 1):
        raise StoreMisconfigured(
            f"partitions per slot must be a power of two up to {PARTITIONS_PER_SLOT_MAX}, not {choice}"
        )

    def create(layout: Layout) -> None:
        if not layout.partitions_per_slot:
            layout.partitions_per_slot.add(choice)
            layout.dirty = True

    layout = await objects.read_only(Layout, buckets.layout)
    if not layout.partitions_per_slot and read_only:
        raise StoreMisconfigured(
            f"there is no store in this Riak cluster whose buckets begin with {buckets.layout.bucket.decode()!r}: the "
            "first endpoint that starts makes one. Use the --config or INGEBORG_RIAK_NAMESPACE of that endpoint"
        )
    if not layout.partitions_per_slot:
        log.warning(
            "riak: found no store under the namespace %r, so this endpoint makes one. If a store "
            "should be there, the nodes do not find it: stop this endpoint, and see docs/riak.md, %s",
            buckets.namespace,
            BACKENDS_SECTION,
        )
        await objects.change(Layout, buckets.layout, create)
        layout = await objects.read_only(Layout, buckets.layout)
    stored = layout.partitions_per_slot
    if len(stored) != 1:
        raise StoreMisconfigured(
            f"the layout object {buckets.layout.key!r} in bucket {buckets.layout.bucket!r} has two versions "
            f"(partitions per slot: {sorted(stored)}): two endpoints created the store at the same time, with "
            "different options. Stop all endpoints, delete that object, and start one first"
        )
    require_known(layout.features, f"the store whose buckets begin with {buckets.namespace!r}")
    (partitions_per_slot,) = stored
    if wanted is not None and wanted != partitions_per_slot:
        raise StoreMisconfigured(
            f"this store was created with {partitions_per_slot} partitions per slot, and cannot be opened with {wanted}"
        )
    return partitions_per_slot
