"""The core's layers: the folders that each folder may know.

Owns: their order, and the reader that finds imports against it. Must never: import what it reads.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.frame.arrows import imports

ROWS = (
    ("caches", "codec", "filters", "overlay"),
    ("histogram", "limits", "message", "model", "wheel"),
    ("counters", "metrics", "settings"),
    ("connections", "entries"),
    ("dispatch",),
    ("dedup",),
    ("links",),
    ("effects",),
    ("stores",),
    ("desk",),
    ("base", "part"),
    ("outgoing",),
    ("cluster",),
    ("replication",),
    ("topics",),
    ("retained",),
    ("messages",),
    ("clients",),
    ("history",),
    ("bounds",),
    ("operators",),
    ("layers",),
    ("lookup", "turns"),
    ("router",),
)
"""The core's folders and single files, from the bottom up. Each may know the rows before its own, and in its own row
only itself."""


def turned_back(sources: Mapping[str, str]) -> list[str]:
    """Return imports of a folder that is not below the importer's. ``sources``: sources by path below the core."""
    row_of = {name: row for row, names in enumerate(ROWS) for name in names}
    found = []
    for path, source in sources.items():
        module = path.removesuffix(".py").replace("/", ".")
        own = module.partition(".")[0]
        for line, target, name in imports(source, f"broker.core.{module}", False):
            inside = f"{target}.{name}".removeprefix("broker.core.") if target.startswith("broker.core") else ""
            folder = inside.partition(".")[0]
            if folder and folder != own and row_of[folder] >= row_of[own]:
                found.append(f"{path}:{line}: {own} must not know {folder}")
    return found
