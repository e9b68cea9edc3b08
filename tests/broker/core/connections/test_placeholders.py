"""`{sub}` in a token's permissions: its meaning, and that no id opens another client's topics. SPEC section 1.5."""

from __future__ import annotations

import itertools
import pickle

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from ingeborg.broker.core.connections.grants import Grant
from ingeborg.broker.core.connections.placeholders import PLACEHOLDER, check_entry, own_entries
from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import Command

#: Names of the lists in the claim.
LISTS = ("publish", "subscribe", "presence", "publish_topics", "subscribe_topics", "presence_topics")


def token(sub: str, *entries: tuple[str, str]) -> Grant:
    """Return the grant of a token with these entries, each after the name of its list."""
    lists = {name: tuple(text for each, text in entries if each == name) for name in LISTS}
    return Grant(
        sub,
        lists["publish"],
        lists["subscribe"],
        broadcast=False,
        expires_at=0.0,
        publish_topics=frozenset(lists["publish_topics"]),
        subscribe_topics=frozenset(lists["subscribe_topics"]),
        presence=lists["presence"],
        presence_topics=frozenset(lists["presence_topics"]),
    ).prepared()


def refusal(grant: Grant, name: str, client: str, topic: str) -> ProtocolError | None:
    try:
        grant.check(Command(name, client, topics=(topic,)))
    except ProtocolError as error:
        return error
    return None


def permitted(grant: Grant, client: str, topic: str) -> bool:
    """Is the client permitted to publish to the topic, to subscribe, or to list its subscribers?"""
    return any(refusal(grant, name, client, topic) is None for name in ("publish", "subscribe", "subscribers"))


@pytest.mark.parametrize("sub", [None, "*"], ids=["one client", "a gateway"])
@pytest.mark.parametrize(
    ("entry", "client", "topic"),
    [
        ("user/{sub}/", "ann", "user/ann/"),
        ("user/{sub}/", "ann", "user/ann/inbox"),
        ("{sub}:", "ann", "ann:x"),
        ("{sub}/{sub}/", "ann", "ann/ann/x"),
        ("user/{sub}/", "{sub}", "user/{sub}/x"),
        ("{sub}/{sub}/", "{sub}", "{sub}/{sub}/x"),  # filled once
        ("user/{sub}/", "{", "user/{/x"),
        ("{{sub}}/", "ann", "{ann}/x"),  # other braces stand for themselves
        ("{}{0}{sub} {SUB}%s", "4", "{}{0}4 {SUB}%s"),
        ("user/{sub}/", "*", "user/*/x"),
        ("user/{sub}/", "gw-*", "user/gw-*/x"),
        ("user/{sub}/", "é", "user/é/x"),
        ("user/{sub}/", "a.b c{}", "user/a.b c{}/x"),
    ],
)
def test_it_stands_for_the_id(entry: str, client: str, topic: str, sub: str | None) -> None:
    grant = token(sub or client, ("subscribe", entry))
    assert refusal(grant, "subscribe", client, topic) is None
    assert refusal(grant, "publish", client, topic) is not None
    assert (refusal(grant, "subscribe", client, entry) is None) is (entry in topic)  # it no longer stands for itself


