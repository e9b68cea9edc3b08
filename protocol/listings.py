"""What a client asks for page by page: its topics, its filters, a topic's subscribers. SPEC sections 2.2 to 2.4.

Owns: how pages are asked for one after the other, and what their rows mean. Must never: know a connection: whoever
calls it brings what sends a command. No more than one page is held.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from .topics import check_topic

#: A command by its name and its fields: its reply.
Ask = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]


class Subscriber(NamedTuple):
    """Of a topic. ``online``: it listens somewhere. ``filtered``: only with filters, so that not every message of the
    topic is sent to it."""

    client_id: str
    online: bool
    filtered: bool = False


class Filtered(NamedTuple):
    """A topic at which a client has filters, and these as JSON values: any of them suffices. Where the client has
    another subscription to the topic beside them, it is sent every message."""

    topic: str
    filters: list[dict[str, Any]]


async def topics(ask: Ask, limit: int) -> AsyncIterator[str]:
    """The client's topics, in pages of at most ``limit``."""
    async for page in _pages(ask, "subscriptions", {"limit": limit}):
        for topic in page["topic"]:
            yield topic


async def filtered(ask: Ask, limit: int) -> AsyncIterator[Filtered]:
    """Those of the client's topics at which it has filters, in pages of at most ``limit`` topics of any kind."""
    async for page in _pages(ask, "subscriptions", {"limit": limit}):
        for topic, filters in page.get("filters", {}).items():
            yield Filtered(topic, filters)


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
