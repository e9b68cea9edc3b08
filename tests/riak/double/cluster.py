"""A Riak cluster's memory: virtual nodes, preference lists, quorums, fallbacks, hand-off. No sockets.

Owns: where copies lie, and the answers of a coordinating node. Must never: decide by time or chance. Copies answer in a
fixed order, and a test asks for everything that goes wrong.

The ring has 16 partitions. Node ``p % nodes`` owns partition ``p``, and a key lives in three neighbouring partitions.
If a partition's owner is unreachable, another node stands in for it (a *fallback*), in a separate store that it hands
over when the owner is back. This must agree with the recorded behaviour of the real cluster (``test_transcripts.py``).
Everything else follows the public sources of riak_kv 3.0: the get and put state machines.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

from .causality import NOTHING, StoredObject, Vector, merge, put

RING = 16
QUORUM, ALL, ONE, DEFAULT = 4294967293, 4294967292, 4294967294, 4294967291
"""The symbolic values of r, w, pr, pw and dw, as unsigned 32-bit numbers."""


class Refuse(Exception):
    """A node answers with an error; the text is Riak's, word for word."""


class Key(NamedTuple):
    type: bytes
    bucket: bytes
    key: bytes


class Place(NamedTuple):
    """One entry of a preference list."""

    partition: int
    node: int
    primary: bool


@dataclass
class Faults:
    """Faults of the cluster in addition to nodes that are down or cut off."""

    fallbacks_answer_first: bool = False
    read_repair: bool = True
    overloaded: bool = False  # every virtual node refuses


def default_props() -> dict[str, Any]:
    """Return the properties of a bucket in the default type."""
    return {
        "n_val": 3,
        "allow_mult": False,
        "last_write_wins": False,
        "has_precommit": True,
        "has_postcommit": True,
        "chash_keyfun": {"module": b"riak_core_util", "function": b"chash_std_keyfun"},
        "linkfun": {"module": b"riak_kv_wm_link_walker", "function": b"mapreduce_linkfun"},
        "old_vclock": 86400,
        "young_vclock": 20,
        "big_vclock": 50,
        "small_vclock": 50,
        "pr": 0,
        "r": QUORUM,
        "w": QUORUM,
        "pw": 0,
        "dw": QUORUM,
        "rw": QUORUM,
        "basic_quorum": False,
        "notfound_ok": True,
    }


