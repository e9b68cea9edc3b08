"""A member program for tests: ``member.py KIND --name NAME``. It does not know the project.

Owns: three behaviours. Must never: import anything outside the standard library; it must start quickly.

``patient``: it ends at SIGTERM. ``stubborn``: it does not. ``failing``: it ends at once, with exit code 3, unless a
file ``mended`` exists next to the program. At SIGUSR1 it writes a line.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Print ``up`` and the name, then wait."""
    kind = sys.argv[1]
    if kind == "failing" and not os.path.exists(os.path.join(os.path.dirname(__file__), "mended")):
        print("there is no topic orders", file=sys.stderr, flush=True)
        sys.exit(3)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if kind == "stubborn" else lambda *_: sys.exit(0))
    signal.signal(signal.SIGUSR1, lambda *_: print("once more", flush=True))
    print("up", *sys.argv[1:], os.getsid(0) == os.getpid(), sys.stdin.read() == "", flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
