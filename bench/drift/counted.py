"""Run an endpoint under callgrind: start the endpoint, set its clock, and begin and end the counting.

Owns: valgrind's command lines. Must never: wait without a time limit, or leave a program running.

Valgrind counts nothing before ``begin``. Until then, the program runs several times faster.
"""

from __future__ import annotations

import asyncio
import functools
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ingeborg.bench.drift import profile
from ingeborg.bench.drift.luck import without_luck
from ingeborg.bench.drift.profile import Profile
from ingeborg.bench.errors import BenchError
from ingeborg.bench.starting import Child, awaited, environment, ready
from ingeborg.form import VARIABLE

#: Time limit of a start, in seconds. Under valgrind and on a busy machine, a start takes half a minute.
READY_S = 300.0
#: Time limit for valgrind to carry out a command, in seconds. Valgrind checks for commands between two system calls.
#: For some commands it writes several megabytes.
CONTROL_S = 60.0
#: Seconds within which the endpoint changes the speed of its clock after a signal.
SIGNAL_S = 0.3
#: The size of LMDB's map. Its usual map of 64 GiB is larger than valgrind allows.
MAP_BYTES = 256 << 20
#: The script that starts the endpoints of both trees.
LAUNCHER = Path(__file__).with_name("fixed.py")


def valgrind() -> list[str]:
    """Return the beginning of a command line that counts a program's instructions. The program has the same memory
    addresses in every run.

    Raises:
        BenchError: valgrind is not installed. The error says how to install it, and what to do without it.
    """
    if shutil.which("valgrind") is None or shutil.which("vgdb") is None:
        raise BenchError(
            "valgrind is not installed, and counting instructions needs it: make test-tools installs it (Debian's "
            "package valgrind). Without it, `bench drift --timing` measures CPU times, on an idle machine"
        )
    return [*_fixed_addresses(), "valgrind", "--tool=callgrind"]


@functools.cache
def _fixed_addresses() -> tuple[str, ...]:
    """Return the beginning of a command line that turns off the kernel's address randomization. It is empty if the
    kernel does not allow this, as in some containers. Even then, valgrind places most of a program at the same
    addresses."""
    command = ("setarch", platform.machine(), "-R")
    try:
        done = subprocess.run([*command, "true"], capture_output=True, timeout=CONTROL_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return command if done.returncode == 0 else ()


def variables(tree: Path) -> dict[str, str]:
    """Return the environment variables for a program of this tree. They select the compiled form and fix the seed of
    all hashes."""
    return environment(
        {
            "PYTHONPATH": str(tree),
            "PYTHONSAFEPATH": "1",  # otherwise the store's writers would import from the current directory
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            VARIABLE: "0",
            "INGEBORG_MAP_SIZE_BYTES": str(MAP_BYTES),
        }
    )


class Counted:
    """An endpoint under callgrind. Call ``start`` first. Always call ``end`` at the end."""

    def __init__(
        self, name: str, tree: Path, folder: Path, options: Sequence[str], settings: Mapping[str, str]
    ) -> None:
        """``name``: the name in error messages. ``tree``: compiled sources. ``folder``: a folder for the endpoint's
        files; the endpoint is named after it. ``options``: options of `ingeborg serve`. ``settings``: more options, as
        environment variables."""
        self.name = name
        self.url = ""
        self._folder = folder
        self._options = options
        self._variables = variables(tree) | dict(settings)
        self._child: Child | None = None
        self._dumps = 0

    async def start(self) -> None:
        """Start the endpoint, and wait until it is ready.

        Raises:
            ChildError: the endpoint was not ready within ``READY_S``, or has ended. The error shows its last lines of
                output.
            BenchError: valgrind is not installed, or the endpoint is not compiled.
        """
        self._folder.mkdir(parents=True)
        command = [
            *valgrind(),
            "--instr-atstart=no",
            f"--callgrind-out-file={self._out}",
            f"--vgdb-prefix={self._folder / 'vgdb'}",
            # -P: Python does not look for modules in the current directory, which may belong to another tree.
            *(sys.executable, "-P", str(LAUNCHER), self._folder.name, "ingeborg.broker.command.cli"),
            *("serve", "--name", self._folder.name, "--port", "0"),
            *self._options,
        ]
        self._child = Child(self.name, command, self._folder / "log", environment=self._variables)
        self.url = (await awaited(ready(self._child, READY_S))).url
        if ", compiled\n" not in self._child.said():
            raise BenchError(f"{self.name} does not say that it is compiled:\n{self._child.said()[-1000:]}")

    @property
    def _out(self) -> Path:
        return self._folder / "callgrind"

    async def clock(self, *, slow: bool) -> None:
        """Set the speed of the endpoint's clock, which is slow while messages are counted (see ``fixed``)."""
        assert self._child is not None, f"{self.name} was not started"
        self._child.signal(signal.SIGUSR1 if slow else signal.SIGUSR2)
        await asyncio.sleep(SIGNAL_S)

    async def begin(self) -> None:
        """Start counting."""
        await self._control("instrumentation", "on")
        await self._control("zero")

    async def stop(self) -> Profile:
        """Stop counting, and return the profile since ``begin``."""
        self._dumps += 1
        await self._control("dump")
        await self._control("instrumentation", "off")
        return await asyncio.to_thread(read, Path(f"{self._out}.{self._dumps}"))

    async def _control(self, *words: str) -> None:
        assert self._child is not None, f"{self.name} was not started"
        command = ["vgdb", f"--pid={self._child.pid}", f"--vgdb-prefix={self._folder / 'vgdb'}", *words]
        await asyncio.to_thread(_controlled, command, self._child)

    async def end(self) -> None:
        """End the endpoint."""
        if self._child is not None:
            await awaited(self._child.end())


def _controlled(command: Sequence[str], child: Child) -> None:
    try:
        done = subprocess.run(command, capture_output=True, timeout=CONTROL_S, check=False, env=dict(os.environ))
    except subprocess.TimeoutExpired:
        raise BenchError(f"valgrind did not carry out {command[-1]!r} within {CONTROL_S:g} s{child.tail()}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise BenchError(f"valgrind did not carry out {command[-1]!r}: {said}{child.tail()}")


def read(path: Path) -> Profile:
    """Read a profile and delete its file. Raises ``BenchError`` if the file is missing or incomplete."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            return without_luck(profile.read(lines))
    except FileNotFoundError:
        raise BenchError(f"callgrind has not written {path}") from None
    finally:
        path.unlink(missing_ok=True)
