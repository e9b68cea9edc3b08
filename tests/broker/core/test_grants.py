"""What a grant covers. SPEC section 1.5."""

from __future__ import annotations

import pytest

from broker.core.grants import Grant
from protocol.errors import ProtocolError
from protocol.messages import Command

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
