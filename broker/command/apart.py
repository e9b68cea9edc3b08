"""Runs a command that reads an embedded store in a process of its own, since damage can kill the reader.

Owns: the child, and the message if it dies of damage. Must never: look into the store.

LMDB has no checksums. If a page is damaged, LMDB calls ``abort``, or reads an invalid address. No reader can catch
that. So the command runs in a child, and the parent reports what happened.
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

#: Signals that the parent waits for: the child's end, and those that end a command.
_AWAITED = frozenset((signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP))

FAILED = 1


def run(command: str, directory: Path, work: Callable[[], int]) -> int:
    """Do the work in a child of this process, which waits for it.

    Args:
        command: The name of the command, for the message.
        directory: The directory of the store that the work reads.
        work: The work, whose result is the exit code.

    Returns:
        The child's exit code, or 1 if it died of damage. If another signal ended the child, the same signal ends this
        process.
    """
    if not hasattr(signal, "sigwaitinfo"):  # on this system damage ends the command without a message
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
        if -code != signal.SIGKILL:  # its default handler cannot be changed
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
    """Do the work and exit. This never returns: only the parent returns to the caller of ``run``."""
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

    The terminal sends its signals to the child as well. A signal that was sent to this process alone is passed on.
    """
    while True:
        came = signal.sigwaitinfo(_AWAITED)
        if came.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
        elif came.si_code <= 0:  # sent by a process, as with kill(2), not by the kernel
            os.kill(child, came.si_signo)
