"""Counts phrases that read like a translation, in all prose of the project.

Owns: the patterns, and the reading of prose from pages, code comments, docstrings and messages. Must never: judge how
many are too many: `test_language.py` has the levels.

    python -m tests.frame.language                     # a table: hits per 1,000 words, area by area
    python -m tests.frame.language --list beside       # file, line and sentence of each hit ("all": every pattern)
    python -m tests.frame.language --list all docs/riak.md broker/store
"""

from __future__ import annotations

import argparse
import ast
import re
import signal
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

from tests.frame.test_files import project_files

ROOT = Path(__file__).resolve().parents[2]

BE = r"\b(?:is|are|was|were|be|been|being)(?: (?:not|never|then|also|only|still|always))?"

PATTERNS = {
    # `Who has a filter gets …`, `What it owns`. Questions are fine.
    "who/what": re.compile(r"^\W*(?:who|what)\b(?!['’])(?!.*\?\W*$)", re.IGNORECASE | re.DOTALL),
    # `Of a longer message fewer connections get it.`
    "of …": re.compile(r"^\W*of\b(?! course\b)", re.IGNORECASE),
    "of it": re.compile(r"\bof (?:it|them|those)\b", re.IGNORECASE),
    "whoever": re.compile(r"\b(?:whoever|whatever|whichever|whomever)\b", re.IGNORECASE),
    # `is told`, `are looked at`: passives without an actor.
    "is told": re.compile(
        rf"{BE} (?:told|said|asked|heard|looked (?:at|after)|waited for|spoken of|thought of|done with)\b"
        r"(?! (?:by|apart)\b)",
        re.IGNORECASE,
    ),
    "beside": re.compile(r"\bbeside\b", re.IGNORECASE),
    "so many": re.compile(r"\bso many\b", re.IGNORECASE),
    "anew": re.compile(r"\banew\b", re.IGNORECASE),
    "but for": re.compile(r"\bbut for\b", re.IGNORECASE),
    "want of": re.compile(r"\bwant of\b", re.IGNORECASE),
}

CODE = "X"
"""Stands for inline code in a sentence, and for the values of an f-string."""


class Sentence(NamedTuple):
    """A sentence, or a fragment that stands alone: a cell of a table, an item of a list, a comment."""

    line: int
    text: str


class Line(NamedTuple):
    """A line of prose and its number in the file."""

    number: int
    text: str


_END = re.compile(r"(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bcf\.)(?<!\bvs\.)(?<=[.?!])[\"')\]*_”]*\s+")


def sentences(lines: Iterable[Line]) -> Iterator[Sentence]:
    """Yield the sentences of one paragraph."""
    starts, numbers, joined = [], [], ""
    for number, text in lines:
        starts.append(len(joined))
        numbers.append(number)
        joined += text.strip() + " "
    begin = 0
    for end in [*(match.end() for match in _END.finditer(joined)), len(joined)]:
        if text := joined[begin:end].strip():
            yield Sentence(numbers[bisect_right(starts, begin) - 1], text)
        begin = end


def paragraphs(lines: Iterable[Line]) -> Iterator[Sentence]:
    """Yield the sentences of a comment or docstring, which has empty lines, items and inline code."""
    block: list[Line] = []
    for line in lines:
        if not line.text.strip() or _ITEM.match(line.text):
            yield from sentences(_inline(block))
            block = []
        if line.text.strip():
            block.append(Line(line.number, _ITEM.sub("", line.text)))
    yield from sentences(_inline(block))


_ITEM = re.compile(r"^\s*(?:[-*+•·]|\d+[.)])\s+")
_FENCE = re.compile(r"^\s*(?:[-*+]\s+|\d+\.\s+)?(```+|~~~+)")
_NO_PROSE = re.compile(r"^\s*(?:#{1,6}\s|:::|import |export |\[[^\]]+\]:\s|:\w+:|\|?[\s:|-]+\|?$|[=~^#*+-]{3,}$)")
_RULE = re.compile(r"^\s*\|[\s:|-]*-[\s:|-]*$")  # below the heads of a table's columns
_INLINE = (
    (re.compile(r"<!--.*?-->"), ""),
    (re.compile(r":[\w:.-]+:`([^`<]*?)\s*(?:<[^`]*>)?`"), r"\1"),  # a role of reStructuredText
    (re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL), CODE),
    (re.compile(r"!\[[^\]]*\]\([^)]*\)"), ""),
    (re.compile(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])"), r"\1"),
    (re.compile(r"<https?://[^>]*>|https?://\S+|</?[A-Za-z][^<>]*>"), ""),
    (re.compile(r"\*\*|__(?=\w)|(?<=\w)__|\*(?=\w)|(?<=\w)\*"), ""),
)


