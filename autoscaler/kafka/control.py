"""Runs the controller as a program: passes messages between the controller, Kafka and the scaler.

Owns: the program's tasks, and the order in which it sends messages. Must never: decide anything.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from ..controller import Controller
from ..effects import Effect, Note, Resign, Scale, Tell
from ..model import Message, Reign
from ..scalers.base import Scaler, ScalerError
from .channel import Incoming, Outgoing, Received
from .connecting import KafkaProblem

_log = logging.getLogger("ingeborg.autoscale")

#: Seconds between two ticks.
_TICK_S: Final = 0.5
#: Seconds between two requests for the scaler's list of members.
_ASK_S: Final = 2.0
#: Notes that only the journal gets. Each decision causes many such notes, and the decision itself is logged.
_QUIET: Final = frozenset({"given", "scaled"})
#: Maximum number of messages that are sent together.
_SEND_MAX: Final = 1_000


class Resigned(Exception):
    """Another controller has begun."""


class Control:
    """Runs a controller. ``on_note``: a function that is called with the time of each note and with the note. Times are
    in seconds, from ``clock``."""

    def __init__(
        self,
        controller: Controller,
        name: str,
        scaler: Scaler,
        inbox: Incoming,
        speeds: Incoming,
        orders: Outgoing,
        on_note: Callable[[float, Note], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._controller = controller
        self._name = name
        self._scaler = scaler
        self._inbox = inbox
        self._speeds = speeds
        self._orders = orders
        self._on_note = on_note
        self._clock = clock
        self._waiting: list[tuple[int, Message]] = []
        self._has_orders = asyncio.Event()
        self._order: Scale | None = None
        self._has_order = asyncio.Event()
        self._trouble = ""

    async def run(self) -> None:
        """Run until cancelled. Raises ``Resigned``, or ``KafkaProblem`` if it cannot begin."""
        place = await self._orders.send(0, Reign(self._name, 0))
        await self._inbox.read_from({0: place + 1})
        await self._speeds.read_from({0: None})
        now_s = self._clock()
        self._controller.begin(now_s, place)
        self._act(now_s)
        async with asyncio.TaskGroup() as tasks:
            for work in (self._listen, self._measure, self._tick, self._ask, self._send):
                tasks.create_task(work())

    def _act(self, began_s: float) -> None:
        """Carry out the controller's effects. ``began_s``: time of the event that caused them."""
        effects = self._controller.take()
        for effect in effects:
            if isinstance(effect, Note) and effect.event == "decided":
                effect = effect._replace(seconds=self._clock() - began_s)
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Tell(number, message):
                self._waiting.append((number, message))
                self._has_orders.set()
            case Scale():
                self._order = effect
                self._has_order.set()
            case Note():
                level = logging.WARNING if effect.is_trouble else logging.INFO
                _log.log(logging.DEBUG if effect.event in _QUIET else level, "%s", effect.words)
                self._on_note(self._clock(), effect)
            case Resign(why):
                raise Resigned(why)

    async def _listen(self) -> None:
        while True:
            received = await self._take(self._inbox)
            now_s = self._clock()
            self._controller.heard(now_s, *((each.message, each.offset) for each in received))
            self._act(now_s)

    async def _measure(self) -> None:
        while True:
            received = await self._take(self._speeds)
            now_s = self._clock()
            self._controller.heard(now_s, *((each.message, 0) for each in received))
            self._act(now_s)

    async def _take(self, incoming: Incoming) -> Sequence[Received]:
        try:
            received = await incoming.take(_TICK_S)
        except KafkaProblem as error:
            self._say(str(error))
            await asyncio.sleep(_TICK_S)
            return []
        if received and self._trouble:
            _log.info("Kafka answers again")
            self._trouble = ""
        return received

    def _say(self, words: str) -> None:
        if words != self._trouble:
            _log.warning("%s", words)
        self._trouble = words

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            now_s = self._clock()
            self._controller.tick(now_s)
            self._act(now_s)

    async def _send(self) -> None:
        """Send messages in order. This task does not repeat a message that could not be sent, because the controller
        later gives new orders that fit the state at that time."""
        while True:
            await self._has_orders.wait()
            self._has_orders.clear()
            while self._waiting:
                some, self._waiting = self._waiting[:_SEND_MAX], self._waiting[_SEND_MAX:]
                try:
                    await self._orders.put(some)
                except KafkaProblem as error:
                    self._say(str(error))
                    self._waiting.clear()

    async def _ask(self) -> None:
        """Call the scaler, one call at a time. Each time, first send the waiting order, if there is one, and then read
        the scaler's list of members."""
        while True:
            try:
                order, self._order = self._order, None
                if order is not None:
                    began_s = self._clock()
                    await self._scaler.scale(order.count, order.leaving)
                    took_s = self._clock() - began_s
                running = await self._scaler.running()
                if order is not None and running is not None:
                    self._carry_out(Note("scaled", f"ordered the scaler to run {order.count} members", seconds=took_s))
            except ScalerError as error:
                now_s = self._clock()
                self._controller.scaler_failed(now_s, str(error))
            else:
                now_s = self._clock()
                if running is not None:
                    self._controller.running(now_s, running)
            self._act(now_s)
            self._has_order.clear()
            if self._order is None:
                try:
                    async with asyncio.timeout(_ASK_S):
                        await self._has_order.wait()
                except TimeoutError:
                    pass
