"""`ingeborg export`: all subscriptions of a store as JSON lines, such as `ingeborg import` reads.

Owns: the lines, where they go, what is said of the progress. Must never: write to the store, hold more than a page of
it, or call an output whole that is not: a file has its name only once everything is in it, and the exit code is 1
before that.

A line is ``{"topic": "…", "client_ids": ["…"]}``: stores keep subscriber sets, so this is the order in which they can
be gone through. A topic with more subscribers than a page holds has several lines. Endpoints may go on meanwhile;
``Store.subscriptions`` says what is promised then. Behind all plain subscriptions come the ending ones, slot by slot,
in lines that have ``"until": "disconnect"``, ``"ends_at"`` (Unix time in seconds), or both.

Behind these come the subscriptions with filters, in lines ``{"topic": "…", "filtered_ids": ["…"], "filter": {…}}``.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import orjson

from ingeborg.protocol.hashes import SLOTS

from ..store.base import PAGE_SUBSCRIPTIONS, Ending, Store, StoreError, Term

SAY_EVERY_S = 1.0

#: What a pipe that has room takes without making its writer wait (pipe(7), ``PIPE_BUF``).
PIPE_BYTES = 4096

#: Slots whose ending subscriptions are asked for at once: on Riak each is a request or a few, and most have none.
SLOTS_AT_ONCE = 16

OK, FAILED = 0, 1


class Exported(NamedTuple):
    """How much has been written. ``ending``: so many of the subscriptions end by themselves; ``filtered``: so many have
    a filter."""

    lines: int
    subscriptions: int
    seconds: float
    ending: int = 0
    filtered: int = 0

    def __str__(self) -> str:
        rate = self.subscriptions / max(self.seconds, 1e-9)
        kinds = ((self.ending, "ending ones"), (self.filtered, "with filters"))
        among = ", ".join(f"{count:,} of them {kind}" for count, kind in kinds if count)
        counts = f"{self.subscriptions:,} subscriptions{f' ({among})' if among else ''} in {self.lines:,} lines"
        return f"{counts}, in {self.seconds:.1f} s ({rate:,.0f} a second)"


class Lines:
    """A file, a pipe or a terminal, by its descriptor. What is in it ends with a whole line, also after a failure."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        mode = os.fstat(fd).st_mode
        self._regular = stat.S_ISREG(mode)
        self._waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)

    async def write(self, lines: bytes) -> None:
        """Whole lines. ``OSError``; a reader that takes its time is waited for, and the loop goes on."""
        at = 0
        try:
            while at < len(lines):
                if self._waits:
                    await self._room()
                at += os.write(self._fd, lines[at : at + PIPE_BYTES] if self._waits else lines[at:])
        except OSError:
            rest = at - (lines.rfind(b"\n", 0, at) + 1)  # of a line that did not get to its end
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
    """Everything in an open store. ``StoreError``, ``OSError``. ``told``: where progress is said, if anywhere."""
    began_s = said_s = time.monotonic()
    count = subscriptions = ending = filtered = 0

    def exported() -> Exported:
        return Exported(count, subscriptions, time.monotonic() - began_s, ending, filtered)

    async def write(values: list[dict[str, Any]], ids: str = "client_ids") -> None:
        nonlocal count, subscriptions, said_s
        await lines.write(b"".join(orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE) for value in values))
        count += len(values)
        subscriptions += sum(len(value[ids]) for value in values)
        if told is not None and time.monotonic() - said_s >= SAY_EVERY_S:
            said_s = time.monotonic()
            print(f"ingeborg export: {exported()}", file=told, flush=True)

    async for page in store.subscriptions():
        await write([{"topic": topic, "client_ids": clients} for topic, clients in page])
    with_ending = await store.ending_slots()
    all_slots = range(SLOTS) if with_ending is None else with_ending
    for first in range(0, len(all_slots), SLOTS_AT_ONCE):
        slots = all_slots[first : first + SLOTS_AT_ONCE]
        pages = await asyncio.gather(*(store.ending(slot, None, PAGE_SUBSCRIPTIONS) for slot in slots))
        for slot, (found, cursor) in zip(slots, pages, strict=True):
            await write(_ending_lines(found))
            ending += len(found)
            while cursor is not None:
                found, cursor = await store.ending(slot, cursor, PAGE_SUBSCRIPTIONS)
                await write(_ending_lines(found))
                ending += len(found)
        await asyncio.sleep(0)
    async for pairs in store.filtered_subscriptions():
        await write(_filtered_lines(pairs), "filtered_ids")
        filtered += sum(len(found) for _, found in pairs)
    return exported()


def _filtered_lines(page: Sequence[tuple[str, Sequence[tuple[str, str]]]]) -> list[dict[str, Any]]:
    """Clients of one topic with the same filter share a line."""
    return [
        {"topic": topic, "filtered_ids": [client for client, _ in found], "filter": orjson.Fragment(text)}
        for topic, pairs in page
        for text, found in groupby(sorted(pairs, key=itemgetter(1, 0)), itemgetter(1))
    ]


def _ending_lines(page: Sequence[Ending]) -> list[dict[str, Any]]:
    """Neighbours of one topic that end in the same way share a line."""
    return [
        {"topic": topic, "client_ids": [each.client for each in found], **_term_fields(term)}
        for (topic, term), found in groupby(page, lambda each: (each.topic, each.term))
    ]


def _term_fields(term: Term) -> dict[str, Any]:
    until = {"until": "disconnect"} if term.disconnect else {}
    return {**until, "ends_at": term.ends_at} if term.ends_at else until


async def run(store: Store, path: str, *, as_json: bool = False, told: TextIO | None = None) -> int:
    """The command; ``path``: ``-`` is standard output. All that is said goes to ``told``. Returns the exit code."""
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
        print(f"ingeborg export: {error}\ningeborg export: not everything was written; run it again", file=told)
        return FAILED
    except BrokenPipeError:
        print("ingeborg export: whoever read it has gone; not everything was written", file=told)
        return FAILED
    except OSError as error:
        print(
            f"ingeborg export: cannot write {error.filename or path}: {error.strerror}; not everything was written: "
            "make room or give another FILE, and run it again",
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
    # Who listens to what is nobody else's business: 600.
    if aside == target:
        fd = os.open(aside, os.O_WRONLY)
    else:
        aside.unlink(missing_ok=True)  # of one that was killed
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        exported = await dump(store, Lines(fd), told)
        if aside != target:
            os.fsync(fd)
            if not os.path.samestat(os.fstat(fd), aside.stat()):
                raise FileExistsError(errno.EEXIST, "another export to it has begun", str(aside))
    finally:
        with suppress(OSError):  # what matters has been synced, or has failed already
            os.close(fd)
    if aside != target:
        aside.replace(target)
    return exported


def _aside(target: Path) -> Path:
    """Where it is written until it is whole: beside it, but for what is no file (a device, a pipe with a name)."""
    return target if target.exists() and not target.is_file() else target.with_name(target.name + ".part")