def _instead(template: str, match: re.Match[str]) -> str:
    """Replace a match, and keep its line ends so that sentences keep their line numbers."""
    text = match.expand(template)
    return text + "\n" * (match[0].count("\n") - text.count("\n"))


def plain(text: str) -> str:
    """Return the text without inline code, addresses and emphasis."""
    for pattern, instead in _INLINE:
        text = pattern.sub(partial(_instead, instead), text)
    return text


def markdown(text: str) -> Iterator[Sentence]:
    """Yield the prose of a page, without headings, heads of columns and code."""
    block: list[Line] = []
    fence, items = "", False
    lines = text.splitlines()
    if lines[:1] == ["---"] and "---" in lines[1:]:
        head = lines.index("---", 1) + 1
        lines[:head] = [""] * head
    for number, (line, below) in enumerate(pairwise([*lines, ""]), 1):
        mark = _FENCE.match(line)
        if fence:
            fence = "" if line.strip() == fence else fence
            continue
        if line.startswith("    ") and not block and not items:
            continue  # code, since it is indented and not below an item
        items = bool(_ITEM.match(line)) or (items and (not line.strip() or line.startswith(" ")))
        stripped = line.strip().removeprefix("> ").removeprefix(">")
        row = stripped.startswith("|")
        if mark or not stripped or row or _NO_PROSE.match(line) or _ITEM.match(line):
            yield from sentences(_inline(block))
            block = []
        if mark:
            fence = mark[1]
        elif row and (_NO_PROSE.match(line) or _RULE.match(below)):
            continue
        elif row:
            for cell in re.split(r"(?<!\\)\|", plain(stripped.strip("|"))):
                yield from sentences([Line(number, cell)])
        elif stripped and not _NO_PROSE.match(line):
            block.append(Line(number, _ITEM.sub("", stripped)))
    yield from sentences(_inline(block))


def _inline(block: list[Line]) -> Iterator[Line]:
    """A paragraph without inline markup, which may go on from one line to the next."""
    if block:
        texts = plain("\n".join(line.text for line in block)).split("\n")
        yield from (Line(line.number, text) for line, text in zip(block, texts, strict=True))


def restructured(text: str) -> Iterator[Sentence]:
    """The prose of a page in reStructuredText, as other projects write theirs."""
    lines = text.splitlines()
    kept: list[str] = []
    code = -1  # the indentation of what introduced a block of code
    for index, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        below = lines[index + 1] if index + 1 < len(lines) else ""
        if code >= 0 and (not line.strip() or indent > code):
            kept.append("")
            continue
        code = -1
        heading = re.fullmatch(r"\s*([=~^\"'.*#-])\1{2,}\s*", below) and line.strip()
        admonition = re.match(r"\s*\.\. (?:note|warning|tip|admonition|important|seealso|caution|attention)::", line)
        if (line.lstrip().startswith("..") and not admonition) or line.rstrip().endswith("::"):
            code = code if admonition else indent
        kept.append("" if heading or line.lstrip().startswith("..") else line.strip())
    return markdown("\n".join(kept))


_SCANNED = re.compile(
    r"""[rbfuRBFU]{0,2}(?:'''(?:[^\\]|\\.)*?'''|\"""(?:[^\\]|\\.)*?\"""|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")|#[^\n]*""",
    re.DOTALL,
)
_ORDER = re.compile(r"\s*(?:!|type:|noqa|pragma|mypy:|ruff:|shellcheck|fmt:|-\*-)")


def blocks(comments: Iterable[tuple[int, int, str]]) -> Iterator[Sentence]:
    """Yield the sentences of comments: (line, column, text). Adjacent lines are one paragraph."""

    def place(numbered: tuple[int, tuple[int, int, str]]) -> tuple[int, int]:
        index, (number, column, _) = numbered
        return number - index, column

    for _, group in groupby(enumerate(comments), place):
        yield from paragraphs(Line(number, text) for _, (number, _, text) in group if not _ORDER.match(text))


def python_comments(source: str) -> Iterator[Sentence]:
    """Yield the sentences of comments."""
    ends = [match.end() for match in re.finditer("\n", source)]
    found = []
    for match in _SCANNED.finditer(source):
        if match[0].startswith("#"):
            row = bisect_right(ends, match.start())
            found.append((row + 1, match.start() - (ends[row - 1] if row else 0), match[0].lstrip("#").lstrip(":")))
    return blocks(found)


