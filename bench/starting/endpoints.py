"""`ingeborg serve` as a process: its command line, its ready line, and one endpoint over all its lives.

Owns: all knowledge that starting an endpoint takes. Must never: import the broker, or know the purpose of an endpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from ingeborg.bench.errors import BenchError
from ingeborg.bench.starting.child import Child
from ingeborg.bench.starting.ports import claim
from ingeborg.bench.starting.steps import Steps, awaited, blocking
from ingeborg.form import VARIABLE

#: Time limit for a start, in seconds. It takes one or two; on a machine under load, many times that.
READY_S = 60.0
#: Time limit for an orderly end, in seconds: the time that an endpoint allows itself and its clients, with a margin.
END_S = 60.0

#: The line in which an endpoint, or another server of ours, reports its URL when it is ready.
READY = re.compile(
    r"(?:^ingeborg: endpoint (?P<name>.+) |^)ready at (?P<url>wss?://\S+?)/?"
    r"(?: \(internal: (?P<internal>wss?://\S+?)/?\))?$"
)


def python(module: str, *arguments: str) -> list[str]:
    """The command line of a module, run by this process's Python."""
    return [sys.executable, "-m", module, *arguments]


def serve(*options: str) -> list[str]:
    """Return the command line of `ingeborg serve`, with the code that this process runs."""
    return python("ingeborg.broker.command.cli", "serve", *options)


def environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment without options for `ingeborg`, plus ``variables``: settings that a user made
    for other endpoints must not affect a measurement or a test. All processes run the same form of the code."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("INGEBORG_") or name == VARIABLE}
    return kept | dict(variables or {})


class Said(NamedTuple):
    """The content of a ``READY`` line. ``name``: empty for a server that is no endpoint; ``url``: for its clients;
    ``internal``: for its links, metrics and health, if that is another URL. Both have no slash at the end."""

    name: str
    url: str
    internal: str = ""


def ready(child: Child, within_s: float = READY_S) -> Steps[Said]:
    """Wait until it reports that it, or its next endpoint, is ready. ``ChildError``."""
    match = READY.search((yield from child.line(READY, within_s)))
    assert match is not None
    return Said(match["name"] or "", match["url"], match["internal"] or "")


class Started(NamedTuple):
    """A server that has reported ready. ``urls``: its endpoints' URLs for clients, each once; ``inside``: those of each
    endpoint's metrics and health. Without a slash at the end."""

    child: Child
    urls: list[str]
    inside: list[str]

    @property
    def url(self) -> str:
        """The URL of the first, or only, endpoint."""
        return self.urls[0]


@contextlib.contextmanager
def started(
    name: str,
    command: Sequence[str],
    log: Path,
    *,
    endpoints: int = 1,
    variables: Mapping[str, str] | None = None,
    patience_s: float = END_S,
) -> Iterator[Started]:
    """Start a server of ours, ready, until the block ends; then it gets ``patience_s`` seconds for an orderly end.

    ``name``: its name in errors; ``endpoints``: how many must be ready; ``variables``: added to its environment.
    ``ChildError``, with its last lines.
    """
    child = Child(name, command, log, environment=environment(variables))
    try:
        said = [blocking(ready(child)) for _ in range(endpoints)]
        yield Started(child, sorted({each.url for each in said}), sorted(each.internal or each.url for each in said))
    finally:
        blocking(child.end(patience_s))


class Endpoint:
    """One endpoint with one name and one port, over all its lives. Everything that waits does so on an event loop.

    The endpoint holds its port from the first moment on, also between two lives: see ``ports``.
    """

    def __init__(
        self,
        name: str,
        options: Sequence[str],
        directory: Path,
        variables: Mapping[str, str] | None = None,
        *,
        host: str = "127.0.0.1",
        through: Sequence[str] = (),
        serving: Sequence[str] = (),
    ) -> None:
        """``options``: for `ingeborg serve`, in addition to its name and port; ``directory``: for its log;
        ``variables``: added to its environment; ``host``: the host of its URL; ``through``: a command that becomes the
        endpoint's, such as `ip netns exec NAME`; ``serving``: a command that takes the options of `ingeborg serve` and
        runs instead."""
        self.name = name
        self._port = claim()
        self.port = self._port.first
        self.url = f"ws://{host}:{self.port}"
        self.log = directory / f"{name}-{self.port}.log"
        self.lives = 0  # begun so far
        self._command = [*through, *(serving or serve()), "--name", name, "--port", str(self.port), *options]
        self.variables = dict(variables or {})  # added to its environment from its next start on
        self._child: Child | None = None

    async def start(self, *, ready: bool = True) -> None:
        """Begin a new life; with ``ready``, wait for its ready line. ``ChildError``."""
        assert self._child is None, f"{self.name} was started, and nobody has waited for its end"
        self._child = Child(f"endpoint {self.name}", self._command, self.log, environment=environment(self.variables))
        self.lives += 1
        if ready:
            await self.ready()

    async def ready(self, url: str | None = None, within_s: float = READY_S) -> None:
        """Wait for its ready line. ``url``: the URL that the line must name, if not the endpoint's own. ``ChildError``;
        ``BenchError``: it names another one."""
        said, wanted = await awaited(ready(self._started, within_s)), Said(self.name, url or self.url)
        if said[:2] != wanted[:2]:
            raise BenchError(f"endpoint {self.name} was to be ready at {wanted.url}, and {said.name} is at {said.url}")

    @property
    def _started(self) -> Child:
        assert self._child is not None, f"{self.name} was not started"
        return self._child

    @property
    def runs(self) -> bool:
        """Say whether it was started and has not ended."""
        return self._child is not None and self._child.runs

    @property
    def process(self) -> psutil.Process | None:
        """Return its process, while it runs."""
        return self._child.process if self._child is not None and self._child.runs else None

    def signal(self, number: signal.Signals) -> None:
        """Send the endpoint's process, and not its store's writers, a signal."""
        self._started.signal(number)

    async def ended(self, within_s: float = END_S) -> int:
        """Wait for the end; return the exit code. Raises ``ChildError`` if it did not end in time."""
        code = await awaited(self._started.ended(within_s))
        self._child = None
        return code

    async def kill(self, *, writers: bool = False) -> None:
        """Send ``kill -9``; with ``writers``, also to its store's writers at the same instant."""
        if writers:
            await self.end()
        else:
            self.signal(signal.SIGKILL)
            await self.ended()

    async def end(self, patience_s: float = 0.0) -> None:
        """End it, in any state: neither it nor its descendants run afterwards. ``patience_s``: for an orderly end;
        without, it is killed."""
        if self._child is not None:
            await awaited(self._child.end(patience_s))
            self._child = None

    def said(self) -> str:
        """Return its log, over all its lives; empty before the first."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""


async def end_all(endpoints: Sequence[Endpoint]) -> None:
    """End every endpoint, also if ending another one fails."""
    outcomes = await asyncio.gather(*(endpoint.end() for endpoint in endpoints), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
