"""The objects that hold records of subscriptions. A partition object holds many small topics; a large topic has its own
objects.

Owns: the values of these objects, how two versions of an object merge, and which records fit in which object. Must
never: do I/O, or forget a subscription in a merge.

A client with exactly one subscription, with neither a filter nor a term, is stored as a name in a list. The records of
all other clients are in a map next to the list. In one object, a client is either in the list or in the map.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import ormsgpack

from .entries import NOTHING, PLAIN, Entries, merged, packed, unpacked
from .layout import ENTRY_BYTES, OBJECT_BYTES_MAX, VERSION, SetObject, unpack, utf8_bytes

TOPIC_CLIENTS_MAX: Final = 1000
"""The largest number of clients in a topic's list within its partition object (20 to 40 KB). A longer list would make
every write of the object large."""

TOPIC_BYTES_MAX: Final = 40 * 1024
"""The number of bytes that a topic's records in the map can take within its partition object. The topic's list
can take about as many bytes. If a client already has a record in the map, the record can grow until the map has twice
this number of bytes for the topic."""

_TERM_BYTES: Final = 1 + 1 + 9 + 9  # an array of a flag, a time and a stamp


def _text_bytes(text: str) -> int:
    return utf8_bytes(text) + ENTRY_BYTES


def _record_bytes(client: str, entries: Entries) -> int:
    """Return the largest number of bytes that the record can take."""
    if entries == PLAIN:
        return _text_bytes(client)
    texts = sum(_text_bytes(text) + (1 if entry is None else _TERM_BYTES) for text, entry in entries.items())
    return _text_bytes(client) + ENTRY_BYTES + texts


def _record_bytes_least(client: str, entries: Entries) -> int:
    """Return the minimum number of bytes that the removal of the record frees."""
    if not entries or entries == PLAIN:
        return utf8_bytes(client) + 1 if entries else 0
    return utf8_bytes(client) + 2 + sum(utf8_bytes(text) + 2 for text in entries)


class Partition:
    """The records of the small topics of one partition.

    If a topic has grown large (``spilled``), its later clients go to the topic's own objects. If the partition object
    is ``full``, the later clients of all topics go to the topics' own objects. Records never move between objects, so a
    reader needs no lock, and no record can get lost during a move. Both marks are permanent. A client's record at a
    topic is the union of its parts in the partition and in the topic's own objects. If a full partition has no room for
    the name of a topic, the name is in a separate set, which is named after the partition.
    """

    def __init__(self) -> None:
        self.dirty = False
        self.contested = False  # whether the last write left several versions
        self.topics: dict[str, set[str]] = {}  # clients with one subscription, without filter and term
        self.others: dict[str, dict[str, Entries]] = {}
        self.spilled: set[str] = set()
        self.full = False
        self._bytes = 32
        self._shares: dict[str, int] = {}  # topic -> bytes of its records in ``others``, once computed

    def absorb(self, value: bytes) -> None:
        topics, others, spilled, full = unpack(value, 4)
        for topic, clients in topics.items():
            if topic in self.topics:
                self.topics[topic].update(clients)
            else:
                self.topics[topic] = set(clients)
        for topic, records in others.items():
            known = self.others.setdefault(topic, {})
            for client, entries in records.items():
                known[client] = merged(known.get(client, NOTHING), unpacked(entries))
        for topic in self.others.keys() & (topics.keys() | others.keys()):
            self._settle(topic)
        self.spilled.update(spilled)
        self.full = self.full or full
        self._bytes = max(self._bytes, len(value))  # not the sum: the versions overlap

    def _settle(self, topic: str) -> None:
        """Make sure that each client is only in the list or only in the map."""
        plain, others = self.topics.get(topic, set()), self.others[topic]
        for client in plain & others.keys():
            others[client] = merged(others[client], PLAIN)
        plain |= {client for client, entries in others.items() if entries == PLAIN}
        others = {client: entries for client, entries in others.items() if entries != PLAIN}
        plain -= others.keys()
        self.topics.pop(topic, None)
        del self.others[topic]
        if plain:
            self.topics[topic] = plain
        if others:
            self.others[topic] = others

    def encode(self) -> bytes:
        topics = {topic: sorted(clients) for topic, clients in self.topics.items()}
        others = {
            topic: {client: packed(entries) for client, entries in sorted(records.items())}
            for topic, records in self.others.items()
        }
        return ormsgpack.packb([VERSION, topics, others, sorted(self.spilled), self.full])

    def elsewhere(self, topic: str) -> bool:
        """Return whether the topic may have records in its own objects."""
        return self.full or topic in self.spilled

    def held(self, topic: str, client: str) -> Entries:
        """Return the client's record at the topic in this object."""
        if client in self.topics.get(topic, ()):
            return PLAIN
        return self.others.get(topic, {}).get(client, NOTHING)

    def records(self, topic: str) -> Iterator[tuple[str, Entries]]:
        """Iterate over the records of all clients."""
        yield from ((client, PLAIN) for client in self.topics.get(topic, ()))
        yield from self.others.get(topic, {}).items()

    def put(self, topic: str, client: str, entries: Entries) -> bool:
        """Set the client's record at the topic in this object. If the record belongs in the topic's own objects
        instead, mark the topic as spilled or this object as full, and return False.

        The object is marked as dirty even if it already holds the record. During a network partition this can be an old
        copy, while the other side has already removed the record. The write creates a separate version, and a merge of
        the versions then keeps the record.
        """
        held = self.held(topic, client)
        if held == entries:
            self.dirty = True
            return True
        if not held and self.elsewhere(topic):
            return False
        self.dirty = True
        more = _record_bytes(client, entries) - _record_bytes_least(client, held)
        if entries == PLAIN:
            is_large = not held and len(self.topics.get(topic, ())) >= TOPIC_CLIENTS_MAX
        else:
            share = self._share(topic)
            is_large = share > 0 and more > 0 and share + more > TOPIC_BYTES_MAX * (2 if held else 1)
        if is_large:
            if topic not in self.spilled:
                self.spilled.add(topic)
                self._bytes += _text_bytes(topic)
            return False
        if topic not in (self.topics if entries == PLAIN else self.others):
            more += _text_bytes(topic) + ENTRY_BYTES
        if more > 0 and self._bytes + more > OBJECT_BYTES_MAX + (TOPIC_BYTES_MAX if held else 0):
            self.full = True
            return False
        self.assign(topic, client, entries)
        return True

    def assign(self, topic: str, client: str, entries: Entries) -> None:
        """Set the client's record in this object, whether or not there is room. An empty object is kept, because a
        delete in Riak would lose the causal context."""
        held = self.held(topic, client)
        if held == entries:
            return
        self.dirty = True
        if held == PLAIN:
            self.topics[topic].discard(client)
            self._drop(self.topics, topic)
        elif held:
            del self.others[topic][client]
            self._drop(self.others, topic)
            if topic in self._shares:
                self._shares[topic] -= _record_bytes(client, held)
        self._bytes -= _record_bytes_least(client, held)
        if not entries:
            return
        if topic not in (self.topics if entries == PLAIN else self.others):
            self._bytes += _text_bytes(topic) + ENTRY_BYTES
        self._bytes += _record_bytes(client, entries)
        if entries == PLAIN:
            self.topics.setdefault(topic, set()).add(client)
        else:
            self.others.setdefault(topic, {})[client] = entries
            if topic in self._shares:
                self._shares[topic] += _record_bytes(client, entries)

    def _drop(self, known: dict[str, set[str]] | dict[str, dict[str, Entries]], topic: str) -> None:
        """Drop the topic if it has no clients."""
        if not known[topic]:
            del known[topic]
            self._bytes -= utf8_bytes(topic) + 1

    def _share(self, topic: str) -> int:
        share = self._shares.get(topic)
        if share is None:
            share = sum(_record_bytes(client, entries) for client, entries in self.others.get(topic, {}).items())
            self._shares[topic] = share
        return share


