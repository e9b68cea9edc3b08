"""Words that replies to operators and clients share.

Owns: how a reply describes subscriptions, and a refusal. Must never: ask the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from orjson import Fragment

from ingeborg.protocol.errors import ProtocolError

from ..model import Subscription

#: Questions that may wait for others to be answered, some 500 bytes each; more are refused. People ask them, and
#: clients that come to a topic with presence.
WAITING_MAX: Final = 1_000

#: Bytes of filters in one reply. The first topic or client of a page always fits, whatever its filters take.
REPLY_FILTER_BYTES: Final = 1 << 20

#: One call to the store asks for the subscriptions of this many clients at a topic, or at this many topics of a client:
#: each may have filters of 256 KiB.
PAIRS_PER_READ: Final = 32


def too_many() -> ProtocolError:
    """So many wait that this one is refused."""
    return ProtocolError("store_unavailable", f"{WAITING_MAX} others wait for such an answer; ask again later")


def filter_bytes(held: Sequence[Subscription]) -> int:
    """Bytes of the filters that a client has at a topic."""
    return sum(len(one.filter) for one in held if one.filter is not None)


def said(held: Sequence[Subscription]) -> list[dict[str, Any]] | None:
    """A client's subscriptions at a topic, as a reply lists them. ``None``: just one, with neither filter nor term."""
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