class Memory:
    """The copies of everything on every node, and which nodes can reach each other."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.up = [True] * nodes
        self.side = [0] * nodes  # nodes on different sides cannot reach each other
        self.faults = Faults()
        self.types: dict[bytes, dict[str, Any]] = {b"default": default_props()}
        self.buckets: dict[tuple[bytes, bytes], dict[str, Any]] = {}
        self.node_confirms: dict[bytes, int] = {}  # not among the properties in Protocol Buffers
        self.copies: defaultdict[tuple[int, int], dict[Key, StoredObject]] = defaultdict(dict)
        self.now_us = 1_700_000_000_000_000
        self._actors: dict[tuple[Place, Key], str] = {}
        self._epochs = 0

    # Set-up.

    def create_type(self, name: str, *, node_confirms: int = 0, **props: Any) -> None:
        """Do what ``bucket-type create`` and ``activate`` do."""
        self.types[name.encode()] = {**default_props(), "allow_mult": True, **props}
        self.node_confirms[name.encode()] = node_confirms

    def props(self, type_: bytes, bucket: bytes) -> dict[str, Any]:
        if type_ not in self.types:
            raise Refuse("no_type")
        props = self.buckets.get((type_, bucket), self.types[type_])
        if "datatype" in props:
            raise Refuse("the double does not do Riak data types")
        return props

    # Faults, and their end.

    def cut(self, *sides: list[int]) -> None:
        """Partition the cluster: nodes see only those on their own side from now on."""
        for number, side in enumerate(sides):
            for node in side:
                self.side[node] = number

    def heal(self) -> None:
        """End every network partition, and hand over the data that fallbacks hold."""
        self.side = [0] * self.nodes
        self.hand_off()

    def hand_off(self) -> None:
        for (node, partition), held in list(self.copies.items()):
            owner = partition % self.nodes
            if node != owner and self.reaches(node, owner):
                for key, stored in held.items():
                    self._store(Place(partition, owner, True), key, stored)
                del self.copies[node, partition]

    def wipe(self, node: int) -> None:
        """Erase the node's disk."""
        for place in list(self.copies):
            if place[0] == node:
                del self.copies[place]

    def reaches(self, one: int, other: int) -> bool:
        return self.up[one] and self.up[other] and self.side[one] == self.side[other]

    # Reading and writing, as the node ``at`` coordinates it.

    def preference_list(self, at: int, key: Key) -> list[Place]:
        first = zlib.crc32(b"/".join(key)) % RING
        places: list[Place] = []
        missing = []
        for partition in range(first, first + 3):
            owner = partition % RING % self.nodes
            if self.reaches(at, owner):
                places.append(Place(partition % RING, owner, True))
            else:
                missing.append(partition % RING)
        if not missing:
            return places
        # Search for stand-ins further around the ring; a node may have to stand in for several.
        stand_ins = [n for n in (p % self.nodes for p in range(first + 3, first + 3 + RING)) if self.reaches(at, n)]
        unused = [node for node in dict.fromkeys(stand_ins) if node not in {place.node for place in places}]
        for number, partition in enumerate(missing):
            node = unused[number] if number < len(unused) else stand_ins[number % len(stand_ins)]
            places.append(Place(partition, node, False))
        return places

    def read(self, at: int, key: Key, request: dict[str, Any]) -> StoredObject:
        """Return the object, ``NOTHING`` if there is none. Source: ``riak_kv_get_core``."""
        props = self.props(key.type, key.bucket)
        n_val = props["n_val"]
        r = quorum(request.get("r"), props["r"], n_val)
        pr = quorum(request.get("pr"), props["pr"], n_val)
        confirms = request.get("node_confirms", self.node_confirms.get(key.type, 0))
        notfound_ok = request.get("notfound_ok", props["notfound_ok"])
        if max(r, pr) > n_val:
            raise Refuse(f"{{n_val_violation,{n_val}}}")
        places = self.preference_list(at, key)
        if (primaries := sum(place.primary for place in places)) < pr:
            raise Refuse(f"{{pr_val_unsatisfied,{pr},{primaries}}}")
        if self.faults.overloaded:
            raise Refuse("overload")
        order = sorted(places, key=lambda place: place.primary) if self.faults.fallbacks_answer_first else places
        ok = ok_primary = 0
        machines: set[int] = set()
        found = NOTHING
        for place in order:
            copy = self.copies[place.node, place.partition].get(key)
            if copy is not None or notfound_ok:
                ok += 1
                ok_primary += place.primary
                machines.add(place.node)
            if copy is not None:
                found = merge(found, copy, allow_mult=props["allow_mult"])
            if ok >= r and ok_primary >= pr and len(machines) >= confirms:
                break
        if len(machines) < confirms:
            raise Refuse(f"{{insufficient_nodes,{len(machines)},need,{confirms}}}")
        if found.siblings and (ok < r or ok_primary < pr):
            raise Refuse(f"{{r_val_unsatisfied,{r},{ok}}}")
        if self.faults.read_repair:
            self._repair(key, places)
        return found

    def write(
        self, at: int, key: Key, context: Vector, content: dict[str, Any], request: dict[str, Any]
    ) -> StoredObject:
        """Return the object as it is now on the copies that were written. Source: ``riak_kv_put_core``."""
        props = self.props(key.type, key.bucket)
        n_val = props["n_val"]
        w = quorum(request.get("w"), props["w"], n_val)
        pw = quorum(request.get("pw"), props["pw"], n_val)
        confirms = request.get("node_confirms", self.node_confirms.get(key.type, 0))
        if max(w, pw) > n_val:
            raise Refuse(f"{{n_val_violation,{n_val}}}")
        places = self.preference_list(at, key)
        if (primaries := sum(place.primary for place in places)) < pw:
            raise Refuse(f"{{pw_val_unsatisfied,{pw},{primaries}}}")
        if self.faults.overloaded:
            raise Refuse("overload")
        coordinator = next((place for place in places if place.node == at), places[0])
        self.now_us += 1
        held = self.copies[coordinator.node, coordinator.partition].get(key, NOTHING)
        if held is NOTHING:
            # A copy that is (or has become) unknown here starts with a new actor: its counts start again, and must not
            # be confused with the earlier ones. Riak calls this the key's epoch.
            self._epochs += 1
            self._actors[coordinator, key] = f"{coordinator.node}/{coordinator.partition}/{self._epochs}"
        actor = self._actors.setdefault((coordinator, key), f"{coordinator.node}/{coordinator.partition}/0")
        allow_mult = props["allow_mult"]
        written = put(held, context, actor, content, self.now_us, allow_mult=allow_mult)
        self.copies[coordinator.node, coordinator.partition][key] = written
        result = written
        for place in places:
            if place != coordinator:
                result = merge(result, self._store(place, key, written), allow_mult=allow_mult)
        # Checked last, as in the real cluster: the copies have been written by then.
        if (machines := len({place.node for place in places})) < confirms:
            raise Refuse(f"{{node_confirms_val_unsatisfied,{confirms},{machines}}}")
        return result

    def keys(self, type_: bytes, bucket: bytes) -> set[bytes]:
        """List the keys, including tombstones: the real cluster lists them until it reaps them, and here they stay."""
        return {key.key for held in self.copies.values() for key in held if (key.type, key.bucket) == (type_, bucket)}

    def bucket_names(self, type_: bytes) -> set[bytes]:
        return {key.bucket for held in self.copies.values() for key in held if key.type == type_}

    def object(self, key: Key) -> StoredObject:
        """Merge all copies on all nodes, even unreachable ones."""
        found = NOTHING
        for held in self.copies.values():
            if key in held:
                found = merge(found, held[key], allow_mult=self.props(key.type, key.bucket)["allow_mult"])
        return found

    def _store(self, place: Place, key: Key, incoming: StoredObject) -> StoredObject:
        held = self.copies[place.node, place.partition]
        allow_mult = self.props(key.type, key.bucket)["allow_mult"]
        held[key] = merge(held.get(key, NOTHING), incoming, allow_mult=allow_mult)
        return held[key]

    def _repair(self, key: Key, places: list[Place]) -> None:
        """After the answer, give all copies of the preference list what any of the copies has."""
        copies = [self.copies[place.node, place.partition].get(key) for place in places]
        for copy in filter(None, copies):
            for place in places:
                self._store(place, key, copy)


def quorum(asked: int | None, default: int, n_val: int) -> int:
    """Return a symbolic or absent quorum as a number."""
    value = default if asked is None or asked == DEFAULT else asked
    return {QUORUM: n_val // 2 + 1, ALL: n_val, ONE: 1}.get(value, value)
