"""The commands `ingeborg`, `loadgen` and `bench`, as an installed package starts them.

Owns: the error line and exit code 2 of a command whose extra is not installed. Must never: import a program before a
user starts it, or take a mistake of ours for a missing package. A command may import further modules while it runs.
"""

from __future__ import annotations

import sys
from importlib import import_module

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
    except KeyboardInterrupt:  # during loading: a running program ends in its own way
        print(f"{command}: interrupted", file=sys.stderr)
        return 130


def _load_and_run(command: str, module: str, extra: str) -> int:
    try:
        return int(import_module(module).main())
    except ModuleNotFoundError as error:
        missing = error.name or str(error)
        # The image of an endpoint has no `loadgen`. If another module of ours is missing, that is our mistake.
        if missing.startswith("ingeborg.") and not module.startswith(f"{missing}."):
            raise
        print(f"{command}: {missing} is not installed: pip install 'ingeborg[{extra}]'", file=sys.stderr)
        return 2
