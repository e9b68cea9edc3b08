"""Notifications, gaps and positions: messages that an endpoint sends without a request. SPEC sections 2 and 3.

Owns: the classes of these messages, and their parsing by a client. Must never: know a connection, or decide how the
client reacts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from .hashes import SLOTS, slot_of
from .messages import MID_BYTES_MAX, POSITION_BYTES_MAX, is_text_of


class Notification(NamedTuple):
    """A message for this client (listing 4.7). It is a pair of ``key`` and ``broadcast``.

    - ``key``: the topic, or ``None`` if the message comes from the ``broadcast`` command.
    - ``broadcast``: the payload, a JSON value.
    - ``mid``: the permanent name of the message. An endpoint sends it to a client that recovers, and with the kept
      messages of ``subscribe`` and ``history``. Otherwise it is ``None``.
    - ``kept``: whether it is a kept message; ``False`` if ``mid`` is ``None``.
    - ``skipped``: the number of other messages that this one replaces, because the client's bounds left them out.
    """

    key: str | None
    broadcast: Any

    @property
    def mid(self) -> str | None:
        """Return the message's permanent name, or ``None``."""
        return None

    @property
    def kept(self) -> bool:
        """Return whether it is a kept message."""
        return False

    @property
    def skipped(self) -> int:
        """Return how many other messages this one replaces."""
        return 0


class Named(Notification):
    """A notification that has a ``mid`` or replaces other messages. As a pair it equals a plain ``Notification``. (Most
    notifications are plain, and so need no memory for these fields.)"""

    _mid: str | None = None
    _kept: bool = False
    _skipped: int = 0

    @classmethod
    def of(cls, key: str | None, broadcast: Any, mid: str | None, kept: bool, skipped: int = 0) -> Named:
        """Return the notification with these fields."""
        named = cls(key, broadcast)
        named._mid, named._kept, named._skipped = mid, kept, skipped
        return named

    @property
    def mid(self) -> str | None:
        """See ``Notification``."""
        return self._mid

    @property
    def kept(self) -> bool:
        """See ``Notification``."""
        return self._kept

    @property
    def skipped(self) -> int:
        """See ``Notification``."""
        return self._skipped


class Gap(NamedTuple):
    """A place where kept messages may be missing. The application has to read the current state from its own sources.

    ``concerns`` says for any topic whether its messages may be missing.

    - ``topics``: the topics concerned. If it is ``None``, all topics in ``slots`` are concerned. If ``slots`` is also
      empty, all topics of the client are concerned, because the position is useless. The library names the topics in
      the slots if it knows all topics of the client. It knows them after it has read ``subscriptions`` to the end.
    - ``slots``: numbers of slots (a topic's CRC-32 modulo 4,096).
    """

    topics: list[str] | None
    slots: frozenset[int] = frozenset()

    def concerns(self, topic: str) -> bool:
        """Return whether messages of this topic may be missing."""
        if self.topics is not None and topic in self.topics:
            return True
        return slot_of(topic) in self.slots if self.slots else self.topics is None


class History(NamedTuple):
    """The result of ``history``.

    - ``publications``: the messages, the oldest first.
    - ``mid``: the name of the latest message examined, from which the next ``history`` continues. ``None`` if there was
      no message.
    - ``more``: whether the topic has further messages, which did not fit.
    - ``recovered``: whether the home still has the message that ``since`` names, and all messages after it.
    """

    publications: list[Notification]
    mid: str | None
    more: bool
    recovered: bool


def read_position(value: object) -> str:
    """Check a position, and return it unchanged.

    Raises:
        ValueError: it is not a string of 1 to 128 bytes.
    """
    if type(value) is str and is_text_of(value, POSITION_BYTES_MAX):
        return value
    raise ValueError(f"a position that is no string of 1 to {POSITION_BYTES_MAX} bytes")


def read_named(message: Mapping[str, Any]) -> Named:
    """Read a notification that has a ``mid``, or ``skipped``, or both.

    Raises:
        ValueError: its ``mid`` is not a string of 1 to 128 bytes, or ``skipped`` is not an integer of at least 0.
    """
    mid, skipped = message.get("mid"), message.get("skipped", 0)
    if "mid" in message and not is_text_of(mid, MID_BYTES_MAX):
        raise ValueError(f"a mid that is no string of 1 to {MID_BYTES_MAX} bytes")
    if type(skipped) is not int or skipped < 0:
        raise ValueError("a number of skipped messages that is not an integer of at least 0")
    return Named.of(message.get("key"), message["broadcast"], mid, message.get("kept") is True, skipped)


def read_gap(value: object, in_slots: Callable[[frozenset[int]], Iterable[str] | None]) -> Gap:
    """Read the value of ``gap``.

    Args:
        value: the decoded JSON value.
        in_slots: returns the client's topics in given slots, or ``None`` if not all topics are known.

    Returns:
        The gap.

    Raises:
        ValueError: the value is not a gap.
    """
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
        return Gap(list(dict.fromkeys(topics)) if topics else None)  # a gap that names nothing may concern any topic
    found = in_slots(frozenset(slots))
    if found is not None:
        return Gap(list(dict.fromkeys([*topics, *found])), frozenset(slots))
    return Gap(None, frozenset([*slots, *map(slot_of, topics)]))  # this gap is a little wider than the reported gap


def read_history(topic: str, reply: Mapping[str, Any]) -> History:
    """Read the reply to ``history``.

    Args:
        topic: the topic of the command.
        reply: the reply's fields.

    Returns:
        The parsed reply.

    Raises:
        ValueError: the reply is malformed.
    """
    rows, mid = reply.get("publications"), reply.get("mid")
    if type(rows) is not list or not all(type(row) is dict and {"broadcast", "mid"} <= row.keys() for row in rows):
        raise ValueError("a history without publications")
    publications: list[Notification] = [read_named({"key": topic, "kept": True, **row}) for row in rows]
    if mid is not None and not is_text_of(mid, MID_BYTES_MAX):
        raise ValueError(f"a mid that is no string of 1 to {MID_BYTES_MAX} bytes")
    return History(publications, mid, reply.get("more") is True, reply.get("recovered") is True)
