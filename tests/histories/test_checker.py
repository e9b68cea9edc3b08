"""The checker on hand-made histories: a correct one passes, it finds each kind of violation, and explains each loss."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .__main__ import check_record
from .allowances import CRASH_S, LATE_S
from .checker import Verdict, check, excerpt
from .record import Event, read, write


class Tape:
    """A record in the making: every event comes a tenth of a second after the one before."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.at = 0.0
        self.store = "lmdb"
        self.about: Event = {}  # additions to the header
        self._ids: dict[int, int] = {}

    def add(self, what: str, **fields: Any) -> Event:
        self.at += 0.1
        event = {"at": round(self.at, 3), "what": what, **fields}
        self.events.append(event)
        return event

    def open(self, client: str, endpoint: str) -> int:
        number = len(self._ids) + 1
        self._ids[number] = 0
        self.add("opened", connection=number, client=client, endpoint=endpoint, life=f"{endpoint}#1")
        return number

    def send(self, connection: int, command: str, **fields: Any) -> int:
        self._ids[connection] += 1
        self.add("sent", connection=connection, id=self._ids[connection], command=command, **fields)
        return self._ids[connection]

    def reply(self, connection: int, id: int, **fields: Any) -> None:
        self.add("reply", connection=connection, id=id, **(fields or {"result": "success"}))

    def refuse(self, connection: int, id: int, error: str, **fields: Any) -> None:
        self.reply(connection, id, error=error, **fields)

    def ask(self, connection: int, command: str, **fields: Any) -> None:
        self.reply(connection, self.send(connection, command, **fields))

    def publish(self, connection: int, payload: str, topic: str = "t", **fields: Any) -> int:
        return self.send(connection, "publish", topic=topic, payload=payload, **{"ack": True, "dedup": True, **fields})

    def published(self, connection: int, payload: str, duplicate: bool = False, **fields: Any) -> None:
        number = self.publish(connection, payload, **fields)
        self.reply(connection, number, result="success", duplicate=duplicate)

    def heard(self, connection: int, payload: str, key: str | None = "t") -> None:
        self.add("heard", connection=connection, key=key, payload=payload)

    def told(self, connection: int, **about: Any) -> int:
        """Record a position or a gap; return its number."""
        return int(self.add("told", connection=connection, number=len(self.events), **about)["number"])

    def closed(self, connection: int, by: str = "endpoint", code: int | None = None) -> None:
        self.add("closed", connection=connection, by=by, code=code)

    def look(self, endpoint: str, *, lapses: float = 0.0, joined: bool = True, peers: str = "ab") -> None:
        others = sorted(set(peers) - {endpoint})
        about = {"joined": joined, "lapses": lapses, "peers": others}
        self.add("look", endpoint=endpoint, life=f"{endpoint}#1", answered=True, **about)

    def pass_time(self, seconds: float) -> None:
        self.at += seconds

    def verdict(self) -> Verdict:
        """Judge it a second after the last event, when the history has ended."""
        self.pass_time(2.0)
        return check(
            [
                {"at": 0.0, "what": "history", "seed": 0, "store": self.store, **self.about},
                *self.events,
                {"at": self.at, "what": "whole", "yes": True},
            ]
        )


class Two:
    """Ann at a and bob at b listen and are subscribed to t, in which nobody else takes part; pat publishes at a."""

    def __init__(self) -> None:
        self.tape = Tape()
        self.ann = self.listening("ann", "a")
        self.bob = self.listening("bob", "b")
        self.pat = self.tape.open("pat", "a")
        self.tape.ask(self.ann, "subscribe", topic=["t"])
        self.tape.ask(self.bob, "subscribe", topic=["t"])

    def listening(self, client: str, endpoint: str) -> int:
        connection = self.tape.open(client, endpoint)
        self.tape.ask(connection, "listen")
        return connection

    def all_hear(self, payload: str) -> None:
        self.tape.heard(self.ann, payload)
        self.tape.heard(self.bob, payload)


@pytest.fixture
def two() -> Two:
    return Two()


def sections(verdict: Verdict) -> list[str]:
    return [violation.section for violation in verdict.violations]


def test_a_correct_history_passes(two: Two) -> None:
    tape = two.tape
    tape.published(two.pat, "m1")
    two.all_hear("m1")
    tape.publish(two.pat, "m2", ack=False)
    two.all_hear("m2")
    tape.published(two.pat, "m1", duplicate=True)
    tape.ask(two.bob, "unsubscribe", topic=["t"])
    tape.published(two.pat, "m3")
    tape.heard(two.ann, "m3")
    number = tape.send(two.pat, "broadcast", payload="b1", ack=True)
    tape.heard(two.ann, "b1", key=None)
    tape.heard(two.bob, "b1", key=None)
    tape.reply(two.pat, number, result="success", duplicate=False)
    tape.reply(two.ann, tape.send(two.ann, "subscriptions"), result="success", topic=["t"])
    tape.reply(two.bob, tape.send(two.bob, "subscriptions"), result="success", topic=[])
    tape.reply(two.bob, tape.send(two.bob, "location"), result="success", client_id="bob", endpoint="b")
    verdict = tape.verdict()
    assert not verdict.violations, verdict.violations
    assert verdict.obligations == verdict.deliveries == 7
    assert not +verdict.losses


