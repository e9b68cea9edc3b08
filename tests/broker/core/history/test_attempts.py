"""A recovery on its way: the homes that it asks, the order of their answers, and the effect of a failure."""

from __future__ import annotations

import pytest

from ingeborg.broker.core.cluster.slots import pack_slots
from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.connections.outbox import Outbox
from ingeborg.broker.core.history import attempts as attempts_module
from ingeborg.broker.core.history.attempts import ALL_SLOTS, GAP_NAMES_MAX, ROWS_PER_SLICE
from ingeborg.broker.core.history.history_server import PAGE_MESSAGES
from ingeborg.broker.core.links.calls import Call
from ingeborg.broker.core.links.requests import FetchRequest, HistoryRequest
from ingeborg.broker.core.model import Subscription
from ingeborg.protocol.hashes import SLOTS
from tests import wants

from ..retained.here import at
from .here import Here, answer, short

NOT_MINE = bytes(len(ALL_SLOTS))


@pytest.fixture
def here() -> Here:
    return Here("a", "b")


def end(call: Call, value: object) -> None:
    call.asker.answered(call, value)


def begun(here: Here, *topics: str, since: int = 0) -> tuple[Connection, dict[str, Call]]:
    """Begin the recovery of a client with these topics. Returns the requests by peer."""
    anna, _ = here.listens(recover=at(since))
    here.has_topics(*topics)
    return anna, {call.target: call for call in here.take_asked(HistoryRequest)}


def test_each_home_is_asked_for_its_topics_and_what_they_answer_is_merged_by_the_stamps(here: Here) -> None:
    [mine], [of_a, also_a], [of_b] = here.topics_at("m", 1), here.topics_at("a", 2), here.topics_at("b", 1)
    first, last = here.keep(mine, 2), here.keep(mine, 9)
    anna, asked = begun(here, mine, of_a, of_b, also_a, since=1)
    assert asked["a"].request == HistoryRequest("anna", 1, [of_a, also_a])
    assert asked["b"].request == HistoryRequest("anna", 1, [of_b])
    assert here.said(anna) == []
    end(asked["a"], answer((of_a, 51, 3), (also_a, 52, 7), watermark=9))
    assert here.said(anna) == []
    end(asked["b"], answer((of_b, 61, 1), (of_b, 62, 8), watermark=9))
    heard = [said for said in here.said(anna) if "at" not in said]
    assert heard == [
        f"{of_b} 61 kept",
        f"{mine} {first.number} kept",
        f"{of_a} 51 kept",
        f"{also_a} 52 kept",
        f"{of_b} 62 kept",
        f"{mine} {last.number} kept",
    ]
    assert here.desk.counts["messages_sent_again"] == 6
    assert here.desk.counts["recoveries"] == 1


def test_a_position_says_no_more_than_what_is_known_of_the_homes_that_were_not_asked(here: Here) -> None:
    """A home without a request can accept a message with a smaller stamp than the last one of the others."""
    (mine,) = here.topics_at("m", 1)
    entry = here.keep(mine, 90)
    here.told("a", 70)
    here.told("b", 60)
    anna, asked = begun(here, mine)
    assert asked == {}
    assert here.said(anna) == [f"{mine} {entry.number} kept", "at 60", "recovered at 60"]


def test_of_all_homes_it_is_the_least_of_their_marks(here: Here) -> None:
    anna, _ = here.listens(recover=at(0))
    (call,) = here.stored("topics")
    call.end((["t"], "more"))
    asked = {call.target: call for call in here.take_asked(HistoryRequest)}
    assert [call.request.topics for call in asked.values()] == [None, None]
    here.desk.work()
    assert here.stored() == []
    end(asked["a"], answer(("t", 51, 3), ("t", 52, 12), slots=ALL_SLOTS, watermark=8))
    end(asked["b"], answer(("u", 61, 5), slots=NOT_MINE, watermark=11))
    assert here.said(anna) == ["t 51 kept", "u 61 kept", "t 52 kept", "recovered at 0"]  # our own watermark


