"""Runs the programs of a group: the controller, the monitor, a member, or controller and monitor together.

Owns: the parts of each program, signals, and exit codes. Must never: decide, measure or read records itself, or format
log lines. The caller of ``main`` sets up the log.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, TextIO

import orjson
import uvloop
from aiokafka.client import AIOKafkaClient
from rich.console import Console

from .controller import Controller
from .dry import DryRun
from .effects import Note, Picture
from .kafka import channel, connecting
from .kafka.connecting import KafkaProblem
from .kafka.control import Control, Resigned
from .kafka.member import Member
from .kafka.monitor import Monitor
from .kafka.progress import Progress
from .kafka.reading import Reader, consumer_of
from .membership import Membership
from .model import NAME_CHARS_MAX
from .scalers import making as scalers
from .settings import Settings, SettingsError, read
from .sinks import making as sinks
from .view.metrics import Metrics
from .view.serving import serving
from .view.terminal import Terminal

DONE, FAILED, USAGE, RESIGNED = 0, 1, 2, 3

_log = logging.getLogger("ingeborg.autoscale")

#: Seconds between two refreshes of the terminal.
_DRAWN_EVERY_S: Final = 0.5
#: Seconds until a member starts again after a problem with Kafka: the initial value, and the maximum. The value doubles
#: after each failure.
_AGAIN_S: Final = 1.0
_AGAIN_S_MAX: Final = 30.0

NAME_VARIABLE: Final = "INGEBORG_MEMBER_NAME"


def main(
    *,
    file: Path,
    part: str,
    name: str,
    dry_run: bool,
    watch: bool,
    journal: Path | None,
) -> int:
    """Run `ingeborg autoscale`, and return the exit code. The caller must have set up the log."""
    # Drop aiokafka's log lines, because it also raises the errors that it logs.
    logging.getLogger("aiokafka").addHandler(logging.NullHandler())
    logging.getLogger("aiokafka").propagate = False
    try:
        settings = read(file)
        if journal is not None and part not in ("all", "controller"):
            raise SettingsError(f"--journal needs the controller, which --part {part} does not run")
        if not 0 <= len(name) <= NAME_CHARS_MAX or not name.isprintable():
            raise SettingsError(f"--name has to be 1 to {NAME_CHARS_MAX} printable characters")
        return uvloop.run(_main(settings, part, name, dry_run=dry_run, watch=watch, journal=journal))
    except SettingsError as error:
        print(f"ingeborg autoscale: {error}", file=sys.stderr)
        return USAGE
    except (KafkaProblem, OSError) as error:
        print(f"ingeborg autoscale: {error}", file=sys.stderr)
        return FAILED


async def _main(settings: Settings, part: str, name: str, *, dry_run: bool, watch: bool, journal: Path | None) -> int:
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    if part == "member":
        return await _member(settings, name or member_name(), ending)
    if part == "monitor":
        return await _until(ending, Monitor(settings).run)
    if dry_run:
        return await _until(ending, lambda: _dry_run(settings))
    async with _journal(journal) as write:
        works = [lambda: _control(settings, write, watch)]
        if part == "all":
            works.append(Monitor(settings).run)
        code = await _until(ending, *works)
    _log.info("ended; members keep reading their queues")
    return code


def member_name() -> str:
    """Return the name of a member that was started without --name."""
    # Containers can share a host name, and each has a process 1, so the name needs a random part.
    return os.environ.get(NAME_VARIABLE) or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


async def _until(ending: asyncio.Event, *works: Callable[[], Awaitable[None]]) -> int:
    """Run all ``works`` until one fails or ``ending`` is set, and return the exit code."""
    code = DONE
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(_work(work)) for work in works]
            await ending.wait()
            for task in running:
                task.cancel()
    except* Resigned as group:
        _log.warning("%s; this program ends", _first(group))
        code = RESIGNED
    except* SettingsError as group:
        _log.error("%s", _first(group))
        code = USAGE
    except* (KafkaProblem, OSError) as group:
        _log.error("%s", _first(group))
        code = FAILED
    return code


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error in an exception group, which may contain other groups."""
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


async def _work(work: Callable[[], Awaitable[None]]) -> None:
    await work()


