"""Revoking tokens: the conditions of a success, the connections that are closed and when, and an endpoint whose
knowledge may be incomplete."""

from __future__ import annotations

from typing import Any

import pytest

from ingeborg.broker.core.clients.revocations import KEPT_S
from ingeborg.broker.core.clients.revoking import (
    AGAIN_S,
    READ_S,
    REMEMBERED_MAX_S,
    REMEMBERED_S,
    WAITING_MAX,
    Revoking,
)
from ingeborg.broker.core.clients.sessions import Sessions
from ingeborg.broker.core.connections.grants import Grant
from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.connections.outbox import PIECE_BYTES
from ingeborg.broker.core.effects import Close, Knows
from ingeborg.broker.core.limits import SIZES, Sizes
from ingeborg.broker.core.links.calls import TIMEOUT_S
from ingeborg.broker.core.links.requests import RevokedRequest
from ingeborg.broker.core.model import JTI, SUB, Revocation, StoreUnavailable, TooManyRevocations
from ingeborg.broker.core.outgoing.replies import REPLIES_MAX
from ingeborg.broker.core.part import CommandSpec
from ingeborg.protocol.errors import TOKEN_REVOKED

from ..surroundings import Surroundings, command

UNIX_S = 1_800_000_000.0
LATER = int(UNIX_S) + 600
OPS = Grant("anna", (), (), False, UNIX_S + 60, revoke=True)


class Endpoint(Surroundings):
    """An endpoint. It has read the record, unless it is not ``ready``."""

    def __init__(self, *peers: str, ready: bool = True, sizes: Sizes = SIZES) -> None:
        super().__init__(*peers, joined=False, unix_s=UNIX_S)
        desk, sending, replies = self.desk.real, self.sending, self.replies
        self.sessions = Sessions(desk, self.base.limits, sending, replies, self.memory, self.base.inflight)
        self.part = Revoking(desk, self.members, self.sessions, sending, replies, sizes)
        begin = CommandSpec(self._begin)
        self.sessions.bind({**self.part.commands(), "listen": begin, "subscribe": begin})
        self.begun = 0
        if ready:
            self.joins()

    def joins(self, *revoked: Revocation) -> None:
        """Let all other endpoints let it in, and answer its store calls with these."""
        self.join()
        self.part.joined()
        self.stored("revocations")[0].end(list(revoked))
        self.desk.work()

    def _begin(self, connection: Connection, _: Any) -> None:
        self.begun += 1
        self.replies.reply(connection, None, b"ok")

    def connect(self, grant: Grant | None = OPS) -> Connection:
        self._numbers += 1
        connection = self.sessions.connected(self._numbers, grant, False, PIECE_BYTES)
        connection.kind = "revoke"
        connection.tally = self.replies.tally("revoke")
        return connection

    def revoke(self, connection: Connection, **fields: Any) -> None:
        self.part.revoke(connection, command("revoke", **(fields or {"jti": "t"})))

    def tick(self, seconds: float = 0.1) -> None:
        self.desk.now += seconds
        self.part.tick()


def token(jti: str = "t", client: str = "bert", issued_at: float | None = UNIX_S) -> Grant:
    return Grant(client, ("",), ("",), True, UNIX_S + 900, jti=jti, issued_at=issued_at)


# A success


def test_success_is_said_when_the_store_has_it_and_every_peer_knows() -> None:
    endpoint = Endpoint("a", "b")
    ops = endpoint.connect()
    endpoint.revoke(ops, jti="t", expires_at=LATER, id=1)
    (call,) = endpoint.stored("revoke")
    assert call.arguments == ([Revocation(JTI, "t", 0, LATER)],)
    assert (endpoint.desk.asked, endpoint.heard(ops)) == ([], [])
    call.end()
    asked = {each.target: each for each in endpoint.desk.asked}
    assert sorted(asked) == ["a", "b"]
    assert all(each.request == RevokedRequest([("jti", "t", 0, LATER)]) for each in asked.values())
    endpoint.part.answered(asked["a"], None)
    assert endpoint.heard(ops) == []
    assert endpoint.part.lost(asked["b"]) is None  # b is dead, and serves nobody before it has read the record
    assert endpoint.heard(ops) == [{"result": "success", "id": 1, "expires_at": LATER}]


