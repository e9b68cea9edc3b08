"""The destination: it puts each message into outboxes once for each client, and reports to the homes."""

from __future__ import annotations

from typing import Any

import pytest

from ingeborg.broker.core.codec import MESSAGES, Codec, Lines, TextFrames
from ingeborg.broker.core.limits import SIZES, Sizes
from ingeborg.broker.core.links.link import Link
from ingeborg.broker.core.links.requests import BroadcastRequest, Carried, DeliverRequest, DeliverToListRequest
from ingeborg.broker.core.messages.delivery import (
    LONG_BYTES,
    RECENT_S,
    SLICE_BYTES,
    Delivered,
)
from ingeborg.broker.core.topics.moved import MOVED_S
from ingeborg.protocol.frames import text_frame
from ingeborg.protocol.messages import notification

from ..way import ANN, Way, message, note

CROWD = [f"c{number}" for number in range(SIZES.delivery_slice + 1)]


@pytest.fixture
def way() -> Way:
    return Way(ANN)


class Homes:
    """The homes' requests to the endpoint, and its answers."""

    def __init__(self, way: Way) -> None:
        self.way = way
        self.request = 0

    def deliver(
        self,
        clients: list[str] | None,
        topic: str = "t",
        number: int = 1,
        payload: bytes = b'"news"',
        name: str | None = None,
    ) -> int:
        """Deliver, as a peer that is home of the topic, the message of this number to these clients, or to those of a
        list. Returns the request's number."""
        self.request += 1
        if name is not None:
            to_list = DeliverToListRequest(Carried(topic, payload, "o", number), name, clients)
            self.way.delivery.deliver_to_list_requested("a", self.request, to_list)
        elif clients is not None:
            request = DeliverRequest(Carried(topic, payload, "o", number), clients)
            self.way.delivery.deliver_requested("a", self.request, request)
        return self.request

    def broadcast(self, number: int = 1) -> int:
        self.request += 1
        self.way.delivery.broadcast_requested("a", self.request, BroadcastRequest(Carried("", b'"news"', "o", number)))
        return self.request

    def told(self) -> list[tuple[int, Any]]:
        """Return the answers since the last call: the request's number, and the clients that were absent or have moved
        away."""
        self.way.delivery.take_delivered()
        answers = self.way.desk.answers[:]
        self.way.desk.answers.clear()
        return [(number, value or []) for _, number, value in answers]


@pytest.fixture
def homes(way: Way) -> Homes:
    return Homes(way)


def slice_of_a_job(way: Way) -> None:
    """Run one slice of one job, as the router does."""
    job = way.desk.jobs.popleft()
    try:
        next(job)
    except StopIteration:
        return
    way.desk.jobs.append(job)


def test_clients_here_get_it_and_the_home_is_told_who_is_not_here(way: Way, homes: Homes) -> None:
    carl = way.listens("carl")
    request = homes.deliver(["carl", "dora"])
    assert homes.told() == [(request, ["dora"])]
    assert way.written(carl) == [note("t")]
    assert way.hub.missed == ["dora"]  # another part has to find her
    assert way.desk.stored == []
    assert way.desk.counts["messages_delivered"] == 1


def test_two_clients_of_one_connection_get_one_each_of_one_frame_encoded_once(way: Way, homes: Homes) -> None:
    both, third = way.listens("carl", "dora"), way.listens("emil")
    homes.deliver(["carl", "dora", "emil"])
    written = dict(way.sending.write())
    assert (written[both], written[third]) == ([note("t")] * 2, [note("t")])
    assert written[both][0] is written[both][1] is written[third][0]
    assert way.desk.counters.put == [(way.desk.now, 3)]


def test_each_connection_gets_it_in_its_codec_encoded_once_for_each(way: Way, homes: Homes) -> None:
    codecs: list[Codec] = [TextFrames(), Lines(), MESSAGES]
    forms = [text_frame(note("t")), note("t"), note("t")]
    names = [f"c{number}" for number in range(12)]
    connections = [way.listens(name, codec=codecs[number % 3]) for number, name in enumerate(names)]
    homes.deliver(names)
    written = dict(way.sending.write())
    for number, connection in enumerate(connections):
        (frame,) = written[connection]
        assert frame == forms[number % 3]
        assert frame is written[connections[number % 3]][0]
    homes.broadcast(number=2)
    way.desk.work()
    written = dict(way.sending.write())
    everybody = notification("", b'"news"')
    assert [written[each] for each in connections[:3]] == [[text_frame(everybody)], [everybody], [everybody]]


# Once


def test_a_message_that_comes_again_goes_only_to_whom_it_has_not_gone(way: Way, homes: Homes) -> None:
    carl, dora = way.listens("carl"), way.listens("dora")
    homes.deliver(["carl"])
    again = homes.deliver(["carl", "dora"])  # from a home that took over
    written = dict(way.sending.write())
    assert written == {carl: [note("t")], dora: [note("t")]}
    assert homes.told()[-1] == (again, [])
    assert way.desk.counts["messages_delivered"] == 2