def test_slots_that_nobody_answered_for_have_it_begun_anew(here: Here) -> None:
    anna, _ = here.listens(recover=at(0))
    here.stored("topics")[0].end((["t"], "more"))
    for call in here.take_asked(HistoryRequest):
        end(call, answer((call.target, 51, 3), slots=pack_slots([1]), floors=[1], watermark=8))
    assert here.said(anna) == []
    here.goes_on()
    here.stored("topics")[0].end((["t"], "more"))
    for call in here.take_asked(HistoryRequest):
        end(call, answer(slots=ALL_SLOTS, watermark=8))
    # Earlier frames do not count.
    assert here.said(anna) == ["recovered at 0"]


def test_gaps_come_before_the_messages(here: Here) -> None:
    [of_a], [of_b] = here.topics_at("a", 1), here.topics_at("b", 1)
    anna, asked = begun(here, of_a, of_b)
    end(asked["a"], answer((of_a, 51, 3), gaps=[of_a]))
    end(asked["b"], answer(floors=[7, SLOTS - 1]))
    assert here.said(anna)[:3] == [f"gap {of_a}", f"gap 7 {SLOTS - 1}", f"{of_a} 51 kept"]


def test_many_topics_with_a_gap_are_told_in_several_frames(here: Here) -> None:
    (of_a,) = here.topics_at("a", 1)
    anna, asked = begun(here, of_a)
    end(asked["a"], answer(gaps=[f"t{number}" for number in range(GAP_NAMES_MAX + 1)]))
    gaps = here.said(anna)[:2]
    assert [len(gap.split()) - 1 for gap in gaps] == [GAP_NAMES_MAX, 1]


def test_pages_are_fetched_before_anything_behind_them_is_sent(here: Here) -> None:
    [of_a], [of_b] = here.topics_at("a", 1), here.topics_at("b", 1)
    here.clock.see(10)
    here.told("a", 9)
    here.told("b", 9)
    anna, asked = begun(here, of_a, of_b)
    end(asked["a"], answer((of_a, 51, 3), number=7, watermark=9))
    end(asked["b"], answer((of_b, 61, 2), (of_b, 62, 5), watermark=9))
    assert here.said(anna) == [f"{of_b} 61 kept", f"{of_a} 51 kept", "at 2"]  # its next message can have the same stamp
    (fetch,) = here.take_asked(FetchRequest)
    assert (fetch.target, fetch.request) == ("a", FetchRequest(7))
    end(fetch, answer((of_a, 52, 4), number=7, gaps=[of_a], slots=b""))
    assert here.said(anna) == [f"gap {of_a}", f"{of_a} 52 kept", "at 3"]
    (fetch,) = here.take_asked(FetchRequest)
    end(fetch, answer((of_a, 53, 6), slots=b""))
    assert here.said(anna) == [f"{of_b} 62 kept", f"{of_a} 53 kept", "at 6", "recovered at 9"]


@pytest.mark.parametrize("how", ["lost", "failed", "none"])
def test_after_a_failure_it_goes_on_from_where_it_had_got_to(here: Here, how: str) -> None:
    (of_a,) = here.topics_at("a", 1)
    here.clock.see(10)
    here.told("a", 9)
    here.told("b", 9)
    anna, asked = begun(here, of_a, since=1)
    end(asked["a"], answer((of_a, 51, 3), number=7, watermark=9))
    assert here.said(anna) == [f"{of_a} 51 kept", "at 2"]
    (fetch,) = here.take_asked(FetchRequest)
    if how == "lost":
        assert fetch.asker.lost(fetch) is None
    elif how == "failed":
        fetch.asker.failed(fetch, "internal", "nothing is left of that answer")
    else:
        end(asked["a"], None)
    here.comes(anna, of_a, 60)
    assert here.said(anna) == []
    assert here.stored() == []
    here.goes_on()
    here.has_topics(of_a)
    (again,) = here.take_asked(HistoryRequest)
    assert (again.request.client, again.request.since) == ("anna", 2)
    end(fetch, answer((of_a, 99, 4)))  # from before the restart: it is too late
    end(again, answer((of_a, 52, 5), watermark=9))
    assert here.said(anna) == [f"{of_a} 52 kept", "at 5", f"{of_a} 60", "recovered at 9"]


