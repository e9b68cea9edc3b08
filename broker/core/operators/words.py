"""What replies to those who look say alike.

Owns: the words for when a subscription ends, and of a refusal. Must never: ask.
"""

from __future__ import annotations

from typing import Any, Final

from ingeborg.protocol.errors import ProtocolError

from ..model import Term

#: Questions that may wait for others to be answered, some 500 bytes each; more are refused. People ask them, and who
#: comes to a topic with presence.
WAITING_MAX: Final = 1_000

#: Bytes of filters in one reply; it has one more topic's, or client's, at most.
REPLY_FILTER_BYTES: Final = 1 << 20

#: Clients at a topic, or topics of a client, whose filters one call to the store asks for.
FILTERED_PER_READ: Final = 32


def too_many() -> ProtocolError:
    """So many wait that this one is refused."""
    return ProtocolError("store_unavailable", f"{WAITING_MAX} others wait for such an answer; ask again later")


def said(term: Term | None) -> dict[str, Any]:
    """When a subscription ends, as a reply has it; nothing of one that is plain."""
    words: dict[str, Any] = {}
    if term is not None and term.disconnect:
        words["until"] = "disconnect"
    if term is not None and term.ends_at:
        words["ends_at"] = round(term.ends_at, 3)
    return words
