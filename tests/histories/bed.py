"""The ground for histories: endpoint processes, their network and their store, shared by successive histories.

Owns: the processes' lives and their names (``a#2``: the second life of a), and that nothing stays. Must never: know
what a history does with them.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from ingeborg.bench.starting import ChildError, end_all, python
from ingeborg.broker.core.model import NO_SETTINGS, Settings
from ingeborg.broker.core.settings import words
from ingeborg.broker.store.embedded.layout import Lane
from ingeborg.protocol.pages import PageError, fetch, samples

from ..broker.running import form_of
from ..cluster.processes import Cluster, EndpointProcess
from ..riak.double import RiakDouble
from .record import Event
from .wires import Wires, wires_of

#: Reading an endpoint's metrics counts as unanswered after this time, in seconds.
LOOK_S = 0.5

#: Time limit for a start, in seconds: several beds start nine processes each on a machine that others load as well.
START_S = 60.0

#: Interval between two starts of an endpoint that found no store, in seconds.
STORELESS_S = 0.3


class Endpoint(EndpointProcess):
    """An endpoint on a given network, whose lives have names."""

    def __init__(
        self, name: str, options: Sequence[str], directory: Path, wires: Wires, sides: Path, **variables: str
    ) -> None:
        self.side = sides / f"{name}.side"
        super().__init__(
            name,
            [*options, *wires.options(name), "--side", str(self.side)],
            directory,
            variables,
            host=wires.host(name),
            through=wires.through(name),
            serving=python("ingeborg.bench.micro.paged"),
        )
        self._advertised = wires.advertised(name, self.url)
        self.inside = wires.inside(name, self.url)

    @property
    def life(self) -> str:
        """Return the name of its present life, or of the last."""
        return f"{self.name}#{self.lives}"

    async def start_with_a_store(self) -> None:
        """Start it. While Riak does not answer, or not in time, an endpoint ends at its start, and this starts it
        again."""
        deadline = time.monotonic() + START_S
        while True:
            try:
                await self.start()
            except ChildError:
                if "cannot use the store riak:" not in self.said() or time.monotonic() > deadline:
                    raise
                await self.ended()
                await asyncio.sleep(STORELESS_S)
            else:
                return

    async def ready(self, url: str | None = None, within_s: float = START_S) -> None:
        await super().ready(url or self._advertised, within_s)

    def writers(self, *lanes: Lane) -> list[psutil.Process]:
        """Return its store's writer processes; all if no lane is given."""
        if self.process is None:
            return []
        found = []
        for child in self.process.children():
            with suppress(psutil.Error):
                words = child.cmdline()
                if "ingeborg.broker.store.embedded.writer" in words and (
                    not lanes or any(lane.value in words for lane in lanes)
                ):
                    found.append(child)
        return found

    async def look(self, timeout_s: float = LOOK_S) -> Event | None:
        """Return its metrics as the record has them; ``None``: it does not answer."""
        try:
            page = await fetch(self.inside, "/metrics", timeout_s=timeout_s)
        except PageError:
            return None
        values: dict[str, float] = {}
        labelled: dict[str, dict[str, float]] = {"drops_total": {}, "errors_total": {}}
        peers = []
        for sample in samples(page.text):
            name = sample.name.removeprefix("ingeborg_")
            if name in labelled:
                labelled[name][sample.labels.get("reason") or sample.labels["code"]] = sample.value
            elif name == "peer_up":
                if sample.value == 1:
                    peers.append(sample.labels["name"])
            elif not sample.labels:
                values[name] = sample.value
        return {
            "values": values,
            "drops": labelled["drops_total"],
            "errors": labelled["errors_total"],
            "peers": sorted(peers),
        }


#: Room for all retained messages of a bed's histories, so that endpoints drop none.
ROOM = ["--history-bytes", str(64 << 20), "--history-size", "1000"]


@dataclass
class Bed:
    """The bed. Use as ``async with bed(…) as bed``."""

    store: str
    network: str  # the network in use
    wires: Wires
    cluster: Cluster
    endpoints: dict[str, Endpoint]
    riak: RiakDouble | None
    directory: Path
    form: str  # form of the endpoints' code, as they report it
    settings: Settings  # settings of the cluster at the start
    grace_s: int | None  # the endpoints' grace time; None for the default
    changed: bool = False  # the store has recorded others since, and some endpoints may have them

    @property
    def about(self) -> str:
        """Describe the settings of the cluster, for people."""
        return "".join(f", {name} {value}" for name, value in words(self.settings).items())

    async def change(self, settings: Settings) -> bool:
        """Have the store record other settings. ``False``: the store rejects them."""
        self.changed = True
        return not any([await self.cluster.record(*each) for each in words(settings).items()])

    def running(self) -> list[Endpoint]:
        """Return the endpoints that run."""
        return [endpoint for endpoint in self.endpoints.values() if endpoint.runs]

    async def replicated(self, within_s: float) -> bool:
        """Wait until all endpoints see each other, and each slot has its replica if the settings ask for one; or the
        time is over."""
        try:
            async with asyncio.timeout(within_s):
                await self.cluster.linked(*self.endpoints, within_s=within_s)
                while True:
                    seen = await asyncio.gather(*(endpoint.look() for endpoint in self.endpoints.values()))
                    if not any(each is None or each["values"]["slots_without_replica"] for each in seen):
                        return True
                    await asyncio.sleep(LOOK_S)
        except (TimeoutError, AssertionError):
            return False


@asynccontextmanager
async def bed(
    store: str,
    network: str,
    directory: Path,
    names: Sequence[str] = "abc",
    *,
    settings: Settings = NO_SETTINGS,
    grace_s: int | None = None,
) -> AsyncIterator[Bed]:
    """Make a bed. ``store``: ``lmdb`` or ``riak`` (the double); ``network``: ``proxy``, ``namespaces``, or ``any``.
    ``directory`` exists, and is empty."""
    async with AsyncExitStack() as stack:
        riak = None
        where = f"lmdb:{directory / 'store'}"
        if store == "riak":
            riak = await stack.enter_async_context(RiakDouble(nodes=3))
            riak.create_broker_types()
            where = "riak:" + ",".join(f"{host}:{port}" for host, port in riak.addresses)
            network = "proxy"  # its nodes are at this machine's loopback address, which a namespace does not have
        wires = await stack.enter_async_context(await wires_of(network, list(names)))
        options = ["--store", where, *ROOM, *([] if grace_s is None else ["--grace", str(grace_s)])]
        # The path of a Unix socket has at most 107 bytes.
        sides = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sides-")))
        endpoints = {
            name: Endpoint(name, options, directory, wires, sides, XDG_DATA_HOME=str(directory / "data"))
            for name in names
        }
        cluster = Cluster(directory, options, {}, dict(endpoints))
        stack.push_async_callback(end_all, list(endpoints.values()))
        # The first endpoint makes the store, with the settings, and the secret that all share.
        first, *others = endpoints.values()
        common = dict(first.variables)
        first.variables |= {f"INGEBORG_{name.upper()}": value for name, value in words(settings).items()}
        await first.start_with_a_store()
        first.variables = common
        await asyncio.gather(*(endpoint.start_with_a_store() for endpoint in others))
        await cluster.linked(*names, within_s=START_S)
        forms = await asyncio.gather(*(form_of(endpoint.inside) for endpoint in endpoints.values()))
        form = " and ".join(sorted(set(forms)))
        on = Bed(store, wires.name, wires, cluster, endpoints, riak, directory, form, settings, grace_s)
        if not await on.replicated(START_S):
            raise ChildError(f"within {START_S:.0f} s not every slot has a replica")
        yield on
