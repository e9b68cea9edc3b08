"""Presence: joins and leaves, their announcements, and those that a home cannot announce. SPEC section 2.5."""

from __future__ import annotations

from typing import Any

import pytest

from ingeborg.broker.core.links.calls import TIMEOUT_S
from ingeborg.broker.core.model import StoreUnavailable, Subscribe, Subscription, Term
from ingeborg.broker.core.topics import presence
from ingeborg.broker.core.topics.expiry import WALK_S_MAX
from ingeborg.broker.core.topics.presence import News
from ingeborg.broker.core.topics.write import Write, Writer
from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.hashes import slot_of
from ingeborg.protocol.topics import PRESENCE, TOPIC_BYTES_MAX

from ..fake_desk import Stored
from ..surroundings import Surroundings

DOWN = StoreUnavailable("no quorum")
ROOM, HALL = "room/1", "hall/1"


class Ours(Writer):
    """The writer of subscriptions."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def written(self, write: Write, error: ProtocolError | None) -> None:
        self.told.append("ok" if error is None else error.code)

    def not_home(self, write: Write) -> None:
        self.told.append("not_home")


class Told(Surroundings):
    """The home of all topics, some with presence."""

    def __init__(self, *prefixes: str, unix_s: float = 0.0) -> None:
        super().__init__(unix_s=unix_s)
        topics = self.make_topics(*(prefixes or ("room/", "hall/")))
        assert topics.presence is not None
        self.part, self.writing, self.expiry, self.routes = (
            topics.presence,
            topics.writing,
            topics.expiry,
            topics.routes,
        )
        self.under_way: list[News] = []  # with a message under way

    def write(
        self, client: str, *topics: str, added: bool = True, filter: str | None = None, replace: bool = False
    ) -> Ours:
        """Change a local client's subscriptions to topics of ours."""
        now = self.desk.now
        write = Write(client, list(topics), added, now, now + TIMEOUT_S, None, filter, replace)
        write.writer = ours = Ours()
        self.writing.take(write)
        return ours

    def take_stored(self) -> list[Stored]:
        """Return the calls to the store since the last look."""
        stored = self.desk.stored[:]
        self.desk.stored.clear()
        return stored

    def has(self, client: str, *filters: str | None) -> list[Subscription]:
        """Return the client's subscriptions to the room."""
        return [Subscription(ROOM, client, text) for text in filters]

    def cached(self, topic: str, *clients: str) -> None:
        """Put the topic's subscriber set into the routing cache."""
        self.routes.filled(topic, self.routes.add(topic), set(clients))

    def said(self) -> list[dict[str, list[str]]]:
        """End the turn; return the news of topics with none under way before. They are under way from now on."""
        found: list[dict[str, list[str]]] = []
        while self.part.due:
            news = self.part.due.popleft()
            self.under_way.append(news)
            joined, clients = self.part.next_of(news)
            found.append({"joined" if joined else "left": clients})
        return found

    def has_come(self, *, is_lost: bool = False) -> None:
        """Finish the dispatch of the first message under way, or lose it."""
        self.part.told(self.under_way.pop(0), is_lost)

    @property
    def lost(self) -> int:
        return self.desk.counts["presence_lost"]


@pytest.fixture
def told() -> Told:
    return Told()


# Joins and leaves


def test_a_join_is_told_when_the_store_and_the_cache_have_it_and_nobody_waits_for_the_telling(told: Told) -> None:
    ours = told.write("carl", ROOM)
    (read,) = told.stored("subscriptions_of")
    assert read.arguments == ([("carl", ROOM)],)
    read.end([[]])
    (write,) = told.stored("subscribe")
    told.cached(ROOM, "dora")
    assert (told.said(), ours.told) == ([], [])
    write.end()
    assert ours.told == ["ok"]
    route = told.routes.get(ROOM)
    assert route is not None
    assert route.subscribers is not None
    assert "carl" in route.subscribers
    assert told.said() == [{"joined": ["carl"]}]
    assert (told.under_way[0].topic, told.part.waiting, told.base.inflight.messages) == (ROOM, 1, 1)
    told.has_come()
    assert (told.desk.counts["presence_told"], told.lost, told.part.waiting) == (1, 0, 0)
    assert told.base.inflight.messages == 0


