"""A message from its home to the endpoints: its targets, their confirmations, and the search for clients that have
moved."""

from __future__ import annotations

from typing import Any

import pytest

from ingeborg.broker.core.dispatch import Dispatch
from ingeborg.broker.core.limits import SIZES
from ingeborg.broker.core.links.calls import Call
from ingeborg.broker.core.links.link import Link
from ingeborg.broker.core.links.requests import BroadcastRequest, Carried, DeliverRequest, DeliverToListRequest
from ingeborg.broker.core.model import Location, StoreUnavailable
from ingeborg.broker.core.topics.locations import NEVER_LISTENED
from ingeborg.broker.core.topics.moved import MOVED_S

from ..way import ANN, BOB, Way, at, message, note

ENDPOINTS = {"a": ANN, "b": BOB}


@pytest.fixture
def way() -> Way:
    return Way(ANN, BOB)


def hand_over(way: Way, local: list[str], topic: str = "t", **remote: list[str]) -> dict[str, Call]:
    """Dispatch a message to these clients. Returns its requests by the peer's incarnation."""
    for incarnation, clients in remote.items():
        way.listens_at(ENDPOINTS[incarnation], *clients)
    assert not way.fanout.send(Dispatch(message(topic), 0, None, None), local, remote)
    return {call.target: call for call in way.take_asked()}


def confirm(call: Call, *absent: str) -> None:
    """Confirm the message as the endpoint, except for these clients, which are not there."""
    call.asker.answered(call, list(absent))


def fail(call: Call) -> None:
    call.asker.failed(call, "peer_unavailable", "did not answer")


def outcome(way: Way) -> Any:
    """Return the message's outcome: ``"under way"``, ``"dispatched"``, or the error."""
    if not way.fanout.dispatched:
        return "under way"
    _, error = way.fanout.dispatched.popleft()
    return "dispatched" if error is None else error


def relocate(way: Way, **found: Location | None) -> None:
    """Answer the store call about these clients' locations."""
    (read,) = way.take_stored()
    assert (read.operation, read.arguments) == ("locations", (list(found),))
    read.end(list(found.values()))


# Recipients


def test_each_endpoint_gets_it_once_with_its_clients_and_it_is_dispatched_when_all_have_confirmed(way: Way) -> None:
    carl = way.listens("carl")
    calls = hand_over(way, ["carl"], a=["dora", "emil"], b=["fred"])
    assert way.written(carl) == [note("t")]
    assert [call.request for call in calls.values()] == [
        DeliverRequest(Carried("t", b'"news"', "m", 1), ["dora", "emil"]),
        DeliverRequest(Carried("t", b'"news"', "m", 1), ["fred"]),
    ]
    assert way.desk.counts["messages_forwarded"] == 2
    confirm(calls["b"])
    assert outcome(way) == "under way"
    confirm(calls["a"])
    assert outcome(way) == "dispatched"
    assert not way.desk.drops


@pytest.mark.parametrize("clients", [[], ["carl"], ["carl", "dora"]], ids=len)
def test_a_message_for_clients_who_are_all_here_is_dispatched_at_once(way: Way, clients: list[str]) -> None:
    for client in clients:
        way.listens(client)
    assert way.fanout.send(Dispatch(message("t"), 0, None, None), clients, {})
    assert outcome(way) == "under way"  # it gets no later outcome
    assert way.take_asked() == []


def test_that_some_have_it_and_some_do_not_is_said_by_name(way: Way) -> None:
    way.listens("carl")
    calls = hand_over(way, ["carl"], a=["dora"], b=["fred"])
    confirm(calls["a"])
    fail(calls["b"])
    error = outcome(way)
    assert (error.code, error.extra) == ("partial", {"delivered": ["ann", "me"], "failed": ["bob"]})


def test_that_nobody_has_it_may_be_tried_again(way: Way) -> None:
    calls = hand_over(way, [], a=["dora"], b=["fred"])
    fail(calls["a"])
    fail(calls["b"])
    assert outcome(way).code == "peer_unavailable"


