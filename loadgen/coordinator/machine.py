"""The facts about this machine, and the resources that the machine and the processes of a run have used so far. Thesis
6.1.2.

Owns: reading these values with psutil, and finding the servers behind a URL. Must never: decide when to read the
values.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import urlsplit

import psutil

#: cpu_s, rss_bytes, anon_bytes, net_rx_bytes, net_tx_bytes, disk_read_bytes, disk_write_bytes
Levels = tuple[float, int, int | None, int | None, int | None, int | None, int | None]

_IDLE = ("idle", "iowait", "guest", "guest_nice")  # user time already includes guest time
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def facts() -> dict[str, object]:
    """Return the value of `machine` in run.json."""
    return {
        "cores": psutil.cpu_count() or 1,
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": f"{platform.system()} {platform.release()}",
        "cpu": _cpu_name(),
    }


def software(packages: Iterable[str]) -> dict[str, str]:
    """Return the value of `software` in run.json: the version of Python and of each package."""
    versions = {"python": sys.version.split()[0]}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return versions


class Tree:
    """A process with all its descendants. When a descendant has ended and its parent has waited for it, the system adds
    its CPU time to the parent's. So that CPU time still counts."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)

    def levels(self) -> Levels | None:
        """Return the sums over all processes, or ``None`` if the process has ended."""
        try:
            processes = [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return None
        cpu_s, rss, anon, read, written = 0.0, 0, 0, 0, 0
        gone = True
        for process in processes:
            try:
                with process.oneshot():
                    times, memory = process.cpu_times(), process.memory_info()
                    disk = process.io_counters() if hasattr(process, "io_counters") else None
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
            gone = False
            cpu_s += times.user + times.system
            if process is self._root:
                cpu_s += times.children_user + times.children_system
            rss += memory.rss
            anon += memory.rss - getattr(memory, "shared", 0)
            read += disk.read_bytes if disk else 0
            written += disk.write_bytes if disk else 0
        return None if gone else (round(cpu_s, 3), rss, anon, None, None, read, written)


def host() -> Levels:
    """Return the levels of the whole machine. Its rss is the memory that is not available to a new process."""
    times = psutil.cpu_times()._asdict()
    memory = psutil.virtual_memory()
    net = psutil.net_io_counters()
    disk = psutil.disk_io_counters()
    return (
        round(sum(seconds for kind, seconds in times.items() if kind not in _IDLE), 3),
        memory.total - memory.available,
        None,
        getattr(net, "bytes_recv", None),
        getattr(net, "bytes_sent", None),
        disk.read_bytes if disk else None,
        disk.write_bytes if disk else None,
    )


def servers(urls: Sequence[str], port: int) -> dict[str, int]:
    """Find the processes of this machine that listen where the URLs point. Return their pids by ``HOST:PORT``. ``port``
    is the default for URLs without a port. If several processes share a socket, return their parent, provided that the
    parent also listens. Processes on other machines or of other users are not found."""
    wanted = {}
    for url in urls:
        parts = urlsplit(url)
        if parts.hostname in _LOOPBACK:
            wanted[parts.port or port] = f"{parts.hostname}:{parts.port or port}"
    found = {}
    try:
        listening = [each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    except psutil.AccessDenied:  # macOS requires root here
        return {}
    for each in listening:
        if each.laddr and each.laddr.port in wanted and each.pid is not None:
            found[wanted[each.laddr.port]] = _eldest(each.pid, each.laddr.port)
    return found


def _eldest(pid: int, port: int) -> int:
    """Return the farthest ancestor of the process that listens on the port, if all processes in between listen too. If
    no ancestor listens, return the process."""
    try:
        parent = psutil.Process(pid).parent()
        while parent is not None and any(
            each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in parent.net_connections("tcp")
        ):
            pid, parent = parent.pid, parent.parent()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        pass
    return pid


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")  # only on Linux; elsewhere, `platform` knows the family
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
