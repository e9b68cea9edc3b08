"""What an endpoint sends a client unasked, or of what it has kept: notifications, gaps, positions. SPEC 2 and 3.

Owns: these values, and how they are read. Must never: know a connection, or decide what is done about any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from .hashes import SLOTS, slot_of
from .messages import MID_BYTES_MAX, POSITION_BYTES_MAX, is_text_of


class Notification(NamedTuple):
    """Listing 4.7. ``key`` is the topic; ``None``: from the ``broadcast`` command.

    It is a pair. Beside these it has ``mid``, what names the message for good, and ``kept``: does it come from what was
    kept? Both where the endpoint gives them: to a client that recovers, and for what ``subscribe`` and ``history`` ask
    for; else they are ``None`` and ``False``.
    """

    key: str | None
    broadcast: Any

    @property
    def mid(self) -> str | None:
        """The message's name."""
        return None

    @property
    def kept(self) -> bool:
        """Does it come from what was kept?"""
        return False


class Named(Notification):
    """The same with a name, and as a pair equal to one without. (Most have none, and do without the room for it.)"""

    _mid: str | None = None
    _kept: bool = False

    @classmethod
    def of(cls, key: str | None, broadcast: Any, mid: str, kept: bool) -> Named:
        """That notification."""
        named = cls(key, broadcast)
        named._mid, named._kept = mid, kept
        return named

    @property
    def mid(self) -> str | None:
        """See ``Notification``."""
        return self._mid

    @property
    def kept(self) -> bool:
        """See ``Notification``."""
        return self._kept


class Gap(NamedTuple):
    """Kept messages may be lacking here. What they were about has to be read anew, by the application's own means.

    ``topics``: of these; ``None``: of any of the client's, since the position is of no use (``slots`` empty), or of
    any in these ``slots`` (the topic's CRC-32 modulo 4,096). The library names the topics in the slots where it knows
    all of the client's: once it has read ``subscriptions`` to the end. ``concerns`` is exact in each case.
    """

    topics: list[str] | None
    slots: frozenset[int] = frozenset()

    def concerns(self, topic: str) -> bool:
        """May messages of this topic be lacking?"""
        if self.topics is not None and topic in self.topics:
            return True
        return slot_of(topic) in self.slots if self.slots else self.topics is None


class History(NamedTuple):
    """What ``history`` gives: ``publications``, the oldest first.

    ``mid``: the latest's, to go on from; ``None``: there is none. ``more``: not all fitted. ``recovered``: the message
    that was asked from is known, and nothing after it had been forgotten.
    """

    publications: list[Notification]
    mid: str | None
    more: bool
    recovered: bool


def read_position(value: object) -> str:
    """Raises ``ValueError``."""
    if type(value) is str and is_text_of(value, POSITION_BYTES_MAX):
        return value
    raise ValueError(f"a position that is no string of 1 to {POSITION_BYTES_MAX} bytes")


def read_named(message: Mapping[str, Any]) -> Named:
    """A notification with ``mid``. Raises ``ValueError``."""
    mid = message["mid"]
    if not is_text_of(mid, MID_BYTES_MAX):
        raise ValueError(f"a mid that is no string of 1 to {MID_BYTES_MAX} bytes")
    return Named.of(message.get("key"), message["broadcast"], mid, message.get("kept") is True)


def read_gap(value: object, in_slots: Callable[[frozenset[int]], Iterable[str] | None]) -> Gap:
    """What stands behind ``gap``. ``in_slots``: the client's topics there; ``None``: they are not known. Raises
    ``ValueError``."""
    if value is None:
        return Gap(None)
    if type(value) is not dict:
        raise ValueError("a gap that is no object")
    topics, slots = value.get("topics", []), value.get("slots", [])
    if type(topics) is not list or not all(type(topic) is str for topic in topics):
        raise ValueError("a gap whose topics are no list of strings")
    if type(slots) is not list or not all(type(slot) is int and 0 <= slot < SLOTS for slot in slots):
        raise ValueError(f"a gap whose slots are no list of numbers below {SLOTS}")
    if not slots:
        return Gap(list(dict.fromkeys(topics)) if topics else None)  # one that names nothing may be anywhere
    found = in_slots(frozenset(slots))
    if found is not None:
        return Gap(list(dict.fromkeys([*topics, *found])), frozenset(slots))
    return Gap(None, frozenset([*slots, *map(slot_of, topics)]))  # a little wider, so that both are in one field


def read_history(topic: str, reply: Mapping[str, Any]) -> History:
    """The reply to ``history``. Raises ``ValueError``."""
    rows, mid = reply.get("publications"), reply.get("mid")
    if type(rows) is not list or not all(type(row) is dict and {"broadcast", "mid"} <= row.keys() for row in rows):
        raise ValueError("a history without publications")
    publications: list[Notification] = [read_named({"key": topic, "kept": True, **row}) for row in rows]
    if mid is not None and not is_text_of(mid, MID_BYTES_MAX):
        raise ValueError(f"a mid that is no string of 1 to {MID_BYTES_MAX} bytes")
    return History(publications, mid, reply.get("more") is True, reply.get("recovered") is True)
