"""The contents of the objects in Riak: keys, values, and how two versions of a value merge.

Owns: every byte that the driver stores in Riak, including buckets and keys. Must never: do I/O, or forget a
subscription in a merge. A merge is a union (or a maximum), so it gives the same result in any order and any number of
times.

Values are MessagePack arrays whose first item is the layout version. ADR 0003 explains the reasons, and
``docs/riak.md`` has the table of buckets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import ormsgpack

from ingeborg.protocol.hashes import SLOTS, digest, slot_of

from .. import revocations, settings
from ..base import ENDED_BYTES_MAX, ENDED_MAX, Ended, Location, Revocation, Settings, StoreMisconfigured
from .objects import Address

VERSION: Final = 5
"""The layout version of every object."""
PARTITIONS_PER_SLOT_MAX: Final = 256
"""A partition belongs to one routing slot, so it has one home and usually one writer. With this limit there are up to 2
** 20 partition objects of 256 KB each, more than the disks of any cluster hold."""

OBJECT_BYTES_MAX: Final = 256 * 1024
"""Riak works well up to about 1 MB per object, siblings included. This limit leaves room for three siblings."""

FANOUT_BITS: Final = 4
LEVEL_MAX: Final = 3
"""A large set starts with 1 object. As it grows, it gets levels of 16, 256 and 4,096 further objects. At the last
level, it can have 1 GB, which is about 30 million members."""

REMOVED_MAX: Final = 1_000
"""A client's list of topics remembers the latest removed members: at most this many, and only as many as fit in one
object. If more are removed within ten minutes, a merge of versions from several homes may bring some of them back."""

RECENT_MS: Final = 10 * 60 * 1000
"""How long a client's list of topics remembers the time of a change. This is longer than a network partition can last
with live homes on both sides."""

ENTRY_BYTES: Final = 5  # the longest MessagePack header of a string or an array
_TIME_BYTES: Final = 9  # a time in milliseconds

Name = tuple[str, str]
"""A topic and the text of a filter, which is empty if there is no filter."""


def partition_of(topic: str, partitions_per_slot: int) -> tuple[int, int]:
    """Return the topic's slot and the number of its partition within the slot. The partition comes from a second hash,
    because the first one determines the slot."""
    return slot_of(topic), digest(topic.encode())[0] & (partitions_per_slot - 1)


def place_of(member: str) -> bytes:
    """Return the place of a member, which is its position in the order of a large set: 128 bits that begin with the
    member's slot. An endpoint processes a large subscribe in the order of its topics' slots (``Shape.slots_together``).
    Each part of the subscribe therefore goes to one or two objects of the client's set. With a plain hash, each part
    would go to all objects."""
    hashed = digest(member.encode())
    return (slot_of(member) << 4 | hashed[0] >> 4).to_bytes(2, "big") + hashed[2:]


def shard_of(member: str, level: int) -> int:
    """Return which of the 16 ** ``level`` objects of a level holds the member. The leading bits of the member's place
    decide, so the objects of a level, read in order, yield the members in the order of their places."""
    return int.from_bytes(place_of(member)[:2], "big") >> (16 - FANOUT_BITS * level)


class Buckets:
    """The addresses of all objects. All bucket names have one prefix, so that several brokers can share a cluster."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        prefix = namespace.encode()
        self.topics = prefix + b".topics"
        self.subscribers = prefix + b".subscribers"
        self.clients = prefix + b".clients"
        self.names = prefix + b".names"
        self.terms = prefix + b".terms"
        self.locations = prefix + b".locations"
        self.endpoints = prefix + b".endpoints"
        self.seen = prefix + b".seen"
        self.layout = Address(prefix + b".layout", b"layout")
        self.revocations = Address(prefix + b".layout", b"revocations")
        self.directory = Address(self.endpoints, b"directory")

    def partition(self, slot: int, part: int) -> Address:
        """Return the address of a partition object."""
        return Address(self.topics, b"%03x.%02x" % (slot, part))

    def location(self, client: str) -> Address:
        """Return the address of the object with a client's location and ended subscriptions."""
        return Address(self.locations, client.encode())

    def endpoint(self, name: str) -> Address:
        """Return the address of an endpoint's registry entry. Because of the prefix, no endpoint name can collide with
        the key of the directory."""
        return Address(self.endpoints, b"endpoint:" + name.encode())


