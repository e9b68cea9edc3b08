"""A bounded queue of frames: it loses no frame, but a slow consumer loses its whole queue, counted."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.connections.outbox import BURST, DroppingOutbox, Outbox


def test_frames_leave_once_and_in_order() -> None:
    outbox = Outbox(100)
    assert [outbox.push(frame) for frame in (b"a", b"bb", b"ccc")] == [0, 0, 0]
    assert (len(outbox), outbox.size) == (3, 6)
    assert outbox.take() == [b"a", b"bb", b"ccc"]
    assert (len(outbox), outbox.size, outbox.take()) == (0, 0, [])


def stuck(bytes_max: int) -> Outbox:
    """Return an outbox whose reader takes nothing."""
    outbox = Outbox(bytes_max)
    outbox.flowing = False
    return outbox


def test_a_reader_that_takes_everything_may_get_much_in_one_turn() -> None:
    outbox = Outbox(10)
    assert [outbox.push(b"0123456789") for _ in range(BURST)] == [0] * BURST
    assert outbox.push(b"x") == BURST + 1
    assert outbox.overflowed


def test_it_holds_exactly_its_bound() -> None:
    outbox = stuck(10)
    assert outbox.push(b"12345") == 0
    assert outbox.push(b"67890") == 0
    assert not outbox.overflowed
    assert outbox.push(b"") == 0
    assert outbox.push(b"x") == 4
    assert outbox.overflowed


def test_after_an_overflow_nothing_goes_in_any_more() -> None:
    outbox = stuck(1)
    assert outbox.push(b"too long") == 1
    assert outbox.push(b"x") == 1
    assert (len(outbox), outbox.size, outbox.take()) == (0, 0, [])


def test_what_was_taken_frees_its_room() -> None:
    outbox = Outbox(10)
    for _ in range(100):
        assert outbox.push(b"0123456789") == 0
        assert outbox.take() == [b"0123456789"]


@given(st.integers(0, 30), st.lists(st.binary(max_size=12) | st.none(), max_size=40))
def test_every_frame_is_taken_or_counted_as_dropped(bytes_max: int, steps: list[bytes | None]) -> None:
    outbox = stuck(bytes_max)
    pushed: list[bytes] = []
    taken: list[bytes] = []
    dropped = 0
    for frame in steps:
        if frame is None:
            taken += outbox.take()
        else:
            pushed.append(frame)
            dropped += outbox.push(frame)
        assert outbox.size <= bytes_max
    taken += outbox.take()
    assert len(taken) + dropped == len(pushed)
    assert taken == pushed[: len(taken)]
    assert outbox.overflowed is (dropped > 0)


# Writing


@given(
    st.sampled_from((Outbox, DroppingOutbox)),
    st.integers(1, 30),
    st.lists(st.binary(min_size=1, max_size=12) | st.sampled_from(("write", "block", "unblock", "rest")), max_size=80),
)
def test_all_is_written_once_in_its_order_in_pieces_and_never_to_a_full_socket(
    kind: type[Outbox], piece_bytes: int, steps: list[bytes | str]
) -> None:
    outbox = kind(10_000, piece_bytes)
    pushed: list[bytes] = []
    written: list[bytes] = []
    for step in steps:
        if isinstance(step, bytes):
            assert outbox.push(step) == 0
            pushed.append(step)
        elif step == "write":
            frames = outbox.write()
            assert not frames or not outbox.blocked
            assert sum(map(len, frames[:-1])) < piece_bytes or sum(map(len, frames)) <= piece_bytes
            written += frames
        elif step == "rest":
            written += outbox.rest()
        else:
            getattr(outbox, step)()
        waiting = pushed[len(written) :]
        assert written == pushed[: len(written)]
        assert outbox.size + outbox.leaving_bytes == sum(map(len, waiting))
        assert outbox.more is bool(waiting)
        assert outbox.flowing is (not outbox.blocked and not outbox.leaving_bytes)
    outbox.unblock()
    while outbox.more:
        written += outbox.write()
    assert written == pushed


# Dropping the oldest


@given(
    st.integers(0, 30),
    st.booleans(),
    st.lists(st.tuples(st.binary(max_size=12), st.booleans()) | st.none(), max_size=60),
)
def test_a_dropping_outbox_keeps_replies_and_the_latest_notifications(
    bytes_max: int, flowing: bool, steps: list[tuple[bytes, bool] | None]
) -> None:
    outbox = DroppingOutbox(bytes_max)
    outbox.flowing = flowing
    bound = BURST * bytes_max if flowing else bytes_max
    waiting: list[tuple[bytes, bool]] = []
    for step in steps:
        if step is None:
            assert outbox.take() == [frame for frame, _ in waiting]
            waiting = []
            continue
        waiting.append(step)
        dropped = 0
        while sum(len(frame) for frame, _ in waiting) > bound:
            oldest = next((place for place, (_, reply) in enumerate(waiting) if not reply), None)
            if oldest is None:  # replies only
                assert outbox.push(*step) == dropped + len(waiting)
                assert outbox.overflowed
                assert (outbox.push(b""), len(outbox), outbox.size, outbox.take()) == (1, 0, 0, [])
                return
            del waiting[oldest]
            dropped += 1
        assert outbox.push(*step) == dropped
        assert (len(outbox), outbox.size) == (len(waiting), sum(len(frame) for frame, _ in waiting))
        assert not outbox.overflowed


def test_a_reader_that_never_reads_takes_no_more_room_with_time() -> None:
    outbox = DroppingOutbox(1_000)
    outbox.flowing = False
    outbox.push(b"a reply", True)

    def room_after(notifications: int) -> int:
        for _ in range(notifications):
            outbox.push(b"0123456789")
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        first = room_after(5_000)
        assert room_after(50_000) - first < 20_000
    finally:
        tracemalloc.stop()
