"""Files that are read again when they change: keys, certificates.

Owns: when to look, and what counts as a change. Must never: read what is in them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


class WatchedFiles:
    """Looked at ``every_s`` seconds at most. Make it before the files are read, so that no change is missed."""

    def __init__(self, paths: Sequence[Path], every_s: float) -> None:
        self._paths = paths
        self._every_s = every_s
        self._stamps = [_stamp(path) for path in paths]
        self._look_at = float("-inf")

    def changed(self, now: float) -> bool:
        """Has one of them since it was last asked about? Going away is a change, too. ``now``: monotonic seconds."""
        if now < self._look_at:
            return False
        self._look_at = now + self._every_s
        before, self._stamps = self._stamps, [_stamp(path) for path in self._paths]
        return self._stamps != before

    def again(self) -> None:
        """What has changed could not be read: it counts as changed at the next look, too."""
        self._stamps = []


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None  # whoever reads it will say why
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
