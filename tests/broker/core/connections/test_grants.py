"""The coverage of a grant. SPEC section 1.5."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.broker.core.connections.grants import Grant
from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import Command

ANNA = Grant("anna", ("news/", "anna/"), ("news/",), False, 0.0)
GATEWAY = Grant("gw-7/*", (), ("",), True, 0.0)
OTHER_COMMANDS = (
    *("listen", "unlisten", "unsubscribe", "broadcast"),
    *("subscriptions", "endpoints", "subscribers", "location", "revoke"),
)
OPERATOR = Grant("console", (), (), False, 0.0, inspect=True)


def refused(grant: Grant, name: str, client: str, *topics: str) -> str | None:
    """Return the error's code."""
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
        (ANNA._replace(presence=("any",)), "subscribers", "anna", None),
        (ANNA._replace(presence=("any",)), "subscribers", "bert", "unauthorized"),
        (ANNA._replace(presence=("any",)), "endpoints", "anna", "forbidden"),
        (ANNA._replace(presence_topics=frozenset({"any topic"})), "subscribers", "anna", None),
        (ANNA._replace(presence_topics=frozenset({"any"})), "subscribers", "anna", "forbidden"),
        (ANNA, "location", "anna", None),
        (ANNA, "location", "bert", "unauthorized"),
    ],
)
def test_looking_at_others_needs_a_permission_of_its_own(
    grant: Grant, name: str, client: str, code: str | None
) -> None:
    assert refused(grant, name, client, "any topic") == code


# All permissions, against a naive reading of SPEC section 1.5

LISTS = ("publish", "subscribe", "presence", "publish_topics", "subscribe_topics", "presence_topics")
Claims = dict[str, Any]


def claimed(claims: Claims) -> Grant | None:
    """Return an endpoint's reading of the claims. None: the endpoint does not accept the token."""
    grant = Grant(
        claims["sub"],
        tuple(claims["publish"]),
        tuple(claims["subscribe"]),
        claims["broadcast"],
        expires_at=0.0,
        inspect=claims["inspect"],
        publish_topics=frozenset(claims["publish_topics"]),
        subscribe_topics=frozenset(claims["subscribe_topics"]),
        revoke=claims["revoke"],
        presence=tuple(claims["presence"]),
        presence_topics=frozenset(claims["presence_topics"]),
    )
    try:
        return grant.prepared()
    except ValueError:
        return None


def is_accepted(claims: Claims) -> bool:
    """Is other text after each `{sub}`? Only in a list of topics can it be the end."""
    for name in LISTS:
        for entry in claims[name]:
            if "{sub}{sub}" in entry:
                return False
            if entry.endswith("{sub}") and not name.endswith("_topics"):
                return False
    return True


def is_nothing_to(client: str, entry: str, claims: Claims) -> bool:
    """Does the id contain a control character, `/`, or the text after a `{sub}`: in the entry, or in one that is the
    same up to its first `{sub}`?"""
    if "{sub}" not in entry:
        return False
    for each in (each for name in LISTS for each in claims[name]):
        if "{sub}" in each and each[: each.index("{sub}")] == entry[: entry.index("{sub}")]:
            for place in range(len(each)):
                if each[:place].endswith("{sub}") and each[place] in client:
                    return True
    return any(character == "/" or unicodedata.category(character) == "Cc" for character in client)


def filled(entry: str, client: str) -> str:
    """Return the entry with its placeholders filled once, from left to right."""
    text = ""
    while entry:
        if entry.startswith("{sub}"):
            text, entry = text + client, entry[5:]
        else:
            text, entry = text + entry[0], entry[1:]
    return text


def naive(claims: Claims, command: Command) -> str | None:
    """Return the code of the error, as the specification defines it."""
    name, client, sub = command.name, command.client, claims["sub"]
    if claims["inspect"] and name in ("subscriptions", "location"):
        return None
    is_for_it = client[: len(sub) - 1] == sub[:-1] if sub[-1] == "*" else client == sub
    if not is_for_it:
        return "unauthorized"
    if name == "broadcast":
        return None if claims["broadcast"] else "forbidden"
    if name == "endpoints":
        return None if claims["inspect"] else "forbidden"
    if name == "revoke":
        return None if claims["revoke"] else "forbidden"
    if name == "subscribers" and claims["inspect"]:
        return None
    if name in ("publish", "subscribe", "subscribers"):
        name = "presence" if name == "subscribers" else name
        for topic in command.topics:
            by_prefix = [
                entry
                for entry in claims[name]
                if topic[: len(filled(entry, client))] == filled(entry, client)
                and not is_nothing_to(client, entry, claims)
            ]
            by_name = [
                entry
                for entry in claims[f"{name}_topics"]
                if topic == filled(entry, client) and not is_nothing_to(client, entry, claims)
            ]
            if not by_prefix and not by_name:
                return "forbidden"
    return None


_BEGINNINGS = st.sampled_from(("", "u/", "u/", "u.", "{"))
_ENDS = st.sampled_from(("/", "/", ".", "", "}", "a", ".{sub}/", "/{sub}", "{sub}/", "/{"))
_PLAIN = st.text("ab/.{}", max_size=3)
_ENTRIES = st.builds("{}{{sub}}{}".format, _BEGINNINGS, _ENDS) | _PLAIN
_IDS = st.sampled_from(("a", "b", "ab", "a/b", "a.b", "{sub}", "{", "}", "4", "42", "*", "a*", "a\n", "a\x9f"))


@st.composite
def _claims_and_command(draw: st.DrawFn) -> tuple[Claims, Command]:
    """Draw claims and a command, whose topics are mostly close to those in the claims."""
    claims: Claims = {name: draw(st.lists(_ENTRIES, max_size=2)) for name in LISTS}
    claims |= {name: draw(st.booleans()) for name in ("broadcast", "inspect", "revoke")}
    client = draw(_IDS)
    claims["sub"] = draw(st.sampled_from((client, client, "*", "a*", "b")))
    name = draw(st.sampled_from(("publish", "publish", "subscribe", "subscribe", "subscribers", *OTHER_COMMANDS)))
    near = [entry for each in LISTS for entry in claims[each]] or ["u/{sub}/"]
    topics = [
        filled(draw(st.sampled_from(near)), draw(st.sampled_from((client, client, client, "a", "{sub}"))))
        + draw(st.sampled_from(("", "", "/", "x")))
        for _ in range(1 if name in ("publish", "subscribers") else draw(st.integers(1, 3)))
    ]
    return claims, Command(name, client, topics=topics)


@settings(max_examples=1_000)
@given(_claims_and_command())
def test_a_decision_is_that_of_a_naive_reading(drawn: tuple[Claims, Command]) -> None:
    claims, command = drawn
    grant = claimed(claims)
    assert (grant is not None) is is_accepted(claims)
    if grant is not None:
        assert refused(grant, command.name, command.client, *command.topics) == naive(claims, command)