def set_root(bucket: bytes, name: str) -> Address:
    """Return the address of the root object of a large set."""
    return Address(bucket, digest(name.encode()).hex().encode())


def set_shard(bucket: bytes, name: str, level: int, shard: int) -> Address:
    """Return the address of one of the further objects of a large set."""
    return Address(bucket, b"%s.%d.%03x" % (digest(name.encode()).hex().encode(), level, shard))


def unpack(value: bytes, items: int) -> list[Any]:
    """Return the items after the layout version. Raise ``ValueError`` if the version is another one, or the number of
    items is not ``items``."""
    try:
        unpacked = ormsgpack.unpackb(value)
    except ormsgpack.MsgpackDecodeError as error:
        raise ValueError(f"not MessagePack ({error})") from error
    if not isinstance(unpacked, list) or not unpacked or type(unpacked[0]) is not int:
        raise ValueError("it has no layout version")
    if unpacked[0] != VERSION:
        raise ValueError(
            f"it has layout version {unpacked[0]}, and this version reads {VERSION} only; export the store with the "
            "version that wrote it, and import the export under another riak-namespace (`ingeborg export`, `import`)"
        )
    if len(unpacked) != items + 1:
        raise ValueError(f"{len(unpacked) - 1} items instead of {items}")
    return unpacked[1:]


class Layout:
    """The choices that the first ``open`` made, the store's features, and the settings of the cluster.

    Two versions with different choices contradict each other and cannot be merged. Features merge by union.

    Each change of the settings gets a greater revision than the one that its writer has read. The greater revision
    wins. If two writers did not see each other's change, both have the same revision, and a merge results in the
    strongest settings that both promise. So all readers get the same result, and the store keeps it.
    """

    def __init__(self) -> None:
        self.dirty = False
        self.partitions_per_slot: set[int] = set()  # exactly one if the versions agree
        self.features: frozenset[str] = frozenset()
        self.revision = 0  # revision of the settings; 0 if none are recorded
        self._settings = Settings()

    @property
    def settings(self) -> Settings | None:
        """The recorded settings."""
        return self._settings if self.revision else None

    def absorb(self, value: bytes) -> None:
        slots, partitions_per_slot, features, revision, record = unpack(value, 5)
        if slots != SLOTS:
            raise ValueError(f"{slots} slots instead of {SLOTS}")
        if not isinstance(features, list) or not all(isinstance(feature, str) for feature in features):
            raise ValueError("the names of features are invalid")
        if type(revision) is not int:
            raise ValueError("the revision of the settings is not a number")
        found = settings.unpacked(record)
        self.partitions_per_slot.add(partitions_per_slot)
        self.features |= frozenset(features)
        if revision > self.revision:
            self.revision, self._settings = revision, found
        elif revision == self.revision:
            self._settings = settings.weaker(self._settings, found)

    def encode(self) -> bytes:
        (partitions_per_slot,) = self.partitions_per_slot
        return ormsgpack.packb(
            [VERSION, SLOTS, partitions_per_slot, sorted(self.features), self.revision, list(self._settings)]
        )

    def record(self, wanted: Settings, *, is_first: bool) -> None:
        """Change the settings, but with ``is_first`` only if none are recorded. Raise ``StoreMisconfigured`` if the
        layout is missing or contradictory."""
        if len(self.partitions_per_slot) != 1:
            found = f"partitions per slot: {sorted(self.partitions_per_slot)}"
            raise StoreMisconfigured(f"the layout object is gone, or has contradictory versions ({found})")
        if not is_first or not self.revision:
            self.dirty = True
            self.revision, self._settings = self.revision + 1, wanted


