"""Requests to peers: each ends exactly once, under any answers from any peer at any time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec import Raw

from ingeborg.broker.core.links.calls import NOT_HOME, PATIENCE_S, RETRY_S, TIMEOUT_S, WAIT, Asker, Call, Calls
from ingeborg.broker.core.links.frames import Answer, Batch, Open, Received, UsualAnswers, decoded, encoded
from ingeborg.broker.core.links.link import Link
from ingeborg.broker.core.links.requests import ChangeRequest, FetchRequest, LeaveRequest


class Recorder:
    """A link and the items that the peer has received over it."""

    def __init__(self) -> None:
        self.link = Link("here")
        self.link.receive(encoded(Open("there", None, 0)))
        self._items: list[Received] = []

    @property
    def items(self) -> list[Received]:
        for frame in self.link.flush():
            batch = decoded(frame)
            assert isinstance(batch, Batch)
            assert batch.items
            self._items += batch.items
        return self._items

    @property
    def numbers(self) -> list[int]:
        return [item[0] for item in self.items]


class Asking(Asker):
    """A part that makes requests: it records the outcomes, and handles the loss of a receiver."""

    def __init__(self, lost: Callable[[Call], str | None] = lambda _: None) -> None:
        self.told: list[tuple[Any, ...]] = []
        self._lost = lost

    def answered(self, call: Call, value: Any) -> None:
        self.told.append(("answered", call.context, value))

    def failed(self, call: Call, code: str, info: Any) -> None:
        self.told.append(("failed", call.context, code, info))

    def lost(self, call: Call) -> str | None:
        self.told.append(("lost", call.context))
        return self._lost(call)


def link(calls: Calls, peer: str) -> Recorder:
    recorder = Recorder()
    calls.linked(peer, recorder.link)
    return recorder


def ask(calls: Calls, target: str, asker: Asking, context: Any = "it", now: float = 0.0) -> int:
    calls.make(target, ChangeRequest("client", ["t"], True), asker, context, now)
    return calls._number


# Asked and answered


def test_a_request_is_sent_with_its_number_and_answered_once() -> None:
    calls, asker = Calls(), Asking()
    wire = link(calls, "b")
    number = ask(calls, "b", asker)
    assert wire.items == [(number, ChangeRequest("client", ["t"], True))]
    assert len(calls) == 1
    calls.answer("b", number, "", "value", 1.0)
    calls.answer("b", number, "", "value", 1.0)
    assert asker.told == [("answered", "it", "value")]
    assert len(calls) == 0


def test_a_refusal_is_told_with_its_code() -> None:
    calls, asker = Calls(), Asking()
    link(calls, "b")
    calls.answer("b", ask(calls, "b", asker), "store_unavailable", "down", 1.0)
    assert asker.told == [("failed", "it", "store_unavailable", "down")]


def test_a_peer_may_ask_for_more_time_again_and_again() -> None:
    calls, asker = Calls(), Asking()
    link(calls, "b")
    ask(calls, "b", asker, "first")
    number = ask(calls, "b", asker, "patient")
    ask(calls, "b", asker, "last", now=0.5)
    calls.answer("b", number, WAIT, "", 4.0)
    calls.answer("b", number, WAIT, "", 4.5)
    calls.tick(TIMEOUT_S)
    assert [told[1] for told in asker.told] == ["first"]
    calls.tick(4.5 + PATIENCE_S - 0.1)
    assert [told[1] for told in asker.told] == ["first", "last"]
    calls.tick(4.5 + PATIENCE_S)
    assert asker.told[-1] == ("failed", "patient", "peer_unavailable", "Another endpoint did not answer in time")
    assert len(calls) == 0


def test_and_answers_in_that_time() -> None:
    calls, asker = Calls(), Asking()
    link(calls, "b")
    number = ask(calls, "b", asker)
    calls.answer("b", number, WAIT, "", 4.0)
    calls.tick(TIMEOUT_S + 1.0)
    calls.answer("b", number, "", "value", TIMEOUT_S + 2.0)
    calls.tick(4.0 + PATIENCE_S)
    assert asker.told == [("answered", "it", "value")]


def test_an_answer_from_the_wrong_peer_means_nothing() -> None:
    calls, asker = Calls(), Asking()
    link(calls, "b")
    link(calls, "c")
    number = ask(calls, "b", asker)
    for code in ("", "internal", NOT_HOME):
        calls.answer("c", number, code, None, 1.0)
    calls.answer("b", number + 1, "", None, 1.0)
    assert asker.told == []
    calls.answer("b", number, "", None, 1.0)
    assert asker.told == [("answered", "it", None)]


def test_usual_answers_come_in_one_record_and_each_asker_gets_its_own() -> None:
    calls, asker = Calls(), Asking()
    wire = link(calls, "b")
    link(calls, "c")
    first, second = ask(calls, "b", asker, "first"), ask(calls, "b", asker, "second")
    other = ask(calls, "c", asker, "another's")
    wire.items.clear()
    for number in (7, 9):
        calls.answer_usually("b", number)
    calls.put("b", (10, Answer("", Raw(encoded("value")))))
    calls.answer_usually("b", 11)
    assert wire.items == [(7, UsualAnswers([7, 9])), (10, Answer("", Raw(encoded("value")))), (11, UsualAnswers([11]))]
    calls.answered_usually("b", [second, other, first, first, 99], 1.0)
    assert asker.told == [("answered", "second", None), ("answered", "first", None)]
    assert len(calls) == 1


def test_a_request_that_has_no_usual_answer_is_not_answered_by_one() -> None:
    calls, asker = Calls(), Asking()
    link(calls, "b")
    calls.make("b", FetchRequest(1), asker, "it", 0.0)
    calls.answered_usually("b", [calls._number], 1.0)
    assert asker.told == [("failed", "it", "internal", "the answer is malformed")]


def test_numbers_are_never_used_twice() -> None:
    calls, asker = Calls(), Asking()
    drawn = [calls.number(), ask(calls, "b", asker), calls.number(), ask(calls, "b", asker)]
    assert len(set(drawn)) == 4


# Links


def test_a_request_waits_for_its_link() -> None:
    calls, asker = Calls(), Asking()
    numbers = [ask(calls, "b", asker), ask(calls, "b", asker)]
    ask(calls, "c", asker)
    assert link(calls, "b").numbers == numbers


def test_a_fresh_link_gets_what_is_under_way_from_the_start() -> None:
    calls, asker = Calls(), Asking()
    link(calls, "b")
    answered, open_ = ask(calls, "b", asker), ask(calls, "b", asker)
    calls.answer("b", answered, "", None, 1.0)
    assert link(calls, "b").numbers == [open_]


# The receiver is gone


def test_what_a_dead_peer_was_asked_is_asked_of_another_under_its_number() -> None:
    calls = Calls()
    asker = Asking(lambda call: "c")
    link(calls, "b")
    other = link(calls, "c")
    number = ask(calls, "b", asker)
    calls.gone("b")
    assert other.numbers == [number]
    calls.answer("b", number, "", "late", 1.0)
    calls.answer("c", number, "", "value", 1.0)
    assert asker.told == [("lost", "it"), ("answered", "it", "value")]
    assert "b" not in calls.links


def test_who_does_without_an_answer_is_not_told_any_more() -> None:
    calls = Calls()
    asker = Asking(lambda call: None)
    link(calls, "b")
    number = ask(calls, "b", asker)
    calls.gone("b")
    calls.answer("b", number, "", None, 1.0)
    calls.tick(TIMEOUT_S)
    assert asker.told == [("lost", "it")]
    assert len(calls) == 0


# Not home


def test_one_that_is_not_home_is_asked_again_after_a_moment() -> None:
    calls = Calls()
    asker = Asking(lambda call: "c")
    link(calls, "b")
    other = link(calls, "c")
    number = ask(calls, "b", asker)
    calls.answer("b", number, NOT_HOME, None, 1.0)
    calls.tick(1.0 + RETRY_S - 1e-6)
    assert asker.told == []
    calls.tick(1.0 + RETRY_S)
    assert asker.told == [("lost", "it")]
    assert other.numbers == [number]
    calls.tick(2.0)
    assert other.numbers == [number]


def test_between_two_tries_nobody_s_answer_and_nobody_s_death_counts() -> None:
    calls, asker = Calls(), Asking()
    link(calls, "b")
    number = ask(calls, "b", asker)
    calls.answer("b", number, NOT_HOME, None, 1.0)
    calls.answer("b", number, "", None, 1.0)
    calls.answer("b", number, NOT_HOME, None, 1.0)
    calls.gone("b")
    assert asker.told == []
    calls.tick(1.0 + RETRY_S)
    assert asker.told == [("lost", "it")]


def test_one_that_its_asker_does_without_is_not_asked_again() -> None:
    calls, asker = Calls(), Asking()
    wire = link(calls, "b")
    number = ask(calls, "b", asker)
    calls.answer("b", number, NOT_HOME, None, 1.0)
    calls.tick(2.0)
    calls.tick(TIMEOUT_S + 1.0)
    assert asker.told == [("lost", "it")]
    assert wire.numbers == [number]
    assert len(calls) == 0


# Time


def test_a_request_is_given_up_at_its_exact_deadline() -> None:
    calls, asker = Calls(), Asking()
    link(calls, "b")
    ask(calls, "b", asker, "first", 10.0)
    ask(calls, "b", asker, "second", 10.5)
    calls.tick(10.0 + TIMEOUT_S - 1e-6)
    assert asker.told == []
    calls.tick(10.0 + TIMEOUT_S)
    assert [told[:3] for told in asker.told] == [("failed", "first", "peer_unavailable")]
    calls.tick(100.0)
    assert [told[1] for told in asker.told] == ["first", "second"]
    assert len(calls) == 0


def test_asking_again_does_not_prolong_the_wait() -> None:
    calls = Calls()
    asker = Asking(lambda call: "b")
    wire = link(calls, "b")
    number = ask(calls, "b", asker, now=0.0)
    now = 0.0
    while now < TIMEOUT_S:
        calls.answer("b", number, NOT_HOME, None, now)
        now += 0.1
        calls.tick(now)
    assert len(wire.items) > 10
    assert asker.told[-1][:3] == ("failed", "it", "peer_unavailable")
    assert len(calls) == 0


def test_an_answer_after_the_deadline_means_nothing() -> None:
    calls, asker = Calls(), Asking()
    link(calls, "b")
    number = ask(calls, "b", asker)
    calls.tick(TIMEOUT_S)
    calls.answer("b", number, "", None, TIMEOUT_S + 1)
    assert [told[0] for told in asker.told] == ["failed"]


@pytest.mark.parametrize("how", ["gone", "not home"])
def test_a_number_that_is_asked_anew_by_its_asker_is_a_request_of_its_own(how: str) -> None:
    calls, latecomer = Calls(), Asking()
    number = calls.number()
    asker = Asking(lambda call: calls.make("c", LeaveRequest(), latecomer, "anew", 3.0, number))
    link(calls, "b")
    link(calls, "c")
    calls.make("b", LeaveRequest(), asker, "former", 0.0, number)
    if how == "gone":
        calls.gone("b")
    else:
        calls.answer("b", number, NOT_HOME, None, 0.0)
        calls.tick(RETRY_S)
    assert asker.told == [("lost", "former")]
    calls.tick(TIMEOUT_S)
    assert latecomer.told == []
    calls.tick(3.0 + TIMEOUT_S)
    assert [told[:2] for told in latecomer.told] == [("failed", "anew")]
    assert asker.told == [("lost", "former")]


# Any schedule


class AnySchedule(RuleBasedStateMachine):
    """Under any actions of peers, a request ends once: with an answer of its receiver or at its deadline."""

    peers = ("b", "c")

    def __init__(self) -> None:
        super().__init__()
        self.calls = Calls()
        self.asker = Asking(self.ask_another)
        self.now = 0.0
        self.begun: dict[int, float] = {}
        self.due: dict[int, float] = {}
        self.turn = 0

    def ask_another(self, call: Call) -> str | None:
        self.turn += 1
        return self.peers[self.turn % 2]

    @rule(peer=st.sampled_from(peers))
    def connect(self, peer: str) -> None:
        link(self.calls, peer)

    @rule(peer=st.sampled_from(peers))
    def die(self, peer: str) -> None:
        self.calls.gone(peer)

    @rule(peer=st.sampled_from(peers))
    def ask(self, peer: str) -> None:
        number = self.calls._number + 1
        self.begun[number] = self.now
        self.due[number] = self.now + TIMEOUT_S
        assert ask(self.calls, peer, self.asker, number, self.now) == number

    @rule(
        peer=st.sampled_from(peers), number=st.integers(1, 20), code=st.sampled_from(["", "internal", NOT_HOME, WAIT])
    )
    def answer(self, peer: str, number: int, code: str) -> None:
        asked = code == WAIT and self.calls.asked(peer, number) is not None
        self.calls.answer(peer, number, code, None, self.now)
        if asked:
            self.due[number] = self.now + PATIENCE_S

    @rule(seconds=st.sampled_from([0.01, RETRY_S, 1.0, TIMEOUT_S / 2]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.calls.tick(self.now)

    @invariant()
    def each_ends_at_most_once_and_in_time(self) -> None:
        ended = [told[1] for told in self.asker.told if told[0] != "lost"]
        assert len(ended) == len(set(ended))
        assert len(ended) + len(self.calls) == len(self.begun)
        late = [number for number, at in self.due.items() if at <= self.now and number not in ended]
        assert late == []

    def teardown(self) -> None:
        self.calls.tick(self.now + PATIENCE_S)
        assert len(self.calls) == 0


TestAnySchedule = AnySchedule.TestCase
TestAnySchedule.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
