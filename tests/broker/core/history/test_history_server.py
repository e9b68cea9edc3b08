"""A home's answer about the messages that a client has missed: by look-up or by search, in pages, or that it cannot
tell."""

from __future__ import annotations

from typing import Any

import pytest

from ingeborg.broker.core.cluster.slots import unpack_slots
from ingeborg.broker.core.history import history_server as history_server_module
from ingeborg.broker.core.history.history_server import FETCHED_S, GAPS_MAX, OPEN_MAX, PAGE_MESSAGES
from ingeborg.broker.core.limits import Limits
from ingeborg.broker.core.links.calls import NOT_HOME, WAIT
from ingeborg.broker.core.links.frames import encoded
from ingeborg.broker.core.links.requests import FetchRequest, HistoryPage, HistoryRequest
from ingeborg.broker.core.retained import log as log_module
from ingeborg.broker.core.topics.topic_filters import TopicFilters
from ingeborg.protocol.hashes import slot_of
from tests import wants

from .here import Here

MUCH = Limits(history_bytes=1 << 24, history_size=5_000)


def look(here: Here, *topics: str, since: int = 0, **more: Any) -> HistoryPage | None:
    """Return this endpoint's answer about these few topics."""
    told: list[HistoryPage | None] = []
    here.history_server.ask(
        HistoryRequest("anna", since, list(topics), **more), lambda context, answer: told.append(answer), None
    )
    return told[0]


def stamps(answer: HistoryPage | None) -> list[int]:
    assert answer is not None
    return [row[4] for row in answer.rows]


def test_of_few_topics_all_since_comes_by_the_stamps_with_the_mark() -> None:
    here = Here()
    first = here.keep("t", 3)
    for topic, stamp in (("u", 2), ("t", 5), ("u", 4), ("v", 6)):
        here.keep(topic, stamp)
    open_stamp = here.clock.stamp()
    answer = look(here, "t", "u", since=2)
    assert answer is not None
    assert answer.number == 0
    assert stamps(answer) == [3, 4, 5]
    assert answer.rows[0] == ("t", b"1", "o", first.number, 3)
    assert (answer.gap_topics, answer.gap_slots, answer.covered, answer.watermark) == ([], [], None, open_stamp - 1)


def test_a_gap_is_told_by_what_the_topic_has_forgotten_or_the_floor_of_its_slot() -> None:
    here = Here()
    here.keep("t", 5)
    here.log.forget_to(slot_of("t"), "t", 3)
    here.log.raise_floor(slot_of("u"), 7)
    here.log.raise_floor(slot_of("t"), 2)
    for since, gaps in ((1, ["t", "u"]), (2, ["t", "u"]), (3, ["u"]), (6, ["u"]), (7, [])):
        answer = look(here, "t", "u", "v", since=since)
        assert answer is not None
        assert (since, answer.gap_topics) == (since, gaps)
    latest = look(here, "t", "u", latest=1)
    assert latest is not None
    assert latest.gap_topics == []


def test_since_a_message_by_its_name() -> None:
    here = Here()
    entries = [here.keep("t", stamp) for stamp in (3, 4, 5)]
    answer = look(here, "t", name=("o", entries[0].number), limit=1)
    assert answer is not None
    assert (answer.number, stamps(answer), answer.gap_topics) == (-1, [4], [])
    answer = look(here, "t", name=("o", entries[1].number), limit=1)
    assert answer is not None
    assert (answer.number, stamps(answer), answer.gap_topics) == (0, [5], [])
    # A position that nobody knows, or no longer: the answer has everything kept, and does not claim to be complete.
    answer = look(here, "t", name=("o", 99), limit=10)
    assert answer is not None
    assert (stamps(answer), answer.gap_topics) == ([3, 4, 5], ["t"])


def test_of_a_slot_of_another_home_or_one_that_is_read_nothing_is_said() -> None:
    here = Here("a")
    (of_a,), (mine,) = here.topics_at("a", 1), here.topics_at("m", 1)
    assert look(here, mine, of_a) is None
    assert look(here, mine) is not None
    here.journal.loading[slot_of(mine)] = 1
    assert look(here, mine) is None
    here.history_server.history_requested("a", 7, HistoryRequest("anna", 0, [mine]))
    assert here.desk.declined == [("a", 7, NOT_HOME)]


