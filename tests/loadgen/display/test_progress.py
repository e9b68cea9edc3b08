"""The progress for a person: plain lines, and the display on a real (pseudo-)terminal."""

from __future__ import annotations

import io
import os
import re
import sys
import termios
from collections.abc import Iterator
from typing import TextIO

import pytest
from rich.cells import cell_len

from ingeborg.loadgen.display.progress import Progress, Snapshot, table

CONNECT = Snapshot(
    phase="connect",
    phase_elapsed_s=1.2,
    phase_left_s=None,
    done=1500,
    of=100_000,
    offered_per_s=None,
    in_per_s=0,
    out_per_s=0,
    p50_ns=None,
    p99_ns=None,
    behind=0,
    errors=0,
    silent_s=None,
    generator_cores=None,
    server_cores=None,
)
SUSTAINED = Snapshot(
    phase="sustained",
    phase_elapsed_s=12.4,
    phase_left_s=2.6,
    done=None,
    of=None,
    offered_per_s=20_000,
    in_per_s=19_998.4,
    out_per_s=99_991.6,
    p50_ns=1_234_567,
    p99_ns=49_900_000,
    behind=1234,
    errors=2,
    silent_s=None,
    generator_cores=0.934,
    server_cores=1.5,
)
TERMINAL = {"TERM": "xterm-256color"}
SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal:
    """A pseudo-terminal: ``out`` writes to it, ``shown()`` returns the text since the last call."""

    def __init__(self, columns: int) -> None:
        self._master, slave = os.openpty()
        os.set_blocking(self._master, False)
        self.out: TextIO = os.fdopen(slave, "w", encoding="utf-8")
        self.resize(columns)

    def resize(self, columns: int) -> None:
        termios.tcsetwinsize(self.out.fileno(), (30, columns))

    def shown(self) -> str:
        self.out.flush()
        parts = []
        while True:
            try:
                parts.append(os.read(self._master, 65_536))
            except BlockingIOError:
                return b"".join(parts).decode()

    def close(self) -> None:
        self.out.close()
        os.close(self._master)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal(columns=100)
    yield made
    made.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def lines(shown: str) -> list[str]:
    """Return the text that a terminal shows, without colours and the like."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r", "").split("\n")


# -- plain ---------------------------------------------------------------------------------------------------------


def test_without_a_terminal_there_are_plain_lines(clock: Clock) -> None:
    out = io.StringIO()
    with Progress(out, clock=clock, environ=TERMINAL) as progress:
        progress.say("traffic against ingeborg")
        progress.update(CONNECT)
        progress.ended("connect", "20 connections in 0.1 s")
        progress.update(SUSTAINED)
        progress.ended("sustained", "held: p99 49.9 ms")
    assert out.getvalue().split("\n") == [
        "traffic against ingeborg",
        "connect         1 s  1,500 of 100,000  in 0/s  out 0/s  p50 -  p99 -  behind 0  errors 0",
        "connect      20 connections in 0.1 s",
        "sustained      12 s  3 s left  offered 20,000/s  in 19,998/s  out 99,992/s  p50 1.23 ms"
        "  p99 49.9 ms  behind 1,234  errors 2  generator 0.93  servers 1.50",
        "sustained    held: p99 49.9 ms",
        "",
    ]


def test_a_system_that_delivers_nothing_is_seen_while_it_lasts(clock: Clock) -> None:
    out = io.StringIO()
    Progress(out, clock=clock).update(SUSTAINED._replace(silent_s=4.2))
    assert "errors 2  nothing arrived for 4 s  generator" in out.getvalue()


def test_plain_lines_come_once_a_second_and_for_every_phase(clock: Clock) -> None:
    out = io.StringIO()
    progress = Progress(out, clock=clock)
    for tenth in range(30):
        clock.now = tenth / 10
        progress.update(SUSTAINED)
    assert out.getvalue().count("\n") in (3, 4)
    before = out.getvalue().count("\n")
    progress.update(SUSTAINED._replace(phase="half"))
    progress.ended("half", "held")
    progress.update(SUSTAINED._replace(phase="half"))  # another phase with the same name
    assert out.getvalue().count("\n") == before + 3


@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}, {}])
def test_who_wants_no_escape_codes_gets_none(environ: dict[str, str], terminal: Terminal, clock: Clock) -> None:
    with Progress(terminal.out, clock=clock, environ=environ) as progress:
        progress.update(SUSTAINED)
        progress.say("\x1b[31mred\x07")
    shown = terminal.shown()
    assert "\x1b" not in shown
    assert "sustained      12 s" in shown
    assert "\ufffd[31mred\ufffd" in shown


# -- a terminal ----------------------------------------------------------------------------------------------------


def test_a_terminal_shows_how_it_goes_in_place(terminal: Terminal, clock: Clock) -> None:
    with Progress(terminal.out, clock=clock, environ=TERMINAL) as progress:
        progress.update(SUSTAINED)
        shown = terminal.shown()
        assert HIDE_CURSOR in shown
        assert [" ".join(line.replace("━", "").replace("╸", "").replace("╺", "").split()) for line in lines(shown)] == [
            "sustained 12 s 3 s left",
            "rate offered 20,000/s in 19,998/s out 99,992/s",
            "latency p50 1.23 ms p99 49.9 ms",
            "trouble behind 1,234 errors 2",
            "cores generator 0.93 servers 1.50",
        ]
        assert "━" in shown
        clock.now = 1
        progress.update(SUSTAINED._replace(in_per_s=7))
        shown = terminal.shown()
        assert "\x1b[1A" in shown, "goes up, to draw over what was there"
        assert "in 7/s" in " ".join(lines(shown))


def test_a_terminal_is_drawn_four_times_a_second_at_most(terminal: Terminal, clock: Clock) -> None:
    with Progress(terminal.out, clock=clock, environ=TERMINAL) as progress:
        for milliseconds in range(1000):
            clock.now = milliseconds / 1000
            progress.update(SUSTAINED)
        assert terminal.shown().count("offered") == 4


@pytest.mark.parametrize("columns", [40, 60, 120])
@pytest.mark.parametrize("snapshot", [CONNECT, SUSTAINED], ids=lambda snapshot: snapshot.phase)
def test_it_fits_into_a_window(snapshot: Snapshot, columns: int, terminal: Terminal, clock: Clock) -> None:
    terminal.resize(columns)
    with Progress(terminal.out, clock=clock, environ=TERMINAL) as progress:
        progress.update(snapshot)
        shown = lines(terminal.shown())
    assert len(shown) == 5
    assert all(cell_len(line) <= columns for line in shown)
    assert any("errors" in line for line in shown)


def test_it_follows_a_window_that_changes(terminal: Terminal, clock: Clock) -> None:
    with Progress(terminal.out, clock=clock, environ=TERMINAL) as progress:
        progress.update(SUSTAINED)
        assert max(cell_len(line) for line in lines(terminal.shown())) == 100
        terminal.resize(60)
        clock.now = 1
        progress.update(SUSTAINED)
        assert max(cell_len(line) for line in lines(terminal.shown())) == 60


def test_lines_that_stay_are_above_and_are_not_broken(terminal: Terminal, clock: Clock) -> None:
    verdict = "held: " + "word " * 40 + "[bold] :smile: \x1b[2J"
    with Progress(terminal.out, clock=clock, environ=TERMINAL) as progress:
        progress.update(SUSTAINED)
        terminal.shown()
        progress.ended("search 3", verdict)
        shown = terminal.shown()
    assert "\x1b[2J" not in shown
    assert f"search 3     {verdict.replace(chr(27), chr(0xFFFD))}" in lines(shown)
    assert shown.index("word") < shown.index("offered")


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, RuntimeError])
def test_the_terminal_is_given_back_whatever_happens(
    error: type[BaseException] | None, terminal: Terminal, clock: Clock
) -> None:
    streams = sys.stdout, sys.stderr
    progress = Progress(terminal.out, clock=clock, environ=TERMINAL)
    try:
        with progress:
            progress.update(SUSTAINED)
            if error is not None:
                raise error
    except (KeyboardInterrupt, RuntimeError):
        pass
    progress.close()
    shown = terminal.shown()
    assert shown.count(HIDE_CURSOR) == shown.count(SHOW_CURSOR) == 1
    assert shown.index(HIDE_CURSOR) < shown.index(SHOW_CURSOR)
    assert (sys.stdout, sys.stderr) == streams
    progress.say("the end")
    assert "the end" in lines(terminal.shown())


def test_a_display_that_was_never_shown_hides_nothing(terminal: Terminal, clock: Clock) -> None:
    with Progress(terminal.out, clock=clock, environ=TERMINAL) as progress:
        progress.say("nothing to do")
    assert lines(terminal.shown()) == ["nothing to do", ""]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"phase_left_s": None}, "12 s"),
        ({"phase_left_s": -0.4}, "0 s left"),
        ({"phase_elapsed_s": 0.0, "phase_left_s": 0.0}, "0 s left"),
        ({"done": 7, "of": None}, "7"),
        ({"done": 0, "of": 0}, "0 of 0"),
        ({"phase_left_s": 7325.0}, "2:02:05 left"),
        ({"p99_ns": 12_345_678_901.0}, "p99 12,346 ms"),
        ({"p50_ns": -5_000.0}, "p50 -0.01 ms"),
        ({"p50_ns": 12_345_678}, "p50 12.3 ms"),
        ({"generator_cores": None, "server_cores": None}, "cores"),
    ],
)
def test_whatever_is_unknown_or_odd_is_shown(
    change: dict[str, float | None], words: str, terminal: Terminal, clock: Clock
) -> None:
    with Progress(terminal.out, clock=clock, environ=TERMINAL) as progress:
        progress.update(SUSTAINED._replace(**change))  # type: ignore[arg-type]
        assert words in "\n".join(lines(terminal.shown()))


# -- the table at the end ------------------------------------------------------------------------------------------


def test_a_table_is_two_columns_of_plain_text() -> None:
    assert table([("delivered", "1,000"), ("lost", "0"), ("größe", "")], title="traffic") == (
        "traffic\ndelivered  1,000\nlost       0\ngröße"
    )
    assert table([("電", "wide"), ("abc", "narrow")]) == "電   wide\nabc  narrow"
    assert table([]) == ""
