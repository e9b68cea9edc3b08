"""Listings that a client reads page by page: its subscriptions, a topic's subscribers. SPEC sections 2.2 to 2.4.

Owns: requesting one page after the other, and the meaning of a page's rows. Must never: know a connection (the caller
passes the function that sends a command), or hold more than one page.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from .topics import check_topic

#: Sends a command with this name and these fields, and returns the reply.
Ask = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]

#: The subscription to a topic for which a page lists no details. It has neither a filter nor a term.
_PLAIN: Final[tuple[dict[str, Any], ...]] = ({},)


class Subscription(NamedTuple):
    """One subscription of a client. It has no end if ``until`` and ``ends_at`` are both ``None``.

    - ``topic``: the topic.
    - ``filter``: a JSON value, or ``None`` if the subscription is for all messages.
    - ``until``: ``"disconnect"``, or ``None``.
    - ``ends_at``: Unix time in seconds, or ``None``.
    """

    topic: str
    filter: dict[str, Any] | None = None
    until: str | None = None
    ends_at: float | None = None


class Subscriber(NamedTuple):
    """One subscriber of a topic.

    - ``client_id``: the client's id.
    - ``online``: whether it listens somewhere.
    - ``filtered``: whether it has subscribed with filters only, so that it does not get every message of the topic.
    """

    client_id: str
    online: bool
    filtered: bool = False


async def subscriptions(ask: Ask, limit: int) -> AsyncIterator[Subscription]:
    """Yield the client's subscriptions, topic by topic.

    Args:
        ask: sends a command and returns its reply.
        limit: maximum number of topics in a page, from 1 to 10,000.

    Raises:
        ProtocolError: the endpoint refuses the command.
    """
    async for page in _pages(ask, "subscriptions", {"limit": limit}):
        told = page.get("subscriptions", {})
        for topic in page["topic"]:
            for fields in told.get(topic, _PLAIN):
                yield Subscription(topic, fields.get("filter"), fields.get("until"), fields.get("ends_at"))


async def subscribers(ask: Ask, topic: str, limit: int) -> AsyncIterator[Subscriber]:
    """Yield the topic's subscribers in the order of their ids.

    Args:
        ask: sends a command and returns its reply.
        topic: the topic.
        limit: maximum number of subscribers in a page, from 1 to 10,000.

    Raises:
        ProtocolError: the endpoint refuses the command, or the topic is not valid (``bad_topic``).
    """
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