def test_nothing_is_said_while_this_endpoint_does_not_act() -> None:
    here = Here()
    here.history_server.lapsed()
    assert look(here, "t") is None
    told: list[Any] = []
    here.history_server.ask(HistoryRequest("anna", 0, None), lambda context, answer: told.append(answer), None)
    assert told == [None]
    here.history_server.joined()  # the state of its slots has arrived
    assert look(here, "t") is not None


def test_pages_are_fetched_one_by_one_and_each_once() -> None:
    here = Here("a", limits=MUCH)
    (mine,) = here.topics_at("m", 1)
    for stamp in range(1, 2 * PAGE_MESSAGES + 11):
        here.keep(mine, stamp)
    here.desk.answers.clear()
    here.history_server.history_requested("a", 7, HistoryRequest("anna", 0, [mine]))
    [(_, _, fields)] = here.desk.answers
    answer = HistoryRequest.answer.decode(encoded(fields))
    number, found = answer.number, stamps(answer)
    assert number > 0
    while number:
        page = here.history_server.fetch("a", number)
        assert page is not None
        found += stamps(page)
        assert page.number in (0, number)
        number = page.number
    assert found == list(range(1, 2 * PAGE_MESSAGES + 11))
    here.desk.answers.clear()
    here.history_server.fetch_requested("a", 8, FetchRequest(answer.number))  # nothing is left
    here.history_server.fetch_requested("b", 9, FetchRequest(answer.number))  # and it was not b's answer either
    assert [(peer, number) for peer, number, _ in here.desk.declined] == [("a", 8), ("b", 9)]


def test_a_page_has_so_many_bytes_and_one_message_at_least() -> None:
    here = Here()
    for stamp in range(1, 4):
        here.keep("t", stamp, b"x" * (history_server_module.PAGE_BYTES + 1))
    answer = look(here, "t")
    assert answer is not None
    assert (stamps(answer), answer.number > 0) == ([1], True)
    page = here.history_server.fetch("", answer.number)
    assert stamps(page) == [2]


def test_what_is_forgotten_before_it_was_fetched_is_a_gap_and_what_was_taken_back_is_none() -> None:
    here = Here(limits=MUCH)
    entries = [here.keep("t", stamp) for stamp in range(1, PAGE_MESSAGES + 5)]
    answer = look(here, "t")
    assert answer is not None
    here.log.remove(slot_of("t"), entries[-1])
    entries[-2].expires = here.desk.now
    here.log.get(slot_of("t"), "t").expires = here.desk.now  # type: ignore[union-attr]
    here.log.stamp_anew(slot_of("t"), entries[-3], 2 * PAGE_MESSAGES)
    here.log.sweep(here.desk.now)
    page = here.history_server.fetch("", answer.number)
    assert page is not None
    # The search goes by the stamps at its begin, so that it skips nothing.
    assert (stamps(page), page.gap_topics) == ([PAGE_MESSAGES + 1, PAGE_MESSAGES + 2], ["t"])


def test_what_went_to_another_home_before_it_was_fetched_is_begun_anew_there() -> None:
    here = Here(limits=MUCH)
    for stamp in range(1, PAGE_MESSAGES + 5):
        here.keep("t", stamp)
    answer = look(here, "t")
    assert answer is not None
    here.state.gone([slot_of("t")])
    assert here.history_server.fetch("", answer.number) is None
    assert here.history_server.fetch("", answer.number) is None


def test_who_fetches_nothing_for_long_does_not_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Here(limits=MUCH)
    for stamp in range(1, 2 * PAGE_MESSAGES + 5):
        here.keep("t", stamp)
    kept, left = look(here, "t"), look(here, "t")
    assert kept is not None
    assert left is not None
    here.desk.now += FETCHED_S - 1.0
    assert here.history_server.fetch("", kept.number) is not None
    here.desk.now += 1.0
    here.history_server.tick()
    assert here.history_server.fetch("", left.number) is None
    assert here.history_server.fetch("", kept.number) is not None


