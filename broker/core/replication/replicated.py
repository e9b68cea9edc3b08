"""The content of a slot's failover replica: the seen payloads, and the messages that the home is dispatching. ADR 23.

Owns: the messages that this endpoint is dispatching as a home, and those that it keeps as a replica for other homes.
Must never: dispatch a message, or decide whether a message is a duplicate.

A home that crashes may have delivered a message to only some of its subscribers. The next home cannot know which
subscribers got it, so it dispatches the message again under the same identity. Destinations drop the message if they
already have it. A replica therefore keeps the whole message, and not only its key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ..cluster.slots import SlotState
from ..dedup.chunks import packed, unpacked
from ..dedup.dedup import Dedup, slot_of_key
from ..dedup.names import Names
from ..desk import Desk
from ..dispatch import Dispatch
from ..links.carrying import packed_message, unpacked_message
from ..links.requests import Carried
from ..message import Message

#: The number of keys in a chunk of a replica. The chunk has 22 KB. The sender and the receiver each take 1 ms to
#: process it.
KEYS_PER_CHUNK: Final = 1_000

#: The number of bytes of messages in one slice.
SLICE_BYTES: Final = 64 << 10

#: The bytes to count for a message in addition to its payload.
MESSAGE_BYTES: Final = 60


class ReplicatedMessages(SlotState):
    """One endpoint's replicated messages. ``dedup`` is the endpoint's table of duplicates. The table also has the keys
    that the endpoint keeps as a replica.

    A chunk is an array with four items: the keys, the seconds until each key expires, the messages in progress, and the
    names of other messages. If the number of seconds is 0, the key is unknown. The last two items are indexed by the
    positions of the keys.
    """

    def __init__(self, desk: Desk, dedup: Dedup[Dispatch], names: Names) -> None:
        super().__init__("messages", KEYS_PER_CHUNK)
        self._desk = desk
        self._dedup = dedup
        self.names = names
        self.under_way: dict[bytes, Message] = {}  # key -> message whose home is this endpoint
        self.of_others: dict[bytes, Carried] = {}  # key -> message whose home is another endpoint
        #: Messages of crashed homes that this home takes over. ``Failover`` empties this tray in the same turn, after
        #: the replicas have handled the change.
        self.left: list[tuple[bytes, Carried]] = []
        #: For each key of a crashed home's message, the origin and number under which to dispatch the message, until
        #: its dispatch ends.
        self.identities: dict[bytes, tuple[str, int]] = {}

    def departing(self, slots: frozenset[int]) -> Iterator[list[Any]]:
        """See ``SlotState``."""
        keys: list[bytes] = []
        size = 0
        for key, message in list(self.under_way.items()):
            if slot_of_key(key) in slots:
                keys.append(key)
                size += len(message.payload) + MESSAGE_BYTES
            if size >= SLICE_BYTES:
                yield keys
                keys, size = [], 0
        if keys:
            yield keys
        yield from self._dedup.keys_of(slots)

    def pack(self, keys: Sequence[Any]) -> bytes:
        """See ``SlotState``."""
        under_way = self.under_way
        messages: dict[int, bytes] = {}
        for place, key in enumerate(keys) if under_way else ():
            message = under_way.get(key)
            if message is not None:
                messages[place] = packed_message(message)
        times = self._dedup.left(keys, self._desk.now)
        return packed(keys, times, messages, self.names.of(keys))

    def absorb(self, data: bytes) -> int:
        """See ``SlotState``."""
        keys, times, (found, names) = unpacked(data, 2)
        messages = _messages_in(found)
        self.names.take(keys, names)
        of_others = self.of_others
        for place, key in enumerate(keys) if of_others or messages else ():
            message = messages.get(place)
            if message is not None:
                of_others[key] = message
            elif (former := of_others.pop(key, None)) is not None and times[place] > 0:
                self.names.learn(key, former.origin, former.number)
        self._dedup.add_all(keys, times, self._desk.now)
        return len(keys)

    def arrived(self, slots: Sequence[int], whole: bool) -> None:
        """Take over the messages that the crashed home of these slots was dispatching."""
        self.left += self._take(slots)

    def dropped(self, slots: Sequence[int]) -> None:
        """See ``SlotState``."""
        self._take(slots)

    def _take(self, slots: Sequence[int]) -> list[tuple[bytes, Carried]]:
        if not self.of_others:
            return []
        of = frozenset(slots)
        taken = [(key, message) for key, message in self.of_others.items() if slot_of_key(key) in of]
        for key, _ in taken:
            del self.of_others[key]
        return taken


def _messages_in(found: Any) -> dict[int, Carried]:
    """Return the messages by position. Raise ``ValueError`` if a message is malformed."""
    if type(found) is not dict:
        raise ValueError("the chunk's messages are not a map")
    messages: dict[int, Carried] = {}
    for place, data in found.items():
        if type(place) is not int or type(data) is not bytes:
            raise ValueError("the chunk has a malformed message")
        messages[place] = unpacked_message(data)
    return messages
