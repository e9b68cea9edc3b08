"""What is in the objects of subscriptions with filters. They lie in the bucket type of plain ones, and last.

Owns: these values, and how two versions of one merge: by union, filter by filter. Must never: do I/O, read what is in a
filter, or forget one in a merge.

A filter that was taken out is not remembered, so a version from before may bring it back, as in ``layout.Partition``:
an ``unsubscribe`` may have to be repeated, a subscription never (SPEC section 8.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import ormsgpack

from .layout import ENTRY_BYTES, OBJECT_BYTES_MAX, VERSION, SetObject, unpack, utf8_bytes

TOPIC_BYTES_MAX: Final = 40 * 1024
"""What the filters of one topic may take within their partition object, as much as a plain topic's subscribers do
there: more would make every write to the partition large."""


def _merge(known: dict[str, set[str]], others: Mapping[str, Any]) -> None:
    """Add the filters of these clients. ``TypeError`` for what is none."""
    for client, texts in others.items():
        known.setdefault(client, set()).update(texts)


def _packed(clients: Mapping[str, set[str]]) -> dict[str, list[str]]:
    return {client: sorted(texts) for client, texts in sorted(clients.items())}


def _text_bytes(text: str) -> int:
    return utf8_bytes(text) + ENTRY_BYTES


def _client_bytes(client: str) -> int:
    """Of a client's name and of the list of its filters, without these."""
    return utf8_bytes(client) + 2 * ENTRY_BYTES


class FilterPartition:
    """The filters at the topics of one partition, those of small topics.

    A topic that has grown large, and every new one once the object is ``full``, goes on in objects of its own, as in
    ``layout.Partition``. The topics that a full partition has no room to name are in a set that is named after it, so
    that all can be found without listing keys.
    """

    def __init__(self) -> None:
        self.dirty = False
        self.topics: dict[str, dict[str, set[str]]] = {}  # topic: client: filters
        self.spilled: set[str] = set()
        self.full = False
        self._bytes = 32
        self._topic_bytes: dict[str, int] = {}  # of those topics that something was put to

    def absorb(self, value: bytes) -> None:
        topics, spilled, full = unpack(value, 3)
        for topic, clients in topics.items():
            _merge(self.topics.setdefault(topic, {}), clients)
        self.spilled.update(spilled)
        self.full = self.full or full
        self._bytes = max(self._bytes, len(value))  # as in ``layout.Partition``

    def encode(self) -> bytes:
        topics = {topic: _packed(clients) for topic, clients in self.topics.items()}
        return ormsgpack.packb([VERSION, topics, sorted(self.spilled), self.full])

    def elsewhere(self, topic: str) -> bool:
        """Whether the topic can have filters in objects of its own, too."""
        return self.full or topic in self.spilled

    def held(self, topic: str, client: str) -> frozenset[str]:
        """The client's filters at the topic that are in here."""
        return frozenset(self.topics.get(topic, {}).get(client, ()))

    def put(self, topic: str, client: str, text: str) -> bool:
        """Whether the filter is in here now; if not, it belongs into the topic's own objects (and that has been noted).

        What is in here already is written all the same, as in ``layout.Partition.add``.
        """
        clients = self.topics.get(topic, {})
        texts = clients.get(client, set())
        if text in texts:
            self.dirty = True
            return True
        if self.elsewhere(topic):
            return False
        self.dirty = True
        share = self._topic_bytes.get(topic)
        if share is None:
            share = sum(_client_bytes(name) + sum(map(_text_bytes, filters)) for name, filters in clients.items())
        more = _text_bytes(text) + (0 if texts else _client_bytes(client))
        if clients and share + more > TOPIC_BYTES_MAX:
            self.spilled.add(topic)
            self._bytes += utf8_bytes(topic) + ENTRY_BYTES
            return False
        if self._bytes + more + (0 if clients else utf8_bytes(topic) + 2 * ENTRY_BYTES) > OBJECT_BYTES_MAX:
            self.full = True
            return False
        self._bytes += more + (0 if clients else utf8_bytes(topic) + 2 * ENTRY_BYTES)
        self._topic_bytes[topic] = share + more
        self.topics.setdefault(topic, {}).setdefault(client, set()).add(text)
        return True

    def discard(self, topic: str, client: str, text: str) -> None:
        """The filter is not in here any more."""
        texts = self.topics.get(topic, {}).get(client, set())
        if text not in texts:
            return
        self.dirty = True
        self._topic_bytes.pop(topic, None)
        texts.discard(text)
        self._bytes -= utf8_bytes(text) + 1
        if not texts:
            del self.topics[topic][client]
            self._bytes -= utf8_bytes(client) + 2
        if not self.topics[topic]:
            del self.topics[topic]
            self._bytes -= utf8_bytes(topic) + 2


class FilterObject(SetObject):
    """One object of a topic's own: some of its clients, with filters of theirs. A client may have others in other
    objects of the topic, and what it has in all of them together is what it has."""

    def __init__(self) -> None:
        super().__init__()
        self.filters: dict[str, set[str]] = {}  # by client; the same as the members

    def absorb(self, value: bytes) -> None:
        name, level, filters = unpack(value, 3)
        self._of(name, level, value)
        _merge(self.filters, filters)
        self.members.update(self.filters)

    def encode(self) -> bytes:
        return ormsgpack.packb([VERSION, self.name, self.level, _packed(self.filters)])

    def put(self, client: str, text: str, limit: int) -> bool:
        """As ``SetObject.add``, of one filter."""
        texts = self.filters.get(client)
        if texts is not None and text in texts:
            self.dirty = True
            return True
        more = _text_bytes(text)
        if texts is None and not self.add(client, limit - more):
            return False
        if texts is not None and self._bytes + more > limit:
            return False
        self.dirty = True
        self._bytes += more
        self.filters.setdefault(client, set()).add(text)
        return True

    def take(self, client: str, text: str | None) -> None:
        """Take out that filter of the client; ``None``: all of its."""
        texts = self.filters.get(client, set())
        for gone in [*texts] if text is None else [text] if text in texts else []:
            self.dirty = True
            texts.discard(gone)
            self._bytes -= utf8_bytes(gone) + 1
        if client in self.filters and not texts:
            del self.filters[client]
            self.discard(client)

    def _entry_bytes(self, member: str) -> int:
        return _client_bytes(member)
