"""Finds Kafka's published jars, and a Java that can run them.

Owns: the cache of jars and how Maven fills it. Must never: name a repository (Maven's default or the user's settings
decide), install Java, or leave a partial set of jars where a complete set is expected.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from ingeborg.bench.rivals import fetching
from ingeborg.bench.rivals.errors import NotInstalledError, RivalError

POM = Path(__file__).with_name("kafka") / "pom.xml"
CACHE = Path("~/.cache/ingeborg")

#: The oldest Java that can run servers of this Kafka (Kafka's documentation, Java Version).
JAVA_MAJOR_MIN = 17
#: Time limit of Maven. It fetches about 45 MB, perhaps from a slow mirror. The first time, it also fetches its own
#: plugins.
MAVEN_S = 600.0


def release() -> str:
    """Return Kafka's release, as pom.xml pins it."""
    version = ElementTree.parse(POM).find("{*}properties/{*}kafka.version")
    assert version is not None
    assert version.text
    return version.text


def directory(cache: Path) -> Path:
    return cache.expanduser().absolute() / f"kafka-{release()}"


def cached(cache: Path) -> bool:
    return directory(cache).is_dir()


def ensure(cache: Path, java_home: Path) -> Path:
    """Return the directory of the jars. If they are missing, Maven fetches them, which takes a minute and needs the
    network. Raises ``NotInstalledError`` if there is no Maven, and ``RivalError``, with the end of Maven's output, if
    Maven fails."""
    jars = directory(cache)
    if jars.is_dir():
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise NotInstalledError("Kafka comes as jars through Maven, and there is no mvn: apt-get install maven")
    print(f"kafka: fetching the jars of {release()} with Maven into {jars}", file=sys.stderr)
    try:
        jars.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="kafka-", dir=jars.parent) as scratch:
            partial = Path(scratch, "jars")
            _copy_jars(maven, java_home, partial, Path(scratch, "maven.log"))
            # The set appears complete or not at all. If another process was faster, its set stays.
            if not jars.is_dir():
                partial.rename(jars)
    except OSError as error:
        raise RivalError(f"cannot keep Kafka's jars in {error.filename or jars}: {error.strerror}") from error
    return jars


def _copy_jars(maven: str, java_home: Path, target: Path, log: Path) -> None:
    command = [maven, "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", "-DincludeScope=runtime"]
    environment = {**os.environ, "JAVA_HOME": str(java_home)}
    fetching.run(
        [*command, f"-DoutputDirectory={target}"],
        target,
        log,
        what="Maven did not get Kafka's jars",
        needs="",
        timeout_s=MAVEN_S,
        environment=environment,
    )


def java_home() -> Path:
    """Return the home of the first Java that is new enough. The order is JAVA_HOME, the java on PATH, and the system's
    usual folder, as in ``bench/java.sh`` (which can also install Java). Raises ``NotInstalledError`` if there is
    none."""
    asked = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    candidates = [Path(asked, "bin", "java")] if asked else []
    candidates += [Path(on_path)] if on_path else []
    candidates += sorted(Path("/usr/lib/jvm").glob("*/bin/java"))
    for java in candidates:
        if _major(java) >= JAVA_MAJOR_MIN:
            return java.resolve().parent.parent
    raise NotInstalledError(
        f"Kafka needs Java {JAVA_MAJOR_MIN} or newer, and none was found: apt-get install openjdk-17-jre-headless "
        "(or set JAVA_HOME to one)"
    )


def _major(java: Path) -> int:
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0  # This Java does not run; the next candidate may.
    version = re.search(r'version "(\d+)', said)
    return int(version[1]) if version else 0