# Violations. Each: the events after Two, and the section that forbids them.


def lost(two: Two) -> None:
    two.tape.published(two.pat, "m1")
    two.tape.heard(two.ann, "m1")  # delivered to one only, but reported as a success


def lost_without_ack(two: Two) -> None:
    two.tape.publish(two.pat, "m1", ack=False)
    two.tape.heard(two.ann, "m1")
    two.tape.published(two.pat, "m2")  # the reply implies that the message before it had its outcome
    two.all_hear("m2")


def lost_in_a_crash_of_another(two: Two) -> None:
    two.tape.add("life", endpoint="c", life="c#1", phase="killed")
    lost(two)


def lost_broadcast(two: Two) -> None:
    number = two.tape.send(two.pat, "broadcast", payload="b1", ack=True)
    two.tape.heard(two.ann, "b1", key=None)
    two.tape.reply(two.pat, number, result="success", duplicate=False)


def lost_while_moving_in_peace(two: Two) -> None:
    number = two.tape.publish(two.pat, "m1")
    other = two.tape.open("bob", "a")
    two.tape.ask(other, "listen")
    two.tape.closed(two.bob, code=4001)
    two.tape.heard(two.ann, "m1")
    two.tape.reply(two.pat, number, result="success", duplicate=False)


def lost_where_it_is_said_to_have_got(two: Two) -> None:
    number = two.tape.publish(two.pat, "m1")
    two.tape.heard(two.ann, "m1")
    two.tape.refuse(two.pat, number, "partial", delivered=["a", "b"], failed=["c"])


def repetition_lost_that_was_none(two: Two) -> None:
    number = two.tape.publish(two.pat, "m1")
    two.tape.refuse(two.pat, number, "store_unavailable")
    two.tape.published(two.pat, "m1", duplicate=False)
    two.tape.heard(two.ann, "m1")


def twice(two: Two) -> None:
    two.tape.published(two.pat, "m1")
    two.all_hear("m1")
    two.tape.heard(two.bob, "m1")


def twice_of_two_publishes(two: Two) -> None:
    two.tape.published(two.pat, "m1")
    two.tape.published(two.pat, "m1", duplicate=True)
    two.all_hear("m1")
    two.tape.heard(two.bob, "m1")


def twice_in_a_crash(two: Two) -> None:
    two.tape.add("life", endpoint="c", life="c#1", phase="killed")
    twice(two)


def out_of_order(two: Two) -> None:
    two.tape.published(two.pat, "m1")
    two.tape.published(two.pat, "m2")
    two.all_hear("m1")
    two.tape.heard(two.ann, "m2")
    two.tape.events[-2]["payload"] = "m2"  # bob's m1
    two.tape.heard(two.bob, "m1")


def to_who_unsubscribed(two: Two) -> None:
    two.tape.ask(two.bob, "unsubscribe", topic=["t"])
    two.tape.published(two.pat, "m1")
    two.all_hear("m1")


def to_who_never_subscribed(two: Two) -> None:
    two.tape.published(two.pat, "m1", topic="other")
    two.tape.heard(two.bob, "m1", key="other")


def what_nobody_published(two: Two) -> None:
    two.tape.heard(two.ann, "m1")


def another_topics_payload(two: Two) -> None:
    two.tape.published(two.pat, "m1", topic="other")
    two.tape.heard(two.ann, "m1")


def what_was_refused(two: Two) -> None:
    number = two.tape.publish(two.pat, "m1", timestamp="no number")
    two.tape.refuse(two.pat, number, "bad_state")
    two.tape.heard(two.ann, "m1")


def where_it_does_not_listen(two: Two) -> None:
    connection = two.tape.open("ann", "b")
    two.tape.published(two.pat, "m1")
    two.all_hear("m1")
    two.tape.events[-2]["connection"] = connection


def where_it_was_before(two: Two) -> None:
    two.listening("bob", "a")
    two.tape.published(two.pat, "m1")
    two.all_hear("m1")


def subscription_lost(two: Two) -> None:
    two.tape.reply(two.ann, two.tape.send(two.ann, "subscriptions"), result="success", topic=[])


def refused_and_done_all_the_same(two: Two) -> None:
    two.tape.refuse(two.ann, two.tape.send(two.ann, "subscribe", topic=["u", ""]), "bad_topic")
    two.tape.reply(two.ann, two.tape.send(two.ann, "subscriptions"), result="success", topic=["t", "u"])