def test_the_same_payload_under_another_number_is_another_message(way: Way, homes: Homes) -> None:
    carl = way.listens("carl")
    homes.deliver(["carl"], number=1)
    homes.deliver(["carl"], number=2)
    assert way.written(carl) == [note("t")] * 2


def test_who_was_not_here_then_gets_it_when_it_comes_again(way: Way, homes: Homes) -> None:
    homes.deliver(["carl"])
    carl = way.listens("carl")
    homes.deliver(["carl"])
    assert way.written(carl) == [note("t")]


def test_it_is_remembered_for_longer_than_anybody_sends_it_again_and_no_longer(way: Way, homes: Homes) -> None:
    carl = way.listens("carl")
    homes.deliver(["carl"])
    way.desk.now += RECENT_S - 0.1
    way.delivery.tick()
    homes.deliver(["carl"])
    assert len(way.written(carl)) == 1
    way.desk.now += RECENT_S  # the repetition was a reason to remember it longer
    way.delivery.tick()
    homes.deliver(["carl"])
    assert len(way.written(carl)) == 1


@pytest.mark.parametrize("sizes", [Sizes(recent_max=2), Sizes(recent_clients_max=4)], ids=["messages", "recipients"])
def test_what_is_forgotten_before_its_time_for_want_of_room_is_counted(sizes: Sizes) -> None:
    way = Way(sizes=sizes)
    homes = Homes(way)
    carl = way.listens("carl", "dora")
    for number in (1, 2, 3):
        homes.deliver(["carl", "dora"], number=number)
    assert way.desk.drops == {"recent_evicted": 1}
    way.written(carl)
    for number in (3, 2):
        homes.deliver(["carl", "dora"], number=number)
    assert way.written(carl) == []
    homes.deliver(["carl", "dora"], number=1)
    assert len(way.written(carl)) == 2


# Many


def test_a_message_for_many_goes_out_in_slices_and_is_confirmed_when_it_has_gone_to_all(way: Way, homes: Homes) -> None:
    way.listens(*CROWD)
    request = homes.deliver(CROWD)
    assert way.desk.counts["messages_delivered"] == 0
    slice_of_a_job(way)
    assert way.desk.counts["messages_delivered"] == SIZES.delivery_slice
    assert homes.told() == []
    way.desk.work()
    assert homes.told() == [(request, [])]
    assert way.desk.counts["messages_delivered"] == len(CROWD)


def test_behind_it_the_topics_next_messages_wait_and_those_of_others_do_not(way: Way, homes: Homes) -> None:
    way.listens(*CROWD)
    carl = way.listens("carl")
    many = homes.deliver([*CROWD, "carl"], number=1, payload=b"1")
    behind = homes.deliver(["carl"], number=2, payload=b"2")
    other = homes.deliver(["carl"], topic="u", number=3, payload=b"3")
    assert homes.told() == [(other, [])]
    way.desk.work()
    assert homes.told() == [(many, []), (behind, [])]
    assert way.written(carl) == [note("u", b"3"), note("t", b"1"), note("t", b"2")]
    last = homes.deliver(["carl"], number=4, payload=b"4")
    assert homes.told() == [(last, [])]  # nothing more goes out


def test_one_that_comes_again_while_it_is_going_out_goes_to_nobody_twice(way: Way, homes: Homes) -> None:
    crowd = way.listens(*CROWD)
    homes.deliver(CROWD)
    slice_of_a_job(way)
    again = homes.deliver(CROWD)
    way.desk.work()
    assert len(way.written(crowd)) == len(CROWD)
    assert (again, []) in homes.told()


def test_of_many_who_had_gone_when_their_slice_came_has_not_had_it(way: Way, homes: Homes) -> None:
    crowd = way.listens(*CROWD)
    request = homes.deliver(CROWD)
    way.hub.unbind(CROWD[-1], crowd)
    way.desk.work()
    assert homes.told() == [(request, [CROWD[-1]])]
    back = way.listens(CROWD[-1])
    homes.deliver(CROWD)
    way.desk.work()
    assert way.written(back) == [note("t")]


