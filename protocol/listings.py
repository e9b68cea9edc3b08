"""What a client asks for page by page: its subscriptions, a topic's subscribers. SPEC sections 2.2 to 2.4.

Owns: how pages are asked for one after the other, and what their rows mean. Must never: know a connection: whoever
calls it brings what sends a command. No more than one page is held.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from .topics import check_topic

#: A command by its name and its fields: its reply.
Ask = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]

#: The subscription at a topic that a page only names: neither a filter nor a term.
_PLAIN: Final[tuple[dict[str, Any], ...]] = ({},)


class Subscription(NamedTuple):
    """One of a client. ``filter``: a JSON value; ``None``: all messages. ``until``: ``"disconnect"``, or ``None``.
    ``ends_at``: Unix time in seconds, or ``None``. Without either of the two it stays."""

    topic: str
    filter: dict[str, Any] | None = None
    until: str | None = None
    ends_at: float | None = None


class Subscriber(NamedTuple):
    """Of a topic. ``online``: it listens somewhere. ``filtered``: only with filters, so that not every message of the
    topic is sent to it."""

    client_id: str
    online: bool
    filtered: bool = False


async def subscriptions(ask: Ask, limit: int) -> AsyncIterator[Subscription]:
    """The client's subscriptions, topic by topic, in pages of at most ``limit`` topics."""
    async for page in _pages(ask, "subscriptions", {"limit": limit}):
        told = page.get("subscriptions", {})
        for topic in page["topic"]:
            for fields in told.get(topic, _PLAIN):
                yield Subscription(topic, fields.get("filter"), fields.get("until"), fields.get("ends_at"))


async def subscribers(ask: Ask, topic: str, limit: int) -> AsyncIterator[Subscriber]:
    """The topic's subscribers in the order of their ids, in pages of at most ``limit``."""
    async for page in _pages(ask, "subscribers", {"topic": check_topic(topic), "limit": limit}):
        for row in page["subscribers"]:
            yield Subscriber(row["client_id"], row["online"], row.get("filtered", False))


async def _pages(ask: Ask, command: str, fields: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
    while True:
        page = await ask(command, fields)
        yield page
        cursor = page.get("cursor")
        if cursor is None:
            return
        fields = {**fields, "cursor": cursor}