def test_of_a_subject_it_says_until_when_the_tokens_had_been_issued() -> None:
    endpoint = Endpoint()
    ops = endpoint.connect()
    endpoint.desk.now += 0.75
    endpoint.revoke(ops, sub="gw-*")
    (call,) = endpoint.stored("revoke")
    until = int(UNIX_S) + REMEMBERED_S + 1  # to the end of its second
    assert call.arguments == ([Revocation(SUB, "gw-*", int(UNIX_S), until)],)
    call.end()
    assert endpoint.heard(ops) == [{"result": "success", "expires_at": until, "issued_until": int(UNIX_S)}]


def test_the_present_second_is_that_of_the_command_and_not_of_the_last_tick() -> None:
    endpoint = Endpoint()
    endpoint.desk.real.tick(UNIX_S + 4.97)
    endpoint.desk.now += 0.08
    endpoint.revoke(endpoint.connect(), sub="anna")
    (call,) = endpoint.stored("revoke")
    assert call.arguments[0][0].issued_until == int(UNIX_S) + 5


def test_what_the_store_does_not_take_and_what_a_peer_does_not_answer_is_no_success() -> None:
    endpoint = Endpoint("a")
    ops = endpoint.connect()
    endpoint.revoke(ops, jti="t")
    endpoint.stored("revoke")[0].end(error=StoreUnavailable("down"))
    assert endpoint.results(ops) == ["store_unavailable"]
    assert not endpoint.part.refuses(token())
    endpoint.revoke(ops, jti="t")
    endpoint.stored("revoke")[0].end()
    (asked,) = endpoint.desk.asked
    endpoint.part.failed(asked, "peer_unavailable", "late")
    assert endpoint.results(ops) == ["peer_unavailable"]
    assert endpoint.part.refuses(token())  # the store has it nevertheless


def test_those_that_come_while_the_store_writes_are_written_together() -> None:
    endpoint = Endpoint()
    ops = endpoint.connect()
    for number in range(3):
        endpoint.revoke(ops, jti=f"t{number}", id=number)
    (first,) = endpoint.stored("revoke")
    first.end()
    (second,) = endpoint.stored("revoke")
    assert [[one.value for one in call.arguments[0]] for call in (first, second)] == [["t0"], ["t1", "t2"]]
    second.end()
    assert endpoint.results(ops) == ["ok 0", "ok 1", "ok 2"]


def test_of_several_that_are_too_many_together_only_those_without_room_are_refused() -> None:
    endpoint = Endpoint()
    ops = endpoint.connect()
    for number in range(3):
        endpoint.revoke(ops, jti=f"t{number}", id=number)
    endpoint.stored("revoke")[0].end()
    endpoint.stored("revoke")[0].end(error=TooManyRevocations("full"))
    one, other = endpoint.stored("revoke", "revoke")
    one.end()
    other.end(error=TooManyRevocations("there is no room"))
    assert endpoint.heard(ops)[-1]["info"] == "there is no room"
    assert endpoint.replies.tally("revoke") == {"success": 2, "bad_state": 1}


def test_one_too_many_waiting_is_refused() -> None:
    endpoint = Endpoint()
    ops = endpoint.connect()
    for number in range(1 + WAITING_MAX + 1):  # the store is writing the first
        endpoint.revoke(ops, jti=f"t{number}")
    assert endpoint.replies.tally("revoke") == {"store_unavailable": 1}