_DOCTEST = re.compile(r"^\s*(?:>>>|\.\.\. )")


def docstring(text: str, first: int) -> Iterator[Sentence]:
    """Yield the sentences of a docstring that begins in this line. Examples are indented, below an empty line."""
    lines = text.split("\n")
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), default=0)
    kept: list[Line] = []
    example = False
    for index, line in enumerate(lines):
        indent = len(line) - len(line.lstrip()) - margin if index else 0
        if index and line.strip() and not lines[index - 1].strip():
            example = indent >= 4
        shown = "" if (example and indent >= 4) or _DOCTEST.match(line) else line
        kept.append(Line(first + index, shown))
    return paragraphs(kept)


def python(source: str) -> tuple[list[Sentence], list[Sentence]]:
    """Return the sentences of docstrings and comments, and those of messages."""
    tree = ast.parse(source)
    prose = list(python_comments(source))
    messages: list[Sentence] = []
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                prose += docstring(node.value.value, node.lineno)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            messages += message(node.value, node.lineno)
        elif isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else CODE for part in node.values)
            messages += message("".join(map(str, parts)), node.lineno)
            waiting += [part for part in node.values if not isinstance(part, ast.Constant)]
        else:
            waiting += ast.iter_child_nodes(node)
    return prose, messages


_WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")


def message(text: str, line: int) -> Iterator[Sentence]:
    """Yield the sentences of a string if it is prose: four words or more, and hardly any signs of code or markup."""
    words = _WORD.findall(text)
    if len(words) < 4 or " " not in text.strip() or re.search(r"</?[a-z]|[{};]\s*\n|\\[a-z(]|=>|\$\(", text):
        return
    if sum(len(word) for word in words) < 0.7 * len(re.sub(r"\s", "", text)):
        return
    for paragraph in re.split(r"\n\s*\n", text):
        yield from sentences([Line(line, plain(each)) for each in paragraph.split("\n")])


