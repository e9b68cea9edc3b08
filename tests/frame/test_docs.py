"""The documentation site: it builds without a warning, its links lead somewhere, it asks nobody else for anything, and
what its first page says to type works."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from ingeborg import form
from ingeborg.bench.starting import claim, environment
from ingeborg.broker.command.config import ServeOptions
from tests import wants
from tests.browser.devtools import look
from tests.frame.arrows import OURS

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60
#: The build takes seven seconds of one core; on a machine that others load, several times that.
BUILD_S = 120

#: Pages that a browser shows: name, width in pixels, dark.
SHOWN = [("docs/start", 1280, False), ("protocol/SPEC", 390, True), ("docs/configuration", 390, False)]

#: As `make docs` builds it, but that only the pages shown have the contents at their side, which are made again for
#: each page, and that the index for searching has words as they are written. Both took half of the time.
BUILD = f"""
import sys
import furo
from sphinx.cmd.build import main
from sphinx.search.en import SearchEnglish

of_all = furo._compute_navigation_tree
shown = {sorted(name for name, *_ in SHOWN)}
furo._compute_navigation_tree = lambda context: of_all(context) if context["pagename"] in shown else ""
SearchEnglish.stem = lambda _, word: word
sys.exit(main(sys.argv[1:]))
"""

pytestmark = pytest.mark.timeout(BUILD_S + 60)  # whichever test comes first has the build in its time


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site; the tests of it are in one process."""
    wants.module("sphinx", "docs")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-c", BUILD, "-b", "html", "-c", "docs", "-W", "--keep-going", "-q", ".", str(out)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=BUILD_S)
    assert (built.returncode, built.stderr) == (0, ""), built.stderr
    return out


class Page(HTMLParser):
    """What a page has: anchors, links to follow, and what a browser fetches by itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.fetched: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Sort the attributes."""
        for name, value in attrs:
            if value and name in ("id", "name"):
                self.anchors.add(value)
            elif value and (name in ("src", "srcset", "data", "poster") or (tag == "link" and name == "href")):
                self.fetched.add(value)
            elif value and name == "href":
                self.links.add(value)


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def test_every_page_is_there_and_in_the_contents(site: Path, pages: dict[Path, Page]) -> None:
    """A page in no toctree is a warning of Sphinx's already; this is for one that is not built at all."""
    sources = [*ROOT.glob("*.md"), ROOT / "protocol" / "SPEC.md", *(ROOT / "docs").rglob("*.md")]
    sources += (ROOT / "bench" / "results").glob("*/summary.md")
    built = [site / path.relative_to(ROOT).with_suffix(".html") for path in sources]
    assert [path for path in built if path not in pages] == []
    assert (site / "index.html").is_file()


def test_no_link_leads_nowhere(site: Path, pages: dict[Path, Page]) -> None:
    broken = []
    for path, page in pages.items():
        for link in page.links | page.fetched:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.is_file() or (anchor and target in pages and anchor not in pages[target].anchors):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_a_page_fetches_nothing_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    elsewhere = re.compile(r"^(?:https?:)?//")
    asked = {f"{path.relative_to(site)}: {url}" for path, page in pages.items() for url in page.fetched}
    assert [line for line in asked if elsewhere.match(line.split(": ", 1)[1])] == []
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert re.findall(r"""(?:url\(|@import)\s*['"]?(?:https?:)?//[^)'"]*""", text) == [], style.name


@pytest.mark.parametrize(("name", "width", "dark"), SHOWN)
async def test_a_page_fits_a_browser(site: Path, name: str, width: int, dark: bool) -> None:
    """It is no wider than the screen (wide tables scroll by themselves), and nothing is fetched but files."""
    seen = await look(site / f"{name}.html", width, "document.documentElement.scrollWidth", dark)
    assert seen.value <= width
    assert seen.complaints == []
    assert [url for url in seen.requests if not url.startswith(("file:", "data:"))] == []


def test_the_reference_has_every_option_of_the_code(site: Path) -> None:
    text = (site / "docs" / "configuration.html").read_text(encoding="utf-8")
    plain = re.sub(r"<[^>]+>", "", text)
    for option in fields(ServeOptions):
        key = option.name.replace("_", "-")
        assert f'id="confval-{key}"' in text
        assert f"INGEBORG_{option.name.upper()}" in plain
        assert f"{key} = " in plain
        assert (f"--{key}" in plain) is bool(option.metadata["metavar"] or option.metadata["flag"])