@pytest.mark.parametrize(
    ("expires_at", "word"),
    [
        (UNIX_S - KEPT_S, "is in the past"),
        (UNIX_S + REMEMBERED_MAX_S + KEPT_S + 1, "400 days"),
    ],
)
def test_a_time_that_makes_no_sense_is_refused(expires_at: float, word: str) -> None:
    endpoint = Endpoint()
    ops = endpoint.connect()
    endpoint.revoke(ops, jti="t", expires_at=expires_at)
    (reply,) = endpoint.heard(ops)
    assert (reply["error"], word in reply["info"]) == ("bad_state", True)
    endpoint.stored()


def test_where_no_tokens_are_wanted_it_is_forbidden() -> None:
    endpoint = Endpoint()
    anybody = endpoint.connect(None)
    endpoint.revoke(anybody, jti="t")
    (reply,) = endpoint.heard(anybody)
    assert (reply["error"], "requires no tokens" in reply["info"]) == ("forbidden", True)


def test_what_waits_too_long_for_the_store_to_write_others_is_given_up() -> None:
    endpoint = Endpoint()
    ops = endpoint.connect()
    endpoint.revoke(ops, jti="t", id=1)
    endpoint.stored("revoke")
    endpoint.revoke(ops, jti="u", id=2)
    endpoint.tick(TIMEOUT_S - 0.1)
    assert endpoint.replies.tally("revoke") == {}
    endpoint.tick()
    assert endpoint.replies.tally("revoke") == {"store_unavailable": 1}


def test_before_it_has_joined_nothing_is_written_and_what_was_written_waits_to_be_told() -> None:
    endpoint = Endpoint("a")
    ops = endpoint.connect()
    endpoint.revoke(ops, jti="t", id=1)
    (write,) = endpoint.stored("revoke")
    endpoint.lose_lease()
    endpoint.part.lapsed()
    write.end()
    endpoint.revoke(ops, jti="u", id=2)
    endpoint.stored()
    assert endpoint.desk.asked == []
    endpoint.join()
    endpoint.part.joined()
    assert [each.request.revocations[0][1] for each in endpoint.desk.asked] == ["t"]
    read, write = endpoint.stored("revocations", "revoke")
    assert write.arguments[0][0].value == "u"
    read.end([])


def test_what_waits_for_joining_is_given_up_in_time() -> None:
    endpoint = Endpoint("a")
    ops = endpoint.connect()
    endpoint.revoke(ops, jti="t")
    (write,) = endpoint.stored("revoke")
    endpoint.lose_lease()
    endpoint.part.lapsed()
    write.end()
    endpoint.revoke(ops, jti="u")
    endpoint.tick(TIMEOUT_S)
    assert endpoint.replies.tally("revoke") == {"peer_unavailable": 2}


# Named connections


def closed(endpoint: Endpoint) -> list[int]:
    return [act.connection.number for act in endpoint.desk.acts if isinstance(act, Close) and act.code is TOKEN_REVOKED]


def test_a_peers_word_is_answered_at_once_and_who_is_named_is_closed() -> None:
    endpoint = Endpoint("a")
    named, other, anybody = endpoint.connect(token("t")), endpoint.connect(token("u")), endpoint.connect(None)
    for connection in (named, other, anybody):
        endpoint.sending.push(connection, b"before")
    endpoint.part.told("a", 7, RevokedRequest([("jti", "t", 0, LATER)]))
    assert endpoint.desk.answers == [("a", 7, None)]
    endpoint.desk.work()
    assert closed(endpoint) == [named.number]
    endpoint.sending.push(named, b"after")
    assert sorted(connection.number for connection, _ in endpoint.sending.write()) == [other.number, anybody.number]
    assert endpoint.desk.drops["token_revoked"] == 2
    assert endpoint.desk.counts["connections_revoked"] == 1
    endpoint.part.told("a", 8, RevokedRequest([("jti", "t", 0, LATER)]))  # again
    endpoint.desk.work()
    assert closed(endpoint) == [named.number]