def test_an_endpoint_that_holds_none_of_the_clients_has_not_got_it(way: Way) -> None:
    calls = hand_over(way, [], a=["dora"], b=["fred"])
    confirm(calls["a"], "dora")
    relocate(way, dora=at(ANN, number=2, online=False))
    fail(calls["b"])
    assert outcome(way).code == "peer_unavailable"


def test_no_more_has_this_one_that_holds_none_of_them(way: Way) -> None:
    calls = hand_over(way, ["carl"], a=["dora"])
    relocate(way, carl=None)
    fail(calls["a"])
    assert outcome(way).code == "peer_unavailable"


# Moved clients


def test_who_is_not_there_is_looked_for_once_and_gets_it_at_the_new_place(way: Way) -> None:
    calls = hand_over(way, [], a=["dora", "emil"])
    confirm(calls["a"], "dora")
    assert outcome(way) == "under way"
    relocate(way, dora=at(BOB, number=2))
    (again,) = way.take_asked()
    assert (again.target, again.request.clients) == ("b", ["dora"])
    assert way.locations.get("dora") == at(BOB, number=2)
    confirm(again)
    assert outcome(way) == "dispatched"
    assert way.desk.counts["relocations"] == 1
    assert not way.desk.drops


def test_who_has_come_here_meanwhile_gets_it_here(way: Way) -> None:
    calls = hand_over(way, [], a=["dora"])
    dora = way.connection()
    way.hub.bind("dora", dora)
    confirm(calls["a"], "dora")
    relocate(way, dora=Location(2, "m", True))
    assert way.written(dora) == [note("t")]
    assert outcome(way) == "dispatched"


def test_what_is_announced_while_the_store_is_asked_counts_more_than_its_answer(way: Way) -> None:
    calls = hand_over(way, [], a=["dora"])
    confirm(calls["a"], "dora")
    way.locations.learn("dora", at(BOB, number=3))
    relocate(way, dora=at(ANN, number=2))
    assert [call.target for call in way.take_asked()] == ["b"]


def test_who_is_not_at_the_second_place_either_does_not_listen_and_is_counted(way: Way) -> None:
    calls = hand_over(way, [], a=["dora"])
    confirm(calls["a"], "dora")
    relocate(way, dora=at(BOB, number=2))
    (again,) = way.take_asked()
    confirm(again, "dora")
    assert outcome(way) == "dispatched"
    assert way.desk.drops == {"not_listening": 1}
    assert way.locations.get("dora") == at(BOB, number=2, online=False)
    assert way.take_stored() == []


def test_who_listens_nowhere_gets_nothing_and_keeps_nobody_waiting(way: Way) -> None:
    calls = hand_over(way, [], a=["dora"])
    confirm(calls["a"], "dora")
    relocate(way, dora=at(ANN, number=2, online=False))
    assert outcome(way) == "dispatched"
    assert way.take_asked() == []


def test_that_a_client_has_never_listened_is_learnt(way: Way) -> None:
    way.fanout.send(Dispatch(message("t"), 0, None, None), ["dora"], {})
    relocate(way, dora=None)
    assert way.locations.get("dora") == NEVER_LISTENED


def test_when_the_store_cannot_say_where_they_went_they_are_counted_and_the_message_has_failed(way: Way) -> None:
    calls = hand_over(way, [], a=["dora", "emil", "fred"])
    confirm(calls["a"], "dora", "emil")
    (read,) = way.take_stored()
    read.end(error=StoreUnavailable("down"))
    error = outcome(way)
    assert (error.code, error.extra) == ("partial", {"delivered": ["ann"], "failed": ["store"]})
    assert way.desk.drops == {"relocation_failed": 2}


def test_clients_of_an_endpoint_that_is_gone_are_looked_for(way: Way) -> None:
    calls = hand_over(way, [], a=["dora"])
    way.loses(ANN)
    assert calls["a"].asker.lost(calls["a"]) is None
    relocate(way, dora=at(BOB, number=2))
    (again,) = way.take_asked()
    assert again.target == "b"
    confirm(again)
    assert outcome(way) == "dispatched"


