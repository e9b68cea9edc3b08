"""The documentation site builds without a warning, its links lead somewhere, it fetches nothing from other sites, and
the commands of its first page work."""

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
#: The build takes seven seconds of one core, and several times as long on a loaded machine.
BUILD_S = 120

#: Pages that a browser shows: name, width in pixels, dark.
SHOWN = [("docs/start", 1280, False), ("protocol/SPEC", 390, True), ("docs/configuration", 390, False)]

#: Builds the site like `make docs`, with two differences that save half of the time. Only the pages shown have a
#: sidebar, which the theme makes again for each page. The search index has unstemmed words.
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

pytestmark = pytest.mark.timeout(BUILD_S + 60)  # the first test's time includes the build


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site. All its tests run in one process."""
    wants.module("sphinx", "docs")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-c", BUILD, "-b", "html", "-c", "docs", "-W", "--keep-going", "-q", ".", str(out)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=BUILD_S)
    assert (built.returncode, built.stderr) == (0, ""), built.stderr
    return out


class Page(HTMLParser):
    """The anchors of a page, its links to follow, and the files that a browser fetches."""

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
    """Sphinx already warns of a page in no toctree; this finds one that it does not build."""
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
    """It is no wider than the screen (wide tables scroll separately), and fetches only files."""
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
    """The pages name modules, tests and targets that exist."""
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


# -- The commands of docs/start.md


class Terminal:
    """A block of commands in a separate shell, which prints into a file."""

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
        """Return all output so far."""
        return self._file.read_text(encoding="utf-8")

    def shows(self, lines: list[str]) -> bool:
        """Return whether it has printed these lines, in any order. An … stands for anything."""
        patterns = [".*".join(map(re.escape, line.split("…"))) for line in lines]
        said = self.said()
        return all(re.search(f"^{pattern}$", said, re.MULTILINE) for pattern in patterns)

    def end(self) -> None:
        """End the shell and the processes that it started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(PATIENCE_S)


def shim(folder: Path, name: str, *command: str) -> None:
    """Make a command of that name that runs this tree's code, not the installed package."""
    quoted = " ".join(f"'{word}'" for word in command)
    (folder / name).write_text(f'#!/bin/sh\nexec {quoted} "$@"\n', encoding="utf-8")
    (folder / name).chmod(0o755)


@pytest.mark.cluster
def test_what_the_first_page_says_to_type_works(tmp_path: Path) -> None:
    """Run each block ``sh`` in a separate terminal, and write each ``python`` into the file it names. Each ``text`` has
    to appear on one of the terminals. The ports differ, and the test skips the setup, which CI has already done.
    """
    page = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    blocks = re.findall(r"(?:`(\w+\.py)`:\n)?^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert blocks[0] == ("", "sh", "make setup && . .venv/bin/activate\n")
    claimed = claim(2)
    ports = claimed.first, claimed.first + 1
    (tmp_path / "bin").mkdir()
    shim(tmp_path / "bin", "ingeborg", sys.executable, "-m", "ingeborg.broker.command.cli")
    shim(tmp_path / "bin", "python", sys.executable)
    # The page shows the output of a checkout that is not compiled.
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
        # The first two, `serve` and `sub`, go on running.
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
