"""Requesting one page after the other, without a connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ingeborg.protocol import listings
from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.listings import Subscriber, Subscription


class Pages:
    """Returns one page after the other, and keeps the commands."""

    def __init__(self, *pages: dict[str, Any]) -> None:
        self._pages = pages
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    async def ask(self, command: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append((command, fields))
        last = len(self.asked) == len(self._pages)
        return {**self._pages[len(self.asked) - 1], "cursor": None if last else f"p{len(self.asked)}"}


async def test_each_page_is_asked_for_with_the_cursor_of_the_one_before_and_only_when_it_is_wanted() -> None:
    pages = Pages({"topic": ["a", "b"]}, {"topic": []}, {"topic": ["c"]})
    found = listings.subscriptions(pages.ask, 2)
    assert [await anext(found), await anext(found)] == [Subscription("a"), Subscription("b")]
    assert pages.asked == [("subscriptions", {"limit": 2})]
    assert [each.topic async for each in found] == ["c"]
    assert [fields.get("cursor") for _, fields in pages.asked] == [None, "p1", "p2"]


async def test_each_subscription_comes_with_its_filter_and_when_it_ends() -> None:
    found = {"b": [{}, {"filter": {"x": [1]}, "until": "disconnect"}], "constructor": [{"ends_at": 1.5}]}
    pages = Pages({"topic": ["a", "b"], "subscriptions": found}, {"topic": ["constructor"], "subscriptions": found})
    assert [each async for each in listings.subscriptions(pages.ask, 9)] == [
        *(Subscription("a"), Subscription("b"), Subscription("b", {"x": [1]}, "disconnect")),
        Subscription("constructor", ends_at=1.5),
    ]


async def test_who_has_filters_only_is_said() -> None:
    rows = [{"client_id": "a", "online": True}, {"client_id": "b", "online": False, "filtered": True}]
    pages = Pages({"subscribers": rows}, {"subscribers": [{"client_id": "c", "online": True}]})
    found = [each async for each in listings.subscribers(pages.ask, "t", 9)]
    assert found == [Subscriber("a", True), Subscriber("b", False, True), Subscriber("c", True)]
    with pytest.raises(ProtocolError, match="bad_topic"):
        await anext(listings.subscribers(pages.ask, "", 9))
