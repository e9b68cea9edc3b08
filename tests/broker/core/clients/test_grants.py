"""What a grant covers. SPEC section 1.5."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.clients.grants import Grant
from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import Command

ANNA = Grant("anna", ("news/", "anna/"), ("news/",), False, 0.0)
GATEWAY = Grant("gw-7/*", (), ("",), True, 0.0)
OPERATOR = Grant("console", (), (), False, 0.0, inspect=True)


def refused(grant: Grant, name: str, client: str, *topics: str) -> str | None:
    """The error's code."""
    try:
        grant.check(Command(name, client, topics=topics))
    except ProtocolError as error:
        return error.code
    return None


@pytest.mark.parametrize(
    ("grant", "client", "code"),
    [
        (ANNA, "anna", None),
        (ANNA, "anna2", "unauthorized"),
        (ANNA, "bert", "unauthorized"),
        (GATEWAY, "gw-7/1", None),
        (GATEWAY, "gw-7/", None),
        (GATEWAY, "gw-70", "unauthorized"),
        (Grant("*", (), (), False, 0.0), "whoever", None),
        (Grant("a*b", (), (), False, 0.0), "axb", "unauthorized"),
    ],
)
@pytest.mark.parametrize("name", ["listen", "unlisten", "unsubscribe", "subscriptions"])
def test_a_command_has_to_be_for_the_token_s_client(grant: Grant, client: str, code: str | None, name: str) -> None:
    assert refused(grant, name, client, "any topic") == code


@pytest.mark.parametrize(
    ("grant", "name", "topics", "code"),
    [
        (ANNA, "publish", ["news/1"], None),
        (ANNA, "publish", ["anna/"], None),
        (ANNA, "publish", ["new"], "forbidden"),
        (ANNA, "subscribe", ["news/1", "news/2"], None),
        (ANNA, "subscribe", ["news/1", "anna/1"], "forbidden"),
        (ANNA, "broadcast", [], "forbidden"),
        (GATEWAY, "subscribe", ["whatever"], None),
        (GATEWAY, "publish", ["whatever"], "forbidden"),
        (GATEWAY, "broadcast", [], None),
    ],
)
def test_topics_and_broadcast_are_permitted_one_by_one(
    grant: Grant, name: str, topics: list[str], code: str | None
) -> None:
    assert refused(grant, name, grant.client.replace("*", "1"), *topics) == code


_TEXTS = st.text("ab/", max_size=4)
_LISTS = st.lists(_TEXTS, max_size=3)


@given(
    prefixes=_LISTS,
    exact=_LISTS,
    topics=st.lists(_TEXTS, min_size=1, max_size=4),
    name=st.sampled_from(("publish", "subscribe")),
)
def test_topics_are_permitted_as_a_naive_reading_has_it(
    prefixes: list[str], exact: list[str], topics: list[str], name: str
) -> None:
    """By the one claim or the other, and nothing by those of the other command."""
    claims: dict[str, Any] = {"publish": (), "subscribe": (), name: tuple(prefixes), f"{name}_topics": frozenset(exact)}
    grant = Grant("anna", broadcast=False, expires_at=0.0, **claims)

    def permitted(topic: str) -> bool:
        return any(topic == one for one in exact) or any(topic[: len(prefix)] == prefix for prefix in prefixes)

    assert refused(grant, name, "anna", *topics) == (None if all(map(permitted, topics)) else "forbidden")
    other = {"publish": "subscribe", "subscribe": "publish"}[name]
    assert refused(grant, other, "anna", *topics) == "forbidden"


@pytest.mark.parametrize(
    ("grant", "name", "client", "code"),
    [
        (OPERATOR, "endpoints", "console", None),
        (OPERATOR, "subscribers", "console", None),
        (OPERATOR, "subscribers", "anna", "unauthorized"),
        (OPERATOR, "location", "anna", None),
        (OPERATOR, "subscriptions", "anna", None),
        (OPERATOR, "unsubscribe", "anna", "unauthorized"),
        (ANNA, "endpoints", "anna", "forbidden"),
        (ANNA, "subscribers", "anna", "forbidden"),
        (ANNA, "location", "anna", None),
        (ANNA, "location", "bert", "unauthorized"),
    ],
)
def test_looking_at_others_needs_a_permission_of_its_own(
    grant: Grant, name: str, client: str, code: str | None
) -> None:
    assert refused(grant, name, client, "any topic") == code
