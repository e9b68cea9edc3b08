"""Things that tests need and a machine may lack, and the one way to skip a test without them.

Owns: the search for programs, and the form of the reason, which `tests/conftest.py` counts in one line. Must never:
install anything.
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

#: Debian puts servers into folders that a user's PATH may lack.
PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"))

#: The remedy for the programs of `tests/tools.txt`.
BY_MAKE = "make test-tools installs them"

JAVA, BY_MAKE_JAVA = "Java 17 or newer", "make java finds it, or says how to install it"

#: Programs built with Go, by their names in `bench rivals`, and the variable with which `make test-tools` builds them.
GO_PROGRAMS = {
    "centrifuge": (go_programs.CENTRIFUGE, "CENTRIFUGE=1"),
    "nats-current": (go_programs.NATS, "NATS=1"),
}

_REASON = re.compile(r"(?:Skipped: )?needs (?P<thing>.+?): (?P<remedy>.+)", re.DOTALL)


class Tool(NamedTuple):
    """A line of ``tests/tools.txt``. ``programs``: any one is enough; ``package``: Debian's; ``name``: for people."""

    programs: tuple[str, ...]
    package: str
    name: str


def tools() -> list[Tool]:
    """Return the programs that `make test-tools` installs."""
    lines = Path(__file__).with_name("tools.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split(maxsplit=2) for line in lines if line.strip() and not line.startswith("#")]
    return [Tool(tuple(programs.split(",")), package, name) for programs, package, name in rows]


def skip(thing: str, remedy: str) -> NoReturn:
    """Skip the test, since it needs ``thing`` (a noun). ``remedy`` says how to get it."""
    __tracebackhide__ = True
    pytest.skip(f"needs {thing}: {' '.join(remedy.split())}", allow_module_level=True)


def tool(program: str) -> str:
    """Return the path of this program of ``tests/tools.txt``, or of an alternative. Skip the test without one."""
    __tracebackhide__ = True
    [wanted] = [tool for tool in tools() if program in tool.programs]
    for each in wanted.programs:
        if (path := shutil.which(each, path=PATH)) is not None:
            return path
    skip(wanted.name, BY_MAKE)


def module(name: str, extra: str) -> None:
    """Skip the test without this Python package, which an extra of the project installs."""
    __tracebackhide__ = True
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        skip(name, f"pip install -e '.[{extra}]'")


def server(name: str) -> None:
    """Skip the test without the server of this name in `bench rivals`."""
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
    """Return the path of the program of this server of `bench rivals`. Skip the test if it has not been built, since a
    build takes minutes and the network."""
    __tracebackhide__ = True
    wanted, remedy = GO_PROGRAMS[name]
    if not (program := wanted.path()).is_file():
        skip(f"{wanted.title} {wanted.release()}", f"make test-tools {remedy} builds it, with Go")
    return program


def ruler() -> None:
    """Skip the test without Event Ruler's jars, or without a JDK to run it."""
    __tracebackhide__ = True
    if not ruler_jars.directory().is_dir():
        skip("Event Ruler", "make test-tools RULER=1 fetches it")
    try:
        ruler_jars.java()
    except NotInstalledError:
        skip("a JDK", "make test-tools RULER=1 installs one")


def other_user_than_root() -> None:
    """Skip the test for root, who may write everywhere."""
    __tracebackhide__ = True
    if os.geteuid() == 0:
        skip("a user who is not root", "run the tests as one")


def root() -> None:
    """Skip the test for other users, since only root may become another user, or mount."""
    __tracebackhide__ = True
    if os.geteuid() != 0:
        skip("root", "run the tests as root")


def linux() -> None:
    """Skip the test on another system, since only Linux behaves like this."""
    if sys.platform != "linux":
        skip("Linux", "nothing is promised elsewhere")


def summary(reasons: Iterable[str]) -> str:
    """Return one line on the reasons of skipped tests; empty without reasons."""
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
        parts.append(f"other reasons ({others}): pytest -rs lists them")
    return f"needs of skipped tests: {'; '.join(parts)}" if parts else ""


def interpreted() -> None:
    """Skip the test on compiled code, which does not call a method's replacement."""
    __tracebackhide__ = True
    if form.compiled():
        skip("the sources", "make interpreted, or INGEBORG_PURE=1")


def compiled() -> None:
    """Skip the test on the sources."""
    __tracebackhide__ = True
    if not form.compiled():
        skip("compiled code", "make test-compiled runs the core's tests on it")


def compiler() -> None:
    """Skip the test if no C code can be compiled against Python's headers."""
    __tracebackhide__ = True
    command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(command) is None or not Path(sysconfig.get_path("include"), "Python.h").is_file():
        skip("a C compiler with Python's headers", "Debian: apt install gcc libc6-dev python3-dev")