def test_who_the_store_still_has_at_an_endpoint_that_is_gone_is_counted(way: Way) -> None:
    calls = hand_over(way, [], a=["dora"])
    way.loses(ANN)
    calls["a"].asker.lost(calls["a"])
    relocate(way, dora=at(ANN))
    assert outcome(way) == "dispatched"
    assert way.desk.drops == {"endpoint_gone": 1}


def test_clients_of_an_endpoint_that_goes_at_the_second_try_are_still_there_should_it_come_back(way: Way) -> None:
    calls = hand_over(way, [], a=["dora"])
    confirm(calls["a"], "dora")
    relocate(way, dora=at(BOB, number=2))
    (again,) = way.take_asked()
    way.loses(BOB)
    again.asker.lost(again)
    assert outcome(way) == "dispatched"
    assert way.desk.drops == {"endpoint_gone": 1}
    assert way.locations.get("dora") == at(BOB, number=2)


# Lists of recipients


MANY = [f"c{number}" for number in range(SIZES.delivery_slice + 1)]


def test_a_list_of_many_goes_over_a_link_once_and_whole_where_the_link_is_another(way: Way) -> None:
    way.links["a"] = Link("one")
    (first,), (second,) = (hand_over(way, [], a=MANY).values() for _ in range(2))
    assert way.desk.linked[first.number] == DeliverToListRequest(Carried("t", b'"news"', "m", 1), "t", MANY)
    assert way.desk.linked[second.number] == DeliverToListRequest(Carried("t", b'"news"', "m", 1), "t", None)
    assert second.request == DeliverRequest(Carried("t", b'"news"', "m", 1), MANY)
    assert way.desk.counts["lists_sent"] == 1
    (changed,) = hand_over(way, [], a=[*MANY[1:], "dora"]).values()
    assert way.desk.linked[changed.number].clients == [*MANY[1:], "dora"]
    way.links["a"] = Link("two")
    (afresh,) = hand_over(way, [], a=MANY).values()
    assert way.desk.linked[afresh.number].clients == MANY


@pytest.mark.parametrize("clients", [MANY[:-1], MANY])
def test_a_list_of_few_or_one_for_which_there_is_no_link_yet_goes_as_it_is(way: Way, clients: list[str]) -> None:
    if clients is MANY:
        del way.links["a"]
    (call,) = hand_over(way, [], a=clients).values()
    assert call.number not in way.desk.linked
    assert way.desk.counts["lists_sent"] == 0
    assert call.request.clients == clients


# Broadcasts


def broadcast(way: Way, begun: float = 100.0) -> dict[str, Call]:
    """Send a broadcast; return the requests to the peers."""
    dispatch = Dispatch(message(""), 0, None, None)
    dispatch.begun = begun
    way.fanout.broadcast(dispatch)
    return {call.target: call for call in way.take_asked()}


def done_here(way: Way) -> None:
    """Finish the delivery to this endpoint's own clients."""
    way.desk.work()
    way.fanout.take_delivered()


def moved(call: Call, **since: float) -> None:
    """Confirm the message as the endpoint, and report these clients, which have listened elsewhere for this many
    seconds."""
    call.asker.answered(call, list(since.items()))


def test_a_broadcast_goes_to_every_endpoint_this_one_included(way: Way) -> None:
    carl = way.listens("carl")
    calls = broadcast(way)
    assert {type(call.request) for call in calls.values()} == {BroadcastRequest}
    moved(calls["a"])
    moved(calls["b"])
    assert outcome(way) == "under way"
    done_here(way)
    assert way.written(carl) == [note("")]
    assert outcome(way) == "dispatched"


def test_a_broadcast_follows_who_moved_since_it_began_and_nobody_else(way: Way) -> None:
    calls = broadcast(way)
    done_here(way)
    moved(calls["b"])
    way.listens_at(BOB, "dora", "emil")
    way.desk.now += 2.0
    moved(calls["a"], dora=1.0, emil=3.0)
    (follows,) = way.take_asked()
    assert (follows.target, follows.request.clients) == ("b", ["dora"])
    assert outcome(way) == "under way"
    confirm(follows)
    assert outcome(way) == "dispatched"
    assert way.take_stored() == []  # the home knew where they are


