"""Executes one run from its settings. Makes the run's id, facts and directory, starts the layer in front of the system,
and starts the run.

Owns: `run.json`, and everything that has to exist before a run can begin. Must never: measure.
"""

from __future__ import annotations

import dataclasses
import secrets
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingeborg import form

from ..backends import SYSTEMS, open_backend
from ..backends.base import Backend, BackendError
from ..display.progress import Progress
from ..log.rundir import RunDirectory
from ..process import assignment as assignments
from ..process.assignment import Assignment
from ..workloads.plan import Plan
from ..workloads.settings import Causal, Settings, Topics, Traffic, WorkloadError
from . import machine
from .run import Outcome, Run
from .watch import Watch

#: Thesis 1.3.2: half of the notifications must arrive within half a second, and 99 % within two seconds.
AIR_GOALS = {"p50_ms": 500, "p99_ms": 2000}
_GIT_TIMEOUT_S = 5.0


def goals(settings: Settings) -> dict[str, float]:
    """Return the goals for `run.json`. Causal violations are a goal only if the workload sets a limit. No system
    promises an order across publishers. So without a limit, violations are a finding and not a failure."""
    if isinstance(settings, Topics):
        return {}
    if isinstance(settings, Causal):
        return {} if settings.violations is None else {"causal_violations": settings.violations}
    return {"p99_ms": settings.p99_ms} if isinstance(settings, Traffic) else dict(AIR_GOALS)


@dataclass(frozen=True)
class Target:
    """The system under load.

    ``dedup_url``: the Redis of the deduplication layer, or ``None`` to have no layer in front of the system. The layer
    has ``deduplicators`` processes, and remembers messages for ``ttl_s``. ``server_pids``: processes of the system that
    cannot be found by the URLs. For ingeborg only, ``lines``: whether several messages share a frame; ``metrics_urls``:
    the URLs of the endpoints' metrics and health, if these pages are not at ``urls``.
    """

    system: str
    urls: list[str]
    variant: str = ""
    dedup_url: str | None = None
    deduplicators: int = 1
    ttl_s: float = 10.0
    server_pids: Sequence[int] = ()
    lines: bool = False
    metrics_urls: Sequence[str] = ()

    @property
    def servers(self) -> Sequence[str]:
        """One URL for each server."""
        return self.metrics_urls or self.urls

    @property
    def deduplicates(self) -> bool:
        """Whether the system or the layer drops a repeated payload."""
        return SYSTEMS[self.system].deduplicates or self.dedup_url is not None

    @property
    def full_variant(self) -> str:
        """The variant, with ``lines`` and the layer added if the target has them."""
        layer = "with dedup layer" if self.dedup_url is not None else ""
        lines = "lines" if self.lines else ""
        return ", ".join(part for part in (self.variant, lines, layer) if part)