PLAIN, LOUD, ROCK = None, '{"volume":[9]}', '{"genre":["rock"]}'


@pytest.mark.parametrize("filter", [PLAIN, LOUD])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("before", [[], [PLAIN], [LOUD], [ROCK], [PLAIN, LOUD]])
def test_who_had_nothing_at_the_topic_joins_by_whatever_it_subscribes_to(
    told: Told, filter: str | None, replace: bool, before: list[str | None]
) -> None:
    told.write("carl", ROOM, filter=filter, replace=replace)
    told.stored("subscriptions_of")[0].end([told.has("carl", *before)])
    told.stored("subscribe")[0].end()
    assert told.said() == ([] if before else [{"joined": ["carl"]}])


@pytest.mark.parametrize(
    ("filter", "before", "leaves"),
    [
        (None, [], False),
        (None, [PLAIN], True),
        (None, [LOUD], True),
        (None, [PLAIN, LOUD, ROCK], True),
        (LOUD, [], False),
        (LOUD, [PLAIN], False),
        (LOUD, [LOUD], True),
        (LOUD, [ROCK], False),
        (LOUD, [LOUD, ROCK], False),
        (LOUD, [PLAIN, LOUD], False),
    ],
)
def test_who_has_nothing_at_the_topic_any_more_leaves(
    told: Told, filter: str | None, before: list[str | None], leaves: bool
) -> None:
    told.write("carl", ROOM, added=False, filter=filter)
    told.stored("subscriptions_of")[0].end([told.has("carl", *before)])
    told.stored("unsubscribe")[0].end()
    assert told.said() == ([{"left": ["carl"]}] if leaves else [])


def test_topics_without_presence_are_written_as_ever(told: Told) -> None:
    told.write("carl", "other", f"{PRESENCE}room/1", "hall")
    told.stored("subscribe")[0].end()
    told.write("carl", "other")
    told.write("carl", "other")
    assert len(told.stored("subscribe", "subscribe")) == 2
    assert told.said() == []


def test_of_who_is_told_nothing_is_told_whatever_the_prefix() -> None:
    told = Told("p")
    assert told.part.of(["presence:room/1", "people", "presence", "room/1"]) == ["people", "presence"]


def test_of_a_topic_that_leaves_no_room_for_the_prefix_nothing_is_told_but_counted(told: Told) -> None:
    longest = TOPIC_BYTES_MAX - len(PRESENCE)
    fits = "room/é".ljust(longest - 1, "x")
    too_long = "room/é".ljust(longest, "x")
    assert (len(fits.encode()), len(too_long.encode())) == (longest, longest + 1)
    told.write("carl", fits, too_long)
    (read,) = told.stored("subscriptions_of")
    assert read.arguments == ([("carl", fits)],)
    read.end([[]])
    told.stored("subscribe")[0].end()
    assert told.said() == [{"joined": ["carl"]}]
    assert [news.topic for news in told.under_way] == [fits]
    assert told.lost == 1


# Order


def test_two_subscribes_of_a_client_that_overlap_are_one_join(told: Told) -> None:
    first, second = told.write("carl", ROOM), told.write("carl", ROOM)
    told.stored("subscriptions_of")[0].end([[]])
    told.stored("subscribe")[0].end()
    assert (first.told, second.told) == (["ok"], [])
    told.desk.work()
    told.stored("subscriptions_of")[0].end([told.has("carl", PLAIN)])
    told.stored("subscribe")[0].end()
    assert second.told == ["ok"]
    assert told.said() == [{"joined": ["carl"]}]


def test_a_leave_behind_a_join_waits_for_it_and_is_told_behind_it(told: Told) -> None:
    told.write("carl", ROOM)
    told.write("carl", ROOM, added=False)
    told.stored("subscriptions_of")[0].end([[]])
    told.stored("subscribe")[0].end()
    assert told.said() == [{"joined": ["carl"]}]
    told.desk.work()
    told.stored("subscriptions_of")[0].end([told.has("carl", PLAIN)])
    told.stored("unsubscribe")[0].end()
    assert told.said() == []  # a topic has one message at a time
    told.has_come()
    assert told.said() == [{"left": ["carl"]}]