def test_it_is_tried_again_and_again_while_the_store_or_a_home_is_out_of_reach(here: Here) -> None:
    (of_a,) = here.topics_at("a", 1)
    anna, _ = here.listens(recover=at(0))
    for _ in range(3):
        here.stored("topics")[0].end(None, OSError("down"))
        here.goes_on()
    here.has_topics(of_a)
    for _ in range(3):
        (call,) = here.take_asked(HistoryRequest)
        call.asker.failed(call, "peer_unavailable", "")
        here.goes_on()
        here.has_topics(of_a)
    end(here.take_asked(HistoryRequest)[0], answer())
    assert here.said(anna) == ["recovered at 0"]
    assert here.desk.counts["recoveries"] == 1


def test_it_waits_until_this_endpoint_acts_again(here: Here) -> None:
    (of_a,) = here.topics_at("a", 1)
    anna, _ = here.listens(recover=at(0))
    here.desk.now += 60.0
    here.lose_lease()
    here.has_topics(of_a)
    assert here.take_asked() == []
    here.goes_on()
    bert, _ = here.listens("bert", at(0))
    here.goes_on()
    assert here.stored() == []  # neither has any
    here.hub.unbind("bert", bert)
    for incarnation in ("a", "b"):
        here.members.heard(incarnation, here.desk.now)
    here.join()
    here.goes_on()
    here.has_topics(of_a)
    end(here.take_asked(HistoryRequest)[0], answer())
    assert here.said(anna)[-1] == "recovered at 0"


def test_a_slow_reader_is_sent_as_much_as_it_takes_and_is_not_closed(here: Here) -> None:
    anna = here.begins()
    anna.outbox = Outbox(100_000)
    count = 0
    topics = here.topics_at("m", 60)
    for topic in topics:
        for _ in range(90):
            count += 1
            here.keep(topic, count, b'"%b"' % (b"x" * 40))
    here.part.listened(anna, "anna", at(0))
    here.has_topics(*topics)
    here.sending.blocked(anna, 10)
    heard: list[str] = []
    most = 0
    for _ in range(1_000):
        here.sending.drained(anna)
        for _ in range(20):  # slices in one turn, before anything is written
            if here.desk.jobs and not next(job := here.desk.jobs.popleft(), True):
                here.desk.jobs.append(job)
            here.has_no_filters()
        most = max(most, anna.outbox.size)
        new = [short(frame) for frame in here.heard(anna)]
        heard += new
        if any("recovered" in said for said in new):
            break
        here.sending.blocked(anna, 10)
    numbers = [int(said.split()[1]) for said in heard if said.endswith("kept")]
    assert len(numbers) == count
    assert numbers == sorted(numbers)
    assert most <= 25_000 + 100 * ROWS_PER_SLICE
    assert here.closes() == []


def test_a_client_with_filters_is_sent_what_they_take(here: Here) -> None:
    plain, filtered, both = here.topics_at("m", 3)
    rock, pop = b'{"genre":"rock"}', b'{"genre":"pop"}'
    for stamp, (topic, payload) in enumerate(
        [(topic, payload) for topic in (plain, filtered, both) for payload in (rock, pop)], 1
    ):
        here.keep(topic, stamp, payload)
    anna, _ = begun(here, plain, filtered, both)
    here.desk.work()
    (call,) = here.stored("subscriptions_of")
    assert call.arguments == ([("anna", plain), ("anna", filtered), ("anna", both)],)
    assert here.said(anna) == []
    text = '{"genre":["rock"]}'
    of_plain, of_filtered = Subscription(plain, "anna"), Subscription(filtered, "anna", text)
    call.end([[of_plain], [of_filtered], [Subscription(both, "anna"), Subscription(both, "anna", text)]])
    heard = [said for said in here.said(anna) if said.endswith("kept")]
    assert [said.split()[0] for said in heard] == [plain, plain, filtered, both, both]


