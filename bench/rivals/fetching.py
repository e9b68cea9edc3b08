"""Runs the build tool of another system (Maven or Go), which fetches or builds programs for our cache.

Owns: the tool's time-out, and the error if it fails. Must never: depend on which program the tool fetches.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ingeborg.bench.rivals.errors import RivalError
from ingeborg.bench.starting.child import tail


def run(
    command: Sequence[str],
    target: Path,
    log: Path,
    *,
    what: str,
    needs: str,
    timeout_s: float,
    environment: Mapping[str, str],
    folder: Path | None = None,
) -> None:
    """Run the tool, which has to create ``target`` and writes its output to ``log``. Raises ``RivalError`` if the tool
    fails. The error message begins with ``what``, says what the tool ``needs``, and ends with the last lines of the
    log."""
    with log.open("wb") as output:
        try:
            code = subprocess.run(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                timeout=timeout_s,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired as error:
            raise RivalError(f"{what} in {timeout_s:.0f} s{tail(log)}") from error
    if code != 0 or not target.exists():
        raise RivalError(f"{what} (exit code {code}{needs}){tail(log)}")
