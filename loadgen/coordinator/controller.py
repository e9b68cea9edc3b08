"""Searches for the greatest publish rate that a system sustains. Thesis 6.2.1 and 6.2.2: raise the rate until the
latency goal is missed, lower it until the goal is met again, and settle at a rate that the system sustains.

Owns: the choice of the next rate and its duration, and the decision whether a step held. Must never: read a clock, do
I/O or draw a random number. The caller runs a step, passes in its result, and asks for the next step.

The search, in the order of the code below:

1. Start low and double the rate while steps hold. If the first step does not hold, lower the rate until a step does.
2. A breach counts immediately if the median is late and the backlog still grows, because a single stall cannot cause
   both. After any other breach, repeat the step once with double length. A stall will not recur, and an overload has
   twice as much time to appear.
3. After every breach, and before every measured phase, let the system recover at a low rate, step by step, until a step
   holds and the backlog stops shrinking.
4. Bisect (geometrically) between the highest rate that held and the lowest rate that did not, until the interval is
   half the precision. If latency was far below the limit at the highest rate that held, also try the lowest failed rate
   once more. A disturbance of the machine may have made both steps at this rate fail. If this rate holds now, continue
   from there as in 1.
5. Measure (``sustained``). This phase is longer than a search step, so it detects smaller overloads. If the phase is a
   breach, lower the rate by half the precision. Lower it by more after each further breach. If the search result is
   right within half the precision, the final result is right within the full precision.

p99 alone does not tell whether a step held. If a queue grows by 1 % of the load, messages become later by 10 ms every
second, so it would take minutes until p99 exceeds a limit of 2 s. But the backlog at the end of the step then exceeds
the backlog that the median latency explains (Little's law: outstanding = rate x latency). This excess shows within one
step, for any limit.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

Purpose = Literal["search", "recover", "sustained", "half"]

_NS = 1e9
#: Share of a step's publishes that may be missing at its end, because the last publishes are still being sent.
_SHORT = 0.02
#: Share of the deliveries that may be lost, or of the publishes that may fail, before a step counts as a breach. The
#: run's goals judge losses. This limit only has to detect a system that sheds load.
_LOSS = 0.001
#: The longest time between the instants at which the processes read their counts.
_SKEW_S = 0.010
#: This number of publishes may always be under way. At low rates, one or two messages are not a queue yet.
_FEW = 2
#: A search step at a low rate is longer, so that it has at least this number of publishes. Fewer publishes would show
#: only noise. The second number is the largest factor by which a step may be longer.
_STEP_MESSAGES = 150
_STRETCHED_MOST = 3
#: The minimum number of publishes in a recovery step. Fewer publishes could not show a latency.
_RECOVER_MESSAGES = 5
#: For recovery, the rate is this share of the highest rate that held. A system is then nearly idle. Some systems
#: recover only when they are nearly idle.
_RECOVER_SHARE = 0.1
#: Near the greatest rate, p99 is more than the limit divided by this number, unless latency rises abruptly.
_CALM = 5
#: After this many recovery steps in a row without progress (each half as long as a step), the search gives up.
_STUCK_MOST = 20
#: If the found rate was too high for a long phase, each further measurement lowers it by the next of these numbers, in
#: units of half the precision. With the first numbers, the rate becomes too low by at most the precision. Later numbers
#: are farther apart, so that the search for a lower rate ends soon.
_LOWERED = (1, 2, 3, 4, 6, 10, 16)


class Limit(NamedTuple):
    """The limit that a step must keep. ``p99_ns``: 99 % of the deliveries must have at most this latency, measured
    from the intended time of sending."""

    p99_ns: int


class Step(NamedTuple):
    """Publish at ``rate_per_s``, evenly spaced, for ``duration_s``. Steps follow each other without a pause."""

    rate_per_s: float
    duration_s: float
    purpose: Purpose


class Seen(NamedTuple):
    """The result of a step.

    ``duration_s``: how long the step really took. ``sent``: the number of publishes. ``expected``: how many deliveries
    these publishes announced. ``delivered``: how many of these deliveries arrived or were replaced by another delivery.
    ``lag_ns``: how far the sender was behind its schedule at the end. The latencies are those of the deliveries that
    arrived, or ``None`` if no delivery arrived.

    ``backlog``: how many announced deliveries had not arrived at the end of the step. Callers may leave out deliveries
    that earlier steps announced, whether they are lost or not. However, a system that then delivers only such old
    messages for half a minute looks like a system that is stuck.
    """

    duration_s: float
    sent: int
    expected: int
    delivered: int
    p50_ns: float | None
    p99_ns: float | None
    max_ns: float | None
    backlog: int
    lag_ns: float
    errors: int


class Verdict(NamedTuple):
    """Whether a step held. ``text``: the same in words, one line without commas or quotes."""

    held: bool
    text: str


class Result(NamedTuple):
    """``rate_per_s``: the greatest sustainable rate, or ``None`` if there is none. ``text``: how the search ended."""

    rate_per_s: float | None
    text: str


class _Judged(NamedTuple):
    """``wrong``: the reasons why the step did not hold; ``well``: a description of a step that held. ``behind_s``: how
    late the system and the sender together were at the end. ``allowed``: the largest backlog that a step may have."""

    wrong: list[str]
    well: str
    behind_s: float
    allowed: float


class Controller:
    """Ask ``next()`` for a step, run the step, and pass its result to ``observe()``. Repeat this until ``next()``
    returns ``None``. Then read ``result``.

    ``start_per_s``, ``least_per_s``, ``most_per_s``: the first, lowest and highest rate to try, publishes per second.
    ``step_s``, ``measure_s``: seconds of a search step, and of each measured phase. ``precision``: the largest error of
    the result, as a share. ``recover_most_s``: seconds for all recoveries together. Raises ``ValueError`` if the
    arguments do not fit together.
    """

    def __init__(
        self,
        limit: Limit,
        *,
        start_per_s: float = 500.0,
        most_per_s: float = 1_000_000.0,
        step_s: float = 3.0,
        measure_s: float = 15.0,
        precision: float = 0.05,
        least_per_s: float = 10.0,
        recover_most_s: float = 180.0,
    ) -> None:
        if limit.p99_ns <= 0:
            raise ValueError("the latency limit must be above 0")
        if not 0 < least_per_s <= start_per_s <= most_per_s < math.inf:
            raise ValueError(
                "the rates must be finite and in order: "
                f"0 < least {least_per_s:g} <= start {start_per_s:g} <= most {most_per_s:g}"
            )
        if not (0 < step_s < math.inf and 0 < measure_s < math.inf and 0 <= recover_most_s < math.inf):
            raise ValueError("the lengths of the steps must be above 0 and finite")
        # With a finer precision, noise would decide. With a much coarser precision, a rate that is lowered a few times
        # would become 0 or less.
        if not 0.01 <= precision <= 0.1:
            raise ValueError(f"the precision must be 0.01 to 0.1, not {precision:g}")
        self._limit = limit
        self._start = start_per_s
        self._least = least_per_s
        self._most = most_per_s
        self._step_s = step_s
        self._measure_s = measure_s
        self._half_precision = precision / 2
        self._recover_s = step_s / 2
        self._recover_most_s = recover_most_s

        self._low: float | None = None  # the highest rate that held
        self._high: float | None = None  # the lowest rate that did not hold
        self._reached = start_per_s  # the rate that the system delivered, while no rate has held yet
        self._again = False  # whether the step under way repeats a breach
        self._calm = False  # whether p99 was far within the limit at `_low`
        self._looked_again = False  # whether `_high` was tried again after the bisection
        self._found = 0.0
        self._lowered = 0

        self._then: Step | None = None  # the step to run after recovering
        self._recovering_s = 0.0
        self._stuck = 0
        self._before = 0  # the backlog when the step under way began
        self._lost = 0  # the part of the backlog that counts as lost

        self._result: Result | None = None
        self._step: Step | None = Step(start_per_s, self._length_s(start_per_s), "search")

    @property
    def longest_s(self) -> float:
        """The maximum number of seconds that all steps together can take. Usually they take a fraction of this time."""
        up = range(math.ceil(math.log2(self._most / self._start)) + 1)
        down = range(math.ceil(math.log2(self._start / self._least)) + 1)
        # When bisection begins, the two rates differ by a factor of at most 4. Rounding can add one more step.
        halvings = math.ceil(math.log2(math.log(4) / math.log1p(self._half_precision))) + 1
        rising_s = sum(self._length_s(self._start * 2**n) for n in up) + halvings * self._length_s(self._start)
        # The search may lower the rate until a step holds, and then raise it again.
        falling_s = sum(self._length_s(self._start / 2**n) for n in down) * 2 + halvings * self._length_s(self._least)
        measuring_s = (len(_LOWERED) + 2) * self._measure_s
        # Each rate can take a step and a repetition of double length (factor 3). Trying a breach again after the
        # bisection can take the same time again (factor 2).
        return 2 * 3 * max(rising_s, falling_s) + self._recover_most_s + measuring_s

    @property
    def result(self) -> Result:
        """How the search ended."""
        return self._result or Result(None, "not finished")

    def next(self) -> Step | None:
        """Return the step to run now, or ``None`` when the search is over. Return the same step until ``observe`` gets
        its result."""
        return self._step

    def observe(self, seen: Seen) -> Verdict:
        """Judge the step that ``next()`` returned. Raises ``ValueError`` if there is no step, or if it took no time."""
        step = self._step
        if step is None:
            raise ValueError("the search is over, so there is no step to observe")
        if not seen.duration_s > 0:
            raise ValueError(f"a step must take some time, not {seen.duration_s:g} s")
        self._lost = min(self._lost, seen.backlog)  # some of the lost deliveries arrived after all
        if step.purpose == "recover":
            verdict = self._after_recover(step, seen)
        else:
            judged = self._judge(step, seen, self._lost)
            held = not judged.wrong
            text = f"held: {judged.well}" if held else "breach: " + "; ".join(judged.wrong)
            if step.purpose == "search":
                text += self._after_search(step, seen, judged)
            elif step.purpose == "sustained":
                text += self._after_sustained(step, held)
            else:
                self._after_half(step, text, held)
            verdict = Verdict(held, text)
        self._before = seen.backlog
        return verdict

    # -- whether a step held ---------------------------------------------------------------------------------------

    def _judge(self, step: Step, seen: Seen, excused: float) -> _Judged:
        """Judge a step. ``excused``: the number of deliveries in the backlog that do not belong to this step."""
        wrong = []
        offered = step.rate_per_s * min(step.duration_s, seen.duration_s)
        if seen.sent < offered * (1 - _SHORT) - _FEW:
            wrong.append(f"sent {seen.sent} of {offered:.0f}")
        if seen.errors > seen.sent * _LOSS:
            wrong.append(f"errors {seen.errors}")
        if not (seen.sent and seen.expected and seen.delivered) or seen.p50_ns is None or seen.p99_ns is None:
            wrong.append("nothing was delivered" if seen.expected else "no deliveries were due")
            return _Judged(wrong, "", 0.0, 0.0)

        if seen.p99_ns > self._limit.p99_ns:
            wrong.append(f"p99 {_ms(seen.p99_ns)} above {_ms(self._limit.p99_ns)}")

        per_s = seen.expected / seen.duration_s
        few = _FEW * seen.expected / seen.sent
        outstanding = max(seen.backlog - excused, seen.expected - seen.delivered, 0)
        behind_s = outstanding / per_s + max(seen.lag_ns, 0) / _NS
        # If a queue grows evenly, it is longer at the end of the step than in the middle, by half of its growth.
        growth_s = self._half_precision * seen.duration_s / 2
        allowed_s = min(self._limit.p99_ns / _NS, max(seen.p50_ns, 0) / _NS + growth_s) + _SKEW_S
        if behind_s > allowed_s + few / per_s:
            wrong.append(f"{_ms(behind_s * _NS)} behind; median {_ms(seen.p50_ns)}")
        # Every outstanding message was sent within the time that the slowest delivery took, unless it was lost.
        unexplained = outstanding - per_s * max(seen.max_ns or 0, 0) / _NS
        if unexplained > per_s * _SKEW_S + seen.expected * _LOSS + few:
            wrong.append(f"{unexplained:.0f} deliveries missing for longer than any delivery took")
        return _Judged(
            wrong,
            f"p99 {_ms(seen.p99_ns)}; {_ms(behind_s * _NS)} behind",
            behind_s,
            per_s * allowed_s + few,
        )

    def _beyond_doubt(self, seen: Seen, behind_s: float) -> bool:
        """Return whether half of the deliveries were late and latency grew towards the end. After a stall, latency
        would decrease."""
        late_ns = min(self._limit.p99_ns, seen.duration_s / 16 * _NS)
        return seen.p50_ns is not None and seen.p50_ns > late_ns and behind_s > 1.5 * seen.p50_ns / _NS

    # -- the next step ---------------------------------------------------------------------------------------------

    def _after_search(self, step: Step, seen: Seen, judged: _Judged) -> str:
        """Choose the next step. Return words to add to the verdict."""
        again, self._again = self._again, False
        if not judged.wrong:
            self._low = step.rate_per_s
            self._calm = seen.p99_ns is not None and seen.p99_ns * _CALM <= self._limit.p99_ns
            onward = self._onward()
            assert onward is not None, "there is a rate that held"
            if onward.purpose == "search":
                self._step = onward
            else:
                self._recover(onward)
            return "; the breach did not recur" if again else ""
        if not again and not self._beyond_doubt(seen, judged.behind_s):
            self._again = True
            self._recover(Step(step.rate_per_s, 2 * step.duration_s, "search"))
            return "; tried again after a rest"
        self._high = step.rate_per_s
        if self._low is None:
            self._reached = step.rate_per_s * min(1.0, seen.delivered / max(seen.expected, 1))
        onward = self._onward()
        if onward is None:
            self._end(None, f"not even {_rate(step.rate_per_s)} held; a step needs {self._limit_text()}")
        else:
            self._recover(onward)
        return "; for the second time" if again else "; no stall explains that"

    def _onward(self) -> Step | None:
        """Return the next step of the search, or the measurement, or ``None`` if the lowest rate did not hold."""
        low, high = self._low, self._high
        if low is None:
            assert high is not None
            if high <= self._least:
                return None
            # The rate that the system delivered may be far below half of the rate. If the search went down to that rate
            # in steps, the system would have to drain after each overload.
            rate = min(high / 2, self._reached)
        elif high is None:
            if low >= self._most:
                return self._measure(low)
            rate = 2 * low
        else:
            if high / low <= 1 + self._half_precision:
                if self._calm and not self._looked_again:
                    self._looked_again = self._again = True  # so that a breach of this step counts immediately
                    self._high = None
                    return Step(high, 2 * self._length_s(high), "search")
                return self._measure(low)
            rate = min(2 * low, math.sqrt(low * high))
        # Round before applying the bounds, because rounding a bound could move it out of reach.
        rate = min(max(_rounded(rate), self._least), self._most)
        return Step(rate, self._length_s(rate), "search")

    def _length_s(self, rate_per_s: float) -> float:
        return max(self._step_s, min(_STEP_MESSAGES / rate_per_s, _STRETCHED_MOST * self._step_s))

    def _measure(self, rate_per_s: float) -> Step:
        self._found = rate_per_s
        return Step(rate_per_s, self._measure_s, "sustained")

    def _after_sustained(self, step: Step, held: bool) -> str:
        if held:
            self._recover(Step(step.rate_per_s / 2, self._measure_s, "half"))
            return ""
        if self._lowered == len(_LOWERED):
            self._end(None, f"found {_rate(self._found)} but not even {_rate(step.rate_per_s)} was sustained")
            return "; given up"
        share = 1 - self._half_precision * _LOWERED[self._lowered]
        self._lowered += 1
        self._recover(Step(_rounded(self._found * share), self._measure_s, "sustained"))
        return f"; lowered to {share:.1%}"

    def _after_half(self, step: Step, text: str, held: bool) -> None:
        rate = step.rate_per_s * 2
        how = f"sustained {_rate(rate)}"
        if self._lowered:
            how += f" after {_rate(self._found)} was too much in the long run"
        if rate >= self._most:
            how += "; this is the highest rate to try and the limit may be higher"
        elif rate < self._start:
            how += "; this is below the start rate"
        if not held:
            how += f"; at half of this rate: {text}"
        self._end(rate, how)

    # -- recovering ------------------------------------------------------------------------------------------------

    def _recover(self, then: Step) -> None:
        self._then = then
        self._stuck = 0
        self._rest()

    def _rest(self) -> None:
        """Choose one more step of recovery, or end the search if the time for recovering is used up."""
        if self._recovering_s + self._recover_s > self._recover_most_s:
            self._give_up(f"{self._recover_most_s:g} s were not enough to recover")
            return
        self._recovering_s += self._recover_s
        known = self._low if self._low is not None else self._reached
        rate = max(known * _RECOVER_SHARE, _RECOVER_MESSAGES / self._recover_s)
        self._step = Step(_rounded(min(rate, self._most)), self._recover_s, "recover")

    def _after_recover(self, step: Step, seen: Seen) -> Verdict:
        """Continue the search if the step held and the backlog does not shrink any further. Otherwise, recover for
        another step, or give up. Deliveries still in the backlog after recovering count as lost."""
        judged = self._judge(step, seen, self._before)
        draining = self._before - seen.backlog > judged.allowed and seen.backlog - self._lost > judged.allowed
        if not judged.wrong and not draining:
            self._lost = seen.backlog
            self._step = self._then
            return Verdict(True, f"recovered: {judged.well}")
        reason = "; ".join(judged.wrong) or "draining"
        self._stuck = 0 if seen.backlog < self._before else self._stuck + 1
        if self._stuck == _STUCK_MOST:
            self._give_up(f"no progress in {self._stuck} steps at {_rate(step.rate_per_s)}: {reason}")
        else:
            self._rest()
        return Verdict(False, f"recovering: {reason}; backlog {seen.backlog}")

    def _give_up(self, why: str) -> None:
        held = "nothing held" if self._low is None else f"{_rate(self._low)} held for a step"
        self._end(None, f"{held}; the system did not recover from an overload: {why}")

    def _limit_text(self) -> str:
        return f"p99 within {_ms(self._limit.p99_ns)} and no growing backlog"

    def _end(self, rate_per_s: float | None, text: str) -> None:
        self._result = Result(rate_per_s, text)
        self._step = None


def _rounded(rate_per_s: float) -> float:
    """Round to four digits, which is easy to read and finer than any allowed precision."""
    return float(f"{rate_per_s:.4g}")


def _rate(per_s: float) -> str:
    return f"{per_s:.0f}/s" if per_s >= 100 else f"{per_s:.3g}/s"


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.4g} ms"
