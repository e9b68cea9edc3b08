"""Commands that ask for retained messages: which begin, which wait, and what depends on them. SPEC section 2.7."""

from __future__ import annotations

from typing import Any

import pytest

from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.history.admitting import WAIT_S
from ingeborg.broker.core.model import NO_SETTINGS, Location, StoreUnavailable

from ..retained.here import IN_STORE, at
from ..surroundings import command
from .here import Here, short


@pytest.fixture
def here() -> Here:
    return Here()


def listen(here: Here, connection: Connection, client: str = "anna", **fields: Any) -> list[str]:
    """Send a command of the client; return the connection's immediate replies."""
    here.admitting.listen(connection, command("listen", client, **fields))
    return here.results(connection)


def listens(here: Here, client: str = "anna", **fields: Any) -> Connection:
    """Have the client listen on its own connection, and get its reply."""
    connection = here.client("listen")
    listen(here, connection, client, **fields)
    here.clients.listening.flush()
    here.stored("listen")[0].end([(Location(1, "m", True), None)])
    return connection


def subscribe(here: Here, connection: Connection, *topics: str, **fields: Any) -> None:
    here.admitting.subscribe(connection, command("subscribe", topic=list(topics), id=1, **fields))


# A listen


def test_one_that_recovers_is_written_and_its_reply_says_the_position(here: Here) -> None:
    here.keep("t", 5)
    here.watermarks.tick()
    anna = listens(here, recover=True)
    assert here.heard(anna) == [{"result": "success", "recovering": False, "position": at(5)}]
    assert here.session(anna).client == "anna"


def test_one_that_could_not_be_written_follows_nothing(here: Here) -> None:
    anna = here.client("listen")
    listen(here, anna, recover=True)
    here.clients.listening.flush()
    here.stored("listen")[0].end(error=StoreUnavailable("no quorum"))
    assert here.results(anna) == ["store_unavailable"]
    assert (here.part.replay_sessions, anna.receiver) == ({}, None)


def test_one_that_does_not_recover_is_nothing_to_history(here: Here) -> None:
    anna = listens(here)
    assert here.heard(anna) == [{"result": "success"}]
    assert here.part.replay_sessions == {}


def test_a_client_that_recovers_has_its_connection_for_itself(here: Here) -> None:
    anna = listens(here, recover=True)
    here.heard(anna)
    assert listen(here, anna, "bert") == ["bad_state"]
    assert listen(here, anna, "anna") == []
    here.hub.bind("carl", shared := here.client("listen"))
    assert listen(here, shared, "dora", recover=True) == ["bad_state"]
    assert listen(here, shared, "carl", recover=True) == []


def test_one_that_comes_behind_another_on_its_way_waits_for_it(here: Here) -> None:
    anna = here.client("listen")
    listen(here, anna, recover=True)
    listen(here, anna, recover=at(0))
    here.clients.listening.flush()
    (first,) = here.stored("listen")
    assert first.arguments == (["anna"], "m")
    first.end([(Location(1, "m", True), None)])
    assert here.results(anna) == ["ok"]
    here.admitting.tick()
    here.clients.listening.flush()
    here.stored("listen")[0].end([(Location(2, "m", True), None)])
    assert here.heard(anna) == [{"result": "success", "recovering": True}]


@pytest.mark.parametrize("answers", [True, False])
def test_one_that_recovers_waits_for_a_while_until_positions_may_be_told(answers: bool) -> None:
    here = Here(settings=IN_STORE)
    anna = here.client("listen")
    assert listen(here, anna, recover=True) == []
    here.desk.now += WAIT_S - 1.0
    here.admitting.tick()
    assert (list(here.hub.bindings), here.heard(anna)) == ([], [])
    if answers:
        here.journal.write()
        here.stored("reach")[0].end(([], here.clock.value))
    here.desk.now += 1.0
    here.admitting.tick()
    assert (list(here.hub.bindings), here.results(anna)) == ((["anna"], []) if answers else ([], ["peer_unavailable"]))


def test_where_nothing_is_kept_nobody_recovers_and_all_others_listen() -> None:
    here = Here(settings=NO_SETTINGS)
    assert listen(here, here.client("listen"), recover=True) == ["bad_state"]
    assert here.results(listens(here)) == ["ok"]


# A subscribe


def test_the_latest_are_sent_once_the_subscription_has_been_written_and_then_its_reply(here: Here) -> None:
    for stamp in (3, 4, 5):
        here.keep("t", stamp)
    anna = listens(here)
    here.heard(anna)
    subscribe(here, anna, "t", last=2)
    here.comes(anna, "t", 9)
    assert here.said(anna) == []
    here.stored("subscribe")[0].end()
    here.work()
    *kept, reply, live = here.heard(anna)
    assert [short(note) for note in (*kept, live)] == ["t 2 kept", "t 3 kept", "t"]
    assert reply == {"result": "success", "id": 1, "recovered": True}


def test_where_the_subscription_could_not_be_written_what_has_waited_goes_on(here: Here) -> None:
    anna = listens(here)
    here.heard(anna)
    subscribe(here, anna, "t", last=2)
    here.comes(anna, "t", 9)
    here.stored("subscribe")[0].end(error=StoreUnavailable("no quorum"))
    note, reply = here.heard(anna)
    assert (note["key"], reply["error"]) == ("t", "store_unavailable")
    assert here.part.replay_sessions == {}


def test_since_a_position_that_is_none_there_is_a_gap_and_the_reply_says_so(here: Here) -> None:
    here.keep("t", 3)
    anna = listens(here)
    here.heard(anna)
    subscribe(here, anna, "t", since="other.3")
    here.stored("subscribe")[0].end()
    here.work()
    assert here.heard(anna)[-1] == {"result": "success", "id": 1, "recovered": False}


def test_what_cannot_be_read_fails_the_command_though_its_subscription_is_there() -> None:
    here = Here("a")
    (of_a,) = here.topics_at("a", 1)
    anna = here.client()
    here.hub.bind("anna", anna)
    subscribe(here, anna, of_a, last=1)
    (call,) = here.take_asked()
    call.asker.answered(call, None)  # its home has written the subscription
    for _ in range(5):
        for call in here.take_asked():
            call.asker.failed(call, "peer_unavailable", "")
        here.goes_on()
    (reply,) = here.heard(anna)
    assert (reply["error"], "The subscription is stored" in reply["info"]) == ("peer_unavailable", True)


def test_who_does_not_listen_there_is_sent_nothing_and_neither_is_anybody_where_nothing_is_kept(here: Here) -> None:
    other = here.client()
    subscribe(here, other, "t", last=1)
    assert here.results(other) == ["bad_state 1"]
    off = Here(settings=NO_SETTINGS)
    anna = listens(off)
    off.heard(anna)
    subscribe(off, anna, "t", last=1)
    assert off.results(anna) == ["bad_state 1"]
    assert (here.stored(), off.stored()) == ([], [])


def test_one_that_asks_for_nothing_kept_is_only_written(here: Here) -> None:
    anna = here.client()
    subscribe(here, anna, "t")
    here.stored("subscribe")[0].end()
    assert here.heard(anna) == [{"result": "success", "id": 1}]
