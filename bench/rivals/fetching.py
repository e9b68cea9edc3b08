"""The build tool of another system (Maven, Go), run to its end; our cache gets what it fetches or builds.

Owns: its time-out, and the error when it fails. Must never: know what it fetches.
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
    """Run the tool, which has to leave ``target`` behind; its output goes to ``log``. ``RivalError`` begins with
    ``what``, and names what the tool ``needs`` and the end of the log."""
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