class TopicObject(SetObject):
    """One of a topic's own objects, with the records of some clients. A client can also have parts of its record in
    other objects of the topic."""

    def __init__(self) -> None:
        super().__init__()
        self.others: dict[str, Entries] = {}  # records of the members that are not plain

    def absorb(self, value: bytes) -> None:
        name, level, plain, others = unpack(value, 4)
        self._of(name, level, value)
        found = {client: unpacked(entries) for client, entries in others.items()}
        found |= dict.fromkeys(self.others.keys() & set(plain), PLAIN)
        for client, entries in found.items():
            self.others[client] = merged(self.held(client), entries)
            if self.others[client] == PLAIN:
                del self.others[client]
        self.members.update(plain, others)

    def encode(self) -> bytes:
        plain = sorted(self.members - self.others.keys())
        others = {client: packed(entries) for client, entries in sorted(self.others.items())}
        return ormsgpack.packb([VERSION, self.name, self.level, plain, others])

    def held(self, client: str) -> Entries:
        """Return the client's record in this object."""
        if client in self.others:
            return self.others[client]
        return PLAIN if client in self.members else NOTHING

    def records(self) -> Iterator[tuple[str, Entries]]:
        """Iterate over the records of all clients."""
        return ((client, self.held(client)) for client in self.members)

    def put(self, client: str, entries: Entries, limit: int) -> bool:
        """Set the client's record in this object, as ``Partition.put`` does. Return False if the object would exceed
        ``limit`` bytes. If the client already has a record here, the object may exceed ``limit`` by
        ``TOPIC_BYTES_MAX``."""
        held = self.held(client)
        if held == entries:
            self.dirty = True
            return True
        more = _record_bytes(client, entries) - _record_bytes_least(client, held)
        if more > 0 and self._bytes + more > limit + (TOPIC_BYTES_MAX if held else 0):
            return False
        self.assign(client, entries)
        return True

    def assign(self, client: str, entries: Entries) -> None:
        """Set the client's record in this object, whether or not there is room."""
        held = self.held(client)
        if held == entries:
            return
        self.dirty = True
        self._bytes -= _record_bytes_least(client, held)
        self.others.pop(client, None)
        if not entries:
            self.members.discard(client)
            return
        self._bytes += _record_bytes(client, entries)
        self.members.add(client)
        if entries != PLAIN:
            self.others[client] = entries