@pytest.mark.parametrize("sub", [None, "*"], ids=["one client", "a gateway"])
@pytest.mark.parametrize(
    ("entries", "client", "topic", "character"),
    [
        ([("subscribe", "user/{sub}/")], "a/b", "user/a/b/x", "/"),
        ([("subscribe", "user.{sub}.")], "a/b", "user.a/b.x", "/"),
        ([("subscribe", "user.{sub}.")], "a.b", "user.a.b.x", "."),
        ([("subscribe", "{sub}:{sub}-")], "a-b", "a-b:a-b-x", "-"),
        ([("subscribe", "user/{sub}/")], "a\n", "user/a\n/x", "\n"),
        ([("subscribe", "user/{sub}/")], "a\x9f", "user/a\x9f/x", "\x9f"),
        ([("subscribe", "{{sub}}/")], "a}", "{a}}/", "}"),
        ([("subscribe_topics", "user/{sub}")], "a/b", "user/a/b", "/"),
        ([("subscribe_topics", "user/{sub}")], "a\n", "user/a\n", "\n"),
        ([("subscribe_topics", "user/{sub}.in")], "a.b", "user/a.b.in", "."),
        # An entry must not reach into the topics that another entry with the same beginning permits.
        ([("subscribe_topics", "user.{sub}"), ("subscribe", "user.{sub}.")], "a.b", "user.a.b", "."),
        ([("subscribe_topics", "user.{sub}"), ("publish", "user.{sub}.")], "a.b", "user.a.b", "."),
    ],
)
def test_an_id_with_what_ends_ids_is_permitted_nothing_and_told_why(
    entries: list[tuple[str, str]], client: str, topic: str, character: str, sub: str | None
) -> None:
    error = refusal(token(sub or client, *entries), "subscribe", client, topic)
    assert error is not None
    assert error.code == "forbidden"
    assert error.info.endswith(f"its {{sub}} permits nothing to a client whose id contains {character!r}")


@pytest.mark.parametrize("sub", ["ann", "*"], ids=["one client", "a gateway"])
@pytest.mark.parametrize("name", ["presence", "presence_topics"])
def test_in_lists_of_presence_it_permits_to_ask_who_has_subscribed_and_nothing_else(sub: str, name: str) -> None:
    grant = token(sub, (name, "user/{sub}/x"), ("subscribe", "news/{sub}/"))
    assert refusal(grant, "subscribers", "ann", "user/ann/x") is None
    for command, topic in (("subscribers", "news/ann/x"), ("subscribe", "user/ann/x"), ("publish", "user/ann/x")):
        assert refusal(grant, command, "ann", topic) is not None


def test_an_entry_with_another_beginning_has_its_own_characters() -> None:
    grant = token("*", ("subscribe", "mail/{sub}@"), ("subscribe", "user/{sub}/"), ("subscribe_topics", "of/{sub}"))
    for topic, reached in (("user/a@b/x", True), ("of/a@b", True), ("mail/a@b@x", False)):
        assert permitted(grant, "a@b", topic) is reached


def test_of_a_token_some_of_whose_entries_are_for_its_client_the_others_say_why() -> None:
    grant = token("a.b", ("subscribe", "user/{sub}/"), ("subscribe", "user.{sub}."))
    assert refusal(grant, "subscribe", "a.b", "user/a.b/x") is None
    error = refusal(grant, "subscribe", "a.b", "user.a.b.x")
    assert error is not None
    assert error.info.endswith("whose id contains '.'")


def test_a_topic_that_is_not_permitted_anyway_says_nothing_of_ids() -> None:
    for grant in (token("a/b", ("subscribe", "user/{sub}/")), token("*", ("subscribe", "user/{sub}/"))):
        error = refusal(grant, "subscribe", "a/b", "other")
        assert error is not None
        assert error.info == "The token does not permit subscribing to 'other'"


@pytest.mark.parametrize(
    ("entry", "is_prefix", "why"),
    [
        ("user/{sub}", True, r"user/4 matches user/42; write {sub}/, or name the single topic"),
        ("{sub}", True, r"ends in {sub}"),
        ("{sub}/{sub}", True, r"ends in {sub}"),
        ("{sub}{sub}/", True, r"two {sub} in a row"),
        ("a/{sub}{sub}", False, r"two {sub} in a row"),
    ],
)
def test_an_entry_that_would_open_other_clients_topics_is_none(entry: str, is_prefix: bool, why: str) -> None:
    with pytest.raises(ValueError, match=why) as error:
        check_entry(entry, is_prefix)
    for command in ("publish", "subscribe", "presence"):
        name = command if is_prefix else f"{command}_topics"
        with pytest.raises(ValueError, match=why) as named:
            token("ann", (name, entry))
        assert str(named.value) == f"{name}: {error.value}"


