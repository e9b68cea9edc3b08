"""How the documentation site is built: `make docs`, into build/docs.

Owns: Sphinx's settings. Must never: hold text that a reader sees, or ask the network for anything.

The source directory is the repository's root, so that a link between Markdown files is the same path on the site as
on disk; only what ``include_patterns`` names becomes a page.
"""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PLOTS = "report.html"
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "_ext")]

_project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = "Ingeborg"
release = version = _project["version"]
copyright = f"the authors of Ingeborg, {_project['license']}"

extensions = ["myst_parser", "sphinx.ext.autodoc", "serve_options"]

root_doc = "docs/index"
include_patterns = [
    "*.md",
    "protocol/SPEC.md",
    "bench/SCHEMA.md",
    "bench/results/*/summary.md",
    "clients/js/README.md",
    "docs/**.md",
]
# Not even looked into: Sphinx follows links, and environments and measurements are large.
exclude_patterns = [
    ".*",
    "**/.*",
    "**/node_modules",
    "build",
    "dist",
    "runs",
    "tests",
    "ingeborg",
    "bench/results/*/logs",
]

myst_enable_extensions = ["colon_fence"]
# Anchors of headings as GitHub makes them, so that `page.md#heading` is the same on both.
myst_heading_anchors = 3
suppress_warnings = ["misc.highlighting_failure"]  # shortened examples: JSON with … in it

highlight_language = "none"
default_role = "code"  # how docstrings mean text in single backticks

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
add_module_names = False
maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"Ingeborg {release}"
html_static_path = ["_static"]
html_extra_path = ["_root"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
# Without it pages would carry the day they were built: the same sources give the same site.
html_last_updated_fmt = None


def _result_set(app: Any, docname: str, source: list[str]) -> None:
    """Every result set's page is headed "Summary"; in a list of several that says nothing. Below it comes a link to its
    page with plots, where that has been made."""
    if docname.startswith("bench/results/"):
        page = ROOT / docname.removesuffix("summary") / PLOTS
        link = f'\n<p><a href="{PLOTS}">The page with plots</a></p>\n' if page.is_file() else ""
        heading, _, rest = source[0].partition("\n")
        source[0] = f"{heading.replace('# Summary', f'# {page.parent.name}', 1)}\n{link}{rest}"


def _pages(app: Any, exception: Exception | None) -> None:
    """The pages with plots that have been made go with the site."""
    for page in ROOT.glob(f"bench/results/*/{PLOTS}"):
        beside = Path(app.outdir) / page.parent.relative_to(ROOT)
        if exception is None and beside.is_dir():
            shutil.copy(page, beside)


def setup(app: Any) -> None:
    """Sphinx's hook."""
    app.connect("source-read", _result_set)
    app.connect("build-finished", _pages)
