"""Removes from constraints files the hashes of files that no supported machine installs: ``pins.py FILE…``.

Owns: the choice of these files. They are wheels for systems other than Linux with glibc on x86-64 or aarch64, and for
Pythons other than CPython 3.11 to 3.14. Must never: drop a hash that the index does not know, or the hash of a source
distribution.

pip-compile writes the hashes of all files of a release. For this project it writes about 2,700 hashes, but pip needs
only a tenth of these hashes. The index is the same as pip's: ``PIP_INDEX_URL``, the setting in ``pip config``, or pip's
default.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from pip._internal.models.index import PyPI

MINORS = (11, 12, 13, 14)
MACHINES = ("x86_64", "aarch64")
PYTHONS = {"py3", *(f"cp3{minor}" for minor in MINORS)}
TIMEOUT_S = 60
AT_ONCE = 8
TYPE = "application/vnd.pypi.simple.v1+json"

PIN = re.compile(r"^([A-Za-z0-9._-]+)==\S+")
HASH = re.compile(r"^    --hash=sha256:([0-9a-f]{64})")


def index() -> str:
    """Return the URL of pip's index, without a slash at its end."""
    said = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True)
    return (os.environ.get("PIP_INDEX_URL") or said.stdout.decode().strip() or PyPI.simple_url).rstrip("/")


def fits(tag: Tag) -> bool:
    """Return whether a supported machine installs a wheel with this tag."""
    python, abi, platform = tag.interpreter, tag.abi, tag.platform
    old_abi3 = abi == "abi3" and re.fullmatch(r"cp3\d+", python) and int(python[3:]) <= max(MINORS)
    older = abi == "none" and re.fullmatch(r"py3\d+", python) and int(python[3:]) <= max(MINORS)
    on_linux = platform.startswith(("manylinux", "linux_")) and platform.endswith(MACHINES)
    free_threaded = abi.endswith("t")
    is_ours = (python in PYTHONS and not free_threaded) or old_abi3 or older
    return bool(is_ours) and (platform == "any" or on_linux)


def useless(files: list[dict[str, object]]) -> set[str]:
    """Return the hashes of the wheels that are in an index's files but that no supported machine installs."""
    found: set[str] = set()
    for file in files:
        name, hashes = str(file["filename"]), file["hashes"]
        assert isinstance(hashes, dict)
        try:
            tags = parse_wheel_filename(name)[3]
        except InvalidWheelFilename:
            continue
        if not any(map(fits, tags)):
            found.add(hashes.get("sha256", ""))
    return found


def files_of(project: str) -> list[dict[str, object]]:
    """Return the index's files of this release."""
    request = urllib.request.Request(f"{index()}/{project}/", headers={"Accept": TYPE})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        listed: list[dict[str, object]] = json.load(answer)["files"]
        return listed


def thinned(text: str, drop: dict[str, set[str]]) -> str:
    """Return the constraints without the hashes in ``drop``. Raises ``ValueError`` if a project would have no hash
    left."""
    made: list[str] = []
    for block in re.split(r"(?m)^(?=[A-Za-z0-9])", text):
        pin = PIN.match(block)
        if pin is None:
            made.append(block)
            continue
        lines = block.splitlines()
        rest = [line for line in lines[1:] if not HASH.match(line)]
        kept = [found[1] for line in lines if (found := HASH.match(line)) and found[1] not in drop[pin[1]]]
        if not kept:
            raise ValueError(f"{pin[1]}: no file for a supported machine")
        pinned = [lines[0], *(f"    --hash=sha256:{digest} \\" for digest in kept)]
        pinned[-1] = pinned[-1].removesuffix(" \\")
        made.append("\n".join([*pinned, *rest]) + "\n")
    return "".join(made)


def main(paths: list[str]) -> None:
    texts = {Path(path): Path(path).read_text(encoding="utf-8") for path in paths}
    projects = sorted({pin[1] for text in texts.values() for line in text.splitlines() if (pin := PIN.match(line))})
    with ThreadPoolExecutor(AT_ONCE) as pool:
        drop = dict(zip(projects, map(useless, pool.map(files_of, projects)), strict=True))
    for path, text in texts.items():
        made = thinned(text, drop)
        path.write_text(made, encoding="utf-8")
        print(f"{path}: {text.count('--hash='):,} hashes, {made.count('--hash='):,} of files for a supported machine")


if __name__ == "__main__":
    main(sys.argv[1:])
