"""The core keeps its shape: no part goes past the desk, no file is too long to read. First the reader of desks, on
made-up sources; then the core, read by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frame.desks import Desks

CORE = Path(__file__).resolve().parents[2] / "broker" / "core"

#: Lines of a file of the core at most: what can be read in a sitting.
LINES_MAX = 400


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


def test_no_file_of_the_core_is_longer_than_a_sitting() -> None:
    lines = {name: len(source.splitlines()) for name, source in core_sources().items()}
    assert {name: count for name, count in lines.items() if count > LINES_MAX} == {}
