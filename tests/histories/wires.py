"""The network between endpoints, and its faults: network namespaces if the system permits them, else proxies.

Owns: the network between two endpoints, and its end. Must never: touch the traffic between clients and endpoints, or
anything of the machine that it has not made.

*Namespaces* (Linux, root): each endpoint has its own, on a bridge on which this process has an address. A cut drops
packets in the kernel, one way, silently (nftables; without it a wrong neighbour's address does the same); loss drops
some packets at random; delay needs netem. *Proxies*: each endpoint advertises a TCP proxy, which stops passing bytes in
one direction of one pair, or passes them late. It cannot lose packets.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import socket
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, Protocol, Self

Pair = tuple[str, str]
"""From one endpoint to another, by name."""

#: A delayed link's latency one way, in seconds: far below what makes a peer silent.
DELAY_S_MIN, DELAY_S_MAX = 0.02, 0.25

#: Packets lost, in percent: enough for retransmissions all the time, not enough for a connection to stand still.
LOSS_PERCENT_MIN, LOSS_PERCENT_MAX = 2, 15

#: Port of an endpoint's internal address, in its own namespace.
INSIDE_PORT = 9001

#: Time limit for a command that sets the network up, in seconds.
COMMAND_S = 60.0


async def until_one_ends(pumps: Sequence[asyncio.Task[None]], *writers: asyncio.StreamWriter) -> None:
    """Both directions of a proxied connection: the end of one is the end of both."""
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in pumps:
            pump.cancel()
        for writer in writers:
            writer.transport.abort()


def subnets() -> Iterator[int]:
    """Return third bytes of subnets of 198.18.0.0/16, in an order that two runs hardly share.

    These are RFC 2544's addresses for tests between networks: no real network has them.
    """
    return iter(random.SystemRandom().sample(range(256), 256))


class Wires(Protocol):
    """The network between the endpoints. ``links``: the kinds of faults it can make."""

    name: str
    links: tuple[str, ...]

    def host(self, name: str) -> str:
        """Return the URL at which clients reach it."""

    def through(self, name: str) -> Sequence[str]:
        """Return the command that starts it."""

    def options(self, name: str) -> Sequence[str]:
        """Return further options of `serve`."""

    def advertised(self, name: str, url: str) -> str:
        """Return the URL of its ready line."""

    def inside(self, name: str, url: str) -> str:
        """Return the URL of its metrics."""

    async def cut(self, pair: Pair, on: bool) -> None:
        """Let nothing through, one way; or everything again."""

    async def slow(self, pair: Pair, chance: float | None) -> None:
        """Delay everything, one way; ``None``: nothing."""

    async def lose(self, pair: Pair, chance: float | None) -> None:
        """Let only part through, one way; ``None``: everything."""


class Proxies:
    """A proxy before each endpoint. Use as ``async with Proxies(names) as wires``.

    Each endpoint dials from its own address: all of 127.0.0.0/8 is this machine's (Linux). Finding the dialler's port
    among a busy machine's sockets takes so long that dials time out, and their number grows.
    """

    name = "proxy"
    links = ("cut", "cut both ways", "delay")

    def __init__(self, names: Sequence[str]) -> None:
        self._ports: dict[str, int] = {}
        self._targets: dict[str, int] = {}
        self._addresses = {name: f"127.0.0.{number}" for number, name in enumerate(names, 2)}
        self._names = {address: name for name, address in self._addresses.items()}
        self._passing: defaultdict[Pair, asyncio.Event] = defaultdict(_set_event)
        self._delays_s: defaultdict[Pair, float] = defaultdict(float)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for name in self._addresses:
            server = await asyncio.start_server(partial(self._accepted, name), "127.0.0.1", 0)
            self._ports[name] = server.sockets[0].getsockname()[1]
            self._stack.callback(server.close)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def host(self, name: str) -> str:
        return "127.0.0.1"

    def through(self, name: str) -> Sequence[str]:
        return ()

    def options(self, name: str) -> Sequence[str]:
        return ("--advertise", f"ws://127.0.0.1:{self._ports[name]}", "--dial-from", self._addresses[name])

    def inside(self, name: str, url: str) -> str:
        return url

    def advertised(self, name: str, url: str) -> str:
        self._targets[name] = int(url.rpartition(":")[2])
        return f"ws://127.0.0.1:{self._ports[name]}"

    async def cut(self, pair: Pair, on: bool) -> None:
        if on:
            self._passing[pair].clear()
        else:
            self._passing[pair].set()

    async def slow(self, pair: Pair, chance: float | None) -> None:
        self._delays_s[pair] = 0.0 if chance is None else DELAY_S_MIN + chance * (DELAY_S_MAX - DELAY_S_MIN)

    async def lose(self, pair: Pair, chance: float | None) -> None:
        raise NotImplementedError("a proxy does not lose packets")

    def _accepted(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(target, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dialler = self._names.get(writer.get_extra_info("peername")[0], "")
        try:
            onward = await asyncio.open_connection("127.0.0.1", self._targets[target])
        except OSError:
            writer.close()  # as the endpoint itself refuses, before its start and after its end
            return
        # The end of one direction ends both; held-back data in the other is lost, as with a broken connection.
        pumps = [
            asyncio.create_task(self._pass_on((dialler, target), reader, onward[1])),
            asyncio.create_task(self._pass_on((target, dialler), onward[0], writer)),
        ]
        await until_one_ends(pumps, writer, onward[1])

    async def _pass_on(self, pair: Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                if self._delays_s[pair]:
                    await asyncio.sleep(self._delays_s[pair])
                await self._passing[pair].wait()
                writer.write(data)
                await writer.drain()


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


class Namespaces:
    """A network namespace for each endpoint. Use as ``async with Namespaces(names) as wires``, where ``permitted``."""

    name = "namespaces"

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self.subnet: int | None = None  # see `subnets`; None: nothing exists yet
        self._cut: set[Pair] = set()
        self._lost: dict[Pair, int] = {}
        self._delayed: dict[Pair, int] = {}
        self._has_nft = shutil.which("nft") is not None
        self.links: tuple[str, ...] = ("cut", "cut both ways")

    async def __aenter__(self) -> Self:
        try:
            await self._set_up()
        except BaseException:
            await self._tear_down()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tear_down()

    async def _set_up(self) -> None:
        await self._claim()
        await _run("ip", "addr", "add", f"198.18.{self.subnet}.254/24", "dev", self._mark)
        await _run("ip", "link", "set", self._mark, "up")
        for name in self._names:
            space, outer = self._space(name), f"{self._mark}{name}"
            await _run("ip", "netns", "add", space)
            await _run("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
            await _run("ip", "link", "set", outer, "master", self._mark, "up")
            await _run("ip", "-n", space, "addr", "add", f"{self.host(name)}/24", "dev", "eth0")
            await _run("ip", "-n", space, "link", "set", "eth0", "up")
            await _run("ip", "-n", space, "link", "set", "lo", "up")
        first = self._space(self._names[0])
        if self._has_nft:
            self.links = (*self.links, "loss")
        netem = ("tc", "-n", first, "qdisc", "add", "dev", "eth0", "root", "netem", "delay", "1ms")
        if shutil.which("tc") and not await _run(*netem, check=False):
            await _run("tc", "-n", first, "qdisc", "del", "dev", "eth0", "root")
            self.links = (*self.links, "delay")

    async def _claim(self) -> None:
        """Find a subnet that nobody else here has, neither another run nor the remains of a killed one: the bridge's
        name contains it, and the kernel merges two bridges with one name."""
        for subnet in subnets():
            bridge = f"ih{subnet}"
            try:
                await _run("ip", "link", "add", bridge, "type", "bridge")
            except OSError:
                if bridge not in (name for _, name in socket.if_nameindex()):
                    raise
            else:
                self.subnet = subnet
                return
        raise OSError("all subnets are taken: `ip link del` the bridges of runs that were killed, ih0, ih1, ...")

    async def _tear_down(self) -> None:
        if self.subnet is None:
            return
        for name in self._names:
            await _run("ip", "netns", "del", self._space(name), check=False)
            await _run("ip", "link", "del", f"{self._mark}{name}", check=False)
        await _run("ip", "link", "del", self._mark, check=False)

    @property
    def _mark(self) -> str:
        """Return the bridge's name, the prefix of all other names."""
        return f"ih{self.subnet}"

    def _space(self, name: str) -> str:
        return f"{self._mark}-{name}"

    def host(self, name: str) -> str:
        return f"198.18.{self.subnet}.{self._names.index(name) + 1}"

    def through(self, name: str) -> Sequence[str]:
        return ("ip", "netns", "exec", self._space(name))

    def options(self, name: str) -> Sequence[str]:
        return ("--host", self.host(name), "--insecure", "--internal-address", f"{self.host(name)}:{INSIDE_PORT}")

    def advertised(self, name: str, url: str) -> str:
        return url

    def inside(self, name: str, url: str) -> str:
        return f"ws://{self.host(name)}:{INSIDE_PORT}"

    async def cut(self, pair: Pair, on: bool) -> None:
        if on:
            self._cut.add(pair)
        else:
            self._cut.discard(pair)
        if self._has_nft:
            await self._filter(pair[0])
            return
        # Frames to nobody: the other end ignores them.
        neighbour = (self.host(pair[1]), "dev", "eth0")
        space = self._space(pair[0])
        if on:
            await _run("ip", "-n", space, "neigh", "replace", *neighbour, "lladdr", "02:00:00:00:00:fe")
        else:
            await _run("ip", "-n", space, "neigh", "del", *neighbour)

    async def lose(self, pair: Pair, chance: float | None) -> None:
        if chance is None:
            self._lost.pop(pair, None)
        else:
            self._lost[pair] = round(LOSS_PERCENT_MIN + chance * (LOSS_PERCENT_MAX - LOSS_PERCENT_MIN))
        await self._filter(pair[0])

    async def slow(self, pair: Pair, chance: float | None) -> None:
        """With netem everything that leaves the first of the pair is late, also to its clients."""
        space = self._space(pair[0])
        if chance is None:
            self._delayed.pop(pair, None)
        else:
            self._delayed[pair] = round(1000 * (DELAY_S_MIN + chance * (DELAY_S_MAX - DELAY_S_MIN)))
        await _run("tc", "-n", space, "qdisc", "del", "dev", "eth0", "root", check=False)
        mine = [delay for (source, _), delay in self._delayed.items() if source == pair[0]]
        if mine:
            await _run("tc", "-n", space, "qdisc", "add", "dev", "eth0", "root", "netem", "delay", f"{max(mine)}ms")

    async def _filter(self, source: str) -> None:
        """Set all rules of one endpoint's namespace at once."""
        rules = [f"ip daddr {self.host(target)} drop" for name, target in sorted(self._cut) if name == source]
        rules += [
            f"ip daddr {self.host(target)} numgen random mod 100 < {percent} drop"
            for (name, target), percent in sorted(self._lost.items())
            if name == source
        ]
        table = "add table inet faults\ndelete table inet faults\n"
        if rules:
            table += "table inet faults {\n chain out {\n  type filter hook output priority 0;\n  "
            table += "\n  ".join(rules) + "\n }\n}\n"
        await _run("ip", "netns", "exec", self._space(source), "nft", "-f", "-", given=table)


async def _run(*command: str, check: bool = True, given: str | None = None) -> int:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE if given is not None else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(COMMAND_S):
        _, said = await process.communicate(given.encode() if given is not None else None)
    if check and process.returncode:
        raise OSError(f"{' '.join(command)}: {said.decode(errors='replace').strip()}")
    return process.returncode or 0


async def permitted() -> str:
    """Return an empty text if namespaces work here; else why not."""
    if shutil.which("ip") is None:
        return "there is no `ip` (iproute2)"
    try:
        async with Namespaces(["t"]) as wires:
            await wires.cut(("t", "t"), True)
            await wires.cut(("t", "t"), False)
    except (OSError, TimeoutError) as error:
        return str(error)
    return ""


async def wires_of(network: str, names: Sequence[str]) -> Any:
    """Return ``namespaces``, ``proxy``, or a permitted one (``any``). Raises ``OSError`` if it is not permitted."""
    if network == "proxy":
        return Proxies(names)
    reason = await permitted()
    if not reason:
        return Namespaces(names)
    if network == "any":
        return Proxies(names)
    raise OSError(f"network namespaces cannot be made here: {reason}")
