"""Clients that recover: the messages that they get, in which order, and their positions. SPEC section 8.10."""

from __future__ import annotations

from collections.abc import Callable

import orjson
import pytest

from ingeborg.broker.core.codec import Lines, TextFrames
from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.connections.outbox import Outbox
from ingeborg.broker.core.history.positions import IDLE_S
from ingeborg.broker.core.history.replaying import COMMAND_S, LINGER_S
from ingeborg.broker.core.links.requests import FetchRequest, HistoryRequest
from ingeborg.broker.core.message import Message
from ingeborg.protocol.frames import text_frame
from ingeborg.protocol.hashes import slot_of

from ..retained.here import at
from .here import Here, answer, short


@pytest.fixture
def here() -> Here:
    return Here()


def restored(connection: Connection) -> None:
    """Have the connection's client listen here again after its `listen` elsewhere has failed."""
    assert connection.receiver is not None
    connection.receiver.restored()


def is_gone(here: Here, connection: Connection) -> bool:
    """Has the connection no replay session? Messages then go straight into its outbox."""
    return connection.receiver is None and connection not in here.part.replay_sessions


def advance(here: Here) -> int:
    """Conclude everything stamped so far. Returns the stamp."""
    here.watermarks.tick()
    return here.watermarks.cluster_watermark


def test_without_a_position_one_is_told_at_once_and_messages_have_names(here: Here) -> None:
    here.keep("t", 3)
    advance(here)
    anna, reply = here.listens()
    assert reply == {"recovering": False, "position": at(3)}
    here.comes(anna, "t", 7)
    assert here.said(anna) == ["t 7"]
    assert here.stored() == []


def test_as_soon_as_there_is_a_position_it_is_told() -> None:
    here = Here("a")
    here.watermarks.lapsed()
    anna, reply = here.listens()
    assert reply == {"recovering": False}
    here.clock.see(4)
    assert here.said(anna) == []
    here.told("a", 4)
    assert here.said(anna) == ["at 4"]


def test_what_came_while_the_listen_was_written_is_before_a_position_that_may_cover_it(here: Here) -> None:
    anna = here.begins()
    here.comes(anna, "t", 1)
    assert here.said(anna) == []
    here.keep("t", 5)
    advance(here)
    assert here.part.listened(anna, "anna", "") == {"recovering": False, "position": at(5)}
    assert here.said(anna) == ["t 1"]


def test_positions_are_told_while_messages_come_and_not_else(here: Here) -> None:
    anna, _ = here.listens()
    bert, _ = here.listens("bert")
    here.keep("t", 5)
    advance(here)
    assert here.said(anna) == ["at 5"]
    here.said(bert)
    here.keep("t", 6)
    advance(here)  # a second time: messages sent before the first may have been beyond it
    assert here.said(anna) == ["at 6"]
    here.said(bert)
    here.keep("t", 7)
    advance(here)
    assert (here.said(anna), here.said(bert)) == ([], [])
    here.comes(anna, "t", 1)
    here.keep("t", 8)
    advance(here)
    assert (here.said(anna), here.said(bert)) == (["t 1", "at 8"], [])
    here.desk.now += IDLE_S
    here.positions.tick()
    assert (here.said(anna), here.said(bert)) == ([], ["at 8"])


def test_what_was_missed_comes_first_and_behind_it_what_has_come_meanwhile_each_once(here: Here) -> None:
    first, second = here.keep("t", 3), here.keep("u", 5)
    anna, reply = here.listens(recover=at(2))
    assert reply == {"recovering": True}
    here.comes(anna, "u", second.number)
    here.comes(anna, "t", 9)
    here.has_topics("t", "u")
    advance(here)
    assert here.said(anna) == [
        f"t {first.number} kept",
        f"u {second.number} kept",
        "t 9",
        "recovered at 5",
    ]
    assert anna.waiting == 0
    here.comes(anna, "t", 10)
    assert here.said(anna) == ["t 10"]


