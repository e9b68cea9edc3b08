"""The rate controller against simulated systems of known capacity: found within 5 %, in bounded time."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingeborg.loadgen.coordinator.controller import Controller, Limit, Result, Seen, Step, Verdict

from ..queue_system import FANOUT, TICK_S, System

LIMIT = Limit(p99_ns=50_000_000)


class Line(NamedTuple):
    step: Step
    seen: Seen
    verdict: Verdict


class Search(NamedTuple):
    result: Result
    lines: list[Line]

    def seconds(self, *purposes: str) -> float:
        return sum(line.step.duration_s for line in self.lines if line.step.purpose in purposes)

    def rates(self, purpose: str) -> list[float]:
        return [line.step.rate_per_s for line in self.lines if line.step.purpose == purpose]


def search(run: Callable[[Step], Seen], controller: Controller | None = None) -> Search:
    controller = controller or Controller(LIMIT)
    lines = []
    while (step := controller.next()) is not None:
        assert controller.next() is step, "asking again changes nothing"
        assert controller.result == (None, "not finished")
        seen = run(step)
        lines.append(Line(step, seen, controller.observe(seen)))
    made = Search(controller.result, lines)
    assert made.seconds("search", "recover", "sustained", "half") <= controller.longest_s
    for line in lines:
        assert not set(line.verdict.text) & set(",\"'\n"), line.verdict.text
    return made


def assert_found(made: Search, rate_per_s: float) -> None:
    found = made.result.rate_per_s
    assert found is not None, made.result.text
    assert found == pytest.approx(rate_per_s, rel=0.05), made.result.text
    assert made.lines[-1].step.purpose == "half"
    assert made.lines[-1].step.rate_per_s == found / 2
    assert made.lines[-1].verdict.held


# -- systems of known capacity -------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.floats(math.log(20), math.log(200_000)).map(math.exp), st.sampled_from([100, 500, 2000]), st.booleans())
@example(20, 500, True)
@example(200_000, 500, True)
@example(500, 500, True)
@example(999.99, 500, False)
def test_a_queue_is_found_whatever_its_capacity(capacity: float, limit_ms: int, total: bool) -> None:
    # Slow systems take a minute to drain an overload's backlog: only the total backlog shows that they do.
    system = System(capacity, total_backlog=total or capacity < 60)
    assert_found(search(system.run, Controller(Limit(limit_ms * 1_000_000))), capacity)


@pytest.mark.parametrize("limit_ms", [50, 2000])
@pytest.mark.parametrize("capacity", [700, 4_000, 20_000, 31_000])
def test_a_search_takes_about_a_minute(capacity: int, limit_ms: int) -> None:
    made = search(System(capacity).run, Controller(Limit(limit_ms * 1_000_000)))
    assert_found(made, capacity)
    assert sum(line.step.duration_s for line in made.lines[: _first(made, "sustained")]) < 90


def _first(made: Search, purpose: str) -> int:
    return next(i for i, line in enumerate(made.lines) if line.step.purpose == purpose)


def test_a_cliff_is_found() -> None:
    """Latency is fine up to 7,300/s, and half a second above, though every message comes."""
    assert_found(search(System(50_000, extra_s=lambda rate: 0.5 if rate > 7300 else 0.0).run), 7300)


@pytest.mark.parametrize("seed", range(10))
def test_a_noisy_system_is_found(seed: int) -> None:
    """Every 5 ms it is up to 40 % faster or slower, and every latency of that time has a long tail."""
    random = Random(seed)
    noisy = System(
        lambda system: 12_000 * random.uniform(0.6, 1.4),
        extra_s=lambda rate: min(random.lognormvariate(-6.5, 1.0), 0.04),
    )
    assert_found(search(noisy.run), 12_000)


def test_a_machine_that_is_disturbed_for_a_while_does_not_have_the_last_word() -> None:
    """Another program disturbs the first half minute of the search only."""
    system = System(12_000)
    ran_s = 0.0

    def run(step: Step) -> Seen:
        nonlocal ran_s
        ran_s += step.duration_s
        seen = system.run(step)
        return seen._replace(p99_ns=90e6) if step.rate_per_s > 1500 and ran_s < 30 else seen

    made = search(run)
    assert_found(made, 12_000)
    assert max(made.rates("search")[:8]) < 2500


@pytest.mark.parametrize("start", [0.0, 0.3, 0.61])
@pytest.mark.parametrize("limit_ms", [60, 500])
def test_short_stalls_within_the_limit_are_no_breach(start: float, limit_ms: int) -> None:
    """A garbage collection of 30 ms, every 0.7 s: the rest of the time is the capacity."""
    stalling = System(10_000, stalled=lambda now: (now + start) % 0.7 < 0.030 - 1e-9)
    assert_found(search(stalling.run, Controller(Limit(limit_ms * 1_000_000))), 10_000 * (1 - 0.03 / 0.7))


@pytest.mark.parametrize(
    "length_s", [0.2, pytest.param(0.8, marks=pytest.mark.prove), pytest.param(1.4, marks=pytest.mark.prove)]
)
def test_a_single_long_stall_does_not_end_the_search(length_s: float) -> None:
    """One stall at any time: at the beginning, middle or end of a step, far below the capacity or near it."""
    for began_s in range(50):
        system = System(10_000, stalled=_once(began_s, length_s))
        assert_found(search(system.run), 10_000)


def _once(began_s: float, length_s: float) -> Callable[[float], bool]:
    return lambda now: began_s <= now < began_s + length_s


def test_a_system_that_has_to_be_left_idle_after_an_overload_is_found() -> None:
    class Tired:
        tired = False
        idle_ticks = 0

        def __call__(self, system: System) -> float:
            if system.waiting > 2_000:
                self.tired, self.idle_ticks = True, 0
            elif self.tired and system.waiting < 20 and system.rate < 0.2 * 9_000:
                self.idle_ticks += 1
                self.tired = self.idle_ticks * TICK_S < 1.0
            return 0.5 * 9_000 if self.tired else 9_000

    assert_found(search(System(Tired()).run), 9_000)


def test_a_generator_that_sends_less_than_offered_is_the_limit() -> None:
    made = search(System(50_000, sender_per_s=6_500).run)
    assert_found(made, 6_500)
    assert any("sent " in line.verdict.text for line in made.lines)


def test_a_generator_that_leaves_out_what_it_cannot_send_is_the_limit() -> None:
    def run(step: Step) -> Seen:
        return system.run(step)._replace(lag_ns=0)

    system = System(50_000, sender_per_s=6_500)
    assert_found(search(run), 6_500)


@pytest.mark.parametrize("total", [True, False])
@pytest.mark.parametrize("share", [0.01, 0.5, 1.0])
def test_a_system_that_loses_messages_above_a_rate_is_found(share: float, total: bool) -> None:
    made = search(System(80_000, lose=lambda rate: share if rate > 5_000 else 0.0, total_backlog=total).run)
    assert_found(made, 5_000)


def test_a_system_that_drops_what_is_beyond_its_capacity_is_found() -> None:
    assert_found(search(System(80_000, lose=lambda rate: max(0.0, 1 - 5_000 / rate)).run), 5_000)


def test_losing_less_than_one_in_a_thousand_is_left_to_the_goals() -> None:
    """This also holds if all losses so far add up in the backlog."""
    assert_found(search(System(8_000, lose=lambda rate: 0.0008).run), 8_000)


def test_a_system_that_refuses_messages_above_a_rate_is_found() -> None:
    assert_found(search(System(80_000, errors=lambda rate: 0.01 if rate > 5_000 else 0.0).run), 5_000)


# -- ends ----------------------------------------------------------------------------------------------------------


def test_a_system_that_never_delivers_has_no_rate() -> None:
    made = search(System(10_000, lose=lambda rate: 1.0).run)
    assert made.result.rate_per_s is None
    assert "nothing held; the system did not recover" in made.result.text
    assert "nothing was delivered" in made.result.text
    assert not made.rates("sustained")


def test_silence_is_no_success() -> None:
    """No deliveries were due, so nothing is late."""

    def run(step: Step) -> Seen:
        sent = round(step.rate_per_s * step.duration_s)
        return Seen(step.duration_s, sent, 0, 0, None, None, None, backlog=0, lag_ns=0, errors=0)

    made = search(run)
    assert made.result.rate_per_s is None
    assert "no deliveries were due" in made.result.text


def test_a_system_that_is_always_too_slow_has_no_rate() -> None:
    made = search(System(10_000, extra_s=lambda rate: 0.2).run)
    assert made.result.rate_per_s is None
    assert "206 ms above 50 ms" in made.result.text


def test_a_system_that_only_holds_below_the_least_rate_has_no_rate() -> None:
    made = search(System(10_000, extra_s=lambda rate: 0.2 if rate >= 10 else 0).run, Controller(LIMIT, start_per_s=20))
    assert made.result == (None, "not even 10/s held; a step needs p99 within 50 ms and no growing backlog")


def test_a_system_faster_than_the_most_is_measured_there() -> None:
    made = search(System(10_000).run, Controller(LIMIT, most_per_s=3_000))
    assert made.result.rate_per_s == 3_000
    assert "the highest rate to try" in made.result.text
    assert max(line.step.rate_per_s for line in made.lines) == 3_000


def test_a_system_slower_than_the_start_is_found() -> None:
    made = search(System(300).run)
    assert_found(made, 300)
    assert "below the start rate" in made.result.text


def test_one_rate_can_be_asked_for() -> None:
    made = search(System(10_000).run, Controller(LIMIT, start_per_s=777, most_per_s=777, least_per_s=777))
    assert [line.step for line in made.lines] == [
        Step(777, 3, "search"),
        Step(77.7, 1.5, "recover"),
        Step(777, 15, "sustained"),
        Step(77.7, 1.5, "recover"),
        Step(388.5, 15, "half"),
    ]


# -- the way there -------------------------------------------------------------------------------------------------


def test_what_it_does_step_by_step() -> None:
    """One search as a person reads it: doubling, backing off, halving, measuring."""
    made = search(System(3_000).run)
    transcript = [
        f"{step.purpose} {step.rate_per_s:g}/s {step.duration_s:g} s: {verdict.text}" for step, _, verdict in made.lines
    ]
    assert transcript == [
        "search 500/s 3 s: held: p99 6 ms; 0 ms behind",
        "search 1000/s 3 s: held: p99 6 ms; 0 ms behind",
        "search 2000/s 3 s: held: p99 6 ms; 0 ms behind",
        "search 4000/s 3 s: breach: p99 746 ms above 50 ms; 749.8 ms behind; median 381 ms; no stall explains that",
        "recover 200/s 1.5 s: recovering: p99 1001 ms above 50 ms; backlog 0",
        "recover 200/s 1.5 s: recovered: p99 6 ms; 0 ms behind",
        "search 2828/s 3 s: held: p99 6 ms; 0 ms behind",
        "search 3363/s 3 s: breach: p99 325.9 ms above 50 ms; 323.5 ms behind; median 166 ms; no stall explains that",
        "recover 282.8/s 1.5 s: recovering: p99 370.8 ms above 50 ms; backlog 0",
        "recover 282.8/s 1.5 s: recovered: p99 5.972 ms; 0 ms behind",
        "search 3084/s 3 s: breach: p99 85.95 ms above 50 ms; 81.39 ms behind; median 45.89 ms; "
        "tried again after a rest",
        "recover 282.8/s 1.5 s: recovering: p99 90.99 ms above 50 ms; backlog 0",
        "recover 282.8/s 1.5 s: recovered: p99 5.972 ms; 0 ms behind",
        "search 3084/s 6 s: breach: p99 166 ms above 50 ms; 163.1 ms behind; median 85.94 ms; for the second time",
        "recover 282.8/s 1.5 s: recovering: p99 176 ms above 50 ms; backlog 0",
        "recover 282.8/s 1.5 s: recovered: p99 5.972 ms; 0 ms behind",
        "search 2953/s 3 s: held: p99 5.998 ms; 0 ms behind",
        "search 3018/s 3 s: held: p99 25.91 ms; 17.56 ms behind",
        "recover 301.8/s 1.5 s: recovered: p99 25.97 ms; 0 ms behind",
        "sustained 3018/s 15 s: breach: p99 95.83 ms above 50 ms; 89.13 ms behind; median 50.81 ms; lowered to 97.5%",
        "recover 301.8/s 1.5 s: recovering: p99 95.97 ms above 50 ms; backlog 0",
        "recover 301.8/s 1.5 s: recovered: p99 5.983 ms; 0 ms behind",
        "sustained 2943/s 15 s: held: p99 5.998 ms; 0 ms behind",
        "recover 301.8/s 1.5 s: recovered: p99 5.983 ms; 0 ms behind",
        "half 1471.5/s 15 s: held: p99 5.995 ms; 0 ms behind",
    ]
    assert made.result.text == "sustained 2943/s after 3018/s was too much in the long run"


def test_an_overload_that_p99_cannot_show_yet_is_seen_by_what_piles_up() -> None:
    """10 % too much for 3 s is 0.3 s late, far below a limit of 2 s."""
    controller = Controller(Limit(2_000_000_000), start_per_s=1_100)
    seen = System(1_000).run(Step(1_100, 3, "search"))
    assert seen.p99_ns is not None
    assert seen.p99_ns < 2_000_000_000 / 4
    verdict = controller.observe(seen)
    assert not verdict.held
    assert "behind; median" in verdict.text


def test_a_measured_phase_that_breaches_is_lowered_step_by_step_and_then_given_up() -> None:
    system = System(4_000)

    def run(step: Step) -> Seen:
        seen = system.run(step)
        return seen._replace(p99_ns=60e6) if step.purpose == "sustained" else seen

    made = search(run)
    rates = made.rates("sustained")
    assert [rate / rates[0] for rate in rates] == pytest.approx(
        [1, 0.975, 0.95, 0.925, 0.9, 0.85, 0.75, 0.6], rel=0.001
    )
    assert made.result.rate_per_s is None
    assert "was sustained" in made.result.text
    assert not made.rates("half")


def test_a_measured_phase_that_breaches_once_is_measured_again_lower() -> None:
    system = System(4_000)

    def run(step: Step) -> Seen:
        seen = system.run(step)
        return seen._replace(p99_ns=60e6) if step.purpose == "sustained" and system.now < first_end else seen

    first_end = math.inf
    made = search(System(4_000).run)
    first_end = sum(line.step.duration_s for line in made.lines[: _first(made, "sustained") + 1]) + 1
    made = search(run)
    assert len(made.rates("sustained")) == 2
    assert_found(made, 4_000)
    assert "too much in the long run" in made.result.text


def test_a_half_that_breaches_is_said_and_changes_nothing() -> None:
    system = System(4_000)

    def run(step: Step) -> Seen:
        seen = system.run(step)
        return seen._replace(p99_ns=60e6) if step.purpose == "half" else seen

    made = search(run)
    assert made.result.rate_per_s == pytest.approx(4_000, rel=0.05)
    assert "at half of this rate: breach: p99 60 ms above 50 ms" in made.result.text


def test_no_step_follows_an_overload_before_it_has_drained() -> None:
    made = search(System(1_000).run, Controller(LIMIT, start_per_s=8_000))
    for before, after in zip(made.lines, made.lines[1:], strict=False):
        if after.step.purpose != "recover":
            assert before.verdict.held
            assert before.step.purpose == "recover" or after.step.purpose == "search"
            assert before.seen.backlog <= 20 * FANOUT
    assert_found(made, 1_000)


@settings(max_examples=400, deadline=None)
@given(
    st.integers(0, 2**32),
    st.floats(0, 1),
    st.floats(0.5, 200),
    st.floats(1, 400),
    st.floats(1, 3000),
    st.floats(0.01, 0.1),
)
def test_whatever_a_system_does_the_search_ends_in_time(
    seed: int, share_good: float, least: float, start: float, most: float, precision: float
) -> None:
    """This also holds for a system without any sense. ``search`` asserts the bound."""
    controller = Controller(
        LIMIT, least_per_s=least, start_per_s=least * start, most_per_s=least * start * most, precision=precision
    )
    random = Random(seed)

    def run(step: Step) -> Seen:
        assert least <= step.rate_per_s <= least * start * most or step.purpose in ("recover", "half", "sustained")
        sent = math.ceil(step.rate_per_s * step.duration_s)
        if random.random() < share_good:
            return Seen(step.duration_s, sent, 5 * sent, 5 * sent, 1e6, 2e6, 3e6, 0, 0, 0)
        delivered = random.randint(0, 5 * sent)
        late = random.choice([None, 1e6, 1e9])
        return Seen(step.duration_s, sent, 5 * sent, delivered, late, late, late, random.randint(0, 9 * sent), 0, 0)

    made = search(run, controller)
    assert made.result.text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"start_per_s": 5.0}, "in order"),
        ({"most_per_s": 400.0}, "in order"),
        ({"most_per_s": math.inf}, "finite"),
        ({"least_per_s": 0.0}, "in order"),
        ({"step_s": 0.0}, "lengths"),
        ({"measure_s": math.nan}, "lengths"),
        ({"recover_most_s": -1.0}, "lengths"),
        ({"precision": 0.2}, "0.01 to 0.1"),
    ],
)
def test_options_that_do_not_fit_are_refused(change: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Controller(LIMIT, **change)


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        Controller(Limit(0))


def test_only_a_step_under_way_can_be_observed() -> None:
    controller = Controller(LIMIT)
    system = System(10_000)
    with pytest.raises(ValueError, match="must take some time"):
        controller.observe(system.run(Step(500, 3, "search"))._replace(duration_s=0))
    made = search(system.run, controller)
    with pytest.raises(ValueError, match="is over"):
        controller.observe(made.lines[-1].seen)
