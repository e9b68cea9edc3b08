"""Applies faults to a bed: each begins, lasts, and is repaired, regardless of the history.

Owns: applying and repairing, and their place in the record. Must never: choose (``plan`` does).
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import psutil

from ingeborg.broker.core.model import Settings
from ingeborg.broker.store.embedded.layout import Lane

from .bed import Bed, Endpoint
from .plan import Fault
from .record import Recorder

#: Time that replicas have before an endpoint is killed, in seconds.
REPLICATED_S = 20.0


class PassedOver(Exception):
    """The fault's target is missing, or has another fault of its kind."""


class Faults:
    """All faults of one history. A process has one fault at a time: another that meets it is skipped."""

    def __init__(self, bed: Bed, recorder: Recorder) -> None:
        self._bed = bed
        self._recorder = recorder
        self._taken: set[str] = set()  # endpoints, links and nodes with a fault
        self._crash = asyncio.Lock()

    async def inject(self, fault: Fault) -> None:
        """Begin the fault, wait, repair it."""
        about: dict[str, Any] = {"kind": fault.kind, "where": fault.where}
        if fault.kind in _LINKS:
            about["other"] = fault.other
        try:
            async with _KINDS[fault.kind](self, fault):
                self._recorder.add("fault", phase="begins", lasts_s=round(fault.lasts_s, 3), **about)
                await asyncio.sleep(fault.lasts_s)
            self._recorder.add("fault", phase="ends", **about)
        except PassedOver as reason:
            self._recorder.add("fault", phase="passed over", reason=str(reason), **about)

    @asynccontextmanager
    async def _taking(self, *what: str) -> AsyncIterator[None]:
        if self._taken.intersection(what):
            raise PassedOver("it has another fault")
        self._taken.update(what)
        try:
            yield
        finally:
            self._taken.difference_update(what)

    @asynccontextmanager
    async def _endpoint(self, name: str) -> AsyncIterator[Endpoint]:
        async with self._taking(name):
            endpoint = self._bed.endpoints[name]
            if not endpoint.runs:
                raise PassedOver("it does not run")
            yield endpoint

    def _life(self, endpoint: Endpoint, phase: str) -> None:
        self._recorder.add("life", endpoint=endpoint.name, life=endpoint.life, phase=phase)

    async def start(self, endpoint: Endpoint) -> None:
        """Start a new life."""
        await endpoint.start_with_a_store()
        self._life(endpoint, "started")

    @asynccontextmanager
    async def kill(self, fault: Fault) -> AsyncIterator[None]:
        async with self._endpoint(fault.where) as endpoint, self._one_at_a_time():
            self._life(endpoint, "killed")
            await endpoint.kill()
            yield
            await self.start(endpoint)

    @asynccontextmanager
    async def _one_at_a_time(self) -> AsyncIterator[None]:
        """Kill it; with replicas once every slot has its own, and no other endpoint until they have them again."""
        if not self._bed.settings.replication or self._bed.changed:
            yield
            return
        async with self._crash:
            if not await self._bed.replicated(REPLICATED_S):
                raise PassedOver("not every slot has a replica")
            yield

    @asynccontextmanager
    async def stop(self, fault: Fault) -> AsyncIterator[None]:
        async with self._endpoint(fault.where) as endpoint:
            self._life(endpoint, "stopping")
            endpoint.signal(signal.SIGTERM)
            code = await endpoint.ended()
            self._life(endpoint, "stopped")
            assert code == 0, f"{endpoint.name} ended with {code}; {endpoint.said()}"
            yield
            await self.start(endpoint)

    @asynccontextmanager
    async def pause(self, fault: Fault) -> AsyncIterator[None]:
        async with self._endpoint(fault.where) as endpoint:
            endpoint.signal(signal.SIGSTOP)
            try:
                yield
            finally:
                endpoint.signal(signal.SIGCONT)

    @asynccontextmanager
    async def settings(self, fault: Fault) -> AsyncIterator[None]:
        """Record other settings. Each endpoint that starts from then on takes them. Nothing needs repair."""
        async with self._taking("settings"):
            keeps, has_journal = self._bed.settings.history != "off", self._bed.riak is None
            history = "store" if has_journal and fault.chance * 4 % 2 >= 1 else "memory"
            if not await self._bed.change(Settings(fault.chance >= 0.5, history if keeps else "off")):
                raise PassedOver("the store does not take them")
            yield

    @asynccontextmanager
    async def link(self, fault: Fault) -> AsyncIterator[None]:
        wires = self._bed.wires
        there, back = (fault.where, fault.other), (fault.other, fault.where)
        both = fault.kind != "cut"
        pairs = (there, back) if both else (there,)
        async with self._taking(" ".join(sorted(there))):
            try:
                for pair in pairs:
                    await self._change(wires, fault.kind, pair, fault.chance)
                yield
            finally:
                for pair in pairs:
                    await self._change(wires, fault.kind, pair, None)

    async def _change(self, wires: Any, kind: str, pair: tuple[str, str], chance: float | None) -> None:
        if kind == "delay":
            await wires.slow(pair, chance)
        elif kind == "loss":
            await wires.lose(pair, chance)
        else:
            await wires.cut(pair, chance is not None)

    @asynccontextmanager
    async def writer(self, fault: Fault) -> AsyncIterator[None]:
        """SIGSTOP a writer; after 4 s an endpoint gives up a silent writer, and starts another."""
        lane = Lane.DURABLE if fault.kind == "durable writer" else Lane.SOFT
        async with self._taking(f"{fault.where} {lane}"):
            writers = self._bed.endpoints[fault.where].writers(lane)
            if not writers:
                raise PassedOver("it does not run")
            for writer in writers:
                writer.suspend()
            try:
                yield
            finally:
                for writer in writers:
                    with suppress(psutil.NoSuchProcess):
                        writer.resume()

    @asynccontextmanager
    async def nodes(self, fault: Fault) -> AsyncIterator[None]:
        """A fault of the Riak cluster: one node cut off from the others, one dead, one silent, or all dead."""
        riak = self._bed.riak
        assert riak is not None
        async with self._taking("riak"):
            numbers = range(len(riak.nodes))
            number = int(fault.chance * len(riak.nodes))
            try:
                if fault.kind == "riak cut":
                    riak.memory.cut([number], [other for other in numbers if other != number])
                elif fault.kind == "riak node":
                    await riak.nodes[number].kill()
                elif fault.kind == "riak silent":
                    riak.nodes[number].behaviour = "hang"
                else:
                    for node in riak.nodes:
                        await node.kill()
                yield
            finally:
                riak.memory.heal()
                riak.nodes[number].behaviour = "serve"
                for other in numbers:
                    if not riak.memory.up[other]:
                        await riak.restart(other)


_KINDS: dict[str, Callable[[Faults, Fault], AbstractAsyncContextManager[None]]] = {
    "kill": Faults.kill,
    "stop": Faults.stop,
    "pause": Faults.pause,
    "long pause": Faults.pause,
    "settings": Faults.settings,
    "cut": Faults.link,
    "cut both ways": Faults.link,
    "delay": Faults.link,
    "loss": Faults.link,
    "durable writer": Faults.writer,
    "soft writer": Faults.writer,
    "riak cut": Faults.nodes,
    "riak node": Faults.nodes,
    "riak silent": Faults.nodes,
    "riak down": Faults.nodes,
}
_LINKS = frozenset({"cut", "cut both ways", "delay", "loss"})