def test_what_changes_while_a_message_is_under_way_goes_into_the_next(told: Told) -> None:
    told.part.tell("c0", [ROOM], True)
    assert told.said() == [{"joined": ["c0"]}]
    for number in range(1, 4):
        told.part.tell(f"c{number}", [ROOM], True)
    told.part.tell("c0", [ROOM], False)
    told.part.tell("c4", [ROOM], True)
    said: list[Any] = []
    while told.under_way:
        assert told.said() == []
        told.has_come()
        said += told.said()
    assert said == [{"joined": ["c1", "c2", "c3"]}, {"left": ["c0"]}, {"joined": ["c4"]}]
    assert (told.part.waiting, told.base.inflight.messages) == (0, 0)


def test_a_message_has_a_thousand_ids_at_most(told: Told) -> None:
    for number in range(presence.IDS_PER_MESSAGE + 1):
        told.part.tell(f"c{number}", [ROOM], True)
    (first,) = told.said()
    assert len(first["joined"]) == presence.IDS_PER_MESSAGE
    told.has_come()
    assert told.said() == [{"joined": [f"c{presence.IDS_PER_MESSAGE}"]}]


def test_other_writes_of_a_client_wait_for_one_that_is_told_and_others_clients_do_not(told: Told) -> None:
    told.write("carl", ROOM)
    told.write("carl", "other")
    told.write("dora", "other")
    read, write = told.stored("subscriptions_of", "subscribe")
    assert write.arguments == ([Subscribe("dora", ["other"])],)
    read.end([[]])
    told.stored("subscribe")[0].end()
    told.desk.work()
    (write,) = told.stored("subscribe")
    assert write.arguments == ([Subscribe("carl", ["other"])],)


# Impossible announcements


def test_where_it_cannot_be_read_what_is_there_the_change_is_made_and_counted_as_lost(told: Told) -> None:
    ours = told.write("carl", ROOM, HALL)
    told.stored("subscriptions_of")[0].end(error=DOWN)
    told.stored("subscribe")[0].end()
    assert (ours.told, told.said(), told.lost) == (["ok"], [], 2)


def test_of_a_write_that_fails_nothing_is_told(told: Told) -> None:
    ours = told.write("carl", ROOM)
    told.stored("subscriptions_of")[0].end([[]])
    told.stored("subscribe")[0].end(error=DOWN)
    assert (ours.told, told.said(), told.lost) == (["store_unavailable"], [], 1)


def test_nor_of_one_that_another_home_may_have_made_meanwhile(told: Told) -> None:
    ours = told.write("carl", ROOM)
    told.stored("subscriptions_of")[0].end([[]])
    (write,) = told.stored("subscribe")
    told.members.round += 1
    write.end()
    assert (ours.told, told.said(), told.lost) == (["not_home"], [], 1)


def test_who_is_home_no_more_when_that_has_been_read_does_not_write(told: Told) -> None:
    ours = told.write("carl", ROOM)
    (read,) = told.stored("subscriptions_of")
    told.members.round += 1
    read.end([[]])
    told.stored()
    told.writing.tick()  # it is the home again by now
    told.stored("subscriptions_of")[0].end([[]])
    told.stored("subscribe")[0].end()
    assert ours.told == ["ok"]


def test_a_change_that_begins_again_counts_a_topic_that_is_too_long_once(told: Told) -> None:
    told.write("carl", ROOM, "room/".ljust(TOPIC_BYTES_MAX, "x"))
    (read,) = told.stored("subscriptions_of")
    told.members.round += 1
    read.end([[]])
    told.writing.tick()
    told.stored("subscriptions_of")
    assert told.lost == 1


