"""The items that a link has queued, and not put into a frame yet."""

from __future__ import annotations

import itertools

from msgspec.msgpack import Decoder

from ingeborg.broker.core.links.frames import Received, UsualAnswers
from ingeborg.broker.core.links.link import Link

_ITEM = Decoder(Received)


def queued(link: Link) -> list[Received]:
    """Return the items as the peer will decode them."""
    items: list[Received] = [_ITEM.decode(item) for item in (*itertools.chain(*link._full), *link._items)]
    return [*items, (link._answers[0], UsualAnswers(link._answers[:]))] if link._answers else items


def taken(link: Link) -> list[Received]:
    """Return the items, and drop them."""
    items = queued(link)
    link._full.clear()
    link._items.clear()
    link._answers.clear()
    link._work = link._items_bytes = 0
    return items