def test_each_is_sent_everything_in_the_codec_of_its_connection(here: Here) -> None:
    """The missed messages, those held meanwhile, later live ones, and positions."""
    frames = TextFrames()
    kept = here.keep("t", 3)
    advance(here)
    connections = []
    for client, codec in (("anna", frames), ("bert", Lines()), ("carl", frames)):
        connections.append(here.listens(client, at(2), codec)[0])
        here.has_topics("t")
    here.brings(message := Message("t", b"1", "o", 9, here.desk.now), *connections)
    here.work()
    here.keep("t", 4)
    advance(here)
    here.work()
    written = dict(here.sending.write())
    anna, bert, carl = (written[connection] for connection in connections)
    assert anna == [text_frame(line) for line in bert] == carl
    assert [short(orjson.loads(line)) for line in bert] == [
        f"t {kept.number} kept",
        "at 3",
        "t 9",
        "recovered at 3",
        "at 4",
    ]
    assert anna[2] is carl[2] is message.named_for(frames)
    assert anna[4] is carl[4], "one position, one frame"


def test_no_position_is_told_while_something_waits(here: Here) -> None:
    here.keep("t", 3)
    anna, _ = here.listens(recover=at(2))
    here.comes(anna, "t", 9)
    here.keep("t", 6)
    advance(here)
    here.desk.now += IDLE_S
    here.positions.tick()
    assert here.said(anna) == []


@pytest.mark.parametrize("position", ["other.5", at(99), "nonsense"])
def test_of_a_position_that_is_not_of_this_cluster_any_may_be_lacking(here: Here, position: str) -> None:
    kept = here.keep("t", 3)
    advance(here)
    anna, reply = here.listens(recover=position)
    assert reply == {"recovering": True}
    here.comes(anna, "t", 9)
    here.has_topics("t")
    assert here.said(anna) == ["gap any", f"t {kept.number} kept", "at 3", "t 9", "recovered at 3"]
    assert here.desk.counts["gaps_told"] == 1


def test_such_a_recovery_ends_once_there_is_a_position() -> None:
    here = Here("a")
    here.watermarks.lapsed()
    anna, _ = here.listens(recover="other.5")
    assert here.said(anna) == []
    here.told("a", 4)
    here.clock.see(4)
    here.watermarks.tick()
    here.goes_on()
    here.has_topics()
    assert here.said(anna) == ["gap any", "recovered at 4"]


def test_what_does_not_fit_behind_a_recovery_comes_with_one_more_attempt(here: Here) -> None:
    first = here.keep("t", 3)
    anna = here.begins()
    anna.outbox = Outbox(1_000)
    here.part.listened(anna, "anna", at(2))
    for number in range(5):
        here.comes(anna, "t", 100 + number, b'"%b"' % (b"x" * 150))
    assert here.desk.drops["behind_recovery"] == 5
    assert anna.waiting == 0
    here.has_topics("t")
    second = here.keep("t", 4)  # these are kept
    assert here.said(anna)[0] == f"t {first.number} kept"
    here.has_topics("t")
    heard = here.said(anna)
    assert f"t {second.number} kept" in heard
    assert not any("100" in said for said in heard)
    assert heard[-1].startswith("recovered at")
    here.comes(anna, "t", 200)
    assert here.said(anna) == ["t 200"]


def test_a_subscribe_that_asks_for_retained_messages_during_a_recovery_does_not_hide_its_end(here: Here) -> None:
    first, second = here.keep("t", 3), here.keep("u", 4)
    advance(here)
    anna, _ = here.listens(recover=at(2))
    here.part.hold_for(anna, "anna")
    ends: list[tuple[bool, bool]] = []
    here.has_topics("t")
    # A position would cover messages that the `subscribe` has not sent yet.
    assert here.said(anna) == [f"t {first.number} kept"]
    here.comes(anna, "u", 9)
    here.part.read_retained(anna, ["u"], None, 1, None, lambda *end: ends.append(end))
    assert here.said(anna) == [f"u {second.number} kept", "u 9", "recovered at 4"]
    assert ends == [(True, False)]


def test_a_subscribe_without_recover_is_sent_what_is_kept_before_what_comes(here: Here) -> None:
    kept = [here.keep("t", stamp) for stamp in (3, 4, 5)]
    anna = here.client()
    here.hub.bind("anna", anna)
    here.part.hold_for(anna, "anna")
    here.comes(anna, "t", kept[2].number)
    here.comes(anna, "t", 9)
    ends: list[tuple[bool, bool]] = []
    here.part.read_retained(anna, ["t"], None, 2, None, lambda *end: ends.append(end))
    assert ends == []
    assert here.said(anna) == [f"t {kept[1].number} kept", f"t {kept[2].number} kept", "t"]
    assert ends == [(True, False)]
    here.comes(anna, "t", kept[1].number)  # its home kept it before it dispatched it, and the client already has it
    here.comes(anna, "t", 10)
    assert here.said(anna) == ["t"]
    here.desk.now += LINGER_S
    here.part.tick()
    assert is_gone(here, anna)
    here.comes(anna, "t", 11)
    assert here.said(anna) == ["t"]


