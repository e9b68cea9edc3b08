"""What `ingeborg doctor` finds: one record for each thing that was looked at.

Owns: its fields, the three levels, and how a check is run so that it ends. Must never: know a check.
"""

from __future__ import annotations

import asyncio
import enum
import threading
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

T = TypeVar("T")

#: No check takes longer, in seconds: those that wait for others have shorter limits of their own.
CHECK_S = 15.0


class Level(enum.StrEnum):
    """``warning``: it runs, but not as it should. ``error``: an endpoint will not start, or will not be of use."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(NamedTuple):
    """``check``: what was looked at. ``seen``: in words. ``todo``: how to mend it, a command where there is one."""

    check: str
    level: Level
    seen: str
    todo: str = ""


def ok(check: str, seen: str) -> Finding:
    """As it should be."""
    return Finding(check, Level.OK, seen)


def warning(check: str, seen: str, todo: str) -> Finding:
    """It runs, but not as it should."""
    return Finding(check, Level.WARNING, seen, todo)


def error(check: str, seen: str, todo: str) -> Finding:
    """It has to be mended."""
    return Finding(check, Level.ERROR, seen, todo)


async def in_thread(function: Callable[[], T]) -> T:
    """What ``function`` returns or raises. In a thread that nobody waits for at the end of the process: a file system
    that hangs, or a name server, cannot keep it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, failure: BaseException | None) -> None:
        if done.cancelled():
            return
        if failure is not None:
            done.set_exception(failure)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # None is a T where the function returns it

    def work() -> None:
        try:
            outcome: tuple[T | None, BaseException | None] = (function(), None)
        except BaseException as failure:
            outcome = (None, failure)
        try:
            loop.call_soon_threadsafe(settle, *outcome)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    threading.Thread(target=work, daemon=True).start()
    return await done


async def ended(check: str, findings: Awaitable[list[Finding]], limit_s: float = CHECK_S) -> list[Finding]:
    """The findings of one check, whatever becomes of it."""
    try:
        async with asyncio.timeout(limit_s):
            return await findings
    except TimeoutError:
        return [
            error(check, f"nothing was known after {limit_s:g} s", "see why it does not answer: disk, network, names")
        ]
    except Exception as failure:
        seen = f"the check failed: {type(failure).__name__}: {failure}"
        return [error(check, seen, "please report this: it is a fault of `ingeborg doctor`")]
