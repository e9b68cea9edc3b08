"""Reads the files under deploy/, and runs the tools that check them. Must never: start a server."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DOCS = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")

#: The longest orderly end of an endpoint, apart from ``drain-time``, in seconds.
ORDERLY_END_S = 15.0

#: The minimum reserve on top of that for a busy machine, in seconds.
SPARE_S = 5.0

_TOOL_S = 100


def documents(path: Path) -> list[Any]:
    """Return the documents of a YAML file."""
    return list(YAML(typ="safe", pure=True).load_all(path.read_text(encoding="utf-8")))


def run(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the program in the project's root, without terminal input and with a time limit."""
    return subprocess.run([program, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=_TOOL_S)


def strings(value: Any) -> Iterator[str]:
    """Yield all strings in a document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for child in value.values():
            yield from strings(child)
    elif isinstance(value, list):
        for child in value:
            yield from strings(child)