def test_since_a_position_that_is_none_all_its_topics_have_a_gap(here: Here) -> None:
    entry = here.keep("t", 3)
    anna = here.client()
    here.hub.bind("anna", anna)
    ends: list[tuple[bool, bool]] = []
    for since, said in ((at(3), []), (at(2), [f"t {entry.number} kept"])):
        here.part.hold_for(anna, "anna")
        here.part.read_retained(anna, ["t"], since, 0, None, lambda *end: ends.append(end))
        assert here.said(anna) == said
        assert ends.pop() == (True, False)
    here.part.hold_for(anna, "anna")
    here.part.read_retained(anna, ["t"], "other.3", 0, None, lambda *end: ends.append(end))
    assert here.said(anna) == ["gap t", f"t {entry.number} kept"]
    assert ends[-1] == (True, True)


def test_a_topic_without_retained_messages_has_no_gap_where_the_latest_are_asked_for(here: Here) -> None:
    here.log.raise_floor(slot_of("t"), 7)
    anna = here.client()
    here.hub.bind("anna", anna)
    here.part.hold_for(anna, "anna")
    here.part.read_retained(anna, ["t"], None, 5, None, lambda *end: None)
    assert here.said(anna) == []


def test_a_subscribe_that_fails_lets_pass_what_has_waited(here: Here) -> None:
    anna = here.client()
    here.hub.bind("anna", anna)
    here.part.hold_for(anna, "anna")
    here.comes(anna, "t", 9)
    assert here.said(anna) == []
    here.part.not_subscribed(anna)
    assert here.said(anna) == ["t"]
    assert is_gone(here, anna)


def test_a_listen_that_fails_lets_pass_what_has_waited(here: Here) -> None:
    anna = here.begins()
    here.comes(anna, "t", 9)
    here.part.not_listened(anna, "anna")
    assert here.said(anna) == ["t 9"]
    assert is_gone(here, anna)
    assert here.part.replay_sessions == {}


def close(here: Here, connection: object) -> None:
    anna = next(iter(here.part.replay_sessions))
    here.hub.unbind("anna", anna)
    anna.closed = True
    here.part.closed(anna)


def unlisten(here: Here, connection: object) -> None:
    anna = next(iter(here.part.replay_sessions))
    here.hub.unbind("anna", anna)
    assert anna.receiver is not None
    anna.receiver.gone("anna")


@pytest.mark.parametrize("end", [close, unlisten])
@pytest.mark.parametrize("moment", range(6))
def test_at_whatever_moment_its_client_goes_nothing_is_left(end: Callable[[Here, object], None], moment: int) -> None:
    """``moment``: the number of steps that the recovery has taken by then."""
    here = Here("a")
    (topic,) = here.topics_at("a", 1)
    (mine,) = here.topics_at("m", 1)
    here.keep(mine, 3)
    anna = here.begins()
    ends: list[tuple[bool, bool]] = []

    def ask() -> None:
        here.part.hold_for(anna, "anna")
        here.part.read_retained(anna, [topic], None, 1, None, lambda *end: ends.append(end))

    def answer_all() -> None:
        for call in here.take_asked(HistoryRequest):
            call.asker.answered(call, answer((topic, 5, 4), number=1))

    steps: list[Callable[[], object]] = [
        lambda: here.part.listened(anna, "anna", at(2)),
        ask,
        lambda: here.has_topics(topic, mine),
        answer_all,
        here.desk.work,
    ]
    here.comes(anna, mine, 9)
    for step in steps[:moment]:
        step()
    here.comes(anna, mine, 10)
    end(here, anna)
    for stored in here.desk.stored[:]:
        stored.end(([topic], None))
    here.desk.stored.clear()
    for call in here.take_asked():
        call.asker.answered(call, answer((topic, 6, 5)))
    here.goes_on()
    assert here.part.replay_sessions == {}
    assert is_gone(here, anna)
    assert anna.waiting == 0
    assert ends == ([(False, False)] if moment > 1 else [])
    assert here.attempts._again == []
    assert not here.desk.jobs
    before = list(here.take_asked())
    assert before == []


