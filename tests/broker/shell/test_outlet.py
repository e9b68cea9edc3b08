"""Lines for a stream that can stand still: their order, the held ones, and how it ends."""

from __future__ import annotations

import os
import threading

import pytest

from ingeborg.broker.shell.outlet import HELD_BYTES_MAX, Outlet, writing

PATIENCE_S = 60.0


class Stream:
    """Takes written bytes on command."""

    def __init__(self, *, stands_still: bool = False) -> None:
        self.written: list[bytes] = []
        self.takes = threading.Event()
        self.is_asked = threading.Event()
        self.error: OSError | None = None
        if not stands_still:
            self.takes.set()

    def write(self, data: bytes) -> None:
        self.is_asked.set()
        assert self.takes.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        self.written.append(data)


def notice(dropped: int) -> bytes:
    return b"%d dropped" % dropped


def test_lines_are_written_in_their_order() -> None:
    stream = Stream()
    outlet = Outlet(stream.write, notice)
    lines = [b"%d" % number for number in range(100)]
    for line in lines:
        outlet.put(line)
    outlet.flush(PATIENCE_S)
    assert (stream.written, outlet.dropped) == (lines, 0)


def test_what_does_not_fit_is_dropped_and_said_once_there_is_room() -> None:
    stream = Stream(stands_still=True)
    outlet = Outlet(stream.write, notice)
    half = bytes(HELD_BYTES_MAX // 2)
    for line in (half, half, b"too much", b"this too"):
        outlet.put(line)
    outlet.flush(0.0)  # returns, though nothing is written
    assert (stream.written, outlet.dropped) == ([], 2)
    stream.takes.set()
    outlet.flush(PATIENCE_S)
    outlet.put(b"goes on")
    outlet.flush(PATIENCE_S)
    assert stream.written == [half, half, b"2 dropped", b"goes on"]


def test_without_a_notice_nothing_is_said() -> None:
    stream = Stream(stands_still=True)
    outlet = Outlet(stream.write)
    outlet.put(bytes(HELD_BYTES_MAX))
    outlet.put(b"too much")
    stream.takes.set()
    outlet.flush(PATIENCE_S)
    assert (len(stream.written), outlet.dropped) == (1, 1)


def test_what_cannot_be_written_is_dropped_and_what_follows_is_tried() -> None:
    stream = Stream()
    outlet = Outlet(stream.write, notice)
    stream.error = BrokenPipeError()
    outlet.put(b"lost")
    outlet.flush(PATIENCE_S)
    stream.error = None
    outlet.put(b"not lost")
    outlet.flush(PATIENCE_S)
    assert (stream.written, outlet.dropped) == ([b"not lost"], 1)


def test_one_that_is_closed_writes_what_it_has_and_keeps_no_thread() -> None:
    stream = Stream(stands_still=True)
    outlet = Outlet(stream.write)
    outlet.put(b"last words")
    assert stream.is_asked.wait(PATIENCE_S)
    [thread] = [thread for thread in threading.enumerate() if thread is outlet._thread]
    outlet.close()
    stream.takes.set()
    thread.join(PATIENCE_S)
    assert (stream.written, thread.is_alive()) == ([b"last words"], False)


@pytest.mark.parametrize("blocking", [True, False])
def test_a_pipe_is_written_whole_whoever_has_made_it_what(blocking: bool) -> None:
    ours, theirs = os.pipe()
    data = b"x" * (1 << 20)  # more than it holds
    with os.fdopen(ours, "rb") as end, os.fdopen(theirs, "w") as stream:
        os.set_blocking(theirs, blocking)
        outlet = Outlet(writing(stream))
        outlet.put(data)
        assert end.read(len(data)) == data
