"""Event Ruler, the library behind EventBridge's patterns: its jars, and what it says of a filter.

Owns: the cache of its jars, how Maven fills it, and the program in Java that asks it. Must never: name a repository
(Maven's default, or the user's settings, decide), install a Java, or use jars that are not those of ``jars.txt``.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from ingeborg.bench.rivals import fetching
from ingeborg.bench.rivals.errors import NotInstalledError, RivalError
from ingeborg.bench.rivals.kafka_jars import CACHE

ORACLE = Path(__file__).with_name("oracle")
POM = ORACLE / "pom.xml"
PROGRAM = ORACLE / "Oracle.java"

#: 3 MB from a slow mirror, and Maven's own plugins the first time.
MAVEN_S = 300.0

#: Of all that is asked at once: a Java starts and compiles the program, on a machine that does other things.
PATIENCE_S = 120.0


class Case(NamedTuple):
    """A pattern and what it is to be compared with."""

    pattern: dict[str, Any]
    payloads: list[dict[str, Any]]


def release() -> str:
    """Of Event Ruler, as pom.xml pins it."""
    version = ElementTree.parse(POM).find("{*}properties/{*}ruler.version")
    assert version is not None
    assert version.text
    return version.text


def directory(cache: Path = CACHE) -> Path:
    """Where the jars are, or would be."""
    return cache.expanduser().absolute() / f"ruler-{release()}"


def pinned() -> dict[str, str]:
    """The jars' names, and their SHA-256."""
    rows = [line.split() for line in (ORACLE / "jars.txt").read_text(encoding="ascii").splitlines()]
    return {name: digest for digest, name in rows}


def java() -> Path:
    """The ``java`` of a JDK: it compiles what it runs. ``NotInstalledError`` without one."""
    compiler = shutil.which("javac")
    if compiler is None:
        raise NotInstalledError("Event Ruler is asked by a program in Java: apt-get install default-jdk-headless")
    return Path(compiler).resolve().with_name("java")


def ensure(cache: Path = CACHE) -> Path:
    """The directory of the jars, by Maven if it is not there yet (half a minute, with network).
    ``NotInstalledError`` without Maven or a JDK, ``RivalError`` where Maven fails or brings other files."""
    jars = directory(cache)
    if jars.is_dir():
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise NotInstalledError("Event Ruler comes as jars through Maven, and there is no mvn: apt-get install maven")
    home = java().parent.parent
    print(f"ruler: fetching the jars of {release()} with Maven into {jars}", file=sys.stderr)
    try:
        jars.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="ruler-", dir=jars.parent) as scratch:
            partial = Path(scratch, "jars")
            command = [maven, "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", "-DincludeScope=runtime"]
            fetching.run(
                [*command, f"-DoutputDirectory={partial}"],
                partial,
                Path(scratch, "maven.log"),
                what="Maven did not get Event Ruler's jars",
                needs="",
                timeout_s=MAVEN_S,
                environment={**os.environ, "JAVA_HOME": str(home)},
            )
            found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in partial.iterdir()}
            if found != pinned():
                other = sorted(name for name, _ in found.items() ^ pinned().items())
                names = ", ".join(dict.fromkeys(other))
                raise RivalError(f"these of Event Ruler's jars are not those of jars.txt: {names}")
            # Whole or not at all. Where another process was faster, its set is as good.
            if not jars.is_dir():
                partial.rename(jars)
    except OSError as error:
        raise RivalError(f"cannot keep Event Ruler's jars in {error.filename or jars}: {error.strerror}") from error
    return jars


def ask(cases: Sequence[Case], cache: Path = CACHE) -> list[list[bool] | str]:
    """For each case: whether each payload matches; or why Event Ruler refuses the pattern."""
    done = subprocess.run(
        [java(), "-cp", f"{directory(cache)}/*", PROGRAM],
        input="".join(json.dumps(case._asdict()) + "\n" for case in cases),
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(cases)
    return answers
