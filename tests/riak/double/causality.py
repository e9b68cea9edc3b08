"""Objects with version vectors and dotted siblings, as Riak keeps them with ``dvv_enabled``. Pure.

Owns: how a put changes the copy that coordinates it, and the merge of two copies. Must never: know nodes or messages.

Every sibling carries the *dot* of its write (the writer, and the number of the write among the writer's own). A vector
covers a sibling if it counts up to its dot. A write drops the siblings that its context covers. A merge drops those
that the other copy covers but no longer has. Source: Almeida et al., "Scalable and Accurate Causality Tracking for
Eventually Consistent Stores", 2014.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

Vector = dict[str, int]
Dot = tuple[str, int]


@dataclass(frozen=True)
class Sibling:
    """One version: the dot and the time of its write, and its content as a ``Content`` message."""

    dot: Dot
    written_us: int  # microseconds since the epoch
    content: dict[str, Any] = field(compare=False)

    @property
    def deleted(self) -> bool:
        return bool(self.content.get("deleted"))


@dataclass(frozen=True)
class StoredObject:
    vector: Vector
    siblings: tuple[Sibling, ...]

    @property
    def tombstone(self) -> bool:
        """Return whether every version is a deletion."""
        return all(sibling.deleted for sibling in self.siblings)


NOTHING = StoredObject({}, ())


def covers(vector: Vector, dot: Dot) -> bool:
    return vector.get(dot[0], 0) >= dot[1]


def union(one: Vector, other: Vector) -> Vector:
    return {actor: max(one.get(actor, 0), other.get(actor, 0)) for actor in {**one, **other}}


def put(
    held: StoredObject, context: Vector, actor: str, content: dict[str, Any], now_us: int, *, allow_mult: bool
) -> StoredObject:
    """Return the object after ``actor`` has coordinated a write that knew ``context``."""
    vector = union(held.vector, context)
    vector[actor] = vector.get(actor, 0) + 1
    new = Sibling((actor, vector[actor]), now_us, content)
    kept = [sibling for sibling in held.siblings if not covers(context, sibling.dot)]
    return StoredObject(vector, (new, *kept) if allow_mult else (new,))


def merge(one: StoredObject, other: StoredObject, *, allow_mult: bool) -> StoredObject:
    """Merge two copies of an object. The order and the number of merges do not matter."""
    # The usual case, in a fifth of the time.
    return other if _is_all(other, one) else merge_any(one, other, allow_mult=allow_mult)


def merge_any(one: StoredObject, other: StoredObject, *, allow_mult: bool) -> StoredObject:
    """Merge any two copies."""
    ours, theirs = set(one.siblings), set(other.siblings)
    kept = [sibling for sibling in one.siblings if sibling in theirs or not covers(other.vector, sibling.dot)]
    kept += [sibling for sibling in other.siblings if sibling not in ours and not covers(one.vector, sibling.dot)]
    kept.sort(key=lambda sibling: (sibling.written_us, sibling.dot))
    if not allow_mult:
        kept = kept[-1:]
    return StoredObject(union(one.vector, other.vector), tuple(kept))


def _is_all(copy: StoredObject, other: StoredObject) -> bool:
    """Return whether merging the two gives this copy: it has one version and knows everything that the other knows. A
    copy that knows of the write that removed a version does not have that version."""
    return len(copy.siblings) == 1 and all(copy.vector.get(actor, 0) >= count for actor, count in other.vector.items())


def encode_vector(vector: Vector) -> bytes:
    """Encode a vector for clients, for whom it is opaque."""
    return b"double:" + json.dumps(vector, sort_keys=True).encode()


def decode_vector(data: bytes) -> Vector:
    """Decode a vector. Raise ``ValueError`` if none of these nodes has sent it."""
    if not data.startswith(b"double:"):
        raise ValueError("not a vector clock of this cluster")
    vector: Vector = json.loads(data.removeprefix(b"double:"))
    return vector
