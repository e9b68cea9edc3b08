"""The errors of this package that are meant for its user.

Owns the difference between "your log, your machine, your arguments" (`BenchError`: one message, exit code 1 or, of a
missing extra, 2, never a stack trace) and a bug of ours (anything else).
"""

from __future__ import annotations


class BenchError(Exception):
    """Something the user can mend. The message names the file (and line) or the setting, and what to do."""


class ExtraMissing(BenchError):
    """A library of an extra of the package is not installed; the text names the extra."""
