"""Starting a process of ours beside this one: the same Python, the same packages, a socket as its standard input.

Owns: how it is started. Must never: look after it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

#: The folder from which this module, and so any of ours, can be imported by the name that it has here.
_ROOT = str(Path(__file__).parents[__name__.count(".")])


def spawn(
    module: str, stdin: socket.socket, *arguments: str, descriptors: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    """``python -m module arguments…``. A session of its own, so that a terminal's Ctrl-C is for this process alone,
    which may need it to the end. Its standard error is this one's. Takes some 1 ms. ``descriptors``: it has these,
    too."""
    path = os.pathsep.join(part for part in (_ROOT, os.environ.get("PYTHONPATH")) if part)
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=stdin.fileno(),
        pass_fds=descriptors,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": path},
        start_new_session=True,
    )
