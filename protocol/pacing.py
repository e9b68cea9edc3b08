"""Sends the commands of a large subscribe, and adapts how many are under way at the same time.

Owns: the number of commands under way, and the cancellation of these commands when the subscribe ends. Must never: read
a command, or repeat one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

#: Maximum number of commands under way. The client starts with one command at a time. Each command that takes less than
#: ``_S_SHORT`` seconds raises the number by one, and each command that takes longer than ``_S_LONG`` halves it. The
#: maximum is enough to fill the queue of an endpoint with an embedded store. A slow endpoint gets one command at a
#: time, and can write that command before the time-out.
AT_ONCE_MAX = 32
_S_SHORT, _S_LONG = 1.5, 3.0

Send = Callable[[bytes], Awaitable[dict[str, Any]]]


async def paced(bodies: Iterable[bytes], send: Send) -> list[dict[str, Any]]:
    """Send all commands, several at a time.

    Args:
        bodies: the commands.
        send: sends a command and returns its reply.

    Returns:
        The replies, in any order.

    Raises:
        Exception: the first error of ``send``; the other commands under way are cancelled.
    """
    waiting = deque(bodies)
    if len(waiting) == 1:
        return [await send(waiting[0])]
    replies: list[dict[str, Any]] = []
    at_once = 1.0
    under_way: set[asyncio.Task[tuple[float, dict[str, Any]]]] = set()
    try:
        while waiting or under_way:
            while waiting and len(under_way) < at_once:
                under_way.add(asyncio.create_task(_timed(send, waiting.popleft())))
            done, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                took_s, reply = task.result()
                under_way.discard(task)
                replies.append(reply)
                if took_s > _S_LONG:
                    at_once = max(at_once / 2, 1.0)
                elif took_s < _S_SHORT:
                    at_once = min(at_once + 1.0, AT_ONCE_MAX)
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
    return replies


async def _timed(send: Send, command_body: bytes) -> tuple[float, dict[str, Any]]:
    """Send a command. Returns the seconds that it took, and the reply."""
    loop = asyncio.get_running_loop()
    start_s = loop.time()
    reply = await send(command_body)
    return loop.time() - start_s, reply
