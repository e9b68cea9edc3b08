"""Finds out why a writer confirms nothing: the writer itself, another writer that has the write lock, or the disk.

Owns: the check of a process's state, the two log lines about a stalled disk, and the count of stalls. Must never:
decide the fate of a writer, or signal one.
"""

from __future__ import annotations

import logging
from pathlib import Path

from ingeborg.broker.store.embedded.layout import Lane, lock_holder

log = logging.getLogger("ingeborg.store")


def waits_for_disk(pid: int) -> bool:
    """Tell whether the kernel has the process wait for a read or a write, a flush included.

    Such a process is in uninterruptible sleep, state D of proc(5). A stopped process is in state T. One that hangs, or
    waits for LMDB's lock, is in S or R.

    Args:
        pid: The process. The writers have one thread each, so its state is theirs.

    Returns:
        Also False if the system does not say (it has no /proc), or the process is gone.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(") ")[2].startswith("D")


class Watch:
    """The watch over one lane, for all its successive writers."""

    def __init__(self, directory: Path, lane: Lane) -> None:
        self._directory, self._lane = directory, lane
        self._pid: int | None = None
        self.stalls = 0  # disk stalls longer than the time-out; for the metrics

    def of(self, pid: int) -> None:
        """Watch this writer from now on."""
        self._pid = pid

    def waiter(self) -> int | None:
        """Return the process that waits for the disk: our writer, or the process whose write lock ours waits for.
        ``None``: neither waits for the disk."""
        if self._pid is not None and waits_for_disk(self._pid):
            return self._pid
        holder = lock_holder(self._directory, self._lane)
        return holder if holder is not None and waits_for_disk(holder) else None

    def suspect(self) -> str:
        """Return the part of a message that names the likely culprit when it is not the disk."""
        holder = lock_holder(self._directory, self._lane)
        if holder is None or holder == self._pid:
            return f"it was stopped, or hangs; the endpoint replaces process {self._pid}"
        return f"process {holder} has the write lock: if it is stopped, continue it (kill -CONT) or kill it"

    def stalled(self, waiter: int, for_s: float, *, is_first: bool) -> str:
        """Log and count a stall.

        Args:
            waiter: The process that waits for the disk.
            for_s: How long the writer has confirmed nothing.
            is_first: Whether the stall is new. Later calls only describe it and do not log it again.

        Returns:
            The reason for the operations that fail because of the stall.
        """
        why = f"the disk has not finished a flush for {for_s:.0f} s"
        if is_first:
            self.stalls += 1
            text = "%s: %s (process %d waits for it): no write is confirmed until it does"
            log.warning(text, self._directory / self._lane, why, waiter)
        return why

    def over(self, after_s: float) -> None:
        """Log that the disk works again, and how long the stall took."""
        log.warning("%s: the disk works again, after %.1f s; writes continue", self._directory / self._lane, after_s)
