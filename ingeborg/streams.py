"""Sets up a program's standard streams. Either the program's output reaches its reader, or the program's exit code
reports the failure.

Owns: the handling of characters that the output's encoding lacks, of full or closed streams, and of secrets on standard
error. Must never: import a program, or contain code for a particular one.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

from ingeborg.protocol.redaction import redacted

FAILED = 1


def run(program: str, main: Callable[[], int]) -> int:
    """Run ``main()``, and flush its output.

    Args:
        program: the program's name, which precedes an error line.
        main: runs the program. It prints to ``sys.stdout``, and does not catch an ``OSError`` that printing raises.

    Returns:
        The exit code of ``main``, or 1 if the output could not be written. Then one line on standard error gives the
        reason, unless the reader has closed its end of a pipe (``| head``).
    """
    _open_closed()
    codecs.register_error("escaped", _escaped)
    output = _Output(1, "w", closefd=False)
    sys.stdout = _text(io.TextIOWrapper, io.BufferedWriter(output), sys.stdout)
    sys.stderr = _text(_Redacting, io.BufferedWriter(_Unfailing(2, "w", closefd=False)), sys.stderr)
    try:
        try:
            return main()
        finally:
            sys.stdout.flush()
            if output.failure is not None:  # even if the program ignored it
                raise output.failure
    except OSError as error:
        if error is not output.failure:
            raise
        if not isinstance(error, BrokenPipeError):
            print(f"{program}: cannot write to standard output: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # discards the rest of the output, which Python writes at exit
        return FAILED


class _Output(io.FileIO):
    """Standard output. ``failure`` is the first error of a write."""

    failure: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.failure = self.failure or error
            raise self.failure from None


class _Redacting(io.TextIOWrapper):
    """A text stream that removes tokens, and the passwords in URLs, from everything that is written."""

    def write(self, text: str) -> int:
        return super().write(redacted(text))


class _Unfailing(io.FileIO):
    """Standard error. It ignores failed writes, since it could not report them."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _text(kind: type[io.TextIOWrapper], buffer: io.BufferedWriter, former: TextIO | None) -> io.TextIOWrapper:
    """Wrap the buffer like the former stream, but escape characters that its encoding lacks. ``former`` is ``None`` if
    the stream was closed."""
    return kind(
        buffer,
        encoding="utf-8" if former is None else former.encoding,
        errors="escaped",
        line_buffering=getattr(former, "line_buffering", False),
        write_through=getattr(former, "write_through", False),
    )


def _open_closed() -> None:
    """Open the null device in place of each standard stream that is closed. Otherwise the next file that the program
    opens would get the stream's descriptor, and the program would print into that file. The null device gets the
    opposite mode of the stream (read for write), so that using the stream fails."""
    for number, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    r"""Escape characters that the encoding lacks, as JSON does: ``\u00e9``."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
