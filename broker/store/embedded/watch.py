"""Finds out why a writer confirms nothing. The reason can be the writer itself, another writer that holds the write
lock, or the disk.

Owns: the check of a process's state, the two log lines about a stalled disk, and the count of stalls. Must never:
decide whether a writer is replaced, or send a signal to a writer.
"""

from __future__ import annotations

import logging
from pathlib import Path

from ingeborg.broker.store.embedded.layout import Lane, lock_holder

log = logging.getLogger("ingeborg.store")


def waits_for_disk(pid: int) -> bool:
    """Return whether the process waits in the kernel for a read, a write or a flush.

    Such a process is in uninterruptible sleep, which is state D in proc(5). A stopped process is in state T. A process
    that hangs or waits for LMDB's lock is in state S or R.

    Args:
        pid: The process. It must have only one thread, as writers do, so that its state is that of the thread.

    Returns:
        Whether the process waits; also False if the system has no /proc, or the process is gone.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(") ")[2].startswith("D")


class Watch:
    """Watches one lane and all its successive writers."""

    def __init__(self, directory: Path, lane: Lane) -> None:
        self._directory, self._lane = directory, lane
        self._pid: int | None = None
        self.stalls = 0  # number of disk stalls longer than the time-out, for the metrics

    def of(self, pid: int) -> None:
        """Watch this writer from now on."""
        self._pid = pid

    def waiter(self) -> int | None:
        """Return the process that waits for the disk: either the lane's writer, or the process whose write lock this
        writer waits for. Return ``None`` if neither waits for the disk."""
        if self._pid is not None and waits_for_disk(self._pid):
            return self._pid
        holder = lock_holder(self._directory, self._lane)
        return holder if holder is not None and waits_for_disk(holder) else None

    def suspect(self) -> str:
        """Return the part of a message that names the likely cause, if the disk is not the cause."""
        holder = lock_holder(self._directory, self._lane)
        if holder is None or holder == self._pid:
            return f"the writer was stopped, or hangs; the endpoint replaces process {self._pid}"
        return f"process {holder} has the write lock: if it is stopped, continue it (kill -CONT) or kill it"

    def stalled(self, waiter: int, for_s: float, *, is_first: bool) -> str:
        """Log and count a stall.

        Args:
            waiter: The process that waits for the disk.
            for_s: For how many seconds the writer has confirmed nothing.
            is_first: Whether the stall is new. Later calls for the same stall return the reason but do not log it
                again.

        Returns:
            The reason for the operations that fail because of the stall.
        """
        why = f"the disk has not finished a flush for {for_s:.0f} s"
        if is_first:
            self.stalls += 1
            text = "%s: %s (process %d waits for it): no write is confirmed until the disk has finished"
            log.warning(text, self._directory / self._lane, why, waiter)
        return why

    def over(self, after_s: float) -> None:
        """Log that the disk works again, and how long the stall lasted."""
        log.warning("%s: the disk works again, after %.1f s; writes continue", self._directory / self._lane, after_s)
