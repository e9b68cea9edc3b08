"""A client's recovery of missed messages: its position, repeats, and requests for kept messages. SPEC 2 and 9.

Owns: the position with which the client listens, the position up to which its application has processed messages, and
the names of messages that have arrived already. Must never: send anything, write a file, or call the application.

A client has two positions. All messages up to the *received* position have arrived, but some may still wait for the
application. After a lost connection the client listens with the received position. The application's position comes
before the waiting messages. Only the application's position may be saved, since the waiting messages are lost when the
program ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import orjson

from .bounded import BoundedMap
from .errors import ProtocolError
from .hashes import slot_of
from .messages import (
    KEEP_S_MAX,
    LAST_MAX,
    MID_BYTES_MAX,
    POSITION_BYTES_MAX,
    is_text_of,
)
from .notifications import Gap, read_position
from .requests import filter_fields, filter_text

#: Maximum number of names that the client keeps of the latest messages, in order to drop repeats. These names cover
#: several seconds of messages, and a position comes every few seconds.
MIDS_MAX: Final = 10_000


class Position(NamedTuple):
    """A received position. In the client's queue it comes after the notifications that it covers."""

    text: str


class Recovery:
    """The recovery of one client. ``position`` is the position up to which its application has processed messages, or
    ``None``."""

    def __init__(self, position: str | None = None) -> None:
        self.position = position
        self.repeats = 0  # dropped messages that had arrived before
        self._received = position
        self._mids: BoundedMap[str, None] = BoundedMap(MIDS_MAX)
        self._done: deque[str] = deque(maxlen=MIDS_MAX)  # names of the messages processed after the position
        self._has_listened = False
        self._left = False  # the client had listened, and no longer does
        self._topics: set[str] | None = None  # None until the program reads its subscriptions
        self._knows_all = False

    # -- positions

    @property
    def received(self) -> str | None:
        """Return the latest received position."""
        return self._received

    def fields(self) -> dict[str, Any]:
        """Return the fields of a ``listen``."""
        return {"recover": True if self._received is None else self._received}

    def replied(self, reply: Mapping[str, Any]) -> Gap | None:
        """Record that the client listens. Returns a gap if it had listened before, and was away without a position."""
        without = self._left and self._received is None
        self._has_listened, self._left = True, False
        return Gap(None) if without else None

    def left(self) -> None:
        """Record that the client no longer listens anywhere."""
        self._left = self._has_listened

    def came(self, position: str) -> Position:
        """Record a position, which covers all messages before it."""
        self._received = position
        return Position(position)

    def passed(self, position: Position) -> None:
        """Record that the application has processed all messages before this position."""
        self.position = position.text
        self._done.clear()

    # -- messages

    def is_repeat(self, mid: str) -> bool:
        """Return whether the message has arrived before, and record that it has."""
        if mid in self._mids:
            self.repeats += 1
            return True
        self._mids.put(mid, None)
        return False

    def done(self, mid: str) -> None:
        """Record that the application has processed the message."""
        self._done.append(mid)

    # -- a file's content: the position, and the names of the messages processed after it

    def text(self) -> bytes | None:
        """Return the file's content, or ``None`` if there is no position to save."""
        if self.position is None:
            return None
        return orjson.dumps({"position": self.position, "mids": list(self._done)}, option=orjson.OPT_APPEND_NEWLINE)

    def restore(self, text: bytes) -> None:
        """Restore the state from an earlier result of ``text``.

        Raises:
            ValueError: the content does not come from ``text``.
        """
        saved = orjson.loads(text)
        if type(saved) is not dict:
            raise ValueError("no JSON object")
        position, mids = read_position(saved.get("position")), saved.get("mids", [])
        if type(mids) is not list or not all(is_text_of(mid, MID_BYTES_MAX) for mid in mids):
            raise ValueError(f"mids that are no list of strings of 1 to {MID_BYTES_MAX} bytes")
        self.position = self._received = position
        self._done.clear()
        for mid in mids[-MIDS_MAX:]:
            self._mids.put(mid, None)
            self._done.append(mid)

    # -- the client's topics, which turn the slots of a gap into names of topics

    def begins_reading(self) -> None:
        """Begin to record topics. The client is about to read all its topics, including those of earlier programs, and
        passes each to ``subscribed``."""
        if self._topics is None:
            self._topics = set()

    def has_read(self) -> None:
        """Record that the client has read all its topics."""
        self._knows_all = True

    def subscribed(self, topics: Iterable[str]) -> None:
        """Record topics that the client has."""
        if self._topics is not None:
            self._topics.update(topics)

    def unsubscribed(self, topics: Iterable[str]) -> None:
        """Record topics that the client no longer has."""
        if self._topics is not None:
            self._topics.difference_update(topics)

    def in_slots(self, slots: frozenset[int]) -> list[str] | None:
        """Return the client's topics in these slots, sorted. Return ``None`` if the client may have
        topics that are not recorded here."""
        if self._topics is None or not self._knows_all:
            return None
        return sorted(topic for topic in self._topics if slot_of(topic) in slots)