def test_nothing_more_of_what_it_has_sent_is_begun() -> None:
    endpoint = Endpoint()
    named = endpoint.connect(token())
    place = endpoint.replies.expect(named)  # a command under way, which holds others back
    for number in range(3):
        endpoint.sessions.frame(named, b'{"command":"listen","client_id":"bert","id":%d}' % number, True)
    endpoint.part.told("a", 7, RevokedRequest([("jti", "t", 0, LATER)]))
    endpoint.desk.work()
    endpoint.sessions.frame(named, b'{"command":"listen","client_id":"bert"}', True)
    endpoint.replies.reply(named, place, b"ok")
    endpoint.sessions.go_on()
    endpoint.sessions.disconnected(named)
    endpoint.sessions.go_on()
    assert endpoint.begun == 0
    assert endpoint.desk.drops["command_of_closed_connection"] == 4
    assert endpoint.heard(named) == []


def test_one_with_as_many_commands_under_way_as_there_may_be_begins_no_more_when_they_are_done() -> None:
    endpoint = Endpoint()
    named = endpoint.connect(token())
    places = [endpoint.replies.expect(named) for _ in range(REPLIES_MAX)]
    endpoint.part.told("a", 7, RevokedRequest([("jti", "t", 0, LATER)]))
    endpoint.desk.work()
    endpoint.sessions.frame(named, b'{"command":"subscribe","client_id":"bert","topic":"t"}', True)
    endpoint.sessions.disconnected(named)
    for place in places:
        endpoint.replies.reply(named, place, None)
    endpoint.sessions.go_on()
    assert endpoint.begun == 0
    assert endpoint.desk.drops["command_of_closed_connection"] == 1


def test_many_connections_are_looked_at_in_slices_and_nobody_is_sent_anything_while_they_are_closed_one_by_one() -> (
    None
):
    endpoint = Endpoint(sizes=Sizes(looked_at_per_slice=10, revoked_per_slice=2))
    connections = [endpoint.connect(token()) for _ in range(25)]
    endpoint.part.told("a", 7, RevokedRequest([("sub", "bert", int(UNIX_S), LATER)]))
    (job,) = endpoint.desk.jobs
    slices = 0
    while not all(connection.revoked for connection in connections):
        assert next(job) is False
        slices += 1
    assert (slices, closed(endpoint)) == (3, [])
    later = endpoint.connect(token("new", "eve"))
    endpoint.part.told("a", 8, RevokedRequest([("jti", "new", 0, LATER)]))  # meanwhile: before most of the closes
    for _ in range(4):
        next(job)
    assert later.revoked
    assert len(closed(endpoint)) <= 2
    endpoint.desk.work()
    assert sorted(closed(endpoint)) == [connection.number for connection in (*connections, later)]


def test_one_that_has_gone_meanwhile_is_not_closed() -> None:
    endpoint = Endpoint()
    named = endpoint.connect(token())
    endpoint.part.told("a", 7, RevokedRequest([("jti", "t", 0, LATER)]))
    (job,) = endpoint.desk.jobs
    next(job)
    endpoint.sessions.disconnected(named)
    endpoint.desk.work()
    assert closed(endpoint) == []


def test_who_comes_with_a_revoked_token_is_counted() -> None:
    endpoint = Endpoint()
    endpoint.part.told("a", 7, RevokedRequest([("jti", "t", 0, LATER)]))
    assert [endpoint.part.refuses(token(jti)) for jti in ("t", "u", "t")] == [True, False, True]
    assert endpoint.desk.counts["revoked_refused"] == 2


# Its knowledge


def test_it_knows_when_it_has_read_the_record_after_all_others_have_let_it_in() -> None:
    endpoint = Endpoint("a", ready=False)
    endpoint.tick()
    endpoint.stored()  # no read before that: the others need not tell it yet
    assert not endpoint.part.knows
    endpoint.join()
    endpoint.part.joined()
    endpoint.stored("revocations")[0].end(error=StoreUnavailable("down"))
    assert not endpoint.part.knows
    endpoint.tick(AGAIN_S - 0.1)
    endpoint.stored()
    endpoint.tick()
    endpoint.stored("revocations")[0].end([Revocation(JTI, "t", 0, LATER)])
    assert not endpoint.part.knows  # until it has compared its connections with it
    endpoint.desk.work()
    assert endpoint.part.knows
    assert endpoint.desk.acts == [Knows()]
    assert endpoint.part.refuses(token())