@asynccontextmanager
async def _journal(path: Path | None) -> AsyncIterator[Callable[[float, Note], None]]:
    """Yield a function that writes a note to the journal. The function's first argument is the monotonic time in
    seconds."""
    if path is None:
        yield lambda at_s, note: None
        return
    is_said = False

    def write(at_s: float, note: Note) -> None:
        nonlocal is_said
        line = {"time_s": at_s, "unix_ms": time.time_ns() // 1_000_000, "event": note.event, "words": note.words}
        if note.seconds is not None:
            line["seconds"] = note.seconds
        try:
            opened.write(orjson.dumps(line) + b"\n")
        except OSError as error:  # the controller continues even if the disk is full
            if not is_said:
                _log.warning("cannot write all lines to the journal %s: %s; scaling continues", path, error.strerror)
            is_said = True

    with path.open("ab", buffering=0) as opened:
        yield write


# The controller


async def _control(settings: Settings, write: Callable[[float, Note], None], watch: bool) -> None:
    name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    group = settings.group
    options = connecting.client_options(settings, "controller")
    controller = Controller(group, settings.numbers_max, name, settings.sink_fingerprint)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        scaler = scalers.make(settings)
        stack.push_async_callback(scaler.close)
        # Start the pages before the connection to Kafka, so that the health check works early. Kafka can take long to
        # answer.
        if settings.web.port >= 0:
            metrics = Metrics(group.name, controller)
            url = await enter(serving(settings.web.host, settings.web.port, group.name, metrics, controller.picture))
            _log.info("pages and metrics: %s", url)
        await channel.ensure_topics(settings)
        inbox = await enter(channel.incoming(options, settings.metadata_topic))
        speeds = await enter(channel.incoming(options, settings.speeds_topic))
        orders = await enter(channel.outgoing(options, settings.metadata_topic))
        control = Control(controller, name, scaler, inbox, speeds, orders, write)
        async with _shown(group.name, controller.picture, watch):
            await control.run()


@asynccontextmanager
async def _shown(group: str, picture: Callable[[], Picture], watch: bool) -> AsyncIterator[None]:
    """Show the group on the terminal if ``watch`` is set."""
    if not watch:
        yield
        return

    async def draw(terminal: Terminal) -> None:
        while True:
            terminal.show(picture())
            await asyncio.sleep(_DRAWN_EVERY_S)

    try:
        with Terminal(group, Console(file=sys.stdout)) as terminal:
            _log_to(sys.stderr)  # sys.stderr is now the display's stream, which shows log lines above the display
            drawing = asyncio.create_task(draw(terminal))
            try:
                yield
            finally:
                drawing.cancel()
    finally:
        _log_to(sys.stderr)


def _log_to(stream: TextIO) -> None:
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(stream)


async def _dry_run(settings: Settings) -> None:
    """Measure in this process, and print the decisions that a controller would make."""
    dry = DryRun(settings.group)
    monitor = Monitor(settings)

    try:
        while True:
            for speeds in await monitor.measure():
                for note in dry.heard(time.monotonic(), speeds):
                    print(f"would decide: {note.words}" if note.event == "decided" else note.words, flush=True)
            await asyncio.sleep(settings.monitor.every_s)
    finally:
        await monitor.close()


# A member


async def _member(settings: Settings, name: str, ending: asyncio.Event) -> int:
    """Run a member. After a problem with Kafka, the member starts again. The controller then reassigns the member's
    queues, to this member or to other members."""
    pause_s = _AGAIN_S
    nonce = secrets.token_hex(8)
    while not ending.is_set():
        begun_s = time.monotonic()
        try:
            await _member_once(settings, Membership(name, nonce, sink=settings.sink_fingerprint), ending)
        except KafkaProblem as error:
            _log.warning("%s", error)
            if time.monotonic() - begun_s > _AGAIN_S_MAX:
                pause_s = _AGAIN_S
            try:
                async with asyncio.timeout(pause_s):
                    await ending.wait()
            except TimeoutError:
                pass
            pause_s = min(2 * pause_s, _AGAIN_S_MAX)
            nonce = secrets.token_hex(8)
        else:
            return DONE
    return DONE


async def _member_once(settings: Settings, membership: Membership, ending: asyncio.Event) -> None:
    options = connecting.client_options(settings, membership.name)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        sink = sinks.make(settings)
        stack.push_async_callback(sink.close)
        orders = await enter(channel.incoming(options, settings.metadata_topic))
        answers = await enter(channel.outgoing(options, settings.metadata_topic))
        consumer = consumer_of(options, settings.member)
        await enter(connecting.running(consumer, options))
        client = await enter(connecting.running(AIOKafkaClient(**options), options))
        servers, timeout_s = connecting.servers_of(options), connecting.timeout_of(options)
        reader = Reader(consumer, settings.member.start_from == "latest", servers, timeout_s)
        progress = Progress(client, settings.group.name, servers, timeout_s)
        member = Member(settings, membership, sink, reader, progress, orders, answers)
        waiting = asyncio.create_task(_end(member, ending))
        try:
            await member.run()
        finally:
            waiting.cancel()


async def _end(member: Member, ending: asyncio.Event) -> None:
    await ending.wait()
    _log.info("ending after the records already read have been sent to the sink")
    member.end()
