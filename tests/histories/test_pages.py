"""The required outcome of pages, by hand-made records."""

from __future__ import annotations

from typing import Any

import pytest

from .pages import Kept, check_pages
from .plan import GONE, OPERATIONS_S, PAGE_SLOTS, PAGES, make_plan
from .record import Event

SLOT, NUMBER = 7, 3


def wrote(version: int, *, at: float, by: str = "a", phase: str = "confirmed", gone: bool = False) -> Event:
    about: dict[str, Any] = {"slot": SLOT, "number": NUMBER, "version": version, "gone": gone, "asked_at": at}
    return {"at": at + 0.01, "what": "page", "phase": phase, "endpoint": by, **about}


def has(*versions: int, by: str = "b") -> Event:
    return {"at": 9.0, "what": "kept", "endpoint": by, "pages": [[SLOT, NUMBER, version] for version in versions]}


def came(*arrivals: tuple[float, bool]) -> Event:
    return {"at": 9.0, "what": "arrivals", "endpoint": "b", "slots": [[at, SLOT, whole] for at, whole in arrivals]}


LOST, WHOLE, IN_PART = (0, 0, 0, 1), came((5.0, True)), came((5.0, False))


def counts(kept: Kept) -> tuple[int, int, int, int]:
    return kept.right, kept.moved, kept.excused, len(kept.wrong)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # The version confirmed last is there.
        ([wrote(1, at=1.0), wrote(2, at=2.0), has(2)], (1, 0, 0, 0)),
        ([wrote(1, at=1.0), wrote(2, at=2.0), has(2), WHOLE], (1, 1, 0, 0)),
        ([wrote(1, at=1.0), wrote(2, at=2.0), has(1), WHOLE], LOST),
        ([wrote(1, at=1.0), has(), WHOLE], LOST),
        ([wrote(1, at=1.0), has(-1), IN_PART], LOST),
        # A page whose removal was confirmed last is not.
        ([wrote(1, at=1.0), wrote(2, at=2.0, gone=True), has(), WHOLE], (1, 1, 0, 0)),
        ([wrote(1, at=1.0), wrote(2, at=2.0, gone=True), has(1), WHOLE], LOST),
        # An unanswered write can be there, if it is later than the confirmed one.
        ([wrote(1, at=1.0), wrote(2, at=2.0, phase="in doubt"), has(1)], (1, 0, 0, 0)),
        ([wrote(1, at=1.0), wrote(2, at=2.0, phase="in doubt"), has(2)], (1, 0, 0, 0)),
        ([wrote(1, at=1.0, phase="in doubt"), wrote(2, at=2.0), has(1)], LOST),
        ([wrote(1, at=1.0, phase="in doubt"), has()], (1, 0, 0, 0)),
        ([wrote(1, at=1.0, phase="in doubt", gone=True), wrote(2, at=2.0, phase="in doubt"), has(2)], (1, 0, 0, 0)),
        # A refused write cannot.
        ([wrote(1, at=1.0), wrote(2, at=2.0, phase="refused"), has(2)], LOST),
        ([wrote(1, at=1.0, phase="refused"), has()], (0, 0, 0, 0)),
        # After an arrival in part, earlier writes have no guarantee.
        ([wrote(1, at=1.0), has(), IN_PART], (0, 0, 1, 0)),
        ([wrote(1, at=1.0), wrote(2, at=2.0), has(1), came((5.0, False), (6.0, True))], (0, 0, 1, 0)),
        ([wrote(1, at=1.0), has(1), IN_PART], (1, 0, 0, 0)),
        ([wrote(1, at=1.0), wrote(2, at=6.0), has(), IN_PART], LOST),
        # A page is in one place.
        ([wrote(1, at=1.0), has(1), has(1, by="c")], (0, 0, 0, 2)),
        # Nothing was checked in a history that did not become whole.
        ([wrote(1, at=1.0)], (0, 0, 0, 0)),
    ],
)
def test_what_was_confirmed_last_is_at_the_present_home(
    events: list[Event], expected: tuple[int, int, int, int]
) -> None:
    assert counts(check_pages(events)) == expected


def test_a_page_that_is_wrong_is_told_with_its_story() -> None:
    (found,) = check_pages([wrote(1, at=1.0), wrote(2, at=2.0, gone=True), has(1), WHOLE]).wrong
    assert found == (
        2.0,
        "page (7, 3): b has version 1; it has to be one of [0]. Written: 1.010 1 confirmed by a; "
        "2.010 2 gone confirmed by a. Its slot arrived: 5.000 whole",
    )


def test_a_plan_has_pages_of_its_own_and_the_same_ones_every_time() -> None:
    def plan(seed: int) -> Any:
        return make_plan(seed, store="lmdb", network="proxy", endpoints="abc", links=[], kinds=["pause"])

    one, again, other = plan(1), plan(1), plan(2)
    assert one == again
    assert OPERATIONS_S - 0.5 < max(writing.at_s for writing in one.pages) < 2 * OPERATIONS_S
    keys = {(writing.slot, writing.number) for writing in one.pages}
    assert len({slot for slot, _ in keys}) == PAGE_SLOTS
    assert {number for _, number in keys} == set(range(PAGES, 2 * PAGES))
    assert keys.isdisjoint((writing.slot, writing.number) for writing in other.pages)
    assert [writing.version for writing in one.pages] == list(range(1, len(one.pages) + 1))
    assert GONE / 2 < sum(writing.gone for writing in one.pages) / len(one.pages) < GONE * 2
