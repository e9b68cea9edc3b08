"""The standard streams of a program: what it prints reaches its reader, or the exit code says that it has not.

Owns: what becomes of characters that the output's encoding has not, of streams that are full or closed, and of secrets
on standard error. Must never: know a program, or import one.
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
    """``main()``. What it prints is out when this returns.

    Args:
        program: its name, which stands before what is said.
        main: prints to ``sys.stdout``, and lets the ``OSError`` of doing so through.

    Returns:
        Its exit code; 1 where its output could not be written. One line on standard error says why, except where the
        reader has gone (``| head``).
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
            if output.failure is not None:  # though whoever printed took no notice
                raise output.failure
    except OSError as error:
        if error is not output.failure:
            raise
        if not isinstance(error, BrokenPipeError):
            print(f"{program}: cannot write to standard output: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what is left of it, which Python writes at its end
        return FAILED


class _Output(io.FileIO):
    """Standard output. ``failure``: the first one."""

    failure: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.failure = self.failure or error
            raise self.failure from None


class _Redacting(io.TextIOWrapper):
    """What a person is told, whoever says it: no token, and no password of a URL."""

    def write(self, text: str) -> int:
        return super().write(redacted(text))


class _Unfailing(io.FileIO):
    """Standard error: where it takes nothing, there is nobody to tell."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _text(kind: type[io.TextIOWrapper], buffer: io.BufferedWriter, former: TextIO | None) -> io.TextIOWrapper:
    """As the former one, but for characters that its encoding has not. ``None``: there was none, being closed."""
    return kind(
        buffer,
        encoding="utf-8" if former is None else former.encoding,
        errors="escaped",
        line_buffering=getattr(former, "line_buffering", False),
        write_through=getattr(former, "write_through", False),
    )


def _open_closed() -> None:
    """A descriptor that is closed would be given to the next file, and what is printed would go into that. Reading and
    writing standard input and output fails instead."""
    for number, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    r"""Characters that the encoding has not, as JSON may have them too: ``\u00e9``."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
