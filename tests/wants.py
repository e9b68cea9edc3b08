"""What tests want that a machine may lack, and the one way in which a test skips for want of it.

Owns: where programs are looked for, and the form of the reason, which `tests/conftest.py` counts in one line. Must
never: install anything.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

from ingeborg import form
from ingeborg.bench.rivals import NotInstalledError, go_programs, kafka_jars
from ingeborg.bench.rivals.servers import ALIASES
from tests.filters import ruler as ruler_jars

#: Debian puts servers where a user's PATH need not look.
PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"))

#: How to come by what `tests/tools.txt` lists.
BY_MAKE = "make test-tools installs them"

JAVA, BY_MAKE_JAVA = "Java 17 or newer", "make java finds it, or says how to install it"

#: By their names in `bench rivals`: what is built with Go, and what has `make test-tools` build it.
GO_PROGRAMS = {
    "centrifuge": (go_programs.CENTRIFUGE, "CENTRIFUGE=1"),
    "nats-current": (go_programs.NATS, "NATS=1"),
}

_REASON = re.compile(r"(?:Skipped: )?for want of (?P<thing>.+?): (?P<remedy>.+)", re.DOTALL)


class Tool(NamedTuple):
    """A line of ``tests/tools.txt``. ``programs``: any of them does; ``package``: Debian's; ``name``: for people."""

    programs: tuple[str, ...]
    package: str
    name: str


def tools() -> list[Tool]:
    """What `make test-tools` installs."""
    lines = Path(__file__).with_name("tools.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split(maxsplit=2) for line in lines if line.strip() and not line.startswith("#")]
    return [Tool(tuple(programs.split(",")), package, name) for programs, package, name in rows]


def skip(thing: str, remedy: str) -> NoReturn:
    """Skip the test: it wants ``thing`` (a noun), and ``remedy`` says how to come by it."""
    __tracebackhide__ = True
    pytest.skip(f"for want of {thing}: {' '.join(remedy.split())}", allow_module_level=True)


def tool(program: str) -> str:
    """The path of one of the programs of ``tests/tools.txt``, or of another that does; without, the test skips."""
    __tracebackhide__ = True
    [wanted] = [tool for tool in tools() if program in tool.programs]
    for each in wanted.programs:
        if (path := shutil.which(each, path=PATH)) is not None:
            return path
    skip(wanted.name, BY_MAKE)


def module(name: str, extra: str) -> None:
    """Without this Python package, of an extra of the project's, the test skips."""
    __tracebackhide__ = True
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        skip(name, f"pip install -e '.[{extra}]'")


def server(name: str) -> None:
    """Without the server of `bench rivals` of this name, the test skips."""
    __tracebackhide__ = True
    system = ALIASES.get(name, name)
    if system in GO_PROGRAMS:
        go_program(system)
        return
    if system != "kafka":
        tool({"mosquitto": system}.get(system, f"{system}-server"))
        return
    if not kafka_jars.cached(kafka_jars.CACHE):
        skip("Kafka", "make test-tools KAFKA=1 fetches it")
    try:
        kafka_jars.java_home()
    except NotInstalledError:
        skip(JAVA, BY_MAKE_JAVA)


def go_program(name: str) -> Path:
    """The path of the program of this server of `bench rivals`; where nobody has had it built the test skips, for that
    takes minutes and the network."""
    __tracebackhide__ = True
    wanted, remedy = GO_PROGRAMS[name]
    if not (program := wanted.path()).is_file():
        skip(f"{wanted.title} {wanted.release()}", f"make test-tools {remedy} builds it, with Go")
    return program


def ruler() -> None:
    """Without Event Ruler's jars, or a JDK to ask it with, the test skips."""
    __tracebackhide__ = True
    if not ruler_jars.directory().is_dir():
        skip("Event Ruler", "make test-tools RULER=1 fetches it")
    try:
        ruler_jars.java()
    except NotInstalledError:
        skip("a JDK", "make test-tools RULER=1 installs one")


def other_user_than_root() -> None:
    """Root may write everywhere: the test skips."""
    __tracebackhide__ = True
    if os.geteuid() == 0:
        skip("a user who is not root", "run the tests as one")


def root() -> None:
    """Only root may become another user, or mount: for others the test skips."""
    __tracebackhide__ = True
    if os.geteuid() != 0:
        skip("root", "run the tests as root")


def linux() -> None:
    """Skip the test on another system: what it shows only Linux does."""
    if sys.platform != "linux":
        skip("Linux", "nothing is promised elsewhere")


def summary(reasons: Iterable[str]) -> str:
    """One line on the reasons of skipped tests, a reason for each; empty if there are none."""
    wants: dict[str, Counter[str]] = {BY_MAKE: Counter()}
    others = 0
    for reason in reasons:
        if (match := _REASON.fullmatch(reason)) is None:
            others += 1
        else:
            wants.setdefault(match["remedy"], Counter())[match["thing"]] += 1
    parts = [
        f"{', '.join(f'{thing} ({count})' for thing, count in things.most_common())}: {remedy}"
        for remedy, things in wants.items()
        if things
    ]
    if others:
        parts.append(f"for other reasons ({others}): pytest -rs lists them")
    return f"skipped for want of {'; '.join(parts)}" if parts else ""


def interpreted() -> None:
    """Where compiled code runs, the test skips: what is put in the place of a method there is not called."""
    __tracebackhide__ = True
    if form.compiled():
        skip("the sources", "make interpreted, or INGEBORG_PURE=1")


def compiled() -> None:
    """Where the sources are run, the test skips."""
    __tracebackhide__ = True
    if not form.compiled():
        skip("compiled code", "make test-compiled runs the core's tests on it")


def compiler() -> None:
    """Where no C code can be compiled against Python's headers, the test skips."""
    __tracebackhide__ = True
    command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(command) is None or not Path(sysconfig.get_path("include"), "Python.h").is_file():
        skip("a C compiler with Python's headers", "Debian: apt install gcc libc6-dev python3-dev")
