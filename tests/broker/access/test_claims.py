"""The permissions of claims from any source. ``test_tokens`` covers the claims of a token. SPEC section 1.5."""

from __future__ import annotations

from typing import Any

import pytest

from ingeborg.broker.access.claims import TokenError, granted
from ingeborg.broker.core.connections.grants import Grant


def test_what_is_named_is_permitted_until_then() -> None:
    permissions = {"publish": ["news/"], "subscribe_topics": ["a"], "inspect": True}
    expected = Grant("ann", ("news/",), (), False, 7.5, True, frozenset(), frozenset({"a"}))
    assert granted({"sub": "ann", "ingeborg": permissions, "exp": 1, "others": {}}, 7.5) == expected


def test_whose_subscribers_may_be_asked_for_is_a_list_of_beginnings_and_one_of_topics() -> None:
    permissions = {"presence": ["room/", "user/{sub}/"], "presence_topics": ["hall"]}
    grant = granted({"sub": "ann", "ingeborg": permissions}, 7.5)
    assert grant.presence == ("room/", "user/ann/")
    assert grant.presence_topics == {"hall"}
    assert (grant.publish, grant.subscribe, grant.inspect, grant.own) == ((), (), False, None)


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"sub": ""},
        {"sub": None},
        {"sub": 7},
        {"sub": ["ann"]},
        {"sub": "ann", "ingeborg": None},
        {"sub": "ann", "ingeborg": {"pubish": []}},
        {"sub": "ann", "ingeborg": {"publish": "news"}},
        {"sub": "ann", "ingeborg": {"inspect": 1}},
        {"sub": "ann", "ingeborg": {"presence": "room/"}},
        {"sub": "ann", "ingeborg": {"presence_topics": True}},
        {"sub": "ann", "ingeborg": {"presence": ["user/{sub}"]}},
    ],
)
def test_what_is_not_as_it_has_to_be_permits_nothing(claims: dict[str, Any]) -> None:
    with pytest.raises(TokenError):
        granted(claims, 7.5)
