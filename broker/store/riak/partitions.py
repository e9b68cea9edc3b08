"""The objects with records of subscriptions: those of many small topics together, and those of a large one.

Owns: these values, how two versions of one merge, and what has room in which. Must never: do I/O, or forget a
subscription in a merge.

A client with exactly one subscription, without filter and term, is a name in a list. What others have stands next to
it, client by client. Each client is in one of the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import ormsgpack

from .entries import NOTHING, PLAIN, Entries, merged, packed, unpacked
from .layout import ENTRY_BYTES, OBJECT_BYTES_MAX, VERSION, SetObject, unpack, utf8_bytes

TOPIC_CLIENTS_MAX: Final = 1000
"""Clients in a topic's list within its partition object (20 to 40 KB): more would make every write there large."""

TOPIC_BYTES_MAX: Final = 40 * 1024
"""What all others of a topic may take there, as much. A client that is there may go beyond it, by as much again."""

_TERM_BYTES: Final = 1 + 1 + 9 + 9  # an array of a truth value, a time and a stamp


def _text_bytes(text: str) -> int:
    return utf8_bytes(text) + ENTRY_BYTES


def _record_bytes(client: str, entries: Entries) -> int:
    """At most."""
    if entries == PLAIN:
        return _text_bytes(client)
    texts = sum(_text_bytes(text) + (1 if entry is None else _TERM_BYTES) for text, entry in entries.items())
    return _text_bytes(client) + ENTRY_BYTES + texts


def _record_bytes_least(client: str, entries: Entries) -> int:
    """What is free when the client is gone."""
    if not entries or entries == PLAIN:
        return utf8_bytes(client) + 1 if entries else 0
    return utf8_bytes(client) + 2 + sum(utf8_bytes(text) + 2 for text in entries)


class Partition:
    """The records of the topics of one partition, those of small topics.

    A topic that has grown large goes on in objects of its own (``spilled``), as do all topics once the object is
    ``full``. Only clients that come later go there: nothing ever moves by itself, so a reader needs no lock, and
    nothing is lost between two objects. Both marks stay for good. What a client has at a topic is all that is here and
    all that is there. The topics that a full partition has no room to name are in a set that is named after it.
    """

    def __init__(self) -> None:
        self.dirty = False
        self.contested = False  # the write has left several versions
        self.topics: dict[str, set[str]] = {}  # clients with one subscription, without filter and term
        self.others: dict[str, dict[str, Entries]] = {}
        self.spilled: set[str] = set()
        self.full = False
        self._bytes = 32
        self._shares: dict[str, int] = {}  # bytes of the others of topics that something was put to

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
        self._bytes = max(self._bytes, len(value))  # versions overlap: their sum would call a half-full object full

    def _settle(self, topic: str) -> None:
        """Have each client in one place."""
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
        """Whether the topic can have records in objects of its own, too."""
        return self.full or topic in self.spilled

    def held(self, topic: str, client: str) -> Entries:
        """What the client has at the topic in here."""
        if client in self.topics.get(topic, ()):
            return PLAIN
        return self.others.get(topic, {}).get(client, NOTHING)

    def records(self, topic: str) -> Iterator[tuple[str, Entries]]:
        """Of all clients."""
        yield from ((client, PLAIN) for client in self.topics.get(topic, ()))
        yield from self.others.get(topic, {}).items()

    def put(self, topic: str, client: str, entries: Entries) -> bool:
        """Whether this is what the client has at the topic in here now; if not, it belongs into the topic's own objects
        (and that has been noted).

        What is in here already is written all the same: this may be an old copy, from before a removal that the other
        side of a cut has seen. Written back it is a version of its own, and the merge has it in.
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
        """This is what the client has in here, whether there is room or not. The object itself stays, even when it is
        empty: Riak's deletes lose their context."""
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
        """Where the topic has nobody any more."""
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
    """One object of a topic's own: some of its clients. A client may have more in other objects of the topic."""

    def __init__(self) -> None:
        super().__init__()
        self.others: dict[str, Entries] = {}  # of the members that are not plain

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
        """What the client has in here."""
        if client in self.others:
            return self.others[client]
        return PLAIN if client in self.members else NOTHING

    def records(self) -> Iterator[tuple[str, Entries]]:
        """Of all clients."""
        return ((client, self.held(client)) for client in self.members)

    def put(self, client: str, entries: Entries, limit: int) -> bool:
        """Whether this is what the client has in here now, as ``Partition.put``; if not, there is no room in ``limit``
        bytes. A client that is here may go beyond them by ``TOPIC_BYTES_MAX``."""
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
        """This is what the client has in here, whether there is room or not."""
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