def subscriber_lost(two: Two) -> None:
    rows = [{"client_id": "ann", "online": True, "endpoint": "a"}]
    asked = two.tape.send(two.ann, "subscribers", topic="t", limit=1000)
    two.tape.reply(two.ann, asked, result="success", topic="t", count=1, subscribers=rows, cursor=None)


def listens_elsewhere_by_its_location(two: Two) -> None:
    two.tape.reply(two.bob, two.tape.send(two.bob, "location"), result="success", client_id="bob", endpoint="a")


def unsubscription_lost(two: Two) -> None:
    two.tape.ask(two.ann, "unsubscribe", topic=["t"])
    two.tape.reply(two.ann, two.tape.send(two.ann, "subscriptions"), result="success", topic=["t"])


def no_reply(two: Two) -> None:
    two.tape.send(two.ann, "subscribe", topic=["u"])


def replies_out_of_order(two: Two) -> None:
    first = two.tape.send(two.ann, "subscribe", topic=["u"])
    second = two.tape.send(two.ann, "subscribe", topic=["v"])
    two.tape.reply(two.ann, second)
    two.tape.reply(two.ann, first)


def a_reply_too_many(two: Two) -> None:
    two.tape.reply(two.ann, 1)


def replaced_by_nobody(two: Two) -> None:
    two.tape.closed(two.ann, code=4001)


VIOLATIONS: dict[Callable[[Two], None], set[str]] = {
    lost: {"8.6"},
    lost_without_ack: {"8.2"},
    lost_in_a_crash_of_another: {"8.3"},
    lost_broadcast: {"8.6"},
    lost_while_moving_in_peace: {"8.6"},
    lost_where_it_is_said_to_have_got: {"8.6"},
    repetition_lost_that_was_none: {"8.6"},
    twice: {"7"},
    twice_of_two_publishes: {"7"},
    twice_in_a_crash: {"8.3"},
    out_of_order: {"8.5"},
    to_who_unsubscribed: {"2.2"},
    to_who_never_subscribed: {"2.2"},
    what_nobody_published: {"3"},
    another_topics_payload: {"3"},
    what_was_refused: {"5"},
    where_it_does_not_listen: {"3"},
    where_it_was_before: {"2.2"},
    subscription_lost: {"8.1"},
    refused_and_done_all_the_same: {"5"},
    subscriber_lost: {"8.1"},
    listens_elsewhere_by_its_location: {"2.4"},
    unsubscription_lost: {"2.2"},
    no_reply: {"1.3"},
    replies_out_of_order: {"1.3"},
    a_reply_too_many: {"1.3"},
    replaced_by_nobody: {"6"},
}


@pytest.mark.parametrize("happens", VIOLATIONS, ids=lambda happens: happens.__name__)
def test_a_violation_is_found(happens: Callable[[Two], None]) -> None:
    two = Two()
    happens(two)
    assert set(sections(two.tape.verdict())) == VIOLATIONS[happens]


def test_order_is_for_subscribers_that_stay(two: Two) -> None:
    """A message sent before the move may go to the former place first."""
    first, second = two.tape.publish(two.pat, "m1"), two.tape.publish(two.pat, "m2")
    moved = two.listening("bob", "a")
    two.tape.closed(two.bob, code=4001)
    for payload in ("m2", "m1"):
        two.tape.heard(moved, payload)
        two.tape.heard(two.ann, "m1" if payload == "m2" else "m2")
    for number in (first, second):
        two.tape.reply(two.pat, number, result="success", duplicate=False)
    assert not two.tape.verdict().violations


def test_endpoints_that_do_not_become_whole_are_a_violation(two: Two) -> None:
    history = [{"at": 0.0, "what": "history", "seed": 0}, *two.tape.events, {"at": 9.0, "what": "whole", "yes": False}]
    assert sections(check(history)) == ["8.9"]


# Explained losses, with their causes.


def publisher_told(two: Two) -> None:
    two.tape.refuse(two.pat, two.tape.publish(two.pat, "m1"), "peer_unavailable")


def publisher_cut_off(two: Two) -> None:
    two.tape.publish(two.pat, "m1")
    two.tape.closed(two.pat)


def subscription_under_way(two: Two) -> None:
    number = two.tape.send(two.bob, "unsubscribe", topic=["t"])
    two.tape.published(two.pat, "m1")
    two.tape.reply(two.bob, number)


def subscription_unanswered(two: Two) -> None:
    """The endpoint did not say whether it was done; nor does another one of the client's, until it must be over."""
    two.tape.refuse(two.bob, two.tape.send(two.bob, "unsubscribe", topic=["t"]), "store_unavailable")
    two.tape.ask(two.bob, "subscribe", topic=["t"])
    two.tape.published(two.pat, "m1")


def not_listening(two: Two) -> None:
    two.tape.closed(two.bob)
    two.tape.published(two.pat, "m1")


