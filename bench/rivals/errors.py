"""The errors of `bench rivals` that its user can fix.

Owns: the difference between a server that fails and a server that is not installed. Must never: report a bug of this
project.
"""

from __future__ import annotations

from ingeborg.bench.errors import BenchError


class RivalError(BenchError):
    """Raised if a server did not start, did not answer, or did not stop. The error message says which of these
    happened, and ends with the last lines of the server's log, if any."""


class NotInstalledError(RivalError):
    """Raised if a program is missing. The error message names the command that installs the program."""
