"""The desk: everything that a part can ask for. The fake desk of the other tests must match it."""

from __future__ import annotations

import ast
from collections import deque
from pathlib import Path
from typing import Any

import ormsgpack
import pytest

import ingeborg
from ingeborg.broker.core.counters import Counters
from ingeborg.broker.core.desk import Desk, Job
from ingeborg.broker.core.effects import Act, DropLink, Joined
from ingeborg.broker.core.links.calls import NOT_HOME, TIMEOUT_S, Asker, Call, Calls
from ingeborg.broker.core.links.frames import Answer, Batch, decoded
from ingeborg.broker.core.links.link import Link
from ingeborg.broker.core.links.requests import Carried, ChangeRequest, FetchRequest, LeaveRequest, PublishRequest
from ingeborg.broker.core.stores import StoreCalls

from .fake_desk import FakeDesk

#: Any other member could be a way from one part to another.
CLOCKS = {"now", "unix_s", "tick"}
COUNTS = {"counts", "drops", "counted"}
CALLS = {"store", "number", "ask", "cast", "answer", "answer_later", "hurry", "decline"}
MEMBERS = CLOCKS | COUNTS | CALLS | {"job", "emit", "load"}


def members(owner: type) -> set[str]:
    """Return its public methods, and the public attributes that its methods give ``self``. The source tells, for either
    form of the code."""
    module = ast.parse((Path(ingeborg.__file__).parent / "broker" / "core" / "desk.py").read_text())
    (tree,) = (node for node in module.body if isinstance(node, ast.ClassDef) and node.name == owner.__name__)
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                names.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node in tree.body:
            names.add(node.target.id)
    return {name for name in names if not name.startswith("_")}


def test_a_desk_has_what_every_part_needs_and_nothing_else() -> None:
    assert members(Desk) == MEMBERS


class Room:
    """A desk, the objects behind it, and an open link to a peer."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.calls = Calls()
        self.stores = StoreCalls(self.counters.counts)
        self.jobs: deque[Job] = deque()
        self.acts: list[Act] = []
        self.desk = Desk(100.0, self.counters, self.calls, self.stores, self.jobs, self.acts)
        self.link = Link("here")
        self.link.connected()
        self.link.receive(ormsgpack.packb(["open", "there", None, 0]))
        self.calls.linked("peer", self.link)

    def sent(self) -> list[tuple[int, Any]]:
        """Return the items that have gone over the link since the last call, as they come; for answers the code and the
        value."""
        items: list[tuple[int, Any]] = []
        for frame in self.link.flush():
            batch = decoded(frame)
            assert isinstance(batch, Batch)
            for number, said in batch.items or ():
                if isinstance(said, Answer):
                    items.append((number, (said.code, ormsgpack.unpackb(bytes(said.value)))))
                else:
                    items.append((number, said))
        return items


class Told(Asker):
    """A part that makes requests and keeps their outcomes."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any, Any]] = []

    def answered(self, call: Call, value: Any) -> None:
        self.told.append(("answered", call.context, value))

    def failed(self, call: Call, code: str, info: Any) -> None:
        self.told.append(("failed", call.context, code))


@pytest.fixture
def room() -> Room:
    return Room()


def test_a_store_call_leaves_with_the_turn_and_its_part_is_told(room: Room) -> None:
    told: list[Any] = []
    room.desk.store("topics", ("anna", None, 10), lambda *outcome: told.append(outcome), "context")
    (call,) = room.stores.take()
    assert call[1:] == ("topics", ("anna", None, 10))
    assert room.desk.counts == {"store_calls": 1}
    room.stores.ended(call.number, ["t"], None, 100.1)
    assert told == [("context", ["t"], None)]


def test_a_request_goes_over_the_link_and_its_answer_comes_back_to_the_part(room: Room) -> None:
    part = Told()
    request = ChangeRequest("anna", ["t"], True)
    room.desk.ask("peer", request, part, "context")
    ((number, sent),) = room.sent()
    assert sent == request
    room.calls.answer("peer", number, "", "done", 100.1)
    assert part.told == [("answered", "context", "done")]


