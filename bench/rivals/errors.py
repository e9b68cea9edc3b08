"""The errors of `bench rivals` that its user can mend.

Owns: the difference between a server that fails and a missing one. Must never: carry a bug of ours.
"""

from __future__ import annotations

from ingeborg.bench.errors import BenchError


class RivalError(BenchError):
    """A server did not start, did not answer, or did not stop; the text says which, and ends with its last log lines,
    if any."""


class NotInstalledError(RivalError):
    """A program is missing; the text names the command that installs it."""
