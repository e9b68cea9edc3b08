"""The one error of this package that is meant for its user.

Owns the difference between "your log, your machine, your arguments" (`BenchError`: one message, exit code 1, never a
stack trace) and a bug of ours (anything else).
"""

from __future__ import annotations


class BenchError(Exception):
    """Something the user can mend. The message names the file (and line) or the setting, and what to do."""