def connection_ended(two: Two) -> None:
    number = two.tape.publish(two.pat, "m1")
    two.tape.closed(two.bob)
    two.tape.reply(two.pat, number, result="success", duplicate=False)


def moving_in_a_crash(two: Two) -> None:
    two.tape.add("life", endpoint="c", life="c#1", phase="killed")
    number = two.tape.publish(two.pat, "m1")
    other = two.tape.open("bob", "a")
    two.tape.send(other, "listen")
    two.tape.reply(two.pat, number, result="success", duplicate=False)
    two.tape.reply(other, 1)


def left_before_its_former_connection_was_closed(two: Two) -> None:
    """It moves, and leaves at once: its former connection is still open, but it does not listen there."""
    two.tape.closed(two.listening("bob", "a"), by="client")
    number = two.tape.publish(two.pat, "m1")
    two.tape.closed(two.bob, code=4001)
    back = two.tape.open("bob", "a")
    asked = two.tape.send(back, "listen")
    two.tape.reply(two.pat, number, result="success", duplicate=False)
    two.tape.reply(back, asked)


def taken_for_dead(two: Two) -> None:
    for endpoint in "ab":
        two.tape.look(endpoint)
    two.tape.published(two.pat, "m1")
    two.tape.look("a", peers="a")
    two.tape.look("b", lapses=1, joined=False)
    two.tape.look("b", lapses=1)
    two.tape.look("a")
    two.tape.look("b", lapses=1)


def at_an_endpoint_that_ends_and_is_not_reached(two: Two) -> None:
    number = two.tape.publish(two.pat, "m1")
    two.tape.add("fault", phase="begins", kind="cut", where="c", other="b", lasts_s=5.0)
    two.tape.add("life", endpoint="b", life="b#1", phase="stopping")
    two.tape.reply(two.pat, number, result="success", duplicate=False)


EXPLAINED: dict[Callable[[Two], None], dict[str, int]] = {
    publisher_told: {"its publisher was told": 2},
    publisher_cut_off: {"its publisher was cut off": 2},
    subscription_under_way: {"subscription in doubt": 1},
    subscription_unanswered: {"subscription in doubt": 1},
    not_listening: {"its connection ended": 1},
    connection_ended: {"its connection ended": 1},
    moving_in_a_crash: {"was moving": 1},
    left_before_its_former_connection_was_closed: {"was moving": 1},
    taken_for_dead: {"its endpoint was taken for dead": 1},
    at_an_endpoint_that_ends_and_is_not_reached: {"its endpoint was taken for dead": 1},
}


@pytest.mark.parametrize("happens", EXPLAINED, ids=lambda happens: happens.__name__)
def test_a_loss_is_explained(happens: Callable[[Two], None]) -> None:
    two = Two()
    happens(two)
    if sum(EXPLAINED[happens].values()) == 1:
        two.tape.heard(two.ann, "m1")
    verdict = two.tape.verdict()
    assert not [violation for violation in verdict.violations if violation.section not in ("1.3", "8.7")]
    assert dict(+verdict.losses) == EXPLAINED[happens]


def test_an_endpoint_that_ends_and_is_reached_by_all_loses_nothing(two: Two) -> None:
    number = two.tape.publish(two.pat, "m1")
    two.tape.add("life", endpoint="b", life="b#1", phase="stopping")
    two.tape.heard(two.ann, "m1")
    two.tape.reply(two.pat, number, result="success", duplicate=False)
    assert sections(two.tape.verdict()) == ["8.6"]


def test_what_was_taken_for_dead_gets_everything_again_afterwards(two: Two) -> None:
    taken_for_dead(two)
    two.tape.heard(two.ann, "m1")
    two.tape.published(two.pat, "m2")
    two.tape.heard(two.ann, "m2")
    assert "8.6" in {section[:3] for section in sections(two.tape.verdict())}


def test_a_change_that_was_never_answered_is_over_some_time(two: Two) -> None:
    two.tape.refuse(two.bob, two.tape.send(two.bob, "unsubscribe", topic=["t"]), "store_unavailable")
    two.tape.pass_time(LATE_S)
    two.tape.ask(two.bob, "subscribe", topic=["t"])
    lost(two)
    assert sections(two.tape.verdict()) == ["8.6"]


def test_after_a_crash_a_payload_published_twice_may_come_twice_and_once_its_traces_are_gone_not(two: Two) -> None:
    tape = two.tape
    tape.add("life", endpoint="c", life="c#1", phase="killed")
    for duplicate in (False, False):
        tape.published(two.pat, "m1", duplicate=duplicate)
        two.all_hear("m1")
    verdict = tape.verdict()
    assert not verdict.violations
    assert verdict.allowed_twice == 2
    tape.pass_time(CRASH_S)
    for duplicate in (False, False):
        tape.published(two.pat, "m2", duplicate=duplicate)
        two.all_hear("m2")
    # To each of the two, with the publisher's reply.
    assert sections(tape.verdict()) == ["7", "7", "7"]