def test_who_missed_a_delivery_recovers_from_what_it_has_had_for_sure() -> None:
    here = Here("a")
    here.clock.see(9)
    here.told("a", 4)
    anna, _ = here.listens()
    bert, _ = here.listens("bert")
    here.desk.work()
    missed = here.keep(here.topics_at("m", 1)[0], 10)
    here.told("a", 10, again=["anna", "nobody"])
    here.turn()
    here.comes(anna, "x", 77)
    here.attempts.tick()
    here.has_topics(missed.topic)
    assert here.said(anna)[0] == f"{missed.topic} {missed.number} kept"
    assert here.said(bert) == ["at 10"]


def test_a_lapse_has_all_recover_and_no_message_passes_before(here: Here) -> None:
    anna, _ = here.listens()
    waiting = here.begins("bert")
    here.part.lapsed()
    here.comes(anna, "t", 9)
    assert here.said(anna) == []
    missed = here.keep("t", 3)
    here.attempts.tick()
    here.has_topics("t")
    advance(here)
    assert here.said(anna) == [f"t {missed.number} kept", "t 9", "recovered at 3"]
    # The same for a client whose listen was under way: others may have acted since its announcement.
    assert here.part.listened(waiting, "bert", "") == {"recovering": False}
    here.has_topics("t")
    assert here.said(waiting) == [f"t {missed.number} kept", "at 3", "recovered at 3"]


def test_no_position_on_the_way_is_above_the_watermark_when_it_began(here: Here) -> None:
    """The client's new subscription is no part of the recovery: its messages wait behind it."""
    first = here.keep("t", 2)
    advance(here)
    anna, _ = here.listens(recover=at(1))
    of_new = here.keep("new", 4)  # the client has subscribed by now, though the store did not say so
    here.comes(anna, "new", of_new.number)
    last = here.keep("t", 5)
    advance(here)
    here.has_topics("t")
    assert here.said(anna) == [
        f"t {first.number} kept",
        f"t {last.number} kept",
        "at 2",
        f"new {of_new.number}",
        "recovered at 5",
    ]


def overflow(here: Here, anna: Connection) -> None:
    """Send the client more than can wait behind a recovery."""
    anna.outbox = Outbox(1_000)
    for number in range(5):
        here.comes(anna, "t", 100 + number, b'"%b"' % (b"x" * 150))
    assert here.desk.drops["behind_recovery"] == 5
    assert anna.waiting == 0


def test_what_does_not_fit_behind_a_subscribe_that_fails_comes_with_an_attempt_of_its_own(here: Here) -> None:
    anna, _ = here.listens()
    here.part.hold_for(anna, "anna")
    overflow(here, anna)
    kept = here.keep("t", 4)  # these are kept
    here.part.not_subscribed(anna)
    here.has_topics("t")
    assert here.said(anna) == [f"t {kept.number} kept", "recovered at 0"]
    here.comes(anna, "t", 200)
    assert here.said(anna) == ["t 200"]


def test_a_subscribe_that_fails_behind_a_recovery_does_not_hide_its_end(here: Here) -> None:
    first = here.keep("t", 3)
    advance(here)
    anna, _ = here.listens(recover=at(2))
    here.part.hold_for(anna, "anna")
    here.has_topics("t")
    assert here.said(anna) == [f"t {first.number} kept"]
    here.comes(anna, "t", 9)
    here.part.not_subscribed(anna)
    assert here.said(anna) == ["t 9", "recovered at 3"]


def step(here: Here, times: int = 10) -> None:
    """Run some slices of all jobs, before anything is written."""
    for _ in range(times):
        if here.desk.jobs and not next(job := here.desk.jobs.popleft(), True):
            here.desk.jobs.append(job)


def test_a_command_gives_up_behind_a_slow_reader(here: Here) -> None:
    kept = here.keep("t", 3)
    anna = here.client()
    here.hub.bind("anna", anna)
    here.sending.blocked(anna, 10)
    ends: list[tuple[bool, bool]] = []
    here.part.hold_for(anna, "anna")
    here.part.read_retained(anna, ["t"], None, 1, None, lambda *end: ends.append(end))
    here.comes(anna, "t", 9)
    step(here)
    here.desk.now += COMMAND_S - 0.1
    here.part.tick()
    assert ends == []
    here.desk.now += 0.1
    here.part.tick()
    assert ends == [(False, False)]
    assert is_gone(here, anna)
    here.sending.drained(anna)
    assert here.said(anna) == ["t"]  # and no more of the kept messages
    assert kept.gone == 0


