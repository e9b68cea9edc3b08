"""The errors of this package that are meant for its user.

Owns the difference between "your log, your machine, your arguments" (`BenchError`: one message, never a stack trace;
exit code 2 of arguments and of a missing extra, else 1) and a bug of ours (anything else).
"""

from __future__ import annotations


class BenchError(Exception):
    """An error that the user can fix. The message names the file (and line) or the setting, and what to do."""


class UsageError(BenchError):
    """An option has a value that it cannot have."""


class ExtraMissing(UsageError):
    """A library of an extra of the package is not installed; the text names the extra."""