def test_where_filters_cannot_be_read_it_is_begun_anew(here: Here) -> None:
    (topic,) = here.topics_at("m", 1)
    entry = here.keep(topic, 1)
    anna, _ = begun(here, topic)
    here.desk.work()
    here.stored("subscriptions_of")[0].end(None, OSError("down"))
    assert here.said(anna) == []
    here.goes_on()
    here.has_topics(topic)
    here.desk.work()
    here.stored("subscriptions_of")[0].end([[Subscription(topic, "anna")]])
    assert here.said(anna)[0] == f"{topic} {entry.number} kept"


def test_a_subscribe_gives_up_after_a_while_and_what_came_meanwhile_goes_on(here: Here) -> None:
    (of_a,) = here.topics_at("a", 1)
    anna = here.client()
    here.hub.bind("anna", anna)
    here.part.hold_for(anna, "anna")
    ends: list[tuple[bool, bool]] = []
    here.part.read_retained(anna, [of_a], None, 1, None, lambda *end: ends.append(end))
    here.comes(anna, of_a, 9)
    for _ in range(5):
        for call in here.take_asked(HistoryRequest):
            call.asker.failed(call, "peer_unavailable", "")
        here.goes_on()
    assert ends == [(False, False)]
    assert here.said(anna) == [of_a]


def test_a_fast_reader_is_not_closed_by_large_messages_of_its_own_home(here: Here) -> None:
    """The home here has everything at once, and still the unwritten part does not outgrow the outbox."""
    (topic,) = here.topics_at("m", 1)
    count, size = 90, 60_000
    for stamp in range(1, count + 1):
        here.keep(topic, stamp, b'"%b"' % (b"x" * size))
    anna = here.begins()
    anna.outbox = Outbox(100_000)
    here.part.listened(anna, "anna", at(0))
    here.has_topics(topic)
    heard: list[str] = []
    for _ in range(count + 5):
        for _ in range(20):  # slices in one turn, before anything is written
            if here.desk.jobs and not next(job := here.desk.jobs.popleft(), True):
                here.desk.jobs.append(job)
            here.has_no_filters()
        here.turn()
        assert anna.outbox.size <= anna.outbox.bytes_max
        heard += [short(frame) for frame in here.heard(anna)]
    assert here.closes() == []
    assert len([said for said in heard if said.endswith("kept")]) == count
    assert heard[-1].startswith("recovered")


def test_many_that_are_begun_later_are_begun_some_with_each_tick(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    wants.interpreted()
    monkeypatch.setattr(attempts_module, "ATTEMPTS_PER_TICK", 2)
    for number in range(5):
        here.listens(f"c{number}")
    here.part.missed_some(None)
    assert here.stored() == []
    begun = []
    for _ in range(4):
        here.attempts.tick()
        begun.append(len(here.desk.stored))
        here.desk.stored.clear()
    assert begun == [2, 2, 1, 0]


def test_the_home_here_is_asked_for_a_page_when_the_last_one_has_been_sent(here: Here) -> None:
    """Otherwise everything kept would wait a second time behind a slow reader."""
    topics = here.topics_at("m", 30)
    count = 0
    for topic in topics:
        for _ in range(100):
            count += 1
            here.keep(topic, count)
    anna, _ = begun(here, *topics)
    attempt = here.session(anna).attempts[0]
    heard: list[str] = []
    most = 0
    while here.desk.jobs or here.has_no_filters():
        if not next(job := here.desk.jobs.popleft(), True):
            here.desk.jobs.append(job)
        most = max([most, *(len(source.rows) for source in attempt.sources.values())])
        heard += [short(frame) for frame in here.heard(anna)]
    assert len([said for said in heard if said.endswith("kept")]) == count
    assert most <= PAGE_MESSAGES
