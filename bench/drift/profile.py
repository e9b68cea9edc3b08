"""Read callgrind's files: instructions by function, and the number of calls of each function.

Owns: reading the files, and readable names of functions. Must never: run a program.

The line ``fn=`` of a callgrind file names the function to which the next lines belong. ``cfn=`` and ``calls=`` announce
a call, and the line after them has the total cost of the call. Any other line has a position in the source, and the
cost at that position. The first time, a name appears together with a number. From then on, only the number appears.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import NamedTuple

from ingeborg.bench.errors import BenchError

#: Suffixes to remove from names. Callgrind adds one for each level of a recursion, and the C compiler adds one to each
#: part into which it splits a function.
_SUFFIX = re.compile(r"('\d+|\.(?:constprop|isra|part|cold|lto_priv)(?:\.\d+)*|@@?[A-Z_]+[\d.]*)+$")
_COMPRESSED = re.compile(r"\((\d+)\)(?: (.*))?")
#: Mypyc's prefixes: of a function for compiled callers, and of the wrapper function for all other callers.
_COMPILED, _ENTRY = "CPyDef_", "CPyPy_"


class Profile(NamedTuple):
    """``total``: all instructions. The other fields have a value for each function. ``own``: the instructions of the
    function itself. ``calls``: the number of calls. ``within``: the instructions of these calls, including everything
    that they called."""

    total: float
    own: Mapping[str, float]
    calls: Mapping[str, float]
    within: Mapping[str, float]

    def called(self, function: re.Pattern[str]) -> float:
        """Return the number of calls of the functions whose full names match."""
        return sum(count for name, count in self.calls.items() if function.fullmatch(name))


def read(lines: Iterable[str]) -> Profile:
    """Return the profile in a callgrind file.

    Args:
        lines: the lines of the file. The file must count one event (instructions), and its positions must be line
            numbers.

    Returns:
        The profile. It counts the levels of a recursion, and the parts of a split function, as one function.

    Raises:
        BenchError: the file is not from callgrind, or was cut short.
    """
    reading = _Reading()
    for line in lines:
        reading.line(line)
    if not reading.whole:
        raise BenchError("callgrind's file is incomplete")
    return Profile(sum(reading.own.values()), reading.own, reading.calls, reading.within)


class _Reading:
    """Read one file's profile, line by line."""

    def __init__(self) -> None:
        self.own: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.within: Counter[str] = Counter()
        self.whole = False
        self._names: dict[str, str] = {}  # functions and object files, by their kind and number
        self._object = self._of_callee = ""
        self._function = self._callee = ""
        self._is_call = False

    def line(self, line: str) -> None:
        """Read the next line."""
        first = line[:1]
        if first.isdigit() or first in ("+", "-", "*"):
            self._cost(line)
        elif line.startswith("fn="):
            self._function = self._name(line[3:], "fn", self._object)
        elif line.startswith("cfn="):
            self._callee = self._name(line[4:], "fn", self._of_callee or self._object)
            self._of_callee = ""
        elif line.startswith("calls="):
            self.calls[self._callee] += int(line[6:].split(maxsplit=1)[0])
            self._is_call = True
        elif line.startswith("ob="):
            self._object = self._name(line[3:], "ob")
        elif line.startswith("cob="):
            self._of_callee = self._name(line[4:], "ob")
        elif line.startswith("totals:"):
            self.whole = True

    def _cost(self, line: str) -> None:
        numbers = line.split()
        if len(numbers) < 2:
            return
        cost = int(numbers[1])
        if self._is_call:
            self.within[self._callee] += cost
            self._is_call = False
        else:
            self.own[self._function] += cost

    def _name(self, text: str, kind: str, where: str = "") -> str:
        """Return the name in a line. ``where``: the object file that contains a function."""
        found = _COMPRESSED.fullmatch(text.strip())
        number, name = found.groups() if found is not None else ("", text.strip())
        if name is None:
            return self._names.get(kind + number, f"({number})")
        if kind == "fn":
            name = _SUFFIX.sub("", name)
            if name.startswith("0x"):  # an address says nothing, and differs from one start to the next
                name = f"(somewhere in {PurePath(where).name or 'no file'})"
        if number:
            self._names[kind + number] = name
        return name


def readable(name: str) -> str:
    """Return the name of a function as in the sources: ``dedup.Dedup.add`` for ``CPyDef_dedup___Dedup___add``.
    "(entry)" marks the wrapper function for callers that are not compiled. Other names are returned unchanged."""
    for prefix, suffix in ((_COMPILED, ""), (_ENTRY, " (entry)")):
        if name.startswith(prefix):
            return ".".join(name.removeprefix(prefix).split("___")) + suffix
    return name
