"""When missing deliveries are a silence, when only a loss, and when a failure; in simulated time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.loadgen.coordinator.silence import Silence


def test_nothing_while_messages_are_due_is_told_and_fails() -> None:
    silence = Silence(10.0)
    silence.observe(0.0, 100, 100, 0)
    assert silence.lasts_s == 0
    told_s = failed_s = None
    for tick in range(1, 60):
        now_s = tick / 4
        silence.observe(now_s, 100, 100 + tick * 25, tick * 25)
        told_s = now_s if told_s is None and silence.worth_telling else told_s
        failed_s = now_s if failed_s is None and silence.failed else failed_s
    assert (told_s, failed_s) == (3.25, 10.25)


def test_nothing_while_nothing_is_due_is_no_silence() -> None:
    silence = Silence(1.0)
    for second in range(100):
        silence.observe(float(second), 100, 100, 50)  # fifty were lost before, and always count as behind
    assert silence.lasts_s == 0


def test_what_comes_ends_it_and_its_time_begins_anew() -> None:
    silence = Silence(10.0)
    silence.observe(0.0, 100, 100, 0)
    silence.observe(1.0, 100, 150, 50)
    silence.observe(10.9, 100, 500, 400)
    assert silence.lasts_s == 9.9
    silence.observe(11.0, 101, 510, 409)
    assert silence.lasts_s == 0
    silence.observe(11.5, 101, 520, 419)
    silence.observe(20.0, 101, 900, 799)
    assert silence.lasts_s == 8.5
    assert not silence.failed


def test_a_few_that_are_lost_at_a_low_rate_are_no_silence() -> None:
    silence = Silence(10.0)
    for number in range(4):  # one in twenty seconds, each lost with its hundred deliveries
        silence.observe(20.0 * number, 0, number, 100 * number)
    assert not silence.worth_telling
    silence.observe(100.0, 0, 5, 500)
    assert silence.failed


def test_in_a_closed_loop_a_single_message_that_is_missing_is_a_silence() -> None:
    silence = Silence(10.0, closed_loop=True)
    silence.observe(0.0, 99, 100, 1)
    silence.observe(10.0, 99, 100, 1)
    assert silence.failed
    silence.observe(10.1, 100, 100, 0)
    assert silence.lasts_s == 0


def test_a_process_that_has_told_nothing_stops_its_clock() -> None:
    silence = Silence(10.0)
    silence.observe(0.0, 100, 100, 0)
    silence.observe(1.0, 100, 200, 100)
    for _ in range(100):
        silence.observe(1.0, 100, 2_000, 1_900)  # others' deliveries; the time of the slowest
    assert silence.lasts_s == 0


@given(st.lists(st.tuples(st.floats(0.01, 3), st.integers(0, 50), st.integers(1, 50)), max_size=60), st.booleans())
def test_a_system_that_delivers_something_each_time_is_never_silent(
    steps: list[tuple[float, int, int]], closed_loop: bool
) -> None:
    """The amount of its losses does not matter."""
    silence = Silence(3.5, closed_loop=closed_loop)
    now_s, received, news = 0.0, 0, 0
    for passed_s, more, came in steps:
        now_s, received, news = now_s + passed_s, received + came, news + came + more
        silence.observe(now_s, received, news, news - received)
        assert not silence.failed
