"""`ingeborg export`: writes all subscriptions of a store as JSON lines, which `ingeborg import` reads.

Owns: the lines, their destination, the progress messages. Must never: write to the store, hold more than a page of
subscriptions, or present an incomplete output as complete. A file gets its final name when it is complete; an export
that fails returns the exit code 1.

A line is ``{"topic": "…", "client_ids": ["…"], "subscriptions": [{…}]}``. It lists the subscriptions of one topic,
because a store keeps a set of subscribers for each topic. ``client_ids`` lists the clients whose subscription has
neither a filter nor a term. ``subscriptions`` lists all other subscriptions, each with ``client_id``, and optionally
``filter``, ``"until": "disconnect"`` and ``ends_at`` (Unix time in seconds). Either list can be absent. A topic with
more subscriptions than a page holds has several lines. Endpoints can use the store during the export;
``Store.all_subscriptions`` says what the export contains in this case.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import orjson

from ..store.base import Store, StoreError, Subscription, TopicPage

SAY_EVERY_S = 1.0

#: The largest write that does not block if the pipe has some free space, in bytes (pipe(7), ``PIPE_BUF``).
PIPE_BYTES = 4096

OK, FAILED = 0, 1


class Exported(NamedTuple):
    """The outcome of an export. ``expiring`` is the number of subscriptions with a term, and ``filtered`` the number of
    subscriptions with a filter."""

    lines: int
    subscriptions: int
    seconds: float
    expiring: int = 0
    filtered: int = 0

    def __str__(self) -> str:
        rate = self.subscriptions / max(self.seconds, 1e-9)
        among = among_them(self.expiring, self.filtered)
        counts = f"{self.subscriptions:,} subscriptions{among} in {self.lines:,} lines"
        return f"{counts}, in {self.seconds:.1f} s ({rate:,.0f} per second)"


def among_them(expiring: int, filtered: int) -> str:
    """Return text such as " (3 that end, 2 with filters)", or nothing if no subscription has a term or a filter."""
    texts = ((expiring, "that end"), (filtered, "with filters"))
    among = ", ".join(f"{count:,} {text}" for count, text in texts if count)
    return f" ({among})" if among else ""


class Lines:
    """Writes lines to the descriptor of a file, a pipe or a terminal. Even if writing fails, the last line of a file is
    complete."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        mode = os.fstat(fd).st_mode
        self._regular = stat.S_ISREG(mode)
        self._waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)

    async def write(self, lines: bytes) -> None:
        """Write whole lines, waiting for a slow reader without blocking the loop. Raises ``OSError``."""
        at = 0
        try:
            while at < len(lines):
                if self._waits:
                    await self._room()
                at += os.write(self._fd, lines[at : at + PIPE_BYTES] if self._waits else lines[at:])
        except OSError:
            rest = at - (lines.rfind(b"\n", 0, at) + 1)  # bytes of the unfinished line
            if self._regular and rest:
                os.ftruncate(self._fd, os.lseek(self._fd, 0, os.SEEK_CUR) - rest)
            raise

    async def _room(self) -> None:
        loop = asyncio.get_running_loop()
        room: asyncio.Future[None] = loop.create_future()

        def has_room() -> None:
            if not room.done():
                room.set_result(None)

        loop.add_writer(self._fd, has_room)
        try:
            await room
        finally:
            loop.remove_writer(self._fd)


async def dump(store: Store, lines: Lines, told: TextIO | None) -> Exported:
    """Write all subscriptions of an open store. ``told`` gets progress messages. Raises ``StoreError`` or
    ``OSError``."""
    began_s = said_s = time.monotonic()
    count = subscriptions = expiring = filtered = 0

    def exported() -> Exported:
        return Exported(count, subscriptions, time.monotonic() - began_s, expiring, filtered)

    async for page in store.all_subscriptions():
        await lines.write(b"".join(orjson.dumps(_line(each), option=orjson.OPT_APPEND_NEWLINE) for each in page))
        count += len(page)
        for _, clients, others in page:
            subscriptions += len(clients) + len(others)
            expiring += sum(each.term is not None for each in others)
            filtered += sum(each.filter is not None for each in others)
        if told is not None and time.monotonic() - said_s >= SAY_EVERY_S:
            said_s = time.monotonic()
            print(f"ingeborg export: {exported()}", file=told, flush=True)
    return exported()


def _line(page: TopicPage) -> dict[str, Any]:
    topic, clients, others = page
    line: dict[str, Any] = {"topic": topic}
    if clients:
        line["client_ids"] = clients
    if others:
        line["subscriptions"] = [_fields(each) for each in others]
    return line


def _fields(subscription: Subscription) -> dict[str, Any]:
    fields: dict[str, Any] = {"client_id": subscription.client}
    if subscription.filter is not None:
        fields["filter"] = orjson.Fragment(subscription.filter)
    if (term := subscription.term) is not None:
        if term.disconnect:
            fields["until"] = "disconnect"
        if term.ends_at:
            fields["ends_at"] = term.ends_at
    return fields


async def run(store: Store, path: str, *, as_json: bool = False, told: TextIO | None = None) -> int:
    """Run the command, and return the exit code. ``path`` is ``-`` for standard output. ``told`` gets messages."""
    told = told or sys.stderr
    try:
        await store.open()
    except StoreError as error:
        print(f"ingeborg export: {error}", file=told)
        await store.close()
        return FAILED
    try:
        try:
            exported = await _to(path, store, None if as_json else told)
        finally:
            await store.close()
    except StoreError as error:
        print(f"ingeborg export: {error}\ningeborg export: the output is incomplete; run the export again", file=told)
        return FAILED
    except BrokenPipeError:
        print("ingeborg export: the program that read the output has ended; the output is incomplete", file=told)
        return FAILED
    except OSError as error:
        print(
            f"ingeborg export: cannot write {error.filename or path}: {error.strerror}; the output is incomplete: "
            "make room or give another FILE, and then run the export again",
            file=told,
        )
        return FAILED
    summary: dict[str, Any] = {**exported._asdict(), "file": path}
    print(orjson.dumps(summary).decode() if as_json else f"exported {exported}", file=told)
    return OK


async def _to(path: str, store: Store, told: TextIO | None) -> Exported:
    if path == "-":
        return await dump(store, Lines(sys.stdout.fileno()), told)
    target = Path(path)
    aside = _aside(target)
    # Mode 600: subscriptions are private.
    if aside == target:
        fd = os.open(aside, os.O_WRONLY)
    else:
        aside.unlink(missing_ok=True)  # left by an export that was killed
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        exported = await dump(store, Lines(fd), told)
        if aside != target:
            os.fsync(fd)
            if not os.path.samestat(os.fstat(fd), aside.stat()):
                raise FileExistsError(errno.EEXIST, "another export to the same file has started", str(aside))
    finally:
        with suppress(OSError):  # the data is synced already, or the export has failed
            os.close(fd)
    if aside != target:
        aside.replace(target)
    return exported


def _aside(target: Path) -> Path:
    """Return the path for the incomplete output: next to the target, or the target if it is a device or a pipe."""
    return target if target.exists() and not target.is_file() else target.with_name(target.name + ".part")