def test_who_moves_when_an_endpoint_ends_that_does_not_reach_another_may_get_a_message_at_both_places(two: Two) -> None:
    def story(*, cut: bool, moves: bool = True) -> list[str]:
        two = Two()
        tape = two.tape
        if cut:
            tape.add("fault", phase="begins", kind="cut", where="c", other="b", lasts_s=5.0)
        tape.add("life", endpoint="c", life="c#1", phase="stopping")
        sent = tape.publish(two.pat, "m1", ack=True)
        two.all_hear("m1")
        if moves:
            again = two.listening("ann", "b")
            tape.closed(two.ann, code=4001)
        tape.heard(again if moves else two.ann, "m1")
        tape.reply(two.pat, sent, result="success", duplicate=False)
        return sections(tape.verdict())

    assert story(cut=True) == []
    assert story(cut=False) == ["7"]
    assert story(cut=True, moves=False) == ["7"]


def test_without_dedup_every_publish_comes(two: Two) -> None:
    for _ in range(2):
        two.tape.published(two.pat, "m1", dedup=False)
        two.tape.heard(two.ann, "m1")
    two.tape.heard(two.bob, "m1")
    (violation,) = two.tape.verdict().violations
    assert "bob got 1 instead of 2 copies of m1" in violation.text


def test_an_unsubscription_may_be_undone_by_a_cut_store_and_by_nothing_else(two: Two) -> None:
    to_who_unsubscribed(two)
    two.tape.events.insert(0, {"at": 0.0, "what": "fault", "kind": "riak cut", "phase": "begins"})
    verdict = two.tape.verdict()
    assert sections(verdict) == ["2.2"]  # on LMDB
    two.tape.store = "riak"
    verdict = two.tape.verdict()
    assert not verdict.violations
    assert verdict.undone == 1


# The endpoints' own counters.


def counters(tape: Tape, life: str, drops: dict[str, float] | None = None, **values: float) -> None:
    names = {f"{name}_total": value for name, value in values.items()}
    tape.add("counters", endpoint=life[0], life=life, phase="end", values=names, drops=drops or {}, errors={})


def counted(two: Two, **other: float) -> Verdict:
    two.tape.published(two.pat, "m1")
    two.all_hear("m1")
    values: dict[str, Any] = {"publishes_received": 1, "messages_delivered": 1, **other}
    counters(two.tape, "a#1", **values)
    counters(two.tape, "b#1", messages_delivered=1)
    return two.tape.verdict()


def test_sums_that_agree_pass(two: Two) -> None:
    assert not counted(two).violations


@pytest.mark.parametrize("other", ["messages_delivered", "publishes_received", "duplicates_dropped", "turns_failed"])
def test_sums_that_do_not_agree_are_a_violation(two: Two, other: str) -> None:
    assert len(counted(two, **{other: 7}).violations) == 1


def test_what_is_asked_again_around_a_crash_is_counted_and_nobody_is_told() -> None:
    for around_a_crash, violations in ((True, 0), (False, 1)):
        two = Two()
        for endpoint in "ab":
            two.tape.look(endpoint)
        two.tape.publish(two.pat, "m1", ack=False)
        two.tape.look("b", lapses=1 if around_a_crash else 0)
        two.all_hear("m1")
        two.tape.published(two.pat, "m2")
        two.all_hear("m2")
        counters(two.tape, "a#1", publishes_received=2, messages_delivered=2, duplicates_dropped=1)
        counters(two.tape, "b#1", messages_delivered=2)
        assert len(two.tape.verdict().violations) == violations


def test_a_message_that_was_put_into_an_outbox_and_not_read_is_missed(two: Two) -> None:
    two.tape.published(two.pat, "m1")
    two.tape.heard(two.ann, "m1")
    counters(two.tape, "a#1", publishes_received=1, messages_delivered=1)
    counters(two.tape, "b#1", messages_delivered=1)
    assert sorted(sections(two.tape.verdict())) == ["1.2", "8.6"]


def test_a_loss_at_an_endpoint_taken_for_dead_has_to_be_counted_as_a_drop() -> None:
    for drops, expected in (({}, ["8.7"]), ({"endpoint_gone": 1.0}, [])):
        two = Two()
        taken_for_dead(two)
        two.tape.heard(two.ann, "m1")
        counters(two.tape, "a#1", drops, publishes_received=1, messages_delivered=1)
        counters(two.tape, "b#1")
        assert sections(two.tape.verdict()) == expected


# Clients that recover.


