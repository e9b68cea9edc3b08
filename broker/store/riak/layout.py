"""What is in the objects: keys, values, and how two versions of a value merge. Layout version 2.

Owns: every byte the driver leaves in Riak, buckets and keys included. Must never: do I/O, or forget a subscription in a
merge: merging is a union (or a maximum), so it gives the same result in any order and any number of times.

Values are MessagePack arrays whose first item is the layout version. ADR 0003 has the reasons, ``docs/riak.md`` the
table of buckets.
"""

from __future__ import annotations

import zlib
from hashlib import blake2b
from typing import Any, Final

import ormsgpack

from ..base import Location
from .objects import Address

VERSION: Final = 2
"""Version 1 spread the objects of a large set by ``digest`` alone."""
SLOTS: Final = 4096
"""The slots of the routing (``crc32(topic) & 4095``): a partition lies within one slot, so it has one home and, mostly,
one writer."""

PARTITIONS_PER_SLOT_MAX: Final = 256
"""2 ** 20 partition objects; with 256 KB in each that is more than a cluster's disks."""

OBJECT_BYTES_MAX: Final = 256 * 1024
"""Riak keeps working well up to about 1 MB an object, siblings included: this leaves room for three of them."""

TOPIC_CLIENTS_MAX: Final = 1000
"""Subscribers a topic may have within its partition object (20 to 40 KB): more would make every write there large."""

FANOUT_BITS: Final = 4
LEVEL_MAX: Final = 3
"""A set of its own spreads over 1, then 16, 256, 4,096 more objects: 1 GB, some 30 million members, at the end."""

_ENTRY_BYTES: Final = 5  # the longest MessagePack header of a string or an array


def digest(text: str) -> bytes:
    """128 bits of a name: what keys are made of."""
    return blake2b(text.encode(), digest_size=16).digest()


def partition_of(topic: str, partitions_per_slot: int) -> tuple[int, int]:
    """``(slot, partition within it)``. The partition comes of another hash: the slot has used up the first one."""
    return _slot(topic), digest(topic)[0] & (partitions_per_slot - 1)


def _slot(name: str) -> int:
    return zlib.crc32(name.encode()) & (SLOTS - 1)


def place_of(member: str) -> bytes:
    """128 bits: where a member of a large set stands among the others. By its slot first, because a large subscribe
    comes in the order of its topics' slots (``Shape.slots_together``): each part of it goes to one or two objects of
    the client's set, where by hash alone it would go to them all."""
    hashed = digest(member)
    return (_slot(member) << 4 | hashed[0] >> 4).to_bytes(2, "big") + hashed[2:]


def shard_of(member: str, level: int) -> int:
    """Which of the 16 ** level objects of a level holds the member: by the leading bits of its place, so that the
    objects of a level, taken in order, hold their members in the order of the pages."""
    return int.from_bytes(place_of(member)[:2], "big") >> (16 - FANOUT_BITS * level)


class Buckets:
    """The addresses of everything, under one prefix: several brokers can share a cluster."""

    def __init__(self, namespace: str) -> None:
        self._prefix = namespace.encode()
        self.topics = self._prefix + b".topics"
        self.subscribers = self._prefix + b".subscribers"
        self.clients = self._prefix + b".clients"
        self.locations = self._prefix + b".locations"
        self.endpoints = self._prefix + b".endpoints"
        self.seen = self._prefix + b".seen"
        self.layout = Address(self._prefix + b".layout", b"layout")
        self.directory = Address(self.endpoints, b"directory")

    def partition(self, slot: int, part: int) -> Address:
        """The partition object of some topics."""
        return Address(self.topics, b"%03x.%02x" % (slot, part))

    def location(self, client: str) -> Address:
        """Where a client listens."""
        return Address(self.locations, client.encode())

    def endpoint(self, name: str) -> Address:
        """An endpoint's registry entry; the prefix keeps any name apart from the directory."""
        return Address(self.endpoints, b"endpoint:" + name.encode())


