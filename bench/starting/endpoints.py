"""Runs `ingeborg serve` as a process. The module knows the command line and the ready line, and has a class for an
endpoint with all its lives.

Owns: all knowledge about starting an endpoint. Must never: import the broker, or depend on an endpoint's purpose.
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

#: Time limit for a start, in seconds. A start takes one or two seconds, or many times as long on a machine under load.
READY_S = 60.0
#: Time limit for an orderly end, in seconds. It is the time that an endpoint allows itself and its clients, plus a
#: margin.
END_S = 60.0

#: The line in which an endpoint, or another server of ours, reports its URL when it is ready.
READY = re.compile(
    r"(?:^ingeborg: endpoint (?P<name>.+) |^)ready at (?P<url>wss?://\S+?)/?"
    r"(?: \(internal: (?P<internal>wss?://\S+?)/?\))?$"
)


def python(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs a module with this process's Python."""
    return [sys.executable, "-m", module, *arguments]


def serve(*options: str) -> list[str]:
    """Return the command line of `ingeborg serve`. It runs the same code as this process."""
    return python("ingeborg.broker.command.cli", "serve", *options)


def environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment with ``variables`` added and options for `ingeborg` removed, because a user's
    settings for other endpoints must not affect a measurement or a test. The variable for the form of the code stays,
    so that all processes run the same form."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("INGEBORG_") or name == VARIABLE}
    return kept | dict(variables or {})


class Said(NamedTuple):
    """The content of a ``READY`` line. ``name`` is empty for a server that is not an endpoint. ``url`` is for clients.
    ``internal`` is for links, metrics and health, and is empty if they use the same URL. The URLs have no slash at
    the end."""

    name: str
    url: str
    internal: str = ""


def ready(child: Child, within_s: float = READY_S) -> Steps[Said]:
    """Wait until the process reports that it, or its next endpoint, is ready. Raises ``ChildError`` if it does not do
    so in time."""
    match = READY.search((yield from child.line(READY, within_s)))
    assert match is not None
    return Said(match["name"] or "", match["url"], match["internal"] or "")


class Started(NamedTuple):
    """A server that has reported that it is ready. ``urls`` has the distinct URLs of its endpoints for clients, and
    ``inside`` has each endpoint's URL for metrics and health. The URLs have no slash at the end."""

    child: Child
    urls: list[str]
    inside: list[str]

    @property
    def url(self) -> str:
        """The first URL for clients."""
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
    """Start a server of ours, wait until it is ready, and end it after the block. The server has ``patience_s`` seconds
    to shut down cleanly.

    ``name`` is its name in errors, ``endpoints`` is the number of endpoints that must be ready, and ``variables`` are
    added to its environment. Raises ``ChildError``, with the server's last lines, if it does not become ready.
    """
    child = Child(name, command, log, environment=environment(variables))
    try:
        said = [blocking(ready(child)) for _ in range(endpoints)]
        yield Started(child, sorted({each.url for each in said}), sorted(each.internal or each.url for each in said))
    finally:
        blocking(child.end(patience_s))


class Endpoint:
    """One endpoint that has the same name and port in all its lives. All methods that wait are coroutines.

    This object holds the port from its creation on, even between two lives of the endpoint (see ``ports``).
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
        """Prepare an endpoint without starting it.

        Args:
            name: name of the endpoint.
            options: options for `ingeborg serve`, in addition to name and port.
            directory: directory for the log.
            variables: added to the endpoint's environment.
            host: host of the endpoint's URL.
            through: a command that executes the endpoint's command, such as `ip netns exec NAME`.
            serving: a command that takes the options of `ingeborg serve` and runs in its place.
        """
        self.name = name
        self._port = claim()
        self.port = self._port.first
        self.url = f"ws://{host}:{self.port}"
        self.log = directory / f"{name}-{self.port}.log"
        self.lives = 0  # number of lives that have begun
        self._command = [*through, *(serving or serve()), "--name", name, "--port", str(self.port), *options]
        self.variables = dict(variables or {})  # added to the environment at the next start
        self._child: Child | None = None

    async def start(self, *, ready: bool = True) -> None:
        """Begin a new life. With ``ready``, wait for its ready line. Raises ``ChildError`` if the endpoint does not
        start."""
        assert self._child is None, f"{self.name} was started, and nobody has waited for its end"
        self._child = Child(f"endpoint {self.name}", self._command, self.log, environment=environment(self.variables))
        self.lives += 1
        if ready:
            await self.ready()

    async def ready(self, url: str | None = None, within_s: float = READY_S) -> None:
        """Wait for the ready line, which must name ``url``. The default is the endpoint's own URL. Raises
        ``ChildError`` if there is no such line in time, and ``BenchError`` if the line names another endpoint or
        URL."""
        said, wanted = await awaited(ready(self._started, within_s)), Said(self.name, url or self.url)
        if said[:2] != wanted[:2]:
            raise BenchError(f"endpoint {self.name} should be at {wanted.url}, but {said.name} is ready at {said.url}")

    @property
    def _started(self) -> Child:
        assert self._child is not None, f"{self.name} was not started"
        return self._child

    @property
    def runs(self) -> bool:
        """Return whether the endpoint was started and has not ended."""
        return self._child is not None and self._child.runs

    @property
    def process(self) -> psutil.Process | None:
        """Return the endpoint's process, or ``None`` if the endpoint does not run."""
        return self._child.process if self._child is not None and self._child.runs else None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the endpoint's process, but not to the writers of its store."""
        self._started.signal(number)

    async def ended(self, within_s: float = END_S) -> int:
        """Wait for the end of the endpoint, and return the exit code. Raises ``ChildError`` if the endpoint does not
        end in time."""
        code = await awaited(self._started.ended(within_s))
        self._child = None
        return code

    async def kill(self, *, writers: bool = False) -> None:
        """Send ``kill -9`` to the endpoint. With ``writers``, also send it to the writers of its store at the same
        time."""
        if writers:
            await self.end()
        else:
            self.signal(signal.SIGKILL)
            await self.ended()

    async def end(self, patience_s: float = 0.0) -> None:
        """End the endpoint if it has not ended yet. The endpoint has ``patience_s`` seconds to shut down cleanly. If
        ``patience_s`` is 0, the endpoint is killed immediately. At the end of this call, neither its process nor its
        descendants run."""
        if self._child is not None:
            await awaited(self._child.end(patience_s))
            self._child = None

    def said(self) -> str:
        """Return the log of all lives, or an empty text before the first life."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""


async def end_all(endpoints: Sequence[Endpoint]) -> None:
    """End every endpoint, even if ending an endpoint fails."""
    outcomes = await asyncio.gather(*(endpoint.end() for endpoint in endpoints), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
