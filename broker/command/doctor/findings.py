"""The findings of `ingeborg doctor`: one record for each thing that a check examined.

Owns: the fields of a finding, the three levels, and the time limit of a check. Must never: depend on any check.
"""

from __future__ import annotations

import asyncio
import enum
import threading
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

T = TypeVar("T")

#: Time limit for a check, in seconds. Checks that wait for other programs also have shorter limits for each wait.
CHECK_S = 15.0


class Level(enum.StrEnum):
    """``warning``: an endpoint runs, but not as it should. ``error``: it will not start, or will be useless."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(NamedTuple):
    """``check``: the thing examined. ``seen``: the result, as text. ``todo``: the fix, a command if possible."""

    check: str
    level: Level
    seen: str
    todo: str = ""


def ok(check: str, seen: str) -> Finding:
    """Return the finding that something works as it should."""
    return Finding(check, Level.OK, seen)


def warning(check: str, seen: str, todo: str) -> Finding:
    """Return the finding that something works, but not as it should."""
    return Finding(check, Level.WARNING, seen, todo)


def error(check: str, seen: str, todo: str) -> Finding:
    """Return the finding that something has to be fixed."""
    return Finding(check, Level.ERROR, seen, todo)


async def in_thread(function: Callable[[], T]) -> T:
    """Run ``function`` in a daemon thread, and return or raise its outcome. A file system or name server that hangs
    cannot delay the end of the process."""
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
            pass  # the loop is closed: nobody waits for the outcome

    threading.Thread(target=work, daemon=True).start()
    return await done


async def ended(check: str, findings: Awaitable[list[Finding]], limit_s: float = CHECK_S) -> list[Finding]:
    """Return the findings of one check. If the check fails or takes too long, the only finding is an error."""
    try:
        async with asyncio.timeout(limit_s):
            return await findings
    except TimeoutError:
        return [
            error(
                check,
                f"no result after {limit_s:g} s",
                "find out what does not answer: the disk, the network or the name server",
            )
        ]
    except Exception as failure:
        seen = f"the check failed: {type(failure).__name__}: {failure}"
        return [error(check, seen, "please report this bug of `ingeborg doctor`")]
