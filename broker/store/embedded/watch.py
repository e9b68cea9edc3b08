"""What keeps a writer from confirming anything: itself, another writer that has the write lock, or the disk.

Owns: the look at a process's state, the two lines that the log has of a stall of the disk, and their count. Must never:
decide what becomes of a writer, or signal one.
"""

from __future__ import annotations

import logging
from pathlib import Path

from ingeborg.broker.store.embedded.layout import Lane, lock_holder

log = logging.getLogger("ingeborg.store")


def waits_for_disk(pid: int) -> bool:
    """Tell whether the kernel has the process wait for a read or a write, a flush included.

    Such a process is in uninterruptible sleep, state D of proc(5). One that was stopped is in state T, and one that
    hangs, or waits for LMDB's lock, in S or R.

    Args:
        pid: The process. The writers have one thread each, so its state is theirs.

    Returns:
        False also where the system does not say (there is no /proc), or the process is gone.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(") ")[2].startswith("D")


class Watch:
    """One lane's, over the lives of all its writers."""

    def __init__(self, directory: Path, lane: Lane) -> None:
        self._directory, self._lane = directory, lane
        self._pid: int | None = None
        self.stalls = 0  # of the disk, that lasted longer than the time-out; for the metrics

    def of(self, pid: int) -> None:
        """Watch this writer from now on."""
        self._pid = pid

    def waiter(self) -> int | None:
        """Return the process that waits for the disk: our writer, or the one that has the write lock and so keeps ours
        waiting. ``None``: neither does."""
        if self._pid is not None and waits_for_disk(self._pid):
            return self._pid
        holder = lock_holder(self._directory, self._lane)
        return holder if holder is not None and waits_for_disk(holder) else None

    def suspect(self) -> str:
        """Say, in a message, who may be in the way where it is not the disk."""
        holder = lock_holder(self._directory, self._lane)
        if holder is None or holder == self._pid:
            return f"it was stopped, or hangs; process {self._pid} is replaced"
        return f"process {holder} has the write lock: if it is stopped, continue it (kill -CONT) or kill it"

    def stalled(self, waiter: int, for_s: float, *, is_first: bool) -> str:
        """Log and count a stall when it is noticed.

        Args:
            waiter: The process that waits for the disk.
            for_s: How long the writer has confirmed nothing.
            is_first: Whether it is noticed only now. Later it is described, and not logged again.

        Returns:
            The reason that is given to operations that end for it.
        """
        why = f"the disk has not finished a flush for {for_s:.0f} s"
        if is_first:
            self.stalls += 1
            text = "%s: %s (process %d waits for it): until it does no write is confirmed"
            log.warning(text, self._directory / self._lane, why, waiter)
        return why

    def over(self, after_s: float) -> None:
        """Log that the disk goes on, and how long it took."""
        log.warning("%s: the disk goes on, after %.1f s; so do writes", self._directory / self._lane, after_s)