def test_a_command_gives_up_behind_a_long_recovery_which_goes_on(here: Here) -> None:
    kept = here.keep("t", 3)
    advance(here)
    anna, _ = here.listens(recover=at(2))
    ends: list[tuple[bool, bool]] = []
    here.part.hold_for(anna, "anna")
    here.part.read_retained(anna, ["u"], None, 1, None, lambda *end: ends.append(end))
    here.desk.now += COMMAND_S
    here.part.tick()
    assert ends == [(False, False)]
    assert here.said(anna) == []
    here.comes(anna, "u", 9)
    here.has_topics("t")
    assert here.said(anna) == [f"t {kept.number} kept", "at 3", "u 9", "recovered at 3"]


def test_a_command_that_ends_in_time_does_not_end_twice(here: Here) -> None:
    here.keep("t", 3)
    anna, _ = here.listens()
    ends: list[tuple[bool, bool]] = []
    here.part.hold_for(anna, "anna")
    here.part.read_retained(anna, ["t"], None, 1, None, lambda *end: ends.append(end))
    here.work()
    assert ends == [(True, False)]
    here.desk.now += COMMAND_S
    here.part.tick()
    assert ends == [(True, False)]


def test_messages_of_two_clients_on_one_connection_each_come_as_often_as_they_are_owed(here: Here) -> None:
    """A kept message that one client has just got can be live for both: it comes once for each."""
    kept = here.keep("t", 3)
    shared = here.client()
    for client in ("anna", "bert"):
        here.hub.bind(client, shared)
    here.part.hold_for(shared, "anna")
    here.comes(shared, "t", kept.number)  # anna's
    here.comes(shared, "t", kept.number)  # bert's
    here.comes(shared, "u", 9)
    here.part.read_retained(shared, ["t"], None, 1, None, lambda *end: None)
    assert here.said(shared) == [f"t {kept.number} kept", "t", "u"]


def test_two_subscribes_of_two_clients_on_one_connection_wait_for_each_other(here: Here) -> None:
    first, second = here.keep("t", 3), here.keep("u", 4)
    shared = here.client()
    for client in ("anna", "bert"):
        here.hub.bind(client, shared)
    ends: list[str] = []
    here.part.hold_for(shared, "anna")
    here.part.hold_for(shared, "bert")
    here.comes(shared, "u", 9)
    here.part.read_retained(shared, ["t"], None, 1, None, lambda *end: ends.append("anna"))
    assert here.said(shared) == [f"t {first.number} kept"]
    assert ends == ["anna"]
    here.part.read_retained(shared, ["u"], None, 1, None, lambda *end: ends.append("bert"))
    assert here.said(shared) == [f"u {second.number} kept", "u"]
    assert ends == ["anna", "bert"]
    assert is_gone(here, shared)


def test_a_second_listen_that_fails_leaves_the_first_where_it_was(here: Here) -> None:
    anna, _ = here.listens()
    here.part.listens(anna, "anna")
    missed = here.keep("t", 3)
    here.comes(anna, "t", 9)
    here.part.not_listened(anna, "anna")
    here.has_topics("t")
    assert here.said(anna) == [f"t {missed.number} kept", "t 9", "recovered at 0"]
    assert anna in here.part.replay_sessions


def test_who_listens_here_again_since_its_listen_elsewhere_has_failed_recovers(here: Here) -> None:
    anna, _ = here.listens()
    missed = here.keep("t", 3)  # the endpoint did not get this one, while the client was announced elsewhere
    restored(anna)
    here.comes(anna, "t", 9)
    here.has_topics("t")
    assert here.said(anna) == [f"t {missed.number} kept", "t 9", "recovered at 0"]
    # A client that does not recover has no position to go by.
    other = here.client()
    here.part.hold_for(other, "bert")
    here.part.read_retained(other, ["x"], None, 1, None, lambda *end: None)
    restored(other)
    assert len(here.session(other).attempts) == 1


def test_one_that_fails_during_the_first_recovery_has_that_go_on(here: Here) -> None:
    """Its client knows that it recovers, and still listens here."""
    missed = here.keep("t", 3)
    advance(here)
    anna, _ = here.listens(recover="other.5")
    here.desk.stored.clear()
    here.part.listens(anna, "anna")
    here.comes(anna, "t", 9)
    here.part.not_listened(anna, "anna")
    here.has_topics("t")
    assert here.said(anna) == ["gap any", f"t {missed.number} kept", "at 3", "t 9", "recovered at 3"]


