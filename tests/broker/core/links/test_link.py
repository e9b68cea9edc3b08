"""A link delivers everything once and in order, over any sequence of connections, or reports that it cannot."""

from __future__ import annotations

from collections import deque
from typing import Any

import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ingeborg.broker.core.links.frames import Answer, Hurry, Sent, UsualAnswers
from ingeborg.broker.core.links.link import (
    BATCH_BYTES_MAX,
    BATCH_ITEMS_MAX,
    CONFIRM_BYTES,
    Link,
    LinkError,
    SessionMismatch,
)
from ingeborg.broker.core.links.requests import (
    BroadcastRequest,
    Carried,
    DeliverRequest,
    DeliverToListRequest,
    HistoryPage,
    PublishRequest,
    ReplicaChunkRequest,
    Request,
)


def item(number: int, data: bytes = b"") -> Sent:
    """Return an item that its number identifies."""
    return number, ReplicaChunkRequest(number, "", data)


def opened() -> tuple[Link, Link]:
    """Return two links that have exchanged their first frames."""
    one, other = Link("one.1"), Link("other.1")
    first, second = one.connected(), other.connected()
    assert one.receive(second) == ([], [])
    assert other.receive(first) == ([], [])
    return one, other


def carry(sender: Link, receiver: Link) -> list[object]:
    """Carry all frames of the sender over; return the items for the receiver."""
    items: list[object] = []
    for frame in sender.flush():
        got, again = receiver.receive(frame)
        assert again == []
        assert got is not None
        items += got
    return items


# One connection


def test_items_go_over_in_batches_and_are_kept_until_confirmed() -> None:
    one, other = opened()
    one.send(item(1))
    one.send(item(2, b"b"))
    assert carry(one, other) == [item(1), item(2, b"b")]
    assert one.unconfirmed_bytes > 0
    assert carry(other, one) == []  # the bare confirmation
    assert one.unconfirmed_bytes == 0
    assert list(one.flush()) == list(other.flush()) == []


def test_a_batch_confirms_what_came_before_it() -> None:
    one, other = opened()
    one.send(item(1))
    carry(one, other)
    other.send(item(2))
    (frame,) = other.flush()
    assert ormsgpack.unpackb(frame)[0] == "batch"
    assert one.receive(frame) == ([item(2)], [])
    assert one.unconfirmed_bytes == 0


def test_a_bare_confirmation_can_wait_unless_it_is_of_much() -> None:
    one, other = opened()
    one.send(item(1))
    carry(one, other)
    assert list(other.flush(confirm=False)) == []
    one.send(item(2, b"b" * CONFIRM_BYTES))
    carry(one, other)
    (frame,) = other.flush(confirm=False)
    assert ormsgpack.unpackb(frame) == ["done", 2]
    assert list(other.flush()) == []
    one.send(item(3))
    carry(one, other)
    assert list(other.flush(confirm=False)) == []


def test_an_answer_that_can_wait_leaves_with_an_urgent_item_or_a_confirmation() -> None:
    one, other = opened()
    other.answer_usually(1, can_wait=True)
    assert list(other.flush(confirm=False)) == []
    other.answer_usually(2, can_wait=True)
    other.send(item(3))
    (frame,) = other.flush(confirm=False)
    assert one.receive(frame) == ([(1, UsualAnswers([1, 2])), item(3)], [])
    other.answer_usually(4, can_wait=True)
    assert list(other.flush(confirm=False)) == []
    assert carry(other, one) == [(4, UsualAnswers([4]))]
    other.answer_usually(5)
    assert len(list(other.flush(confirm=False))) == 1


def test_no_answer_waits_that_the_peer_waits_for() -> None:
    one, other = opened()
    one.patient = 7
    other.answer_usually(6, can_wait=True)
    assert one.hurry(goes_on=False)
    assert one.hurry(goes_on=True)
    assert not one.hurry(goes_on=False)
    assert not one.hurry(goes_on=True)
    (frame,) = one.flush(confirm=False)
    assert other.receive(frame) == ([(7, Hurry(goes_on=False)), (7, Hurry(goes_on=True))], [])
    other.want(7)
    assert carry(other, one) == [(6, UsualAnswers([6]))]
    other.answer_usually(7, can_wait=True)
    assert len(list(other.flush(confirm=False))) == 1
    other.answer_usually(8, can_wait=True)
    assert list(other.flush(confirm=False)) == []


def test_a_frame_takes_a_bounded_number_of_items() -> None:
    one, other = opened()
    items = [item(number) for number in range(1, 2 * BATCH_ITEMS_MAX + 2)]
    for one_item in items:
        one.send(one_item)
    frames = list(one.flush())
    assert [len(ormsgpack.unpackb(frame)[3]) for frame in frames] == [BATCH_ITEMS_MAX, BATCH_ITEMS_MAX, 1]
    assert [got for frame in frames for got in other.receive(frame)[0] or ()] == items