class Rae(Two):
    """She recovers, is subscribed to t, and has received a position with the number ``saved``."""

    def __init__(self) -> None:
        super().__init__()
        tape = self.tape
        tape.about = {"readers": ["rae"], "faults": []}
        self.line = tape.open("rae", "a")
        tape.reply(self.line, tape.send(self.line, "listen", recover=True), result="success", recovering=False)
        tape.ask(self.line, "subscribe", topic=["t"])
        self.saved = tape.told(self.line, position="p1")

    def keeps(self, payload: str, **reply: Any) -> None:
        """Pat publishes a message to retain; the others get it."""
        said = {"result": "success", "duplicate": False, "kept": True, **reply}
        self.tape.reply(self.pat, self.tape.publish(self.pat, payload, keep_s=60), **said)
        self.all_hear(payload)

    def hears(self, *payloads: str) -> None:
        for payload in payloads:
            self.tape.add("heard", connection=self.line, key="t", payload=payload, mid=f"mid of {payload}")

    def away(self) -> None:
        self.tape.closed(self.line)

    def returns(self, number: int) -> None:
        """She listens with the position of that number."""
        tape = self.tape
        position = next(event["position"] for event in tape.events if event.get("number") == number)
        self.line = tape.open("rae", "b")
        tape.add("back", connection=self.line, number=number)
        asked = tape.send(self.line, "listen", recover=position)
        tape.reply(self.line, asked, result="success", recovering=True)

    def recovered(self, position: str = "p9") -> int:
        return self.tape.told(self.line, position=position, recovered=True)

    def asks(self, *payloads: str) -> None:
        """Request all retained messages of t."""
        of = [{"broadcast": payload, "mid": f"mid of {payload}"} for payload in payloads]
        asked = self.tape.send(self.line, "history", topic="t", last=1000)
        self.tape.reply(self.line, asked, result="success", publications=of, mid=None, more=False)


def test_a_correct_history_of_a_client_that_recovers_passes() -> None:
    rae = Rae()
    rae.keeps("m1")
    rae.hears("m1")
    rae.away()
    rae.keeps("m2")
    rae.keeps("m3")
    rae.returns(rae.saved)
    rae.hears("m1", "m2")
    within = rae.tape.told(rae.line, position="p2")
    rae.hears("m3")
    rae.recovered()
    rae.asks("m1", "m2", "m3")
    rae.returns(within)
    rae.hears("m3")
    rae.recovered()
    verdict = rae.tape.verdict()
    assert not verdict.violations, verdict.violations
    found = verdict.recovered
    assert (found.saved, found.back, found.owed, found.asked) == (4, 2, 3, 3)


def a_kept_message_does_not_come_back(rae: Rae) -> None:
    rae.keeps("m1")
    rae.returns(rae.saved)
    rae.recovered()


def a_kept_message_comes_back_only_the_second_time(rae: Rae) -> None:
    rae.keeps("m1")
    rae.returns(rae.saved)
    rae.recovered()
    rae.returns(rae.saved)
    rae.hears("m1")
    rae.recovered()


def a_position_covers_what_was_not_sent(rae: Rae) -> None:
    """Within a recovery: the position comes before the second of two messages, and covers both."""
    rae.away()
    rae.keeps("m1")
    rae.keeps("m2")
    rae.returns(rae.saved)
    rae.hears("m1")
    within = rae.tape.told(rae.line, position="p2")
    rae.hears("m2")
    rae.recovered()
    rae.away()
    rae.returns(within)
    rae.recovered()


def what_is_published_behind_a_recovery_does_not_come(rae: Rae) -> None:
    rae.returns(rae.saved)
    rae.recovered()
    rae.keeps("m1")


def a_gap_of_another_topic(rae: Rae) -> None:
    rae.tape.add("life", endpoint="c", life="c#1", phase="killed")
    rae.keeps("m1")
    rae.returns(rae.saved)
    rae.tape.told(rae.line, gap={"topics": ["u"], "slots": [1]})
    rae.recovered()


def a_gap_without_a_cause(rae: Rae) -> None:
    rae.keeps("m1")
    rae.returns(rae.saved)
    rae.tape.told(rae.line, gap={"topics": ["t"]})
    rae.recovered()


def a_gap_though_a_replica_had_it(rae: Rae) -> None:
    rae.tape.about |= {"replication": True, "faults": ["kill"]}
    rae.tape.add("life", endpoint="c", life="c#1", phase="killed")
    a_gap_without_a_cause(rae)


def a_gap_though_a_journal_had_it(rae: Rae) -> None:
    rae.tape.about["history"] = "store"
    rae.tape.add("life", endpoint="c", life="c#1", phase="killed")
    a_gap_without_a_cause(rae)


def a_subscribe_that_is_not_whole_without_a_cause(rae: Rae) -> None:
    asked = rae.tape.send(rae.line, "subscribe", topic=["u"], since="p1")
    rae.tape.reply(rae.line, asked, result="success", recovered=False)


def no_word_of_recovering(rae: Rae) -> None:
    rae.returns(rae.saved)
    rae.tape.events[-1]["recovering"] = False
    rae.recovered()