def test_a_message_that_is_lost_loses_all_that_it_would_have_told(told: Told) -> None:
    told.part.tell("carl", [ROOM], True)
    told.part.tell("dora", [ROOM], True)
    told.said()
    told.has_come(is_lost=True)
    assert (told.said(), told.lost, told.part.waiting, told.base.inflight.messages) == ([], 2, 0, 0)


def test_too_many_that_wait_are_dropped_and_counted(told: Told) -> None:
    topics = [f"room/{number}" for number in range(presence.WAITING_MAX + 3)]
    told.part.tell("carl", topics, True)
    assert (told.lost, told.part.waiting) == (3, presence.WAITING_MAX)
    assert told.base.inflight.messages == presence.WAITING_MAX  # so this slows publishers


# Expiring subscriptions


class Ends(Told):
    """One client's expired subscriptions to the room, which a walk finds: one without a filter, and one with."""

    def __init__(self) -> None:
        super().__init__(unix_s=100.0)
        self.records = [
            Subscription(ROOM, "carl", text, Term(False, 50.0), stamp) for stamp, text in enumerate((None, LOUD), 1)
        ]

    def find(self) -> list[Stored]:
        """Let the walk reach them; return the calls to the store then."""
        self.desk.now += WALK_S_MAX
        self.expiry.tick()
        asked: list[Stored] = []
        while calls := self.take_stored():
            for call in calls:
                if call.operation == "expiring":
                    call.end((self.records, None))
                elif call.operation == "tidy":
                    call.end(0)
                elif call.operation == "expiring_slots":
                    call.end([slot_of(ROOM)])
                else:
                    asked.append(call)
        return asked

    def ends(self, *before: str | None) -> Stored:
        """Let the walk find them. The store answers that the client has these subscriptions to the room, by their
        filters."""
        (read,) = self.find()
        assert (read.operation, set(read.arguments[0])) == ("subscriptions_of", {("carl", ROOM)})
        read.end([self.has("carl", *before) for _ in read.arguments[0]])
        (end,) = self.stored("end")
        return end


def test_who_has_nothing_left_when_they_have_ended_has_left() -> None:
    told = Ends()
    told.cached(ROOM, "carl", "dora")
    end = told.ends(None, LOUD)
    assert told.said() == []
    end.end([told.records])
    assert told.said() == [{"left": ["carl"]}]


@pytest.mark.parametrize(
    ("before", "over"),
    [
        ([None, LOUD, ROCK], 2),  # another one exists
        ([None, LOUD], 1),  # one got another term since
        ([None, LOUD], 0),  # the client has come back
        ([], 2),  # it had left before
    ],
)
def test_who_has_something_left_or_had_nothing_before_has_not(before: list[str | None], over: int) -> None:
    told = Ends()
    told.ends(*before).end([told.records[:over]])
    assert (told.said(), told.lost) == ([], 0)
    told.write("carl", ROOM)  # the write is no longer held back
    assert told.take_stored()[-1].operation == "subscriptions_of"


def test_of_an_end_that_fails_nothing_is_told_but_counted() -> None:
    told = Ends()
    told.ends(None, LOUD).end(error=DOWN)
    assert (told.said(), told.lost) == ([], 1)


def test_who_subscribes_again_meanwhile_joins_behind_the_leave() -> None:
    told = Ends()
    told.cached(ROOM, "carl")
    end = told.ends(None, LOUD)
    told.write("carl", ROOM)
    assert told.take_stored() == []
    end.end([told.records])
    assert told.said() == [{"left": ["carl"]}]
    told.desk.work()
    (read,) = [call for call in told.take_stored() if call.operation == "subscriptions_of"]
    read.end([[]])
    told.stored("subscribe")[0].end()
    told.has_come()
    assert told.said() == [{"joined": ["carl"]}]


def test_while_something_of_it_is_written_nothing_of_it_ends() -> None:
    told = Ends()
    told.write("carl", ROOM)
    told.stored("subscriptions_of")
    assert told.find() == []


def test_a_store_that_does_not_say_what_is_there_is_asked_again() -> None:
    told = Ends()
    told.find()[0].end(error=DOWN)
    assert told.find() == []  # this walk ends
    assert told.ends(None, LOUD)