def set_root(bucket: bytes, name: str) -> Address:
    """The first object of a set of its own."""
    return Address(bucket, digest(name).hex().encode())


def set_shard(bucket: bytes, name: str, level: int, shard: int) -> Address:
    """One of the further objects of a set of its own."""
    return Address(bucket, b"%s.%d.%03x" % (digest(name).hex().encode(), level, shard))


def _unpack(value: bytes, items: int) -> list[Any]:
    """The items after the version. ``ValueError`` for anything else than ``items`` of them after this version."""
    try:
        unpacked = ormsgpack.unpackb(value)
    except ormsgpack.MsgpackDecodeError as error:
        raise ValueError(f"not MessagePack ({error})") from error
    if not isinstance(unpacked, list) or not unpacked or unpacked[0] != VERSION:
        raise ValueError(f"not layout version {VERSION}")
    if len(unpacked) != items + 1:
        raise ValueError(f"{len(unpacked) - 1} items where {items} belong")
    return unpacked[1:]


class Layout:
    """The choices made when the store was first opened. Two versions of it do not merge: they contradict each other."""

    def __init__(self) -> None:
        self.dirty = False
        self.partitions_per_slot: set[int] = set()  # one, or it is not sound to go on

    def absorb(self, value: bytes) -> None:
        slots, partitions_per_slot = _unpack(value, 2)
        if slots != SLOTS:
            raise ValueError(f"{slots} slots where {SLOTS} belong")
        self.partitions_per_slot.add(partitions_per_slot)

    def encode(self) -> bytes:
        (partitions_per_slot,) = self.partitions_per_slot
        return ormsgpack.packb([VERSION, SLOTS, partitions_per_slot])


class Partition:
    """The subscriber sets of the topics of one partition, those that are small.

    A set that has grown large goes on in objects of its own (``spilled``), as do all sets once the object is ``full``.
    Only what is added later goes there: nothing ever moves, so a reader needs no lock, and nothing is lost between two
    objects. Both marks stay for good; the set of a topic is all that is here and all that is there.
    """

    def __init__(self) -> None:
        self.dirty = False
        self.topics: dict[str, set[str]] = {}
        self.spilled: set[str] = set()
        self.full = False
        self._bytes = 32

    def absorb(self, value: bytes) -> None:
        topics, spilled, full = _unpack(value, 3)
        for topic, clients in topics.items():
            if topic in self.topics:
                self.topics[topic].update(clients)
            else:
                self.topics[topic] = set(clients)
        self.spilled.update(spilled)
        self.full = self.full or full
        self._bytes = max(self._bytes, len(value))  # versions overlap: their sum would call a half-full object full

    def encode(self) -> bytes:
        topics = {topic: sorted(clients) for topic, clients in self.topics.items()}
        return ormsgpack.packb([VERSION, topics, sorted(self.spilled), self.full])

    def elsewhere(self, topic: str) -> bool:
        """Whether the topic can have subscribers in objects of its own, too."""
        return self.full or topic in self.spilled

    def add(self, topic: str, client: str) -> bool:
        """Whether it is in here now; if not, it belongs into the topic's own objects (and that has been noted)."""
        clients = self.topics.get(topic)
        if clients is not None and client in clients:
            return True
        if self.elsewhere(topic):
            return False
        self.dirty = True
        if clients is not None and len(clients) >= TOPIC_CLIENTS_MAX:
            self.spilled.add(topic)
            self._bytes += _utf8_bytes(topic) + _ENTRY_BYTES
            return False
        more = _utf8_bytes(client) + _ENTRY_BYTES
        if clients is None:
            more += _utf8_bytes(topic) + 2 * _ENTRY_BYTES
        if self._bytes + more > OBJECT_BYTES_MAX:
            self.full = True
            return False
        self._bytes += more
        if clients is None:
            self.topics[topic] = {client}
        else:
            clients.add(client)
        return True

    def discard(self, topic: str, client: str) -> None:
        """Not in here any more. The object itself stays, even when it is empty: Riak's deletes lose their context."""
        clients = self.topics.get(topic)
        if clients is None or client not in clients:
            return
        self.dirty = True
        clients.discard(client)
        self._bytes -= _utf8_bytes(client) + 1
        if not clients:
            del self.topics[topic]
            self._bytes -= _utf8_bytes(topic) + 1