def test_a_read_that_began_before_it_joined_again_is_not_enough() -> None:
    endpoint = Endpoint("a", ready=False)
    endpoint.join()
    endpoint.part.joined()
    (early,) = endpoint.stored("revocations")
    endpoint.lose_lease()
    endpoint.part.lapsed()
    endpoint.join()
    endpoint.part.joined()
    (read,) = endpoint.stored("revocations")
    early.end([])
    assert not endpoint.part.knows
    read.end([])
    assert endpoint.part.knows


def test_later_it_is_read_every_ten_seconds_and_what_is_over_is_forgotten() -> None:
    endpoint = Endpoint()
    endpoint.tick(READ_S)
    endpoint.stored("revocations")[0].end([Revocation(JTI, "t", 0, LATER)])
    endpoint.tick(READ_S - 0.1)
    endpoint.stored()
    endpoint.tick()
    endpoint.stored("revocations")[0].end(error=StoreUnavailable("down"))
    assert len(endpoint.part.known) == 1
    endpoint.tick(LATER + KEPT_S - UNIX_S)
    endpoint.stored("revocations")[0].end([Revocation(JTI, "t", 0, LATER)])
    assert len(endpoint.part.known) == 0


def lapsed(*peers: str) -> tuple[Endpoint, Connection, Connection]:
    """Return an endpoint whose lease has lapsed, a connection with a token, and one without."""
    endpoint = Endpoint("a", *peers)
    bert, anybody = endpoint.connect(token()), endpoint.connect(None)
    endpoint.lose_lease()
    endpoint.part.lapsed()
    return endpoint, bert, anybody


def test_one_whose_lease_has_lapsed_begins_and_sends_nothing_for_who_has_a_token() -> None:
    endpoint, bert, anybody = lapsed()
    assert not endpoint.part.knows
    for connection in (bert, anybody):
        endpoint.sending.push(connection, b"1")
        endpoint.sessions.frame(connection, b'{"command":"listen","client_id":"bert"}', True)
    assert endpoint.begun == 1
    assert endpoint.sending.write() == [(anybody, [b"1", b"ok"])]
    endpoint.joins(Revocation(JTI, "other", 0, LATER))
    assert endpoint.part.knows
    endpoint.sessions.go_on()
    assert endpoint.sending.write() == [(bert, [b"1", b"ok"])]
    assert endpoint.begun == 2


def test_who_was_revoked_meanwhile_is_not_sent_what_was_held_back() -> None:
    endpoint, bert, _ = lapsed()
    endpoint.sending.push(bert, b"1")
    endpoint.sessions.frame(bert, b'{"command":"listen","client_id":"bert"}', True)
    assert endpoint.sending.write() == []
    endpoint.joins(Revocation(JTI, "t", 0, LATER))
    endpoint.sessions.go_on()
    assert endpoint.sending.write() == []
    assert endpoint.begun == 0
    assert closed(endpoint) == [bert.number]
    assert endpoint.desk.drops["token_revoked"] == 1


def test_a_lapse_before_those_held_back_have_gone_on_holds_them_back_again() -> None:
    endpoint, bert, _ = lapsed()
    endpoint.sending.push(bert, b"1")
    assert endpoint.sending.write() == []
    endpoint.join()
    endpoint.part.joined()
    endpoint.stored("revocations")[0].end([])
    assert endpoint.part.knows
    endpoint.lose_lease()
    endpoint.part.lapsed()
    endpoint.desk.work()
    assert endpoint.sending.write() == []
    endpoint.joins()
    assert endpoint.sending.write() == [(bert, [b"1"])]


def test_one_that_leaves_holds_nobody_back() -> None:
    endpoint = Endpoint("a")
    endpoint.members.leave()
    endpoint.part.lapsed()
    assert endpoint.part.knows
