"""Texts and formats that the replies to operators and clients share.

Owns: the format in which a reply describes subscriptions, and the refusal of too many commands. Must never: call the
store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from orjson import Fragment

from ingeborg.protocol.errors import ProtocolError

from ..model import Subscription

#: The largest number of commands that wait for earlier commands, at about 500 bytes each. The endpoint refuses further
#: commands. These commands come from people, and from clients that enter a topic with presence.
WAITING_MAX: Final = 1_000

#: The largest number of bytes of filters in one reply. The first topic or client of a page is always included,
#: regardless of the size of its filters.
REPLY_FILTER_BYTES: Final = 1 << 20

#: The largest number of (client, topic) pairs whose subscriptions one store call reads. Each pair can have filters of
#: 256 KiB.
PAIRS_PER_READ: Final = 32


def too_many() -> ProtocolError:
    """Return the error for a command that is refused because too many other commands wait."""
    return ProtocolError("store_unavailable", f"{WAITING_MAX} other questions wait for an answer; ask again later")


def filter_bytes(held: Sequence[Subscription]) -> int:
    """Return the total size in bytes of the filters that a client has at a topic."""
    return sum(len(one.filter) for one in held if one.filter is not None)


def said(held: Sequence[Subscription]) -> list[dict[str, Any]] | None:
    """Return a client's subscriptions at a topic, in the format of a reply. Return ``None`` if the client has only one
    subscription, without a filter and without a term."""
    if len(held) == 1 and held[0].filter is None and held[0].term is None:
        return None
    return [_words(one) for one in held]


def _words(one: Subscription) -> dict[str, Any]:
    words: dict[str, Any] = {}
    if one.filter is not None:
        words["filter"] = Fragment(one.filter)
    if one.term is not None and one.term.disconnect:
        words["until"] = "disconnect"
    if one.term is not None and one.term.ends_at:
        words["ends_at"] = round(one.term.ends_at, 3)
    return words