class Revoked:
    """The revoked tokens. A merge is the union. If both versions revoke the same token or subject, the later times win.
    A merge can bring an expired revocation back, which is harmless because it stays expired."""

    def __init__(self) -> None:
        self.dirty = False
        self.revocations: list[Revocation] = []

    def absorb(self, value: bytes) -> None:
        (found,) = unpack(value, 1)
        self.revocations = revocations.union(self.revocations, revocations.unpacked(found))

    def encode(self) -> bytes:
        return ormsgpack.packb([VERSION, [list(revocation) for revocation in self.revocations]])

    def revoke(self, batch: Sequence[Revocation], unix_s: float) -> None:
        """Record revocations. Raise ``TooManyRevocations`` if the record would exceed its limit."""
        self.revocations = revocations.recorded(self.revocations, batch, unix_s)
        self.dirty = True  # write even an unchanged record, because it can be an old copy


class SetObject:
    """One object of a large set: the root object, which also stores the number of levels, or a further object."""

    def __init__(self) -> None:
        self.dirty = False
        self.contested = False  # whether the last write left several versions
        self.name = ""
        self.level = 0  # in the root object: the number of levels of further objects
        self.members: set[str] = set()
        self._bytes = 32

    def absorb(self, value: bytes) -> None:
        name, level, members = unpack(value, 3)
        self._of(name, level, value)
        self.members.update(members)

    def _of(self, name: str, level: int, value: bytes) -> None:
        # A version without a name has no members. A process wrote it because it did not know the outcome of an earlier
        # write.
        if self.name and name and name != self.name:
            raise ValueError("two sets under one key")
        self.name = self.name or name
        self.level = max(self.level, level)
        self._bytes = max(self._bytes, len(value))

    def encode(self) -> bytes:
        return ormsgpack.packb([VERSION, self.name, self.level, sorted(self.members)])

    def belongs_to(self, name: str) -> None:
        """Store the name of the set in the object, because the key has only a hash of the name."""
        if not self.name:
            self.name = name
            self._bytes += utf8_bytes(name) + ENTRY_BYTES

    def add(self, member: str, limit: int) -> bool:
        """Add the member, and mark the object as dirty even if it has the member already (see ``Partition.put``).
        Return False if the object would exceed ``limit`` bytes."""
        if member in self.members:
            self.dirty = True
            return True
        more = self._entry_bytes(member)
        if self._bytes + more > limit:
            return False
        self.dirty = True
        self._bytes += more
        self.members.add(member)
        return True

    def discard(self, member: str) -> None:
        if member in self.members:
            self.dirty = True
            self.members.discard(member)
            self._bytes -= utf8_bytes(member) + 1

    def _entry_bytes(self, member: str) -> int:
        return utf8_bytes(member) + ENTRY_BYTES

    def spread(self, level: int) -> None:
        """Set the number of levels of further objects, unless the current number is greater."""
        if level > self.level:
            self.dirty = True
            self.level = level


