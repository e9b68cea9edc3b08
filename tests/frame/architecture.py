"""Makes parts of ARCHITECTURE.md from the files: the core's layers, its code map, the list of decisions.

    python -m tests.frame.architecture

writes them between their marks. Owns: their making. Must never: write anything between other marks.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.frame.layers import ROWS

ROOT = Path(__file__).resolve().parents[2]

PAGE = ROOT / "ARCHITECTURE.md"

_OWNS = re.compile(r"Owns: (?P<owns>.*?)\. Must never: (?P<must>.*?)\.(?:$|\s)", re.DOTALL)


def docstring(path: Path) -> str:
    """Return the module's docstring, in one line for each paragraph."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return "\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def layers() -> str:
    """Return the core's folders, each with a slash, and single files, the highest first."""
    core = ROOT / "broker" / "core"
    rows = ["   ".join(f"{name}/" if (core / name).is_dir() else name for name in row) for row in reversed(ROWS)]
    return "\n".join(["```", *rows, "```"])


def core_map() -> str:
    """Return a row for each folder of the core, from the top down."""
    lines = ["| folder of `broker/core/` | files | owns | must never |", "|---|---|---|---|"]
    for row in reversed(ROWS):
        for name in row:
            folder = ROOT / "broker" / "core" / name
            if folder.is_dir():
                found = _OWNS.search(docstring(folder / "__init__.py"))
                assert found is not None, f"{folder}: its docstring does not say what it owns"
                files = " ".join(f"`{path.stem}`" for path in sorted(folder.glob("*.py")) if path.stem != "__init__")
                lines.append(f"| `{name}` | {files} | {found['owns']} | {found['must']} |")
    return "\n".join(lines)


def decisions() -> str:
    """Return the ADRs, by number."""
    lines = []
    for path in sorted((ROOT / "docs" / "adr").glob("[0-9]*.md")):
        title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        lines.append(f"- [{title}](docs/adr/{path.name})")
    return "\n".join(lines)


MADE = {"layers": layers, "core map": core_map, "decisions": decisions}
"""The maker of each part, by the name in its marks."""


def made(page: str) -> str:
    """Return the page with new parts."""
    for name, make in MADE.items():
        begin, end = f"<!-- made: {name} -->", "<!-- end -->"
        before, mark, rest = page.partition(begin)
        assert mark, f"ARCHITECTURE.md has no {begin}"
        page = f"{before}{begin}\n{make()}\n{end}{rest.partition(end)[2]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