_JS_COMMENT = re.compile(r"^[ \t]*/\*\*?(.*?)\*/|^([ \t]*)//(.*?)$", re.DOTALL | re.MULTILINE)
_JS_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`')
_JS_TAG = re.compile(r"^\s*@(?:import|typedef|type|template)\b.*|^\s*@\w+\s*(?:\{[^}]*\}+)?\s*(?:\[?[\w.=]+\]?)?")


def javascript(source: str) -> tuple[list[Sentence], list[Sentence]]:
    """Return the sentences of comments on separate lines, and those of messages."""
    prose: list[Sentence] = []
    short: list[tuple[int, int, str]] = []
    for match in _JS_COMMENT.finditer(source):
        first = source.count("\n", 0, match.start()) + 1
        if match[1] is None:
            short.append((first, len(match[2]), match[3]))
            continue
        lines: list[Line] = []
        for index, text in enumerate(match[1].split("\n")):
            bare = re.sub(r"^\s*\*? ?", "", text)
            if bare.startswith("@"):
                lines.append(Line(first + index, ""))
            lines.append(Line(first + index, _JS_TAG.sub("", bare)))
        prose += paragraphs(lines)
    prose += blocks(short)
    rest = _JS_COMMENT.sub(lambda match: "\n" * match[0].count("\n"), source)
    messages: list[Sentence] = []
    for match in _JS_STRING.finditer(rest):
        text = re.sub(r"\$\{[^}]*\}", CODE, match[1] or match[2] or "")
        messages += message(text, rest.count("\n", 0, match.start()) + 1)
    return prose, messages


def hashes(source: str) -> Iterator[Sentence]:
    """Yield the sentences of comments on separate lines, in a script, a Makefile or a configuration."""
    matches = ((number, re.match(r"(\s*)#+(?!!)(.*)", line)) for number, line in enumerate(source.splitlines(), 1))
    return blocks((number, len(match[1]), match[2]) for number, match in matches if match)


class Prose(NamedTuple):
    """A sentence, its place, and its area."""

    area: str
    file: str
    sentence: Sentence


AREAS = ("docs", "decisions", "spec", "contributing", "code", "messages", "tests")

_COMMENTED = re.compile(r"(?:^|/)(?:Makefile|Dockerfile|\.ci/\w+|[^/]+\.(?:sh|toml|ya?ml|conf|cfg|service))$")


def area_of(name: str) -> str | None:
    """Return the area of a file's prose; None for results, which are generated."""
    if name.startswith("bench/results/"):
        return None
    if name in ("ARCHITECTURE.md", "CONTRIBUTING.md"):
        return "contributing"
    if name.endswith((".md", ".mdx", ".rst")):
        return "spec" if name.endswith("SPEC.md") else "decisions" if name.startswith("docs/adr/") else "docs"
    return "tests" if name.startswith(("tests/", "clients/js/test/")) else "code"


def read(path: Path, name: str) -> Iterator[Prose]:
    """Yield all prose of a file. Strings of tests are no prose, since the tests compare them."""
    area = area_of(name)
    if area is None or name.endswith("_pb2.py"):
        return
    two: Callable[[str], tuple[list[Sentence], list[Sentence]]] | None = {".py": python, ".js": javascript}.get(
        path.suffix
    )
    one: Callable[[str], Iterable[Sentence]] | None = {
        ".md": markdown,
        ".mdx": markdown,
        ".rst": restructured,
    }.get(path.suffix, hashes if _COMMENTED.search(name) else None)
    if two is not None:
        prose, messages = two(path.read_text(encoding="utf-8"))
        yield from (Prose(area, name, sentence) for sentence in prose)
        if area != "tests":
            yield from (Prose("messages", name, sentence) for sentence in messages)
    elif one is not None:
        yield from (Prose(area, name, sentence) for sentence in one(path.read_text(encoding="utf-8")))


def project() -> Iterator[Prose]:
    """Yield all prose of the project."""
    for path in sorted(project_files()):
        yield from read(path, path.relative_to(ROOT).as_posix())


def below(tops: Iterable[Path]) -> Iterator[Prose]:
    """Yield all prose of these files and folders, which may belong to another project."""
    for top in tops:
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file():
                whole = path.resolve()
                name = whole.relative_to(ROOT).as_posix() if whole.is_relative_to(ROOT) else str(path)
                yield from read(path, name)


class Hit(NamedTuple):
    """A sentence with a pattern."""

    pattern: str
    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


class Count:
    """The words and hits of an area."""

    def __init__(self) -> None:
        self.words = 0
        self.hits: list[Hit] = []

    def add(self, file: str, sentence: Sentence) -> None:
        """Count a sentence."""
        self.words += len(_WORD.findall(sentence.text))
        for pattern, expression in PATTERNS.items():
            if found := expression.findall(sentence.text):
                self.hits += [Hit(pattern, file, sentence.line, sentence.text)] * len(found)

    def per_1000(self) -> dict[str, float]:
        """Return the hits per 1,000 words, by pattern."""
        counted = Counter(hit.pattern for hit in self.hits)
        return {pattern: 1000 * counted[pattern] / max(self.words, 1) for pattern in PATTERNS}


def count(prose: Iterable[Prose]) -> dict[str, Count]:
    """Count words and hits, area by area."""
    counts: dict[str, Count] = {}
    for area, file, sentence in prose:
        counts.setdefault(area, Count()).add(file, sentence)
    return counts


def table(counts: dict[str, Count]) -> str:
    """Return the hits per 1,000 words in Markdown: a row for each pattern."""
    areas = [area for area in AREAS if area in counts]
    rows = [["pattern", *areas], ["---", *("---:" for _ in areas)]]
    rows.append(["words", *(f"{counts[area].words:,}" for area in areas)])
    rates = {area: counts[area].per_1000() for area in areas}
    rows += [[pattern, *(f"{rates[area][pattern]:.2f}" for area in areas)] for pattern in PATTERNS]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main(arguments: list[str]) -> None:
    """Print the table, or the hits of a pattern."""
    parser = argparse.ArgumentParser(prog="tests.frame.language", description="count phrases that read translated")
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="files and folders; else the whole project")
    parser.add_argument("--list", choices=[*PATTERNS, "all"], metavar="PATTERN", help=f"{', '.join(PATTERNS)}, or all")
    parser.add_argument("--area", choices=AREAS, help="list only this area's")
    options = parser.parse_args(arguments)
    counts = count(below(options.paths) if options.paths else project())
    if options.list is None:
        print(table(counts))
        return
    for area in [options.area] if options.area else AREAS:
        for hit in counts[area].hits if area in counts else ():
            if options.list in (hit.pattern, "all"):
                print(hit if options.list != "all" else f"{hit.file}:{hit.line}: [{hit.pattern}] {hit.text}")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end quietly with `head`
    main(sys.argv[1:])