class ListObject(SetObject):
    """One object of a client's list of topics, which several homes may write concurrently.

    If two homes each remove one topic at the same time, the list has two versions, and each version still has the topic
    that the other one has removed. A union would bring both topics back. So the list remembers for a while when a
    member was added or removed, and the later change wins. If both times are equal, the addition wins. After
    ``RECENT_MS`` the list forgets the time, and an old version merges by union, as in other sets. If the homes' clocks
    differ by more than the time between two changes, a listing can be wrong, but messages still reach the right
    clients.
    """

    def __init__(self, now_ms: int) -> None:
        super().__init__()
        self._now_ms = now_ms
        self._added: dict[str, int] = {}
        self._removed: dict[str, int] = {}

    def absorb(self, value: bytes) -> None:
        name, level, members, removed = unpack(value, 4)
        self._of(name, level, value)
        self.members.update(members)
        for times, known in ((members, self._added), (removed, self._removed)):
            for member, at_ms in times.items():
                if at_ms > max(known.get(member, 0), self._now_ms - RECENT_MS):
                    known[member] = at_ms
        self.members.difference_update(
            member for member, at_ms in self._removed.items() if at_ms > self._added.get(member, 0)
        )
        # The size counts only the members, so that removed members do not make the list spread.
        self._bytes = 32 + utf8_bytes(name) + sum(map(self._entry_bytes, self.members))

    def encode(self) -> bytes:
        members = {member: self._added.get(member, 0) for member in sorted(self.members)}
        gone = [(member, at_ms) for member, at_ms in self._removed.items() if member not in self.members]
        removed: dict[str, int] = {}
        room = OBJECT_BYTES_MAX
        for member, at_ms in sorted(gone, key=lambda entry: entry[1], reverse=True)[:REMOVED_MAX]:
            room -= self._entry_bytes(member)
            if room >= 0:
                removed[member] = at_ms
        return ormsgpack.packb([VERSION, self.name, self.level, members, removed])

    def _entry_bytes(self, member: str) -> int:
        return super()._entry_bytes(member) + _TIME_BYTES

    def add(self, member: str, limit: int) -> bool:
        if not super().add(member, limit):
            return False
        self._added[member] = max(self._now_ms, self._removed.get(member, 0) + 1)
        return True

    def discard(self, member: str) -> None:
        if member in self.members:
            super().discard(member)
            self._removed[member] = max(self._now_ms, self._added.get(member, 0) + 1)


