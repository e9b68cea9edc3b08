"""Sending the clients away, a few at a time, so that they do not all arrive elsewhere at once.

Owns: when each is told. Must never: cut off what a client has sent; its commands get their replies first, in so far as
they come soon.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from protocol.errors import GOING_AWAY

from .core.router import Router

if TYPE_CHECKING:
    from .endpoint import ClientSocket

#: Between two batches, in seconds.
STEP_S = 0.05

#: Told in one batch at least: a hundred connections need no five seconds.
BATCH_MIN = 10

#: How long a client that is told next may wait for replies, in seconds, while nothing more is read of it.
REPLIES_S = 1.0


async def send_away(clients: list[ClientSocket], router: Router, over_s: float, turn: Callable[[], None]) -> None:
    """Tell the clients to go (1001), over so many seconds, or less where they are few. Nobody new comes meanwhile."""
    loop = asyncio.get_running_loop()
    batch = max(BATCH_MIN, math.ceil(len(clients) * STEP_S / over_s)) if over_s else len(clients)
    told = 0
    going: list[tuple[ClientSocket, float]] = []
    while told < len(clients) or going:
        for client in clients[told : told + batch]:
            client.quiet = True
            client.read_or_not()
            going.append((client, loop.time() + REPLIES_S))
        told += batch
        still = []
        for client, deadline in going:
            connection = client.connection
            if connection is None or connection.closed or client.transport.is_closing():
                continue
            if (connection.replies or connection.backlog or client.waits) and loop.time() < deadline:
                still.append((client, deadline))
                continue
            client.quiet, client.going = False, True
            client.read_or_not()  # for its answer, and what is on its way here
            router.close(connection, GOING_AWAY)
        going = still
        turn()
        if told < len(clients) or going:
            await asyncio.sleep(STEP_S)
