"""Refuses to build from a checkout without symbolic links, of which the package would be all but empty.

Everything else about the package is in pyproject.toml.
"""

from __future__ import annotations

from pathlib import Path

from setuptools import setup

broken = [str(path) for path in Path("ingeborg").iterdir() if path.is_file() and path.suffix not in {".py", ".typed"}]
if broken:
    raise SystemExit(
        f"{', '.join(sorted(broken))}: a file each, and has to be a symbolic link. Check the repository out again with "
        "links: git config core.symlinks true; git checkout -- ingeborg"
    )
setup()