def what_she_is_not_subscribed_to_comes_back(rae: Rae) -> None:
    number = rae.tape.publish(rae.pat, "m1", topic="u", keep_s=60)
    rae.tape.reply(rae.pat, number, result="success", duplicate=False, kept=True)
    rae.returns(rae.saved)
    rae.tape.add("heard", connection=rae.line, key="u", payload="m1", mid="1")
    rae.recovered()


def a_message_without_its_mid(rae: Rae) -> None:
    rae.keeps("m1")
    rae.tape.heard(rae.line, "m1")


def a_position_for_who_does_not_recover(rae: Rae) -> None:
    rae.tape.told(rae.ann, position="p2")


def not_kept_though_it_is_no_duplicate(rae: Rae) -> None:
    rae.keeps("m1", kept=False)
    rae.hears("m1")


def a_duplicate_that_is_kept(rae: Rae) -> None:
    rae.keeps("m1")
    rae.hears("m1")
    number = rae.tape.publish(rae.pat, "m1", keep_s=60)
    rae.tape.reply(rae.pat, number, result="success", duplicate=True, kept=True)


def kept_though_nobody_asked_for_it(rae: Rae) -> None:
    rae.tape.reply(rae.pat, rae.tape.publish(rae.pat, "m1"), result="success", duplicate=False, kept=True)
    rae.all_hear("m1")


def kept_and_not_in_the_history(rae: Rae) -> None:
    rae.keeps("m1")
    rae.hears("m1")
    rae.asks()


def kept_twice_and_once_in_the_history(rae: Rae) -> None:
    rae.tape.add("life", endpoint="c", life="c#1", phase="killed")
    rae.tape.about |= {"replication": True, "faults": ["kill"]}
    for _ in range(2):
        number = rae.tape.publish(rae.pat, "m1", dedup=False, keep_s=60)
        rae.all_hear("m1")
        rae.hears("m1")
        rae.tape.reply(rae.pat, number, result="success", duplicate=False, kept=True)
    rae.asks("m1")


def twice_in_the_history(rae: Rae) -> None:
    rae.keeps("m1")
    rae.hears("m1")
    rae.asks("m1", "m1")


def a_page_that_leaves_one_out(rae: Rae) -> None:
    for payload in ("m1", "m2", "m3"):
        rae.keeps(payload)
        rae.hears(payload)
    rae.asks("m1", "m2", "m3")
    asked = rae.tape.send(rae.line, "history", topic="t", since="mid of m1", limit=1)
    of = [{"broadcast": "m3", "mid": "mid of m3"}]
    rae.tape.reply(rae.line, asked, result="success", publications=of, mid="mid of m3", more=False, recovered=True)


def another_topics_in_the_history(rae: Rae) -> None:
    number = rae.tape.publish(rae.pat, "m1", topic="u")
    rae.tape.reply(rae.pat, number, result="success", duplicate=False)
    rae.asks("m1")


def a_first_try_is_called_a_duplicate_after_a_crash(rae: Rae) -> None:
    """Section 7: a publish is a duplicate only if somebody sent the same before."""
    rae.tape.add("life", endpoint="c", life="c#1", phase="killed")
    rae.keeps("m1", duplicate=True, kept=False)
    rae.hears("m1")


FORGED: dict[Callable[[Rae], None], set[str]] = {
    a_kept_message_does_not_come_back: {"8.10"},
    a_kept_message_comes_back_only_the_second_time: {"8.10"},
    a_position_covers_what_was_not_sent: {"8.10"},
    what_is_published_behind_a_recovery_does_not_come: {"8.10"},
    a_gap_of_another_topic: {"8.10"},
    a_gap_without_a_cause: {"8.10"},
    a_gap_though_a_replica_had_it: {"8.10"},
    a_gap_though_a_journal_had_it: {"8.10"},
    a_subscribe_that_is_not_whole_without_a_cause: {"8.10"},
    no_word_of_recovering: {"8.10"},
    what_she_is_not_subscribed_to_comes_back: {"2.2"},
    a_message_without_its_mid: {"8.10"},
    a_position_for_who_does_not_recover: {"1.3"},
    not_kept_though_it_is_no_duplicate: {"2.3"},
    a_duplicate_that_is_kept: {"2.3"},
    kept_though_nobody_asked_for_it: {"2.3"},
    kept_and_not_in_the_history: {"2.7"},
    kept_twice_and_once_in_the_history: {"2.7"},
    twice_in_the_history: {"2.7"},
    a_page_that_leaves_one_out: {"2.7"},
    another_topics_in_the_history: {"2.7"},
    a_first_try_is_called_a_duplicate_after_a_crash: {"7"},
}


@pytest.mark.parametrize("happens", FORGED, ids=lambda happens: happens.__name__)
def test_a_forged_record_of_a_client_that_recovers_is_found(happens: Callable[[Rae], None]) -> None:
    rae = Rae()
    happens(rae)
    assert set(sections(rae.tape.verdict())) == FORGED[happens]


# Pages with event streams.


