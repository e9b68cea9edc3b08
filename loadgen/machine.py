"""What this machine is, and what it and this process have used so far. Thesis 6.1.2.

Owns: the reading of it, by psutil. Must never: decide when.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

#: cpu_s, rss_bytes, net_rx_bytes, net_tx_bytes, disk_read_bytes, disk_write_bytes
Levels = tuple[float, int, int | None, int | None, int | None, int | None]

_GENERATOR = psutil.Process()
_IDLE = ("idle", "iowait", "guest", "guest_nice")  # guest time is in user time already


def facts() -> dict[str, object]:
    """`machine` of run.json."""
    return {
        "cores": psutil.cpu_count() or 1,
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": f"{platform.system()} {platform.release()}",
        "cpu": _cpu_name(),
    }


def software(packages: Iterable[str]) -> dict[str, str]:
    """`software` of run.json: the version of Python and of each package."""
    versions = {"python": sys.version.split()[0]}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def generator() -> Levels:
    """This process. Its network traffic is not told apart by the system; its disk traffic only by some."""
    with _GENERATOR.oneshot():
        times = _GENERATOR.cpu_times()
        memory = _GENERATOR.memory_info()
    disk = _GENERATOR.io_counters() if hasattr(_GENERATOR, "io_counters") else None
    read, written = (disk.read_bytes, disk.write_bytes) if disk else (None, None)
    return times.user + times.system, memory.rss, None, None, read, written


def host() -> Levels:
    """All of the machine; rss: memory that is not available to a new process."""
    times = psutil.cpu_times()._asdict()
    memory = psutil.virtual_memory()
    net = psutil.net_io_counters()
    disk = psutil.disk_io_counters()
    return (
        round(sum(seconds for kind, seconds in times.items() if kind not in _IDLE), 3),
        memory.total - memory.available,
        net.bytes_recv if net else None,
        net.bytes_sent if net else None,
        disk.read_bytes if disk else None,
        disk.write_bytes if disk else None,
    )


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")  # Linux; elsewhere `platform` knows at least the family
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