def test_a_broadcast_asks_the_store_for_who_moved_to_it_does_not_know_where(way: Way) -> None:
    calls = broadcast(way)
    done_here(way)
    moved(calls["b"])
    moved(calls["a"], dora=0.0)
    relocate(way, dora=at(BOB, number=2))
    (follows,) = way.take_asked()
    assert follows.target == "b"
    confirm(follows)
    assert outcome(way) == "dispatched"


def test_a_broadcast_goes_after_a_client_for_as_long_as_that_moves_on_but_not_for_ever(way: Way) -> None:
    calls = broadcast(way)
    done_here(way)
    moved(calls["b"])
    way.listens_at(BOB, "dora")
    moved(calls["a"], dora=0.0)
    places = [ANN, BOB, ANN]
    for number, place in enumerate(places, 2):
        (follows,) = way.take_asked()
        confirm(follows, "dora")
        relocate(way, dora=at(place, number=number))
    (follows,) = way.take_asked()
    way.desk.now += MOVED_S
    confirm(follows, "dora")
    relocate(way, dora=at(BOB, number=5))
    assert way.take_asked() == []
    assert outcome(way) == "dispatched"
    assert way.desk.drops == {"not_listening": 1}


def test_a_broadcast_stops_at_a_client_that_is_not_where_it_was_said_to_be_and_nowhere_later(way: Way) -> None:
    calls = broadcast(way)
    done_here(way)
    moved(calls["b"])
    moved(calls["a"], dora=0.0)
    relocate(way, dora=at(BOB, number=2))
    (follows,) = way.take_asked()
    confirm(follows, "dora")
    relocate(way, dora=at(BOB, number=2))
    assert outcome(way) == "dispatched"
    assert way.desk.drops == {"not_listening": 1}


def test_a_broadcast_whose_client_is_at_an_endpoint_that_goes_leaves_it_there_should_that_come_back(way: Way) -> None:
    calls = broadcast(way)
    done_here(way)
    moved(calls["b"])
    moved(calls["a"], dora=0.0)
    relocate(way, dora=at(BOB, number=2))
    (follows,) = way.take_asked()
    way.loses(BOB)
    follows.asker.lost(follows)
    relocate(way, dora=at(BOB, number=2))
    assert outcome(way) == "dispatched"
    assert way.desk.drops == {"endpoint_gone": 1}
    assert way.locations.get("dora") == at(BOB, number=2)


def test_a_broadcast_goes_on_to_a_place_that_was_announced_before_the_store_had_it(way: Way) -> None:
    calls = broadcast(way)
    done_here(way)
    moved(calls["b"])
    way.listens_at(BOB, "dora")
    moved(calls["a"], dora=0.0)
    (follows,) = way.take_asked()
    confirm(follows, "dora")
    relocate(way, dora=at(ANN, number=2))
    (follows,) = way.take_asked()
    way.locations.learn("dora", at(BOB, number=3))
    confirm(follows, "dora")
    relocate(way, dora=at(ANN, number=2))
    (follows,) = way.take_asked()
    assert follows.target == "b"
    assert way.desk.drops.total() == 0


def test_an_endpoint_that_is_gone_with_a_broadcast_is_counted_and_one_that_failed_is_named(way: Way) -> None:
    calls = broadcast(way)
    done_here(way)
    calls["a"].asker.lost(calls["a"])
    assert way.desk.drops == {"broadcast_endpoint_gone": 1}
    fail(calls["b"])
    error = outcome(way)
    assert (error.code, error.extra) == ("partial", {"delivered": ["me"], "failed": ["bob"]})


def test_an_endpoint_that_is_known_no_more_is_named_by_its_incarnation(way: Way) -> None:
    way.listens("carl")
    calls = hand_over(way, ["carl"], a=["dora"])
    way.loses(ANN)
    fail(calls["a"])
    assert outcome(way).extra["failed"] == ["a"]
