"""The tool that counts translated phrases: its patterns, and its reading of prose from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frame import language
from tests.frame.language import PATTERNS, Sentence


@pytest.mark.parametrize(
    ("pattern", "hits", "misses"),
    [
        (
            "who/what",
            ["What it sends, byte for byte.", "Who has none gets all.", "**What** waits"],
            ["What does it send?", "(Who listens?)", "What's new", "It knows what to send.", "Whoever asks"],
        ),
        ("of …", ["Of a longer message fewer connections get it.", "of both"], ["Of course it does.", "One of two"]),
        ("of it", ["There are two of them.", "the rest of it."], ["two of its clients", "of that"]),
        ("whoever", ["Whoever listens", "It takes whatever comes."], ["however", "what is more"]),
        (
            "is told",
            ["The client is told.", "They are looked at.", "It has to be asked for, once.", "It is not said so."],
            ["The home is told by a peer.", "Two are told apart.", "It tells the client.", "It is looked up."],
        ),
        ("beside", ["beside the store"], ["besides the store"]),
        ("so many", ["so many bytes go out"], ["so much, many"]),
        ("anew", ["listens anew"], ["a new one"]),
        ("but for", ["all but for one"], ["but before", "for"]),
        ("want of", ["for want of Java"], ["they want offers"]),
    ],
)
def test_a_pattern_finds_its_sentences_and_no_others(pattern: str, hits: list[str], misses: list[str]) -> None:
    expression = PATTERNS[pattern]
    assert [text for text in hits if not expression.search(text)] == []
    assert [text for text in misses if expression.search(text)] == []


def test_every_pattern_is_tried() -> None:
    [mark] = test_a_pattern_finds_its_sentences_and_no_others.pytestmark  # type: ignore[attr-defined]
    assert [row[0] for row in mark.args[1]] == list(PATTERNS)


PAGE = """\
---
title: not prose
---
# What a heading says

One sentence. Another one,
over two lines with `code
in it`, see [the page](https://example.org/what).

    indented code

- an item
  that goes on. And ends.

```
what = fenced
```

| head | `x` |
|---|---|
| what a cell says | \\| |
"""


def test_a_page_has_its_paragraphs_items_and_cells_and_no_code() -> None:
    assert list(language.markdown(PAGE)) == [
        Sentence(6, "One sentence."),
        Sentence(6, "Another one, over two lines with X , see the page."),
        Sentence(12, "an item that goes on."),
        Sentence(13, "And ends."),
        Sentence(21, "what a cell says"),
        Sentence(21, "\\|"),
    ]


def test_restructured_text_loses_its_code_and_directives() -> None:
    code = "Use it::\n\n    code\n\n.. code:: python\n\n    more\n"
    text = f"Title\n=====\n\n{code}\n.. note::\n\n    A :class:`~a.B` is noted.\n"
    assert [sentence.text for sentence in language.restructured(text)] == ["Use it::", "A ~a.B is noted."]


SOURCE = '''\
#!/usr/bin/env python
"""A module, e.g. this one.

    python -m example

It does ``x``.
"""
X = 1  # noqa: F401
# A comment
# over two lines.
LIMIT = 2
"""What an attribute says."""


def f(x: int) -> None:
    """Short."""
    raise ValueError(f"{x} is not a number that " "can be read")  # it raises


NO_PROSE = ("# two words", "a-b-c-d", "a = b[0] + c[1] - d[2] * e(3)")
'''


def test_a_module_has_docstrings_comments_and_messages() -> None:
    prose, messages = language.python(SOURCE)
    assert sorted(prose) == [
        Sentence(2, "A module, e.g. this one."),
        Sentence(6, "It does X."),
        Sentence(9, "A comment over two lines."),
        Sentence(12, "What an attribute says."),
        Sentence(16, "Short."),
        Sentence(17, "it raises"),
    ]
    assert messages == [Sentence(17, "X is not a number that can be read")]


def test_javascript_has_comments_and_messages() -> None:
    source = (
        "/**\n * Sends it. SPEC section 2.\n * @param {string} text What is sent.\n */\n"
        "// One line\n// and another.\nfail(`the endpoint ${name} did not answer`);\n"
    )
    prose, messages = language.javascript(source)
    assert prose == [
        Sentence(2, "Sends it."),
        Sentence(2, "SPEC section 2."),
        Sentence(3, "What is sent."),
        Sentence(5, "One line and another."),
    ]
    assert messages == [Sentence(7, "the endpoint X did not answer")]


def test_a_script_has_comments_with_a_line_to_themselves() -> None:
    source = "#!/bin/sh\n# It waits\n# for both.\nx=1  # not read\n"
    assert list(language.hashes(source)) == [Sentence(2, "It waits for both.")]


@pytest.mark.parametrize(
    ("name", "area"),
    [
        ("README.md", "docs"),
        ("clients/js/README.md", "docs"),
        ("docs/adr/0001-x.md", "decisions"),
        ("protocol/SPEC.md", "spec"),
        ("ARCHITECTURE.md", "contributing"),
        ("broker/core/limits.py", "code"),
        ("Makefile", "code"),
        ("tests/frame/language.py", "tests"),
        ("bench/results/2026-11-28-packing/summary.md", None),
    ],
)
def test_a_file_belongs_to_an_area(name: str, area: str | None) -> None:
    assert language.area_of(name) == area


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A module with a hit in its docstring and one in a message."""
    path = tmp_path / "planted.py"
    path.write_text('"""Good.\n\nThe rest of it."""\nTEXT = "nobody reads the page anew"\n')
    return path


def test_the_tool_lists_hits_with_file_and_line(planted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*arguments: str) -> list[str]:
        language.main([*arguments, str(planted)])
        return capsys.readouterr().out.splitlines()

    assert shown("--list", "anew") == [f"{planted}:4: nobody reads the page anew"]
    assert shown("--list", "all", "--area", "code") == [f"{planted}:3: [of it] The rest of it."]
    table = shown()
    assert table[0] == "| pattern | code | messages |"
    assert "| words | 5 | 5 |" in table
    assert "| of it | 200.00 | 0.00 |" in table
