"""How a client catches up with what it missed: its position, repeats, what it asks for of what is kept. SPEC 2 and 9.

Owns: which position the client listens with, which one its application has processed, and which messages have come
already. Must never: send anything, write a file, or call the application.

There are two positions. Up to the *received* one everything has come, though it may wait for the application: the
client listens with it after a lost connection. The application's own is behind that by what still waits: only this one
may be saved, since what waits is lost with the program.
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

#: Names of the latest messages, by which repeats are dropped: what comes in some seconds, as positions do.
MIDS_MAX: Final = 10_000


class Position(NamedTuple):
    """It has come, behind the notifications that it covers."""

    text: str


class Recovery:
    """One client's. ``position``: what its application has processed; ``None``: there is none yet."""

    def __init__(self, position: str | None = None) -> None:
        self.position = position
        self.repeats = 0  # messages that came again, and were dropped
        self._received = position
        self._mids: BoundedMap[str, None] = BoundedMap(MIDS_MAX)
        self._done: deque[str] = deque(maxlen=MIDS_MAX)  # processed since the position
        self._has_listened = False
        self._left = False  # it had listened, and does not any more
        self._topics: set[str] | None = None  # None: nobody has asked which they are, so that none is kept here
        self._knows_all = False

    # -- positions

    @property
    def received(self) -> str | None:
        """The latest that has come."""
        return self._received

    def fields(self) -> dict[str, Any]:
        """Of a ``listen``."""
        return {"recover": True if self._received is None else self._received}

    def replied(self, reply: Mapping[str, Any]) -> Gap | None:
        """The client listens. A gap: it had listened before, and was away without a position."""
        without = self._left and self._received is None
        self._has_listened, self._left = True, False
        return Gap(None) if without else None

    def left(self) -> None:
        """The client listens nowhere any more."""
        self._left = self._has_listened

    def came(self, position: str) -> Position:
        """It covers all that came before it."""
        self._received = position
        return Position(position)

    def passed(self, position: Position) -> None:
        """The application has processed all that came before it."""
        self.position = position.text
        self._done.clear()

    # -- messages

    def is_repeat(self, mid: str) -> bool:
        """Has it come before? Else it has now."""
        if mid in self._mids:
            self.repeats += 1
            return True
        self._mids.put(mid, None)
        return False

    def done(self, mid: str) -> None:
        """The application has processed it."""
        self._done.append(mid)

    # -- what a file keeps of it: the position, and the names of what was processed behind it

    def text(self) -> bytes | None:
        """The file's content; ``None``: there is no position to be kept."""
        if self.position is None:
            return None
        return orjson.dumps({"position": self.position, "mids": list(self._done)}, option=orjson.OPT_APPEND_NEWLINE)

    def restore(self, text: bytes) -> None:
        """What ``text`` has given once. Raises ``ValueError``."""
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

    # -- the client's topics, by which slots are told apart

    def begins_reading(self) -> None:
        """The client reads which topics it has, those of earlier programs too: each is given to ``subscribed``."""
        if self._topics is None:
            self._topics = set()

    def has_read(self) -> None:
        """All of them."""
        self._knows_all = True

    def subscribed(self, topics: Iterable[str]) -> None:
        """The client has these."""
        if self._topics is not None:
            self._topics.update(topics)

    def unsubscribed(self, topics: Iterable[str]) -> None:
        """And these not any more."""
        if self._topics is not None:
            self._topics.difference_update(topics)

    def in_slots(self, slots: frozenset[int]) -> list[str] | None:
        """Its topics there, in their order; ``None``: it may have others than are known here."""
        if self._topics is None or not self._knows_all:
            return None
        return sorted(topic for topic in self._topics if slot_of(topic) in slots)


def kept_fields(last: int | None, since: str | None) -> dict[str, Any]:
    """The fields of a subscribe that asks for kept messages; empty: it does not. Raises ``bad_state``."""
    fields = _last(last, since)
    if since is not None:
        if not is_text_of(since, POSITION_BYTES_MAX):
            text = f"Key 'since' has to be a position as an endpoint gave it (1 to {POSITION_BYTES_MAX} bytes)"
            raise ProtocolError("bad_state", text)
        fields["since"] = since
    return fields


def history_fields(last: int | None, since: str | None, limit: int | None, filter: object) -> dict[str, Any]:
    """The fields of a ``history``, beside its topic. ``bad_state`` and ``bad_filter``: what may not be one of them."""
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
        raise ProtocolError("bad_state", f"Key 'last' has to be an integer from 1 to {LAST_MAX}, of messages")
    return {"last": last}


def keep_fields(keep_s: int | None) -> dict[str, Any]:
    """The field of a publish whose message is kept; empty: it has none. Raises ``bad_state``."""
    if keep_s is None:
        return {}
    if type(keep_s) is not int or not 1 <= keep_s <= KEEP_S_MAX:
        raise ProtocolError("bad_state", f"Key 'keep_s' has to be an integer from 1 to {KEEP_S_MAX}, of seconds")
    return {"keep_s": keep_s}