def test_what_pages_tell_to_run_is_there() -> None:
    """Modules, tests and targets by the names that they are told by."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    absent = []
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        text = page.read_text(encoding="utf-8")
        modules = re.findall(r"python -m ((?:tests|ingeborg|bench|loadgen|autoscaler|broker)[\w.]*\w)", text)
        absent += [
            f"{page.name}: python -m {name}"
            for name in modules
            if name.partition(".")[0] in OURS or importlib.util.find_spec(name) is None
        ]
        for paths in re.findall(r"pytest ((?:tests/[\w/.]+ ?)+)", text):
            absent += [f"{page.name}: pytest {path}" for path in paths.split() if not (ROOT / path).exists()]
        for names in re.findall(r"(?:^|`)make ((?:[a-z][a-z-]+ ?)+)", text, re.MULTILINE):
            absent += [f"{page.name}: make {name}" for name in names.split() if name not in targets]
    assert absent == []


# -- What docs/start.md says to type


class Terminal:
    """A block of commands in a shell of its own; what it prints is in a file."""

    def __init__(self, commands: str, folder: Path, number: int, variables: dict[str, str]) -> None:
        self.commands = commands
        self._file = folder / f"terminal-{number}"
        with self._file.open("wb") as out:
            self.process = subprocess.Popen(
                ["bash", "-euc", commands],
                cwd=folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def said(self) -> str:
        """All of it so far."""
        return self._file.read_text(encoding="utf-8")

    def shows(self, lines: list[str]) -> bool:
        """Has it printed these lines, in whatever order? An … stands for anything."""
        patterns = [".*".join(map(re.escape, line.split("…"))) for line in lines]
        said = self.said()
        return all(re.search(f"^{pattern}$", said, re.MULTILINE) for pattern in patterns)

    def end(self) -> None:
        """It runs no more afterwards, nor does what it started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(PATIENCE_S)


def shim(folder: Path, name: str, *command: str) -> None:
    """A command of that name which is of this tree, not of what is installed."""
    quoted = " ".join(f"'{word}'" for word in command)
    (folder / name).write_text(f'#!/bin/sh\nexec {quoted} "$@"\n', encoding="utf-8")
    (folder / name).chmod(0o755)


@pytest.mark.cluster
def test_what_the_first_page_says_to_type_works(tmp_path: Path) -> None:
    """Each block ``sh`` goes into a terminal of its own, each ``python`` into the file it names, and each ``text`` has
    to appear on one of the terminals. Only the ports are others; the setting up is left out, CI does it to get here.
    """
    page = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    blocks = re.findall(r"(?:`(\w+\.py)`:\n)?^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert blocks[0] == ("", "sh", "make setup && . .venv/bin/activate\n")
    claimed = claim(2)
    ports = claimed.first, claimed.first + 1
    (tmp_path / "bin").mkdir()
    shim(tmp_path / "bin", "ingeborg", sys.executable, "-m", "ingeborg.broker.command.cli")
    shim(tmp_path / "bin", "python", sys.executable)
    # The page shows what a checkout says before anybody has compiled it.
    variables = environment({"PYTHONPATH": str(ROOT), "XDG_DATA_HOME": str(tmp_path / "data"), form.VARIABLE: "1"})
    variables["PATH"] = f"{tmp_path / 'bin'}:{variables['PATH']}"

    terminals: list[Terminal] = []
    ran = 0
    try:
        for name, kind, text in blocks[1:]:
            text = text.replace("9000", str(ports[0])).replace("9001", str(ports[1]))
            if kind == "sh":
                terminals.append(Terminal(text, tmp_path, len(terminals), variables))
            elif kind == "python":
                (tmp_path / name).write_text(text, encoding="utf-8")
            elif kind == "text":
                ran += 1
                await_shown(terminals, text.splitlines())
        # The first two, `serve` and `sub`, are left running.
        assert [terminal.process.wait(PATIENCE_S) for terminal in terminals[2:]] == [0] * (len(terminals) - 2)
    finally:
        for terminal in reversed(terminals):
            terminal.end()
        claimed.close()
    assert ran >= 7


def await_shown(terminals: list[Terminal], lines: list[str]) -> None:
    """Look at the newest terminal first, until one shows the lines."""
    began = time.monotonic()
    while not any(terminal.shows(lines) for terminal in reversed(terminals)):
        said = "\n".join(f"$ {terminal.commands}{terminal.said()}" for terminal in terminals)
        assert time.monotonic() - began < PATIENCE_S, f"no terminal shows {lines}:\n{said}"
        time.sleep(0.05)
