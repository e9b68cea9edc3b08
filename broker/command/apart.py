"""Runs a command that reads an embedded store in a child process, because a damaged store can kill its reader.

Owns: the child process, and the error message if a damaged store kills it. Must never: access the store.

LMDB has no checksums. If a page is damaged, LMDB calls ``abort``, or reads an invalid address. Both end
the reading process. So the command runs in a child process, and the parent reports how the child died.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from ingeborg import streams

from ..shell.machine import die_with_parent
from ..store.embedded.files import RESTORE
from ..store.embedded.writer_link import DAMAGE_SIGNALS

#: Signals that the parent waits for: SIGCHLD at the child's end, and the signals that stop a command.
_AWAITED = frozenset((signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP))

FAILED = 1


def run(command: str, directory: Path, work: Callable[[], int]) -> int:
    """Do the work in a child process, and wait until the child has ended.

    Args:
        command: The name of the command, for the message.
        directory: The directory of the store that the work reads.
        work: The function that does the work. It returns the exit code.

    Returns:
        The child's exit code, or 1 if a damaged store killed the child. If any other signal killed the child, this
        function kills this process with the same signal.
    """
    if not hasattr(signal, "sigwaitinfo"):  # such a system cannot report how the child died, so start no child
        return work()
    sys.stdout.flush()
    sys.stderr.flush()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    parent = os.getpid()
    child = os.fork()
    if not child:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _work(parent, work)
    try:
        status = _wait(child)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    if -code not in DAMAGE_SIGNALS:
        if -code != signal.SIGKILL:  # the handler of SIGKILL cannot be set
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    print(
        f"ingeborg {command}: the store in {directory} is damaged, or its disk fails: the process that read it died of "
        f"{signal.Signals(-code).name}\ningeborg {command}: the command did not finish. "
        f"`ingeborg doctor --store lmdb:{directory}` names the damaged file; stop every endpoint of the store, "
        f"and {RESTORE}",
        file=sys.stderr,
    )
    return FAILED


def _work(parent: int, work: Callable[[], int]) -> None:
    """Do the work and exit. This function never returns, because only the parent returns to the caller of ``run``."""
    code = FAILED
    try:
        die_with_parent(parent)
        code = streams.run("ingeborg", work)
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def _wait(child: int) -> int:
    """Wait until the child has ended, and return its wait status.

    The terminal sends its signals to the child as well. If a process sends a signal to this parent alone, this function
    forwards the signal to the child.
    """
    while True:
        came = signal.sigwaitinfo(_AWAITED)
        if came.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
        elif came.si_code <= 0:  # sent by a process, as with kill(2), not by the kernel
            os.kill(child, came.si_signo)