def test_too_many_are_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    wants.interpreted()
    assert OPEN_MAX > 1
    monkeypatch.setattr(history_server_module, "OPEN_MAX", 1)
    here = Here(limits=MUCH)
    for stamp in range(1, PAGE_MESSAGES + 5):
        here.keep("t", stamp)
    assert look(here, "t") is not None
    assert look(here, "t") is None
    assert here.desk.drops["recoveries_put_off"] == 1
    assert look(here, "t", since=100) is not None  # the answer fits one page


def test_of_very_many_topics_with_a_gap_the_slots_are_named() -> None:
    here = Here()
    topics = [f"t{number}" for number in range(GAPS_MAX + 1)]
    for topic in topics:
        here.log.forget_to(slot_of(topic), topic, 3)
    few, many = look(here, *topics[1:], since=2), look(here, *topics, since=2)
    assert few is not None
    assert many is not None
    assert (few.gap_topics, few.gap_slots) == (topics[1:], [])
    assert (many.gap_topics, many.gap_slots) == ([], sorted({slot_of(topic) for topic in topics}))


def test_a_long_search_stops_where_the_slots_move_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    wants.interpreted()
    monkeypatch.setattr(history_server_module, "ENTRIES_PER_SLICE", 2)
    here = Here("a")
    mine = here.topics_at("m", 3)
    for stamp, topic in enumerate([*mine, *mine], 1):
        here.keep(topic, stamp)
    told: list[HistoryPage | None] = []

    def ask() -> None:
        here.history_server.ask(HistoryRequest("anna", 0, mine), lambda context, answer: told.append(answer), None)

    ask()
    assert told == []  # it goes on in the next turn
    here.desk.work()
    assert stamps(told.pop()) == [1, 2, 3, 4, 5, 6]
    ask()
    here.members.left("a")
    here.desk.work()
    assert told == [None]


def test_what_is_left_of_all_answers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    wants.interpreted()
    monkeypatch.setattr(history_server_module, "LEFT_MAX", 4)
    here = Here(limits=MUCH)
    for stamp in range(1, PAGE_MESSAGES + 6):
        here.keep("t", stamp)
    for _ in range(3):
        fetched, over = look(here, "t"), None
        assert fetched is not None
        assert look(here, "t") is None  # five of the first topic are left
        here.history_server.fetch("", fetched.number)
        over = look(here, "t")
        assert over is not None
        here.desk.now += FETCHED_S
        here.history_server.tick()
    assert here.desk.drops["recoveries_put_off"] == 3


# -- Searching everything that is kept


def through(here: Here, since: int = 0) -> list[HistoryPage | None]:
    """Ask it for a client with very many topics. The answer comes to the returned list."""
    told: list[HistoryPage | None] = []
    here.history_server.ask(HistoryRequest("anna", since, None), lambda context, answer: told.append(answer), None)
    return told


def test_what_was_kept_since_is_gone_through_and_the_store_says_what_is_the_clients() -> None:
    here = Here("a")
    mine = here.topics_at("m", 3)
    others = here.topics_at("a", 1)
    for stamp, topic in enumerate([*mine, *others, *mine], 1):
        here.keep(topic, stamp)
    told = through(here, since=1)
    here.desk.work()
    (call,) = here.stored("subscribed")
    client, topics, *_ = call.arguments
    assert (client, sorted(topics)) == ("anna", sorted(mine))
    assert told == []
    call.end([topic != mine[1] for topic in topics])
    here.desk.work()
    (answer,) = told
    assert stamps(answer) == [3, 5, 7]
    assert answer is not None
    assert answer.covered is not None
    slots = unpack_slots(answer.covered)
    assert slots == {slot for slot, home in enumerate(here.members.table) if home == "m"}
    assert (answer.gap_topics, answer.gap_slots) == ([], [])