def test_who_listens_here_again_in_the_midst_of_a_recovery_is_asked_for_once_more(here: Here) -> None:
    first = here.keep("t", 3)
    anna, _ = here.listens(recover=at(2))
    here.has_topics("t")
    here.sending.blocked(anna, 10)
    step(here)  # its home has answered
    missed = here.keep("t", 4)  # while the client was announced elsewhere
    restored(anna)
    restored(anna)  # twice is once
    advance(here)
    here.sending.drained(anna)
    assert here.said(anna) == [f"t {first.number} kept"]
    here.has_topics("t")
    # Both, since the client has no position yet: the first attempt began before one existed.
    assert here.said(anna) == [f"t {first.number} kept", f"t {missed.number} kept", "at 4", "recovered at 4"]


def test_who_listens_here_again_while_its_first_listen_is_written_recovers(here: Here) -> None:
    anna = here.begins()
    missed = here.keep("t", 3)
    restored(anna)
    assert here.part.listened(anna, "anna", "") == {"recovering": False}
    here.has_topics("t")
    assert here.said(anna)[0] == f"t {missed.number} kept"


def test_a_listen_ends_what_a_subscribe_before_it_waits_for_at_once(here: Here) -> None:
    anna, _ = here.listens()
    ends: list[tuple[bool, bool]] = []
    here.part.hold_for(anna, "anna")
    here.part.listens(anna, "anna")
    here.part.listened(anna, "anna", at(0))
    here.part.read_retained(anna, ["u"], None, 1, None, lambda *end: ends.append(end))
    assert ends == [(False, False)]
    here.has_topics()
    assert here.said(anna) == ["recovered at 0"]


def test_a_listen_that_succeeds_with_a_position_of_this_cluster_has_no_gap_of_the_one_before(here: Here) -> None:
    here.keep("t", 3)
    advance(here)
    anna, _ = here.listens(recover="other.5")
    here.desk.stored.clear()
    here.part.listens(anna, "anna")
    here.part.listened(anna, "anna", at(3))
    here.has_topics("t")
    assert here.said(anna) == ["recovered at 3"]


def test_what_a_subscribe_was_sent_before_a_failure_is_not_sent_once_more() -> None:
    """This includes messages that had ended before any was held."""
    here = Here("a")
    (of_a,) = here.topics_at("a", 1)
    here.clock.see(9)
    here.told("a", 9)
    anna, _ = here.listens()
    here.part.hold_for(anna, "anna")
    ends: list[tuple[bool, bool]] = []
    here.part.read_retained(anna, [of_a], None, 9, None, lambda *end: ends.append(end))
    (call,) = here.take_asked(HistoryRequest)
    call.asker.answered(call, answer((of_a, 51, 3), number=7, watermark=9))
    assert here.said(anna) == [f"{of_a} 51 kept"]
    (fetch,) = here.take_asked(FetchRequest)
    fetch.asker.failed(fetch, "internal", "nothing is left of that answer")
    here.goes_on()
    (call,) = here.take_asked(HistoryRequest)
    call.asker.answered(call, answer((of_a, 51, 3), (of_a, 52, 4), watermark=9))
    assert here.said(anna)[0] == f"{of_a} 52 kept"
    assert ends == [(True, False)]


EVENTS: dict[str, Callable[[Here, Connection], None]] = {
    "its time is over": lambda here, anna: here.part.tick(),
    "its connection is over": lambda here, anna: here.part.closed(anna),
    "a listen comes": lambda here, anna: here.part.listens(anna, "anna"),
}


@pytest.mark.parametrize("event", EVENTS)
def test_a_command_whose_attempt_is_over_is_told_so_once_whatever_else_its_turn_brings(here: Here, event: str) -> None:
    here.keep("t", 3)
    anna, _ = here.listens()
    ends: list[tuple[bool, bool]] = []
    here.part.hold_for(anna, "anna")
    here.part.read_retained(anna, ["t"], None, 1, None, lambda *end: ends.append(end))
    here.desk.now += COMMAND_S
    while not here.attempts.over:  # in slices of a job, while the turn goes on
        here.desk.work()
        here.has_no_filters()
    EVENTS[event](here, anna)
    here.turn()
    assert len(ends) == 1