@pytest.mark.parametrize(
    "large",
    [
        ReplicaChunkRequest(1, "", bytes(BATCH_BYTES_MAX // 2)),
        BroadcastRequest(Carried("", bytes(BATCH_BYTES_MAX // 2), "o.1", 1)),
        PublishRequest(Carried("t", bytes(BATCH_BYTES_MAX // 2), "o.1", 1), None),
        DeliverRequest(Carried("t", bytes(BATCH_BYTES_MAX // 2), "o.1", 1), ["c"]),
        DeliverToListRequest(Carried("t", bytes(BATCH_BYTES_MAX // 2), "o.1", 1), "l", None),
        DeliverRequest(
            Carried("t", b"", "o.1", 1), ["a client whose id has 40 characters, alas"] * (BATCH_BYTES_MAX // 80)
        ),
        Answer("", HistoryPage(0, [("t", bytes(BATCH_BYTES_MAX // 4), "o.1", 1, 1)] * 2, [], [], None, 0)),
    ],
    ids=lambda large: type(large).__name__,
)
def test_a_frame_takes_a_bounded_number_of_bytes_wherever_its_items_have_them(
    large: Request | Answer[HistoryPage],
) -> None:
    one, _ = opened()
    for number in range(1, 6):
        one.send((number, large))
    one.send(item(6, bytes(2 * BATCH_BYTES_MAX)))  # a single item can be larger
    assert [len(ormsgpack.unpackb(frame)[3]) for frame in one.flush()] == [1, 1, 1, 1, 1, 1]


def test_nothing_is_sent_before_the_other_side_has_opened() -> None:
    one = Link("one.1")
    one.send(item(1))
    assert list(one.flush()) == list(one.ping(1.0)) == []
    one.connected()
    assert not one.is_open
    assert list(one.flush()) == list(one.ping(1.0)) == []


def test_a_ping_brings_back_the_time_it_was_sent_at() -> None:
    one, other = opened()
    assert one.confirmed_sent_at is None
    (ping,) = one.ping(10.0)
    other.receive(ping)
    assert one.confirmed_sent_at is None
    (ping,) = other.ping(777.0)  # the other's clock differs from ours
    one.receive(ping)
    assert one.confirmed_sent_at == 10.0
    (ping,) = other.ping(778.0)
    one.receive(ping)
    assert one.confirmed_sent_at == 10.0


# Several connections


def test_what_was_not_confirmed_is_sent_again_on_the_next_connection_and_processed_once() -> None:
    one, other = opened()
    one.send(item(1))
    assert carry(one, other) == [item(1)]  # its confirmation is lost
    one.send(item(2))
    list(one.flush())
    one.disconnected(0.0)
    other.disconnected(0.0)
    assert list(one.flush()) == []

    first, second = one.connected(), other.connected()
    assert other.receive(first) == ([], [])
    items, again = one.receive(second)
    assert (items, len(again)) == ([], 1)  # only the batch that the other had not processed
    assert other.receive(again[0]) == ([item(2)], [])
    assert carry(other, one) == []
    assert one.unconfirmed_bytes == 0


def test_a_batch_that_comes_twice_is_confirmed_again_and_not_processed() -> None:
    one, other = opened()
    one.send(item(1))
    (frame,) = one.flush()
    assert other.receive(frame) == ([item(1)], [])
    list(other.flush())  # this confirmation is lost
    assert other.receive(frame) == ([], [])
    assert [ormsgpack.unpackb(frame) for frame in other.flush()] == [["done", 1]]


class LossyLink(RuleBasedStateMachine):
    """Two links under any schedule of sends, flushes, deliveries and broken connections."""

    def __init__(self) -> None:
        super().__init__()
        self.links = [Link("0.1"), Link("1.1")]
        self.sent: list[list[int]] = [[], []]  # by sender
        self.got: list[list[int]] = [[], []]  # by receiver
        self.wires: list[deque[bytes]] = [deque(), deque()]  # by sender; of the present connection
        self.up = False
        self.clock = 0.0

    @rule(side=st.integers(0, 1), count=st.integers(1, 5))
    def send(self, side: int, count: int) -> None:
        for _ in range(count):
            number = len(self.sent[side]) + 1
            self.sent[side].append(number)
            self.links[side].send(item(number))

    @rule(side=st.integers(0, 1), confirm=st.booleans())
    def flush(self, side: int, confirm: bool) -> None:
        self.put(side, list(self.links[side].flush(confirm)))

    @rule(side=st.integers(0, 1))
    def ping(self, side: int) -> None:
        self.clock += 1.0
        self.put(side, list(self.links[side].ping(self.clock)))

    @precondition(lambda self: any(self.wires))
    @rule(side=st.integers(0, 1), count=st.integers(1, 4))
    def deliver(self, side: int, count: int) -> None:
        for _ in range(min(count, len(self.wires[side]))):
            items, again = self.links[1 - side].receive(self.wires[side].popleft())
            self.got[1 - side] += [number for number, _ in items or ()]
            self.put(1 - side, again)

    @rule(notices=st.sets(st.integers(0, 1)))
    def break_off(self, notices: set[int]) -> None:
        """Lose the frames on the way. A side that does not notice keeps sending into the void."""
        self.up = False
        for wire in self.wires:
            wire.clear()
        for side in notices:
            self.links[side].disconnected(0.0)

    @rule()
    def connect(self) -> None:
        """Connect again, even if a side has not noticed the end of the former connection."""
        self.break_off(set())
        self.up = True
        for side in (0, 1):
            self.put(side, [self.links[side].connected()])

    def put(self, side: int, frames: list[bytes]) -> None:
        if self.up:
            self.wires[side].extend(frames)

    @invariant()
    def nothing_comes_twice_or_out_of_order(self) -> None:
        for side in (0, 1):
            got = self.got[side]
            assert got == self.sent[1 - side][: len(got)]

    @invariant()
    def only_what_was_sent_is_confirmed(self) -> None:
        for link in self.links:
            assert link.confirmed_sent_at is None or link.confirmed_sent_at <= self.clock

    def teardown(self) -> None:
        """Check that a stable connection delivers and confirms everything."""
        self.connect()
        for _ in range(4):
            for side in (0, 1):
                self.deliver(side, len(self.wires[side]))
                self.flush(side, True)
        assert self.got == [self.sent[1], self.sent[0]]
        assert [link.unconfirmed_bytes for link in self.links] == [0, 0]


TestLossyLink = LossyLink.TestCase
TestLossyLink.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


# A side that started over


def test_a_side_that_started_afresh_is_told_from_the_one_before() -> None:
    one, other = opened()
    one.send(item(1))
    carry(one, other)
    afresh = Link("one.2")
    with pytest.raises(SessionMismatch):
        other.receive(afresh.connected())
    with pytest.raises(SessionMismatch):
        afresh.receive(other.connected())


def test_both_afresh_have_nothing_to_do_with_what_was() -> None:
    one, other = Link("one.2"), Link("other.2")
    first, second = one.connected(), other.connected()
    other.receive(first)
    one.receive(second)
    one.send(item(1))
    assert carry(one, other) == [item(1)]


def test_one_afresh_and_one_that_never_opened_get_on() -> None:
    one, other = Link("one.1"), Link("other.1")
    one.connected()  # its first frame is lost, and then this link
    other.connected()
    other.disconnected(0.0)
    afresh = Link("one.2")
    first, second = afresh.connected(), other.connected()
    other.receive(first)
    afresh.receive(second)
    afresh.send(item(1))
    assert carry(afresh, other) == [item(1)]


# Wrong frames


@pytest.mark.parametrize(
    "fields",
    [
        ["done", 1],  # no batch has been sent
        ["batch", 1, 1, []],
        ["ping", 0.0, None, 7],
        ["open", "other.1", "one.1", 1],
    ],
)
def test_a_confirmation_of_what_was_never_sent_is_an_error(fields: list[object]) -> None:
    one, _ = opened()
    with pytest.raises(LinkError, match="never sent"):
        one.receive(ormsgpack.packb(fields))


def test_a_batch_out_of_order_is_an_error() -> None:
    one, _ = opened()
    with pytest.raises(LinkError, match="batch 2 came after batch 0"):
        one.receive(ormsgpack.packb(["batch", 2, 0, []]))


@pytest.mark.parametrize("kind", ["batch", "done", "ping"])
def test_before_open_there_is_nothing_else(kind: str) -> None:
    link = Link("one.1")
    link.connected()
    frames: dict[str, list[Any]] = {"batch": [1, 0, []], "done": [0], "ping": [0.0, None, 0]}
    with pytest.raises(LinkError, match="before the link was open"):
        link.receive(ormsgpack.packb([kind, *frames[kind]]))


def test_every_torn_frame_is_an_error() -> None:
    one, other = opened()
    one.send(item(12345, b"payload"))
    frames = [*one.flush(), *one.ping(1.0), one.connected()]
    for frame in frames:
        for length in range(len(frame)):
            with pytest.raises(LinkError):
                other.receive(frame[:length])
    # The link is unharmed, and goes on over the next connection.
    first, second = one.connected(), other.connected()
    other.receive(first)
    _, again = one.receive(second)
    assert other.receive(again[0])[0] == [item(12345, b"payload")]


scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=3) | st.binary(max_size=3)
shapes = st.lists(scalars | st.lists(scalars, max_size=2), max_size=5)
kinds = st.sampled_from(["open", "batch", "done", "ping", "close", None, 1, ["open"]])


@given(
    st.binary(max_size=30)
    | scalars.map(ormsgpack.packb)
    | st.tuples(kinds, shapes).map(lambda frame: ormsgpack.packb([frame[0], *frame[1]]))
)
def test_no_frame_does_worse_than_an_error(frame: bytes) -> None:
    one, _ = opened()
    try:
        one.receive(frame)
    except LinkError:
        pass