def kept_fields(last: int | None, since: str | None) -> dict[str, Any]:
    """Return the fields with which a subscribe requests kept messages, or no fields if it requests none.

    Args:
        last: number of messages, 1 to 1,000, or ``None``.
        since: a position, or ``None``.

    Raises:
        ProtocolError: ``bad_state``; a value is wrong, or both are given.
    """
    fields = _last(last, since)
    if since is not None:
        if not is_text_of(since, POSITION_BYTES_MAX):
            text = f"Key 'since' has to be a position as an endpoint gave it (1 to {POSITION_BYTES_MAX} bytes)"
            raise ProtocolError("bad_state", text)
        fields["since"] = since
    return fields


def history_fields(last: int | None, since: str | None, limit: int | None, filter: object) -> dict[str, Any]:
    """Return the fields of a ``history``, without its topic.

    Args:
        last: number of messages, 1 to 1,000, or ``None``.
        since: the ``mid`` of a message, or ``None``.
        limit: messages in the reply, 1 to 1,000, or ``None``.
        filter: a filter's JSON value, or ``None``.

    Raises:
        ProtocolError: ``bad_state`` or ``bad_filter``; a value is wrong.
    """
    fields = _last(last, since)
    if since is not None:
        if not is_text_of(since, MID_BYTES_MAX):
            raise ProtocolError("bad_state", "Key 'since' has to be the 'mid' of a message, as an endpoint gave it")
        fields["since"] = since
    if limit is not None:
        if type(limit) is not int or not 1 <= limit <= LAST_MAX:
            raise ProtocolError("bad_state", f"Key 'limit' has to be an integer from 1 to {LAST_MAX}")
        fields["limit"] = limit
    return fields | filter_fields(filter_text(filter))


def _last(last: int | None, since: str | None) -> dict[str, Any]:
    if last is None:
        return {}
    if since is not None:
        raise ProtocolError("bad_state", "Keys 'last' and 'since' exclude each other; leave one out")
    if type(last) is not int or not 1 <= last <= LAST_MAX:
        raise ProtocolError("bad_state", f"Key 'last' has to be an integer from 1 to {LAST_MAX} (messages)")
    return {"last": last}


def keep_fields(keep_s: int | None) -> dict[str, Any]:
    """Return the field with which a publish asks the broker to keep its message, or no field for ``None``.

    Args:
        keep_s: number of seconds, from 1 to 86,400 (a day), or ``None``.

    Raises:
        ProtocolError: ``bad_state``; the number is wrong.
    """
    if keep_s is None:
        return {}
    if type(keep_s) is not int or not 1 <= keep_s <= KEEP_S_MAX:
        raise ProtocolError("bad_state", f"Key 'keep_s' has to be an integer from 1 to {KEEP_S_MAX} (in seconds)")
    return {"keep_s": keep_s}
