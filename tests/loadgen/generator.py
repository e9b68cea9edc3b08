"""`loadgen` as a separate process, for tests that disturb its server meanwhile.

Owns: that process, and its output so far. Must never: outlive its test.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path


class Generator:
    """`loadgen` as a person starts it, and its output so far."""

    def __init__(self, url: str, out: Path, *arguments: str) -> None:
        self._command = [sys.executable, "-m", "ingeborg.loadgen.cli", *arguments, "--url", url, "--out", str(out)]
        self.out = out
        self.said = ""

    async def __aenter__(self) -> Generator:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*self._command, stdout=pipe, stderr=pipe)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def says(self, pattern: str) -> str:
        """Return the next line of standard output with this pattern."""
        assert self._process.stdout is not None
        async with asyncio.timeout(60):
            while line := (await self._process.stdout.readline()).decode():
                self.said += line
                if re.search(pattern, line):
                    return line
        raise AssertionError(f"it ended without {pattern!r}; it said:\n{self.said}")

    async def ended(self) -> tuple[int, str]:
        """Wait for its end; return its exit code and the last line of standard error."""
        async with asyncio.timeout(90):
            said, complained = await self._process.communicate()
        self.said += said.decode()
        assert self._process.returncode is not None
        return self._process.returncode, (complained.decode().splitlines() or [""])[-1]

    @property
    def facts(self) -> dict[str, object]:
        (file,) = self.out.glob("**/run.json")
        return json.loads(file.read_text())  # type: ignore[no-any-return]
