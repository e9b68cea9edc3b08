"""The core keeps its shape: no part reaches through a desk, its folders know each other in one direction, no object
replaces another's function, no file and no function is too long to read. The first tests check the readers on made-up
sources; the others apply them to the core."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frame.desks import Desks
from tests.frame.layers import ROWS, turned_back

CORE = Path(__file__).resolve().parents[2] / "broker" / "core"

#: The most lines of a file of the core: a reader can read as many in a sitting.
LINES_MAX = 600

#: The most lines of a function: a screen shows as many.
FUNCTION_LINES_MAX = 60


def passed_by(source: str) -> list[tuple[int, str]]:
    return list(Desks([source]).passed_by(source))


KEPT = """
class Mesh:
    def __init__(self, desk: Desk, members: Membership) -> None:
        self._desk = desk
        self._members = members

    def tick(self):
        desk = self._desk
        desk.counts["ticks"] += 1
        desk.emit(Ping(self._members.peers.connection))
        self._desk.job(self._work())
        self.now = desk.now
"""


def test_who_uses_what_the_desk_gives_passes() -> None:
    assert passed_by(KEPT) == []


@pytest.mark.parametrize(
    ("line", "expression"),
    [
        ("self._desk.counts.update(ticks=1)", "self._desk.counts.update"),
        ("desk.router.members.joined", "desk.router.members"),
        ("table = self._desk; table.router.flush()", "table.router.flush"),
        ("one, table = 1, desk; table.router.flush()", "table.router.flush"),
        ("(table := desk).router.flush()", "(table := desk).router.flush"),
        ("other._desk.drops.clear()", "other._desk.drops.clear"),
        ("Desk(1.0).drops.clear()", "Desk(1.0).drops.clear"),
        ("place: 'Desk | None' = None; place.drops.clear()", "place.drops.clear"),
        ("self._place = self._desk; self._place.drops.clear()", "self._place.drops.clear"),
    ],
)
def test_who_goes_past_a_desk_is_found_whatever_the_desk_is_called(line: str, expression: str) -> None:
    source = f"{KEPT}\n    def more(self, desk: Desk, other):\n        {line}\n"
    assert passed_by(source) == [(len(source.splitlines()), expression)]


def test_a_desk_that_another_module_has_named_is_known_in_all() -> None:
    using = "def look(part):\n    return part.place.counts.total()\n"
    naming = "class Part:\n    def __init__(self, desk: Desk):\n        self.place = desk\n"
    assert list(Desks([using, naming]).passed_by(using)) == [(2, "part.place.counts.total")]


def core_sources() -> dict[str, str]:
    return {path.relative_to(CORE).as_posix(): path.read_text(encoding="utf-8") for path in sorted(CORE.rglob("*.py"))}


def test_no_part_of_the_core_goes_past_its_desk() -> None:
    sources = core_sources()
    desks = Desks(sources.values())
    assert list(desks.passed_by("self._desk.router.mesh")), "the reader does not know the parts' desks"
    found = [
        f"{name}:{line}: {expression}"
        for name, source in sources.items()
        for line, expression in desks.passed_by(source)
    ]
    assert found == []


def test_an_import_of_a_folder_above_is_found() -> None:
    below = {"messages/home.py": "from ..topics.routes import Routes\nfrom .fanout import Fanout"}
    assert turned_back(below) == []
    above = {"topics/routes.py": "from ..desk import Desk\nfrom ..messages.home import Home"}
    assert turned_back(above) == ["topics/routes.py:2: topics must not know messages"]


def test_the_core_s_folders_know_each_other_in_one_direction() -> None:
    sources = {name: source for name, source in core_sources().items() if not name.endswith("__init__.py")}
    assert {name.partition("/")[0].removesuffix(".py") for name in sources} == {name for row in ROWS for name in row}
    assert turned_back(sources) == []


def bound_from_outside(source: str) -> Iterator[int]:
    """Yield the lines that set an object's attribute to a lambda, which another object would replace."""
    for node in ast.walk(ast.parse(source)):
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if value is not None else []  # type: ignore[attr-defined]
        if isinstance(value, ast.Lambda) and any(isinstance(target, ast.Attribute) for target in targets):
            yield node.lineno  # type: ignore[attr-defined]


def test_an_attribute_that_another_part_is_to_bind_is_found() -> None:
    source = (
        "class Home:\n    def __init__(self):\n        self.a: Any = lambda: 0\n        self.b = min(key=lambda x: x)\n"
    )
    assert list(bound_from_outside(source)) == [3]


def test_no_attribute_of_the_core_is_bound_from_outside() -> None:
    found = [f"{name}:{line}" for name, source in core_sources().items() for line in bound_from_outside(source)]
    assert found == []


def test_no_file_of_the_core_is_longer_than_a_sitting() -> None:
    lines = {name: len(source.splitlines()) for name, source in core_sources().items()}
    assert {name: count for name, count in lines.items() if count > LINES_MAX} == {}


def test_no_function_of_the_core_is_longer_than_a_look() -> None:
    lengths = {
        f"{name}:{node.lineno}: {node.name}": node.end_lineno - node.lineno + 1
        for name, source in core_sources().items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.end_lineno is not None
    }
    assert {name: count for name, count in lengths.items() if count > FUNCTION_LINES_MAX} == {}