class SetObject:
    """One object of a set of its own: its root (which knows how far it has spread), or one of the further ones."""

    def __init__(self) -> None:
        self.dirty = False
        self.name = ""
        self.level = 0  # in the root: how many levels of further objects there are
        self.members: set[str] = set()
        self._bytes = 32

    def absorb(self, value: bytes) -> None:
        name, level, members = _unpack(value, 3)
        if self.name and name != self.name:
            raise ValueError("two sets under one key")
        self.name = name
        self.level = max(self.level, level)
        self.members.update(members)
        self._bytes = max(self._bytes, len(value))

    def encode(self) -> bytes:
        return ormsgpack.packb([VERSION, self.name, self.level, sorted(self.members)])

    def belongs_to(self, name: str) -> None:
        """Note the name of the set, which the key has only as a hash."""
        if not self.name:
            self.name = name
            self._bytes += _utf8_bytes(name) + _ENTRY_BYTES

    def add(self, member: str, limit: int) -> bool:
        """Whether it is in here now; if not, there is no room within ``limit`` bytes."""
        if member in self.members:
            return True
        more = _utf8_bytes(member) + _ENTRY_BYTES
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
            self._bytes -= _utf8_bytes(member) + 1

    def spread(self, level: int) -> None:
        """From now on there are this many levels of further objects. Never fewer."""
        if level > self.level:
            self.dirty = True
            self.level = level


class Whereabouts:
    """A client's location: of two versions the greater, so that a late ``unlisten`` cannot undo a newer ``listen``."""

    def __init__(self) -> None:
        self.dirty = False
        self.location: Location | None = None

    def absorb(self, value: bytes) -> None:
        location = Location(*_unpack(value, 3))
        if self.location is None or location.rank > self.location.rank:
            self.location = location

    def encode(self) -> bytes:
        assert self.location is not None, "a location is written to say something"
        return ormsgpack.packb([VERSION, *self.location])

    def move(self, location: Location) -> None:
        self.dirty = True
        self.location = location


class Directory:
    """The names in the registry: the union, so that an endpoint that registers cannot be lost to another's leaving."""

    def __init__(self) -> None:
        self.dirty = False
        self.names: set[str] = set()

    def absorb(self, value: bytes) -> None:
        (names,) = _unpack(value, 1)
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
    """An endpoint's registry entry. ``registration`` counts the processes that took the name; the last one has it."""

    def __init__(self) -> None:
        self.dirty = False
        self.registration = 0  # 0: the name was never taken
        self.incarnation = ""
        self.present = False  # False: deregistered
        self.url = ""
        self.heartbeat = 0

    @property
    def _rank(self) -> tuple[int, str, bool, int]:
        """Two processes that took the name at once have the same number; then the incarnation decides, for both."""
        return (self.registration, self.incarnation, not self.present, self.heartbeat)

    def absorb(self, value: bytes) -> None:
        other = Entry()
        other.registration, other.incarnation, other.present, other.url, other.heartbeat = _unpack(value, 5)
        if other._rank > self._rank:
            self.registration, self.incarnation = other.registration, other.incarnation
            self.present, self.url, self.heartbeat = other.present, other.url, other.heartbeat

    def encode(self) -> bytes:
        return ormsgpack.packb([VERSION, self.registration, self.incarnation, self.present, self.url, self.heartbeat])


def _utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