@dataclass
class Session:
    """One run of ``settings`` against ``target``, logged to ``out``. ``command``: the command line that makes the run,
    without secrets; ``topics``, ``series``: only for a topics benchmark; ``subscribed``: whether the system's store
    already has the wish lists. Raises ``WorkloadError`` if the settings need a feature that the system does not
    have."""

    target: Target
    settings: Settings
    out: Path
    progress: Progress
    command: str
    processes: int = 1
    topics: int = 0
    series: str | None = None
    subscribed: bool = False

    def __post_init__(self) -> None:
        _check_system(self.target.system, self.settings)
        # Every payload and client id contains the tag. Otherwise the messages of a second run with the same seed would
        # be duplicates of the first run's.
        self.tag = secrets.token_hex(4)
        self.run_id = f"{self.settings.workload}-{time.strftime('%Y%m%d-%H%M%S')}-{self.tag}"

    async def execute(self, on_start: Callable[[Callable[[], None]], None]) -> Outcome:
        """Execute the run. ``on_start`` gets the function that cuts the run short. Raises ``FileExistsError``,
        ``WorkloadError`` or ``BackendError``."""
        assignment = Assignment(
            clients=self.run_id if not self.subscribed else assignments.clients_name(self.settings),
            tag=self.tag,
            system=self.target.system,
            urls=self.target.urls,
            directory=str(self.out),
            workload=self.settings.workload,
            settings=dataclasses.asdict(self.settings),
            duplicates=self.duplicates,
            processes=self.processes,
            lines=self.target.lines,
            metrics_urls=list(self.target.metrics_urls),
            topics=self.topics,
            subscribed=self.subscribed,
        )
        plan = assignments.plan(assignment)
        for note in plan.notes:
            self.progress.say(note)
        target = self.target
        backend: Backend = open_backend(
            target.system, target.urls, self.run_id, lines=target.lines, metrics_urls=target.metrics_urls
        )
        directory = RunDirectory(self.out, self._facts(plan))
        servers = machine.servers(self.target.servers, SYSTEMS[self.target.system].port)
        servers |= {f"server {pid}": pid for pid in self.target.server_pids if pid not in servers.values()}
        if self.target.dedup_url is None:
            return await self._run(assignment, plan, backend, directory, Watch(directory, servers, {}), on_start)
        try:
            return await self._run_with_layer(assignment, plan, backend, directory, servers, on_start)
        except BackendError as error:  # the layer did not start, so the run did not begin
            directory.close(complete=False, failed=str(error))
            raise

    async def _run_with_layer(
        self,
        assignment: Assignment,
        plan: Plan,
        backend: Backend,
        directory: RunDirectory,
        servers: Mapping[str, int],
        on_start: Callable[[Callable[[], None]], None],
    ) -> Outcome:
        from ..layer.publishing import Deduplicated, Layer  # only if needed: loads Redis's library

        target, queue = self.target, f"loadgen:{self.run_id}"
        assert target.dedup_url is not None
        layer = Layer(
            target.dedup_url,
            queue,
            system=target.system,
            urls=target.urls,
            run=self.run_id,
            ttl_s=target.ttl_s,
            processes=target.deduplicators,
        )
        await layer.start()
        try:
            watch = Watch(directory, servers, layer.processes)
            settings = {"redis_url": target.dedup_url, "queue": queue}
            assignment = dataclasses.replace(assignment, layer=settings)
            outcome = await self._run(assignment, plan, Deduplicated(backend, **settings), directory, watch, on_start)
            for words in layer.failures():
                trouble = f"a deduplicator ended unexpectedly and lost its current batch: {words}"
                self.progress.say(trouble)
                outcome.troubles.append(trouble)
            return outcome
        finally:
            await layer.stop()

    @property
    def duplicates(self) -> float:
        """The share of publishes that repeat a payload. It is 0 if nothing drops duplicates, because the repeated
        messages would then count as delivered twice."""
        if not isinstance(self.settings, Traffic) or not self.target.deduplicates:
            return 0.0
        return self.settings.duplicates

    async def _run(
        self,
        assignment: Assignment,
        plan: Plan,
        backend: Backend,
        directory: RunDirectory,
        watch: Watch,
        on_start: Callable[[Callable[[], None]], None],
    ) -> Outcome:
        run = Run(
            assignment,
            directory,
            self.progress,
            backend,
            watch,
            connections=plan.connections,
            subscriptions=sum(len(plan.subscriptions(number)) for number in range(plan.connections)),
        )
        on_start(run.cut)
        return await run.execute()

    @property
    def _variant(self) -> str:
        """The target's variant, with ``bounds`` added if clients have bounds."""
        has_bounds = not isinstance(self.settings, Topics) and self.settings.bounds
        return ", ".join(part for part in (self.target.full_variant, "bounds" if has_bounds else "") if part)

    def _facts(self, plan: Plan) -> dict[str, Any]:
        config = dataclasses.asdict(self.settings)
        seed = config.pop("seed")
        if isinstance(self.settings, Traffic):
            config["duplicates"] = self.duplicates
        if isinstance(self.settings, Topics):
            config["topics"] = self.topics
        if "log" in config:
            config["log"] = Path(config["log"]).name
        config |= {"processes": self.processes, "servers": len(self.target.servers)}
        if self.subscribed:
            config["subscribed"] = True
        if self.target.dedup_url is not None:
            config |= {"deduplicators": self.target.deduplicators, "dedup_ttl_s": self.target.ttl_s}
        facts = {
            "schema": 2,
            "run": self.run_id,
            "system": self.target.system,
            "variant": self._variant,
            "workload": self.settings.workload,
            "series": self.series,
            "seed": seed,
            "command": self.command,
            "started_unix_ms": time.time_ns() // 1_000_000,
            "started_ns": time.monotonic_ns(),
            "config": config,
            "machine": machine.facts(),
            "software": machine.software(("ingeborg", *SYSTEMS[self.target.system].packages, "uvloop")),
            # The endpoints' forms are added when the endpoints report them. All processes of the generator run the same
            # form as this process.
            "form": {"generator": form.name()},
            "goals": goals(self.settings),
        }
        if commit := _commit():
            facts["commit"] = commit
        return facts


def _check_system(system: str, settings: Settings) -> None:
    """Raise ``WorkloadError`` if the settings need a feature that the system does not have."""
    if SYSTEMS[system].bounds or isinstance(settings, Topics):
        return
    for what, is_set in (("bounds", bool(settings.bounds)), ("items and weights", settings.about)):
        if is_set:
            having = ", ".join(name for name, row in SYSTEMS.items() if row.bounds)
            raise WorkloadError(f"the workload sets {what}: {system} does not have them; only {having} does")


def _commit() -> str | None:
    """Return the commit of the checkout that this program runs from, or ``None`` if it is installed without one."""
    here = Path(__file__).parents[__name__.count(".")]
    if not (here / ".git").exists():
        return None
    try:
        commit, changes = (
            subprocess.run(
                ["git", "-C", str(here), *command], capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=True
            ).stdout.strip()
            for command in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit} with changes" if changes else commit
