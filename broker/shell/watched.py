"""Watches files that have to be read again when they change, such as keys and certificates.

Owns: when to check the files, and what counts as a change. Must never: read their content.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


class WatchedFiles:
    """Checks files at most once every ``every_s`` seconds. Create this object before you read the files, so that it
    misses no change."""

    def __init__(self, paths: Sequence[Path], every_s: float) -> None:
        self._paths = paths
        self._every_s = every_s
        self._stamps = [_stamp(path) for path in paths]
        self._look_at = float("-inf")

    def changed(self, now: float) -> bool:
        """Return whether a file has changed since the last call. The removal of a file is a change. ``now`` is in
        monotonic seconds."""
        if now < self._look_at:
            return False
        self._look_at = now + self._every_s
        before, self._stamps = self._stamps, [_stamp(path) for path in self._paths]
        return self._stamps != before

    def again(self) -> None:
        """Report the change again at the next check, since the changed file could not be read."""
        self._stamps = []


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None  # the code that reads the file reports the reason
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
