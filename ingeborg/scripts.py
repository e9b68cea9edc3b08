"""The entry points of the commands `ingeborg`, `loadgen` and `bench` in an installed package.

Owns: the error line and exit code 2 of a command whose extra is not installed. Must never: import a program before a
user starts it, or report a bug of ours as a missing package. A package can also turn out to be missing while a command
runs, because commands import some modules only then.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from types import ModuleType

from ingeborg import streams


def endpoint() -> int:
    """Run `ingeborg`."""
    return _run("ingeborg", "ingeborg.broker.command.cli", "server")


def loadgen() -> int:
    """Run `loadgen`."""
    return _run("loadgen", "ingeborg.loadgen.cli", "bench")


def bench() -> int:
    """Run `bench`."""
    return _run("bench", "ingeborg.bench.cli", "bench")


def _run(command: str, module: str, extra: str) -> int:
    """Run ``module.main()``. Returns the exit code."""
    try:
        return streams.run(command, lambda: _load_and_run(command, module, extra))
    except KeyboardInterrupt:  # while the program was loading; a running program handles Ctrl-C itself
        print(f"{command}: interrupted", file=sys.stderr)
        return 130


def _load_and_run(command: str, module: str, extra: str) -> int:
    try:
        return int(_loaded(command, module).main())
    except ModuleNotFoundError as error:
        missing = error.name or str(error)
        # The container image of an endpoint lacks `loadgen`, so the program itself can be missing. If any other module
        # of ours is missing, that is a bug.
        if missing.startswith("ingeborg.") and not module.startswith(f"{missing}."):
            raise
        print(f"{command}: {missing} is not installed: pip install 'ingeborg[{extra}]'", file=sys.stderr)
        return 2


def _loaded(command: str, module: str) -> ModuleType:
    """Import the module. During the import, Ctrl-C ends the process immediately. Otherwise, Python might raise a
    KeyboardInterrupt in a callback of the import, print the exception, and continue."""

    def end(*_: object) -> None:
        os.write(2, f"{command}: interrupted\n".encode())
        os._exit(130)

    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # otherwise, a shell runs this in the background and ignores Ctrl-C
        signal.signal(signal.SIGINT, end)
    try:
        return import_module(module)
    finally:
        signal.signal(signal.SIGINT, before)