def test_a_request_is_given_up_by_the_time_at_which_it_was_made(room: Room) -> None:
    part = Told()
    room.desk.now = 200.0
    room.desk.ask("peer", LeaveRequest(), part, "context")
    room.calls.tick(200.0 + TIMEOUT_S - 0.01)
    assert part.told == []
    room.calls.tick(200.0 + TIMEOUT_S)
    assert part.told == [("failed", "context", "peer_unavailable")]


def test_a_number_is_drawn_once_and_a_request_can_go_under_one_that_was_drawn(room: Room) -> None:
    drawn = [room.desk.number(), room.desk.number()]
    room.desk.ask("peer", LeaveRequest(), Told())
    room.desk.ask("peer", PublishRequest(Carried("t", b"1", "a", 1), None), Told(), number=drawn[1])
    first, second = (item[0] for item in room.sent())
    assert len({*drawn, first}) == 3
    assert second == drawn[1]


def test_what_means_the_same_on_the_present_link_only_goes_over_no_other(room: Room) -> None:
    request, linked = FetchRequest(1), FetchRequest(2)
    room.desk.ask("peer", request, Told(), linked=linked)
    assert room.sent()[0][1] == linked
    again = Link("here again")
    again.connected()
    again.receive(ormsgpack.packb(["open", "there", None, 0]))
    room.calls.linked("peer", again)
    room.link = again
    assert room.sent()[0][1] == request


def test_an_answer_and_a_refusal_carry_the_number_of_the_request(room: Room) -> None:
    room.desk.answer("peer", 7, "welcome")
    room.desk.decline("peer", 8, "store_unavailable", "no quorum")
    assert room.sent() == [(7, ("", "welcome")), (8, ("store_unavailable", "no quorum"))]
    assert room.desk.counts == {}


def test_how_often_this_endpoint_was_not_the_home_is_counted(room: Room) -> None:
    room.desk.decline("peer", 8, NOT_HOME)
    assert room.sent() == [(8, (NOT_HOME, ""))]
    assert room.desk.counts == {"not_home": 1}


def test_jobs_wait_in_a_row_and_acts_leave_in_the_order_of_decisions(room: Room) -> None:
    jobs = [iter([False]), iter([False])]
    for job in jobs:
        room.desk.job(job)
    room.desk.emit(DropLink("peer"))
    room.desk.emit(Joined())
    assert list(room.jobs) == jobs
    assert room.acts == [DropLink("peer"), Joined()]


def test_what_a_part_counts_is_the_endpoints(room: Room) -> None:
    room.desk.counts["joins"] += 1
    room.desk.drops["slow_consumer"] += 2
    assert (room.counters.counts, room.counters.drops) == ({"joins": 1}, {"slow_consumer": 2})


# The fake


def test_the_fake_desk_shows_what_a_part_has_asked_for_and_keeps_it_until_it_is_taken_out() -> None:
    fake, part = FakeDesk(100.0), Told()
    first = fake.real.number()
    told: list[Any] = []
    fake.real.store("topics", ("anna",), lambda *outcome: told.append(outcome), "context")
    fake.real.ask("p", LeaveRequest(), part, "context")
    fake.real.ask("p", PublishRequest(Carried("t", b"1", "a", 1), None), part, number=first, linked=FetchRequest(2))
    fake.real.answer("p", 7, "welcome")
    fake.real.decline("p", 8, "internal", "why")
    fake.real.decline("q", 9, NOT_HOME)
    fake.real.job(iter([False]))
    fake.real.emit(Joined())
    for _ in range(2):
        (stored,) = fake.stored
        leave, publish = fake.asked
        assert (leave.request, leave.target, leave.context, leave.deadline) == (
            LeaveRequest(),
            "p",
            "context",
            100.0 + TIMEOUT_S,
        )
        assert (publish.number, publish.request.message.topic, fake.linked) == (first, "t", {first: FetchRequest(2)})
        assert fake.answers == [("p", 7, "welcome")]
        assert fake.declined == [("p", 8, "internal"), ("q", 9, NOT_HOME)]
        assert (len(fake.jobs), fake.acts) == (1, [Joined()])
    stored.end("result")
    assert told == [("context", "result", None)]
    fake.asked.clear()
    assert fake.asked == []
    assert fake.counts == {"store_calls": 1, "not_home": 1}