def test_the_store_is_asked_for_what_has_changed_only() -> None:
    here = Here()
    here.keep("t", 3)
    told = through(here, since=3)
    here.desk.work()
    assert here.stored() == []
    assert stamps(told[0]) == []


def test_gaps_are_of_the_clients_topics_and_of_slots() -> None:
    here = Here()
    for topic in ("t", "u"):
        here.keep(topic, 5)
        here.log.forget_to(slot_of(topic), topic, 4)
    here.log.raise_floor(9, 2)
    here.log.raise_floor(10, 3)
    told = through(here, since=2)
    here.desk.work()
    (call,) = here.stored("subscribed")
    call.end([topic == "t" for topic in call.arguments[1]])
    here.desk.work()
    (answer,) = told
    assert answer is not None
    assert (stamps(answer), answer.gap_topics, answer.gap_slots) == ([5], ["t"], [10])


def test_what_moves_from_a_topic_to_its_floor_meanwhile_is_told_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    wants.interpreted()
    monkeypatch.setattr(log_module, "HOLES_MAX", 1)
    monkeypatch.setattr(history_server_module, "TOPICS_PER_SLICE", 1)
    here = Here()
    first, hole, third = sorted(("t", "u", "v"), key=slot_of)
    here.keep(first, 1)
    here.log.forget_to(slot_of(hole), hole, 5)
    told = through(here)
    search = here.desk.jobs.popleft()
    next(search)  # as far as the first topic
    here.log.forget_to(slot_of(third), third, 6)  # without room to remember both by their names
    assert here.log.get(slot_of(hole), hole) is None
    here.desk.jobs.append(search)
    here.desk.work()
    (call,) = here.stored("subscribed")
    call.end([False] * len(call.arguments[1]))
    here.desk.work()
    (answer,) = told
    assert answer is not None
    assert answer.gap_slots == [slot_of(hole)]


@pytest.mark.parametrize("what", ["view", "lapse"])
def test_what_moves_meanwhile_makes_it_no_answer(what: str) -> None:
    here = Here("a")
    (mine,) = here.topics_at("m", 1)
    here.keep(mine, 3)
    told = through(here)
    here.desk.work()
    (call,) = here.stored("subscribed")
    if what == "view":
        here.members.left("a")
    else:
        here.desk.now += 60.0
        here.lose_lease()
    call.end([True])
    here.desk.work()
    assert told == [None]


def test_where_the_store_cannot_say_it_is_no_answer_and_who_waits_is_told_so() -> None:
    here = Here("a")
    (mine,) = here.topics_at("m", 1)
    here.keep(mine, 3)
    here.history_server.history_requested("a", 7, HistoryRequest("anna", 0, None))
    here.desk.now += history_server_module.TELL_S
    here.desk.work()
    assert here.desk.declined == [("a", 7, WAIT)]
    here.stored("subscribed")[0].end(None, OSError("down"))
    here.desk.work()
    assert here.desk.declined[1:] == [("a", 7, NOT_HOME)]


def test_where_the_routing_cache_knows_the_store_is_not_asked() -> None:
    here = Here("a")
    subscribed, not_so, filtered, unread, doubted = here.topics_at("m", 5)
    for stamp, topic in enumerate((subscribed, not_so, filtered, unread, doubted), 1):
        here.keep(topic, stamp)
    routes = here.topics.routes
    routes.filled(subscribed, routes.add(subscribed), {"anna", "bert"})
    routes.filled(not_so, routes.add(not_so), {"bert"})
    routes.add(unread)
    routes.filled(doubted, in_use := routes.add(doubted), {"bert"})
    in_use.passing = True  # it must be read again, as soon as nothing waits in it
    routes.filled(filtered, route := routes.add(filtered), {"bert"})
    route.filters = TopicFilters(loading=False)
    told = through(here)
    here.desk.work()
    (call,) = here.stored("subscribed")
    assert sorted(call.arguments[1]) == sorted((filtered, unread, doubted))
    call.end([topic == filtered for topic in call.arguments[1]])
    here.desk.work()
    assert stamps(told[0]) == [1, 3]