def test_an_entry_without_it_is_left_alone() -> None:
    plain = Grant("ann", ("{sub", "sub}"), ("",), False, 0.0, False, frozenset({"{SUB}"}), frozenset())
    assert own_entries(plain.publish, plain.publish_topics, plain.subscribe, plain.subscribe_topics) is None
    assert plain.prepared() is plain


def test_for_one_client_all_is_filled_before_the_first_command() -> None:
    entries = [("publish", "a/{sub}/"), ("publish", "b/"), ("subscribe_topics", "{sub}"), ("subscribe_topics", "c")]
    filled = Grant("ann", ("b/", "a/ann/"), (), False, 0.0, False, frozenset(), frozenset({"ann", "c"}))
    assert token("ann", *entries) == filled
    apart = token("gw-*", *entries)
    assert apart._replace(own=None) == Grant("gw-*", ("b/",), (), False, 0.0, False, frozenset(), frozenset({"c"}))
    assert apart.own is not None
    for grant in (filled, apart, token("a/b", *entries)):  # also as it travels to the reader of large frames
        assert pickle.loads(pickle.dumps(grant)) == grant


# No id opens another client's topics

_FRAGMENTS = st.sampled_from(("", "a", "b", "ab", "/", ".", "a/", "a.", "{", "}"))


@st.composite
def _templates(draw: st.DrawFn) -> tuple[str, str]:
    """Draw an entry with one or several placeholders, after the name of its list."""
    parts = draw(st.lists(_FRAGMENTS, min_size=2, max_size=4))
    name = draw(st.sampled_from(LISTS))
    return name, PLACEHOLDER.join(parts)


_IDS = st.text("ab.{}/", min_size=1, max_size=3) | st.just("{sub}")


def _go_on_where_another_has_it(entries: list[tuple[str, str]]) -> bool:
    """Does one entry continue where another has its placeholder? Such a mixture is the operator's responsibility."""
    beginnings = {text.partition(PLACEHOLDER)[0] for _, text in entries}
    return any(one.startswith(other) for one, other in itertools.permutations(beginnings, 2))


@settings(max_examples=400)
@given(entries=st.lists(_templates(), min_size=1, max_size=3), one=_IDS, other=_IDS)
@example(entries=[("subscribe", "user/{sub}/")], one="a", other="a/b")
@example(entries=[("subscribe", "user.{sub}.")], one="a", other="a.b")
@example(entries=[("subscribe", "a.{sub}."), ("subscribe_topics", "a.{sub}")], one="a", other="a.b")
@example(entries=[("subscribe", "a{sub}."), ("publish", "a{sub}/")], one="a", other="a.b")
@example(entries=[("subscribe", "{sub}a"), ("publish", "{sub}b")], one="a", other="ab")
@example(entries=[("subscribe", "{sub}/"), ("publish", "{sub}{sub}/")], one="aa", other="a")  # not accepted
def test_no_two_clients_are_permitted_the_same_topic(entries: list[tuple[str, str]], one: str, other: str) -> None:
    """The entries have placeholders and come from one claim, in any of its lists. An exception: the text before one's
    first placeholder begins with the same text of another, and is longer."""
    assume(one != other and not _go_on_where_another_has_it(entries))
    try:
        gateway = token("*", *entries)
    except ValueError:
        assume(False)
    # If two entries permit a common topic, one permits the filled form of the other.
    topics = {text.replace(PLACEHOLDER, client) for _, text in entries for client in (one, other)}
    for topic in topics:
        assert not (permitted(gateway, one, topic) and permitted(gateway, other, topic)), topic
        for client in (one, other):
            assert permitted(token(client, *entries), client, topic) is permitted(gateway, client, topic)


def test_an_entry_that_goes_on_where_another_has_it_is_the_operator_s_affair() -> None:
    """SPEC says so: a client that can call itself `log` gets what the others write there."""
    grant = token("*", ("subscribe", "user/{sub}/"), ("publish_topics", "user/log/{sub}"))
    assert refusal(grant, "publish", "ann", "user/log/ann") is None
    assert refusal(grant, "subscribe", "log", "user/log/ann") is None