class LocationObject:
    """A client's location, and its subscriptions that ended in the last ``kept_ms`` milliseconds.

    The greater of two locations wins, so a late ``unlisten`` cannot undo a newer ``listen``. A client's subscriptions
    have several homes, which may not see each other's writes. If one version has the end of a subscription and another
    version has a new ``subscribe``, the later event wins. If both times are equal, the end wins. The object remembers
    the times for ``RECENT_MS``, as ``ListObject`` does.

    ``unnamed`` is the number of further ended subscriptions, for whose names there was no room. ``unnamed_ms`` is the
    time at which the last of these ended.
    """

    def __init__(self, now_ms: int, kept_ms: int) -> None:
        self.dirty = False
        self.location: Location | None = None
        self.names: dict[Name, int] = {}  # ended subscriptions, with Unix times in milliseconds
        self.unnamed = 0
        self.unnamed_ms = 0
        self._now_ms = now_ms
        self._since_ms = now_ms - kept_ms
        self._back: dict[Name, int] = {}  # names to which the client subscribed again, with Unix times in ms

    def absorb(self, value: bytes) -> None:
        found, names, back, unnamed, unnamed_ms = unpack(value, 5)
        location = None if found is None else Location(*found)
        if location is not None and (self.location is None or location.rank > self.location.rank):
            self.location = location
        for times, known, since_ms in (
            (names, self.names, self._since_ms),
            (back, self._back, self._now_ms - RECENT_MS),
        ):
            for topic, text, at_ms in times:
                if at_ms >= since_ms:
                    known[topic, text] = max(at_ms, known.get((topic, text), 0))
        self.names = {name: at_ms for name, at_ms in self.names.items() if at_ms >= self._back.get(name, 0)}
        if unnamed_ms >= self._since_ms:
            self.unnamed = max(self.unnamed, unnamed)
            self.unnamed_ms = max(self.unnamed_ms, unnamed_ms)

    def encode(self) -> bytes:
        back = _that_fit(sorted(self._back.items(), key=lambda entry: -entry[1]), REMOVED_MAX, OBJECT_BYTES_MAX // 4)
        times = ([[*name, at_ms] for name, at_ms in known.items()] for known in (self.names, dict(back)))
        location = None if self.location is None else list(self.location)
        return ormsgpack.packb([VERSION, location, *times, self.unnamed, self.unnamed_ms])

    def move(self, location: Location) -> None:
        """Set the client's location."""
        self.dirty = True
        self.location = location

    def end(self, names: Iterable[Name]) -> int:
        """Record ended subscriptions. Return how many names this dropped to make room."""
        for name in names:
            self.dirty = True
            self.names[name] = max(self._now_ms, self._back.pop(name, 0))
        latest = sorted(self.names.items(), key=lambda entry: entry[1])
        named = dict(_that_fit(latest[::-1], ENDED_MAX, ENDED_BYTES_MAX)[::-1])
        lost = self.names.keys() - named.keys()
        self.unnamed += len(lost)
        self.unnamed_ms = max([self.unnamed_ms, *(self.names[name] for name in lost)])
        self.names = named
        return len(lost)

    def back(self, names: Collection[tuple[str, str | None]]) -> None:
        """Record that the client subscribed again to these topics and filters (``None`` for any filter). ``unnamed``
        does not change, because it is unknown which subscriptions it counts."""
        known = frozenset(names)
        for name in [name for name in self.names if name in known or (name[0], None) in known]:
            self.dirty = True
            self._back[name] = max(self._now_ms, self.names.pop(name) + 1)

    def ended(self) -> Ended | None:
        """Return the ended subscriptions as the store contract defines, in the order in which they ended."""
        if not self.names and not self.unnamed:
            return None
        latest = sorted(self.names, key=self.names.__getitem__)
        return Ended([(topic, text or None) for topic, text in latest], len(latest) + self.unnamed)


def _that_fit(entries: list[tuple[Name, int]], most: int, room: int) -> list[tuple[Name, int]]:
    """Return the first entries: at most ``most`` entries, with at most ``room`` bytes of text in total."""
    for number, ((topic, text), _) in enumerate(entries[:most]):
        room -= utf8_bytes(topic) + utf8_bytes(text)
        if room < 0:
            return entries[:number]
    return entries[:most]


class Directory:
    """The names in the registry. A merge is the union, so an endpoint that leaves cannot remove the name of one that
    registers at the same time."""

    def __init__(self) -> None:
        self.dirty = False
        self.names: set[str] = set()

    def absorb(self, value: bytes) -> None:
        (names,) = unpack(value, 1)
        self.names.update(names)

    def encode(self) -> bytes:
        return ormsgpack.packb([VERSION, sorted(self.names)])

    def add(self, name: str) -> None:
        self.dirty = self.dirty or name not in self.names
        self.names.add(name)

    def discard(self, name: str) -> None:
        self.dirty = self.dirty or name in self.names
        self.names.discard(name)


class Entry:
    """An endpoint's entry in the registry. ``registration`` is the number of processes that have registered under the
    name. The last process to register holds the name."""

    def __init__(self) -> None:
        self.dirty = False
        self.registration = 0  # 0 if no process has ever registered under the name
        self.incarnation = ""
        self.present = False  # False: deregistered
        self.url = ""
        self.heartbeat = 0

    @property
    def _rank(self) -> tuple[int, str, bool, int]:
        """Return a sort key. If two processes that registered at the same time have the same registration number, the
        greater incarnation wins."""
        return (self.registration, self.incarnation, not self.present, self.heartbeat)

    def absorb(self, value: bytes) -> None:
        other = Entry()
        other.registration, other.incarnation, other.present, other.url, other.heartbeat = unpack(value, 5)
        if other._rank > self._rank:
            self.registration, self.incarnation = other.registration, other.incarnation
            self.present, self.url, self.heartbeat = other.present, other.url, other.heartbeat

    def encode(self) -> bytes:
        return ormsgpack.packb([VERSION, self.registration, self.incarnation, self.present, self.url, self.heartbeat])


def utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
