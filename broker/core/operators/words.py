"""Texts and forms that replies to operators and clients share.

Owns: the form in which a reply describes subscriptions, and a refusal. Must never: ask the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from orjson import Fragment

from ingeborg.protocol.errors import ProtocolError

from ..model import Subscription

#: Questions that can wait for earlier answers, some 500 bytes each; more are refused. People ask them, and clients that
#: come to a topic with presence.
WAITING_MAX: Final = 1_000

#: Bytes of filters in one reply. The first topic or client of a page always fits, however long its filters are.
REPLY_FILTER_BYTES: Final = 1 << 20

#: Clients at a topic, or topics of a client, whose subscriptions one call to the store asks for: each can have filters
#: of 256 KiB.
PAIRS_PER_READ: Final = 32


def too_many() -> ProtocolError:
    """Return the error for a question that too many others precede."""
    return ProtocolError("store_unavailable", f"{WAITING_MAX} other questions wait for an answer; ask again later")


def filter_bytes(held: Sequence[Subscription]) -> int:
    """Return the bytes of the filters that a client has at a topic."""
    return sum(len(one.filter) for one in held if one.filter is not None)


def said(held: Sequence[Subscription]) -> list[dict[str, Any]] | None:
    """Return a client's subscriptions at a topic, as a reply lists them. ``None``: just one, without a filter and
    without a term."""
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