def test_a_long_message_goes_to_fewer_at_a_time(way: Way) -> None:
    assert way.delivery.per_slice(b"x" * LONG_BYTES) == SIZES.delivery_slice
    assert way.delivery.per_slice(b"x" * (SLICE_BYTES // 10)) == 10
    assert way.delivery.per_slice(b"x" * (2 * SLICE_BYTES)) == 1


def test_a_long_message_for_a_few_goes_out_in_slices_too(way: Way, homes: Homes) -> None:
    way.listens("carl", "dora", "emil")
    homes.deliver(["carl", "dora", "emil"], payload=b"1" * (SLICE_BYTES // 2 + 1))
    slice_of_a_job(way)
    assert way.desk.counts["messages_delivered"] == 1


def test_a_list_that_was_never_sent_is_declined(way: Way, homes: Homes) -> None:
    way.links["a"] = Link("one")
    request = homes.deliver(None, name="t")
    assert way.desk.declined == [("a", request, "internal")]
    assert homes.told() == []


def test_a_list_that_a_home_has_sent_to_be_kept_serves_its_next_messages(way: Way, homes: Homes) -> None:
    carl = way.listens("carl")
    way.links["a"] = Link("one")
    homes.deliver(["carl", "dora"], number=1, name="t")
    request = homes.deliver(None, number=2, name="t")
    assert homes.told()[-1] == (request, ["dora"])
    assert len(way.written(carl)) == 2


def test_the_home_here_is_told_at_once_and_no_peer_is_answered(way: Way) -> None:
    way.listens("carl")
    told: Delivered = way.fanout.delivered
    assert way.delivery.deliver(message("t"), ["carl", "dora"], "the ticket", told) == ["dora"]
    assert (list(told), way.desk.answers, way.hub.missed) == ([], [], [])


def test_of_a_message_for_many_the_home_here_is_told_later_by_its_ticket(way: Way) -> None:
    way.listens("carl")
    told: Delivered = way.fanout.delivered
    assert way.delivery.deliver(message("t"), ["carl", *CROWD], "the ticket", told) is None
    assert way.delivery.deliver(message("t"), ["carl"], "the next", told) is None  # it waits behind that one
    assert not told
    way.desk.work()
    assert list(told) == [("the ticket", CROWD), ("the next", [])]
    assert (way.desk.answers, way.hub.missed) == ([], [])


# Broadcasts


def test_a_broadcast_goes_to_all_who_are_here_once_however_often_it_comes(way: Way, homes: Homes) -> None:
    crowd = way.listens(*CROWD)
    first, second = homes.broadcast(), homes.broadcast()
    assert homes.told() == []
    way.desk.work()
    assert homes.told() == [(first, []), (second, [])]
    assert len(way.written(crowd)) == len(CROWD)


def test_a_message_that_comes_again_and_again_is_recorded_once(way: Way, homes: Homes) -> None:
    way.listens(*CROWD)
    for _ in range(5):
        homes.deliver(list(CROWD), number=1)
        way.desk.work()
    delivery = way.delivery
    assert sum(len(record.clients) for record in delivery._by_age) == len(CROWD)


def test_who_comes_after_it_has_begun_is_its_home_s_to_find(way: Way, homes: Homes) -> None:
    way.listens(*CROWD)
    homes.broadcast()
    slice_of_a_job(way)
    late = way.listens("late")
    way.desk.work()
    assert way.written(late) == []
    homes.deliver(["late"], topic="", number=1)  # the message has followed the client to this endpoint
    assert way.written(late) == [note("")]


def test_who_had_it_as_everybody_does_not_get_it_again_as_one_who_is_followed(way: Way, homes: Homes) -> None:
    carl = way.listens("carl")
    homes.broadcast()
    way.desk.work()
    request = homes.deliver(["carl"], topic="", number=1)
    assert way.written(carl) == [note("")]
    assert (request, []) in homes.told()


def test_who_was_followed_to_here_before_the_broadcast_came_here_gets_it_once(way: Way, homes: Homes) -> None:
    carl, dora = way.listens("carl"), way.listens("dora")
    homes.deliver(["carl"], topic="", number=1)
    homes.broadcast()
    way.desk.work()
    assert dict(way.sending.write()) == {carl: [note("")], dora: [note("")]}


def test_the_home_is_told_who_has_moved_away_lately_and_since_when(way: Way, homes: Homes) -> None:
    way.listens("carl")
    way.moved_away.add("carl", way.desk.now)  # and has come back
    way.moved_away.add("dora", way.desk.now)
    way.desk.now += 3.0
    request = homes.broadcast()
    way.desk.work()
    assert homes.told() == [(request, [["dora", 3.0]])]


def test_who_moves_away_while_it_is_going_out_is_among_them(way: Way, homes: Homes) -> None:
    crowd = way.listens(*CROWD)
    request = homes.broadcast()
    slice_of_a_job(way)
    way.hub.unbind(CROWD[-1], crowd)
    way.moved_away.add(CROWD[-1], way.desk.now)
    way.desk.work()
    assert homes.told() == [(request, [[CROWD[-1], 0.0]])]


def test_a_broadcast_that_cannot_know_all_who_moved_away_is_counted_until_it_can() -> None:
    way = Way(sizes=Sizes(moved_max=1))
    homes = Homes(way)
    way.moved_away.add("carl", way.desk.now)
    way.moved_away.add("dora", way.desk.now)
    homes.broadcast(1)
    way.desk.work()
    assert way.desk.drops == {"moved_evicted": 1}
    way.desk.now += MOVED_S
    way.delivery.tick()
    request = homes.broadcast(2)
    way.desk.work()
    assert way.desk.drops == {"moved_evicted": 1}
    assert homes.told()[-1] == (request, [])
