"""Starts a process of this program: the same Python, the same packages, and a socket as its standard input.

Owns: how the process starts. Must never: supervise it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

#: The folder from which our modules can be imported by the names that they have here.
_ROOT = str(Path(__file__).parents[__name__.count(".")])


def spawn(
    module: str, stdin: socket.socket, *arguments: str, descriptors: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    """Run ``python -m module arguments…`` with the open ``descriptors``. Takes about 1 ms.

    The process gets its own session, because it may have to run until the end: a terminal's Ctrl-C then reaches only
    this process. It shares this process's standard error.
    """
    path = os.pathsep.join(part for part in (_ROOT, os.environ.get("PYTHONPATH")) if part)
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=stdin.fileno(),
        pass_fds=descriptors,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": path},
        start_new_session=True,
    )