class Eve(Rae):
    """A page with an event stream to t, which has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.stream = 0
        self.asks_for_events(None)
        self.tape.add("streamed", phase="begun", client="eve")

    def asks_for_events(self, since: float | None, status: int = 200) -> None:
        self.stream += 1
        about = {"client": "eve", "endpoint": "a", "life": "a#1", "topics": ["t"], "since": since}
        self.tape.add("streamed", stream=self.stream, phase="asked", **about)
        self.tape.add("streamed", stream=self.stream, phase="answered", status=status)

    def keeps(self, payload: str, **reply: Any) -> None:
        super().keeps(payload, **reply)
        self.hears(payload)

    def event(self, kind: str, data: Any) -> None:
        self.tape.add("event", stream=self.stream, kind=kind, data=data)

    def gets(self, *payloads: str) -> None:
        for payload in payloads:
            self.event("message", {"key": "t", "broadcast": payload, "mid": f"mid of {payload}"})


def test_a_correct_history_of_a_page_passes() -> None:
    eve = Eve()
    eve.keeps("m1")
    eve.gets("m1")
    eve.keeps("m2")
    eve.asks_for_events(0.1)
    eve.gets("m1", "m2")
    verdict = eve.tape.verdict()
    assert not verdict.violations, verdict.violations
    assert (verdict.streamed.back, verdict.streamed.messages, verdict.streamed.owed) == (1, 3, 2)


def test_only_an_endpoint_that_shuts_down_may_refuse_a_page() -> None:
    eve = Eve()
    eve.tape.add("life", endpoint="a", life="a#1", phase="stopping")
    eve.asks_for_events(0.1, status=503)
    assert not eve.tape.verdict().violations
    eve.asks_for_events(0.1, status=400)
    assert set(sections(eve.tape.verdict())) == {"8.10"}


def a_page_misses_a_message(eve: Eve) -> None:
    eve.keeps("m1")
    eve.asks_for_events(0.1)


def a_page_is_told_a_gap_without_a_cause(eve: Eve) -> None:
    eve.asks_for_events(0.1)
    eve.event("gap", None)


def a_gap_of_another_topic_excuses_nothing(eve: Eve) -> None:
    eve.keeps("m1")
    eve.tape.add("life", endpoint="c", life="c#1", phase="killed")
    eve.asks_for_events(0.1)
    eve.event("gap", {"topics": ["u"]})


def a_page_gets_what_nobody_published(eve: Eve) -> None:
    eve.gets("m9")


def a_page_is_refused(eve: Eve) -> None:
    eve.asks_for_events(0.1, status=503)


def a_page_is_sent_away(eve: Eve) -> None:
    eve.event("closed", {"code": 4001})


@pytest.mark.parametrize(
    "happens",
    [
        a_page_misses_a_message,
        a_page_is_told_a_gap_without_a_cause,
        a_gap_of_another_topic_excuses_nothing,
        a_page_gets_what_nobody_published,
        a_page_is_refused,
        a_page_is_sent_away,
    ],
    ids=lambda happens: happens.__name__,
)
def test_a_forged_record_of_a_page_is_found(happens: Callable[[Eve], None]) -> None:
    eve = Eve()
    happens(eve)
    assert set(sections(eve.tape.verdict())) == {"8.10"}


@pytest.mark.parametrize("about", [{}, {"replication": True, "faults": ["kill"]}, {"history": "store"}])
def test_after_a_crash_a_gap_has_a_cause_and_what_it_names_may_be_lacking(about: dict[str, Any]) -> None:
    """After a change of settings a home may have had neither a replica nor a journal."""
    rae = Rae()
    rae.tape.about |= {**about, "changed": bool(about)}
    rae.tape.add("life", endpoint="c", life="c#1", phase="killed")
    rae.keeps("m1")
    rae.asks()
    rae.returns(rae.saved)
    rae.tape.told(rae.line, gap={"topics": ["t"]})
    rae.recovered()
    assert not rae.tape.verdict().violations


# The record.


def test_a_record_is_checked_again_from_its_file(two: Two, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lost(two)
    events = [*two.tape.events, {"at": 9.0, "what": "whole", "yes": True}]
    path = tmp_path / "records" / "one.jsonl"
    write(events, path)
    assert read(path) == events
    assert check_record(path) == 1
    told = capsys.readouterr().out
    assert "section 8.6: bob never got m1 of t, which was accepted at a" in told
    path.write_text("{}\n")
    assert check_record(path) == 2


def test_the_excerpt_has_what_matters_in_order(two: Two) -> None:
    two.tape.published(two.pat, "m0")
    two.all_hear("m0")
    lost(two)
    (violation,) = two.tape.verdict().violations
    chosen = excerpt(two.tape.events, violation)
    assert [event["at"] for event in chosen] == sorted(event["at"] for event in chosen)
    assert {event.get("payload") for event in chosen} == {None, "m1"}
    assert {event.get("client") for event in chosen} == {None, "bob"}
