"""A member's side: its orders and its answers."""

from __future__ import annotations

import pytest

from ingeborg.autoscaler.membership import BEAT_QUEUES, PROBLEM_CHARS, Membership
from ingeborg.autoscaler.model import (
    MESSAGE_BYTES_MAX,
    QUEUES_SENT,
    Beat,
    Hello,
    Queue,
    Refused,
    Reign,
    Start,
    Started,
    Stop,
    Stopped,
    Welcome,
    decode,
    encode,
)

A, B = Queue("t", 0), Queue("t", 1)


@pytest.fixture
def member() -> Membership:
    """A member with number 3 in term 5."""
    found = Membership("m", "nonce")
    assert found.hello() == Hello("m", "nonce", 0.0)
    assert found.welcomed(Welcome("m", "nonce", 3, 5))
    assert found.take() == [Beat("m", "nonce", 3, 5, 0, 1, 0.0, ())]
    return found


def test_a_welcome_for_another_or_of_an_older_controller_changes_nothing(member: Membership) -> None:
    assert not member.welcomed(Welcome("other", "nonce", 4, 6))
    assert not member.welcomed(Welcome("m", "of another start", 4, 6))
    assert not member.welcomed(Welcome("m", "nonce", 4, 4))
    assert not member.welcomed(Reign("c", 9))
    assert (member.number, member.term) == (3, 5)


def test_a_queue_is_opened_answered_and_let_go(member: Membership) -> None:
    member.told(Start("m", 5, 50, (A, B)))
    assert member.opening == {A, B}
    assert member.take() == []
    member.opened(A, 50, 7)
    member.opened(B, 50, 9)
    assert member.take() == [Started("m", 3, 5, 50, (A, B))]
    assert member.held[A].next == 7
    member.told(Stop("m", 5, (A,)))
    assert member.closing == {A}
    member.closed()
    assert member.take() == [Stopped("m", 3, 5, (A,))]
    assert set(member.held) == {B}


def test_orders_that_come_again_are_answered_again(member: Membership) -> None:
    member.told(Start("m", 5, 50, (A,)))
    member.told(Start("m", 5, 50, (A,)))
    assert member.take() == []
    member.opened(A, 50, 0)
    member.take()
    member.told(Start("m", 5, 50, (A,)))
    assert member.take() == [Started("m", 3, 5, 50, (A,))]
    member.told(Stop("m", 5, (B,)))
    assert member.take() == [Stopped("m", 3, 5, (B,))]


def test_a_newer_epoch_opens_again_and_an_answer_to_the_older_one_is_none(member: Membership) -> None:
    member.told(Start("m", 5, 50, (A,)))
    member.opened(A, 50, 7)
    member.told(Stop("m", 5, (A,)))
    member.told(Start("m", 5, 51, (A,)))
    assert (member.opening, member.closing) == ({A}, set())
    member.take()
    member.opened(A, 50, 7)
    assert not member.held[A].is_open
    assert member.take() == []


def test_orders_for_another_start_of_its_name_are_not_its_own(member: Membership) -> None:
    member.told(Start("m", 5, 50, (A,), "nonce"))
    assert set(member.held) == {A}
    member.told(Start("m", 5, 51, (B,), "of another start"))
    assert set(member.held) == {A}
    assert member.number == 0  # it asks for a new number


def test_answers_of_very_many_queues_fit_messages(member: Membership) -> None:
    queues = tuple(Queue("t" * 249, number) for number in range(QUEUES_SENT + 1))
    member.told(Start("m", 5, 50, queues))
    for queue in queues:
        member.opened(queue, 50, 0)
    started = member.take()
    member.told(Stop("m", 5, queues))
    member.closed()
    for answers in (started, member.take()):
        assert [len(answer.queues) for answer in answers if isinstance(answer, Started | Stopped)] == [QUEUES_SENT, 1]
        assert all(len(encode(answer)) <= MESSAGE_BYTES_MAX for answer in answers)


def test_what_is_wrong_is_said_in_few_words(member: Membership) -> None:
    member.told(Start("m", 5, 50, (A,)))
    member.held[A].problem = "x" * 5_000
    member.beat()
    [beat] = member.take()
    assert isinstance(beat, Beat)
    assert beat.held[0].problem == "x" * PROBLEM_CHARS
    assert decode(encode(beat)) == beat


def test_orders_of_a_controller_that_was_replaced_are_passed_over(member: Membership) -> None:
    member.told(Reign("newer", 6))
    assert member.take() == [Beat("m", "nonce", 3, 6, 0, 1, 0.0, ())]
    member.told(Start("m", 5, 50, (A,)))
    assert member.held == {}
    assert member.stale == 1


def test_a_number_that_is_anothers_is_given_up_and_queues_are_kept(member: Membership) -> None:
    member.told(Start("m", 5, 50, (A,)))
    member.told(Start("other", 5, 51, (B,)))
    assert member.number == 0
    member.beat()
    assert member.take() == []
    assert set(member.held) == {A}
    member.told(Welcome("m", "nonce", 4, 5))
    assert member.number == 4


def test_what_the_sink_refuses_is_let_go_with_its_newer_epoch(member: Membership) -> None:
    member.told(Start("m", 5, 50, (A,)))
    member.refused(A, 60)
    assert member.take() == [Refused("m", 3, 5, 50, 60, (A,))]
    assert not member.held
    assert not member.opening
    member.refused(A, 60)
    assert member.take() == []


def test_a_beat_of_much_is_several(member: Membership) -> None:
    member.told(Start("m", 5, 50, tuple(Queue("t", number) for number in range(BEAT_QUEUES + 1))))
    member.beat()
    beats = [message for message in member.take() if isinstance(message, Beat)]
    assert [(beat.part, beat.parts, len(beat.held)) for beat in beats] == [(0, 2, BEAT_QUEUES), (1, 2, 1)]


def test_the_last_word_is_of_one_that_owns_nothing(member: Membership) -> None:
    member.told(Start("m", 5, 50, (A,)))
    member.told(Stop("m", 5, (A,)))
    assert member.bye() == ("m", "nonce", 3)
    assert not member.held
    assert not member.opening
    assert not member.closing
