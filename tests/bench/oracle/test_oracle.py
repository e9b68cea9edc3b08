"""The oracle of SPEC section 8: against a naive model on small random histories, and with each promise broken once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.bench.oracle import rules, wishes
from ingeborg.bench.oracle.facts import (
    FOREVER,
    By,
    Change,
    Copy,
    Disturbance,
    Facts,
    Filtered,
    Kind,
    Line,
    Listed,
    Message,
    Note,
    Outcome,
    Place,
    Send,
    Terms,
)
from ingeborg.bench.oracle.judge import Judge, Judged
from ingeborg.bench.oracle.owing import owed
from ingeborg.bench.oracle.verdict import Again, Broken, Cause, Violation
from ingeborg.bench.oracle.wishes import Wish
from tests.bench import worlds

LATE = 2.0
END = 8

#: While endpoints change, no move certainly goes well: a message is due only at a known place.
PEOPLE_MOVE_BADLY = Disturbance(-FOREVER, FOREVER, Kind.CHANGE)

# -- Against the naive model


@st.composite
def spans(draw: st.DrawFn) -> tuple[int, float]:
    """Draw the times of a command and of its reply, which may never come."""
    at = draw(st.integers(0, END - 2))
    return at, draw(st.one_of(st.integers(at + 1, END), st.just(FOREVER)))


@st.composite
def changes(draw: st.DrawFn) -> list[Change]:
    found = []
    for at, over_at in sorted(draw(st.lists(spans(), max_size=3, unique_by=lambda span: span[0]))):
        succeeded = over_at < FOREVER and draw(st.booleans())
        added, connection = draw(st.booleans()), draw(st.sampled_from("xy"))
        found.append(Change("ann", "t", connection, added, at, over_at if succeeded else FOREVER, succeeded))
    # Replies of one connection come in order.
    last: dict[Any, float] = {}
    for change in found:
        if change.succeeded:
            change.over_at = max(change.over_at, last.get(change.connection, 0))
            last[change.connection] = change.over_at
    return found


@st.composite
def listens(draw: st.DrawFn) -> list[Place]:
    """Draw places, each on its own connection. A place ends only after its reply or with its connection."""
    found = []
    for number, (at, over_at) in enumerate(sorted(draw(st.lists(spans(), max_size=3, unique_by=lambda span: span[0])))):
        ended_at = draw(st.one_of(st.integers(at + 1, END + 2), st.just(FOREVER)))
        answered_at = over_at if over_at < ended_at else FOREVER
        succeeded = answered_at < FOREVER and draw(st.integers(0, 3)) > 0
        found.append(
            Place(
                "ann",
                number,
                begun_at=at,
                answered_at=answered_at,
                succeeded=succeeded,
                until=ended_at,
                ended_at=ended_at,
            )
        )
    return found


@st.composite
def sends(draw: st.DrawFn) -> Send:
    at, over_at = draw(spans())
    outcome = draw(st.sampled_from([Outcome.NEW, Outcome.NEW, Outcome.ACCEPTED, Outcome.TOLD]))
    return Send(at, over_at, outcome if over_at < FOREVER else Outcome.CUT_OFF)


def facts_of(listened: list[Place], changed: list[Change], **more: Any) -> Facts:
    return Facts({"ann": listened}, changed, terms=Terms(late=LATE), **more)


WISHES: dict[tuple[bool, ...], Wish] = {(True,): Wish.YES, (False,): Wish.NO}


@settings(max_examples=500)
@given(changes(), st.integers(0, END), st.integers(0, 3))
def test_a_wish_is_certain_where_every_world_agrees(changed: list[Change], begin: int, length: int) -> None:
    expected = worlds.subscribed(changed, LATE, begin, begin + length)
    found = wishes.holds(facts_of([], changed), "ann", "t", begin, begin + length)
    assert found is WISHES.get(tuple(expected), Wish.UNKNOWN)


@settings(max_examples=500)
@given(listens(), changes(), sends(), st.lists(st.integers(0, 2), max_size=2))
def test_what_must_have_come_is_what_every_world_asks_for(
    listened: list[Place], changed: list[Change], send: Send, came: list[int]
) -> None:
    message = Message("t", "m", [send])
    facts = facts_of(listened, changed, disturbances=[PEOPLE_MOVE_BADLY])
    where = worlds.due_at(message, send, listened, changed, LATE)
    found = owed(facts, message, "ann")
    assert found.connections == ([] if where is None else [where])
    assert bool(found.due) != bool(found.excuses)
    broken = judged(facts, message, *(("ann", connection) for connection in came))[0]
    misplaced = Broken.ELSEWHERE in broken or Broken.FORMER_PLACE in broken
    assert (Broken.LOST in broken) == (where is not None and where not in came and not misplaced)
    assert (Broken.TWICE in broken) == (len(came) > 1)
    if came and worlds.subscribed(changed, LATE, send.at, END + 9) == {False} and Broken.ELSEWHERE not in broken:
        assert Broken.NO_WISH in broken


@given(st.lists(st.tuples(st.sampled_from("pq"), st.sampled_from("tu"), st.integers(0, 5)), unique=True))
def test_order_is_kept_where_no_earlier_one_comes_after_a_later_one(heard: list[tuple[str, str, int]]) -> None:
    once: dict[tuple[Any, Any], Send] = {
        (topic, (row, n)): Send(n, n + 1, Outcome.NEW, row=row, number=n) for row, topic, n in heard
    }
    notes = [Note(10 + at, topic, (row, n)) for at, (row, topic, n) in enumerate(heard)]
    line = Line(0, "ann", notes=notes)
    facts = facts_of([Place("ann", 0, answered_at=-1)], [])
    found = {violation.payload for violation in rules.order(facts, line, once)}
    assert found == {
        (row, n)
        for at, (row, topic, n) in enumerate(heard)
        if any((row, topic) == other[:2] and other[2] > n for other in heard[:at])
    }


# -- Each promise, broken once


def judged(facts: Facts, message: Message, *came: tuple[str, int]) -> tuple[list[Broken | None], Judged]:
    """Return the broken promises, and the account. The first copy comes at 20, each further one 1 later."""
    copies: dict[Any, list[Copy]] = {}
    for at, (client, connection) in enumerate(came):
        copies.setdefault(client, []).append(Copy(client, connection, 20 + at))
    found: list[Violation] = []
    account = Judge(facts, found.append).message(message, copies)
    return [violation.broken for violation in found], account


def standing(*disturbances: Disturbance, places_of: dict[Any, list[Place]] | None = None, **more: Any) -> Facts:
    """Return facts: ann listens on connection 1, bob on 2, both since long ago; ann is subscribed to t."""
    listened: dict[Any, list[Place]] = {
        "ann": [Place("ann", 1, "a", "a#1", 0, 1)],
        "bob": [Place("bob", 2, "b", "b#1", 0, 1)],
    }
    changed = sorted([Change("ann", "t", 1, True, 2, 3), *more.pop("changed", ())], key=lambda change: change.at)
    return Facts(listened | (places_of or {}), changed, disturbances, Terms(late=LATE, **more.pop("terms", {})), **more)


def told(*outcomes: Outcome, topic: str | None = "t", **more: Any) -> Message:
    """Return a message published at 10, 12, …, and answered at 11, 13, …"""
    sent = [Send(10 + 2 * n, 11 + 2 * n, outcome, "a", number=n, **more) for n, outcome in enumerate(outcomes)]
    return Message(topic, "m", sent)


NEW, DUPLICATE, CUT_OFF = Outcome.NEW, Outcome.DUPLICATE, Outcome.CUT_OFF
ANN, BOB = ("ann", 1), ("bob", 2)


def always(kind: Kind, where: Any = None) -> Disturbance:
    return Disturbance(-FOREVER, FOREVER, kind, where)


@pytest.mark.parametrize(
    ("message", "came", "broken"),
    [
        (told(NEW), [ANN], []),
        (told(NEW), [], [Broken.LOST]),
        (told(Outcome.ACCEPTED, acknowledged=False), [], [Broken.LOST]),
        (told(NEW, DUPLICATE), [], [Broken.LOST]),
        (told(CUT_OFF, NEW), [], [Broken.LOST]),
        (told(DUPLICATE, Outcome.TOLD), [], [Broken.LOST]),
        (told(Outcome.PARTIAL, reached=frozenset("a")), [], [Broken.LOST]),
        (told(CUT_OFF, DUPLICATE, done_at=18), [], [Broken.LOST]),  # the failed publish has a known end
        (told(NEW, topic=None), [ANN], [Broken.LOST]),  # bob also gets a broadcast
        (told(NEW), [ANN, ANN], [Broken.TWICE]),
        (told(NEW, DUPLICATE), [ANN, ANN], [Broken.TWICE]),
        (told(CUT_OFF, NEW), [ANN, ANN], [Broken.TWICE]),
        (told(NEW, NEW), [ANN], [Broken.NOT_DROPPED]),
        (told(DUPLICATE), [ANN], [Broken.DUPLICATE_OF_NOTHING]),
        (told(Outcome.UNANSWERED), [ANN], [Broken.UNANSWERED]),
        (told(NEW), [ANN, BOB], [Broken.NO_WISH]),
        (told(NEW), [("ann", 7)], [Broken.ELSEWHERE]),
        (Message("t", "m", []), [], [Broken.LOST]),
    ],
)
def test_a_broken_promise_is_found(message: Message, came: list[tuple[str, int]], broken: list[Broken]) -> None:
    assert judged(standing(), message, *came)[0] == broken


@pytest.mark.parametrize(
    "message", [told(Outcome.TOLD), told(CUT_OFF), told(CUT_OFF, DUPLICATE), told(Outcome.PARTIAL)]
)
def test_what_was_not_called_a_success_need_not_have_come(message: Message) -> None:
    causes = {Outcome.TOLD: Cause.TOLD, Outcome.PARTIAL: Cause.TOLD, CUT_OFF: Cause.CUT_OFF}
    broken, account = judged(standing(), message)
    assert not broken
    assert account.missed[0].excuses[0].cause is causes[message.sends[0].outcome]


def at_one(**fields: Any) -> dict[Any, list[Place]]:
    return {"ann": [Place("ann", 1, "a", "a#1", 0, **{"answered_at": 1, **fields})]}


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        (standing(always(Kind.GONE, "a#1")), Cause.TAKEN_FOR_DEAD),
        (standing(changed=[Change("ann", "t", 1, False, 9, 10.5)]), Cause.IN_DOUBT),
        (standing(changed=[Change("ann", "t", 3, False, 1, succeeded=False)]), Cause.IN_DOUBT),
        (standing(places_of={"ann": []}), Cause.NOT_LISTENING),
        (standing(places_of=at_one(answered_at=10.5)), Cause.NOT_LISTENING),
        (standing(places_of=at_one(until=10.5, ended_at=10.5)), Cause.ENDED),
        (standing(places_of=at_one(until=10.5)), Cause.STOPPED),
        (standing(places_of=at_one(until=11.5, ended_at=11.5), terms={"read": 1}), Cause.ENDED),
        (standing(places_of={"ann": [*at_one()["ann"], Place("ann", 3, "b", "b#1", 10.5)]}), Cause.MOVING),
        (standing(places_of=at_one(slow=True, read_before=10)), Cause.SLOW),
    ],
)
def test_a_client_that_was_not_certainly_there_need_not_have_got_it(facts: Facts, cause: Cause) -> None:
    broken, account = judged(facts, told(NEW))
    assert not broken
    assert [missed.excuses[0].cause for missed in account.missed] == [cause]


@pytest.mark.parametrize(
    "facts",
    [
        standing(always(Kind.CRASH)),
        standing(Disturbance(0, 9, Kind.GONE, "a#1"), always(Kind.GONE, "b#1")),
        standing(changed=[Change("ann", "t", 1, False, 1, 2.5)]),  # on one connection, in order
        standing(changed=[Change("ann", "t", 3, False, -1, succeeded=False)]),  # over by now
        standing(places_of=at_one(until=12.5, ended_at=12.5), terms={"read": 1}),
        standing(places_of=at_one(until=11.5, ended_at=11.5, read_at=11.2), terms={"read": 1}),
        standing(places_of=at_one(slow=True, read_before=10.1)),
        standing(places_of=at_one(until=10.5), always={"ann": 1}),
        standing(
            places_of={"ann": [*at_one(until=10.6, replaced=True)["ann"], Place("ann", 3, "b", "b#1", 10.2, 10.5)]}
        ),
    ],
)
def test_a_client_that_was_there_or_moved_well_must_have_got_it(facts: Facts) -> None:
    assert judged(facts, told(NEW))[0] == [Broken.LOST]


MOVED = {"ann": [Place("ann", 1, "a", "a#1", 0, 1, until=10.6, ended_at=10.6), Place("ann", 3, "b", "b#1", 10.2, 10.5)]}
TWO_PLACES = [ANN, ("ann", 3)]


@pytest.mark.parametrize("kind", Kind)
def test_a_disturbance_allows_what_it_says_and_nothing_else(kind: Kind) -> None:
    facts = standing(always(kind), places_of=MOVED)
    at_both = kind in (Kind.CRASH, Kind.CUT_OFF, Kind.LOOKUP)
    sent_again = kind in (Kind.CRASH, Kind.LOOKUP)
    broken, account = judged(facts, told(NEW), *TWO_PLACES)
    assert broken == ([] if at_both else [Broken.TWICE])
    assert [one.why for one in account.repeated] == ([Again.AT_BOTH] if at_both else [])
    broken, account = judged(standing(always(kind)), told(NEW, NEW), ANN, ANN)
    assert broken == ([] if sent_again else [Broken.NOT_DROPPED, Broken.TWICE])
    assert [one.why for one in account.repeated] == ([Again.SENT_AGAIN] if sent_again else [])
    assert judged(standing(always(kind)), told(NEW, NEW), ANN, ANN, ANN)[0][-1] is Broken.TWICE
    assert judged(standing(always(kind)), told(DUPLICATE), ANN)[0] == [Broken.DUPLICATE_OF_NOTHING]
    lost = judged(standing(always(kind)), told(NEW))[0]
    assert lost == [Broken.LOST]  # GONE concerns another endpoint's life


def test_a_fault_explains_a_copy_only_if_it_had_begun_and_only_near_a_move() -> None:
    late = Disturbance(20.5, FOREVER, Kind.CRASH)
    assert judged(standing(late, places_of=MOVED), told(NEW), *TWO_PLACES)[0] == []
    after = Disturbance(21.5, FOREVER, Kind.CRASH)
    assert judged(standing(after, places_of=MOVED), told(NEW), *TWO_PLACES)[0] == [Broken.TWICE]
    message = told(NEW)
    message.explained_until = 19
    assert judged(standing(late, places_of=MOVED), message, *TWO_PLACES)[0] == [Broken.TWICE]
    far = {"ann": [Place("ann", 1, begun_at=0, answered_at=1), Place("ann", 3, begun_at=2, answered_at=3)]}
    assert (
        Broken.TWICE
        in judged(standing(always(Kind.CRASH), places_of=far, terms={"moves": 5}), told(NEW), *TWO_PLACES)[0]
    )


def test_the_retry_of_what_failed_may_come_again_where_the_recorder_says_so() -> None:
    message = told(CUT_OFF, NEW)
    message.sends[0].may_have_come = True
    assert judged(standing(), message, ANN, ANN)[0] == []
    assert judged(standing(), message, ANN, ANN, ANN)[0] == [Broken.TWICE]


def test_without_dedup_each_publish_comes_and_none_more_often() -> None:
    message = told(NEW, NEW)
    message.dedup = False
    assert judged(standing(), message, ANN)[0] == [Broken.LOST]
    assert judged(standing(), message, ANN, ANN)[0] == []
    assert judged(standing(), message, ANN, ANN, ANN)[0] == [Broken.TWICE]


def test_a_broadcast_may_come_at_each_place_of_who_moves_meanwhile() -> None:
    facts = standing(places_of=MOVED | {"bob": []})
    assert judged(facts, told(NEW, topic=None), *TWO_PLACES)[0] == []
    assert judged(facts, told(NEW, topic=None), *TWO_PLACES, ANN)[0] == [Broken.TWICE]


def test_a_copy_at_the_former_place_is_no_delivery_whether_or_not_a_crash_explains_it() -> None:
    moved = {"ann": [Place("ann", 1, "a", "a#1", 0, 1), Place("ann", 3, "b", "b#1", 4, 5)]}
    assert judged(standing(places_of=moved), told(NEW), ANN)[0] == [Broken.FORMER_PLACE]
    assert judged(standing(always(Kind.CRASH), places_of=moved), told(NEW), ANN)[0] == [Broken.LOST]


def wish(command: str, at: float, over_at: float, **fields: Any) -> Change:
    """Return a change. ``"+F"``: subscribe with this filter, ``"+"``: without one; ``"=F"``: replace all others;
    ``"-F"``, ``"-"``: unsubscribe."""
    sign, filter = command[0], command[1:] or None
    return Change("ann", "t", 1, sign != "-", at, over_at, filter=filter, replace=sign == "=", **fields)


@pytest.mark.parametrize(
    ("changed", "due", "may_come"),
    [
        ([wish("+F", 2, 3)], True, True),
        ([wish("+H", 2, 3)], False, False),
        ([wish("+H", 2, 3), wish("+", 4, 5)], True, True),
        ([wish("+F", 2, 3), wish("+G", 4, 5), wish("-F", 6, 7)], True, True),
        ([wish("+F", 2, 3), wish("-F", 4, 5)], False, False),
        ([wish("+F", 2, 3), wish("-H", 4, 5)], True, True),
        ([wish("+F", 2, 3), wish("+", 4, 5), wish("-", 6, 7)], False, False),
        ([wish("+", 2, 3), wish("=H", 4, 5)], False, False),
        ([wish("+H", 2, 3), wish("=F", 4, 5)], True, True),
        ([wish("+", 2, 3), wish("=F", 10.2, 10.4)], True, True),  # one replaces the other: at least one always holds
        ([wish("+F", 2, 3), wish("=G", 10.2, 10.4)], True, True),
        ([wish("+", 2, 3), wish("=H", 10.2, 10.4)], False, True),
        ([wish("+F", 2, 3), wish("=H", 9, FOREVER, succeeded=False)], False, True),
        ([wish("+F", 2, 3), wish("=H", 9, FOREVER, succeeded=False), wish("+F", 9.2, 9.4)], False, True),
        ([wish("+H", 2, 3), wish("=F", 9, FOREVER, succeeded=False)], False, True),
    ],
)
def test_whom_a_message_is_due_to_by_filters_of_which_it_meets_two(
    changed: list[Change], due: bool, may_come: bool
) -> None:
    facts = facts_of([Place("ann", 1, "a", "a#1", 0, 1)], changed)
    message = told(NEW)
    message.met = frozenset("FG")
    assert judged(facts, message)[0] == ([Broken.LOST] if due else [])
    assert judged(facts, message, ANN)[0] == ([] if may_come else [Broken.NO_WISH])


def test_what_is_there_is_what_was_confirmed_with_each_filter_and_without_one() -> None:
    facts = facts_of([], [wish("+F", 2, 3), wish("+", 4, 5), wish("=G", 6, 7), wish("+H", 8, 9)])

    def broken(*names: Any) -> list[tuple[Broken | None, Any]]:
        found = rules.subscriptions(facts, Listed("ann", 20, 20, frozenset(names)))
        return [(one.broken, one.topic) for one in found if isinstance(one, Violation)]

    f, g, h = (Filtered("t", name) for name in "FGH")
    assert broken(g, h) == []
    assert broken(g) == [(Broken.SUBSCRIPTION_LOST, h)]
    assert sorted(broken("t", f, g, h), key=str) == [(Broken.SUBSCRIPTION_MADE, "t"), (Broken.SUBSCRIPTION_MADE, f)]


def test_an_unsubscription_is_undone_by_the_union_of_a_conflict_only() -> None:
    ended = Change("ann", "t", 1, False, 4, 5)
    assert judged(standing(changed=[ended]), told(NEW), ANN)[0] == [Broken.NO_WISH]
    broken, account = judged(standing(Disturbance(15, FOREVER, Kind.UNION), changed=[ended]), told(NEW), ANN)
    assert (broken, account.undone) == ([], 1)


def test_a_single_copy_is_not_asked_about_where_there_are_too_many() -> None:
    found: list[Violation] = []
    judge = Judge(standing(), found.append, every_pair=False)
    assert judge.message(told(NEW), {"ann": [Copy("ann", 1, 20)]}) == Judged(once=1)
    judge.message(told(NEW), {})
    judge.message(told(NEW), {"ann": [Copy("ann", 1, 20), Copy("ann", 1, 21)]})
    judge.message(told(NEW), {"ann": [Copy("ann", 1, 20)], "bob": [Copy("bob", 2, 20)]})
    assert [one.broken for one in found] == [Broken.LOST, Broken.TWICE, Broken.NO_WISH]


def of_line(rule: Any, facts: Facts, line: Line, *more: Any) -> list[Broken | None]:
    return [violation.broken for violation in rule(facts, line, *more)]


def test_what_was_not_published_or_was_refused_is_not_heard() -> None:
    messages = {("t", "m"): told(NEW)}
    for at, payload, broken in ((20, "m", []), (9, "m", [Broken.UNPUBLISHED]), (20, "n", [Broken.UNPUBLISHED])):
        line = Line(1, "ann", notes=[Note(at, "t", payload)])
        assert of_line(rules.published, standing(), line, messages) == broken
    line = Line(1, "ann", notes=[Note(20, "t", "bad")])
    facts = standing(refused=frozenset({("t", "bad")}))
    assert of_line(rules.published, facts, line, messages) == [Broken.REFUSED]


def test_order_is_for_who_stays_while_endpoints_stay() -> None:
    once = {("t", n): Send(10 + n, 11 + n, NEW, row="p", number=n) for n in range(2)}
    line = Line(1, "ann", notes=[Note(20, "t", 1), Note(21, "t", 0)])
    assert of_line(rules.order, standing(), line, once) == [Broken.ORDER]
    for kind in (Kind.CRASH, Kind.CHANGE):
        assert of_line(rules.order, standing(always(kind)), line, once) == []
    assert of_line(rules.order, standing(places_of=at_one(answered_at=10)), line, once) == []
    assert of_line(rules.order, standing(places_of=at_one(answered_at=10, settled_at=9)), line, once) == [Broken.ORDER]


def test_4001_is_for_who_listens_elsewhere() -> None:
    line = Line(1, "ann", "a", 30, By.OTHER, 4001)
    assert of_line(rules.replaced, standing(), line) == [Broken.REPLACED]
    elsewhere = {"ann": [*at_one()["ann"], Place("ann", 3, begun_at=29)]}
    assert of_line(rules.replaced, standing(places_of=elsewhere), line) == []
    assert of_line(rules.replaced, standing(), Line(1, "ann", "a", 30, By.OTHER, 1001)) == []


def test_every_end_of_a_connection_has_a_reason() -> None:
    facts = standing(Disturbance(29, 31, Kind.KILL, "a"))
    for line, how in (
        (Line(1, "ann", "a"), "end"),
        (Line(1, "ann", "a", 10, By.CLIENT), "moved"),
        (Line(1, "ann", "a", 30, By.OTHER), "killed"),
        (Line(1, "ann", "a", 10, By.OTHER, 4002, slow=True), "slow"),
        (Line(1, "ann", "a", 10, By.OTHER, None, slow=True), "slow"),
    ):
        assert rules.ends(facts, line) == how
    for line in (
        Line(1, "ann", "a", 10, By.OTHER),
        Line(1, "ann", "b", 30, By.OTHER),
        Line(1, "ann", "a", 10, By.OTHER, 4002),
        Line(1, "ann", "a", 10, By.OTHER, 4001, slow=True),
    ):
        found = rules.ends(facts, line)
        assert isinstance(found, Violation)
        assert found.broken is Broken.ENDED


def test_a_list_has_what_was_confirmed_and_nothing_that_was_not() -> None:
    def listed(facts: Facts, *topics: str) -> list[tuple[Broken | None, str] | Kind]:
        found = rules.subscriptions(facts, Listed("ann", 20, 21, frozenset(topics)))
        return [(one.broken, one.section) if isinstance(one, Violation) else one for one in found]

    assert listed(standing(), "t") == []
    assert listed(standing()) == [(Broken.SUBSCRIPTION_LOST, "8.1")]
    assert listed(standing(), "t", "u") == [(Broken.SUBSCRIPTION_MADE, "5")]
    ended = Change("ann", "t", 1, False, 4, 5)
    assert listed(standing(changed=[ended]), "t") == [(Broken.SUBSCRIPTION_MADE, "2.2")]
    assert listed(standing(always(Kind.UNION), changed=[ended]), "t") == [Kind.UNION]


def test_a_message_that_another_one_stands_for_is_not_lost_but_only_as_many_as_it_says() -> None:
    facts = facts_of(
        [Place("ann", 0, answered_at=-1)], [Change("ann", "t", 0, True, -2, -1)], skipped={("ann", "t"): 2}
    )
    report: list[Violation] = []
    judge = Judge(facts, report.append)
    messages = [Message("t", number, [Send(number, number + 1, Outcome.NEW)]) for number in range(4)]
    found = [judge.message(message, {}) for message in messages[:3]]
    assert [one.conflated for one in found] == [["ann"], ["ann"], []]
    assert [(violation.broken, violation.payload) for violation in report] == [(Broken.LOST, 2)]
    assert judge.message(messages[3], {"ann": [Copy("ann", 0, 5)]}).once == 1
    assert len(report) == 1
