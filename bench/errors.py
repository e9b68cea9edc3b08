"""The errors of this package that its user sees.

Owns: the difference between an error in the user's log, machine or arguments (`BenchError`) and a bug of this project
(any other exception). A `BenchError` prints one message and never a stack trace. The exit code is 2 for wrong arguments
or a missing extra, and 1 for other errors.
"""

from __future__ import annotations


class BenchError(Exception):
    """An error that the user can fix. The message names the file (and line) or the setting, and what to do."""


class UsageError(BenchError):
    """An option has an invalid value."""


class ExtraMissing(UsageError):
    """A library from an optional extra of the package is not installed. The message names the extra."""


class Interrupted(KeyboardInterrupt):
    """Raised if the user has ended a command. The results so far are kept. The message says how to continue."""
