"""Measure the memory that an idle client needs in an endpoint and in the kernel. Linux only.

    python -m ingeborg.bench.budgets.idle [--clients 20000] [--hold-s 30]

Processes open bare connections, one for each client. A client listens, has no subscriptions, and gets nothing except
pings. There are enough endpoints for all connections, and they share one embedded store. Endpoints are measured when
the first clients are connected, and again when all clients have been connected for ``--hold-s`` seconds, so that each
client has got a ping. The program takes about a minute. No other program on the machine may open or close connections
in that time, because the kernel reports its own memory only as a sum for all programs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import resource
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
import uvloop

from ingeborg.bench.errors import BenchError

from .clients import OTHER_FILES, ClientProcess, all_told, allow_files, shares, started_clients
from .light import started
from .model import Check, measured, show

#: The figure's goal, in bytes (a kB has 1,000).
GOAL_BYTES = 16_000
#: Maximum number of clients of an endpoint, within a limit of 20,000 open files.
_PER_ENDPOINT = 10_000
#: Number of clients that each process connects before the first measurement. The first connections also take memory
#: that a process needs only once.
_WARM_UP = 200
#: With this number of clients or more, the other memory use of the machine is small in comparison.
_CLIENTS_MIN = 500
#: An endpoint pings a silent connection every 25 s.
_HOLD_S = 30.0
_SLABINFO = Path("/proc/slabinfo")
_CONNECT_S_MAX = 180.0


class Levels(NamedTuple):
    """Memory at one moment, in bytes. ``anon`` and ``pss`` are sums over all endpoints: ``anon`` is their private
    memory, and ``pss`` also includes their part of shared memory (the store's map). ``objects`` and ``buffers`` are the
    kernel's memory for files and sockets, and for data in sockets. ``sockets`` is the number of TCP sockets of this
    machine."""

    anon: int
    pss: int
    objects: int
    buffers: int
    sockets: int


def kilobytes(text: str, name: str) -> int:
    """Return the bytes in a line such as ``RssAnon:   1234 kB``, of /proc/PID/status, smaps_rollup or meminfo."""
    match = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
    if match is None:
        raise BenchError(f"this kernel does not report {name}")
    return int(match[1]) * 1024


def tcp(text: str) -> tuple[int, int]:
    """Return the number of TCP sockets, and of the memory pages for their data, from /proc/net/sockstat."""
    match = re.search(r"^TCP: inuse (\d+) .*mem (\d+)$", text, re.MULTILINE)
    if match is None:
        raise BenchError("this kernel does not report the memory of TCP sockets")
    return int(match[1]), int(match[2])


def objects_in_use(text: str) -> int:
    """Return the bytes of objects in use, from /proc/slabinfo. That file begins with two header lines. The columns of
    the other lines are a name, the number of objects in use, the number of allocated objects, and the bytes of one
    object."""
    rows = [line.split() for line in text.splitlines()[2:]]
    return sum(int(row[1]) * int(row[3]) for row in rows)


def _kernel_objects() -> int:
    """Return the bytes of kernel objects. The value is exact for root. Other users only get the kernel's figure for the
    pages that hold the objects."""
    if os.access(_SLABINFO, os.R_OK):
        return objects_in_use(_SLABINFO.read_text())
    return kilobytes(Path("/proc/meminfo").read_text(), "Slab")


def levels(endpoints: Sequence[psutil.Process]) -> Levels:
    """Read the present levels."""
    folders = [Path("/proc", str(endpoint.pid)) for endpoint in endpoints]
    try:
        sockets, pages = tcp(Path("/proc/net/sockstat").read_text())
        return Levels(
            anon=sum(kilobytes((folder / "status").read_text(), "RssAnon") for folder in folders),
            pss=sum(kilobytes((folder / "smaps_rollup").read_text(), "Pss") for folder in folders),
            objects=_kernel_objects(),
            buffers=pages * resource.getpagesize(),
            sockets=sockets,
        )
    except OSError as error:
        raise BenchError(f"{error.filename}: {error.strerror}") from None


class Found(NamedTuple):
    """The result. ``clients`` is the number of clients that connected between the two measurements, and ``lost`` the
    number of connections that were gone at the end."""

    clients: int
    before: Levels
    after: Levels
    lost: int


async def measure(clients: int, hold_s: float, kind: str = "websocket") -> Found:
    """Connect the clients, and measure before and after. ``kind`` is one of ``idle_clients.KINDS``. Raises
    ``BenchError``."""
    endpoints = -(-clients // _PER_ENDPOINT)
    allow_files(min(clients, _PER_ENDPOINT) + OTHER_FILES)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        serve = ("serve", "--port", "0", "--store", f"lmdb:{folder}/store")
        servers = [stack.enter_context(started("ingeborg.broker.command.cli", *serve)) for _ in range(endpoints)]
        assignments = [
            {"urls": [url for url, _ in servers], "numbers": share, "kind": kind} for share in shares(clients)
        ]
        async with started_clients("ingeborg.bench.budgets.idle_clients", assignments) as processes:
            first = await _connected(processes, {"connect": _WARM_UP})
            before = levels([endpoint for _, endpoint in servers])
            connected = await _connected(processes, {"connect": clients})
            await asyncio.sleep(hold_s)
            after = levels([endpoint for _, endpoint in servers])
            left = await _connected(processes, {})
    return Found(connected - first, before, after, connected - left)


async def _connected(processes: Sequence[ClientProcess], command: dict[str, int]) -> int:
    for process in processes:
        process.tell(command)
    return sum(answer["connected"] for answer in await all_told(processes, _CONNECT_S_MAX))


class PerClient(NamedTuple):
    """Bytes for each client, as in ``Levels``. The kernel's memory counts only the endpoint's end of the connection."""

    anon: float
    pss: float
    objects: float
    buffers: float


def per_client(found: Found) -> PerClient:
    """Return the growth for each client. Both ends of a connection are on this machine. In the kernel, each end needs
    one socket, one file and one entry of epoll. So the memory for one end is the growth of the kernel's memory, divided
    by the number of new sockets. There are two new sockets for each client, plus those that other programs have opened
    meanwhile. Raises ``BenchError`` if there are fewer new sockets than clients, because other programs have closed
    sockets."""
    anon, pss, objects, buffers, sockets = (
        after - before for before, after in zip(found.before, found.after, strict=True)
    )
    if sockets < found.clients:
        raise BenchError("other programs closed their connections meanwhile: run this without other programs")
    return PerClient(anon / found.clients, pss / found.clients, objects / sockets, buffers / sockets)


def checks(found: Found) -> list[Check]:
    """Compare the memory per client with its goal, and check that all clients were still connected."""
    each = per_client(found)
    return [
        Check(
            "memory of an endpoint per idle client",
            f"at most {GOAL_BYTES / 1000:g} kB",
            f"{each.anon / 1000:.1f} kB (PSS {each.pss / 1000:.1f} kB); "
            f"{(each.objects + each.buffers) / 1000:.1f} kB more in the kernel",
            each.anon <= GOAL_BYTES,
        ),
        Check("connections of idle clients that were lost", "none", f"{found.lost:,}", found.lost == 0),
    ]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, default=20_000)
    parser.add_argument("--hold-s", type=float, default=_HOLD_S)
    options = parser.parse_args()
    if options.clients < _CLIENTS_MIN:
        parser.error(f"at least {_CLIENTS_MIN} clients")
    print(measured(), flush=True)
    try:
        found = uvloop.run(measure(options.clients, options.hold_s))
        each = per_client(found)
    except BenchError as error:
        parser.exit(1, f"{error}\n")
    print(
        f"memory of the kernel per connection, at the endpoint's end: {(each.objects + each.buffers) / 1000:.1f} kB "
        f"(objects {each.objects / 1000:.1f} kB, data in sockets {each.buffers / 1000:.1f} kB)"
    )
    if not os.access(_SLABINFO, os.R_OK):
        print(
            "(Only root may read the exact size of objects, so this counts whole pages. It is too low if earlier "
            "connections left free room in pages.)"
        )
    show(checks(found))


if __name__ == "__main__":
    main()
