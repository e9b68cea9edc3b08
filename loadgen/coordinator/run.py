"""One run: its phases in order, and the log of each.

Owns: what a phase is, when it ends, and when a run has failed. Must never: send a message (the crew's processes do),
depend on a particular system, or judge a figure. The digest judges figures, except that the controller judges each step
of the search.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from ..backends.base import Backend
from ..display.progress import Progress, Snapshot
from ..log.rundir import RunDirectory
from ..process.assignment import Assignment
from ..process.tally import Latencies
from ..workloads.settings import Causal, Radio, Replay, Topics, Traffic
from .controller import Controller, Limit, Seen, Step
from .crew import Crew, CrewFailed, Sum
from .silence import Silence
from .watch import Sample, Watch, cores

#: Time from the start command to the first message. All processes are ready within this time.
_LEAD_NS = 300_000_000
#: The remaining time of a phase is predicted from its pace only after this share of its amount is done.
_TELLING = 0.01
#: A drain ends when nothing has arrived for this long and nothing waits to be sent. Messages that are still missing are
#: lost.
_QUIET_S = 2.0
#: If receivers reply, a drain ends only when nothing has arrived for this long, even if nothing seems to be missing.
#: The processes report at different instants. So a receiver of a reply may report the reply before its sender does.
_SETTLED_S = 1.0
#: The wait after the last expected delivery, so that a surplus delivery is noticed.
_LINGER_S = 0.5
#: A run that was cut short still waits this long for messages under way.
_CUT_DRAIN_S = 2.0
#: The longest time that the processes may take to drop unsent messages.
_GIVE_UP_S = 30
#: Seconds between two checks of the reports of the processes.
_LOOK_S = 0.1
_DISPLAY_S = 0.25
_SAMPLE_S = 1.0
#: The run reports the first lost connections immediately. It reports later losses at most once in this time, because a
#: thousand connections are not all lost at the same instant.
_LOST_TOLD_EVERY_S = 2.0
#: If a phase makes connections or subscriptions, and has made no progress for this long, the run prints a line. Only
#: the adapter's time-outs end such a phase, because some systems answer late.
_UNCONFIRMED_S = 5.0
#: In a closed loop, the waiting process itself fails after ``stall_s``, with more details. A process that is stuck in a
#: write cannot do that. The coordinator then ends the run after this additional time.
_STALL_SPARE_S = 1.0
#: Codes of errors which mean that the system could not be reached.
_GONE = ("connection_lost", "timeout", "closed")
#: Connecting may take this long per connection, plus a minute.
_CONNECT_S_PER_CONNECTION = 0.05
_CONNECT_S = 60.0
#: Closing may take this long per connection, plus the time to write the last lines. The time per connection is short,
#: because all connections close at the same time.
_CLOSE_S_PER_CONNECTION = 0.005
_CLOSE_S = 30.0


@dataclass
class Phase:
    """A phase that has begun. Its row goes to the log when the run records it."""

    name: str
    kind: str
    start_ns: int
    offered_per_s: float | None
    measured: bool
    before: Sample
    length_s: float | None = None
    of: int | None = None
    end_ns: int = 0
    after: Sample = field(default_factory=dict)
    amount: int | None = None
    detail: str = ""
    sent: int = 0
    delivered: int = 0
    latencies: Latencies = field(default_factory=Latencies)

    @property
    def duration_s(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9

    def cores(self, role: str) -> float | None:
        """Return how many cores the busiest process of the role used, or ``None`` if the number is unknown."""
        return max(cores(self.before, self.after, role).values(), default=None)

    def cpu_us_per_delivered(self, role: str) -> float | None:
        """Return the CPU time of all processes of the role, in µs per delivered message, if it is known."""
        used = cores(self.before, self.after, role)
        return sum(used.values()) * self.duration_s * 1e6 / self.delivered if used and self.delivered else None


@dataclass
class Outcome:
    """The end of the run. ``failed``: why the run ended early. ``result``: the result of the search, in words.
    ``lost_in_search``: deliveries lost in search steps, which can go beyond the limit of the system. ``troubles``:
    descriptions of other problems."""

    total: Sum
    phases: list[Phase]
    complete: bool
    failed: str | None
    result: str | None = None
    lost_in_search: int = 0
    troubles: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """The number of deliveries lost outside the search, where every delivery has to arrive."""
        return max(self.total.behind - self.lost_in_search, 0)

    @property
    def gone(self) -> dict[str, int]:
        """Counts of the errors which mean that the system could not be reached, by code."""
        return {code: count for code in _GONE if (count := self.total.errors[code])}


class _Silent(Exception):
    """Raised if the system no longer delivers anything. The error message says for how long."""


class RunFailed(Exception):
    """Raised if the run could not begin. The error message says why."""


class Run:
    """Call ``execute`` only once. ``subscriptions``, ``connections``: the totals of all processes."""

    def __init__(
        self,
        assignment: Assignment,
        directory: RunDirectory,
        progress: Progress,
        backend: Backend,
        watch: Watch,
        *,
        connections: int,
        subscriptions: int,
    ) -> None:
        self._assignment = assignment
        self._settings = assignment.made()
        self._directory = directory
        self._progress = progress
        self._backend = backend
        self._watch = watch
        self._connections = connections
        self._subscriptions = subscriptions
        self._crew = Crew(assignment)
        self._phases: list[Phase] = []
        self._phase: Phase | None = None
        self._cut = asyncio.Event()
        self._task: asyncio.Task[str | None] | None = None
        self._began = False  # whether the run has connected; from then on, the log is worth keeping
        self._lost = 0  # deliveries of earlier segments that are still missing
        self._lost_in_search = 0
        self._rates = (0, 0, 0.0)  # counts of received and sent, and the time, at the last display
        closed_loop = isinstance(self._settings, Topics)
        stall_s = self._settings.stall_s + (_STALL_SPARE_S if closed_loop else 0.0)
        self._silence = Silence(stall_s, closed_loop=closed_loop)
        groups = () if isinstance(self._settings, Topics) else self._settings.groups
        # An endpoint may hold the last messages for ``held_s``, and nothing arrives meanwhile.
        self._quiet_s = _QUIET_S + max((group.held_s for group in groups), default=0.0)

    def cut(self) -> None:
        """End the run now and keep the measurements. A signal handler may call this."""
        self._cut.set()
        self._crew.cut()
        # A run that connects or subscribes need not wait for anything, so its task is cancelled. A run that publishes
        # has messages under way, and waits for them.
        if self._task is not None and self._phase is not None and self._phase.of is not None:
            self._task.cancel()

    async def execute(self) -> Outcome:
        """Run all phases, and close the directory in any case. If the run cannot even connect, remove the directory and
        raise ``RunFailed``."""
        failed: str | None = None
        result: str | None = None
        done = False
        watchers: list[asyncio.Task[None]] = []
        work: asyncio.Task[str | None] | None = None
        try:
            async with self._crew:
                for number, pid in enumerate(self._crew.pids):
                    self._watch.add(f"generator-{number}", "generator", pid)
                watchers = [asyncio.create_task(self._tick(), name="ticker"), asyncio.create_task(self._heed())]
                self._task = work = asyncio.create_task(self._work())
                await asyncio.wait({work, *watchers}, return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    work.cancel()
                    await asyncio.wait({work})
                    for watcher in watchers:
                        if watcher.done():
                            watcher.result()
                if work.cancelled():
                    assert self._cut.is_set()
                    assert self._phase is not None
                    await self._over(self._phase, self._crew.sum().amount)
                else:
                    result = work.result()
                    done = not self._cut.is_set()
                    await self._crew.do("close", timeout_s=_CLOSE_S + _CLOSE_S_PER_CONNECTION * self._connections)
        except (CrewFailed, _Silent) as error:
            # If the run was cut short, the failure of a process does not count, because the signal that cut the run
            # short may also have ended the process.
            failed = None if self._cut.is_set() else str(error)
            if self._phase is not None:
                failed = failed and f"{self._phase.name}: {failed}"
                await self._end(self._phase)
                self._record(self._phase, measured=False)
        except OSError as error:
            failed = f"cannot write the log: {error}"
        finally:
            tasks = [task for task in (work, *watchers) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._backend.close()
            if failed is not None and not self._began:
                self._directory.discard()
            else:
                self._directory.close(complete=done and failed is None, failed=failed)
        if failed is not None and not self._began:
            raise RunFailed(failed)
        complete = done and failed is None
        return Outcome(self._crew.sum(), self._phases, complete, failed, result, self._lost_in_search)

    # -- the workloads

    async def _work(self) -> str | None:
        settings = self._settings
        result = None
        if self._cut.is_set():
            return None
        connect = await self._begin("connect", "connect", of=self._connections)
        await self._crew.do("connect", _CONNECT_S + _CONNECT_S_PER_CONNECTION * self._connections, phase="connect")
        await self._over(connect, amount=self._crew.sum().amount)
        self._began = True
        subscribes = not self._assignment.subscribed
        if subscribes and not self._cut.is_set():
            subscribe = await self._begin("subscribe", "subscribe", of=self._subscriptions)
            timeout_s = settings.subscribe_timeout_s if isinstance(settings, Topics) else None
            await self._crew.do("subscribe", timeout_s, phase="subscribe")
            await self._over(subscribe, amount=self._crew.sum().amount)
        if self._cut.is_set():
            return None
        if isinstance(settings, Topics):
            await self._flood(settings)
        elif isinstance(settings, Traffic) and settings.rate is None:
            result = await self._search(settings)
        else:
            await self._at_rate(settings)
        if subscribes and not self._cut.is_set():
            unsubscribe = await self._begin("unsubscribe", "unsubscribe", of=self._subscriptions)
            timeout_s = settings.subscribe_timeout_s if isinstance(settings, Topics) else None
            await self._crew.do("unsubscribe", timeout_s, phase="unsubscribe")
            await self._over(unsubscribe, amount=self._crew.sum().amount)
        return result

    async def _at_rate(self, settings: Traffic | Radio | Replay | Causal) -> None:
        rate = settings.rate if isinstance(settings, Traffic) else None
        phase = await self._begin("run", "run", offered_per_s=rate, measured=True, length_s=settings.duration_s)
        await self._segment(phase, rate, settings.duration_s)
        self._take(phase)
        self._record(phase)
        drain = await self._begin("drain", "drain", length_s=settings.drain_s)
        await self._drain(settings.drain_s, last=True)
        if not self._cut.is_set():
            await asyncio.sleep(_LINGER_S)
        self._take(phase)
        await self._over(drain)

    async def _search(self, settings: Traffic) -> str:
        controller = Controller(
            Limit(p99_ns=int(settings.p99_ms * 1e6)),
            start_per_s=settings.start_rate,
            most_per_s=settings.most_rate,
            step_s=settings.step_s,
            measure_s=settings.measure_s,
            precision=settings.precision,
        )
        number = 0
        while not self._cut.is_set() and (step := controller.next()) is not None:
            number += 1
            await self._step(f"{step.purpose}-{number:02d}", step, controller, settings.drain_s)
        return controller.result.text

    async def _step(self, name: str, step: Step, controller: Controller, drain_s: float) -> None:
        measured = step.purpose in ("sustained", "half")
        kind = step.purpose if measured else "search"
        phase = await self._begin(
            name, kind, offered_per_s=step.rate_per_s, measured=measured, length_s=step.duration_s
        )
        before = self._crew.sum()
        lost_before = self._lost
        await self._segment(phase, step.rate_per_s, step.duration_s)
        at_end = self._crew.sum()
        backlog = at_end.behind - self._lost
        await self._drain(drain_s, last=step.purpose == "half")
        total = self._crew.sum()
        self._take(phase)
        if self._cut.is_set():
            self._record(phase, measured=False)
            return
        verdict = controller.observe(
            Seen(
                duration_s=step.duration_s,
                sent=at_end.sent - before.sent,
                expected=total.expected - before.expected,
                delivered=total.delivered + total.skipped - before.delivered - before.skipped,
                p50_ns=total.latencies.percentile_ns(50),
                p99_ns=total.latencies.percentile_ns(99),
                max_ns=total.latencies.max_ns if total.latencies.count else None,
                backlog=backlog,
                lag_ns=at_end.lag_ns,
                errors=total.errors.total() - before.errors.total(),
            )
        )
        phase.detail = verdict.text
        if kind == "sustained" and not verdict.held:  # a measurement that did not hold counts as part of the search
            phase.kind, phase.measured = "search", False
        if phase.kind == "search":
            self._lost_in_search += self._lost - lost_before
        self._record(phase)

    async def _flood(self, settings: Topics) -> None:
        phase = await self._begin("run", "run", measured=True)
        before = self._crew.sum()
        await self._crew.do("flood", None, phase="run", window=settings.window, stall_s=settings.stall_s)
        await self._end(phase)
        await asyncio.sleep(_LINGER_S)
        self._take(phase, before)
        self._record(phase)

    # -- phases

    async def _begin(
        self,
        name: str,
        kind: str,
        *,
        offered_per_s: float | None = None,
        measured: bool = False,
        length_s: float | None = None,
        of: int | None = None,
    ) -> Phase:
        await self._counters(name)
        before = self._watch.sample()
        phase = Phase(name, kind, time.monotonic_ns(), offered_per_s, measured, before, length_s, of)
        self._phase = phase
        return phase

    async def _end(self, phase: Phase) -> None:
        # If a segment is cut short before its first message, its start is still in the future.
        phase.end_ns = max(time.monotonic_ns(), phase.start_ns)
        phase.after = self._watch.sample()
        await self._counters(phase.name)

    def _record(self, phase: Phase, *, measured: bool | None = None) -> None:
        if measured is not None:
            phase.measured = measured
        self._directory.phase(
            phase.name,
            phase.kind,
            phase.start_ns,
            phase.end_ns,
            measured=phase.measured,
            offered_per_s=phase.offered_per_s,
            amount=phase.amount,
            detail=phase.detail,
        )
        self._phases.append(phase)
        if self._phase is phase:
            self._phase = None
        self._progress.ended(phase.name, _told(phase))

    async def _over(self, phase: Phase, amount: int | None = None) -> None:
        phase.amount = amount
        await self._end(phase)
        self._record(phase)

    async def _segment(self, phase: Phase, rate_per_s: float | None, duration_s: float) -> None:
        self._before = self._crew.sum()
        await self._crew.do("prepare", None, rate_per_s=rate_per_s, duration_s=duration_s)
        t0_ns = time.monotonic_ns() + _LEAD_NS
        phase.start_ns = t0_ns
        await self._crew.do("run", None, phase=phase.name, t0_ns=t0_ns, duration_s=duration_s)
        await self._end(phase)

    def _take(self, phase: Phase, before: Sum | None = None) -> None:
        """When the results of the phase's segment are complete, copy them into the phase."""
        total, before = self._crew.sum(), before or self._before
        phase.sent = total.sent - before.sent
        phase.delivered = total.delivered - before.delivered
        phase.latencies = total.latencies

    async def _drain(self, limit_s: float, *, last: bool) -> None:
        """Wait until all messages were sent and have arrived, or until no more arrive.

        ``last``: whether nothing is sent after this drain. If so, the drain waits for a silent system until the system
        counts as failed. After any other drain, the next messages show the difference between lost messages and a
        silent system.
        """
        if self._cut.is_set():
            limit_s = _CUT_DRAIN_S
        start_s = last_s = time.monotonic()
        received = -1
        settled_s = _SETTLED_S if isinstance(self._settings, Causal) else 0.0
        while True:
            total = self._crew.sum()
            now_s = time.monotonic()
            if total.received != received:
                received, last_s = total.received, now_s
            heeded_until_s = start_s + limit_s + self._settings.stall_s + _GIVE_UP_S
            settled = total.behind <= self._lost and now_s - last_s >= settled_s
            silent = last and self._silence.lasts_s > 0 and not self._cut.is_set() and now_s < heeded_until_s
            if total.queued == 0 and (settled or (now_s - last_s >= self._quiet_s and not silent)):
                break
            if now_s - start_s >= limit_s and not silent:
                await self._crew.do("give_up", _GIVE_UP_S)
                break
            await asyncio.sleep(_LOOK_S)
        self._lost = max(self._crew.sum().behind, 0)

    async def _counters(self, phase: str) -> None:
        for server in await self._backend.counters():
            self._directory.counters(server.at_ns, phase, server.source, server.values)
            if server.form:
                self._directory.form(server.source, server.form)

    # -- whether the system still delivers

    async def _heed(self) -> None:
        """Report lost connections, and report when the system delivers nothing. Raise ``_Silent`` if the system
        delivers nothing for too long."""
        silence = self._silence
        silent_s = 0.0  # length of the silence that was reported last; 0 if none
        lost, lost_at_s = 0, -_LOST_TOLD_EVERY_S
        slow: tuple[Phase | None, int, float, bool] = (None, 0, 0.0, False)
        while True:
            total, now_s = self._crew.sum(), time.monotonic()
            name = self._phase.name if self._phase is not None else "between phases"
            silence.observe(self._crew.told_s, total.received, total.news, total.behind)
            gone = total.errors["connection_lost"]
            if gone > lost and now_s - lost_at_s >= _LOST_TOLD_EVERY_S:
                again = f", {gone:,} so far" if lost else ""
                self._progress.say(f"{name}: connections lost: {gone - lost:,}{again}; the server ended or closed them")
                lost, lost_at_s = gone, now_s
            if silence.failed and not self._cut.is_set():
                why = f"the server ended, or closed its connections ({gone:,} lost)" if gone else "the server hangs"
                text = f"{self._silent_text()}: {why}, or the network to it is cut"
                self._progress.say(f"{name}: {text}; ending the run")
                raise _Silent(text)
            if silence.worth_telling:
                if not silent_s:
                    limit = f"the run fails after {silence.fails_after_s:g} s of silence"
                    self._progress.say(f"{name}: {self._silent_text()}: is the server there? ({limit})")
                silent_s = silence.lasts_s
            elif silent_s:
                self._progress.say(f"{name}: messages arrive again, after {silent_s:.0f} s without any")
                silent_s = 0.0
            slow = self._heed_amount(slow, total.amount, now_s)
            await asyncio.sleep(_DISPLAY_S)

    def _silent_text(self) -> str:
        return f"nothing was delivered for {self._silence.lasts_s:.1f} s though {self._silence.due:,} messages were due"

    def _heed_amount(
        self, slow: tuple[Phase | None, int, float, bool], amount: int, now_s: float
    ) -> tuple[Phase | None, int, float, bool]:
        """Report a phase whose amount does not grow. Return the phase, its amount, the time at which the amount last
        changed, and whether the standstill was reported. In the topics workload, one call makes all subscriptions, so
        no standstill is reported."""
        phase, before, since_s, told = slow
        if self._phase is not phase or amount != before:
            return self._phase, amount, now_s, False
        if phase is None or phase.of is None or isinstance(self._settings, Topics):
            return slow
        if not told and amount < phase.of and now_s - since_s >= _UNCONFIRMED_S:
            self._progress.say(
                f"{phase.name}: nothing was confirmed for {now_s - since_s:.0f} s ({amount:,} of {phase.of:,}): is the "
                "server there?"
            )
            return phase, before, since_s, True
        return slow

    # -- samples and display

    async def _tick(self) -> None:
        next_s = time.monotonic()
        sample: Sample = {}
        older: Sample = {}
        while True:
            if time.monotonic() >= next_s:
                older, sample = sample, self._watch.sample(await self._backend.counters())
                next_s += _SAMPLE_S * (1 + (time.monotonic() - next_s) // _SAMPLE_S)
            self._show(older, sample)
            await asyncio.sleep(_DISPLAY_S)

    def _show(self, older: Sample, sample: Sample) -> None:
        phase = self._phase
        if phase is None:
            return
        total = self._crew.sum()
        now_s = time.monotonic()
        received, sent, then_s = self._rates
        elapsed_s = now_s - then_s
        self._rates = (total.received, total.sent, now_s)
        in_phase_s = max(now_s - phase.start_ns / 1e9, 0.0)
        servers = cores(older, sample, "server")
        self._progress.update(
            Snapshot(
                phase=phase.name,
                phase_elapsed_s=in_phase_s,
                phase_left_s=_left_s(phase, in_phase_s, total.amount),
                done=total.amount if phase.of is not None else None,
                of=phase.of,
                offered_per_s=phase.offered_per_s,
                in_per_s=(total.sent - sent) / elapsed_s,
                out_per_s=(total.received - received) / elapsed_s,
                p50_ns=total.latencies.percentile_ns(50),
                p99_ns=total.latencies.percentile_ns(99),
                behind=total.behind,
                errors=total.errors.total(),
                silent_s=self._silence.lasts_s if self._silence.worth_telling else None,
                generator_cores=max(cores(older, sample, "generator").values(), default=None),
                server_cores=sum(servers.values()) if servers else None,
            )
        )


def _left_s(phase: Phase, in_phase_s: float, amount: int) -> float | None:
    """Return the remaining seconds of the phase, computed from its length or its pace so far, or ``None`` if
    unknown."""
    if phase.length_s is not None:
        return max(phase.length_s - in_phase_s, 0.0)
    if phase.of is not None and amount >= _TELLING * phase.of:
        return in_phase_s * max(phase.of - amount, 0) / amount
    return None


def _told(phase: Phase) -> str:
    """Describe a phase that has ended."""
    parts = [f"{phase.duration_s:.1f} s"]
    if phase.amount is not None:
        parts.append(f"{phase.amount:,} ({phase.amount / max(phase.duration_s, 1e-9):,.0f}/s)")
    if phase.offered_per_s is not None:
        parts.append(f"{phase.offered_per_s:,.0f}/s offered")
    if phase.latencies.count:
        p50_ns, p99_ns = phase.latencies.percentile_ns(50), phase.latencies.percentile_ns(99)
        parts.append(f"p50 {(p50_ns or 0) / 1e6:.1f} ms, p99 {(p99_ns or 0) / 1e6:.1f} ms")
    if phase.detail:
        parts.append(phase.detail)
    return "; ".join(parts)
